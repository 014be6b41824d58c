"""Facets on the two sides of a wall: what floats and labels say of them is what rationals say."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import hardmax as hm
from cells.verify.damages import damages, random_complex
from hardmax.cells._wall_kernels import Facets, Groups, overlaps_in_groups
from hardmax.cells.verify.fixed_choices import exact_cells
from hardmax.cells.verify.settled import held_by_integers
from hardmax.cells.verify.shared_facets import choice_levels, groups, prefixes, share_facet
from hardmax.cells.verify.subject import Subject
from hardmax.cells.walls import cells_behind, dependences, kept_apart, overlaps
from networks.builders import network_of
from oracles.cell_oracle import interior_point, oracle_cells

_KINDS = ("one head", "two heads", "the same head twice", "two blocks", "two attentions")


def _layers(seed, dim, kind, numbers):
    """A small network with attention, for the oracle too: integers tie, thirds are rounded."""
    rng = np.random.default_rng(seed)

    def number(*shape):
        return (rng.integers(-2, 3, size=shape) / (3 if numbers == "thirds" else 1)).tolist()

    def attention(n_heads):
        heads = [(number(3, 2), number(3, dim), number(2, dim), None) for _ in range(n_heads)]
        if kind == "the same head twice":
            heads = [heads[0], (heads[0][0], number(3, dim), heads[0][2], None)]
        return ("residual", [("attention", heads, np.concatenate([np.eye(dim)] * len(heads), axis=1).tolist())])

    relus = [("affine", number(2, dim), number(1, 2)[0]), ("relu",)]
    readout = ("affine", [[float(seed % 3 - 1)] * 2], None)
    if kind == "two attentions":
        return [attention(1), attention(1), ("affine", number(2, dim), None)]
    if kind == "two blocks":
        inner = ("residual", [*relus, ("affine", number(dim, 2), None)])
        return [attention(1), inner, attention(1), ("affine", number(2, dim), number(1, 2)[0]), ("relu",), readout]
    return [attention(2 if kind == "two heads" else 1), *relus, readout]


def _cases(first, last):
    """Complexes of every kind in two to four dimensions, each with its layers, low end and high end."""
    for seed in range(first, last):
        dim, kind = 2 + seed % 3, _KINDS[seed % 5]
        layers = _layers(seed, dim, kind, "thirds" if seed // 5 % 2 else "integers")
        for low, high, domain in ((-2, 2, hm.Box([-2] * dim, [2] * dim)), (None, None, hm.Space(dim))):
            yield seed, layers, low, high, hm.enumerate_cells(network_of(layers, dim), domain)


def test_neighbours_and_regions_behind_any_attention_are_the_oracles():
    """Heads that tie with one another, walls that coincide, and facets that match in parts."""
    n_asked = n_crossed = 0
    for seed, layers, low, high, cells in _cases(0, 30):
        if cells.n_cells > 20:
            continue
        truth = oracle_cells(layers, cells.dim, low, high)
        labels = [tuple(label) for label in cells.labels.tolist()]
        pairs = {frozenset((labels[i], labels[j])) for i, j in cells.neighbours.tolist()}
        assert pairs == truth.neighbours, seed
        assert (cells.n_regions, cells.n_maps) == (truth.regions, truth.maps), seed
        n_crossed += sum(sum(a != b for a, b in zip(*pair, strict=True)) > 1 for pair in pairs)
        n_asked += 1
    assert n_asked > 30 and n_crossed > 150


_DAMAGES = {"label", "labels exchanged", "vertex 1e-7", "cell dropped", "cell twice", "pair dropped", "pair added"}


def test_what_is_wrong_with_a_complex_behind_attention_is_found():
    """Also a neighbour that was exchanged for another."""
    n_found = 0
    for seed, _, _, _, cells in _cases(30, 39):
        assert hm.verify(cells).ok, seed
        if cells.n_cells > 60:
            continue
        for name, wrong in damages(cells, seed):
            assert name not in _DAMAGES or not hm.verify(wrong).ok, (seed, name)
            n_found += name in _DAMAGES
        pairs = cells.neighbours.copy()
        pairs[len(pairs) // 2, 1] = pairs[len(pairs) // 2, 0] + 1 + (np.diff(pairs[len(pairs) // 2])[0] == 1)
        pairs = np.unique(pairs[pairs[:, 1] < cells.n_cells], axis=0)
        if not np.array_equal(pairs, cells.neighbours):
            cells.__dict__["neighbours"] = pairs
            assert not hm.verify(cells).ok, seed
            n_found += 1
    assert n_found > 60


@pytest.mark.parametrize("numbers", ["integers", "thirds"])
@pytest.mark.parametrize("domain", ["box", "space"])
def test_no_cell_behind_a_facet_is_passed_over(numbers, domain):
    """Also where choices tie on a wall, so that labels do not tell who lies behind it, or facets match in parts."""
    n_shared = n_passed = n_held = 0
    kinds = (2, "deep relu"), (3, "relu"), (2, "maxout"), (3, "deep relu"), (2, "attention then relu")
    for seed, (dim, layers) in enumerate(kinds):
        subject = Subject(random_complex(seed, dim, layers, numbers, domain), False)
        levels, _ = choice_levels(subject.graph)
        inner = np.flatnonzero(subject.wall_column >= 0)[::3]
        before, level = prefixes(subject.labels, levels), levels[subject.wall_column[inner]]
        found = {tuple(pair) for pair in cells_behind(subject.facets, inner, level, before).tolist()}
        pairs = np.array([(facet, other) for facet in inner.tolist() for other in range(subject.n_cells)])
        held = dict(zip(map(tuple, pairs.tolist()), held_by_integers(subject, pairs).tolist(), strict=True))
        for facet, numbers_before in zip(inner.tolist(), before[level], strict=True):
            cell, column = int(subject.facet_owner[facet]), int(subject.wall_column[facet])
            is_other = subject.labels[:, column] != subject.labels[cell, column]
            for other in np.flatnonzero(is_other & (numbers_before == numbers_before[cell])).tolist():
                place = facet - int(subject.pieces.facet_start[cell])
                is_shared = share_facet(subject.shape(cell), subject.shape(other), place)
                assert not is_shared or (facet, other) in found, (seed, facet, other)
                assert held[facet, other] in (-1, int(is_shared)), (seed, facet, other)
                n_held += held[facet, other] >= 0
                n_shared += is_shared
                n_passed += (facet, other) not in found
    assert n_shared > 20 and n_passed > 100, (n_shared, n_passed)
    assert n_held > 300 if numbers == "integers" else n_held < 100, n_held


@cache
def _judged():
    """Complexes with the facets on the two sides of their walls, and which pairs of these overlap in rationals."""
    found = []
    for seed, kind in enumerate([(3, "attention then relu", numbers) for numbers in ("integers", "thirds", "normal")]):
        for domain in ("box", "space"):
            subject = Subject(random_complex(seed, *kind, domain), False)
            levels, jumps = choice_levels(subject.graph)
            inner = np.flatnonzero(subject.wall_column >= 0)
            sides = groups(subject, inner[jumps[subject.wall_column[inner]]], levels)
            start, truth = subject.pieces.facet_start, {}
            for one, two in sides.pairs.tolist():
                i, j = int(subject.facet_owner[one]), int(subject.facet_owner[two])
                truth[one, two] = share_facet(subject.shape(i), subject.shape(j), one - int(start[i]))
            found.append((subject, sides, truth))
    return found


@pytest.mark.parametrize("which", ["nothing", "rows", "walls", "constants", "points", "everything"])
@pytest.mark.parametrize("size", [1e-12, 1e-3, 0.1, 0.5])
def test_overlaps_are_what_rationals_say_however_numbers_are_off_within_their_errors(which, size):
    """Numbers are moved by up to their errors; what is decided all the same must be right."""
    rng, counts = np.random.default_rng(1), {-1: 0, 0: 0, 1: 0}
    for subject, sides, truth in _judged():
        facets, alike = subject.facets, np.zeros(subject.n_cells, dtype=np.int64)
        is_wall = np.zeros((len(facets.rows), 1))
        is_wall[sides.members] = 1.0
        shares = {name: which in (name, "everything") for name in ("rows", "constants", "points")}
        shares |= {"ends": shares["points"], "rows": is_wall if which == "walls" else shares["rows"]}
        bounds = {"rows": "error", "constants": "loose", "points": "off", "ends": "off"}
        for _ in range(6):
            moved = {}
            for name, share in shares.items():
                numbers, bound = getattr(facets, name), bounds[name]
                off = size * share * (np.maximum(1.0, np.abs(numbers)) if bound != "off" else np.ones(numbers.shape))
                moved[name] = numbers + off * rng.integers(-1, 2, size=off.shape)
                if name != "ends":
                    moved[bound] = getattr(facets, bound) + 1.000001 * (off.max(axis=1) if bound == "off" else off)
            pairs, verdict = overlaps(facets._replace(**moved), sides, subject.graph, alike)
            said = {(int(a), int(b)): int(v) for (a, b), v in zip(pairs, verdict, strict=True)}
            for pair, does in truth.items():
                found = said.get(pair, 0)
                counts[found] += 1
                assert found == -1 or found == does, pair
    assert counts[0] > 20 and (counts[1] > 20 or size > 0.01), counts
    assert which != "nothing" or counts[-1] < counts[1], counts


def test_constants_that_were_not_kept_say_nothing_whatever_stands_behind_them():
    """Without attention nobody keeps constants: what lies in memory there once told facets apart that overlap."""
    walls = hm.Affine([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # two coincide
    subject = Subject(hm.enumerate_cells(hm.Network([walls, hm.ReLU()], 2), hm.Space(2)), False)
    facets, inner = subject.facets, np.flatnonzero(subject.wall_column >= 0)
    sides = groups(subject, inner, choice_levels(subject.graph)[0])
    assert len(facets.constants) == 0
    behind = np.where(subject.labels == 1, -1e9, 1e9)  # no choice wins anywhere
    facets = facets._replace(constants=behind[:0], loose=np.zeros_like(behind)[:0])
    pairs, verdict = overlaps(facets, sides, subject.graph, np.zeros(subject.n_cells, dtype=np.int64))
    said = {(int(a), int(b)): int(v) for (a, b), v in zip(pairs, verdict, strict=True)}
    n_two_apart = 0
    for one, two in sides.pairs.tolist():
        i, j = int(subject.facet_owner[one]), int(subject.facet_owner[two])
        is_shared = share_facet(subject.shape(i), subject.shape(j), one - int(subject.pieces.facet_start[i]))
        assert said.get((one, two), 0) in (-1, int(is_shared)), (one, two)
        n_two_apart += is_shared and (subject.labels[i] != subject.labels[j]).sum() > 1
    assert n_two_apart > 0


def _on_wall(wall, wall_error, rows, error):
    """What the compiled loop says of rows, the first of one cell and the others of another, on a wall between these."""
    dim, n = len(wall) - 1, len(rows)
    names = np.zeros((0, dim)), np.zeros(0), np.zeros(0, dtype=bool)
    facets = Facets(
        labels=np.zeros((2, 1), np.uint8), facet_start=np.array([0, 2, n + 2]), owner=np.repeat([0, 1], [2, n]),
        column=np.full(n + 2, -1), rival=np.zeros(n + 2, np.int64), is_infinite=np.zeros(n + 2, dtype=bool),
        rows=np.array([wall, rows[0], -wall, *rows[1:]]),
        error=np.array([wall_error, error[0], wall_error, *error[1:]]),
        constants=np.zeros((2, 0)), loose=np.zeros((2, 0)), option=np.zeros(1, np.int64),
        corner_start=np.zeros(n + 3, np.int64), corner=np.zeros(0, np.int64),
        points=names[0], ends=names[0], off=names[1], is_far=names[2],
    )  # fmt: skip
    groups = Groups(np.array([0, 2]), np.array([0, 2]), np.array([1]), np.zeros(2, np.int64))
    _, verdict = overlaps_in_groups(groups, facets, np.zeros((3, 1, 1), dtype=bool))
    return int(verdict[0]) if len(verdict) else 0


def _tetrahedra(gap, n_copies):
    """Cells over two tetrahedra of the wall w = 0, n of each: one with an edge on the x-axis, one with an edge along y
    above it. No face of either has all of the other behind it."""
    low = np.array([[1, 0, 0, 0], [-1, 0, 0, 0], [0, 0.5, -1, 0], [0, -0.5, -1, 0]], dtype=float)
    high = np.array([[0, 1, gap, 0], [0, -1, gap, 0], [0.5, 0, 1 + gap, 0], [-0.5, 0, 1 + gap, 0]], dtype=float)
    rows = []
    for side, corners in ((1.0, low), (-1.0, high)):
        faces = [np.linalg.solve(np.c_[np.ones(4), corners[:, :3]], np.eye(4)[k]) for k in range(4)]
        rows.append(np.array([[0, 0, 0, 0, side], *([*face, side] for face in faces)]))
    n, own = 2 * n_copies, np.repeat([0, 1], n_copies)
    column = np.where(own[:, None] == 0, np.arange(5), [0, 5, 6, 7, 8])
    labels = np.zeros((n, 9), np.uint8)
    labels[:, 0] = own
    facets = Facets(
        labels=labels, facet_start=5 * np.arange(n + 1), owner=np.repeat(np.arange(n), 5), column=column.reshape(-1),
        rival=np.where(np.arange(5 * n) % 5 == 0, 1 - np.repeat(own, 5), 1), is_infinite=np.zeros(5 * n, dtype=bool),
        rows=np.concatenate([rows[k] for k in own]), error=np.full((5 * n, 5), 2.0**-40),
        constants=np.zeros((n, 0)), loose=np.zeros((n, 0)), option=np.zeros(9, np.int64),
        corner_start=np.repeat(4 * np.arange(n + 1), 5)[4:], corner=np.arange(4 * n),
        points=np.concatenate([(low, high)[k] for k in own]), ends=np.zeros((0, 4)), off=np.zeros(4 * n),
        is_far=np.zeros(4 * n, dtype=bool),
    )  # fmt: skip
    groups = Groups(5 * np.arange(n), np.array([0, n]), np.array([n_copies]), np.zeros(n, np.int64))
    depends = np.ones((3, 9, 9), dtype=bool)
    depends[2] = False
    return overlaps_in_groups(groups, facets, depends)[1].tolist()


def test_facets_that_no_face_of_theirs_keeps_apart_do_not_overlap_for_that():
    for n_copies in (1, 5):  # rows are shared where there are many
        assert _tetrahedra(0.25, n_copies) == []
        assert _tetrahedra(-0.25, n_copies) == n_copies**2 * [1]


def _whole(row):
    common = np.lcm.reduce([x.denominator for x in row], dtype=object)
    return tuple(int(x * common) for x in row)


def _have_room(wall, rows):
    """Whether some rows are positive together on a wall, in rationals."""
    pivot = next(k for k in range(1, len(wall)) if wall[k])
    on_wall = [
        tuple(x - row[pivot] / wall[pivot] * y for k, (x, y) in enumerate(zip(row, wall, strict=True)) if k != pivot)
        for row in rows
    ]
    return interior_point([_whole(row) for row in on_wall], len(wall) - 2) is not None


def _is_no_multiple(row, wall):
    pivot = next(k for k in range(1, len(wall)) if wall[k])
    return any(x * wall[pivot] != row[pivot] * y for x, y in zip(row, wall, strict=True))


def test_overlaps_on_a_wall_are_what_rationals_say():
    rng = np.random.default_rng(1)
    counts = {1: 0, 0: 0, -1: 0}
    for trial in range(120):
        dim, n_rows = 2 + trial % 3, 4 + trial % 4
        rows = rng.integers(-4, 5, size=(n_rows, dim + 1)) / 3
        if trial % 5 == 0:
            rows[1] = -rows[0]  # two rows that only touch
        box = np.concatenate([np.ones((2 * dim, 1)) * 2, np.concatenate([np.eye(dim), -np.eye(dim)])], axis=1)
        rows = np.concatenate([rows, box])
        wall = rng.integers(-4, 5, size=dim + 1) / 7
        if not wall[1:].any():
            continue
        error = np.abs(rows) * 2.0**-45
        signs = rng.integers(-1, 2, size=rows.shape)  # the true rows: thirds are not the only numbers nearby
        true = [
            [Fraction(float(x)) + int(s) * Fraction(float(e)) for x, s, e in zip(*parts, strict=True)]
            for parts in zip(rows, signs, error, strict=True)
        ]
        exists = _have_room([Fraction(float(x)) for x in wall], true)
        verdict = _on_wall(wall, 0 * wall, rows, error)
        counts[verdict] += 1
        assert verdict < 0 or verdict == exists, trial
    assert counts[1] > 15 and counts[0] > 15 and counts[-1] > 0, counts


@pytest.mark.parametrize("numbers", ["integers", "thirds", "last places", "scales"])
def test_facets_that_touch_on_a_wall_are_told_apart_by_integers(numbers):
    """Rows through a point of the wall: facets that touch there, in corners, edges or more; or nearly so."""
    rng, counts = np.random.default_rng(3), {1: 0, 0: 0, -1: 0}
    for trial in range(300):
        dim = 2 + trial % 3
        wall, *others = rng.integers(-4, 5, size=(4 + trial % 5, dim + 1)).astype(float)
        if not wall[1:].any():
            continue
        rows, point = np.array(others), rng.integers(-2, 3, size=dim)
        wall[0], rows[:, 0] = -wall[1:] @ point, -rows[:, 1:] @ point
        rows[-1, 0] += trial % 2
        if trial % 3 == 0:  # the wall once more, which says nothing of those who share it
            rows[-1], wall = wall * rng.integers(-2, 3), wall * rng.choice([1, 49, 107, 1001])
        rows = rows / 3 if numbers == "thirds" else rows
        if numbers == "last places":
            at = rng.integers(len(rows)), rng.integers(dim + 1)
            rows[at] = np.nextafter(rows[at], rng.choice([-9.0, 9.0]))
        if numbers == "scales":
            rows, wall = np.ldexp(rows, rng.integers(-60, 60, size=(len(rows), 1))), np.ldexp(wall, -40)
        exact_wall, *exact = ([Fraction(x) for x in row] for row in np.vstack([wall, rows]).tolist())
        told = [row for row in exact if _is_no_multiple(row, exact_wall)]
        verdict = _on_wall(wall, 0 * wall, rows, 0 * rows)
        counts[verdict] += 1
        may_be_open = numbers in ("thirds", "last places") or len(told) < len(exact)
        assert verdict == _have_room(exact_wall, told) or (may_be_open and verdict == -1), (trial, verdict)
    assert counts[1] > 40 and (counts[0] > 20 or numbers == "thirds"), counts


def test_a_gap_smaller_than_the_rows_errors_proves_nothing():
    wall = np.array([0.0, 0.0, 1.0])
    for gap, verdict in ((2.0**-30, 1), (-(2.0**-30), 0)):
        rows = np.array([[0.0, 1.0, 0.0], [gap, -1.0, 0.0]])  # x > 0 and x < gap, on y = 0
        for error, wanted in ((0.0, verdict), (2.0**-29, -1)):
            assert _on_wall(wall, 0 * wall, rows, np.full(rows.shape, error)) == wanted, (gap, error)
    for times, wanted in ((0.5, -1), (1.0, -1), (1.9, -1), (2.5, 1)):
        rows, error = np.array([[0.0, 1.0, 0.0], [times * 2.0**-20, -1.0, 0.0]]), 2.0**-20
        assert _on_wall(wall, 0 * wall, rows, np.full(rows.shape, error)) == wanted, times
    leaning = np.array([[0.0, 1.0, 1.0], [2.0**-30, -1.0, 1.0]])  # on y = -2^-30 there is nothing between them
    for loose, wanted in ((0.0, 1), (2.0**-40, 1), (2.0**-30, -1)):
        assert _on_wall(wall, np.array([loose, 0.0, 0.0]), leaning, 0 * leaning) == wanted, loose


def test_a_wall_that_may_be_no_wall_proves_nothing():
    rows = np.array([[[0.0, 1.0, 0.5], [1.0, -1.0, 0.5]], [[-1.0, 1.0, 0.5], [0.0, -1.0, 0.5]]])
    wall = np.array([0.0, 0.0, 1.0])
    for error in (0.0, 0.6, 1.0, 1.5):
        loose = np.array([0.0, 0.0, error])
        verdict = [_on_wall(wall, loose, part, np.zeros(part.shape)) for part in rows]
        assert verdict == ([1, 0] if error == 0 else [-1, -1]), error


def test_functions_are_the_same_where_labels_agree_in_what_they_depend_on():
    rng, n_same, n_parallel = np.random.default_rng(2), 0, 0
    for _, _, _, _, cells in _cases(42, 52):
        graph, labels = cells.network.graph.in_parts, cells.labels[:12]
        depends = dependences(graph)
        exact = exact_cells(graph, cells.domain, labels)
        for one, two in rng.integers(len(labels), size=(30, 2)).tolist():
            apart = labels[one] != labels[two]
            for column in range(labels.shape[1]):
                rows = [exact[cell].rows[column] for cell in (one, two)]
                if not (depends[0, column] & apart).any():
                    assert (rows[0] == rows[1]).all()
                    n_same += bool(apart.any())
                if not (depends[1, column] & apart).any():
                    assert (rows[0][:, 1:] == rows[1][:, 1:]).all()
                    n_parallel += bool(apart.any()) and not (rows[0] == rows[1]).all()
    assert n_same > 200 and n_parallel > 50


def test_labels_that_are_kept_apart_have_no_point_in_common():
    """Corners that two cells share are such points; two blocks, so that differences go through ReLUs."""
    n_apart = n_together = 0
    for seed in range(24):
        dim = 2 + seed % 2
        layers = _layers(seed, dim, "two blocks", "thirds" if seed % 3 else "integers")
        cells = hm.enumerate_cells(network_of(layers, dim), hm.Box([-3] * dim, [3] * dim))
        if cells.n_cells > 60:
            continue
        subject, one, two = Subject(cells, True), *np.triu_indices(cells.n_cells, 1)
        said = kept_apart(subject.graph, cells.labels[one], cells.labels[two])
        corners = [{p for p, _ in subject.shape(k).corners} for k in range(cells.n_cells)]
        share = np.array([bool(corners[i] & corners[j]) for i, j in zip(one, two, strict=True)])
        assert not (said & share).any(), seed
        n_apart, n_together = n_apart + int(said.sum()), n_together + int(share.sum())
    assert n_apart > 300 and n_together > 300, (n_apart, n_together)


def _doubled(rng, is_swapped):
    """Attention of two equal keys, so that both win everywhere, then ReLUs twice and attention; their values in one
    order or the other."""
    key, values = np.repeat(rng.normal(size=(1, 2)), 2, axis=0), rng.normal(size=(2, 3))
    layers = [
        hm.Residual(hm.Attention([hm.Head(key, values[::-1] if is_swapped else values, rng.normal(size=(2, 3)))]))
    ]
    for _ in range(2):
        layers += [
            hm.Affine(rng.normal(size=(5, 3)), rng.normal(size=5)),
            hm.ReLU(),
            hm.Affine(rng.normal(size=(3, 5))),
        ]
    keys = [rng.normal(size=shape) for shape in ((3, 2), (3, 3), (2, 3))]
    return hm.Network([*layers, hm.Attention([hm.Head(*keys)])], 3)


def test_two_labels_of_one_point_are_not_kept_apart_however_many_relus_differ():
    n_apart = n_turned = 0
    for seed in range(12):
        one, two = (_doubled(np.random.default_rng(seed), is_swapped) for is_swapped in (False, True))
        points = np.random.default_rng(seed + 99).normal(size=(400, 3)) * 3
        ours, theirs = one.labels(points), two.labels(points)
        theirs[:, 0] = 1
        assert not kept_apart(one.graph.in_parts, ours, theirs).any(), seed
        n_turned += int(((ours != theirs).sum(axis=1) > 3).sum())
        n_apart += int(kept_apart(one.graph.in_parts, ours, np.roll(theirs, 1, axis=0)).sum())
    assert n_turned > 500 and n_apart > 500, (n_turned, n_apart)

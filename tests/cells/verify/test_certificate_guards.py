"""``hm.verify`` where its floats are nearest to believing too much: errors a little too small, or so large that another
wall is within them."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens
from cells.verify.damages import copied, damages, random_complex
from hardmax.cells.derived.locating import _boxes as cell_boxes
from hardmax.cells.verify.choices import _misplaced
from hardmax.cells.verify.corners import is_closed, strays
from hardmax.cells.verify.enclosures import followed
from hardmax.cells.verify.fixed_choices import ExactCell, exact_cells
from hardmax.cells.verify.options import first_alike, is_implied
from hardmax.cells.verify.settled import _turns_left
from hardmax.cells.verify.subject import Subject, layout_fault
from hardmax.exact.rationals import fraction, rational
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from oracles.hull_oracle import strict_system_has_solution


@cache
def _complexes():
    kinds = ((2, "deep relu", "thirds"), (2, "maxout", "sevenths"), (3, "deep relu", "sevenths"))
    return [*(random_complex(seed, *kind, "box") for seed, kind in enumerate(kinds)), _cancelling()]


def _cancelling():
    """Large weights of which later ones leave little: walls are known much less well than their sizes say."""
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(6, 2)) + 1000 / 3, rng.normal(size=(6, 6)) / 3.0
    second[:, -1] -= second.sum(axis=1)
    net = hm.Network([hm.Affine(first, rng.normal(size=6) / 7.0), hm.Affine(second), hm.ReLU()], 2)
    return hm.enumerate_cells(net, hm.Box([-1, -1], [1, 1]))


def _below(exact):
    """The largest float that is certainly less than a positive rational."""
    near = float(exact)
    return near if Fraction(near) < exact else float(np.nextafter(near, 0.0))


def _corner_gaps(cells, index, subject):
    """How far each corner's floats are from the exact one, the largest coordinate."""
    first = int(cells.pieces.vertex_start[index])
    for k, (p, _) in enumerate(subject.shape(index).corners):
        floats = cells.pieces.vertices[first + k].tolist()
        yield first + k, max(abs(Fraction(x) - fraction(y)) for x, y in zip(floats, p, strict=True))


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_an_error_just_below_the_truth_is_not_believed_and_one_just_above_is_true(number):
    """One corner of each cell; in floats, which leave it to rationals, and there."""
    cells = _complexes()[number]
    subject = Subject(cells, True)
    small, lowered = cells.pieces.error.copy(), set()
    for index in range(cells.n_cells):
        gaps = [(at, gap) for at, gap in _corner_gaps(cells, index, subject) if gap > 0]
        if gaps:
            at, gap = gaps[index % len(gaps)]
            small[at] = _below(gap)
            lowered.add(index)
            shape, k = subject.shape(index), at - int(cells.pieces.vertex_start[index])
            assert strays(shape, k, cells.pieces.vertices[at], small[at])
            assert not strays(shape, k, cells.pieces.vertices[at], float(np.nextafter(small[at], 1.0)) * 1.001)
    settled = Subject(copied(cells, error=small), False).settled.corners
    assert lowered and not settled[sorted(lowered)].any()


def test_floats_that_are_off_are_not_believed_where_another_cell_proves_the_corner():
    """Each corner moved by two errors and a little, one at a time, in the floats' own eyes."""
    n_seen = 0
    for cells in _complexes()[::2]:
        right = Subject(cells, False).settled.corners
        for cell in np.flatnonzero(right).tolist():
            for corner in range(*cells.pieces.vertex_start[cell : cell + 2].tolist())[:: cells.dim]:
                vertices = np.array(cells.pieces.vertices)
                vertices[corner, cell % cells.dim] += 2.5 * cells.pieces.error[corner] + 2.0**-50
                assert not Subject(copied(cells, vertices=vertices), False).settled.corners[cell]
                n_seen += 1
    assert n_seen > 40


_GEOMETRY = ("label", "labels exchanged", "vertex", "direction", "incidence", "corner", "wall", "error set to 0")


def test_what_floats_settle_of_integer_networks_is_right_in_rationals_however_claims_are_wrong():
    """Corners of such networks have integers; ends of the domain are touched, and several walls meet."""
    n_settled = n_left = 0
    for seed, (dim, layers) in enumerate([(2, "deep relu"), (3, "attention then relu"), (3, "relu"), (4, "attention")]):
        for domain in ("box", "space"):
            cells = random_complex(seed + 20, dim, layers, "integers", domain)
            if domain == "box":  # ends that are integers
                cells = hm.enumerate_cells(cells.network, hm.Box([-2] * dim, [2] * dim))
            assert Subject(cells, False).settled.corners.mean() > 0.9, (seed, domain)
            for name, wrong in damages(cells, seed):
                subject = Subject(wrong, False)
                if not name.startswith(_GEOMETRY) or layout_fault(subject) is not None:
                    continue
                for cell in np.flatnonzero(subject.settled.corners).tolist()[:: 1 + cells.n_cells // 16]:
                    assert _misplaced(subject, cell, subject.shape(cell)) is None, (seed, domain, name, cell)
                    n_settled += 1
                n_left += int((~subject.settled.corners).sum())
    assert n_settled > 500 and n_left > 50, (n_settled, n_left)


def _repeating(seed, numbers, kind):
    """A network whose attention or maxima compare some functions with themselves, and others nearly the same."""
    rng, number = np.random.default_rng(seed), {"integers": 1, "thirds": 3, "normal": np.pi}[numbers]
    keys, values, query, affine, offset = (
        rng.integers(-3, 4, size=shape) / number for shape in ((5, 2), (5, 2), (2, 2), (6, 2), 6)
    )
    keys[3:], affine[[2, 5]], offset[[2, 5]] = keys[[0, 1]], affine[[0, 4]], offset[[0, 4]]
    biases = None if kind == "keys" else (keys @ [1.0, 2.0]) * (1 + np.array([0, 0, 0, 0, 2.0**-52]))
    head = hm.Head(keys, values, query, rng.integers(-3, 4, size=2) / number, biases=biases)
    if kind == "between":  # scores are multiples of one number, where it vanishes all keys tie
        head = hm.Head(keys[:, :1], values, query[:1], rng.integers(-3, 4, size=1) / number)
    if kind == "maxima":
        return hm.Network([hm.Affine(affine, offset), hm.Maxout(3)], 2)
    if kind == "two vectors":  # options of one choice that are made by equal weights of other vectors
        builder = GraphBuilder((2, 2))
        made = builder.add(op.Linear(affine[:4]), 0)
        return hm.Network.from_graph(builder.build(builder.add(op.MaxLast(), builder.add(op.Reshape((1, 8)), made))))
    return hm.Network([hm.Residual(hm.Attention([head])), hm.Affine(affine, offset), hm.ReLU()], 2)


_REPEATING = ("keys", "keys with biases", "maxima", "two vectors")


@pytest.mark.parametrize("numbers", ["integers", "thirds", "normal"])
@pytest.mark.parametrize("kind", _REPEATING)
def test_options_that_repeat_are_one_function_in_rationals(numbers, kind):
    n_seen = 0
    for seed in range(5):
        net = _repeating(seed, numbers, kind)
        graph, dim = net.graph.in_parts, int(np.prod(net.input_shape))
        sizes = np.repeat(graph.choice_options, graph.choice_counts)
        label = np.random.default_rng(seed).integers(sizes)[None]
        (cell,) = exact_cells(graph, hm.Space(dim), label)
        column = 0
        for node, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
            alike = first_alike(graph, node)
            rows = np.concatenate(cell.rows[column : column + count])
            size = len(rows) if cell.is_relu[column] else len(rows) // count
            for option, first in enumerate(alike.tolist()):
                assert first <= option and first // size == option // size, (option, first)
                assert (rows[first] == rows[option]).all(), (option, first)
                n_seen += first < option
            column += count
    assert n_seen >= {"keys": 10, "keys with biases": 5, "maxima": 10, "two vectors": 10}[kind], n_seen


@pytest.mark.parametrize("numbers", ["integers", "thirds", "normal"])
@pytest.mark.parametrize("kind", ["keys", "keys with biases", "maxima", "between"])
def test_floats_settle_cells_where_options_repeat_and_only_right_ones(numbers, kind):
    """However claims are wrong, and where facets and labels name the repetition."""
    n_settled = n_left = share = 0
    for seed in range(3):
        cells = hm.enumerate_cells(_repeating(seed, numbers, kind), hm.Box([-2, -2], [2, 2]))
        share += Subject(cells, False).settled.corners.mean() / 3
        again, shift = {"maxima": ((0, 2), (2, 0))}.get(kind, ((0, 3), (1, 4))), np.array(cells.labels)
        walls = np.array(cells.pieces.walls)
        is_own = (walls >= 0) & (walls >> 24 < (2 if kind == "maxima" else 1))
        for first, repetition in again:
            walls[is_own & (walls & 0xFFFFFF == first)] += repetition - first
            shift[shift[:, 0] == first, 0] = repetition
        renamed, moved = copied(cells, walls=walls), copied(cells, labels=shift)
        wrong = [("renamed", renamed), ("moved", moved)]
        wrong += [*damages(cells, seed), *damages(renamed, seed)]
        for name, other in wrong:
            subject = Subject(other, False)
            if layout_fault(subject) is not None or not name.startswith((*_GEOMETRY, "renamed", "moved")):
                continue
            for cell in np.flatnonzero(subject.settled.corners).tolist():
                assert _misplaced(subject, cell, subject.shape(cell)) is None, (seed, name, cell)
                n_settled += 1
            n_left += int((~subject.settled.corners).sum())
    assert n_settled > 30 and n_left > 20 and share > 0.3, (n_settled, n_left, share)


def test_a_corner_on_a_facet_of_a_repeated_option_is_said_to_lie_there():
    """The apex of a pyramid, with one of its four walls, that two equal options make, left out."""
    rows = [[0.0, 0, 0], [1, 0, -1], [-1, 0, -1], [0, 1, -1], [0, -1, -1], [0, -1, -1]]
    cells = hm.enumerate_cells(hm.Network([hm.Affine(rows), hm.Maxout(6)], 3), hm.Box([-1, -1, -1], [1, 1, 1]))
    (cell,) = np.flatnonzero(cells.labels[:, 0] == 0)
    first, last = cells.pieces.facet_start[cell : cell + 2].tolist()
    walls, incidence = np.array(cells.pieces.walls), np.array(cells.pieces.incidence)
    facet = first + walls[first:last].tolist().index(4)
    start, end = cells.pieces.vertex_start[cell : cell + 2].tolist()
    (apex,) = start + np.flatnonzero((cells.pieces.vertices[start:end] == 0).all(axis=1))
    assert Subject(cells, False).settled.corners[cell]
    incidence[apex, 0] &= ~(np.uint64(1) << np.uint64(facet - first))
    for name in (4, 5):
        named = np.where(np.arange(len(walls)) == facet, name, walls)
        assert not Subject(copied(cells, walls=named, incidence=incidence), False).settled.corners[cell], name


def test_options_of_another_vector_imply_nothing():
    graph = _repeating(0, "thirds", "two vectors").graph
    (node,) = graph.choice_nodes
    assert is_implied(graph, node, 0, 1, [1]) and is_implied(graph, node, 4, 5, [5])
    assert not is_implied(graph, node, 0, 1, [5]) and not is_implied(graph, node, 0, 5, [1])


def test_what_is_implied_rests_on_options_that_are_asked():
    """Also where cells name their facets by other options of the same wall."""
    n_implied = 0
    for seed in range(6):
        cells = hm.enumerate_cells(_repeating(seed, "normal", "between"), hm.Box([-2, -2], [2, 2]))
        rng, walls, facets = np.random.default_rng(seed), np.array(cells.pieces.walls), cells.pieces.facet_start
        for cell in range(cells.n_cells):
            mine = slice(*facets[cell : cell + 2].tolist())
            is_key = (walls[mine] >= 0) & (walls[mine] >> 24 == 0)
            walls[mine][is_key] = rng.choice(np.setdiff1d(np.arange(5), cells.labels[cell, 0]), size=is_key.sum())
        subject = Subject(copied(cells, walls=walls), False)
        assert subject.settled.corners.any()
        node = subject.graph.choice_nodes[0]
        for option, own in np.argwhere(subject.implied[node] == 1).tolist():
            alike = subject.alike[node]  # a lead over an equal option is zero, and says nothing
            rest = [k for k in range(5) if alike[k] != alike[own] and subject.implied[node][k, own] != 1]
            assert is_implied(subject.graph, node, own, option, rest), (seed, option, own)
            n_implied += 1
    assert n_implied > 5, n_implied


@pytest.mark.parametrize("numbers", ["integers", "thirds", "normal"])
def test_options_are_implied_where_their_leads_are_sums_of_others(numbers):
    """By Farkas: where no direction has all the others in front of it and the option behind."""
    rng, counts = np.random.default_rng(4), {True: 0, False: 0}
    divisor = {"integers": 1, "thirds": 3, "normal": np.pi}[numbers]
    for trial in range(120):
        keys = rng.integers(-2, 3, size=(5, 1 + trial % 3)) / divisor
        own, rival, *others = rng.permutation(5)[: 3 + trial % 3].tolist()
        if trial % 4 == 0:  # two leads that cancel, which say nothing of others
            keys[others[0]], keys[own] = -keys[others[-1]], 0.0
        head = hm.Head(keys, keys, np.eye(keys.shape[1]))
        graph = hm.Network([hm.Attention([head])], keys.shape[1]).graph
        found = is_implied(graph, graph.choice_nodes[0], own, rival, others)
        exact = [[Fraction(x) for x in row] for row in keys.tolist()]
        back, *front = ([y - x for x, y in zip(exact[own], exact[k], strict=True)] for k in (rival, *others))
        if strict_system_has_solution(front, [0] * len(front)):
            assert found != strict_system_has_solution([[-x for x in back], *front], [0] * len(front) + [0]), trial
        elif found and len(front) == 2:
            pairs = list(zip(back, front[0], strict=True))
            assert all(x * b == y * a for x, a in pairs for y, b in pairs), trial
        counts[found] += 1
    assert min(counts.values()) > 10, counts


def test_a_map_error_just_below_the_truth_is_not_believed():
    lowered = 0
    for cells in _complexes():
        subject = Subject(cells, True)
        small = cells.map_error.copy()
        wrong = []
        for index in range(cells.n_cells):
            exact = subject.shape(index).cell.output
            term = index % (cells.dim + 1)
            floats = cells.maps[index, term].reshape(-1).tolist()
            gap = max(
                abs(Fraction(x) - fraction(y)) for x, y in zip(floats, exact[term].reshape(-1).tolist(), strict=True)
            )
            if gap > 0:
                small[index, term] = _below(gap)
                wrong.append(index)
        settled = Subject(copied(cells, map_error=small), False).settled.maps
        assert not settled[wrong].any()
        lowered += len(wrong)
    assert lowered > 10


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_error_that_reaches_another_wall_settles_nothing(number):
    """An error so large that a choice could lose at the true corner, or that it could lie outside the domain."""
    cells = _complexes()[number]
    subject = Subject(cells, True)
    for reach_out in (False, True):
        large, raised = cells.pieces.error.copy(), set()
        for index in range(cells.n_cells):
            first, shape = int(cells.pieces.vertex_start[index]), subject.shape(index)
            k = index % len(shape.corners)
            p = [fraction(x) for x in shape.corners[k][0]]
            if reach_out:  # the high end of an axis that the corner does not lie on
                rooms = [Fraction(float(h)) - x for h, x in zip(cells.domain.high, p, strict=True)]
            else:
                rows = [[fraction(x) for x in lead] for lead in shape.cell.leads()]
                leads = [row[0] + sum((a * x for a, x in zip(row[1:], p, strict=True)), Fraction(0)) for row in rows]
                ahead = [(x, row[1:]) for x, row in zip(leads, rows, strict=True) if x > 0 and any(row[1:])]
                rooms = [x / sum(map(abs, normal)) for x, normal in ahead]
            rooms = [room for room in rooms if room > Fraction(1, 10**9)]
            if rooms:
                large[first + k] = float(min(rooms)) * 1.01
                raised.add(index)
        settled = Subject(copied(cells, error=large), False).settled.corners
        assert raised and not settled[sorted(raised)].any(), reach_out


def test_an_error_larger_than_a_polygon_leaves_open_which_way_it_runs():
    cells = _complexes()[0]
    for error, runs in ((cells.pieces.error, True), (np.ones_like(cells.pieces.error), False)):
        subject = Subject(copied(cells, error=error), False)
        assert (_turns_left(subject, subject.settled, np.arange(cells.n_cells)) == runs).all()


def test_an_error_that_reaches_another_tie_of_quadratic_scores_settles_nothing():
    for seed in range(2):
        net, start, end = moving_tokens(seed)
        cells = hm.enumerate_cells(net, hm.Segment(start, end + 1 / 3))
        subject = Subject(cells, True)
        large, raised = cells.pieces.error.copy(), set()
        for index in range(cells.n_cells):
            own = {int(w) >> 24 for w in cells.pieces.walls[2 * index : 2 * index + 2] if w >= 0}
            low, high = (Fraction(float(x)) for x in cells.pieces.vertices[2 * index : 2 * index + 2, 0])
            found = []
            for lead in subject.shape(index).cell.leads():
                a, b, c = (fraction(x) for x in lead)
                room = min(a + u * (b + c * u) for u in (low, high))
                steep = abs(b) + 2 * abs(c) * max(abs(low), abs(high))
                if steep and room > Fraction(1, 10**6):
                    found.append(room / steep)
            if found and own:
                large[2 * index : 2 * index + 2] = float(min(found)) * 1.01
                raised.add(index)
        settled = Subject(copied(cells, error=large), False).settled.corners
        assert raised and not settled[sorted(raised)].any(), seed


def test_boxes_of_cells_hold_their_true_corners():
    for cells in _complexes():
        subject, (low, high) = Subject(cells, False), cell_boxes(cells)
        for index in range(cells.n_cells):
            for p, _ in subject.shape(index).corners:
                exact = [fraction(x) for x in p]
                assert all(Fraction(float(a)) <= x for a, x in zip(low[index], exact, strict=True))
                assert all(x <= Fraction(float(b)) for b, x in zip(high[index], exact, strict=True))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([hm.Residual(hm.Affine([[2.0**-20 / 3, 2.0**-21 / 7], [2.0**-22 / 3, 2.0**-20 / 7]]))], "sums of two tensors"),
        ([hm.Affine(np.diag([1 + 2.0**-33, 1.0])), hm.Affine(np.diag([1 + 2.0**-32, 1.0]))], "products of 66 bits"),
        ([hm.Affine([[1.0, 0.0], [1.0, 0.0]]), hm.Affine([[1.0, 2.0**-65], [1.0, 0.0]])], "sums of 66 bits"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)  # fmt: skip
def test_numbers_a_little_too_long_for_extended_floats_have_an_error(layers, words):
    net = hm.Network([*layers, hm.ReLU()], 2)
    label = np.zeros((1, 2), dtype=np.uint8)
    domain = hm.Box([-1, -1], [1, 1])
    terms, _ = next(followed(net.graph, domain, label, False))
    (truth,) = exact_cells(net.graph, domain, label)
    for choice in range(2):
        for term, exact in enumerate(truth.rows[choice][0]):
            value = terms.value[0, term, choice, 0]
            high = float(value)
            seen = Fraction(high) + Fraction(float(value - np.longdouble(high)))
            assert abs(seen - fraction(exact)) <= Fraction(float(terms.error[0, term, choice, 0])), words


# --- rationals and layout ------------------------------------------------------------------------------------


def test_a_tie_with_any_lower_index_is_broken_wrongly():
    same, other = [rational(1), rational(2)], [rational(0), rational(3)]
    for winner, rows, wrong in ((1, [same, same], True), (2, [other, same, same], True), (2, [same, other, same], True),
                                (0, [same, same], False), (1, [other, same], False)):  # fmt: skip
        cell = ExactCell(np.array([winner]), [np.array(rows, dtype=object)], [False], np.array([], dtype=object))
        assert cell.breaks_ties_wrongly() == wrong, (winner, rows)


def test_a_corner_on_a_facet_that_it_is_not_said_to_lie_on_is_noticed():
    """The apex of a pyramid lies on four walls; with one of them left out the others still meet there."""
    net = hm.Network([hm.Affine([[1.0, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1]]), hm.ReLU()], 3)
    cells = hm.enumerate_cells(net, hm.Box([-1, -1, -1], [1, 1, 1]))
    subject = Subject(cells, True)
    seen = 0
    for index in range(cells.n_cells):
        shape = subject.shape(index)
        assert shape.is_proper()
        for k, facets in enumerate(shape.incidence):
            if len(facets) == 4:
                less = [list(on) for on in shape.incidence]
                less[k] = facets[:-1]
                assert not replace(shape, incidence=less).is_proper()
                seen += 1
    assert seen > 0


def test_four_walls_that_miss_one_another_by_less_than_an_error_settle_no_corner():
    """The tip of a pyramid, whose fourth wall passes by it at a distance that floats do not tell from none."""
    rows = [[1.0, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1]]
    net, missed = (hm.Network([hm.Affine(rows, [0.0, 0, 0, gap]), hm.ReLU()], 3) for gap in (0.0, 2.0**-60))
    cells = hm.enumerate_cells(net, hm.Box([-3, -3, -2], [3, 3, 2]))
    loose = copied(cells, error=np.maximum(cells.pieces.error, 1e-12))
    tips = np.flatnonzero(np.diff(Subject(cells, False).incident_start) == 4)
    owner = np.searchsorted(cells.pieces.vertex_start, tips, side="right") - 1
    assert len(tips) and Subject(loose, False).settled.corners[owner].any()
    loose.network = missed
    assert not Subject(loose, False).settled.corners[owner].any()


def test_a_cell_with_as_many_corners_as_dimensions_does_not_fit():
    cells = _complexes()[0]
    start = cells.pieces.vertex_start.copy()
    keep = np.ones(len(cells.pieces.vertices), dtype=bool)
    keep[start[0] + 2 : start[1]] = False  # two corners are left of the first polygon
    start[1:] -= (~keep).sum()
    parts = {name: getattr(cells.pieces, name)[keep] for name in ("vertices", "walls", "error")}
    assert "ranges" in layout_fault(Subject(copied(cells, vertex_start=start, facet_start=start, **parts), False))


def test_maps_that_floats_tell_apart_and_rationals_do_not_are_one():
    """On one side the slope 1 + 2^-52 is a sum that rounds to 1, on the other a weight."""
    weights = np.array([1.0, 2.0**-54, 2.0**-54, 2.0**-54, 2.0**-54])
    first = np.concatenate([np.tile([[1.0, 0.0]], (5, 1)), [[-1.0, 0.0]]])
    net = hm.Network([hm.Affine(first), hm.ReLU(), hm.Affine([np.append(weights, -1.0 - 2.0**-52)])], 2)
    cells = hm.enumerate_cells(net, hm.Box([-1, -1], [1, 1]))
    assert cells.n_cells == 2 and cells.n_maps == cells.n_regions == 1
    assert hm.verify(cells).ok and hm.verify(cells, thorough=True).ok
    apart = copied(cells, maps=cells.maps + np.array([0.0, 2.0**-52])[:, None, None] * (cells.maps != 0))
    assert hm.verify(apart).ok  # within their errors still


def test_a_polytope_with_a_corner_that_comes_twice_is_not_closed():
    cube = [[2 * k + (corner >> k & 1) for k in range(3)] for corner in range(8)]
    assert is_closed(cube, 6, 3) and not is_closed([*cube, cube[0]], 6, 3) and not is_closed(cube[1:], 6, 3)

"""The parts of ``hm.verify``: enclosures, corners from walls, overlaps on walls, closed polytopes; in rationals."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens, random_question
from cells.verify.damages import copied, random_complex
from hardmax.cells._label_kernels import cells_one_apart, label_sums, sorted_pairs
from hardmax.cells.complex import CellComplex
from hardmax.cells.polytopes import Polytopes
from hardmax.cells.prefixes import needed_choices
from hardmax.cells.verify._corner_kernels import _is_within_end, solution_bound, whole_value
from hardmax.cells.verify._label_kernels import _closes, _room_for_faces, first_corners
from hardmax.cells.verify.corners import CornerError, _meeting, is_closed
from hardmax.cells.verify.enclosures import followed
from hardmax.cells.verify.fixed_choices import exact_cells, exact_outputs
from hardmax.cells.verify.subject import Subject
from hardmax.exact.compiling import kernel
from hardmax.exact.rationals import fraction
from hardmax.exactness import Exactness


def _exact(number) -> Fraction:
    high = float(number)
    return Fraction(high) + Fraction(float(number - np.longdouble(high)))


def _assert_enclosed(terms, row, exact):
    value, error = (
        terms.value[row].reshape(terms.value.shape[1], -1),
        terms.error[row].reshape(terms.value.shape[1], -1),
    )
    truth = np.asarray(exact).reshape(exact.shape[0], -1)
    n_rounded = 0
    for k in range(len(value)):
        for entry in range(value.shape[1]):
            wanted = fraction(truth[k, entry]) if k < len(truth) else Fraction(0)
            gap = abs(_exact(value[k, entry]) - wanted)
            assert gap <= Fraction(float(error[k, entry])), (gap, error[k, entry])
            n_rounded += gap > 0
    return n_rounded


def test_guards_and_maps_lie_within_their_proved_errors():
    cases = [random_complex(seed, 1 + seed % 4, layers, numbers, "box") for seed, (layers, numbers) in enumerate(
        (layers, numbers) for layers in ("deep relu", "attention then relu", "maxout") for numbers in
        ("thirds", "sevenths", "last ulps", "normal", "integers"))]  # fmt: skip
    for seed in range(4):
        net, start, end = moving_tokens(seed)
        cases.append(hm.enumerate_cells(net, hm.Segment(start, end + 1 / 3)))
    slope = hm.Network(
        [hm.Affine([[1 / 3, 1.0], [0.7, -1.0]], [0.1, 0.2]), hm.ReLU(slope=1 / 7), hm.Affine([[1.0, 3.0]])], 2
    )
    cases.append(hm.enumerate_cells(slope, hm.Box([-1, -1], [1, 1])))
    cases.append(hm.enumerate_cells(slope, hm.Segment([1.0, 0.0], [1.0, 1.0])))  # one entry is picked and added to
    n_rounded = 0
    for cells, kind in product(cases, (np.float64, np.longdouble)):
        graph, is_line = cells.network.graph, cells.dim == 1 and isinstance(cells.domain, hm.Segment)
        labels = cells.labels[:6]
        *guards, (output, row_of) = followed(graph, cells.domain, labels, is_line, kind)
        for index, truth in enumerate(exact_cells(graph, cells.domain, labels)):
            rows = iter(truth.rows)
            for terms, of in guards:
                for choice in range(terms.value.shape[2]):
                    part = terms.take(np.array([of[index]]))
                    part = type(part)(part.value[:, :, choice], part.units[:, :, choice], part.lattice, part.exact)
                    n_rounded += _assert_enclosed(part, 0, next(rows).T)
            n_rounded += _assert_enclosed(output, row_of[index], truth.output)
    assert n_rounded > 100  # otherwise nothing was put to the test


def test_dyadic_numbers_are_followed_without_error():
    cells = random_complex(1, 3, "deep relu", "integers", "box")
    for k, (terms, _) in enumerate(followed(cells.network.graph, cells.domain, cells.labels, False)):
        assert terms.exact.all() and not terms.error.any() and terms.units.any() == (k > 0)


def test_labels_that_agree_in_what_the_output_asks_for_have_one_map():
    n_agree = 0
    for seed, layers in enumerate(2 * ("deep relu", "attention then relu", "maxout")):
        cells = random_complex(seed, 2, layers, "integers", "box")
        graph, labels = cells.network.graph.in_parts, cells.labels[:40]
        turned = labels.copy()
        turned[:, seed % 3 :: 3] = 0  # of cells there are none, which does not matter
        labels = np.concatenate([labels, turned, np.zeros_like(labels)])
        known = {}
        for needed, output in zip(
            needed_choices(graph, labels), exact_outputs(graph, cells.domain, labels), strict=True
        ):
            found = [fraction(x) for x in output.reshape(-1)]
            assert known.setdefault(needed.tobytes(), found) == found
        n_agree += len(np.unique(labels, axis=0)) - len(known)
    assert n_agree > 10, n_agree


def test_subnormal_weights_prove_nothing():
    net = hm.Network([hm.Affine([[2.0**-1060]]), hm.ReLU()], 1)
    guards, _ = next(followed(net.graph, hm.Box([0.0], [1.0]), np.zeros((1, 1), dtype=np.uint8), False))
    assert np.isinf(guards.error).all()


def _solved(matrix, right):
    rows = [[*map(Fraction, row), Fraction(b)] for row, b in zip(matrix, right, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def test_distances_to_solutions_are_bounded_and_not_by_much_more_than_they_are():
    rng = np.random.default_rng(0)
    tight = 0
    for trial in range(60):
        dim = 1 + trial % 4
        scale = 2.0 ** rng.integers(-200, 200)
        matrix = rng.integers(-9, 10, size=(dim, dim)) / 7 + rng.normal(size=(dim, dim)) * 2.0**-40 + 3 * np.eye(dim)
        matrix, point = matrix * scale, rng.normal(size=dim)
        off = np.abs(matrix) * 2.0**-50
        true_matrix = [
            [Fraction(x) + Fraction(e) * int(rng.integers(-1, 2)) for x, e in zip(r, d, strict=True)]
            for r, d in zip(matrix, off, strict=True)
        ]
        right = [Fraction(float(x)) for x in matrix @ (point + rng.normal(size=dim) * 2.0**-30)]
        solution = _solved(true_matrix, right)
        gap = [
            sum((a * Fraction(float(x)) for a, x in zip(row, point, strict=True)), -b)
            for row, b in zip(true_matrix, right, strict=True)
        ]
        rounded = np.array([float(x) for x in gap])
        loose = np.abs(rounded) * 2.0**-52
        bound = solution_bound(matrix, off.max(axis=1), np.linalg.inv(matrix), rounded, loose)
        truth = max(abs(x - Fraction(float(y))) for x, y in zip(solution, point, strict=True))
        assert truth <= Fraction(float(bound)), trial
        tight += Fraction(float(bound)) <= truth * Fraction(101, 100)
    assert tight > 40
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert np.isinf(solution_bound(singular, np.zeros(2), singular, np.ones(2), np.zeros(2)))


@kernel(cache=False, nogil=True)
def _closes_in_new_room(masks, n_corners, dim):
    return _closes(masks, n_corners, dim, _room_for_faces(len(masks)))


def _closed_twice(incidence, n_facets, dim):
    """What sets of corners say, and what the compiled loop says of their bits."""
    masks = np.zeros(n_facets, dtype=np.uint64)
    for corner, facets in enumerate(incidence):
        masks[facets] |= np.uint64(1 << corner)
    verdict = is_closed(incidence, n_facets, dim)
    assert _closes_in_new_room(masks, len(incidence), dim) == verdict
    return verdict


def test_random_incidences_close_where_their_twin_says_so():
    """Few of them are polytopes at all; corners on the same facets and facets with the same corners are among them."""
    rng, counts = np.random.default_rng(0), [0, 0]
    for _ in range(20000):
        dim = int(rng.integers(2, 4))
        n_corners, n_facets = int(rng.integers(dim + 1, 6)), int(rng.integers(dim + 1, 6))
        masks = rng.integers(1, 1 << n_corners, size=n_facets)
        counts[_closed_twice([np.flatnonzero(masks >> c & 1).tolist() for c in range(n_corners)], n_facets, dim)] += 1
    assert min(counts) > 50, counts


def test_a_polytope_is_closed_until_one_bit_or_corner_is_missing():
    cube = [[2 * k + (corner >> k & 1) for k in range(3)] for corner in range(8)]
    signs = [[1 if face >> k & 1 else -1 for k in range(3)] for face in range(8)]
    octahedron = [[f for f in range(8) if signs[f][k] == s] for k in range(3) for s in (-1, 1)]
    square_pyramid = [[0, 1, 2, 3], [0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]
    prism = [[*corner, 8 + side] for corner in octahedron for side in (0, 1)]
    pyramid = [[*corner, 8] for corner in octahedron] + [list(range(8))]
    for incidence, n_facets, dim in (
        (cube, 6, 3), (octahedron, 8, 3), (square_pyramid, 5, 3), (prism, 10, 4), (pyramid, 9, 4),
    ):  # fmt: skip
        assert _closed_twice(incidence, n_facets, dim)
        for corner in range(len(incidence)):
            assert not _closed_twice(incidence[:corner] + incidence[corner + 1 :], n_facets, dim)
            for facet in range(n_facets):
                changed = [list(lies_on) for lies_on in incidence]
                changed[corner] = sorted(set(changed[corner]) ^ {facet})
                assert not _closed_twice(changed, n_facets, dim), (corner, facet)
    assert not _closed_twice(cube, 7, 3)  # a facet without corners


def test_float_neighbours_of_a_plane_are_those_of_the_certified_cells():
    for seed in range(30):
        question = random_question(seed, "box", 12)
        if question.dim != 2:
            continue
        believed = hm.enumerate_cells(question.net, question.domain, exactness="float")
        proved = hm.enumerate_cells(question.net, question.domain)
        if believed.n_cells == proved.n_cells:
            named = [
                {frozenset((tuple(c.labels[i].tolist()), tuple(c.labels[j].tolist()))) for i, j in c.neighbours}
                for c in (believed, proved)
            ]
            assert named[0] == named[1], question.name


def test_regions_are_joined_by_few_overlaps_however_many_there_are():
    """Behind a readout of zero everything is one region; 300 pairs need not be looked at to see it."""
    rng = np.random.default_rng(0)
    head = hm.Head(rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=(4, 4)))
    layers = [hm.Residual(hm.Attention([head])), hm.Affine(rng.normal(size=(4, 4)), rng.normal(size=4)), hm.ReLU()]
    cells = hm.enumerate_cells(hm.Network([*layers, hm.Affine(np.zeros((1, 4)))], 4), hm.Box([-1] * 4, [1] * 4))
    assert cells.n_cells > 20 and cells.n_regions == 1
    from hardmax.cells.derived.neighbours import pairs_within

    assert len(pairs_within(cells, cells.map_of)) < len(cells.neighbours)
    assert len(list(combinations(range(cells.n_cells), 2))) > len(cells.neighbours)


def test_tiny_numbers_of_the_domain_prove_nothing():
    """Products of them underflow in floats, however long: rationals must look."""
    net = hm.Network([hm.Affine([[1.0, 2.0]], [1.0]), hm.ReLU()], 2)
    plane = hm.Plane([1.0, 0.0], np.eye(2) * 2.0**-500)
    guards, _ = next(followed(net.graph, plane, np.zeros((1, 1), dtype=np.uint8), False))
    assert np.isinf(guards.error).all()


def test_a_corner_that_comes_twice_is_noticed():
    """Four walls through one point: a pyramid's tip told as two corners on three walls each closes just as well."""
    net = hm.Network([hm.Affine([[-1.0, 0, 1], [0, -1, 1], [1, 0, 1], [0, 1, 1]]), hm.ReLU()], 3)
    cells = hm.enumerate_cells(net, hm.Box([-3, -3, -2], [3, 3, 2]))  # no corner touches a side it is not on
    index = int(np.flatnonzero((cells.labels == 1).all(axis=1))[0])
    pieces, first = cells.pieces, int(cells.pieces.vertex_start[index])
    corner = first + int(np.flatnonzero(~pieces.vertices[first : pieces.vertex_start[index + 1]].any(axis=1))[0])
    walls = pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]
    places = [int(np.flatnonzero(walls == (column << 24))[0]) for column in range(4)]  # in order around the tip
    bits = [sum(1 << places[k] for k in facets) for facets in ((0, 1, 2), (0, 2, 3))]
    incidence = np.insert(pieces.incidence, corner, 0, axis=0)
    incidence[[corner, corner + 1], 0] = bits
    start = pieces.vertex_start + (np.arange(len(pieces.vertex_start)) > index)
    twice = copied(
        cells,
        vertices=np.insert(pieces.vertices, corner, pieces.vertices[corner], axis=0),
        error=np.insert(pieces.error, corner, pieces.error[corner]),
        incidence=incidence,
        vertex_start=start,
    )
    assert Subject(cells, thorough=False).settled.corners.any()
    for thorough in (False, True):
        assert hm.verify(cells, thorough=thorough).ok
        assert [c.name for c in hm.verify(twice, thorough=thorough).checks if not c.passed] == ["corners"]


@kernel(cache=False)
def _whole(row, shift, constant, point, weight):
    return whole_value(row, shift, constant, point, weight)


def test_functions_at_integer_points_are_exact_or_unknown():
    """Numbers of up to 40 bits that cancel, on lattices from coarse ones to those that may underflow."""
    rng, counts = np.random.default_rng(2), [0, 0]
    for trial in range(400):
        bits, shift = int(rng.integers(2, 41)), int(rng.choice([5, 0, -3, -60, -1001]))
        row, point = (rng.integers(-(1 << bits), 1 << bits, size=3) for _ in range(2))
        weight, off = int(rng.integers(1, 9)), int(rng.integers(-1, 2))
        constant = -(int(row[0]) * int(point[0]) // weight) + off
        scale = 2.0 ** min(shift, 0)
        found = _whole(row * scale, shift, float(constant) * scale, point.astype(np.float64), float(weight))
        exact = constant * weight + sum(int(a) * int(x) for a, x in zip(row, point, strict=True))
        assert np.isnan(found) or (found == exact and shift > -1000), trial
        counts[int(np.isnan(found))] += 1
    assert min(counts) > 50, counts


def test_two_corners_that_come_twice_are_not_all_of_a_cube():
    """Each edge belongs to two corners: to one and the same, told twice."""
    net = hm.Network([hm.Affine([[1.0, 0.0, 0.0]], [5.0]), hm.ReLU()], 3)
    cells = hm.enumerate_cells(net, hm.Box([-1] * 3, [1] * 3))
    pieces = cells.pieces
    opposite = int(np.flatnonzero((pieces.vertices == -pieces.vertices[0]).all(axis=1))[0])
    at = [0, 0, opposite, opposite]
    arrays = {name: getattr(pieces, name)[at] for name in ("vertices", "error", "incidence")}
    for thorough in (False, True):
        result = hm.verify(copied(cells, vertex_start=np.array([0, 4]), **arrays), thorough=thorough)
        assert [c.name for c in result.checks if not c.passed] == ["corners"]


def _at(row, corner):
    """An exact function (c, a) at a corner p + M q: its two coefficients."""
    return row[0] + sum(a * x for a, x in zip(row[1:], corner[0], strict=True)), sum(
        a * x for a, x in zip(row[1:], corner[1], strict=True)
    )


def _named(subject, corner):
    """The exact cell that a corner belongs to, and the walls it is said to lie on."""
    owner = int(np.searchsorted(subject.pieces.vertex_start, corner, side="right")) - 1
    shape = subject.shape(owner)
    return shape.cell, [shape.rows[f] for f in shape.incidence[corner - int(subject.pieces.vertex_start[owner])]]


def _firsts(cells):
    """``first_corners`` with weights of zero, so that every comparison is made and no sum decides."""
    subject = Subject(cells, True)
    zeros = [np.zeros(n, dtype=np.uint64) for n in (cells.n_cells, cells.labels.shape[1])]
    return subject, first_corners(subject.plain_labels, *zeros, subject.is_sign, subject.shapes)


def _mistaken(cells, rng):
    """The complex with some labels wrong, and with some walls."""
    labels, walls = np.array(cells.labels), np.array(cells.pieces.walls)
    for _ in range(len(labels)):
        cell, column = int(rng.integers(len(labels))), int(rng.integers(labels.shape[1]))
        labels[cell, column] = rng.choice(cells.labels[:, column])
    walls = np.where(rng.random(len(walls)) < 0.1, rng.permutation(walls), walls)
    return copied(cells, labels=labels), copied(cells, walls=walls)


def test_corners_that_are_one_by_their_labels_are_one_point_with_the_same_numbers():
    """Lemma "corners by labels", also along labels and walls that are wrong."""
    n_shared, rng = 0, np.random.default_rng(5)
    kinds = [("deep relu", 3), ("deep relu", 2), ("attention then relu", 3), ("maxout", 2), ("two attentions", 2)]
    for seed, (layers, dim) in enumerate(kinds * 2):
        cells = random_complex(seed, dim, layers, ("integers", "thirds")[seed % 2], ("box", "space")[seed // 2 % 2])
        for changed in (cells, *_mistaken(cells, rng)):
            subject, first = _firsts(changed)
            for corner in np.flatnonzero(first != np.arange(len(first))).tolist():
                (ours, walls), (theirs, other_walls) = (_named(subject, k) for k in (corner, int(first[corner])))
                try:
                    point = _meeting(other_walls, dim)
                except CornerError:  # no one common point: nothing is said
                    continue
                assert _meeting(walls, dim) == point
                for one, two in zip(ours.rows, theirs.rows, strict=True):
                    assert [_at(row, point) for row in one] == [_at(row, point) for row in two]
                n_shared += 1
    assert n_shared > 1000


def test_a_choice_that_makes_two_walls_of_a_corner_turns_once():
    net = hm.Network([hm.Affine(np.eye(2)), hm.ReLU()], 2)
    cells = hm.enumerate_cells(net, hm.Box([-1] * 2, [1] * 2))
    one, two = (int(np.flatnonzero((cells.labels == k).all(axis=1))[0]) for k in (0, 1))
    walls = np.array(cells.pieces.walls)
    for cell in (one, two):  # both walls through the corner at zero are said to be the first choice's
        part = slice(*cells.pieces.facet_start[cell : cell + 2])
        walls[part] = np.where(walls[part] >= 0, walls[part] & ((1 << 24) - 1), walls[part])
    first = _firsts(copied(cells, walls=walls))[1]
    owner = np.repeat(np.arange(cells.n_cells), np.diff(cells.pieces.vertex_start))
    mine = np.flatnonzero(~cells.pieces.vertices.any(axis=1) & np.isin(owner, [one, two]))
    assert len(mine) == 2 and first[mine[1]] == mine[1]


def _polygons(net, domain, parts):
    """A complex from (label, corners, walls) a cell; errors leave room, so that floats can settle what is right."""
    corners = [[Fraction(x) for x in corner] for _, points, _ in parts for corner in points]
    floats = np.array([[float(x) for x in corner] for corner in corners])
    error = [max(abs(x - Fraction(float(x))) for x in corner) for corner in corners]
    start = np.cumsum([0, *(len(points) for _, points, _ in parts)])
    walls = np.array([wall for _, _, own in parts for wall in own])
    pieces = Polytopes(2, start, floats, start, walls, np.array([4 * float(e) for e in error]))
    labels = np.array([label for label, _, _ in parts], dtype=np.uint8)
    maps = np.array([[[0.0] * 2] * 3] * len(parts))
    return CellComplex(net, domain, Exactness.CERTIFIED, labels, maps, np.zeros((len(parts), 3)), pieces)


@pytest.mark.parametrize("rows", [[[1, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [1, 1, 1]]], ids=["wall", "choice"])
def test_a_constant_that_floats_round_to_zero_is_not_zero(rows):
    """A wall that misses zero, or a choice that is lost there, by less than floats see: nothing is settled there."""
    for w, c, is_zero in ((0.1, 0.9, False), (0.5, 0.5, True)):
        assert (Fraction(w) * Fraction(c) < Fraction(w * c)) != is_zero
        second = np.array(rows, dtype=float) * [1.0, 1.0, w]
        first = hm.Affine([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.0, 0.0, c])
        layers = [
            first,
            hm.Affine(second, -w * c * np.array(rows)[:, 2]),
            hm.ReLU(),
            hm.Affine(np.zeros((2, len(rows)))),
        ]
        square = ((1,) * len(rows), ([0, 0], [1, 0], [1, 1], [0, 1]), (1 << 24, -2, -4, 0))
        cells = _polygons(hm.Network(layers, 2), hm.Box([-1, -1], [1, 1]), [square])
        error = cells.pieces.error.copy()
        error[1:] = 1e-9  # of corners that are not at zero
        cells.pieces = replace(cells.pieces, error=error)
        assert Subject(cells, thorough=False).settled.corners.tolist() == [is_zero], (w, c)


def test_a_sliver_thinner_than_rounding_is_missed_by_floats_and_not_by_verify():
    """The wall x = c with c the float below a third cuts a sliver off the triangle 3 x + y < 1; leave it out."""
    c = Fraction(1 / 3)
    third, tip, relu_1, relu_2 = Fraction(1, 3), 1 - 3 * c, 0, 1 << 24
    assert 0 < tip < 2.0**-53
    layers = [hm.Affine([[3.0, 1.0], [-1.0, 0.0]], [-1.0, 1 / 3]), hm.ReLU(), hm.Affine(np.zeros((2, 2)))]
    net, box = hm.Network(layers, 2), hm.Box([0, 0], [1, 2])
    true_right = ([third, 0], [1, 0], [1, 2], [c, 2], [c, tip])
    left = ((1, 1), ([c, tip], [c, 2], [0, 2], [0, 1]), (relu_2, -4, -1, relu_1))
    right = [
        ((0, 1), ([0, 0], [c, 0], [c, tip], [0, 1]), (-3, relu_2, relu_1 | 1, -1)),
        left,
        ((1, 0), true_right, (-3, -2, -4, relu_2 | 1, relu_1)),
        ((0, 0), ([c, 0], [third, 0], [c, tip]), (-3, relu_1 | 1, relu_2 | 1)),
    ]
    whole = _polygons(net, box, right)
    assert hm.enumerate_cells(net, box).n_cells == 4 and hm.verify(whole).ok, str(hm.verify(whole))
    wrong = [
        ((0, 1), ([0, 0], [third, 0], [0, 1]), (-3, relu_1 | 1, -1)),
        left,
        ((1, 0), ([c, 0], [1, 0], [1, 2], [c, 2]), (-3, -2, -4, relu_2 | 1)),
    ]
    assert not Subject(_polygons(net, box, wrong), thorough=False).settled.corners[[0, 2]].any()
    for thorough in (False, True):
        failed = [
            check for check in hm.verify(_polygons(net, box, wrong), thorough=thorough).checks if not check.passed
        ]
        assert [check.name for check in failed] == ["corners"], failed


def test_a_cell_that_sticks_out_of_the_domain_is_noticed():
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]], [-2.0, -2.0]), hm.ReLU(), hm.Affine(np.zeros((2, 2)))], 2)
    inside = [((0, 0), ([0, 0], [1, 0], [1, 1], [0, 1]), (-3, -2, -4, -1))]
    outside = [((0, 0), ([0, 0], [1, 0], [1, 2], [0, 2]), (-3, -2, (1 << 24) | 1, -1))]
    assert hm.verify(_polygons(net, hm.Box([0, 0], [1, 1]), inside)).ok
    for thorough in (False, True):
        failed = hm.verify(_polygons(net, hm.Box([0, 0], [1, 1]), outside), thorough=thorough)
        assert "corners" in [check.name for check in failed.checks if not check.passed]


@pytest.mark.parametrize("weights", [(0, 0, 0), (1, 1, 1), (1, 2, 3), (2**63, 5, 7)])
def test_labels_with_equal_sums_are_told_apart_by_their_entries(weights):
    """Sums that collide, which random ones never do here: a cell is one apart only if its label is."""
    rng = np.random.default_rng(8)
    labels = np.unique(rng.integers(0, 3, (20, 3)), axis=0).astype(np.uint8)
    weights = np.array(weights, dtype=np.uint64)
    owners, columns, rivals = (part.ravel() for part in np.meshgrid(np.arange(len(labels)), np.arange(3), np.arange(3)))
    keys = label_sums(labels, weights)
    order = np.argsort(owners, kind="stable")
    owners, columns, rivals = owners[order], columns[order], rivals[order]
    start, walls = np.arange(len(labels) + 1) * 9, columns << 24 | rivals
    assert (cells_one_apart(labels, keys, weights, start, walls, np.zeros(3, dtype=bool)) == -1).all()
    found = cells_one_apart(labels, keys, weights, start, walls, np.ones(3, dtype=bool))
    for owner, column, rival, cell in zip(owners, columns, rivals, found, strict=True):
        wanted = labels[owner].copy()
        wanted[column] = rival
        (there,) = np.nonzero((labels == wanted).all(axis=1))
        assert cell == (there[0] if len(there) and rival != labels[owner, column] else -1)


def test_pairs_come_in_order_and_once():
    rng = np.random.default_rng(9)
    for n, many in ((1, 0), (2, 5), (30, 400), (400, 1000)):
        one = rng.integers(0, n, many)
        two = (one + 1 + rng.integers(0, n - 1, many)) % n if n > 1 else one
        found = sorted_pairs(np.stack([one, two], axis=1), n)
        assert found.tolist() == [list(pair) for pair in sorted({tuple(sorted(p)) for p in zip(one, two, strict=True)})]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("is_far", [False, True])
def test_a_corner_on_an_end_of_the_domain_lies_on_the_facet_that_its_cell_has_there(side, is_far):
    ends = np.zeros((1 if is_far else 0, 2))
    domain = np.array([[-3.0, 0.0], [1.0, 2.0]])
    for place in range(-4, 7):  # of the second coordinate, in halves: its ends are 0 and 2, or -M and M
        whole = np.array([2.0, -1.0, 0.0, 0.0, place]) if is_far else np.array([2.0, -1.0, place])
        low, high = (-2, 2) if is_far else (0, 4)
        for columns in ([5, 7], [5, -3 - side], [-1, -2]):  # the ends of the second axis are -3 and -4
            shapes = SimpleNamespace(
                points=np.zeros((1, 2)),
                ends=ends,
                domain=domain,
                facet_start=np.array([0, 2]),
                column=np.array(columns),
            )
            beyond = place - low if side == 0 else high - place
            expected = beyond > 0 or (beyond == 0 and -3 - side not in columns)
            assert _is_within_end.py_func(shapes, 0, whole, 1, side) == expected, (place, columns)

"""What is true of the cells of any network, on small integers where walls coincide all the time."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.exact.rationals import fraction
from laws.small_networks import boxes, networks
from networks.builders import network_of
from oracles.cell_oracle import evaluate

# Past failures of a float engine: three walls through one point, a wall along another's edge, duplicate keys.
CONCURRENT = [("affine", [[1, 0], [0, 1], [1, 1]], [0, 0, 0]), ("relu",), ("affine", [[1, 1, -1]], [0]), ("relu",)]
STACKED = [("affine", [[1, 0], [2, 0], [-1, 0]], [0, 0, 0]), ("relu",)]
_TWIN_KEYS = ([[1, 0], [1, 0], [0, 1]], [[1, 0], [0, 0], [0, 2]], [[1, 0], [0, 1]], [0, 0])
TWINS = [("residual", [("attention", [_TWIN_KEYS], None)])]
# A map (-1, 0) was once taken for the mark of a cell whose map nobody shares.
_STEP_KEYS = ([[0, 0], [0, 0], [0, 0], [0, 1]], [[-1, 0], [0, 0], [0, 0], [0, 0]], [[0, 0, 0], [1, 0, 0]], [0, -1])
STEP = [("affine", [[0, 2], [0, 0], [0, 0]], [0, 0, 0]), ("relu",), ("attention", [_STEP_KEYS], None)]
UNIT = ([0, 0], [1, 1])
AROUND = ([-1, -1], [1, 1])


def _labels(cells):
    return {tuple(label) for label in cells.labels.tolist()}


def _corners(cells, index):
    """The exact corners of a cell, counter-clockwise, as pairs of fractions."""
    return [tuple(fraction(x) for x in corner) for corner in cells.exact_cell(index).vertices]


def _twice_area(corners):
    return sum(a * d - b * c for (a, b), (c, d) in pairwise([*corners, corners[0]]))


def _side(tail, head, point):
    """Positive where a point lies left of an edge."""
    return (head[0] - tail[0]) * (point[1] - tail[1]) - (head[1] - tail[1]) * (point[0] - tail[0])


# --- the cells of one network -----------------------------------------------------------------------------


@given(networks(), boxes())
@example(CONCURRENT, AROUND)
@example(STACKED, UNIT)
@example(TWINS, AROUND)
def test_cells_cover_the_box_exactly(layers, box):
    cells = hm.enumerate_cells(network_of(layers, 2), hm.Box(*box))
    areas = [_twice_area(_corners(cells, index)) for index in range(cells.n_cells)]
    assert min(areas) > 0  # counter-clockwise, and no cell is flat
    (x0, y0), (x1, y1) = box
    assert sum(areas) == 2 * (x1 - x0) * (y1 - y0)
    assert np.allclose(cells.volumes, [float(area / 2) for area in areas], rtol=1e-12)


_SHARES = st.fractions(0, 1, max_denominator=12)


@given(networks(), boxes(), st.lists(st.tuples(_SHARES, _SHARES), max_size=8))
@example(CONCURRENT, AROUND, [(Fraction(1, 2), Fraction(1, 2))])
def test_a_point_lies_inside_one_cell_or_on_walls_and_its_label_says_which(layers, box, shares):
    cells = hm.enumerate_cells(network_of(layers, 2), hm.Box(*box))
    polygons = [_corners(cells, index) for index in range(cells.n_cells)]
    for share in shares:
        point = tuple(a + t * (b - a) for a, b, t in zip(*box, share, strict=True))
        sides = [[_side(*edge, point) for edge in pairwise([*corners, corners[0]])] for corners in polygons]
        inside = [index for index, values in enumerate(sides) if min(values) > 0]
        touching = [index for index, values in enumerate(sides) if min(values) >= 0]
        assert len(inside) <= 1 and touching
        if inside:
            assert touching == inside
            assert tuple(cells.labels[inside[0]].tolist()) == evaluate(layers, point)[0]


@given(networks(), boxes())
@example(CONCURRENT, AROUND)
@example(STACKED, UNIT)
@example(TWINS, AROUND)
def test_corners_minus_edges_plus_cells_is_one(layers, box):
    """Euler's relation on the subdivision, edges cut at the corners of other cells that lie on them."""
    cells = hm.enumerate_cells(network_of(layers, 2), hm.Box(*box))
    polygons = [_corners(cells, index) for index in range(cells.n_cells)]
    corners = {corner for polygon in polygons for corner in polygon}
    edges = set()
    for polygon in polygons:
        for tail, head in pairwise([*polygon, polygon[0]]):
            along = (head[0] - tail[0], head[1] - tail[1])
            on_edge = sorted(
                (share, point)
                for point in corners
                if _side(tail, head, point) == 0
                and 0
                <= (share := along[0] * (point[0] - tail[0]) + along[1] * (point[1] - tail[1]))
                <= along[0] ** 2 + along[1] ** 2
            )
            edges |= {frozenset((a, b)) for (_, a), (_, b) in pairwise(on_edge)}
    assert len(corners) - len(edges) + cells.n_cells == 1


@given(networks(), boxes())
@example(CONCURRENT, AROUND)
@example(STEP, ([0, -1], [1, 1]))
def test_every_mode_finds_the_same_cells_and_the_certificate_holds(layers, box):
    net, domain = network_of(layers, 2), hm.Box(*box)
    found, exact = (hm.enumerate_cells(net, domain, exactness=mode) for mode in ("certified", "exact"))
    assert _labels(found) == _labels(exact)
    assert (found.n_cells, found.n_regions, found.n_maps) == (exact.n_cells, exact.n_regions, exact.n_maps)
    assert found.n_cells >= found.n_regions >= found.n_maps
    assert hm.enumerate_cells(net, domain, exactness="float").exactness == "estimated"
    for cells in (found, exact):
        assert cells.certificate.ok, str(cells.certificate)


@given(networks(dim=3, max_blocks=1), boxes(dim=3))
def test_cells_in_space_fill_the_box_and_carry_their_certificate(layers, box):
    cells = hm.enumerate_cells(network_of(layers, 3), hm.Box(*box))
    assert np.isclose(cells.volumes.sum(), cells.domain.volume, rtol=1e-9)
    assert hm.verify(cells, thorough=True).ok


@given(networks(), boxes())
def test_all_of_the_plane_contains_every_box(layers, box):
    net = network_of(layers, 2)
    everywhere, inside = (_labels(hm.enumerate_cells(net, domain)) for domain in (hm.Space(2), hm.Box(*box)))
    assert inside <= everywhere
    huge = hm.Box([-(2.0**40)] * 2, [2.0**40] * 2)  # beyond every corner that numbers this small can make
    assert _labels(hm.enumerate_cells(net, huge)) == everywhere


# --- two networks or two domains that must agree ------------------------------------------------------------


@given(networks(), boxes(), st.integers(0, 1), st.fractions(0, 1, max_denominator=8))
def test_a_box_cut_in_two_has_the_cells_of_its_halves(layers, box, axis, share):
    net, (low, high) = network_of(layers, 2), box
    at = float(low[axis] + share * (high[axis] - low[axis]))
    halves = set()
    for bounds in ((low[axis], at), (at, high[axis])):
        if bounds[0] < bounds[1]:
            left, right = list(low), list(high)
            left[axis], right[axis] = bounds
            halves |= _labels(hm.enumerate_cells(net, hm.Box(left, right)))
    assert halves == _labels(hm.enumerate_cells(net, hm.Box(low, high)))


_TURNS = st.sampled_from([[[0, 1], [1, 0]], [[1, 1], [0, 1]], [[2, 0], [0, 3]], [[1, -1], [1, 1]], [[-1, 0], [2, 1]]])


@given(networks(), boxes(), _TURNS, st.tuples(st.integers(-2, 2), st.integers(-2, 2)))
@example(CONCURRENT, AROUND, [[1, 1], [0, 1]], (0, 0))
def test_a_sheared_and_scaled_plane_sees_the_network_in_its_own_coordinates(layers, box, basis, origin):
    """Slice coordinates u of x = origin + u basis: the plane's cells are the box's cells of net(origin + u basis)."""
    extent = tuple(zip(*box, strict=True))
    sliced = hm.enumerate_cells(network_of(layers, 2), hm.Plane(origin, basis, extent))
    turn = ("affine", np.transpose(basis).tolist(), list(origin))
    direct = hm.enumerate_cells(network_of([turn, *layers], 2), hm.Box(*box))
    assert _labels(sliced) == _labels(direct)
    assert (sliced.n_regions, sliced.n_maps) == (direct.n_regions, direct.n_maps)
    by_label = {tuple(label): index for index, label in enumerate(direct.labels.tolist())}
    order = [by_label[tuple(label)] for label in sliced.labels.tolist()]
    assert np.allclose(sliced.volumes, direct.volumes[order])
    assert np.allclose(sliced.maps, direct.maps[order])


@given(networks(), _TURNS)
def test_shearing_all_of_the_plane_changes_no_label(layers, basis):
    turn = ("affine", np.transpose(basis).tolist(), [1, -1])
    one, two = (hm.enumerate_cells(network_of(l, 2), hm.Space(2)) for l in (layers, [turn, *layers]))
    assert _labels(one) == _labels(two)
    assert (one.n_regions, one.n_maps) == (two.n_regions, two.n_maps)


@given(networks(max_blocks=3), boxes())
@example([*CONCURRENT[:2], *CONCURRENT[2:]], AROUND)
def test_later_layers_only_refine(layers, box):
    """Cells of a prefix are unions of cells, with the same label so far and the same area in all."""
    domain = hm.Box(*box)
    whole = hm.enumerate_cells(network_of(layers, 2), domain)
    before = 1
    for length in range(1, len(layers) + 1):
        prefix = hm.enumerate_cells(network_of(layers[:length], 2), domain)
        n = prefix.labels.shape[1]
        shorter = [tuple(label[:n]) for label in whole.labels.tolist()]
        assert set(shorter) == _labels(prefix)
        assert before <= prefix.n_cells <= whole.n_cells
        before = prefix.n_cells
        areas = dict.fromkeys(_labels(prefix), 0.0)
        for label, area in zip(shorter, whole.volumes, strict=True):
            areas[label] += area
        assert np.allclose([areas[tuple(label)] for label in prefix.labels.tolist()], prefix.volumes)


@given(networks(max_blocks=1), boxes(), st.permutations(range(6)), st.data())
def test_the_order_of_neurons_only_reorders_labels(tail, box, order, data):
    """A hidden layer of six neurons, permuted together with what reads it."""
    weight = np.array(data.draw(st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=6, max_size=6)))
    read = np.array(data.draw(st.lists(st.tuples(*[st.integers(-2, 2)] * 6), min_size=2, max_size=2)))
    order = list(order)
    one = [("affine", weight[:, :2].tolist(), weight[:, 2].tolist()), ("relu",), ("affine", read.tolist(), None), *tail]
    shuffled = weight[order]
    two = [("affine", shuffled[:, :2].tolist(), shuffled[:, 2].tolist()), ("relu",),
           ("affine", read[:, order].tolist(), None), *tail]  # fmt: skip
    first, second = (hm.enumerate_cells(network_of(layers, 2), hm.Box(*box)) for layers in (one, two))
    renamed = {(*(label[k] for k in order), *label[6:]) for label in _labels(first)}
    assert renamed == _labels(second)
    assert (first.n_regions, first.n_maps) == (second.n_regions, second.n_maps)


@given(
    st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=2, max_size=6, unique=True),
    boxes(),
    networks(max_blocks=1),
    st.randoms(use_true_random=False),
)
def test_the_order_of_distinct_keys_only_renames_winners(keys, box, tail, random):
    """With duplicate keys the lowest index wins, and the order would matter."""
    order = list(range(len(keys)))
    random.shuffle(order)
    values = [[k, -k * k] for k in range(len(keys))]
    query, bias = [[1, 0], [0, 1], [0, 0]], [0, 0, 1]
    found = []
    for names in (list(range(len(keys))), order):
        head = ([list(keys[k]) for k in names], [values[k] for k in names], query, bias)
        cells = hm.enumerate_cells(network_of([("attention", [head], None), *tail], 2), hm.Box(*box))
        labels = {(names[label[0]], *label[1:]) for label in _labels(cells)}
        found.append((labels, cells.n_regions, cells.n_maps))
    assert found[0] == found[1]


@given(boxes(), st.lists(st.sampled_from([0.125, 1, 3, 1000]), min_size=4, max_size=4))
def test_positive_factors_on_neurons_move_no_wall(box, factors):
    weight, bias = np.array([[1, 0], [1, 1], [-1, 2], [0, 0]]), np.array([0, -1, 1, 0])
    found = []
    for factor in (np.ones(4), np.array(factors)):
        first = hm.Affine(weight * factor[:, None], bias * factor)
        found.append(hm.enumerate_cells(hm.Network([first, hm.ReLU()], 2), hm.Box(*box)))
    assert _labels(found[0]) == _labels(found[1])

"""Attempts to make the certified engine give a wrong number, and the failures that were found that way.

Each network is judged by the rational oracle, or by the exact mode where the oracle has no word for it. The
failures came from underflow and overflow at the ends of the float range, from rows of edges with holes, from
neighbours named within a tolerance, and from intervals shorter than the spacing of floats.
"""

import random
from fractions import Fraction
from math import log2

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells.engines.exact.polytopes import rebuild
from hardmax.cells.engines.plane.engine import PlaneEngine
from hardmax.cells.enumeration import Enumeration
from hardmax.errors import PrecisionError
from hardmax.exact.rationals import fraction
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from networks.builders import network_of
from oracles.cell_oracle import oracle_cells

STEP = [[1.0], [-1.0]]
IDENTITY = [[1.0, 0.0], [0.0, 1.0]]


def _box(low, high):
    low, high = [float(x) for x in low], [float(x) for x in high]
    return hm.Box(low, high), {"low": low, "high": high}


SQUARE = _box([-1, -1], [1, 1])


def _named(labels, numbers):
    """Sets of labels that share a number."""
    found = {}
    for label, number in zip(labels, numbers, strict=True):
        found.setdefault(number, set()).add(label)
    return {frozenset(members) for members in found.values()}


def _disagreements(layers, dim, domain, oracle_domain):
    """What the certified engine says otherwise than the oracle: a list of words, empty where they agree."""
    net = network_of(layers, dim)
    cells, oracle = hm.enumerate_cells(net, domain), oracle_cells(layers, domain.dim, **oracle_domain)
    labels = [tuple(label) for label in cells.labels.tolist()]
    if set(labels) != oracle.labels or len(labels) != oracle.cells:
        return ["labels"]
    pairs = {frozenset((labels[i], labels[j])) for i, j in cells.neighbours}
    same = {
        "count": hm.count_cells(net, domain) == oracle.cells,
        "maps": cells.n_maps == oracle.maps,
        "neighbours": pairs == oracle.neighbours,
        "regions": _named(labels, cells.region_of.tolist()) == _named(*zip(*oracle.region_of.items(), strict=True)),
    }
    return [word for word, agrees in same.items() if not agrees]


# ---- failures found ----


def test_cells_with_equal_maps_that_touch_in_a_point_are_two_regions():
    """Edges of cells with a map of their own used to be left out, and the rest no longer tiled the line."""
    heads = [(STEP, [[0.0], [1.0]], [row], None) for row in IDENTITY]
    layers = [("attention", heads, [[1.0, 1.0]])]
    assert _disagreements(layers, 2, *SQUARE) == []
    assert hm.enumerate_cells(network_of(layers, 2), SQUARE[0]).n_regions == 4


TINY = 1e-200
UNDERFLOWS = {
    "two affine maps": (
        [("affine", [[TINY, 0.0], [0.0, TINY]], None), ("affine", [[TINY, 0.0], [0.0, TINY]], None), ("relu",)],
        *SQUARE,
    ),
    "an affine map after a ReLU": (
        [
            ("affine", [[TINY, 0.0], [0.0, TINY]], [TINY, TINY]),
            ("relu",),
            ("affine", [[TINY, -TINY]], None),
            ("relu",),
        ],
        *SQUARE,
    ),
    "a weight times a corner": (
        [("affine", [[TINY, 0.0], [0.0, 1.0]], None), ("relu",)],
        *_box([-TINY, -1], [TINY, 1]),
    ),
    "two terms that cancel among subnormals": (
        [("affine", [[3e-160, -3.0000001e-160]], None), ("relu",)],
        *_box([1e-160, 1e-160], [1.0000002e-160, 1.0000001e-160]),
    ),
}


@pytest.mark.parametrize("name", UNDERFLOWS)
def test_products_that_underflow_are_no_certain_zeros(name):
    layers, domain, oracle_domain = UNDERFLOWS[name]
    assert _disagreements(layers, 2, domain, oracle_domain) == []


def test_scores_that_overflow_at_the_corners_are_settled():
    """Infinite values compared false with everything, so the first key won the whole polygon."""
    query = [[-1.8e154, 3.2e153], [-1.4e154, -7.7e153]]
    keys = [[0.0, 0.0], [-1.25, -0.5], [-2.5, -1.0]]
    layers = [("attention", [(keys, [[1.0], [2.0], [3.0]], query, None)], None)]
    for low, high in (([5e199, 2.5e199], [7.5e199, 3e199]), ([-1e308, -1e308], [1e308, 1e308])):
        assert _disagreements(layers, 2, *_box(low, high)) == []


@pytest.mark.parametrize("depth", [30, 40, 50])
def test_an_edge_tied_by_several_keys_names_the_one_that_wins_across_it(depth):
    """Keys 0, l, 2 l tie where l = 0; the last key is close by, steeper, and used to be named instead.

    A hopeless key of size 2**depth widens the margins, so that the dead key l is met before 2 l.
    """
    far = 2.0**20
    constant = -(far + 0.5)
    biases = [0.0, constant, 2 * constant, 5 * (constant - 2.0**-22), -(2.0**depth)]
    layers = [("affine", [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [5.0, 0.0], [0.0, 0.0]], biases), ("maxout", 5)]
    domain, oracle_domain = _box([far, 0], [far + 1, 1])
    assert _disagreements(layers, 2, domain, oracle_domain) == []
    cells = hm.enumerate_cells(network_of(layers, 2), domain)
    for index in range(cells.n_cells):  # a wrong name gives a wrong wall, and then a wrong exact polygon
        exact = np.array([[float(fraction(x)) for x in corner] for corner in cells.exact_cell(index).vertices])
        assert np.allclose(exact, cells.vertices(index), rtol=0, atol=1e-9)


def test_intervals_shorter_than_the_spacing_of_floats_keep_their_order():
    """Breakpoints 1/3 apart by less than a float can show: neighbours follow the exact order."""
    scales = [3.0, 3.0 * (1 + 2.0**-52), 3.0 * (1 + 2.0**-51), 3.0 * (1 + 3 * 2.0**-52)]
    biases = [-1.0, -1.0 - 2.0**-52, -1.0 - 2.0**-51 + 2.0**-104, -1.0]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]):
        layers = [("affine", [[scales[i]] for i in order], [biases[i] for i in order]), ("relu",)]
        assert _disagreements(layers, 1, *_box([0.0], [1.0])) == []
        deep = [*layers, ("affine", [[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -2.0, 0.0]], None), ("relu",)]
        assert _disagreements(deep, 1, hm.Space(1), {}) == []


VANISHING = op.frozen([[0.1, 0.2, -(0.1 + 0.2)]])  # adds up to zero in floats and to -2.8e-17 in truth


def _gathered():
    """0.1 x + 0.2 x - fl(0.1 + 0.2) x through a gather that reads one coordinate three times."""
    builder = GraphBuilder((3,))
    value = builder.add(op.Linear(VANISHING), builder.add(op.Take(np.array([0, 0, 0])), 0))
    return hm.Network.from_graph(builder.build(builder.add(op.Relu(), value)))


def _attended():
    """The same sum through three queries that pick one row."""
    builder = GraphBuilder((3, 1))
    scores = builder.add(op.ConstantMatMul(op.frozen(np.zeros((1, 3))), False), 0)  # ties go to the first row
    picked = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), 0)
    value = builder.add(op.Linear(VANISHING), builder.add(op.Reshape((3,)), picked))
    return hm.Network.from_graph(builder.build(builder.add(op.Relu(), value)))


@pytest.mark.parametrize("build", [_gathered, _attended])
def test_an_entry_that_is_read_several_times_is_rounded_like_any_sum(build):
    net = build()
    basis = np.eye(3)[:2].reshape(2, *net.input_shape)
    domain = hm.Plane(np.zeros(net.input_shape), basis)
    certified, exact = hm.enumerate_cells(net, domain), hm.enumerate_cells(net, domain, exactness="exact")
    assert certified.n_cells == exact.n_cells == 2
    assert sorted(certified.labels.tolist()) == sorted(exact.labels.tolist())


def test_facets_whose_corners_lie_beyond_floats_are_still_shared():
    layers = [("affine", [[1e-200, 0.0, 0.0], [0.0, 1e-200, 1e-290]], [1e200, -1e200]), ("relu",)]
    try:
        assert _disagreements(layers, 3, hm.Space(3), {}) == []
    except PrecisionError as error:
        assert "beyond" in str(error) or "overflow" in str(error)


# ---- bounds, checked against rationals ----


class _Witness(Enumeration):
    """An enumeration that compares every guard, map, corner and line with its exact value as it goes."""

    def _opened(self, chunk):
        chunk = super()._opened(chunk)
        for index in range(len(chunk)):
            self._check_coefficients(chunk, index)
            self._check_polygon(chunk, index)
        return chunk

    def _check_coefficients(self, chunk, index):
        state, label = chunk.state, chunk.labels[index]
        if state.stage < self.program.n_stages:
            guards = self.program.guards(state)
            floats, error = guards.coefficients[index], guards.error[index]
            exact = self.follower.rows(state.stage, label)
        else:
            output = self.program.output(state)
            floats, error = output.coefficients[index], output.bounds.error[index]
            exact = self.follower.map(label)
        for term in range(len(floats)):
            for number, value in zip(floats[term].reshape(-1), exact[term].reshape(-1), strict=True):
                assert _within(number, value, error[term])

    def _check_polygon(self, chunk, index):
        pieces, label = chunk.pieces, chunk.labels[index]
        exact = rebuild(pieces, index, lambda wall: self.follower.wall_row(wall, label)).vertices
        first = int(pieces.vertex_start[index])
        for place, corner in enumerate(exact):
            row = pieces.corners[first + place]
            assert all(_within(number, value, row[2]) for number, value in zip(row[:2], corner, strict=True))
            if chunk.state.stage == self.program.n_stages:  # finished cells have no lines
                continue
            line = list(self.follower.wall_row(int(pieces.walls[first + place]), label))
            line = _like(row[3:6], [*map(fraction, line), *[Fraction(0)] * (3 - len(line))])
            assert all(_within(*numbers) for numbers in zip(row[3:6], line, row[6:9], strict=True))


def _like(floats, line):
    """The exact line, times the power of two by which a line beyond the float range was scaled down."""
    place = max(range(3), key=lambda k: abs(line[k]))
    ratio = abs(line[place] / Fraction(float(floats[place]))) if floats[place] and line[place] else Fraction(1)
    power = round(log2(ratio.numerator) - log2(ratio.denominator))
    return [value / 2**power for value in line] if power > 1 else line


def _within(number, exact, error):
    return not np.isfinite(error) or abs(Fraction(float(number)) - fraction(exact)) <= Fraction(float(error))


def test_every_error_bound_holds():
    """Weights from 1e-323 to 1e290: errors of guards, maps, corners and lines stay below their bounds."""
    n_cells = n_refused = 0
    for seed in range(400):
        rng = random.Random(seed)
        layers = _network(rng, 2, rng.choice([1, 2, 3]))
        low, high = rng.choice(BOXES)
        if seed % 2:
            layers, scale = _rescaled(layers, rng), rng.choice(SCALES)
            low, high = [scale * x for x in (-1, 0)], [scale * x for x in (1, 0.5)]
        domain = hm.Box(low, high)
        try:
            run = _Witness(network_of(layers, 2).graph, domain, PlaneEngine(domain, True), True)
            for batch in run.cells():
                n_cells += len(batch)
                if n_cells > 100 * (seed + 1):
                    break
        except PrecisionError:
            n_refused += 1
    assert n_cells > 1000 and 0 < n_refused < 100


# ---- the battery ----

BOXES = [
    ([-1, -1], [1, 1]),
    ([0, 0], [1, 1]),
    ([0, -1], [1, 2]),
    ([-0.1, -0.3], [0.7, 0.1]),
    ([1e6, 1e6], [1e6 + 1, 1e6 + 2]),
    ([-1e-8, -1e-8], [1e-8, 2e-8]),
    ([-1e12, -1e12], [1e12, 3e11]),
    ([0.1, 0.3], [0.1 + 1e-9, 0.3 + 1e-9]),
]
SCALES = [1e-323, 1e-310, 1e-200, 1e-160, 1e-100, 1e-30, 1.0, 1.0, 1e30, 1e100, 1e154, 1e200, 1e290]
ODD = [0.1, 0.2, 0.3, 1 / 3, -0.1, -0.7, 0.0, 1.0, -2 / 3]


def _gauss(rng, rows, width):
    return [[rng.gauss(0, 1) for _ in range(width)] for _ in range(rows)]


def _planted(rng, rows):
    """Rows with repeats, negatives, multiples by numbers that round, near misses, zeros and sums."""
    rows = [list(row) for row in rows]
    for i in range(1, len(rows)):
        plant, source = rng.random(), rows[rng.randrange(i)]
        if plant < 0.45:
            factor = rng.choice([1, -1, 3, -3, 0.1, -0.1, 1 / 3, 2, 7.3])
            rows[i] = [factor * x for x in source]
            if rng.random() < 0.4:
                rows[i][-1] += rng.choice([1e-9, -1e-12, 1e-15, -1e-16, 2.0**-53]) * max(abs(rows[i][-1]), 1e-3)
            if rng.random() < 0.2:
                rows[i][0] = float(np.nextafter(rows[i][0], np.inf))
        elif plant < 0.5:
            rows[i] = [0.0] * len(rows[i])
        elif plant < 0.55:
            rows[i] = [x + y for x, y in zip(source, rows[rng.randrange(i)], strict=True)]
    return rows


def _affine(rng, rows, width):
    matrix = _gauss(rng, rows, width) if rng.random() < 0.5 else [rng.choices(ODD, k=width) for _ in range(rows)]
    biases = rng.choice([[0.0] * rows, [rng.gauss(0, 0.5) for _ in range(rows)], rng.choices(ODD, k=rows)])
    joint = _planted(rng, [[*row, bias] for row, bias in zip(matrix, biases, strict=True)])
    scale = rng.choice([1.0, 1.0, 1.0, 2.0**40, 2.0**-40, 1e-5])
    joint = [[scale * x for x in row] for row in joint]
    return ("affine", [row[:-1] for row in joint], None if not any(biases) else [row[-1] for row in joint])


def _head(rng, width, d_v):
    n, d_k = rng.choice([1, 2, 3, 4, 5, 6]), rng.choice([1, 2, 2, 3])
    ray = [rng.gauss(0, 1) for _ in range(d_k)]
    keys = rng.choice(
        [
            _gauss(rng, n, d_k),
            [[float(np.cos(2 * np.pi * i / n + 0.1 * j)) for j in range(d_k)] for i in range(n)],
            [[float(rng.randint(-1, 1)) for _ in range(d_k)] for _ in range(n)],
            [[i * x for x in ray] for i in range(n)],
        ]
    )
    values = _gauss(rng, n, d_v)
    if rng.random() < 0.5:
        values = [list(rng.choice(values[:2])) for _ in values]
    query = _gauss(rng, d_k, width) if rng.random() < 0.5 else [rng.choices(ODD, k=width) for _ in range(d_k)]
    if d_k > 1 and rng.random() < 0.3:
        query[1] = [3 * x for x in query[0]]
    return _planted(rng, keys), values, query, None if rng.random() < 0.4 else rng.choices(ODD, k=d_k)


def _block(rng, width, kind):
    if kind in ("relu", "leaky"):
        n = rng.choice([2, 3, 4, 5])
        choice = ("relu",) if kind == "relu" else ("leaky", rng.choice([0.1, 0.01, -0.5, 2.0, 1.0, -1.0]))
        return [_affine(rng, n, width), choice], n
    if kind == "maxout":
        n, rank = rng.choice([1, 2]), rng.choice([2, 3, 4])
        return [_affine(rng, n * rank, width), ("maxout", rank)], n
    if kind == "attention":
        d_v = [rng.randint(1, 2) for _ in range(rng.choice([1, 1, 2]))]
        heads = [_head(rng, width, d) for d in d_v]
        if rng.random() < 0.25:
            return [("attention", heads, None)], sum(d_v)
        return [("residual", [("attention", heads, _gauss(rng, width, sum(d_v)))])], width
    inner, after = _block(rng, width, rng.choice(["relu", "leaky", "maxout", "attention"]))
    return [("residual", [*inner, _affine(rng, width, after)])], width


def _network(rng, dim, depth):
    layers, width = [], dim
    for _ in range(depth):
        kind = rng.choice(["relu", "relu", "leaky", "maxout", "attention", "attention", "residual"])
        block, width = _block(rng, width, kind)
        layers += block
    return [*layers, _affine(rng, 1, width)] if rng.random() < 0.5 else layers


def _times(matrix, scale):
    return None if matrix is None else [_times(x, scale) if isinstance(x, list) else x * scale for x in matrix]


def _rescaled(layers, rng):
    """The layers with every weight array moved to some end of the float range."""
    found = []
    for layer in layers:
        if layer[0] == "affine":
            scale = rng.choice(SCALES)
            other = rng.choice([scale, scale, scale, rng.choice(SCALES)])
            layer = ("affine", _times(layer[1], scale), _times(layer[2], other))
        elif layer[0] == "residual":
            layer = ("residual", _rescaled(layer[1], rng))
        elif layer[0] == "attention":
            scales = [[rng.choice(SCALES) for _ in range(3)] for _ in layer[1]]
            heads = [
                (_times(keys, k), _times(values, v), _times(query, q), _times(bias, q))
                for (keys, values, query, bias), (k, v, q) in zip(layer[1], scales, strict=True)
            ]
            layer = ("attention", heads, layer[2])
        found.append(layer)
    return found


def _tied_lines(rng):
    """Maxima among multiples of few lines, near misses of them, and hopeless keys that widen every margin."""
    far = rng.choice([0.0, 0.0, 1.0, 2.0**20, 2.0**30, 1e6 + 0.1])
    lines = []
    for _ in range(rng.choice([1, 1, 2])):
        a, b = rng.choice([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (rng.gauss(0, 1), 0.3)])
        lines.append([a, b, -(a * (far + rng.choice([0.5, 0.25])) + b * (far + 0.5))])
    rank = rng.choice([3, 4, 5, 6, 8])
    base = rng.choice([[0.0, 0.0, 0.0], [rng.gauss(0, 1), 0.1, -0.7]])
    rows = []
    for _ in range(rank):
        factor, plant = rng.choice([0, 1, 2, 3, 5, -1, -2, 0.5, 0.1]), rng.random()
        row = [x + factor * y for x, y in zip(base, rng.choice(lines), strict=True)]
        if plant < 0.15:
            row = [0.0, 0.0, -(2.0 ** rng.choice([10, 30, 40, 50]))]
        elif plant < 0.3:
            row[2] += rng.choice([-1, 1]) * 2.0 ** -rng.choice([10, 22, 30, 45])
        rows.append(row)
    head = (rows, [[rng.choice(ODD)] for _ in rows], [*IDENTITY, [0.0, 0.0]], [0.0, 0.0, 1.0])
    choices = [
        [("affine", [row[:2] for row in rows], [row[2] for row in rows]), ("maxout", rank)],
        [("attention", [head], None)],
    ]
    layers = rng.choice(choices)
    if rng.random() < 0.6:
        layers = [*layers, _affine(rng, 2, 1), ("relu",)]
    return layers, *_box([far, far], [far + 1, far + 1])


def _judged(cases, most_cells):
    """The seeds on which engine and oracle disagree, and how many networks were judged."""
    wrong, judged = [], 0
    for seed, layers, dim, domain, oracle_domain in cases:
        try:
            if hm.count_cells(network_of(layers, dim), domain) > most_cells:
                continue
            found = _disagreements(layers, dim, domain, oracle_domain)
        except PrecisionError:  # a refusal is no wrong number
            continue
        judged += 1
        if found:
            wrong.append((seed, found))
    return wrong, judged


def test_planted_degeneracies_on_all_kinds_of_boxes():
    def cases():
        for seed in range(300):
            rng = random.Random(seed)
            yield seed, _network(rng, 2, rng.choice([1, 2, 2, 3])), 2, *_box(*rng.choice(BOXES))

    wrong, judged = _judged(cases(), 40)
    assert wrong == [] and judged > 200


def test_sheared_planes_through_odd_numbers():
    def cases():
        for seed in range(100):
            rng = random.Random(seed)
            origin = [rng.choice([0.0, 0.1, rng.gauss(0, 1)]) for _ in range(3)]
            basis = [[1.0, rng.choice([0.0, 1e-9, 1 / 3]), 0.1], [rng.choice([1.0, 0.3, 1e3]), 1.0, -1 / 3]]
            plane = hm.Plane(origin, basis, ((-1, 1), (-0.3, 0.7)))
            where = {"low": [-1.0, -0.3], "high": [1.0, 0.7], "origin": origin, "basis": basis}
            yield seed, _network(rng, 3, 2), 3, plane, where

    wrong, judged = _judged(cases(), 30)
    assert wrong == [] and judged > 60


def test_lines_tied_by_many_keys():
    cases = ((seed, layers, 2, *where) for seed in range(300) for layers, *where in [_tied_lines(random.Random(seed))])
    wrong, judged = _judged(cases, 40)
    assert wrong == [] and judged > 250


def test_weights_and_boxes_at_the_ends_of_the_float_range():
    def cases():
        for seed in range(300):
            rng = random.Random(seed)
            layers = _rescaled(_network(rng, 2, rng.choice([1, 1, 2])), rng)
            x, y = rng.choice(SCALES), rng.choice(SCALES)
            left, low, right, high = rng.choice([(-1, -1, 1, 1), (0, 0, 1, 1), (-1, 0, 2, 3), (0.5, 0.25, 0.75, 0.5)])
            y = rng.choice([x, y])
            yield seed, layers, 2, *_box([left * x, low * y], [right * x, high * y])

    wrong, judged = _judged(cases(), 30)
    assert wrong == [] and judged > 150


def test_lines_and_spaces_at_the_ends_of_the_float_range():
    def cases():
        for seed in range(240):
            rng = random.Random(seed)
            dim = rng.choice([1, 1, 1, 2, 3])
            layers = _network(rng, dim, 1 if dim > 1 else 2)
            if seed % 2:
                layers = _rescaled(layers, rng)
            if dim == 1 and seed % 3:
                scale = rng.choice(SCALES)
                yield seed, layers, 1, *_box([-scale], [scale / 3])
            else:
                yield seed, layers, dim, hm.Space(dim), {}

    wrong, judged = _judged(cases(), 16)
    assert wrong == [] and judged > 120


def test_threads_and_limits_change_nothing():
    rng = random.Random(3)
    net = network_of(_network(rng, 2, 3), 2)
    domain = hm.Box([-1.0, -1.0], [1.0, 1.0])
    alone, together = hm.enumerate_cells(net, domain), hm.enumerate_cells(net, domain, workers=2)
    assert alone.labels.tolist() == together.labels.tolist()
    assert alone.region_of.tolist() == together.region_of.tolist()
    n = alone.n_cells
    for limit in (1, n, n + 1):
        some = hm.enumerate_cells(net, domain, max_cells=limit, workers=2)
        assert some.n_cells == min(limit, n) and some.is_complete == (limit >= n)

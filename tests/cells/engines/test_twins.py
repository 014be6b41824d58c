"""The cutting kernels against their plain twins, on functions of small integers: ties and shared walls are common."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.cells.domains import Box
from hardmax.cells.engines.plane.engine import PlaneEngine
from hardmax.cells.engines.space.engine import SpaceEngine
from hardmax.cells.polytopes import domain_wall, split_wall
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage
from oracles.cutting_twins import Polygon, Polytope, cut

SEEDS = st.integers(0, 2**32 - 1)


def _drawn_stage(seed, dim, sizes):
    """A stage of ReLUs (size 1) and maxima over functions of small integers, and the same as the twin's choices."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])
    rows = rng.integers(-2, 3, (dim + 1, starts[-1])).astype(float)
    if rng.random() < 0.5:  # many functions that tie on one line, or are the same
        rows[:, starts[-1] // 2 :] = rows[:, : starts[-1] - starts[-1] // 2] * rng.integers(0, 3)
    stage = Stage(
        (0,), starts[:-1], np.array(sizes), np.array(sizes) == 1, np.arange(len(sizes)) + 5, np.arange(starts[-1])
    )
    functions = [tuple(Fraction(x) for x in rows[:, r].tolist()) for r in range(starts[-1])]
    choices = [(5 + g, size == 1, functions[starts[g] : starts[g] + size]) for g, size in enumerate(sizes)]
    return stage, Guards(rows[None], np.zeros((1, dim + 1))), choices


def _name(wall):
    return ("domain", int(wall)) if wall < 0 else split_wall(int(wall))


def _place(found, twin, error):
    """The exact corner that a float one stands for: the only one within its error."""
    near = [p for p in twin if all(abs(Fraction(x) - y) <= Fraction(error) for x, y in zip(found, p, strict=True))]
    assert len(near) == 1
    return near[0]


def _settled(engine, guards, stage):
    """The children of the whole domain: in floats, or in rationals where the kernel gives the piece up."""
    whole = engine.root()
    result = engine.cut(whole, guards, stage)
    if len(result.doubtful) == 0:
        n_children, doubtful, _ = engine.count(whole, guards, stage)
        assert (n_children, len(doubtful)) == (len(result.labels), 0)
    return len(result.doubtful) == 0, result.labels.tolist(), result.pieces


@given(SEEDS, st.lists(st.sampled_from([1, 1, 3, 5]), min_size=1, max_size=4))
@example(3, [5, 1, 5])
def test_polygons_are_cut_as_the_plain_twin_cuts_them(seed, sizes):
    stage, guards, choices = _drawn_stage(seed, 2, sizes)
    engine = PlaneEngine(Box([-1.0, -1.0], [2.0, 2.0]), certified=True)
    square = [
        (-1, -1, domain_wall(1, 0)),
        (2, -1, domain_wall(0, 1)),
        (2, 2, domain_wall(1, 1)),
        (-1, 2, domain_wall(0, 0)),
    ]
    twin = dict(cut(Polygon([((Fraction(x), Fraction(y)), ("domain", wall)) for x, y, wall in square]), choices))
    is_certain, labels, pieces = _settled(engine, guards, stage)
    assert is_certain or not all(size == 1 for size in sizes)
    if not is_certain:
        return
    assert sorted(map(tuple, labels)) == sorted(twin)
    for index, label in enumerate(labels):
        corners = twin[tuple(label)].corners
        part = slice(int(pieces.vertex_start[index]), int(pieces.vertex_start[index + 1]))
        rows = zip(
            pieces.vertices[part].tolist(), pieces.error[part].tolist(), pieces.walls[part].tolist(), strict=True
        )
        found = [(_place(point, [p for p, _ in corners], error), _name(wall)) for point, error, wall in rows]
        turn = found.index(corners[0])
        assert found[turn:] + found[:turn] == corners  # the same cycle


@pytest.mark.parametrize("dim", [2, 3])
@given(SEEDS, st.lists(st.sampled_from([1, 1, 3, 4]), min_size=1, max_size=3))
@example(3, [4, 1, 4])
def test_polytopes_are_cut_as_the_plain_twin_cuts_them(dim, seed, sizes):
    stage, guards, choices = _drawn_stage(seed, dim, sizes)
    engine = SpaceEngine(Box([-1.0] * dim, [2.0] * dim), certified=True)
    cube = {
        tuple(Fraction(3 * side - 1) for side in sides): frozenset(
            ("domain", domain_wall(axis, side)) for axis, side in enumerate(sides)
        )
        for sides in product((0, 1), repeat=dim)
    }
    twin = dict(cut(Polytope(cube), choices))
    is_certain, labels, pieces = _settled(engine, guards, stage)
    if not is_certain:
        return
    assert sorted(map(tuple, labels)) == sorted(twin)
    for index, label in enumerate(labels):
        corners = twin[tuple(label)].corners
        first, last = (int(pieces.vertex_start[index + k]) for k in (0, 1))
        walls = [_name(wall) for wall in pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]]
        found = {}
        for v in range(first, last):
            on = [walls[f] for f in range(len(walls)) if int(pieces.incidence[v, f // 64]) >> f % 64 & 1]
            found[_place(pieces.vertices[v].tolist(), corners, float(pieces.error[v]))] = frozenset(on)
        assert found == corners


def test_most_small_integer_stages_are_cut_without_rationals():
    """Else the two tests above would compare little."""
    certain = []
    for seed in range(40):
        for dim, engine in (
            (2, PlaneEngine(Box([-1.0] * 2, [2.0] * 2), True)),
            (3, SpaceEngine(Box([-1.0] * 3, [2.0] * 3), True)),
        ):
            stage, guards, _ = _drawn_stage(seed, dim, [1, 4, 1, 3])
            certain.append(_settled(engine, guards, stage)[0])
    assert sum(certain) > 60

"""The plainest enumeration loops: one cell at a time, no batching, no threads.

They drive the cutters through the engine contract and nothing else, so that a cutter can be judged alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.cells.domains import Domain
from hardmax.cells.engines.exact import polytopes as exact_polytopes
from hardmax.cells.engines.exact.polytopes import ExactPolytope
from hardmax.cells.polytopes import Polytopes, domain_wall, split_wall
from hardmax.exact.integers import primitive
from hardmax.exact.rationals import rational
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram, SliceState

Label = tuple[int, ...]
_ONE = np.zeros(1, dtype=np.int64)


def root(domain: Domain) -> ExactPolytope:
    """The whole domain in rationals: its box, or for all of space the box of half-width M."""
    dim = domain.dim
    points: list[tuple[int, ...]] = []
    incidence: list[int] = []
    for corner in range(1 << dim):
        is_high = [corner >> axis & 1 for axis in range(dim)]
        if domain.low is None or domain.high is None:
            points.append((1, *(0,) * dim, *(2 * side - 1 for side in is_high)))
        else:
            ends = (domain.low, domain.high)
            values = [float(ends[side][axis]) for axis, side in enumerate(is_high)]
            points.append(primitive([1, *values]))
        incidence.append(sum(1 << (2 * axis + side) for axis, side in enumerate(is_high)))
    walls = tuple(domain_wall(axis, side) for axis in range(dim) for side in (0, 1))
    return ExactPolytope(dim, tuple(points), walls, tuple(incidence))


def program_of(net: hm.Network, domain: Domain, arithmetic: Arithmetic) -> SliceProgram:
    """The network on the domain's slice."""
    origin, basis = domain.slice_of(net.input_shape)
    return SliceProgram(net.graph, origin, basis, arithmetic)


def complete_label(program: SliceProgram, labels: list[Any]) -> Label:
    """One label from the labels of each stage."""
    full = np.zeros(sum(stage.n_choices for stage in program.stages), dtype=np.int64)
    for stage, label in zip(program.stages, labels, strict=False):
        full[stage.columns] = label
    return tuple(full.tolist())


def exact_cells(net: hm.Network, domain: Domain) -> dict[Label, ExactPolytope]:
    """Every cell, cut in rationals."""
    program = program_of(net, domain, Arithmetic.RATIONAL)
    stack: list[tuple[SliceState, ExactPolytope, list[Any]]] = [(program.begin(), root(domain), [])]
    found: dict[Label, ExactPolytope] = {}
    while stack:
        state, polytope, labels = stack.pop()
        if state.stage == program.n_stages:
            label = complete_label(program, labels)
            assert label not in found, "a label came twice"
            found[label] = polytope
            continue
        rows = program.guards(state).coefficients[0]
        for label, part in exact_polytopes.split(polytope, rows, program.stages[state.stage]):
            stack.append((program.advance(state, _ONE, np.array([label])), part, [*labels, label]))
    return found


def wall_rows(net: hm.Network, domain: Domain, label: Label, n_stages: int | None = None) -> Callable[[int], Any]:
    """The exact function of each wall of the cell with this label, nonnegative inside."""
    program = program_of(net, domain, Arithmetic.RATIONAL)
    stages = program.stages[:n_stages]
    guards, _ = program.follow([np.array(label)[stage.columns] for stage in stages])
    where = {int(column): (s, g) for s, stage in enumerate(stages) for g, column in enumerate(stage.columns)}

    def row_of(wall: int) -> Any:
        if wall < 0:
            axis, is_high = divmod(-1 - wall, 2)
            row = np.array([rational(0)] * (domain.dim + 1), dtype=object)
            row[axis + 1] = rational(-1 if is_high else 1)
            if domain.is_bounded:
                row[0] = rational(domain.high[axis]) if is_high else -rational(domain.low[axis])
            return row
        column, rival = split_wall(wall)
        s, g = where[column]
        rows, first = guards[s].coefficients[0], stages[s].group_start[g]
        if stages[s].is_relu[g]:
            assert rival == 1 - label[column]
            return rows[:, first] if label[column] == 1 else -rows[:, first]
        return rows[:, first + label[column]] - rows[:, first + rival]

    return row_of


def engine_cells(
    engine: Any, net: hm.Network, domain: Domain, arithmetic: Arithmetic
) -> tuple[dict[Label, tuple[Polytopes, int]], int]:
    """Every cell as (batch, index), cut by an engine layer by layer, and how many pieces were settled."""
    program = program_of(net, domain, arithmetic)
    exact = program_of(net, domain, Arithmetic.RATIONAL)
    stack: list[tuple[SliceState, Polytopes, list[list[Any]]]] = [(program.begin(), engine.root(), [[]])]
    found: dict[Label, tuple[Polytopes, int]] = {}
    n_settled = 0
    while stack:
        state, pieces, labels = stack.pop()
        if state.stage == program.n_stages:
            for index, label in enumerate(labels):
                full = complete_label(program, label)
                assert full not in found, "a label came twice"
                found[full] = (pieces, index)
            continue
        stage = program.stages[state.stage]
        cut = engine.cut(pieces, program.guards(state), stage)
        parts = [(cut.parents, cut.labels, cut.pieces)]
        for index in cut.doubtful:
            n_settled += 1
            _, reached = exact.follow([np.asarray(label) for label in labels[index]])
            rows = exact.guards(reached).coefficients[0]
            walls = wall_rows(net, domain, complete_label(exact, labels[index]), state.stage)
            chosen, children = engine.settle(pieces, index, walls, rows, stage)
            parts.append((np.full(len(children), index), chosen, children))
        assert not set(cut.doubtful.tolist()) & set(cut.parents.tolist())
        for parents, chosen, children in parts:
            if len(children):
                following = [[*labels[p], tuple(c)] for p, c in zip(parents, chosen.tolist(), strict=True)]
                stack.append((program.advance(state, parents, chosen), children, following))
    return found, n_settled

"""Sparsemax heads: which sets of keys get weight, and where.

Sparsemax (Martins and Astudillo 2016) is the point of the simplex nearest to scores / temperature: key j has the weight
max(score_j - threshold, 0) / temperature, the threshold chosen so that the weights sum to one. With support S the
threshold is (sum of the scores of S - temperature) / |S|, so that S is the support where

    |S| score_j - sum_S + temperature > 0 for j in S,   <= 0 for all other j.

In queries these are half-spaces: supports own convex cells, which tile the space face to face, being sections of the
simplex's faces with their normal cones. On each cell the weights are affine, and they are continuous everywhere.

Cells are found by crossing facets. What lies behind a facet is sparsemax at a point of it moved outwards by less than
any positive number, computed with scores of the form a + b e.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from hardmax.exactness import Exactness, FloatArray, IntArray, check_temperature
from hardmax.heads.diagram.orders import Row, SetDiagram, is_multiple, value_at, witness

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram

_Support = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SparsemaxDiagram(SetDiagram):
    """The cells of a sparsemax head, in the order of their supports.

    ``supports`` are the sets of keys with positive weight on each cell, sorted; ``neighbours`` (n, 2) the pairs of
    cells that share a facet, lower index first.
    """

    temperature: float
    supports: tuple[_Support, ...]
    neighbours: IntArray

    def weights(self, cell: int) -> tuple[FloatArray, FloatArray]:
        """The weights on a cell as an affine map: slopes (N, d) and offsets (N,), rounded once."""
        heat, chosen = Fraction(self.temperature), self.supports[cell]
        table = np.zeros((len(self._scores), len(self._scores[0])))
        for j in chosen:
            row = _lead(self._scores, chosen, j, heat)
            table[j] = [float(entry / (len(chosen) * heat)) for entry in row]
        return table[:, :-1], table[:, -1]


def sparsemax_diagram(diagram: PowerDiagram, temperature: float) -> SparsemaxDiagram:
    """The cells of sparsemax(scores / temperature); see ``PowerDiagram.sparsemax``."""
    scores = tuple(map(diagram.exact_score, range(len(diagram.keys))))
    heat, dim = Fraction(check_temperature(temperature, positive=True)), diagram.dim
    # slopes of walls are integers below base / 2 over one denominator: no wall through the origin holds this direction
    scale = lcm(*(entry.denominator for row in scores for entry in row[:-1]))
    base = 1 + 4 * len(scores) * max(int(abs(entry) * scale) for row in scores for entry in row[:-1])
    away = tuple(Fraction(base) ** i for i in range(dim))
    start = _support([(row[-1], value_at((*row[:-1], Fraction(0)), away)) for row in scores], heat)
    points: dict[_Support, tuple[Fraction, ...]] = {}
    pairs: set[tuple[_Support, _Support]] = set()
    waiting = [start]
    while waiting:
        chosen = waiting.pop()
        if chosen in points:
            continue
        leads = [_lead(scores, chosen, j, heat) for j in range(len(scores))]
        rows = [row if j in chosen else _negated(row) for j, row in enumerate(leads) if any(row[:-1])]
        inside = witness(rows, [False] * len(rows)) if rows else tuple(Fraction(0) for _ in range(dim))
        assert inside is not None, "a support found by crossing a facet owns a cell"
        points[chosen] = inside
        for beyond in _behind_facets(scores, rows, heat):
            pairs.add((min(chosen, beyond), max(chosen, beyond)))
            waiting.append(beyond)
    supports = tuple(sorted(points))
    number = {support: cell for cell, support in enumerate(supports)}
    edges = np.array(sorted((number[a], number[b]) for a, b in pairs), dtype=np.int64).reshape(-1, 2)
    inner = tuple(points[support] for support in supports)
    return SparsemaxDiagram(scores, inner, Exactness.EXACT, float(temperature), supports, edges)


def _negated(row: Row) -> Row:
    return tuple(-entry for entry in row)


def _lead(scores: tuple[Row, ...], chosen: _Support, key: int, heat: Fraction) -> Row:
    """|S| score_j - sum_S + temperature as a function of the query: |S| temperature times the weight of j in S."""
    entries = [len(chosen) * own - sum(column) for own, column in
               zip(scores[key], zip(*(scores[j] for j in chosen), strict=True), strict=True)]  # fmt: skip
    return (*entries[:-1], entries[-1] + heat)


def _behind_facets(scores: tuple[Row, ...], rows: list[Row], heat: Fraction) -> list[_Support]:
    """The supports behind the facets of a cell given by positive rows."""
    found: list[_Support] = []
    seen: list[Row] = []
    for wall in rows:
        if any(is_multiple(wall, other) for other in seen):
            continue
        seen.append(wall)
        others = [row for row in rows if not is_multiple(row, wall)]
        point = witness([*others, wall, _negated(wall)], [False] * len(others) + [True, True])
        if point is not None:
            outwards = tuple(-entry for entry in wall[:-1])
            moved = [(value_at(row, point), value_at((*row[:-1], Fraction(0)), outwards)) for row in scores]
            found.append(_support(moved, heat))
    return found


def _support(scores: list[tuple[Fraction, Fraction]], heat: Fraction) -> _Support:
    """The support of sparsemax for scores a + b e, e positive and smaller than any positive rational."""
    order = sorted(range(len(scores)), key=lambda j: scores[j], reverse=True)
    total, slope, count = Fraction(0), Fraction(0), 0
    for j in order:
        value, rise = scores[j]
        # j is in as long as (count + 1) score_j > sum so far + score_j - temperature
        lead = count * value - total + heat
        if lead < 0 or (lead == 0 and count * rise <= slope):
            break
        total, slope, count = total + value, slope + rise, count + 1
    return tuple(sorted(order[:count]))

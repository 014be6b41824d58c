"""Cells, regions and maps of a small hard network, counted slowly in rationals.

A judge for the exact engine, so it shares no code with it and works another way: a cell is a list of
strict integer inequalities, and every question is "is this open polyhedron empty?". Each answer proves
itself before it is believed: "no" comes with a point, "yes" with nonnegative multipliers that add the
inequalities up to a contradiction. There are no vertices, no floats and no tolerances.

A network is a list of plain tuples (numbers are int, Fraction or float; a float means its exact value):

    ("affine", W, b)          z -> W z + b; b may be None
    ("relu",)                 one choice per coordinate: 1 where it is positive, else 0
    ("leaky", slope)          the same choices, slope * z where not positive
    ("hardtanh", low, high)   max(z, low), one choice a coordinate: 1 where z is above; then min(z, high): 1 where below
    ("maxout", rank)          the largest of each `rank` consecutive coordinates
    ("attention", heads, O)   z -> O @ concat(values of the winners), O may be None; a head is (keys, values,
                              query, query_bias or None) with scores <query z + query_bias, key>
    ("residual", layers)      z -> z + layers(z)

Ties on open sets go to the lowest index; ties on null sets are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import gcd, lcm
from numbers import Integral
from typing import Any

Number = Any  # int, Fraction or float; numpy scalars too
Layer = tuple[Any, ...]
Label = tuple[int, ...]
Affine = tuple[Fraction, ...]  # (c, a_1, ..., a_d): the function c + <a, u>
Row = tuple[int, ...]  # the same with coprime integers, read as the open half-space c + <a, u> > 0


def exact(number: Number) -> Fraction:
    """The rational a number is; floats are dyadic rationals.

    >>> exact(0.75), exact(3)
    (Fraction(3, 4), Fraction(3, 1))
    """
    if isinstance(number, Fraction):
        return number
    return Fraction(int(number)) if isinstance(number, Integral) else Fraction(float(number))


def _sum(terms: Iterable[Affine], zero: Affine) -> Affine:
    total = zero
    for term in terms:
        total = tuple(x + y for x, y in zip(total, term, strict=True))
    return total


def _scaled(factor: Number, function: Affine) -> Affine:
    factor = exact(factor)
    return tuple(factor * x for x in function)


def _apply(
    matrix: Sequence[Sequence[Number]], bias: Sequence[Number] | None, z: Sequence[Affine], zero: Affine
) -> list[Affine]:
    """The affine functions matrix @ z + bias of u."""
    shifts = [0] * len(matrix) if bias is None else bias
    return [
        _sum((_scaled(w, f) for w, f in zip(weights, z, strict=True) if w != 0), (exact(shift), *zero[1:]))
        for weights, shift in zip(matrix, shifts, strict=True)
    ]


def _primitive(function: Affine) -> Row:
    """The positive multiple with coprime integers, so that one half-space has one row."""
    scale = lcm(*(x.denominator for x in function))
    integers = [int(x * scale) for x in function]
    divisor = gcd(*integers) or 1
    return tuple(x // divisor for x in integers)


def _value(row: Row, point: Row) -> int:
    """Sign-true value of a row at a homogeneous point (w, w u_1, ..., w u_d), w > 0."""
    return sum(x * y for x, y in zip(row, point, strict=True))


# --- is an open polyhedron empty? ------------------------------------------------------------------


def interior_point(rows: Iterable[Row], dim: int) -> Row | None:
    """A homogeneous point (w, w u) with c + <a, u> > 0 for every row, or None where there is none.

    Minimise sum y_i c_i over y >= 0 with sum y_i = 1 and sum y_i a_i = 0, the trivial row 1 > 0 among the
    rows (Gordan's theorem). A minimum <= 0 refutes the rows; otherwise the multipliers of the equations are
    a point. Integer simplex tableau, Bland's rule.

    >>> interior_point([(0, 1), (1, -1)], 1)  # 0 < u < 1
    (2, 1)
    >>> interior_point([(0, 1), (0, -1)], 1) is None  # 0 < u < 0
    True
    """
    system = [*dict.fromkeys(rows), (1,) + (0,) * dim]
    n = len(system)
    # Tableau rows: cost, dim equations, normalisation. Columns: y, one marker per equation, right-hand side.
    table = [[row[0] for row in system] + [0] * (dim + 1)]
    table += [[row[k] for row in system] + [int(m == k) for m in range(1, dim + 1)] + [0] for k in range(1, dim + 1)]
    table.append([1] * n + [0] * dim + [1])
    basis = [-1] * (dim + 2)
    scale = 1  # every entry stands for entry / scale, scale > 0

    def pivot(at: int, column: int) -> None:
        nonlocal scale, table
        pivot_row = table[at]
        by = pivot_row[column]
        for k, r in enumerate(table):
            if k != at:  # the division is exact: entries are minors of the first tableau
                table[k] = [(by * x - r[column] * y) // scale for x, y in zip(r, pivot_row, strict=True)]
        scale = by
        if scale < 0:
            scale, table = -scale, [[-x for x in r] for r in table]
        basis[at] = column

    pivot(dim + 1, n - 1)
    for k in range(1, dim + 1):  # right-hand sides are zero, so any nonzero entry will do
        column = next((j for j in range(n) if table[k][j]), None)
        if column is not None:
            pivot(k, column)
    while True:
        if table[0][-1] >= 0:  # minus the minimum, so far
            weights = {basis[k]: table[k][-1] for k in range(1, dim + 2) if basis[k] >= 0}
            combined = [sum(y * system[j][k] for j, y in weights.items()) for k in range(dim + 1)]
            assert min(weights.values()) >= 0 and max(weights.values()) > 0
            assert combined[0] <= 0 and not any(combined[1:])
            return None
        entering = next((j for j in range(n) if table[0][j] < 0), None)
        if entering is None:
            point = (scale, *table[0][n : n + dim])
            divisor = gcd(*point)
            point = tuple(x // divisor for x in point)
            assert all(_value(row, point) > 0 for row in system)
            return point
        candidates = [k for k in range(1, dim + 2) if table[k][entering] > 0]
        pivot(min(candidates, key=lambda k: (Fraction(table[k][-1], table[k][entering]), basis[k])), entering)


# --- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OracleCell:
    """An open convex set, one complete label, and the affine functions the network computes there."""

    rows: frozenset[Row]
    point: Row  # homogeneous interior point
    outputs: tuple[Affine, ...]
    label: Label = ()

    @property
    def dim(self) -> int:
        return len(self.point) - 1

    @property
    def witness(self) -> tuple[Fraction, ...]:
        """An interior point in slice coordinates."""
        return tuple(Fraction(x, self.point[0]) for x in self.point[1:])

    @cached_property
    def facets(self) -> frozenset[Row]:
        """The rows without which the cell would be larger."""
        kept = set(self.rows)
        for row in sorted(self.rows):
            beyond = tuple(-x for x in row)
            if interior_point([*(kept - {row}), beyond], self.dim) is None:
                kept.discard(row)
        return frozenset(kept)

    def touches(self, other: OracleCell) -> bool:
        """Whether the closures share a piece of dimension d - 1."""
        for row in self.facets:
            opposite = tuple(-x for x in row)
            if opposite in other.facets:
                rest = [_on_wall(r, row) for r in (self.facets - {row}) | (other.facets - {opposite})]
                if interior_point(rest, self.dim - 1) is not None:
                    return True
        return False


def _on_wall(row: Row, wall: Row) -> Row:
    """The row on the hyperplane wall = 0, the wall's first coordinate eliminated."""
    k = next(k for k in range(1, len(wall)) if wall[k])
    restricted = tuple(
        abs(wall[k]) * x - (row[k] if wall[k] > 0 else -row[k]) * y for x, y in zip(row, wall, strict=True)
    )
    return _primitive(tuple(Fraction(x) for x in restricted[:k] + restricted[k + 1 :]))


def _winners(cell: OracleCell, scores: Sequence[Affine]) -> Iterator[tuple[int, OracleCell]]:
    """The choices that win on an open part of the cell, each with that part."""
    first: dict[Affine, int] = {}
    for index, score in enumerate(scores):
        first.setdefault(score, index)  # a tie on the whole cell goes to the lowest index
    found: list[tuple[Affine, Row]] = []
    for score in first:
        lead = {_lead(score, rival) for rival in first if rival != score}
        if all(_value(row, cell.point) > 0 for row in lead):
            found.append((score, cell.point))
        elif (point := interior_point([*cell.rows, *lead], cell.dim)) is not None:
            found.append((score, point))
    for score, point in found:
        # A score that wins nowhere is below the other scores' maximum here: only real winners make walls.
        walls = {_lead(score, rival) for rival, _ in found if rival != score}
        yield first[score], replace(cell, rows=cell.rows | walls, point=point)


def _lead(score: Affine, rival: Affine) -> Row:
    return _primitive(tuple(x - y for x, y in zip(score, rival, strict=True)))


def _expand(cell: OracleCell, layer: Layer) -> list[OracleCell]:
    """The cells into which one layer cuts a cell."""
    kind, z = layer[0], cell.outputs
    zero = (Fraction(0),) * (cell.dim + 1)
    if kind == "affine":
        return [replace(cell, outputs=tuple(_apply(layer[1], layer[2], z, zero)))]
    if kind == "residual":
        return [
            replace(child, outputs=tuple(_sum(pair, zero) for pair in zip(z, child.outputs, strict=True)))
            for child in _run([cell], layer[1])
        ]
    if kind == "hardtanh":
        return list(_run([cell], [("floor", layer[1]), ("ceiling", layer[2])]))
    # Per choice: the scores, and what each winner hands on.
    choices: list[tuple[list[Affine], list[list[Affine]]]]
    mix = None
    if kind in ("relu", "leaky"):
        slope = layer[1] if kind == "leaky" else 0
        choices = [([zero, f], [[_scaled(slope, f)], [f]]) for f in z]
    elif kind in ("floor", "ceiling"):
        bound, sign = (exact(layer[1]), *zero[1:]), 1 if kind == "floor" else -1
        choices = [([_scaled(sign, bound), _scaled(sign, f)], [[bound], [f]]) for f in z]
    elif kind == "maxout":
        rank = layer[1]
        if len(z) % rank:
            raise ValueError(f"maxout of rank {rank} needs a multiple of {rank} coordinates, got {len(z)}")
        groups = [list(z[start : start + rank]) for start in range(0, len(z), rank)]
        choices = [(group, [[f] for f in group]) for group in groups]
    elif kind == "attention":
        mix, choices = layer[2], []
        for keys, values, query, query_bias in layer[1]:
            scores = _apply(keys, None, _apply(query, query_bias, z, zero), zero)
            choices.append((scores, [[(exact(v), *zero[1:]) for v in value] for value in values]))
    else:
        raise ValueError(f"expected affine, relu, leaky, hardtanh, maxout, attention or residual, got {kind!r}")
    branches = [replace(cell, outputs=())]
    for scores, handed_on in choices:
        branches = [
            replace(part, outputs=branch.outputs + tuple(handed_on[winner]), label=(*branch.label, winner))
            for branch in branches
            for winner, part in _winners(branch, scores)
        ]
    if mix is None:
        return branches
    return [replace(branch, outputs=tuple(_apply(mix, None, branch.outputs, zero))) for branch in branches]


def _run(cells: list[OracleCell], layers: Sequence[Layer]) -> list[OracleCell]:
    for layer in layers:
        cells = [child for cell in cells for child in _expand(cell, layer)]
    return cells


@dataclass(frozen=True)
class OracleResult:
    """What the oracle says; everything beyond the cells is computed when asked for."""

    pieces: dict[Label, OracleCell]
    is_bounded: bool

    @property
    def labels(self) -> set[Label]:
        return set(self.pieces)

    @property
    def cells(self) -> int:
        return len(self.pieces)

    @property
    def maps(self) -> int:
        return len({cell.outputs for cell in self.pieces.values()})

    @property
    def regions(self) -> int:
        return len(set(self.region_of.values()))

    @property
    def triple(self) -> tuple[int, int, int]:
        """(cells, regions, maps)."""
        return self.cells, self.regions, self.maps

    @cached_property
    def region_of(self) -> dict[Label, Label]:
        """For each cell, the first label of its region."""
        leader = {label: label for label in self.pieces}
        for a, b in combinations(self.pieces, 2):
            if leader[a] == leader[b] or self.pieces[a].outputs != self.pieces[b].outputs:
                continue
            if self.pieces[a].touches(self.pieces[b]):
                merged, kept = leader[b], leader[a]
                leader = {label: kept if lead == merged else lead for label, lead in leader.items()}
        return leader

    @cached_property
    def neighbours(self) -> set[frozenset[Label]]:
        """Every pair of cells that share a facet's worth of boundary, equal maps or not."""
        pairs = combinations(self.pieces, 2)
        return {frozenset((a, b)) for a, b in pairs if self.pieces[a].touches(self.pieces[b])}

    @cached_property
    def volumes(self) -> dict[Label, Fraction]:
        """The exact volume of each cell of a bounded domain, by label."""
        if not self.is_bounded:
            raise ValueError("volumes need a bounded domain: pass low and high")
        return {label: _volume(cell.facets, cell.dim) for label, cell in self.pieces.items()}


def _volume(rows: Iterable[Row], dim: int) -> Fraction:
    """Lasserre's formula: dim * volume = sum over facets of (distance from 0) * (volume of the facet).

    A facet is |a| / |a_k| times its projection along coordinate k, and c / |a| from 0: the root |a| cancels.
    """
    rows = set(rows)
    if any(row[0] < 0 and not any(row[1:]) for row in rows):
        return Fraction(0)
    rows = {row for row in rows if any(row[1:])}
    if dim == 1:
        low = max(Fraction(-row[0], row[1]) for row in rows if row[1] > 0)
        high = min(Fraction(-row[0], row[1]) for row in rows if row[1] < 0)
        return max(high - low, Fraction(0))
    total = Fraction(0)
    for row in rows:
        if row[0]:
            steepness = abs(next(x for x in row[1:] if x))
            total += Fraction(row[0], steepness) * _volume({_on_wall(r, row) for r in rows - {row}}, dim - 1)
    return total / dim


def oracle_cells(
    layers: Sequence[Layer],
    dim: int,
    low: Number | Sequence[Number] | None = None,
    high: Number | Sequence[Number] | None = None,
    origin: Sequence[Number] | None = None,
    basis: Sequence[Sequence[Number]] | None = None,
) -> OracleResult:
    """The cells of a network on a box, on all of R^dim (low and high None), or on a slice.

    On a slice x = origin + sum u_i basis[i], `dim` is the number of slice coordinates u, the box bounds u,
    and outputs, points and volumes are in u. Exactness: exact, rationals throughout.

    >>> step = [("attention", [([[1], [-1]], [[0], [1]], [[1]], None)], None)]
    >>> sorted(oracle_cells(step, 1).labels), oracle_cells(step, 1, low=1, high=2).labels
    ([(0,), (1,)], {(0,)})
    >>> oracle_cells([("affine", [[0]], [0]), ("relu",)], 1).labels  # zero everywhere is not positive
    {(0,)}
    """
    rows: set[Row] = set()
    if low is not None and high is not None:
        lows = [exact(x) for x in (low if isinstance(low, Sequence) else [low] * dim)]
        highs = [exact(x) for x in (high if isinstance(high, Sequence) else [high] * dim)]
        for k, (a, b) in enumerate(zip(lows, highs, strict=True)):
            if a >= b:
                raise ValueError(f"coordinate {k}: expected low < high, got {a} and {b}")
            unit = [Fraction(int(i == k)) for i in range(dim)]
            rows |= {_primitive((-a, *unit)), _primitive((b, *(-x for x in unit)))}
    elif low is not None or high is not None:
        raise ValueError("expected both low and high, or neither")
    if basis is None:
        basis = [[int(i == k) for i in range(dim)] for k in range(dim)]
    if len(basis) != dim:
        raise ValueError(f"expected {dim} basis vectors, got {len(basis)}")
    start = [exact(x) for x in (origin if origin is not None else [0] * len(basis[0]))]
    inputs = tuple((x, *(exact(vector[i]) for vector in basis)) for i, x in enumerate(start))
    point = interior_point(rows, dim)
    assert point is not None
    cells = _run([OracleCell(frozenset(rows), point, inputs)], layers)
    pieces = {cell.label: cell for cell in cells}
    assert len(pieces) == len(cells)  # a cell is convex, so a label comes once
    return OracleResult(pieces, is_bounded=bool(rows))


def evaluate(layers: Sequence[Layer], x: Sequence[Number]) -> tuple[Label, tuple[Fraction, ...]]:
    """Label and output of the network at one point, ties to the lowest index: no polyhedra at all.

    >>> evaluate([("maxout", 2)], [3, 3])
    ((0,), (Fraction(3, 1),))
    """
    z = [exact(v) for v in x]
    label: list[int] = []
    for layer in layers:
        kind = layer[0]
        if kind == "affine":
            shifts = layer[2] if layer[2] is not None else [0] * len(layer[1])
            z = [_dot(w, z) + exact(b) for w, b in zip(layer[1], shifts, strict=True)]
        elif kind in ("relu", "leaky"):
            slope = exact(layer[1]) if kind == "leaky" else Fraction(0)
            label += [int(v > 0) for v in z]
            z = [v if v > 0 else slope * v for v in z]
        elif kind == "hardtanh":
            low, high = exact(layer[1]), exact(layer[2])
            label += [int(v > low) for v in z] + [int(max(v, low) < high) for v in z]
            z = [min(max(v, low), high) for v in z]
        elif kind == "maxout":
            groups = [z[start : start + layer[1]] for start in range(0, len(z), layer[1])]
            label += [group.index(max(group)) for group in groups]
            z = [max(group) for group in groups]
        elif kind == "attention":
            read: list[Fraction] = []
            for keys, values, query, query_bias in layer[1]:
                shifts = query_bias if query_bias is not None else [0] * len(query)
                q = [_dot(w, z) + exact(b) for w, b in zip(query, shifts, strict=True)]
                scores = [_dot(key, q) for key in keys]
                label.append(scores.index(max(scores)))
                read += [exact(v) for v in values[label[-1]]]
            z = read if layer[2] is None else [_dot(w, read) for w in layer[2]]
        elif kind == "residual":
            inner, change = evaluate(layer[1], z)
            label += inner
            z = [a + b for a, b in zip(z, change, strict=True)]
        else:
            raise ValueError(f"expected affine, relu, leaky, hardtanh, maxout, attention or residual, got {kind!r}")
    return tuple(label), tuple(z)


def _dot(weights: Sequence[Number], z: Sequence[Fraction]) -> Fraction:
    return sum((exact(w) * v for w, v in zip(weights, z, strict=True)), Fraction(0))

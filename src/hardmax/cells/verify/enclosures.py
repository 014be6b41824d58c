"""Guards and maps along many labels at once, in floats or extended floats with proved bounds; for verification.

A tensor on a slice is a polynomial in the slice coordinates, constant term first. Cells in a row that agree in all
earlier choices share it. A bound counts roundings: the error of an entry is at
most its ``units`` times the unit roundoff (docs/error_bounds.md, "a network along its label"). Where every number is a
multiple of one power of two and few bits long, nothing was rounded and the error is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.exact.rationals import ZERO_LATTICE, lattice_exponent
from hardmax.exact.rounding import SAFETY
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply, batched
from hardmax.networks.graph import Graph

#: Smaller numbers are left to rationals, so that no product here underflows.
_LEAST = 2.0**-400
#: What ``_constants`` found, as long as the operation lives.
_known: WeakKeyDictionary[op.Operation, tuple[Any, bool, int, int]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Terms:
    """A tensor on slices: coefficients, the roundings behind each, and the powers of two they are multiples of.

    value : (rows, terms, *shape), constant term first.
    units : (rows, terms, *shape) bounds on the errors, in unit roundoffs of whichever floats compute them.
    lattice, exact : (rows,) exponents of powers of two; whether nothing was rounded so far.
    picks : whether each term of each row is without error, and zero but for one entry at most, which is 1.
    """

    value: NDArray[Any]
    units: FloatArray
    lattice: IntArray
    exact: BoolArray
    picks: bool = False

    def take(self, rows: IntArray) -> Terms:
        """Some rows."""
        return Terms(self.value[rows], self.units[rows], self.lattice[rows], self.exact[rows], self.picks)

    def reshaped(self, *shape: int) -> Terms:
        """The same numbers, every tensor in another shape."""
        value, units = (part.reshape(*part.shape[:2], *shape) for part in (self.value, self.units))
        return Terms(value, units, self.lattice, self.exact, self.picks)

    @property
    def size(self) -> FloatArray:
        """Absolute values, never too small by more than one rounding."""
        return np.asarray(np.abs(self.value).astype(np.float64, copy=False))

    @property
    def bits(self) -> int:
        """How many bits the floats have."""
        return 53 if self.value.dtype == np.float64 else int(np.finfo(self.value.dtype).nmant) + 1

    @property
    def unit(self) -> float:
        """What an error of one unit is at most."""
        return SAFETY * 2.0**-self.bits

    @property
    def error(self) -> FloatArray:
        """Bounds on the errors: zero where nothing was rounded."""
        found = self.unit * self.units
        found[self.exact] = 0.0
        return np.asarray(found)


def followed(
    graph: Graph, domain: Domain, labels: NDArray[Any], is_quadratic: bool, kind: Any = np.longdouble
) -> Iterator[tuple[Terms, IntArray]]:
    """The guards of each choosing node, (rows, terms, choices, size), then the output; each with the cells' rows (n,).

    ``is_quadratic``: terms are 1, u and u^2 on a line; otherwise 1 and the slice coordinates. ``kind`` of float.
    """
    values: list[Any] = [_inputs(graph, domain, 3 if is_quadratic else domain.dim + 1, kind)]
    counts = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
    row_of = np.zeros(len(labels), dtype=np.int64)
    column = 0
    for index, node in enumerate(graph.nodes):
        operands = [values[value] for value in node.inputs]
        if index in counts:
            operation, count = node.operation, counts[index]
            size = 1 if isinstance(operation, op.Relu) else graph.shape_of(node.inputs[0])[-1]
            guards = operands[0].reshaped(count, size)
            yield guards, row_of
            row_of, parents, chosen = _runs(row_of, labels[:, column : column + count])
            column += count
            done = {value for value in node.inputs if graph.last_use[value] == index}
            values = [None if value is None or k in done else value.take(parents) for k, value in enumerate(values)]
            values.append(_chosen(operation, guards, parents, chosen).reshaped(*node.shape))
        else:
            values.append(_applied(node.operation, operands, is_quadratic))
        for value in set(node.inputs):
            if graph.last_use[value] == index:
                values[value] = None
    yield values[-1], row_of


def roundings(graph: Graph, domain: Domain, is_quadratic: bool) -> tuple[list[FloatArray], FloatArray]:
    """How many unit roundoffs bounds with one number a tensor may add up to, (terms,): of each choosing node's guards,
    and of the output; with absolute values of all weights, the largest entry in place of each, and no ReLU off."""
    n_terms = 3 if is_quadratic else domain.dim + 1
    origin, basis = domain.slice_of(graph.input_shape)
    start: list[FloatArray] = [np.zeros((2, n_terms))]  # of each tensor the largest number of a term, and its units
    start[0][0, 0] = np.abs(origin).max(initial=0.0)
    start[0][0, 1 : domain.dim + 1] = np.abs(basis).reshape(domain.dim, -1).max(axis=1, initial=0.0)
    levels, guards = start, []
    with np.errstate(over="ignore", invalid="ignore"):
        for index, node in enumerate(graph.nodes):
            operands, operation = [levels[value] for value in node.inputs], node.operation
            if index in graph.choice_nodes:
                guards.append(operands[0].sum(axis=0))
            if isinstance(operation, op.Relu):
                levels.append(operands[0] * max(1.0, abs(operation.slope)))
            elif isinstance(operation, op.Hardmax):
                levels.append(np.zeros((2, n_terms)))
                levels[-1][0, 0] = 1.0
            elif isinstance(operation, op.MaxLast | op.Concat | op.Reshape | op.Transpose | op.Take):
                levels.append(np.max(operands, axis=0))
            elif isinstance(operation, op.Add):
                total = operands[0] + operands[1]
                levels.append(np.stack([total[0], total[1] + 2.0 * total[0]]))
            elif isinstance(operation, op.MatMul | op.Multiply):
                shapes = (graph.shape_of(value) for value in node.inputs)
                terms = [_filled(level, shape) for level, shape in zip(operands, shapes, strict=True)]
                found = _applied(operation, terms, is_quadratic)
                levels.append(np.stack([part.reshape(n_terms, -1).max(axis=1) for part in (found.value, found.units)]))
            else:
                levels.append(_linear_level(operation, operands[0], graph.shape_of(node.inputs[0])))
    return guards, levels[-1].sum(axis=0)


def _filled(level: FloatArray, shape: tuple[int, ...]) -> Terms:
    """A tensor that has one number, and one of units, in place of each coefficient's entries."""
    value, units = (np.multiply.outer(part, np.ones(shape))[None] for part in level)
    return Terms(value, units, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool))


def _linear_level(operation: op.Operation, level: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """The largest number and units behind a linear operation, of which entry they may be."""
    absolute, is_fine, _, _ = _constants(operation)
    count = _length(operation, shape) + 3.0
    sums = apply(absolute, np.ones((1, *shape)), constant_term=False)[0]
    found = np.multiply.outer(np.stack([level[0], count * level[0] + level[1]]), sums)
    added = op.constant_term(absolute)
    if added is not None:
        found[0, 0] += added
        found[1, 0] += count * added
    size = found[0]
    if not is_fine or not ((size == 0) | ((size >= _LEAST) & (size < np.inf))).all():
        found[1] = np.inf
    return np.asarray(found.reshape(2, len(level[0]), -1).max(axis=2, initial=0.0))


def _runs(row_of: IntArray, chosen: NDArray[Any]) -> tuple[IntArray, IntArray, IntArray]:
    """``branches``, but for rows that come again later: these are new rows."""
    from hardmax.cells.verify._label_kernels import run_starts

    starts = run_starts(row_of, np.ascontiguousarray(chosen))
    first = np.flatnonzero(starts)
    return np.cumsum(starts) - 1, row_of[first], chosen[first]


def branches(row_of: IntArray, chosen: NDArray[Any]) -> tuple[IntArray, IntArray, IntArray]:
    """Rows told apart by one node's choices: each cell's new row, and each new row's parent and choices."""
    packed = np.concatenate(
        [row_of.astype(">i8")[:, None].view(np.uint8), np.ascontiguousarray(chosen).view(np.uint8)], axis=1
    )
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return inverse.reshape(-1), row_of[first], chosen[first].astype(np.int64)


def _inputs(graph: Graph, domain: Domain, n_terms: int, kind: Any) -> Terms:
    origin, basis = domain.slice_of(graph.input_shape)
    value = np.zeros((1, n_terms, *graph.input_shape), dtype=kind)
    value[0, 0], value[0, 1 : domain.dim + 1] = origin, basis
    picks = bool(((value == 0) | (value == 1)).all() and value.sum(axis=-1).max(initial=0.0) <= 1)
    exact = np.ones(1, dtype=bool)
    return _guarded(Terms(value, np.zeros(value.shape), np.array([lattice_exponent(value)]), exact, picks))


def _guarded(terms: Terms) -> Terms:
    """The same with nothing proved about rows that hold numbers near the ends of binary64."""
    from hardmax.cells.verify._label_kernels import near_ends

    numbers = (part.reshape(len(terms.value), -1) for part in (terms.value, terms.units))
    small = near_ends(*(np.ascontiguousarray(part, dtype=np.float64) for part in numbers), _LEAST)
    if not small.any():
        return terms
    units = terms.units.copy()
    units[small] = np.inf
    return Terms(terms.value, units, terms.lattice, terms.exact & ~small)


def _chosen(operation: op.Operation, guards: Terms, parents: IntArray, chosen: IntArray) -> Terms:
    """What a choosing node hands on: guards are (rows, terms, choices, size), chosen (new rows, choices)."""
    if isinstance(operation, op.Relu) and operation.slope == 0.0 and guards.bits == 53:
        from hardmax.cells.verify._label_kernels import passed_on

        value, units = (np.ascontiguousarray(part[..., 0]) for part in (guards.value, guards.units))
        value, units = passed_on(value, units, parents, chosen)
        return Terms(value, units, guards.lattice[parents], guards.exact[parents])
    guards = guards.take(parents)
    if isinstance(operation, op.Relu):
        factor = np.where(chosen == 1, 1.0, operation.slope)[:, None, :, None]
        is_plain = operation.slope in (0.0, 1.0)
        rounded = 0.0 if is_plain else np.where(factor == operation.slope, guards.size, 0.0)
        value, units = guards.value * factor, (guards.units + rounded) * factor
        units = np.where(factor == 0.0, 0.0, units)
        if is_plain:
            return Terms(value, units, guards.lattice, guards.exact)
        lattice = guards.lattice + min(0, lattice_exponent(np.array([operation.slope])))
        return _guarded(Terms(value, units, lattice, guards.exact & _fits(guards.size, lattice, guards.bits)))
    if isinstance(operation, op.MaxLast):
        at = np.broadcast_to(chosen[:, None, :, None], (*guards.value.shape[:-1], 1))
        taken = np.take_along_axis(guards.value, at, axis=-1), np.take_along_axis(guards.units, at, axis=-1)
        return Terms(*taken, guards.lattice, guards.exact)
    value = np.zeros_like(guards.value)
    value[:, 0] = chosen[..., None] == np.arange(guards.value.shape[-1])
    ones = np.ones(len(value), dtype=bool)
    return Terms(value, np.zeros(value.shape), np.zeros(len(value), dtype=np.int64), ones, True)


def _fits(size: FloatArray, lattice: IntArray, bits: int) -> BoolArray:
    """Whether multiples of 2^lattice up to a size, (rows, ...), are floats: then sums below it were not rounded."""
    largest = size.reshape(len(size), -1).max(axis=1, initial=0.0)
    with np.errstate(over="ignore", under="ignore"):
        room = np.ldexp(1.0, np.clip(lattice + bits - 2, -1060, 1020).astype(np.int64))
    return np.asarray(largest < room)


def _still_exact(exact: BoolArray, size: FloatArray, lattice: IntArray, bits: int) -> BoolArray:
    """Which rows (rows,) in which nothing was rounded stay such."""
    return exact & _fits(size, lattice, bits) if exact.any() else exact


def _applied(operation: op.Operation, operands: list[Terms], is_quadratic: bool) -> Terms:
    if isinstance(operation, op.MatMul | op.Multiply):
        return _product(operation, operands[0], operands[1], is_quadratic)
    if isinstance(operation, op.Concat | op.Add | op.Reshape | op.Transpose | op.Take):
        return _moved(operation, operands)
    return _linear(operation, operands[0])


def _by_term(operation: op.Operation, *parts: NDArray[Any], constant: bool = False) -> NDArray[Any]:
    """An operation on each term of (rows, terms, *shape); its constant goes to the first term if wanted."""
    rows, terms = parts[0].shape[:2]
    if isinstance(operation, op.Add) and parts[0].ndim == parts[1].ndim:
        return np.asarray(parts[0] + parts[1])
    if isinstance(operation, op.Linear):  # one product of matrices
        found: NDArray[Any] = (parts[0].reshape(-1, parts[0].shape[-1]) @ operation.weight.T).reshape(
            *parts[0].shape[:-1], -1
        )
        if constant and operation.bias is not None:
            found[:, 0] += operation.bias
        return found
    if not constant:
        flat = apply(operation, *(part.reshape(rows * terms, *part.shape[2:]) for part in parts), constant_term=False)
        return np.asarray(flat.reshape(rows, terms, *flat.shape[1:]))
    first = apply(operation, *(part[:, 0] for part in parts))
    return np.concatenate([first[:, None], _by_term(operation, *(part[:, 1:] for part in parts))], axis=1)


def _moved(operation: op.Operation, operands: list[Terms]) -> Terms:
    """Entries put elsewhere, side by side, or added two by two."""
    value = _by_term(operation, *(x.value for x in operands))
    units = _by_term(operation, *(x.units for x in operands))
    lattice, exact = operands[0].lattice, operands[0].exact
    for other in operands[1:]:
        lattice, exact = np.minimum(lattice, other.lattice), exact & other.exact
    if isinstance(operation, op.Add):
        size = _by_term(operation, *(x.size for x in operands))
        exact = _still_exact(exact, size, lattice, operands[0].bits)
        return _guarded(Terms(value, units + 2.0 * size, lattice, exact))
    return Terms(value, units, lattice, exact)


def _constants(operation: op.Operation) -> tuple[Any, bool, int, int]:
    """For a linear operation: itself on absolute values, whether no constant is tiny, and the lattices of factors
    and of what is added."""
    if operation not in _known:
        _known[operation] = _find_constants(operation)
    return _known[operation]


def _find_constants(operation: op.Operation) -> tuple[Any, bool, int, int]:
    absolute = operation.cast(np.abs)
    added = op.constant_term(operation)
    factors = [
        array
        for name, array in vars(operation).items()
        if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array is not added and name != "bias"
    ]
    if isinstance(operation, op.Shift):
        factors = []
    numbers = [np.abs(array).reshape(-1) for array in (*factors, *([] if added is None else [added]))]
    is_fine = all(not ((a > 0) & (a < _LEAST)).any() and not (a > 1.0 / _LEAST).any() for a in numbers)
    multiplied = min((lattice_exponent(array) for array in factors), default=0)
    if isinstance(operation, op.Reduce):
        multiplied = 1 - operation.divisor.bit_length()
    return absolute, is_fine, multiplied, ZERO_LATTICE if added is None else lattice_exponent(added)


def _linear(operation: op.Operation, x: Terms) -> Terms:
    """|W| units + n (|W| |x| + |b|) roundings, n the number of terms of a sum and two more, or three where |x| was
    rounded; where one entry at most is picked its sum with b is rounded, and nothing else."""
    absolute, is_fine, multiplied, added = _constants(operation)
    value = _by_term(operation, x.value, constant=True)
    if x.picks and isinstance(operation, op.Linear):
        units = np.zeros(value.shape)
        if operation.bias is not None and x.value[:, 0].any():
            units[:, 0] = 2.0 * np.abs(value[:, 0])
    else:
        roundings = _length(operation, x.value.shape[2:]) + (2.0 if x.bits == 53 else 3.0)
        units = _by_term(absolute, _weighed(x, roundings), constant=True)
        units *= roundings
    lattice, exact = np.minimum(x.lattice + multiplied, added), x.exact
    if exact.any():
        exact = exact & _fits(_by_term(absolute, x.size, constant=True), lattice, x.bits)
    if isinstance(operation, op.Reduce) and operation.divisor & (operation.divisor - 1):
        exact = np.zeros_like(exact)
    if not is_fine:
        return Terms(value, np.full(units.shape, np.inf), lattice, np.zeros_like(exact))
    return _guarded(Terms(value, units, lattice, exact))


def _weighed(x: Terms, roundings: float) -> FloatArray:
    """Sizes and, in units of so many roundings, errors."""
    from hardmax.cells.verify._label_kernels import sizes_and_units

    value, units = (np.ascontiguousarray(part, dtype=np.float64).reshape(-1) for part in (x.value, x.units))
    found: FloatArray = sizes_and_units(value, units, roundings)
    return found.reshape(x.value.shape)


def _length(operation: op.Operation, shape: tuple[int, ...]) -> int:
    """How many products or numbers each entry of the result adds up."""
    if isinstance(operation, op.Linear):
        return int(operation.weight.shape[1])
    if isinstance(operation, op.ConstantMatMul):
        return int(operation.constant.shape[-1 if operation.on_left else -2])
    if isinstance(operation, op.Convolution):
        return int(operation.weight.shape[-1])
    if isinstance(operation, op.Reduce):
        return prod(shape[axis] for axis in operation.axes)
    return 1


def _product(operation: op.Operation, x: Terms, y: Terms, is_quadratic: bool) -> Terms:
    """The product of two polynomials: on a line up to squares, elsewhere one factor must be constant."""
    rows, n_terms = x.value.shape[:2]
    rank = max(x.value.ndim, y.value.ndim) - 2
    a, b = ([batched(part[:, k], rank) for k in range(n_terms)] for part in (x.value, y.value))
    da, db = ([batched(part[:, k], rank) for k in range(n_terms)] for part in (x.units, y.units))
    length = x.value.shape[-1] if isinstance(operation, op.MatMul) else 1
    shape = apply(operation, a[0], b[0]).shape
    value = np.zeros((rows, n_terms, *shape[1:]), dtype=x.value.dtype)
    units, size = np.zeros(value.shape), np.zeros(value.shape)
    spoilt = np.zeros(rows, dtype=bool)
    for i in range(n_terms):
        for j in range(n_terms):
            if not ((a[i].any() or da[i].any()) and (b[j].any() or db[j].any())):
                continue
            p, q = np.abs(a[i]).astype(np.float64), np.abs(b[j]).astype(np.float64)
            terms = apply(operation, p, q)
            slack = apply(operation, p, db[j]) + apply(operation, da[i], q)
            slack = slack + 2.0**-x.bits * apply(operation, da[i], db[j])
            k = i + j if i == 0 or j == 0 or (is_quadratic and i + j < n_terms) else -1
            if k < 0:
                spoilt |= (terms + slack).reshape(rows, -1).any(axis=1)
                continue
            value[:, k] += apply(operation, a[i], b[j])
            units[:, k] += slack
            size[:, k] += terms
    units = units + (length + 2.0 + n_terms) * size
    units[spoilt] = np.inf
    lattice = x.lattice + y.lattice
    exact = x.exact & y.exact & _fits(size, lattice, x.bits) & ~spoilt
    return _guarded(Terms(value, units, lattice, exact))

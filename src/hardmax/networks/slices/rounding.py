"""Proved bounds on the rounding errors of slice propagation.

A tensor on a batch of cells carries, a cell and coefficient, one number ``error`` that bounds the
absolute error of each of its entries. Rules follow the operations by the lemmas of
``hardmax.exact.rounding``, with norms in place of sums of absolute values.

Often there is no rounding at all: small integers, dyadic weights, a coordinate slice. Two facts
detect that. *Lattice*: if all entries are multiples of ``2**unit`` and every partial sum stays below
``2**(unit + 53)``, every partial sum is a float. *Monomial*: where a coefficient of the operand has a
single entry, a power of two, products only shift exponents. The error is then exactly zero, so that a
zero found downstream is a certain zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ldexp
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import PrecisionError
from hardmax.exact.rationals import ZERO_LATTICE, lattice_exponent
from hardmax.exact.rounding import SAFETY, UNIT_ROUNDOFF, bilinear_error, dot_error
from hardmax.exactness import FloatArray, IntArray
from hardmax.networks import operations as op

if TYPE_CHECKING:
    from hardmax.networks.slices.coefficients import Tensor


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is known about the rounding of one tensor.

    error : (cell, coefficient), at least the absolute error of every entry.
    unit : a coefficient, the exponent of a lattice that holds its entries wherever its error is zero.
    monomial : every coefficient has at most one nonzero entry, a power of two.
    """

    error: FloatArray
    unit: tuple[int, ...]
    monomial: bool = False

    @classmethod
    def of_slice(cls, start: FloatArray) -> Bounds:
        """Bounds of the input itself: floats are exact. ``start`` is (1, coefficient, *shape)."""
        units, is_monomial = _lattices(start.shape[1], np.ascontiguousarray(start, dtype=np.float64).tobytes())
        return cls(np.zeros((1, len(units))), units, is_monomial)

    @classmethod
    def of_one_hot(cls, cells: int) -> Bounds:
        """Bounds of a one-hot tensor: zeros and ones."""
        return cls(np.zeros((cells, 1)), (0,))

    def gathered(self, parents: IntArray | slice) -> Bounds:
        """The bounds of children that copy their parents' tensors."""
        return Bounds(self.error[parents], self.unit, self.monomial)

    def clipped(self, parents: IntArray, unit: int) -> Bounds:
        """The bounds after a clip: entries kept, or replaced by bounds on the lattice of ``unit``."""
        return Bounds(self.error[parents], (min(self.unit[0], unit), *self.unit[1:]))

    def chosen(self, parents: IntArray, source: NDArray[Any], slope: float = 0.0) -> Bounds:
        """The bounds after a ReLU or a maximum: entries of ``source`` kept, zeroed or multiplied by ``slope``."""
        if not slope:
            return Bounds(self.error[parents], self.unit)
        shift = lattice_exponent([slope])
        units = [min(u, u + shift) for u in self.unit]
        total = magnitudes(source) * max(1.0, abs(slope))
        _refuse_overflow(total)
        rounded = dot_error(1, total, max(1.0, abs(slope)) * self.error)
        exact = (self.error == 0) & _on_lattice(total, units)
        return Bounds(np.where(exact, 0.0, rounded)[parents], tuple(units))


@lru_cache(16)  # the same few slices again and again
def _lattices(n: int, numbers: bytes) -> tuple[tuple[int, ...], bool]:
    """The lattice of each of n rows of floats, and whether each has at most one nonzero entry, a power of two."""
    flat = np.frombuffer(numbers).reshape(n, -1)
    mantissa = np.frexp(np.abs(flat))[0]
    single = bool(((flat != 0).sum(axis=1) <= 1).all() and np.isin(mantissa, (0.0, 0.5)).all())
    return tuple(lattice_exponent(row) for row in flat), single


def magnitudes(coefficients: NDArray[Any]) -> FloatArray:
    """The largest absolute entry a cell and coefficient: (cell, coefficient)."""
    from hardmax.networks.slices._slice_kernels import row_magnitudes

    cells, terms = coefficients.shape[:2]
    flat = coefficients.reshape(cells * terms, -1)
    if flat.size == 0:
        return np.zeros((cells, terms))
    if flat.size < 4096:
        return np.asarray(np.abs(flat).max(axis=1)).reshape(cells, terms)
    return np.asarray(row_magnitudes(np.ascontiguousarray(flat))).reshape(cells, terms)


@dataclass(frozen=True)
class Bounded:
    """The rounding rule of one operation.

    norm : largest sum of absolute weights behind one output entry.
    length : how many products one output entry adds up.
    unit : exponent of the weights' lattice.
    constant : largest absolute constant term, with its lattice in ``constant_unit``.
    shifts_exponents : all weights are powers of two and nothing is summed.
    """

    kind: str
    norm: float = 1.0
    length: int = 0
    unit: int = 0
    constant: float = 0.0
    constant_unit: int = ZERO_LATTICE
    shifts_exponents: bool = False

    @classmethod
    def of(cls, operation: op.Operation) -> Bounded:
        """The rule of an operation with float64 constants; for a clip, the rule of its guard."""
        constant = operation.bound if isinstance(operation, op.Clip) else op.constant_term(operation)
        offset = 0.0 if constant is None else float(np.abs(constant).max(initial=0.0))
        offset_unit = ZERO_LATTICE if constant is None else lattice_exponent(constant)
        if isinstance(operation, op.Linear):
            weight = operation.weight
            norm = float(np.abs(weight).sum(axis=1).max())
            return cls("product", norm, weight.shape[1], lattice_exponent(weight), offset, offset_unit)
        if isinstance(operation, op.ConstantMatMul):
            axis = -1 if operation.on_left else -2
            norm = float(np.abs(operation.constant).sum(axis=axis).max())
            return cls("product", norm, operation.constant.shape[axis], lattice_exponent(operation.constant))
        if isinstance(operation, op.Convolution):
            weight = operation.weight
            norm = float(np.abs(weight).sum(axis=-1).max())
            return cls("product", norm, weight.shape[-1], lattice_exponent(weight), offset, offset_unit)
        if isinstance(operation, op.Scale):
            factor = operation.factor
            norm = float(np.abs(factor).max(initial=0.0))
            powers = bool(np.isin(np.frexp(np.abs(factor))[0], (0.0, 0.5)).all())
            return cls("scale", norm, 1, lattice_exponent(factor), shifts_exponents=powers)
        if isinstance(operation, op.Shift | op.Clip):
            return cls("shift", constant=offset, constant_unit=offset_unit)
        if isinstance(operation, op.Reduce):
            return cls("reduce", length=operation.divisor)
        if isinstance(operation, op.Take):
            return cls("copy" if len(np.unique(operation.positions)) == operation.positions.size else "repeat")
        return cls(_KINDS.get(type(operation), "choice"))

    def linear(self, operand: Tensor, result: NDArray[Any]) -> Bounds:
        """Bounds of a linear operation's result."""
        before = operand.bounds
        assert before is not None
        if self.kind in ("copy", "repeat"):
            return Bounds(before.error, before.unit, before.monomial and self.kind == "copy")
        size = magnitudes(operand.coefficients)
        norm, length, unit = self.norm, self.length, self.unit
        if self.kind == "reduce":
            count = operand.coefficients[0, 0].size // max(1, result[0, 0].size)
            power = np.frexp(float(self.length))[0] == 0.5
            norm, length = count / self.length, count + (0 if power else 2)
            unit = -int(np.log2(self.length)) if power else -(10**6)
        products, units = norm * size, self._units(before.unit, unit)
        slack, total = norm * before.error, products.copy()
        moves = (size + before.error > 0) & (norm > 0)  # from zero, however little: products may underflow
        if self.constant > 0:  # added last, which costs one rounding of the sum
            total[:, 0] += self.constant
            slack[:, 0] += UNIT_ROUNDOFF * total[:, 0]
            moves[:, 0] = True
        _refuse_overflow(total)
        exact = total * SAFETY < _limits(units)
        if before.monomial or self.shifts_exponents:
            single = np.array([unit >= -1074 for unit in units])  # products only shift exponents
            single[0] &= self.constant == 0 or not bool(size[:, 0].any())
            exact |= single
        exact &= before.error == 0
        same_size = operand.coefficients[0, 0].size == result[0, 0].size  # a broadcast repeats entries
        keeps = before.monomial and self.constant == 0 and self.kind == "shift" and same_size
        return Bounds(np.where(moves & ~exact, dot_error(length, products, slack), 0.0), units, keeps)

    def _units(self, before: tuple[int, ...], unit: int) -> tuple[int, ...]:
        """The lattices of sums of products with weights on the lattice of ``unit``, and of the constant."""
        first, *others = (min(u + unit, ZERO_LATTICE) for u in before)
        return min(first, self.constant_unit), *others

    def sums(self, before: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[float, float, FloatArray]]:
        """The lattices of a linear map of entries on lattices ``before``, and what compiled code asks of its sums.

        These are: norm, constant, and for each coefficient the limit below which sums on its lattice are floats.
        """
        units = self._units(before, self.unit)
        return units, (self.norm, self.constant, _limits(units))

    def selection(self, picked: NDArray[Any]) -> Bounds:
        """Bounds of a linear map applied to a one-hot tensor: a column, plus the bias if there is one."""
        cells = len(picked)
        unit = min(self.unit, self.constant_unit)
        if self.constant == 0:
            return Bounds(np.zeros((cells, 1)), (unit,))
        total = np.full((cells, 1), self.norm + self.constant)
        error = np.where(_on_lattice(total, [unit]), 0.0, SAFETY * UNIT_ROUNDOFF * total)
        return Bounds(error, (unit,))

    def combine(self, operands: Sequence[Tensor], terms: int) -> Bounds:
        """Bounds of a sum or a concatenation of tensors with up to ``terms`` coefficients."""
        adds = self.kind == "add"
        cells = len(operands[0])
        error = np.zeros((cells, terms))
        total = np.zeros((cells, terms))
        units = [ZERO_LATTICE] * terms
        touched = np.zeros(terms, dtype=np.int64)
        for tensor in operands:
            bounds = tensor.bounds
            assert bounds is not None
            k = tensor.degree_terms
            touched[:k] += 1
            error[:, :k] = error[:, :k] + bounds.error if adds else np.maximum(error[:, :k], bounds.error)
            units[:k] = [min(u, v) for u, v in zip(units[:k], bounds.unit, strict=True)]
            if adds:
                total[:, :k] += magnitudes(tensor.coefficients)
        if not adds:
            return Bounds(error, tuple(units))
        _refuse_overflow(total)
        exact = (error == 0) & (_on_lattice(total, units) | (touched < 2))
        fresh = np.where(touched >= 2, UNIT_ROUNDOFF * total, 0.0)
        return Bounds(np.where(exact, 0.0, SAFETY * (error + fresh)), tuple(units))

    def product(self, x: Tensor, y: Tensor) -> Bounds:
        """Bounds of a bilinear operation's result."""
        assert x.bounds is not None and y.bounds is not None
        length = x.coefficients.shape[-1] if self.kind == "matmul" else 1
        size_x, size_y = magnitudes(x.coefficients), magnitudes(y.coefficients)
        terms = x.degree_terms + y.degree_terms - 1
        cells = len(x)
        error, total = np.zeros((cells, terms)), np.zeros((cells, terms))
        moves, inexact = np.zeros((cells, terms), dtype=bool), np.zeros((cells, terms), dtype=bool)
        units = [ZERO_LATTICE] * terms
        pairs = min(x.degree_terms, y.degree_terms)
        for i in range(x.degree_terms):
            for j in range(y.degree_terms):
                sx, sy = size_x[:, i], size_y[:, j]
                ex, ey = x.bounds.error[:, i], y.bounds.error[:, j]
                error[:, i + j] += length * (sx * ey + sy * ex + ex * ey)
                total[:, i + j] += length * sx * sy
                moves[:, i + j] |= (sx + ex > 0) & (sy + ey > 0)
                inexact[:, i + j] |= (ex > 0) | (ey > 0)
                units[i + j] = min(units[i + j], x.bounds.unit[i] + y.bounds.unit[j])
        _refuse_overflow(total)
        exact = ~moves | (~inexact & _on_lattice(total, units))
        return Bounds(np.where(exact, 0.0, bilinear_error(length, pairs, total, error)), tuple(units))


_KINDS: dict[type[op.Operation], str] = {
    op.Reshape: "copy",
    op.Transpose: "copy",
    op.Add: "add",
    op.Concat: "join",
    op.MatMul: "matmul",
    op.Multiply: "multiply",
}


#: Why a slice is refused.
OVERFLOW = (
    "the numbers overflow binary64 on this slice, so no sign can be trusted; rescale the weights or the domain, or use "
    "exactness='exact'"
)


def _refuse_overflow(total: FloatArray) -> None:
    """Every number computed stays below ``total``; refuse when that is near the end of binary64."""
    if not total.max(initial=0.0) < 2.0**1000:  # nan is refused too
        raise PrecisionError(OVERFLOW)


def _on_lattice(total: FloatArray, units: Sequence[int]) -> NDArray[np.bool_]:
    """Whether sums below ``total`` of multiples of ``2**unit`` are floats: a boolean a cell and coefficient."""
    return np.asarray(total * SAFETY < _limits(tuple(units)))


@lru_cache
def _limits(units: tuple[int, ...]) -> FloatArray:
    """What sums of multiples of ``2**unit`` must stay below for all of them to be floats."""
    return np.array([ldexp(1.0, min(unit + 53, 1023)) if unit >= -1074 else 0.0 for unit in units])

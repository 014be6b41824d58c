"""Maxima of affine functions with rational coefficients: sums, maxima, and the terms that matter.

The exact twin of ``TropicalPolynomial``, for the numbers that arise between a network's weights and its
rational map: products of several floats, which are floats no longer. A term is (offset, slope_1, ...).

Networks without attention become differences of such maxima, operation by operation. Every entry of every tensor is
kept as ``affine + sum_k c_k p_k`` with convex p_k (maxima of affine functions) and signed weights c_k. Linear
operations act on the weights alone. At a maximum the negative parts are brought to a common denominator D, the convex
functions ``z_i + D`` are written out, and their maximum M is one new convex function: the result is ``M - D``. This is
the usual proof that ReLU networks are tropical rational maps, with shared parts cancelled instead of multiplied out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import IncompleteError, PrecisionError
from hardmax.exact.halfspaces import point_inside
from hardmax.exact.integers import primitive
from hardmax.exact.rationals import float_array, fraction, rational
from hardmax.exactness import FloatArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph
from hardmax.tropical import TropicalPolynomial
from hardmax.tropical.sums.joint_cells import common_refinement

Term = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Maximum:
    """``max_j offset_j + <slope_j, x>`` over terms each of which is the only maximum somewhere."""

    terms: tuple[Term, ...]

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return len(self.terms[0]) - 1

    def in_fractions(self) -> Maximum:
        """The same with coefficients that are ``Fraction``, whatever they were computed with."""
        return Maximum(tuple(tuple(fraction(value) for value in term) for term in self.terms))

    def polynomial(self) -> TropicalPolynomial:
        """The terms rounded once each to the nearest float."""
        rows = float_array(np.array(self.terms, dtype=object))
        if not np.isfinite(rows).all():
            raise PrecisionError("the lowered map's coefficients overflow float64; rescale the weights")
        return TropicalPolynomial(rows[:, 1:], rows[:, 0])


def maximum(terms: Iterable[Term], max_terms: int, where: str) -> Maximum:
    """The maximum of the listed terms, needless ones dropped.

    Exactness: exact.

    Examples
    --------
    >>> line = [(Fraction(0), Fraction(a)) for a in (-1, 0, 1, 1)]  # the flat line only touches
    >>> [str(term[1]) for term in maximum(line, 10, "here").terms]
    ['-1', '1']
    """
    distinct = list(dict.fromkeys(terms))
    check_size(len(distinct), max_terms, where)
    if len(distinct) == 1:
        return Maximum((distinct[0],))
    if not any(any(term[1:]) for term in distinct):
        return Maximum((max(distinct),))
    rows = _as_floats(distinct)
    if rows is not None:
        keep = TropicalPolynomial(rows[:, 1:], rows[:, 0]).essential_terms().tolist()
    else:
        keep = _essential_in_rationals(distinct)
    return Maximum(tuple(distinct[j] for j in keep))


def weighted_sum(parts: Sequence[tuple[Any, Maximum]], affine: Term, max_terms: int, where: str) -> Maximum:
    """``affine + sum_k c_k p_k`` for positive weights: a term for each cell of the common refinement.

    Exactness: exact.

    Examples
    --------
    >>> absolute = maximum([(Fraction(0), Fraction(1)), (Fraction(0), Fraction(-1))], 10, "here")
    >>> total = weighted_sum([(Fraction(2), absolute)], (Fraction(5), Fraction(1)), 10, "here")
    >>> [[str(value) for value in term] for term in total.terms]
    [['5', '3'], ['5', '-1']]
    """
    winners = _joint_winners([part.terms for _, part in parts], max_terms, where)
    sums = []
    for chosen in winners:
        total = list(affine)
        for (weight, part), j in zip(parts, chosen, strict=True):
            total = [x + weight * y for x, y in zip(total, part.terms[j], strict=True)]
        sums.append(tuple(total))
    return Maximum(tuple(dict.fromkeys(sums)))


def _joint_winners(heads: Sequence[Sequence[Term]], max_terms: int, where: str) -> list[tuple[int, ...]]:
    """The tuples of terms, one of each list, that win together on some open set."""
    moving = [h for h, terms in enumerate(heads) if len(terms) > 1]
    if not moving:
        return [(0,) * len(heads)]
    found: list[tuple[int, ...]]
    if len(moving) == 1:
        found = [(j,) for j in range(len(heads[moving[0]]))]
    else:
        rows = [_as_floats(heads[h]) for h in moving]
        if all(part is not None for part in rows):
            cells = common_refinement(
                [(part[:, 1:], part[:, 0]) for part in rows if part is not None], max_cells=max_terms + 1
            )
            found = [tuple(chosen) for chosen in cells.winners.tolist()]
        else:
            found = _joint_winners_in_rationals([heads[h] for h in moving], max_terms, where)
    check_size(len(found), max_terms, where)
    place = {h: position for position, h in enumerate(moving)}
    return [tuple(chosen[place[h]] if h in place else 0 for h in range(len(heads))) for chosen in found]


def _as_floats(terms: Sequence[Term]) -> FloatArray | None:
    """The terms times a positive integer as exact floats, or None where they are none."""
    exact = [[fraction(value) for value in term] for term in terms]
    below = {value.denominator for term in exact for value in term}
    odd = lcm(*(number // (number & -number) for number in below))
    scaled = [[value * odd for value in term] for term in exact]
    rows = float_array(np.array(scaled, dtype=object))
    if not np.isfinite(rows).all():
        return None
    is_same = all(
        Fraction(x) == y
        for row, term in zip(rows.tolist(), scaled, strict=True)
        for x, y in zip(row, term, strict=True)
    )
    return rows if is_same else None


def _lead(terms: Sequence[Term], winner: int, others: Iterable[int]) -> list[tuple[int, ...]]:
    chosen = terms[winner]
    return [primitive([x - y for x, y in zip(chosen, terms[j], strict=True)]) for j in others if j != winner]


def _essential_in_rationals(terms: Sequence[Term]) -> list[int]:
    dim = len(terms[0]) - 1
    alive = list(range(len(terms)))
    for j in range(len(terms)):
        if point_inside(_lead(terms, j, alive), dim) is None:
            alive.remove(j)
    return alive


def _joint_winners_in_rationals(heads: Sequence[Sequence[Term]], max_terms: int, where: str) -> list[tuple[int, ...]]:
    dim = len(heads[0][0]) - 1
    found: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [((), [])]
    for terms in heads:
        following = []
        for chosen, rows in found:
            for j in range(len(terms)):
                together = rows + _lead(terms, j, range(len(terms)))
                if point_inside(together, dim) is not None:
                    following.append(((*chosen, j), together))
        check_size(len(following), max_terms, where)
        found = following
    return [chosen for chosen, _ in found]


def check_size(size: int, max_terms: int, where: str) -> None:
    """Refuse a maximum of more terms than are allowed."""
    if size > max_terms:
        raise IncompleteError(
            f"{where}: lowering needs a maximum of more than {max_terms} affine functions, the limit; pass "
            "max_terms=..., or enumerate the cells instead, which grows more slowly"
        )


@dataclass(frozen=True, eq=False)
class Combination:
    """``affine + sum_k weights[p_k] p_k``; a number as far as linear operations can tell."""

    affine: Term
    weights: dict[Maximum, Any]

    def __add__(self, other: Any) -> Combination:
        if not isinstance(other, Combination):
            return Combination((self.affine[0] + other, *self.affine[1:]), self.weights)
        weights = dict(self.weights)
        for part, weight in other.weights.items():
            total = weights.get(part, 0) + weight
            if total:
                weights[part] = total
            else:
                weights.pop(part, None)
        return Combination(tuple(x + y for x, y in zip(self.affine, other.affine, strict=True)), weights)

    def scaled(self, factor: Any) -> Combination:
        """The product with a number."""
        weights = {part: factor * weight for part, weight in self.weights.items()} if factor else {}
        return Combination(tuple(factor * x for x in self.affine), weights)

    __radd__ = __add__
    __mul__ = __rmul__ = scaled

    def __truediv__(self, divisor: Any) -> Combination:
        return self.scaled(1 / divisor)


def rational_terms(graph: Graph, max_terms: int) -> tuple[list[Maximum], Maximum]:
    """Numerators, one an output entry, and their common denominator.

    Exactness: exact.
    """
    dim = prod(graph.input_shape)
    one, zero = rational(1), rational(0)
    inputs = np.empty(dim, dtype=object)
    for k in range(dim):
        inputs[k] = Combination((zero, *(one if j == k else zero for j in range(dim))), {})
    values = [inputs.reshape(1, *graph.input_shape)]
    for node, operation in zip(graph.nodes, graph.operations("exact"), strict=True):
        operands = [values[value] for value in node.inputs]
        if isinstance(operation, op.Relu):
            values.append(_relu(operands[0], rational(operation.slope), max_terms, node.name))
        elif isinstance(operation, op.MaxLast):
            values.append(_max_last(operands[0], max_terms, node.name))
        else:
            values.append(apply(operation, *operands))
    outputs = list(values[-1].reshape(-1))
    below = _common_denominator(outputs)
    numerators = [_written_out(value + below, max_terms, "output") for value in outputs]
    return numerators, _written_out(below, max_terms, "output")


def _relu(x: NDArray[Any], slope: Any, max_terms: int, where: str) -> NDArray[Any]:
    result = np.empty(x.size, dtype=object)
    for position, value in enumerate(x.reshape(-1)):
        positive = _larger([value, value.scaled(rational(0))], max_terms, where)
        result[position] = positive.scaled(1 - slope) + value.scaled(slope) if slope else positive
    return result.reshape(x.shape)


def _max_last(x: NDArray[Any], max_terms: int, where: str) -> NDArray[Any]:
    groups = x.reshape(-1, x.shape[-1])
    result = np.empty(len(groups), dtype=object)
    for position, group in enumerate(groups):
        result[position] = _larger(list(group), max_terms, where)
    return result.reshape(x.shape[:-1])


def _larger(values: Sequence[Combination], max_terms: int, where: str) -> Combination:
    """The maximum of several combinations as one new convex function minus their common denominator."""
    below = _common_denominator(values)
    terms = [term for value in values for term in _written_out(value + below, max_terms, where).terms]
    above = maximum(terms, max_terms, where)
    if len(above.terms) == 1:
        return Combination(above.terms[0], {}) + below.scaled(rational(-1))
    zero = tuple(rational(0) for _ in above.terms[0])
    return Combination(zero, {above: rational(1)}) + below.scaled(rational(-1))


def _common_denominator(values: Sequence[Combination]) -> Combination:
    """The least combination of the convex parts that makes every sum with it convex."""
    least: dict[Maximum, Any] = {}
    for value in values:
        for part, weight in value.weights.items():
            if weight < 0 and -weight > least.get(part, 0):
                least[part] = -weight
    return Combination(tuple(rational(0) for _ in values[0].affine), least)


def _written_out(value: Combination, max_terms: int, where: str) -> Maximum:
    parts = [(weight, part) for part, weight in value.weights.items()]
    return weighted_sum(parts, value.affine, max_terms, where)

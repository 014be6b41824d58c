"""Networks without attention as differences of convex functions, operation by operation.

Every entry of every tensor is kept as ``affine + sum_k c_k p_k`` with convex p_k (maxima of affine
functions) and signed weights c_k. Linear operations act on the weights alone. At a maximum the negative
parts are brought to a common denominator D, the convex functions ``z_i + D`` are written out, and their
maximum M is one new convex function: the result is ``M - D``. This is the usual proof that ReLU networks
are tropical rational maps, with shared parts cancelled instead of multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.constructions.lowering._maxima import Maximum, Term, maximum, weighted_sum
from hardmax.exact.rationals import rational
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph


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

"""What weights alone say of the options of a choice, whatever the cell: which are one function, and which others imply.

What a linear map makes of one vector are affine functions of it, so that the weights tell. For verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph


def _made(graph: Graph, node: int) -> tuple[FloatArray, IntArray, IntArray] | None:
    """What makes the options of a node's choices: weights with their bias, and for each option the number of the vector
    and of the weights' row; None where it is no linear map."""
    (value,) = graph.nodes[node].inputs
    n = prod(graph.shape_of(value))
    while value > 0 and isinstance(graph.nodes[value - 1].operation, op.Reshape):
        (value,) = graph.nodes[value - 1].inputs
    source = graph.nodes[value - 1].operation if value > 0 else None
    if not isinstance(source, op.Linear):
        return None
    bias = np.zeros(len(source.weight)) if source.bias is None else source.bias
    weight = np.column_stack([source.weight, bias]) + 0.0  # zeros without a sign
    return weight, *np.divmod(np.arange(n), len(weight))


def first_alike(graph: Graph, node: int) -> IntArray:
    """For each option of a node's choices the first of the same choice, or of all where choices are by sign, that the
    same weights make from the same vector: the same function, along whatever label."""
    shape = graph.shape_of(graph.nodes[node].inputs[0])
    n, made = prod(shape), _made(graph, node)
    if made is None:
        return np.arange(n)
    weight, vector, row = made
    first: dict[bytes, int] = {}
    same = [first.setdefault(numbers.tobytes(), k) for k, numbers in enumerate(weight)]
    if len(first) == len(weight):
        return np.arange(n)
    size = n if isinstance(graph.nodes[node].operation, op.Relu) else shape[-1]
    numbers = np.stack([np.arange(n) // size, vector, np.array(same)[row]])
    _, at, alike = np.unique(numbers, axis=1, return_index=True, return_inverse=True)
    return np.asarray(at[alike.reshape(-1)])


def is_implied(graph: Graph, node: int, own: int, rival: int, others: Sequence[int]) -> bool:
    """Whether an option's lead over a rival is a sum of its leads over others, times numbers that are not negative: by
    weights, in rationals, where one vector makes them all (lemma "options by weights")."""
    made = _made(graph, node)
    if made is None:
        return False
    weight, vector, row = made
    others = [k for k in others if vector[k] == vector[own]]
    if vector[rival] != vector[own] or not others:
        return False
    ours, *rows = ([fraction(x) for x in weight[row[k]].tolist()] for k in (own, rival, *others))
    lead, *leads = ([x - y for x, y in zip(ours, other, strict=True)] for other in rows)
    found = exact_interior_point([lead, *([-x for x in other] for other in leads)], [fraction(0)] * len(rows))
    # multipliers of rows that cancel; where that of the rival's is zero they say nothing of it
    return found.exact_certificate is not None and found.exact_certificate[0] > 0

"""Attention that weighs several keys, built of the operations there are.

*Top-k*: the k largest scores, of equal ones the first. A set S of k keys wins where its sum of scores is the largest of
all such sums, so the choice is one Hardmax over sums of k scores, the sets in lexicographic order: with that order the
first of several maxima is the set of the first indices. For k = 1 it is the Hardmax of the scores itself. At a positive
temperature sets are weighed by the softmax of their sums, so a key has the weight of the sets that hold it.

*Sparsemax*: ``w = max(z - t, 0)`` with the t that makes the weights sum to one, which is the largest of
``(sum_S z - 1) / |S|`` over the nonempty sets S of keys: ``sum_S (z - t) <= sum max(z - t, 0) = 1`` for any S, with
equality at the support. One maximum of affine functions and a ReLU; smaller sets come first, so that the label of the
maximum is the support. All is multiplied by the least common multiple of the sizes, so that no weight is rounded.

*Ranks*: the j-th largest entry and which one it is, for files that use the order: after each choice the chosen entry is
taken out and the others move up.

*In floats* sums of scores of several sizes round, and would choose wrongly. Evaluation therefore asks ``stand_ins``
what to hand to the first operations of these compositions in place of the scores. To a choice between all sets of k:
their ranks, since the sets with the largest sum of f(score) are the same for every increasing f (they hold every score
above the k-th largest, and fill up with equals of it), and integers do not round. To sparsemax: how far each score lies
below the largest, but at most 2, since a number added to all scores changes no weight, and an entry that lies 1 or more
below the largest has none. Sums then have terms of one sign and size.
"""

from __future__ import annotations

from enum import Enum
from itertools import combinations
from math import comb, lcm
from weakref import WeakKeyDictionary

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exactness import FloatArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder

#: The most sets of keys that one choice is between; each is a row that every cell is compared by.
MOST_SETS = 1 << 14
#: The most entries that are ranked: taking one out is a matrix for each.
MOST_RANKED = 128


def sets_of(n: int, sizes: range) -> FloatArray:
    """The sets of these sizes of n keys as rows of zeros and ones, small sets first, else in lexicographic order."""
    count = sum(comb(n, size) for size in sizes)
    if count > MOST_SETS:
        raise ParameterError(
            f"a choice between {count:,} sets of {n} keys; expected at most {MOST_SETS:,}. Take fewer keys; for one "
            "head by itself, hm.power_diagram(keys).order(k) finds the sets that win without listing all"
        )
    rows = np.zeros((count, n))
    places = (subset for size in sizes for subset in combinations(range(n), size))
    for row, subset in enumerate(places):
        rows[row, list(subset)] = 1.0
    return rows


def add_top(builder: GraphBuilder, scores: int, k: int, name: str, always_hard: bool = False) -> int:
    """Append the choice of the k largest over the last axis: a value with ones there, zeros elsewhere."""
    n = builder.shape_of(scores)[-1]
    if k == 1:
        return builder.add(op.Hardmax(always_hard), scores, name=name)
    sets = op.frozen(sets_of(n, range(k, k + 1)))
    sums = builder.add(op.Linear(sets), scores, name=f"{name} sums of {k}")
    chosen = builder.add(op.Hardmax(always_hard), sums, name=name)
    return builder.add(op.Linear(op.frozen(sets.T)), chosen, name=name)


def add_sparsemax(builder: GraphBuilder, scores: int, name: str) -> int:
    """Append the sparsemax over the last axis."""
    *lead, n = builder.shape_of(scores)
    sets = sets_of(n, range(1, n + 1))
    common = lcm(*range(1, n + 1))
    shares = common / sets.sum(axis=1)  # integers
    thresholds = builder.add(op.Linear(op.frozen(sets * shares[:, None]), op.frozen(-shares)), scores, name=name)
    largest = builder.add(op.MaxLast(), thresholds, name=f"{name} support")
    column = builder.add(op.Reshape((*lead, 1)), largest, name=name)
    lowered = builder.add(op.Linear(op.frozen(-np.ones((n, 1)))), column, name=name)
    raised = builder.add(op.Scale(op.frozen(float(common))), scores, name=name)
    above = builder.add(op.Add(), raised, lowered, name=name)
    return builder.add(op.Reduce((), True, common), builder.add(op.Relu(), above, name=name), name=name)


def add_ranks(builder: GraphBuilder, scores: int, k: int, name: str) -> tuple[int, int]:
    """Append the k largest entries of the last axis in descending order: values (..., k), one-hot rows (..., k, n)."""
    *lead, n = builder.shape_of(scores)
    rank = len(lead)
    if k > 1 and n > MOST_RANKED:
        raise ParameterError(f"the order of the {k} largest of {n} entries; expected at most {MOST_RANKED} entries")
    turn = op.Transpose((*range(rank), rank + 1, rank))
    rows = builder.add(op.Reshape((*lead, 1, n)), scores, name=name)  # the entries that are left
    back = None  # (..., left, n): where they stood
    values, hot = [], []
    for left in range(n, n - k, -1):
        best = builder.add(op.Hardmax(always_hard=True), rows, name=f"{name} rank {n - left}")
        values.append(builder.add(op.MatMul(), best, builder.add(turn, rows, name=name), name=name))
        hot.append(best if back is None else builder.add(op.MatMul(), best, back, name=name))
        if left == n - k + 1:
            break
        others = np.array([np.delete(np.eye(left), j, axis=0).reshape(-1) for j in range(left)]).T
        flat = builder.add(op.Linear(op.frozen(others)), best, name=name)
        keep = builder.add(op.Reshape((*lead, left - 1, left)), flat, name=name)
        rows = builder.add(op.MatMul(), rows, builder.add(turn, keep, name=name), name=name)
        back = keep if back is None else builder.add(op.MatMul(), keep, back, name=name)
    joined = values[0] if k == 1 else builder.add(op.Concat(rank + 1), *values, name=name)
    stacked = hot[0] if k == 1 else builder.add(op.Concat(rank), *hot, name=name)
    return builder.add(op.Reshape((*lead, k)), joined, name=name), stacked


class StandIn(Enum):
    """What floats hand to an operation instead of its operand, row by row of the last axis."""

    RANKS = "how many different entries of the row are smaller"
    BELOW = "the entry minus the largest of the row, at least -2"


_FOUND: WeakKeyDictionary[Graph, tuple[dict[int, tuple[int, ...]], list[int]]] = WeakKeyDictionary()


def stand_ins(graph: Graph, temperature: float) -> dict[int, StandIn]:
    """By node: where floats compute a composition of this module from other numbers than its scores, with one result.

    Compositions are found by their weights, so those that come from files are found, too.
    """
    if graph not in _FOUND:
        _FOUND[graph] = _set_sums(graph), _thresholds(graph)
    sums, thresholds = _FOUND[graph]
    found = dict.fromkeys(thresholds, StandIn.BELOW)
    for index, choices in sums.items():
        operations = [graph.nodes[choice].operation for choice in choices]
        if temperature == 0 or all(isinstance(one, op.Hardmax) and one.always_hard for one in operations):
            found[index] = StandIn.RANKS
    return found


def _set_sums(graph: Graph) -> dict[int, tuple[int, ...]]:
    """The nodes that add up all sets of one size, with the nodes that choose between them and alone read them."""
    found = {}
    for index, node in enumerate(graph.nodes):
        operation, after = node.operation, graph.readers[index + 1]
        if not isinstance(operation, op.Linear) or operation.bias is not None or not after:
            continue
        if all(isinstance(graph.nodes[reader].operation, op.Hardmax) for reader in after):
            sizes = {int(size) for size in operation.weight.sum(axis=1).tolist()}
            if len(sizes) == 1 and _are_all_sets(operation.weight, range(min(sizes), min(sizes) + 1)):
                found[index] = after
    return found


def _thresholds(graph: Graph) -> list[int]:
    """The first nodes of every sparsemax: those that make its thresholds, and those that raise its scores to them."""
    found = []
    for index, node in enumerate(graph.nodes):
        if not isinstance(node.operation, op.Linear) or node.operation.bias is None:
            continue
        (scores,), weight, shares = node.inputs, node.operation.weight, -node.operation.bias
        chain: list[int] = []
        value = index + 1
        while len(chain) < 4 and len(graph.readers[value]) == 1:
            chain.append(graph.readers[value][0])
            value = chain[-1] + 1
        kinds = [type(graph.nodes[step].operation) for step in chain]
        if kinds != [op.MaxLast, op.Reshape, op.Linear, op.Add] or not (shares > 0).all():
            continue
        lowered, common = graph.nodes[chain[2]].operation, lcm(*range(1, weight.shape[1] + 1))
        raised = sum(graph.nodes[chain[3]].inputs) - (chain[2] + 1)  # the other operand of the sum
        before = graph.nodes[raised - 1]
        if (
            raised > 0
            and isinstance(before.operation, op.Scale)
            and before.inputs == (scores,)
            and graph.readers[raised] == (chain[3],)
            and (before.operation.factor == common).all()
            and isinstance(lowered, op.Linear)
            and lowered.bias is None
            and (lowered.weight == -1).all()
            and _are_all_sets(weight / shares[:, None], range(1, weight.shape[1] + 1))
            and (shares * np.count_nonzero(weight, axis=1) == common).all()
        ):
            found += [index, raised - 1]
    return found


def _are_all_sets(rows: FloatArray, sizes: range) -> bool:
    """Whether the rows are the sets of these sizes, each once, as zeros and ones."""
    count, n = rows.shape
    if sizes.start < 1 or sizes.stop - 1 > n or count != sum(comb(n, size) for size in sizes):
        return False
    is_binary = bool(((rows == 0) | (rows == 1)).all() and np.isin(rows.sum(axis=1), list(sizes)).all())
    return is_binary and len(np.unique(rows, axis=0)) == count

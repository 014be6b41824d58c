"""The weights that a model computes by itself, and how far captured ones are from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.networks import evaluation
from hardmax.networks import operations as op


def node_weights(net: hm.Network, x: Any) -> list[Any]:
    """The weights of every attention node on one input, by running the graph node by node."""
    values, found = [np.asarray(x, dtype=np.float64)[None]], []
    for node in net.graph.nodes:
        operands = [values[value] for value in node.inputs]
        if isinstance(node.operation, op.Hardmax) and net.temperature > 0:
            values.append(evaluation.softmax(operands[0], net.temperature))
        else:
            values.append(evaluation.apply(node.operation, *operands))
        if isinstance(node.operation, op.Hardmax):
            found.append(values[-1][0])
    return found


def worst_difference(capture: Any, weights_of: Callable[[int, int], Any]) -> float:
    """The largest difference between captured weights and ``weights_of(layer, head)``, over all heads."""
    return max(
        float(np.abs(head.weights - np.asarray(weights_of(head.layer, head.head))).max()) for head in capture.heads
    )

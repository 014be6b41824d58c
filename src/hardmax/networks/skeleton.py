"""The zero-temperature network behind a trained one, with a list of what was changed."""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import NotPiecewiseAffineError, PrecisionError
from hardmax.exactness import FloatArray
from hardmax.networks import evaluation
from hardmax.networks import operations as op
from hardmax.networks.files.formats import read
from hardmax.networks.files.onnx.patterns import maxima_first
from hardmax.networks.graph import Graph, GraphBuilder, Node
from hardmax.networks.network import Network, check_network, one_input

#: Smooth activations whose zero-temperature limit, f(z / t) t as t -> 0, is the ReLU.
_TO_RELU = {"gelu": "GELU", "gelu_tanh": "GELU (tanh form)", "silu": "SiLU"}


def skeleton(source: Network | str | os.PathLike[str], *, reference: ArrayLike | None = None) -> Network:
    """The network at temperature zero, piecewise affine where that is possible; ``.changes`` says how.

    Softmax becomes Hardmax, GELU and SiLU become ReLU (each the limit ``t f(z / t)`` as t -> 0). Batch
    normalisation is affine and was folded when the file was read, which is listed too. LayerNorm and RMSNorm
    divide by a standard deviation that depends on the input. With a ``reference`` input that divisor is
    frozen at its value there, so that the skeleton agrees at the reference with the hard network whose
    norms are live; without one they are kept, and the network can be evaluated but has no cells.

    Where a file takes a maximum of ReLUs (MaxPool after ReLU), reading it takes the maximum first: the function is
    the same, max(relu(a), relu(b)) = relu(max(a, b)), and a label holds the winner before the ReLU and one bit a
    window, in place of one bit an entry and the first of the largest. That is listed too.

    Parameters
    ----------
    source
        A network, or the path of a file that ``hm.read`` reads.
    reference
        One input, of the network's input shape.

    Raises
    ------
    NotPiecewiseAffineError
        Another smooth operation (tanh, sigmoid, exp, ...) that has no such limit.

    Exactness: exact, but for frozen divisors, which are rounded to float64.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> soft = Network([Attention([head])], input_dim=1, temperature=1.0)
    >>> hard = skeleton(soft)
    >>> hard([0.25]).tolist(), hard.changes
    ([5.0], ('Softmax at layer 0 Attention head 0 became Hardmax: its limit at temperature zero',))

    A network without attention or smooth operations is its own skeleton:

    >>> skeleton(Network([Affine([[2.0]])], input_dim=1)).changes
    ()
    """
    net = _network(source)
    graph = net.graph
    idle = _increasing(graph)
    _refuse_other_smooth(graph, idle)
    work = _Work(graph, net.temperature, None if reference is None else one_input(net, reference, "reference"))
    for value, node in enumerate(graph.nodes, start=1):
        if value in idle:
            work.leave_out(node, idle[value])
        else:
            work.visit(node)
    work.changes.extend(net.changes)  # what reading the file changed
    if work.kept_all:
        return Network.from_graph(graph, 0.0, work.changes, net.layers)
    hard, moved = maxima_first(work.builder.build(work.renumbered[-1]))
    return Network.from_graph(hard, 0.0, [*work.changes, *moved])


class _Work:
    """The skeleton so far: its graph, and what it computes at the reference where there is one."""

    def __init__(self, graph: Graph, temperature: float, reference: FloatArray | None) -> None:
        self.builder = GraphBuilder(graph.input_shape)
        self.temperature = temperature
        self.renumbered = [0]
        self.changes: list[str] = []
        self.kept_all = True
        self._at_reference = [] if reference is None else [reference[None]]

    def add(self, operation: op.Operation, *inputs: int, name: str) -> int:
        made = self.builder.add(operation, *inputs, name=name)
        if self._at_reference:
            operands = [self._at_reference[value] for value in inputs]
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused where it is used
                self._at_reference.append(evaluation.apply(operation, *operands))
        return made

    def leave_out(self, node: Node, why: str) -> None:
        """Pass an increasing function by."""
        self.changes.append(f"{node.operation.name} at {node.name} was left out: it is increasing, and {why}")
        self.renumbered.append(self.renumbered[node.inputs[0]])
        self.kept_all = False

    def visit(self, node: Node) -> None:
        """Append what stands for one node of the original."""
        inputs = [self.renumbered[value] for value in node.inputs]
        operation = node.operation
        if isinstance(operation, op.Normalize):
            self.renumbered.append(self._normalize(operation, inputs[0], node.name))
            return
        if isinstance(operation, op.Hardmax) and self.temperature > 0 and not operation.always_hard:
            change = f"Softmax at {node.name} became Hardmax: its limit at temperature zero"
            if change not in self.changes:  # a masked one is several nodes of one name
                self.changes.append(change)
        if isinstance(operation, op.Pointwise):
            what = _TO_RELU[operation.kind]
            self.changes.append(f"{what} at {node.name} became ReLU: its limit at temperature zero")
            operation, self.kept_all = op.Relu(), False
        self.renumbered.append(self.add(operation, *inputs, name=node.name))

    def _normalize(self, operation: op.Normalize, x: int, name: str) -> int:
        if not self._at_reference:
            self.changes.append(
                f"{operation.name} at {name} was kept: it divides by a norm of its input, so the network can "
                "be evaluated but has no cells; pass reference= to freeze the divisor"
            )
            return self.add(operation, x, name=name)
        self.changes.append(
            f"{operation.name} at {name} was frozen: its divisor is the one at the reference input, which "
            "makes it affine"
        )
        self.kept_all = False
        if operation.centred:  # subtracting the mean is linear and stays live
            shape = self.builder.shape_of(x)
            mean = self.add(op.Reduce((len(shape) - 1,), True, shape[-1]), x, name=name)
            x = self.add(op.Add(), x, self.add(op.Scale(op.frozen(-1.0)), mean, name=name), name=name)
        deviation = self._at_reference[x]
        with np.errstate(divide="ignore", over="ignore"):
            squares = np.mean(deviation * deviation, axis=-1, keepdims=True)[0]
            factor = 1.0 / np.sqrt(squares + operation.epsilon)
        if not (np.isfinite(factor).all() and (factor > 0).all()):
            raise PrecisionError(
                f"{name}: {operation.name} divides by zero or overflows at the reference input; choose another"
            )
        return self.add(op.Scale(op.frozen(factor)), x, name=name)


def _network(source: Network | str | os.PathLike[str]) -> Network:
    if isinstance(source, str | os.PathLike):
        return read(source)
    check_network(source, "expected a network or the path of a file")
    return source


#: Why an increasing function may be left out, by where its values end.
_ENDS = {
    op.Hardmax: "only which score is the largest counts",
    None: "it stands at the end: outputs are those before it, in the same order",
}
_ARRANGE = (op.Reshape, op.Transpose, op.Take)


def _increasing(graph: Graph) -> dict[int, str]:
    """The values of tanh and sigmoid that only attention scores, or only outputs, are made of, with the reason.

    Between them and the choice, or the end, entries are arranged anew or scaled by positive numbers: one for all scores
    of a row, for outputs any.
    """

    def ends(value: int, is_even: bool) -> set[type[op.Operation] | str | None]:
        """What follows: a choice among scores, the end of the network (None), or ``"other"``."""
        found: set[type[op.Operation] | str | None] = set() if graph.readers[value] else {None}
        for index in graph.readers[value]:
            operation, user = graph.nodes[index].operation, index + 1
            if isinstance(operation, op.Hardmax):
                found.add(op.Hardmax if is_even else "other")
            elif isinstance(operation, op.Scale) and (operation.factor > 0).all():
                found |= ends(user, is_even and operation.factor.size == 1)
            else:
                found |= ends(user, is_even) if isinstance(operation, _ARRANGE) else {"other"}
        return found

    result = {}
    for value, node in enumerate(graph.nodes, start=1):
        if isinstance(node.operation, op.Pointwise) and node.operation.kind in ("tanh", "sigmoid"):
            found = ends(value, True)
            if len(found) == 1 and (end := next(iter(found))) in _ENDS:
                result[value] = _ENDS[end]
    return result


def _refuse_other_smooth(graph: Graph, idle: Collection[int]) -> None:
    found = [
        f"{node.operation.name} at {node.name}"
        for value, node in enumerate(graph.nodes, start=1)
        if isinstance(node.operation, op.Pointwise) and node.operation.kind not in _TO_RELU and value not in idle
    ]
    if found:
        raise NotPiecewiseAffineError(
            f"no zero-temperature limit is known for {', '.join(found[:5])}"
            f"{' and more' if len(found) > 5 else ''}; Softmax, GELU and SiLU have one. Replace the "
            "operation in "
            "the model, or cut the model off before it."
        )

"""``decisions``: a network followed by the argmax of its outputs."""

from __future__ import annotations

from math import prod

from hardmax.errors import ParameterError
from hardmax.exact.rationals import as_float
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.network import Network, check_network

#: The name of the operation that decides.
DECISION = "decision"


def decisions(net: Network, *, level: float = 0.0) -> Network:
    """The network and the argmax of its outputs: one-hot, the last choice of every label is the class.

    Ties go to the lowest index. A network with one output decides by ``level``: class 1 where the output is above it,
    class 0 elsewhere. On cells of the result ``cells.decision`` is each cell's class, ``cells.n_regions`` counts the
    connected pieces of all classes, and ``cells.boundary`` and ``cells.betti(k)`` follow.

    Exactness: exact; nothing is rounded but by the network itself.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine
    >>> net = decisions(Network([Affine([[1.0], [-1.0], [0.0]], [0.0, 0.0, 1.0])], 1))
    >>> net([[3.0], [-3.0], [0.5]]).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    >>> decisions(Network([Affine([[1.0]])], 1), level=2.0).labels([[3.0], [2.0]]).tolist()
    [[1], [0]]
    """
    check_network(net)
    n = prod(net.output_shape)
    level = as_float("level", level, "what the output is compared with")
    if n > 1 and level != 0:
        raise ParameterError(f"level: expected none for a network with {n} outputs, which are compared, got {level}")
    builder = GraphBuilder(net.input_shape)
    value = builder.copy(net.graph)[-1]
    if net.output_shape != (n,):
        value = builder.add(op.Reshape((n,)), value, name="outputs")
    if n == 1:
        value = builder.add(op.Linear(op.frozen([[0.0], [1.0]]), op.frozen([level, 0.0])), value, name="level")
    value = builder.add(op.Hardmax(always_hard=True), value, name=DECISION)
    return Network.from_graph(builder.build(value), net.temperature, net.changes)


def deciding_network(net: Network, level: float) -> Network:
    """A network that ends in a decision: itself where it does, without a level then, else that of ``decisions``."""
    if not isinstance(net, Network) or not decides(net.graph):
        return decisions(net, level=level)
    if as_float("level", level, "what the output is compared with") != 0:
        raise ParameterError(f"level: expected none for a network that ends in a decision already, got {level}")
    return net


def decides(graph: Graph) -> bool:
    """Whether a graph ends in an argmax of a vector, so that the last choice of a label is a class."""
    last = graph.nodes[-1] if graph.nodes else None
    return last is not None and isinstance(last.operation, op.Hardmax) and len(last.shape) == 1

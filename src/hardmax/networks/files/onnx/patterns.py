"""Normalisations and activations that exporters spell out, put back into one operation each.

Old opsets have no LayerNormalization or Gelu, so a file holds the formula. One operation instead of
eight keeps evaluation close to the original and lets ``hm.skeleton`` treat it by name. Both are recognised by
their structure. An activation is a polynomial in its input x and one of erf, tanh and sigmoid of a polynomial
in x; it is the known function if every coefficient is the known one: exactly for 1/2 and 1, within 1e-6 for
1/sqrt(2), sqrt(2/pi) and 0.044715, which files hold in float32. Since x^2 erf'(x) and x^2 tanh'(x) stay below
one, the two functions then differ by less than 1e-6 everywhere.

A maximum of activations is taken before them: max(relu(a), relu(b)) = relu(max(a, b)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import pi, sqrt
from typing import TypeVar

from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder, Node

_Kind = TypeVar("_Kind", bound=op.Operation)
#: Powers of x and of the inner function -> coefficient.
Polynomial = dict[tuple[int, int], float]

_CLOSE = 1e-6  # float32 constants such as 1/sqrt(2) are off by 1e-8
_HALVES: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}  # x (1 + f) / 2
#: kind -> (the function inside, its argument, the polynomial around it)
_ACTIVATIONS: dict[str, tuple[str, Polynomial, Polynomial]] = {
    "gelu": ("erf", {(1, 0): sqrt(0.5)}, _HALVES),
    "gelu_tanh": ("tanh", {(1, 0): sqrt(2 / pi), (3, 0): 0.044715 * sqrt(2 / pi)}, _HALVES),
    "silu": ("sigmoid", {(1, 0): 1.0}, {(1, 1): 1.0}),
}
_SEEDS = tuple(inner for inner, _, _ in _ACTIVATIONS.values())
_DEEPEST = 12  # nodes between an activation's input and output; tanh-GELU has nine
_TERMS, _DEGREE = 8, 4  # a polynomial beyond these is none of the known ones


def fuse_patterns(graph: Graph, tick: Callable[[], None] = lambda: None) -> Graph:
    """The graph with spelled-out LayerNorm, RMSNorm, GELU and SiLU as single operations.

    ``tick`` is called once a candidate, and may raise.
    """
    replacements: dict[int, tuple[op.Operation, int]] = {}
    for value, node in enumerate(graph.nodes, 1):
        found = _normalization(graph, node)
        if found is not None:
            replacements[value] = found
    for value, node in enumerate(graph.nodes, 1):
        if isinstance(node.operation, op.Pointwise) and node.operation.kind in _SEEDS:
            tick()
            match = _activation(graph, value)
            if match is not None:
                replacements[match[0]] = (match[1], match[2])
    if not replacements:
        return graph
    builder = GraphBuilder(graph.input_shape)

    def fused(index: int, node: Node, made: list[int]) -> int | None:
        operation, source = replacements.get(index + 1, (None, 0))
        return None if operation is None else builder.add(operation, made[source], name=node.name)

    return builder.build(builder.copy(graph, fused)[-1])


def _made_by(graph: Graph, value: int, kind: type[_Kind]) -> tuple[_Kind, tuple[int, ...]] | None:
    """The operation that made a value and what it read, where it is of this kind."""
    node = graph.nodes[value - 1] if value > 0 else None
    return (node.operation, node.inputs) if node is not None and isinstance(node.operation, kind) else None


def _pointwise_of(graph: Graph, value: int, kind: str) -> int | None:
    """The operand of a pointwise function of this kind."""
    made = _made_by(graph, value, op.Pointwise)
    return made[1][0] if made is not None and made[0].kind == kind else None


def _mean_of(graph: Graph, value: int) -> int | None:
    """What ``value`` is the kept mean over the last axis of."""
    made = _made_by(graph, value, op.Reduce)
    if made is None:
        return None
    reduce, (source,) = made
    shape = graph.shape_of(source)
    return source if reduce.axes == (len(shape) - 1,) and reduce.divisor == shape[-1] and reduce.keep else None


def _normalization(graph: Graph, node: Node) -> tuple[op.Operation, int] | None:
    """``d / sqrt(mean(d^2) + epsilon)``, with ``d = x - mean(x)`` or any other ``d``."""
    if not isinstance(node.operation, op.Multiply):
        return None
    for deviation, inverse in (node.inputs, node.inputs[::-1]):
        root = _pointwise_of(graph, inverse, "reciprocal")
        shifted = None if root is None else _pointwise_of(graph, root, "sqrt")
        made = None if shifted is None else _made_by(graph, shifted, op.Shift)
        if shifted is None or made is None or made[0].constant.size != 1:
            continue
        shift, (mean,) = made
        squares = _mean_of(graph, mean)
        if squares is None or _square_of(graph, squares) != deviation:
            continue
        if node.shape != graph.shape_of(deviation) or graph.shape_of(shifted) != graph.shape_of(mean):
            continue  # a constant of higher rank repeats the result
        epsilon = float(shift.constant.reshape(())[()])
        source = _centred(graph, deviation)
        if source is None:
            return op.Normalize(epsilon, centred=False), deviation
        return op.Normalize(epsilon, centred=True), source
    return None


def _square_of(graph: Graph, value: int) -> int | None:
    product = _made_by(graph, value, op.Multiply)
    if product is not None and product[1][0] == product[1][1]:
        return product[1][0]
    return _pointwise_of(graph, value, "square")


def _centred(graph: Graph, value: int) -> int | None:
    """x where ``value`` is ``x - mean(x)``."""
    total = _made_by(graph, value, op.Add)
    if total is None:
        return None
    for x, negative in (total[1], total[1][::-1]):
        scale = _made_by(graph, negative, op.Scale)
        is_mean = scale is not None and (scale[0].factor == -1).all() and _mean_of(graph, scale[1][0]) == x
        if is_mean and graph.shape_of(x) == graph.shape_of(value):
            return x
    return None


# --- activations ----------------------------------------------------------------------------------


def _users(graph: Graph, value: int) -> list[int]:
    """The values that are made of this one."""
    return [index + 1 for index in graph.readers[value]]


def _scalar(graph: Graph, value: int) -> bool:
    """Whether the value is made entry by entry, by the same function of each."""
    if value == 0:
        return False
    node = graph.nodes[value - 1]
    operation = node.operation
    if isinstance(operation, op.Scale):
        constants = operation.factor.size
    elif isinstance(operation, op.Shift):
        constants = operation.constant.size
    elif isinstance(operation, op.Pointwise | op.Multiply | op.Add | op.Reduce):
        constants = 1
    else:
        return False
    return constants == 1 and all(graph.shape_of(source) == node.shape for source in node.inputs)


def _activation(graph: Graph, seed: int) -> tuple[int, op.Pointwise, int] | None:
    """(output, activation, input) of the largest known activation around a seed function."""
    node = graph.nodes[seed - 1]
    assert isinstance(node.operation, op.Pointwise)
    for source in [node.inputs[0], *_walk(lambda v: graph.nodes[v - 1].inputs if _scalar(graph, v) else (), seed)]:
        argument = _polynomial(graph, node.inputs[0], {source: (1, 0)})
        for kind, (inner, expected, around) in _ACTIVATIONS.items():
            if inner != node.operation.kind or not _agree(argument, expected):
                continue
            outputs = list(_walk(lambda value: [user for user in _users(graph, value) if _scalar(graph, user)], seed))
            for output in sorted(outputs, reverse=True):
                if _polynomial(graph, output, {source: (1, 0), seed: (0, 1)}) == around:
                    return output, op.Pointwise(kind), source
    return None


def _agree(found: Polynomial | None, expected: Polynomial) -> bool:
    """The same powers with coefficients that differ by no more than what float32 constants do; 1 is exact."""
    if found is None or found.keys() != expected.keys():
        return False
    return all(
        found[power] == c or (c != 1.0 and abs(found[power] - c) <= _CLOSE * abs(c)) for power, c in expected.items()
    )


def _polynomial(graph: Graph, value: int, atoms: dict[int, tuple[int, int]]) -> Polynomial | None:
    """The value as a polynomial in the atoms; None where it is made of anything else, or too large."""
    known: dict[int, Polynomial | None] = {atom: {power: 1.0} for atom, power in atoms.items()}

    def of(v: int, depth: int) -> Polynomial | None:
        if v not in known:
            node = graph.nodes[v - 1] if v > 0 and depth and _scalar(graph, v) else None
            other = node is None or (isinstance(node.operation, op.Pointwise) and node.operation.kind != "square")
            parts = [] if node is None or other else [of(i, depth - 1) for i in node.inputs]
            known[v] = None if node is None or not parts or None in parts else _combined(node.operation, parts)
        return known[v]

    return of(value, _DEEPEST)


def _combined(operation: op.Operation, parts: list[Polynomial | None]) -> Polynomial | None:
    first, last = parts[0], parts[-1]
    assert first is not None and last is not None
    if isinstance(operation, op.Scale):
        result = {power: c * float(operation.factor.reshape(())) for power, c in first.items()}
    elif isinstance(operation, op.Reduce):  # without axes, since it keeps its shape
        result = {power: c / operation.divisor for power, c in first.items()}
    elif isinstance(operation, op.Shift):
        result = {**first, (0, 0): first.get((0, 0), 0.0) + float(operation.constant.reshape(()))}
    elif isinstance(operation, op.Add):
        result = {power: first.get(power, 0.0) + last.get(power, 0.0) for power in {**first, **last}}
    else:  # a product, or the square of one operand
        result = {}
        for (i, j), c in first.items():
            for (k, m), d in last.items():
                result[i + k, j + m] = result.get((i + k, j + m), 0.0) + c * d
    result = {power: c for power, c in result.items() if c}
    return result if len(result) <= _TERMS and all(sum(power) <= _DEGREE for power in result) else None


def _walk(step: Callable[[int], Iterable[int]], start: int) -> Iterator[int]:
    """Values reached from ``start`` (left out), at most ``_DEEPEST`` of them."""
    seen, frontier = {start}, [start]
    while frontier and len(seen) <= _DEEPEST:
        for value in step(frontier.pop(0)):
            if value not in seen:
                seen.add(value)
                frontier.append(value)
                yield value


# --- maxima before activations ---------------------------------------------------------------------

_MOVES = (op.Take, op.Reshape, op.Transpose, op.Concat)


def maxima_first(graph: Graph, tick: Callable[[], None] = lambda: None) -> tuple[Graph, list[str]]:
    """The graph with each maximum taken before the monotone activation that all its entries have, and a list of these.

    For a nondecreasing function f of one number, max_i f(z_i) = f(max_i z_i), in floats as well: the same
    network with fewer choices. ReLU after MaxPool asks one question a window; before it, one an entry, and then
    which of several zeros is the largest. ``f`` may be any chain of ReLUs with slopes >= 0 and of clips at one number.

    A label then holds the winner before the activation, and one bit a window for the activation.
    """
    changes: list[str] = []
    while True:
        tick()
        found = {
            value: peeled
            for value, node in enumerate(graph.nodes, 1)
            if isinstance(node.operation, op.MaxLast) and (peeled := _peeled(graph, value)) is not None
        }
        if not found:
            return graph, changes
        for value, (chain, _) in found.items():
            what = "ReLU" if all(isinstance(node.operation, op.Relu) for node in chain) else "activation"
            names = dict.fromkeys(node.name for node in chain)
            changes.append(
                f"the maximum at {graph.nodes[value - 1].name} was moved before the {what} at {' and '.join(names)}: "
                f"the function is the same, and its label names the winner before the {what}"
            )
        graph = _with_maxima_first(graph, found)


Peeled = tuple[list[Node], tuple[int, ...]]  # the chain in order of application, and the values it is applied to


def _peeled(graph: Graph, maximum: int) -> Peeled | None:
    """The monotone chain that all entries of a maximum went through last; None where there is none.

    Only what the maximum alone reads is taken off: a ReLU that others read as well has to be there anyway.
    """
    inside, leaves = {maximum}, set(graph.nodes[maximum - 1].inputs)
    chain: list[Node] = []
    while True:
        moves = [v for v in leaves if v and isinstance(graph.nodes[v - 1].operation, _MOVES)]
        moves = [v for v in moves if inside.issuperset(_users(graph, v))]
        for value in moves:
            inside.add(value)
            leaves.remove(value)
            leaves.update(graph.nodes[value - 1].inputs)
        if moves:
            continue
        nodes = [graph.nodes[v - 1] for v in leaves if v and inside.issuperset(_users(graph, v))]
        if len(nodes) < len(leaves) or not all(_same_monotone(node.operation, nodes[0].operation) for node in nodes):
            return (chain, tuple(leaves)) if chain else None
        inside |= leaves
        leaves = {node.inputs[0] for node in nodes}
        chain.insert(0, nodes[0])


def _same_monotone(one: op.Operation, two: op.Operation) -> bool:
    """Whether two operations apply the same nondecreasing function to every entry."""
    if isinstance(one, op.Relu) and isinstance(two, op.Relu):
        return one.slope == two.slope and one.slope >= 0
    if isinstance(one, op.Clip) and isinstance(two, op.Clip) and one.bound.size == two.bound.size == 1:
        return one.is_ceiling == two.is_ceiling and bool(one.bound.reshape(()) == two.bound.reshape(()))
    return False


def _with_maxima_first(graph: Graph, found: dict[int, Peeled]) -> Graph:
    builder = GraphBuilder(graph.input_shape)

    def moved(value: int, made: dict[int, int]) -> int:
        """The value without the chain between it and the leaves, which are made."""
        if value not in made:
            node = graph.nodes[value - 1]
            inputs = [moved(i, made) for i in node.inputs]
            kept = isinstance(node.operation, _MOVES)
            made[value] = builder.add(node.operation, *inputs, name=node.name) if kept else inputs[0]
        return made[value]

    def first(index: int, node: Node, made: list[int]) -> int | None:
        if index + 1 not in found:
            return None
        chain, leaves = found[index + 1]
        largest = moved(node.inputs[0], {leaf: made[leaf] for leaf in leaves})
        largest = builder.add(node.operation, largest, name=node.name)
        for part in chain:
            # numbers without axes: the maximum may have fewer axes than its entries had
            operation = part.operation.cast(lambda array: op.frozen(array.reshape(())))
            largest = builder.add(operation, largest, name=part.name)
        return largest

    return builder.build(builder.copy(graph, first)[-1])

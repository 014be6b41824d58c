"""What an ONNX file does with the scores of its last layer, told by following every one of them.

Each score has a number, which says its class and its place: the input, token or pixel that it belongs to. What stands
between the layer and an output is carried out on these numbers by onnxruntime, on the sizes that the file declares, or
on small ones that fit where it declares none. So reshapes, selections and axes need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, product
from math import isqrt, prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import HardmaxError
from hardmax.exactness import Array, FloatArray
from hardmax.heads.classes.sources.onnx_features import MOVES, wraps
from hardmax.networks.files.onnx.models import OnnxNode
from hardmax.networks.files.onnx.runtime import run_node

Dims = tuple[int | str | None, ...]
Ids = NDArray[np.int32]

_SAME = {"Identity", "Cast", "CastLike", "Dropout"}
_SELECTIONS = {"Slice", "Gather", "GatherND"}
_SOFT = {"Softmax", "LogSoftmax", "Hardmax"}
_ROUNDED = {"QuantizeLinear", "DequantizeLinear"}
#: What files compute sizes with, from those of other tensors.
_OF_SIZES = {"Gather", "Concat", "Slice", "Squeeze", "Unsqueeze", "Cast", "Identity", "Reshape", "Add", "Sub", "Mul",
             "Div", "ReduceProd"}  # fmt: skip
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
_MOST_SCORES = 1 << 26
_MOST_TRIES = 1000
_LARGE = 1 << 20


class Graph(Protocol):
    """What is asked of a file: its opset, constants, who computes a tensor, and shapes as far as they are known."""

    opset: int
    maker: Mapping[str, OnnxNode]

    @property
    def shapes(self) -> Mapping[str, Dims]: ...

    def constant(self, name: str) -> Array | None: ...


class _RankError(HardmaxError):
    """An axis that scores of this rank do not have."""


@dataclass(frozen=True, eq=False)
class Tail:
    """What became of the scores.

    stray : what orders, takes or divides something else than the classes; empty where nothing does.
    bias : (classes,) what ``sums``, one of them at most, add to each class before anything else changes the scores.
    shifted : a sum that is no such bias.
    """

    stray: str = ""
    bias: FloatArray | None = None
    sums: tuple[OnnxNode, ...] = ()
    shifted: OnnxNode | None = None


def followed(graph: Graph, outputs: Sequence[Dims], axis: int, n: int, nodes: Sequence[OnnxNode]) -> Tail:
    """What ``nodes`` do with scores of ``n`` classes along ``axis``, of a shape that ``outputs`` lists all ranks of."""
    if not nodes:
        return Tail()
    tails, spent, is_open = [], 0, False
    # a Squeeze of all axes of one entry does what sizes tell it
    loose = any(node.op == "Squeeze" and len(node.inputs) < 2 and "axes" not in node.attributes for node in nodes)
    for dims in outputs:
        if not -len(dims) <= axis < len(dims):
            continue  # the file contradicts itself
        is_open = loose
        for sizes, names in _sizes(graph, dims, axis, n, nodes):
            if spent > _MOST_SCORES:
                return Tail(f"more sizes than can be tried, since {nodes[0].inputs[0]!r} has no shape")
            spent += prod(sizes)
            try:
                for turn in count():  # of several sizes that a Reshape may have, each may take what is left
                    scores = _Scores(graph, names, n, axis, sizes, turn)
                    tails.append(scores.through(nodes))
                    if turn + 1 >= scores.turns:
                        break
            except _RankError:
                if loose:
                    continue
                break  # whatever the sizes
            except HardmaxError:  # these sizes do not fit: all of this rank that do have to agree
                is_open = True
                continue
            if not is_open:
                break
    if not tails:
        return Tail("operations that do not fit its sizes")
    doubtful = next((tail for tail in tails if tail.stray or tail.shifted), tails[0])
    if not doubtful.stray or all(tail.stray == doubtful.stray for tail in tails):
        return doubtful
    unknown = f", as far as the file tells: {nodes[0].inputs[0]!r} has no {'shape' if is_open else 'rank'}"
    return replace(doubtful, stray=doubtful.stray + unknown)


def _sizes(
    graph: Graph, dims: Dims, axis: int, n: int, nodes: Sequence[OnnxNode]
) -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    """Sizes that scores of this shape may have, the likeliest first, with what each symbol of the file stands for.

    Sizes that the file leaves open are different primes which divide neither ``n`` nor what its reshapes name, so that
    nothing fits by chance; where that cannot be, 1 or one that they name.
    """
    given = [str(size) if isinstance(size, str) else f"#{k}" if size is None else size for k, size in enumerate(dims)]
    given[axis] = n
    if not any(node.op in MOVES - _SAME for node in nodes) and prod(s for s in given if isinstance(s, int)) > 1 << 22:
        given = [size if k == axis % len(given) else f"#{k}" for k, size in enumerate(given)]
    symbols = list(dict.fromkeys(size for size in given if isinstance(size, str)))
    named: dict[int, None] = {}
    for node in nodes:
        is_sized = node.op in ("Reshape", "Expand")
        for value in _constants_of(graph, node.inputs[1:]) if is_sized else map(graph.constant, node.inputs):
            if value is not None:
                shape = value.reshape(-1) if is_sized else value.shape
                named |= dict.fromkeys(part for size in shape if size > 1 for part in _divisors(int(size)))
    primes = [prime for prime in _PRIMES if n % prime and all(size % prime for size in named)][: len(symbols)]
    primes += [1] * (len(symbols) - len(primes))
    tries = product(*([prime, 1, n, *named] for prime in primes))
    for values in islice(tries, _MOST_TRIES):
        names = dict(zip(symbols, values, strict=True))
        sizes = tuple(names[size] if isinstance(size, str) else size for size in given)
        if prod(sizes) <= _MOST_SCORES:
            yield sizes, names


def _divisors(size: int) -> list[int]:
    """Those above 1, the size itself first; of large sizes it alone."""
    small = range(2, isqrt(size) + 1) if size < _LARGE else ()
    return [size, *(part for k in small if size % k == 0 for part in (k, size // k))]


def _constants_of(graph: Graph, names: Sequence[str]) -> Iterator[Array]:
    """The constants that tensors are, or that sizes are computed with."""
    waiting, seen = list(names), set(names)
    while waiting:
        name = waiting.pop()
        value, node = graph.constant(name), graph.maker.get(name)
        if value is not None:
            yield value
        elif node is not None and node.op in _OF_SIZES:
            waiting += [one for one in node.inputs if one not in seen]
            seen.update(node.inputs)


@dataclass
class _Scores:
    """The numbers of scores on their way: number ``(outer * n + class) * inner + k`` is of place ``(outer, k)``."""

    graph: Graph
    names: Mapping[str, int]
    n: int
    axis: int
    sizes: tuple[int, ...]
    turn: int = 0
    turns: int = field(init=False, default=1)  # how many there are: the most sizes of one Reshape that nothing tells
    ids: Ids = field(init=False)
    inner: int = field(init=False)
    sized: dict[str, Ids] = field(default_factory=dict)  # what was moved, by the names that the file gives it
    plain: bool = True  # nothing was done to scores but moving them
    tail: Tail = field(default_factory=Tail)

    def __post_init__(self) -> None:
        axis = self.axis % len(self.sizes) if len(self.sizes) > 1 else 0
        self.inner = prod(self.sizes[axis + 1 :])
        self.ids = np.arange(prod(self.sizes), dtype=np.int32).reshape(self.sizes)

    def through(self, nodes: Sequence[OnnxNode]) -> Tail:
        """What all nodes do, one after another."""
        if self.ids.size == 0:
            raise HardmaxError("there are no scores")
        for k, node in enumerate(nodes):
            stray, ended = self._step(node)
            if stray or self.tail.shifted is not None:
                return replace(self.tail, stray=stray)
            if ended:
                again = next((other.op for other in nodes[k + 1 :] if other.op in ("ArgMax", "TopK", "Hardmax")), "")
                return replace(self.tail, stray=again and f"{again} behind {node.op}")
        return self.tail

    def _step(self, node: OnnxNode) -> tuple[str, bool]:
        """What a node orders, takes or divides wrongly, and whether no scores of classes are left behind it."""
        if node.op in _SAME:
            return (f"a {node.op} to other numbers than floats" if wraps(node) else ""), False
        if node.op in MOVES:
            was_last = node.op == "Reshape" and self._is_ordered(_along(self.ids, -1))
            moved = self._moved(node)
            if moved is None:
                return f"a {node.op} whose sizes the file does not tell", False
            self.ids = self.sized[node.outputs[0]] = moved
            if was_last and not self._is_ordered(_along(self.ids, -1)):
                return "a Reshape that divides the classes", False
            if node.op in _SELECTIONS and not self._is_whole():
                return f"a {node.op} that takes some of the classes", False
            ordered = was_last or any(self._is_ordered(_along(self.ids, -1 - k)) for k in range(self.ids.ndim))
            return "" if ordered else f"a {node.op} that divides the classes", False
        if self._sum([node]) is not None:
            self._add(node)
            return "", False
        if node.op in ("Add", "Sub", "Mul", "Div"):
            for name in node.inputs:
                if (number := self.graph.constant(name)) is not None:
                    self._spread(number)
            self.plain = self.plain and node.op in ("Add", "Sub")
            return "", False
        self.plain = False
        if node.op == "ReduceMax":
            return "", self._reduced(node)
        if node.op in _ROUNDED:
            given = [self.graph.constant(name) for name in node.inputs[1:] if name]
            own = any(values is not None and (values != values.reshape(-1)[:1]).any() for values in given)
            return (f"a {node.op} with scales of their own" if own else ""), False
        if node.op in _SOFT:
            wrong = not self._is_together(self._soft_rows(node))
        elif node.op in ("ArgMax", "TopK"):
            if node.attributes.get("largest", 1) == 0:
                return "a TopK of the smallest", False
            axis = int(node.attributes.get("axis", 0 if node.op == "ArgMax" else -1))
            wrong = not self._is_ordered(_along(self.ids, axis))
        else:
            wrong = False
        words = f"{node.op} along another axis than that of the classes" if wrong else ""
        return words, node.op in ("ArgMax", "TopK")

    def _moved(self, node: OnnxNode) -> Ids | None:
        """What onnxruntime makes of the numbers; operands that are computed are replaced by such as fit.

        None where an operand is computed and nothing tells what fits.
        """
        operands: list[Array | None] = [self.ids]
        for place, name in enumerate(node.inputs[1:], start=1):
            value = self._value(name) if name else None
            operands.append(value if value is not None or not name else self._stand_in(node, place))
            if name and operands[-1] is None:
                return None
        found: Ids = run_node(node, operands, self.graph.opset)[0]
        if found.size == 0:
            raise HardmaxError("no scores are left")
        return found

    def _value(self, name: str, depth: int = 0) -> Array | None:
        """A tensor that is constant, or is computed from the sizes of others."""
        value, node = self.graph.constant(name), self.graph.maker.get(name)
        if value is not None or node is None or depth > 20:
            return value
        if node.op == "Shape":
            of, start, end = node.inputs[0], node.attributes.get("start", 0), node.attributes.get("end")
            told = self.sized[of].shape if of in self.sized else self.graph.shapes.get(of, (None,))
            sizes = [self.names.get(size) if isinstance(size, str) else size for size in told]
            return None if None in sizes else np.array(sizes, dtype=np.int64)[start:end]
        operands = [self._value(one, depth + 1) if one else None for one in node.inputs]
        if node.op not in _OF_SIZES or any(
            name and one is None for name, one in zip(node.inputs, operands, strict=True)
        ):
            return None
        return run_node(node, operands, self.graph.opset)[0]

    def _stand_in(self, node: OnnxNode, place: int) -> Array | None:
        """An operand that the file computes: the size that shapes tell, or the first entry of what is selected."""
        dims = self.graph.shapes.get(node.inputs[place])
        if node.op in ("Reshape", "Expand"):
            told = self.graph.shapes.get(node.outputs[0])
            if told is None:
                return None
            sizes = np.array([self.names.get(size, -1) if isinstance(size, str) else -1 if size is None else size
                              for size in told], dtype=np.int64)  # fmt: skip
            unknown = np.flatnonzero(sizes == -1)
            if len(unknown) > 1:  # beside the classes, what is left goes to each of them in turn
                if self.n not in sizes:
                    return None
                self.turns = max(self.turns, len(unknown))
                sizes[np.delete(unknown, min(self.turn, len(unknown) - 1))] = 1
            return None if len(unknown) and node.op == "Expand" else sizes
        if node.op == "Gather" and dims is not None:
            return np.zeros((1,) * len(dims), dtype=np.int64)
        if node.op == "GatherND" and dims and isinstance(dims[-1], int):
            return np.zeros((*(1,) * (len(dims) - 1), dims[-1]), dtype=np.int64)
        if node.op == "Slice" and place in (1, 2) and (axes := self._slice_axes(node)) is not None:
            return np.full(axes, place - 1, dtype=np.int64)
        return None

    def _slice_axes(self, node: OnnxNode) -> int | None:
        known = [self.graph.constant(name) for name in node.inputs[1:4] if name]
        return next((values.size for values in known if values is not None), None)

    def _sum(self, nodes: Sequence[OnnxNode]) -> OnnxNode | None:
        """The first sum or difference with more than one number."""
        for node in nodes:
            if node.op in ("Add", "Sub"):
                known = [self.graph.constant(name) for name in node.inputs]
                if any(value is not None and value.size > 1 for value in known):
                    return node
        return None

    def _add(self, node: OnnxNode) -> None:
        """Take a sum or difference with a constant for the bias, where it adds one number to each class."""
        constant = next(value for name in node.inputs if (value := self.graph.constant(name)) is not None)
        constant = -constant if node.op == "Sub" else constant
        self._spread(constant)
        added = np.broadcast_to(constant, self.ids.shape)
        bias = np.zeros(self.n, dtype=constant.dtype)
        bias[self._classes(self.ids)] = added
        if self.plain and (bias[self._classes(self.ids)] == added).all() and not self.tail.sums:
            self.tail = Tail("", bias.astype(np.float64), (node,))
        else:
            self.tail = replace(self.tail, shifted=node)

    def _spread(self, constant: Array) -> None:
        """Copy the numbers along the axes that a sum or product with a constant adds."""
        try:
            self.ids = np.broadcast_to(self.ids, np.broadcast_shapes(self.ids.shape, constant.shape))
        except ValueError as error:
            raise HardmaxError(f"shapes that do not fit: {error}") from None

    def _reduced(self, node: OnnxNode) -> bool:
        """Whether a ReduceMax leaves no classes; else it is the largest over places, and stands for each of them."""
        axes: Any = node.attributes.get("axes")
        if axes is None and len(node.inputs) > 1 and node.inputs[1]:
            axes = self.graph.constant(node.inputs[1])
        over = tuple(np.asarray(range(self.ids.ndim) if axes is None else axes).reshape(-1).astype(int).tolist())
        first = self.ids
        for axis in over:
            _check_axis(self.ids, axis)
            first = first.take([0], axis=axis)
        if (self._classes(first) != self._classes(self.ids)).any():
            return True
        self.ids = first if node.attributes.get("keepdims", 1) else first.squeeze(over)
        return False

    def _soft_rows(self, node: OnnxNode) -> Ids:
        """The scores that a Softmax or its kin weighs together: before opset 13 those of all axes from its own on."""
        if self.graph.opset >= 13:
            return _along(self.ids, int(node.attributes.get("axis", -1)))
        axis = int(node.attributes.get("axis", 1))
        _check_axis(self.ids, axis)
        return self.ids.reshape(prod(self.ids.shape[: axis % self.ids.ndim]), -1)

    def _classes(self, ids: Ids) -> Ids:
        return np.asarray(ids // self.inner % self.n)

    def _places(self, ids: Ids) -> Ids:
        return np.asarray(ids // (self.inner * self.n) * self.inner + ids % self.inner)

    def _is_whole(self) -> bool:
        """Whether places that are left have all their classes."""
        left = np.unique(self.ids)
        return len(np.unique(self._places(left))) * self.n == len(left)

    def _is_together(self, rows: Ids) -> bool:
        """Whether each row holds all classes of its places, each once."""
        if rows.shape[1] == 0 or rows.shape[1] % self.n:
            return False
        if rows.shape[1] == self.n and (rows == rows[:, :1] + self.inner * np.arange(self.n, dtype=np.int32)).all():
            return not self._classes(rows[:, 0]).any()  # one place, its classes in order
        places = np.sort(self._places(rows), axis=1).reshape(len(rows), -1, self.n)
        return bool((places == places[:, :, :1]).all() and (np.diff(np.sort(rows, axis=1), axis=1) > 0).all())

    def _is_ordered(self, rows: Ids) -> bool:
        """Whether classes come in their order as well, for one place after another or for all of them at once."""
        if not self._is_together(rows):
            return False
        classes, every = self._classes(rows), np.arange(self.n)
        times = rows.shape[1] // self.n
        return bool((classes == np.tile(every, times)).all() or (classes == np.repeat(every, times)).all())


def _along(ids: Ids, axis: int) -> Ids:
    """(rows, size) the numbers along an axis."""
    _check_axis(ids, axis)
    moved = np.moveaxis(ids, axis, -1)
    return moved.reshape(-1, moved.shape[-1])


def _check_axis(ids: Ids, axis: int) -> None:
    if not -ids.ndim <= axis < ids.ndim:
        raise _RankError(f"axis {axis} of {ids.ndim}")

"""ONNX model -> Network, as onnxruntime computes it.

All shapes are made static first: the batch axis has size one inside and is invisible outside. Then the
nodes are visited in order; onnxruntime folds what depends on no data and says where rearrangements move each
entry, and every other operator has a rule in one of the ``onnx_*`` files of this folder.

A network is a function of real numbers: data is computed with in float64 (or float32, or rationals) whatever the
file's float type is, a cast of data between float types keeps the value, and a weight that is cast to a smaller
float type keeps the value it had. Constants that are folded are computed in the number types of the file.

What is refused, each with the node, the reason and a remedy:

=================================  ==================================================================================
operator                           refused
=================================  ==================================================================================
any                                of another domain, or not in ``onnx_operators()``; an attribute or a number of
                                   operands that its opset does not have; subgraphs (If, Loop, Scan)
any                                a result without entries; a file that asks for more than its limits (``Limits``)
any                                a second output that another node reads (MaxPool indices, Dropout masks)
arithmetic                         weights that are not finite; division by a constant zero
Add, Where with -inf               read by anything but Softmax and Hardmax; a row that allows no key
Pow                                exponents other than 1, 2, 3, 1/2, -1/2, -1, or several at once
Cast, CastLike                     of data to integers or booleans, or to floats of eight bits and fewer; of a
                                   constant to the type of data (CastLike)
Equal                              of data, except to its maximum over the last axis inside a Hardmax over that axis
Less, Greater, ... Not             of data, except scores and the last entry of their own TopK
TopK                               along another axis than the last, of the smallest; its indices where they do not
                                   scatter, gather or count along the same axis
Where, Gather, Slice, Reshape, ..  a condition, index or shape that depends on data
Clip                               bounds of several entries
Dropout, BatchNormalization        in training mode
MaxPool, AveragePool, Conv         a window that does not fit into its padded input, or lies in the padding alone;
                                   a pool with auto_pad SAME that has dilations, or skips entries
Pad                                modes other than constant, reflect, edge and wrap; reflections longer than the axis
Einsum                             anything but two operands, an explicit result, no ellipsis, no repeated letter, and
                                   no letter that is summed in one operand alone
LogSoftmax, ArgMax                 of data: they have no place in a piecewise-affine network
constants                          what onnxruntime has no kernel for in their number types
=================================  ==================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from operator import index
from typing import Any

import numpy as np

from hardmax.errors import DynamicShapeError, FileFormatError, HardmaxError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.arithmetic import ARITHMETIC_RULES
from hardmax.networks.files.onnx.attention import ATTENTION_RULES
from hardmax.networks.files.onnx.constants import (
    FOLDED,
    REARRANGEMENTS,
    RESHAPES,
    fold,
    integers,
    is_folded,
    rearranged,
    refuse_training,
    reshaped,
)
from hardmax.networks.files.onnx.models import OnnxInput, OnnxModel, OnnxNode
from hardmax.networks.files.onnx.patterns import fuse_patterns, maxima_first
from hardmax.networks.files.onnx.ranking import gather, top_k
from hardmax.networks.files.onnx.runtime import check_schema
from hardmax.networks.files.onnx.translation import Data, Masked, Ranked, Selected, Ties, Translation, Value
from hardmax.networks.files.onnx.windows import WINDOW_RULES
from hardmax.networks.graph import Graph, GraphBuilder, Node
from hardmax.networks.network import Network

_RULES = {**ARITHMETIC_RULES, **ATTENTION_RULES, **WINDOW_RULES}


def network_from_onnx(
    model: OnnxModel,
    where: str,
    *,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    has_batch_axis: bool | None = None,
) -> Network:
    """The network in a parsed ONNX model, as it computes one input at a time.

    ``input_shape`` is the shape of one input, for files that leave sizes open; given with as many axes as
    the file's input it also says that the first one is no batch axis. Softmax gives temperature 1,
    Hardmax temperature 0; beside a Softmax a Hardmax stays hard at every temperature.
    """
    source = _the_input(model, where)
    result = _the_output(model, where, output)
    shape, batched = _resolve_shape(source, where, input_shape, has_batch_axis)
    builder = GraphBuilder(shape)
    translation = Translation(builder, model.opset, model.budget)
    reads = Counter(name for node in model.nodes for name in node.inputs)
    translation.read_once = {name for name, times in reads.items() if times == 1 and name != result}
    data = Data(0)
    if batched:
        data = Data(builder.add(op.Reshape((1, *shape)), 0, name="batch axis"))
    values: dict[str, Value | None] = {**model.constants, source.name: data, "": None}
    for node in model.nodes:
        _translate(translation, node, values, where)
    found = values.get(result)
    final = None if found is None else translation.plain(found)
    if not isinstance(final, Data):
        kinds = {Masked: "a mask", Ties: "a comparison of data", type(None): "nothing"}
        what = kinds.get(type(found), "a constant")
        raise FileFormatError(f"{where}: output {result!r} is {what}; expected a tensor that depends on the input")
    made = builder.shape_of(final.value)
    if batched and made and made[0] == 1:
        final = Data(builder.add(op.Reshape(made[1:]), final.value, name="batch axis removed"))
    try:
        tick = model.budget.tick
        fused, moved = maxima_first(fuse_patterns(builder.build(final.value), tick), tick)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from None
    graph, temperature = _settle_temperature(fused)
    return Network.from_graph(graph, temperature, [*_folded(model.nodes, values), *moved])


def _folded(nodes: Sequence[OnnxNode], values: Mapping[str, Value | None]) -> list[str]:
    """What was folded on the way: batch normalisations of data, which with fixed statistics are affine."""
    return [
        f"BatchNormalization at {node.name or node.outputs[0]} was folded into a factor and a shift of each channel: "
        "with fixed statistics it is affine"
        for node in nodes
        if node.op == "BatchNormalization" and isinstance(values.get(node.outputs[0]), Data)
    ]


def _the_input(model: OnnxModel, where: str) -> OnnxInput:
    names = [entry.name for entry in model.inputs]
    if len(names) != 1:
        raise FileFormatError(
            f"{where}: expected one input, got {len(names)} ({', '.join(names)}); export the model with "
            "the others as "
            "constants"
        )
    if model.inputs[0].kind != "f":
        raise OperatorError(
            f"{where}: input {names[0]!r} holds integers or booleans; expected floats. Export the model "
            "from its "
            "embeddings on, so that its input is a point of a vector space."
        )
    return model.inputs[0]


def _the_output(model: OnnxModel, where: str, wanted: str | None) -> str:
    if wanted is None and len(model.outputs) == 1:
        return model.outputs[0]
    if wanted in model.outputs:
        return str(wanted)
    raise FileFormatError(
        f"{where}: expected {'one output' if wanted is None else f'an output named {wanted!r}'}, got "
        f"{', '.join(model.outputs)}; choose one with output=..."
    )


def _resolve_shape(
    source: OnnxInput, where: str, given: Sequence[int] | None, has_batch_axis: bool | None
) -> tuple[tuple[int, ...], bool]:
    """The shape of one input, and whether the file's tensor has a batch axis before it.

    A first axis of size one or of open size is a batch axis, provided another axis follows; a file that
    fixes it at more than one keeps it, since it may well be a sequence.
    """
    dims = source.dims
    asked = None if given is None else _sizes(given, where)
    if dims is None:
        if asked is None:
            raise _open_shape(where, source, "no shape at all")
        return asked, has_batch_axis is not False
    batched = has_batch_axis
    if batched is None:
        open_or_one = bool(dims) and (not isinstance(dims[0], int) or dims[0] == 1)
        batched = open_or_one and (len(dims) > 1 or asked == ())
        if asked is not None and len(asked) == len(dims):
            batched = False
    sizes = dims[1:] if batched else dims
    if asked is None:
        if not all(isinstance(size, int) for size in sizes):
            raise _open_shape(where, source, f"the shape {_spelled(dims)}")
        return tuple(int(size) for size in sizes if isinstance(size, int)), batched
    fits = len(asked) == len(sizes) and all(
        not isinstance(size, int) or size == wanted for size, wanted in zip(sizes, asked, strict=False)
    )
    if not fits or min(asked, default=1) < 1:
        raise ShapeError(
            f"{where}: input_shape {asked} does not fit the file's input {source.name!r} of shape {_spelled(dims)}"
        )
    return asked, batched


def _sizes(given: Sequence[int], where: str) -> tuple[int, ...]:
    try:
        return tuple(index(size) for size in given)
    except TypeError:
        raise ParameterError(
            f"{where}: expected input_shape as a tuple of integers, such as (3, 32, 32), got {given!r}"
        ) from None


def _spelled(dims: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in dims) + "]"


def _open_shape(where: str, source: OnnxInput, found: str) -> DynamicShapeError:
    return DynamicShapeError(
        f"{where}: input {source.name!r} has {found}; expected fixed sizes after the batch axis. "
        "Pass the shape of one input: hm.read(path, input_shape=(...))."
    )


def _translate(t: Translation, node: OnnxNode, values: dict[str, Value | None], where: str) -> None:
    """Add what one node makes to ``values``."""
    try:
        t.budget.tick()
        for name in node.inputs:
            if name not in values:
                raise FileFormatError(f"input {name!r} is made by no earlier node, or by one not read; {_DAMAGED}")
        if any(name in values for name in node.outputs if name):
            raise FileFormatError(f"one of its outputs {list(node.outputs)} has been made before; {_DAMAGED}")
        t.node, t.operands = node, [values[name] for name in node.inputs]
        with np.errstate(all="ignore"):  # what is not finite is refused where it is used
            made = _outputs(t)
        values.update((name, value) for name, value in zip(node.outputs, made, strict=False) if name)
    except HardmaxError as error:
        raise type(error)(_one_line(f"{where}: {node.where}: {error}")) from None
    except Exception as error:  # a malformed node fails in as many ways as there are operators
        message = (
            f"{where}: {node.where}: the operands or attributes do not fit the operator "
            f"({type(error).__name__}: {error}); check the file with onnx.checker"
        )
        raise FileFormatError(_one_line(message)) from error


_DAMAGED = "the file is damaged, or needs an output that is not read"


def _one_line(message: str) -> str:
    """The message without the line breaks that names in a damaged file may hold."""
    return " ".join(message.splitlines())


def _outputs(t: Translation) -> Sequence[Value]:
    node = t.node
    if node.domain:
        raise OperatorError(
            f"operators of the domain {node.domain!r} are not translated; export the model with standard operators"
        )
    if node.op not in {*_RULES, "TopK"} and not is_folded(node.op):
        raise OperatorError(
            f"operator {node.op!r} is not translated. Replace it in the model before exporting, or cut the "
            "model "
            "off before it; hardmax.networks.files.onnx.reader.onnx_operators() lists what is read."
        )
    check_schema(node, t.opset)
    arrays: list[Any] = t.operands
    if node.op in ("Shape", "Size") and not isinstance(arrays[0], np.ndarray):
        shape = t.shape(arrays[0])
        return [_shape_slice(shape, node) if node.op == "Shape" else np.array(prod(shape), dtype=np.int64)]
    if is_folded(node.op) and all(operand is None or isinstance(operand, np.ndarray) for operand in arrays):
        made = fold(node, arrays, t.opset, t.budget)
        narrowed = node.op in ("Cast", "CastLike") and arrays[0].dtype == np.float64 and made[0].dtype.kind == "f"
        if narrowed and np.isfinite(made[0]).all():  # a weight is read as it was before it was rounded
            t.exact[node.outputs[0]] = arrays[0]
        return made
    if node.op == "TopK":
        return top_k(t)
    picked = gather(t) if node.op in ("Gather", "GatherElements") else None
    if picked is not None:
        return [picked]
    if node.op in REARRANGEMENTS:
        return _rearranged(t)
    if node.op not in _RULES:
        raise OperatorError(f"{node.op} is read where all its operands are constants, and here one is data")
    return [_RULES[node.op](t)]


def _shape_slice(shape: tuple[int, ...], node: OnnxNode) -> Array:
    """What the Shape operator gives: its start and end may be negative, and are put inside the axes."""
    rank = len(shape)
    ends = [int(node.attributes.get(key, default)) for key, default in (("start", 0), ("end", rank))]
    start, end = (min(max(bound + rank if bound < 0 else bound, 0), rank) for bound in ends)
    return np.array(shape[start:end], dtype=np.int64)


def _rearranged(t: Translation) -> Sequence[Value]:
    """The outputs of an operator that only moves entries of its first operand."""
    refuse_training(t.node, t.operands)
    ranked = t.operands[0]
    if t.node.op in ("Identity", "Dropout"):
        return [ranked if isinstance(ranked, Ranked | Selected) else t.data(0)]
    if isinstance(ranked, Ranked) and ranked.what != "total":
        how = [t.constant(i) if t.has(i) else None for i in range(1, len(t.operands))]
        moved = rearranged(t.node, ranked.places, how, t.opset, t.budget)
        return [replace(ranked, places=places) for places in moved]
    if isinstance(ranked, Selected) and t.node.op == "Expand":
        shape = t.shape(ranked)
        if np.broadcast_shapes(shape, tuple(integers(t.constant(1)))) == shape:
            return [ranked]
    x = t.data(0)
    how = [t.constant(i) if t.has(i) else None for i in range(1, len(t.operands))]
    if t.node.op == "Transpose":
        rank = len(t.shape(x))
        return [Data(t.transpose(x, t.attribute("perm", tuple(range(rank))[::-1])).value)]
    if t.node.op in RESHAPES:
        return [Data(t.reshape(x, reshaped(t.node, t.shape(x), how, t.opset, t.budget)).value)]
    pieces = rearranged(t.node, t.positions(x), how, t.opset, t.budget)
    # what is cut to nothing depends on nothing: a constant without entries, which a Concat leaves out
    return [t.take(x, piece) if piece.size else np.zeros(piece.shape, np.float32) for piece in pieces]


def _settle_temperature(graph: Graph) -> tuple[Graph, float]:
    """Temperature 1 where a Softmax stands; else 0, with no node bound to stay hard."""
    weighing = [node.operation for node in graph.nodes if isinstance(node.operation, op.Hardmax)]
    if not all(operation.always_hard for operation in weighing):
        return graph, 1.0
    nodes = [
        replace(node, operation=replace(node.operation, always_hard=False))
        if isinstance(node.operation, op.Hardmax)
        else node
        for node in graph.nodes
    ]
    return Graph(graph.input_shape, tuple[Node, ...](nodes)), 0.0


def onnx_operators() -> tuple[str, ...]:
    """The ONNX operators that are read, in alphabetical order.

    Those marked by a shape or a constant alone (``Shape``, ``Range``) act at read time.

    Examples
    --------
    >>> "Hardmax" in onnx_operators(), "LSTM" in onnx_operators()
    (True, False)
    """
    return tuple(sorted({*_RULES, *FOLDED, "TopK"} - {"LogSoftmax", "ArgMax"}))

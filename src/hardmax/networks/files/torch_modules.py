"""torch module -> Network, through an ONNX model in memory; Network -> plain torch module, operation by operation."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from hardmax.errors import (
    HardmaxError,
    MissingExtraError,
    OperatorError,
    ParameterError,
    ShapeError,
    WeightError,
    needing,
)
from hardmax.exactness import check_flag, check_temperature, check_word, one_tensor
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.files.opening import NO_LIMITS, refusing
from hardmax.networks.network import Network, check_network
from hardmax.networks.selections import StandIn, stand_ins

_OPSET = 20  # the newest that torch's tracing exporter writes; has Gelu and LayerNormalization
_READ_IN_EVALUATION_MODE = (
    "the module was in training mode and was read as in evaluation mode: dropout off, batch norm by its "
    "running "
    "statistics"
)
_SAME = 1e-4  # outputs of one row alone and in company, relative to the largest


def from_torch(module: Any, example_input: Any, *, batched: bool | None = None) -> Network:
    """The network that a torch module computes on inputs shaped like the example.

    The module is traced on the example, as torch.onnx does: what depends on the example's shape is fixed by
    it, and control flow that depends on its values is taken as the example takes it.

    Whether the example's first axis is a batch axis is found out by trying: if rows of it are computed
    independently of one another, it is one, and the network takes inputs without it. So for an MLP both
    (3,) and (8, 3) give ``input_shape`` (3,), and for a TransformerEncoder with ``batch_first`` both
    (tokens, features) and (batch, tokens, features) give (tokens, features). A batch axis in another place
    (``batch_first=False``) stays in the input shape with the example's size. ``batched`` overrules the trial.

    torch's tracing exporter is used, since it needs nothing besides onnx. What its default exporter writes (it needs
    onnxscript) is read as well, ``hm.read(path)``, with attention written out or by torch's own function.

    A module in training mode is read as in evaluation mode (dropout off, batch norm by its running
    statistics), which ``.changes`` says; the module itself is left as it was.

    Parameters
    ----------
    module
        A torch.nn.Module with one tensor in and one tensor out: Sequential MLPs and CNNs,
        TransformerEncoder and its layer, or any module made of operators that ``hm.read`` knows.
    example_input
        A tensor or array of floats.
    batched
        True or False to say that the first axis is, or is not, a batch axis.

    Exactness: exact; weights keep their binary values, and Softmax gives temperature 1.

    Raises
    ------
    MissingExtraError
        torch or onnx is not installed.
    OperatorError
        The module uses an operator that has no counterpart here.
    """
    from hardmax.networks.files.onnx.models import Budget, parse_model
    from hardmax.networks.files.onnx.reader import network_from_onnx

    torch = torch_library()
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"expected a torch.nn.Module, got a {type(module).__name__}")
    example = _example(torch, module, example_input)
    with evaluation_mode(module) as was_training:
        changes = [_READ_IN_EVALUATION_MODE] if _depends_on_mode(torch, was_training) else []
        _run(torch, module, example)
        has_batch = _rows_are_independent(torch, module, example) if batched is None else check_flag("batched", batched)
        if has_batch and example.dim() < 1:
            raise ShapeError("expected an example with a batch axis, got a single number; pass batched=False")
        data = _exported(torch, module, example[:1] if has_batch else example)
    where = type(module).__name__
    net = network_from_onnx(parse_model(data, where, budget=Budget(NO_LIMITS)), where, has_batch_axis=has_batch)
    return Network.from_graph(net.graph, net.temperature, [*changes, *net.changes])


@contextmanager
def evaluation_mode(module: Any) -> Iterator[list[Any]]:
    """While inside, the module and its parts are in evaluation mode; gives those that were not."""
    training = [part for part in module.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield training
    finally:
        for part in training:
            part.training = True


def torch_library() -> Any:
    """torch with its exporter, or how to install it."""
    with needing("torch modules need torch", "torch,onnx"):
        import torch
        import torch.onnx
    return torch


def _of_hugging_face(module: Any) -> str:
    is_theirs = hasattr(getattr(module, "config", None), "_attn_implementation")
    return ", or, since it is a Hugging Face model, use hm.from_hf(model, inputs)" if is_theirs else ""


def _example(torch: Any, module: Any, given: Any) -> Any:
    if isinstance(given, tuple | list) and given and isinstance(given[0], torch.Tensor):
        raise ParameterError(
            f"expected one example tensor, got {len(given)}; wrap the module in one that takes a single tensor"
        )
    try:
        tensor = given.detach() if isinstance(given, torch.Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"expected an example tensor of floats, got {type(given).__name__} ({error})") from None
    weights = [*module.parameters(), *module.buffers()]
    for what, one in [("example_input", tensor), *((type(module).__name__, weight) for weight in weights)]:
        one_tensor(what, one)
    kinds = [weight for weight in weights if weight.is_floating_point()]
    if tensor.is_complex() or (isinstance(given, torch.Tensor) and not tensor.is_floating_point()):
        raise ParameterError(
            f"expected an example tensor of floats, got {tensor.dtype}; a module that takes integers (tokens) is read "
            f"from its embeddings on{_of_hugging_face(module)}"
        )
    if not torch.isfinite(tensor).all():
        raise WeightError("example_input: expected finite numbers, got NaN or infinite entries")
    if 0 in tensor.shape:
        raise ShapeError(f"example_input: expected at least one entry, got shape {tuple(tensor.shape)}")
    # an array has no say in the module's number type
    return tensor.to(kinds[0]) if kinds else tensor.to(torch.get_default_dtype())


def _depends_on_mode(torch: Any, parts: list[Any]) -> bool:
    modal = (torch.nn.modules.batchnorm._NormBase, torch.nn.modules.dropout._DropoutNd)
    return any(
        isinstance(part, modal) or (isinstance(part, torch.nn.MultiheadAttention) and part.dropout > 0)
        for part in parts
    )


def _run(torch: Any, module: Any, x: Any) -> Any:
    """The module's output, checked to be one tensor."""
    what = f"{type(module).__name__} fails on an example of shape {tuple(x.shape)}"
    with torch.no_grad(), refusing(ShapeError, what, "; pass an input as the module takes it"):
        result = module(x)
    if not isinstance(result, torch.Tensor):
        raise OperatorError(
            f"{type(module).__name__} returns a {type(result).__name__}; expected one tensor. Wrap it in a module "
            f"that returns the one wanted{_of_hugging_face(module)}"
        )
    return result


def _rows_are_independent(torch: Any, module: Any, example: Any) -> bool:
    """Whether the rows along axis 0 give the same results alone and beside rows of other content."""
    if example.dim() < 2:
        return False
    alone = example[:1]
    try:
        expected = _run(torch, module, alone)
        if expected.dim() < 1 or expected.shape[0] != 1:
            return False
        for other in (1 - alone, 3 * alone.flip(-1) - 2):
            together = _run(torch, module, torch.cat([alone, other]))
            if together.shape != (2, *expected.shape[1:]):
                return False
            size = max(float(expected.abs().max()), float(together.abs().max()))
            if float((together[:1] - expected).abs().max()) > _SAME * size:
                return False
    except HardmaxError:  # the axis does not take another size, so it is no batch axis
        return False
    return True


@contextmanager
def _exporting(torch: Any) -> Iterator[None]:
    """While inside, the exporter also writes ``nn.RMSNorm``, ``diff`` and sums of truths, which it does not know.

    And it prints nothing: for an operator it does not know it would print the whole graph.
    """
    helper: Any = import_module("torch.onnx.symbolic_helper")

    def rms_norm(graph: Any, x: Any, shape: Any, weight: Any, epsilon: Any) -> Any:
        count = len(helper._get_const(shape, "is", "normalized_shape"))
        kind = helper._try_get_scalar_type(x)
        dtype = torch.float32 if kind is None else kind.dtype()
        added = helper._get_const(epsilon, "f", "eps")
        axes = graph.op("Constant", value_t=torch.arange(-count, 0))
        square = graph.op("ReduceMean", graph.op("Mul", x, x), axes, keepdims_i=1)
        number = torch.tensor(torch.finfo(dtype).eps if added is None else added, dtype=dtype)
        constant = graph.op("Constant", value_t=number)
        result = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", square, constant)))
        return result if helper._is_none(weight) else graph.op("Mul", result, weight)

    def diff(graph: Any, x: Any, times: Any, axis: Any, before: Any, after: Any) -> Any:
        place, count = helper._get_const(axis, "i", "dim"), helper._get_const(times, "i", "n")
        parts = [part for part in (before, x, after) if not helper._is_none(part)]
        whole = parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis_i=place)

        def slice_of(tensor: Any, start: int, end: int) -> Any:
            bounds = (graph.op("Constant", value_t=torch.tensor([number])) for number in (start, end, place))
            return graph.op("Slice", tensor, *bounds)

        for _ in range(count):
            whole = graph.op("Sub", slice_of(whole, 1, 2**62), slice_of(whole, 0, -1))
        return whole

    def cumsum(graph: Any, x: Any, axis: Any, dtype: Any) -> Any:
        place = graph.op("Constant", value_t=torch.tensor(helper._get_const(axis, "i", "dim")))
        kind = helper._try_get_scalar_type(x)
        is_truth = kind is not None and kind.dtype() == torch.bool  # which torch counts and ONNX cannot add
        return graph.op("CumSum", graph.op("Cast", x, to_i=7) if is_truth else x, place)

    ours = {"aten::rms_norm": rms_norm, "aten::diff": diff, "aten::cumsum": cumsum}
    for name, symbolic in ours.items():
        torch.onnx.register_custom_op_symbolic(name, symbolic, _OPSET)
    log = getattr(torch._C, "_jit_onnx_log", None)  # has no switch: exporting switches it on
    try:
        if log is not None:
            torch._C._jit_onnx_log = lambda *_: None
        yield
    finally:
        if log is not None:
            torch._C._jit_onnx_log = log
        for name in ours:
            torch.onnx.unregister_custom_op_symbolic(name, _OPSET)


def _exported(torch: Any, module: Any, example: Any) -> bytes:
    """The module as the bytes of an ONNX model, traced on the example."""

    class OneTensor(torch.nn.Module):  # type: ignore[misc]
        """Hides a module's optional arguments, which tracing would turn into tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    buffer = io.BytesIO()
    with warnings.catch_warnings(), _exporting(torch):
        warnings.simplefilter("ignore")  # tracing warns of every shape it fixes, which is what is wanted
        try:
            torch.onnx.export(
                OneTensor().eval(),
                (example,),
                buffer,
                dynamo=False,  # the other exporter needs another package and rewrites the weights
                opset_version=_OPSET,
                input_names=["input"],
                output_names=["output"],
                # no folding of batch norms into convolutions: that would round the weights to float32
                training=torch.onnx.TrainingMode.PRESERVE,
                do_constant_folding=False,
            )
        except ImportError as error:
            raise MissingExtraError(f"{error}: pip install 'hardmax[torch,onnx]'") from None
        except Exception as error:
            detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise OperatorError(
                f"{type(module).__name__} cannot be exported ({detail}); build it from operators that torch.onnx "
                f"exports, and cut off what has none{_of_hugging_face(module)}. Heads are captured without exporting: "
                "hm.capture(module, inputs)"
            ) from error
    return buffer.getvalue()


Tensor = Any  # torch.Tensor, when torch is there


def to_torch(net: Network, temperature: float | None = None, *, dtype: str = "float64") -> Any:
    """A torch.nn.Module that computes the network on tensors (..., *input_shape).

    Weights are parameters, one a constant array of the graph, named by their operation's number; index arrays
    are buffers. Ties go to the lowest index, as in ``net(x)``.

    Parameters
    ----------
    net : the network.
    temperature : of its attention; the network's own unless given. Zero is hard (and passes no gradient
        through the choice).
    dtype : 'float64' or 'float32'.

    Exactness: the weights are the network's own in float64; values agree within rounding.

    Raises
    ------
    MissingExtraError
        torch is not installed.
    """
    check_network(net, "expected a Network to export")
    check_word("dtype", dtype, ("float32", "float64"))
    torch = torch_library()
    tau = net.temperature if temperature is None else check_temperature(temperature)
    return _module_class()(net, tau, getattr(torch, dtype))


@cache
def _module_class() -> Any:
    """The module's class, made when torch is first needed."""
    return _graph_module(torch_library())


def _graph_module(torch: Any) -> Any:
    class GraphModule(torch.nn.Module):  # type: ignore[misc]
        """A network's operations in order; see ``hm.to_torch``."""

        def __init__(self, net: Network, temperature: float, dtype: Any) -> None:
            super().__init__()
            self.graph = net.graph
            self.temperature = temperature
            self.dtype = dtype
            for index, node in enumerate(net.graph.nodes):
                for entry in fields(node.operation):
                    array = getattr(node.operation, entry.name)
                    if not isinstance(array, np.ndarray):
                        continue
                    name = f"{entry.name}_{index}"
                    if array.dtype.kind == "f":
                        self.register_parameter(name, torch.nn.Parameter(torch.tensor(array, dtype=dtype)))
                    else:
                        self.register_buffer(name, torch.tensor(array))

        def forward(self, x: Tensor) -> Tensor:
            """The output (..., *output_shape)."""
            shape = self.graph.input_shape
            lead = x.shape[: x.dim() - len(shape)]
            values = [x.to(self.dtype).reshape(-1, *shape)]
            instead = stand_ins(self.graph, self.temperature)
            for index, node in enumerate(self.graph.nodes):
                operation = node.operation
                constants = {
                    entry.name: getattr(self, f"{entry.name}_{index}")
                    for entry in fields(operation)
                    if isinstance(getattr(operation, entry.name), np.ndarray)
                }
                operation = replace(operation, **constants)
                operands = [values[value] for value in node.inputs]
                if index in instead:
                    operands = [_standing_in(instead[index], operands[0])]
                if isinstance(operation, op.Hardmax) and self.temperature > 0 and not operation.always_hard:
                    scores = operands[0] / self.temperature
                    if operation.top:
                        order = scores.argsort(dim=-1, descending=True, stable=True)[..., : operation.top]
                        hidden = torch.full_like(scores, -torch.inf)
                        scores = hidden.scatter(-1, order, scores.gather(-1, order))
                    values.append(torch.softmax(scores, dim=-1))
                else:
                    values.append(_RULES.get(type(operation), apply)(operation, *operands))
            return values[-1].reshape(*lead, *self.graph.output_shape)

    return GraphModule


def _standing_in(kind: StandIn, x: Tensor) -> Tensor:
    if kind is StandIn.BELOW:
        return (x - x.amax(dim=-1, keepdim=True)).clamp(min=-2)
    ascending, order = x.sort(dim=-1)
    steps = (ascending[..., 1:] > ascending[..., :-1]).cumsum(dim=-1).to(x.dtype)
    return torch_library().zeros_like(x).scatter(-1, order[..., 1:], steps)


def _relu(operation: op.Relu, x: Tensor) -> Tensor:
    functional = torch_library().nn.functional
    return functional.leaky_relu(x, operation.slope) if operation.slope else functional.relu(x)


def _clip(operation: op.Clip, x: Tensor) -> Tensor:
    return (torch_library().minimum if operation.is_ceiling else torch_library().maximum)(x, operation.bound)


def _hardmax(operation: op.Hardmax, x: Tensor) -> Tensor:
    tied = x == x.amax(dim=-1, keepdim=True)  # torch's argmax may return any of several maxima
    return (tied & (tied.cumsum(dim=-1) == 1)).to(x.dtype)


def _pointwise(operation: op.Pointwise, x: Tensor) -> Tensor:
    torch = torch_library()
    if operation.kind == "gelu":
        return torch.nn.functional.gelu(x)
    if operation.kind == "gelu_tanh":
        return torch.nn.functional.gelu(x, approximate="tanh")
    if operation.kind == "silu":
        return torch.nn.functional.silu(x)
    return getattr(torch, operation.kind)(x)


def _normalize(operation: op.Normalize, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True) if operation.centred else x
    return centred / (centred.square().mean(dim=-1, keepdim=True) + operation.epsilon).sqrt()


#: What torch computes of operations that choose or bend; of all others it computes what numpy does.
_RULES: dict[type[op.Operation], Callable[..., Tensor]] = {
    op.Relu: _relu,
    op.Clip: _clip,
    op.MaxLast: lambda _, x: x.amax(dim=-1),
    op.Hardmax: _hardmax,
    op.Pointwise: _pointwise,
    op.Normalize: _normalize,
}

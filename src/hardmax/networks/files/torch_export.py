"""Network -> plain torch module, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from operator import add, matmul, mul
from typing import Any

import numpy as np

from hardmax.errors import MissingExtraError, ParameterError
from hardmax.networks import operations as op
from hardmax.networks.network import Network, check_network, check_temperature
from hardmax.networks.selections import StandIn, stand_ins

Tensor = Any  # torch.Tensor, when torch is there
Rule = Callable[[Any, dict[str, Tensor], list[Tensor]], Tensor]


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
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"expected dtype 'float32' or 'float64', got {dtype!r}")
    torch = _torch()
    tau = net.temperature if temperature is None else check_temperature(temperature)
    return _module_class()(net, tau, getattr(torch, dtype))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch modules need torch: pip install 'hardmax[torch]'") from None
    return torch


@cache
def _module_class() -> Any:
    """The module's class, made when torch is first needed."""
    return _graph_module(_torch())


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
                    values.append(_RULES[type(operation)](operation, constants, operands))
            return values[-1].reshape(*lead, *self.graph.output_shape)

    return GraphModule


def _standing_in(kind: StandIn, x: Tensor) -> Tensor:
    if kind is StandIn.BELOW:
        return (x - x.amax(dim=-1, keepdim=True)).clamp(min=-2)
    ascending, order = x.sort(dim=-1)
    steps = (ascending[..., 1:] > ascending[..., :-1]).cumsum(dim=-1).to(x.dtype)
    return _torch().zeros_like(x).scatter(-1, order[..., 1:], steps)


def _aligned(x: Tensor, rank: int) -> Tensor:
    """``x`` (batch, *shape) with ones after the batch axis until the shape has ``rank`` axes."""
    missing = rank - (x.dim() - 1)
    return x if missing <= 0 else x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])


def _pair(operands: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    rank = max(x.dim() for x in operands) - 1
    return _aligned(operands[0], rank), _aligned(operands[1], rank)


def _linear(operation: op.Linear, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    result = operands[0] @ constants["weight"].T
    return result + constants["bias"] if "bias" in constants else result


def _constant_product(operation: op.ConstantMatMul, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    matrix = constants["constant"]
    x = _aligned(operands[0], matrix.dim())
    return matrix @ x if operation.on_left else x @ matrix


def _convolution(operation: op.Convolution, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    torch = _torch()
    batch, examples = operands[0].shape[0], operation.input_shape[0]
    grouped = operands[0].reshape(batch, examples, operation.groups, -1)
    padded = torch.nn.functional.pad(grouped, (0, 1))  # position -1 is the padding
    columns = padded[..., constants["windows"]]  # (batch, examples, groups, positions, taps)
    result = (columns @ constants["weight"].transpose(-1, -2)).transpose(-1, -2)
    result = result.reshape(batch, examples, operation.output_shape[1], -1)
    if "bias" in constants:
        result = result + constants["bias"][:, None]
    return result.reshape(batch, *operation.output_shape)


def _reduce(operation: op.Reduce, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x = operands[0]
    if operation.axes:
        x = x.sum(dim=[axis + 1 for axis in operation.axes], keepdim=operation.keep)
    return x if operation.divisor == 1 else x / operation.divisor


def _hardmax(operation: op.Hardmax, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x = operands[0]
    tied = x == x.amax(dim=-1, keepdim=True)  # torch's argmax may return any of several maxima
    return (tied & (tied.cumsum(dim=-1) == 1)).to(x.dtype)


def _pointwise(operation: op.Pointwise, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    torch = _torch()
    x = operands[0]
    if operation.kind == "gelu":
        return torch.nn.functional.gelu(x)
    if operation.kind == "gelu_tanh":
        return torch.nn.functional.gelu(x, approximate="tanh")
    if operation.kind == "silu":
        return torch.nn.functional.silu(x)
    return getattr(torch, operation.kind)(x)


def _normalize(operation: op.Normalize, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x = operands[0]
    centred = x - x.mean(dim=-1, keepdim=True) if operation.centred else x
    return centred / (centred.square().mean(dim=-1, keepdim=True) + operation.epsilon).sqrt()


_RULES: dict[type[op.Operation], Rule] = {
    op.Linear: _linear,
    op.ConstantMatMul: _constant_product,
    op.Scale: lambda _, own, x: _aligned(x[0], own["factor"].dim()) * own["factor"],
    op.Shift: lambda _, own, x: _aligned(x[0], own["constant"].dim()) + own["constant"],
    op.Convolution: _convolution,
    op.Reshape: lambda operation, _, x: x[0].reshape(x[0].shape[0], *operation.shape),
    op.Transpose: lambda operation, _, x: x[0].permute(0, *(axis + 1 for axis in operation.order)),
    op.Take: lambda _, own, x: x[0].reshape(x[0].shape[0], -1)[:, own["positions"]],
    op.Reduce: _reduce,
    op.Add: lambda _, own, x: add(*_pair(x)),
    op.Concat: lambda operation, _, x: _torch().cat(x, dim=operation.axis + 1),
    op.MatMul: lambda _, own, x: matmul(*_pair(x)),
    op.Multiply: lambda _, own, x: mul(*_pair(x)),
    op.Relu: lambda operation, _, x: _torch().where(x[0] > 0, x[0], x[0] * operation.slope),
    op.Clip: lambda operation, own, x: (_torch().minimum if operation.is_ceiling else _torch().maximum)(
        x[0], own["bound"]
    ),
    op.MaxLast: lambda _, own, x: x[0].amax(dim=-1),
    op.Hardmax: _hardmax,
    op.Pointwise: _pointwise,
    op.Normalize: _normalize,
}

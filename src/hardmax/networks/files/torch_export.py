"""Network -> plain torch module, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from hardmax.errors import MissingExtraError, ParameterError
from hardmax.networks import operations as op
from hardmax.networks.network import Network, check_network, check_temperature

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
            for index, node in enumerate(self.graph.nodes):
                operation = node.operation
                constants = {
                    entry.name: getattr(self, f"{entry.name}_{index}")
                    for entry in fields(operation)
                    if isinstance(getattr(operation, entry.name), np.ndarray)
                }
                operands = [values[value] for value in node.inputs]
                if isinstance(operation, op.Hardmax) and self.temperature > 0 and not operation.always_hard:
                    values.append(torch.softmax(operands[0] / self.temperature, dim=-1))
                else:
                    values.append(_RULES[type(operation)](operation, constants, operands))
            return values[-1].reshape(*lead, *self.graph.output_shape)

    return GraphModule


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


def _scale(operation: op.Scale, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return _aligned(operands[0], constants["factor"].dim()) * constants["factor"]


def _shift(operation: op.Shift, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return _aligned(operands[0], constants["constant"].dim()) + constants["constant"]


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


def _take(operation: op.Take, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return operands[0].reshape(operands[0].shape[0], -1)[:, constants["positions"]]


def _reduce(operation: op.Reduce, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x = operands[0]
    if operation.axes:
        x = x.sum(dim=[axis + 1 for axis in operation.axes], keepdim=operation.keep)
    return x if operation.divisor == 1 else x / operation.divisor


def _relu(operation: op.Relu, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    torch = _torch()
    return torch.where(operands[0] > 0, operands[0], operands[0] * operation.slope)


def _clip(operation: op.Clip, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    choose = _torch().minimum if operation.is_ceiling else _torch().maximum
    return choose(operands[0], constants["bound"])


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


def _add(operation: op.Add, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x, y = _pair(operands)
    return x + y


def _multiply(operation: op.Multiply, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x, y = _pair(operands)
    return x * y


def _product(operation: op.MatMul, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    x, y = _pair(operands)
    return x @ y


def _concat(operation: op.Concat, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return _torch().cat(operands, dim=operation.axis + 1)


def _reshape(operation: op.Reshape, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return operands[0].reshape(operands[0].shape[0], *operation.shape)


def _transpose(operation: op.Transpose, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return operands[0].permute(0, *(axis + 1 for axis in operation.order))


def _max_last(operation: op.MaxLast, constants: dict[str, Tensor], operands: list[Tensor]) -> Tensor:
    return operands[0].amax(dim=-1)


_RULES: dict[type[op.Operation], Rule] = {
    op.Linear: _linear,
    op.ConstantMatMul: _constant_product,
    op.Scale: _scale,
    op.Shift: _shift,
    op.Convolution: _convolution,
    op.Reshape: _reshape,
    op.Transpose: _transpose,
    op.Take: _take,
    op.Reduce: _reduce,
    op.Add: _add,
    op.Concat: _concat,
    op.MatMul: _product,
    op.Multiply: _multiply,
    op.Relu: _relu,
    op.Clip: _clip,
    op.MaxLast: _max_last,
    op.Hardmax: _hardmax,
    op.Pointwise: _pointwise,
    op.Normalize: _normalize,
}

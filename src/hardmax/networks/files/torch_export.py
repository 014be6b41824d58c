"""Network -> plain torch module, operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exactness import check_temperature
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.files.torch_modules import torch_library
from hardmax.networks.network import Network, check_network
from hardmax.networks.selections import StandIn, stand_ins

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
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"expected dtype 'float32' or 'float64', got {dtype!r}")
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

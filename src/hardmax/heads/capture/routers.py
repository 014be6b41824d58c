"""Routers of mixtures of experts as heads: the tokens are queries, the rows of the router's matrix keys, experts win.

While a model runs, linear maps by parameters are remembered on their results, through what keeps the order of a row
(softmax, sigmoid, a positive factor, other types and shapes). Where the k largest of such a row are taken, by ``topk``
or ``argmax``, that is a router; the experts chosen are compared with those that its own numbers say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError
from hardmax.exact.rationals import exact_scores
from hardmax.exact.rounding import dot_error
from hardmax.exactness import FloatArray, IntArray, ReadOnlyArrays
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.capture.hugging_face import sequences
from hardmax.heads.capture.packages import evaluating, following, to_numpy, torch_library
from hardmax.heads.capture.torch_encoders import arguments_of
from hardmax.networks.files.opening import refusing

_ROUTE = "_hardmax_route"
#: Functions after which a row has the same order, entry by entry.
_KEEP_ORDER = ("softmax", "sigmoid", "log_softmax", "float", "double", "half", "bfloat16", "to", "type", "type_as",
               "view", "reshape", "contiguous", "clone", "detach", "flatten", "squeeze", "unsqueeze")  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Router(ReadOnlyArrays):
    """One router over all tokens of all inputs.

    ``head`` has the tokens' states as queries, a key for each expert (its row of the router's matrix), the router's
    biases, and one-hot values, so that whatever is asked of heads can be asked of it: ``hm.power_diagram(head.keys,
    head.biases)``, ``hm.analyse_heads``. ``top`` experts are chosen for each token, best first: ``chosen`` (n_tokens,
    top).

    Exactness: chosen experts are exact for the captured numbers, of equal scores the first.
    """

    head: CapturedHead
    top: int
    chosen: IntArray

    def __repr__(self) -> str:
        return f"Router({self.head.name}: top {self.top} of {self.n_experts} experts, {len(self.chosen)} tokens)"

    @property
    def n_experts(self) -> int:
        """How many experts there are."""
        return self.head.n_keys

    @property
    def load(self) -> FloatArray:
        """(n_experts,) the share of all choices that falls on each expert; they sum to one."""
        return np.asarray(np.bincount(self.chosen.reshape(-1), minlength=self.n_experts) / self.chosen.size)

    @property
    def margins(self) -> FloatArray:
        """(n_tokens,) by how much the last chosen expert leads the first that is not; plain floats."""
        if self.top == self.n_experts:
            return np.full(len(self.chosen), inf)
        down = -np.sort(-self.head.scores, axis=1)
        return np.asarray(down[:, self.top - 1] - down[:, self.top])


def capture_routers(model: Any, inputs: Any) -> tuple[Router, ...]:
    """Every router of experts in a torch module or Hugging Face model, in the order in which they run.

    ``inputs`` are as for ``hm.capture``; all tokens of all inputs are pooled. A router is a linear map of which the k
    largest are taken; one that changes the scores after it (a correction beside a sigmoid, groups of experts) is no
    power diagram and is refused.

    Exactness: states and weights are what the model computed with; ``chosen`` follows from them exactly.
    """
    torch = torch_library()
    if not hasattr(model, "named_modules"):
        raise ParameterError(f"expected a torch module or a Hugging Face model, got a {type(model).__name__}")
    runs: list[tuple[tuple[Any, ...], Mapping[str, Any]]]
    if hasattr(getattr(model, "config", None), "_attn_implementation"):
        runs = [((), arguments) for arguments in sequences(model, inputs)]
    else:
        runs = [arguments_of(torch, model, inputs)]
    found = [_calls(torch, model, args, kwargs) for args, kwargs in runs]
    names = [[call.name for call in calls] for calls in found]
    if not names[0]:
        raise EmptyError(
            f"expected a model with routers of experts, got a {type(model).__name__} that took no top-k of a linear map"
        )
    if any(own != names[0] for own in names):
        raise OperatorError(f"{type(model).__name__}: routers run in another order on other inputs; pass one at a time")
    return tuple(_router(layer, [calls[layer] for calls in found]) for layer in range(len(names[0])))


@dataclass(frozen=True, eq=False)
class _Call:
    """One use of a router."""

    name: str
    states: FloatArray  # (n_tokens, d)
    weight: FloatArray  # (n_experts, d)
    bias: FloatArray | None
    top: int
    own: IntArray  # (n_tokens, top), as the model chose


def _calls(torch: Any, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[_Call]:
    calls: list[_Call] = []
    stack: list[tuple[Any, str]] = []
    untold: list[str] = []

    def tell(source: Any, top: int, chosen: Any) -> None:
        route = getattr(source, _ROUTE, None)
        part, name = stack[-1] if stack else (model, "")
        kind = type(part).__name__
        if route is None:
            if any(word in kind.lower() for word in ("router", "gate", "moe")):
                untold.append(f"{name} ({kind})")
            return
        states, weight, bias = route
        flat = to_numpy(states).reshape(-1, states.shape[-1])
        picked = chosen.detach().cpu().numpy().reshape(len(flat), top)
        calls.append(_Call(name or kind, flat, to_numpy(weight), None if bias is None else to_numpy(bias), top, picked))

    def called(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        result, name = func(*args, **kwargs), getattr(func, "__name__", "")
        given = (*args, *kwargs.values())
        if name.endswith("_") and given and hasattr(given[0], "__dict__"):  # changed in its place
            given[0].__dict__.pop(_ROUTE, None)
        if name == "linear" and len(given) > 1 and given[1].dim() == 2:
            setattr(result, _ROUTE, (given[0], given[1], given[2] if len(given) > 2 else None))
        elif name in _KEEP_ORDER and hasattr(given[0], _ROUTE):
            if result.shape[-1:] == given[0].shape[-1:]:
                setattr(result, _ROUTE, getattr(given[0], _ROUTE))
        elif name == "topk" and kwargs.get("dim", args[2] if len(args) > 2 else -1) in (-1, given[0].dim() - 1):
            tell(given[0], int(result[1].shape[-1]), result[1])
        elif name == "argmax" and kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, given[0].dim() - 1):
            tell(given[0], 1, result)
        return result

    where = f"{type(model).__name__} fails on these inputs"
    with (
        evaluating(model),
        torch.no_grad(),
        following(model, stack, called),
        refusing(ShapeError, where, "; pass what it takes"),
    ):
        model(*args, **kwargs)
    if untold:
        raise OperatorError(
            f"{untold[0]} takes the largest of something other than a linear map of its tokens (a correction after a "
            "sigmoid, groups of experts), so its choice is no power diagram and there is no way to capture it; its "
            "attention can be: hm.capture(model, inputs)"
        )
    return calls


def _router(layer: int, calls: list[_Call]) -> Router:
    first = calls[0]
    states = np.concatenate([call.states for call in calls])
    head = CapturedHead(layer, 0, first.name, states, first.weight, np.eye(len(first.weight)), 1.0, first.bias)
    chosen = _chosen(head, first.top)
    own = np.sort(np.concatenate([call.own for call in calls]), axis=1)
    differs = (np.sort(chosen, axis=1) != own).any(axis=1)
    scores, sizes = head.scores, _sizes(head)
    for row in np.flatnonzero(differs):  # what a model in float32 may take the other way: a lead within its rounding
        lead = np.abs(scores[row, own[row]].sum() - scores[row, chosen[row]].sum())
        if not lead <= 1e-4 * sizes[row]:
            raise OperatorError(
                f"{first.name}: token {int(row)} goes to experts {own[row].tolist()}, but the scores say "
                f"{sorted(chosen[row].tolist())}; the router changes them in a way that is not known here"
            )
    return Router(head, first.top, chosen)


def _sizes(head: CapturedHead) -> FloatArray:
    """(n_tokens,) the largest sum of absolute terms of a score."""
    sizes = np.abs(head.queries) @ np.abs(head.keys).T + (0.0 if head.biases is None else np.abs(head.biases))
    return np.asarray(sizes.max(axis=1))


def _chosen(head: CapturedHead, top: int) -> IntArray:
    """The ``top`` best keys of each row, best first; rows with scores closer than their rounding in rationals."""
    scores = head.scores
    order = np.argsort(-scores, axis=1, kind="stable")
    down = np.take_along_axis(scores, order, axis=1)
    error = dot_error(head.keys.shape[1], _sizes(head))
    doubtful = ~((down[:, :-1] - down[:, 1:])[:, :top] > 2 * error[:, None]).all(axis=1)
    for row in np.flatnonzero(doubtful):
        biases = np.zeros(head.n_keys) if head.biases is None else head.biases
        exact = exact_scores(head.queries[row], head.keys, biases)
        order[row] = sorted(range(head.n_keys), key=lambda j: (-exact[j], j))
    return np.ascontiguousarray(order[:, :top])

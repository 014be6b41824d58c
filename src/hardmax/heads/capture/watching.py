"""Attention that a model writes out itself: softmax over products of queries and keys, then a product with values.

While a model runs, the functions of torch that it calls are watched. A product of two tensors is remembered on its
result, and followed through scaling, added terms, masks, capping and reshaping; where such scores enter a softmax and
its result a product with values, one attention is told. ``scaled_dot_product_attention`` is told as it is. What is
told is compared with the weights that the model has: a step that is not known here is noticed, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.capture.calls import AttentionCall, Note, hidden_as_infinite
from hardmax.heads.capture.packages import following, to_numpy

#: The call of torch's multi_head_attention_forward, and its result from other results of its heads.
Projected: TypeAlias = "Callable[[str, Mapping[str, Any], Any], tuple[AttentionCall, Callable[[FloatArray], Any]]]"
#: A score this low is a hidden key: models write it in the place of scores, and its weight is zero beside any other.
_HIDDEN = -1e4
_SCORES, _WEIGHTS, _MIXED = "_hardmax_scores", "_hardmax_weights", "_hardmax_mixed"
_Given = dict[str, Any]  # the arguments of a function by their names, in order


@dataclass(frozen=True, eq=False)
class _Scores:
    """What a tensor of scores (\\*lead, n_q, n_k) is: ``scale * queries keys^T + added``, or that capped by tanh."""

    queries: Any  # (*lead, n_q, d)
    keys: Any  # (*lead, n_k, d)
    scale: float = 1.0
    added: Any = None  # broadcasts to the scores; what is added to capped scores, where there is a cap
    cap: float | None = None  # cap * tanh(scale * queries keys^T)
    is_learnt: bool = False  # one factor is a parameter of the model
    blank: Any = None  # where a mask of zeros and ones has blotted scores out, until what is added there hides them

    def values(self, torch: Any) -> Any:
        """The numbers themselves, as torch computes them."""
        found = self.scale * (self.queries @ self.keys.transpose(-1, -2))
        found = found if self.cap is None else self.cap * torch.tanh(found)
        return found if self.added is None else found + self.added

    def times(self, factor: Any) -> _Scores | None:
        """Scaled by a number, by a tensor that is constant along the keys, or by zeros and ones; None for any other."""
        if self.blank is not None:
            return None
        added = None if self.added is None else self.added * factor
        if isinstance(factor, float):
            if self.cap is not None:
                return replace(self, cap=self.cap * factor, added=added)
            return replace(self, scale=self.scale * factor, added=added)
        if self.cap is not None or factor.dim() > self.queries.dim():
            return None
        if factor.shape[-1:] != (1,):
            is_mask = bool(((factor == 0) | (factor == 1)).all())
            return replace(self, blank=factor == 0) if is_mask and self.added is None else None
        return replace(self, queries=self.queries * factor, added=added)

    def plus(self, term: Any) -> _Scores | None:
        """With a number or tensor added; what is blank must be hidden by it."""
        if self.blank is not None:
            if not hasattr(term, "shape") or not bool((term.expand(self.blank.shape)[self.blank] <= _HIDDEN).all()):
                return None
            return replace(self, blank=None, added=term.masked_fill(self.blank, -float("inf")))
        return replace(self, added=term if self.added is None else self.added + term)

    def capped(self) -> _Scores | None:
        return replace(self, cap=1.0) if self.cap is None and self.added is None and self.blank is None else None

    def shaped(self, old: Any, new: Any) -> _Scores:
        """In a tensor whose first axes are grouped in another way."""
        added = self.added
        if added is not None and hasattr(added, "expand"):
            added = added.expand(*old, *added.shape[-2:]).reshape(*new, *added.shape[-2:]) if added.dim() > 2 else added
        parts = (part.reshape(*new, *part.shape[-2:]) for part in (self.queries, self.keys))
        return replace(self, added=added, **dict(zip(("queries", "keys"), parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _Weights:
    """A softmax over the last axis: of scores that are known, or of others."""

    scores: _Scores | None
    own: Any  # as the model computed them
    where: str
    uses: list[int]  # how often values were multiplied by it, in one place for all that are made of it


class Watcher:
    """Sees the functions of torch that a model calls, and tells ``note`` of each attention among them.

    ``untold`` lists the places of attention that could not be followed, ``told_of`` the ids of the modules in which
    some was told.
    """

    def __init__(self, torch: Any, module: Any, note: Note, told_of: set[int], projected: Projected) -> None:
        self.torch, self.note, self.told_of, self._projected = torch, note, told_of, projected
        self.n_told = 0
        self.leads: list[tuple[int, ...]] = []  # the axes before the last two, and the queries, of what was followed
        self.untold: list[str] = []
        self._stack: list[tuple[Any, str]] = []
        self._module, self._paused = module, 0
        self._open: dict[int, _Weights] = {}  # softmaxes of known scores that no values were multiplied by yet
        self._last_added: FloatArray | None = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While inside, nothing is seen."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """While inside, everything is seen."""
        with following(self._module, self._stack, self._called):
            yield
        self.untold += [weights.where for weights in self._open.values()]

    @property
    def here(self) -> str:
        """The module that is running."""
        part, name = self._innermost
        return f"{name} ({type(part).__name__})" if name else type(part).__name__

    @property
    def _innermost(self) -> tuple[Any, str]:
        return self._stack[-1] if self._stack else (self._module, "")

    def mark(self) -> None:
        """Note that attention was told of in every module that is running."""
        self.n_told += 1
        self.told_of.update(id(part) for part, _ in self._stack)

    # --- functions ------------------------------------------------------------------------------

    def _called(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if name in _RULES and not self._paused:
            rule, order = _RULES[name]
            result = rule(self, name, dict(zip(order, args, strict=False)) | dict(kwargs), result)
            if rule not in _ENDING:
                self._mix(name, args, result)
            return result
        self._mix(name, args, result)
        changes = name == "__setitem__" or (name.endswith("_") and not name.startswith("__")) or name[:3] == "__i"
        if changes and args and hasattr(args[0], "__dict__"):  # what was known of the tensor is no longer so
            for known in (_SCORES, _WEIGHTS):
                args[0].__dict__.pop(known, None)
        return result

    def _mix(self, name: str, args: Any, result: Any) -> None:
        """Scores that a step unknown here has changed, those of several heads together say, are still some: a softmax
        of them is noticed, and one that is written out by exponentials too."""
        is_known = isinstance(result, self.torch.Tensor) and getattr(result, _SCORES, None) is None
        for given in args if is_known and result.is_floating_point() else ():
            scores = getattr(given, _SCORES, None)
            is_some = getattr(given, _MIXED, False) or (scores is not None and not self._is_of_weights(scores))
            if is_some and result is not given and sorted(given.shape) == sorted(result.shape):
                setattr(result, _MIXED, True)
                if name in ("exp", "exp2"):
                    self.untold.append(self.here)

    def _is_of_weights(self, scores: _Scores) -> bool:
        """Whether one factor is a parameter, or a view of one: then the product may be a layer."""
        views = (getattr(part, "_base", None) for part in (scores.queries, scores.keys))
        return scores.is_learnt or self._is_learnt(*views)

    def _product(self, name: str, given: _Given, result: Any) -> Any:
        left, right = [*given.values()][:2]
        return self._multiplied(left, right, result, lambda heads: heads.reshape(result.shape))

    def _baddbmm(self, name: str, given: _Given, result: Any) -> Any:
        self._known(result, given["batch1"], given["batch2"].transpose(-1, -2), learnt=False)
        scores = getattr(result, _SCORES, None)
        alpha, beta = float(given.get("alpha", 1)), float(given.get("beta", 1))
        if scores is not None:
            term = None if beta == 0 else given["input"] * beta
            setattr(result, _SCORES, replace(scores, scale=alpha, added=term))
        return result

    def _einsum(self, name: str, given: _Given, result: Any) -> Any:
        equation, *operands = given.values()
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = list(operands[0])
        if len(operands) != 2 or not isinstance(equation, str) or "." in equation or "->" not in equation:
            return result
        (first, second), wanted = equation.replace(" ", "").split("->")[0].split(","), equation.split("->")[1].strip()
        left, right = operands
        if getattr(right, _WEIGHTS, None) is not None:
            first, second, left, right = second, first, right, left
        both = set(first) & set(second)
        summed, own, others = both - set(wanted), set(first) - both, set(second) - both
        if min(len(summed), len(own), len(others)) != 1 or max(len(summed), len(own), len(others)) != 1:
            return result
        (d,), (i,), (j,) = summed, own, others
        if getattr(left, _WEIGHTS, None) is not None:
            lead = first[:-2]
            order = lead + i + j
            if first[-2:] != i + d or sorted(wanted) != sorted(order) or set(second) != {*lead, d, j}:
                return result
            values = right.permute([second.index(c) for c in lead + d + j])
            shape, back = [result.shape[wanted.index(c)] for c in order], [order.index(c) for c in wanted]
            return self._multiplied(left, values, result, lambda heads: heads.reshape(shape).permute(back))
        if wanted[-2:] == j + i:
            first, second, left, right, i, j = second, first, right, left, j, i
        lead = wanted[:-2]
        if wanted[-2:] != i + j or set(lead) != both - summed:
            return result
        queries = left.permute([first.index(c) for c in lead + i + d])
        keys = right.permute([second.index(c) for c in lead + j + d])
        return self._known(result, queries, keys, learnt=self._is_learnt(left, right))

    def _scaled(self, name: str, given: _Given, result: Any) -> Any:
        left, right = [*given.values()][:2]
        divides = "div" in name
        is_swapped = getattr(left, _SCORES, None) is None
        scores = getattr(right if is_swapped and not divides else left, _SCORES, None)
        other = left if is_swapped else right
        factor = self._factor(other, divides) if scores is not None else None
        return self._now(result, scores.times(factor) if scores is not None and factor is not None else None)

    def _factor(self, other: Any, divides: bool) -> Any:
        if isinstance(other, int | float):
            return (1 / other if other else None) if divides else float(other)
        if not isinstance(other, self.torch.Tensor) or not other.is_floating_point():
            return float(other) if isinstance(other, np.number) else None
        if other.numel() == 1:
            number = float(other)
            return (1 / number if number else None) if divides else number
        return 1 / other if divides else other

    def _summed(self, name: str, given: _Given, result: Any) -> Any:
        left, right = [*given.values()][:2]
        scores, other = getattr(left, _SCORES, None), right
        if scores is None and "sub" not in name:
            scores, other = getattr(right, _SCORES, None), left
        if scores is None or "alpha" in given:
            return self._now(result, None)
        is_tensor = isinstance(other, self.torch.Tensor)
        if is_tensor:
            other = other.clone()  # what is added later may be done in its place
        if is_tensor and result.dim() > scores.queries.dim():
            return self._now(result, None)
        return self._now(result, scores.plus(-other if "sub" in name else other))

    def _filled(self, name: str, given: _Given, result: Any) -> Any:
        scores, weights = getattr(given["input"], _SCORES, None), getattr(given["input"], _WEIGHTS, None)
        if weights is not None and isinstance(given["value"], int | float) and given["value"] == 0:
            setattr(result, _WEIGHTS, replace(weights, own=result))  # zero they are; compared with the others
            return result
        return self._now(result, None if scores is None else self._hidden(scores, given["mask"], given["value"]))

    def _chosen(self, name: str, given: _Given, result: Any) -> Any:
        if len(given) < 3:
            return result
        scores = getattr(given["input"], _SCORES, None)
        if scores is not None:
            return self._now(result, self._hidden(scores, ~given["condition"], given["other"]))
        scores = getattr(given["other"], _SCORES, None)
        return self._now(result, None if scores is None else self._hidden(scores, given["condition"], given["input"]))

    def _hidden(self, scores: _Scores, mask: Any, value: Any) -> _Scores | None:
        """The scores with those under the mask hidden; None where the value there is one that a key could have."""
        highest = float(value.max()) if isinstance(value, self.torch.Tensor) else float(value)
        if highest > _HIDDEN:
            return None
        torch, like = self.torch, scores.queries
        hidden = torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask.bool(), -torch.inf)
        if scores.blank is not None:
            return None
        return scores.plus(hidden)

    def _floor(self, name: str, given: _Given, result: Any) -> Any:
        """A maximum with a number so low that it changes hidden scores alone."""
        source, *others = given.values()
        scores = getattr(source, _SCORES, None)
        if scores is None or not others or not isinstance(result, self.torch.Tensor):
            return result
        other = others[0]
        is_low = isinstance(other, self.torch.Tensor) and float(other.max()) <= _HIDDEN
        return self._now(result, scores if is_low or (isinstance(other, float) and other <= _HIDDEN) else None)

    def _tanh(self, name: str, given: _Given, result: Any) -> Any:
        scores = getattr(given.get("input"), _SCORES, None)
        return self._now(result, None if scores is None else scores.capped())

    def _moved(self, name: str, given: _Given, result: Any) -> Any:
        """The same entries in another type or with other axes before the last two."""
        source: Any = given.get("input")
        scores, weights = getattr(source, _SCORES, None), getattr(source, _WEIGHTS, None)
        if scores is None and weights is None:
            return result
        before = source.shape
        is_kept = isinstance(result, self.torch.Tensor) and result.is_floating_point() and result.dim() >= 2
        if not is_kept or result.shape[-2:] != before[-2:] or result.numel() != prod(before):
            return result
        if weights is not None:
            setattr(result, _WEIGHTS, weights)
        elif scores is not None and result is not source:
            setattr(result, _SCORES, scores.shaped(before[:-2], result.shape[:-2]))
        return result

    def _softmax(self, name: str, given: _Given, result: Any) -> Any:
        source, axis = given.get("input", given.get("self")), given.get("dim")
        if getattr(source, _MIXED, False) and getattr(source, _SCORES, None) is None:
            self.untold.append(self.here)
        if axis in (-1, result.dim() - 1) and result.dim() >= 2:
            scores = getattr(source, _SCORES, None)
            scores = None if scores is None or scores.blank is not None else scores
            weights = _Weights(scores, result, self.here, [0])
            setattr(result, _WEIGHTS, weights)
            if scores is not None and not scores.is_learnt:
                self._open[id(weights.uses)] = weights
        return result

    def _attention(self, name: str, given: _Given, result: Any) -> Any:
        """torch's own function of queries, keys and values."""
        torch = self.torch
        query, key, value = given["query"], given["key"], given["value"]
        scale = query.shape[-1] ** -0.5 if given.get("scale") is None else float(given["scale"])
        added = given.get("attn_mask")
        if given.get("is_causal"):
            seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
            added = torch.zeros_like(seen, dtype=query.dtype).masked_fill(~seen, -torch.inf)
        elif added is not None and added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=query.dtype).masked_fill(~added, -torch.inf)
        scores = _Scores(query, key, scale, added)
        return self._tell(scores, None, value, result, lambda heads: heads.reshape(result.shape))

    def _whole(self, name: str, given: _Given, result: Any) -> Any:
        """torch's function behind ``nn.MultiheadAttention``, where a model calls it by itself."""
        part, place = self._innermost
        if isinstance(part, self.torch.nn.MultiheadAttention):
            return result  # its hook tells
        call, mixed = self._projected(place or type(part).__name__, given, result[0])
        self.mark()
        replaced = self.note(call)
        return result if replaced is None else (mixed(replaced), result[1])

    # --- what is known ----------------------------------------------------------------------------

    def _now(self, result: Any, scores: _Scores | None) -> Any:
        """The result of a function, with what is known of it; some functions write into what they are given."""
        if isinstance(result, self.torch.Tensor):
            result.__dict__.pop(_SCORES, None)
            result.__dict__.pop(_WEIGHTS, None)
            if scores is not None and result.shape[-2:] == (scores.queries.shape[-2], scores.keys.shape[-2]):
                setattr(result, _SCORES, scores)
        return result

    def _is_learnt(self, *factors: Any) -> bool:
        return any(isinstance(factor, self.torch.nn.Parameter) for factor in factors)

    def _known(self, result: Any, queries: Any, keys: Any, *, learnt: bool) -> Any:
        """A product, known as one of queries (..., n_q, d) and keys (..., n_k, d), all with the result's first axes."""
        if min(queries.dim(), keys.dim()) >= 2 and result.is_floating_point():
            queries, keys = (part.expand(*result.shape[:-2], *part.shape[-2:]) for part in (queries, keys))
            setattr(result, _SCORES, _Scores(queries, keys, is_learnt=learnt))
        return result

    def _multiplied(self, left: Any, right: Any, result: Any, back: Callable[[Any], Any]) -> Any:
        """A product: of weights and values, which is attention, or of any two tensors, which may become scores."""
        weights = getattr(left, _WEIGHTS, None)
        if not isinstance(right, self.torch.Tensor) or min(left.dim(), right.dim()) < 2:
            return result
        if weights is None:
            return self._known(result, left, right.transpose(-1, -2), learnt=self._is_learnt(left, right))
        weights.uses[0] += 1
        if weights.scores is None or weights.uses[0] > 1:  # other scores, or values in two parts
            if not self._is_learnt(right):
                self.untold.append(weights.where)
            return result
        self._open.pop(id(weights.uses), None)
        lead = weights.own.shape[:-2]
        values = right.expand(*left.shape[:-2], *right.shape[-2:]).reshape(*lead, *right.shape[-2:])
        return self._tell(weights.scores, weights.own, values, result, back)

    def _tell(self, scores: _Scores, own: Any, values: Any, result: Any, back: Callable[[Any], Any]) -> Any:
        call = self._call(scores, own, values, result)
        if call is None:
            self.untold.append(self.here)
            return result
        self.mark()
        self.leads.append(tuple(scores.queries.shape[:-1]))
        replaced = self.note(call)
        return result if replaced is None else back(self.torch.from_numpy(replaced).to(result))

    def _call(self, scores: _Scores, own: Any, values: Any, result: Any) -> AttentionCall | None:
        """The call, after its weights (or, of torch's own function, its results) were compared with the model's."""
        torch = self.torch
        n_heads = prod(scores.queries.shape[:-2])
        wide = torch.promote_types(scores.queries.dtype, torch.float32)
        raw = replace(scores, queries=scores.queries.to(wide), keys=scores.keys.to(wide))
        if own is None:  # grouped keys are repeated for the comparison alone
            share = n_heads // max(1, prod(scores.keys.shape[:-2]))
            raw = replace(raw, keys=_repeated(raw.keys, share))
            computed = torch.softmax(raw.values(torch).to(wide), dim=-1) @ _repeated(values.to(wide), share)
            given = result
        else:
            computed, given = torch.softmax(raw.values(torch), dim=-1), own
        size = max(1.0, float(given.abs().max())) if own is None else 1.0
        limit = max(torch.finfo(kind).eps for kind in (given.dtype, torch.float32)) ** 0.5
        if not bool(((computed - given).abs() <= limit * size).all()):
            return None
        added = None if scores.added is None else self._added(scores)
        scale, cap = scores.scale, scores.cap
        if cap is not None:
            if cap <= 0 or (added is not None and added[np.isfinite(added)].any()):
                return None
            scale *= cap
        queries = scores.queries
        if not scale > 0:
            queries, scale = queries * scale, 1.0
        arrays = [to_numpy(part).reshape(1, -1, *part.shape[-2:]) for part in (queries, scores.keys, values)]
        part, name = self._innermost
        return AttentionCall(
            name or type(part).__name__, arrays[0], arrays[1], arrays[2], 1 / scale, added,
            positions=_positions(arrays[0], arrays[1], added), softcap=cap,
        )  # fmt: skip

    def _added(self, scores: _Scores) -> FloatArray:
        """What is added to the scores, (1, heads or 1, n_q or 1, n_k); one array for all layers that add the same."""
        added, torch = scores.added, self.torch
        if not isinstance(added, torch.Tensor):
            added = torch.full((1, 1), float(added))
        shape = (*(1,) * (2 - added.dim()), *added.shape)
        if prod(shape[:-2]) > 1:
            array = to_numpy(added.expand(*scores.queries.shape[:-2], *shape[-2:]).reshape(1, -1, *shape[-2:]))
        else:
            array = to_numpy(added).reshape(1, 1, *shape[-2:])
        array = np.broadcast_to(array, (*array.shape[:-1], scores.keys.shape[-2]))
        lowest = torch.finfo(scores.queries.dtype).min / 2
        found = hidden_as_infinite(array, max(lowest, -1e30))
        if self._last_added is not None and np.array_equal(self._last_added, found):
            return self._last_added
        self._last_added = found
        return found


def _repeated(tensor: Any, share: int) -> Any:
    return tensor if share == 1 else tensor.repeat_interleave(share, dim=-3)


def _positions(queries: FloatArray, keys: FloatArray, added: FloatArray | None) -> tuple[IntArray, IntArray] | None:
    """The places of queries and keys, where a causal mask says that they come from one sequence."""
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    if added is None or n_queries != n_keys or n_queries < 2 or added.shape[2] != n_queries:
        return None
    later = np.triu(np.ones((n_queries, n_keys), dtype=bool), k=1)
    sees_itself = (added[:, :, np.eye(n_queries, dtype=bool)] > -np.inf).all()
    is_causal = sees_itself and (added[:, :, later] == -np.inf).all()
    places = np.arange(n_keys)
    return (places, places) if is_causal else None


_MOVING = """view reshape unsqueeze squeeze flatten unflatten to float double half bfloat16 type type_as contiguous
    clone detach dropout"""
_PROJECTING = """query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn
    dropout_p out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask use_separate_proj_weight
    q_proj_weight k_proj_weight v_proj_weight static_k static_v average_attn_weights is_causal"""
#: What is made of a call, by the function's name, and what its arguments are called in order.
_RULES: dict[str, tuple[Callable[[Watcher, str, _Given, Any], Any], list[str]]] = {
    name: (rule, order.split())
    for rule, names, order in (
        (Watcher._product, "matmul __matmul__ bmm", "input other"),
        (Watcher._baddbmm, "baddbmm", "input batch1 batch2"),
        (Watcher._einsum, "einsum", "equation first second third"),
        (Watcher._scaled, "mul __mul__ __rmul__ mul_ __imul__ multiply", "input other"),
        (Watcher._scaled, "div __truediv__ div_ __itruediv__ true_divide divide", "input other"),
        (Watcher._summed, "add __add__ __radd__ add_ __iadd__ sub __sub__ sub_ __isub__", "input other"),
        (Watcher._filled, "masked_fill masked_fill_", "input mask value"),
        (Watcher._chosen, "where", "condition input other"),
        (Watcher._floor, "max maximum clamp_min", "input other"),
        (Watcher._tanh, "tanh", "input"),
        (Watcher._moved, _MOVING, "input"),
        (Watcher._softmax, "softmax", "input dim"),
        (Watcher._attention, "scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale"),
        (Watcher._whole, "multi_head_attention_forward", _PROJECTING),
    )
    for name in names.split()
}
#: Behind these nothing is a score any more.
_ENDING = (Watcher._product, Watcher._baddbmm, Watcher._einsum, Watcher._softmax, Watcher._attention, Watcher._whole)

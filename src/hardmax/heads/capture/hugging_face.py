"""Hugging Face encoders and decoders, through the function that every model of theirs calls for attention.

transformers lets each model choose its attention function by name. While a model is captured its choice is a
function of ours, which notes what it is given and then calls the model's plain ("eager") function. What
arrives there has been through rotary embeddings; the mask holds causality, windows and padding; keys come
with fewer heads than queries where they are grouped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError, needing
from hardmax.exactness import FloatArray, IntArray, detached, one_tensor
from hardmax.heads.capture.calls import (
    AttentionCall,
    NameTokens,
    Note,
    heads_of_calls,
    hidden_as_infinite,
    named_capture,
)
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.packages import LISTENING, evaluating, to_numpy
from hardmax.heads.capture.torch_encoders import watching
from hardmax.heads.capture.watching import Watcher
from hardmax.networks.files.hf_models import OTHER_SEQUENCES, attending, check_tokens
from hardmax.networks.files.opening import refusing

_NAME = "hardmax_capture"


@dataclass(frozen=True, eq=False)
class _Listener:
    """What the attention function tells of its calls, and what the model calls its modules."""

    note: Note
    names: dict[int, str]
    told_of: set[int]  # the modules whose attention was noted
    watcher: Watcher
    masks: list[tuple[Any, Any]]  # the last mask of the model and the same as an array: layers share it

    def added(self, terms: list[Any], lowest: float) -> Any:
        """What is added to the scores, as an array; the same one as long as the model adds the same tensor."""
        if not terms:
            return None
        arrays = []
        for term in terms:
            known = [array for tensor, array in self.masks if tensor is term]
            arrays.append(known[0] if known else hidden_as_infinite(to_numpy(term), lowest))
        self.masks[:] = zip(terms, arrays, strict=True)
        return sum(arrays[1:], arrays[0])


_LISTENER: ContextVar[_Listener | None] = ContextVar(_NAME, default=None)


def capture_hugging_face(model: Any, inputs: Any, name_tokens: NameTokens) -> tuple[Capture, ...]:
    """What every attention head of the model sees, one capture for each sequence.

    ``inputs`` are token numbers (a list, an array, or one for each sequence), or a mapping as a tokenizer
    gives it. Sequences run one by one, without their padding, in evaluation mode.
    """
    captures = []
    for position, arguments in enumerate(sequences(model, inputs)):
        calls = attention_calls(model, arguments)
        captures.append(named_capture(type(model).__name__, heads_of_calls(calls), position, name_tokens))
    return tuple(captures)


def attention_calls(model: Any, arguments: Mapping[str, Any]) -> list[AttentionCall]:
    """Every attention of one run of the model on one sequence, in order."""
    torch, _ = _libraries()
    calls: list[AttentionCall] = []
    shapes = {key: tuple(value.shape) for key, value in arguments.items() if hasattr(value, "shape")}
    refused = refusing(
        ShapeError, f"{type(model).__name__} fails on inputs {shapes}", "; pass what its tokenizer gives"
    )
    with evaluating(model), recording(model, calls), torch.no_grad(), refused:
        model(**arguments)
    if not calls:
        raise EmptyError(
            f"expected a model with attention, got {type(model).__name__}, which computed none of the form "
            "softmax(queries keys^T) values on this input; models that mix tokens in another way (state spaces, linear "
            f"attention, Fourier transforms) have no heads, and there is no way to capture them{_audited(model)}"
        )
    return calls


def _audited(model: Any) -> str:
    """What still works for a model without heads."""
    has_output = callable(getattr(model, "get_output_embeddings", None)) and model.get_output_embeddings() is not None
    return "; its classes can be asked about: hm.audit_classes(model)" if has_output else ""


def recording(model: Any, calls: list[AttentionCall]) -> AbstractContextManager[None]:
    """While inside, the model's attention is ours and every call of it is appended to ``calls``."""
    return noting(model, calls.append)


@contextmanager
def noting(model: Any, note: Note) -> Iterator[None]:
    """While inside, ``note`` is told every call of the model's attention, and may give other results for it."""
    _, transformers = _libraries()
    parts = [part for part in model.modules() if isinstance(part, transformers.PreTrainedModel)]
    asking = [part for part in parts if _asks_by_name(part)] if _registered() else []
    names = {id(part): name for name, part in model.named_modules()}
    told_of: set[int] = set()
    note = _of_one_sequence(note)
    with LISTENING, watching(model, note, told_of) as watcher:
        listener = _LISTENER.set(_Listener(note, names, told_of, watcher, []))
        try:
            with attending(asking, _NAME):
                yield
        finally:
            _LISTENER.reset(listener)


def _asks_by_name(part: Any) -> bool:
    """Whether a model looks its attention up by name where ours is registered; others are watched as they are.

    Some have a table of their own. By torch's function some versions drop the cap of the plain one, which is ours.
    """
    config = part.config
    if config._attn_implementation == "sdpa" and getattr(config, "attn_logit_softcapping", None) is not None:
        return False
    files = {kind.__module__ for module in part.modules() for kind in type(module).__mro__}
    files.discard("transformers.modeling_utils")  # where the table is made
    return any(hasattr(sys.modules.get(file), "ALL_ATTENTION_FUNCTIONS") for file in files)


def _registered() -> bool:
    """Whether models of this transformers can be given an attention function of ours; older ones are watched alone."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import eager_mask
    except ImportError:
        return False
    # The names stay registered, for transformers has no way to take one back; nobody uses them but models in here.
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, eager_mask)
    return True


def _attention(
    module: Any,
    query: Any,  # (batch, heads, n_q, d_k)
    key: Any,  # (batch, key heads, n_k, d_k)
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Any, Any]:
    """The model's own plain attention, which also notes what it was given.

    What was noted is compared with the weights that the model computes: a model may change its scores by an
    argument that is not known here.
    """
    listener = _LISTENER.get()
    if listener is None:
        return _noted(None, module, (query, key, value), attention_mask, scaling, {"dropout": dropout, **others})
    listener.watcher.mark()
    with listener.watcher.paused():
        return _noted(listener, module, (query, key, value), attention_mask, scaling, {"dropout": dropout, **others})


def _noted(
    listener: _Listener | None, module: Any, parts: tuple[Any, ...], mask: Any, scaling: float | None, others: Any
) -> tuple[Any, Any]:
    torch, _ = _libraries()
    query, key, value = parts
    name = type(module).__name__ if listener is None else listener.names.get(id(module), type(module).__name__)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    given = [term for term in (mask, others.get("position_bias")) if term is not None]
    terms = [_as_numbers(torch, term, query.dtype, key.shape[-2]) for term in given]
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, dim=1).transpose(-1, -2) * scale
    cap, sinks = others.get("softcap"), others.get("s_aux")
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = sum(terms, scores)
    if sinks is not None:  # one more score for each head, of a key without a value
        scores = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1).to(scores)], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(query.dtype)
    weights = weights if sinks is None else weights[..., :-1]
    own = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    if own is None:
        result = (weights @ value.repeat_interleave(groups, dim=1)).transpose(1, 2).contiguous(), weights
    else:
        result = own(module, query, key, value, mask, scaling=scaling, **others)
        _compare(torch, name, weights, result[1])
    if listener is not None:
        arrays = (to_numpy(query), to_numpy(key), to_numpy(value))
        added = listener.added(terms, torch.finfo(query.dtype).min / 2)
        listener.told_of.add(id(module))
        places = _positions(module, *arrays[:2])
        call = AttentionCall(name, *arrays, 1 / scale, added, positions=places, softcap=cap)
        if sinks is not None:
            call = _with_sink(call, to_numpy(sinks).reshape(-1))
        replaced = listener.note(call)
        if replaced is not None:
            return torch.from_numpy(replaced).to(query).transpose(1, 2).contiguous(), result[1]
    return result


def _with_sink(call: AttentionCall, sinks: FloatArray) -> AttentionCall:
    """The call with one more key, zero, whose bias is the head's sink and whose value is zero."""
    heads, n_queries, n_keys = (*call.queries.shape[1:3], call.keys.shape[2])
    added = np.zeros((1, heads, n_queries, n_keys + 1))
    if call.added is not None:
        added = np.repeat(added, len(call.added), axis=0)
        added[..., :-1] = call.added
    added[..., -1] = sinks[:, None]
    keys, values = (np.pad(part, ((0, 0), (0, 0), (0, 1), (0, 0))) for part in (call.keys, call.values))
    places = None if call.positions is None else (call.positions[0], np.append(call.positions[1], -1))
    return replace(call, keys=keys, values=values, added=added, positions=places)


def _of_one_sequence(note: Note) -> Note:
    """The note, told of windows that a model folds into the batch as of heads of their own: window by window.

    Sequences run one by one, so more than one row of a batch is parts of one input, and each has keys of its own.
    """

    def of_one(call: AttentionCall) -> FloatArray | None:
        replaced = note(call if len(call.queries) == 1 else _unfolded(call))
        return None if replaced is None else replaced.reshape(*call.queries.shape[:3], -1)

    return of_one


def _unfolded(call: AttentionCall) -> AttentionCall:
    batch, heads = call.queries.shape[:2]
    queries, keys, values = (part.reshape(1, -1, *part.shape[2:]) for part in (call.queries, call.keys, call.values))
    added = call.added
    if added is not None and added.shape[:2] != (1, 1):
        added = np.broadcast_to(added, (batch, heads, *added.shape[2:])).reshape(1, -1, *added.shape[2:])
    return replace(call, queries=queries, keys=keys, values=values, added=added, positions=None)


def _positions(module: Any, queries: FloatArray, keys: FloatArray) -> tuple[IntArray, IntArray] | None:
    """The places of queries and keys in one sequence, cached keys first; None unless the module attends to its own.

    A causal module that is not called a cross-attention does, and so does any in a model without cross-attention,
    where there are as many keys as queries.
    """
    config = getattr(module, "config", None)
    is_alone = config is not None and not (
        getattr(config, "is_encoder_decoder", False) or getattr(config, "add_cross_attention", False)
    )
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    is_own = getattr(module, "is_causal", False) is True and n_keys >= n_queries
    is_cross = getattr(module, "is_cross_attention", False) or "cross" in type(module).__name__.lower()
    if is_cross or not (is_own or (is_alone and n_keys == n_queries)):
        return None
    places = np.arange(n_keys)
    return places[n_keys - n_queries :], places


def _compare(torch: Any, name: str, weights: Any, own: Any) -> None:
    """Refuses weights that are not those the model computes by itself."""
    if own is None or own.shape != weights.shape:
        return
    difference = float((own - weights).abs().max())
    # models in double precision may still take their softmax in single
    if difference > max(torch.finfo(kind).eps for kind in (weights.dtype, torch.float32)) ** 0.5:
        raise OperatorError(
            f"{name}: the weights differ from softmax(queries keys^T + mask) by {difference:.2g}, so this attention "
            "is of a kind that is not known here and cannot be captured"
        )


def _as_numbers(torch: Any, mask: Any, dtype: Any, n_keys: int) -> Any:
    """A mask as numbers added to the scores, (batch or 1, heads or 1, n_q or 1, n_k)."""
    if mask.shape[-1] > n_keys:
        mask = mask[..., :n_keys]
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask.cpu(), torch.finfo(dtype).min).to(mask.device)


def sequences(model: Any, inputs: Any) -> list[dict[str, Any]]:
    """The arguments of the model for each sequence, with a batch axis of one and no padding."""
    torch, _ = _libraries()
    if any(weight.is_meta for weight in model.parameters()):
        raise ParameterError(f"expected a {type(model).__name__} with weights, got one on the meta device; load them")
    if not isinstance(inputs, Mapping):
        return [{"input_ids": ids[None].to(model.device)} for ids in _token_numbers(torch, model, inputs)]
    if not inputs:
        raise EmptyError("inputs: expected what a tokenizer gives, got an empty mapping")
    given: dict[str, Any] = {}
    for key, value in inputs.items():
        with refusing(ShapeError, f"inputs[{key!r}]: expected an array, got rows of several lengths"):
            is_tensor = isinstance(value, torch.Tensor)
            given[key] = one_tensor(key, value) if is_tensor else torch.as_tensor(np.asarray(value))
        if given[key].dim() == 1:
            given[key] = given[key][None]
    if len({len(value) for value in given.values()}) > 1:
        raise ShapeError(f"inputs: expected one row a sequence in each of {sorted(given)}, got several counts")
    mask = given.get("attention_mask")
    # labels of an encoder with a decoder are the decoder's
    others = (*OTHER_SEQUENCES, "labels") if getattr(model.config, "is_encoder_decoder", False) else OTHER_SEQUENCES
    result = []
    for row in range(len(next(iter(given.values())))):
        if mask is not None and "position_ids" not in given:
            _refuse_gaps(mask[row], row)
        arguments = {}
        for key, value in given.items():
            part = value[row]
            if mask is not None and part.shape[:1] == mask[row].shape and not key.startswith(others):
                part = part[mask[row].bool()]
            arguments[key] = part[None]
        if "input_ids" in arguments:
            arguments["input_ids"] = _checked(torch, model, arguments["input_ids"][0], row)[None]
            _refuse_packed(arguments, row)
        result.append({key: part.to(model.device) for key, part in arguments.items()})
    return result


def _refuse_gaps(mask: Any, row: int) -> None:
    """Refuses a mask that hides tokens between others, which keep their places in the model's own run."""
    shown = mask.bool().nonzero().reshape(-1) if mask.dim() == 1 else mask[:0]
    if len(shown) and int(shown[-1] - shown[0]) >= len(shown):
        raise ParameterError(
            f"sequence {row}: expected an attention_mask that hides padding at the ends, got one that hides tokens "
            "between others; leave them out of input_ids, or say with position_ids where the others stand"
        )


def _refuse_packed(arguments: Mapping[str, Any], row: int) -> None:
    """Refuses several texts in one row: models keep them apart or mix them, as their cache goes."""
    places = arguments.get("position_ids")
    if places is None or places.shape != arguments["input_ids"].shape:
        return
    again = (places[0, 1:] <= places[0, :-1]).nonzero()
    if len(again):
        raise ParameterError(
            f"sequence {row}: expected one text, got position_ids that start again at token {int(again[0]) + 1}, so "
            "several texts in one row; pass each as a sequence of its own, hm.capture(model, [ids, ids, ...])"
        )


def _token_numbers(torch: Any, model: Any, inputs: Any) -> list[Any]:
    if isinstance(inputs, str):
        raise ParameterError(
            "inputs: expected token numbers, got a text; a model alone has no tokenizer. Pass "
            "tokenizer(text), or use a model of hm.models"
        )
    rows: Sequence[Any] = inputs
    if not isinstance(inputs, torch.Tensor | np.ndarray):
        if not isinstance(inputs, Sequence):
            raise ParameterError(f"inputs: expected token numbers, got a {type(inputs).__name__}")
        if not len(inputs):
            raise EmptyError("inputs: expected at least one token, got none")
        if not isinstance(inputs[0], Sequence | torch.Tensor | np.ndarray):
            rows = [inputs]
    elif inputs.ndim == 1:
        rows = [inputs]
    return [_checked(torch, model, row, position) for position, row in enumerate(rows)]


def _checked(torch: Any, model: Any, row: Any, position: int) -> Any:
    """Token numbers of one sequence: integers, in the vocabulary, within the context."""
    with refusing(ParameterError, f"sequence {position}: expected token numbers, got {row!r:.80}"):
        ids = np.asarray(detached(row))
    if ids.ndim != 1:
        raise ShapeError(f"sequence {position}: expected a list of token numbers, got shape {ids.shape}")
    check_tokens(f"sequence {position}", ids, getattr(model.config, "vocab_size", None))
    check_length(type(model).__name__, len(ids), getattr(model.config, "max_position_embeddings", None), position)
    return torch.from_numpy(ids.astype(np.int64))


def check_length(model: str, n_tokens: int, context: int | None, position: int) -> None:
    """Refuses a sequence that is longer than the model's context."""
    if context is not None and 0 < context < n_tokens:  # some models write -1 for no limit
        raise ParameterError(
            f"{model}: text {position} has {n_tokens} tokens, more than the model's context of {context}; shorten "
            "it, or split it and capture the parts"
        )


def _libraries() -> tuple[Any, Any]:
    with needing("Hugging Face models need torch and transformers", "torch,models"):
        import torch
        import transformers
    return torch, transformers

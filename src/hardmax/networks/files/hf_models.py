"""Hugging Face model -> Network, from its embeddings (or pixels, or samples) to its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array, as_array, detached
from hardmax.networks import operations as op
from hardmax.networks.files.opening import refusing
from hardmax.networks.files.torch_modules import from_torch, torch_library
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network

#: What a model takes in place of token numbers, best first.
_FLOATS = ("inputs_embeds", "pixel_values", "input_values", "input_features")
#: How names of inputs begin that are of no token of ``input_ids``, so that ``attention_mask`` does not speak of them.
OTHER_SEQUENCES = ("decoder_", "encoder_", "cross_", "pixel_", "image")
#: How far, relative to the largest number, a model in float32 may be from the network read from it, in float64.
_CLOSE = 1e-2
_OUTPUTS = ("logits", "last_hidden_state", "pooler_output", "image_embeds", "text_embeds")


def from_hf(model: Any, inputs: Any, *, output: str | None = None) -> Network:
    """The network that a Hugging Face model computes on inputs as long as these.

    A language model is read from its token embeddings on: the network takes (tokens, width), and
    ``model.get_input_embeddings()(ids)[0]`` is such an input. Vision and speech models take their pixels or samples.
    The model is traced with its plain ("eager") attention and put back as it was. Softmax gives temperature 1, so
    ``net(x)`` is the model, ``net(x, temperature=0)`` the model with hard attention, and
    ``hm.skeleton(net, reference=x)`` has cells.

    Where feed-forward parts are gated (SwiGLU, GeGLU), ``.changes`` says at once that cells stop there, and what works.

    Parameters
    ----------
    model
        A model of transformers, in float32 or float64.
    inputs
        Token numbers of one text, what the model's tokenizer or image processor gives for one input, or an array of
        embeddings (tokens, width).
    output
        Which of the model's outputs: "logits" where there are some, else "last_hidden_state", unless named.

    Exactness: exact; weights keep their binary values.

    Raises
    ------
    OperatorError
        The model uses an operator that has no counterpart here, or takes two inputs (an encoder and a decoder).
    """
    torch = torch_library()
    if not hasattr(model, "named_modules") or not hasattr(getattr(model, "config", None), "_attn_implementation"):
        remedy = "; a torch module is read by hm.from_torch(module, example)" if hasattr(model, "named_modules") else ""
        raise ParameterError(f"from_hf: expected a Hugging Face model, got a {type(model).__name__}{remedy}")
    _check_type(torch, model)
    key, example, others = _example(torch, model, inputs)

    class OneTensor(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The model from one tensor to another."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.chosen: str | None = None
            self.own: Any = None  # what it gives before it is traced

        def forward(self, x: Any) -> Any:
            result = self.model(**{key: x, **others, **_without_cache(self.model)})
            self.chosen = _chosen(model, result, output)
            self.own = result[self.chosen] if self.own is None else self.own
            return result[self.chosen]

    try:
        traced = OneTensor()
        parts = [part for part in model.modules() if hasattr(getattr(part, "config", None), "_attn_implementation")]
        with attending(parts, "eager"):  # softmax written out
            net = from_torch(traced, example, batched=True)
    except OperatorError as error:
        raise OperatorError(
            f"{type(model).__name__}: {error}; its heads are captured without exporting: hm.capture(model, inputs)"
        ) from error
    _compare(type(model).__name__, net(example[0]), np.asarray(detached(traced.own[0])))
    gated = _gated(net.graph)
    notes = [*net.changes, *([_gates(gated)] if gated else [])]
    return Network.from_graph(net.graph, net.temperature, notes)


def _compare(name: str, found: Any, own: Any) -> None:
    """Refuses a network that is not the model on its own example: what a model decides by values may not be traced."""
    difference = float(np.abs(found - own).max(initial=0.0))
    if not difference <= _CLOSE * float(np.abs(own).max(initial=0.0)):
        raise OperatorError(
            f"from_hf: {name} computes otherwise than what torch exports of it, by {difference:.2g} on this input, so "
            f"it cannot be read. Its heads are captured without exporting: hm.capture(model, inputs)"
        )


def _check_type(torch: Any, model: Any) -> None:
    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    others = kinds - {torch.float32, torch.float64}
    if others:
        raise ParameterError(
            f"from_hf: expected a model in float32 or float64, got {', '.join(sorted(map(str, others)))}; pass "
            "model.float(), which keeps every weight"
        )
    if any(weight.is_meta for weight in model.parameters()):
        raise ParameterError("from_hf: expected a model with weights, got one on the meta device; load its weights")


def _without_cache(model: Any) -> dict[str, Any]:
    takes = signature(model.forward).parameters  # an encoder of older versions has the setting, not the argument
    known = "use_cache" in takes or any(one.kind is one.VAR_KEYWORD for one in takes.values())
    return {"use_cache": False} if known and getattr(model.config, "use_cache", None) is not None else {}


def _chosen(model: Any, result: Any, output: str | None) -> str:
    names = [name for name in _OUTPUTS if result.get(name) is not None] if hasattr(result, "get") else []
    if output is not None:
        if not hasattr(result, "get") or result.get(output) is None:
            raise ParameterError(f"{type(model).__name__}: no output {output!r}; expected one of {', '.join(names)}")
        return output
    if not names:
        raise OperatorError(f"{type(model).__name__}: expected logits or hidden states, got {type(result).__name__}")
    return names[0]


def _example(torch: Any, model: Any, inputs: Any) -> tuple[str, Any, dict[str, Any]]:
    """The name and value of the one tensor of floats that the model takes, with a batch axis of one; and all else that
    it is given, which stays as it is."""
    if "decoder_input_ids" in signature(model.forward).parameters:
        raise OperatorError(
            f"from_hf: {type(model).__name__} takes two inputs, one for its encoder and one for its decoder, and a "
            "network takes one; pass model.get_encoder(), or capture the heads of both: hm.capture(model, inputs)"
        )
    if isinstance(inputs, str):
        raise ParameterError("from_hf: expected token numbers, got a text; pass tokenizer(text)")
    given = dict(inputs) if isinstance(inputs, Mapping) else None
    if given is not None:
        for key in _FLOATS:
            if key in given:
                example = _floats(torch, model, key, given[key])
                return key, example, _others(torch, model, given, key, None)
        if "input_ids" not in given:
            raise ParameterError(
                f"from_hf: expected input_ids or one of {', '.join(_FLOATS)}, got {', '.join(given) or 'nothing'}"
            )
    ids = as_array("from_hf: input_ids", given["input_ids"] if given is not None else inputs)
    if ids.dtype.kind == "f" and ids.size and given is None:
        key = "inputs_embeds" if ids.ndim < 3 or ids.shape[-3] != 3 else "pixel_values"
        return key, _floats(torch, model, key, ids), {}
    ids, seen = _unpadded(ids, None if given is None else given.get("attention_mask"))
    size, context = model.get_input_embeddings().weight.shape[0], getattr(model.config, "max_position_embeddings", None)
    check_tokens("from_hf", ids, size)
    if context is not None and 0 < context < len(ids):  # some models write -1 for no limit
        raise ParameterError(
            f"from_hf: {type(model).__name__} has a context of {context} tokens, got {len(ids)}; shorten the text"
        )
    with torch.no_grad():
        example = model.get_input_embeddings()(torch.from_numpy(ids)[None].to(model.device))
    return "inputs_embeds", example, _others(torch, model, given or {}, "input_ids", seen)


def _others(torch: Any, model: Any, given: dict[str, Any], key: str, seen: Any) -> dict[str, Any]:
    """What is given beside the one input, such as types of tokens or their positions, with a batch axis; without those
    of the padding ``seen`` leaves out, if that was what the mask was for."""
    others = {}
    for name, value in given.items():
        if name in (key, "labels") or value is None or (name == "attention_mask" and seen is not None):
            continue
        if isinstance(value, bool | int | float):
            others[name] = value
            continue
        array = as_array(f"from_hf: {name}", value)
        array = array[None] if array.ndim == 1 else array
        is_of_tokens = seen is not None and array.shape[-1:] == seen.shape and not name.startswith(OTHER_SEQUENCES)
        others[name] = torch.as_tensor(array[..., seen] if is_of_tokens else array).to(model.device)
    return others


def check_tokens(where: str, ids: Array, size: int | None = None) -> None:
    """Refuse what are no token numbers: none at all, no integers, or beyond a vocabulary of this size."""
    if ids.size == 0:
        raise EmptyError(f"{where}: expected at least one token, got none")
    if ids.dtype.kind not in "iu":
        raise ParameterError(f"{where}: expected token numbers (integers), got {ids.dtype}")
    if size is not None and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ParameterError(
            f"{where}: expected token numbers from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}; is this "
            "the model's own tokenizer?"
        )


def _unpadded(ids: Any, mask: Any) -> tuple[Any, Any]:
    """The token numbers of the one text, and which of those given they are: None if the mask is of another kind."""
    check_tokens("from_hf", ids)
    if ids.ndim == 2 and len(ids) > 1:
        raise ShapeError(
            f"from_hf: expected one text, got {len(ids)}; a network has one length, so read each by itself: "
            "[hm.from_hf(model, row) for row in ids]"
        )
    if ids.ndim > 2:
        raise ShapeError(f"from_hf: expected a list of token numbers, got shape {ids.shape}")
    flat = ids.reshape(-1).astype(np.int64)
    seen = np.ones(len(flat), dtype=bool)
    if mask is not None:
        seen = as_array("from_hf: attention_mask", mask).reshape(-1).astype(bool)
    if seen.shape != flat.shape:
        return flat, None
    if not seen.any():
        raise EmptyError("from_hf: expected at least one token, got padding alone")
    return flat[seen], seen


def _floats(torch: Any, model: Any, key: str, given: Any) -> Any:
    with refusing(ShapeError, f"from_hf: {key}: expected an array of numbers"):
        tensor = torch.as_tensor(as_array(f"from_hf: {key}", given))
    rank = {"inputs_embeds": 3, "pixel_values": 4, "input_values": 2, "input_features": 3}[key]
    tensor = tensor[None] if tensor.dim() == rank - 1 else tensor
    if tensor.dim() != rank or len(tensor) != 1:
        raise ShapeError(f"from_hf: {key}: expected one input of {rank - 1} axes, got shape {tuple(tensor.shape)}")
    return tensor.to(next(model.parameters()))


@contextmanager
def attending(parts: Iterable[Any], name: str) -> Iterator[None]:
    """While inside, these parts of a model compute attention by the function of this name."""
    configs = {id(part.config): part.config for part in parts}
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = name
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _gated(graph: Graph) -> list[str]:
    """Where two functions of the input are multiplied entry by entry, if what comes of it is multiplied again."""
    after: set[int] = set()
    places, is_used = [], False
    for value, node in enumerate(graph.nodes, start=1):
        follows = any(source in after for source in node.inputs)
        is_used |= follows and isinstance(node.operation, op.MatMul | op.Multiply)
        is_gate = isinstance(node.operation, op.Multiply)
        if is_gate:
            places.append(node.name)
        if follows or is_gate:
            after.add(value)
    return places if is_used else []


def _gates(places: list[str]) -> str:
    shown = ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "")
    return (
        f"gated parts ({shown}) multiply two functions of the input, so that scores after them have degree above two: "
        "the network has no cells there, even on a segment. What works: net(x) and net(x, temperature=0), cells of one "
        "layer at a time (hm.from_torch), heads (hm.capture), the cache (hm.kv_cache), classes (hm.audit_classes)"
    )

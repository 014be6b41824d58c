"""torch modules built on ``nn.MultiheadAttention``: ``nn.TransformerEncoder`` and what contains it.

A hook before each attention module sees its inputs; queries, keys and values are then projected as the
module itself does it. In evaluation mode torch has a fused path that passes the modules by, so it is
switched off for the time of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from threading import RLock
from typing import Any

import numpy as np

from hardmax.errors import (
    EmptyError,
    HardmaxError,
    MissingExtraError,
    OperatorError,
    ParameterError,
    ShapeError,
    WeightError,
)
from hardmax.exactness import FloatArray
from hardmax.heads.capture.calls import AttentionCall, NameTokens, Note, captures_of, hidden_as_infinite
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.packages import told

#: Held while a model is listened to. Its hooks and settings and torch's switches belong to all threads: two that
#: changed them together would hear each other's calls, and the later would put back what the earlier had set.
LISTENING = RLock()


def capture_torch(module: Any, inputs: Any, name_tokens: NameTokens) -> tuple[Capture, ...]:
    """What every ``nn.MultiheadAttention`` inside the module sees, one capture for each sequence.

    Positions that a key padding mask hides are left out, as keys and, in self-attention, as queries. The
    module runs in evaluation mode (no dropout) and is left as it was.
    """
    torch = torch_library()
    check_supported(torch, module)
    args, kwargs = arguments_of(torch, module, inputs)
    with evaluating(module), record_torch(module) as calls:
        try:
            module(*args, **kwargs)
        except HardmaxError:
            raise
        except Exception as error:
            shapes = [tuple(part.shape) for part in (*args, *kwargs.values()) if isinstance(part, torch.Tensor)]
            raise ShapeError(
                f"{type(module).__name__} fails on inputs of shapes {shapes} ({told(error)}); "
                "pass them as the module takes them"
            ) from error
    if not calls:
        raise OperatorError(
            f"{type(module).__name__} holds nn.MultiheadAttention modules but ran none of them on this input"
        )
    n_sequences = _n_sequences(torch, module, (*args, *kwargs.values()))
    for call in calls:
        if len(call.queries) not in (n_sequences or {len(calls[0].queries)}):
            raise OperatorError(
                f"{type(module).__name__}: {call.name} sees a batch of {len(call.queries)} where "
                f"{' or '.join(map(str, sorted(n_sequences)))} inputs were given, so its rows are parts of inputs "
                "(windows, say) or of several; capture that attention by itself"
            )
    return captures_of(type(module).__name__, calls, name_tokens)


@contextmanager
def record_torch(module: Any) -> Iterator[list[AttentionCall]]:
    """While inside, every call of an ``nn.MultiheadAttention`` of the module is appended to the list given."""
    calls: list[AttentionCall] = []
    with noting_torch(module, calls.append):
        yield calls


@contextmanager
def noting_torch(module: Any, note: Note) -> Iterator[None]:
    """While inside, ``note`` is told every call of an ``nn.MultiheadAttention``, and may give other results for it."""
    torch = torch_library()
    hooks = []
    told_of: set[int] = set()
    with LISTENING, torch.no_grad(), nothing_untold(module, told_of):
        fast = torch.backends.mha.get_fastpath_enabled()
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            for name, part in module.named_modules():
                if isinstance(part, torch.nn.MultiheadAttention):

                    def hook(part: Any, args: Any, kwargs: Any, result: Any, name: str = name) -> Any:
                        told_of.add(id(part))
                        replaced = note(_call(torch, part, name or type(part).__name__, args, kwargs))
                        return None if replaced is None else (_mixed(torch, part, replaced, result[0]), result[1])

                    hooks.append(part.register_forward_hook(hook, with_kwargs=True))
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for hook_handle in hooks:
                hook_handle.remove()


@contextmanager
def nothing_untold(module: Any, told_of: Collection[int]) -> Iterator[None]:
    """While inside, attention that runs is noticed; at the end, that of which nothing was told is refused.

    Noticed are modules with "attention" in the name of their class and no such module inside, and calls of torch's
    scaled_dot_product_attention outside of ``nn.MultiheadAttention``. ``told_of`` fills with the ids of the others.
    """
    torch = torch_library()

    class Watch(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        """Sees the functions of torch that are called."""

        n_calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.n_calls += getattr(func, "__name__", "") == "scaled_dot_product_attention"
            return func(*args, **(kwargs or {}))

    ran: dict[int, str] = {}
    hooks = []
    for name, part in module.named_modules():
        inner = [inside for inside in part.modules() if inside is not part]
        if _is_attention(part) and not any(map(_is_attention, inner)):

            def hook(of: Any, args: Any, result: Any, name: str = name) -> None:
                ran[id(of)] = f"{name} ({type(of).__name__})"

            hooks.append(part.register_forward_hook(hook))
    watch = Watch()
    try:
        with watch:
            yield
    finally:
        for handle in hooks:
            handle.remove()
    silent = [name for key, name in ran.items() if key not in told_of]
    if silent or watch.n_calls:
        what = ", ".join(silent[:3]) or f"{watch.n_calls} calls of scaled_dot_product_attention"
        raise OperatorError(
            f"{type(module).__name__}: beside what can be captured it computes attention in another way ({what}), so "
            "only a part of its heads would be seen; capture the parts that use nn.MultiheadAttention or the "
            "AttentionInterface of transformers by themselves, or try hm.capture(hm.from_torch(module, x), x)"
        )


def _is_attention(part: Any) -> bool:
    return "attention" in type(part).__name__.lower()


def _mixed(torch: Any, part: Any, heads: FloatArray, own: Any) -> Any:
    """What the attention module makes of its heads' results (batch, heads, n_q, d_v), laid out as ``own``."""
    side_by_side = torch.from_numpy(heads).to(own).transpose(1, 2).flatten(2)  # (batch, n_q, heads * d_v)
    mixed = part.out_proj(side_by_side)
    if own.dim() == 2:
        return mixed[0]
    return mixed if part.batch_first else mixed.transpose(0, 1)


def _call(torch: Any, part: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> AttentionCall:
    """The queries, keys and values of one call, as ``nn.MultiheadAttention`` makes them."""
    order = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = dict(zip(order, args, strict=False)) | dict(kwargs)
    sources = [given["query"], given["key"], given["value"]]
    in_batch = sources[0].dim() == 3
    if not in_batch:
        sources = [source[None] for source in sources]
    elif not part.batch_first:
        sources = [source.transpose(0, 1) for source in sources]
    if part.in_proj_weight is not None:
        weights = part.in_proj_weight.chunk(3)
    else:
        weights = (part.q_proj_weight, part.k_proj_weight, part.v_proj_weight)
    biases = (None, None, None) if part.in_proj_bias is None else part.in_proj_bias.chunk(3)
    projected = [torch.nn.functional.linear(*parts) for parts in zip(sources, weights, biases, strict=True)]
    batch = len(projected[0])
    if part.bias_k is not None:  # one learnt key and value after the others
        projected[1] = torch.cat([projected[1], part.bias_k.expand(batch, -1, -1)], dim=1)
        projected[2] = torch.cat([projected[2], part.bias_v.expand(batch, -1, -1)], dim=1)
    if part.add_zero_attn:
        projected[1:] = [torch.nn.functional.pad(tensor, (0, 0, 0, 1)) for tensor in projected[1:]]
    split = [tensor.unflatten(-1, (part.num_heads, part.head_dim)).transpose(1, 2) for tensor in projected]
    queries, keys, values = (to_numpy(tensor) for tensor in split)
    added = _added(torch, part, given, (batch, part.num_heads, queries.shape[2], keys.shape[2]))
    padding = given.get("key_padding_mask")
    if padding is not None:
        hidden = _mask_numbers(torch, padding).reshape(batch, -1) == -np.inf
        padding = np.pad(hidden, ((0, 0), (0, keys.shape[2] - hidden.shape[1])))
    is_self = given["query"] is given["key"]
    own = np.arange(queries.shape[2])
    places = np.pad(own, (0, max(0, keys.shape[2] - len(own))), constant_values=-1)  # learnt and zero keys come last
    positions = (own, places) if is_self else None
    return AttentionCall(name, queries, keys, values, sqrt(part.head_dim), added, padding, is_self, positions)


def _added(torch: Any, part: Any, given: Mapping[str, Any], shape: tuple[int, ...]) -> FloatArray | None:
    """Both masks as numbers added to the scores; learnt and zero keys at the end are never hidden."""
    batch, heads, n_queries, n_keys = shape
    total = None
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if mask is not None:
        numbers = _mask_numbers(torch, mask)
        # (n_q, n_k), or (batch * heads, n_q, n_k)
        total = numbers[None, None] if numbers.ndim == 2 else numbers.reshape(batch, heads, n_queries, -1)
    if padding is not None:
        numbers = _mask_numbers(torch, padding).reshape(batch, 1, 1, -1)
        total = numbers if total is None else total + numbers
    if total is None:
        return None
    total = np.broadcast_to(total, (len(total), total.shape[1], n_queries, total.shape[3]))
    return np.pad(total, ((0, 0), (0, 0), (0, 0), (0, n_keys - total.shape[3])))


def _mask_numbers(torch: Any, mask: Any) -> FloatArray:
    if mask.dtype == torch.bool:
        return np.where(mask.cpu().numpy(), -np.inf, 0.0)
    return hidden_as_infinite(to_numpy(mask), torch.finfo(mask.dtype).min / 2)


def _n_sequences(torch: Any, module: Any, given: Iterable[Any]) -> set[int]:
    """The sizes that a batch of inputs may have; 1 where an input comes without a batch."""
    tensors = [part for part in given if isinstance(part, torch.Tensor) and part.dim() > 0]
    if not tensors:
        return set()
    first = tensors[0]
    parts = [part for part in module.modules() if isinstance(part, torch.nn.MultiheadAttention)]
    sizes = {len(first)}
    if first.dim() <= 2:
        sizes.add(1)
    elif not all(part.batch_first for part in parts):
        sizes.add(first.shape[1])
    return sizes


def to_numpy(tensor: Any) -> FloatArray:
    """A tensor of any device and number type as binary64, in memory of its own: a model may go on in its place."""
    return np.asarray(tensor.detach().to("cpu", torch_library().float64, copy=True).numpy())


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """While inside, the module and its parts are in evaluation mode."""
    with LISTENING:
        training = [part for part in module.modules() if part.training]
        try:
            for part in training:
                part.training = False
            yield
        finally:
            for part in training:
                part.training = True


def check_supported(torch: Any, module: Any) -> None:
    """Refuses a module without ``nn.MultiheadAttention``."""
    if any(isinstance(part, torch.nn.MultiheadAttention) for part in module.modules()):
        return
    suspects = sorted({type(part).__name__ for part in module.modules() if "att" in type(part).__name__.lower()})
    if suspects:
        raise OperatorError(
            f"{type(module).__name__}: its attention modules {', '.join(suspects)} are not nn.MultiheadAttention, "
            "so no hook knows their queries and keys; try hm.capture(hm.from_torch(module, x), x)"
        )
    raise EmptyError(
        f"expected a model with attention, got a {type(module).__name__} without nn.MultiheadAttention; if it "
        "computes attention by itself, try hm.capture(hm.from_torch(module, x), x)"
    )


def arguments_of(torch: Any, module: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call the module with: a tensor, a tuple of tensors, or a dictionary of named ones."""
    if isinstance(inputs, Mapping):
        return (), {key: _argument(torch, module, value, key) for key, value in inputs.items()}
    if isinstance(inputs, tuple) and any(isinstance(part, torch.Tensor) for part in inputs):
        return tuple(_argument(torch, module, part, f"inputs[{i}]") for i, part in enumerate(inputs)), {}
    if isinstance(module, torch.nn.MultiheadAttention):  # self-attention
        return (_argument(torch, module, inputs, "inputs"),) * 3, {}
    return (_argument(torch, module, inputs, "inputs"),), {}


def _argument(torch: Any, module: Any, given: Any, what: str) -> Any:
    if given is None or isinstance(given, bool):
        return given
    try:
        tensor = given if isinstance(given, torch.Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{what}: expected a tensor, got a {type(given).__name__} ({error})") from None
    if 0 in tensor.shape:
        raise EmptyError(f"{what}: expected at least one entry, got shape {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise ParameterError(f"{what}: expected real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        return tensor  # token numbers or a mask
    if torch.isnan(tensor).any():
        raise WeightError(f"{what}: expected numbers, got NaN")
    kinds = [weight for weight in module.parameters() if weight.is_floating_point()]
    return tensor.to(kinds[0]) if kinds else tensor


def torch_library() -> Any:
    """torch, or how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("capturing torch modules needs torch: pip install 'hardmax[torch]'") from None
    return torch

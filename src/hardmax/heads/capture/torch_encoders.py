"""torch modules: built on ``nn.MultiheadAttention`` (``nn.TransformerEncoder``), or writing their attention out.

Of ``nn.MultiheadAttention`` a hook sees the inputs; queries, keys and values are then projected as the module itself
does it. In evaluation mode torch has a fused path that passes the modules by, so it is switched off for the time of
the run. Other attention is followed function by function (``watching``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray, one_tensor
from hardmax.heads.capture.calls import (
    AttentionCall,
    NameTokens,
    Note,
    captures_of,
    heads_of_calls,
    hidden_as_infinite,
    named_capture,
)
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.packages import LISTENING, evaluating, to_numpy, torch_library
from hardmax.heads.capture.watching import Watcher
from hardmax.networks.files.opening import refusing


def capture_torch(module: Any, inputs: Any, name_tokens: NameTokens) -> tuple[Capture, ...]:
    """What every ``nn.MultiheadAttention`` inside the module sees, one capture for each sequence.

    Positions that a key padding mask hides are left out, as keys and, in self-attention, as queries. The
    module runs in evaluation mode (no dropout) and is left as it was.
    """
    torch = torch_library()
    runs, calls = runs_of(torch, module, inputs)
    if calls is not None:
        return captures_of(type(module).__name__, calls, name_tokens)
    captures = []
    for position, (args, kwargs) in enumerate(runs):
        heads = heads_of_calls(_calls(torch, module, args, kwargs)[0])
        captures.append(named_capture(type(module).__name__, heads, position, name_tokens))
    return tuple(captures)


_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def runs_of(torch: Any, module: Any, inputs: Any) -> tuple[list[_Arguments], list[AttentionCall] | None]:
    """The arguments to run the module with, and its attention where one run holds all sequences.

    ``nn.MultiheadAttention`` says which axis is the batch, so all sequences run together; where a module writes its
    attention out they run one by one, for then nothing says which axes are sequences and which are heads.
    """
    args, kwargs = arguments_of(torch, module, inputs)
    calls, leads = _calls(torch, module, args, kwargs)
    given = [part for part in (*args, *kwargs.values()) if isinstance(part, torch.Tensor) and part.dim() > 0]
    if not leads:
        _check_batches(torch, module, calls, given)
        return [(args, kwargs)], calls
    first = given[0]
    size, is_table = len(first), first.dim() == 2 and first.is_floating_point()
    is_batch = first.dim() > 1 and (not is_table or all(lead[0] == size != lead[-1] for lead in leads))
    if not is_batch or size == 1:
        return [(args, kwargs)], calls

    def row(part: Any, index: int) -> Any:
        is_rows = isinstance(part, torch.Tensor) and part.shape[:1] == (size,) and part.dim() > 1
        return part[index : index + 1] if is_rows else part

    each = [
        (tuple(row(part, i) for part in args), {key: row(part, i) for key, part in kwargs.items()}) for i in range(size)
    ]
    return each, None


def _calls(torch: Any, module: Any, args: Any, kwargs: Any) -> tuple[list[AttentionCall], list[tuple[int, ...]]]:
    """Every attention of one run, and the shapes of what was written out."""
    calls: list[AttentionCall] = []
    shapes = [tuple(part.shape) for part in (*args, *kwargs.values()) if isinstance(part, torch.Tensor)]
    where = f"{type(module).__name__} fails on inputs of shapes {shapes}"
    refused = refusing(ShapeError, where, "; pass them as the module takes them")
    with evaluating(module), noting_torch(module, calls.append) as watcher, refused:
        module(*args, **kwargs)
    if not calls:
        raise EmptyError(
            f"expected a model with attention, got a {type(module).__name__} that computed none of the form "
            "softmax(queries keys^T) values on this input; if it has some in another form, try "
            "hm.capture(hm.from_torch(module, x), x)"
        )
    return calls, watcher.leads


def _check_batches(torch: Any, module: Any, calls: list[AttentionCall], given: list[Any]) -> None:
    n_sequences = _n_sequences(torch, module, given)
    for call in calls:
        if len(call.queries) not in (n_sequences or {len(calls[0].queries)}):
            raise OperatorError(
                f"{type(module).__name__}: {call.name} sees a batch of {len(call.queries)} where "
                f"{' or '.join(map(str, sorted(n_sequences)))} inputs were given, so its rows are parts of inputs "
                "(windows, say) or of several; capture that attention by itself"
            )


@contextmanager
def noting_torch(module: Any, note: Note) -> Iterator[Watcher]:
    """While inside, ``note`` is told every attention of the module, and may give other results for it."""
    with LISTENING, torch_library().no_grad(), watching(module, note, set()) as watcher:
        yield watcher


@contextmanager
def watching(module: Any, note: Note, told_of: set[int]) -> Iterator[Watcher]:
    """While inside, ``note`` is told of attention by ``nn.MultiheadAttention`` and by torch's functions.

    At the end, a module is refused in which attention ran that nothing was told of: what the watcher could not follow,
    and modules with "attention" in the name of their class, no such module inside, and no id in ``told_of``.
    """
    torch = torch_library()
    watcher = Watcher(torch, module, note, told_of, _projected)
    ran: dict[int, str] = {}
    hooks = []
    for name, part in module.named_modules():
        inner = [inside for inside in part.modules() if inside is not part]
        if _is_attention(part) and not any(map(_is_attention, inner)):

            def runs(of: Any, args: Any, result: Any, name: str = name) -> None:
                ran[id(of)] = f"{name} ({type(of).__name__})"

            hooks.append(part.register_forward_hook(runs))
        if isinstance(part, torch.nn.MultiheadAttention):

            def tells(of: Any, args: Any, kwargs: Any, result: Any, name: str = name) -> Any:
                told_of.add(id(of))
                watcher.mark()
                with watcher.paused():
                    replaced = note(_call(torch, of, name or type(of).__name__, args, kwargs))
                    return None if replaced is None else (_mixed(torch, of, replaced, result[0]), result[1])

            hooks.append(part.register_forward_hook(tells, with_kwargs=True))
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with watcher.running():
            yield watcher
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in hooks:
            handle.remove()
    _refuse_untold(module, [name for key, name in ran.items() if key not in told_of], watcher)


def _is_attention(part: Any) -> bool:
    return "attention" in type(part).__name__.lower()


def _refuse_untold(module: Any, silent: list[str], watcher: Watcher) -> None:
    """Refuse a model of which some attention ran and was not told."""
    places = list(dict.fromkeys([*silent, *watcher.untold]))
    if not places:
        return
    shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    rest = "beside what can be captured it " if watcher.n_told else ""
    raise OperatorError(
        f"{type(module).__name__}: {rest}computes attention in a way that is not known here ({shown}), and a part of "
        "the heads would be no capture; expected softmax(scale * queries keys^T + bias) values, by "
        "scaled_dot_product_attention, nn.MultiheadAttention, the AttentionInterface of transformers, or written out. "
        "Capture by itself a part of the model that computes it so; for the others there is no way"
    )


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


def _projected(name: str, given: Mapping[str, Any], own: Any) -> tuple[AttentionCall, Callable[[FloatArray], Any]]:
    """What ``multi_head_attention_forward`` was called with, as if an ``nn.MultiheadAttention`` had called it."""
    torch = torch_library()
    is_apart = given.get("use_separate_proj_weight", False)
    names = ("in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "q_proj_weight", "k_proj_weight", "v_proj_weight")
    part = SimpleNamespace(
        **{key: given.get(key) for key in names},
        in_proj_weight=None if is_apart else given["in_proj_weight"],
        num_heads=given["num_heads"],
        head_dim=given["embed_dim_to_check"] // given["num_heads"],
        batch_first=False,
        out_proj=lambda mixed: torch.nn.functional.linear(mixed, given["out_proj_weight"], given["out_proj_bias"]),
    )
    return _call(torch, part, name, (), given), lambda heads: _mixed(torch, part, heads, own)


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
    one_tensor(what, tensor)
    for weight in module.parameters():
        one_tensor(type(module).__name__, weight)
    if 0 in tensor.shape:
        raise EmptyError(f"{what}: expected at least one entry, got shape {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise ParameterError(f"{what}: expected real numbers, got {tensor.dtype}")
    kinds = [weight for weight in module.parameters() if weight.is_floating_point()]
    if not tensor.is_floating_point():  # token numbers or a mask
        return tensor.to(kinds[0].device) if kinds else tensor
    if torch.isnan(tensor).any():
        raise WeightError(f"{what}: expected numbers, got NaN")
    return tensor.to(kinds[0]) if kinds else tensor

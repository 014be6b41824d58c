"""Trained models run with some of their attention heads hard, or all of them colder or warmer.

A hard head gives each query the value of the first key with the largest score, among the keys the query sees. Only
attention changes: norms, GELU, SiLU and all weights stay as they are. The choice is made in binary64 from the queries
and keys as the model rounded them, so it is the choice that ``hm.capture`` shows for the same input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError, WeightError
from hardmax.exactness import Array, FloatArray, IntArray
from hardmax.heads.capture import hugging_face, sceptr_models, text_models, torch_encoders
from hardmax.heads.capture.calls import AttentionCall, Note
from hardmax.heads.capture.packages import evaluating, torch_library
from hardmax.networks import evaluation
from hardmax.networks.files.opening import refusing

Pair = tuple[int, int]


def changed_heads(call: AttentionCall, hard: Collection[int], temperature_scale: float = 1.0) -> FloatArray:
    """What the heads of one call give, (batch, heads, n_q, d_v), with the ``hard`` ones at temperature zero.

    The others have ``temperature_scale`` times their own temperature; a scale of 0 makes every head hard. Keys that
    are hidden stay hidden, ties go to the lowest index.

    Exactness: binary64, from numbers rounded as the model rounds.

    Examples
    --------
    >>> one = np.ones((1, 1, 1, 1))
    >>> keys, values = np.reshape([1.0, 1.0, 3.0], (1, 1, 3, 1)), np.reshape([5.0, 7.0, 9.0], (1, 1, 3, 1))
    >>> call = AttentionCall("demo", one, keys, values, 1.0, np.reshape([0.0, 0.0, -np.inf], (1, 1, 1, 3)))
    >>> changed_heads(call, []).item(), changed_heads(call, [0]).item()
    (6.0, 5.0)
    """
    sharing = call.queries.shape[1] // call.keys.shape[1]  # query heads for each key head
    keys, values = (np.repeat(array, sharing, axis=1) for array in (call.keys, call.values))
    scores = call.queries @ keys.swapaxes(-1, -2)  # (batch, heads, n_q, n_k)
    if call.added is not None:
        scores += call.added * call.temperature
    blind = scores.max(axis=-1) == -np.inf  # (batch, heads, n_q)
    if call.padding is not None and call.padded_queries:
        scores[blind & call.padding[:, None, : scores.shape[2]]] = 0.0  # padding: what it sees is of no account
        blind &= ~call.padding[:, None, : scores.shape[2]]
    if blind.any():
        raise EmptyError(f"{call.name}: expected every query to see a key, query {np.argwhere(blind)[0, 2]} sees none")
    chosen = np.zeros(scores.shape[1], dtype=bool)
    chosen[list(hard)] = True
    if temperature_scale == 0:
        chosen[:] = True
    winners = scores[:, chosen].argmax(axis=-1)
    result = np.empty((*scores.shape[:3], values.shape[-1]))
    result[:, chosen] = np.take_along_axis(values[:, chosen], winners[..., None], axis=2)
    if not chosen.all():
        soft = scores[:, ~chosen]
        if call.softcap is not None:
            unit = call.softcap * call.temperature
            soft = np.where(soft == -np.inf, -np.inf, unit * np.tanh(soft / unit))
        weights = evaluation.softmax(soft, call.temperature * temperature_scale)
        result[:, ~chosen] = weights @ values[:, ~chosen]
    return result


@dataclass(frozen=True, eq=False)
class _Kind:
    """How one kind of model is run: its module, what tells its calls, and one function for each run.

    A function gives outputs (inputs, ...), and whether they decide anything. ``padded`` says that the second axis
    counts positions as the attention does, so that those which only fill a batch up can be left out.
    """

    name: str
    module: Any
    noting: Callable[[Any, Note], AbstractContextManager[object]]
    forwards: tuple[Callable[[], Any], ...]
    padded: bool = False
    tokens: tuple[IntArray, ...] | None = None  # of each text


class ModelRuns:
    """A trained model on fixed inputs, to be run again and again with other heads hard.

    ``soft`` holds the outputs of the model as it is, one array (inputs, ...) for each run; ``heads`` are the
    (layer, head) pairs of the attention that took part, as ``hm.capture`` counts them. ``temperature`` is 1: the
    temperatures of a model's heads are measured in their own.

    Parameters
    ----------
    source
        A model of ``hm.models``, a Hugging Face model, or a torch module with ``nn.MultiheadAttention`` inside.
    inputs
        As ``hm.capture`` takes them.
    """

    temperature = 1.0

    def __init__(self, source: Any, inputs: Any) -> None:
        self._kind = _kind(source, inputs)
        counts: list[tuple[int, ...]] = []
        self.soft = self._run(frozenset(), 1.0, counts)
        if len(set(counts)) > 1:
            raise OperatorError(f"{self._kind.name}: its inputs do not all use the same heads; run them one by one")
        if not counts[0]:
            raise EmptyError(
                f"{self._kind.name}: expected a model with attention, softmax(queries keys^T) values, got one that "
                "computed none"
            )
        self.heads = tuple((layer, head) for layer, n_heads in enumerate(counts[0]) for head in range(n_heads))

    @property
    def n_classes(self) -> int | None:
        """Among how many an output decides; None where outputs are embeddings or single numbers."""
        last = self.soft[0].shape[-1] if self.soft[0].ndim > 1 else 1
        return int(last) if self._decides and last > 1 else None

    @property
    def next_tokens(self) -> list[IntArray] | None:
        """The token that follows at each position of each text, -1 at its end; None for other models."""
        if self._kind.tokens is None or self.n_classes is None:
            return None
        return [np.append(numbers[1:], -1) for numbers in self._kind.tokens]

    def run(self, hard: Iterable[Pair] = (), temperature: float = 1.0) -> list[Array]:
        """The outputs with the given heads hard and the others at ``temperature`` times their own.

        Exactness: rounded as the model rounds.
        """
        known = set(self.heads)
        chosen = []
        for pair in hard:
            if not isinstance(pair, tuple | list) or tuple(pair) not in known:
                raise ParameterError(
                    f"{self._kind.name}: expected (layer, head) pairs from (0, 0) to {self.heads[-1]}, got {pair!r}"
                )
            chosen.append((pair[0], pair[1]))
        return self._run(frozenset(chosen), temperature, [])

    def _run(self, hard: frozenset[Pair], scale: float, counts: list[tuple[int, ...]]) -> list[Array]:
        by_layer: dict[int, list[int]] = {}
        for layer, head in sorted(hard):
            by_layer.setdefault(layer, []).append(head)
        outputs: list[Array] = []
        for forward in self._kind.forwards:
            calls: list[int] = []
            padding: list[Any] = []

            def note(call: AttentionCall, calls: list[int] = calls, padding: list[Any] = padding) -> FloatArray | None:
                chosen = by_layer.get(len(calls), [])
                calls.append(call.queries.shape[1])
                padding.append(call.padding if call.padded_queries else None)
                return None if not chosen and scale == 1 else changed_heads(call, chosen, scale)

            result, self._decides = _called(self._kind, note, forward)
            counts.append(tuple(calls))
            outputs.extend(_unpadded(result, padding[0] if self._kind.padded and padding else None))
        if not all(np.isfinite(output).all() for output in outputs):
            raise WeightError(f"{self._kind.name}: expected finite outputs, got NaN or infinite entries")
        return outputs


def _called(kind: _Kind, note: Note, forward: Callable[[], Any]) -> tuple[Array, bool]:
    torch = torch_library()
    refused = refusing(ShapeError, f"{kind.name} fails on its inputs", "; pass them as the model takes them")
    with evaluating(kind.module), kind.noting(kind.module, note), torch.no_grad(), refused:
        result, decides = forward()
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        raise OperatorError(f"{kind.name}: expected one tensor of numbers as its output, got a {type(result).__name__}")
    array = np.asarray((result if result.dtype == torch.float64 else result.float()).cpu().numpy())
    return array, decides


def _unpadded(outputs: Array, padding: Any) -> Iterator[Array]:
    if padding is None or not padding.any():
        yield outputs
        return
    for row, hidden in zip(outputs, padding, strict=True):
        yield row[~hidden[: len(row)]][None]


def is_model(source: Any) -> bool:
    """Whether ``ModelRuns`` knows this kind of model."""
    return isinstance(source, text_models.TextModel | sceptr_models.ReceptorModel) or hasattr(source, "named_modules")


def _kind(source: Any, inputs: Any) -> _Kind:
    if isinstance(source, text_models.TextModel):
        return _text_kind(source, inputs)
    if isinstance(source, sceptr_models.ReceptorModel):
        return _receptor_kind(source, inputs)
    if hasattr(source, "config") and hasattr(source.config, "_attn_implementation"):
        return _hugging_face_kind(source, inputs)
    return _torch_kind(source, inputs)


def _text_kind(source: text_models.TextModel, texts: Any) -> _Kind:
    """Logits of a language model at every position; of an encoder the sentence embedding, of length 1."""
    torch = torch_library()
    numbers = [source.encoded(text, position)[0] for position, text in enumerate(text_models.texts_of(texts))]

    def forward(ids: Any) -> Any:
        result = source.model(input_ids=ids)
        if "logits" in result:
            return result.logits, True
        return torch.nn.functional.normalize(result.last_hidden_state.mean(dim=1), dim=1), False

    return _Kind(
        source.name,
        source.model,
        hugging_face.noting,
        tuple(partial(forward, torch.tensor([row], device=source.model.device)) for row in numbers),
        tokens=tuple(np.array(row, dtype=np.int64) for row in numbers),
    )


def _receptor_kind(source: sceptr_models.ReceptorModel, receptors: Any) -> _Kind:
    """The representation that the package gives of a receptor, of length 1."""
    records = sceptr_models.records_of(receptors, source.variant)
    tokens = [source.tokens_of(record, position) for position, record in enumerate(records)]

    def forward(of_one: Any) -> Any:
        return source.representation(of_one), False

    forwards = tuple(partial(forward, of_one) for of_one in tokens)
    return _Kind(source.name, source.bert, torch_encoders.noting_torch, forwards)


def _hugging_face_kind(model: Any, inputs: Any) -> _Kind:
    """Logits where the model gives some, the last hidden states elsewhere; one sequence at a time."""

    def forward(arguments: dict[str, Any]) -> Any:
        result = model(**arguments)
        return (result.logits, True) if "logits" in result else (result.last_hidden_state, False)

    forwards = tuple(partial(forward, arguments) for arguments in hugging_face.sequences(model, inputs))
    return _Kind(type(model).__name__, model, hugging_face.noting, forwards)


def _torch_kind(module: Any, inputs: Any) -> _Kind:
    """The output of the module, all inputs in one batch; encoders by themselves give embeddings."""
    torch = torch_library()
    runs, _ = torch_encoders.runs_of(torch, module, inputs)
    nn = torch.nn
    bare = isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer | nn.MultiheadAttention)
    first = next((part for part in module.modules() if isinstance(part, nn.MultiheadAttention)), None)

    def forward(arguments: Any) -> Any:
        result = module(*arguments[0], **arguments[1])
        result = result[0] if isinstance(result, tuple) else result
        if not bare:
            return result, True
        if result.dim() == 2:
            return result[None], False
        return result if first is None or first.batch_first else result.transpose(0, 1), False

    forwards = tuple(partial(forward, arguments) for arguments in runs)
    return _Kind(type(module).__name__, module, torch_encoders.noting_torch, forwards, padded=bare)

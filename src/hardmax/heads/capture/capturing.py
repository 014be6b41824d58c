"""``hm.capture``: what every attention head of a model sees, whatever kind of model it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hardmax.errors import ParameterError, ShapeError
from hardmax.exactness import as_tuple
from hardmax.heads.capture.calls import NameTokens
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.sceptr_models import ReceptorModel
from hardmax.heads.capture.text_models import TextModel
from hardmax.networks.network import Network


def capture(source: Any, inputs: Any, *, tokens: Sequence[Any] | None = None) -> tuple[Capture, ...]:
    """The queries, keys and values of every attention head, one ``Capture`` for each input.

    Parameters
    ----------
    source
        A ``Network``, the path of a file that ``hm.read`` reads, a torch module, a Hugging Face model, or a model of
        ``hm.models``. Attention of the form softmax(scale * queries keys^T + bias) values is found whether it is
        torch's ``nn.MultiheadAttention`` or ``scaled_dot_product_attention``, the attention function of transformers,
        or written out; where some of a model's attention is of another form, the model is refused, never cut. Windows
        (Swin) are heads of their own, window by window.
    inputs
        For a network or file, an array (..., *input_shape). For a torch module, a tensor as it takes it, its
        first axis the batch (or none). For a Hugging Face model, what its tokenizer gives, or a list of
        token numbers; sequences run one by one, without what ``attention_mask`` calls padding. For a model of
        ``hm.models``, a text or a list of texts.
    tokens
        Names of the key positions: a list of strings, or one such list for each input.

    Exactness: queries, keys and values are what the model computed, rounded as the model rounds (binary64
    for networks); scores and weights are recomputed from them in binary64.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[3.0]])
    >>> net = Network([Attention([head])], input_dim=1, temperature=1.0)
    >>> first, second = capture(net, [[2.0], [0.0]], tokens=["left", "right"])
    >>> first.head(0, 0).scores.tolist(), second.head(0, 0).weights.tolist(), first.tokens
    ([[6.0, -6.0]], [[0.5, 0.5]], ('left', 'right'))

    A model without attention has nothing to capture:

    >>> capture(Network([Affine([[2.0]])], input_dim=1), [[1.0]])
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: expected a model with attention, got Network(...) without any; ...
    """
    from hardmax.heads.capture.hugging_face import capture_hugging_face
    from hardmax.heads.capture.network_heads import capture_network
    from hardmax.heads.capture.torch_encoders import capture_torch
    from hardmax.networks.files.formats import read

    names = _token_names(tokens)
    if isinstance(source, str | os.PathLike):
        return capture_network(read(source), inputs, os.fspath(source), names)
    if isinstance(source, Network):
        return capture_network(source, inputs, "network", names)
    if isinstance(source, TextModel | ReceptorModel):
        if tokens is not None:
            raise ParameterError(f"tokens: {source!r} names its own tokens; leave tokens out")
        return source.capture(inputs)
    if hasattr(source, "named_modules"):  # a torch module; torch itself is not imported before it is needed
        if hasattr(source, "config") and hasattr(source.config, "_attn_implementation"):
            return capture_hugging_face(source, inputs, names)
        return capture_torch(source, inputs, names)
    raise ParameterError(
        f"expected a network, the path of a file, a torch module, a Hugging Face model or a model of hm.models, "
        f"got a {type(source).__name__}"
    )


def _token_names(tokens: Sequence[Any] | None) -> NameTokens:
    """Names for the keys of each input, from what the caller gave."""
    if tokens is None:
        return lambda position, n_keys: None
    if isinstance(tokens, str):
        raise ParameterError(f"tokens: expected a list of names, got the text {tokens!r}; split it into tokens")
    given = as_tuple("tokens", "names", tokens)
    shared = all(isinstance(name, str) for name in given)

    def names(position: int, n_keys: int) -> Sequence[str]:
        if not shared and (position >= len(given) or not isinstance(given[position], list | tuple)):
            raise ShapeError(
                f"tokens: expected a list of names, or one such list for each input, got {len(given)} entries and "
                f"none for input {position}"
            )
        own = given if shared else tuple(given[position])
        if len(own) != n_keys or not all(isinstance(name, str) for name in own):
            raise ShapeError(f"tokens: expected {n_keys} names for the keys of input {position}, got {len(own)}")
        return own

    return names

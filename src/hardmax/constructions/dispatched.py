"""Variant D: attention alone, two sublayers a maxout layer, exact on all of R^d.

Of the P + 1 tokens [kappa | s | y | e] the last is the null token, whose s and y stay zero. A dispatch sublayer
gives token p the p-th pieces of the next layer, as key kappa and as value s: in its head h only token h looks
at itself, where the value is W_h y + b_h, and all others look at the null token, where it is zero. One more head
gives the null token a kappa below that of token 0, so that it never wins, and one in which every token looks
at itself erases the old content. A max sublayer then reads, with one head a unit, the s of the largest
kappa. Nothing needs to be bounded, because no ReLU has to be kept on one side.
"""

from __future__ import annotations

import numpy as np

from hardmax.constructions.maxout_form import MaxoutForm, MaxoutLayer
from hardmax.constructions.token_layers import AttentionSublayer, HeadGroup, Sublayer
from hardmax.exactness import FloatArray


def dispatched_tokens(form: MaxoutForm) -> tuple[FloatArray, FloatArray]:
    """Weight (P + 1, d_model, d) and bias (P + 1, d_model) of the embedding: y is the input.

    The null token's y is zero.
    """
    n_tokens, width = form.rank + 1, max(form.widths)
    d_model = 3 * width + n_tokens
    weight, bias = np.zeros((n_tokens, d_model, form.input_dim)), np.zeros((n_tokens, d_model))
    weight[:-1, 2 * width : 2 * width + form.input_dim] = np.eye(form.input_dim)
    bias[:, 3 * width :] = np.eye(n_tokens)
    return weight, bias


def dispatched_sublayers(form: MaxoutForm) -> list[tuple[str, Sublayer]]:
    """Dispatch and max of every layer."""
    sublayers: list[tuple[str, Sublayer]] = []
    for index, layer in enumerate(form.layers):
        sublayers.append((f"layer {index} dispatch", _dispatch(form, layer)))
        sublayers.append((f"layer {index} max", _maxima(form, layer.width)))
    return sublayers


def _dispatch(form: MaxoutForm, layer: MaxoutLayer) -> AttentionSublayer:
    rank, width = form.rank, max(form.widths)
    n_tokens, d_model = rank + 1, 3 * width + rank + 1
    before, after = layer.weights.shape[2], layer.width
    position = np.eye(d_model)[3 * width :]  # W_K of every head here: the position code
    look_at_null = np.zeros((n_tokens, n_tokens))
    look_at_null[:, -1] = 1.0
    queries, values = [], []
    output = np.zeros((d_model, n_tokens * after))
    for token in range(n_tokens):
        query = look_at_null.copy()
        query[token] = np.eye(n_tokens)[min(token, rank - 1)]  # the null token looks at the last of the others
        piece = token if token < layer.rank else 0
        value = np.zeros((after, d_model))
        value[:, 2 * width : 2 * width + before] = layer.weights[piece]
        value[:, 3 * width : 3 * width + rank] = layer.biases[piece][:, None]  # nothing in the null token
        columns = token * after + np.arange(after)
        if token < layer.rank:
            output[width + np.arange(after), columns] = 1.0
        else:  # a token without a piece, or the null token: a key that loses to token 0's, and no value
            value[:, 3 * width : 3 * width + rank] -= 1.0
        output[np.arange(after), columns] = 1.0
        queries.append(query)
        values.append(value)
    dispatch = HeadGroup(np.array(queries), np.array([position] * n_tokens), np.array(values), output)
    content = np.eye(d_model)[: 3 * width]
    erase = HeadGroup(np.eye(n_tokens)[None], position[None], content[None], -content.T)
    return AttentionSublayer((dispatch, erase))


def _maxima(form: MaxoutForm, n_heads: int) -> AttentionSublayer:
    rank, width = form.rank, max(form.widths)
    n_tokens, d_model = rank + 1, 3 * width + rank + 1
    query = np.zeros((n_tokens, 2))
    query[:-1, 0] = 1.0
    query[-1, 1] = 1.0  # the null token reads itself
    keys, values = np.zeros((n_heads, 2, d_model)), np.zeros((n_heads, 1, d_model))
    output = np.zeros((d_model, n_heads))
    for head in range(n_heads):
        keys[head, 0, head] = 1.0
        keys[head, 1, -1] = 1.0
        values[head, 0, width + head] = 1.0
        output[2 * width + head, head] = 1.0
    return AttentionSublayer((HeadGroup(np.array([query] * n_heads), keys, values, output),))

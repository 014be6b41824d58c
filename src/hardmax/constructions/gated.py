"""Variant G: one block a maxout layer, attention takes the maxima, a gated feed-forward layer the affine maps.

Token p of P holds [s | y | e_p]: the p-th pieces of all units, their maxima, and its position. In block l head k
has the constant query 1 and s_k both as key and as value, so that it reads max_p s_k whatever the tie rule, and
attention is continuous. The feed-forward layer then computes, in token p, the p-th pieces of the next layer:
its units relu(<w_qk, y> + b_qk + B (2 e_q - 1)) are piece + B where q = p and zero elsewhere, as long as no
piece exceeds B; relu(s + B) and relu(y + B) undo the old content. So it is exact for |x|_inf <= bound only.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from hardmax.constructions.maxout_form import Interval, MaxoutForm, MaxoutLayer, affine_interval
from hardmax.constructions.token_layers import AttentionSublayer, FeedForwardSublayer, HeadGroup, Sublayer
from hardmax.errors import PrecisionError
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import FloatArray


def gated_tokens(form: MaxoutForm) -> tuple[FloatArray, FloatArray]:
    """Weight (P, d_model, d) and bias (P, d_model) of the embedding: s is the first layer's pieces."""
    n_tokens, width = form.rank, max(form.widths[1:])
    d_model = 2 * width + n_tokens
    pieces, shifts = filled(form.layers[0], n_tokens)
    weight, bias = np.zeros((n_tokens, d_model, form.input_dim)), np.zeros((n_tokens, d_model))
    weight[:, : form.widths[1]] = pieces
    bias[:, : form.widths[1]] = shifts
    bias[:, 2 * width :] = np.eye(n_tokens)
    return weight, bias


def gated_sublayers(form: MaxoutForm, bound: float) -> list[tuple[str, Sublayer]]:
    """The blocks: maxima of each layer, then the pieces of the next."""
    limits = _limits(form, bound)
    sublayers: list[tuple[str, Sublayer]] = []
    for index, layer in enumerate(form.layers):
        sublayers.append((f"block {index} attention", _maxima(form, layer.width)))
        if index + 1 < len(form.layers):
            step = _next_pieces(form, layer.width, form.layers[index + 1], limits[index])
            sublayers.append((f"block {index} feed-forward", step))
    return sublayers


def filled(layer: MaxoutLayer, n_tokens: int) -> tuple[FloatArray, FloatArray]:
    """The layer's pieces, one a token, filled up with pieces that change no maximum.

    An affine layer repeats its only piece, which is exact at any temperature too. A maximum gets copies of
    its first piece lowered by one: they never win and never tie.
    """
    missing = n_tokens - layer.rank
    lowered = layer.biases[:1] - (1.0 if layer.rank > 1 else 0.0)
    weights = np.concatenate([layer.weights, *([layer.weights[:1]] * missing)])
    return weights, np.concatenate([layer.biases, *([lowered] * missing)])


def _maxima(form: MaxoutForm, n_heads: int) -> AttentionSublayer:
    n_tokens, width = form.rank, max(form.widths[1:])
    d_model = 2 * width + n_tokens
    read, output = np.zeros((n_heads, 1, d_model)), np.zeros((d_model, n_heads))
    for head in range(n_heads):
        read[head, 0, head] = 1.0
        output[width + head, head] = 1.0
    return AttentionSublayer((HeadGroup(np.ones((n_heads, n_tokens, 1)), read, read, output),))


def _next_pieces(form: MaxoutForm, before: int, layer: MaxoutLayer, limit: float) -> FeedForwardSublayer:
    n_tokens, width, after = form.rank, max(form.widths[1:]), layer.width
    d_model = 2 * width + n_tokens
    pieces, shifts = filled(layer, n_tokens)
    n_gated = n_tokens * after
    first, offsets = np.zeros((n_gated + 2 * before, d_model)), np.zeros(n_gated + 2 * before)
    second, correction = np.zeros((d_model, n_gated + 2 * before)), np.zeros(d_model)
    for token in range(n_tokens):
        rows = slice(token * after, (token + 1) * after)
        first[rows, width : width + before] = pieces[token]
        # B (2 e_q - 1) is written on the position code alone, whose sum is 1: b - B might round
        first[rows, 2 * width :] = -limit
        first[rows, 2 * width + token] = limit
        offsets[rows] = shifts[token]
        second[:after, rows] = np.eye(after)
    correction[:after] -= limit
    old = np.concatenate([np.arange(before), width + np.arange(before)])  # s and y
    erasing = n_gated + np.arange(2 * before)
    first[erasing, old] = 1.0
    offsets[erasing] = limit
    second[old, erasing] -= 1.0
    correction[old] += limit
    return FeedForwardSublayer(first, offsets, second, correction)


def _limits(form: MaxoutForm, bound: float) -> list[float]:
    """B of each block: a power of two above all that its feed-forward layer has to pass, hard or soft."""
    inputs: list[Interval] = [(-Fraction(bound), Fraction(bound))] * form.input_dim
    largest: list[Fraction] = []
    for layer in form.layers:
        weights, biases = filled(layer, form.rank)
        pieces = [
            [affine_interval(row, shift, inputs) for row, shift in zip(matrix, vector, strict=True)]
            for matrix, vector in zip(weights.tolist(), biases.tolist(), strict=True)
        ]
        largest.append(max(max(-low, high) for token in pieces for low, high in token))
        # a softmax mean lies anywhere between the pieces
        inputs = [
            (min(token[unit][0] for token in pieces), max(token[unit][1] for token in pieces))
            for unit in range(layer.width)
        ]
    limits = []
    for here, following in pairwise(largest):
        limit = 1
        while limit <= max(here, following):
            limit *= 2
        if limit > 2**1000:
            piece = nearest_float(max(here, following))
            raise PrecisionError(
                f"bound {bound:g} lets a piece reach {piece:.3g}, too large for the gates of variant G in binary64; "
                "take a smaller bound, or bound=None for variant D"
            )
        limits.append(float(limit))
    return limits

"""Layered networks with softmax heads to four hundred digits, in decimals; shares no code with the package.

Reads weights from the layers a network was made of: Affine, ReLU, HardTanh, Maxout, Attention with constant keys,
Residual. ``widened()`` computes to three thousand digits, for weights that are hundreds of powers of two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

CONTEXT = Context(prec=400, Emax=MAX_EMAX, Emin=MIN_EMIN)


@contextmanager
def widened() -> Iterator[None]:
    """Three thousand digits within."""
    CONTEXT.prec = 3000
    try:
        yield
    finally:
        CONTEXT.prec = 400


def soft_output(layers: Any, x: list[float], temperature: float) -> tuple[list[Decimal], list[int]]:
    """The output, and the winner of every head (largest weight, ties to the lowest index); zero is hard."""
    winners: list[int] = []
    return _run(layers, [Decimal(v) for v in x], Decimal(temperature), winners), winners


def _run(layers: Any, z: list[Decimal], tau: Decimal, winners: list[int]) -> list[Decimal]:
    for layer in layers:
        kind = type(layer).__name__
        if kind == "Affine":
            z = _affine(layer.weight, layer.bias, z)
        elif kind == "ReLU":
            slope = Decimal(float(layer.slope))
            z = [v if v > 0 else CONTEXT.multiply(slope, v) for v in z]
        elif kind == "HardTanh":
            z = [min(max(v, Decimal(layer.low)), Decimal(layer.high)) for v in z]
        elif kind == "Maxout":
            z = [max(z[start : start + layer.rank]) for start in range(0, len(z), layer.rank)]
        elif kind == "Attention":
            parts: list[Decimal] = []
            for head in layer.heads:
                parts += _head(head, z, tau, winners)
            z = parts if layer.output is None else _affine(layer.output, None, parts)
        elif kind == "Residual":
            inner = _run(layer.layers, z, tau, winners)
            z = [CONTEXT.add(a, b) for a, b in zip(z, inner, strict=True)]
        else:
            raise TypeError(kind)
    return z


def _affine(weight: Any, bias: Any, z: list[Decimal]) -> list[Decimal]:
    result = []
    for row_index, row in enumerate(weight.tolist()):
        total = Decimal(0) if bias is None else Decimal(float(bias[row_index]))
        for w, v in zip(row, z, strict=True):
            total = CONTEXT.fma(Decimal(w), v, total)
        result.append(total)
    return result


def _head(head: Any, z: list[Decimal], tau: Decimal, winners: list[int]) -> list[Decimal]:
    scores = _affine(head.keys, None, _affine(head.query, head.query_bias, z))
    best = max(range(len(scores)), key=lambda j: (scores[j], -j))
    winners.append(best)
    if tau == 0:
        return [Decimal(v) for v in head.values[best].tolist()]
    weights = [CONTEXT.exp(CONTEXT.divide(CONTEXT.subtract(s, scores[best]), tau)) for s in scores]
    total = Decimal(0)
    for weight in weights:
        total = CONTEXT.add(total, weight)
    columns = head.values.T.tolist()
    result = []
    for column in columns:
        mixed = Decimal(0)
        for weight, value in zip(weights, column, strict=True):
            mixed = CONTEXT.fma(weight, Decimal(value), mixed)
        result.append(CONTEXT.divide(mixed, total))
    return result

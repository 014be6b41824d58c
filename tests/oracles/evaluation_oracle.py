"""What a small network computes at one point: rationals when hard, sixty decimal digits when soft.

A judge for the package's evaluation, so it shares no code with it: one point at a time, nested lists, no
arrays and no graph. A network is described as in `oracles.cell_oracle`: tuples ("affine", W, b), ("relu",),
("leaky", slope), ("hardtanh", low, high), ("maxout", rank), ("attention", heads, O) and ("residual", layers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

Layer = tuple[Any, ...]
Mix = Callable[[list[Any]], list[Any]]  # scores -> attention weights

_DIGITS = Context(prec=60, Emin=-(10**9), Emax=10**9)


def hard(layers: Sequence[Layer], x: Sequence[Any]) -> tuple[list[Fraction], list[int]]:
    """Output and label at temperature zero; the first of several equal maxima wins.

    >>> hard([("maxout", 2)], [3, 3])
    ([Fraction(3, 1)], [0])
    """
    label: list[int] = []

    def one_hot(scores: list[Fraction]) -> list[Fraction]:
        label.append(_first_best(scores))
        return [Fraction(j == label[-1]) for j in range(len(scores))]

    return _run(layers, [Fraction(v) for v in x], one_hot, Fraction, label), label


def soft(layers: Sequence[Layer], x: Sequence[Any], temperature: float) -> list[float]:
    """Output with attention weights exp(s_j / temperature) / sum, in sixty digits throughout.

    >>> head = ([[1], [-1]], [[5], [7]], [[1]], None)
    >>> soft([("attention", [head], None)], [0], 1.0)
    [6.0]
    """
    tau = _decimal(temperature)

    def weights(scores: list[Decimal]) -> list[Decimal]:
        top = max(scores)
        powers = [_DIGITS.exp(_DIGITS.divide(_DIGITS.subtract(s, top), tau)) for s in scores]
        total = _sum(powers)
        return [_DIGITS.divide(p, total) for p in powers]

    result = _run(layers, [_decimal(v) for v in x], weights, _decimal, [])
    return [float(v) for v in result]


def _decimal(value: Any) -> Decimal:
    exact = Fraction(value)
    return _DIGITS.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _first_best(scores: Sequence[Any]) -> int:
    best = 0
    for j in range(1, len(scores)):
        if scores[j] > scores[best]:
            best = j
    return best


def _run(layers: Sequence[Layer], z: list[Any], mix: Mix, number: Callable[[Any], Any], label: list[int]) -> list[Any]:
    for layer in layers:
        kind = layer[0]
        if kind == "affine":
            z = _affine(layer[1], layer[2], z, number)
        elif kind in ("relu", "leaky"):
            slope = number(layer[1] if kind == "leaky" else 0)
            label += [1 if v > 0 else 0 for v in z]
            z = [v if v > 0 else _times(slope, v) for v in z]
        elif kind == "hardtanh":
            low, high = number(layer[1]), number(layer[2])
            label += [1 if v > low else 0 for v in z]
            z = [v if v > low else low for v in z]
            label += [1 if v < high else 0 for v in z]
            z = [v if v < high else high for v in z]
        elif kind == "maxout":
            rank, z_in, z = layer[1], z, []
            for start in range(0, len(z_in), rank):
                winner = _first_best(z_in[start : start + rank])
                label.append(winner)
                z.append(z_in[start + winner])
        elif kind == "attention":
            read: list[Any] = []
            for keys, values, query, query_bias in layer[1]:
                weights = mix(_affine(keys, None, _affine(query, query_bias, z, number), number))
                columns = [[row[c] for row in values] for c in range(len(values[0]))]
                for column in columns:
                    read.append(_sum([_times(w, number(v)) for w, v in zip(weights, column, strict=True)]))
            z = read if layer[2] is None else _affine(layer[2], None, read, number)
        else:
            assert kind == "residual", kind
            change = _run(layer[1], list(z), mix, number, label)
            z = [_sum([a, b]) for a, b in zip(z, change, strict=True)]
    return z


def _affine(
    matrix: Sequence[Sequence[Any]],
    bias: Sequence[Any] | None,
    z: Sequence[Any],
    number: Callable[[Any], Any],
) -> list[Any]:
    rows = [[_times(number(w), v) for w, v in zip(row, z, strict=True)] for row in matrix]
    shifts = [0] * len(rows) if bias is None else bias
    return [_sum([*row, number(shift)]) for row, shift in zip(rows, shifts, strict=True)]


def _times(a: Any, b: Any) -> Any:
    return _DIGITS.multiply(a, b) if isinstance(a, Decimal) else a * b


def _sum(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = _DIGITS.add(total, term) if isinstance(total, Decimal) else total + term
    return total

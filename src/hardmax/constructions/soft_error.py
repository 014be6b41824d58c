"""How far softmax attention is from the maximum it stands for, layer by layer."""

from __future__ import annotations

from fractions import Fraction

from hardmax.constructions.maxout_form import Interval, MaxoutForm, MaxoutLayer, affine_interval
from hardmax.exact.decimals import softmax_gap
from hardmax.exact.rationals import float_above


def softmax_error(form: MaxoutForm, temperature: float) -> float:
    """The largest deviation of any output from its hard value when every maximum is a softmax mean.

    The deviation of each unit is followed as an interval: affine pieces map intervals, a maximum of pieces
    deviates within the hull of their intervals, and a softmax mean lies below the maximum by at most
    c_P * temperature, P tokens. The result is never above sum_l c_P temperature prod_{l' > l} L_l' with L the
    largest 1-norm of a layer's rows, and below it where errors of one sign cancel (a difference of maxima).

    Exactness: an upper bound in real arithmetic, rounded up; rounding of the evaluation comes on top.
    """
    gap = Fraction(softmax_gap(form.rank)) * Fraction(temperature)
    deviations = [(Fraction(0), Fraction(0))] * form.input_dim
    for layer in form.layers:
        deviations = _through(layer, deviations)
        if layer.rank > 1:  # an affine layer's tokens are copies, whose mean is exact
            deviations = [(low - gap, high) for low, high in deviations]
    if form.read_out is not None:
        deviations = _through(form.read_out, deviations)
    return float_above(max(max(-low, high) for low, high in deviations))


def _through(layer: MaxoutLayer, deviations: list[Interval]) -> list[Interval]:
    result = []
    for unit in range(layer.width):
        pieces = [affine_interval(row, 0.0, deviations) for row in layer.weights[:, unit].tolist()]
        result.append((min(low for low, _ in pieces), max(high for _, high in pieces)))
    return result

"""How far the output of a soft network is from that of its skeleton, layer by layer, with proof.

At one input the hard network is evaluated in rationals. Beside each of its values stands a radius: a proved bound,
entry by entry, on the distance of the soft network's value from it. Radii start at zero, linear maps carry them by
their absolute values, ReLUs and maxima do not enlarge them, and a head of margin delta whose scores may move by r
leaks at most what margin delta - r allows. docs/error_bounds.md, Lemma 22, has the rules and their proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import NotPiecewiseAffineError, ParameterError
from hardmax.exact.rationals import float_above, float_below, fraction, rational_array
from hardmax.exactness import Array, Exactness, FloatArray, IntArray, ObjectArray, ReadOnlyArrays, real
from hardmax.html import ShownAsTable
from hardmax.measure.stability.margins import competitor_weight
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.network import Network, one_input

#: Of one rounding, and of all that a sum may lose to underflow for each term (Lemma 22).
_UNIT, _TINY = 2.0**-52, 2.0**-1070


@dataclass(frozen=True, eq=False)
class HeadCertificate(ShownAsTable):
    """What is proved of one choice between scores, a row of them for each query.

    ``margin`` is the hard winner's lead over its next rival, rounded down; ``least_margin`` what is left of it in the
    soft network at worst; ``leak`` a bound on the soft weight of all keys but the winner.
    """

    name: str
    winner: IntArray
    margin: FloatArray
    least_margin: FloatArray
    leak: FloatArray

    @property
    def holds(self) -> bool:
        """Whether the soft winner is proved to be the hard one in every row."""
        return bool((self.least_margin > 0).all())


@dataclass(frozen=True, eq=False)
class NetworkCertificate(ReadOnlyArrays, ShownAsTable):
    """What is proved of a soft network at one input.

    - ``distance``: every output is within it of the skeleton's (``radius`` has it output by output);
    - ``holds``: every head's winner is the skeleton's;
    - ``is_vacuous``: some head's winner is not proved to have half of the weight, so that the margins prove little or
      nothing; ``distance`` is a bound all the same;
    - ``layers``: margins and leaks of the heads in order.
    """

    temperature: float
    distance: float
    radius: FloatArray
    holds: bool
    is_vacuous: bool
    layers: tuple[HeadCertificate, ...]
    _at: Callable[[float], NetworkCertificate] = field(repr=False)
    exactness: Exactness = Exactness.CERTIFIED

    @cached_property
    def largest_temperature(self) -> float:
        """A temperature up to which ``holds`` is proved, within a factor 1 + 2^-20 of where this proof ends.

        Infinite where it never ends (the first heads of a network decide alike at every temperature), zero at ties.
        """
        if self._at(inf).holds:
            return inf
        low, high = 2.0**-1000, 2.0**1000
        if not self._at(low).holds:
            return 0.0
        if self.holds:
            low = max(low, self.temperature)
        elif self.temperature > 0:
            high = min(high, self.temperature)
        while high > low * (1 + 2.0**-20):
            middle = float(np.sqrt(low) * np.sqrt(high))
            low, high = (middle, high) if self._at(middle).holds else (low, middle)
        return low


def network(net: Network, x: ArrayLike, temperature: float) -> NetworkCertificate:
    """A proof that the soft network at ``x`` stays near its skeleton, or that the margins do not show it.

    The soft network has softmax(scores / temperature) wherever the skeleton has the winner alone; all else is equal.

    Parameters
    ----------
    net : a network without smooth operations; its own temperature does not matter here.
    x : one input, of the network's input shape.
    temperature : at least 0; infinity gives every key the same weight.

    Exactness: certified; margins in rationals, bounds rounded outward.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head, Residual
    >>> first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [-1.0]], [[1.0]])]))
    >>> second = Attention([Head([[1.0, 0.0], [0.0, 2.0]], [[1.0], [0.0]], [[1.0], [0.0]], [0.0, 1.0])])
    >>> net = Network([first, second], input_dim=1)
    >>> found = network(net, [2.5], 0.125)
    >>> found.holds, found.is_vacuous, f"{found.distance:.4f}", [f"{h.leak[0]:.3e}" for h in found.layers]
    (True, False, '0.0180', ['4.248e-18', '1.799e-02'])

    Near the second wall the margin of 1/1000 is less than what the first head may leak at temperature 1:

    >>> found = network(net, [2.001], 1.0)
    >>> found.holds, found.is_vacuous, f"{found.largest_temperature:.3f}"
    (False, True, '0.579')
    """
    if not isinstance(net, Network):
        raise ParameterError(f"expected an hm.Network, got {type(net).__name__}; hm.read(path) reads a file")
    if net.smooth_operations:
        raise NotPiecewiseAffineError(
            f"the network has {net.smooth_operations[0]}, so its skeleton differs by more than temperature; take "
            "hm.skeleton(network) first"
        )
    heat = real("temperature", temperature, "a number >= 0, infinity included")
    if heat < 0:
        raise ParameterError(f"temperature: expected a number >= 0, infinity included, got {heat:g}")
    return _Walk(net, one_input(net, x)).at(heat)


class _Walk:
    """The hard values of a network at one input, and the radii beside them at any temperature."""

    def __init__(self, net: Network, point: FloatArray) -> None:
        self.graph = net.graph
        exact = self.graph.operations("exact")
        self.values: list[ObjectArray] = [rational_array(point)[None]]
        for node, operation in zip(self.graph.nodes, exact, strict=True):
            self.values.append(np.asarray(apply(operation, *(self.values[value] for value in node.inputs))))

    def at(self, temperature: float) -> NetworkCertificate:
        """Radii at one temperature."""
        radii: list[FloatArray] = [np.zeros(self.values[0].shape)]
        heads: dict[int, HeadCertificate] = {}
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for index, node in enumerate(self.graph.nodes):
                inputs = [radii[value] for value in node.inputs]
                if isinstance(node.operation, op.Hardmax):
                    found, radius = self._head(index, radii, 0.0 if node.operation.always_hard else temperature)
                    heads[index + 1] = found
                elif any(part.any() for part in inputs):
                    radius = self._through(index, inputs, heads)
                else:
                    radius = np.zeros(self.values[index + 1].shape)
                radii.append(np.where(np.isnan(radius), inf, radius))
        radius, layers = radii[-1][0], tuple(heads.values())
        return NetworkCertificate(
            temperature,
            float(radius.max(initial=0.0)),
            radius,
            all(head.holds for head in layers),
            any(not (head.leak < 0.5).all() for head in layers),
            layers,
            self.at,
        )

    # --- heads ---------------------------------------------------------------------------------------

    def _head(self, index: int, radii: list[FloatArray], temperature: float) -> tuple[HeadCertificate, FloatArray]:
        """The certificate of a choosing node, and radii of its weights."""
        node = self.graph.nodes[index]
        (source,) = node.inputs
        scores = self.values[source][0]
        n_keys = scores.shape[-1]
        winner = scores.argmax(axis=-1).reshape(-1)
        moved = self._moved(source, radii, winner)  # (rows, keys)
        rows = scores.reshape(-1, n_keys)
        leads = np.array(
            [[float_below(row[own] - other) for other in row] for row, own in zip(rows, winner, strict=True)]
        )
        left = leads - moved
        left = np.where(moved > 0, np.nextafter(left, -inf), left).reshape(-1, n_keys)
        own = winner[:, None] == np.arange(n_keys)
        left[own] = inf
        weights = np.array([[_weight(lead, temperature) for lead in row] for row in left]).reshape(-1, n_keys)
        weights[own] = 0.0
        mass = _raised(weights.sum(axis=1), n_keys)
        leak = np.where(mass < inf, _raised(mass / (1 + mass), 2), 1.0)
        share = np.where(weights < inf, _raised(weights / (1 + weights), 2), 1.0)
        radius = np.where(own, leak[:, None], np.minimum(share, leak[:, None]))
        margin = np.where(own, inf, leads).min(axis=1, initial=inf)
        least = left.min(axis=1, initial=inf)
        if temperature == 0 and not moved.any():
            least = np.full(len(rows), inf)  # the same numbers, hence the same choice, ties included
            leak, radius = np.zeros_like(leak), np.zeros_like(radius)
        found = HeadCertificate(node.name, winner, margin, least, leak)
        return found, radius.reshape(self.values[index + 1].shape)

    def _moved(self, source: int, radii: list[FloatArray], winner: IntArray) -> FloatArray:
        """By how much winner minus key may change, the best of what the linear maps in front of the scores tell."""
        n_keys = self.values[source].shape[-1]
        rows = np.arange(len(winner))
        radius = radii[source].reshape(-1, n_keys)
        if not radius.any():
            return np.zeros(radius.shape)
        best = _raised(radius + radius[rows, winner][:, None], 1)
        if not isinstance(self._maker(source), op.Linear):
            return best
        slopes = np.eye(n_keys)[winner][:, None, :] - np.eye(n_keys)  # winner minus key, (rows, keys, scores)
        doubt = np.zeros_like(slopes)
        while isinstance(maker := self._maker(source), op.Linear):
            weight = maker.weight
            n = weight.shape[0]
            doubt = _raised(doubt @ np.abs(weight) + (n + 2) * _UNIT * (np.abs(slopes) @ np.abs(weight)), 2 * n + 4)
            slopes = slopes @ weight
            (source,) = self.graph.nodes[source - 1].inputs
            before = radii[source].reshape(len(winner), 1, -1)
            total = ((np.abs(slopes) + doubt) * before).sum(axis=-1)
            best = np.minimum(best, _raised(total, weight.shape[1] + 2))
            if not before.any():
                return np.zeros_like(best)
        best[rows, winner] = 0.0
        return best

    def _maker(self, value: int) -> op.Operation | None:
        return self.graph.nodes[value - 1].operation if value > 0 else None

    # --- everything else ------------------------------------------------------------------------------

    def _through(self, index: int, inputs: list[FloatArray], heads: dict[int, HeadCertificate]) -> FloatArray:
        """Radii behind one operation that chooses no key."""
        node = self.graph.nodes[index]
        operation = node.operation
        n = 2 * max(part.size for part in inputs) + 8
        if isinstance(operation, op.Relu):
            return self._relu(operation.slope, self.values[node.inputs[0]], inputs[0])
        if isinstance(operation, op.Clip):
            guard = operation.sign * (self.values[node.inputs[0]] - rational_array(operation.bound))
            return self._relu(0.0, guard, inputs[0])
        if isinstance(operation, op.MaxLast):
            return np.asarray(inputs[0].max(axis=-1))  # a maximum moves by no more than its arguments
        if isinstance(operation, op.MatMul | op.Multiply):
            values = self.values[node.inputs[1]]
            is_alike = values.ndim == inputs[0].ndim >= 3 and values.shape[:-2] == inputs[0].shape[:-2]
            if isinstance(operation, op.MatMul) and node.inputs[0] in heads and is_alike:
                tables, moves = values.reshape(-1, *values.shape[-2:]), inputs[1].reshape(-1, *values.shape[-2:])
                return self._picked(heads[node.inputs[0]], inputs[0], tables, moves, n)
            first, second = (_above(self.values[value]) for value in node.inputs)
            parts = [apply(operation, a, b) for a, b in
                     ((first, inputs[1]), (inputs[0], second), (inputs[0], inputs[1]))]  # fmt: skip
            return _raised(parts[0] + parts[1] + parts[2], n)
        if isinstance(operation, op.Linear) and node.inputs[0] in heads:
            table = rational_array(operation.weight.T)[None]
            return self._picked(heads[node.inputs[0]], inputs[0], table, np.zeros(table.shape), n)
        return _raised(apply(_absolute(operation), *inputs, constant_term=False), n)

    def _relu(self, slope: float, value: ObjectArray, radius: FloatArray) -> FloatArray:
        """Slope one where the sign is known to be positive, the other slope where negative, the larger between."""
        other = abs(slope)
        size = _above(value)
        is_far = size * (1 - 4 * _UNIT) > radius
        positive = np.array([entry > 0 for entry in value.reshape(-1)], dtype=bool).reshape(value.shape)
        factor = np.where(is_far, np.where(positive, 1.0, other), max(1.0, other))
        return _raised(radius * factor, 1) if other not in (0.0, 1.0) else radius * factor

    def _picked(
        self, head: HeadCertificate, weights: FloatArray, tables: ObjectArray, moves: FloatArray, n: int
    ) -> FloatArray:
        """Behind weights (..., keys) times tables (t, keys, out): what leaks goes to exact differences of values."""
        flat = weights.reshape(-1, weights.shape[-1])
        per_table = len(flat) // len(tables)
        result = np.empty((len(flat), tables.shape[-1]))
        for row, (own, leak) in enumerate(zip(head.winner, head.leak, strict=True)):
            table, moved = tables[row // per_table], moves[row // per_table]
            gaps = _above(table - table[own])
            away = np.minimum(flat[row] @ gaps, leak * gaps.max(axis=0, initial=0.0))
            carried = np.minimum(moved[own] + flat[row] @ moved, moved.max(axis=0, initial=0.0))
            result[row] = away + carried
        return _raised(result.reshape(*weights.shape[:-1], tables.shape[-1]), n)


def _absolute(operation: op.Operation) -> op.Operation:
    """A linear operation with the absolute values of its constants."""
    return operation.cast(np.abs)


def _weight(lead: float, temperature: float) -> float:
    """e^{-lead / temperature} rounded up; infinite where the lead is not positive and weights are not known."""
    if lead == inf:
        return 0.0
    if not lead > 0:
        return inf
    return 1.0 if temperature == inf else competitor_weight(lead, temperature)


def _raised(values: Array, n: int) -> FloatArray:
    """Nonnegative floats made by at most n roundings, turned into upper bounds; nan is infinite."""
    grown = values * (1 + (n + 4) * _UNIT) + n * _TINY
    return np.asarray(np.where(np.isnan(values), inf, grown))


def _above(values: ObjectArray) -> FloatArray:
    """Absolute values of rationals, rounded up."""
    flat = [float_above(abs(fraction(value))) for value in values.reshape(-1)]
    return np.array(flat, dtype=np.float64).reshape(values.shape)

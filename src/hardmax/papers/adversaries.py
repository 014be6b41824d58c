"""Searches that try to break the bounds this package publishes as true.

Each adversary climbs: it keeps what came closest to its bound, changes it, and tries again. A ratio of measured to
bound above one would be a counterexample. Float adversaries allow for rounding as stated with each; exact ones count
cells with certificates and allow nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.cells.domains import Box
from hardmax.errors import ParameterError
from hardmax.exact.rationals import rational_array
from hardmax.exactness import FloatArray, check_count
from hardmax.measure import bounds, stability
from hardmax.networks.layers import Affine, Attention, Maxout, ReLU, Residual
from hardmax.networks.library import affine_head
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.tropical.sums.joint_cells import joint_cells

_POPULATION = 512
#: What rounding may add to a ratio where differences cancel: thirteen digits remain at worst.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Attack:
    """What one adversary achieved: the largest ratio of measured to bound, and where."""

    bound: str
    trials: int
    largest_ratio: float
    allowed: float
    witness: str

    @property
    def is_broken(self) -> bool:
        """Whether the bound was exceeded."""
        return not self.largest_ratio <= self.allowed


def attack(
    only: str | Iterable[str] | None = None, *, trials: int = 20_000, rng: np.random.Generator
) -> tuple[Attack, ...]:
    """Let every adversary, or those named, try ``trials`` times; exact ones, which cost more, trials / 1000 times.

    Exactness: an unbroken bound is evidence, not proof; a broken one is a counterexample.

    Examples
    --------
    >>> (result,) = attack("softmax gap", trials=2000, rng=np.random.default_rng(0))
    >>> result.is_broken, result.largest_ratio > 0.9
    (False, True)
    """
    check_count("trials", trials)
    names = list(ADVERSARIES) if only is None else [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in ADVERSARIES:
            raise ParameterError(f"no adversary is called {name!r}; expected one of {', '.join(ADVERSARIES)}")
    return tuple(ADVERSARIES[name](name, int(trials), rng) for name in names)


# --- climbing ---------------------------------------------------------------------------------------


def _climb(
    name: str, trials: int, rng: np.random.Generator, n_numbers: int, ratio: Callable[[FloatArray], FloatArray],
    allowed: float,
) -> Attack:  # fmt: skip
    """Climb over rows of ``n_numbers`` reals."""
    size = min(_POPULATION, trials)
    rows = rng.standard_normal((size, n_numbers)) * rng.choice([0.3, 1.0, 4.0, 12.0], (size, 1))
    values = ratio(rows)
    done = size
    while done < trials:
        order = np.argsort(-values)
        rows, values = rows[order], values[order]
        parents = rows[rng.integers(0, max(1, size // 4), size)]
        scale = 10.0 ** rng.uniform(-4, 0.7, (size, 1))
        children = parents + scale * rng.standard_normal(rows.shape) * (rng.random(rows.shape) < 0.4)
        equal = rng.random(size) < 0.2  # rivals level with each other are where sharp bounds are attained
        children[equal, 1:] = children[equal, 1:2]
        found = ratio(children)
        both, together = np.concatenate([values, found]), np.concatenate([rows, children])
        keep = np.argsort(-both)[:size]
        rows, values = together[keep], both[keep]
        done += size
    best = int(np.argmax(values))
    return Attack(name, done, float(values[best]), allowed, np.array2string(rows[best], precision=17))


def _rows(quantity: str) -> Callable[[str, int, np.random.Generator], Attack]:
    """Score rows of several lengths against the bounds of ``certify``, which are rounded outward by 1e-11."""

    def ratio(rows: FloatArray) -> FloatArray:
        certificate = stability.certify(rows, 1.0)
        measured = getattr(certificate, quantity)
        limit = getattr(certificate, f"{quantity}_bound")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(limit > 0, measured / limit, np.where(measured > 0, np.inf, 0.0))

    def adversary(name: str, trials: int, rng: np.random.Generator) -> Attack:
        parts = [_climb(name, max(1, trials // 4), rng, n, ratio, 1.0) for n in (2, 3, 6, 12)]
        return _worst(name, parts)

    return adversary


def _worst(name: str, parts: list[Attack]) -> Attack:
    worst = max(parts, key=lambda part: part.largest_ratio)
    return Attack(name, sum(part.trials for part in parts), worst.largest_ratio, worst.allowed, worst.witness)


def _stable(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows turned into scores relative to winner 0, and their margins."""
    rivals = rows[:, 1:] - rows[:, 1:].max(axis=1, keepdims=True) - np.abs(rows[:, :1])
    return rivals, np.abs(rows[:, 0])


def _pairs(kind: str) -> Callable[[str, int, np.random.Generator], Attack]:
    """Pairs of score rows with one winner: the Lipschitz constant and the tangent's error at the smaller margin."""

    def ratio(rows: FloatArray) -> FloatArray:
        half = rows.shape[1] // 2
        first, margin = _stable(rows[:, :half])
        second, other = _stable(rows[:, half:])
        shift = rows[:, half] - rows[:, 0]  # how the winner itself moves
        delta = np.minimum(margin, other)
        step = np.concatenate([shift[:, None], second - first + shift[:, None]], axis=1)
        length = np.linalg.norm(step, axis=1)
        limit = stability.hessian_supremum(half, np.exp(-delta))
        a, b = np.exp(first), np.exp(second)
        mass_a, mass_b = a.sum(axis=1, keepdims=True), b.sum(axis=1, keepdims=True)
        p, q = a / (1 + mass_a), b / (1 + mass_b)
        if kind == "lipschitz":
            moved = np.concatenate([q.sum(axis=1, keepdims=True) - p.sum(axis=1, keepdims=True), q - p], axis=1)
            measured = np.linalg.norm(moved, axis=1) / length
        else:
            tangent = (p * (second - first)).sum(axis=1)
            error = np.log1p(mass_b[:, 0]) - np.log1p(mass_a[:, 0]) - tangent
            measured = 2 * np.abs(error) / length**2
        usable = (length > 1e-3) & (limit > 1e-250)
        return np.where(usable, measured / np.where(usable, limit, 1.0), 0.0)

    def adversary(name: str, trials: int, rng: np.random.Generator) -> Attack:
        return _worst(name, [_climb(name, max(1, trials // 3), rng, 2 * n, ratio, 1 + _ROUNDING) for n in (2, 3, 6)])

    return adversary


def _gap(name: str, trials: int, rng: np.random.Generator) -> Attack:
    """max - softmax mean against c_n, temperature one."""

    def ratio(rows: FloatArray) -> FloatArray:
        below = rows.max(axis=1, keepdims=True) - rows
        weights = np.exp(-below)
        measured = (weights * below).sum(axis=1) / weights.sum(axis=1)
        return np.asarray(measured / stability.softmax_gap(rows.shape[1]))

    return _worst(name, [_climb(name, max(1, trials // 3), rng, n, ratio, 1 + 1e-12) for n in (2, 3, 8)])


def _heads(kind: str) -> Callable[[str, int, np.random.Generator], Attack]:
    """Heads of four keys and values in the plane at temperature one: output, query Hessian, query Jacobian."""
    n = 4

    def ratio(rows: FloatArray) -> FloatArray:
        keys, values = rows[:, : 2 * n].reshape(-1, n, 2), rows[:, 2 * n : 4 * n].reshape(-1, n, 2)
        scores = np.einsum("rnd,rd->rn", keys, rows[:, 4 * n :])
        order = np.sort(scores, axis=1)
        winner = scores.argmax(axis=1)
        here = np.arange(len(rows))
        weights = np.exp(scores - order[:, -1:])
        mass = (n - 1) * np.exp(order[:, -2] - order[:, -1])
        p = weights / weights.sum(axis=1, keepdims=True)
        k, v = keys - keys[here, winner][:, None], values - values[here, winner][:, None]
        mean_k, mean_v = np.einsum("rn,rnd->rd", p, k), np.einsum("rn,rnd->rd", p, v)
        wide_k, wide_v = _diameter(keys), _diameter(values)
        spread = np.where(mass <= 1, mass / (1 + mass) ** 2, 0.25)
        if kind == "output":
            measured, limit = np.linalg.norm(mean_v, axis=1), wide_v * mass / (1 + mass)
        else:
            left, wide = (k - mean_k[:, None], wide_k) if kind == "hessian" else (v - mean_v[:, None], wide_v)
            product = np.einsum("rn,rnd,rne->rde", p, left, k - mean_k[:, None])
            measured, limit = np.linalg.norm(product, ord=2, axis=(1, 2)), wide * wide_k * spread
        usable = limit > 1e-200
        return np.where(usable, measured / np.where(usable, limit, 1.0), 0.0)

    def adversary(name: str, trials: int, rng: np.random.Generator) -> Attack:
        return _climb(name, trials, rng, 4 * n + 2, ratio, 1 + _ROUNDING)

    return adversary


def _diameter(points: FloatArray) -> FloatArray:
    gaps = points[:, :, None] - points[:, None]
    return np.asarray(np.sqrt((gaps**2).sum(axis=-1)).max(axis=(1, 2)))


# --- exact ------------------------------------------------------------------------------------------


def _climb_exactly(
    name: str, trials: int, rng: np.random.Generator, shape: tuple[int, ...], count: Callable[[Any], int], limit: int
) -> Attack:
    """Climb over small-integer arrays by changing one entry at a time; equal counts are accepted, to drift."""
    current = rng.integers(-6, 7, shape)
    best = count(current)
    top, witness = best, current.copy()
    steps = max(4, trials // 1000)
    for _ in range(steps - 1):
        trial = current.copy()
        flat = trial.reshape(-1)
        flat[rng.integers(0, flat.size, 1 + int(rng.integers(0, 2)))] = rng.integers(-12, 13)
        found = count(trial)
        if found >= best:
            current, best = trial, found
        if found > top:
            top, witness = found, trial.copy()
    return Attack(name, steps, top / limit, 1.0, f"{top} of {limit}: {witness.reshape(-1).tolist()}")


def _joint(name: str, trials: int, rng: np.random.Generator) -> Attack:
    parts = []
    for sizes, dim, affine in (((4, 4), 2, False), ((3, 3, 3), 2, True), ((3, 3, 3), 3, False), ((3, 2, 4), 2, True)):
        total = sum(sizes)
        ends = np.cumsum(sizes)[:-1]

        def count(numbers: Any, ends: Any = ends, dim: int = dim, affine: bool = affine) -> int:
            heads: list[Any] = [
                (part[:, :dim].astype(float), part[:, dim].astype(float) if affine else None)
                for part in np.split(numbers, ends)
            ]
            return len(joint_cells(heads))

        limit = bounds.max_joint_cells(sizes, dim, affine)
        parts.append(_climb_exactly(name, trials, rng, (total, dim + 1), count, limit))
    return _worst(name, parts)


def _log_lifted(name: str, trials: int, rng: np.random.Generator) -> Attack:
    parts = []
    for n, channels, dim in ((4, 1, 2), (3, 2, 2), (4, 2, 1)):

        def count(numbers: Any, dim: int = dim, channels: int = channels) -> int:
            keys = numbers[:, :dim].astype(float)
            lifted = [(keys, numbers[:, dim + c].astype(float)) for c in range(channels)]
            return len(joint_cells([*lifted, (keys, np.zeros(len(keys)))]))

        limit = bounds.max_log_lifted_cells(n, channels, dim)
        parts.append(_climb_exactly(name, trials, rng, (n, dim + channels), count, limit))
    return _worst(name, parts)


def _networks(build: Callable[[Any], Any], shape: tuple[int, ...], limit: int) -> Any:
    """Networks of the plane built from integers, counted in a large box: never more than in the whole plane."""

    def adversary(name: str, trials: int, rng: np.random.Generator) -> Attack:
        box = Box([-1000.0, -1000.0], [1000.0, 1000.0])
        return _climb_exactly(name, trials, rng, shape, lambda numbers: w.cell_count(build(numbers), box), limit)

    return adversary


def _relu_net(numbers: Any) -> Any:
    values = numbers.astype(float)
    first, second = values[:9].reshape(3, 3), values[9:21].reshape(3, 4)
    layers = [Affine(first[:, :2], first[:, 2]), ReLU(), Affine(second[:, :3], second[:, 3]), ReLU()]
    return Network(layers, 2)


def _block_net(numbers: Any) -> Any:
    v = numbers.astype(float)
    keys = [v[start : start + 6].reshape(2, 3) for start in (0, 10)]
    values = [v[start : start + 4].reshape(2, 2) for start in (6, 16)]
    heads = [affine_head(k[:, :2], k[:, 2], each) for k, each in zip(keys, values, strict=True)]
    output = np.hstack([np.eye(2), np.eye(2)])
    ffn = v[20:26].reshape(2, 3)
    return Network([Residual(Attention(heads, output)), Affine(ffn[:, :2], ffn[:, 2]), ReLU()], 2)


def _two_blocks(numbers: Any) -> Any:
    blocks = [_block_net(numbers[start : start + 26]).layers for start in (0, 26)]
    between = Affine(numbers[52:56].astype(float).reshape(2, 2), numbers[56:58].astype(float))
    return Network([*blocks[0], between, *blocks[1]], 2)


def _routing(name: str, trials: int, rng: np.random.Generator) -> Attack:
    """Inputs closer than the routing radius that change a label: the ratio is radius over distance, where one does."""
    tries, most = max(4, trials // 1000), 0.0
    witness = "no label changed within any radius"
    for _ in range(tries):
        numbers = rng.integers(-6, 7, 58)
        net, x = _two_blocks(numbers), rng.integers(-64, 65, 2) / 16
        norm = float(rng.choice([1.0, 2.0, np.inf]))
        found = stability.routing_radius(net, x, norm)
        if not 0 < found.lower < np.inf:
            continue
        steps = rng.standard_normal((400, 2))
        steps *= found.lower / np.linalg.norm(steps, ord=norm, axis=1, keepdims=True)
        steps *= 1 - rng.choice([1e-9, 1e-3, 0.3], (400, 1))
        # Inputs and weights are dyadic, but the steps are not: a unit that is zero throughout a cell may flicker.
        changed = (net.labels(x + steps) != net.labels(x)).any(axis=1)
        for step in (step for step in steps[changed] if _moves(net, x, x + step)):
            ratio = found.lower / float(np.linalg.norm(step, ord=norm))
            if ratio > most:
                most, witness = ratio, f"x = {x.tolist()}, step = {step.tolist()}, numbers = {numbers.tolist()}"
    return Attack(name, tries * 400, most, 1.0, witness)


def _moves(net: Any, x: FloatArray, other: FloatArray) -> bool:
    """Whether two inputs have different labels in rational arithmetic."""
    return bool((net.labels(rational_array(x)) != net.labels(rational_array(other))).any())


def _maxout_net(numbers: Any) -> Any:
    v = numbers.astype(float)
    first, second = v[:18].reshape(6, 3), v[18:30].reshape(4, 3)
    return Network([Affine(first[:, :2], first[:, 2]), Maxout(3), Affine(second[:, :2], second[:, 2]), Maxout(2)], 2)


#: Which bound, and who attacks it.
ADVERSARIES: dict[str, Callable[[str, int, np.random.Generator], Attack]] = {
    "value": _rows("value"),
    "gradient": _rows("gradient"),
    "hessian": _rows("hessian"),
    "lipschitz": _pairs("lipschitz"),
    "affine remainder": _pairs("remainder"),
    "softmax gap": _gap,
    "attention output": _heads("output"),
    "query hessian": _heads("hessian"),
    "query lipschitz": _heads("jacobian"),
    "joint cells": _joint,
    "log-lifted cells": _log_lifted,
    "2-3-3 ReLU maximum": _networks(_relu_net, (21,), 34),
    "Serra": _networks(_relu_net, (21,), bounds.serra(2, [3, 3])),
    "block": _networks(_block_net, (26,), bounds.block_upper([2, 2], 2, 2, affine=True)),
    "two blocks": _networks(_two_blocks, (58,), bounds.cells_upper([2, 2], 2, 2, 2, affine=True)),
    "routing radius": _routing,
    "maxout": _networks(_maxout_net, (30,), bounds.maxout_layer(2, 3, 2) * bounds.maxout_layer(2, 2, 2)),
}

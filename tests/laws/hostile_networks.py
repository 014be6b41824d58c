"""Random networks on whose numbers every rounding guard has work to do, and what must be true of their cells.

Small integers make walls meet; then the numbers are spoilt: thirds and sevenths, last-ulp perturbations, entries of
the size of a rounding error, subnormals, rows scaled by 2^-1000 to 2^1000. One seed, one network. The judges are the
exact mode, which decides nothing in floats, and the oracle's evaluation, which knows no polytopes at all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter, prod
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.cells.engines.exact.polytopes import volume
from hardmax.exact.rationals import fraction
from networks.builders import network_of
from oracles.cell_oracle import evaluate

Layer = tuple[Any, ...]
KINDS = ("thirds", "sevenths", "ulps", "tiny", "subnormal", "scales", "mixed")


@dataclass(frozen=True)
class Hostile:
    """A network and a domain: ``low`` and ``high`` are None for all of R^dim."""

    kind: str
    dim: int
    layers: list[Layer]
    low: list[float] | None
    high: list[float] | None

    @property
    def domain(self) -> hm.Box | hm.Space:
        return hm.Space(self.dim) if self.low is None or self.high is None else hm.Box(self.low, self.high)

    @property
    def network(self) -> hm.Network:
        return network_of(self.layers, self.dim)


# --- drawing ---------------------------------------------------------------------------------------


def _spoilt(rng: random.Random, kind: str, number: int) -> float:
    """A float near a small integer, or a small integer's multiple, of one kind."""
    if kind == "mixed":
        kind = rng.choice(["whole", "thirds", "sevenths", "ulps", "tiny"])
    if kind == "thirds":
        return number / 3
    if kind == "sevenths":
        return number / 7
    value = float(number)
    if kind == "ulps" and value:
        for _ in range(rng.randrange(4)):
            value = nextafter(value, rng.choice([-inf, inf]))
    if kind == "tiny" and rng.random() < 0.4:
        size = rng.choice([2.0**-53, 2.0**-54, 1e-17, 1e-18, 1e-30, 2.0**-1074])
        if value and rng.random() < 0.5:
            return value * (1 + 2.0**-52)
        return rng.choice([-1, 1]) * rng.uniform(0.5, 2) * size
    return value


def _row(rng: random.Random, kind: str, size: int) -> list[float]:
    row = [_spoilt(rng, kind, rng.choice([0, 0, 1, 1, -1, -1, 2, -2, 3])) for _ in range(size)]
    if kind == "subnormal" and rng.random() < 0.7:
        factor = 2.0 ** rng.choice([-1074, -1074, -1070, -1022, -800])
        return [factor * x for x in row]
    if kind in ("scales", "mixed") and rng.random() < 0.5:
        factor = 2.0 ** rng.choice([-1000, -600, -300, -30, 30, 300, 480, 900])
        return [factor * x for x in row]
    return row


def _matrix(rng: random.Random, kind: str, rows: int, columns: int) -> list[list[float]]:
    """Rows of one kind, some of them repeated, negated or almost so."""
    found: list[list[float]] = []
    for _ in range(rows):
        if found and rng.random() < 0.25:
            sign = rng.choice([1, -1])
            again = [sign * x for x in rng.choice(found)]
            place = rng.randrange(columns)
            again[place] = nextafter(again[place], rng.choice([-inf, inf])) if rng.random() < 0.7 else again[place]
            found.append(again)
        else:
            found.append(_row(rng, kind, columns))
    return found


def _biased(rng: random.Random, kind: str, rows: int, columns: int) -> tuple[list[list[float]], list[float]]:
    """Weights and biases of the same scale, a row each."""
    both = _matrix(rng, kind, rows, columns + 1)
    bias = [row.pop() for row in both]
    return both, bias if rng.random() < 0.8 else [0.0] * rows


def _block(rng: random.Random, kind: str, width: int, most: int) -> tuple[list[Layer], int]:
    """Layers that choose, and the width they leave."""
    shape = rng.choice(["relu", "relu", "leaky", "maxout", "attention", "residual attention", "walls", "walls"])
    if shape in ("relu", "leaky", "walls"):
        n = rng.randint(1, most)
        weights, bias = _biased(rng, kind, n, width)
        activation: Layer = ("leaky", rng.choice([0.5, 1 / 3])) if shape == "leaky" else ("relu",)
        layers = [("affine", weights, bias), activation]
        if shape != "walls":
            return layers, n
        # walls that change nothing: the next block cuts the same coordinates
        return [("residual", [*layers, ("affine", [[0.0] * n for _ in range(width)], None)])], width
    if shape == "maxout":
        n, rank = rng.randint(1, 2), rng.randint(2, 3)
        weights, bias = _biased(rng, kind, n * rank, width)
        return [("affine", weights, bias), ("maxout", rank)], n
    keys = rng.randint(2, 4)
    d_v = width if shape == "residual attention" else 2
    query, query_bias = _biased(rng, "ulps" if kind == "scales" else kind, 2, width)
    head = (_matrix(rng, "thirds", keys, 2), _matrix(rng, "ulps", keys, d_v), query, query_bias)
    attention: Layer = ("attention", [head], None)
    return ([("residual", [attention])], width) if shape == "residual attention" else ([attention], d_v)


def _clipped(rng: random.Random, kind: str, layers: list[Layer]) -> list[Layer]:
    """The layers with some ReLUs as clips, whose bounds are of the weights' own kind."""
    found: list[Layer] = []
    for layer in layers:
        if layer[0] == "residual":
            found.append(("residual", _clipped(rng, kind, layer[1])))
        elif layer[0] == "relu" and rng.random() < 0.5:
            low, high = sorted(_row(rng, kind, 2))
            found.append(("hardtanh", low, high))
        else:
            found.append(layer)
    return found


def hostile_network(seed: int, dims: tuple[int, ...] = (1, 2, 3, 4, 5)) -> Hostile:
    """One network of a random kind and dimension, on a box or on all of space.

    >>> hostile_network(5) == hostile_network(5)
    True
    """
    rng = random.Random(seed)
    kind, dim = rng.choice(KINDS), rng.choice(dims)
    layers: list[Layer] = []
    width = dim
    for _ in range(rng.randint(1, 2)):
        block, width = _block(rng, kind, width, 4 if dim < 4 else 3)
        layers += block
    if seed >= 1000:  # seeds below are written down as examples
        layers = _clipped(random.Random(f"clips of {seed}"), kind, layers)
    if rng.random() < 0.4:
        return Hostile(kind, dim, layers, None, None)
    domain_kind = kind if kind in ("thirds", "sevenths", "ulps") else "whole"
    low = [_spoilt(rng, domain_kind, -rng.randint(0, 3)) for _ in range(dim)]
    high = [_spoilt(rng, domain_kind, rng.randint(1, 3)) for _ in range(dim)]
    if kind in ("scales", "mixed") and rng.random() < 0.3:
        factor = 2.0 ** rng.choice([-1000, -300, 300])
        low, high = [factor * x for x in low], [factor * x for x in high]
    return Hostile(kind, dim, layers, low, high)


# --- judging ---------------------------------------------------------------------------------------


def failures(case: Hostile, *, most_cells: int = 3, rng: random.Random | None = None) -> list[str]:
    """What certified mode gets wrong, in words: counts and labels; corners, volumes and rays of some cells; points."""
    rng = random.Random(0) if rng is None else rng
    cells = hm.enumerate_cells(case.network, case.domain)
    exact = hm.enumerate_cells(case.network, case.domain, exactness="exact")
    labels = [tuple(label) for label in cells.labels.tolist()]
    wanted = {tuple(label): index for index, label in enumerate(exact.labels.tolist())}
    if cells.n_cells != exact.n_cells or set(labels) != set(wanted):
        return [f"{cells.n_cells} cells {sorted(labels)}, exact mode has {exact.n_cells} {sorted(wanted)}"]
    some = rng.sample(range(len(labels)), min(most_cells, len(labels)))
    truths = {index: exact.exact_cell(wanted[labels[index]]) for index in some}
    found = [word for index, truth in truths.items() for word in _wrong_cell(cells, index, truth)]
    if not (cells.volumes > 0).all() or not (cells.volume_errors[np.isfinite(cells.volumes)] < inf).all():
        found.append(f"volumes {cells.volumes.tolist()} +- {cells.volume_errors.tolist()}")
    if hm.count_cells(case.network, case.domain) != cells.n_cells:
        found.append("count_cells counts otherwise")
    if case.low is not None and case.high is not None and np.isfinite(cells.volumes).all():
        whole = prod(Fraction(b) - Fraction(a) for a, b in zip(case.low, case.high, strict=True))
        total = sum(map(Fraction, cells.volumes.tolist()), Fraction(0))
        if abs(total - whole) > sum(map(Fraction, cells.volume_errors.tolist()), Fraction(0)):
            found.append(f"the volumes add up to {float(total)}, the box has {float(whole)}")
    points = _points_on_walls(cells, list(truths.values()), rng)
    found += _misplaced(case, cells, labels, points)
    return found


def _wrong_cell(cells: hm.CellComplex, index: int, truth: Any) -> list[str]:
    pieces, dim = cells.pieces, cells.dim
    part = slice(pieces.vertex_start[index], pieces.vertex_start[index + 1])
    own = cells.exact_cell(index)
    if set(own.points) != set(truth.points):
        return [f"cell {index}: its corners are not exact mode's"]
    numbers = pieces.vertices[part]
    if pieces.directions is not None:
        numbers = np.hstack([numbers, pieces.directions[part]])
    if not (np.isfinite(numbers).all() and np.isfinite(pieces.error[part]).all()):
        return [f"cell {index}: a corner or its error is not finite"]
    found = []
    for corner, error, point in zip(numbers.tolist(), pieces.error[part].tolist(), own.points, strict=True):
        gaps = [abs(Fraction(x) - Fraction(p, point[0])) for x, p in zip(corner, point[1:], strict=True)]
        if max(gaps) > Fraction(error):
            found.append(f"cell {index}: corner {corner} is {float(max(gaps))} off, claimed {error}")
    if dim == 2 and truth.is_bounded and _twice_area(own.points) <= 0:
        found.append(f"cell {index}: its corners do not run counter-clockwise")
    value, bound = float(cells.volumes[index]), float(cells.volume_errors[index])
    if truth.is_bounded:
        is_small = dim < 5 or len(truth.points) <= 16  # many simplices fill the others
        if not value > 0:
            found.append(f"cell {index}: volume {value}")
        elif is_small and value < inf and abs(Fraction(value) - fraction(volume(truth))) > Fraction(bound):
            found.append(f"cell {index}: volume {value} +- {bound}, truly {float(volume(truth))}")
    elif value != inf:
        found.append(f"cell {index}: volume {value} of an unbounded cell")
    if pieces.directions is not None:
        found += [f"cell {index}: {word}" for word in _wrong_rays(cells.rays(index), truth, cells, index, dim)]
    return found


def _twice_area(points: Any) -> Fraction:
    corners = [(Fraction(point[1], point[0]), Fraction(point[2], point[0])) for point in points]
    return sum((a * d - b * c for (a, b), (c, d) in pairwise([*corners, corners[0]])), Fraction(0))


def _rank(rows: list[list[Fraction]]) -> int:
    rows, rank = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((k for k in range(rank, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for k in range(rank + 1, len(rows)):
            factor = rows[k][column] / rows[rank][column]
            rows[k] = [x - factor * y for x, y in zip(rows[k], rows[rank], strict=True)]
        rank += 1
    return rank


def _wrong_rays(rays: Any, truth: Any, cells: hm.CellComplex, index: int, dim: int) -> list[str]:
    """Rays judged by ranks: a direction of the cell is extreme where the walls along it have rank dim - 1."""
    directions = {point[dim + 1 :] for point in truth.points if any(point[dim + 1 :])}
    if not directions:
        return [] if len(rays) == 0 else ["rays of a bounded cell"]
    rows = [cells.follower.wall_row(wall, cells.labels[index])[1 : dim + 1] for wall in truth.walls if wall >= 0]
    normals = [[fraction(x) for x in row] + [Fraction(0)] * (dim - len(row)) for row in rows]
    lines = dim - _rank(normals)
    extreme: dict[tuple[int, ...], tuple[Fraction, ...]] = {}  # by the walls along them
    for q in directions:
        tight = [k for k, normal in enumerate(normals) if sum(a * x for a, x in zip(normal, q, strict=True)) == 0]
        if _rank([normals[k] for k in tight]) == dim - lines - 1:
            largest = max(abs(x) for x in q)
            extreme[tuple(tight)] = tuple(Fraction(x, largest) for x in q)
    if len(rays) != len(extreme) + 2 * lines or not np.isfinite(rays).all():
        return [f"{len(rays)} rays, of {len(extreme)} and {lines} lines"]
    found = []
    for ray in extreme.values() if lines == 0 else ():
        entries = np.array([float(x) for x in ray])
        unit = entries / np.linalg.norm(entries)
        if not any((np.abs(other - unit) <= 2.0**-50 * np.abs(unit) + 2.0**-1070).all() for other in rays):
            found.append(f"no ray along {unit.tolist()}")
    return found


def _points_on_walls(cells: hm.CellComplex, truths: list[Any], rng: random.Random) -> np.ndarray:
    """Corners of cells, middles of their facets, and floats one unit in the last place away."""
    points: list[list[float]] = []
    for truth in truths:
        corners = [
            [Fraction(x, point[0]) for x in point[1 : cells.dim + 1]]
            for point in truth.points
            if not any(point[cells.dim + 1 :])
        ]
        for _ in range(3):
            if corners:
                some = rng.sample(corners, rng.randint(1, min(len(corners), cells.dim)))
                points.append([float(sum(column) / len(some)) for column in zip(*some, strict=True)])
    points += [[nextafter(x, rng.choice([-inf, inf, x])) for x in point] for point in points]
    points += [[0.0] * cells.dim, [float(rng.randint(-2, 2)) for _ in range(cells.dim)]]
    return np.array(points)


def _misplaced(case: Hostile, cells: hm.CellComplex, labels: list[Any], points: np.ndarray) -> list[str]:
    index_of = {label: index for index, label in enumerate(labels)}
    low, high = case.low or [-inf] * case.dim, case.high or [inf] * case.dim
    found = []
    for point, place in zip(points.tolist(), cells.locate(points).tolist(), strict=True):
        if not all(a <= x <= b for a, x, b in zip(low, point, high, strict=True)):
            is_right = place == -1
        else:
            label = evaluate(case.layers, [Fraction(x) for x in point])[0]
            is_right = place == index_of[label] if label in index_of else place >= 0 and holds(cells, place, point)
        if not is_right:
            found.append(f"{point} was put into cell {place}")
    return found


def holds(cells: hm.CellComplex, index: int, point: list[float]) -> bool:
    """Whether a cell's walls, in rationals, do not exclude a point."""
    pieces = cells.pieces
    walls = pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]
    exact = [Fraction(1), *map(Fraction, point)]
    rows = [cells.follower.wall_row(int(wall), cells.labels[index]) for wall in walls if wall >= 0]
    return all(sum(fraction(a) * x for a, x in zip(row, exact, strict=False)) >= 0 for row in rows)

"""Small networks and configurations that the checks count and evaluate, each written out in exact numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from math import log10
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.domains import Box, Segment
from hardmax.cells.interrupts import uninterrupted
from hardmax.cells.search import count_cells, enumerate_cells
from hardmax.constructions.grid import folding_block
from hardmax.constructions.parabola import parabola_heads
from hardmax.measure import bounds
from hardmax.networks.evaluation import softmax as softmax
from hardmax.networks.layers import Affine, Attention, Head, ReLU, Residual
from hardmax.networks.network import Network
from hardmax.papers.entries import Outcome, each
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.sums.joint_cells import joint_cells

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.cells.domains import Domain

Heads = list[tuple[Any, Any]]


def line_network(keys: Sequence[float], values: Sequence[float], *more: Any, residual: bool = False) -> Network:
    """One head on the line with scalar keys and values, followed by more layers."""
    head = Attention([Head([[k] for k in keys], [[v] for v in values], [[1.0]])])
    return Network([Residual(head) if residual else head, *more], 1)


def cells_on_box(net: Network, size: float) -> CellComplex:
    """The cells of a network in the cube [-size, size]^d."""
    (dim,) = net.input_shape
    if dim == 1:
        return all_cells(net, Segment([-size], [size]))
    return all_cells(net, Box([-size] * dim, [size] * dim))


def all_cells(net: Network, domain: Domain) -> CellComplex:
    """Every cell of a network on a domain: a verdict is never drawn from part of them, so Ctrl-C is passed on."""
    return uninterrupted(enumerate_cells(net, domain))


def cell_count(net: Network, domain: Domain) -> int:
    """How many cells a network has on a domain; Ctrl-C is passed on."""
    return int(uninterrupted(count_cells(net, domain)))


def joint_count(heads: Heads) -> int:
    """The number of joint cells of heads (keys, biases or None)."""
    return len(joint_cells(heads))


def exponents(asserted: Callable[[int, int], int], sizes: Sequence[tuple[int, int]], *, affine: bool) -> Outcome:
    """The exponent of N in the tight maximum, for numbers of heads and dimensions, against an asserted one."""

    def case(heads: int, dim: int) -> tuple[str, float, bool]:
        counts = [bounds.max_joint_cells([10**k] * heads, dim, affine=affine) for k in (6, 7)]
        found = round(log10(counts[1] / counts[0]), 3)
        return f"H = {heads}, d = {dim}", found, found == asserted(heads, dim)

    return each(case(*pair) for pair in sizes)


def zonotope_heads(n_heads: int) -> Heads:
    """Two opposite keys (1, h, h^2) a head, in space: all planes in general position through the origin."""
    return [([[1.0, h, h * h], [-1.0, -h, -h * h]], None) for h in range(1, n_heads + 1)]


def bias_free_parabolas(n_keys: int, n_heads: int, dim: int) -> Heads:
    """Bias-free heads that attain the maximum of joint cells."""
    return [(head.keys, None) for head in parabola_heads([n_keys] * n_heads, dim, affine=False)]


def grid_network(n_keys: int, dim: int, folds: int, depth: int) -> Network:
    """Theorem V.7's network on the cube [0, 2 n_keys]^dim, which keeps every number dyadic."""
    return Network(folding_block(n_keys, dim, folds, 2.0, 2.0 * n_keys) * depth, dim)


def grid_count(n_keys: int, dim: int, folds: int, depth: int) -> int:
    """How many cells that network has on its cube."""
    side = 2.0 * n_keys
    domain = Segment([0.0], [side]) if dim == 1 else Box([0.0] * dim, [side] * dim)
    return cell_count(grid_network(n_keys, dim, folds, depth), domain)


def random_transformer(rng: np.random.Generator, n_keys: int, depth: int, width: int = 3) -> Network:
    """One Gaussian head and a ReLU layer a block, in the plane, weights on the grid of 1/1024."""

    def draw(*shape: int) -> Any:
        return np.round(rng.standard_normal(shape) * 1024) / 1024

    layers: list[Any] = []
    for _ in range(depth):
        layers += [
            Residual(Attention([Head(draw(n_keys, 2), draw(n_keys, 2), draw(2, 2))])),
            Affine(draw(width, 2), draw(width)),
            ReLU(),
            Affine(draw(2, width), draw(2)),
        ]
    return Network(layers, 2)


def hull_vertices(points: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The vertices of the convex hull of integer points in the plane."""
    distinct = sorted(set(points))
    return [distinct[term] for term in NewtonPolytope(np.array(distinct, dtype=np.float64)).terms.tolist()]


def plane_winners(heads: Sequence[Sequence[tuple[int, int]]]) -> set[tuple[int, ...]]:
    """Winners of bias-free planar heads in every open cone between tie directions: brute force over directions."""
    ties = set()
    for keys in heads:
        for (ax, ay), (bx, by) in combinations(set(keys), 2):
            ties |= {(ay - by, bx - ax), (by - ay, ax - bx)}
    angles = sorted({np.arctan2(float(y), float(x)) for x, y in ties})
    found = set()
    for first, second in zip(angles, [*angles[1:], angles[0] + 2 * np.pi], strict=True):
        middle = (first + second) / 2
        x, y = Fraction(float(np.cos(middle))), Fraction(float(np.sin(middle)))
        scores = [[a * x + b * y for a, b in keys] for keys in heads]
        found.add(tuple(row.index(max(row)) for row in scores))
    return found

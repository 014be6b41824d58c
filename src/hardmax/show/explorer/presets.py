"""What the explorer opens with: built-in networks, theorems to see, and published claims that fail in the plane.

A preset is a network, a window, and three sentences: what the paper says, what is true, what to try; mathematics stands
between dollar signs. The counts are the library's certified ones, taken again by the tests; the page counts by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from hardmax.constructions.grid import grid_transformer
from hardmax.networks.layers import Attention, Head, Residual
from hardmax.networks.library import affine_head, builtin, describe_builtin
from hardmax.networks.network import Network

Window = tuple[float, float, float, float]  # x0, x1, y0, y1
Counts = tuple[tuple[int, int, int], tuple[int, int, int]]

BUILTINS = "Built-in examples"
THEOREMS = "Theorems to see"
REFUTED = "Published, and not so"
CORRECTED = "Published, true with care"

_SQUARE: Window = (-2.0, 2.0, -2.0, 2.0)
_UNIT: Window = (0.0, 1.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Preset:
    """One way to open the page; ``claims`` are names in ``hm.claims.ledger``."""

    name: str
    title: str
    group: str
    make: Callable[[], Network]
    printed: str
    true: str
    to_try: str
    window: Window = _SQUARE
    temperature: float = 0.0
    view: str = "weights"
    query: tuple[float, float] = (0.5, 0.25)
    layer: int = 0
    from_input: bool = False
    claims: tuple[str, ...] = ()
    counts: Counts | None = None  # cells, regions and maps that the library certifies, in the window and on the plane

    @cached_property
    def network(self) -> Network:
        """What is drawn, made when it is first asked for."""
        return self.make()


@cache
def presets() -> tuple[Preset, ...]:
    """Every preset, in the order of the page's menu.

    Examples
    --------
    >>> names = [preset.name for preset in presets()]
    >>> names[0], len(names) == len(set(names))
    ('power-diagram', True)
    """
    return (*_THEOREMS, *_REFUTED)


# --- the networks -------------------------------------------------------------------------------


def _one_head(keys: Any, biases: Sequence[float]) -> Network:
    """One affine head whose value is half of the key's opposite, without residual."""
    sites = np.asarray(keys, dtype=np.float64)
    return Network([Attention([affine_head(sites, biases, -sites / 2)])], 2)


def _two_triangles() -> Network:
    """CASES.md 2, halved: bias-free heads whose Newton polytopes are triangles with two parallel sides."""
    first = Head([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]], [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]], np.eye(2))
    second = Head([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]], [[0.0, 0.0], [0.0, -0.5], [-0.5, 0.0]], np.eye(2))
    return Network([Attention([first, second], np.hstack([np.eye(2)] * 2))], 2)


def _slabs(n_keys: int) -> Network:
    """Three parabola heads on the slice x_3 = 1 (CASES.md 4 and 5), scaled to a small window.

    Head h has scores 2 p <u_h, x> - p^2 for p = (7 j + o_h) / 8, divided by a number that brings the keys into the
    window: its cells are slabs across u_h.
    """
    heads, size = [], 4 if n_keys < 4 else 8
    for direction, start in zip(((1, 1), (1, -2), (1, 3)), (0, 1, 3), strict=True):
        p = (7 * np.arange(n_keys) + start) / 8
        keys = np.outer(2 * p, direction) / size
        values = np.outer(np.arange(n_keys), direction) / 8
        heads.append(affine_head(keys, -(p**2) / size, values))
    return Network([Attention(heads, np.hstack([np.eye(2)] * 3))], 2)


def _without_bias(keys: Any, values: Any) -> Network:
    """One bias-free head."""
    return Network([Attention([Head(keys, values, np.eye(2))])], 2)


# --- the presets --------------------------------------------------------------------------------

_THEOREMS = (
    Preset(
        "power-diagram", "One head is a power diagram (Theorem IV.3)", THEOREMS,
        lambda: _one_head([[-1.25, 0.75], [0.25, 1.25], [1.25, 0.5], [0.75, -1.0], [-0.75, -1.0], [0.25, -0.25]],
                  [-1.0625, -0.8125, -0.90625, -0.78125, -0.78125, -0.25]),
        "Routing by the largest score $<q, k>$ is the power diagram with the keys as sites.",
        "So it is, with or without biases: site $k$, power $|k|^2 + 2 b$. Biases of $-|k|^2 / 2$ give the Voronoi "
        "diagram.",
        "Drag a key. Lower its bias until its cell is gone: the key is dead, and its colour leaves the plane.",
        temperature=0.25, claims=("IV.3",),
        counts=((6, 6, 6), (6, 6, 6)),
    ),
    Preset(
        "two-heads", "Two heads and their Minkowski sum (Definition III.13)", THEOREMS,
        _two_triangles,
        "Joint cells of several heads are the vertices of the sum of their Newton polytopes.",
        "True. Two triangles, each with three cells: their sum is a pentagon, so there are five joint cells, "
        "not nine.",
        "Point at a cell: its vertex of the sum lights up. Turn one triangle upside down and the sum is a hexagon.",
        temperature=0.0, claims=("III.13",),
        counts=((5, 5, 5), (5, 5, 5)),
    ),
    Preset(
        "tight-joint", "As many joint cells as there can be (Theorem V.2)",
        THEOREMS,
        lambda: _slabs(3),
        "For more heads than dimensions the paper bounds joint cells by a multiple of $(N H)^{⌊d/2⌋}$: here of 9.",
        "Without bias 9 is the maximum indeed. With biases it is $1 + e_1 + e_2$ of the numbers $N - 1$, here "
        "$1 + 6 + 12 = 19$, which these slabs attain; it grows like $(N H)^2$.",
        "Add a fourth head, or a key to one of them, and compare with $1 + e_1 + e_2$.",
        window=(-1.5, 3.0, -2.0, 2.5), claims=("V.2-saturated",),
        counts=((19, 19, 19), (19, 19, 19)),
    ),
    Preset(
        "depth", "Depth multiplies cells (Theorem V.7)", THEOREMS, lambda: grid_transformer(2, 2, 2, 2),
        "Some transformer of depth L has at least $(N^d ⌊\\frac{d_{ff}}{2 d}⌋^d)^L$ regions.",
        "This one folds the square onto itself: $(2 N)^{d L}$ cells with $N = 2$ keys, $d = 2$ and $L = 2$. The "
        "printed formula gives 16.",
        "Choose layer 1 to see where the first block cuts. Remove the last two layers: one fold is left.",
        window=_UNIT, query=(0.375, 0.25), layer=3, from_input=True, claims=("V.7", "F-count"),
        counts=((256, 256, 256), (324, 324, 289)),
    ),
    Preset(
        "soft-limit", "Where soft attention is nearly hard (Theorem VI.1)", THEOREMS, lambda: builtin("figure-5"),
        "With margin $delta$ and $t = exp(-delta / tau)$ the weights are within $2 (N - 1) t$ of one-hot.",
        "True, and the sharp form is $\\frac{2 (N - 1) t}{1 + (N - 1) t}$. The share of the winner is low only in "
        "bands around the walls, of half-width $tau log \\frac{(N - 1) (1 - p)}{p}$ in scores, where $p$ is what the "
        "others get.",
        "Drag the query q across a wall and read its margin. Move the temperature: bands shrink, walls stay.",
        temperature=0.2, view="share", claims=("VI.1-gradient", "VI.3-bands"),
        counts=((5, 5, 5), (5, 5, 5)),
    ),
    Preset(
        "demo", "Two layers of two heads", BUILTINS, partial(builtin, "demo"), describe_builtin("demo"),
        "The same network as hm.builtin('demo').",
        "Compare the page's count with the library's, then drag anything.",
        counts=((127, 127, 127), (191, 191, 191)),
    ),
)  # fmt: skip


_REFUTED = (
    Preset(
        "49-or-34", "49 regions of a 2-3-3 network? At most 34 (Figure 2)", REFUTED, lambda: builtin("figure-2"),
        "Two layers of three ReLUs reach a maximum of 7 × 7 = 49 regions.",
        "The maximum is 34, and this network attains it. A cell where one unit of the first layer is on, or none, "
        "is mapped to a line or a point, which three walls cut into at most four parts, or not at all.",
        "Change a weight of layer 1 and try to beat 34. Serra's bound, 40, is not attained either.",
        window=(-2.0, 6.0, -1.5, 6.5), claims=("III.3",),
        counts=((34, 34, 34), (34, 34, 34)),
    ),
    Preset(
        "216-or-92", "216 vertices of three heads? At most 92 (Figure 4)", REFUTED, lambda: _slabs(6),
        "Three heads of six keys in space raise the vertex count from 6 to 216.",
        "$216 = 6^3$ counts candidate sums. At most 92 are vertices; 91 of them have their cell on the slice of space "
        "that you see here, the last one on the other side.",
        "Count the vertices of the sum beside the field. Drag keys: no position gives more.",
        window=(-2.0, 6.0, -3.5, 4.5), claims=("Figure 4",),
        counts=((91, 91, 91), (91, 91, 91)),
    ),
    Preset(
        "dead-key", "Dead keys are not the lightest (Figure 3)", CORRECTED, lambda: builtin("figure-3"),
        "Cells disappear due to their relatively small weights.",
        "Small relative to a mixture of others: the key of length 5 is dead, a mixture of the rest, and the key at "
        "the origin, of length 0, is alive. A key lives exactly if it is a vertex of the keys' convex hull.",
        "Move key 2 to the right, past the segment between keys 0 and 1: it comes to life.",
        window=(-2.0, 7.0, -4.5, 4.5), query=(3.0, 2.0), claims=("Figure 3",),
        counts=((3, 3, 3), (3, 3, 3)),
    ),
    Preset(
        "bounded-cells", "Cells without bias are never bounded (Corollary IV.4)", REFUTED,
        lambda: _one_head([[1.5, 0.25], [0.25, 1.5], [-1.25, 0.5], [-0.5, -1.25], [0.25, 0.25]], [0.0] * 5),
        "The zero-temperature output is constant on bounded polyhedral regions.",
        "Without bias every cell is a cone with its tip at the origin. Key 4, inside the hull, owns nothing.",
        "Raise the bias of key 4 to 0.5: now there is a bounded cell in the middle.",
        claims=("IV.4-bounded", "III.7"),
        counts=((4, 4, 4), (4, 4, 4)),
    ),
    Preset(
        "signatures", "Signatures do not bound regions (Section VII)", REFUTED,
        lambda: _without_bias([[1, 0], [0, 1], [-1, 0], [0, -1]], [[1, 0], [1, 0], [-1, 0], [-1, 0]]),
        "The number of distinct signatures is a lower bound on linear regions.",
        "Here are four signatures and two regions: neighbouring keys share a value. With equal values on opposite "
        "keys it is four regions of two maps.",
        "Swap two values (choose to drag values) and compare cells, regions and maps.",
        claims=("VII-signatures", "III.12"),
        counts=((4, 2, 2), (4, 2, 2)),
    ),
    Preset(
        "recurrence", "Regions can multiply faster (Appendix E)", REFUTED,
        lambda: Network([Residual(Attention([Head([[1, 0], [0, 1], [0, -1]], [[0, 2], [0, 0], [0, 0]], np.eye(2))])),
                 Residual(Attention([affine_head([[1, 0], [0, 0]], [-0.5, 0], [[0, 0], [3, 0]])]))], 2),
        "Regions multiply at most: two regions, then a head of two, give at most four.",
        "There are five. The first layer's second region is not convex, so one wall cuts it into three. Of cells, "
        "which are convex, the statement is true.",
        "Look at layer 1 alone (two cells), then move its wall by its biases.",
        claims=("E-recurrence",),
        counts=((6, 5, 4), (6, 5, 4)),
    ),
    Preset(
        "moving-walls", "The feed-forward walls move (Figure 7)", REFUTED, lambda: builtin("figure-7"),
        "A block's partition is the common refinement of attention's and the feed-forward layer's.",
        "Attention first adds a value, another one in each cell, so the same ReLU wall lies elsewhere in each. "
        "On the whole plane the refinement would have 16 cells, and the block has more.",
        "Drag the values: the ReLU walls shift within one cell and nowhere else.",
        window=(-2.5, 2.5, -2.5, 2.5), claims=("E-refinement",),
        counts=((17, 17, 17), (19, 19, 19)),
    ),
    Preset(
        "duplicates", "Equal keys share (Theorem IV.3)", CORRECTED,
        lambda: _one_head([[1, 0.5], [1, 0.5], [-1, 0.25]], [0.0] * 3),
        "In the interior of a cell attention tends to a one-hot indicator.",
        "Keys 0 and 1 are equal: on their cell the weights stay $(\\frac{1}{2}, \\frac{1}{2}, 0)$ "
        "at every positive temperature. The statement is for a set of keys, all distinct.",
        "Read the weights at q, then nudge one of the two keys by an arrow key.",
        temperature=0.125, claims=("IV.3-one-hot",),
        counts=((2, 2, 2), (2, 2, 2)),
    ),
    Preset(
        "curvature", "The curvature bound is broken (Theorem VI.1)", REFUTED,
        lambda: _one_head([[1, 0], [-1, 0]], [0.0, 0.0]),
        "The Hessian of the soft maximum is at most $(N - 1) t / tau$.",
        "With $N = 2$ and margin near $log 4$ it is $\\frac{8}{25}$, above the printed $\\frac{1}{4}$. "
        "The true bound replaces $N - 1$ by $N$, "
        "and the printed one fails at every large enough margin.",
        "Drag q to the right: the measured curvature stays above the published bound, for ever.",
        temperature=1.0, view="share", query=(0.6875, 0.0), claims=("VI.1-hessian",),
        counts=((2, 2, 2), (2, 2, 2)),
    ),
)  # fmt: skip

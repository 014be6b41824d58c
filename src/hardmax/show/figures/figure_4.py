"""Figure 4: Newton polytopes of one, two and three heads of six keys in space, with their vertices counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray, IntArray
from hardmax.measure import bounds
from hardmax.networks.library import parabola_heads
from hardmax.show.colours import INK, key_colour, tinted
from hardmax.show.figures.style import PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table, Value, label_text, path_text
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.sums.joint_cells import minkowski_vertices

NAME = "Newton polytopes of one to three heads"
SIZE = (PAGE, 2.85)


_KEYS, _DIM = 6, 3
_HEADS = (1, 2, 3)
_VIEW = (-0.4, -0.62)  # azimuth and elevation of the eye, in radians
_GROUPS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))  # the heads whose winners can change along a face
_LIGHT = np.array([-0.35, 0.45, 0.82])


@dataclass(frozen=True, eq=False)
class Face:
    """A facet: its corners in order around it (indices of vertices), and which heads' winners change along it."""

    corners: tuple[int, ...]
    heads: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Polytope:
    """The sum of some heads' key polytopes: vertices as sums of one key from each head, and facets.

    Exactness: vertices and facets exact; ``seen`` (vertices, 3), the view that is drawn, is floats: an affine image
    turned to the eye, x and y on the page, z towards the reader.
    """

    winners: IntArray  # (n_vertices, heads)
    vertices: FloatArray  # (n_vertices, 3)
    faces: tuple[Face, ...]
    seen: FloatArray
    facing: tuple[float, ...]  # of each face: how far it is turned to the light, or negative where hidden
    n_sums: int
    maximum: int


@dataclass(frozen=True, eq=False)
class Values:
    """One polytope for each number of heads."""

    polytopes: tuple[Polytope, ...]


def compute(rng: np.random.Generator) -> Values:
    """Vertices by certified search, facets in integers; nothing is random."""
    keys = [head.keys for head in parabola_heads(_KEYS, _HEADS[-1])]
    found = []
    for n_heads in _HEADS:
        winners = minkowski_vertices(keys[:n_heads])
        parts = [keys[head][winners[:, head]] for head in range(n_heads)]
        found.append((winners, np.sum(parts, axis=0)))
    frame = _round_frame(found[-1][1])
    return Values(tuple(_polytope(winners, vertices, frame) for winners, vertices in found))


def _round_frame(vertices: FloatArray) -> FloatArray:
    """A linear map (3, 3) after which the vertices are spread alike in all directions.

    The keys lie on tall parabolas; faces and vertices do not change under an affine map, the picture does.
    """
    centred = vertices - vertices.mean(axis=0)
    # upright first, so that the parabolas' axis stays vertical on the page
    tilt, _, _, _ = np.linalg.lstsq(centred[:, :2], centred[:, 2], rcond=None)
    shear = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-tilt[0], -tilt[1], 1.0]])
    sheared = centred @ shear.T
    spread, axes = np.linalg.eigh(np.cov(sheared[:, :2].T))
    flat = axes @ np.diag(1.0 / np.sqrt(spread)) @ axes.T
    whole = np.zeros((3, 3))
    whole[:2, :2], whole[2, 2] = flat, 1.0 / sheared[:, 2].std()
    return np.asarray(whole @ shear)


def _polytope(winners: IntArray, vertices: FloatArray, frame: FloatArray) -> Polytope:
    azimuth, elevation = _VIEW
    turn = np.array(
        [[np.cos(azimuth), -np.sin(azimuth), 0.0], [np.sin(azimuth), np.cos(azimuth), 0.0], [0.0, 0.0, 1.0]]
    )
    tilt = np.array(
        [[1.0, 0.0, 0.0], [0.0, np.cos(elevation), -np.sin(elevation)], [0.0, np.sin(elevation), np.cos(elevation)]]
    )
    seen = (vertices - vertices.mean(axis=0)) @ (tilt @ turn @ frame).T
    hull = NewtonPolytope(vertices)
    facets = hull.facets if hull.is_full_dimensional else (tuple(range(len(vertices))),)
    faces, facing = [], []
    for facet in facets:
        corners, normal = _around(seen[list(facet)], seen.mean(axis=0))
        members = [facet[place] for place in corners]
        heads = [head for head in range(winners.shape[1]) if len(set(winners[members, head].tolist())) > 1]
        faces.append(Face(tuple(members), tuple(heads)))
        is_seen = normal[2] > 0 or not hull.is_full_dimensional
        facing.append(float(abs(normal @ _LIGHT) / np.linalg.norm(_LIGHT)) if is_seen else -1.0)
    n_heads = winners.shape[1]
    return Polytope(
        winners, vertices, tuple(faces), seen, tuple(facing), _KEYS**n_heads,
        bounds.max_joint_cells([_KEYS] * n_heads, _DIM, affine=False),
    )  # fmt: skip


def _around(corners: FloatArray, inside: FloatArray) -> tuple[list[int], FloatArray]:
    """The order of a facet's corners around it, and its unit normal away from a point."""
    centre = corners.mean(axis=0)
    _, _, axes = np.linalg.svd(corners - centre)
    normal = axes[2] if axes[2] @ (centre - inside) >= 0 else -axes[2]
    flat = (corners - centre) @ axes[:2].T
    return np.argsort(np.arctan2(flat[:, 1], flat[:, 0]), kind="stable").tolist(), normal


def draw(values: Values, figure: Any) -> None:
    """Three polytopes, each to its own scale."""
    axes = figure.subplots(1, 3, gridspec_kw={"width_ratios": (0.72, 1.0, 1.0)})
    for ax, letter, polytope in zip(axes, "abc", values.polytopes, strict=True):
        draw_polytope(polytope, ax)
        heads = polytope.winners.shape[1]
        name = "1 head" if heads == 1 else f"{heads} heads"
        panel_title(ax, letter, f"{name}: {len(polytope.winners)} vertices of {polytope.n_sums} sums")
    handles, labels = legend()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), columnspacing=1.4)


def draw_polytope(polytope: Polytope, ax: Any) -> Any:
    """Hidden edges dotted, faces in the colours of the heads that move along them, vertices as dots."""
    for face, light in sorted(zip(polytope.faces, polytope.facing, strict=True), key=lambda pair: pair[1] >= 0):
        x, y = polytope.seen[list(face.corners), :2].T
        if light < 0:
            ax.plot([*x, x[0]], [*y, y[0]], color="#b9bec5", linewidth=0.4, zorder=1)
        else:
            ax.fill(x, y, facecolor=face_colour(face.heads, light), edgecolor=INK, linewidth=0.55, zorder=2)
    is_seen = {corner for face, light in zip(polytope.faces, polytope.facing, strict=True) if light >= 0
               for corner in face.corners}  # fmt: skip
    front = np.array(sorted(is_seen))
    ax.scatter(*polytope.seen[front, :2].T, s=5.0, color=INK, linewidth=0.0, zorder=3)
    ax.set_aspect("equal", adjustable="datalim")
    ax.axis("off")
    return ax


def face_colour(heads: tuple[int, ...], light: float) -> str:
    """One colour for each set of heads, stronger where the face is turned away from the light."""
    return tinted(key_colour(_GROUPS.index(heads)), 0.95 - 0.6 * light)


def legend() -> tuple[list[Any], list[str]]:
    """Patches for faces of one head and of two."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=face_colour(group, 0.6), edgecolor=INK, linewidth=0.4) for group in _GROUPS]
    names = [f"of heads {' and '.join(map(str, group))}" for group in _GROUPS]
    names[:3] = ["face of head 0", "of head 1", "of head 2"]
    return patches, names


def tables(values: Values) -> dict[str, Table]:
    """Counts beside what was printed, every vertex, and every facet."""
    counts: list[tuple[Value, ...]] = []
    vertices: list[tuple[Value, ...]] = []
    faces: list[tuple[Value, ...]] = []
    for polytope in values.polytopes:
        heads = polytope.winners.shape[1]
        n_faces = len(polytope.faces) if heads > 1 else None  # one head's polytope is flat
        counts.append((heads, len(polytope.winners), n_faces, polytope.n_sums, polytope.maximum, "certified"))
        for index, (winners, vertex) in enumerate(zip(polytope.winners, polytope.vertices, strict=True)):
            vertices.append((heads, index, label_text(winners), *vertex.tolist(), "certified"))
        for face in polytope.faces:
            corners = label_text(face.corners)
            faces.append((heads, corners, " ".join(map(str, face.heads)),
                          "exact", path_text(polytope.seen[list(face.corners), :2]), "estimated"))  # fmt: skip
    return {
        "": Table(("heads", "vertices", "facets", "sums of one key from each head, as published", "largest possible",
                   "exactness"),
                  tuple(counts)),
        "vertices": Table(("heads", "vertex", "winners", "x", "y", "z", "exactness"), tuple(vertices)),
        "faces": Table(("heads", "corners", "heads that change", "exactness", "drawn outline", "outline exactness"),
                       tuple(faces)),
    }  # fmt: skip


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    one, two, three = values.polytopes
    return Caption(
        "Newton polytopes (convex hulls of keys) of one head with six keys in space, and of the sums of two and of "
        "three, which belong to the joint choices of several heads. The keys of a head lie on a parabola, so one "
        "head's polytope is flat. A face's colour says along which heads it moves. Drawn after one affine map, the "
        f"same for all three, each to its own scale. Vertices (certified): {len(one.winners)}, "
        f"{len(two.winners)} and {len(three.winners)}.",
        f'Minkowski sums raise the vertex count "from 6 to {three.n_sums}", scaling as O(N^H).',
        f"{three.n_sums} = 6^3 is the number of sums of one key from each head, not of vertices. The largest number of "
        f"vertices for three heads of six keys in dimension three is {three.maximum} = 6^3 - 5^3 + 1, and this "
        f"configuration attains it; for two heads it is {two.maximum}, attained too. With "
        "three keys or more, N^H is attained only up to H = d - 1.",
    )

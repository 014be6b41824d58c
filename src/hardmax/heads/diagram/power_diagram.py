"""The power diagram of one attention head at zero temperature.

Key j wins query q where <q, k_j> + b_j is largest. Since |q|^2 - 2 (<q, k_j> + b_j) = |q - k_j|^2 - p_j with
p_j = |k_j|^2 + 2 b_j, the cells of the head are those of the power diagram with sites k_j and powers p_j
(Theorem IV.3). Without biases every cell is a cone, and a key owns one exactly when it is a vertex of the
convex hull of the keys.

A cell is closed; a key *lives* if its cell has interior. Of keys that coincide with their biases, the lowest
index lives. Ties are assigned to the lowest index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError, PrecisionError, ShapeError
from hardmax.exact.rationals import dot, exact_scores, fractions
from hardmax.exact.rounding import dot_error
from hardmax.exactness import BoolArray, FloatArray, IntArray, ReadOnlyArrays, as_index, finite_numbers, frozen
from hardmax.heads.classes.domains import read_domain
from hardmax.heads.classes.sources import arrays_head
from hardmax.heads.diagram.clipping import Polyhedron, clipped_polygons, clipped_polyhedra
from hardmax.heads.diagram.normalised import NormalisedDiagram, normalised_diagram
from hardmax.heads.diagram.orders import OrderDiagram, order_diagram
from hardmax.heads.diagram.reachable import Reachable, reachable_from_cone, reachable_from_hull
from hardmax.heads.diagram.reachable_ball import reachable_from_ball
from hardmax.heads.diagram.reachable_polyhedron import reachable_from_polyhedron
from hardmax.heads.diagram.shares import Shares, angle_shares, sampled_shares
from hardmax.heads.diagram.sparsemax import SparsemaxDiagram, sparsemax_diagram
from hardmax.tropical.dual_subdivision import dual_cells
from hardmax.tropical.polynomial import TropicalPolynomial
from hardmax.tropical.sums.terms import Terms, read_terms
from hardmax.views import view

Extent = tuple[tuple[float, float], ...]


class Halfspaces(NamedTuple):
    """The facets of a cell: ``normals @ q <= limits``, each with the key that wins beyond it."""

    normals: FloatArray  # (facets, d)
    limits: FloatArray  # (facets,)
    rivals: IntArray  # (facets,)


@dataclass(frozen=True, eq=False)
class PowerDiagram(ReadOnlyArrays):
    """The cells of one head; made by ``power_diagram``.

    ``keys`` (N, d) and ``biases`` (N,) or None are read-only. Every combinatorial answer (who lives, who
    neighbours whom, who wins) is certified; coordinates are floats.
    """

    keys: FloatArray
    biases: FloatArray | None
    device: str | None = None

    def __repr__(self) -> str:
        kind = "bias-free" if self.biases is None else "affine"
        return f"PowerDiagram({len(self.keys)} {kind} keys in dimension {self.dim})"

    @property
    def dim(self) -> int:
        """The dimension of query space."""
        return int(self.keys.shape[1])

    @property
    def sites(self) -> FloatArray:
        """The centres (N, d): the keys themselves."""
        return self.keys

    @cached_property
    def powers(self) -> FloatArray:
        """The additive terms |k_j|^2 + 2 b_j in floats; a cell is nearest in |q - k_j|^2 - p_j."""
        with np.errstate(over="ignore", invalid="ignore"):
            values: FloatArray = (self.keys * self.keys).sum(axis=1)
            if self.biases is not None:
                values = values + 2.0 * self.biases
        if not np.isfinite(values).all():
            raise PrecisionError(
                "the square of a key overflows binary64, expected keys below 1e154; divide keys and biases by "
                "one power of two, which changes no winner"
            )
        return frozen(values)

    @cached_property
    def shifts(self) -> FloatArray:
        """The biases (N,), zeros where there are none."""
        return frozen(np.zeros(len(self.keys))) if self.biases is None else self.biases

    def exact_score(self, key: int) -> tuple[Fraction, ...]:
        """A key and its bias as rationals: the coefficients of its score, the constant last."""
        key = as_index("key", key, len(self.keys))
        return (*fractions(self.keys[key]), Fraction(float(self.shifts[key])))

    @property
    def is_voronoi(self) -> bool:
        """Whether all powers agree exactly, so that this is the ordinary Voronoi diagram (Remark IV.6).

        Exactness: exact.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            square = (self.keys * self.keys).sum(axis=1)
            size = float((square + 2.0 * np.abs(self.shifts)).max())
            spread = float(np.ptp(square + 2.0 * self.shifts))
            if spread > 2.0 * dot_error(self.dim, size):
                return False
        scores = map(self.exact_score, range(len(self.keys)))
        return len({dot(key, key) + 2 * bias for *key, bias in scores}) == 1

    @cached_property
    def terms(self) -> Terms:
        """The distinct scores, as the searches take them."""
        return Terms.from_keys(self.keys, self.biases)

    @cached_property
    def live(self) -> BoolArray:
        """Which keys own a full-dimensional cell, (N,).

        Exactness: certified.
        """
        if self.device is not None:
            result = _live_on(self, self.device)
        else:
            result = np.zeros(len(self.keys), dtype=bool)
            result[self.terms.live_keys] = True
        return frozen(result)

    @cached_property
    def neighbours(self) -> IntArray:
        """Pairs (n_pairs, 2) of live keys, lower index first, whose cells share a facet; sorted.

        Exactness: certified.
        """
        return frozen(self.terms.key_pairs)

    def _row(self, key: int) -> int:
        """The row of a live key among the distinct terms."""
        number = as_index("key", key, len(self.keys))
        if not self.live[number]:
            raise ParameterError(
                f"key {number} owns no cell with interior, expected a live key; diagram.live lists them"
            )
        return int(self.terms.of[number])

    def rivals(self, key: int) -> IntArray:
        """The live keys whose cells share a facet with a live key's, increasing.

        Exactness: certified.
        """
        return self.terms.index[self.terms.neighbours_of(self._row(key))]

    def halfspaces(self, key: int) -> Halfspaces:
        """The facets of a live key's cell, none redundant: ``normals @ q <= limits``.

        Exactness: the list of rivals is certified; normals and limits are differences, rounded once.
        """
        rivals = self.rivals(key)
        with np.errstate(over="ignore"):
            normals = self.keys[rivals] - self.keys[key]
            limits = self.shifts[key] - self.shifts[rivals]
        if not (np.isfinite(normals).all() and np.isfinite(limits).all()):
            raise PrecisionError(
                f"key {int(key)}: the difference to a neighbour overflows binary64, expected differences below 1e308; "
                "divide keys and biases by one power of two, which changes no winner"
            )
        return Halfspaces(normals, limits, rivals)

    def interior_point(self, key: int) -> FloatArray:
        """A query that a live key wins strictly.

        Exactness: certified.

        Raises
        ------
        PrecisionError
            The cell is so thin, or so far out, that no float was found in it; ``exact_interior_point`` has a rational.
        """
        query, _ = self.witness(key)
        if query is None:
            raise PrecisionError(
                f"key {int(key)}: no float query was found in its cell, expected one that holds some; ask "
                "exact_interior_point for a rational query"
            )
        return query

    def exact_interior_point(self, key: int) -> tuple[Fraction, ...]:
        """A rational query that a live key wins strictly: ``interior_point`` itself where that exists.

        Exactness: exact.

        Examples
        --------
        The middle key wins between 1 and the next float:

        >>> above = np.nextafter(1.0, 2.0)
        >>> thin = power_diagram([[-1.0], [0.0], [1.0]], [1.0, 0.0, -above])
        >>> thin.live
        array([ True, True, True])
        >>> 1 < thin.exact_interior_point(1)[0] < above
        True
        """
        query, exact = self.witness(key)
        if query is not None:
            return tuple(fractions(query))
        assert exact is not None
        return exact

    def witness(self, key: int) -> tuple[FloatArray | None, tuple[Fraction, ...] | None]:
        """A query that a live key wins strictly: floats and None, or, where no float was found, None and rationals.

        Exactness: certified.
        """
        row = self._row(key)
        known = self.__dict__.setdefault("_known_witnesses", {})
        if row not in known:
            known[row] = self.terms.witness(row)
        query, exact = known[row]
        return (None if query is None else query.copy()), exact

    def assign(self, queries: ArrayLike) -> IntArray:
        """The winning key of each query (..., d); ties go to the lowest index.

        Exactness: exact for any finite floats.
        """
        points = self.read_queries(queries)
        flat = points.reshape(-1, self.dim)
        winners = np.empty(len(flat), dtype=np.int64)
        step = max(1, 4_000_000 // len(self.keys))
        for begin in range(0, len(flat), step):
            winners[begin : begin + step] = self._assign_block(flat[begin : begin + step])
        return winners.reshape(points.shape[:-1])

    def _assign_block(self, queries: FloatArray) -> IntArray:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = queries @ self.keys.T + self.shifts
            size = np.abs(queries) @ np.abs(self.keys.T) + np.abs(self.shifts)
            bound = dot_error(self.dim, size)
            # Anyone whose score could still be the largest.
            lowest = (scores - bound).max(axis=1, keepdims=True)
            possible = ~(scores + bound < lowest)
        winners: IntArray = possible.argmax(axis=1).astype(np.int64)
        for row in np.flatnonzero(possible.sum(axis=1) > 1):
            candidates = np.flatnonzero(possible[row])
            exact = exact_scores(queries[row], self.keys[candidates], self.shifts[candidates])
            winners[row] = candidates[exact.index(max(exact))]
        return winners

    def read_queries(self, queries: ArrayLike) -> FloatArray:
        """Queries (..., d) as finite floats, refused otherwise."""
        return finite_numbers("queries", queries, (..., self.dim))

    @cached_property
    def dual_subdivision(self) -> tuple[tuple[int, ...], ...]:
        """The regular subdivision of the keys' hull dual to the cells: all keys that tie at each vertex.

        Each maximal cell is the increasing tuple of the keys, repeated ones included, that attain the largest
        score together at one vertex of the diagram. Without biases all meet at the origin: one cell.

        Exactness: exact.
        """
        hull = self.terms.hull
        if not self.terms.has_bias:
            return (tuple(range(len(self.keys))),)
        if hull is None:
            return dual_cells(TropicalPolynomial(self.keys, self.biases))
        members: dict[int, list[int]] = {}
        for key, row in enumerate(self.terms.of.tolist()):
            members.setdefault(row, []).append(key)
        cells = (
            tuple(sorted(key for row in facet.tolist() for key in members[row]))
            for facet, is_upper in zip(hull.facets, hull.upper.tolist(), strict=True)
            if is_upper
        )
        return tuple(sorted(cells))

    def order(self, k: int) -> OrderDiagram:
        """The sets of k keys that have the k highest scores together somewhere, with their cells.

        Order one is this diagram itself.

        Exactness: exact.

        Examples
        --------
        >>> square = power_diagram([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> square.order(2).subsets.tolist()  # opposite keys are never first and second
        [[0, 1], [0, 3], [1, 2], [2, 3]]
        >>> square.order(1).n_cells, square.order(3).n_cells
        (4, 4)
        >>> square.order(4)
        Traceback (most recent call last):
            ...
        hardmax.errors.ParameterError: order: expected an integer from 1 to 3, one less than there are keys, got 4
        """
        return order_diagram(self, k)

    def sparsemax(self, temperature: float = 1.0) -> SparsemaxDiagram:
        """The cells of the head with sparsemax(scores / temperature): the sets of keys that get weight, and where.

        Exactness: exact.

        Examples
        --------
        On the line N keys have at most 2 N - 1 cells; as the temperature falls the cells of several keys shrink:

        >>> power_diagram([[-1.0], [0.0], [1.0]], [0.0, 1.0, 0.0]).sparsemax(0.5).supports
        ((0,), (0, 1), (1,), (1, 2), (2,))
        >>> power_diagram([[-1.0], [0.0], [1.0]], [0.0, 1.0, 0.0]).sparsemax(4.0).supports
        ((0,), (0, 1), (0, 1, 2), (1, 2), (2,))
        >>> power_diagram([[5.0], [5.0]]).sparsemax().supports  # the same key twice: half of the weight each
        ((0, 1),)
        """
        return sparsemax_diagram(self, temperature)

    def normalised(self, norm: str) -> NormalisedDiagram:
        """The cells on the sphere that a normalisation in front of the head sends its inputs to.

        Parameters
        ----------
        norm
            "rms" for u = sqrt(d) x / |x|, in dimension 2 (a circle) or 3 (a sphere); "layer" for
            u = sqrt(d) (x - mean) / |x - mean|, in dimension 3 (a circle) or 4. Keys and biases are those of
            scores <u, k_j> + b_j: a gain g and a shift s of the norm make them g k_j and b_j + <s, k_j>.

        Without biases RMSNorm changes no cell: cells are cones, and the sphere meets them all.

        Exactness: exact.

        Examples
        --------
        >>> keys = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
        >>> power_diagram(keys, [0.0, 0.0, 1.25]).normalised("rms").winners  # sqrt(2) > 1.25 > sqrt(2) cos(45 degrees)
        array([2, 1, 2, 0])
        >>> power_diagram(keys, [0.0, 0.0, 2.0]).normalised("rms").live  # now the third wins everywhere
        array([False, False, True])
        """
        return normalised_diagram(self, norm)

    def polygons(self, extent: Extent) -> list[FloatArray]:
        """Each key's cell clipped to a rectangle ((x0, x1), (y0, y1)), counter-clockwise; for drawing.

        Keys without a cell in the rectangle get an empty array (0, 2). Dimension 2 only.

        Exactness: estimated (floats).
        """
        return clipped_polygons(self, extent)

    def polyhedra(self, extent: Extent) -> list[Polyhedron]:
        """Each key's cell clipped to a box, as vertices and faces; for drawing. Dimension 3 only.

        Exactness: estimated (floats).
        """
        return clipped_polyhedra(self, extent)

    def plot(
        self,
        ax: Any = None,
        *,
        extent: Extent | None = None,
        names: Sequence[str] | None = None,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Any:
        """Draw the cells and keys on matplotlib's ``ax``, new axes unless given, and return it; dimensions 2 and 3.

        ``extent`` is ((x0, x1), (y0, y1)), by default a window around the keys. A star is a key that owns a cell, a
        cross one that owns none; ``names`` are written beside them. ``points`` (n, dim) are queries to mark, in the
        colours of their ``labels`` (n,).

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_points")(view("draw_diagram")(self, ax, extent, names), points, labels, self.dim)

    def _repr_html_(self) -> str:
        return str(view("diagram_html")(self))

    def shares(
        self,
        *,
        n_samples: int = 100_000,
        confidence: float = 0.95,
        scale: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> Shares:
        """The fraction of query directions, or of Gaussian queries, that each key wins.

        Without biases a Gaussian and its direction agree: in dimensions 1 and 2 the shares are angles,
        computed; above they are counted on ``n_samples`` Gaussian queries of standard deviation ``scale``.
        With biases the scale matters, and dimension 1 is computed from the normal distribution.

        Exactness: certified in the computed cases; otherwise estimated, with an interval for each key.
        """
        if self.dim == 1 or (self.dim == 2 and not self.terms.has_bias):
            return angle_shares(self, scale)
        return sampled_shares(self, n_samples, confidence, scale, rng)

    def reachable(
        self,
        *,
        hull: ArrayLike | None = None,
        cone: ArrayLike | None = None,
        ball: tuple[ArrayLike, float] | None = None,
        polyhedron: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Reachable:
        """Which keys can win for queries in a set, with a witness or a reason for each.

        A key is reachable if it strictly beats every key that differs from it at some query of the set.

        Parameters
        ----------
        hull, cone
            Queries (n, d): their convex hull, or all their nonnegative combinations.
        ball
            (centre, radius).
        polyhedron
            (normals, limits): all q with ``normals @ q <= limits``.

        Exactness: certified.

        Examples
        --------
        >>> diagram = power_diagram([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> diagram.reachable(hull=[[1.0, 0.1], [0.1, 1.0]]).keys
        array([0, 1])
        >>> diagram.reachable(ball=([1.0, 0.0], 0.5)).keys
        array([0])
        """
        given = {"hull": hull, "cone": cone, "ball": ball, "polyhedron": polyhedron}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ParameterError(f"expected exactly one of hull, cone, ball, polyhedron, got {named or 'none'}")
        if hull is not None:
            return reachable_from_hull(self, hull)
        if cone is not None:
            return reachable_from_cone(self, cone)
        pair: Any = given[named[0]]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            form = "(centre, radius)" if polyhedron is None else "(normals, limits)"
            raise ShapeError(f"{named[0]}: expected {form}, got {type(pair).__name__}")
        return (reachable_from_ball if polyhedron is None else reachable_from_polyhedron)(self, *pair)


def _live_on(diagram: PowerDiagram, device: str) -> BoolArray:
    """Which keys live, first queries on a device: the question of ``hm.audit_classes``, for classes that are keys."""
    from hardmax.heads.classes.settling import settled  # the compiler comes with it

    head = arrays_head(diagram.keys, diagram.shifts, None)
    return np.asarray(settled(head, read_domain("all", diagram.dim), False, None, device)["status"] == 1)


def power_diagram(keys: ArrayLike, biases: ArrayLike | None = None, *, device: str | None = None) -> PowerDiagram:
    """The power diagram of a head with scores ``<q, keys_j> + biases_j``.

    Parameters
    ----------
    keys
        Array (N, d), N up to 10^4 and d from 1 to 128.
    biases
        Array (N,), or None for zero: then cells are cones.
    device
        Where torch makes the first queries that tell who lives, such as "cuda", for numbers that binary32 holds; what
        it leaves open is settled here, and the answer is the same.

    Exactness: certified.

    Examples
    --------
    >>> diagram = power_diagram([[0, 0], [4, 0], [0, 4], [4, 4], [2, 2], [1, 3]])
    >>> diagram.live
    array([ True, True, True, True, False, False])
    >>> diagram.neighbours.tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    >>> power_diagram([[1, 1], [2, 2], [3, 3]]).live  # collinear: the middle one never wins
    array([ True, False, True])
    >>> power_diagram([[5.0], [5.0]]).live  # the same key twice: the lowest index lives
    array([ True, False])

    Sites with weights, a cell being nearest in |q - s|^2 - w, have the biases (w - |s|^2) / 2. The weighted Voronoi
    diagram of the plane (shapely issue 2037), clipped to a rectangle; an ordinary one has equal weights:

    >>> sites, weights = np.array([[0, 0], [4, 0], [0, 4], [2, 1]]), np.array([1, 1, 1, -4])
    >>> diagram = power_diagram(sites, (weights - (sites**2).sum(axis=1)) / 2)
    >>> diagram.polygons(((-1, 5), (-1, 5)))[3].tolist(), diagram.powers.tolist()
    ([[1.5, 2.0], [2.0, 1.0], [3.0, 3.0]], [1.0, 1.0, 1.0, -4.0])

    Atoms of radius r, where r^2 are the weights (the radical diagram of scipy issue 19308): the wall between the large
    atom and a small one at distance 3 stands at 2, not at 1.5.

    >>> atoms, radii = np.array([[0, 0, 0], [3, 0, 0], [0, 3, 0], [0, 0, 3]]), np.array([2, 1, 1, 1])
    >>> cell = power_diagram(atoms, (radii**2 - (atoms**2).sum(axis=1)) / 2).halfspaces(0)
    >>> (cell.limits / np.linalg.norm(cell.normals, axis=1)).tolist(), cell.rivals.tolist()
    ([2.0, 2.0, 2.0], [1, 2, 3])

    Without biases the live keys are the vertices of the convex hull. 42 points in 9 dimensions as in scipy issue 23022
    (whose first 18 these are; the others there are mixtures, here halves): no mixture counts, and a point that is
    outside by one unit in the last place does.

    >>> units = np.vstack([np.eye(9), -np.eye(9)])
    >>> points = np.vstack([units, [(units[i] + units[j]) / 2 for i in range(4) for j in range(i + 1, i + 7)]])
    >>> points.shape, int(power_diagram(points).live.sum())
    ((42, 9), 18)
    >>> points[20] *= 1 + 2.0**-52
    >>> np.flatnonzero(power_diagram(points).live[18:]).tolist()
    [2]
    """
    return PowerDiagram(*read_terms(keys, biases, "power_diagram"), device)

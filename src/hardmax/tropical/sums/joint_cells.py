"""Vertices of Minkowski sums, and the joint cells of several heads.

A tuple (j_1, ..., j_H) is a vertex of conv(P_1) + ... + conv(P_H) exactly when some linear function is
maximised by point j_h alone in every P_h: the open normal cones of the points share a point. Those tuples
are the cells of the common refinement of H fans (Theorem V.2), and with biases the cells of the common
refinement of H power diagrams. The N^H sums are never formed.

A point repeated exactly counts once, under its lowest index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, IncompleteError, ShapeError
from hardmax.exactness import FloatArray, IntArray, ReadOnlyArrays, as_tuple, check_count
from hardmax.tropical.sums.facets import facet_pairs
from hardmax.tropical.sums.settle import ABSENT, PRESENT, exact_differences, open_cone
from hardmax.tropical.sums.terms import (
    Terms,
    Vector,
    column_exponents,
    enough_coordinates,
    flat_heads,
    rational_query,
    read_terms,
)

if TYPE_CHECKING:
    from hardmax.tropical.sums._joint_kernels import Heads

#: A head: keys (N, d), and biases (N,) or None.
KeysAndBiases = tuple[ArrayLike, ArrayLike | None]


@dataclass(frozen=True, eq=False)
class JointCells(ReadOnlyArrays):
    """The cells of the common refinement of several heads.

    ``winners`` (n, H) holds the winning key of every head on each cell, in lexicographic order, and
    ``witnesses`` (n, d) a query strictly inside each cell. Where a cell is so thin that no float was found in it,
    the row is NaN and ``exact_witnesses`` holds a rational query, by the number of the cell.
    ``is_complete`` is False where ``max_cells`` stopped the search; then these are cells, but not all of them.
    ``n_programs`` is how many linear programs the search solved, ``n_settled`` how many of its questions went to
    rationals.

    Exactness: certified.
    """

    winners: IntArray
    witnesses: FloatArray
    is_complete: bool
    n_programs: int
    n_settled: int
    heads: tuple[Terms, ...] = field(repr=False)
    exact_witnesses: Mapping[int, Vector] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.winners)

    @property
    def n_cells(self) -> int:
        """The number of cells; refused where the search stopped early."""
        if not self.is_complete:
            raise IncompleteError(
                f"the search stopped at {len(self.winners)} cells, so their number is unknown; "
                "raise max_cells and ask again"
            )
        return len(self.winners)

    @property
    def neighbours(self) -> IntArray:
        """Pairs (n_pairs, 2) of cells that share a facet; several heads may switch across one facet."""
        if not self.is_complete:
            raise IncompleteError("neighbours of an incomplete search are unknown; raise max_cells")
        return facet_pairs(self.heads, self.winners)


def common_refinement(heads: Sequence[KeysAndBiases], *, max_cells: int | None = None) -> JointCells:
    """The cells on which every head has one strict winner, each with a witness query.

    Head h scores key j at x with ``<keys_j, x> + biases_j``; biases None means zero.

    Parameters
    ----------
    heads
        Pairs (keys (N_h, d), biases (N_h,) or None), one dimension d for all.
    max_cells
        Stop beyond this many cells; the result then says that it is incomplete.

    Exactness: certified; every cell has a checked witness, every absence a proof.

    Examples
    --------
    >>> square = ([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], None)
    >>> triangle = ([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], None)
    >>> cells = common_refinement([square, triangle])
    >>> cells.n_cells, len(cells.neighbours)
    (5, 5)
    >>> common_refinement([([[2.0], [2.0]], None)]).winners  # repeated keys count once
    array([[0]])
    """
    terms = read_heads(heads)
    limit = np.iinfo(np.int64).max - 1
    if max_cells is not None:
        check_count("max_cells", max_cells)
        limit = min(limit, int(max_cells))
    winners, queries, exact, n_programs, n_settled = _search(terms, limit)
    is_complete = len(winners) <= limit
    winners, queries = winners[:limit], queries[:limit]
    for head, part in enumerate(terms):
        winners[:, head] = part.index[winners[:, head]]
    order = np.lexsort(winners.T[::-1])
    exact = {place: exact[cell] for place, cell in enumerate(order.tolist()) if cell in exact} if exact else {}
    return JointCells(winners[order], queries[order], is_complete, n_programs, n_settled, tuple(terms), exact)


def _proved_queries(
    terms: list[Terms], flat: Heads, winners: IntArray, points: FloatArray
) -> tuple[FloatArray, dict[int, Vector]]:
    """A query strictly inside each cell from a scaled point in or near it; in rationals where no float was found."""
    from hardmax.tropical.sums import _joint_kernels as kernels

    queries = terms[0].query(points)
    as_given = flat._replace(terms=np.concatenate([part.given for part in terms]))
    sure = kernels.wins_in_every_head(as_given, winners + flat.first[:-1], terms[0].lifted(queries))
    exact: dict[int, Vector] = {}
    for cell in np.flatnonzero(~sure).tolist():
        rows = _rows_of(terms, winners[cell].tolist(), given=True)
        query, vector = rational_query(terms[0], rows, queries[cell])
        queries[cell] = np.nan if query is None else query
        if vector is not None:
            exact[cell] = vector
    return queries, exact


def _rows_of(terms: list[Terms], winners: Sequence[int], *, given: bool) -> list[list[Fraction]]:
    """Rows of ``row . q < 0`` for a tuple of winners, scaled or as given."""
    rows: list[list[Fraction]] = []
    for part, local in zip(terms, winners, strict=False):  # the first heads, where winners are fewer
        rows += exact_differences(part, local, [int(i) for i in part.neighbours[local]], given=given)
    return rows


def read_heads(heads: Sequence[KeysAndBiases]) -> list[Terms]:
    """Terms of every head on one scale, lifted together if any head has biases."""
    given = as_tuple("heads", "pairs (keys, biases or None)", heads)
    if not given:
        raise EmptyError("expected at least one head, got none")
    read = []
    for number, head in enumerate(given):
        if not isinstance(head, tuple | list) or len(head) != 2:
            raise ShapeError(f"head {number}: expected a pair (keys, biases or None), got {type(head).__name__}")
        read.append(read_terms(head[0], head[1], f"head {number}"))
    dims = [keys.shape[1] for keys, _ in read]
    if len(set(dims)) > 1:
        raise ShapeError(
            f"expected heads of one dimension, got {dims}; pull the keys back to the common input first "
            "(scores <W_q x, k> = <x, W_q^T k>)"
        )
    has_bias = any(biases is not None and (biases != biases[0]).any() for _, biases in read)
    lifted = [
        np.column_stack([keys, np.zeros(len(keys)) if biases is None else biases]) if has_bias else keys
        for keys, biases in read
    ]
    exponents = column_exponents(np.concatenate(lifted))
    kept = enough_coordinates(lifted, has_bias=has_bias)
    return [Terms.from_lifted(rows, exponents, kept, has_bias=has_bias) for rows in lifted]


def _search(terms: list[Terms], limit: int) -> tuple[IntArray, FloatArray, dict[int, Vector], int, int]:
    """Run the compiled search until no question is left open, answering its questions in rationals.

    Comes back with winners, queries inside their cells, rational ones where no float was found, and counts.
    """
    from hardmax.tropical.sums import _joint_kernels as kernels

    n_heads = len(terms)
    # Most cells first leaves the last and largest level fewest candidates; measured, it saves a few percent.
    order = sorted(range(n_heads), key=lambda h: -int(terms[h].live.sum()))
    sorted_terms = [terms[h] for h in order]
    flat = flat_heads(sorted_terms)
    first = flat.first
    verdicts: dict[tuple[int, ...], tuple[int, FloatArray | None]] = {}
    n_programs = 0
    while True:
        table = np.full((len(verdicts), n_heads + 2), -1, np.int64)
        for row, (question, (verdict, _)) in enumerate(verdicts.items()):
            table[row, : len(question)] = question
            table[row, -1] = verdict
        found, points, questions, count = kernels.search_joint_cells(flat, table, limit)
        n_programs += int(count)
        fresh = {tuple(row[: row[0] + 2]) for row in questions.tolist()} - verdicts.keys()
        if not fresh or len(found) > limit:
            break
        for question in fresh:
            verdicts[question] = _settle_tuple(sorted_terms, first, question)
    thin = {
        tuple(int(i - first[h]) for h, i in enumerate(question[1:])): point
        for question, (verdict, point) in verdicts.items()
        if verdict == PRESENT and question[0] == n_heads - 1
    }
    if thin:
        for row, winners in enumerate(map(tuple, found.tolist())):
            point = thin.get(winners)
            if point is not None:
                points[row] = point
    queries, exact = _proved_queries(sorted_terms, flat, found, points)
    unsorted = np.empty_like(found)
    unsorted[:, order] = found
    return unsorted, queries, exact, n_programs, len(verdicts)


def _settle_tuple(terms: list[Terms], first: IntArray, question: tuple[int, ...]) -> tuple[int, FloatArray | None]:
    """Whether the winners of a prefix of heads win together somewhere, in rationals."""
    rows = _rows_of(terms, [int(index - first[h]) for h, index in enumerate(question[1:])], given=False)
    answer = open_cone(rows, terms[0])
    return (PRESENT, answer.point) if answer.exists else (ABSENT, None)


def joint_cells(heads: Sequence[KeysAndBiases], *, max_cells: int | None = None) -> IntArray:
    """The winners (n, H) of every cell of the common refinement of affine heads, in lexicographic order.

    ``common_refinement`` gives the same with witnesses and neighbours.

    Exactness: certified.

    Raises
    ------
    IncompleteError
        More than ``max_cells`` cells.

    Examples
    --------
    >>> joint_cells([([[0.0], [1.0]], [0.0, 0.0]), ([[0.0], [1.0]], [0.0, -1.0])])  # walls at 0 and 1
    array([[0, 0],
           [1, 0],
           [1, 1]])
    >>> joint_cells([([[0.0], [1.0]], [0.0, 0.0]), ([[0.0], [1.0]], [0.0, 0.0])])  # one wall, twice
    array([[0, 0],
           [1, 1]])
    """
    return _all_winners(heads, max_cells)


def minkowski_vertices(points: Sequence[ArrayLike], *, max_cells: int | None = None) -> IntArray:
    """The vertices of conv(P_1) + ... + conv(P_H) as index tuples (n_vertices, H), in lexicographic order.

    A vertex of the sum is a sum of vertices in one way only, so tuples and vertices correspond.

    Exactness: certified.

    Raises
    ------
    IncompleteError
        More than ``max_cells`` vertices.

    Examples
    --------
    >>> minkowski_vertices([[[0, 0], [3, 0], [0, 3]], [[0, 0], [2, 1], [1, 2]]]).shape
    (5, 2)
    >>> minkowski_vertices([[[0, 0], [1, 1]], [[0, 0], [2, 2]]])  # parallel edges
    array([[0, 0],
           [1, 1]])
    """
    return _all_winners([(part, None) for part in as_tuple("points", "arrays (N, d)", points)], max_cells)


def _all_winners(heads: Sequence[KeysAndBiases], max_cells: int | None) -> IntArray:
    cells = common_refinement(heads, max_cells=max_cells)
    if not cells.is_complete:
        raise IncompleteError(
            f"there are more than max_cells = {max_cells} cells; raise max_cells, or call common_refinement, "
            "which returns the cells found so far"
        )
    return cells.winners

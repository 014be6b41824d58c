"""The arrangement of all pairwise walls against the cells that exist (Remark V.6).

All N (N - 1) / 2 hyperplanes <q, k_i - k_j> + b_i - b_j = 0 cut space into regions, one for every order in which
the keys can score. A head reads only the first of the order: regions that differ further down are ghosts, the
same cell counted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import IncompleteError
from hardmax.exactness import IntArray
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.tropical.sums.joint_cells import KeysAndBiases, common_refinement


@dataclass(frozen=True, eq=False)
class GhostRegions:
    """Both counts of one head.

    ``n_regions`` regions of the pairwise arrangement lie in ``n_cells`` cells; ``regions_per_cell`` (N,) says
    how many in each. ``n_walls`` pairs of keys tie on a hyperplane (equal keys tie nowhere or everywhere);
    ``n_facets`` of them share a wall that exists.

    Exactness: certified.
    """

    n_regions: int
    n_cells: int
    n_walls: int
    n_facets: int
    regions_per_cell: IntArray

    @property
    def n_ghosts(self) -> int:
        """How many regions the arrangement counts in excess."""
        return self.n_regions - self.n_cells


def ghost_regions(keys: ArrayLike, biases: ArrayLike | None = None, *, max_cells: int | None = None) -> GhostRegions:
    """The regions of a head's pairwise arrangement and the cells they lie in.

    Raises
    ------
    IncompleteError
        The arrangement has more than ``max_cells`` regions.

    Examples
    --------
    >>> ghosts = ghost_regions([[1, 0], [0, 1], [-1, -1]])
    >>> ghosts.n_regions, ghosts.n_cells, ghosts.n_ghosts, ghosts.regions_per_cell
    (6, 3, 3, array([2, 2, 2]))
    >>> ghost_regions([[2.0], [2.0]]).n_regions  # equal keys: nothing is cut
    1
    """
    diagram = power_diagram(keys, biases)
    pairs = [(diagram.keys[[i, j]], diagram.shifts[[i, j]]) for i, j in combinations(diagram.terms.index.tolist(), 2)]
    per_cell = np.zeros(len(diagram.keys), dtype=np.int64)
    if not pairs:
        per_cell[0] = 1
        return GhostRegions(1, 1, 0, 0, per_cell)
    n_walls = sum(bool((pair[0][0] != pair[0][1]).any()) for pair in pairs)
    regions = common_refinement(list[KeysAndBiases](pairs), max_cells=max_cells)
    if not regions.is_complete:
        raise IncompleteError(
            f"the arrangement has more than max_cells = {max_cells} regions; raise max_cells, or ask fewer keys"
        )
    # The winner of a region is the key that never loses a comparison; no query need be evaluated.
    labels = list(combinations(diagram.terms.index.tolist(), 2))
    losers = np.array(labels)[np.arange(len(labels)), 1 - regions.winners]  # (regions, pairs)
    beaten = np.zeros((len(regions), len(diagram.keys)), dtype=bool)
    np.put_along_axis(beaten, losers, True, axis=1)
    beaten[:, np.setdiff1d(np.arange(len(diagram.keys)), diagram.terms.index)] = True
    per_cell += np.bincount(beaten.argmin(axis=1), minlength=len(per_cell))
    return GhostRegions(len(regions), int(diagram.live.sum()), n_walls, len(diagram.neighbours), per_cell)

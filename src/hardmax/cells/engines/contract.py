"""What an engine is: the four things the enumeration asks of line, plane and space."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from hardmax.cells.polytopes import Cut, Polytopes
from hardmax.exactness import IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage


class Engine(Protocol):
    """Cuts pieces of one kind of domain along the walls of one stage after another.

    A certified engine believes a sign only where it is proved: a piece on which one is doubtful comes back uncut, in
    ``Cut.doubtful`` or beside the count, and the enumeration settles it in rationals.
    """

    dim: int
    only_relus: bool  # whether no stage has an argmax: smaller kernels are compiled then
    shares_stages: bool  # whether threads may cut a wide stage some choices at a time
    paused: IntArray  # (1,) where other threads set it, work stops at a piece behind which so many wait; 0: it goes on

    def root(self) -> Polytopes:
        """The whole domain as one piece."""
        ...

    def cut(self, pieces: Polytopes, guards: Guards, stage: Stage, limit: int = ...) -> Cut:
        """The children of pieces, in the order of their parents; at most about ``limit`` of them."""
        ...

    def count(self, pieces: Polytopes, guards: Guards, stage: Stage) -> tuple[int, IntArray, int]:
        """How many children ``cut`` would give, without making them, the pieces that are doubtful, and how many are
        done: all, unless the engine is paused.
        """
        ...

    def settle(
        self, pieces: Polytopes, index: int, wall_row: Any, rows: ObjectArray, stage: Stage
    ) -> tuple[NDArray[Any], Polytopes]:
        """Labels and children of one piece, decided in rationals from its guards ``rows`` and walls ``wall_row``."""
        ...

"""Why a class is dead, in the numbers of the head as given."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from hardmax.errors import PrecisionError
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.exact_systems import solved
from hardmax.heads.classes.verdicts import Cover


@dataclass(frozen=True, eq=False)
class Certificate:
    """Rivals whose mixture scores at least as much as a dead class at every query of the domain.

    On all of space the mixture of the rivals' rows is the class's row and the mixture of their biases is no smaller
    than its bias. With walls the mixture may exceed the row where a low wall holds, and fall short of it where a high
    one does: ``exact_excess`` tells by how much. On a ball the mixture's lead at the centre outweighs the radius times
    the length of its difference from the row. ``kind`` is "mixture", "ball", or "inside": no rivals then, the cell of
    the class lies inside the unit sphere.

    Exactness: certified; ``weights`` are floats near weights that are proved to exist, ``exact()`` gives those.
    """

    index: int
    kind: str
    rivals: IntArray  # (rivals,) classes, affinely independent where the kind is "mixture"
    walls: IntArray  # (walls,) k for the low wall of feature k, d + k for its high one
    _head: tuple[FloatArray, FloatArray, FeatureDomain]
    _cover: Cover

    @cached_property
    def _matrix(self) -> FloatArray:
        weights, _, _ = self._head
        d = weights.shape[1]
        matrix = np.zeros((d + 1, len(self.rivals) + len(self.walls)))
        matrix[:d, : len(self.rivals)], matrix[d, : len(self.rivals)] = weights[self.rivals].T, 1.0
        for at, wall in enumerate(self.walls, len(self.rivals)):
            matrix[wall % d, at] = -1.0 if wall < d else 1.0
        return matrix

    @cached_property
    def weights(self) -> FloatArray:
        """(rivals,) floats >= 0 that sum to one up to rounding."""
        if self._cover.multipliers is not None:
            found = np.array([float(x) for x in self._cover.multipliers])
        elif len(self.rivals) + len(self.walls) <= 1:
            found = np.ones(len(self.rivals))
        else:
            right = np.append(self._head[0][self.index], 1.0)
            n = len(self.rivals)
            scale = np.ldexp(1.0, -np.frexp(np.abs(self._matrix[:, :n]).max(axis=1))[1])
            # a wall's multiplier has no size of its own, so its column is not scaled with the rows
            scaled = np.concatenate([self._matrix[:, :n] * scale[:, None], self._matrix[:, n:]], axis=1)
            found = np.linalg.lstsq(scaled, right * scale, rcond=None)[0][:n]
            if not (np.isfinite(found).all() and (found > 0).all()):
                found = np.array([float(x) for x in self.exact()])
        found = found / found.sum() if len(found) else found
        found.setflags(write=False)
        return found

    def exact(self) -> tuple[Fraction, ...]:
        """The rivals' weights as rationals: nonnegative, of sum one.

        Exactness: exact.
        """
        found = self._exact_multipliers[: len(self.rivals)]
        total = sum(found, Fraction(0))
        return tuple(x / total for x in found)

    @cached_property
    def _exact_multipliers(self) -> list[Fraction]:
        if self._cover.multipliers is not None:
            return [Fraction(x) for x in self._cover.multipliers]
        found = solved(self._matrix, np.append(self._head[0][self.index], 1.0))
        if found is None:
            raise PrecisionError(
                f"class {self.index}: the system of its {len(self.rivals)} rivals could not be solved in rationals; "
                "install hardmax[exact] and ask again"
            )
        return found

    def exact_excess(self) -> tuple[Fraction, ...]:
        """(d,) mixture minus row, exactly: zero on all of space, >= 0 where only a low wall is, <= 0 at a high one."""
        rows = self._head[0]
        mixed = [-Fraction(x) for x in rows[self.index].tolist()]
        for j, share in zip(self.rivals.tolist(), self.exact(), strict=True):
            mixed = [total + share * Fraction(x) for total, x in zip(mixed, rows[j].tolist(), strict=True)]
        return tuple(mixed)

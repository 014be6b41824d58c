"""A continuous piecewise-linear function on simplices as a maximum of minima of its affine pieces.

On a convex domain f = max_i min_{j in S_i} g_j for suitable sets S_i of pieces (Tarela and Martinez 1999,
Ovchinnikov 2002). A set S is used for a part R of a simplex with piece g_i when

    covering:  g_j >= g_i on R for every j in S, and i in S, so that the minimum is f there;
    staying below:  min_S <= f on the whole domain.

S(R) = {j : g_j >= g_i on R} covers by definition. It also stays below where no g_j crosses g_i inside R: from a
point y of R to any x, f is piecewise linear on the segment, so that some piece is at least f at y and at most f
at x. So R starts as the whole simplex and is halved along a crossing only where the second condition, checked
exactly, fails. Then every j that S does not need is dropped, and every set that covers nothing alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.integers import integer_row, reduced

Point = tuple[Fraction, ...]
Piece = tuple[Fraction, ...]  # slope entries, then the offset
Polytope = tuple[Point, ...]  # corners: two in one dimension, in order around in two
Whole = tuple[int, ...]  # a point or piece times a positive number that makes it integral, the last entry of a point's
_Part = tuple[Whole, ...]  # a polytope's corners


@dataclass(frozen=True)
class LatticeForm:
    """``max_i min_{j in groups[i]} pieces[j]``."""

    pieces: tuple[Piece, ...]
    groups: tuple[tuple[int, ...], ...]

    def __call__(self, point: Point) -> Fraction:
        """The value at a point."""
        values = [at(piece, point) for piece in self.pieces]
        return max(min(values[j] for j in group) for group in self.groups)


def at(piece: Piece, point: Point) -> Fraction:
    """The value of an affine piece."""
    return sum((s * x for s, x in zip(piece[:-1], point, strict=True)), piece[-1])


def lattice_form(simplices: Sequence[Polytope], pieces: Sequence[Piece]) -> LatticeForm:
    """The reduced max-min form of the function that is ``pieces[k]`` on ``simplices[k]``.

    The simplices are segments or triangles that tile a convex set, and the pieces agree where they meet; the
    caller has checked both.

    Exactness: exact; equality on the domain is proved set by set as described above.

    Examples
    --------
    >>> F = Fraction
    >>> line = [((F(0),), (F(1),)), ((F(1),), (F(2),)), ((F(2),), (F(3),))]
    >>> hat = lattice_form(line, [(F(0), F(0)), (F(1), F(-1)), (F(-1), F(3))])  # 0, x - 1, 3 - x
    >>> hat.groups
    ((0,), (1, 2))
    >>> lattice_form(line[:1], [(F(2), F(1))]).groups  # one piece
    ((0,),)
    """
    return _Search(simplices, pieces).run()


class _Search:
    def __init__(self, simplices: Sequence[Polytope], pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(dict.fromkeys(pieces))
        number = {piece: j for j, piece in enumerate(self.pieces)}
        self.own = [number[piece] for piece in pieces]
        corners = {point: v for v, point in enumerate(dict.fromkeys(p for s in simplices for p in s))}
        values = [[at(piece, point) for point in corners] for piece in self.pieces]
        where = [[corners[point] for point in simplex] for simplex in simplices]
        shape = (len(self.pieces), len(simplices))
        #: below[j, k]: piece j is at most f on simplex k
        self.below: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        self.above: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        for k, (vertices, owner) in enumerate(zip(where, self.own, strict=True)):
            f = [values[owner][v] for v in vertices]
            for j, row in enumerate(values):
                g = [row[v] for v in vertices]
                self.below[j, k] = all(x <= y for x, y in zip(g, f, strict=True))
                self.above[j, k] = all(x >= y for x, y in zip(g, f, strict=True))
        self.often = self.below.sum(axis=1).tolist()  # on how many simplices each piece is at most f
        self.whole = [tuple(_integral((*point, Fraction(1))) for point in simplex) for simplex in simplices]
        self.gaps: dict[tuple[int, int], Whole] = {}

    def run(self) -> LatticeForm:
        parts: list[tuple[int, _Part, frozenset[int]]] = []
        for k in range(len(self.whole)):
            parts += self._covered_parts(k)
        groups = self._chosen(parts)
        used = sorted({j for group in groups for j in group})
        rename = {j: position for position, j in enumerate(used)}
        ordered = sorted(tuple(sorted(rename[j] for j in group)) for group in groups)
        return LatticeForm(tuple(self.pieces[j] for j in used), tuple(ordered))

    def _covered_parts(self, k: int) -> list[tuple[int, _Part, frozenset[int]]]:
        """Parts of simplex k, each with a set that covers it and stays below."""
        owner = self.own[k]
        found = []
        waiting = [self.whole[k]]
        while waiting:
            part = waiting.pop()
            covering = np.flatnonzero(self.above[:, k]).tolist()
            if part is not self.whole[k]:
                covering = [j for j in range(len(self.pieces)) if min(_signs(self._gap(j, owner), part)) >= 0]
            reasons = self._reasons(covering)
            if reasons is None:
                waiting += self._halves(part, owner)
            else:
                found.append((k, part, frozenset(self._thinned(covering, owner, reasons))))
        return found

    def _reasons(self, group: Sequence[int]) -> list[tuple[int, ...]] | None:
        """Why the minimum over the group is at most f: for each simplex some members whose own minimum is.

        None where it is not, as on some open set all of the group exceed f.
        """
        found = []
        ordered = sorted(group, key=lambda j: -self.often[j])
        for k in range(len(self.whole)):
            reason = self._reason(ordered, k)
            if reason is None:
                return None
            found.append(reason)
        return found

    def _reason(self, group: Sequence[int], k: int) -> tuple[int, ...] | None:
        """Members of the group, first those most often below f, whose minimum is at most f on simplex k, or None."""
        members = np.asarray(group)
        is_below = self.below[members, k]
        if is_below.any():
            return (int(members[is_below.argmax()]),)
        part, used = self.whole[k], []
        for j in members[~self.above[members, k]].tolist():  # others cut nothing off
            rest = _clipped(part, self._gap(j, self.own[k]))
            if rest is not part:
                used.append(j)
            if not rest:
                return tuple(used)
            part = rest
        return None

    def _thinned(self, group: Sequence[int], owner: int, reasons: list[tuple[int, ...]]) -> list[int]:
        """The group without pieces that it can do without; its own piece stays.

        A piece is missed only where it is one of the reasons, and only there is looked for others.
        """
        kept = sorted(group, key=lambda j: -self.often[j])
        needed: dict[int, set[int]] = {j: set() for j in group}  # the simplices for which a piece is a reason
        for k, reason in enumerate(reasons):
            for j in reason:
                needed[j].add(k)
        # first those that are above f most often: they do least to keep the minimum down
        for j in sorted(group, key=lambda j: self.often[j]):
            if j == owner:
                continue
            rest = [other for other in kept if other != j]
            instead: dict[int, tuple[int, ...]] = {}
            for k in sorted(needed[j]):
                other = self._reason(rest, k)
                if other is None:
                    break
                instead[k] = other
            else:
                kept = rest
                for k, other in instead.items():
                    for member in reasons[k]:
                        needed[member].discard(k)
                    for member in other:
                        needed[member].add(k)
                    reasons[k] = other
        return kept

    def _gap(self, j: int, owner: int) -> Whole:
        """Piece j less the owner's, times a positive number."""
        gap = self.gaps.get((j, owner))
        if gap is None:
            pairs = zip(self.pieces[j], self.pieces[owner], strict=True)
            gap = self.gaps[j, owner] = _integral([x - y for x, y in pairs])
        return gap

    def _halves(self, part: _Part, owner: int) -> list[_Part]:
        """The part cut along a piece that crosses the owner's inside it, as evenly as can be."""
        best: list[_Part] = []
        evenness = -1
        for j in range(len(self.pieces)):
            gap = self._gap(j, owner)
            values = _signs(gap, part)
            if min(values) < 0 < max(values):
                even = min(sum(v > 0 for v in values), sum(v < 0 for v in values))
                if even > evenness:
                    evenness = even
                    best = [_clipped(part, gap), _clipped(part, tuple(-g for g in gap))]
        assert best, "a part that nothing crosses stays below"
        return best

    def _chosen(self, parts: list[tuple[int, _Part, frozenset[int]]]) -> list[frozenset[int]]:
        """A small choice of the sets that still covers every part: greedily the one that covers most."""
        candidates = list(dict.fromkeys(group for _, _, group in parts))
        covers = []
        for group in candidates:
            members = sorted(group)
            covered = set()
            for number, (k, part, own_group) in enumerate(parts):
                owner = self.own[k]
                is_covered = group == own_group or (owner in group and bool(self.above[members, k].all()))
                if not is_covered and owner in group and part is not self.whole[k]:
                    is_covered = all(min(_signs(self._gap(j, owner), part)) >= 0 for j in members)
                if is_covered:
                    covered.add(number)
            covers.append(covered)
        missing = set(range(len(parts)))
        chosen = []
        while missing:
            best = max(range(len(candidates)), key=lambda c: (len(covers[c] & missing), -len(candidates[c])))
            chosen.append(candidates[best])
            missing -= covers[best]
        return chosen


def _integral(numbers: Sequence[Fraction]) -> Whole:
    """The numbers times a positive one that makes them integral."""
    return tuple(integer_row(numbers)[0])


def _signs(piece: Whole, part: _Part) -> list[int]:
    """Numbers with the signs that the piece has at the corners."""
    return [sum(a * x for a, x in zip(piece, point, strict=True)) for point in part]


def _clipped(part: _Part, piece: Whole) -> _Part:
    """The part where the piece is not negative; nothing where that has no interior. In integers, as most of the time
    of the search goes here."""
    values = _signs(piece, part)
    if max(values) <= 0:
        return ()
    if min(values) >= 0:
        return part
    corners: list[Whole] = []
    for i, point in enumerate(part):
        following = (i + 1) % len(part)
        if values[i] >= 0:
            corners.append(point)
        if values[i] * values[following] < 0:
            here, there = abs(values[following]), abs(values[i])
            crossing = [here * x + there * y for x, y in zip(point, part[following], strict=True)]
            corners.append(reduced(crossing))
    # in one dimension the two corners are each other's followers, so that the crossing comes twice
    return tuple(dict.fromkeys(corners))

"""Maxima of affine functions with rational coefficients: sums, maxima, and the terms that matter.

The exact twin of ``TropicalPolynomial``, for the numbers that arise between a network's weights and its
rational map: products of several floats, which are floats no longer. A term is (offset, slope_1, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from hardmax.errors import IncompleteError, PrecisionError
from hardmax.exact.halfspaces import point_inside
from hardmax.exact.integers import primitive
from hardmax.exact.rationals import float_array, fraction
from hardmax.exactness import FloatArray
from hardmax.tropical import TropicalPolynomial
from hardmax.tropical.sums.joint_cells import common_refinement

Term = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Maximum:
    """``max_j offset_j + <slope_j, x>`` over terms each of which is the only maximum somewhere."""

    terms: tuple[Term, ...]

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return len(self.terms[0]) - 1

    def in_fractions(self) -> Maximum:
        """The same with coefficients that are ``Fraction``, whatever they were computed with."""
        return Maximum(tuple(tuple(fraction(value) for value in term) for term in self.terms))

    def polynomial(self) -> TropicalPolynomial:
        """The terms rounded once each to the nearest float."""
        rows = float_array(np.array(self.terms, dtype=object))
        if not np.isfinite(rows).all():
            raise PrecisionError("the lowered map's coefficients overflow float64; rescale the weights")
        return TropicalPolynomial(rows[:, 1:], rows[:, 0])


def maximum(terms: Iterable[Term], max_terms: int, where: str) -> Maximum:
    """The maximum of the listed terms, needless ones dropped.

    Exactness: exact.

    Examples
    --------
    >>> line = [(Fraction(0), Fraction(a)) for a in (-1, 0, 1, 1)]  # the flat line only touches
    >>> [str(term[1]) for term in maximum(line, 10, "here").terms]
    ['-1', '1']
    """
    distinct = list(dict.fromkeys(terms))
    check_size(len(distinct), max_terms, where)
    if len(distinct) == 1:
        return Maximum((distinct[0],))
    if not any(any(term[1:]) for term in distinct):
        return Maximum((max(distinct),))
    rows = _as_floats(distinct)
    if rows is not None:
        keep = TropicalPolynomial(rows[:, 1:], rows[:, 0]).essential_terms().tolist()
    else:
        keep = _essential_in_rationals(distinct)
    return Maximum(tuple(distinct[j] for j in keep))


def weighted_sum(parts: Sequence[tuple[Any, Maximum]], affine: Term, max_terms: int, where: str) -> Maximum:
    """``affine + sum_k c_k p_k`` for positive weights: a term for each cell of the common refinement.

    Exactness: exact.

    Examples
    --------
    >>> absolute = maximum([(Fraction(0), Fraction(1)), (Fraction(0), Fraction(-1))], 10, "here")
    >>> total = weighted_sum([(Fraction(2), absolute)], (Fraction(5), Fraction(1)), 10, "here")
    >>> [[str(value) for value in term] for term in total.terms]
    [['5', '3'], ['5', '-1']]
    """
    winners = _joint_winners([part.terms for _, part in parts], max_terms, where)
    sums = []
    for chosen in winners:
        total = list(affine)
        for (weight, part), j in zip(parts, chosen, strict=True):
            total = [x + weight * y for x, y in zip(total, part.terms[j], strict=True)]
        sums.append(tuple(total))
    return Maximum(tuple(dict.fromkeys(sums)))


def _joint_winners(heads: Sequence[Sequence[Term]], max_terms: int, where: str) -> list[tuple[int, ...]]:
    """The tuples of terms, one of each list, that win together on some open set."""
    moving = [h for h, terms in enumerate(heads) if len(terms) > 1]
    if not moving:
        return [(0,) * len(heads)]
    found: list[tuple[int, ...]]
    if len(moving) == 1:
        found = [(j,) for j in range(len(heads[moving[0]]))]
    else:
        rows = [_as_floats(heads[h]) for h in moving]
        if all(part is not None for part in rows):
            cells = common_refinement(
                [(part[:, 1:], part[:, 0]) for part in rows if part is not None], max_cells=max_terms + 1
            )
            found = [tuple(chosen) for chosen in cells.winners.tolist()]
        else:
            found = _joint_winners_in_rationals([heads[h] for h in moving], max_terms, where)
    check_size(len(found), max_terms, where)
    place = {h: position for position, h in enumerate(moving)}
    return [tuple(chosen[place[h]] if h in place else 0 for h in range(len(heads))) for chosen in found]


def _as_floats(terms: Sequence[Term]) -> FloatArray | None:
    """The terms times a positive integer as exact floats, or None where they are none."""
    exact = [[fraction(value) for value in term] for term in terms]
    odd = lcm(*(_odd_part(value.denominator) for term in exact for value in term))
    scaled = [[value * odd for value in term] for term in exact]
    rows = float_array(np.array(scaled, dtype=object))
    if not np.isfinite(rows).all():
        return None
    is_same = all(
        Fraction(x) == y
        for row, term in zip(rows.tolist(), scaled, strict=True)
        for x, y in zip(row, term, strict=True)
    )
    return rows if is_same else None


def _odd_part(number: int) -> int:
    return number // (number & -number)


def _lead(terms: Sequence[Term], winner: int, others: Iterable[int]) -> list[tuple[int, ...]]:
    chosen = terms[winner]
    return [primitive([x - y for x, y in zip(chosen, terms[j], strict=True)]) for j in others if j != winner]


def _essential_in_rationals(terms: Sequence[Term]) -> list[int]:
    dim = len(terms[0]) - 1
    alive = list(range(len(terms)))
    for j in range(len(terms)):
        if point_inside(_lead(terms, j, alive), dim) is None:
            alive.remove(j)
    return alive


def _joint_winners_in_rationals(heads: Sequence[Sequence[Term]], max_terms: int, where: str) -> list[tuple[int, ...]]:
    dim = len(heads[0][0]) - 1
    found: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [((), [])]
    for terms in heads:
        following = []
        for chosen, rows in found:
            for j in range(len(terms)):
                together = rows + _lead(terms, j, range(len(terms)))
                if point_inside(together, dim) is not None:
                    following.append(((*chosen, j), together))
        check_size(len(following), max_terms, where)
        found = following
    return [chosen for chosen, _ in found]


def check_size(size: int, max_terms: int, where: str) -> None:
    """Refuse a maximum of more terms than are allowed."""
    if size > max_terms:
        raise IncompleteError(
            f"{where}: lowering needs a maximum of more than {max_terms} affine functions, the limit; pass "
            "max_terms=..., or enumerate the cells instead, which grows more slowly"
        )

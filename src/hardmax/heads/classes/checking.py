"""An audit checked again: every witness and certificate, from the numbers of the head, by other code than found them.

Nothing of the search is imported. Witnesses are scored against all classes, with rationals where the floats' bound
leaves doubt. A certificate's system is enclosed in integers, without any rounding to bound, or solved in rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.verify.check import Check
from hardmax.cells.verify.verification import Verification
from hardmax.exact.rounding import SAFETY, dot_error, length_above
from hardmax.exactness import Exactness, FloatArray, IntArray, check_flag
from hardmax.heads.classes.certificates import ClassRecord

_flint: Any
try:
    import flint as _flint
except ImportError:  # the `exact` extra is absent: the same answers, more slowly
    _flint = None

Numbers = Sequence[Fraction]


def check(audit: ClassRecord, *, thorough: bool = False) -> Verification:
    """Every claim of an audit tested; failures are reported, not raised.

    Exactness: exact for certificates, certified for witnesses.
    """
    bad_witnesses = _bad_witnesses(audit)
    bad_domain = _outside(audit)
    bad_covers, n_rational = _bad_covers(audit, check_flag("thorough", thorough))
    n_live, n_dead = audit.n_live, audit.n_dead

    def entry(name: str, bad: list[int], good: str) -> Check:
        listed = ", ".join(f"{i} ({audit.names[i]})" for i in bad[:5])
        return Check(name, not bad, good if not bad else f"{len(bad)} fail, among them class {listed}")

    checks = (
        entry("witnesses win", bad_witnesses, f"{n_live} live classes win alone at their queries"),
        entry("witnesses lie in the domain", bad_domain, f"{n_live} queries lie on {audit.domain.words}"),
        entry(
            "certificates cover",
            bad_covers,
            f"{n_dead} dead classes are covered: {n_dead - n_rational} checked in integers, {n_rational} in rationals",
        ),
    )
    return Verification(checks, Exactness.CERTIFIED)


def _fractions(values: FloatArray) -> list[Fraction]:
    return [Fraction(x) for x in values.tolist()]


def _dot(x: Numbers, y: Numbers) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True) if a and b), Fraction(0))


# --- live classes -------------------------------------------------------------------------------------


def _query(audit: ClassRecord, i: int) -> list[Fraction]:
    return list(audit.exact_queries.get(i) or _fractions(audit.queries[audit.query_of[i]]))


def _bad_witnesses(audit: ClassRecord) -> list[int]:
    weights, bias = audit.weights, audit.bias
    live = np.flatnonzero(audit.status == 1)
    step = max(1, 4_000_000 // len(weights))
    d = weights.shape[1]
    with np.errstate(all="ignore"):
        reach = length_above(d, np.square(weights).sum(axis=1).max(initial=0.0))
    bad = []
    for start in range(0, len(live), step):
        rows = live[start : start + step]
        queries = audit.queries[audit.query_of[rows]]
        with np.errstate(all="ignore"):
            lengths = length_above(d, np.square(queries).sum(axis=1))
            factor = np.sqrt(np.square(queries).sum(axis=1)) if audit.domain.kind == "sphere" else np.ones(len(rows))
            scores = queries @ weights.T + factor[:, None] * bias
            margins = scores[np.arange(len(rows)), rows][:, None] - scores
            size = SAFETY * (lengths * reach + SAFETY * factor * np.abs(bias).max())
            needed = 2 * SAFETY * dot_error(2 * d + 8, size)  # the factor has d + 2 roundings of its own
            if audit.domain.kind == "sphere":
                needed = np.where(lengths > 2.0**-400, needed, np.inf)
            doubtful = ~(margins > needed[:, None])
            doubtful[np.arange(len(rows)), rows] = False
        for at in np.flatnonzero(doubtful.any(axis=1)):
            i = int(rows[at])
            rivals = [int(j) for j in np.flatnonzero(doubtful[at])]
            if not all(_is_above(audit, i, j) for j in rivals):
                bad.append(i)
    return bad


def _is_above(audit: ClassRecord, i: int, j: int) -> bool:
    """Whether class i beats class j at the witness of i, in rationals; a later copy of i may tie."""
    if j > i and (audit.weights[i] == audit.weights[j]).all() and audit.bias[i] == audit.bias[j]:
        return True
    query = _query(audit, i)
    gap = _dot([x - y for x, y in zip(_fractions(audit.weights[i]), _fractions(audit.weights[j]), strict=True)], query)
    lift = Fraction(float(audit.bias[i])) - Fraction(float(audit.bias[j]))
    if audit.domain.kind != "sphere":
        return gap + lift > 0
    square = _dot(query, query)
    if gap >= 0 and lift >= 0:
        return gap > 0 or (lift > 0 and square > 0)
    if gap <= 0 and lift <= 0:
        return False
    return gap * gap > lift * lift * square if gap > 0 else lift * lift * square > gap * gap


def _outside(audit: ClassRecord) -> list[int]:
    """Live classes whose query is not in the domain, exactly."""
    domain = audit.domain
    bad: list[int] = []
    if domain.kind == "all":
        return bad
    for i in np.flatnonzero(audit.status == 1).tolist():
        if domain.kind in ("ball", "sphere") or i in audit.exact_queries:
            query = _query(audit, i)
            if domain.kind == "ball":
                away = [x - c for x, c in zip(query, _fractions(domain.centre), strict=True)]
                inside = _dot(away, away) <= Fraction(domain.radius) ** 2
            elif domain.kind == "sphere":
                inside = any(query)
            else:
                inside = all(
                    l <= x <= h for l, x, h in zip(domain.low.tolist(), query, domain.high.tolist(), strict=True)
                )
        else:
            query_floats = audit.queries[audit.query_of[i]]
            inside = bool(((domain.low <= query_floats) & (query_floats <= domain.high)).all())
        if not inside:
            bad.append(i)
    return bad


# --- dead classes -------------------------------------------------------------------------------------


def _bad_covers(audit: ClassRecord, thorough: bool) -> tuple[list[int], int]:
    bad, n_rational = [], 0
    for number, cover in enumerate(audit.covers):
        rows = np.flatnonzero((audit.cover_of == number) & (audit.status == 0))
        if cover.kind == "mixture":
            proved = np.zeros(len(rows), dtype=bool) if thorough else _covered_in_integers(audit, cover.columns, rows)
            left = rows[~proved]
            n_rational += len(left)
            bad += [int(i) for i in left if not _is_covered(audit, cover.columns, int(i))]
        elif cover.kind == "ball":
            n_rational += len(rows)
            bad += [int(i) for i in rows if not _is_outweighed(audit, cover.columns, cover.multipliers, int(i))]
        else:
            n_rational += len(rows)
            bad += [int(i) for i in rows if not _is_inside_sphere(audit, int(i))]
    return sorted(bad), n_rational


def _columns(audit: ClassRecord, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """One line a column: the rival's row and a one, or a wall's signed unit and a zero; and what each is worth."""
    n, d = audit.weights.shape
    lines, worth = np.zeros((len(columns), d + 1)), np.zeros(len(columns))
    for at, j in enumerate(columns):
        if j < n:
            lines[at, :d], lines[at, d], worth[at] = audit.weights[j], 1.0, audit.bias[j]
        else:
            k, is_high = (j - n) % d, j - n >= d
            lines[at, k] = 1.0 if is_high else -1.0
            worth[at] = -audit.domain.high[k] if is_high else audit.domain.low[k]
    return lines, worth


#: Bits of a digit: sums of products of two digits are integers that binary64 holds, for up to 2**17 of them.
_DIGIT = 18
_MOST_DIGITS = 16
_SUMMED = 20  # bits behind the point where numbers are rounded up and added


def _digits(values: FloatArray, exponent: int) -> list[FloatArray] | None:
    """Floats times ``2**exponent``, integers all, as signed digits in base 2**18, lowest first; None where too long."""
    top = int(np.frexp(np.abs(values).max(initial=0.0))[1]) + exponent
    count = max(1, -(-top // _DIGIT))
    if count > _MOST_DIGITS:
        return None
    rest = np.ldexp(values, exponent - _DIGIT * (count - 1))
    found = []
    for _ in range(count):
        digit = np.trunc(rest)
        rest = np.ldexp(rest - digit, _DIGIT)
        found.append(digit)
    return found[::-1] if not rest.any() else None


def _product(first: list[FloatArray], second: list[FloatArray]) -> list[NDArray[np.int64]]:
    """The digits of a matrix product, not yet carried: sums of integers below 2**53, exact in any order."""
    found: list[Any] = [0.0] * (len(first) + len(second) - 1)
    for i, left in enumerate(first):
        for j, right in enumerate(second):
            found[i + j] = found[i + j] + left @ right
    return [part.astype(np.int64) for part in found]


def _all_below(parts: list[NDArray[np.int64]], place: int) -> bool:
    """Whether the numbers with these digits all lie within ``2**(18 place)`` of zero."""
    carry, high = np.zeros_like(parts[0]), []
    for at, part in enumerate(parts):
        total = part + carry
        carry = total >> _DIGIT
        if at >= place:
            high.append(total - (carry << _DIGIT))
    ones = 2**_DIGIT - 1  # what is left above the place is all zeros or, below zero, all ones
    is_small = ((carry == 0) | (carry == -1)) & np.all([digit == (carry & ones) for digit in high], axis=0)
    return bool(is_small.all())


def _least_exponent(values: FloatArray) -> int:
    """The least e >= 0 for which the values times 2**e are integers."""
    mantissas, exponents = np.frexp(values[values != 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return int(max(0, (53 - exponents - trailing).max(initial=0)))


def _covered_in_integers(audit: ClassRecord, columns: Sequence[int], rows: IntArray) -> NDArray[np.bool_]:
    """Rows whose coordinates in a full simplex are proved positive and whose mixed bias is proved no smaller.

    With A the lines as columns, R near its inverse and rounded to few bits, and every entry of ``I - R A`` below
    1 / (2 m): A is regular, and from any l the coordinates are at most ``2 |R| |w - A l|`` away, in largest norms. All
    of that is computed in integers; a False says nothing.
    """
    lines, worth = _columns(audit, columns)
    m, no = len(lines), np.zeros(len(rows), dtype=bool)
    if m != lines.shape[1] or not np.isfinite(worth).all():
        return no
    with np.errstate(all="ignore"):
        try:
            inverse = np.linalg.inv(lines)  # coordinates times lines is (row, 1)
        except np.linalg.LinAlgError:
            return no
        size = np.abs(inverse).max(initial=0.0)
        if not 2.0**-40 < size < 2.0**30:
            return no
        fraction = 52 - int(np.frexp(size)[1])  # bits behind the point of R: 52 in all
        inverse = np.ldexp(np.rint(np.ldexp(inverse, fraction)), -fraction)
        wanted = np.column_stack([audit.weights[rows], np.ones(len(rows))])
        scale = max(_least_exponent(lines), _least_exponent(wanted))
        place = (scale + fraction - int(2 * m).bit_length()) // _DIGIT
        of_lines, of_inverse = _digits(lines, scale), _digits(inverse, fraction)
        if of_lines is None or of_inverse is None or place < 0 or m * _MOST_DIGITS >= 2**17:
            return no
        defect = _product(of_lines, of_inverse)
        one = [np.full(m, digit) for digit in _digits_of_power(scale + fraction)]
        defect += [np.zeros((m, m), dtype=np.int64)] * (len(one) - len(defect))
        for at, digit in enumerate(one):
            defect[at] = defect[at] - np.diag(digit)
        if not _all_below(defect, place):
            return no
        shares = wanted @ inverse
        return _positive(audit, rows, (columns, worth, shares), (of_lines, wanted, scale), inverse)


def _above(values: FloatArray) -> IntArray:
    """At least the absolute values times 2**20, as integers."""
    return np.ceil(np.ldexp(np.abs(values), _SUMMED)).astype(np.int64)


def _digits_of_power(exponent: int) -> list[int]:
    return [0] * (exponent // _DIGIT) + [1 << exponent % _DIGIT]


def _positive(
    audit: ClassRecord,
    rows: IntArray,
    claim: tuple[Sequence[int], FloatArray, FloatArray],
    system: tuple[list[FloatArray], FloatArray, int],
    inverse: FloatArray,
) -> NDArray[np.bool_]:
    """The second half of ``_covered_in_integers``: how far the shares are off, and what follows for signs and bias."""
    (columns, worth, shares), (of_lines, wanted, scale) = claim, system
    found = np.zeros(len(rows), dtype=bool)
    if not np.isfinite(shares).all():
        return found
    behind = 50 - max(0, int(np.frexp(np.abs(shares).max(initial=0.0))[1]))
    shares = np.ldexp(np.rint(np.ldexp(shares, behind)), -behind)
    of_shares = _digits(shares, behind)
    if behind < 0 or of_shares is None:
        return found
    norm = Fraction(int(_above(inverse).sum(axis=0).max()), 2**_SUMMED)
    parts = _product(of_shares, of_lines)
    values = _fractions(worth)
    total = sum(map(abs, values), Fraction(0))
    for at, i in enumerate(rows.tolist()):
        missing = 0
        for k, value in enumerate(wanted[at].tolist()):
            mixed = sum(int(part[at, k]) << _DIGIT * place for place, part in enumerate(parts))
            missing = max(missing, abs(int(Fraction(value) * 2 ** (scale + behind)) - mixed))
        error = 2 * norm * missing / 2 ** (scale + behind)
        if shares[at].min() <= error:
            continue
        own = Fraction(float(audit.bias[i]))
        lead = _dot(_fractions(shares[at]), values) - own - error * total
        is_below = all(value >= (own if j < audit.n_classes else 0) for j, value in zip(columns, values, strict=True))
        found[at] = is_below or lead >= 0
    return found


def _is_covered(audit: ClassRecord, columns: Sequence[int], i: int) -> bool:
    """The claim of a mixture, in rationals."""
    lines, worth = _columns(audit, columns)
    if i in columns or not any(j < audit.n_classes for j in columns) or not np.isfinite(worth).all():
        return False
    if len(columns) == 1:  # a class with the same row
        j = columns[0]
        first, second = (float(audit.bias[k]) for k in (j, i))
        return bool((audit.weights[i] == audit.weights[j]).all()) and (first > second or (first == second and j < i))
    shares = _solve([_fractions(line) for line in lines], [*_fractions(audit.weights[i]), Fraction(1)])
    if shares is None or any(x < 0 for x in shares):
        return False
    return _dot(shares, _fractions(worth)) >= Fraction(float(audit.bias[i]))


def _solve(lines: list[list[Fraction]], wanted: list[Fraction]) -> list[Fraction] | None:
    """Independent lines' coefficients that sum to the wanted one, in rationals; None where there are none.

    Square systems go to flint where it is installed; otherwise elimination.
    """
    n, m = len(lines), len(wanted)
    if n > m:
        return None
    system = [[*(line[k] for line in lines), wanted[k]] for k in range(m)]
    if _flint is not None and n == m:
        table = _flint.fmpq_mat([[_flint.fmpq(x.numerator, x.denominator) for x in row[:n]] for row in system])
        right = _flint.fmpq_mat([[_flint.fmpq(row[n].numerator, row[n].denominator)] for row in system])
        try:
            found = table.solve(right)
        except ZeroDivisionError:
            return None
        return [Fraction(int(found[k, 0].p), int(found[k, 0].q)) for k in range(n)]
    rows = [row[:] for row in system]
    for k in range(n):
        pivot = next((r for r in range(k, m) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        lead = rows[k][k]
        rows[k] = [x / lead for x in rows[k]]
        for r in range(m):
            if r != k and rows[r][k]:
                factor = rows[r][k]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[k], strict=True)]
    if any(rows[r][n] for r in range(n, m)):
        return None
    return [rows[k][n] for k in range(n)]


def _is_outweighed(audit: ClassRecord, rivals: Sequence[int], multipliers: Numbers | FloatArray | None, i: int) -> bool:
    """The claim of a ball: at the centre the mixture leads by at least the radius times its difference's length."""
    if multipliers is None or len(multipliers) != len(rivals) or i in rivals:
        return False
    shares = [Fraction(x) for x in multipliers]
    if any(x < 0 for x in shares) or not any(shares):
        return False
    total = sum(shares, Fraction(0))
    mixed = [-total * x for x in _fractions(audit.weights[i])]
    lead = -total * Fraction(float(audit.bias[i]))
    for j, share in zip(rivals, shares, strict=True):
        mixed = [x + share * y for x, y in zip(mixed, _fractions(audit.weights[j]), strict=True)]
        lead += share * Fraction(float(audit.bias[j]))
    lead += _dot(mixed, _fractions(audit.domain.centre))
    return lead >= 0 and lead * lead >= Fraction(audit.domain.radius) ** 2 * _dot(mixed, mixed)


def _is_inside_sphere(audit: ClassRecord, i: int) -> bool:
    """The claim that a closed cell is bounded with every corner in the unit ball, by all its candidate corners."""
    own, d = _fractions(audit.weights[i]), audit.weights.shape[1]
    normals, limits = [], []
    for j in range(audit.n_classes):
        if j != i and not ((audit.weights[i] == audit.weights[j]).all() and audit.bias[j] <= audit.bias[i]):
            normals.append([x - y for x, y in zip(_fractions(audit.weights[j]), own, strict=True)])
            limits.append(Fraction(float(audit.bias[i])) - Fraction(float(audit.bias[j])))
    # a face of dimension one that is unbounded, or a line, shows as d - 1 independent walls with a free direction
    for chosen in combinations(range(len(normals)), d):
        lines = [[normals[j][k] for j in chosen] for k in range(d)]
        corner = _solve(lines, [limits[j] for j in chosen])
        if corner is None:
            continue
        if all(_dot(n, corner) <= l for n, l in zip(normals, limits, strict=True)) and _dot(corner, corner) > 1:
            return False
    return _is_bounded(normals, d)


def _is_bounded(normals: list[list[Fraction]], d: int) -> bool:
    """Whether no direction v other than zero has ``normals @ v <= 0``: each signed unit is a conic mix of normals."""
    for k in range(d):
        for sign in (1, -1):
            unit = [Fraction(sign * int(k == other)) for other in range(d)]
            if not any(
                (mix := _solve([normals[j] for j in chosen], unit)) is not None and all(x >= 0 for x in mix)
                for size in range(1, d + 1)
                for chosen in combinations(range(len(normals)), size)
            ):
                return False
    return True

"""An audit checked again: every witness and certificate, from the numbers of the head, by other code than found them.

Nothing of the search is imported. Witnesses are scored against all classes, with rationals where the floats' bound
leaves doubt. A certificate's system is solved anew, by rows reduced in another way, and its claim tested in floats with
a proved bound or in rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rounding import SAFETY, UNDERFLOW, corner_error, dot_error, length_above
from hardmax.cells.certificate.check import Check
from hardmax.cells.complex import Exactness
from hardmax.cells.verification import Verification

if TYPE_CHECKING:
    from hardmax.heads.classes.audit import ClassAudit

_flint: Any
try:
    import flint as _flint
except ImportError:  # the `exact` extra is absent: the same answers, more slowly
    _flint = None

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Numbers = Sequence[Fraction]


def check(audit: ClassAudit, *, thorough: bool = False) -> Verification:
    """Every claim of an audit tested; failures are reported, not raised.

    Exactness: exact for certificates where ``thorough``, certified otherwise.
    """
    bad_witnesses = _bad_witnesses(audit)
    bad_domain = _outside(audit)
    bad_covers, n_rational = _bad_covers(audit, thorough)
    n_live, n_dead = audit.n_live, audit.n_dead

    def entry(name: str, bad: list[int], good: str) -> Check:
        listed = ", ".join(f"{i} ({audit.names[i]})" for i in bad[:5])
        return Check(name, not bad, good if not bad else f"{len(bad)} fail, among them class {listed}")

    checks = (
        entry("witnesses win", bad_witnesses, f"{n_live} live classes win alone at their queries"),
        entry("witnesses lie in the domain", bad_domain, f"{n_live} queries lie on {audit.domain.words}"),
        entry(
            "certificates cover", bad_covers, f"{n_dead} dead classes are covered, {n_rational} checked in rationals"
        ),
    )
    return Verification(checks, Exactness.EXACT if thorough else Exactness.CERTIFIED)


def _fractions(values: FloatArray) -> list[Fraction]:
    return [Fraction(x) for x in values.tolist()]


def _dot(x: Numbers, y: Numbers) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True) if a and b), Fraction(0))


# --- live classes -------------------------------------------------------------------------------------


def _query(audit: ClassAudit, i: int) -> list[Fraction]:
    return list(audit.exact_queries.get(i) or _fractions(audit.queries[audit.query_of[i]]))


def _bad_witnesses(audit: ClassAudit) -> list[int]:
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


def _is_above(audit: ClassAudit, i: int, j: int) -> bool:
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


def _outside(audit: ClassAudit) -> list[int]:
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


def _bad_covers(audit: ClassAudit, thorough: bool) -> tuple[list[int], int]:
    bad, n_rational = [], 0
    for number, cover in enumerate(audit.covers):
        rows = np.flatnonzero((audit.cover_of == number) & (audit.status == 0))
        if cover.kind == "mixture":
            proved = np.zeros(len(rows), dtype=bool) if thorough else _covered_in_floats(audit, cover.columns, rows)
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


def _columns(audit: ClassAudit, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
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


def _covered_in_floats(audit: ClassAudit, columns: Sequence[int], rows: IntArray) -> NDArray[np.bool_]:
    """Rows whose coordinates in a full simplex are proved positive and whose mixed bias is proved no smaller."""
    lines, worth = _columns(audit, columns)
    m = len(lines)
    if m != lines.shape[1] or not np.isfinite(worth).all():
        return np.zeros(len(rows), dtype=bool)
    with np.errstate(all="ignore"):
        try:
            # coordinates times lines = (row, 1): solved from the left, by the inverse of the orthogonal factorisation
            q, r = np.linalg.qr(lines.T)
            inverse = np.linalg.solve(r, q.T)
        except np.linalg.LinAlgError:
            return np.zeros(len(rows), dtype=bool)
        defect = np.abs(inverse @ lines.T - np.eye(m)) + dot_error(m, np.abs(inverse) @ np.abs(lines.T) + 1.0)
        wanted = np.column_stack([audit.weights[rows], np.ones(len(rows))])
        shares = wanted @ inverse.T
        missing = np.abs(wanted - shares @ lines)
        missing += dot_error(m, np.abs(wanted) + np.abs(shares) @ np.abs(lines))
        worst = SAFETY * defect.sum(axis=1).max()
        pull = SAFETY * (missing @ np.abs(inverse.T) + m * UNDERFLOW).max(axis=1)
        error = corner_error(m, pull, worst) if worst <= 0.5 else np.full(len(pull), np.inf)
        positive = (shares - error[:, None] > 0).all(axis=1)
        value = shares @ worth - audit.bias[rows]
        size = np.abs(shares) @ np.abs(worth) + np.abs(audit.bias[rows])
        value_error = dot_error(m, size, SAFETY * (error * np.abs(worth).sum() + m * UNDERFLOW))
        is_rival = np.array([j < audit.n_classes for j in columns])
        at_least = np.array([(worth >= np.where(is_rival, audit.bias[i], 0.0)).all() for i in rows], dtype=bool)
        return np.asarray(positive & ((value > value_error) | at_least))


def _is_covered(audit: ClassAudit, columns: Sequence[int], i: int) -> bool:
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


def _is_outweighed(audit: ClassAudit, rivals: Sequence[int], multipliers: Numbers | FloatArray | None, i: int) -> bool:
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


def _is_inside_sphere(audit: ClassAudit, i: int) -> bool:
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

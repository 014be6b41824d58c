"""Signs of lines at the corners of polygons: by floats beyond a proved bound, else by exact determinants.

A polygon is a run of rows, counter-clockwise: corner i with its edge from i to i + 1. Columns of a
row: x, y, bound on the error of x and y, the edge's line (constant, x, y coefficients; positive
inside), and bounds on the errors of those three. Edge i's wall number stands in a parallel array.
"""

# mypy: ignore-errors

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing
from hardmax.exact.expansions import sign_of_sum, two_product
from hardmax.exact.rounding import SAFETY

# called from compiled code only, and makes no arrays
jit = borrowing(nogil=True)

# the lemmas of docs/error_bounds.md
dot_error, difference_error = jit(rounding.dot_error), jit(rounding.difference_error)
crossing_room, crossing_error = jit(rounding.crossing_room), jit(rounding.crossing_error)
blend_error = jit(rounding.blend_error)

FLOAT_ZERO = 2.0**-44  # float mode: a value this small beside its terms is taken for zero
X, Y, ERROR, L0, L1, L2, E0, E1, E2 = 0, 1, 2, 3, 4, 5, 6, 7, 8
COLUMNS = 9
FINISHED_COLUMNS = 3
RIVAL_BITS = 24
DOUBT = 2  # a sign that is not known
FAILED, NO_ROOM = -1, -2  # instead of a number of corners: in doubt, or too many for the arrays
# Exact products of three floats neither overflow nor underflow inside these limits.
_SMALLEST, _LARGEST = 2.0**-250, 2.0**250


@jit
def is_exact(polygon, edge):
    return polygon[edge, E0] == 0.0 and polygon[edge, E1] == 0.0 and polygon[edge, E2] == 0.0


@jit
def _in_range(value):
    size = abs(value)
    return size == 0.0 or (_SMALLEST < size < _LARGEST)


@jit
def exact_sign(c0, c1, c2, polygon, before, after, terms):
    """The sign of the line (c0, c1, c2) at the corner where two exact edges meet, or DOUBT.

    It is the sign of a 3 x 3 determinant: consecutive inward normals of a counter-clockwise convex
    polygon turn left, so the denominator is positive.
    """
    a0, a1, a2 = polygon[before, L0], polygon[before, L1], polygon[before, L2]
    b0, b1, b2 = polygon[after, L0], polygon[after, L1], polygon[after, L2]
    if not (_in_range(c0) and _in_range(c1) and _in_range(c2) and _in_range(a0) and _in_range(a1)):
        return DOUBT
    if not (_in_range(a2) and _in_range(b0) and _in_range(b1) and _in_range(b2)):
        return DOUBT
    n = 0
    for k in range(6):
        if k == 0:
            p, q, r = c0, a1, b2
        elif k == 1:
            p, q, r = -c0, a2, b1
        elif k == 2:
            p, q, r = c1, a2, b0
        elif k == 3:
            p, q, r = -c1, a0, b2
        elif k == 4:
            p, q, r = c2, a0, b1
        else:
            p, q, r = -c2, a1, b0
        high, low = two_product(p, q)
        hh, hl = two_product(high, r)
        lh, ll = two_product(low, r)
        terms[n], terms[n + 1], terms[n + 2], terms[n + 3] = ll, lh, hl, hh
        n += 4
    return sign_of_sum(terms, n)


@jit
def is_zero(polygon, i, c0, c1, c2, e0, e1, e2):
    """Whether every term of a line's value at a corner is certainly zero; a product that underflows is not.

    Lines through the origin are zero there whatever the errors of their slopes.
    """
    if c0 != 0.0 or e0 != 0.0:
        return False
    sharp = polygon[i, ERROR] == 0.0
    no_x = (c1 == 0.0 and e1 == 0.0) or (sharp and polygon[i, X] == 0.0)
    return no_x and ((c2 == 0.0 and e2 == 0.0) or (sharp and polygon[i, Y] == 0.0))


@jit
def line_signs(polygon, n, exact, certified, cut):
    """Signs of the line to cut by at all corners; returns bits: 1 some positive, 2 some negative, 4 some doubtful."""
    line, signs, values, bounds = cut.line, cut.signs, cut.values, cut.bounds
    c0, c1, c2, e0, e1, e2 = line[0], line[1], line[2], line[3], line[4], line[5]
    found = 0
    size1, size2 = abs(c1), abs(c2)
    slope = size1 + size2 + e1 + e2
    for i in range(n):
        x, y = polygon[i, X], polygon[i, Y]
        t1, t2 = c1 * x, c2 * y
        value = c0 + t1 + t2
        values[i] = value
        size = abs(c0) + abs(t1) + abs(t2)
        if certified:
            bound = dot_error(2, size, e0 + e1 * abs(x) + e2 * abs(y) + polygon[i, ERROR] * slope)
        else:
            bound = FLOAT_ZERO * size
        bounds[i] = bound
        if value > bound:
            signs[i] = 1
            found |= 1
        elif value < -bound:
            signs[i] = -1
            found |= 2
        elif not certified or is_zero(polygon, i, c0, c1, c2, e0, e1, e2):
            signs[i] = 0
        else:
            before = i - 1 if i > 0 else n - 1
            sign = DOUBT
            if exact and is_exact(polygon, before) and is_exact(polygon, i):
                sign = exact_sign(c0, c1, c2, polygon, before, i, cut.terms)
            signs[i] = sign
            if sign == 1:
                found |= 1
            elif sign == -1:
                found |= 2
            elif sign == DOUBT:
                found |= 4
    return found


@jit
def one_sided(polygon, n, lines, r, certified):
    """1 or -1 if row r certainly has that sign at every corner, else 0."""
    rows, errors = lines.rows, lines.errors
    c0, c1, c2, e0, e1, e2 = rows[0, r], rows[1, r], rows[2, r], errors[0], errors[1], errors[2]
    slope = abs(c1) + abs(c2) + e1 + e2
    sign = 0
    for i in range(n):
        x, y = polygon[i, X], polygon[i, Y]
        t1, t2 = c1 * x, c2 * y
        value = c0 + t1 + t2
        size = abs(c0) + abs(t1) + abs(t2)
        if certified:
            bound = dot_error(2, size, e0 + e1 * abs(x) + e2 * abs(y) + polygon[i, ERROR] * slope)
        else:
            bound = FLOAT_ZERO * size
        if value > bound:
            if sign == -1:
                return 0
            sign = 1
        elif value < -bound:
            if sign == 1:
                return 0
            sign = -1
        else:
            return 0
    return sign


@jit
def overflows(rows, far_x, far_y):
    """Whether a value on the polygon may leave the range of floats; the rows themselves stay below 2**1000."""
    if far_x < 2.0**20 and far_y < 2.0**20:
        return False
    if not (far_x < 2.0**1000 and far_y < 2.0**1000):
        return True
    for r in range(rows.shape[1]):
        if not abs(rows[0, r]) + abs(rows[1, r]) * far_x + abs(rows[2, r]) * far_y < 2.0**1000:
            return True
    return False


@jit
def extent(polygon, n):
    """The largest coordinates of a polygon in absolute value, and the largest error of a corner."""
    far_x, far_y, drift = 0.0, 0.0, 0.0
    for i in range(n):
        far_x = max(far_x, abs(polygon[i, X]))
        far_y = max(far_y, abs(polygon[i, Y]))
        drift = max(drift, polygon[i, ERROR])
    return far_x, far_y, drift


@jit
def row_ranges(polygon, n, lines, far, certified, low, high):
    """Certain bounds of every row on the polygon's bounding box, widened by all that rounding may do.

    ``far`` is the polygon's extent.
    """
    rows, errors = lines.rows, lines.errors
    far_x, far_y, drift = far
    x0, x1, y0, y1 = polygon[0, X], polygon[0, X], polygon[0, Y], polygon[0, Y]
    for i in range(1, n):
        x0, x1 = min(x0, polygon[i, X]), max(x1, polygon[i, X])
        y0, y1 = min(y0, polygon[i, Y]), max(y1, polygon[i, Y])
    x, y = 0.5 * (x0 + x1), 0.5 * (y0 + y1)
    half_x, half_y = max(x1 - x, x - x0) * SAFETY, max(y1 - y, y - y0) * SAFETY
    fixed, by_slope, by_size = 0.0, 0.0, FLOAT_ZERO
    if certified:
        # two roundings more than a value's: a range ends at the value less or plus its reach
        fixed = errors[0] + errors[1] * far_x + errors[2] * far_y + drift * (errors[1] + errors[2])
        fixed, by_slope, by_size = dot_error(4, 0.0, fixed), SAFETY * drift, dot_error(4, 1.0)
    for r in range(rows.shape[1]):
        c0, c1, c2 = rows[0, r], rows[1, r], rows[2, r]
        size1, size2 = abs(c1), abs(c2)
        value = c0 + c1 * x + c2 * y
        reach = size1 * half_x + size2 * half_y + by_slope * (size1 + size2)
        reach += fixed + by_size * (abs(c0) + size1 * far_x + size2 * far_y)
        low[r] = value - reach
        high[r] = value + reach

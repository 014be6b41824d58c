"""Proved signs of functions of degree at most two on an interval.

A function f is handled through its polar form

    F(s, t) = c0 w_s w_t + c1 (s w_t + t w_s) / 2 + c2 s t,      F(t, t) = f(t) at finite t,

with homogeneous ends: (t, 1) is the number t, (1, 0) and (-1, 0) are the infinite ends. F(s, s),
F(s, t) and F(t, t) are the Bernstein coefficients of f between s and t, so f is positive there if none
of them is negative and one is positive. Every sign is taken with a bound on the error of the
coefficients and of the evaluation; exact zeros are recognised by error-free transformations.

The exact twin of ``polar_sign`` is ``arithmetic.quadratic.sign_at``; tests compare the two.
"""

import numba

#: What a sign can be besides -1, 0 and 1.
UNKNOWN = 2

U = 2.0**-53
TINY = 2.0**-1060  # covers products that underflow
SMALL = 2.0**-900  # below this, the error term of a product may itself underflow
_SLACK = 1.0 + 2.0**-40  # covers the rounding of the bounds themselves

_jit = numba.njit(cache=True, nogil=True)


@_jit
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """Rounded sum and its exact error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@_jit
def two_product(a, b):  # type: ignore[no-untyped-def]
    """Rounded product and its exact error, for factors below 2**990 and products above 2**-900."""
    product = a * b
    scaled = 134217729.0 * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = 134217729.0 * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@_jit
def polar_sign(d, s, ws, t, wt, certified):  # type: ignore[no-untyped-def]
    """The sign of F(s, t) for d = (d0, d1, d2, bounds on their errors), or UNKNOWN."""
    d0, d1, d2, r0, r1, r2 = d
    w = ws * wt
    m = 0.5 * (s * wt + t * ws)
    q = s * t
    a0, a1, a2 = d0 * w, d1 * m, d2 * q
    value = a0 + a1 + a2
    if not certified:
        return 1 if value > 0.0 else (-1 if value < 0.0 else 0)
    data = (r0 * w + r1 * abs(m) + r2 * abs(q)) * _SLACK
    if data > 0.0:
        data += TINY
    quick = data + 8.0 * U * (abs(a0) + abs(a1) + abs(a2)) + TINY
    if value > quick:
        return 1
    if value < -quick:
        return -1
    # Measure the rounding errors instead of bounding them: for dyadic data they are zero.
    m2, em = two_sum(s * wt, t * ws)
    q, eq = two_product(s, t)
    a1, e1 = two_product(d1, 0.5 * m2)
    a2, e2 = two_product(d2, q)
    partial, e3 = two_sum(a0, a1)
    value, e4 = two_sum(partial, a2)
    f1, f2 = d1 * (0.5 * em), d2 * eq
    slack = (abs(e1) + abs(e2) + abs(e3) + abs(e4) + abs(f1) + abs(f2)) * _SLACK
    faint = (s != 0.0 and t != 0.0 and abs(q) < SMALL and d2 != 0.0) or (
        (d1 != 0.0 and m2 != 0.0 and abs(a1) < SMALL) or (d2 != 0.0 and q != 0.0 and abs(a2) < SMALL)
    )
    if faint or slack > 0.0 or em != 0.0 or eq != 0.0:
        data += TINY
    if data == 0.0 and slack == 0.0:
        return 1 if value > 0.0 else (-1 if value < 0.0 else (0 if value == 0.0 else UNKNOWN))
    value = value + (e1 + e2 + e3 + e4 + f1 + f2)
    bound = data + 64.0 * U * slack + 4.0 * U * abs(value)
    return 1 if value > bound else (-1 if value < -bound else UNKNOWN)


@_jit
def is_positive(d, s, ws, t, wt, certified):  # type: ignore[no-untyped-def]
    """1 if f > 0 between s and t is proved, isolated zeros allowed; 0 if f = 0 is; UNKNOWN otherwise."""
    lowest = -0.5 * d[1] / d[2] if d[2] > 0.0 else 0.0
    if ws == 0.0 and wt == 0.0:  # the two infinite ends span no cone: go through a point
        below = _is_positive(d, s, ws, lowest, 1.0, lowest, certified)
        above = _is_positive(d, lowest, 1.0, t, wt, lowest, certified)
        return UNKNOWN if UNKNOWN in (below, above) else max(below, above)
    return _is_positive(d, s, ws, t, wt, lowest, certified)


@_jit
def _is_positive(d, s, ws, t, wt, lowest, certified):  # type: ignore[no-untyped-def]
    at_s = polar_sign(d, s, ws, s, ws, certified)
    at_t = polar_sign(d, t, wt, t, wt, certified)
    if not (_is_sure(at_s) and _is_sure(at_t)):
        return UNKNOWN
    between = polar_sign(d, s, ws, t, wt, certified)
    if _is_sure(between):
        return 1 if at_s + between + at_t > 0 else 0
    # The middle coefficient hangs below a convex arc: cut at its lowest point, where it no longer does.
    if not d[2] > 0.0 or (ws == 1.0 and not lowest > s) or (wt == 1.0 and not lowest < t):
        return UNKNOWN
    left, right = lowest, lowest
    if wt == 0.0:  # towards an infinite end the slope must be seen to rise, so go past the lowest point
        right = lowest + max(1.0, max(abs(lowest), lowest - s))
    if ws == 0.0:
        left = lowest - max(1.0, max(abs(lowest), t - lowest))
    sure = (
        _is_sure(polar_sign(d, s, ws, left, 1.0, certified))
        and _is_sure(polar_sign(d, left, 1.0, left, 1.0, certified))
        and _is_sure(polar_sign(d, left, 1.0, lowest, 1.0, certified))
        and _is_sure(polar_sign(d, lowest, 1.0, lowest, 1.0, certified))
        and _is_sure(polar_sign(d, lowest, 1.0, right, 1.0, certified))
        and _is_sure(polar_sign(d, right, 1.0, right, 1.0, certified))
        and _is_sure(polar_sign(d, right, 1.0, t, wt, certified))
    )
    return 1 if sure else UNKNOWN  # not zero everywhere, because the middle coefficient is not


@_jit
def _is_sure(sign):  # type: ignore[no-untyped-def]
    """Whether a sign is proved not to be negative."""
    return sign == 0 or sign == 1

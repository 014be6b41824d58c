"""Compiled error-free arithmetic: sums and products of floats with their rounding errors, exact signs of sums.

The products are split after Dekker and need arguments between 2**-480 and 2**480, so that nothing overflows or
underflows; callers check that.
"""

# mypy: ignore-errors

from hardmax.exact.compiling import inner

_jit = inner(nogil=True)
_inline = inner(nogil=True, inline="always")


@_inline
def two_sum(a, b):
    """a + b rounded, and the rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@_inline
def two_product(a, b):
    """a * b rounded, and the rounding error."""
    p = a * b
    t = 134217729.0 * a
    ah = t - (t - a)
    al = a - ah
    t = 134217729.0 * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@_jit
def sign_of_sum(terms, n):
    """The sign of the exact sum of n floats; ``terms`` is overwritten by an expansion of growing parts (Shewchuk)."""
    m = 0
    for i in range(n):
        q = terms[i]
        out = 0
        for j in range(m):
            q, small = two_sum(q, terms[j])
            if small != 0.0:
                terms[out] = small
                out += 1
        if q != 0.0:
            terms[out] = q
            out += 1
        m = out
    if m == 0:
        return 0
    return 1 if terms[m - 1] > 0.0 else -1

"""Angles of regular simplices, between proved ends.

With g-faces of the regular simplex on n vertices, 0 <= g < n, and Phi(x) = (1 + erf x) / 2:

    external angle at a g-face     I(g + 1, n - g - 1),  I(k, m) = sqrt(k / pi) int e^{-k x^2} Phi(x)^m dx
    internal angle at a vertex     b_0 = 1, and with the external angles e_g of the simplex on g + 1, ..., n vertices
                                   b_{n-1} = 1/2 - sum of C(n - 1, g) b_g e_g over g < n - 1, g = n - 1 mod 2,

the second because the products of internal and external angles over the faces at one vertex add up to one, and with
signs to zero. The integral is a trapezoidal sum whose error is bounded in docs/error_bounds.md, Lemma 21. All numbers
are nonnegative decimals rounded down and up.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, isqrt

Ends = tuple[Decimal, Decimal]
Vector = tuple[list[Decimal], list[Decimal]]

#: 2 pi, e^{-1/4} and log 10, log 2 from the safe side.
_TWO_PI, _SHRINK, _LOG_TEN, _LOG_TWO = Decimal("6.28"), Fraction(77, 100), Fraction(2303, 1000), Fraction(7, 10)


class SimplexAngles:
    """Angles of regular simplices on at most 2^``bits`` vertices, to about ``n_digits`` digits after the point."""

    def __init__(self, n_digits: int, bits: int, top: int) -> None:
        self.down = Context(prec=n_digits + 10, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
        self.up = Context(prec=n_digits + 10, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
        square = _LOG_TWO * bits + 1  # X^2 + 1 with e^{X^2} >= m
        length = Fraction(isqrt(int(10_000 * square)) + 1, 100)  # above its root
        self.strip = _SHRINK / (2 * length)  # the half-width a: a e^{a^2} (X + sqrt(X^2 + 2)) <= 1
        needed = _LOG_TEN * n_digits + Fraction(top, 4) + 3
        self.per_unit = int(needed / (Fraction(628, 100) * self.strip)) + 1  # points in a unit: 1 / h
        self.reach = isqrt(int(_LOG_TEN * n_digits)) + 1  # e^{-T^2} is below the last digit
        self._weights: dict[int, Vector] = {}
        self._powers: dict[int, Vector] = {}
        self._internal: list[Ends] = [(Decimal(1), Decimal(1))]

    def external(self, face: int, n_vertices: int) -> Ends:
        """The external angle of the regular simplex on ``n_vertices`` vertices at a face of dimension ``face``."""
        k, m = face + 1, n_vertices - face - 1
        if face == 0 or m <= 1:
            share = n_vertices if face == 0 else m + 1
            return self.down.divide(Decimal(1), Decimal(share)), self.up.divide(Decimal(1), Decimal(share))
        low, high = self._sum(self._times(self._weight(k), self._power(m)))
        error, tail = self._error(k), self._tail(k)
        root = (self.down.sqrt(Decimal(k)).next_minus(self.down), self.up.sqrt(Decimal(k)).next_plus(self.up))
        low = self.down.divide(self.down.multiply(low, root[0]), self.root_pi[1])
        high = self.up.divide(self.up.multiply(self.up.add(high, tail), root[1]), self.root_pi[0])
        return max(Decimal(0), self.down.subtract(low, error)), self.up.add(high, error)

    def internal(self, dim: int) -> Ends:
        """The internal angle of the regular simplex of dimension ``dim`` at a vertex."""
        for n in range(len(self._internal), dim + 1):
            low, high = Decimal(0), Decimal(0)
            for g in range(n % 2, n, 2):
                inner, outer, times = self._internal[g], self.external(g, n + 1), Decimal(comb(n, g))
                low = self.down.add(low, self.down.multiply(self.down.multiply(times, inner[0]), outer[0]))
                high = self.up.add(high, self.up.multiply(self.up.multiply(times, inner[1]), outer[1]))
            half = Decimal("0.5")
            self._internal.append((max(Decimal(0), self.down.subtract(half, high)), self.up.subtract(half, low)))
        return self._internal[dim]

    # --- the trapezoidal sum -------------------------------------------------------------------------

    @cached_property
    def root_pi(self) -> Ends:
        """sqrt(pi), which is the integral of e^{-x^2}: the same sum with Phi left out, and M at most 2 e e^{a^2}."""
        low, high = self._sum(self._weight(1))
        error = self.up.multiply(Decimal(2), self._error(1))
        return self.down.subtract(low, error), self.up.add(self.up.add(high, self._tail(1)), error)

    def _error(self, k: int) -> Decimal:
        """Lemma 21: 2 e e^{k a^2} / (e^{2 pi a / h} - 1), relative to sqrt(pi / k)."""
        up, a = self.up, self.up.divide(Decimal(self.strip.numerator), Decimal(self.strip.denominator))
        grown = up.exp(up.multiply(Decimal(k), up.multiply(a, a))).next_plus(up)
        low_a = self.down.divide(Decimal(self.strip.numerator), Decimal(self.strip.denominator))
        exponent = self.down.multiply(self.down.multiply(_TWO_PI, low_a), Decimal(self.per_unit))
        below = self.down.subtract(self.down.exp(exponent).next_minus(self.down), Decimal(1))
        return up.divide(up.multiply(Decimal("5.4366"), grown), below)

    def _tail(self, k: int) -> Decimal:
        """Both ends beyond T: at most e^{-k T^2} / (k T)."""
        size = self.up.exp(Decimal(-k * self.reach * self.reach)).next_plus(self.up)
        return self.up.divide(size, Decimal(k * self.reach))

    def _sum(self, values: Vector) -> Ends:
        """h times the sum of values."""
        low, high = Decimal(0), Decimal(0)
        for first, second in zip(*values, strict=True):
            low, high = self.down.add(low, first), self.up.add(high, second)
        step = Decimal(self.per_unit)
        return self.down.divide(low, step), self.up.divide(high, step)

    def _times(self, first: Vector, second: Vector) -> Vector:
        low = [self.down.multiply(a, b) for a, b in zip(first[0], second[0], strict=True)]
        high = [self.up.multiply(a, b) for a, b in zip(first[1], second[1], strict=True)]
        return low, high

    def _weight(self, k: int) -> Vector:
        """e^{-k x^2} at the points x = -T, -T + h, ..., T."""
        if k not in self._weights:
            self._weights[k] = self._gauss if k == 1 else self._times(self._weight(k - 1), self._gauss)
        return self._weights[k]

    def _power(self, m: int) -> Vector:
        """Phi(x)^m at the points."""
        if m not in self._powers:
            if m == 1:
                self._powers[m] = self._phi
            else:
                half = self._power(m // 2)
                square = self._times(half, half)
                self._powers[m] = self._times(square, self._phi) if m % 2 else square
        return self._powers[m]

    @cached_property
    def _gauss(self) -> Vector:
        half = [self._gauss_at(i) for i in range(self.reach * self.per_unit + 1)]
        both = half[:0:-1] + half
        return [low for low, _ in both], [high for _, high in both]

    def _gauss_at(self, i: int) -> Ends:
        """e^{-x^2} at x = i h."""
        square, scale = Decimal(-i * i), Decimal(self.per_unit**2)
        low = self.down.exp(self.down.divide(square, scale)).next_minus(self.down)
        return low, self.up.exp(self.up.divide(square, scale)).next_plus(self.up)

    @cached_property
    def _phi(self) -> Vector:
        half = Decimal("0.5")
        right, left = [], []
        for i, low_gauss, high_gauss in zip(
            range(self.reach * self.per_unit + 1), *(part[len(part) // 2 :] for part in self._gauss), strict=True
        ):
            low, high = self._series(i)
            low = self.down.divide(self.down.multiply(low, low_gauss), self.root_pi[1])
            high = min(half, self.up.divide(self.up.multiply(high, high_gauss), self.root_pi[0]))
            right.append((self.down.add(half, low), self.up.add(half, high)))
            left.append((self.down.subtract(half, high), self.up.subtract(half, low)))
        both = left[:0:-1] + right
        return [low for low, _ in both], [high for _, high in both]

    def _series(self, i: int) -> Ends:
        """e^{x^2} int_0^x e^{-t^2} dt = sum_n 2^n x^{2n+1} / (1 3 5 ... (2n+1)) at x = i h, all terms positive."""
        down, up = self.down, self.up
        numerator, denominator = Decimal(2 * i * i), self.per_unit**2
        low, high = down.divide(Decimal(i), Decimal(self.per_unit)), up.divide(Decimal(i), Decimal(self.per_unit))
        total = (low, high)
        n = 0
        while True:
            n += 1
            below = Decimal(denominator * (2 * n + 1))
            low = down.divide(down.multiply(low, numerator), below)
            high = up.divide(up.multiply(high, numerator), below)
            total = down.add(total[0], low), up.add(total[1], high)
            # from here terms at least halve, so that the rest is at most the last one
            if 2 * numerator <= below and high <= total[0].scaleb(-self.up.prec, context=down):
                return total[0], up.add(total[1], high)


@lru_cache(maxsize=4)
def simplex_angles(n_digits: int, bits: int, top: int) -> SimplexAngles:
    """The angles once for all who ask with these sizes."""
    return SimplexAngles(n_digits, bits, top)

"""Tropical algebra: the semiring and its deformation, polynomials, Newton polytopes, Minkowski sums."""

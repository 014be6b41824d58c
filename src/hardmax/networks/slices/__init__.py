"""Networks on a slice: every tensor as coefficients in the slice coordinates, with rounding bounds."""

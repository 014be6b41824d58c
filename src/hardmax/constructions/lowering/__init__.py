"""A network as a difference of maxima: continuous piecewise-linear functions read off its pieces."""

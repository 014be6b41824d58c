"""Minkowski sums of Newton polytopes: the joint cells of several heads."""

"""Cells on segments: breakpoints, with quadratic scores."""

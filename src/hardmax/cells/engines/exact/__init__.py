"""Cells in rationals: the slow engine that the others are judged by."""

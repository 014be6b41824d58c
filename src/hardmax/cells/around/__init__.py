"""Cells around an input, in the full input space: its affine map, its walls, the cells nearby."""

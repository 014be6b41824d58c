"""Cells in any dimension: polytopes with corners, walls and rays."""

"""Cells on planes: convex polygons cut by lines."""

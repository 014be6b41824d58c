"""Measurements of cells and networks: counts, volumes, margins, stability, bounds, sampling."""

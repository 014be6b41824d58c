"""What follows from cells: maps, neighbours, facets, volumes, places of points."""

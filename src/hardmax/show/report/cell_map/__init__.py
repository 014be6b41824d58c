"""The report's map of cells: search, drawing, colours and words."""

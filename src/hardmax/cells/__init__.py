"""Cells: domains, enumeration engines, power diagrams and the cell complex."""

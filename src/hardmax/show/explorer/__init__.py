"""The explorer: a page on which networks are changed by hand."""

"""Every published statement as a function that returns a verdict and its witness."""

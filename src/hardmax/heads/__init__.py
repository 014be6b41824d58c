"""Heads: classes that a model can never answer."""

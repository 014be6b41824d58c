"""Heads: what one layer of scores and its argmax can answer."""

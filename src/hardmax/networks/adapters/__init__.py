"""Models of others, seen through their attention: ``hm.models``."""

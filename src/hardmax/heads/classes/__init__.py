"""Classes that a model can never answer, certified."""

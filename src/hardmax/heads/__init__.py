<<<<<<< HEAD
"""Heads: classes that a model can never answer."""
=======
"""Heads: what one layer of scores and its argmax can answer."""
>>>>>>> wt/classes

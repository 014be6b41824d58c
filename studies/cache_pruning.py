"""How many cached keys of SmolLM2 are proved to weigh little, on ten texts; writes ``cache_pruning.csv``.

Run with ``python studies/cache_pruning.py``; about two minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.networks.files.opening import write_bytes

_PAGE = 16
_TEXTS = (
    "The capital of France is Paris, a city on the river Seine that has been the seat of government for "
    "most of the last thousand years, and that draws more visitors than any other in Europe.",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n"
    "print([fibonacci(i) for i in range(10)])",
    "Once upon a time there was a miller who had three sons, and when he died he left them his mill, his "
    "donkey and his cat; the eldest took the mill, the second the donkey, and the youngest had nothing "
    "but the cat.",
    "In 1905 Einstein published four papers: on the photoelectric effect, on Brownian motion, on special "
    "relativity and on the equivalence of mass and energy, each of which would have made a career.",
    "To make bread, mix five hundred grams of flour with three hundred and fifty grams of water, ten "
    "grams of salt and a little yeast, knead it for ten minutes, and let it rise in a warm place until it"
    " has doubled.",
    "The patient was admitted with fever, a dry cough and shortness of breath; a chest X-ray showed "
    "infiltrates in both lungs, and treatment with antibiotics was begun on the same day.",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 4181, 6765, 10946",
    "Dear Sir or Madam, I am writing to complain about the delay of my train on Monday, which made me "
    "miss a connection in Hannover and arrive in Berlin more than four hours late, at two in the morning.",
    "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough winds do "
    "shake the darling buds of May, and summer's lease hath all too short a date.",
    "The theorem says that every continuous function on a closed and bounded interval attains its "
    "maximum; the proof takes a sequence of points whose values approach the supremum and extracts a "
    "convergent subsequence.",
)


def _by_pages(head: Any, epsilon: float, radius: float) -> int:
    """How many keys page-wise minima and maxima of the coordinates prove to weigh at most epsilon (plain floats)."""
    keys, q, tau = np.concatenate([head.keys, head.own_key[None]]), head.query, head.temperature
    upper, lower, sizes = [], [], []
    for start in range(0, len(keys), _PAGE):
        page = keys[start : start + _PAGE]
        low, high = page.min(axis=0), page.max(axis=0)
        moved = radius * np.linalg.norm(np.maximum(np.abs(low), np.abs(high)))
        upper.append(np.maximum(q * low, q * high).sum() + moved)
        lower.append(np.minimum(q * low, q * high).sum() - moved)
        sizes.append(len(page))
    best = max(lower)
    total = best + tau * np.log(np.sum(np.array(sizes) * np.exp((np.array(lower) - best) / tau)))
    return sum(size for top, size in zip(upper, sizes, strict=True) if np.exp(min(0.0, (top - total) / tau)) <= epsilon)


def main() -> None:
    """Write the table and print it."""
    caches = [hm.kv_cache(capture) for capture in hm.models.smollm2().capture(list(_TEXTS))]
    heads = [head for cache in caches for head in cache]
    n_keys = sum(head.n_cached for head in heads)
    rows = ["epsilon,radius,n_heads,n_keys,share_at_query,share_proved,share_by_pages,median_output_bound"]
    for epsilon in (1e-2, 1e-3):
        here = sum(len(head.prunable(epsilon, radius=0.0).positions) for head in heads)
        for share in (0.02, 0.05, 0.10):
            found = [head.prunable(epsilon, radius=share, relative=True) for head in heads]
            proved = sum(len(one.positions) for one in found)
            pages = sum(_by_pages(head, epsilon, share * float(np.linalg.norm(head.query))) for head in heads)
            largest = [np.linalg.norm(np.vstack([head.values, head.own_value]), axis=1).max() for head in heads]
            cost = np.median([one.output_bound / size for one, size in zip(found, largest, strict=True)])
            shares = ",".join(f"{count / n_keys:.4f}" for count in (here, proved, pages))
            rows.append(f"{epsilon:g},{share:g},{len(heads)},{n_keys},{shares},{cost:.5f}")
            print(rows[-1])
    write_bytes(Path(__file__).with_suffix(".csv"), "\n".join([*rows, ""]).encode())


if __name__ == "__main__":
    main()

"""One head or many for the same number of parameters (Example V.3, with its arithmetic right)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from hardmax.errors import ParameterError
from hardmax.exactness import check_count as count
from hardmax.html import ShownAsTable
from hardmax.measure.bounds import as_published
from hardmax.measure.bounds._counts import counts
from hardmax.measure.bounds.attention import max_joint_cells


@dataclass(frozen=True)
class Budget(ShownAsTable):
    """What one way of splitting a model dimension into heads can do.

    ``max_cells`` is the tight maximum of joint cells, ``published`` what Theorem V.2 predicts.
    """

    n_heads: int
    key_dim: int
    n_parameters: int
    max_cells: int
    published: int

    @property
    def log10_max_cells(self) -> float:
        """The decimal logarithm of the maximum."""
        return log10(self.max_cells)


def attention_parameters(model_dim: int, n_heads: int, key_dim: int | None = None) -> int:
    """Weights of one attention layer: 3 d d_k H + d^2, which is 4 d^2 for d_k = d / H.

    Exactness: exact; biases are not counted.

    Examples
    --------
    >>> attention_parameters(512, 8), attention_parameters(512, 1)
    (1048576, 1048576)
    >>> attention_parameters(10, 3)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: n_heads: 3 heads do not divide the model dimension 10; give key_dim as well
    """
    d, heads = count("model_dim", model_dim, 1), count("n_heads", n_heads, 1)
    if key_dim is None:
        if d % heads:
            raise ParameterError(f"n_heads: {heads} heads do not divide the model dimension {d}; give key_dim as well")
        key_dim = d // heads
    return 3 * d * count("key_dim", key_dim, 1) * heads + d * d


def compare_budgets(
    model_dim: int, n_keys: int, head_counts: Sequence[int], *, affine: bool = False
) -> tuple[Budget, ...]:
    """The tight maximum of joint cells for each way of splitting ``model_dim`` into heads, at equal cost.

    Exactness: exact.

    Examples
    --------
    >>> one, eight = compare_budgets(512, 512, [1, 8])
    >>> one.n_parameters == eight.n_parameters, one.max_cells, eight.max_cells
    (True, 512, 4722366482869645213696)

    With as many heads as dimensions every head has d_k = 1 and two cells, however many keys:

    >>> compare_budgets(4, 100, [4])[0].max_cells, compare_budgets(4, 100, [4])[0].published
    (16, 100000000)
    """
    d, n = count("model_dim", model_dim, 1), count("n_keys", n_keys, 1)
    rows = []
    for heads in counts("head_counts", head_counts, 1):
        n_parameters = attention_parameters(d, heads)
        largest = max_joint_cells([n] * heads, d, affine, key_dims=[d // heads] * heads)
        rows.append(Budget(heads, d // heads, n_parameters, largest, as_published.multi_head_vertices(n, heads, d)))
    return tuple(rows)

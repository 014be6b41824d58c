"""Compiled max-plus loops; each equals its plain twin (``tests/oracles/kernel_twins.py``) bit for bit.

The maximum is idempotent, so tails need no branches: a row or an inner index that does not fill its
group is simply repeated. The comparison is written ``t if t > s else s``, which is one machine
instruction and, with NaN refused beforehand, exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.compiling import kernel

Matrix = NDArray[Any]

# A (256, 256) panel of float64 is half a megabyte: it stays in a core's second-level cache while every
# row of the left factor passes over it.
_INNER = 256
_WIDTH = 256


@kernel
def _update_two_rows(left, panel, best, row, next_row, start):  # type: ignore[no-untyped-def]
    inner, width = panel.shape
    last = inner - 1
    for k in range(0, inner, 4):
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        a0, a1, a2, a3 = (
            left[row, start + k], left[row, start + k1], left[row, start + k2], left[row, start + k3],
        )  # fmt: skip
        b0, b1, b2, b3 = (
            left[next_row, start + k], left[next_row, start + k1],
            left[next_row, start + k2], left[next_row, start + k3],
        )  # fmt: skip
        for j in range(width):
            x0, x1, x2, x3 = panel[k, j], panel[k1, j], panel[k2, j], panel[k3, j]
            s = best[0, j]
            t = a0 + x0
            s = t if t > s else s
            t = a1 + x1
            s = t if t > s else s
            t = a2 + x2
            s = t if t > s else s
            t = a3 + x3
            best[0, j] = t if t > s else s
            s = best[1, j]
            t = b0 + x0
            s = t if t > s else s
            t = b1 + x1
            s = t if t > s else s
            t = b2 + x2
            s = t if t > s else s
            t = b3 + x3
            best[1, j] = t if t > s else s


@kernel
def matmul_kernel(left, right, result):  # type: ignore[no-untyped-def]
    """Raise ``result`` to ``max_k left[i, k] + right[k, j]`` where that is larger; C-contiguous arrays."""
    n, inner = left.shape
    width = right.shape[1]
    for j0 in range(0, width, _WIDTH):
        j1 = min(width, j0 + _WIDTH)
        best = np.empty((2, j1 - j0), result.dtype)
        for k0 in range(0, inner, _INNER):
            panel = right[k0 : min(inner, k0 + _INNER), j0:j1].copy()
            for i in range(0, n, 2):
                i1 = min(i + 1, n - 1)
                best[0] = result[i, j0:j1]
                best[1] = result[i1, j0:j1]
                _update_two_rows(left, panel, best, i, i1, k0)
                result[i, j0:j1] = best[0]
                result[i1, j0:j1] = best[1]


@kernel
def _update_row_and_winners(left, panel, best, winners, numbers, row, start):  # type: ignore[no-untyped-def]
    inner, width = panel.shape
    last = inner - 1
    for k in range(0, inner, 2):
        k1 = min(k + 1, last)
        a0, a1 = left[row, start + k], left[row, start + k1]
        n0, n1 = numbers[start + k], numbers[start + k1]
        for j in range(width):
            s = best[j]
            w = winners[j]
            t = a0 + panel[k, j]
            w = n0 if t > s else w  # strict, in increasing k: ties stay with the lowest index
            s = t if t > s else s
            t = a1 + panel[k1, j]
            w = n1 if t > s else w
            s = t if t > s else s
            best[j] = s
            winners[j] = w


@kernel
def matmul_argmax_kernel(left, right, result, winners, numbers):  # type: ignore[no-untyped-def]
    """As ``matmul_kernel``, and ``winners[i, j]`` is the lowest ``k`` that attains the maximum.

    ``numbers`` is ``0, 1, 2, ...`` in the type of ``winners``, which is as wide as a matrix entry so that
    both fill the same vector registers.
    """
    n, inner = left.shape
    width = right.shape[1]
    for j0 in range(0, width, _WIDTH):
        j1 = min(width, j0 + _WIDTH)
        best = np.empty(j1 - j0, result.dtype)
        chosen = np.empty(j1 - j0, winners.dtype)
        for k0 in range(0, inner, _INNER):
            panel = right[k0 : min(inner, k0 + _INNER), j0:j1].copy()
            for i in range(n):
                best[:] = result[i, j0:j1]
                chosen[:] = winners[i, j0:j1]
                _update_row_and_winners(left, panel, best, chosen, numbers, i, k0)
                result[i, j0:j1] = best
                winners[i, j0:j1] = chosen


@kernel
def closure_kernel(paths, doubt):  # type: ignore[no-untyped-def]
    """Best path weights in place (Floyd and Warshall); False as soon as a closed walk outweighs ``doubt``."""
    n = paths.shape[0]
    for middle in range(n):
        for i in range(n):
            head = paths[i, middle]
            for j in range(n):
                t = head + paths[middle, j]
                paths[i, j] = t if t > paths[i, j] else paths[i, j]
        for i in range(n):
            if paths[i, i] > doubt:
                return False
    return True

"""The compiled max-plus product against one numpy pass per row, in one run on one thread.

    python benchmarks/bench_maxplus.py [--size full|small]

Prints time, ratio and the answer's size for each type, and fails where the full size takes more than a
quarter of the row loop's time or where the two answers differ. The small size checks the answers only:
its times are too short to judge.
"""

import os

# Before numpy loads: the row loop's one thread is what the claim is measured against.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from hardmax.tropical import maxplus_matmul

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles.kernel_twins import matmul_argmax_plain, matmul_plain

SIZES = {"full": 1024, "small": 96}
TARGET = 0.25


def _best(function, *operands, repeats):
    """The least wall time of a few calls, and the answer."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        answer = function(*operands)
        best = min(best, time.perf_counter() - start)
    return best, answer


def _with_argmax(left, right):
    return maxplus_matmul(left, right, return_argmax=True)


def bench_product(n, dtype, rng):
    """Product alone: times of ours and of the row loop, and whether the answers are equal."""
    left, right = (rng.integers(-1000, 1000, (n, n)).astype(dtype) for _ in range(2))
    maxplus_matmul(left[:4], right)  # compiles, or reads the cache
    ours, product = _best(maxplus_matmul, left, right, repeats=5)
    loop, expected = _best(matmul_plain, left, right, repeats=3)
    return ours, loop, bool((product == expected).all())


def bench_product_with_argmax(n, dtype, rng):
    """Product and winners: times of ours and of the row loop, and whether the answers are equal."""
    left, right = (rng.integers(-1000, 1000, (n, n)).astype(dtype) for _ in range(2))
    _with_argmax(left[:4], right)
    ours, (product, winners) = _best(_with_argmax, left, right, repeats=3)
    loop, (expected, expected_winners) = _best(matmul_argmax_plain, left, right, repeats=1)
    return ours, loop, bool((product == expected).all() and (winners == expected_winners).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    n = SIZES[parser.parse_args().size]
    rng = np.random.default_rng(0)
    failures = []
    print(f"max-plus product, {n} x {n} x {n}, one thread")
    for bench, is_judged in ((bench_product, True), (bench_product_with_argmax, False)):
        for dtype in (np.float32, np.float64, np.int64):
            ours, loop, is_equal = bench(n, dtype, rng)
            name = f"{bench.__name__.removeprefix('bench_')} {np.dtype(dtype).name}"
            print(
                f"{name:32s} ours {ours:8.4f} s   numpy rows {loop:8.4f} s   ratio {ours / loop:.3f} "
                f"({loop / ours:.1f}x)   {n * n} entries, {'equal' if is_equal else 'DIFFERENT'}"
            )
            if not is_equal:
                failures.append(f"{name}: the answers differ")
            if n == SIZES["full"] and is_judged and ours > TARGET * loop:
                failures.append(f"{name}: ratio {ours / loop:.3f}, expected at most {TARGET}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

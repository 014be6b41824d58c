"""Certifying rows of scores against the plain numpy softmax of the same rows, in one run on one thread.

    python benchmarks/bench_stability.py [--size full|small]

Prints time a row, ratio and the answer's size, and fails where the full size has less than half of the softmax's
throughput, where a bound fails, or where memory grows with the stream. The full size streams 10^7 rows of 512 float32
scores (20 GB, made block by block); the small size checks the answers only: its times are too short to judge.
"""

import os

# Before numpy loads: one thread on both sides.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import sys
import time

import numpy as np

from hardmax.measure import stability

SIZES = {"full": 10_000_000, "small": 20_000}
N_KEYS = 512
BLOCK = 4096
TARGET = 0.5
MOST_MEMORY = 1 << 30  # bytes: the interpreter, the compiler and a few blocks


def _softmax(scores, temperature):
    """The softmax as one writes it in numpy, in place where it can be."""
    weights = scores / np.float32(temperature)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _blocks(rng, count):
    """Different blocks, some with masked keys; they are reused in turn so that making them costs nothing."""
    blocks = [(rng.standard_normal((BLOCK, N_KEYS)) * spread).astype(np.float32) for spread in (1, 3, 10)]
    blocks[1][:, 400:] = -np.inf
    for index in range(-(-count // BLOCK)):
        yield blocks[index % len(blocks)][: min(BLOCK, count - index * BLOCK)]


def bench_certify_beside_softmax(rows, rng):
    """Seconds a row of certify and of softmax, block by block in turn, so that both see the same machine."""
    stability.certify(np.zeros((4, N_KEYS), np.float32), 1.0)  # compiles, or reads the cache
    ours = loop = 0.0
    holds = True
    for block in _blocks(rng, min(rows, 400_000)):
        start = time.perf_counter()
        _softmax(block, 1.0)
        middle = time.perf_counter()
        certificate = stability.certify(block, 1.0)
        ours += time.perf_counter() - middle
        loop += middle - start
        holds &= certificate.holds
    return ours / min(rows, 400_000), loop / min(rows, 400_000), holds


def bench_stream(rows, rng):
    """Seconds a row of a whole stream, its summary, and the most memory ever held."""
    start = time.perf_counter()
    summary = stability.certify_stream(_blocks(rng, rows), 1.0)
    seconds = time.perf_counter() - start
    return seconds / rows, summary, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    rows = SIZES[parser.parse_args().size]
    rng = np.random.default_rng(0)
    failures = []
    ours, loop, holds = bench_certify_beside_softmax(rows, rng)
    print(
        f"certify   {1e6 * ours:7.3f} us a row   numpy softmax {1e6 * loop:7.3f} us   throughput {loop / ours:.2f} "
        f"of it   {N_KEYS} float32 keys, bounds {'hold' if holds else 'FAIL'}"
    )
    if not holds:
        failures.append("a measured value exceeds its bound")
    seconds, summary, memory = bench_stream(rows, rng)
    print(
        f"stream    {1e6 * seconds:7.3f} us a row   {summary.n_rows} rows, {summary.n_vacuous} vacuous, "
        f"tightest {summary.tightest_hessian:.6f}   {memory / 2**20:.0f} MiB at most"
    )
    if not summary.holds or summary.n_rows != rows:
        failures.append("the stream's summary is wrong")
    if memory > MOST_MEMORY:
        failures.append(f"{memory / 2**20:.0f} MiB, expected at most {MOST_MEMORY / 2**20:.0f}")
    if rows == SIZES["full"] and loop < TARGET * ours:
        failures.append(f"throughput {loop / ours:.2f} of numpy's softmax, expected at least {TARGET}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

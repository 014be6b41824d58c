"""Sampling cells against numpy with packed codes, on the same network in one run on one thread.

    python benchmarks/bench_sampling.py [--size full|small]

The network is a transformer with d=2, L=2, N=5, d_ff=8 (one head over fixed keys, residual, ReLU layer, residual) on
[-1,1]^2. The numpy side draws float64 points, writes the forward pass as array expressions, packs labels into uint64
codes and takes np.unique. Times are processor time, medians of five. Fails where the full size (2e6 samples) is less
than 20 times as fast, or where the two label the same points differently; the small size checks the labels only.
"""

import os

# Before numpy loads: one thread on both sides.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time

import numpy as np

import hardmax as hm

SIZES = {"full": 2_000_000, "small": 20_000}
DIM, DEPTH, N_KEYS, WIDTH = 2, 2, 5, 8
TARGET = 20


def _weights(rng):
    """Per block: keys, values, query, and the two matrices and biases of the ReLU layer."""
    shapes = [(N_KEYS, DIM), (N_KEYS, DIM), (DIM, DIM), (WIDTH, DIM), (WIDTH,), (DIM, WIDTH), (DIM,)]
    return [[rng.standard_normal(shape) for shape in shapes] for _ in range(DEPTH)]


def _network(blocks):
    layers = []
    for keys, values, query, up, up_bias, down, down_bias in blocks:
        layers.append(hm.Residual(hm.Attention([hm.Head(keys, values, query)])))
        layers.append(hm.Residual(hm.Affine(up, up_bias), hm.ReLU(), hm.Affine(down, down_bias)))
    return hm.Network(layers, DIM)


def _numpy_codes(blocks, x):
    """The forward pass as one writes it in numpy, with labels packed into one uint64 a point."""
    code = np.zeros(len(x), dtype=np.uint64)
    for keys, values, query, up, up_bias, down, down_bias in blocks:
        winner = np.argmax((x @ query.T) @ keys.T, axis=1)
        x = x + values[winner]
        code = code * np.uint64(N_KEYS) + winner.astype(np.uint64)
        hidden = x @ up.T + up_bias
        bits = (hidden > 0).astype(np.uint64)
        code = (code << np.uint64(WIDTH)) | (bits << np.arange(WIDTH, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        x = x + np.maximum(hidden, 0) @ down.T + down_bias
    return code


def bench_numpy(blocks, n_samples, rng):
    start = time.process_time()
    distinct = len(np.unique(_numpy_codes(blocks, rng.uniform(-1, 1, (n_samples, DIM)))))
    return time.process_time() - start, distinct


def bench_sample_cells(net, n_samples, rng):
    start = time.process_time()
    found = hm.sample_cells(net, hm.Box([-1] * DIM, [1] * DIM), n_samples, rng=rng)
    return time.process_time() - start, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    n_samples = SIZES[parser.parse_args().size]
    blocks = _weights(np.random.default_rng(0))
    net = _network(blocks)
    failures = []
    points = np.random.default_rng(1).uniform(-1, 1, (20_000, DIM))
    theirs = np.unique(_numpy_codes(blocks, points), return_inverse=True)[1]
    ours = np.unique(net.labels(points), axis=0, return_inverse=True)[1]
    if len(set(zip(theirs.tolist(), ours.reshape(-1).tolist(), strict=True))) != theirs.max() + 1:
        failures.append("the numpy side labels points differently")
    bench_sample_cells(net, 1000, np.random.default_rng(2))  # compiles, or reads the cache
    runs = [
        (
            bench_numpy(blocks, n_samples, np.random.default_rng(seed)),
            bench_sample_cells(net, n_samples, np.random.default_rng(seed)),
        )
        for seed in range(5)
    ]
    slow, fast = (sorted(run[side][0] for run in runs)[2] for side in (0, 1))
    found, seen = runs[0][1][1], runs[0][0][1]
    exact = int(hm.count_cells(net, hm.Box([-1] * DIM, [1] * DIM)))
    print(
        f"sample_cells {1e3 * fast:8.1f} ms   numpy {1e3 * slow:8.1f} ms   {slow / fast:5.1f} times   {n_samples} "
        f"samples: {found.n_distinct} cells (numpy {seen}, exact {exact}), coverage {found.coverage:.6f}, estimate "
        f"{found.estimate:.1f} in [{found.interval[0]:.1f}, {found.interval[1]:.1f}]"
    )
    if not 0 < found.n_distinct <= exact:
        failures.append(f"{found.n_distinct} distinct labels, but there are {exact} cells")
    if n_samples == SIZES["full"] and slow < TARGET * fast:
        failures.append(f"{slow / fast:.1f} times numpy, expected at least {TARGET}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""The plane engine against dense forward passes at the complex's vertices, in one run on one thread.

    python benchmarks/bench_plane.py [--size full|small]

For each network: cells, seconds of float and certified enumeration (polygons and affine maps kept), and both
as multiples of one float64 forward pass of the network at the vertices of the complex. Then the growth of the
time per cell with depth on grid transformers, and what a second thread gains. The full size fails where float
takes more than 3 forward passes on networks c and d, certified more than 6, or depth 4 more than 1.5 times
the time per cell of depth 3. The small size checks counts only: its times are too short to judge.
"""

import os

# Before numpy loads: one thread is what the ratios are measured with.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import hardmax as hm

NETS = Path(__file__).resolve().parents[2] / "shared" / "nets"
WIDTHS = {"a": (2, 16, 16, 1), "b": (2, 32, 32, 32, 1), "c": (2, 64, 64, 64, 1), "d": (2, 256, 256, 1)}
FLOAT_TARGET, CERTIFIED_TARGET, GROWTH_TARGET = 3.0, 6.0, 1.5


def _network(name):
    """The shared network of that name, or one of the same widths and initialisation drawn here."""
    found = sorted(NETS.glob(f"{name}_*_pt.npz"))
    if found:
        return hm.read(found[0]), found[0].name
    rng = np.random.default_rng(0)
    layers = []
    for before, after in zip(WIDTHS[name][:-1], WIDTHS[name][1:], strict=True):
        bound = before**-0.5
        weight, bias = rng.uniform(-bound, bound, (after, before)), rng.uniform(-bound, bound, after)
        layers += [hm.Affine(weight.astype(np.float32), bias.astype(np.float32)), hm.ReLU()]
    return hm.Network(layers[:-1], WIDTHS[name][0]), f"{name}, drawn here"


def _best(function, repeats):
    best, answer = np.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        answer = function()
        best = min(best, time.perf_counter() - start)
    return best, answer


def _grid_transformer(n_keys, folds, depth):
    """Theorem V.7's network on the square, two heads of ``n_keys`` keys and ``folds`` ReLUs a coordinate."""
    centres = (np.arange(n_keys) + 0.5) / n_keys
    keys = np.stack([centres, -(centres**2) / 2], axis=1)
    heads = [
        hm.Head(keys, -(np.arange(n_keys)[:, None] + 0.0) / n_keys, [[axis == 0, axis == 1], [0, 0]], [0.0, 1.0])
        for axis in (0, 1)
    ]
    # after the residual each coordinate lies in [0, 1 / n_keys]; a zigzag of `folds` pieces maps it onto [0, 1]
    knots = np.arange(folds) / (n_keys * folds)
    slope = n_keys * folds
    weights = np.array([slope] + [2 * slope * (-1) ** k for k in range(1, folds)], dtype=float)
    rows, out = np.zeros((2 * folds, 2)), np.zeros((2, 2 * folds))
    for axis in (0, 1):
        rows[axis * folds : (axis + 1) * folds, axis] = 1.0
        out[axis, axis * folds : (axis + 1) * folds] = weights
    block = [hm.Residual(hm.Attention(heads)), hm.Affine(rows, -np.tile(knots, 2)), hm.ReLU(), hm.Affine(out)]
    return hm.Network(block * depth, 2)


def bench_forward_ratio(name, repeats):
    """Cells, seconds in float and certified mode, and seconds of a forward pass at the vertices."""
    net, source = _network(name)
    box = hm.Box([-1, -1], [1, 1])
    hm.enumerate_cells(net, box), hm.enumerate_cells(net, box, exactness="float")  # compile, or read the cache
    fast, estimate = _best(lambda: hm.enumerate_cells(net, box, exactness="float"), repeats)
    sure, cells = _best(lambda: hm.enumerate_cells(net, box), repeats)
    corners = np.unique(np.round(cells.pieces.vertices, 10), axis=0)
    forward, _ = _best(lambda: net(corners), repeats)
    assert estimate.n_cells == cells.n_cells, (estimate.n_cells, cells.n_cells)
    return source, cells.n_cells, len(corners), fast, sure, forward


def bench_growth(depth, repeats):
    """Cells of a grid transformer and seconds to count them."""
    net = _grid_transformer(4, 2, depth)
    seconds, count = _best(lambda: hm.count_cells(net, hm.Box([0, 0], [1, 1])), repeats)
    assert count == 8 ** (2 * depth), (count, depth)
    return int(count), seconds


def bench_two_workers(name, repeats):
    """Seconds with one thread and with two."""
    net, _ = _network(name)
    box = hm.Box([-1, -1], [1, 1])
    times = []
    for workers in (1, 2):
        times.append(_best(lambda workers=workers: hm.enumerate_cells(net, box, workers=workers), repeats)[0])
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    size = parser.parse_args().size
    full = size == "full"
    failed = False
    print(f"{'network':28}{'cells':>8}{'vertices':>10}{'float s':>10}{'certified':>10}{'forward':>10}{'ratios':>14}")
    for name in "abcd" if full else "ab":
        source, cells, corners, fast, sure, forward = bench_forward_ratio(name, 7 if full else 1)
        ratios = fast / forward, sure / forward
        print(f"{source:28}{cells:>8}{corners:>10}{fast:>10.4f}{sure:>10.4f}{forward:>10.4f}"
              f"{ratios[0]:>7.2f}{ratios[1]:>7.2f}")  # fmt: skip
        failed |= full and name in "cd" and (ratios[0] > FLOAT_TARGET or ratios[1] > CERTIFIED_TARGET)
    per_cell = {}
    for depth in (2, 3, 4) if full else (1, 2):
        count, seconds = bench_growth(depth, 1 if depth == 4 else 3)
        per_cell[depth] = seconds / count
        print(f"grid transformer, depth {depth}: {count} cells, {seconds:.3f} s, {1e6 * per_cell[depth]:.3f} us a cell")
    failed |= full and per_cell[4] > GROWTH_TARGET * per_cell[3]
    if full:
        for name in "cd":
            one, two = bench_two_workers(name, 9)
            print(f"network {name}: {one:.4f} s with one thread, {two:.4f} s with two, {one / two:.2f} times as fast")
    if failed:
        sys.exit("a ratio is above its target")


if __name__ == "__main__":
    main()

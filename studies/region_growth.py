"""Does attention alone gain regions with depth as feed-forward layers do, at equal parameters?

    python studies/region_growth.py [--seeds 40] [--out studies/region_growth.csv]

The maxout paper shows that transformers with feed-forward layers have exponentially many regions in depth and
leaves open what attention does without them. Three comparisons, each at equal parameters, all counts by the
exact engine (certified; no sampling).

1. ``built``: networks by construction on [0, 1]^d. A key of a head with constant keys costs 2 d + 1 numbers (its
   score's slope and offset, and its value); a ReLU unit costs as many (two rows and a bias). So d heads of n keys
   face d n ReLUs.
2. ``random plane``: random residual networks on [-2, 2]^2 of model width 2, layers of n keys (as one head, or as
   two heads of half the keys) against layers of n ReLUs: equal parameters per layer by the same count.
3. ``random sequence``: self-attention over whole sequences of 4 tokens of width 4, where keys and values move
   with the input, on a random segment of token space: 4 d^2 numbers a layer against a token-wise
   feed-forward layer of 7 units (2 * 4 * 7 + 7 + 4 = 67 numbers against 64).

The table has one row a network family and depth: the median, least and largest number of regions over the seeds.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from pathlib import Path
from statistics import median

import numpy as np

import hardmax as hm
from hardmax.constructions.sawtooth import digit_transformer, sawtooth_transformer
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.library import affine_head

COLUMNS = ("part", "family", "depth", "parameters per layer", "seeds", "median regions", "least", "largest")


def rounded(values):
    """Multiples of 1/1024: sums and products stay exact, coincidences stay rare."""
    return np.round(np.asarray(values) * 1024) / 1024


def folding_relu_network(n, dim, depth):
    """The zigzag of n pieces in every coordinate, again and again: dim * n ReLUs a layer."""
    rows, out = np.kron(np.eye(dim), np.full((n, 1), float(n))), np.zeros((dim, dim * n))
    for axis in range(dim):
        out[axis, axis * n : (axis + 1) * n] = [1.0 if m == 0 else 2.0 * (-1) ** m for m in range(n)]
    block = [hm.Affine(rows, -np.tile(np.arange(float(n)), dim)), hm.ReLU(), hm.Affine(out)]
    return hm.Network(block * depth, dim)


def built(rows):
    """Part 1: what constructions attain."""
    for dim, n, depths in ((1, 2, range(1, 9)), (1, 4, range(1, 6)), (2, 2, range(1, 5)), (2, 3, range(1, 4))):
        domain = hm.Segment([0.0], [1.0]) if dim == 1 else hm.Box([0.0] * dim, [1.0] * dim)
        cost = dim * n * (2 * dim + 1)
        for depth in depths:
            for family, net in (
                (f"attention only, constant keys, {dim} heads of {n} keys", digit_transformer(n, dim, depth)),
                (f"feed-forward only, {dim * n} ReLUs on R^{dim}", folding_relu_network(n, dim, depth)),
            ):
                count = hm.enumerate_cells(net, domain).n_regions
                rows.append(("built", family, depth, cost, 1, count, count, count))
    for depth in range(1, 9):
        compiled = sawtooth_transformer(2, depth)
        count = hm.enumerate_cells(compiled.on_inputs, hm.Segment([0.0], [1.0])).n_regions
        cost = sawtooth_transformer(2, 2).complexity.parameters - sawtooth_transformer(2, 1).complexity.parameters
        rows.append(("built", "attention only, variant D of the tent map", depth, cost, 1, count, count, count))


def random_layers(kind, n, depth, rng):
    """Part 2's residual layers on the plane."""
    layers = []
    for _ in range(depth):
        if kind == "relu":
            first = hm.Affine(rounded(rng.normal(size=(n, 2)) / 2**0.5), rounded(rng.normal(size=n)))
            layers.append(hm.Residual(first, hm.ReLU(), hm.Affine(rounded(rng.normal(size=(2, n)) / n**0.5))))
            continue
        n_heads = 1 if kind == "one head" else 2
        heads = [
            affine_head(
                rounded(rng.normal(size=(n // n_heads, 2))),
                rounded(rng.normal(size=n // n_heads)),
                rounded(rng.normal(size=(n // n_heads, 2))),
            )
            for _ in range(n_heads)
        ]
        mix = None if n_heads == 1 else np.hstack([np.eye(2)] * 2)
        layers.append(hm.Residual(hm.Attention(heads, mix)))
    return layers


def random_plane(rows, seeds):
    """Part 2: what random networks have."""
    names = {"one head": "attention only, 1 head", "two heads": "attention only, 2 heads", "relu": "feed-forward only"}
    for n in (4, 8):
        for kind, family in names.items():
            for depth in range(1, 8):
                counts = []
                for seed in range(seeds):
                    net = hm.Network(random_layers(kind, n, depth, np.random.default_rng(seed)), 2)
                    counts.append(hm.enumerate_cells(net, hm.Box([-2, -2], [2, 2])).n_regions)
                what = f"{family}, {n} {'ReLUs' if kind == 'relu' else 'keys'}"
                rows.append(("random plane", what, depth, 5 * n, seeds, median(counts), min(counts), max(counts)))


def sequence_network(kind, depth, rng, n_tokens=4, d=4, n_heads=2, width=7):
    """Part 3: residual self-attention, or token-wise ReLU layers, on a sequence."""
    builder = GraphBuilder((n_tokens, d))
    value = 0
    size = d // n_heads
    for _ in range(depth):
        if kind == "relu":
            first = op.Linear(
                op.frozen(rounded(rng.normal(size=(width, d)) / d**0.5)), op.frozen(rounded(rng.normal(size=width)))
            )
            inner = builder.add(op.Relu(), builder.add(first, value))
            change = builder.add(op.Linear(op.frozen(rounded(rng.normal(size=(d, width)) / width**0.5))), inner)
        else:
            parts = []
            for order in ((1, 0, 2), (1, 2, 0), (1, 0, 2)):  # queries, keys, values
                weight = op.Linear(op.frozen(rounded(rng.normal(size=(d, d)) / d**0.5)))
                split = builder.add(op.Reshape((n_tokens, n_heads, size)), builder.add(weight, value))
                parts.append(builder.add(op.Transpose(order), split))
            weights = builder.add(op.Hardmax(), builder.add(op.MatMul(), parts[0], parts[1]))
            mixed = builder.add(op.Transpose((1, 0, 2)), builder.add(op.MatMul(), weights, parts[2]))
            output = op.Linear(op.frozen(rounded(rng.normal(size=(d, d)) / d**0.5)))
            change = builder.add(output, builder.add(op.Reshape((n_tokens, d)), mixed))
        value = builder.add(op.Add(), value, change)
    return hm.Network.from_graph(builder.build(value))


def random_sequence(rows, seeds):
    """Part 3: keys that move with the input."""
    for kind, family, cost in (
        ("attention", "self-attention only, 2 heads", 64),
        ("relu", "token-wise feed-forward only, 7 ReLUs", 67),
    ):
        for depth in range(1, 8):
            counts = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                ends = rounded(2 * rng.normal(size=(2, 4, 4)))
                net = sequence_network(kind, depth, rng)
                counts.append(hm.enumerate_cells(net, hm.Segment(ends[0], ends[1])).n_regions)
            rows.append(("random sequence", family, depth, cost, seeds, median(counts), min(counts), max(counts)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    rows = []
    built(rows)
    random_plane(rows, arguments.seeds)
    random_sequence(rows, arguments.seeds)
    with arguments.out.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    for row in rows:
        print(f"{row[0]:16}{row[1]:52}depth {row[2]}{row[3]:>6} a layer{row[5]:>10} regions [{row[6]}, {row[7]}]")


if __name__ == "__main__":
    main()

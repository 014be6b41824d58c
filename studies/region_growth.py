"""Does attention alone gain regions with depth as feed-forward layers do, at equal parameters?

    hardmax sweep studies/region_growth.toml --out build/region_growth
    python studies/region_growth.py build/region_growth/table.parquet [--out studies/region_growth.csv]

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

import argparse
import csv
from pathlib import Path
from statistics import median

COLUMNS = ("part", "family", "depth", "parameters per layer", "seeds", "median regions", "least", "largest")

NAMES = {
    "digits": ("built", "attention only, constant keys, {dim} heads of {keys} keys"),
    "zigzag": ("built", "feed-forward only, {units} ReLUs on R^{dim}"),
    "tent": ("built", "attention only, variant D of the tent map"),
    "residual attention": ("random plane", "attention only, {heads} head{s}, {keys} keys"),
    "residual relu": ("random plane", "feed-forward only, {width} ReLUs"),
    "sequence attention": ("random sequence", "self-attention only, 2 heads"),
    "sequence relu": ("random sequence", "token-wise feed-forward only, {width} ReLUs"),
}


def summary(columns):
    """The study's table from the columns of the sweep."""
    groups = {}
    for row in zip(*columns.values(), strict=True):
        point = dict(zip(columns, row, strict=True))
        part, text = NAMES[point["family"]]
        units, plural = (point["dim"] or 0) * (point["width"] or 0), "" if point["heads"] == 1 else "s"
        family = text.format(**{**point, "units": units, "s": plural})
        groups.setdefault((part, family, point["depth"], point["parameters"]), []).append(point["n_regions"])
    return [(*key, len(n), median(n), min(n), max(n)) for key, n in groups.items()]


def main():
    import pyarrow.parquet

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path, help="what `hardmax sweep` wrote")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    rows = summary(pyarrow.parquet.read_table(arguments.table).to_pydict())
    with arguments.out.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    for row in rows:
        print(f"{row[0]:16}{row[1]:52}depth {row[2]}{row[3]:>6} a layer{row[5]:>10} regions [{row[6]}, {row[7]}]")


if __name__ == "__main__":
    main()

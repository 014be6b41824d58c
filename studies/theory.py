"""The theory's numbers, measured: mean counts, soft networks, deep maxima, variants of attention.

    python studies/theory.py [--out studies/theory.csv] [--draw]

One table, one row a measurement: part, case, what the theory says, what was measured, and its standard error where it
is a mean. ``--draw`` redraws from the table.

1. ``mean cells``: 30 triples (keys, heads, dimension), bias-free and affine in turn, 300 draws of Gaussian heads each,
   against ``hm.bounds.expected_joint_cells``.
2. ``soft``: the model that ships with the package, 100 lookups: how many times every winner is proved to keep half of
   the weight (``hm.stability.network``), and how many times that is so in fact, by temperature.
3. ``deep``: cells of ``hm.constructions.nested_transformer`` against ``hm.bounds.line_maximum`` and the product bound.
4. ``order``, ``sparsemax``: cells of Gaussian keys in the plane by order and by temperature, mean of 20 draws.
5. ``arcs``: the most arcs of a head behind LayerNorm in three dimensions among 200 draws, against 2 N - 2.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.networks.lookup import lookup_examples

COLUMNS = ("part", "case", "theory", "measured", "standard error")
TRIPLES = [(n, h, d) for d in (2, 3, 4) for h in (1, 2, 3) for n in (3, 5, 8)] + [(2, 5, 3), (4, 4, 2), (12, 2, 3)]
TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


def mean_cells(draws=300):
    rng = np.random.default_rng(0)
    for number, (n, h, d) in enumerate(TRIPLES):
        affine = number % 2 == 1
        counts = []
        for _ in range(draws):
            keys = rng.standard_normal((h, n, d))
            heads = [(part, rng.standard_normal(n) if affine else None) for part in keys]
            counts.append(len(hm.joint_cells(heads)))
        theory = float(hm.bounds.expected_joint_cells(n, h, d, affine))
        error = float(np.std(counts, ddof=1) / np.sqrt(draws))
        kind = "affine" if affine else "bias-free"
        yield "mean cells", f"{n} {h} {d} {kind}", f"{theory:.6g}", f"{np.mean(counts):.6g}", f"{error:.3g}"


def soft(seed=0):
    net = hm.builtin("lookup")
    inputs = lookup_examples(100, rng=np.random.default_rng(seed)).inputs
    for temperature in TEMPERATURES:
        proved = in_fact = 0
        for x in inputs:
            found = hm.stability.network(net, x, temperature)
            proved += found.holds and not found.is_vacuous
            in_fact += bool((np.abs(net(x, temperature=temperature) - net(x, temperature=0.0)) < 0.5).all())
        yield "soft", f"{temperature:g}", proved, in_fact, ""


def deep():
    for n, width in ((2, 1), (2, 2), (2, 3), (3, 1), (3, 3)):
        for depth in (1, 2, 3):
            net = hm.constructions.nested_transformer(n, width, depth)
            cells = int(hm.count_cells(net, hm.Space(1)))
            bound = hm.bounds.line_maximum([n], width, depth)
            product = hm.bounds.cells_upper([n], 1, width, depth, affine=True)
            yield "deep", f"{n} {width} {depth} (product bound {product})", bound, cells, ""


def variants():
    rng = np.random.default_rng(1)
    for n in (4, 6, 8):
        keys, biases = rng.standard_normal((20, n, 2)), rng.standard_normal((20, n))
        diagrams = [hm.power_diagram(*pair) for pair in zip(keys, biases, strict=True)]
        for k in range(1, n):
            counts = [diagram.order(k).n_cells for diagram in diagrams]
            yield "order", f"{n} {k}", "", f"{np.mean(counts):.4g}", f"{np.std(counts, ddof=1) / 20**0.5:.2g}"
        for temperature in (0.01, 0.1, 1.0, 10.0, 100.0):
            counts = [diagram.sparsemax(temperature).n_cells for diagram in diagrams[: 20 if n < 8 else 5]]
            yield "sparsemax", f"{n} {temperature:g}", "", f"{np.mean(counts):.4g}", ""
    for n in (2, 3, 4, 5, 6):
        most = 0
        for _ in range(200):
            diagram = hm.power_diagram(rng.standard_normal((n, 3)), rng.standard_normal(n))
            most = max(most, diagram.normalised("layer").n_arcs)
        yield "arcs", n, 2 * n - 2, most, ""


def draw(rows, file):
    """Four panels to a .png and an .svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "hardmax"
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 7.6), layout="constrained")
    of = {part: [row for row in rows if row["part"] == part] for part in {row["part"] for row in rows}}

    ax, means = axes[0, 0], of["mean cells"]
    z = [(float(r["measured"]) - float(r["theory"])) / (float(r["standard error"]) or 1.0) for r in means]
    ax.axhspan(-3, 3, color="#4477aa", alpha=0.1)
    ax.semilogx([float(r["theory"]) for r in means], z, "o", color="#4477aa")
    ax.set(
        title="mean joint cells: 30 triples", xlabel="closed form", ylabel="(measured - closed form) / standard error"
    )

    ax = axes[0, 1]
    heat = [float(r["case"]) for r in of["soft"]]
    ax.semilogx(
        heat, [int(r["measured"]) for r in of["soft"]], "s-", color="#ccbb44", label="outputs within 1/2, measured"
    )
    ax.semilogx(heat, [int(r["theory"]) for r in of["soft"]], "o-", color="#228833", label="every winner proved")
    ax.set(title="shipped model beside its skeleton", xlabel="temperature (1: as trained)", ylabel="of 100 lookups")
    ax.legend(fontsize=8)

    ax, keys = axes[1, 0], {4: "#4477aa", 6: "#ee6677", 8: "#228833"}
    for n, colour in keys.items():
        chosen = [r for r in of["order"] if r["case"].startswith(f"{n} ")]
        ax.plot([int(r["case"].split()[1]) for r in chosen], [float(r["measured"]) for r in chosen], "o-", color=colour,
                label=f"{n} keys")  # fmt: skip
    ax.set(title="top-k attention in the plane: mean cells", xlabel="k", ylabel="cells")
    ax.legend(fontsize=8)

    ax = axes[1, 1]
    for n, colour in keys.items():
        chosen = [r for r in of["sparsemax"] if r["case"].startswith(f"{n} ")]
        ax.semilogx([float(r["case"].split()[1]) for r in chosen], [float(r["measured"]) for r in chosen], "o-",
                    color=colour, label=f"{n} keys")  # fmt: skip
    ax.set(title="sparsemax in the plane: mean cells", xlabel="temperature", ylabel="cells")
    ax.legend(fontsize=8)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
    for suffix in (".png", ".svg"):
        figure.savefig(file.with_suffix(suffix), dpi=110, metadata={"Date": None} if suffix == ".svg" else None)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--draw", action="store_true", help="draw from the table that is there")
    args = parser.parse_args()
    if not args.draw:
        with args.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for part in (deep, variants, mean_cells, soft):
                for row in part():
                    writer.writerow(row)
                    file.flush()
    with args.out.open() as file:
        draw(list(csv.DictReader(file)), args.out)


if __name__ == "__main__":
    main()

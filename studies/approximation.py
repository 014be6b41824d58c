"""How fast do transformers approximate: error against pieces, heads, layers and parameters, beside the known rates.

    python studies/approximation.py [--out studies/approximation.csv] [--draw]

Four families, all on [0, 1]^d and all compiled to transformers (``hm.approximate``, ``hm.maxout_to_transformer``):

1. ``smooth``: sin(2 x_1) ... sin(2 x_d) interpolated on a grid, as a difference of two maxima. Rate: pieces^(-2/d).
2. ``lipschitz``: a function of Lipschitz constant 1 (triangle waves) by cones. Rate: points^(-1/d), and the promise
   1 / (2 n), n points a coordinate, is the best that n^d values allow.
3. ``squares``: |x|^2 by layers that fold (``hm.constructions.squares_network``). Rate: 4^(-layers), proved d / 4^(L+1).
4. ``max-min``: the smooth function in the plane as a maximum of minima, whose heads grow with the pieces.

``error`` is the largest difference at 20,000 random points and at the middles of boxes, so a lower bound of the true
error; ``promised`` is proved. For the smaller transformers ``beta for 0.01`` is what ``temperature_for(0.01)`` proves
to be enough and ``beta measured`` the least at which 500 random points are within 0.01 of the hard network.
``--draw`` redraws from the table.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from pathlib import Path
from time import process_time

import numpy as np

import hardmax as hm

COLUMNS = ("family", "dim", "steps", "pieces", "heads", "layers", "tokens", "parameters", "nonzero", "promised",
           "error", "beta for 0.01", "beta measured", "seconds")  # fmt: skip
SIZES = {
    "smooth": [(1, (2, 4, 8, 16, 32, 64, 128)), (2, (1, 2, 4, 8, 16)), (3, (1, 2, 3, 4, 6)), (4, (1, 2, 3))],
    "lipschitz": [(1, (2, 4, 8, 16, 32, 64)), (2, (1, 2, 4, 8, 16)), (3, (1, 2, 3, 4, 6)), (4, (1, 2, 3, 4))],
    "squares": [(1, (1, 2, 3, 4, 5, 6)), (3, (1, 2, 3, 4, 5, 6))],
    "max-min": [(2, (2, 4, 6, 8, 10))],
}
MOST_TOKENS = 64  # of a transformer whose softmax is measured


def smooth(x):
    """Hessian entries: -4 f on the diagonal, 4 cos cos beside it, so the spectral norm is at most 4 d."""
    return np.sin(2 * x).prod(axis=1)


def waves(x):
    """Triangle waves of slope one, their mean: |f(x) - f(y)| <= |x - y|_inf."""
    return np.abs(np.mod(5 * x + 1, 2) - 1).mean(axis=1) / 5


def build(family, dim, size):
    """The maxout network, how many pieces, what is promised, and the target."""
    low, high = [0.0] * dim, [1.0] * dim
    if family == "squares":
        net = hm.constructions.squares_network(dim, size)
        return net, 2 ** (dim * size), dim / 4.0 ** (size + 1), lambda x: (x**2).sum(axis=1)
    if family == "lipschitz":
        f = hm.approximate(waves, low, high, 1 / (2 * size) * (1 + 1e-9), lipschitz=1.0)
        return f.network, len(f.points), f.promised, waves
    form = "max-min" if family == "max-min" else "difference"
    accuracy = 4.0 * dim * dim / size**2 / 8 * (1 + 1e-8)
    f = hm.approximate(smooth, low, high, accuracy, curvature=4.0 * dim, form=form)
    return f.network, len(f.triangles), f.promised, smooth


def measured_beta(compiled, x, error):
    """The least inverse temperature at which these points are within the error, by bisection."""
    hard = compiled(x)
    low, high = 2.0**-10, 2.0**20
    while high > low * 1.001:
        middle = float(np.sqrt(low * high))
        is_near = np.abs(compiled(x, temperature=1 / middle) - hard).max() <= error
        low, high = (low, middle) if is_near else (middle, high)
    return high


def row(family, dim, size):
    """One row of the table."""
    rng = np.random.default_rng(0)
    start = process_time()
    net, pieces, promised, target = build(family, dim, size)
    seconds = process_time() - start
    steps = 2**size if family == "squares" else size
    cell = rng.integers(0, steps, (2000, dim))
    points = np.vstack([rng.uniform(0, 1, (20_000, dim)), (cell + 0.5) / steps, cell / steps])
    error = max(float(np.abs(net(x)[:, 0] - target(x)).max()) for x in np.array_split(points, 48))
    compiled = hm.maxout_to_transformer(net, 1.0)
    sizes = compiled.complexity
    enough = least = ""
    if sizes.tokens <= MOST_TOKENS and sizes.heads <= MOST_TOKENS:
        enough = f"{1 / compiled.temperature_for(0.01):.4g}"
        least = f"{measured_beta(compiled, rng.uniform(0, 1, (500, dim)), 0.01):.4g}"
    return (family, dim, steps, pieces, sizes.heads, sizes.attention_sublayers, sizes.tokens, sizes.parameters,
            sizes.nonzero, f"{promised:.6g}", f"{error:.6g}", enough, least, f"{seconds:.2f}")  # fmt: skip


def slope(rows, family, dim, column):
    """The exponent of the error in a column, by least squares over the finer half of the sizes."""
    chosen = [r for r in rows if r["family"] == family and int(r["dim"]) == dim]
    chosen = chosen[len(chosen) // 3 :]
    x, y = (np.log([float(r[name]) for r in chosen]) for name in (column, "error"))
    return float(np.polyfit(x, y, 1)[0])


def draw(rows, file):
    """Four panels to a .png and an .svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "hardmax"
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 8), layout="constrained")
    colours = {1: "#4477aa", 2: "#ee6677", 3: "#228833", 4: "#aa3377"}

    def curve(ax, family, dim, column, quantity="error", **style):
        chosen = [r for r in rows if r["family"] == family and int(r["dim"]) == dim and r[quantity]]
        x, y = ([float(r[name]) for r in chosen] for name in (column, quantity))
        ax.loglog(x, y, color=colours[dim], **style)
        return np.array(x), np.array(y)

    panels = (("smooth", "pieces", 2, "smooth target, two maxima: error against pieces"),
              ("lipschitz", "pieces", 1, "Lipschitz target, cones: error against points"))  # fmt: skip
    for ax, (family, column, order, title) in zip(axes[0], panels, strict=True):
        for dim in (1, 2, 3, 4):
            curve(ax, family, dim, column, marker="o", label=f"d = {dim}, measured")
            curve(ax, family, dim, column, "promised", linestyle="--", linewidth=1)
        ax.set(title=title, xlabel=column if family == "smooth" else "points", ylabel="error")
        ax.set_ylim(top=200 if family == "smooth" else 4)
        ax.legend(fontsize=8, title=f"dashed: promised, slope -{order}/d", title_fontsize=8, ncols=2, loc="upper right")
    for dim in (1, 3):
        x, _ = curve(axes[1, 0], "squares", dim, "layers", marker="o", label=f"d = {dim}, measured")
        axes[1, 0].loglog(x, dim / 4.0 ** (x + 1), color=colours[dim], linestyle="--", linewidth=1)
    axes[1, 0].set_xscale("linear")
    axes[1, 0].set(title="$|x|^2$ by folding: error against layers", xlabel="layers", ylabel="error")
    axes[1, 0].legend(fontsize=8, title="dashed: $d / 4^{L+1}$, proved", title_fontsize=8)
    ax = axes[1, 1]
    for family, dim, marker in (("smooth", 3, "o"), ("lipschitz", 3, "s"), ("squares", 3, "^"), ("max-min", 2, "v")):
        curve(ax, family, dim, "parameters", marker=marker, label=f"{family}, d = {dim}")
    ax.set(title="error against parameters of the transformer", xlabel="parameters (dense)", ylabel="error")
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
            for family, sizes in SIZES.items():
                for dim, steps in sizes:
                    for size in steps:
                        writer.writerow(row(family, dim, size))
                        file.flush()
    with args.out.open() as file:
        rows = list(csv.DictReader(file))
    for family, order in (("smooth", 2), ("lipschitz", 1)):
        for dim in (1, 2, 3, 4):
            print(
                f"{family}, d = {dim}: error ~ pieces^{slope(rows, family, dim, 'pieces'):.3f}, rate {-order / dim:.3f}"
            )
    draw(rows, args.out)


if __name__ == "__main__":
    main()

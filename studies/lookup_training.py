"""How does the geometry of the shipped lookup model form while it trains?

    python studies/lookup_training.py [--seeds 0 1 2] [--steps 5000] [--out studies/lookup_training.csv] [--force]

training/lookup.py is run again with ``hm.dynamics.Recorder`` watching; the run with seed 0 is the shipped model's
own. At some thirty steps, closer together at the start, the weights are rounded to the shipped grid on a copy and
read, and these are recorded (one row each, with its exactness):

* cells along eight fixed segments and on eight fixed planes (certified): each has a context of its own, drawn once,
  and goes through two or three of its questions. The network is the hard one conditioned on that context;
* cells along four fixed segments from one whole input to another, where keys and values move too (certified);
* per head, on the asking tokens of 500 fixed examples: live keys, margins, the share of rows with a certificate;
* soft and hard accuracy, their agreement, relative error and divergence on the same examples, and the loss.

Writes the table and draws it to a .png and an .svg beside it.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import importlib.util
from collections import defaultdict
from math import log
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.networks.lookup import N_PAIRS, conditioned_lookup, lookup_examples, lookup_question
from hardmax.show.colours import FAINT, INK, KEY_COLOURS

COLUMNS = ("seed", *hm.dynamics.COLUMNS)
TRAINING = Path(__file__).parents[1] / "training" / "lookup.py"
HEADS = tuple(f"layer {layer} head {head}" for layer in range(2) for head in range(2))
N_PROBES, N_BETWEEN = 8, 4


def training_script():
    """training/lookup.py as a module."""
    specification = importlib.util.spec_from_file_location("lookup_training_script", TRAINING)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def probes(rng):
    """Segments and planes through questions of fixed contexts, and segments between whole inputs."""
    made = []
    for number, x in enumerate(lookup_examples(N_PROBES, rng=rng).inputs):
        asked = [lookup_question(int(key)) for key in rng.permutation(x[:N_PAIRS, :8].argmax(axis=1))]

        def given(net, context=x):
            return conditioned_lookup(context, net)

        made.append(hm.dynamics.Probe(f"segment {number}", hm.Segment(asked[0], asked[1]), given))
        made.append(hm.dynamics.Probe(f"plane {number}", hm.Plane.through(*asked[:3]), given))
    ends = lookup_examples(2 * N_BETWEEN, rng=rng).inputs
    for number in range(N_BETWEEN):
        made.append(hm.dynamics.Probe(f"between inputs {number}", hm.Segment(ends[2 * number], ends[2 * number + 1])))
    return made


def recorded_steps(steps):
    """About thirty, closer together at the start: nearly everything happens in the first tenth."""
    return sorted({0, steps, *np.unique(np.geomspace(1, steps, 30).round().astype(int)).tolist()})


def record(seed, steps, n_examples):
    """One training run with the recorder watching, and whether it ended at the shipped weights."""
    script = training_script()
    inputs, labels, _ = lookup_examples(n_examples, rng=np.random.default_rng(2024))
    example = inputs[:2].astype(np.float32)
    recorder = hm.dynamics.Recorder(
        probes(np.random.default_rng(7)),
        steps=recorded_steps(steps),
        read=lambda model: hm.from_torch(script.rounded(model), example),
        inputs=inputs,
        labels=labels,
        queries=(-1,),
    )
    model = script.train(seed, steps, lambda step, model, loss: recorder(step, model, loss=loss))
    trained = hm.from_torch(model, example)
    return recorder, bool(np.array_equal(trained(inputs), hm.builtin("lookup")(inputs)))


# --- the figure ---------------------------------------------------------------------------------


def series(rows, quantity, subjects, seed):
    """Steps (n,) and values (n, subjects) of one quantity."""
    values = defaultdict(dict)
    for row in rows:
        if row["seed"] == seed and row["quantity"] == quantity and row["subject"] in subjects:
            values[row["step"]][row["subject"]] = row["value"]
    steps = sorted(values)
    return np.array(steps), np.array([[values[step][subject] for subject in subjects] for step in steps], dtype=float)


def names(rows, start):
    """The subjects whose names begin so, in order."""
    return sorted({row["subject"] for row in rows if row["subject"].startswith(start)})


def draw_model(ax, rows, seed, quantities):
    """Numbers of the whole model, each (quantity, label)."""
    for (quantity, label), colour in zip(quantities, (KEY_COLOURS[0], KEY_COLOURS[5]), strict=True):
        steps, values = series(rows, quantity, ("model",), seed)
        ax.plot(steps, values[:, 0], color=colour, label=label)
    return ax


def draw_cells(ax, rows, seed):
    """Cells on the fixed planes and segments: the median, and all of them between least and largest."""
    for start, colour, label in (
        ("plane", KEY_COLOURS[0], "planes of questions"),
        ("between", KEY_COLOURS[3], "segments between inputs"),
        ("segment", KEY_COLOURS[2], "segments of questions"),
    ):
        steps, values = series(rows, "cells", names(rows, start), seed)
        ax.fill_between(steps, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.16, lw=0)
        ax.plot(steps, np.median(values, axis=1), color=colour, label=label)
    return ax


def draw_heads(ax, rows, seed, quantity):
    """One line a head, in one colour across panels; the second layer's dashed, for readers without colour."""
    steps, values = series(rows, quantity, HEADS, seed)
    for column, head in enumerate(HEADS):
        colour, dashes = KEY_COLOURS[(0, 4, 5, 1)[column]], "-" if column < 2 else (0, (4, 1))
        ax.plot(steps, values[:, column], color=colour, ls=dashes, label=head)
    return ax


def draw_seed(panels, rows, seed):
    """One column of panels: the training run of one seed."""
    n_keys = max(row["value"] for row in rows if row["quantity"] == "keys")
    answers, losses, cells, live, margins = panels
    draw_model(answers, rows, seed, (("soft_accuracy", "at temperature 1"), ("hard_accuracy", "at temperature 0")))
    answers.set(ylabel="right answers", ylim=(0, 1.04))
    divergence = ("kl", "divergence of the\nhard answers from\nthe soft ones")
    draw_model(losses, rows, seed, (("loss", "training loss"), divergence))
    losses.set(ylabel="nats", yscale="log")
    draw_cells(cells, rows, seed).set(ylabel="cells", yscale="log")
    draw_heads(live, rows, seed, "live_keys").set(ylabel=f"live keys of {n_keys:g}", ylim=(3.9, n_keys + 0.06))
    draw_heads(margins, rows, seed, "margin_median").set(ylabel="median margin", yscale="log", xlabel="training step")
    margins.axhline(log(n_keys - 1), color=INK, lw=1, ls=":", label="certificate above")
    for ax in panels:
        ax.set_xscale("symlog", linthresh=1, linscale=0.3)
        ax.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        ax.set_xlim(0, None)
        ax.minorticks_off()
        ax.grid(color=FAINT, alpha=0.25, lw=0.6)


def draw(rows, path):
    """All panels to a .png and an .svg: a column a seed, with one scale for each row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {
        "font.size": 8.5, "lines.linewidth": 1.8, "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "hardmax",
    }  # fmt: skip
    seeds = sorted({row["seed"] for row in rows})
    with plt.rc_context(style):
        size = (2.0 + 2.75 * len(seeds), 9.6)
        figure, panels = plt.subplots(
            5, len(seeds), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
        )
        for column, seed in enumerate(seeds):
            draw_seed(panels[:, column], rows, seed)
            panels[0, column].set_title("seed 0, the shipped model" if seed == 0 else f"seed {seed}", fontweight="bold")
        for row in panels:
            for ax in row[1:]:
                ax.set_ylabel("")
            row[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, handlelength=1.6)
        figure.align_ylabels(panels[:, 0])
        for ending, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            figure.savefig(path.with_suffix(f".{ending}"), **options)
        plt.close(figure)


def read_table(path):
    """The rows of the table, numbers as numbers."""
    with path.open(newline="") as file:
        return [
            {**row, "seed": int(row["seed"]), "step": int(row["step"]), "value": float(row["value"] or "nan")}
            for row in csv.DictReader(file)
        ]


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--force", action="store_true", help="replace the table")
    parser.add_argument("--draw-only", action="store_true", help="draw the table that is there")
    arguments = parser.parse_args(given)
    if not arguments.draw_only:
        if arguments.out.exists() and not arguments.force:
            raise SystemExit(f"{arguments.out} exists; give --force to replace it")
        rows = []
        for seed in arguments.seeds:
            recorder, is_shipped = record(seed, arguments.steps, arguments.examples)
            rows += [{"seed": seed, **row} for row in recorder.rows]
            if arguments.steps == 5000:
                print(f"seed {seed}: the weights {'are' if is_shipped else 'are not'} the shipped model's")
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    draw(read_table(arguments.out), arguments.out)


if __name__ == "__main__":
    main()

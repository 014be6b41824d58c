"""``hardmax skeleton``: a model -> its zero-temperature limit, what was changed, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.comparing import NUMBERS, facts_of, taken_apart, trained_trial
from hardmax.cli.parts.output import Dtype, DtypeOption, ForceOption, JsonOption, print_line, print_table, tell, working
from hardmax.cli.parts.sources import (
    InputsOption,
    ReferenceOption,
    complete_model,
    inputs_file,
    read_labels,
    read_model,
    read_points,
)
from hardmax.cli.parts.sources import reference_of as reference_input
from hardmax.cli.parts.trained import TextsOption, is_trained, read_trained, refuse_texts
from hardmax.html import several
from hardmax.networks.files.opening import check_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hardmax.networks.network import Network

EXAMPLES = """[bold]Examples[/bold]
  hardmax skeleton model.onnx -o hard.onnx
  hardmax skeleton builtin:lookup --inputs builtin:lookup
  hardmax skeleton model.onnx --inputs X.npz
  hardmax skeleton model.onnx --inputs X.npz --labels y.csv --max-loss 0.05
  hardmax skeleton bert.onnx --inputs X.npz --reference 0 -o hard.npz
  hardmax skeleton model:minilm --texts sentences.txt

With --inputs the model is compared with its skeleton: all of it, one layer at a time, one head at a time, and the \
largest set of heads found that can be hard together."""

_MEANINGS = {
    "agreement": "decisions kept: share of equal decisions",
    "relative_error": "relative error: mean of |hard - soft| / |soft|",
    "kl": "divergence in nats",
}
_SHOWN_CHANGES = 12
_MOST_HEADS = 48  # in a table for people; of more only those that lose most
_MOST_LOSING = 10


_ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A network file (.onnx, .npz, .safetensors), a built-in network such as builtin:lookup, or a trained "
        "model: model:minilm, model:smollm2, model:sceptr or model:sceptr:VARIANT.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
_OutOption = Annotated[
    Path | None, typer.Option("-o", "--out", help="Write the hard model: .onnx, .npz or .safetensors.")
]
_LabelsOption = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE", help="Right answers; by default the array `labels` of --inputs, if any."),
]
_MaxLossOption = Annotated[
    float,
    typer.Option("--max-loss", min=0.0, max=1.0, help="Share of decisions that hard heads together may change."),
]
_BriefOption = Annotated[
    bool, typer.Option("--brief", help="Compare the whole model only, not layer by layer and head by head.")
]


def skeleton(
    model: _ModelArgument,
    out: _OutOption = None,
    inputs: InputsOption = None,
    texts: TextsOption = None,
    labels: _LabelsOption = None,
    max_loss: _MaxLossOption = 0.01,
    brief: _BriefOption = False,
    reference: ReferenceOption = None,
    dtype: DtypeOption = Dtype.FLOAT32,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a model hard: what changes, and with --inputs or --texts what that costs.

    Softmax becomes Hardmax, GELU and SiLU become ReLU; norms are kept, or frozen at an input with --reference.

    Of a trained model (model:NAME) the attention alone is made hard, while it runs on --texts.
    """
    from hardmax.errors import ParameterError
    from hardmax.networks.files.formats import write
    from hardmax.networks.skeleton import skeleton as hardened

    if is_trained(model):
        _trained(model, texts, {"-o": out, "--inputs": inputs, "--labels": labels, "--reference": reference},
                 max_loss, brief, as_json)  # fmt: skip
        return
    refuse_texts(model, texts)
    read = (model, inputs_file(inputs), inputs_file(labels))
    check_target(out, force, endings=(".onnx", ".npz", ".safetensors"), beside=read)
    if labels is not None and inputs is None:
        raise ParameterError(f"--labels {labels} are the right answers to --inputs; expected --inputs FILE beside it")
    net, name = read_model(model)
    points = read_points(inputs, net.input_shape)
    if points is not None and reference is None and net.temperature == 0:
        raise ParameterError(f"{name}: it is hard already, so there is nothing to compare; leave --inputs out")
    hard = hardened(net, reference=reference_input(points, reference))
    facts: dict[str, Any] = {
        "model": name,
        "input_shape": list(net.input_shape),
        "output_shape": list(net.output_shape),
        "temperature": net.temperature,
        "changes": list(hard.changes),
        "has_cells": not hard.smooth_operations,
        "out": None if out is None else str(out),
    }
    if points is not None:
        answers = read_labels(labels, inputs)
        facts["fidelity"] = _fidelity(net, None if reference is None else hard, points, answers, max_loss, brief)
    if out is not None:
        write(hard, out, dtype=dtype.value)
    tell(facts, as_json, lambda: _print(facts))


def _trained(
    model: str, texts: Path | None, refused: dict[str, Any], max_loss: float, brief: bool, as_json: bool
) -> None:
    """A trained model against itself with its heads hard, on texts."""
    with working("starting") as say:
        trained = read_trained(model, texts, refused, say)
        say(f"running {model}, soft and hard")
        trial = trained_trial(trained)
        heads = trial.runs.heads
        whole = trial.with_hard(heads).fidelity
    fidelity: dict[str, Any] = {"n_inputs": whole.n, "n_heads": len(heads), "exactness": whole.exactness}
    fidelity["whole"] = facts_of(whole)
    if not brief:
        fidelity |= taken_apart(trial, whole, max_loss, "together")
    kept = "norms and activations"
    facts = {"model": model, "texts": str(texts), "kept_soft": kept, "fidelity": fidelity}
    title = f"{model}: {len(heads)} attention heads made hard inside the model; {kept} are kept"
    tell(facts, as_json, lambda: _print_fidelity(fidelity, title))


def _fidelity(
    net: Network,
    frozen: Network | None,
    points: NDArray[Any],
    labels: NDArray[Any] | None,
    max_loss: float,
    brief: bool,
) -> dict[str, Any]:
    """Soft against hard on the inputs: all heads, by layer, by head, and greedily as many as the loss allows."""
    from hardmax.heads.fidelity import Trial
    from hardmax.heads.trials import runs_of

    with working("comparing the model with its skeleton"):
        trial = Trial(runs_of(net, points), labels)
        whole = trial.whole(frozen)
    facts = {"n_inputs": whole.n, "exactness": whole.exactness, "whole": facts_of(whole)}
    return facts if brief else facts | taken_apart(trial, whole, max_loss, "greedy")


def _print(facts: dict[str, Any]) -> None:
    changes = facts["changes"]
    print_line(f"{facts['model']}: {several(len(changes), 'change')} at temperature zero" if changes else
               f"{facts['model']}: already hard, nothing was changed")  # fmt: skip
    for change in changes[:_SHOWN_CHANGES]:
        print_line(f"  {change}")
    if len(changes) > _SHOWN_CHANGES:
        print_line(f"  and {len(changes) - _SHOWN_CHANGES} more; --json lists them all")
    if "fidelity" in facts:
        _print_fidelity(facts["fidelity"])
    if facts["out"] is not None:
        print_line(f"written to {facts['out']}")


def _print_fidelity(facts: dict[str, Any], *title: str) -> None:
    print_line(*title)
    rows = [("all of it", facts["whole"])]
    rows += [(f"layer {row['layer']}", row) for row in facts.get("by_layer", ())]
    heads = facts.get("by_head", [])
    shown = heads if len(heads) <= _MOST_HEADS else sorted(heads, key=_loss, reverse=True)[:_MOST_LOSING]
    rows += [(f"layer {row['layer']} head {row['head']}", row) for row in shown]
    chosen = facts.get("greedy") or facts.get("together")
    if chosen:
        rows.append((f"{len(chosen['heads'])} of {chosen['n_heads']} together", chosen))
    kept = [key for key in NUMBERS if facts["whole"][key] is not None]
    if facts["whole"]["agreement"] is not None:
        print_line(_in_words(facts["whole"], facts["n_inputs"]))
    print_table(
        ["made hard", *(NUMBERS[key] for key in kept)],
        [[name, *(_entry(row, key) for key in kept)] for name, row in rows],
        title=f"soft against hard on {several(facts['n_inputs'], 'input')} ({facts['exactness']})",
    )
    if len(shown) < len(heads):
        print_line(f"Of {len(heads)} heads, these {len(shown)} change the output most; --json lists them all.")
    print_line("; ".join(_MEANINGS[key] for key in kept if key in _MEANINGS) + "; with 95 % intervals")
    if chosen:
        names = " ".join(f"{layer}.{head}" for layer, head in chosen["heads"]) or "none"
        how = "Found greedily" if "greedy" in facts else "Taken in the order of what each loses alone"
        print_line(
            f"Heads that are hard together while at most {chosen['max_loss']:.2%} of decisions change (layer.head): "
            f"{names}. {how}; a larger set may exist."
        )


def _entry(row: dict[str, Any], key: str) -> str:
    """A number with its interval: both ends of a share's, the reach of a mean's."""
    interval, text = row["intervals"][key], f"{row[key]:.4f}"
    if interval is None:
        return text
    is_mean = key in ("relative_error", "kl")
    return f"{text} +- {interval[1] - row[key]:.4f}" if is_mean else f"{text} ({interval[0]:.3f}-{interval[1]:.3f})"


def _in_words(whole: dict[str, Any], n: int) -> str:
    from hardmax.show.report.sections import as_text

    kept, low, high = (as_text(share, "share") for share in (whole["agreement"], *whole["interval"]))
    inputs = several(n, "input")
    return (
        f"With everything hard, {kept} of the decisions on {inputs} stay as they are (95 % interval {low} to {high})."
    )


def _loss(row: dict[str, Any]) -> float:
    """What a head loses alone: the divergence, or the relative error where there is none."""
    return float(row["relative_error"] if row["kl"] is None else row["kl"])

"""``hardmax report``: one page about a model, and its summary on the terminal."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.comparing import compared_parts
from hardmax.cli.parts.output import ForceOption, JsonOption, picked, print_line, tell, working
from hardmax.cli.parts.sources import BUILTIN, complete_model, inputs_file
from hardmax.cli.parts.sources import EXAMPLES as LOOKUP_EXAMPLES
from hardmax.cli.parts.trained import TextsOption, is_trained, read_trained, refuse_texts
from hardmax.html import visible
from hardmax.networks.files.opening import check_target

if TYPE_CHECKING:
    from hardmax.networks.network import Network
    from hardmax.show.report.page import Report

EXAMPLES = """[bold]Examples[/bold]
  hardmax report
  hardmax report model.onnx --inputs X.npz -o model.html
  hardmax report builtin:demo -o demo.html --force --open
  hardmax report model:smollm2 --texts prompts.txt -o heads.html

Without -o the page is report.html; one that an earlier report left there is replaced, any other file is not. Without \
--inputs a seeded sample is drawn, and the page says so."""

_DEFAULT = Path("report.html")
_SHOWN = 8  # numbers of an array shown to people; --json has them all


def report(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A network file (.onnx, .npz, .safetensors), builtin:NAME, or a trained model that reads --texts: "
            "model:minilm, model:smollm2, model:sceptr or model:sceptr:VARIANT; default: the trained lookup model.",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="FILE",
            help="Inputs: .npz (its arrays `inputs`, `labels`, `tokens`, or FILE:name), .npy, or .csv.",
        ),
    ] = None,
    texts: TextsOption = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The page to write; default: report.html.", show_default=False)
    ] = None,
    force: ForceOption = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser when it is done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page about a model in one file: fidelity, heads, cells, bounds, stability."""
    with working("starting") as say:
        made = _made(model, inputs, texts, out, force, say)
    facts = _facts(made)
    if made.subject is not None:
        facts |= summary(made.subject.net)
    tell(facts, as_json, lambda: _print_table(facts))
    if show:
        import webbrowser

        webbrowser.open(made.path.resolve().as_uri())


def _made(model: str | None, inputs: str | None, texts: Path | None, out: Path | None, force: bool, say: Any) -> Report:
    """The page, written; a model of ours by name, a file by path."""
    from hardmax.networks.lookup import default_examples
    from hardmax.show.report.page import Given, is_report, make_report

    target = out or _DEFAULT
    ours = out is None and is_report(target)  # what `hardmax report` left here before
    check_target(target, force or ours, endings=(".html", ".htm"), beside=(model, inputs_file(inputs), texts))
    if model is not None and is_trained(model):
        trained = read_trained(model, texts, {"--inputs": inputs}, say)
        trained.check_page()
        captures, compared = trained.capture(say), compared_parts(trained, say)
        return make_report(captures, target, None, Given(compared=tuple(compared)), force=force or ours, progress=say)
    refuse_texts(model or "the lookup model", texts)
    source: Any = model
    name = None
    if model is not None and model.startswith(BUILTIN):
        from hardmax.networks.library import DEFAULT_BUILTIN, builtin

        name = f"built-in: {model[len(BUILTIN) :]}"
        source = None if model == BUILTIN + DEFAULT_BUILTIN else builtin(model[len(BUILTIN) :])
    points: Any = inputs
    labels = None
    if inputs == LOOKUP_EXAMPLES:
        points, labels, _ = default_examples()
    return make_report(source, target, points, Given(labels=labels, name=name), force=force or ours, progress=say)


def _facts(made: Report) -> dict[str, Any]:
    """What the page says in short, the same whenever it is made."""
    from hardmax.show.report.sections import plain

    document, subject = made.document, made.subject
    inputs = {} if subject is None else {"n_inputs": len(subject.inputs), "inputs": subject.inputs.note}
    return {
        "source": document.title,
        **({"description": document.description} if document.description else {}),
        "report": str(made.path),
        "bytes": made.path.stat().st_size,
        **inputs,
        "answer": document.as_json()["answer"],
        "sections": {
            section.name: {
                "absent": section.absent or None,
                "facts": {
                    fact.label: {"value": plain(fact.value), "exactness": fact.exactness and str(fact.exactness)}
                    for fact in section.facts
                },
            }
            for section in document.sections
        },
    }


def summary(net: Network) -> dict[str, Any]:
    """The facts of a network as plain values, ready for JSON.

    The evaluation is at the point whose entries go evenly from -1 to 1. Exactness: the evaluation is plain
    floating point, with no error bound; everything else is a count and exact.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> from hardmax.networks.network import Network
    >>> facts = summary(Network([Affine([[1.0, 2.0]]), ReLU()], input_dim=2))
    >>> facts["n_parameters"], facts["n_choices"]
    (2, 1)

    A network without choices has an empty label:

    >>> summary(Network([Affine([[1.0]])], input_dim=1))["evaluation"]["label"]
    []
    """
    import numpy as np

    from hardmax.heads.find import heads_of

    point = np.linspace(-1.0, 1.0, math.prod(net.input_shape)).reshape(net.input_shape)
    return {
        **picked(net, "input_shape", "output_shape", "temperature"),
        "operations": dict(Counter(node.operation.name for node in net.graph.nodes)),
        **picked(net, "n_parameters", "n_choices"),
        "n_heads": len(heads_of(net)),
        "evaluation": {
            "input": point.tolist(),
            "output": net(point, temperature=0.0).tolist(),
            "label": net.labels(point).tolist(),
            "exactness": "estimated",
        },
    }


def _print_table(facts: dict[str, Any]) -> None:
    for sentence in facts["answer"]:
        print_line(f"{sentence['text']}{' [' + sentence['exactness'] + ']' if sentence['exactness'] else ''}")
    if "evaluation" in facts:
        _print_network(facts)
    print_line(f"written to {facts['report']} ({facts['bytes'] / 1000:,.0f} kB); open it in a browser")


def _print_network(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    kind = "hard" if facts["temperature"] == 0 else f"softmax at temperature {facts['temperature']:g}"
    if not facts["n_heads"]:
        kind = "none"
    rows = {
        "network": facts["source"],
        "": facts.get("description", ""),
        "input shape": _numbers(facts["input_shape"]),
        "output shape": _numbers(facts["output_shape"]),
        "attention": kind,
        "operations": ", ".join(f"{count} {name}" for name, count in facts["operations"].items()),
        "parameters": f"{facts['n_parameters']:,}",
        "choices": f"{facts['n_choices']:,}",
        "inputs": facts["inputs"],
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        if text:
            table.add_row(name, visible(text))
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(table)
    console.print()


def _numbers(values: list[Any]) -> str:
    """The first few numbers of a nested list, in one line."""
    import numpy as np

    flat = np.ravel(np.asarray(values))
    shown = " ".join(f"{value:.6g}" for value in flat[:_SHOWN])
    return f"{shown} ... ({flat.size} numbers)" if flat.size > _SHOWN else shown or "none"

"""``hardmax report``: what a network is, and one hard evaluation of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hardmax.networks.network import Network

_SHOWN = 8  # numbers of an array shown to people; --json has them all


def report(
    model: Annotated[
        Path | None,
        typer.Argument(help="A network file (.onnx, .npz, .safetensors); default: the built-in one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Print the summary of a network: shapes, operations, parameters, choices, one hard evaluation."""
    if model is None:
        from hardmax.networks.library import DEFAULT_BUILTIN, builtin, describe_builtin

        facts = {
            "source": f"built-in: {DEFAULT_BUILTIN}",
            "description": describe_builtin(DEFAULT_BUILTIN),
            **summary(builtin()),
        }
    else:
        from hardmax.networks.files import read

        facts = {"source": str(model), **summary(read(model))}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _print_table(facts)


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

    point = np.linspace(-1.0, 1.0, math.prod(net.input_shape)).reshape(net.input_shape)
    return {
        "input_shape": list(net.input_shape),
        "output_shape": list(net.output_shape),
        "temperature": net.temperature,
        "operations": dict(Counter(node.operation.name for node in net.graph.nodes)),
        "n_parameters": net.n_parameters,
        "n_choices": net.n_choices,
        "evaluation": {
            "input": point.tolist(),
            "output": net(point, temperature=0.0).tolist(),
            "label": net.labels(point).tolist(),
        },
    }


def _print_table(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    evaluation = facts["evaluation"]
    kind = "hard" if facts["temperature"] == 0 else f"softmax at temperature {facts['temperature']:g}"
    if "Hardmax" not in facts["operations"]:
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
        "an input": _numbers(evaluation["input"]),
        "its hard output": _numbers(evaluation["output"]),
        "its label": _numbers(evaluation["label"]),
    }
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        if text:
            table.add_row(name, text)
    Console(highlight=False, markup=False).print(table)


def _numbers(values: list[Any]) -> str:
    """The first few numbers of a nested list, in one line."""
    import numpy as np

    flat = np.ravel(np.asarray(values))
    shown = " ".join(f"{value:.6g}" for value in flat[:_SHOWN])
    return f"{shown} ... ({flat.size} numbers)" if flat.size > _SHOWN else shown or "none"

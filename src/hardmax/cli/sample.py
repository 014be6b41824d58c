"""``hardmax sample``: the number of cells from random inputs, with what it missed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hardmax.cli.parts.domains import Question
from hardmax.cli.parts.output import JsonOption, bar, for_the_command_line, picked, print_line, tell
from hardmax.html import several

EXAMPLES = """[bold]Examples[/bold]
  hardmax sample builtin:demo --box -2 2
  hardmax sample model.onnx --inputs X.npz --plane 0 1 2 --samples 1e5 --seed 7
  hardmax sample model.npz --box -1 1 --samples 1e7 --json

Where the true number is cheap, on lines and planes of small networks, it stands beside; hardmax count gives it \
elsewhere."""

_CHEAP_PARAMETERS, _CHEAP_CELLS = 100_000, 20_000


def sample(
    asked: Question,
    samples: Annotated[float, typer.Option("--samples", "-n", help="How many inputs to draw; 1e6 is fine.")] = 1e6,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")] = 0,
    as_json: JsonOption = False,
) -> int:
    """Estimate the number of cells from uniform samples of a bounded domain.

    Prints the distinct labels seen (a lower bound), the Good-Turing coverage and Chao1's lower estimate, its interval.

    Warns where the samples limit the count. Ctrl-C keeps the samples drawn so far and exits with 3.
    """
    import numpy as np

    from hardmax.errors import DomainError, ParameterError
    from hardmax.measure.sampling import sample_cells

    if not (samples >= 1 and samples == int(min(samples, 2.0**62))):
        raise ParameterError(f"--samples: expected a whole number of at least 1, got {samples:g}")
    if asked.space:
        raise DomainError("--space: nothing is uniform on all of space; give --box LOW HIGH, or use `hardmax count`")
    hard, named = asked.read(is_bounded=True)
    rng = np.random.default_rng(seed)
    with bar(int(samples), "sampling") as advance:
        found = sample_cells(
            hard.network, named.domain, int(samples), rng=rng,
            progress=lambda done, seen: advance(done, f"{done:,} samples, {seen:,} cells seen"),
        )  # fmt: skip
    facts: dict[str, Any] = {
        "model": hard.name,
        "domain": named.facts,
        "seed": seed,
        **picked(found, "n_samples", "is_complete", "n_distinct", "n_once", "n_twice", "coverage", "estimate"),
        **picked(found, "interval", "is_hashed"),
        "warning": found.warning and for_the_command_line(found.warning),
        "exactness": found.exactness,
        "changes": list(hard.network.changes),
        "true_cells": _true_cells(hard.network, named.domain) if found.is_complete else None,
    }
    tell(facts, as_json, lambda: print_line(*_lines(facts, hard.title)))
    return 0 if found.is_complete else 3


def _lines(facts: dict[str, Any], of: str) -> list[str]:
    from hardmax.measure.sampling import rounded_down

    low, high = facts["interval"]
    stopped = "" if facts["is_complete"] else "; stopped early"
    lines = [
        f"{of}: at least {several(facts['n_distinct'], 'cell')} seen in {several(facts['n_samples'], 'sample')} of "
        f"{facts['domain']['text']} (estimated{stopped})",
        f"these hold {rounded_down(facts['coverage'])} of it (coverage); Chao1's lower estimate is "
        f"{facts['estimate']:,.1f} cells, 95 % interval [{low:,.0f}, {high:,.1f}]: it holds for cells of one size and "
        "knows nothing of those too small to be hit",
    ]
    if facts["warning"]:
        lines.append(f"warning: {facts['warning']}")
    if facts["true_cells"] is not None:
        missed = facts["true_cells"] - facts["n_distinct"]
        told = (
            "sampling found them all" if missed == 0 else f"sampling missed {several(missed, 'cell')}, too small to hit"
        )
        lines.append(f"the true number is {facts['true_cells']:,} (certified, hardmax count): {told}")
    return lines


def _true_cells(net: Any, domain: Any) -> int | None:
    """The number itself, where it is cheap: on lines and planes with few cells; None elsewhere."""
    from hardmax.cells.search import enumerate_cells
    from hardmax.errors import HardmaxError

    if domain.dim > 2 or net.n_parameters > _CHEAP_PARAMETERS:
        return None
    try:
        cells = enumerate_cells(net, domain, max_cells=_CHEAP_CELLS)
    except HardmaxError:
        return None
    return cells.n_cells if cells.is_complete else None

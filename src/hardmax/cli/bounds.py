"""``hardmax bounds``: how many cells an architecture can have, beside what the papers print."""

from __future__ import annotations

from math import log10
from typing import Annotated, Any

import typer

from hardmax.cli.parts.output import JsonOption, print_line, print_table, tell
from hardmax.html import several

EXAMPLES = """[bold]Examples[/bold]
  hardmax bounds --keys 6 --heads 3 --dim 3 --bias-free
  hardmax bounds --keys 512 --heads 8 --dim 512 --width 2048 --depth 96
  hardmax bounds --keys 64 --margin 5 --temperature 0.5 --json

Every bound stands beside the formula as published, right or wrong."""

_MOST_DIGITS = 4000  # beyond, an integer is given by its logarithm alone
_SHOWN_DIGITS = 30


def bounds(
    keys: Annotated[str, typer.Option("--keys", help="Keys of every head: 6, or 6,6,4 for unequal heads.")] = "4",
    heads: Annotated[
        int | None, typer.Option("--heads", help="Number of equal heads; default: as many as keys are listed.")
    ] = None,
    dim: Annotated[int, typer.Option("--dim", help="Dimension of the input.")] = 2,
    width: Annotated[int, typer.Option("--width", help="ReLU units of a block's feed-forward layer.")] = 4,
    depth: Annotated[int, typer.Option("--depth", help="Number of blocks.")] = 1,
    affine: Annotated[
        bool, typer.Option("--affine/--bias-free", help="Scores with or without a constant term.")
    ] = True,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Add what this margin of the scores guarantees.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="Of the scores of --margin; sqrt(d_k) on raw dot products. Default: 1.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print exact bounds on the number of cells, each beside the published formula."""
    sizes = _sizes(keys, heads)
    facts = {
        "keys": sizes,
        "dim": dim,
        "width": width,
        "depth": depth,
        "scores": "affine" if affine else "bias-free",
        "rows": [*_counts(sizes, dim, width, depth, affine), *_stability(sizes, margin, temperature)],
    }
    tell(facts, as_json, lambda: _print_table(facts))


def _sizes(keys: str, heads: int | None) -> list[int]:
    from hardmax.errors import ParameterError

    try:
        sizes = [int(part) for part in keys.split(",")]
    except ValueError:
        raise ParameterError(f"--keys: expected integers separated by commas, got {keys!r}") from None
    if heads is None:
        return sizes
    if heads < 1 or len(sizes) > 1:
        raise ParameterError(f"--heads: expected at least 1 head and one number of keys, got {heads} and {keys!r}")
    return sizes * heads


def _counts(sizes: list[int], dim: int, width: int, depth: int, affine: bool) -> list[dict[str, Any]]:
    from hardmax.measure import bounds as b

    published = b.as_published
    equal = len(set(sizes)) == 1
    n, n_heads = max(sizes), len(sizes)
    # of unequal heads some serve, each with as many keys as the least of them
    serving = [(n, n_heads)] if equal else [(size, f) for f, size in enumerate(sorted(sizes)[::-1], 1)]
    factor = max(b.growth_per_block(size, dim, width, affine, f).lower for size, f in serving)
    rows = [
        _row("joint cells of the heads", b.max_joint_cells(sizes, dim, affine), "maximum, attained",
             published.multi_head_vertices(n, n_heads, dim) if equal else None),
        _row("cells of one block", b.block_upper(sizes, dim, width, affine), "upper bound", None),
        _row("cells of the network, at most", b.cells_upper(sizes, dim, width, depth, affine), "upper bound",
             None),
    ]  # fmt: skip
    if equal:
        logarithm = published.log10_cells_upper(n, n_heads, dim, width, depth)
        rows[-1] |= {"published_value": 10**logarithm if logarithm < 300 else None, "published_log10": logarithm}
    if equal and n_heads >= dim:
        rows.append(
            _row("cells of some network, at least", b.cells_lower(n, dim, width, depth, affine), "attained",
                 published.cells_lower(n, dim, width, depth))
        )  # fmt: skip
    rows += [
        _row("factor of one more block, at least", factor, "lower bound", None),
        _row("factor of one more block, at most", b.block_upper(sizes, dim, width, affine), "upper bound", None),
    ]
    if equal:
        exponent = b.key_exponent(n_heads, dim, affine, depth)
        rows.append(_row("exponent of N", exponent, "exact", published.key_exponent(dim, depth)))
    return rows


def _stability(sizes: list[int], margin: float | None, asked: float | None) -> list[dict[str, Any]]:
    from hardmax.errors import ParameterError

    if margin is None and asked is not None:
        raise ParameterError(
            f"--temperature {asked:g} acts on --margin alone, counts have none; expected --margin NUMBER beside it"
        )
    if margin is None:
        return []
    temperature = 1.0 if asked is None else asked
    from hardmax.measure import bounds as b
    from hardmax.measure import stability

    n, printed = max(sizes), b.as_published
    s = stability.bounds(n, margin, temperature)
    status = "vacuous" if s.is_vacuous else "sharp bound"
    names = (("value", "value_gap"), ("gradient", "gradient_distance"), ("hessian", "hessian_norm"))
    return [
        _row(f"soft maximum, {name}", getattr(s, name), status,
             getattr(printed, old)(n, margin, temperature) if temperature > 0 else None)
        for name, old in names
    ]  # fmt: skip


def _row(name: str, value: float, status: str, published: float | None) -> dict[str, Any]:
    exactness = "exact" if isinstance(value, int) else "certified"  # floats are rounded outward
    row = {"bound": name, **_number("", value), "status": status, "exactness": exactness}
    return row | _number("published_", published)


def _number(prefix: str, value: float | None) -> dict[str, Any]:
    """An exact integer as text with its logarithm; a float as it is."""
    if value is None:
        return {f"{prefix}value": None, f"{prefix}log10": None}
    if isinstance(value, int):
        logarithm = log10(value) if value > 0 else None
        short = logarithm is None or logarithm < _MOST_DIGITS
        return {f"{prefix}value": str(value) if short else None, f"{prefix}log10": logarithm}
    return {f"{prefix}value": float(value), f"{prefix}log10": log10(value) if value > 0 else None}


def _print_table(facts: dict[str, Any]) -> None:
    *fewer, most = sorted(set(facts["keys"]))
    keys = ", ".join([*(f"{number:,}" for number in fewer), several(most, "key")])
    print_line(
        f"{several(len(facts['keys']), 'head')} of {keys}, {facts['scores']} scores, input dimension "
        f"{facts['dim']:,}, {several(facts['width'], 'ReLU')}, {several(facts['depth'], 'block')}"
    )
    rows = [[row["bound"], _shown(row, ""), row["status"], _shown(row, "published_")] for row in facts["rows"]]
    print_table(["", "true", "status", "as published"], rows)


def _shown(row: dict[str, Any], prefix: str) -> str:
    value, logarithm = row[f"{prefix}value"], row[f"{prefix}log10"]
    if value is None and logarithm is None:
        return "-"
    if value is None or (isinstance(value, str) and len(value) > _SHOWN_DIGITS):
        return f"10^{logarithm:.4f}"
    return f"{int(value):,}" if isinstance(value, str) else f"{value:.6g}"

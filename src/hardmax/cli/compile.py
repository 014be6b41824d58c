"""``hardmax compile``: a maxout network or a piecewise-linear function -> a transformer that computes it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import Dtype, DtypeOption, ForceOption, JsonOption, print_line, print_table, tell, working
from hardmax.networks.files.opening import check_target

if TYPE_CHECKING:
    from hardmax.constructions.compiled import CompiledTransformer


EXAMPLES = """[bold]Examples[/bold]
  hardmax compile maxout.npz -o transformer.onnx
  hardmax compile table.csv -o transformer.onnx --temperature 0.01
  hardmax compile relu.onnx -o transformer.npz --variant G --bound 10

A table has a point in each row, its coordinates and then the value."""


class Variant(StrEnum):
    """G has gated feed-forward layers and a bound on the input, D attention only and none."""

    G = "G"
    D = "D"


def compile_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A maxout or ReLU network (.npz, .onnx, .safetensors), a table of points and values (.csv), "
            "or affine pieces (.json).",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The transformer, usually an .onnx file.")],
    temperature: Annotated[
        float | None, typer.Option(help="Write Softmax at this temperature; without it, Hardmax.")
    ] = None,
    variant: Annotated[
        Variant | None,
        typer.Option(help="G: gated feed-forward layers, inputs up to --bound. D: attention only, any input."),
    ] = None,
    bound: Annotated[
        float | None, typer.Option(help="Variant G: the largest |x| to compute right. Tables have their own.")
    ] = None,
    dtype: DtypeOption = Dtype.FLOAT32,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a maxout network or a piecewise-linear function to a transformer."""
    from hardmax.errors import ParameterError
    from hardmax.networks.files.formats import write

    if temperature is not None and not temperature > 0:
        raise ParameterError(
            f"--temperature: expected a number above 0, got {temperature:g}, where Softmax has no value; leave the "
            "option out to write Hardmax, the limit"
        )
    check_target(out, force, endings=(".onnx", ".npz", ".safetensors"), beside=(source,))
    with working(f"compiling {source}"):
        compiled, rounding = _compiled(source, variant, bound, temperature)
    error = 0.0 if temperature is None else compiled.error_bound(temperature)
    write(compiled.on_inputs, out, temperature or 0.0, dtype=dtype.value)
    facts = {
        "source": str(source),
        "out": str(out),
        "variant": compiled.variant,
        "bound": compiled.bound,
        "temperature": temperature or 0.0,
        "error_bound": error,
        "rounding": rounding,
        "exactness": "exact" if error == rounding == 0 else "certified",  # bounds are proved and rounded up
        "complexity": {name: [before, after] for name, before, after in compiled.complexity.rows()},
    }
    tell(facts, as_json, lambda: _print_table(facts))


def _compiled(
    source: Path, variant: Variant | None, bound: float | None, temperature: float | None
) -> tuple[CompiledTransformer, float]:
    """The transformer, and how far its source's pieces had to be rounded."""
    from hardmax.constructions.compiled import maxout_to_transformer
    from hardmax.constructions.function_files import read_function
    from hardmax.constructions.piecewise import PiecewiseLinear
    from hardmax.errors import ParameterError
    from hardmax.networks.files.formats import read

    if variant is Variant.D and bound is not None:
        raise ParameterError(f"--bound {bound:g} belongs to variant G; variant D has none, leave one of the two out")
    if variant is Variant.D and temperature is not None:
        raise ParameterError(
            f"--temperature {temperature:g} needs variant G: variant D is exact for hard attention only"
        )
    is_table = source.suffix.lower() in (".csv", ".json")
    function = read_function(source) if is_table else read(source)
    if isinstance(function, PiecewiseLinear):
        if variant is Variant.D:
            return maxout_to_transformer(function.network), function.rounding
        return function.to_transformer(bound), function.rounding
    if bound is None and (variant is Variant.G or temperature is not None):
        raise ParameterError(
            f"{source}: variant G needs --bound, the largest |x| of an input; softmax needs variant G. Without "
            "--temperature, variant D needs no bound"
        )
    return maxout_to_transformer(function, bound), 0.0


def _print_table(facts: dict[str, Any]) -> None:
    sizes = facts["complexity"].items()
    rows = [(name, *(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells)) for name, cells in sizes]
    print_table(("", "source", "transformer"), rows)
    where = "for all inputs" if facts["bound"] is None else f"for |x| <= {facts['bound']:g}"
    how = "hard"
    if facts["temperature"]:
        how = f"within {facts['error_bound']:.3g} at temperature {facts['temperature']:g}"
    print_line(f"variant {facts['variant']}, {how}, {where}, written to {facts['out']}")

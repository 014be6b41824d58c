"""The model and the domain that ``count``, ``map`` and ``sample`` ask about."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.sources import (
    HardModel,
    InputsOption,
    ModelArgument,
    ReferenceOption,
    hardened,
    read_model,
    read_points,
    row_of,
)
from hardmax.errors import DomainError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hardmax.cells.domains import Domain

_PANEL = "Domain"
_MOST_FREE_DIMENSIONS = 3  # all of space is the default up to here
_POINT = "a row number of --inputs, or numbers separated by commas"


@dataclass(frozen=True)
class Question:
    """What a command line asks about: a model, inputs that points are taken from, and a domain."""

    model: ModelArgument
    inputs: InputsOption = None
    reference: ReferenceOption = None
    segment: Annotated[
        tuple[str, str] | None,
        typer.Option("--segment", metavar="A B", rich_help_panel=_PANEL, help=f"From point A to B, each {_POINT}."),
    ] = None
    plane: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--plane", metavar="A B C", rich_help_panel=_PANEL, help="A square of the plane through three such points."
        ),
    ] = None
    margin: Annotated[
        float,
        typer.Option(
            "--margin", rich_help_panel=_PANEL, help="How far --plane reaches beyond its points, in their units."
        ),
    ] = 0.2
    box: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--box",
            metavar="LOW HIGH",
            rich_help_panel=_PANEL,
            help="A box of the input space: numbers for all axes (-1 1), or one for each coordinate (-1,0 1,2).",
        ),
    ] = None
    space: Annotated[
        bool,
        typer.Option("--space", rich_help_panel=_PANEL, help="All of the input space; the default up to 3 dimensions."),
    ] = False

    def read(self, *, is_bounded: bool = False) -> tuple[HardModel, NamedDomain]:
        """The zero-temperature network, and the domain; ``is_bounded`` as in ``domain_of``."""
        net, name = read_model(self.model)
        points = read_points(self.inputs, net.input_shape)
        named = domain_of(self, net.input_shape, points, is_bounded=is_bounded)
        return hardened(net, name, points, self.reference), named


@dataclass(frozen=True)
class NamedDomain:
    """A domain, and what to call it."""

    domain: Domain
    text: str
    marks: tuple[tuple[float, float, str], ...] = ()  # named points of a plane, in its coordinates

    @property
    def facts(self) -> dict[str, Any]:
        """Kind, dimension and words, for JSON; a box with its bounds."""
        from hardmax.cells.domains import Box

        facts = {"kind": type(self.domain).__name__.lower(), "dim": self.domain.dim, "text": self.text}
        if isinstance(self.domain, Box):
            facts |= {"low": self.domain.low.tolist(), "high": self.domain.high.tolist()}
        return facts


def domain_of(
    asked: Question, input_shape: Sequence[int], points: NDArray[np.float64] | None, *, is_bounded: bool = False
) -> NamedDomain:
    """The domain that the options name.

    Parameters
    ----------
    points : the rows of --inputs, which points may be given by.
    is_bounded : refuse all of space, where the command needs a bounded domain.

    Examples
    --------
    >>> domain_of(Question("net.npz", box=("-1", "1")), (2,), None).text
    'the box [-1, 1]^2'
    >>> domain_of(Question("net.npz"), (2,), None).text
    'all of R^2'
    """
    from hardmax.cells.domains import Plane, Segment, Space

    chosen = [f"--{name}" for name in ("segment", "plane", "box", "space") if getattr(asked, name)]
    if len(chosen) > 1:
        raise ParameterError(f"expected one domain, got {' and '.join(chosen)}; leave all but one out")
    shape, size = tuple(input_shape), prod(input_shape)
    if asked.segment:
        a, b = (point_of(text, shape, points, "--segment") for text in asked.segment)
        names = [_name(text, points) for text in asked.segment]
        return NamedDomain(Segment(a, b), f"the segment from {names[0]} to {names[1]}")
    if asked.plane:
        a, b, c = (point_of(text, shape, points, "--plane") for text in asked.plane)
        names = [_name(text, points) for text in asked.plane]
        domain = Plane.through(a, b, c, margin=_margin(asked.margin))
        text = f"the plane through {names[0]}, {names[1]} and {names[2]}"
        return NamedDomain(domain, text, ((0.0, 0.0, names[0]), (1.0, 0.0, names[1]), (0.0, 1.0, names[2])))
    if asked.box:
        return _box(asked.box, size)
    if is_bounded:
        raise DomainError(
            "expected a bounded domain: --box LOW HIGH, --segment A B or --plane A B C, such as --box -1 1"
        )
    if not asked.space and size > _MOST_FREE_DIMENSIONS:
        raise DomainError(
            f"the input has {size} entries (shape {shape}), too many for all of space by default; give --segment A B "
            "or --plane A B C (with --inputs FILE, A, B and C are its row numbers), --box LOW HIGH or --space"
        )
    return NamedDomain(Space(size), f"all of R^{size}")


def _box(asked: tuple[str, str], size: int) -> NamedDomain:
    from hardmax.cells.domains import Box

    ends = []
    for text in asked:
        values = _numbers(text, "--box", "numbers separated by commas")
        if len(values) not in (1, size):
            raise ParameterError(f"--box: expected 1 or {size} numbers separated by commas, got {len(values)}: {text}")
        ends.append(values * size if len(values) == 1 else values)
    domain = Box(*ends)
    axes = [f"[{low:g}, {high:g}]" for low, high in zip(*ends, strict=True)]
    same = len(set(axes)) == 1
    text = f"the box {axes[0]}" + (f"^{size}" if size > 1 else "")
    if not same:
        text = f"the box {' x '.join(axes[:4])}" + (f" x ... ({size} axes)" if size > 4 else "")
    return NamedDomain(domain, text)


def _margin(margin: float) -> float:
    if not 0 <= margin < float("inf"):
        raise ParameterError(f"--margin: expected a number of at least 0, got {margin:g}")
    return margin


def _is_row(text: str) -> bool:
    return text.strip().isdecimal()


def _name(text: str, points: NDArray[np.float64] | None) -> str:
    short = text if len(text) <= 40 else f"{text[:37]}..."
    return f"input {text}" if points is not None and _is_row(text) else f"({short})"


def point_of(text: str, shape: tuple[int, ...], points: NDArray[np.float64] | None, option: str) -> NDArray[np.float64]:
    """An input: a row of the points where the text is a whole number and there are points, else the numbers in it."""
    import numpy as np

    if points is not None and _is_row(text):
        return row_of(points, int(text), option)
    values = _numbers(text, option)
    if len(values) != prod(shape):
        hint = f"; to take row {text.strip()} of a file, give it with --inputs FILE" if _is_row(text) else ""
        raise ParameterError(
            f"{option}: expected {prod(shape)} numbers separated by commas (shape {shape}), got {len(values)}: "
            f"{text[:60]}{hint}"
        )
    return np.array(values).reshape(shape)


def _numbers(text: str, option: str, expected: str = _POINT) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"{option}: expected {expected}, got {text[:60]!r}") from None
    if not all(abs(value) < float("inf") for value in values):
        raise ParameterError(f"{option}: expected finite numbers, got {text[:60]!r}")
    from hardmax.networks.files.inputs import LARGEST

    if max(map(abs, values)) > LARGEST:
        raise ParameterError(
            f"{option}: expected numbers of size {LARGEST:g} at most, whose products are floats too, got {text[:60]!r}"
        )
    return values

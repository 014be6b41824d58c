"""From numbers to files: each figure computed, drawn, and written with its tables and its caption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import ParameterError, WriteError
from hardmax.networks.files.opening import package_version, shown, write_bytes
from hardmax.show.figures.style import new_figure, settings
from hardmax.show.figures.tables import Caption

NUMBERS = (1, 2, 3, 4, 5, 6, 7)
FORMATS = ("pdf", "svg", "png")

_SCHEMA = 1
_LAYOUTS = 5  # passes until titles above axes of equal scales have their room


def figures(
    numbers: int | Iterable[int] | None = None,
    folder: str | os.PathLike[str] = "figures",
    *,
    formats: Iterable[str] = FORMATS,
    force: bool = False,
    seed: int = 0,
    progress: Callable[[int, str], None] | None = None,
) -> tuple[Path, ...]:
    """Draw the paper's figures, as they are in truth; returns the files written.

    Each figure comes in every format asked for, with its numbers as CSV (``figure-4.csv`` and, where there is more than
    one table, ``figure-4-faces.csv``) and its caption as text, which says what the paper printed and what is true.

    Parameters
    ----------
    numbers : a number from 1 to 7, several, or None for all.
    folder : where to; made if it does not exist.
    formats : any of "pdf", "svg" and "png".
    force : replace files that exist.
    seed : of the random draws, which only figure 6 has.
    progress : called with the number and the name of each figure before it is computed.

    Exactness: every table has a column that says it for each row.

    Raises
    ------
    MissingExtraError
        Without matplotlib.
    WriteError
        Where a file exists or cannot be written; nothing is half-written.

    Examples
    --------
    >>> figures(8)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: expected figures between 1 and 7, got 8
    """
    wanted, kinds, target = checked_numbers(numbers), checked_formats(formats), Path(folder)
    with settings():  # first of all: without matplotlib nothing is computed and no folder made
        _check_folder(target)
        _check_absent(target, wanted, kinds, force)
        written: list[Path] = []
        for number in wanted:
            if progress is not None:
                progress(number, figure_module(number).NAME)
            files = {target / name: data for name, data in contents(number, kinds, seed).items()}
            there = next((file for file in files if os.path.exists(file) and not force), None)
            if there is not None:  # before the first of them is written
                raise _exists(there)
            for file, data in files.items():
                write_bytes(file, data)
            written += files
    return tuple(written)


def contents(number: int, formats: Iterable[str] = FORMATS, seed: int = 0) -> dict[str, bytes]:
    """Everything that belongs to one figure, by file name, in memory."""
    module = figure_module(number)
    values = module.compute(np.random.default_rng(seed))
    tables = module.tables(values)
    files: dict[str, bytes] = {}
    with settings():
        figure = new_figure(*module.SIZE)
        module.draw(values, figure)
        for _ in range(_LAYOUTS):
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # or each file would move it again, and depend on those asked for before it
        for kind in formats:
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata(number, kind, seed))
            files[f"figure-{number}.{kind}"] = buffer.getvalue()
    names = {part: f"figure-{number}{'-' if part else ''}{part}.csv" for part in tables}
    for part, table in tables.items():
        files[names[part]] = table.csv().encode()
    text = caption_text(number, module.caption(values), tuple(names.values()), seed)
    files[f"figure-{number}.txt"] = text.encode()
    return files


def metadata(number: int, kind: str, seed: int) -> dict[str, Any]:
    """What a picture's file says of itself: no dates and no drawing library, so that equal numbers make equal bytes."""
    title, maker = f"Figure {number}: {figure_module(number).NAME}", f"hardmax {package_version()}"
    origin = f"hardmax figures {number} --seed {seed} ({maker}, schema {_SCHEMA})"
    if kind == "pdf":
        return {"Title": title, "Creator": maker, "Subject": origin, "CreationDate": None, "Producer": None}
    if kind == "svg":
        return {"Title": title, "Creator": None, "Description": origin, "Date": None}
    return {"Title": title, "Software": maker, "Description": origin}


def figure_module(number: int) -> Any:
    """The module of a figure: ``NAME``, ``SIZE``, ``compute``, ``draw``, ``tables`` and ``caption``."""
    return import_module(f"hardmax.show.figures.figure_{number}")


def caption_text(number: int, caption: Caption, tables: tuple[str, ...], seed: int) -> str:
    """A caption as the text file beside the figure."""
    return (
        f"Figure {number}. {caption.shows}\n\nThe paper printed: {caption.printed}\n\nWhat is true: {caption.true}\n\n"
        f"Data: {', '.join(tables)}. Drawn by: hardmax figures {number} --seed {seed} "
        f"(hardmax {package_version()}, schema {_SCHEMA}).\n"
    )


def checked_numbers(numbers: int | Iterable[int] | None) -> tuple[int, ...]:
    """Figure numbers, increasing and each once; all for None."""
    if numbers is None:
        return NUMBERS
    wanted = [numbers] if isinstance(numbers, int | np.integer) else list(numbers)
    for number in wanted:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number not in NUMBERS:
            raise ParameterError(f"expected figures between 1 and {NUMBERS[-1]}, got {number!r}")
    if not wanted:
        raise ParameterError("expected at least one figure between 1 and 7, got none; None stands for all")
    return tuple(sorted({int(number) for number in wanted}))


def checked_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """File formats in lower case, each once."""
    wanted = [formats] if isinstance(formats, str) else list(formats)
    kinds = [str(kind).strip().lower().removeprefix(".") for kind in wanted]
    for kind in kinds:
        if kind not in FORMATS:
            raise ParameterError(f"formats: expected some of {', '.join(FORMATS)}, got {kind!r}")
    if not kinds:
        raise ParameterError(f"formats: expected at least one of {', '.join(FORMATS)}, got none")
    return tuple(dict.fromkeys(kinds))


def _check_folder(folder: Path) -> None:
    """Make the folder if needed, and see that it takes files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        why = getattr(error, "strerror", None) or error
        raise WriteError(
            f"{shown(folder)}: expected a folder, or a place where one can be made ({why}); nothing was drawn"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteError(f"{folder}: expected a folder that can be written to; nothing was drawn")


def _check_absent(folder: Path, numbers: tuple[int, ...], formats: tuple[str, ...], force: bool) -> None:
    """Refuse before the first figure is computed, not after."""
    for number in numbers:
        for ending in (*formats, "csv", "txt"):
            if not force and os.path.exists(folder / f"figure-{number}.{ending}"):
                raise _exists(folder / f"figure-{number}.{ending}")


def _exists(file: Path) -> WriteError:
    return WriteError(f"{file}: the file exists; expected a folder without it, or force=True (--force) to replace it")

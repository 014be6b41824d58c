"""Names of classes: a list, a text file with one on each line, a tokenizer, a table from numbers to labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hardmax.errors import ParameterError, ShapeError
from hardmax.exactness import as_tuple
from hardmax.networks.files.opening import text_of

#: What CTC writes between characters, and what the last class of PaddleOCR's dictionaries is.
BLANK, SPACE = "<blank>", " "


def class_names(given: Any, n_classes: int, where: str) -> tuple[str, ...] | None:
    """The names that a caller gave, one for each class; None where none were given.

    A text file with one or two lines fewer than classes is a dictionary of characters: class 0 is CTC's blank, and
    the last class the space, as PaddleOCR has it.

    Examples
    --------
    >>> class_names(["yes", "no"], 2, "layer")
    ('yes', 'no')
    >>> class_names({0: "cat", 1: "dog"}, 2, "layer")
    ('cat', 'dog')
    >>> class_names(["yes"], 2, "layer")
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: names: expected 2, one for each class of layer, got 1
    """
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return padded(_lines(Path(given)), n_classes, f"names in {Path(given).name}", where)
    if hasattr(given, "convert_ids_to_tokens"):  # of transformers; the model's table may be longer
        known = len(given)
        names = given.convert_ids_to_tokens(list(range(min(known, n_classes))))
        return tuple(str(name) for name in names) + tuple(f"<unused {i}>" for i in range(known, n_classes))
    if hasattr(given, "id_to_token"):  # a tokenizer of tokenizers
        return tuple(given.id_to_token(i) or f"<unused {i}>" for i in range(n_classes))
    if isinstance(given, Mapping):
        try:
            table = {int(number): str(name) for number, name in given.items()}
        except (TypeError, ValueError):
            raise ParameterError("names: expected a table from class numbers to names, got other keys") from None
        return tuple(table.get(i, f"<unnamed {i}>") for i in range(n_classes))
    if not isinstance(given, Iterable):
        kind = type(given).__name__
        raise ParameterError(f"names: expected a list, a text file, a tokenizer or a table, got a {kind}")
    names = tuple(map(str, as_tuple("names", "names", given)))
    if len(names) != n_classes:
        raise ShapeError(f"names: expected {n_classes}, one for each class of {where}, got {len(names)}")
    return names


def padded(names: list[str], n_classes: int, what: str, where: str) -> tuple[str, ...]:
    """Names of a dictionary of characters with what CTC and PaddleOCR put around it."""
    for whole in (names, [BLANK, *names], [BLANK, *names, SPACE]):
        if len(whole) == n_classes:
            return tuple(whole)
    raise ShapeError(f"{what}: expected {n_classes}, one for each class of {where}, got {len(names)}")


def _lines(path: Path) -> list[str]:
    # not splitlines: some dictionaries hold characters that Unicode counts as line ends
    lines = text_of(path).split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]

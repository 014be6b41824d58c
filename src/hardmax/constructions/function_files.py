"""Piecewise-linear functions in files: CSV tables of points and values, JSON of affine pieces."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.constructions.piecewise import (
    PiecewiseLinear,
    difference_of_maxima,
    max_of_minima,
    piecewise_linear,
    piecewise_linear_from_pieces,
)
from hardmax.errors import FileFormatError, HardmaxError, ShapeError
from hardmax.networks.files.inputs import table_rows
from hardmax.networks.files.opening import LIMITS, Limits, as_path, shown, text_of
from hardmax.networks.network import Network
from hardmax.tropical.polynomial import TropicalPolynomial

_FORMS = '{"plus", "minus"}, {"pieces"}, {"pieces", "groups"}, {"pieces", "simplices"} or {"points", "values"}'


def read_function(path: str | Path) -> PiecewiseLinear | Network:
    """The function in a .csv table or a .json file of affine pieces.

    CSV: one point a row, its coordinates and then the value; a first row without any number is taken for
    names and skipped.
    Numbers are taken as written, ``0.1`` and ``1/3`` exactly.

    JSON: an object with one of these sets of keys, a piece being its slope's entries and then its offset:

    * ``plus`` and ``minus``, lists of pieces: the difference of their maxima;
    * ``pieces``, with or without ``groups`` (lists of piece numbers): their maximum, or the maximum of the
      groups' minima;
    * ``pieces`` and ``simplices`` (lists of corners): each piece on its simplex;
    * ``points`` and ``values``, with or without ``triangles``: as ``hm.piecewise_linear``.

    Raises
    ------
    FileFormatError
        What the file holds is none of these.
    """
    file = as_path(path)
    where, ending = shown(file), file.suffix.lower()
    if ending not in (".csv", ".json"):
        raise FileFormatError(f"{where}: expected a .csv or .json file, got {shown(ending, 40) or 'no ending'!r}")
    text = text_of(file, Limits(file_bytes=LIMITS.text_bytes))
    try:
        return _from_csv(text) if ending == ".csv" else _from_json(text)
    except HardmaxError as error:
        raise type(error)(f"{where}: {shown(error, 800)}") from None


def _from_csv(text: str) -> PiecewiseLinear:
    rows: list[list[Fraction]] = []
    for line, values in table_rows(text.splitlines(), "", _number):
        rows.append(values)
        if len(values) < 2 or len(values) != len(rows[0]):
            raise FileFormatError(
                f"line {line}: expected one coordinate or more and a value, as many in every row, got "
                f"{len(values)} numbers"
            )
    if not rows:
        raise FileFormatError("expected rows of coordinates and a value, got none")
    table = np.array(rows, dtype=object)
    return piecewise_linear(table[:, :-1], table[:, -1])


def _number(text: str) -> Fraction:
    """A number as it is written; one that no float comes near is refused before it is worked out."""
    exponent = text.lower().partition("e")[2].lstrip("+-")
    if len(text) > 2000 or len(exponent.lstrip("0")) > 3:
        raise ValueError("expected a number within the range of floats")
    return Fraction(text)


def _from_json(text: str) -> PiecewiseLinear | Network:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"expected JSON, got text that does not parse ({error})") from None
    keys = set(content) if isinstance(content, dict) else None
    if keys == {"plus", "minus"}:
        return difference_of_maxima(_polynomial(content, "plus"), _polynomial(content, "minus"))
    if keys == {"pieces"} or keys == {"pieces", "groups"}:
        pieces = _polynomial(content, "pieces")
        groups = content.get("groups", [[j] for j in range(pieces.n_terms)])
        if not isinstance(groups, list) or not all(
            isinstance(group, list) and all(type(j) is int for j in group) for group in groups
        ):
            raise FileFormatError("groups: expected a list of lists of piece numbers")
        return max_of_minima(pieces.slopes, pieces.offsets, groups)
    if keys == {"pieces", "simplices"}:
        pieces = _polynomial(content, "pieces")
        if not isinstance(content["simplices"], list):
            raise FileFormatError("simplices: expected a list of lists of corners")
        return piecewise_linear_from_pieces(content["simplices"], pieces.slopes, pieces.offsets)
    if keys in ({"points", "values"}, {"points", "values", "triangles"}):
        return piecewise_linear(content["points"], content["values"], content.get("triangles"))
    got = shown(", ".join(sorted(map(str, keys))) if keys is not None else type(content).__name__)
    raise FileFormatError(f"expected an object with the keys {_FORMS}, got {got or 'none'}")


def _polynomial(content: dict[str, Any], name: str) -> TropicalPolynomial:
    try:
        rows = np.array(content[name], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        rows = np.empty(0)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ShapeError(f"{name}: expected rows of equal length, each a slope's entries and then an offset")
    return TropicalPolynomial(rows[:, :-1], rows[:, -1])

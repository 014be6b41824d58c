"""Audits in files: an .npz of plain arrays with the head, the verdicts and every proof."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.cells.storage import read_arrays, write_arrays
from hardmax.errors import FileFormatError, HardmaxError, ParameterError
from hardmax.heads.classes.certificates import ClassRecord
from hardmax.heads.classes.domains import read_domain
from hardmax.heads.classes.sources import arrays_head
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover
from hardmax.networks.files.opening import package_version

FORMAT = "hardmax.classes"


def save_classes(audit: ClassRecord, path: str | os.PathLike[str]) -> None:
    """Write an audit to an .npz file, whole or not at all; ``audit.save(path)`` calls this.

    Raises
    ------
    WriteError
        The file could not be written; nothing was changed.
    """
    domain = audit.domain
    exact = {
        i: [str(x) for x in cover.multipliers]
        for i, cover in enumerate(audit.covers)
        if isinstance(cover.multipliers, tuple)
    }
    header = {
        "version": package_version(),
        "exactness": audit.exactness.value,
        "domain": domain.kind,
        "names": list(audit.names),
        "reason": audit.reason,
        "kinds": [cover.kind for cover in audit.covers],
        "exact_queries": {str(i): [str(x) for x in query] for i, query in audit.exact_queries.items()},
        "exact_multipliers": {str(i): numbers for i, numbers in exact.items()},
    }
    columns = [np.array(cover.columns, dtype=np.int64) for cover in audit.covers]
    floats = [
        np.zeros(0) if cover.multipliers is None or i in exact else np.asarray(cover.multipliers, dtype=np.float64)
        for i, cover in enumerate(audit.covers)
    ]
    arrays = {
        "weights": _smallest(audit.weights),
        "bias": _smallest(audit.bias),
        "low": domain.low,
        "high": domain.high,
        "centre": domain.centre,
        "radius": np.array([domain.radius]),
        "status": audit.status,
        "queries": _smallest(audit.queries),
        "query_of": audit.query_of,
        "cover_of": audit.cover_of,
        "cover_sizes": np.array([len(each) for each in columns], dtype=np.int64),
        "cover_columns": np.concatenate([np.zeros(0, dtype=np.int64), *columns]),
        "multiplier_sizes": np.array([len(each) for each in floats], dtype=np.int64),
        "multipliers": np.concatenate([np.zeros(0), *floats]),
    }
    write_arrays(_npz_path(path), header, arrays, FORMAT)


def _smallest(values: Any) -> Any:
    """The same numbers in binary32 where that loses nothing."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values, equal_nan=True) else values


def read_classes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the audit in a file; ``hm.load_classes`` calls this."""
    file = _npz_path(path)
    header, arrays = read_arrays(file, FORMAT)
    try:
        return _restored(header, arrays, str(file))
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        if isinstance(error, FileFormatError):
            raise
        what = str(error) if isinstance(error, HardmaxError) else f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{file}: its description is damaged ({what})") from None


def _restored(header: dict[str, Any], arrays: dict[str, Any], where: str) -> dict[str, Any]:
    head = arrays_head(arrays["weights"], arrays["bias"], header["names"])
    n, d = head.weights.shape
    kind = header["domain"]
    words: Any = kind
    if kind == "box":
        words = ("box", arrays["low"], arrays["high"])
    elif kind == "ball":
        words = ("ball", arrays["centre"], arrays["radius"][0])
    status, query_of, cover_of = (arrays[name] for name in ("status", "query_of", "cover_of"))
    queries = np.asarray(arrays["queries"], dtype=np.float64)
    exact = {int(i): tuple(map(Fraction, numbers)) for i, numbers in header["exact_multipliers"].items()}
    columns = np.split(arrays["cover_columns"], np.cumsum(arrays["cover_sizes"])[:-1]) if len(header["kinds"]) else []
    floats = np.split(arrays["multipliers"], np.cumsum(arrays["multiplier_sizes"])[:-1]) if len(header["kinds"]) else []
    covers = tuple(
        Cover(tuple(int(j) for j in each), kind_, exact.get(i, numbers if len(numbers) else None))
        for i, (each, kind_, numbers) in enumerate(zip(columns, header["kinds"], floats, strict=True))
    )
    fits = (
        all(array.shape == (n,) and array.dtype.kind == "i" for array in (status, query_of, cover_of))
        and np.isin(status, (LIVE, DEAD, UNDECIDED)).all()
        and queries.ndim == 2
        and queries.shape[1] == d
        and ((query_of >= 0) == (status == LIVE)).all()
        and (query_of < len(queries)).all()
        and ((cover_of >= 0) == (status == DEAD)).all()
        and (cover_of < len(covers)).all()
        and all(0 <= j < n + 2 * d for cover in covers for j in cover.columns)
    )
    if not fits:
        raise FileFormatError(f"{where}: its arrays do not fit together; the file is damaged")
    exact_queries = {int(i): tuple(map(Fraction, query)) for i, query in header["exact_queries"].items()}
    return {
        "weights": head.weights,
        "bias": head.bias,
        "names": head.names,
        "domain": read_domain(words, d),
        "status": status.astype(np.int8),
        "queries": queries,
        "query_of": query_of.astype(np.int64),
        "exact_queries": exact_queries,
        "covers": covers,
        "cover_of": cover_of.astype(np.int64),
        "reason": str(header["reason"]),
    }


def _npz_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(f"expected the path of an .npz file, got a {type(path).__name__}")
    file = Path(path)
    if file.suffix.lower() != ".npz":
        raise FileFormatError(f"{file}: expected a file ending in .npz, got {file.suffix or 'no ending'!r}")
    return file

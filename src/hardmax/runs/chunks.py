"""Chunks of work as bytes: numbers and arrays, the same bytes for the same chunk, and never a pickle.

A chunk is known by the hash of its bytes and of the plan it belongs to. What a worker makes of one is a ``Done``: rows
of a table, facts about them, and the chunks that are left to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError

_MAGIC = b"hardmax chunk 1\n"


def packed(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Facts that JSON has words for, and arrays of plain numbers, as bytes.

    Examples
    --------
    >>> facts, arrays = unpacked(packed({"rows": 2}, {"x": np.arange(2.0)}))
    >>> facts["rows"], arrays["x"].tolist()
    (2, [0.0, 1.0])
    """
    plain = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in plain.items()}
    head = json.dumps({"facts": dict(facts), "arrays": shapes}, sort_keys=True, allow_nan=False).encode()
    body = [plain[name].tobytes() for name in sorted(plain)]
    return b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *body])


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What ``packed`` put into bytes; damaged ones are refused."""
    start = len(_MAGIC) + 8
    try:
        if not data.startswith(_MAGIC):
            raise ValueError("it begins otherwise")
        at = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        head = json.loads(data[start:at])
        arrays = {}
        for name, (dtype, shape) in sorted(head["arrays"].items()):
            kind = np.dtype(dtype)
            if kind.kind not in "fiub":
                raise ValueError(f"an array of {kind}")
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(data, dtype=kind, count=count, offset=at).reshape(shape).copy()
            at += arrays[name].nbytes
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
        return dict(head["facts"]), arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"a chunk of work is damaged ({type(error).__name__}: {error})") from None


@dataclass(frozen=True)
class Chunk:
    """Some work: its name, about how much it is, and what a worker is told."""

    name: str
    estimate: float
    data: bytes

    @classmethod
    def of(cls, plan: str, data: bytes, estimate: float = 1.0) -> Chunk:
        """A chunk of a plan, named by the hash of both."""
        return cls(hashlib.sha256(plan.encode() + data).hexdigest()[:32], estimate, data)


@dataclass(frozen=True)
class Done:
    """What became of a chunk: a table's columns, facts that JSON has words for, and what is left of it."""

    columns: dict[str, Any]
    facts: dict[str, Any]
    left: tuple[tuple[bytes, float], ...] = ()

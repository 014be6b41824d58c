"""Tables as Parquet, through pyarrow: columns of numbers, texts, and lists of different lengths."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, needing
from hardmax.exactness import IntArray

_KEY = b"hardmax"


class Lists(NamedTuple):
    """A column of lists: row i holds ``values[start[i] : start[i + 1]]``."""

    start: IntArray
    values: NDArray[Any]

    @classmethod
    def of(cls, rows: Sequence[Any], dtype: Any = np.float64) -> Lists:
        """Lists as they are; None counts as empty."""
        arrays = [np.asarray(() if row is None else row, dtype=dtype).reshape(-1) for row in rows]
        return cls(
            np.cumsum([0, *map(len, arrays)]),
            np.concatenate([np.zeros(0, dtype=dtype), *arrays]),
        )

    @classmethod
    def of_rows(cls, array: NDArray[Any]) -> Lists:
        """The rows of an array, each as one list."""
        n, size = len(array), int(np.prod(array.shape[1:], dtype=np.int64))
        return cls(np.arange(n + 1) * size, np.ascontiguousarray(array).reshape(-1))


def pyarrow() -> Any:
    """pyarrow, or what to install."""
    with needing("runs need pyarrow for their tables", "runs"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def table_bytes(columns: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """A Parquet file with the columns, and facts in its description."""
    arrow = pyarrow()
    arrays = {
        name: arrow.LargeListArray.from_arrays(np.asarray(column.start, dtype=np.int64), column.values)
        if isinstance(column, Lists)
        else arrow.array(column)
        for name, column in columns.items()
    }
    table = arrow.table(arrays).replace_schema_metadata({_KEY: json.dumps(dict(facts), allow_nan=False)})
    out = io.BytesIO()
    arrow.parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def read_facts(data: bytes, where: str) -> dict[str, Any]:
    """The facts in a table's description."""
    arrow = pyarrow()
    try:
        found = arrow.parquet.read_schema(io.BytesIO(data)).metadata[_KEY]
        return dict(json.loads(found))
    except (arrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{where}: expected a table of a run ({type(error).__name__}: {error!s:.200})") from None


def read_columns(data: bytes, names: Sequence[str] | None, where: str) -> dict[str, Any]:
    """The columns of a table: arrays, ``Lists``, or plain lists of texts; None: all of them."""
    arrow = pyarrow()
    try:
        table = arrow.parquet.read_table(io.BytesIO(data), columns=names)
        return {name: _column(arrow, table.column(name)) for name in table.column_names}
    except (arrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{where}: its table is damaged ({type(error).__name__}: {error!s:.200})") from None


def _column(arrow: Any, chunked: Any) -> Any:
    array = chunked.combine_chunks()
    if arrow.types.is_large_list(array.type):
        start = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return Lists(start - start[0], array.flatten().to_numpy(zero_copy_only=False))
    if not array.null_count and (arrow.types.is_floating(array.type) or arrow.types.is_integer(array.type)):
        return array.to_numpy(zero_copy_only=False)
    return array.to_pylist()

"""Verdicts on a head as given, who lives with which query and why a class is dead, and their files.

A file is an .npz of plain arrays with the head, the verdicts and every proof.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.storage import npz_path, read_arrays, write_arrays
from hardmax.errors import FileFormatError, HardmaxError, ParameterError, PrecisionError
from hardmax.exact.elimination import solve_floats
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray, ReadOnlyArrays, as_index, check_flag, frozen
from hardmax.heads.classes.domains import FeatureDomain, read_domain
from hardmax.heads.classes.problem import cover_system
from hardmax.heads.classes.sources import arrays_head
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover
from hardmax.networks.files.opening import package_version, refusing

FORMAT = "hardmax.classes"


@dataclass(frozen=True, eq=False)
class Certificate:
    """Rivals whose mixture scores at least as much as a dead class at every query of the domain.

    On all of space the mixture of the rivals' rows is the class's row and the mixture of their biases is no smaller
    than its bias. With walls the mixture may exceed the row where a low wall holds, and fall short of it where a high
    one does: ``exact_excess`` tells by how much. On a ball the mixture's lead at the centre outweighs the radius times
    the length of its difference from the row. ``kind`` is "mixture", "ball", or "inside": no rivals then, the cell of
    the class lies inside the unit sphere.

    Exactness: certified; ``weights`` are floats near weights that are proved to exist, ``exact()`` gives those.
    """

    index: int
    kind: str
    rivals: IntArray  # (rivals,) classes, affinely independent where the kind is "mixture"
    walls: IntArray  # (walls,) k for the low wall of feature k, d + k for its high one
    _head: tuple[FloatArray, FloatArray, FeatureDomain]
    _cover: Cover

    @cached_property
    def _matrix(self) -> FloatArray:
        columns = np.append(self.rivals, len(self._head[0]) + self.walls)
        return cover_system(*self._head, columns.tolist())[0]

    @cached_property
    def weights(self) -> FloatArray:
        """(rivals,) floats >= 0 that sum to one up to rounding."""
        if self._cover.multipliers is not None:
            found = np.array([float(x) for x in self._cover.multipliers])
        elif len(self.rivals) + len(self.walls) <= 1:
            found = np.ones(len(self.rivals))
        else:
            right = np.append(self._head[0][self.index], 1.0)
            n = len(self.rivals)
            scale = np.ldexp(1.0, -np.frexp(np.abs(self._matrix[:, :n]).max(axis=1))[1])
            # a wall's multiplier has no size of its own, so its column is not scaled with the rows
            scaled = np.concatenate([self._matrix[:, :n] * scale[:, None], self._matrix[:, n:]], axis=1)
            found = np.linalg.lstsq(scaled, right * scale, rcond=None)[0][:n]
            if not (np.isfinite(found).all() and (found > 0).all()):
                found = np.array([float(x) for x in self.exact()])
        found = found / found.sum() if len(found) else found
        return frozen(found)

    def exact(self) -> tuple[Fraction, ...]:
        """The rivals' weights as rationals: nonnegative, of sum one.

        Exactness: exact.
        """
        found = self._exact_multipliers[: len(self.rivals)]
        total = sum(found, Fraction(0))
        return tuple(x / total for x in found)

    @cached_property
    def _exact_multipliers(self) -> list[Fraction]:
        if self._cover.multipliers is not None:
            return [Fraction(x) for x in self._cover.multipliers]
        found = solve_floats(self._matrix, np.append(self._head[0][self.index], 1.0))
        if found is None:
            raise PrecisionError(
                f"class {self.index}: the system of its {len(self.rivals)} rivals could not be solved in rationals; "
                "install hardmax[exact] and ask again"
            )
        return found

    def exact_excess(self) -> tuple[Fraction, ...]:
        """(d,) mixture minus row, exactly: zero on all of space, >= 0 where only a low wall is, <= 0 at a high one."""
        rows = self._head[0]
        mixed = [-Fraction(x) for x in rows[self.index].tolist()]
        for j, share in zip(self.rivals.tolist(), self.exact(), strict=True):
            mixed = [total + share * Fraction(x) for total, x in zip(mixed, rows[j].tolist(), strict=True)]
        return tuple(mixed)


@dataclass(frozen=True, eq=False)
class ClassRecord(ReadOnlyArrays):
    """The verdicts on a head with their proofs; ``ClassAudit`` adds what can be asked."""

    weights: FloatArray  # (N, d)
    bias: FloatArray  # (N,)
    names: tuple[str, ...]
    domain: FeatureDomain
    status: NDArray[np.int8] = field(repr=False)  # (N,) 1 live, 0 dead, -1 undecided
    queries: FloatArray = field(repr=False)  # (live, d)
    query_of: IntArray = field(repr=False)  # (N,) row of ``queries``, -1 where there is none
    exact_queries: dict[int, tuple[Fraction, ...]] = field(repr=False)
    covers: tuple[Cover, ...] = field(repr=False)  # columns: classes, then N + k low and N + d + k high walls
    cover_of: IntArray = field(repr=False)  # (N,)
    reason: str = ""  # where the rows come from, and why the domain is what it is
    assumed: str = ""  # of what stands behind the rows in a model, where that was not read: not proved

    @property
    def n_classes(self) -> int:
        return len(self.weights)

    @property
    def live(self) -> BoolArray:
        """(N,) classes that some query of the domain makes the answer."""
        return np.asarray(self.status == LIVE)

    @property
    def dead(self) -> BoolArray:
        """(N,) classes that no query of the domain makes the answer."""
        return np.asarray(self.status == DEAD)

    @property
    def n_live(self) -> int:
        return int(self.live.sum())

    @property
    def n_dead(self) -> int:
        return int(self.dead.sum())

    @property
    def n_undecided(self) -> int:
        return int((self.status == UNDECIDED).sum())

    @property
    def exactness(self) -> Exactness:
        """Certified: every verdict carries its proof."""
        return Exactness.CERTIFIED

    def witness(self, index: int, *, exact: bool = False) -> Any:
        """A query (d,) of the domain that class ``index`` alone wins (its later copies aside).

        On the sphere the query stands for its direction. With ``exact`` the same query as rationals.

        Raises
        ------
        ParameterError
            The class is not live.
        PrecisionError
            No float query was found in its thin cell; ``exact=True`` gives a rational one.
        """
        i, exact = self._class(index, LIVE, "a witness", "live"), check_flag("exact", exact)
        if i in self.exact_queries:
            if exact:
                return self.exact_queries[i]
            raise PrecisionError(
                f"class {i} ({self.names[i]}) wins in so thin a cell that no float query was found in it; "
                f"witness({i}, exact=True) gives a rational one"
            )
        query = self.queries[self.query_of[i]]
        return tuple(Fraction(x) for x in query.tolist()) if exact else query

    def certificate(self, index: int) -> Certificate:
        """Why class ``index`` is dead: rivals and the weights with which they cover it.

        Raises
        ------
        ParameterError
            The class is not dead.
        """
        i = self._class(index, DEAD, "a certificate", "dead")
        cover = self.covers[self.cover_of[i]]
        columns = np.array(cover.columns, dtype=np.int64)
        is_rival = columns < self.n_classes
        return Certificate(
            i,
            cover.kind,
            columns[is_rival],
            columns[~is_rival] - self.n_classes,
            (self.weights, self.bias, self.domain),
            cover,
        )

    def _class(self, index: Any, status: int | None, what: str, word: str) -> int:
        index = as_index("class", index, self.n_classes)
        if status is not None and self.status[index] != status:
            is_now = {LIVE: "live", DEAD: "dead", UNDECIDED: "undecided"}[int(self.status[index])]
            raise ParameterError(
                f"class {index} ({self.names[index]}) is {is_now}; expected a {word} class, only those have {what}"
            )
        return int(index)


# --- files --------------------------------------------------------------------------------------


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
        "assumed": audit.assumed,
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
        **{name: _smallest(getattr(audit, name)) for name in ("weights", "bias", "queries")},
        **{name: getattr(audit, name) for name in ("status", "query_of", "cover_of")},
        **{name: getattr(domain, name) for name in ("low", "high", "centre")},
        "radius": np.array([domain.radius]),
        "cover_sizes": np.array([len(each) for each in columns], dtype=np.int64),
        "cover_columns": np.concatenate([np.zeros(0, dtype=np.int64), *columns]),
        "multiplier_sizes": np.array([len(each) for each in floats], dtype=np.int64),
        "multipliers": np.concatenate([np.zeros(0), *floats]),
    }
    write_arrays(npz_path(path), header, arrays, FORMAT)


def _smallest(values: Any) -> Any:
    """The same numbers in binary32 where that loses nothing."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values, equal_nan=True) else values


def read_classes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the audit in a file; ``hm.load_classes`` calls this."""
    file = npz_path(path)
    header, arrays = read_arrays(file, FORMAT)
    try:
        with refusing(FileFormatError, f"{file}: its description is damaged"):
            return _restored(header, arrays, str(file))
    except FileFormatError:
        raise
    except HardmaxError as error:  # what is refused as an argument does not name the file
        raise FileFormatError(f"{file}: its description is damaged ({error})") from None


def _restored(header: dict[str, Any], arrays: dict[str, Any], where: str) -> dict[str, Any]:
    head = arrays_head(arrays["weights"], arrays["bias"], header["names"])
    n, d = head.weights.shape
    bounds = (arrays[name] for name in ("low", "high", "centre", "radius"))
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
        "domain": read_domain(FeatureDomain(header["domain"], *bounds), d),
        "status": status.astype(np.int8),
        "queries": queries,
        "query_of": query_of.astype(np.int64),
        "exact_queries": exact_queries,
        "covers": covers,
        "cover_of": cover_of.astype(np.int64),
        "reason": str(header["reason"]),
        "assumed": str(header.get("assumed", "")),  # files of older versions say nothing
    }

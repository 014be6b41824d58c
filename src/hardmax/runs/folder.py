"""The folder of a run: its plan, the chunks that are known, and the parts that are finished.

    plan.json, problem         what is computed with its hash, for people and for workers
    chunks/NAME                what is left of a chunk that was too large, as new chunks (``chunks.packed``)
    parts/NAME-CHECK.parquet   what became of a chunk: its rows, and the names of the chunks that are left of it

Every file is put in place whole. A part is named by its chunk and by the hash of its own bytes, and written after
the chunks it names: whatever ends the process, and whenever, what the parts say together is true. Parts count when
they are reached from the first chunks of the plan, each once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardmax.errors import FileFormatError, HardmaxError, MissingExtraError, ParameterError, WriteError
from hardmax.networks.files.opening import contents, only_here, package_version, shown, write_bytes
from hardmax.runs.chunks import Chunk, Done
from hardmax.runs.tables import read_columns, read_facts, table_bytes

SCHEMA = 1
FORMAT = "hardmax.run"
_PLAN, _PROBLEM, _LOCK = "plan.json", "problem", ".lock"


@dataclass(frozen=True)
class Part:
    """A finished part: the facts about it, and the names and estimates of the chunks left of its own."""

    file: Path
    facts: dict[str, Any]
    left: tuple[tuple[str, float], ...]

    def columns(self, names: list[str] | None = None) -> dict[str, Any]:
        """The columns of its table."""
        return read_columns(contents(self.file), names, shown(self.file))


class RunFolder:
    """A folder in which a run keeps what it has; ``begun`` by its plan, which another run does not have."""

    def __init__(self, folder: Path, kind: str, plan: str, disk: int | None = None) -> None:
        self.where, self.kind, self.plan, self.disk = folder, kind, plan, disk
        self.n_damaged = 0
        self._is_held = False
        self._look()

    def _look(self) -> None:
        """See what is there."""
        self._parts: dict[str, list[Path]] = {}
        for file in (self.where / "parts").glob("*.parquet"):
            self._parts.setdefault(file.name.partition("-")[0], []).append(file)
        self._used = sum(state.st_size for file in self.where.rglob("*") if (state := _file_state(file)) is not None)

    @classmethod
    def begun(
        cls, folder: Any, identity: Mapping[str, Any], about: Mapping[str, Any], problem: bytes, disk: int | None
    ) -> RunFolder:
        """A new folder, or one in which the same run was begun; ``about`` says for people what is computed.

        The plan is the hash of ``identity``. ``problem`` is kept, so that what was found can be read without the run.

        Raises
        ------
        WriteError
            The folder holds something else, another run for one; nothing was changed then.
        """
        where, kind = _as_folder(folder), str(identity["kind"])
        text = json.dumps({**identity, "schema": SCHEMA}, sort_keys=True, allow_nan=False)
        plan = hashlib.sha256(text.encode()).hexdigest()
        is_new = _is_new(where, kind, plan)
        try:
            for name in ("chunks", "parts"):
                (where / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"{shown(where)}: cannot be used as a folder ({error.strerror or error})") from None
        if is_new:
            write_bytes(where / _PROBLEM, problem)
            head = {"format": FORMAT, "schema": SCHEMA, "package": package_version(), "kind": kind, "plan": plan}
            write_bytes(where / _PLAN, json.dumps({**head, **about, "problem": _check(problem)}, indent=1).encode())
        return cls(where, kind, plan, disk)

    @classmethod
    def opened(cls, folder: Path) -> RunFolder:
        """The folder of a run that was begun, to read what it has."""
        found = read_plan(folder)
        return cls(folder, found["kind"], found["plan"])

    def problem(self) -> bytes:
        """What its workers are told."""
        data = contents(self.where / _PROBLEM)
        if _check(data) != read_plan(self.where).get("problem"):
            raise FileFormatError(f"{shown(self.where / _PROBLEM)}: its bytes are others than were written")
        return data

    @contextmanager
    def held(self) -> Iterator[None]:
        """While this process works in the folder no other does, and only then are files removed or put aside."""
        with only_here(self.where / _LOCK) as is_alone:
            if not is_alone:
                raise WriteError(f"{shown(self.where)}: another process works in this folder; wait for it, or end it")
            for file in self.where.rglob(".hardmax-*.part"):  # what a killed process was writing
                with suppress(OSError):
                    file.unlink()
            self._look()
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False

    # --- what is there ----------------------------------------------------------------------------

    def part(self, name: str) -> Part | None:
        """The finished part of a chunk; one that is damaged is put aside and counts as none."""
        for file in self._parts.get(name, []):
            try:
                data = contents(file)
                if _check(data) != file.stem.partition("-")[2]:
                    raise FileFormatError(f"{file}: its bytes are others than were written")
                head = read_facts(data, str(file))
                if head["plan"] != self.plan or head["chunk"] != name:
                    raise FileFormatError(f"{file}: the part of another chunk")
                left = tuple((str(child), float(estimate)) for child, estimate in head["left"])
                return Part(file, dict(head["facts"]), left)
            except MissingExtraError:  # it says nothing about the part
                raise
            except (HardmaxError, KeyError, TypeError, ValueError):
                self._without(file, ".damaged")
        return None

    def discard(self, part: Part) -> None:
        """Put a part aside that cannot count."""
        self._without(part.file, ".unused")

    def _without(self, file: Path, suffix: str) -> None:
        self.n_damaged += 1
        if self._is_held:
            with suppress(OSError):
                os.replace(file, file.with_suffix(suffix))

    def chunk(self, name: str, estimate: float) -> Chunk:
        """A chunk that a part named, its bytes compared with its name."""
        file = self.where / "chunks" / name
        found = Chunk.of(self.plan, contents(file), estimate)
        if found.name != name:
            raise FileFormatError(f"{shown(file)}: its bytes are others than were written")
        return found

    # --- what comes in ----------------------------------------------------------------------------

    def keep(self, chunk: Chunk, done: Done) -> Part:
        """Write what became of a chunk: the chunks that are left of it, then its part."""
        left = [Chunk.of(self.plan, data, estimate) for data, estimate in done.left]
        for child in left:
            self._write(self.where / "chunks" / child.name, child.data)
        names = tuple((child.name, child.estimate) for child in left)
        head = {"format": FORMAT, "plan": self.plan, "chunk": chunk.name, "left": names, "facts": done.facts}
        data = table_bytes(done.columns, head)
        file = self.where / "parts" / f"{chunk.name}-{_check(data)}.parquet"
        self._write(file, data)
        return Part(file, done.facts, names)

    def _write(self, file: Path, data: bytes) -> None:
        if self.disk is not None and self._used + len(data) > self.disk:
            raise WriteError(
                f"{shown(self.where)}: {self._used + len(data):,} bytes would be more than the {self.disk:,} allowed; "
                "allow more and start again, what is finished is kept"
            )
        write_bytes(file, data)
        self._used += len(data)

    def put_aside(self, counted: Iterable[Part]) -> None:
        """Take parts that do not count (of a chunk that was divided anew, say) out of the way of whoever reads all."""
        kept = {part.file for part in counted}
        for file in (self.where / "parts").glob("*.parquet"):
            if file not in kept:
                os.replace(file, file.with_suffix(".unused"))


def _is_new(where: Path, kind: str, plan: str) -> bool:
    """Whether a run is begun in a folder, or goes on; what is neither is refused."""
    try:
        present = {file.name for file in where.iterdir()} if where.exists() else set()
    except OSError as error:
        raise WriteError(f"{shown(where)}: cannot be used as a folder ({error.strerror or error})") from None
    if _PLAN not in present:
        if any(
            name not in ("parts", "chunks", _PROBLEM, _LOCK) and not name.startswith(".hardmax-") for name in present
        ):
            raise WriteError(
                f"{shown(where)}: not the folder of a run, and not empty; name a new or an empty folder, nothing was "
                "changed"
            )
        return True
    found = read_plan(where)
    if found["plan"] != plan:
        raise WriteError(
            f"{shown(where)}: holds another run ({shown(found['kind'], 20)}, plan {found['plan'][:12]}; asked for "
            f"{kind}, plan {plan[:12]}); name another folder, nothing was changed"
        )
    return False


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of the run in a folder."""
    file = folder / _PLAN
    try:
        found = dict(json.loads(contents(file)))
        if (found["format"], found["schema"]) != (FORMAT, SCHEMA):
            raise ValueError(f"schema {found['schema']!r} of {found['format']!r}")
        return {**found, "plan": str(found["plan"]), "kind": str(found["kind"])}
    except (ValueError, KeyError, TypeError) as error:
        what = f"not the plan of a run that this version knows ({error!s:.200})"
        raise FileFormatError(f"{shown(file)}: {what}") from None


def _file_state(file: Path) -> os.stat_result | None:
    """What is known of a regular file; None where it is none, or gone by now."""
    with suppress(OSError):
        return file.stat() if file.is_file() else None
    return None


def _check(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _as_folder(folder: str | os.PathLike[str]) -> Path:
    given = os.fspath(folder) if isinstance(folder, str | os.PathLike) else folder
    if not isinstance(given, str) or not given or "\0" in given:
        raise ParameterError(f"out: expected the path of a folder, got {folder!r:.80}")
    return Path(given)

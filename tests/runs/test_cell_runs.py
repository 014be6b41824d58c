"""Counts and enumerations as runs: the same answers, whatever ends them, and nothing counted twice."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells import subtrees
from hardmax.cells.subtrees import Budget
from hardmax.errors import FileFormatError, MissingExtraError, ParameterError, RunError, WriteError
from hardmax.networks.files.opening import only_here
from hardmax.networks.library import builtin, random_relu_network
from hardmax.runs import tables
from hardmax.runs.chunks import Chunk
from hardmax.runs.processes import LocalPool
from hardmax.runs.worker import work
from runs.inline_runs import Here, KilledError, killed_at_write

pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")

SQUARE = hm.Box([0, 0], [1, 1])
GRID = hm.grid_transformer(2, 2, 2, 2)  # 256 cells on the square
RANDOM = random_relu_network([2, 12, 8, 1], rng=np.random.default_rng(3))
SOLID = random_relu_network([3, 6, 4, 1], rng=np.random.default_rng(4))

QUESTIONS = {
    "plane": (RANDOM, hm.Box([-2, -2], [2, 2])),
    "ties": (GRID, SQUARE),
    "line": (RANDOM, hm.Segment([-2.0, 1.0], [2.0, -1.0])),
    "all of the plane": (builtin("demo"), hm.Space(2)),
    "solid": (SOLID, hm.Box([-1] * 3, [1] * 3)),
    "no choices": (hm.Network([hm.Affine([[1.0, 2.0]])], 2), SQUARE),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Few pieces are cut at once, and every piece is worth a chunk."""
    monkeypatch.setattr(subtrees, "_FEWEST_CELLS", 8)
    monkeypatch.setattr(subtrees, "_MOST_CHILDREN", 16)


@pytest.mark.parametrize("mode", ["certified", "exact", "float"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_run_of_the_smallest_chunks_has_the_cells_of_one_search(name, mode, tmp_path):
    net, domain = QUESTIONS[name]
    if mode == "exact" and name not in ("ties", "line", "no choices"):
        net = random_relu_network([domain.dim, 3, 2, 1], rng=np.random.default_rng(5))
    if mode == "exact" and name == "ties":
        net = hm.grid_transformer(2, 2, 2, 1)
    cells = hm.enumerate_cells(net, domain, exactness=mode)
    here = Here()
    number = hm.count_cells(net, domain, exactness=mode, out=tmp_path / "count", on=here)
    assert (number, number.is_complete, number.exactness) == (cells.n_cells, True, cells.exactness)
    assert len(here.worked) == len(set(here.worked))
    found = hm.enumerate_cells(net, domain, exactness=mode, out=tmp_path / "map", on=Here())
    assert (found.n_cells, found.is_complete, found.exactness) == (cells.n_cells, True, cells.exactness)
    loaded = hm.load_cells(tmp_path / "map")
    assert sorted(map(tuple, loaded.labels.tolist())) == sorted(map(tuple, cells.labels.tolist()))
    assert loaded.is_complete and loaded.certificate.ok and loaded.n_settled == cells.n_settled
    assert sum(len(part) for part in found) == cells.n_cells


@pytest.mark.parametrize("kind", ["count", "map"])
def test_an_end_at_any_write_loses_no_part_and_counts_none_twice(kind, tmp_path, monkeypatch):
    net, domain = QUESTIONS["ties"]
    question = hm.count_cells if kind == "count" else hm.enumerate_cells
    whole = Here(budget=Budget(0.0, 2))
    question(net, domain, out=tmp_path / "whole", on=whole)
    n_writes = sum(1 for file in (tmp_path / "whole").rglob("*") if file.is_file())
    assert n_writes > 12
    for end in [*range(8), *range(8, n_writes, 7 if kind == "count" else 61)]:
        folder, first, second = tmp_path / f"{end}", Here(budget=whole.budget), Here(budget=whole.budget)
        restore = killed_at_write(monkeypatch, end)
        with pytest.raises(KilledError):
            question(net, domain, out=folder, on=first)
        restore()
        found = question(net, domain, out=folder, on=second)
        assert found.is_complete and int(found if kind == "count" else found.n_cells) == 256
        again = set(first.worked) & set(second.worked)
        assert again <= set(first.worked[-1:])  # the chunk whose part was being written
        parts = list((folder / "parts").iterdir())
        assert all(part.suffix == ".parquet" for part in parts)
        assert len(parts) == len({part.name[:32] for part in parts})
        third = Here()
        assert question(net, domain, out=folder, on=third).is_complete and third.worked == []


def _parts(folder, pattern="parts/*.parquet"):
    return sorted(folder.glob(pattern))


@pytest.mark.parametrize("damage", ["a byte", "cut short", "empty", "gone", "another's"])
def test_a_damaged_part_is_done_again(damage, tmp_path):
    net, domain = QUESTIONS["ties"]
    hm.count_cells(net, domain, out=tmp_path, on=Here())
    for file in _parts(tmp_path)[::3]:
        data = file.read_bytes()
        if damage == "gone":
            file.unlink()
        elif damage == "another's":
            file.write_bytes(_parts(tmp_path)[1].read_bytes())
        else:
            middle = len(data) // 2
            changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            file.write_bytes({"a byte": changed, "cut short": data[:-9], "empty": b""}[damage])
    here = Here()
    assert hm.count_cells(net, domain, out=tmp_path, on=here) == 256
    assert here.worked and len(_parts(tmp_path)) == len({file.name[:32] for file in _parts(tmp_path)})


def test_a_lost_chunk_is_made_anew_from_the_one_it_was_left_of(tmp_path):
    net, domain = QUESTIONS["ties"]
    hm.count_cells(net, domain, out=tmp_path, on=Here())
    for file in sorted((tmp_path / "chunks").iterdir())[::2]:  # what is left of these keeps its parts
        file.write_bytes(file.read_bytes()[:-1])
        for part in _parts(tmp_path, f"parts/{file.name}-*"):
            part.unlink()
    here = Here(budget=Budget(0.0, 5))  # divided otherwise than before
    assert hm.count_cells(net, domain, out=tmp_path, on=here) == 256
    counts = [tables.read_columns(file.read_bytes(), None, "")["n_cells"][0] for file in _parts(tmp_path)]
    assert sum(counts) == 256  # whoever reads all parts reads each cell once


def test_the_parts_of_a_count_are_a_table_that_duckdb_adds_up(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb, which is not installed")
    hm.count_cells(GRID, SQUARE, out=tmp_path, on=Here())
    assert duckdb.sql(f"select sum(n_cells) from '{tmp_path}/parts/*.parquet'").fetchall() == [(256,)]


def test_the_folder_of_another_run_is_refused_and_left_as_it_was(tmp_path):
    hm.count_cells(GRID, SQUARE, out=tmp_path, on=Here())
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    other = hm.grid_transformer(2, 2, 2, 1)
    for question, net, domain, mode in (
        (hm.count_cells, other, SQUARE, "certified"),
        (hm.count_cells, GRID, hm.Box([0, 0], [1, 2]), "certified"),
        (hm.count_cells, GRID, SQUARE, "float"),
        (hm.enumerate_cells, GRID, SQUARE, "certified"),
    ):
        with pytest.raises(WriteError, match="holds another run"):
            question(net, domain, mode, out=tmp_path, on=Here())
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    with pytest.raises(FileFormatError, match="keeps no cells"):
        hm.load_cells(tmp_path)


def test_folders_that_cannot_be_a_run_s_are_refused_by_name(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for folder, words in (("full", "not empty"), ("file", "folder"), ("file/below", "folder")):
        with pytest.raises(WriteError, match=words):
            hm.count_cells(GRID, SQUARE, out=tmp_path / folder, on=Here())
    assert (tmp_path / "full" / "thesis.tex").read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    for wrong in ("", 3, "a\0b"):
        with pytest.raises(ParameterError, match="out"):
            hm.count_cells(GRID, SQUARE, out=wrong, on=Here())
    hm.count_cells(GRID, SQUARE, out=tmp_path / "run", on=Here())
    (tmp_path / "run" / "plan.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"plan\.json"):
        hm.count_cells(GRID, SQUARE, out=tmp_path / "run", on=Here())


def test_a_full_disk_and_a_disk_limit_stop_a_run_that_goes_on_with_more(tmp_path):
    with pytest.raises(WriteError, match="more than the 9,000 allowed"):
        hm.count_cells(GRID, SQUARE, out=tmp_path / "small", on=Here(disk=9000))
    assert sum(file.stat().st_size for file in (tmp_path / "small").rglob("*") if file.is_file()) <= 9000
    assert hm.count_cells(GRID, SQUARE, out=tmp_path / "small", on=Here()) == 256

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Filling(Here):
        """After some chunks the system takes no more than a few bytes."""

        def pool(self, kind, problem):
            pool = super().pool(kind, problem)
            finished = pool.finished

            def watched(timeout):
                if len(self.worked) == 4:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
                return finished(timeout)

            pool.finished = watched
            return pool

    first = Filling()
    try:
        with pytest.raises(WriteError, match="File too large"):
            hm.count_cells(GRID, SQUARE, out=tmp_path / "full", on=first)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "full").rglob(".hardmax-*")) and len(_parts(tmp_path / "full")) == 4
    second = Here()
    assert hm.count_cells(GRID, SQUARE, out=tmp_path / "full", on=second) == 256
    assert not set(first.worked[:-1]) & set(second.worked)


def test_too_little_memory_is_named_and_a_little_more_divides_the_work(tmp_path):
    with pytest.raises(RunError, match="memory: a worker uses"):
        hm.count_cells(GRID, SQUARE, out=tmp_path / "none", on=Here(memory=1000))
    whole = Here(budget=Budget(60.0, 1))
    assert hm.count_cells(GRID, SQUARE, out=tmp_path / "whole", on=whole) == 256 and len(whole.worked) == 1


def test_bad_resources_are_refused(tmp_path):
    for wrong in ({"processes": 0}, {"processes": True}, {"memory": 1.5}, {"disk": -1}, {"chunk_seconds": 0},
                  {"timeout": float("nan")}):  # fmt: skip
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            hm.Resources(**wrong)
    for wrong in ({"out": None}, {"max_cells": 3}, {"stream_to": "x"}):
        with pytest.raises(ParameterError, match="out="):
            hm.enumerate_cells(GRID, SQUARE, **{"out": tmp_path / "x", "on": 1, **wrong})


def test_a_worker_of_another_version_is_refused():
    assert "install the same version" in str(work("count", b"", b"", Budget(), "0.0"))


def test_without_pyarrow_the_message_has_the_pip_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"hardmax\[runs\]"):
        hm.count_cells(GRID, SQUARE, out=tmp_path / "run", on=Here())


def test_a_folder_is_changed_by_whoever_works_in_it_alone(tmp_path, monkeypatch):
    """Not by one who reads it, who lacks a package, or who comes while another writes."""
    hm.enumerate_cells(GRID, SQUARE, out=tmp_path, on=Here())
    temporary, damaged = tmp_path / "parts" / ".hardmax-0.part", _parts(tmp_path)[-1]
    names = [file.name for file in _parts(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        for question in (lambda: hm.load_cells(tmp_path), lambda: hm.enumerate_cells(GRID, SQUARE, out=tmp_path)):
            with pytest.raises(MissingExtraError):
                question()
    temporary.write_bytes(b"what another process writes")
    with only_here(tmp_path / ".lock"), pytest.raises(WriteError, match="another process"):
        hm.enumerate_cells(GRID, SQUARE, out=tmp_path, on=Here())
    damaged.write_bytes(b"damaged")
    assert not hm.load_cells(tmp_path).is_complete
    assert [file.name for file in _parts(tmp_path)] == names and temporary.exists()
    here = Here()
    assert hm.enumerate_cells(GRID, SQUARE, out=tmp_path, on=here).n_cells == 256
    assert here.worked and not temporary.exists() and damaged.with_suffix(".damaged").exists()


def test_what_was_found_can_be_loaded_while_a_run_is_incomplete(tmp_path, monkeypatch):
    hm.enumerate_cells(GRID, SQUARE, out=tmp_path / "whole", on=Here())
    restore = killed_at_write(monkeypatch, sum(1 for file in (tmp_path / "whole").rglob("*") if file.is_file()) - 9)
    with pytest.raises(KilledError):
        hm.enumerate_cells(GRID, SQUARE, out=tmp_path / "part", on=Here())
    restore()
    cells = hm.load_cells(tmp_path / "part")
    assert not cells.is_complete and 0 < cells.n_cells < 256
    assert len(set(map(tuple, cells.labels.tolist()))) == cells.n_cells


# --- real processes ---------------------------------------------------------------------------------

_SCRIPT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore Ctrl-C
import hardmax as hm
net = hm.grid_transformer(4, 2, 2, int(sys.argv[2]))
found = hm.count_cells(net, hm.Box([0, 0], [1, 1]), out=sys.argv[1], on=hm.Resources(processes=2, chunk_seconds=0.01))
print(int(found), found.is_complete)
"""


def _started(folder, depth=3):
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(depth)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _children(pid):
    """The processes that a process has started."""
    found = []
    for status in os.listdir("/proc"):
        try:
            with open(f"/proc/{status}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(status))
        except (OSError, ValueError):
            continue
    return found


def _has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _until(question, seconds=60.0):
    end = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processes_survive_the_kill_of_a_worker_and_a_run_the_kill_of_them_all(tmp_path):
    folder = tmp_path / "run"
    process = _started(folder)
    _until(lambda: len(_parts(folder)) >= 2)
    before = set(_parts(folder))
    workers = _children(process.pid)
    assert len(workers) == 2
    process.kill()  # kill -9
    process.communicate()
    _until(lambda: all(map(_has_ended, workers)))  # whoever starts a worker takes it along
    assert before <= set(_parts(folder))
    written = {file: file.stat().st_mtime_ns for file in _parts(folder)}
    process = _started(folder)
    _until(lambda: len(_children(process.pid)) == 2 and len(_parts(folder)) > len(written))
    os.kill(_children(process.pid)[0], signal.SIGKILL)  # one worker alone: another takes its place
    out, _ = process.communicate(timeout=120)
    assert out == "262144 True\n" and process.returncode == 0
    assert {file: file.stat().st_mtime_ns for file in _parts(folder) if file in written} == written


def test_a_chunk_that_ends_every_worker_is_named():
    pool = LocalPool("count", b"", 1)
    try:
        pool.submit(Chunk("x", 1.0, b""), Budget())
        found, killed = [], set()
        while not found:
            for pid in set(pool.pids) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            found = pool.finished(0.05)
        assert isinstance(found[0][1], RunError) and "ended its worker 3 times" in str(found[0][1])
        assert len(killed) >= 3
    finally:
        pool.close()


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    folder = tmp_path / "run"
    process = _started(folder, depth=4)
    try:
        _until(lambda: len(_parts(folder)) >= 1)
        with pytest.raises(WriteError, match="another process works in this folder"):
            hm.count_cells(hm.grid_transformer(4, 2, 2, 4), SQUARE, out=folder, on=Here())
    finally:
        process.kill()
        process.communicate()


def test_an_interrupt_ends_a_run_with_what_it_has(tmp_path):
    folder = tmp_path / "run"
    process = _started(folder, depth=4)
    _until(lambda: len(_parts(folder)) >= 4)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    number, state = out.split()
    kept = [tables.read_columns(file.read_bytes(), ["n_cells"], "")["n_cells"][0] for file in _parts(folder)]
    assert state == "False" and int(number) == sum(kept) < 64**4

"""Whatever ends a search, and whenever: what was found is kept, marked, whole and once."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import label_set
from hardmax.cells import enumeration, interrupts, search, storage, streaming
from hardmax.cells.complex import CellComplex
from hardmax.errors import FileFormatError
from hardmax.networks.library import random_relu_network

TESTS = Path(__file__).resolve().parents[1]
SOURCE = str(Path(hm.__file__).parent / "cells")


@pytest.fixture(autouse=True)
def _interrupts_are_raised():
    """A shell that runs the tests in the background has interrupts ignored until they are asked for."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(streaming, "_PART_CELLS", 3)
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 24)


def _small_question(kind):
    """A network with a doubtful piece, so that rationals are reached, and its domain."""
    third = 1.0 / 3.0
    layers = [hm.Affine([[third, 1.0], [third, -1.0], [1.0, 0.1]], [0.0, 0.0, 0.3]), hm.ReLU()]
    layers += [hm.Affine([[1.0, 1.0, 0.1], [1.0, -1.0, 0.7]], [0.0, -third]), hm.ReLU()]
    domain = hm.Box([-1, -1], [1, 1]) if kind == "box" else hm.Space(2)
    return hm.Network(layers, 2), domain


class _InterruptAtLine:
    """Sends one interrupt when the search, once it holds signals, comes to its n-th line."""

    def __init__(self, at):
        self.at, self.lines = at, 0

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line" and interrupts.HeldSignals._current is not None:
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self._trace

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


_CALLS = {
    "in memory": lambda net, domain, folder: hm.enumerate_cells(net, domain),
    "in rationals": lambda net, domain, folder: hm.enumerate_cells(net, domain, exactness="exact"),
    "to a folder": lambda net, domain, folder: hm.enumerate_cells(net, domain, stream_to=folder),
    "counted": lambda net, domain, folder: hm.count_cells(net, domain),
    "up to a limit": lambda net, domain, folder: hm.enumerate_cells(net, domain, max_cells=6),
}


@pytest.mark.parametrize("kind", ["box", "space"])
@pytest.mark.parametrize("way", _CALLS)
def test_an_interrupt_at_any_line_gives_the_marked_partial_result(way, kind, tmp_path, small_chunks):
    """Every line of the search, the closing step included; none of them may let an interrupt escape."""
    net, domain = _small_question(kind)
    call = _CALLS[way]
    whole = label_set(hm.enumerate_cells(net, domain))
    call(net, domain, tmp_path / "first")  # which imports
    with _InterruptAtLine(-1) as trace:
        call(net, domain, tmp_path / "whole")
    for number, at in enumerate(range(1, trace.lines, max(1, trace.lines // 25))):
        folder = tmp_path / f"{number}"
        with _InterruptAtLine(at):
            found = call(net, domain, folder)
        if way == "counted":
            assert 0 <= found <= len(whole) and (not found.is_complete or at > trace.lines - 8)
            continue
        cells = hm.load_cells(folder) if way == "to a folder" else found
        labels = [tuple(label) for label in cells.labels.tolist()]
        assert len(set(labels)) == len(labels) and set(labels) <= whole
        assert cells.is_complete == found.is_complete and cells.n_cells == found.n_cells
        if found.is_complete:  # only once the last word is being written, or said
            assert at > (0.5 * trace.lines if way == "to a folder" else trace.lines - 8)
            assert len(labels) == len(whole)


def _interrupts_while_held(monkeypatch, delay):
    """An interrupt sent a while after a search has begun, and only while it lasts."""
    enter, leave = interrupts.HeldSignals.__enter__, interrupts.HeldSignals.__exit__
    over, turn = threading.Event(), threading.Lock()

    def send():
        if not over.wait(delay):
            with turn:
                if not over.is_set():
                    os.kill(os.getpid(), signal.SIGINT)

    def begin(held):
        enter(held)
        over.clear()
        threading.Thread(target=send, daemon=True).start()
        return held

    def end(held, *error):
        with turn:
            over.set()
        leave(held, *error)

    monkeypatch.setattr(interrupts.HeldSignals, "__enter__", begin)
    monkeypatch.setattr(interrupts.HeldSignals, "__exit__", end)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_inside_a_kernel_is_no_system_error(workers, monkeypatch):
    net, box = random_relu_network([2, 150, 32, 1], rng=np.random.default_rng(0)), hm.Box([-2, -2], [2, 2])
    begin = time.perf_counter()
    n_cells = hm.enumerate_cells(net, box, workers=workers).n_cells
    seconds = time.perf_counter() - begin
    for delay in np.random.default_rng(1).uniform(0, seconds, int(os.environ.get("KILLED_STREAMS", 12))):
        with monkeypatch.context() as patch:
            _interrupts_while_held(patch, delay)
            cells = hm.enumerate_cells(net, box, workers=workers)
        assert cells.n_cells == n_cells if cells.is_complete else cells.n_cells <= n_cells


def test_a_stream_whose_process_is_ended_loads_as_the_part_that_it_is():
    """The file's own program, for a few rounds a signal; KILLED_STREAMS asks for more."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
    program = [sys.executable, TESTS / "cells" / "killed_streams.py", os.environ.get("KILLED_STREAMS", "5")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr


def test_a_folder_can_be_loaded_after_every_part(tmp_path, small_chunks, monkeypatch):
    net, box = _small_question("box")
    add, seen = streaming.StreamWriter.add, []

    def loaded(writer, batch):
        add(writer, batch)
        cells = hm.load_cells(tmp_path)
        assert not cells.is_complete and cells.n_cells == writer.n_cells
        seen.append(cells.n_cells)

    monkeypatch.setattr(streaming.StreamWriter, "add", loaded)
    found = hm.enumerate_cells(net, box, stream_to=tmp_path)
    assert found.is_complete and hm.load_cells(tmp_path).is_complete
    assert len(set(seen)) > 2 and seen[-1] <= found.n_cells


class _Killed(BaseException):
    """What ends a process without asking it."""


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_end_at_any_write_leaves_a_folder_that_loads(when, tmp_path, small_chunks, monkeypatch):
    net, box = _small_question("box")
    whole = label_set(hm.enumerate_cells(net, box))
    replacing, kept = streaming.replacing, []

    def run(last):
        writes = []

        @contextmanager
        def watched(file):
            writes.append(file.name)
            if len(writes) > last:  # nothing is written any more: the process is gone
                raise _Killed
            if len(writes) == last and when == "while":
                file.with_name(f".{file.name}.0.part").write_bytes(b"PK half")
                raise _Killed
            if len(writes) == last and when == "before":
                raise _Killed
            with replacing(file) as out:
                yield out
            if len(writes) == last:
                raise _Killed

        monkeypatch.setattr(streaming, "replacing", watched)
        monkeypatch.setattr(storage, "replacing", watched)
        folder = tmp_path / f"{last}"
        with suppress(_Killed):
            hm.enumerate_cells(net, box, stream_to=folder)
        return folder, len(writes)

    n_writes = run(10**9)[1]
    for last in range(1, n_writes):
        folder = run(last)[0]
        if not (folder / "context.npz").exists():
            with pytest.raises(FileFormatError, match="ended before the first cell"):
                hm.load_cells(folder)
            continue
        cells = hm.load_cells(folder)
        labels = [tuple(label) for label in cells.labels.tolist()]
        assert len(set(labels)) == len(labels) and set(labels) <= whole and not cells.is_complete
        kept.append(len(labels))
    assert kept == sorted(kept) and kept[-1] >= len(whole) - 5  # all parts but the last, at least


def test_polygons_of_all_of_space_are_loaded_as_quickly_as_they_were_found(tmp_path, small_chunks, monkeypatch):
    """They are ordered while the errors of corners and of directions are known apart; rationals are never asked."""
    net = random_relu_network([2, 24, 12, 1], rng=np.random.default_rng(5))
    monkeypatch.setattr(streaming, "_PART_CELLS", 50)
    monkeypatch.setattr(CellComplex, "_inward", lambda *_: pytest.fail("rationals were asked for"))
    cells = hm.enumerate_cells(net, hm.Space(2))
    loaded = hm.enumerate_cells(net, hm.Space(2), stream_to=tmp_path).load()
    assert np.array_equal(loaded.pieces.vertices, cells.pieces.vertices)
    assert np.array_equal(loaded.pieces.walls, cells.pieces.walls)


def test_what_was_streamed_before_an_error_is_kept(tmp_path, small_chunks, monkeypatch):
    net, box = _small_question("box")
    batches = enumeration.Enumeration.cells

    def failing(self, workers=1):
        yield next(batches(self, workers))
        raise MemoryError

    monkeypatch.setattr(enumeration.Enumeration, "cells", failing)
    with pytest.raises(MemoryError):
        hm.enumerate_cells(net, box, stream_to=tmp_path)
    assert hm.load_cells(tmp_path).n_cells > 0 and not hm.load_cells(tmp_path).is_complete


def test_cells_that_came_slowly_are_on_disk_before_a_part_is_full(tmp_path, monkeypatch):
    net, box = _small_question("box")
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 32)
    monkeypatch.setattr(streaming, "_PART_SECONDS", 0.0)
    assert len(hm.enumerate_cells(net, box, stream_to=tmp_path).parts) > 1


def test_other_handlers_are_called_where_nothing_is_lost_and_may_let_the_search_go_on(small_chunks):
    net, box = _small_question("box")
    seen = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    with _InterruptAtLine(40):
        cells = hm.enumerate_cells(net, box)
    assert seen == [signal.SIGINT] and cells.is_complete and signal.getsignal(signal.SIGINT) is not None

    def leave(*_):
        raise RuntimeError("asked to leave")

    signal.signal(signal.SIGINT, leave)
    with pytest.raises(RuntimeError, match="asked to leave"), _InterruptAtLine(40):
        hm.enumerate_cells(net, box)
    assert signal.getsignal(signal.SIGINT) is leave


def test_handlers_are_as_before_after_a_search_and_after_an_error():
    net, box = _small_question("box")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    hm.enumerate_cells(net, box)
    with pytest.raises(hm.errors.HardmaxError):
        hm.enumerate_cells(net, hm.Box([0] * 3, [1] * 3))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert interrupts.HeldSignals._current is None


def test_threads_beside_the_main_one_search_without_signals():
    net, box = _small_question("box")
    found = []
    thread = threading.Thread(target=lambda: found.append(search.enumerate_cells(net, box)))
    thread.start()
    thread.join()
    assert found[0].is_complete


def test_a_sample_that_is_interrupted_counts_what_it_drew_and_no_less(monkeypatch):
    net, box = _small_question("box")
    calls = []

    def codes(coder, key, first, size):
        calls.append(size)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)  # as if it came while the kernel ran
        return np.zeros(size, dtype=np.uint64)

    monkeypatch.setattr("hardmax.measure._sampled_codes.Coder.codes", codes)
    found = hm.sample_cells(net, box, 10**8, rng=np.random.default_rng(0))
    assert len(calls) == 3 and found.n_samples == sum(calls) and not found.is_complete

"""Ctrl-C and progress: what was found is kept whole, and only a terminal is shown anything."""

import os
import select
import signal
import subprocess
import sys

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, run
from hardmax.cells import search
from hardmax.cells.progress import Progress
from hardmax.exact import notices
from hardmax.networks.library import random_relu_network
from hardmax.show.explorer import page as explorer

DEMO = ["builtin:demo", "--box", "-2", "2"]


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C arrives when the first cells have been found."""

    def advance(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", advance)


def test_an_interrupted_count_keeps_a_lower_bound(interrupted, capsys):
    code, facts = facts_of(capsys, "count", *DEMO)
    assert code == 3
    assert facts["is_complete"] is False and facts["n_cells"] > 0


def test_an_interrupted_map_is_saved_whole_and_marked(interrupted, capsys, tmp_path):
    code, out, _ = run(capsys, "map", *DEMO, "-o", tmp_path / "cells.npz")
    assert code == 3 and "stopped early" in out
    assert not hm.load_cells(tmp_path / "cells.npz").is_complete
    assert [path.name for path in tmp_path.iterdir()] == ["cells.npz"]


def test_a_map_interrupted_before_the_first_cell_writes_nothing(capsys, tmp_path, monkeypatch):
    def batches(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hardmax.cells.search._Run.batches", batches)
    code, out, _ = run(capsys, "map", *DEMO, "-o", tmp_path / "cells.npz")
    assert code == 3 and "nothing was written" in out
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_elsewhere_is_130_with_nothing_written(capsys, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hardmax.cells.storage.write_arrays", stopped)
    assert run(capsys, "map", *DEMO, "-o", tmp_path / "cells.npz")[0] == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["claims", "--only", "V.7"],
        ["claims", "--only", "M-regions"],
        ["claims", "--only", "V.2", "--attack", "50"],
        ["explore", "-o", "page.html"],
        ["report", "builtin:demo", "-o", "page.html"],
    ],
    ids=" ".join,
)
def test_nothing_is_concluded_from_an_interrupted_count(arguments, interrupted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hardmax.show.explorer.page._library_counts", explorer.certified_counts)
    assert run(capsys, *arguments) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_cells", [None, 10**6])
def test_ctrl_c_while_cells_are_recorded_reaches_the_training(max_cells, interrupted):
    probe = hm.dynamics.Probe("square", hm.Box([-2, -2], [2, 2]))
    with pytest.raises(KeyboardInterrupt):
        hm.dynamics.snapshot(hm.builtin("demo"), [probe], max_cells=max_cells)


def test_an_interrupted_sample_keeps_what_was_drawn(capsys, monkeypatch):
    calls = []

    def codes(_, key, first, size):
        if first:
            raise KeyboardInterrupt
        calls.append((key, first))
        return np.zeros(size, dtype=np.uint64)

    monkeypatch.setattr("hardmax.measure._sampled_codes.Coder.codes", codes)
    code, facts = facts_of(capsys, "sample", *DEMO, "-n", "1e9")
    assert code == 3 and len(calls) == 1
    assert facts["is_complete"] is False and 0 < facts["n_samples"] < 1e9


def test_a_real_interrupt_leaves_a_whole_file_or_none(tmp_path):
    """One is enough, whether cells have been found by then or not: it is held back until nothing can be lost."""
    hm.write(random_relu_network([2, 60, 60, 60, 1], rng=np.random.default_rng(0)), tmp_path / "net.npz")
    arguments = ["map", "net.npz", "--box", "-4", "4", "--exactness", "exact", "-o", "cells.npz"]  # 20 s and more
    # An interrupt while Python itself still starts is not ours, so the program says when the search begins. A shell
    # that runs the tests in the background has interrupts ignored, also here, until they are asked for.
    program = (
        "import signal, sys; from hardmax.cli import main; from hardmax.cells.interrupts import HeldSignals as Held\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); enter = Held.__enter__\n"
        "Held.__enter__ = lambda held: (enter(held), print('begun', flush=True))[0]\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    names = {path.name for path in tmp_path.iterdir()}
    assert process.returncode == 3 and err == "", err
    if "nothing was written" in out:
        assert names == {"net.npz"}
    else:
        assert names == {"net.npz", "cells.npz"} and not hm.load_cells(tmp_path / "cells.npz").is_complete


def test_a_terminal_is_told_that_kernels_are_compiled_and_a_pipe_is_not(capsys, monkeypatch):
    counts = search._Run.counts
    monkeypatch.setattr(search._Run, "counts", lambda run_: (notices.compiling(), counts(run_))[1])
    for is_watched in (False, True):
        monkeypatch.setattr(notices, "_said", set())
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=is_watched: answer)
        assert ("compiling kernels, once: about" in run(capsys, "count", *DEMO, "--cells-only")[2]) == is_watched


def _on_a_terminal(*arguments):
    """What a command shows on a terminal of its own, and its exit code."""
    import pty

    main, worker = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hardmax", *arguments],
        stdout=subprocess.PIPE,
        stderr=worker,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(worker)
    shown = b""
    while select.select([main], [], [], 180)[0]:
        try:
            part = os.read(main, 65536)
        except OSError:  # the terminal is closed with its last user
            break
        if not part:
            break
        shown += part
    os.close(main)
    out, _ = process.communicate(timeout=180)
    return shown.decode(errors="replace"), out.decode(), process.returncode


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["count", *DEMO], "of the search"),
        (["sample", *DEMO, "-n", "3e5"], "cells seen"),
    ],
    ids=["count", "sample"],
)
def test_a_terminal_sees_progress_and_a_pipe_does_not(arguments, words, capsys):
    shown, out, code = _on_a_terminal(*arguments, "--json")
    assert code == 0
    assert words in shown
    assert out.startswith("{") and out.count("\n") == 1
    assert run(capsys, *arguments)[2] == ""

"""``--out DIR`` on the command line: the library's answers, going on by themselves, and one line where it cannot be."""

import json

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, is_one_line, run
from hardmax.cli.parts import running
from runs.inline_runs import Here

pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """No processes are started: what a command asks for is worked off here."""
    asked = []
    monkeypatch.setattr(
        running.Running, "resources", lambda self: asked.append(self) or Here(disk=running.size_of(self.disk, "--disk"))
    )
    return asked


def test_count_map_and_classes_keep_their_work_in_a_folder(tmp_path, capsys, in_this_process):
    number = hm.count_cells(hm.builtin("demo"), hm.Box([-2, -2], [2, 2]))
    for _ in range(2):  # the second finds all of it
        code, facts = facts_of(
            capsys, "count", "builtin:demo", "--box", "-2", "2", "--out", tmp_path / "c", "--processes", "3"
        )
        assert (code, facts["n_cells"], facts["is_complete"]) == (0, number, True)
        code, facts = facts_of(
            capsys, "map", "builtin:demo", "--box", "-2", "2", "--out", tmp_path / "m", "--csv", tmp_path / "t.csv",
            "--force",
        )  # fmt: skip
        assert (code, facts["n_cells"], facts["is_complete"]) == (0, number, True)
    assert hm.load_cells(tmp_path / "m").n_cells == number == len((tmp_path / "t.csv").read_text().splitlines()) - 1
    assert in_this_process[0] == running.Running(processes=3)
    weights = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0.25]], dtype="<f4")
    head = json.dumps({"head.weight": {"dtype": "F32", "shape": [5, 2], "data_offsets": [0, 40]}}).encode()
    (tmp_path / "head.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + weights.tobytes())
    code, facts = facts_of(capsys, "classes", tmp_path / "head.safetensors", "--out", tmp_path / "a")
    assert (code, facts["n_live"], facts["n_dead"]) == (0, 4, 1)
    assert {path.name for path in (tmp_path / "a").iterdir()} == {".lock", "chunks", "parts", "plan.json", "problem"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["count", "builtin:demo", "--processes", "2"], "give --out DIR"),
        (["map", "builtin:demo", "-o", "cells.npz", "--disk", "1G"], "give --out DIR"),
        (["classes", "head.onnx", "--scheduler", "tcp://x:1"], "give --out DIR"),
        (["count", "builtin:demo", "--out", "x", "--max-cells", "3"], "--out keeps no cells"),
        (["map", "builtin:demo", "--out", "x", "--max-cells", "3"], "--max-cells is for an .npz"),
        (["count", "builtin:demo", "--box", "-1", "1", "--out", "x", "--disk", "2"], "more than the 2 allowed"),
        (["count", "builtin:demo", "--out", "x", "--disk", "lots"], "--disk: expected a size"),
        (["count", "builtin:demo", "--box", "-1", "1", "--out", "run"], "holds another run"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "count", "builtin:figure-3", "--box", "-1", "1", "--out", "run")[0] == 0
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and is_one_line(err) and words in err


def test_processes_and_a_scheduler_exclude_one_another(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(hm.errors.ParameterError, match="leave one of them out"):
        running.Running(processes=2, scheduler="tcp://x:1").resources()
    found = running.Running(processes=2, memory="1.5G", disk="20M").resources()
    assert (found.processes, found.memory, found.disk) == (2, 1_500_000_000, 20_000_000)

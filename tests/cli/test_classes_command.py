"""``hardmax classes`` with real files: table, JSON, page, CSV, npz, and what Ctrl-C leaves."""

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, run
from hardmax.heads.classes import settling as class_progress
from hardmax.show import class_page


@pytest.fixture
def model(tmp_path):
    """A .safetensors head with two dead classes, one of them a copy."""
    weights = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0.25], [1, 0]], dtype="<f4")
    bias = np.array([0, 0, 0, 0, -1, 0], dtype="<f4")
    header = {
        "head.weight": {"dtype": "F32", "shape": [6, 2], "data_offsets": [0, 48]},
        "head.bias": {"dtype": "F32", "shape": [6], "data_offsets": [48, 72]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "head.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + weights.tobytes() + bias.tobytes())
    (tmp_path / "names.txt").write_text("=1+1\nb\n\x1b[31m\nd\n刈\nf\n", encoding="utf-8")
    return path


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C arrives before anything is settled."""

    def show(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(class_progress.ClassProgress, "show", show)


def _rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _options(model):
    return model, "--layer", "head.weight", "--names", model.with_name("names.txt")


def test_the_dead_are_listed_by_name_with_their_lifts(model, capsys):
    code, out, _ = run(capsys, "classes", *_options(model), "--lifts")
    assert code == 0 and "4 live, 2 dead (certified)" in out
    assert "刈" in out and "lift" in out and "\x1b[31m" not in out


def test_json_says_everything_in_one_line(model, capsys):
    code, facts = facts_of(capsys, "classes", *_options(model))
    assert code == 0 and facts["is_complete"] and (facts["n_live"], facts["n_dead"], facts["n_undecided"]) == (4, 2, 0)
    assert [row["name"] for row in facts["classes"]] == ["刈", "f"]
    assert facts["classes"][1]["rivals"] == [0]


def test_every_kind_of_file_is_written_from_the_same_audit(model, capsys, tmp_path):
    for name in ("audit.csv", "audit.npz", "audit.html", "audit.htm"):
        code, out, _ = run(capsys, "classes", *_options(model), "-o", tmp_path / name)
        assert code == 0 and f"written to {tmp_path / name}" in out.replace("\n", "")
    rows = _rows(tmp_path / "audit.csv")
    assert [(row["class"], row["name"], row["verdict"]) for row in rows] == [("4", "刈", "dead"), ("5", "f", "dead")]
    assert hm.load_classes(tmp_path / "audit.npz").verify().ok
    assert "2 of the 6 classes can never be the answer" in (tmp_path / "audit.html").read_text(encoding="utf-8")


def test_lifts_go_into_the_table_and_a_formula_is_no_formula(model, capsys, tmp_path):
    names = tmp_path / "other.txt"
    names.write_text("a\nb\nc\nd\n=HYPERLINK()\n-f\n", encoding="utf-8")
    code, _, _ = run(capsys, "classes", model, "--layer", "head.weight", "--names", names, "--lifts",
                     "-o", tmp_path / "dead.csv")  # fmt: skip
    rows = _rows(tmp_path / "dead.csv")
    assert code == 0 and [row["name"] for row in rows] == ["'=HYPERLINK()", "'-f"]
    assert [float(row["lift"]) for row in rows] == [1.0, 0.0]


@pytest.mark.parametrize("name", ["audit.txt", "audit.html.zip"])
def test_an_unknown_ending_is_refused_before_the_work(model, capsys, tmp_path, monkeypatch, name):
    monkeypatch.setattr("hardmax.heads.classes.audit.audit_classes", lambda *_, **__: pytest.fail("work was begun"))
    code, _, err = run(capsys, "classes", model, "-o", tmp_path / name)
    assert code == 2 and "expected a file ending in .html, .htm, .csv, .npz" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repair", "out.onnx"], "biases are written back into .onnx files"),
        (["--repair", "out.bin"], "expected a file ending in .onnx"),
        (["--repair", "out.onnx", "--margin", "0"], "--margin: expected a finite number above 0"),
        (["--repair", "out.onnx", "--margin", "nan"], "--margin: expected a finite number above 0"),
        (["--domain", "ball"], "unknown domain 'ball'; expected all, nonnegative, sphere, box:LOW:HIGH or auto"),
        (["--out", "out.folder.d/x", "--max-seconds", "3"], "--max-seconds is not for work in a folder"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(model, capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "classes", model, "--layer", "head.weight", *arguments)
    assert code == 2 and words in err and err.count("\n") == 1 and out == ""
    assert not list(tmp_path.glob("out.*"))


@pytest.mark.parametrize("ending", [".csv", ".npz", ".html"])
def test_ctrl_c_keeps_what_is_settled_and_marks_the_rest(model, capsys, tmp_path, interrupted, ending):
    code, out, _ = run(capsys, "classes", *_options(model), "-o", tmp_path / f"part{ending}")
    assert code == 3 and "5 undecided" in out and "stopped early" in out
    if ending == ".csv":
        rows = _rows(tmp_path / "part.csv")
        assert [row["verdict"] for row in rows] == [*["undecided"] * 5, "dead"]  # a copy needs no search
        assert rows[0]["name"] == "'=1+1"
    elif ending == ".npz":
        kept = hm.load_classes(tmp_path / "part.npz")
        assert kept.n_undecided == 5 and kept.verify().ok
    else:
        assert "stopped early, with 5 undecided" in (tmp_path / "part.html").read_text(encoding="utf-8")


def test_an_interrupted_repair_writes_nothing(capsys, tmp_path, interrupted):
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    h = onnx.helper
    tensors = {"W": np.eye(3, dtype="<f4"), "b": np.zeros(3, dtype="<f4")}
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", "W", "b"], ["y"])], "g",
        [h.make_tensor_value_info("x", 1, ["n", 3])], [h.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    path.write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString())
    code, _, err = run(capsys, "classes", path, "--repair", tmp_path / "out.onnx")
    assert code == 2 and "3 classes are undecided" in err and not (tmp_path / "out.onnx").exists()


def test_a_terminal_sees_how_much_is_settled(tmp_path):
    """A real terminal, a real SIGINT: the line counts, the files are whole, the exit code is 3."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 60)).astype("<f4")
    rows[1500:] = 0.4 * rng.dirichlet(np.ones(40), 1500).astype("<f4") @ rows[:40]
    header = json.dumps(
        {"head.weight": {"dtype": "F32", "shape": [3000, 60], "data_offsets": [0, rows.nbytes]}}
    ).encode()
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + rows.tobytes())
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "import sys; from hardmax.cli import main; sys.exit(main(sys.argv[1:]))",
               "classes", "m.safetensors", "--layer", "head.weight", "-o", "a.npz"]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stderr=follower, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(follower)
    seen, stop = b"", time.monotonic() + 120
    while b"settled" not in seen and time.monotonic() < stop:
        try:
            seen += os.read(leader, 4096)
        except OSError:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    os.close(leader)
    assert b"of 3,000 settled" in seen and b"live" in seen and b"dead" in seen and b"left about" in seen
    kept = hm.load_classes(tmp_path / "a.npz")
    assert process.returncode == (3 if kept.n_undecided else 0)
    assert kept.n_classes == 3000 and (b"undecided" in out) == bool(kept.n_undecided)


def test_time_for_lifts_is_spread_evenly_over_the_dead(monkeypatch):
    weights = np.vstack([np.eye(3), -np.eye(3), np.zeros((1, 3)), 0.1 * np.eye(3), -0.1 * np.eye(3)])
    audit = hm.audit_classes(weights, np.append(np.zeros(6), np.full(7, -1.0)))
    clock = iter(range(1000))
    monkeypatch.setattr(class_page.time, "monotonic", lambda: float(next(clock)))
    found = class_page._lifts(audit, 2.5)
    assert list(found) == [6, 10] and audit.n_dead == 7
    assert list(class_page._lifts(audit, 900.0)) == [6, 10, 8, 12, 7, 9, 11]

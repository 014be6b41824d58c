"""What a person may get wrong: one line that says what to do, exit code 2, nothing written."""

import os
import pickle
import re

import numpy as np
import pytest

import hardmax as hm
from cli.commands import inputs, is_one_line, run, soft_network

LINE = ["--segment", "0", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of models and inputs, good and bad, to work in."""
    monkeypatch.chdir(tmp_path)
    hm.write(soft_network(), "soft.npz")
    hm.write(hm.Network([hm.Affine(np.ones((2, 9))), hm.ReLU()], 9), "wide.npz")
    np.savez("good.npz", inputs=inputs(), labels=np.zeros(12, dtype=int))
    np.savez("wrong.npz", inputs=np.zeros((4, 3)))
    np.savez("several.npz", a=inputs(), b=inputs())
    np.savez("empty.npz", inputs=np.zeros((0, 2)))
    np.savez("words.npz", inputs=np.array([["a", "b"]]))
    np.savez("integers.npz", inputs=np.array([[2**53 + 1, 0]]))
    np.savez("nan.npz", inputs=np.vstack([inputs(2), [[np.nan, 0.0]]]))
    np.savez("same.npz", inputs=np.ones((3, 2)))
    np.savez("line.npz", inputs=np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    np.savez("objects.npz", inputs=np.array([{}, []], dtype=object))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not an archive")
    (tmp_path / "ragged.csv").write_text("0,1\n2\n")
    (tmp_path / "words.csv").write_text("x,y\n0,1\nno,2\n")
    (tmp_path / "bare.csv").write_text("x,y\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "text.txt").write_text("0,1\n")
    (tmp_path / "partly.csv").write_text("1,x\n3,4\n5,1\n")
    (tmp_path / "partly_table.csv").write_text("0,one\n1,2\n2,0\n")
    (tmp_path / "junk.npz").write_bytes(b"\x80\x04junk")
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps([1.0]))
    np.savez("huge.npz", inputs=np.array([[1e308, 0.0], [-1e308, 0.0], [0.0, 1e308]]))
    (tmp_path / "kept.npz").write_text("precious")
    (tmp_path / "page.html").write_bytes((tmp_path / "soft.npz").read_bytes())
    (tmp_path / "linked.npz").symlink_to("soft.npz")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "mine.txt").write_text("a file in a folder")
    os.mkfifo("pipe.npz")
    (tmp_path / "device.npz").symlink_to("/dev/zero")
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    np.savez_compressed("bomb.npz", inputs=np.zeros((2, 2)))
    data = bytearray((tmp_path / "bomb.npz").read_bytes())
    start = data.rindex(b"PK\x01\x02") + 24
    data[start : start + 4] = (3 << 30).to_bytes(4, "little")  # the size unpacked
    (tmp_path / "bomb.npz").write_bytes(data)
    (tmp_path / "long.csv").write_text("0,1\n" + "7" * 200_000 + ",1\n")
    return tmp_path


MODELS = [
    (["count", "absent.onnx"], "no such file"),
    (["count", "place"], "ending"),
    (["count", "demo"], "builtin:demo"),
    (["count", "builtin:nope"], "demo"),
    (["count", "text.txt"], ".onnx"),
    (["count", "broken.npz"], "broken.npz"),
    (["count", "good.npz"], "good.npz"),
    (["skeleton", "absent.npz"], "no such file"),
    (["count", "pipe.npz"], "got a pipe"),
    (["count", "device.npz"], "got a device"),
    (["count", "loop.npz"], "cannot be read"),
    (["count", "bomb.npz"], "got 3,221,225,472 unpacked; write the file with numpy.savez"),
    (["count", "n" * 300 + ".npz"], "cannot be read (File name too long)"),
    (["sample", "absent.npz", "--box", "0", "1"], "no such file"),
    (["map", "absent.npz", "-o", "cells.npz"], "no such file"),
]
INPUTS = [
    ("absent.npz", "no such file"),
    ("place", "ending"),
    ("wrong.npz", "(n, 2)"),
    ("several.npz", "a, b"),
    ("several.npz:c", "a, b"),
    ("empty.npz", "at least one"),
    ("words.npz", "numbers"),
    ("nan.npz", "input 2 holds NaN"),
    ("integers.npz", "9007199254740993 is no binary64 number"),
    ("objects.npz", "nothing is unpickled"),
    ("junk.npz", "not a numpy file"),
    ("pickle.npy", "not a numpy file"),
    ("partly.csv", "line 1"),
    ("broken.npz", "numpy arrays"),
    ("ragged.csv", "line 2"),
    ("words.csv", "line 3"),
    ("bare.csv", "at least one"),
    ("binary.csv", "text"),
    ("absent.csv", "no such file"),
    ("pipe.npz", "got a pipe"),
    ("bomb.npz", "in Python, limits= with more unpacked_bytes reads it"),
    ("long.csv", "line 2"),
    ("text.txt", ".csv"),
]
DOMAINS = [
    (["--box", "1", "-1"], "axis 0 is empty"),
    (["--box", "0", "0"], "empty"),
    (["--box", "a", "b"], "--box: expected numbers separated by commas"),
    (["--box", "0,0,0", "1,1,1"], "1 or 2 numbers"),
    (["--box", "nan", "1"], "finite"),
    (["--box", "-1"], "--box"),
    (["--box", "-1e308", "1e308"], "1e+150"),
    (["--inputs", "huge.npz", "--plane", "0", "1", "2"], "1e+150"),
    (["--segment", "0", "1"], "--inputs"),
    (["--segment", "0,0", "0,0"], "coincide"),
    (["--segment", "0,0", "1,inf"], "finite"),
    (["--segment", "0,0", "x"], "numbers"),
    (["--plane", "0,0", "1,1", "2,2"], "dependent"),
    (["--plane", "0,0", "1,0", "0,1", "--margin", "-1"], "--margin"),
    (["--box", "0", "1", "--space"], "--box and --space"),
    (["--inputs", "good.npz", "--segment", "0", "12"], "0 to 11"),
    (["--inputs", "same.npz", *LINE], "coincide"),
    (["--inputs", "line.npz", "--plane", "0", "1", "2"], "dependent"),
    (["--reference", "0"], "--inputs"),
    (["--inputs", "good.npz", "--reference", "99"], "0 to 11"),
    (["--exactness", "perfect"], "certified"),
    (["--max-cells", "0"], "--max-cells"),
    (["--max-cells", "many"], "--max-cells"),
    (["--cells-only", "--verify"], "--verify"),
]
OTHERS = [
    (["count", "wide.npz"], "--segment"),
    (["count"], "MODEL"),
    (["count", "builtin:demo", "extra"], "extra"),
    (["sample", "builtin:demo"], "--box"),
    (["sample", "builtin:demo", "--space"], "--box"),
    (["sample", "builtin:demo", "--box", "0", "1", "-n", "0"], "--samples"),
    (["sample", "builtin:demo", "--box", "0", "1", "-n", "1.5"], "--samples"),
    (["sample", "builtin:demo", "--box", "0", "1", "-n", "inf"], "--samples"),
    (["sample", "builtin:demo", "--box", "0", "1", "--seed", "-1"], "--seed"),
    (["map", "builtin:demo"], "--out"),
    (["map", "builtin:demo", "-o", "cells.txt"], ".npz"),
    (["map", "builtin:demo", "-o", "place"], "folder"),
    (["map", "builtin:demo", "-o", "nowhere/cells.npz"], "no folder"),
    (["map", "builtin:demo", "-o", "kept.npz"], "--force"),
    (["map", "builtin:demo", "-o", "pipe.npz", "--force"], "got a pipe"),
    (["map", "builtin:demo", "-o", "device.npz", "--force"], "got a pipe or a device"),
    (["map", "builtin:demo", "-o", "loop.npz", "--force"], "cannot be written"),
    (["map", "builtin:demo", "-o", "n" * 300 + ".npz"], "cannot be written (File name too long)"),
    (["map", "builtin:demo", "-o", "cells.npz", "--csv", "kept.npz"], ".csv"),
    (["map", "builtin:demo", "-o", "cells.npz", "--svg", "cells.svg"], "--box"),
    (["map", "builtin:demo", "-o", "cells.npz", "--svg", "cells.svg", "--segment", "0,0", "1,1"], "2 dimensions"),
    (["skeleton", "soft.npz", "-o", "hard.txt"], ".onnx"),
    (["skeleton", "soft.npz", "-o", "kept.npz"], "--force"),
    (["skeleton", "soft.npz", "--labels", "good.npz"], "--inputs"),
    (["skeleton", "soft.npz", "--inputs", "good.npz", "--max-loss", "2"], "--max-loss"),
    (["skeleton", "wide.npz", "--inputs", "good.npz"], "(n, 9)"),
    (["skeleton", "soft.npz", "-o", "hard.onnx", "--dtype", "int8"], "float32"),
    (["compile", "soft.npz", "-o", "kept.npz"], "--force"),
    (["compile", "soft.npz", "-o", "nowhere/net.npz"], "no folder"),
    (["claims", "--only", "V.2", "--markdown", "kept.npz"], "--force"),
    (["claims", "--seed", "-1"], "--seed"),
    (["claims", "--attack", "-1"], ". See `hardmax claims --help`."),
    (["count", "-dash.onnx"], "./-dash.onnx"),
    (["sample", "builtin:demo", "--box", "-1e308", "1e308"], "--box"),
    (["compile", "partly_table.csv", "-o", "net.npz"], "line 1"),
    (["bounds", "--temperature", "2"], "--margin"),
    (["bounds", "--temperature", "nan"], "--margin"),
    (["bounds", "--margin", "1", "--temperature", "nan"], "temperature"),
    (["report", "soft.npz", "-o", "page.txt"], ".html"),
    (["report", "soft.npz", "--inputs", "junk.npz"], "not a numpy file"),
    (["report", "soft.npz", "--inputs", "objects.npz"], "nothing is unpickled"),
    (["report", "soft.npz", "--inputs", "several.npz"], "a, b"),
    (["report", "soft.npz", "--inputs", "partly.csv"], "line 1"),
    (["report", "soft.npz", "--inputs", "huge.npz"], "huge.npz: input 0 holds 1e+308"),
    (["map", "soft.npz", "-o", "soft.npz", "--force"], "would replace soft.npz"),
    (["map", "soft.npz", "--inputs", "good.npz", *LINE, "-o", "./good.npz", "--force"], "would replace good.npz"),
    (["map", "soft.npz", "--inputs", "several.npz:a", *LINE, "-o", "several.npz", "--force"], "would replace several"),
    (["skeleton", "soft.npz", "-o", "linked.npz", "--force"], "would replace soft.npz"),
    (["skeleton", "soft.npz", "--inputs", "good.npz", "-o", "good.npz", "--force"], "would replace good.npz"),
    (["compile", "soft.npz", "-o", "soft.npz", "--force"], "would replace soft.npz"),
    (["report", "page.html", "-o", "page.html", "--force"], "would replace page.html"),
    (["explore", "page.html", "-o", "page.html", "--force"], "would replace page.html"),
]
CASES = [
    *MODELS,
    *((["count", "builtin:demo", "--inputs", name, *LINE], words) for name, words in INPUTS),
    *((["count", "builtin:demo", *options], words) for options, words in DOMAINS),
    *OTHERS,
]


@pytest.mark.parametrize(("arguments", "words"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_bad_input_is_refused_in_one_line_that_helps(arguments, words, folder, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert is_one_line(err)
    assert words in err
    assert not re.search(r"\bhm\.[A-Z]|allow_pickle|pickle\.load", err)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_folder_that_allows_no_files_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, err = run(capsys, "map", "builtin:demo", "-o", tmp_path / "cells.npz")
    assert code == 2 and is_one_line(err) and str(tmp_path) in err


def test_a_disk_that_fails_at_the_end_leaves_nothing_behind(capsys, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    code, _, err = run(capsys, "map", "builtin:figure-3", "--box", "-1", "1", "-o", tmp_path / "cells.npz")
    assert code == 2 and is_one_line(err) and "No space left" in err
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_said(capsys, monkeypatch):
    def short(*_, **__):
        raise MemoryError

    monkeypatch.setattr("hardmax.cells.search.enumerate_cells", short)
    code, _, err = run(capsys, "count", "builtin:demo")
    assert code == 2 and is_one_line(err) and "memory" in err

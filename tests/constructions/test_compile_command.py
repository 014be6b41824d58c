"""``hardmax compile``: files in, a transformer that onnxruntime runs out, and one line for what is wrong."""

import json

import numpy as np
import pytest

import hardmax as hm
from hardmax.cli import main
from hardmax.constructions.function_files import read_function
from hardmax.networks.library import random_maxout_network

NET = random_maxout_network([2, 3, 2], 3, rng=np.random.default_rng(5))


@pytest.fixture
def maxout(tmp_path):
    path = tmp_path / "maxout.npz"
    hm.write(NET, path)
    return path


def _run(path, x):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    kind = np.float64 if "double" in session.get_inputs()[0].type else np.float32
    return session.run(None, {"input": np.asarray(x, dtype=kind)})[0]


@pytest.mark.extras
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-12)])
@pytest.mark.parametrize("options", [[], ["--variant", "D"], ["--variant", "G", "--bound", "2"], ["--bound", "2"]])
def test_a_maxout_network_becomes_an_onnx_transformer(options, dtype, tolerance, maxout, tmp_path, capsys):
    out = tmp_path / "transformer.onnx"
    assert main(["compile", str(maxout), "-o", str(out), "--dtype", dtype, *options]) == 0
    printed = capsys.readouterr().out
    assert "tokens" in printed and "parameters" in printed and "written to" in printed
    x = np.random.default_rng(0).uniform(-2, 2, (100, 2))
    assert np.abs(_run(out, x) - NET(x)).max() <= tolerance


@pytest.mark.extras
def test_softmax_is_written_within_the_printed_bound(maxout, tmp_path, capsys):
    out = tmp_path / "soft.onnx"
    options = ["--bound", "2", "--temperature", "0.05", "--json", "--dtype", "float64"]
    assert main(["compile", str(maxout), "-o", str(out), *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    x = np.random.default_rng(0).uniform(-2, 2, (2000, 2))
    error = np.abs(_run(out, x) - NET(x)).max()
    assert 0 < error <= facts["error_bound"]
    assert facts["variant"] == "G" and b"Softmax" in out.read_bytes()
    assert facts["complexity"]["parameters"][0] == NET.n_parameters


HAT = {"plus": [[0, 0], [1, 0], [2, -2]], "minus": [[0, 0], [2, -2]]}
FUNCTIONS = {
    "hat.csv": "x,value\n-1,0\n0,0\n1,1\n2,0\n3,0\n",
    "bare.csv": "-1,0\n0,0\n\n1,1\n2,0\n3,0\n",
    "difference.json": json.dumps(HAT),
    "lattice.json": json.dumps({"pieces": [[0, 0], [1, 0], [-1, 2]], "groups": [[0], [1, 2]]}),
    "pieces.json": json.dumps(
        {
            "pieces": [[0, 0], [1, 0], [-1, 2], [0, 0]],
            "simplices": [[[-1], [0]], [[0], [1]], [[1], [2]], [[2], [3]]],
        }
    ),
    "table.json": json.dumps({"points": [-1, 0, 1, 2, 3], "values": [0, 0, 1, 0, 0]}),
}


@pytest.mark.extras
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("options", [["--variant", "D"], ["--bound", "3"]])
def test_a_function_in_a_file_becomes_an_onnx_transformer(name, options, tmp_path, capsys):
    source, out = tmp_path / name, tmp_path / "hat.onnx"
    source.write_text(FUNCTIONS[name])
    assert main(["compile", str(source), "-o", str(out), *options]) == 0
    x = np.linspace(-1, 3, 65)
    assert np.abs(_run(out, x[:, None])[:, 0] - np.maximum(0, np.minimum(x, 2 - x))).max() <= 1e-5


def test_a_table_brings_its_own_bound_and_its_numbers_exactly(tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text("x,y,f\n0,0,0\n1,0,0.1\n0,1,1/3\n1,1,2\n")
    f = read_function(path)
    assert f.bound == 1.0 and len(f.triangles) == 2
    assert f([[1.0, 0.0], [0.0, 1.0]]).tolist() == pytest.approx([0.1, 1 / 3], abs=1e-15)
    maximum = tmp_path / "max.json"
    maximum.write_text(json.dumps({"pieces": [[1, 0], [-1, 0]]}))
    assert read_function(maximum)([[-3.0]]).tolist() == [[3.0]]


@pytest.mark.parametrize(
    "options, words",
    [
        (["--temperature", "0"], "above 0"),
        (["--temperature", "-1", "--bound", "1"], "above 0"),
        (["--temperature", "0.5"], "needs --bound"),
        (["--variant", "G"], "needs --bound"),
        (["--variant", "D", "--temperature", "0.5"], "needs variant G"),
        (["--variant", "D", "--bound", "2"], "variant D has none"),
        (["--bound", "0"], "positive"),
        (["--dtype", "int8"], "dtype"),
        (["--variant", "E"], "E"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, words, maxout, tmp_path, capsys):
    out = tmp_path / "never.onnx"
    assert main(["compile", str(maxout), "-o", str(out), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and words in printed.err
    assert not out.exists()


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("jump.csv", "0,0\n1,0\n1,1\n", "has the values"),
        ("text.csv", "0,0\none,1\n", "line 2"),
        ("ragged.csv", "0,0\n1,0,1\n", "line 2"),
        ("thin.csv", "0\n", "line 1"),
        ("empty.csv", "x,y\n", "got none"),
        ("broken.json", "{", "does not parse"),
        ("list.json", "[]", "got list"),
        ("keys.json", '{"plus": []}', "got plus"),
        ("ragged.json", '{"plus": [[1, 0], [1]], "minus": [[0, 0]]}', "equal length"),
        ("groups.json", '{"pieces": [[1, 0]], "groups": [[3]]}', "piece of groups[0]"),
        ("kinds.json", '{"pieces": [[1, 0]], "groups": ["a"]}', "piece numbers"),
        ("jump.json", '{"pieces": [[0, 0], [0, 1]], "simplices": [[[0], [1]], [[1], [2]]]}', "agree where they meet"),
        ("corners.json", '{"pieces": [[0, 0]], "simplices": [3]}', "simplex 0"),
    ],
)
def test_files_that_are_no_function_are_refused_in_one_line(name, content, words, tmp_path, capsys):
    source = tmp_path / name
    source.write_text(content)
    assert main(["compile", str(source), "-o", str(tmp_path / "never.onnx"), "--bound", "1"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and words in printed.err and str(source) in printed.err


def test_a_bound_too_small_for_the_table_is_refused(tmp_path, capsys):
    source = tmp_path / "table.csv"
    source.write_text("0,0\n5,1\n")
    assert main(["compile", str(source), "-o", str(tmp_path / "never.onnx"), "--bound", "1"]) == 2
    assert "too small for the domain" in capsys.readouterr().err


def test_an_absent_file_is_refused(tmp_path, capsys):
    assert main(["compile", str(tmp_path / "none.csv"), "-o", str(tmp_path / "never.onnx")]) == 2
    assert "no such file" in capsys.readouterr().err

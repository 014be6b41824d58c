"""What commands print and read, whatever the names, the encodings and the readers of their output."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, inputs, run, soft_network
from hardmax.cli import main
from hardmax.html import visible

MARK = b"\xef\xbb\xbf"  # what spreadsheets put before their text


def _program(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "hardmax", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


@pytest.mark.parametrize("text", ["1,2\n3,4\n5,1\n", "x,y\n1,2\n3,4\n5,1\n"])
@pytest.mark.parametrize("start", [b"", MARK])
def test_every_row_of_a_table_is_read(text, start, capsys, tmp_path):
    table = tmp_path / "table.csv"
    table.write_bytes(start + text.encode())
    code, facts = facts_of(capsys, "count", "builtin:demo", "--inputs", table, "--segment", "0", "2")
    assert code == 0
    assert facts["n_cells"] == hm.count_cells(hm.builtin("demo"), hm.Segment([1.0, 2.0], [5.0, 1.0]))


@pytest.mark.parametrize("kind", ["UP.NPZ", "named.npz:here", "X.npz", "rows.csv", "rows.npy"])
def test_every_command_reads_the_same_inputs(kind, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hm.write(soft_network(), "soft.npz")
    points, labels = inputs(5), np.array([0, 1, 2, 0, 1])
    with open("UP.NPZ", "wb") as file:
        np.savez(file, inputs=points, labels=labels)
    np.savez("named.npz", here=points, there=points[:1], y=labels)
    np.savez("X.npz", X=points, y=labels)
    np.save("rows.npy", points)
    np.savetxt("rows.csv", points, delimiter=",", fmt="%.17g")
    _, skeleton = facts_of(capsys, "skeleton", "soft.npz", "--inputs", kind, "--brief")
    _, page = facts_of(capsys, "report", "soft.npz", "--inputs", kind, "-o", "page.html")
    assert skeleton["fidelity"]["n_inputs"] == page["n_inputs"] == 5
    found, kept = skeleton["fidelity"]["whole"], page["sections"]["fidelity"]["facts"]
    assert kept["decisions kept"]["value"] == pytest.approx(found["agreement"])
    assert kept["relative error"]["value"] == pytest.approx(found["relative_error"])
    has_labels = kind.lower().split(":")[0].endswith(".npz")
    assert ("accuracy, soft" in kept) == (found["soft_accuracy"] is not None) == has_labels
    assert facts_of(capsys, "count", "soft.npz", "--inputs", kind, "--segment", "0", "4")[0] == 0


@pytest.mark.parametrize("start", [b"", MARK, MARK + b"x,f\n"])
def test_every_row_of_a_function_is_compiled(start, capsys, tmp_path):
    table, out = tmp_path / "table.csv", tmp_path / "net.npz"
    table.write_bytes(start + b"0,5\n1,2\n2,0\n")
    assert run(capsys, "compile", table, "-o", out)[0] == 0
    assert np.allclose(hm.read(out)([[0.0], [0.5], [2.0]]).ravel(), [5.0, 3.5, 0.0])


@pytest.mark.parametrize("name", ["\x1b[31mred.npz", "new\nline.npz", "turned\u202ezpn.npz", "[bold][red]x.npz"])
def test_names_of_files_do_not_reach_the_terminal_raw(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hm.write(soft_network(), name)
    shown = visible(name)
    commands = [
        ["count", name, "--box", "-1", "1"],
        ["sample", name, "--box", "-1", "1", "-n", "10"],
        ["map", name, "--box", "-1", "1", "-o", f"cells of {name}"],
        ["skeleton", name, "-o", f"hard {name}"],
        ["report", name, "-o", f"{name}.html"],
    ]
    for arguments in commands:
        code, out, err = run(capsys, *arguments)
        assert (code, err) == (0, "")
        assert shown in out.replace("\n", "") and not any(sign in out for sign in ("\x1b", "\u202e"))
    code, _, err = run(capsys, "count", name, "--box", "1", "-1")
    assert code == 2 and err == visible(err[:-1]) + "\n"


def test_a_name_that_looks_like_markup_is_shown_on_a_terminal(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("hardmax.cli.parts.output._is_watched", lambda: True)
    monkeypatch.chdir(tmp_path)
    for name in ("[/x].npz", "[old].npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        hm.write(soft_network(), name)
        code, out, _ = run(capsys, "count", name, "--box", "-1", "1")
        assert code == 0 and name in out


def test_what_an_encoding_lacks_is_escaped(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin1"}
    arguments = ["map", "builtin:figure-3", "--box", "-1", "1", "-o", "\u2713.npz"]
    process = _program(*arguments, cwd=tmp_path, env=environment)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, b"")
    assert b"\\u2713.npz" in out


@pytest.mark.parametrize("arguments", [["claims", "--only", "F.1"], ["bounds", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_stops_reading_is_not_a_broken_bound(arguments):
    with _program(*arguments) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, b"")


def _numbers(value, known):
    """Every number below a place that says nothing of its exactness."""
    if isinstance(value, dict):
        known = known or "exactness" in value or "decided" in value
        return [found for entry in value.values() for found in _numbers(entry, known)]
    if isinstance(value, list):
        return [found for entry in value for found in _numbers(entry, known)]
    return [value] if isinstance(value, float) and not known else []


@pytest.mark.parametrize(
    "arguments",
    [
        ["bounds", "--margin", "2"],
        ["claims", "--only", "F.1", "--attack", "20"],
        ["compile", "table.csv", "-o", "net.npz", "--temperature", "0.1"],
        ["count", "builtin:figure-3", "--box", "-1", "1"],
        ["sample", "builtin:figure-3", "--box", "-1", "1", "-n", "10"],
        ["skeleton", "soft.npz", "--inputs", "inputs.csv"],
    ],
    ids=lambda words: words[0],
)
def test_every_fraction_printed_says_how_exact_it_is(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hm.write(soft_network(), "soft.npz")
    (tmp_path / "table.csv").write_text("0,5\n1,2\n2,0\n")
    (tmp_path / "inputs.csv").write_text("0,5\n1,2\n2,0\n")
    _, facts = facts_of(capsys, *arguments)
    settings = {"seconds", "temperature", "domain"}
    assert _numbers({key: value for key, value in facts.items() if key not in settings}, False) == []


def test_one_of_a_thing_is_written_so(capsys):
    arguments = ["sample", "builtin:demo", "--box", "-1", "1", "-n", "1"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "at least 1 cell seen in 1 sample of" in out and "1 sample showed 1 cell," in out
    assert json.loads(run(capsys, *arguments, "--json")[1])["warning"] in out


def test_optional_words_have_one_pair_of_brackets(capsys):
    for name in ("report", "explore", "figures"):
        assert "[[" not in run(capsys, name, "--help")[1]


# ---- narrow terminals ----


def test_no_number_is_cut_off_or_broken_at_sixty_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["bounds", "--keys", "512", "--heads", "8", "--dim", "16", "--width", "2048", "--depth", "3"]) == 0
    out = capsys.readouterr().out
    assert "4,722,366,482,869,645,213,696" in out and "…" not in out
    assert main(["skeleton", "builtin:lookup", "--inputs", "builtin:lookup"]) == 0
    out = capsys.readouterr().out
    for words in ("decisions kept", "relative error", "divergence", "accuracy, hard", "0.9100"):
        assert words in out
    assert "…" not in out


def test_a_wide_terminal_gets_the_same_numbers_as_a_table(monkeypatch, capsys):
    from hardmax.cli.parts.output import print_table

    for width, lines in ((80, 3), (20, 6)):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(["row", "first number", "second"], [["a", "123456789", "2"], ["b", "3", "4"]])
        out = capsys.readouterr().out
        assert len(out.splitlines()) == lines and "123456789" in out

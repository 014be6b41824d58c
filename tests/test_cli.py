"""The command line: what it prints, and the exit codes it promises."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hardmax
from hardmax.cli import main


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hardmax {hardmax.__version__}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, for commands that write report.html where they stand."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_of_the_builtin_network_names_its_parts_and_its_page(here, capsys):
    assert main(["report"]) == 0
    printed = capsys.readouterr()
    for word in ("built-in", "input shape", "operations", "parameters", "choices", "inputs", "report.html"):
        assert word in printed.out
    assert "the skeleton keeps" in printed.out and "written to report.html" in printed.out
    assert printed.err == ""
    assert [path.name for path in here.iterdir()] == ["report.html"]


def test_the_report_for_machines_is_one_json_object_with_consistent_counts(here, capsys):
    assert main(["report", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["source"].startswith("built-in")
    assert len(facts["evaluation"]["label"]) == facts["n_choices"] > 0
    assert facts["n_parameters"] > 0 and sum(facts["operations"].values()) > 0
    assert facts["bytes"] == (here / facts["report"]).stat().st_size
    assert facts["sections"]["cells"]["facts"]["cells"]["value"] > 0
    assert facts["sections"]["cells"]["facts"]["cells"]["exactness"] == "certified"


def test_the_report_gives_the_same_numbers_every_time_and_replaces_its_own_page(here, capsys):
    main(["report", "--json"])
    first = capsys.readouterr().out
    main(["report", "--json"])
    assert capsys.readouterr().out == first


def test_the_report_replaces_no_file_that_is_not_its_own(here, capsys):
    (here / "report.html").write_text("mine")
    assert main(["report"]) == 2
    assert "--force" in capsys.readouterr().err and (here / "report.html").read_text() == "mine"
    assert main(["report", "--force"]) == 0
    capsys.readouterr()
    # a page asked for by name is never replaced without being told to
    assert main(["report", "-o", "report.html"]) == 2
    assert "exists" in capsys.readouterr().err


def test_the_report_of_a_file_with_its_inputs(here, capsys):
    hardmax.write(hardmax.builtin("demo"), here / "net.npz", temperature=0.5)
    np.savez(here / "x.npz", inputs=np.eye(2), points=np.ones((3, 2)))
    (here / "x.csv").write_text("0.5,1\n1,2\n-1,0\n")
    for inputs, n in (("x.npz", 2), ("x.npz:points", 3), ("x.csv", 3)):
        assert main(["report", "net.npz", "--inputs", inputs, "--force", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["source"], facts["n_inputs"]) == ("net.npz", n)
    assert main(["report", "builtin:figure-3", "-o", "three.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "built-in: figure-3"


def test_an_interrupted_report_stops_and_writes_nothing(here, capsys, monkeypatch):
    def advance(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hardmax.cells.progress.Progress.advance", advance)
    assert main(["report"]) == 130
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--inputs", "none.npz"], ["--inputs", "net.txt"], ["-o", "none/r.html"], ["-o", "."], ["builtin:none"]],
    ids=" ".join,
)
def test_bad_input_of_a_report_is_refused_in_one_line_and_nothing_is_written(arguments, here, capsys):
    assert main(["report", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("hardmax: ") and printed.err.count("\n") == 1 and printed.out == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["report", "--no-such-option"], ["no-such-command"], ["report", "one.npz", "two.npz"]],
    ids=" ".join,
)
def test_a_wrong_option_is_refused_in_one_line(arguments, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("hardmax: ") and printed.err.count("\n") == 1


@pytest.mark.parametrize("content", [None, b"", b"not a network\n"], ids=["absent", "empty", "text"])
@pytest.mark.parametrize("suffix", [".npz", ".unknown"])
def test_a_file_that_is_no_network_is_refused_in_one_line_without_a_traceback(content, suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    if content is not None:
        path.write_bytes(content)
    command = [sys.executable, "-m", "hardmax", "report", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hardmax: ") and done.stderr.count("\n") == 1
    assert str(path) in done.stderr

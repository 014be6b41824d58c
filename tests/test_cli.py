"""The command line: what it prints, and the exit codes it promises."""

import json
import subprocess
import sys

import pytest

import hardmax
from hardmax.cli import main


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hardmax {hardmax.__version__}\n"


def test_the_report_of_the_builtin_network_names_its_parts(capsys):
    assert main(["report"]) == 0
    printed = capsys.readouterr()
    for word in ("built-in", "input shape", "operations", "parameters", "choices", "hard output", "label"):
        assert word in printed.out
    assert printed.err == ""


def test_the_report_for_machines_is_one_json_object_with_consistent_counts(capsys):
    assert main(["report", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["source"].startswith("built-in")
    assert len(facts["evaluation"]["label"]) == facts["n_choices"] > 0
    assert facts["n_parameters"] > 0 and sum(facts["operations"].values()) > 0


def test_the_report_gives_the_same_numbers_every_time(capsys):
    main(["report", "--json"])
    first = capsys.readouterr().out
    main(["report", "--json"])
    assert capsys.readouterr().out == first


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
    command = [sys.executable, "-m", "hardmax.cli", "report", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hardmax: ") and done.stderr.count("\n") == 1
    assert str(path) in done.stderr

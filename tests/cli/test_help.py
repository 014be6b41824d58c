"""Help, overview and shell completion."""

import os
import re
import subprocess
import sys

import pytest

from cli.commands import run
from hardmax.cli import app
from hardmax.cli.parts.sources import join_words

COMMANDS = [command.name for command in app.registered_commands]
NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # tests have no shell: it is named instead of found
EXPECTED = {"report", "count", "map", "skeleton", "figures", "claims", "bounds", "compile", "sample", "explore",
            "classes", "around"}  # fmt: skip


def test_every_promised_command_exists():
    assert set(COMMANDS) >= EXPECTED


def test_the_overview_names_every_command_and_shows_examples(capsys):
    for arguments in ([], ["--help"]):
        code, out, err = run(capsys, *arguments)
        assert (code, err) == (0, "")
        assert "Examples" in out and "Exit codes" in out and "bool" not in out
        for name in COMMANDS:
            assert re.search(rf"^\W*{name} ", out, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_json(name, capsys):
    code, out, err = run(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert "Examples" in out and f"hardmax {name}" in out
    assert "--json" in out and "bool" not in out


def _examples():
    for command in app.registered_commands:
        for line in (command.epilog or "").splitlines():
            if line.startswith("  hardmax "):
                yield line.split()[1:]


@pytest.mark.parametrize("arguments", [*_examples()], ids=" ".join)
def test_the_options_of_every_example_exist(arguments, capsys):
    help_text = run(capsys, arguments[0], "--help")[1]
    for option in (word for word in arguments if re.match(r"--?[a-z]", word)):
        assert re.search(rf"(^|[\s,]){option}\b", help_text), option


def _offered(words, cursor):
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(cursor), "_HARDMAX_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "hardmax"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["hardmax", "skel"], ["skeleton"]),
        (["hardmax", "count", "builtin", ":", "figure-2"], ["figure-2"]),
        (["hardmax", "count", "builtin", ":", "demo", "--exactness", "cert"], ["certified"]),
        (["hardmax", "count", "my_fi"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_is_offered_what_fits(words, offered):
    assert _offered(words, len(words) - 1) == offered


def test_a_colon_with_nothing_after_it_asks_for_all_names():
    asked = {"_HARDMAX_COMPLETE": "complete_bash", "COMP_WORDS": "hardmax\nmap\nbuiltin\n:", "COMP_CWORD": "3"}
    join_words(asked)
    assert (asked["COMP_WORDS"].split("\n"), asked["COMP_CWORD"]) == (["hardmax", "map", ""], "2")


def test_a_shell_that_asks_nonsense_gets_no_traceback():
    asked = {"_HARDMAX_COMPLETE": "complete_bash", "COMP_WORDS": "hardmax\nskel", "COMP_CWORD": "x"}
    command = [sys.executable, "-m", "hardmax"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **asked})
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_the_program(shell):
    command = [sys.executable, "-m", "hardmax", "--show-completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **NAMED})
    assert "hardmax" in done.stdout and "_HARDMAX_COMPLETE" in done.stdout


def test_completion_is_installed_for_the_user(tmp_path):
    command = [sys.executable, "-m", "hardmax", "--install-completion", "bash"]
    subprocess.run(command, capture_output=True, check=True, env={**os.environ, **NAMED, "HOME": str(tmp_path)})
    script = tmp_path / ".bash_completions" / "hardmax.sh"
    assert "_HARDMAX_COMPLETE" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_type_stands_beside_an_option_that_takes_no_value(command, capsys):
    assert "<bool>" not in run(capsys, command, "--help")[1]

"""Tests of the tests: nothing goes uncollected, unasserted or silently skipped, and no machine leaks in."""

import ast
import inspect
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conftest import QUARANTINE, REPOSITORY, listed_reasons
from hardmax import errors

TEST_FILES = sorted((REPOSITORY / "tests").rglob("test_*.py"))
BENCHMARKS = sorted((REPOSITORY / "benchmarks").rglob("*.py"))
PYTHON_IN_TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


# ---- collection ----


def _uncollected(source: str, prefixes: tuple[str, ...]) -> list[str]:
    """Functions that nothing will ever call: not collected, not a fixture, not underscored."""
    tree = ast.parse(source)
    bodies = [("", tree.body)]
    bodies += [
        (f"{node.name}.", node.body)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    ]
    found = []
    for owner, body in bodies:
        functions = [node for node in body if isinstance(node, Function)]
        for node in functions:
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            is_fixture = any(re.match(r"(pytest\.)?fixture\b", text) for text in decorators)
            if not (node.name.startswith((*prefixes, "_")) or is_fixture):
                found.append(f"{owner}{node.name}")
        repeated = [name for name, times in Counter(node.name for node in functions).items() if times > 1]
        found += [f"{owner}{name} (defined twice, so the first is lost)" for name in repeated]
    return found


@pytest.mark.parametrize("path", TEST_FILES, ids=_relative)
def test_every_function_in_a_test_file_is_collected_a_fixture_or_underscored(path):
    assert _uncollected(path.read_text(), ("test_",)) == []


def test_every_function_in_a_benchmark_is_run_or_underscored():
    for path in BENCHMARKS:
        assert path.name.startswith(("bench_", "_")), f"`make bench` does not run {_relative(path)}"
        assert _uncollected(path.read_text(), ("bench_", "main")) == [], _relative(path)


def test_no_test_hides_in_a_file_that_is_not_collected():
    hidden = [
        f"{_relative(path)}: {node.name}"
        for path in PYTHON_IN_TESTS
        if path not in TEST_FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function) and node.name.startswith("test_")
    ]
    assert hidden == []


def test_what_the_runner_collects_is_what_the_files_define(request):
    """Compares with the runner's own list, for each file that this run takes in whole."""
    options = request.config.option
    if any("::" in argument for argument in request.config.args) or options.keyword or options.markexpr:
        return  # a part of some file was asked for; the full run compares
    collected = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function):
            collected.setdefault(item.path, set()).add(item.function.__name__)
    assert Path(__file__) in collected
    for path in set(collected) & set(TEST_FILES):
        defined = {
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, Function) and node.name.startswith("test_")
        }
        assert defined <= collected[path], _relative(path)


def test_the_collection_guard_notices_lost_functions():
    lost = "def check_sum(): pass\ndef test_a(): pass\ndef _helper(): pass\n@pytest.fixture\ndef net(): pass\n"
    assert _uncollected(lost, ("test_",)) == ["check_sum"]
    assert _uncollected("def test_a(): pass\ndef test_a(): pass\n", ("test_",)) == [
        "test_a (defined twice, so the first is lost)"
    ]
    assert _uncollected("class TestA:\n    def tests(self): pass\n", ("test_",)) == ["TestA.tests"]


# ---- assertions ----

_CHECKING_CALLS = re.compile(r"(^|[._])(assert|raises|warns|fail)", re.IGNORECASE)


def _asserts_nothing(source: str) -> list[str]:
    """Tests, and helpers that promise to assert, that cannot fail, not even through what they call."""
    calls: dict[str, set[str]] = {}
    failing: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            inside = [inner for statement in node.body for inner in ast.walk(statement)]
            calls[node.name] = {ast.unparse(inner.func) for inner in inside if isinstance(inner, ast.Call)}
            if any(isinstance(inner, ast.Assert | ast.Raise) for inner in inside):
                failing.add(node.name)
    imported = {name for called in calls.values() for name in called} - set(calls)
    failing |= {name for name in imported if _CHECKING_CALLS.search(name)}
    while more := {name for name, called in calls.items() if called & failing} - failing:
        failing |= more
    return [name for name in calls if re.match(r"test_|_?assert_", name) and name not in failing]


@pytest.mark.parametrize("path", PYTHON_IN_TESTS, ids=_relative)
def test_every_test_and_every_comparison_helper_can_fail(path):
    assert _asserts_nothing(path.read_text()) == []


def test_the_assertion_guard_notices_a_comparison_that_is_never_asserted():
    silent = "def assert_equal(a, b):\n    return a == b\ndef test_sum():\n    1 + 1 == 3\n"
    assert _asserts_nothing(silent) == ["assert_equal", "test_sum"]
    assert _asserts_nothing("from x import assert_equal\ndef test_sum():\n    assert_equal(1 + 1, 2)\n") == []
    assert _asserts_nothing("def _agree(a):\n    assert a\ndef test_sum():\n    _agree(1)\n") == []


# ---- skips ----


def _skip_reasons(source: str) -> list[str]:
    """The reason of each skip written in a file, in the words that the runner will show."""
    reasons = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).removeprefix("pytest.").removeprefix("mark.")
        literals = [value.value for value in node.args if isinstance(value, ast.Constant)]
        keywords = {word.arg: word.value for word in node.keywords}
        if name == "importorskip":
            reasons.append(_literal(keywords.get("reason")) or f"could not import '{literals[0]}'")
        elif name in ("skip", "skipif"):
            reasons.append(_literal(keywords.get("reason")) or next(iter(literals), "a reason that is not literal"))
    return reasons


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) else None


@pytest.mark.parametrize("path", PYTHON_IN_TESTS, ids=_relative)
def test_every_skip_has_a_row_in_the_quarantine_list(path):
    listed = listed_reasons()
    assert [why for why in _skip_reasons(path.read_text()) if not any(row in why for row in listed)] == []


def test_the_quarantine_list_is_a_table_with_four_filled_columns():
    rows = [line for line in QUARANTINE.read_text().splitlines() if line.startswith("|")]
    assert len(listed_reasons()) == len(rows) - 2 > 0
    for row in rows:
        columns = [column.strip() for column in row.strip("|").split("|")]
        assert len(columns) == 4 and all(columns), row


def test_the_skip_guard_reads_every_way_to_skip():
    source = (
        "pytest.skip('a')\npytest.skip(reason='b')\nnumpy = pytest.importorskip('c')\n"
        "@pytest.mark.skipif(True, reason='d')\ndef test_x(): pass\npytest.skip(f'{e}')\n"
    )
    expected = ["a", "b", "could not import 'c'", "a reason that is not literal", "d"]
    assert sorted(_skip_reasons(source)) == sorted(expected)


def test_a_skip_without_a_row_fails_the_run(tmp_path):
    """The runner's own rule, tried on a planted skip with this folder's conftest."""
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (tmp_path / "QUARANTINE.md").write_text("| reason | where |\n|---|---|\n| `known` | here |\n")
    planted = tmp_path / "test_planted.py"
    codes = {}
    for reason in ("known and listed", "nobody wrote this down"):
        planted.write_text(f"import pytest\ndef test_x():\n    pytest.skip({reason!r})\n")
        codes[reason] = _run_pytest(tmp_path)
    assert codes == {"known and listed": 0, "nobody wrote this down": 1}


def _run_pytest(folder: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


# ---- errors ----

_ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", _ERRORS, ids=lambda kind: kind.__name__)
def test_errors_survive_a_trip_between_processes(kind):
    error = kind("layer 2, head 0: expected 3 keys, got 0")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and copy.args == error.args and str(copy) == str(error)


@pytest.mark.parametrize("kind", _ERRORS, ids=lambda kind: kind.__name__)
def test_errors_are_hardmax_errors_and_builtin_ones_and_documented(kind):
    assert issubclass(kind, errors.HardmaxError) and kind.__doc__
    if kind is not errors.HardmaxError:
        builtin = [base for base in kind.__mro__ if base.__module__ == "builtins"]
        assert any(base not in (Exception, BaseException, object) for base in builtin)
        assert "__init__" not in vars(kind), "a custom __init__ breaks pickling"


# ---- leaks ----

# Folders of one person's or one machine's disk, and package registries other than the public one.
_LEAK = re.compile(
    r"(?<![\w.~/-])/(?:root|home|work|Users|opt|mnt)/[\w.]|[A-Z]:\\Users\\|https?://[^\s/]*(?:artifactory|nexus|pypi\.(?!org))"
)


def _tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False)
    if listing.returncode == 0:
        return [REPOSITORY / name for name in listing.stdout.decode().split("\0") if name]
    return [path for folder in ("src", "tests", "benchmarks") for path in (REPOSITORY / folder).rglob("*.*")]


def test_no_tracked_file_holds_a_path_of_one_machine():
    leaks = []
    for path in _tracked_files():
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _LEAK.search(line):
                leaks.append(f"{_relative(path)}:{number}: {line.strip()}")
    assert leaks == []


@pytest.mark.parametrize("folder", ["root", "home", "work", "Users"])
def test_the_leak_guard_notices_paths_and_lets_web_addresses_pass(folder):
    assert _LEAK.search(f"open('/{folder}/someone/net.onnx')")
    assert not _LEAK.search(f"https://example.org/{folder}/page")

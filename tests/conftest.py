"""Hypothesis profiles, the path of the data beside the repository, and the rule on skips."""

import os
import re
from functools import cache
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

REPOSITORY = Path(__file__).resolve().parents[1]
QUARANTINE = Path(__file__).with_name("QUARANTINE.md")

# No deadlines: the first call of a compiled kernel takes seconds, the next ones microseconds.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=25, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, database=None, print_blob=True, **_COMMON)
# of a planted fault the first failure is enough: none is made smaller
_FIRST = {"phases": (Phase.explicit, Phase.generate), "report_multiple_bugs": False}
settings.register_profile("mutants", max_examples=60, derandomize=True, database=None, **_FIRST, **_COMMON)
settings.register_profile("nightly", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference networks and texts beside the repository."""
    path = REPOSITORY.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs ../shared, which is absent")
    return path


def listed_reasons() -> list[str]:
    """The first column of the table in QUARANTINE.md: texts that a permitted skip's reason contains."""
    rows = [line.split("|")[1].strip() for line in QUARANTINE.read_text().splitlines() if line.startswith("|")]
    return [row.strip("`") for row in rows if row not in ("reason", "---")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_SkipWatch(), "skip-watch")
    if not hasattr(config, "workerinput"):  # once a run, before any worker starts
        _drop_stale_kernels()


def _drop_stale_kernels() -> None:
    """Remove compiled kernels older than a source file that they are made of.

    numba notices an edit in a function's own file but not in the files it calls, and would test old code.
    """
    source = REPOSITORY / "src"
    for folder in source.rglob("__pycache__"):
        for compiled in [*folder.glob("*.nbi"), *folder.glob("*.nbc")]:
            kernel = folder.parent / f"{compiled.name.split('.')[0]}.py"
            if compiled.stat().st_mtime < max((path.stat().st_mtime for path in _made_of(source, kernel)), default=inf):
                compiled.unlink(missing_ok=True)


@cache
def _made_of(source: Path, kernel: Path) -> frozenset[Path]:
    """A kernel's file and, through any number of imports, the files that it takes names from."""
    if not kernel.exists():
        return frozenset()
    names = re.findall(r"^from (hardmax[\w.]*) import (\w+)", kernel.read_text(), re.MULTILINE)
    places = [name.replace(".", "/") for module, first in names for name in (module, f"{module}.{first}")]
    below = (_made_of(source, source / f"{place}.py") for place in places)
    return frozenset({kernel}).union(*below)


class _SkipWatch:
    """Fails the run when something was skipped for a reason that QUARANTINE.md does not list."""

    def __init__(self) -> None:
        self.unlisted: list[str] = []
        self.listed = listed_reasons()

    def _watch(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(row in reason for row in self.listed):
            self.unlisted.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._watch(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._watch(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.unlisted:
            terminalreporter.write_line(f"SKIP WITHOUT A ROW IN tests/QUARANTINE.md: {line}", red=True)

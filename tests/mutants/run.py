"""Plant each fault of faults.toml in a copy of the tree, run the tests of its folder, and print what survives.

    make mutants                             # all of them, two at a time
    make mutants ARGS="--only rays ball"     # those whose name or file contains one of these words

A fault is one edit of a proof step. It is caught when a test fails (or hangs), and survives when all pass. A fault that
no test can notice has a reason in faults.toml; any other survivor makes the exit status 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "pyproject.toml", "README.md", "docs", "studies", "benchmarks", "training")

#: Seconds after which a process that does nothing is given up.
WAIT = 1800.0


@dataclass(frozen=True)
class Fault:
    """One edit: in ``file`` the text ``old``, which stands there once, becomes ``new``; ``tests`` should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = ""  # why no test can notice

    def planted(self, source: str) -> str:
        if (found := source.count(self.old)) != 1:
            raise ValueError(f"fault {self.name!r}: expected its text once in {self.file}, found it {found} times")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    fault: Fault
    caught: bool
    seconds: float
    line: str


def read_faults() -> list[Fault]:
    """The faults of faults.toml, in order."""
    rows = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def try_fault(fault: Fault, limit: float) -> Result:
    """Whether the tests notice one fault, in a copy of the tree that keeps the dates of files and compiled kernels."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hardmax-mutant-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, tree / name, symlinks=True)
            elif place.exists():
                shutil.copy2(place, tree / name)
        if (ROOT.parent / "shared").is_dir():
            (Path(folder) / "shared").symlink_to((ROOT.parent / "shared").resolve())
        path = tree / fault.file
        path.write_text(fault.planted(path.read_text()))
        # the limit is one of processor time, so that a busy machine makes no fault look caught
        command = ["sh", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "limited", sys.executable, "-m", "pytest"]
        command += ["-x", "-q", "--no-header", "-p", "no:cacheprovider", *fault.tests]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"CI": "1", "HYPOTHESIS_PROFILE": "mutants"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=WAIT, check=False
            )
        except subprocess.TimeoutExpired:
            return Result(fault, True, time.monotonic() - start, "hangs")
        if done.returncode > 2:  # 2: a module that does not import any more; below zero: the process broke down
            raise RuntimeError(f"fault {fault.name!r}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}")
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        line = failed[0][:150] if failed else f"pytest ended with {done.returncode}"
        return Result(fault, done.returncode != 0, time.monotonic() - start, line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose name or file contains one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of processor time for one fault")
    options = parser.parse_args()
    faults = [fault for fault in read_faults() if any(w in fault.name or w in fault.file for w in options.only)]
    results, start = [], time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda fault: try_fault(fault, options.limit), faults):
            results.append(result)
            fault = result.fault
            word = "caught" if result.caught else "survived, with a reason" if fault.reason else "SURVIVED"
            where = f"{fault.file}: {fault.name}"
            print(f"{word} {result.seconds:5.0f} s  {where}  [{result.line}]", flush=True)
    survivors = [result.fault for result in results if not result.caught]
    n_reasons = sum(bool(fault.reason) for fault in survivors)
    print(
        f"\n{len(results)} faults planted, {len(results) - len(survivors)} caught, {n_reasons} survived with a reason, "
        f"{len(survivors) - n_reasons} without, {time.monotonic() - start:.0f} s"
    )
    for fault in survivors:
        print(f"  {fault.file}: {fault.name}: {fault.reason or 'NO REASON GIVEN'}")
    return int(len(survivors) > n_reasons)


if __name__ == "__main__":
    sys.exit(main())

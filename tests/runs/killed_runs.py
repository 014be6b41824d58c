"""Runs that are killed at random moments and started again, until they come to their end; the answer is compared.

Run as a program for a campaign, which prints one line a kill and the outcome:

    python tests/runs/killed_runs.py count 20 [seed]             # 16,777,216 cells of a grid transformer
    python tests/runs/killed_runs.py classes 10 [seed]           # 4,000 classes in dimension 24, a fifth of them dead
    python tests/runs/killed_runs.py billion 2 [seed [folder]]   # 1,073,741,824 cells, no worker above half a gigabyte

With a folder a campaign that was itself ended goes on.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.runs.tables import read_facts

#: Seconds of a chunk, and within how many a kill comes after the first part that a process writes.
_SECONDS = {"count": (1.0, 1.0), "classes": (0.2, 0.5), "billion": (10.0, 90.0)}
_DEPTH = {"count": 4, "billion": 5}
_PROCESSES, _MEMORY = 2, 500_000_000


def _answer(kind, folder):
    resources = hm.Resources(processes=_PROCESSES, memory=_MEMORY, chunk_seconds=_SECONDS[kind][0])
    if kind in _DEPTH:
        net = hm.grid_transformer(4, 2, 2, _DEPTH[kind])
        found = hm.count_cells(net, hm.Box([0, 0], [1, 1]), out=folder, on=resources)
        return {"n_cells": int(found), "is_complete": found.is_complete}
    rows, bias = _head()
    audit = hm.audit_classes(rows, bias, out=folder, on=resources)
    return {"n_live": audit.n_live, "n_dead": audit.n_dead, "n_undecided": audit.n_undecided,
            "status": audit.status.tolist(), "verified": bool(audit.verify().ok)}  # fmt: skip


def _head(n=4000, dim=24, dead=800):
    rng = np.random.default_rng(7)
    rows = np.round(rng.normal(size=(n, dim)) * 256) / 256
    bias = np.round(rng.normal(size=n) * 256) / 256
    for k in range(dead):
        some = rng.choice(n - dead, 2, replace=False)
        rows[n - 1 - k], bias[n - 1 - k] = rows[some].mean(axis=0), bias[some].mean() - 1 / 64
    return rows, bias


class Watched:
    """A run in processes of its own; the processor time and the memory of its workers are looked at now and then."""

    def __init__(self, kind, folder):
        command = [sys.executable, __file__, "--child", kind, str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.cpu, self.peak = {}, 0

    @property
    def is_over(self):
        return self.process.poll() is not None

    def look(self):
        tasks = Path(f"/proc/{self.process.pid}/task")
        try:
            workers = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        except OSError:  # it ended just now
            return
        for pid in workers:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                self.cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                self.peak = max(self.peak, 1024 * int(status["VmHWM"].split()[0]))
            except (OSError, KeyError):
                continue

    def wait(self, seconds, until=lambda: False):
        """Look until a moment comes, or the end."""
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end and not until():
            self.look()
            time.sleep(min(0.05, max(0.0, end - time.monotonic())))

    def kill(self):
        self.look()
        os.killpg(self.process.pid, signal.SIGKILL)  # the workers with it
        self.process.communicate()


def _parts(folder):
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("parts/*.parquet")}


def _facts(folder, names):
    return [read_facts((folder / "parts" / name).read_bytes(), name)["facts"] for name in names]


def campaign(kind, kills, seed, folder):
    """What the run answers after so many kills, what was in its folder then, and what was lost."""
    rng, done, peak, lost = random.Random(seed), 0, 0, []
    while done < kills:
        before = _parts(folder)
        run = Watched(kind, folder)
        run.wait(600, lambda before=before: len(_parts(folder)) > len(before))
        run.wait(rng.uniform(0.0, _SECONDS[kind][1]))
        if run.is_over:
            break  # it came to its end before all kills were done
        run.kill()
        done, peak, after = done + 1, max(peak, run.peak), _parts(folder)
        assert before.items() <= after.items(), "a finished part is gone, or was written again"
        new = _facts(folder, after.keys() - before.keys())
        lost.append(sum(run.cpu.values()) - sum(each["cpu_seconds"] for each in new))
        print(
            f"kill {done}: {len(after)} parts, {len(new)} new with {sum(each['work'] for each in new):,.0f} done; "
            f"{lost[-1]:.1f} s of processors lost, the start of {_PROCESSES} workers included",
            flush=True,
        )
    before, begin, run = _parts(folder), time.perf_counter(), Watched(kind, folder)
    resumed = sum(each["work"] for each in _facts(folder, before))
    print(f"resumed with {len(before)} parts, {resumed:,.0f} done", flush=True)
    while not run.is_over:
        run.wait(60)
    after, found = _parts(folder), json.loads(run.process.communicate()[0])
    assert before.items() <= after.items(), "a finished part is gone, or was written again"
    assert len(after) == len({name[:32] for name in after}), "a part is there twice"
    cpu = sum(each["cpu_seconds"] for each in _facts(folder, after))
    return {
        "kills": done, "parts": len(after), "last_s": time.perf_counter() - begin, "cpu_s": cpu,
        "most_lost_s": max(lost, default=0.0), "peak_bytes": max(peak, run.peak), **found,
    }  # fmt: skip


def _main():
    if sys.argv[1] == "--child":
        print(json.dumps(_answer(sys.argv[2], sys.argv[3])))
        return
    kind, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory() as place:
        found = campaign(kind, kills, seed, Path(sys.argv[4] if len(sys.argv) > 4 else place) / "run")
    assert found["peak_bytes"] <= _MEMORY, found["peak_bytes"]
    if kind == "classes":
        audit = hm.audit_classes(*_head())
        assert found.pop("status") == audit.status.tolist() and found["verified"] and not found["n_undecided"]
    else:
        assert found["n_cells"] == 64 ** _DEPTH[kind] and found["is_complete"]
    print(json.dumps(found))


if __name__ == "__main__":
    _main()

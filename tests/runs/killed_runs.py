"""Runs that are killed at random moments and started again, until they come to their end; the answer is compared.

Run as a program for a campaign, which prints one line a kill and the outcome:

    python tests/runs/killed_runs.py count 20 [seed]      # 16,777,216 cells of a grid transformer
    python tests/runs/killed_runs.py classes 10 [seed]    # 4,000 classes in dimension 24, a fifth of them dead
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

#: A kill comes so many seconds, at most, after the first part that a process writes.
_SECONDS = 4.0


def _answer(kind, folder):
    resources = hm.Resources(processes=2, chunk_seconds=2.0)
    if kind == "count":
        net = hm.grid_transformer(4, 2, 2, 4)
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


def _part_names(folder):
    return {file.name[:32] for file in folder.glob("parts/*.parquet")}


def campaign(kind: str, kills: int, seed: int) -> dict:
    """What the run answers after so many kills, and how many chunks were ever worked off twice."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        command = [sys.executable, __file__, "--child", kind, str(folder)]
        done = 0
        while done < kills:
            before = _part_names(folder)
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
            while process.poll() is None and _part_names(folder) == before:
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, _SECONDS))
            if process.poll() is not None:
                break  # it came to its end before all kills were done
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            done += 1
            after = _part_names(folder)
            assert before <= after, "a finished part is gone"
            print(f"kill {done}: {len(after)} parts, {len(after) - len(before)} new", flush=True)
        times = {file: file.stat().st_mtime_ns for file in folder.glob("parts/*.parquet")}
        begin = time.perf_counter()
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        files = list(folder.glob("parts/*.parquet"))
        assert len(files) == len(_part_names(folder)), "a part is there twice"
        assert all(file.stat().st_mtime_ns == when for file, when in times.items()), "a finished part was written again"
        return {"kills": done, "parts": len(files), "last_s": time.perf_counter() - begin, **json.loads(out)}


def _main():
    if sys.argv[1] == "--child":
        print(json.dumps(_answer(sys.argv[2], sys.argv[3])))
        return
    kind, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    found = campaign(kind, kills, seed)
    if kind == "classes":
        audit = hm.audit_classes(*_head())
        assert found.pop("status") == audit.status.tolist() and found["verified"] and not found["n_undecided"]
    else:
        assert found["n_cells"] == 64**4 and found["is_complete"]
    print(json.dumps(found))


if __name__ == "__main__":
    _main()

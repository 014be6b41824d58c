"""Runs: one process, two, and four Dask workers count the cells of a grid transformer, in turn.

    python benchmarks/bench_runs.py [--size full|small] [--rounds 3]

Prints wall clock and processor time (of workers, scheduler and this process together), since a busy machine stretches
the first alone. With free cores two processes should be at least 1.8 times as fast as one, and Dask within 15% of them.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import hardmax as hm

FASTER, SLOWER = 1.8, 1.15
SQUARE = hm.Box([0, 0], [1, 1])


def _processor_seconds(processes=()):
    """Of this process, of its children that have ended, and of some that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def bench_count(depth, on, processes=()):
    """Seconds and processor seconds of a count in a new folder."""
    net = hm.grid_transformer(4, 2, 2, depth)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), _processor_seconds(processes)
        count = hm.count_cells(net, SQUARE, out=folder, on=on)
        wall, cpu = time.perf_counter() - wall, _processor_seconds(processes) - cpu
        assert count == 64**depth, count
        return wall, cpu


@contextmanager
def cluster(workers):
    """A client of real scheduler and worker processes, whose kernels are loaded, and the processes."""
    from distributed import Client

    module, options = "distributed.cli.dask_", ("--no-dashboard",)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "scheduler.json"
        here = ("--scheduler-file", str(file), *options)
        command = [sys.executable, "-m", f"{module}scheduler", "--host", "127.0.0.1", "--port", "0", *here]
        started = [subprocess.Popen(command, stderr=subprocess.DEVNULL)]
        try:
            while not file.exists():
                time.sleep(0.05)
            command = [sys.executable, "-m", f"{module}worker", "--nthreads", "1", "--no-nanny", *here]
            command += ["--local-directory", place]
            started += [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(workers)]
            with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=60)
                small = hm.grid_transformer(4, 2, 2, 2)
                client.run(lambda: int(hm.count_cells(small, SQUARE)))
                yield client, started
        finally:
            for process in started:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    parser.add_argument("--rounds", type=int, default=None)
    given = parser.parse_args()
    full = given.size == "full"
    try:
        import distributed  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        print(f"{error}: nothing to measure")
        return 0
    depth, rounds = 4 if full else 2, given.rounds or (3 if full else 1)
    print(f"{64**depth:,} cells on {os.cpu_count()} cores; seconds, and those of processors")
    found = []
    with cluster(4 if full else 1) as (client, processes):
        bench_count(2, hm.Resources(processes=1))  # what this process loads once
        for _ in range(rounds):
            load = os.getloadavg()[0]
            each = (bench_count(depth, 1), bench_count(depth, 2), bench_count(depth, client, processes))
            found.append((load, *each))
            words = zip(("one process", "two processes", "Dask"), each, strict=True)
            print(f"load {load:4.1f}: " + ", ".join(f"{name} {w:.2f} ({c:.2f})" for name, (w, c) in words), flush=True)
    faster = median(one[0] / two[0] for _, one, two, _ in found)
    longer, more = (median(dask[k] / two[k] for _, _, two, dask in found) for k in (0, 1))
    print(f"two processes {faster:.2f} times as fast as one; Dask {longer:.2f} times as long as they ({more:.2f})")
    is_quiet = max(load for load, *_ in found) < 3.0
    if full and is_quiet and (faster < FASTER or longer > SLOWER):
        print("FAILED")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs: one process, two, and four Dask workers count the cells of a grid transformer.

    python benchmarks/bench_runs.py [--size full|small]

Prints wall clock and the processor time of the workers together, since a busy machine stretches the first alone. With
free cores two processes should be at least 1.8 times as fast as one, and Dask within 15% of them.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hardmax as hm

FASTER, SLOWER = 1.8, 1.15
SQUARE = hm.Box([0, 0], [1, 1])


def _children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bench_processes(depth, processes):
    """Seconds and processor seconds of a count in a new folder."""
    net = hm.grid_transformer(4, 2, 2, depth)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), _children_seconds()
        count = hm.count_cells(net, SQUARE, out=folder, on=hm.Resources(processes=processes))
        assert count == 64**depth, count
        return time.perf_counter() - wall, _children_seconds() - cpu


def bench_dask(depth, workers):
    """Seconds and processor seconds on real scheduler and worker processes, up and warm before the clock starts."""
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
                net, ticks = hm.grid_transformer(4, 2, 2, depth), os.sysconf("SC_CLK_TCK")
                small = hm.grid_transformer(4, 2, 2, 2)
                client.run(lambda: int(hm.count_cells(small, SQUARE)))  # every worker loads the kernels
                before = [_ticks(process.pid) for process in started]
                wall = time.perf_counter()
                count = hm.count_cells(net, SQUARE, out=f"{place}/run", on=client)
                wall = time.perf_counter() - wall
                assert count == 64**depth, count
                return wall, sum(_ticks(p.pid) - b for p, b in zip(started, before, strict=True)) / ticks
        finally:
            for process in started:
                process.kill()
                process.wait()


def _ticks(pid):
    """Processor time of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    full = parser.parse_args().size == "full"
    try:
        import distributed  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        print(f"{error}: nothing to measure")
        return 0
    depth = 4 if full else 2
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {64**depth:,} cells")
    one = bench_processes(depth, 1)
    two = bench_processes(depth, 2)
    dask = bench_dask(depth, 4 if full else 1)
    for name, (wall, cpu) in {"one process": one, "two processes": two, "Dask": dask}.items():
        print(f"{name:16}{wall:8.2f} s, {cpu:8.2f} s of processors")
    faster, longer = one[0] / two[0], dask[0] / two[0]
    print(f"two processes {faster:.2f} times as fast as one; Dask {longer:.2f} times as long as they")
    is_quiet = os.getloadavg()[0] < 3.0
    if full and is_quiet and (faster < FASTER or longer > SLOWER):
        print("FAILED")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

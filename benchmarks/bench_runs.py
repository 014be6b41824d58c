"""Runs: one process, two, and four Dask workers count the cells of a grid transformer, in turn.

    python benchmarks/bench_runs.py [--size full|small] [--rounds 3]

Prints wall clock, processor time (of workers, scheduler and this process together), and how busy other programs kept
the machine meanwhile, since that stretches the first alone. Of the rounds in which others took less than a twentieth of
it, or of all where there are none: two processes should be at least 1.8 times as fast as one, Dask within 15% of them.
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

FASTER, SLOWER, QUIET = 1.8, 1.15, 0.05
SQUARE = hm.Box([0, 0], [1, 1])


def _processor_seconds(processes=()):
    """Of this process, of its children that have ended, and of some that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def _busy_seconds():
    """Of all processors since the machine was started, whoever used them."""
    user, nice, system, _, _, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


def bench_count(depth, on, processes=()):
    """Seconds and processor seconds of a count in a new folder, and the share of the machine that others used."""
    net = hm.grid_transformer(4, 2, 2, depth)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu, busy = time.perf_counter(), _processor_seconds(processes), _busy_seconds()
        count = hm.count_cells(net, SQUARE, out=folder, on=on)
        wall, cpu = time.perf_counter() - wall, _processor_seconds(processes) - cpu
        assert count == 64**depth, count
        return wall, cpu, max(0.0, _busy_seconds() - busy - cpu) / (wall * os.cpu_count())


@contextmanager
def _cluster(workers):
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
    print(f"{64**depth:,} cells on {os.cpu_count()} cores; seconds, those of processors, and what others used")
    found = []
    with _cluster(4 if full else 1) as (client, processes):
        bench_count(2, hm.Resources(processes=1))  # what this process loads once
        for _ in range(rounds):
            each = (bench_count(depth, 1), bench_count(depth, 2), bench_count(depth, client, processes))
            found.append(each)
            words = zip(("one process", "two processes", "Dask"), each, strict=True)
            print("; ".join(f"{name} {w:.2f} ({c:.2f}, {o:.0%})" for name, (w, c, o) in words), flush=True)
    quiet = [each for each in found if max(other for *_, other in each) < QUIET]
    faster = median(one[0] / two[0] for one, two, _ in quiet or found)
    longer, more = (median(dask[k] / two[k] for _, two, dask in quiet or found) for k in (0, 1))
    print(f"{len(quiet)} of {len(found)} rounds quiet: two processes {faster:.2f} times as fast as one,")
    print(f"Dask {longer:.2f} times as long as they, with {more:.2f} times the processors")
    if full and quiet and (faster < FASTER or longer > SLOWER):
        print("FAILED")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

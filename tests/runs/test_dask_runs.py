"""The same runs on a Dask cluster: a scheduler and workers as processes of their own, one of them killed."""

import signal
import subprocess
import sys
import time

import pytest

import hardmax as hm
from hardmax.errors import ParameterError, RunError
from hardmax.runs import dask_pool
from hardmax.runs.worker import Partial

pytest.importorskip("distributed", reason="distributed, which is not installed")
pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")

NET, SQUARE = hm.grid_transformer(4, 2, 2, 3), hm.Box([0, 0], [1, 1])


def _dask(program, *arguments):
    command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *map(str, arguments), "--no-dashboard"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a scheduler with three workers, and the workers' processes."""
    place = tmp_path_factory.mktemp("dask")
    scheduler = _dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", place / "scheduler.json")
    options = ("--scheduler-file", place / "scheduler.json", "--nthreads", 1, "--no-nanny", "--local-directory", place)
    workers = []
    try:
        end = time.monotonic() + 60
        while not (place / "scheduler.json").exists():
            assert time.monotonic() < end and scheduler.poll() is None
            time.sleep(0.05)
        import json

        workers += [_dask("worker", *options) for _ in range(3)]
        while True:
            try:
                address = json.loads((place / "scheduler.json").read_text())["address"]
                break
            except ValueError:  # it is being written
                time.sleep(0.05)
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def test_a_cluster_that_loses_workers_counts_every_cell_once(cluster, tmp_path, monkeypatch):
    from distributed import Client

    address, workers = cluster
    monkeypatch.setattr(dask_pool, "_FAN", 2)
    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(3, timeout=60)
        seen = []

        class Killing(hm.Resources):
            """Kills a worker once some parts are there, and another when they are merged."""

            def pool(self, kind, problem):
                pool = super().pool(kind, problem)
                finished, merged = pool.finished, pool.merged

                def watched(timeout):
                    found = finished(timeout)
                    seen.extend(found)
                    if len(seen) >= 2 and workers[0].poll() is None:
                        workers[0].kill()
                    return found

                def merging(partials):
                    workers[1].kill()
                    found = merged(partials)
                    assert found.n_parts == len(partials) == len(list(tmp_path.glob("parts/*")))
                    return found

                pool.finished, pool.merged = watched, merging
                return pool

        found = hm.count_cells(NET, SQUARE, out=tmp_path, on=Killing(scheduler=client, chunk_seconds=0.01))
        assert (found, found.is_complete) == (262144, True)
        assert workers[0].wait() == workers[1].wait() == -9 and len(seen) > 3
        parts = list((tmp_path / "parts").iterdir())
        assert len(parts) == len({part.name[:32] for part in parts})
        assert client.status == "running"  # the caller's client stays open
    assert hm.count_cells(hm.grid_transformer(2, 2, 2, 1), SQUARE, on=address) == 16


def test_partial_results_are_merged_by_workers_each_once(cluster):
    from distributed import Client

    with Client(cluster[0], timeout=60, set_as_default=False) as client:
        pool = dask_pool.DaskPool("count", b"", client, 60)
        for number in (1, 16, 17, 600):
            found = pool.merged([Partial(1, 3**k % 1000) for k in range(number)])
            assert found == Partial(number, sum(3**k % 1000 for k in range(number)))
        pool.close()
        tasks = client.run_on_scheduler(lambda dask_scheduler: [str(event) for event in dask_scheduler.task_prefixes])
        assert "hardmax-merge" in tasks  # shown under this name


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [("tcp://127.0.0.1:9", "no answer within 1 s"), ("no address at all", "no answer"), (3.5, "distributed.Client")],
)
def test_a_scheduler_that_does_not_answer_is_named(scheduler, words, tmp_path):
    with pytest.raises((RunError, ParameterError), match=words):
        hm.count_cells(NET, SQUARE, out=tmp_path, on=hm.Resources(scheduler=scheduler, timeout=1))


def test_a_scheduler_without_workers_or_without_words_is_named(tmp_path):
    scheduler = _dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", tmp_path / "s.json")
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "s.json").exists() or not (tmp_path / "s.json").read_text().strip().endswith("}"):
            assert time.monotonic() < end
            time.sleep(0.05)
        import json

        address = json.loads((tmp_path / "s.json").read_text())["address"]
        with pytest.raises(RunError, match="no worker within 1 s"):
            hm.count_cells(NET, SQUARE, out=tmp_path / "run", on=hm.Resources(scheduler=address, timeout=1))
        scheduler.send_signal(signal.SIGSTOP)  # connections are taken still, and never answered
        with pytest.raises(RunError, match="no answer within 1 s"):
            hm.count_cells(NET, SQUARE, out=tmp_path / "run", on=hm.Resources(scheduler=address, timeout=1))
    finally:
        scheduler.kill()
        scheduler.wait()

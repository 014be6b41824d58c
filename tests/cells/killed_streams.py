"""Processes that stream cells and are ended at random moments; what they leave is loaded and compared with the truth.

Run as a program for a campaign: ``python tests/cells/killed_streams.py 300 [seed]``. Each round forks a process that
streams the cells of one network in small parts, sends it a signal after a random time, and loads the folder.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.cells import enumeration, streaming
from hardmax.errors import FileFormatError
from hardmax.networks.library import random_relu_network


def _question():
    net = random_relu_network([2, 24, 12, 1], rng=np.random.default_rng(3))
    return net, hm.Box([-2, -2], [2, 2])


def _streamed_in_a_process(folder, number, delay):
    """The exit status of a process that streams into a folder and gets a signal after a while."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            found = hm.enumerate_cells(*_question(), stream_to=folder)
            code = 0 if found.is_complete else 3
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    time.sleep(delay)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _fault(folder, number, status, truth):
    """What is wrong with a folder that a process left, or None."""
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []
    if hidden and number != signal.SIGKILL:
        return f"hidden files are left: {hidden}"
    try:
        cells = hm.load_cells(folder)
    except FileFormatError as error:
        began = (folder / "context.npz").exists()
        return f"it cannot be loaded: {error}" if began else None  # ended before a network was on disk
    labels = [tuple(label) for label in cells.labels.tolist()]
    if len(set(labels)) != len(labels) or not set(labels) <= truth:
        return "cells are there twice, or are none"
    if cells.is_complete != (len(labels) == len(truth)) and (cells.is_complete or status == 0):
        return f"{len(labels)} of {len(truth)} cells, marked {'in' if not cells.is_complete else ''}complete"
    if status == 0 and not cells.is_complete:
        return "the process came to its end, the folder says otherwise"
    if not cells.certificate.ok:
        return f"the cells do not verify: {cells.certificate}"
    return None


def end_streams(name: str, rounds: int, seed: int = 0) -> dict[str, int]:
    """How many processes were ended before, while and after cells came; raises at the first bad folder."""
    streaming._PART_CELLS, enumeration._CHUNK_NUMBERS = 20, 1 << 9
    number, rng = getattr(signal, name), random.Random(seed)
    truth = {tuple(label) for label in hm.enumerate_cells(*_question()).labels.tolist()}
    seen = {"nothing": 0, "some": 0, "all": 0}
    with tempfile.TemporaryDirectory() as place:
        begin = time.perf_counter()
        _streamed_in_a_process(Path(place) / "whole", 0, 0.0)
        whole = time.perf_counter() - begin
        for index in range(rounds):
            folder = Path(place) / f"{index}"
            status = _streamed_in_a_process(folder, number, rng.uniform(0.0, 1.2 * whole))
            if (fault := _fault(folder, number, status, truth)) is not None:
                raise AssertionError(f"{name}, round {index}, seed {seed}, exit status {status}: {fault}")
            known = (folder / "context.npz").exists()
            n_cells = hm.load_cells(folder).n_cells if known else 0
            seen["all" if n_cells == len(truth) else "some" if n_cells else "nothing"] += 1
    return seen


if __name__ == "__main__":
    for signal_name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"):
        print(signal_name, end_streams(signal_name, *map(int, sys.argv[1:])))

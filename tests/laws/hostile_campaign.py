"""Hostile networks by the thousand: certified mode against exact mode, corner by corner.

    python tests/laws/hostile_campaign.py --networks 20000 --seed 0 [--dims 3 4] [--verify]

Prints how many networks of each kind and dimension were tried and refused (numbers beyond binary64), and every
failure with the seed that makes it. Exit status 1 where there is one. Run it with ``src`` and ``tests`` on the path;
continuous integration runs a handful of the same networks as a law.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import hardmax as hm
from hardmax.errors import PrecisionError
from laws.hostile_networks import KINDS, failures, hostile_network


def _judged(seed, dims, with_verify):
    """The case and what is wrong with it: a list of words, or None where it was refused."""
    case = hostile_network(seed, dims)
    try:
        found = failures(case)
        if with_verify and not found:
            cells = hm.enumerate_cells(case.network, case.domain)
            claims = cells.neighbours, cells.map_of, cells.region_of  # what verify compares with its own
            report = hm.verify(cells)
            fresh = hm.enumerate_cells(case.network, case.domain)
            if report.ok and not hm.verify(fresh).ok:
                report = fresh.certificate
            elif not all(map(np.array_equal, claims, (fresh.neighbours, fresh.map_of, fresh.region_of))):
                return case, ["verify keeps other neighbours, maps or regions than the complex finds"]
            found = [] if report.ok else [f"verify: {report}"]
    except PrecisionError:
        return case, None
    except Exception as error:  # the campaign goes on and lists it
        found = [f"{type(error).__name__}: {error}"]
    return case, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--dims", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--verify", action="store_true", help="run hm.verify on each too")
    arguments = parser.parse_args()
    tried, refused, wrong = Counter(), Counter(), 0
    start = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.networks):
        case, found = _judged(seed, tuple(arguments.dims), arguments.verify)
        tried[case.kind, case.dim] += 1
        if found is None:
            refused[case.kind, case.dim] += 1
        elif found:
            wrong += 1
            where = "Space" if case.low is None else "Box"
            print(f"FAILED seed {seed}, {case.kind}, {where} of dimension {case.dim}: {found[0]}", flush=True)
        if tried.total() % 1000 == 0:
            print(f"{tried.total()} networks so far, {refused.total()} refused, {wrong} wrong", flush=True)
    for kind in KINDS:
        counts = [f"d={dim}: {tried[kind, dim]} ({refused[kind, dim]} refused)" for dim in sorted(set(arguments.dims))]
        print(f"{kind:10s} {'  '.join(counts)}")
    seconds = time.monotonic() - start
    print(f"{tried.total()} networks, {refused.total()} refused, {wrong} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

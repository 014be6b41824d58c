"""Classes that a linear layer can never answer, against one linear program a class.

    python benchmarks/bench_classes.py [--size full|small] [--model recogniser.onnx [--rows 40]]

Prints times and the answers' sizes, and fails where verdicts differ or a target is missed. The head is that of a model,
or made up: rows of falling spread with dead ones among them, as trained heads have. The other road is a loop of column
generation over HiGHS, nearest rows first, for each of some hard rows (those that a first query leaves open); ours must
be ten times as fast a row.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time

import highspy
import numpy as np

import hardmax as hm
from hardmax.heads.classes import domains, hard_rows, problem, sources, verdicts


def _head(n, dim, rng):
    """Rows whose spread falls from feature to feature; a third of them short, deep under the hull or near to it."""
    weights = rng.normal(size=(n, dim)) * np.linspace(1.0, 0.3, dim)
    weights *= np.where(np.arange(n) % 3 == 0, rng.uniform(0.02, 0.3, n), 1.0)[:, None]
    bias = 0.1 * rng.normal(size=n)
    return weights.astype(np.float32).astype(np.float64), bias.astype(np.float32).astype(np.float64)


def _open_rows(weights, bias):
    """What a first query a row leaves open, with the verdicts so far."""
    classes, _ = problem.distinct(weights, bias)
    one = problem.tamed(weights, bias, classes, domains.read_domain("all", weights.shape[1]))
    found = verdicts.Verdicts(one)
    white = verdicts.whitening(one)
    for scale in (1.0, 4.0):
        verdicts.witness_pass(found, white, scale)
    return found, white


def _highs_row(weights, bias, i, allowed):
    """Whether row i is covered, by column generation over HiGHS in floats: rivals that win join until it is clear."""
    d = weights.shape[1]
    distance = np.square(weights - weights[i]).sum(axis=1)
    distance[i] = np.inf
    distance[~allowed] = np.inf
    chosen = np.argsort(distance)[: 2 * (d + 1)]
    for _ in range(200):
        model = highspy.HighsLp()
        m = len(chosen)
        # minimise t - <q, w_i> under t >= <q, w_j> + b_j, in a large box
        model.num_col_, model.num_row_ = d + 1, m
        model.col_cost_ = np.append(-weights[i], 1.0)
        model.col_lower_ = np.append(np.full(d, -1e4), -1e8)
        model.col_upper_ = np.append(np.full(d, 1e4), 1e8)
        model.row_lower_, model.row_upper_ = bias[chosen], np.full(m, np.inf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.arange(m + 1) * (d + 1)
        model.a_matrix_.index_ = np.tile(np.arange(d + 1), m)
        model.a_matrix_.value_ = np.column_stack([-weights[chosen], np.ones(m)]).reshape(-1)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("time_limit", 60.0)
        solver.passModel(model)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.array(solver.getSolution().col_value)
        if solver.getInfo().objective_function_value >= bias[i]:
            return True
        scores = weights @ values[:d] + bias
        scores[i], own = -np.inf, scores[i]
        above = np.setdiff1d(np.flatnonzero(scores > own), chosen)
        if not len(above):
            return False
        chosen = np.concatenate([chosen, above[np.argsort(-scores[above])[: d // 2]]])
    return None


def bench_hard_rows(weights, bias, n_rows, factor, failures, rng):
    n, dim = weights.shape
    found, white = _open_rows(weights, bias)
    rows = found.undecided
    start = time.process_time()
    walk = hard_rows.HardRows(found, white, lambda: None)
    walk.run()
    ours = (time.process_time() - start) / max(len(rows), 1)
    some = rng.choice(rows, min(n_rows, len(rows)), replace=False)
    start = time.process_time()
    classes = found.problem.classes  # rows are classes without copies
    rows_there, bias_there = weights[classes], bias[classes]
    theirs = [_highs_row(rows_there, bias_there, int(i), found.status == verdicts.LIVE) for i in some]
    other = (time.process_time() - start) / max(len(some), 1)
    equal = all(
        dead is None or dead == (found.status[i] == verdicts.DEAD) for i, dead in zip(some, theirs, strict=True)
    )
    n_open = sum(dead is None for dead in theirs)
    print(
        f"{n} x {dim}: {len(rows)} hard rows, {int((found.status == verdicts.DEAD).sum())} dead, {len(walk.doubtful)} "
        f"left to rationals; {1e3 * ours:.2f} ms a row, proved; HiGHS {1e3 * other:.1f} ms a row on {len(some)} "
        f"({n_open} unsolved)   {other / ours:.0f}x{'' if equal else '   DIFFERENT'}"
    )
    if not equal:
        failures.append(f"{n} x {dim}: verdicts differ from HiGHS's")
    if other < factor * ours:
        failures.append(f"{n} x {dim}: {other / ours:.1f} times as fast as HiGHS, expected at least {factor}")


def bench_audit(weights, bias, failures):
    n, dim = weights.shape
    start = time.process_time()
    audit = hm.audit_classes(weights, bias)
    seconds = time.process_time() - start
    start = time.process_time()
    check = audit.verify()
    print(f"{audit}: {seconds:.2f} s CPU, verified in {time.process_time() - start:.2f} s")
    if audit.n_undecided or not check:
        failures.append(f"{n} x {dim}: undecided classes or a certificate that does not check")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    parser.add_argument("--model", help="an .onnx, .safetensors or .gguf file whose last layer is the head")
    parser.add_argument("--rows", type=int, default=40, help="hard rows of the model that HiGHS is given")
    arguments = parser.parse_args()
    failures = []
    rng = np.random.default_rng(0)
    hm.audit_classes(*_head(200, 6, rng)).verify()  # compiles, or reads the cache
    if arguments.model is not None:
        head = sources.read_head(arguments.model, None, None, None)
        bench_hard_rows(head.weights, head.bias, arguments.rows, 10, failures, rng)
        bench_audit(head.weights, head.bias, failures)
    elif arguments.size == "full":
        head = _head(3000, 48, rng)
        bench_hard_rows(*head, 12, 10, failures, rng)
        bench_audit(*head, failures)
    else:
        head = _head(1000, 16, rng)
        bench_hard_rows(*head, 10, 5, failures, rng)
        bench_audit(*head, failures)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

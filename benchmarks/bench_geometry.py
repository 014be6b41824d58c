"""Attention geometry against the obvious methods, in one run on one thread.

    python benchmarks/bench_geometry.py [--size full|small]

Prints times, ratios and the answers' sizes, and fails where answers differ or, at full size, where a ratio misses
its target. Baselines: one scipy linprog per key (timed on some keys, scaled to all), pairwise Minkowski sums
pruned by Qhull, all N^H sums, and HiGHS re-solving one small program from a hot start. The real head is the
second layer's first head of ../shared/nets/vit_ibp_3_3_8.onnx on its sixty images; without that file and
onnxruntime those rows are left out.
"""

import os

# Before numpy loads: every claim is about one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

from hardmax.exact.compiling import kernel
from hardmax.exact.linear_program import interior_point
from hardmax.exact.simplex_kernels import ABSENT, cone_search, prove_positive_kernel
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.tropical.sums.joint_cells import common_refinement

NETS = Path(__file__).resolve().parents[2] / "shared" / "nets"


class _Table:
    """Rows as they come, and the targets that were missed."""

    def __init__(self, judged):
        self.judged = judged
        self.failures = []

    def row(self, name, ours, theirs, size, at_least=None, equal=True):
        ratio = theirs / ours if theirs else float("nan")
        goal = f" (at least {at_least:g}x)" if at_least else ""
        against = f"baseline {1e3 * theirs:10.4f} ms   {ratio:7.1f}x{goal}" if theirs else ""
        print(f"{name:44s} ours {1e3 * ours:10.4f} ms   {against}   {size}{'' if equal else '   DIFFERENT'}")
        if not equal:
            self.failures.append(f"{name}: the answers differ")
        if self.judged and at_least and not ratio >= at_least:
            self.failures.append(f"{name}: {ratio:.2f}x, expected at least {at_least:g}x")


def _best(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = function()
        times.append(time.perf_counter() - start)
    return min(times), answer


def _linprog_live(keys, sample):
    """Seconds for all keys, and verdicts on a sample: is there q with q (k_i - k_j) <= -1 for all i?"""
    from scipy.optimize import linprog

    start = time.perf_counter()
    verdicts = []
    for key in sample:
        rows = np.delete(keys, key, axis=0) - keys[key]
        answer = linprog(np.zeros(keys.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None))
        verdicts.append(answer.status == 0)
    return (time.perf_counter() - start) / len(sample) * len(keys), np.array(verdicts)


def _linprog_reachable(keys, queries, sample):
    from scipy.optimize import linprog

    scores = queries @ keys.T
    n = len(queries)
    start = time.perf_counter()
    verdicts = []
    for key in sample:
        gaps = np.delete(scores - scores[:, key : key + 1], key, axis=1).T  # (rivals, queries)
        answer = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.column_stack([gaps, np.ones(len(gaps))]),
            b_ub=np.zeros(len(gaps)),
            A_eq=np.append(np.ones(n), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)],
        )
        verdicts.append(answer.x is not None and answer.x[-1] > 1e-9)
    return (time.perf_counter() - start) / len(sample) * len(keys), np.array(verdicts)


def _real_head(layer=1, head=0):
    """Keys and queries of one trained head, all images together; None where the model cannot be run."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    if not (NETS / "vit_ibp_3_3_8.onnx").exists():
        return None
    model = onnx.load(NETS / "vit_ibp_3_3_8.onnx")
    prefix = f"/1/1.{layer}/1.{layer}.0/fn/fn.1/"
    names = [prefix + "Transpose_2_output_0", prefix + "Transpose_output_0"]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.load(NETS / "vit_inputs.npz")["inputs"].astype(np.float32)
    keys, queries = session.run(names, {session.get_inputs()[0].name: images})
    keys = keys[:, head].transpose(0, 2, 1)  # (images, tokens, d_k)
    return keys.reshape(-1, keys.shape[-1]).astype(float), queries[:, head].reshape(-1, keys.shape[-1]).astype(float)


def bench_live(table, keys, name, n_sampled, at_least=20.0):
    ours, live = _best(lambda: power_diagram(keys).live, 5)
    sample = np.linspace(0, len(keys) - 1, n_sampled).astype(int)
    theirs, verdicts = _linprog_live(keys, sample)
    equal = bool((verdicts == live[sample]).all())
    table.row(f"live keys {name}", ours, theirs, f"{live.sum()} of {len(keys)} live", at_least, equal)


def bench_reachable(table, keys, queries, name, n_sampled):
    power_diagram(keys).reachable(hull=queries)
    ours, answer = _best(lambda: power_diagram(keys).reachable(hull=queries), 3)
    sample = np.linspace(0, len(keys) - 1, n_sampled).astype(int)
    theirs, verdicts = _linprog_reachable(keys, queries, sample)
    equal = bool((verdicts == answer.is_reachable[sample]).all())
    table.row(f"reachable keys {name}", ours, theirs, f"{answer.n_reachable} of {len(keys)}", None, equal)


def bench_many_keys(table, n_keys, dim, rng):
    keys = rng.normal(size=(n_keys, dim))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours, live = _best(lambda: power_diagram(keys).live, 1)
    peak = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, before) / 2**20
    table.row(f"live keys N={n_keys} d={dim}", ours, None, f"{live.sum()} live, peak memory {peak:.2f} GiB")
    if peak > 2.0:
        table.failures.append(f"live keys N={n_keys}: {peak:.2f} GiB, expected at most 2")


def _hull_pruned(points):
    from scipy.spatial import ConvexHull

    total = points[0][ConvexHull(points[0]).vertices]
    for part in points[1:]:
        corners = part[ConvexHull(part).vertices]
        sums = (total[:, None] + corners[None]).reshape(-1, part.shape[1])
        total = sums[ConvexHull(sums).vertices]
    return len(total)


def _all_sums(points):
    from scipy.spatial import ConvexHull

    total = points[0]
    for part in points[1:]:
        total = (total[:, None] + part[None]).reshape(-1, part.shape[1])
    return len(ConvexHull(total).vertices)


def bench_joint(table, n_keys, dim, rng, baseline, at_least, repeats):
    points = [rng.normal(size=(n_keys, dim)) for _ in range(3)]
    heads = [(part, None) for part in points]
    ours, cells = _best(lambda: common_refinement(heads), repeats)
    theirs, count = _best(lambda: baseline(points), max(1, repeats - 2)) if baseline else (None, len(cells))
    per_vertex = ours / len(cells) * 1e6
    name = f"joint cells d={dim} H=3 N={n_keys}" + (f" / {baseline.__name__.strip('_')}" if baseline else "")
    size = f"{len(cells)} vertices, {per_vertex:.1f} us each, {cells.n_programs} programs, {cells.n_settled} settled"
    table.row(name, ours, theirs, size, at_least, count == len(cells))
    return ours


@kernel(cache=False)
def _cones(columns, entry_error):
    """What floats say of each of many cones, and prove of absence."""
    n_problems, n, m = columns.shape
    status, proved, point, multipliers = np.empty(n_problems, np.int8), np.zeros(n_problems), np.empty(n), np.empty(m)
    table, basic, nonbasic = np.empty((n + 4, m)), np.empty(m, np.int64), np.empty(n + 1, np.int64)
    for k in range(n_problems):
        status[k] = cone_search(columns[k], m, np.ones(m, np.bool_), table, basic, nonbasic, point, multipliers)
        proved[k] = status[k] == ABSENT and prove_positive_kernel(columns[k], m, multipliers, entry_error)
    return status, proved


def bench_kernel(table, n_problems, rng):
    """Is a cone of 30 rows in dimension 4 open? HiGHS keeps one model and changes its limits only."""
    import highspy

    rows = rng.normal(size=(n_problems, 30, 4))
    rows[:, :, 0] -= np.linspace(0.0, 3.0, n_problems)[:, None]
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    columns = np.ascontiguousarray(rows.transpose(0, 2, 1))
    ours, (status, _) = _best(lambda: _cones(columns, 2.0**-52), 5)
    zeros = np.zeros(30)
    checked, exists = _best(lambda: [interior_point(system, zeros).exists for system in rows], 3)

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = 5, 30
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    model.col_lower_, model.col_upper_ = np.append(np.full(4, -10.0), -10.0), np.append(np.full(4, 10.0), 1.0)
    model.row_lower_, model.row_upper_ = np.full(30, -np.inf), np.zeros(30)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(31) * 5
    model.a_matrix_.index_ = np.tile(np.arange(5), 30)
    model.a_matrix_.value_ = np.column_stack([rows[n_problems // 2], np.ones(30)]).reshape(-1)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    calls = min(n_problems, 300)
    start = time.perf_counter()
    for call in range(calls):
        solver.changeRowBounds(call % 30, -np.inf, 0.1 * rng.random())
        solver.run()
    theirs = (time.perf_counter() - start) / calls
    agree = bool((np.array(exists) == (status == 1)).all())
    table.row("one program d=4 m=30, proved, in a batch", ours / n_problems, theirs, "per call", 10.0, agree)
    table.row("one program d=4 m=30, interior_point", checked / n_problems, theirs, "per call", None, agree)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    full = parser.parse_args().size == "full"
    rng = np.random.default_rng(0)
    table = _Table(full)
    for dim in (4, 8):  # compiles, or reads the cache
        common_refinement([(rng.normal(size=(9, dim)), None)] * 2)
    power_diagram(rng.normal(size=(60, 4)), rng.normal(size=60)).reachable(hull=rng.normal(size=(5, 4)))

    bench_kernel(table, 2000 if full else 100, rng)
    n_keys, n_sampled = (512, 24) if full else (60, 4)
    bench_live(table, rng.normal(size=(n_keys, 64)), f"N={n_keys} d=64 gauss", n_sampled)
    real = _real_head()
    if real is not None:
        keys, queries = real
        bench_live(table, keys[:n_keys], f"N={n_keys} d={keys.shape[1]} trained head", n_sampled)
        bench_reachable(table, keys[:128], queries[:128], "128 trained keys, 128 queries", n_sampled)
    spread = np.exp(-np.arange(32) / 8.0)
    bench_reachable(
        table,
        rng.normal(size=(128, 32)) * spread,
        rng.normal(size=(128, 32)) * spread + 0.5,
        "128 keys, 128 queries, d=32",
        n_sampled,
    )
    if full:
        bench_many_keys(table, 10_000, 64, rng)
    for n_keys in (100, 500) if full else (30,):
        bench_joint(table, n_keys, 4, rng, _hull_pruned, 1.0, 7)
    bench_joint(table, 300 if full else 20, 4, rng, _all_sums, 100.0 if full else None, 3)
    seconds = bench_joint(table, 10, 8, rng, None, None, 3)
    if seconds > 10:
        table.failures.append(f"joint cells d=8 N=10: {seconds:.1f} s, expected under 10")
    for failure in table.failures:
        print("FAILED", failure)
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())

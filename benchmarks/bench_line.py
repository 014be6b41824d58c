"""Pieces of networks on a line: time, number of pieces, and whether an independent judge agrees.

    python benchmarks/bench_line.py [--size full|small]

A fold of tent maps, whose pieces double with every layer, shows how time grows with their number. A vision
transformer on the segment between two images (whole-sequence attention, so scores are quadratic there) is
compared with its own file run hard in onnxruntime at every piece's midpoint, and with equally spaced samples
(10^5 at full size). It needs ../shared beside the repository and the `onnx` extra; without them it is left out.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.cells.domains import Box, Segment

NETS = Path(__file__).resolve().parents[2] / "shared" / "nets"
SAMPLES = {"full": 100_001, "small": 2_001}
FOLDS = {"full": (14, 16), "small": (8, 10)}
#: Time a piece of the deeper fold beside that of the shallower one.
GROWTH = 1.5
#: A score difference that float32 cannot be trusted with in this network, whose scores reach a hundred.
NEAR_TIE = 1e-4


def _timed(function, *operands, **options):
    start = time.perf_counter()
    answer = function(*operands, **options)
    return time.perf_counter() - start, answer


def _ends(found):
    """Low and high ends of the pieces."""
    return found.pieces.vertices.reshape(-1, 2).T


def bench_folds(depths):
    """Seconds a piece of tent maps folded to two depths, and how many pieces."""
    tent = [hm.Affine([[2.0], [4.0]], [0.0, -2.0]), hm.ReLU(), hm.Affine([[1.0, -1.0]])]
    domain = Box([0.0], [1.0])
    results = []
    for depth in (2, *depths):  # the first compiles, or reads the cache
        net = hm.Network(tent * depth, 1)
        seconds, found = _timed(hm.enumerate_cells, net, domain)
        results.append((depth, seconds, len(found), found.n_settled))
    return results[1:]


def bench_transformer(first, last):
    """Pieces between two images, certified and in plain floats, with their times."""
    net = hm.read(NETS / "vit_ibp_3_3_8.onnx").with_temperature(0.0)
    images = np.load(NETS / "vit_inputs.npz")["inputs"].astype(np.float64)
    domain = Segment(images[first], images[last])
    estimated, guessed = _timed(hm.enumerate_cells, net, domain, "float")
    certified, found = _timed(hm.enumerate_cells, net, domain)
    labels = [cells.labels[np.argsort(_ends(cells)[0])] for cells in (guessed, found)]
    same = np.array_equal(*labels)
    return net, domain, found, certified, estimated, same


def _hard_session():
    """The model's file with Softmax turned into Hardmax, and what enters each choice as further outputs."""
    import onnx
    import onnxruntime

    model = onnx.load(NETS / "vit_ibp_3_3_8.onnx")
    choices = []
    for node in model.graph.node:
        if node.op_type in ("Softmax", "Relu"):
            choices.append((node.input[0], node.op_type == "Relu"))
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.input[0]))
            node.op_type = "Hardmax" if node.op_type == "Softmax" else node.op_type
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options), choices


def bench_midpoints(net, domain, found):
    """Every piece's label at its midpoint: float32 in onnxruntime, float64 here, rationals where they differ.

    Returns how many pieces onnxruntime confirms in every choice, how many differ first at a near-tie that
    rationals settle for us, and how many are wrong.
    """
    session, choices = _hard_session()
    middles = _ends(found).mean(axis=0)
    points = domain.points(middles[:, None], net.input_shape)
    wrong = (net.labels(points) != found.labels).any(axis=1)
    values = session.run([name for name, _ in choices], {session.get_inputs()[0].name: points.astype(np.float32)})
    agrees, column = np.ones(len(found), dtype=bool), 0
    for (_, is_relu), value in zip(choices, values, strict=True):
        theirs = value > 0 if is_relu else value.argmax(axis=-1)
        ordered = np.sort(value, axis=-1)
        margin = np.abs(value) if is_relu else ordered[..., -1] - ordered[..., -2]
        theirs, margin = theirs.reshape(len(found), -1), margin.reshape(len(found), -1)
        ours = found.labels[:, column : column + theirs.shape[1]]
        column += theirs.shape[1]
        differs = (ours != theirs) & agrees[:, None]
        wrong |= (differs & (margin > NEAR_TIE)).any(axis=1)
        agrees &= ~differs.any(axis=1)
    for piece in np.flatnonzero(~agrees):  # float32 saw a near-tie: ask rationals
        wrong[piece] |= bool((_exact_labels(net, domain, middles[piece]) != found.labels[piece]).any())
    return int(agrees.sum()), int((~agrees & ~wrong).sum()), int(wrong.sum())


def _exact_labels(net, domain, at):
    origin, (direction,) = domain.slice_of(net.input_shape)
    pairs = zip(origin.reshape(-1).tolist(), direction.reshape(-1).tolist(), strict=True)
    point = [Fraction(x) + Fraction(float(at)) * Fraction(step) for x, step in pairs]
    return net.labels(np.array(point, dtype=object).reshape(net.input_shape))


def bench_samples(net, domain, found, n_samples):
    """Equally spaced samples: how many lie strictly inside a piece, and how many of those have another label."""
    samples = np.linspace(0.0, 1.0, n_samples)
    starts, ends = _ends(found)
    order = np.argsort(starts)
    piece = order[np.searchsorted(starts[order], samples, side="right") - 1]
    distance = np.minimum(samples - starts[piece], ends[piece] - samples)
    inside = distance > found.pieces.error.max()
    missed = 0
    for first in range(0, n_samples, 2000):
        part = slice(first, first + 2000)
        labels = net.labels(domain.points(samples[part, None], net.input_shape))
        missed += int(((labels != found.labels[piece[part]]).any(axis=1) & inside[part]).sum())
    return int(inside.sum()), missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SAMPLES), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    size = parser.parse_args().size
    failures = []
    (_, shallow, n_shallow, _), (depth, deep, n_deep, settled) = bench_folds(FOLDS[size])
    growth = (deep / n_deep) / (shallow / n_shallow)
    print(
        f"folds          {n_deep} pieces at depth {depth} in {deep:.3f} s, {settled} settled in rationals; "
        f"time a piece {growth:.2f}x that at {n_shallow}"
    )
    if (n_shallow, n_deep) != tuple(2**d for d in FOLDS[size]):
        failures.append(f"folds: {n_shallow} and {n_deep} pieces, expected powers of two")
    if size == "full" and growth > GROWTH:
        failures.append(f"folds: time a piece grew {growth:.2f}x, expected at most {GROWTH}")
    if not NETS.is_dir():
        print("transformer    left out: needs ../shared beside the repository")
        return _verdict(failures)
    for pair in ((0, 1), (2, 3)) if size == "full" else ((0, 1),):
        net, domain, found, certified, estimated, same = bench_transformer(*pair)
        print(
            f"transformer    images {pair}: {len(found)} pieces, certified {certified:.2f} s "
            f"({found.n_settled} settled in rationals), float {estimated:.2f} s ({'same' if same else 'DIFFERENT'})"
        )
        seconds, (agree, near, wrong) = _timed(bench_midpoints, net, domain, found)
        print(
            f"  midpoints    {agree} confirmed by onnxruntime in float32, {near} near-ties confirmed in rationals, "
            f"{wrong} wrong, {seconds:.1f} s"
        )
        seconds, (inside, missed) = _timed(bench_samples, net, domain, found, SAMPLES[size])
        print(f"  samples      {inside} of {SAMPLES[size]} strictly inside pieces, {missed} missed, {seconds:.1f} s")
        if wrong or missed:
            failures.append(f"transformer {pair}: {wrong} wrong midpoints, {missed} missed samples")
    return _verdict(failures)


def _verdict(failures):
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

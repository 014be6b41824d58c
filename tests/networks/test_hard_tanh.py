"""HardTanh beside torch and onnxruntime, ties at its bounds included, and what floats keep of small numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import ParameterError, WeightError
from hardmax.show.report.cell_map.colourings import choices_of
from networks.files.onnx_graphs import run, save, small_model

RNG = np.random.default_rng(5)


@given(st.floats(-3, 3), st.floats(0, 2), st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_it_is_the_minimum_of_a_maximum_and_rounds_nothing(low, wide, entries):
    high = low + wide
    points = np.array([*entries, low, high, np.nextafter(low, 9), np.nextafter(high, -9)])
    net = hm.Network([hm.HardTanh(low, high)], len(points))
    assert (net(points) == np.clip(points, low, high)).all()
    exact = net([Fraction(x) for x in points.tolist()])
    assert exact.tolist() == [min(max(Fraction(x), Fraction(low)), Fraction(high)) for x in points.tolist()]
    above, below = net.labels(points).reshape(2, -1)
    assert (above == (points > low)).all() and (below == (np.maximum(points, low) < high)).all()


def test_small_numbers_pass_unchanged_and_the_report_calls_it_a_clip():
    net = hm.Network([hm.HardTanh()], 1)
    assert net([1e-20])[0] == 1e-20 and net([5e-324])[0] == 5e-324
    assert net(np.array([1e-20], dtype=np.float32))[0] == np.float32(1e-20)
    assert [choice.title for choice in choices_of(net)] == ["clip 0, unit 0", "clip 1, unit 0"]
    tiny = 2.0**-90
    cells = hm.enumerate_cells(net, hm.Segment([tiny], [3 * tiny]))
    assert (cells.n_cells, cells.offsets.tolist(), cells.slopes.tolist()) == (1, [[tiny]], [[[2 * tiny]]])


@pytest.mark.parametrize(
    ("bounds", "error", "words"),
    [((1.0, -1.0), ParameterError, "low <= high"), ((float("nan"), 1.0), WeightError, "entry \\[0\\] is nan")],
)
def test_bounds_out_of_order_or_not_finite_are_refused(bounds, error, words):
    with pytest.raises(error, match=words):
        hm.HardTanh(*bounds)


def _inputs(dtype, *bounds):
    ties = [np.nextafter(dtype(bound), dtype(away)) for bound in bounds for away in (-9, bound, 9)]
    return np.array([*RNG.normal(size=40), *ties, 0.0, 1e-20, -1e-30], dtype=dtype)[:, None]


@pytest.mark.extras
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-0.5, 0.25), (0.0, 6.0)])
def test_torch_s_hardtanh_is_read_and_written(bounds):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    net = hm.from_torch(torch.nn.Sequential(torch.nn.Hardtanh(*bounds)), torch.zeros(1, 1))
    x = _inputs(np.float32, *bounds)
    assert (net(x) == torch.nn.Hardtanh(*bounds)(torch.tensor(x)).numpy()).all()
    ours = hm.Network([hm.HardTanh(*bounds)], 1)
    assert (net.labels(x) == ours.labels(x)).all()
    assert (hm.to_torch(ours, dtype="float32")(torch.tensor(x)).detach().numpy() == ours(x)).all()


@pytest.mark.extras
@pytest.mark.parametrize(
    ("opset", "dtype"),
    [(7, np.float32), (10, np.float32), (11, np.float32), (12, np.float64), (13, np.float32), (17, np.float64)],
)
def test_onnx_clip_with_both_bounds_is_hard_tanh(opset, dtype, tmp_path):
    low, high = float(np.float32(-1 / 3)), 0.75
    attributes = {"min": low, "max": high} if opset < 11 else {}
    constants = {} if opset < 11 else {"low": dtype(low), "high": dtype(high)}
    nodes = [("Clip", ["x", *constants], ["y"], attributes)]
    model = small_model(nodes, ["batch", 1], constants, opset, dtype=np.dtype(dtype).name)
    net, ours = hm.read(save(model, tmp_path)), hm.Network([hm.HardTanh(low, high)], 1)
    x = _inputs(dtype, low, high)
    assert (net(x) == run(model, x)).all()
    assert (net(x) == ours(x)).all() and (net.labels(x) == ours.labels(x)).all()


@pytest.mark.extras
def test_a_bound_below_every_float32_is_a_bound_and_the_last_float_is_none(tmp_path):
    last = float(np.finfo(np.float64).min)
    for operator, bound, expected in (("Max", -1e300, -1e300), ("Clip", -1e300, -1e300), ("Clip", last, -1e305)):
        nodes, constants = [(operator, ["x", "low"], ["y"], {})], {"low": np.float64(bound)}
        model = small_model(nodes, ["batch", 1], constants, 13, dtype="float64")
        net = hm.read(save(model, tmp_path))
        x = np.array([[-1e305], [-2.0]])
        assert net(x).tolist() == [[expected], [-2.0]] and (net(x) == run(model, x)).all()
    none = small_model([("Clip", ["x", "low"], ["y"], {})], ["batch", 1], {"low": np.finfo(np.float32).min}, 13)
    assert hm.read(save(none, tmp_path)).n_choices == 0

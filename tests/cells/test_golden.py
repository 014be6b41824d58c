"""Published and recounted numbers: tests/golden holds them, each row with its source."""

import csv
import subprocess
import sys

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import label_set, triple
from conftest import REPOSITORY
from networks.builders import network_of
from oracles.network_cases import GOLDEN_COUNTS, audit_cases, grid_transformer, reference_cases

_RELU_COUNTS = GOLDEN_COUNTS.with_name("relu_net_counts.csv")


def _domain(dim, low, high):
    return hm.Space(dim) if low is None else hm.Box([low] * dim, [high] * dim)


# --- reference values 1 to 9 and the audit's examples -------------------------------------------------------

_CASES = [case for case in reference_cases() + audit_cases() if "grid (3" not in case.name]  # thirds are no floats


@pytest.mark.parametrize("mode", ["certified", "exact", "float"])
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_reference_cases_have_their_cells_regions_and_maps(case, mode):
    net, domain = network_of(case.layers, case.dim), _domain(case.dim, case.low, case.high)
    assert triple(hm.enumerate_cells(net, domain, exactness=mode)) == case.triple
    assert hm.count_cells(net, domain, exactness=mode) == case.triple[0]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_reference_cases_carry_their_certificates(case):
    cells = hm.enumerate_cells(network_of(case.layers, case.dim), _domain(case.dim, case.low, case.high))
    assert cells.certificate.ok, str(cells.certificate)


# --- the grid transformer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_keys", "dim", "folds", "depth"),
    [(2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 2, 1), (3, 2, 2, 2), (2, 2, 4, 2), (3, 2, 3, 2), (2, 3, 2, 1), (5, 1, 3, 3)],
)
@pytest.mark.parametrize("mode", ["certified", "float"])
def test_the_grid_transformer_attains_its_count_in_cells_and_regions(n_keys, dim, folds, depth, mode):
    wanted = (n_keys * folds) ** (dim * depth)
    net = hm.grid_transformer(n_keys, dim, folds, depth)
    cells = hm.enumerate_cells(net, _domain(dim, 0, 1), exactness=mode)
    assert (cells.n_cells, cells.n_regions) == (wanted, wanted)
    assert hm.count_cells(net, _domain(dim, 0, 1), exactness=mode) == wanted
    assert np.allclose(cells.volumes, 1 / wanted, rtol=1e-9)  # every cell is blown up to the whole cube


@pytest.mark.parametrize(("n_keys", "depth"), [(2, 2), (4, 2), (2, 3)])
def test_the_theorems_own_form_has_the_same_count_where_its_weights_are_floats(n_keys, depth):
    net = network_of(grid_transformer(n_keys, 2, 2, depth), 2)
    assert hm.count_cells(net, hm.Box([0, 0], [1, 1])) == (2 * n_keys) ** (2 * depth)


def test_rounded_thirds_leave_slivers_and_the_certified_count_sees_every_one():
    """Rounded weights make another network: its walls miss each other by an ulp, and its cells are real."""
    net = network_of(grid_transformer(3, 1, 2, 2), 1)
    counts = {mode: hm.count_cells(net, hm.Box([0], [1]), exactness=mode) for mode in ("certified", "exact")}
    assert counts["certified"] == counts["exact"] > 36


# VmHWM, not ru_maxrss: the latter starts from the parent's peak, which compiling may have raised.
_PEAK = """
import sys
import hardmax as hm
box, net = hm.Box([0, 0], [1, 1]), hm.grid_transformer(4, 2, 2, int(sys.argv[1]))
count = hm.count_cells(net, box)
print(count, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_counting_takes_no_more_memory_for_sixty_four_times_as_many_cells():
    peaks = {}
    for depth in (2, 3):
        command = [sys.executable, "-c", _PEAK, str(depth)]
        done = subprocess.run(command, cwd=REPOSITORY / "src", capture_output=True, text=True, check=True)
        count, kibibytes = map(int, done.stdout.split())
        assert count == 8 ** (2 * depth)
        peaks[depth] = kibibytes
    assert peaks[3] < 1 << 20 and peaks[3] - peaks[2] < 200 << 10


# --- the shared networks ------------------------------------------------------------------------------------


def _relu_rows():
    with _RELU_COUNTS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _id(row):
    return f"{row['name'][0]} on {row['domain']}"


@pytest.mark.parametrize("row", _relu_rows(), ids=_id)
def test_shared_relu_networks_have_their_counts(row, shared):
    net = hm.read(shared / "nets" / f"{row['name']}.npz")
    dim = net.input_shape[0]
    domain = hm.Space(dim) if row["domain"].startswith("R") else hm.Box([-1] * dim, [1] * dim)
    wanted = int(row["cells"])
    assert hm.count_cells(net, domain) == wanted
    cells = hm.enumerate_cells(net, domain)
    assert cells.n_cells == wanted
    if row["regions"]:
        assert triple(cells) == (wanted, int(row["regions"]), int(row["maps"]))
    if not row["name"].startswith("i"):  # walls of i miss each other by a rounding error: floats may miscount it
        assert hm.count_cells(net, domain, exactness="float") == wanted


@pytest.mark.parametrize("name", ["a_2-16-16-1_pt", "g_2-16-16-1_zerobias", "i_2-15-8-1_argmaxpairs", "e_3-16-16-1_pt"])
def test_shared_relu_networks_carry_their_certificates(name, shared):
    net = hm.read(shared / "nets" / f"{name}.npz")
    dim = net.input_shape[0]
    cells = hm.enumerate_cells(net, hm.Box([-1] * dim, [1] * dim))
    assert cells.certificate.ok, str(cells.certificate)


@pytest.mark.parametrize("name", ["a_2-16-16-1_pt", "g_2-16-16-1_zerobias", "i_2-15-8-1_argmaxpairs"])
def test_rational_mode_finds_the_same_labels_in_the_shared_networks(name, shared):
    net, box = hm.read(shared / "nets" / f"{name}.npz"), hm.Box([-1, -1], [1, 1])
    found, exact = (hm.enumerate_cells(net, box, exactness=mode) for mode in ("certified", "exact"))
    assert label_set(found) == label_set(exact) and triple(found) == triple(exact)


def _window(net, half_width, centre):
    """A small square of the plane through ``centre`` along two directions."""
    origin = np.full(net.input_shape, centre)
    basis = np.zeros((2, *net.input_shape))
    if origin.size > 100:
        basis = np.random.default_rng(0).random(basis.shape)  # a picture has no two pixels worth a plane
    else:
        basis.reshape(2, -1)[[0, 1], [0, 1]] = 1.0
    return hm.Plane(origin, basis, ((-half_width, half_width),) * 2)


@pytest.mark.extras
@pytest.mark.parametrize(
    ("name", "half_width", "centre"),
    [("mnist_256x2", 0.0003, 0.0), ("acasxu_1_1", 0.06, 0.0), ("acasxu_1_1", 0.03, 0.25)],
)
def test_slices_of_published_networks_agree_with_rational_mode_on_a_window(name, half_width, centre, shared):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    net = hm.read(shared / "nets" / f"{name}.onnx")
    window = _window(net, half_width, centre)
    found, exact = (hm.enumerate_cells(net, window, exactness=mode) for mode in ("certified", "exact"))
    assert label_set(found) == label_set(exact) and found.n_cells > 10
    assert triple(found) == triple(exact)
    assert hm.count_cells(net, window) == found.n_cells
    assert found.certificate.ok, str(found.certificate)

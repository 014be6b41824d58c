"""First queries and small covers in torch: what they prove holds, on whatever device; here on the processor."""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.heads.classes import device
from hardmax.heads.classes.domains import read_domain
from hardmax.heads.classes.problem import tamed
from hardmax.heads.classes.proofs import exactly_covered

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs torch, which is not installed")


@pytest.fixture(scope="module")
def head(torch):
    """400 rows of multiples of 1/256 in dimension 96, the last forty mixtures of others in sixteenths."""
    rng = np.random.default_rng(3)
    weights, bias = np.rint(256 * rng.normal(size=(400, 96))) / 256, np.rint(32 * rng.normal(size=400)) / 256
    for i in range(360, 400):
        rivals = rng.choice(360, 4, replace=False)
        parts = rng.multinomial(12, [0.25] * 4) + 1
        weights[i], bias[i] = parts @ weights[rivals] / 16, parts @ bias[rivals] / 16 - 2.0**-6
    return weights.astype(np.float32), bias.astype(np.float32)


def test_an_audit_with_a_device_equals_one_without(head):
    plain, fast = hm.audit_classes(*head), hm.audit_classes(*head, device="cpu")
    assert (plain.status == fast.status).all() and fast.n_undecided == 0 and fast.verify().ok
    assert fast.dead[360:].all()


def test_planted_rows_are_found_as_mixtures_that_rationals_prove(head):
    weights, bias = (numbers.astype(float) for numbers in head)
    found = device.device_verdicts(device.DeviceHead(*head, "cpu"))
    problem = tamed(weights, bias, np.arange(len(bias)), read_domain("all", 96))
    proved = {mixture.row for mixture in found.mixtures if exactly_covered(problem, mixture.rivals, mixture.row)}
    assert set(range(360, 400)) <= proved and not found.is_live[360:].any()


@pytest.mark.parametrize("scale", [1.0, 2.0**-20, 2.0**30])
def test_rows_win_on_a_device_only_where_rationals_agree(torch, scale):
    """Queries put onto the wall between two rows, and moved by units in the last place of binary32."""
    rng = np.random.default_rng(0)
    rows, bias = (scale * rng.integers(-9, 10, (2, 8))).astype(np.float32), rng.integers(-3, 4, 2).astype(np.float32)
    one = device.DeviceHead(rows, bias, "cpu")
    n_won = 0
    for _ in range(300):
        first, second = rng.permutation(2)
        step = (rows[first] - rows[second]).astype(float)
        query = rng.normal(size=8) / scale
        query += (float(bias[second] - bias[first]) - step @ query) / (step @ step) * step
        query = (query + rng.choice([0.0, 1e-7, -1e-7, 1e-6, 1e-2]) * step / (step @ step)).astype(np.float32)
        won, scores = one.wins(torch.from_numpy(query[None]), torch.tensor([int(first)]))
        exact = [
            sum((Fraction(float(w)) * Fraction(float(x)) for w, x in zip(row, query, strict=True)), Fraction(float(b)))
            for row, b in zip(rows, bias, strict=True)
        ]
        wins = all(exact[first] > score for j, score in enumerate(exact) if j != first)
        assert wins or not bool(won[0])
        assert scores[0, first] == -torch.inf
        n_won += bool(won[0])
    assert n_won > 0


def test_what_a_device_cannot_do_is_refused_by_name(head):
    with pytest.raises(ParameterError, match="torch cannot use it"):
        hm.audit_classes(*head, device="no-such-device")
    with pytest.raises(ParameterError, match="binary32 holds"):
        hm.audit_classes([[1 / 3], [1.0]], device="cpu")
    with pytest.raises(ParameterError, match='domain="all"'):
        hm.audit_classes(*head, domain="nonnegative", device="cpu")


def test_the_precision_of_products_is_left_as_it_was(torch, head):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        device.device_verdicts(device.DeviceHead(*head, "cpu"))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_device_needs_neither_compiler_nor_solver(torch):
    code = (
        "import sys\n"
        "for name in ('numba', 'scipy', 'highspy'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from hardmax.heads.classes import device\n"
        "head = device.DeviceHead(np.eye(5, dtype=np.float32), np.zeros(5, dtype=np.float32), 'cpu')\n"
        "print(device.device_verdicts(head).is_live.sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.strip() == "5"

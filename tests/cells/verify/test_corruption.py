"""The corruption law: ``hm.verify`` believes a right complex, and finds every claim that was made wrong."""

import os

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens
from cells.verify.damages import DOMAINS, LAYERS, NUMBERS, copied, damages, random_complex

#: A larger campaign: HARDMAX_CORRUPTIONS=2000 pytest tests/cells/verify/test_corruption.py
_N = int(os.environ.get("HARDMAX_CORRUPTIONS", "20"))
_KINDS = [
    (dim, layers, numbers, domain)
    for dim in (1, 2, 3, 4, 5)
    for layers in LAYERS
    for numbers in NUMBERS
    for domain in DOMAINS
]
#: An error that is set to 0 may be 0 in truth; one that is 1e6 times too large may still be what roundings explain.
_MAY_BE_RIGHT = {"error set to 0", "map_error set to 0", "error x 1e6", "map_error x 1e6"}


def _complexes(first: int, last: int):
    for seed in range(first, last):
        kind = _KINDS[7919 * seed % len(_KINDS)]
        cells = random_complex(seed, *kind)
        if cells.n_cells <= 80:
            assert len(cells.map_of) == len(cells.region_of) > cells.neighbours.max(initial=0)  # asked, so claimed
            yield seed, kind, cells


def _missed(cells, seed, thorough) -> list[str]:
    return [name for name, damaged in damages(cells, seed) if hm.verify(damaged, thorough=thorough).ok]


@pytest.mark.parametrize("first", range(0, _N, 10))
@pytest.mark.parametrize("thorough", [False, True])
def test_every_wrong_claim_is_found_and_no_right_one(first, thorough):
    last = min(first + (4 if thorough else 10), _N)
    for seed, kind, cells in _complexes(first, last):
        result = hm.verify(cells, thorough=thorough)
        assert result.ok, (seed, kind, str(result))
        assert set(_missed(cells, seed, thorough)) <= _MAY_BE_RIGHT, (seed, kind)


def test_every_wrong_claim_about_intervals_with_quadratic_scores_is_found():
    for seed in range(4):
        net, start, end = moving_tokens(seed)
        cells = hm.enumerate_cells(net, hm.Segment(start, end + 1 / 3))
        assert hm.verify(cells).ok, seed
        assert set(_missed(cells, seed, thorough=False)) <= _MAY_BE_RIGHT, seed


def test_errors_that_are_too_small_or_far_too_large_are_found():
    """Corners at thirds and sevenths are no floats: an error of 0 is false, and roundings do not make one of 1e-6."""
    net = hm.Network([hm.Affine([[3.0, 1.0], [1.0, 7.0]], [-1.0, -1.0]), hm.ReLU(), hm.Affine([[0.1, 0.3]])], 2)
    for domain in (hm.Box([0, 0], [1, 1]), hm.Space(2)):
        cells = hm.enumerate_cells(net, domain)
        for name in ("error", "map_error"):
            right = cells.pieces.error if name == "error" else cells.map_error
            assert right.any() and hm.verify(cells).ok
            loose, small = np.where(right > 0, 1e-6, 0.0), right * 1e-8
            for wrong, thorough in ((loose, False), (small, False), (small, True)):
                assert not hm.verify(copied(cells, **{name: wrong}), thorough=thorough).ok, (name, thorough)


def test_an_error_that_is_far_too_large_is_found_at_every_corner():
    """Also at corners so near the end of the domain, or at infinity, that it reaches outside."""
    net = hm.Network([hm.Affine([[3.0, 1.0], [1.0, 7.0]], [-1.0, -1.0]), hm.ReLU(), hm.Affine([[0.1, 0.3]])], 2)
    for domain in (hm.Box([0, 0], [1, 1]), hm.Space(2)):
        cells = hm.enumerate_cells(net, domain)
        for corner in np.flatnonzero(cells.pieces.error > 0):
            error = cells.pieces.error.copy()
            error[corner] = 1e-6
            failed = [check.name for check in hm.verify(copied(cells, error=error)).checks if not check.passed]
            assert "error bounds" in failed, (domain, corner)


def test_a_saved_complex_still_verifies(tmp_path):
    for seed, _, cells in _complexes(0, 6):
        cells.save(tmp_path / f"{seed}.npz")
        assert hm.verify(hm.load_cells(tmp_path / f"{seed}.npz")).ok, seed

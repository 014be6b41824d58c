"""Threads in which floats are not those of IEEE 754 get no answer."""

import ctypes
import platform
from contextlib import contextmanager

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import PrecisionError
from hardmax.exactness import check_floats

_SMALL = 2.0**-1060
_NETWORK = hm.Network([hm.Affine([[_SMALL, 0.0], [0.0, 1.0]]), hm.ReLU()], 2)
_BOX = hm.Box([-1.0, -1.0], [1.0, 1.0])
_KEYS = np.array([[_SMALL, 0.0], [0.0, 0.0], [-_SMALL, 0.0]])
_CELLS = hm.enumerate_cells(_NETWORK, _BOX)
_QUESTIONS = {
    "cells": lambda: hm.enumerate_cells(_NETWORK, _BOX),
    "cells in rationals": lambda: hm.enumerate_cells(_NETWORK, _BOX, exactness="exact"),
    "count": lambda: hm.count_cells(_NETWORK, _BOX),
    "verify": lambda: hm.verify(_CELLS),
    "labels": lambda: _NETWORK.labels([[1.0, 1.0]]),
    "local map": lambda: hm.local_map(_NETWORK, [0.5, 0.5]),
    "diagram": lambda: hm.power_diagram(_KEYS).live,
    "classes": lambda: hm.audit_classes(_KEYS, np.zeros(3)),
    "stability": lambda: hm.stability.certify([[_SMALL, 0.0]], 1.0),
}


@contextmanager
def _flushing():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    assert torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _rounding(mode):
    math = ctypes.CDLL(None)
    before = math.fegetround()
    assert math.fesetround(mode) == 0
    try:
        yield
    finally:
        math.fesetround(before)


@pytest.mark.parametrize("question", _QUESTIONS)
def test_nothing_is_answered_where_small_floats_are_zero(question):
    with _flushing(), pytest.raises(PrecisionError, match=r"smallest ones for zero.*set_flush_denormal"):
        _QUESTIONS[question]()
    _QUESTIONS[question]()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="modes of rounding have other numbers on this processor")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00], ids=["down", "up", "to zero"])
def test_nothing_is_answered_where_floats_are_rounded_to_one_side(mode):
    with _rounding(mode), pytest.raises(PrecisionError, match="rounds to one side"):
        hm.power_diagram(_KEYS)
    check_floats()

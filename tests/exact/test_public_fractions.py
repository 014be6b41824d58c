"""What users are given in exact mode is ``Fraction``, with python-flint installed and without."""

from contextlib import suppress
from fractions import Fraction
from types import FunctionType, ModuleType

import numpy as np
import pytest

import hardmax as hm
from hardmax.constructions.lowering.lower import discontinuity, exact_terms
from hardmax.exact import rationals


@pytest.fixture(params=["as installed", "without python-flint"])
def _numbers(request, monkeypatch):
    if request.param == "without python-flint":
        monkeypatch.setattr(rationals, "_fmpq", None)


def _network():
    head = hm.Head([[1.0, 0.0], [0.0, 0.1], [-1.0, 0.5]], [[1.0, 0.3], [0.0, 2.0], [0.5, 0.5]], np.eye(2))
    layers = [hm.Residual(hm.Attention([head])), hm.Affine([[0.1, 1.0], [1.0, -1.0]], [0.5, 0.0]), hm.ReLU()]
    return hm.Network(layers, 2)


@pytest.mark.usefixtures("_numbers")
def test_a_network_on_fractions_gives_fractions_that_compare_and_hash_equal():
    net = hm.Network([hm.Affine([[0.5, 0.0]], [0.25]), hm.ReLU()], 2)
    found = net([Fraction(1, 2), Fraction(0)])[0]
    assert type(found) is Fraction and found == Fraction(1, 2) and {Fraction(1, 2): "half"}[found] == "half"
    batch = net(np.array([[Fraction(1, 3), 1], [-2, Fraction(1, 7)]], dtype=object))
    assert batch.shape == (2, 1) and batch.tolist() == [[Fraction(5, 12)], [Fraction(0)]]
    assert net(np.empty((0, 2), dtype=object)).shape == (0, 1)


def _calls():
    """Public answers that hold exact numbers, or might."""
    net, chain = _network(), hm.Network([hm.Affine([[0.1, 1.0], [1.0, -1.0]]), hm.ReLU(), hm.Affine([[1.0, 0.3]])], 2)
    point = np.array([Fraction(1, 3), Fraction(2, 7)], dtype=object)
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1], [0.0, 0.0]])
    maxout = hm.Network([hm.Affine([[1.0, 2.0], [0.0, 1.0]]), hm.Maxout(2)], 2)
    compiled = hm.maxout_to_transformer(maxout)
    audit = hm.audit_classes(keys, [0.0, 0.0, 0.1, -1.0])
    yield from (net(point), compiled(point), compiled.tokens(point), exact_terms(chain), hm.lower(chain))
    yield from (discontinuity(net), hm.stability.routing_radius(net, [0.3, 0.2]), audit)
    yield [audit.certificate(int(i)) for i in np.flatnonzero(~audit.live)]
    yield from (hm.power_diagram(keys), hm.piecewise_linear([[0, 0], [1, 0], [0, 1]], [0, 0.1, 2]))
    for domain in (hm.Box([-1, -1], [1, 1]), hm.Space(2), hm.Segment([-1, 0], [1, 0.3])):
        cells = hm.enumerate_cells(net, domain, exactness="exact")
        yield from (cells, [cells.vertices(i) for i in range(cells.n_cells)], hm.verify(cells))


def _parts(answer, depth=4):
    """Everything that an answer shows: entries, and attributes of our own classes."""
    yield answer
    if depth == 0 or isinstance(answer, str | bytes | type | FunctionType | ModuleType | np.generic):
        return
    if isinstance(answer, np.ndarray):
        inside = answer.reshape(-1).tolist() if answer.dtype == object else []
    elif isinstance(answer, dict):
        inside = [*answer, *answer.values()]
    elif isinstance(answer, list | tuple | set | frozenset):
        inside = list(answer)
    else:
        ours = type(answer).__module__.startswith("hardmax")
        names = [name for name in dir(answer) if ours and not name.startswith("_") and name not in ("network", "net")]
        inside = []
        for name in names:
            with suppress(hm.HardmaxError):  # the classes of cells whose network decides nothing
                inside.append(getattr(answer, name, None))
    for part in inside:
        yield from _parts(part, depth - 1)


def test_no_public_answer_holds_numbers_of_python_flint():
    flint = pytest.importorskip("flint", reason="needs python-flint, which is not installed")
    assert any(isinstance(part, flint.fmpq) for part in _parts([{"a": (flint.fmpq(1, 2),)}]))  # the walk finds them
    for answer in _calls():
        strange = [part for part in _parts(answer) if isinstance(part, flint.fmpq | flint.fmpz)]
        assert not strange, (type(answer).__name__, strange[:3])

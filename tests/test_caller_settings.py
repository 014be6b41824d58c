"""What a caller set for his own numbers changes no answer: numpy's errors, decimals, printed arrays, threads."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from decimal import ROUND_UP, Context, FloatOperation, Inexact, Subnormal, localcontext
from functools import partial

import numpy as np
import pytest

import hardmax as hm

_KEYS = np.array([[1.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1 / 3, 1 / 7], [0.0, 3.0]])
_BIASES = np.array([0.0, -1.0, 1.0, 0.5, -1.0])
_X = [0.3, 0.7]


def _net(scale, temperature):
    head = hm.Head(scale * _KEYS[:3], scale * _KEYS[1:4], np.eye(2))
    weight = scale * np.array([[1.0, -0.5], [1 / 3, 1 / 7]])
    return hm.Network([hm.Residual(hm.Attention([head])), hm.Affine(weight, [0.1, -0.2]), hm.ReLU()], 2, temperature)


def _questions(scale):
    """Each with its numbers made beforehand: products of the caller's are his own affair."""
    maxout = hm.Network([hm.Affine(scale * _KEYS[:4]), hm.Maxout(2)], 2)
    keys, soft, hard, box = scale * _KEYS, _net(scale, 1.0), _net(scale, 0.0), hm.Box([-1.0, -1.0], [1.0, 1.0])
    cuts, far = scale * np.array([1.0, -2.0]), scale * np.array([[3.0, 1.0, -900.0], [2.0, 2.0, -np.inf]])
    stability, fidelity = hm.stability, hm.fidelity
    return [
        lambda: stability.bounds(5, scale, 1.0, key_diameter=3.0),
        lambda: (stability.competitor_weight(1.0, scale), stability.transition_width(9, 0.1, scale)),
        lambda: [getattr(stability.certify(far, 1.0), name) for name in ("value", "hessian", "value_bound", "holds")],
        lambda: stability.certify_stream(far, 1.0),
        lambda: stability.network(soft, _X, 0.125).largest_temperature,
        lambda: stability.routing_radius(hard, _X),
        lambda: [hm.power_diagram(keys, _BIASES).live, hm.power_diagram(keys, _BIASES).neighbours],
        lambda: hm.power_diagram(keys, _BIASES).order(2).subsets,
        lambda: hm.power_diagram(keys).reachable(ball=(_X, 0.5)).keys,
        lambda: hm.joint_cells([(keys, _BIASES), (keys[::2], None)]),
        lambda: hm.TropicalPolynomial(keys, _BIASES)(_X, temperature=0.5),
        lambda: hm.TropicalPolynomial(keys, _BIASES).compose([[1.0], [0.5]], cuts).essential().slopes,
        lambda: [getattr(hm.enumerate_cells(hard, box), name) for name in ("labels", "volumes", "slopes", "n_regions")],
        lambda: hm.sample_cells(hard, box, 1000, rng=np.random.default_rng(0)),
        lambda: [soft(_X), hard(_X), hm.local_map(hard, _X).radius],
        lambda: hm.cells_around(hard, _X, max_cells=5).labels,
        lambda: [fidelity.compare(soft, [_X, [1.0, -1.0]]), fidelity.by_head(soft, [_X])],
        lambda: [rows.entropies for rows in fidelity.attention_rows(soft, [_X, [9.0, -9.0]])],
        lambda: hm.maxout_to_transformer(maxout, bound=2.0).error_bound(0.1),
        lambda: hm.bounds.expected_joint_cells(5, 3, 4, affine=False),
        lambda: [str(found.witness) for found in hm.claims.check(["VI.1-affine", "VI.3-walls", "VI.2"])],
        partial(hm.bounds.zaslavsky, 10**9, 10**9),
    ]


def _told(answer):
    """An answer as text, to the last bit."""
    if is_dataclass(answer):
        return [(field.name, _told(getattr(answer, field.name))) for field in fields(answer) if field.name[0] != "_"]
    if isinstance(answer, list | tuple):
        return [_told(part) for part in answer]
    return (answer.dtype.str, answer.tolist()) if isinstance(answer, np.ndarray) else repr(answer)


def _ask(question):
    try:
        return _told(question())
    except hm.HardmaxError as refused:
        return str(refused)


@contextmanager
def _odd_decimals():
    with localcontext(Context(prec=3, rounding=ROUND_UP, Emax=9, Emin=-9, traps=[FloatOperation, Inexact, Subnormal])):
        yield


_SETTINGS = {
    "numpy raises": lambda: np.errstate(all="raise"),
    "decimals of three digits": _odd_decimals,
    "arrays printed shortly": lambda: np.printoptions(precision=1, threshold=2, legacy="1.13"),
}


@pytest.fixture(scope="module", params=[1.0, 1e-200, 5e-324, 1e100])
def asked(request):
    questions = _questions(request.param)
    return questions, [_ask(question) for question in questions]


@pytest.mark.parametrize("setting", _SETTINGS)
def test_answers_do_not_depend_on_what_the_caller_set(asked, setting):
    for question, expected in zip(*asked, strict=True):
        with _SETTINGS[setting]():
            found = _ask(question)
        assert found == expected


def test_threads_that_ask_together_get_the_answers_of_one(asked):
    questions, expected = asked
    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(lambda _: [_ask(question) for question in questions], range(3)):
            assert found == expected


def test_what_is_public_keeps_its_name_and_place():
    import pickle

    from hardmax.cells import search

    assert hm.count_cells is search.count_cells and pickle.loads(pickle.dumps(hm.count_cells)) is hm.count_cells
    assert hm.stability.certify.__module__ == "hardmax.measure.stability.certificates"
    assert pickle.loads(pickle.dumps(hm.stability.certify)) is hm.stability.certify

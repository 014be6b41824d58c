"""Bounds entry by entry: they hold against rationals, and are never worse than one bound a tensor."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.exact.rationals import fraction
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram
from hardmax.networks.slices.entry_bounds import EntrywiseProgram


def _tokens(rng, n_tokens=3, width=4):
    """Two blocks of whole-sequence attention with every kind of operation a bound has a rule for."""
    builder = GraphBuilder((6,))
    weight = rng.normal(size=(n_tokens * width, 6))
    z = builder.add(op.Linear(weight, rng.normal(size=n_tokens * width)), 0)
    z = builder.add(op.Reshape((n_tokens, width)), z)
    for _ in range(2):
        z = builder.add(op.Scale(rng.normal(size=width)), z)
        z = builder.add(op.Shift(rng.normal(size=width)), z)
        query, key, value = (builder.add(op.Linear(rng.normal(size=(width, width))), z) for _ in range(3))
        key = builder.add(op.Transpose((1, 0)), key)
        scores = builder.add(op.MatMul(), query, key)
        mixed = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), value)
        z = builder.add(op.Add(), z, mixed)
        hidden = builder.add(op.Relu(0.1), builder.add(op.Linear(rng.normal(size=(5, width))), z))
        back = builder.add(op.Linear(rng.normal(size=(width, 5)), rng.normal(size=width)), hidden)
        z = builder.add(op.Add(), z, back)
    z = builder.add(op.ConstantMatMul(rng.normal(size=(4, n_tokens)), on_left=True), z)
    mean = builder.add(op.Reduce((0,), keep=True, divisor=4), z)
    z = builder.add(op.Concat(0), z, mean)
    return builder.build(builder.add(op.MaxLast(), z))


def _network(rng):
    head = hm.Head(rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=(3, 6)))
    layers = [hm.Affine(rng.normal(size=(6, 6)), rng.normal(size=6)), hm.ReLU(), hm.Attention([head, head])]
    return hm.Network([*layers, hm.Affine(rng.normal(size=(3, 4)), rng.normal(size=3)), hm.ReLU()], 6).graph


def _both(graph: Graph, rng) -> tuple[list[SliceProgram], list[np.ndarray]]:
    origin, basis = rng.normal(size=6), rng.normal(size=(1, 6))
    programs = [
        EntrywiseProgram(graph, origin, basis),
        SliceProgram(graph, origin, basis, Arithmetic.BOUNDED),
        SliceProgram(graph, origin, basis, Arithmetic.RATIONAL),
    ]
    label = hm.Network.from_graph(graph).labels(origin + 0.5 * basis[0])
    return programs, [label[stage.columns] for stage in programs[0].stages]


def _assert_within(approximate, exact, bound):
    for value, truth, gap in zip(approximate.reshape(-1), exact.reshape(-1), bound.reshape(-1), strict=True):
        assert abs(fraction(truth) - fraction(float(value))) <= fraction(float(gap))


@pytest.mark.parametrize("make", [_tokens, _network])
@pytest.mark.parametrize("seed", range(5))
def test_every_coefficient_is_within_its_bound_of_the_rational_one(make, seed):
    rng = np.random.default_rng(seed)
    (sharp, plain, exact), labels = _both(make(rng), rng)
    for ours, one_bound, truth in zip(*(p.follow(labels)[0] for p in (sharp, plain, exact)), strict=True):
        bound = np.broadcast_to(ours.error[..., None], ours.coefficients.shape)
        _assert_within(ours.coefficients, truth.coefficients, bound)
        assert (ours.error <= one_bound.error).all()
    last = sharp.output(sharp.follow(labels)[1])
    _assert_within(last.coefficients, exact.output(exact.follow(labels)[1]).coefficients, last.bounds.entries)


def _alone(build):
    builder = GraphBuilder((6,))
    return builder.build(build(builder, builder.add(op.Reshape((2, 3)), 0)))


_SOME = np.random.default_rng(0).normal(size=(3, 3))
_ALONE = {
    "linear": lambda b, z: b.add(op.Linear(_SOME), z),
    "bias": lambda b, z: b.add(op.Shift(_SOME[0]), z),
    "scale": lambda b, z: b.add(op.Scale(_SOME[0]), z),
    "constant product": lambda b, z: b.add(op.ConstantMatMul(_SOME[:, :2], on_left=True), z),
    "mean": lambda b, z: b.add(op.Reduce((1,), keep=False, divisor=3), z),
    "sum": lambda b, z: b.add(op.Add(), z, b.add(op.Take(np.arange(6)[::-1].reshape(2, 3)), z)),
    "product": lambda b, z: b.add(op.Multiply(), z, b.add(op.Take(np.arange(6)[::-1].reshape(2, 3)), z)),
    "matrix product": lambda b, z: b.add(op.MatMul(), z, b.add(op.Transpose((1, 0)), z)),
    "leaky": lambda b, z: b.add(op.Relu(0.1), z),
}


@pytest.mark.parametrize("name", _ALONE)
def test_each_operation_alone_accounts_for_its_own_rounding(name):
    """On exact operands nothing else can hide a missing term."""
    graph = _alone(_ALONE[name])
    for seed in range(40):
        rng = np.random.default_rng(seed)
        (sharp, _, exact), labels = _both(graph, rng)
        found, truth = (program.output(program.follow(labels)[1]) for program in (sharp, exact))
        _assert_within(found.coefficients, truth.coefficients, found.bounds.entries)


def test_the_comparison_notices_a_bound_that_is_too_small():
    third = np.array([1 / 3])
    with pytest.raises(AssertionError):
        _assert_within(third, np.array([fraction(1) / 3], dtype=object), np.array([1e-17]))


def test_dyadic_weights_stay_exact():
    layers = [hm.Affine([[1.0, -2.0], [0.5, 4.0]], [1.0, 0.0]), hm.ReLU(), hm.Affine([[3.0, 1.0]]), hm.ReLU()]
    graph = hm.Network(layers, 2).graph
    program = EntrywiseProgram(graph, np.array([1.0, 2.0]), np.array([[0.25, 1.0]]))
    guards, _ = program.follow([np.array([1, 1]), np.array([1])])
    assert all((guard.error == 0).all() for guard in guards)


def test_children_inherit_the_bounds_of_their_own_parents():
    rng = np.random.default_rng(1)
    (sharp, *_), labels = _both(_network(rng), rng)
    state = sharp.begin()
    twice = sharp.advance(state, np.zeros(2, dtype=np.int64), np.array([labels[0], 1 - labels[0]]))
    once = sharp.advance(state, np.zeros(1, dtype=np.int64), (1 - labels[0])[None])
    assert (sharp.guards(twice).error[1] == sharp.guards(once).error[0]).all()

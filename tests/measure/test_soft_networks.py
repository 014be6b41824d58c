"""Depth-wise certificates: the soft network is where they say, to four hundred digits, and their evidence is right.

HARDMAX_CAMPAIGN=100000 draws that many hostile networks, inputs and temperatures instead of a few.
"""

import os
from contextlib import nullcontext
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import reduce
from itertools import chain, pairwise
from math import inf

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import HardmaxError, NotPiecewiseAffineError, ParameterError, ShapeError
from hardmax.measure.stability import networks as judged
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.layers import Affine, Attention, HardTanh, Head, Maxout, ReLU, Residual
from hardmax.networks.lookup import lookup_examples
from hardmax.networks.network import Network
from oracles.soft_network_oracle import soft_output, widened

TEMPERATURES = (0.01, 0.125, 0.5, 2.0)


def _random_network(rng, scale=1.0):
    """Residual heads and feed-forward layers, one to three blocks; small integers, thirds, or large gaps."""
    dim, layers = int(rng.integers(1, 4)), []
    kind = rng.choice(["integers", "thirds", "wild"])

    def draw(*shape):
        numbers = rng.integers(-3, 4, shape).astype(float)
        if kind == "thirds":
            return numbers / 3
        return numbers * 2.0 ** rng.integers(-8, 9) if kind == "wild" else numbers

    for _ in range(int(rng.integers(1, 4))):
        heads = [Head(draw(n, 2), draw(n, 2), draw(2, dim), draw(2)) for n in rng.integers(1, 5, rng.integers(1, 3))]
        layers.append(Residual(Attention(heads, draw(dim, 2 * len(heads)) / 4)))
        if rng.random() < 0.5:
            bend = ReLU(float(rng.choice([0.0, 0.25])))
            layers.append(Residual(Affine(draw(4, dim), draw(4)), bend, Affine(draw(dim, 4) / 4)))
        if rng.random() < 0.3:
            layers += [Affine(draw(2 * dim, dim), draw(2 * dim)), Maxout(2)]
    return Network(layers, dim), rng.integers(-12, 13, dim) / 4 * scale


def _check(net, x, temperature):
    """The certificate against four hundred digits; returns it."""
    found = hm.stability.network(net, x, temperature)
    soft, soft_winners = soft_output(net.layers, list(x), temperature)
    hard, hard_winners = soft_output(net.layers, list(x), 0.0)
    for a, b, radius in zip(soft, hard, found.radius.reshape(-1), strict=True):
        slack = (1 + abs(b)) * Decimal("1e-380")  # of the oracle
        assert radius == inf or abs(a - b) <= Decimal(float(radius)) + slack, (x, temperature)
    if found.holds:
        assert soft_winners == hard_winners
    assert [int(w) for head in found.layers for w in head.winner] == hard_winners
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_soft_output_is_within_the_certified_distance(seed):
    rng = np.random.default_rng(seed)
    net, x = _random_network(rng)
    distances = [_check(net, x, temperature).distance for temperature in TEMPERATURES]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(distances))


def _hostile_case(rng):
    """A network with clips and ties, an input on or a float off its walls, a temperature, whether numbers are huge."""
    dim, layers = int(rng.integers(1, 4)), []
    kind = rng.choice(["integers", "thirds", "wild", "huge"], p=[0.35, 0.3, 0.3, 0.05])

    def draw(*shape):
        numbers = rng.integers(-3, 4, shape).astype(float)
        reach = {"wild": 8, "huge": 500}.get(kind, 0)
        return (numbers / 3 if kind == "thirds" else numbers) * 2.0 ** rng.integers(-reach, reach + 1)

    for _ in range(int(rng.integers(1, 3 if kind == "huge" else 4))):
        heads = [Head(draw(n, 2), draw(n, 2), draw(2, dim), draw(2)) for n in rng.integers(1, 5, rng.integers(1, 3))]
        if rng.random() < 0.2:
            layers.append(HardTanh(*np.sort(draw(2))))
        layers.append(Residual(Attention(heads, draw(dim, 2 * len(heads)) / 4)))
        if rng.random() < 0.5:
            bend = HardTanh(*np.sort(draw(2))) if rng.random() < 0.5 else ReLU(float(rng.choice([0.0, 0.25])))
            layers.append(Residual(Affine(draw(4, dim), draw(4)), bend, Affine(draw(dim, 4) / 4)))
        if rng.random() < 0.3:
            layers += [Affine(draw(2 * dim, dim), draw(2 * dim)), Maxout(2)]
    x = rng.integers(-12, 13, dim) / 4 * (2.0 ** rng.integers(-500, 501) if kind == "huge" else 1.0)
    if rng.random() < 0.4:
        x = np.nextafter(x, rng.choice([-inf, inf], dim))
    temperature = float(10.0 ** rng.uniform(-3, 2) * (2.0 ** rng.integers(-900, 901) if kind == "huge" else 1.0))
    return Network(layers, dim), x, temperature, kind == "huge"


@pytest.mark.parametrize("part", range(4))
def test_no_hostile_network_leaves_its_certified_distance(part):
    rng = np.random.default_rng([11, part])
    for trial in range(int(os.environ.get("HARDMAX_CAMPAIGN", "160")) // 4):
        net, x, temperature, is_huge = _hostile_case(rng)
        with widened() if is_huge else nullcontext():
            found = _check(net, x, temperature)
            if trial % 8 == 0 and not is_huge and 0 < (end := found.largest_temperature) < inf:
                _check(net, x, end)  # where the proof is tightest


def test_certificates_say_something_on_many_networks():
    rng = np.random.default_rng(100)
    held = sum(hm.stability.network(*_random_network(rng), 0.02).holds for _ in range(60))
    assert 15 <= held < 60


def test_margins_and_leaks_are_those_of_the_layers():
    first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [-1.0]], [[1.0]])]))
    second = Attention([Head([[1.0, 0.0], [0.0, 2.0]], [[1.0], [0.0]], [[1.0], [0.0]], [0.0, 1.0])])
    found = hm.stability.network(Network([first, second], 1), [2.5], 0.125)
    one, two = found.layers
    assert one.margin.tolist() == one.least_margin.tolist() == [5.0] and two.margin.tolist() == [0.5]
    assert np.exp(-40) <= one.leak[0] <= np.exp(-40) * (1 + 1e-12)
    assert 0.5 - 1e-15 <= two.least_margin[0] < 0.5
    assert found.distance == pytest.approx(1 / (1 + np.exp(4)), rel=1e-12)
    assert one.holds and two.holds and found.exactness == "certified"


def test_the_wall_of_a_second_layer_moves_as_the_certificate_allows():
    """Between the hard and the soft wall, 1.27e-14 apart at tau = 1/8, nothing may be certified; beyond it is."""
    first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [-1.0]], [[1.0]])]))
    second = Attention([Head([[1.0, 0.0], [0.0, 2.0]], [[1.0], [0.0]], [[1.0], [0.0]], [0.0, 1.0])])
    net = Network([first, second], 1)
    moved = 1.2664e-14
    assert not _check(net, [2 + moved / 2], 0.125).holds
    assert _check(net, [2 + 2 * moved], 0.125).holds
    assert soft_output(net.layers, [2 + moved / 2], 0.125)[1] != soft_output(net.layers, [2 + moved / 2], 0.0)[1]


def test_the_largest_temperature_is_where_the_proof_ends():
    rng = np.random.default_rng(7)
    ends = []
    for _ in range(12):
        net, x = _random_network(rng)
        end = hm.stability.network(net, x, 0.1).largest_temperature
        ends.append(end)
        if 0 < end < inf:
            assert hm.stability.network(net, x, end).holds
            assert not hm.stability.network(net, x, end * (1 + 1e-5)).holds
            assert hm.stability.network(net, x, 4 * end).largest_temperature == pytest.approx(end, rel=1e-5)
    assert any(0 < end < inf for end in ends)


def test_one_layer_holds_at_every_temperature_and_ties_at_none():
    single = Network([Attention([Head([[1.0], [-1.0]], [[0.0], [1.0]], [[1.0]])])], 1)
    found = hm.stability.network(single, [3.0], inf)
    assert found.holds and found.largest_temperature == inf and found.is_vacuous
    assert 0.5 <= found.distance < 0.5 + 1e-12
    tied = hm.stability.network(single, [0.0], 0.1)
    assert not tied.holds and tied.is_vacuous and tied.largest_temperature == 0.0 and tied.distance >= 0.5
    assert hm.stability.network(single, [0.0], 0.0).holds  # at zero temperature it is the skeleton


def test_networks_without_attention_are_their_own_skeleton():
    net = Network([Affine([[1.0, 2.0]], [0.5]), ReLU()], 2)
    found = hm.stability.network(net, [1.0, -3.0], 5.0)
    assert found.distance == 0.0 and found.holds and not found.is_vacuous and found.layers == ()


def test_networks_on_tokens_are_certified_too():
    """A compiled maxout network: scores and values both move with the input."""
    compiled = hm.maxout_to_transformer(hm.constructions.sawtooth_network(2, 2), bound=2.0)
    for temperature in (0.001, 0.02):
        tokens = compiled.tokens([0.3])
        found = hm.stability.network(compiled.network, tokens, temperature)
        soft, hard = compiled.network(tokens, temperature=temperature), compiled.network(tokens, temperature=0.0)
        assert (np.abs(soft - hard) <= found.radius + 1e-12).all()
    assert found.layers and found.distance > 0


def test_the_shipped_trained_model_is_certified_at_low_temperatures_and_not_at_its_own():
    """A hundred lookups: every head holds for 93 at 0.001, 54 at 0.01, none at the trained temperature 1."""
    net, inputs = hm.builtin("lookup"), lookup_examples(6, rng=np.random.default_rng(0)).inputs
    held = 0
    for x in inputs:
        found = hm.stability.network(net, x, 0.003)
        moved = np.abs(net(x, temperature=0.003) - net(x, temperature=0.0))
        assert (moved <= found.radius + 1e-9).all()
        held += found.holds and not found.is_vacuous
        assert hm.stability.network(net, x, 1.0).is_vacuous
    assert held >= 3


def _token_network(rng, n_layers=2):
    """Residual self-attention on three tokens: queries, keys and values all move."""
    builder, value = GraphBuilder((3, 2)), 0
    for _ in range(n_layers):
        query, key, read = (builder.add(op.Linear(rng.integers(-2, 3, (2, 2)) / 2), value) for _ in range(3))
        scores = builder.add(op.MatMul(), query, builder.add(op.Transpose((1, 0)), key))
        picked = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), read)
        value = builder.add(op.Add(), value, picked)
    return Network.from_graph(builder.build())


@pytest.mark.parametrize("seed", range(20))
def test_values_that_move_with_earlier_layers_are_carried_along(seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        net, x = _token_network(rng), rng.integers(-6, 7, (3, 2)) / 2
        for temperature in (0.1, 0.4):
            found = hm.stability.network(net, x, temperature)
            moved = np.abs(net(x, temperature=temperature) - net(x, temperature=0.0))
            assert (moved <= found.radius + 1e-9).all()  # floats here: deviations are far above their rounding


def _soft_tokens(matrices, clip, x, tau):
    """The oracle: the token network to three hundred digits, layer by layer."""
    ctx = Context(prec=300, Emax=MAX_EMAX, Emin=MIN_EMIN)

    def times(a, b):
        return [[reduce(ctx.add, (ctx.multiply(p, q) for p, q in zip(row, column, strict=True)))
                 for column in zip(*b, strict=True)] for row in a]  # fmt: skip

    tokens = [[Decimal(float(v)) for v in row] for row in x]
    for query, key, value in matrices:
        q, k, v = (times(tokens, [[Decimal(float(w)) for w in row] for row in part.T]) for part in (query, key, value))
        weights = []
        for row in times(q, [list(column) for column in zip(*k, strict=True)]):
            best = max(range(len(row)), key=lambda j: (row[j], -j))
            leads = [ctx.exp(ctx.divide(ctx.subtract(s, row[best]), tau)) if tau else Decimal(int(j == best))
                     for j, s in enumerate(row)]  # fmt: skip
            total = reduce(ctx.add, leads)
            weights.append([ctx.divide(lead, total) for lead in leads])
        added = times(weights, v)
        tokens = [[ctx.add(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(tokens, added, strict=True)]
        tokens = [[min(max(t, Decimal(clip[0])), Decimal(clip[1])) for t in row] for row in tokens]
    return tokens


@pytest.mark.parametrize("part", range(2))
def test_quadratic_scores_with_clips_at_every_scale_stay_within_the_distance(part):
    """Queries, keys and values move together, weights are up to 2^120 apart; HARDMAX_CAMPAIGN draws more."""
    rng = np.random.default_rng([part, 23])
    for _ in range(int(os.environ.get("HARDMAX_CAMPAIGN", "60")) // 2):
        builder, value, matrices = GraphBuilder((3, 2)), 0, []
        reach = int(rng.choice([0, 2, 60, 120]))
        clip = np.sort(rng.integers(-6, 7, 2) * 2.0 ** rng.integers(-reach, reach + 1)).tolist()
        for _ in range(2):
            parts = [rng.integers(-2, 3, (2, 2)) / 2 * 2.0 ** rng.integers(-reach, reach + 1) for _ in range(3)]
            query, key, read = (builder.add(op.Linear(weight), value) for weight in parts)
            scores = builder.add(op.MatMul(), query, builder.add(op.Transpose((1, 0)), key))
            picked = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), read)
            value = builder.add(op.Add(), value, picked)
            value = builder.add(op.Clip(op.frozen(clip[0])), value)
            value = builder.add(op.Clip(op.frozen(clip[1]), is_ceiling=True), value)
            matrices.append(parts)
        net, x = Network.from_graph(builder.build()), rng.integers(-6, 7, (3, 2)) / 2
        temperature = float(10.0 ** rng.uniform(-2, 1) * 2.0 ** rng.integers(-2 * reach, 2 * reach + 1))
        found = hm.stability.network(net, x, temperature)
        soft, hard = (_soft_tokens(matrices, clip, x, Decimal(tau)) for tau in (temperature, 0.0))
        rows = zip(chain(*soft), chain(*hard), found.radius.reshape(-1), strict=True)
        for a, b, radius in rows:
            assert radius == inf or abs(a - b) <= Decimal(float(radius)) + (1 + abs(b)) * Decimal("1e-90")


# ---- planted faults: each makes some certificate false, and is seen ----


def _violations(trials=120):
    bad = 0
    rng = np.random.default_rng(3)
    for _ in range(trials):
        net, x = _random_network(rng)
        try:
            _check(net, x, float(rng.choice([0.1, 0.5, 2.0])))
        except AssertionError:
            bad += 1
    return bad


def test_a_leak_that_ignores_how_scores_move_is_caught(monkeypatch):
    def unmoved(self, source, radii, winner):
        return np.zeros((len(winner), radii[source].shape[-1]))

    monkeypatch.setattr(judged._Walk, "_moved", unmoved)
    assert _violations() > 0


def test_a_relu_that_forgets_its_sign_may_change_is_caught(monkeypatch):
    def fixed_sign(self, slope, value, radius):
        positive = np.array([entry > 0 for entry in value.reshape(-1)]).reshape(value.shape)
        return np.where(positive, radius, abs(slope) * radius)

    monkeypatch.setattr(judged._Walk, "_relu", fixed_sign)
    first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [8.0]], [[1.0]])]))
    net = Network([first, Affine([[1.0]], [-2.125]), ReLU()], 1)
    with pytest.raises(AssertionError):
        _check(net, [2.0], 1.0)
    monkeypatch.undo()
    _check(net, [2.0], 1.0)


def test_weights_that_are_too_small_are_caught(monkeypatch):
    honest = hm.stability.competitor_weight
    monkeypatch.setattr(judged, "competitor_weight", lambda lead, heat: 0.25 * honest(lead, heat))
    assert _violations() > 0


def test_linear_maps_that_let_deviations_cancel_are_caught(monkeypatch):
    monkeypatch.setattr(judged, "_absolute", lambda operation: operation)
    assert _violations() > 0


# ---- bad input ----


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), "warm", None])
def test_impossible_temperatures_are_refused(temperature):
    net = Network([ReLU()], 2)
    with pytest.raises(ParameterError, match="temperature"):
        hm.stability.network(net, [0.0, 0.0], temperature)


def test_other_things_than_networks_and_inputs_are_refused():
    net = Network([ReLU()], 2)
    with pytest.raises(ParameterError, match="Network"):
        hm.stability.network([ReLU()], [0.0, 0.0], 1.0)
    with pytest.raises(ShapeError, match="shape"):
        hm.stability.network(net, [0.0], 1.0)
    with pytest.raises(HardmaxError):
        hm.stability.network(net, [0.0, inf], 1.0)


def test_smooth_networks_are_sent_to_their_skeleton():
    builder = GraphBuilder((2,))
    builder.add(op.Pointwise("gelu"), 0, name="gelu")
    with pytest.raises(NotPiecewiseAffineError, match="skeleton"):
        hm.stability.network(Network.from_graph(builder.build()), [0.0, 0.0], 1.0)


def test_the_largest_temperature_is_found_from_an_infinite_one():
    first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [-1.0]], [[1.0]])]))
    second = Attention([Head([[1.0, 0.0], [0.0, 2.0]], [[1.0], [0.0]], [[1.0], [0.0]], [0.0, 1.0])])
    net = Network([first, second], input_dim=1)
    found = hm.stability.network(net, [2.001], inf)
    assert not found.holds
    assert found.largest_temperature == pytest.approx(0.579, abs=1e-3)
    assert hm.stability.network(net, [2.001], found.largest_temperature).holds

"""Sampled cells: the compiled labels, the counting table, the statistics, and the exact count they stay below."""

from collections import Counter
from fractions import Fraction
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import DomainError, NotPiecewiseAffineError, ParameterError, PrecisionError
from hardmax.measure import _sampled_codes, sampling
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from laws.small_networks import boxes, networks
from networks.builders import network_of


def _rng(seed=0):
    return np.random.default_rng(seed)


KEY = (1 << 64) - 12345  # near the end, so that the stream wraps around


def _wide_network(rng, n_units):
    """More choices than one word holds, of every kind."""
    heads = [hm.Head(rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=(3, 2))) for n in (1, 3, 6)]
    return hm.Network(
        [
            hm.Residual(hm.Attention(heads, output=rng.normal(size=(2, 6)))),
            hm.Affine(rng.normal(size=(n_units, 2)), rng.normal(size=n_units)),
            hm.ReLU(0.25),
            hm.Affine(rng.normal(size=(15, n_units))),
            hm.Maxout(5),
            hm.Residual(hm.Affine(rng.normal(size=(7, 3)), rng.normal(size=7)), hm.ReLU(), hm.Affine(np.ones((3, 7)))),
        ],
        2,
    )


@pytest.mark.parametrize("n_units", [1, 4, 7, 38, 130])
@pytest.mark.parametrize(
    "domain",
    [hm.Box([-2, -1], [1, 3]), hm.Plane([0.5, 0.0], [[1.0, 1.0], [0.0, 2.0]]), hm.Segment([-3.0, 1.0], [2.0, 0.5])],
    ids=["box", "plane", "segment"],
)
def test_compiled_codes_are_the_packed_labels_of_the_network(n_units, domain):
    net = _wide_network(_rng(n_units), n_units)
    coder = _sampled_codes.Coder(net, domain)
    assert coder.program is not None
    assert coder.is_hashed == (n_units > 38)
    points = coder.points(coder.draws(KEY, 70, 3001))
    expected = _sampled_codes.pack_labels(net.labels(points), _sampled_codes.group_sizes(net))
    assert np.array_equal(coder.codes(KEY, 70, 3001), expected)


@pytest.mark.parametrize("dim", [1, 3, 4, 5])
@pytest.mark.parametrize("n_keys", [2, 5, 9, 12])
def test_compiled_codes_agree_in_every_dimension_and_for_many_keys(dim, n_keys):
    rng = _rng(10 * dim + n_keys)
    heads = [hm.Head(rng.normal(size=(n_keys, dim)), rng.normal(size=(n_keys, dim)), rng.normal(size=(dim, dim)))] * 2
    layers = [
        hm.Residual(hm.Attention(heads, output=rng.normal(size=(dim, 2 * dim)))),
        hm.Affine(rng.normal(size=(6, dim)), rng.normal(size=6)),
        hm.ReLU(),
        hm.Affine(rng.normal(size=(3 * dim, 6)), rng.normal(size=3 * dim)),
        hm.Maxout(3),
        hm.Affine(rng.normal(size=(2 * dim, dim)), rng.normal(size=2 * dim)),
        hm.Maxout(2),
        hm.Residual(hm.ReLU(-0.5)),  # reads its input twice: nothing may be fused into it
        hm.Affine(rng.normal(size=(dim, dim))),  # no choice depends on it
    ]
    net, domain = hm.Network(layers, dim), hm.Box([-1.0] * dim, [1.5] * dim)
    coder = _sampled_codes.Coder(net, domain)
    labels = net.labels(coder.points(coder.draws(KEY, 0, 2000)))
    assert coder.program is not None
    assert len(np.unique(labels, axis=0)) > 3
    expected = _sampled_codes.pack_labels(labels, _sampled_codes.group_sizes(net))
    assert np.array_equal(coder.codes(KEY, 0, 2000), expected)


@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("first", range(6))
def test_of_equal_keys_the_lowest_wins_whatever_rounding_does(dim, first):
    rng = _rng(first)
    keys = rng.normal(size=(11, dim))
    keys[first + 1 :: 2] = keys[first]
    net = hm.Network([hm.Attention([hm.Head(keys, rng.normal(size=(11, dim)), rng.normal(size=(dim, dim)))])], dim)
    coder = _sampled_codes.Coder(net, hm.Box([-1.0] * dim, [1.0] * dim))
    assert coder.program is not None
    winners = set(coder.codes(KEY, 0, 20_000).tolist())
    assert winners.isdisjoint(range(first + 1, 11, 2))


def test_a_part_of_the_stream_is_the_same_by_itself():
    coder = _sampled_codes.Coder(_wide_network(_rng(1), 7), hm.Box([-2, -1], [1, 3]))
    parts = [coder.codes(KEY, start, 500) for start in (0, 500)]
    assert np.array_equal(coder.codes(KEY, 0, 1000), np.concatenate(parts))
    assert np.array_equal(coder.draws(KEY, 0, 1000)[:, 500:], coder.draws(KEY, 500, 500))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_draws_are_uniform_and_independent(dim):
    net = hm.Network([hm.ReLU()], dim)
    draws = _sampled_codes.Coder(net, hm.Box([0] * dim, [1] * dim)).draws(7, 0, 64_000) >> np.uint32(30)
    boxes = np.bincount((draws * 4 ** np.arange(dim)[:, None]).sum(axis=0).astype(int), minlength=4**dim)
    expected = 64_000 / 4**dim
    statistic = ((boxes - expected) ** 2 / expected).sum()
    freedom = 4**dim - 1
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_an_interrupt_keeps_the_samples_drawn_so_far():
    def stop(drawn, seen):
        assert seen == 4
        if drawn > 100_000:
            raise KeyboardInterrupt

    net, box = hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1])
    found = hm.sample_cells(net, box, 10**9, rng=_rng(), progress=stop)
    assert not found.is_complete
    assert 100_000 < found.n_samples < 300_000
    assert found.n_distinct == 4


def test_an_interrupt_before_the_first_sample_is_an_interrupt(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_sampled_codes.Coder, "codes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hm.sample_cells(hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1]), 10)


@pytest.mark.parametrize("n_units", [7, 130])
def test_distinct_codes_are_distinct_labels(n_units):
    net = _wide_network(_rng(n_units), n_units)
    labels = net.labels(_rng().uniform(-2, 2, (4000, 2)))
    codes = _sampled_codes.pack_labels(labels, _sampled_codes.group_sizes(net))
    pairs = {(int(code), label.tobytes()) for code, label in zip(codes, labels, strict=True)}
    assert len(pairs) == len(np.unique(codes)) == len(np.unique(labels, axis=0))


@given(networks(), boxes(), st.integers(0, 1000))
@example([("attention", [([[0], [-1], [1]], [[1], [2], [3]], [[1, 0]], None)], None)], ([-1, -1], [1, 1]), 0)
@settings(deadline=None)
def test_there_are_never_more_distinct_labels_than_cells(layers, box, seed):
    net, domain = network_of(layers, 2), hm.Box(*box)
    found = hm.sample_cells(net, domain, 3000, rng=_rng(seed))
    exact = hm.count_cells(net, domain)
    assert 1 <= found.n_distinct <= exact
    assert found.n_distinct == found.interval[0] <= found.estimate <= found.interval[1]


@pytest.mark.parametrize("seed", range(6))
def test_many_samples_find_every_cell(seed):
    rng = _rng(seed)
    layers = [
        hm.Residual(hm.Attention([hm.Head(rng.integers(-3, 4, (4, 2)), rng.integers(-3, 4, (4, 2)), np.eye(2))])),
        hm.Affine(rng.integers(-3, 4, (4, 2)), rng.integers(-2, 3, 4)),
        hm.ReLU(),
    ]
    net, domain = hm.Network(layers, 2), hm.Box([-2, -2], [2, 2])
    found = hm.sample_cells(net, domain, 400_000, rng=rng)
    assert found.n_distinct == hm.count_cells(net, domain)
    assert not found.is_limited_by_samples
    assert found.warning is None


def test_networks_without_layers_are_compiled_as_well():
    net = _wide_network(_rng(1), 7)
    plain = hm.Network.from_graph(net.graph)
    domain = hm.Box([-2, -2], [2, 2])
    assert _sampled_codes.Coder(plain, domain).program is not None
    assert hm.sample_cells(plain, domain, 70_000, rng=_rng(5)) == hm.sample_cells(net, domain, 70_000, rng=_rng(5))


def _graph_network(kind: str) -> hm.Network:
    """Small integers through operations that no layer of ours makes, or makes in that order."""
    builder, whole = GraphBuilder((2, 2) if kind == "rows" else (3,)), lambda *shape: _rng(2).integers(-2, 3, shape)
    if kind == "rows":  # attention on two rows, one-hot rows joined with data, a permutation
        inner = builder.add(op.Linear(op.frozen(whole(3, 2)), op.frozen(whole(3))), 0)
        weights = builder.add(op.Hardmax(), inner)
        flat = [builder.add(op.Reshape((size,)), value) for size, value in ((6, weights), (6, inner), (4, 0))]
        joined = builder.add(op.Concat(0), *flat, flat[0])
        moved = builder.add(op.Take(_rng(1).integers(0, 22, (4, 3))), joined)
        builder.add(
            op.Relu(0.5), builder.add(op.Transpose((1, 0)), builder.add(op.Clip(op.frozen([0.5, 0, 1])), moved))
        )
    else:  # sums, factors, means, clips and a maximum
        scaled = builder.add(op.Scale(op.frozen([1.0, -2.0, 0.5])), builder.add(op.Shift(op.frozen(whole(3))), 0))
        kept = builder.add(op.Clip(op.frozen([0.5, -1.0, 0.0]), is_ceiling=True), scaled)
        both = builder.add(op.Concat(0), builder.add(op.Add(), kept, 0), builder.add(op.Reduce((0,), True, 1), kept))
        builder.add(op.Relu(), builder.add(op.MaxLast(), builder.add(op.Reshape((2, 2)), both)))
    return hm.Network.from_graph(builder.build())


@pytest.mark.parametrize("kind", ["rows", "vector"])
def test_every_operation_is_compiled_to_the_labels_of_the_network(kind):
    net = _graph_network(kind)
    dim = int(np.prod(net.input_shape))
    basis = np.eye(dim)[:2].reshape(2, *net.input_shape) + 0.25
    domains = [hm.Plane(np.full(net.input_shape, 0.5), basis, ((-2, 2), (-2, 2)))]
    domains += [hm.Segment(-np.ones(net.input_shape), np.arange(dim).reshape(net.input_shape))]
    for domain in [*domains, hm.Box([-2] * 3, [2] * 3)][: 2 if kind == "rows" else 3]:
        coder = _sampled_codes.Coder(net, domain)
        assert coder.program is not None
        codes = coder.codes(11, 5, 3000)
        labels = net.labels(coder.points(coder.draws(11, 5, 3000)))
        assert (codes == _sampled_codes.pack_labels(labels, _sampled_codes.group_sizes(net))).all()
        assert len(np.unique(codes)) > 3


def test_products_of_data_are_sampled_through_the_labels():
    builder = GraphBuilder((2,))
    builder.add(op.Relu(), builder.add(op.Multiply(), 0, 0))
    net = hm.Network.from_graph(builder.build())
    assert _sampled_codes.Coder(net, hm.Box([-2, -2], [2, 2])).program is None
    assert hm.sample_cells(net, hm.Box([-2, -2], [2, 2]), 1000, rng=_rng()).n_distinct == 1


def test_inputs_of_many_numbers_are_drawn_few_at_a_time():
    net = hm.Network([hm.Affine(_rng().normal(size=(2, 70_000))), hm.ReLU()], 70_000)
    domain = hm.Segment(-np.ones(70_000), _rng(1).normal(size=70_000))
    assert _sampled_codes.Coder(net, domain).chunk == 14
    sizes = []
    found = hm.sample_cells(net, domain, 40, rng=_rng(), progress=lambda drawn, _: sizes.append(drawn))
    assert sizes == [14, 28, 40]
    assert found.n_distinct <= hm.count_cells(net, domain)


def test_a_network_without_choices_is_one_cell():
    found = hm.sample_cells(hm.Network([hm.Affine([[1.0]])], 1), hm.Segment([0.0], [1.0]), 100, rng=_rng())
    assert (found.n_distinct, found.coverage, found.estimate) == (1, 1.0, 1.0)


@given(st.lists(st.integers(0, 40), max_size=200))
def test_the_table_counts_like_a_dictionary(values):
    table = sampling._Table()
    table.add(np.array(values, dtype=np.uint64))
    assert sorted(table.frequencies.tolist()) == sorted(Counter(values).values())


def test_the_table_grows_and_keeps_its_counts():
    codes = np.repeat(_rng().integers(0, 1 << 64, 30_000, dtype=np.uint64), 3)
    codes[:2] = [0, (1 << 64) - 1]
    table = sampling._Table()
    for part in np.array_split(_rng(1).permutation(codes), 7):
        table.add(part)
    assert sorted(table.frequencies.tolist()) == sorted(Counter(codes.tolist()).values())


@pytest.mark.parametrize(
    ("frequencies", "estimate"),
    [
        ([1] * 4 + [2] * 2 + [5], 7 + 12 / 13 * 4),
        ([1, 1, 1, 9], 4 + 11 / 12 * 3),
        ([6, 6], 2.0),
        ([1], 1.0),
        ([1, 5], 2.0),
    ],
)
def test_chao1_is_its_formula(frequencies, estimate):
    value, above = sampling.chao1(sum(frequencies), np.array(frequencies))
    assert value == pytest.approx(estimate)
    assert len(frequencies) <= value <= above


@pytest.mark.parametrize(
    "frequencies", [[1] * 4 + [2] * 2 + [5], [1] * 30 + [2] * 7 + [3], [1, 1, 1, 9], [1] * 12 + [4]]
)
def test_chao1_s_upper_end_is_its_formula_in_rationals(frequencies):
    """Chao (1987), the variance by the delta method: of A f1^2 / (2 f2) in multinomial counts, and its limit f2 = 0."""
    n, distinct = sum(frequencies), len(frequencies)
    f1, f2, a = frequencies.count(1), frequencies.count(2), Fraction(n - 1, n)
    if f2:
        unseen = a * Fraction(f1**2, 2 * f2)
        variance = a * Fraction(f1**2, 2 * f2) + a**2 * Fraction(f1**3, f2**2) + a**2 * Fraction(f1**4, 4 * f2**3)
    else:
        unseen = a * Fraction(f1 * (f1 - 1), 2)
        variance = unseen + a**2 * Fraction(f1 * (2 * f1 - 1) ** 2, 4) - a**2 * f1**4 / (4 * (distinct + unseen))
    spread = exp(1.959963984540054 * sqrt(log(1 + variance / unseen**2)))
    assert sampling.chao1(n, np.array(frequencies))[1] == pytest.approx(distinct + float(unseen) * spread, rel=1e-12)


def _chance_of_at_most(n_cells, n_samples, n_distinct):
    """P(distinct <= n_distinct) of equally large cells, in rationals: one draw after another."""
    chances = [Fraction(1)] + [Fraction(0)] * n_distinct
    for _ in range(n_samples):
        seen = [chance * Fraction(d, n_cells) for d, chance in enumerate(chances)]
        new = [Fraction(0), *(chance * Fraction(n_cells - d, n_cells) for d, chance in enumerate(chances))]
        chances = [a + b for a, b in zip(seen, new[: len(seen)], strict=True)]
    return sum(chances)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 7, 20, 40])
def test_the_upper_end_is_too_low_in_at_most_one_sample_of_twenty(n_cells):
    """For every number of equally large cells and samples: the chance of all counts whose upper end is below."""
    for n_samples in (1, 2, 5, 12, 30, 60):
        ends = {d: sampling.most_equal_cells(n_samples, d) for d in range(1, min(n_cells, n_samples) + 1)}
        assert all(ends[d] >= d for d in ends)
        too_low = [d for d, end in ends.items() if end < n_cells]
        if too_low:
            assert _chance_of_at_most(n_cells, n_samples, max(too_low)) <= Fraction(1, 20)


@pytest.mark.parametrize(("n_cells", "n_samples"), [(100, 500), (2, 2), (200, 400), (1000, 700)])
def test_the_interval_holds_the_number_of_equally_large_cells_as_often_as_it_says(n_cells, n_samples):
    held = 0
    for seed in range(200):
        counts = np.bincount(_rng(seed).integers(0, n_cells, n_samples))
        found = sampling._summary(n_samples, counts[counts > 0], False, True)
        assert found.interval[0] == found.n_distinct <= n_cells
        held += n_cells <= found.interval[1]
    assert held / 200 >= 0.95


def test_the_upper_end_comes_down_with_the_samples():
    ends = [sampling.most_equal_cells(n, 50) for n in (50, 100, 150, 250, 400, 10_000)]
    assert ends == sorted(ends, reverse=True) and ends[0] == inf and ends[3] < 60 and ends[-1] == 50
    assert sampling.most_equal_cells(10**9, 10**6) == 10**6


def test_too_few_samples_are_said_to_be_too_few():
    net = _wide_network(_rng(3), 38)
    found = hm.sample_cells(net, hm.Box([-2, -2], [2, 2]), 50, rng=_rng())
    assert found.is_limited_by_samples
    assert found.coverage == 1 - found.n_once / 50
    assert "limited by the samples" in str(found.warning)
    assert found.exactness == "estimated"


def test_bad_arguments_are_named():
    net, box = hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1])
    for n_samples in (0, -3, 2.5, True, "9"):
        with pytest.raises(ParameterError, match="n_samples"):
            hm.sample_cells(net, box, n_samples)
    with pytest.raises(DomainError, match="uniform"):
        hm.sample_cells(net, hm.Space(2), 10)
    with pytest.raises(DomainError, match="dimension 3"):
        hm.sample_cells(net, hm.Box([0] * 3, [1] * 3), 10)
    with pytest.raises(DomainError, match="list"):
        hm.sample_cells(net, [0, 1], 10)
    with pytest.raises(ParameterError, match="rng"):
        hm.sample_cells(net, box, 10, rng=3)
    with pytest.raises(ParameterError, match=r"hm\.Network"):
        hm.sample_cells("net", box, 10)
    soft = hm.Network([hm.Attention([hm.Head([[1.0], [2.0]], [[1.0], [2.0]], [[1.0, 0.0]])])], 2, temperature=1.0)
    with pytest.raises(NotPiecewiseAffineError, match="temperature 1"):
        hm.sample_cells(soft, box, 10)


def test_numbers_that_overflow_are_refused_as_everywhere():
    net = hm.Network([hm.Affine([[1e200]]), hm.Affine([[1e200]]), hm.ReLU()], 1)
    with pytest.raises(PrecisionError, match="overflows"):
        hm.sample_cells(net, hm.Segment([1.0], [2.0]), 10)


def test_planes_that_reach_beyond_the_floats_are_refused():
    plane = hm.Plane([0.0, 0.0], [[1e300, 0.0], [0.0, 1.0]], ((-1e10, 1e10), (-1, 1)))
    with pytest.raises(DomainError, match="beyond the largest float"):
        hm.sample_cells(hm.Network([hm.ReLU()], 2), plane, 10)

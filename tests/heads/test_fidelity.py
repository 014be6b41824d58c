"""Soft against hard: what hm.fidelity reports is what an independent run of the model shows."""

from math import erf, nextafter
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.exactness import mean_interval, share_interval
from hardmax.heads.trials import Judge
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder

EVERYTHING = [hm.fidelity.compare, hm.fidelity.by_layer, hm.fidelity.by_head, hm.fidelity.temperature_path]


def _decisions_equal(a, b):
    return sum(int(np.argmax(x) == np.argmax(y)) for x, y in zip(a, b, strict=True)) / len(a)


def _mean_divergence(soft, hard):
    total = 0.0
    for s, h in zip(soft.astype(float), hard.astype(float), strict=True):
        p, q = np.exp(s) / np.exp(s).sum(), np.exp(h) / np.exp(h).sum()
        total += sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
    return total / len(soft)


def _mean_change(soft, hard):
    changes = [np.sqrt(((h - s) ** 2).sum()) / np.sqrt((s**2).sum()) for s, h in zip(soft, hard, strict=True)]
    return sum(changes) / len(changes)


def _assert_measures(fidelity, soft, hard):
    assert fidelity.n == len(soft) and fidelity.exactness == "estimated"
    assert fidelity.agreement == _decisions_equal(soft, hard)
    assert fidelity.kl == pytest.approx(_mean_divergence(soft, hard), rel=1e-3, abs=1e-9)
    assert fidelity.relative_error == pytest.approx(_mean_change(soft, hard), rel=1e-3, abs=1e-9)


def test_the_judge_of_fidelities_notices_another_network():
    net, x = _network([[1, 2], [3, -1]]), [[1.0], [2.0]]
    with pytest.raises(AssertionError):
        _assert_measures(hm.fidelity.compare(net, x), net(x), net(x))


# ---- intervals ----


def test_an_interval_of_95_percent_holds_the_mean_in_95_of_100_samples_also_of_texts_of_several_lengths():
    rng = np.random.default_rng(5)
    alone, texts, n = 0, 0, 3000
    for _ in range(n):
        values = rng.normal(3.0, 1.0, size=8)
        low, high = mean_interval(values.mean(), values)
        alone += low <= 3.0 <= high
        counts = rng.integers(1, 6, size=30)
        totals = counts * rng.normal(3.0, 1.0, size=30)  # the numbers of one text are all the same
        low, high = mean_interval(totals.sum() / counts.sum(), totals, counts)
        texts += low <= 3.0 <= high
    assert 0.94 < alone / n < 0.96 and 0.92 < texts / n < 0.96


def test_means_over_inputs_stand_with_student_s_interval():
    net, x = _network([[1, 2], [3, -1]]), np.array([[1.0], [2.0], [-1.5], [0.25], [3.0]])
    found, soft, hard = hm.fidelity.compare(net, x), net(x), hm.skeleton(net)(x)
    for name, measure in (("relative_error", _mean_change), ("kl", _mean_divergence)):
        each = [measure(soft[i : i + 1], hard[i : i + 1]) for i in range(5)]
        low, high = found.interval(name)
        assert high == pytest.approx(mean(each) + 2.7764 * stdev(each) / 5**0.5, rel=1e-3)  # Student's, 4 degrees
        assert low == pytest.approx(max(0.0, 2 * mean(each) - high), rel=1e-3)
    alone = hm.fidelity.compare(net, x[:1])
    assert alone.interval("relative_error") is alone.interval("kl") is None and alone.interval() is not None


def test_means_that_are_infinite_have_no_interval():
    assert mean_interval(np.inf, np.array([np.inf, 1.0])) is None
    assert mean_interval(1e300, np.array([1.5e300, 0.5e300])) is None
    assert mean_interval(0.0, np.zeros(3)) == (0.0, 0.0)


class _Texts:
    """Texts of several lengths whose decisions are right, or wrong, all together."""

    heads, temperature, n_classes = ((0, 0),), 1.0, 2

    def __init__(self, lengths, agree):
        self.soft = [np.tile([[[0.0, 1.0]]], (1, length, 1)) for length in lengths]
        self.hard = [np.tile([[[0.0, 1.0 if same else -1.0]]], (1, length, 1))
                     for length, same in zip(lengths, agree, strict=True)]  # fmt: skip

    @property
    def next_tokens(self):
        return [np.append(np.ones(block.shape[1] - 1, dtype=int), -1) for block in self.soft]


def _shares_of_texts(lengths, agree, labels=None):
    texts = _Texts(lengths, agree)
    judge = Judge(texts, labels, True)
    return judge.agreement(texts.hard) if labels is None else judge.accuracy(texts.hard)


def test_an_interval_of_a_share_holds_it_in_95_of_100_samples_also_of_texts_of_several_lengths():
    rng, held, n = np.random.default_rng(7), 0, 400
    for _ in range(n):  # one text in ten is long; all of one text is right, in four texts of five
        lengths = np.where(rng.random(12) < 0.1, 60, 3)
        _, (low, high) = _shares_of_texts(lengths, rng.random(12) < 0.8)
        held += low <= 0.8 <= high
    assert held / n >= 0.95


def test_texts_count_by_their_decisions_and_those_without_any_not_at_all():
    assert _shares_of_texts([4] * 50, [True] * 50)[1] == share_interval(1.0, 50)
    share, (low, high) = _shares_of_texts([1, 1, 98], [True, True, False])
    assert share == 0.02 and low == 0.0 and high == 1.0  # as good as one text
    share, (low, _) = _shares_of_texts([1] * 50 + [50], [True] * 51)
    assert share == 1.0 and low < 0.4 < share_interval(1.0, 51)[0]
    share, (low, _) = _shares_of_texts([1] * 99 + [5], [True] * 100, "next")
    assert share == 1.0 and low == share_interval(1.0, 1)[0] == pytest.approx(0.025)


def test_an_interval_is_asked_for_by_the_name_of_a_number():
    found = hm.fidelity.compare(_network([[1, 2], [3, -1]]), [[1.0], [2.0]])
    assert found.interval("soft_accuracy") is None and found.interval() == share_interval(found.agreement, 2)
    for name in ("n", "nonsense", "exactness"):
        with pytest.raises(hm.errors.ParameterError, match="expected 'agreement'"):
            found.interval(name)


# ---- the published vision transformer, judged by onnxruntime ----


@pytest.fixture(scope="module")
def vit(shared):
    """The model as onnx sees it, its path, the 60 inputs and labels, and onnxruntime's soft outputs."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    from networks.files.onnx_graphs import run

    path = shared / "nets" / "vit_ibp_3_3_8.onnx"
    data = np.load(shared / "nets" / "vit_inputs.npz")
    model = onnx.load(path)
    return model, path, data["inputs"], data["labels"], run(model, data["inputs"])


@pytest.mark.extras
def test_the_skeleton_of_the_vision_transformer_keeps_what_onnxruntime_says(vit):
    from networks.files.onnx_graphs import hardened, run

    model, path, x, labels, soft = vit
    hard = run(hardened(model), x)
    found = hm.fidelity.compare(path, x, labels)
    _assert_measures(found, soft, hard)
    assert found.soft_accuracy == np.mean(soft.argmax(axis=1) == labels) == 1.0
    assert found.hard_accuracy == np.mean(hard.argmax(axis=1) == labels) == 41 / 60
    assert found == hm.fidelity.compare(hm.read(path), x, labels, hard=hm.skeleton(path))


@pytest.mark.extras
def test_hardening_one_layer_is_renaming_one_softmax(vit):
    from networks.files.onnx_graphs import run

    model, path, x, _, soft = vit
    layers = hm.fidelity.by_layer(path, x[:20])
    assert [layer.heads for layer in layers] == [tuple((i, j) for j in range(3)) for i in range(3)]
    for index, layer in enumerate(layers):
        _assert_measures(layer.fidelity, soft[:20], run(_hard_at(model, index, [True] * 3), x[:20]))


@pytest.mark.extras
def test_hardening_one_head_is_choosing_between_softmax_and_hardmax_on_the_head_axis(vit):
    from networks.files.onnx_graphs import run

    model, path, x, _, soft = vit
    heads = hm.fidelity.by_head(path, x[:20])
    assert [head.heads for head in heads] == [((i, j),) for i in range(3) for j in range(3)]
    for head in heads:
        ((layer, slot),) = head.heads
        _assert_measures(head.fidelity, soft[:20], run(_hard_at(model, layer, np.arange(3) == slot), x[:20]))


def _hard_at(model, layer, chosen):
    """A copy in which the chosen heads of one attention layer go through Hardmax."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    position, node = [(i, n) for i, n in enumerate(copy.graph.node) if n.op_type == "Softmax"][layer]
    mask = np.asarray(chosen).reshape(1, 3, 1, 1)
    copy.graph.initializer.append(onnx.numpy_helper.from_array(mask, "chosen"))
    result, scores = node.output[0], node.input[0]
    node.output[0] = "soft_weights"
    hard = onnx.helper.make_node("Hardmax", [scores], ["hard_weights"], axis=-1)
    where = onnx.helper.make_node("Where", ["chosen", "hard_weights", "soft_weights"], [result])
    copy.graph.node.insert(position + 1, hard)
    copy.graph.node.insert(position + 2, where)
    return copy


@pytest.mark.extras
def test_rows_of_the_vision_transformer_have_the_margins_that_onnxruntime_computes(vit):
    import onnx

    from networks.files.onnx_graphs import session

    model, path, x, _, _ = vit
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = [node.input[0] for node in model.graph.node if node.op_type == "Softmax"]
    shown.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    running = session(shown)
    scores = [running.run(names, {running.get_inputs()[0].name: one[None]}) for one in x]
    rows = hm.fidelity.attention_rows(path, x)
    assert [(r.layer, r.head) for r in rows] == [(i, j) for i in range(3) for j in range(3)]
    shares = np.zeros(3)
    for r in rows:
        expected = np.concatenate([one[r.layer][0, r.head] for one in scores]).astype(float)  # (60 * 17, 17)
        ordered = np.sort(expected, axis=1)
        weights = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(r.margins, ordered[:, -1] - ordered[:, -2], atol=1e-4)
        np.testing.assert_allclose(r.entropies, -(weights * np.log(weights)).sum(axis=1), atol=1e-4)
        assert (r.n_rows, r.n_keys, r.n_chosen.sum()) == (60 * 17, 17, 60 * 17)
        assert set(r.never_chosen) == set(range(17)) - set(expected.argmax(axis=1).tolist())
        assert r.certified_share == pytest.approx(np.mean(ordered[:, -1] - ordered[:, -2] > np.log(16)), abs=0.002)
        shares[r.layer] += r.certified_share / 3
    assert shares.round(3).tolist() == [0.033, 0.0, 0.0]


@pytest.mark.extras
def test_greedy_sets_of_the_vision_transformer_keep_the_wanted_share(vit):
    _, path, x, _, _ = vit
    steps = hm.fidelity.greedy(path, x[:20], max_loss=0.1)
    assert [len(step.heads) for step in steps] == list(range(len(steps)))
    assert 1 < len(steps) <= 10 and all(step.fidelity.agreement >= 0.9 for step in steps)
    _assert_not_extendable(hm.read(path), x[:20], steps[-1].heads, 0.1)


def _assert_not_extendable(net, x, heads, max_loss):
    for pair in hm.fidelity.heads_of(net):
        if pair not in heads:
            other = hm.fidelity.harden(net, [*heads, pair])
            assert _decisions_equal(net(x), other(x)) < 1 - max_loss


# ---- small networks ----


def _network(values, temperature=1.0):
    """One head for each row of two integers: keys 1 and -1 on the line, outputs summed into one of two logits."""
    heads = [hm.Head([[1.0], [-1.0]], [[float(a)], [float(b)]], [[1.0]]) for a, b in values]
    read = np.zeros((2, len(values)))
    read[np.arange(len(values)) % 2, np.arange(len(values))] = 1.0
    return hm.Network([hm.Attention(heads), hm.Affine(read)], 1, temperature=temperature)


small = st.integers(-3, 3)
head_values = st.lists(st.tuples(small, small), min_size=1, max_size=4)
points = st.lists(st.integers(-2, 2).map(lambda x: [float(x)]), min_size=1, max_size=5)


@given(head_values, points)
def test_all_heads_hard_is_temperature_zero_and_none_is_the_network(values, x):
    net = _network(values)
    pairs = hm.fidelity.heads_of(net)
    assert pairs == tuple((0, j) for j in range(len(values)))
    np.testing.assert_array_equal(hm.fidelity.harden(net, pairs)(x), net(x, temperature=0))
    np.testing.assert_array_equal(hm.fidelity.harden(net, [])(x), net(x))
    own, zero = hm.fidelity.temperature_path(net, x, [1.0, 0.0])
    assert (own.fidelity.relative_error, own.fidelity.kl, own.fidelity.agreement) == (0.0, 0.0, 1.0)
    assert zero.fidelity == hm.fidelity.compare(net, x) == hm.fidelity.by_layer(net, x)[0].fidelity


@given(head_values, points, st.sampled_from([0.0, 0.4, 1.0]))
def test_greedy_stops_only_where_no_head_can_be_added(values, x, max_loss):
    net = _network(values)
    last = hm.fidelity.greedy(net, x, max_loss)[-1]
    assert last.fidelity.agreement >= 1 - max_loss - 1e-12
    _assert_not_extendable(net, x, last.heads, max_loss)


def test_a_loss_of_three_decisions_in_ten_is_allowed_when_asked_for():
    head = hm.Head([[1.0], [-1.0]], [[1.0, 0.0], [0.0, 0.9]], [[1.0]])
    net = hm.Network([hm.Attention([head])], 1, temperature=1.0)
    changed, kept = [[-0.01]] * 3, [[1.0]] * 7  # soft says 0 there, hard says 1
    assert hm.fidelity.compare(net, changed + kept).agreement == 0.7
    assert hm.fidelity.greedy(net, changed + kept, 0.3)[-1].heads == ((0, 0),)
    assert hm.fidelity.greedy(net, changed + kept, 0.29)[-1].heads == ()


@given(st.integers(1, 40), st.data())
def test_a_loss_of_k_decisions_in_n_is_the_nearest_float_of_their_quotient(n, data):
    k = data.draw(st.integers(1, n))
    head = hm.Head([[1.0], [-1.0]], [[1.0, 0.0], [0.0, 0.9]], [[1.0]])
    net = hm.Network([hm.Attention([head])], 1, temperature=1.0)
    x = [[-0.01]] * k + [[1.0]] * (n - k)
    assert len(hm.fidelity.greedy(net, x, k / n)[-1].heads) == 1
    assert hm.fidelity.greedy(net, x, nextafter(k / n, 0.0))[-1].heads == ()


def test_small_networks_are_measured_as_the_formulas_say():
    net, x = _network([[1, 2], [3, -1], [-2, 2]]), [[1.0], [2.0], [-1.0]]
    _assert_measures(hm.fidelity.compare(net, x), net(x), net(x, temperature=0))


def test_heads_on_an_axis_are_hardened_and_measured_one_by_one():
    builder = GraphBuilder((2, 1, 3))  # (heads, queries, keys): the input is the scores
    mixed = builder.add(op.Linear(op.frozen([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0]])), builder.add(op.Hardmax(), 0))
    net = hm.Network.from_graph(builder.build(mixed), temperature=1.0)
    x = np.array([[[[3.0, 1.0, 0.0]], [[0.0, 0.0, 0.5]]]])
    for head in range(2):
        expected = net(x).copy()
        expected[:, head] = net(x, temperature=0)[:, head]
        np.testing.assert_array_equal(hm.fidelity.harden(net, [(0, head)])(x), expected)
    first, second = hm.fidelity.attention_rows(net, x)
    assert first.margins.tolist() == [2.0] and second.margins.tolist() == [0.5]
    assert (first.certified_share, second.certified_share) == (1.0, 0.0)  # log 2 lies between
    assert first.never_chosen == (1, 2) and second.never_chosen == (0, 1)


def test_the_path_without_temperatures_halves_its_own_and_ends_at_zero():
    path = hm.fidelity.temperature_path(_network([[1, 2]], temperature=2.0), [[1.0]])
    assert [at.temperature for at in path] == [2.0 / 2**k for k in range(9)] + [0.0]


def test_ties_choose_the_first_key_and_are_never_certified():
    net = hm.Network([hm.Attention([hm.Head([[1.0], [1.0]], [[1.0], [2.0]], [[1.0]])])], 1, temperature=1.0)
    (rows,) = hm.fidelity.attention_rows(net, [[0.0], [3.0]])
    assert rows.n_chosen.tolist() == [2, 0] and rows.certified_share == 0.0 and rows.never_chosen == (1,)
    assert rows.entropies == pytest.approx(np.log(2)) and rows.shares.tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        rows.margins[0] = 1.0


def test_one_number_out_has_an_error_but_no_decisions():
    net = hm.Network([hm.Attention([hm.Head([[1.0], [-1.0]], [[1.0], [0.0]], [[1.0]])])], 1, temperature=1.0)
    found = hm.fidelity.compare(net, [[0.0]])
    assert found.relative_error == 1.0 and (found.kl, found.agreement, found.hard_accuracy) == (None, None, None)
    with pytest.raises(hm.errors.ParameterError, match="decide nothing"):
        hm.fidelity.greedy(net, [[0.0]], 0.5)
    labelled = hm.fidelity.compare(net, [[0.0]], labels=[0])  # labels say that it is a logit, positive for class 1
    assert (labelled.kl, labelled.soft_accuracy, labelled.hard_accuracy) == (None, 0.0, 0.0)


@pytest.mark.extras
def test_a_softmax_over_the_outputs_is_no_attention(tmp_path):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    from networks.files.onnx_graphs import save, small_model

    final = ("Softmax", ["z"], ["y"], {"axis": -1})
    mix = [("Softmax", ["x"], ["a"], {"axis": -1}), ("MatMul", ["a", "V"], ["z"], {})]
    constants = {"V": np.array([[1, 5], [4, 0]], dtype=np.float32)}
    with_final = save(small_model([*mix, final], [1, 2], constants), tmp_path, "a.onnx")
    without = save(small_model([*mix[:1], ("MatMul", ["a", "V"], ["y"], {})], [1, 2], constants), tmp_path, "b.onnx")
    x = np.array([[1, 2], [3, -1], [0, 0.5]], dtype=np.float32)
    assert hm.fidelity.compare(with_final, x) == hm.fidelity.compare(without, x)
    assert len(hm.fidelity.attention_rows(with_final, x)) == 1
    classifier = small_model([("MatMul", ["x", "V"], ["z"], {}), final], [1, 2], constants)
    with pytest.raises(hm.errors.EmptyError, match="with attention"):
        hm.fidelity.compare(save(classifier, tmp_path), x)


# ---- bad input ----


@pytest.mark.parametrize("measure", [*EVERYTHING, hm.fidelity.attention_rows])
def test_models_and_inputs_that_do_not_fit_are_named(measure):
    net = _network([[1, 2]])
    with pytest.raises(hm.errors.EmptyError, match="with attention"):
        measure(hm.Network([hm.Affine([[2.0]])], 1), [[1.0]])
    with pytest.raises(hm.errors.ParameterError, match="hard already"):
        measure(net.with_temperature(0.0), [[1.0]])
    with pytest.raises(hm.errors.ParameterError, match="from_torch"):
        measure(object(), [[1.0]])
    with pytest.raises(hm.errors.ShapeError, match="expected inputs of shape"):
        measure(net, [[1.0, 2.0]])
    with pytest.raises(hm.errors.WeightError, match="finite"):
        measure(net, [[np.nan]])
    with pytest.raises(hm.errors.WeightError, match="array of numbers"):
        measure(net, [["a"]])
    with pytest.raises(hm.errors.EmptyError, match="at least one input"):
        measure(net, np.empty((0, 1)))


@pytest.mark.parametrize("measure", EVERYTHING)
def test_labels_that_do_not_fit_are_named(measure):
    net = _network([[1, 2]])
    for labels, kind in [([0, 1], "ShapeError"), ([0.5], "ShapeError"), ([2], "ParameterError")]:
        with pytest.raises(getattr(hm.errors, kind), match="labels"):
            measure(net, [[1.0]], labels=labels)


def test_arguments_out_of_range_are_named():
    net = _network([[1, 2]])
    for max_loss in (-0.1, 1.1, float("nan")):
        with pytest.raises(hm.errors.ParameterError, match="max_loss"):
            hm.fidelity.greedy(net, [[1.0]], max_loss)
    with pytest.raises(hm.errors.ParameterError, match="temperature"):
        hm.fidelity.temperature_path(net, [[1.0]], [-1.0])
    with pytest.raises(hm.errors.EmptyError, match="temperatures"):
        hm.fidelity.temperature_path(net, [[1.0]], [])
    with pytest.raises(hm.errors.ParameterError, match=r"\(layer, head\)"):
        hm.fidelity.harden(net, [(0, 7)])
    with pytest.raises(hm.errors.ShapeError, match="hard network"):
        hm.fidelity.compare(net, [[1.0]], hard=hm.Network([hm.Affine([[1.0]])], 1))


def test_a_network_keeps_its_gelu_where_it_is_compared_as_the_message_of_compare_says():
    """A skeleton has ReLU for GELU; ``hard=harden(net, heads_of(net))`` changes attention alone."""
    rng = np.random.default_rng(4)
    builder = GraphBuilder((3,))
    head = {name: op.frozen(rng.normal(size=(4, 3))) for name in ("keys", "values")}
    weights = builder.add(op.Hardmax(), builder.add(op.Linear(head["keys"]), 0))
    mixed = builder.add(op.Linear(op.frozen(head["values"].T)), weights)
    builder.add(op.Pointwise("gelu"), mixed)
    net, x = hm.Network.from_graph(builder.build(), 1.0), rng.normal(size=(50, 3))
    with_relu = hm.fidelity.compare(net, x)
    kept = hm.fidelity.compare(net, x, hard=hm.fidelity.harden(net, hm.fidelity.heads_of(net)))
    best = head["values"][(x @ head["keys"].T).argmax(axis=1)]
    gelu = np.array([[v * (1 + erf(v / 2**0.5)) / 2 for v in row] for row in best.tolist()])
    _assert_measures(kept, net(x), gelu)
    _assert_measures(with_relu, net(x), np.maximum(best, 0))
    assert kept.relative_error != with_relu.relative_error


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200])
def test_relative_errors_are_those_of_outputs_of_any_size(scale):
    """Soft, half of each value: zero beside one; squares of such outputs vanish or overflow."""
    head = hm.Head([[0.0], [0.0]], [[scale], [-3 * scale]], [[1.0]])
    found = hm.fidelity.compare(hm.Network([hm.Attention([head])], 1, temperature=1.0), [[1.0], [2.0]])
    assert found.relative_error == pytest.approx(2.0, rel=1e-3)

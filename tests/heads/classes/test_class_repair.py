"""Repaired biases give dead classes cells, proved by another audit and by an oracle in rationals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import IncompleteError, ParameterError
from hardmax.heads.classes import repair
from hardmax.heads.classes.domains import read_domain
from oracles.class_oracle import cell_rows, feasible, live_classes


@st.composite
def _heads(draw):
    dim, n = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    rows = draw(st.lists(st.lists(st.integers(-2, 2), min_size=dim, max_size=dim), min_size=n, max_size=n))
    bias = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))
    scale = draw(st.sampled_from([1.0, 1 / 3, 1 / 7]))
    return scale * np.array(rows, dtype=np.float64).reshape(n, dim), np.array(bias, dtype=np.float64)


#: Margins of a millionth are eight floats of binary32 apart here, and the concave shares of them collide.
_ROUNDED_TOGETHER = np.array([[0.0, 0]] * 4 + [[-1, -1], [-1, -2], [-2, -1], [0, 1]])


@given(
    _heads(),
    st.sampled_from([1e-6, 0.125, 1 / 3, 5.0]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from(["all", "nonnegative", ("box", -1.0, 2.0)]),
)
@example((np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]), np.zeros(5)), 1.0, np.float64, "all")
@example((_ROUNDED_TOGETHER, np.array([0.0] * 7 + [1.0])), 1e-6, np.float32, "nonnegative")
@example((np.array([[0.0], [0.0], [1 / 3], [2 / 3]]), np.zeros(4)), 5.0, np.float64, ("box", -1.0, 2.0))
def test_after_a_repair_all_distinct_rows_live_and_no_bias_fell(head, margin, dtype, domain):
    weights, bias = head
    audit = hm.audit_classes(weights, bias, domain=domain)
    mended = audit.repaired_bias(margin, dtype=dtype)
    live = np.array(live_classes(weights.tolist(), mended.bias.tolist(), domain))
    assert (mended.bias >= bias).all()
    assert mended.raised.tolist() == np.flatnonzero(mended.bias != bias).tolist()
    assert (mended.bias[mended.raised].astype(dtype) == mended.bias[mended.raised]).all()
    distinct = {tuple(row) for row in weights.tolist()}
    assert len(mended.left) == 0 and live.sum() == len(distinct)
    assert sorted([*np.flatnonzero(live), *mended.copies]) == list(range(len(bias)))
    assert mended.audit.live.tolist() == live.tolist()
    for i in mended.copies.tolist():
        assert any((weights[i] == weights[j]).all() for j in np.flatnonzero(live))


@given(_heads(), st.sampled_from([1e-3, 0.5]))
def test_a_class_raised_alone_lives_alone(head, margin):
    weights, bias = head
    audit = hm.audit_classes(weights, bias)
    mended = audit.repaired_bias(margin)
    for i, enough in zip(mended.raised.tolist(), mended.alone.tolist(), strict=True):
        if audit.dead[i]:
            single = np.where(np.arange(len(bias)) == i, enough, bias)
            assert live_classes(weights.tolist(), single.tolist())[i]
            assert enough <= bias[i] + audit.lift(i).high + margin * (1 + 1e-12) + 1e-12


@given(_heads(), st.sampled_from([1e-3, 0.5]))
def test_losers_won_a_query_that_another_class_wins_now(head, margin):
    weights, bias = head
    audit = hm.audit_classes(weights, bias)
    mended = audit.repaired_bias(margin)
    cells = [(set(np.flatnonzero(audit.live).tolist()), audit.bias), (set(mended.raised.tolist()), mended.bias)]
    for loser, taker in zip(mended.losers.tolist(), mended.takers.tolist(), strict=True):
        # the old cell of one and the new cell of the other share an interior: the oracle knows by a common program
        assert loser in cells[0][0] and taker in cells[1][0] and loser != taker
        rows = [[Fraction(x) for x in row] for row in weights.tolist()]
        shared = [
            row
            for index, (_, biases) in zip((loser, taker), cells, strict=True)
            for row in cell_rows(rows, [Fraction(b) for b in biases.tolist()], index)
        ]
        assert feasible(shared, weights.shape[1])
    if len(mended.raised) and not len(mended.copies):
        assert len(mended.losers)  # whoever was raised took its cell from someone


@given(st.floats(-10, 10), st.floats(0, 10), st.sampled_from([np.float16, np.float32, np.float64]))
def test_a_raised_bias_is_rounded_up_to_its_type(bias, growth, dtype):
    raised = repair._raised(bias, growth, dtype)
    assert float(dtype(raised)) == raised and Fraction(raised) > Fraction(bias) + Fraction(growth) - Fraction(1, 2**60)
    assert raised >= bias + growth


@pytest.mark.parametrize("domain", ["all", "nonnegative", ("box", -1.0, 2.0)])
def test_the_share_of_a_margin_is_strictly_concave_and_at_least_a_half(domain):
    points = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 1.0]])  # the middles of two segments
    share = repair._concave(points, read_domain(domain, 2))
    assert share[2] > (share[0] + share[1]) / 2 and share[4] > (share[3] + 1.0 * share[1]) / 2
    assert share.min() >= 0.5 and share.max() <= 1.0
    assert repair._concave(np.ones((2, 3)), read_domain(domain, 3)).tolist() == [1.0, 1.0]
    if domain == "nonnegative":  # a row with larger entries covers a smaller one, and gets less
        assert share[0] > share[2] > share[1] and share[0] > share[3] > share[4]


def test_classes_around_a_raised_one_are_asked_too():
    """Its witness is where the two others tied, so neither is known to lose there; a step aside they do."""
    audit = hm.audit_classes([[1.0], [-1.0], [0.0]], [0.5, 0.5, 0.0])
    mended = audit.repaired_bias(0.25)
    assert (mended.losers.tolist(), mended.takers.tolist()) == ([0, 1], [2, 2])


def test_losers_are_believed_only_above_the_rounding():
    scores, sizes = np.array([[1.0, 1.0 - 2.0**-52], [1.0, 0.5]]), np.ones((2, 2))
    assert repair._winners(scores, sizes, np.zeros(2), 2).tolist() == [-1, 0]
    assert repair._winners(np.array([[np.inf, 1.0]]), np.array([[np.inf, 1.0]]), np.zeros(2), 2).tolist() == [-1]


def test_a_live_class_that_a_raised_one_would_cover_is_raised_too():
    weights = [[-1.0], [1.0], [0.0], [0.25]]  # the third stands above the others by a hair, the last is dead
    audit = hm.audit_classes(weights, [0.0, 0.0, 1e-3, 0.0])
    assert audit.live.tolist() == [True, True, True, False]
    mended = audit.repaired_bias(1.0)
    assert mended.audit.n_dead == 0 and mended.raised.tolist() == [2, 3]


def test_copies_cannot_be_repaired_and_are_listed():
    audit = hm.audit_classes([[1.0], [1.0], [0.0], [-1.0]], [0.0, 0.0, -1.0, 0.0])
    mended = audit.repaired_bias(0.25)
    assert mended.bias[:2].tolist() == [0.0, 0.0] and mended.bias[2] > 0
    assert mended.copies.tolist() == [1] and mended.raised.tolist() == [2]
    assert "1 copies stay dead" in repr(mended) and mended.exactness.value == "certified"


def test_many_planted_classes_are_repaired_together():
    rng = np.random.default_rng(4)
    live = rng.normal(size=(150, 6))
    mixes = rng.dirichlet(np.ones(12), 40) @ live[:12]
    audit = hm.audit_classes(np.vstack([live, mixes]), np.append(rng.normal(size=150) / 10, np.full(40, -1.0)))
    assert audit.n_dead >= 40
    mended = audit.repaired_bias(1e-3)
    assert mended.audit.n_dead == 0 and hm.audit_classes(audit.weights, mended).n_dead == 0
    assert np.array_equal(np.asarray(mended), mended.bias) and np.array(mended) is not mended.bias
    assert (mended.bias[audit.live] == audit.bias[audit.live]).mean() > 0.9
    assert mended.audit.verify().ok


@pytest.mark.parametrize("margin", [0, -1.0, np.nan, np.inf, "much", None])
def test_a_margin_that_is_no_positive_number_is_refused(margin):
    with pytest.raises(ParameterError, match="margin"):
        hm.audit_classes([[1.0], [-1.0], [0.0]]).repaired_bias(margin)


@pytest.mark.parametrize("domain", [("ball", 0.0, 1.0), "sphere"])
def test_classes_are_repaired_on_curved_domains_too(domain):
    audit = hm.audit_classes([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.25]], [0.5, 0.5, -2.0], domain=domain)
    assert audit.dead.tolist() == [False, False, True]
    repaired = audit.repaired_bias(0.25)
    assert repaired.audit.n_dead == 0 and repaired.audit.verify().ok
    assert repaired.bias[2] > -2.0 and (repaired.bias[:2] == 0.5).all()


def test_what_cannot_be_repaired_is_refused_by_name():
    undecided = hm.audit_classes(np.eye(3), max_seconds=0)
    with pytest.raises(IncompleteError, match="undecided"):
        undecided.repaired_bias(1.0)
    with pytest.raises(ParameterError, match="does not fit float16"):
        hm.audit_classes([[1.0], [-1.0], [0.0]], [0.5, 0.5, 0.0]).repaired_bias(1e6, dtype=np.float16)


# ---- back into the file ----

WEIGHTS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.25, 0.0], [0.0, 1.0]], dtype=np.float32)
BIAS = np.array([0.5, 0.5, 0.0, -0.25], dtype=np.float32)


def _model(path, kind="initializer", dtype=np.float32, **changes):
    """Relu, a layer with a dead class, Softmax: its bias an initializer, a Constant node or Gemm's third operand."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    h, bias, rows = onnx.helper, BIAS.astype(dtype), WEIGHTS.T.astype(dtype)
    element = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {"W": rows, "b": bias}
    nodes = [h.make_node("Relu", ["x"], ["r"])]
    if kind == "constant":
        nodes.append(h.make_node("Constant", [], ["b"], value=onnx.numpy_helper.from_array(constants.pop("b"), "v")))
    if kind == "gemm":
        nodes.append(h.make_node("Gemm", ["r", "W", "b"], ["s"], **changes))
    elif kind == "none":
        nodes.append(h.make_node("MatMul", ["r", "W"], ["s"]))
    else:
        nodes += [h.make_node("MatMul", ["r", "W"], ["m"]), h.make_node("Add", ["m", "b"], ["s"])]
    if kind == "shared":
        nodes.append(h.make_node("Identity", ["b"], ["other"]))
    nodes.append(h.make_node("Softmax", ["s"], ["y"], axis=-1))
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("x", element, ["n", 2])], [h.make_tensor_value_info("y", element, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    h.set_model_props(model, {"character": "a\nb\nc", "note": "kept"})
    path.write_bytes(model.SerializeToString())
    return path


def _plain(path):
    """A model as plain data without the constant that is meant to change."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    model = onnx.load(path)
    for tensor in [t for t in model.graph.initializer if t.name == "b"]:
        model.graph.initializer.remove(tensor)
    for node in [n for n in model.graph.node if n.op_type == "Constant"]:
        model.graph.node.remove(node)
    return model


@pytest.mark.extras
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("initializer", np.float32), ("constant", np.float32), ("gemm", np.float32), ("initializer", np.float64)],
)
def test_a_repaired_file_is_read_again_lives_and_runs(tmp_path, capsys, kind, dtype):
    from hardmax.cli import main

    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    before, after = _model(tmp_path / "m.onnx", kind, dtype), tmp_path / "mended.onnx"
    raw = before.read_bytes()
    assert hm.audit_classes(before).live.tolist() == [True, True, False, True]
    assert main(["classes", str(before), "--repair", str(after), "--margin", "0.125"]) == 0
    assert "1 class raised" in capsys.readouterr().out
    assert before.read_bytes() == raw and _plain(after) == _plain(before)
    audit = hm.audit_classes(after)
    assert audit.n_dead == 0 and audit.verify().ok and audit.names == ("<blank>", "a", "b", "c")
    # what the file answers at the witness is what the audit says; Relu needs features >= 0, so ask there
    onward = hm.audit_classes(after, domain="nonnegative")
    session = runtime.InferenceSession(after)
    assert np.flatnonzero(onward.live).tolist() == [0, 2, 3]
    for i in np.flatnonzero(onward.live).tolist():
        answer = session.run(None, {"x": onward.witness(i)[None].astype(dtype)})[0]
        assert int(answer.argmax()) == i


@pytest.mark.extras
@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("none", {}, "has no bias that could be changed"),
        ("shared", {}, "is used by 2 nodes"),
        ("gemm", {"beta": 2.0}, "are not the numbers in"),
    ],
)
def test_a_bias_that_cannot_be_replaced_is_refused_and_nothing_written(tmp_path, capsys, kind, changes, words):
    from hardmax.cli import main

    model = _model(tmp_path / "m.onnx", kind, **changes)
    assert main(["classes", str(model), "--repair", str(tmp_path / "out.onnx")]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out.onnx").exists()


@pytest.mark.extras
def test_a_file_with_weights_beside_it_is_repaired_in_its_own_folder_only(tmp_path, capsys):
    from hardmax.cli import main

    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    model = onnx.load(_model(tmp_path / "plain.onnx"))
    keep = model.graph.initializer[1].raw_data
    path = tmp_path / "in" / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=60)
    stored = onnx.load(path, load_external_data=False)
    assert stored.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL and len(keep) == 16
    assert main(["classes", str(path), "--repair", str(tmp_path / "out" / "m.onnx")]) == 2
    assert "lie in files beside it" in capsys.readouterr().err
    assert main(["classes", str(path), "--repair", str(tmp_path / "in" / "mended.onnx")]) == 0
    assert hm.audit_classes(tmp_path / "in" / "mended.onnx").n_dead == 0

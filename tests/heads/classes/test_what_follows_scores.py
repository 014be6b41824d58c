"""What a file or module does with the scores of its last layer is followed, refused by name, or said to be assumed."""

import json

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import FileFormatError, OperatorError, ParameterError

pytestmark = pytest.mark.extras

ROWS = np.float32([[2, 0], [-1, 2], [-1, -2], [0, 0]])  # the last is the mean of the others
BIAS = np.float32([0, 0, 0, -1])


def _onnx(path, dims, tail, opset=17, inputs=()):
    """Scores m of places with four classes, along axis 1 of a picture or the last of rows, and what follows them."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    h, types = onnx.helper, onnx.TensorProto
    nodes, constants = [], {"b": BIAS}
    is_picture = len(dims) == 4
    constants["W"] = ROWS[:, :, None, None] if is_picture else ROWS
    first = h.make_node("Conv", ["x", "W", "b"], ["m"]) if is_picture else None
    if first is None:
        constants["W"] = ROWS.T.copy()
        nodes += [h.make_node("MatMul", ["x", "W"], ["rows"])]
        first = h.make_node("Add", ["rows", "b"], ["m"])
    nodes.append(first)
    for op, given, made, attributes in tail:
        names = []
        for value in given:
            names.append(value if isinstance(value, str) else f"c{len(constants)}")
            constants |= {} if isinstance(value, str) else {names[-1]: value}
        nodes.append(h.make_node(op, names, [made], **attributes))
    entries = [h.make_tensor_value_info("x", types.FLOAT, dims)]
    entries += [h.make_tensor_value_info(name, types.INT64, [None]) for name in inputs]
    weights = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = h.make_graph(nodes, "g", entries, [onnx.ValueInfoProto(name=nodes[-1].output[0])], weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def _answers(path, **given):
    """The classes that onnxruntime ever answers."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    return set(np.unique(onnxruntime.InferenceSession(path).run(None, given)[0]).tolist())


_ARGMAX = ("ArgMax", ["r"], "y", {"axis": 1, "keepdims": 0})
_GIVEN = [("Reshape", ["m", "to"], "r", {}), _ARGMAX]


def test_a_reshape_whose_sizes_are_an_input_of_the_file_is_refused(tmp_path):
    """Fed with other sizes than those of the scores it mixes classes: here the dead class would be the answer."""
    path = _onnx(tmp_path / "m.onnx", ("n", 2), _GIVEN, inputs=["to"])
    points = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert 3 not in _answers(path, x=points, to=np.int64([5, 4]))
    assert 3 in _answers(path, x=points, to=np.int64([4, 5]))
    with pytest.raises(OperatorError, match="a Reshape whose sizes the file does not tell"):
        hm.audit_classes(path)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("dims", "axis", "words"), [
    ((4, 2), 0, "another axis"),  # (4, 4) scores become (4, 4): the axis that is ordered is that of the inputs
    ((6, 2), 0, "another axis"),
    ((4, 2), 1, ""),
])  # fmt: skip
def test_sizes_that_a_file_computes_from_others_are_computed(tmp_path, dims, axis, words, opset):
    tail = [
        ("Shape", ["m"], "s", {}),
        ("Gather", ["s", np.int64([0])], "k", {}),
        ("Concat", ["k", np.int64([-1])], "to", {"axis": 0}),
        ("Reshape", ["m", "to"], "r", {}),
        ("ArgMax", ["r"], "y", {"axis": axis, "keepdims": 0}),
    ]
    path = _onnx(tmp_path / "m.onnx", dims, tail, opset)
    if words:
        points = np.random.default_rng(1).normal(size=dims).astype(np.float32)
        assert 3 in _answers(path, x=points)
        with pytest.raises(OperatorError, match=words):
            hm.audit_classes(path)
    else:
        assert hm.audit_classes(path).dead.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ([np.int64([3]), np.int64([1]), "h", np.int64([-1])], "divides"),  # 3 is as many as pictures only by chance
        ([np.int64([3]), np.int64([4]), np.int64([1]), np.int64([1])], "divides"),  # constants put together
        ([np.int64([-1]), np.int64([6])], "divides"),  # fits where there are three pixels
        (["k", np.int64([4]), np.int64([-1]), np.int64([1])], ""),
    ],
)
def test_a_reshape_of_pictures_of_any_size_is_tried_with_all_that_fit(tmp_path, target, words):
    tail = [
        ("Shape", ["m"], "s", {}),
        ("Gather", ["s", np.int64([0])], "k", {}),
        ("Gather", ["s", np.int64([1])], "h", {}),
        ("Concat", target, "to", {"axis": 0}),
        ("Reshape", ["m", "to"], "r", {}),
    ]
    path = _onnx(tmp_path / "m.onnx", ("n", 2, "h", "w"), tail)
    if words:
        with pytest.raises(OperatorError, match=words):
            hm.audit_classes(path)
    else:
        assert hm.audit_classes(path).n_dead == 1


def test_several_sizes_that_nothing_tells_may_each_take_what_is_left(tmp_path):
    """As frameworks write a layer on tokens: rows of all tokens, then (inputs, tokens, classes) by computed sizes."""
    for parts, words in (
        (["to0", np.int64([4])], ""),
        ([np.int64([4]), "to0"], "divides"),
        (["to0", np.int64([1])], "whose sizes the file does not tell"),
    ):
        tail = [
            ("Concat", parts, "all", {"axis": 0}),
            ("Reshape", ["m", "all"], "r", {}),
        ]
        path = _onnx(tmp_path / "m.onnx", ("p", 2), tail, inputs=[])
        onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
        model = onnx.load(path)
        sizes = onnx.helper.make_tensor_value_info("to0", onnx.TensorProto.INT64, [2])
        model.graph.input.append(sizes)
        onnx.save(model, path)
        if words:
            with pytest.raises(OperatorError, match=words):
                hm.audit_classes(path)
        else:
            assert hm.audit_classes(path).n_dead == 1


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ([("Slice", ["m", np.int64([-1]), np.int64([2]), np.int64([2])], "y", {})], ""),  # empty, unless two wide
        ([("Squeeze", ["m"], "q", {}), ("ReduceMax", ["q"], "y", {"axes": [3]})], ""),  # no such axis where one is left
        ([("Slice", ["m", np.int64([5]), np.int64([2]), np.int64([1])], "y", {})], "do not fit its sizes"),
    ],
)
def test_sizes_at_which_nothing_is_left_do_not_fit(tmp_path, tail, words):
    path = _onnx(tmp_path / "m.onnx", (None, 2, None, None), tail, opset=12)
    if words:
        with pytest.raises(OperatorError, match=words):
            hm.audit_classes(path)
    else:
        assert hm.audit_classes(path).n_dead == 1


@pytest.mark.parametrize("kind", ["INT8", "UINT8", "BOOL", "INT64"])
def test_scores_made_integers_are_refused(tmp_path, kind):
    """Truth values of scores tie all but zero, and integers of few bits wrap: then other classes are the largest."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    cast = ("Cast", ["m"], "r", {"to": getattr(onnx.TensorProto, kind)})
    back = ("Cast", ["r"], "f", {"to": onnx.TensorProto.FLOAT})
    tail = [cast, back, ("ArgMax", ["f"], "y", {"axis": 1})]
    with pytest.raises(OperatorError, match="a Cast to other numbers than floats"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", ("n", 2), tail))
    index = [("ArgMax", ["m"], "r", {"axis": 1}), ("Cast", ["r"], "y", {"to": onnx.TensorProto.INT32})]
    assert hm.audit_classes(_onnx(tmp_path / "m.onnx", ("n", 2), index)).n_dead == 1


def test_features_that_were_integers_are_not_bounded_by_what_stood_before(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    tail = [("Relu", ["x"], "a", {}), ("Cast", ["a"], "i", {"to": onnx.TensorProto.INT8}),
            ("Cast", ["i"], "f", {"to": onnx.TensorProto.FLOAT}), ("MatMul", ["f", "W"], "y", {})]  # fmt: skip
    path = _onnx(tmp_path / "m.onnx", ("n", 2), tail)
    assert hm.audit_classes(path, layer="y", domain="auto").domain.kind == "all"


def test_a_bias_without_axes_counts_for_every_class(tmp_path):
    path = _onnx(tmp_path / "m.onnx", ("n", 2), [("Gemm", ["x", "W", np.float32(0.5)], "y", {})])
    assert hm.audit_classes(path, layer="y").bias.tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ([("Identity", ["y"], "r", {}), ("Identity", ["r"], "y", {})], "reads 'y', which is made after it"),
        ([("Identity", ["m"], "y", {}), ("Softmax", ["m"], "y", {})], "makes 'y', which is there already"),
        ([("Relu", ["m"], "W", {}), ("Identity", ["m"], "y", {})], "makes 'W', which is there already"),
    ],
)
@pytest.mark.parametrize("layer", [None, "W"])
def test_a_file_that_goes_round_in_a_circle_or_makes_a_tensor_twice_is_refused(tmp_path, tail, words, layer):
    with pytest.raises(FileFormatError, match=words):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", ("n", 2), tail), layer=layer)


@pytest.mark.parametrize("kind", ["name", "size", "matrix in a convolution"])
def test_files_that_no_runtime_takes_end_in_a_named_error(tmp_path, kind):
    path = _onnx(tmp_path / "m.onnx", ("size", 2, "h", "w"), [("Relu", ["m"], "y", {})])
    if kind != "matrix in a convolution":
        path.write_bytes(path.read_bytes().replace(b"Relu" if kind == "name" else b"size", b"R\xffl\xfe"))
        for read in (hm.audit_classes, hm.read):
            with pytest.raises(FileFormatError, match="a name that is no text"):
                read(path)
        return
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        del tensor.dims[1:]
        tensor.dims[0] = 8 if tensor.name == "W" else 4
    onnx.save(model, path)
    with pytest.raises(OperatorError, match="expected a linear layer before the output, got one through Relu"):
        hm.audit_classes(path)


# --- torch modules ----------------------------------------------------------------------------------


def _module(behind):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
            self.fc = torch.nn.Linear(2, 4)
            self.fc.weight.data, self.fc.bias.data = torch.tensor(ROWS), torch.tensor(BIAS)
            self.register_buffer("prior", torch.tensor([0.0, 0.0, 0.0, 9.0]))
            self.scale = torch.nn.Parameter(torch.tensor([1.0, 1.0, 1.0, -9.0]))
            self.temperature = torch.nn.Parameter(torch.tensor(2.0))
            self.order, self.act = [3, 0, 1, 2], torch.nn.ReLU(inplace=True)

        def forward(self, x, labels=None):
            scores = behind(self, self.fc(self.body(x)))
            return scores if labels is None else (scores, labels)

    return Model()


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        (lambda m, s: s + m.prior, "add"),
        (lambda m, s: s.add_(m.prior), "add_"),
        (lambda m, s: s * m.scale, "mul"),
        (lambda m, s: s * -1, "mul"),
        (lambda m, s: 1 - s, "sub"),
        (lambda m, s: s[:, m.order], "a selection that may leave out classes"),
        (lambda m, s: s[:, :3], "a selection that may leave out classes"),
        (lambda m, s: s.masked_fill(m.prior > 0, 99.0), "masked_fill"),
        (lambda m, s: s.relu(), "relu"),
        (lambda m, s: s.softmax(0), "softmax along axis 0"),
        (lambda m, s: s.t().softmax(-1), "t,|softmax along axis"),
        (lambda m, s: s.transpose(0, 1).softmax(-1), "softmax along axis -1"),
        (lambda m, s: s.topk(1, largest=False).indices, "topk of the smallest"),
        (lambda m, s: m.prior[s.argmax(-1)], "getitem"),
        (lambda m, s: s.view(4, -1), "view"),
        (lambda m, s: (s.add_(m.prior), s)[1], "add_"),
        (lambda m, s: (s.detach().add_(m.prior), s)[1], "add_"),
        (lambda m, s: (m.act(s), s)[1], "ReLU"),
    ],
)
def test_what_a_module_does_with_scores_that_may_change_the_largest_is_refused_by_name(behind, words):
    model = _module(behind)
    with pytest.raises(OperatorError, match=f"Model: behind its last linear layer comes .*({words})"):
        hm.audit_classes(model)
    assert hm.audit_classes(model, layer="fc").n_dead == 1  # its rows alone


@pytest.mark.parametrize(
    "behind",
    [
        lambda m, s: s,
        lambda m, s: s.softmax(-1),
        lambda m, s: {"logits": s / m.temperature, "probabilities": (s / 2.5).log_softmax(dim=-1)},
        lambda m, s: 30 * (s / 30).tanh(),
        lambda m, s: s.argmax(-1),
        lambda m, s: s.topk(1).indices[..., 0],
        lambda m, s: s.view(-1, 4).float(),
    ],
)
def test_what_keeps_the_largest_score_is_followed_and_nothing_is_assumed(behind):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    model = _module(behind)
    before = dict(vars(model))
    audit = hm.audit_classes(model)
    assert audit.n_dead == 1 and audit.assumed == "" and "assumed" not in repr(audit)
    assert vars(model) == before
    found = model(torch.randn(200, 3))
    found = found["probabilities"] if isinstance(found, dict) else found
    assert not (found == 3).any() if found.dtype == torch.int64 else not (found.argmax(-1) == 3).any()


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        (lambda m, s: s.softmax(1), "each input is one vector of features"),
        (lambda m, s: s if s.sum() > 0 else -s, "where its code was not followed .TraceError"),
        (lambda m, s: s.__setitem__((0, 3), 9.0) or s, "where its code was not followed .TypeError"),
    ],
)
def test_an_audit_says_what_it_assumes_of_code_that_was_not_followed(behind, words, tmp_path):
    audit = hm.audit_classes(_module(behind))
    assert words.split(" .")[0] in audit.assumed and f"; assumed: {audit.assumed})" in repr(audit)
    audit.save(tmp_path / "audit.npz")
    assert hm.load_classes(tmp_path / "audit.npz").assumed == audit.assumed


def test_hooks_and_layers_that_are_read_but_not_called_leave_an_assumption():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    model = _module(lambda m, s: s)
    model.fc.register_forward_hook(lambda layer, given, found: found + model.prior)
    assert "hooks" in hm.audit_classes(model).assumed
    uncalled = _module(lambda m, s: s)
    uncalled.fc.forward = lambda x: x @ torch.ones(2, 4)
    assert "hooks" in hm.audit_classes(uncalled).assumed

    class ByWeights(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 4)

        def forward(self, x):
            return torch.nn.functional.linear(x, self.fc.weight)  # without the bias

    assert "does not call the layer" in hm.audit_classes(ByWeights()).assumed
    with pytest.raises(OperatorError, match="its output does not come from the layer found"):
        hm.audit_classes(_module(lambda m, s: m.body[0].weight.sum()))


def test_a_class_that_is_only_called_linear_is_none():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")

    class Linear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) @ torch.diag(self.bias)

    with pytest.raises(OperatorError, match="no linear layer"):
        hm.audit_classes(torch.nn.Sequential(Linear(2, 3)))

    class Kept(torch.nn.Linear):
        pass

    Kept.__name__ = "Linear"
    assert hm.audit_classes(torch.nn.Sequential(Kept(2, 3))).assumed == ""


def test_models_of_transformers_are_followed_to_their_outputs():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    sizes = {"vocab_size": 9, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "pad_token_id": 0,
             "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4, "num_labels": 5}  # fmt: skip
    for name, words in (("LlamaForCausalLM", ""), ("Gemma2ForCausalLM", ""), ("RobertaForMaskedLM", ""),
                        ("LlamaForSequenceClassification", "more than 2 axes")):  # fmt: skip
        kind = getattr(transformers, name)
        model = kind(kind.config_class(**sizes))
        for weight in model.parameters():
            torch.nn.init.normal_(weight)
        assumed = hm.audit_classes(model).assumed
        assert words in assumed and bool(words) == bool(assumed)


def test_adapters_at_the_output_are_to_be_merged_first():
    """As peft keeps a layer that is trained beside its adapters."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")

    class Saved(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.original_module, self.modules_to_save = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)

    model = torch.nn.Module()
    model.body, model.score = torch.nn.Linear(2, 2), Saved()
    model.other = torch.nn.Linear(2, 3)
    with pytest.raises((OperatorError, ParameterError), match="merge them first"):
        hm.audit_classes(model)


def test_a_file_of_weights_alone_says_that_its_models_code_is_not_in_it(tmp_path, capsys):
    from hardmax.cli import main

    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + ROWS.tobytes())
    assert "which is not in the file" in hm.audit_classes(path).assumed
    assert hm.audit_classes(path, layer="lm_head").assumed == ""
    assert main(["classes", str(path)]) == 0
    assert "assumed, not proved: the model's code" in capsys.readouterr().out
    assert main(["classes", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert "assumed, not proved" in (tmp_path / "page.html").read_text(encoding="utf-8")

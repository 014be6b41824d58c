"""A Hugging Face model and the network read from it compute the same, soft and hard, and have the same cells."""

from dataclasses import replace

import numpy as np
import pytest

import hardmax as hm
from heads.capture.families import FAMILIES, IDS

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
pytest.importorskip("onnx", reason="needs onnx, which is not installed")

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]

_EIGHT = ("BERT", "GPT-2", "Llama", "Qwen3", "GPT-J", "T5 encoder", "ViT", "Gemma 2")
_GATED = ("Llama", "Qwen3", "Gemma 2")


@pytest.fixture(autouse=True)
def seeded():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _model(name, **changes):
    family = FAMILIES[name]
    return replace(family, sizes=family.sizes | changes).build(transformers), family.inputs(torch)


def _embedded(model, inputs):
    with torch.no_grad():
        return inputs["pixel_values"] if "pixel_values" in inputs else model.get_input_embeddings()(inputs["input_ids"])


def _outputs(model, x):
    with torch.no_grad():
        shown = model(**{"pixel_values" if x.dim() == 4 else "inputs_embeds": x})
    return (shown.logits if "logits" in shown else shown.last_hidden_state)[0].double().numpy()


def _one_hot(scores, dim=-1, dtype=None):
    return torch.nn.functional.one_hot(scores.argmax(dim), scores.shape[dim]).to(scores.dtype)


@pytest.mark.parametrize("name", _EIGHT)
def test_the_network_is_the_model_soft_and_hard(name, monkeypatch):
    model, inputs = _model(name)
    before = model.config._attn_implementation
    net = hm.from_hf(model, inputs)
    assert model.config._attn_implementation == before and not model.training
    x = _embedded(model, inputs)
    point = x[0].double().numpy()
    soft = _outputs(model, x)
    assert np.abs(net(point) - soft).max() < 1e-5 * np.abs(soft).max()
    model.set_attn_implementation("eager")
    monkeypatch.setattr(torch.nn.functional, "softmax", _one_hot)  # the model with hard attention, by hand
    hard = _outputs(model, x)
    assert np.abs(hard - soft).max() > 1e-4 * np.abs(soft).max()
    assert np.abs(net(point, temperature=0) - hard).max() < 1e-5 * np.abs(hard).max()
    assert any("gated" in change for change in net.changes) == (name in _GATED)


@pytest.mark.parametrize("name", _EIGHT)
def test_cells_on_a_segment_between_two_inputs_are_confirmed_at_their_midpoints(name):
    """Gated models have them as long as no scores stand after a gate: with one layer."""
    model, inputs = _model(name, **({"num_hidden_layers": 1} if name in _GATED else {}))
    net = hm.from_hf(model, inputs)
    assert not any("gated" in change for change in net.changes)
    x = _embedded(model, inputs)[0]
    skeleton = hm.skeleton(net, reference=x)
    domain = hm.Segment(x, _other(model, inputs))
    cells = hm.enumerate_cells(skeleton, domain)
    assert cells.n_cells > 1 and cells.is_complete
    assert str(cells.exactness) == "certified"
    ends = np.array([cells.vertices(i)[:, 0] for i in range(cells.n_cells)])
    wide = np.flatnonzero(ends.max(axis=1) - ends.min(axis=1) > 1e-9)  # others are thinner than floats see
    assert len(wide) > cells.n_cells / 2
    points = domain.points(ends[wide].mean(axis=1)[:, None], skeleton.input_shape)
    assert np.array_equal(skeleton.labels(points), cells.labels[wide])


def _other(model, inputs):
    """Another input of the same shape: one token exchanged, or a darker picture."""
    if "pixel_values" in inputs:
        return 0.5 * inputs["pixel_values"][0]
    ids = inputs["input_ids"].clone()
    ids[0, 2] = 7
    return _embedded(model, {"input_ids": ids})[0]


def test_what_a_gate_leaves_is_said_at_once_and_works():
    model, inputs = _model("Llama")
    net = hm.from_hf(model, inputs)
    (note,) = [change for change in net.changes if "gated" in change]
    x = _embedded(model, inputs)[0]
    with pytest.raises(hm.errors.QuadraticScoresError, match=r"hm\.capture"):
        hm.enumerate_cells(hm.skeleton(net, reference=x), hm.Segment(x, 1 - x))
    for road in ("net(x, temperature=0)", "hm.capture", "hm.kv_cache", "hm.audit_classes"):
        assert road in note
    (capture,) = hm.capture(model, inputs)
    assert len(hm.kv_cache(capture)) == 8
    assert hm.audit_classes(model).n_classes == 50


def test_capped_scores_lose_their_cap_and_nothing_else_in_the_skeleton():
    """tanh before a hard choice chooses the same; one between layers is refused as before."""
    model, inputs = _model("Gemma 2", num_hidden_layers=1)
    net = hm.from_hf(model, inputs)
    x = _embedded(model, inputs)[0]
    skeleton = hm.skeleton(net, reference=x)
    assert sum("was left out: it is increasing" in change for change in skeleton.changes) == 2
    point = x.double().numpy()
    order = np.argsort(net(point, temperature=0), axis=1)  # with SiLU, at the reference with the same norms
    assert order.shape == skeleton(point).shape
    bent = hm.from_torch(
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)), torch.ones(2)
    )
    with pytest.raises(hm.errors.NotPiecewiseAffineError, match="tanh"):
        hm.skeleton(bent)
    last = hm.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh()), torch.ones(2))
    assert hm.skeleton(last)([1.0, 2.0]).argsort().tolist() == last([1.0, 2.0]).argsort().tolist()


def test_inputs_are_taken_as_numbers_mappings_and_arrays():
    model, inputs = _model("BERT")
    x = _embedded(model, inputs)
    padded = {"input_ids": [[*IDS, 0, 0]], "attention_mask": [[1] * len(IDS) + [0, 0]]}
    wanted = hm.from_hf(model, inputs)(x[0])
    for given in (IDS, [IDS], np.array(IDS), torch.tensor(IDS), padded, x, x[0], {"inputs_embeds": x[0].numpy()}):
        assert np.array_equal(hm.from_hf(model, given)(x[0]), wanted)
    pooled = hm.from_hf(model, IDS, output="pooler_output")
    assert pooled.output_shape == (16,)


_SEEN = torch.tril(torch.ones(6, 6)) - torch.tril(torch.ones(6, 6), -3)  # each sees itself and two before it


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("BERT", {"token_type_ids": torch.tensor([[0, 0, 1, 1, 1, 0]])}),
        ("BERT", {"position_ids": torch.tensor([[5, 4, 3, 2, 1, 0]])}),
        ("Llama", {"position_ids": torch.tensor([[5, 6, 8, 9, 12, 13]])}),
        ("GPT-2", {"attention_mask": torch.where(_SEEN > 0, 0.0, torch.finfo(torch.float32).min)[None, None]}),
    ],
)
def test_what_is_given_beside_the_tokens_is_part_of_the_network(name, others):
    model, inputs = _model(name)
    x = _embedded(model, inputs)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 5 if weight.dim() == 2 else 1  # so that attention counts
        model.set_attn_implementation("eager")
        shown = model(inputs_embeds=x, **others, **({"use_cache": False} if name == "Llama" else {}))
    own = (shown.logits if "logits" in shown else shown.last_hidden_state)[0].double().numpy()
    point = x[0].double().numpy()
    assert np.abs(hm.from_hf(model, {**inputs, **others})(point) - own).max() < 1e-5 * np.abs(own).max()
    assert np.abs(hm.from_hf(model, inputs)(point) - own).max() > 1e-3 * np.abs(own).max()


def test_several_texts_in_one_row_are_as_apart_as_the_model_has_them():
    model, inputs = _model("Llama")
    x = _embedded(model, inputs)[0].double().numpy()
    packed = hm.from_hf(model, {**inputs, "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]])})(x)
    alone = [hm.from_hf(model, IDS[:3])(x[:3]), hm.from_hf(model, IDS[3:])(x[3:])]
    assert np.abs(packed - np.concatenate(alone)).max() < 1e-9 * np.abs(packed).max()


def test_a_model_that_computes_otherwise_while_it_is_traced_is_refused(monkeypatch):
    model, inputs = _model("BERT")
    whole = model.encoder.forward

    def forward(*args, **kwargs):
        result = whole(*args, **kwargs)
        result.last_hidden_state = result.last_hidden_state * (2 if torch.jit.is_tracing() else 1)
        return result

    monkeypatch.setattr(model.encoder, "forward", forward)
    with pytest.raises(hm.errors.OperatorError, match=r"otherwise than what torch exports.*hm\.capture"):
        hm.from_hf(model, inputs)
    assert len(hm.capture(model, inputs)[0].heads) == 8


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ([1] * 41, "ParameterError", "context of 40 tokens, got 41"),
        ([[1, 2], [3]], "ShapeError", "several lengths"),
        (torch.zeros(1, 3, dtype=torch.long, device="meta"), "WeightError", "meta device"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "ShapeError", r"unbind\(\)"),
        ("a text", "ParameterError", "tokenizer"),
        ([], "EmptyError", "at least one token"),
        ({}, "ParameterError", "input_ids"),
        ([[1, 2], [3, 4]], "ShapeError", "one text"),
        ([3, 99], "ParameterError", "own tokenizer"),
        ({"input_ids": [[1, 2]], "attention_mask": [[0, 0]]}, "EmptyError", "padding alone"),
        ({"inputs_embeds": np.zeros((2, 3, 16))}, "ShapeError", "one input"),
    ],
)
def test_other_inputs_are_refused_with_what_to_do(given, error, says):
    with pytest.raises(getattr(hm.errors, error), match=says):
        hm.from_hf(_model("BERT")[0], given)


def test_other_models_are_refused_with_what_to_do():
    with pytest.raises(hm.errors.ParameterError, match=r"hm\.from_torch"):
        hm.from_hf(torch.nn.Linear(2, 2), [1])
    with pytest.raises(hm.errors.ParameterError, match="got a Network"):
        hm.from_hf(hm.Network([hm.Affine([[1.0]])], 1), [1])
    with pytest.raises(hm.errors.ParameterError, match=r"model\.float\(\)"):
        hm.from_hf(_model("BERT")[0].bfloat16(), IDS)
    pair, inputs = _model("T5")
    with pytest.raises(hm.errors.OperatorError, match=r"model\.get_encoder\(\)"):
        hm.from_hf(pair, inputs)
    assert hm.from_hf(pair.get_encoder(), IDS).input_shape == (6, 16)
    with pytest.raises(hm.errors.ParameterError, match="no output 'attentions'"):
        hm.from_hf(_model("BERT")[0], IDS, output="attentions")
    with pytest.raises(hm.errors.ParameterError, match=r"hm\.from_hf\(model, inputs\)"):
        hm.from_torch(_model("BERT")[0], torch.tensor([IDS]))
    with pytest.raises(hm.errors.ParameterError, match=r"hm\.from_hf\(model, inputs\)"):
        hm.skeleton(_model("BERT")[0])

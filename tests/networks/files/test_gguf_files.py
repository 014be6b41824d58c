"""GGUF files of a tiny Llama: weights come back in transformers' order, and damaged files are named."""

import struct
import sys

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import FileFormatError, MissingExtraError, OperatorError
from hardmax.networks.files.gguf_files import read_llama
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
gguf = pytest.importorskip("gguf", reason="needs gguf, which is not installed")

pytestmark = pytest.mark.extras

_TOKENS = ["<end>", *"abcdefgh", "ab"]
_HEADS, _GROUPS, _WIDTH = 4, 2, 32


def _by_pairs(weight, heads):
    """llama.cpp's order of the rows of a head: first and second halves interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _names(model):
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    parts = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    parts |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    parts |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name in model.state_dict():
        if ".layers." in name:
            names[name] = f"blk.{name.split('.')[2]}.{parts[name.split('.')[-2]]}.weight"
    return names


def _model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(_TOKENS),
        hidden_size=_WIDTH,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=_HEADS,
        num_key_value_heads=_GROUPS,
        max_position_embeddings=16,
        rms_norm_eps=1e-5,
        rope_theta=500.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _write(path, model, architecture="llama", drop=(), extra=(), change=None, quantized=False, add=None):
    writer = gguf.GGUFWriter(path, architecture)
    if add is not None:
        add(writer)
    writer.add_context_length(16)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(64)
    writer.add_block_count(2)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(_TOKENS)
    writer.add_token_types([3] + [1] * (len(_TOKENS) - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = _names(model)
    for name, tensor in model.state_dict().items():
        array = tensor.numpy().copy()
        if names[name] in drop:
            continue
        if "q_proj" in name or "k_proj" in name:
            array = _by_pairs(array, _HEADS if "q_proj" in name else _GROUPS)
        if change is not None:
            array = change(names[name], array)
        if quantized and array.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(names[name], gguf.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
        else:
            writer.add_tensor(names[name], np.ascontiguousarray(array))
    for name in extra:
        writer.add_tensor(name, np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def original():
    return _model()


@pytest.fixture
def file(tmp_path, original):
    return _write(tmp_path / "tiny.gguf", original)


def test_every_weight_comes_back_and_the_model_computes_the_same(file, original):
    model = hm.models.smollm2(file)
    for name, weight in original.state_dict().items():
        assert torch.equal(model.model.state_dict()[name], weight), name
    ids = torch.tensor([[1, 5, 3, 8]])
    with torch.no_grad():
        assert torch.equal(model.model(ids).logits, original(ids).logits)
    assert repr(model) == "CausalModel(tiny, 2 layers of 4 heads, context 16)"


def test_the_file_brings_its_tokenizer(file):
    model = hm.models.smollm2(file)
    assert model.tokens("abcab<end>") == ("ab", "c", "ab", "<end>")
    (capture,) = model.capture("cabbage".replace("abb", "ab"))
    assert capture.tokens == ("c", "ab", "a", "g", "e")


def test_quantized_weights_are_close_to_the_originals(tmp_path, original):
    contents = read_llama(_write(tmp_path / "small.gguf", original, quantized=True))
    for name, weight in original.state_dict().items():
        spread = float(weight.max() - weight.min())
        assert np.abs(contents.weights[name] - weight.numpy()).max() <= spread / 15 + 1e-6


def test_a_wrong_order_of_rows_would_be_noticed(file, original, monkeypatch):
    monkeypatch.setattr("hardmax.networks.files.gguf_files._by_halves", lambda weight, heads: weight)
    wrong, right = hm.models.smollm2(file), hm.capture(original, [1, 5, 3, 8])[0]
    (capture,) = hm.capture(wrong.model, [1, 5, 3, 8])
    assert worst_difference(capture, lambda layer, head: right.head(layer, head).weights) > 1e-4


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(file, share):
    data = file.read_bytes()
    file.write_bytes(data[: max(5, int(share * len(data)))])
    with pytest.raises(FileFormatError, match=r"tiny\.gguf: a damaged or truncated GGUF file.*fetch it again"):
        hm.models.smollm2(file)


@pytest.mark.parametrize("seed", range(12))
def test_a_file_with_a_damaged_header_is_read_or_named(file, seed):
    rng = np.random.default_rng(seed)
    data = bytearray(file.read_bytes())
    for place in rng.integers(4, 1200, size=8):
        data[place] = rng.integers(256)
    file.write_bytes(data)
    try:
        read_llama(file)
    except (FileFormatError, OperatorError) as error:
        assert "tiny.gguf" in str(error)


@pytest.mark.parametrize("data", [b"G", b"GG", b"PK\x03\x04 a zip", b"\x80\x04 a pickle"])
def test_a_file_of_another_kind_is_named(tmp_path, data):
    (tmp_path / "other.gguf").write_bytes(data)
    with pytest.raises(FileFormatError, match="which begins with b'GGUF'"):
        hm.models.smollm2(tmp_path / "other.gguf")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"absent\.gguf: expected a GGUF file, found none"):
        hm.models.smollm2(tmp_path / "absent.gguf")


def test_another_family_is_refused(tmp_path, original):
    path = _write(tmp_path / "other.gguf", original, architecture="mamba")
    with pytest.raises(OperatorError, match="expected a model of the Llama family, got 'mamba'"):
        hm.models.smollm2(path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop": ("blk.1.attn_k.weight",)}, "1 too few and 0 unknown ones"),
        ({"extra": ("blk.0.attn_q.bias",)}, "0 too few and 1 unknown ones"),
        ({"change": lambda _, array: array * np.float32(np.nan)}, "NaN or infinite"),
        ({"change": lambda name, array: array[:, :-1] if "ffn_up" in name else array}, "do not fit the sizes in"),
        ({"change": lambda name, array: array[:-1] if "attn_q" in name else array}, "do not fit the sizes in"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, original, options, says):
    with pytest.raises(FileFormatError, match=says):
        hm.models.smollm2(_write(tmp_path / "odd.gguf", original, **options))


def _with_number(file, key, form, value):
    """The file with one number of its header replaced."""
    data = bytearray(file.read_bytes())
    start = data.index(key.encode()) + len(key) + 4  # the key, then the number's type, then the number
    data[start : start + struct.calcsize(form)] = struct.pack(form, value)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("key", "form", "values"),
    [
        ("llama.attention.head_count", "<I", (0, 1, 3, 8, 2**31)),
        ("llama.attention.head_count_kv", "<I", (0, 1, 3)),
        ("llama.block_count", "<I", (0, 1, 2**31 - 1)),
        ("llama.context_length", "<I", (0,)),
        ("llama.embedding_length", "<I", (0, 16, 2**31)),
        ("llama.feed_forward_length", "<I", (0, 1, 2**31)),
        ("llama.attention.layer_norm_rms_epsilon", "<f", (np.nan, -1.0)),
        ("llama.rope.freq_base", "<f", (0.0, np.inf)),
    ],
)
def test_sizes_that_cannot_be_are_refused_at_once(file, key, form, values):
    for value in values:
        _with_number(file, key, form, value)
        with pytest.raises(FileFormatError, match=r"tiny\.gguf: (?!.*tiny)"):
            hm.models.smollm2(file)


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR), "scaled rotary embeddings"),
        (lambda w: w.add_rope_scaling_factor(4.0), "scaled rotary embeddings"),  # linear where no type is given
        (lambda w: w.add_rope_dimension_count(4), "rotary embeddings of a part"),
        (lambda w: w.add_tokenizer_pre("llama-bpe"), "splits texts otherwise"),
        (lambda w: w.add_add_bos_token(True), "puts a token before each text"),
    ],
)
def test_variants_that_would_be_computed_wrongly_are_refused(tmp_path, original, add, says):
    with pytest.raises(OperatorError, match=says):
        hm.models.smollm2(_write(tmp_path / "other.gguf", original, add=add))


def test_frequencies_of_their_own_are_refused(tmp_path, original):
    with pytest.raises(OperatorError, match="scaled rotary embeddings"):
        hm.models.smollm2(_write(tmp_path / "other.gguf", original, extra=("rope_freqs.weight",)))


def test_without_gguf_the_pip_line_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[models\]'"):
        hm.models.smollm2(file)


# --- sizes that the file does not have ------------------------------------------------------------------


def _text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def _file(fields=b"", n_fields=0, tensors=b"", n_tensors=0, data=b"", version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_fields) + fields + tensors
    return head + b"\0" * (-len(head) % 32) + data


def _tensor(name, shape, kind=0, offset=0):
    return _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


_NUMBER, _LIST, _STRING = 4, 9, 8
_VAST = 1 << 62
_LIES = {
    "as many values as there are numbers": _file(n_fields=_VAST),
    "as many tensors as there are numbers": _file(n_tensors=_VAST),
    "a text without end": _file(struct.pack("<Q", _VAST) + b"x", 1),
    "a last text without end": _file(_text("a") + struct.pack("<IQ", _STRING, _VAST) + b"x", 1),
    "an array without end": _file(_text("a") + struct.pack("<IIQ", _LIST, _STRING, _VAST), 1),
    "an array of arrays": _file(_text("a") + struct.pack("<IIQIQ", _LIST, _LIST, 1, 0, 0), 1),
    "a type that does not exist": _file(_text("a") + struct.pack("<II", 99, 0), 1),
    "two values of one name": _file((_text("a") + struct.pack("<II", _NUMBER, 1)) * 2, 2),
    "two tensors of one name": _file(tensors=_tensor("t", (1,)) * 2, n_tensors=2, data=bytes(64)),
    "a tensor without axes": _file(tensors=_tensor("t", ()), n_tensors=1, data=bytes(64)),
    "a tensor of many axes": _file(tensors=_tensor("t", (1,) * 5), n_tensors=1, data=bytes(64)),
    "a tensor beyond the end": _file(tensors=_tensor("t", (17,)), n_tensors=1, data=bytes(64)),
    "a tensor that begins beyond the end": _file(tensors=_tensor("t", (1,), 0, _VAST), n_tensors=1, data=bytes(64)),
    "a tensor whose size is more than a number": _file(tensors=_tensor("t", (_VAST,) * 4), n_tensors=1, data=bytes(64)),
    "a tensor without entries": _file(tensors=_tensor("t", (0,)), n_tensors=1, data=bytes(64)),
    "a row that is no number of blocks": _file(tensors=_tensor("t", (16,), 3), n_tensors=1, data=bytes(640)),
    "a kind of number that does not exist": _file(tensors=_tensor("t", (1,), 77), n_tensors=1, data=bytes(64)),
    "tensors on top of one another": _file(
        tensors=b"".join(_tensor(f"t{k}", (1000,)) for k in range(100)), n_tensors=100, data=bytes(4000)
    ),
    "an alignment to three bytes": _file(_text("general.alignment") + struct.pack("<II", _NUMBER, 3), 1),
    "an alignment to none": _file(_text("general.alignment") + struct.pack("<II", _NUMBER, 0), 1),
    "the other byte order": _file(version=3 << 24),
}


@pytest.mark.parametrize("name", _LIES)
def test_sizes_are_checked_against_the_file_before_anything_is_made_of_them(name, tmp_path):
    (tmp_path / "lie.gguf").write_bytes(_LIES[name])
    for read in (read_llama, hm.audit_classes):
        with pytest.raises(
            FileFormatError, match=r"lie\.gguf: a damaged or truncated GGUF file \(.*\); fetch it again"
        ):
            read(tmp_path / "lie.gguf")


def test_classes_are_read_as_they_are_stored_and_numbers_of_other_kinds_are_refused(tmp_path):
    rows = np.array([[1 / 3, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 1e-9]])
    names = _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", _LIST, _STRING, 4) + b"".join(map(_text, "abcd"))
    for name, kind in (("F64", 28), ("I64", 27)):
        data = _file(names, 1, _tensor("output.weight", (2, 4), kind), 1, rows.tobytes())
        (tmp_path / f"{name}.gguf").write_bytes(data)
    audit = hm.audit_classes(tmp_path / "F64.gguf")
    assert (audit.weights == rows).all() and audit.names == tuple("abcd") and audit.n_dead == audit.dead[3] == 1
    with pytest.raises(OperatorError, match=r"I64\.gguf: output\.weight is stored as I64, expected floats"):
        hm.audit_classes(tmp_path / "I64.gguf")


@pytest.mark.parametrize(("shape", "offset"), [((17,), 0), ((16,), 1), ((1,), _VAST)])
def test_a_tensor_beyond_the_end_is_named_with_the_bytes_it_would_need(shape, offset, tmp_path):
    (tmp_path / "lie.gguf").write_bytes(_file(tensors=_tensor("late", shape, 0, offset), n_tensors=1, data=bytes(64)))
    with pytest.raises(FileFormatError, match=r"tensor late of shape \(.*\) in F32 needs bytes .* to .* of 128"):
        read_llama(tmp_path / "lie.gguf")


def test_a_sound_file_of_another_family_is_read_as_far_as_its_name(tmp_path):
    """What the lies are told about: without them the file is one."""
    fields = _text("general.architecture") + struct.pack("<I", _STRING) + _text("none")
    data = _file(fields, 1, _tensor("t", (16,)), 1, bytes(64))
    (tmp_path / "sound.gguf").write_bytes(data)
    with pytest.raises(OperatorError, match="expected a model of the Llama family, got 'none'"):
        read_llama(tmp_path / "sound.gguf")


@pytest.mark.parametrize("merge", ["abc", "a  ", "  b", "a x", "b a", "   "])
def test_a_merge_that_is_none_is_refused(tmp_path, original, merge):
    path = _write(tmp_path / "odd.gguf", original)
    data = path.read_bytes()
    start = data.index(b"tokenizer.ggml.merges") + len(b"tokenizer.ggml.merges") + 16
    assert data[start : start + 11] == struct.pack("<Q", 3) + b"a b"
    path.write_bytes(data[:start] + _text(merge) + data[start + 11 :])
    with pytest.raises(FileFormatError, match=r"the merge .* is not of two tokens to a third"):
        read_llama(path)


def test_the_embedding_of_an_encoder_is_no_output_to_be_audited(tmp_path, original):
    assert hm.audit_classes(_write(tmp_path / "a.gguf", original, drop=("output.weight",))).n_classes == len(_TOKENS)
    with pytest.raises(OperatorError, match="found none; name one"):
        hm.audit_classes(_write(tmp_path / "b.gguf", original, architecture="nomic-bert", drop=("output.weight",)))

"""GGUF files: values and tensors; of the Llama family weights dequantized, and the tokenizer they carry.

llama.cpp stores the rows of the query and key matrices in another order than transformers, because it
rotates neighbouring coordinates where transformers rotates halves; they are put back here.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError, needing
from hardmax.networks.files.opening import LIMITS, Limits, open_file, refusing, shown

#: Name in the file -> name in transformers; {} is the number of the layer.
_LAYER_NAMES = {
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}
_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_POSITIVE = {
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "max_position_embeddings",
}
_CONTROL = 3  # the type of a token that stands for no text


@dataclass(frozen=True, eq=False)
class LlamaFile:
    """What a GGUF file of a Llama says: sizes, weights by their name in transformers, and the vocabulary."""

    sizes: dict[str, Any]  # arguments of LlamaConfig
    weights: dict[str, NDArray[np.float32]]
    tokens: list[str]
    merges: list[str]
    special: list[str]
    context: int


def read_llama(path: Path, limits: Limits = LIMITS) -> LlamaFile:
    """The contents of a GGUF file, every weight as binary32.

    Exactness: exact up to dequantization, which gives the binary32 numbers that llama.cpp defines.
    """
    where = shown(path)
    with refusing(FileFormatError, f"{where}: a damaged or truncated GGUF file", "; fetch it again"):
        fields, tensors = read_gguf(path, limits)
        architecture = fields.get("general.architecture")
        if architecture != "llama":
            raise OperatorError(
                f"{where}: expected a model of the Llama family, got {shown(architecture, 40)!r}; models of other "
                "families are not read from GGUF. Load it with transformers and pass the model to hm.capture."
            )
        sizes = _sizes(fields, "output.weight" in tensors)
        _check_sizes(sizes, len(tensors), where)
        _refuse_other_variants(fields, sizes["hidden_size"] // sizes["num_attention_heads"], tensors, where)
        tokens, merges, special = _vocabulary(fields)
        weights = _weights(tensors, sizes, where)
        context = int(fields["llama.context_length"])
    return LlamaFile(sizes, weights, tokens, merges, special, context)


# --- the format -----------------------------------------------------------------------------------


def read_gguf(path: Path, limits: Limits = LIMITS) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """The values and the tensors of a GGUF file by name; tensors are read from the file when they are asked for.

    Sizes, lengths and offsets are compared with the file before anything is made of them; the package gguf only
    dequantizes.
    """
    with needing("GGUF files need gguf", "models"):
        import gguf
    where = shown(path)
    if not os.path.exists(path):
        raise FileFormatError(f"{where}: expected a GGUF file, found none")
    with open_file(path, limits) as file:
        is_empty = os.fstat(file.fileno()).st_size == 0
        data = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if data[:4] != b"GGUF":
        raise FileFormatError(f"{where}: expected a GGUF file, which begins with b'GGUF', got {data[:4]!r}")
    with refusing(FileFormatError, f"{where}: a damaged or truncated GGUF file", "; fetch it again"):
        return _parsed(gguf, data)


_STRING, _ARRAY, _BOOL = 8, 9, 7
#: The other types of values, as ``struct`` spells them.
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
#: Tensors whose numbers are stored as they are.
_PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
_MOST_AXES = 4


@dataclass(frozen=True, eq=False)
class GgufTensor:
    """A tensor where it lies in the file: (rows, ..., columns) of numbers, or of the bytes that encode them."""

    shape: tuple[int, ...]
    data: NDArray[Any]
    kind: Any
    dequantize: Callable[[Any, Any], Any]

    def numbers(self) -> NDArray[Any]:
        """The numbers as they are stored, those that are encoded as binary32."""
        if self.kind.name in _PLAIN:
            return self.data.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # callers refuse what is not finite
            try:
                return np.asarray(self.dequantize(self.data, self.kind), dtype=np.float32)
            except NotImplementedError:
                raise OperatorError(f"stored as {self.kind.name}, expected floats or an encoding of them") from None


class _Cursor:
    """Values of a GGUF file one after the other, none beyond its end."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data, self.at = data, 4

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self) -> str:
        length = self.number("<Q")
        if length > len(self.data) - self.at:
            raise ValueError(f"a text of {length:,} bytes, of which {len(self.data) - self.at:,} are there")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _BOOL:
            return self.number("<B") != 0
        if kind != _ARRAY:
            return self.number(_SCALARS[kind])
        inner, count = self.number("<I"), self.number("<Q")
        if inner == _ARRAY:
            raise ValueError("an array of arrays")
        return [self.value(inner) for _ in range(count)]  # ends with the file at the latest


def _parsed(gguf: Any, data: bytes | mmap.mmap) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    cursor = _Cursor(data)
    version, n_tensors, n_fields = cursor.number("<I"), cursor.number("<Q"), cursor.number("<Q")
    if version not in (2, 3):
        raise ValueError(f"expected version 2 or 3, little-endian, got {version}")
    fields: dict[str, Any] = {}
    for _ in range(n_fields):  # ends with the file at the latest
        name = cursor.text()
        if name in fields:
            raise ValueError(f"two values are called {shown(name, 40)}")
        fields[name] = cursor.value(cursor.number("<I"))
    entries: dict[str, tuple[tuple[int, ...], Any, int]] = {}
    for _ in range(n_tensors):
        name, n_axes = cursor.text(), cursor.number("<I")
        if name in entries or not 1 <= n_axes <= _MOST_AXES:
            raise ValueError(f"tensor {shown(name, 40)} is there twice, or has {n_axes} axes")
        shape = tuple(cursor.number("<Q") for _ in range(n_axes))[::-1]
        entries[name] = shape, gguf.GGMLQuantizationType(cursor.number("<I")), cursor.number("<Q")
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"expected an alignment to a power of two, got {shown(alignment, 40)}")
    start = -(-cursor.at // alignment) * alignment
    tensors = {
        name: _tensor(gguf, data, shape, kind, start + offset, name) for name, (shape, kind, offset) in entries.items()
    }
    if (total := sum(tensor.data.nbytes for tensor in tensors.values())) > len(data):
        raise ValueError(f"its tensors take {total:,} of {len(data):,} bytes: some of them overlap")
    return fields, tensors


def _tensor(gguf: Any, data: bytes | mmap.mmap, shape: tuple[int, ...], kind: Any, start: int, name: str) -> GgufTensor:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_bytes = prod(shape) // block * size
    if not all(shape) or shape[-1] % block or start + n_bytes > len(data):
        raise ValueError(
            f"tensor {shown(name, 40)} of shape {shape} in {kind.name} needs bytes {start:,} to {start + n_bytes:,} of "
            f"{len(data):,}, in rows of {block}"
        )
    raw = np.frombuffer(data, np.uint8, n_bytes, start)
    if kind.name in _PLAIN:
        return GgufTensor(shape, raw.view(_PLAIN[kind.name]).reshape(shape), kind, gguf.dequantize)
    return GgufTensor(shape, raw.reshape(*shape[:-1], shape[-1] // block * size), kind, gguf.dequantize)


# --- a Llama ----------------------------------------------------------------------------------------


def _vocabulary(fields: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Tokens, merges of two of them, and the tokens that stand for no text."""
    tokens, merges, kinds = (fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges", "token_type"))
    for name, values, kind in (("tokens", tokens, str), ("merges", merges, str), ("token types", kinds, int)):
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise ValueError(f"expected {name} as a list of {kind.__name__}")
    if len(set(tokens)) < len(tokens):
        raise ValueError("two tokens are the same")
    known = set(tokens)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not left or not right or left not in known or right not in known or left + right not in known:
            raise ValueError(f"the merge {shown(merge, 40)!r} is not of two tokens to a third")
    return tokens, merges, [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]


def _refuse_other_variants(fields: dict[str, Any], key_dim: int, tensors: dict[str, Any], where: str) -> None:
    """Refuses files whose rotary embedding or tokenizer is of a kind that would be computed wrongly here."""
    found = {
        "scaled rotary embeddings": "rope_freqs.weight" in tensors
        or fields.get("llama.rope.scaling.type", "none") != "none"
        or any(fields.get(f"llama.rope.{name}", 1.0) != 1.0 for name in ("scale_linear", "scaling.factor")),
        "rotary embeddings of a part of each head": fields.get("llama.rope.dimension_count", key_dim) != key_dim,
        "a tokenizer other than byte-level pairs": fields.get("tokenizer.ggml.model", "gpt2") != "gpt2",
        "a tokenizer that splits texts otherwise than SmolLM's": fields.get("tokenizer.ggml.pre", "smollm") != "smollm",
        "a tokenizer that puts a token before each text": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
    }
    for what, is_there in found.items():
        if is_there:
            raise OperatorError(
                f"{where}: has {what}, which is not read from GGUF, so its numbers would be wrong. Load the model "
                "with transformers and pass it to hm.capture."
            )


def _check_sizes(sizes: dict[str, Any], n_tensors: int, where: str) -> None:
    """Refuses sizes that no model has, before anything is made of that size."""
    whole = [size for size in sizes.values() if isinstance(size, int) and not isinstance(size, bool)]
    heads, groups = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    is_sound = (
        all(size >= 0 for size in whole)
        and min(size for name, size in sizes.items() if name in _POSITIVE) > 0
        and len(_LAYER_NAMES) * sizes["num_hidden_layers"] <= n_tensors
        and heads % groups == 0
        and sizes["hidden_size"] % (2 * heads) == 0
        and all(isfinite(sizes[name]) and sizes[name] > 0 for name in ("rms_norm_eps", "rope_theta"))
    )
    if not is_sound:
        named = ", ".join(f"{name} {value}" for name, value in sizes.items())
        raise FileFormatError(f"{where}: no Llama with {n_tensors} tensors has these sizes: {named}; fetch it again")


def _sizes(fields: dict[str, Any], has_output: bool) -> dict[str, Any]:
    heads = int(fields["llama.attention.head_count"])
    return {
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": int(fields["llama.embedding_length"]),
        "intermediate_size": int(fields["llama.feed_forward_length"]),
        "num_hidden_layers": int(fields["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields.get("llama.attention.head_count_kv", heads)),
        "max_position_embeddings": int(fields["llama.context_length"]),
        "rms_norm_eps": float(fields["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(fields.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": not has_output,
        "bos_token_id": int(fields.get("tokenizer.ggml.bos_token_id", 1)),
        "eos_token_id": int(fields.get("tokenizer.ggml.eos_token_id", 2)),
    }


def _weights(tensors: dict[str, GgufTensor], sizes: dict[str, Any], where: str) -> dict[str, Any]:
    names = dict(_NAMES)
    for layer in range(sizes["num_hidden_layers"]):
        names |= {there.format(layer): here.format(layer) for there, here in _LAYER_NAMES.items()}
    if not sizes["tie_word_embeddings"]:
        names["output.weight"] = "lm_head.weight"
    missing, unknown = names.keys() - tensors.keys(), tensors.keys() - names.keys()
    if missing or unknown:
        raise FileFormatError(
            f"{where}: expected the {len(names)} weights of a Llama, got {len(missing)} too few and {len(unknown)} "
            f"unknown ones (first: {shown(sorted([*missing, *unknown])[0], 60)})"
        )
    weights = {}
    for there, here in names.items():
        wanted = _shape(there, sizes)
        with np.errstate(over="ignore"):  # what is not finite is refused
            array = tensors[there].numbers().astype(np.float32)
        if array.shape != wanted:
            raise FileFormatError(
                f"{where}: the weights do not fit the sizes in the file: expected {there} of shape {wanted}, got "
                f"{array.shape}; fetch it again"
            )
        if not np.isfinite(array).all():
            raise FileFormatError(f"{where}: {there} holds NaN or infinite weights; it is damaged, fetch it again")
        if there.endswith("attn_q.weight"):
            array = _by_halves(array, sizes["num_attention_heads"])
        elif there.endswith("attn_k.weight"):
            array = _by_halves(array, sizes["num_key_value_heads"])
        weights[here] = np.ascontiguousarray(array)
    return weights


def _shape(name: str, sizes: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a weight that the sizes ask for."""
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    shared = width // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (sizes["vocab_size"], width),
        "output": (sizes["vocab_size"], width),
        "attn_k": (shared, width),
        "attn_v": (shared, width),
        "attn_q": (width, width),
        "attn_output": (width, width),
        "ffn_gate": (inner, width),
        "ffn_up": (inner, width),
        "ffn_down": (width, inner),
    }
    return shapes.get(name.split(".")[-2], (width,))


def _by_halves(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head from pairs (0, 1), (2, 3), ... to halves: even ones first, then odd ones."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)

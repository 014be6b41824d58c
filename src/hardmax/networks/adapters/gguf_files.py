"""GGUF files of the Llama family: weights dequantized, and the tokenizer they carry.

llama.cpp stores the rows of the query and key matrices in another order than transformers, because it
rotates neighbouring coordinates where transformers rotates halves; they are put back here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, HardmaxError, MissingExtraError, OperatorError
from hardmax.networks.adapters.packages import told

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


def read_llama(path: Path) -> LlamaFile:
    """The contents of a GGUF file, every weight as binary32.

    Exactness: exact up to dequantization, which gives the binary32 numbers that llama.cpp defines.
    """
    try:
        import gguf
    except ImportError:
        raise MissingExtraError("GGUF files need gguf: pip install 'hardmax[models]'") from None
    if not path.is_file():
        raise FileFormatError(f"{path}: expected a GGUF file, found none")
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise FileFormatError(f"{path}: expected a GGUF file, which begins with b'GGUF', got {magic!r}")
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise OperatorError(
            f"{path}: expected a model of the Llama family, got {architecture!r}; models of other families are not "
            "read from GGUF. Load it with transformers and pass the model to hm.capture."
        )
    try:
        sizes = _sizes(fields, "output.weight" in tensors)
        _check_sizes(sizes, len(tensors), path)
        _refuse_other_variants(fields, sizes["hidden_size"] // sizes["num_attention_heads"], tensors, path)
        weights = _weights(gguf, tensors, sizes, path)
        vocabulary = [fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges", "token_type")]
        special = [token for token, kind in zip(vocabulary[0], vocabulary[2], strict=True) if kind == _CONTROL]
        context = int(fields["llama.context_length"])
    except HardmaxError:
        raise
    except (KeyError, ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise _damaged(path, error) from None
    return LlamaFile(sizes, weights, vocabulary[0], vocabulary[1], special, context)


def _damaged(path: Path, error: BaseException) -> FileFormatError:
    return FileFormatError(
        f"{path}: a damaged or truncated GGUF file ({told(error)}); fetch it again"
    )


def _refuse_other_variants(fields: dict[str, Any], key_dim: int, tensors: dict[str, Any], path: Path) -> None:
    """Refuses files whose rotary embedding or tokenizer is of a kind that would be computed wrongly here."""
    found = {
        "scaled rotary embeddings": "rope_freqs.weight" in tensors
        or fields.get("llama.rope.scaling.type", "none") != "none"
        or fields.get("llama.rope.scale_linear", 1.0) != 1.0,
        "rotary embeddings of a part of each head": fields.get("llama.rope.dimension_count", key_dim) != key_dim,
        "a tokenizer other than byte-level pairs": fields.get("tokenizer.ggml.model", "gpt2") != "gpt2",
        "a tokenizer that splits texts otherwise than SmolLM's": fields.get("tokenizer.ggml.pre", "smollm") != "smollm",
        "a tokenizer that puts a token before each text": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
    }
    for what, is_there in found.items():
        if is_there:
            raise OperatorError(
                f"{path}: has {what}, which is not read from GGUF, so its numbers would be wrong. Load the model "
                "with transformers and pass it to hm.capture."
            )


def _check_sizes(sizes: dict[str, Any], n_tensors: int, path: Path) -> None:
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
        raise FileFormatError(f"{path}: no Llama with {n_tensors} tensors has these sizes: {named}; fetch it again")


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


def _weights(gguf: Any, tensors: dict[str, Any], sizes: dict[str, Any], path: Path) -> dict[str, Any]:
    names = dict(_NAMES)
    for layer in range(sizes["num_hidden_layers"]):
        names |= {there.format(layer): here.format(layer) for there, here in _LAYER_NAMES.items()}
    if not sizes["tie_word_embeddings"]:
        names["output.weight"] = "lm_head.weight"
    missing, unknown = names.keys() - tensors.keys(), tensors.keys() - names.keys()
    if missing or unknown:
        raise FileFormatError(
            f"{path}: expected the {len(names)} weights of a Llama, got {len(missing)} too few and {len(unknown)} "
            f"unknown ones (first: {sorted([*missing, *unknown])[0]})"
        )
    weights = {}
    for there, here in names.items():
        tensor = tensors[there]
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if not np.isfinite(array).all():
            raise FileFormatError(f"{path}: {there} holds NaN or infinite weights; the file is damaged, fetch it again")
        if there.endswith("attn_q.weight"):
            array = _by_halves(array, sizes["num_attention_heads"])
        elif there.endswith("attn_k.weight"):
            array = _by_halves(array, sizes["num_key_value_heads"])
        weights[here] = np.ascontiguousarray(array)
    width = sizes["hidden_size"]
    for name, rows in (
        ("model.embed_tokens.weight", sizes["vocab_size"]),
        ("model.layers.0.mlp.gate_proj.weight", sizes["intermediate_size"]),
    ):
        if weights[name].shape != (rows, width):
            raise FileFormatError(
                f"{path}: expected {name} of shape {(rows, width)}, as the sizes in the file say, got "
                f"{weights[name].shape}; fetch it again"
            )
    return weights


def _by_halves(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head from pairs (0, 1), (2, 3), ... to halves: even ones first, then odd ones."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)

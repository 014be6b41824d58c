"""The output layer in a file of weights alone: .safetensors and .gguf."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, HardmaxError, OperatorError, ParameterError
from hardmax.heads.classes.sources.head import (
    FINAL_BIAS,
    HIDES_WORDS,
    IN_TWO_PARTS,
    ClassHead,
    arrays_head,
    listed_layers,
)
from hardmax.networks.files.gguf_files import read_gguf
from hardmax.networks.files.opening import open_file, refusing, shown, text_of

#: Ends of names under which output layers are kept, best first; then of embeddings, which may serve as output too.
OUTPUT_NAMES = ("lm_head.weight", "embed_out.weight", "output_projection.weight", "classifier.out_proj.weight",
                "classifier.weight", "score.weight", "cls.predictions.decoder.weight", "decoder.weight", "head.weight",
                "fc.weight", "output.weight", "pred_layer.proj.weight", "lm_loss.weight")  # fmt: skip
TIED_NAMES = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "tok_embeddings.weight", "shared.weight",
              "token_embd.weight", "tokens_embed.weight", "embed_in.weight", "transformer.w.weight",
              "transformer.embeddings.weight", "transformer.word_embedding.weight")  # fmt: skip
_MOST_HEADER = 100_000_000
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def chosen_tensor(shapes: dict[str, Sequence[int]], layer: str | None, where: str, tied: bool = True) -> str:
    """The name of the tensor that holds the output layer, by its usual names, or as ``layer`` says.

    An embedding serves where there is no output layer, unless the model's configuration says that it is not ``tied``,
    or that the model scores no words.
    """
    tables = [name for name, shape in shapes.items() if len(shape) == 2]
    if layer is not None:
        found = [name for name in (layer, f"{layer}.weight") if name in tables]
        if not found:
            raise ParameterError(f"{where}: no matrix of the name {layer!r:.60}; there are {_listed(shapes, tables)}")
        return found[0]
    for ends in (OUTPUT_NAMES, TIED_NAMES) if tied else (OUTPUT_NAMES,):
        for end in ends:
            found = [name for name in tables if name == end or name.endswith(f".{end}")]
            found = [name for name in found if not any(part.isdigit() for part in name.split("."))]  # of inner layers
            if len(found) == 1 and ends is OUTPUT_NAMES:  # a second head of the same classes may be averaged with it
                stem, shape = f"{found[0].removesuffix('.weight')}_", shapes[found[0]]
                found += [name for name in tables if name.startswith(stem) and shapes[name] == shape]
            if len(found) == 1:
                return found[0]
            if len(found) > 1:
                raise ParameterError(
                    f"{where}: {len(found)} layers may be the output; name one with layer=: {_listed(shapes, found)}"
                )
    raise OperatorError(
        f"{where}: expected an output layer under one of its usual names (lm_head, classifier, ...), found none; name "
        f"one with layer=: {_listed(shapes, tables)}"
    )


def _listed(shapes: dict[str, Sequence[int]], names: list[str]) -> str:
    return listed_layers((name, shapes[name]) for name in names)


# --- safetensors -----------------------------------------------------------------------------------


def safetensors_head(path: Path, layer: str | None) -> ClassHead:
    """The output layer in a .safetensors file; only its own bytes are read, bfloat16 included."""
    where = path.name
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise FileFormatError(f"{where}: expected a .safetensors file, got a header of {length} bytes in {size}")
        with refusing(FileFormatError, f"{where}: a damaged header of a .safetensors file"):
            header = json.loads(file.read(length))
            entries = {
                name: (str(entry["dtype"]), [int(n) for n in entry["shape"]], [int(n) for n in entry["data_offsets"]])
                for name, entry in header.items()
                if name != "__metadata__"
            }

        def read(name: str) -> NDArray[np.float64]:
            kind, shape, offsets = entries[name]
            if kind not in _TYPES:
                raise OperatorError(f"{where}: {name} is stored as {kind}; expected one of {', '.join(_TYPES)}")
            dtype = np.dtype(_TYPES[kind])
            begin, end = offsets if len(offsets) == 2 else (0, -1)
            entries_in_file = (end - begin) // dtype.itemsize
            if (
                min([begin, *shape], default=0) < 0
                or end > size - 8 - length
                or int(np.prod(shape, dtype=object)) != (entries_in_file)
                or entries_in_file * dtype.itemsize != end - begin
            ):
                raise FileFormatError(f"{where}: {name} of shape {shape} does not fit its bytes {begin} to {end}")
            file.seek(8 + length + begin)
            values = np.frombuffer(file.read(end - begin), dtype)
            if kind == "BF16":
                values = (values.astype("<u4") << 16).view("<f4")
            return values.reshape(shape).astype(np.float64)

        config = _beside(path, "config.json")
        shapes: dict[str, Sequence[int]] = {name: shape for name, (_, shape, _) in entries.items()}
        name = chosen_tensor(shapes, layer, where, _scores_words(config))
        if layer is None and str(config.get("architectures")).startswith("['Chameleon"):
            raise OperatorError(f"{where}: {HIDES_WORDS}")
        other = f"{name.removesuffix('.weight')}.bias"
        rows, bias = read(name), read(other) if other in entries else None
        if bias is None and name.endswith(TIED_NAMES) and "cls.predictions.dense.weight" in entries:
            raise OperatorError(f"{where}: {IN_TWO_PARTS}")
        if bias is None and name.endswith((*TIED_NAMES, "decoder.weight")):
            fitting = (
                key for key, (_, shape, _) in entries.items() if key.endswith("bias") and prod(shape) == len(rows)
            )
            bias = _one_bias({key: read(key).reshape(-1) for key in fitting}, where)
        elif FINAL_BIAS in entries and prod(entries[FINAL_BIAS][1]) == len(rows):
            bias = read(FINAL_BIAS).reshape(-1) + (0.0 if bias is None else bias)
    return arrays_head(rows, bias, _known_names(path, config, len(rows)), f"{where}: layer {name!r}")


def _scores_words(config: dict[str, Any]) -> bool:
    """Whether an embedding may serve as output: not where it is untied, nor in a classifier or a model without head."""
    names = config.get("architectures")
    known = [str(name) for name in names] if isinstance(names, list) else []
    words = ("LM", "Generation", "PreTraining", "Pretraining", "MTModel", "Text", "DecoderModel")
    writes = not known or any(word in name for name in known for word in words)
    return config.get("tie_word_embeddings") is not False and writes


def _one_bias(found: dict[str, NDArray[np.float64]], where: str) -> NDArray[np.float64] | None:
    """The bias of a layer whose matrix is an embedding, kept under a name of its own (BERT and its kin); None without.

    Several that differ are refused: which of them are added to the scores is written in the model's code.
    """
    distinct = {values.tobytes(): key for key, values in found.items()}
    if len(distinct) > 1:
        raise ParameterError(
            f"{where}: expected one bias with an entry for each class, got {', '.join(sorted(distinct.values())[:4])}; "
            "load the model and pass it, or pass its weights and bias"
        )
    return found[next(iter(distinct.values()))] if distinct else None


def _beside(path: Path, name: str) -> dict[str, Any]:
    """The table in a .json file beside a file of weights; empty where there is none that can be read."""
    file = path.parent / name
    try:
        found = json.loads(text_of(file)) if file.is_file() else {}
    except (ValueError, RecursionError, HardmaxError):
        return {}
    return found if isinstance(found, dict) else {}


def _known_names(path: Path, config: dict[str, Any], n: int) -> list[str] | None:
    """Names from the configuration or tokenizer beside the weights, where they are as many as classes."""
    labels = config.get("id2label")
    if isinstance(labels, dict) and {str(i) for i in range(n)} == set(labels):
        return [str(labels[str(i)]) for i in range(n)]
    model = _beside(path, "tokenizer.json").get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not (isinstance(vocabulary, dict) and all(isinstance(number, int) for number in vocabulary.values())):
        return None
    table = {number: str(token) for token, number in vocabulary.items()}
    return [table.get(i, f"<unused {i}>") for i in range(n)] if max(table, default=n) < n else None


# --- gguf ------------------------------------------------------------------------------------------


def gguf_head(path: Path, layer: str | None) -> ClassHead:
    """The output layer in a .gguf file, dequantized, with the vocabulary that the file carries."""
    where = shown(path.name)
    fields, tensors = read_gguf(path)
    kind = str(fields.get("general.architecture", ""))
    writes = "bert" not in kind and not kind.endswith("encoder")  # an encoder's embedding is no output
    name = chosen_tensor({name: tensor.shape for name, tensor in tensors.items()}, layer, where, writes)

    def read(name: str) -> NDArray[np.float64]:
        try:
            return tensors[name].numbers().astype(np.float64)
        except OperatorError as error:
            raise OperatorError(f"{where}: {shown(name, 60)} is {error}") from None

    other = f"{name.removesuffix('.weight')}.bias"
    rows, bias = read(name), read(other) if other in tensors else None
    tokens = fields.get("tokenizer.ggml.tokens")
    is_named = isinstance(tokens, list) and len(tokens) == len(rows) and all(isinstance(one, str) for one in tokens)
    return arrays_head(rows, bias, tokens if is_named else None, f"{where}: layer {name!r}")

"""The output layer in a file of weights alone: .safetensors and .gguf."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

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
_ASSUMED = "the model's code, which is not in the file, keeps the order of the scores of this layer"
_MOST_HEADER = 100_000_000
_MOST_PARTS = 10_000  # of one model
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


def _parts(path: Path) -> tuple[list[Path], str]:
    """The files of a model of which ``path`` is one (name-00001-of-00004), and what is missing of them, in words."""
    found = re.fullmatch(r"(.+)-(\d+)-of-(\d+)(\.\w+)", path.name)
    if found is None or int(found[3]) > _MOST_PARTS:
        return [path], ""
    digits, total = len(found[2]), int(found[3])
    names = [f"{found[1]}-{k:0{digits}d}-of-{found[3]}{found[4]}" for k in range(1, total + 1)]
    files = [path.parent / name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    return [file for file in files if file.is_file()], ", ".join(missing[:3])


# --- safetensors -----------------------------------------------------------------------------------


class _Stored(NamedTuple):
    """Where a tensor lies: its file, type, shape, and the first and last of its bytes behind the header."""

    path: Path
    kind: str
    shape: list[int]
    offsets: list[int]
    start: int  # of the bytes behind the header
    size: int  # of the file

    def numbers(self, name: str) -> NDArray[np.float64]:
        where = self.path.name
        if self.kind not in _TYPES:
            raise OperatorError(f"{where}: {name} is stored as {self.kind}; expected one of {', '.join(_TYPES)}")
        dtype = np.dtype(_TYPES[self.kind])
        begin, end = self.offsets if len(self.offsets) == 2 else (0, -1)
        count = (end - begin) // dtype.itemsize
        if (
            min([begin, *self.shape], default=0) < 0
            or end > self.size - self.start
            or int(np.prod(self.shape, dtype=object)) != count
            or count * dtype.itemsize != end - begin
        ):
            raise FileFormatError(f"{where}: {name} of shape {self.shape} does not fit its bytes {begin} to {end}")
        with open_file(self.path) as file:
            file.seek(self.start + begin)
            values = np.frombuffer(file.read(end - begin), dtype)
        if self.kind == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        return values.reshape(self.shape).astype(np.float64)


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header of a .safetensors file, where the bytes behind it begin, and the size of the file."""
    where = path.name
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise FileFormatError(f"{where}: expected a .safetensors file, got a header of {length} bytes in {size}")
        with refusing(FileFormatError, f"{where}: a damaged header of a .safetensors file"):
            return dict(json.loads(file.read(length))), 8 + length, size


def is_written_here(path: Path) -> bool:
    """Whether a .safetensors file is a network that ``hm.write`` wrote."""
    metadata = _header(path)[0].get("__metadata__")
    return isinstance(metadata, dict) and "hardmax" in metadata


def _stored(path: Path) -> dict[str, _Stored]:
    """The tensors of one .safetensors file, by their names."""
    header, start, size = _header(path)
    with refusing(FileFormatError, f"{path.name}: a damaged header of a .safetensors file"):
        return {
            name: _Stored(
                path,
                str(entry["dtype"]),
                [int(n) for n in entry["shape"]],
                [int(n) for n in entry["data_offsets"]],
                start,
                size,
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }


def safetensors_head(path: Path, layer: str | None) -> ClassHead:
    """The output layer in a .safetensors file, bfloat16 included, or in those of a model of which it is one.

    Only its own bytes are read.
    """
    where = path.name
    files, missing = _parts(path)
    entries = {name: tensor for file in files for name, tensor in _stored(file).items()}
    config = _beside(path, "config.json")
    shapes: dict[str, Sequence[int]] = {name: tensor.shape for name, tensor in entries.items()}
    name = chosen_tensor(shapes, layer, where, _scores_words(config) and not missing)
    if layer is None and str(config.get("architectures")).startswith("['Chameleon"):
        raise OperatorError(f"{where}: {HIDES_WORDS}")
    other = f"{name.removesuffix('.weight')}.bias"
    rows, bias = entries[name].numbers(name), entries[other].numbers(other) if other in entries else None
    if bias is None and missing and _bias_elsewhere(path, entries, other, layer is None):
        raise FileFormatError(
            f"{where}: the bias of {name} may lie in a file that is missing, one of {missing}; put them beside it, or "
            "name a layer without bias with layer="
        )
    if bias is None and name.endswith(TIED_NAMES) and "cls.predictions.dense.weight" in entries:
        raise OperatorError(f"{where}: {IN_TWO_PARTS}")
    if bias is None and name.endswith((*TIED_NAMES, "decoder.weight")):
        fitting = [key for key, shape in shapes.items() if key.endswith("bias") and prod(shape) == len(rows)]
        bias = _one_bias({key: entries[key].numbers(key).reshape(-1) for key in fitting}, where)
    elif FINAL_BIAS in entries and prod(shapes[FINAL_BIAS]) == len(rows):
        bias = entries[FINAL_BIAS].numbers(FINAL_BIAS).reshape(-1) + (0.0 if bias is None else bias)
    found = arrays_head(rows, bias, _known_names(path, config, len(rows)), f"{entries[name].path.name}: layer {name!r}")
    return replace(found, assumed="" if layer else _ASSUMED)


def _bias_elsewhere(path: Path, entries: dict[str, _Stored], name: str, otherwise: bool) -> bool:
    """Whether the table beside the files of a model names a bias of the layer, or of all scores, that is not there.

    Without a table, ``otherwise``.
    """
    table = _beside(path, f"{path.name.rpartition('-of-')[0].rpartition('-')[0]}.safetensors.index.json")
    named = table.get("weight_map")
    biases = {name, FINAL_BIAS, "cls.predictions.bias", "lm_head.bias"} - set(entries)
    return any(bias in named for bias in biases) if isinstance(named, dict) else otherwise


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
    """The output layer in a .gguf file, or in those of a model in parts, dequantized, with its vocabulary."""
    where = shown(path.name)
    files, missing = _parts(path)
    read_files = [read_gguf(file) for file in files]
    fields = {key: value for own, _ in reversed(read_files) for key, value in own.items()}  # those of the first count
    tensors = {key: tensor for _, own in read_files for key, tensor in own.items()}
    kind = str(fields.get("general.architecture", ""))
    writes = "bert" not in kind and not kind.endswith("encoder")  # an encoder's embedding is no output
    shapes: dict[str, Sequence[int]] = {name: tensor.shape for name, tensor in tensors.items()}
    name = chosen_tensor(shapes, layer, where, writes and not missing)

    def read(name: str) -> NDArray[np.float64]:
        try:
            return tensors[name].numbers().astype(np.float64)
        except OperatorError as error:
            raise OperatorError(f"{where}: {shown(name, 60)} is {error}") from None

    other = f"{name.removesuffix('.weight')}.bias"
    rows, bias = read(name), read(other) if other in tensors else None
    tokens = fields.get("tokenizer.ggml.tokens")
    is_named = isinstance(tokens, list) and len(tokens) == len(rows) and all(isinstance(one, str) for one in tokens)
    found = arrays_head(rows, bias, tokens if is_named else None, f"{where}: layer {name!r}")
    return replace(found, assumed="" if layer else _ASSUMED)

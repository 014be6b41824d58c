"""Mutated files of every kind but ONNX: each gives a value that can be used, or a HardmaxError.

    python tests/networks/files/file_campaign.py --files 50000 --seed 0
    python tests/networks/files/file_campaign.py --only 1234 --seed 0        # one of them again, with its traceback

Seeds are small files of our own writing. They are damaged byte by byte (flips, cuts, lengths overwritten), entry by
entry (an archive's arrays and names, types, shapes, sizes in its directory) and value by value (the description's JSON,
the arrays' numbers). What loads is used: networks are evaluated and cut along a segment, complexes are counted, located
in, merged into regions and verified. No file may take more than ten seconds of the processor or two gibibytes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.cells.storage import network_hash
from hardmax.constructions.function_files import read_function
from hardmax.networks import operations as op
from hardmax.networks.files.arrays import network_from_npz, npz_bytes, safetensors_bytes
from hardmax.networks.files.inputs import checked_points, stored_inputs
from hardmax.networks.graph import GraphBuilder
from hardmax.show.report.subject import read_inputs

KINDS = ("npz", "safetensors", "cells", "inputs", "gguf")
MOST_SECONDS, MOST_BYTES = 10, 2 << 30
_PATIENCE = 60  # seconds by the clock: the machine may have other work
_CHUNK = 2500

# --- seeds ----------------------------------------------------------------------------------------


def _layered(dim: int = 2, temperature: float = 0.0) -> hm.Network:
    rng = np.random.default_rng(dim)
    head = hm.Head(rng.integers(-3, 4, (3, 2)), rng.integers(-3, 4, (3, dim)), rng.integers(-3, 4, (2, dim)), [0.5, 1])
    relu = hm.Residual(hm.Affine(rng.integers(-3, 4, (2, dim)), [1, -1]), hm.ReLU(0.25), hm.Affine(np.ones((dim, 2))))
    layers = [hm.Residual(hm.Attention([head])), relu, hm.Affine(rng.integers(-2, 3, (4, dim))), hm.Maxout(2)]
    return hm.Network(layers, dim, temperature)


def _graph(smooth: bool) -> hm.Network:
    """A convolution, pooling, masked attention over data, reductions; smooth and normalising nodes where wanted."""
    rng = np.random.default_rng(7)
    builder = GraphBuilder((1, 1, 3, 3))
    windows = np.array([[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]])
    weight = op.frozen(rng.integers(-2, 3, (1, 2, 4)))
    kernel = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    value = builder.add(op.Convolution(weight, op.frozen([1, -1]), windows, 1, (1, 1, 3, 3), (1, 2, 2, 2), **kernel), 0)
    value = builder.add(op.Relu(0.0), builder.add(op.Reshape((2, 4)), value))
    turned = builder.add(op.Transpose((1, 0)), value)
    scores = builder.add(op.Shift(op.frozen([[0, 1], [-1, 0]])), builder.add(op.MatMul(), value, turned))
    weights = builder.add(op.Hardmax(), scores)
    mixed = builder.add(op.Scale(op.frozen(2)), builder.add(op.MatMul(), weights, value))
    joined = builder.add(op.Concat(0), mixed, builder.add(op.Add(), value, mixed))
    taken = builder.add(op.MaxLast(), builder.add(op.Take(np.array([[0, 3, 5], [2, 4, 15]])), joined))
    if smooth:
        taken = builder.add(op.Pointwise("gelu"), builder.add(op.Normalize(1e-5, True), taken))
    linear = builder.add(op.Linear(op.frozen([[1, 2], [0, 1]]), op.frozen([1, 0])), taken)
    total = builder.add(op.Reduce((0,), True, 2), builder.add(op.Reshape((1, 2)), linear))
    builder.add(op.ConstantMatMul(op.frozen([[1.0], [3.0]]), True), builder.add(op.Reshape((1, 2)), total))
    return hm.Network.from_graph(builder.build(), changes=("a change",))


def _networks() -> list[hm.Network]:
    return [_layered(), _layered(3, 0.5), _graph(False), _graph(True)]


def _saved(cells: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        cells.save(Path(folder) / "c.npz")
        return (Path(folder) / "c.npz").read_bytes()


def _complexes() -> list[bytes]:
    rng = np.random.default_rng(3)
    found = [
        hm.enumerate_cells(_layered(2), hm.Segment([-1, 0], [1, 0.5])),
        hm.enumerate_cells(_layered(2), hm.Box([-1, -1], [1, 1])),
        hm.enumerate_cells(_layered(2), hm.Plane([0, 0], [[1, 0], [0, 1]])),
        hm.enumerate_cells(_layered(2), hm.Space(2)),
        hm.enumerate_cells(_layered(2), hm.Box([-1, -1], [1, 1]), exactness="exact"),
        hm.enumerate_cells(_layered(2), hm.Box([-1, -1], [1, 1]), exactness="float", max_cells=3),
    ]
    for dim in (3, 4):
        net = hm.Network([hm.Affine(rng.integers(-3, 4, (3, dim)), [1, 0, -1]), hm.ReLU()], dim)
        found += [hm.enumerate_cells(net, hm.Box([-1] * dim, [1] * dim)), hm.enumerate_cells(net, hm.Space(dim))]
    return [_saved(cells) for cells in found]


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _inputs() -> list[tuple[str, bytes]]:
    rng = np.random.default_rng(5)
    points, names = rng.normal(size=(6, 2)), np.array(["one", "two"])
    buffer = io.BytesIO()
    np.save(buffer, points.astype(np.float32))
    tables = [(".csv", b"x,y\n0,1\n2,3.5\n-1e3,4\n"), (".csv", b"\xef\xbb\xbf0,1\n1,3\n2,-1/3\n")]
    pieces = {"plus": [[1, 0], [-1, 0]], "minus": [[2, 1], [0, 0.5]]}
    points_json = {"points": [[0, 0], [1, 0], [0, 1], [1, 1]], "values": [0, 1, 2, 4]}
    simplices = {"pieces": [[1, 0], [2, -1]], "simplices": [[[0], [1]], [[1], [2]]]}
    functions = [json.dumps(content).encode() for content in (pieces, points_json, simplices)]
    return [
        (".npz", _npz(inputs=points, labels=np.array([0, 1, 0, 1, 1, 0]), tokens=names)),
        (".npz", _npz(X=points.astype(">f4"), y=np.arange(6), tokens=np.array([["a", "b"]] * 6))),
        (".npy", buffer.getvalue()),
        *tables,
        *((".json", text) for text in functions),
    ]


def _tiny_llama() -> bytes:
    """A GGUF file of two tokens' worth of everything, quantized in part."""
    import gguf

    rng = np.random.default_rng(9)
    tokens = ["<end>", *"abcdefg", "ab"]
    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder) / "t.gguf", "llama")
        for name, size in (("context_length", 8), ("embedding_length", 32), ("feed_forward_length", 32)):
            getattr(writer, f"add_{name}")(size)
        writer.add_block_count(1)
        writer.add_head_count(2)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(500.0)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(tokens)
        writer.add_token_types([3] + [1] * (len(tokens) - 1))
        writer.add_token_merges(["a b"])
        shapes = {"token_embd": (9, 32), "output_norm": (32,)}
        shapes |= {f"blk.0.{n}": (32, 32) for n in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
        shapes |= {f"blk.0.{n}": (16, 32) for n in ("attn_k", "attn_v")}
        shapes |= {f"blk.0.{n}": (32,) for n in ("attn_norm", "ffn_norm")}
        for name, shape in shapes.items():
            array = rng.normal(size=shape).astype(np.float32)
            if "ffn_" in name and len(shape) == 2:
                kind = gguf.GGMLQuantizationType.Q4_1
                writer.add_tensor(f"{name}.weight", gguf.quantize(array, kind), raw_dtype=kind)
            else:
                writer.add_tensor(f"{name}.weight", array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return (Path(folder) / "t.gguf").read_bytes()


@cache
def seeds(kind: str) -> list[tuple[str, bytes]]:
    """Files of a kind to begin with: their endings and bytes."""
    if kind == "npz":
        plain = _npz(widths=np.array([2, 2, 1]), W0=np.eye(2), b0=np.zeros(2), W1=np.ones((1, 2)), b1=np.zeros(1))
        return [(".npz", data) for data in (*map(npz_bytes, _networks()), plain)]
    if kind == "safetensors":
        return [(".safetensors", safetensors_bytes(net)) for net in _networks()]
    if kind == "cells":
        return [(".npz", data) for data in _complexes()]
    return _inputs() if kind == "inputs" else [(".gguf", _tiny_llama())]


# --- mutations ------------------------------------------------------------------------------------

_ODD_NUMBERS = (0, 1, -1, 2, 3, 7, 64, 255, 10**4, 10**9, 2**31 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 10**30, 10**400)
_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "\ud800", "\x00", "Affine", "ReLU", "Residual", "Relu", "MaxLast", "Space", "Box"),
    *(1.5, -0.0, float("nan"), float("inf"), -1e308, 5e-324, [], {}, [[]], [0], [1, 1], [-1], {"array": "a0"}),
    *({"array": "a99"}, {"is": "ReLU"}, {"is": "Relu", "slope": 0.0}, "y" * 5000, [1] * 40),
)


def _bytes_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Flips, cuts, blocks moved, and lengths overwritten."""
    changed = bytearray(data)
    size = max(1, len(changed))
    # headers and directories are where the lengths are
    places = rng.choice([size, min(size, 200), min(size, 2000)], 4)
    at = [int(rng.integers(0, place)) for place in places]
    at[3] = size - 1 - at[3] if rng.random() < 0.5 else at[3]
    match int(rng.integers(0, 7)):
        case 0:
            for place in at[: int(rng.integers(1, 5))]:
                changed[place] ^= 1 << int(rng.integers(8))
        case 1:
            del changed[at[0] :]
        case 2:
            del changed[at[0] : at[0] + int(rng.integers(1, 64))]
        case 3:
            changed[at[0] : at[0]] = changed[at[1] : at[1] + int(rng.integers(1, 64))]
        case 4:
            width = int(rng.choice([1, 2, 4, 8]))
            number = int(rng.choice(np.array(_ODD_NUMBERS[:-2], dtype=object))) % (1 << 8 * width)
            changed[at[3] : at[3] + width] = number.to_bytes(width, "little")
        case 5:
            changed[at[3] : at[3] + 16] = bytes([int(rng.choice([0, 255, 40, 91]))]) * 16
        case _:
            changed[at[0] : at[0] + 8] = rng.bytes(8)
    return bytes(changed)


def _json_changed(value: Any, rng: np.random.Generator, depth: int = 0) -> Any:
    """One part of a JSON value replaced, removed, repeated or renamed."""
    if depth > 40 or not isinstance(value, dict | list) or not value or rng.random() < 0.08:
        odd = _ODD_NUMBERS if rng.random() < 0.5 else _ODD_VALUES
        if isinstance(value, int) and rng.random() < 0.3:
            return value + int(rng.integers(-2, 3))
        return odd[int(rng.integers(len(odd)))]
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[int(rng.integers(len(keys)))]
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    choice = rng.random()
    if choice < 0.06:
        del copy[key]
    elif choice < 0.12 and isinstance(copy, list):
        copy.insert(0, copy[key])
    elif choice < 0.12:
        copy[str(rng.choice(["is", "array", "colour", "layers", "schema"]))] = copy[key]
    else:
        copy[key] = _json_changed(copy[key], rng, depth + 1)
    return copy


def _array_changed(array: Any, rng: np.random.Generator) -> Any:
    """Another type, another shape, or other numbers."""
    array = np.array(array)
    match int(rng.integers(0, 9)):
        case 0:
            kinds = ["f4", ">f8", "i4", "i8", "u1", "u8", "?", "f2", "c16", "U3", "S2", "i2", "u2"]
            with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(ValueError):
                warnings.simplefilter("ignore")
                return array.astype(str(rng.choice(kinds)))
        case 1:
            return array[: int(rng.integers(0, len(array) + 1))] if array.ndim else array[None]
        case 2:
            return [array.reshape(-1), array[None], array.reshape(-1)[:1].squeeze()][int(rng.integers(3))]
        case 3:
            return np.concatenate([array, array[-1:]]) if array.ndim else array
        case 4:
            return array.T.copy(order="F")
        case 5 if array.size and array.dtype.kind in "iuf":
            flat = array.reshape(-1).copy()
            odd = [0, 1, 2, 3, 63, 64, 2**23, 2**24, 2**25 + 1, 2**53]
            odd += [-1, -2, -5, -(2**40)] if array.dtype.kind != "u" else []
            odd += [np.nan, np.inf, -np.inf, 1e308, 5e-324, 0.1] if array.dtype.kind == "f" else []
            with np.errstate(all="ignore"):
                value = np.array(odd[int(rng.integers(len(odd)))]).astype(array.dtype)
            flat[int(rng.integers(flat.size))] = value
            return flat.reshape(array.shape)
        case 6 if array.size:
            return rng.permutation(array.reshape(-1)).reshape(array.shape)
        case 7:
            return np.array([{"a": 1}], dtype=object) if rng.random() < 0.3 else np.zeros(3, dtype="i4,f8")
        case _:
            return np.zeros(int(rng.integers(0, 9)), dtype=array.dtype) if array.dtype.kind in "iuf" else array
    return array


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def _entry_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """An entry that is no array, or whose header lies about it."""
    match int(rng.integers(0, 6)):
        case 0:
            return rng.bytes(int(rng.integers(0, 200)))
        case 1:
            return data[: int(rng.integers(0, len(data) + 1))]
        case 2:
            return data + b"\x00" * int(rng.integers(1, 99))
        case 3:
            shapes = [b"(10000000000,)", b"(-1,)", b"(2, 3)", b"()", b"(1e9,)", b"(" + b"1," * 60 + b")", b"((((((((1,"]
            head, _, tail = data.partition(b"(")
            return head + shapes[int(rng.integers(len(shapes)))] + tail.partition(b")")[2]
        case 4:
            kinds = [b"|O", b"<c16", b"<f16", b"<M8[s]", b"|V8", b"<U0", b">f8", b"<i8", b"|b1", b"<f2", b"<U2", b"\\d"]
            head, _, tail = data.partition(b"'descr': '")
            return head + b"'descr': '" + kinds[int(rng.integers(len(kinds)))] + b"'" + tail.partition(b"'")[2]
        case _:
            return _bytes_changed(data, rng)


def _zip_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """An archive with an entry, a name, a method or a stated size changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    at = int(rng.integers(len(entries)))
    name, content = entries[at]
    method = zipfile.ZIP_STORED
    sort = rng.random()
    if sort < 0.35:
        at = next((k for k, (name, _) in enumerate(entries) if name == "hardmax.npy"), at)
        name, content = entries[at]
        entries[at] = (name, _description_changed(name, content, rng))
    elif sort < 0.65:
        array = np.load(io.BytesIO(content), allow_pickle=False)
        entries[at] = (name, _npy(_array_changed(array, rng)))
    elif sort < 0.75:
        entries[at] = (name, _entry_changed(content, rng))
    elif sort < 0.8:
        del entries[at]
    elif sort < 0.85:
        odd = ["x", "x.npy", "../x.npy", "hardmax.npy", "W0.npy", "labels.npy", "\x00.npy", "y" * 3000 + ".npy", "a/"]
        entries[at] = (odd[int(rng.integers(len(odd)))], content)
    elif sort < 0.9:
        method = int(rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    elif sort < 0.93:
        entries.append(entries[int(rng.integers(len(entries)))])
    packed = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(packed, "w", method) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    result = bytearray(packed.getvalue())
    if sort >= 0.93:  # sizes in the directory at the end
        start = result.rfind(b"PK\x01\x02")
        field = start + int(rng.choice([10, 16, 20, 24, 28, 42]))
        result[field : field + 4] = int(rng.choice([0, 1, 10**6, 2**31, 2**32 - 1])).to_bytes(4, "little")
    return bytes(result)


def _description_changed(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if name != "hardmax.npy":
        return _npy(_array_changed(array, rng))
    structure = json.loads(array.tobytes())
    for _ in range(int(rng.integers(1, 3))):
        structure = _json_changed(structure, rng)
    text = json.dumps(structure).encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        text = b"[" * 100_000
    return _npy(np.frombuffer(text, dtype=np.uint8))


def _cells_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """The network inside changed, with its hash made right again where the change can be read."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    inner = np.load(io.BytesIO(entries["network.npy"]), allow_pickle=False).tobytes()
    inner = _zip_changed(inner, rng)
    entries["network.npy"] = _npy(np.frombuffer(inner, dtype=np.uint8))
    with contextlib.suppress(hm.HardmaxError):
        header = json.loads(np.load(io.BytesIO(entries["hardmax.npy"]), allow_pickle=False).tobytes())
        header["input_hash"] = network_hash(network_from_npz(inner, "inner"))
        entries["hardmax.npy"] = _npy(np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _values_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """A few numbers of a complex put in the place of others, or altered a little: all of them still make sense."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    names = [name for name in entries if name not in ("hardmax.npy", "network.npy")]
    for name in rng.choice(names, int(rng.integers(1, 4))):
        array = np.load(io.BytesIO(entries[name]), allow_pickle=False)
        flat = array.reshape(-1).copy()
        for _ in range(int(rng.integers(1, 6)) if flat.size else 0):
            at, other = rng.integers(0, flat.size, 2)
            flat[at] = flat[other]
            if array.dtype.kind == "f" and rng.random() < 0.5:
                with np.errstate(all="ignore"):
                    flat[at] *= rng.choice([0.0, -1.0, 1.0 + 2**-52, 2.0, 1e-300, 1e300, 5e-324])
            elif array.dtype.kind in "iu" and rng.random() < 0.5:
                bit = int(rng.choice([0, 1, 2, 3, 24, 25, 26])) % (8 * array.dtype.itemsize)
                flat[at] ^= array.dtype.type(1 << bit)
        entries[name] = _npy(flat.reshape(array.shape))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _safetensors_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """The header's JSON, or the description within it, changed and its length made right again."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    if rng.random() < 0.7:
        structure = json.loads(header["__metadata__"]["hardmax"])
        for _ in range(int(rng.integers(1, 3))):
            structure = _json_changed(structure, rng)
        header["__metadata__"]["hardmax"] = json.dumps(structure)
    else:
        header = _json_changed(header, rng)
    if rng.random() < 0.2:
        body = _bytes_changed(body, rng)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + body


def _text_changed(data: bytes, rng: np.random.Generator) -> bytes:
    odd = [b"1e999999999", b"nan", b"inf", b"-", b'"', b"\x00", b"\xff", b"9" * 140_000, b"1/0", b"1e-99999"]
    odd += [b"[" * 20_000, b"1" * 5000, b"null", b"{}", b"[]", b'"1e99999999"', b"\xed\xa0\x80", b"1_0", "٣".encode()]
    odd += [b"\n", b","]
    place = int(rng.integers(0, len(data) + 1))
    if rng.random() < 0.3 and data[:1] == b"{":
        return json.dumps(_json_changed(json.loads(data), rng)).encode("utf-8", "surrogatepass")
    if rng.random() < 0.7:
        return data[:place] + odd[int(rng.integers(len(odd)))] + data[place + int(rng.integers(0, 4)) :]
    return _bytes_changed(data, rng)


def _gguf_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Lengths, counts, types and offsets of the header overwritten."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, 1800)) // 4 * 4 if rng.random() < 0.5 else int(rng.integers(0, 1800))
        number = int(rng.choice(np.array(_ODD_NUMBERS[:-2], dtype=object))) % (1 << 64)
        width = int(rng.choice([1, 4, 8]))
        changed[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


def mutated(kind: str, rng: np.random.Generator) -> tuple[str, bytes]:
    """A damaged file of a kind: its ending and bytes."""
    found = seeds(kind)
    ending, data = found[int(rng.integers(len(found)))]
    by_bytes = rng.random() < 0.3
    if by_bytes:
        return ending, _bytes_changed(data, rng)
    if kind == "cells":
        changed = (_values_changed, _values_changed, _cells_changed, _zip_changed)[int(rng.integers(4))]
        return ending, changed(data, rng)
    if ending == ".npz":
        return ending, _zip_changed(data, rng)
    if ending == ".safetensors":
        return ending, _safetensors_changed(data, rng)
    if ending == ".gguf":
        return ending, _gguf_changed(data, rng)
    return ending, _entry_changed(data, rng) if ending == ".npy" else _text_changed(data, rng)


# --- use ------------------------------------------------------------------------------------------


def _use_network(net: hm.Network) -> None:
    if int(np.prod(net.input_shape)) > 1000 or sum(int(np.prod(n.shape)) for n in net.graph.nodes) > 10_000:
        return
    points = np.random.default_rng(0).normal(size=(2, *net.input_shape))
    for question in (lambda: net(points), lambda: net.labels(points), lambda: net(points.astype(np.float32))):
        with contextlib.suppress(hm.HardmaxError):
            question()
    hard = hm.skeleton(net)
    hm.enumerate_cells(hard, hm.Segment(*points), max_cells=50)


def _use_cells(cells: Any) -> None:
    questions = [
        lambda: cells.n_maps,
        lambda: cells.n_regions,
        lambda: cells.interior_points,
        lambda: cells.volumes,
        lambda: cells.locate(np.zeros((1, cells.dim))),
        lambda: cells.locate(cells.interior_points[:3]),
        lambda: [cells.vertices(k) for k in range(cells.n_cells)],
        lambda: [cells.rays(k) for k in range(cells.n_cells)],
        lambda: hm.verify(cells),
    ]
    for question in questions:
        with contextlib.suppress(hm.HardmaxError), np.errstate(all="ignore"):
            question()


def use(kind: str, path: Path) -> str:
    """What comes of a file: 'used', or the name of the error that refuses it. Anything else is raised."""
    try:
        if kind in ("npz", "safetensors"):
            _use_network(hm.read(path))
        elif kind == "cells":
            _use_cells(hm.load_cells(path))
        elif kind == "gguf":
            from hardmax.heads.capture.smollm2_model import _tokenizer
            from hardmax.networks.files.gguf_files import read_llama

            _tokenizer(read_llama(path)).encode("abc")
        elif path.suffix == ".json":
            read_function(path)
        else:
            if path.suffix == ".csv":
                with contextlib.suppress(hm.HardmaxError):
                    read_function(path)
            checked_points(stored_inputs(str(path), "inputs")[0], (2,), "inputs")
            read_inputs(_layered(), path, None, None)
    except hm.HardmaxError as error:
        if "\n" in str(error) or len(str(error)) > 2000:
            raise AssertionError(f"a message of {len(str(error))} characters: {str(error)[:300]!r}") from error
        return type(error).__name__
    return "used"


def command(kind: str, path: Path) -> int:
    """The exit code for the same file on the command line: done, stopped early, or 2 with one line."""
    from hardmax.cli import main

    if path.suffix == ".json":
        words = ["compile", str(path), "-o", str(path.with_name("out.npz")), "--force"]
    elif kind == "inputs":
        words = ["count", "builtin:demo", "--inputs", str(path), "--segment", "0", "1"]
    else:
        words = ["count", str(path), "--segment", "0,0", "1,1", "--max-cells", "20"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    said = err.getvalue()
    if code not in (0, 2, 3) or (code == 2) != (said.startswith("hardmax: ") and said.count("\n") == 1):
        raise AssertionError(f"exit code {code}, and it said {said[:300]!r}")
    return code


def _tried(index: int, seed: int, folder: Path) -> str:
    kind = KINDS[index % len(KINDS)]
    rng = np.random.default_rng([seed, index])
    ending, data = mutated(kind, rng)
    path = folder / f"file{ending}"
    path.write_bytes(data)
    found = use(kind, path)
    if index % 20 < len(KINDS) and kind != "gguf":
        command(kind, path)
    return found


# --- the campaign ---------------------------------------------------------------------------------


class _Late(BaseException):
    """More time than a file may take."""


def _late(*_: Any) -> None:
    raise _Late


def _work(first: int, last: int, seed: int) -> int:
    """Try some files, limited in time and memory; a line of JSON for each failure and one for the sum."""
    warnings.simplefilter("error")
    for kind in KINDS:
        seeds(kind)
    _use_network(_layered())  # compiles what is not compiled yet
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        for _, data in seeds("cells"):
            (Path(folder) / "c.npz").write_bytes(data)
            use("cells", Path(folder) / "c.npz")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, most))
    signal.signal(signal.SIGALRM, _late)
    tally: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for index in range(first, last):
            print(f"at {index}", flush=True)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
            try:
                tally[f"{KINDS[index % len(KINDS)]} {_tried(index, seed, Path(folder))}"] += 1
            except BaseException as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                where = traceback.extract_tb(error.__traceback__)[-1]
                line = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
                print(json.dumps({"failed": index, "error": line[:300]}), flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            slowest = max(slowest, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"tally": tally, "slowest": slowest, "peak": peak}), flush=True)
    return 0


def _campaign(n_files: int, seed: int) -> int:
    tally: Counter[str] = Counter()
    failures: list[str] = []
    slowest, peak = 0.0, 0
    for first in range(0, n_files, _CHUNK):
        last = min(n_files, first + _CHUNK)
        words = [sys.executable, __file__, "--work", str(first), str(last), "--seed", str(seed)]
        limit = 600 + _PATIENCE * (last - first)
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
        lines = done.stdout.splitlines()
        for line in lines:
            if line.startswith("{"):
                facts = json.loads(line)
                if "failed" in facts:
                    failures.append(f"{facts['failed']} ({KINDS[facts['failed'] % len(KINDS)]}): {facts['error']}")
                    print(failures[-1], flush=True)
                else:
                    tally.update(facts["tally"])
                    slowest, peak = max(slowest, facts["slowest"]), max(peak, facts["peak"])
        if done.returncode or not lines or "tally" not in lines[-1]:
            failures.append(f"a worker ended with {done.returncode} {lines[-1:]}: {done.stderr[-300:]}")
        print(f"{last:,} files, {len(failures)} failures, slowest {slowest:.1f} s, peak {peak >> 20} MiB", flush=True)
    for name, count in sorted(tally.items()):
        print(f"  {name}: {count:,}")
    ok = not failures and slowest <= MOST_SECONDS and peak <= MOST_BYTES
    print(f"{sum(tally.values()):,} of {n_files:,} files gave a value or a HardmaxError: {'ok' if ok else 'FAILED'}")
    return 0 if ok else 1


def main() -> int:
    """Run a campaign, a part of one, or one file of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--work", type=int, nargs=2)
    given = parser.parse_args()
    if given.work is not None:
        return _work(*given.work, given.seed)
    if given.only is None:
        return _campaign(given.files, given.seed)
    warnings.simplefilter("error")
    folder = Path(tempfile.mkdtemp())
    print(f"{folder}: {KINDS[given.only % len(KINDS)]}: {_tried(given.only, given.seed, folder)}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    sys.exit(main())

"""Where heads come from: arrays, files of models or of weights, torch modules; one function tells them apart."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardmax.errors import FileFormatError, ParameterError, PickleError
from hardmax.heads.classes.sources.head import ClassHead, arrays_head, class_names
from hardmax.heads.classes.sources.network_layers import network_head
from hardmax.heads.classes.sources.torch_layers import torch_head
from hardmax.heads.classes.sources.weight_files import gguf_head, is_written_here, safetensors_head
from hardmax.networks.files.formats import read
from hardmax.networks.network import Network

__all__ = ["ClassHead", "arrays_head", "read_head"]

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")


def read_head(source: Any, bias: Any, layer: str | None, names: Any) -> ClassHead:
    """The rows, biases and names of the classes in ``source``.

    Exactness: exact; stored numbers are taken as the rationals they are (quantized ones as their format defines them).

    Raises
    ------
    ParameterError
        A source of no known kind, or several layers that may be meant; the message lists them.
    FileFormatError, OperatorError
        A file that is damaged or of another kind, or that has no linear output layer.
    """
    is_file = isinstance(source, str | os.PathLike)
    if is_file or isinstance(source, Network) or hasattr(source, "named_modules"):
        if bias is not None:
            raise ParameterError("bias is for arrays of weights; a file or model has its own. Leave it out")
        if is_file:
            head = _file_head(Path(source), layer)
        else:
            head = (network_head if isinstance(source, Network) else torch_head)(source, layer)
        return _named(head, names, head.where)
    if layer is not None:
        raise ParameterError(
            f"layer={layer!r} names a layer of a file or model, but the source is an array; leave it out"
        )
    return _named(arrays_head(source, bias, None), names, "the weights")


def _named(head: ClassHead, names: Any, where: str) -> ClassHead:
    given = class_names(names, len(head.weights), where)
    return head if given is None else replace(head, names=given)


def _file_head(path: Path, layer: str | None) -> ClassHead:
    from hardmax.heads.classes.sources.onnx_layers import onnx_head

    ending = path.suffix.lower()
    if ending in _PICKLES:
        raise PickleError(
            f"{path}: a {ending} file has to be unpickled, which runs whatever code it holds. Load it in torch with "
            "weights_only=True and pass the module, or export it to ONNX or safetensors"
        )
    readers = {".onnx": onnx_head, ".npz": _written_head, ".safetensors": safetensors_head, ".gguf": gguf_head}
    if ending not in readers:
        raise FileFormatError(f"{path}: expected a file ending in {', '.join(readers)}, got {ending or 'no ending'!r}")
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file; expected a model in {', '.join(readers)}")
    is_ours = ending == ".safetensors" and is_written_here(path)
    return (_written_head if is_ours else readers[ending])(path, layer)


def _written_head(path: Path, layer: str | None) -> ClassHead:
    """The output layer of a network in a file that ``hm.write`` wrote."""
    return network_head(read(path), layer, path.name)

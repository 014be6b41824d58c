"""A language model with its tokenizer: texts go in, captures come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hardmax.errors import EmptyError, ParameterError
from hardmax.heads.capture.calls import heads_of_calls
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.hugging_face import attention_calls, check_length


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

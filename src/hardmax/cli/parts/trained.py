"""Trained models by name, ``model:minilm``, and the texts that commands run them on."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.sources import MODEL, SCEPTR
from hardmax.errors import EmptyError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from hardmax.heads.capture.captured import Capture

_MOST_TEXTS = 1000

TextsOption = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="FILE",
        help="For model:minilm and model:smollm2: one text a line, UTF-8. For model:sceptr: one CDR3 a line, or a .csv "
        "with some of the columns TRAV, CDR3A, TRBV, CDR3B.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class TrainedModel:
    """A trained model of ``hm.models`` and the texts, or receptors, to run it on."""

    name: str
    model: Any
    texts: list[Any]
    file: Path
    lines: list[int]  # where each text stands in its file
    n_tokens: list[int]  # of each text; empty for receptors, which are short

    def check_page(self) -> None:
        """Refuse what is too large for a page: more texts or a longer text than it would look at."""
        from hardmax.show.document import MOST_CAPTURES, MOST_SCORES

        if len(self.texts) > MOST_CAPTURES:
            raise ParameterError(
                f"--texts {self.file}: a page looks at {MOST_CAPTURES} texts at most, got {len(self.texts):,}"
            )
        if self.n_tokens:
            config = self.model.model.config
            most = isqrt(MOST_SCORES // (config.num_hidden_layers * config.num_attention_heads))
            longest = max(self.n_tokens)
            line = self.lines[self.n_tokens.index(longest)]
            if longest > most:
                raise ParameterError(
                    f"--texts {self.file}: line {line} has {longest:,} tokens; a page about {self.name} looks at texts "
                    f"of {most:,} at most, shorten or split it"
                )

    def capture(self, say: Callable[[str], None]) -> tuple[Capture, ...]:
        """What every head sees on each text."""
        captures: list[Capture] = []
        for position, text in enumerate(self.texts):
            say(f"running {self.name} on text {position + 1} of {len(self.texts)}")
            captures.extend(self.model.capture([text]))
        return tuple(captures)


def is_trained(source: str | None) -> bool:
    """Whether a model is named so that it runs on texts.

    Examples
    --------
    >>> is_trained("model:minilm"), is_trained("minilm.onnx"), is_trained(None)
    (True, False, False)
    """
    return source is not None and source.startswith(MODEL)


def read_trained(source: str, texts: Path | None, refused: dict[str, Any], say: Callable[[str], None]) -> TrainedModel:
    """The model and its texts, both checked.

    Parameters
    ----------
    refused
        Options of networks in files, by name, with what was given for them: none applies here.
    say
        Called with what is being done.
    """
    for option, given in refused.items():
        if given is not None:
            raise ParameterError(
                f"{option} belongs to networks in files, and {source} is run as it is, on texts; leave {option} out"
            )
    if texts is None:
        raise ParameterError(f"{source} is run on texts: expected --texts FILE with one text a line")
    variant = source[len(MODEL) :]
    loader = _loader(variant)  # an unknown name is refused before anything is read
    is_receptors = variant.split(":")[0] == SCEPTR
    is_table = is_receptors and texts.suffix.lower() == ".csv"
    given = _receptors(texts) if is_table else _lines(texts)
    say(f"loading {source}")
    model = loader()
    n_tokens = [] if is_receptors else _lengths(model, given, texts)
    return TrainedModel(source, model, [text for _, text in given], texts, [line for line, _ in given], n_tokens)


def refuse_texts(source: str, texts: Path | None) -> None:
    """Refuse --texts for a model that takes arrays."""
    if texts is not None:
        raise ParameterError(
            f"--texts {texts} is for models that read text, such as {MODEL}minilm; {source} takes numbers: expected "
            "--inputs FILE"
        )


def _loader(variant: str) -> Callable[[], Any]:
    from hardmax.heads.capture import models

    if variant == "minilm":
        return models.minilm
    if variant == "smollm2":
        return models.smollm2
    name, _, kind = variant.partition(":")
    if name == SCEPTR:
        if kind and kind not in models.SCEPTR_VARIANTS:
            known = ", ".join(models.SCEPTR_VARIANTS)
            raise ParameterError(
                f"no variant of SCEPTR is called {kind!r}; expected {MODEL}{SCEPTR}:NAME with one of {known}"
            )
        return lambda: models.sceptr(kind or "default")
    raise ParameterError(
        f"no trained model is called {variant!r}; expected {MODEL}minilm, {MODEL}smollm2, {MODEL}{SCEPTR} or "
        f"{MODEL}{SCEPTR}:VARIANT"
    )


def _text(file: Path) -> str:
    from hardmax.networks.files.opening import shown, text_of

    return text_of(file, where=f"--texts {shown(file)}")


def _lines(file: Path) -> list[tuple[int, Any]]:
    """Every line that is not blank, with its number."""
    lines = _text(file).split("\n")
    return _some([(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()], file)


def _receptors(file: Path) -> list[tuple[int, Any]]:
    """Every row of a table of receptors, with the number of its line; empty entries are left out."""
    reader = csv.DictReader(_text(file).splitlines(), restkey="")  # entries beyond the names have none
    try:
        rows = [(reader.line_num, {k: v for k, v in row.items() if k and v and v.strip()}) for row in reader]
    except csv.Error as error:  # an entry of more than 131,072 characters
        line = f"--texts {file}: line {reader.line_num}"
        raise FileFormatError(f"{line}: expected a table of receptors ({error})") from None
    return _some([(number, row) for number, row in rows if row], file)


def _some(found: list[tuple[int, Any]], file: Path) -> list[tuple[int, Any]]:
    if not found:
        raise EmptyError(f"--texts {file}: expected at least one text, got none")
    if len(found) > _MOST_TEXTS:
        raise ParameterError(f"--texts {file}: expected at most {_MOST_TEXTS:,} texts, got {len(found):,}; take fewer")
    return found


def _lengths(model: Any, texts: list[tuple[int, Any]], file: Path) -> list[int]:
    """The tokens of each text; one that is longer than the model's context is refused by its line."""
    lengths = [len(model.tokenizer.encode(text).ids) for _, text in texts]
    for (line, _), n_tokens in zip(texts, lengths, strict=True):
        if n_tokens > model.context:
            raise ParameterError(
                f"--texts {file}: line {line} has {n_tokens:,} tokens, {model.name} takes {model.context:,} at most; "
                "shorten it, or split it"
            )
    return lengths

"""SCEPTR, encoders of T-cell receptors with ReLU and small heads, from the package sceptr.

In the variant "tiny" a head has d_k = 2: its query space is a plane and can be drawn.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardmax.errors import EmptyError, FileFormatError, ParameterError, needing
from hardmax.exactness import check_word
from hardmax.heads.capture.calls import AttentionCall, captures_of
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.packages import package_folder
from hardmax.heads.capture.torch_encoders import noting_torch
from hardmax.networks.files.opening import reason

_REINSTALL = "pip install --force-reinstall sceptr brings the published files back"
_LARGE_SCORES = ("left_aligned",)  # variants that single precision does not serve
_PARTS = ("TRAV", "CDR3A", "TRBV", "CDR3B")

#: Variant, as the package names it -> the folder of its weights.
SCEPTR_VARIANTS = {
    "default": "SCEPTR",
    "mlm_only": "SCEPTR_MLM_only",
    "left_aligned": "SCEPTR_left_aligned",
    "cdr3_only": "SCEPTR_CDR3_only",
    "cdr3_only_mlm_only": "SCEPTR_CDR3_only_MLM_only",
    "large": "SCEPTR_large",
    "small": "SCEPTR_small",
    "tiny": "SCEPTR_tiny",
    "blosum": "SCEPTR_BLOSUM",
    "average_pooling": "SCEPTR_average_pooling",
    "shuffled_data": "SCEPTR_shuffled_data",
    "synthetic_data": "SCEPTR_synthetic_data",
    "dropout_noise_only": "SCEPTR_dropout_noise_only",
    "finetuned": "SCEPTR_finetuned",
    "a_sceptr": "A_SCEPTR",
    "b_sceptr": "B_SCEPTR",
}


@dataclass(frozen=True, eq=False, repr=False)
class ReceptorModel:
    """A SCEPTR variant: receptors go in, captures come out. ``bert`` and ``tokeniser`` are the package's."""

    name: str
    variant: str
    bert: Any
    tokeniser: Any

    def __repr__(self) -> str:
        return f"ReceptorModel({self.name}, width {self.bert.d_model})"

    def capture(self, receptors: Any) -> tuple[Capture, ...]:
        """What every attention head sees on each receptor, all layers run in evaluation mode.

        Parameters
        ----------
        receptors
            A mapping with some of TRAV, CDR3A, TRBV and CDR3B, a list of such mappings, or a data frame with
            these columns. A text is the CDR3 of the beta chain (of the alpha chain for "a_sceptr").

        Exactness: queries, keys and values are what the model computed in its own number type; scores and
        weights are recomputed from them in binary64.
        """
        captures: list[Capture] = []
        for position, receptor in enumerate(records_of(receptors, self.variant)):
            tokens = self.tokens_of(receptor, position)
            names = self._names(tokens)
            stack = self.bert._self_attention_stack
            calls: list[AttentionCall] = []
            with noting_torch(stack, calls.append):
                stack(*self._embedded(tokens))
            captures.extend(captures_of(self.name, calls, lambda *_, names=names: names))
        return tuple(captures)

    def tokens_of(self, receptor: Mapping[str, Any], position: int = 0) -> Any:
        """The receptor as the model's tokeniser writes it: a tensor (tokens, 4) of integers."""
        from libtcrlm import schema

        try:
            tcr = schema.make_tcr_from_components(*(receptor.get(column) for column in _PARTS))
            return self.tokeniser.tokenise(tcr)
        except Exception as error:  # the package raises a different one for each column
            chain = getattr(error, "chain", None)
            reason = str(error) if chain is None else f"{type(error).__name__} in chain {chain}"
            raise ParameterError(
                f"receptor {position}: {self.name} cannot read {dict(receptor)} ({reason}); expected standard gene "
                "symbols such as TRBV2*01 and CDR3 sequences of amino acids such as CASSEFQGDNEQFF"
            ) from None

    def representation(self, tokens: Any) -> Any:
        """What the package makes of the tokens of one receptor: a tensor (1, width) of length 1."""
        pooled = self.bert._vector_representation_delegate
        return pooled.get_vector_representations_of(*self._embedded(tokens))

    def _embedded(self, tokens: Any) -> tuple[Any, Any]:
        """What enters the first layer, (1, tokens, width) in the model's number type, and its padding."""
        batch = tokens[None]
        kind = next(self.bert._self_attention_stack.parameters()).dtype
        return self.bert._embed(batch).to(kind), self.bert._get_padding_mask(batch)

    def _names(self, tokens: Any) -> tuple[str, ...]:
        """[CLS], then for each residue its loop, letter and place: "CDR3B C1"."""
        from libtcrlm.tokeniser import token_indices

        loops = {
            "CdrTokeniser": token_indices.CdrCompartmentIndex,
            "Cdr3Tokeniser": token_indices.Cdr3CompartmentIndex,
        }.get(type(self.tokeniser).__name__, token_indices.SingleChainCdrCompartmentIndex)
        letters = self.tokeniser.token_vocabulary_index
        return tuple(
            f"{loops(row[3]).name} {letters(row[0]).name}{row[1]}" if row[1] else f"[{letters(row[0]).name}]"
            for row in tokens.tolist()
        )


def sceptr(
    variant: str = "default", folder: str | os.PathLike[str] | None = None, *, precision: str | None = None
) -> ReceptorModel:
    """A variant of SCEPTR (3 layers of 8 heads, 4 in "large") with its tokeniser.

    ``folder`` holds config.json and state_dict.pt; without it those of the installed package are read. The
    weights are read with ``weights_only``, so nothing in them is unpickled but tensors.

    ``precision`` is the number type it computes in, "single" or "double". Unless given it is single, as
    published, but for "left_aligned": there scores reach 9600 after division by the temperature, and
    in single precision the model's own probabilities are wrong by 1e-4.

    Exactness: exact; the weights are the file's binary32 numbers in either precision.

    Raises
    ------
    MissingExtraError
        torch or sceptr is not installed.
    ParameterError
        No variant has this name.
    FileFormatError
        A file is missing, truncated, or holds more than tensors.

    Examples
    --------
    >>> sceptr("huge")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: no variant of SCEPTR is called 'huge'; expected one of default, mlm_only, ...
    """
    if not isinstance(variant, str) or variant not in SCEPTR_VARIANTS:
        known = ", ".join(SCEPTR_VARIANTS)
        raise ParameterError(f"no variant of SCEPTR is called {variant!r}; expected one of {known}")
    if precision is not None:
        check_word("precision", precision, ("single", "double"))
    with needing("SCEPTR needs torch and sceptr", "torch,models"):
        import torch
        from libtcrlm.config_reader import ConfigReader
    place = package_folder(folder, "sceptr", f"_model_saves/{SCEPTR_VARIANTS[variant]}")
    for name in ("config.json", "state_dict.pt"):
        if not os.path.isfile(place / name):  # a pipe would be waited for
            raise FileFormatError(f"{place / name}: expected a file of SCEPTR, found none; {_REINSTALL}")
    try:
        reader = ConfigReader(json.loads((place / "config.json").read_text()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a foreign pickle is warned of before it is refused
            weights = torch.load(place / "state_dict.pt", map_location="cpu", weights_only=True)
        bert = reader.get_bert()
        bert.load_state_dict(weights)
        if precision == "double" or (precision is None and variant in _LARGE_SCORES):
            bert.double()
        return ReceptorModel(reader.get_model_name(), variant, bert.eval(), reader.get_tokeniser())
    except pickle.UnpicklingError:
        raise FileFormatError(
            f"{place / 'state_dict.pt'}: damaged, or holds more than tensors, which are all that is ever read; "
            f"{_REINSTALL}"
        ) from None
    except (RuntimeError, ValueError, KeyError, AttributeError, TypeError, EOFError, OSError) as error:
        raise FileFormatError(f"{place}: damaged or of another model ({reason(error)}); {_REINSTALL}") from None


def records_of(receptors: Any, variant: str) -> list[dict[str, Any]]:
    """The receptors as mappings from column to text, missing entries left out."""
    if hasattr(receptors, "to_dict") and hasattr(receptors, "columns"):
        receptors = receptors.to_dict("records")
    if isinstance(receptors, str | Mapping):
        receptors = [receptors]
    if not isinstance(receptors, list | tuple):
        raise ParameterError(f"expected a receptor or a list of them, got a {type(receptors).__name__}")
    if not receptors:
        raise EmptyError("expected at least one receptor, got none")
    chain = "CDR3A" if variant == "a_sceptr" else "CDR3B"
    records = []
    for position, receptor in enumerate(receptors):
        if isinstance(receptor, str):
            receptor = {chain: receptor}
        if not isinstance(receptor, Mapping):
            raise ParameterError(f"receptor {position}: expected a mapping or a text, got a {type(receptor).__name__}")
        found = {column: receptor[column] for column in _PARTS if column in receptor}
        # an absent entry of a data frame is None or NaN, which differs from itself
        found = {column: text for column, text in found.items() if text is not None and text == text}
        if not any(isinstance(text, str) and text.strip() for text in found.values()):
            raise EmptyError(f"receptor {position}: expected some of {', '.join(_PARTS)}, got {dict(receptor)}")
        records.append(found)
    return records

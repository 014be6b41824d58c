"""Every numbered statement and every figure of the two papers, in their order."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hardmax.networks.files.opening import text_of
from hardmax.papers import (
    appendices,
    attention_geometry,
    counting,
    experiments,
    lifting,
    maxout,
    preliminaries,
    temperature,
)
from hardmax.papers.entries import Check, Claim, Decided

_SECTIONS = (preliminaries, lifting, attention_geometry, counting, temperature, experiments, appendices, maxout)
_CHECKS: dict[str, Check] = {name: check for section in _SECTIONS for name, check in section.CHECKS.items()}


def _claim(words: dict[str, Any]) -> Claim:
    """A statement's words with its check of the same name."""
    check = _CHECKS[words["name"]]
    return Claim(
        **{**words, "decided": Decided(words["decided"])},
        examine=check.examine,
        published=check.published,
        contrary=check.contrary,
        corrected=check.contrary if check.corrects else None,
    )


_WORDS = tomllib.loads(text_of(Path(__file__).with_suffix(".toml")))

ledger: tuple[Claim, ...] = tuple(map(_claim, _WORDS["statement"]))

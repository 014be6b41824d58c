"""Every numbered statement and every figure of the two papers, in their order."""

from __future__ import annotations

from dataclasses import replace

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
from hardmax.papers.entries import Claim
from hardmax.papers.quotations import QUOTED

_CLAIMS: tuple[Claim, ...] = (
    *preliminaries.CLAIMS,
    *lifting.CLAIMS,
    *attention_geometry.CLAIMS,
    *counting.CLAIMS,
    *temperature.CLAIMS,
    *experiments.CLAIMS,
    *appendices.CLAIMS,
    *maxout.CLAIMS,
)

ledger: tuple[Claim, ...] = tuple(replace(claim, quotes=QUOTED[claim.name]) for claim in _CLAIMS)

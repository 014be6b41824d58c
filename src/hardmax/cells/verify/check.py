"""The outcome of one check."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str

"""What an entry of the ledger is, and how its verdict comes about.

A claim holds an *assertion* (a number, a formula, a reading) and a function that examines any assertion of that kind
and says whether it holds, with a witness computed on the spot. The published assertion, the corrected one and one that
must be answered the other way (``contrary``) all go through the same function; no verdict is stored. The words of all
claims stand in ``statements.toml``, how each is examined in the module of its section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any, NamedTuple

from hardmax.html import block, table


class Verdict(StrEnum):
    """What became of a published statement."""

    HOLDS = "holds"
    HOLDS_WITH_CORRECTION = "holds with correction"
    FALSE = "false"
    NOT_DECIDABLE = "not decidable here"


class Decided(StrEnum):
    """What the verdict rests on. A counterexample in exact arithmetic is a proof of falsity."""

    PROVED = "proved"
    EXACT = "exact arithmetic"
    CERTIFIED = "certified"  # floats or decimals whose errors are proved too small to matter
    NUMERICAL = "numerical"
    LITERATURE = "literature"  # with the reference


@dataclass(frozen=True)
class Outcome:
    """Whether an assertion holds (None: cannot be decided from what is published), and what shows it."""

    holds: bool | None
    witness: Mapping[str, Any]


def each(cases: Iterable[tuple[str, Any, bool]]) -> Outcome:
    """The outcome of several cases, each its words, what was found and whether the assertion holds there.

    What comes behind the first case where it does not hold is not looked at.
    """
    shown: dict[str, Any] = {}
    for words, found, holds in cases:
        shown[words] = found
        if not holds:
            return Outcome(False, shown)
    return Outcome(True, shown)


class Check(NamedTuple):
    """How a statement is examined: as printed, and as something that must be answered the other way.

    ``corrects`` says that the contrary is what is true instead, not only something else.
    """

    examine: Callable[[Any], Outcome]
    published: Any
    contrary: Any
    corrects: bool = False


@dataclass(frozen=True)
class Claim:
    """One published statement.

    ``quotes`` are the paper's own words (``...`` where some are left out), ``says`` the statement in ours, read in its
    best sense; ``correction`` is what is true instead (empty where it holds as printed). ``keeps_conclusion`` marks
    corrections that add a hypothesis or a constant and leave the conclusion standing. ``reference`` names the theorem
    that a verdict rests on and that is not proved here.
    """

    name: str
    where: str
    says: str
    examine: Callable[[Any], Outcome]
    published: Any
    contrary: Any
    decided: Decided
    corrected: Any = None
    correction: str = ""
    keeps_conclusion: bool = False
    paper: str = "tropical expressivity (arXiv 2604.14727v1)"
    reference: str = ""
    quotes: str = ""

    @property
    def rests_on(self) -> str:
        """What the verdict rests on, with the reference where it is not all proved here."""
        return f"{self.decided} ({self.reference})" if self.reference else str(self.decided)


@dataclass(frozen=True)
class Finding:
    """A claim after its check."""

    claim: Claim
    verdict: Verdict
    witness: Mapping[str, Any]
    correction_holds: bool | None
    correction_witness: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def _repr_html_(self) -> str:
        claim = self.claim
        rows = [("quoted", claim.quotes), ("says", claim.says)]
        rows += [*((f"witness: {key}", value) for key, value in self.witness.items())]
        rows += [("true instead", claim.correction)] if claim.correction else []
        rows += [(f"there: {key}", value) for key, value in self.correction_witness.items()]
        return block(f"{claim.name}: {self.verdict}", table((), rows, most=60), exactness=str(claim.decided))

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain values, ready for JSON."""
        claim = self.claim
        return {
            "name": claim.name,
            "paper": claim.paper,
            "where": claim.where,
            "quotes": claim.quotes,
            "says": claim.says,
            "verdict": str(self.verdict),
            "decided": str(claim.decided),
            "reference": claim.reference,
            "witness": {key: str(value) for key, value in self.witness.items()},
            "correction": claim.correction,
            "correction_holds": self.correction_holds,
            "correction_witness": {key: str(value) for key, value in self.correction_witness.items()},
            "seconds": round(self.seconds, 3),
        }


def checked(claim: Claim) -> Finding:
    """Examine a claim as printed and as corrected.

    Examples
    --------
    >>> def is_even(number):
    ...     return Outcome(number % 2 == 0, {"number": number})
    >>> claim = Claim("1", "Lemma 1", "7 is even", is_even, 7, 8, Decided.EXACT, corrected=6, correction="6 is even")
    >>> finding = checked(claim)
    >>> str(finding.verdict), finding.witness, finding.correction_holds
    ('false', {'number': 7}, True)
    """
    start = perf_counter()
    printed = claim.examine(claim.published)
    mended = None if claim.corrected is None else claim.examine(claim.corrected)
    if printed.holds is None:
        verdict = Verdict.NOT_DECIDABLE
    elif printed.holds:
        verdict = Verdict.HOLDS
    elif claim.keeps_conclusion and mended is not None and mended.holds:
        verdict = Verdict.HOLDS_WITH_CORRECTION
    else:
        verdict = Verdict.FALSE
    return Finding(
        claim,
        verdict,
        printed.witness,
        None if mended is None else mended.holds,
        {} if mended is None else mended.witness,
        perf_counter() - start,
    )

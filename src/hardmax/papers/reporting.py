"""The ledger checked, and written as a table, as JSON or as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hardmax.errors import ParameterError
from hardmax.exactness import as_tuple
from hardmax.html import block, table
from hardmax.papers.entries import Claim, Finding, Verdict, checked


class Findings(tuple[Finding, ...]):
    """Findings in the order of the papers; a notebook shows them as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [(found.claim.name, found.verdict, found.claim.decided, found.claim.says) for found in self]
        title = ", ".join(f"{count} {verdict}" for verdict, count in tally(self).items()) or "No findings"
        return block(title, table(("claim", "verdict", "decided by", "statement"), rows, most=200))


def check(only: str | Iterable[str] | None = None, *, progress: Callable[[Claim], None] | None = None) -> Findings:
    """Check every published statement, or those asked for, from scratch.

    Parameters
    ----------
    only : a name ("V.2") or several; a name also stands for its parts ("V.2-standard") and for a whole section ("V").
    progress : called with each claim before it is checked.

    Exactness: each finding says what it rests on; witnesses are recomputed on every call.

    Examples
    --------
    >>> (finding,) = check("VI.1-hessian")
    >>> str(finding.verdict), str(finding.witness["tau |Hessian|"]), str(finding.witness["bound"])
    ('false', '8/25', '1/4')
    >>> check("IX.9")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: no claim is called 'IX.9'; expected a name such as III.3, V.2 or 'Figure 4'
    """
    findings = []
    for claim in selected(only):
        if progress is not None:
            progress(claim)
        findings.append(checked(claim))
    return Findings(findings)


def selected(only: str | Iterable[str] | None) -> tuple[Claim, ...]:
    """The claims that the names stand for, in the order of the papers."""
    from hardmax.papers.statements import ledger  # which loads all that it examines

    if only is None:
        return ledger
    names = [only] if isinstance(only, str) else as_tuple("claims.check", "names", only)
    for name in names:
        if not any(_matches(claim, name) for claim in ledger):
            raise ParameterError(f"no claim is called {name!r}; expected a name such as III.3, V.2 or 'Figure 4'")
    return tuple(claim for claim in ledger if any(_matches(claim, name) for name in names))


def _matches(claim: Claim, name: str) -> bool:
    whole, wanted = claim.name.casefold(), str(name).strip().casefold()
    return whole == wanted or (bool(wanted) and whole.startswith((wanted + ".", wanted + "-")))


def correction_word(finding: Finding) -> str:
    """How a corrected statement is introduced: it replaces what is refuted and only adds to what holds."""
    return "Instead" if finding.verdict in (Verdict.FALSE, Verdict.HOLDS_WITH_CORRECTION) else "Note"


def tally(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings there are of each verdict."""
    return dict(Counter(str(finding.verdict) for finding in findings))


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings as plain values."""
    findings = _checked_findings(findings)
    return {"schema": 1, "tally": tally(findings), "findings": [finding.as_dict() for finding in findings]}


def _checked_findings(findings: Any) -> tuple[Finding, ...]:
    given = as_tuple("claims", "findings", findings)
    strangers = [one for one in given if not isinstance(one, Finding)]
    if strangers:
        raise ParameterError(
            f"expected findings, as hm.claims.check() gives them, got a {type(strangers[0]).__name__} among them"
        )
    return given


def as_markdown(findings: Sequence[Finding]) -> str:
    """All findings as one Markdown page: a table of verdicts, then each statement with its witness."""
    findings = _checked_findings(findings)
    lines = [
        "# What is true in the papers",
        "",
        "Written by `hardmax claims --markdown`; every witness is recomputed when the page is.",
        "",
        "| claim | verdict | decided by | statement |",
        "|---|---|---|---|",
    ]
    for finding in findings:
        claim = finding.claim
        lines.append(f"| {claim.name} | {finding.verdict} | {claim.decided} | {_cell(claim.says)} |")
    for finding in findings:
        claim = finding.claim
        lines += ["", f"## {claim.name}: {finding.verdict}", "", f"{claim.where}, {claim.paper}:", ""]
        lines += [f"> {claim.quotes}", "", claim.says, ""]
        lines += [f"- {_cell(str(key))}: `{value}`" for key, value in finding.witness.items()]
        if claim.correction:
            lines += ["", f"**{correction_word(finding)}:** {claim.correction}"]
        if finding.correction_witness:
            lines += [""] + [f"- {_cell(str(key))}: `{value}`" for key, value in finding.correction_witness.items()]
        lines += ["", f"Decided: {claim.rests_on}."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

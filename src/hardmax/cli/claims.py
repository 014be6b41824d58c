"""``hardmax claims``: what is true in the papers, checked from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import ForceOption, JsonOption, picked, print_json, working, write_text
from hardmax.html import several
from hardmax.networks.files.opening import check_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hardmax.papers import Attack, Finding

EXAMPLES = """[bold]Examples[/bold]
  hardmax claims
  hardmax claims --only V.2 --only "Figure 4"
  hardmax claims --markdown claims.md --attack 10000 --seed 1

Exits with 1 where an adversary broke a true bound or a correction failed."""

_COLOURS = {"holds": "green", "holds with correction": "yellow", "false": "red", "not decidable here": "dim"}


def claims(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="A statement (V.2, 'Figure 4') or a section (VI); may be repeated."),
    ] = None,
    as_json: JsonOption = False,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write a Markdown page here.")] = None,
    coverage: Annotated[
        Path | None, typer.Option("--coverage", help="Write the page of numbered items, entries and tests here.")
    ] = None,
    attack: Annotated[
        int, typer.Option("--attack", min=0, help="Also let adversaries try the true bounds this many times.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the adversaries.")] = 0,
    force: ForceOption = False,
) -> int:
    """Check every published statement: verdict, witness, and what is true instead."""
    from hardmax.papers import as_json as plain
    from hardmax.papers import as_markdown, check

    for page in (markdown, coverage):
        check_target(page, force)
    with working("checking") as say:
        findings = check(only, progress=lambda claim: say(f"checking {claim.name}"))
        if attack:
            say("letting adversaries try the true bounds")
        attacks = _attacks(attack, seed)
    if markdown is not None:
        write_text(markdown, as_markdown(findings))
    if coverage is not None:
        from hardmax.papers.coverage import as_markdown as covered
        from hardmax.papers.statements import ledger

        write_text(coverage, covered(ledger))
    if as_json:
        facts = plain(findings)
        names = ("bound", "trials", "largest_ratio", "is_broken")
        # the worst that was tried, not the worst there is
        facts["attacks"] = [{**picked(a, *names), "exactness": "estimated"} for a in attacks]
        print_json(facts)
    else:
        _print_table(findings, attacks)
    return 1 if any(a.is_broken for a in attacks) or any(f.correction_holds is False for f in findings) else 0


def _attacks(trials: int, seed: int) -> tuple[Attack, ...]:
    if trials == 0:
        return ()
    import numpy as np

    from hardmax.papers import attack

    return attack(trials=trials, rng=np.random.default_rng(seed))


def in_words(witness: Mapping[str, Any]) -> str:
    """What a witness holds, as a person would write it down.

    Examples
    --------
    >>> in_words({"n_keys": 12345, "largest_ratio": 1.28123456, "is_dead": True, "keys": [[1.0, 2.0], [0.5, 0.0]]})
    'n keys: 12,345; largest ratio: 1.281; is dead: yes; keys: (1, 2), (0.5, 0)'
    """
    parts = []
    for key, value in witness.items():
        name = str(key).replace("_", " ")
        parts.append(f"{name}: {_in_words(value)}")
    return "; ".join(parts)


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_in_words, value))
        return inner if value and isinstance(value[0], list | tuple) else f"({inner})"
    return str(value)


def _print_table(findings: Sequence[Finding], attacks: Sequence[Attack]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from hardmax.papers.reporting import correction_word, tally

    table = Table(box=None, pad_edge=False)
    for name in ("claim", "verdict", "statement, witness, and what is true instead"):
        table.add_column(name, overflow="fold", no_wrap=name == "claim")
    for finding in findings:
        claim, verdict = finding.claim, str(finding.verdict)
        witness = in_words(finding.witness)
        text = f"{escape(claim.says)}\n[dim]{escape(witness)}[/dim]"
        if claim.correction:
            text += f"\n[italic]{correction_word(finding)}: {escape(claim.correction)}[/italic]"
        table.add_row(claim.name, f"[{_COLOURS[verdict]}]{verdict}[/]\n[dim]{claim.decided}[/dim]", text)
    console = Console(highlight=False)
    verdicts = tally(findings).items()
    counted = ", ".join(f"{n} {verdict if n == 1 else verdict.replace('holds', 'hold')}" for verdict, n in verdicts)
    console.print(f"Of {several(len(findings), 'published statement')}: {counted}.")
    console.print(table)
    for result in attacks:
        state = "BROKEN by" if result.is_broken else "unbroken, closest"
        console.print(
            f"{escape(result.bound)}: {state} {result.largest_ratio:.12g} of the bound in {result.trials} trials"
        )

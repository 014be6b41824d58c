"""The whole page before it is drawn: what is said at the top, and the sections in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardmax.cells.domains import Domain
from hardmax.errors import HardmaxError
from hardmax.exactness import Exactness
from hardmax.heads.analysis import HeadAnalyses, analyse_heads
from hardmax.heads.capture.captured import Capture
from hardmax.heads.capture.capturing import capture
from hardmax.heads.fidelity import Fidelity, Hardened, Trial
from hardmax.heads.trials import runs_of
from hardmax.html import several
from hardmax.show.report import fidelity as fidelity_part
from hardmax.show.report import heads
from hardmax.show.report.about import about_section, captures_section
from hardmax.show.report.bounds import bounds_section
from hardmax.show.report.cell_map import section as cell_part
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.cell_map.section import cells_section
from hardmax.show.report.fidelity import compared_section, error_text, fidelity_section, kept, temperature_section
from hardmax.show.report.head_pictures import named_captures
from hardmax.show.report.sections import Fact, Section, Table, as_text, legible, with_interval
from hardmax.show.report.shown_inputs import captured_inputs, inputs_section
from hardmax.show.report.stability import certified_heads, stability_section
from hardmax.show.report.subject import Subject
from hardmax.version import __version__

#: Inputs whose heads are looked at; on more, margins are pooled from these only.
MOST_CAPTURES = 100
#: Scores in all heads on all captured inputs together that a page looks at: about two minutes.
MOST_SCORES = 50_000_000
SCHEMA = 1


@dataclass(frozen=True)
class Document:
    """Everything a page shows, with its numbers ready for download."""

    title: str
    description: str
    made: str
    answer: tuple[Fact, ...]  # sentences, each with what is proved of it
    highlights: tuple[Fact, ...]
    sections: tuple[Section, ...]

    @property
    def tables(self) -> dict[str, Table]:
        """Every table by name."""
        return {table.name: table for section in self.sections for table in section.tables}

    def as_json(self) -> dict[str, Any]:
        """The whole document as plain values: what the page embeds and offers for download."""
        return {
            "schema": SCHEMA,
            "generator": f"hardmax {__version__}",
            "made": self.made,
            "model": self.title,
            "answer": [
                {"text": said.text, "exactness": said.exactness and str(said.exactness)} for said in self.answer
            ],
            "sections": [section.as_json() for section in self.sections],
            "tables": {name: table.as_json() for name, table in self.tables.items()},
            "drawing": {section.name: dict(section.data) for section in self.sections if section.data},
        }


def gather(
    subject: Subject, plane: Domain | None, made: str, told: Callable[[str], None] = lambda text: None
) -> Document:
    """Every section for one subject; ``told`` hears what is being done."""
    told("running the model and its skeleton")
    trial = None
    if not subject.not_soft:
        trial = Trial(runs_of(subject.net, subject.inputs.points), subject.inputs.labels)
    fidelity, whole = fidelity_section(subject, trial, told)
    told("looking at every head")
    captures, why = _captures(subject)
    seen = analyse_heads(captures, reach="hull") if captures else HeadAnalyses()
    if seen:
        head_section = heads.heads_section(seen, captures, len(subject.inputs), told)
    else:
        head_section = Section(heads.NAME, heads.TITLE, absent=why)
    cell_section, looked = cells_section(subject, plane, told)
    told("bounds and margins")
    certificates = certified_heads(seen)
    stability, certified = stability_section(seen, certificates)
    sections: tuple[Section, ...] = (
        inputs_section(subject),
        cell_section,
        head_section,
        fidelity,
        temperature_section(subject, trial),
        stability,
        bounds_section(looked, certificates),
        about_section(subject, made),
    )
    sections = tuple(_reproduced(section, subject) for section in sections)
    return Document(
        legible(subject.name),
        subject.description,
        made,
        tuple(_answer(subject, whole, looked, certified, stability)),
        tuple(_highlights(subject, whole, looked, certified, head_section)),
        sections,
    )


def gather_captures(
    captures: Sequence[Capture],
    name: str,
    made: str,
    told: Callable[[str], None] = lambda text: None,
    compared: Sequence[Hardened] = (),
) -> Document:
    """What can be said of captured heads without the model they come from, and what was measured of that elsewhere."""
    told("looking at every head")
    looked_at = named_captures(captures[: _n_affordable(captures)], None)
    seen = analyse_heads(looked_at, reach="hull")
    head_section = heads.heads_section(seen, looked_at, len(captures), told)
    told("bounds and margins")
    certificates = certified_heads(seen)
    stability, certified = stability_section(seen, certificates)
    why = "Only what the heads saw was given, not the model they belong to."
    if compared:
        why = "This page is about the attention of the model; as a whole it was not looked at, only run."
    fidelity, whole = compared_section(compared, len(captures[0].heads))
    sections = (
        captured_inputs(tuple(captures)),
        head_section,
        Section(cell_part.NAME, cell_part.TITLE, absent=why),
        fidelity or Section(fidelity_part.NAME, fidelity_part.TITLE, absent=why),
        Section(fidelity_part.COOLED, fidelity_part.COOLED_TITLE, absent=why),
        stability,
        bounds_section(None, certificates),
        captures_section(captures, name, made),
    )
    found = _reach_and_margin(head_section, certified)
    if whole is not None and whole.agreement is not None:
        share = as_text(whole.agreement, "share")
        found.insert(0, Fact("decisions kept with every head hard", share, whole.exactness))
    live, near = _live_and_near(head_section)
    win = "wins" if live == 1 else "win"
    reach = f"{several(live, 'key')} {win} for some query, {near:,} of them for some mixture of the queries seen."
    answer = [
        Fact("", f"{several(len(seen), 'attention head')} on {several(len(captures), 'input')}.", Exactness.EXACT),
        *_whole_in_words(whole),
        Fact("", reach, Exactness.CERTIFIED),
        *_margin_in_words(certified, stability),
    ]
    return Document(legible(name), "", made, tuple(answer), tuple(found), sections)


def _reproduced(section: Section, subject: Subject) -> Section:
    """The section with the whole of what gives its numbers again: imports, model and inputs first."""
    if not section.reproduce:
        return section
    net, inputs = subject.code
    given = [f"{name} = {code}" for name, code in (("net", net), ("inputs", inputs)) if code != name]
    start = "\n".join(["import hardmax as hm", *(["import numpy as np"] if "np." in inputs else []), *given])
    found = [code if code.startswith("hardmax ") else f"{start}\n{code}" for code in section.reproduce]
    if subject.command and section.name == fidelity_part.NAME:
        found.append(f"hardmax skeleton {subject.command}")
    return replace(section, reproduce=tuple(found))


def _n_affordable(captures: Sequence[Capture]) -> int:
    """How many of the first captures have no more scores than a page can look at; one at least."""
    total = 0
    for index, one in enumerate(captures[:MOST_CAPTURES]):
        total += sum(head.n_queries * head.n_keys for head in one.heads)
        if total > MOST_SCORES:
            return max(index, 1)
    return min(len(captures), MOST_CAPTURES)


def _captures(subject: Subject) -> tuple[tuple[Capture, ...], str]:
    """Every head on the first inputs, or why none can be seen."""
    if not subject.has_attention:
        return (), "The model has no attention, so it has no heads."
    try:
        captures = capture(subject.net, subject.inputs.points[:MOST_CAPTURES])
    except HardmaxError as error:
        return (), f"The heads of this model cannot be read off: {error}"
    return named_captures(captures, subject.inputs.tokens), ""


def _answer(
    subject: Subject, whole: Fidelity | None, looked: Looked | None, certified: float | None, stability: Section
) -> list[Fact]:
    sentences = []
    if whole is None:
        sentences.append(Fact("", subject.not_soft or "There is no skeleton to compare with."))
    elif whole.agreement is None:
        error, inputs = error_text(whole), several(whole.n, "input")
        text = f"The skeleton's outputs differ from the model's by a relative error of {error} on {inputs}."
        sentences.append(Fact("", text, whole.exactness))
    else:
        same, decisions = kept(whole, subject)
        text = (
            f"Of {several(decisions, 'decision')}, the skeleton keeps {same:,}, "
            f"{with_interval(whole.agreement, whole.interval())}, when every soft attention becomes a hard choice of "
            "one key."
        )
        sentences.append(Fact("", text, whole.exactness))
    if looked is not None:
        cells = looked.cells
        word = "plane" if cells.dim == 2 else "line"
        frozen = " (its norms frozen at input 0)" if subject.has_frozen_norms else ""
        hard = "the model" if subject.not_soft else "the hard model"
        text = (
            f"On {looked.where}, {hard}{frozen} consists of exactly {several(cells.n_cells, 'cell')}; within "
            "each it is one affine map."
        )
        if looked.has_regions and cells.n_regions < cells.n_cells:
            text = text[:-1] + f", and they join into {several(cells.n_regions, 'linear region')} of the {word}."
        sentences.append(Fact("", text, cells.exactness))
    return [*sentences, *_margin_in_words(certified, stability)]


def _whole_in_words(whole: Fidelity | None) -> list[Fact]:
    """How far a trained model with every head hard is from itself."""
    if whole is None:
        return []
    if whole.agreement is not None:
        share = with_interval(whole.agreement, whole.interval())
        text = f"With every head hard, {share} of the model's decisions stay the same."
    else:
        error, inputs = error_text(whole), several(whole.n, "input")
        text = f"With every head hard, the model's outputs change by a relative error of {error} on {inputs}."
    return [Fact("", text, whole.exactness)]


def _margin_in_words(certified: float | None, stability: Section) -> list[Fact]:
    if certified is None:
        return []
    share, rows = as_text(certified, "share"), several(stability.facts[0].value, "attention row")
    text = f"In {share} of its {rows} the margin alone proves that one key has most of the weight"
    text += "; for the others it proves nothing." if certified < 1 else "."
    return [Fact("", text, Exactness.CERTIFIED)]


def _highlights(
    subject: Subject, whole: Fidelity | None, looked: Looked | None, certified: float | None, head_section: Section
) -> list[Fact]:
    found = []
    if whole is not None and whole.agreement is not None:
        same, decisions = kept(whole, subject)
        share = as_text(whole.agreement, "share")
        found.append(Fact(f"decisions kept, {same:,} of {decisions:,}", share, whole.exactness))
    if looked is not None:
        what = "cells on the plane shown" if looked.cells.dim == 2 else "cells on the line shown"
        found.append(Fact(what, as_text(looked.cells.n_cells, "count"), looked.cells.exactness))
    return [*found, *_reach_and_margin(head_section, certified)]


def _reach_and_margin(head_section: Section, certified: float | None) -> list[Fact]:
    found = []
    if not head_section.absent:
        live, near = _live_and_near(head_section)
        label = f"of {several(live, 'live key')} within reach of the queries"
        found.append(Fact(label, as_text(near / live, "share"), Exactness.CERTIFIED))
    if certified is not None:
        found.append(Fact("attention rows with a certificate", as_text(certified, "share"), Exactness.CERTIFIED))
    return found


def _live_and_near(head_section: Section) -> tuple[int, int]:
    """Live keys of all heads, and those that the queries can reach."""
    summary = next(table for table in head_section.tables if table.name == "heads")
    places = [column.key for column in summary.columns]
    live, near = (sum(row[places.index(key)] for row in summary.rows) for key in ("n_live", "n_reachable_hull"))
    return live, near

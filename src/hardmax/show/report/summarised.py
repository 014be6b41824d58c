"""A document made to fit into a page: what is too large is summarised, and the page says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hardmax.show.document import Document
from hardmax.show.report import heads as head_part
from hardmax.show.report.cell_map import section as cell_part
from hardmax.show.report.sections import Section, Table

_DIAGRAMS = 12
_ROWS = 500


def summaries(document: Document) -> Iterator[Document]:
    """The document with ever less in it: fewer diagrams and rows of heads, then no drawn cells, then no drawn heads.

    Counts, bounds and every other number said in words stay.
    """
    yield _with(document, head_part.NAME, _fewer)
    document = _with(document, cell_part.NAME, _only_counts)
    yield _with(document, head_part.NAME, _fewer)
    yield _with(document, head_part.NAME, _only_counts)


def _with(document: Document, name: str, change: Callable[[Section], Section]) -> Document:
    sections = tuple(
        change(section) if section.name == name and not section.absent else section for section in document.sections
    )
    return replace(document, sections=sections)


def _fewer(section: Section) -> Section:
    """The first diagrams, and the first rows of the tables behind them."""
    notes = list(section.notes)
    if len(section.figures) > _DIAGRAMS:
        notes.append(f"To keep the page small, {_DIAGRAMS} of {len(section.figures):,} diagrams are drawn.")
    tables = tuple(_cut(table, notes) for table in section.tables)
    return replace(section, figures=section.figures[:_DIAGRAMS], tables=tables, notes=tuple(notes))


def _cut(table: Table, notes: list[str]) -> Table:
    if len(table.rows) <= _ROWS:
        return table
    held = f"the first {_ROWS} of {len(table.rows):,} rows"
    notes.append(f"To keep the page small, the table \u201c{table.caption}\u201d holds {held}.")
    return replace(table, rows=table.rows[:_ROWS])


def _only_counts(section: Section) -> Section:
    """The facts and notes of a section, without what is drawn or listed cell by cell and key by key."""
    lead = "This is too large for one page: only the counts are here, nothing is drawn."
    tables = tuple(table for table in section.tables if table.name == "heads")
    return replace(section, lead=lead, figures=(), tables=tables, data={})

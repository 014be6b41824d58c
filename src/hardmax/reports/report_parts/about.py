"""The first section: what was analysed, how, when, and with which exactness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from hardmax.cells.complex import Exactness
from hardmax.reports.report_parts.sections import Column, Section, Table, as_text, legible
from hardmax.reports.report_parts.subject import Subject, array_hash

TITLE = "What was analysed"
NAME = "about"
_MOST_CHANGES = 40

EXACTNESS_MEANS = (
    (Exactness.EXACT, "decided in whole or rational numbers throughout; no rounding anywhere"),
    (Exactness.CERTIFIED, "computed in floating point, every sign proved by an error bound or settled in rationals"),
    (Exactness.ESTIMATED, "floating point without a bound, or true of the inputs given and perhaps of no others"),
)


def about_section(subject: Subject, versions: Sequence[tuple[str, str]], made: str) -> Section:
    """The model, its inputs and its provenance as a table."""
    net = subject.net
    exact = Exactness.EXACT
    kind = "none"
    if subject.has_attention:
        kind = "hard" if net.temperature == 0 else f"softmax at temperature {net.temperature:g}"
    operations = Counter(node.operation.name for node in net.graph.nodes)
    changes = subject.hard.changes if subject.hard is not None else net.changes
    rows: list[tuple[str, str, str | None]] = [
        ("model", legible(subject.name), None),
        ("input", f"{_shape(net.input_shape)} ({prod(net.input_shape):,} numbers)", exact),
        ("output", f"{_shape(net.output_shape)} ({prod(net.output_shape):,} numbers)", exact),
        ("attention", kind, exact),
        ("parameters", as_text(net.n_parameters, "count"), exact),
        ("choices in a label", as_text(net.n_choices, "count"), exact),
        ("operations", ", ".join(f"{count} {name}" for name, count in operations.most_common()), exact),
        ("inputs", legible(subject.inputs.note), None),
    ]
    rows += [("changed for the skeleton", legible(change), None) for change in changes[:_MOST_CHANGES]]
    if len(changes) > _MOST_CHANGES:
        rows.append(("changed for the skeleton", f"and {len(changes) - _MOST_CHANGES} more of the same kind", None))
    if not changes:
        rows.append(("changed for the skeleton", "nothing", None))
    rows += [
        ("SHA-256 of the model", subject.fingerprint, exact),
        ("SHA-256 of the inputs", array_hash(subject.inputs.points), exact),
        ("made", made, None),
        *((name, version, None) for name, version in versions),
    ]
    columns = (Column("what", "what"), Column("value", "value", "prose"), Column("exactness", "exactness"))
    table = Table("about", "The model, its inputs, and how this page came about", columns, tuple(rows), shown=80)
    lead = (
        "Everything below was computed from this model and these inputs, and every number carries a mark that says "
        "what is proved of it."
    )
    return Section(NAME, TITLE, lead, tables=(table,))


def _shape(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes)) or "one number"

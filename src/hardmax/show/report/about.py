"""The first section: what was analysed, how, when, and with which exactness."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import prod

from hardmax.exactness import Exactness
from hardmax.heads.capture.captured import Capture
from hardmax.show.report.sections import Column, Section, Table, as_text, in_words, legible
from hardmax.show.report.subject import Subject, array_hash
from hardmax.version import __version__

TITLE = "What was analysed"
NAME = "about"
_MOST_CHANGES = 40
_MOST_SHOWN = 10  # inputs that are written out
_LIBRARIES = ("numpy", "scipy", "numba", "highspy")

EXACTNESS_MEANS = (
    (Exactness.EXACT, "decided in whole or rational numbers throughout; no rounding anywhere"),
    (Exactness.CERTIFIED, "computed in floating point, every sign proved by an error bound or settled in rationals"),
    (Exactness.ESTIMATED, "floating point without a bound, or true of the inputs given and perhaps of no others"),
)


#: What is said of a page, and what is proved of it.
Row = tuple[str, str, Exactness | None]


def now() -> str:
    """When a page is made."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def provenance(rows: Sequence[tuple[str, ...] | Row], made: str, caption: str = "Where the numbers come from") -> Table:
    """The table that ends every page: what it is about, when it was made and with which versions.

    Rows have a name, a value and, where they say what is proved, an exactness.
    """
    n = len(rows[0])
    libraries = [("hardmax", __version__), ("Python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            libraries.append((name, version(name)))
        except PackageNotFoundError:
            continue
    ending = [(*pair, None)[:n] for pair in (("made", made), *libraries)]
    columns = (Column("what", "what"), Column("value", "value", "prose"), Column("exactness", "exactness"))
    return Table("about", caption, columns[:n], (*rows, *ending), shown=80)


def about_section(subject: Subject, made: str) -> Section:
    """The model, its inputs and its provenance as a table."""
    net = subject.net
    exact = Exactness.EXACT
    kind = "none"
    if subject.has_attention:
        kind = "hard" if net.temperature == 0 else f"softmax at temperature {net.temperature:g}"
    operations = Counter(node.operation.name for node in net.graph.nodes)
    changes = subject.hard.changes if subject.hard is not None else net.changes
    rows: list[Row] = [
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
    ]
    return _section(rows, made)


def captures_section(captures: Sequence[Capture], name: str, made: str) -> Section:
    """Captured heads and their provenance as a table."""
    exact = Exactness.EXACT
    heads = captures[0].heads
    keys = sorted({head.n_keys for capture in captures for head in capture.heads})
    dims = sorted({head.keys.shape[1] for head in heads})
    temperatures = sorted({head.temperature for head in heads})
    rows: list[Row] = [
        ("model", legible(name), None),
        ("inputs", as_text(len(captures), "count"), exact),
        ("layers with attention", as_text(captures[0].n_layers, "count"), exact),
        ("heads", as_text(len(heads), "count"), exact),
        ("keys of a head", _range([f"{size:,}" for size in keys]), exact),
        ("dimension of a key", _range([str(size) for size in dims]), exact),
        ("temperature on raw dot products", _range([f"{value:.6g}" for value in temperatures]), exact),
        *((f"input {index}", in_words(capture.tokens), None) for index, capture in enumerate(captures[:_MOST_SHOWN])),
        ("SHA-256 of queries and keys", _captures_hash(captures), exact),
    ]
    return _section(rows, made)


def _section(rows: Sequence[Row], made: str) -> Section:
    table = provenance(rows, made, "The model, its inputs, and how this page came about")
    lead = (
        "Everything on this page was computed from this model and these inputs, and every number carries a mark that "
        "says what is proved of it."
    )
    return Section(NAME, TITLE, lead, tables=(table,))


def _range(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _captures_hash(captures: Sequence[Capture]) -> str:
    digest = hashlib.sha256()
    for capture in captures:
        for head in capture.heads:
            digest.update(head.queries.tobytes() + head.keys.tobytes())
    return digest.hexdigest()


def _shape(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes)) or "one number"

"""The page of ``hardmax classes``: which classes can never be the answer, why, and how far from it they are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from hardmax.errors import DomainError
from hardmax.exactness import Exactness, FloatArray, IntArray
from hardmax.heads.classes.audit import ClassAudit
from hardmax.html import several
from hardmax.networks.files.opening import check_target, write_bytes
from hardmax.show.document import Document
from hardmax.show.report.about import Row, now, provenance
from hardmax.show.report.page import render
from hardmax.show.report.sections import Column, Fact, Figure, Section, Table, as_text, legible, rows_of
from hardmax.show.report.subject import array_hash
from hardmax.show.svg import Frame, picture, round_ticks, tag

#: Seconds for the lifts of dead classes, one linear program each; classes that are not reached have none.
MOST_SECONDS = 120.0
#: Products of scores for the room of live classes, and numbers of rivals that the page may hold.
MOST_PRODUCTS, MOST_RIVALS = 2e10, 60_000
_NAMED = 3  # rivals named in the table
_EXACT, _CERTIFIED, _ESTIMATED = Exactness.EXACT, Exactness.CERTIFIED, Exactness.ESTIMATED


def write_class_page(
    audit: ClassAudit,
    out: str | os.PathLike[str],
    *,
    name: str = "",
    command: str = "",
    force: bool = False,
    max_seconds: float = MOST_SECONDS,
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write one HTML file about an audit and return where it is; it needs no network and no server.

    Parameters
    ----------
    name, command : what to call the model, and the command that makes the page again.
    max_seconds : for the lifts of dead classes; an evenly spread part of them is computed when it is too short.

    Exactness: every number on the page carries its own.

    Examples
    --------
    >>> import tempfile
    >>> from hardmax.heads.classes.audit import audit_classes
    >>> audit = audit_classes([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], [0.5, 0.5, 0.0], names=["a", "b", "c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_class_page(audit, Path(folder) / "audit.html")
    ...     "1 of the 3 classes can never be the answer" in path.read_text(encoding="utf-8")
    True
    """
    path = Path(out)
    check_target(path, force)
    document, parts = class_document(audit, name, command, max_seconds, progress)
    progress("writing the page")
    page = render(document, "classes", more="hardmax classes model.onnx -o audit.html", parts=parts)
    write_bytes(path, page.encode())
    return path


def class_document(
    audit: ClassAudit, name: str, command: str, max_seconds: float, told: Callable[[str], None]
) -> tuple[Document, dict[str, Markup]]:
    """All that the page says, and the elements that its script fills."""
    made = now()
    told("how far dead classes are from having a cell")
    lifts = _lifts(audit, max_seconds)
    told("room around witnesses")
    room = _room(audit)
    told("the rivals of each dead class")
    proofs = {i: _proof(audit, i) for i in np.flatnonzero(audit.dead).tolist()}
    sections = (
        _dead_section(audit, lifts, proofs),
        _why_section(audit, proofs),
        _lift_section(audit, lifts),
        _room_section(audit, room),
        _about_section(audit, name, command, made),
    )
    title = legible(name) or "Classes"
    n, d = audit.weights.shape
    description = f"{legible(audit.reason)}: {several(n, 'class')}, {several(d, 'feature')}"
    document = Document(title, description, made, _answer(audit), _highlights(audit, lifts), sections)
    return document, {} if not audit.n_dead else {"dead": _search(audit), "why": _panel()}


class _Proof(NamedTuple):
    """The rivals of a dead class, largest share first; the certificate itself holds a matrix and is let go."""

    rivals: IntArray
    shares: FloatArray
    kind: str


def _proof(audit: ClassAudit, i: int) -> _Proof:
    found = audit.certificate(i)
    shares = np.asarray(found.weights, dtype=np.float64)
    order = np.argsort(-shares, kind="stable")
    return _Proof(found.rivals[order], shares[order], found.kind)


# --- in short ----------------------------------------------------------------------------------------


def _answer(audit: ClassAudit) -> tuple[Fact, ...]:
    n, dead, left = audit.n_classes, audit.n_dead, audit.n_undecided
    where = "whatever the input" if audit.domain.kind == "all" else f"on {audit.domain.words}"
    if left:
        text = f"At least {dead:,} of the {n:,} classes can never be the answer, {where}; "
        text += f"the search was stopped early, with {left:,} undecided."
    elif dead:
        text = f"{dead:,} of the {n:,} classes can never be the answer, {where}."
    else:
        every = "The only class" if n == 1 else f"Every one of the {n:,} classes"
        text = f"{every} is the answer somewhere" + ("." if where[0] == "w" else f", {where}.")
    facts = [Fact("", text, _CERTIFIED)]
    if dead:
        facts.append(
            Fact("", "Whatever the features in front of the last layer, some other class scores at least as much.")
        )
    return tuple(facts)


def _highlights(audit: ClassAudit, lifts: dict[int, Any]) -> tuple[Fact, ...]:
    found = [
        Fact(
            f"dead, {as_text(audit.n_dead / audit.n_classes, 'share')} of all",
            as_text(audit.n_dead, "count"),
            _CERTIFIED,
        ),
        Fact("live, each with a witness", as_text(audit.n_live, "count"), _CERTIFIED),
    ]
    if audit.n_undecided:
        found.append(Fact("undecided, not reached", as_text(audit.n_undecided, "count"), None))
    if lifts and not _has_no_bias(audit):
        middle = float(np.median([float(lift) for lift in lifts.values()]))
        part = "" if len(lifts) == audit.n_dead else f", {len(lifts):,} of them asked"
        found.append(Fact(f"median growth of a bias until a dead class lives{part}", as_text(middle), _CERTIFIED))
    twins = _twins(audit)
    if twins:
        found.append(Fact("dead rows that are almost another dead row", as_text(twins, "count"), _ESTIMATED))
    return tuple(found)


def _twins(audit: ClassAudit) -> int:
    """Dead rows within a millionth of their length of another dead row."""
    rows = audit.weights[audit.dead]
    if len(rows) < 2:
        return 0
    squares, count = np.square(rows).sum(axis=1), 0
    for start in range(0, len(rows), 512):
        block = slice(start, start + 512)
        distance = squares[block, None] + squares - 2.0 * rows[block] @ rows.T
        at = np.arange(len(distance))
        distance[at, start + at] = np.inf
        count += int((distance.min(axis=1) <= 1e-12 * squares[block]).sum())
    return count


# --- which -------------------------------------------------------------------------------------------


def _dead_section(audit: ClassAudit, lifts: dict[int, Any], proofs: dict[int, _Proof]) -> Section:
    title, name = "Which classes are dead", "dead"
    if not audit.n_dead:
        why = "None: every class that was settled wins somewhere." if audit.n_undecided else "None."
        return Section(name, title, absent=why)
    columns = (
        Column("name", "name"),
        Column("class", "class", "count", _EXACT),
        Column("length", "length of its row", "number", _ESTIMATED),
        Column("bias", "bias", "number", _EXACT),
        Column("lift", "bias must grow by", "number", _CERTIFIED),
        Column("n_rivals", "rivals that cover it", "count", _EXACT),
        Column("largest", "largest of them, with their shares", "prose", _ESTIMATED),
    )
    records = []
    for i, proof in proofs.items():
        largest = ", ".join(
            f"{_shown(audit.names[j])} {as_text(share, 'share')}"
            for j, share in zip(proof.rivals[:_NAMED].tolist(), proof.shares[:_NAMED].tolist(), strict=True)
        )
        lift = lifts.get(i)
        length = float(np.sqrt(np.square(audit.weights[i]).sum()))
        records.append({"name": _shown(audit.names[i]), "class": i, "length": length, "bias": float(audit.bias[i]),
                        "lift": None if lift is None else float(lift), "n_rivals": len(proof.rivals),
                        "largest": largest})  # fmt: skip
    return Section(
        name,
        title,
        "No input makes one of these the answer: not a rare one, not one that was made for it. Choose one to see which "
        "classes cover it.",
        tables=(Table("dead", "Dead classes", columns, rows_of(records, columns)),),
    )


def _shown(name: str) -> str:
    """A name fit to be read: a space is shown as its sign."""
    return legible(name, 60).replace(" ", "␣") if name.strip() == "" else legible(name, 60)


def _search(audit: ClassAudit) -> Markup:
    box = tag(
        "label", "Search ", tag("input", id="class-search", type="search", placeholder="name, number or U+5208",
                                autocomplete="off", spellcheck="false"), for_="class-search",
    )  # fmt: skip
    found = tag("span", several(audit.n_dead, "class"), id="class-found", class_="small", aria_live="polite")
    tiles = tag("div", " ", id="class-tiles", class_="tiles", role="group", aria_label="Dead classes")
    return tag("div", tag("p", box, " ", found, class_="search"), tiles, class_="needs-script no-print", hidden="")


# --- why ---------------------------------------------------------------------------------------------


def _why_section(audit: ClassAudit, proofs: dict[int, _Proof]) -> Section:
    title, name = "Why: the rivals that cover it", "why"
    if not audit.n_dead:
        return Section(name, title, absent="No class is dead.")
    kept = max(6, MOST_RIVALS // len(proofs))
    entries = {str(i): _drawn(audit, i, proof, kept) for i, proof in proofs.items()}
    used = sorted({j for entry in entries.values() for j in entry["rivals"]} | set(proofs))
    wall = "" if audit.domain.is_polyhedral and audit.domain.kind == "all" else (
        " On this domain the mixture need not be the row itself: bounds on the features make up for "
        "it."
    )  # fmt: skip
    return Section(
        name,
        title,
        "The row of a dead class is a mixture of the rows of its rivals, with weights that sum to one, and its bias is "
        "no larger than the mixture of theirs. So at every feature vector its score is at most an average of its "
        "rivals' scores, and the best of them scores at least as much." + wall,
        notes=(
            "The drawing is the plane of the two directions in which the rivals spread most, weighted by their shares; "
            "larger circles have larger shares. In every plane the class lies at the centre of mass of its rivals.",
            "The weights shown are floats near weights that are proved to exist; certificate(i).exact() has those.",
        ),
        data={"names": {str(i): _shown(audit.names[i]) for i in used}, "of": entries, "undecided": audit.n_undecided},
    )


def _drawn(audit: ClassAudit, i: int, proof: _Proof, kept: int) -> dict[str, Any]:
    """The rivals of a dead class with shares and places in their plane; only the largest where there are too many."""
    rivals, shares = proof.rivals, proof.shares
    if not len(rivals):
        return {
            "rivals": [],
            "shares": [],
            "places": [],
            "shown": 1.0,
            "rest": 0,
            "kind": proof.kind,
        }
    own = audit.weights[i]
    scale = float(np.abs(audit.weights[rivals]).max(initial=0.0)) or 1.0
    centred = (audit.weights[rivals] - own) / scale
    _, sizes, axes = np.linalg.svd(np.sqrt(np.maximum(shares, 0.0))[:, None] * centred, full_matrices=False)
    plane = np.zeros((2, centred.shape[1]))
    plane[: min(2, len(axes))] = axes[:2]
    places = centred @ plane.T
    total = float((sizes**2).sum())
    reach = float(np.abs(places).max(initial=0.0)) or 1.0
    return {
        "rivals": rivals[:kept].tolist(),
        "shares": [float(f"{x:.4g}") for x in shares[:kept].tolist()],
        "places": [[round(float(x) / reach, 4), round(float(y) / reach, 4)] for x, y in places[:kept].tolist()],
        "shown": float(f"{float((sizes[:2] ** 2).sum()) / total:.4g}") if total > 0 else 1.0,
        "rest": max(0, len(rivals) - kept),
        "kind": proof.kind,
    }


def _panel() -> Markup:
    """What the script fills: a picker, the drawing, and the list of rivals."""
    steps = (
        tag("button", "←", type="button", id="why-before", aria_label="Previous dead class")
        + tag("label", "Class ", tag("select", " ", id="why-class"), for_="why-class")
        + tag("button", "→", type="button", id="why-after", aria_label="Next dead class")
    )
    drawing = tag("div", " ", id="why-drawing", class_="drawing")
    side = tag("div", " ", id="why-list", class_="cell-panel", aria_live="polite")
    return tag(
        "div", tag("div", steps, class_="picker no-print"), tag("div", drawing, side, class_="why"),
        class_="needs-script", hidden="",
    ) + tag("noscript", tag("p", "The drawing needs scripts; the table names rivals.", class_="absent"))  # fmt: skip


# --- how far from a cell -----------------------------------------------------------------------------


def _lifts(audit: ClassAudit, max_seconds: float) -> dict[int, Any]:
    """Lifts of dead classes, evenly spread over them where time is short."""
    dead = np.flatnonzero(audit.dead)
    stop = time.monotonic() + max_seconds
    found: dict[int, Any] = {}
    step = 1 << max(0, len(dead).bit_length() - 1)
    order: list[int] = []
    while step:  # every 2^k-th first, then those between
        order += [at for at in range(0, len(dead), step) if at % (2 * step) or not order]
        step //= 2
    for at in order:
        if time.monotonic() > stop:
            break
        try:
            found[int(dead[at])] = audit.lift(int(dead[at]))
        except DomainError:  # a domain without flat walls
            return {}
    return found


def _has_no_bias(audit: ClassAudit) -> bool:
    """Whether all classes have one bias, on all features: then a least growth of one does not exist."""
    return audit.domain.kind == "all" and not np.ptp(audit.bias)


def _lift_section(audit: ClassAudit, lifts: dict[int, Any]) -> Section:
    title, name = "How far dead classes are from a cell", "lifts"
    if not audit.n_dead:
        return Section(name, title, absent="No class is dead.")
    if not lifts:
        return Section(
            name, title, absent=f"Lifts are computed on domains with flat walls, not on {audit.domain.words}."
        )
    if _has_no_bias(audit):
        return Section(
            name,
            title,
            absent="The layer has no bias, so all classes tie at features of zero, and any growth of its bias, however "
            "small, gives a dead class a cell there.",
        )
    values = np.array([float(lift) for lift in lifts.values()])
    figure, table = _histogram(values, "lift-chart", "lift-bins", "by how much the bias must grow", "dead classes")
    part = "" if len(lifts) == audit.n_dead else f", of {len(lifts):,} of the {audit.n_dead:,} dead classes"
    spread = float(np.ptp(audit.bias[audit.live])) if audit.n_live else 0.0
    return Section(
        name,
        title,
        "By how much its bias must grow until a dead class wins somewhere, all others left as they are. A small number "
        "says that the class is covered by little; it does not say that inputs come near the place where it would win.",
        facts=(
            Fact("least", as_text(float(values.min())), _CERTIFIED, float(values.min())),
            Fact("median", as_text(float(np.median(values))), _CERTIFIED, float(np.median(values))),
            Fact("largest", as_text(float(values.max())), _CERTIFIED, float(values.max())),
            Fact("biases of live classes spread over", as_text(spread), _ESTIMATED, spread),
        ),
        figures=(figure,),
        tables=(table,),
        notes=(f"Lifts are certified{part}: a mixture of rivals proves that less is not enough, a query that it is.",),
    )


# --- sizes of cells ----------------------------------------------------------------------------------


def _room(audit: ClassAudit) -> list[dict[str, Any]]:
    """For live classes with a float witness: lead there, distance to the nearest wall, length of the witness."""
    n, d = audit.weights.shape
    live = np.array([i for i in np.flatnonzero(audit.live).tolist() if i not in audit.exact_queries], dtype=np.int64)
    if n < 2 or not len(live):
        return []
    most = max(1, int(MOST_PRODUCTS / (2.0 * n * max(d, 1))))
    if len(live) > most:
        live = live[np.unique(np.linspace(0, len(live) - 1, most).astype(np.int64))]
    squares = np.square(audit.weights).sum(axis=1)
    records: list[dict[str, Any]] = []
    with np.errstate(all="ignore"):
        for start in range(0, len(live), 256):
            some = live[start : start + 256]
            queries = audit.queries[audit.query_of[some]]
            scores = queries @ audit.weights.T + audit.bias
            at = np.arange(len(some))
            lead = scores[at, some][:, None] - scores
            apart = np.sqrt(
                np.maximum(squares[some, None] + squares - 2.0 * audit.weights[some] @ audit.weights.T, 0.0)
            )
            lead[at, some] = np.inf
            nearest = np.nanmin(np.where(apart > 0, lead / apart, np.inf), axis=1)
            length = np.sqrt(np.square(queries).sum(axis=1))
            for k, i in enumerate(some.tolist()):
                rival = int(np.argmin(lead[k]))
                records.append({
                    "name": _shown(audit.names[i]), "class": i, "lead": float(lead[k, rival]),
                    "rival": _shown(audit.names[rival]), "distance": float(nearest[k]), "length": float(length[k]),
                    "room": float(nearest[k] / length[k]) if length[k] > 0 else None,
                })  # fmt: skip
    return records


def _room_section(audit: ClassAudit, records: list[dict[str, Any]]) -> Section:
    title, name = "How much room live classes have", "cells"
    if not records:
        return Section(name, title, absent="There is no live class with a rival and a witness in floats.")
    columns = (
        Column("name", "name"),
        Column("class", "class", "count", _EXACT),
        Column("room", "room around its witness", "number", _ESTIMATED),
        Column("distance", "distance to the nearest wall", "number", _ESTIMATED),
        Column("length", "length of the witness", "number", _ESTIMATED),
        Column("lead", "lead in score", "number", _ESTIMATED),
        Column("rival", "next best class there"),
    )
    known = sorted((r for r in records if r["room"] is not None), key=lambda r: r["room"]) or records
    values = np.array([r["room"] for r in known if r["room"] is not None and r["room"] > 0])
    table = Table("room", "Live classes, least room first", columns, rows_of(known, columns))
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = (table,)
    if len(values):
        figure, bins = _histogram(
            values, "room-chart", "room-bins", "room around the witness", "live classes", log=True
        )
        figures, tables = (figure,), (table, bins)
    part = (
        ""
        if len(records) >= audit.n_live
        else f" {len(records):,} of the {audit.n_live:,} live classes, evenly spread."
    )
    return Section(
        name,
        title,
        "Each live class has a witness, a feature vector at which it alone wins. The room is the radius of the ball "
        "around the witness in which it still wins, over the length of the witness: a lower bound on how wide its cell "
        "is. The witness is no centre, so a cell may be wider; that the class lives is proved, these sizes are floats."
        + part,
        figures=figures,
        tables=tables,
    )


def _histogram(
    values: FloatArray, name: str, table: str, words: str, what: str, *, log: bool = False
) -> tuple[Figure, Table]:
    """Counts in equal bins, of the values or of their logarithms, as a drawing and a table."""
    shown = np.log10(values) if log else values
    low, high = float(shown.min()), float(shown.max())
    if not log:
        low = min(low, 0.0)
    if not high - low > 1e-12 * max(abs(high), abs(low), 1e-300):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    if log:
        low, high = np.floor(low), np.ceil(high)
    counts, edges = np.histogram(shown, bins=40 if len(values) > 60 else 20, range=(low, high))
    frame = Frame(((low, high), (0.0, float(counts.max()) * 1.08)), 52.0, 30.0, 414.0, 150.0)
    ends = 10.0**edges if log else edges
    bars = [
        tag("rect", tag("title", f"{as_text(float(ends[k]))} to {as_text(float(ends[k + 1]))}: {int(count):,} {what}"),
            x=frame.x(edges[k]) + 0.6, y=frame.y(float(count)), height=frame.y(0.0) - frame.y(float(count)),
            width=max(1.0, frame.x(edges[k + 1]) - frame.x(edges[k]) - 1.2), class_="bar certified")
        for k, count in enumerate(counts) if count
    ]  # fmt: skip
    at = range(int(low), int(high) + 1) if log else round_ticks(low, high, 6)
    step = max(1, (int(high) - int(low)) // 4) if log else 1
    ticks = [(float(x), as_text(10.0**x) if log else as_text(float(x))) for x in list(at)[::step]]
    whole = [(x, as_text(int(x), "count")) for x in round_ticks(0.0, float(counts.max()), 4) if x == int(x)]
    svg = picture(
        480.0, 228.0, f"Histogram: {words}", frame.left_axis(whole, what), frame.bottom_axis(ticks, words), *bars,
        tag("line", x1=frame.left, x2=frame.left + frame.width, y1=frame.y(0.0), y2=frame.y(0.0), class_="base"),
        class_="chart",
    )  # fmt: skip
    columns = (Column("from", "from", "number"), Column("to", "to", "number"), Column("count", what, "count"))
    rows = tuple((float(ends[k]), float(ends[k + 1]), int(count)) for k, count in enumerate(counts) if count)
    caption = f"{words[0].upper() + words[1:]}, {len(values):,} {what}."
    return Figure(name, svg, caption, (table,)), Table(table, f"Histogram: {words}", columns, rows)


# --- provenance --------------------------------------------------------------------------------------


def _about_section(audit: ClassAudit, name: str, command: str, made: str) -> Section:
    n, d = audit.weights.shape
    rows: list[Row] = [
        ("model", legible(name) or "weights", None),
        ("layer", legible(audit.reason), None),
        ("classes and features", f"{n:,} × {d:,}", _EXACT),
        ("features that can occur", audit.domain.words, None),
        ("search", "complete" if not audit.n_undecided else f"stopped early, {audit.n_undecided:,} undecided", None),
        ("SHA-256 of rows and biases", array_hash(np.column_stack([audit.weights, audit.bias])), _EXACT),
    ]
    if command:
        rows.insert(1, ("command", legible(command, 400), None))
    if audit.assumed:
        rows.append(("assumed, not proved", legible(audit.assumed, 400), None))
    return Section(
        "about",
        "What was audited",
        "A class with row w and bias b scores ⟨w, q⟩ + b at the feature vector q, and the largest score is the answer. "
        "A class is dead if no feature vector gives it a larger score than every other. Copies of a class (same row, "
        "same bias) are dead but the first. The audit looks at the last layer alone: a live class need not be reached "
        "by any input of the model.",
        tables=(provenance(rows, made),),
        notes=(
            "The proofs can be kept and checked again: hardmax classes MODEL -o audit.npz, then "
            "hm.load_classes('audit.npz').verify().",
        ),
    )

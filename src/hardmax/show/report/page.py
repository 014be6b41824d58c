"""``hm.reports.report``: one self-contained page on one model; what is too large for a page is summarised, and said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from hardmax.cells.domains import Domain
from hardmax.errors import EmptyError, HardmaxError, ParameterError, WriteError
from hardmax.heads.capture.captured import Capture
from hardmax.heads.fidelity import Hardened
from hardmax.html import embedded, policy
from hardmax.networks.files.opening import check_target, open_file, write_bytes
from hardmax.show.colours import FILL, KEY_COLOURS, WALL_WIDTHS, theme
from hardmax.show.document import Document, gather, gather_captures
from hardmax.show.report import heads as head_part
from hardmax.show.report.about import EXACTNESS_MEANS, now
from hardmax.show.report.cell_map import section as cell_part
from hardmax.show.report.sections import Section, Table
from hardmax.show.report.subject import Source, Subject, read_subject
from hardmax.version import __version__

#: What a page may weigh.
MOST_BYTES = 5_000_000

_PAGES = Path(__file__).with_name("pages")
#: By this a page of ours is recognised: `hardmax report` without a file name replaces the page it wrote before.
_GENERATOR = '<meta name="generator" content="hardmax report'


def report(
    source: Source | Capture | Sequence[Capture] = None,
    out: str | os.PathLike[str] = "report.html",
    inputs: ArrayLike | str | os.PathLike[str] | None = None,
    *,
    labels: ArrayLike | None = None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    plane: Domain | None = None,
    name: str | None = None,
    compared: Sequence[Hardened] = (),
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write a page about a model and return where it is: one HTML file that needs no network and no server.

    Parameters
    ----------
    source
        A network, the path of a file that ``hm.read`` reads, or None for the built-in lookup model. Also what
        ``hm.capture`` gives for a model that is none of these: then the page tells of its heads alone.
    out
        The file to write. An existing one is refused without ``force``.
    inputs
        Inputs (n, *input_shape), or a file: .npy, .csv, or .npz with ``inputs`` and perhaps ``labels`` and ``tokens``.
        Without them a seeded sample is drawn, and the page says so.
    labels
        The right decision for each input.
    tokens
        Names of the positions: one list for all inputs, or a list for each.
    plane
        ``hm.Plane`` or ``hm.Segment`` whose cells are drawn; by default a plane through the first inputs.
    name
        What to call the model; by default its file name.
    compared
        Beside captures: what ``hm.fidelity`` measured of their model on the same inputs, such as ``by_layer``.
    progress
        Called with a few words whenever something new is begun.

    Exactness: every number on the page carries its own.

    Examples
    --------
    >>> import tempfile
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> from hardmax.networks.network import Network
    >>> net = Network([Affine([[1.0, 0.0], [0.0, 1.0]]), ReLU(), Affine([[1.0, 1.0], [0.0, 1.0]])], 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(net, Path(folder) / "report.html", [[1.0, 2.0], [-1.0, 0.5], [0.5, -1.0]])
    ...     path.name, "4 cells" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    given = Given(labels, tokens, plane, name, tuple(compared))
    return make_report(source, out, inputs, given, force=force, progress=progress or (lambda text: None)).path


@dataclass(frozen=True, eq=False)
class Given:
    """What may be said of a model besides its inputs, as ``report`` explains."""

    labels: ArrayLike | None = None
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None
    plane: Domain | None = None
    name: str | None = None
    compared: tuple[Hardened, ...] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """A page that was written: where, about what, and all that it says."""

    path: Path
    subject: Subject | None  # None for captures, which come without their model
    document: Document


def make_report(
    source: Source | Capture | Sequence[Capture],
    out: str | os.PathLike[str],
    inputs: ArrayLike | str | os.PathLike[str] | None,
    given: Given | None = None,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """The same as ``report``, giving back what the page says as well."""
    path, given = Path(out), given or Given()
    check_target(path, force)  # before the work, not after
    made = now()
    captures = _captures(source)
    if captures is not None and any(one is not None for one in (inputs, given.labels, given.tokens, given.plane)):
        raise ParameterError(
            "captures hold their inputs and names already, and have no planes; expected them alone, got inputs=, "
            "labels=, tokens= or plane= beside them"
        )
    if captures is None and given.compared:
        raise ParameterError(
            f"compared= stands beside captures; expected none for a network, compared here, got {len(given.compared)}"
        )
    # thousands of small matrix products: threads that wait for one another made them ten times slower
    with threadpool_limits(limits=1, user_api="blas"):
        if captures is not None:
            subject = None
            document = gather_captures(captures, given.name or captures[0].source, made, progress, given.compared)
        else:
            progress("reading the model")
            subject = read_subject(cast(Source, source), inputs, given.labels, given.tokens, given.name)
            document = gather(subject, given.plane, made, progress)
    progress("writing the page")
    page = render(document).encode()
    for smaller in summaries(document):
        if len(page) <= MOST_BYTES:
            break
        document = smaller
        page = render(document).encode()
    if len(page) > MOST_BYTES:
        raise WriteError(
            f"{path}: the page would weigh {len(page):,} bytes, more than {MOST_BYTES:,}; give fewer inputs, or a "
            "smaller plane= with fewer cells. Nothing was written"
        )
    write_bytes(path, page)
    return Report(path, subject, document)


def _captures(source: object) -> tuple[Capture, ...] | None:
    """The captures of a source that is one or some; None for any other."""
    found = (source,) if isinstance(source, Capture) else source
    if not isinstance(found, tuple | list) or not all(isinstance(one, Capture) for one in found):
        return None
    if not found:
        raise EmptyError("expected at least one capture, got none")
    return tuple(found)


# --- the page -----------------------------------------------------------------------------------


def render(
    document: Document,
    kind: str = "report",
    *,
    more: str = "hardmax report model.onnx --inputs x.npz",
    parts: Mapping[str, Markup] | None = None,
) -> str:
    """The page as text.

    ``kind`` is the command that makes such pages, with ``kind``.css and .js beside the report's; ``more`` is an example
    of it, and ``parts`` are elements of sections, by name, that its script brings to life.
    """
    names = ["report"] if kind == "report" else ["report", kind]
    style = theme() + _key_styles() + "".join(_read(f"{name}.css") for name in names)
    script = "".join(_read(f"{name}.js") for name in names)
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = [section for section in document.sections if not section.absent]
    first = ("cells", "heads", "roles", "cache") if kind == "report" else ("why",)
    openings = [section for name in first for section in shown if section.name == name]
    opening = next((section for section in openings if section.figures or section.name in (parts or {})), None)
    return environment.get_template("report.html").render(
        document=document,
        shown=shown,
        left_out=[section for section in document.sections if section.absent],
        opening=opening,
        said=opening.notes[0] if opening is not None and "decisions" in opening.data else "",
        kind=kind,
        more=more,
        parts=parts or {},
        tables=document.tables,
        rows_of=Table.shown_rows,
        means=EXACTNESS_MEANS,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script, more="img-src data:"),
        data=Markup(embedded(document.as_json())),
    )


def _key_styles() -> str:
    """The colours of keys as classes k0, k1, ..."""
    keys = "".join(f".k{index}{{--key:{colour}}}" for index, colour in enumerate(KEY_COLOURS))
    walls = "".join(f".w{layer}{{--weight:{width}}}" for layer, width in enumerate(WALL_WIDTHS))
    return f":root{{--fill:{FILL:.0%}}}{keys}{walls}\n"


def _read(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


# --- the file -----------------------------------------------------------------------------------


def is_report(path: Path) -> bool:
    """Whether a file is a page that ``report`` wrote, by its generator; False where it cannot be read.

    Examples
    --------
    >>> is_report(Path("no such file"))
    False
    """
    try:
        with open_file(path) as file:
            head = file.read(4096)
    except (HardmaxError, OSError):
        return False
    return _GENERATOR.encode() in head


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

"""The report's page: what it says is what the library says, foreign text stays text, and bad input leaves nothing."""

import html
import json
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, FileFormatError, ParameterError, PickleError, ShapeError, WeightError, WriteError
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.keys import Diagrams
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.library import random_relu_network, random_transformer
from hardmax.networks.lookup import conditioned_lookup, default_examples, lookup_examples, lookup_question
from hardmax.networks.network import Network
from hardmax.show.drawing import shared_wall
from hardmax.show.report import page as report_page
from hardmax.show.report.bounds import bounds_section
from hardmax.show.report.cell_map import search as cell_search
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.head_pictures import draw_head
from hardmax.show.report.heads import _clear
from hardmax.show.report.page import make_report

EVIL = "</script><img src=x onerror=alert(1)>"
SECTIONS = ["inputs", "cells", "heads", "fidelity", "temperature", "stability", "bounds", "about"]


def _text(path):
    return path.read_text(encoding="utf-8")


def _data(path):
    """The document inside a page, read as a browser would."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', _text(path), re.DOTALL)
    return json.loads(found.group(1))


def _rows(data, name):
    table = data["tables"][name]
    keys = [column["key"] for column in table["columns"]]
    return [dict(zip(keys, row, strict=True)) for row in table["rows"]]


def _section(data, name):
    (section,) = [section for section in data["sections"] if section["name"] == name]
    return section


def _of(made, name):
    (section,) = [section for section in made.document.sections if section.name == name]
    return section


def _facts(data, name):
    section = _section(data, name)
    return {fact["label"]: fact["value"] for fact in section["facts"]}


def _small_net(temperature=0.5):
    return hm.builtin("demo").with_temperature(temperature)


@pytest.fixture(scope="module")
def lookup(tmp_path_factory):
    return make_report(None, tmp_path_factory.mktemp("report") / "report.html", None)


@pytest.fixture(scope="module")
def lookup_data(lookup):
    return _data(lookup.path)


def test_the_name_of_a_cell_stands_clear_of_dots_and_inside_its_cell():
    square = np.array([[0.0, 0.0], [200.0, 0.0], [200.0, 200.0], [0.0, 200.0]])
    assert _clear(square, np.zeros((0, 2))).tolist() == [100.0, 100.0]
    assert _clear(square, np.array([[105.0, 98.0]])).tolist() == [100.0, 74.0]
    assert _clear(square, np.array([[105.0, 98.0], [95.0, 74.0]])).tolist() == [100.0, 126.0]
    flat = square * (1.0, 0.1)  # there is no room above or below
    assert _clear(flat, np.array([[105.0, 10.0]])).tolist() == [100.0, 10.0]


# ---- the page ----


def test_the_page_is_one_small_file_that_asks_the_network_for_nothing(lookup):
    page = _text(lookup.path)
    assert lookup.path.stat().st_size < 5_000_000
    assert "default-src 'none'" in html.unescape(page) and page.startswith("<!doctype html>")
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|iframe|img|object|embed)\b", page)


def test_every_section_is_there_and_says_something(lookup_data):
    assert [section["name"] for section in lookup_data["sections"]] == SECTIONS
    assert [section["absent"] for section in lookup_data["sections"]] == [None] * len(SECTIONS)


def test_every_figure_has_its_tables_and_every_number_its_exactness(lookup):
    tables = lookup.document.tables
    figures = [figure for section in lookup.document.sections for figure in section.figures]
    assert len(figures) > 5
    for figure in figures:
        assert figure.tables and all(name in tables and tables[name].rows for name in figure.tables), figure.name
    for table in tables.values():
        for position, column in enumerate(table.columns):
            numbers = [row[position] for row in table.rows if isinstance(row[position], int | float)]
            assert not numbers or column.kind == "index" or column.exactness is not None, (table.name, column.key)
    for section in lookup.document.sections:
        assert all(fact.exactness is not None for fact in section.facts)


def test_the_cells_on_the_page_are_the_ones_the_library_finds(lookup, lookup_data):
    context = default_examples().inputs[0]
    asked = [int(np.flatnonzero(row[:8])[0]) for row in context[:3]]
    plane = hm.Plane.through(*(lookup_question(key) for key in asked), margin=0.35)
    cells = hm.enumerate_cells(conditioned_lookup(context), plane)
    facts = _facts(lookup_data, "cells")
    assert facts["cells"] == cells.n_cells == hm.count_cells(conditioned_lookup(context), plane)
    assert facts["linear regions"] == cells.n_regions and facts["different affine maps"] == cells.n_maps
    assert facts["verification"] is True
    rows = _rows(lookup_data, "cells")
    assert len(rows) == cells.n_cells == len(re.findall(r'class="cell k\d+" data-cell="', _text(lookup.path)))
    assert sum(row["area"] for row in rows) == pytest.approx(cells.domain.volume)
    for row in _rows(lookup_data, "cell-maps"):
        slope = cells.slopes[row["cell"], row["output"]]
        assert [row["slope_u"], row["slope_v"]] == slope.tolist()
        assert row["constant"] == cells.offsets[row["cell"], row["output"]]
    for row in _rows(lookup_data, "cell-corners")[:50]:
        assert [row["u"], row["v"]] in cells.vertices(row["cell"]).tolist()


def test_the_fidelity_on_the_page_is_the_library_s(lookup_data):
    examples = default_examples()
    net = hm.builtin("lookup")
    whole = hm.fidelity.compare(net, examples.inputs, examples.labels)
    rows = _rows(lookup_data, "fidelity")
    assert (rows[0]["agreement"], rows[0]["relative_error"]) == (whole.agreement, whole.relative_error)
    by_head = hm.fidelity.by_head(net, examples.inputs, examples.labels)
    assert [row["agreement"] for row in rows[-len(by_head) :]] == [part.fidelity.agreement for part in by_head]
    path = hm.fidelity.temperature_path(net, examples.inputs, labels=examples.labels)
    assert [row["agreement"] for row in _rows(lookup_data, "temperature")] == [at.fidelity.agreement for at in path]


def test_the_heads_on_the_page_are_the_library_s(lookup_data):
    examples = default_examples()
    captures = hm.capture(hm.builtin("lookup"), examples.inputs[:100])
    analyses = hm.analyse_heads(captures)
    for row, head in zip(_rows(lookup_data, "heads"), analyses, strict=True):
        assert (row["n_live"], row["n_keys"]) == (head.n_live, head.n_keys)
        assert row["n_reachable_hull"] == head.n_reachable_hull
    keys = [row for row in _rows(lookup_data, "head-keys") if row["layer"] == row["head"] == 0]
    keys = [row for row in keys if row["of"] == "input 0"]
    drawn = captures[0].head(0, 0)
    assert [row["live"] for row in keys] == hm.power_diagram(drawn.keys, drawn.biases).live.tolist()
    assert [row["token"] for row in keys] == list(examples.tokens[0][:5])
    shares = [row["share"] for row in _rows(lookup_data, "stability")]
    assert shares == pytest.approx([head.certified_share for head in analyses])


def test_bounds_stand_above_what_was_counted(lookup_data):
    rows = [*_rows(lookup_data, "bounds"), *_rows(lookup_data, "curvature")]
    assert len(rows) >= 3
    for row in rows:
        assert float(row["counted"]) <= float(row["true"]), row["quantity"]
    assert any("true is" in str(row["verdict"]) for row in rows)


def test_units_that_leak_layers_handed_on_and_products_keep_the_count_below_the_true_bounds():
    box = hm.Box([-50, -50], [50, 50])
    leaky = hm.Network([hm.ReLU(-0.5), hm.Affine([[2.0, -1.0], [0.0, 1.0]], [-2.0, -1.0]), hm.ReLU(-0.5)], 2)
    builder = GraphBuilder((2,))
    bent = builder.add(op.Relu(), builder.add(op.Linear(np.array([[1.0, 0.0]])), 0, name="in"), name="bent")
    beside = builder.add(op.Concat(0), 0, bent, name="beside")
    three = np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    wide = builder.add(op.Linear(three, np.array([1.0, 2.0, -1.0])), beside, name="out")
    handed_on = Network.from_graph(builder.build(builder.add(op.Relu(), wide, name="last")))
    builder = GraphBuilder((1,))
    squared = builder.add(op.Shift(np.array([-1.0])), builder.add(op.Multiply(), 0, 0, name="square"), name="shift")
    product = Network.from_graph(builder.build(builder.add(op.Relu(), squared, name="last")))
    for net, domain in ((leaky, box), (handed_on, box), (product, hm.Segment([-3.0], [3.0]))):
        cells = hm.enumerate_cells(net, domain)
        (table,) = bounds_section(Looked(net, domain, (), "", cells=cells, has_regions=False), []).tables
        assert all(counted <= true for _, counted, true, *_ in table.rows), (cells.n_cells, table.rows)


@pytest.mark.parametrize("seed", range(4))
def test_the_true_bound_is_that_of_the_choices_which_vary(seed, tmp_path):
    net = random_transformer(2, 4, n_heads=2, width=3, depth=2, rng=np.random.default_rng(seed))
    made = make_report(net, tmp_path / "r.html", None)
    row = _rows(_data(made.path), "bounds")[0]
    most = hm.bounds.cells_upper([4, 4], 2, 3, 2, affine=True)
    assert row["counted"] <= row["true"] <= most
    if any("10 of 10 choices differ" in note for note in _of(made, "cells").notes):
        assert row["true"] == most
    assert "Theorem V.5" in row["verdict"]


def test_the_same_model_gives_the_same_numbers(lookup, lookup_data, tmp_path):
    again = _data(make_report(None, tmp_path / "again.html", None).path)
    for data in (again, lookup_data):
        data["tables"].pop("about")  # it holds the date
    assert again["tables"] == lookup_data["tables"]


# ---- kinds of models ----


def test_a_model_without_attention_says_why_sections_are_missing(tmp_path):
    data = _data(hm.reports.report(hm.builtin("figure-2"), tmp_path / "r.html"))
    absent = {section["name"]: section["absent"] for section in data["sections"]}
    page = _text(tmp_path / "r.html")
    for name in ("fidelity", "heads", "stability", "temperature"):
        assert "no attention" in absent[name] and f'<section id="{name}"' not in page  # said once, at the end
    assert absent["cells"] is None and "Not on this page:" in page
    box = data["drawing"]["cells"]["extent"]
    cells = hm.enumerate_cells(hm.builtin("figure-2"), hm.Box([box[0][0], box[1][0]], [box[0][1], box[1][1]]))
    assert _facts(data, "cells")["cells"] == cells.n_cells


def test_a_hard_model_is_its_own_skeleton_and_its_heads_are_drawn(tmp_path):
    made = make_report(hm.builtin("figure-3"), tmp_path / "r.html", None)
    data = _data(made.path)
    assert "hard already" in _section(data, "fidelity")["absent"]
    live = [row["live"] for row in _rows(data, "head-keys")]
    assert live == [True, True, False, True]
    assert "Dead: key 2." in _of(made, "heads").figures[0].caption


def test_moving_keys_are_cut_along_a_line_and_the_page_says_why(tmp_path):
    inputs = lookup_examples(3, rng=np.random.default_rng(1)).inputs
    net = hm.builtin("lookup")
    made = make_report(net, tmp_path / "r.html", inputs)
    section = _of(made, "cells")
    assert any("quadratic" in note for note in section.notes)
    cells = hm.enumerate_cells(hm.skeleton(net), hm.Segment(inputs[0], inputs[1]))
    assert _facts(_data(made.path), "cells")["cells"] == cells.n_cells


def test_a_model_without_choices_is_one_cell(tmp_path):
    data = _data(hm.reports.report(hm.Network([hm.Affine([[1.0, 2.0], [0.0, 1.0]])], 2), tmp_path / "r.html"))
    assert "one affine map" in _section(data, "cells")["absent"]


def test_an_asked_plane_is_the_one_that_is_drawn(tmp_path):
    net = random_relu_network([4, 6, 3], rng=np.random.default_rng(0))
    plane = hm.Plane(np.zeros(4), np.eye(4)[:2], extent=((-2, 2), (-2, 2)))
    path = hm.reports.report(net, tmp_path / "r.html", plane=plane)
    assert _facts(_data(path), "cells")["cells"] == hm.count_cells(net, plane)


def test_a_slice_with_too_many_cells_is_shrunk_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_search, "MOST_CELLS", 20)
    made = make_report(_small_net(), tmp_path / "r.html", None)
    section = _of(made, "cells")
    assert any("shrunk" in note for note in section.notes) and "the middle of" in made.document.answer[1].text
    assert _facts(_data(made.path), "cells")["cells"] <= 20


def test_a_model_too_large_is_summarised_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_search, "MOST_PARAMETERS", 10)
    data = _data(make_report(_small_net(), tmp_path / "r.html", None).path)
    assert "parameters" in _section(data, "cells")["absent"]
    assert _section(data, "fidelity")["absent"] is None


def test_equal_maps_too_many_to_compare_are_not_merged_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_search, "MOST_COMPARED", 0)
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 0.0]])], 2)
    made = make_report(net, tmp_path / "r.html", [[1.0, 2.0], [-1.0, -2.0]])
    facts = _facts(_data(made.path), "cells")
    assert facts["cells"] == 4 and "linear regions" not in facts
    assert any("not merged" in note for note in _of(made, "cells").notes)


def test_regions_join_cells_with_one_map(tmp_path):
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 0.0]])], 2)
    facts = _facts(_data(hm.reports.report(net, tmp_path / "r.html", [[1.0, 2.0], [-1.0, -2.0]])), "cells")
    assert (facts["cells"], facts["linear regions"]) == (4, 2)


def test_every_row_of_an_output_is_a_decision(tmp_path):
    rng = np.random.default_rng(0)
    head = hm.Head(rng.normal(size=(4, 2)), rng.normal(size=(4, 3)), rng.normal(size=(2, 2)))
    net = hm.Network([hm.Attention([head])], input_dim=(5, 2), temperature=1.0)
    inputs = rng.normal(size=(6, 5, 2))
    made = make_report(net, tmp_path / "r.html", inputs)
    same = int((net(inputs).argmax(axis=-1) == net(inputs, temperature=0).argmax(axis=-1)).sum())
    assert made.document.answer[0].text.startswith(f"Of 30 decisions, the skeleton keeps {same}, ")


def test_captured_heads_have_a_page_of_their_own(tmp_path):
    examples = lookup_examples(3, rng=np.random.default_rng(0))
    captures = hm.capture(hm.builtin("lookup"), examples.inputs)
    data = _data(hm.reports.report(captures, tmp_path / "r.html", name="only heads"))
    absent = [section["name"] for section in data["sections"] if section["absent"]]
    assert absent == ["cells", "fidelity", "temperature"]
    analyses = hm.analyse_heads(captures)
    assert sum(row["n_live"] for row in _rows(data, "heads")) == sum(head.n_live for head in analyses)
    one = _data(hm.reports.report(captures[0], tmp_path / "one.html"))
    assert {row["of"] for row in _rows(one, "head-keys")} == {"input 0"}
    with pytest.raises(ParameterError, match="beside them"):
        hm.reports.report(captures, tmp_path / "r.html", examples.inputs, force=True)
    with pytest.raises(ParameterError, match="expected one model"):
        hm.reports.report([captures[0], hm.capture(_small_net(), np.zeros((1, 2)))[0]], tmp_path / "x.html")
    with pytest.raises(ParameterError, match="expected a network"):
        hm.reports.report(object(), tmp_path / "x.html")


def test_heads_that_are_hard_already_are_left_out_of_stability(tmp_path):
    queries, keys = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
    heads = [CapturedHead(0, i, "demo", queries, keys, keys, temperature) for i, temperature in enumerate((1.0, 0.0))]
    made = make_report(Capture("demo", ("a", "b", "c"), tuple(heads)), tmp_path / "r.html", None)
    (section,) = (part for part in made.document.sections if part.name == "stability")
    assert section.facts[0].value == 2 and "left out: 1 of 2" in section.notes[-1]


def test_a_page_looks_at_every_attention_row_once_and_for_heads_once_a_graph(tmp_path, monkeypatch):
    import hardmax.heads._head_kernels as geometry
    import hardmax.measure.stability._certify_kernels as certificates
    from hardmax.heads import find

    rows, graphs = Counter(), Counter()
    for kernels, name in ((geometry, "row_geometry"), (certificates, "row_statistics")):
        own = getattr(kernels, name)

        def counted(block, *others, own=own, name=name):
            rows[name] += len(getattr(block, "scores", block))
            return own(block, *others)

        monkeypatch.setattr(kernels, name, counted)
    search = find._search
    monkeypatch.setattr(find, "_search", lambda graph, *others: graphs.update([id(graph)]) or search(graph, *others))
    net = hm.builtin("lookup")
    inputs = np.random.default_rng(0).integers(0, 2, (7, *net.input_shape)).astype(float)
    made = make_report(net.with_temperature(0.9), tmp_path / "r.html", inputs)
    n_rows = 7 * sum(head.n_queries for head in hm.capture(net, inputs[0])[0].heads)
    (section,) = (part for part in made.document.sections if part.name == "stability")
    assert section.facts[0].value == n_rows
    assert rows == {"row_geometry": n_rows, "row_statistics": n_rows}
    assert graphs and set(graphs.values()) == {1}


# ---- slices of heads ----


def test_a_slice_of_a_head_scores_as_the_head_does():
    rng = np.random.default_rng(3)
    keys, queries = rng.integers(-4, 5, (9, 5)).astype(float), rng.integers(-4, 5, (12, 5)).astype(float)
    head = CapturedHead(0, 0, "h", queries, keys, keys, 1.0, biases=np.arange(9.0))
    capture = Capture("h", tuple("abcdefghi"), (head,), tuple("abcdefghijkl"))
    cut = draw_head(hm.analyse_heads(capture, reach=())[0], (capture,), 0, 400, Diagrams())
    (u0, u1), (v0, v1) = cut.extent
    points = rng.uniform([u0, v0], [u1, v1], (200, 2))
    centre = queries.mean(axis=0)
    axes = np.linalg.lstsq(cut.queries, queries - centre, rcond=None)[0]
    assert cut.queries == pytest.approx((queries - centre) @ np.linalg.pinv(axes), abs=1e-9)
    drawn = cut.drawn.assign(points)
    # the axes themselves: directions along which keys have the coordinates the drawn diagram gives them
    directions = np.linalg.lstsq(keys, cut.drawn.keys, rcond=None)[0].T
    assert (hm.power_diagram(keys, np.arange(9.0)).assign(centre + points @ directions) == drawn).all()


def test_two_neighbours_share_the_overlap_of_their_walls_only():
    left = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]])
    for height in (0.5, 1.0, 1.5):
        right = np.array([[1.0, height], [2.0, height], [2.0, 3.0], [1.0, 3.0]])
        assert sorted(shared_wall(left, right)[:, 1].tolist()) == [height, 2.0]
    assert shared_wall(left, left + np.array([1.0, 2.0])) is None  # they share a corner


# ---- foreign text ----


def test_foreign_text_is_escaped_wherever_it_goes(tmp_path):
    path = hm.reports.report(_small_net(), tmp_path / "r.html", tokens=[f"{EVIL}{i}" for i in range(5)], name=EVIL)
    page = _text(path)
    assert "<img" not in page and "onerror=alert(1)>" not in page
    assert page.count("</script>") == 2
    assert _data(path)["model"] == EVIL
    assert {row["token"] for row in _rows(_data(path), "head-keys")} == {f"{EVIL}{i}" for i in range(5)}


def test_characters_that_hide_or_turn_text_are_shown_by_their_code(tmp_path):
    path = hm.reports.report(_small_net(), tmp_path / "r.html", name="a\u202eb\x00c")
    assert "\u202e" not in _text(path) and "a\\u202eb\\x00c" in _text(path)


# ---- inputs ----


def test_without_inputs_the_page_says_that_it_drew_a_sample(tmp_path):
    page = _text(hm.reports.report(_small_net(), tmp_path / "r.html"))
    assert "drawn with seed 0, since none were given" in page


def test_inputs_labels_and_tokens_come_from_one_file(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"token {i}" for i in range(5)]
    file = tmp_path / "x.npz"
    np.savez(file, inputs=rng.standard_normal((7, 2)), labels=np.zeros(7, dtype=int), tokens=np.array(names))
    data = _data(hm.reports.report(_small_net(), tmp_path / "r.html", file))
    assert _rows(data, "fidelity")[0]["hard_accuracy"] is not None
    assert {row["token"] for row in _rows(data, "head-keys")} == set(names)
    assert "7 inputs, read from x.npz." in [row["value"] for row in _rows(data, "about")]


def _saved(folder, name, **arrays):
    np.savez(folder / name, **arrays)
    return folder / name


_BAD_INPUTS = {
    "shape": (lambda folder: np.zeros((3, 5)), ShapeError, r"\(n, 2\), got \(3, 5\)"),
    "none": (lambda folder: np.zeros((0, 2)), EmptyError, "at least one input"),
    "nan": (lambda folder: np.full((3, 2), np.nan), WeightError, "finite"),
    "text": (lambda folder: np.array([["a", "b"]]), WeightError, "numbers"),
    "ragged": (lambda folder: [[1.0, 2.0], [3.0]], ShapeError, "several lengths"),
    "absent": (lambda folder: folder / "none.npz", FileFormatError, "no such file"),
    "ending": (lambda folder: folder / "r.txt", FileFormatError, "npy or .csv"),
    "damaged": (lambda folder: folder / "bad.npz", FileFormatError, "cannot be read"),
    "nameless": (lambda folder: _saved(folder, "two.npz", a=[0.0], b=[0.0]), FileFormatError, "called inputs"),
    "pickled": (lambda folder: _saved(folder, "p.npz", inputs=np.array([{}])), PickleError, "nothing is unpickled"),
}


@pytest.mark.parametrize("kind", _BAD_INPUTS)
def test_bad_inputs_are_refused_and_nothing_is_written(kind, tmp_path):
    make, error, words = _BAD_INPUTS[kind]
    (tmp_path / "r.txt").write_text("1 2")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(error, match=words):
        hm.reports.report(_small_net(), tmp_path / "r.html", make(tmp_path))
    assert not list(tmp_path.glob("*.html")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("labels", [[0], [0.5] * 3, [[0, 1]] * 2], ids=str)
def test_bad_labels_are_refused(labels, tmp_path):
    with pytest.raises(ShapeError, match="labels"):
        hm.reports.report(_small_net(), tmp_path / "r.html", np.zeros((3, 2)), labels=labels)


def test_names_must_be_enough_for_the_keys(tmp_path):
    with pytest.raises(ShapeError, match="names for the 5 keys of input 0, got 2"):
        hm.reports.report(_small_net(), tmp_path / "r.html", np.zeros((3, 2)), tokens=["a", "b"])


def test_lists_of_tokens_must_match_the_inputs(tmp_path):
    with pytest.raises(ShapeError, match="tokens: expected one list of names, or 3 lists"):
        hm.reports.report(_small_net(), tmp_path / "r.html", np.zeros((3, 2)), tokens=[["a"], ["b"]])


# ---- the file ----


def test_an_existing_file_is_refused_without_force_and_left_as_it_was(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("mine")
    with pytest.raises(WriteError, match="file exists"):
        hm.reports.report(_small_net(), path)
    assert path.read_text() == "mine"
    assert hm.reports.report(_small_net(), path, force=True) == path and "<!doctype html>" in _text(path)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "none" / "r.html", tmp_path / "file" / "r.html"):
        with pytest.raises(WriteError, match=re.escape(str(place))):
            hm.reports.report("no such model", place)


def test_a_failure_on_the_way_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(document):
        raise RuntimeError("planted")

    monkeypatch.setattr(report_page, "render", fail)
    with pytest.raises(RuntimeError, match="planted"):
        hm.reports.report(_small_net(), tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0.8, 0.5, 0.42])
def test_what_is_too_large_for_a_page_is_summarised_and_said(tmp_path, monkeypatch, lookup, share):
    most = int(share * lookup.path.stat().st_size)
    monkeypatch.setattr(report_page, "MOST_BYTES", most)
    monkeypatch.setattr(report_page, "_DIAGRAMS", 3)
    monkeypatch.setattr(report_page, "_ROWS", 10)
    path = hm.reports.report(None, tmp_path / "r.html")
    assert path.stat().st_size <= most
    data = _data(path)
    assert _facts(data, "cells")["cells"] == len(lookup.document.tables["cells"].rows)
    text = path.read_text(encoding="utf-8")
    assert ("To keep the page small" in text) == ("head-keys" in data["tables"])
    assert ("too large for one page" in text) == ("cells" not in data["tables"])
    assert "heads" in data["tables"]


def test_a_page_that_grows_too_large_is_refused_and_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "MOST_BYTES", 1000)
    with pytest.raises(WriteError, match="more than 1,000"):
        hm.reports.report(_small_net(), tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


# ---- dependencies and time ----


def test_the_report_needs_only_the_core(tmp_path):
    code = (
        "import sys\nfor name in ('onnx', 'onnxruntime', 'matplotlib', 'torch', 'safetensors'): sys.modules[name] = "
        f"None\nimport hardmax as hm\nprint(hm.reports.report(None, {str(tmp_path / 'r.html')!r}).stat().st_size)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100_000


@pytest.mark.extras
def test_a_vision_transformer_with_sixty_inputs_has_a_page_with_the_known_numbers(shared, tmp_path):
    try:
        import onnx  # noqa: F401
    except ImportError:
        pytest.skip("needs onnx, which is not installed")
    file = shared / "nets" / "vit_ibp_3_3_8.onnx"
    made = make_report(file, tmp_path / "r.html", shared / "nets" / "vit_inputs.npz")
    data = _data(made.path)
    assert made.path.stat().st_size < 5_000_000
    inputs = np.load(shared / "nets" / "vit_inputs.npz")["inputs"].astype(np.float64)
    segment = hm.Segment(inputs[0], inputs[1])
    assert _facts(data, "cells")["cells"] == hm.count_cells(hm.skeleton(file), segment) == 1159
    assert _facts(data, "fidelity")["accuracy, soft"] == 1.0
    assert len(_rows(data, "heads")) == 9 and sum(row["rows"] for row in _rows(data, "stability")) == 60 * 9 * 17


def test_one_quantity_has_one_mark(lookup_data):
    marks = {
        (table, column["key"]): column["exactness"]
        for table, content in lookup_data["tables"].items()
        for column in content["columns"]
    }
    assert marks["heads", "margin_median"] == marks["stability", "median"] == marks["head-queries", "margin"]
    assert marks["heads", "n_chosen"] == marks["head-keys", "wins"]
    medians = {(row["layer"], row["head"]): row["margin_median"] for row in _rows(lookup_data, "heads")}
    for row in _rows(lookup_data, "stability"):
        assert row["median"] == medians[row["layer"], row["head"]]


def test_halves_of_characters_are_shown_by_their_code(tmp_path):
    names = {"name": "bad\udcff.onnx", "tokens": ["\ud83d"] * 5}
    path = hm.reports.report(hm.builtin("demo"), tmp_path / "page.html", np.zeros((3, 2)), **names)
    assert "bad\\udcff.onnx" in path.read_text(encoding="utf-8")


def test_one_headline_has_one_value_everywhere(lookup_data, capsys):
    """The share of decisions kept: in the library, on the page and on the terminal, each with its interval."""
    from hardmax.cli import main

    asked = default_examples()
    kept = hm.fidelity.compare(hm.builtin("lookup"), asked.inputs, labels=asked.labels)
    assert main(["skeleton", "builtin:lookup", "--inputs", "builtin:lookup", "--brief", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fidelity"]["whole"]
    row = _rows(lookup_data, "fidelity")[0]
    low, high = kept.interval()
    assert told["agreement"] == row["agreement"] == kept.agreement
    assert told["interval"] == [low, high] == [row["low"], row["high"]] and low < kept.agreement < high
    assert told["hard_accuracy"] == row["hard_accuracy"] == kept.hard_accuracy


def test_every_comparison_stands_with_its_interval(lookup, lookup_data):
    """In the tables, in their cells on the page, and as a line through each bar and dot."""
    n_drawn = 0
    for name in ("fidelity", "greedy", "temperature"):
        columns = lookup_data["tables"][name]["columns"]
        measured = [c["key"] for c in columns if c["exactness"] == "estimated" and "end_of" not in c]
        assert {"agreement", "relative_error", "kl", "hard_accuracy"} <= set(measured)
        for row in _rows(lookup_data, name):
            for key in measured:
                low, high = (row[c["key"]] for c in columns if c.get("end_of") == key)
                assert low <= row[key] <= high and (low < high or row[key] == 0)
                n_drawn += 1
    page = lookup.path.read_text(encoding="utf-8")
    bars = len(_rows(lookup_data, "fidelity"))
    assert page.count('<span class="ends">') == n_drawn and page.count('class="whisker"') == bars + 2


def test_the_bars_of_margins_add_up_to_the_table_and_break_at_the_margin_needed(lookup_data):
    bars = _rows(lookup_data, "margins")
    for head in _rows(lookup_data, "stability"):
        own = [bar for bar in bars if (bar["layer"], bar["head"]) == (head["layer"], head["head"])]
        assert sum(bar["rows"] for bar in own) == head["rows"]
        assert sum(bar["certified"] for bar in own) == head["certified"]
        assert head["needed"] in [bar["from"] for bar in own] or head["needed"] > own[-1]["to"]
        assert all(bar["certified"] in (0, bar["rows"]) for bar in own)  # every row has as many keys here


def test_bounds_of_unequal_heads_are_theirs_and_figure_1_prints_the_published_exponent(capsys):
    from hardmax.cli import main
    from hardmax.measure.bounds import as_published

    assert main(["bounds", "--keys", "6,1", "--depth", "2", "--json"]) == 0  # one key never changes hands
    rows = {row["bound"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    least, most = (rows[f"factor of one more block, at {end}"]["value"] for end in ("least", "most"))
    assert (least, most) == ("24", "66") and most == rows["cells of one block"]["value"]
    for depth in (1, 2, 3):
        assert main(["bounds", "--keys", "4", "--heads", "1", "--dim", "2", "--depth", str(depth), "--json"]) == 0
        rows = {row["bound"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
        assert rows["exponent of N"]["published_value"] == str(as_published.key_exponent(2, depth)) == str(2 * depth)


# ---- what the model decides ----


def _grid_points(decisions, plane):
    (u0, u1), (v0, v1) = plane.extent
    n, m = decisions["columns"], decisions["rows"]
    u, v = u0 + (u1 - u0) * (np.arange(n) + 0.5) / n, v0 + (v1 - v0) * (np.arange(m) + 0.5) / m
    return np.array([plane.origin + a * plane.basis[0] + b * plane.basis[1] for b in v for a in u])


def test_hatching_is_where_the_library_s_soft_and_hard_answers_differ(lookup_data):
    context = default_examples().inputs[0]
    asked = [int(np.flatnonzero(row[:8])[0]) for row in context[:3]]
    plane = hm.Plane.through(*(lookup_question(key) for key in asked), margin=0.35)
    decisions = lookup_data["drawing"]["cells"]["decisions"]
    points = _grid_points(decisions, plane)
    hard = conditioned_lookup(context)(points).argmax(axis=1)
    for at, temperature in enumerate(decisions["temperatures"]):
        answers = conditioned_lookup(context, hm.builtin().with_temperature(temperature))(points).argmax(axis=1)
        drawn = hard.copy().reshape(decisions["rows"], decisions["columns"])
        for row, start, length, winner in decisions["runs"][at]:
            drawn[row, start : start + length] = winner
        assert np.array_equal(drawn.ravel(), answers)
        assert decisions["disagreement"][at] == pytest.approx((answers != hard).mean())
    assert decisions["runs"][0] and decisions["runs"][-1] == []


def test_areas_of_classes_are_those_of_the_library_s_decision_cells(lookup, lookup_data):
    context = default_examples().inputs[0]
    asked = [int(np.flatnonzero(row[:8])[0]) for row in context[:3]]
    plane = hm.Plane.through(*(lookup_question(key) for key in asked), margin=0.35)
    cells = hm.enumerate_cells(hm.decisions(conditioned_lookup(context)), plane)
    areas = {f"v{k}": cells.volumes[cells.decision == k].sum() / plane.volume for k in set(cells.decision.tolist())}
    sentence = _of(lookup, "cells").notes[0]
    assert html.escape(sentence) in _text(lookup.path)
    said = re.findall(r"(v\d) on ([\d.]+)\xa0%", sentence)
    assert len(said) == 3
    for name, share in said:
        assert float(share) == pytest.approx(100 * areas[name], abs=0.06)


def test_a_line_says_what_is_decided_along_it(tmp_path):
    inputs = lookup_examples(3, rng=np.random.default_rng(1)).inputs
    net = hm.builtin("lookup")
    data = _data(hm.reports.report(net, tmp_path / "r.html", inputs))["drawing"]["cells"]["decisions"]
    n = data["columns"]
    points = inputs[0] + ((np.arange(n) + 0.5) / n)[:, None, None] * (inputs[1] - inputs[0])
    differ = net(points).argmax(axis=-1) != net(points, temperature=0).argmax(axis=-1)
    hatched = np.zeros(n, dtype=bool)
    for _, start, length, _ in data["runs"][0]:
        hatched[start : start + length] = True
    assert np.array_equal(hatched, differ) and differ.any()
    along = inputs[0] + np.linspace(0, 1, len(data["curves"][0][0]))[:, None, None] * (inputs[1] - inputs[0])
    assert np.allclose(
        np.array(data["curves"][2]).T, net(along, temperature=data["temperatures"][2]), rtol=1e-3, atol=1e-3
    )


def test_what_a_section_says_to_type_gives_its_numbers_again(lookup_data):
    space: dict = {}
    exec(_section(lookup_data, "cells")["reproduce"][0], space)
    facts = _facts(lookup_data, "cells")
    assert (space["cells"].n_cells, space["cells"].n_regions) == (facts["cells"], facts["linear regions"])
    exec(_section(lookup_data, "fidelity")["reproduce"][0].replace("hm.fidelity", "kept = hm.fidelity"), space)
    assert space["kept"].agreement == _rows(lookup_data, "fidelity")[0]["agreement"]
    assert "hardmax skeleton builtin:lookup --inputs builtin:lookup" in _section(lookup_data, "fidelity")["reproduce"]


def test_the_attention_view_has_the_library_s_scores_and_opens_in_the_explorer(lookup_data):
    import base64

    captured = hm.capture(hm.builtin("lookup"), default_examples().inputs[:1])[0]
    view = lookup_data["drawing"]["heads"]["head-0"]
    own = captured.head(0, 0)
    assert np.allclose(view["attention"]["scores"], own.softmax_scores, rtol=1e-5)
    assert view["attention"]["temperature"] == own.temperature
    text = view["explorer"].removeprefix("1.")
    state = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    assert np.allclose(state["layers"][0]["heads"][0]["keys"], own.keys, atol=2.0**-20)


def test_images_are_shown_as_images(tmp_path):
    rng = np.random.default_rng(0)
    net = hm.Network([hm.Affine(rng.normal(size=(3, 8))), hm.ReLU()], input_dim=(1, 8, 8))
    path = hm.reports.report(net, tmp_path / "r.html", rng.random((4, 1, 8, 8)))
    assert _text(path).count('<image href="data:image/png;base64,') == 4


def test_a_line_without_attention_is_not_said_to_jump(tmp_path):
    page = hm.reports.report(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1), tmp_path / "line.html").read_text()
    assert "straight within a cell. The strip" in page and "jumps" not in page


@pytest.mark.parametrize("scale", [1e-200, 1e4, 1e9, 1e200])
def test_margins_far_above_what_is_needed_fill_no_more_bars(scale, tmp_path):
    head = hm.Head([[scale, 0.0], [0.0, scale], [-scale, -scale]], [[1.0], [2.0], [3.0]], np.eye(2))
    net = hm.Network([hm.Attention([head])], 2, temperature=1.0)
    bars = _rows(_data(hm.reports.report(net, tmp_path / "r.html")), "margins")
    assert 20 <= len(bars) <= 40 and sum(bar["rows"] for bar in bars) == 64


def test_a_mixture_of_experts_has_no_attention_and_its_router_is_no_head(tmp_path):
    experts = [hm.Affine([[1.0, 0.0]]), [hm.Affine([[2.0, 1.0]]), hm.ReLU()]]
    data = _data(
        hm.reports.report(hm.Network([hm.Mixture([[1.0, 0.0], [-1.0, 0.5]], experts)], 2), tmp_path / "r.html")
    )
    for name in ("heads", "fidelity", "temperature", "stability"):
        assert _section(data, name)["absent"].startswith("The model has no attention")
    rows = _rows(data, "bounds")
    assert not any("head" in row["quantity"] for row in rows) and {row["published"] for row in rows} == {None}
    assert "→ option 1" in _rows(data, "cells")[0]["choices"] + _rows(data, "cells")[-1]["choices"]

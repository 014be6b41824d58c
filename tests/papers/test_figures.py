"""The seven figures: their numbers against references and the networks themselves, their files, and bad input."""

import ast
import csv
import inspect
import io
import json
import os
import re
import struct
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from conftest import REPOSITORY
from hardmax.cli import main
from hardmax.errors import MissingExtraError, ParameterError, WriteError
from hardmax.networks.library import builtin
from hardmax.show.figures import figure_1, figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, writing
from hardmax.show.figures.writing import contents, figure_module

pytestmark = pytest.mark.extras
matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib, which is not installed")

_FEW = 4  # draws of figure 6, which takes 100 for print


@pytest.fixture(scope="module")
def values():
    """What each figure draws, computed once."""
    computed = {n: figure_module(n).compute(np.random.default_rng(0)) for n in (1, 2, 3, 4, 5, 7)}
    return computed | {6: figure_6.compute(np.random.default_rng(0), draws=_FEW)}


@pytest.fixture(scope="module")
def drawn():
    """Every file of every figure by name, drawn once from a few random draws and pixels."""
    with pytest.MonkeyPatch.context() as patch:
        _lighten(patch)
        return {name: data for number in range(1, 8) for name, data in contents(number).items()}


def _lighten(patch):
    patch.setattr(figure_6, "_DRAWS", _FEW)
    patch.setattr(figure_5, "_PIXELS", 120)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# ---- numbers ----


def test_figures_1_2_and_7_count_what_the_references_say(values):
    assert [found.n_cells for found in values[1].maps] == [21, 64, 160]
    assert (values[2].first.n_cells, values[2].both.n_cells, values[2].both.n_regions) == (7, 34, 34)
    assert (values[2].published, values[2].serra) == (49, 40)
    counts = [panel.found.n_cells for panel in values[7].panels]
    assert counts == [2, 4, 7, 8, 4, 7, 16, 19]  # the paper's sizes, then larger ones


def test_the_refinement_of_figure_7_is_what_pairs_of_labels_on_a_grid_show(values):
    # an independent count: winners and ReLU bits of the plain input, side by side, on many points
    axis = np.linspace(-60.0, 60.0, 501)
    points = np.concatenate([np.stack(np.meshgrid(s * axis, s * axis), axis=-1).reshape(-1, 2) for s in (1.0, 0.05)])
    for net, row in ((builtin("figure-7"), values[7].large), (figure_7.two_tokens(), values[7].small)):
        attention, feed_forward = (hm.Network([layer], 2) for layer in net.layers)
        pairs = np.hstack([attention.labels(points), feed_forward.labels(points)])
        assert {tuple(pair) for pair in pairs} == {tuple(label) for label in row.refinement.labels}


def _maps(values):
    yield from ((builtin(f"figure-1-depth-{d}"), values[1].maps[d - 1]) for d in (1, 2, 3))
    yield builtin("figure-2"), values[2].both
    yield builtin("figure-2"), values[2].part
    yield builtin("figure-7"), values[7].large.block


def _area(polygon):
    x, y = polygon.T
    return 0.5 * float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum())


def test_drawn_cells_fill_the_window_and_carry_their_labels(values):
    for net, found in _maps(values):
        (x0, x1), (y0, y1) = found.window
        drawn = [index for index, polygon in enumerate(found.polygons) if len(polygon)]
        areas = [_area(found.polygons[index]) for index in drawn]
        assert min(areas) > 0
        assert sum(areas) == pytest.approx((x1 - x0) * (y1 - y0), rel=1e-9)
        assert len(drawn) == found.n_in_window
        inside = np.array([found.polygons[index].mean(axis=0) for index in drawn])
        assert np.array_equal(net.labels(inside), found.labels[drawn])


def test_every_drawn_wall_separates_its_two_cells(values):
    for net, found in _maps(values):
        assert len(found.walls.pairs) > 5
        for (first, second), (start, end) in zip(found.walls.pairs, found.walls.segments, strict=True):
            middle, along = (start + end) / 2, end - start
            across = np.array([-along[1], along[0]]) * 1e-6 / np.hypot(*along)
            sides = {tuple(label) for label in net.labels(np.stack([middle + across, middle - across]))}
            expected = {tuple(found.labels[first]), tuple(found.labels[second])}
            # a sliver thinner than the step shows its other neighbour
            thin = min(_area(found.polygons[first]), _area(found.polygons[second])) < 1e-4
            assert sides == expected or thin


def test_a_label_has_one_colour_in_all_panels(values):
    first, second = (
        dict(zip(map(tuple, found.labels.tolist()), found.colours, strict=True))
        for found in (values[7].large.refinement, values[7].large.block)
    )
    shared = first.keys() & second.keys()
    assert len(shared) > 10 and all(first[label] == second[label] for label in shared)


def test_figure_3_has_five_voronoi_cells_and_two_dead_keys_one_of_large_weight(values):
    found = values[3]
    assert found.voronoi.is_voronoi and found.voronoi.live.all()
    assert found.power.live.tolist() == [True, True, False, True, False] == list(found.is_corner)
    powers = found.power.powers
    assert powers[2] == 25 and powers[3] == 0  # a dead key outweighs a living one
    # each dead key is a mixture of living ones, and lighter than the same mixture of their weights
    corners = found.power.keys[[0, 1, 3]]
    for dead in (2, 4):
        shares = np.linalg.solve(np.vstack([corners.T, np.ones(3)]), np.append(found.power.keys[dead], 1.0))
        assert (shares > 0).all() and powers[dead] < shares @ powers[[0, 1, 3]]


def test_figure_4_counts_6_36_and_92_vertices_of_216_sums(values):
    assert [len(polytope.winners) for polytope in values[4].polytopes] == [6, 36, 92]
    assert [polytope.maximum for polytope in values[4].polytopes] == [6, 36, 92]
    assert values[4].polytopes[2].n_sums == 216


def test_faces_of_figure_4_close_up_and_support_all_vertices(values):
    for polytope in values[4].polytopes[1:]:
        edges = set()
        for face in polytope.faces:
            edges |= {frozenset(pair) for pair in zip(face.corners, (*face.corners[1:], face.corners[0]), strict=True)}
        assert len(polytope.vertices) - len(edges) + len(polytope.faces) == 2  # Euler
        exact = [[Fraction(x) for x in vertex] for vertex in polytope.vertices.tolist()]
        for face in polytope.faces:
            a, b, c = (exact[corner] for corner in face.corners[:3])
            u, v = ([p - q for p, q in zip(other, a, strict=True)] for other in (b, c))
            normal = (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])
            heights = [sum(n * (x - y) for n, x, y in zip(normal, vertex, a, strict=True)) for vertex in exact]
            assert {i for i, height in enumerate(heights) if height == 0} == set(face.corners)
            assert all(height >= 0 for height in heights) or all(height <= 0 for height in heights)


def test_figure_5_shows_the_papers_setting_and_the_same_winners_at_every_temperature(values):
    found, keys = values[5], np.array(figure_5._KEYS)
    drawn = np.round(np.random.default_rng(10).standard_normal((5, 2)) * 64) / 64
    assert np.array_equal(keys, drawn) and figure_5._WINDOW == ((-4.0, 4.0), (-4.0, 4.0))
    assert found.field.diagram.live.tolist() == [True, True, False, True, True] and found.field.n_cells == 4
    points = figure_5.grid(figure_5._WINDOW, figure_5._ROWS)
    for panel in found.panels:
        scores = points @ keys.T / panel.temperature
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        assert np.allclose(weights / weights.sum(axis=-1, keepdims=True), panel.weights, atol=1e-12)
        # where no scores tie, the winners are those of the hard head
        gaps = np.sort(points @ keys.T, axis=-1)
        clear = gaps[..., -1] - gaps[..., -2] > 1e-9
        assert np.array_equal(panel.winners[clear], (points @ keys.T).argmax(axis=-1)[clear])
    assert found.n_partitions == 1 and found.zoom < 1e-9
    decided = [panel.decided for panel in found.panels]
    assert decided == sorted(decided) and decided[0] < 0.5 and decided[-1] > 0.99


def test_figure_6_orders_its_counts_and_fits_its_slopes(values):
    found = {(series.quantity, series.parameter): series for series in values[6].cells}
    for depth in (1, 2):
        cells = found["cells", depth].counts
        assert cells.shape == (4, _FEW)
        assert (found["sampled labels", depth].counts <= found["cells in the square", depth].counts).all()
        assert (found["cells in the square", depth].counts <= cells).all()
        assert (found["regions", depth].counts <= cells).all()
    for series in values[6].vertices:
        most = np.array(values[6].maximum[series.parameter])
        assert (series.counts <= most[:, None]).all()
        assert most.tolist() == [n**series.parameter for n in series.keys]  # H < d: every sum can be a vertex
        slope = np.polyfit(np.log(series.keys), np.log(series.means), 1)[0]
        assert series.slope == pytest.approx(slope)
        low, high = series.slope_interval
        assert low <= series.slope <= high
    assert (values[6].vertices[0].counts[:4] == np.array([[2], [3], [4], [5]])).all()


def test_figure_6_draws_the_closed_forms_through_its_dots(values):
    found = values[6]
    assert figure_6._SAMPLES == 2_000_000  # as the paper
    assert [f"{mean:.2f}" for mean in found.exact_cells] == ["11.00", "13.50", "15.12", "16.31"]
    slopes = [float(figure_6._slopes(figure_6._KEYS_B, row[None])[0]) for row in found.exact_vertices.values()]
    assert [f"{slope:.4f}" for slope in slopes] == ["0.9931", "1.7379", "2.0912"]
    rows = figure_6.tables(found)[""].rows
    column = figure_6.tables(found)[""].columns.index("exact mean")
    assert {row[0] for row in rows if row[column] is not None} == {"a", "b"}
    for series in found.vertices:  # four draws: within six standard errors, or equal
        gap = series.means - found.exact_vertices[series.parameter]
        error = series.counts.std(axis=1, ddof=1) / 2
        assert (np.abs(gap) <= 6 * error + 0.5).all()


def test_figure_6_counts_are_those_of_the_same_networks_counted_again():
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    cells, regions, _, in_square = figure_6._network_counts(2, 3, rng)
    net = figure_6.random_transformer(again, 3, 2, figure_6._WIDTH)
    complex_ = hm.enumerate_cells(net, hm.Space(2), exactness="exact")
    assert (cells, regions) == (complex_.n_cells, complex_.n_regions)
    assert in_square == hm.count_cells(net, hm.Box([-4, -4], [4, 4]), exactness="exact")


# ---- files ----


def test_every_figure_comes_in_three_formats_with_tables_and_a_caption(drawn):
    for number in range(1, 8):
        assert {f"figure-{number}.{ending}" for ending in ("pdf", "svg", "png", "csv", "txt")} <= drawn.keys()
        text = drawn[f"figure-{number}.txt"].decode()
        assert text.startswith(f"Figure {number}. ") and "The paper printed: " in text and "What is true: " in text


def test_every_row_of_every_table_says_how_exact_it_is(drawn):
    known = {"exact", "certified", "estimated"}
    for name, data in drawn.items():
        if name.endswith(".csv"):
            rows = _rows(data.decode())
            marks = [column for column in rows[0] if "exactness" in column]
            assert marks and {row[column] for row in rows for column in marks} <= known, name


def test_figures_drawn_again_have_the_same_bytes(drawn, tmp_path, monkeypatch):
    _lighten(monkeypatch)
    files = hm.reports.figures(None, tmp_path / "new" / "folder")
    assert {file.name: file.read_bytes() for file in files} == drawn
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == drawn.keys()
    for number in range(1, 8):
        assert b"CreationDate" not in drawn[f"figure-{number}.pdf"]
        assert b"<dc:date>" not in drawn[f"figure-{number}.svg"]
        for ending in ("pdf", "svg", "png"):
            assert b"hardmax figures %d --seed 0" % number in drawn[f"figure-{number}.{ending}"]


def test_a_picture_is_the_same_whichever_others_are_asked_for(drawn):
    for number, kind in ((1, "svg"), (3, "pdf"), (7, "png")):
        alone = contents(number, (kind,))
        assert alone[f"figure-{number}.{kind}"] == drawn[f"figure-{number}.{kind}"], number


def test_a_second_table_that_exists_is_refused_before_any_file_is_written(tmp_path):
    mine = tmp_path / "figure-1-cells.csv"
    mine.write_text("mine")
    with pytest.raises(WriteError, match=r"figure-1-cells\.csv: the file exists"):
        hm.reports.figures(1, tmp_path, formats=("svg",))
    assert list(tmp_path.iterdir()) == [mine] and mine.read_text() == "mine"


def test_pictures_are_print_quality(drawn):
    files = drawn
    width, height = struct.unpack(">II", files["figure-3.png"][16:24])
    assert abs(width - 300 * figure_3.SIZE[0]) <= 1 and abs(height - 300 * figure_3.SIZE[1]) <= 1
    assert b"/FontFile2" in files["figure-3.pdf"] and b"/Type3" not in files["figure-3.pdf"]
    assert b"<text" not in files["figure-3.svg"] and b"<image" not in files["figure-3.svg"]


def test_drawing_changes_no_setting_and_loads_no_windows():
    before = dict(matplotlib.rcParams)
    contents(3, ("svg",))
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys; from hardmax.show.figures.writing import contents; contents(3, ('png',)); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_settings_of_the_user_do_not_show_in_a_figure():
    plain = contents(3, ("svg",))
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 20, "lines.linewidth": 9}):
        assert contents(3, ("svg",)) == plain


def test_only_the_figures_and_who_opens_axes_import_matplotlib():
    found = set()
    for path in (REPOSITORY / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "matplotlib" for name in names):
                found.add(path.relative_to(REPOSITORY / "src/hardmax/show").parts[0])
    assert found == {"figures", "drawing.py"}


def test_the_document_holds_every_caption(values):
    page = " ".join((REPOSITORY / "docs" / "figures.md").read_text().split())
    for number, module in enumerate((figure_1, figure_2, figure_3, figure_4, figure_5, figure_6, figure_7), 1):
        caption = module.caption(values[number])
        assert f"hardmax figures {number} -o" in page
        for text in (caption.shows, caption.printed, caption.true):
            # the numbers of random draws belong to the full run
            pattern = re.sub(r"[\d.]+", r"[\\d.]+", re.escape(text).replace("\\.", ".")) if number == 6 else None
            assert re.search(pattern, page) if pattern else text in page, (number, text)


# ---- bad input ----


def test_existing_files_are_refused_without_force_and_left_alone(tmp_path, capsys):
    (tmp_path / "figure-3.svg").write_text("mine")
    with pytest.raises(WriteError, match=r"figure-3\.svg: the file exists; .*force"):
        hm.reports.figures([1, 3], tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["figure-3.svg"]
    assert main(["figures", "3", "-o", str(tmp_path)]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "figure-3.svg").read_text() == "mine"
    hm.reports.figures(3, tmp_path, formats="svg", force=True)
    assert (tmp_path / "figure-3.svg").read_text().startswith("<?xml")


def test_a_folder_that_is_a_file_is_refused_before_anything_is_drawn(tmp_path):
    (tmp_path / "taken").write_text("")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(WriteError, match="expected a folder"):
            hm.reports.figures(3, folder)


def test_a_write_that_fails_leaves_nothing_half_written(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(WriteError, match="No space left"):
        hm.reports.figures(3, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("numbers", [0, 8, [1, 9], [], [True], ["1"]])
def test_figures_that_do_not_exist_are_refused(tmp_path, numbers):
    with pytest.raises(ParameterError, match="between 1 and 7"):
        hm.reports.figures(numbers, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_formats_that_cannot_be_written_are_refused(tmp_path, capsys):
    for formats in ("jpg", [], ["png", "tiff"]):
        with pytest.raises(ParameterError, match=r"formats: expected"):
            hm.reports.figures(3, tmp_path / "none", formats=formats)
    assert main(["figures", "3", "--format", "png,bmp", "-o", str(tmp_path / "none")]) == 2
    assert "bmp" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_without_matplotlib_the_message_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'hardmax[figures]'")):
        hm.reports.figures(3, tmp_path / "none")
    assert not (tmp_path / "none").exists()


# ---- the command ----


def test_the_command_writes_what_it_says(tmp_path, capsys):
    assert main(["figures", "3", "-o", str(tmp_path), "--format", "svg", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"] == [{"number": 3, "files": ["figure-3.svg", "figure-3.csv", "figure-3.txt"]}]
    assert {file.name for file in tmp_path.iterdir()} == set(told["figures"][0]["files"])
    assert main(["figures", "3", "-o", str(tmp_path), "--format", "svg", "--force"]) == 0
    assert "3 files written" in capsys.readouterr().out


def test_the_package_is_called_as_its_function_is():
    called = list(inspect.signature(hm.reports.figures).parameters.values())
    assert called == list(inspect.signature(writing.figures).parameters.values())


def test_the_package_is_callable_whoever_imported_it_first():
    code = (
        "import hardmax.show.figures.tables, hardmax as hm\n"
        "try:\n    hm.reports.figures(9)\nexcept hm.errors.ParameterError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "between 1 and 7" in done.stdout


def test_numbers_of_the_tables_are_those_drawn(values):
    (row,) = [row for row in _rows(figure_2.tables(values[2])[""].csv()) if row["panel"] == "both layers" and
              row["domain"] == "plane"]  # fmt: skip
    columns = ("cells", "published maximum", "Serra's bound", "exactness")
    assert tuple(row[column] for column in columns) == ("34", "49", "40", "exact")
    rows = _rows(figure_4.tables(values[4])[""].csv())
    assert [(row["heads"], row["vertices"], row["sums of one key from each head, as published"]) for row in rows] == [
        ("1", "6", "6"), ("2", "36", "36"), ("3", "92", "216"),
    ]  # fmt: skip
    counts = [row["cells"] for row in _rows(figure_1.tables(values[1])[""].csv()) if row["domain"] == "plane"]
    assert counts == ["21", "64", "160"]
    panels = [row["cells"] for row in _rows(figure_7.tables(values[7])[""].csv()) if row["domain"] == "plane"]
    assert panels == ["2", "4", "7", "8", "4", "7", "16", "19"]

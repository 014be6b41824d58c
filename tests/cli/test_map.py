"""``hardmax map``: a complex in a file, a table and a drawing of it."""

import csv
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, is_one_line, run
from hardmax.cells.domains import Box
from hardmax.cli.parts.plane_svg import plane_svg
from hardmax.errors import DomainError
from hardmax.html import visible
from hardmax.networks.library import builtin

UNITS = hm.Affine([[1, 0], [0, 1], [1, 1], [1, -2]], [0, 1, 0.5, 0])
RELUS = hm.Network([UNITS, hm.ReLU(), hm.Affine([[1, 1, 0, 0]])], 2)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def relus(tmp_path):
    """A network of which two units do not reach the output, so that regions are unions of cells."""
    hm.write(RELUS, tmp_path / "relus.npz")
    return tmp_path / "relus.npz"


def _rows(table):
    with table.open() as text:
        return list(csv.DictReader(text))


def test_the_file_holds_the_cells(capsys, tmp_path):
    out = tmp_path / "cells.npz"
    code, facts = facts_of(capsys, "map", "builtin:demo", "--box", "-2", "2", "-o", out)
    cells = hm.load_cells(out)
    assert code == 0 and facts["written"] == [str(out)]
    assert cells.n_cells == facts["n_cells"] == hm.count_cells(builtin("demo"), Box([-2, -2], [2, 2]))
    assert hm.verify(cells)


def test_the_table_has_one_row_a_cell_with_the_complex_s_numbers(relus, capsys, tmp_path):
    out, table = tmp_path / "cells.npz", tmp_path / "cells.csv"
    assert run(capsys, "map", relus, "--box", "-3", "3", "-o", out, "--csv", table)[0] == 0
    cells = hm.load_cells(out)
    rows = _rows(table)
    assert [int(row["cell"]) for row in rows] == list(range(cells.n_cells))
    assert [int(row["region"]) for row in rows] == cells.region_of.tolist()
    assert [float(row["volume"]) for row in rows] == cells.volumes.tolist()
    assert {row["exactness"] for row in rows} == {"certified"}
    for index, row in enumerate(rows):
        assert [int(entry) for entry in row["label"].split()] == cells.labels[index].tolist()
        assert [float(entry) for entry in row["slope"].split()] == cells.slopes[index].ravel().tolist()
        assert cells.locate(np.array([[float(entry) for entry in row["point"].split()]])) == [index]


def test_the_drawing_has_one_polygon_a_cell_and_dashes_walls_within_regions(relus, capsys, tmp_path):
    out, drawing = tmp_path / "cells.npz", tmp_path / "cells.svg"
    assert run(capsys, "map", relus, "--box", "-3", "3", "-o", out, "--svg", drawing)[0] == 0
    cells = hm.load_cells(out)
    root = ElementTree.parse(drawing).getroot()
    paths = [path for path in root.iter(f"{SVG}path") if path.get("class") == "c"]
    assert len(paths) == cells.n_cells
    sides = cells.region_of[cells.neighbours]
    dashed = [path.get("d").count("M") for path in root.iter(f"{SVG}path") if path.get("class") == "w i"]
    assert cells.n_regions < cells.n_cells and sum(dashed) == (sides[:, 0] == sides[:, 1]).sum()


def test_names_in_a_drawing_are_text():
    cells = hm.enumerate_cells(hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1]))
    drawing = plane_svg(cells, title="</title><script>alert(1)</script>&")
    root = ElementTree.fromstring(drawing)
    assert root.find(f"{SVG}title").text == "</title><script>alert(1)</script>&"
    assert list(root.iter(f"{SVG}script")) == []


@pytest.mark.parametrize("name", ["\x1b[31mred", "bad\udcff", "line\u2028", "\x00"])
def test_a_drawing_is_well_formed_whatever_the_names(name):
    cells = hm.enumerate_cells(builtin("figure-3"), Box([-1, -1], [1, 1]))
    drawing = plane_svg(cells, title=name, marks=[(0.0, 0.0, name)])
    assert ElementTree.fromstring(drawing.encode()).find(f"{SVG}title").text == visible(name)


@pytest.mark.parametrize("size", [(1e6, 1.0), (1.0, 1e6)])
def test_a_flat_window_is_stretched_and_says_so(size):
    cells = hm.enumerate_cells(RELUS, Box([0, 0], size))
    drawing = plane_svg(cells, title="flat", marks=[(*size, "corner")])
    root = ElementTree.fromstring(drawing)
    assert "different scales" in drawing
    width, height = (float(root.findall(f"{SVG}rect")[-1].get(side)) for side in ("width", "height"))
    assert {width, height} == {900.0, 180.0}
    mark = root.find(f"{SVG}circle")
    assert (float(mark.get("cx")), float(mark.get("cy"))) == (56.0 + width, 56.0)
    assert "different scales" not in plane_svg(hm.enumerate_cells(RELUS, Box([0, 0], [1, 1])), title="")


def test_the_points_of_a_plane_are_marked(capsys, tmp_path):
    points, drawing = ["0,0", "1,0", "0.5,1"], tmp_path / "cells.svg"
    options = ["--plane", *points, "-o", tmp_path / "cells.npz", "--svg", drawing]
    assert run(capsys, "map", "builtin:demo", *options)[0] == 0
    root = ElementTree.parse(drawing).getroot()
    names = [text.text for text in root.iter(f"{SVG}text")]
    assert {f"({point})" for point in points} <= set(names)
    assert len(list(root.iter(f"{SVG}circle"))) == 3


def test_a_drawing_of_too_many_cells_is_refused(monkeypatch):
    monkeypatch.setattr("hardmax.cli.parts.plane_svg._MOST_CELLS", 3)
    cells = hm.enumerate_cells(hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1]))
    with pytest.raises(DomainError, match="4 cells are too many"):
        plane_svg(cells, title="")


def test_an_incomplete_map_is_kept_and_says_so(capsys, tmp_path):
    files = [tmp_path / name for name in ("cells.npz", "cells.csv", "cells.svg")]
    options = ["--max-cells", "7", "-o", files[0], "--csv", files[1], "--svg", files[2]]
    code, out, _ = run(capsys, "map", "builtin:demo", "--box", "-2", "2", *options)
    assert code == 3 and "stopped early" in out
    cells = hm.load_cells(files[0])
    assert (cells.n_cells, cells.is_complete) == (7, False)
    assert len(_rows(files[1])) == 7
    assert files[2].read_text().count('<path class="c"') == 7


def test_unbounded_cells_are_saved_but_not_drawn(capsys, tmp_path):
    out = tmp_path / "cells.npz"
    code, _, err = run(capsys, "map", "builtin:demo", "-o", out, "--svg", tmp_path / "cells.svg")
    assert code == 2 and is_one_line(err) and "--box" in err
    assert list(tmp_path.iterdir()) == []
    assert run(capsys, "map", "builtin:demo", "-o", out, "--csv", tmp_path / "cells.csv")[0] == 0
    assert hm.load_cells(out).n_cells == hm.count_cells(builtin("demo"), hm.Space(2))


def test_an_existing_file_is_refused_before_the_work_and_replaced_by_force(capsys, tmp_path, monkeypatch):
    out = tmp_path / "cells.npz"
    out.write_text("precious")
    arguments = ["map", "builtin:figure-3", "--box", "-1", "1", "-o", out]
    code, _, err = run(capsys, *arguments)
    assert code == 2 and is_one_line(err) and "--force" in err
    assert out.read_text() == "precious"
    assert run(capsys, *arguments, "--force")[0] == 0
    assert hm.load_cells(out).n_cells == 3
    assert [path.name for path in tmp_path.iterdir()] == ["cells.npz"]


def test_a_second_file_that_fails_says_what_was_written_before(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hardmax.cli.parts.plane_svg._MOST_CELLS", 1)
    code, _, said = run(
        capsys, "map", "builtin:demo", "--box", "-1", "1", "-o", tmp_path / "c.npz", "--svg", tmp_path / "c.svg"
    )
    assert code == 2 and (tmp_path / "c.npz").exists() and f"written before: {tmp_path / 'c.npz'}" in said

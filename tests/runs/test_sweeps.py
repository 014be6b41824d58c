"""Sweeps: every combination once, each row what the library says, and plans that are none refused by name."""

import json

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, is_one_line, run
from conftest import REPOSITORY
from hardmax.cells.subtrees import Budget
from hardmax.cli.parts import running
from hardmax.errors import FileFormatError, ParameterError, WriteError
from hardmax.runs.families import FAMILIES
from hardmax.runs.sweeps import measured, read_plan
from runs.inline_runs import Here, KilledError, killed_at_write

PLAN = """
title = "small"
[[grid]]
family = "transformer"
keys = [2, 3]
depth = 1
width = 2
seeds = 3
counts = ["cells", "regions", "maps"]
[[grid]]
family = "heads"
keys = 3
heads = [1, 2]
dim = 2
seeds = [5, 9]
[[grid]]
family = "grid"
keys = 2
dim = 2
width = 2
depth = [1, 2]
"""


def _plan(tmp_path, text=PLAN):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return file


def test_a_table_has_every_combination_once_and_the_librarys_counts(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")
    found = hm.sweep(_plan(tmp_path), tmp_path / "out", on=Here())
    assert len(found) == 6 + 4 + 2 and found.is_complete and found.table is not None
    rows = [dict(zip(found.columns, entries, strict=True)) for entries in zip(*found.columns.values(), strict=True)]
    assert [row["family"] for row in rows] == ["transformer"] * 6 + ["heads"] * 4 + ["grid"] * 2
    assert len({(row["family"], row["keys"], row["heads"], row["depth"], row["seed"]) for row in rows}) == 12
    for row in rows:
        assert row["n_cells"] <= row["upper"] and row["exactness"] == "certified"
    net, domain = FAMILIES["transformer"].question({"keys": 3, "depth": 1, "width": 2}, np.random.default_rng(2))
    cells = hm.enumerate_cells(net, domain)
    assert (rows[5]["n_cells"], rows[5]["n_regions"], rows[5]["n_maps"]) == (
        cells.n_cells,
        cells.n_regions,
        cells.n_maps,
    )
    assert rows[5]["expected"] == pytest.approx(float(hm.bounds.expected_block_cells(3, 1, 2, 2)))
    assert rows[-1]["n_cells"] == rows[-1]["expected"] == 256 and rows[-1]["n_regions"] is None
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(found.table).to_pydict() == found.columns
    again = Here()
    assert hm.sweep(_plan(tmp_path), tmp_path / "out", on=again).columns == found.columns and again.worked == []
    with pytest.raises(WriteError, match="holds another run"):
        hm.sweep(_plan(tmp_path, PLAN.replace("seeds = 3", "seeds = 4")), tmp_path / "out", on=Here())


def test_a_query_of_the_table_means_what_the_documents_say(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb, which is not installed")
    hm.sweep(_plan(tmp_path), tmp_path / "out", on=Here())
    text = (REPOSITORY / "docs" / "scale.md").read_text()
    query = text.split("```sql\n")[1].split("```")[0].replace("build/figure_6", str(tmp_path / "out"))
    assert [row[:2] for row in duckdb.sql(query).fetchall()] == [(1, 2), (1, 3)]


def test_a_sweep_that_ends_at_any_write_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")
    plan = read_plan(_plan(tmp_path))
    whole = hm.sweep(_plan(tmp_path), tmp_path / "whole", on=Here(budget=Budget(0.0, 2)))
    for end in range(0, 14, 3):
        first, second = Here(), Here()
        restore = killed_at_write(monkeypatch, end)
        with pytest.raises(KilledError):
            hm.sweep(_plan(tmp_path), tmp_path / str(end), on=first)
        restore()
        found = hm.sweep(_plan(tmp_path), tmp_path / str(end), on=second)
        assert found.columns["n_cells"] == whole.columns["n_cells"] and len(found) == len(plan)
        assert set(first.worked) & set(second.worked) <= set(first.worked[-1:])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_counted_within_its_bounds(name):
    point = (
        dict.fromkeys(FAMILIES[name].needs, 2) | {"depth": 1} if name != "heads" else {"keys": 3, "heads": 2, "dim": 2}
    )
    point = {number: value for number, value in point.items() if number in FAMILIES[name].needs}
    row = measured({"family": name, **point, "seed": 0, "counts": ["cells"]})
    assert row["n_cells"] >= 1 and row["n_cells"] <= (row["upper"] or np.inf)
    assert (row["lower"] or 0) <= (row["upper"] or np.inf)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("title", "tittle"), "unknown key 'tittle'"),
        (("width = 2\nseeds = 3", "width = 2\nwidht = 2"), "unknown key 'widht'"),
        (('family = "transformer"', 'family = "transfromer"'), "family: expected one of"),
        (("depth = 1\n", ""), "depth is missing"),
        (("keys = [2, 3]", "keys = [2, 0]"), "at least 1"),
        (("keys = [2, 3]", "keys = []"), "at least 1"),
        (("keys = [2, 3]", "keys = true"), "at least 1"),
        (("keys = [2, 3]", "keys = 2.5"), "at least 1"),
        (("seeds = 3", "seeds = -1"), "seeds: expected integers of at least 1"),
        (("seeds = 3", "seeds = 1000000000000000000"), "at most 10,000,000 rows"),
        (('counts = ["cells", "regions", "maps"]', 'counts = ["regions"]'), "counts: expected cells"),
        (("seeds = [5, 9]", 'counts = ["cells", "maps"]'), "joint cells alone"),
        (("depth = [1, 2]\n", "depth = [1, 2]\nseeds = 2\n"), "unknown key 'seeds'"),
    ],
)
def test_a_plan_with_an_error_is_refused_before_any_work(change, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PLAN.count(change[0]) == 1
    file = _plan(tmp_path, PLAN.replace(*change))
    with pytest.raises(ParameterError, match=words):
        read_plan(file)
    code, out, err = run(capsys, "sweep", file)
    assert code == 2 and out == "" and is_one_line(err) and words in err
    assert not (tmp_path / "plan").exists()


def test_files_that_are_no_plans_are_refused(tmp_path):
    for text, words in (
        ("grid = 3", "at least one table"),
        ("[[grid", "TOML"),
        ("\x00", "TOML"),
        ("title = 'x'", "at least"),
    ):
        with pytest.raises((ParameterError, FileFormatError), match=words):
            read_plan(_plan(tmp_path, text))
    with pytest.raises(FileFormatError, match="no such file"):
        read_plan(tmp_path / "absent.toml")


def test_the_command_writes_the_table_beside_a_summary(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running.Running, "resources", lambda self: Here())
    code, facts = facts_of(capsys, "sweep", _plan(tmp_path))
    assert code == 0 and facts["rows"] == 12 and facts["is_complete"] and facts["folder"] == "plan"
    last = facts["points"][-1]
    assert (last["family"], last["depth"], last["seeds"]) == ("grid", 2, 1) and last["upper"] >= last["expected"]
    assert last["least"] == last["median"] == last["largest"] == last["expected"] == 256
    code, out, err = run(capsys, "sweep", _plan(tmp_path))
    assert (code, err) == (0, "") and "12 rows (counts certified) written to plan/table.parquet" in out
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["kind"] == "sweep"


def test_the_plans_of_the_studies_can_be_read():
    figure, growth = (read_plan(REPOSITORY / "studies" / f"{name}.toml") for name in ("figure_6", "region_growth"))
    assert len(figure) == 100 * (4 * 2 + 6 * 3) and len(growth) == 48 + 40 * 7 * (4 + 2 + 1 + 1)


def test_a_bound_beyond_all_floats_is_left_out():
    deep = {"family": "relu", "width": 9, "dim": 1, "depth": 400, "seed": 0, "counts": ["cells"]}
    assert measured(deep)["upper"] is None and measured(deep)["n_cells"] >= 1

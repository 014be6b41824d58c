"""The studies run, and their tables hold what they compute."""

import csv
import importlib.util

import pytest

from conftest import REPOSITORY
from hardmax.runs.sweeps import measured, read_plan

STUDIES = REPOSITORY / "studies"


def _study(name):
    specification = importlib.util.spec_from_file_location(name, STUDIES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _rows(name):
    with (STUDIES / f"{name}.csv").open() as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def region_growth():
    return _study("region_growth")


@pytest.fixture(scope="module")
def table():
    return _rows("region_growth")


def _summary(region_growth, rows):
    done = [measured(row) for row in rows]
    return region_growth.summary({name: [row[name] for row in done] for name in done[0]})


def test_constructed_networks_have_the_published_counts(region_growth, table):
    plan = read_plan(STUDIES / "region_growth.toml")
    rows = _summary(region_growth, [row for row in plan if row["family"] in ("digits", "zigzag", "tent")])
    published = [row for row in table[1:] if row[0] == "built"]
    assert [[str(entry) for entry in row] for row in rows] == published


def test_the_random_parts_run_and_lie_within_the_published_range(region_growth, table):
    plan = read_plan(STUDIES / "region_growth.toml")
    rows = _summary(
        region_growth, [row for row in plan if row["family"].startswith(("residual", "sequence")) and row["seed"] == 0]
    )
    published = {(row[0], row[1], row[2]): row for row in table[1:] if row[0] != "built"}
    assert len(rows) == len(published)
    for part, family, depth, _, _, count, _, _ in rows:
        row = published[part, family, str(depth)]
        assert int(row[6]) <= count <= int(row[7])


@pytest.mark.parametrize(
    "family, dim, size", [("smooth", 3, 2), ("lipschitz", 2, 2), ("squares", 3, 2), ("max-min", 2, 4)]
)
def test_rates_of_approximation_are_those_in_the_table(family, dim, size, monkeypatch):
    study = _study("approximation")
    monkeypatch.setattr(study, "MOST_TOKENS", 0)  # the search for the least beta takes seconds
    found = [str(entry) for entry in study.row(family, dim, size)]
    published = {tuple(row[:3]): row for row in _rows("approximation")}[tuple(found[:3])]
    assert found[:9] == published[:9]
    assert [float(x) for x in found[9:11]] == pytest.approx([float(x) for x in published[9:11]], rel=1e-4)
    assert float(found[10]) <= float(found[9]) * (1 + 1e-9)


def test_deep_networks_have_the_published_counts_and_means_lie_within_three_standard_errors():
    study, published = _study("theory"), _rows("theory")
    assert [[str(entry) for entry in row] for row in study.deep()] == [row for row in published if row[0] == "deep"]
    means = [row for row in published if row[0] == "mean cells"]
    assert len(means) == 30
    for _, _, theory, mean, error in means:
        assert abs(float(theory) - float(mean)) <= 3 * float(error) + 1e-9

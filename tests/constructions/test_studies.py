"""The studies run, and their tables hold what they compute."""

import csv
import importlib.util

import pytest

from conftest import REPOSITORY
from hardmax.runs.sweeps import measured, read_plan

STUDY = REPOSITORY / "studies" / "region_growth.py"


@pytest.fixture(scope="module")
def region_growth():
    specification = importlib.util.spec_from_file_location("region_growth", STUDY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table():
    with STUDY.with_suffix(".csv").open() as file:
        return list(csv.reader(file))


def _summary(region_growth, rows):
    done = [measured(row) for row in rows]
    return region_growth.summary({name: [row[name] for row in done] for name in done[0]})


def test_constructed_networks_have_the_published_counts(region_growth, table):
    plan = read_plan(STUDY.with_suffix(".toml"))
    rows = _summary(region_growth, [row for row in plan if row["family"] in ("digits", "zigzag", "tent")])
    published = [row for row in table[1:] if row[0] == "built"]
    assert [[str(entry) for entry in row] for row in rows] == published


def test_the_random_parts_run_and_lie_within_the_published_range(region_growth, table):
    plan = read_plan(STUDY.with_suffix(".toml"))
    rows = _summary(
        region_growth, [row for row in plan if row["family"].startswith(("residual", "sequence")) and row["seed"] == 0]
    )
    published = {(row[0], row[1], row[2]): row for row in table[1:] if row[0] != "built"}
    assert len(rows) == len(published)
    for part, family, depth, _, _, count, _, _ in rows:
        row = published[part, family, str(depth)]
        assert int(row[6]) <= count <= int(row[7])

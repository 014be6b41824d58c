"""The study of real models runs, and its table and text say what the models do."""

import csv
import importlib.util

import numpy as np
import pytest
from scipy.stats import spearmanr

import hardmax as hm
from conftest import REPOSITORY

STUDY = REPOSITORY / "studies" / "real_models.py"

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def study():
    specification = importlib.util.spec_from_file_location(STUDY.stem, STUDY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table():
    with open(STUDY.with_suffix(".csv"), newline="") as file:
        return list(csv.DictReader(file))


def _rows(table, model, scope):
    return [row for row in table if (row["model"], row["scope"]) == (model, scope)]


def test_the_table_has_every_head_of_every_model(study, table):
    assert tuple(table[0]) == study.COLUMNS
    for model, layers, heads in [("MiniLM", 6, 12), ("SCEPTR", 3, 8), ("SCEPTR tiny", 3, 8), ("SmolLM2", 30, 9)]:
        assert [(row["layer"], row["head"]) for row in _rows(table, model, "head")] == [
            (str(layer), str(head)) for layer in range(layers) for head in range(heads)
        ]
        (whole,), steps = _rows(table, model, "model"), _rows(table, model, "ranked")
        assert steps[0]["relative error"] == "0" and steps[-1]["heads hard"] == str(layers * heads)
        path = {float(row["temperature"]): row for row in _rows(table, model, "temperature")}
        for same in (steps[-1], path[0.0]):
            assert all(same[name] == whole[name] for name in study.MEASURES)
        assert path[1.0]["relative error"] == "0" and float(path[1.0]["agreement"]) == 1.0
        for row in _rows(table, model, "head"):
            live, reachable, chosen = (int(row[name]) for name in ("live", "reachable from hull", "chosen"))
            assert 0 < reachable <= live <= int(row["keys"]) and 0 < chosen <= int(row["keys"])


def test_the_table_is_about_the_models_that_are_installed(study, table):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("sceptr", reason="needs sceptr, which is not installed")
    torch.set_num_threads(1)
    load, inputs = study.models()["SCEPTR tiny"]
    model = load()
    trial = study.Trial("SCEPTR tiny", model, inputs)
    again = [trial.row("model", trial.runs.heads)]
    again += [trial.row("layer", [(layer, head) for head in range(8)], layer=layer) for layer in range(3)]
    published = _rows(table, "SCEPTR tiny", "model") + _rows(table, "SCEPTR tiny", "layer")
    for mine, theirs in zip(again, published, strict=True):
        assert mine["relative error"] == pytest.approx(float(theirs["relative error"]), rel=1e-3)
        assert mine["agreement"] == float(theirs["agreement"])
    (first,) = [row for row in _rows(table, "SCEPTR tiny", "head") if (row["layer"], row["head"]) == ("1", "4")]
    numbers = hm.analyse_heads(hm.capture(model, inputs)).head(1, 4).numbers()
    for column, key in study.GEOMETRY.items():
        assert numbers[key] == pytest.approx(float(first[column]), rel=0.02), column


def test_the_text_quotes_the_table(study, table):
    text = (STUDY.parent / "README.md").read_text().split("`real_models.py`", 1)[1].split("\n## ", 1)[0]
    quoted = {
        cells[0].strip(): [cell.strip() for cell in cells[1:]]
        for cells in (line.strip("|").split("|") for line in text.splitlines() if line.startswith("|"))
    }
    names = quoted[""]
    assert names == ["MiniLM", "SCEPTR", "SCEPTR tiny", "SmolLM2"]
    for position, name in enumerate(names):
        (whole,) = _rows(table, name, "model")
        assert quoted["relative error, every head hard"][position] == f"{float(whole['relative error']):.2f}"
        (uniform,) = [row for row in _rows(table, name, "temperature") if float(row["temperature"]) == study.UNIFORM]
        assert quoted["relative error, uniform attention"][position] == f"{float(uniform['relative error']):.2f}"
        for row, words in ((whole, "every head hard"), (uniform, "uniform attention")):
            assert quoted[f"decisions kept, {words}"][position] == f"{100 * float(row['agreement']):.0f}%"
        heads = _rows(table, name, "head")
        names_of_columns = ("relative error", *study.GEOMETRY)
        columns = {column: np.array([float(row[column]) for row in heads]) for column in names_of_columns}
        live, reachable, chosen = (
            f"{100 * columns[column].sum() / columns['keys'].sum():.0f}%"
            for column in ("live", "reachable from hull", "chosen")
        )
        assert quoted["keys that are live, reachable"][position] == f"{live}, {reachable}"
        assert quoted["keys chosen by some query"][position] == chosen
        assert quoted["rows with a certificate"][position] == f"{100 * columns['certified share'].mean():.0f}%"
        errors = columns["relative error"]
        assert quoted["relative error, one head hard: median"][position] == f"{np.median(errors):.2f}"
        margins = columns["median margin"] / columns["temperature of the head"]
        for what, values in (("margin", margins), ("entropy", columns["mean entropy"])):
            expected = f"{spearmanr(values, errors).statistic:.2f}"
            assert quoted[f"rank correlation of a head's error with its {what}"][position] == expected

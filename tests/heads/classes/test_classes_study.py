"""The study of classes that can never be the answer runs on small files, and its tables agree with its text."""

import csv
import importlib.util
import json

import numpy as np
import pytest

import hardmax as hm
from conftest import REPOSITORY

STUDY = REPOSITORY / "studies" / "classes.py"


@pytest.fixture(scope="module")
def study():
    specification = importlib.util.spec_from_file_location("classes_study", STUDY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _table(name):
    with open(STUDY.with_name(name), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a head of five classes, one dead, as an unpacked wheel."""
    folder = tmp_path / "small_head"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    rows = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0.1, 0]], dtype="<f4")
    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [5, 2], "data_offsets": [0, 40]}}).encode()
    (folder / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + rows.tobytes())
    (folder / "names.txt").write_text("一\n丁\n七\n万\n丈\n", encoding="utf-8")
    return tmp_path


def test_models_are_found_in_packages_and_audited(study, package, tmp_path, monkeypatch, capsys):
    entry = ("small_head", "small-head 1.0", "m.safetensors", "lm_head.weight", "names.txt")
    monkeypatch.setitem(study.PACKAGES, "small", entry)
    out = tmp_path / "found.csv"
    monkeypatch.setattr("sys.argv", ["classes.py", "--models", "small", "--packages", str(package), "--out", str(out)])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    study.main()
    (row,) = csv.DictReader(out.read_text(encoding="utf-8").splitlines())
    assert (row["classes"], row["live"], row["dead"], row["undecided"], row["exactness"]) == (
        "5",
        "4",
        "1",
        "0",
        "certified",
    )
    assert (tmp_path / "found_dead.csv").read_text(encoding="utf-8") == "model,class,name\nsmall,4,丈\n"
    assert "dead 1" in capsys.readouterr().out


def test_groups_are_of_one_size_and_matched_by_length(study):
    rng = np.random.default_rng(1)
    rows = np.vstack([rng.normal(size=(40, 8)), 0.01 * rng.normal(size=(8, 8))])
    names = [chr(0x4E00 + i) for i in range(47)] + ["A"]
    audit = hm.audit_classes(rows, np.append(np.zeros(40), np.full(8, -1.0)), names=names)
    groups = study.groups_of(audit)
    dead, matched, drawn = (groups[name] for name in ("dead", "live, matched", "live, random"))
    assert audit.dead[dead].all() and 47 not in dead and audit.live[matched].all() and audit.live[drawn].all()
    assert len(dead) == len(matched) == len(drawn) == len(set(matched.tolist())) == len(set(drawn.tolist()))
    lengths = np.sqrt((rows**2).sum(axis=1))
    assert np.median(lengths[matched]) <= np.median(lengths[audit.live])


def test_twins_are_rows_that_almost_agree(study):
    rows = np.vstack([np.eye(2), -np.eye(2), [[0.1, 0.1], [0.1, 0.1 + 1e-9], [0.05, 0.0]]])
    audit = hm.audit_classes(rows, np.append(np.zeros(4), np.full(3, -1.0)))
    assert audit.n_dead == 3 and study.twins(audit) == 2


def test_reading_counts_a_class_that_wins_a_step(study):
    audit = hm.audit_classes(np.eye(8), np.zeros(8))
    features = np.zeros((2, 3, 8), dtype=np.float32)
    features[0, 1, 3] = 5.0  # the second step says class 3
    features[1, :, 2] = 9.0
    first, second = study.read_with(features, audit, audit.bias, [3, 6])
    assert first[:2] == (True, True) and not second[0]
    raised = np.where(np.arange(8) == 6, 10.0, 0.0)
    assert study.read_with(features, audit, raised, [3, 6])[1][0]


def test_the_tables_are_whole(study):
    found = {row["model"]: row for row in _table("classes.csv")}
    dead = [row["model"] for row in _table("classes_dead.csv")]
    for name, row in found.items():
        assert int(row["live"]) + int(row["dead"]) + int(row["undecided"]) == int(row["classes"])
        assert dead.count(name) == int(row["dead"])
    assert (found["PP-OCRv4"]["dead"], found["PP-OCRv6 tiny"]["dead"]) == ("202", "184")
    for row in _table("classes_reading.csv"):
        assert int(row["read"]) <= int(row["among five best"]) <= int(row["tried"])
        if row["group"] == "dead" and row["bias"] == "as published":
            assert row["read"] == "0"

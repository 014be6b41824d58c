"""The studies of the shipped model run, and their tables are about the model that ships."""

import csv
import importlib.util
from math import comb

import numpy as np
import pytest

import hardmax as hm
from conftest import REPOSITORY
from hardmax.networks.lookup import lookup_examples

STUDY = REPOSITORY / "studies" / "lookup_training.py"


def _module(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def study():
    return _module(STUDY)


@pytest.fixture(scope="module")
def every_input():
    return _module(STUDY.with_name("lookup_every_input.py"))


@pytest.fixture(scope="module")
def table(study):
    return study.read_table(STUDY.with_suffix(".csv"))


def test_the_table_ends_at_the_shipped_model(study, table):
    inputs, labels, _ = lookup_examples(500, rng=np.random.default_rng(2024))
    probes = study.probes(np.random.default_rng(7))
    shipped = hm.dynamics.snapshot(hm.builtin("lookup"), probes, inputs=inputs, labels=labels, queries=(-1,))
    last = max(row["step"] for row in table)
    published = {
        (row["subject"], row["quantity"]): row["value"] for row in table if (row["seed"], row["step"]) == (0, last)
    }
    assert published.keys() - {(r.subject, r.quantity) for r in shipped} == {("model", "loss")}
    for record in shipped:
        assert published[record.subject, record.quantity] == pytest.approx(record.value, rel=1e-6), record


def test_every_number_of_the_table_says_how_far_it_can_be_trusted(table):
    exactness = {quantity: set() for quantity in {row["quantity"] for row in table}}
    for row in table:
        exactness[row["quantity"]].add(row["exactness"])
    assert exactness["cells"] == exactness["live_keys"] == {"certified"}
    assert exactness["loss"] == exactness["hard_accuracy"] == {"estimated"}
    assert all(len(kinds) == 1 for kinds in exactness.values())


@pytest.mark.extras
def test_a_short_run_trains_records_and_draws(study, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    pytest.importorskip("matplotlib", reason="needs matplotlib, which is not installed")
    out = tmp_path / "short.csv"
    study.main(["--seeds", "0", "--steps", "2", "--examples", "4", "--out", str(out)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.csv", "short.png", "short.svg"]
    rows = study.read_table(out)
    assert {row["step"] for row in rows} == {0, 1, 2} and {row["seed"] for row in rows} == {0}
    assert len({row["subject"] for row in rows if row["quantity"] == "cells"}) == 20
    with pytest.raises(SystemExit, match="give --force"):
        study.main(["--out", str(out)])


@pytest.mark.extras
def test_training_watched_is_training_unwatched(study):
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    script = study.training_script()
    inputs = lookup_examples(5, rng=np.random.default_rng(0)).inputs.astype(np.float32)
    recorder, _ = study.record(0, 3, 4)
    watched = []
    models = [
        script.train(0, 3),
        script.train(0, 3, lambda step, model, loss: watched.append(hm.from_torch(model, inputs[:2]))),
    ]
    one, other = (hm.from_torch(model, inputs[:2])(inputs) for model in models)
    assert np.array_equal(one, other) and len(watched) == 4
    assert [step for step, _ in recorder.series("model", "loss")] == [0, 1, 2, 3]


@pytest.mark.extras
@pytest.mark.slow
def test_a_twelfth_of_the_training_is_enough_to_learn_the_task(study):
    """Full training, half a minute, ends at 100% (training/README.md); the tests can afford this much."""
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    script = study.training_script()
    inputs, labels, _ = lookup_examples(2000, rng=np.random.default_rng(8))
    net = hm.from_torch(script.train(1, 400), inputs[:2].astype(np.float32))
    assert script.accuracy(net, inputs, labels, temperature=1.0) > 0.98


# ---- every input ----


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_five_questions_at_once_are_answered_as_one_by_one(every_input, temperature):
    net = hm.builtin("lookup")
    x = lookup_examples(50, rng=np.random.default_rng(4)).inputs
    keys, values = x[:, :5, :8].argmax(axis=2), x[:, :5, 8:].argmax(axis=2)
    maps = every_input.maps_of(net)
    together, gaps = every_input.logits(maps, every_input.embedded(maps, keys, values), temperature)
    for position in range(5):
        x[:, -1] = np.eye(16)[keys[:, position]]
        np.testing.assert_allclose(together[:, position], net(x, temperature), rtol=0, atol=1e-10)
    assert np.isinf(gaps).all() if temperature else (gaps > 0).all()


def test_every_context_is_listed_once(every_input):
    sets = [tuple(keys[0]) for keys, _ in every_input.contexts()]
    values = next(every_input.contexts())[1]
    assert len(set(sets)) == len(sets) == comb(8, 5)
    assert len({tuple(row) for row in values.tolist()}) == len(values) == 8**5


def test_the_table_of_every_input_is_complete_and_fits_a_sample(every_input, tmp_path):
    with STUDY.with_name("lookup_every_input.csv").open(newline="") as file:
        soft, hard = csv.DictReader(file)
    assert int(soft["inputs"]) == int(hard["inputs"]) == comb(8, 5) * 8**5 * 5 == int(soft["right"])
    inputs, labels, _ = lookup_examples(4000, rng=np.random.default_rng(9))
    sampled = np.mean(hm.builtin("lookup")(inputs, temperature=0.0).argmax(axis=1) == labels)
    assert int(hard["right"]) / int(hard["inputs"]) == pytest.approx(sampled, abs=0.02)
    logit_error, score_error = every_input.rounding_errors(every_input.maps_of(hm.builtin("lookup")))
    assert float(hard["smallest logit gap"]) > logit_error and float(hard["smallest score gap"]) > score_error
    assert (soft["exactness"], hard["exactness"]) == ("estimated", "certified")
    every_input.main(["--contexts", "4096", "--out", str(tmp_path / "short.csv")])
    assert (tmp_path / "short.csv").read_text().count("\n") == 3

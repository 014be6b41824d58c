"""``hardmax skeleton``: the hard model, why it differs, and how much."""

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, inputs, is_one_line, run, soft_network


@pytest.fixture
def soft(tmp_path):
    path = tmp_path / "soft.npz"
    hm.write(soft_network(), path)
    return path


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    labels = soft_network()(inputs()).argmax(axis=1)
    labels[0] = (labels[0] + 1) % 3
    np.savez(path, inputs=inputs(), labels=labels)
    return path


def test_changes_are_printed_with_their_reasons(soft, capsys):
    code, out, err = run(capsys, "skeleton", soft)
    assert (code, err) == (0, "")
    assert out.count("became Hardmax: its limit at temperature zero") == 2


def test_a_hard_model_is_its_own_skeleton(capsys):
    assert run(capsys, "skeleton", "builtin:demo")[1] == "builtin:demo: already hard, nothing was changed\n"


def test_the_hard_model_is_written(soft, capsys, tmp_path):
    out = tmp_path / "hard.npz"
    assert run(capsys, "skeleton", soft, "-o", out)[0] == 0
    assert hm.read(out).temperature == 0
    assert np.array_equal(hm.read(out)(inputs()), hm.skeleton(soft_network())(inputs()))


@pytest.mark.extras
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_hard_model_runs_elsewhere(dtype, soft, capsys, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    out = tmp_path / "hard.onnx"
    assert run(capsys, "skeleton", soft, "-o", out, "--dtype", dtype)[0] == 0
    session = runtime.InferenceSession(out, providers=["CPUExecutionProvider"])
    found = session.run(None, {"input": inputs().astype(dtype)})[0]
    assert np.abs(found - hm.skeleton(soft_network())(inputs())).max() < 1e-5


def test_the_fidelity_is_the_library_s(soft, data, capsys):
    code, facts = facts_of(capsys, "skeleton", soft, "--inputs", data, "--max-loss", "0.2")
    found = facts["fidelity"]
    labels = np.load(data)["labels"]
    whole = hm.fidelity.compare(soft_network(), inputs(), labels)
    assert code == 0
    assert found["n_inputs"] == 12 and found["exactness"] == "estimated"
    for key in ("relative_error", "kl", "agreement", "soft_accuracy", "hard_accuracy"):
        assert found["whole"][key] == pytest.approx(getattr(whole, key))
        for row in (found["whole"], *found["by_layer"], *found["by_head"], found["greedy"]):
            assert row["intervals"][key][0] <= row[key] <= row["intervals"][key][1]
        assert found["whole"]["intervals"][key] == pytest.approx(whole.interval(key))
    assert found["whole"]["soft_accuracy"] == pytest.approx(11 / 12)
    assert [(row["layer"], row["head"]) for row in found["by_head"]] == [(0, 0), (0, 1)]
    assert len(found["by_layer"]) == 1
    best = hm.fidelity.greedy(soft_network(), inputs(), 0.2, labels)[-1]
    assert [tuple(pair) for pair in found["greedy"]["heads"]] == list(best.heads)


def test_people_get_a_table_with_every_head(soft, data, capsys):
    _, out, err = run(capsys, "skeleton", soft, "--inputs", data)
    assert err == ""
    for words in (
        "soft against hard on 12 inputs (estimated)",
        "all of it",
        "layer 0 head 1",
        "accuracy",
        "divergence",
    ):
        assert words in out
    whole = hm.fidelity.compare(soft_network(), inputs())
    assert f"{whole.kl:.4f} +- {whole.interval('kl')[1] - whole.kl:.4f}" in out
    brief = run(capsys, "skeleton", soft, "--inputs", data, "--brief")[1]
    assert "all of it" in brief and "layer 0" not in brief.split("all of it")[1]


def test_labels_may_come_from_a_table_of_their_own(soft, data, capsys, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("label\n" + "\n".join("0" for _ in range(12)) + "\n")
    _, facts = facts_of(capsys, "skeleton", soft, "--inputs", data, "--labels", labels, "--brief")
    expected = float((soft_network()(inputs()).argmax(axis=1) == 0).mean())
    assert facts["fidelity"]["whole"]["soft_accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("labels", "words"),
    [("0\n1\n", "(12,)"), ("0.5\n" * 12, "integers"), ("7\n" * 12, "0 to 2"), ("a\n" * 12, "numbers")],
)
def test_labels_that_do_not_fit_are_refused(labels, words, soft, data, capsys, tmp_path):
    (tmp_path / "labels.csv").write_text(labels)
    options = ["--inputs", data, "--labels", tmp_path / "labels.csv", "-o", tmp_path / "hard.npz"]
    code, out, err = run(capsys, "skeleton", soft, *options)
    assert (code, out) == (2, "") and is_one_line(err) and words in err
    assert not (tmp_path / "hard.npz").exists()


def test_the_shipped_model_comes_with_examples(capsys):
    code, facts = facts_of(capsys, "skeleton", "builtin:lookup", "--inputs", "builtin:lookup", "--brief")
    assert code == 0 and facts["fidelity"]["n_inputs"] == 400
    assert facts["fidelity"]["whole"]["soft_accuracy"] > 0.99
    arguments = ["builtin:lookup", "--inputs", "builtin:lookup", "--segment", "0", "1"]
    assert facts_of(capsys, "count", *arguments)[1]["n_cells"] > 10


def test_comparing_a_hard_model_is_refused(data, capsys):
    code, _, err = run(capsys, "skeleton", "builtin:demo", "--inputs", data)
    assert code == 2 and is_one_line(err) and "hard already" in err

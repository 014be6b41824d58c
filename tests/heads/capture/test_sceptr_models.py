"""SCEPTR with its published weights: every head of every variant, and damaged files."""

import pickle
import sys

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, FileFormatError, MissingExtraError, ParameterError
from heads.capture.agreement import worst_difference

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
pytest.importorskip("sceptr", reason="needs sceptr, which is not installed")

pytestmark = pytest.mark.extras

RECEPTORS = [
    {"TRAV": "TRAV38-1*01", "CDR3A": "CAHRSAGGGTSYGKLTF", "TRBV": "TRBV2*01", "CDR3B": "CASSEFQGDNEQFF"},
    {"TRAV": "TRAV3*01", "CDR3A": "CAVDNARLMF", "TRBV": "TRBV25-1*01", "CDR3B": "CASSDGSFNEQFF"},
    {"TRAV": "TRAV13-2*01", "CDR3A": "CAERIRKGQVLTGGGNKLTF", "TRBV": "TRBV9*01", "CDR3B": "CASSVGDLLTGELFF"},
]


@pytest.fixture
def unfused():
    """torch without its fused path, which rounds differently; the modules compute their weights without it."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def _own_weights(model, receptor):
    """Per layer the weights that the model's own attention modules return."""
    found = []
    with torch.no_grad():
        tokens = model.tokens_of(receptor)[None]
        x = model.bert._embed(tokens).to(next(model.bert.parameters()).dtype)
        stack = model.bert._self_attention_stack
        if hasattr(stack, "_initial_projector"):
            x, stack = stack._initial_projector(x), stack._standard_stack
        for layer in stack._self_attention_stack.layers:
            found.append(layer.self_attn(x, x, x, average_attn_weights=False)[1][0])
            x = layer(x)
    return found


@pytest.mark.parametrize("variant", hm.models.SCEPTR_VARIANTS)
def test_scores_reproduce_the_models_own_weights_in_every_variant(variant, unfused):
    model = hm.models.sceptr(variant)
    captures = model.capture(RECEPTORS)
    assert len(captures) == 3
    for capture, receptor in zip(captures, RECEPTORS, strict=True):
        own = _own_weights(model, receptor)
        assert capture.n_layers == len(own) >= 3
        assert worst_difference(capture, lambda layer, head, of=own: of[layer][head]) < 1e-5


def test_the_variants_are_those_of_the_package():
    from sceptr import variant

    assert set(hm.models.SCEPTR_VARIANTS) == {name for name in vars(variant) if not name.startswith(("_", "load"))}


def test_the_tiny_variant_has_heads_in_the_plane():
    (capture,) = hm.models.sceptr("tiny").capture(RECEPTORS[0])
    assert {head.queries.shape[1] for head in capture.heads} == {2}
    assert len(capture.heads) == 24
    assert capture.tokens[:3] == ("[CLS]", "CDR1A T1", "CDR1A S2")
    assert capture.tokens[-1] == "CDR3B F14"


def test_either_precision_may_be_asked_for():
    (single,) = hm.models.sceptr("tiny").capture(RECEPTORS[0])
    (double,) = hm.models.sceptr("tiny", precision="double").capture(RECEPTORS[0])
    difference = worst_difference(single, lambda layer, head: double.head(layer, head).weights)
    assert 1e-9 < difference < 1e-4
    with pytest.raises(ParameterError, match="'single' or 'double', got 'half'"):
        hm.models.sceptr("tiny", precision="half")


def test_single_precision_does_not_serve_the_left_aligned_variant(unfused):
    model = hm.models.sceptr("left_aligned", precision="single")
    (single,) = model.capture(RECEPTORS[0])
    (double,) = hm.models.sceptr("left_aligned").capture(RECEPTORS[0])
    assert worst_difference(single, lambda layer, head: double.head(layer, head).weights) > 1e-5


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_last_layer_leads_to_the_packages_own_embedding():
    from sceptr import variant

    pandas = pytest.importorskip("pandas", reason="needs pandas, which is not installed")
    frame = pandas.DataFrame(RECEPTORS)
    theirs = variant.tiny().calc_vector_representations(frame)
    model = hm.models.sceptr("tiny")
    for receptor, expected in zip(RECEPTORS, theirs, strict=True):
        with torch.no_grad():
            ours = model.bert.get_vector_representations_of(model.tokens_of(receptor)[None])[0]
        assert np.allclose(ours, expected, atol=1e-6)
    assert [c.tokens for c in model.capture(frame)] == [c.tokens for c in model.capture(RECEPTORS)]


def test_a_text_is_the_cdr3_of_the_chain_that_the_variant_reads():
    (beta,) = hm.models.sceptr("tiny").capture("CASSEFQGDNEQFF")
    (alpha,) = hm.models.sceptr("a_sceptr").capture("CAVDNARLMF")
    assert len(beta.tokens) == 15
    assert len(alpha.tokens) == 11


@pytest.mark.parametrize(
    ("receptors", "error", "says"),
    [
        ("", EmptyError, "expected some of TRAV"),
        ([], EmptyError, "at least one receptor"),
        ({"gene": "TRBV2*01"}, EmptyError, "expected some of TRAV"),
        ({"CDR3B": None}, EmptyError, "expected some of TRAV"),
        ({"TRBV": "NOPE"}, ParameterError, "BadV in chain B"),
        ("CASS1NOT", ParameterError, "BadJunction in chain B"),
        (["CASSEFQGDNEQFF", 7], ParameterError, "receptor 1: expected a mapping or a text"),
        (7, ParameterError, "got a int"),
    ],
)
def test_receptors_that_are_none_are_refused(receptors, error, says):
    with pytest.raises(error, match=says):
        hm.models.sceptr("tiny").capture(receptors)


def test_a_receptor_without_the_chain_that_the_variant_reads_is_refused():
    with pytest.raises(ParameterError, match="TRA information"):
        hm.models.sceptr("a_sceptr").capture({"CDR3B": "CASSEFQGDNEQFF"})


def test_an_unknown_variant_is_answered_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"'huge'; expected one of default, .*tiny"):
        hm.models.sceptr("huge")


@pytest.fixture
def folder(tmp_path):
    from hardmax.heads.capture.packages import package_folder

    place = package_folder(None, "sceptr", "_model_saves/SCEPTR_tiny")
    for name in ("config.json", "state_dict.pt"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    return tmp_path


class _Bomb:
    def __reduce__(self):
        return (sys.exit, ("unpickled",))


def test_a_folder_of_ones_own_is_read(folder):
    assert repr(hm.models.sceptr("tiny", folder)) == "ReceptorModel(SCEPTR (tiny), width 16)"


@pytest.mark.parametrize("bare", [False, True])
def test_nothing_but_tensors_is_ever_unpickled(folder, bare):
    if bare:
        (folder / "state_dict.pt").write_bytes(pickle.dumps(_Bomb()))
    else:
        torch.save({"weight": _Bomb()}, folder / "state_dict.pt")
    with pytest.raises(FileFormatError, match="tensors, which are all that is ever read"):
        hm.models.sceptr("tiny", folder)


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_truncated_weights_are_a_damaged_file(folder, size):
    (folder / "state_dict.pt").write_bytes((folder / "state_dict.pt").read_bytes()[:size])
    with pytest.raises(FileFormatError, match=r"damaged.*--force-reinstall sceptr"):
        hm.models.sceptr("tiny", folder)


def test_weights_of_another_variant_are_refused(folder):
    changed = (folder / "config.json").read_text().replace('"d_model": 16', '"d_model": 32')
    (folder / "config.json").write_text(changed)
    with pytest.raises(FileFormatError, match="damaged or of another model"):
        hm.models.sceptr("tiny", folder)


@pytest.mark.parametrize("name", ["config.json", "state_dict.pt"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileFormatError, match=f"{name}: expected a file of SCEPTR, found none"):
        hm.models.sceptr("tiny", folder)


@pytest.mark.parametrize("absent", ["torch", "libtcrlm.config_reader"])
def test_without_a_library_the_pip_line_is_named(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hardmax\[torch,models\]'"):
        hm.models.sceptr()


def test_without_the_package_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sceptr", None)
    with pytest.raises(MissingExtraError, match=r"which is not installed: pip install 'hardmax\[torch,models\]'"):
        hm.models.sceptr()

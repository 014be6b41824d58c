"""The explorer's page as text: what it holds, what it refuses, and that it is one closed file."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hardmax as hm
from hardmax.cli import main
from hardmax.networks.layers import Affine, Attention, Head, Maxout, ReLU, Residual
from hardmax.networks.library import builtin, builtin_names, random_transformer
from hardmax.networks.network import Network
from hardmax.show.explorer import page as explorer
from hardmax.show.explorer.layers import network_of, page_layers
from hardmax.show.explorer.presets import _NETWORKS, presets

PRESETS = presets()
PAGES = Path(explorer.__file__).with_name("pages")


@pytest.fixture(scope="module")
def text():
    return explorer.explorer_html()


def _data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


# ---- the file ----


def test_the_page_is_one_file_that_fetches_nothing(text):
    assert len(text) < 5_000_000
    addresses = set(re.findall(r"https?://[^\s\"'`<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}  # never fetched
    assert not re.search(r"<(?:link|img|iframe|object)\b|\bsrc=|@import|url\(", text)


def test_the_policy_allows_the_page_s_own_scripts_and_style_by_hash_and_nothing_else(text):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and rules["worker-src"] == "blob:" and "unsafe" not in policy
    scripts = re.findall(r"<script(?: id=\"exact\")?>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert rules["script-src"].split() == [_hash(script) for script in scripts] and len(scripts) == 2
    assert rules["style-src"] == _hash(style)


def _hash(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_every_script_of_the_folder_is_in_the_page_once(text):
    names = sorted(path.stem for path in PAGES.glob("*.js"))
    assert sorted([*explorer._EXACT, *explorer._SCRIPTS]) == names
    assert all(text.count((PAGES / f"{name}.js").read_text()) == 1 for name in names)


def test_no_script_turns_text_into_markup_or_code():
    risky = re.compile(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function")
    assert [path.name for path in PAGES.glob("*.js") if risky.search(path.read_text())] == []


def test_text_in_a_preset_cannot_end_the_data_element(monkeypatch):
    evil = "</script><img src=x onerror=alert(1)>"
    preset = replace(PRESETS[0], title=evil)
    monkeypatch.setattr(explorer, "presets", lambda: (preset,))
    page = explorer.explorer_html()
    assert evil not in page and "<img" not in page
    assert _data(page)["presets"][0]["title"] == evil


# ---- the presets ----


def test_fifteen_examples_and_no_two_have_the_same_network():
    weights = [json.dumps(page_layers(preset.network)[0]) for preset in PRESETS]
    assert len(PRESETS) == 15 == len(set(weights))


def test_every_built_in_network_of_the_plane_can_be_opened():
    plane = {name for name in builtin_names() if builtin(name).input_shape == (2,)}
    assert len(plane) > 5
    for name in plane:
        assert page_layers(builtin(name))[1], name


def test_the_stored_counts_are_the_library_s_on_window_and_plane(text):
    for preset, data in zip(PRESETS, _data(text)["presets"], strict=True):
        x0, x1, y0, y1 = preset.window
        for key, domain in (
            ("window", hm.Plane([0, 0], np.eye(2), ((x0, x1), (y0, y1)))),
            ("plane", hm.Space(2)),
        ):
            cells = hm.enumerate_cells(preset.network, domain)
            assert data["library"][key] == [cells.n_cells, cells.n_regions, cells.n_maps], (preset.name, key)


def test_counts_that_texts_name_are_the_counts():
    found = {data["name"]: data["library"] for data in map(explorer.preset_data, PRESETS)}
    assert found["49-or-34"] == {"window": [34, 34, 34], "plane": [34, 34, 34]}
    assert found["216-or-92"]["plane"][0] == 91 == hm.bounds.max_joint_cells([6, 6, 6], 2, affine=True)
    assert hm.bounds.max_joint_cells([6, 6, 6], 3, affine=False) == 92
    assert found["tight-joint"]["window"][0] == 19 == hm.bounds.max_joint_cells([3, 3, 3], 2, affine=True)
    assert found["two-heads"]["plane"][0] == 5
    assert found["depth"]["window"] == [256] * 3
    assert found["signatures"]["plane"] == [4, 2, 2]
    assert found["recurrence"]["plane"][1] == 5


def test_every_network_of_a_preset_is_on_the_page():
    assert set(_NETWORKS) == {preset.name for preset in PRESETS}


def test_presets_name_claims_of_the_ledger_and_say_three_things():
    names = {claim.name for claim in hm.claims.ledger}
    assert len({preset.name for preset in PRESETS}) == len(PRESETS)
    for preset in PRESETS:
        assert set(preset.claims) <= names
        assert all(
            part.endswith((".", "?")) and part.count("$") % 2 == 0
            for part in (preset.printed, preset.true, preset.to_try)
        ), preset.name


def test_preset_weights_reach_the_page_unrounded():
    for preset in PRESETS:
        layers, unrounded = page_layers(preset.network)
        points = np.random.default_rng(0).uniform(-3, 3, (50, 2))
        assert unrounded and np.array_equal(preset.network.labels(points), network_of(layers).labels(points))


# ---- networks in and out ----


def _every_kind():
    heads = [
        Head([[1, 2], [0, 1], [3, 0]], [[1], [0], [2]], [[0.5, 0], [1, 1]], [0.25, 0]),
        Head([[1], [-1]], [[1, 0], [0, 1]], [[1, -1]]),
    ]
    first = Residual(Attention(heads, [[1, 0, 2], [0, 1, 0.5]]))
    second = Residual(Affine([[1, 1], [1, -1], [0, 1]], [0, 0.5, 1]), ReLU(0.25), Affine([[1, 0, 2], [0, 1, 0]]))
    return Network([first, second, ReLU(), Affine([[1, 2], [3, 4], [5, 6], [7, 8]]), Maxout(2)], 2)


def test_layers_of_every_kind_keep_their_function_and_labels():
    net = _every_kind()
    layers, unrounded = page_layers(net)
    assert [layer["kind"] for layer in layers] == ["attention", "relu", "relu", "affine", "maxout"]
    back, points = network_of(layers), np.random.default_rng(1).uniform(-3, 3, (200, 2))
    assert unrounded and json.loads(json.dumps(layers)) == layers
    assert np.allclose(net(points), back(points)) and np.array_equal(net.labels(points), back.labels(points))


@pytest.mark.parametrize("name", ["demo", "figure-1-depth-3", "figure-2", "figure-3", "figure-7", "grid", "every kind"])
def test_a_bare_graph_is_read_back_into_layers(name):
    own = {"grid": hm.grid_transformer(3, 2, 2, 2), "every kind": _every_kind()}
    net = own[name] if name in own else builtin(name)
    bare = Network.from_graph(net.graph)
    assert bare.layers is None
    back = network_of(page_layers(bare)[0])
    points = np.random.default_rng(2).uniform(-3, 3, (200, 2))
    assert np.allclose(net(points), back(points)) and np.array_equal(net.labels(points), back.labels(points))


def test_a_graph_of_several_rows_is_refused_by_the_operation_that_has_them():
    from hardmax.networks import operations as op
    from hardmax.networks.graph import GraphBuilder

    builder = GraphBuilder((2,))
    column = builder.add(op.Reshape((2, 1)), 0, name="column")
    value = builder.add(op.Linear(np.array([[1.0], [2.0]])), column, name="rows")
    with pytest.raises(hm.errors.ShapeError, match="Linear at rows"):
        page_layers(Network.from_graph(builder.build(value)))


def test_products_that_floats_cannot_hold_are_rounded_once_and_said_so():
    net = random_transformer(2, 3, rng=np.random.default_rng(0), resolution=None)
    layers, unrounded = page_layers(net)
    assert not unrounded
    head = net.layers[0].layers[0].heads[0]
    pairs = zip(head.keys[0].tolist(), head.query[:, 0].tolist(), strict=True)
    exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
    assert layers[0]["heads"][0]["keys"][0][0] == float(exact)
    assert "rounded once" in explorer.explorer_html(net) and "rounded once" not in explorer.explorer_html()


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (Network([Affine(np.eye(3))], 3), r"input shape \(2,\), got \(3,\)"),
        (Network([Affine(np.ones((5, 2)))], 2), "at most 4 coordinates between layers, got 5"),
        (Network([Attention([Head(np.ones((33, 2)), np.ones((33, 1)), np.eye(2))])], 2), "32 keys"),
        (Network([Attention([Head([[1, 0]], [[1]], np.eye(2))] * 5)], 2), "4 heads"),
        (Network([Affine(np.ones((33, 2))), ReLU(), Affine(np.ones((1, 33)))], 2), "32 units a layer, got 33"),
        (Network([Affine(2 * np.eye(2))] * 9, 2), "1 to 8 layers, got 9"),
        (Network([Residual(Affine(np.eye(2)))], 2), "got one around Affine"),
    ],
    ids=["space", "coordinates", "keys", "heads", "units", "layers", "residual"],
)
def test_networks_that_the_page_cannot_draw_are_refused_with_what_it_can(net, words, tmp_path):
    with pytest.raises(hm.errors.ShapeError, match=words):
        hm.reports.explore(tmp_path / "page.html", network=net)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_network_is_refused(tmp_path):
    with pytest.raises(hm.errors.ParameterError, match=r"expected an hm\.Network, got a str"):
        hm.reports.explore(tmp_path / "page.html", network="net.npz")


# ---- writing, and the command ----


def test_an_existing_file_is_kept_without_force_and_replaced_with_it(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(hm.errors.WriteError, match="exists"):
        hm.reports.explore(page)
    assert page.read_text() == "mine"
    assert hm.reports.explore(page, force=True) == page and page.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("where", ["absent/page.html", "."], ids=["no-folder", "a-folder"])
def test_a_place_that_cannot_be_written_is_refused(where, tmp_path):
    with pytest.raises(hm.errors.WriteError):
        hm.reports.explore(tmp_path / where, force=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_page_and_says_where(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["explore", "builtin:figure-7", "-o", str(page), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["page"] == str(page) and facts["bytes"] == page.stat().st_size
    assert facts["presets"] == len(PRESETS) + 1
    assert _data(page.read_text())["presets"][0]["name"] == "own"


@pytest.mark.parametrize(
    "arguments",
    [["builtin:lookup"], ["builtin:nothing"], ["absent.npz"], ["-o", "absent/page.html"], ["-o", "page.txt"]],
    ids=" ".join,
)
def test_the_command_refuses_in_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explore", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("hardmax: ") and printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_network_file_of_ours_opens_as_the_first_example(tmp_path, capsys):
    hm.write(builtin("figure-5"), tmp_path / "net.npz", temperature=0.5)
    assert main(["explore", str(tmp_path / "net.npz"), "-o", str(tmp_path / "net.html")]) == 0
    own = _data((tmp_path / "net.html").read_text())["presets"][0]
    assert own["name"] == "own" and own["library"]["plane"] == [5, 5, 5]
    assert own["state"]["temperature"] == 0.5
    assert "16 examples" in capsys.readouterr().out

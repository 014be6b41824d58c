"""The explorer in a browser: its own exact counts against the library's, and every control."""

import base64
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from hardmax.show.explorer.layers import network_of
from hardmax.show.explorer.page import explore, explorer_html
from hardmax.show.explorer.presets import presets

NAMES = [preset.name for preset in presets()]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return explore(tmp_path_factory.mktemp("explorer") / "explorer.html").as_uri()


def _settled(page):
    page.wait_for_selector("html[data-counting=no]", state="attached")
    return page.evaluate("hardmaxExplorer.counts")


def _open(page, address, name):
    page.goto(f"{address}#p.{name}")
    # a page that is open already hears of its new address a little later
    page.wait_for_function("name => document.getElementById('preset')?.value === name", arg=name)
    return _settled(page)


def _library(layers, window):
    x0, x1, y0, y1 = window
    found = {}
    for key, domain in (("window", hm.Plane([0, 0], np.eye(2), ((x0, x1), (y0, y1)))), ("plane", hm.Space(2))):
        cells = hm.enumerate_cells(network_of(layers), domain)
        found[key] = [cells.n_cells, cells.n_regions, cells.n_maps]
    return found


def _state(page):
    return page.evaluate("hardmaxExplorer.state")


# ---- counts ----


def test_the_page_s_counts_are_the_library_s_on_every_preset(page, address):
    """Cells, regions and maps, in the window and on the whole plane."""
    page.goto(address)
    for name in NAMES:
        page.select_option("#preset", name)
        own = _settled(page)
        (stored,) = (data["library"] for data in page.evaluate("hardmaxExplorer.presets") if data["name"] == name)
        assert own == stored, name
        assert page.inner_text("#verdict") == "The page and the library agree."
        assert page.inner_text("#big-count") == str(own["window"][0])


def test_the_page_s_counts_are_the_library_s_on_degenerate_networks(page, address):
    """Small integers: coinciding walls, dead units, duplicate keys and vanishing pre-activations are common."""
    page.goto(address)
    rng = np.random.default_rng(11)
    for index in range(60):
        layers, window = _random_layers(rng), [-3.0, 3.0, -2.0, 4.0]
        own, labels = _counted(page, layers, window)
        assert own == _library(layers, window), (index, layers)
        x0, x1, y0, y1 = window
        cells = hm.enumerate_cells(network_of(layers), hm.Plane([0, 0], np.eye(2), ((x0, x1), (y0, y1))))
        assert sorted(labels) == sorted(cells.labels.tolist()), (index, layers)


def test_cells_that_only_touch_are_not_one_region(page, address):
    page.goto(address)
    for values, counts in (
        ([1, 2, 3, 4], [4, 4, 4]),
        ([1, 1, 2, 2], [4, 2, 2]),
        ([1, 2, 1, 2], [4, 4, 2]),
        ([1, 1, 1, 1], [4, 1, 1]),
    ):
        head = {"keys": [[1, 0], [0, 1], [-1, 0], [0, -1]], "biases": [0] * 4, "values": [[value] for value in values]}
        layers = [{"kind": "attention", "heads": [head], "residual": False}]
        assert _counted(page, layers, [-1, 1, -1, 1])[0] == {"window": counts, "plane": counts}, values


def _counted(page, layers, window):
    """Counts and labels by the page's engine alone."""
    return page.evaluate(
        """([layers, window]) => {
             const [inside, all] = [window, null].map((domain) => exactComplex(layers, domain));
             const counts = (c) => [c.nCells, c.nRegions, c.nMaps];
             return [{ window: counts(inside), plane: counts(all) }, inside.cells.map((cell) => cell.label)];
           }""",
        [layers, window],
    )


def _random_layers(rng):
    layers, width, scale, most = [], 2, int(rng.choice([1, 2, 4])), int(rng.choice([1, 4]))

    def draw(*shape):
        return (rng.integers(-most, most + 1, shape) / scale).tolist()

    for kind in rng.choice(["attention", "relu", "bare", "maxout"], rng.integers(1, 4)):
        residual = bool(rng.integers(2)) and kind in ("attention", "relu")
        out = width if residual else int(rng.integers(1, 4))
        if kind == "attention":
            sizes = rng.integers(1, 5, rng.integers(1, 3))
            heads = [{"keys": draw(n, width), "biases": draw(n), "values": draw(n, out)} for n in sizes]
            layers.append({"kind": "attention", "heads": heads, "residual": residual})
        elif kind == "maxout":
            rank = int(rng.integers(1, 4))
            layers.append({"kind": "affine", "rows": draw(out * rank, width), "shifts": draw(out * rank)})
            layers.append({"kind": "maxout", "rank": rank})
        else:
            units = out if kind == "bare" else int(rng.integers(1, 4))
            read = {"readout": draw(out, units), "offset": draw(out)} if kind == "relu" else {}
            slope = float(rng.choice([0.0, 0.25]))
            layers.append(
                {"kind": "relu", "rows": draw(units, width), "shifts": draw(units), "readout": None, "offset": None}
                | read
                | {"slope": slope, "residual": residual}
            )
        width = out
    return layers


def test_a_layer_added_in_the_page_is_counted_as_the_library_counts_it(page, address):
    _open(page, address, "power-diagram")
    for button in ("#add-relu", "#add-attention"):
        page.click(button)
        own = _settled(page)
        state = _state(page)
        assert own == _library(state["layers"], state["window"])
    page.click("#remove-layer")
    assert [layer["kind"] for layer in _state(page)["layers"]] == ["attention", "relu"]


def test_a_count_that_would_take_too_long_is_stopped_and_said_so(page, address):
    page.goto(address)
    step = np.arange(32) // 2
    axis, turn = np.eye(2)[np.arange(32) % 2], np.where(step == 0, 8.0, 16.0 * (-1.0) ** step)
    folds = {  # sixteen zigzags along each axis, which the next layer cuts again
        "kind": "relu", "rows": axis.tolist(), "shifts": ((15 - 2 * step) / 8).tolist(), "residual": True,
        "readout": (axis.T * turn).tolist(), "offset": [0, 0], "slope": 0,
    }  # fmt: skip
    state = {"layers": [folds] * 4, "window": [-2, 2, -2, 2]}
    page.evaluate("state => hardmaxExplorer.openState(state)", state)
    page.wait_for_function("() => document.getElementById('stopped').textContent !== ''", timeout=90_000)
    assert "stopped: more than" in page.inner_text("#stopped") or "longer than" in page.inner_text("#stopped")
    assert page.inner_text("#big-badge") == "not counted"


# ---- moving things ----


def test_a_key_is_dragged_with_the_mouse_and_lands_on_the_grid(page, address):
    _open(page, address, "power-diagram")
    before = _state(page)["layers"][0]["heads"][0]["keys"][0]
    box = page.get_by_role("slider", name="key 0").locator(".mark").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 25, steps=5)
    page.mouse.up()
    _settled(page)
    state = _state(page)
    after = state["layers"][0]["heads"][0]["keys"][0]
    assert after[0] > before[0] and after[1] < before[1]
    assert all((64 * entry).is_integer() for entry in after)
    assert page.evaluate("hardmaxExplorer.counts") == _library(state["layers"], state["window"])
    page.click("#undo")
    assert _state(page)["layers"][0]["heads"][0]["keys"][0] == before
    page.click("#redo")
    assert _state(page)["layers"][0]["heads"][0]["keys"][0] == after
    page.click("#reset")
    assert _state(page)["layers"][0]["heads"][0]["keys"][0] == before


def test_keys_and_the_query_move_with_the_arrow_keys_and_delete_removes(page, address):
    _open(page, address, "power-diagram")
    key = page.get_by_role("slider", name="key 1")
    x, y = _state(page)["layers"][0]["heads"][0]["keys"][1]
    key.focus()
    for pressed, moved in (("ArrowRight", [x + 1 / 16, y]), ("Shift+ArrowUp", [x + 1 / 16, y + 1 / 4])):
        page.keyboard.press(pressed)
        assert _state(page)["layers"][0]["heads"][0]["keys"][1] == moved
    page.keyboard.press("Alt+ArrowDown")
    assert _state(page)["layers"][0]["heads"][0]["keys"][1] == [x + 1 / 16, y + 1 / 4 - 1 / 64]
    bias = _state(page)["layers"][0]["heads"][0]["biases"][1]
    page.keyboard.press("+")
    assert _state(page)["layers"][0]["heads"][0]["biases"][1] == bias + 1 / 16
    page.keyboard.press("-")
    page.keyboard.press("Delete")
    assert len(_state(page)["layers"][0]["heads"][0]["keys"]) == 5
    page.get_by_role("slider", name="query q").focus()
    page.keyboard.press("ArrowLeft")
    assert _state(page)["query"] == [0.4375, 0.25]
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert len(_state(page)["layers"][0]["heads"][0]["keys"]) == 6


@pytest.mark.parametrize(("dx", "dy"), [(-40, 0), (0, 60), (0, -60), (30, 50)], ids=["left", "down", "up", "aslant"])
def test_a_key_is_dragged_with_a_finger_in_every_direction_and_the_page_stays(browser, address, dx, dy):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    _open(page, address, "two-heads")
    key = page.get_by_role("slider", name="key 1 of head 0")
    key.scroll_into_view_if_needed()
    before, scrolled = _state(page)["layers"][0]["heads"][0]["keys"][1], page.evaluate("scrollY")
    box = key.locator(".mark").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch = context.new_cdp_session(page)
    for share in (0, 0.25, 0.5, 0.75, 1, None):
        points = [] if share is None else [{"x": x + share * dx, "y": y + share * dy}]
        kind = "touchStart" if share == 0 else "touchEnd" if share is None else "touchMove"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.wait_for_function("old => hardmaxExplorer.state.layers[0].heads[0].keys[1].join() !== old.join()", arg=before)
    page.wait_for_timeout(150)
    after = _state(page)["layers"][0]["heads"][0]["keys"][1]
    side = page.locator("#overlay").bounding_box()["width"]
    moved = [(new - old) * side / 4 for new, old in zip(after, before, strict=True)]
    assert page.evaluate("scrollY") == scrolled
    context.close()
    assert moved == pytest.approx([dx, -dy], abs=4)


def test_more_keys_than_the_shader_holds_are_said_and_counted(page, address):
    page.goto(address)
    angles = np.arange(32) * np.pi / 16
    keys = (np.round(32 * np.column_stack([np.cos(angles), np.sin(angles)])) / 32).tolist()
    head = {"keys": keys, "biases": [0] * 32, "values": [[0, 0]] * 32}
    layer = {"kind": "attention", "heads": [head] * 4, "residual": True}
    state = {"layers": [layer] * 3, "window": [-2, 2, -2, 2], "layer": 2, "fromInput": True}
    page.evaluate("state => hardmaxExplorer.openState(state)", state)
    counts = _settled(page)
    page.locator("#field").wait_for(state="hidden")
    assert "more than 320 keys" in page.inner_text("#notice")
    assert counts == _library(state["layers"], state["window"])


def test_values_are_dragged_in_their_own_mode(page, address):
    _open(page, address, "moving-walls")
    page.click("#drag-values")
    page.get_by_role("slider", name="value 2").focus()
    before = _state(page)["layers"][0]["heads"][0]["values"][2]
    page.keyboard.press("Shift+ArrowUp")
    assert _state(page)["layers"][0]["heads"][0]["values"][2] == [before[0], before[1] + 0.25]
    state = _state(page)
    assert _settled(page) == _library(state["layers"], state["window"])


def test_numbers_can_be_typed_and_nonsense_is_put_back(page, address):
    _open(page, address, "bounded-cells")
    bias = page.get_by_label("head 0, key 4, bias")
    assert page.locator(".status.dead").count() == 1  # key 4, inside the hull of the others
    bias.fill("0.5")
    bias.press("Enter")
    assert _settled(page)["plane"] == [5, 5, 5]
    assert page.locator(".status.dead").count() == 0
    bias.fill("")
    bias.press("Enter")
    assert _state(page)["layers"][0]["heads"][0]["biases"][4] == 0.5


def test_what_was_begun_in_an_older_state_touches_nothing(page, address):
    """A number half typed when another example opens, and a key pressed on a handle that is already gone."""
    _open(page, address, "power-diagram")
    page.get_by_label("head 0, key 5, bias").fill("7")
    page.select_option("#preset", "49-or-34")
    _settled(page)
    assert _state(page)["layers"][0]["shifts"] == [0, 0, -1]
    _open(page, address, "power-diagram")
    page.evaluate(
        """() => { const key = document.querySelector(".handle.key");
             hardmaxExplorer.open("49-or-34");
             const press = (name) => key.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
             ["Delete", "ArrowLeft", "+"].forEach(press);
           }"""
    )
    assert _settled(page)["plane"] == [34, 34, 34]


def test_heads_and_keys_are_added_and_removed(page, address):
    _open(page, address, "two-heads")
    page.get_by_role("button", name="Add a head to this layer").click()
    page.get_by_role("button", name="Add a key to head 2").click()
    page.get_by_role("button", name="Remove key 0 of head 0", exact=True).click()
    page.get_by_role("button", name="Remove head 1", exact=True).click()
    state = _state(page)
    assert [len(head["keys"]) for head in state["layers"][0]["heads"]] == [2, 4]
    assert _settled(page) == _library(state["layers"], state["window"])


def test_dead_keys_are_marked_in_the_plane_and_the_table(page, address):
    _open(page, address, "dead-key")
    dead = page.locator("#overlay .handle.dead")
    assert dead.count() == 1 and dead.get_attribute("aria-label") == "key 2, dead"
    assert page.locator("#editor .status").all_inner_texts() == ["live", "live", "dead", "live"]


# ---- pictures ----


def _at_rest(page):
    """Wait until the field is drawn finely; in motion it may be coarse."""
    frames = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frames)  # what was asked for is drawn, finely or not
    page.wait_for_function("() => document.getElementById('field').width === 512")
    page.evaluate(frames)


def _pixels(page):
    _at_rest(page)
    return page.evaluate("document.getElementById('field').toDataURL()")


def test_the_field_follows_temperature_view_and_head(page, address):
    _open(page, address, "two-heads")
    seen = [_pixels(page)]
    for act in (
        lambda: page.locator("#temperature").fill("150"),
        lambda: page.click("#view-share"),
        lambda: page.click("#view-output"),
        lambda: page.get_by_role("button", name="■ head 1", exact=True).click(),
    ):
        act()
        seen.append(_pixels(page))
    assert len(set(seen)) == len(seen) - 1  # the output is of all heads, whichever is chosen
    assert page.inner_text("#temperature-text") != "0 (hard)"


def test_cooling_ends_at_zero(page, address):
    page.emulate_media(reduced_motion="reduce")
    _open(page, address, "soft-limit")
    page.click("#play")
    page.wait_for_function("() => document.getElementById('temperature-text').textContent === '0 (hard)'")
    assert _state(page)["temperature"] == 0


def test_the_hard_field_shows_the_winner_s_colour_where_the_library_says_so(page, address):
    _open(page, address, "soft-limit")
    page.click("#view-weights")
    page.locator("#temperature").fill("0")
    _at_rest(page)
    net = hm.networks.library.builtin("figure-5")
    points = np.random.default_rng(3).uniform(-1.9, 1.9, (40, 2))
    colours = page.evaluate(
        """points => { const canvas = document.getElementById("field"), copy = document.createElement("canvas");
             copy.width = copy.height = canvas.width;
             const context = copy.getContext("2d"); context.drawImage(canvas, 0, 0);
             const at = (t) => canvas.width * (t + 2) / 4;
             return points.map(([x, y]) => [...context.getImageData(at(x), at(-y), 1, 1).data].join()); }""",
        points.tolist(),
    )
    winners = net.labels(points)[:, 0].tolist()
    assert len(set(zip(colours, winners, strict=True))) == len(set(winners)) == 5


def test_vertices_of_the_sum_are_the_joint_cells_and_light_up_with_them(page, address):
    _open(page, address, "two-heads")
    assert page.locator("#dual circle.vertex title").count() == 5
    page.hover("#overlay", position={"x": 30, "y": 30})
    chosen = page.locator("#dual circle.chosen title")
    chosen.wait_for(state="attached")
    assert chosen.count() == 1 and chosen.text_content() == "joint cell 2 · 2"
    assert page.locator("#overlay .highlight path").count() == 1
    page.locator("#dual circle.vertex").nth(0).hover()
    assert page.locator("#overlay .highlight path").count() == 1


def test_joint_cells_and_live_keys_are_the_library_s(page, address):
    for name in ("demo", "216-or-92", "power-diagram", "duplicates"):
        _open(page, address, name)
        heads = _state(page)["layers"][0]["heads"]
        joint = hm.joint_cells([(np.array(head["keys"]), np.array(head["biases"])) for head in heads])
        shown = page.locator("#dual circle.vertex title").all_text_contents()
        labels = [title.removeprefix("joint cell ").split(" · ") for title in shown if title.startswith("joint")]
        assert sorted([int(j) for j in label] for label in labels) == sorted(joint.tolist()), name
        live = [hm.power_diagram(np.array(head["keys"]), np.array(head["biases"])).live for head in heads]
        marks = page.locator("#editor .status").all_inner_texts()
        assert marks == ["live" if alive else "dead" for head in live for alive in head], name


def test_the_bounds_at_the_query_are_the_library_s(page, address):
    _open(page, address, "curvature")
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#readout .bounds tbody tr").all()]
    true = hm.stability.bounds(2, 1.375, 1.0)
    printed = hm.bounds.as_published
    published = [printed.gradient_distance(2, 1.375, 1.0), printed.hessian_norm(2, 1.375, 1.0)]
    for cells, bound, old in zip(rows, [true.gradient, true.hessian], published, strict=True):
        assert float(cells[1]) == pytest.approx(bound, rel=5e-3)
        assert float(cells[2].split()[0]) == pytest.approx(old, rel=5e-3)
    assert rows[1][2].endswith("broken") and float(rows[1][0]) > published[1]


def test_without_threads_the_page_counts_by_itself(page, address):
    page.add_init_script("window.Worker = class { constructor() { throw new Error('none'); } };")
    assert _open(page, address, "demo")["window"] == [127, 127, 127]


def test_without_webgl_the_page_says_so_and_counts_all_the_same(page, address):
    page.add_init_script(
        """const get = HTMLCanvasElement.prototype.getContext;
           HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
             return kind === "webgl2" ? null : get.call(this, kind, ...rest);
           };"""
    )
    assert _open(page, address, "power-diagram")["window"] == [6, 6, 6]
    assert "no WebGL 2" in page.inner_text("#notice")
    assert len(_pixels(page)) > 2000


def test_the_field_comes_back_after_the_browser_took_its_graphics(page, address):
    _open(page, address, "power-diagram")
    before = _pixels(page)
    page.evaluate(
        """async () => { const canvas = document.getElementById("field"), gl = canvas.getContext("webgl2");
             const ext = gl.getExtension("WEBGL_lose_context");
             const heard = (name) => new Promise((done) => canvas.addEventListener(name, done, { once: true }));
             const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
             const lost = heard("webglcontextlost");
             ext.loseContext(); await lost;
             if (!gl.isContextLost()) throw new Error("the context was kept");
             document.getElementById("view-share").click(); await frames();
             document.getElementById("view-weights").click(); await frames();
             const restored = heard("webglcontextrestored");
             ext.restoreContext(); await restored; }"""
    )
    assert _pixels(page) == before


def test_the_frame_time_is_recorded(page, address, screenshot):
    """512 x 512, 16 keys, 4 heads, drawn in software here; a graphics card takes about a thousandth."""
    page.goto(address)
    found = [page.evaluate("size => hardmaxBench({ frames: 5, size })", size) for size in (512, 256)]
    assert all(one["kind"] == "WebGL 2" and one["median"] > 0 for one in found)
    screenshot("explorer-bench").with_suffix(".json").write_text(json.dumps(found))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark(page, address, scheme, screenshot):
    page.emulate_media(color_scheme=scheme)
    for name, width in (("demo", 1440), ("moving-walls", 390)):
        page.set_viewport_size({"width": width, "height": 900})
        _open(page, address, name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        screenshot(f"explorer-{name}-{scheme}-{width}")


def test_every_control_has_a_name(page, address):
    _open(page, address, "demo")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=slider]")]
             .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length))
             .map((node) => node.outerHTML)"""
    )
    assert nameless == []


# ---- addresses ----


def test_a_view_is_shared_by_its_address(page, address, browser):
    _open(page, address, "power-diagram")
    page.get_by_role("slider", name="key 3").focus()
    page.keyboard.press("Shift+ArrowLeft")
    page.click("#view-share")
    wanted = _state(page)
    link = page.evaluate("hardmaxExplorer.address()")
    page.wait_for_function("link => location.hash === link", arg=link)
    page.goto("about:blank")
    page.goto(address + link)
    _settled(page)
    assert _state(page) == wanted


def _link(content):
    return "#1." + base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


_MARKUP = "<img src=x onerror=document.title='broken'>"
_ONE_KEY = {"kind": "attention", "heads": [{"keys": [[1, 0]], "biases": [0], "values": [[0, 0]]}], "residual": True}


_BAD_LINKS = [
    "#nonsense",
    "#1.###",
    "#2.e30",
    "#p." + _MARKUP,
    "#p.%E0%A4%A",
    "#1." + "A" * 300_000,
    _link({}),
    _link({"layers": [], "window": [0, 1, 0, 1]}),
    _link({"layers": [_ONE_KEY], "window": [0, 0, 0, 1]}),
    _link({"layers": [_ONE_KEY], "window": [-2, 2, -2, "2"]}),
    _link({"layers": [_ONE_KEY] * 9, "window": [-2, 2, -2, 2]}),
    _link({"layers": [{"kind": _MARKUP}], "window": [-2, 2, -2, 2]}),
    _link({"layers": [_ONE_KEY | {"heads": []}], "window": [-2, 2, -2, 2]}),
    _link({"layers": [_ONE_KEY], "window": [-2, 2, -2, 1e-300]}),
    _link({"layers": [_ONE_KEY], "window": [-2, 2, -2, 2], "view": _MARKUP}),
    _link({"layers": [_ONE_KEY], "window": [-2, 2, -2, 2], "layer": 3}),
]


def test_a_bad_address_is_refused_with_a_sentence(page, address):
    """The first one while loading, the others typed into the address bar of an open page."""
    for link in _BAD_LINKS:
        page.goto(address + link)
        page.wait_for_selector("#message:not([hidden])")
        _settled(page)
        assert page.inner_text("#message").startswith("This link was not opened: "), link
        assert page.title() == "hardmax explorer" and page.locator("img").count() == 0, link
        assert _state(page)["layers"], link  # the first example is there instead
        page.select_option("#preset", "demo")
        assert page.locator("#message").is_hidden()


def test_a_good_address_opens(page, address):
    page.goto(address + _link({"layers": [_ONE_KEY], "window": [-2, 2, -2, 2]}))
    assert _settled(page) == {"window": [1, 1, 1], "plane": [1, 1, 1]}
    assert page.locator("#message").is_hidden() and page.inner_text("#story-title") == "A view of your own"


def test_text_of_a_preset_is_shown_as_text(page, monkeypatch, tmp_path):
    from hardmax.show.explorer import page as explorer

    preset = presets()[0]
    evil = replace(preset, title=f"</script>{_MARKUP}", true=_MARKUP + ".")
    monkeypatch.setattr(explorer, "presets", lambda: (evil, *presets()[1:]))
    file = tmp_path / "evil.html"
    file.write_text(explorer_html())
    page.goto(file.as_uri())
    _settled(page)
    page.click("#workshop")
    assert page.inner_text("#story-title") == f"</script>{_MARKUP}" and _MARKUP in page.inner_text("#story-text")
    assert page.locator("img").count() == 0 and page.title() == "hardmax explorer"


# ---- what leaves the page ----


def _downloaded(page, button):
    with page.expect_download() as download:
        page.click(button)
    return download.value.path().read_bytes()


def test_pictures_and_numbers_can_be_downloaded(page, address):
    counts = _open(page, address, "moving-walls")
    page.locator(".menu summary").click()
    drawing = ET.fromstring(_downloaded(page, "#save-svg"))
    assert drawing[0].text == "17 cells, 17 regions, 17 affine maps (exact)"
    assert sum(1 for node in drawing if node.get("fill") not in (None, "none")) == counts["window"][0]
    assert _downloaded(page, "#save-png").startswith(b"\x89PNG")
    numbers = json.loads(_downloaded(page, "#save-json"))
    assert numbers["counts"]["window"] == {"cells": 17, "regions": 17, "maps": 17, "exactness": "exact"}
    state = numbers["state"]
    x0, x1, y0, y1 = state["window"]
    cells = hm.enumerate_cells(network_of(state["layers"]), hm.Plane([0, 0], np.eye(2), ((x0, x1), (y0, y1))))
    own = {tuple(cell["label"]): cell["map"] for cell in numbers["cells"]}
    assert set(own) == {tuple(label) for label in cells.labels.tolist()}
    for label, slope, offset in zip(cells.labels.tolist(), cells.slopes, cells.offsets, strict=True):
        rows = [[Fraction(entry) for entry in row] for row in own[tuple(label)]]
        assert rows == [[*map(Fraction, s), Fraction(o)] for s, o in zip(slope.tolist(), offset.tolist(), strict=True)]


def test_the_python_code_builds_the_network_that_was_counted(page, address, capsys):
    for name in ("demo", "depth", "49-or-34", "dead-key"):
        counts = _open(page, address, name)
        page.locator(".menu summary").click()
        page.click("#python")
        code = page.inner_text("#python-code")
        page.click("#python-close")
        page.locator(".menu summary").click()
        exec(compile(code, "explorer.py", "exec"), {})
        assert capsys.readouterr().out.split() == [*map(str, counts["window"]), "certified"], name


# ---- colours ----


def test_labels_have_the_library_s_colours_and_dragging_changes_no_other(page, address):
    from hardmax.show.colours import KEY_COLOURS, label_shades

    page.goto(address)
    rng = np.random.default_rng(5)
    for sizes, width in (((4,), 6), ((2, 2, 2), 5), ((3,), 1)):
        labels = rng.integers(0, sizes[0], (30, width)).tolist()
        own = page.evaluate(
            "([labels, sizes]) => labels.map((label) => hardmaxExplorer.shadeOf(label, sizes))", [labels, list(sizes)]
        )
        for (hue, share), (colour, wanted) in zip(own, label_shades(np.array(labels), sizes), strict=True):
            assert KEY_COLOURS[hue] == colour and share == pytest.approx(wanted, abs=1e-12)
    _open(page, address, "demo")
    tones = """() => { const { map } = hardmaxExplorer, tones = map.tones();
                       return Object.fromEntries(map.answer.cells.map((cell, i) => [cell.label.join(), tones[i]])); }"""
    before = page.evaluate(tones)
    page.get_by_role("slider", name="key 1 of head 0").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    _settled(page)
    after = page.evaluate(tones)
    common = before.keys() & after.keys()
    assert len(common) > 50 and after.keys() != before.keys()
    assert {label: before[label] for label in common} == {label: after[label] for label in common}


def test_the_bar_at_the_query_shows_weights_and_nothing_else(page, address):
    _open(page, address, "power-diagram")
    page.locator("#temperature").fill("0")
    _at_rest(page)
    assert page.locator("#readout .bars .bar").count() == 1  # at temperature zero one key has all the weight
    page.locator("#temperature").fill("150")
    _at_rest(page)
    widths = page.locator("#readout .bars .bar").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().width)"
    )
    whole = page.locator("#readout .bars").bounding_box()["width"]
    titles = page.locator("#readout .bars .bar").evaluate_all("all => all.map((one) => one.title)")
    for width, title in zip(widths, titles, strict=True):
        assert width / whole == pytest.approx(float(title.split(": ")[1]), abs=0.01)


# ---- the first screen and the tour ----


def test_the_first_screen_is_the_plane_the_temperature_and_a_sentence(page, address, screenshot):
    for width, height in ((1366, 768), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        _settled(page)
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        for selector in ("#overlay", "#temperature", "#tour .step:not([hidden])", "#legend"):
            box = page.locator(selector).bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= height, selector
        assert not page.locator("#counts-panel").is_visible()
        screenshot(f"explorer-first-screen-{width}", full_page=False)


def test_the_tour_goes_through_six_steps_and_ends_in_the_workshop(page, address):
    page.emulate_media(reduced_motion="reduce")
    page.goto(address)
    titles, counts = [], []
    for step in range(6):
        _settled(page)
        shown = page.locator("#tour .step:not([hidden])")
        titles.append(shown.locator("h2").inner_text())
        counts.append(shown.locator(".live-count").all_inner_texts())
        assert page.inner_text("#tour-steps") == f"Step {step + 1} of 6"
        if step < 5:
            heights = shown.locator("math").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
            assert max(heights) > 16 and min(heights) > 4  # a formula fills a line; a single letter may be 8 high
        page.click("#tour-after")
    assert titles == ["Attention is a weighted choice", "Cool it", "Cells", "A dead key", "Depth", "Your model"]
    assert counts[2] == ["6 cells"] and counts[4] == ["256 cells"]
    assert page.locator("#counts-panel").is_visible()
    page.click("#workshop")
    page.click("#tour-before")
    assert page.inner_text("#tour-steps") == "Step 5 of 6"


def test_depth_is_told_beside_the_picture_of_all_cells(page, address, screenshot):
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(address)
    for _ in range(4):
        page.click("#tour-after")
    _settled(page)
    assert page.inner_text("#big-count") == "256" and page.inner_text("#big-badge") == "exact"
    assert page.locator("#map").is_visible() and not page.locator("#plane-panel").is_visible()
    picture, words = (page.locator(one).bounding_box() for one in ("#map", "#tour"))
    assert picture["x"] + picture["width"] <= words["x"] and picture["y"] + picture["height"] <= 768
    assert page.evaluate("document.documentElement.scrollHeight") <= 768
    screenshot("explorer-depth", full_page=False)
    named = page.locator("#legend li").all_inner_texts()
    page.click("#workshop")
    assert set(page.locator("#legend li").all_inner_texts()) - set(named) == {
        "✦ q: the query",
        "lines: walls, each head with its own dashes",
    }
    page.click("#workshop")
    page.click("#tour-before")
    assert page.locator("#plane-panel").is_visible() and not page.locator("#counts-panel").is_visible()


def test_the_legend_names_the_keys_and_marks_the_dead(page, address):
    _open(page, address, "dead-key")
    assert page.locator("#legend li").all_inner_texts()[:4] == ["key 0", "key 1", "key 2, dead", "key 3"]
    _open(page, address, "two-heads")
    assert page.locator("#legend li").first.inner_text() == "colours of head 0:"


def test_formulas_are_mathml_and_read_as_they_were_written(page, address):
    _open(page, address, "soft-limit")
    assert page.locator("#story-text math").count() >= 3
    assert page.locator("#story-text mfrac").count() == 2 and "$" not in page.inner_text("#story-text")


def test_without_scripts_the_page_says_what_it_would_show(browser, address):
    context = browser.new_context(java_script_enabled=False, offline=True)
    sheet = context.new_page()
    sheet.goto(address)
    text = sheet.inner_text("body")
    context.close()
    assert "Scripts are off" in text and "counting…" not in text

"""The report in a browser: it loads without a word of complaint, its controls work, and foreign text stays text."""

import csv
import io
import json
from itertools import pairwise

import numpy as np
import pytest

import hardmax as hm
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.network import Network
from hardmax.show.report.page import make_report
from hardmax.show.report.sections import as_text

EVIL = "</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def lookup(tmp_path_factory):
    return make_report(None, tmp_path_factory.mktemp("report") / "report.html", None)


def _named(net, name):
    """The same network with foreign text as the name of every node."""
    builder = GraphBuilder(net.graph.input_shape)
    for index, node in enumerate(net.graph.nodes):
        builder.add(node.operation, *node.inputs, name=f"{name}{index}")
    return Network.from_graph(builder.build(), net.temperature)


def _opened(page, path, **media):
    if media:
        page.emulate_media(**media)
    page.goto(path.as_uri())
    return page


def _downloaded(page, selector):
    with page.expect_download() as found:
        page.click(selector)
    return found.value.suggested_filename, found.value.path().read_text(encoding="utf-8")


def _cells(made):
    (section,) = (section for section in made.document.sections if section.name == "cells")
    return section


def _view(page):
    return page.locator("#cell-map .window").get_attribute("viewBox").split()


def _fact(page, section, label):
    found = page.locator(f"#{section} .facts div", has=page.get_by_text(label, exact=True))
    return found.locator(".number").inner_text()


def test_the_page_shows_the_library_s_counts_and_every_section(page, lookup, screenshot):
    _opened(page, lookup.path, color_scheme="light")
    cells = _cells(lookup).facts
    assert [_fact(page, "cells", fact.label) for fact in cells[:3]] == [fact.text for fact in cells[:3]]
    assert page.locator("#cell-map .cells [data-cell]").count() == cells[0].value
    assert page.locator("main h2").count() == 9
    assert page.locator("h1").inner_text() == "built-in: lookup"
    assert "the skeleton keeps" in page.locator(".answer").inner_text()
    screenshot("report-light")


def test_one_diagram_is_shown_and_the_picker_changes_it(page, lookup):
    _opened(page, lookup.path)
    figures = page.locator("#heads figure")
    assert figures.count() > 3
    visible = [index for index in range(figures.count()) if figures.nth(index).is_visible()]
    assert visible == [0]
    page.get_by_label("Next diagram").click()
    assert figures.nth(1).is_visible() and not figures.nth(0).is_visible()
    page.locator("#heads select").select_option(index=2)
    assert figures.nth(2).is_visible()
    page.get_by_label("Previous diagram").click()
    page.get_by_label("Previous diagram").click()
    page.get_by_label("Previous diagram").click()
    assert figures.nth(figures.count() - 1).is_visible()


def test_cells_are_told_one_by_one(page, lookup):
    _opened(page, lookup.path)
    page.get_by_label("Next cell").click()
    page.get_by_label("Next cell").click()
    panel = page.locator("#cell-panel")
    assert panel.locator("h3").inner_text() == "Cell 1"
    area = lookup.document.tables["cells"].rows[1][3]
    assert f"{area:.4g}" in panel.inner_text()
    assert panel.locator(".equation li").count() == 8
    assert page.locator(".chosen-cell").get_attribute("d") != "M0 0"
    largest = max(lookup.document.tables["cells"].rows, key=lambda row: row[3])
    page.locator(f'#cell-map .cells [data-cell="{largest[0]}"]').click(force=True)
    assert panel.locator("h3").inner_text() == f"Cell {largest[0]}"
    page.locator("#cell-number").fill("5")
    page.locator("#cell-number").press("Enter")
    assert panel.locator("h3").inner_text() == "Cell 5"


def test_the_map_zooms_moves_and_comes_back_by_mouse_and_by_keys(page, lookup, screenshot):
    _opened(page, lookup.path, reduced_motion="reduce")
    window = page.locator("#cell-map .window")
    whole = window.get_attribute("viewBox")
    page.get_by_label("Zoom in").click()
    near = window.get_attribute("viewBox")
    assert float(near.split()[2]) < float(whole.split()[2])
    ticks = page.locator("#cell-map .axes .tick-text").all_text_contents()
    assert len(ticks) >= 4 and len(set(ticks)) > 2
    window.focus()
    page.keyboard.press("ArrowRight")
    assert window.get_attribute("viewBox") != near
    page.keyboard.press("+")
    page.keyboard.press("n")
    assert page.locator("#cell-panel h3").inner_text() == "Cell 0"
    screenshot("report-zoomed", full_page=False)
    page.locator("#cooling").evaluate("tools => tools.scrollIntoView()")
    box = page.locator("#cell-map .frame").bounding_box()
    before = window.get_attribute("viewBox")
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 230, steps=4)
    page.mouse.up()
    moved = [float(new) - float(old) for new, old in zip(_view(page), before.split(), strict=True)]
    scale = float(before.split()[2]) / box["width"]
    assert moved == pytest.approx([-60 * scale, -30 * scale, 0, 0], abs=0.5 * scale)  # the map follows the hand
    page.keyboard.press("0")
    assert [float(number) for number in window.get_attribute("viewBox").split()] == [float(n) for n in whole.split()]


def test_the_wheel_scrolls_the_page_until_the_map_is_asked_for(page, lookup):
    _opened(page, lookup.path)
    window = page.locator("#cell-map .window")
    whole = window.get_attribute("viewBox")
    window.hover()
    page.mouse.wheel(0, -120)
    assert window.get_attribute("viewBox") == whole
    window.focus()
    window.hover()
    page.mouse.wheel(0, -120)
    page.wait_for_function(f"document.querySelector('#cell-map .window').getAttribute('viewBox') !== '{whole}'")


def test_colours_can_be_changed_and_their_legend_follows(page, lookup):
    _opened(page, lookup.path)
    select = page.locator("#colouring")
    first = page.locator("#cell-map .cells [data-cell='0']").get_attribute("class")
    names = select.locator("option").all_inner_texts()
    assert names[0] == "what the model decides" and names[1].startswith("the choice of layer")
    assert page.locator("#colour-legend li").count() > 1
    select.select_option(label="ReLUs that are on")
    assert page.locator("#cell-map .cells [data-cell='0']").get_attribute("class") != first
    assert not page.locator("#cell-map .soft-parts").is_visible()
    select.select_option(label="linear region")
    assert "says nothing else" in page.locator("#colour-legend li").inner_text()


def test_every_table_can_be_downloaded_as_it_is(page, lookup):
    _opened(page, lookup.path)
    name, text = _downloaded(page, '#downloads [data-table="cells"][data-download="csv"]')
    rows = list(csv.reader(io.StringIO(text)))
    table = lookup.document.tables["cells"]
    assert name == "cells.csv" and len(rows) == len(table.rows) + 1
    assert [float(row[3]) for row in rows[1:]] == [row[3] for row in table.rows]
    assert rows[0][:2] == ["cell", "region (certified)"]
    name, text = _downloaded(page, '#downloads [data-table="fidelity"][data-download="json"]')
    assert json.loads(text)["rows"][0][1] == lookup.document.tables["fidelity"].rows[0][1]
    name, text = _downloaded(page, '#downloads [data-download="all"]')
    assert name == "report.json" and set(json.loads(text)["tables"]) == set(lookup.document.tables)


def test_more_rows_appear_until_all_are_there(page, lookup):
    _opened(page, lookup.path)
    page.locator("#table-cells summary").click()
    button = page.locator("#table-cells button.more")
    before = page.locator("#table-cells tbody tr").count()
    button.click()
    after = page.locator("#table-cells tbody tr").count()
    assert before < after == len(lookup.document.tables["cells"].rows)
    assert not button.is_visible()
    page.locator("#table-cells tbody tr").nth(3).click()
    assert page.locator("#cell-panel h3").inner_text() == "Cell 3"


def test_rows_that_a_click_adds_are_written_as_the_first_ones_are(page, tmp_path):
    rng = np.random.default_rng(0)
    small_and_large = hm.Affine(rng.normal(size=(2, 6)) * [[1e-6], [3e6]])
    layers = [hm.Affine(rng.normal(size=(6, 2)), rng.normal(size=6)), hm.ReLU(), small_and_large]
    made = make_report(hm.Network(layers, 2), tmp_path / "r.html", None)
    _opened(page, made.path)
    page.locator("#table-cell-maps summary").click()
    page.locator("#table-cell-maps button.more").click()
    table = made.document.tables["cell-maps"]
    texts = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    shown = page.locator("#table-cell-maps tbody tr").evaluate_all(texts)
    assert len(shown) > table.shown
    kinds = [column.kind for column in table.columns]
    written = [[as_text(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in table.rows]
    assert shown == written[: len(shown)]
    assert all(any(power in text for row in shown for text in row) for power in ("×\u00a010⁻", "×\u00a010⁶", "−"))


def test_a_link_to_a_table_opens_it(page, lookup):
    _opened(page, lookup.path)
    assert page.locator("#table-cell-maps").get_attribute("open") is None
    page.locator('#answer figcaption a[href="#table-cell-maps"]').click()
    page.locator("#table-cell-maps[open]").wait_for(state="attached")  # opened once the address has changed


def test_foreign_text_shows_as_text_in_every_place_and_runs_nowhere(page, tmp_path, screenshot):
    tokens = [f"{EVIL}{index}" for index in range(5)]
    soft = _named(hm.builtin("demo").with_temperature(0.5), EVIL)
    path = hm.reports.report(soft, tmp_path / "evil.html", tokens=tokens, name=EVIL)
    _opened(page, path)
    for option in range(3):
        page.locator("#colouring").select_option(index=option)
    page.get_by_label("Next cell").click()
    page.evaluate("document.querySelectorAll('details.table').forEach(table => { table.open = true; })")
    page.evaluate("document.querySelectorAll('button.more').forEach(button => button.click())")
    for place in ("h1", "#cell-panel", "#colour-legend", "#table-head-keys", "#table-heads", "#table-about"):
        assert EVIL in page.locator(place).inner_text(), place
    assert page.locator("#heads figure svg title", has_text=EVIL).count() > 0
    text = _downloaded(page, '#table-head-keys [data-download="csv"]')[1]
    assert EVIL in [row[4][:-1] for row in csv.reader(io.StringIO(text))]
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2
    assert page.title().startswith(EVIL)
    screenshot("report-foreign-text")


def test_a_formula_in_a_token_is_no_formula_in_a_spreadsheet(page, tmp_path):
    soft = hm.builtin("demo").with_temperature(0.5)
    path = hm.reports.report(soft, tmp_path / "r.html", tokens=["=1+1", "@a", "-b", "+c", 'say "d", e'])
    _opened(page, path)
    text = _downloaded(page, '#downloads [data-table="head-keys"][data-download="csv"]')[1]
    rows = list(csv.reader(io.StringIO(text)))
    assert {row[4] for row in rows[1:]} == {"'=1+1", "'@a", "'-b", "'+c", 'say "d", e'}


def test_the_policy_stops_scripts_that_are_not_ours(page, lookup):
    _opened(page, lookup.path)
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'document.title = \"taken\"'; "
        "document.body.append(s); }"
    )
    assert page.title() != "taken"
    assert any("Content Security Policy" in problem for problem in page.problems)
    page.problems.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(page, lookup, scheme, screenshot):
    _opened(page, lookup.path, color_scheme=scheme)
    colours = page.evaluate(
        "() => ['body', '.lead', '.notes', 'figcaption', '.tick-text', '.exactness', 'a'].map(name => {"
        " const style = getComputedStyle(document.querySelector(name));"
        " return [name, name === '.tick-text' ? style.fill : style.color,"
        "         getComputedStyle(document.body).backgroundColor]; })"
    )
    for name, ink, paper in colours:
        assert _contrast(ink, paper) >= 4.5, (name, ink, paper)
    if scheme == "dark":
        screenshot("report-dark")


def _contrast(first, second):
    """The contrast of two css colours as WCAG defines it."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_theme_button_goes_through_all_three(page, lookup):
    _opened(page, lookup.path)
    button = page.locator("#theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.inner_text(), page.locator("html").get_attribute("data-theme")))
    assert seen == [("Theme: light", "light"), ("Theme: dark", "dark"), ("Theme: system", None)]


def test_a_phone_shows_everything_within_its_width(page, lookup, screenshot):
    page.set_viewport_size({"width": 390, "height": 844})
    _opened(page, lookup.path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#cell-map .cells [data-cell]").nth(7).click(force=True)
    assert page.locator("#cell-panel h3").is_visible()
    screenshot("report-phone")


def test_names_of_classes_and_of_points_do_not_overlap_on_a_phone(page, lookup):
    page.set_viewport_size({"width": 375, "height": 812})
    _opened(page, lookup.path)
    boxes = page.locator("#cell-map .marks text:not(.away)").evaluate_all(
        "all => all.map(e => [e.textContent, e.getBoundingClientRect()])"
        ".filter(([, r]) => r.width).map(([t, r]) => [t, r.left, r.right, r.top, r.bottom])"
    )
    assert len(boxes) > 5
    for k, (name, left, right, top, bottom) in enumerate(boxes):
        for other, a, b, c, d in boxes[:k]:
            assert min(right, b) - max(left, a) < 2 or min(bottom, d) - max(top, c) < 3, (name, other)


def test_print_shows_every_table_and_no_button(page, lookup, screenshot):
    _opened(page, lookup.path, media="print")
    assert page.locator("button:visible").count() == 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.table:not([open])").count() == 0
    screenshot("report-print")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.table:not([open])").count() > 0


def test_the_page_reads_without_scripts(browser, lookup):
    context = browser.new_context(java_script_enabled=False)
    sheet = context.new_page()
    sheet.goto(lookup.path.as_uri())
    figures = sheet.locator("#heads figure")
    assert all(figures.nth(index).is_visible() for index in range(figures.count()))
    assert sheet.locator("#cell-map .cells [data-cell]").count() == _cells(lookup).facts[0].value
    assert sheet.locator("button:visible").count() == 0
    context.close()


def test_a_screen_reader_finds_names_landmarks_and_headings(page, lookup):
    _opened(page, lookup.path)
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('button, select, input, svg[role=img], [role=region], "
        "[role=application]')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && "
        "e.labels.length))).map(e => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    levels = [int(name[1]) for name in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)")]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(identifiers) == len(set(identifiers))
    for table in page.locator("table").all():
        assert table.locator("th[scope=col]").count() > 0


def test_the_keyboard_reaches_every_control(page, lookup):
    _opened(page, lookup.path)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "print", "cool", "colouring", "zoom-in", "cell-number"} <= reached


def test_a_line_has_its_strip_and_its_cells(page, tmp_path, screenshot):
    from hardmax.networks.lookup import lookup_examples

    inputs = lookup_examples(3, rng=np.random.default_rng(1)).inputs
    made = make_report(hm.builtin("lookup"), tmp_path / "line.html", inputs)
    _opened(page, made.path)
    n_cells = _cells(made).facts[0].value
    assert page.locator("#cell-line .cells [data-cell]").count() == n_cells
    page.get_by_label("Next cell").click()
    assert "length" in page.locator("#cell-panel").inner_text()
    window = page.locator("#cell-line .window")
    whole = [float(number) for number in window.get_attribute("viewBox").split()]
    page.get_by_label("Zoom in").click()
    near = [float(number) for number in window.get_attribute("viewBox").split()]
    assert near[2] < whole[2] and near[3] == whole[3]
    assert page.locator("#cell-line .axes .axis").text_content().startswith("position on the line: 0 is input 0")
    screenshot("report-line")


def test_a_network_of_relus_alone_has_a_page(page, tmp_path, screenshot):
    path = hm.reports.report(hm.builtin("figure-2"), tmp_path / "relu.html")
    _opened(page, path)
    assert page.locator("#heads").count() == 0 and "no attention" in page.locator("#about .left-out").inner_text()
    assert page.locator("#cell-map .cells [data-cell]").count() > 20
    assert not page.locator("#cooling").is_visible()
    screenshot("report-relu")


def test_the_first_screen_shows_the_picture_and_says_what_is_decided(page, lookup, screenshot):
    for width, height in ((1440, 900), (1366, 768)):
        page.set_viewport_size({"width": width, "height": height})
        _opened(page, lookup.path)
        said = page.locator("#picture-says").bounding_box()
        assert said["y"] + said["height"] <= height
        card, map_ = page.locator("#cell-panel").bounding_box(), page.locator("#cell-map svg.map").bounding_box()
        assert card["x"] >= map_["x"] + map_["width"] - 1 and card["y"] < height
        screenshot(f"report-first-screen-{width}", full_page=False)


def test_one_slider_cools_the_map_and_the_attention(page, lookup):
    _opened(page, lookup.path)
    runs = "() => document.querySelector('#cell-map .hatched').getAttribute('d').split('M').length - 1"
    decisions = json.loads(page.locator("#data").text_content())["drawing"]["cells"]["decisions"]
    squares = page.locator("#head-0 .attention .weight")
    page.wait_for_selector("#temperature-says:not(:empty)")
    for value in (9, 5, 0):
        page.locator("#cool").fill(str(value))
        at = 9 - value
        assert page.evaluate(runs) == max(1, len(decisions["runs"][at]))
        captured = hm.capture(hm.builtin("lookup"), lookup.subject.inputs.points[:1])[0].head(0, 0)
        scores = captured.softmax_scores
        temperature = captured.temperature * decisions["temperatures"][at] / decisions["temperatures"][0]
        raw = (
            np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
            if temperature
            else scores == scores.max(axis=1, keepdims=True)
        )
        wanted = raw / raw.sum(axis=1, keepdims=True)
        own = [float(x) for x in squares.evaluate_all("all => all.map((one) => one.dataset.weight)")]
        assert own == pytest.approx(wanted.ravel().tolist(), abs=1e-4)
    assert page.locator("#temperature-says").inner_text().startswith("0: hard, the skeleton")


def test_a_row_of_attention_and_its_query_light_up_together(page, lookup):
    _opened(page, lookup.path)
    page.locator("#head-0 .attention .weight").first.hover()
    assert page.locator("#head-0 .diagram .query.lit").count() == 1
    assert page.locator("#head-0 .diagram .cell.lit").count() == 1
    page.locator("#head-0 .diagram .query").first.hover(force=True)
    assert page.locator("#head-0 .attention .row-of.lit").count() == 1


def test_pointing_anywhere_over_a_line_names_the_cell_below(page, tmp_path):
    from hardmax.networks.lookup import lookup_examples

    inputs = lookup_examples(3, rng=np.random.default_rng(1)).inputs
    made = make_report(hm.builtin("lookup"), tmp_path / "line.html", inputs)
    _opened(page, made.path)
    box = page.locator("#cell-line .frame").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 30)  # high above the strip
    named = int(page.locator("#cell-panel h3").inner_text().split()[1])
    ends = [row[1] for row in made.document.tables["cell-corners"].rows if row[0] == named]
    assert min(ends) - 0.01 <= 0.25 <= max(ends) + 0.01
    assert page.locator("#cell-line .cursor").get_attribute("d") != "M0 0"

"""The page of ``hardmax classes`` in a browser: names are found and escaped, every dead class shows its rivals."""

import json

import numpy as np
import pytest

import hardmax as hm
from hardmax.show.class_page import write_class_page

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def audit():
    """Nine live classes around four dead ones, with names that pages trip over."""
    angles = np.linspace(0, 2 * np.pi, 9, endpoint=False)
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    inner = np.array([[0.1, 0.2], [0.0, 0.0], [-0.3, 0.1], [0.2, -0.2]])
    names = [*"阿爸妈a火水木土", "</script>", "刈", HOSTILE, " ", "=1+1"]
    return hm.audit_classes(np.vstack([ring, inner]), np.append(np.zeros(9), np.full(4, -0.5)), names=names)


@pytest.fixture
def opened(page, audit, tmp_path):
    write_class_page(audit, tmp_path / "audit.html", name="ring.onnx", command="hardmax classes ring.onnx")
    page.goto((tmp_path / "audit.html").as_uri())
    return page


def test_the_page_says_how_many_and_which(opened, audit, screenshot):
    assert audit.n_dead == 4
    assert "4 of the 13 classes can never be the answer" in opened.locator("p.answer").inner_text()
    tiles = opened.locator("#class-tiles button").all_inner_texts()
    assert tiles == ["刈", HOSTILE, "␣", "=1+1"]
    assert opened.locator("img").count() == 0
    assert opened.locator("text=hardmax classes ring.onnx").count() >= 1
    screenshot("classes")


def test_searching_finds_names_numbers_and_code_points(opened):
    tiles = opened.locator("#class-tiles button")
    for words, found in (("刈", ["刈"]), ("U+5208", ["刈"]), ("12", ["=1+1"]), ("IMG", [HOSTILE]), ("zzz", [])):
        opened.fill("#class-search", words)
        assert tiles.all_inner_texts() == found
        shown = opened.locator('table[data-table="dead"] tbody tr td:first-child').all_text_contents()
        assert shown == found
    opened.fill("#class-search", "")
    assert tiles.count() == 4


def test_choosing_a_class_draws_its_rivals_with_their_shares(opened, audit):
    data = json.loads(opened.locator("#data").text_content())
    for at, number in enumerate(np.flatnonzero(audit.dead).tolist()):
        opened.locator("#class-tiles button").nth(at).click()
        proof = audit.certificate(number)
        assert opened.locator("#why-class").input_value() == str(number)
        assert opened.locator("#why-drawing circle").count() == len(proof.rivals)
        shares = [float(text.split()[0]) for text in opened.locator(".rivals .number").all_inner_texts()]
        assert shares == pytest.approx(sorted(100 * proof.weights, reverse=True), abs=0.06)
        entry = data["drawing"]["why"]["of"][str(number)]  # the class is the mixture of its rivals in the plane too
        mixed = np.array(entry["shares"]) @ np.array(entry["places"])
        assert mixed == pytest.approx([0.0, 0.0], abs=2e-3)
    opened.click("#why-after")
    assert opened.locator("#why-class").input_value() == str(np.flatnonzero(audit.dead)[0])
    opened.locator('table[data-table="dead"] tbody tr').nth(2).click()
    assert opened.locator("#why-list h3").inner_text() == "␣"


def test_a_phone_sees_all_of_it_without_scrolling_sideways(opened, screenshot):
    opened.set_viewport_size({"width": 360, "height": 740})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.locator("#why-drawing svg").is_visible()
    screenshot("classes-phone")


def test_without_scripts_the_table_and_the_answer_are_there(browser, audit, tmp_path):
    write_class_page(audit, tmp_path / "audit.html")
    context = browser.new_context(java_script_enabled=False, offline=True)
    sheet = context.new_page()
    sheet.goto((tmp_path / "audit.html").as_uri())
    assert sheet.locator('table[data-table="dead"] tbody tr').count() == 4
    assert not sheet.locator("#class-search").is_visible() and sheet.locator("noscript >> nth=0").count() == 1
    context.close()


def test_a_head_without_dead_classes_and_a_stopped_search_have_pages_too(page, tmp_path):
    write_class_page(hm.audit_classes(np.eye(3)), tmp_path / "live.html")
    page.goto((tmp_path / "live.html").as_uri())
    assert "Every one of the 3 classes is the answer somewhere" in page.locator("p.answer").inner_text()
    write_class_page(hm.audit_classes(np.eye(3), max_seconds=0), tmp_path / "stopped.html")
    page.goto((tmp_path / "stopped.html").as_uri())
    assert "stopped early, with 3 undecided" in page.locator("p.answer").inner_text()
    assert "stopped early" in page.locator("#table-about").text_content()

"""How analysed heads, caches and routes are shown: one short line, and in notebooks a table with escaped names."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.capture.captured import Capture, CapturedHead

POINTS = np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]])


def _head(head=0):
    return CapturedHead(0, head, "<script>", POINTS, POINTS, POINTS, 1.0, visible=np.tri(3, dtype=bool))


def _shown():
    heads = tuple(_head(head) for head in range(30))
    found = hm.analyse_heads(Capture("demo", tuple("abc"), heads))
    cache = hm.kv_cache(heads)
    route = cache[0].along([-1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [2.0, 0.0])
    return {
        "HeadAnalyses(30 heads in 1 layers, 90 rows)": found,
        "HeadAnalysis(layer 0, head 0: 3 rows, 3 keys, 3 live, 2 chosen)": found[0],
        "HeadRows(3 rows, 3 certified)": found[0].rows,
        "KVCache(30 heads in 1 layers, 2 cached keys)": cache,
        "CachedHead(layer 0, head 0: 2 cached keys, own key at 2)": cache[0],
        "SegmentRouting(": route,
    }


SHOWN = _shown()


@pytest.mark.parametrize("line", SHOWN)
def test_a_short_line_and_a_table(line):
    value = SHOWN[line]
    assert repr(value).startswith(line) and len(repr(value)) < 120 and "\n" not in repr(value)
    html = value._repr_html_()
    assert "<table" in html and "<script>" not in html and len(html) < 60_000


def test_long_lists_say_how_much_they_leave_out():
    found, cache = (SHOWN[line] for line in SHOWN if line.startswith(("HeadAnalyses", "KVCache")))
    assert "and 6 more" in found._repr_html_() and "and 6 more" in cache._repr_html_()


def test_the_parts_of_an_analysis_are_shown_in_a_line_too():
    (found,) = (SHOWN[line] for line in SHOWN if line.startswith("HeadAnalysis("))
    assert repr(found.key_sets) == "(KeySet(3 of 3 keys, 3 rows of 1 input),)"
    cached = hm.kv_cache(_head())[0]
    assert repr(cached.reachable(0.5)) == "CacheReach(tokens [0] within 0.5, own key ignored)"

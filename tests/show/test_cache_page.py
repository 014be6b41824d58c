"""The page of a key-value cache says what the library says, as text, and its code gives its numbers again."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError, WriteError
from hardmax.heads.capture.captured import CapturedHead

EPSILON, RADIUS = 0.05, 0.2


def _cache(name="made up", n=9):
    """Two layers of two heads; the first key of the first head lies between two others, so that it never wins."""
    rng = np.random.default_rng(3)
    heads = []
    for layer, head in ((0, 0), (0, 1), (3, 0), (3, 1)):
        x = 3 * rng.normal(size=(n, 2))
        if (layer, head) == (0, 0):
            x[0] = (x[1] + x[2]) / 2
        heads.append(CapturedHead(layer, head, name, x, x, x, 1.0, visible=np.tri(n, dtype=bool)))
    return hm.kv_cache(heads)


def _data(path):
    page = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return page, json.loads(found[1])


def test_the_page_opens_with_a_picture_and_a_sentence_and_its_code_gives_its_numbers(tmp_path):
    cache = _cache()
    page, data = _data(cache.page(tmp_path / "cache.html", EPSILON, RADIUS, name="a decoder"))
    lost = [head.prunable(EPSILON, RADIUS, relative=True) for head in cache]
    n_lost, n_dead = sum(len(loss.positions) for loss in lost), sum(int((~head.live).sum()) for head in cache)
    assert 0 < n_lost < 32 and n_dead >= 1
    said = data["answer"][0]
    assert said["exactness"] == "certified"
    assert said["text"].startswith(f"Of the 32 cached keys in 4 heads, {n_lost} (")
    assert "can be dropped: they weigh at most 0.05 " in said["text"]
    assert re.search(rf"\. {n_dead} \(\S+\s%\) win for no query at all\.$", said["text"])
    assert page.index('id="can-go"') < page.index('id="never-win"') < page.index('id="table-dropped"')
    assert page.index('id="table-tokens"') < page.index('id="table-about"')
    assert f"layer 3, head 1: {len(lost[3].positions)} of 8 keys" in page
    dropped = data["tables"]["dropped"]
    keys = [column["key"] for column in dropped["columns"]]
    assert [row[keys.index("n_prunable")] for row in dropped["rows"]] == [len(loss.positions) for loss in lost]
    assert [row[keys.index("output_bound")] for row in dropped["rows"]] == [loss.output_bound for loss in lost]
    tokens = np.array(data["tables"]["tokens"]["rows"])
    assert tokens.sum(axis=0).tolist() == [28, 32, n_lost, n_dead, 4]
    again = [code for section in data["sections"] for code in section["reproduce"]]
    assert all(code.startswith("cache = hm.kv_cache(") for code in again) and len(again) == 3
    losses, table = (eval(code.split("\n")[1], {"cache": cache}) for code in again[:2])
    assert [loss.total_bound for loss in losses] == [loss.total_bound for loss in lost]
    cells = data["tables"]["cells"]
    at = [column["key"] for column in cells["columns"]].index("n_reachable")
    assert [row[at] for row in cells["rows"]] == [row["n_reachable"] for row in table]


def test_no_soft_weight_near_the_query_exceeds_what_the_page_calls_dropped(tmp_path):
    cache = _cache()
    _, data = _data(cache.page(tmp_path / "cache.html", EPSILON, RADIUS))
    rng = np.random.default_rng(0)
    for head, row in zip(cache, data["tables"]["dropped"]["rows"], strict=True):
        around = rng.normal(size=(2000, 2))
        around *= rng.random((2000, 1)) * RADIUS * np.linalg.norm(head.query) / np.linalg.norm(around, axis=1)[:, None]
        scores = (head.query + around) @ np.vstack([head.keys, head.own_key]).T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        assert (weights.max(axis=0)[:-1] <= EPSILON).sum() >= row[4]


@pytest.mark.parametrize("changed", [{"softcap": 5.0}, {"temperature": 0.0}])
def test_heads_whose_weights_cannot_be_bounded_say_so(tmp_path, changed):
    cache = _cache()
    some = type(cache)([replace(cache[0], **changed), *cache[1:]])
    page, data = _data(some.page(tmp_path / "some.html", EPSILON, RADIUS))
    assert "No weights are bounded in 1 head" in page and "layer 0, head 0: no bound" in page
    assert "Of the 24 keys in heads whose weights can be bounded, " in data["answer"][0]["text"]
    none = type(cache)(replace(head, **changed) for head in cache)
    page, data = _data(none.page(tmp_path / "none.html", EPSILON, RADIUS))
    assert data["answer"][0]["text"].startswith("Of the 32 cached keys in 4 heads, ") and 'id="can-go"' not in page


def test_hostile_names_stay_text_and_bad_arguments_write_nothing(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    page, _ = _data(_cache(hostile).page(tmp_path / "cache.html", name=hostile))
    assert "<img" not in page and "&lt;img src=x" in page
    with pytest.raises(WriteError, match="file exists"):
        _cache().page(tmp_path / "cache.html")
    with pytest.raises(ParameterError, match="epsilon"):
        _cache().page(tmp_path / "other.html", epsilon=2.0)
    with pytest.raises(ParameterError, match="radius"):
        _cache().page(tmp_path / "other.html", radius=-1.0)
    assert not (tmp_path / "other.html").exists()

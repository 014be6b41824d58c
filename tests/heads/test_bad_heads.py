"""Bad input to captures, head analyses, key-value caches, lookups and recorders: a named error, never another one."""

from collections.abc import Callable

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.measure.dynamics import Probe, Recorder, snapshot
from hardmax.networks import library

POINTS = np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
PAIRS = {0: 1, 2: 4, 3: 4, 5: 6, 7: 2}


def _head(**changed) -> CapturedHead:
    given = {
        "layer": 0,
        "head": 0,
        "name": "demo",
        "queries": POINTS,
        "keys": POINTS,
        "values": POINTS,
        "temperature": 1.0,
        "visible": np.tri(3, dtype=bool),
    }
    return CapturedHead(**given | changed)


def _capture() -> Capture:
    return Capture("demo", tuple("abc"), (_head(),))


def _cached():
    return hm.kv_cache(_head())[0]


def _recorded(step=0, net=None, **options):
    return Recorder(inputs=np.zeros((3, 6, 16)), **options)(step, hm.builtin("lookup") if net is None else net)


BAD: dict[str, Callable[[], object]] = {
    "queries that are a text": lambda: _head(queries="abc"),
    "ragged keys": lambda: _head(keys=[[1.0, 2.0], [3.0]]),
    "complex values": lambda: _head(values=POINTS + 1j),
    "no queries": lambda: _head(queries=None),
    "a temperature that is a text": lambda: _head(temperature="warm"),
    "a temperature that is not a number": lambda: _head(temperature=float("nan")),
    "an additive mask for visible": lambda: _head(visible=np.where(np.tri(3), 0.0, -np.inf)),
    "counts for visible": lambda: _head(visible=np.full((3, 3), 2)),
    "ragged visible": lambda: _head(visible=[[True], [True, True]]),
    "a layer that is a text": lambda: _head(layer="first"),
    "one head twice": lambda: Capture("demo", tuple("abc"), (_head(), _head())),
    "numbers for heads": lambda: Capture("demo", tuple("abc"), (1, 2)),
    "a head for heads": lambda: Capture("demo", tuple("abc"), _head()),
    "a text for tokens": lambda: Capture("demo", "abc", (_head(),)),
    "a number to analyse": lambda: hm.analyse_heads(5),
    "a head to analyse": lambda: hm.analyse_heads(_head()),
    "heads to analyse": lambda: hm.analyse_heads([_head()]),
    "a radius that is a text": lambda: hm.analyse_heads(_capture(), radius="far"),
    "a number to reach from": lambda: hm.analyse_heads(_capture(), reach=5),
    "a number for a cache": lambda: hm.kv_cache(5),
    "nothing for a cache": lambda: hm.kv_cache(None),
    "captures for a cache": lambda: hm.kv_cache((_capture(), _capture())),
    "half a position": lambda: hm.kv_cache(_head(), position=1.5),
    "a position that is a text": lambda: hm.kv_cache(_head(), position="last"),
    "a distance that is a text": lambda: _cached().reachable("far"),
    "a query that is a text": lambda: _cached().along("a", [1.0, 2.0]),
    "a complex query": lambda: _cached().along([1j, 1.0], [1.0, 2.0]),
    "an own bias that is a text": lambda: _cached().along([1, 1], [1, 2], [1, 1], [1, 2], own_bias="x"),
    "an infinite own bias": lambda: _cached().along([1, 1], [1, 2], [1, 1], [1, 2], own_bias=np.inf),
    "an own bias without own keys": lambda: _cached().along([1, 1], [1, 2], own_bias=2.0),
    "a place beyond the segment": lambda: _cached().along([1, 1], [1, 2]).winner_at(5),
    "a place that is not a number": lambda: _cached().along([1, 1], [1, 2]).winner_at(float("nan")),
    "a token to go towards": lambda: _cached().towards(5),
    "a question that is a float": lambda: library.lookup_question(2.0),
    "a question that is a truth": lambda: library.lookup_question(True),
    "a question that is a list": lambda: library.lookup_question([1]),
    "asking for a list": lambda: library.lookup_input(PAIRS, asked=[2]),
    "a number for pairs": lambda: library.lookup_input(5, asked=2),
    "triples for pairs": lambda: library.lookup_input([(1, 2, 3)] * 5, asked=2),
    "a key beyond the last": lambda: library.lookup_input({**PAIRS, 7: 1, 9: 1}, asked=2),
    "a value that is a float": lambda: library.lookup_input({**PAIRS, 7: 1.0}, asked=2),
    "a complex context": lambda: library.conditioned_lookup(np.zeros((6, 16)) + 1j),
    "a number for a network": lambda: library.conditioned_lookup(np.zeros((6, 16)), 5),
    "true examples": lambda: library.lookup_examples(True, rng=np.random.default_rng(0)),
    "a list for a name": lambda: hm.builtin(["lookup"]),
    "half a resolution": lambda: library.random_transformer(2, 3, rng=np.random.default_rng(0), resolution=2.5),
    "a number for widths": lambda: library.random_relu_network(5, rng=np.random.default_rng(0)),
    "a text for keys": lambda: library.affine_head("a", [1.0], [[1.0]]),
    "a ragged reference": lambda: hm.skeleton(hm.builtin("lookup"), reference=[[1.0], [1.0, 2.0]]),
    "ragged inputs": lambda: hm.capture(hm.builtin("lookup"), [[1.0], [2.0, 3.0]]),
    "a number for tokens": lambda: hm.capture(hm.builtin("lookup"), np.zeros((1, 6, 16)), tokens=5),
    "steps that are texts": lambda: Recorder(steps=["first"]),
    "a number for steps": lambda: Recorder(steps=5),
    "a number for a probe": lambda: Recorder([1]),
    "a step that is a text": lambda: _recorded(step="first"),
    "too few labels": lambda: _recorded(labels=[0, 1]),
    "queries of a recorder that are a text": lambda: _recorded(queries="last"),
    "a probe without a domain": lambda: snapshot(hm.builtin("demo"), [Probe("nowhere", 5)]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_by_name(what):
    with pytest.raises(hm.HardmaxError) as caught:
        BAD[what]()
    assert len(str(caught.value)) > 20


def test_an_exact_place_beside_a_breakpoint_is_told_apart():
    """The wall lies at 1/3, and the nearest float is below it: there the first key still wins."""
    head = _head(queries=POINTS[:, :1], keys=[[0.0], [3.0], [1.0]], biases=[1.0, 0.0, 0.0])
    found = hm.kv_cache(head)[0].along([0.0], [1.0])
    assert found.winners.tolist() == [0, 1]
    below, above = found.breakpoints[0], np.nextafter(found.breakpoints[0], 1.0)
    assert [found.winner_at(t) for t in (0, below, above, 1)] == [0, 0, 1, 1]
    assert below < 1 / 3 or below == 1 / 3


def test_a_tie_with_the_own_key_has_no_sign():
    head = _head(keys=[[2.0, 1.0], [0.0, 0.0], [2.0, 1.0]])
    margin = hm.kv_cache(head)[0].own_margin
    assert margin == 0 and str(margin) == "0.0"

"""What was read is freed: a program that goes through many networks does not grow with them."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import hardmax as hm
from hardmax.networks.library import random_relu_network

_TINY = hm.Box([0, 0], [2.0**-10, 2.0**-10])  # few cells of a wide network: what could grow is the network


def _wide(seed):
    return random_relu_network([2, 200, 200, 1], rng=np.random.default_rng(seed))


_QUESTIONS = {
    "enumerated": lambda net: hm.enumerate_cells(net, _TINY).n_regions,
    "counted": lambda net: hm.count_cells(net, _TINY),
    "on a segment": lambda net: hm.enumerate_cells(net, hm.Segment([0, 0], [2.0**-10, 0])).n_maps,
    "in rationals": lambda net: hm.enumerate_cells(net, hm.Segment([0, 0], [0, 2.0**-30]), exactness="exact"),
    "verified": lambda net: hm.verify(hm.enumerate_cells(net, hm.Segment([0, 0], [0, 2.0**-10]))),
    "sampled": lambda net: hm.sample_cells(net, _TINY, 100, rng=np.random.default_rng(0)),
    "evaluated": lambda net: net.labels(np.zeros((1, 2))),
    "shown": lambda net: (repr(net), hm.enumerate_cells(net, _TINY)._repr_html_()),
}


@pytest.mark.parametrize("way", _QUESTIONS)
def test_a_network_is_freed_with_the_last_answer_about_it(way):
    net = _wide(0)
    graph = weakref.ref(net.graph)
    _QUESTIONS[way](net)
    del net
    gc.collect()
    assert graph() is None


def test_a_loop_over_networks_does_not_grow():
    def loop(first, last):
        for seed in range(first, last):
            hm.enumerate_cells(_wide(seed), _TINY)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    loop(0, 2)
    tracemalloc.start()
    try:
        before, after = loop(2, 4), loop(4, 24)
    finally:
        tracemalloc.stop()
    assert after - before < 300_000  # the weights of one network; twenty are 6.5 million bytes

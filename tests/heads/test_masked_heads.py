"""Masked attention of a file: its heads are counted, hardened and captured as what they are in the model."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.find import heads_of
from hardmax.heads.hardening import harden
from heads.capture.test_attention_spellings import CAUSAL, HOLES, _Graph, _where
from networks.files.onnx_graphs import save, small_model

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("visible", [CAUSAL, HOLES], ids=["causal", "holes"])
def test_heads_of_masked_attention_are_the_models(visible, tmp_path):
    graph = _Graph()
    output, _ = _where(visible, -np.inf)(graph)
    net = hm.read(save(small_model(graph.nodes, [1, 4, 6], graph.constants, outputs=(output,)), tmp_path))
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    captures = hm.capture(net, x)
    pairs = heads_of(net)
    assert pairs == ((0, 0), (0, 1)) == tuple((head.layer, head.head) for head in captures[0].heads)
    assert len(hm.fidelity.by_head(net, x)) == 2 and len(hm.fidelity.by_layer(net, x)) == 1
    for pair in pairs:
        for found, capture in zip(harden(net, [pair])(x), captures, strict=True):
            for number, head in enumerate(capture.heads):
                weights = head.weights
                if (head.layer, head.head) == pair:
                    weights = np.eye(head.n_keys)[head.scores.argmax(axis=1)]
                assert np.allclose(found[number], weights @ head.values, atol=1e-12)
    assert np.allclose(harden(net, pairs)(x), net(x, temperature=0), atol=1e-12)
    assert (harden(net, [])(x) == net(x)).all()


@pytest.mark.parametrize("value", [-np.inf, -1e30], ids=["infinite", "huge"])
@pytest.mark.parametrize("visible", [CAUSAL, HOLES], ids=["causal", "holes"])
def test_rows_of_masked_attention_are_those_of_its_capture(visible, value, tmp_path):
    """All rows of a head, wherever the file's graph keeps them, over the keys each sees."""
    graph = _Graph()
    output, _ = _where(visible, value)(graph)
    net = hm.read(save(small_model(graph.nodes, [1, 4, 6], graph.constants, outputs=(output,)), tmp_path))
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    analysed = hm.analyse_heads(hm.capture(net, x), reach=())
    rows = hm.fidelity.attention_rows(net, x)
    assert [(r.layer, r.head) for r in rows] == [(h.layer, h.head) for h in analysed]
    for ours, theirs in zip(rows, analysed, strict=True):
        unit = theirs.temperature / ours.temperature  # the capture counts in raw dot products
        assert ours.n_rows == theirs.n_rows == 12 and ours.n_keys == 4
        np.testing.assert_array_equal(ours.n_visible, theirs.rows.n_visible)
        np.testing.assert_allclose(ours.margins * unit, theirs.margins, rtol=1e-6)
        np.testing.assert_allclose(ours.entropies, theirs.entropies, atol=1e-6)
        assert ours.certified_share == theirs.certified_share
        assert (ours.n_chosen == sum(keys.n_chosen for keys in theirs.key_sets)).all()

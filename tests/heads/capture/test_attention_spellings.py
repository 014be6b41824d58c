"""Attention as exporters spell it: the captured weights are those that onnxruntime computes on the same graph."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import OperatorError
from networks.files.onnx_graphs import save, session, small_model

pytestmark = pytest.mark.extras

N, D, HEADS, D_K = 4, 6, 2, 3
CAUSAL = np.tri(N, dtype=bool)
HOLES = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0]], dtype=bool)


class _Graph:
    """Nodes and constants in the order they are asked for."""

    def __init__(self):
        self.rng = np.random.default_rng(7)
        self.nodes, self.constants = [], {}

    def constant(self, values, dtype=np.float32):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype=dtype)
        return name

    def weights(self, *shape):
        return self.constant(self.rng.normal(size=shape).round(2))

    def whole(self, *numbers):
        return self.constant(numbers, np.int64)

    def __call__(self, operator, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append((operator, list(inputs), [name], attributes))
        return name

    def projected(self, width, heads=HEADS):
        flat = self("Add", self("MatMul", "x", self.weights(D, width)), self.weights(width))
        return self("Transpose", self("Reshape", flat, self.whole(1, N, heads, -1)), perm=[0, 2, 1, 3])

    def parts(self):
        return self.projected(HEADS * D_K), self.projected(HEADS * D_K), self.projected(HEADS * 2)

    def turned(self, tensor):
        return self("Transpose", tensor, perm=[0, 1, 3, 2])

    def scores(self, queries, keys):
        return self("MatMul", queries, self.turned(keys))

    def softmax(self, scores):
        return self("Softmax", scores, axis=-1)

    def head(self, tensor, head):
        return self("Slice", tensor, self.whole(head), self.whole(head + 1), self.whole(1))


def _masked(mask):
    def build(graph):
        queries, keys, values = graph.parts()
        weights = graph.softmax(mask(graph, graph.scores(queries, keys)))
        return graph("MatMul", weights, values), [weights]

    return build


def _where(visible, hidden):
    return _masked(lambda g, scores: g("Where", g.constant(visible, bool), scores, g.constant(hidden)))


def _scales_on_both_sides(graph):
    queries, keys, values = graph.parts()
    queries, keys = graph("Mul", queries, graph.constant(0.7)), graph("Div", keys, graph.constant(1.3))
    weights = graph.softmax(graph("Mul", graph.scores(queries, keys), graph.constant(2.0)))
    return graph("MatMul", weights, values), [weights]


def _keys_before_queries(graph):
    queries, keys, values = graph.parts()
    weights = graph("Softmax", graph.scores(keys, queries), axis=-2)
    result = graph("MatMul", graph.turned(values), weights)
    return graph.turned(result), [graph.turned(weights)]


def _constant_queries(graph):
    keys, values = graph.projected(HEADS * D_K), graph.projected(HEADS * 2)
    weights = graph.softmax(graph.scores(graph.weights(1, HEADS, 5, D_K), keys))
    return graph("MatMul", weights, values), [weights]


def _one_key_head(graph):
    queries, keys, values = graph.projected(HEADS * D_K), graph.projected(D_K, 1), graph.projected(2, 1)
    weights = graph.softmax(graph.scores(queries, keys))
    return graph("MatMul", weights, values), [weights]


def _a_softmax_for_each_head(graph):
    queries, keys, values = graph.parts()
    scores = graph.scores(queries, keys)
    weights = [graph.softmax(graph.head(scores, head)) for head in range(HEADS)]
    results = [graph("MatMul", part, graph.head(values, head)) for head, part in enumerate(weights)]
    return graph("Concat", *results, axis=1), weights


def _two_temperatures_of_one_product(graph):
    queries, keys, values = graph.parts()
    others = graph.projected(HEADS * 2)
    scores = graph.scores(queries, keys)
    soft, sharp = graph.softmax(scores), graph.softmax(graph("Mul", scores, graph.constant(3.0)))
    return graph("Add", graph("MatMul", soft, values), graph("MatMul", sharp, others)), [soft, sharp]


def _shared_keys(graph):
    queries, keys, values = graph.parts()
    others = graph.projected(HEADS * D_K)
    first, second = graph.softmax(graph.scores(queries, keys)), graph.softmax(graph.scores(others, keys))
    return graph("Add", graph("MatMul", first, values), graph("MatMul", second, values)), [first, second]


SPELLINGS = {
    "minus infinity by Where": _where(CAUSAL, -np.inf),
    "a large negative number by Where": _where(CAUSAL, -1e9),
    "the most negative number by Where": _where(CAUSAL, np.finfo(np.float32).min),
    "a mask with holes": _where(HOLES, -np.inf),
    "a number in a mask with holes": _where(HOLES, -1e6),
    "a mask that is added": _masked(lambda g, s: g("Add", s, g.constant(np.where(CAUSAL, 0.0, -np.inf)))),
    "a mask that is subtracted": _masked(lambda g, s: g("Sub", s, g.constant(np.where(CAUSAL, 0.0, 1e9)))),
    "scores that are subtracted": _masked(lambda g, s: g("Sub", g.weights(HEADS, N, N), s)),
    "biases before the scale": _masked(lambda g, s: g("Mul", g("Add", s, g.weights(N, N)), g.constant(0.5))),
    "scales on both sides": _scales_on_both_sides,
    "keys before queries": _keys_before_queries,
    "constant queries": _constant_queries,
    "one key head for all": _one_key_head,
    "a softmax for each head": _a_softmax_for_each_head,
    "two temperatures of one product": _two_temperatures_of_one_product,
    "two layers that share their keys": _shared_keys,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_captured_weights_are_those_of_onnxruntime(spelling, tmp_path):
    graph = _Graph()
    output, weights = SPELLINGS[spelling](graph)
    x = np.random.default_rng(1).normal(size=(3, N, D)).astype(np.float32)
    watched = session(small_model(graph.nodes, [1, N, D], graph.constants, outputs=(output, *weights)))
    path = save(small_model(graph.nodes, [1, N, D], graph.constants, outputs=(output,)), tmp_path)
    for one, capture in zip(x, hm.capture(path, x), strict=True):
        expected = [matrix for part in watched.run(None, {"x": one[None]})[1:] for matrix in part[0]]
        assert len(capture.heads) == len(expected)
        assert len({(head.layer, head.head) for head in capture.heads}) == len(expected)
        for head, matrix in zip(capture.heads, expected, strict=True):
            assert np.abs(head.weights - matrix).max() < 2e-6


def test_a_number_that_hides_no_key_is_refused(tmp_path):
    graph = _Graph()
    output, _ = _where(CAUSAL, -1.0)(graph)
    path = save(small_model(graph.nodes, [1, N, D], graph.constants, outputs=(output,)), tmp_path)
    with pytest.raises(OperatorError, match="not low enough to hide a key"):
        hm.capture(path, np.ones((N, D)))


def test_a_masked_softmax_is_one_change_of_the_skeleton(tmp_path):
    graph = _Graph()
    output, _ = _where(CAUSAL, -np.inf)(graph)
    path = save(small_model(graph.nodes, [1, N, D], graph.constants, outputs=(output,)), tmp_path)
    (change,) = hm.skeleton(path).changes
    assert "became Hardmax" in change

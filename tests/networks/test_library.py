"""Built-in networks: shapes, the dyadic grid, published counts, and names that are refused."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError, ShapeError
from hardmax.exact.rationals import lattice_exponent
from hardmax.networks import library
from networks.oracle_words import described
from oracles.cell_oracle import oracle_cells

# Cells, regions and maps on the whole space; the figures 2, 3 and 4 are reference values 8, 1 and 4.
COUNTS = {
    "demo": 191,
    "figure-1-depth-1": 21,
    "figure-1-depth-2": 64,
    "figure-1-depth-3": 160,
    "figure-2": 34,
    "figure-3": 3,
    "figure-4-heads-1": 6,
    "figure-4-heads-2": 36,
    "figure-4-heads-3": 92,
    "figure-5": 5,
    "figure-7": 19,
}


def _weights(net):
    return [
        array
        for node in net.graph.nodes
        for array in vars(node.operation).values()
        if isinstance(array, np.ndarray) and array.dtype.kind == "f"
    ]


@pytest.mark.parametrize("name", COUNTS)
def test_built_in_networks_have_their_published_counts(name):
    net = library.builtin(name)
    result = oracle_cells(described(net.layers), net.input_shape[0])
    assert (result.cells, result.regions, result.maps) == (COUNTS[name],) * 3


def test_every_built_in_network_is_counted_and_described():
    assert {*COUNTS, "lookup"} == set(library.builtin_names())  # the trained one: test_lookup_model.py
    assert all(library.describe_builtin(name).endswith((".", ")")) for name in library.builtin_names())


def test_the_default_is_the_trained_model():
    assert library.DEFAULT_BUILTIN == "lookup" in library.builtin_names()
    assert hm.builtin().input_shape == (6, 16) and hm.builtin().temperature == 1.0


def test_the_demonstration_is_a_transformer_on_the_plane():
    net = hm.builtin("demo")
    assert net.input_shape == net.output_shape == (2,)
    assert {type(layer) for layer in net.layers} == {hm.Residual}


def test_the_depths_of_figure_one_are_one_transformer_cut_short():
    deep = library.builtin("figure-1-depth-3")
    for depth in (1, 2):
        shallow = library.builtin(f"figure-1-depth-{depth}")
        cut = hm.Network(deep.layers[: 2 * depth], 2)
        points = np.linspace(-2, 2, 20).reshape(10, 2)
        assert np.array_equal(shallow(points), cut(points))


@pytest.mark.parametrize("name", ["figure-8", "", "Demo", "figure-1"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ParameterError, match="expected one of demo, figure-1-depth-1"):
        library.builtin(name)


# ---- random networks ----


def test_one_generator_state_gives_one_network():
    points = np.linspace(-1, 1, 12).reshape(4, 3)
    nets = [library.random_transformer(3, 4, 2, depth=2, rng=np.random.default_rng(s)) for s in (1, 1, 2)]
    assert np.array_equal(nets[0](points), nets[1](points))
    assert not np.array_equal(nets[0](points), nets[2](points))


def test_drawing_moves_the_generator_on_and_touches_no_global_state():
    rng = np.random.default_rng(0)
    first, second = (library.random_relu_network([2, 3, 1], rng=rng) for _ in range(2))
    assert not np.array_equal(first.layers[0].weight, second.layers[0].weight)
    before = np.random.get_state()[1].copy()
    library.random_relu_network([2, 3, 1], rng=rng)
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize(("resolution", "exponent"), [(1024, -10), (16, -4), (1, 0)])
def test_weights_are_multiples_of_the_resolution(resolution, exponent):
    rng = np.random.default_rng(3)
    nets = [
        library.random_transformer(2, 4, 2, rng=rng, resolution=resolution),
        library.random_relu_network([2, 5, 2], rng=rng, resolution=resolution),
        library.random_maxout_network([2, 5, 2], 3, rng=rng, resolution=resolution),
    ]
    assert all(lattice_exponent(array) >= exponent for net in nets for array in _weights(net))


def test_without_a_resolution_the_draws_stay_as_they_are():
    net = library.random_relu_network([2, 5, 2], rng=np.random.default_rng(3), resolution=None)
    assert min(lattice_exponent(array) for array in _weights(net)) < -40


def test_bias_free_transformers_have_scores_without_constants():
    net = library.random_transformer(2, 4, affine=False, width=0, rng=np.random.default_rng(0))
    (residual,) = net.layers
    (attention,) = residual.layers
    assert attention.heads[0].query_bias is None
    points = np.array([[0.3, -0.7], [1.1, 0.4]])
    assert np.array_equal(net.labels(points), net.labels(1e6 * points))


def test_affine_heads_have_biases_that_the_slopes_do_not_determine():
    net = library.random_transformer(2, 4, rng=np.random.default_rng(0))
    head = net.layers[0].layers[0].heads[0]
    slopes, offsets = head.keys @ head.query, head.keys @ head.query_bias
    assert np.linalg.matrix_rank(np.column_stack([slopes, offsets])) == 3


def test_sizes_are_what_was_asked_for():
    net = library.random_transformer(3, 5, 2, width=7, depth=2, key_dim=2, rng=np.random.default_rng(0))
    assert net.n_choices == 2 * (2 + 7)
    assert net.layers[0].layers[0].heads[1].keys.shape == (5, 2)
    assert library.random_transformer(3, 5, rng=np.random.default_rng(0)).n_choices == 1 + 12
    maxout = library.random_maxout_network([2, 3, 1], 4, rng=np.random.default_rng(0))
    assert maxout.n_choices == 4 and maxout.output_shape == (1,)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: library.random_transformer(0, 2, rng=RNG), ParameterError, "dim: expected an integer"),
        (lambda: library.random_transformer(2, 0, rng=RNG), ParameterError, "n_keys"),
        (lambda: library.random_transformer(2, 2, 0, rng=RNG), ParameterError, "n_heads"),
        (lambda: library.random_transformer(2, 2, depth=0, rng=RNG), ParameterError, "depth"),
        (lambda: library.random_transformer(2, 2, width=-1, rng=RNG), ParameterError, "width"),
        (lambda: library.random_transformer(2, 2, key_dim=0, rng=RNG), ParameterError, "key_dim"),
        (lambda: library.random_transformer(2.5, 2, rng=RNG), ParameterError, "got 2.5"),
        (lambda: library.random_transformer(2, 2, rng=0), ParameterError, "default_rng"),
        (lambda: library.random_transformer(2, 2, rng=RNG, resolution=1000), ParameterError, "power of two"),
        (lambda: library.random_transformer(2, 2, rng=RNG, resolution=0), ParameterError, "power of two"),
        (lambda: library.random_relu_network([2], rng=RNG), ShapeError, "an input and an output"),
        (lambda: library.random_relu_network([2, 0, 1], rng=RNG), ParameterError, r"widths\[1\]"),
        (lambda: library.random_maxout_network([2, 1], 0, rng=RNG), ParameterError, "rank"),
        (lambda: library.parabola_heads(3, 4), ParameterError, "1, 2 or 3"),
        (lambda: library.parabola_heads(0, 1), ParameterError, "n_keys"),
        (lambda: library.affine_head([[1.0]], [1.0, 2.0], [[1.0]]), ShapeError, "biases"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(draw, error, message):
    with pytest.raises(error, match=message):
        draw()

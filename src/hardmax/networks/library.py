"""Built-in networks: seeded random ones, the figures' configurations, and the default of ``hardmax report``.

All but the trained one are in the papers' conditioned setting: each head has constant keys and values,
attention and feed-forward are residual, and the input is the query token alone. The trained one, "lookup",
takes its context with the question; for a fixed context it is in that setting too (``conditioned_lookup``).

Random weights are standard normal draws, scaled per layer and rounded to multiples of 1/1024. Such
numbers are short dyadic rationals: sums and products of a few of them are exact in binary64 and cheap as
fractions, so nothing about a random network depends on rounding. The grid is fine enough that coincidences
stay rare; on a coarse one (quarters, say) pre-activations vanish on whole cells and walls coincide.
``resolution`` changes the grid, ``resolution=None`` leaves the draws as they are.

The weights of the networks that ``builtin`` gives are written down in models/builtin.json, not drawn: a generator's
stream may change between numpy versions, a published figure may not. They are integers over 16, drawn once: keys
scattered on a ring with biases near those of a Voronoi diagram, values and readouts normal, ReLU walls in random
directions. Sixteenths keep every count exact and cheap; a few hundred cells still come out without coincident walls.
The trained one is models/lookup.npz, which needs numpy alone; lookup.onnx holds the same weights for other programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError, ShapeError
from hardmax.exactness import FloatArray, as_tuple, check_count, check_generator, finite_numbers
from hardmax.networks.files.opening import text_of
from hardmax.networks.layers import Affine, Attention, Head, Layer, Maxout, ReLU, Residual
from hardmax.networks.lookup import LookupExamples as LookupExamples
from hardmax.networks.lookup import conditioned_lookup as conditioned_lookup
from hardmax.networks.lookup import lookup_examples as lookup_examples
from hardmax.networks.lookup import lookup_input as lookup_input
from hardmax.networks.lookup import lookup_question as lookup_question
from hardmax.networks.lookup import lookup_tokens as lookup_tokens
from hardmax.networks.lookup import model_file, trained
from hardmax.networks.network import Network

#: The network that ``hardmax report`` analyses when it is given none.
DEFAULT_BUILTIN = "lookup"


# --- random networks ----------------------------------------------------------------------------


def random_transformer(
    dim: int,
    n_keys: int,
    n_heads: int = 1,
    width: int | None = None,
    depth: int = 1,
    affine: bool = True,
    *,
    rng: np.random.Generator,
    key_dim: int | None = None,
    resolution: int | None = 1024,
) -> Network:
    """A random transformer in the conditioned setting: fixed keys and values per layer.

    Each of the ``depth`` blocks is ``Residual(Attention)`` and then ``Residual(Affine, ReLU, Affine)``.
    The heads' values have ``dim`` entries and an output matrix mixes them; for one head it is left out.

    Parameters
    ----------
    dim, n_keys, n_heads, depth
        Sizes, each at least 1.
    width
        ReLU units per block, ``4 * dim`` unless given; 0 leaves the feed-forward layers out.
    affine
        With a query bias the scores are ``<a_j, z> + b_j``; without one, ``<a_j, z>``, so that the first
        layer's cells are cones through the origin.
    rng
        Where the weights come from.
    key_dim
        Entries of a key: ``dim`` unless given, one more with ``affine``. Fewer than ``dim + 1`` would tie
        the b_j to the a_j (for ``key_dim = dim`` the cells are merely cones through another point).
    resolution
        Weights are multiples of 1 / resolution, a power of two; None leaves them unrounded.

    Examples
    --------
    >>> net = random_transformer(2, 4, n_heads=2, width=3, depth=2, rng=np.random.default_rng(0))
    >>> net.n_choices, net.output_shape
    (10, (2,))
    >>> bare = random_transformer(2, 1, width=0, affine=False, rng=np.random.default_rng(0))
    >>> bare.n_choices, bare.labels([[1.0, 2.0]]).tolist()  # one key always wins
    (1, [[0]])
    """
    for name, size in (("dim", dim), ("n_keys", n_keys), ("n_heads", n_heads), ("depth", depth)):
        check_count(name, size)
    width = 4 * dim if width is None else width
    check_count("width", width, 0)
    key_dim = dim + int(affine) if key_dim is None else key_dim
    check_count("key_dim", key_dim)
    draw = _Draw(rng, resolution)
    layers: list[Layer] = []
    for _ in range(depth):
        heads = [
            Head(
                keys=draw(n_keys, key_dim),
                values=draw(n_keys, dim),
                query=draw(key_dim, dim, scale=1 / sqrt(dim)),
                query_bias=draw(key_dim) if affine else None,
            )
            for _ in range(n_heads)
        ]
        output = None if n_heads == 1 else draw(dim, n_heads * dim, scale=1 / sqrt(n_heads * dim))
        layers.append(Residual(Attention(heads, output)))
        if width:
            first = Affine(draw(width, dim, scale=1 / sqrt(dim)), draw(width))
            second = Affine(draw(dim, width, scale=1 / sqrt(width)), draw(dim))
            layers.append(Residual(first, ReLU(), second))
    return Network(layers, dim)


def random_relu_network(
    widths: Sequence[int], *, rng: np.random.Generator, bias: bool = True, resolution: int | None = 1024
) -> Network:
    """A random ReLU network of layer sizes ``widths``: input, hidden layers, output (no ReLU after the last).

    Examples
    --------
    >>> net = random_relu_network([2, 5, 1], rng=np.random.default_rng(0))
    >>> net.n_choices, net.output_shape
    (5, (1,))
    >>> random_relu_network([3, 2], rng=np.random.default_rng(0)).n_choices  # no hidden layer: affine
    0
    """
    return _random_chain(widths, 1, ReLU(), _Draw(rng, resolution), bias)


def random_maxout_network(
    widths: Sequence[int],
    rank: int,
    *,
    rng: np.random.Generator,
    bias: bool = True,
    resolution: int | None = 1024,
) -> Network:
    """A random maxout network: every layer but the input has ``widths[l]`` units, each a maximum of ``rank``.

    Examples
    --------
    >>> net = random_maxout_network([2, 3, 1], 4, rng=np.random.default_rng(0))
    >>> net.n_choices, net.output_shape
    (4, (1,))
    """
    check_count("rank", rank)
    return _random_chain(widths, rank, Maxout(rank), _Draw(rng, resolution), bias)


class _Draw:
    """Scaled normal draws on a dyadic grid."""

    def __init__(self, rng: np.random.Generator, resolution: int | None) -> None:
        check_generator(rng)
        if resolution is not None and (
            not isinstance(resolution, int | np.integer) or resolution < 1 or resolution & (resolution - 1)
        ):
            raise ParameterError(
                f"resolution: expected a power of two (or None for unrounded weights), got {resolution!r}"
            )
        self._rng = rng
        self._resolution = resolution

    def __call__(self, *shape: int, scale: float = 1.0) -> FloatArray:
        values: FloatArray = scale * self._rng.standard_normal(shape)
        return values if self._resolution is None else np.round(values * self._resolution) / self._resolution


def _random_chain(widths: Sequence[int], rank: int, after: Layer, draw: _Draw, bias: bool) -> Network:
    """Affine maps to ``rank`` rows a unit, each followed by a layer; a ReLU does not come after the last."""
    sizes = list(as_tuple("widths", "layer sizes", widths))
    if len(sizes) < 2:
        raise ShapeError(f"widths: expected at least an input and an output size, got {sizes}")
    for position, size in enumerate(sizes):
        check_count(f"widths[{position}]", size)
    layers: list[Layer] = []
    for fan_in, fan_out in pairwise(sizes):
        rows = fan_out * rank
        layers += [Affine(draw(rows, fan_in, scale=1 / sqrt(fan_in)), draw(rows) if bias else None), after]
    return Network(layers[:-1] if isinstance(after, ReLU) else layers, sizes[0])


# --- heads of a given geometry ------------------------------------------------------------------


def affine_head(keys: ArrayLike, biases: ArrayLike, values: ArrayLike) -> Head:
    """The head with scores ``<k_j, z> + b_j``: keys (N, d), biases (N,), values (N, d_v).

    Written as the papers do, with the query lifted to (z, 1) and the bias a last entry of each key.

    Examples
    --------
    >>> head = affine_head([[2.0], [4.0]], [-1.0, -4.0], [[0.0], [1.0]])  # the wall is at 3/2
    >>> net = Network([Attention([head])], input_dim=1)
    >>> net([[1.0], [1.5], [2.0]]).tolist()
    [[0.0], [0.0], [1.0]]
    """
    sites = finite_numbers("affine_head keys", keys, ("N", "d"))
    offsets = finite_numbers("affine_head biases", biases, sites.shape[:1])
    dim = sites.shape[1]
    lift = np.vstack([np.eye(dim), np.zeros((1, dim))])
    return Head(np.column_stack([sites, offsets]), values, lift, np.append(np.zeros(dim), 1.0))


def parabola_heads(n_keys: int, n_heads: int) -> tuple[Head, ...]:
    """Bias-free heads on R^3 whose common refinement has as many cells as any (CASES.md 4).

    Head h has the keys (2 p u_h, -p^2) for p = 7 j + o_h, j < n_keys, with u = (1,1), (1,-2), (1,3) and
    o = 0, 1, 3: on the plane z_3 = 1 its cells are slabs across u_h. Values are the keys' numbers.

    Examples
    --------
    >>> [head.keys.shape for head in parabola_heads(6, 3)]
    [(6, 3), (6, 3), (6, 3)]
    >>> parabola_heads(1, 1)[0].keys.tolist()
    [[0.0, 0.0, 0.0]]
    """
    check_count("n_keys", n_keys)
    directions, starts = ((1, 1), (1, -2), (1, 3)), (0, 1, 3)
    if n_heads not in (1, 2, 3):
        raise ParameterError(f"n_heads: expected 1, 2 or 3 parabola heads, got {n_heads!r}")
    heads = []
    for (a, b), start in zip(directions[:n_heads], starts[:n_heads], strict=True):
        keys = [[2 * p * a, 2 * p * b, -p * p] for p in (7 * j + start for j in range(n_keys))]
        heads.append(Head(keys, [[j] for j in range(n_keys)], np.eye(3)))
    return tuple(heads)


# --- built-in networks --------------------------------------------------------------------------


def builtin_names() -> tuple[str, ...]:
    """The names that ``builtin`` knows.

    Examples
    --------
    >>> "figure-2" in builtin_names(), builtin_names()[0]
    (True, 'demo')
    """
    return tuple(_DESCRIPTIONS)


def describe_builtin(name: str) -> str:
    """One sentence on a built-in network.

    Examples
    --------
    >>> describe_builtin("figure-3")
    'One bias-free head with a dead key: the key of norm 5 owns no cell, the zero key does.'
    """
    _check_name(name)
    return _DESCRIPTIONS[name]


def builtin(name: str = DEFAULT_BUILTIN) -> Network:
    """A built-in network by name; without one, the network that ``hardmax report`` shows.

    ``"lookup"`` is a trained model and the only one at a temperature of its own, 1: five key-value pairs and
    a question, as an array (6, 16), to the logits of eight values. Row i is one-hot in its key (entries 0-7)
    and in its value (8-15); the last row is one-hot in the asked key: ``lookup_examples`` draws such inputs and
    names their tokens. Cells along segments are those of ``builtin("lookup").with_temperature(0)``; for one context
    ``conditioned_lookup`` gives the network of the question alone, with cells on planes and boxes too.

    Exactness: exact; the weights are the stored binary numbers.

    Examples
    --------
    >>> builtin("figure-2").n_choices
    6
    >>> builtin("lookup").input_shape, builtin("lookup").temperature
    ((6, 16), 1.0)
    >>> builtin("figure-8")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: no built-in network is called 'figure-8'; expected one of demo, ...
    """
    _check_name(name)
    if name == "lookup":
        return trained(name)
    if name == "demo":
        return Network(_blocks(name), 2)
    if name.startswith("figure-1-depth-"):
        return Network(_blocks("figure-1", int(name[-1])), 2)
    if name == "figure-2":
        return _two_layer_maximum()
    if name == "figure-3":
        head = Head([[6, 1], [6, -1], [5, 0], [0, 0]], values=np.eye(4), query=np.eye(2))
        return Network([Attention([head])], 2)
    if name.startswith("figure-4-heads-"):
        return Network([Attention(parabola_heads(6, int(name[-1])))], 3)
    if name == "figure-5":
        return Network([Attention([_written_head(_written_down(name))])], 2)
    return Network(_blocks(name), 2)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or name not in _DESCRIPTIONS:
        raise ParameterError(f"no built-in network is called {name!r}; expected one of {', '.join(_DESCRIPTIONS)}")


_DESCRIPTIONS = {
    "demo": "A two-layer transformer on the plane with two affine heads of five keys a layer.",
    "figure-1-depth-1": "The first block of a transformer on the plane with four keys a layer.",
    "figure-1-depth-2": "The first two blocks of the same transformer.",
    "figure-1-depth-3": "All three blocks of the same transformer.",
    "figure-2": "A 2-3-3 ReLU network with 34 cells, the true maximum (the paper printed 49).",
    "figure-3": "One bias-free head with a dead key: the key of norm 5 owns no cell, the zero key does.",
    "figure-4-heads-1": "One parabola head of six keys on R^3: 6 cells.",
    "figure-4-heads-2": "Two parabola heads of six keys on R^3: 36 joint cells.",
    "figure-4-heads-3": "Three parabola heads of six keys on R^3: 92 joint cells, the maximum (not 216).",
    "figure-5": "One affine head of five keys on the plane, its values a field of arrows.",
    "figure-7": "One block on the plane: residual attention of four keys, then residual ReLU units.",
    "lookup": "A trained two-layer transformer that looks up a key among five key-value pairs.",
}


def _two_layer_maximum() -> Network:
    first = Affine([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, -1.0])
    second = Affine([[5.0, 1.0, -12.0], [-6.0, -4.0, 12.0], [7.0, 11.0, -12.0]], [-1.0, 3.0, -6.0])
    return Network([first, ReLU(), second, ReLU()], 2)


def _written_down(name: str) -> Any:
    """The weights of a built-in network, integers over 16 in lists."""
    return json.loads(text_of(model_file("builtin.json")))[name]


def _written_head(weights: Sequence[Any]) -> Head:
    keys, biases, values = (np.asarray(part) / 16 for part in weights)
    return affine_head(keys, biases, values)


def _blocks(name: str, depth: int | None = None) -> list[Layer]:
    """Residual attention of affine heads (values summed), then ``z + readout @ relu(rows z + shifts)``, as often."""
    layers: list[Layer] = []
    for block in _written_down(name)[:depth]:
        heads = [_written_head(weights) for weights in block["heads"]]
        mix = np.hstack([np.eye(2)] * len(heads)) if len(heads) > 1 else None
        rows, shifts, readout = (np.asarray(block[part]) / 16 for part in ("rows", "shifts", "readout"))
        layers.append(Residual(Attention(heads, mix)))
        layers.append(Residual(Affine(rows, shifts), ReLU(), Affine(readout)))
    return layers

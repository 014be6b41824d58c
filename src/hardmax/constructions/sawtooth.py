"""Depth: networks whose linear pieces on a segment multiply with every layer."""

from __future__ import annotations

import numpy as np

from hardmax.constructions.compiled import CompiledTransformer, maxout_to_transformer
from hardmax.constructions.grid import check_exact, check_sizes, cutting_heads
from hardmax.constructions.maxout_form import maxout_network
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.layers import Affine, Layer, ReLU
from hardmax.networks.network import Network


def sawtooth_network(teeth: int, depth: int) -> Network:
    """The maxout network on the line whose graph on [0, 1] zigzags between 0 and 1 in teeth^depth linear pieces.

    Each layer is a zigzag of ``teeth`` pieces of slope +-teeth as a difference of two maxima, of rank
    floor(teeth / 2) + 1: the kinks that bend upwards belong to the first, the others to the second. The next
    layer reads the difference.

    Exactness: the weights are integers.

    Examples
    --------
    >>> tent = sawtooth_network(2, 1)
    >>> tent([[0.0], [0.25], [0.5], [1.0]]).tolist()
    [[0.0], [0.5], [1.0], [0.0]]
    >>> sawtooth_network(1, 3)([0.3]).tolist()  # one piece: the identity
    [0.3]
    """
    check_sizes(teeth=teeth, depth=depth)
    check_exact("teeth", 2 * teeth * (teeth + 1))
    rank = teeth // 2 + 1
    slopes, offsets = np.zeros((rank, 2)), np.zeros((rank, 2))
    for i in range(rank):
        rising = min(i, (teeth - 1) // 2)  # the first maximum may have a piece less
        slopes[i] = teeth * (1 + 2 * rising), 2 * teeth * i
        offsets[i] = -2 * rising * (rising + 1) - (i - rising), -2 * i * i
    first = (slopes[:, :, None], offsets)
    later = (np.stack([slopes, -slopes], axis=2) + 0.0, offsets)  # <., (c_1, c_2)> = . * (c_1 - c_2)
    return maxout_network([first, *([later] * (depth - 1)), ([[[1.0, -1.0]]], [[0.0]])])


def sawtooth_transformer(teeth: int, depth: int, bound: float | None = None) -> CompiledTransformer:
    """``sawtooth_network`` as a transformer: attention only, or with ``bound`` gated feed-forward layers.

    Width and tokens do not grow with depth, the number of linear pieces on [0, 1] is teeth^depth.

    Examples
    --------
    >>> from hardmax.cells.domains import Segment
    >>> from hardmax.cells.search import count_cells
    >>> count_cells(sawtooth_transformer(2, 4).on_inputs, Segment([0.0], [1.0]))
    16
    """
    return maxout_to_transformer(sawtooth_network(teeth, depth), bound)


def squares_network(dim: int, depth: int) -> Network:
    """The maxout network of ``depth`` layers of width 3 dim that is within dim / 4^(depth + 1) of |x|^2 on [0, 1]^dim.

    x^2 is x less tents of 2, 4, 8, ... teeth over 4, 16, 64, ... (Yarotsky 2017): layer l folds once more, and three
    units a coordinate hold 2 t and max(4 t - 2, 0), whose difference is the next tent, and the sum so far. The result
    is the interpolant of |x|^2 on 2^depth equal steps a coordinate, exactly.

    Exactness: the weights are powers of two.

    Examples
    --------
    >>> net = squares_network(1, 3)
    >>> net([[0.0], [0.25], [1.0]])[:, 0].tolist(), float(net([1 / 16])[0] - 1 / 256)
    ([0.0, 0.0625, 1.0], 0.00390625)
    """
    check_sizes(dim=dim, depth=depth)
    check_exact("depth", 4 ** (int(depth) + 1))
    tooth = np.array([[1.0, -1.0, 0.0]])  # reads 2 t' - ..., the tent, of the three units behind
    layers = []
    for level in range(depth):
        t, rest = (np.ones((1, 1)), np.ones((1, 1))) if level == 0 else (tooth, [[0.0, 0.0, 1.0]] - tooth / 4**level)
        first, second = np.vstack([2 * t, 4 * t, rest]), np.vstack([2 * t, 0 * t, rest])
        weights = np.stack([np.kron(np.eye(dim), part) for part in (first, second)])
        layers.append((weights + 0.0, np.tile([[0.0, -2.0, 0.0], [0.0, 0.0, 0.0]], dim)))
    last = np.tile([[0.0, 0.0, 1.0]] - tooth / 4**depth, dim)
    return maxout_network([*layers, (last[None] + 0.0, [[0.0]])])


def digit_transformer(n_keys: int, dim: int, depth: int) -> Network:
    """Attention and residuals alone, with constant keys: n_keys^(dim * depth) cells on the unit cube.

    Block l subtracts the l-th digit in base n_keys of every coordinate, so that each block cuts every cell of
    those before it. All pieces have slope one: such a network only ever translates.

    Exactness: after the scaling by n_keys^depth all weights are integers.

    Examples
    --------
    >>> net = digit_transformer(10, 1, 2)  # two decimals
    >>> net([[0.255], [0.9925], [0.125]]).tolist()  # what is left behind the second, times 100
    [[0.5], [0.25], [0.5]]
    """
    check_sizes(n_keys=n_keys, dim=dim, depth=depth)
    n_keys = int(n_keys)  # numpy's integers would overflow before the check
    check_exact("n_keys, depth", n_keys ** (depth + 1))
    scale = n_keys**depth
    blocks: list[Layer] = [cutting_heads(n_keys, dim, float(n_keys ** (depth - 1 - level))) for level in range(depth)]
    return Network([Affine(scale * np.eye(dim)), *blocks], dim)


def nested_transformer(n_keys: int, width: int, depth: int) -> Network:
    """The transformer on the line with as many cells as ``hm.bounds.line_maximum([n_keys], width, depth)`` says.

    A block is a residual head, which cuts the line at the multiples of width + 1 and shifts every cell back to the
    first one, then ``width`` ReLUs without a residual connection, which send as many pieces of it as can be onto the
    whole interval [0, n_keys (width + 1)] that holds all walls of the next block. One ReLU leaves one such piece, two
    leave two; from three on all width + 1 pieces are such, with slopes -1, 1, -1, 2, -2, 2, ... times a scale.

    Exactness: the weights are integers, so the count is that of the network as it stands.

    Examples
    --------
    >>> from hardmax.cells.domains import Space
    >>> from hardmax.cells.search import count_cells
    >>> [int(count_cells(nested_transformer(2, 1, depth), Space(1))) for depth in (1, 2, 3)]
    [4, 10, 22]
    >>> int(count_cells(nested_transformer(2, 2, 2), Space(1)))
    26
    """
    check_sizes(n_keys=n_keys, width=width, depth=depth)
    n_keys, width, cell = int(n_keys), int(width), int(width) + 1
    scale = n_keys * cell
    check_exact("n_keys, width", 8 * scale * cell)
    # ReLU k bends at k + 1; those that face left, the second and the third of three or more, are on below it
    faces = [-1.0 if width >= 3 and k in (1, 2) else 1.0 for k in range(width)]
    bends = {1: [1.0], 2: [1.0, -2.0]}.get(width, [2.0, -2.0, 3.0, *(4.0 * (-1) ** k for k in range(3, width))])
    start = 0.0 if width < 3 else -4.0
    into = [Affine([[face] for face in faces], [-face * (k + 1) for k, face in enumerate(faces)]), ReLU()]
    fold = Affine([[scale * bend for bend in bends]], [scale * start])
    block: list[Layer] = [cutting_heads(n_keys, 1, float(cell)), *into, fold]
    return Network(block * depth, 1)


def causal_digit_transformer(n_keys: int, dim: int, depth: int) -> Network:
    """``digit_transformer`` with a causal mask and keys that every block makes from its tokens.

    n_keys context tokens and then the query's token, each of width dim + 3: the coordinates, a digit j, j (j + 1) / 2
    and a mark. A block's queries, keys and values are linear in its tokens, queries with a bias; every token attends to
    itself and those before it. Blocks write to the coordinates alone, so digits and marks serve them all, and the mark
    gives the query's own key a score below that of digit 0. The network maps the coordinates of the last token to what
    they become; the context is fixed.

    Exactness: the weights are integers; n_keys^(dim * depth) cells on the unit cube, as with keys free in every block.

    Examples
    --------
    >>> causal_digit_transformer(10, 1, 2)([[0.255], [0.9925]]).tolist()
    [[0.5], [0.25]]
    """
    check_sizes(n_keys=n_keys, dim=dim, depth=depth)
    n_keys, dim, depth = int(n_keys), int(dim), int(depth)
    check_exact("n_keys, depth", n_keys ** (depth + 1))
    count, width = n_keys + 1, dim + 3
    digits = np.arange(n_keys, dtype=np.float64)
    start, embedding, last = np.zeros((count, width)), np.zeros((count, width, dim)), np.zeros((dim, count, width))
    start[:-1, dim], start[:-1, dim + 1], start[-1, dim + 2] = digits, digits * (digits + 1) / 2, 1.0
    embedding[-1, :dim], last[:, -1, :dim] = n_keys**depth * np.eye(dim), np.eye(dim)
    builder = GraphBuilder((dim,))
    flat = builder.add(op.Linear(embedding.reshape(-1, dim), start.reshape(-1)), 0, name="embedding")
    tokens = builder.add(op.Reshape((count, width)), flat, name="embedding")
    for level in range(depth):
        cell = float(n_keys ** (depth - 1 - level))
        for written in [_causal_head(builder, tokens, axis, dim, cell) for axis in range(dim)]:
            tokens = builder.add(op.Add(), tokens, written, name=f"block {level}")
    builder.add(op.Linear(last.reshape(dim, -1)), builder.add(op.Reshape((count * width,)), tokens), name="read-out")
    return Network.from_graph(builder.build())


def _causal_head(builder: GraphBuilder, tokens: int, axis: int, dim: int, cell: float) -> int:
    """What one head with a causal mask adds to the tokens: minus the cell's size times the winner's digit."""
    count, width = builder.shape_of(tokens)
    query, key, value = np.zeros((3, width)), np.zeros((3, width)), np.zeros((width, width))
    query[0, axis], key[:, dim:], value[axis, dim] = 1.0, np.diag([1.0, -cell, -1.0]), -cell
    parts = (op.Linear(query, np.array([0.0, 1.0, 1.0])), op.Linear(key), op.Linear(value))
    queries, keys, values = (builder.add(part, tokens, name="head") for part in parts)

    def rows(tensor: int, first: int, end: int) -> int:
        size = builder.shape_of(tensor)[1]
        return builder.add(op.Take(np.arange(first * size, end * size).reshape(-1, size)), tensor, name="head")

    written = []
    for row in range(count):  # the mask: a token sees itself and those before it
        seen = builder.add(op.Transpose((1, 0)), rows(keys, 0, row + 1), name="head")
        scores = builder.add(op.MatMul(), rows(queries, row, row + 1), seen, name="head")
        chosen = builder.add(op.Hardmax(), scores, name="head")
        written.append(builder.add(op.MatMul(), chosen, rows(values, 0, row + 1), name="head"))
    return builder.add(op.Concat(0), *written, name="head")

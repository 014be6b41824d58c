"""The trained lookup model's inputs, and the model for one fixed context, exactly.

An input is an array (6, 16): five key-value pairs and a question. Row i of the context is one-hot in its key
(entries 0-7) and in its value (8-15); the last row is one-hot in the asked key. The answer is that key's value.

The asking token attends to the context only, and the context attends to itself only. With the context fixed
the keys and values of every head are therefore constants, and the logits are a function of the question
alone: the papers' conditioned setting. ``conditioned_lookup`` writes that function as a network of constant
``hm.Head`` layers on R^16, whose cells on planes, boxes and segments are exact; the question may be any vector
there, a mixture of two or three questions for example:

    hard = conditioned_lookup(x)
    plane = hm.Plane.through(lookup_question(0), lookup_question(2), lookup_question(3))
    cells = hm.enumerate_cells(hard, plane)

Cut directly, the network of (6, 16) inputs has cells on segments only: there its keys may move too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import MissingModelError, ParameterError, PrecisionError, ShapeError
from hardmax.exact.rationals import float_array, rational_array
from hardmax.exactness import Array, FloatArray, check_count, check_generator, finite_numbers
from hardmax.networks import evaluation
from hardmax.networks import operations as op
from hardmax.networks.files.formats import read
from hardmax.networks.layers import Affine, Attention, Head, Layer, ReLU, Residual
from hardmax.networks.network import Network, check_network

#: Where the trained models are; training/lookup.py writes them.
_MODELS = Path(__file__).with_name("models")

N_KEYS, N_VALUES, N_PAIRS = 8, 8, 5
#: Questions that every page and command draws where none are given, and their seed: one headline, one number.
N_EXAMPLES, EXAMPLES_SEED = 400, 0
_WIDTH = N_KEYS + N_VALUES
_MAPS_PER_BLOCK = 6  # query, key, value, output, first, second


class LookupExamples(NamedTuple):
    """Inputs of the lookup model: ``inputs`` (n, 6, 16), the right values ``labels`` (n,), names of the tokens."""

    inputs: FloatArray
    labels: NDArray[np.int64]
    tokens: tuple[tuple[str, ...], ...]


def default_examples() -> LookupExamples:
    """The questions that pages and commands ask of the lookup model where none are given, the same ones every time."""
    return lookup_examples(N_EXAMPLES, rng=np.random.default_rng(EXAMPLES_SEED))


def lookup_examples(n: int, *, rng: np.random.Generator) -> LookupExamples:
    """``n`` random questions as the model was trained on: distinct keys, any values, one of the keys asked.

    Examples
    --------
    >>> inputs, labels, tokens = lookup_examples(3, rng=np.random.default_rng(0))
    >>> inputs.shape, labels.shape
    ((3, 6, 16), (3,))
    >>> [len(names) for names in tokens], tokens[0][-1][:5]
    ([6, 6, 6], 'ask k')
    >>> lookup_examples(0, rng=np.random.default_rng(0)).tokens
    ()
    """
    check_count("n", n, 0)
    check_generator(rng)
    keys = rng.permuted(np.tile(np.arange(N_KEYS), (n, 1)), axis=1)[:, :N_PAIRS]
    values = rng.integers(N_VALUES, size=(n, N_PAIRS))
    asked = rng.integers(N_PAIRS, size=n)
    inputs, labels = np.zeros((n, N_PAIRS + 1, _WIDTH)), np.zeros(n, dtype=np.int64)
    for index, (of_keys, of_values, position) in enumerate(zip(keys, values, asked, strict=True)):
        pairs = list(zip(of_keys.tolist(), of_values.tolist(), strict=True))
        inputs[index] = lookup_input(pairs, pairs[position][0])
        labels[index] = pairs[position][1]
    return LookupExamples(inputs, labels, tuple(lookup_tokens(x) for x in inputs))


def lookup_input(pairs: Mapping[int, int] | Sequence[tuple[int, int]], asked: int) -> FloatArray:
    """The input (6, 16) of five (key, value) pairs, in order, and the key asked for.

    Examples
    --------
    >>> x = lookup_input({0: 1, 2: 4, 3: 4, 5: 6, 7: 2}, asked=2)
    >>> np.flatnonzero(x[1]).tolist(), np.flatnonzero(x[-1]).tolist()
    ([2, 12], [2])
    >>> lookup_input({0: 1}, asked=0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: expected 5 pairs with distinct keys, got 1 pairs with 1 keys
    """
    try:
        listed = [(key, value) for key, value in (pairs.items() if isinstance(pairs, Mapping) else pairs)]
    except (TypeError, ValueError):
        raise ParameterError(f"expected {N_PAIRS} pairs (key, value), got {pairs!r:.80}") from None
    for row, (key, value) in enumerate(listed):
        for what, number, size in (("key", key, N_KEYS), ("value", value, N_VALUES)):
            if not _is_among(number, size):
                raise ParameterError(f"pair {row}: expected a {what} from 0 to {size - 1}, got {number!r}")
    if len(listed) != N_PAIRS or len({key for key, _ in listed}) != N_PAIRS:
        raise ParameterError(
            f"expected {N_PAIRS} pairs with distinct keys, got {len(listed)} pairs with "
            f"{len({key for key, _ in listed})} keys"
        )
    if not _is_among(asked, N_KEYS) or asked not in {key for key, _ in listed}:
        raise ParameterError(
            f"asked: expected one of the keys {[key for key, _ in listed]}, got {asked!r}; the model was not "
            "trained to say that a key is absent. For any other question replace the last row by lookup_question(key)"
        )
    x = np.zeros((N_PAIRS + 1, _WIDTH))
    for row, (key, value) in enumerate(listed):
        x[row] = lookup_question(key)
        x[row, N_KEYS + value] = 1.0
    x[-1] = lookup_question(asked)
    return x


def lookup_question(key: int) -> FloatArray:
    """The asking token (16,) for a key from 0 to 7.

    Examples
    --------
    >>> lookup_question(2)[:4].tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    if not _is_among(key, N_KEYS):
        raise ParameterError(f"key: expected an integer from 0 to {N_KEYS - 1}, got {key!r}")
    question: FloatArray = np.eye(_WIDTH)[key]
    return question


def lookup_tokens(x: ArrayLike) -> tuple[str, ...]:
    """Names of the six tokens of one input, such as "k3=v5" and "ask k3".

    Examples
    --------
    >>> lookup_tokens(lookup_input({0: 1, 2: 4, 3: 4, 5: 6, 7: 2}, asked=2))
    ('k0=v1', 'k2=v4', 'k3=v4', 'k5=v6', 'k7=v2', 'ask k2')
    >>> lookup_tokens(np.zeros((6, 16)))
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: row 0: expected one key and one value, each marked by a 1 among zeros, got ...
    """
    rows = _rows("x", x, N_PAIRS + 1)
    names = []
    for index, row in enumerate(rows):
        key, value = np.flatnonzero(row[:N_KEYS]), np.flatnonzero(row[N_KEYS:])
        is_question = index == N_PAIRS
        if key.size != 1 or value.size != (not is_question) or not np.isin(row, (0.0, 1.0)).all():
            wanted = "one key and no value" if is_question else "one key and one value"
            raise ParameterError(f"row {index}: expected {wanted}, each marked by a 1 among zeros, got {row.tolist()}")
        names.append(f"ask k{key[0]}" if is_question else f"k{key[0]}=v{value[0]}")
    return tuple(names)


def conditioned_lookup(context: ArrayLike, net: Network | None = None) -> Network:
    """The lookup model for one context, as a network on the asking token (16,) alone.

    Layers: ``Affine``, then twice ``Residual(Attention, Affine)`` and ``Residual(Affine, ReLU, Affine)``, then
    ``Affine``; each head holds the context's five keys in the plane. For every question q the result is that of the
    model on the context with q as its last row.

    Parameters
    ----------
    context
        The pairs (5, 16), or a whole input (6, 16) whose question is then ignored. Any real numbers will do.
    net
        A network of the lookup model's architecture, at the temperature wanted; unless given, the built-in one at
        temperature 0. A training script's ``hm.from_torch(model, ...)`` is one too.

    Exactness: exact at temperature 0. Keys and values are computed in rationals and refused where one is no
    binary64 number; for the built-in weights and one-hot pairs each is a multiple of 2^-42 below 2^11. At a positive
    temperature the keys and values of the second layer are rounded.

    Examples
    --------
    >>> x = lookup_input({0: 1, 2: 4, 3: 4, 5: 6, 7: 2}, asked=2)
    >>> net = conditioned_lookup(x)
    >>> net.n_choices, int(net(x[-1]).argmax())
    (68, 4)
    >>> conditioned_lookup(x[:3])
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: context: expected 5 or 6 rows of 16 numbers, got shape (3, 16)
    """
    if net is None:
        net = trained("lookup").with_temperature(0.0)
    check_network(net, "net: expected an hm.Network")
    rows = _rows("context", context, N_PAIRS, N_PAIRS + 1)[:N_PAIRS]
    parts = _Parts.of(net)
    tokens = _applied(parts.embed, rational_array(rows) if net.temperature == 0 else rows)
    layers: list[Layer] = [_layer(parts.embed)]
    for number, block in enumerate(parts.blocks):
        heads, mixed = [], []
        for head in block.heads:
            queries, keys, values = (_applied(part, tokens) for part in head)
            scores, heat = queries @ keys.T, net.temperature
            weights = evaluation.softmax(scores, heat) if heat > 0 else evaluation.apply(op.Hardmax(), scores)
            mixed.append(weights @ values)
            stored = [_stored(array, f"block {number}", net.temperature) for array in (keys, values)]
            heads.append(Head(stored[0], stored[1], head.query.weight, head.query.bias))
        tokens = tokens + _applied(block.output, np.concatenate(mixed, axis=1))
        tokens = tokens + _applied(block.second, _applied(op.Relu(), _applied(block.first, tokens)))
        layers.append(Residual(Attention(heads), _layer(block.output)))
        layers.append(Residual(_layer(block.first), ReLU(), _layer(block.second)))
    made = Network([*layers, _layer(parts.readout)], _WIDTH, net.temperature)
    _check_same(net, made, rows)
    return made


def _check_same(net: Network, made: Network, rows: FloatArray) -> None:
    """Refuses a network that has the lookup model's parts but computes something else with them."""
    question = (np.arange(_WIDTH) - 7.5) / 8
    x = np.vstack([rows, question])
    here, there = made(question), net(x)
    if np.allclose(here, there, rtol=1e-6, atol=1e-6 * max(1.0, float(np.abs(there).max()))):
        return
    # Floats may settle a tie otherwise; rationals do not.
    if net.temperature == 0 and (made(rational_array(question)) == net(rational_array(x))).all():
        return
    raise ParameterError(
        f"net: expected a network that computes as the lookup model does, got {net!r}: with this context it differs "
        f"from the model of its linear maps by {float(np.abs(here - there).max()):.3g}. Are scores or residuals scaled?"
    )


def _applied(operation: op.Operation, rows: Array) -> Array:
    """What an operation makes of rows, of floats or of rationals alike."""
    return evaluation.apply(operation.cast(rational_array) if rows.dtype == object else operation, rows)


def _layer(linear: op.Linear) -> Affine:
    return Affine(linear.weight, linear.bias)


def _split(linear: op.Linear, n_heads: int) -> list[op.Linear]:
    """The rows that each head reads, in order."""
    biases = [None] * n_heads if linear.bias is None else np.split(linear.bias, n_heads)
    return [op.Linear(weight, bias) for weight, bias in zip(np.split(linear.weight, n_heads), biases, strict=True)]


class _HeadParts(NamedTuple):
    query: op.Linear
    key: op.Linear
    value: op.Linear


class _Block(NamedTuple):
    heads: tuple[_HeadParts, ...]
    output: op.Linear
    first: op.Linear
    second: op.Linear


class _Parts(NamedTuple):
    """The linear maps of a network of the lookup model's architecture, which its graph holds in this order."""

    embed: op.Linear
    blocks: tuple[_Block, ...]
    readout: op.Linear

    @classmethod
    def of(cls, net: Network) -> _Parts:
        nodes = net.graph.nodes
        maps = [node.operation for node in nodes if isinstance(node.operation, op.Linear)]
        choices = [nodes[index] for index in net.graph.choice_nodes]
        attention = [node for node in choices if isinstance(node.operation, op.Hardmax)]
        n_blocks = len(attention)
        if (
            net.input_shape != (N_PAIRS + 1, _WIDTH)
            or net.output_shape != (N_VALUES,)
            or [type(node.operation) for node in choices] != [op.Hardmax, op.Relu] * n_blocks
            or any(len(node.shape) < 3 or node.shape[-2:] != (N_PAIRS + 1, N_PAIRS) for node in attention)
            or len(maps) != 2 + n_blocks * _MAPS_PER_BLOCK
        ):
            raise ParameterError(
                f"net: expected a network of the lookup model's architecture, {(N_PAIRS + 1, _WIDTH)} -> "
                f"{(N_VALUES,)} with blocks of attention to the context and one ReLU layer, got {net!r}"
            )
        blocks = []
        for number, node in enumerate(attention):
            start = 1 + number * _MAPS_PER_BLOCK
            query, key, value, output, first, second = maps[start : start + _MAPS_PER_BLOCK]
            parts = (_split(part, node.shape[-3]) for part in (query, key, value))
            heads = tuple(_HeadParts(*of_head) for of_head in zip(*parts, strict=True))
            blocks.append(_Block(heads, output, first, second))
        return cls(maps[0], tuple(blocks), maps[-1])


def _is_among(number: Any, size: int) -> bool:
    """Whether the number is an integer from 0 to ``size`` - 1; True and False are none."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(0 <= number < size)


def _rows(name: str, given: ArrayLike, *counts: int) -> FloatArray:
    rows = finite_numbers(name, given)
    if rows.ndim != 2 or rows.shape[0] not in counts or rows.shape[1] != _WIDTH:
        wanted = " or ".join(map(str, counts))
        raise ShapeError(f"{name}: expected {wanted} rows of {_WIDTH} numbers, got shape {rows.shape}")
    return rows


def _stored(values: Array, where: str, temperature: float) -> FloatArray:
    """Keys or values as the floats that they are."""
    if temperature > 0:
        return values
    floats = float_array(values)
    if not (rational_array(floats) == values).all():
        raise PrecisionError(
            f"{where}: a key or value of this context is no binary64 number, so the network conditioned on it "
            "would be rounded; round the weights to multiples of 1/128, or the context to fewer digits"
        )
    return floats


# --- the file ------------------------------------------------------------------------------------


def trained(name: str) -> Network:
    """A trained network that ships with the package."""
    return read(model_file(f"{name}.npz"))


def model_file(name: str) -> Path:
    """A file of built-in networks that ships with the package."""
    file = _MODELS / name
    if not file.is_file():
        raise MissingModelError(
            f"a built-in network should be in {file}, but this installation lacks the file; reinstall hardmax, or use "
            "another built-in network"
        )
    return file

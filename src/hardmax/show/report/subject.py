"""What a report is about: a model, its inputs, its skeleton, and why there is none where there is none."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.cells.domains import Domain, Plane
from hardmax.cells.storage import network_hash
from hardmax.errors import EmptyError, HardmaxError, NotPiecewiseAffineError, ParameterError, ShapeError
from hardmax.exactness import as_array
from hardmax.heads.find import heads_of
from hardmax.heads.hardening import soft_network
from hardmax.html import several
from hardmax.networks import operations as op
from hardmax.networks.files.formats import read
from hardmax.networks.files.inputs import checked_points, stored_inputs
from hardmax.networks.library import DEFAULT_BUILTIN, builtin, describe_builtin
from hardmax.networks.lookup import (
    EXAMPLES_SEED,
    N_EXAMPLES,
    N_PAIRS,
    N_VALUES,
    conditioned_lookup,
    default_examples,
    lookup_question,
    lookup_tokens,
)
from hardmax.networks.network import Network, check_network
from hardmax.networks.skeleton import skeleton

Source = Network | str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Place:
    """A slice to look at, before anybody has looked.

    ``marks`` are points of the slice worth a name: (coordinates, name). ``notes`` say how the slice came about.
    """

    net: Network
    domain: Domain
    marks: tuple[tuple[tuple[float, ...], str], ...]
    where: str
    key_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    soft: Callable[[float], Network] | None = None  # the model itself there at a temperature, where it is soft
    class_names: tuple[str, ...] | None = None
    code: tuple[str, ...] = ()  # Python that names ``hard`` and ``slice_`` again, after ``net`` and ``inputs``


@dataclass(frozen=True, eq=False)
class Subject:
    """One model with its inputs, read once.

    ``net`` is the model as given but for a Softmax at its very end, which only makes probabilities. ``hard`` is the
    skeleton with every norm's divisor frozen at the first input, or None, and then ``no_cells`` says why.
    ``not_soft`` says why there is no soft model to compare with, and is empty where there is one.
    """

    name: str
    description: str
    net: Network
    inputs: Inputs
    hard: Network | None
    no_cells: str
    not_soft: str
    fingerprint: str
    code: tuple[str, str] = ("net", "inputs")  # how Python gets the model and its inputs
    command: str = ""  # how the command line names them
    conditioned: Place | None = None  # where to look for cells, if the model itself says so

    @property
    def has_frozen_norms(self) -> bool:
        """Whether the skeleton with cells divides by what norms divide by at the first input."""
        return any(isinstance(node.operation, op.Normalize) for node in self.net.graph.nodes) and self.hard is not None

    @property
    def has_attention(self) -> bool:
        """Whether any attention is left once a final Softmax is taken off; a router of experts is none."""
        return bool(heads_of(self.net))


def read_subject(
    source: Source,
    inputs: ArrayLike | str | os.PathLike[str] | None = None,
    labels: ArrayLike | None = None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    name: str | None = None,
) -> Subject:
    """The model and its inputs; without a model the built-in one. ``name`` is what to call it."""
    description, is_builtin = "", False
    if source is None:
        net, is_builtin = builtin(), True
        own_name, description = f"built-in: {DEFAULT_BUILTIN}", describe_builtin(DEFAULT_BUILTIN)
    elif isinstance(source, Network):
        net, own_name = source, "a network built in Python"
    elif isinstance(source, str | os.PathLike):
        net, own_name = read(source), Path(source).name
    else:
        check_network(source, "expected a network, the path of a file, or None for the built-in model")
    not_soft, soft = "", net
    try:
        soft = soft_network(net)
    except EmptyError:
        not_soft = "The model has no attention, so there is nothing to cool: it is its own skeleton."
    except ParameterError:
        attention = "The model's attention is hard already" if heads_of(net) else "The model has no attention"
        not_soft = f"{attention}, so it is its own skeleton and there is nothing to compare."
    points = _inputs(soft, is_builtin, inputs, labels, tokens)
    conditioned = _question_plane(soft, points) if is_builtin else None
    hard, no_cells = None, ""
    try:
        hard = skeleton(soft, reference=points.points[0])
    except NotPiecewiseAffineError as error:
        no_cells = str(error)
    code, command = _code(source, is_builtin, inputs)
    return Subject(
        name or own_name,
        description,
        soft,
        points,
        hard,
        no_cells,
        not_soft,
        network_hash(net),
        code,
        command,
        conditioned,
    )


def _code(
    source: Source, is_builtin: bool, inputs: ArrayLike | str | os.PathLike[str] | None
) -> tuple[tuple[str, str], str]:
    """How Python and the command line get the model and its inputs again."""
    file = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    net = "hm.builtin()" if is_builtin else f"hm.read({file!r})" if file else "net"
    if isinstance(inputs, str | os.PathLike):
        name = os.fspath(inputs)
        loaded = f"np.load({name!r})" + ("['inputs']" if name.endswith(".npz") else "")
        return (net, loaded), f"{file} --inputs {name}" if file else ""
    if inputs is not None:
        return (net, "inputs"), ""
    if is_builtin:
        return (net, "hm.networks.lookup.default_examples().inputs"), "builtin:lookup --inputs builtin:lookup"
    return (net, f"np.random.default_rng({SEED}).standard_normal(({N_SAMPLED}, *net.input_shape))"), ""


def _inputs(
    net: Network,
    is_builtin: bool,
    inputs: ArrayLike | str | os.PathLike[str] | None,
    labels: ArrayLike | None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
) -> Inputs:
    if not is_builtin or inputs is not None:
        return read_inputs(net, inputs, labels, tokens)
    examples = default_examples()
    note = (
        f"{N_EXAMPLES} random questions with seed {EXAMPLES_SEED}, each asking for one of five key-value "
        "pairs: k2=v1 is a pair, ask k2 a question."
    )
    return Inputs(examples.inputs, examples.labels, examples.tokens, note)


def _question_plane(net: Network, inputs: Inputs) -> Place | None:
    """The built-in model for the first context, on the plane through three of its questions."""
    context = inputs.points[0]
    try:
        names = lookup_tokens(context)[:N_PAIRS]
        hard = conditioned_lookup(context, net.with_temperature(0.0))
    except HardmaxError:  # inputs of another kind were given: they have no questions
        return None
    asked = [int(np.argmax(row)) for row in context[:3]]
    first, second, third = (lookup_question(key) for key in asked)
    plane = Plane.through(first, second, third, margin=0.35)
    corners = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    marks = tuple((corner, f"ask k{key}") for corner, key in zip(corners, asked, strict=True))
    through = f"k{asked[0]}, k{asked[1]} and k{asked[2]}"
    where = f"a window of the plane of questions through {through}, with the pairs of input 0 fixed"
    note = (
        "With the pairs fixed, every key and value of the model is a constant and only the question moves, so "
        "every statement of this section is exact end to end: from the stored weights to the number of cells."
    )
    code = (
        "from hardmax.networks.lookup import conditioned_lookup, lookup_question",
        "hard = conditioned_lookup(inputs[0], net.with_temperature(0.0))",
        f"slice_ = hm.Plane.through(*map(lookup_question, {tuple(asked)}), margin=0.35)",
    )

    def soft(temperature: float) -> Network:
        return conditioned_lookup(context, net.with_temperature(temperature))

    values = tuple(f"v{value}" for value in range(N_VALUES))
    return Place(hard, plane, marks, where, names, (note,), soft, values, code)


def array_hash(points: ArrayLike) -> str:
    """The SHA-256 of an array's shape and its numbers as binary64."""
    array = np.ascontiguousarray(points, dtype=np.float64)
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


#: Inputs drawn where none are given, and the seed that draws them.
N_SAMPLED = 64
SEED = 0

#: Most inputs that are looked at; more would only slow the page down.
MOST_INPUTS = 2000


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs (n, *input_shape), what is known of each, and a sentence on where they come from."""

    points: NDArray[np.float64]
    labels: NDArray[np.int64] | None
    tokens: tuple[tuple[str, ...], ...] | None  # for each input, the names of its positions
    note: str

    def __len__(self) -> int:
        return len(self.points)


def read_inputs(
    net: Network,
    inputs: ArrayLike | str | os.PathLike[str] | None,
    labels: ArrayLike | None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
) -> Inputs:
    """The inputs for a network, checked once.

    Files are those of ``networks.input_files``; what is given beside the file comes first.
    """
    note, where = "", "inputs"
    if inputs is None:
        rng = np.random.default_rng(SEED)
        points: NDArray[Any] = rng.standard_normal((N_SAMPLED, *net.input_shape))
        note = f"{N_SAMPLED} standard normal inputs drawn with seed {SEED}, since none were given."
    elif isinstance(inputs, str | os.PathLike):
        where = str(inputs)
        points, own_labels, own_tokens = stored_inputs(where, where)
        labels, tokens = own_labels if labels is None else labels, own_tokens if tokens is None else tokens
        note = f"read from {Path(inputs).name}."
    else:
        points, note = as_array("inputs", inputs), "given as an array."
    points = checked_points(points, net.input_shape, where)
    n = len(points)
    names = None if tokens is None else _names(tokens, n)
    answers = None if labels is None else _answers(labels, n, net)
    if n > MOST_INPUTS:
        note += f" Only the first {MOST_INPUTS:,} of {n:,} are used."
        points, names = points[:MOST_INPUTS], names and names[:MOST_INPUTS]
        answers = None if answers is None else answers[:MOST_INPUTS]
    return Inputs(points, answers, names, note if inputs is None else f"{several(n, 'input')}, {note}")


def _names(tokens: Sequence[Any], n: int) -> tuple[tuple[str, ...], ...]:
    """Names for each input: one list for all, or a list for each input."""
    listed = list(tokens)
    if all(isinstance(name, str) for name in listed):
        return (tuple(listed),) * n
    if len(listed) != n or any(isinstance(row, str) for row in listed):
        raise ShapeError(f"tokens: expected one list of names, or {n} lists, one for each input; got {len(listed)}")
    return tuple(tuple(str(name) for name in row) for row in listed)


def _answers(labels: ArrayLike, n: int, net: Network) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.dtype.kind not in "iu" or array.ndim == 0 or len(array) != n:
        raise ShapeError(f"labels: expected {n} integers, one for each input, got {array.dtype} of shape {array.shape}")
    if not net.output_shape or net.output_shape[-1] < 2:
        raise ParameterError(
            f"labels need decisions, and outputs of shape {net.output_shape} decide nothing; leave them out"
        )
    return array.astype(np.int64)

"""What a report is about: a model, its inputs, its skeleton, and why there is none where there is none."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.domains import Domain, Plane
from hardmax.errors import EmptyError, HardmaxError, NotPiecewiseAffineError, ParameterError
from hardmax.heads.find import heads_of
from hardmax.heads.hardening import soft_network
from hardmax.networks import operations as op
from hardmax.networks.files.formats import read
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
from hardmax.show.report.inputs import N_SAMPLED, SEED, Inputs, read_inputs

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
        fingerprint(net),
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


def fingerprint(net: Network) -> str:
    """The SHA-256 of a network's operations and weights, in hexadecimal.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine
    >>> one, two = (fingerprint(Network([Affine([[w]])], 1)) for w in (1.0, 2.0))
    >>> len(one), one == two, one == fingerprint(Network([Affine([[1.0]])], 1))
    (64, False, True)
    """
    digest = hashlib.sha256(repr((net.input_shape, net.temperature)).encode())
    for node in net.graph.nodes:
        digest.update(repr((node.operation.name, node.inputs, node.shape)).encode())
        for field in fields(node.operation):
            value = getattr(node.operation, field.name)
            if isinstance(value, np.ndarray):
                digest.update(np.ascontiguousarray(value).tobytes())
            else:
                digest.update(repr(value).encode())
    return digest.hexdigest()


def array_hash(points: ArrayLike) -> str:
    """The SHA-256 of an array's shape and its numbers as binary64."""
    array = np.ascontiguousarray(points, dtype=np.float64)
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()

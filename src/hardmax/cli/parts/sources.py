"""What commands read: a model by file or by a name, which shells are offered, and the inputs beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import working
from hardmax.errors import FileFormatError, NotPiecewiseAffineError, ParameterError, WeightError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardmax.networks.network import Network

BUILTIN = "builtin:"
MODEL = "model:"
SCEPTR = "sceptr"
_SHELL = "_HARDMAX_COMPLETE"
_BEFORE = "_HARDMAX_BEFORE_COLON"


def complete_network(incomplete: str) -> list[str]:
    """Built-in networks whose names begin so.

    Examples
    --------
    >>> complete_network("builtin:figure-2")
    ['builtin:figure-2']
    >>> complete_network("my_model")
    []
    """
    from hardmax.networks.library import builtin_names

    return _fitting(incomplete, (BUILTIN + name for name in builtin_names()))


def complete_model(incomplete: str) -> list[str]:
    """Built-in networks and trained models whose names begin so.

    Examples
    --------
    >>> complete_model("model:m"), complete_model("model:sceptr:ti"), complete_model("builtin:figure-2")
    (['model:minilm'], ['model:sceptr:tiny'], ['builtin:figure-2'])
    >>> complete_model("")
    []
    """
    return complete_network(incomplete) + _fitting(incomplete, trained_names())


def trained_names() -> tuple[str, ...]:
    """What trained models are called: those that read text, and every variant of SCEPTR."""
    from hardmax.heads.capture.sceptr_models import SCEPTR_VARIANTS

    variants = (f"{SCEPTR}:{variant}" for variant in SCEPTR_VARIANTS if variant != "default")
    return tuple(MODEL + name for name in ("minilm", "smollm2", SCEPTR, *variants))


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin so, without what the shell keeps; none for zsh, which would read the colon as its own."""
    if os.environ.get(_SHELL) == "complete_zsh":
        return []
    before = os.environ.get(_BEFORE, "")
    typed = before + incomplete
    return [name[len(before) :] for name in names if typed and name.startswith(typed)]


def join_words(environment: MutableMapping[str, str]) -> None:
    """Undo what bash does to ``builtin:demo``: it counts the colon as a word and wants only what follows the last one.

    Examples
    --------
    >>> asked = {_SHELL: "complete_bash", "COMP_WORDS": "\\n".join(["hardmax", "count", "builtin", ":", "de"])}
    >>> asked["COMP_CWORD"] = "4"
    >>> join_words(asked)
    >>> asked["COMP_WORDS"].split(), asked["COMP_CWORD"]
    (['hardmax', 'count', 'de'], '2')

    Nothing happens where there is nothing to complete:

    >>> join_words({})
    """
    if environment.get(_SHELL) != "complete_bash":
        return
    words, place = environment.get("COMP_WORDS", "").split("\n"), environment.get("COMP_CWORD", "")
    at = int(place) if place.isdecimal() else 0
    for index in range(len(words) - 1):
        if words[index] + words[index + 1] not in (BUILTIN, MODEL):
            continue
        stop = index + 2
        while stop < len(words) and ":" in (words[stop - 1], words[stop]):
            stop += 1
        is_asked = index < at < stop
        before, colon, last = "".join(words[index:stop]).rpartition(":")
        if is_asked:
            environment[_BEFORE] = before + colon
        words[index:stop] = [last if is_asked else before + colon + last]
        at = index if is_asked else at - (stop - index - 1) * (at >= stop)
        break
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(at)


EXAMPLES = f"{BUILTIN}lookup"


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A network file (.onnx, .npz, .safetensors), or a built-in network such as builtin:demo.",
        autocompletion=complete_network,
        show_default=False,
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="Inputs: .npz (its array `inputs`, or FILE:name), .npy, .csv with an input in each row, or builtin:lookup "
        "for examples of that model.",
    ),
]
ReferenceOption = Annotated[
    int | None,
    typer.Option(
        "--reference",
        metavar="ROW",
        help="Freeze LayerNorm and RMSNorm at this row of --inputs, which makes them affine.",
        min=0,
    ),
]


@dataclass(frozen=True)
class HardModel:
    """A model without temperature: the network, which knows what was changed to make it hard, and what it is called."""

    network: Network
    name: str

    @property
    def title(self) -> str:
        """What people are told was looked at."""
        return f"the skeleton of {self.name}" if self.network.changes else self.name


def read_model(source: str) -> tuple[Network, str]:
    """The network of a file or a built-in name, and what to call it.

    Examples
    --------
    >>> read_model("builtin:figure-2")[1]
    'builtin:figure-2'
    >>> read_model("builtin:nothing")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: no built-in network is called 'nothing'; expected one of demo, ...
    """
    if source.startswith(BUILTIN):
        from hardmax.networks.library import builtin

        return builtin(source[len(BUILTIN) :]), source
    if source.startswith(MODEL):
        raise ParameterError(
            f"{source} is no network in a file, so its cells cannot be counted; `hardmax skeleton {source} --texts "
            f"FILE` compares it with its hard self, `hardmax report {source} --texts FILE` shows its heads"
        )
    from hardmax.networks.files.formats import read
    from hardmax.networks.library import builtin_names

    if source in builtin_names() and not os.path.exists(source):
        raise FileFormatError(f"{source}: no such file; for the built-in network write {BUILTIN}{source}")
    with working(f"reading {source}"):
        return read(source), source


def hardened(net: Network, name: str, points: NDArray[np.float64] | None, reference: int | None) -> HardModel:
    """The skeleton of a network, its norms frozen at a row of the points where one is given; refused without cells.

    Examples
    --------
    >>> hardened(*read_model("builtin:demo"), None, None).title
    'builtin:demo'
    """
    from hardmax.networks.skeleton import skeleton

    hard = skeleton(net, reference=reference_of(points, reference))
    if hard.smooth_operations:
        raise NotPiecewiseAffineError(
            f"{name}: {hard.smooth_operations[0]} divides by a norm of its input, so the network has no polyhedral "
            "cells; give --inputs FILE --reference ROW to freeze such divisors at one input"
        )
    return HardModel(hard, name)


def reference_of(points: NDArray[np.float64] | None, reference: int | None) -> NDArray[np.float64] | None:
    """The input at which norms are frozen."""
    if reference is None:
        return None
    if points is None:
        raise ParameterError(f"--reference {reference} is a row of --inputs; expected --inputs FILE beside it")
    return row_of(points, reference, "--reference")


def row_of(points: NDArray[np.float64], row: int, option: str) -> NDArray[np.float64]:
    """One row of the inputs."""
    if not 0 <= row < len(points):
        raise ParameterError(f"{option}: expected a row of --inputs from 0 to {len(points) - 1}, got {row}")
    chosen: NDArray[np.float64] = points[row]
    return chosen


def read_points(source: str | None, input_shape: Sequence[int]) -> NDArray[np.float64] | None:
    """The inputs (n, *input_shape) in a file, or None where none is named."""
    if source is None:
        return None
    from hardmax.networks.files.inputs import INPUT_NAMES, checked_points, stored_array
    from hardmax.networks.lookup import default_examples

    where = f"--inputs {source}"
    array = default_examples().inputs if source == EXAMPLES else stored_array(source, INPUT_NAMES, where)
    return checked_points(array, input_shape, where)


def read_labels(source: str | None, inputs: str | None) -> NDArray[Any] | None:
    """The right decisions: of a file, or of the array `labels` beside the inputs where there is one."""
    from hardmax.networks.files.inputs import LABEL_NAMES, stored_array, stored_inputs
    from hardmax.networks.lookup import default_examples

    if source is None and inputs == EXAMPLES:
        return default_examples().labels
    if source is None:
        return None if inputs is None else stored_inputs(inputs, f"--inputs {inputs}")[1]
    where = f"--labels {source}"
    array = stored_array(source, LABEL_NAMES, where)
    if array.ndim == 2 and array.shape[1] == 1:  # a .csv of one column
        array = array[:, 0]
    if array.dtype.kind == "f" and (array == array.round()).all():
        array = array.astype(int)
    if array.dtype.kind not in "iu":
        raise WeightError(f"{where}: expected integers, the numbers of the right outputs, got {array.dtype}")
    return array


def inputs_file(source: str | None) -> Path | None:
    """The file that --inputs or --labels names."""
    if source is None:
        return None
    from hardmax.networks.files.inputs import split_name

    return split_name(source)[0]

"""Geometry during training: cells, live keys, margins and fidelity, recorded at chosen steps.

``snapshot`` measures one network; a ``Recorder`` is a callback that does so during training and keeps the records:

    recorder = hm.dynamics.Recorder([hm.dynamics.Probe("a to b", hm.Segment(a, b))], inputs=x, labels=y, every=100)
    for step in range(n_steps):
        recorder(step, model, loss=loss.item())   # an hm.Network, or a torch module
        ...
    recorder.write("training.csv")

``recorder.trainer_callback()`` is the same for a Hugging Face Trainer. Reading a module changes neither its weights
nor any random state, so a recorded training run is the run that would have been. Records are tidy: one number each,
with the step, what it is a number of, and how far it can be trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.domains import Domain
from hardmax.cells.search import enumerate_cells
from hardmax.errors import HardmaxError, MissingExtraError, NotPiecewiseAffineError, ParameterError
from hardmax.exactness import Exactness, check_count, share_interval
from hardmax.heads.analysis import COLUMNS as HEAD_COLUMNS
from hardmax.heads.analysis import HeadAnalysis, analyse_heads
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.capture.capturing import capture
from hardmax.heads.fidelity import compare
from hardmax.heads.find import heads_of
from hardmax.heads.trials import decided, right_decisions
from hardmax.networks.files.opening import check_target, csv_text, package_version, write_bytes
from hardmax.networks.files.torch_modules import from_torch
from hardmax.networks.network import Network
from hardmax.networks.skeleton import skeleton

#: The subject of numbers about the whole model.
MODEL = "model"

#: Numbers of ``hm.analyse_heads`` that are recorded for each head.
_OF_HEADS = ("margin_median", "margin_smallest", "entropy_mean", "certified_share")


#: Numbers of ``hm.fidelity.compare`` that are recorded for the model.
_OF_FIDELITY = ("agreement", "relative_error", "kl", "soft_accuracy", "hard_accuracy")


@dataclass(frozen=True)
class Record:
    """One number of one moment.

    ``subject`` is a probe's name, "layer 0 head 1" or "model"; ``value`` is None where the number is infinite, as
    the margin of a head with one key. From ``low`` to ``high`` is its 95 % interval for other inputs drawn as these
    were, where ``Fidelity.interval`` has one. Quantities:

    * of a probe: ``cells``, or ``cells_at_least`` where counting stopped early;
    * of a head: ``live_keys`` and ``keys`` (means over the sets of keys that the inputs give), ``margin_median``,
      ``margin_smallest``, ``entropy_mean``, ``certified_share``, as ``hm.analyse_heads`` defines them;
    * of the model: ``agreement``, ``relative_error``, ``kl``, ``soft_accuracy``, ``hard_accuracy``, as
      ``hm.fidelity.compare`` defines them, ``accuracy`` where there is no soft attention, and whatever number the
      training loop handed in, such as ``loss``.

    Examples
    --------
    >>> list(Record(100, MODEL, "agreement", 0.25, Exactness.ESTIMATED, 0.125, 0.5).row().values())
    [100, 'model', 'agreement', 0.25, 'estimated', 0.125, 0.5]
    """

    step: int
    subject: str
    quantity: str
    value: float | int | None
    exactness: Exactness
    low: float | None = None
    high: float | None = None

    def row(self) -> dict[str, Any]:
        """The record as plain values, fit for JSON."""
        return {**asdict(self), "exactness": str(self.exactness)}


@dataclass(frozen=True, eq=False)
class Probe:
    """A fixed segment, plane or box on which cells are counted at every recorded step.

    ``view`` turns the hard network into the one that is cut: the network conditioned on a context, a part of it, or
    itself (None).

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0], [2.0]], [0.0, 1.0]), hm.ReLU(), hm.Affine([[1.0, 1.0]])], input_dim=1)
    >>> first = Probe("first unit", hm.Segment([-1.0], [1.0]), lambda hard: hm.Network(hard.layers[:2], 1))
    >>> [record.value for record in snapshot(net, [first, Probe("a point", hm.Segment([1.0], [2.0]))])]
    [3, 1]
    """

    name: str
    domain: Domain
    view: Callable[[Network], Network] | None = None


def snapshot(
    net: Network,
    probes: Iterable[Probe] = (),
    *,
    step: int = 0,
    inputs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    queries: Sequence[int] | None = None,
    reference: ArrayLike | None = None,
    logits: bool = True,
    exactness: str = "certified",
    max_cells: int | None = 100_000,
) -> tuple[Record, ...]:
    """Every number of one network: cells on the probes, then fidelity and heads on the inputs.

    Parameters
    ----------
    net
        The network as it is trained, at its own temperature. Cells are those of its skeleton.
    probes
        Where to count cells.
    inputs, labels
        Inputs (n, *input_shape) for fidelity and heads, and the right decisions; None leaves both out. A network
        without soft attention has neither heads nor a fidelity, only an accuracy.
    queries
        Positions of the queries whose rows count for the heads, such as (-1,) for the last token; None for all.
    reference
        An input at which LayerNorm and RMSNorm are frozen (see ``hm.skeleton``); without one a network that has them
        has no cells.
    logits
        Whether outputs are logits, so that a divergence makes sense.
    exactness, max_cells
        As for ``hm.enumerate_cells``; a count that stops at ``max_cells`` is recorded as ``cells_at_least``.

    Exactness: cells as asked; live keys and margins certified for the numbers that the soft network computes in
    floats; fidelity and accuracies estimated, about these inputs.

    Examples
    --------
    >>> import hardmax as hm
    >>> head = hm.Head(keys=[[1.0], [-1.0], [0.5]], values=[[5.0], [7.0], [6.0]], query=[[1.0]])
    >>> net = hm.Network([hm.Attention([head])], input_dim=1, temperature=1.0)
    >>> probe = Probe("from -1 to 1", hm.Segment([-1.0], [1.0]))
    >>> for record in snapshot(net, [probe], inputs=[[2.0]])[:3]:
    ...     print(record.subject, record.quantity, record.value, record.exactness)
    from -1 to 1 cells 2 certified
    model relative_error 0.0551... estimated
    layer 0 head 0 live_keys 2.0 certified

    Nothing asked, nothing measured:

    >>> snapshot(net)
    ()
    """
    if not isinstance(net, Network):
        raise ParameterError(f"expected an hm.Network, got {type(net).__name__}; a Recorder reads torch modules")
    hard = skeleton(net, reference=reference)
    records = [_cells(step, probe, hard, exactness, max_cells) for probe in probes]
    if inputs is not None:
        records += _fidelity(step, net, hard, inputs, labels, logits)
        records += _heads(step, net, inputs, queries)
    elif labels is not None:
        raise ParameterError("labels: expected inputs to go with them, got none; pass inputs=")
    return tuple(records)


def _cells(step: int, probe: Probe, hard: Network, exactness: str, max_cells: int | None) -> Record:
    try:
        if hard.smooth_operations:
            raise NotPiecewiseAffineError(
                f"the skeleton keeps {hard.smooth_operations[0]}, so it has no cells; pass reference=, an input at "
                "which it is frozen"
            )
        cut = hard if probe.view is None else probe.view(hard)
        cells = enumerate_cells(cut, probe.domain, exactness=exactness, max_cells=max_cells)
    except HardmaxError as error:
        raise type(error)(f"probe {probe.name!r}: {error}") from error
    if not cells.is_complete and (max_cells is None or cells.n_cells < max_cells):
        raise KeyboardInterrupt  # Ctrl-C was meant for the training as well
    quantity = "cells" if cells.is_complete else "cells_at_least"
    return Record(step, probe.name, quantity, cells.n_cells, cells.exactness)


def _fidelity(
    step: int, net: Network, hard: Network, inputs: ArrayLike, labels: ArrayLike | None, logits: bool
) -> list[Record]:
    if net.temperature == 0 or not heads_of(net):
        if labels is None:
            return []
        outputs = net(inputs)
        right = float(np.mean(decided(outputs).reshape(-1) == right_decisions(labels, [outputs])))
        n = prod(outputs.shape[: outputs.ndim - len(net.output_shape)])
        return [Record(step, MODEL, "accuracy", right, Exactness.ESTIMATED, *share_interval(right, n))]
    found = compare(net, inputs, labels, logits, hard=hard)
    values = {name: getattr(found, name) for name in _OF_FIDELITY}
    return [
        Record(step, MODEL, name, finite(value), found.exactness, *map(finite, found.interval(name) or ()))
        for name, value in values.items()
        if value is not None
    ]


def _heads(step: int, net: Network, inputs: ArrayLike, queries: Sequence[int] | None) -> list[Record]:
    if net.temperature == 0 or not heads_of(net):
        return []
    captures = capture(net, inputs)
    if queries is not None:
        captures = tuple(
            Capture(seen.source, seen.tokens, tuple(_at(head, queries) for head in seen.heads), seen.query_tokens)
            for seen in captures
        )
    return [record for found in analyse_heads(captures, reach=()) for record in _of_head(step, found)]


def _of_head(step: int, found: HeadAnalysis) -> list[Record]:
    subject = f"layer {found.layer} head {found.head}"
    sets = len(found.key_sets)
    numbers = found.numbers()
    records = [
        Record(step, subject, "live_keys", found.n_live / sets, HEAD_COLUMNS["n_live"][0]),
        Record(step, subject, "keys", found.n_keys / sets, HEAD_COLUMNS["n_keys"][0]),
    ]
    return records + [Record(step, subject, name, numbers[name], HEAD_COLUMNS[name][0]) for name in _OF_HEADS]


def _at(head: CapturedHead, queries: Sequence[int]) -> CapturedHead:
    """The head with the rows of these queries alone."""
    rows = list(queries)
    allowed = range(-head.n_queries, head.n_queries)
    beyond = [row for row in rows if not isinstance(row, int | np.integer) or row not in allowed]
    if beyond or not rows:
        raise ParameterError(
            f"queries: expected positions below {head.n_queries}, the queries of {head.name}, got {rows}"
        )
    return head.of_queries(rows)


def finite(value: float) -> float | None:
    """The number, or None for one that JSON has no word for."""
    return value if isfinite(value) else None


SCHEMA = "hardmax-dynamics-1"
COLUMNS = tuple(field.name for field in fields(Record))
__all__ = ["COLUMNS", "MODEL", "Probe", "Record", "Recorder", "snapshot"]


def __dir__() -> list[str]:
    return __all__


def _step(step: Any) -> int:
    if not isinstance(step, int | np.integer):
        raise ParameterError(f"step: expected the number of a step, an integer, got {step!r}")
    return int(step)


class Recorder:
    """A callback that takes a ``snapshot`` at chosen steps of a training run and keeps the records.

    Parameters
    ----------
    probes
        Where to count cells.
    every, steps
        Record each step that is a multiple of ``every``, or those among ``steps``.
    read
        Makes the ``Network`` of what the training loop hands in; None takes a ``Network`` as it is and reads a torch
        module with ``hm.from_torch`` on ``example``. A state dictionary, or a model that takes tokens, needs one.
    example
        An example input for ``hm.from_torch``; None for the first two of ``inputs``.
    options
        ``inputs``, ``labels``, ``queries`` and whatever else ``snapshot`` takes.

    Exactness: as ``snapshot`` states; each record carries its own.

    Examples
    --------
    >>> import hardmax as hm
    >>> recorder = Recorder([Probe("from -1 to 1", hm.Segment([-1.0], [1.0]))], every=10)
    >>> for step in range(30):
    ...     slope = 1.0 - step / 10  # stands in for training
    ...     net = hm.Network([hm.Affine([[1.0], [slope]], [0.0, 0.5]), hm.ReLU()], input_dim=1)
    ...     made = recorder(step, net, loss=slope**2)
    >>> [(record.step, record.quantity, record.value) for record in recorder.records]
    [(0, 'loss', 1.0), (0, 'cells', 3), (10, 'loss', 0.0), (10, 'cells', 2), (20, 'loss', 1.0), (20, 'cells', 3)]
    >>> Recorder(every=0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: every: expected an integer of at least 1, got 0
    """

    def __init__(
        self,
        probes: Iterable[Probe] = (),
        *,
        every: int = 1,
        steps: Iterable[int] | None = None,
        read: Callable[[Any], Network] | None = None,
        example: Any = None,
        **options: Any,
    ) -> None:
        check_count("every", every)
        self._probes = tuple(probes) if isinstance(probes, Iterable) else (probes,)
        for probe in self._probes:
            if not isinstance(probe, Probe):
                raise ParameterError(f"probes: expected a list of hm.dynamics.Probe, got a {type(probe).__name__}")
        names = [probe.name for probe in self._probes]
        if len(set(names)) < len(names):
            raise ParameterError(f"probes: expected different names, got {names}")
        known = {"inputs", "labels", "queries", "reference", "logits", "exactness", "max_cells"}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ParameterError(f"expected options among {', '.join(sorted(known))}, got {unknown[0]!r}")
        self._every = int(every)
        if steps is not None and not isinstance(steps, Iterable):
            raise ParameterError(f"steps: expected a list of steps, got a {type(steps).__name__}")
        self._steps = None if steps is None else frozenset(_step(step) for step in steps)
        self._read, self._example, self._options = read, example, options
        self._records: list[Record] = []

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything recorded so far, in order."""
        return tuple(self._records)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records as plain dictionaries, ready for a data frame or JSON."""
        return [record.row() for record in self._records]

    def series(self, subject: str, quantity: str) -> list[tuple[int, float | int | None]]:
        """The (step, value) pairs of one quantity of one subject; empty where none was recorded."""
        return [(r.step, r.value) for r in self._records if (r.subject, r.quantity) == (subject, quantity)]

    def is_due(self, step: int) -> bool:
        """Whether a snapshot is taken at this step."""
        number = _step(step)
        return number % self._every == 0 if self._steps is None else number in self._steps

    def __call__(self, step: int, model: Any, **numbers: float) -> tuple[Record, ...]:
        """Record the model if the step is due, with the loop's own numbers; what was recorded, or nothing.

        An error names the step; records made before it are kept.
        """
        if not self.is_due(step):
            return ()
        try:
            made = (
                *(self._note(step, name, value) for name, value in numbers.items()),
                *snapshot(self._network(model), self._probes, step=step, **self._options),
            )
        except HardmaxError as error:
            raise type(error)(f"step {step}: {error}") from error
        self._records.extend(made)
        return made

    def note(self, step: int, **numbers: float) -> None:
        """Record numbers of the training loop alone, such as a loss."""
        self._records.extend([self._note(step, name, value) for name, value in numbers.items()])

    def _note(self, step: int, name: str, value: float) -> Record:
        try:
            return Record(step, MODEL, name, finite(float(value)), Exactness.ESTIMATED)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(f"{name}: expected a number, got {type(value).__name__}") from None

    def _network(self, model: Any) -> Network:
        if self._read is not None:
            net = self._read(model)
            if not isinstance(net, Network):
                raise ParameterError(f"read: expected it to return an hm.Network, got {type(net).__name__}")
            return net
        if isinstance(model, Network):
            return model
        example = self._example
        if example is None and self._options.get("inputs") is not None:
            example = self._options["inputs"][:2]
        if example is None:
            raise ParameterError(
                f"expected an hm.Network, got {type(model).__name__}; for a torch module pass example= or inputs=, for "
                "anything else read="
            )
        return from_torch(model, example)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the records to a .csv (one row a record) or a .json file, whole or not at all.

        An empty field of a .csv is a value that is infinite.
        """
        file = Path(path)
        if file.suffix.lower() not in (".csv", ".json"):
            raise ParameterError(f"{file}: expected a name ending in .csv or .json, got {file.suffix or 'no ending'!r}")
        check_target(file, force)
        if file.suffix.lower() == ".json":
            text = json.dumps({"schema": SCHEMA, "hardmax": package_version(), "rows": self.rows}, allow_nan=False)
        else:
            text = csv_text(COLUMNS, (row.values() for row in self.rows))
        write_bytes(file, text.encode())
        return file

    def trainer_callback(self) -> Any:
        """A ``transformers.TrainerCallback`` that records before the first step and after each step that is due.

        The loss is recorded at the steps where the Trainer logs it. A model that takes tokens, or returns more
        than one tensor, needs ``read``.

        Raises
        ------
        MissingExtraError
            transformers is not installed.
        """
        try:
            from transformers import TrainerCallback
        except ImportError:
            raise MissingExtraError(
                "a Trainer's callback needs transformers: pip install 'hardmax[torch,onnx]' transformers accelerate"
            ) from None
        recorder = self

        class RecorderCallback(TrainerCallback):  # type: ignore[misc]
            """Hands the Trainer's steps to the recorder."""

            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                recorder(state.global_step, kwargs["model"])

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                recorder(state.global_step, kwargs["model"])

            def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                loss = (kwargs.get("logs") or {}).get("loss")
                if loss is not None:
                    recorder.note(state.global_step, loss=loss)

        return RecorderCallback()

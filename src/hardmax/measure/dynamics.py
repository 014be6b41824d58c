"""Geometry during training: cells, live keys, margins and fidelity, recorded at chosen steps.

``snapshot`` measures one network; a ``Recorder`` is a callback that does so during training and keeps the records:

    recorder = hm.dynamics.Recorder([hm.dynamics.Probe("a to b", hm.Segment(a, b))], inputs=x, labels=y, every=100)
    for step in range(n_steps):
        recorder(step, model, loss=loss.item())   # an hm.Network, or a torch module
        ...
    recorder.write("training.csv")

``recorder.trainer_callback()`` is the same for a Hugging Face Trainer. Reading a module changes neither its weights
nor any random state, so a recorded training run is the run that would have been.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import HardmaxError, MissingExtraError, ParameterError
from hardmax.exactness import Exactness, check_count
from hardmax.measure.training_snapshots import MODEL as MODEL
from hardmax.measure.training_snapshots import Probe as Probe
from hardmax.measure.training_snapshots import Record as Record
from hardmax.measure.training_snapshots import finite
from hardmax.measure.training_snapshots import snapshot as snapshot
from hardmax.networks.files.opening import check_target, package_version, write_bytes
from hardmax.networks.files.torch_modules import from_torch
from hardmax.networks.network import Network

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
            buffer = io.StringIO()
            writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            text = buffer.getvalue()
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

"""One network of a training run in numbers: cells on probes, live keys, margins and fidelity on inputs.

Records are tidy: one number each, with the step, what it is a number of, and how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.domains import Domain
from hardmax.cells.search import enumerate_cells
from hardmax.errors import HardmaxError, NotPiecewiseAffineError, ParameterError
from hardmax.exactness import Exactness, share_interval
from hardmax.heads.analysis import COLUMNS as HEAD_COLUMNS
from hardmax.heads.analysis import HeadAnalysis, analyse_heads
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.capture.capturing import capture
from hardmax.heads.fidelity import compare
from hardmax.heads.find import heads_of
from hardmax.heads.trials import decided, right_decisions
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
        return [Record(step, MODEL, "accuracy", right, Exactness.ESTIMATED, *share_interval(right, len(outputs)))]
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

"""``enumerate_cells`` and ``count_cells``: which engine runs, what stops it, what it tells while running."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hardmax.cells.complex import CellComplex, complex_of
from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import Engine
from hardmax.cells.engines.line.engine import LineEngine
from hardmax.cells.engines.plane.engine import PlaneEngine
from hardmax.cells.engines.space.engine import SpaceEngine
from hardmax.cells.enumeration import CellBatch, Enumeration, first_cells
from hardmax.cells.interrupts import HeldSignals
from hardmax.cells.progress import Progress
from hardmax.cells.streaming import StreamWriter
from hardmax.errors import DomainError, NotPiecewiseAffineError, ParameterError, PrecisionError, WriteError
from hardmax.exactness import Exactness, check_count, check_floats, check_word
from hardmax.networks import operations as op
from hardmax.networks.network import Network, check_network
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.cells.streaming import StreamedCells

_MODES = {"certified": Exactness.CERTIFIED, "exact": Exactness.EXACT, "float": Exactness.ESTIMATED}


class CellCount(int):
    """A number of cells that knows whether it is all of them, and how it was found."""

    is_complete: bool
    exactness: Exactness

    @classmethod
    def of(cls, number: int, exactness: Exactness, is_complete: bool) -> CellCount:
        """The count with its status."""
        count = cls(number)
        count.exactness = exactness
        count.is_complete = is_complete
        return count


@overload
def enumerate_cells(
    net: Network,
    domain: Domain,
    exactness: str = ...,
    max_cells: int | None = ...,
    progress: bool = ...,
    workers: int = ...,
    stream_to: None = ...,
) -> CellComplex: ...


@overload
def enumerate_cells(
    net: Network,
    domain: Domain,
    exactness: str = ...,
    max_cells: int | None = ...,
    progress: bool = ...,
    workers: int = ...,
    *,
    stream_to: str | os.PathLike[str],
) -> StreamedCells: ...


@overload
def enumerate_cells(
    net: Network,
    domain: Domain,
    exactness: str = ...,
    max_cells: None = ...,
    progress: bool = ...,
    workers: int = ...,
    stream_to: None = ...,
    *,
    out: str | os.PathLike[str],
    on: Any = ...,
) -> StreamedCells: ...


def enumerate_cells(
    net: Network,
    domain: Domain,
    exactness: str = "certified",
    max_cells: int | None = None,
    progress: bool = False,
    workers: int = 1,
    stream_to: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    on: Any = None,
) -> CellComplex | StreamedCells:
    """Every cell of a hard network on a domain, with its affine map and polytope.

    Parameters
    ----------
    net : a network at temperature 0 whose operations are piecewise affine.
    domain : ``Segment``, ``Plane``, ``Box`` or ``Space``.
    exactness : "certified" (floats with proved signs, rationals where in doubt), "exact" (rationals throughout,
        for small networks) or "float" (signs believed, result marked estimated).
    max_cells : stop after this many; the result is then marked incomplete. The search goes down at once, so that the
        time too depends on this number and not on how many cells there are.
    progress : show cells found, the share of the search that is done and a guess at their number, on a terminal, and
        that kernels are compiled where it is their first use.
    workers : threads. Cells, their labels and their order are the same for any number of them; last bits of maps
        may differ, within the errors that come with them.
    stream_to : a new or empty folder: cells are written there as they are found and a ``StreamedCells`` comes
        back, so that memory does not grow with their number.
    out, on : as in ``count_cells``: a folder that keeps what is found, so that a search that was killed goes on when
        it is called again, and who does the work. A ``StreamedCells`` comes back; ``max_cells`` cannot be asked for.

    An interrupt (Ctrl-C) returns the cells found so far, marked incomplete, whenever it comes; it is held back until
    nothing can be lost. A folder of streamed cells can be loaded after every part: ``hm.load_cells`` gives the marked
    partial result also where the process was killed.

    Raises
    ------
    DomainError
        The domain has more than twelve dimensions, or a cell more corners than can be held.

    Exactness: as asked; see ``CellComplex.exactness``.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> from hardmax.cells.domains import Box
    >>> net = Network([Affine([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), ReLU(), Affine([[1.0, 1.0, 0.0]])], 2)
    >>> cells = enumerate_cells(net, Box([-1, -1], [1, 1]))
    >>> cells.n_cells, cells.n_regions, cells.n_maps
    (4, 4, 4)
    """
    mode = _checked(net, exactness)
    if max_cells is not None:
        max_cells = check_max_cells(max_cells)
    if out is not None or on is not None:
        if out is None or stream_to is not None or max_cells is not None:
            raise ParameterError("on= needs out=, the folder that keeps the cells, and neither stream_to nor max_cells")
        _Run(net, domain, mode, workers)
        found: StreamedCells = view("map_run")(net, domain, mode, out, view("resources")(on, workers), progress)
        return found
    with HeldSignals(endings=stream_to is not None) as held:
        run = _Run(net, domain, mode, workers, max_cells)
        if stream_to is not None:
            return _streamed(run, stream_to, held, progress)
        batches: list[CellBatch] = []
        is_complete = _search(run, batches.append, progress)
        batches.sort(key=lambda batch: batch.path)
        cells = complex_of(net, domain, mode, batches, is_complete, run.n_settled)
        cells.is_complete = cells.is_complete and not held.arrived
        return cells


def _streamed(run: _Run, folder: str | os.PathLike[str], held: HeldSignals, progress: bool) -> StreamedCells:
    """The cells written to a folder as they are found; what was found before an error is in it as well."""
    writer = StreamWriter(folder, run.net, run.domain, run.mode)
    try:
        is_complete = _search(run, writer.add, progress)
    except BaseException:
        with suppress(WriteError):
            writer.finish(False, run.n_settled)
        raise
    return writer.finish(is_complete and not held.arrived, run.n_settled)


def _search(run: _Run, keep: Callable[[CellBatch], None], progress: bool) -> bool:
    """Hand over every batch of cells, up to the number wanted; whether these are all there are."""
    found, is_complete = 0, True
    with Progress(progress) as bar:
        try:
            for batch in run.batches():
                some = batch if run.max_cells is None else first_cells(batch, run.max_cells - found)
                keep(some)
                found += len(some)
                bar.advance(len(some), some.share)
                if found == run.max_cells:
                    is_complete = len(some) == len(batch) and run.is_exhausted()
                    break
        except KeyboardInterrupt:
            is_complete = False
    _check_found(found, is_complete)
    return is_complete


def count_cells(
    net: Network,
    domain: Domain,
    exactness: str = "certified",
    progress: bool = False,
    workers: int = 1,
    *,
    out: str | os.PathLike[str] | None = None,
    on: Any = None,
) -> CellCount:
    """How many cells a hard network has on a domain, in memory that does not grow with the count.

    The result is an ``int`` with ``is_complete`` (False after an interrupt) and ``exactness``.

    Parameters
    ----------
    out : a folder that keeps what is counted: killed at any moment and called again, the count goes on where it was.
        It is done by processes, as many as ``workers``, or as there are cores.
    on : other workers, with a folder or without: ``hm.Resources(...)``, a ``distributed.Client``, or the address of a
        Dask scheduler.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> from hardmax.cells.domains import Segment
    >>> count_cells(Network([Affine([[1.0], [1.0]], [0.0, -1.0]), ReLU()], 1), Segment([-1.0], [2.0]))
    3
    """
    mode = _checked(net, exactness)
    total, is_complete = 0, True
    if out is not None or on is not None:
        _Run(net, domain, mode, workers)  # refuses what cannot be counted
        counted: CellCount = view("count_run")(net, domain, mode, out, view("resources")(on, workers), progress)
        _check_found(counted, counted.is_complete)
        return counted
    with HeldSignals() as held:
        run = _Run(net, domain, mode, workers)
        with Progress(progress) as bar:
            try:
                for number, share in run.counts():
                    total += number
                    bar.advance(number, share)
            except KeyboardInterrupt:
                is_complete = False
        is_complete = is_complete and not held.arrived
    _check_found(total, is_complete)
    return CellCount.of(total, mode, is_complete)


def _check_found(number: int, is_complete: bool) -> None:
    if number == 0 and is_complete:
        raise PrecisionError(
            "float mode lost every cell: its numbers are too small or too close for binary64; "
            "use exactness='certified', which proves each sign"
        )


class _Run:
    """One search: an engine for the domain, in the wanted arithmetic."""

    def __init__(
        self, net: Network, domain: Domain, mode: Exactness, workers: int, max_cells: int | None = None
    ) -> None:
        check_floats()
        check_count("workers", workers)
        if not isinstance(domain, Domain):
            raise DomainError(
                f"expected hm.Segment, hm.Plane, hm.Box or hm.Space as the domain, got {type(domain).__name__}"
            )
        domain.slice_of(net.input_shape)
        self.engine = engine_for(domain, mode is not Exactness.ESTIMATED)
        self.workers = int(workers)
        self.mode = mode
        self.net, self.domain, self.max_cells = net, domain, max_cells
        self._enumeration = Enumeration(net.graph, domain, self.engine, mode is Exactness.CERTIFIED, max_cells)
        self._iterator: Iterator[CellBatch] | None = None

    @property
    def n_settled(self) -> int:
        """How many pieces needed rationals; none where all are settled by them."""
        return self._enumeration.n_settled

    def batches(self) -> Iterator[CellBatch]:
        """Finished cells."""
        if self.mode is Exactness.EXACT:
            self._iterator = self._enumeration.exact_cells()
        else:
            self._iterator = self._enumeration.cells(self.workers)
        return self._iterator

    def counts(self) -> Iterator[tuple[int, float]]:
        """Numbers that add up to the number of cells, with their shares of the search."""
        if self.mode is Exactness.EXACT:
            return ((len(batch), batch.share) for batch in self.batches())
        return self._enumeration.count(self.workers)

    def is_exhausted(self) -> bool:
        """Whether nothing more would have come."""
        assert self._iterator is not None
        return next(self._iterator, None) is None


#: A domain of dimension d has 2^d corners, which are kept; of so many, one cut takes seconds.
_MOST_DIMENSIONS = 12


def engine_for(domain: Domain, certified: bool) -> Engine:
    """The engine of a domain's dimension, refused where it could not hold the domain's own corners."""
    if domain.dim > _MOST_DIMENSIONS:
        raise DomainError(
            f"{type(domain).__name__} of dimension {domain.dim}: cells are kept by their corners, and the domain alone "
            f"has 2^{domain.dim} of them; expected at most {_MOST_DIMENSIONS} dimensions. Cut the network along an "
            "hm.Plane or an hm.Segment, look at the cells around an input with hm.cells_around, or draw samples with "
            "hm.sample_cells"
        )
    if domain.dim == 1:
        return LineEngine(domain, certified)
    if domain.dim == 2 and domain.is_bounded:
        return PlaneEngine(domain, certified)
    return SpaceEngine(domain, certified)


def check_max_cells(max_cells: Any) -> int:
    """How many cells are wanted, as an integer."""
    is_whole = isinstance(max_cells, float | np.floating) and max_cells.is_integer()
    return check_count("max_cells", int(max_cells) if is_whole else max_cells)


def check_norm(norm: Any) -> float:
    """The norm of input space, as a float."""
    if not isinstance(norm, int | float | np.integer | np.floating) or norm not in (1, 2, inf):
        raise ParameterError(f"norm: expected 1, 2 or infinity, got {norm!r:.80}")
    return float(norm)


def check_polyhedral(net: Network) -> None:
    """Refuse what has no polyhedral cells: smooth operations, softmax at a positive temperature."""
    check_network(net)
    if net.smooth_operations:
        raise NotPiecewiseAffineError(
            f"the network has no polyhedral cells because of {net.smooth_operations[0]}; "
            "take hm.skeleton(network) first"
        )
    soft = any(isinstance(n.operation, op.Hardmax) and not n.operation.always_hard for n in net.graph.nodes)
    if net.temperature > 0 and soft:
        raise NotPiecewiseAffineError(
            f"softmax attention at temperature {net.temperature:g} has no polyhedral cells; "
            "take hm.skeleton(network), its zero-temperature limit, first"
        )


def _checked(net: Network, exactness: str) -> Exactness:
    mode = _MODES[check_word("exactness", exactness, _MODES)]
    check_polyhedral(net)
    return mode

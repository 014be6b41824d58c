"""Where cells are looked for, and the cells found there: a plane where scores are affine, else a segment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Domain, Plane, Segment
from hardmax.cells.search import enumerate_cells
from hardmax.errors import DomainError, ParameterError, QuadraticScoresError
from hardmax.exactness import FloatArray
from hardmax.show.report.sections import legible
from hardmax.show.report.subject import Place, Subject

#: How much wider than high the map of a plane is drawn.
MAP_ASPECT = 690 / 524
#: Cells drawn at most: a slice with more is shrunk around its centre until it fits.
MOST_CELLS = 2500
#: Cells times parameters: larger models have fewer cells drawn, down to a few hundred.
MOST_WORK = 400_000_000
LEAST_CELLS = 200
#: Above these sizes cells are not looked for: one search would take minutes.
MOST_PARAMETERS = 5_000_000
MOST_CHOICES = 200_000
#: Maps that agree in floats are compared in rationals; above this many numbers in all it would take minutes.
MOST_COMPARED = 20_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Looked(Place):
    """A slice, and every cell there."""

    cells: CellComplex
    has_regions: bool  # whether cells were merged into regions
    temperature: float = 0.0  # the model's own, where it is soft


def look(subject: Subject, plane: Domain | None, told: Callable[[str], None]) -> Looked | str:
    """Every cell on a slice, or why there is none to look at."""
    if subject.hard is None:
        return f"The model has no skeleton with cells: {subject.no_cells}"
    if subject.hard.n_choices == 0:
        return "The model makes no choice at all: it is one affine map, one cell."
    if subject.net.n_parameters > MOST_PARAMETERS or subject.hard.n_choices > MOST_CHOICES:
        return (
            f"The model has {subject.net.n_parameters:,} parameters and {subject.hard.n_choices:,} choices; cells are "
            f"looked for up to {MOST_PARAMETERS:,} parameters and {MOST_CHOICES:,} choices."
        )
    place = _given(subject, plane) if plane is not None else _chosen(subject)
    if isinstance(place, str):
        return place
    if place is not subject.conditioned:
        place = replace(
            place, soft=None if subject.not_soft else subject.net.with_temperature, code=_code(subject, place.domain)
        )
    if place.key_names is None and subject.inputs.tokens is not None:
        place = replace(place, key_names=tuple(legible(name, 80) for name in subject.inputs.tokens[0]))
    try:
        found = _search(place, told)
    except QuadraticScoresError:
        if not isinstance(place.domain, Plane):
            raise
        found = _search(_segment_instead(subject, place), told)
    return replace(found, temperature=subject.net.temperature)


def _given(subject: Subject, domain: Domain) -> Place:
    if not isinstance(domain, Plane | Segment):
        raise ParameterError(f"plane: expected hm.Plane or hm.Segment, got {type(domain).__name__}")
    assert subject.hard is not None
    return Place(subject.hard, domain, (), f"the {'plane' if domain.dim == 2 else 'segment'} that was asked for")


def _chosen(subject: Subject) -> Place | str:
    """A slice through the inputs that says something of them."""
    assert subject.hard is not None
    if subject.conditioned is not None:
        return subject.conditioned
    shape, points = subject.hard.input_shape, subject.inputs.points
    size = prod(shape)
    if size == 1:
        low, high = float(points.min()), float(points.max())
        pad = 0.2 * (high - low) or 1.0
        ends = [np.full(shape, value) for value in (low - pad, high + pad)]
        return Place(subject.hard, Segment(*ends), (), "a stretch of the line of all inputs")
    if size == 2:
        flat = points.reshape(-1, 2)
        low2, high2 = flat.min(axis=0), flat.max(axis=0)
        centre, half = (low2 + high2) / 2, 0.6 * float((high2 - low2).max()) or 1.0
        halves = (half * MAP_ASPECT, half)
        extent = [(float(c - reach), float(c + reach)) for c, reach in zip(centre, halves, strict=True)]
        marks = tuple(((float(a), float(b)), "") for a, b in flat[:200])
        plane = Plane(np.zeros(shape), np.eye(2).reshape(2, *shape), extent)
        notes = ("The window lies around the inputs, which are the dots.",)
        return Place(subject.hard, plane, marks, "a window of the plane of all inputs", None, notes)
    picked = _distinct(points)
    names = [f"input {index}" for index in picked]
    if len(picked) >= 3:
        try:
            plane = Plane.through(*(points[index] for index in picked))
        except DomainError:
            picked = picked[:2]
        else:
            corners = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
            where = f"a window of the plane through inputs {picked[0]}, {picked[1]} and {picked[2]}"
            return Place(subject.hard, plane, tuple(zip(corners, names, strict=True)), where)
    if len(picked) == 2:
        return _between(subject, picked[0], picked[1])
    return "A slice needs at least two different inputs, and only one was given."


def _between(subject: Subject, first: int, second: int, notes: tuple[str, ...] = ()) -> Place:
    assert subject.hard is not None
    points = subject.inputs.points
    marks = (((0.0,), f"input {first}"), ((1.0,), f"input {second}"))
    where = f"the straight line from input {first} to input {second}"
    return Place(subject.hard, Segment(points[first], points[second]), marks, where, None, notes)


def _segment_instead(subject: Subject, place: Place) -> Place:
    note = (
        "Queries and keys both move with the input of this model, so on a plane scores are quadratic and their walls "
        "are curves. On a line they are solved exactly, so a line is shown instead of a plane."
    )
    picked = _distinct(subject.inputs.points)
    segment = _between(subject, picked[0], picked[1], (*place.notes, note))
    code = _code(subject, segment.domain)
    return replace(segment, key_names=place.key_names, soft=place.soft, class_names=place.class_names, code=code)


def _code(subject: Subject, domain: Domain) -> tuple[str, ...]:
    """Python that names the skeleton and the slice; points are written out only where they are few."""
    hard = "hard = net" if subject.not_soft else "hard = hm.skeleton(net, reference=inputs[0])"
    if isinstance(domain, Plane):
        origin, basis = _where(subject, domain.origin), [_where(subject, domain.origin + row) for row in domain.basis]
        if domain.origin.size <= 2:
            return hard, f"slice_ = hm.Plane({domain.origin.tolist()}, {domain.basis.tolist()}, {domain.extent})"
        return hard, f"slice_ = hm.Plane.through({', '.join([origin, *basis])})"
    assert isinstance(domain, Segment)
    return hard, f"slice_ = hm.Segment({_where(subject, domain.start)}, {_where(subject, domain.end)})"


def _where(subject: Subject, point: FloatArray) -> str:
    """A point as one of the inputs, or its numbers."""
    for index, given in enumerate(subject.inputs.points[:8]):
        if np.allclose(given, point, rtol=0, atol=1e-12):
            return f"inputs[{index}]"
    return str(point.tolist()) if point.size <= 16 else "..."


def _distinct(points: FloatArray) -> list[int]:
    """The first three inputs that differ from one another."""
    picked: list[int] = []
    for index, point in enumerate(points):
        if not any(np.array_equal(point, points[other]) for other in picked):
            picked.append(index)
        if len(picked) == 3:
            break
    return picked


def _search(place: Place, told: Callable[[str], None]) -> Looked:
    most = max(min(MOST_CELLS, MOST_WORK // place.net.n_parameters), min(MOST_CELLS, LEAST_CELLS))
    for _ in range(30):
        told("finding every cell")
        cells = enumerate_cells(place.net, place.domain, max_cells=most)
        if cells.is_complete:
            break
        if cells.n_cells < most:  # it was stopped from outside, and so are we
            raise KeyboardInterrupt
        place = _shrunk(place, most)
    if not cells.is_complete:
        raise DomainError(f"more than {most:,} cells remain however small the slice; give another plane")
    notes = place.notes
    has_regions = n_alike(cells) * place.net.n_parameters <= MOST_COMPARED
    if not has_regions:
        notes += (
            "Many cells carry maps that agree in floating point. To prove them equal in rationals would take minutes "
            "in a model of this size, so cells are not merged into regions here.",
        )
    place = replace(place, notes=notes, code=(*place.code, "cells = hm.enumerate_cells(hard, slice_)"))
    return Looked(**vars(place), cells=cells, has_regions=has_regions)


def n_alike(cells: CellComplex) -> int:
    """How many cells carry a map that another cell carries too, up to rounding."""
    maps = cells.maps.reshape(cells.n_cells, -1)
    size = float(np.abs(maps).max(initial=0.0)) or 1.0
    _, counts = np.unique(np.round(maps / size, 11), axis=0, return_counts=True)
    return int(counts[counts > 1].sum())


def _shrunk(place: Place, most: int) -> Place:
    """The same slice, half as long in every direction, around its centre."""
    domain = place.domain
    note = f"The slice had more than {most:,} cells, too many to draw, so it was shrunk around its centre."
    if note not in place.notes:
        place = replace(place, notes=(*place.notes, note), where=f"the middle of {place.where}")
    if isinstance(domain, Segment):
        middle, quarter = (domain.start + domain.end) / 2, (domain.end - domain.start) / 4
        smaller: Domain = Segment(middle - quarter, middle + quarter)
        ends = "a, b = slice_.start, slice_.end"
        halved = (ends, "slice_ = hm.Segment((3 * a + b) / 4, (a + 3 * b) / 4)")
        return replace(place, domain=smaller, marks=(), code=(*place.code, *halved))
    assert isinstance(domain, Plane)
    extent = [((3 * a + b) / 4, (a + 3 * b) / 4) for a, b in domain.extent]
    inside = tuple(mark for mark in place.marks if all(a <= x <= b for x, (a, b) in zip(mark[0], extent, strict=True)))
    smaller = Plane(domain.origin, domain.basis, extent)
    code = (*place.code[:2], f"slice_ = hm.Plane(slice_.origin, slice_.basis, {smaller.extent})")
    if place.code[-1].startswith("slice_ = hm.Plane(slice_"):
        code = (*place.code[:-1], code[-1])
    return replace(place, domain=smaller, marks=inside, code=code)

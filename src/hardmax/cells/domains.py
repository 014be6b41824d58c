"""Where cells are looked for: a segment, a plane slice, a box, or all of space.

A domain is a slice ``x = origin + sum_i u_i basis_i`` of input space together with the range of the
slice coordinates u. Cells, vertices and affine maps are all given in slice coordinates; for ``Box``
and ``Space`` these are the input coordinates themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import DomainError, ShapeError
from hardmax.exact.rationals import rational_array
from hardmax.exact.rounding import dot_error
from hardmax.exactness import FloatArray, finite_numbers, numbers, set_fields

Shape = tuple[int, ...]


class Domain:
    """A slice of input space with a range of slice coordinates.

    ``dim`` counts the slice coordinates; ``low`` and ``high`` bound them and are None for all of space.
    """

    dim: int
    low: FloatArray | None
    high: FloatArray | None

    def slice_of(self, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
        """Origin (*input_shape) and basis (dim, *input_shape) of the slice in a network's input space."""
        raise NotImplementedError

    @property
    def is_bounded(self) -> bool:
        """Whether the slice coordinates are bounded."""
        return self.low is not None

    @property
    def volume(self) -> float:
        """The volume of the domain in slice coordinates, infinite for all of space."""
        if self.low is None or self.high is None:
            return float("inf")
        return float(prod(b - a for a, b in zip(self.low.tolist(), self.high.tolist(), strict=True)))

    def points(self, coordinates: ArrayLike, input_shape: Shape) -> FloatArray:
        """Inputs (..., *input_shape) at slice coordinates (..., dim)."""
        origin, basis = self.slice_of(input_shape)
        u = numbers("slice coordinates", coordinates)
        if u.shape[-1:] != (self.dim,):
            raise ShapeError(f"expected slice coordinates (..., {self.dim}), got shape {u.shape}")
        return np.asarray(origin + np.tensordot(u, basis, axes=1))


@dataclass(frozen=True, eq=False)
class Segment(Domain):
    """The segment from ``start`` (slice coordinate 0) to ``end`` (slice coordinate 1).

    The direction is ``end - start`` rounded to float64; the slice is exactly start + u * direction.

    Examples
    --------
    >>> Segment([0.0, 0.0], [1.0, 2.0]).dim
    1
    """

    start: FloatArray
    end: FloatArray

    def __init__(self, start: ArrayLike, end: ArrayLike) -> None:
        first, last = finite_numbers("Segment start", start), finite_numbers("Segment end", end)
        if first.shape != last.shape:
            raise ShapeError(f"Segment: start has shape {first.shape} and end {last.shape}; expected the same")
        if not _difference("Segment", first, last).any():
            raise DomainError("Segment: start and end coincide; a segment needs two distinct points")
        set_fields(self, start=first, end=last)

    dim, low, high = 1, finite_numbers("low", [0.0]), finite_numbers("high", [1.0])

    def slice_of(self, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
        _check_shape("Segment", self.start.shape, input_shape)
        return self.start, (self.end - self.start)[None]


@dataclass(frozen=True, eq=False)
class Plane(Domain):
    """The rectangle ``origin + u basis[0] + v basis[1]`` for (u, v) in ``extent``.

    Examples
    --------
    >>> Plane([0.0, 0.0, 0.0], [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], extent=((-1, 1), (0, 2))).volume
    4.0
    """

    origin: FloatArray
    basis: FloatArray
    extent: tuple[tuple[float, float], tuple[float, float]]

    def __init__(self, origin: ArrayLike, basis: ArrayLike, extent: ArrayLike = ((-1, 1), (-1, 1))) -> None:
        centre, axes = finite_numbers("Plane origin", origin), finite_numbers("Plane basis", basis)
        if axes.shape != (2, *centre.shape):
            raise ShapeError(f"Plane: expected a basis of shape {(2, *centre.shape)}, got {axes.shape}")
        ranges = finite_numbers("Plane extent", extent)
        if ranges.shape != (2, 2):
            raise ShapeError(f"Plane: expected extent ((u0, u1), (v0, v1)), got shape {ranges.shape}")
        for name, (first, last) in zip("uv", ranges, strict=True):
            if not first < last:
                raise DomainError(f"Plane: the extent of {name} is empty: [{first:g}, {last:g}]")
        if _dependent(axes[0].reshape(-1), axes[1].reshape(-1)):
            raise DomainError("Plane: the two basis vectors are linearly dependent; they span no plane")
        low, high = finite_numbers("Plane extent", ranges.T)
        set_fields(self, origin=centre, basis=axes, extent=tuple(map(tuple, ranges.tolist())), low=low, high=high)

    @classmethod
    def through(cls, first: ArrayLike, second: ArrayLike, third: ArrayLike, margin: float = 0.2) -> Plane:
        """The plane through three points, which get coordinates (0, 0), (1, 0) and (0, 1)."""
        a, b, c = (finite_numbers("Plane.through", p) for p in (first, second, third))
        if not a.shape == b.shape == c.shape:
            raise ShapeError(f"Plane.through: points have shapes {a.shape}, {b.shape} and {c.shape}")
        if np.ndim(beyond := finite_numbers("Plane.through margin", margin)):
            raise ShapeError(f"Plane.through: expected one number as margin, got shape {beyond.shape}")
        span = (-float(beyond), 1.0 + float(beyond))
        return cls(a, np.stack([_difference("Plane.through", a, point) for point in (b, c)]), (span, span))

    dim = 2

    def slice_of(self, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
        _check_shape("Plane", self.origin.shape, input_shape)
        return self.origin, self.basis


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """The box ``low <= x <= high`` of the whole input space.

    Examples
    --------
    >>> Box([-1, -1, 0], [1, 1, 2]).volume
    8.0
    """

    low: FloatArray
    high: FloatArray

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        first, last = finite_numbers("Box low", low).reshape(-1), finite_numbers("Box high", high).reshape(-1)
        if first.shape != last.shape:
            raise ShapeError(f"Box: low has {first.size} entries and high {last.size}; expected as many")
        if first.size == 0:
            raise DomainError("Box: expected at least one dimension, got none")
        if not (first < last).all():
            axis = int(np.argmin(first < last))
            raise DomainError(f"Box: axis {axis} is empty: [{first[axis]:g}, {last[axis]:g}]; low must be below high")
        set_fields(self, low=first, high=last)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The dimension of the box."""
        return len(self.low)

    def slice_of(self, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
        return _whole_space("Box", self.dim, input_shape)


@dataclass(frozen=True, eq=False)
class Space(Domain):
    """All of R^dim: cells may be unbounded and then have rays."""

    dim: int

    def __post_init__(self) -> None:
        try:
            is_whole = int(self.dim) == self.dim >= 1
        except (TypeError, ValueError, OverflowError):
            is_whole = False
        if not is_whole:
            raise DomainError(f"Space: expected a dimension of at least 1, got {self.dim!r:.60}")

    low = None
    high = None

    def slice_of(self, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
        return _whole_space("Space", self.dim, input_shape)


def _whole_space(name: str, dim: int, input_shape: Shape) -> tuple[FloatArray, FloatArray]:
    if prod(input_shape) != dim:
        raise DomainError(
            f"{name}: the domain has dimension {dim} but the network's input has {prod(input_shape)} entries "
            f"(shape {input_shape}); match them, or cut along an hm.Plane or hm.Segment"
        )
    return np.zeros(input_shape), np.eye(dim).reshape(dim, *input_shape)


def _check_shape(name: str, shape: Shape, input_shape: Shape) -> None:
    if shape != input_shape:
        raise DomainError(f"{name}: its points have shape {shape} but the network's inputs have shape {input_shape}")


def _difference(name: str, first: FloatArray, last: FloatArray) -> FloatArray:
    """``last - first``, refused where it is beyond all floats."""
    with np.errstate(over="ignore"):
        direction: FloatArray = last - first
    if not np.isfinite(direction).all():
        raise DomainError(f"{name}: its points are farther apart than the largest float; take points that are nearer")
    return direction


def _dependent(first: FloatArray, second: FloatArray) -> bool:
    """Whether two float vectors are linearly dependent, decided in rationals where floats doubt."""
    if not first.any() or not second.any():
        return True
    pivot = int(np.abs(first).argmax())
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what is no number proves nothing
        left, right = first[pivot] * second, second[pivot] * first
        if (np.abs(left - right) > dot_error(2, np.abs(left) + np.abs(right))).any():
            return False
    a, b = rational_array(first), rational_array(second)
    return all(a[pivot] * b[i] == b[pivot] * a[i] for i in range(len(a)))

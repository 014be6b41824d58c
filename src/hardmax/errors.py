"""Every error the package raises on purpose.

Each class names one kind of bad input. Each inherits from ``HardmaxError`` and from the builtin a
caller would expect, takes one message, and pickles. A message says what was expected, what arrived,
where, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class HardmaxError(Exception):
    """Base of every deliberate error; its message is one line, whatever was given."""

    def __str__(self) -> str:
        return " ".join(line.strip() for line in super().__str__().splitlines())


class ShapeError(HardmaxError, ValueError):
    """Arrays whose shapes do not fit together."""


class WeightError(HardmaxError, ValueError):
    """Weights, keys or inputs that are NaN, infinite or not numbers."""


class ParameterError(HardmaxError, ValueError):
    """An argument outside the range where the question makes sense."""


class EmptyError(HardmaxError, ValueError):
    """Nothing where at least one thing is needed: no keys, no layers, no queries."""


class DomainError(HardmaxError, ValueError):
    """A slice or domain that is degenerate or does not fit the network."""


class NotPiecewiseAffineError(HardmaxError, ValueError):
    """An operation whose cells are not polyhedra: softmax at positive temperature, GELU, LayerNorm."""


class QuadraticScoresError(HardmaxError, ValueError):
    """Scores of degree two where only affine ones can be cut exactly."""


class PrecisionError(HardmaxError, ArithmeticError):
    """Numbers that overflow or underflow binary64, so that no honest answer exists."""


class DivergenceError(HardmaxError, ArithmeticError):
    """A Kleene star with a positive cycle: the supremum is infinite."""


class DiscontinuityError(HardmaxError, ValueError):
    """A network that jumps, where a continuous one is needed."""


class FileFormatError(HardmaxError, ValueError):
    """A file that is truncated, of another format, or of a schema this version does not know."""


class PickleError(HardmaxError, ValueError):
    """A file that would have to be unpickled; nothing is ever unpickled from a user's file."""


class OperatorError(HardmaxError, NotImplementedError):
    """An operator (of an ONNX file or a torch module) that has no counterpart here."""


class OpsetError(HardmaxError, NotImplementedError):
    """An ONNX opset this version does not read."""


class DynamicShapeError(HardmaxError, ValueError):
    """A shape that cannot be resolved to integers before the network runs."""


class WriteError(HardmaxError, OSError):
    """A file that could not be written; nothing is left half-written."""


class MissingExtraError(HardmaxError, ImportError):
    """An optional dependency that is not installed; the message holds the pip line that cures it."""


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """While inside, optional packages are imported for ``what``; one that is missing is refused with its pip line."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{what} ({error}): pip install 'hardmax[{extra}]'") from None


class MissingModelError(HardmaxError, FileNotFoundError):
    """A trained model that has a name here but is not shipped in this version."""


class RunError(HardmaxError, RuntimeError):
    """A run that cannot go on: its workers are lost, its scheduler is silent, its memory is too small."""


class IncompleteError(HardmaxError, RuntimeError):
    """A question that only a complete enumeration can answer, asked of one that stopped early."""


class CertificateError(HardmaxError, RuntimeError):
    """A certificate that does not check: a bug in this package, please report it."""

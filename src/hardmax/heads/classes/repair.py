"""Biases with which dead classes get cells: how far each must be raised, what that takes from others, and the proof.

Let H be the upper hull of the lifted rows (w_j, b_j), so that the lift of a dead class i is H(w_i) - b_i, and let g be
strictly concave with values in [1/2, 1]. Raised to H(w_i) + margin g(w_i), all dead classes together, none is covered
by others: a mixture of rivals reaches at most H(w_i) + margin sum l_j g(w_j), which is less. Where features are
nonnegative, mixtures with larger weights cover as well, and g falls along each of them. What it can cost is a live
class that stands above the others by less than the margin; an audit of the new head finds such classes, and they are
raised as well. In floats the last word has that audit; where it finds dead classes still, other margins are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hardmax.errors import FileFormatError, IncompleteError, OperatorError, ParameterError
from hardmax.exact.rounding import SAFETY, dot_error
from hardmax.exactness import Exactness, FloatArray, IntArray, positive_number
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.problem import distinct
from hardmax.heads.classes.verdicts import proved_winners
from hardmax.networks.files.opening import contents

if TYPE_CHECKING:
    from hardmax.heads.classes.audit import ClassAudit


Audited = Callable[..., "ClassAudit"]

_ROUNDS = 12
_AGAIN = 2.0**-10  # of a class that is raised once more, the share of its last margin
#: Times the margin, where classes are left dead: in a box it may exceed what scores can differ by, and floats of the
#: wanted width may round its shares together.
_OTHERWISE = (2.0**-4, 2.0**-10, 4.0, 16.0)
_BLOCK_SCORES = 4_000_000
_NEAR = 12  # classes around a raised one that are asked whether they lose something


@dataclass(frozen=True, eq=False)
class Repair:
    """New biases, and what they change; made by ``ClassAudit.repaired_bias``.

    raised : classes whose bias grew; ``alone`` (raised,) is the bias that would do for each if no other were raised.
    copies : dead classes that no bias can help, because another class has the same row: only one of them can win.
    left : other classes that are dead still, because floats of this width were too coarse to tell their rows apart,
        also with another margin, up to sixteen times the one asked for.
    losers, takers : classes that are proved to lose part of their cell, and for each the class that now wins there.
        Others may lose as well: these are the winners at witnesses and around those of raised classes.
    audit : the audit of the new head, which proves who lives.

    Exactness: certified.
    """

    bias: FloatArray  # (N,)
    margin: float
    raised: IntArray
    alone: FloatArray
    copies: IntArray
    left: IntArray
    losers: IntArray
    takers: IntArray
    audit: ClassAudit = field(repr=False)

    @property
    def exactness(self) -> Exactness:
        """Certified: who lives is proved by an audit, who loses by two proved winners at one query."""
        return Exactness.CERTIFIED

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """The biases alone, so that a repair stands wherever biases do."""
        return np.array(self.bias, dtype, copy=copy)

    def __repr__(self) -> str:
        still = f", {len(self.left):,} still dead" if len(self.left) else ""
        copies = f", {len(self.copies):,} copies stay dead" if len(self.copies) else ""
        losers = f"{len(self.losers):,} lose part of their cell"
        return f"Repair({len(self.raised):,} classes raised{still}{copies}; {losers})"


def repaired_bias(audit: ClassAudit, margin: float, again: Audited, dtype: DTypeLike = np.float64) -> Repair:
    """The smallest growth of biases that gives dead classes cells; see ``ClassAudit.repaired_bias``.

    ``again`` audits rows with other biases.
    """
    margin = positive_number("margin", margin, "since at 0 a raised class only ties")
    dtype = _float_type(dtype)
    if audit.n_undecided:
        raise IncompleteError(f"{audit.n_undecided} classes are undecided; audit without max_seconds, then repair")
    bias, current, alone = _attempt(audit, margin, again, dtype)
    for factor in _OTHERWISE:
        if not _covered(current).any():
            break
        try:
            other = _attempt(audit, factor * margin, again, dtype)
        except ParameterError:  # more than fits the numbers
            break
        if _covered(other[1]).sum() < _covered(current).sum():
            bias, current = other[:2]
    changed = np.flatnonzero(bias != audit.bias)
    losers, takers = _losses(audit, current, changed)
    is_copy = current.dead & ~_covered(current)
    return Repair(
        bias, float(margin), changed, alone[changed], np.flatnonzero(is_copy), np.flatnonzero(_covered(current)),
        losers, takers, current,
    )  # fmt: skip


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError):
        kind = np.dtype(object)
    if kind.kind != "f" and kind.name != "bfloat16":
        raise ParameterError(f"dtype: expected a type of floats, such as 'float32', got {dtype!r:.80}")
    return kind


def _attempt(
    audit: ClassAudit, margin: float, again: Audited, dtype: DTypeLike
) -> tuple[FloatArray, ClassAudit, FloatArray]:
    """Biases raised by a margin, the audit of them, and what would do for each class alone; the best of some rounds."""
    share = _concave(audit.weights, audit.domain)
    bias, current = np.array(audit.bias), audit
    raises = np.zeros(len(bias), dtype=np.int64)
    alone = np.zeros(len(bias))
    fewest, stuck = len(bias) + 1, 0
    best = bias, current
    for _ in range(_ROUNDS):
        broken = np.flatnonzero(_covered(current))
        if len(broken) < fewest:
            fewest, stuck, best = len(broken), 0, (bias, current)
        else:
            stuck += 1
        if not len(broken) or stuck == 3:
            break
        new = np.array(bias)
        for i in broken.tolist():
            lift = current.lift(i).high
            if not raises[i]:
                alone[i] = _raised(bias[i], lift + margin, dtype)
            new[i] = _raised(bias[i], lift + margin * share[i] * _AGAIN ** raises[i], dtype)
        raises[broken] += 1
        bias, current = new, again(audit.weights, new, domain=audit.domain, names=audit.names)
    return *best, alone


def _covered(audit: ClassAudit) -> NDArray[np.bool_]:
    """Dead classes that are no copies of others."""
    _, keeper = distinct(audit.weights, audit.bias)
    return np.asarray(audit.dead & (keeper == np.arange(audit.n_classes)))


def _concave(weights: FloatArray, domain: FeatureDomain) -> FloatArray:
    """(N,) a strictly concave function of the rows, between 1/2 and 1; it falls along features with one wall only."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        above, below = np.isfinite(domain.low), np.isfinite(domain.high)
        centre = np.where(above & ~below, weights.min(axis=0), weights.mean(axis=0))
        centred = weights - np.where(below & ~above, weights.max(axis=0), centre)
        scale = np.abs(centred).max(initial=0.0)
        squares = np.square(centred / scale).sum(axis=1) if 0 < scale < np.inf else np.zeros(len(weights))
    largest = squares.max(initial=0.0)
    return np.asarray(1.0 - 0.5 * squares / largest if largest > 0 else np.ones(len(weights)))


def _raised(bias: float, growth: float, dtype: DTypeLike) -> float:
    """The sum, rounded up to a number of the given type and above both."""
    kind: Any = np.dtype(dtype).type
    total = np.nextafter(bias + growth, np.inf)
    with np.errstate(over="ignore"):
        rounded = kind(total)
    if float(rounded) < total:
        rounded = np.nextafter(rounded, kind(np.inf))
    if not np.isfinite(rounded):
        raise ParameterError(f"margin: a bias of {bias:g} raised by {growth:g} does not fit {np.dtype(dtype)}")
    return float(rounded)


def _losses(before: ClassAudit, after: ClassAudit, changed: IntArray) -> tuple[IntArray, IntArray]:
    """Classes that won a known query before and do not now, with the class that does.

    Exactness: certified; a winner is believed where its lead exceeds the rounding of scores.
    """
    queries = [before.queries[np.isfinite(before.queries).all(axis=1)]]
    for i in changed[after.live[changed]].tolist():
        if i not in after.exact_queries:
            queries.append(_around(before, after, i))
    taken: dict[int, int] = {}
    for block in _blocks(np.concatenate(queries), before.n_classes):
        scores = block @ before.weights.T
        sizes = np.abs(block) @ np.abs(before.weights).T
        old, new = (_winners(scores, sizes, audit.bias, before.weights.shape[1]) for audit in (before, after))
        for loser, taker in zip(old.tolist(), new.tolist(), strict=True):
            if loser >= 0 and taker >= 0 and loser != taker:
                taken.setdefault(loser, taker)
    losers = np.array(sorted(taken), dtype=np.int64)
    return losers, np.array([taken[i] for i in losers.tolist()], dtype=np.int64)


def _around(before: ClassAudit, after: ClassAudit, i: int) -> FloatArray:
    """The witness of a raised class, and queries of its new cell towards the classes that scored most there before."""
    query = after.queries[after.query_of[i]]
    scores = before.weights @ query + before.bias
    steps = before.weights - before.weights[i]
    with np.errstate(all="ignore"):
        length = np.sqrt(np.square(steps).sum(axis=1))
        lead = after.weights[i] @ query + after.bias[i] - (after.weights @ query + after.bias)
        room = float(np.where(length > 0, lead / length, np.inf).min())
        near = np.argsort(-scores)[: _NEAR + 1]
        near = near[length[near] > 0]
        moved = query + 0.9 * max(room, 0.0) * steps[near] / length[near, None]
    found = after.domain.clipped(np.vstack([query[None], moved]))
    return np.asarray(found[np.isfinite(found).all(axis=1)])


def _winners(scores: FloatArray, sizes: FloatArray, bias: FloatArray, dim: int) -> IntArray:
    """(queries,) the proved winner, -1 where rounding leaves it open."""
    needed = 2.0 * SAFETY * dot_error(dim, SAFETY * (sizes + np.abs(bias)).max(axis=1))
    return proved_winners(scores + bias, needed)


def _blocks(queries: FloatArray, n_classes: int) -> Any:
    size = max(1, _BLOCK_SCORES // max(n_classes, 1))
    return (queries[start : start + size] for start in range(0, len(queries), size))


# --- back into the file ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OnnxBias:
    """The bias of the last layer of an ONNX file, ready to be replaced; made by ``onnx_bias_of``."""

    path: Path
    name: str
    values: NDArray[Any]
    data: bytes = field(repr=False)

    def replaced(self, repair: Repair, audit: ClassAudit) -> bytes:
        """The bytes of the file with the repaired bias, all else as it was.

        Raises
        ------
        OperatorError
            The audit's biases are not the numbers in the file.
        """
        from hardmax.networks.files.onnx.models import replaced_constant

        if not np.array_equal(self.values.reshape(-1).astype(np.float64), audit.bias):
            raise OperatorError(
                f"{self.path.name}: the audited biases are not the numbers in {self.name!r:.60} (a scale or a "
                "normalisation is folded into them); repair on another domain than auto, or export the layer plainly"
            )
        return replaced_constant(self.data, self.name, repair.bias, self.path.name)


def onnx_bias_of(model: Path, layer: str | None, out: Path) -> OnnxBias:
    """Where the bias of a file's last layer is kept; refused before any work where it could not be replaced.

    Raises
    ------
    FileFormatError
        Another kind of file.
    OperatorError
        No bias, one that is shared, computed or kept outside the file, or a file whose other tensors lie beside it and
        would not be found from the folder of ``out``.
    """
    from hardmax.heads.classes.sources.onnx_layers import onnx_bias
    from hardmax.networks.files.onnx.models import outside_tensors, parse_model, replaced_constant

    if model.suffix.lower() != ".onnx":
        raise FileFormatError(f"{model}: biases are written back into .onnx files, got {model.suffix or 'no ending'!r}")
    name = onnx_bias(model, layer)
    data = contents(model)
    held = parse_model(data, str(model), model.parent)
    made = {out_name: node.attributes.get("value") for node in held.nodes for out_name in node.outputs
            if node.op == "Constant"}  # fmt: skip
    values = np.asarray(held.constants.get(name, made.get(name, ())))
    replaced_constant(data, name, values.reshape(-1), model.name)  # refuses what cannot be replaced
    beside = outside_tensors(data)
    if beside and model.parent.resolve() != out.parent.resolve():
        raise OperatorError(
            f"{model.name}: {len(beside)} tensors lie in files beside it, which {out} would not find; "
            f"write the repaired file into {model.parent}"
        )
    return OnnxBias(model, name, values, data)

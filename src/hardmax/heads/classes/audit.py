"""``hm.audit_classes``: the classes that a linear layer with argmax can and cannot answer.

Class i scores ``<w_i, q> + b_i`` at the feature vector q. It *lives* on a domain where some query of the domain gives
it a larger score than every other class; otherwise it is *dead* and can never be the answer. Of exact copies (row and
bias) the lowest index lives, as in ``hm.power_diagram``: a copy of a live class ties with it and is passed over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.verify.verification import Verification
from hardmax.errors import ParameterError
from hardmax.exactness import check_flag, check_floats
from hardmax.heads.classes.certificates import ClassRecord, read_classes, save_classes
from hardmax.heads.classes.checking import check
from hardmax.heads.classes.domains import read_domain
from hardmax.heads.classes.repair import Repair, repaired_bias
from hardmax.heads.classes.sources import read_head
from hardmax.heads.classes.verdicts import DEAD, LIVE
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.heads.classes.lifts import Lift, LiftSearch


@dataclass(frozen=True, eq=False, repr=False)
class ClassAudit(ClassRecord):
    """Which classes live and which are dead, each with its proof; made by ``hm.audit_classes``.

    ``live`` and ``dead`` are masks (N,); where both are False the class is undecided, because time ran out. Verdicts
    are about rows and biases. ``assumed`` says what is taken for granted, not proved, of what a model does with their
    scores, where its code was not followed; it is empty where nothing is.

    Exactness: certified. A class is live by a query whose margin exceeds the rounding of its scores (or is positive in
    rationals), dead by a mixture of rivals proved to cover it; undecided classes are counted, never guessed.
    """

    def __repr__(self) -> str:
        n, d = self.weights.shape
        left = f", {self.n_undecided:,} undecided" if self.n_undecided else ""
        found = f"{self.n_live:,} live, {self.n_dead:,} dead{left}"
        assumed = f"; assumed: {self.assumed}" if self.assumed else ""
        return f"ClassAudit({n:,} classes in dimension {d} on {self.domain.words}: {found}{assumed})"

    def plot(self, ax: Any = None) -> Any:
        """Draw which classes live on matplotlib's ``ax``, new axes unless given, and return it.

        Their cells in two or three dimensions and up to 400 classes, else their rows on two principal directions.

        Exactness: verdicts certified; coordinates estimated.
        """
        return view("draw_audit")(self, ax)

    def lift(self, index: int) -> Lift:
        """By how much the bias of class ``index`` must grow until it has a cell on the domain; 0 where it lives.

        A float with the ends ``low`` and ``high`` of a proved interval; at the least value itself the class only ties.
        On the sphere the least value is that of a program that is not convex: the interval is proved, but can be wide.
        """
        i = self._class(index, None, "", "")
        known: dict[int, Lift] = self.__dict__.setdefault("_known_lifts", {})  # a page, a table and a repair ask again
        if i not in known:
            known[i] = self._lifts.lift(i)
        return known[i]

    @cached_property
    def _lifts(self) -> LiftSearch:
        from hardmax.heads.classes.lifts import LiftSearch  # the compiler comes with it

        return LiftSearch(self)

    def repaired_bias(self, margin: float, *, dtype: Any = np.float64) -> Repair:
        """Biases with which every class lives that can: dead ones raised by their lift and up to ``margin``, together.

        ``dtype`` is the type of number that the biases are stored in; raised ones are rounded up to it. Classes with
        one row share one cell at most, so copies stay as they are and are listed. Where ``margin`` leaves classes
        dead, smaller ones are tried, then up to sixteen times as much, which floats of few digits may need.

        Examples
        --------
        >>> audit = audit_classes([[1.0], [-1.0], [0.0]], [0.5, 0.5, 0.0])
        >>> repair = audit.repaired_bias(0.25)
        >>> repair, repair.losers.tolist(), repair.audit.n_dead
        (Repair(1 classes raised; 2 lose part of their cell), [0, 1], 0)
        """
        return repaired_bias(self, margin, audit_classes, dtype)

    def verify(self, *, thorough: bool = False) -> Verification:
        """Check every witness and certificate again, with code that shares nothing with the search.

        Certificates are enclosed in integers, or solved in rationals where that leaves doubt; ``thorough`` solves all.
        """
        check_floats()
        return check(self, thorough=thorough)

    def table(self, *, lifts: bool = False) -> list[dict[str, Any]]:
        """One entry a dead or undecided class, in order: number, name, verdict, length of its row, bias, rivals."""
        lifts, rows = check_flag("lifts", lifts), []
        for i in np.flatnonzero(self.status != LIVE).tolist():
            entry: dict[str, Any] = {
                "class": i,
                "name": self.names[i],
                "verdict": "dead" if self.status[i] == DEAD else "undecided",
                "length": hypot(*self.weights[i].tolist()),  # squares of small numbers would vanish
                "bias": float(self.bias[i]),
                "rivals": self.certificate(i).rivals.tolist() if self.status[i] == DEAD else [],
            }
            if lifts and self.status[i] == DEAD:
                entry["lift"] = float(self.lift(i))
            rows.append(entry)
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the audit with its proofs to an .npz file, whole or not at all."""
        save_classes(self, path)


def audit_classes(
    source: Any,
    bias: Any = None,
    *,
    layer: str | None = None,
    domain: Any = "all",
    names: Any = None,
    progress: bool = False,
    max_seconds: float | None = None,
    device: str | None = None,
    out: str | os.PathLike[str] | None = None,
    on: Any = None,
) -> ClassAudit:
    """Which classes of a linear layer with argmax can be the answer, and which never.

    Parameters
    ----------
    source : weights (N, d), one row a class; or an ``hm.Network``, the path of an .onnx, .npz, .safetensors or .gguf
        file, or a torch or Hugging Face model, whose last linear layer before the output is found by itself; of a model
        in several files any one.
    bias : (N,), for arrays; none is zero.
    layer : the name of another layer of a file or model.
    domain : the features that can occur: "all" of R^d, "nonnegative" (after ReLU), ("box", low, high) (after swish,
        tanh; sides may be infinite), ("ball", centre, radius), or "sphere": the unit sphere, after an RMSNorm whose
        gain and length were folded into the weights. A class lives where a query of the domain makes it win alone.
        "auto" takes what the operations in front of the layer show, and ``reason`` says what that was; after a
        normalisation it is the ball that its outputs lie in, with gain and shift folded into the rows.
    names : (N,) texts, the path of a text file with one on each line, a tokenizer, or a table from numbers to labels;
        without them those that the source carries.
    max_seconds : stop after that long; Ctrl-C does the same. What is settled is kept, the rest counts as undecided.
    device : where torch makes the first queries, such as "cuda"; what it leaves open is settled here. For domain "all"
        and numbers that binary32 holds.
    out, on : as in ``hm.count_cells``: a folder that keeps what is settled, so that an audit that was killed goes on
        when it is called again, and who does the work.

    Exactness: certified; the numbers are taken as the rationals they are, and no tolerance decides.

    Raises
    ------
    WeightError, ShapeError, EmptyError, DomainError, ParameterError
        Numbers that are not finite, arrays that do not fit, no classes, a domain without interior.

    Examples
    --------
    The last class lies below the segment between the first two; a bias of 1 would lift it out:

    >>> audit = audit_classes([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], [0.5, 0.5, 0.0])
    >>> audit
    ClassAudit(3 classes in dimension 2 on all features: 2 live, 1 dead)
    >>> audit.certificate(2).rivals, audit.certificate(2).weights, audit.lift(2)
    (array([0, 1]), array([0.5, 0.5]), 0.5)
    >>> audit_classes(np.empty((2, 0)), [0.0, 1.0]).live  # no features: the largest bias always wins
    array([False,  True])
    """
    check_floats()
    head = read_head(source, bias, layer, names)
    reason = head.where
    if isinstance(domain, str) and domain == "auto" and reason != "weights":  # of an array there is nothing in front
        head, domain, reason = head.folded(), head.features, f"{head.where}; {head.reason}"
    where = read_domain(domain, head.weights.shape[1])
    told: dict[str, Any] = {"reason": reason, "assumed": head.assumed}
    if max_seconds is not None and not (isinstance(max_seconds, Real) and max_seconds >= 0):
        raise ParameterError(f"max_seconds: expected a number of seconds >= 0 or None, got {max_seconds!r}")
    if device is not None and where.kind != "all":
        raise ParameterError(f'device={device!r} is for domain="all", got {where.words}; leave device out')
    if out is not None or on is not None:
        if max_seconds is not None or device is not None:
            raise ParameterError("out and on: a run has no max_seconds and no device; stop it, and it goes on later")
        found = view("class_run")(head, where, out, view("resources")(on), progress)
        return ClassAudit(head.weights, head.bias, head.names, where, **found, **told)
    from hardmax.heads.classes.settling import settled  # the compiler comes with it

    found = settled(head, where, progress, max_seconds, device)
    return ClassAudit(head.weights, head.bias, head.names, where, **found, **told)


def load_classes(path: str | os.PathLike[str]) -> ClassAudit:
    """The audit in a file that ``audit.save`` wrote.

    Exactness: as stored; ``verify`` checks what was loaded.

    Raises
    ------
    FileFormatError
        The file is absent, damaged, or of another kind.
    """
    return ClassAudit(**read_classes(path))

"""``hm.audit_classes``: the classes that a linear layer with argmax can and cannot answer.

Class i scores ``<w_i, q> + b_i`` at the feature vector q. It *lives* on a domain where some query of the domain gives
it a larger score than every other class; otherwise it is *dead* and can never be the answer. Of exact copies (row and
bias) the lowest index lives, as in ``hm.power_diagram``: a copy of a live class ties with it and is passed over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ParameterError, PrecisionError
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray
from hardmax.heads.classes.certificates import Certificate
from hardmax.heads.classes.domains import FeatureDomain, read_domain
from hardmax.heads.classes.sources import read_head
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover

if TYPE_CHECKING:
    from hardmax.cells.verify.verification import Verification
    from hardmax.heads.classes.lifts import Lift, LiftSearch
    from hardmax.heads.classes.repair import Repair



@dataclass(frozen=True, eq=False)
class ClassAudit:
    """Which classes live and which are dead, each with its proof; made by ``hm.audit_classes``.

    ``live`` and ``dead`` are masks (N,); where both are False the class is undecided, because time ran out.

    Exactness: certified. A class is live by a query whose margin exceeds the rounding of its scores (or is positive in
    rationals), dead by a mixture of rivals proved to cover it; undecided classes are counted, never guessed.
    """

    weights: FloatArray  # (N, d)
    bias: FloatArray  # (N,)
    names: tuple[str, ...]
    domain: FeatureDomain
    status: NDArray[np.int8] = field(repr=False)  # (N,) 1 live, 0 dead, -1 undecided
    queries: FloatArray = field(repr=False)  # (live, d)
    query_of: IntArray = field(repr=False)  # (N,) row of ``queries``, -1 where there is none
    exact_queries: dict[int, tuple[Fraction, ...]] = field(repr=False)
    covers: tuple[Cover, ...] = field(repr=False)  # columns: classes, then N + k low and N + d + k high walls
    cover_of: IntArray = field(repr=False)  # (N,)
    reason: str = ""  # where the rows come from, and why the domain is what it is

    def __post_init__(self) -> None:
        for array in (self.weights, self.bias, self.status, self.queries, self.query_of, self.cover_of):
            array.setflags(write=False)

    def __repr__(self) -> str:
        n, d = self.weights.shape
        left = f", {self.n_undecided:,} undecided" if self.n_undecided else ""
        found = f"{self.n_live:,} live, {self.n_dead:,} dead{left}"
        return f"ClassAudit({n:,} classes in dimension {d} on {self.domain.words}: {found})"

    @property
    def n_classes(self) -> int:
        return len(self.weights)

    @property
    def live(self) -> BoolArray:
        """(N,) classes that some query of the domain makes the answer."""
        return np.asarray(self.status == LIVE)

    @property
    def dead(self) -> BoolArray:
        """(N,) classes that no query of the domain makes the answer."""
        return np.asarray(self.status == DEAD)

    @property
    def n_live(self) -> int:
        return int(self.live.sum())

    @property
    def n_dead(self) -> int:
        return int(self.dead.sum())

    @property
    def n_undecided(self) -> int:
        return int((self.status == UNDECIDED).sum())

    @property
    def exactness(self) -> Exactness:
        """Certified: every verdict carries its proof."""
        return Exactness.CERTIFIED

    def witness(self, index: int, *, exact: bool = False) -> Any:
        """A query (d,) of the domain that class ``index`` alone wins (its later copies aside).

        On the sphere the query stands for its direction. With ``exact`` the same query as rationals.

        Raises
        ------
        ParameterError
            The class is not live.
        PrecisionError
            No float query was found in its thin cell; ``exact=True`` gives a rational one.
        """
        i = self._class(index, LIVE, "a witness", "live")
        if i in self.exact_queries:
            if exact:
                return self.exact_queries[i]
            raise PrecisionError(
                f"class {i} ({self.names[i]}) wins in so thin a cell that no float query was found in it; "
                f"witness({i}, exact=True) gives a rational one"
            )
        query = self.queries[self.query_of[i]]
        return tuple(Fraction(x) for x in query.tolist()) if exact else query

    def certificate(self, index: int) -> Certificate:
        """Why class ``index`` is dead: rivals and the weights with which they cover it.

        Raises
        ------
        ParameterError
            The class is not dead.
        """
        i = self._class(index, DEAD, "a certificate", "dead")
        cover = self.covers[self.cover_of[i]]
        columns = np.array(cover.columns, dtype=np.int64)
        is_rival = columns < self.n_classes
        return Certificate(
            i,
            cover.kind,
            columns[is_rival],
            columns[~is_rival] - self.n_classes,
            (self.weights, self.bias, self.domain),
            cover,
        )

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
        from hardmax.heads.classes.lifts import LiftSearch

        return LiftSearch(self)

    def repaired_bias(self, margin: float, *, dtype: Any = np.float64) -> Repair:
        """Biases with which every class lives that can: dead ones raised by their lift and up to ``margin``, together.

        ``dtype`` is the type of number that the biases are stored in; raised ones are rounded up to it. Classes with
        one row share one cell at most, so copies stay as they are and are listed.

        Examples
        --------
        >>> audit = audit_classes([[1.0], [-1.0], [0.0]], [0.5, 0.5, 0.0])
        >>> repair = audit.repaired_bias(0.25)
        >>> repair, repair.losers.tolist(), repair.audit.n_dead
        (Repair(1 classes raised; 2 lose part of their cell), [0, 1], 0)
        """
        from hardmax.heads.classes.repair import repaired_bias

        return repaired_bias(self, margin, dtype)

    def verify(self, *, thorough: bool = False) -> Verification:
        """Check every witness and certificate again, with code that shares nothing with the search.

        Certificates are enclosed in integers, or solved in rationals where that leaves doubt; ``thorough`` solves all.
        """
        from hardmax.heads.classes.checking import check

        return check(self, thorough=thorough)

    def table(self, *, lifts: bool = False) -> list[dict[str, Any]]:
        """One entry a dead or undecided class, in order: number, name, verdict, length of its row, bias, rivals."""
        rows = []
        for i in np.flatnonzero(self.status != LIVE).tolist():
            entry: dict[str, Any] = {
                "class": i,
                "name": self.names[i],
                "verdict": "dead" if self.status[i] == DEAD else "undecided",
                "length": float(np.sqrt(np.square(self.weights[i]).sum())),
                "bias": float(self.bias[i]),
                "rivals": self.certificate(i).rivals.tolist() if self.status[i] == DEAD else [],
            }
            if lifts and self.status[i] == DEAD:
                entry["lift"] = float(self.lift(i))
            rows.append(entry)
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the audit with its proofs to an .npz file, whole or not at all."""
        from hardmax.heads.classes.storage import save_classes

        save_classes(self, path)

    def _class(self, index: Any, status: int | None, what: str, word: str) -> int:
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < self.n_classes:
            raise ParameterError(f"expected the number of a class, 0 to {self.n_classes - 1}, got {index!r}")
        if status is not None and self.status[index] != status:
            is_now = {LIVE: "live", DEAD: "dead", UNDECIDED: "undecided"}[int(self.status[index])]
            raise ParameterError(
                f"class {index} ({self.names[index]}) is {is_now}; expected a {word} class, only those have {what}"
            )
        return int(index)


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
) -> ClassAudit:
    """Which classes of a linear layer with argmax can be the answer, and which never.

    Parameters
    ----------
    source : weights (N, d), one row a class; or a path to an .onnx, .safetensors or .gguf file, or a torch or Hugging
        Face model, whose last linear layer before the output is found by itself.
    bias : (N,), for arrays; none is zero.
    layer : the name of another layer of a file or model.
    domain : the features that can occur: "all" of R^d, "nonnegative" (after ReLU), ("box", low, high) (after swish,
        tanh; sides may be infinite), ("ball", centre, radius), or "sphere": the unit sphere, after an RMSNorm whose
        gain and length were folded into the weights. A class lives where a query of the domain makes it win alone.
        "auto" takes what the operations in front of the layer show, and ``reason`` says what that was; after a
        normalisation it is the ball that its outputs lie in, with gain and shift folded into the rows.
    names : (N,) texts, the path of a text file with one a line, a tokenizer, or a table from numbers to labels; without
        them those that the source carries.
    max_seconds : stop after that long; Ctrl-C does the same. What is settled is kept, the rest counts as undecided.
    device : where torch makes the first queries, such as "cuda"; what it leaves open is settled here. For domain "all"
        and numbers that binary32 holds.

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
    head = read_head(source, bias, layer, names)
    reason = head.where
    if isinstance(domain, str) and domain == "auto" and reason != "weights":  # of an array there is nothing in front
        head, domain, reason = head.folded(), head.features, f"{head.where}; {head.reason}"
    where = read_domain(domain, head.weights.shape[1])
    if max_seconds is not None and not max_seconds >= 0:
        raise ParameterError(f"max_seconds: expected a number of seconds >= 0 or None, got {max_seconds!r}")
    if device is not None and where.kind != "all":
        raise ParameterError(f'device={device!r} is for domain="all", got {where.words}; leave device out')
    from hardmax.heads.classes.settling import settled  # the compiler comes with it

    found = settled(head, where, progress, max_seconds, device)
    return ClassAudit(head.weights, head.bias, head.names, where, **found, reason=reason)

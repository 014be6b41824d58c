"""``hm.verify``: a cell complex checked again, by other means than those that made it.

The checks together prove a complete complex right. Each polytope's corners are those of the set where its own label's
choices win, none missing; labels differ, so no two polytopes overlap; behind every facet inside the domain lies a
cell, so nothing is missing (``verify.adjacency`` has the proof). Which cells share facets follows from labels, or from
linear programs on walls, and the claimed pairs must be those, all of them; maps are compared with one another, and
regions are joined from both. A complex that was not asked for these before has claimed nothing, and takes what was
found here. Claimed errors must be true, and no looser than ``verify.choices.LOOSENESS`` times what
one rounding of each operation explains, or than ``SHARP`` of a corner's coordinates. Guards and maps are recomputed
along the labels, not by the engines.

In the default mode of a certified complex extended floats with proved bounds decide, and rationals wherever those
cannot; ``thorough`` and complexes of exactness "exact" are checked in rationals throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hardmax.cells.verify.check import Check
from hardmax.cells.verify.subject import Subject, layout_fault
from hardmax.errors import CertificateError, ParameterError
from hardmax.exactness import Exactness, check_flag, check_floats, frozen
from hardmax.html import block, table

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


@dataclass(frozen=True)
class Verification:
    """What ``hm.verify`` found; ``ok`` where every check passed.

    exactness : "exact" where everything was decided in rationals, "certified" where floats with proved bounds
        decided what they could, "estimated" for float complexes, whose numbers may be off by 1e-9 of their size.
    """

    checks: tuple[Check, ...]
    exactness: Exactness

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> None:
        """Raise ``CertificateError`` naming the checks that failed; nothing where none did."""
        failed = [f"{check.name}: {check.detail}" for check in self.checks if not check.passed]
        if failed:
            raise CertificateError(
                f"{len(failed)} of {len(self.checks)} checks failed; {'; '.join(failed)}. The complex was changed "
                "after it was made, its file is damaged, or this is a bug in hardmax: please report it"
            )

    def _repr_html_(self) -> str:
        title = "Every check passed" if self.ok else "Some checks failed"
        rows = [(check.name, check.passed, check.detail) for check in self.checks]
        return block(title, table(("check", "passed", "detail"), rows, most=40), exactness=self.exactness.value)

    def __str__(self) -> str:
        return "\n".join(f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.detail}" for c in self.checks)


def verify(cells: CellComplex, *, thorough: bool = False) -> Verification:
    """Check a cell complex independently of the engine that made it; failures are reported, not raised.

    Parameters
    ----------
    cells : what ``hm.enumerate_cells`` or ``hm.load_cells`` returned. An incomplete complex is checked as a
        part: cells may be missing, and its adjacency and regions are not asked for. Neighbours, maps and regions that
        were asked for before are compared with what is found; others are kept as found, where every check passed.
    thorough : decide everything in rationals; always so for complexes of exactness "exact".

    Exactness: see ``Verification.exactness``.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> from hardmax.networks.network import Network
    >>> from hardmax.cells.domains import Box
    >>> from hardmax.cells.search import enumerate_cells
    >>> net = Network([Affine([[1.0, 0.0], [0.0, 0.0]]), ReLU()], 2)
    >>> cells = enumerate_cells(net, Box([-1, -1], [1, 1]))
    >>> verify(cells).ok
    True
    >>> cells.labels = cells.labels[[0, 0]]
    >>> [check.name for check in verify(cells).checks if not check.passed][:2]
    ['labels', 'interior points']
    """
    check_floats()
    if not hasattr(cells, "pieces"):
        raise ParameterError(
            f"expected a CellComplex to verify, got {type(cells).__name__}; load() a streamed result first"
        )
    exactness = cells.exactness
    if check_flag("thorough", thorough) and exactness is Exactness.CERTIFIED:
        exactness = Exactness.EXACT
    subject = Subject(cells, thorough)
    found = Verification(tuple(_checks(subject)), exactness)
    if found.ok:
        vars(cells).update({name: frozen(answer) for name, answer in subject.answers.items()})
    return found


def _checks(subject: Subject) -> list[Check]:
    from hardmax.cells.verify.adjacency import check_adjacency, check_volume
    from hardmax.cells.verify.choices import (
        check_corners,
        check_errors,
        check_interior_points,
        check_labels,
        check_maps,
    )
    from hardmax.cells.verify.regions import check_map_numbers, check_regions

    fault = layout_fault(subject)
    if fault is not None:
        return [Check("layout", False, fault)]
    if subject.n_cells == 0:
        return [Check("layout", not subject.is_complete, "there are no cells")]
    wanted: list[tuple[str, Callable[[Subject], Check]]] = [
        ("labels", check_labels),
        ("interior points", check_interior_points),
        ("corners", check_corners),
        ("maps", check_maps),
        ("error bounds", check_errors),
        ("map numbers", check_map_numbers),
        ("volume", check_volume),
    ]
    if subject.is_complete:
        wanted += [("adjacency", check_adjacency), ("regions", check_regions)]
    done = [Check("layout", True, f"{subject.n_cells} cells in dimension {subject.dim}")]
    for name, check in wanted:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is looked at in rationals
                done.append(check(subject))
        except Exception as error:  # damaged data can make any step fail: that is a finding, not a crash
            done.append(Check(name, False, f"could not be carried out ({type(error).__name__}: {error})"))
    if not subject.is_complete:
        done.append(Check("adjacency", True, "not looked at: the complex is incomplete"))
    return done

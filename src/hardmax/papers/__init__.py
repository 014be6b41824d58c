"""Every published statement as a function that returns a verdict and its witness.

``hm.claims.ledger`` is the tuple of claims; ``hm.claims.check()`` examines them all.

Examples
--------
>>> import hardmax as hm
>>> (finding,) = hm.claims.check("Figure 4")
>>> str(finding.verdict), finding.witness["maximum"], finding.witness["asserted"]
('false', 92, 216)
>>> len({claim.name for claim in hm.claims.ledger}) == len(hm.claims.ledger)
True
"""

from typing import TYPE_CHECKING

from hardmax.papers.entries import Claim as Claim
from hardmax.papers.entries import Decided as Decided
from hardmax.papers.entries import Finding as Finding
from hardmax.papers.entries import Outcome as Outcome
from hardmax.papers.entries import Verdict as Verdict
from hardmax.papers.reporting import as_json as as_json
from hardmax.papers.reporting import as_markdown as as_markdown
from hardmax.papers.reporting import check as check
from hardmax.views import late, own_names

if TYPE_CHECKING:
    from hardmax.papers.adversaries import Attack as Attack
    from hardmax.papers.adversaries import attack as attack
    from hardmax.papers.statements import ledger as ledger
else:
    # The statements and the adversaries load what they examine; both wait until they are asked for.
    _STATED, _ATTACKS = "hardmax.papers.statements", "hardmax.papers.adversaries"
    __getattr__ = late(globals(), {"Attack": _ATTACKS, "attack": _ATTACKS, "ledger": _STATED})


def __dir__() -> list[str]:
    return own_names(globals(), "Attack", "attack", "ledger")

"""Class audits as runs: the verdicts of one audit, each with a proof that checks, whatever ends the run."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells.subtrees import Budget
from hardmax.errors import ParameterError, WriteError
from hardmax.runs import class_runs
from runs.inline_runs import Here, KilledError, killed_at_write

pytest.importorskip("pyarrow", reason="pyarrow, which is not installed")


def _head(n=90, dim=4, seed=0, dead=20):
    """Rows in thirds and small integers, with mixtures, copies and ties among them."""
    rng = np.random.default_rng(seed)
    rows = np.round(rng.normal(size=(n, dim)) * 3) / 3
    bias = np.round(rng.normal(size=n) * 2) / 8
    for k in range(dead):
        pair = rng.choice(n - dead, 2, replace=False)
        rows[n - 1 - k] = rows[pair].mean(axis=0)
        bias[n - 1 - k] = bias[pair].mean() - rng.integers(0, 2) / 4
    rows[1] = rows[0]
    return rows, bias


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Many chunks for few rows."""
    monkeypatch.setattr(class_runs, "_BLOCK", 16)
    monkeypatch.setattr(class_runs, "_MOST_BLOCKS", 3)


@pytest.mark.parametrize(
    "domain", ["all", "nonnegative", ("box", -1.0, 2.0), ("ball", np.zeros(4), 1.5), "sphere"], ids=lambda d: str(d)[:8]
)
def test_a_run_has_the_verdicts_of_one_audit_and_proofs_that_check(domain, tmp_path):
    rows, bias = _head(30 if domain == "sphere" or domain[0] == "ball" else 90, dead=8)
    audit = hm.audit_classes(rows, bias, domain=domain)
    here = Here()
    found = hm.audit_classes(rows, bias, domain=domain, out=tmp_path, on=here)
    assert found.n_undecided == audit.n_undecided and (found.status == audit.status).all()
    assert found.verify().ok and found.n_dead > 3
    assert len(here.worked) == len(set(here.worked)) > 5
    again = Here()
    assert (hm.audit_classes(rows, bias, domain=domain, out=tmp_path, on=again).status == audit.status).all()
    assert again.worked == []


@pytest.mark.parametrize("domain", ["all", ("ball", np.zeros(4), 1.5), "sphere"], ids=lambda d: str(d)[:8])
def test_an_end_at_any_write_loses_nothing_that_was_settled(domain, tmp_path, monkeypatch):
    rows, bias = _head() if domain == "all" else _head(30, dead=8)
    budget = Budget(0.0, 2)
    hm.audit_classes(rows, bias, domain=domain, out=tmp_path / "whole", on=Here(budget=budget))
    status = hm.audit_classes(rows, bias, domain=domain).status
    n_writes = sum(1 for file in (tmp_path / "whole").rglob("*") if file.is_file())
    for end in range(0, n_writes, 3 if domain == "all" else 9):
        folder, first, second = tmp_path / str(end), Here(budget=budget), Here(budget=budget)
        restore = killed_at_write(monkeypatch, end)
        with pytest.raises(KilledError):
            hm.audit_classes(rows, bias, domain=domain, out=folder, on=first)
        restore()
        audit = hm.audit_classes(rows, bias, domain=domain, out=folder, on=second)
        assert (audit.status == status).all() and audit.verify().ok
        assert set(first.worked) & set(second.worked) <= set(first.worked[-1:])


def test_small_heads_other_heads_and_limits_of_time(tmp_path):
    assert hm.audit_classes([[1.0, 2.0]], out=tmp_path / "one", on=Here()).n_live == 1
    assert hm.audit_classes(np.empty((3, 0)), [0.0, 2.0, 1.0], on=Here()).live.tolist() == [False, True, False]
    rows, bias = _head(20, dead=4)
    hm.audit_classes(rows, bias, out=tmp_path / "run", on=Here())
    for other in ({"domain": "nonnegative"}, {"bias": bias + 1}):
        with pytest.raises(WriteError, match="holds another run"):
            hm.audit_classes(rows, **{"bias": bias, **other}, out=tmp_path / "run", on=Here())
    for wrong in ({"max_seconds": 1.0}, {"device": "cpu"}):
        with pytest.raises(ParameterError, match="out and on"):
            hm.audit_classes(rows, bias, out=tmp_path / "run", on=Here(), **wrong)

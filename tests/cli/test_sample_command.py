"""``hardmax sample``: the library's estimate, its warning, its seed."""

import numpy as np

import hardmax as hm
from cli.commands import facts_of, run
from hardmax.networks.library import builtin


def test_the_estimate_is_the_library_s(capsys):
    options = ["--box", "-2", "2", "--samples", "2e4", "--seed", "3"]
    code, facts = facts_of(capsys, "sample", "builtin:demo", *options)
    found = hm.sample_cells(builtin("demo"), hm.Box([-2, -2], [2, 2]), 20_000, rng=np.random.default_rng(3))
    assert code == 0 and facts["exactness"] == "estimated" and facts["seed"] == 3
    for key in ("n_samples", "n_distinct", "n_once", "n_twice", "coverage", "estimate"):
        assert facts[key] == getattr(found, key)
    assert facts["interval"] == list(found.interval)


def test_people_get_the_count_its_coverage_and_a_warning(capsys):
    code, out, _ = run(capsys, "sample", "builtin:demo", "--box", "-2", "2", "-n", "100")
    assert code == 0
    assert "at least" in out and "coverage" in out and "Chao1" in out and "95 % interval" in out
    assert "limited by the samples" in out and "`hardmax count`" in out
    assert "warning" not in run(capsys, "sample", "builtin:figure-3", "--box", "-1", "1")[1]


def test_the_estimate_is_called_the_lower_one_that_it_is_and_coverage_is_not_rounded_up(capsys):
    arguments = ["sample", "builtin:figure-1-depth-3", "--box", "-100", "100", "-n", "1e6"]
    code, facts = facts_of(capsys, *arguments)
    out = run(capsys, *arguments)[1]
    assert code == 0 and 0.99995 < facts["coverage"] < 1
    assert "coverage 1.0" not in out and "Chao1's lower estimate" in out and "holds for cells of one size" in out


def test_the_same_seed_gives_the_same_numbers(capsys):
    arguments = ["sample", "builtin:demo", "--segment", "-2,-1", "2,1", "-n", "1000", "--json"]
    first = run(capsys, *arguments, "--seed", "1")[1]
    assert run(capsys, *arguments, "--seed", "1")[1] == first
    assert run(capsys, *arguments, "--seed", "2")[1] != first


def test_the_true_number_stands_beside_the_sampled_one_where_it_is_cheap(capsys):
    code, out, _ = run(capsys, "sample", "builtin:demo", "--box", "-4", "4", "--samples", "20000")
    assert code == 0 and "the true number is 151 (certified, hardmax count): sampling missed" in out
    _, facts = facts_of(capsys, "sample", "builtin:demo", "--box", "-4", "4", "--samples", "20000")
    assert facts["true_cells"] == 151 > facts["n_distinct"]

"""Roles of heads, against weights in decimals of 60 digits and heads that are built to have one."""

from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import EmptyError, OperatorError, ParameterError
from hardmax.exact.rounding import majority_factor
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.roles import ROLES, head_roles

getcontext().prec = 60


def _head(queries, keys, temperature=1.0, *, causal=True, softcap=None):
    queries, keys = np.asarray(queries, dtype=float), np.asarray(keys, dtype=float)
    places, seen = np.arange(len(keys)), np.tri(len(keys), dtype=bool)
    return CapturedHead(0, 0, "demo", queries, keys, np.eye(len(keys)), temperature, None, seen if causal else None,
                        None, places, places, softcap)  # fmt: skip


def _shares(queries, keys, tokens, temperature, offset):
    """The share of rows that support each role, with weights as decimals: exact products, 60 digits after them."""
    counts, rows = dict.fromkeys(ROLES, 0), range(2, len(tokens))
    for p in rows:
        scores = [
            sum(Fraction(a) * Fraction(b) for a, b in zip(queries[p], keys[j], strict=True)) for j in range(p + 1)
        ]
        weights = [(Decimal(s.numerator) / s.denominator / Decimal(temperature)).exp() for s in scores]
        half = sum(weights) / 2
        sets = {
            "sink": {0},
            "previous token": {p - 1},
            "same token": {j for j in range(1, p + 1) if tokens[j] == tokens[p]},
            "positional": {p - offset} if offset is not None and p - offset > 0 else set(),
        }
        for role, keep in sets.items():
            counts[role] += sum((weights[j] for j in keep), Decimal(0)) > half
        best = max(range(p + 1), key=lambda j: weights[j])
        named = set().union(*sets.values())
        counts["lookup"] += weights[best] > half and best not in named
        counts["diffuse"] += max(weights) < half
    return {role: count / len(rows) for role, count in counts.items()}


@given(st.data())
def test_shares_are_those_of_weights_in_decimals(data):
    n, temperature = data.draw(st.integers(3, 6)), data.draw(st.sampled_from([0.5, 1.0, 3.0]))
    vectors = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=n, max_size=n)
    queries, keys = data.draw(vectors), data.draw(vectors)
    tokens = data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n))
    (found,) = head_roles(Capture("demo", tokens, (_head(queries, keys, temperature),)))
    wanted = _shares(queries, keys, tokens, temperature, found.offset)
    # a sum that is exactly half of the weight counts for nothing on both sides
    assert found.shares == pytest.approx(wanted)
    assert found.share == max(found.shares.values())
    assert found.role == (max(ROLES, key=wanted.get) if found.share > 0.5 else "mixed")


def _turns(n):
    return np.array([[np.cos(t), np.sin(t)] for t in np.arange(float(n))])


@pytest.mark.parametrize(
    ("role", "queries"),
    [
        ("sink", lambda keys: np.repeat(keys[:1], len(keys), axis=0)),
        ("previous token", lambda keys: np.roll(keys, 1, axis=0)),
        ("same token", lambda keys: keys),
        ("positional", lambda keys: np.roll(keys, 3, axis=0)),
        ("lookup", lambda keys: keys[[0, 0, 1, 1, 1, 2, 3, 2]]),
        ("diffuse", lambda keys: 0 * keys),
    ],
)
def test_heads_built_for_a_role_have_it(role, queries):
    keys = _turns(8)
    head = _head(60 * queries(keys), keys)
    (found,) = hm.head_roles(Capture("demo", tuple("abcdefgh"), (head,)))
    if role == "lookup":  # offsets 1, 2, 3, 3, 3, 5 among others: most look at no fixed place
        assert found.role in ("lookup", "positional", "mixed") and found.shares["lookup"] >= 1 / 3
    else:
        assert found.role == role and found.share > 0.5
    assert found.n_rows == 6 and (found.offset == 3 or role != "positional")
    assert found.margin > 1 or role == "diffuse"


def test_same_token_means_the_same_word_wherever_it_stands_and_the_sink_is_no_word():
    keys = np.eye(4)
    tokens = ("a", "b", "b", "a")
    head = _head(50 * np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]), keys)
    (found,) = head_roles(Capture("demo", tokens, (head,)))
    assert found.shares["same token"] == found.shares["sink"] == found.shares["previous token"] == 0.5


def test_temperature_zero_counts_winners_and_a_cap_that_levels_scores_makes_a_head_diffuse():
    keys = _turns(6)
    hard = _head(np.roll(keys, 1, axis=0), keys, 0.0)
    (found,) = head_roles(Capture("demo", tuple("abcdef"), (hard,)))
    assert found.role == "previous token" and found.margin == float("inf")
    capped = _head(60 * np.roll(keys, 1, axis=0), keys, 1.0, softcap=0.01)
    (found,) = head_roles(Capture("demo", tuple("abcdef"), (capped,)))
    assert found.role == "diffuse"


def test_a_head_that_sees_what_follows_has_the_last_token_as_a_sink_too():
    keys = _turns(6)
    head = _head(np.repeat(60 * keys[-1:], 6, axis=0), keys, causal=False)
    (found,) = head_roles(Capture("demo", tuple("abcdef"), (head,)))
    assert found.role == "sink" and found.share == 1


def test_what_is_within_rounding_of_one_half_supports_nothing():
    third = 1 / 3  # three copies of it and their sum: scores that tie in rationals, not in floats
    keys = np.array([[3 * third, 0], [third * 3, 0], [third, 2 * third], [third, 2 * third], [1.0, 0.0]])
    head = _head(np.ones((5, 2)) * 2.0**40, keys)
    (found,) = head_roles(Capture("demo", tuple("abcde"), (head,)))
    assert all(share <= 1 for share in found.shares.values()) and found.shares["lookup"] == 0
    assert majority_factor(5, 0.5) > np.exp(1.0) and majority_factor(5, 0.0) > 1


def test_bad_captures_are_named():
    keys = _turns(4)
    bare = CapturedHead(0, 0, "demo", keys, keys, keys, 1.0)
    with pytest.raises(OperatorError, match="where its queries and keys stand is not known"):
        head_roles(Capture("demo", tuple("abcd"), (bare,)))
    with pytest.raises(EmptyError, match="at least 3 tokens"):
        head_roles(Capture("demo", tuple("ab"), (_head(keys[:2], keys[:2]),)))
    for wrong in (7, [7], []):
        with pytest.raises((ParameterError, EmptyError), match="captures"):
            head_roles(wrong)


def test_roles_make_tables():
    keys = _turns(5)
    found = head_roles([Capture("demo", tuple("abcde"), (_head(keys, keys),))] * 2)
    assert found.counts["same token"] + found.counts["mixed"] + found.counts["diffuse"] == 1
    assert found.table()[0]["n_rows"] == 6 and "same token" in found._repr_html_()
    assert found.head(0, 0) is found[0] and "1 heads" in repr(found)

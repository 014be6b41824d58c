"""Margins of long contexts: winners and certificates as rationals say, whatever device the first pass ran on."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import EmptyError, HardmaxError, ParameterError, ShapeError, WeightError
from hardmax.exact.decimals import log_exceeds
from hardmax.heads import attention_margins as margins_module

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs torch, which is not installed")


def _exact(query, keys, biases, temperature):
    """Winner, margin and certificate of one row, in fractions."""
    scores = [
        sum((Fraction(float(x)) * Fraction(float(k)) for x, k in zip(query, key, strict=True)), Fraction(float(bias)))
        for key, bias in zip(keys, biases, strict=True)
    ]
    winner = scores.index(max(scores))
    rest = scores[:winner] + scores[winner + 1 :]
    if not rest:
        return winner, None, True
    margin = scores[winner] - max(rest)
    return winner, margin, margin > 0 and not log_exceeds(len(rest), margin / Fraction(float(temperature)))


def _assert_as_exact(found, queries, keys, biases, temperature, causal=False):
    for row, query in enumerate(queries):
        n_seen = len(keys) if not causal else row + 1 + len(keys) - len(queries)
        winner, margin, certified = _exact(query, keys[:n_seen], biases[:n_seen], temperature)
        assert found.winners[row] == winner and found.is_certified[row] == certified
        if margin is None:
            assert found.margins[row] == np.inf
        else:
            assert abs(Fraction(float(found.margins[row])) - margin) <= Fraction(float(found.errors[row]))


_NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),
    st.sampled_from([1 / 3, -1 / 3, 2.0**-30, 1 + 2.0**-23, 1 - 2.0**-24, 2.0**-140, 2.0**60, -(2.0**60)]),
).map(lambda x: float(np.float32(x)))


@st.composite
def _heads(draw):
    dim, n_keys = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    n_queries = draw(st.integers(1, n_keys))
    number = lambda rows: np.array([[draw(_NUMBERS) for _ in range(dim)] for _ in range(rows)])  # noqa: E731
    return number(n_queries), number(n_keys), np.array([draw(_NUMBERS) for _ in range(n_keys)])


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("causal", [False, True])
@given(_heads(), st.sampled_from([1.0, 0.25, 3.0]))
@example((np.array([[1.0]]), np.array([[2.0], [2.0], [1.0]]), np.zeros(3)), 1.0)  # the same key twice
@example((np.array([[1.0, 1.0]]), np.array([[1.0, 2.0**-24], [1.0, 0.0]]), np.zeros(2)), 1.0)  # binary32 cannot tell
def test_every_row_is_as_rationals_say(torch, device, causal, head, temperature):
    queries, keys, biases = head
    found = hm.attention_margins(queries, keys, biases, temperature=temperature, causal=causal, device=device)
    _assert_as_exact(found, queries, keys, biases, temperature, causal)


def test_a_margin_at_the_threshold_of_its_certificate_is_decided_exactly(torch):
    """log 2 lies between neighbouring floats: the certificate changes between them and nowhere else."""
    below = float(np.nextafter(np.log(2.0), 0.0))
    keys = np.array([[1.0], [0.0], [0.0]])
    for shift in (-1, 0, 1, 2):
        heat = 1.0
        query = np.array([[below + shift * 2.0**-53]])
        found = hm.attention_margins(query, keys, temperature=heat)
        assert found.is_certified[0] == _exact(query[0], keys, np.zeros(3), heat)[2]


def test_blocks_of_rows_and_rows_that_go_back_change_nothing(torch, monkeypatch):
    rng = np.random.default_rng(0)
    queries, keys = (rng.standard_normal((70, 16), dtype=np.float32) for _ in range(2))
    keys[40] = keys[3]
    queries[5] = queries[6] = keys[3]
    whole = {causal: hm.attention_margins(queries, keys, causal=causal) for causal in (False, True)}
    monkeypatch.setattr(margins_module, "_BLOCKS", {"cpu": 256})
    for causal, plain in whole.items():
        found = hm.attention_margins(torch.from_numpy(queries), torch.from_numpy(keys), causal=causal, device="cpu")
        assert (found.winners == plain.winners).all() and (found.is_certified == plain.is_certified).all()
        assert (np.abs(found.margins[1:] - plain.margins[1:]) <= (found.errors + plain.errors)[1:]).all()
        assert found.n_settled >= (2 if not causal else 0)
    assert whole[False].margins[5] == whole[False].errors[5] == 0.0 and whole[False].winners[5] == 3


def test_keys_that_are_reached_have_a_query_that_they_alone_win():
    keys = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    found = hm.attention_margins([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 1.0]], keys)
    assert found.reached_by.tolist() == [0, -1, -1, 3] and found.exactness.value == "certified"
    assert hm.attention_margins([[1.0]], [[0.0], [5e-324]]).reached_by.tolist() == [-1, 0]  # by as little as there is


def test_a_device_tells_the_live_keys_of_a_diagram(torch):
    rng = np.random.default_rng(1)
    keys = np.round(rng.normal(size=(60, 3)) * 4) / 4
    biases = np.round(rng.normal(size=60) * 4) / 8
    for given_ in ((keys,), (keys, biases)):
        assert (hm.power_diagram(*given_, device="cpu").live == hm.power_diagram(*given_).live).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([[1.0]], [[1.0, 2.0]]), ShapeError, "expected queries"),
        (([1.0], [[1.0]]), ShapeError, "2 axes"),
        (([[1.0]], [[1.0]], [1.0, 2.0]), ShapeError, "biases"),
        ((np.zeros((0, 2)), np.zeros((3, 2))), EmptyError, "at least one"),
        (([[np.nan]], [[1.0]]), WeightError, "finite"),
        (([["a"]], [[1.0]]), WeightError, "numbers"),
    ],
)
def test_bad_heads_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        hm.attention_margins(*arguments)


def test_bad_temperatures_masks_and_devices_are_refused(torch):
    for wrong in (0, -1.0, float("nan"), True, "hot"):
        with pytest.raises(ParameterError, match="temperature"):
            hm.attention_margins([[1.0]], [[1.0]], temperature=wrong)
    with pytest.raises(ShapeError, match="causal"):
        hm.attention_margins([[1.0], [1.0]], [[1.0]], causal=True)
    for device in ("no such device", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(HardmaxError, match="torch cannot use it"):
            hm.attention_margins([[1.0]], [[1.0]], device=device)
    with pytest.raises(ParameterError, match="binary32"):
        hm.attention_margins([[1 / 3]], [[1.0]], device="cpu")

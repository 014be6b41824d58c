"""Every rounding bound against rationals: the lemmas one by one, and propagation at scales that integers never reach.

Numbers are thirds and sevenths at scales from 2^-1070 to 2^500, with errors put where they hurt most.
HARDMAX_CAMPAIGN=20000 draws that many cases instead of a few.
"""

import os
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import hardmax as hm
from hardmax.exact import rounding
from hardmax.exact.rationals import fraction
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.slices._slice_kernels import relu_then_linear
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram, Tensor
from hardmax.networks.slices.entry_bounds import EntryBounds, EntrywiseProgram, _product
from hardmax.networks.slices.rounding import Bounded, Bounds

CASES = int(os.environ.get("HARDMAX_CAMPAIGN", "150"))


def _numbers(rng, shape, exponents=(0, 0, 1, -600, -1060, -1073, 400)):
    numbers = rng.integers(-5, 6, shape) * float(rng.choice([1.0, 1 / 3, 1 / 7]))
    return np.ldexp(numbers, int(rng.choice(exponents)))


def _errors(rng, values):
    """One bound a coefficient: none, small, or as large as the values and larger."""
    size = float(np.abs(values).max(initial=0.0))
    return float(rng.choice([0.0, 1e-12 * size, size, 3.0, 5e-324]))


def _disturbed(rng, values, error):
    """The numbers that the floats stand for, each within the error, mostly at its end."""
    flat = [Fraction(v) for v in values.reshape(-1).tolist()]
    moves = rng.choice([-1, 1], len(flat)).tolist()
    return [v + move * Fraction(error) for v, move in zip(flat, moves, strict=True)]


def _dot(x, y):
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def _tensor(values, error):
    """One cell of one coefficient."""
    array = np.asarray(values, dtype=float)[None, None]
    bounds = Bounds(np.full((1, 1), error), (-1074,))
    return Tensor(array, bounds)


def test_a_linear_rule_bounds_what_errors_and_roundings_do():
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        n, m = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        weight, x = _numbers(rng, (m, n)), _numbers(rng, n)
        bias = _numbers(rng, m) if rng.random() < 0.5 else None
        error = _errors(rng, x)
        operation = op.Linear(op.frozen(weight), None if bias is None else op.frozen(bias))
        tensor = _tensor(x, error)
        result = apply(operation, x[None])
        bounds = Bounded.of(operation).linear(tensor, result[None])
        truth = _disturbed(rng, x, error)
        for row in range(m):
            exact = _dot([Fraction(w) for w in weight[row].tolist()], truth)
            exact += 0 if bias is None else Fraction(float(bias[row]))
            assert abs(Fraction(float(result[0, row])) - exact) <= Fraction(float(bounds.error[0, 0]))


def _exact_product(x, y):
    """Coefficients of a product of two polynomials of vectors, over all their pairs."""
    terms = [Fraction(0)] * (len(x) + len(y) - 1)
    for (i, left), (j, right) in product(enumerate(x), enumerate(y)):
        terms[i + j] += _dot(left, right)
    return terms


def test_a_product_rule_bounds_what_errors_of_both_sides_do():
    """Where both floats are zero and both errors are not, only the product of the errors is left."""
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        n, terms_x, terms_y = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
        x, y = _numbers(rng, (terms_x, n)), _numbers(rng, (terms_y, n))
        if rng.random() < 0.3:
            x, y = x * 0, y * 0
        errors = [np.array([_errors(rng, part) for part in side]) for side in (x, y)]
        left = Tensor(x[None, :, None, :], _entry_bounds(errors[0], (1, n)))
        right = Tensor(y[None, :, :, None], _entry_bounds(errors[1], (n, 1)))
        with np.errstate(over="ignore", invalid="ignore"):
            program_result = np.stack(_coefficients(x, y))
            bounds = Bounded("matmul").product(left, right)
            entries = _product(op.MatMul(), left, right)
        exact = _exact_product(
            [_disturbed(rng, part, error) for part, error in zip(x, errors[0].tolist(), strict=True)],
            [_disturbed(rng, part, error) for part, error in zip(y, errors[1].tolist(), strict=True)],
        )
        for term, truth in enumerate(exact):
            gap = abs(Fraction(float(program_result[term])) - truth)
            assert gap <= Fraction(float(bounds.error[0, term]))
            entry = float(entries[0, term, 0, 0])
            assert not np.isfinite(entry) or gap <= Fraction(entry)


def _entry_bounds(errors, shape):
    entries = np.broadcast_to(errors[None, :, None, None], (1, len(errors), *shape)).copy()
    return EntryBounds(errors[None], (-1074,) * len(errors), False, entries)


def _coefficients(x, y):
    terms = [None] * (len(x) + len(y) - 1)
    for i, j in product(range(len(x)), range(len(y))):
        part = x[i] @ y[j]
        terms[i + j] = part if terms[i + j] is None else terms[i + j] + part
    return terms


@pytest.mark.parametrize("slope", [0.0, 1 / 3, -0.1, 7 / 3, 5e-324])
def test_a_choice_rule_bounds_what_a_slope_does(slope):
    rng = np.random.default_rng(2)
    for _ in range(CASES // 3):
        x = _numbers(rng, 3)
        error = _errors(rng, x)
        bounds = Bounds(np.full((1, 1), error), (-1074,)).chosen(np.zeros(1, int), x[None, None], slope)
        for value, truth in zip(x.tolist(), _disturbed(rng, x, error), strict=True):
            gap = abs(Fraction(value * slope) - truth * Fraction(slope))
            assert max(gap, abs(Fraction(value) - truth)) <= Fraction(float(bounds.error[0, 0]))


def test_a_chain_of_updates_stays_within_its_lemma():
    rng = np.random.default_rng(3)
    for _ in range(CASES):
        n = int(rng.integers(1, 30))
        x, y = _numbers(rng, n), _numbers(rng, n)
        total, exact = 0.0, Fraction(0)
        present = np.zeros(n, dtype=bool)
        for steps, j in enumerate(rng.integers(0, n, 40).tolist(), 1):
            sign = -1.0 if present[j] else 1.0
            present[j] = ~present[j]
            total += sign * x[j] * y[j]
            exact += Fraction(sign) * Fraction(float(x[j])) * Fraction(float(y[j]))
            size = float(np.abs(x * y).sum())
            assert abs(Fraction(total) - exact) <= Fraction(float(rounding.chain_error(steps, size)))


def test_a_linear_map_of_the_active_entries_bounds_what_errors_and_roundings_do():
    rng = np.random.default_rng(5)
    for _ in range(CASES // 3):
        n, m = int(rng.integers(1, 9)), int(rng.choice([1, 6]))  # dot products, or chains of updates
        weight, x = _numbers(rng, (m, n)), _numbers(rng, (1, 2, n))
        bias = _numbers(rng, m) if rng.random() < 0.5 else np.empty(0)
        before = np.array([[_errors(rng, part) for part in x[0]]])
        rule = Bounded.of(op.Linear(op.frozen(weight), op.frozen(bias) if len(bias) else None))
        labels = rng.integers(0, 2, (6, n)).astype(np.uint8)
        layer, sums = (np.array(weight.T, order="C"), bias), rule.sums((-1074, -1074))[1]
        result, error, is_small = relu_then_linear(x, before, np.zeros(6, np.int64), labels, layer, sums)
        assert is_small
        for term in range(2):
            truth = _disturbed(rng, x[0, term], float(before[0, term]))
            for child, row in product(range(6), range(m)):
                exact = _dot(map(Fraction, (weight[row] * labels[child]).tolist()), truth)
                exact += Fraction(float(bias[row])) if len(bias) and term == 0 else 0
                assert abs(Fraction(float(result[child, term, row])) - exact) <= Fraction(float(error[child, term]))


def test_lengths_and_quotients_are_enclosed():
    from hardmax.heads.rows import lengths_of

    rng = np.random.default_rng(4)
    for _ in range(CASES):
        n = int(rng.integers(1, 12))
        a = _numbers(rng, n, (0, -1000, -1060, 500, 900))
        b = _numbers(rng, n, (-1070,)) if rng.random() < 0.3 else a * (1 + 2.0**-52)
        between = a - b
        square = sum((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(a.tolist(), b.tolist(), strict=True))
        length = float(lengths_of(between[None])[0])
        low, high = float(rounding.norm_below(length, n)), float(rounding.norm_above(length, n))
        assert Fraction(max(low, 0.0)) ** 2 <= square <= Fraction(high) ** 2
        assert high - low <= 8 * (n + 4) * 2.0**-53 * length + 1e-322
        x, y, error = (abs(float(_numbers(rng, 1)[0])) for _ in range(3))
        if y == 0 or x < error:
            continue
        with np.errstate(over="ignore"):
            least, most = np.float64(x - error), np.float64(x + error)
            below, above = rounding.quotient_below(least, np.float64(y)), rounding.quotient_above(most, np.float64(y))
        if below < np.inf:
            assert Fraction(float(below)) <= (Fraction(x) - Fraction(error)) / Fraction(y)
        if above < np.inf:
            assert Fraction(float(above)) >= (Fraction(x) + Fraction(error)) / Fraction(y)


@pytest.mark.parametrize("kind", ["a tensor", "an entry"])
def test_every_coefficient_is_within_its_bound_at_every_scale(kind):
    rng = np.random.default_rng(5)
    for _ in range(CASES // 3):
        dim, widths = int(rng.integers(1, 3)), rng.integers(1, 8, 3).tolist()
        layers, before = [], dim
        for width in widths:
            weight = _numbers(rng, (width, before), (0, 0, 0, -300, 300, -1060))
            bias = _numbers(rng, width, (0, 0, -300, 200))
            layers += [hm.Affine(weight, bias), hm.ReLU(float(rng.choice([0, 1 / 3])))]
            before = width
        if rng.random() < 0.4:
            keys, query = _numbers(rng, (3, 2), (0, 0, -300)), _numbers(rng, (2, before), (0, 0, 300))
            layers.append(hm.Attention([hm.Head(keys, _numbers(rng, (3, 2), (0,)), query)]))
        net = hm.Network(layers, dim)
        origin, basis = _numbers(rng, dim, (0, 0, -300)), _numbers(rng, (dim, dim), (0, 0, -300, 200))
        exact = SliceProgram(net.graph, origin, basis, Arithmetic.RATIONAL)
        bounded = (
            SliceProgram(net.graph, origin, basis, Arithmetic.BOUNDED)
            if kind == "a tensor" else EntrywiseProgram(net.graph, origin, basis)
        )  # fmt: skip
        label = _label(exact)
        try:
            guards, _ = bounded.follow(label)
        except hm.errors.PrecisionError:
            continue
        for ours, theirs in zip(guards, exact.follow(label)[0], strict=True):
            for term in range(ours.coefficients.shape[1]):
                for row in range(ours.coefficients.shape[2]):
                    gap = abs(fraction(theirs.coefficients[0, term, row]) - fraction(ours.coefficients[0, term, row]))
                    assert gap <= Fraction(float(ours.error[0, term]))


def _label(program):
    """What the slice's origin chooses, in rationals."""
    state, labels = program.begin(), []
    for stage in program.stages:
        rows = program.guards(state).coefficients[0, 0]
        label = []
        for start, size, is_relu in zip(stage.group_start, stage.group_size, stage.is_relu, strict=True):
            part = rows[start : start + size].tolist()
            label.append(int(part[0] > 0) if is_relu else part.index(max(part)))
        labels.append(np.array(label))
        state = program.advance(state, np.zeros(1, dtype=np.int64), labels[-1][None])
    return labels


def _clip_network(rng):
    """Two layers of clips, floors and ceilings, with one bound or several, of hostile numbers."""
    builder, value, width = GraphBuilder((2,)), 0, 2
    exponents = (0, 0, 1, -40, 60)
    for _ in range(2):
        size = int(rng.integers(1, 4))
        bias = op.frozen(_numbers(rng, size, exponents)) if rng.random() < 0.5 else None
        value = builder.add(op.Linear(op.frozen(_numbers(rng, (size, width), exponents)), bias), value)
        bound = _numbers(rng, size if rng.random() < 0.5 else (), exponents)
        value, width = builder.add(op.Clip(op.frozen(bound), bool(rng.random() < 0.5)), value), size
    builder.add(op.Linear(op.frozen(_numbers(rng, (1, width), exponents))), value)
    return builder.build()


def test_guards_and_maps_behind_clips_are_within_their_bounds():
    rng = np.random.default_rng(11)
    n_rounded = 0
    for _ in range(CASES):
        graph = _clip_network(rng)
        origin, basis = _numbers(rng, 2, (0, 1)), _numbers(rng, (2, 2), (0, 1))
        bounded = SliceProgram(graph, origin, basis, Arithmetic.BOUNDED)
        labels = [rng.integers(0, 2, stage.n_choices) for stage in bounded.stages]
        rational = SliceProgram(graph, origin, basis, Arithmetic.RATIONAL)
        truths, end = rational.follow(labels)
        for program in (bounded, EntrywiseProgram(graph, origin, basis)):
            guards, state = program.follow(labels)
            output = program.output(state)
            pairs = [(g.coefficients, g.error, t.coefficients) for g, t in zip(guards, truths, strict=True)]
            pairs.append((output.coefficients, output.bounds.error, rational.output(end).coefficients))
            for found, error, exact in pairs:
                for term in range(found.shape[1]):
                    for x, y in zip(found[0, term].reshape(-1), exact[0, term].reshape(-1), strict=True):
                        off = abs(Fraction(float(x)) - fraction(y))
                        assert off <= Fraction(float(error[0, term]))
                        n_rounded += off > 0
    assert n_rounded > CASES // 2

"""Every public function, asked about something it cannot take, says so in an error of ours."""

import inspect
import pickle
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm

#: What results are made of, and made by us.
_RESULTS = ("ClassAudit", "HardmaxError")


def _functions():
    for name in hm.__all__:
        value = getattr(hm, name)
        if not inspect.ismodule(value) and name not in _RESULTS:
            yield name, value
        for inner in dir(value) if inspect.ismodule(value) else ():
            if not inner.startswith("_") and inspect.isfunction(getattr(value, inner)):
                yield f"{name}.{inner}", getattr(value, inner)
    for name in ("TropicalRational", "TropicalRationalMap"):
        yield f"tropical.{name}", getattr(hm.tropical, name)


def _strangers():
    yield from (None, "no such thing", {"a": 1}, np.full((2, 2), np.nan), object(), [object()], [], 7, -1)
    yield np.array(3.0)
    try:
        import torch
    except ImportError:
        return
    yield torch.nn.Linear(2, 2)


_FUNCTIONS = dict(_functions())


def _required(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]


@pytest.mark.parametrize("name", [name for name, one in _FUNCTIONS.items() if _required(one)])
def test_a_stranger_as_first_argument_is_refused_by_name(name, tmp_path, monkeypatch):
    """Also where the other arguments are strangers; what it can take after all, it may take."""
    monkeypatch.chdir(tmp_path)
    function = _FUNCTIONS[name]
    others = len(_required(function)) - 1
    for stranger in _strangers():
        for rest in ([np.ones((2, 2))] * others, [stranger] * others):
            try:
                function(stranger, *rest)
            except hm.HardmaxError as error:
                assert str(error)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise AssertionError(f"{name} of {stranger!r}: {error}") from error
            except Exception as error:
                raise AssertionError(f"{name} of {stranger!r}: {type(error).__name__}: {error}") from error


def _asked_beside():
    """Calls with one argument left open, which is not the first."""
    net = hm.Network([hm.Affine([[1.0], [-1.0]]), hm.ReLU()], 1)
    box, keys = hm.Box([-1.0], [1.0]), [[1.0, 0.0], [0.0, 1.0]]
    cells, diagram, audit = hm.enumerate_cells(net, box), hm.power_diagram(keys), hm.audit_classes(keys)
    polynomial = hm.TropicalPolynomial(keys)
    yield from (cells.vertices, cells.exact_cell, diagram.halfspaces, diagram.interior_point, audit.repaired_bias)
    yield lambda x: hm.enumerate_cells(net, box, exactness=x)
    yield lambda x: hm.enumerate_cells(net, box, workers=x)
    yield lambda x: hm.Plane.through([0.0, 0.0], [1.0, 0.0], [0.0, 1.0], margin=x)
    yield lambda x: hm.joint_cells([(keys, None)], max_cells=x)
    yield lambda x: hm.audit_classes(keys, max_seconds=x)
    yield lambda x: hm.audit_classes(keys, names=x)
    yield lambda x: hm.audit_classes(x, names=["a", "b"])
    yield lambda x: hm.from_arrays([keys], x)
    yield lambda x: hm.from_arrays([keys], layout=x)
    yield lambda x: hm.max_of_minima(keys, [0.0, 0.0], x)
    yield lambda x: hm.max_of_minima(keys, [0.0, 0.0], [[x]])
    yield lambda x: hm.piecewise_linear_from_pieces(x, [[1.0]], [0.0])
    yield lambda x: hm.fidelity.temperature_path(hm.builtin("demo"), [[0.0, 0.0]], x)
    yield lambda x: hm.fidelity.compare(hm.builtin("demo"), [[0.0, 0.0]], labels=x)
    yield lambda x: hm.attention_margins(keys, keys, temperature=x)
    yield lambda x: hm.tropical.softmax(x, 1.0)
    yield lambda x: polynomial**x
    yield lambda x: diagram.reachable(hull=x)


def test_a_stranger_beside_the_first_argument_is_refused_by_name():
    """Taken where it fits after all; an index is never rounded, nor counted from the end."""
    for ask in _asked_beside():
        for stranger in (*_strangers(), 1.5, 10**400, [[]], [1, [2, 3]], np.array(0.5), {"a": "b"}):
            try:
                ask(stranger)
            except hm.HardmaxError as error:
                assert str(error)
    with pytest.raises(hm.errors.ParameterError, match="expected a cell between 0 and 1, got -1"):
        hm.enumerate_cells(hm.Network([hm.ReLU()], 1), hm.Space(1)).vertices(-1)


def test_flags_are_true_or_false_and_other_answers_are_not_read_as_true():
    box, net = hm.Box([-1.0], [1.0]), hm.Network([hm.ReLU()], 1)
    for ask in (
        lambda flag: hm.bounds.max_joint_cells([2], 2, flag),
        lambda flag: hm.bounds.cells_lower(2, 2, 2, 2, flag),
        lambda flag: hm.bounds.expected_joint_cells(3, 2, 2, flag),
        lambda flag: hm.bounds.key_exponent(2, 2, flag),
        lambda flag: hm.enumerate_cells(net, box, progress=flag),
        lambda flag: hm.attention_margins([[1.0]], [[1.0]], causal=flag),
        lambda flag: hm.verify(hm.enumerate_cells(net, box), thorough=flag),
        lambda flag: hm.audit_classes([[1.0], [-1.0]]).verify(thorough=flag),
    ):
        for flag in ("no", np.array([True, False]), 2.0):
            with pytest.raises(hm.errors.ParameterError, match="expected True or False"):
                ask(flag)
    with pytest.raises(hm.errors.ParameterError, match="progress: expected a function"):
        hm.sample_cells(net, box, 10, progress=3)


def test_a_direction_of_the_largest_floats_warns_of_nothing():
    net = hm.Network([hm.Affine([[1.0, 1.0], [3.0, -1.0]], [1.0, 1.0]), hm.ReLU()], 2)
    assert hm.local_map(net, [0.0, 0.0], direction=[1e308, -1e308]).lower == np.inf
    assert hm.local_map(net, [0.0, 0.0], direction=[-1e308, 1e308]).radius == 2.5e-309


def _readers():
    net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1)
    cells = hm.enumerate_cells(net, hm.Box([-(2.0**60)], [2.0**60]))
    line = hm.power_diagram([[1.0], [0.0]])
    yield from (
        hm.Affine,
        hm.TropicalPolynomial,
        hm.power_diagram,
        hm.audit_classes,
        lambda x: hm.stability.certify(x, 1.0),
    )
    yield from (
        lambda x: hm.Affine([[1.0], [1.0]], x[0]),
        lambda x: hm.Head(x, x, [[1.0]]),
        lambda x: hm.Box(x[0], [2.0**70] * 2),
    )
    yield from (lambda x: hm.power_diagram([[1.0], [1.0]], x[0]), lambda x: hm.joint_cells([(x.T, None)]))
    yield from (
        lambda x: hm.local_map(net, x[0, :1]),
        lambda x: hm.decision_constant(net, hm.Segment(x[0], [0.0, 0.0])),
    )
    yield from (lambda x: cells.locate(x.T), lambda x: line.assign(x.T))
    yield from (lambda x: line.reachable(hull=x.T), lambda x: line.reachable(ball=(x[0, :1], 1.0)))
    yield from (
        lambda x: line.reachable(polyhedron=([[1.0], [-1.0]], x[0])),
        lambda x: hm.attention_margins([[1.0]], x.T),
    )
    yield from (
        lambda x: hm.TropicalPolynomial([[1.0]])(x.T),
        lambda x: hm.maxout_network([(x[:, :, None], [[0.0, 0.0]])]),
    )


@pytest.mark.parametrize("number", [2**53 + 1, np.longdouble(1) / 3, Fraction(1, 3)])
def test_numbers_that_no_float_holds_are_refused_wherever_they_are_given(number):
    """Rounded silently, two keys 2**53 and 2**53 + 1 would be one, and all that is proved be of other numbers."""
    readers = [*_readers(), *([] if isinstance(number, Fraction) else [hm.Network([hm.ReLU()], 2)])]
    for reader in readers:  # a network takes fractions as they are
        with pytest.raises(hm.errors.WeightError, match=r"binary64|object"):
            reader(np.array([[number, 0]]))


def test_masked_entries_are_no_numbers():
    with pytest.raises(hm.errors.WeightError, match="masked"):
        hm.Affine(np.ma.array([[1.0, 2.0]], mask=[[False, True]]))


# --- other arguments -------------------------------------------------------------------------------------------


def test_a_message_is_one_line_whatever_was_given():
    for stranger in (np.full((3, 3), np.nan), "two\nlines", np.zeros((2, 2, 2, 2))):
        for ask in (hm.Maxout, hm.Space, lambda given: hm.Network([hm.ReLU()], given)):
            with pytest.raises(hm.HardmaxError) as refused:
                ask(stranger)
            assert "\n" not in str(refused.value) and "got" in str(refused.value)
            assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def _soft():
    head = hm.Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    return hm.Network([hm.Attention([head])], 1, temperature=1.0)


_OPTIONS = {
    "coordinates": lambda it: hm.grid_transformer(2, 1, 2, 1, coordinates=it),
    "queries": lambda it: hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1), queries=it),
    "form": lambda it: hm.piecewise_linear([[0.0], [1.0]], [0, 1], form=it),
    "layout": lambda it: hm.from_arrays([[[1.0]]], [[0.0]], layout=it),
    "activation": lambda it: hm.from_arrays([[[1.0]]], [[0.0]], activation=it),
    "dtype": lambda it: hm.write(_soft(), "network.npz", dtype=it),
    "norm": lambda it: hm.power_diagram([[1.0, 0.0], [0.0, 1.0]]).normalised(it),
    "exactness": lambda it: hm.count_cells(_soft(), hm.Box([-1], [1]), exactness=it),
    "logits": lambda it: hm.fidelity.compare(_soft(), [[0.5]], logits=it),
    "hard": lambda it: hm.fidelity.compare(_soft(), [[0.5]], hard=it),
    "heads": lambda it: hm.fidelity.outputs(_soft(), [[0.5]], heads=it),
    "repair's dtype": lambda it: hm.audit_classes([[1.0], [-1.0], [0.0]]).repaired_bias(0.1, dtype=it),
    "only": hm.claims.check,
    "temperature": lambda it: _soft()([0.5], temperature=it),
    "bound": lambda it: hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1), bound=it),
}


@pytest.mark.parametrize("option", _OPTIONS)
def test_an_option_that_is_none_of_those_there_are_is_refused(option, tmp_path, monkeypatch):
    """A number written as text is no number, and an array is no word."""
    monkeypatch.chdir(tmp_path)
    for stranger in ("no such thing", "0.5", np.full((2, 2), np.nan), 7j, object()):
        with pytest.raises(hm.HardmaxError):
            _OPTIONS[option](stranger)
    assert not list(tmp_path.iterdir())


def test_tensors_that_require_a_gradient_are_read_everywhere():
    torch = pytest.importorskip("torch", reason="torch, which is not installed")
    scores = torch.tensor([[1.0, 2.0], [3.0, 1.0]], requires_grad=True)
    assert hm.stability.certify(scores, 0.5).margin.tolist() == [1.0, 2.0]
    compiled = hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0, 1.0]]), hm.ReLU()], 2), bound=4.0)
    assert np.array_equal(compiled.tokens(scores), compiled.tokens(scores.tolist()))
    extent = torch.tensor([[-1.0, 1.0], [-1.0, 1.0]], requires_grad=True)
    assert len(hm.power_diagram([[1.0, 0.0], [0.0, 1.0]]).polygons(extent)) == 2

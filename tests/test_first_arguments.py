"""Every public function, asked about something it cannot take, says so in an error of ours."""

import inspect

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

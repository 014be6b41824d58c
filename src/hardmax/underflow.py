"""Answers do not depend on what the caller asked of ``np.seterr``.

Every bound here counts numbers below the least floats, so underflow is no error. A caller who set
``np.seterr(all="raise")`` for numbers of his own would be stopped by it: functions and classes are made indifferent to
that where they become public (``views.late``), and the classes of what they return with them.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cached_property, wraps
from inspect import isclass, isfunction
from typing import Any

import numpy as np

#: Special methods that compute; the others of a class are left alone.
_OPERATORS = {
    *("__init__", "__call__", "__getitem__", "__add__", "__radd__", "__mul__", "__rmul__"),
    *("__truediv__", "__rtruediv__", "__pow__"),
}
_calm: dict[Any, Any] = {}  # what was given -> what stands for it
_is_quiet = ContextVar("_is_quiet", default=False)  # within such a function: what it calls need not ask again


def undisturbed(thing: Any) -> Any:
    """A function that underflow does not stop, in place of one that it might; or a class with such methods.

    A class keeps its identity; those with foreign parents, which may be compiled or traced, are left as they are.

    Examples
    --------
    >>> with np.errstate(all="raise"):
    ...     float(undisturbed(lambda x: np.exp(x))(-800.0))
    0.0
    """
    if thing not in _calm:
        _calm[thing] = thing
        if isfunction(thing):
            _calm[thing] = _quiet(thing)
            _calm[_calm[thing]] = _calm[thing]
        elif isclass(thing) and all(_is_ours(base) or base.__module__ == "builtins" for base in thing.__mro__):
            for base in filter(_is_ours, thing.__mro__):
                for name, member in list(vars(base).items()):
                    if name[:1] != "_" or name in _OPERATORS:
                        _replace(base, name, member)
    return _calm[thing]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "hardmax"


def _quiet(function: Any) -> Any:
    @wraps(function)
    def asked(*args: Any, **options: Any) -> Any:
        if _is_quiet.get():
            answer = function(*args, **options)
        else:
            before = _is_quiet.set(True)
            try:
                with np.errstate(under="ignore"):
                    answer = function(*args, **options)
            finally:
                _is_quiet.reset(before)
        if type(answer) not in _calm:
            undisturbed(type(answer))
        return answer

    return asked


def _replace(owner: type, name: str, member: Any) -> None:
    if isfunction(member):
        setattr(owner, name, undisturbed(member))
    elif isinstance(member, staticmethod | classmethod):
        setattr(owner, name, type(member)(undisturbed(member.__func__)))
    elif isinstance(member, cached_property):
        member.func = undisturbed(member.func)
    elif isinstance(member, property):
        setattr(owner, name, property(undisturbed(member.fget), member.fset, member.fdel, member.__doc__))

"""How the loops of this package are compiled: on first use, and kept on disk where some folder can be written.

numba looks for a folder to keep them in: beside the source, else ``NUMBA_CACHE_DIR``, else the user's cache folder.
Where none can be written, or writing fails, kernels live as long as the process, and that is said once.

The library compiles in silence; ``announced`` tells whoever asks, as the command line does.
"""

# numba carries no types
# mypy: disable-error-code="no-untyped-call, misc"

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event, types
from numba.core.caching import FunctionCache, NullCache

_COMPILING = "compiling kernels, once: about 15 s"
_NOT_KEPT = (
    "compiled kernels cannot be kept ({reason}), so that every process compiles its own; set NUMBA_CACHE_DIR to a "
    "folder that can be written"
)
_said: set[str] = set()
_listeners: list[Callable[[str], None]] = []


def kernel(function: Any = None, *, cache: bool = True, **options: Any) -> Any:
    """A function compiled when it is first called, and kept on disk where that is possible; also as ``@kernel(...)``.

    ``cache=False`` keeps nothing; all other options are numba's.

    Examples
    --------
    >>> @kernel(cache=False, nogil=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(2.0)
    4.0
    """
    if function is None:
        return lambda given: kernel(given, cache=cache, **options)
    compiled = _plain(function, **options)
    if not cache:
        return compiled
    try:
        compiled._cache = _Kept(function)
    except (RuntimeError, OSError):  # no folder that can be written
        compiled._cache = _NotKept()
    return compiled


def inner(function: Any = None, **options: Any) -> Any:
    """A function that only compiled functions call: no wrapper for Python, nothing on disk but inside its callers."""
    if function is None:
        return lambda given: inner(given, **options)
    return _plain(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def _plain(function: Any, **options: Any) -> Any:
    """The function compiled once a combination of argument types, whatever constants it is called with.

    numba takes ``f(x, 0)`` in compiled code for another type than ``f(x, n)`` and compiles f for each constant.
    """
    compiled = numba.njit(**options)(function)
    of_types = compiled.get_call_template

    def of_plain_types(arguments: Any, named: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in named.items()}
        return of_types(tuple(types.unliteral(kind) for kind in arguments), plain)

    compiled.get_call_template = of_plain_types
    compiled.is_ours = True
    return compiled


@lru_cache
def _sources(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, dates and sizes of the files that kernels in a folder may be made of: its own, and exact arithmetic's."""
    files = {*folder.glob("_*.py"), *Path(__file__).parent.glob("_*.py"), Path(__file__).with_name("rounding.py")}
    return tuple((file.name, (seen := file.stat()).st_mtime_ns, seen.st_size) for file in sorted(files))


class _Kept(FunctionCache):  # type: ignore[misc]
    """numba's folder of compiled functions; it may fail without harm, and knows the files that a kernel calls into."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        folder = Path(function.__code__.co_filename).parent
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _sources(folder))

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except Exception:  # damaged files: compiled anew, and replaced
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except OSError as error:  # a full disk, a folder that was taken away
            _say_not_kept(error.strerror or str(error))


class _NotKept(NullCache):  # type: ignore[misc]
    """What stands for the folder where there is none."""

    def save_overload(self, signature: Any, data: Any) -> None:
        _say_not_kept("neither the package's folder nor the user's cache folder can be written")


def _say_not_kept(reason: str) -> None:
    text = _NOT_KEPT.format(reason=reason)
    if _listeners:
        _say_once("not kept", text)
    elif "not kept" not in _said:
        _said.add("not kept")
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _say_once(key: str, text: str) -> None:
    if key not in _said:
        _said.add(key)
        _listeners[-1](text)


class _Compiles(event.Listener):  # type: ignore[misc]
    def on_start(self, event: Any) -> None:
        if getattr(event.data["dispatcher"], "is_ours", False):
            _say_once("compiling", _COMPILING)

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def announced(say: Callable[[str], None]) -> Iterator[None]:
    """``say`` called with a line when kernels have to be compiled while the block runs: once a process."""
    _listeners.append(say)
    try:
        with event.install_listener("numba:compile", _Compiles()):
            yield
    finally:
        _listeners.remove(say)

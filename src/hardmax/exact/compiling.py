"""How the loops of this package are compiled: on first use, and kept on disk where some folder can be written.

numba looks for a folder to keep them in: ``NUMBA_CACHE_DIR``, else beside the source, else the user's cache folder.
Where none can be written, or writing fails, kernels live as long as the process, and that is said once.
"""

# numba carries no types
# mypy: disable-error-code="no-untyped-call, misc"

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.caching import FunctionCache, NullCache
from numba.core.targetconfig import TargetConfig
from numba.extending import intrinsic

from hardmax.exact import notices
from hardmax.exactness import check_floats

#: Objects made between two looks for garbage while numba compiles.
_SELDOM = 50_000


def kernel(function: Any = None, *, cache: bool = True, vectors: bool = True, **options: Any) -> Any:
    """A function compiled when it is first called, and kept on disk where that is possible; also as ``@kernel(...)``.

    ``cache=False`` keeps nothing; ``vectors=False`` leaves loops as they are, which compiles and runs faster where they
    are short; all other options are numba's.

    Examples
    --------
    >>> @kernel(cache=False, nogil=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(2.0)
    4.0
    """
    if function is None:
        return lambda given: kernel(given, cache=cache, vectors=vectors, **options)
    compiled = _plain(function, **options)
    _replace_compile(compiled, _announced_compile if vectors else _short_compile)
    kind: Any = type(compiled)
    compiled.__class__ = _interruptible(kind)
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
    compiled = _plain(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)
    _replace_compile(compiled, _light_compile)
    return compiled


def borrowing(function: Any = None, **options: Any) -> Any:
    """An ``inner`` function that makes no array and returns none, so that it does not count those it is given.

    numba counts every array of a NamedTuple in and out at each call, which costs more than a short loop. Where a
    function allocates, numba refuses to compile it like this; where it returns an array, this refuses.
    """
    if function is None:
        return lambda given: borrowing(given, **options)
    compiled = inner(function, _nrt=False, **options)
    _replace_compile(compiled, _borrowing_compile)
    return compiled


def _copy_four(typing_context: Any, to: Any, place: Any, source: Any, other: Any) -> Any:
    """Copy four numbers at once between arrays of float64 without gaps, from flat place ``other`` to ``place``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, arrays, four = signature.args[::2], arguments[::2], ir.VectorType(ir.DoubleType(), 4).as_pointer()
        tables = [context.make_array(kind)(context, builder, array) for kind, array in zip(kinds, arrays, strict=True)]
        there, here = (
            builder.bitcast(builder.gep(table.data, [first]), four)
            for table, first in zip(tables, arguments[1::2], strict=True)
        )
        builder.store(builder.load(here, align=8), there, align=8)
        return context.get_dummy_value()

    if to.layout != "C" or source.layout != "C":
        return None
    return types.void(to, types.intp, source, types.intp), generate


copy_four: Any = intrinsic(_copy_four)


def _exchange(typing_context: Any, shared: Any, seen: Any, wanted: Any) -> Any:
    """Let the first integer of an array be ``wanted`` if it is ``seen``, in one step for all threads; what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(signature.args[0])(context, builder, arguments[0])
        found = builder.cmpxchg(table.data, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 0)

    return types.int64(shared, types.int64, types.int64), generate


exchange: Any = intrinsic(_exchange)


def _plain(function: Any, **options: Any) -> Any:
    """The function compiled once a combination of argument types, whatever constants it is called with.

    numba takes ``f(x, 0)`` in compiled code for another type than ``f(x, n)`` and compiles f for each constant.
    """
    compiled = numba.njit(**{"_nrt": True, **options})(function)  # else a function is compiled as its caller is
    of_types = compiled.get_call_template

    def of_plain_types(arguments: Any, named: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in named.items()}
        return of_types(tuple(types.unliteral(kind) for kind in arguments), plain)

    compiled.get_call_template = of_plain_types
    return compiled


# --- when called --------------------------------------------------------------------------------------


@lru_cache
def _interruptible(dispatcher: Any) -> Any:
    """numba's compiled function, out of whose call an interrupt comes as what it is.

    numba runs Python code while it hands arrays back. A signal that came during the loops is answered there, and what
    its handler raises, KeyboardInterrupt as a rule, leaves the call inside of a SystemError.
    """
    plain = dispatcher.__call__

    def call(self: Any, *arguments: Any) -> Any:  # names of arguments would cost a microsecond
        check_floats()
        try:
            return plain(self, *arguments)
        except SystemError as error:
            raise _raised_within(error) from None

    return type(dispatcher.__name__, (dispatcher,), {"__call__": call})


def _raised_within(error: BaseException) -> BaseException:
    """What a SystemError stands for: the exception that was set when a function returned its result, else itself."""
    within: BaseException | None = error
    while isinstance(within, SystemError):
        within = within.__cause__
    return within or error


# --- while compiling ----------------------------------------------------------------------------------


def _replace_compile(compiled: Any, compile_: Callable[[Any, Any, Any], Any]) -> None:
    """Let ``compile_`` have what numba calls when a function is not on disk: (numba's own, target, arguments)."""
    plain = type(compiled._compiler).compile.__get__(compiled._compiler)
    compiled._compiler.compile = lambda *types_: compile_(plain, compiled.targetctx, types_)


def _announced_compile(plain: Any, target: Any, types_: Any) -> Any:
    """Compile a kernel, and optimise it also where an inner function that is being compiled calls it."""
    notices.compiling()
    with _whole(target), _brisk():
        return plain(*types_)


def _short_compile(plain: Any, target: Any, types_: Any) -> Any:
    """Compile a kernel without vector code, which numba, holding its lock meanwhile, asks for by its settings."""
    settings: Any = numba.config
    codegen = target.codegen()
    before = settings.LOOP_VECTORIZE, getattr(codegen, "_loopvect", True)
    settings.LOOP_VECTORIZE, codegen._loopvect = 0, False
    try:
        return _announced_compile(plain, target, types_)
    finally:
        settings.LOOP_VECTORIZE, codegen._loopvect = before


@contextmanager
def _brisk() -> Iterator[None]:
    """Compiling without most of what numba spends beside it: garbage is looked for seldom, settings compared quickly.

    numba's settings all have the same hash, and to compare two of them it asks both for every option there is.
    """
    settings: Any = TargetConfig
    threshold, plain = gc.get_threshold(), settings.__eq__

    def same(one: Any, other: Any) -> Any:
        if type(one) is not type(other):
            return plain(one, other)
        ours, theirs = one._values, other._values  # all others have their defaults
        return ours == theirs or all(getattr(one, name) == getattr(other, name) for name in ours.keys() | theirs.keys())

    gc.set_threshold(_SELDOM, *threshold[1:])
    settings.__eq__ = same
    try:
        yield
    finally:
        settings.__eq__ = plain
        gc.set_threshold(*threshold)


@contextmanager
def _whole(target: Any) -> Iterator[None]:
    """Machine code for what is compiled or loaded meanwhile, also where that is done for an inner function."""
    codegen = target.codegen()
    library: Any = getattr(codegen, "_library_class", None)
    if not getattr(library, "is_light", False):
        yield
        return
    codegen._library_class, codegen.set_env = library.__base__, type(codegen).set_env.__get__(codegen)
    try:
        yield
    finally:
        codegen._library_class, codegen.set_env = library, _no_environment


def _no_environment(name: str, environment: Any) -> None:
    """What stands for numba's ``set_env``: Python objects that compiled code may ask for; inner functions ask none."""


def _light_compile(plain: Any, target: Any, types_: Any) -> Any:
    """Compile without optimising and without machine code: both are done for the callers, which hold copies.

    numba would do both here as well, more than half of all compiling; and while the process lasts it would run this
    code, not the caller's optimised copy.
    """
    codegen = target.codegen()
    library = getattr(codegen, "_library_class", None)
    if library is None or not hasattr(library, "_finalize_dynamic_globals"):  # another numba
        return plain(*types_)
    if getattr(library, "is_light", False):
        return plain(*types_)
    codegen._library_class, codegen.set_env = _light(library), _no_environment  # numba holds its lock meanwhile
    try:
        return plain(*types_)
    finally:
        codegen._library_class = library
        del codegen.set_env


def _borrowing_compile(plain: Any, target: Any, types_: Any) -> Any:
    """Compile a function that counts no arrays, unless it returns one: its caller would count that down unearned."""
    made = _light_compile(plain, target, types_)
    if target.data_model_manager[made.signature.return_type].contains_nrt_meminfo():
        raise TypeError(f"{made.fndesc.qualname} returns {made.signature.return_type}; expected numbers, or use inner")
    return made


@lru_cache
def _light(library: Any) -> Any:
    """numba's library without its passes and without machine code; callers, into which it is copied, have both."""

    def finalize_final_module(self: Any) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    skipped = {"_optimize_final_module": lambda self: None, "_finalize_final_module": finalize_final_module}
    return type("LightLibrary", (library,), {**skipped, "is_light": True})


# --- on disk ------------------------------------------------------------------------------------------


@lru_cache
def _sources(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, dates and sizes of the files that kernels in a folder may be made of: its own, and exact arithmetic's."""
    files = {*folder.glob("_*.py"), *Path(__file__).parent.glob("*.py")}
    return tuple((file.name, (seen := file.stat()).st_mtime_ns, seen.st_size) for file in sorted(files))


class _Kept(FunctionCache):
    """numba's folder of compiled functions; it may fail without harm, and knows the files that a kernel calls into."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        folder = Path(function.__code__.co_filename).parent
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _sources(folder))

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            with _whole(target):
                return super().load_overload(signature, target)
        except Exception:  # damaged files: compiled anew, and replaced
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except Exception as error:  # a full disk, a folder that was taken away, a damaged index
            notices.not_kept(str(error) or type(error).__name__)


class _NotKept(NullCache):
    """What stands for the folder where there is none."""

    def save_overload(self, signature: Any, data: Any) -> None:
        notices.not_kept("neither the package's folder nor the user's cache folder can be written")


# --- ranges that threads share ------------------------------------------------------------------------

# One thread works through a range from its front, others take from its end, and neither waits. It is one integer in
# memory, ``next << 32 | end``, changed in single steps: nothing is taken twice, and nothing is left out.


@borrowing(nogil=True)
def take_first(shared: Any) -> Any:
    """Take the first that waits, or -1 where none does."""
    seen = shared[0]
    while seen >> 32 < seen & 0xFFFFFFFF:
        found = exchange(shared, seen, seen + (1 << 32))
        if found == seen:
            return seen >> 32
        seen = found
    return -1


@borrowing(nogil=True)
def put_back(shared: Any) -> Any:
    """Let what was taken first wait again; for the one thread that takes from the front."""
    seen = shared[0]
    found = exchange(shared, seen, seen - (1 << 32))
    while found != seen:
        seen = found
        found = exchange(shared, seen, seen - (1 << 32))


@kernel(nogil=True)
def take_end(shared: Any, parts: Any) -> Any:
    """Take from the end one of so many parts of what waits, rounded up: (first, last)."""
    seen = shared[0]
    while True:
        last = seen & 0xFFFFFFFF
        n = (last - (seen >> 32) + parts - 1) // parts
        found = exchange(shared, seen, seen - n)
        if found == seen:
            return last - n, last
        seen = found

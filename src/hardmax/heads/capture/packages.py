"""Other packages: where an installed one keeps its files, what its errors say, and torch modules while they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from hardmax.errors import HardmaxError, MissingExtraError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import FloatArray

#: Held while a model is listened to. Its hooks and settings and torch's switches belong to all threads: two that
#: changed them together would hear each other's calls, and the later would put back what the earlier had set.
LISTENING = RLock()


def package_folder(package: str, what: str, remedy: str) -> Path:
    """Where an installed package keeps its files; the package itself is not imported."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"{what} comes with the package {package}, which is not installed: {remedy}")
    return Path(next(iter(spec.submodule_search_locations)))


def path_of(given: object, what: str) -> Path:
    """A path that the caller gave.

    Examples
    --------
    >>> path_of("weights.gguf", "path").name
    'weights.gguf'
    >>> path_of(5, "path")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: path: expected the path of a file or folder, got 5
    """
    if isinstance(given, str | os.PathLike):
        place = os.fspath(given)
        if isinstance(place, str):
            return Path(place)
    raise ParameterError(f"{what}: expected the path of a file or folder, got {given!r:.80}")


def told(error: BaseException) -> str:
    """Another library's error in one line: its class and the first line of its message.

    Examples
    --------
    >>> told(ValueError("too short\\nat byte 7"))
    'ValueError: too short'
    >>> told(KeyError())
    'KeyError'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def refusing(where: str, remedy: str) -> Iterator[None]:
    """While inside, an error of another library becomes one of ours: where it was, what it said, what to do."""
    try:
        yield
    except HardmaxError:
        raise
    except Exception as error:
        raise ShapeError(f"{where} ({told(error)}); {remedy}") from error


def torch_library() -> Any:
    """torch, or how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("capturing torch modules needs torch: pip install 'hardmax[torch]'") from None
    return torch


def to_numpy(tensor: Any) -> FloatArray:
    """A tensor of any device and number type as binary64, in memory of its own: a model may go on in its place."""
    return np.asarray(tensor.detach().to("cpu", torch_library().float64, copy=True).numpy())


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """While inside, the module and its parts are in evaluation mode, those of torch.compile as they were written."""
    torch = torch_library()
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise OperatorError(
            f"expected a module of Python code, got {type(module).__name__} with parts of torch.jit, which do not show "
            "what they compute; pass the module that they were made of"
        )
    as_written = getattr(torch.compiler, "set_stance", nullcontext)  # torch 2.6
    with LISTENING, as_written("force_eager"):
        training = [part for part in module.modules() if part.training]
        try:
            for part in training:
                part.training = False
            yield
        finally:
            for part in training:
                part.training = True


@contextmanager
def following(
    module: Any, stack: list[tuple[Any, str]], called: Callable[[Any, Any, Mapping[str, Any]], Any]
) -> Iterator[None]:
    """While inside, ``stack`` has the parts of the module that are running, with their names, innermost last.

    Every function of torch they call is called by ``called(function, args, kwargs)`` in their place.
    """

    class Mode(torch_library().overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return called(func, args, kwargs or {})

    handles = []
    for name, part in module.named_modules():

        def enter(of: Any, _args: Any, name: str = name) -> None:
            stack.append((of, name))

        def leave(*_: Any) -> None:
            stack.pop()

        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave, always_call=True)]
    try:
        with Mode():
            yield
    finally:
        for handle in handles:
            handle.remove()
        stack.clear()

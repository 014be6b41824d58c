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

from hardmax.errors import MissingExtraError, OperatorError, needing
from hardmax.exactness import FloatArray
from hardmax.networks.files.opening import as_path
from hardmax.networks.files.torch_modules import evaluation_mode

#: Held while a model is listened to. Its hooks and settings and torch's switches belong to all threads: two that
#: changed them together would hear each other's calls, and the later would put back what the earlier had set.
LISTENING = RLock()


def package_folder(
    given: str | os.PathLike[str] | None, package: str, inside: str, remedy: str = "pip install 'hardmax[torch,models]'"
) -> Path:
    """The place that was given, or one inside an installed package, which is not imported."""
    if given is not None:
        return as_path(given)
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"the model comes with the package {package}, which is not installed: {remedy}")
    return Path(next(iter(spec.submodule_search_locations))) / inside


def torch_library() -> Any:
    """torch, or how to install it."""
    with needing("torch modules and device= need torch", "torch"):
        import torch
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
    with LISTENING, as_written("force_eager"), evaluation_mode(module):
        yield


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

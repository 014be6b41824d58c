"""Other packages: where an installed one keeps its files, and what its errors say."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from hardmax.errors import MissingExtraError, ParameterError


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

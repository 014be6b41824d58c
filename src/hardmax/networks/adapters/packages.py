"""Other packages: where an installed one keeps its files, and what its errors say."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from hardmax.errors import MissingExtraError


def package_folder(package: str, what: str, remedy: str) -> Path:
    """Where an installed package keeps its files; the package itself is not imported."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"{what} comes with the package {package}, which is not installed: {remedy}")
    return Path(next(iter(spec.submodule_search_locations)))


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

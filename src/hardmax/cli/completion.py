"""What shells are offered for a model: the built-in names. They complete file names by themselves."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

BUILTIN = "builtin:"
_SHELL = "_HARDMAX_COMPLETE"
_AFTER_COLON = "_HARDMAX_AFTER_COLON"


def complete_model(incomplete: str) -> list[str]:
    """Built-in names that begin so; none for zsh, which would read the colon as its own.

    Examples
    --------
    >>> complete_model("builtin:figure-2")
    ['builtin:figure-2']
    >>> complete_model("my_model")
    []
    """
    from hardmax.networks.library import builtin_names

    if os.environ.get(_SHELL) == "complete_zsh":
        return []
    prefix = "" if os.environ.get(_AFTER_COLON) else BUILTIN
    names = [prefix + name for name in builtin_names()]
    return [name for name in names if (incomplete or not prefix) and name.startswith(incomplete)]


def join_words(environment: MutableMapping[str, str]) -> None:
    """Undo what bash does to ``builtin:demo``: it counts the colon as a word and wants only what follows it.

    Examples
    --------
    >>> asked = {_SHELL: "complete_bash", "COMP_WORDS": "\\n".join(["hardmax", "count", "builtin", ":", "de"])}
    >>> asked["COMP_CWORD"] = "4"
    >>> join_words(asked)
    >>> asked["COMP_WORDS"].split(), asked["COMP_CWORD"]
    (['hardmax', 'count', 'de'], '2')

    Nothing happens where there is nothing to complete:

    >>> join_words({})
    """
    if environment.get(_SHELL) != "complete_bash":
        return
    words, at = environment.get("COMP_WORDS", "").split("\n"), int(environment.get("COMP_CWORD") or 0)
    for index in range(len(words) - 1):
        if words[index] + words[index + 1] != BUILTIN:
            continue
        stop = min(index + 3, len(words))
        is_asked = index < at < stop
        joined = words[index + 2] if stop == index + 3 else ""
        if is_asked:
            environment[_AFTER_COLON] = "1"
        words[index:stop] = [joined if is_asked else BUILTIN + joined]
        at = index if is_asked else at - (stop - index - 1) * (at >= stop)
        break
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(at)

"""What shells are offered for a model: names of our own and of trained models. They complete file names themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping

BUILTIN = "builtin:"
MODEL = "model:"
SCEPTR = "sceptr"
_SHELL = "_HARDMAX_COMPLETE"
_BEFORE = "_HARDMAX_BEFORE_COLON"


def complete_network(incomplete: str) -> list[str]:
    """Built-in networks whose names begin so.

    Examples
    --------
    >>> complete_network("builtin:figure-2")
    ['builtin:figure-2']
    >>> complete_network("my_model")
    []
    """
    from hardmax.networks.library import builtin_names

    return _fitting(incomplete, (BUILTIN + name for name in builtin_names()))


def complete_model(incomplete: str) -> list[str]:
    """Built-in networks and trained models whose names begin so.

    Examples
    --------
    >>> complete_model("model:m"), complete_model("model:sceptr:ti"), complete_model("builtin:figure-2")
    (['model:minilm'], ['model:sceptr:tiny'], ['builtin:figure-2'])
    >>> complete_model("")
    []
    """
    return complete_network(incomplete) + _fitting(incomplete, trained_names())


def trained_names() -> tuple[str, ...]:
    """What trained models are called: those that read text, and every variant of SCEPTR."""
    from hardmax.heads.capture.sceptr_models import SCEPTR_VARIANTS

    variants = (f"{SCEPTR}:{variant}" for variant in SCEPTR_VARIANTS if variant != "default")
    return tuple(MODEL + name for name in ("minilm", "smollm2", SCEPTR, *variants))


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin so, without what the shell keeps; none for zsh, which would read the colon as its own."""
    if os.environ.get(_SHELL) == "complete_zsh":
        return []
    before = os.environ.get(_BEFORE, "")
    typed = before + incomplete
    return [name[len(before) :] for name in names if typed and name.startswith(typed)]


def join_words(environment: MutableMapping[str, str]) -> None:
    """Undo what bash does to ``builtin:demo``: it counts the colon as a word and wants only what follows the last one.

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
    words, place = environment.get("COMP_WORDS", "").split("\n"), environment.get("COMP_CWORD", "")
    at = int(place) if place.isdecimal() else 0
    for index in range(len(words) - 1):
        if words[index] + words[index + 1] not in (BUILTIN, MODEL):
            continue
        stop = index + 2
        while stop < len(words) and ":" in (words[stop - 1], words[stop]):
            stop += 1
        is_asked = index < at < stop
        before, colon, last = "".join(words[index:stop]).rpartition(":")
        if is_asked:
            environment[_BEFORE] = before + colon
        words[index:stop] = [last if is_asked else before + colon + last]
        at = index if is_asked else at - (stop - index - 1) * (at >= stop)
        break
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(at)

"""Options that several commands share, as one parameter: a dataclass whose fields are the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer reads it: where a parameter is a dataclass, each of its fields is an option of its own.

    Examples
    --------
    >>> from dataclasses import make_dataclass
    >>> Size = make_dataclass("Size", [("width", int), ("height", int)])
    >>> def area(name: str, size: Size) -> str:
    ...     return f"{name}: {size.width * size.height}"
    >>> list(inspect.signature(grouped(area)).parameters), grouped(area)(name="box", width=2, height=5)
    (['name', 'width', 'height'], 'box: 10')
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        listed = [parameter]
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            listed = [*inspect.signature(groups[name], eval_str=True).parameters.values()]
        options += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in listed]

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run

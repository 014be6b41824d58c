"""The command line: one file per command, registered here.

Exit codes: 0 done, 2 bad input (one line on standard error, no traceback), 3 stopped early with what was
found kept, 130 interrupted, 141 where whoever read the output stopped reading. ``hardmax claims`` exits with 1 where
a true bound was broken.
"""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from hardmax.cli.parts.output import for_the_command_line
from hardmax.cli.parts.running import grouped
from hardmax.cli.parts.sources import join_words
from hardmax.errors import HardmaxError
from hardmax.exact.notices import announced
from hardmax.html import visible
from hardmax.version import __version__


class _PlainFlags:
    """A command whose help names no type beside options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in found:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return found


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(
    name="hardmax",
    cls=_Group,
    help="The exact geometry of transformers at zero temperature: attention picks one key, so the model is affine on "
    "each of finitely many polyhedral cells. These are counted and drawn, and compared with the soft model.",
    epilog="""[bold]Examples[/bold]
  hardmax report
  hardmax count builtin:demo --box -2 2
  hardmax skeleton model.onnx --inputs X.npz -o hard.onnx
  hardmax report model:minilm --texts sentences.txt

`hardmax COMMAND --help` has more. Every command takes --json. Exit codes: 0 done, 2 bad input, 3 stopped early with \
what was found kept, 130 interrupted.""",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

#: The commands, each a module of that name, as the help lists them.
_COMMANDS = {
    "Look at a model": ("report", "explore", "classes", "heads", "around"),
    "Count its cells": ("count", "map", "sample", "sweep"),
    "Change or build a model": ("skeleton", "compile"),
    "Check what was published": ("figures", "claims", "bounds"),
}
for _panel, _names in _COMMANDS.items():
    for _name in _names:
        _module = vars(import_module(f"hardmax.cli.{_name}"))
        _function = _module.get(_name) or _module[f"{_name}_"]  # map_ and compile_ would hide what Python calls so
        app.command(_name, cls=_Command, rich_help_panel=_panel, epilog=_module["EXAMPLES"])(grouped(_function))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hardmax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    arguments
        What follows the program's name; by default what the shell passed.

    Examples
    --------
    >>> from hardmax.cli import main
    >>> main(["report", "--no-such-option"])
    2
    """
    join_words(os.environ)
    _show_what_fits(sys.stdout)
    try:
        with announced(_say) if sys.stderr.isatty() else nullcontext():
            code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _read_no_further()
        return 141  # as a shell says it of a program that SIGPIPE ended
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, prog_name="hardmax", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except HardmaxError as error:
        return _refuse(str(error))
    except typer.TyperException as error:  # a wrong option or argument
        return _refuse(f"{_sentence(error.format_message(), arguments)} See `hardmax {_command(arguments)}--help`.")
    except SystemError as error:  # what Python makes of an interrupt that comes while a kernel hands its arrays back
        if not _is_interrupt(error):
            raise
        return 130
    except SystemExit as end:  # of a library that saw the pipe break
        if isinstance(end.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; expected a file that can be used.")
    except MemoryError:
        return _refuse("there is not enough memory for this; try a smaller domain, --max-cells or --cells-only.")
    return code if isinstance(code, int) else 0


def _say(text: str) -> None:
    print(f"hardmax: {text}", file=sys.stderr)


def _is_interrupt(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _show_what_fits(stream: TextIO) -> None:
    """Let characters that an encoding lacks be escaped: a file name must not end a command that has done its work."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _read_no_further() -> None:
    """Send what is left of the output nowhere, so that the interpreter does not complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _sentence(message: str, arguments: Sequence[str] | None) -> str:
    """What is wrong with the options, with its full stop; a file that looks like an option gets a hint."""
    text = message.strip()
    words = sys.argv[1:] if arguments is None else arguments
    file = next((word for word in words if re.fullmatch(r"-[^-].*\.[a-z]+", word)), None)
    if file is not None and text.startswith("No such option"):
        text = f"{text.rstrip('.')}; for a file of that name write ./{file}"
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _command(arguments: Sequence[str] | None) -> str:
    """The name of the command that was asked for and a space, where there is one."""
    first = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    names = {command.name for command in app.registered_commands}
    return f"{first} " if first in names else ""


def _refuse(message: str) -> int:
    """Say in one line what was wrong with the input, and return the exit code that goes with it."""
    print(f"hardmax: {visible(for_the_command_line(message))}", file=sys.stderr)
    return 2

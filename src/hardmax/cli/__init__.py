"""The command line: one file per command, registered here.

Exit codes: 0 done, 2 bad input (one line on standard error, no traceback), 3 stopped early with what was
found kept, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hardmax import __version__
from hardmax.cli.bounds import bounds
from hardmax.cli.claims import claims
from hardmax.cli.compile import compile_
from hardmax.cli.report import report
from hardmax.errors import HardmaxError

app = typer.Typer(
    name="hardmax",
    help="The exact geometry of transformers at zero temperature.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(report)
app.command()(claims)
app.command()(bounds)
app.command("compile")(compile_)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hardmax {__version__}")
        raise typer.Exit


# The callback also keeps `hardmax report` a subcommand: typer drops the name of an only command.
@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


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
    try:
        code = app(arguments, prog_name="hardmax", standalone_mode=False)
    except typer.Abort:
        return 130
    except HardmaxError as error:
        return _refuse(str(error))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        return _refuse(f"{error.filename}: {error.strerror}; expected a file that can be read.")
    except typer.TyperException as error:  # a wrong option or argument
        return _refuse(f"{error.format_message()} See `hardmax --help`.")
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    """Say in one line what was wrong with the input, and return the exit code that goes with it."""
    print(f"hardmax: {' '.join(message.split())}", file=sys.stderr)
    return 2

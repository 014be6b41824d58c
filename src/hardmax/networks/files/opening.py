"""How files are opened and written: regular files only, within limits, whole or not at all.

Every reader of the package goes through ``open_file``, ``contents`` or ``text_of``, every writer through
``write_bytes`` or ``replacing``.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import signal
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from hardmax.errors import FileFormatError, HardmaxError, ParameterError, PickleError, WriteError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@dataclass(frozen=True)
class Limits:
    """How much a file may ask of the machine before it is refused; readers take others as ``limits=``.

    A file of our own writing is never larger unpacked than packed, so only ``file_bytes`` and ``entries`` bound it;
    the others keep a small file from filling the memory.

    Parameters
    ----------
    file_bytes
        The size of the file itself.
    unpacked_bytes
        What an archive may unpack to, all its entries together; always allowed is the size of the file itself.
    text_bytes
        JSON, or one line of a table.
    entries
        Numbers that a network holds at once for one input: the sizes of its tensors together.
    made_bytes, nodes, seconds
        What reading an ONNX file may make of its constants, operators once functions are written out, and seconds of
        the processor; always allowed are eight bytes a byte of the file.

    Examples
    --------
    >>> Limits(unpacked_bytes=1 << 33).unpacked_bytes >> 30
    8
    >>> Limits(text_bytes=0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: Limits: expected text_bytes as an integer of at least 1, got 0
    """

    file_bytes: int = 1 << 34
    unpacked_bytes: int = 1 << 29
    text_bytes: int = 1 << 26
    entries: int = 1 << 27
    made_bytes: int = 1 << 30
    nodes: int = 100_000
    seconds: int = 6

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(f"Limits: expected {entry.name} as an integer of at least 1, got {value!r}")


LIMITS = Limits()
#: Larger than anything: for what was in the memory already.
NO_LIMITS = Limits(*(1 << 62 for _ in fields(Limits)))


# --- writing ------------------------------------------------------------------------------------
def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Put ``data`` into a file in one step: a reader sees the old content or the new, never a part.

    Raises
    ------
    WriteError
        With nothing changed at ``path`` and nothing left beside it.
    """
    with replacing(as_path(path)) as out:
        out.write(data)


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``file`` when it is finished, and vanishes when it is not.

    Links are followed: what they point to is replaced. The new file has the mode and, where that is allowed, the owner
    of the old one. An error, Ctrl-C or SIGTERM leaves the old file as it was, and nothing beside it.
    """
    where = shown(file)
    try:
        target = Path(os.path.realpath(file))  # the last step would put the new file in the place of a link
        old = _state(target)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise WriteError(f"{where}: expected the name of a file, got {_kind(old.st_mode)}; nothing was changed")
        # in the same folder, so that the last step is one rename on one disk; its name is short whatever the file's is
        temporary = target.with_name(f".hardmax-{secrets.token_hex(8)}.part")
        with _removed_at_the_end(temporary):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            handle = os.open(temporary, flags, 0o666 if old is None else 0o600)
            with os.fdopen(handle, "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            if old is not None:
                _keep_mode(temporary, old)
            os.replace(temporary, target)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{where}: cannot be written ({error.strerror or error}); nothing was changed") from None
    except ValueError as error:
        if "null byte" not in str(error) and not isinstance(error, UnicodeEncodeError):
            raise
        raise WriteError(f"{where}: cannot be written, no file can have this name; choose another") from None


@contextmanager
def only_here(file: Path) -> Iterator[bool]:
    """Whether no other process is in such a block with this file, which is made; however a process ends, it leaves.

    Where the system has no such locks, every process is told that it is alone.
    """
    if fcntl is None:
        yield True
        return
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise WriteError(f"{shown(file)}: cannot be written ({error.strerror or error})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = True
    except OSError:
        is_alone = False
    try:
        yield is_alone
    finally:
        os.close(handle)


def folder_of(file: Path) -> Path:
    """The folder that a file is written to, links followed."""
    try:
        return Path(os.path.realpath(file)).parent
    except ValueError:  # a zero byte in the name, which writing will refuse
        return file.parent


def _state(target: Path) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _keep_mode(temporary: Path, old: os.stat_result) -> None:
    new = os.stat(temporary)
    if hasattr(os, "chown") and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only some may give files away
            os.chown(temporary, old.st_uid, old.st_gid)
    os.chmod(temporary, stat.S_IMODE(old.st_mode))


#: Files that are being written, for the moment of a signal that ends the process.
_UNFINISHED: set[Path] = set()
_ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def _removed_at_the_end(temporary: Path) -> Iterator[None]:
    """However the block is left, the file is gone; signals that would end the process at once wait for that."""
    taken: list[signal.Signals] = []
    _UNFINISHED.add(temporary)
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDS:
                if signal.getsignal(number) is signal.SIG_DFL:  # what others handle is theirs
                    taken.append(number)
                    signal.signal(number, _tidy_and_end)
        yield
    finally:
        with suppress(OSError):  # after the rename there is nothing to remove
            os.unlink(temporary)
        _UNFINISHED.discard(temporary)
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _tidy_and_end(number: int, _frame: Any) -> None:
    for temporary in tuple(_UNFINISHED):
        with suppress(OSError):
            os.unlink(temporary)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV; floats in the fewest digits that read back as the same number, None as nothing.

    Examples
    --------
    >>> print(csv_text(("panel", "cells"), [("a, b", 21), ("c", None)]), end="")
    panel,cells
    "a, b",21
    c,
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def check_target(
    path: Path | None, force: bool, *, endings: Sequence[str] = (), beside: Iterable[Path | str | None] = ()
) -> None:
    """Refuse a file that could not or should not be written, before the work that would fill it.

    Parameters
    ----------
    beside
        What the command reads, and what else it writes: not even ``force`` puts the file in their place.

    Raises
    ------
    WriteError
        The file exists and ``force`` is not given, is one of those beside it, is a folder, has another ending, or its
        folder is missing or cannot be written to.
    """
    if path is None:
        return
    if os.path.isdir(path):
        raise WriteError(f"{path}: expected the name of a file, got a folder; add a file name")
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        is_file = True  # or will be one
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links
        raise WriteError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})") from None
    if not is_file:
        raise WriteError(f"{path}: expected the name of a file, got a pipe or a device; choose another")
    if endings and path.suffix.lower() not in endings:
        raise WriteError(f"{path}: expected a file ending in {', '.join(endings)}, got {path.suffix or 'no ending'!r}")
    if os.path.exists(path) and not force:
        raise WriteError(f"{path}: the file exists; pass force=True (--force) to replace it, or another name")
    for other in beside:
        if other is not None and _is_same(path, Path(other)):
            raise WriteError(f"{path}: it would replace {other}, which this command uses as well; choose another name")
    folder = folder_of(path) if os.path.islink(path) else path.parent
    if not os.path.isdir(folder):
        raise WriteError(f"{path}: cannot be written, there is no folder {folder}; create it first, or choose another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteError(f"{path}: cannot be written, the folder {folder} allows no new files; choose another")


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first == second or os.path.samefile(first, second)
    except (OSError, ValueError):  # one of the two is not there, or is the name of no file
        return False


def package_version() -> str:
    """The version of this package, to be stored in files."""
    # The parent package is loaded whenever this module is; importing it by name would turn the layers round.
    package: Any = sys.modules[__name__.partition(".")[0]]
    return str(package.__version__)


# --- reading ------------------------------------------------------------------------------------


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path that the caller gave.

    Examples
    --------
    >>> as_path(3)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: expected the path of a file or folder, got a int
    """
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(given, str):
        raise ParameterError(f"expected the path of a file or folder, got a {type(given).__name__}")
    return Path(given)


def shown(name: object, most: int = 160) -> str:
    """A name in one line: what cannot be printed escaped, the middle of a long one left out.

    Examples
    --------
    >>> shown("two\\nlines"), shown("a" * 1000, 11)
    ('two\\\\nlines', 'aaaa...aaaa')
    """
    text = str(name)
    if len(text) > most:
        half = (most - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def reason(error: BaseException) -> str:
    """Another library's error in one line: its class and its message.

    Examples
    --------
    >>> reason(ValueError("too short\\nat byte 7")), reason(KeyError())
    ('ValueError: too short\\\\nat byte 7', 'KeyError')
    """
    return shown(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


@contextmanager
def refusing(kind: type[HardmaxError], what: str, remedy: str = "") -> Iterator[None]:
    """While inside, an error of another library becomes one of ours: what is wrong, what it said, what to do.

    Damaged files and foreign models fail in as many ways as there are libraries: all one to the user.
    """
    try:
        yield
    except HardmaxError:
        raise
    except Exception as error:
        raise kind(f"{what} ({reason(error)}){remedy}") from None


def open_file(file: Path, limits: Limits = LIMITS, where: str | None = None) -> IO[bytes]:
    """A regular file, opened for reading; pipes, devices and folders are refused, and never waited for.

    Raises
    ------
    FileFormatError
        There is no such file, it is none, it is too large, or it cannot be read.
    """
    where = where or shown(file)
    if not isinstance(limits, Limits):
        raise ParameterError(f"{where}: expected limits as hm.Limits(...), got a {type(limits).__name__}")
    try:
        mode = os.stat(file).st_mode  # first, since to open a device may do something
        if stat.S_ISREG(mode):
            # opening a pipe would wait for its writer, should one have taken the file's place by now
            handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            state = os.fstat(handle)
            mode, size = state.st_mode, state.st_size
            if stat.S_ISREG(mode) and size <= limits.file_bytes:
                return os.fdopen(handle, "rb")
            os.close(handle)
    except FileNotFoundError:
        raise FileFormatError(f"{where}: no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name, or half of a character
        raise FileFormatError(f"{where}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(mode):
        raise FileFormatError(f"{where}: expected a file, got {_kind(mode)}")
    raise FileFormatError(
        f"{where}: expected at most {limits.file_bytes:,} bytes, got {size:,}; pass limits=hm.Limits(file_bytes=...) "
        "to read it all the same"
    )


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def contents(file: Path, limits: Limits = LIMITS, where: str | None = None) -> bytes:
    """All bytes of a regular file, refused where there are none."""
    where = where or shown(file)
    with open_file(file, limits, where) as opened:
        try:
            data = opened.read()  # with a number it would make room for that many bytes first
        except OSError as error:
            raise FileFormatError(f"{where}: cannot be read ({error.strerror or error})") from None
        except MemoryError:
            raise FileFormatError(f"{where}: does not fit into the memory of this machine") from None
    if not data:
        raise FileFormatError(f"{where}: the file is empty; it may be the trace of an interrupted copy")
    return data


def text_of(file: Path, limits: Limits = LIMITS, where: str | None = None) -> str:
    """The text of a file in UTF-8, without the byte order mark that spreadsheets write."""
    where = where or shown(file)
    try:
        return contents(file, limits, where).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{where}: expected UTF-8 text, got the byte {error.object[error.start]:#04x} at {error.start}"
        ) from None


def refuse_pickle(data: bytes, where: str) -> None:
    """Refuse bytes that begin as a pickle does, or as the zip around one that torch.save writes."""
    # 0x80, the protocol, then an opcode; in a safetensors header those bytes are a length and then zeros
    is_pickle = len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data[2] != 0
    if is_pickle or (data[:4] == b"PK\x03\x04" and b"data.pkl" in data[:1024]):
        raise PickleError(
            f"{where}: the file is a pickle (torch.save writes such files), whatever its name says; nothing is "
            "unpickled here. Load it in torch with weights_only=True and pass the module to hm.from_torch, or save it "
            "as safetensors or ONNX."
        )

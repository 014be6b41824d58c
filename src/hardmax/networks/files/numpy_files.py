"""Numpy's files, .npz and .npy: measured before they are unpacked, matched and never evaluated.

``numpy.load`` hands out whatever an entry holds: bytes where the magic is missing, arrays of the size that a header
claims, structures, objects. What leaves here is an array of numbers or of text, of the size that the file really has.
"""

from __future__ import annotations

import io
import re
import zipfile
from math import prod
from typing import IO, Any

import numpy as np

from hardmax.errors import FileFormatError, PickleError, WeightError
from hardmax.exactness import Array
from hardmax.networks.files.opening import LIMITS, Limits, refusing, shown

_NPY = b"\x93NUMPY"
_HEADER = {
    "descr": re.compile(r"'descr'\s*:\s*'([^']{1,20})'"),
    "fortran_order": re.compile(r"'fortran_order'\s*:\s*(True|False)"),
    "shape": re.compile(r"'shape'\s*:\s*\(([\dL\s,]{0,400})\)"),
}
_NUMBER_TYPE = re.compile(r"[<>|=]?(?:f[248]|[iu][1248]|b1|[US]\d{1,8})")
_MOST_HEADER = 1 << 16
_CHUNK = 1 << 22


def npz_arrays(source: IO[bytes], where: str, limits: Limits = LIMITS) -> dict[str, Array]:
    """The arrays of an .npz by name, measured before they are unpacked; numbers and text, nothing else.

    Raises
    ------
    FileFormatError
        It is no archive of arrays, an entry is none or disagrees with its header, or they are too large together.
    PickleError
        An entry holds Python objects.
    """
    expected = f"{where}: expected an .npz file of numpy arrays, got bytes that cannot be read as one"
    with refusing(FileFormatError, expected, "; it may be truncated"):
        size = source.seek(0, io.SEEK_END)
        with zipfile.ZipFile(source) as archive:
            entries = archive.infolist()
            _check_entries(entries, max(size, limits.unpacked_bytes), where)
            arrays: dict[str, Array] = {}
            for entry in entries:
                with archive.open(entry) as opened:
                    name = entry.filename[: -len(".npy")]
                    arrays[name] = npy_array(opened, entry.file_size, f"{where}: array {shown(name, 60)!r}")
        return arrays


def _check_entries(entries: list[zipfile.ZipInfo], most: int, where: str) -> None:
    """Refuse an archive that is too large, or that numpy would not have written."""
    seen: set[str] = set()
    for entry in entries:
        name = shown(entry.filename, 60)
        if not entry.filename.endswith(".npy"):
            raise FileFormatError(f"{where}: expected arrays alone, got an entry {name!r}; write it with numpy.savez")
        if entry.filename in seen:
            raise FileFormatError(f"{where}: two entries are called {name!r}; write the file again with numpy.savez")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileFormatError(
                f"{where}: {name!r} is packed by method {entry.compress_type}, which numpy does not use; write the "
                "file again with numpy.savez_compressed"
            )
        seen.add(entry.filename)
    total = sum(entry.file_size for entry in entries)
    if total > most:
        raise FileFormatError(
            f"{where}: expected arrays of {most:,} bytes at most, got {total:,} unpacked; write the file with "
            "numpy.savez, which packs nothing, or pass limits=hm.Limits(unpacked_bytes=...) to read it all the same"
        )


def npy_array(source: IO[bytes], size: int, where: str) -> Array:
    """The array of an .npy file of ``size`` bytes: numbers or text, in this machine's byte order.

    The header is compared with the size before anything is made of it; it is matched, never evaluated.
    """
    with refusing(FileFormatError, f"{where}: damaged or truncated"):
        dtype, is_fortran, shape, begin = _npy_header(source, where)
        if (wanted := prod(shape) * dtype.itemsize) != size - begin:
            raise FileFormatError(
                f"{where}: its header says {dtype} of shape {shown(shape, 80)}, {shown(wanted)} bytes, but "
                f"{size - begin:,} follow; the file is damaged"
            )
        raw, done = np.empty(wanted, dtype=np.uint8), 0
        while done < wanted:
            part = source.read(min(_CHUNK, wanted - done))
            if not part:
                raise FileFormatError(f"{where}: it ends after {done:,} of {wanted:,} bytes; it may be truncated")
            raw[done : done + len(part)] = np.frombuffer(part, dtype=np.uint8)
            done += len(part)
        flat = _sound(raw.view(dtype).astype(dtype.newbyteorder("="), copy=False), where)
        return flat.reshape(shape, order="F" if is_fortran else "C")


def _npy_header(source: IO[bytes], where: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Number type, order and shape, and where the numbers begin."""
    start = source.read(8)
    if start[:6] != _NPY:
        raise FileFormatError(f"{where}: not a numpy file; expected what numpy.save or numpy.savez writes")
    if start[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise FileFormatError(f"{where}: expected version 1 or 2 of numpy's format, got {list(start[6:])}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(source.read(width), "little")
    text = source.read(min(length, _MOST_HEADER)).decode("latin1")
    found = {name: pattern.findall(text) for name, pattern in _HEADER.items()}
    if "O" in "".join(found["descr"]):
        raise PickleError(f"{where}: it holds Python objects, and nothing is unpickled; save plain numbers instead")
    if length > _MOST_HEADER or any(len(matches) != 1 for matches in found.values()):
        raise FileFormatError(
            f"{where}: expected a header with descr, fortran_order and shape of one array of numbers, got "
            f"{shown(text.strip(), 80)!r}"
        )
    if not _NUMBER_TYPE.fullmatch(found["descr"][0]):
        raise WeightError(f"{where}: expected numbers of at most 8 bytes, or text, got {shown(found['descr'][0])!r}")
    sizes = found["shape"][0].replace("L", "")  # which Python 2 put behind an integer
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if len(shape) > 32:
        raise FileFormatError(f"{where}: a shape of {len(shape)} axes; expected at most 32")
    dtype = np.dtype(found["descr"][0])
    return dtype, found["fortran_order"][0] == "True", shape, 8 + width + length


def _sound(array: Array, where: str) -> Array:
    """The array with every entry a value of its type: not all bytes are truth values, nor all numbers characters."""
    if array.dtype.kind == "b":
        return np.asarray(array.view(np.uint8) != 0)
    if array.dtype.kind == "U" and array.size:
        codes = array.view(np.uint32)
        if (codes > 0x10FFFF).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise FileFormatError(f"{where}: expected text, got numbers that are no characters")
    return array

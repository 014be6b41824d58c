"""One way to open a file and one to replace it: what is no file is refused, what is too large is not unpacked, and a
write leaves the old file or the new one, its link and its mode, and nothing beside it."""

import ast
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import hardmax as hm
from conftest import REPOSITORY
from hardmax.constructions.function_files import read_function
from hardmax.errors import FileFormatError, ParameterError, WriteError
from hardmax.networks import operations as op
from hardmax.networks.files import opening as files
from hardmax.networks.files.inputs import stored_inputs
from hardmax.networks.files.opening import replacing, write_bytes
from hardmax.networks.graph import GraphBuilder


def _net(*layers, dim=2):
    return hm.Network([hm.Affine(np.eye(dim)), hm.ReLU(), *layers], dim)


@pytest.fixture
def impatient():
    """Whoever waits for a pipe is woken, and has failed."""

    def woken(*_):
        pytest.fail("it waited")

    old = signal.signal(signal.SIGALRM, woken)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


# --- reading ------------------------------------------------------------------------------------


def _read_gguf(path):
    pytest.importorskip("gguf", reason="needs gguf, which is not installed")
    from hardmax.networks.files.gguf_files import read_llama

    return read_llama(path)


def _read_inputs(path):
    return stored_inputs(str(path), str(path))


READERS = {
    "net.npz": hm.read,
    "net.safetensors": hm.read,
    "net.onnx": hm.read,
    "cells.npz": hm.load_cells,
    "inputs.npz": _read_inputs,
    "inputs.npy": _read_inputs,
    "inputs.csv": _read_inputs,
    "function.csv": read_function,
    "function.json": read_function,
    "model.gguf": _read_gguf,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused_and_not_waited_for(name, tmp_path, impatient):
    read, path = READERS[name], tmp_path / name
    os.mkfifo(path)
    with pytest.raises(FileFormatError, match="expected a file, got a pipe"):
        read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(FileFormatError, match="expected a file, got a device"):
        read(path)
    path.unlink()
    if len(str(path)) < 100:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            with pytest.raises(FileFormatError, match="expected a file, got a socket"):
                read(path)
        path.unlink()
    if read is not hm.load_cells:  # a folder is where cells were streamed to
        path.mkdir()
        with pytest.raises(FileFormatError, match="expected a file, got a folder"):
            read(path)


def test_a_pipe_that_takes_a_files_place_is_not_waited_for(tmp_path, impatient, monkeypatch):
    (tmp_path / "net.npz").write_bytes(b"x")
    regular = os.stat(tmp_path / "net.npz")
    (tmp_path / "net.npz").unlink()
    os.mkfifo(tmp_path / "net.npz")
    monkeypatch.setattr(os, "stat", lambda *_: regular)
    with pytest.raises(FileFormatError, match="expected a file, got a pipe"):
        files.open_file(tmp_path / "net.npz")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    hm.write(_net(), tmp_path / "net.npz")
    size = (tmp_path / "net.npz").stat().st_size
    with pytest.raises(FileFormatError, match=rf"expected at most {size - 1:,} bytes, got {size:,}; pass limits="):
        hm.read(tmp_path / "net.npz", limits=hm.Limits(file_bytes=size - 1))
    assert hm.read(tmp_path / "net.npz", limits=hm.Limits(file_bytes=size))([1.0, -2.0]).tolist() == [1.0, 0.0]
    with open(tmp_path / "vast.npz", "wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing, which takes no room on the disk
    for read in (hm.read, hm.load_cells, _read_inputs):
        with pytest.raises(FileFormatError, match=r"vast\.npz: expected at most"):
            read(tmp_path / "vast.npz")


def _packed(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("read", [hm.read, hm.load_cells])
def test_an_archive_is_measured_before_it_is_unpacked(read, tmp_path, monkeypatch):
    path = _packed(tmp_path / "bomb.npz", W0=np.zeros((500, 1000)), hardmax=np.zeros(100, dtype=np.uint8))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(FileFormatError, match=r"bomb\.npz: expected arrays of 1,000,000 bytes at most, got 4,000,356"):
        read(path, limits=hm.Limits(unpacked_bytes=1_000_000))


def test_the_default_stops_a_bomb_of_a_few_bytes(tmp_path):
    path = _packed(tmp_path / "bomb.npz", inputs=np.zeros(9))
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (3 << 30).to_bytes(4, "little")  # the size unpacked
    path.write_bytes(data)
    for read in (hm.read, hm.load_cells, _read_inputs):
        with pytest.raises(FileFormatError, match=r"at most, got 3,221,225,472 unpacked; .*pass limits=hm\.Limits"):
            read(path)


def test_an_entry_that_says_it_is_smaller_than_it_is_is_refused(tmp_path):
    path = _packed(tmp_path / "lie.npz", inputs=np.zeros(100_000))
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (128 + 80).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"lie\.npz"):
        _read_inputs(path)


def test_an_archive_no_larger_than_its_file_is_always_read(tmp_path):
    """What a complex of any size was written to is read without asking."""
    hm.write(_net(), tmp_path / "net.npz")
    assert hm.read(tmp_path / "net.npz", limits=hm.Limits(unpacked_bytes=1)).n_parameters == 4
    hm.enumerate_cells(_net(), hm.Box([-1, -1], [1, 1])).save(tmp_path / "cells.npz")
    assert hm.load_cells(tmp_path / "cells.npz", limits=hm.Limits(unpacked_bytes=1)).n_cells == 4


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_of_packing_without_bounds_is_refused(method, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive, archive.open("inputs.npy", "w") as entry:
        np.lib.format.write_array(entry, np.zeros((2, 2)))
    with pytest.raises(FileFormatError, match=r"packed by method .*numpy\.savez_compressed"):
        _read_inputs(tmp_path / "a.npz")


def test_two_entries_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for _ in range(2):
            warned = pytest.warns(UserWarning) if archive.namelist() else nullcontext()
            with warned, archive.open("x.npy", "w") as entry:
                np.lib.format.write_array(entry, np.zeros((2, 2)))
    with pytest.raises(FileFormatError, match=r"two entries are called 'x\.npy'"):
        _read_inputs(tmp_path / "a.npz")


def _described(path, **changes):
    hm.write(hm.Network([hm.ReLU()], 2), path)
    with np.load(path) as stored:
        structure = json.loads(bytes(stored["hardmax"])) | changes
    np.savez(path, hardmax=np.frombuffer(json.dumps(structure).encode(), dtype=np.uint8))
    return path


def test_a_few_bytes_that_ask_for_vast_tensors_are_refused_unless_wanted(tmp_path):
    path = _described(tmp_path / "net.npz", input_shape=[10**9])
    with pytest.raises(FileFormatError, match=r"its tensors have 2000000000 entries together.*hm\.Limits\(entries="):
        hm.read(path)
    assert hm.read(path, limits=hm.Limits(entries=2 * 10**9)).input_shape == (10**9,)


def test_a_description_that_is_too_long_is_not_parsed(tmp_path):
    path = _described(tmp_path / "net.npz", changes=["x" * 1000])
    with pytest.raises(FileFormatError, match=r"a description of 1,\d\d\d bytes, expected at most 1,000; pass limits="):
        hm.read(path, limits=hm.Limits(text_bytes=1000))
    assert hm.read(path).changes == ("x" * 1000,)


def test_limits_are_limits(tmp_path):
    hm.write(_net(), tmp_path / "net.npz")
    for read in (hm.read, hm.load_cells):
        with pytest.raises(ParameterError, match=r"expected limits as hm\.Limits\(\.\.\.\), got a int"):
            read(tmp_path / "net.npz", limits=1 << 30)


@pytest.mark.parametrize("bad", [{"file_bytes": 0}, {"entries": -1}, {"text_bytes": 2.0}, {"unpacked_bytes": True}])
def test_limits_are_positive_integers(bad):
    with pytest.raises(ParameterError, match="as an integer of at least 1"):
        hm.Limits(**bad)


# --- writing ------------------------------------------------------------------------------------


def _hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def _writers():
    net, cells = _net(), hm.enumerate_cells(_net(), hm.Box([-1, -1], [1, 1]))
    return {
        "net.npz": lambda path: hm.write(net, path),
        "cells.npz": cells.save,
        "page.html": lambda path: hm.reports.explore(path, force=True),
        "bytes.txt": lambda path: write_bytes(path, b"new"),
    }


@pytest.mark.parametrize("name", ["net.npz", "cells.npz", "page.html", "bytes.txt"])
def test_a_link_is_followed_and_kept_and_so_is_the_mode(name, tmp_path):
    write, target, link = _writers()[name], tmp_path / "there" / name, tmp_path / name
    target.parent.mkdir()
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(Path("there") / name)
    write(link)
    assert link.is_symlink() and target.read_bytes() != b"old" and not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(target.parent) == [name] and os.listdir(tmp_path).count(name) == 1
    assert _hidden(tmp_path) == _hidden(target.parent) == []


def test_a_link_to_a_link_and_a_link_to_nothing_are_followed(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("c")
    write_bytes(tmp_path / "a", b"1")
    assert (tmp_path / "c").read_bytes() == b"1" and (tmp_path / "a").is_symlink() and (tmp_path / "b").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match="cannot be written"):
        write_bytes(tmp_path / "loop", b"1")
    assert (tmp_path / "loop").is_symlink() and sorted(os.listdir(tmp_path)) == ["a", "b", "c", "loop"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_file_keeps_its_mode_whatever_the_mask(mode, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(mode)
    before = os.umask(0o077)
    try:
        write_bytes(tmp_path / "f", b"new")
        write_bytes(tmp_path / "private", b"new")
        os.umask(0o022)
        write_bytes(tmp_path / "public", b"new")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("f", "private", "public")]
    assert modes == [mode, 0o600, 0o644] and (tmp_path / "f").read_bytes() == b"new"


def test_a_secret_is_never_readable_while_it_is_written(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o600)
    with replacing(tmp_path / "f") as out:
        out.write(b"secret")
        (part,) = [path for path in tmp_path.iterdir() if path.name != "f"]
        assert stat.S_IMODE(part.stat().st_mode) == 0o600


def test_a_name_as_long_as_the_disk_allows_is_written(tmp_path):
    for name in ("n" * 251 + ".npz", "ä" * 125 + ".npz"):
        hm.write(_net(), tmp_path / name)
        assert hm.read(tmp_path / name).n_parameters == 4
    with pytest.raises(WriteError, match="cannot be written"):
        hm.write(_net(), tmp_path / ("n" * 252 + ".npz"))
    assert len(os.listdir(tmp_path)) == 2


def test_what_cannot_be_replaced_is_refused(tmp_path, impatient):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "device.npz").symlink_to("/dev/null")
    (tmp_path / "folder.npz").mkdir()
    for name, kind in (("pipe", "a pipe"), ("device", "a device"), ("folder", "a folder")):
        with pytest.raises(WriteError, match=rf"{name}\.npz: expected the name of a file, got {kind}"):
            hm.write(_net(), tmp_path / f"{name}.npz")
    for name in ("zero\0byte.npz", "half\ud800.npz", "absent/net.npz"):
        with pytest.raises(WriteError, match="cannot be written"):
            hm.write(_net(), tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["device.npz", "folder.npz", "pipe.npz"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError, SystemExit])
@pytest.mark.parametrize("there", [True, False])
def test_an_error_while_writing_leaves_what_was_there(error, there, tmp_path):
    if there:
        (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(error), replacing(tmp_path / "f") as out:
        out.write(b"half")
        raise error
    assert os.listdir(tmp_path) == (["f"] if there else [])
    assert not there or (tmp_path / "f").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["open", "fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupt_at_any_step_leaves_nothing_hidden(step, error, tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"old")

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(WriteError if error is OSError else error):
        write_bytes(tmp_path / "f", b"new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


_WRITING = """
import sys, time
from pathlib import Path
from hardmax.networks.files.opening import replacing
with replacing(Path(sys.argv[1])) as out:
    out.write(b"half" * 10000)
    out.flush()
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_ends_the_program_leaves_nothing_hidden(number, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    # As in a terminal, whatever the tests run under: nohup and background jobs ignore some of these.
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n{_WRITING}"
    program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"
    command = [sys.executable, "-c", program, str(tmp_path / "f")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"begun\n" and len(_hidden(tmp_path)) == 1
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -number  # it ended as the signal asks, and not otherwise
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


def test_what_happens_at_a_signal_is_as_before_once_the_file_is_written(tmp_path):
    seen = []
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with replacing(tmp_path / "f") as out:
            out.write(b"1")
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, lambda *_: seen.append(1))  # whoever handles it goes on to
        with replacing(tmp_path / "f") as out:
            os.kill(os.getpid(), signal.SIGTERM)
            out.write(b"2")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [1] and (tmp_path / "f").read_bytes() == b"2" and os.listdir(tmp_path) == ["f"]


def test_another_thread_may_write_too(tmp_path):
    worker = threading.Thread(target=write_bytes, args=(tmp_path / "f", b"1"))
    worker.start()
    worker.join()
    assert os.listdir(tmp_path) == ["f"]


# --- nothing is written that could not be read ----------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Doubled(hm.networks.layers.Layer):
    factor: float = 2.0

    def lower(self, builder, value, where):
        return builder.add(op.Scale(op.frozen(self.factor)), value, name=where)


class _Named(hm.ReLU):
    """A ReLU by another name."""


@dataclass(frozen=True, eq=False)
class ReLU(hm.networks.layers.Layer):
    """Another layer by the name and the fields of ours, which would be read as ours."""

    slope: float = 0.0

    def lower(self, builder, value, where):
        return builder.add(op.Scale(op.frozen(5.0)), value, name=where)


_UNKNOWN = [_Doubled(), _Named(), ReLU(), hm.Residual(_Doubled())]


@pytest.mark.parametrize("layer", _UNKNOWN, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_layer_that_files_do_not_know_is_refused_when_it_is_written(layer, ending, tmp_path):
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="needs safetensors, which is not installed")
    net, path = _net(layer), tmp_path / f"net.{ending}"
    with pytest.raises(WriteError, match=rf"net\.{ending}: .*hm\.read would refuse.*hm\.Network\.from_graph"):
        hm.write(net, path)
    assert os.listdir(tmp_path) == []
    hm.write(hm.Network.from_graph(net.graph, net.temperature), path)  # as the message says
    assert np.array_equal(hm.read(path)([1.0, -2.0]), net([1.0, -2.0]))


@dataclass(frozen=True, eq=False)
class _Operation(op.Relu):
    """An operation that files do not know."""


@pytest.mark.parametrize("operation", [_Operation(), op.Relu(float("nan")), op.Scale(np.ones(2, dtype=np.float32))])
def test_an_operation_that_files_do_not_know_is_refused_too(operation, tmp_path):
    builder = GraphBuilder((2,))
    builder.add(operation, 0)
    with pytest.raises(WriteError, match=r"hm\.read would refuse"):
        hm.write(hm.Network.from_graph(builder.build()), tmp_path / "net.npz")
    assert os.listdir(tmp_path) == []


def test_cells_that_could_not_be_loaded_are_not_saved(tmp_path):
    cells = hm.enumerate_cells(_net(), hm.Box([-1, -1], [1, 1]))
    cells.pieces = replace(cells.pieces, vertices=np.full_like(cells.pieces.vertices, np.nan))
    with pytest.raises(WriteError, match=r"hm\.load_cells would refuse these cells \(array 'vertices' holds NaN"):
        cells.save(tmp_path / "cells.npz")
    cells.pieces = replace(cells.pieces, vertices=cells.pieces.vertices[:-1])
    with pytest.raises(WriteError, match=r"hm\.load_cells would refuse"):
        cells.save(tmp_path / "cells.npz")
    assert os.listdir(tmp_path) == []


# --- nobody goes another way ------------------------------------------------------------------------

#: Calls that open or write files, and the files of the package that may make them.
_CALLS = {
    "np.load": (),
    "np.save": (),
    "np.savez": (),
    "np.loadtxt": (),
    "np.fromfile": (),
    "np.memmap": (),
    "os.replace": ("networks/files/opening.py", "runs/folder.py"),  # parts of runs get other names
    "os.rename": (),
    "os.open": ("networks/files/opening.py", "cli/__init__.py"),
    "open": ("runs/worker.py",),  # what the system says of the process
    ".write_text": (),
    ".write_bytes": (),
    ".savefig": ("show/figures/writing.py",),  # into memory
    # pages of our own, and files of installed packages
    ".read_text": ("show/colours.py", "show/explorer/page.py", "show/report/page.py", "heads/capture/text_models.py",
                   "heads/capture/sceptr_models.py"),
    ".read_bytes": ("cells/streaming.py",),
    ".open": ("networks/files/numpy_files.py", "networks/files/arrays.py", "cells/storage.py", "cells/streaming.py",
              "networks/files/onnx/models.py", "cli/report.py"),
}  # fmt: skip


def _calls(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            yield name
            if isinstance(node.func, ast.Attribute) and name not in _CALLS:
                yield f".{node.func.attr}"


def test_every_file_is_opened_and_written_in_one_place():
    package = REPOSITORY / "src" / "hardmax"
    found = []
    for path in sorted(package.rglob("*.py")):
        here = path.relative_to(package).as_posix()
        found += [f"{here}: {name}" for name in _calls(path.read_text()) if here not in _CALLS.get(name, (here,))]
    assert found == []
    assert list(_calls("np.load(file); open(file, 'w')")) == ["np.load", "open"]  # the search finds some

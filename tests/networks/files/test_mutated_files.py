"""Files that were damaged give a value that can be used, or a named error: a part of the campaign, on every run.

``python tests/networks/files/file_campaign.py --files 50000`` is the whole of it.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions.function_files import read_function
from hardmax.networks.files.inputs import stored_inputs
from networks.files import file_campaign

pytest.importorskip("safetensors", reason="needs safetensors, which is not installed")
pytest.importorskip("gguf", reason="needs gguf, which is not installed")
pytest.importorskip("tokenizers", reason="needs tokenizers, which is not installed")

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("kind", file_campaign.KINDS)
def test_the_files_that_are_damaged_are_sound_themselves(kind, tmp_path):
    outcomes = []
    for ending, data in file_campaign.seeds(kind):
        (tmp_path / f"sound{ending}").write_bytes(data)
        outcomes.append(file_campaign.use(kind, tmp_path / f"sound{ending}"))
    assert outcomes.count("used") >= 0.6 * len(outcomes)
    # a smooth network has no cells, and a table of fractions is for compiling
    assert set(outcomes) <= {"used", "NotPiecewiseAffineError", "FileFormatError"}


@pytest.mark.parametrize("kind", file_campaign.KINDS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_gives_a_value_or_a_named_error(kind, tmp_path_factory, seed):
    ending, data = file_campaign.mutated(kind, np.random.default_rng(seed))
    path = tmp_path_factory.mktemp("damaged") / f"file{ending}"
    path.write_bytes(data)
    assert file_campaign.use(kind, path)  # anything but a HardmaxError is raised


@pytest.mark.parametrize("kind", ["npz", "cells", "inputs"])
@pytest.mark.parametrize("seed", range(4))
def test_on_the_command_line_it_is_one_line(kind, seed, tmp_path):
    ending, data = file_campaign.mutated(kind, np.random.default_rng([1, seed]))
    path = tmp_path / f"file{ending}"
    path.write_bytes(data)
    assert file_campaign.command(kind, path) in (0, 2, 3)


# --- one of each kind that gave a bare exception --------------------------------------------------------


def _npz_with(path, name, content):
    """An archive whose entry is these bytes, as no numpy writes it."""
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.npy", content)
    return path


_NO_ARRAYS = [b"", b"plain text", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{}", b"\x93NUMPY\x09\x00"]


@pytest.mark.parametrize("content", _NO_ARRAYS)
@pytest.mark.parametrize("name", ["hardmax", "W0", "inputs", "labels"])
def test_an_entry_that_is_no_array_is_named(name, content, tmp_path):
    """numpy hands such an entry out as bytes."""
    path = _npz_with(tmp_path / "odd.npz", name, content)
    for reader in (hm.read, hm.load_cells, lambda file: stored_inputs(str(file), str(file))):
        with pytest.raises(hm.errors.FileFormatError, match=rf"odd\.npz: array '{name}'"):
            reader(path)


def _header(descr, shape, data=b"", order="False"):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("descr", "shape", "data", "kind"),
    [
        ("'<f8'", "(1000000000000,)", b"", "FileFormatError"),  # a header that lies is not believed
        ("'<f8'", "(2,)", b"\x00" * 8, "FileFormatError"),
        ("'<f8'", "(2,)", b"\x00" * 24, "FileFormatError"),
        ("'<f8'", "(-1,)", b"", "FileFormatError"),
        ("'<f8'", "(0, 99999999999999999999999)", b"", "FileFormatError"),
        ("'<f8'", "(" + "1," * 65 + ")", b"\x00" * 8, "FileFormatError"),
        ("'<f8'", "[2]", b"\x00" * 16, "FileFormatError"),
        ("'<f8'", "(True,)", b"\x00" * 8, "FileFormatError"),
        ("[('x', '<f8')]", "(1,)", b"\x00" * 8, "FileFormatError"),
        ("'<U0'", "(1000000000000,)", b"", "FileFormatError"),
        ("'<U1'", "(1,)", b"\xff" * 4, "FileFormatError"),  # no character has this number
        ("'<U1'", "(1,)", b"\x00\xd8\x00\x00", "FileFormatError"),  # half of one
        ("'<c16'", "(1,)", b"\x00" * 16, "WeightError"),
        ("'<M8[s]'", "(1,)", b"\x00" * 8, "WeightError"),
        ("'<f16'", "(1,)", b"\x00" * 16, "WeightError"),
        ("'|O'", "(1,)", b"\x80\x04", "PickleError"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(descr, shape, data, kind, tmp_path):
    path = _npz_with(tmp_path / "odd.npz", "inputs", _header(descr, shape, data))
    with pytest.raises(getattr(hm.errors, kind), match=r"odd\.npz: array 'inputs'"):
        stored_inputs(str(path), str(path))
    (tmp_path / "odd.npy").write_bytes(_header(descr, shape, data))
    with pytest.raises(getattr(hm.errors, kind), match=r"odd\.npy: "):
        stored_inputs(str(tmp_path / "odd.npy"), str(tmp_path / "odd.npy"))


def test_a_header_of_any_length_is_not_read(tmp_path):
    """Its end would be taken for numbers."""
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }".ljust(70_000)
    (tmp_path / "long.npy").write_bytes(b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + bytes(16))
    with pytest.raises(hm.errors.FileFormatError, match="expected a header"):
        stored_inputs(str(tmp_path / "long.npy"), "long")


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">i2", "|u1", "|b1", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_writes_is_read_as_numpy_reads_it(dtype, order, tmp_path):
    array = np.array(np.random.default_rng(0).integers(0, 2, (3, 4, 2)), dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", inputs=array)
    for name in ("a.npy", "a.npz"):
        read = stored_inputs(str(tmp_path / name), name)[0]
        assert read.dtype == array.dtype.newbyteorder("=") and np.array_equal(read, array) and read.flags.writeable


def test_bytes_that_are_no_truth_values_are_made_some(tmp_path):
    (tmp_path / "b.npy").write_bytes(_header("'|b1'", "(3,)", b"\x00\x02\xff"))
    read = stored_inputs(str(tmp_path / "b.npy"), "b")[0]
    assert read.tolist() == [False, True, True] and read.view(np.uint8).max() == 1


def test_a_table_with_an_endless_entry_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n" + "7" * 200_000 + ",1\n")
    with pytest.raises(hm.errors.FileFormatError, match=r"line 2.*131072"):
        stored_inputs(str(tmp_path / "t.csv"), "t")
    with pytest.raises(hm.errors.FileFormatError, match=r"t\.csv: .*131072"):
        read_function(tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["0,1e999999999\n", "0,1e-99999999\n", "0," + "1" * 9999 + "\n"])
def test_a_number_beyond_all_floats_is_refused_at_once(text, tmp_path):
    (tmp_path / "t.csv").write_text("0,1\n" + text)
    with pytest.raises(hm.errors.FileFormatError, match="line 2: expected numbers"):
        read_function(tmp_path / "t.csv")


def test_names_of_positions_are_text(tmp_path):
    for tokens in (np.arange(2), np.array([b"a", b"b"]), np.array("a"), np.array([[["a"]]])):
        np.savez(tmp_path / "i.npz", inputs=np.zeros((1, 2)), tokens=tokens)
        with pytest.raises(hm.errors.FileFormatError, match="expected 'tokens' as text"):
            stored_inputs(str(tmp_path / "i.npz"), "i")


_BAD_FIELDS = {
    "an axis that is no number": (lambda n: n("Transpose").update(order=["0", "1"]), "sizes"),
    "axes that are floats": (lambda n: n("Transpose").update(order=[0.0, 1.0]), "sizes"),
    "an axis twice": (lambda n: n("Reduce").update(axes=[0, 0]), "axes"),
    "an axis too many": (lambda n: n("Reduce").update(axes=[7]), "axes"),
    "a divisor of zero": (lambda n: n("Reduce").update(divisor=0), "divisor"),
    "an axis to join that is not there": (lambda n: n("Concat").update(axis=-1), "axis"),
    "an endless slope": (lambda n: n("Relu").update(slope=1e999), "slope"),
    "a slope of text": (lambda n: n("Relu").update(slope="0"), "float"),
    "a truth value for a number": (lambda n: n("Relu").update(slope=True), "float"),
    "an epsilon below zero": (lambda n: n("Normalize").update(epsilon=-1.0), "epsilon"),
    "a number for a truth value": (lambda n: n("Hardmax").update(always_hard=1), "bool"),
    "three operands": (lambda n: n("Add", "node").update(inputs=[0, 0, 0]), "operands"),
    "sizes whose signs cancel": (lambda n: n("Reshape").update(shape=[-2, -4]), "sizes"),
    "integers for weights": (lambda n: n("Linear").update(weight=n("Take")["positions"]), "float64"),
    "weights for positions": (lambda n: n("Take").update(positions=n("Linear")["weight"]), "int64"),
    "a bias of another size": (lambda n: n("Linear").update(bias=n("Convolution")["weight"]), "bias"),
    "other groups": (lambda n: n("Convolution").update(groups=2), "groups"),
    "other strides": (lambda n: n("Convolution").update(strides=[2, 1]), "make other windows"),
    "a kernel of any size": (lambda n: n("Convolution").update(kernel=[10**12, 1]), "make other windows"),
    "pads of any size": (lambda n: n("Convolution").update(pads=[10**12, 0, 0, 0]), "make other windows"),
}


@pytest.mark.parametrize("name", _BAD_FIELDS)
def test_a_field_that_an_operation_cannot_have_is_refused(name, tmp_path):
    change, words = _BAD_FIELDS[name]
    path = tmp_path / "net.npz"
    hm.write(file_campaign._graph(True), path)
    with np.load(path) as stored:
        arrays = dict(stored)
    structure = json.loads(bytes(arrays["hardmax"]))

    def node(kind, part="operation"):
        found = next(node for node in structure["nodes"] if node["operation"]["is"] == kind)
        return found["operation"] if part == "operation" else found

    change(node)
    arrays["hardmax"] = np.frombuffer(json.dumps(structure).encode(), dtype=np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(hm.HardmaxError, match=rf"net\.npz: .*{words}"):
        hm.read(path)


def test_windows_that_the_kernel_does_not_make_are_refused(tmp_path):
    """Written as ONNX, the network would be that of its kernel; evaluated here, that of its windows."""
    path = tmp_path / "net.npz"
    hm.write(file_campaign._graph(False), path)
    with np.load(path) as stored:
        arrays = dict(stored)
    (windows,) = [name for name, array in arrays.items() if array.dtype == np.int64 and array.shape == (4, 4)]
    arrays[windows][0, 0] = 8
    np.savez(path, **arrays)
    with pytest.raises(hm.errors.ShapeError, match="make other windows than those stored"):
        hm.read(path)


def _changed_cells(path, change):
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez(path, **arrays)


def _set(arrays, name, at, value):
    arrays[name][at] = value


_BAD_INDICES = {
    "a wall that is the cell's own choice": (lambda a: _set(a, "walls", 0, int(a["labels"][0, 0])), "itself"),
    "a facet beyond the last": (lambda a: _set(a, "incidence", (0, 0), 1 << 63), "a facet that its cell does not have"),
    "incidence of one axis": (lambda a: a.update(incidence=a["incidence"][:, 0]), "'incidence' has shape"),
    "labels without axes": (lambda a: a.update(labels=np.uint8(1)), "'labels' has shape"),
    "vertices without axes": (lambda a: a.update(vertices=np.float64(1)), "'vertices' has shape"),
    "ranges that overflow": (lambda a: _set(a, "vertex_start", slice(1, 3), [2**63 - 1, -2]), "ranges do not fit"),
    "a range that goes back": (lambda a: _set(a, "facet_start", 1, 0), "ranges do not fit"),
    "a domain of any dimension": (
        lambda a: a.update({"domain.low": -np.ones(2000), "domain.high": np.ones(2000)}),
        "expected at most 1024",
    ),
    "incidence without words": (lambda a: a.update(incidence=a["incidence"][:, :0]), "incidence"),
    "an error below zero": (lambda a: _set(a, "error", 0, -1.0), "errors below 0"),
    "errors of another shape": (lambda a: a.update(error=a["error"][:-1]), "errors.* have shape"),
    "an endless vertex": (lambda a: _set(a, "vertices", (0, 0), np.inf), "NaN or infinite"),
    "a domain of text": (lambda a: a.update({"domain.low": np.array(["a"] * 3)}), "domain"),
    "a domain of another dimension": (lambda a: a.update({"domain.low": [-1.0], "domain.high": [1.0]}), "dimension"),
}


@pytest.mark.parametrize("name", _BAD_INDICES)
def test_an_index_that_leads_nowhere_is_found_when_the_cells_are_loaded(name, tmp_path):
    change, words = _BAD_INDICES[name]
    net = hm.Network([hm.Affine([[1, 1, 0], [0, 1, -1], [1, 0, 2]], [0.5, 0, -0.5]), hm.ReLU()], 3)
    hm.enumerate_cells(net, hm.Box([-1] * 3, [1] * 3)).save(tmp_path / "cells.npz")
    _changed_cells(tmp_path / "cells.npz", lambda arrays: None)
    assert hm.load_cells(tmp_path / "cells.npz").certificate.ok
    _changed_cells(tmp_path / "cells.npz", change)
    with pytest.raises(hm.errors.FileFormatError, match=rf"cells\.npz: .*{words}"):
        hm.load_cells(tmp_path / "cells.npz")


def test_no_message_is_longer_than_its_reader_has_patience(tmp_path):
    name = "a" * 200 + "\n" + "b" * 40
    for ending in (".onnx", ".npz", ".safetensors", ".csv", ".pt"):
        with pytest.raises(hm.HardmaxError) as caught:
            hm.read(tmp_path / (name + ending))
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    for reader in (hm.load_cells, read_function, lambda path: stored_inputs(str(path), "x")):
        for long in ("c" * 5000 + ".npz", "c" * 5000 + ".csv", "zero\0byte.npz", "zero\0byte.csv", "half\ud800.npz"):
            with pytest.raises(hm.HardmaxError) as caught:
                reader(tmp_path / long)
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 500

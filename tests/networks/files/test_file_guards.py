"""Checks of files that only a file made on purpose meets: it fits in every size and says something else."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import FileFormatError, WriteError
from hardmax.networks import operations as op
from hardmax.networks.files.numpy_files import npy_array
from hardmax.networks.graph import GraphBuilder


def test_a_layer_that_only_bears_a_known_name_is_not_written(tmp_path):
    """Its class may compute something else, and the file would be read as the class of that name."""
    twice = type("Affine", (hm.Affine,), {"__doc__": "Not the one that files mean."})
    plain = hm.Affine([[1.0, 2.0]])
    for kind in (hm.Affine, twice):
        net = hm.Network([kind(plain.weight, plain.bias), hm.ReLU()], 2)
        if kind is hm.Affine:
            hm.write(net, tmp_path / "net.npz")
        else:
            with pytest.raises(WriteError, match=r"files know no .*Affine"):
                hm.write(net, tmp_path / "twice.npz")


def _convolved(windows):
    builder = GraphBuilder((1, 1, 3, 3))
    kernel = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    weight = op.frozen(np.arange(4.0).reshape(1, 1, 4))
    node = op.Convolution(weight, None, windows, 1, (1, 1, 3, 3), (1, 1, 2, 2), **kernel)
    return builder, node


def test_windows_other_than_the_kernels_are_refused(tmp_path):
    """As many windows of as many entries, all inside the input, in another order; ONNX is written from the kernel."""
    right = np.array([[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]])
    for number, windows in enumerate((right, right[::-1].copy(), right[:, ::-1].copy(), np.minimum(right, 7))):
        builder, node = _convolved(windows)
        builder.add(node, 0)
        net = hm.Network.from_graph(builder.build())
        file = tmp_path / f"{number}.npz"
        if number == 0:
            hm.write(net, file)
            assert hm.read(file).n_choices == 0
            continue
        with pytest.raises(WriteError, match="make other windows"):
            hm.write(net, file)


def test_an_array_behind_a_header_longer_than_is_read_is_refused(tmp_path):
    """All sizes fit, and the numbers would be read from the middle of the header."""
    for spaces, is_fine in ((60, True), (1 << 16, False)):
        text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }" + b" " * spaces + b"\n"
        file = tmp_path / f"{spaces}.npy"
        data = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + np.array([1.0, 2.0]).tobytes()
        file.write_bytes(data)
        with file.open("rb") as source:
            if is_fine:
                assert npy_array(source, len(data), "here").tolist() == [1.0, 2.0]
            else:
                with pytest.raises(FileFormatError, match="header"):
                    npy_array(source, len(data), "here")

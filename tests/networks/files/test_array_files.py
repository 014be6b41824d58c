"""npz and safetensors keep a network to the last bit, and refuse what is damaged or has to be unpickled."""

import io
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.networks import operations as op
from hardmax.networks.files.opening import refuse_pickle
from networks.files.onnx_graphs import save, small_model

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs safetensors, which is not installed")

pytestmark = pytest.mark.extras

ENDINGS = ["npz", "safetensors"]


def _layered(temperature=0.0):
    rng = np.random.default_rng(0)
    heads = [hm.Head(rng.normal(size=(4, 2)), rng.normal(size=(4, 3)), rng.normal(size=(2, 3)), [0.5, 1.0])]
    return hm.Network(
        [
            hm.Residual(hm.Attention(heads), hm.ReLU(0.25)),
            hm.Attention(heads * 2, rng.normal(size=(4, 6))),
            hm.Affine(rng.normal(size=(6, 4))),
            hm.Maxout(2),
        ],
        input_dim=3,
        temperature=temperature,
    )


def _from_onnx(tmp_path):
    """A network without layers: convolution, pooling, masked attention, smooth and normalising nodes."""
    rng = np.random.default_rng(1)
    constants = {"w": rng.normal(size=(2, 1, 2, 2)).astype(np.float32), "k": np.eye(4, dtype=bool)}
    constants |= {
        "i": np.float32(-np.inf),
        "s": np.array([1, 2, 4]),
        "g": rng.normal(size=4).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 0, 0, 0]}),
        ("MaxPool", ["c"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 1]}),
        ("Reshape", ["p", "s"], ["r"], {}),
        ("Transpose", ["r"], ["t"], {"perm": [0, 2, 1]}),
        ("MatMul", ["t", "r"], ["a"], {}),
        ("Where", ["k", "i", "a"], ["m"], {}),
        ("Softmax", ["m"], ["h"], {}),
        ("MatMul", ["r", "h"], ["o"], {}),
        ("LayerNormalization", ["o", "g"], ["n"], {}),
        ("Gelu", ["n"], ["y"], {}),
    ]
    return hm.read(save(small_model(nodes, [1, 1, 4, 4], constants, opset=20), tmp_path))


@pytest.mark.parametrize("ending", ENDINGS)
def test_layers_and_temperature_come_back(ending, tmp_path):
    net = _layered(temperature=0.5)
    hm.write(net, tmp_path / f"net.{ending}")
    back = hm.read(tmp_path / f"net.{ending}")
    assert [type(layer) for layer in back.layers] == [type(layer) for layer in net.layers]
    assert back.temperature == 0.5 and back.changes == ()
    x = np.random.default_rng(2).normal(size=(9, 3))
    assert (back(x) == net(x)).all() and (back.labels(x) == net.labels(x)).all()
    hm.write(net, tmp_path / f"net.{ending}", temperature=2)
    assert hm.read(tmp_path / f"net.{ending}").temperature == 2.0


@pytest.mark.parametrize("ending", ENDINGS)
def test_graphs_changes_and_names_come_back(ending, tmp_path):
    net = hm.skeleton(_from_onnx(tmp_path), reference=np.arange(16).reshape(1, 4, 4))
    assert len(net.changes) == 3 and net.layers is None
    hm.write(net, tmp_path / f"net.{ending}")
    back = hm.read(tmp_path / f"net.{ending}")
    assert back.changes == net.changes
    assert [node.name for node in back.graph.nodes] == [node.name for node in net.graph.nodes]
    x = np.random.default_rng(2).normal(size=(9, 1, 4, 4))
    assert (back(x) == net(x)).all() and (back.labels(x) == net.labels(x)).all()
    (convolution,) = [n.operation for n in back.graph.nodes if isinstance(n.operation, op.Convolution)]
    assert convolution.pads == (1, 0, 0, 0)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=20)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4), st.floats(0, 1e300))
def test_every_finite_number_survives(ending, tmp_path_factory, weights, temperature):
    path = tmp_path_factory.mktemp("numbers") / f"net.{ending}"
    hm.write(hm.Network([hm.Affine([weights]), hm.ReLU(weights[0])], len(weights), temperature), path)
    affine, relu = hm.read(path).layers
    assert affine.weight.tobytes() == np.array([weights]).tobytes()
    assert relu.slope == weights[0] and hm.read(path).temperature == temperature


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _structure(net_file):
    return json.loads(bytes(np.load(net_file)["hardmax"]))


def _rewritten(tmp_path, change):
    """A valid file whose structure was altered by ``change``."""
    path = tmp_path / "net.npz"
    hm.write(_layered(), path)
    arrays = dict(np.load(path))
    structure = json.loads(bytes(arrays["hardmax"]))
    change(structure, arrays)
    arrays["hardmax"] = np.frombuffer(json.dumps(structure).encode(), dtype=np.uint8)
    path.write_bytes(_npz(**arrays))
    return path


BAD_STRUCTURES = {
    "a newer schema": (lambda s, a: s.update(schema=99), "FileFormatError", "schema 99"),
    "another format": (lambda s, a: s.update(format="other"), "FileFormatError", "other"),
    "no schema": (lambda s, a: s.pop("schema"), "FileFormatError", "damaged"),
    "an unknown layer": (lambda s, a: s["layers"][3].update({"is": "Dropout"}), "FileFormatError", "Dropout"),
    "an unknown field": (lambda s, a: s["layers"][3].update(colour=1), "FileFormatError", "damaged"),
    "a missing array": (lambda s, a: a.pop("a0"), "FileFormatError", "damaged"),
    "a NaN": (lambda s, a: a.update(a0=a["a0"] * np.nan), "WeightError", "nan"),
    "text for numbers": (lambda s, a: a.update(a0=a["a0"].astype(str)), "WeightError", "number"),
    "a wrong shape": (lambda s, a: a.update(a0=a["a0"][:1]), "ShapeError", "keys"),
    "a rank of one half": (lambda s, a: s["layers"][3].update(rank=0.5), "ParameterError", "rank"),
    "a negative temperature": (lambda s, a: s.update(temperature=-1), "ParameterError", "temperature"),
    "no layers": (lambda s, a: s.update(layers=[]), "EmptyError", "layer"),
    "a shape of text": (lambda s, a: s.update(input_shape=["three"]), "FileFormatError", "damaged"),
}


@pytest.mark.parametrize("name", BAD_STRUCTURES)
def test_damaged_structures_are_refused_by_name(name, tmp_path):
    change, kind, words = BAD_STRUCTURES[name]
    path = _rewritten(tmp_path, change)
    with pytest.raises(getattr(hm.errors, kind), match=words) as caught:
        hm.read(path)
    assert str(path) in str(caught.value)


BAD_GRAPHS = {
    "an unknown operation": lambda s: s["nodes"][1]["operation"].update({"is": "Fourier"}),
    "a value from the future": lambda s: s["nodes"][1].update(inputs=[7]),
    "no operands": lambda s: s["nodes"][1].update(inputs=[]),
    "a convolution of another shape": lambda s: s["nodes"][1]["operation"].update(input_shape=[1, 1, 2, 2]),
    "an unknown function": lambda s: s["nodes"][-2]["operation"].update(kind="bessel"),
    "a shape that does not fit": lambda s: s["nodes"][0]["operation"].update(shape=[2, 2]),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_damaged_graphs_are_refused(name, tmp_path):
    path = tmp_path / "net.npz"
    hm.write(_from_onnx(tmp_path), path)
    arrays = dict(np.load(path))
    structure = json.loads(bytes(arrays["hardmax"]))
    BAD_GRAPHS[name](structure)
    arrays["hardmax"] = np.frombuffer(json.dumps(structure).encode(), dtype=np.uint8)
    path.write_bytes(_npz(**arrays))
    with pytest.raises(hm.HardmaxError, match=r"net\.npz"):
        hm.read(path)


def test_windows_that_reach_outside_are_refused(tmp_path):
    path = tmp_path / "net.npz"
    hm.write(_from_onnx(tmp_path), path)
    arrays = dict(np.load(path))
    (windows,) = [name for name, array in arrays.items() if array.dtype == np.int64 and array.shape == (12, 4)]
    for outside in (-2, 16):
        arrays[windows][3, 2] = outside
        path.write_bytes(_npz(**arrays))
        with pytest.raises(hm.errors.ShapeError, match="windows reach outside"):
            hm.read(path)


@pytest.mark.parametrize("length", [0x280, 0x380, 0x480, 0x580])
def test_a_header_whose_length_looks_like_a_pickle_is_none(length, tmp_path):
    """A safetensors file begins with its header's length: 640 gives the bytes of a pickle's protocol 2."""
    data = length.to_bytes(8, "little") + b"{}".ljust(length)
    refuse_pickle(data, "net.safetensors")
    (tmp_path / "net.safetensors").write_bytes(data)
    with pytest.raises(hm.errors.FileFormatError, match="weights without a network"):
        hm.read(tmp_path / "net.safetensors")


class _Trap:
    """Something that would leave a trace if it were ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("ending", ["npz", "safetensors", "onnx", "pt", "bin"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_is_refused_whatever_it_is_called(ending, protocol, tmp_path):
    path = tmp_path / f"weights.{ending}"
    path.write_bytes(pickle.dumps({"w": _Trap(tmp_path / "trace")}, protocol=protocol))
    with pytest.raises(hm.errors.PickleError, match="unpickled"):
        hm.read(path)
    assert not (tmp_path / "trace").exists()


def test_arrays_of_objects_are_refused(tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(_npz(W0=np.array([_Trap(tmp_path / "trace")], dtype=object), b0=np.zeros(1)))
    with pytest.raises(hm.errors.PickleError, match="objects"):
        hm.read(path)
    assert not (tmp_path / "trace").exists()


def test_weights_of_others_are_refused_with_advice(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(safetensors_numpy.save({"w": np.ones(3)}))
    with pytest.raises(hm.errors.FileFormatError, match="from_torch"):
        hm.read(tmp_path / "a.safetensors")
    (tmp_path / "a.npz").write_bytes(_npz(weights=np.ones(3)))
    with pytest.raises(hm.errors.FileFormatError, match="widths, W0"):
        hm.read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "kind"),
    [
        ({"W0": np.ones((2, 3)), "b0": np.ones(3)}, "ShapeError"),
        ({"W0": np.ones((2, 3)), "b0": np.ones(2), "W1": np.ones((1, 3)), "b1": np.ones(1)}, "ShapeError"),
        ({"W0": np.ones((2, 3)), "b0": np.ones(2), "widths": np.array([3, 4])}, "ShapeError"),
        ({"W0": np.full((2, 3), np.inf), "b0": np.ones(2)}, "WeightError"),
        ({"W0": np.ones((2, 3))}, "FileFormatError"),
        ({"W1": np.ones((2, 3)), "b1": np.ones(2)}, "FileFormatError"),
        ({"W0": np.ones(3), "b0": np.ones(3)}, "ShapeError"),
        ({}, "FileFormatError"),
    ],
)
def test_bad_plain_layouts_are_refused(arrays, kind, tmp_path):
    path = tmp_path / "plain.npz"
    path.write_bytes(_npz(**arrays))
    with pytest.raises(getattr(hm.errors, kind), match=r"plain\.npz"):
        hm.read(path)


def test_a_plain_layout_without_widths_is_a_relu_network(tmp_path):
    path = tmp_path / "plain.npz"
    path.write_bytes(_npz(W0=np.array([[1.0], [-1.0]]), b0=np.zeros(2), W1=np.ones((1, 2)), b1=np.zeros(1)))
    assert hm.read(path)([[2.0], [-3.0]]).tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("ending", ENDINGS)
def test_truncated_files_are_refused_at_every_length(ending, tmp_path):
    path = tmp_path / f"net.{ending}"
    hm.write(_layered(), path)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 60).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(hm.HardmaxError, match=r"net\."):
            hm.read(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_flipped_bytes_give_a_network_or_a_named_error(ending, tmp_path):
    path = tmp_path / f"net.{ending}"
    hm.write(_layered(), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(7)
    outcomes = set()
    for _ in range(150):
        damaged = bytearray(whole)
        for position in rng.integers(0, len(whole), size=3):
            damaged[position] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(damaged))
        try:
            outcomes.add(type(hm.read(path)).__name__)
        except hm.HardmaxError as error:
            outcomes.add(type(error).__name__)
    assert "FileFormatError" in outcomes

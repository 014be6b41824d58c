"""The published models of ../shared/nets: what is read is what onnxruntime runs."""

import numpy as np
import pytest

import hardmax as hm
from networks.files.onnx_graphs import hardened, relative_error, run

onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")

pytestmark = pytest.mark.extras

MODELS = {
    "acasxu_1_1": ((1, 1, 5), (5,), 0.0, 300),
    "mnist_256x2": ((784, 1), (10,), 0.0, 512),
    "vit_ibp_3_3_8": ((3, 32, 32), (10,), 1.0, 3 * (3 * 17 + 17 * 96)),
}


def _inputs(name, shape, shared):
    if name.startswith("vit"):
        real = np.load(shared / "nets" / "vit_inputs.npz")["inputs"]
        return np.concatenate([real, real[:40] + np.float32(0.25)])  # 100 in all
    return np.random.default_rng(1).uniform(0.0, 1.0, size=(100, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_published_models_agree_with_onnxruntime_on_a_hundred_inputs(name, shared):
    path = shared / "nets" / f"{name}.onnx"
    net = hm.read(path)
    input_shape, output_shape, temperature, n_choices = MODELS[name]
    assert (net.input_shape, net.output_shape) == (input_shape, output_shape)
    assert (net.temperature, net.n_choices) == (temperature, n_choices)
    x = _inputs(name, input_shape, shared)
    assert len(x) == 100
    expected = run(path.read_bytes(), x)
    single, double = net(x), net(x.astype(np.float64))
    assert single.dtype == np.float32 and double.dtype == np.float64
    assert relative_error(single, expected) < 1e-5
    assert relative_error(double, expected) < 1e-5
    assert (single.argmax(axis=-1) == expected.argmax(axis=-1)).all()


def test_the_hard_vision_transformer_is_the_file_with_softmax_renamed_hardmax(shared):
    model = onnx.load(shared / "nets" / "vit_ibp_3_3_8.onnx")
    net = hm.read(shared / "nets" / "vit_ibp_3_3_8.onnx")
    data = np.load(shared / "nets" / "vit_inputs.npz")
    expected = run(hardened(model), data["inputs"])
    assert relative_error(net(data["inputs"], temperature=0), expected) < 1e-5
    assert relative_error(hm.skeleton(net)(data["inputs"]), expected) < 1e-5


def test_the_hard_vision_transformer_reads_as_temperature_zero(shared, tmp_path):
    model = onnx.load(shared / "nets" / "vit_ibp_3_3_8.onnx")
    path = tmp_path / "hard.onnx"
    path.write_bytes(hardened(model).SerializeToString())
    assert hm.read(path).temperature == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_skeleton_of_the_vision_transformer_runs_in_onnxruntime(shared, tmp_path, dtype):
    net = hm.skeleton(shared / "nets" / "vit_ibp_3_3_8.onnx")
    assert ["became Hardmax" in change for change in net.changes] == [True] * 3 + [False] * 7
    assert all("was folded" in change and "affine" in change for change in net.changes[3:])
    path = tmp_path / "skeleton.onnx"
    hm.write(net, path, dtype=dtype)
    x = np.load(shared / "nets" / "vit_inputs.npz")["inputs"][:7].astype(dtype)
    assert relative_error(run(path.read_bytes(), x, one_at_a_time=False), net(x)) < 1e-5


def test_plain_relu_networks_are_read_from_npz(shared):
    path = shared / "nets" / "g_2-16-16-1_zerobias.npz"
    net, arrays = hm.read(path), np.load(path)
    assert net.layers is not None and net.input_shape == (2,) and net.n_choices == 32
    x = np.random.default_rng(0).normal(size=(50, 2))
    hidden = x
    for i in range(2):
        hidden = np.maximum(hidden @ arrays[f"W{i}"].T + arrays[f"b{i}"], 0)
    assert relative_error(net(x), hidden @ arrays["W2"].T + arrays["b2"]) < 1e-14

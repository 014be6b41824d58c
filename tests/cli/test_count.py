"""``hardmax count``: the library's numbers, on every kind of domain."""

import numpy as np
import pytest

import hardmax as hm
from cli.commands import facts_of, inputs, is_one_line, run, soft_network
from hardmax.networks.library import builtin

DEMO = builtin("demo")


@pytest.mark.parametrize(
    ("options", "domain"),
    [
        (["--box", "-2", "2"], hm.Box([-2, -2], [2, 2])),
        (["--box", "-1,0", "2,0.5"], hm.Box([-1, 0], [2, 0.5])),
        (["--segment", "-1,-1", "2,0.5"], hm.Segment([-1, -1], [2, 0.5])),
        (["--plane", "0,0", "1,0", "0,1", "--margin", "0.5"], hm.Plane.through([0, 0], [1, 0], [0, 1], margin=0.5)),
        (["--space"], hm.Space(2)),
        ([], hm.Space(2)),
    ],
    ids=["box", "uneven box", "segment", "plane", "space", "default"],
)
def test_the_counts_are_the_library_s(options, domain, capsys):
    cells = hm.enumerate_cells(DEMO, domain)
    code, facts = facts_of(capsys, "count", "builtin:demo", *options)
    assert code == 0
    assert facts["is_complete"] is True and facts["exactness"] == "certified"
    assert (facts["n_cells"], facts["n_regions"], facts["n_maps"]) == (cells.n_cells, cells.n_regions, cells.n_maps)
    code, facts = facts_of(capsys, "count", "builtin:demo", "--cells-only", *options)
    assert (code, facts["n_cells"]) == (0, cells.n_cells)
    assert "n_regions" not in facts


def test_people_get_one_line(capsys):
    code, out, err = run(capsys, "count", "builtin:figure-2")
    assert (code, err) == (0, "")
    assert out == "builtin:figure-2: 34 cells, 34 regions, 34 affine maps on all of R^2 (certified)\n"


@pytest.mark.parametrize(("mode", "word"), [("exact", "exact"), ("float", "estimated")])
def test_the_exactness_asked_for_is_the_one_named(mode, word, capsys):
    code, facts = facts_of(capsys, "count", "builtin:figure-3", "--box", "-1", "1", "--exactness", mode)
    assert (code, facts["n_cells"], facts["exactness"]) == (0, 3, word)


def test_too_many_cells_stop_the_count_with_a_lower_bound_and_3(capsys):
    code, out, err = run(capsys, "count", "builtin:demo", "--box", "-2", "2", "--max-cells", "5")
    assert (code, err) == (3, "")
    assert "at least 5 cells" in out and "lower bound" in out
    code, facts = facts_of(capsys, "count", "builtin:demo", "--max-cells", "5")
    assert (code, facts["is_complete"], facts["n_regions"]) == (3, False, None)


def test_a_verified_count_names_its_checks(capsys):
    code, facts = facts_of(capsys, "count", "builtin:figure-5", "--box", "-3", "3", "--verify")
    assert code == 0
    assert {check["name"] for check in facts["checks"]} >= {"labels", "volume", "adjacency"}
    assert all(check["passed"] for check in facts["checks"])
    assert "verified: " in run(capsys, "count", "builtin:figure-5", "--box", "-3", "3", "--verify")[1]


def test_a_soft_model_is_counted_as_its_skeleton(capsys, tmp_path):
    hm.write(soft_network(), tmp_path / "soft.npz")
    code, out, _ = run(capsys, "count", tmp_path / "soft.npz")
    assert code == 0
    assert out.startswith("the skeleton of ") and "2 changes made it hard" in out
    _, facts = facts_of(capsys, "count", tmp_path / "soft.npz")
    assert facts["n_cells"] == hm.count_cells(hm.skeleton(soft_network()), hm.Space(2))
    assert len(facts["changes"]) == 2


@pytest.mark.parametrize("name", ["points.npz", "points.npz:other", "points.csv", "points.npy"])
def test_rows_of_a_file_are_ends_of_a_segment(name, capsys, tmp_path):
    points = inputs()
    np.savez(tmp_path / "points.npz", inputs=points, other=points, labels=np.zeros(12, dtype=int))
    np.save(tmp_path / "points.npy", points)
    text = "\n".join(",".join(map(repr, row)) for row in points.tolist())
    (tmp_path / "points.csv").write_text(f"first,second\n{text}\n")
    code, facts = facts_of(capsys, "count", "builtin:demo", "--inputs", tmp_path / name, "--segment", "3", "7")
    assert code == 0
    assert facts["domain"]["text"] == "the segment from input 3 to input 7"
    assert facts["n_cells"] == hm.count_cells(DEMO, hm.Segment(points[3], points[7]))


@pytest.mark.extras
def test_norms_need_a_reference_and_have_cells_with_one(capsys, tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    make = onnx.helper
    graph = make.make_graph(
        [
            make.make_node("LayerNormalization", ["x", "scale"], ["n"], axis=-1),
            make.make_node("Relu", ["n"], ["y"]),
        ],
        "norm",
        [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 2])],
        [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 2])],
        [onnx.numpy_helper.from_array(np.ones(2, dtype=np.float32), "scale")],
    )
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), tmp_path / "norm.onnx")
    np.savez(tmp_path / "points.npz", inputs=inputs())
    code, out, err = run(capsys, "count", tmp_path / "norm.onnx")
    assert (code, out) == (2, "") and is_one_line(err)
    assert "--reference" in err
    options = ["--inputs", tmp_path / "points.npz", "--reference", "1"]
    code, facts = facts_of(capsys, "count", tmp_path / "norm.onnx", *options)
    assert (code, facts["n_cells"]) == (0, 2)


@pytest.mark.extras
def test_a_plane_through_quadratic_scores_is_refused_and_a_segment_counted(shared, capsys):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    model, points = shared / "nets" / "vit_ibp_3_3_8.onnx", shared / "nets" / "vit_inputs.npz"
    code, out, err = run(capsys, "count", model, "--inputs", points, "--plane", "0", "1", "2")
    assert (code, out) == (2, "") and is_one_line(err)
    assert "quadratic" in err and "along --segment" in err and "hm." not in err
    code, facts = facts_of(capsys, "count", model, "--inputs", points, "--segment", "0", "1", "--cells-only")
    assert code == 0 and facts["n_cells"] > 1000

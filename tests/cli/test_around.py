"""``hardmax around``: the library's map and cells, and what is refused."""

import numpy as np

import hardmax as hm
from cli.commands import facts_of, is_one_line, run
from hardmax.networks.library import builtin


def test_the_map_and_the_cells_are_the_library_s(capsys):
    code, facts = facts_of(capsys, "around", "builtin:demo", "--at", "0.5,-0.25", "--max-cells", "5")
    here = hm.local_map(builtin("demo"), [0.5, -0.25])
    near = hm.cells_around(builtin("demo"), [0.5, -0.25], max_cells=5)
    assert code == 3 and facts["is_complete"] is False and facts["n_cells"] == 5
    assert facts["label"] == here.label.tolist() and facts["slope"] == here.slope.tolist()
    assert facts["radius"] == here.radius and facts["wall"] == str(here.wall)
    assert facts["labels"] == near.labels.tolist() and facts["distances_above"] == near.distances_above.tolist()


def test_people_get_how_far_the_map_holds_and_the_cells_nearby(capsys, tmp_path):
    np.savez(tmp_path / "x.npz", inputs=np.array([[0.5, -0.25], [1.0, 2.0]]))
    code, out, _ = run(capsys, "around", "builtin:demo", "--inputs", tmp_path / "x.npz", "--at", 1, "--radius", "0.01")
    assert code == 0 and "it holds up to" in out and "nearest first" in out and "certified" in out


def test_a_point_on_a_wall_is_said_to_be(capsys, tmp_path):
    hm.write(hm.Network([hm.Affine([[1.0, 0.0]]), hm.ReLU()], 2), tmp_path / "net.npz")
    code, out, _ = run(capsys, "around", tmp_path / "net.npz", "--at", "0,1")
    assert code == 0 and "the input lies on 1 wall:" in out and "layer 1 ReLU" in out


def test_bad_input_is_one_line(capsys):
    for options in (["--at", "1"], ["--at", "a,b"], ["--at", "0,0", "--max-cells", "0"], []):
        code, out, err = run(capsys, "around", "builtin:demo", *options)
        assert code == 2 and out == "" and is_one_line(err)


def test_a_distance_that_floats_enclose_loosely_is_shown_by_both_ends(capsys, tmp_path):
    net = hm.Network([hm.Affine([[1.0, 0.0], [1 + 2.0**-52, 0.0]], [0.0, -(2.0**-52)]), hm.Maxout(2)], 2)
    hm.write(net, tmp_path / "near.npz")
    near = hm.cells_around(net, [3.0, 0.0])
    assert near.distances[1] <= 2.0 <= near.distances_above[1]
    out = run(capsys, "around", tmp_path / "near.npz", "--at", "3,0")[1]
    ends = [f"{near.distances[1]:.6g}", f"{near.distances_above[1]:.6g}"]
    assert (" to ".join(ends) if ends[0] != ends[1] else ends[0]) in out

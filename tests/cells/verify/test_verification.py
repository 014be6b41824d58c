"""``hm.verify`` believes right complexes, and notices each kind of damage."""

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens, random_question
from cells.verify.damages import copied, random_complex
from hardmax.cells.complex import CellComplex
from hardmax.cells.polytopes import Polytopes
from hardmax.cells.verify.fixed_choices import exact_cells, exact_inputs, follow
from hardmax.cells.verify.regions import parted
from hardmax.cells.verify.verification import Verification, verify
from hardmax.errors import CertificateError, ParameterError
from hardmax.exact.rationals import rational_array
from hardmax.exactness import Exactness
from networks.builders import network_of
from oracles.network_cases import random_network


def _failed(cells: CellComplex, thorough: bool = False) -> list[str]:
    return [check.name for check in verify(cells, thorough=thorough).checks if not check.passed]


def _copy(cells: CellComplex, **changes) -> CellComplex:
    """The complex with its own arrays, some of them replaced."""
    pieces = cells.pieces
    parts = {
        name: None if (array := getattr(pieces, name)) is None else np.array(array)
        for name in ("vertex_start", "vertices", "facet_start", "walls", "error", "directions", "incidence")
    }
    parts |= {name: changes.pop(name) for name in list(changes) if name in parts}
    values = {
        "labels": np.array(cells.labels),
        "maps": np.array(cells.maps),
        "map_error": None if cells.map_error is None else np.array(cells.map_error),
        "is_complete": cells.is_complete,
        "exactness": cells.exactness,
    } | changes
    copy = CellComplex(
        cells.network, cells.domain, values["exactness"], values["labels"], values["maps"], values["map_error"],
        Polytopes(cells.dim, **parts), values["is_complete"],
    )  # fmt: skip
    if cells.is_complete:
        copy.__dict__["neighbours"] = np.array(cells.neighbours)
    return copy


def _without(cells: CellComplex, index: int) -> CellComplex:
    """The complex with one cell left out, its neighbours renumbered."""
    keep = np.arange(cells.n_cells) != index
    pieces = Polytopes.join([cells.pieces.take(k, k + 1) for k in np.flatnonzero(keep)])
    error = None if cells.map_error is None else cells.map_error[keep]
    rest = CellComplex(
        cells.network, cells.domain, cells.exactness, cells.labels[keep], cells.maps[keep], error, pieces
    )
    pairs = cells.neighbours[(cells.neighbours != index).all(axis=1)]
    rest.__dict__["neighbours"] = pairs - (pairs > index)
    return rest


def _plane_cells(mode: str = "certified", kind: str = "box") -> CellComplex:
    domain = hm.Box([-2, -2], [2, 2]) if kind == "box" else hm.Space(2)
    cells = hm.enumerate_cells(network_of(*random_network(1, 12)), domain, exactness=mode)
    assert cells.n_cells > 8 and cells.dim == 2
    return cells


def _line_cells(mode: str = "certified", domain=None) -> CellComplex:
    weight, bias = np.array([[1.0], [-2.0], [3.0]]), np.array([0.5, 0.25, -1.0])
    net = hm.Network([hm.Affine(weight, bias), hm.ReLU(), hm.Affine([[1.0, 1.0, -1.0]], [0.1]), hm.ReLU()], 1)
    return hm.enumerate_cells(net, domain or hm.Segment([-2.0], [2.0]), exactness=mode)


def _space_cells(mode: str = "certified", domain=None) -> CellComplex:
    rng = np.random.default_rng(7)
    layers = [hm.Affine(rng.integers(-3, 4, size=(4, 3)), rng.integers(-2, 3, size=4)), hm.ReLU()]
    layers += [hm.Affine(rng.integers(-3, 4, size=(2, 4)), rng.integers(-2, 3, size=2)), hm.ReLU()]
    net = hm.Network(layers, 3)
    return hm.enumerate_cells(net, domain or hm.Box([-2] * 3, [2] * 3), exactness=mode)


_COMPLEXES = {
    "plane": _plane_cells,
    "plane in rationals": lambda: _plane_cells("exact"),
    "all of the plane": lambda: _plane_cells(kind="space"),
    "all of the plane in rationals": lambda: _plane_cells("exact", "space"),
    "line": _line_cells,
    "line in rationals": lambda: _line_cells("exact"),
    "all of the line": lambda: _line_cells(domain=hm.Space(1)),
    "space": _space_cells,
    "space in rationals": lambda: _space_cells("exact"),
    "all of space": lambda: _space_cells(domain=hm.Space(3)),
    "all of space in rationals": lambda: _space_cells("exact", hm.Space(3)),
}


@pytest.fixture(params=_COMPLEXES, scope="module")
def cells(request) -> CellComplex:
    return _COMPLEXES[request.param]()


# --- right complexes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("thorough", [False, True])
def test_a_right_complex_passes_every_check(cells, thorough):
    result = verify(cells, thorough=thorough)
    assert result.ok and bool(result), str(result)
    result.raise_if_failed()
    wanted = ["layout", "labels", "interior points", "corners", "maps", "error bounds", "map numbers", "volume"]
    wanted += ["adjacency", "regions"]
    assert [check.name for check in result.checks] == wanted
    assert all(check.detail for check in result.checks)
    assert result.exactness == ("exact" if thorough else cells.exactness)


def test_random_degenerate_complexes_pass_in_floats_and_in_rationals():
    for seed in range(36):
        for kind in ("box", "space"):
            if random_network(seed, 8)[1] == 3 and kind == "space":
                continue  # the slow ones; _COMPLEXES has three dimensions
            question = random_question(seed, kind, 8)
            found = hm.enumerate_cells(question.net, question.domain)
            for thorough in (False, True):
                result = verify(found, thorough=thorough)
                assert result.ok, (question.name, str(result))


def test_a_complete_complex_carries_its_certificate():
    found = _plane_cells()
    assert found.certificate is found.certificate and found.certificate.ok
    assert isinstance(found.certificate, Verification) and "regions" in str(found.certificate)


def test_a_network_that_never_chooses_has_one_cell_and_a_certificate():
    for domain in (hm.Segment([0.0, 0.0], [1.0, 2.0]), hm.Box([0, 0], [1, 1]), hm.Space(2)):
        found = hm.enumerate_cells(hm.Network([hm.Affine([[1.0, 2.0]])], 2), domain)
        assert found.n_cells == 1
        assert found.certificate.ok and verify(found, thorough=True).ok, str(verify(found, thorough=True))


@pytest.mark.parametrize("mode", ["certified", "exact"])
def test_quadratic_scores_on_a_segment_pass_with_one_label_on_several_intervals(mode):
    repeated = 0
    for seed in (*range(8), 20, 35, 163):
        net, start, end = moving_tokens(seed)
        found = hm.enumerate_cells(net, hm.Segment(start, end), exactness=mode)
        for thorough in (False, True):
            result = verify(found, thorough=thorough)
            assert result.ok, (seed, str(result))
        repeated += len(np.unique(found.labels, axis=0)) < found.n_cells
        if found.n_cells > 1:
            assert "volume" in _failed(_without(found, 0))
            labels = np.array(found.labels)
            labels[0] = labels[1]
            assert "interior points" in _failed(_copy(found, labels=labels), thorough=True)
    assert repeated


def test_thin_cells_are_settled_in_rationals_and_pass():
    """Walls that part by 2**-60 at most: the cell between them holds no float but its own corners."""
    gap = 2.0**-60
    net = hm.Network([hm.Affine([[1.0, 0.0], [1.0, gap]], [-1.0, -1.0]), hm.ReLU()], 2)
    found = hm.enumerate_cells(net, hm.Box([0, 0], [2, 1]))
    assert found.n_cells == 3
    result = verify(found)
    assert result.ok, str(result)
    settled = next(check for check in result.checks if check.name == "interior points")
    assert "0 of them" not in settled.detail


@pytest.mark.parametrize("mode", ["certified", "exact"])
def test_intervals_thinner_than_floats_are_put_in_their_order(mode):
    """Five walls within an ulp of one third."""
    slopes = np.array([3.0, 3.0, 6.0, 9.0, 12.0])
    bias = np.array([-1.0, -1.0 + 2.0**-53, -2.0 - 2.0**-51, -3.0 + 2.0**-51, -4.0 - 2.0**-49])
    net = hm.Network([hm.Affine(slopes[:, None], bias), hm.ReLU()], 1)
    found = hm.enumerate_cells(net, hm.Segment([0.0], [1.0]), exactness=mode)
    assert found.n_cells == 6
    for thorough in (False, True):
        result = verify(found, thorough=thorough)
        assert result.ok, str(result)
    assert "volume" in _failed(_without(found, 2), thorough=True)


# --- damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thorough", [False, True])
def test_a_missing_cell_is_noticed(cells, thorough):
    for index in (0, cells.n_cells // 2, cells.n_cells - 1):
        assert "volume" in _failed(_without(cells, index), thorough)


@pytest.mark.parametrize("thorough", [False, True])
def test_a_moved_vertex_is_noticed(cells, thorough):
    pieces = cells.pieces
    for vertex in (0, len(pieces.vertices) // 2, len(pieces.vertices) - 1):
        vertices = np.array(pieces.vertices)
        vertices[vertex, 0] += 0.01
        assert _failed(_copy(cells, vertices=vertices), thorough), vertex


def test_a_vertex_moved_along_its_edge_keeps_areas_and_is_noticed_all_the_same():
    found = _plane_cells()
    inner = next(k for k in range(len(found.pieces.walls)) if found.pieces.walls[k] >= 0)
    cell = int(np.searchsorted(found.pieces.vertex_start, inner, side="right")) - 1
    first, last = found.pieces.vertex_start[cell], found.pieces.vertex_start[cell + 1]
    before, after = first + (inner - first - 1) % (last - first), first + (inner - first + 1) % (last - first)
    vertices = np.array(found.pieces.vertices)
    vertices[inner] += 0.01 * (vertices[after] - vertices[before])  # parallel to the chord: the area stays
    failed = _failed(_copy(found, vertices=vertices))
    assert "volume" not in failed and failed


@pytest.mark.parametrize("thorough", [False, True])
def test_a_changed_label_is_noticed(cells, thorough):
    labels = np.array(cells.labels)
    labels[1, 0] = 1 - min(labels[1, 0], 1)
    assert {"interior points", "labels"} & set(_failed(_copy(cells, labels=labels), thorough))


def test_exchanged_labels_are_noticed(cells):
    labels = np.array(cells.labels)
    labels[[0, 1]] = labels[[1, 0]]
    assert "interior points" in _failed(_copy(cells, labels=labels))


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("term", [0, 1])
def test_a_changed_map_is_noticed(cells, term, thorough):
    maps = np.array(cells.maps)
    maps[-1, term] += 1e-6 * (1 + np.abs(maps[-1]).max())
    assert _failed(_copy(cells, maps=maps), thorough)[:1] == ["maps"]


def test_a_map_that_is_right_at_one_point_only_is_noticed():
    found = _plane_cells()
    centre = found.interior_points[0]
    maps = np.array(found.maps)
    maps[0, 1] += 0.5
    maps[0, 0] -= 0.5 * centre[0]
    assert _failed(_copy(found, maps=maps))[:1] == ["maps"]


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda pairs, n: pairs[1:],
        lambda pairs, n: pairs[:, ::-1],
        lambda pairs, n: np.concatenate([pairs, pairs[:1]]),
        lambda pairs, n: np.concatenate([pairs, [[0, 0]]]),
        lambda pairs, n: np.concatenate([pairs, [[0, n]]]),
        lambda pairs, n: np.concatenate([pairs[1:], [_strangers(pairs, n)]]),
    ],
    ids=["missing", "reversed", "repeated", "with itself", "out of range", "of strangers"],
)
def test_a_wrong_pair_of_neighbours_is_noticed(cells, change, thorough):
    copy = _copy(cells)
    copy.__dict__["neighbours"] = change(cells.neighbours, cells.n_cells)
    failed = _failed(copy, thorough)
    assert failed and set(failed) <= {"adjacency", "facets", "Euler's relation"}


def _strangers(pairs, n):
    known = {tuple(pair) for pair in pairs.tolist()}
    return next((i, j) for i in range(n) for j in range(i + 1, n) if (i, j) not in known)


def test_a_wall_that_belongs_to_another_choice_is_noticed():
    found = _plane_cells()
    walls = np.array(found.pieces.walls)
    inner = np.flatnonzero(walls >= 0)
    other = next(k for k in inner if walls[k] != walls[inner[0]])
    walls[inner[0]] = walls[other]
    assert _failed(_copy(found, walls=walls), thorough=True)


def test_an_error_bound_that_is_too_small_is_noticed_in_rationals():
    net = hm.Network([hm.Affine([[3.0, 1.0], [1.0, 7.0]], [-1.0, -1.0]), hm.ReLU()], 2)
    found = hm.enumerate_cells(net, hm.Box([0, 0], [1, 1]))
    assert verify(found, thorough=True).ok
    corners = np.zeros(len(found.pieces.vertices))
    assert _failed(_copy(found, error=corners), thorough=True) == ["corners"]
    maps = _copy(found, maps=found.maps * (1 + 2.0**-52), map_error=np.zeros_like(found.map_error))
    assert _failed(maps, thorough=True) == ["maps"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("labels", lambda array: array[:, :-1]),
        ("labels", lambda array: array + np.uint8(200)),
        ("maps", lambda array: array[:, :-1]),
        ("map_error", lambda array: array[:-1]),
        ("vertices", lambda array: array[:-1]),
        ("vertex_start", lambda array: array[:-1]),
        ("vertex_start", lambda array: array[::-1]),
        ("facet_start", lambda array: array + 1),
        ("walls", lambda array: array + (1 << 40)),
        ("walls", lambda array: np.where(array >= 0, array | 1 << 20, array)),
        ("walls", lambda array: np.minimum(array, -9)),
    ],
)
def test_arrays_that_do_not_fit_together_fail_the_layout_and_nothing_else_is_tried(name, damage):
    found = _plane_cells()
    array = getattr(found if name in ("labels", "maps", "map_error") else found.pieces, name)
    assert _failed(_copy(found, **{name: damage(array)})) == ["layout"]


def test_a_float_complex_with_a_wrong_cell_fails():
    """Three lines through one point whose float images leave a sliver: float mode counts it, verify does not."""
    for seed in (4, 73, 88):
        question = random_question(seed, "box", 14)
        believed = hm.enumerate_cells(question.net, question.domain, exactness="float")
        proved = hm.enumerate_cells(question.net, question.domain)
        assert verify(proved).ok
        assert verify(believed).ok == (believed.n_cells == proved.n_cells)
        assert verify(believed).exactness == "estimated"


# --- partial complexes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("thorough", [False, True])
def test_an_incomplete_complex_is_verified_as_a_part(cells, thorough):
    mode = {"estimated": "float"}.get(cells.exactness.value, cells.exactness.value)
    part = hm.enumerate_cells(cells.network, cells.domain, exactness=mode, max_cells=3)
    result = verify(part, thorough=thorough)
    assert result.ok and not part.is_complete, str(result)
    assert result.checks[-1].name == "adjacency" and "incomplete" in result.checks[-1].detail
    claims_to_be_whole = _copy(part, is_complete=True)
    claims_to_be_whole.__dict__["neighbours"] = np.empty((0, 2), dtype=np.int64)
    assert not verify(claims_to_be_whole, thorough=thorough).ok


def test_a_cell_that_comes_twice_fails_even_in_a_part():
    found = _plane_cells()
    twice = Polytopes.join([found.pieces, found.pieces.take(0, 1)])
    labels = np.concatenate([found.labels, found.labels[:1]])
    maps, error = np.concatenate([found.maps, found.maps[:1]]), np.concatenate([found.map_error, found.map_error[:1]])
    more = CellComplex(found.network, found.domain, found.exactness, labels, maps, error, twice, is_complete=False)
    assert _failed(more) == ["labels"]


# --- the result -----------------------------------------------------------------------------------------


def test_a_failed_certificate_raises_by_name_when_asked():
    found = _plane_cells()
    labels = np.array(found.labels)
    labels[0] = labels[1]
    result = verify(_copy(found, labels=labels))
    assert not result and not result.ok
    with pytest.raises(CertificateError, match=r"checks failed; labels: \d+ cells carry only \d+ distinct labels"):
        result.raise_if_failed()


def test_only_complexes_are_verified():
    with pytest.raises(ParameterError, match="expected a CellComplex to verify, got int"):
        verify(3)


def test_verification_can_be_read_as_a_list():
    text = str(verify(_plane_cells()))
    assert text.splitlines()[0].startswith("ok   layout: ") and len(text.splitlines()) == 10


# --- the parts it is made of ----------------------------------------------------------------------------


def test_following_a_points_own_label_is_evaluation():
    for seed in range(40):
        question = random_question(seed, "box")
        graph, points = question.net.graph, np.random.default_rng(seed).integers(-6, 7, size=(9, question.dim)) / 2
        for numbers in (points, exact_inputs(graph, question.domain, points.tolist())):
            labels, wanted = question.net.labels(numbers), question.net(numbers)
            wanted = wanted if numbers is points else rational_array(wanted)
            *guards, (output, row_of) = follow(graph, numbers, labels)
            assert all((output[row_of[k], k] == wanted[k]).all() for k in range(len(points)))
            assert sum(rows.shape[2] for rows, _ in guards) == question.net.n_choices


def test_polynomials_of_a_label_are_the_oracles():
    for seed in range(30):
        question = random_question(seed, "plane" if random_network(seed, 12)[1] > 1 else "segment")
        truth = question.oracle()
        labels = np.array(list(truth.pieces), dtype=np.int64)
        cells = exact_cells(question.net.graph, question.domain, labels)
        for found, cell in zip(cells, truth.pieces.values(), strict=True):
            outputs = found.output[: question.dim + 1].reshape(question.dim + 1, -1)
            assert [tuple(map(str, row)) for row in outputs.T] == [tuple(map(str, row)) for row in cell.outputs]


def test_intervals_are_parted_where_they_certainly_differ():
    low, high = np.array([0.0, -4.0, 3.0, 9.0, 3.5]), np.array([1.0, 4.0, 5.0, 9.5, 3.75])
    zeros = np.zeros(5, dtype=np.int64)
    group = parted(zeros, low, high)
    assert len(set(group[[0, 1, 2, 4]].tolist())) == 1 and group[3] != group[0]  # the wide one joins three
    assert parted(np.array([0, 0, 1, 1, 1]), low, high).tolist() == [0, 0, 1, 2, 1]
    assert parted(zeros[:3], np.array([2.0, 0.0, 2.0]), np.array([2.0, 2.0, 3.0])).tolist() == [0, 0, 0]  # they touch


def test_exactness_of_the_verdict_follows_the_cells():
    found = _plane_cells()
    assert verify(found).exactness is Exactness.CERTIFIED
    assert verify(_copy(found, exactness=Exactness.ESTIMATED)).exactness is Exactness.ESTIMATED


def test_what_was_not_asked_for_before_is_kept_as_verified_and_only_where_all_is_well():
    for seed, layers in enumerate(("relu", "deep relu", "attention then relu", "two attentions")):
        asked, fresh = (random_complex(seed, 3, layers, "integers", "space") for _ in range(2))
        claims = {name: getattr(asked, name) for name in ("neighbours", "map_of", "region_of")}
        report = hm.verify(fresh)
        assert report.ok and "none were claimed" in str(report) and "none were claimed" not in str(hm.verify(asked))
        for name, claim in claims.items():
            assert np.array_equal(vars(fresh)[name], claim), name
        assert hm.verify(fresh, thorough=True).ok
        wrong = copied(asked, keeps_claims=False, vertices=asked.pieces.vertices + 1e-3)
        assert not hm.verify(wrong).ok and not claims.keys() & vars(wrong).keys()


def test_choices_that_are_cut_together_have_one_error_bound():
    """A head of small scores beside one of large ones: its walls have the large ones' bound, and that is no fault."""
    small = hm.Head([[-100.0], [-0.02]], [[-0.2], [0.002]], query=[[0.0, 0.002]])
    large = hm.Head(
        [[-200.0], [-20.0], [-1.0], [0.0]],
        [[-1e-3], [20.0], [1e-3], [0.2]],
        query=[[10.0, -0.2]],
        query_bias=[10.0],
        biases=[-0.1, -0.01, 0.2, 0.001],
    )
    net = hm.Network([hm.Attention([small, large]), hm.Affine([[100.0, 0.0]])], 2)
    report = hm.verify(hm.enumerate_cells(net, hm.Box([0.999, -101.0], [1.001, 99.0])))
    assert report.ok, report

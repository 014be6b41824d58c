"""The engine, its exact mode and an independent oracle give the same cells, regions and maps."""

import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import Question, label_set, moving_tokens, random_question, triple
from hardmax.cells import enumeration
from hardmax.cells.engines.plane import engine as plane
from hardmax.cells.engines.space import engine as space
from hardmax.cells.progress import Progress
from hardmax.cells.search import engine_for
from hardmax.errors import DomainError, IncompleteError, ParameterError, QuadraticScoresError
from oracles.cell_oracle import exact
from oracles.network_cases import random_network

BLOCKS, BLOCK_SIZE, MAX_CHOICES = 16, 25, 14  # 400 networks, each on two domains


def _questions(block: int) -> list[Question]:
    """Each network on its box, and on one more domain in turn: all of space, a plane slice, a segment."""
    found = []
    for seed in range(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE):
        dim = random_network(seed, MAX_CHOICES)[1]
        others = ["space", "plane", "segment"] if dim > 1 else ["space", "segment"]
        found += [random_question(seed, kind, MAX_CHOICES) for kind in ("box", others[seed % len(others)])]
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_certified_and_exact_agree_with_the_oracle_on_random_networks(block):
    for question in _questions(block):
        truth = question.oracle()
        for mode in ("certified", "exact"):
            cells = hm.enumerate_cells(question.net, question.domain, exactness=mode)
            assert label_set(cells) == truth.labels, (question.name, mode)
            assert triple(cells) == truth.triple, (question.name, mode)
            assert cells.is_complete and cells.exactness == mode
            _assert_regions_group_the_same_cells(cells, truth.region_of, (question.name, mode))


def _assert_regions_group_the_same_cells(cells, region_of, where):
    """Not only as many regions: the same cells together."""
    ours = {}
    for label, region in zip(cells.labels.tolist(), cells.region_of.tolist(), strict=True):
        ours.setdefault(region, set()).add(tuple(label))
    theirs = {}
    for label, leader in region_of.items():
        theirs.setdefault(leader, set()).add(label)
    assert sorted(map(sorted, ours.values())) == sorted(map(sorted, theirs.values())), where


@pytest.mark.parametrize("kind", ["box", "plane", "space"])
def test_maps_volumes_and_neighbours_are_the_oracles(kind):
    seeds = [seed for seed in range(40) if random_network(seed, 9)[1] == 2]
    for seed in seeds:
        question = random_question(seed, kind, 9)
        truth = question.oracle()
        cells = hm.enumerate_cells(question.net, question.domain)
        labels = [tuple(label) for label in cells.labels.tolist()]
        for label, slope, offset in zip(labels, cells.slopes, cells.offsets, strict=True):
            wanted = np.array([[float(x) for x in row] for row in truth.pieces[label].outputs])
            assert np.allclose(np.column_stack([offset, slope]), wanted, rtol=1e-12, atol=1e-12), question.name
        pairs = {frozenset((labels[i], labels[j])) for i, j in cells.neighbours.tolist()}
        assert pairs == truth.neighbours, question.name
        if truth.is_bounded:
            volumes = [float(truth.volumes[label]) for label in labels]
            assert np.allclose(cells.volumes, volumes, rtol=1e-9, atol=1e-12), question.name


def test_counting_agrees_with_enumerating_in_every_mode():
    for seed in range(60):
        question = random_question(seed, "box")
        number = hm.enumerate_cells(question.net, question.domain).n_cells
        for mode in ("certified", "exact"):
            count = hm.count_cells(question.net, question.domain, exactness=mode)
            assert count == number and count.is_complete and count.exactness == mode, question.name


def test_float_mode_is_marked_as_an_estimate():
    question = random_question(1, "box")
    cells = hm.enumerate_cells(question.net, question.domain, exactness="float")
    assert cells.exactness == "estimated"
    assert hm.count_cells(question.net, question.domain, exactness="float").exactness == "estimated"


def test_float_mode_is_right_where_no_wall_meets_another_by_chance():
    rng = np.random.default_rng(5)
    layers = [hm.Affine(rng.normal(size=(9, 2)), rng.normal(size=9)), hm.ReLU()]
    layers += [hm.Affine(rng.normal(size=(9, 9)), rng.normal(size=9)), hm.ReLU()]
    net = hm.Network(layers, 2)
    box = hm.Box([-1, -1], [1, 1])
    believed, proved = (hm.enumerate_cells(net, box, exactness=mode) for mode in ("float", "certified"))
    assert label_set(believed) == label_set(proved) and believed.n_cells > 40


@pytest.mark.parametrize("kind", ["box", "space"])
def test_two_workers_find_the_same_cells_in_the_same_order(kind, monkeypatch):
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 1 << 8)  # many small chunks, so that the threads interleave
    for seed in (2, 11, 33, 40, 77):
        question = random_question(seed, kind, 16)
        one, two = (hm.enumerate_cells(question.net, question.domain, workers=workers) for workers in (1, 2))
        assert np.array_equal(one.labels, two.labels), question.name
        assert np.array_equal(one.maps, two.maps)
        assert np.array_equal(one.pieces.vertices, two.pieces.vertices)
        assert np.array_equal(one.pieces.walls, two.pieces.walls)
        assert one.n_settled == two.n_settled
        assert hm.count_cells(question.net, question.domain, workers=2) == one.n_cells


def _wide(dim: int, width: int, seed: int) -> hm.Network:
    """Small integers in the plane: walls that meet in one point, or coincide, so that rationals settle some pieces."""
    rng, most = np.random.default_rng(seed), 3 if dim == 2 else 99
    layers = [hm.Affine(rng.integers(1 - most, most, (width, dim)), rng.integers(1 - most, most, width)), hm.ReLU()]
    return hm.Network([*layers, hm.Affine(rng.integers(-2, 3, (6, width)) / 3, rng.integers(-2, 3, 6)), hm.ReLU()], dim)


def _walls(pieces) -> list[list[int]]:
    return [sorted(pieces.walls[a:b].tolist()) for a, b in pairwise(pieces.facet_start)]


@pytest.mark.parametrize(("dim", "width", "size"), [(2, 48, 1.5), (3, 34, 0.6)])
def test_chunks_that_threads_share_keep_the_order_of_cells(dim, width, size, monkeypatch):
    monkeypatch.setattr(enumeration, "_WORTH_A_THREAD", 0.0)  # handed over whenever somebody has nothing to do
    for seed in range(2):
        net, box = _wide(dim, width, seed), hm.Box([-size] * dim, [0.75 * size] * dim)
        alone = hm.enumerate_cells(net, box)
        for workers in (2, 5):
            shared = hm.enumerate_cells(net, box, workers=workers)
            assert np.array_equal(alone.labels, shared.labels), (seed, workers)
            assert _walls(alone.pieces) == _walls(shared.pieces), (seed, workers)
            np.testing.assert_allclose(shared.maps, alone.maps, rtol=1e-12, atol=1e-12)
            assert hm.count_cells(net, box, workers=workers) == alone.n_cells > 100
        assert alone.n_settled or dim == 3


class _Greedy(enumeration._Threads):
    """One thread that takes from the end of whatever it is about to cut, as if it were another."""

    def show(self, chunk):
        waiting = super().show(chunk)
        self._stack += filter(None, [self._taken_from_another() for _ in range(len(chunk) % 4)])
        return waiting


@pytest.mark.parametrize("kind", ["box", "space"])
def test_pieces_that_others_take_are_cut_once_and_stand_behind(kind, monkeypatch):
    monkeypatch.setattr(enumeration, "_FEWEST_SHARED", 1)
    monkeypatch.setattr(enumeration, "_WORTH_A_THREAD", 0.0)
    monkeypatch.setattr(enumeration, "_Threads", _Greedy)
    for seed in range(3):
        net = _wide(2, 48, seed)
        domain = hm.Box([-1.5, -1.5], [1.0, 1.0]) if kind == "box" else hm.Space(2)
        alone = hm.enumerate_cells(net, domain)
        run = enumeration.Enumeration(net.graph, domain, engine_for(domain, True), True)
        batches = list(run.cells(2))
        assert any(number >= 1 << 40 for batch in batches for number in batch.path)  # some were taken
        batches.sort(key=lambda batch: batch.path)
        assert np.array_equal(np.concatenate([batch.labels for batch in batches]), alone.labels)
        found = list(run.count(2))
        for parts in ([(len(batch), batch.share) for batch in batches], found):
            numbers, shares = zip(*parts, strict=True)
            assert sum(numbers) == alone.n_cells and sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("in_helper", [False, True])
def test_an_error_in_a_thread_is_raised_to_the_caller_and_ends_the_others(in_helper, monkeypatch):
    caller, plain, calls = threading.get_ident(), enumeration.Enumeration.step_count, []

    def step(self, chunk):
        calls.append(threading.get_ident())
        if calls.count(caller) > 1 and (calls[-1] != caller) == in_helper:
            raise MemoryError("no room")
        return plain(self, chunk)

    monkeypatch.setattr(enumeration.Enumeration, "step_count", step)
    monkeypatch.setattr(enumeration, "_WORTH_A_THREAD", 0.0)
    with pytest.raises(MemoryError, match="no room"):
        hm.count_cells(_wide(2, 48, 0), hm.Box([-1, -1], [1, 1]), workers=3)
    n_calls = len(calls)
    time.sleep(0.05)
    assert len(calls) == n_calls  # nobody works on


def test_a_system_without_threads_leaves_the_work_to_the_caller(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    net, box = _wide(2, 48, 0), hm.Box([-1, -1], [1, 1])
    alone = hm.count_cells(net, box)
    monkeypatch.setattr(enumeration, "start_new_thread", refuse)
    assert hm.count_cells(net, box, workers=4) == alone


def test_chunks_do_not_change_the_answer(monkeypatch):
    questions = [random_question(seed, "box", 16) for seed in range(12)]
    whole = [hm.enumerate_cells(q.net, q.domain) for q in questions]
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 64)
    monkeypatch.setattr(enumeration, "_MOST_CHILDREN", 3)
    for question, cells in zip(questions, whole, strict=True):
        small = hm.enumerate_cells(question.net, question.domain)
        assert label_set(small) == label_set(cells), question.name
        assert triple(small) == triple(cells), question.name
        assert hm.count_cells(question.net, question.domain) == cells.n_cells


# --- where a point is -------------------------------------------------------------------------------


def test_points_are_located_in_the_cell_whose_label_they_have():
    rng = np.random.default_rng(3)
    for seed in range(30):
        question = random_question(seed, "box")
        cells = hm.enumerate_cells(question.net, question.domain)
        points = rng.integers(-64, 65, size=(40, cells.dim)) / 16
        found = cells.locate(points)
        low, high = question.domain.low, question.domain.high
        inside = ((points >= low) & (points <= high)).all(axis=1)
        assert (found[~inside] == -1).all() and (found[inside] >= 0).all(), question.name
        truth = question.oracle()
        for point, index in zip(points[inside], found[inside], strict=True):
            homogeneous = (1, *(exact(x) for x in point))
            cell = truth.pieces[tuple(cells.labels[index].tolist())]
            values = [sum(a * x for a, x in zip(row, homogeneous, strict=True)) for row in cell.rows]
            assert min(values, default=0) >= 0, question.name  # inside the closed cell


def test_points_of_a_quadratic_segment_are_located_by_interval_and_parts_know_what_they_lack():
    net, start, end = moving_tokens(20)
    cells = hm.enumerate_cells(net, hm.Segment(start, end))
    assert cells.locate(cells.interior_points).tolist() == list(range(cells.n_cells))
    assert cells.locate([[-0.5], [1.5]]).tolist() == [-1, -1]
    part = hm.enumerate_cells(net, hm.Segment(start, end), max_cells=2)
    assert sorted(part.locate(cells.interior_points).tolist()) == [-1] * (cells.n_cells - 2) + [0, 1]


def test_irrational_ends_are_no_rational_cell():
    net, start, end = moving_tokens(20)
    cells = hm.enumerate_cells(net, hm.Segment(start, end))
    with pytest.raises(QuadraticScoresError, match="cell 0 ends where a quadratic score ties"):
        cells.exact_cell(0)
    straight = hm.enumerate_cells(hm.Network([hm.Affine([[3.0]], [-1.0]), hm.ReLU()], 1), hm.Box([0], [1]))
    assert [[str(x) for (x,) in straight.exact_cell(k).vertices] for k in (0, 1)] == [["0", "1/3"], ["1/3", "1"]]


# --- stopping early -----------------------------------------------------------------------------------


def test_max_cells_stops_early_and_says_so():
    question = random_question(33, "box", 16)
    whole = hm.enumerate_cells(question.net, question.domain)
    assert whole.n_cells > 12
    part = hm.enumerate_cells(question.net, question.domain, max_cells=10)
    assert part.n_cells == 10 and not part.is_complete and "incomplete" in repr(part)
    assert label_set(part) < label_set(whole)
    assert part.n_maps <= 10
    for what in ("n_regions", "neighbours", "region_of"):
        with pytest.raises(IncompleteError, match="stopped at 10 cells; raise max_cells"):
            getattr(part, what)


def test_a_limit_that_is_exactly_reached_leaves_the_result_complete():
    question = random_question(33, "box", 16)
    number = hm.enumerate_cells(question.net, question.domain).n_cells
    assert hm.enumerate_cells(question.net, question.domain, max_cells=number).is_complete
    assert not hm.enumerate_cells(question.net, question.domain, max_cells=number - 1).is_complete
    assert hm.enumerate_cells(question.net, question.domain, exactness="exact", max_cells=number).is_complete


def _interrupted(method):
    """The same search, interrupted after its second result."""

    def run(self, workers=1):
        for count, result in enumerate(method(self, workers)):
            if count == 2:
                raise KeyboardInterrupt
            yield result

    return run


def test_an_interrupt_returns_what_was_found_marked_incomplete(monkeypatch):
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 64)
    question = random_question(33, "box", 16)
    whole = hm.enumerate_cells(question.net, question.domain)
    for name in ("cells", "count"):
        method = getattr(enumeration.Enumeration, name)
        monkeypatch.setattr(enumeration.Enumeration, name, _interrupted(method))
    part = hm.enumerate_cells(question.net, question.domain)
    assert not part.is_complete and 0 < part.n_cells < whole.n_cells and label_set(part) < label_set(whole)
    with pytest.raises(IncompleteError):
        part.n_regions  # noqa: B018
    count = hm.count_cells(question.net, question.domain)
    assert not count.is_complete and 0 < count < whole.n_cells


def test_an_interrupt_before_the_first_cell_gives_an_empty_incomplete_result(monkeypatch):
    def nothing(self, workers=1):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(enumeration.Enumeration, "cells", nothing)
    question = random_question(33, "box", 16)
    part = hm.enumerate_cells(question.net, question.domain)
    assert part.n_cells == 0 and not part.is_complete and part.labels.shape == (0, question.net.n_choices)
    assert part.volumes.shape == (0,) and part.n_maps == 0
    assert part.slopes.shape == (0, 1, 3) and part.offsets.shape == (0, 1) and part.interior_points.shape == (0, 3)
    assert part.locate(np.zeros((2, 3))).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exactness": "rational"}, "'certified', 'exact', 'float', got 'rational'"),
        ({"max_cells": 0}, "at least 1, got 0"),
        ({"workers": 0}, "at least 1, got 0"),
        ({"workers": 1.5}, "at least 1, got 1.5"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    question = random_question(33, "box")
    with pytest.raises(ParameterError, match=message):
        hm.enumerate_cells(question.net, question.domain, **arguments)


# --- what an engine cannot hold, and limits that bound the time ------------------------------------------


@pytest.mark.parametrize("dim", [13, 16, 64, 3072])
@pytest.mark.parametrize("mode", ["certified", "exact", "float"])
def test_dimensions_whose_corners_cannot_be_kept_are_refused_at_once(dim, mode, monkeypatch):
    monkeypatch.setattr(enumeration, "slice_program", lambda *_: pytest.fail("the search was begun"))
    net = hm.Network([hm.Affine(np.eye(1, dim)), hm.ReLU()], dim)
    for domain in (hm.Box([-1] * dim, [1] * dim), hm.Space(dim)):
        for search in (hm.enumerate_cells, hm.count_cells):
            with pytest.raises(DomainError, match=r"at most 12 dimensions\. Cut the network along an hm\.Plane"):
                search(net, domain, exactness=mode)


def test_twelve_dimensions_are_still_cut():
    net = hm.Network([hm.Affine(np.eye(1, 12)), hm.ReLU()], 12)
    assert hm.count_cells(net, hm.Space(12)) == 2


def test_a_cell_with_too_many_corners_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(space, "_MOST_BYTES", 1 << 17)
    normals = np.random.default_rng(0).normal(size=(60, 3))
    ball = hm.Affine(normals / np.linalg.norm(normals, axis=1, keepdims=True), np.ones(60))  # one cell is nearly a ball
    net = hm.Network([ball, hm.ReLU()], 3)
    with pytest.raises(DomainError, match=r"in dimension 3 has more than \d+ corners, and cutting it would need"):
        hm.count_cells(net, hm.Box([-2] * 3, [2] * 3))


class _CutsCounted:
    """Counts the pieces that an engine makes, by cutting or settling."""

    def __init__(self, monkeypatch, engine):
        self.pieces = 0
        cut, settle = engine.cut, engine.settle

        def counted_cut(own, *arguments):
            found = cut(own, *arguments)
            self.pieces += len(found.pieces)
            return found

        def counted_settle(own, *arguments):
            labels, pieces = settle(own, *arguments)
            self.pieces += len(pieces)
            return labels, pieces

        monkeypatch.setattr(engine, "cut", counted_cut)
        monkeypatch.setattr(engine, "settle", counted_settle)


@pytest.mark.parametrize(
    ("dim", "domain", "mode"),
    [
        (2, "box", "certified"),
        (2, "box", "exact"),
        (2, "space", "certified"),
        (2, "space", "exact"),
        (6, "box", "exact"),
        (9, "space", "float"),
    ],
)
def test_a_limit_bounds_the_work_and_not_only_the_result(dim, domain, mode, monkeypatch):
    """Thousands to billions of cells, of which five are asked for: as many pieces are cut as lead to them."""
    rng = np.random.default_rng(dim)
    layers = [hm.Affine(rng.integers(-8, 9, size=(24, dim)), rng.integers(-8, 9, size=24)), hm.ReLU()]
    layers += [hm.Affine(rng.integers(-2, 3, size=(24, 24)), rng.integers(-8, 9, size=24)), hm.ReLU()]
    net = hm.Network(layers, dim)
    place = hm.Box([-1] * dim, [1] * dim) if domain == "box" else hm.Space(dim)
    counted = _CutsCounted(monkeypatch, plane.PlaneEngine if (dim, domain) == (2, "box") else space.SpaceEngine)
    part = hm.enumerate_cells(net, place, max_cells=5, exactness=mode)
    assert part.n_cells == 5 and not part.is_complete and part.certificate.ok is not False
    assert counted.pieces < 48 * 5 + 60  # a cell lies under 48 choices


def test_a_limit_changes_which_cells_come_first_but_not_what_they_are(monkeypatch):
    for seed in (2, 11, 33, 40):
        for kind in ("box", "space"):
            question = random_question(seed, kind, 16)
            whole = hm.enumerate_cells(question.net, question.domain)
            for mode in ("certified", "exact"):
                for limit in (1, 3, whole.n_cells, whole.n_cells + 1):
                    part = hm.enumerate_cells(question.net, question.domain, max_cells=limit, exactness=mode)
                    assert part.n_cells == min(limit, whole.n_cells)
                    assert label_set(part) <= label_set(whole), question.name
                    assert part.is_complete == (limit >= whole.n_cells)


@pytest.mark.parametrize("mode", ["certified", "exact"])
@pytest.mark.parametrize("place", [hm.Box([-1] * 3, [1] * 3), hm.Space(3), hm.Box([-1] * 2, [1] * 2)], ids=str)
def test_progress_tells_which_share_of_the_search_is_done(place, mode, monkeypatch):
    """Pieces that come together count alike: the shares add up to one, whatever is cut in parts for lack of room."""
    rng = np.random.default_rng(5)
    layers = [hm.Affine(rng.normal(size=(7, place.dim)), rng.normal(size=7)), hm.ReLU()]
    layers += [hm.Affine(rng.normal(size=(7, 7))), hm.ReLU()]
    monkeypatch.setattr(enumeration, "_MOST_CHILDREN", 8)
    told = []
    monkeypatch.setattr("hardmax.cells.progress.Progress.advance", lambda _, cells, share: told.append((cells, share)))
    net = hm.Network(layers, place.dim)
    for search in (hm.count_cells, hm.enumerate_cells):
        told.clear()
        found = search(net, place, exactness=mode)
        assert sum(cells for cells, _ in told) == (found if search is hm.count_cells else found.n_cells)
        assert sum(share for _, share in told) == pytest.approx(1.0)
        assert len(told) > 1 and all(share > 0 for _, share in told)


def test_a_progress_line_guesses_the_number_of_cells_in_any_dimension():
    said = []
    line = Progress(True)
    line._bar = SimpleNamespace(update=lambda _, description, completed: said.append((description, completed)))
    line.advance(1000, 0.25)
    line.advance(3000, 0.25)
    assert said == [("1,000 cells, 25.0% of the search, about 4,000 in all", 0.25),
                    ("4,000 cells, 50.0% of the search, about 8,000 in all", 0.5)]  # fmt: skip

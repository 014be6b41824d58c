"""Complexes survive a trip to disk; damaged, foreign and half-written files are refused by name."""

import errno
import json
import os
import zipfile

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import label_set, moving_tokens, random_question, triple
from hardmax.cells import enumeration, storage, streaming
from hardmax.cells.complex import CellComplex
from hardmax.cells.streaming import StreamedCells
from hardmax.errors import FileFormatError, IncompleteError, ParameterError, PickleError, WriteError

_PIECES = ("vertex_start", "vertices", "facet_start", "walls", "error", "directions", "incidence")


def _assert_same(one: CellComplex, two: CellComplex) -> None:
    assert one.exactness is two.exactness and one.is_complete == two.is_complete and one.dim == two.dim
    assert one.n_settled == two.n_settled
    for name in ("labels", "maps", "map_error"):
        _assert_equal_arrays(getattr(one, name), getattr(two, name), name)
    for name in _PIECES:
        _assert_equal_arrays(getattr(one.pieces, name), getattr(two.pieces, name), name)


def _assert_equal_arrays(one, two, name):
    assert (one is None) == (two is None), name
    if one is not None:
        assert one.dtype == two.dtype and np.array_equal(one, two), name


def _cells(kind: str = "box", seed: int = 33, **options) -> CellComplex:
    question = random_question(seed, kind)
    return hm.enumerate_cells(question.net, question.domain, **options)


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["box", "space", "plane", "segment"])
@pytest.mark.parametrize("mode", ["certified", "exact", "float"])
def test_a_saved_complex_is_loaded_as_it_was(kind, mode, tmp_path):
    for seed in (1, 3, 33):
        cells = _cells(kind, seed, exactness=mode)
        file = tmp_path / "cells.npz"
        cells.save(file)
        loaded = hm.load_cells(file)
        _assert_same(cells, loaded)
        assert type(loaded.domain) is type(cells.domain)
        assert triple(loaded) == triple(cells)
        points = cells.interior_points
        assert np.array_equal(loaded.locate(points), cells.locate(points))
        inputs = np.ones(cells.network.input_shape)
        assert np.array_equal(loaded.network(inputs), cells.network(inputs))
        if mode != "float":
            assert loaded.certificate.ok


def test_a_network_of_operations_and_a_quadratic_segment_are_stored_too(tmp_path):
    net, start, end = moving_tokens(20)
    cells = hm.enumerate_cells(net, hm.Segment(start, end))
    cells.save(tmp_path / "tokens.npz")
    loaded = hm.load_cells(tmp_path / "tokens.npz")
    _assert_same(cells, loaded)
    assert np.array_equal(loaded.domain.start, start) and loaded.certificate.ok


def test_incomplete_and_empty_results_stay_so(tmp_path, monkeypatch):
    part = _cells(max_cells=4)
    part.save(tmp_path / "part.npz")
    assert not hm.load_cells(tmp_path / "part.npz").is_complete

    def nothing(self, workers=1):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(enumeration.Enumeration, "cells", nothing)
    for kind in ("box", "space", "segment"):
        _cells(kind).save(tmp_path / "empty.npz")
        empty = hm.load_cells(tmp_path / "empty.npz")
        assert empty.n_cells == 0 and not empty.is_complete and empty.certificate.ok


def test_a_file_says_what_wrote_it_and_for_which_network(tmp_path):
    cells = _cells()
    cells.save(tmp_path / "cells.npz")
    with np.load(tmp_path / "cells.npz", allow_pickle=False) as stored:
        header = json.loads(stored["hardmax"].tobytes())
    assert header["format"] == "hardmax.cells" and header["schema"] == 1
    assert header["package"] == hm.__version__ and header["exactness"] == "certified"
    assert header["input_hash"] == storage.network_hash(cells.network) and len(header["input_hash"]) == 64


def test_the_hash_of_a_network_changes_with_any_weight_and_with_nothing_else(tmp_path):
    net = random_question(5, "box").net
    hm.write(net, tmp_path / "net.npz")
    assert storage.network_hash(hm.read(tmp_path / "net.npz")) == storage.network_hash(net)
    layer = hm.Affine([[1.0, 0.0]])
    same, other = hm.Affine(np.array([[1.0, 0.0]])), hm.Affine([[1.0, 2.0**-1074]])
    one, two, three = (storage.network_hash(hm.Network([x, hm.ReLU()], 2)) for x in (layer, same, other))
    assert one == two != three
    assert storage.network_hash(hm.Network([layer, hm.ReLU(slope=0.5)], 2)) != one


def test_saving_replaces_a_file_whole(tmp_path):
    file = tmp_path / "cells.npz"
    _cells(seed=1).save(file)
    cells = _cells(seed=33)
    cells.save(str(file))
    _assert_same(cells, hm.load_cells(str(file)))
    assert os.listdir(tmp_path) == ["cells.npz"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "cells.npz"
    old = _cells(seed=1)
    old.save(file)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = r"cells\.npz: cannot be written \(No space left on device\); nothing was changed"
    with pytest.raises(WriteError, match=message):
        _cells(seed=33).save(file)
    monkeypatch.undo()
    _assert_same(old, hm.load_cells(file))
    assert os.listdir(tmp_path) == ["cells.npz"]


def test_places_that_cannot_be_written_are_refused(tmp_path):
    cells = _cells()
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(WriteError, match="expected the name of a file, got a folder"):
        cells.save(tmp_path / "folder.npz")
    with pytest.raises(WriteError, match="cannot be written"):
        cells.save(tmp_path / "absent" / "cells.npz")
    with pytest.raises(FileFormatError, match=r"expected a file ending in \.npz, got '\.pt'"):
        cells.save(tmp_path / "cells.pt")
    with pytest.raises(ParameterError, match=r"expected the path of an \.npz file, got a int"):
        cells.save(3)
    with pytest.raises(ParameterError, match="expected a CellComplex to save, got Network"):
        storage.save_cells(cells.network, tmp_path / "cells.npz")
    assert os.listdir(tmp_path) == ["folder.npz"]


# --- damaged files --------------------------------------------------------------------------------------


def _rewritten(file, change) -> None:
    """The file with its description and arrays changed."""
    with np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = json.loads(arrays.pop("hardmax").tobytes())
    change(header, arrays)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in {"hardmax": text, **arrays}.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array)


_DAMAGE = {
    "another schema": (lambda h, a: h.update(schema=2), "expected schema 1 of hardmax.cells, got schema 2"),
    "another format": (lambda h, a: h.update(format="hardmax.rays"), "expected hardmax.cells, got hardmax.rays"),
    "a network": (lambda h, a: h.update(format="hardmax.network"), "hm.read reads networks"),
    "no status": (lambda h, a: h.pop("is_complete"), "damaged.*is_complete"),
    "an unknown exactness": (lambda h, a: h.update(exactness="sure"), "'sure' is not a valid Exactness"),
    "an unknown domain": (lambda h, a: h.update(domain="Torus"), "damaged.*Torus"),
    "another network": (lambda h, a: h.update(input_hash="0" * 64), "its hash differs"),
    "no network": (lambda h, a: a.pop("network"), "damaged.*network"),
    "a broken network": (lambda h, a: a.update(network=a["network"][:100]), "network: expected an .npz file"),
    "no domain": (lambda h, a: a.pop("domain.low"), "damaged.*domain.low"),
    "an empty domain": (lambda h, a: a.update({"domain.low": a["domain.high"]}), "axis 0 is empty"),
    "no walls": (lambda h, a: a.pop("walls"), "expected an array 'walls', found none"),
    "labels as floats": (lambda h, a: a.update(labels=a["labels"] * 1.0), "'labels' holds float64"),
    "NaN": (lambda h, a: a.update(maps=a["maps"] * np.nan), "'maps' holds NaN or infinite numbers"),
    "a missing vertex": (lambda h, a: a.update(vertices=a["vertices"][1:]), "vertex ranges do not fit.*damaged"),
    "a label too many": (lambda h, a: a.update(labels=a["labels"][1:]), "damaged"),
    "an impossible winner": (lambda h, a: a.update(labels=a["labels"] | 0x80), "a winner that does not exist"),
}


@pytest.mark.parametrize("kind", _DAMAGE)
def test_a_damaged_file_is_refused_by_name(kind, tmp_path):
    file = tmp_path / "cells.npz"
    _cells().save(file)
    change, message = _DAMAGE[kind]
    _rewritten(file, lambda header, arrays: None)
    assert hm.load_cells(file).n_cells > 3  # rewriting alone does no harm
    _rewritten(file, change)
    with pytest.raises(FileFormatError, match=message) as caught:
        hm.load_cells(file)
    assert "cells.npz" in str(caught.value)


@pytest.mark.parametrize("row", [0, -1])
def test_a_vertex_on_a_facet_that_its_cell_does_not_have_is_refused(row, tmp_path):
    net = hm.Network([hm.Affine([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]], [0.1, 0.2]), hm.ReLU()], input_dim=3)
    file = tmp_path / "cells.npz"
    hm.enumerate_cells(net, hm.Box(-np.ones(3), np.ones(3))).save(file)

    def one_more(header, arrays):
        arrays["incidence"][row, -1] |= np.uint64(1) << np.uint64(63)

    _rewritten(file, one_more)
    with pytest.raises(FileFormatError, match="a vertex is said to lie on a facet that its cell does not have"):
        hm.load_cells(file)


def test_no_truncated_file_is_taken_for_a_complex(tmp_path):
    _cells().save(tmp_path / "cells.npz")
    data = (tmp_path / "cells.npz").read_bytes()
    for length in (0, 1, 30, len(data) // 2, len(data) - 1):
        (tmp_path / "short.npz").write_bytes(data[:length])
        with pytest.raises(FileFormatError, match=r"short\.npz: expected "):
            hm.load_cells(tmp_path / "short.npz")


def test_flipped_bytes_are_refused_or_harmless(tmp_path):
    """Zip keeps a checksum of every entry, so damage to the numbers themselves is always noticed."""
    cells = _cells()
    cells.save(tmp_path / "cells.npz")
    data = (tmp_path / "cells.npz").read_bytes()
    for position in range(0, len(data), 997):
        broken = bytearray(data)
        broken[position] ^= 0x10
        (tmp_path / "broken.npz").write_bytes(bytes(broken))
        try:
            loaded = hm.load_cells(tmp_path / "broken.npz")
        except (FileFormatError, PickleError):
            continue
        _assert_same(cells, loaded)


def test_nothing_is_unpickled(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "objects.npz", hardmax=objects)
    with pytest.raises(PickleError, match=r"objects\.npz: array 'hardmax': it holds Python objects"):
        hm.load_cells(tmp_path / "objects.npz")
    (tmp_path / "pickle.npz").write_bytes(b"\x80\x04\x95abc")
    with pytest.raises(PickleError):
        hm.load_cells(tmp_path / "pickle.npz")


def test_files_that_are_no_complex_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        hm.load_cells(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(FileFormatError, match=r"expected an \.npz file of hardmax\.cells, got something else"):
        hm.load_cells(tmp_path / "other.npz")
    hm.write(random_question(1, "box").net, tmp_path / "net.npz")
    with pytest.raises(FileFormatError, match=r"got hardmax\.network; hm\.read reads networks"):
        hm.load_cells(tmp_path / "net.npz")
    with pytest.raises(ParameterError, match="got a NoneType"):
        hm.load_cells(None)


# --- streams --------------------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(streaming, "_PART_CELLS", 5)
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 64)


@pytest.mark.parametrize("mode", ["certified", "exact", "float"])
@pytest.mark.parametrize("kind", ["box", "space", "segment"])
def test_a_stream_holds_what_enumerating_in_memory_gives(kind, mode, tmp_path, small_parts):
    question = random_question(33, kind)
    cells = hm.enumerate_cells(question.net, question.domain, exactness=mode)
    found = hm.enumerate_cells(question.net, question.domain, exactness=mode, stream_to=tmp_path / "cells")
    assert isinstance(found, StreamedCells)
    assert (found.n_cells, len(found), found.is_complete) == (cells.n_cells, cells.n_cells, True)
    assert found.exactness is cells.exactness
    assert len(found.parts) > 1 or cells.n_cells < 6
    assert {tuple(label) for part in found for label in part.labels.tolist()} == label_set(cells)
    assert sum(len(part) for part in found) == cells.n_cells
    _assert_same(found.load(), cells)
    _assert_same(hm.load_cells(tmp_path / "cells"), cells)
    assert "parts, " in repr(found) and "incomplete" not in repr(found)


def test_a_part_of_a_stream_is_an_incomplete_complex(tmp_path, small_parts):
    question = random_question(33, "box")
    found = hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    for part in found:
        assert not part.is_complete and part.certificate.ok
        with pytest.raises(IncompleteError):
            part.n_regions  # noqa: B018


def test_threads_stream_in_any_order_and_load_in_one(tmp_path, small_parts):
    question = random_question(40, "box", 16)
    cells = hm.enumerate_cells(question.net, question.domain)
    found = hm.enumerate_cells(question.net, question.domain, workers=2, stream_to=tmp_path)
    _assert_same(found.load(), cells)


def test_a_stream_that_stops_early_says_so_and_keeps_what_was_found(tmp_path, small_parts):
    question = random_question(33, "box")
    found = hm.enumerate_cells(question.net, question.domain, max_cells=7, stream_to=tmp_path)
    assert found.n_cells == 7 and not found.is_complete and "incomplete" in repr(found)
    assert found.load().n_cells == 7 and not hm.load_cells(tmp_path).is_complete


def test_an_interrupted_stream_is_finished_as_incomplete(tmp_path, small_parts, monkeypatch):
    question = random_question(33, "box")
    method = enumeration.Enumeration.cells

    def interrupted(self, workers=1):
        batches = method(self, workers)
        yield next(batches)
        raise KeyboardInterrupt

    monkeypatch.setattr(enumeration.Enumeration, "cells", interrupted)
    found = hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    assert 0 < found.n_cells == hm.load_cells(tmp_path).n_cells and not found.is_complete


def test_an_empty_stream_can_be_read(tmp_path, monkeypatch):
    def nothing(self, workers=1):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(enumeration.Enumeration, "cells", nothing)
    for kind in ("box", "space"):
        question = random_question(33, kind)
        found = hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path / kind)
        assert found.n_cells == 0 and list(found) == [] and hm.load_cells(tmp_path / kind).n_cells == 0


def test_memory_holds_one_part_at_a_time(tmp_path, monkeypatch):
    """Whatever the number of cells, no more than one part of them waits to be written."""
    monkeypatch.setattr(streaming, "_PART_CELLS", 50)
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", 1 << 10)
    most = []
    method = streaming.StreamWriter.add

    def watched(self, batch):
        method(self, batch)
        most.append(self._n_waiting)

    monkeypatch.setattr(streaming.StreamWriter, "add", watched)
    rng = np.random.default_rng(1)
    net = hm.Network([hm.Affine(rng.normal(size=(40, 2)), rng.normal(size=40) / 3), hm.ReLU()], 2)
    found = hm.enumerate_cells(net, hm.Box([-1, -1], [1, 1]), stream_to=tmp_path)
    assert found.n_cells > 300 and max(most) < 50 and len(found.parts) > 4


def test_a_folder_with_something_in_it_is_refused_before_the_search_starts(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    question = random_question(33, "box")
    monkeypatch.setattr(enumeration.Enumeration, "cells", lambda *_: pytest.fail("the search was started"))
    with pytest.raises(WriteError, match="is not empty; name a new or an empty folder"):
        hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    with pytest.raises(WriteError, match="cannot be used as a folder"):
        hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path / "notes.txt")
    with pytest.raises(ParameterError, match="stream_to: expected the path of a folder, got a int"):
        hm.enumerate_cells(question.net, question.domain, stream_to=7)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_stream_without_its_manifest_is_a_partial_result(tmp_path, small_parts):
    question = random_question(33, "box")
    found = hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    (tmp_path / "manifest.json").unlink()
    loaded = hm.load_cells(tmp_path)
    assert not loaded.is_complete and loaded.n_cells == found.n_cells
    (tmp_path / "part-000001.npz").unlink()  # what follows a gap is not counted on
    assert hm.load_cells(tmp_path).n_cells == len(next(iter(found)))


def test_a_folder_without_network_and_domain_is_refused(tmp_path, small_parts):
    with pytest.raises(FileFormatError, match=r"no context\.npz; either this is no folder of cells, or writing"):
        hm.load_cells(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema=9), "expected schema 1 of hardmax.cells.stream, got schema 9"),
        (lambda m: m.update(input_hash="0"), "does not belong to the files beside it"),
        (lambda m: m.update(parts=["../elsewhere.npz"]), "does not belong to the files beside it"),
        (lambda m: m.update(n_cells=1), "the parts hold other cells than the 1 of the manifest"),
        (lambda m: m.pop("parts"), "damaged"),
    ],
)
def test_a_damaged_manifest_is_refused(change, message, tmp_path, small_parts):
    question = random_question(33, "box")
    hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    change(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FileFormatError, match=message):
        hm.load_cells(tmp_path)


def test_a_missing_or_foreign_part_is_refused(tmp_path, small_parts):
    question = random_question(33, "box")
    found = hm.enumerate_cells(question.net, question.domain, stream_to=tmp_path)
    (tmp_path / found.parts[0]).write_bytes((tmp_path / "context.npz").read_bytes())
    with pytest.raises(FileFormatError, match=r"part-000000\.npz: expected an array 'labels', found none"):
        found.load()
    (tmp_path / found.parts[0]).unlink()
    with pytest.raises(FileFormatError, match=r"part-000000\.npz: no such file"):
        list(found)

"""Random small complexes of every kind, and every way to damage one claim of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.cells.complex import CellComplex
from hardmax.cells.polytopes import Polytopes

NUMBERS = ("integers", "thirds", "sevenths", "last ulps", "normal")
LAYERS = ("relu", "deep relu", "maxout", "attention", "attention then relu", "two attentions")
DOMAINS = ("box", "space", "segment", "plane")


def _draw(rng: np.random.Generator, numbers: str, *shape: int) -> Any:
    whole = rng.integers(-3, 4, size=shape).astype(float)
    if numbers == "thirds":
        return whole / 3
    if numbers == "sevenths":
        return rng.integers(-9, 10, size=shape) / 7
    if numbers == "last ulps":
        return whole * (1 + rng.integers(-2, 3, size=shape) * 2.0**-52)
    return rng.normal(size=shape) if numbers == "normal" else whole


def random_complex(seed: int, dim: int, layers: str, numbers: str, domain: str) -> CellComplex:
    """The cells of a random small network."""
    rng = np.random.default_rng(seed)
    n = 3 if dim > 3 else 4

    def attention(width: int, n_keys: int = 3) -> Any:
        head = hm.Head(
            _draw(rng, numbers, n_keys, 2), _draw(rng, numbers, n_keys, width), _draw(rng, numbers, 2, width)
        )
        return hm.Residual(hm.Attention([head]))

    affine = hm.Affine(_draw(rng, numbers, n, dim), _draw(rng, numbers, n))
    readout = hm.Affine(_draw(rng, numbers, 2, n))
    blocks = {
        "relu": [affine, hm.ReLU(), readout],
        "deep relu": [affine, hm.ReLU(), hm.Affine(_draw(rng, numbers, 3, n), _draw(rng, numbers, 3)), hm.ReLU()],
        "maxout": [hm.Affine(_draw(rng, numbers, 6, dim), _draw(rng, numbers, 6)), hm.Maxout(3)],
        "attention": [attention(dim, 4)],
        "attention then relu": [attention(dim), affine, hm.ReLU(), readout],
        "two attentions": [attention(dim), attention(dim), hm.Affine(_draw(rng, numbers, 1, dim))],
    }[layers]
    net = hm.Network(blocks, dim)
    if domain == "segment":
        start = _draw(rng, numbers, dim)
        return hm.enumerate_cells(net, hm.Segment(start, start + 1 + np.abs(_draw(rng, numbers, dim))))
    if domain == "plane" and dim > 1:
        basis = np.eye(2, dim) + _draw(rng, "thirds", 2, dim) / 16
        return hm.enumerate_cells(net, hm.Plane(_draw(rng, numbers, dim), basis, ((-1, 1), (-1, 2))))
    if domain == "space":
        return hm.enumerate_cells(net, hm.Space(dim))
    return hm.enumerate_cells(net, hm.Box([-2] * dim, [2 + 1 / 3] * dim))


def copied(cells: CellComplex, *, keeps_claims: bool = True, **changes: Any) -> CellComplex:
    """The complex with its own arrays, some of them replaced; what follows from them stays as it was claimed."""
    pieces = cells.pieces
    names = ("vertex_start", "vertices", "facet_start", "walls", "error", "directions", "incidence")
    parts = {n: None if getattr(pieces, n) is None else np.array(getattr(pieces, n)) for n in names}
    parts |= {name: changes.pop(name) for name in list(changes) if name in parts}
    arrays = {name: getattr(cells, name) for name in ("labels", "maps", "map_error")}
    arrays = {name: None if array is None else np.array(array) for name, array in arrays.items()} | changes
    copy = CellComplex(
        cells.network, cells.domain, cells.exactness, arrays["labels"], arrays["maps"], arrays["map_error"],
        Polytopes(cells.dim, **parts), cells.is_complete,
    )  # fmt: skip
    if keeps_claims:
        for name in ("neighbours", "map_of", "region_of"):
            copy.__dict__[name] = np.array(getattr(cells, name))
    return copy


def _claiming(cells: CellComplex, **claims: Any) -> CellComplex:
    copy = copied(cells)
    copy.__dict__.update(claims)
    return copy


def _taken(cells: CellComplex, order: Any) -> CellComplex:
    """Some cells in some order, with their own adjacency, maps and regions renumbered."""
    pieces = Polytopes.join([cells.pieces.take(k, k + 1) for k in order])
    rest = CellComplex(
        cells.network, cells.domain, cells.exactness, cells.labels[order], cells.maps[order],
        None if cells.map_error is None else cells.map_error[order], pieces,
    )  # fmt: skip
    place = {int(k): i for i, k in reversed(list(enumerate(order)))}
    pairs = [(place[i], place[j]) for i, j in cells.neighbours.tolist() if i in place and j in place]
    rest.__dict__["neighbours"] = np.array(sorted((min(p), max(p)) for p in pairs), dtype=np.int64).reshape(-1, 2)
    for name in ("map_of", "region_of"):
        seen: dict[int, int] = {}
        numbers = [seen.setdefault(int(k), len(seen)) for k in getattr(cells, name)[order]]
        rest.__dict__[name] = np.array(numbers)
    return rest


def damages(cells: CellComplex, seed: int) -> Iterator[tuple[str, CellComplex]]:
    """The complex with one claim after the other made wrong."""
    rng = np.random.default_rng(seed)
    n, dim, pieces = cells.n_cells, cells.dim, cells.pieces
    cell, corner = int(rng.integers(n)), int(rng.integers(len(pieces.vertices)))
    sizes = cells.labels.max(axis=0).astype(int) + 1
    column = int(rng.integers(cells.labels.shape[1]))
    labels = np.array(cells.labels)
    labels[cell, column] = (labels[cell, column] + 1) % max(2, sizes[column])
    yield "label", copied(cells, labels=labels)
    if n > 1:
        other = (cell + 1) % n
        labels = np.array(cells.labels)
        labels[[cell, other]] = labels[[other, cell]]
        yield "labels exchanged", copied(cells, labels=labels)
    yield from _wrong_maps(cells, cell, rng)
    yield from _wrong_numbers(cells, rng)
    yield from _wrong_pairs(cells, rng)
    for name, step in (("vertex 1e-7", 1e-7), ("vertex 2 errors", 0.0)):
        vertices = np.array(pieces.vertices)
        axis = int(rng.integers(dim))
        move = step or 2.5 * max(float(pieces.error[corner]), 2.0**-52 * (1 + abs(float(vertices[corner, axis]))))
        vertices[corner, axis] += move * rng.choice([-1, 1])
        yield name, copied(cells, vertices=vertices)
    if pieces.directions is not None:
        directions = np.array(pieces.directions)
        directions[corner, int(rng.integers(dim))] += 1e-7
        yield "direction 1e-7", copied(cells, directions=directions)
    if pieces.incidence is not None:
        incidence = np.array(pieces.incidence)
        owner = int(np.searchsorted(pieces.vertex_start, corner, side="right")) - 1
        facet = int(rng.integers(pieces.facet_start[owner + 1] - pieces.facet_start[owner]))
        incidence[corner, facet // 64] ^= np.uint64(1 << facet % 64)
        yield "incidence bit", copied(cells, incidence=incidence)
        if pieces.vertex_start[owner + 1] - pieces.vertex_start[owner] > dim + 1:
            names = ("vertices", "error", "incidence", "directions")
            rest = {k: np.delete(getattr(pieces, k), corner, axis=0) for k in names if getattr(pieces, k) is not None}
            start = pieces.vertex_start - (np.arange(n + 1) > owner)
            yield "corner dropped", copied(cells, vertex_start=start, **rest)
    if dim == 2:
        first, last = int(pieces.vertex_start[cell]), int(pieces.vertex_start[cell + 1])
        order = np.arange(len(pieces.vertices))
        order[first + 1 : last] = order[first + 1 : last][::-1]
        turned = {
            k: getattr(pieces, k)[order] for k in ("vertices", "error", "directions") if getattr(pieces, k) is not None
        }
        walls = np.array(pieces.walls)
        walls[first:last] = walls[first:last][::-1]
        yield "polygon turned", copied(cells, walls=walls, **turned)
    yield from _wrong_walls(cells, rng)
    if n > 1:
        yield "cell dropped", _taken(cells, np.delete(np.arange(n), cell))
    yield "cell twice", _taken(cells, np.append(np.arange(n), cell))
    yield from _wrong_errors(cells, rng)


def _wrong_maps(cells: CellComplex, cell: int, rng: np.random.Generator) -> Iterator[tuple[str, CellComplex]]:
    for name, term in (("offset", 0), ("slope", int(rng.integers(1, cells.dim + 1)))):
        for size in ("1e-10", "2 errors"):
            maps = np.array(cells.maps)
            flat = maps.reshape(cells.n_cells, cells.dim + 1, -1)
            entry = int(rng.integers(flat.shape[2]))
            value, error = float(flat[cell, term, entry]), float(cells.map_error[cell, term])
            step = 1e-10 * max(1.0, abs(value)) if size == "1e-10" else 2.5 * max(error, 2.0**-52 * abs(value), 1e-300)
            flat[cell, term, entry] = value + step * rng.choice([-1, 1])
            yield f"{name} by {size}", copied(cells, maps=maps)


def _wrong_numbers(cells: CellComplex, rng: np.random.Generator) -> Iterator[tuple[str, CellComplex]]:
    for name in ("map_of", "region_of"):
        numbers = np.array(getattr(cells, name))
        cell = int(rng.integers(len(numbers)))
        yield (
            f"{name} entry",
            _claiming(cells, **{name: np.where(np.arange(len(numbers)) == cell, numbers + 1, numbers)}),
        )
        yield f"{name} constant", _claiming(cells, **{name: np.full_like(numbers, numbers.max() + 1)})
        if numbers.max() > 0:
            yield f"{name} merged", _claiming(cells, **{name: np.maximum(numbers - 1, 0)})


def _wrong_pairs(cells: CellComplex, rng: np.random.Generator) -> Iterator[tuple[str, CellComplex]]:
    pairs, n = cells.neighbours, cells.n_cells
    if len(pairs):
        yield "pair dropped", _claiming(cells, neighbours=np.delete(pairs, int(rng.integers(len(pairs))), axis=0))
    known = set(map(tuple, pairs.tolist()))
    strangers = [(i, j) for i in range(min(n, 40)) for j in range(i + 1, min(n, 40)) if (i, j) not in known]
    if strangers:
        extra = strangers[int(rng.integers(len(strangers)))]
        yield "pair added", _claiming(cells, neighbours=np.array(sorted([*known, extra])))


def _wrong_walls(cells: CellComplex, rng: np.random.Generator) -> Iterator[tuple[str, CellComplex]]:
    pieces = cells.pieces
    facet = int(rng.integers(len(pieces.walls)))
    for name in ("wall of the border", "wall of another choice"):
        walls = np.array(pieces.walls)
        if name == "wall of the border":
            walls[facet] = -1 - (walls[facet] == -1)
        else:
            others = np.unique(walls[(walls >= 0) & (walls != walls[facet])])
            if len(others) == 0:
                continue
            walls[facet] = rng.choice(others)
        yield name, copied(cells, walls=walls)
    inner = np.flatnonzero(pieces.walls >= 0)
    if len(inner):
        walls, facet = np.array(pieces.walls), int(rng.choice(inner))
        owner = int(np.searchsorted(pieces.facet_start, facet, side="right")) - 1
        walls[facet] = walls[facet] >> 24 << 24 | int(cells.labels[owner, walls[facet] >> 24])
        yield "wall of the own choice", copied(cells, walls=walls)


def _wrong_errors(cells: CellComplex, rng: np.random.Generator) -> Iterator[tuple[str, CellComplex]]:
    for name in ("error", "map_error"):
        error = np.array(cells.pieces.error if name == "error" else cells.map_error)
        if not error.any():
            continue
        at = tuple(rng.choice(np.argwhere(error > 0)))
        for how, factor in (("x 1e6", 1e6), ("set to 0", 0.0)):
            wrong = np.array(error)
            wrong[at] *= factor
            yield f"{name} {how}", copied(cells, **{name: wrong})

"""Pages about heads: what each head of a model is for, and which keys of a key-value cache can go or never win."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import EmptyError
from hardmax.exactness import Exactness
from hardmax.heads.kv_cache import CachedHead, KVCache
from hardmax.heads.roles import MIXED, ROLES, HeadRoles
from hardmax.heads.rows import one_thread_each
from hardmax.html import several
from hardmax.networks.files.opening import check_target, write_bytes
from hardmax.show.document import Document
from hardmax.show.report.about import now, provenance
from hardmax.show.report.page import render
from hardmax.show.report.sections import HEAD_COLUMNS, Column, Fact, Figure, Section, Table, as_text, legible, rows_of
from hardmax.show.report.subject import array_hash
from hardmax.show.svg import head_grid

_EXACT, _CERTIFIED = Exactness.EXACT, Exactness.CERTIFIED
_CACHED = Column("n_cached", "cached keys", "count", _EXACT)
_DROPPED = (
    *HEAD_COLUMNS, Column("name", "name"), _CACHED,
    Column("n_prunable", "can be dropped", "count", _CERTIFIED),
    Column("prunable", "share of them", "share", _CERTIFIED),
    Column("total_bound", "weigh together at most", "number", _CERTIFIED),
    Column("output_bound", "output moves by at most", "number", _CERTIFIED),
)  # fmt: skip
_CELLS = (
    *HEAD_COLUMNS, Column("name", "name"), _CACHED,
    Column("n_dead", "never win", "count", _CERTIFIED),
    Column("dead", "share of them", "share", _CERTIFIED),
    Column("n_reachable", "can win near the query", "count", _CERTIFIED),
    Column("winner", "winner", "index", _CERTIFIED),
    Column("margin", "margin", "number", _CERTIFIED),
    Column("routing_radius", "distance to the nearest wall", "number", _CERTIFIED),
    Column("own_margin", "own key's score over the winner's", "number", _CERTIFIED),
)  # fmt: skip
_TOKENS = (
    Column("position", "token", "index"),
    Column("n_heads", "heads that hold its key", "count", _EXACT),
    Column("n_prunable", "heads that can drop it", "count", _CERTIFIED),
    Column("n_dead", "heads where it never wins", "count", _CERTIFIED),
    Column("n_won", "heads where it wins now", "count", _CERTIFIED),
)


def write_cache_page(
    cache: KVCache,
    out: str | os.PathLike[str],
    epsilon: float,
    radius: float,
    *,
    relative: bool,
    name: str,
    force: bool,
) -> Path:
    """Write one HTML file about a cache and return where it is, as ``KVCache.page`` explains.

    Exactness: every number on the page carries its own.
    """
    path = Path(out)
    check_target(path, force)
    if not cache:
        raise EmptyError("page: expected a cache of at least one head, got none")
    with one_thread_each():
        document = _document(cache, epsilon, radius, relative, name)
    write_bytes(path, render(document, more='hm.kv_cache(hm.capture(model, tokens)).page("page.html")').encode())
    return path


def _document(cache: KVCache, epsilon: float, radius: float, relative: bool, name: str) -> Document:
    made = now()
    tokens: dict[int, dict[str, int]] = {}
    records = [_record(head, epsilon, radius, relative, tokens) for head in cache]
    bounded = [record for record in records if record["prunable"] is not None]
    near = f"no farther from the current one than {radius:g}{' of its length' if relative else ''}"
    asked = f"weigh at most {epsilon:g} for every query {near}"
    arguments = f"{epsilon!r}, radius={radius!r}, relative={relative}"
    read = "cache = hm.kv_cache(hm.capture(model, tokens))\n"
    figures = [_grid(records, "dead", 1, "never-win", "Keys that never win", "that win for no query", "cells")]
    tables = [Table("cells", "Keys that win, and where the query stands", _CELLS, rows_of(records, _CELLS))]
    notes = ["A key that never wins at temperature zero may still have weight in the softmax; a key that weighs little "
             "near this query may win far from it."]  # fmt: skip
    again = [f"{read}cache.table({radius!r}, relative={relative})"]
    if bounded:
        figures.insert(
            0, _grid(records, "prunable", 0, "can-go", "Keys that can be dropped", f"that {asked}", "dropped")
        )
        tables.insert(0, Table("dropped", "Keys that can be dropped", _DROPPED, rows_of(bounded, _DROPPED)))
        again.insert(0, f"{read}[head.prunable({arguments}) for head in cache]")
    if len(bounded) < len(records):
        left = several(len(records) - len(bounded), "head")
        notes.append(f"No weights are bounded in {left}: hard, or with scores that are capped before the softmax.")
    by_token = [{"position": position, **tokens[position]} for position in sorted(tokens)]
    tables.append(Table("tokens", "Cached tokens", _TOKENS, rows_of(by_token, _TOKENS)))
    keys = np.concatenate([head.keys.reshape(-1) for head in cache])
    about = provenance([("cache", repr(cache)), ("SHA-256 of all keys", array_hash(keys))], made)
    sections = (
        Section(
            "cache", "Which keys can go",
            "While one token is written, the keys of the earlier ones are fixed. A key can be dropped where its "
            f"softmax weight is proved to be at most {epsilon:g} for all queries {near}; the bounds say what dropping "
            "them all costs. A key never wins where no query at all gives it the largest score among the cached keys.",
            notes=tuple(notes), figures=tuple(figures), tables=tuple(tables), reproduce=tuple(again),
        ),
        Section(
            "about", "What was looked at",
            "Keys are taken as the model rounded them. In bounds on weights the token's own key, where it has one, "
            "takes its share and stays where it is; winners, margins and cells are those of the cached keys alone.",
            tables=(about,), reproduce=(f'{read}cache.page("page.html", {arguments})',),
        ),
    )  # fmt: skip
    words = f"{several(len(records), 'head')}, {several(len(tokens), 'cached token')}"
    return Document(legible(name) or "Key-value cache", words, made, (_answer(records, bounded, asked),), (), sections)


def _answer(records: list[dict[str, Any]], bounded: list[dict[str, Any]], asked: str) -> Fact:
    total, dead = sum(record["n_cached"] for record in records), sum(record["n_dead"] for record in records)
    text, all_keys = "", f"the {several(total, 'cached key')} in {several(len(records), 'head')}"
    if bounded:
        held, gone = (sum(record[key] for record in bounded) for key in ("n_cached", "n_prunable"))
        of = all_keys if len(bounded) == len(records) else f"the {held:,} keys in heads whose weights can be bounded"
        text = f"Of {of}, {gone:,} ({as_text(gone / held, 'share')}) can be dropped: they {asked}. "
    text += f"Of {all_keys}, " if len(bounded) < len(records) else ""
    return Fact("", f"{text}{dead:,} ({as_text(dead / total, 'share')}) win for no query at all.", _CERTIFIED)


def _record(head: CachedHead, epsilon: float, radius: float, relative: bool, tokens: dict[int, Any]) -> dict[str, Any]:
    """The numbers of one head; its keys are counted in ``tokens`` too. What cannot be bounded is None."""
    found = head.numbers(radius, relative=relative)
    found["name"], found["n_dead"] = legible(head.name, 80), head.n_cached - found["n_live"]
    found["dead"], found["prunable"] = found["n_dead"] / head.n_cached, None
    dropped: set[int] = set()
    if head.temperature > 0 and head.softcap is None:
        loss = head.prunable(epsilon, radius, relative=relative)
        dropped = set(loss.positions.tolist())
        found |= {"n_prunable": len(dropped), "prunable": len(dropped) / head.n_cached,
                  "total_bound": loss.total_bound, "output_bound": loss.output_bound}  # fmt: skip
    for position, is_live in zip(head.positions.tolist(), head.live.tolist(), strict=True):
        token = tokens.setdefault(position, dict.fromkeys(("n_heads", "n_prunable", "n_dead", "n_won"), 0))
        seen = (True, position in dropped, not is_live, position == found["winner"])
        for key, add in zip(token, seen, strict=True):
            token[key] += add
    return found


def _grid(records: list[dict[str, Any]], key: str, hue: int, name: str, choice: str, what: str, table: str) -> Figure:
    """One share of every head as a square, darker where it is larger; an empty one where it is not known."""
    squares = []
    for record in records:
        share, where = record[key], f"layer {record['layer']}, head {record['head']}"
        mark = "frame" if share is None else f"cell k{hue} t{round(7 * share)}"
        words = "no bound" if share is None else f"{record[f'n_{key}']:,} of {several(record['n_cached'], 'key')}"
        squares.append((record["layer"], record["head"], mark, 1.0, f"{where}: {words}"))
    legend = [(f"cell k{hue} t0", "no key"), (f"cell k{hue} t7", "all keys")]
    legend += [("frame", "no bound")] if any(record[key] is None for record in records) else []
    caption = f"Layers across, heads downwards; stronger where more of the head's cached keys are keys {what}."
    return Figure(name, head_grid(f"{choice}, by layer and head", squares), caption, (table,), tuple(legend), choice)


_ROLE_COLUMNS = (
    *HEAD_COLUMNS,
    Column("role", "role", "text", _CERTIFIED),
    Column("share", "share of rows", "share", _CERTIFIED),
    Column("margin", "median margin / temperature", "number", _CERTIFIED),
    *(Column(role, role, "share", _CERTIFIED) for role in ROLES),
    Column("offset", "commonest other offset", "count", Exactness.EXACT),
)
_LEAD = (
    "A row, one query with the keys it sees, supports a role if more than half of its softmax weight provably lies on "
    "the keys of that role. A head has the role that most of its rows support; where that is no more than half of them "
    f"it is {MIXED}. Rows of the first two tokens are left out: there the roles coincide."
)


def write_heads_page(
    found: HeadRoles,
    out: str | os.PathLike[str],
    *,
    name: str = "",
    force: bool = False,
    command: str = 'hm.head_roles(hm.capture(model, inputs)).page("page.html")',
    n_texts: int | None = None,
) -> Path:
    """Write one HTML file about the roles of heads and return where it is, as ``HeadRoles.page`` explains.

    Exactness: every number on the page carries its own.
    """
    path = Path(out)
    check_target(path, force)
    if not found:
        raise EmptyError("page: expected the roles of at least one head, got none")
    made = now()
    named = [(role, count) for role, count in found.counts.items() if count]
    all_heads = Table("heads", "All heads", _ROLE_COLUMNS, rows_of(found.table(), _ROLE_COLUMNS), shown=len(found))
    columns = (Column("role", "role"), Column("heads", "heads", "count", _CERTIFIED))
    roles = Table("roles", "How many heads have each role", columns, tuple(named))
    about = provenance([("command", legible(command, 400))], made)
    words = ", ".join(f"{count} {role}" for role, count in named)
    answer = (Fact("", f"Of {several(len(found), 'head')}: {words}.", _CERTIFIED),)
    most = sorted(named, key=lambda pair: -pair[1])[:4]
    best = tuple(Fact(role, as_text(count, "count"), _CERTIFIED) for role, count in most)
    rows = f"{several(found[0].n_rows, 'row')} of each head"
    read = rows if n_texts is None else f"{several(n_texts, 'text')}, {rows}"
    sections = (
        Section("roles", "What the heads are for", _LEAD, figures=(_map(found),), tables=(roles, all_heads)),
        Section("about", "What was looked at", f"{read[0].upper()}{read[1:]}.", tables=(about,)),
    )
    document = Document(
        legible(name) or "What heads are for", f"{several(len(found), 'head')}, {read}", made, answer, best, sections
    )
    write_bytes(path, render(document, more="hardmax heads model:smollm2 --texts F").encode())
    return path


def _map(found: HeadRoles) -> Figure:
    """Layers across, heads downwards, a square each in the colour of its role, as strong as its share."""
    squares = []
    for head in found:
        mark = "frame" if head.role == MIXED else f"cell k{ROLES.index(head.role)}"
        words = f"layer {head.layer}, head {head.head}: {head.role}, {head.share:.0%} of {head.n_rows:,} rows"
        strength = 1.0 if head.role == MIXED else 0.3 + 0.7 * head.share
        squares.append((head.layer, head.head, mark, strength, words))
    legend = (*((f"cell k{number}", role) for number, role in enumerate(ROLES)), ("frame", MIXED))
    svg = head_grid("Roles of heads by layer and head", squares)
    caption = "Layers across, heads downwards; stronger where more rows prove the role."
    return Figure("map", svg, caption, ("heads",), legend)

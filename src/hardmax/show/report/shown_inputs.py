"""The inputs themselves: images as images, tokens as words, each with what the model and its skeleton answer."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.exactness import FloatArray
from hardmax.heads.capture.captured import Capture
from hardmax.show.report.sections import Column, Figure, Section, Table, filled, in_words, legible, rows_of
from hardmax.show.report.subject import Subject
from hardmax.show.svg import picture, tag

NAME, TITLE = "inputs", "What went in, and what came out"
_SHOWN = 12
_LARGEST = 128  # pixels of an image, each way
_TILE, _ROOM, _LETTERS = 116.0, 56.0, 16

_TABLE = (
    Column("input", "input", "index"),
    Column("tokens", "tokens", "prose"),
    Column("soft", "the model answers"),
    Column("hard", "its skeleton answers"),
    Column("right", "right answer"),
)


def inputs_section(subject: Subject) -> Section:
    """The first inputs, with the answers to them."""
    points = subject.inputs.points[:_SHOWN]
    names = subject.conditioned.class_names if subject.conditioned is not None else None
    soft, hard = (_answers(subject, points, names, temperature) for temperature in (None, 0.0))
    labels = subject.inputs.labels
    records: list[dict[str, Any]] = []
    for index in range(len(points)):
        tokens = subject.inputs.tokens and in_words(subject.inputs.tokens[index])
        right = None if labels is None or labels.ndim > 1 else _name(int(labels[index]), names)
        record = {"input": index, "tokens": tokens or None, "soft": soft and soft[index]}
        records.append({**record, "hard": None if subject.not_soft or not hard else hard[index], "right": right})
    images = [_image(point) for point in points]
    figures = (_thumbnails(images, records),) if all(image is not None for image in images) else ()
    columns = filled(_TABLE, records)
    if len(columns) < 2:
        return Section(NAME, TITLE, absent="The inputs are bare numbers without names or answers.")
    lead = f"{subject.inputs.note[:1].upper()}{subject.inputs.note[1:]}"
    if len(points) < len(subject.inputs.points):
        lead += f" Here are the first {len(points)}."
    table = Table("inputs", "The first inputs", columns, rows_of(records, columns))
    return Section(NAME, TITLE, legible(lead, 400), figures=figures, tables=(table,))


def captured_inputs(captures: tuple[Capture, ...]) -> Section:
    """The first inputs of captures as words."""
    columns = _TABLE[:2]
    rows = tuple((index, in_words(one.tokens)) for index, one in enumerate(captures[:_SHOWN]))
    return Section(NAME, "What went in", tables=(Table("inputs", "The first inputs", columns, rows),))


def _answers(
    subject: Subject, points: FloatArray, names: tuple[str, ...] | None, temperature: float | None
) -> list[str] | None:
    shape = subject.net.output_shape
    if not shape or shape[-1] < 2:
        return None
    outputs = subject.net(points, temperature=temperature) if temperature is not None else subject.net(points)
    decided = outputs.argmax(axis=-1).reshape(len(points), -1)[:, -1]
    return [_name(int(one), names) for one in decided]


def _name(index: int, names: tuple[str, ...] | None) -> str:
    return names[index] if names is not None and index < len(names) else f"class {index}"


def _image(point: FloatArray) -> str | None:
    """An input as a picture, where it has the shape of one: (1, h, w) or (3, h, w), from 8 to 128 pixels each way."""
    if point.ndim != 3 or point.shape[0] not in (1, 3) or min(point.shape[1:]) < 8 or max(point.shape) > _LARGEST:
        return None
    low, high = float(point.min()), float(point.max())
    pixels = np.round(255 * (point - low) / ((high - low) or 1.0)).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(np.moveaxis(pixels, 0, -1))).decode()


def _png(pixels: Any) -> bytes:
    """A PNG file of pixels (h, w, 1) or (h, w, 3)."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _thumbnails(images: list[str | None], records: list[dict[str, Any]]) -> Figure:
    tiles = []
    for image, record in zip(images, records, strict=True):
        name = f"input {record['input']}"
        said = [name, (record["soft"] or "")[:_LETTERS]]
        if record["hard"] and record["hard"] != record["soft"]:
            said.append(f"hard {record['hard']}"[:_LETTERS])
        pixels = tag("image", href=image, x=4, y=0, width=_TILE - 8, height=_TILE - 8, class_="pixels")
        words = [tag("text", text, x=4, y=_TILE + 6 + 16 * line, class_="tick-text") for line, text in
                 enumerate(said)]  # fmt: skip
        tiles.append(picture(_TILE, _TILE + _ROOM, name, pixels, *words, class_="chart panel tile"))
    caption = "The inputs as images, scaled from their least to their greatest number."
    return Figure("input-images", Markup("").join(tiles), caption, ("inputs",))

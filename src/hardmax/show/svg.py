"""Small SVG drawings: every text and attribute is escaped, and colours come from the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element; ``class_`` and ``for_`` lose their underscore, other underscores become hyphens.

    Examples
    --------
    >>> str(tag("text", "<k>", x=1.5, class_="name", text_anchor="middle"))
    '<text x="1.5" class="name" text-anchor="middle">&lt;k&gt;</text>'
    >>> str(tag("path", d="M0 0"))
    '<path d="M0 0"/>'
    """
    parts = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{name}{parts}>{inner}</{name}>" if children else f"<{name}{parts}/>")


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A coordinate in hundredths of a pixel, without trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def picture(width: float, height: float, label: str, /, *children: str, **attributes: object) -> Markup:
    """A drawing with a name for readers who cannot see it."""
    return tag(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
        **attributes,
    )


def cross(x: float, y: float) -> str:
    """The path of a small diagonal cross."""
    return f"M{x - 5:.1f} {y - 5:.1f}L{x + 5:.1f} {y + 5:.1f}M{x - 5:.1f} {y + 5:.1f}L{x + 5:.1f} {y - 5:.1f}"


class Frame:
    """A rectangle of a drawing with its own coordinates: x to the right, y upwards."""

    def __init__(self, extent: Sequence[Sequence[float]], left: float, top: float, width: float, height: float) -> None:
        (self.x0, self.x1), (self.y0, self.y1) = ((float(a), float(b)) for a, b in extent)
        self.left, self.top, self.width, self.height = left, top, width, height

    def x(self, value: float) -> float:
        """The pixel column of a coordinate."""
        return self.left + (value - self.x0) / (self.x1 - self.x0) * self.width

    def y(self, value: float) -> float:
        """The pixel row of a coordinate."""
        return self.top + (self.y1 - value) / (self.y1 - self.y0) * self.height

    def points(self, corners: ArrayLike) -> str:
        """Corners (n, 2) as the points of a polygon."""
        return " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in np.asarray(corners).tolist())

    def path(self, corners: ArrayLike, *, closed: bool = False) -> str:
        """Corners (n, 2) as a path, open unless said otherwise."""
        points = [f"{number(self.x(x))} {number(self.y(y))}" for x, y in np.asarray(corners).tolist()]
        return "M" + "L".join(points) + ("Z" if closed else "")

    def border(self) -> Markup:
        """The rectangle itself."""
        return tag("rect", x=self.left, y=self.top, width=self.width, height=self.height, class_="frame")

    def bottom_axis(self, ticks: Iterable[tuple[float, str]], title: str) -> Markup:
        """Marks and numbers below, and what they count."""
        low = self.top + self.height
        marks = [
            tag("line", x1=self.x(at), x2=self.x(at), y1=low, y2=low + 4, class_="tick")
            + tag("text", text, x=self.x(at), y=low + 17, class_="tick-text", text_anchor="middle")
            for at, text in ticks
        ]
        middle = self.left + self.width / 2
        return Markup("").join([*marks, tag("text", title, x=middle, y=low + 35, class_="axis", text_anchor="middle")])

    def left_axis(self, ticks: Iterable[tuple[float, str]], title: str, *, grid: bool = True) -> Markup:
        """Marks and numbers at the left with faint lines across; the title stands above."""
        marks = []
        for at, text in ticks:
            y = self.y(at)
            end = self.left + self.width if grid else self.left - 4
            marks.append(tag("line", x1=self.left, x2=end, y1=y, y2=y, class_="grid" if grid else "tick"))
            marks.append(tag("text", text, x=self.left - 8, y=y + 4, class_="tick-text", text_anchor="end"))
        heading = tag("text", title, x=self.left, y=self.top - 10, class_="axis")
        return Markup("").join([*marks, heading])


def head_grid(label: str, heads: Sequence[tuple[int, int, str, float, str]]) -> Markup:
    """Layers across, heads downwards: a square for each (layer, head, class, opacity, words).

    Examples
    --------
    >>> grid = head_grid("shares", [(0, 0, "cell k0", 0.5, "<half>"), (2, 1, "cell k0", 1.0, "all")])
    >>> grid.count("<rect"), "&lt;half&gt;" in grid
    (2, True)
    """
    columns = {layer: column for column, layer in enumerate(sorted({head[0] for head in heads}))}
    rows = {head: row for row, head in enumerate(sorted({head[1] for head in heads}))}
    side, left, top = min(22.0, 660.0 / len(columns)), 64.0, 40.0
    drawn = []
    for layer, head, class_, opacity, words in heads:
        at = {"x": left + side * columns[layer] + 1, "y": top + side * rows[head] + 1}
        size = {"width": side - 2, "height": side - 2}
        drawn.append(tag("rect", tag("title", words), **at, **size, class_=class_, opacity=opacity))
    every = max(1, int(np.ceil(20.0 / side)))  # numbers that would run into each other are left out
    for head, row in list(rows.items())[::every]:
        y = top + side * (row + 0.65)
        drawn.append(tag("text", f"head {head}", x=left - 8, y=y, class_="tick-text", text_anchor="end"))
    for layer, column in list(columns.items())[::every]:
        x = left + side * (column + 0.5)
        drawn.append(tag("text", str(layer), x=x, y=top - 8, class_="tick-text", text_anchor="middle"))
    drawn.append(tag("text", "layer", x=left, y=top - 26, class_="axis"))
    width = left + side * len(columns) + 8
    return picture(width, top + side * len(rows) + 8, label, *drawn, width=width, class_="chart squares")


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two bounds, about as many as asked.

    Examples
    --------
    >>> round_ticks(0.0, 1.0), round_ticks(-3.0, 12.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    >>> round_ticks(2.0, 2.0), round_ticks(0.0, 3e-40, 3)
    ([2.0], [0.0, 1e-40, 2e-40, 3e-40])
    """
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    size = 10.0 ** np.floor(np.log10(raw))
    step = next(size * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if size * factor >= raw * (1 - 1e-9))
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") + 0.0 for index in np.arange(first, last + 1)]

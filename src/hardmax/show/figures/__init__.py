"""The seven figures of the tropical paper, drawn from exact numbers; matplotlib is used in this folder only."""

from __future__ import annotations

from hardmax.show.figures.writing import FORMATS as FORMATS
from hardmax.show.figures.writing import NUMBERS as NUMBERS
from hardmax.show.figures.writing import contents as contents
from hardmax.show.figures.writing import figures as figures

"""The colours of keys and other labels: one list for figures, pages and notebooks, safe for colour-blind readers."""

from __future__ import annotations

from hardmax.cells.colours import FAINT as FAINT
from hardmax.cells.colours import INK as INK
from hardmax.cells.colours import KEY_COLOURS as KEY_COLOURS
from hardmax.cells.colours import key_colour as key_colour
from hardmax.cells.colours import label_colours as label_colours
from hardmax.cells.colours import tinted as tinted

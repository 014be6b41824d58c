"""How colours look to dichromats (Machado, Oliveira and Fernandes 2009) and in grey; their distance by CIEDE2000."""

from math import atan2, cos, degrees, exp, hypot, radians, sin, sqrt

KINDS = ("normal", "deuteranopia", "protanopia", "grey")
_MACHADO = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "grey": ((0.2126, 0.7152, 0.0722),) * 3,
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def on_paper(colour, share, paper):
    """A colour ``#rrggbb`` laid on paper with an opacity, as numbers from 0 to 1."""
    parts = [[int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)] for text in (colour, paper)]
    return [p + share * (c - p) for c, p in zip(*parts, strict=True)]


def lab(rgb, kind="normal"):
    """CIE L*a*b* (D65) of a colour as that kind of sight has it."""
    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    seen = [min(1.0, max(0.0, sum(m * c for m, c in zip(row, light, strict=True)))) for row in _MACHADO[kind]]
    to_xyz = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.072175), (0.0193339, 0.119192, 0.9503041))
    xyz = [sum(m * c for m, c in zip(row, seen, strict=True)) for row in to_xyz]
    x, y, z = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (v / w for v, w in zip(xyz, (0.95047, 1.0, 1.08883), strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(first, second):
    """CIEDE2000 between two colours in L*a*b* (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (hypot(a1, b1) + hypot(a2, b2)) / 2
    g = 0.5 * (1 - sqrt(mean**7 / (mean**7 + 25**7)))
    (c1, h1), (c2, h2) = (
        (hypot((1 + g) * a, b), degrees(atan2(b, (1 + g) * a)) % 360) for a, b in ((a1, b1), (a2, b2))
    )
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 == 0 else (h1 + h2 + (360 if abs(h1 - h2) > 180 else 0)) / 2
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 - 0.17 * cos(radians(hue - 30)) + 0.24 * cos(radians(2 * hue))
    t += 0.32 * cos(radians(3 * hue + 6)) - 0.2 * cos(radians(4 * hue - 63))
    dl = (l2 - l1) / (1 + 0.015 * (lightness - 50) ** 2 / sqrt(20 + (lightness - 50) ** 2))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * sqrt(c1 * c2) * sin(radians(turn / 2)) / (1 + 0.015 * chroma * t)
    rotation = -2 * sqrt(chroma**7 / (chroma**7 + 25**7)) * sin(radians(60 * exp(-(((hue - 275) / 25) ** 2))))
    return sqrt(max(0.0, dl**2 + dc**2 + dh**2 + rotation * dc * dh))

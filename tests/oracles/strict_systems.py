"""Whether strict linear inequalities have a common solution, by Fourier-Motzkin elimination; shares no code."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def is_feasible(rows: Sequence[Sequence[Fraction]]) -> bool:
    """Whether some x has a_1 x_1 + ... + a_d x_d + c > 0 for every row (a_1, ..., a_d, c)."""
    system = {tuple(map(Fraction, row)) for row in rows}
    while system and len(next(iter(system))) > 1:
        rising = [row for row in system if row[0] > 0]
        falling = [row for row in system if row[0] < 0]
        rest = {row[1:] for row in system if row[0] == 0}
        rest |= {
            tuple(a * -low[0] + b * up[0] for a, b in zip(up[1:], low[1:], strict=True))
            for up in rising
            for low in falling
        }
        system = {_scaled(row) for row in rest}
    return all(row[-1] > 0 for row in system)


def _scaled(row: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    size = max(map(abs, row), default=Fraction(0))
    return tuple(entry / size for entry in row) if size else row

"""Compiled sweep of neighbours.py: two tilings of one line, merged."""

# mypy: ignore-errors

from typing import Any, NamedTuple

from hardmax.exact.compiling import borrowing, kernel


class Lines(NamedTuple):
    """Groups of tiles along a line: where each begins and where its second side, and what stage and column made it."""

    start: Any
    split: Any
    stage: Any
    column: Any


class Tiles(NamedTuple):
    """The cell of each tile, where it ends, the error of that, and the column and pair of the wall that it ends at."""

    cell: Any
    end: Any
    error: Any
    end_column: Any
    end_pair: Any


class Choices(NamedTuple):
    """Labels (cell, column), the stage of each column, and whether its choice is continuous."""

    labels: Any
    stage: Any
    is_continuous: Any


@borrowing(nogil=True)
def _is_same_wall(a, b, group_column, group_stage, tiles, choices):
    """Whether two tiles end at the same point because the same wall made it."""
    column = tiles.end_column[a]
    if column != tiles.end_column[b] or tiles.end_pair[a] != tiles.end_pair[b]:
        return False
    stage, labels = choices.stage, choices.labels
    if column < 0 or stage[column] <= group_stage:
        return True
    if choices.is_continuous[group_column] == 0:
        return False
    for k in range(labels.shape[1]):
        if stage[k] < stage[column] and k != group_column and labels[tiles.cell[a], k] != labels[tiles.cell[b], k]:
            return False
    return True


@kernel(nogil=True)
def merge_tilings(lines, tiles, choices, out_pairs, out_doubt):
    """Overlaps of two tilings of a segment, group by group.

    Group g owns tiles ``start[g] : start[g + 1]`` in order along its line, those before ``split[g]`` on
    one side and the rest on the other. Two ends are the same point if they were made
    by the same wall: of an earlier or the same stage, or of a later one when the choice that made the line is
    continuous and nothing else was chosen differently before. Rounding is monotone, so that low ends above high ends
    as floats are so in truth. Returns the numbers of overlapping pairs and of
    groups in which the order of two ends is not certain (their pairs are left out).
    """
    group_start, split, end, error = lines.start, lines.split, tiles.end, tiles.error
    n_pairs, n_doubt = 0, 0
    for g in range(len(split)):
        a, b = group_start[g], split[g]
        a_end, b_end = split[g], group_start[g + 1]
        before = n_pairs
        sure = a < a_end and b < b_end
        for i in range(group_start[g], group_start[g + 1] - 1):  # the order within a row must be certain
            if i + 1 != split[g] and not end[i + 1] - error[i + 1] > end[i] + error[i]:
                sure = False
        while sure and a < a_end and b < b_end:
            out_pairs[n_pairs, 0] = a
            out_pairs[n_pairs, 1] = b
            n_pairs += 1
            if a + 1 == a_end and b + 1 == b_end:
                a += 1
                b += 1
            elif end[a] - error[a] > end[b] + error[b]:
                b += 1
            elif end[b] - error[b] > end[a] + error[a]:
                a += 1
            else:
                if not _is_same_wall(a, b, lines.column[g], lines.stage[g], tiles, choices):
                    sure = False
                    break
                a += 1
                b += 1
        if not sure or a < a_end or b < b_end:
            n_pairs = before
            out_doubt[n_doubt] = g
            n_doubt += 1
    return n_pairs, n_doubt

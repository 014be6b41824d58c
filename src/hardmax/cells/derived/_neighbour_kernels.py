"""Compiled sweep of neighbours.py: two tilings of one line, merged."""

# mypy: ignore-errors

from hardmax.exact.compiling import kernel


@kernel(nogil=True)
def merge_tilings(
    group_start,
    split,
    column_stage,
    group_column,
    is_continuous,
    cell,
    end,
    error,
    end_column,
    end_pair,
    labels,
    stage_of_column,
    out_pairs,
    out_doubt,
):
    """Overlaps of two tilings of a segment, group by group.

    Group g owns tiles ``group_start[g] : group_start[g + 1]`` in order along its line, those before ``split[g]`` on
    one side and the rest on the other; ``end`` is where a tile ends. Two ends are the same point if they were made
    by the same wall: of an earlier or the same stage, or of a later one when the choice that made the line is
    continuous and nothing else was chosen differently before. Rounding is monotone, so that low ends above high ends
    as floats are so in truth. Returns the numbers of overlapping pairs and of
    groups in which the order of two ends is not certain (their pairs are left out).
    """
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
                same = end_column[a] == end_column[b] and end_pair[a] == end_pair[b]
                if same and end_column[a] >= 0 and stage_of_column[end_column[a]] > column_stage[g]:
                    same = is_continuous[group_column[g]] != 0
                    if same:
                        for k in range(labels.shape[1]):
                            if (
                                stage_of_column[k] < stage_of_column[end_column[a]]
                                and k != group_column[g]
                                and labels[cell[a], k] != labels[cell[b], k]
                            ):
                                same = False
                                break
                if not same:
                    sure = False
                    break
                a += 1
                b += 1
        if not sure or a < a_end or b < b_end:
            n_pairs = before
            out_doubt[n_doubt] = g
            n_doubt += 1
    return n_pairs, n_doubt

"""Compiled stages in space: split each polytope of a batch by every choice, depth first.

The waiting polytopes lie on a stack; a child inherits only the choices that still cross its parent. An
argmax walks from winner to winner across facets (``_winner_kernels``).

Arrays are passed one by one on purpose: bundles of them are counted in and out at every call, which costs
more than the cutting.
"""

# mypy: ignore-errors

from collections import namedtuple

import numpy as np

from hardmax.cells.engines.space._kernels import (
    FAILED,
    NEGATIVE,
    NO_ROOM,
    NO_SLOT,
    NONE,
    ONE,
    POSITIVE,
    UNKNOWN,
    Mode,
    all_signs,
    crossings,
    keep,
)
from hardmax.cells.engines.space._winner_kernels import (
    COLUMN,
    EMPTY,
    IS_RELU,
    RIVAL_BITS,
    SIZE,
    START,
    across,
    ahead,
    claim,
    first_equal,
    is_far,
    lead_bounds,
    leader,
    mark_dropped,
    set_home,
    set_limits,
    set_reach,
    violator,
)
from hardmax.exact.compiling import inner, kernel

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = inner(nogil=True, error_model="numpy")

OPEN = -1  # a choice that is not the same on all of a polytope, as far as is known
DONE, OUTPUT_FULL, WORKSPACE_FULL, MORE_WORDS = 0, 1, 2, 3

Output = namedtuple("Output", "parents labels vertex_start corners bits facet_start walls lines")


@_jit
def _load_row(coef, error, r, row):
    for k in range(len(error)):
        row[0, k], row[1, k], row[2, k] = coef[r, k], 0.0, error[k]


@_jit
def _still_open(coef, terms, error, table, limits, dropped, corners, bits, lines, n, n_slots, groups, n_groups, labels,
                row, values, signs, ties, gaps, scores, reach, mode, argmax):  # fmt: skip
    """Decide the groups that do not cross the polytope; returns how many stay open, in order."""
    dim, infinite = mode.dim, mode.infinite
    set_reach(corners, n, error, reach, mode)
    n_open = 0
    for position in range(n_groups):
        g = groups[position]
        r = table[g, START]
        bound, far_bound = lead_bounds(limits, reach, g, mode)
        if table[g, IS_RELU]:
            positive, negative, unknown = False, False, False
            for i in range(n):
                start, limit, value = 0, bound, coef[r, 0]
                if infinite and is_far(corners, i, mode):
                    start, limit, value = dim, far_bound, 0.0
                for c in range(dim):
                    value += coef[r, c + 1] * corners[i, start + c]
                positive = positive or value > limit
                negative = negative or value < -limit
                unknown = unknown or not abs(value) > limit
                if positive and negative:
                    break
            label = 1 if positive else 0
            if positive and negative:
                label = OPEN
            elif unknown:
                _load_row(coef, error, r, row)
                found = all_signs(corners, bits, lines, n, n_slots, row, values, signs, mode)
                label = 1 if found & POSITIVE else 0
                if found & UNKNOWN or found == POSITIVE | NEGATIVE:
                    label = OPEN
        elif argmax is None:
            label = OPEN
        else:
            own = leader(terms, table, dropped, g, corners, scores, mode)
            label = first_equal(coef, table, dropped, g, own, mode) - r
            for i in range(n):
                rival = violator(coef, terms, error, table, dropped, g, corners, bits, lines, n_slots, i, own, bound,
                                 far_bound, ties, gaps, scores, row, values, mode)  # fmt: skip
                if rival != -1:
                    label = OPEN
                    break
        if label == OPEN:
            groups[n_open] = g
            n_open += 1
        else:
            labels[g] = label
    return n_open


# --- the stack -------------------------------------------------------------------------------------
# s_corners, s_bits, s_lines: the polytopes one after another; s_ends: where the corners and slots of each end;
# s_numbers: the labels of the candidates (choices open on the whole piece), the open groups, their number.


@_jit
def _copy_rows(source, first, n, target, to):
    for i in range(n):
        for c in range(source.shape[1]):
            target[to + i, c] = source[first + i, c]


@_jit
def _push(s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners, bits, lines, n, n_slots, candidates,
          n_candidates, groups, n_groups, labels):  # fmt: skip
    """Put a polytope on the stack with all open groups but the first; returns the new depth, or NO_ROOM."""
    corner, slot = s_ends[depth, 0], s_ends[depth, 1]
    if depth == len(s_numbers) or corner + n > len(s_corners) or slot + n_slots > len(s_lines):
        return NO_ROOM
    _copy_rows(corners, 0, n, s_corners, corner)
    _copy_rows(bits, 0, n, s_bits, corner)
    _copy_rows(lines, 0, n_slots, s_lines, slot)
    for c in range(n_candidates):
        s_numbers[depth, c] = labels[candidates[c]]
    for g in range(1, n_groups):
        s_numbers[depth, n_candidates + g] = groups[g]
    s_numbers[depth, n_candidates] = n_groups - 1
    s_ends[depth + 1, 0], s_ends[depth + 1, 1] = corner + n, slot + n_slots
    return depth + 1


@_jit
def _pop(s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners, bits, lines, candidates, n_candidates,
         groups, labels):  # fmt: skip
    """Take the last polytope off the stack: its corners, slots and open groups."""
    corner, slot = s_ends[depth - 1, 0], s_ends[depth - 1, 1]
    n, n_slots = s_ends[depth, 0] - corner, s_ends[depth, 1] - slot
    _copy_rows(s_corners, corner, n, corners, 0)
    _copy_rows(s_bits, corner, n, bits, 0)
    _copy_rows(s_lines, slot, n_slots, lines, 0)
    for c in range(n_candidates):
        labels[candidates[c]] = s_numbers[depth - 1, c]
    n_groups = np.int64(s_numbers[depth - 1, n_candidates])
    for g in range(n_groups):
        groups[g] = s_numbers[depth - 1, n_candidates + 1 + g]
    return n, n_slots, n_groups


@_jit
def _write(output, child, used, facets, parent, corners, bits, lines, n, n_slots, labels):
    """Write a finished child; returns corners and facets used so far, -1 where the output is full."""
    out_corners, out_bits, out_lines, out_walls = output.corners, output.bits, output.lines, output.walls
    if child >= len(output.parents) or used + n > len(out_corners) or facets + n_slots > len(out_walls):
        return -1, 0
    output.parents[child] = parent
    for g in range(len(labels)):
        output.labels[child, g] = labels[g]
    for i in range(n):
        for c in range(out_corners.shape[1]):
            out_corners[used + i, c] = corners[i, c]
        for w in range(bits.shape[1]):
            out_bits[used + i, w] = NONE
    kept, width = 0, out_lines.shape[1]
    for slot in range(n_slots):  # slots in use move together
        word, shift = slot >> 6, np.uint64(slot & 63)
        to_word, to_bit = kept >> 6, ONE << np.uint64(kept & 63)
        is_used = False
        for i in range(n):
            if (bits[i, word] >> shift) & ONE:
                is_used = True
                out_bits[used + i, to_word] |= to_bit
        if is_used:
            out_walls[facets + kept] = np.int64(lines[slot, width])
            for c in range(width):
                out_lines[facets + kept, c] = lines[slot, c]
            kept += 1
    output.vertex_start[child + 1] = used + n
    output.facet_start[child + 1] = facets + kept
    return used + n, facets + kept


# --- all pieces ------------------------------------------------------------------------------------


@kernel(nogil=True, error_model="numpy")
def cut_polytopes(
    first_piece, vertex_start, in_corners, in_bits, facet_start, in_walls, in_lines, rows, errors, table, twin,
    group_of_row, certified, infinite, dim, count_only, output, doubtful, limit, capacity, words, argmax,
):  # fmt: skip
    """Split polytopes ``first_piece`` onward by every choice of a stage.

    ``table``: first row, number of rows, whether a ReLU, and label column of each choice. Returns (next piece,
    children, corners written, facets written, doubtful pieces, status). Status: DONE, OUTPUT_FULL (call
    again from the next piece with fresh output; so after ``limit`` children), WORKSPACE_FULL or MORE_WORDS (call again
    with more).
    ``capacity`` bounds the corners of one polytope, ``words`` its facets in 64s. ``argmax`` is None where every choice
    is a ReLU: the rest is then not even compiled.
    """
    n_pieces, n_all, n_rows = len(vertex_start) - 1, len(table), rows.shape[2]
    width, columns, room, nodes = in_corners.shape[1], 2 * dim if infinite else dim, 64 * capacity, 16 * capacity
    # three polytopes: the one being cut (a), a part of it (b), room for the next part (c)
    corners_a, corners_b = np.zeros((capacity, width + 1)), np.zeros((capacity, width + 1))
    corners_c, new_corners = np.zeros((capacity, width + 1)), np.empty((capacity, width))
    bits_a, bits_b = np.empty((capacity, words), dtype=np.uint64), np.empty((capacity, words), dtype=np.uint64)
    bits_c, new_bits = np.empty((capacity, words), dtype=np.uint64), np.empty((capacity, words), dtype=np.uint64)
    lines_a, lines_b = np.empty((64 * words, dim + 4)), np.empty((64 * words, dim + 4))
    lines_c = np.empty((64 * words, dim + 4))
    s_corners, s_bits = np.empty((room, width + 1)), np.empty((room, words), dtype=np.uint64)
    s_lines, s_numbers = np.empty((room, dim + 4)), np.empty((nodes, 2 * n_all + 1), dtype=np.int32)
    s_ends = np.zeros((nodes + 1, 2), dtype=np.int64)
    coef, error, row = np.empty((n_rows, dim + 1)), np.empty(dim + 1), np.empty((3, dim + 1))
    terms, scores = np.empty((dim + 1, n_rows)), np.empty(n_rows)  # terms: the transpose of coef
    limits, reach = np.empty((n_all, dim + 2)), np.empty(2 * dim + 4)
    dropped = np.zeros(n_rows, dtype=np.uint8)
    values, signs = np.empty((capacity, 4)), np.empty(capacity, dtype=np.int64)
    sides, ends = np.empty((capacity, 4), dtype=np.int64), np.empty((capacity, 2), dtype=np.int64)
    system = np.empty((4 * dim, 2 * dim + 4))
    ties, queue = np.empty(n_rows + 1, dtype=np.int64), np.empty(n_rows + 1, dtype=np.int64)
    seen, gaps, homes = np.zeros(n_rows, dtype=np.uint8), np.zeros(n_rows), np.zeros((n_rows, dim))
    groups, labels = np.empty(n_all, dtype=np.int64), np.zeros(n_all, dtype=np.int64)
    candidates = np.empty(n_all, dtype=np.int64)
    children, used, facets, n_doubtful = 0, 0, 0, 0
    for piece in range(first_piece, n_pieces):
        if children >= limit:
            return piece, children, used, facets, n_doubtful, OUTPUT_FULL
        before = (children, used, facets)
        n = vertex_start[piece + 1] - vertex_start[piece]
        n_slots = facet_start[piece + 1] - facet_start[piece]
        if n > capacity:
            return piece, children, used, facets, n_doubtful, WORKSPACE_FULL
        if n_slots > 64 * words:
            return piece, children, used, facets, n_doubtful, MORE_WORDS
        for i in range(n):
            at = vertex_start[piece] + i
            for c in range(width):
                corners_a[i, c] = in_corners[at, c]
            for w in range(words):
                bits_a[i, w] = in_bits[at, w] if w < in_bits.shape[1] else NONE
        for s in range(n_slots):
            for c in range(dim + 3):
                lines_a[s, c] = in_lines[facet_start[piece] + s, c]
            lines_a[s, dim + 3] = in_walls[facet_start[piece] + s]
        exact = certified
        for k in range(dim + 1):
            error[k] = errors[piece, k]
            exact = exact and error[k] == 0.0
            for r in range(n_rows):
                coef[r, k] = terms[k, r] = rows[piece, k, r]
        mode = Mode(dim, columns, infinite, certified, exact)
        set_limits(coef, error, table, limits, dim)
        set_reach(corners_a, n, error, reach, mode)
        n_groups = 0
        for g in range(n_all):
            if argmax is not None and not table[g, IS_RELU]:
                bound, far_bound = lead_bounds(limits, reach, g, mode)
                mark_dropped(terms, table, bound, far_bound, dropped, g, twin, corners_a, n, scores, mode)
            if not table[g, IS_RELU] or twin[table[g, START]] == table[g, START]:
                groups[n_groups] = g
                n_groups += 1
        n_open = _still_open(coef, terms, error, table, limits, dropped, corners_a, bits_a, lines_a, n, n_slots, groups,
                             n_groups, labels, row, values, signs, ties, gaps, scores, reach, mode, argmax)  # fmt: skip
        n_candidates = n_open
        for c in range(n_candidates):
            candidates[c] = groups[c]
        depth, is_first = 0, True
        while depth > 0 or (is_first and depth == 0):
            if is_first:
                is_first = False
            else:
                n, n_slots, n_groups = _pop(s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners_a, bits_a,
                                            lines_a, candidates, n_candidates, groups, labels)  # fmt: skip
                depth -= 1
                n_open = _still_open(coef, terms, error, table, limits, dropped, corners_a, bits_a, lines_a, n,
                                     n_slots, groups, n_groups, labels, row, values, signs, ties, gaps, scores,
                                     reach, mode, argmax)  # fmt: skip
            if n_open == 0:
                if not count_only:
                    for g in range(n_all):
                        if table[g, IS_RELU]:
                            labels[g] = labels[group_of_row[twin[table[g, START]]]]
                    used, facets = _write(output, children, used, facets, piece, corners_a, bits_a, lines_a, n,
                                          n_slots, labels)  # fmt: skip
                    if used < 0:
                        return piece, before[0], before[1], before[2], n_doubtful, OUTPUT_FULL
                children += 1
                continue
            g, start = groups[0], table[groups[0], START]
            wall = table[g, COLUMN] << RIVAL_BITS
            if table[g, IS_RELU]:
                _load_row(coef, error, start, row)
                found = all_signs(corners_a, bits_a, lines_a, n, n_slots, row, values, signs, mode)
                if found & UNKNOWN:
                    depth = FAILED
                    break
                n_new = 0
                if found == POSITIVE | NEGATIVE:
                    n_new = crossings(corners_a, bits_a, lines_a, n, n_slots, row, values, signs, sides, ends,
                                      new_corners, new_bits, system, mode)  # fmt: skip
                if n_new < 0:
                    depth = n_new
                    break
                for label in range(2):
                    if not found & (POSITIVE if label else NEGATIVE):
                        continue
                    m, m_slots = keep(corners_a, bits_a, lines_a, n, n_slots, signs, 2 * label - 1, new_corners,
                                      new_bits, n_new, row, wall | (1 - label), corners_b, bits_b, lines_b,
                                      mode)  # fmt: skip
                    if m < 0:
                        depth = m
                        break
                    if m <= dim and not certified:  # a sliver within rounding
                        continue
                    labels[g] = label
                    depth = _push(s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners_b, bits_b, lines_b,
                                  m, m_slots, candidates, n_candidates, groups, n_open, labels)  # fmt: skip
                    if depth < 0:
                        break
                continue
            if argmax is None:
                continue
            # One of the rows that may win at a corner wins on an open set beside it.
            set_reach(corners_a, n, error, reach, mode)
            bound, far_bound = lead_bounds(limits, reach, g, mode)
            for k in range(table[g, SIZE]):
                seen[k] = 0
            first = leader(terms, table, dropped, g, corners_a, scores, mode)
            n_ties = ahead(terms, table, dropped, g, corners_a, 0, first, bound, far_bound, ties, gaps, scores,
                           mode)[1]  # fmt: skip
            ties[n_ties] = first
            waiting = 0
            for t in range(n_ties + 1):
                own = first_equal(coef, table, dropped, g, ties[t], mode)
                if not seen[own - start]:
                    seen[own - start] = 1
                    set_home(corners_a, bits_a, n, -1, homes, own, mode)
                    queue[waiting] = own
                    waiting += 1
            found = 0
            while waiting > 0 and depth >= 0:
                waiting -= 1
                own = queue[waiting]
                m, m_slots = claim(coef, terms, error, table, limits, dropped, g, corners_a, bits_a, lines_a, n,
                                   n_slots, own, corners_b, bits_b, lines_b, corners_c, bits_c, lines_c, new_corners,
                                   new_bits, row, values, signs, sides, ends, system, ties, gaps, homes,
                                   scores, reach, mode)  # fmt: skip
                if m == EMPTY:
                    continue
                if m < 0:
                    depth = m
                    break
                set_reach(corners_b, m, error, reach, mode)
                bound, far_bound = lead_bounds(limits, reach, g, mode)
                for slot in range(m_slots):
                    if np.int64(lines_b[slot, dim + 3]) >> RIVAL_BITS != table[g, COLUMN]:
                        continue
                    rival = across(coef, terms, error, table, bound, far_bound, dropped, g, corners_b, bits_b, lines_b,
                                   m, m_slots, slot, own, row, values, scores, mode)  # fmt: skip
                    if rival == FAILED:
                        depth = FAILED
                        break
                    if rival < 0:  # the slot holds no facet any more
                        continue
                    lines_b[slot, dim + 3] = wall | (rival - start)
                    if not seen[rival - start]:
                        seen[rival - start] = 1
                        set_home(corners_b, bits_b, m, slot, homes, rival, mode)
                        queue[waiting] = rival
                        waiting += 1
                if depth < 0:
                    break
                labels[g] = own - start
                found += 1
                depth = _push(s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners_b, bits_b, lines_b, m,
                              m_slots, candidates, n_candidates, groups, n_open, labels)  # fmt: skip
            if found == 0 and depth >= 0:
                labels[g] = first - start
                depth = FAILED if certified else _push(
                    s_corners, s_bits, s_lines, s_numbers, s_ends, depth, corners_a, bits_a, lines_a, n, n_slots,
                    candidates, n_candidates, groups, n_open, labels,
                )  # fmt: skip
        if depth == FAILED:
            doubtful[n_doubtful] = piece
            n_doubtful += 1
            children, used, facets = before
        elif depth < 0:
            status = MORE_WORDS if depth == NO_SLOT else WORKSPACE_FULL
            return piece, before[0], before[1], before[2], n_doubtful, status
    return n_pieces, children, used, facets, n_doubtful, DONE

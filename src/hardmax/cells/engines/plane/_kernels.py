"""Compiled polygon cutting: one call splits a batch of convex polygons by all choices of a stage.

Signs are decided by floats when they clear a proved bound, else by exact determinants when the lines
involved are exact floats, else the polygon is given up as doubtful and settled in rationals by the
caller. Zero signs are legitimate answers: a wall through a corner cuts no sliver. The layout of a
polygon is that of _polygon_signs.py.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.plane._polygon_parts import copy_row, keep_side, polygon_area
from hardmax.cells.engines.plane._polygon_signs import (
    COLUMNS,
    ERROR,
    RIVAL_BITS,
    X,
    Y,
    jit,
    line_signs,
    one_sided,
    overflows,
    row_ranges,
)
from hardmax.cells.engines.plane._polygon_winners import interior_winner, name_neighbours, winner_cell
from hardmax.exact.compiling import kernel


@jit
def _inherit(
    numbers,
    frame,
    n_candidates,
    pending,
    first,
    count,
    candidate,
    is_relu,
    group_start,
    rows,
    body,
    n,
    errors,
    certified,
):
    """Hand a child the pending choices that still cross it, and settle the labels of those that do not.

    ``frame`` is where the child's numbers start: labels, then pending choices. Returns how many are left. The
    source may be the child's own list, since writing never overtakes reading.
    """
    left = 0
    for k in range(count):
        slot = pending[first + k]
        group = candidate[slot]
        if is_relu[group]:
            r = group_start[group]
            sign = one_sided(body, n, rows[0, r], rows[1, r], rows[2, r], errors[0], errors[1], errors[2], certified)
            if sign != 0:
                numbers[frame + slot] = 1 if sign == 1 else 0
                continue
        numbers[frame + n_candidates + left] = slot
        left += 1
    return left


@kernel(nogil=True)
def cut_polygons(
    first_piece,
    start,
    corners,
    walls,
    rows,
    errors,
    certified,
    group_start,
    group_size,
    is_relu,
    columns,
    twin,
    group_of_row,
    count_only,
    counts,
    out_parent,
    out_labels,
    out_start,
    out_corners,
    out_walls,
    doubtful,
    max_corners,
    pool_size,
    argmax,
):
    """Split polygons ``first_piece`` onward by every choice of a stage.

    Returns (next piece, children, corners written, doubtful pieces, status): status 0 all done, 1 output
    full (call again from the next piece with fresh output), 2 workspace full (call again with more). ``argmax`` is
    None where every choice is a ReLU: the rest is then not even compiled.
    """
    n_pieces = len(start) - 1
    n_groups = len(group_start)
    n_rows = rows.shape[2]
    low, high = np.empty(n_rows), np.empty(n_rows)
    base = np.zeros(n_groups, dtype=np.int64)
    candidate = np.empty(n_groups, dtype=np.int64)  # group of each candidate
    alias_from = np.empty(n_groups, dtype=np.int64)
    alias_to = np.empty(n_groups, dtype=np.int64)
    dropped = np.zeros(n_rows, dtype=np.uint8)
    most_keys = 1
    for g in range(n_groups):
        most_keys = max(most_keys, group_size[g])
    visited = np.zeros(most_keys, dtype=np.uint8)
    beaten = np.zeros(most_keys, dtype=np.uint8)
    live = np.zeros(most_keys, dtype=np.uint8)
    queue = np.empty(most_keys, dtype=np.int64)
    polygon = np.empty((max_corners, COLUMNS))
    polygon_walls = np.empty(max_corners, dtype=np.int64)
    work = np.empty((max_corners, COLUMNS))
    work_walls = np.empty(max_corners, dtype=np.int64)
    other = np.empty((max_corners, COLUMNS))
    other_walls = np.empty(max_corners, dtype=np.int64)
    signs = np.empty(max_corners, dtype=np.int64)
    values, bounds = np.empty(max_corners), np.empty(max_corners)
    checked = np.empty(max_corners, dtype=np.int64)
    row, terms = np.empty(6), np.empty(24)
    sizes = np.empty(3)
    # a stack of frames: polygon, labels of the candidates, candidates still to decide
    pool = np.empty((pool_size, COLUMNS))
    pool_walls = np.empty(pool_size, dtype=np.int64)
    numbers = np.empty(4 * pool_size, dtype=np.int32)
    frame_corner = np.empty(pool_size, dtype=np.int64)
    frame_number = np.empty(pool_size, dtype=np.int64)
    frame_corners = np.empty(pool_size, dtype=np.int64)
    frame_pending = np.empty(pool_size, dtype=np.int64)
    children, used, n_doubtful = 0, 0, 0
    for piece in range(first_piece, n_pieces):
        children_before, used_before = children, used
        counts[piece] = 0
        n = start[piece + 1] - start[piece]
        if n + 2 > max_corners:
            return piece, children, used, n_doubtful, 2
        for i in range(n):
            copy_row(polygon, i, corners, start[piece] + i)
            polygon_walls[i] = walls[start[piece] + i]
        e0, e1, e2 = errors[piece, 0], errors[piece, 1], errors[piece, 2]
        exact_rows = e0 == 0.0 and e1 == 0.0 and e2 == 0.0
        far_x, far_y, drift = 0.0, 0.0, 0.0
        for i in range(n):
            far_x = max(far_x, abs(polygon[i, X]))
            far_y = max(far_y, abs(polygon[i, Y]))
            drift = max(drift, polygon[i, ERROR])
        if overflows(rows[piece], far_x, far_y):
            doubtful[n_doubtful] = piece
            n_doubtful += 1
            continue
        row_ranges(rows[piece], polygon, n, errors[piece], certified, far_x, far_y, drift, low, high)
        n_candidates, n_aliases = 0, 0
        for g in range(n_groups):
            r = group_start[g]
            if is_relu[g]:
                if low[r] > 0.0:
                    base[g] = 1
                    continue
                if high[r] < 0.0:
                    base[g] = 0
                    continue
                c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                sign = one_sided(polygon, n, c0, c1, c2, e0, e1, e2, certified)
                if sign != 0:
                    base[g] = 1 if sign == 1 else 0
                elif exact_rows and c0 == 0.0 and c1 == 0.0 and c2 == 0.0:
                    base[g] = 0
                elif twin[r] != r:
                    alias_from[n_aliases] = g
                    alias_to[n_aliases] = group_of_row[twin[r]]
                    n_aliases += 1
                    base[g] = -1
                else:
                    candidate[n_candidates] = g
                    n_candidates += 1
                    base[g] = -1
            else:
                size = group_size[g]
                best = r
                for k in range(r, r + size):
                    if low[k] > low[best]:
                        best = k
                clear = True
                for k in range(r, r + size):
                    if k != best and not high[k] < low[best]:
                        clear = False
                        break
                if clear or size == 1:
                    base[g] = best - r
                else:
                    candidate[n_candidates] = g
                    n_candidates += 1
                    base[g] = -1
        # rows known to equal an earlier row of their group never win
        for c in range(n_candidates):
            g = candidate[c]
            if is_relu[g]:
                continue
            r = group_start[g]
            for k in range(r, r + group_size[g]):
                dropped[k] = 1 if twin[k] != k else 0
        trouble = False
        # the root frame
        need = n_candidates * 2
        if n > pool_size or need > 4 * pool_size:
            return piece, children_before, used_before, n_doubtful, 2
        for i in range(n):
            copy_row(pool, i, polygon, i)
            pool_walls[i] = polygon_walls[i]
        for c in range(n_candidates):
            numbers[c] = -1
            numbers[n_candidates + c] = c
        frame_corner[0], frame_number[0], frame_corners[0], frame_pending[0] = 0, 0, n, n_candidates
        top = 1
        while top > 0:
            top -= 1
            n = frame_corners[top]
            corner_at, number_at = frame_corner[top], frame_number[top]
            n_pending = frame_pending[top]
            for i in range(n):
                copy_row(polygon, i, pool, corner_at + i)
                polygon_walls[i] = pool_walls[corner_at + i]
            # decide pending candidates until one splits the polygon
            pending_at = number_at + n_candidates
            done = 0
            split = False
            while done < n_pending:
                c = numbers[pending_at + done]
                g = candidate[c]
                done += 1
                r = group_start[g]
                if is_relu[g]:
                    c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                    found = line_signs(
                        polygon, n, c0, c1, c2, e0, e1, e2, exact_rows, certified, signs, values, bounds, terms
                    )
                    if found & 4:
                        trouble = True
                        break
                    if found != 3:
                        numbers[number_at + c] = 1 if found == 1 else 0
                        continue
                    split = True
                    break
                if argmax is None:
                    continue
                # an argmax: the cells of its winners, found from one to the next across their walls
                size = group_size[g]
                for k3 in range(3):
                    sizes[k3] = 0.0
                    for k in range(r, r + size):
                        sizes[k3] = max(sizes[k3], abs(rows[piece, k3, k]))
                begin = interior_winner(polygon, n, rows[piece], errors[piece], r, size, dropped, certified, sizes)
                if begin < 0 and certified:
                    trouble = True
                    break
                if begin < 0:
                    begin = 0
                    while begin < size - 1 and dropped[r + begin]:
                        begin += 1
                for k in range(size):
                    visited[k] = 0
                    live[k] = 0
                top_before = top
                queue[0] = begin
                visited[begin] = 1
                head, tail = 0, 1
                # frames of the winners replace this one; labels and pending are copied from it
                rest = n_pending - done
                keep_labels = numbers[number_at : number_at + n_candidates].copy()
                keep_pending = numbers[pending_at + done : pending_at + n_pending].copy()
                corner_top, number_top = corner_at, number_at
                area_left = polygon_area(polygon, n)
                full = False
                while head < tail:
                    j = queue[head]
                    head += 1
                    for k in range(size):
                        beaten[k] = 0
                    m = winner_cell(
                        polygon,
                        polygon_walls,
                        n,
                        j,
                        rows[piece],
                        errors[piece],
                        r,
                        size,
                        dropped,
                        columns[g],
                        certified,
                        sizes,
                        work,
                        work_walls,
                        other,
                        other_walls,
                        signs,
                        values,
                        bounds,
                        row,
                        terms,
                        beaten,
                        checked,
                    )
                    if m == -1:
                        trouble = True
                        break
                    if m == -2:
                        full = True
                        break
                    if m == 0:
                        for k in range(size):
                            if beaten[k] and not visited[k]:
                                visited[k] = 1
                                queue[tail] = k
                                tail += 1
                        continue
                    for i in range(m):
                        if work_walls[i] >> RIVAL_BITS == columns[g]:
                            k = work_walls[i] & ((1 << RIVAL_BITS) - 1)
                            if not visited[k]:
                                visited[k] = 1
                                queue[tail] = k
                                tail += 1
                    live[j] = 1
                    area_left -= polygon_area(work, m)
                    if (
                        corner_top + m > pool_size
                        or number_top + n_candidates * 2 > 4 * pool_size
                        or top + 1 > pool_size
                    ):
                        full = True
                        break
                    for i in range(m):
                        copy_row(pool, corner_top + i, work, i)
                        pool_walls[corner_top + i] = work_walls[i]
                    for k in range(n_candidates):
                        numbers[number_top + k] = keep_labels[k]
                    numbers[number_top + c] = j
                    left = _inherit(
                        numbers,
                        number_top,
                        n_candidates,
                        keep_pending,
                        0,
                        rest,
                        candidate,
                        is_relu,
                        group_start,
                        rows[piece],
                        work,
                        m,
                        errors[piece],
                        certified,
                    )
                    frame_corner[top], frame_number[top] = corner_top, number_top
                    frame_corners[top], frame_pending[top] = m, left
                    top += 1
                    corner_top += m
                    number_top += n_candidates + left
                if not trouble and not full:
                    trouble = not name_neighbours(
                        pool,
                        pool_walls,
                        frame_corner,
                        frame_corners,
                        top_before,
                        top,
                        columns[g],
                        c,
                        numbers,
                        frame_number,
                        rows[piece],
                        errors[piece],
                        r,
                        size,
                        live,
                        certified,
                        row,
                        terms,
                    )
                if full:
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                if trouble:
                    break
                # A net below the proof, which is the walk: every wall names a rival that was visited. The constant
                # accepts nothing, it only sends a piece to rationals whose parts do not add up.
                if certified and abs(area_left) > 1e-6 * polygon_area(polygon, n) + 1e-300:
                    trouble = True
                    break
                done = -1
                break
            if trouble:
                break
            if done == -1:
                continue
            if split:
                c = numbers[pending_at + done - 1]
                g = candidate[c]
                r = group_start[g]
                c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                rest = n_pending - done
                if n + 2 > max_corners:
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                row[0], row[1], row[2], row[3], row[4], row[5] = c0, c1, c2, e0, e1, e2
                m1 = keep_side(
                    polygon,
                    polygon_walls,
                    n,
                    signs,
                    values,
                    bounds,
                    1,
                    row,
                    certified,
                    columns[g] << RIVAL_BITS,
                    work,
                    work_walls,
                )
                m2 = keep_side(
                    polygon,
                    polygon_walls,
                    n,
                    signs,
                    values,
                    bounds,
                    -1,
                    row,
                    certified,
                    (columns[g] << RIVAL_BITS) | 1,
                    other,
                    other_walls,
                )
                if m1 < 0 or m2 < 0:
                    trouble = True
                    break
                second_corner = corner_at + m1
                second_number = number_at + n_candidates + n_pending
                if (
                    second_corner + m2 > pool_size
                    or second_number + n_candidates + rest > 4 * pool_size
                    or top + 2 > pool_size
                ):
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                for i in range(m2):
                    copy_row(pool, second_corner + i, other, i)
                    pool_walls[second_corner + i] = other_walls[i]
                for i in range(m1):
                    copy_row(pool, corner_at + i, work, i)
                    pool_walls[corner_at + i] = work_walls[i]
                for k in range(n_candidates):
                    numbers[second_number + k] = numbers[number_at + k]
                numbers[second_number + c] = 0
                left_second = _inherit(
                    numbers,
                    second_number,
                    n_candidates,
                    numbers,
                    pending_at + done,
                    rest,
                    candidate,
                    is_relu,
                    group_start,
                    rows[piece],
                    other,
                    m2,
                    errors[piece],
                    certified,
                )
                numbers[number_at + c] = 1
                left = _inherit(
                    numbers,
                    number_at,
                    n_candidates,
                    numbers,
                    pending_at + done,
                    rest,
                    candidate,
                    is_relu,
                    group_start,
                    rows[piece],
                    work,
                    m1,
                    errors[piece],
                    certified,
                )
                frame_corner[top], frame_number[top] = corner_at, number_at
                frame_corners[top], frame_pending[top] = m1, left
                top += 1
                frame_corner[top], frame_number[top] = second_corner, second_number
                frame_corners[top], frame_pending[top] = m2, left_second
                top += 1
                continue
            # nothing left to decide: a child
            counts[piece] += 1
            if count_only:
                children += 1
                continue
            if children + 1 > len(out_parent) or used + n > len(out_walls):
                counts[piece] = 0
                return piece, children_before, used_before, n_doubtful, 1
            out_parent[children] = piece
            for g2 in range(n_groups):
                out_labels[children, g2] = base[g2]
            for k in range(n_candidates):
                out_labels[children, candidate[k]] = numbers[number_at + k]
            for k in range(n_aliases):
                out_labels[children, alias_from[k]] = out_labels[children, alias_to[k]]
            for i in range(n):
                copy_row(out_corners, used + i, polygon, i)
                out_walls[used + i] = polygon_walls[i]
            used += n
            children += 1
            out_start[children] = used
        if trouble:
            children, used = children_before, used_before
            counts[piece] = 0
            doubtful[n_doubtful] = piece
            n_doubtful += 1
    return n_pieces, children, used, n_doubtful, 0

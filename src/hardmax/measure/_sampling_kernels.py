"""Compiled loops of sampling: labels of many points as 64-bit codes, and a table that counts codes.

A program is a list of steps (kind, source, target, size, inner, constant, bias, shift, weight, n_in) on a file of
registers, each register one number of ``BLOCK`` points side by side, so that every inner loop runs over points and
is vectorised. Sums are taken in the order of the inputs, with fused products as in a matrix product: where weights
and points are short dyadic numbers nothing is rounded, here as in ``net.labels``.

A choice with ``n_in`` above zero computes what it compares from that many registers on the spot, so that scores and
pre-activations never go through memory.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.exact.compiling import kernel
from hardmax.measure._sampled_programs import ADD, AFFINE, BELOW, CLIP, LARGEST, RANKS, RELU, WINNER

BLOCK = 256
MOST_SELECTED = 9  # keys whose values are selected one by one; beyond, they are looked up

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio in 64 bits: the step of splitmix64


@kernel(nogil=True, inline="always")
def _mixed(code):
    """The finaliser of splitmix64, a bijection of 64-bit words."""
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return code ^ (code >> np.uint64(31))


@kernel(nogil=True)
def _draw(registers, key, first, box):
    """Coordinates low + width * (2 draw + 1) / 2^33 of points ``first`` onward, two draws from each 64-bit word.

    ``box`` (2, dim) holds the lows and the widths.
    """
    low, width = box[0], box[1]
    dim = len(low)
    n_words = np.uint64((dim + 1) // 2)
    stride = n_words * GAMMA
    unit = 0.5 / 4294967296.0
    for i in range(0, dim, 2):
        state = key + (np.uint64(first) * n_words + np.uint64(i // 2)) * GAMMA
        row, a, b = registers[i], low[i], width[i]
        if i + 1 == dim:
            for s in range(BLOCK):
                word = _mixed(state)
                state += stride
                row[s] = a + b * ((2.0 * np.float64(word & np.uint64(0xFFFFFFFF)) + 1.0) * unit)
            continue
        other, c, d = registers[i + 1], low[i + 1], width[i + 1]
        for s in range(BLOCK):
            word = _mixed(state)
            state += stride
            row[s] = a + b * ((2.0 * np.float64(word & np.uint64(0xFFFFFFFF)) + 1.0) * unit)
            other[s] = c + d * ((2.0 * np.float64(word >> np.uint64(32)) + 1.0) * unit)


@kernel(nogil=True, fastmath={"contract"})
def _affine(registers, step, constants):
    """Up to four inputs are added in one pass over the points; the bias comes last, as in a matrix product."""
    source, target, n_out, n_in = step.source, step.target, step.size, step.inner
    weight, bias = step.constant, step.bias
    first = (n_in - 1) % 4 + 1
    for out in range(n_out):
        result = registers[target + out]
        at = weight + out * n_in
        b = constants[bias + out] if bias >= 0 else 0.0
        early = b if first == n_in else 0.0
        w0, z0 = constants[at], registers[source]
        w1, w2 = constants[at + min(1, n_in - 1)], constants[at + min(2, n_in - 1)]
        w3 = constants[at + min(3, n_in - 1)]
        if first == 1:
            for s in range(BLOCK):
                result[s] = w0 * z0[s] + early
        elif first == 2:
            z1 = registers[source + 1]
            for s in range(BLOCK):
                result[s] = w0 * z0[s] + w1 * z1[s] + early
        elif first == 3:
            z1, z2 = registers[source + 1], registers[source + 2]
            for s in range(BLOCK):
                result[s] = w0 * z0[s] + w1 * z1[s] + w2 * z2[s] + early
        else:
            z1, z2, z3 = registers[source + 1], registers[source + 2], registers[source + 3]
            for s in range(BLOCK):
                result[s] = w0 * z0[s] + w1 * z1[s] + w2 * z2[s] + w3 * z3[s] + early
        for i in range(first, n_in, 4):
            w0, w1, w2, w3 = constants[at + i], constants[at + i + 1], constants[at + i + 2], constants[at + i + 3]
            z0, z1 = registers[source + i], registers[source + i + 1]
            z2, z3 = registers[source + i + 2], registers[source + i + 3]
            late = b if i + 4 == n_in else 0.0
            for s in range(BLOCK):
                result[s] = result[s] + w0 * z0[s] + w1 * z1[s] + w2 * z2[s] + w3 * z3[s] + late


@kernel(nogil=True)
def _relu(registers, step, constants, word):
    """Units in a row."""
    source, target, size, slope, shift = step.source, step.target, step.size, constants[step.constant], step.shift
    none = np.uint64(0)
    for unit in range(size):
        row, result = registers[source + unit], registers[target + unit]
        bit = np.uint64(1) << np.uint64(shift + unit)
        for s in range(BLOCK):
            v = row[s]
            word[s] |= bit if v > 0.0 else none
            result[s] = v if v > 0.0 else v * slope


@kernel(nogil=True)
def _clip(registers, step, constants, word):
    """Units in a row, each kept inside its own bound."""
    source, target, is_ceiling, bound, shift = step.source, step.target, step.inner, step.constant, step.shift
    none = np.uint64(0)
    for unit in range(step.size):
        row, result = registers[source + unit], registers[target + unit]
        b, bit = constants[bound + unit], np.uint64(1) << np.uint64(shift + unit)
        if is_ceiling:
            for s in range(BLOCK):
                v = row[s]
                word[s] |= bit if v < b else none
                result[s] = v if v < b else b
        else:
            for s in range(BLOCK):
                v = row[s]
                word[s] |= bit if v > b else none
                result[s] = v if v > b else b


@kernel(nogil=True)
def _first_largest(registers, step, best, winner):
    """The first largest of some registers, and which it is."""
    source, size = step.source, step.size
    first = registers[source]
    for s in range(BLOCK):
        best[s] = first[s]
        winner[s] = 0
    for j in range(1, size):
        rival, index = registers[source + j], np.uint64(j)
        for s in range(BLOCK):
            winner[s] = index if rival[s] > best[s] else winner[s]
            best[s] = rival[s] if rival[s] > best[s] else best[s]


@kernel(nogil=True)
def _function(constants, step, index):
    """Weights and constant term of affine function ``index``, padded with zeros; past the last, minus infinity."""
    size, bias, weight, n_in = step.size, step.bias, step.weight, step.n_in
    if index >= size:
        return 0.0, 0.0, 0.0, 0.0, -np.inf
    at = weight + index * n_in
    w1 = constants[at + 1] if n_in > 1 else 0.0
    w2 = constants[at + 2] if n_in > 2 else 0.0
    w3 = constants[at + 3] if n_in > 3 else 0.0
    return constants[at], w1, w2, w3, constants[bias + index] if bias >= 0 else 0.0


@kernel(nogil=True, fastmath={"contract"})
def _affine_relu(registers, step, constants, word):
    """``_relu`` of affine functions of at most four registers; four units in one pass over the points."""
    source, target, size, n_in = step.source, step.target, step.size, step.n_in
    slope, shift = constants[step.constant], step.shift
    one, none = np.uint64(1), np.uint64(0)
    z0, z1 = registers[source], registers[source + min(1, n_in - 1)]
    z2, z3 = registers[source + min(2, n_in - 1)], registers[source + min(3, n_in - 1)]
    whole = size - size % 4
    for unit in range(0, whole, 4):
        a0, a1, a2, a3, a = _function(constants, step, unit)
        b0, b1, b2, b3, b = _function(constants, step, unit + 1)
        c0, c1, c2, c3, c = _function(constants, step, unit + 2)
        d0, d1, d2, d3, d = _function(constants, step, unit + 3)
        r0, r1 = registers[target + unit], registers[target + unit + 1]
        r2, r3 = registers[target + unit + 2], registers[target + unit + 3]
        m0 = one << np.uint64(shift + unit)
        m1, m2, m3 = m0 << one, m0 << np.uint64(2), m0 << np.uint64(3)
        if n_in <= 2:
            for s in range(BLOCK):
                x, y = z0[s], z1[s]
                v0, v1 = a0 * x + a1 * y + a, b0 * x + b1 * y + b
                v2, v3 = c0 * x + c1 * y + c, d0 * x + d1 * y + d
                low = (m0 if v0 > 0.0 else none) | (m1 if v1 > 0.0 else none)
                word[s] |= low | ((m2 if v2 > 0.0 else none) | (m3 if v3 > 0.0 else none))
                r0[s] = v0 if v0 > 0.0 else v0 * slope
                r1[s] = v1 if v1 > 0.0 else v1 * slope
                r2[s] = v2 if v2 > 0.0 else v2 * slope
                r3[s] = v3 if v3 > 0.0 else v3 * slope
        else:
            for s in range(BLOCK):
                x, y, z, w = z0[s], z1[s], z2[s], z3[s]
                v0, v1 = a0 * x + a1 * y + a2 * z + a3 * w + a, b0 * x + b1 * y + b2 * z + b3 * w + b
                v2, v3 = c0 * x + c1 * y + c2 * z + c3 * w + c, d0 * x + d1 * y + d2 * z + d3 * w + d
                low = (m0 if v0 > 0.0 else none) | (m1 if v1 > 0.0 else none)
                word[s] |= low | ((m2 if v2 > 0.0 else none) | (m3 if v3 > 0.0 else none))
                r0[s] = v0 if v0 > 0.0 else v0 * slope
                r1[s] = v1 if v1 > 0.0 else v1 * slope
                r2[s] = v2 if v2 > 0.0 else v2 * slope
                r3[s] = v3 if v3 > 0.0 else v3 * slope
    for unit in range(whole, size):
        a0, a1, a2, a3, a = _function(constants, step, unit)
        r0, m0 = registers[target + unit], one << np.uint64(shift + unit)
        for s in range(BLOCK):
            v0 = a0 * z0[s] + a1 * z1[s] + a2 * z2[s] + a3 * z3[s] + a
            word[s] |= m0 if v0 > 0.0 else none
            r0[s] = v0 if v0 > 0.0 else v0 * slope


@kernel(nogil=True, fastmath={"contract"})
def _largest_affine(registers, step, constants, best, winner):
    """``_first_largest`` of affine functions of at most four registers; five in one pass over the points."""
    source, size, n_in = step.source, step.size, step.n_in
    z0, z1 = registers[source], registers[source + min(1, n_in - 1)]
    z2, z3 = registers[source + min(2, n_in - 1)], registers[source + min(3, n_in - 1)]
    for j in range(0, size, 5):
        is_first = j == 0
        a0, a1, a2, a3, a = _function(constants, step, j)
        b0, b1, b2, b3, b = _function(constants, step, j + 1)
        c0, c1, c2, c3, c = _function(constants, step, j + 2)
        d0, d1, d2, d3, d = _function(constants, step, j + 3)
        e0, e1, e2, e3, e = _function(constants, step, j + 4)
        k0, k1, k2 = np.uint64(j), np.uint64(j + 1), np.uint64(j + 2)
        k3, k4 = np.uint64(j + 3), np.uint64(j + 4)
        if n_in <= 2:
            for s in range(BLOCK):
                x, y = z0[s], z1[s]
                top, index = -np.inf if is_first else best[s], k0 if is_first else winner[s]
                v0, v1, v2 = a0 * x + a1 * y + a, b0 * x + b1 * y + b, c0 * x + c1 * y + c
                v3, v4 = d0 * x + d1 * y + d, e0 * x + e1 * y + e
                index, top = k0 if v0 > top else index, v0 if v0 > top else top
                index, top = k1 if v1 > top else index, v1 if v1 > top else top
                index, top = k2 if v2 > top else index, v2 if v2 > top else top
                index, top = k3 if v3 > top else index, v3 if v3 > top else top
                winner[s], best[s] = k4 if v4 > top else index, v4 if v4 > top else top
        else:
            for s in range(BLOCK):
                x, y, z, w = z0[s], z1[s], z2[s], z3[s]
                top, index = -np.inf if is_first else best[s], k0 if is_first else winner[s]
                v0, v1 = a0 * x + a1 * y + a2 * z + a3 * w + a, b0 * x + b1 * y + b2 * z + b3 * w + b
                v2, v3 = c0 * x + c1 * y + c2 * z + c3 * w + c, d0 * x + d1 * y + d2 * z + d3 * w + d
                v4 = e0 * x + e1 * y + e2 * z + e3 * w + e
                index, top = k0 if v0 > top else index, v0 if v0 > top else top
                index, top = k1 if v1 > top else index, v1 if v1 > top else top
                index, top = k2 if v2 > top else index, v2 if v2 > top else top
                index, top = k3 if v3 > top else index, v3 if v3 > top else top
                winner[s], best[s] = k4 if v4 > top else index, v4 if v4 > top else top


@kernel(nogil=True)
def _select(row, winner, constants, first, step, size):
    """The winners' numbers, ``constants[first + step * winner]``: few are selected, many are looked up."""
    if size > MOST_SELECTED:
        for s in range(BLOCK):
            row[s] = constants[first + np.int64(winner[s]) * step]
        return
    start = constants[first]
    for j in range(1, max(size, 2), 4):
        is_first = j == 1
        a, b = constants[first + step * min(j, size - 1)], constants[first + step * min(j + 1, size - 1)]
        c, d = constants[first + step * min(j + 2, size - 1)], constants[first + step * min(j + 3, size - 1)]
        k0, k1, k2, k3 = np.uint64(j), np.uint64(j + 1), np.uint64(j + 2), np.uint64(j + 3)
        for s in range(BLOCK):
            index, v = winner[s], start if is_first else row[s]
            v = a if index == k0 else v
            v = b if index == k1 else v
            v = c if index == k2 else v
            row[s] = d if index == k3 else v


@kernel(nogil=True)
def _ranks(registers, source, target, size):
    """How many of some registers are smaller than each of them; twin: ``evaluation`` has ranks with the same order."""
    for i in range(size):
        row, own = registers[target + i], registers[source + i]
        for s in range(BLOCK):
            row[s] = 0.0
        for j in range(size):
            other = registers[source + j]
            for s in range(BLOCK):
                row[s] += 1.0 if other[s] < own[s] else 0.0


@kernel(nogil=True)
def _below(registers, source, target, size, best):
    """Some registers minus the largest of them, at least -2."""
    for s in range(BLOCK):
        best[s] = registers[source, s]
    for j in range(1, size):
        other = registers[source + j]
        for s in range(BLOCK):
            best[s] = max(best[s], other[s])
    for i in range(size):
        row, own = registers[target + i], registers[source + i]
        for s in range(BLOCK):
            row[s] = max(own[s] - best[s], -2.0)


@kernel(nogil=True)
def label_codes(key, first, box, program, constants, registers, is_hashed, codes):
    """Fill ``codes`` (n,) with the codes of the labels at points ``first`` onward of the stream that ``key`` begins.

    ``box`` (2, dim) holds the lows and the widths; ``registers`` (n, BLOCK) is room to work in.

    Numpy twin: ``pack_labels`` of ``net.labels`` at ``Coder.points(Coder.draws(...))``.
    """
    n = len(codes)
    word = np.zeros(BLOCK, dtype=np.uint64)
    winner = np.zeros(BLOCK, dtype=np.uint64)
    hashed = np.zeros(BLOCK, dtype=np.uint64)
    best = np.zeros(BLOCK)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        _draw(registers, key, first + start, box)
        for s in range(BLOCK):
            word[s] = 0
            hashed[s] = 0
        for number in range(len(program)):
            step = program[number]
            kind, source, target, size, inner = step.kind, step.source, step.target, step.size, step.inner
            if kind == AFFINE:
                _affine(registers, step, constants)
            elif kind == RELU:
                if step.n_in > 0:
                    _affine_relu(registers, step, constants, word)
                else:
                    _relu(registers, step, constants, word)
            elif kind == CLIP:
                _clip(registers, step, constants, word)
            elif kind == LARGEST or kind == WINNER:
                if step.n_in > 0:
                    _largest_affine(registers, step, constants, best, winner)
                else:
                    _first_largest(registers, step, best, winner)
                for s in range(BLOCK):
                    word[s] |= winner[s] << np.uint64(step.shift)
                if kind == LARGEST:
                    registers[target] = best
                else:
                    for i in range(inner):
                        _select(registers[target + i], winner, constants, step.constant + i, inner, size)
            elif kind == RANKS:
                _ranks(registers, source, target, size)
            elif kind == BELOW:
                _below(registers, source, target, size, best)
            elif kind == ADD:
                for i in range(size):
                    row, one, two = registers[target + i], registers[source + i], registers[inner + i]
                    for s in range(BLOCK):
                        row[s] = one[s] + two[s]
            else:
                for s in range(BLOCK):
                    hashed[s] = _mixed(hashed[s] ^ word[s])
                    word[s] = 0
        if is_hashed:
            for s in range(m):
                codes[start + s] = _mixed(hashed[s] ^ word[s])
        else:
            for s in range(m):
                codes[start + s] = word[s]


@kernel(nogil=True)
def tally(codes, first, keys, counts, used):
    """Count codes[first:] into an open-addressing table until done or half full: (next code, slots used)."""
    mask = np.uint64(len(keys) - 1)
    factor = GAMMA
    limit = len(keys) // 2
    for index in range(first, len(codes)):
        code = codes[index]
        slot = ((code * factor) >> np.uint64(32)) & mask
        while counts[slot] != 0 and keys[slot] != code:
            slot = (slot + np.uint64(1)) & mask
        if counts[slot] == 0:
            if used >= limit:
                return index, used
            keys[slot] = code
            used += 1
        counts[slot] += 1
    return len(codes), used


@kernel(nogil=True)
def move_entries(keys, counts, new_keys, new_counts):
    """Move a table's entries into a larger empty one."""
    mask = np.uint64(len(new_keys) - 1)
    factor = GAMMA
    for old in range(len(keys)):
        if counts[old] != 0:
            slot = ((keys[old] * factor) >> np.uint64(32)) & mask
            while new_counts[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            new_keys[slot] = keys[old]
            new_counts[slot] = counts[old]

"""Compiled loops of sampling: labels of many points as 64-bit codes, and a table that counts codes.

A program is a list of rows (kind, source, target, size, inner, constant, bias, shift) on a file of registers, each
register one number of ``BLOCK`` points side by side, so that every inner loop runs over points and is vectorised.
Sums are taken in the order of the inputs, with fused products as in a matrix product: where weights and points are
short dyadic numbers nothing is rounded, here as in ``net.labels``.
"""

# mypy: ignore-errors

import numba
import numpy as np

BLOCK = 256

AFFINE, RELU, LARGEST, WINNER, ADD, FLUSH = range(6)


@numba.njit(cache=True, nogil=True, inline="always")
def _mixed(code):
    """The finaliser of splitmix64, a bijection of 64-bit words."""
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return code ^ (code >> np.uint64(31))


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _affine(registers, source, target, n_out, n_in, constants, weight, bias):
    """Up to four inputs are added in one pass over the points; the bias comes last, as in a matrix product."""
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


@numba.njit(cache=True, nogil=True)
def _relu(registers, source, target, size, slope, word, shift):
    """Units ``size`` in a row, four in one pass over the points."""
    one, none = np.uint64(1), np.uint64(0)
    whole = size - size % 4
    for unit in range(0, whole, 4):
        z0, z1 = registers[source + unit], registers[source + unit + 1]
        z2, z3 = registers[source + unit + 2], registers[source + unit + 3]
        r0, r1 = registers[target + unit], registers[target + unit + 1]
        r2, r3 = registers[target + unit + 2], registers[target + unit + 3]
        b0 = one << np.uint64(shift + unit)
        b1, b2, b3 = b0 << one, b0 << np.uint64(2), b0 << np.uint64(3)
        for s in range(BLOCK):
            v0, v1, v2, v3 = z0[s], z1[s], z2[s], z3[s]
            low = (b0 if v0 > 0.0 else none) | (b1 if v1 > 0.0 else none)
            word[s] |= low | (b2 if v2 > 0.0 else none) | (b3 if v3 > 0.0 else none)
            r0[s] = v0 if v0 > 0.0 else v0 * slope
            r1[s] = v1 if v1 > 0.0 else v1 * slope
            r2[s] = v2 if v2 > 0.0 else v2 * slope
            r3[s] = v3 if v3 > 0.0 else v3 * slope
    for unit in range(whole, size):
        z0, r0 = registers[source + unit], registers[target + unit]
        b0 = one << np.uint64(shift + unit)
        for s in range(BLOCK):
            v0 = z0[s]
            word[s] |= b0 if v0 > 0.0 else none
            r0[s] = v0 if v0 > 0.0 else v0 * slope


@numba.njit(cache=True, nogil=True)
def _first_largest(registers, source, size, best, winner):
    """The first largest of ``size`` registers, and which it is; two rivals in one pass over the points."""
    first = registers[source]
    for s in range(BLOCK):
        best[s] = first[s]
        winner[s] = 0
    for j in range(1, size, 2):
        is_pair = j + 1 < size
        z, y = registers[source + j], registers[source + (j + 1 if is_pair else j)]  # alone, it is its own rival
        one, two = np.uint64(j), np.uint64(j + 1)
        for s in range(BLOCK):
            top, index = best[s], winner[s]
            index = one if z[s] > top else index
            top = z[s] if z[s] > top else top
            index = two if y[s] > top else index
            best[s] = y[s] if y[s] > top else top
            winner[s] = index


@numba.njit(cache=True, nogil=True)
def label_codes(draws, low, width, program, constants, registers, is_hashed, codes):
    """Fill ``codes`` (n,) with the codes of the labels at low + width * (2 draws + 1) / 2^33, draws (dim, n).

    ``registers`` (n, BLOCK) is room to work in.

    Numpy twin: ``pack_labels`` of ``net.labels`` at the same points.
    """
    dim, n = draws.shape
    word = np.zeros(BLOCK, dtype=np.uint64)
    winner = np.zeros(BLOCK, dtype=np.uint64)
    hashed = np.zeros(BLOCK, dtype=np.uint64)
    best = np.zeros(BLOCK)
    unit = 0.5 / 4294967296.0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for i in range(dim):
            row, drawn = registers[i], draws[i]
            for s in range(m):
                row[s] = low[i] + width[i] * ((2.0 * drawn[start + s] + 1.0) * unit)
        for s in range(BLOCK):
            word[s] = 0
            hashed[s] = 0
        for step in range(len(program)):
            kind, source, target = program[step, 0], program[step, 1], program[step, 2]
            size, inner = program[step, 3], program[step, 4]
            constant, bias, shift = program[step, 5], program[step, 6], program[step, 7]
            if kind == AFFINE:
                _affine(registers, source, target, size, inner, constants, constant, bias)
            elif kind == RELU:
                _relu(registers, source, target, size, constants[constant], word, shift)
            elif kind == LARGEST or kind == WINNER:
                _first_largest(registers, source, size, best, winner)
                for s in range(BLOCK):
                    word[s] |= winner[s] << np.uint64(shift)
                if kind == LARGEST:
                    registers[target] = best
                else:
                    for i in range(inner):
                        row = registers[target + i]
                        for s in range(BLOCK):
                            row[s] = constants[constant + np.int64(winner[s]) * inner + i]
            elif kind == ADD:
                for i in range(size):
                    row, first, second = registers[target + i], registers[source + i], registers[inner + i]
                    for s in range(BLOCK):
                        row[s] = first[s] + second[s]
            else:
                for s in range(BLOCK):
                    hashed[s] = _mixed(hashed[s] ^ word[s])
                    word[s] = 0
        for s in range(m):
            codes[start + s] = _mixed(hashed[s] ^ word[s]) if is_hashed else word[s]


@numba.njit(cache=True, nogil=True)
def tally(codes, first, keys, counts, used):
    """Count codes[first:] into an open-addressing table until done or half full: (next code, slots used)."""
    mask = np.uint64(len(keys) - 1)
    factor = np.uint64(0x9E3779B97F4A7C15)
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


@numba.njit(cache=True, nogil=True)
def move_entries(keys, counts, new_keys, new_counts):
    """Move a table's entries into a larger empty one."""
    mask = np.uint64(len(new_keys) - 1)
    factor = np.uint64(0x9E3779B97F4A7C15)
    for old in range(len(keys)):
        if counts[old] != 0:
            slot = ((keys[old] * factor) >> np.uint64(32)) & mask
            while new_counts[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            new_keys[slot] = keys[old]
            new_counts[slot] = counts[old]

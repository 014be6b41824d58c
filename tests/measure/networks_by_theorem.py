"""Networks that attain the published lower bounds, built here from the text of the theorems alone."""

from fractions import Fraction

import numpy as np

import hardmax as hm


def grid_block(n_keys, dim, folds, last=None):
    """Layers x -> FFN(x + attention(x)) that fold the cube [0, 2 n_keys]^dim onto itself (n_keys * folds)^dim times.

    The cube of this size keeps every number dyadic. ``last`` (weights, biases) replaces the folding ReLUs by
    given hyperplanes of the residual, which runs over [-1, 1]^dim in every attention cell.
    """
    sites = [2.0 * j + 1.0 for j in range(n_keys)]
    heads = []
    for axis in range(dim):
        query = np.zeros((2, dim))
        query[0, axis] = 1.0
        keys = [[2 * p, -p * p] for p in sites]
        heads.append(hm.Head(keys, [[-p] for p in sites], query, [0.0, 1.0]))
    attention = hm.Residual(hm.Attention(heads))
    if last is not None:
        return [attention, hm.Affine(*last), hm.ReLU()]
    into, shift, out = [], [], np.zeros((dim, dim * folds))
    for axis in range(dim):
        for m in range(folds):
            row = np.zeros(dim)
            row[axis] = folds / 2
            into.append(row)
            shift.append(folds / 2 - m)
            out[axis, axis * folds + m] = 2 * n_keys * (1 if m == 0 else 2 * (-1) ** m)
    return [attention, hm.Affine(into, shift), hm.ReLU(), hm.Affine(out)]


def cube(n_keys, dim):
    """The domain on which the grid network lives."""
    side = 2.0 * n_keys
    return hm.Segment([0.0], [side]) if dim == 1 else hm.Box([0.0] * dim, [side] * dim)


def grid_network(n_keys, dim, folds, depth, last=None):
    """``depth`` blocks; with ``last`` the last one uses those hyperplanes."""
    layers = []
    for block in range(depth):
        layers += grid_block(n_keys, dim, folds, last if block == depth - 1 else None)
    return hm.Network(layers, dim)


def general_lines(n_lines, radius):
    """Lines a.y = b in general position whose crossings all lie within ``radius`` of the origin (tested)."""
    slopes = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (2.0, 1.0)][:n_lines]
    offsets = [0.0, 0.25, 0.5, 0.625, 1.0][:n_lines]
    crossings = []
    for i in range(n_lines):
        for j in range(i):
            a, b = slopes[i], slopes[j]
            det = Fraction(a[0] * b[1] - a[1] * b[0])
            x = (Fraction(offsets[i]) * Fraction(b[1]) - Fraction(offsets[j]) * Fraction(a[1])) / det
            y = (Fraction(a[0]) * Fraction(offsets[j]) - Fraction(b[0]) * Fraction(offsets[i])) / det
            crossings.append((x, y))
    assert len(set(crossings)) == len(crossings)
    reach = max(max(abs(x), abs(y)) for x, y in crossings)
    scale = radius / (4 * float(2 ** int(np.ceil(np.log2(float(reach) + 1)))))
    return np.array(slopes), -scale * np.array(offsets)

"""Plain numpy twins of compiled loops: the same answers in a few lines, and no bound on their errors."""

import numpy as np


def matmul_plain(left, right):
    """The max-plus product by one numpy pass per row: the twin of ``matmul_kernel``."""
    result = np.empty((left.shape[0], right.shape[1]), left.dtype)
    for row in range(left.shape[0]):
        result[row] = (left[row][:, None] + right).max(axis=0)
    return result


def matmul_argmax_plain(left, right):
    """The max-plus product and its lowest winners: the twin of ``matmul_argmax_kernel``."""
    result = np.empty((left.shape[0], right.shape[1]), left.dtype)
    winners = np.empty(result.shape, np.intp)
    for row in range(left.shape[0]):
        sums = left[row][:, None] + right
        winners[row] = sums.argmax(axis=0)
        result[row] = sums.max(axis=0)
    return result, winners


def closure_plain(paths, doubt):
    """The same loop in numpy, one row at a time: the twin of ``closure_kernel``."""
    for middle in range(paths.shape[0]):
        for row in range(paths.shape[0]):
            np.maximum(paths[row], paths[row, middle] + paths[middle], out=paths[row])
        if (paths.diagonal() > doubt).any():
            return False
    return True


def row_geometry_plain(scores, keys, temperature):
    """Winners, numbers of visible keys, margins, entropies and distances of rows, in plain numpy."""
    winners = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    visible = np.isfinite(scores)
    top = scores[rows, winners]
    rest = scores.copy()
    rest[rows, winners] = -np.inf
    margins = top - rest.max(axis=1)
    gaps = top[:, None] - scores
    lengths = np.linalg.norm(keys[winners][:, None] - keys, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(visible & (lengths > 0), gaps / lengths, np.inf).min(axis=1)
    weights = np.exp(-gaps / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    entropies = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=1)
    return winners, visible.sum(axis=1), margins, entropies, distances


def row_statistics_plain(scores, temperature):
    """Winner, live keys, margin, mass beside the winner and curvature by numpy: eigenvalues row by row."""
    z = scores.astype(np.float64)
    winner = z.argmax(axis=1)
    rows = np.arange(len(z))
    ordered = np.sort(z, axis=1)
    runner_up = ordered[:, -2] if z.shape[1] > 1 else np.full(len(z), -np.inf)
    shares = np.exp((z - ordered[:, -1:]) / temperature)
    shares[rows, winner] = 0.0
    others = shares.sum(axis=1)
    shares[rows, winner] = 1.0
    p = shares / (1.0 + others)[:, None]
    covariance = -p[:, :, None] * p[:, None, :]
    diagonal = np.arange(p.shape[1])
    covariance[:, diagonal, diagonal] += p
    curvature = np.linalg.eigvalsh(covariance)[:, -1]
    return winner, (z > -np.inf).sum(axis=1), ordered[:, -1] - runner_up, others, curvature


def relu_then_linear_plain(source, parents, labels, columns, bias):
    """A ReLU and a linear map in one matrix product: the twin of ``relu_then_linear``."""
    masked = source[parents] * (labels == 1)[:, None, :]
    result = masked @ columns
    if len(bias):
        result[:, 0] += bias
    return result

"""First queries and small covers on an accelerator: torch in binary32, and nothing but numpy besides.

Every row's own query is scored against all rows in one matrix product; a row is live where its margin exceeds what
rounding in binary32 can do to two scores, whatever the order of their sums. Rows that are left are tried as mixtures of
few rivals, which are hints that the caller proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ParameterError
from hardmax.exact.rounding import SAFETY, length_above
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.attention_margins import single_margin_error, single_tensor, whole_binary32
from hardmax.heads.capture.packages import torch_library
from hardmax.networks.files.opening import refusing

#: Scores held at once, on a device with its own memory and without.
_BLOCKS = {"cuda": 2**29, "cpu": 2**23}
_RIDGE = 1e-6
_NEAREST = 48  # rivals of a row that are tried in a round
_SCALES, _ROUNDS = (1.0, 4.0), 4  # lengths of first queries in whitened units, and rounds with mixtures


class Mixture(NamedTuple):
    """A row that seems to be a mixture of rivals (k,) with these shares (k,)."""

    row: int
    rivals: IntArray
    shares: FloatArray


class DeviceVerdicts(NamedTuple):
    """Rows proved live (n,) with their queries (n, d), on the device, and rows that seem to be mixtures of others."""

    is_live: NDArray[np.bool_]
    queries: Any
    mixtures: list[Mixture]


class DeviceHead:
    """Rows (n, d) and biases (n,) of a head on a device, in binary32, and what bounds its scores' errors."""

    def __init__(self, rows: Any, bias: Any, device: str = "cuda") -> None:
        torch = self.torch = torch_library()
        with refusing(ParameterError, f"device={device!r}: torch cannot use it"):
            self.device = torch.device(device)
            self.rows = single_tensor(torch, rows).to(self.device)
            self.bias = single_tensor(torch, bias).to(self.device)
        self.n, self.dim = self.rows.shape
        self.block = max(1, min(self.n, _BLOCKS.get(self.device.type, 2**23) // self.n))
        largest = max(float(self.rows[at].double().square().sum(dim=1).max()) for at in self._parts())
        self.longest = float(length_above(self.dim, largest))
        self.largest_bias = float(self.bias.abs().max())

    def _parts(self) -> Iterator[slice]:
        for start in range(0, self.n, self.block):
            yield slice(start, min(start + self.block, self.n))

    def whitening(self) -> tuple[Any, Any]:
        """The rows' mean (d,) and near inverse of their covariance (d, d), in binary32; nothing rests on them."""
        torch = self.torch
        mean = self.rows.mean(dim=0)
        moment = torch.zeros((self.dim, self.dim), dtype=torch.float32, device=self.device)
        for at in self._parts():
            centred = self.rows[at] - mean
            moment.addmm_(centred.T, centred)
        moment = moment.double() / self.n
        size = moment.diagonal().mean()
        moment.diagonal().add_(_RIDGE * size if size > 0 else 1.0)
        factor, _ = torch.linalg.cholesky_ex(moment)
        return mean, torch.cholesky_inverse(factor).float()

    def wins(self, queries: Any, rows: Any) -> tuple[Any, Any]:
        """Which rows (k,) are proved to win at their queries (k, d), and all scores with -inf in the rows' places.

        Exactness: certified by the lemmas on dot products in binary32 and on lengths, for sums in any order, fused or
        not, with numbers below 2**-126 kept or flushed to zero.
        """
        torch = self.torch
        with whole_binary32(torch):
            scores = torch.addmm(self.bias, queries, self.rows.T)  # (k, n)
        own = scores.gather(1, rows[:, None])[:, 0].double()
        scores.scatter_(1, rows[:, None], -torch.inf)
        margins = own - scores.amax(dim=1).double()
        lengths = length_above(self.dim, queries.double().square().sum(dim=1))
        needed = single_margin_error(self.dim, SAFETY * (lengths * self.longest + self.largest_bias))
        return (margins > needed) & torch.isfinite(needed) & torch.isfinite(own), scores


def device_verdicts(head: DeviceHead) -> DeviceVerdicts:
    """Rows proved live on all of space, and hints on others.

    Exactness: certified for ``is_live``; mixtures are hints.
    """
    torch = head.torch
    with torch.no_grad():
        is_live = torch.zeros(head.n, dtype=torch.bool, device=head.device)
        queries = torch.zeros_like(head.rows)
        for scale in _SCALES:
            if not bool(is_live.all()):
                witness_pass(head, is_live, queries, scale)
        mixtures = _left(head, is_live, queries)
    return DeviceVerdicts(is_live.cpu().numpy(), queries, mixtures)


def witness_pass(head: DeviceHead, is_live: Any, queries: Any, scale: float) -> None:
    """Mark the rows that win at their own whitened query, and keep the queries; both tensors change in place.

    Exactness: certified.
    """
    torch = head.torch
    mean, inverse = head.whitening()
    pending = torch.nonzero(~is_live)[:, 0]
    for start in range(0, len(pending), head.block):
        rows = pending[start : start + head.block]
        asked = scale * ((head.rows[rows] - mean) @ inverse)
        won, _ = head.wins(asked, rows)
        is_live[rows] = won
        queries[rows] = asked


def _left(head: DeviceHead, is_live: Any, queries: Any) -> list[Mixture]:
    """The rows that are left: away from their nearest mixture of rivals, or that mixture."""
    torch, found = head.torch, []
    pending = torch.nonzero(~is_live)[:, 0]
    spread = float(head.bias.max() - head.bias.min()) or 1.0
    known: dict[int, set[int]] = {int(row): set() for row in pending.tolist()}
    for _ in range(_ROUNDS):
        if not len(pending) or not head.dim:
            break
        still = []
        for start in range(0, len(pending), min(head.block, 256)):
            rows = pending[start : start + min(head.block, 256)]
            won, scores = head.wins(queries[rows], rows)
            is_live[rows] = won
            near = scores.topk(min(_NEAREST, head.n - 1), dim=1).indices.tolist()
            for row, rivals, done in zip(rows.tolist(), near, won.tolist(), strict=True):
                if done:
                    continue
                known[row].update(rivals)
                mixture, away = nearest_mixture(head, row, sorted(known[row]))
                if mixture is not None:
                    found.append(mixture)
                else:
                    queries[row] = away * (4.0 * spread / (away * away).sum())
                    still.append(row)
        pending = torch.tensor(still, dtype=torch.long, device=head.device)
    return found


def nearest_mixture(head: DeviceHead, row: int, rivals: list[int]) -> tuple[Mixture | None, Any]:
    """The mixture of rivals nearest to a row: it, where it seems to be the row, and the way (d,) from it to the row."""
    torch = head.torch
    at = torch.tensor(rivals, dtype=torch.long, device=head.device)
    points, own = head.rows[at].double(), head.rows[row].double()
    one = float(own.square().sum()) or 1.0  # as large as the rest, so that shares add up to one
    gram = (points @ points.T + one).cpu().numpy()
    shares = nonnegative(gram, (points @ own + one).cpu().numpy())
    away = own - torch.from_numpy(shares).to(head.device) @ points
    if float(away.square().sum()) > 1e-12 * one:
        return None, away.float()
    used = shares > 1e-7
    return Mixture(row, np.array(rivals)[used], shares[used]), away.float()


def nonnegative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """The x >= 0 with least ``x gram x / 2 - right x``, in floats: Lawson and Hanson's active sets.

    Examples
    --------
    >>> nonnegative(np.eye(2), np.array([1.0, -1.0]))
    array([1., 0.])
    """
    x, passive = np.zeros(len(right)), np.zeros(len(right), dtype=bool)
    least = 1e-12 * (float(np.abs(right).max(initial=0.0)) or 1.0)
    for _ in range(3 * len(right) + 10):
        slopes = np.where(passive, -np.inf, right - gram @ x)
        if not slopes.max(initial=-np.inf) > least:
            break
        passive[int(np.argmax(slopes))] = True
        while passive.any():
            trial = np.zeros(len(x))
            trial[passive] = np.linalg.lstsq(gram[np.ix_(passive, passive)], right[passive], rcond=None)[0]
            low = passive & (trial <= 0)
            if not low.any():
                x = trial
                break
            step = float(np.min(x[low] / np.where(x[low] > trial[low], x[low] - trial[low], 1.0)))
            x = np.maximum(x + step * (trial - x), 0.0)
            passive &= x > 0
            x[~passive] = 0.0
    return x

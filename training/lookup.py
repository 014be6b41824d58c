"""Train the shipped lookup model and write it into the package: ``python training/lookup.py``.

The task: a context of key-value pairs with distinct keys, then a key; answer its value. One input is an
array (N_PAIRS + 1, N_KEYS + N_VALUES): row i of the context is one-hot in its key and one-hot in its value,
the last row is one-hot in the asked key and zero elsewhere. Embedding is affine from there on, so the input
may be any real array and the network has cells.

Context tokens attend to the context, and so does the asking token, never to itself. With the context
fixed the keys of every head are therefore constants and the asking token's path is the papers' conditioned
setting. No norm, ReLU feed-forward layers, queries and keys in the plane.

Everything is seeded and runs in one thread. Another torch version may give other weights; the accuracy is
what a retraining reproduces.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import hardmax as hm

N_KEYS, N_VALUES, N_PAIRS = 8, 8, 5
WIDTH, HIDDEN, N_LAYERS, N_HEADS, KEY_DIM, VALUE_DIM = 16, 32, 2, 2, 2, 8
STEPS, BATCH, RATE = 5000, 256, 4e-3
# Weights are rounded to multiples of 1 / GRID. Keys and values of the second layer, which take six products of weights,
# are then multiples of 2^-42: exact in binary64 for every context, so a network conditioned on one is written without
# rounding (hardmax.networks.lookup).
GRID = 128
FOLDER = Path(__file__).parents[1] / "src" / "hardmax" / "networks" / "models"


def examples(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (count, N_PAIRS + 1, N_KEYS + N_VALUES) and the values asked for (count,)."""
    keys = rng.permuted(np.tile(np.arange(N_KEYS), (count, 1)), axis=1)[:, :N_PAIRS]
    values = rng.integers(N_VALUES, size=(count, N_PAIRS))
    asked = rng.integers(N_PAIRS, size=count)
    rows = np.arange(count)
    x = np.zeros((count, N_PAIRS + 1, N_KEYS + N_VALUES))
    x[:, :-1, :N_KEYS] = np.eye(N_KEYS)[keys]
    x[:, :-1, N_KEYS:] = np.eye(N_VALUES)[values]
    x[rows, -1, keys[rows, asked]] = 1.0
    return x, values[rows, asked]


class Block(nn.Module):
    """Residual attention to the context, then a residual ReLU layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, N_HEADS * KEY_DIM)
        self.key = nn.Linear(WIDTH, N_HEADS * KEY_DIM, bias=False)
        self.value = nn.Linear(WIDTH, N_HEADS * VALUE_DIM, bias=False)
        self.output = nn.Linear(N_HEADS * VALUE_DIM, WIDTH)
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.second = nn.Linear(HIDDEN, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        context = tokens[:, :N_PAIRS]
        queries, keys, values = _by_head(self.query(tokens)), _by_head(self.key(context)), _by_head(self.value(context))
        scores = queries @ keys.transpose(2, 3)  # (batch, N_HEADS, N_PAIRS + 1, N_PAIRS)
        mixed = scores.softmax(-1) @ values
        tokens = tokens + self.output(mixed.transpose(1, 2).flatten(2))
        return tokens + self.second(torch.relu(self.first(tokens)))


def _by_head(rows: Tensor) -> Tensor:
    """(batch, tokens, heads * size) -> (batch, heads, tokens, size)."""
    return rows.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


class Lookup(nn.Module):
    """Embedding, blocks, and the logits of the values at the asking token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(N_KEYS + N_VALUES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYERS))
        self.readout = nn.Linear(WIDTH, N_VALUES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x)
        for block in self.blocks:
            tokens = block(tokens)
        return self.readout(tokens[:, -1])


def train(seed: int, steps: int = STEPS, watch: Callable[[int, Lookup, float], object] | None = None) -> Lookup:
    """The trained module, its weights rounded to the grid.

    ``watch`` is called with the step, the model and the batch's loss before each update, and once at the end with the
    loss of a fresh batch.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Lookup()
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        loss = _loss(model, rng)
        if watch is not None:
            watch(step, model, loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    if watch is not None:
        watch(steps, model, _loss(model, rng).item())
    return rounded(model)


def _loss(model: Lookup, rng: np.random.Generator) -> Tensor:
    x, answers = examples(BATCH, rng)
    return functional.cross_entropy(model(torch.tensor(x, dtype=torch.float32)), torch.tensor(answers))


def rounded(model: Lookup) -> Lookup:
    """A copy of the model with its weights on the grid, ready to be read."""
    copy = Lookup()
    copy.load_state_dict({name: (weight * GRID).round() / GRID for name, weight in model.state_dict().items()})
    return copy.eval()


def accuracy(net: hm.Network, x: np.ndarray, answers: np.ndarray, temperature: float) -> float:
    """The share of inputs whose largest logit is the answer."""
    return float(np.mean(net(x, temperature=temperature).argmax(-1) == answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to write lookup.npz and lookup.onnx to")
    arguments = parser.parse_args()
    start = time.perf_counter()
    model = train(arguments.seed)
    x, answers = examples(10_000, np.random.default_rng(arguments.seed + 1))
    net = hm.from_torch(model, torch.tensor(x[:2], dtype=torch.float32))
    soft, hard = (accuracy(net, x, answers, temperature) for temperature in (1.0, 0.0))
    print(f"{time.perf_counter() - start:.0f} s, {net.n_parameters} numbers; accuracy {soft:.4f}, hard {hard:.4f}")
    if soft < 0.99:
        raise SystemExit("below 99%: nothing written")
    arguments.out.mkdir(parents=True, exist_ok=True)
    hm.write(net, arguments.out / "lookup.npz")
    hm.write(net, arguments.out / "lookup.onnx", temperature=1.0)
    for file in ("lookup.npz", "lookup.onnx"):
        print(file, (arguments.out / file).stat().st_size, "bytes")


if __name__ == "__main__":
    main()

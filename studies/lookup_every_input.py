"""Does the shipped lookup model answer every question it can be asked, soft and hard?

    python studies/lookup_every_input.py [--contexts N]

The order of the pairs does not matter, so there are C(8, 5) sets of keys, 8^5 ways to give them values and 5 keys to
ask for: 9 175 040 inputs. All of them are evaluated, at temperature 1 and at 0, and counted. A question changes nothing
in its context, so the five questions of a context are evaluated together.

Floats decide, so the table also says how close the decisions were: the smallest gap between the two largest logits and,
at temperature 0, between the two largest scores of a head, each with a bound on its rounding error. Where the gaps are
larger the count is certified. No such bound is claimed at temperature 1, where the count is estimated.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from itertools import combinations, product
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.networks import operations as op
from hardmax.networks.evaluation import softmax
from hardmax.networks.lookup import N_KEYS, N_PAIRS, N_VALUES

COLUMNS = (
    "temperature", "inputs", "right", "exactness",
    "smallest logit gap", "rounding error of a logit gap", "smallest score gap", "rounding error of a score gap",
)  # fmt: skip
CHUNK = 4096  # contexts evaluated together
N_HEADS = 2
UNIT = 2.0**-53


def maps_of(net):
    """Weights and biases of the network's linear maps: embedding, six a block, readout."""
    found = [node.operation for node in net.graph.nodes if isinstance(node.operation, op.Linear)]
    return [(linear.weight, np.zeros(len(linear.weight)) if linear.bias is None else linear.bias) for linear in found]


def contexts():
    """Every context as (keys, values), in order."""
    for keys in combinations(range(N_KEYS), N_PAIRS):
        values = np.array(list(product(range(N_VALUES), repeat=N_PAIRS)))  # (8^5, 5)
        yield np.broadcast_to(keys, values.shape), values


def embedded(maps, keys, values):
    """The five context tokens and the five questions (n, 10, 16): columns of the embedding, added up."""
    weight, bias = maps[0]
    context = weight.T[keys] + weight.T[N_KEYS + values] + bias
    return np.concatenate([context, weight.T[keys] + bias], axis=1)


def logits(maps, tokens, temperature):
    """Logits (n, 5, 8) of the five questions, and the smallest gap of each context's deciding scores."""
    gaps = np.full(len(tokens), np.inf)
    for block in range(2):
        query, key, value, output, first, second = maps[1 + 6 * block : 7 + 6 * block]
        queries, keys, values = (
            by_head(rows @ weight.T + bias)
            for rows, (weight, bias) in ((tokens, query), (tokens[:, :N_PAIRS], key), (tokens[:, :N_PAIRS], value))
        )
        scores = queries @ keys.swapaxes(2, 3)  # (n, heads, 10, 5)
        if temperature:
            weights = softmax(scores, temperature)
        else:
            top = np.partition(scores, N_PAIRS - 2, axis=-1)[..., -2:]
            gaps = np.minimum(gaps, (top[..., 1] - top[..., 0]).min(axis=(1, 2)))
            weights = (scores.argmax(axis=-1)[..., None] == np.arange(N_PAIRS)).astype(float)
        mixed = (weights @ values).swapaxes(1, 2).reshape(len(tokens), 2 * N_PAIRS, -1)
        tokens = tokens + mixed @ output[0].T + output[1]
        tokens = tokens + np.maximum(tokens @ first[0].T + first[1], 0) @ second[0].T + second[1]
    return tokens[:, N_PAIRS:] @ maps[-1][0].T + maps[-1][1], gaps


def by_head(rows):
    """(n, tokens, heads * size) -> (n, heads, tokens, size)."""
    return rows.reshape(*rows.shape[:2], N_HEADS, -1).swapaxes(1, 2)


def rounding_errors(maps):
    """Bounds on the rounding errors of a gap of logits and of a gap of scores, at temperature 0.

    Weights are multiples of 2^-7, so all numbers up to the second block's queries, keys and values are multiples of
    2^-42; those below 2^11, as the triangle inequality shows them all to be, are binary64 numbers and so are all
    partial sums: nothing is rounded. From there on a number is a sum of products, each rounded at most ``depth`` times.
    """
    size = [(np.abs(weight), np.abs(bias)) for weight, bias in maps]
    token = size[0][0][:, :N_KEYS].max(axis=1) + size[0][0][:, N_KEYS:].max(axis=1) + size[0][1]
    for query, key, value, output, first, second in (size[1:7], size[7:13]):
        parts = [weight @ token + bias for weight, bias in (query, key, value)]
        token = token + output[0] @ parts[2] + output[1]
        token = token + second[0] @ (first[0] @ token + first[1]) + second[1]
    assert max(part.max() for part in parts) < 2.0**11  # of the second block
    scores = (parts[0] * parts[1]).reshape(N_HEADS, -1).sum(axis=1).max()
    of_logits = (size[-1][0] @ token + size[-1][1]).max()
    terms = [maps[index][0].shape[1] for index in (10, 11, 12, 13)]  # output, first, second, readout
    depth = sum(terms) + len(terms) + 2  # each bias is one more term, and two residuals
    # twice, since a gap is a difference of two numbers, and once more for that difference; 1.01 for higher orders
    return 2.02 * (depth + 1) * UNIT * of_logits, 2.02 * (parts[0].size // N_HEADS + 2) * UNIT * scores


def count(maps, temperature, most):
    """Inputs, right answers, and the smallest gaps of logits and of scores."""
    n, right, logit_gap, score_gap = 0, 0, np.inf, np.inf
    for all_keys, all_values in contexts():
        for start in range(0, len(all_keys), CHUNK):
            if most is not None and n >= N_PAIRS * most:
                return n, right, logit_gap, score_gap
            keys, values = all_keys[start : start + CHUNK], all_values[start : start + CHUNK]
            found, gaps = logits(maps, embedded(maps, keys, values), temperature)
            top = np.partition(found, N_VALUES - 2, axis=-1)[..., -2:]
            n += values.size
            right += int(np.count_nonzero(found.argmax(axis=-1) == values))
            logit_gap = min(logit_gap, float((top[..., 1] - top[..., 0]).min()))
            score_gap = min(score_gap, float(gaps.min()))
    return n, right, logit_gap, score_gap


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--contexts", type=int, default=None, help="stop after this many contexts")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args(given)
    maps = maps_of(hm.builtin("lookup"))
    rows = []
    for temperature in (1.0, 0.0):
        n, right, logit_gap, score_gap = count(maps, temperature, arguments.contexts)
        if temperature:
            rows.append((temperature, n, right, "estimated", logit_gap, "", "", ""))
        else:
            errors = rounding_errors(maps)
            is_certain = logit_gap > errors[0] and score_gap > errors[1]
            exactness = "certified" if is_certain else "estimated"
            rows.append((temperature, n, right, exactness, logit_gap, errors[0], score_gap, errors[1]))
        print(f"temperature {temperature:g}: {right} of {n} right ({right / n:.6f}, {rows[-1][3]})")
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""Margins and certificates of a long context: blocks of scores that are never stored, on a device or here.

    python benchmarks/bench_margins.py [--device cuda] [--rows 131072 --dim 128] [--sample 256]

Gaussian queries and keys in binary32. Compares a sample of rows with the processor's answer, and prints one line of
JSON. Fails where a winner, a certificate or a margin differs, or on a GPU where it takes longer than half a second.
"""

import argparse
import json
import sys
import time

import numpy as np

TARGET = 0.5


def _clock(torch, device):
    if str(device).startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def _eager(torch, queries, keys):
    """The two largest scores of each row, unproved: what is lost by proofs is the difference."""
    best = []
    for start in range(0, len(queries), 4096):
        best.append((queries[start : start + 4096] @ keys.T).topk(2, dim=1).values)
    return torch.cat(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cuda where there is one; else the twin on the processor, at a small size")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--sample", type=int, default=256)
    parser.add_argument("--causal", action="store_true")
    given = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed: nothing to measure")
        return 0
    import hardmax as hm

    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows = given.rows or (131072 if device.startswith("cuda") else 2048)
    rng = np.random.default_rng(0)
    queries, keys = (rng.standard_normal((rows, given.dim), dtype=np.float32) for _ in range(2))
    asked = {"causal": given.causal, "device": device}
    hm.attention_margins(queries[:512], keys[:512], **asked)  # loads libraries
    on_device = [torch.from_numpy(array).to(device) for array in (queries, keys)]
    best, resident, eager = np.inf, np.inf, np.inf
    for _ in range(3):
        start = _clock(torch, device)
        found = hm.attention_margins(queries, keys, **asked)
        best = min(best, _clock(torch, device) - start)
        start = _clock(torch, device)
        hm.attention_margins(*on_device, **asked)
        resident = min(resident, _clock(torch, device) - start)
        start = _clock(torch, device)
        _eager(torch, *on_device)
        eager = min(eager, _clock(torch, device) - start)
    sample = np.sort(rng.choice(rows, min(given.sample, rows), replace=False))
    differ = 0
    for row in np.array_split(sample, max(1, len(sample) // 64)):
        n_seen = rows if not given.causal else int(row[-1]) + 1
        if given.causal:  # one row at a time: each sees other keys
            twin = [hm.attention_margins(queries[[k]], keys[: k + 1]) for k in row]
            winners, margins, errors, certified = (
                np.concatenate([getattr(one, name) for one in twin])
                for name in ("winners", "margins", "errors", "is_certified")
            )
        else:
            one = hm.attention_margins(queries[row], keys[:n_seen])
            winners, margins, errors, certified = one.winners, one.margins, one.errors, one.is_certified
        near = np.abs(found.margins[row] - margins) <= found.errors[row] + errors
        near |= found.margins[row] == margins
        differ += int(((winners != found.winners[row]) | (certified != found.is_certified[row]) | ~near).sum())
    facts = {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device, "torch": torch.__version__,
        "rows": rows, "dim": given.dim, "causal": given.causal, "whole_s": best, "resident_s": resident,
        "eager_top_two_s": eager, "settled": found.n_settled, "certified": int(found.is_certified.sum()),
        "sample": len(sample), "differ": differ,
    }  # fmt: skip
    print(json.dumps(facts))
    slow = device.startswith("cuda") and resident > TARGET
    for failure in [f"{differ} rows differ from the processor's"] * bool(differ) + [f"{resident:.3f} s"] * slow:
        print("FAILED", failure)
    return 1 if differ or slow else 0


if __name__ == "__main__":
    sys.exit(main())

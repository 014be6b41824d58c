"""Per-head analysis of captured models, and a decoder's cache.

    python benchmarks/bench_heads.py [--size full|small]

Prints times and the answers' sizes, and fails where answers differ or a target is missed. The rows of one head are
timed against the plain numpy twin. The real model is MiniLM (72 heads, d_k = 32) on a text of 128 tokens: its full
analysis may take five forward passes and ten seconds, in less than 4 GiB. The real cache is SmolLM2's (270 heads)
after a sentence. Models that are not installed are left out; the small size has none of them.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.heads.rows import head_rows, one_thread_each

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles.kernel_twins import row_geometry_plain

TEXT = (
    "The rain had not stopped for three days, and the river stood higher than anyone in the village could remember. "
    "Old Marta counted the sandbags twice, then sent her grandson to wake the miller, because the wall beside the mill "
    "was the weakest place and everybody knew it. When the water finally came, it came quietly, without the roar that "
    "the stories had promised, and it found the gap below the bridge where nobody had thought to look. By morning the "
    "square was a lake, the church bells were silent, and the children rowed a wooden door from house to house to "
    "collect the cats that sat on the window sills and complained loudly about the weather."
)
PROMPT = "The capital of France is Paris. The river that runs through the city is called the Seine, and its bridges"


def _best(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = function()
        times.append(time.perf_counter() - start)
    return min(times), answer


def _peak_gib():
    """The largest memory this process held."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def _made_up(n_heads, n_tokens, dim, rng):
    """Heads whose queries stay near one direction, as trained ones do."""
    heads = []
    for head in range(n_heads):
        queries = rng.normal(size=(n_tokens, dim)) + rng.normal(size=dim)
        keys = rng.normal(size=(n_tokens, dim))
        heads.append(hm.models.CapturedHead(0, head, "made up", queries, keys, keys, dim**0.5))
    return hm.models.Capture("made up", tuple(map(str, range(n_tokens))), tuple(heads))


def bench_rows(capture, failures):
    head = capture.heads[0]
    scores = head.scores
    with one_thread_each():
        ours, rows = _best(lambda: head_rows(head), 20)
        theirs, plain = _best(lambda: row_geometry_plain(scores, head.keys, head.temperature), 10)
    equal = np.allclose(rows.radii, plain[-1], rtol=1e-8) and (rows.winners == plain[0]).all()
    print(
        f"rows of one head {head.queries.shape} x {head.keys.shape}: ours {1e3 * ours:.2f} ms, proved; "
        f"numpy {1e3 * theirs:.2f} ms   {theirs / ours:.1f}x{'' if equal else '   DIFFERENT'}"
    )
    if not equal:
        failures.append("the rows differ from plain numpy's")


def bench_analysis(name, capture, allowed, failures):
    seconds, found = _best(lambda: hm.analyse_heads(capture), 2)
    n = {key: entry["value"] for key, entry in found.summary.items()}
    limit = "" if allowed is None else f" (at most {allowed:.1f} s)"
    print(
        f"{name}: {n['n_heads']} heads in {seconds:.2f} s{limit}; of {n['n_keys']} keys {n['n_live']} live, "
        f"{n['n_reachable_hull']} reachable from the hull of the queries, {n['n_reachable_ball']} from their ball, "
        f"{n['n_chosen']} chosen; {100 * n['certified_share']:.1f}% of {n['n_rows']} rows certified, median routing "
        f"radius {n['radius_median']:.3f} ({100 * n['radius_relative']:.1f}% of the query); peak {_peak_gib():.2f} GiB"
    )
    for layer in sorted({each.layer for each in found}) if n["n_heads"] > 9 else ():
        of_layer = [each for each in found if each.layer == layer]
        live, hull, chosen = (
            sum(getattr(each, name) for each in of_layer) / sum(each.n_keys for each in of_layer)
            for name in ("n_live", "n_reachable_hull", "n_chosen")
        )
        certified = np.mean([each.certified_share for each in of_layer])
        print(
            f"    layer {layer:2d}: {100 * live:5.1f}% live, {100 * hull:5.1f}% reachable, {100 * chosen:5.1f}% chosen,"
            f" {100 * certified:4.1f}% of rows certified"
        )
    if allowed is not None and seconds > allowed:
        failures.append(f"{name}: {seconds:.1f} s, expected at most {allowed:.1f}")
    if _peak_gib() > 4:
        failures.append(f"{name}: {_peak_gib():.1f} GiB, expected at most 4")


def bench_minilm(failures):
    try:
        model = hm.models.minilm()
    except hm.errors.MissingExtraError as error:
        print(f"MiniLM left out: {error}")
        return
    words = TEXT.split()
    while len(model.tokens(" ".join(words))) > 128:
        words.pop()
    text = " ".join(words)
    import torch

    torch.set_num_threads(2)
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    with torch.no_grad():
        forward, _ = _best(lambda: model.model(input_ids=ids), 5)
    seconds, (capture,) = _best(lambda: model.capture(text), 2)
    print(f"MiniLM, {len(capture.tokens)} tokens: forward pass {forward:.3f} s, with capture {seconds:.3f} s")
    bench_analysis("MiniLM", capture, 5 * forward + 10, failures)


def bench_cache(failures):
    try:
        model = hm.models.smollm2()
    except hm.errors.MissingExtraError as error:
        print(f"SmolLM2 left out: {error}")
        return
    cache = hm.kv_cache(model.cached(PROMPT))
    for radius in (0.05, 0.1, 0.2):
        seconds, table = _best(lambda radius=radius: cache.table(radius), 1)
        reached = [row["n_reachable"] for row in table]
        print(
            f"SmolLM2, {cache[0].n_cached} cached keys, {len(cache)} heads in {seconds:.2f} s: "
            f"{100 * np.mean([row['n_live'] / row['n_cached'] for row in table]):.0f}% live; within {radius:g} of the "
            f"query's length {np.mean(reached):.1f} keys can win; {sum(row['own_margin'] > 0 for row in table)} heads "
            "choose their own token"
        )
    other = hm.kv_cache(model.cached(PROMPT.rsplit(" ", 1)[0] + " water"))
    seconds, paths = _best(lambda: [here.towards(there) for here, there in zip(cache, other, strict=True)], 1)
    n_pieces = [path.n_pieces for path in paths]
    print(
        f"SmolLM2, from one last token to another in {seconds:.2f} s: {sum(n_pieces) - len(paths)} exact breakpoints "
        f"in {sum(n > 1 for n in n_pieces)} heads, the own key wins {100 * np.mean([p.own_share for p in paths]):.1f}%"
    )
    if not sum(n_pieces) > len(paths):
        failures.append("no winner changes between two tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("full", "small"), default=os.environ.get("HARDMAX_BENCH_SIZE", "full"))
    full = parser.parse_args().size == "full"
    failures = []
    rng = np.random.default_rng(0)
    hm.analyse_heads(_made_up(1, 20, 8, rng))  # compiles, or reads the cache
    small = _made_up(8, 128 if full else 48, 32 if full else 8, rng)
    bench_rows(small, failures)
    bench_analysis("made up", small, None, failures)
    if full:
        bench_minilm(failures)
        bench_cache(failures)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

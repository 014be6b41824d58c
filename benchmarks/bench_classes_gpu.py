"""Classes on an accelerator: first queries with proved margins, and planted dead rows found and proved.

    python benchmarks/bench_classes_gpu.py [--device cuda] [--head head.npz] [--rows 131072 --dim 4096 --planted 1000]
                                           [--out certificates.npz]
    python benchmarks/bench_classes_gpu.py --export model.gguf head.npz     # the head of a model whose rows are Q8_0
    python benchmarks/bench_classes_gpu.py --check certificates.npz         # every certificate again, in rationals

The first two need numpy and torch alone. The large head is Gaussian, its rows rounded to multiples of 1/256; the
planted rows are mixtures of two to eight others with weights in sixteenths and a bias below theirs, so that binary32
holds them exactly. A mixture that is rounded is as a rule no mixture at all, and such a row lives.

Prints times and the answers' sizes, then one line of JSON, and fails where a row is unsettled or a target is missed.
"""

import argparse
import json
import statistics
import sys
import time
from fractions import Fraction

import numpy as np

TARGETS = {"pass_s": 0.2, "large_s": 30.0}
_BITS, _PARTS, _DROP = 8, 16, 2.0**-6


# --- heads ---------------------------------------------------------------------------------------------


def _table():
    """65,536 quantiles of the normal distribution, multiples of 1/256."""
    normal = statistics.NormalDist()
    return np.array([round(normal.inv_cdf((k + 0.5) / 65536) * 2**_BITS) for k in range(65536)], dtype=np.int16)


def _drawn(torch, first, count, dim, seed, table):
    """Rows ``first`` to ``first + count`` of the Gaussian head: hashes (splitmix64), the same on every machine."""
    at = torch.arange(first * dim, (first + count) * dim, dtype=torch.int64, device=table.device)
    z = at * -7046029254386353131 + (seed % 2**20) * 2862933555777
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        z = (z ^ ((z >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return (table[(z >> 40) & 65535].float() / 2**_BITS).reshape(count, dim)


def _plants(n_rows, n_planted, seed):
    """For each planted row its rivals, among the others, and their weights in sixteenths."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_planted):
        k = int(rng.integers(2, 9))
        parts = np.ones(k, dtype=np.int64)
        np.add.at(parts, rng.integers(0, k, _PARTS - k), 1)
        found.append((rng.choice(n_rows - n_planted, k, replace=False), parts))
    return found


def _some_rows(torch, numbers, facts, table, plants):
    """Rows and biases of the large head by their numbers, planted ones included."""
    n, dim, seed, first = facts["rows"], facts["dim"], facts["seed"], facts["rows"] - facts["planted"]

    def drawn(number):
        row = torch.cat(
            [_drawn(torch, number, 1, dim, seed, table), _drawn(torch, n + number, 1, 1, seed, table) / 8], 1
        )
        return row[0].double()

    rows = []
    for number in numbers:
        if number < first:
            rows.append(drawn(number))
            continue
        rivals, parts = plants[number - first]
        row = sum(int(part) * drawn(int(rival)) for rival, part in zip(rivals, parts, strict=True)) / _PARTS
        row[-1] -= _DROP
        rows.append(row)
    both = torch.stack(rows)
    return both[:, :-1], both[:, -1]


def _large_head(torch, facts, device):
    n, dim, seed, first = facts["rows"], facts["dim"], facts["seed"], facts["rows"] - facts["planted"]
    table = torch.from_numpy(_table()).to(device)
    rows = torch.empty((n, dim), dtype=torch.float32, device=device)
    bias = torch.empty(n, dtype=torch.float32, device=device)
    for start in range(0, first, 1024):
        count = min(1024, first - start)
        rows[start : start + count] = _drawn(torch, start, count, dim, seed, table)
    bias[:first] = _drawn(torch, n, first, 1, seed, table)[:, 0] / 8
    for number, (rivals, parts) in enumerate(_plants(n, facts["planted"], seed), first):
        at, shares = torch.from_numpy(rivals).to(device), torch.from_numpy(parts).to(device).double() / _PARTS
        rows[number] = (shares @ rows[at].double()).float()
        bias[number] = (shares @ bias[at].double() - _DROP).float()
    return rows, bias


def _export(source, target):
    """Write the embedding of a .gguf file with Q8_0 rows: integers and a scale for each 32."""
    import gguf

    tensor = next(t for t in gguf.GGUFReader(source).tensors if t.name in ("output.weight", "token_embd.weight"))
    if tensor.tensor_type != gguf.GGMLQuantizationType.Q8_0:
        raise SystemExit(f"{source}: {tensor.name} is {tensor.tensor_type.name}, expected Q8_0")
    blocks = np.asarray(tensor.data).reshape(len(tensor.data), -1, 34)
    scales, integers = blocks[:, :, :2].copy().view(np.float16)[..., 0], blocks[:, :, 2:].view(np.int8)
    np.savez_compressed(target, scales=scales, integers=integers.reshape(len(blocks), -1))
    rows = _stored(target)[0]
    if not np.array_equal(rows, gguf.dequantize(tensor.data, tensor.tensor_type)):
        raise SystemExit("the exported rows differ from the file's")
    print(f"{target}: {rows.shape[0]} x {rows.shape[1]}")


def _stored(path):
    with np.load(path) as file:
        if "weights" in file:
            rows = file["weights"].astype(np.float32)
            return rows, file["bias"].astype(np.float32) if "bias" in file else np.zeros(len(rows), dtype=np.float32)
        scales = np.repeat(file["scales"].astype(np.float32), 32, axis=1)
        rows = file["integers"].astype(np.float32) * scales  # exact: 8 bits times 11
    return rows, np.zeros(len(rows), dtype=np.float32)


# --- measurements --------------------------------------------------------------------------------------


def _clock(torch, device):
    if str(device).startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def _distinct(rows, bias):
    """Rows without later copies: of copies only the first lives, whatever the query."""
    _, first = np.unique(np.column_stack([rows, bias]), axis=0, return_index=True)
    return np.sort(first)


def bench_pass(torch, device_module, path, device, facts):
    """The witness pass on a stored head, with proved margins."""
    rows, bias = _stored(path)
    kept = _distinct(rows, bias)
    rows, bias = rows[kept], bias[kept]
    device_module.device_verdicts(device_module.DeviceHead(rows[:2048], bias[:2048], device))  # loads libraries
    best = np.inf
    for _ in range(3):
        start = _clock(torch, device)
        head = device_module.DeviceHead(rows, bias, device)
        loaded = _clock(torch, device)
        found = torch.zeros(head.n, dtype=torch.bool, device=head.device)
        queries = torch.zeros_like(head.rows)
        with torch.no_grad():
            device_module.witness_pass(head, found, queries, 1.0)
        done = _clock(torch, device)
        best = min(best, done - loaded)
    facts.update(pass_rows=head.n, pass_dim=head.dim, pass_live=int(found.sum()), pass_s=best, load_s=loaded - start)
    start = _clock(torch, device)
    whole = device_module.device_verdicts(head)
    facts.update(pass_all_live=int(whole.is_live.sum()), pass_all_s=_clock(torch, device) - start)
    print(
        f"{head.n} x {head.dim}: {facts['pass_live']} rows proved live by one query each in {best:.4f} s "
        f"(head loaded in {loaded - start:.3f} s);"
        f" {facts['pass_all_live']} with more queries in {facts['pass_all_s']:.3f} s"
    )


def _dyadic_cover(rows, bias, shares):
    """Integers p and an exponent s: shares ``p / 2**s`` that mix the other rows to the first, with no less bias.

    rows (k + 1, d) and bias (k + 1,) are those of a row and its rivals; None where no short dyadic shares do.

    Exactness: exact, computed in integers.
    """
    numbers = np.column_stack([rows, bias])
    mantissas, exponents = np.frexp(numbers[numbers != 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    shift = int((53 - exponents - trailing).max(initial=0))
    with np.errstate(over="ignore"):
        scaled = np.ldexp(numbers, shift)
    if not np.abs(scaled).max(initial=0.0) < 2.0**31 or len(shares) > 2**8:
        return None
    integers = scaled.astype(np.int64)
    for bits in range(21):  # sums of at most 2**8 products of 2**20 and 2**31
        parts = np.rint(np.ldexp(shares, bits)).astype(np.int64)
        if parts.sum() != 2**bits or not (parts > 0).all():
            continue
        mixed = parts @ integers[1:] - (integers[0] << bits)
        if not mixed[:-1].any() and mixed[-1] >= 0:
            return parts, bits
    return None


def bench_large(torch, device_module, device, facts, out, failures):
    """A Gaussian head with planted dead rows: everything settled, every certificate proved in integers."""
    rows, bias = _large_head(torch, facts, device)
    first = facts["rows"] - facts["planted"]
    device_module.device_verdicts(device_module.DeviceHead(rows[:2048], bias[:2048], device))
    start = _clock(torch, device)
    head = device_module.DeviceHead(rows, bias, device)
    found = device_module.device_verdicts(head)
    searched = _clock(torch, device)
    dead, covers = [], []
    for mixture in found.mixtures:
        at = torch.from_numpy(np.append(mixture.row, mixture.rivals)).to(rows.device)
        shares = _dyadic_cover(rows[at].double().cpu().numpy(), bias[at].double().cpu().numpy(), mixture.shares)
        if shares is not None:
            dead.append(mixture.row)
            covers.append((mixture.rivals, *shares))
    done = _clock(torch, device)
    missed = set(range(first, facts["rows"])) - set(dead)
    unsettled = facts["rows"] - int(found.is_live.sum()) - len(dead)
    facts.update(
        large_live=int(found.is_live.sum()), large_dead=len(dead), large_missed=len(missed),
        large_unsettled=unsettled, large_s=done - start, large_search_s=searched - start,
    )  # fmt: skip
    print(
        f"{facts['rows']} x {facts['dim']}: {facts['large_live']} live, {len(dead)} dead of {facts['planted']} planted,"
        f" {unsettled} unsettled, in {done - start:.2f} s ({done - searched:.2f} s of them proofs on the CPU)"
    )
    if missed or unsettled or found.is_live[first:].any():
        failures.append(f"{len(missed)} planted rows missed, {unsettled} rows unsettled")
    some = np.random.default_rng(1).choice(first, min(64, first), replace=False)
    scores = found.queries[torch.from_numpy(some).to(rows.device)].double() @ rows.double().T + bias.double()
    wins = scores.argmax(dim=1).cpu().numpy() == some
    if not wins[found.is_live[some]].all():
        failures.append("a row that was proved live loses in binary64")
    if out is not None:
        np.savez_compressed(
            out, facts=json.dumps(facts), rows=np.array(dead), bits=np.array([bits for *_, bits in covers]),
            sizes=np.array([len(rivals) for rivals, *_ in covers]),
            rivals=np.concatenate([np.zeros(0, dtype=np.int64), *(rivals for rivals, *_ in covers)]),
            parts=np.concatenate([np.zeros(0, dtype=np.int64), *(parts for _, parts, _ in covers)]),
        )  # fmt: skip


def _check(path):
    """Every certificate of a large head again, in rationals, from rows drawn anew."""
    import torch

    with np.load(path) as file:
        facts = json.loads(str(file["facts"]))
        table = torch.from_numpy(_table())
        plants = _plants(facts["rows"], facts["planted"], facts["seed"])
        ends = np.cumsum(file["sizes"])
        rivals, parts, bits, dead = file["rivals"], file["parts"], file["bits"], file["rows"]
    bad = 0
    for number, row in enumerate(dead.tolist()):
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        rows, bias = _some_rows(torch, [row, *rivals[part].tolist()], facts, table, plants)
        shares = [Fraction(int(p), 2 ** int(bits[number])) for p in parts[part]]
        own, *others = [[Fraction(x) for x in one] for one in torch.cat([rows, bias[:, None]], 1).tolist()]
        mixed = [sum(s * x for s, x in zip(shares, column, strict=True)) for column in zip(*others, strict=True)]
        steps = (rows[2:] - rows[1]).numpy()
        independent = np.linalg.matrix_rank(steps) == len(steps) if len(steps) else True
        holds = mixed[:-1] == own[:-1] and mixed[-1] >= own[-1] and sum(shares) == 1 and min(shares) > 0
        bad += not (holds and independent and row not in rivals[part])
    print(f"{len(dead)} certificates checked in rationals: {bad} fail; {len(set(dead.tolist()))} different rows")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cuda where there is one; else the twin on the processor, at a small size")
    parser.add_argument("--head", help="an .npz of a head: weights and bias, or what --export wrote")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--planted", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the certificates here")
    parser.add_argument("--export", nargs=2, metavar=("MODEL", "HEAD"))
    parser.add_argument("--check", metavar="CERTIFICATES")
    given = parser.parse_args()
    if given.export:
        _export(*given.export)
        return 0
    if given.check:
        return _check(given.check)
    import torch

    from hardmax.heads.classes import device as device_module

    if given.device is None:
        given.device = "cuda" if torch.cuda.is_available() else "cpu"
    usual = (131072, 4096, 1000) if given.device.startswith("cuda") else (2048, 64, 20)
    for name, size in zip(("rows", "dim", "planted"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, size)
    on = torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device
    facts = {"device": on, "torch": torch.__version__, "rows": given.rows, "dim": given.dim}
    facts.update(planted=given.planted, seed=given.seed)
    failures = []
    if given.head:
        bench_pass(torch, device_module, given.head, given.device, facts)
    bench_large(torch, device_module, given.device, facts, given.out, failures)
    if given.device.startswith("cuda"):
        failures += [
            f"{name} = {facts[name]:.3f}, expected {most}"
            for name, most in TARGETS.items()
            if facts.get(name, 0) > most
        ]
    print(json.dumps(facts))
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

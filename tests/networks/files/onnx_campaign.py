"""Campaigns too long for a test run: random ONNX graphs against onnxruntime, and mutated files.

python tests/networks/files/onnx_campaign.py --graphs 50000 --seed 0
python tests/networks/files/onnx_campaign.py --mutations 50000 --seed 0
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import hardmax as hm
from networks.files import onnx_random
from networks.files.onnx_graphs import onnx

SECONDS, MEMORY = 10.0, 2 << 30  # of the processor, and of the address space in use
_BATCH = 500


def graphs(count, seed, show, refused):
    """How many random graphs were equal, refused (by reason) and different."""
    verdicts, reasons, drawn, different = Counter(), Counter(), Counter(), 0
    operators = sorted({*onnx_random.OPERATORS, *onnx_random.FOLDS})
    for number in range(count):
        model, names = onnx_random.random_model([seed, number], operators[number % len(operators)])
        verdict, detail = onnx_random.compare(model)
        verdicts[verdict] += 1
        if verdict == "equal":
            drawn.update(names)
        if verdict == "refused":
            if refused and refused in detail:
                print(number, detail)
            words = detail.split("): ", 1)[-1]
            reasons["".join(c if not c.isdigit() else "#" for c in words)[:100]] += 1
        if verdict == "different":
            different += 1
            if different <= show:
                print("DIFFERENT", seed, number, model.opset, model.dtype, names, detail, flush=True)
                for node in model.nodes:
                    print("    ", node.op_type, list(node.input), "->", list(node.output))
    print(dict(verdicts))
    for reason, times in reasons.most_common(60):
        print(f"{times:6d} refused: {reason}")
    missing = [name for name in onnx_random.OPERATORS if not drawn[name]]
    missing += [f"{name} of constants" for name in onnx_random.FOLDS if not drawn[f"{name} of constants"]]
    print("never in a graph that was compared:", missing)
    return different


# --- mutated files ----------------------------------------------------------------------------------


def seeds(seed):
    """Small files to start from: two random graphs for every operator."""
    operators = sorted(onnx_random.OPERATORS)
    count = 2 * len(operators)
    return [onnx_random.random_model([seed, 7, n], operators[n % len(operators)])[0].model() for n in range(count)]


def mutated(whole, rng):
    """The bytes of a file with bits flipped, bytes lost or doubled, or a field of its messages edited."""
    kind = rng.integers(4)
    if kind == 3:
        model = onnx.ModelProto()
        model.CopyFrom(whole)
        for _ in range(int(rng.integers(1, 4))):
            _edit(model, rng)
        return model.SerializeToString()
    data = bytearray(whole.SerializeToString())
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(data)))
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at] = int(rng.integers(256))
        else:
            length = int(rng.integers(1, 40))
            data[at : at + length] = data[at : at + length] * int(rng.integers(0, 3))
        if not data:
            break
    return bytes(data[: int(rng.integers(len(data) + 1))] if rng.random() < 0.1 else data)


_NUMBERS = [0, 1, -1, 2, 3, 7, 100, 10**6, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]


def _edit(model, rng):
    """Change one number or name somewhere in the model."""
    nodes, tensors = list(model.graph.node), list(model.graph.initializer)
    what = int(rng.integers(8))
    number = _NUMBERS[int(rng.integers(len(_NUMBERS)))]
    attributes = [a for node in nodes for a in node.attribute]
    if what <= 2 and attributes:
        a = attributes[int(rng.integers(len(attributes)))]
        if a.ints:
            a.ints[int(rng.integers(len(a.ints)))] = number
        elif a.type == a.INT:
            a.i = number
        elif a.type == a.FLOAT:
            a.f = float(rng.choice([0.0, -1.0, 1e38, np.inf, -np.inf, np.nan, 1e-40]))
        elif a.type == a.STRING:
            a.s = bytes(rng.choice([b"", b"SAME_UPPER", b"VALID", b"wrap", b"ab,bc->ca", b"\xff"]))
    elif what == 3 and tensors:
        t = tensors[int(rng.integers(len(tensors)))]
        if t.data_type == t.INT64 and len(t.raw_data) >= 8 and len(t.raw_data) % 8 == 0:
            array = np.frombuffer(t.raw_data, np.int64).copy()
            array[int(rng.integers(array.size))] = number
            t.raw_data = array.tobytes()
        elif t.dims:
            t.dims[int(rng.integers(len(t.dims)))] = number
    elif what == 4:
        sizes = model.graph.input[0].type.tensor_type.shape.dim
        if sizes:
            sizes[int(rng.integers(len(sizes)))].dim_value = int(rng.choice([0, 1, 5, 1000, 10**5, 10**7, 2**40]))
    elif what == 5 and nodes:
        node = nodes[int(rng.integers(len(nodes)))]
        node.op_type = str(rng.choice(list(onnx_random.OPERATORS)))
    elif what == 6 and nodes:
        node, other = (nodes[int(rng.integers(len(nodes)))] for _ in range(2))
        if node.input:
            node.input[int(rng.integers(len(node.input)))] = str(rng.choice(["", "x", *other.output, *other.input]))
    elif tensors:
        tensors[int(rng.integers(len(tensors)))].data_type = int(rng.integers(0, 26))


def _read_batch(arguments):
    """Read a batch of mutated files; what went wrong, with the peak of the memory."""
    seed, first, count, folder = arguments
    files = seeds(seed)
    path = Path(folder) / f"{first}.onnx"
    outcome, wrong = Counter(), []
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, number])
        data = mutated(files[int(rng.integers(len(files)))], rng)
        path.write_bytes(data)
        (Path(folder) / f"{first}.now").write_text(str(number))
        start = time.process_time()
        try:
            hm.read(path)
            outcome["network"] += 1
        except hm.HardmaxError as error:
            outcome["refused"] += 1
            if "\n" in str(error):
                wrong.append((number, "a message of several lines"))
        except Exception as error:
            wrong.append((number, f"{type(error).__name__}: {error}"[:200]))
        spent = time.process_time() - start
        if spent > SECONDS:
            wrong.append((number, f"{spent:.1f} s"))
    (Path(folder) / f"{first}.now").unlink()
    path.unlink(missing_ok=True)
    return outcome, wrong, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def mutations(count, seed):
    """How many mutated files gave a network, a named error, or anything else."""
    outcome, wrong, peak = Counter(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, count, _BATCH):
            job = (seed, first, min(_BATCH, count - first), folder)
            # a process each: one that the kernel or a crash ends is told from the file it was reading
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                try:
                    found = pool.submit(_read_batch, job).result(timeout=1200)
                except (BrokenProcessPool, TimeoutError) as error:
                    at = (Path(folder) / f"{first}.now").read_text()
                    wrong.append((int(at), f"the process died or hung: {type(error).__name__}"))
                    continue
            outcome.update(found[0])
            wrong += found[1]
            peak = max(peak, found[2])
            if found[2] > MEMORY:
                wrong.append((first, f"{found[2] >> 20} MiB in this batch"))
    print(dict(outcome), f"largest memory {peak >> 20} MiB")
    for entry in wrong[:40]:
        print("WRONG", *entry)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--refused", default="", help="print the graphs refused with these words")
    given = parser.parse_args()
    wrong = graphs(given.graphs, given.seed, given.show, given.refused) if given.graphs else 0
    wrong += mutations(given.mutations, given.seed) if given.mutations else 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

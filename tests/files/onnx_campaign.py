"""Campaigns too long for a test run: random ONNX graphs against onnxruntime, and mutated files.

    python tests/files/onnx_campaign.py --graphs 50000 --seed 0
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from files import onnx_random


def graphs(count, seed, show, refused):
    """How many random graphs were equal, refused (by reason) and different."""
    verdicts, reasons, drawn, different = Counter(), Counter(), Counter(), []
    for number in range(count):
        operators = sorted({*onnx_random.OPERATORS, *onnx_random.FOLDS})
        model, names = onnx_random.random_model([seed, number], operators[number % len(operators)])
        verdict, detail = onnx_random.compare(model)
        verdicts[verdict] += 1
        if verdict == "equal":
            drawn.update(names)
        if verdict == "refused" and refused and refused in detail:
            print(number, detail)
        if verdict == "refused":
            words = detail.split("): ", 1)[-1]
            reasons["".join(c if not c.isdigit() else "#" for c in words)[:100]] += 1
        if verdict == "different":
            different.append((number, names, detail))
            if len(different) <= show:
                print("DIFFERENT", seed, number, model.opset, model.dtype, names, detail, flush=True)
                for node in model.nodes:
                    print("    ", node.op_type, list(node.input), "->", list(node.output))
    print(dict(verdicts))
    for reason, times in reasons.most_common(60):
        print(f"{times:6d} refused: {reason}")
    missing = [name for name in onnx_random.OPERATORS if not drawn[name]]
    missing += [f"{name} of constants" for name in onnx_random.FOLDS if not drawn[f"{name} of constants"]]
    print("never in a graph that was compared:", missing)
    return len(different)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--refused", default="", help="print the graphs refused with these words")
    given = parser.parse_args()
    return 1 if graphs(given.graphs, given.seed, given.show, given.refused) else 0


if __name__ == "__main__":
    sys.exit(main())

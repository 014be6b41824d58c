"""Running a command in this process, and small models and inputs to run it on."""

import json
import re

import numpy as np

import hardmax as hm
from hardmax.cli import main

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # build servers ask for colours


def run(capsys, *arguments):
    """The exit code, standard output and standard error of one command."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, _COLOURS.sub("", captured.out), _COLOURS.sub("", captured.err)


def facts_of(capsys, *arguments):
    """The exit code and the JSON of one command that prints nothing else."""
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    assert out.count("\n") == 1
    return code, json.loads(out)


def is_one_line(text):
    """Whether a message is one line that begins with the program's name and is no traceback."""
    return text.startswith("hardmax: ") and text.count("\n") == 1 and "Traceback" not in text


def soft_network():
    """Two heads and a linear layer that decides between three classes, at temperature 1."""
    rng = np.random.default_rng(4)
    heads = [hm.Head(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.normal(size=(2, 2))) for _ in range(2)]
    layers = [hm.Attention(heads), hm.Affine(rng.normal(size=(3, 4)), rng.normal(size=3))]
    return hm.Network(layers, 2, temperature=1.0)


def inputs(n=12):
    """Points of the plane."""
    return np.random.default_rng(5).uniform(-2, 2, (n, 2))

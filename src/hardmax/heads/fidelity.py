"""How much of a soft model is its skeleton: the two compared on given inputs.

Every number here is measured on the inputs given, in floating point, and says nothing of other inputs. A
decision is the position of the first maximum over the last axis of an output.

Sources. A ``Network`` or a file that ``hm.read`` reads, with an array (..., *input_shape) as inputs; or a trained
model with what ``hm.capture`` takes for it: a model of ``hm.models`` with texts or receptors, a Hugging Face model
with token numbers or what its tokenizer gives, another torch module with a tensor whose first axis is the batch.

Trained models run themselves, in evaluation mode, with some heads made hard inside them. Only their attention is made
hard: norms and activations (GELU, SiLU) are kept, unlike in a skeleton. Masked keys stay masked, ties go to the
lowest index. Their outputs are

- of a language model (``hm.models.smollm2()``) the logits at every position of every text, each one decision;
- of an encoder of ``hm.models`` the embedding of a text or receptor, of length 1: no decisions and no divergence, and
  a relative error of r is a cosine of 1 - r^2 / 2 with the soft embedding;
- of a Hugging Face model its logits, or where it has none its last hidden states, which decide nothing;
- of another torch module whatever it gives; of a bare ``nn.TransformerEncoder`` embeddings, which decide nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError
from hardmax.exactness import Array, Exactness, as_tuple, check_temperature
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.capture.network_heads import NOTHING_LEFT, tapped
from hardmax.heads.find import Pair, head_layers
from hardmax.heads.find import heads_of as heads_of
from hardmax.heads.hardening import harden as harden
from hardmax.heads.hardening import soft_network
from hardmax.heads.rows import HeadRows, head_rows
from hardmax.heads.trials import Interval, Judge, Runs, hard_outputs, runs_of
from hardmax.html import ShownAsTable
from hardmax.networks.network import Network

__all__ = [
    "AtTemperature",
    "Fidelity",
    "Hardened",
    "attention_rows",
    "by_head",
    "by_layer",
    "compare",
    "greedy",
    "harden",
    "heads_of",
    "outputs",
    "own_loss",
    "ranked",
    "temperature_path",
]


def __dir__() -> list[str]:
    return __all__


#: A network, the path of a file, a model of ``hm.models``, a Hugging Face model or another torch module.
Source: TypeAlias = Network | str | os.PathLike[str] | Any


@dataclass(frozen=True)
class Fidelity(ShownAsTable):
    """Soft outputs against hard ones on ``n`` inputs, or texts.

    ``relative_error`` is the mean over inputs of |hard - soft| / |soft| (Euclidean), ``kl`` the mean divergence of
    softmax(hard) from softmax(soft) in nats, ``agreement`` the share of equal decisions. What does not apply
    is None: the divergence where outputs are no logits, decisions where an output is one number, accuracies
    without labels. ``interval`` says where each would lie on other inputs.
    """

    n: int
    relative_error: float
    kl: float | None
    agreement: float | None
    soft_accuracy: float | None
    hard_accuracy: float | None
    exactness: Exactness = Exactness.ESTIMATED
    relative_error_interval: Interval = None
    kl_interval: Interval = None
    agreement_interval: Interval = None
    soft_accuracy_interval: Interval = None
    hard_accuracy_interval: Interval = None

    def interval(self, name: str = "agreement") -> Interval:
        """The 95 % interval for inputs drawn as these were, of any number here by its name.

        Shares have that of Clopper and Pearson where every input makes one decision, else Hoeffding's, in which a text
        counts by its decisions and the lengths of texts are taken as they are (``exactness.share_interval``).
        "relative_error" and "kl" have Student's interval of the mean over inputs (``exactness.mean_interval``), which
        is None for a single input.

        Examples
        --------
        >>> from hardmax.networks.layers import Attention, Head
        >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0, 0.0], [0.0, 1.0]], query=[[1.0]])
        >>> found = compare(Network([Attention([head])], input_dim=1, temperature=1.0), [[2.0], [-2.0], [1.0]])
        >>> [round(end, 3) for end in found.interval()]
        [0.292, 1.0]
        """
        own = f"{name}_interval"
        if not hasattr(self, own):
            raise ParameterError(
                "interval: expected 'agreement', 'relative_error', 'kl', 'soft_accuracy' or 'hard_accuracy', got "
                f"{name!r:.80}"
            )
        found: Interval = getattr(self, own)
        return found


@dataclass(frozen=True)
class Hardened:
    """The fidelity of a network in which only ``heads``, (layer, head) pairs, are hard."""

    heads: tuple[Pair, ...]
    fidelity: Fidelity


@dataclass(frozen=True)
class AtTemperature:
    """The fidelity of a network at another temperature than its own."""

    temperature: float
    fidelity: Fidelity


def compare(
    source: Source,
    inputs: Any,
    labels: ArrayLike | None = None,
    logits: bool = True,
    *,
    hard: Network | None = None,
) -> Fidelity:
    """The network against its skeleton, or against ``hard``; a trained model against itself with every head hard.

    A skeleton has ReLU where the network has GELU; in a trained model attention alone changes. To keep GELU in a
    network too, pass ``hard=harden(net, heads_of(net))``.

    Parameters
    ----------
    source, inputs
        A network or file and an array (..., *input_shape), or a trained model and what it takes (see the module).
    labels
        The right decision for each input, or for each position where outputs are (positions, classes); one row
        for each text. "next" for a language model of ``hm.models``: the next token of the text, at each position
        but the last.
    logits
        Whether outputs are logits, so that a divergence makes sense. A Softmax at the model's end is taken
        off first.
    hard
        Another network to compare a network with, such as ``hm.skeleton(net, reference=x)``.

    Exactness: estimated; rounded, and about these inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0, 0.0], [0.0, 1.0]], query=[[1.0]])
    >>> net = Network([Attention([head])], input_dim=1, temperature=1.0)
    >>> f = compare(net, [[2.0], [-2.0]], labels=[0, 0])
    >>> f.agreement, f.soft_accuracy, f.hard_accuracy, round(f.relative_error, 4)
    (1.0, 0.5, 0.5, 0.0259)
    >>> compare(Network([Affine([[2.0]])], input_dim=1), [[1.0]])
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: expected a model with attention, got Network((1,) -> (1,), 1 operations, \
1 parameters, 0 choices, hard) without any; fidelity compares soft attention with hard
    """
    return Trial(runs_of(source, inputs), labels, logits).whole(hard)


def by_layer(source: Source, inputs: Any, labels: ArrayLike | None = None, logits: bool = True) -> tuple[Hardened, ...]:
    """The fidelity with one attention layer hard at a time, all else as it was, in order.

    Exactness: estimated; rounded, and about these inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    >>> net = Network([Attention([head, head])], input_dim=1, temperature=1.0)
    >>> [hardened.heads for hardened in by_layer(net, [[2.0]])]
    [((0, 0), (0, 1))]
    """
    return Trial(runs_of(source, inputs), labels, logits).by_layer()


def by_head(source: Source, inputs: Any, labels: ArrayLike | None = None, logits: bool = True) -> tuple[Hardened, ...]:
    """The fidelity with one head hard at a time, all else as it was, in order.

    Exactness: estimated; rounded, and about these inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    >>> net = Network([Attention([head, head])], input_dim=1, temperature=1.0)
    >>> [hardened.heads for hardened in by_head(net, [[2.0]])]
    [((0, 0),), ((0, 1),)]
    """
    return Trial(runs_of(source, inputs), labels, logits).by_head()


def temperature_path(
    source: Source,
    inputs: Any,
    temperatures: Iterable[float] | None = None,
    labels: ArrayLike | None = None,
    logits: bool = True,
) -> tuple[AtTemperature, ...]:
    """The network at its own temperature against itself at others, down to zero.

    Only attention cools: GELU and SiLU stay as they are, unlike in ``compare``. Without ``temperatures`` the
    path halves the network's own eight times and ends at zero. The temperatures of a trained model count in its
    heads' own (sqrt(d_k) on raw dot products for a standard head), so 1 is the model as it is.

    Exactness: estimated; rounded, and about these inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    >>> net = Network([Attention([head])], input_dim=1, temperature=1.0)
    >>> [(at.temperature, round(at.fidelity.relative_error, 3)) for at in temperature_path(net, [[1.0]], [1.0, 0.0])]
    [(1.0, 0.0), (0.0, 0.313)]
    """
    return Trial(runs_of(source, inputs), labels, logits).temperature_path(temperatures)


def greedy(
    source: Source, inputs: Any, max_loss: float, labels: ArrayLike | None = None, logits: bool = True
) -> tuple[Hardened, ...]:
    """Heads hardened one after another while at most ``max_loss`` of the decisions change.

    The share that changes is compared as the nearest float, so that 3 in 10 is a loss of 0.3. Each step adds the head
    that keeps most decisions, then the one with the smaller relative error, then the first. The last entry holds the
    largest set found; entry k holds k heads, entry 0 none. Finding the largest set of all would take every subset: this
    one cannot be extended by one head, but a larger may exist. It costs about h^2 / 2 evaluations for h heads; of a
    large model take ``ranked``.

    Exactness: estimated; rounded, and about these inputs only. The size is a lower bound of the largest.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> sure = Head(keys=[[1.0], [-1.0]], values=[[9.0], [-9.0]], query=[[1.0]])
    >>> swung = Head(keys=[[1.0], [0.0]], values=[[0.0], [-20.0]], query=[[1.0]])
    >>> layers = [Attention([sure, swung]), Affine([[1.0, 1.0], [0.0, 0.0]])]
    >>> net = Network(layers, input_dim=1, temperature=1.0)
    >>> [hardened.heads for hardened in greedy(net, [[0.1]], max_loss=0.0)]
    [(), ((0, 0),)]
    >>> greedy(net, [[0.1]], max_loss=1.0)[-1].heads
    ((0, 0), (0, 1))
    """
    return Trial(runs_of(source, inputs), labels, logits).greedy(max_loss)


def ranked(source: Source, inputs: Any, labels: ArrayLike | None = None, logits: bool = True) -> tuple[Hardened, ...]:
    """The fidelity with ever more heads hard, those first that change the outputs least when hard alone.

    Heads are in order of their divergence in ``by_head``, of their relative error where there is none, then of
    layer and head. Entry k holds the first k heads, entry 0 none, the last all. It costs 2 h evaluations for h
    heads, where ``greedy`` costs about h^2 / 2; heads that matter only together are not found out.

    Exactness: estimated; rounded, and about these inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> unsure = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    >>> sure = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[9.0]])
    >>> net = Network([Attention([unsure, sure])], input_dim=1, temperature=1.0)
    >>> [hardened.heads for hardened in ranked(net, [[1.0]])]
    [(), ((0, 1),), ((0, 1), (0, 0))]
    """
    trial = Trial(runs_of(source, inputs), labels, logits)
    order = [hardened.heads[0] for hardened in sorted(trial.by_head(), key=own_loss)]
    return tuple(trial.with_hard(order[:count]) for count in range(len(order) + 1))


def own_loss(hardened: Hardened) -> float:
    """By what ``ranked`` orders heads: their divergence, or the relative error where there is none."""
    if not isinstance(hardened, Hardened):
        raise ParameterError(f"expected one of fidelity.by_head(...), a Hardened, got a {type(hardened).__name__}")
    found = hardened.fidelity
    return found.relative_error if found.kl is None else found.kl


def outputs(
    source: Source, inputs: Any, heads: Iterable[Pair] = (), *, temperature: float | None = None
) -> tuple[Array, ...]:
    """What the model gives for each input with the given (layer, head) pairs hard, the others at ``temperature``.

    None is the model's own temperature; that of a trained model counts in its heads' own, as in
    ``temperature_path``. Texts of several lengths give arrays of several lengths.

    Exactness: rounded as the model rounds.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    >>> net = Network([Attention([head, head])], input_dim=1, temperature=1.0)
    >>> [output.round(3).tolist() for output in outputs(net, [[1.0], [-2.0]], [(0, 1)])]
    [[0.762, 1.0], [-0.964, -1.0]]
    >>> [output.tolist() for output in outputs(net, [[0.0]])]
    [[0.0, 0.0]]
    """
    runs = runs_of(source, inputs)
    tau = runs.temperature if temperature is None else check_temperature(temperature)
    return tuple(output for block in runs.run(heads, tau) for output in block)


def attention_rows(source: Network | str | os.PathLike[str], inputs: ArrayLike) -> tuple[HeadRows, ...]:
    """Margins, entropies and winning keys of every head, as the soft network runs on the inputs.

    Scores are what enters Softmax when every layer before is soft too, whether they are dot products or not; the rows
    are those of a head whose biases they are, so there are no walls.

    Exactness: of ``HeadRows``, about the scores as they were rounded; shares speak of the given inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0], [0.0]], values=[[5.0], [7.0], [6.0]], query=[[1.0]])
    >>> (rows,) = attention_rows(Network([Attention([head])], input_dim=1, temperature=1.0), [[2.0], [0.5]])
    >>> rows.margins.tolist(), rows.certified_share, rows.never_chosen
    ([2.0, 0.5], 0.5, (1, 2))

    A head with one key has nothing to choose:

    >>> alone = Network([Attention([Head([[1.0]], [[5.0]], [[1.0]])])], input_dim=1, temperature=1.0)
    >>> rows = attention_rows(alone, [[2.0]])[0]
    >>> rows.margins.tolist(), rows.entropies.tolist(), rows.certified_share
    ([inf], [0.0], 1.0)
    """
    net = soft_network(source)
    layers = head_layers(net)
    values = sorted({net.graph.nodes[index].inputs[0] for found in layers for index in found.nodes})
    of_values = tapped(net, values, inputs)
    result = []
    for found in layers:
        parts = [of_values[net.graph.nodes[index].inputs[0]] for index in found.nodes]
        flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)  # (inputs, entries)
        factors = [np.ones(part[0].size) if path is None else path.factors
                   for part, path in zip(parts, found.paths, strict=True)]  # fmt: skip
        written = np.concatenate(factors) == 0  # Where wrote a number in place of the score
        for number, entries in enumerate(found.layout, found.first):
            scores = np.where(entries >= 0, flat[:, entries], -np.inf)
            best = scores.max(axis=-1, keepdims=True)
            scores[written[entries] & (scores < best - NOTHING_LEFT * net.temperature)] = -np.inf
            rows = scores.reshape(-1, scores.shape[-1])
            is_seen = rows > -np.inf
            no_query, no_key = np.zeros((len(rows), 1)), np.zeros((rows.shape[1], 1))
            head = CapturedHead(
                found.layer, number, found.name, no_query, no_key, no_key, net.temperature,
                np.where(is_seen, rows, 0.0), is_seen,
            )  # fmt: skip
            result.append(head_rows(head))
    return tuple(result)


def _agreement(hardened: Hardened) -> float:
    agreement = hardened.fidelity.agreement
    assert agreement is not None  # greedy refused such networks
    return agreement


class Trial:
    """A soft model on its inputs, checked once and compared with itself again and again.

    Each set of hard heads is run once.
    """

    def __init__(self, runs: Runs, labels: ArrayLike | None, logits: bool = True) -> None:
        self.runs = runs
        self.judge = Judge(runs, labels, logits)
        self._made: dict[frozenset[Pair], Fidelity] = {}

    @property
    def layers(self) -> list[list[Pair]]:
        """The (layer, head) pairs of the model, one list for each layer."""
        found: dict[int, list[Pair]] = {}
        for layer, head in self.runs.heads:
            found.setdefault(layer, []).append((layer, head))
        return list(found.values())

    def with_hard(self, heads: Iterable[Pair]) -> Hardened:
        """What changes with these heads hard."""
        chosen = tuple(heads)
        name = frozenset(chosen)
        if name not in self._made:
            self._made[name] = self.fidelity(self.runs.run(chosen))
        return Hardened(chosen, self._made[name])

    def whole(self, hard: Network | None = None) -> Fidelity:
        """What ``compare`` gives."""
        return self.fidelity(hard_outputs(self.runs, hard))

    def by_layer(self) -> tuple[Hardened, ...]:
        """One layer hard at a time."""
        return tuple(self.with_hard(heads) for heads in self.layers)

    def by_head(self) -> tuple[Hardened, ...]:
        """One head hard at a time."""
        return tuple(self.with_hard([pair]) for pair in self.runs.heads)

    def temperature_path(self, temperatures: Iterable[float] | None = None) -> tuple[AtTemperature, ...]:
        """The model at other temperatures, by halves down to zero unless they are given."""
        own = self.runs.temperature
        path = [own / 2**k for k in range(9)] + [0.0] if temperatures is None else temperatures
        checked = [check_temperature(temperature) for temperature in as_tuple("fidelity", "temperatures", path)]
        if not checked:
            raise EmptyError("temperatures: expected at least one temperature, got none")
        return tuple(AtTemperature(tau, self.fidelity(self.runs.run((), tau))) for tau in checked)

    def greedy(self, max_loss: float) -> tuple[Hardened, ...]:
        """Heads hardened one after another while at most ``max_loss`` of the decisions change."""
        if not 0 <= max_loss <= 1:
            raise ParameterError(f"max_loss: expected a share of decisions from 0 to 1, got {max_loss!r}")
        if self.judge.decisions is None:
            raise ParameterError(
                f"greedy counts equal decisions, and outputs of shape {self.runs.soft[0].shape[1:]} decide nothing; "
                "expected at least two numbers on the last axis, and no embeddings"
            )
        n_decisions = self.judge.decisions.size
        steps = [self.with_hard([])]
        left = list(self.runs.heads)
        while left:
            tried = [self.with_hard([*steps[-1].heads, head]) for head in left]
            best = min(tried, key=lambda hardened: (-_agreement(hardened), hardened.fidelity.relative_error))
            # counted in whole decisions and divided once, so that 3 in 10 is 0.3 and not 1 - 0.7
            if round((1 - _agreement(best)) * n_decisions) / n_decisions > max_loss:
                break
            steps.append(best)
            left.remove(best.heads[-1])
        return tuple(steps)

    def fidelity(self, outputs: list[Array]) -> Fidelity:
        """How far these outputs are from the soft ones."""
        judge = self.judge
        error, error_interval = judge.relative_error(outputs)
        kl, kl_interval = judge.divergence(outputs)
        agreement, agreement_interval = judge.agreement(outputs)
        soft, soft_interval = judge.accuracy()
        hard, hard_interval = judge.accuracy(outputs)
        return Fidelity(
            judge.n,
            error,
            kl,
            agreement,
            soft,
            hard,
            relative_error_interval=error_interval,
            kl_interval=kl_interval,
            agreement_interval=agreement_interval,
            soft_accuracy_interval=soft_interval,
            hard_accuracy_interval=hard_interval,
        )

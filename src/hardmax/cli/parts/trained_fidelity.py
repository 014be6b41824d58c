"""A trained model against itself with heads made hard: all of them, by layer, by head, and many together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hardmax.cli.parts.progress import steps, working

if TYPE_CHECKING:
    from hardmax.cli.parts.trained import TrainedModel
    from hardmax.heads.fidelity import Hardened

Pair = tuple[int, int]

#: A page takes a model apart head by head up to here; `hardmax skeleton` does it for any.
MOST_HEADS_APART = 100


class Comparison:
    """The model on its texts, run again and again with other heads hard."""

    def __init__(self, trained: TrainedModel) -> None:
        from hardmax.heads.fidelity import Trial
        from hardmax.heads.trials import NEXT, runs_of

        runs = runs_of(trained.model, trained.texts)
        following = runs.next_tokens
        has_labels = following is not None and any((tokens >= 0).any() for tokens in following)
        self._trial = Trial(runs, NEXT if has_labels else None)

    @property
    def heads(self) -> tuple[Pair, ...]:
        """The (layer, head) pairs of the model."""
        return self._trial.runs.heads

    @property
    def layers(self) -> list[list[Pair]]:
        """The same, one list for each layer."""
        return self._trial.layers

    def with_hard(self, heads: Iterable[Pair]) -> Hardened:
        """What changes with these heads hard."""
        return self._trial.with_hard(heads)

    def each(self, sets: list[list[Pair]], what: str) -> list[Hardened]:
        """The same for several sets of heads, with a bar where someone watches."""
        with steps(len(sets), what) as advance:
            found = []
            for heads in sets:
                found.append(self.with_hard(heads))
                advance()
            return found


def together(comparison: Comparison, alone: list[Hardened], max_loss: float) -> Hardened:
    """Many heads that are hard together while at most ``max_loss`` of the decisions change.

    Heads are taken in the order of what each loses alone, as ``hm.fidelity.ranked`` does, and their number is found by
    halving: the set given keeps that many decisions, but a larger one may as well.
    """
    from hardmax.heads.fidelity import own_loss

    order = [hardened.heads[0] for hardened in sorted(alone, key=own_loss)]
    fits, too_many = comparison.with_hard([]), len(order) + 1
    while too_many - len(fits.heads) > 1:
        tried = comparison.with_hard(order[: (len(fits.heads) + too_many) // 2])
        agreement = tried.fidelity.agreement
        assert agreement is not None  # asked only where there are decisions
        if 1 - agreement <= max_loss * (1 + 1e-12) + 1e-12:
            fits = tried
        else:
            too_many = len(tried.heads)
    return fits


def compare_trained(trained: TrainedModel, row: Any, max_loss: float, brief: bool) -> dict[str, Any]:
    """The fidelity of a trained model as plain values; ``row`` turns one comparison into them."""
    with working(f"running {trained.name}, soft and hard"):
        comparison = Comparison(trained)
        whole = comparison.with_hard(comparison.heads).fidelity
    facts: dict[str, Any] = {
        "n_inputs": whole.n,
        "n_heads": len(comparison.heads),
        "exactness": whole.exactness.value,
        "whole": row(whole),
    }
    if brief:
        return facts
    facts["by_layer"] = [
        {"layer": hardened.heads[0][0], **row(hardened.fidelity)}
        for hardened in comparison.each(comparison.layers, "layer by layer")
    ]
    alone = comparison.each([[pair] for pair in comparison.heads], "head by head")
    facts["by_head"] = [
        {"layer": hardened.heads[0][0], "head": hardened.heads[0][1], **row(hardened.fidelity)} for hardened in alone
    ]
    if whole.agreement is not None:
        with working("looking for heads that can be hard together"):
            best = together(comparison, alone, max_loss)
        facts["together"] = {
            "max_loss": max_loss,
            "heads": [list(pair) for pair in best.heads],
            "n_heads": len(alone),
            **row(best.fidelity),
        }
    return facts


def compared_parts(trained: TrainedModel, say: Callable[[str], None]) -> list[Hardened]:
    """What a page tells of a trained model: every head hard, then each layer, and each head where they are few."""
    say(f"running {trained.name}")
    comparison = Comparison(trained)
    sets = [list(comparison.heads), *comparison.layers]
    if len(comparison.heads) <= MOST_HEADS_APART:
        sets += [[pair] for pair in comparison.heads]
    found = []
    for number, heads in enumerate(sets):
        say(f"comparing soft and hard attention, run {number + 1} of {len(sets)}")
        found.append(comparison.with_hard(heads))
    return found

"""A soft model against itself with heads made hard: all of them, by layer, by head, and many together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hardmax.cli.parts.output import bar, picked, working

if TYPE_CHECKING:
    from hardmax.cli.parts.trained import TrainedModel
    from hardmax.heads.fidelity import Fidelity, Hardened, Trial
    from hardmax.heads.find import Pair

#: A page takes a model apart head by head up to here; `hardmax skeleton` does it for any.
MOST_HEADS_APART = 100
#: What people read of a comparison.
NUMBERS = {
    "agreement": "decisions kept",
    "relative_error": "relative error",
    "kl": "divergence",
    "soft_accuracy": "accuracy, soft",
    "hard_accuracy": "accuracy, hard",
}


def trained_trial(trained: TrainedModel) -> Trial:
    """A trained model on its texts; the next token is the right answer where there is one."""
    from hardmax.heads.fidelity import Trial
    from hardmax.heads.trials import NEXT, runs_of

    runs = runs_of(trained.model, trained.texts)
    following = runs.next_tokens
    has_labels = following is not None and any((tokens >= 0).any() for tokens in following)
    return Trial(runs, NEXT if has_labels else None)


def together(trial: Trial, alone: list[Hardened], max_loss: float) -> Hardened:
    """Many heads that are hard together while at most ``max_loss`` of the decisions change.

    Heads are taken in the order of what each loses alone, as ``hm.fidelity.ranked`` does, and their number is found by
    halving: the set given keeps that many decisions, but a larger one may as well.
    """
    from hardmax.heads.fidelity import own_loss

    order = [hardened.heads[0] for hardened in sorted(alone, key=own_loss)]
    fits, too_many = trial.with_hard([]), len(order) + 1
    while too_many - len(fits.heads) > 1:
        tried = trial.with_hard(order[: (len(fits.heads) + too_many) // 2])
        agreement = tried.fidelity.agreement
        assert agreement is not None  # asked only where there are decisions
        if 1 - agreement <= max_loss * (1 + 1e-12) + 1e-12:
            fits = tried
        else:
            too_many = len(tried.heads)
    return fits


def taken_apart(trial: Trial, whole: Fidelity, max_loss: float, search: str) -> dict[str, Any]:
    """One layer, then one head hard at a time, and as many together as the loss allows, as plain values.

    ``search`` says how these are looked for, and what they are called: "greedy", or "together" of a large model.
    """
    layers = _each(trial, trial.layers, "layer by layer")
    alone = _each(trial, [[pair] for pair in trial.runs.heads], "head by head")
    facts: dict[str, Any] = {
        "by_layer": [{"layer": part.heads[0][0], **facts_of(part.fidelity)} for part in layers],
        "by_head": [
            {"layer": part.heads[0][0], "head": part.heads[0][1], **facts_of(part.fidelity)} for part in alone
        ],
    }  # fmt: skip
    if whole.agreement is not None:
        with working("looking for heads that can be hard together"):
            best = trial.greedy(max_loss)[-1] if search == "greedy" else together(trial, alone, max_loss)
        facts[search] = {
            "max_loss": max_loss,
            "heads": [list(pair) for pair in best.heads],
            "n_heads": len(alone),
            **facts_of(best.fidelity),
        }
    return facts


def _each(trial: Trial, sets: list[list[Pair]], what: str) -> list[Hardened]:
    """What changes with each set of heads hard, with a bar where someone watches."""
    found = []
    with bar(len(sets), what) as advance:
        for heads in sets:
            found.append(trial.with_hard(heads))
            advance(len(found), f"{what}, {len(found)} of {len(sets)}")
    return found


def facts_of(found: Fidelity) -> dict[str, Any]:
    """One comparison as plain values."""
    return {
        **picked(found, "relative_error", "kl", "agreement"),
        "interval": found.interval(),
        "intervals": {name: found.interval(name) for name in NUMBERS},
        **picked(found, "soft_accuracy", "hard_accuracy"),
    }


def compared_parts(trained: TrainedModel, say: Callable[[str], None]) -> list[Hardened]:
    """What a page tells of a trained model: every head hard, then each layer, and each head where they are few."""
    say(f"running {trained.name}")
    trial = trained_trial(trained)
    sets = [list(trial.runs.heads), *trial.layers]
    if len(trial.runs.heads) <= MOST_HEADS_APART:
        sets += [[pair] for pair in trial.runs.heads]
    found = []
    for number, heads in enumerate(sets):
        say(f"comparing soft and hard attention, run {number + 1} of {len(sets)}")
        found.append(trial.with_hard(heads))
    return found

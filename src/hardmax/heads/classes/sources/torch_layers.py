"""The output layer of a torch module or Hugging Face model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import OperatorError, ParameterError, WeightError
from hardmax.heads.classes.sources.head import (
    BOXES,
    FINAL_BIAS,
    HIDES_WORDS,
    IN_TWO_PARTS,
    ClassHead,
    arrays_head,
    listed_layers,
)
from hardmax.heads.classes.sources.torch_tails import assumed_behind

#: Attributes under which modules keep their output layer.
_USUAL = ("lm_head", "classifier", "score", "head", "fc", "output", "out_proj", "decoder", "cls")
#: torch's activations by the names of what bounds them; of others nothing is said.
_ACTIVATIONS = {
    **dict.fromkeys(("Sigmoid", "Tanh", "Softsign"), ""),
    **{"Hardsigmoid": "HardSigmoid", "Hardswish": "HardSwish", "SiLU": "Swish", "GELU": "Gelu", "Softmax": "Softmax"},
}
_POSITIVE = ("ReLU", "Softplus")
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")
_LINEAR = ("Linear", "ParametrizedLinear", "NonDynamicallyQuantizableLinear", "Conv1D", "Embedding")
_AUTHORS = ("torch", "transformers", "timm")
_TRANSPARENT = ("Dropout", "Identity", "Flatten", "Dropout1d", "Dropout2d")


def torch_head(module: Any, layer: str | None) -> ClassHead:
    """The output layer: what Hugging Face names as such, a module's usual names for it, or the last of a sequence.

    Raises
    ------
    ParameterError
        Several layers may be meant; the message lists them.
    """
    while type(module).__name__ in _WRAPPERS:
        module = next(module.children())
    where = type(module).__name__
    linears = {name: part for name, part in module.named_modules() if _is_linear(part)}
    if layer is not None:
        if layer not in linears:
            raise ParameterError(f"{where}: no linear layer {layer!r:.60}; there are {_listed(linears)}")
        return _fronted(_read(linears[layer], f"{where}: layer {layer!r}", module)[0], module, linears[layer])
    found = _output(module, linears)
    if len(found) == 1:
        ((name, part),) = found.items()
        if where.startswith("Chameleon"):
            raise OperatorError(f"{where}: {HIDES_WORDS}")
        head, added = _read(part, f"{where}: layer {name!r}" if name else where, module)
        head = replace(head, assumed=assumed_behind(module, part, where, len(head.weights), added))
        return _fronted(head, module, part)
    if not linears:
        raise OperatorError(f"{where}: expected a module with a linear output layer, found no linear layer in it")
    several = found or linears
    if len(several) == 1:
        raise ParameterError(
            f"{where}: the linear layer found may be a hidden one, since other weights stand behind or around it; "
            f"name it with layer= if it is the output: {_listed(several)}"
        )
    if any(hasattr(part, "base_layer") or hasattr(part, "original_module") for part in module.modules()):
        raise OperatorError(
            f"{where} has adapters at its output layer or beside it; merge them first (model.merge_and_unload())"
        )
    raise ParameterError(f"{where}: {len(several)} layers may be the output; name one with layer=: {_listed(several)}")


def _output(module: Any, linears: dict[str, Any]) -> dict[str, Any]:
    """The layers that may be the output: one where it is clear."""
    if _is_linear(module):
        return {"": module}
    named = getattr(module, "get_output_embeddings", None)
    part = named() if callable(named) else None
    if part is not None and _is_linear(part):
        name = next((name for name, other in linears.items() if other is part), "output embeddings")
        return {name: part}
    linears = {key: other for key, other in linears.items() if type(other).__name__ != "Embedding"}
    usual: dict[str, Any] = {}
    for name in _USUAL:
        inside = {key: other for key, other in linears.items() if key == name or key.startswith(f"{name}.")}
        if inside:
            last = list(inside)[-1]
            usual[last] = inside[last]
            # a second head of the same classes, which a model with a teacher averages with the first
            usual |= {
                key: other
                for key, other in linears.items()
                if key.startswith(f"{name}_") and other.weight.shape == inside[last].weight.shape
            }
    if usual:
        labels = getattr(getattr(module, "config", None), "num_labels", None)
        fitting = {key: other for key, other in usual.items() if len(other.weight) == labels}
        if len(fitting) == 1:
            return fitting
    elif type(module).__name__ == "Sequential" and linears:
        last = list(linears)[-1]
        return {last: linears[last]}
    found = usual or (linears if len(linears) == 1 else {})
    return {} if len(found) == 1 and _has_more(module, *found) else found


def _has_more(module: Any, name: str) -> bool:
    """Whether a module declares weights behind those of a layer, or around it: then the layer may be a hidden one."""
    names = [key for key, _ in module.named_modules()]
    behind = {key for key in names[names.index(name) + 1 :] if not key.startswith(f"{name}.")}
    around = {""} | {name[:k] for k, letter in enumerate(name) if letter == "."}
    owners = ((path.rpartition(".")[0], value.ndim) for path, value in module.named_parameters())
    return any((key in behind and ndim > 1) or (key in around and ndim == 2) for key, ndim in owners)


def _fronted(head: ClassHead, module: Any, part: Any) -> ClassHead:
    """The head with the domain of its features, where it stands in a sequence behind an activation that bounds them.

    What other modules compute in front of a layer is written in their code, which is not read.
    """
    for sequence in module.modules():
        steps = list(sequence) if type(sequence).__name__ == "Sequential" else []
        place = next((k for k, step in enumerate(steps) if step is part), 0)
        before = [step for step in steps[:place] if type(step).__name__ not in _TRANSPARENT]
        kind = type(before[-1]).__name__ if before else ""
        if kind in _POSITIVE and getattr(before[-1], "beta", 1) > 0:
            return replace(head, features="nonnegative", reason=f"features after {kind}")
        if kind in _ACTIVATIONS:
            low, high = BOXES[_ACTIVATIONS[kind] or kind]
            return replace(head, features=("box", low, high), reason=f"features after {kind}")
    return head


def _is_linear(part: Any) -> bool:
    """Whether a module multiplies by its weight: one of these names whose own class says nothing else."""
    weight, author = getattr(part, "weight", None), type(part).forward.__module__.partition(".")[0]
    is_known = type(part).__name__ in _LINEAR and author in _AUTHORS and not hasattr(part, "weight_fake_quant")
    return is_known and getattr(weight, "ndim", 0) == 2


def _read(part: Any, where: str, module: Any) -> tuple[ClassHead, list[Any]]:
    """The head of a layer, and the tensors beside the layer that are part of its bias."""
    if any(hasattr(one, "base_layer") and any(inner is part for inner in one.modules()) for one in module.modules()):
        raise OperatorError(
            f"{where} has an adapter, so that its weights are not those it computes with; merge the adapter first "
            "(model.merge_and_unload())"
        )
    if any(type(one).__name__ == "MobileBertLMPredictionHead" and one.decoder is part for one in module.modules()):
        raise OperatorError(f"{where}: {IN_TWO_PARTS}")
    weights, bias = _numbers(_weight(part), where), getattr(part, "bias", None)
    others = []
    if bias is None:  # some models (ESM) keep the bias beside the layer
        around = [one for one in module.modules() if any(child is part for child in one.children())]
        beside = [getattr(one, "bias", None) for one in around if one is not module]
        bias = next((one for one in beside if getattr(one, "shape", None) == part.weight.shape[:1]), None)
        others += [] if bias is None else [bias]
    if type(part).__name__ == "Conv1D":  # transformers keeps it as (features, classes)
        weights = weights.T
    labels = getattr(getattr(module, "config", None), "id2label", None)
    names = None
    if isinstance(labels, dict) and len(labels) == len(weights):
        names = [str(labels.get(i, i)) for i in range(len(weights))]
    added, last = None if bias is None else _numbers(bias, where), getattr(module, FINAL_BIAS, None)
    if last is not None and last.numel() == len(weights):
        added = _numbers(last, where).reshape(-1) + (0.0 if added is None else added)
        others.append(last)
    return arrays_head(weights, added, names, where), others


def _weight(part: Any) -> Any:
    """The weight that a layer computes with; older normalisations and pruning compute it anew whenever it is called."""
    for hook in part._forward_pre_hooks.values():
        if "weight" in (getattr(hook, "name", ""), getattr(hook, "_tensor_name", "")):
            kind = type(hook).__name__
            more = {"do_power_iteration": False} if kind == "SpectralNorm" else {}
            return hook.apply_mask(part) if hasattr(hook, "apply_mask") else hook.compute_weight(part, **more)
    return part.weight


def _numbers(tensor: Any, where: str) -> NDArray[np.float64]:
    if tensor.is_meta or tensor.is_complex():
        what = "no numbers (device meta); load them first" if tensor.is_meta else "complex numbers, expected real ones"
        raise WeightError(f"{where} has {what}")
    return np.asarray(tensor.detach().cpu().double().numpy())


def _listed(linears: dict[str, Any]) -> str:
    return listed_layers((name, part.weight.shape) for name, part in linears.items())

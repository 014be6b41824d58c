"""What a torch module does with the scores of its output layer, as far as its own code tells when it is traced.

Only the ``forward`` of modules that hold the layer is carried out, on symbols (torch.fx); all others are taken whole.
What may make another class the largest is refused by name. Where the code cannot be traced, the audit says that it was
not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Parameter, signature
from math import inf
from typing import Any, NoReturn

from hardmax.errors import OperatorError
from hardmax.networks.files.opening import reason
from hardmax.networks.files.torch_modules import torch_library

#: Modules, functions and methods that leave the largest score of a place the largest: functions of one entry,
_CURVED = {"sigmoid", "logsigmoid", "tanh", "softsign", "softplus"}
#: those of all classes, which have to lie along the axis that is named,
_SOFT = {"softmax", "logsoftmax", "log_softmax"}
_ANSWERS = {"argmax", "topk", "max"}
#: what changes no number, and what moves axes.
_SAME = {"dropout", "dropout1d", "dropout2d", "identity", "float", "double", "half", "bfloat16", "to", "type",
         "type_as", "contiguous", "clone", "detach", "cpu", "cuda"}  # fmt: skip
_MOVES = {"squeeze", "unsqueeze", "transpose", "permute", "swapaxes"}
_ARITHMETIC = {"add", "sub", "mul", "div", "truediv", "add_", "sub_", "mul_", "div_"}
#: What asks for sizes and the like, and gives no scores.
_FACTS = {"size", "dim", "numel", "ndimension", "shape", "dtype", "device", "ndim", "is_floating_point"}
#: What may be done with an answer.
_READ = {"getitem", "indices", "values", *_SAME, *_MOVES}
_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
ONE_AXIS = "each input is one vector of features, so that its scores lie along axis 1"


def assumed_behind(module: Any, part: Any, where: str, n: int, added: Sequence[Any]) -> str:
    """What is assumed of the code behind the output layer ``part`` of ``n`` classes; empty where tracing proves it.

    ``added`` are the tensors beside the layer that count as its bias.

    Raises
    ------
    OperatorError
        Behind the layer stands what may make another class the largest, or its scores are no output.
    """
    if module is part:
        return ""
    untraced = f"{where} keeps the order of the scores behind its output layer, where its code was not followed"
    around = [one for one in module.modules() if any(inner is part for inner in one.modules())]
    if any(one._forward_hooks or "forward" in vars(one) for one in around):
        return f"{untraced} (hooks change what it calls)"
    try:
        with _unchanged(around):
            root, nodes = _traced(module, part, around)
    except Exception as error:  # tracing runs code that may raise anything
        return f"{untraced} ({reason(error)})"
    calls = [node for node in nodes if node.op == "call_module" and root.get_submodule(node.target) is part]
    if not calls:
        return f"{untraced} (it does not call the layer)"
    return _Behind(root, where, n, added).follow(nodes, calls)


@contextmanager
def _unchanged(modules: Sequence[Any]) -> Iterator[None]:
    """While inside, modules may set attributes of themselves; then they are as before."""
    before = [dict(vars(one)) for one in modules]
    try:
        yield
    finally:
        for one, kept in zip(modules, before, strict=True):
            vars(one).clear()
            vars(one).update(kept)


def _traced(module: Any, part: Any, around: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The steps of ``module(x)``, and what their targets are parts of; arguments with defaults are left at these."""
    torch = torch_library()
    holding = {id(one) for one in around if one is not part}
    given = [one for one in signature(module.forward).parameters.values() if one.kind in _IN_ORDER]
    n_given = max([k for k, one in enumerate(given, start=1) if one.default is one.empty], default=1)

    class Tracer(torch.fx.Tracer):  # type: ignore[misc, name-defined]
        is_behind = False

        def path_of_module(self, mod: Any) -> str:
            try:
                return str(super().path_of_module(mod))
            except NameError:  # a function that is kept as a module, of no model's own
                return ""

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            self.is_behind |= m is part
            is_own = self.is_behind and m is not part and not type(m).__module__.startswith("torch.nn")
            return id(m) not in holding and bool(module_qualified_name) and not is_own

    class Called(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Any:
            symbols = [tracer.create_proxy("placeholder", f"x{k}", (), {}) for k in range(n_given)]
            return self.module(*symbols)

    tracer, called = Tracer(), Called()
    holding.add(id(called))
    return called, list(tracer.trace(called).nodes)


@dataclass
class _Behind:
    """Follows the scores from the calls of a layer to the output of a traced module."""

    module: Any
    where: str
    n: int
    added: Sequence[Any]
    assumed: set[str] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)  # those of ``added`` that are added
    plain: bool = True  # scores are still those of rows and biases
    moved: bool = False  # axes are no longer where they were

    def follow(self, nodes: Sequence[Any], calls: Sequence[Any]) -> str:
        """What is assumed; refuses what changes the order of the scores."""
        used = _reaching(nodes[-1])
        scores, answers, unread = set(calls), set[Any](), set[Any]()
        for node in nodes[:-1]:
            given = [one for one in node.all_input_nodes if one in scores | answers | unread]
            name = _name(self.module, node)
            if not given or name.lower() in _FACTS:
                continue
            if node not in used:  # but it may change numbers that are read
                if self._is_in_place(node, name):
                    self._refuse(name)
                unread.add(node)
                continue
            if any(one in answers for one in given):
                if name not in _READ:
                    self._refuse(name)
                answers.add(node)
                continue
            self._check(node, name, given)
            (answers if name in _ANSWERS else scores).add(node)
        if not any(one in used for one in calls):
            raise OperatorError(
                f"{self.where}: its output does not come from the layer found; name the output layer with layer="
            )
        if len(self.seen) < len(self.added) or (self.added and len(calls) > 1):
            self._refuse("no sum with the bias that stands beside it")
        return "; ".join(sorted(self.assumed))

    def _is_in_place(self, node: Any, name: str) -> bool:
        """Whether a step may write into what it is given."""
        part = self.module.get_submodule(node.target) if node.op == "call_module" else None
        by_name = name.endswith("_") and not name.endswith("__")
        return (
            by_name or "out" in node.kwargs or node.kwargs.get("inplace", getattr(part, "inplace", False)) is not False
        )

    def _check(self, node: Any, shown: str, given: Sequence[Any]) -> None:
        """Refuse a node unless the largest of the scores ``given`` to it is the largest of what it gives."""
        name = shown.lower()
        if name in _ARITHMETIC:
            if not self._keeps(node, name.rstrip("_").removeprefix("true"), given):
                self._refuse(shown)
        elif name in _SOFT | _ANSWERS | {"flatten"}:
            self._along(node, shown)
        elif name == "getitem":
            item = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
            if self.moved or not _spares_last(item):
                if self.moved or len(item) < 2 or any(getattr(one, "op", "") == "" for one in item):
                    self._refuse("a selection that may leave out classes")
                self.assumed.add(f"scores have more than {len(item)} axes, so that no class is left out by a selection")
        elif name in ("view", "reshape"):
            if self.moved or node.args[-1] != self.n:
                self._refuse(shown)
        elif name not in _SAME | _MOVES | _CURVED or node.kwargs.get("inplace"):
            self._refuse(shown)
        self.moved |= name in _MOVES
        self.plain &= name not in _CURVED | _SOFT

    def _keeps(self, node: Any, kind: str, given: Sequence[Any]) -> bool:
        """Whether a sum is with a number or with the bias that was read, or a product with a positive number."""
        first, other = given[0], next((one for one in node.args[:2] if one is not given[0]), None)
        if len(given) > 1 or node.kwargs or len(node.args) != 2:
            return False
        tensor = _attribute(self.module, other) if getattr(other, "op", "") == "get_attr" else None
        if kind == "add" and self.plain and any(tensor is one for one in self.added) and id(tensor) not in self.seen:
            self.seen.add(id(tensor))
            return True
        self.plain = False
        number = tensor.item() if tensor is not None and tensor.numel() == 1 else other
        if not isinstance(number, int | float) or not abs(number) < inf:  # NaN neither
            return False
        if kind in ("sub", "div") and node.args[0] is not first:
            return False
        return kind in ("add", "sub") or number > 0

    def _along(self, node: Any, shown: str) -> None:
        """Refuse what orders or weighs along another axis than that of the classes."""
        name = shown.lower()
        key, place = ("start_dim", 1) if name == "flatten" else ("dim", 2 if name == "topk" else 1)
        default = {"flatten": 0, "topk": -1}.get(name)
        if node.op == "call_module":
            axis = getattr(self.module.get_submodule(node.target), key, None)
            axis = 1 if axis is None else axis  # as torch takes it for a batch of vectors
        else:
            axis = node.kwargs.get(key, node.args[place] if len(node.args) > place else default)
        largest = node.kwargs.get("largest", node.args[3] if name == "topk" and len(node.args) > 3 else True)
        if self.moved or not isinstance(axis, int) or (axis < 1 and axis != -1) or largest is not True:
            self._refuse(f"{shown} along axis {axis}" if largest is True else f"{shown} of the smallest")
        if axis != -1:
            self.assumed.add(ONE_AXIS)

    def _refuse(self, what: str) -> NoReturn:
        raise OperatorError(
            f"{self.where}: behind its last linear layer comes {what}, which may make another class the largest; "
            "expected a linear layer at the end. Name the layer to be asked about with layer=, or fold what follows "
            "into its weights and pass these"
        )


def _reaching(output: Any) -> set[Any]:
    """The nodes from which an output is computed."""
    found, waiting = set(), [output]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _name(module: Any, node: Any) -> str:
    if node.op == "call_module":
        return type(module.get_submodule(node.target)).__name__
    if node.op == "call_function":
        name = getattr(node.target, "__name__", str(node.target))
        return str(node.args[1]) if name == "getattr" else name
    return str(node.target)


def _attribute(module: Any, node: Any) -> Any:
    owner, _, name = node.target.rpartition(".")
    return getattr(module.get_submodule(owner), name, None)


def _spares_last(item: tuple[Any, ...]) -> bool:
    """Whether a selection leaves the last axis whole, whatever the rank: ``[:, -1, :]``, ``[..., 0, :]``, ``[...]``."""
    return bool(item) and (item[-1] is Ellipsis or (len(item) > 1 and item[-1] == slice(None)))

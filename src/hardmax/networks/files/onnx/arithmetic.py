"""Rules for ONNX operators that act entry by entry, along axes, or as products.

A rule takes the ``Translation`` with its node at hand and returns the node's output. Piecewise-affine
operators become the fewest choices that express them: ``Abs`` one, ``Clip`` at most two, ``Max`` of two
tensors one an entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from math import frexp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError, ParameterError, WeightError
from hardmax.exactness import Array
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.constants import axes_of
from hardmax.networks.files.onnx.models import element_type
from hardmax.networks.files.onnx.ranking import compare, normalised, one_hot, scatter, select, total_shares
from hardmax.networks.files.onnx.translation import (
    LOWEST,
    Data,
    Masked,
    Ranked,
    Selected,
    Tensor,
    Ties,
    Translation,
    Value,
)

Rule = Callable[[Translation], Value]

#: Odd numbers that the entries of one tensor may be divided by, each in an operation of its own.
_MOST_DIVISORS = 16
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)


def _add(t: Translation) -> Value:
    first, second = t.operands
    if isinstance(second, Masked):
        first, second = second, first
        t.operands = [first, second]
        t.node = replace(t.node, inputs=t.node.inputs[::-1])
    if isinstance(first, Masked):
        other = t.tensor(1)
        total = t.add(first.scores, other, private=False)
        plain = first.plain
        whole = None if plain is None else (lambda: t.add(plain(), other, private=False))
        return Masked(total, np.broadcast_to(first.allowed, t.shape(total)), whole)
    x, y = t.tensor(0), t.tensor(1)
    for data, constant in ((x, y), (y, x)):
        if isinstance(data, Data) and not isinstance(constant, Data) and (constant <= LOWEST).any():
            return _masked_sum(t, data, constant)
    private = all(name in t.read_once for name in t.node.inputs)
    return _value(t.add(x, y, private))


def _masked_sum(t: Translation, data: Data, constant: Array) -> Masked:
    """``data + constant`` where the constant forbids keys, if a Softmax or Hardmax reads it."""
    forbidden = constant <= LOWEST
    total = t.shift(data, np.where(forbidden, 0.0, constant), private=False)
    total = t.broadcast(total, np.broadcast_shapes(t.shape(total), constant.shape))
    plain = (lambda: t.shift(data, constant, private=False)) if np.isfinite(constant).all() else None
    return Masked(total, np.broadcast_to(~forbidden, t.shape(total)), plain)


def _sub(t: Translation) -> Value:
    x, y = t.tensor(0), t.tensor(1)
    return _value(t.add(x, t.scale(y, -1.0) if isinstance(y, Data) else -y, t.node.inputs[0] in t.read_once))


def _div(t: Translation) -> Value:
    shares = normalised(t.operands[0], t.operands[1])
    if shares is not None:
        return shares
    x, y = t.tensor(0), t.tensor(1)
    if isinstance(y, Data):
        return _value(t.multiply(x, t.emit(op.Pointwise("reciprocal"), y)))
    divisor = t.weights(1)
    if (divisor == 0).any():
        raise WeightError(f"tensor {t.node.inputs[1]!r} divides by zero; expected nonzero divisors")
    return _divided(t, x, divisor) if isinstance(x, Data) else np.asarray(x / divisor)


def _divided(t: Translation, x: Data, divisor: NDArray[np.float64]) -> Data:
    """``x / divisor`` as it is: 1 / 3 is no float, but each float is an odd number times a power of two.

    Entries with the same odd number are divided together; where there are many, the quotients 1 / divisor are rounded.
    """
    whole = np.abs(np.ldexp(np.frexp(divisor)[0], 53)).astype(np.int64)
    odd = whole // (whole & -whole)
    powers, numbers = odd / divisor, np.unique(odd)
    if len(numbers) > _MOST_DIVISORS or not np.isfinite(powers).all() or (np.abs(powers) < _SMALLEST_NORMAL).any():
        return t.scale(x, 1.0 / divisor)
    x = t.scale(x, powers)
    if len(numbers) == 1:
        return _over(t, x, numbers[0])
    places = [np.flatnonzero(np.broadcast_to(odd, t.shape(x)) == number) for number in numbers]
    parts = [_over(t, t.take(x, place), number) for number, place in zip(numbers, places, strict=True)]
    return t.take(t.emit(op.Concat(0), *parts), np.argsort(np.concatenate(places)).reshape(t.shape(x)))


def _over(t: Translation, x: Data, number: int) -> Data:
    return x if number == 1 else t.emit(op.Reduce((), True, int(number)), x)


def _sum(t: Translation) -> Value:
    """The sum; constants come after the data, one by one, so that no sum of two of them is rounded."""
    tensors = [t.tensor(position) for position in range(len(t.operands))]
    tensors.sort(key=lambda tensor: not isinstance(tensor, Data))
    return _value(functools.reduce(t.add, tensors))


def _mean(t: Translation) -> Value:
    total = _sum(t)
    assert isinstance(total, Data)
    return t.emit(op.Reduce((), True, len(t.operands)), total)


def _where(t: Translation) -> Value:
    if isinstance(t.operands[0], Selected):
        return select(t, t.operands[0], t.operands[1], t.operands[2])
    condition = t.constant(0).astype(bool)
    x, y = t.tensor(1), t.tensor(2)
    shape = t.fits(np.broadcast_shapes(t.shape(x), t.shape(y), condition.shape), 24)
    for data, other, chosen in ((x, y, condition), (y, x, ~condition)):
        if isinstance(data, Data) and not isinstance(other, Data):
            kept, filling = np.broadcast_to(chosen, shape), np.broadcast_to(other, shape)
            wide = t.broadcast(data, shape)
            if not kept.all() and (filling[~kept] <= LOWEST).all():
                finite = np.isfinite(filling[~kept]).all()
                plain = functools.partial(_select, t, wide, kept, filling) if finite else None
                return Masked(wide, kept, plain)
            return _select(t, wide, kept, filling)
    if not isinstance(x, Data) or not isinstance(y, Data):
        raise OperatorError("Where of constants with a condition that is none")
    # One gather from the two joined: a choice known beforehand, free of rounding.
    joined = t.emit(op.Concat(0), t.flat(x), t.flat(y))
    places = np.where(condition, np.broadcast_to(t.positions(x), shape),
                      np.broadcast_to(t.positions(y), shape) + prod(t.shape(x)))  # fmt: skip
    return t.take(joined, places)


def _select(t: Translation, x: Data, kept: Array, filling: Array) -> Data:
    return t.shift(t.scale(x, kept), np.where(kept, 0.0, filling))


def _max(t: Translation, sign: float = 1.0) -> Value:
    """The maximum of any number of tensors, or with sign -1 the minimum: -max(-x), clipped at the constants."""
    tensors = [t.tensor(position) for position in range(len(t.operands))]
    moving = [x for x in tensors if isinstance(x, Data)]
    fixed = [x for x in tensors if not isinstance(x, Data)]
    shape = np.broadcast_shapes(*(t.shape(x) for x in tensors))
    largest = moving[0]
    if len(moving) > 1:
        columns = [t.reshape(t.broadcast(t.scale(x, sign), shape), (*shape, 1)) for x in moving]
        largest = t.scale(t.emit(op.MaxLast(), t.emit(op.Concat(len(shape)), *columns)), sign)
    largest = t.broadcast(largest, shape)
    if not fixed:
        return largest
    bound = functools.reduce(np.minimum if sign < 0 else np.maximum, fixed)
    return _clipped(t, largest, bound, is_ceiling=sign < 0)


def _clipped(t: Translation, x: Data, bound: Array, is_ceiling: bool) -> Data:
    """``max(x, bound)``, or for a ceiling ``min(x, bound)``.

    The last float of the bound's own type, or an infinite one, bounds nothing; where only some entries are such, the
    others are clipped by themselves.
    """
    values = np.asarray(bound, dtype=np.float64)
    last = float(np.finfo(np.float64).max) if bound.dtype == np.float64 else -LOWEST
    bounds = values < last if is_ceiling else values > -last  # false for NaN as well, which is refused
    values = t.finite(np.where(bounds | np.isnan(values), values, 0.0), "a bound")
    if not bounds.any():
        return x
    if not values.any() and bounds.all() and not is_ceiling:
        return t.emit(op.Relu(), x)
    if bounds.all():
        return t.emit(op.Clip(op.frozen(values), is_ceiling), x)
    shape = t.fits(t.shape(x), 80)
    some = np.flatnonzero(np.broadcast_to(bounds, shape))
    ends = np.broadcast_to(values, shape).reshape(-1)[some]
    clipped = t.emit(op.Clip(op.frozen(ends), is_ceiling), t.take(x, some))
    places = t.positions(x).reshape(-1)
    places[some] = len(places) + np.arange(len(some))
    return t.take(t.emit(op.Concat(0), t.flat(x), clipped), places.reshape(shape))


def _clip(t: Translation) -> Value:
    low = t.constant(1) if t.has(1) else np.array(t.attribute("min", -np.inf), np.float32)
    high = t.constant(2) if t.has(2) else np.array(t.attribute("max", np.inf), np.float32)
    if low.size != 1 or high.size != 1:
        raise FileFormatError(f"Clip with bounds of shapes {low.shape} and {high.shape}; expected one number each")
    floored = _clipped(t, t.data(0), low.reshape(()), is_ceiling=False)
    return _clipped(t, floored, high.reshape(()), is_ceiling=True)


def _prelu(t: Translation) -> Value:
    slope = t.weights(1)
    x = t.broadcast(t.data(0), np.broadcast_shapes(t.shape(t.data(0)), slope.shape))
    if slope.size and (slope == slope.flat[0]).all():
        return t.emit(op.Relu(float(slope.flat[0])), x)
    # relu(x) + slope (x - relu(x)): one choice an entry, as for the plain ReLU, and in floats x itself where positive
    positive = t.emit(op.Relu(), x)
    negative = t.emit(op.Add(), x, t.scale(positive, np.array(-1.0)))
    return t.emit(op.Add(), positive, t.scale(negative, slope))


def _hard_sigmoid(t: Translation, x: Data, alpha: float, beta: float) -> Data:
    line = t.emit(op.Relu(), t.shift(t.scale(x, alpha), np.asarray(beta)))
    return t.emit(op.Clip(op.frozen(1.0), is_ceiling=True), line)


def _pow(t: Translation) -> Value:
    exponent = t.weights(1)
    x = t.broadcast(t.data(0), np.broadcast_shapes(t.shape(t.data(0)), exponent.shape))
    power = float(exponent.flat[0]) if exponent.size and (exponent == exponent.flat[0]).all() else None
    if power == -0.5:
        return t.emit(op.Pointwise("reciprocal"), t.emit(op.Pointwise("sqrt"), x))
    if power == 3.0:
        return t.emit(op.Multiply(), x, t.emit(op.Pointwise("square"), x))
    kinds = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}
    if power == 1.0:
        return x
    if power not in kinds:
        raise OperatorError(f"powers 1, 2, 3, 0.5, -0.5 and -1 are translated, got {exponent.reshape(-1)[:3]}")
    return t.emit(op.Pointwise(kinds[power]), x)


def _swish(t: Translation) -> Value:
    alpha = t.attribute("alpha", 1.0)
    scaled = t.emit(op.Pointwise("silu"), t.scale(t.data(0), alpha))
    return t.scale(scaled, 1.0 / alpha)


def _pointwise(kind: str) -> Rule:
    return lambda t: t.emit(op.Pointwise(kind), t.data(0))


def _cast(t: Translation) -> Value:
    value = t.operands[0]
    if t.node.op == "CastLike":
        like = t.operands[1]
        if not isinstance(value, Data | Masked | Ranked | Selected):
            raise OperatorError("a constant is cast to the type of data, which may round it; use Cast")
        target = np.dtype(np.float64) if isinstance(like, Data) else t.constant(1).dtype
    else:
        target = element_type(t.attribute("to")) or np.dtype(object)
    if isinstance(value, Ties) and target.kind in "fiub":
        return value
    if isinstance(value, Selected) and target.kind in "iub":
        return value
    if isinstance(value, Ranked) and target.kind in ("iu" if value.what == "indices" else "f"):
        return value
    if target.kind != "f":
        raise OperatorError(f"data is cast to {target}, which rounds; only casts of data to floats are read")
    return t.data(0)


def _equal(t: Translation) -> Value:
    x, y = t.tensor(0), t.tensor(1)
    for scores, maximum in ((x, y), (y, x)):
        if isinstance(scores, Data) and isinstance(maximum, Data) and t.maxima.get(maximum.value) == scores:
            return Ties(scores)
    raise OperatorError("data is compared with data or with constants, which is no piecewise-affine operation here")


def _not(t: Translation) -> Value:
    condition = t.operands[0]
    if isinstance(condition, Selected):
        return Selected(condition.ranked, not condition.inside)
    raise OperatorError("Not of a comparison of data is read of scores and their TopK alone")


def _axes(t: Translation, x: Data | Ranked) -> tuple[int, ...]:
    constants = [None, t.constant(1)] if t.has(1) else []
    rank = len(t.shape(x))
    axes = axes_of(constants, t.node.attributes, 1, rank)
    if not axes and t.attribute("noop_with_empty_axes", 0):
        return ()
    return axes or tuple(range(rank))


def _reduce(mean: bool) -> Rule:
    def rule(t: Translation) -> Value:
        keep, ranked = bool(t.attribute("keepdims", 1)), t.operands[0]
        total = total_shares(ranked, _axes(t, ranked), keep) if isinstance(ranked, Ranked) and not mean else None
        if total is not None:
            return total
        x = t.data(0)
        axes = _axes(t, x)
        return t.reduce(x, axes, keep, mean) if axes else x

    return rule


def _reduce_extreme(sign: float) -> Rule:
    def rule(t: Translation) -> Value:
        x = t.data(0)
        axes = _axes(t, x)
        keep = bool(t.attribute("keepdims", 1))
        return t.scale(t.maximum_over(t.scale(x, sign), axes, keep), sign) if axes else x

    return rule


def _reduce_squares(root: bool) -> Rule:
    def rule(t: Translation) -> Value:
        x = t.data(0)
        squares = t.emit(op.Pointwise("square"), x)
        total = t.reduce(squares, _axes(t, x), bool(t.attribute("keepdims", 1)), mean=False)
        return t.emit(op.Pointwise("sqrt"), total) if root else total

    return rule


def _gemm(t: Translation) -> Value:
    x, y = t.tensor(0), t.tensor(1)
    x = t.transpose(x, (1, 0)) if t.attribute("transA", 0) else x
    y = t.transpose(y, (1, 0)) if t.attribute("transB", 0) else y
    alpha, beta = (np.asarray(t.attribute(name, 1.0)) for name in ("alpha", "beta"))
    product = t.matmul(x, y * alpha) if _is_exact(y, alpha) else t.multiply(t.matmul(x, y), alpha)
    if not t.has(2):
        return _value(product)
    added = t.tensor(2)
    if not isinstance(added, Data) and not _is_exact(added, beta):  # as data, whose products are not rounded
        added = t.shift(t.scale(product, 0.0), added)
    return _value(t.add(product, t.multiply(added, beta)))


def _is_exact(constant: Tensor, factor: Array) -> bool:
    """Whether the product of a constant with a float32 is a float64."""
    return not isinstance(constant, Data) and (constant.dtype != np.float64 or frexp(factor)[0] in (0.0, 0.5, -0.5))


def _einsum(t: Translation) -> Value:
    equation = str(t.attribute("equation")).replace(" ", "")
    inputs, arrow, result = equation.partition("->")
    names = inputs.split(",")
    if not arrow or "." in equation or len(names) != 2 or any(len(set(n)) < len(n) for n in (*names, result)):
        raise OperatorError(
            f"Einsum {equation!r}: two operands, an explicit result, no ellipsis and no repeated letter "
            "are read; "
            "write the sum as Transpose and MatMul"
        )
    sizes: dict[str, int] = {}
    for position, letters in enumerate(names):
        if len(letters) != len(t.shape(t.tensor(position))):
            raise FileFormatError(f"Einsum {equation!r} on shape {t.shape(t.tensor(position))}")
        sizes |= zip(letters, t.shape(t.tensor(position)), strict=True)
    if any(a not in sizes for a in result):
        raise FileFormatError(f"Einsum {equation!r}: a letter of the result occurs in no operand")
    left, right = names
    both = [a for a in left if a in right and a in result]
    summed = [a for a in left if a in right and a not in result]
    only = [[a for a in letters if a not in other] for letters, other in ((left, right), (right, left))]
    if any(a not in result for a in only[0] + only[1]):
        raise OperatorError(f"Einsum {equation!r} sums a letter of one operand alone; use ReduceSum for it")
    x = t.transpose(t.tensor(0), [left.index(a) for a in (*both, *only[0], *summed)])
    y = t.transpose(t.tensor(1), [right.index(a) for a in (*both, *summed, *only[1])])
    batch = [sizes[a] for a in both]
    n, k, m = (prod(sizes[a] for a in group) for group in (only[0], summed, only[1]))
    product = t.matmul(t.reshape(x, (*batch, n, k)), t.reshape(y, (*batch, k, m)))
    order = [*both, *only[0], *only[1]]
    spread = t.reshape(product, [sizes[a] for a in order])
    return _value(t.transpose(spread, [order.index(a) for a in result]))


def _value(result: Any) -> Value:
    """A folded or built tensor as a value; constants that reach here stay constants."""
    if isinstance(result, Data | Masked | Ties):
        return result
    return np.asarray(result)


def _refused(reason: str) -> Rule:
    def rule(t: Translation) -> Value:
        raise OperatorError(reason)

    return rule


def _leaky_relu(t: Translation) -> Value:
    slope = float(t.attribute("alpha", 0.01))
    if not np.isfinite(slope):
        raise ParameterError(f"expected a finite slope, got {slope}")
    return t.emit(op.Relu(slope), t.data(0))


ARITHMETIC_RULES: dict[str, Rule] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": lambda t: _value(t.multiply(t.tensor(0), t.tensor(1))),
    "Div": _div,
    "Sum": _sum,
    "Mean": _mean,
    "Neg": lambda t: t.scale(t.data(0), -1.0),
    "Abs": lambda t: t.emit(op.Relu(-1.0), t.data(0)),
    "Where": _where,
    "Max": _max,
    "Min": lambda t: _max(t, -1.0),
    "Clip": _clip,
    "Relu": lambda t: t.emit(op.Relu(), t.data(0)),
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "HardSigmoid": lambda t: _hard_sigmoid(t, t.data(0), t.attribute("alpha", 0.2), t.attribute("beta", 0.5)),
    "HardSwish": lambda t: t.emit(op.Multiply(), t.data(0), _hard_sigmoid(t, t.data(0), 1.0 / 6.0, 0.5)),
    "Pow": _pow,
    "Gelu": lambda t: t.emit(op.Pointwise(f"gelu{'_tanh' * (t.attribute('approximate') == 'tanh')}"), t.data(0)),
    "Swish": _swish,
    **{name: _pointwise(name.lower()) for name in ("Sqrt", "Exp", "Erf", "Tanh", "Sigmoid", "Reciprocal")},
    "Cast": _cast,
    "CastLike": _cast,
    "Equal": _equal,
    "Less": compare(below=True, strict=True),
    "LessOrEqual": compare(below=True, strict=False),
    "Greater": compare(below=False, strict=True),
    "GreaterOrEqual": compare(below=False, strict=False),
    "Not": _not,
    "IsNaN": lambda t: np.zeros(t.shape(t.data(0)), bool),  # data is finite; a row that allows no key is refused
    "ScatterElements": scatter,
    "OneHot": one_hot,
    "ReduceSum": _reduce(mean=False),
    "ReduceMean": _reduce(mean=True),
    "ReduceMax": _reduce_extreme(1.0),
    "ReduceMin": _reduce_extreme(-1.0),
    "ReduceL2": _reduce_squares(root=True),
    "ReduceSumSquare": _reduce_squares(root=False),
    "MatMul": lambda t: _value(t.matmul(t.tensor(0), t.tensor(1))),
    "Gemm": _gemm,
    "Einsum": _einsum,
    "LogSoftmax": _refused(
        "LogSoftmax has no zero-temperature limit; cut it off the end of the model (the order of the outputs stays)"
    ),
    "ArgMax": _refused("ArgMax makes integers; cut it off the end of the model and take the argmax of net(x)"),
}

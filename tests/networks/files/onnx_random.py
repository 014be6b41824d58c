"""Random ONNX models of the operators that ``hm.read`` translates, legal because onnxruntime runs every node.

A model grows node by node. Each node is drawn with random attributes, ranks, broadcasts, number types and opset,
and run on the values made so far; what onnxruntime refuses, or what overflows, is drawn again. Shares no code with
the reader. ``compare`` says what ``hm.read`` makes of a model: equal, refused, or different.
"""

from dataclasses import dataclass, field

import numpy as np

import hardmax as hm
from hardmax.networks.files.onnx.models import parse_model
from hardmax.networks.files.onnx.reader import network_from_onnx
from networks.files.onnx_graphs import helper, numpy_helper, onnx, onnxruntime

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_LARGEST, _MOST = 1e4, 4000  # entries beyond the first overflow soon; tensors beyond the second take long

_options = onnxruntime.SessionOptions()
_options.intra_op_num_threads = _options.inter_op_num_threads = 1
_options.log_severity_level = 4
_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run_model(model, feeds):
    """onnxruntime's outputs, with every optimisation off."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@dataclass
class RandomModel:
    """A model being drawn: nodes, initializers, and the value of every tensor at one random input."""

    rng: np.random.Generator
    opset: int
    dtype: str
    input_shape: tuple = ()
    nodes: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    data: list = field(default_factory=list)  # names that depend on the input
    moving: set = field(default_factory=set)  # the same, with integers and booleans
    fixed: list = field(default_factory=list)  # names that do not
    largest: float = 1.0

    # --- drawing operands -----------------------------------------------------------------------

    def chance(self, share):
        return self.rng.random() < share

    def integer(self, low, high):
        return int(self.rng.integers(low, max(low, high) + 1))

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def numbers(self, shape, dtype=None):
        """Random entries: halves, thirds and zeros among the floats, the whole range among the integers."""
        return np.asarray(self._numbers(tuple(shape), dtype or self.dtype))

    def _numbers(self, shape, dtype):
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            wide = self.rng.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
            small = self.rng.integers(0, 5, size=shape).astype(dtype)
            return np.where(self.rng.random(shape) < 0.8, small, wide).astype(dtype)
        kind = self.integer(0, 2)
        if kind == 0:
            return (self.rng.integers(-6, 7, size=shape) / 2).astype(dtype)
        if kind == 1:
            return (self.rng.integers(-9, 10, size=shape) / 3).astype(dtype)
        return self.rng.normal(size=shape).astype(dtype)

    def constant(self, array):
        """A new initializer or Constant node."""
        name = f"c{len(self.constants) + len(self.nodes)}"
        array = np.asarray(array)
        self.values[name] = array
        if self.chance(0.2):
            made = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=made, name=f"n{len(self.nodes)}"))
        else:
            self.constants[name] = array
        return name

    def ints(self, values, shape=None):
        """A new constant of int64."""
        array = np.asarray(values, dtype=np.int64)
        return self.constant(array if shape is None else array.reshape(shape))

    def some(self, rank=None, at_least=0):
        """A data tensor, of some rank where asked."""
        fitting = [
            name
            for name in self.data
            if (rank is None or self.values[name].ndim == rank) and self.values[name].ndim >= at_least
        ]
        return self.pick(fitting) if fitting else None

    def shape(self, name):
        return self.values[name].shape

    def broadcastable(self, shape):
        """A shape that broadcasts with another: axes dropped, of size one, or added in front."""
        sizes = [size if self.chance(0.7) else 1 for size in shape]
        sizes = sizes[self.integer(0, len(sizes)) if self.chance(0.4) else 0 :]
        sizes = [size if size != 1 or self.chance(0.8) else self.integer(1, 3) for size in sizes]
        if self.chance(0.15) and len(sizes) == len(shape):
            sizes = [self.integer(1, 2), *sizes]
        return tuple(sizes)

    def beside(self, name, data=0.4):
        """A float operand that broadcasts with a tensor: data, a constant made before, or a new one."""
        shape = self.shape(name)
        if self.chance(data):
            fitting = [other for other in self.data if _broadcast(shape, self.shape(other))]
            if fitting:
                return self.pick(fitting)
        if self.chance(0.3):
            kind = self.values[name].dtype
            fitting = [c for c in self.fixed if self.values[c].dtype == kind and _broadcast(shape, self.shape(c))]
            if fitting:
                return self.pick(fitting)
        return self.constant(self.numbers(self.broadcastable(shape)))

    def axis(self, rank):
        return self.integer(-rank, rank - 1) if rank else 0

    def axes(self, rank):
        count = self.integer(1, rank) if rank else 0
        axes = self.rng.permutation(rank)[:count]
        return [int(a) - (rank if self.chance(0.3) else 0) for a in axes]

    # --- growing --------------------------------------------------------------------------------

    def add(self, op, inputs, n_outputs=1, **attributes):
        """Append a node if onnxruntime runs it and its values are ordinary; says whether it did."""
        outputs = [f"t{len(self.nodes)}_{i}" for i in range(n_outputs)]
        attributes = {key: value for key, value in attributes.items() if value != []}
        node = helper.make_node(op, inputs, outputs, name=f"n{len(self.nodes)}", **attributes)
        fed = {name: self.values[name] for name in dict.fromkeys(inputs) if name}
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(k, _element(v), v.shape) for k, v in fed.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        try:
            made = run_model(model, fed)
        except Exception:
            return False
        moving = op not in ("Shape", "Size") and any(name in self.moving for name in inputs)
        for array in made:
            if array.size > _MOST or array.ndim > 6 or (moving and array.size == 0):
                return False
            if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.abs(array).max(initial=0) < _LARGEST):
                return False
        self.nodes.append(node)
        for name, array in zip(outputs, made, strict=True):
            self.values[name] = array
            if moving:
                self.moving.add(name)
            if moving and array.dtype.kind == "f":
                self.data.append(name)
                self.largest = max(self.largest, float(np.abs(array).max(initial=0)))
            elif not moving:
                self.fixed.append(name)
        return True

    def model(self):
        output = self.data[-1]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        made = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", element, self.input_shape)],
            [onnx.ValueInfoProto(name=output)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def _element(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def _broadcast(first, second):
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return True


# --- one function an operator: draws a node, and says whether it became one -------------------------


def _unary(op, **fixed):
    return lambda m: m.add(op, [m.some()], **fixed)


def _binary(op):
    def draw(m):
        x = m.some()
        pair = [x, m.beside(x)]
        return m.add(op, pair if m.chance(0.6) else pair[::-1])

    return draw


def _variadic(op):
    def draw(m):
        x = m.some()
        inputs = [x, *(m.beside(x) for _ in range(m.integer(0, 3)))]
        if op in ("Max", "Min") and m.chance(0.2):
            shape = m.broadcastable(m.shape(x))
            far = np.where(m.rng.random(shape) < 0.5, -np.inf if op == "Max" else np.inf, m.numbers(shape))
            inputs.append(m.constant(far.astype(m.dtype)))
        return m.add(op, [inputs[i] for i in m.rng.permutation(len(inputs))])

    return draw


def _divide(m):
    x = m.some()
    divisor = m.numbers(m.broadcastable(m.shape(x)))
    return m.add("Div", [x, m.constant(np.where(np.abs(divisor) < 0.1, 2, divisor).astype(m.dtype))])


def _divide_by_data(m):
    x = m.some()
    away = m.add("Exp", [x]) and m.add("Div", [m.beside(x), m.data[-1]])
    return away


def _power(m):
    x = m.some()
    kind = m.pick([m.dtype, "int64", "int32", "float32"])
    exponent = np.full(m.broadcastable(m.shape(x)) if m.chance(0.4) else (), m.pick([1, 2, 3, 2, 3]), kind)
    return m.add("Pow", [x, m.constant(exponent)])


def _inverse_power(m):
    x = m.some()
    exponent = m.constant(np.array(m.pick([0.5, -0.5, -1.0]), m.dtype))
    return m.add("Exp", [x]) and m.add("Pow", [m.data[-1], exponent])


def _of_positive(op):
    return lambda m: m.add("Exp", [m.some()]) and m.add(op, [m.data[-1]])


def _where(m):
    x = m.some()
    condition = m.constant(m.numbers(m.broadcastable(m.shape(x)), "bool"))
    pair = [x, m.beside(x)]
    return m.add("Where", [condition, *(pair if m.chance(0.5) else pair[::-1])])


def _clip(m):
    low, high = np.sort(m.rng.normal(size=2))
    if m.chance(0.1):
        low, high = high, low
    far = -1e300 if m.dtype == "float64" and m.opset >= 11 else -1e30
    low, high = (far if m.chance(0.1) else low), (1e20 if m.chance(0.1) else high)
    if m.opset < 11:
        bounds = {"min": float(low), "max": float(high)}
        return m.add("Clip", [m.some()], **{k: v for k, v in bounds.items() if m.chance(0.7)})
    low, high = (m.constant(np.array(v, m.dtype)) if m.chance(0.7) else "" for v in (low, high))
    return m.add("Clip", [m.some(), low, high] if high else [m.some(), low] if low else [m.some()])


def _prelu(m):
    x = m.some()
    return m.add("PRelu", [x, m.constant(m.numbers(m.broadcastable(m.shape(x))))])


def _attributes(op, **ranges):
    def draw(m):
        given = {name: m.pick(options) for name, options in ranges.items() if m.chance(0.7)}
        return m.add(op, [m.some()], **given)

    return draw


def _softmax(op):
    def draw(m):
        x = m.some(at_least=1)
        if x is None:
            return False
        rank = len(m.shape(x))
        axis = {"axis": m.axis(rank)} if m.chance(0.8) else {}
        if op == "Hardmax" and m.dtype == "float64":
            if m.opset < 13:
                return False
            # our own spelling of a double Hardmax
            last = {"axes": [rank - 1]} if m.opset < 18 else {}
            largest = [x] if m.opset < 18 else [x, m.ints([rank - 1])]
            done = m.add("ReduceMax", largest, keepdims=1, **last)
            done = done and m.add("Equal", [x, f"t{len(m.nodes) - 1}_0"])
            done = done and m.add("Cast", [f"t{len(m.nodes) - 1}_0"], to=1)
            done = done and m.add("Hardmax", [f"t{len(m.nodes) - 1}_0"], **axis)
            return done and m.add("Cast", [f"t{len(m.nodes) - 1}_0"], to=11)
        scores = x
        if m.chance(0.3):
            shape = m.broadcastable(m.shape(x))
            lowest = np.finfo(np.float32).min if m.chance(0.5) else -np.inf
            mask = np.where(m.rng.random(shape) < 0.4, lowest, m.numbers(shape)).astype(m.dtype)
            if not _broadcast(m.shape(x), shape):
                return False
            with np.errstate(all="ignore"):
                total = m.values[x] + mask
            if total.size > _MOST:
                return False
            mask = m.constant(mask)
            name = f"t{len(m.nodes)}_0"
            m.nodes.append(helper.make_node("Add", [x, mask], [name], name=f"n{len(m.nodes)}"))
            m.values[name] = total.astype(m.dtype)
            m.data.append(name)
            m.moving.add(name)
            if not m.add(op, [name], **axis):
                m.nodes.pop()
                m.data.remove(name)
                m.moving.remove(name)
                return False
            m.data.remove(name)
            return True
        return m.add(op, [scores], **axis)

    return draw


def _top(then):
    """The largest of the last axis: as they are, or their places made one-hot, scattered to or gathered from."""

    def draw(m):
        x = m.some(at_least=1)
        if x is None or not m.shape(x)[-1]:
            return False
        n = m.shape(x)[-1]
        k = m.integer(1, min(n, 3))
        operands, own = ([x, m.ints([k])], {}) if m.opset >= 10 else ([x], {"k": k})
        if not m.add("TopK", operands, n_outputs=2, **own):
            return False
        values, places = (f"t{len(m.nodes) - 1}_{i}" for i in (0, 1))
        if then == "TopK":
            return True
        if then == "OneHot":
            off_on = m.constant(m.numbers((2,)))
            return m.add("OneHot", [places, m.constant(np.array(n, np.int64)), off_on], axis=-1)
        if m.opset < 11:
            return False
        base = m.constant(np.full(m.shape(x), m.pick([0.0, 0.5])).astype(m.dtype))
        updates = values if m.chance(0.5) else m.constant(np.full(m.values[values].shape, 0.25).astype(m.dtype))
        return m.add("ScatterElements", [base, places, updates], axis=-1)

    return draw


def _is_nan(m):
    x = m.some()
    if not m.add("IsNaN", [x]):
        return False
    return m.add("Where", [f"t{len(m.nodes) - 1}_0", m.constant(np.array(0, m.dtype)), x])


def _cast(m):
    kinds = {"float32": [1, 1, 11], "float64": [11, 11, 1]}[m.dtype]
    x = m.some()
    if not m.add("Cast", [x], to=m.pick(kinds)):
        return False
    if m.values[m.data[-1]].dtype != m.dtype:  # back again, so that every data tensor has one type
        wide = m.data.pop()
        done = m.add("Cast", [wide], to=kinds[0])
        return done
    return True


def _cast_like(m):
    x = m.some()
    like = m.some() if m.chance(0.5) else m.constant(m.numbers((2,)))
    return m.add("CastLike", [x, like])


def _reduce(op):
    since = 13 if op == "ReduceSum" else 18

    def draw(m):
        x = m.some()
        rank = len(m.shape(x))
        attributes = {"keepdims": m.integer(0, 1)} if m.chance(0.7) else {}
        inputs = [x]
        if m.chance(0.8) and rank:
            axes = m.axes(rank)
            if m.opset >= since:
                inputs.append(m.ints(axes))
            else:
                attributes["axes"] = axes
        elif m.opset >= since and m.chance(0.3):
            attributes["noop_with_empty_axes"] = 1
            if m.chance(0.5):
                inputs.append(m.ints([]))
        return m.add(op, inputs, **attributes)

    return draw


def _matmul(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    shape = m.shape(x)
    if m.chance(0.25):
        fitting = [y for y in m.data if m.values[y].ndim and len(shape) > 1 and m.values[y].shape[0] == shape[-1]]
        if fitting:
            return m.add("MatMul", [x, m.pick(fitting)])
    lead = m.broadcastable(shape[:-2]) if m.chance(0.4) else ()
    if m.chance(0.5):
        tail = (shape[-1], m.integer(1, 4)) if m.chance(0.8) or lead else (shape[-1],)
        return m.add("MatMul", [x, m.constant(m.numbers((*lead, *tail)))])
    tail = (m.integer(1, 4), shape[-2] if len(shape) > 1 else shape[-1])
    tail = tail if m.chance(0.8) or lead else tail[1:]
    return m.add("MatMul", [m.constant(m.numbers((*lead, *tail))), x])


def _gemm(m):
    x = m.some(rank=2)
    if x is None:
        return False
    left, right = m.integer(0, 1), m.integer(0, 1)
    rows, inner = m.shape(x)[::-1] if left else m.shape(x)
    columns = m.integer(1, 4)
    y = m.constant(m.numbers((columns, inner) if right else (inner, columns)))
    attributes = {"transA": left, "transB": right, "alpha": m.pick([0.5, 1.0, -2.0]), "beta": m.pick([1.0, 0.5])}
    inputs = [x, y]
    if m.chance(0.7):
        inputs.append(m.constant(m.numbers(m.pick([(), (columns,), (1, columns), (rows, 1), (rows, columns)]))))
    return m.add("Gemm", inputs, **{k: v for k, v in attributes.items() if v or m.chance(0.5)})


def _einsum(m):
    x = m.some(at_least=1)
    if x is None or m.values[x].ndim > 4:
        return False
    left = "abcd"[: m.values[x].ndim]
    sizes = dict(zip(left, m.shape(x), strict=True))
    sizes["z"] = m.integer(1, 3)
    right = [letter for letter in (*left, "z") if m.chance(0.6)]
    right = [right[i] for i in m.rng.permutation(len(right))]
    summed = [letter for letter in right if letter in left and m.chance(0.5)]
    result = [letter for letter in dict.fromkeys((*left, *right)) if letter not in summed]
    result = [result[i] for i in m.rng.permutation(len(result))]
    y = m.constant(m.numbers([sizes[letter] for letter in right]))
    equation = f"{left},{''.join(right)}->{''.join(result)}"
    if m.chance(0.3):
        return m.add("Einsum", [y, x], equation=f"{''.join(right)},{left}->{''.join(result)}")
    return m.add("Einsum", [x, y], equation=equation)


# --- operators that move entries


def _reshape(m):
    x = m.some()
    size, left, sizes = m.values[x].size, m.values[x].size, []
    while left > 1 and len(sizes) < 4:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        sizes.append(m.pick(divisors))
        left //= sizes[-1]
    sizes = [*sizes, left] if left > 1 or m.chance(0.3) else sizes
    if sizes and m.chance(0.4):
        sizes[m.integer(0, len(sizes) - 1)] = -1
    if sizes and m.chance(0.2) and len(sizes) <= len(m.shape(x)):
        axis = m.integer(0, len(sizes) - 1)
        if sizes[axis] == m.shape(x)[axis]:
            sizes[axis] = 0
    zero = {"allowzero": m.integer(0, 1)} if m.opset >= 14 and m.chance(0.2) else {}
    return size > 0 and m.add("Reshape", [x, m.ints(sizes)], **zero)


def _squeeze(m):
    x = m.some()
    ones = [axis for axis, size in enumerate(m.shape(x)) if size == 1 and m.chance(0.7)]
    rank = len(m.shape(x))
    ones = [axis - rank if m.chance(0.3) else axis for axis in ones]
    if not ones and m.chance(0.5):
        return m.add("Squeeze", [x])
    return m.add("Squeeze", [x, m.ints(ones)]) if m.opset >= 13 else m.add("Squeeze", [x], axes=ones)


def _unsqueeze(m):
    x = m.some()
    rank = len(m.shape(x)) + m.integer(1, 2)
    axes = [int(a) for a in m.rng.permutation(rank)[: rank - len(m.shape(x))]]
    if m.opset >= 11:
        axes = [a - rank if m.chance(0.3) else a for a in axes]
    return m.add("Unsqueeze", [x, m.ints(axes)]) if m.opset >= 13 else m.add("Unsqueeze", [x], axes=axes)


def _transpose(m):
    x = m.some()
    order = [int(a) for a in m.rng.permutation(len(m.shape(x)))]
    return m.add("Transpose", [x], perm=order) if m.chance(0.8) else m.add("Transpose", [x])


def _slice(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    rank = len(m.shape(x))
    axes = m.axes(rank)
    far = [-(2**63), -(2**31), 2**31 - 1, 2**63 - 1]
    starts = [m.pick(far) if m.chance(0.1) else m.integer(-6, 6) for _ in axes]
    ends = [m.pick(far) if m.chance(0.3) else m.integer(-6, 6) for _ in axes]
    if m.opset < 10:
        return m.add("Slice", [x], starts=starts, ends=ends, axes=[a % rank for a in axes])
    inputs = [x, m.ints(starts), m.ints(ends), m.ints(axes)]
    if m.chance(0.5):
        inputs.append(m.ints([m.pick([-3, -2, -1, 1, 2, 3]) for _ in axes]))
    return m.add("Slice", inputs)


def _gather(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    axis = m.axis(len(m.shape(x)))
    size = m.shape(x)[axis]
    low = -size if m.opset >= 11 else 0
    index = m.rng.integers(low, size, size=m.pick([(), (1,), (2,), (3,), (2, 2), (1, 3)]))
    return m.add("Gather", [x, m.constant(index.astype(m.pick(["int64", "int32"])))], axis=axis)


def _gather_elements(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    axis = m.axis(len(m.shape(x)))
    shape = [m.integer(1, size) for size in m.shape(x)]
    shape[axis] = m.integer(1, 4)
    index = m.rng.integers(-m.shape(x)[axis], m.shape(x)[axis], size=shape)
    return m.add("GatherElements", [x, m.constant(index.astype(m.pick(["int64", "int32"])))], axis=axis)


def _expand(m):
    x = m.some()
    return m.add("Expand", [x, m.ints(m.broadcastable(m.shape(x)))])


def _tile(m):
    x = m.some(at_least=1)
    return x is not None and m.add("Tile", [x, m.ints([m.integer(1, 3) for _ in m.shape(x)])])


def _split(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    axis = m.axis(len(m.shape(x)))
    size = m.shape(x)[axis]
    if m.chance(0.5):
        cut = m.integer(0, size)
        if m.opset >= 13:
            return m.add("Split", [x, m.ints([cut, size - cut])], 2, axis=axis)
        return m.add("Split", [x], 2, axis=axis, split=[cut, size - cut])
    parts = m.integer(1, 3)
    return m.add("Split", [x], parts, axis=axis, **({"num_outputs": parts} if m.opset >= 18 else {}))


def _blocks(op):
    def draw(m):
        x = m.some()
        block = 2
        size = m.values[x].size
        shape = [1, 4, 1, size // 4] if op == "DepthToSpace" else [1, 1, 2, size // 2]
        if size % 4 or not m.add("Reshape", [x, m.ints(shape)]):
            return False
        mode = {"mode": m.pick(["DCR", "CRD"])} if op == "DepthToSpace" and m.opset >= 11 and m.chance(0.6) else {}
        return m.add(op, [m.data[-1]], blocksize=block, **mode)

    return draw


def _dropout(m):
    if m.opset < 12:
        return m.add("Dropout", [m.some()], ratio=0.3)
    inputs = [m.some(), m.constant(np.array(0.4, m.dtype)), m.constant(np.array(False))]
    return m.add("Dropout", inputs[: m.integer(1, 3)], m.integer(1, 2))


def _concat(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    rank = len(m.shape(x))
    axis = m.axis(rank)
    rest = [size for a, size in enumerate(m.shape(x)) if a != axis % rank]

    def fits(name):
        shape = m.shape(name)
        return len(shape) == rank and [size for a, size in enumerate(shape) if a != axis % rank] == rest

    inputs = [x]
    for _ in range(m.integer(0, 3)):
        shape = list(m.shape(x))
        shape[axis] = m.integer(1, 2)
        inputs.append(m.pick([n for n in m.data if fits(n)]) if m.chance(0.5) else m.constant(m.numbers(shape)))
    return m.add("Concat", [inputs[i] for i in m.rng.permutation(len(inputs))], axis=axis)


def _pad(m):
    x = m.some(at_least=1)
    if x is None:
        return False
    rank = len(m.shape(x))
    modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if m.opset >= 19 else [])
    mode = {"mode": m.pick(modes)} if m.chance(0.7) else {}
    low = -1 if m.chance(0.3) else 0
    if m.opset < 11:
        pads = [m.integer(low, 2) for _ in range(2 * rank)]
        return m.add("Pad", [x], pads=pads, **mode, **({"value": 0.5} if m.chance(0.5) else {}))
    axes = m.axes(rank) if m.opset >= 18 and m.chance(0.5) else None
    pads = [m.integer(low, 2) for _ in range(2 * (rank if axes is None else len(axes)))]
    value = m.constant(np.array(m.pick([0.5, -1.5, 0.0]), m.dtype)) if m.chance(0.5) else ""
    inputs = [x, m.ints(pads), value]
    if axes is not None:
        inputs.append(m.constant(np.array(axes, m.pick(["int64", "int32"]))))
    return m.add("Pad", inputs if value or axes is not None else inputs[:2], **mode)


# --- windows and norms


def _spatial(m, space):
    """Some data as (1, channels, *space)."""
    x = m.some()
    size = m.values[x].size
    if space == 1:
        shape = [1, m.pick([d for d in (1, 2, 3, 4) if size % d == 0]), -1]
    else:
        channels = m.pick([d for d in (1, 2, 4) if size % d == 0])
        rows = m.pick([d for d in (1, 2, 3, 4, 5) if (size // channels) % d == 0])
        shape = [1, channels, rows, -1] + [1] * (space - 2)
    return m.data[-1] if m.add("Reshape", [x, m.ints(shape)]) else None


def _window_attributes(m, space, kernel):
    attributes = {}
    if m.chance(0.6):
        attributes["strides"] = [m.integer(1, 3) for _ in range(space)]
    if m.chance(0.4):
        attributes["dilations"] = [m.integer(1, 2) for _ in range(space)]
    if m.chance(0.25):
        attributes["auto_pad"] = m.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif m.chance(0.6):
        attributes["pads"] = [m.integer(0, max(0, min(2, k - 1))) for k in (*kernel, *kernel)]
    return attributes


def _conv(m):
    if m.dtype == "float64":
        return False
    space = m.pick([1, 2, 2, 3])
    x = _spatial(m, space)
    if x is None:
        return False
    channels = m.shape(x)[1]
    groups = m.pick([g for g in (1, 2, 4) if channels % g == 0])
    kernel = [m.integer(1, 3) for _ in range(space)]
    weight = m.constant(m.numbers((groups * m.integer(1, 2), channels // groups, *kernel)))
    attributes = _window_attributes(m, space, kernel)
    if groups > 1:
        attributes["group"] = groups
    if m.chance(0.5):
        attributes["kernel_shape"] = kernel
    bias = [m.constant(m.numbers((m.values[weight].shape[0],)))] if m.chance(0.6) else []
    return m.add("Conv", [x, weight, *bias], **attributes)


def _pool(op):
    def draw(m):
        space = m.pick([1, 2, 2, 3])
        x = _spatial(m, space)
        if x is None:
            return False
        kernel = [m.integer(1, 4) for _ in range(space)]
        attributes = _window_attributes(m, space, kernel) | {"kernel_shape": kernel}
        if m.opset < (10 if op == "MaxPool" else 19):
            attributes.pop("dilations", None)
        if m.opset >= 10 and m.chance(0.3):
            attributes["ceil_mode"] = 1
        if op == "AveragePool" and m.chance(0.4):
            attributes["count_include_pad"] = 1
        if op == "MaxPool" and m.opset >= 8 and m.chance(0.1):
            attributes["storage_order"] = 1
        return m.add(op, [x], **attributes)

    return draw


def _global(op):
    def draw(m):
        x = _spatial(m, m.pick([1, 2, 3]))
        return x is not None and m.add(op, [x])

    return draw


def _batch_norm(m):
    x = m.some(at_least=2)
    if x is None:
        return False
    c = m.shape(x)[1]
    scale, bias, mean = (m.constant(m.numbers((c,))) for _ in range(3))
    variance = m.constant((np.abs(m.numbers((c,))) + 0.1).astype(m.dtype))
    epsilon = {"epsilon": m.pick([1e-5, 1e-2])} if m.chance(0.6) else {}
    return m.add("BatchNormalization", [x, scale, bias, mean, variance], **epsilon)


def _layer_norm(op):
    def draw(m):
        x = m.some(at_least=1)
        if x is None:
            return False
        rank = len(m.shape(x))
        axis = m.axis(rank)
        given = {"axis": axis} if m.chance(0.7) else {}
        shape = m.shape(x)[given.get("axis", -1) % rank :]
        if m.chance(0.15):
            shape = m.broadcastable(shape)
        inputs = [x, m.constant(m.numbers(shape))]
        if op == "LayerNormalization" and m.chance(0.6):
            inputs.append(m.constant(m.numbers(shape)))
        return m.add(op, inputs, epsilon=m.pick([1e-2, 0.5]), **given)

    return draw


def _group_norm(op):
    def draw(m):
        x = m.some(at_least=3)
        if x is None:
            return False
        channels = m.shape(x)[1]
        groups = m.pick([g for g in (1, 2, 3, 4) if channels % g == 0])
        one_each = groups if op == "GroupNormalization" and m.opset < 21 else channels
        inputs = [x, m.constant(m.numbers((one_each,))), m.constant(m.numbers((one_each,)))]
        more = {"num_groups": groups} if op == "GroupNormalization" else {}
        return m.add(op, inputs, epsilon=m.pick([1e-2, 0.5]), **more)

    return draw


# --- constants, which end up in data


def _fixed(m, kinds=None):
    """A constant made before or a new one, of one of these number types."""
    kinds = kinds or (*INTEGERS, "bool", "float16", "float32", "float64")
    fitting = [name for name in m.fixed if str(m.values[name].dtype) in kinds and m.values[name].size]
    if fitting and m.chance(0.6):
        return m.pick(fitting)
    shape = tuple(m.integer(1, 3) for _ in range(m.integer(0, 3)))
    return m.constant(m.numbers(shape, m.pick(kinds)))


_NUMBERS = (*INTEGERS, "float32", "float64")


def _fold_binary(op, kinds=_NUMBERS):
    def draw(m):
        x = _fixed(m, kinds)
        kind = str(m.values[x].dtype)
        y = m.numbers(m.broadcastable(m.shape(x)), kind)
        if op in ("Div", "Mod"):
            y = np.where(y == 0, 1, y).astype(kind)
        attributes = {"fmod": m.integer(0, 1)} if op == "Mod" else {}
        return m.add(op, [x, m.constant(y)], **attributes)

    return draw


def _fold_unary(op, kinds=_NUMBERS):
    return lambda m: m.add(op, [_fixed(m, kinds)])


def _fold_cast(m):
    return m.add("Cast", [_fixed(m)], to=m.pick([1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13]))


def _fold_cast_like(m):
    return m.add("CastLike", [_fixed(m), _fixed(m)])


def _fold_reduce(op):
    since = 13 if op == "ReduceSum" else 18

    def draw(m):
        x = _fixed(m, ("int32", "int64", "float32", "float64", "int8", "uint8"))
        rank = len(m.shape(x))
        attributes = {"keepdims": m.integer(0, 1)}
        inputs = [x]
        if rank and m.chance(0.7):
            if m.opset >= since:
                inputs.append(m.ints(m.axes(rank)))
            else:
                attributes["axes"] = m.axes(rank)
        return m.add(op, inputs, **attributes)

    return draw


def _fold_range(m):
    kind = m.pick(["int64", "int32", "float32", "float64", "int16"])
    ends = [m.constant(np.array(m.integer(-4, 8) / (3 if kind.startswith("f") else 1), kind)) for _ in range(2)]
    return m.add("Range", [*ends, m.constant(np.array(m.pick([1, 2, -1]), kind))])


def _fold_of_shape(m):
    value = {"value": numpy_helper.from_array(m.numbers((1,), m.pick(_NUMBERS)))} if m.chance(0.7) else {}
    return m.add("ConstantOfShape", [m.ints([m.integer(1, 3) for _ in range(m.integer(0, 3))])], **value)


def _fold_shape(m):
    x = m.some() if m.chance(0.7) else _fixed(m)
    ends = {"start": m.integer(-3, 3), "end": m.integer(-3, 4)} if m.opset >= 15 and m.chance(0.6) else {}
    return m.add("Shape", [x], **{k: v for k, v in ends.items() if m.chance(0.7)})


def _fold_size(m):
    return m.add("Size", [m.some() if m.chance(0.7) else _fixed(m)])


def _fold_where(m):
    x = _fixed(m)
    other = m.constant(m.numbers(m.broadcastable(m.shape(x)), str(m.values[x].dtype)))
    return m.add("Where", [m.constant(m.numbers(m.broadcastable(m.shape(x)), "bool")), x, other])


def _fold_trilu(m):
    kind = m.pick(["int64", "float32", "bool", "float64"])
    x = m.constant(m.numbers((m.integer(1, 2), m.integer(1, 4), m.integer(1, 4)), kind))
    inputs = [x, m.ints(m.integer(-3, 3))] if m.chance(0.7) else [x]
    return m.add("Trilu", inputs, upper=m.integer(0, 1))


def _fold_cumsum(m):
    x = _fixed(m, ("int32", "int64", "float32", "float64"))
    if not m.shape(x):
        return False
    axis = m.ints(m.axis(len(m.shape(x))))
    return m.add("CumSum", [x, axis], exclusive=m.integer(0, 1), reverse=m.integer(0, 1))


def _fold_moving(m):
    """An operator that moves entries, of constants."""
    kept, m.data = m.data, [_fixed(m)]
    try:
        return m.pick([_reshape, _slice, _gather, _gather_elements, _transpose, _tile, _split, _unsqueeze, _expand])(m)
    finally:
        m.data = kept


def _fold_concat(m):
    x = _fixed(m)
    if not m.shape(x):
        return False
    return m.add("Concat", [x, x, m.constant(m.values[x])], axis=m.axis(len(m.shape(x))))


def _fold_arg(op):
    def draw(m):
        x = _fixed(m, ("int32", "float32", "float64", "int8"))
        if not m.shape(x):
            return False
        return m.add(op, [x], axis=m.integer(0, len(m.shape(x)) - 1), keepdims=m.integer(0, 1))

    return draw


def _fold_matmul(m):
    kind = m.pick(["float32", "float64", "int32", "int64", "uint32", "uint64"])
    k = m.integer(1, 3)
    left, right = m.pick([((2, k), (k, 3)), ((k,), (k, 2)), ((2, 1, k), (k,)), ((2, 1, k), (3, k, 1))])
    return m.add("MatMul", [m.constant(m.numbers(left, kind)), m.constant(m.numbers(right, kind))])


def _bridge(m):
    """A constant joined to data: cast to the model's type, brought to size, then added or multiplied."""
    if not m.fixed:
        return False
    c = m.pick(m.fixed[-4:])
    to = {"float32": 1, "float64": 11}[m.dtype]
    if m.values[c].dtype != m.dtype and not m.add("Cast", [c], to=to):
        return False
    c = m.fixed[-1] if m.values[c].dtype != m.dtype else c
    fitting = [x for x in m.data if _broadcast(m.shape(x), m.shape(c))]
    if fitting:
        x = m.pick(fitting)
    elif m.add("ReduceSum", [m.some()], keepdims=0):
        x = m.data[-1]
    else:
        return False
    return m.add(m.pick(["Add", "Mul", "Sub"]), [x, c])


def _bridge_index(m):
    """Data indexed or shaped by a constant that was computed."""
    fitting = [c for c in m.fixed if str(m.values[c].dtype) in ("int64", "int32") and m.values[c].size]
    x = m.some(at_least=1)
    if not fitting or x is None:
        return False
    c = m.pick(fitting)
    if m.values[c].dtype == np.int64 and m.values[c].ndim == 1 and m.chance(0.4):
        return m.add(m.pick(["Expand", "Reshape", "Tile"]), [x, c])
    return m.add("Gather", [x, c], axis=m.axis(len(m.shape(x))))


OPERATORS = {
    "TopK": _top("TopK"),
    "OneHot": _top("OneHot"),
    "ScatterElements": _top("ScatterElements"),
    "IsNaN": _is_nan,
    **{name: _binary(name) for name in ("Add", "Sub", "Mul")},
    **{name: _variadic(name) for name in ("Sum", "Mean", "Max", "Min")},
    **{name: _unary(name) for name in ("Neg", "Abs", "Relu", "Exp", "Erf", "Tanh", "Sigmoid", "HardSwish", "Identity")},
    "Div": _divide,
    "Div by data": _divide_by_data,
    "Pow": _power,
    "Pow, inverse": _inverse_power,
    "Sqrt": _of_positive("Sqrt"),
    "Reciprocal": _of_positive("Reciprocal"),
    "Where": _where,
    "Clip": _clip,
    "PRelu": _prelu,
    "LeakyRelu": _attributes("LeakyRelu", alpha=[0.1, 0.5, -0.5, 2.0]),
    "HardSigmoid": _attributes("HardSigmoid", alpha=[0.1, 0.5, -0.5], beta=[0.3, 0.7]),
    "Gelu": _attributes("Gelu", approximate=["tanh", "none"]),
    "Swish": _attributes("Swish", alpha=[0.5, 2.0, 1.702]),
    "Softmax": _softmax("Softmax"),
    "Hardmax": _softmax("Hardmax"),
    "Cast": _cast,
    "CastLike": _cast_like,
    **{
        name: _reduce(name)
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
    },
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Reshape": _reshape,
    "Flatten": lambda m: m.add("Flatten", [m.some()], **({"axis": m.integer(-2, 3)} if m.chance(0.7) else {})),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Expand": _expand,
    "Tile": _tile,
    "Split": _split,
    "DepthToSpace": _blocks("DepthToSpace"),
    "SpaceToDepth": _blocks("SpaceToDepth"),
    "Dropout": _dropout,
    "Concat": _concat,
    "Pad": _pad,
    "Conv": _conv,
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    "GlobalAveragePool": _global("GlobalAveragePool"),
    "GlobalMaxPool": _global("GlobalMaxPool"),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm("LayerNormalization"),
    "RMSNormalization": _layer_norm("RMSNormalization"),
    "InstanceNormalization": _group_norm("InstanceNormalization"),
    "GroupNormalization": _group_norm("GroupNormalization"),
}

_LOGICAL = ("bool",)
FOLDS = {
    "Constant": lambda m: bool(m.constant(m.numbers((2,)))),
    "ConstantOfShape": _fold_of_shape,
    "Range": _fold_range,
    "Cast": _fold_cast,
    "CastLike": _fold_cast_like,
    "Shape": _fold_shape,
    "Size": _fold_size,
    "Where": _fold_where,
    "Trilu": _fold_trilu,
    "CumSum": _fold_cumsum,
    "moving": _fold_moving,
    "Concat": _fold_concat,
    "ArgMax": _fold_arg("ArgMax"),
    "ArgMin": _fold_arg("ArgMin"),
    "MatMul": _fold_matmul,
    **{name: _fold_binary(name) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean")},
    **{name: _fold_binary(name) for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "PRelu")},
    **{name: _fold_binary(name, _LOGICAL) for name in ("And", "Or", "Xor")},
    "Not": _fold_unary("Not", _LOGICAL),
    **{
        name: _fold_unary(name)
        for name in ("Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tanh", "Erf")
    },
    **{
        name: _fold_unary(name)
        for name in ("Sigmoid", "Reciprocal", "Relu", "LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Clip")
    },
    **{name: _fold_unary(name) for name in ("Softmax", "Hardmax", "LogSoftmax")},
    **{
        name: _fold_reduce(name)
        for name in ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2")
    },
    "ReduceSumSquare": _fold_reduce("ReduceSumSquare"),
}


def random_model(seed, operator=None):
    """(RandomModel, names drawn) of one seed; with ``operator`` its last node of data is drawn from that one."""
    rng = np.random.default_rng(seed)
    m = RandomModel(rng, int(rng.choice(OPSETS)), "float64" if rng.random() < 0.5 else "float32")
    rank = m.integer(0, 4)
    m.input_shape = tuple(m.integer(1, 4) for _ in range(rank))
    if rank and m.chance(0.7):
        m.input_shape = (1, *m.input_shape)
    m.values["x"] = m.numbers(m.input_shape)
    m.data.append("x")
    m.moving.add("x")
    drawn = []
    names, folds = list(OPERATORS), list(FOLDS)
    for _ in range(m.integer(1, 7)):
        kind = m.rng.random()
        name = m.pick(names) if kind < 0.6 else m.pick(folds) if kind < 0.85 else "bridge"
        make = OPERATORS[name] if kind < 0.6 else FOLDS[name] if kind < 0.85 else m.pick([_bridge, _bridge_index])
        if make(m):
            drawn.append(name if kind < 0.6 or kind >= 0.85 else f"{name} of constants")
    if operator is not None:
        for _ in range(20):
            if operator in OPERATORS and OPERATORS[operator](m):
                drawn.append(operator)
                break
            if operator in FOLDS and FOLDS[operator](m) and _bridge(m):
                drawn.append(f"{operator} of constants")
                break
    return m, drawn


# --- what the reader makes of it --------------------------------------------------------------------


#: Operators that onnxruntime computes in float32, or with constants of float32, whatever their type.
_SINGLE = ("GroupNormalization", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "Gelu")
_SINGLE += ("Swish", "HardSwish")


def _rounds(node):
    return node.op_type == "Cast" and node.attribute[0].i == onnx.TensorProto.FLOAT


def compare(m, n_inputs=3):
    """('equal' | 'refused' | 'different' | 'void', detail): what hm.read makes of the model, against onnxruntime."""
    if m.data[-1] == "x":
        return "void", "no node"
    model = m.model()
    data = model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(data, _options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return "void", str(error)
    try:
        net = network_from_onnx(parse_model(data, "model"), "model")
    except hm.HardmaxError as error:
        return "refused", f"{type(error).__name__}: {error}"
    batched = len(m.input_shape) > 1 and m.input_shape[0] == 1
    single = m.dtype == "float32" or any(node.op_type in _SINGLE or _rounds(node) for node in m.nodes)
    # a matrix product of float32 constants rounds otherwise where onnxruntime has packed one of them beforehand
    single = single or any(m.values[name].dtype in (np.float32, np.float16) for name in m.fixed)
    close = 2e-4 if single else 1e-9
    for trial in range(n_inputs):
        x = m.values["x"] if trial == 0 else m.numbers(m.input_shape)
        try:
            expected = session.run(None, {"x": x})[0]
        except Exception as error:
            return "void", str(error)  # a PRelu that broadcasts its data into its data's own buffer
        if not np.isfinite(expected).all():
            continue
        if batched and expected.shape[:1] == (1,):
            expected = expected[0]
        try:
            found = net(x[0] if batched else x)
        except hm.errors.PrecisionError:
            continue
        if found.shape != expected.shape:
            return "different", f"shape {found.shape}, expected {expected.shape}"
        size = max(m.largest, float(np.abs(expected).max(initial=0)))
        gap = float(np.abs(found.astype(np.float64) - expected).max(initial=0))
        if not gap <= close * size:
            return "different", f"off by {gap:.3g} at size {size:.3g} (input {trial})"
    return "equal", ""

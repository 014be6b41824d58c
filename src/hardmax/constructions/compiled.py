"""Maxout networks as token transformers: the compiler and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.cells.domains import Domain
from hardmax.constructions.dispatched import dispatched_sublayers, dispatched_tokens
from hardmax.constructions.gated import gated_sublayers, gated_tokens
from hardmax.constructions.maxout_form import Interval, MaxoutForm, MaxoutLayer, affine_interval, maxout_form
from hardmax.constructions.token_layers import FeedForwardSublayer, Queries, Sublayer, append_all
from hardmax.errors import DomainError, NotPiecewiseAffineError
from hardmax.exact.decimals import softmax_gap
from hardmax.exact.rationals import float_above, rational
from hardmax.exactness import FloatArray, check_temperature, check_word, detached, positive_number
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.network import Network


@dataclass(frozen=True)
class Complexity:
    """Sizes of a source network and of the transformer that computes the same function.

    ``heads`` is the most in one attention sublayer, ``feed_forward`` the most ReLUs a token (0: attention only).
    Parameters are entries of dense weight matrices, embedding and read-out included; ``nonzero`` counts those that
    the construction sets.
    """

    source_depth: int
    source_width: int
    source_rank: int
    source_parameters: int
    tokens: int
    d_model: int
    heads: int
    feed_forward: int
    attention_sublayers: int
    feed_forward_sublayers: int
    parameters: int
    nonzero: int

    def rows(self) -> list[tuple[str, int | str, int | str]]:
        """A table: quantity, source, transformer."""
        sublayers = f"{self.attention_sublayers} attention + {self.feed_forward_sublayers} feed-forward"
        return [
            ("depth", f"{self.source_depth} layers", sublayers),
            ("width", self.source_width, self.d_model),
            ("rank, tokens", self.source_rank, self.tokens),
            ("units, heads a sublayer", self.source_width, self.heads),
            ("ReLUs a token", "", self.feed_forward),
            ("parameters", self.source_parameters, self.parameters),
            ("of these not zero", "", self.nonzero),
        ]


@dataclass(frozen=True, eq=False)
class CompiledTransformer:
    """A token transformer that computes a maxout network.

    ``network`` maps tokens (n, d_model) to tokens; ``tokens(x)`` makes them of an input and ``read_out`` takes the
    result from them. ``on_inputs`` is the three in one network, from inputs to outputs, for the cell
    engines and for files. Calling the object is ``on_inputs`` with the input's size checked.

    Attributes
    ----------
    variant : "G" or "D".
    bound : largest |x|_inf for which variant G computes its source; None for variant D, which has none.
    complexity : sizes against the source.
    """

    variant: str
    bound: float | None
    form: MaxoutForm
    network: Network
    on_inputs: Network
    complexity: Complexity
    _embedding: Network
    _read_out: Network

    def tokens(self, x: ArrayLike) -> NDArray[Any]:
        """The tokens (..., n, d_model) of inputs (..., d); rational input gives rational tokens.

        Raises
        ------
        DomainError
            Variant G, and an input beyond its bound, where the gates would not do.
        """
        self._refuse_beyond_bound(x)
        return self._embedding(x)

    def read_out(self, y: ArrayLike) -> NDArray[Any]:
        """The outputs held by the tokens that ``network`` returned."""
        return self._read_out(y)

    def __call__(self, x: ArrayLike, temperature: float | None = None) -> NDArray[Any]:
        """The outputs at inputs (..., d): hard unless a temperature is given."""
        if temperature:
            self.error_bound(temperature)  # refuses variant D
        self._refuse_beyond_bound(x)
        return self.on_inputs(x, temperature=temperature)

    def error_bound(self, temperature: float) -> float:
        """The most by which an output at this temperature differs from the source's, for |x|_inf <= bound.

        Never more than the maxout paper's sum_l c_P temperature prod_{l' > l} L_l', with c_P = W((P - 1) / e).

        Exactness: a proved bound in real arithmetic, rounded up. At 0 it is 0: hard attention is exact.
        """
        tau = check_temperature(temperature)
        if tau > 0 and self.variant == "D":
            raise NotPiecewiseAffineError(
                f"variant D is for hard attention only, but temperature {tau:g} was asked for: softmax would mix the "
                "tokens it sends messages to. Compile with bound=..., which gives variant G."
            )
        return softmax_error(self.form, tau)

    def temperature_for(self, error: float) -> float:
        """A temperature at which no output is farther than ``error`` from the source's, for |x|_inf <= bound.

        The bound grows in proportion to the temperature, so this is error / error_bound(1), rounded down: the inverse
        temperature that suffices is sum_l c_P prod_{l' > l} L_l' / error at most, with c_P = W((P - 1) / e) < log P, as
        in ``error_bound``. Infinite where all layers are affine.

        Examples
        --------
        >>> from hardmax.constructions.sawtooth import sawtooth_transformer
        >>> tent = sawtooth_transformer(2, 1, bound=1.0)  # two maxima of two pieces: c_2 = 0.278...
        >>> f"{tent.temperature_for(0.01):.6f}", tent.error_bound(tent.temperature_for(0.01)) <= 0.01
        ('0.035911', True)
        """
        wanted = positive_number("error", error)
        each = self.error_bound(1.0)
        if each == 0:
            return inf
        temperature = min(wanted / each, 2.0**1000)
        while self.error_bound(temperature) > wanted:
            temperature = nextafter(temperature, 0.0)
        return float(temperature)

    def check_domain(self, domain: Domain) -> None:
        """Refuse a domain that reaches beyond the bound."""
        if not isinstance(domain, Domain):
            raise DomainError(f"expected an hm.Box, hm.Plane or hm.Segment, got {type(domain).__name__}")
        if self.bound is None:
            return
        if domain.low is None or domain.high is None:
            raise DomainError(
                f"variant G was compiled for |x|_inf <= {self.bound:g}, but the domain is unbounded; use a bounded "
                "one, or bound=None for variant D"
            )
        corners = np.stack(np.meshgrid(*zip(domain.low, domain.high, strict=True), indexing="ij"), axis=-1)
        self._refuse_beyond_bound(domain.points(corners.reshape(-1, domain.dim), (self.form.input_dim,)))

    def _refuse_beyond_bound(self, x: ArrayLike) -> None:
        if self.bound is None:
            return
        array = np.asarray(detached(x))
        if array.dtype.kind not in "fiubO" or array.size == 0:
            return  # the network itself says what is wrong
        if array.dtype == object:
            limit = rational(self.bound)
            try:
                beyond = [v for v in array.reshape(-1) if not -limit <= rational(v) <= limit]
            except (TypeError, ValueError):
                return
        else:
            beyond = array[~((-self.bound <= array) & (array <= self.bound))].tolist()  # |-128| is -128 in eight bits
        if beyond:
            raise DomainError(
                f"variant G was compiled for |x|_inf <= {self.bound:g}, but an input has an entry {beyond[0]}; compile "
                "with a larger bound, or with bound=None for variant D, which has none"
            )


def maxout_to_transformer(
    net: Network, bound: float | None = None, *, queries: str = "positional"
) -> CompiledTransformer:
    """A transformer on tokens that computes a maxout or ReLU network, exactly.

    Parameters
    ----------
    net : affine maps, ReLUs and ``Maxout`` layers of any depth, widths and ranks, on vectors.
    bound : a number gives variant G: P tokens, one block of attention and feed-forward a layer, for inputs
        with |x|_inf <= bound, hard or soft. None gives variant D: P + 1 tokens, attention only, two
        sublayers a layer, for all of R^d, hard.
    queries : every query depends on its token's position alone. "positional" writes it as a constant, so that
        scores are linear in the tokens and ``hm.enumerate_cells`` can cut the network; "projected" writes
        W_Q times the token, as a transformer's definition has it. Both are one function.

    Returns
    -------
    CompiledTransformer
        With ``network``, ``tokens``, ``read_out`` and ``error_bound``.

    Exactness: exact in rational arithmetic, ties included; in floats within rounding. At a positive
    temperature within ``error_bound(temperature)``.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> net = Network([Affine([[1.0], [-1.0]]), ReLU(), Affine([[1.0, 1.0]])], 1)  # |x|
    >>> gated, pure = maxout_to_transformer(net, bound=4.0), maxout_to_transformer(net)
    >>> gated.read_out(gated.network(gated.tokens([[-3.0], [0.0]]))).tolist(), pure([[-3e10]]).tolist()
    ([[3.0], [0.0]], [[30000000000.0]])
    >>> gated([5.0])
    Traceback (most recent call last):
        ...
    hardmax.errors.DomainError: variant G was compiled for |x|_inf <= 4, but an input has an entry 5.0; compile ...

    An affine network is a maximum of one piece, and one token is enough:

    >>> maxout_to_transformer(Network([Affine([[2.0]])], 1), bound=1.0).network.input_shape
    (1, 3)
    """
    kind = Queries(check_word("queries", queries, [kind.value for kind in Queries]))
    form = maxout_form(net)
    if not form.layers:
        assert form.read_out is not None
        form = replace(form, layers=(form.read_out,), read_out=None)
    if bound is None:
        weight, bias = dispatched_tokens(form)
        sublayers, slot, variant = dispatched_sublayers(form), 2 * max(form.widths), "D"
    else:
        bound = positive_number(
            "bound", bound, "the largest |x|_inf to be computed right; None compiles for all of R^d"
        )
        weight, bias = gated_tokens(form)
        sublayers, slot, variant = gated_sublayers(form, bound), max(form.widths[1:]), "G"
    n_tokens, d_model, _ = weight.shape

    def embed(builder: GraphBuilder, value: int) -> int:
        rows = op.Linear(op.frozen(weight.reshape(n_tokens * d_model, -1)), op.frozen(bias.reshape(-1)))
        flat = builder.add(rows, value, name="embedding")
        return builder.add(op.Reshape((n_tokens, d_model)), flat, name="embedding")

    def extract(builder: GraphBuilder, value: int) -> int:
        positions = slot + np.arange(form.layers[-1].width)  # in the first token
        maxima = builder.add(op.Take(positions), value, name="read-out")
        if form.read_out is None:
            return maxima
        final = op.Linear(form.read_out.weights[0], form.read_out.biases[0])
        return builder.add(final, maxima, name="read-out")

    whole = GraphBuilder((form.input_dim,))
    extract(whole, append_all(whole, embed(whole, 0), sublayers, kind))
    middle, first, last = (GraphBuilder(size) for size in ((n_tokens, d_model), (form.input_dim,), (n_tokens, d_model)))
    append_all(middle, 0, sublayers, kind)
    embed(first, 0)
    extract(last, 0)
    embedding, read_out = Network.from_graph(first.build()), Network.from_graph(last.build())
    return CompiledTransformer(
        variant,
        bound,
        form,
        Network.from_graph(middle.build()),
        Network.from_graph(whole.build()),
        _complexity(net, form, (n_tokens, d_model), [sublayer for _, sublayer in sublayers], [embedding, read_out]),
        embedding,
        read_out,
    )


def _complexity(
    net: Network, form: MaxoutForm, shape: tuple[int, int], sublayers: list[Sublayer], ends: list[Network]
) -> Complexity:
    dense = [layer for layer in sublayers if isinstance(layer, FeedForwardSublayer)]
    heads = [layer for layer in sublayers if not isinstance(layer, FeedForwardSublayer)]
    arrays: list[FloatArray] = [a for d in dense for a in (d.first, d.shifts, d.second, d.correction)]
    for group in (group for layer in heads for group in layer.groups):
        # W_Q has a column a position, each the query there
        arrays += [group.queries, group.keys, group.values, group.output]
    for node in (node for end in ends for node in end.graph.nodes):
        if isinstance(node.operation, op.Linear):
            arrays += [a for a in (node.operation.weight, node.operation.bias) if a is not None]
    return Complexity(
        source_depth=len(form.layers) + (form.read_out is not None),
        source_width=max(form.widths),
        source_rank=form.rank,
        source_parameters=net.n_parameters,
        tokens=shape[0],
        d_model=shape[1],
        heads=max(layer.n_heads for layer in heads),
        feed_forward=max((layer.width for layer in dense), default=0),
        attention_sublayers=len(heads),
        feed_forward_sublayers=len(dense),
        parameters=sum(layer.n_parameters for layer in sublayers) + sum(end.n_parameters for end in ends),
        nonzero=sum(int(np.count_nonzero(array)) for array in arrays),
    )


def softmax_error(form: MaxoutForm, temperature: float) -> float:
    """The largest deviation of any output from its hard value when every maximum is a softmax mean.

    The deviation of each unit is followed as an interval: affine pieces map intervals, a maximum of pieces
    deviates within the hull of their intervals, and a softmax mean lies below the maximum by at most
    c_P * temperature, P tokens. The result is never above sum_l c_P temperature prod_{l' > l} L_l' with L the
    largest 1-norm of a layer's rows, and below it where errors of one sign cancel (a difference of maxima).

    Exactness: an upper bound in real arithmetic, rounded up; rounding of the evaluation comes on top.
    """
    gap = Fraction(softmax_gap(form.rank)) * Fraction(temperature)
    deviations = [(Fraction(0), Fraction(0))] * form.input_dim
    for layer in form.layers:
        deviations = _through(layer, deviations)
        if layer.rank > 1:  # an affine layer's tokens are copies, whose mean is exact
            deviations = [(low - gap, high) for low, high in deviations]
    if form.read_out is not None:
        deviations = _through(form.read_out, deviations)
    return float_above(max(max(-low, high) for low, high in deviations))


def _through(layer: MaxoutLayer, deviations: list[Interval]) -> list[Interval]:
    result = []
    for unit in range(layer.width):
        pieces = [affine_interval(row, 0.0, deviations) for row in layer.weights[:, unit].tolist()]
        result.append((min(low for low, _ in pieces), max(high for _, high in pieces)))
    return result

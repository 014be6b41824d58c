"""Lowering: a small network as an explicit tropical rational map.

Preconditions: zero temperature, and only operations whose pieces are affine. The sizes grow quickly, so
this is for networks of a few dozen units; for larger ones the cells themselves are the better object.

Two routes lead to the same map. Without attention the network is lowered operation by operation, each
tensor a difference of convex functions. Hard attention jumps in general, so with it the network's affine
pieces are enumerated first, their continuity is decided, and a continuous network is convexified wall by
wall. A network whose attention jumps but whose output does not (the grid transformer of Theorem V.7 folds
every jump away) is continuous, and lowered.
"""

from __future__ import annotations

from hardmax.constructions.lowering._continuity import Discontinuity, bends_or_jump, convex_difference, pieces_of
from hardmax.constructions.lowering._maxima import Maximum, rational_terms
from hardmax.errors import DiscontinuityError, NotPiecewiseAffineError
from hardmax.exactness import check_count
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network, check_network
from hardmax.tropical import TropicalRationalMap

__all__ = ["Discontinuity", "discontinuity", "lower"]


def lower(net: Network, max_terms: int = 10_000) -> TropicalRationalMap:
    """The tropical rational map that equals the network wherever the network is continuous.

    Channel c is ``numerators[c](x) - denominator(x)``, both maxima of affine functions in which every term
    is the only maximum somewhere. Inputs and outputs of several axes are flattened in C order.

    Ties on null sets are ignored: where several keys tie at isolated points, a network may take there a
    value that no cell around has, and the map takes the cells' value.

    Parameters
    ----------
    net
        A network at temperature zero of linear operations, ReLU (any slope), maxima and attention.
    max_terms
        The most terms a polynomial made on the way may have, and the most affine pieces.

    Exactness: the terms are found and computed in rationals, and each coefficient is rounded once, to the
    nearest float; with short dyadic weights nothing is rounded and the map is exact.

    Raises
    ------
    DiscontinuityError
        The network jumps: names the head, the two keys, a point of their wall and the two values there.
    IncompleteError
        More than ``max_terms`` terms or pieces.
    NotPiecewiseAffineError, QuadraticScoresError
        Softmax at a positive temperature, smooth operations, products of two moving tensors.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head, ReLU
    >>> net = Network([Affine([[1.0], [1.0]], [0.0, -1.0]), ReLU(), Affine([[1.0, -2.0]])], 1)
    >>> hat = lower(net)  # max(x, 0) - 2 max(x - 1, 0)
    >>> hat([[-1.0], [1.0], [3.0]]).tolist()
    [[0.0], [1.0], [-1.0]]
    >>> hat.denominator.slopes.tolist(), hat.denominator.offsets.tolist()
    ([[2.0], [0.0]], [-2.0, 0.0])

    Hard attention is lowered where it does not jump, and refused where it does:

    >>> def step(first, second):
    ...     return Network([Attention([Head([[1.0], [-1.0]], [[first], [second]], [[1.0]])])], 1)
    >>> lower(step(7.0, 7.0)).numerators[0].offsets.tolist()
    [7.0]
    >>> lower(step(5.0, 7.0))
    Traceback (most recent call last):
        ...
    hardmax.errors.DiscontinuityError: layer 0 Attention head 0: the output jumps on the wall between ...
    """
    numerators, denominator = exact_terms(net, max_terms)
    return TropicalRationalMap([part.polynomial() for part in numerators], denominator.polynomial())


def exact_terms(net: Network, max_terms: int = 10_000) -> tuple[list[Maximum], Maximum]:
    """What ``lower`` rounds: numerators and denominator with rational coefficients."""
    _check(net, max_terms)
    if not any(isinstance(node.operation, op.Hardmax | op.MatMul | op.Multiply) for node in net.graph.nodes):
        numerators, denominator = rational_terms(net.graph.in_parts, max_terms)
    else:
        numerators, denominator = _terms_of_pieces(net.graph, max_terms)
    return [part.in_fractions() for part in numerators], denominator.in_fractions()


def discontinuity(net: Network, max_pieces: int = 10_000) -> Discontinuity | None:
    """A proved jump of the hard network on all of space, or None: it is continuous up to ties on null sets.

    Exactness: exact, either way.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> net = Network([Attention([Head([[1.0], [-1.0]], [[5.0], [7.0]], [[1.0]])])], 1)
    >>> jump = discontinuity(net)
    >>> jump.keys, [str(x) for x in jump.point], [str(v[0]) for v in jump.values]
    ((0, 1), ['0'], ['5', '7'])

    A key that wins on a null set alone makes no jump:

    >>> seam = Network([Attention([Head([[-1.0], [0.0], [1.0]], [[5.0], [7.0], [5.0]], [[1.0]])])], 1)
    >>> discontinuity(seam) is None
    True
    """
    _check(net, max_pieces)
    found = bends_or_jump(pieces_of(net.graph, max_pieces), net.graph)
    return found if isinstance(found, Discontinuity) else None


def _terms_of_pieces(graph: Graph, max_terms: int) -> tuple[list[Maximum], Maximum]:
    pieces = pieces_of(graph, max_terms)
    found = bends_or_jump(pieces, graph)
    if isinstance(found, Discontinuity):
        raise DiscontinuityError(
            f"{found}. A tropical rational map is continuous, so none equals this network; give the two keys "
            "values that agree on their wall, or enumerate the cells instead"
        )
    return convex_difference(pieces, found, max_terms)


def _check(net: Network, limit: int) -> None:
    check_network(net)
    check_count("limit", limit)
    for node in net.graph.nodes:
        operation = node.operation
        if isinstance(operation, op.Smooth):
            raise NotPiecewiseAffineError(
                f"{node.name}: {operation.name} is not piecewise affine; take hm.skeleton(network) first"
            )
        if isinstance(operation, op.Hardmax) and net.temperature > 0 and not operation.always_hard:
            raise NotPiecewiseAffineError(
                f"{node.name}: softmax at temperature {net.temperature:g} is not piecewise affine; lower "
                "network.with_temperature(0.0), which is its zero-temperature limit"
            )

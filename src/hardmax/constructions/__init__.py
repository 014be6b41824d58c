"""Networks built by theorem: grid transformers, maxout and piecewise-linear functions as transformers, sawtooths."""

from hardmax.constructions.compiled import CompiledTransformer, Complexity, maxout_to_transformer
from hardmax.constructions.difference_form import DifferenceForm
from hardmax.constructions.function_files import read_function
from hardmax.constructions.grid import general_position_transformer, grid_transformer
from hardmax.constructions.lattice_form import LatticeForm
from hardmax.constructions.maxout_form import maxout_network
from hardmax.constructions.parabola import parabola_heads
from hardmax.constructions.piecewise import (
    PiecewiseLinear,
    approximate,
    difference_of_maxima,
    max_of_minima,
    piecewise_linear,
    piecewise_linear_from_pieces,
)
from hardmax.constructions.sawtooth import (
    causal_digit_transformer,
    digit_transformer,
    nested_transformer,
    sawtooth_network,
    sawtooth_transformer,
    squares_network,
)

__all__ = [
    "CompiledTransformer",
    "Complexity",
    "DifferenceForm",
    "LatticeForm",
    "PiecewiseLinear",
    "approximate",
    "causal_digit_transformer",
    "difference_of_maxima",
    "digit_transformer",
    "general_position_transformer",
    "grid_transformer",
    "max_of_minima",
    "maxout_network",
    "maxout_to_transformer",
    "nested_transformer",
    "parabola_heads",
    "piecewise_linear",
    "piecewise_linear_from_pieces",
    "read_function",
    "sawtooth_network",
    "sawtooth_transformer",
    "squares_network",
]

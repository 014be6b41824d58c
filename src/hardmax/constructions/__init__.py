"""Networks built by theorem: grid transformers, maxout and piecewise-linear functions as transformers, sawtooths."""

from hardmax.constructions.compiled import CompiledTransformer as CompiledTransformer
from hardmax.constructions.compiled import Complexity as Complexity
from hardmax.constructions.compiled import maxout_to_transformer as maxout_to_transformer
from hardmax.constructions.difference_form import DifferenceForm as DifferenceForm
from hardmax.constructions.function_files import read_function as read_function
from hardmax.constructions.grid import general_position_transformer as general_position_transformer
from hardmax.constructions.grid import grid_transformer as grid_transformer
from hardmax.constructions.lattice_form import LatticeForm as LatticeForm
from hardmax.constructions.maxout_form import maxout_network as maxout_network
from hardmax.constructions.parabola import parabola_heads as parabola_heads
from hardmax.constructions.piecewise import PiecewiseLinear as PiecewiseLinear
from hardmax.constructions.piecewise import approximate as approximate
from hardmax.constructions.piecewise import difference_of_maxima as difference_of_maxima
from hardmax.constructions.piecewise import max_of_minima as max_of_minima
from hardmax.constructions.piecewise import piecewise_linear as piecewise_linear
from hardmax.constructions.piecewise import piecewise_linear_from_pieces as piecewise_linear_from_pieces
from hardmax.constructions.sawtooth import causal_digit_transformer as causal_digit_transformer
from hardmax.constructions.sawtooth import digit_transformer as digit_transformer
from hardmax.constructions.sawtooth import nested_transformer as nested_transformer
from hardmax.constructions.sawtooth import sawtooth_network as sawtooth_network
from hardmax.constructions.sawtooth import sawtooth_transformer as sawtooth_transformer
from hardmax.constructions.sawtooth import squares_network as squares_network
from hardmax.views import own_names


def __dir__() -> list[str]:
    return own_names(globals())

"""The exact geometry of transformers at zero temperature.

Public names live here and are loaded on first use, so that ``import hardmax`` costs nothing and pulls in
neither numba nor any optional dependency. To publish a name, add it to ``_DEFINED`` (or a line to
``_MODULES`` for a namespace such as ``hm.bounds``) and the matching line to the ``TYPE_CHECKING`` block;
``tests/test_imports.py`` compares the two.

Examples
--------
>>> import hardmax as hm
>>> issubclass(hm.errors.ShapeError, hm.HardmaxError)
True
>>> hm.no_such_name
Traceback (most recent call last):
    ...
AttributeError: module 'hardmax' has no attribute 'no_such_name'
"""

from typing import TYPE_CHECKING

from hardmax.version import __version__ as __version__
from hardmax.views import late

if TYPE_CHECKING:
    from hardmax import constructions as constructions
    from hardmax import errors as errors
    from hardmax import networks as networks
    from hardmax import papers as claims  # noqa: F401
    from hardmax import reports as reports
    from hardmax import tropical as tropical
    from hardmax.cells.around.constancy import decision_constant as decision_constant
    from hardmax.cells.around.constancy import decision_radius as decision_radius
    from hardmax.cells.around.local_map import local_map as local_map
    from hardmax.cells.around.search import cells_around as cells_around
    from hardmax.cells.derived.lipschitz import lipschitz as lipschitz
    from hardmax.cells.domains import Box as Box
    from hardmax.cells.domains import Plane as Plane
    from hardmax.cells.domains import Segment as Segment
    from hardmax.cells.domains import Space as Space
    from hardmax.cells.search import count_cells as count_cells
    from hardmax.cells.search import enumerate_cells as enumerate_cells
    from hardmax.cells.streaming import load_cells as load_cells
    from hardmax.cells.verify.verification import verify as verify
    from hardmax.constructions.compiled import maxout_to_transformer as maxout_to_transformer
    from hardmax.constructions.grid import grid_transformer as grid_transformer
    from hardmax.constructions.lowering.lower import lower as lower
    from hardmax.constructions.maxout_form import maxout_network as maxout_network
    from hardmax.constructions.piecewise import approximate as approximate
    from hardmax.constructions.piecewise import difference_of_maxima as difference_of_maxima
    from hardmax.constructions.piecewise import max_of_minima as max_of_minima
    from hardmax.constructions.piecewise import piecewise_linear as piecewise_linear
    from hardmax.constructions.piecewise import piecewise_linear_from_pieces as piecewise_linear_from_pieces
    from hardmax.errors import HardmaxError as HardmaxError
    from hardmax.heads import fidelity as fidelity
    from hardmax.heads.analysis import analyse_heads as analyse_heads
    from hardmax.heads.attention_margins import attention_margins as attention_margins
    from hardmax.heads.capture import models as models
    from hardmax.heads.capture.capturing import capture as capture
    from hardmax.heads.capture.routers import capture_routers as capture_routers
    from hardmax.heads.classes.audit import ClassAudit as ClassAudit
    from hardmax.heads.classes.audit import audit_classes as audit_classes
    from hardmax.heads.classes.audit import load_classes as load_classes
    from hardmax.heads.diagram.ghost_regions import ghost_regions as ghost_regions
    from hardmax.heads.diagram.power_diagram import power_diagram as power_diagram
    from hardmax.heads.diagram.pullback import pull_back as pull_back
    from hardmax.heads.kv_cache import kv_cache as kv_cache
    from hardmax.heads.roles import head_roles as head_roles
    from hardmax.measure import bounds as bounds
    from hardmax.measure import dynamics as dynamics
    from hardmax.measure import stability as stability
    from hardmax.measure.sampling import sample_cells as sample_cells
    from hardmax.networks.decisions import decisions as decisions
    from hardmax.networks.files.foreign_arrays import from_arrays as from_arrays
    from hardmax.networks.files.formats import read as read
    from hardmax.networks.files.formats import write as write
    from hardmax.networks.files.hf_models import from_hf as from_hf
    from hardmax.networks.files.opening import Limits as Limits
    from hardmax.networks.files.torch_modules import from_torch as from_torch
    from hardmax.networks.files.torch_modules import to_torch as to_torch
    from hardmax.networks.layers import Affine as Affine
    from hardmax.networks.layers import Attention as Attention
    from hardmax.networks.layers import HardTanh as HardTanh
    from hardmax.networks.layers import Head as Head
    from hardmax.networks.layers import Maxout as Maxout
    from hardmax.networks.layers import Mixture as Mixture
    from hardmax.networks.layers import ReLU as ReLU
    from hardmax.networks.layers import Residual as Residual
    from hardmax.networks.layers import Sparsemax as Sparsemax
    from hardmax.networks.layers import TopK as TopK
    from hardmax.networks.library import builtin as builtin
    from hardmax.networks.network import Network as Network
    from hardmax.networks.skeleton import skeleton as skeleton
    from hardmax.runs.resources import Resources as Resources
    from hardmax.runs.sweeps import sweep as sweep
    from hardmax.tropical.polynomial import TropicalPolynomial as TropicalPolynomial
    from hardmax.tropical.sums.joint_cells import joint_cells as joint_cells
    from hardmax.tropical.sums.joint_cells import minkowski_vertices as minkowski_vertices


#: Modules with the public names that they define.
_DEFINED = {
    "cells.around.constancy": "decision_constant decision_radius",
    "cells.around.local_map": "local_map",
    "cells.around.search": "cells_around",
    "cells.derived.lipschitz": "lipschitz",
    "cells.domains": "Box Plane Segment Space",
    "cells.search": "count_cells enumerate_cells",
    "cells.streaming": "load_cells",
    "cells.verify.verification": "verify",
    "constructions.compiled": "maxout_to_transformer",
    "constructions.grid": "grid_transformer",
    "constructions.lowering.lower": "lower",
    "constructions.maxout_form": "maxout_network",
    "constructions.piecewise": "approximate difference_of_maxima max_of_minima piecewise_linear "
    "piecewise_linear_from_pieces",
    "errors": "HardmaxError",
    "heads.analysis": "analyse_heads",
    "heads.attention_margins": "attention_margins",
    "heads.capture.capturing": "capture",
    "heads.capture.routers": "capture_routers",
    "heads.classes.audit": "ClassAudit audit_classes load_classes",
    "heads.diagram.ghost_regions": "ghost_regions",
    "heads.diagram.power_diagram": "power_diagram",
    "heads.diagram.pullback": "pull_back",
    "heads.kv_cache": "kv_cache",
    "heads.roles": "head_roles",
    "measure.sampling": "sample_cells",
    "networks.decisions": "decisions",
    "networks.files.foreign_arrays": "from_arrays",
    "networks.files.formats": "read write",
    "networks.files.hf_models": "from_hf",
    "networks.files.opening": "Limits",
    "networks.files.torch_modules": "from_torch to_torch",
    "networks.layers": "Affine Attention HardTanh Head Maxout Mixture ReLU Residual Sparsemax TopK",
    "networks.library": "builtin",
    "networks.network": "Network",
    "networks.skeleton": "skeleton",
    "runs.resources": "Resources",
    "runs.sweeps": "sweep",
    "tropical.polynomial": "TropicalPolynomial",
    "tropical.sums.joint_cells": "joint_cells minkowski_vertices",
}
#: public name -> the module that defines it
_NAMES = {name: f"hardmax.{module}" for module, names in _DEFINED.items() for name in names.split()}

# public namespace -> the module it stands for
_MODULES = {
    "bounds": "hardmax.measure.bounds",
    "claims": "hardmax.papers",
    "constructions": "hardmax.constructions",
    "dynamics": "hardmax.measure.dynamics",
    "errors": "hardmax.errors",
    "fidelity": "hardmax.heads.fidelity",
    "models": "hardmax.heads.capture.models",
    "networks": "hardmax.networks",
    "reports": "hardmax.reports",
    "stability": "hardmax.measure.stability",
    "tropical": "hardmax.tropical",
}

__all__ = sorted([*_NAMES, *_MODULES])


if not TYPE_CHECKING:  # a type checker should refuse unknown names, which a module __getattr__ would let pass
    __getattr__ = late(globals(), _NAMES, _MODULES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

"""Tropical algebra: the semiring and its deformation, polynomials, Newton polytopes, Minkowski sums."""

from hardmax.tropical.cayley import MixedCell as MixedCell
from hardmax.tropical.cayley import mixed_subdivision as mixed_subdivision
from hardmax.tropical.cayley import mixed_volume as mixed_volume
from hardmax.tropical.dual_subdivision import DualSubdivision as DualSubdivision
from hardmax.tropical.dual_subdivision import dual_subdivision as dual_subdivision
from hardmax.tropical.hypersurface import Hypersurface as Hypersurface
from hardmax.tropical.hypersurface import Wall as Wall
from hardmax.tropical.hypersurface import hypersurface as hypersurface
from hardmax.tropical.kleene import kleene_star as kleene_star
from hardmax.tropical.maslov import soft_add as soft_add
from hardmax.tropical.maslov import soft_matmul as soft_matmul
from hardmax.tropical.maslov import soft_sum as soft_sum
from hardmax.tropical.maslov import softmax as softmax
from hardmax.tropical.newton_polytope import NewtonPolytope as NewtonPolytope
from hardmax.tropical.normal_fan import NormalFan as NormalFan
from hardmax.tropical.normal_fan import minkowski_f_vector as minkowski_f_vector
from hardmax.tropical.normal_fan import normal_fan as normal_fan
from hardmax.tropical.polynomial import TropicalPolynomial as TropicalPolynomial
from hardmax.tropical.polynomial import TropicalRational as TropicalRational
from hardmax.tropical.rational_map import RationalCells as RationalCells
from hardmax.tropical.rational_map import TropicalRationalMap as TropicalRationalMap
from hardmax.tropical.rational_map import log_lifted_attention as log_lifted_attention
from hardmax.tropical.rational_map import rational_cells as rational_cells
from hardmax.tropical.semiring import ONE as ONE
from hardmax.tropical.semiring import ZERO as ZERO
from hardmax.tropical.semiring import maxplus_add as maxplus_add
from hardmax.tropical.semiring import maxplus_identity as maxplus_identity
from hardmax.tropical.semiring import maxplus_matmul as maxplus_matmul
from hardmax.tropical.semiring import maxplus_multiply as maxplus_multiply
from hardmax.tropical.semiring import maxplus_power as maxplus_power
from hardmax.tropical.semiring import maxplus_sum as maxplus_sum
from hardmax.tropical.sums.joint_cells import JointCells as JointCells
from hardmax.tropical.sums.joint_cells import common_refinement as common_refinement
from hardmax.tropical.sums.joint_cells import joint_cells as joint_cells
from hardmax.tropical.sums.joint_cells import minkowski_vertices as minkowski_vertices
from hardmax.views import own_names


def __dir__() -> list[str]:
    return own_names(globals())

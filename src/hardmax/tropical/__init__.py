"""Tropical algebra: the semiring and its deformation, polynomials, Newton polytopes, Minkowski sums."""

from hardmax.tropical.cayley import MixedCell, mixed_subdivision, mixed_volume
from hardmax.tropical.dual_subdivision import DualSubdivision, dual_subdivision
from hardmax.tropical.hypersurface import Hypersurface, Wall, hypersurface
from hardmax.tropical.kleene import kleene_star
from hardmax.tropical.maslov import soft_add, soft_matmul, soft_sum, softmax
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.normal_fan import NormalFan, minkowski_f_vector, normal_fan
from hardmax.tropical.polynomial import TropicalPolynomial, TropicalRational
from hardmax.tropical.rational_map import RationalCells, TropicalRationalMap, log_lifted_attention, rational_cells
from hardmax.tropical.semiring import (
    ONE,
    ZERO,
    maxplus_add,
    maxplus_identity,
    maxplus_matmul,
    maxplus_multiply,
    maxplus_power,
    maxplus_sum,
)
from hardmax.tropical.sums.joint_cells import JointCells, common_refinement, joint_cells, minkowski_vertices

__all__ = [
    "ONE",
    "ZERO",
    "DualSubdivision",
    "Hypersurface",
    "JointCells",
    "MixedCell",
    "NewtonPolytope",
    "NormalFan",
    "RationalCells",
    "TropicalPolynomial",
    "TropicalRational",
    "TropicalRationalMap",
    "Wall",
    "common_refinement",
    "dual_subdivision",
    "hypersurface",
    "joint_cells",
    "kleene_star",
    "log_lifted_attention",
    "maxplus_add",
    "maxplus_identity",
    "maxplus_matmul",
    "maxplus_multiply",
    "maxplus_power",
    "maxplus_sum",
    "minkowski_f_vector",
    "minkowski_vertices",
    "mixed_subdivision",
    "mixed_volume",
    "normal_fan",
    "rational_cells",
    "soft_add",
    "soft_matmul",
    "soft_sum",
    "softmax",
]


def __dir__() -> list[str]:
    return __all__

"""Which entry, function and test stand for each numbered item of the papers.

An entry covers an item where it names it in ``where``; functions and tests are listed here. An item without one of the
three says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hardmax.papers.entries import Claim

_LEDGER = "papers/test_ledger.py::test_fed_the_opposite_the_check_answers_the_opposite"


@dataclass(frozen=True)
class Item:
    """A numbered item: where it stands, public names for it, tests (file::name under tests/), and what is missing."""

    kind: str
    number: str
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = (_LEDGER,)
    reason: str = ""

    @property
    def name(self) -> str:
        """As the papers call it: ``Theorem V.2``."""
        return f"{self.kind} {self.number}"


def _item(name: str, functions: str = "", tests: str = "", reason: str = "") -> Item:
    kind, number = name.split(" ")
    return Item(kind, number, tuple(functions.split()), tuple(tests.split()) or (_LEDGER,), reason)


ITEMS = (
    _item("Figure 1", "hm.reports.figures",
          "papers/test_figures.py::test_figures_1_2_and_7_count_what_the_references_say"),
    _item("Definition III.1", "hm.enumerate_cells",
          "cells/test_regions.py::test_regions_on_either_side_of_a_null_set_merge"),
    _item("Definition III.2", "hm.bounds.zaslavsky", "measure/test_bounds.py::test_two_keys_are_hyperplanes"),
    _item("Example III.3", "hm.bounds.serra hm.bounds.montufar_upper",
          "measure/test_bounds.py::test_serra_and_montufar_of_the_reference_networks"),
    _item("Figure 2", "hm.reports.figures",
          "papers/test_figures.py::test_figures_1_2_and_7_count_what_the_references_say"),
    _item("Definition III.4", "hardmax.tropical.semiring", "tropical/test_semiring.py::test_matrices_form_a_semiring"),
    _item("Definition III.5", "hm.TropicalPolynomial",
          "tropical/test_newton_polytope.py::test_vertices_and_dimension_are_those_of_the_oracle"),
    _item("Definition III.6", "hm.TropicalPolynomial",
          "tropical/test_rational.py::test_a_common_denominator_changes_no_channel"),
    _item("Definition III.7", "hm.TropicalPolynomial",
          "tropical/test_dual_structures.py::test_walls_in_the_plane_are_those_of_the_oracle"),
    _item("Definition III.8", "hm.joint_cells",
          "tropical/test_minkowski.py::test_joint_cells_are_exactly_the_tuples_that_win_together"),
    _item("Definition III.9", "hm.TropicalPolynomial",
          "tropical/test_maslov.py::test_the_soft_sum_lies_within_tau_log_n_above_the_maximum"),
    _item("Definition III.10", "hm.bounds.max_log_lifted_cells",
          "tropical/test_log_lifted.py::test_the_soft_map_is_the_logarithm_of_softmax_attention"),
    _item("Remark III.11", "hm.bounds.max_log_lifted_cells",
          "tropical/test_log_lifted.py::test_the_lifted_values_add_a_wall_that_hard_attention_does_not_have"),
    _item("Remark III.12", "hm.bounds.max_log_lifted_cells",
          "tropical/test_log_lifted.py::test_cells_regions_and_maps_are_those_of_the_oracle"),
    _item("Definition III.13", "hm.joint_cells hm.minkowski_vertices",
          "tropical/test_newton_polytope.py::test_the_newton_polytope_of_a_product_is_the_minkowski_sum"),
    _item("Definition IV.1", "hm.power_diagram",
          "heads/diagram/test_power_diagram.py::test_keys_on_a_sphere_give_an_ordinary_voronoi_diagram"),
    _item("Definition IV.2", "hm.power_diagram",
          "heads/diagram/test_power_diagram.py::test_live_keys_are_those_that_win_alone_somewhere"),
    _item("Theorem IV.3", "hm.power_diagram",
          "heads/diagram/test_power_diagram.py::test_argmax_of_dot_products_is_argmin_of_power_distance"),
    _item("Figure 3", "hm.power_diagram hm.reports.figures",
          "papers/test_figures.py::test_figure_3_has_five_voronoi_cells_and_two_dead_keys_one_of_large_weight"),
    _item("Corollary IV.4", "hm.enumerate_cells hm.stability.bounds",
          "measure/test_stability.py::test_bounds_are_attained_by_rivals_at_the_margin"),
    _item("Remark IV.5", "hm.read", _LEDGER, "whole sequences are coupled: cells are taken with the context fixed"),
    _item("Remark IV.6", "hm.power_diagram",
          "heads/diagram/test_power_diagram.py::test_keys_on_a_sphere_give_an_ordinary_voronoi_diagram "
          "heads/diagram/test_normalised.py::test_without_biases_rms_norm_changes_no_cell"),
    _item("Figure 4", "hm.minkowski_vertices hm.reports.figures",
          "measure/test_bounds.py::test_tight_maxima_of_the_figure_and_its_neighbours"),
    _item("Proposition V.1", "hm.power_diagram", "heads/diagram/test_power_diagram.py::test_reference_counts"),
    _item("Theorem V.2", "hm.bounds.max_joint_cells hm.bounds.expected_joint_cells",
          "measure/test_bounds.py::test_no_integer_heads_exceed_the_maximum "
          "tropical/test_minkowski.py::test_zonotopes_refute_the_published_exponent"),
    _item("Example V.3", "hm.bounds.compare_budgets", "measure/test_bounds.py::test_example_v3_has_the_right_power"),
    _item("Corollary V.4", "hm.bounds.key_exponent",
          "measure/test_bounds.py::test_exponents_are_the_growth_of_the_maxima"),
    _item("Theorem V.5", "hm.bounds.cells_upper",
          "measure/test_bounds.py::test_lower_bounds_stay_below_upper_bounds"),
    _item("Remark V.6", "hm.bounds.as_published.naive_cells"),
    _item("Theorem V.7", "hm.grid_transformer hm.bounds.cells_lower hm.bounds.grid_cells",
          "constructions/test_grid.py::test_cells_and_regions_are_exactly_the_promised_number"),
    _item("Remark V.8", "hm.grid_transformer",
          "constructions/test_grid.py::test_every_cell_of_the_line_is_mapped_onto_the_unit_interval"),
    _item("Corollary V.9",
          "hm.bounds.key_exponent hm.bounds.growth_per_block hm.constructions.causal_digit_transformer",
          "measure/test_bounds.py::test_exponents_are_the_growth_of_the_maxima "
          "constructions/test_sawtooth.py::test_a_causal_mask_leaves_one_cell_for_every_string_of_digits"),
    _item("Theorem VI.1", "hm.stability.bounds hm.stability.certify",
          "measure/test_stability.py::test_two_keys_refute_the_printed_hessian_bound_exactly"),
    _item("Example VI.2", "hm.stability.standard_temperature",
          "measure/test_stability.py::test_example_vi2_at_the_true_temperature_is_vacuous"),
    _item("Remark VI.3", "hm.stability.transition_width hm.stability.network",
          "measure/test_soft_networks.py::test_the_wall_of_a_second_layer_moves_as_the_certificate_allows"),
    _item("Figure 5", "hm.reports.figures", "measure/test_stability.py::test_temperature_is_a_zoom"),
    _item("Figure 6", "hm.bounds.expected_joint_cells hm.bounds.expected_block_cells hm.sample_cells",
          "measure/test_expectations.py::test_reference_values"),
    _item("Table I", "hm.Head", _LEDGER, "notation only; its slip on shapes is judged with Appendix D"),
    _item("Table II", "hm.TropicalPolynomial",
          "tropical/test_newton_polytope.py::test_the_newton_polytope_of_a_sum_is_the_hull_of_the_union"),
    _item("Figure 7", "hm.reports.figures",
          "papers/test_figures.py::test_the_refinement_of_figure_7_is_what_pairs_of_labels_on_a_grid_show"),
    _item("Assumption E.1", "hm.bounds.key_exponent",
          "measure/test_bounds.py::test_exponents_are_the_growth_of_the_maxima"),
    _item("Lemma F.1", "hm.grid_transformer",
          "constructions/test_grid.py::test_cells_and_regions_are_exactly_the_promised_number"),
    _item("Lemma F.2", "hm.grid_transformer",
          "constructions/test_grid.py::test_even_folds_are_continuous_and_odd_ones_jump_between_keys_only"),
)  # fmt: skip


def entries_of(item: Item, ledger: tuple[Claim, ...]) -> list[Claim]:
    """The entries that name the item in ``where`` or carry its number."""
    wanted = re.compile(rf"(?<![\w.]){re.escape(item.number)}(?![\w.])")
    plural = f"{item.kind}s" if item.kind != "Corollary" else "Corollaries"
    found = []
    for claim in ledger:
        names_it = item.kind in claim.where or plural in claim.where
        own = claim.name == item.name or (claim.name.startswith(f"{item.name}") and item.kind == "Figure")
        if own or (names_it and wanted.search(claim.where)):
            found.append(claim)
    return found


def as_markdown(ledger: tuple[Claim, ...]) -> str:
    """The coverage page: one row an item."""
    lines = [
        "# What stands for each numbered item of the papers",
        "",
        "Written by `hardmax claims --coverage`. Entries are in [claims.md](claims.md); tests are under tests/. The "
        "second paper (arXiv 2603.03084) was seen as a summary only, without numbered items: its entries begin with M.",
        "",
        "| item | entries | functions | tests | missing |",
        "|---|---|---|---|---|",
    ]
    for item in ITEMS:
        names = ", ".join(claim.name for claim in entries_of(item, ledger))
        functions = ", ".join(f"`{name}`" for name in item.functions)
        tests = ", ".join(item.tests)
        lines.append(f"| {item.name} | {names} | {functions} | {tests} | {item.reason} |")
    summary = ", ".join(claim.name for claim in ledger if "summary" in claim.paper)
    lines += ["", f"From summaries only: {summary}."]
    return "\n".join(lines) + "\n"

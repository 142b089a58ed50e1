"""Which program computes the expected sums: by quadrature, items, and what the responses allow."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
from jaxtyping import Array

from irtcat.latent.adaptive import AdaptiveQuadrature, cells_with_lines
from irtcat.latent.e_step import PackedItems, ResponseRows, line_posteriors
from irtcat.latent.expected_sums import (
    ExpectedSums,
    adaptive_sums,
    chunks_of,
    grid_sums,
    line_sums,
    product_sums,
    two_tier_sums,
)
from irtcat.latent.grid import GridQuadrature, TwoTierQuadrature
from irtcat.latent.layout import LayoutPlan, LineQuadrature
from irtcat.latent.line import N_NODES
from irtcat.latent.population import PopulationDesign, populations_of
from irtcat.latent.product import ProductQuadrature, cells_by_factors, cells_of_row, is_separable
from irtcat.latent.quadrature_choice import Quadrature, n_nodes
from irtcat.models import steepest_slope

ARRAYS_PER_CONTRAST = 4
"""Arrays of rows x nodes x items per contrast in an adaptive E-step, roughly: its chunks of rows
are smaller by this factor, to bound memory."""


GUESSED_SD = {2: 0.8, 3: 0.55}
"""Later posterior SDs as a share of the first guesses, at least, by the number of categories (the
last: 3 or more)."""

E_STEPS: dict[Any, Any] = {
    GridQuadrature: grid_sums,
    ProductQuadrature: product_sums,
    TwoTierQuadrature: two_tier_sums,
    AdaptiveQuadrature: adaptive_sums,
}


class EStepProgram(NamedTuple):
    """The program of a quadrature's E-step, for some items and populations.

    Attributes:
        function: takes items, numbers of the populations, rows and ``rule``.
        rule: the quadrature as the program takes it.
        static: names and values of its static arguments.
        n_groups: number of groups.
        n_cells: numbers that it holds for each row, which limit the rows of a chunk.
        plan: makes the layouts of one ability.
    """

    function: Callable[..., ExpectedSums]
    rule: Any
    static: tuple[tuple[str, Any], ...] = ()
    n_groups: int = 1
    n_cells: int = 0
    plan: LayoutPlan | None = None

    def __call__(self, items: PackedItems, population: Any, rows: ResponseRows) -> ExpectedSums:
        """The E-step of these rows."""
        return self.function(items, population, rows, self.rule, **dict(self.static))

    def resolve(self, items: PackedItems, posteriors: Sequence[tuple[Any, ...]]) -> bool:
        """Let the grid of one ability have as many nodes as all rows and the items need.

        Returns:
            Whether it had fewer.
        """
        plan = self.plan
        if plan is None or (plan.n_nodes == N_NODES and not plan.is_new):
            return False
        share = GUESSED_SD[min(items.template.n_categories, 3)] if plan.is_new else 1.0
        narrowest = min(float(line_posteriors(*both)[1].min()) for both in posteriors)
        unit = 1.0 if self.rule is None else float(self.rule.sd)
        return plan.resolve(share * narrowest, steepest_slope(items.model) * unit)

    def layouts(
        self,
        groups: Sequence[np.ndarray],
        posteriors: Sequence[tuple[Any, ...]],
        slack: float = 0.0,
    ) -> list[tuple[Any, Any]]:
        """Layout and nodes of blocks of rows, for `ResponseRows`, of equal shapes.

        Args:
            groups: group of each row of each block, also of rows that only fill it up.
            posteriors: means and covariances of the rows, by which these are laid out, or their
                nodes are placed; empty where the quadrature needs none.
            slack: see `LayoutPlan.layout`.
        """
        if self.plan is not None:
            parts = [line_posteriors(*both) for both in posteriors]
            return [(layout, None) for layout in self.plan.layouts(parts, slack)]
        nodes: list[Any] = [None] * len(groups)
        if isinstance(self.rule, AdaptiveQuadrature):
            pairs = zip(groups, posteriors, strict=True)
            dtype = self.rule.points.dtype
            nodes = [tuple(filled(a, len(group), dtype) for a in both) for group, both in pairs]
        chunks = [chunks_of(group, self.n_groups, self.n_cells) for group in groups]
        return list(zip(chunks, nodes, strict=True))


def filled(array: Any, n_rows: int, dtype: np.dtype) -> np.ndarray:
    """An array of rows, with 0 after the last up to this number of rows."""
    rows = np.asarray(array, dtype)
    missing = n_rows - len(rows)
    return np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)]) if missing else rows


def e_step_program(
    rule: Quadrature | LineQuadrature,
    items: PackedItems,
    population: Array | np.ndarray,
    design: PopulationDesign,
    has_missing: bool,
) -> EStepProgram:
    """The program of the E-step.

    Args:
        rule: the quadrature.
        items: the items.
        population: numbers of the populations, groups x numbers.
        design: what of the population is estimated.
        has_missing: whether any response is missing.
    """
    if isinstance(rule, LineQuadrature):
        return EStepProgram(line_sums, rule.transform, plan=rule.plan)
    n_cells = n_nodes(rule)
    static: dict[str, Any] = {"design": design}
    if isinstance(rule, TwoTierQuadrature):
        n_cells *= len(rule.members)  # the posteriors of all specific abilities are held
    if isinstance(rule, ProductQuadrature):
        n_cells = cells_of_row(rule)
    if isinstance(rule, GridQuadrature | TwoTierQuadrature) and not has_missing:
        static["by_factors"] = _is_separable(rule, items, population, design)
        n_cells = cells_by_factors(rule) if static["by_factors"] else n_cells
    if isinstance(rule, AdaptiveQuadrature):
        # Curves of all items at the nodes of every subject.
        n_cells *= len(items.weights) * ARRAYS_PER_CONTRAST * (items.template.n_categories - 1)
    if isinstance(rule, AdaptiveQuadrature) and rule.lines is not None:
        n_cells = cells_with_lines(rule)
    return EStepProgram(E_STEPS[type(rule)], rule, tuple(static.items()), design.n_groups, n_cells)


def _is_separable(
    rule: GridQuadrature | TwoTierQuadrature,
    items: PackedItems,
    population: Array | np.ndarray,
    design: PopulationDesign,
) -> bool:
    """Whether complete responses to these items have posteriors by factors, in every group."""
    if isinstance(rule, GridQuadrature) and (rule.line is None or rule.nodes.shape[1] == 1):
        return False  # the nodes are not products of those of an axis
    if items.template.closed_form != "logistic":
        return False
    # In numpy, as every operation of JAX outside of a compiled function is compiled by itself.
    model: Any = jax.tree.map(np.asarray, items).model
    for mean, root in zip(*map(np.asarray, populations_of(population, design.dims)), strict=True):
        if isinstance(rule, TwoTierQuadrature):  # the specific abilities are standard Normal
            n = rule.n_general
            mean, root = np.zeros(n + 1), scipy.linalg.block_diag(root[:n, :n], 1.0)
        intercepts = model.intercept + model.slope @ mean
        if not is_separable(model.slope @ root, intercepts, np.asarray(items.weights), rule):
            return False
    return True

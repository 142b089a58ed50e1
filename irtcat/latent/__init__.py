"""The latent variable: quadratures, E-steps, posterior modes and populations.

One ability is integrated by `e_step` (a common grid, and nodes of each subject's own where
posteriors are narrower than its spacing); several by `grid_step`, `two_tier_step` or adaptive
quadrature (`adaptive_block`), as `choose_nodes` says. The package is internal.
"""

# ruff: noqa: F401
# Names besides those of `__all__` are for irtcat's other packages: they may change in any release.

from irtcat.latent.adaptive import (
    AdaptiveQuadrature,
    adaptive_block,
    adaptive_posterior,
    adaptive_quadrature,
    root_of,
)
from irtcat.latent.density import Density, density_of
from irtcat.latent.e_step import EStep, PackedItems, ResponseRows, fold_rows, line_posteriors
from irtcat.latent.e_step_program import EStepProgram, e_step_program, filled
from irtcat.latent.expected_sums import ExpectedSums, RowBlock, over_blocks
from irtcat.latent.grid import (
    GridQuadrature,
    count_general,
    grid_posterior,
    grid_step,
    group_items,
    row_chunks,
    two_tier_step,
)
from irtcat.latent.layout import LayoutPlan, LineQuadrature, cells_of, round_up, rows_on_device
from irtcat.latent.likelihood import LIMIT, grid_nodes, grid_points, item_curves, log_likelihoods
from irtcat.latent.line import (
    Layout,
    ScaleTransform,
    e_step,
    mixture_log_density,
    on_grid_scale,
    posterior_on_grid,
    row_priors,
    transformed_nodes,
)
from irtcat.latent.linear_predictors import (
    ItemParts,
    chain_of,
    chained,
    has_numpy_terms,
    item_parts,
    logistic_terms,
    one_answer,
    part_observed,
    part_terms,
    parts_of,
    predictor_bends,
    scores_of,
)
from irtcat.latent.modes import posterior_modes
from irtcat.latent.population import (
    CorrelationTerms,
    Moments,
    PopulationDesign,
    Populations,
    density_scores,
    population_distance,
    population_gradient,
    population_log_density,
    population_metric,
    population_numbers,
    population_step,
    populations_of,
    rescaled_populations,
)
from irtcat.latent.product import FINEST_PRODUCT, density_ratio, item_factors, line_factors
from irtcat.latent.quadrature_choice import (
    KINDS,
    Quadrature,
    as_rule,
    choose_nodes,
    has_lines,
    is_adaptive,
    n_nodes,
    narrowest_sd,
)
from irtcat.latent.score_covariance import (
    CanonicalSums,
    CanonicalTables,
    canonical_line_covariance,
    line_covariance,
)

__all__: list[str] = []

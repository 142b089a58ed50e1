"""Variational inference: a Normal guide for every subject and item, from responses to a `Fit`.

It maximises the bound

    ELBO = E_q[log P(x | theta, items)] - KL(q(theta) || p(theta)) - KL(q(items) || p(items)),

with q independent over subjects and items, Normal for an ability and multivariate Normal for an
item's (a or log a, b, logits). Expectations are computed by quadrature, not sampled; only the order
of the batches is random. See `irtcat.fitting.vi.ascent` and `fitting.vi.ascent`.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.checks import InputError, argument_error, check_choice
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.progress import FitProgress
from irtcat.fitting.em.start import Start
from irtcat.fitting.evaluation import Calibrated, finish, prepare
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import VI
from irtcat.fitting.specification import Specification
from irtcat.fitting.vi.ascent import Problem, batches_of, climb
from irtcat.fitting.vi.guide import (
    Chart,
    Guide,
    NormalPrior,
    item_factors,
    learned_log_prior,
    to_coordinates,
    to_params,
)
from irtcat.models import ItemModel, column_names, fitted_form, parameter_names, unpack
from irtcat.responses import Responses

VAGUE = {"a": (0.0, 10.0), "log a": (0.0, 2.0), "b": (0.0, 1000.0**0.5)}
"""Vague priors as (mean, SD); ability is N(0, 1)."""

PRIOR_CHOICES = ("hierarchical", "vague")

TOLERANCE = 0.05
"""Gain in the bound over a round that counts as zero."""

ROUNDING = {"float64": 1e-12, "float32": 3e-7}
BATCH_NOISE = 1e-5


def _names(template: ItemModel, chart: Chart) -> list[str]:
    """Names of the coordinates, in the order of the columns."""
    names = list(column_names(template))
    names[chart.slope] = "log a" if chart.positive else "a"
    names[chart.intercept] = "b"
    return names


def _priors(
    choice: Any, template: ItemModel, chart: Chart, dtype: np.dtype
) -> tuple[NormalPrior, tuple[int, ...], bool, dict[str, tuple[float, float]]]:
    """Resolve "hierarchical", "vague" or a mapping of coordinate -> (mean, SD).

    Returns:
        Priors by column, which of them are learned, whether that of the abilities is, and how the
        result states the others.
    """
    names = _names(template, chart)
    choice = "hierarchical" if choice is None else choice
    by_name: dict[str, Any] = {}
    if isinstance(choice, str):
        check_choice("priors", choice, PRIOR_CHOICES)
    elif isinstance(choice, Mapping):
        by_name = dict(choice)
    else:
        raise argument_error("priors", "'hierarchical', 'vague' or a mapping", choice)
    for name, pair in by_name.items():
        try:
            value = np.asarray(pair, float) if pair is not None else np.zeros(0)
        except (TypeError, ValueError):  # a family, or priors by item
            value = np.zeros(0)
        if name not in names:
            raise argument_error("priors", f"a mapping with keys among {', '.join(names)}", name)
        if value.shape != (2,) or not np.isfinite(value).all() or value[1] <= 0:
            raise argument_error(f"priors[{name!r}]", "(mean, SD) with SD above 0", pair)
    default = {name: row.prior for name, row in template.parameters.items() if row.prior}
    stated: dict[str, Any] = {**VAGUE, **default, **by_name}
    for name in names:
        stated.setdefault(name, (0.0, 2.0))
    pairs = np.array([stated[name] for name in names], float)
    hierarchical = choice == "hierarchical"
    learnable = (chart.slope, chart.intercept)
    learned = tuple(c for c in learnable if hierarchical and c not in chart.tied)
    table = NormalPrior(jnp.asarray(pairs[:, 0], dtype), jnp.asarray(pairs[:, 1], dtype))
    fixed = {name: stated[name] for c, name in enumerate(names) if c not in learned}
    return table, learned, hierarchical, fixed


def _start_guide(start: Start, chart: Chart, dtype: np.dtype) -> Guide:
    """Start at the first guesses, with SDs from the number of responses."""
    n_params = start.params.shape[1]
    log_sd = np.log(np.clip(2 / np.sqrt(np.maximum(start.item_n, 1)), 0.01, 0.5))
    factor = log_sd[:, None, None] * np.eye(n_params)
    coordinates = to_coordinates(chart, start.params)
    arrays = start.mean, np.log(np.maximum(start.sd, 1e-3)), coordinates, factor
    return Guide(*(jnp.asarray(array, dtype) for array in arrays))


@functools.partial(jit, static_argnames=("chart",))
def _moved_items(
    template: ItemModel, guide: Guide, transform: Array, *, chart: Chart
) -> tuple[Array, Array, Array]:
    """Rescaled parameters, their derivatives by the coordinates, and the coordinates' factor."""
    mean, factor = item_factors(guide, chart)

    def params(u: Any, item: ItemModel) -> Any:
        moved = unpack(item, to_params(chart, u)).rescale(*transform)
        return jnp.concatenate([jnp.ravel(getattr(moved, name)) for name in column_names(template)])

    return jax.vmap(params)(mean, template), jax.vmap(jax.jacfwd(params))(mean, template), factor


def _standardised(template: ItemModel, chart: Chart, guide: Guide) -> Calibrated:
    """Items and abilities on the scale where the pooled subjects have mean 0 and SD 1.

    The variance of the population is that of the posterior means plus the mean posterior variance:
    means alone are shrunken, which would make all slopes too small.
    """
    theta, sd = np.asarray(guide.theta, float), np.exp(np.asarray(guide.log_sd, float))
    centre = float(theta.mean())
    spread = float(np.sqrt(((theta - centre) ** 2 + sd**2).mean()))
    transform = np.asarray([centre, spread], guide.mean.dtype)
    moved_items = _moved_items(template, guide, transform, chart=chart)
    values, slopes, factor = (np.asarray(array, float) for array in moved_items)
    root = slopes @ factor
    return Calibrated(
        values, root @ root.transpose(0, 2, 1), (theta - centre) / spread, sd / spread
    )


def _hyper(guide: Guide, chart: Chart, learned: tuple[int, ...], names: list[str]) -> dict:
    """Learned means and SDs, as the bank records them (on the scale of the ascent)."""
    expectations = np.asarray(_learned(guide, chart=chart, learned=learned), float)
    rows = zip(["theta", *(names[c] for c in learned)], expectations, strict=True)
    return {name: [float(centre), float(expected) ** -0.5] for name, (centre, expected) in rows}


@functools.partial(jit, static_argnames=("chart", "learned"))
def _learned(guide: Guide, *, chart: Chart, learned: tuple[int, ...]) -> Float[Array, "groups two"]:
    """Expected mean and precision of the abilities and of the columns ``learned``."""
    mean, factor = item_factors(guide, chart)
    variance = (factor**2).sum(-1)
    groups = [(guide.theta, jnp.exp(2 * guide.log_sd))]
    groups += [(mean[:, c], variance[:, c]) for c in learned]
    return jnp.stack([jnp.stack(learned_log_prior(*group)[1:]) for group in groups])


def _check(cls: type[ItemModel]) -> None:
    """Reject models without a guide."""
    names = parameter_names(fitted_form(cls)[0])
    is_right_wrong = cls.has_categories and not cls.is_polytomous
    if not is_right_wrong or not {"slope", "intercept"} <= set(names):
        raise InputError(
            f'The `solver` argument "vi" is for right/wrong models in one dimension. '
            f'Got the model "{cls.key}". Use solver="em".'
        )


def fit_vi(responses: Responses, cls: type[ItemModel], specification: Specification[VI]) -> Fit:
    """Variational inference (see `irtcat.fit`)."""
    _check(cls)
    solver = specification.solver
    prepared = prepare(responses, cls, specification)
    x, template, start = prepared.rows, prepared.template, prepared.start
    with precision(prepared.precision) as dtype:
        chart = Chart.of(template, prepared.positive)
        prior, learned, theta_learned, stated = _priors(
            specification.priors, template, chart, dtype
        )
        share = float(start.item_n.sum()) / x.size
        problem = Problem(
            template=template,
            batches=batches_of(x, share, solver, dtype, start.params.shape[1]),
            prior=prior,
            chart=chart,
            learned=learned,
            theta_learned=theta_learned,
            has_missing=prepared.has_missing,
        )
        guide = _start_guide(start, chart, dtype)
        tolerance = TOLERANCE if solver.tolerance is None else solver.tolerance
        noise = ROUNDING[prepared.precision] if problem.n_batches == 1 else BATCH_NOISE
        noise *= float(start.item_n.sum())
        report = specification.progress
        if isinstance(report, FitProgress):  # its rates do not tell how many steps are left
            report = FitProgress(report.report, solver.steps)
        guide, elbo, ending = climb(problem, guide, solver, max(tolerance, noise), report)
        calibrated = _standardised(template, chart, guide)
        names = _names(template, chart)
        hyper = _hyper(guide, chart, learned, names) if theta_learned else {}
    choice = specification.priors if isinstance(specification.priors, str) else "hierarchical"
    return finish(
        prepared,
        calibrated,
        priors=stated,
        method="vi",
        standard_errors="guide",
        details={
            "elbo": elbo,
            "prior_kind": "stated" if isinstance(specification.priors, Mapping) else choice,
            "learned_priors": hyper,
        },
        log_posterior=elbo,
        ending=ending,
    )

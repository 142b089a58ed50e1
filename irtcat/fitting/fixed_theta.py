"""Items calibrated at a fixed theta: one regression per item.

A fixed theta needs no integration: the log-likelihood is a sum over items, ``sum_i log P(x_ij |
theta_i)``. It is collected once, as sums of the statistics at nodes: the distinct abilities where
they are few, otherwise a grid fine enough for exact interpolation of the curves (Lagrange, degree
7). The transpose of the interpolation spreads the responses over the nodes, and the M-step of EM
estimates the items.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.fitting.assembly import Estimates, Latent, fit_of
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.identification import with_ties
from irtcat.fitting.em.m_step import CompleteData, at_bounds
from irtcat.fitting.em.rows import FitData, read_data
from irtcat.fitting.em.setup import FitSetup, set_up
from irtcat.fitting.em.start import Start, further_start
from irtcat.fitting.item_regression import climb, collect, covariance_given_theta
from irtcat.fitting.problem.of_subjects import check_theta
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.models import STANDARD_FORM, ItemModel, field_columns, pack, unpack
from irtcat.responses import Responses


def _first_guess(
    data: FitData, setup: FitSetup, start: Start, theta: FloatArray, population: Latent
) -> FloatArray:
    """The guess on standardised scores, converted to the scale of theta."""
    template, prior, weights = setup.template, setup.prior, data.rows.weights
    centre, unit = population
    scores = start.mean - np.average(start.mean, weights=weights)
    if not setup.tied and weights @ (scores * (theta - centre)) < 0:
        unit = -unit  # lower is better on the scale of theta
    model = unpack(template, jnp.asarray(start.params))
    moved = np.array(pack(model.rescale(jnp.asarray(-centre / unit), jnp.asarray(1 / unit))), float)
    limits = (
        np.asarray(bound, float) for bound in (prior.constraints.lower, prior.constraints.upper)
    )
    moved = prior.with_held(template, np.clip(moved, *limits))
    moved = with_ties(moved, setup.tied, prior.constraints)
    return np.where(np.isnan(setup.fixed), moved, setup.fixed)


def _check(responses: Any, cls: type[ItemModel], specification: Specification[EM]) -> None:
    """Reject arguments that do not apply to a fixed theta."""
    if not isinstance(responses, Responses):
        raise argument_error("theta", "None for responses that are read in passes", "some")
    solver = specification.solver
    others = {
        "anchors": specification.anchors,
        "groups": specification.grouping,
        "checkpoint": solver.checkpoint,
        "devices": solver.devices,
    }
    for name, value in others.items():
        if value is not None:
            raise InputError(
                f"The `{name}` argument is not for a fixed theta. Got both. Leave out either "
                f"`{name}` or `theta`."
            )
    errors = specification.standard_errors
    if errors.endswith("sandwich"):
        raise argument_error("standard_errors", "auto, full, block or none with `theta`", errors)


def _with_unit_slopes(setup: FitSetup, cls: type[ItemModel]) -> FitSetup:
    """The set-up with slopes of 1 in the standard form: theta already has a unit."""
    fixed = setup.fixed.copy()
    if cls in STANDARD_FORM:
        fixed[:, list(field_columns(setup.template, ["slope"]))] = 1.0
    prior = setup.prior.without(~np.isnan(fixed))
    free = np.asarray(prior.constraints.free)
    tied = tuple(p for p in setup.tied if free[:, p].any())
    return replace(setup, fixed=fixed, prior=prior, tied=tied)


def fit_fixed_theta(responses: Any, cls: type[ItemModel], specification: Specification[EM]) -> Fit:
    """Calibrate items at a fixed theta (see `irtcat.fit`)."""
    _check(responses, cls, specification)
    values = check_theta(responses, specification.theta)
    used = values[responses.answered]
    population = Latent(float(used.mean()), float(used.std()))
    if not population.sd > 0:
        raise argument_error("theta", "different from one another", used[0])
    data = read_data(responses, cls, replace(specification, theta=values))
    # The sums are cheap, and float64 lets the steps converge exactly.
    data = replace(data, precision="float64")
    theta = np.unique(values)[data.rows.group]
    with precision(data.precision) as dtype:
        setup = set_up(data, 1, dtype)
        setup = _with_unit_slopes(setup, cls)
        start = further_start(setup.start, setup.template, specification)
        params = _first_guess(data, setup, start, theta, population)
        nodes, counts, totals = collect(setup.template, data.rows, theta, dtype)
        sums = CompleteData(
            template=setup.template,
            params=jnp.asarray(params, dtype),
            counts=counts,
            totals=totals,
            constraints=setup.prior.constraints,
            nodes=nodes,
        )
        sums, log_likelihood, ending = climb(sums, setup.tied, specification)
        covariance = covariance_given_theta(sums, setup.tied, specification.standard_errors)
    estimates = Estimates(
        blank=setup.blank,
        categories=data.categories,
        params=np.asarray(sums.params, float),
        covariance=Covariance(
            blocks=covariance, how="none" if covariance is None else "given abilities"
        ),
        start=start,
        prior=setup.prior,
        tied=setup.tied,
        at_bound=at_bounds(sums.params, setup.prior.constraints),
        ending=ending,
        log_likelihood=log_likelihood,
        log_posterior=float(ending.trace[-1]),
        n_subjects=data.rows.n_subjects,
        method="fixed theta",
    )
    return fit_of(responses, cls, estimates, precision=data.precision, latent=population)

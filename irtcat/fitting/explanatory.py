"""Explanatory item response models: what features of subjects and items say of them.

The ability of a subject and the parameters of an item are regressed on features (De Boeck & Wilson
2004: latent regression; the linear logistic test model with error). With features z of subjects
and w of items,

    theta_i ~ N(z_i' gamma, sigma^2),  d_j ~ N(w_j' delta, tau_d^2),  a_j ~ N(w_j' alpha, tau_a^2).

The likelihood is maximised in rounds. Each round fits the items by EM with these distributions as
the populations and the priors, then regresses on the features what the responses alone say: the
pseudo-data, whose Normal likelihood has the posterior's moments (subjects) or its mode and
curvature (items) once the Normal prior is divided out. A point that a round does not change is a
maximum of the marginal likelihood in gamma and sigma: both scores depend on posterior means and
variances only. For items it is the maximum of the likelihood after a Laplace approximation of the
integral over each item's parameters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, brief
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.directions import Begun
from irtcat.fitting.em.identification import Latent, run_covered
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.features.columns import FeatureRegression, with_centred_levels
from irtcat.fitting.rounds import EXPLAINED, Rounds, explained_columns
from irtcat.fitting.specification import Specification
from irtcat.models import ItemModel

HELD = (
    "The features explain all that the responses show of ability: the residual SD is held at a "
    "tenth of the SD of all subjects."
)


FIRST_ITERATIONS = 2
"""E-steps without features, from whose estimates the rounds begin."""


@dataclass(frozen=True)
class Explained:
    """The outcome of the rounds.

    Attributes:
        rounds: their end: problem, EM, and regressions on the scale of the iterations.
        prior: the priors of the items in the last one.
        n_parameters: number of coefficients and SDs of the regression of the abilities, and of the
            coefficients that replace the parameters of items without residuals.
    """

    rounds: Rounds
    prior: PriorTable
    n_parameters: int

    @property
    def latent(self) -> Latent:
        """The population of all subjects on the scale of the items, which it defines if free."""
        return Latent() if self.rounds.free_scale else Latent(self.rounds.mean, self.rounds.sd)

    @property
    def note(self) -> str:
        """A remark, or empty."""
        return HELD if self.rounds.is_held else ""

    def fields(self, specification: Specification[Any], sign: int, factor: float) -> dict[str, Any]:
        """The fields of `Fit` that say what features explain, on the bank's scale.

        Args:
            specification: the arguments of the fit.
            sign: -1 where the scale is reversed.
            factor: slope that becomes 1 (Rasch).
        """
        features, subject = self.rounds.features, self.rounds.subject
        fields: dict[str, Any] = {}
        if features.subject is not None and subject is not None:
            mean, log_sd = np.asarray(self.rounds.ended.point.population, float).T
            moments = self.rounds.mean, self.rounds.sd
            centre, unit = moments if self.rounds.free_scale else (0.0, 1.0)
            scale = sign * factor / unit
            fields["subject_regression"] = FeatureRegression(
                "ability", features.subject[0], subject, scale, -scale * centre
            )
            by_row = np.stack([sign * factor * mean, factor * np.exp(log_sd)])
            fields["subject_prior"] = by_row[:, features.codes]
        if features.item is not None:
            fields["facets"] = specification.facets
            design = features.item[0]
            fields["item_regressions"] = {
                name: FeatureRegression(
                    name, design, with_centred_levels(item, design), sign if name == "slope" else 1
                )
                for name, item in self.rounds.items.items()
            }
        return fields

    def with_uncertain_means(self, covariance: Covariance) -> Covariance:
        """The covariance of the items when the means of their priors are estimates too.

        Where m are these means and V is their covariance, the posterior modes have the derivative
        ``S P`` in m, with S their covariance for known means and P the priors' precision, so that
        ``S P V P S`` is added (Morris 1983, JASA 78, 47-55, of empirical Bayes estimates).
        """
        features = self.rounds.features
        if features.item is None or covariance.blocks is None:
            return covariance
        x = features.item[1]
        blocks, full = covariance.blocks, covariance.full
        precision = np.asarray(self.prior.constraints.prior_precision, float)
        n_items, n_params = precision.shape
        for name, column in self.rounds.explained.items():
            regression = self.rounds.items[name]
            weight = np.nan_to_num(covariance.blocks[:, :, column]) * precision[:, [column]]
            spread = weight[:, :, None] * weight[:, None, :]
            blocks = blocks + regression.variance(x)[:, None, None] * spread
            if covariance.full is not None and full is not None:
                at = np.arange(n_items) * n_params + column
                change = np.nan_to_num(covariance.full[:, at]) * precision[:, column]
                added = change @ regression.mean_covariance(x) @ change.T
                # Under a narrow prior the inverses are not quite symmetric.
                full = full + (added + added.T) / 2
        return covariance._replace(blocks=blocks, full=full)


def explain(setup: FitSetup, begun: Begun, free_scale: bool) -> Explained:
    """Fit with features, from a few iterations without them.

    Args:
        setup: what is fitted.
        begun: the problem without features, and its first state.
        free_scale: whether the scale is that of the subjects.

    Returns:
        The fit.
    """
    specification, prior, settings = setup.data.specification, setup.prior, begun.settings
    features, progress = specification.features, specification.progress
    assert features is not None
    first = settings._replace(max_iterations=min(FIRST_ITERATIONS, settings.max_iterations))
    problem, ended = run_covered(begun.problem, begun.state, first, progress, None)
    group = setup.data.rows.group
    rounds = Rounds(problem, ended, features, group, share=begun.share, free_scale=free_scale)
    rounds.run(settings, progress)
    description, no_items = dict(prior.description), np.zeros_like(prior.sparse)
    for name, regression in rounds.items.items():
        description[name] = f"regression on features, residual SD {regression.residual_sd:.3g}"
    if features.item is not None:
        prior = prior._replace(
            constraints=rounds.problem.constraints,
            sparse=no_items,
            aside=no_items,
            scaled=False,
            description=description,
        )
    n_parameters = 0
    if features.item is not None and not features.has_residual:
        informed = prior.informed.copy()
        x = np.insert(features.item[1], 0, 1.0, axis=1)
        for column in rounds.explained.values():
            n_parameters += int(np.linalg.matrix_rank(x[informed[:, column]]))
            informed[:, column] = False
        prior = prior._replace(informed=informed)
    if features.subject is not None and rounds.subject is not None:
        # The intercept and the residual SD define the scale where it is free.
        layout = rounds.subject.layout
        n_parameters += int(layout.fixed[layout.block].sum() + (~layout.fixed).sum())
        n_parameters += 0 if free_scale else 2
    return Explained(rounds, prior, n_parameters)


def check_explained(template: ItemModel, prior: PriorTable) -> None:
    """Reject models and priors that item features do not go with.

    Raises:
        InputError: for a model without one intercept an item, or priors on what features explain.
    """
    if template.members or not set(explained_columns(template)) - {"slope"}:
        must = "left out with models that have several intercepts an item"
        advice = "Fit graded items by 'graded' or 'rsm'."
        raise argument_error("item_features", must, f"a {template.key} model", advice)
    stated = [name for name in EXPLAINED if name in prior.description]
    if stated:
        raise InputError(
            f"The `priors` argument must be without {stated[0]} where item_features explain it. "
            f"Got {brief(prior.description[stated[0]])}."
        )

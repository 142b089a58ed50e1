"""Fit: a calibrated bank, the subjects' abilities, and the outcome of the estimation."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error
from irtcat._common.notebook import COLUMNS, ROWS, card
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.bank._table import BankSummary
from irtcat.features import check_features
from irtcat.fitting.features.columns import FeatureRegression, predicted_bank
from irtcat.fitting.problem.of_subjects import Grouping
from irtcat.latent import Populations
from irtcat.scoring import Ability, score

FIGURES = (
    *("n_parameters", "log_likelihood", "log_posterior", "aic", "bic", "converged"),
    *("n_iterations", "message", "notes", "latent_mean", "latent_sd", "priors", "n_sparse"),
    "precision",
)
"""Attributes of a fit that are among the figures of `Fit.to_dict`, in their order there."""


def _left_out(argument: str, must: str, name: str) -> InputError:
    """The error for what only fits with an argument of this name have."""
    return argument_error(
        argument, f"{must} {name}", "a fit without", f"Pass {name} to irtcat.fit."
    )


@dataclass(frozen=True)
class FitSummary:
    """The outcome of a fit, for people; ``print`` it.

    Attributes:
        data: what was fitted, in one line.
        figures: see `Fit.to_dict`.
        bank: the summary of the calibrated items.
    """

    data: str
    figures: dict[str, Any]
    bank: BankSummary

    def to_frame(self) -> pd.DataFrame:
        """The figures as a table of one row."""
        return pd.DataFrame([self.figures])

    def __str__(self) -> str:
        n = self.figures
        quality = f"log-likelihood {n['log_likelihood']:.2f}, {n['n_parameters']} parameters"
        criteria = f"AIC {n['aic']:.1f}, BIC {n['bic']:.1f}"
        return f"{self.data}\n{n['message']}\n{quality}, {criteria}\n{self.bank}"

    def _repr_html_(self) -> str:
        """The lines of the text."""
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `irtcat.fit`.

    Attributes:
        bank: the calibrated items.
        responses: the calibration data (`Responses` or `irtcat.io.ResponseSource`).
        log_likelihood: marginal log-likelihood of the responses, without priors (conditional on
            theta where it was fixed).
        log_posterior: the same plus the log-density of the priors (what was maximised).
        converged: whether the last step was within the tolerance.
        n_iterations: number of E-steps (from the chosen start, where several were compared).
        n_parameters: number of parameters that some response informs. Parameters of unused
            categories, of constant items and of items without responses do not count.
        message: the outcome in one sentence, followed by the notes.
        latent_mean: latent mean that fits best with the items as estimated (should be 0).
        latent_sd: latent SD that fits best with the items as estimated: 1 within .002 if quadrature
            and convergence are good. Both are NaN where most items have a prior on slope or
            intercept, since the scale then depends on the priors, and where theta was fixed.
        priors: parameter -> prior as stated, (mean, SD) for a Normal; a text where items differ.
            "unused categories" states how categories that nobody used are held, if there are any.
        n_sparse: number of items that were estimated under the weak priors (see their flags).
        precision: "float64" or "float32".
        trace: log-posterior at each iteration (of the items that are not set aside, see
            `irtcat.fit`); it falls only by rounding. With method "vi" the bound (ELBO), also in
            ``bank.provenance["elbo"]``.
        groups: one row per group of subjects (one for all where items are anchored): n, mean, sd
            on the bank's scale, se_mean, se_sd (NaN where not estimated); None where the only
            population is the bank's.
        grouping: the group of each subject.
        notes: further remarks, one sentence each: parameters at their bounds, unused categories,
            blocks of items without common subjects, results of further starts.
        populations: mean and root of the covariance of the abilities in each group, where there are
            several abilities; otherwise None.
        density: the latent density, where it was estimated: nodes theta and their probabilities,
            of mean 0 and SD 1, as of the bank's population.
        subject_regression: what subject features say of ability; None without any.
        subject_prior: mean and SD of each subject's ability given its features (two x subjects).
        item_regressions: what item features say of "intercept" ("location" of rating scale
            items) and "slope"; empty without any.
        versions: the versions of items that are not the same in all groups, if any.
        subject_weights: the survey weight of each subject, as given; None without any.
        integration_error: of several abilities, the log-likelihood by twice as many nodes less
            ``log_likelihood``; NaN where it was not computed, and with one ability.
    """

    bank: ItemBank
    responses: Any
    log_likelihood: float
    log_posterior: float
    converged: bool
    n_iterations: int
    n_parameters: int
    message: str
    latent_mean: float
    latent_sd: float
    priors: Mapping[str, Any]
    n_sparse: int
    precision: str
    trace: FloatArray
    groups: pd.DataFrame | None = None
    grouping: Grouping | None = None
    notes: tuple[str, ...] = ()
    populations: Populations | None = None
    versions: Any = None
    density: pd.DataFrame | None = None
    subject_regression: FeatureRegression | None = None
    subject_prior: FloatArray | None = None
    item_regressions: Mapping[str, FeatureRegression] = field(default_factory=dict)
    facets: tuple[str, ...] = ()
    subject_weights: FloatArray | None = None
    integration_error: float = np.nan

    def severities(self) -> pd.DataFrame:
        """How severe each level of each facet is, such as each judge (many-facet Rasch model).

        Returns:
            Indexed by facet and level: severity c, in logits (responses are the lower, the greater
            it is; the sum over the levels of a facet is 0), its standard error se, and n, the
            number of responses.

        Raises:
            InputError: after a fit without facets.

        Example:
            >>> from irtcat import Responses, fit
            >>> rng = np.random.default_rng(0)
            >>> rows = []
            >>> for subject, theta in enumerate(rng.normal(size=200)):
            ...     for item in range(8):
            ...         judge = int(rng.integers(2))
            ...         logit = theta - (item - 3.5) / 4 - (0.5 if judge else -0.5)
            ...         right = int(rng.random() < 1 / (1 + np.exp(-logit)))
            ...         rows.append((subject, item, f"judge{judge}", right))
            >>> table = pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])
            >>> r = Responses.from_long(table, facets=["judge"])
            >>> f = fit(r, "rasch", facets=["judge"])
            >>> f.severities()[["severity", "se"]].round(2).values.tolist()
            [[-0.49, 0.06], [0.49, 0.06]]

        References:
            Linacre (1989), Many-Facet Rasch Measurement; De Boeck & Wilson (2004), Explanatory Item
            Response Models, ch. 2 (as a linear logistic test model).
        """
        if not self.facets:
            raise _left_out("facets", "those of a fit with", "facets")
        regression = next(iter(self.item_regressions.values()))  # of the intercept or location
        frame = regression.to_frame()
        observed = (~np.isnan(self.responses.to_numpy())).sum(axis=0)
        rows = {}
        for facet in self.facets:
            counts = pd.Series(observed).groupby(self.responses.items[facet].astype(str).to_numpy())
            n = counts.sum()
            for level in regression.design.levels[facet]:
                estimate = frame.loc[f"{facet}={level}"]
                rows[facet, level] = {
                    "severity": -estimate["estimate"],
                    "se": estimate["se"],
                    "n": int(n[level]),
                }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["facet", "level"])

    def predict_subjects(self, features: Any) -> pd.DataFrame:
        """Ability of subjects by their features alone, as a prior of `irtcat.score`.

        The mean is ``z' gamma``, the variance that of the residual plus that of the coefficients. A
        category that the fit did not see has the mean of the categories and their variance; a
        missing number counts as the mean of the column.

        Args:
            features: a table with the columns of ``subject_features``, indexed by subject id.

        Returns:
            Indexed by subject id: mean and sd, on the bank's scale.

        Raises:
            InputError: after a fit without subject features, or for other columns.

        Example:
            >>> from irtcat import Responses, fit
            >>> rng = np.random.default_rng(0)
            >>> size = pd.Series(rng.normal(size=300), [f"s{i}" for i in range(300)], name="size")
            >>> right = size.to_numpy()[:, None] + rng.normal(size=(300, 8)) > 0
            >>> r = Responses.from_array(right.astype(int), subject_ids=size.index)
            >>> f = fit(r, "rasch", subject_features=size.to_frame())
            >>> new = pd.DataFrame({"size": [-1.0, 1.0]}, index=["small", "large"])
            >>> f.predict_subjects(new)["mean"].round(1).tolist()
            [-1.8, 1.9]

        References:
            De Boeck & Wilson (2004), Explanatory Item Response Models, ch. 2.
        """
        if self.subject_regression is None:
            raise _left_out("features", "of a fit with", "subject_features")
        table = check_features(features, "features", "subject")
        mean, variance = self.subject_regression.predict(table)
        return pd.DataFrame({"mean": mean, "sd": np.sqrt(variance)}, index=table.index)

    def predict_items(self, features: Any, categories: Any = None) -> ItemBank:
        """Items that nobody has answered, by their features.

        Parameters are their means ``w' delta``; the covariance is that of the residual plus that
        of the coefficients. What features do not explain has its prior's mean and SD, and what all
        items share is shared. The items are marked as predicted: scoring, selection and adaptive
        tests then use their expected curves, which are flatter (see `ItemBank.expected_curves`).

        Args:
            features: a table with the columns of ``item_features``, indexed by item id.
            categories: number of categories of the new items, or a series of them by item id; by
                default that of the calibrated items, if all have the same.

        Returns:
            The bank of these items, on the scale of ``bank``.

        Raises:
            InputError: after a fit without item features, for other columns, or for numbers of
                categories that no calibrated item has.

        Example:
            >>> from irtcat import Responses, fit
            >>> rng = np.random.default_rng(0)
            >>> steps = np.arange(40) % 5
            >>> eta = rng.normal(size=(400, 1)) + 1 - 0.7 * steps + rng.normal(size=40) / 3
            >>> right = (rng.random((400, 40)) < 1 / (1 + np.exp(-eta))).astype(int)
            >>> r = Responses.from_array(right)
            >>> table = pd.DataFrame({"steps": steps}, index=r.item_ids)
            >>> f = fit(r, "rasch", item_features=table)
            >>> new = f.predict_items(pd.DataFrame({"steps": [0, 4]}, index=["easy", "hard"]))
            >>> new.to_frame()[["b", "se_b"]].round(1).values.tolist()
            [[-1.1, 0.4], [1.8, 0.4]]

        References:
            De Boeck (2008), Psychometrika 73, 533-559 (random item effects).
        """
        if not self.item_regressions:
            raise _left_out("features", "of a fit with", "item_features")
        table = check_features(features, "features", "item")
        return predicted_bank(self.bank, self.item_regressions, self.priors, table, categories)

    def bank_of(self, group: Any) -> ItemBank:
        """The items of a group and its population, after a fit with groups.

        Args:
            group: label of the group.

        Returns:
            The bank with the original item ids, and the group's population.

        Raises:
            InputError: without groups, or for an unknown group.

        Example:
            >>> from irtcat import Responses, fit
            >>> rng = np.random.default_rng(0)
            >>> x = (rng.normal(size=(60, 1)) > rng.normal(size=(60, 4))).astype(int)
            >>> r = Responses.from_array(x)
            >>> f = fit(r, "rasch", groups=["a", "b"] * 30, invariance={"i4": "none"})
            >>> f.bank.n_items, f.bank_of("b").item_ids.tolist()
            (5, ['i1', 'i2', 'i3', 'i4'])
        """
        if self.grouping is None or self.groups is None:
            raise argument_error("group", "of a fit with groups", group)
        return self.bank.of_group(group)

    @cached_property
    def abilities(self) -> Ability:
        """EAP abilities of the calibration subjects with 95 % intervals.

        With groups, each subject's prior is the population of its group; with subject features it
        is what these say of the subject; with an estimated density it is that density.
        """
        known: dict[str, Any] = {}
        if self.grouping is not None:
            labels = np.array(self.grouping.labels, dtype=object)[self.grouping.codes]
            known = {"groups": list(labels)}
        elif self.subject_prior is not None:
            known = {"prior": tuple(self.subject_prior)}
        return score(self.bank, self.responses, precision=self.precision, **known)

    @property
    def n_subjects(self) -> int:
        """Subjects with at least one response."""
        return int(self.bank.provenance["n_subjects"])

    @property
    def aic(self) -> float:
        """Akaike's criterion: -2 log L + 2 p."""
        return -2 * self.log_likelihood + 2 * self.n_parameters

    @property
    def bic(self) -> float:
        """Schwarz's criterion: -2 log L + p log n, n the number of subjects."""
        return -2 * self.log_likelihood + self.n_parameters * float(np.log(self.n_subjects))

    def to_dict(self) -> dict[str, Any]:
        """The figures of the fit, ready for JSON."""
        return {
            "model": self.bank.provenance.get("model"),
            "n_subjects": self.n_subjects,
            "n_items": self.bank.n_items,
            **{name: getattr(self, name) for name in FIGURES},
            "notes": list(self.notes),
            "priors": {
                name: prior if isinstance(prior, str) else list(prior)
                for name, prior in self.priors.items()
            },
        }

    def summary(self) -> FitSummary:
        """The data, convergence, fit and parameters; print the result."""
        data = self.responses
        described = getattr(data, "summary", None)
        text = repr(data) if described is None else str(described()).split("\n", 1)[0]
        return FitSummary(data=text, figures=self.to_dict(), bank=self.bank.summary())

    def _repr_html_(self) -> str:
        """The outcome, a histogram of the difficulties and the first items."""
        frame = self.bank.to_frame()
        head = frame.iloc[:ROWS, :COLUMNS]
        return card(repr(self), head, frame.shape, frame.get("b", ()), "difficulty")

    def plot(self, kind: str = "information_curve", **options: Any) -> Any:
        """Draw the calibrated items (see `ItemBank.plot`)."""
        return self.bank.plot(kind, **options)

    def to_frame(self) -> pd.DataFrame:
        """The figures of the fit as a table of one row."""
        return pd.DataFrame([self.to_dict()])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT CONVERGED"
        return (
            f"Fit({self.bank.model.name}, {self.n_subjects} subjects x {self.bank.n_items} items, "
            f"log-likelihood {self.log_likelihood:.2f}, {state} in {self.n_iterations} iterations)"
        )

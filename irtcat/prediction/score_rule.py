"""What the estimator "auto" has learnt about some items: full scores from the answers to them.

`irtcat.prediction.auto` learns it from the calibrated subjects, and `irtcat.predict` and
`irtcat.ShortForm` apply it. It needs nothing of these subjects but the figures kept here, and
neither JAX nor a fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from irtcat._common.types import BoolArray, FloatArray
from irtcat.prediction.equating import GRID, Equating, Kind
from irtcat.prediction.factor_scores import FactorScores
from irtcat.prediction.intervals import mixture_interval
from irtcat.prediction.out_of_range import ALONE, Estimates, Evidence, Priors, Range, shared_priors
from irtcat.prediction.result import BEST, EXPECTED, OTHER_ANSWERS, WEAKEST, Estimate
from irtcat.selection.expectation import EXPECTATIONS, ScoreSummary, expectation_of

ENDS = ("stronger", "weaker")
"""The expectations of subjects beyond either end of the calibrated range."""

FEW_MISSING = 0.1
"""Up to this share of missing answers a subject is estimated together with the complete ones: its
missing answers are replaced by their expectations, which is cheaper than a fit for its items."""

DOUBT = 0.1
"""Probability that an expectation is wrong, before the answers. It widens intervals where answers
contradict it; scores are those of the expectation. Without it the intervals of "similar" for later
models covered .93, .71 in the worst cell, those of "stronger" for other families .91 and .81
(`experiments/subset_selection/wrong_expectations.py`)."""

WIDER = 0.5
"""The SD out of range is wider by this share where "similar" is certain to be wrong: curves of
items that suit the calibrated subjects fit others less well."""

EXTREME = 0.05
"""Share of the calibrated subjects that are among the best, and among the weakest."""


def kinds_of(scores: ScoreSummary, names: Sequence[str] = ENDS) -> list[Kind]:
    """What is expected of subjects who are stronger, or weaker.

    Args:
        scores: summary of the calibrated subjects' scores.
        names: expectations.
    """
    kinds = []
    for name in names:
        row = EXPECTATIONS[name]
        kinds.append(Kind(row.prior(scores, GRID), row.error_ratio, row.slopes_hold))
    return kinds


def doubted(scores: ScoreSummary, kind: Kind) -> Kind:
    """The same with subjects like the calibrated ones mixed in, in case it is wrong."""
    similar = EXPECTATIONS["similar"].prior(scores, GRID)
    return kind._replace(prior=(1 - DOUBT) * kind.prior + DOUBT * similar)


class Mixture(NamedTuple):
    """Distributions of full scores: in range with the probability 1 - q, else out of range.

    Attributes:
        blend: mean in range.
        blend_sd: SD in range.
        outside: mean out of range.
        outside_sd: SD out of range.
        reason: how each subject is unlike the calibrated ones, if it is out of range (a code of
            `irtcat.prediction.result`).
        is_empty: subjects without any answer.
        evidence: what the answers say of the range.
        priors: prior probabilities of being out of range.
        doubt: where all are expected to be in range, the probability that this is wrong of each
            one. Their scores are in range, whatever the answers say.
    """

    blend: FloatArray
    blend_sd: FloatArray | float
    outside: FloatArray
    outside_sd: FloatArray
    reason: np.ndarray
    is_empty: BoolArray
    evidence: Evidence
    priors: Priors = ALONE
    doubt: FloatArray | None = None

    @property
    def q(self) -> FloatArray:
        """Probability of being out of range; 0 without any answer."""
        q = self.evidence.probability(self.priors) if self.doubt is None else self.doubt
        return np.where(self.is_empty, 0.0, q)

    @property
    def score_share(self) -> FloatArray:
        """Weight of the estimate out of range in the score: q, but 0 with an expectation."""
        return self.q if self.doubt is None else np.zeros(len(self.blend))

    def estimate(self, level: float) -> Estimate:
        """Mean and equal-tailed interval of each subject; NaN without any answer."""
        share = self.score_share
        score = (1 - share) * self.blend + share * self.outside
        lower, upper = mixture_interval(
            self.blend, self.blend_sd, self.outside, self.outside_sd, self.q, level
        )
        for values in (score, lower, upper):
            values[self.is_empty] = np.nan
        return self.with_scores(score, lower, upper)

    def with_scores(self, score: FloatArray, lower: FloatArray, upper: FloatArray) -> Estimate:
        """The estimate with these scores and intervals; a mean may be beyond the quantiles."""
        is_unlike = ~self.is_empty & (self.evidence.probability(self.priors) > 0.5)
        is_equated = is_unlike & (self.doubt is None)
        return Estimate(
            score=score,
            lower=np.minimum(lower, score),
            upper=np.maximum(upper, score),
            unlike=np.where(is_unlike, self.reason, "").astype(object),
            how=np.where(is_equated, "equating", "regression").astype(object),
        )


def with_shared_priors(mixtures: Sequence[Mixture]) -> tuple[list[Mixture], Priors | None]:
    """Those with the priors of being out of range estimated from the subjects of all of them.

    Returns:
        The mixtures, and the priors; the same mixtures and None for a single subject, and where no
        subject can be out of range.
    """
    parts = [
        Evidence._make(column[~one.is_empty] for column in one.evidence)
        for one in mixtures
        if one.doubt is None
    ]
    if sum(map(len, (part.like for part in parts))) < 2:
        return list(mixtures), None
    priors = shared_priors(Evidence(*map(np.concatenate, zip(*parts, strict=True))))
    return [one._replace(priors=priors) for one in mixtures], priors


@dataclass(frozen=True, eq=False)
class Blend:
    """What the cross-validation says of subjects in range.

    Attributes:
        intercept: of the regression R of the full score on the answers.
        slopes: of each item.
        weight: weight w of the regression in the blend.
        range: distribution of the calibrated subjects' estimates.
        errors: by level, the quantiles of the absolute errors of the calibrated subjects, where
            nothing is expected of new ones, and where they are expected to be similar.
        factor_weight: weight of the factor model in the blend, beside regression and equating.
        sd_scale: SD of an error in SDs of the score by the factor model, by replays, which replaces
            the quantiles of the errors; None without replays.
    """

    intercept: float
    slopes: FloatArray
    weight: float
    range: Range
    errors: dict[float, tuple[float, float]]
    factor_weight: float = 0.0
    sd_scale: float | None = None


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """Full scores from the answers to some items (see `irtcat.prediction.auto`).

    Attributes:
        equating: equating by these items.
        scores: summary of the calibrated subjects' full scores.
        median: median full score of the calibrated subjects.
        blend: for subjects who are not expected to be stronger or weaker; None if not learnt.
        factors: scores by the factor model, where it has a weight or its SDs are used.
    """

    equating: Equating
    scores: ScoreSummary
    median: float
    blend: Blend | None = None
    factors: FactorScores | None = None

    def estimate(
        self, x: FloatArray, expect: str | None, level: float, pooled: bool = False
    ) -> Estimate:
        """Estimates from answers, subjects x items; NaN where missing.

        With ``pooled`` the priors of being out of range are estimated from all of them.
        """
        expectation = expectation_of(expect)
        if expect is not None and expectation is not None and expectation.direction:
            return self._placed(x, expect, level)
        mixtures, priors = [self.mixture(x, expect, level)], None
        if pooled:
            mixtures, priors = with_shared_priors(mixtures)
        return mixtures[0].estimate(level)._replace(shared_priors=priors)

    def _placed(self, x: FloatArray, expect: str, level: float) -> Estimate:
        """For subjects who are expected to be stronger, or weaker: the posterior."""
        (kind,) = kinds_of(self.scores, [expect])
        kinds = [kind, doubted(self.scores, kind)]
        certain, in_doubt = self.equating.posterior(self.equating.means(x), kinds, level)
        score, (lower, upper) = certain[0], in_doubt[2:4]
        is_stronger = EXPECTATIONS[expect].direction > 0
        contradicts = upper < self.median if is_stronger else lower > self.median
        return Estimate(
            score=score,
            lower=np.minimum(lower, score),
            upper=np.maximum(upper, score),
            flag=np.where(contradicts, EXPECTED[expect], "").astype(object),
            how=np.full(len(score), "equating", dtype=object),
        )

    def mixture(self, x: FloatArray, expect: str | None, level: float) -> Mixture:
        """The distributions in range and out of range, for subjects who may be either.

        Args:
            x: answers, subjects x items; NaN where missing.
            expect: None, or "similar".
            level: probability of the interval, one of those of the errors.
        """
        blend = self.blend
        assert blend is not None
        means = self.equating.means(x)
        equated = self.equating.scores(means)
        is_missing, answers = np.isnan(x), x
        if is_missing.any():  # they are replaced by their expectations
            answers = np.where(is_missing, self.equating.expected(equated), x)
        new = Estimates(blend.intercept + answers @ blend.slopes, equated)
        below = blend.range.below(new.regression)
        mean = blend.weight * new.regression + (1 - blend.weight) * equated
        if self.factors is not None:
            v = blend.factor_weight
            mean = (1 - v) * mean + v * self.factors(answers)
        names = ENDS if expect is None else (*ENDS, expect)
        ends = self.equating.posterior(means, kinds_of(self.scores, names), level)
        outside, outside_sd, *_, log_density = np.where(below > 0.5, ends[0], ends[1])
        evidence, doubt = Evidence.of(new, blend.range), None
        if expect is not None:
            # Few right answers are not unlike those of good calibrated subjects: the curves show
            # how likely they are out of range.
            by_curves = expit(logit(DOUBT) + log_density - ends[-1, -1])
            doubt = np.maximum(evidence.probability(Priors(DOUBT, DOUBT)), by_curves)
            outside_sd = outside_sd * (1 + WIDER * doubt)
        blend_sd: FloatArray | float
        if self.factors is not None and blend.sd_scale is not None:
            blend_sd = blend.sd_scale * self.factors.sds(answers)
        else:
            blend_sd = blend.errors[level][0 if expect is None else 1] / ndtri(0.5 + level / 2)
        return Mixture(
            blend=mean,
            blend_sd=blend_sd,
            outside=outside,
            outside_sd=np.maximum(outside_sd, blend_sd),
            reason=_reasons(new, below, blend.range),
            is_empty=np.asarray(is_missing.all(axis=1)),
            evidence=evidence,
            doubt=doubt,
        )


def _reasons(new: Estimates, below: FloatArray, calibrated: Range) -> np.ndarray:
    """Why subjects may be out of range."""
    is_best = (new.equated > calibrated.at[-1]) | (below > 1 - EXTREME)
    is_weakest = (new.equated < calibrated.at[0]) | (below < EXTREME)
    return np.select([is_best, is_weakest], [BEST, WEAKEST], OTHER_ANSWERS).astype(object)

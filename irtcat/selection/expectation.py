"""What is expected of new subjects: that they are like the calibrated ones, stronger, or weaker.

Few answers do not show whether a subject is out of the range of the calibrated ones. Who knows it
can say so: the choice of items and the estimator of the full score then suit such subjects.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from irtcat._common.checks import argument_error, shorten
from irtcat._common.types import FloatArray

END = 0.9
"""Quantile of the calibrated scores from which stronger subjects are expected: the very best of few
subjects varies much more from one set of subjects to another."""

SOFTNESS = 0.5
"""The prior rises from 0 to its full height around half an SD before that quantile, as a logistic
function of scale half an SD: a subject a little weaker than expected is not excluded. An edge half
an SD lower or higher changed the errors of stronger subjects by 6 % with 10 items and by 1 % with
100 (ten data sets, 30 draws)."""

LEAST_SD = 0.1
"""Least SD of the logits of the calibrated scores, which may all be equal."""

EDGE = 0.005
"""Keeps the logit of full scores of 0 and 1 finite."""


class ScoreSummary(NamedTuple):
    """What priors need to know of the full scores of calibrated subjects, as logits.

    Attributes:
        low: .1 quantile.
        mean: mean.
        high: .9 quantile.
        sd: SD, at least .1.
    """

    low: float
    mean: float
    high: float
    sd: float

    @staticmethod
    def of(scores: FloatArray) -> "ScoreSummary":
        """The summary of full scores from 0 to 1."""
        from scipy.special import logit  # slow to import: names alone need no scipy

        logits = logit(np.clip(scores, EDGE, 1 - EDGE))
        low, high = np.quantile(logits, [1 - END, END])
        sd = max(float(logits.std()), LEAST_SD)
        return ScoreSummary(float(low), float(logits.mean()), float(high), sd)


@dataclass(frozen=True)
class Expectation:
    """What is expected of new subjects: a row of `EXPECTATIONS`.

    Attributes:
        summary: what it says of new subjects, in one line.
        strategy: default strategy of `irtcat.select`.
        strategy_for_few: the same with fewer calibrated subjects than items to choose.
        direction: 1 for subjects stronger than the calibrated ones, -1 for weaker ones, 0 for
            subjects like them.
        error_ratio: SD of the errors of equating for such subjects, in sampling SDs.
        drawn: share of the items that an adaptive evaluation draws at random.
        slopes_hold: whether the slopes of the items are those among the calibrated subjects.
    """

    summary: str
    strategy: str
    strategy_for_few: str
    direction: int = 0
    error_ratio: float = 1.0
    drawn: float = 1.0
    slopes_hold: bool = True

    def strategy_for(self, n_items: int, n_subjects: int) -> str:
        """The default strategy, for a number of items and of calibrated subjects.

        From fewer subjects than items a free choice takes items that are best by chance.

        Example:
            >>> similar = EXPECTATIONS["similar"]
            >>> similar.strategy_for(30, 100), similar.strategy_for(100, 60)
            ('score-optimal', 'balanced')
        """
        return self.strategy if n_items <= n_subjects else self.strategy_for_few

    def prior(self, scores: ScoreSummary, t: FloatArray) -> FloatArray:
        """Probabilities of new subjects' full scores, given those of the calibrated ones.

        For stronger subjects the full score is uniform above the best tenth of the calibrated
        scores, with a soft edge: with t its logit, m and s the .9 quantile and the SD of the
        calibrated logits,

            p(t) proportional to  F((t - m + s / 2) / (s / 2)) f(t)

        with F the logistic function and f its density, ``F(t) (1 - F(t))``, which is that of a
        uniform score. For weaker ones the same is mirrored. Without a direction t is Normal with
        the mean and SD of the calibrated subjects.

        Args:
            scores: summary of the full scores of the calibrated subjects.
            t: logits of full scores, in increasing order and equally spaced.

        Returns:
            One probability per point; they sum to 1.

        Example:
            >>> t = np.linspace(-6, 6, 121)
            >>> scores = ScoreSummary.of(np.linspace(0.3, 0.6, 20))
            >>> prior = EXPECTATIONS["stronger"].prior(scores, t)
            >>> round(float(prior @ (1 / (1 + np.exp(-t)))), 2)
            0.75
        """
        from scipy.special import expit

        centre, sd = (scores.low, scores.mean, scores.high)[1 + self.direction], scores.sd
        if self.direction == 0:
            density = np.exp(-0.5 * ((t - centre) / sd) ** 2)
        else:
            beyond = self.direction * (t - centre)
            density = expit(beyond / (SOFTNESS * sd) + 1) * expit(t) * expit(-t)
        return density / density.sum()


EXPECTATIONS = {
    "similar": Expectation(
        "subjects like the calibrated ones, such as another of the same kind",
        strategy="score-optimal",
        strategy_for_few="balanced",
        drawn=0.0,
    ),
    "stronger": Expectation(
        "subjects as strong as the best calibrated ones or stronger, such as the next model",
        strategy="neyman",
        strategy_for_few="neyman",
        direction=1,
        error_ratio=1.05,
        drawn=0.5,
    ),
    "weaker": Expectation(
        "subjects as weak as the weakest or weaker, such as an early checkpoint",
        strategy="neyman",
        strategy_for_few="neyman",
        direction=-1,
        error_ratio=1.2,
        slopes_hold=False,
    ),
}
"""Expectations by name. The error ratios are those with which intervals had their coverage among
the weakest or strongest 30 % of nine data sets, with the other half calibrated (20 draws of items,
10 to 100 of them): weaker subjects guess, and err on easy items, in their own ways. In adaptive
sessions of 30 items on four data sets, drawing none of the items lowered errors among similar
subjects by 3 %; among stronger ones half of them gave less error than all (by 22 %) at the same
coverage, among weaker ones all gave 9 % more error, and a coverage of .94 instead of .87."""


def expectation_of(name: str | None) -> Expectation | None:
    """The row of an expectation; None without one.

    Raises:
        InputError: for an unknown name.
    """
    if name is None:
        return None
    if not isinstance(name, str) or name not in EXPECTATIONS:
        raise argument_error("expect", f"None or one of {', '.join(EXPECTATIONS)}", shorten(name))
    return EXPECTATIONS[name]

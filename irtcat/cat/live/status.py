"""Status of a session, which a store keeps beside its log, and its full score; without JAX."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_interval
from irtcat.prediction.betting import (
    ASYMPTOTIC,
    FINITE,
    Bets,
    betting_interval,
    normal_interval,
    score_of,
)
from irtcat.prediction.result import UNLIKE, Prediction, whose_scores

BANK = "bank"
"""Name of the estimator without calibration responses: the curves of the bank."""

GUARANTEED = "guaranteed"
"""Name of the estimator with the betting interval."""


@dataclass(frozen=True)
class FullScore:
    """The estimated score of one subject on the full benchmark.

    Attributes:
        score: the estimate, 0 to 1; NaN without an answer.
        lower: lower end of its interval.
        upper: upper end.
        level: probability of the interval.
        estimator: how it was estimated, such as "auto: regression"; "bank" for the bank's curves
            alone.
        rank: rank among the calibrated subjects and this one, 1 = best; None without them.
        rank_lower: best rank in the interval.
        rank_upper: worst rank in the interval.
        n_calibrated: number of calibrated subjects other than this one.
        notes: what to know of it.
        unlike: how the subject is unlike the calibrated ones (see `irtcat.prediction.Prediction`).
        estimand: whose score the interval is for: "run", "model" or "domain".
        ranks_of: whose scores the interval of the rank is for; "" without a rank.
        noise_source: how the noise of the runs is known (see `irtcat.prediction.Prediction`).
    """

    score: float
    lower: float
    upper: float
    level: float
    estimator: str
    rank: int | None = None
    rank_lower: int | None = None
    rank_upper: int | None = None
    n_calibrated: int = 0
    notes: tuple[str, ...] = ()
    unlike: str = ""
    estimand: str = "run"
    ranks_of: str = ""
    noise_source: str = ""

    @property
    def flags(self) -> list[str]:
        """`notes`, and how the subject is unlike the calibrated ones in words."""
        return [*self.notes, *([UNLIKE[self.unlike].flag] if self.unlike else [])]

    @property
    def flag(self) -> str:
        """`flags` in one text."""
        return "; ".join(self.flags)

    @property
    def question(self) -> str:
        """Whose score and rank these are, in a sentence; empty without a rank."""
        if not self.ranks_of:
            return ""
        return whose_scores(self.estimand, self.ranks_of, self.noise_source)

    def __str__(self) -> str:
        if not np.isfinite(self.score):
            return f"no score ({self.flag or 'no responses'})"
        interval = f"{self.level:.0%} interval {self.lower:.1%} to {self.upper:.1%}"
        source = "the bank's curves" if self.estimator == BANK else self.estimator
        return f"{self.score:.1%} ({interval}), by {source}"


def score_alone(
    bets: Bets | None,
    estimates: Mapping[str, Any],
    estimator: str,
    level: float,
    estimand: str | None = None,
) -> FullScore:
    """The score of a session without calibration responses.

    By the draws of `Config.guaranteed` where the estimator uses them, else by the bank's curves.

    Raises:
        InputError: for an unknown estimator, a level outside (0, 1), or another estimand than
            this run.
    """
    from irtcat.prediction import ESTIMATORS

    check_interval("level", level)
    check_choice("estimator", estimator, ESTIMATORS)
    if estimand not in (None, "run"):
        must = '"run" without responses of calibrated subjects'
        raise argument_error("estimand", must, estimand)
    if bets is not None and estimator in (GUARANTEED, "design-based"):
        return score_by_bets(bets, estimator, level)
    return score_by_bank(estimates["score"], estimates["score_sd"], level)


def score_by_bank(score: float, sd: float, level: float) -> FullScore:
    """The mean of the score under the bank's curves, with a Normal interval within 0 to 1."""
    half = NormalDist().inv_cdf(0.5 + level / 2) * sd
    return FullScore(score, max(0.0, score - half), min(1.0, score + half), level, BANK)


def score_by_bets(bets: Bets, estimator: str, level: float) -> FullScore:
    """The score of a session of `Config.guaranteed`, by "guaranteed" or "design-based"."""
    bets = Bets(*(np.asarray(leaf, float) for leaf in bets))
    is_finite = estimator == GUARANTEED
    score, ends = score_of(bets), (betting_interval if is_finite else normal_interval)(bets, level)
    lower, upper = float(np.fmin(ends[0], score)), float(np.fmax(ends[1], score))
    name = f"{estimator}: {FINITE if is_finite else ASYMPTOTIC}"
    return FullScore(float(score), lower, upper, level, name)


def score_by_prediction(prediction: Prediction) -> FullScore:
    """The only row of a `Prediction`; that items were not asked is no flag of an adaptive test."""
    ranks = {name: getattr(prediction, name)[0] for name in ("rank", "rank_lower", "rank_upper")}
    return FullScore(
        score=float(prediction.score[0]),
        lower=float(prediction.lower[0]),
        upper=float(prediction.upper[0]),
        level=prediction.level,
        estimator=str(prediction.methods[0]),
        n_calibrated=prediction.n_calibrated - int(prediction.known is not None),
        notes=tuple(prediction.remarks(0)),
        unlike=str(prediction.unlike[0]),
        estimand=prediction.estimand,
        ranks_of=prediction.ranks_of,
        noise_source=prediction.noise_source,
        **{name: int(rank) if np.isfinite(rank) else None for name, rank in ranks.items()},
    )


@dataclass(frozen=True, eq=False)
class SessionStatus:
    """What a session's log says about its subject.

    Attributes:
        id: the session's id.
        asked: ids of the items asked and not yet answered.
        reason: name of the stopping rule that ended the session; empty while it is running.
        estimates: the current estimates, as `Session.estimate` returns them.
        answers: the answers so far, as `Session.to_frame` returns them.
        flags: warnings, as `Session.flags` returns them.
        plan_text: the content plan as a sentence; empty where there are no targets.
        plan: its table, as `ContentPlan.to_frame` returns it; None where there are no targets.
    """

    id: str
    asked: list[str]
    reason: str
    estimates: dict[str, Any]
    answers: pd.DataFrame
    flags: list[str]
    plan_text: str = ""
    plan: pd.DataFrame | None = None

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return bool(self.reason)

    def full_score(self, level: float = 0.95) -> FullScore:
        """The score on the full benchmark (see `Session.full_score`).

        By the bank's curves; for `Config.guaranteed` by the draws, with the level of its rule.
        """
        if GUARANTEED in self.estimates:
            score, lower, upper, level = self.estimates[GUARANTEED]
            score = float("nan") if score is None else score
            return FullScore(score, lower, upper, level, f"{GUARANTEED}: {FINITE}")
        return score_by_bank(self.estimates["score"], self.estimates["score_sd"], level)

    def to_text(self) -> str:
        """The status as JSON; every number is read back exactly.

        Example:
            >>> answers = pd.DataFrame({"answer": [1]}, index=pd.Index(["i2"], name="item"))
            >>> status = SessionStatus("anna", ["i3"], "", {"theta": 0.1}, answers, [])
            >>> SessionStatus.from_text(status.to_text()).answers
                  answer
            item
            i2         1
        """
        document = {
            **vars(self),
            "answers": _columns(self.answers),
            "plan": None if self.plan is None else _columns(self.plan),
        }
        return json.dumps(document)

    @classmethod
    def from_text(cls, text: str) -> "SessionStatus":
        """A status from the output of `to_text`."""
        document = json.loads(text)
        plan = document.pop("plan")
        return cls(
            **{**document, "answers": _frame(document["answers"])},
            plan=None if plan is None else _frame(plan),
        )


def _columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns of a table, its index first."""
    return frame.reset_index().to_dict("list")  # type: ignore[return-value]


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table from its columns, with the first as its index of texts."""
    name, *others = columns
    index = pd.Index(columns[name], dtype=object, name=name)
    return pd.DataFrame({other: columns[other] for other in others}, index=index)

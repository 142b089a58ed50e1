"""Online selection of prompts for reinforcement learning with verifiable rewards."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
    is_number,
)
from irtcat._common.registry import documented
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat._files.formats import FileFormat
from irtcat.training.online.choice import (
    LEAST,
    UsefulnessTable,
    allocate,
    quick_scores,
    rested,
    sd_code,
    top,
)
from irtcat.training.online.inputs import (
    largest_remainder,
    read_features,
    read_items,
    read_quotas,
    read_topics,
)
from irtcat.training.online.moments import probability_moments, usefulness_moments
from irtcat.training.online.policy import ABILITY, GAIN, TREND, TREND_NOISE, TREND_SD, Past, Policy
from irtcat.training.online.prompts import (
    ITEM_DRIFTS,
    LEAST_SQUARES,
    RESIDUAL_SDS,
    Grid,
    Prompts,
    Spread,
    drift_evidence,
    residual_evidence,
    sums_of_groups,
)
from irtcat.training.online.rules import RULES
from irtcat.training.online.step import Linear, Locals, filter_batch, linearise

ABILITY_SD = 2.0
"""SD of the ability before any rollout, in logits."""

GAIN_SD, GAIN_NOISE = 0.1, 0.01
"""SD of what a step of training on a prompt adds to its own logit, and its drift in a step."""

SCALE_SD = 0.25
"""SD of the coefficient of known difficulties, whose mean is 1."""

FEATURE_SD, TOPIC_SD = 1.2, 1.0
"""SD of difficulties that features explain, all together, and of the means of topics."""

FEATURE_NOISE, TOPIC_NOISE = 0.5, 0.5
"""SD of their change in a step, relative to that of the ability."""

MOST_TOPICS = 64
"""With more topics than this, their means are not part of the state, whose size is squared."""

RESIDUAL_PRIOR = {False: (1.4, 0.7), True: (0.5, 0.7)}
"""Median and SD of the log of the residual SD, without and with known difficulties."""

DRIFT_PRIOR = (3e-4, 1.5)
"""Median and SD of the log of the drift of residuals."""

EVIDENCE_PROMPTS = 96
"""Prompts of a step by which residual SD and drift are estimated: the first ones of the batch, in
an order that does not depend on their data."""

RESIDUAL_CHANGE = 0.03
"""Relative change of the residual SD from which on beliefs are rescaled."""

POOL = 4
"""Candidates for each prompt to choose, by the quick score; among them the exact one decides."""

REFRESH = 16384
"""Prompts whose quick scores are brought up to date in a step: all, up to this many."""

REST_PASSES, LONGEST_REST = 0.3, 200.0
"""Default of ``rest``: in passes over all prompts, and the most in steps. In GRPO of a small policy
on sums (one run each) rests of .08, .3 and .8 passes ended at a reward of .47, .54 and .56 where a
uniform choice had .44."""

JUMP_SD = 1.0
"""SD of the ability's jump when a checkpoint of an unknown step is reloaded."""

BROKEN_PRIOR = 0.01
"""Share of prompts that are broken, a third for each reason."""

REASONS = ("never solved", "solved by weaker policies only", "does not follow ability")

Z95 = 1.959964


@dataclass(frozen=True)
class Outcomes:
    """What a step has brought, each prompt once.

    Attributes:
        rows: positions of the prompts.
        right: sum of the rewards, as shares of their range.
        trials: number of rollouts.
        within: sum of squares within the groups; None if only the sums are known.
        most: the same if all rewards had been the lowest or highest.
        version: step of the selector at which the prompts were chosen.
    """

    rows: IntArray
    right: FloatArray
    trials: FloatArray
    within: FloatArray | None
    most: FloatArray | None
    version: IntArray

    @property
    def has_gradient(self) -> BoolArray:
        """Whether the rewards of each prompt differ, as far as it is known."""
        if self.within is not None:
            return self.within > LEAST_SQUARES
        return (self.right > 0) & (self.right < self.trials)

    @property
    def strength(self) -> FloatArray:
        """4 times the variance of the rewards of each prompt: 1 if half are right."""
        share = self.right / self.trials
        if self.within is None:
            return 4 * share * (1 - share)
        return 4 * self.within / self.trials

    def used(self) -> "Outcomes":
        """Those with rollouts."""
        some = self.trials > 0
        return Outcomes(
            rows=self.rows[some],
            right=self.right[some],
            trials=self.trials[some],
            within=None if self.within is None else self.within[some],
            most=None if self.most is None else self.most[some],
            version=self.version[some],
        )

    def pooled(self) -> "Outcomes":
        """The outcomes of prompts that repeat, added up."""
        unique, position = np.unique(self.rows, return_inverse=True)
        n = len(unique)
        if n == len(self.rows):
            return self
        version = np.zeros(n, np.int64)
        version[position] = self.version
        if (version[position] != self.version).any():
            advice = "Pass those of each version in an update of its own."
            raise argument_error("version", "one for each prompt", "two for one prompt", advice)

        def total(values: FloatArray) -> FloatArray:
            return np.bincount(position, values, n).astype(float)

        return Outcomes(
            rows=np.asarray(unique, np.int64),
            right=total(self.right),
            trials=total(self.trials),
            within=None if self.within is None else total(self.within),
            most=None if self.most is None else total(self.most),
            version=version,
        )


@documented(RULES)
class Selector:
    """Choose the prompts that are worth rollouts now, and learn from the outcomes.

    The policy's ability theta moves from step to step, and prompt i is solved with the probability

        p_i = 1 / (1 + exp(-a_i (theta - b_i))).

    Theta is a random walk whose speed is estimated: a Kalman filter for each of eight speeds, which
    the data weigh. Difficulties b_i are a regression on ``features`` (or on the difficulties that
    are passed) plus a residual; the SD of the residuals is estimated, and so is the rate at which a
    residual changes, so that old rollouts count as much as the drift allows. Log slopes have the
    prior N(0, .3²). A training step on a prompt may add to its own logit; how much is estimated.
    Each `update` is one step of assumed density filtering: the policy and the prompts of the batch
    jointly, by expectation propagation.

    The scale: the mean log slope is 0, and so is the mean difficulty of all prompts, unless
    difficulties are passed, which then define it.

    Rewards need not be 0 or 1. Pass those of all rollouts (prompts x rollouts), not only their
    means: the usefulness of a prompt is multiplied by the share of the variance of right and wrong
    answers that its rewards have within a group, estimated from its own groups and all others. A
    prompt whose rollouts all get .5 has no gradient.

    {table}

    Args:
        items: the number of prompts (ids are then 0, 1, ...); ids; an `irtcat.ItemBank` without
            guessing; or a table indexed by id (or with a column ``item`` or ``id``) with the
            columns ``b`` and optionally ``se_b``, ``a``, ``se_a``, as priors. NaN: unknown.
        group_size: rollouts of a prompt in a step.
        rule: one of the rules of the table.
        target: success rate that the rules "target" and "thompson" prefer, between 0 and 1.
        topics: topic of each prompt: a list, a Series or mapping by id, or a column of the
            bank's metadata or the table. Up to 64 topics have a mean difficulty of their own, which
            may drift.
        quotas: shares of the topics in a choice, by topic; they are scaled to sum to 1.
        features: known properties of each prompt: an array or a table (text columns as
            categories), by id or in the prompts' order.
        explore: share of a choice that is drawn at random from all prompts, so that none starves.
        bonus: SDs of the usefulness that are added to its expectation, for rules that use it: more
            explores prompts of which little is known.
        rest: usefulness is multiplied by ``1 - exp(-age / rest)``, with the number of steps since
            the prompt's last one, so that a choice is spread over all that is useful: prompts that
            were trained on lately teach less. 0: not at all. None: .3 of the steps that a pass over
            all prompts takes, at most 200.
        reward_range: the lowest and the highest reward.
        seed: seed of all draws.

    Raises:
        InputError: for arguments out of range, or that do not fit the prompts.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> difficulty = rng.normal(0, 2, 500)
        >>> selector = Selector(500, seed=1)
        >>> for step in range(30):
        ...     ids = selector.next(32)
        ...     p = 1 / (1 + np.exp(difficulty[ids] - 0.02 * step))
        ...     selector.update(ids, rng.binomial(8, p), trials=8)
        >>> abs(selector.theta - 0.6) < 3 * selector.se
        True
        >>> bool(selector.history["mixed"].tail(5).mean() > 0.8)
        True

    References:
        Minka (2001), Expectation propagation for approximate Bayesian inference, section 3; Blom &
        Bar-Shalom (1988), The interacting multiple model algorithm; Bae et al. (2025), Online
        difficulty filtering for reasoning oriented reinforcement learning, arXiv 2504.03380.
    """

    def __init__(
        self,
        items: Any,
        *,
        group_size: int = 8,
        rule: str = "variance",
        target: float = 0.5,
        topics: Any = None,
        quotas: Mapping[Any, float] | None = None,
        features: Any = None,
        explore: float = 0.05,
        bonus: float = 0.5,
        rest: float | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
    ) -> None:
        check_count("group_size", group_size, LEAST)
        check_choice("rule", rule, RULES)
        check_interval("target", target)
        for name, value, most in (("explore", explore, 1.0), ("bonus", bonus, np.inf)):
            if not is_number(value) or not 0 <= value <= most:
                must = "a number between 0 and 1" if most == 1 else "a number of at least 0"
                raise argument_error(name, must, value)
        check_count("seed", seed, 0)
        self.reward_range = _read_range(reward_range)
        self._items = read_items(items)
        self._topics = read_topics(topics, self._items)
        self._quotas = read_quotas(quotas, self._topics)
        self._features = read_features(features, self._items)
        self.group_size, self.rule, self.target = int(group_size), rule, float(target)
        if rest is not None and (not is_number(rest) or rest < 0):
            raise argument_error("rest", "a number of steps of at least 0, or None", rest)
        self.rest = None if rest is None else float(rest)
        self._rest = 0.0
        self.explore, self.bonus = float(explore), float(bonus)
        self._rng = np.random.default_rng(seed)
        self._row = RULES[rule]
        self._table = UsefulnessTable.of(
            lambda p: self._row.curve(p, self.group_size, self.target), self.bonus
        )
        self._positions: pd.Index | None = None
        self._fingerprint = ""
        self._step = 0
        self._prompts = Prompts.start(self._items.n)
        self._spread = Spread.start(self._items.n)
        self._policy = self._prior_policy()
        self._past = Past.start(len(self._policy.noise))
        self._ahead_cache: tuple[Policy, tuple[FloatArray, FloatArray, Past, FloatArray]] | None
        self._ahead_cache = None
        has_prior = self._items.prior.b is not None
        middle, spread = RESIDUAL_PRIOR[has_prior]
        self._residual = Grid(RESIDUAL_SDS, _log_normal(RESIDUAL_SDS, middle, spread))
        self._item_drift = Grid(ITEM_DRIFTS, _log_normal(ITEM_DRIFTS, *DRIFT_PRIOR))
        self._residual_sd = self._residual.estimate
        self._rows: list[dict[str, float]] = []
        n = self._items.n
        self._slope, self._centre = np.empty(n, np.float32), np.empty(n, np.float32)
        self._sd_code = np.empty(n, np.uint8)
        self._refreshed = 0
        for start in range(0, n, REFRESH):
            self._refresh(np.arange(start, min(start + REFRESH, n)))

    # The state of the policy

    def _prior_policy(self) -> Policy:
        """Ability, gain, scale of known difficulties, features, topics."""
        mean, var = [self._items.centre, 0.0, 0.0], [ABILITY_SD**2, GAIN_SD**2, TREND_SD**2]
        noise = [1.0, GAIN_NOISE**2, 0.0]
        if self._items.prior.b is not None:
            mean, var, noise = [*mean, 1.0], [*var, SCALE_SD**2], [*noise, 0.0]
        if self._features is not None:
            n = self._features.shape[1]
            mean, var = mean + [0.0] * n, var + [FEATURE_SD**2 / n] * n
            noise = noise + [FEATURE_NOISE**2 / n] * n
        if self._has_topic_means:
            n = len(self._topics.names)  # type: ignore[union-attr]
            mean, var = mean + [0.0] * n, var + [TOPIC_SD**2] * n
            noise = noise + [TOPIC_NOISE**2] * n
        constant = np.zeros(len(mean))
        constant[TREND] = TREND_NOISE**2
        return Policy.start(np.array(mean), np.array(var), np.array(noise), constant)

    @property
    def _has_topic_means(self) -> bool:
        return self._topics is not None and 1 < len(self._topics.names) <= MOST_TOPICS

    def _loading(self, rows: IntArray) -> FloatArray:
        """How the policy's state enters the logits of prompts."""
        n = len(rows)
        trained = self._prompts.trained[rows, None].astype(float)
        parts = [np.ones((n, 1)), trained, np.zeros((n, 1))]  # ability, gain, trend
        if self._items.prior.b is not None:
            parts.append(self._items.centre - self._items.prior.b[rows, None].astype(float))
        if self._features is not None:
            parts.append(-self._features[rows].astype(float))
        if self._has_topic_means:
            topics = self._topics
            assert topics is not None
            codes = topics.code[rows, None]
            parts.append(-(codes == np.arange(len(topics.names))).astype(float))
        return np.concatenate(parts, axis=1)

    def _belief(self, rows: IntArray, step: int) -> Locals:
        """What is believed of prompts at a step."""
        _, _, past, on_today = self._ahead
        return self._prompts.belief(
            rows=rows,
            prior=self._items.prior,
            step=step,
            residual_sd=self._residual_sd,
            drift=self._item_drift.estimate,
            past=past,
            on_today=on_today,
        )

    def _logits(self, rows: IntArray) -> tuple[FloatArray, FloatArray, Linear, Locals]:
        """Mean and SD of prompts' logits in the coming step."""
        mean, cov, _, _ = self._ahead
        loading = self._loading(rows)
        local = self._belief(rows, self._step + 1)
        linear = linearise(loading @ mean - self._items.centre, local)
        loading -= local.tied
        var = linear.var_local + linear.slope**2 * np.einsum("ij,ij->i", loading @ cov, loading)
        return linear.mean, np.sqrt(var), linear, local

    def _refresh(self, rows: IntArray) -> None:
        """Bring the quick scores of prompts up to date."""
        if not len(rows):
            return
        logit, sd, linear, _ = self._logits(rows)
        theta = self._ahead[0][ABILITY]
        self._slope[rows] = linear.slope
        self._centre[rows] = theta - logit / linear.slope
        self._sd_code[rows] = sd_code(sd)

    @property
    def _ahead(self) -> tuple[FloatArray, FloatArray, Past, FloatArray]:
        """The policy in the coming step.

        Mean and covariance of its state, earlier abilities, and their regression on the state.
        """
        cached = self._ahead_cache
        if cached is None or cached[0] is not self._policy:
            mean, cov = self._policy.predicted().moments
            past = self._past.predicted()
            cached = (self._policy, (mean, cov, past, past.coefficients(cov)))
            self._ahead_cache = cached
        return cached[1]

    # What users see

    def __len__(self) -> int:
        return self._items.n

    def __repr__(self) -> str:
        text = f"{self._items.n} prompts, rule {self.rule}, step {self._step}"
        return f"Selector({text}, theta {self.theta:.2f} ± {self.se:.2f})"

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._step

    @property
    def theta(self) -> float:
        """The policy's ability after the last step."""
        return float(self._policy.moments[0][ABILITY])

    @property
    def se(self) -> float:
        """Its standard error.

        With fewer than about a hundred prompts it is too small, by 20 to 40 % with 24, for the
        level of ability and all difficulties together; intervals of p are not affected.
        """
        return float(np.sqrt(self._policy.moments[1][ABILITY, ABILITY]))

    @property
    def item_ids(self) -> np.ndarray:
        """Ids of all prompts, in their order."""
        return self._items.names

    @property
    def n_choices(self) -> int:
        """Number of prompts that can be chosen: with quotas, those of the topics with a share."""
        if self._quotas is None or self._topics is None:
            return self._items.n
        return int((np.diff(self._topics.starts) * (self._quotas > 0)).sum())

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept for the prompts, without their ids and features."""
        arrays: list[np.ndarray] = [self._slope, self._centre, self._sd_code]
        prior = self._items.prior
        arrays += [x for x in (prior.b, prior.var_b, prior.alpha, prior.var_alpha) if x is not None]
        if self._topics is not None:
            arrays += [self._topics.code, self._topics.rows]
        return self._prompts.n_bytes + self._spread.n_bytes + sum(array.nbytes for array in arrays)

    def next(self, n: int) -> np.ndarray:
        """The prompts of the next step: distinct ids, the most useful first.

        A share ``explore`` is drawn at random from all others and stands at the end. The belief
        does not change; the random stream does.

        Args:
            n: how many, at most the number of prompts.

        Raises:
            InputError: for more than there are, or with quotas, more than the topics with a share
                have.

        Example:
            >>> len(set(Selector(10, seed=3).next(4).tolist()))
            4
        """
        check_count("n", n, 1, self._items.n)
        scores = self._quick_scores(n)
        self._rest = self._rest_steps(n)
        if self._quotas is None:
            rows = self._best(scores, None, n)
        else:
            topics = self._topics
            assert topics is not None
            limits = np.diff(topics.starts) * (self._quotas > 0)
            if n > self.n_choices:
                must = f"at most {self.n_choices}, the prompts of the topics in `quotas`"
                raise argument_error("n", must, n)
            shares = self._quotas
            counts = largest_remainder(shares, n, limits)
            parts = [
                self._best(scores, topics.members(k), int(count))
                for k, count in enumerate(counts)
                if count
            ]
            rows = np.concatenate(parts)
        return rows if self._items.ids is None else self._items.ids[rows]

    def _quick_scores(self, n: int) -> np.ndarray | None:
        """Approximate scores of all prompts; None where all are alike."""
        if self._row.choice == "none":
            return None
        theta = float(self._ahead[0][ABILITY])
        rng = self._rng if self._row.choice == "draw" else None
        arrays = (theta, self._slope, self._centre, self._sd_code)
        scores = quick_scores(*arrays, self._table, rng)
        if not self._spread.is_equal:
            scores *= self._spread.of().astype(np.float32)
        rest = self._rest_steps(n)
        if rest > 0:
            rested(scores, self._prompts.last, self._step + 1, rest)
        return scores

    def _rest_steps(self, n: int) -> float:
        """Steps after which a prompt is as good as new, nearly."""
        if self.rest is not None:
            return self.rest
        return min(REST_PASSES * self._items.n / n, LONGEST_REST)

    def _best(self, scores: np.ndarray | None, members: IntArray | None, n: int) -> IntArray:
        """The best n prompts (of some), with a share drawn at random."""
        size = self._items.n if members is None else len(members)
        rng = self._rng
        if scores is None:
            drawn_rows = rng.choice(size, n, replace=False)
            return drawn_rows if members is None else members[drawn_rows].astype(np.int64)
        n_random = min(int(self.explore * n + rng.random()), n)
        pool_scores = scores if members is None else scores[members]
        drawn = n - n_random
        pool = top(pool_scores, min(size, POOL * drawn), rng) if drawn else np.empty(0, int)
        rows: IntArray = pool if members is None else members[pool].astype(np.int64)
        if self._row.choice == "mean":
            exact: FloatArray = self._exact_scores(rows)
        else:
            exact = pool_scores[pool].astype(float)
        exact = exact * (1 - self._prompts.broken[rows])
        order = np.lexsort((rng.random(len(rows)), -exact))
        chosen = rows[order[:drawn]]
        if n_random:
            chosen = np.concatenate([chosen, self._others(chosen, members, n_random)])
        return chosen

    def _others(self, chosen: IntArray, members: IntArray | None, n: int) -> IntArray:
        """Prompts drawn at random from those that are not chosen."""
        size = self._items.n if members is None else len(members)
        if 2 * (len(chosen) + n) < size:
            taken = set(chosen.tolist())
            out: list[int] = []
            while len(out) < n:
                row = int(self._rng.integers(size))
                row = row if members is None else int(members[row])
                if row not in taken:
                    taken.add(row)
                    out.append(row)
            return np.array(out, np.int64)
        everyone = np.arange(size) if members is None else members.astype(np.int64)
        rest = np.setdiff1d(everyone, chosen)
        return self._rng.choice(rest, n, replace=False)

    def _exact_scores(self, rows: IntArray) -> FloatArray:
        """Usefulness with the bonus, less for prompts that were trained on lately."""
        logit, sd, _, _ = self._logits(rows)
        mean, spread = self._table.moments(logit, sd)
        score: FloatArray = (mean + self.bonus * spread) * self._spread.of(rows)
        if self._rest > 0:
            score = score * -np.expm1(-(self._step + 1 - self._prompts.last[rows]) / self._rest)
        return score

    def update(self, ids: Any, successes: Any, trials: Any = None, *, version: Any = None) -> None:
        """Learn from the outcomes of one step of the policy.

        Args:
            ids: the prompts; those that repeat are pooled. None at all: a step without outcomes.
            successes: the rewards, prompts x rollouts in ``reward_range`` (NaN: none; or a list of
                rewards for each prompt); with ``trials``, the number of right rollouts of each
                prompt (or their sum of scores); otherwise its mean score in [0, 1] over
                ``group_size`` rollouts. Sums and means do not say how rewards differ in a group:
                they count as of rewards of 0 and 1.
            trials: rollouts of each prompt, or one number; 0: the prompt has no outcome.
            version: the policy that answered, where training is asynchronous: `step` when the
                prompts were chosen, one number or one for each prompt. By default the latest.

        Raises:
            InputError: for unknown ids, NaN, scores, counts or versions out of range. Nothing is
                changed then.

        Example:
            >>> selector = Selector(["easy", "hard"])
            >>> selector.update(["easy", "hard"], [7, 1], trials=8)
            >>> selector.predict()["p"].round(1).tolist()
            [0.8, 0.2]
            >>> selector.update(["easy", "hard"], [[1.0, 1.0, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]])
            >>> selector.history["mixed"].tolist()
            [1.0, 0.5]
        """
        outcomes = self._read_outcomes(ids, successes, trials, version).used()
        rows = outcomes.rows
        step = self._step + 1
        ahead = self._policy.predicted()
        rollouts = float(outcomes.trials.sum())
        record: dict[str, float] = {"step": step, "n": len(rows), "rollouts": rollouts}
        if len(rows):
            record |= self._learn(ahead, outcomes, step)
        else:
            moments = ahead.moments
            self._past = self._past.predicted().updated(moments, moments)
            self._policy = ahead
        self._step = step
        self._refresh(rows)
        self._refresh_some()
        record |= {
            "theta": self.theta,
            "se": self.se,
            "drift": self._policy.drift,
            "residual_sd": self._residual_sd,
            "item_drift": self._item_drift.estimate,
            "gain": float(self._policy.moments[0][GAIN]),
        }
        self._rows.append(record)

    def update_rollouts(self, ids: Any, rewards: Any, *, version: Any = None) -> None:
        """Learn from rewards as trainers have them: one after another, with the prompt of each.

        Args:
            ids: the prompt of each rollout.
            rewards: the reward of each; NaN: none.
            version: see `update`; one number or one for each rollout, the same for all rollouts of
                a prompt.

        Raises:
            InputError: as for `update`.

        Example:
            >>> selector = Selector(["a", "b"])
            >>> selector.update_rollouts(["a", "a", "b", "b"], [1, 0, 0.5, 0.5])
            >>> selector.history[["n", "rollouts", "mixed"]].to_numpy().tolist()
            [[2.0, 4.0, 0.5]]
        """
        rows = self._find(ids)
        values = _numbers("rewards", rewards, len(rows))
        unique, group = np.unique(rows, return_inverse=True)
        counts = np.bincount(group, minlength=len(unique))
        order = np.argsort(group, kind="stable")
        place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        matrix = np.full((len(unique), counts.max(initial=1)), np.nan)
        matrix[group[order], place] = values[order]
        if version is not None and np.ndim(version):
            versions = _numbers("version", version, len(rows))
            first = np.full(len(unique), -1.0)
            first[group] = versions
            if (first[group] != versions).any():
                name = brief(self._items.names[rows[int(np.argmax(first[group] != versions))]])
                advice = "Pass those of each version in an update of its own."
                raise argument_error("version", "one for each prompt", f"two for {name}", advice)
            version = first
        self.update(self._items.names[unique], matrix, version=version)

    def gradient_probability(self, ids: Any) -> FloatArray:
        """Probability that the rewards of a group differ: ``E[1 - p^G - (1 - p)^G]``.

        For rewards other than 0 and 1 it is multiplied by the spread of the prompt.
        """
        rows = self._find(ids)
        logit, sd, _, _ = self._logits(rows)
        curve = RULES["mixed"].curve
        mixed, _ = usefulness_moments(logit, sd, lambda p: curve(p, self.group_size, self.target))
        return mixed * self._spread.of(rows)

    def _level_of(
        self, rows: IntArray, version: IntArray, local: Locals
    ) -> tuple[FloatArray, FloatArray, Locals]:
        """How the policy's state enters the logits of prompts, and what is subtracted.

        Answers of an older policy depend on the ability of its step: the regression of that ability
        on the state of today, and what it leaves.
        """
        loading = self._loading(rows)
        offset = np.full(len(rows), self._items.centre)
        older = np.flatnonzero(version < self._step)
        if not len(older):
            return loading, offset, local
        mean, _, past, on_today = self._ahead
        then = version[older] + 1
        theta = np.array([self._rows[step - 1]["theta"] for step in then]) + past.shift[then]
        gain = on_today[then]
        loading[older, ABILITY] -= 1.0
        loading[older] += gain
        offset[older] -= theta - gain @ mean
        var_e = local.var_e.copy()
        rest = past.var[then] - np.einsum("ij,ij->i", gain, past.cross[then])
        var_e[older] += np.maximum(rest, 0.0)
        return loading, offset, replace(local, var_e=var_e)

    def _learn(self, ahead: Policy, outcomes: Outcomes, step: int) -> dict[str, float]:
        """Update policy and prompts by a batch; what is worth recording."""
        prompts, prior = self._prompts, self._items.prior
        rows, right, trials = outcomes.rows, outcomes.right, outcomes.trials
        mean, cov, past, on_today = self._ahead
        loading, offset, local = self._level_of(rows, outcomes.version, self._belief(rows, step))
        result = filter_batch(mean, cov, loading, offset, local, right, trials)
        after = ahead.updated(result.precision, result.shift)
        is_new = prompts.last[rows] < 0
        level = result.level
        for chosen, grid in ((is_new, self._residual), (~is_new, self._item_drift)):
            some = np.flatnonzero(chosen)[:EVIDENCE_PROMPTS]
            if not len(some):
                continue
            data = (level[some], result.var_level[some], right[some], trials[some])
            if grid is self._residual:
                grid.add(residual_evidence(prior, rows[some], *data))
            else:
                spread = self._residual_sd
                args = (prompts, prior, rows[some], step, spread, past, on_today, *data)
                grid.add(drift_evidence(*args))
        p, _ = probability_moments(result.before[0], np.sqrt(result.before[1]))
        prompts.count_reverse(
            rows,
            level=level,
            var=result.var_level,
            var_prior=local.var_e,
            right=right,
            trials=trials,
            log_model=result.log_cavity,
        )
        # the mixture of speeds has another mean than the single Normal of the batch
        apart = float(after.moments[0][ABILITY] - result.mean[ABILITY])
        local_after = replace(result.local, e=result.local.e + result.tie * apart)
        prompts.store(rows, local_after, result.tie, step)
        self._policy, self._past = after, past.updated((mean, cov), after.moments)
        prompts.count(rows, right, trials, p * trials, result.log_cavity)
        prompts.trained[rows] = outcomes.strength
        if outcomes.within is not None and outcomes.most is not None:
            self._spread.add(rows, outcomes.within, outcomes.most)
        prompts.broken[rows] = _broken(prompts.evidence(rows), BROKEN_PRIOR).sum(axis=1)
        estimate = self._residual.estimate
        if abs(np.log(estimate / self._residual_sd)) > RESIDUAL_CHANGE:
            prompts.rescale(prior, self._residual_sd, estimate)
            self._residual_sd = estimate
        clipped = np.clip(p, 1e-12, 1 - 1e-12)
        loss = -(right * np.log(clipped) + (trials - right) * np.log1p(-clipped)).sum()
        return {
            "score": float(right.sum() / trials.sum()),
            "predicted": float((p * trials).sum() / trials.sum()),
            "log_loss": float(loss / trials.sum()),
            "mixed": float(outcomes.has_gradient.mean()),
        }

    def _refresh_some(self) -> None:
        """Bring quick scores of the next prompts in turn up to date."""
        n = self._items.n
        size = min(n, max(2048, REFRESH // max(len(self._policy.noise) // 4, 1)))
        stop = min(self._refreshed + size, n)
        self._refresh(np.arange(self._refreshed, stop))
        self._refreshed = stop % n

    def _find(self, ids: Any) -> IntArray:
        """Positions of ids."""
        if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
            raise argument_error("ids", "a list of ids of prompts", ids)
        if not len(ids):
            return np.empty(0, np.int64)
        array = np.asarray(ids)
        names = self._items.ids
        if array.ndim != 1:
            raise argument_error("ids", "a list of ids of prompts", f"shape {array.shape}")
        if names is None:
            if array.dtype.kind not in "iu":
                raise argument_error("ids", "whole numbers, the prompts' positions", ids)
            unknown = (array < 0) | (array >= self._items.n)
            rows = array.astype(np.int64)
        else:
            if self._positions is None:
                self._positions = pd.Index(names)
            if names.dtype == object:
                array = np.array([str(name) for name in ids], dtype=object)
            rows = self._positions.get_indexer(pd.Index(array)).astype(np.int64)
            unknown = rows < 0
        if unknown.any():
            got = brief(array[int(np.argmax(unknown))])
            raise argument_error("ids", "ids of the prompts", f"the unknown id {got}")
        return rows

    def read_rewards(self, ids: Any, rewards: Any) -> FloatArray:
        """Rewards of prompts as a matrix, checked.

        Raises:
            InputError: for unknown ids, another number of rows, or rewards out of range.
        """
        rows = self._find(ids)
        matrix = _matrix("successes", rewards, len(rows))
        low, high = self.reward_range
        bad = (matrix < low - 1e-9) | (matrix > high + 1e-9)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            got = f"{matrix[row, column]:g} for {brief(self._items.names[rows[row]])}"
            advice = "Pass another `reward_range` to the selector."
            raise argument_error("successes", f"rewards from {low:g} to {high:g}", got, advice)
        return np.clip(matrix, low, high)

    def _read_version(self, version: Any, n: int) -> IntArray:
        """The step at which the prompts were chosen."""
        if version is None:
            return np.full(n, self._step)
        values = _numbers("version", np.full(n, version) if np.ndim(version) == 0 else version, n)
        if not ((values >= 0) & (values <= self._step) & (values == np.floor(values))).all():
            must = f"whole numbers from 0 to {self._step}, the `step` when prompts were chosen"
            raise argument_error("version", must, version)
        return values.astype(np.int64)

    def _read_outcomes(self, ids: Any, successes: Any, trials: Any, version: Any) -> Outcomes:
        """The outcomes, each prompt once."""
        if trials is None and _is_matrix(successes):
            low, high = self.reward_range
            matrix = (self.read_rewards(ids, successes) - low) / (high - low)
            rows = self._find(ids)
            right, total, within, most = sums_of_groups(matrix)
            then = self._read_version(version, len(rows))
            return Outcomes(
                rows=rows, right=right, trials=total, within=within, most=most, version=then
            ).pooled()
        rows, right, total = self._read_counts(ids, successes, trials)
        then = self._read_version(version, len(rows))
        return Outcomes(
            rows=rows, right=right, trials=total, within=None, most=None, version=then
        ).pooled()

    def _read_counts(
        self, ids: Any, successes: Any, trials: Any
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Positions, successes and trials."""
        rows = self._find(ids)
        right = _numbers("successes", successes, len(rows))
        if trials is None:
            must = "mean scores in [0, 1], or counts with `trials`"
            most: FloatArray = np.ones(len(rows))
            total: FloatArray = np.full(len(rows), float(self.group_size))
        else:
            is_single = np.ndim(trials) == 0
            total = _numbers(
                "trials", np.full(len(rows), trials) if is_single else trials, len(rows)
            )
            bad = ~np.isfinite(total) | (total < 0) | (total != np.floor(total))
            if bad.any():
                k = int(np.argmax(bad))
                got = f"{total[k]:g} for {brief(self._items.names[rows[k]])}"
                raise argument_error("trials", "whole numbers of at least 0", got)
            must, most = "numbers between 0 and the trials", total
        bad = ~((right >= 0) & (right <= most + 1e-9))
        if bad.any():
            k = int(np.argmax(bad))
            got = f"{right[k]:g} for {brief(self._items.names[rows[k]])}"
            raise argument_error("successes", must, got)
        return rows, right * total if trials is None else np.minimum(right, total), total

    def reloaded(self, step: int | None = None) -> None:
        """Say that a checkpoint of the policy was reloaded, so that its ability jumped.

        Args:
            step: the step of the checkpoint, whose ability is in the history; None: unknown, the
                ability may be anywhere within about a logit.

        Raises:
            InputError: for a step that is not in the history.
        """
        if step is None:
            self._policy = self._policy.moved(None, JUMP_SD**2)
        elif step == 0:
            start = self._prior_policy()
            var = float(start.cov[0, ABILITY, ABILITY])
            self._policy = self._policy.moved(float(start.mean[0, ABILITY]), var)
        else:
            check_count("step", step, 0, self._step)
            mean = self._rows[step - 1]["theta"] + float(self._past.shift[step])
            self._policy = self._policy.moved(mean, float(self._past.var[step]))
        if step is not None:
            self._past = self._past.moved()
        self._refresh_some()

    def predict(self, ids: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """Success probability and usefulness of prompts in the coming step.

        Args:
            ids: the prompts; all by default.
            level: probability of the interval.

        Returns:
            A row for each prompt, indexed by ``item``: ``p``, ``sd``, ``low``, ``high``
            (interval of the success probability), ``usefulness`` (expected, by the rule).

        Example:
            >>> Selector(3).predict([2]).round(2).values.tolist()
            [[0.5, 0.35, 0.01, 0.99, 0.13]]
        """
        check_interval("level", level)
        rows = np.arange(self._items.n) if ids is None else self._find(ids)
        columns: dict[str, list[FloatArray]] = {
            name: [] for name in ("p", "sd", "low", "high", "usefulness")
        }
        z = NormalDist().inv_cdf(0.5 + level / 2)
        for start in range(0, max(len(rows), 1), 16384):
            logit, sd, _, _ = self._logits(rows[start : start + 16384])
            p, sd_p = probability_moments(logit, sd)
            low, high = (1 / (1 + np.exp(-(logit + side * z * sd))) for side in (-1, 1))
            useful, _ = self._table.moments(logit, sd)
            useful = useful * self._spread.of(rows[start : start + 16384])
            for name, value in zip(columns, (p, sd_p, low, high, useful), strict=True):
                columns[name].append(value)
        index = pd.Index(self._items.names[rows], name="item")
        return pd.DataFrame({name: np.concatenate(x) for name, x in columns.items()}, index=index)

    def rollouts(self, ids: Any, budget: int) -> IntArray:
        """Share a budget of rollouts out among prompts.

        The sum over prompts of the probability that a group is mixed, neither all right nor all
        wrong, is as large as the budget allows: rollouts go one after another where they add most
        to it, E[p^k (1 - p) + (1 - p)^k p] for the next one after k.

        Args:
            ids: the chosen prompts.
            budget: rollouts in total, at least two for each prompt.

        Returns:
            Whole numbers of at least 2, in the order of the ids, that sum to the budget.

        Raises:
            InputError: for unknown or repeated ids, or a budget below two a prompt.

        Example:
            >>> selector = Selector(["easy", "medium"])
            >>> selector.update(["easy", "medium"], [64, 32], trials=64)
            >>> selector.rollouts(["easy", "medium"], 16).tolist()
            [9, 7]
        """
        rows = self._find(ids)
        if len(np.unique(rows)) < len(rows):
            raise argument_error("ids", "distinct ids", "ids that repeat")
        if not len(rows):
            raise argument_error("ids", "at least one prompt", "none")
        check_count("budget", budget, LEAST * len(rows))
        logit, sd, _, _ = self._logits(rows)
        return allocate(logit, sd, int(budget))

    @property
    def history(self) -> pd.DataFrame:
        """One row for each step.

        Columns: ``step``; ``n`` and ``rollouts`` of the step; ``score``, the mean of all rollouts,
        ``predicted``, what was expected of it, ``log_loss`` of the predicted probabilities for
        each rollout, ``mixed``, the share of groups that are neither all right nor all wrong;
        ``theta`` and ``se`` after the step, ``drift``, the SD of the ability's change in a step,
        ``residual_sd`` of difficulties, ``item_drift``, the share of its variance that is new in a
        step, and ``gain``, what training on a prompt adds to its own logit.
        """
        frame = pd.DataFrame(self._rows, columns=list(HISTORY))
        return frame.astype({"step": int, "n": int, "rollouts": int})

    def to_frame(self) -> pd.DataFrame:
        """All prompts: belief, prediction and counts.

        Returns:
            Indexed by ``item``: ``b``, ``se_b``, ``slope``, ``p``, ``sd``, ``low``, ``high``,
            ``usefulness``, ``visits``, ``trials``, ``score`` (NaN without rollouts), ``last``
            (step of the last rollouts, <NA> without), ``broken`` (probability), and ``topic`` if
            there are topics.
        """
        frame = self.predict()
        rows = np.arange(self._items.n)
        b, se, slope = [], [], []
        for start in range(0, len(rows), 16384):
            some = rows[start : start + 16384]
            mean, cov, _, _ = self._ahead
            loading = self._loading(some)
            loading[:, ABILITY] = 0.0  # difficulty is the ability at which the logit is 0
            local = self._belief(some, self._step + 1)
            b.append(self._items.centre - loading @ mean + local.e)
            loading -= local.tied
            se.append(np.sqrt(np.einsum("ij,ij->i", loading @ cov, loading) + local.var_e))
            slope.append(np.exp(local.alpha))
        for position, (name, parts) in enumerate((("b", b), ("se_b", se), ("slope", slope))):
            frame.insert(position, name, np.concatenate(parts))
        prompts = self._prompts
        with np.errstate(invalid="ignore"):
            score = np.where(prompts.trials > 0, prompts.right / prompts.trials, np.nan)
        last = pd.array(np.where(prompts.last < 0, 0, prompts.last), dtype="Int64")
        last[prompts.last < 0] = pd.NA
        counts: dict[str, Any] = {
            "visits": prompts.visits,
            "trials": prompts.trials.astype(int),
            "score": score,
            "last": last,
            "broken": prompts.broken,
        }
        frame = frame.assign(**counts)
        if self._topics is not None:
            frame["topic"] = np.array(self._topics.names, dtype=object)[self._topics.code]
        return frame

    def suspects(self, threshold: float = 0.5, *, prior: float = BROKEN_PRIOR) -> pd.DataFrame:
        """Prompts that are probably broken.

        Each prompt's data are compared with three alternatives by Bayes factors: it is never solved
        (a success rate about .01, whatever was predicted from its difficulty or its features);
        success falls as ability rises; success does not follow ability (any constant rate).

        Args:
            threshold: lowest probability.
            prior: share of broken prompts before any data, a third for each reason.

        Returns:
            Indexed by ``item``, the most probable first: ``probability``, ``reason``, ``visits``,
            ``trials``, ``right``, ``expected`` (right rollouts as predicted before each step).

        Raises:
            InputError: for numbers outside (0, 1).
        """
        check_interval("threshold", threshold)
        check_interval("prior", prior)
        prompts = self._prompts
        rows = np.flatnonzero(prompts.visits > 0)
        share = _broken(prompts.evidence(rows), prior) if len(rows) else np.empty((0, 3))
        total = share.sum(axis=1)
        order = np.argsort(-total, kind="stable")
        order = order[total[order] >= threshold]
        rows, share, total = rows[order], share[order], total[order]
        reasons = [REASONS[k] for k in share.argmax(axis=1)] if len(rows) else []
        return pd.DataFrame(
            {
                "probability": total,
                "reason": np.array(reasons, dtype=object),
                "visits": prompts.visits[rows],
                "trials": prompts.trials[rows].astype(int),
                "right": prompts.right[rows].astype(float),
                "expected": prompts.expected[rows].astype(float).round(2),
            },
            index=pd.Index(self._items.names[rows], name="item"),
        )

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Everything that was learnt, as arrays, numbers and text, to store with a checkpoint.

        The prompts, features and options are not in it: build the selector as before, then call
        `load_state_dict`.

        Example:
            >>> selector = Selector(100, seed=5)
            >>> selector.update(selector.next(8), [0.5] * 8)
            >>> again = Selector(100, seed=6)
            >>> again.load_state_dict(selector.state_dict())
            >>> bool((again.next(8) == selector.next(8)).all())
            True
        """
        state = self._rng.bit_generator.state
        words = (*state["state"].values(), state["has_uint32"], state["uinteger"])
        history = np.array(
            [[row.get(name, np.nan) for name in HISTORY] for row in self._rows], float
        ).reshape(-1, len(HISTORY))
        out: dict[str, Any] = {
            **STATE.head,
            "items": self._own_fingerprint(),
            "n_items": self._items.n,
            "step": self._step,
            "random": " ".join(f"{word:x}" for word in words),  # 128 bits: more than a number has
            "policy_mean": self._policy.mean.copy(),
            "policy_cov": self._policy.cov.copy(),
            "policy_weight": self._policy.weight.copy(),
            "past_shift": self._past.shift.copy(),
            "past_var": self._past.var.copy(),
            "past_cross": self._past.cross.copy(),
            "residual_log_weight": self._residual.log_weight.copy(),
            "item_drift_log_weight": self._item_drift.log_weight.copy(),
            "residual_sd": self._residual_sd,
            "refreshed": self._refreshed,
            "history": history,
            "quick_slope": self._slope.copy(),
            "quick_centre": self._centre.copy(),
            "quick_sd": self._sd_code.copy(),
            "spread_within": self._spread.within.copy(),
            "spread_most": self._spread.most.copy(),
        }
        for name, array in vars(self._prompts).items():
            out[f"prompts_{name}"] = array.copy()
        return out

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the mapping; arrays may be lists or tensors.

        Raises:
            InputError: it is of other prompts or another number of features or topics, or parts are
                missing. Nothing is changed then.
        """
        STATE.check_argument("state", state)
        required = set(self.state_dict())
        missing = sorted(required - set(state))
        if missing:
            raise argument_error("state", "what `state_dict` returned", f"no {missing[0]!r}")
        n = int(state["n_items"])
        if n != self._items.n:
            got = f"{n}, where this selector has {self._items.n}"
            raise argument_error("state", "of the same prompts", f"one with {got}")
        if str(state["items"]) != self._own_fingerprint():
            got = f"one with {n} other ids, or in another order"
            raise argument_error("state", "of the same prompts", got)
        arrays = {
            name: np.asarray(value)
            for name, value in state.items()
            if name not in ("format", "items", "random")
        }
        if arrays["policy_mean"].shape != self._policy.mean.shape:
            must = "of a selector with the same features, topics and known difficulties"
            raise argument_error("state", must, f"another number ({arrays['policy_mean'].shape})")
        for name in vars(self._prompts):
            if arrays[f"prompts_{name}"].shape != (n,):
                must = f"with {n} numbers in prompts_{name}"
                raise argument_error("state", must, f"shape {arrays[f'prompts_{name}'].shape}")
        self._policy = replace(
            self._policy,
            mean=arrays["policy_mean"].astype(float),
            cov=arrays["policy_cov"].astype(float),
            weight=arrays["policy_weight"].astype(float),
        )
        self._past = Past(*(arrays[f"past_{name}"].astype(float) for name in PAST))
        for name, array in list(vars(self._prompts).items()):
            setattr(self._prompts, name, arrays[f"prompts_{name}"].astype(array.dtype))
        self._residual.log_weight = arrays["residual_log_weight"].astype(float)
        self._item_drift.log_weight = arrays["item_drift_log_weight"].astype(float)
        self._residual_sd = float(arrays["residual_sd"])
        self._refreshed = int(arrays["refreshed"])
        self._step = int(arrays["step"])
        self._slope = arrays["quick_slope"].astype(np.float32)
        self._centre = arrays["quick_centre"].astype(np.float32)
        self._sd_code = arrays["quick_sd"].astype(np.uint8)
        self._spread = Spread(arrays["spread_within"], arrays["spread_most"])
        history = arrays["history"].astype(float).reshape(-1, len(HISTORY))
        self._rows = [dict(zip(HISTORY, row.tolist(), strict=True)) for row in history]
        first, second, has_uint32, uinteger = (int(x, 16) for x in str(state["random"]).split())
        generator = np.random.default_rng()
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": first, "inc": second},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        self._rng = generator

    def _own_fingerprint(self) -> str:
        if not self._fingerprint:
            self._fingerprint = self._items.fingerprint()
        return self._fingerprint


STATE = FileFormat("irtcat-selector", "a state of a selector", "Give what `state_dict` returned.")

PAST = ("shift", "var", "cross")

HISTORY = (
    "step",
    "n",
    "rollouts",
    "score",
    "predicted",
    "log_loss",
    "mixed",
    "theta",
    "se",
    "drift",
    "residual_sd",
    "item_drift",
    "gain",
)


def _log_normal(values: FloatArray, median: float, sd: float) -> FloatArray:
    """Log density of values whose log is Normal, as a prior of points of a grid in the log."""
    density: FloatArray = -((np.log(values / median) / sd) ** 2) / 2
    return density


def _broken(evidence: FloatArray, prior: float) -> FloatArray:
    """Posterior probability of each reason, from log Bayes factors (prompts x reasons)."""
    log_odds = evidence + np.log(prior / evidence.shape[1] / (1 - prior))
    top_odds = np.maximum(log_odds.max(axis=1, keepdims=True), 0.0)
    odds = np.exp(log_odds - top_odds)
    share: FloatArray = odds / (odds.sum(axis=1, keepdims=True) + np.exp(-top_odds))
    return share


def _read_range(reward_range: Any) -> tuple[float, float]:
    """The lowest and the highest reward."""
    bounds = tuple(reward_range) if isinstance(reward_range, (tuple, list)) else ()
    if len(bounds) != 2 or not all(map(is_number, bounds)) or not bounds[0] < bounds[1]:
        must = "the lowest and the highest reward, two finite numbers"
        raise argument_error("reward_range", must, reward_range)
    return float(bounds[0]), float(bounds[1])


def _is_matrix(values: Any) -> bool:
    """Whether values have a row for each prompt, perhaps of different lengths."""
    if isinstance(values, (list, tuple)):
        return len(values) > 0 and np.ndim(values[0]) == 1
    return np.ndim(values) == 2


def _matrix(name: str, values: Any, n: int) -> FloatArray:
    """Rewards as prompts x rollouts, NaN where a row is shorter."""
    try:
        rows = [np.asarray(row, float) for row in values]
    except (TypeError, ValueError):
        raise argument_error(name, "rewards, prompts x rollouts", values) from None
    if len(rows) != n or any(row.ndim != 1 for row in rows):
        must = f"rewards of {n} prompts x rollouts, a row for each id"
        raise argument_error(name, must, f"{len(rows)} rows")
    out = np.full((n, max((len(row) for row in rows), default=1)), np.nan)
    for row, rewards in zip(out, rows, strict=True):
        row[: len(rewards)] = rewards
    return out


def _numbers(name: str, values: Any, n: int) -> FloatArray:
    """A vector of n numbers, or raise."""
    try:
        vector = np.asarray(values, float)
    except (TypeError, ValueError):
        raise argument_error(name, "numbers", values) from None
    if vector.shape != (n,):
        raise argument_error(name, f"{n} numbers, one for each id", f"shape {vector.shape}")
    return vector

"""Online selection of prompts for reinforcement learning with verifiable rewards."""

from collections.abc import Mapping
from functools import cached_property
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
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.formats import FileFormat
from irtcat.training.online.belief import RECORD, Belief
from irtcat.training.online.choice import (
    LEAST,
    RULES,
    QuickScores,
    UsefulnessTable,
    allocate,
    rested,
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
from irtcat.training.online.outcomes import as_numbers, read_outcomes, read_rewards
from irtcat.training.online.prompts import BROKEN_PRIOR

POOL = 4
"""Candidates for each prompt to choose, by the quick score; among them the exact one decides."""

REFRESH = 16384
"""Prompts whose quick scores are brought up to date in a step: all, up to this many."""

REST_PASSES, LONGEST_REST = 0.3, 200.0
"""Default of ``rest``: in passes over all prompts, and the most in steps. In GRPO of a small policy
on sums (one run each) rests of .08, .3 and .8 passes ended at a reward of .47, .54 and .56 where a
uniform choice had .44."""


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
        features = read_features(features, self._items)
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
        self._belief = Belief(self._items, features, self._topics)
        n = self._items.n
        slope, centre = np.empty((2, n), np.float32)  # filled below
        self._quick = QuickScores(slope, centre, np.empty(n, np.uint8))
        self._refreshed = 0
        for start in range(0, n, REFRESH):
            self._refresh(np.arange(start, min(start + REFRESH, n)))

    # What users see

    def __len__(self) -> int:
        return self._items.n

    def __repr__(self) -> str:
        text = f"{self._items.n} prompts, rule {self.rule}, step {self.step}"
        return f"Selector({text}, theta {self.theta:.2f} ± {self.se:.2f})"

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._belief.step

    @property
    def theta(self) -> float:
        """The policy's ability after the last step."""
        return self._belief.theta

    @property
    def se(self) -> float:
        """Its standard error.

        With fewer than about a hundred prompts it is too small, by 20 to 40 % with 24, for the
        level of ability and all difficulties together; intervals of p are not affected.
        """
        return self._belief.se

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
        parts = (self._items.prior, self._quick, self._belief.prompts, self._belief.spread)
        values = [value for part in parts for value in vars(part).values()]
        if self._topics is not None:
            values += [self._topics.code, self._topics.rows]
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

    def next(self, n: int, *, without: Any = ()) -> np.ndarray:
        """The prompts of the next step: distinct ids, the most useful first.

        A share ``explore`` is drawn at random from all others and stands at the end. The belief
        does not change; the random stream does.

        Args:
            n: how many, at most the number of prompts.
            without: ids of prompts that are not chosen.

        Raises:
            InputError: for more than there are, or with quotas, more than the topics with a share
                have.

        Example:
            >>> len(set(Selector(10, seed=3).next(4).tolist()))
            4
        """
        free = np.ones(self._items.n, bool) if len(without) else None
        if free is not None:
            free[self._find(without)] = False
        check_count("n", n, 1, self._items.n if free is None else int(free.sum()))
        default = min(REST_PASSES * self._items.n / n, LONGEST_REST)
        self._rest = default if self.rest is None else self.rest
        scores = self._quick_scores()
        if self._quotas is None:
            rows = self._best(scores, None if free is None else np.flatnonzero(free), n)
        else:
            rows = self._best_by_quotas(scores, free, self._quotas, n)
        return self._items.names_of(rows)

    def _best_by_quotas(
        self, scores: np.ndarray | None, free: np.ndarray | None, quotas: FloatArray, n: int
    ) -> IntArray:
        """The best n prompts, of each topic its quota; free: those that may be chosen."""
        topics = self._topics
        assert topics is not None
        limits = np.diff(topics.starts)
        if free is not None:
            limits = np.bincount(topics.code[free], minlength=len(limits))
        limits = limits * (quotas > 0)
        if n > limits.sum():
            must = f"at most {limits.sum()}, the prompts of the topics in `quotas`"
            raise argument_error("n", must, n)
        parts, place = [], []
        for k, count in enumerate(largest_remainder(quotas, n, limits)):
            if count:
                members = topics.rows[topics.starts[k] : topics.starts[k + 1]]
                members = members if free is None else members[free[members]]
                parts.append(self._best(scores, members, int(count)))
                place.append((np.arange(count) + 0.5) / count)
        # The topics in turn, so that the first ones have the quotas, too.
        return np.concatenate(parts)[np.argsort(np.concatenate(place), kind="stable")]

    def _quick_scores(self) -> np.ndarray | None:
        """Approximate scores of all prompts; None where all are alike."""
        if self._row.choice == "none":
            return None
        rng = self._rng if self._row.choice == "draw" else None
        scores = self._quick.usefulness(self._belief.theta_ahead, self._table, rng)
        if not self._belief.spread.is_equal:
            scores *= self._belief.spread.of().astype(np.float32)
        if self._rest > 0:
            rested(scores, self._belief.prompts.last, self.step + 1, self._rest)
        return scores

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
        exact = exact * (1 - self._belief.prompts.broken[rows])
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
        return self._rng.choice(np.setdiff1d(everyone, chosen), n, replace=False)

    def _exact_scores(self, rows: IntArray) -> FloatArray:
        """Usefulness with the bonus, less for prompts that were trained on lately."""
        logit, sd, _ = self._belief.logits(rows)
        mean, spread = self._table.moments(logit, sd)
        score: FloatArray = (mean + self.bonus * spread) * self._belief.spread.of(rows)
        if self._rest > 0:
            ages = self.step + 1 - self._belief.prompts.last[rows]
            score = score * -np.expm1(-ages / self._rest)
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
        rows = self._find(ids)
        outcomes = read_outcomes(
            successes,
            trials,
            rows=rows,
            names=self._items.names_of(rows),
            version=self._read_version(version, len(rows)),
            reward_range=self.reward_range,
            group_size=self.group_size,
        )
        self._belief.update(outcomes)
        self._refresh(outcomes.rows)
        self._refresh_some()

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
        values = as_numbers("rewards", rewards, len(rows))
        unique, group = np.unique(rows, return_inverse=True)
        place = pd.Series(group).groupby(group).cumcount().to_numpy()
        matrix = np.full((len(unique), place.max(initial=0) + 1), np.nan)
        matrix[group, place] = values
        if version is not None and np.ndim(version):
            versions = as_numbers("version", version, len(rows))
            first = np.full(len(unique), -1.0)
            first[group] = versions
            if (first[group] != versions).any():
                name = brief(self._items.names_of(rows)[int(np.argmax(first[group] != versions))])
                advice = "Pass those of each version in an update of its own."
                raise argument_error("version", "one for each prompt", f"two for {name}", advice)
            version = first
        self.update(self._items.names_of(unique), matrix, version=version)

    def gradient_probability(self, ids: Any) -> FloatArray:
        """Probability that the rewards of a group differ: ``E[1 - p^G - (1 - p)^G]``.

        For rewards other than 0 and 1 it is multiplied by the spread of the prompt.
        """
        rows = self._find(ids)
        logit, sd, _ = self._belief.logits(rows)
        curve = RULES["mixed"].curve
        mixed, _ = usefulness_moments(logit, sd, lambda p: curve(p, self.group_size, self.target))
        return mixed * self._belief.spread.of(rows)

    def _refresh(self, rows: IntArray) -> None:
        """Bring the quick scores of prompts up to date."""
        if len(rows):
            self._quick.refresh(rows, self._belief.theta_ahead, *self._belief.logits(rows))

    def _refresh_some(self) -> None:
        """Bring quick scores of the next prompts in turn up to date."""
        n = self._items.n
        size = min(n, max(2048, REFRESH // max(len(self._belief.policy.noise) // 4, 1)))
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
        return read_rewards(rewards, self._items.names_of(self._find(ids)), self.reward_range)

    def _read_version(self, version: Any, n: int) -> IntArray:
        """The step at which the prompts were chosen."""
        if version is None:
            return np.full(n, self.step)
        values = as_numbers("version", np.full(n, version) if np.ndim(version) == 0 else version, n)
        if not ((values >= 0) & (values <= self.step) & (values == np.floor(values))).all():
            must = f"whole numbers from 0 to {self.step}, the `step` when prompts were chosen"
            raise argument_error("version", must, version)
        return values.astype(np.int64)

    def reloaded(self, step: int | None = None) -> None:
        """Say that a checkpoint of the policy was reloaded, so that its ability jumped.

        Args:
            step: the step of the checkpoint, whose ability is in the history; None: unknown, the
                ability may be anywhere within about a logit.

        Raises:
            InputError: for a step that is not in the history.
        """
        if step is not None:
            check_count("step", step, 0, self.step)
        self._belief.reload(step)
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
        z, parts = NormalDist().inv_cdf(0.5 + level / 2), []
        for start in range(0, max(len(rows), 1), REFRESH):
            some = rows[start : start + REFRESH]
            logit, sd, _ = self._belief.logits(some)
            p, sd_p = probability_moments(logit, sd)
            low, high = (1 / (1 + np.exp(-(logit + side * z * sd))) for side in (-1, 1))
            useful, _ = self._table.moments(logit, sd)
            parts.append((p, sd_p, low, high, useful * self._belief.spread.of(some)))
        columns = map(np.concatenate, zip(*parts, strict=True))
        names = ("p", "sd", "low", "high", "usefulness")
        index = pd.Index(self._items.names_of(rows), name="item")
        return pd.DataFrame(dict(zip(names, columns, strict=True)), index=index)

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
        logit, sd, _ = self._belief.logits(rows)
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
        frame = pd.DataFrame(self._belief.history, columns=list(RECORD))
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
        starts = range(0, len(rows), REFRESH)
        parts = [self._belief.difficulties(rows[start : start + REFRESH]) for start in starts]
        for position, name in enumerate(("b", "se_b", "slope")):
            frame.insert(position, name, np.concatenate([part[position] for part in parts]))
        prompts = self._belief.prompts
        with np.errstate(invalid="ignore"):
            score = np.where(prompts.trials > 0, prompts.right / prompts.trials, np.nan)
        last: Any = pd.arrays.IntegerArray(prompts.last.astype(np.int64), prompts.last < 0)
        frame = frame.assign(
            visits=prompts.visits,
            trials=prompts.trials.astype(int),
            score=score,
            last=last,
            broken=prompts.broken,
        )
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
        return self._belief.prompts.suspects(self._items.names, threshold, prior)

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
        return {
            **STATE.head,
            "items": self._items.fingerprint,
            "n_items": self._items.n,
            "random": " ".join(f"{word:x}" for word in words),  # 128 bits: more than a number has
            "refreshed": self._refreshed,
            "quick_slope": self._quick.slope.copy(),
            "quick_centre": self._quick.centre.copy(),
            "quick_sd": self._quick.sd_code.copy(),
            **self._belief.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the mapping; arrays may be lists or tensors.

        Raises:
            InputError: it is of other prompts or another number of features or topics, or parts are
                missing. Nothing is changed then.
        """
        STATE.check_argument("state", state)
        missing = sorted(set(self.state_dict()) - set(state))
        if missing:
            raise argument_error("state", "what `state_dict` returned", f"no {missing[0]!r}")
        n = int(state["n_items"])
        if n != self._items.n:
            got = f"{n}, where this selector has {self._items.n}"
            raise argument_error("state", "of the same prompts", f"one with {got}")
        if str(state["items"]) != self._items.fingerprint:
            got = f"one with {n} other ids, or in another order"
            raise argument_error("state", "of the same prompts", got)
        arrays = {
            name: np.asarray(value)
            for name, value in state.items()
            if name not in ("format", "items", "random")
        }
        self._belief.load(arrays)
        self._refreshed = int(arrays["refreshed"])
        self._quick = QuickScores(
            arrays["quick_slope"].astype(np.float32),
            arrays["quick_centre"].astype(np.float32),
            arrays["quick_sd"].astype(np.uint8),
        )
        first, second, has_uint32, uinteger = (int(x, 16) for x in str(state["random"]).split())
        generator = np.random.default_rng()
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": first, "inc": second},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        self._rng = generator

    @cached_property
    def _positions(self) -> pd.Index:
        return pd.Index(self._items.names)


STATE = FileFormat("irtcat-selector", "a state of a selector", "Give what `state_dict` returned.")


def _read_range(reward_range: Any) -> tuple[float, float]:
    """The lowest and the highest reward."""
    bounds = tuple(reward_range) if isinstance(reward_range, (tuple, list)) else ()
    if len(bounds) != 2 or not all(map(is_number, bounds)) or not bounds[0] < bounds[1]:
        must = "the lowest and the highest reward, two finite numbers"
        raise argument_error("reward_range", must, reward_range)
    return float(bounds[0]), float(bounds[1])

"""What is believed of the policy and of all prompts, and how the outcomes of a step change it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray, IntArray
from irtcat.training.online.inputs import Items, Topics
from irtcat.training.online.moments import probability_moments, tilted
from irtcat.training.online.outcomes import Outcomes
from irtcat.training.online.policy import ABILITY, GAIN, TREND_SD, Past, Policy
from irtcat.training.online.prompts import ITEM_DRIFTS, RESIDUAL_SDS, Grid, Prompts, Spread
from irtcat.training.online.step import Locals, StepResult, filter_batch, linearise

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

JUMP_SD = 1.0
"""SD of the ability's jump when a checkpoint of an unknown step is reloaded."""

RECORD = (
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
"""What is recorded of each step (see `Selector.history`)."""


LEARNT = ("mean", "cov", "weight")
"""What a state has of the policy."""


class Belief:
    """What is believed of the policy and of all prompts after some steps (see `Selector`).

    Args:
        items: the prompts.
        features: their properties, or None.
        topics: their topics, or None; with more than `MOST_TOPICS` they do not count.

    Attributes:
        step: number of steps so far.
        policy: the policy's ability, and what prompts have in common.
        past: its ability at earlier steps.
        prompts: each prompt.
        spread: how much rewards differ within groups.
        residual: the SD of residual difficulties.
        item_drift: the share of their variance that is new in a step.
        residual_sd: the SD by which the prompts are kept, near the estimate.
        history: a record of each step.
    """

    def __init__(self, items: Items, features: np.ndarray | None, topics: Topics | None) -> None:
        self._items, self._features = items, features
        has_means = topics is not None and 1 < len(topics.names) <= MOST_TOPICS
        self._topics = topics if has_means else None
        self.step = 0
        self.prompts = Prompts.start(items.n)
        self.spread = Spread(*np.zeros((2, items.n), np.float32))
        self.policy = self._prior_policy()
        dims = len(self.policy.noise)
        self.past = Past(shift=np.zeros(1), var=np.zeros(1), cross=np.zeros((1, dims)))
        self._cache: tuple[Policy, tuple[FloatArray, FloatArray, Past, FloatArray]] | None = None
        self.residual = Grid(RESIDUAL_SDS, *RESIDUAL_PRIOR[items.prior.b is not None])
        self.item_drift = Grid(ITEM_DRIFTS, *DRIFT_PRIOR)
        self.residual_sd = self.residual.estimate
        self.history: list[dict[str, float]] = []

    def _prior_policy(self) -> Policy:
        """Ability, gain, scale of known difficulties, features, topics."""
        ability = (self._items.centre, ABILITY_SD**2, 1.0)
        parts = [ability, (0.0, GAIN_SD**2, GAIN_NOISE**2), (0.0, TREND_SD**2, 0.0)]
        if self._items.prior.b is not None:
            parts.append((1.0, SCALE_SD**2, 0.0))
        if self._features is not None:
            n = self._features.shape[1]
            parts += [(0.0, FEATURE_SD**2 / n, FEATURE_NOISE**2 / n)] * n
        if self._topics is not None:
            parts += [(0.0, TOPIC_SD**2, TOPIC_NOISE**2)] * len(self._topics.names)
        return Policy.start(parts)

    def _loading(self, rows: IntArray) -> FloatArray:
        """How the policy's state enters the logits of prompts."""
        n = len(rows)
        trained = self.prompts.trained[rows, None].astype(float)
        parts = [np.ones((n, 1)), trained, np.zeros((n, 1))]  # ability, gain, trend
        if self._items.prior.b is not None:
            parts.append(self._items.centre - self._items.prior.b[rows, None].astype(float))
        if self._features is not None:
            parts.append(-self._features[rows].astype(float))
        if self._topics is not None:
            codes = self._topics.code[rows, None]
            parts.append(-(codes == np.arange(len(self._topics.names))).astype(float))
        return np.concatenate(parts, axis=1)

    def _at(
        self,
        rows: IntArray,
        step: int,
        residual_sd: float | None = None,
        drift: float | None = None,
    ) -> Locals:
        """What is believed of prompts at a step, also with another residual SD or drift."""
        _, _, past, on_today = self.ahead
        sd = self.residual_sd if residual_sd is None else residual_sd
        drift = self.item_drift.estimate if drift is None else drift
        return self.prompts.belief(rows, self._items.prior, step, sd, drift, past, on_today)

    def logits(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and SD of prompts' logits in the coming step, and their slopes."""
        mean, cov, _, _ = self.ahead
        loading = self._loading(rows)
        local = self._at(rows, self.step + 1)
        linear = linearise(loading @ mean - self._items.centre, local)
        loading -= local.tied
        var = linear.var_local + linear.slope**2 * np.einsum("ij,ij->i", loading @ cov, loading)
        return linear.mean, np.sqrt(var), linear.slope

    @property
    def ahead(self) -> tuple[FloatArray, FloatArray, Past, FloatArray]:
        """The policy in the coming step.

        Mean and covariance of its state, earlier abilities, and their regression on the state.
        """
        cached = self._cache
        if cached is None or cached[0] is not self.policy:
            mean, cov = self.policy.predicted().moments
            past = self.past.predicted()
            cached = (self.policy, (mean, cov, past, past.coefficients(cov)))
            self._cache = cached
        return cached[1]

    @property
    def theta_ahead(self) -> float:
        """The policy's ability in the coming step."""
        return float(self.ahead[0][ABILITY])

    @property
    def theta(self) -> float:
        """The policy's ability after the last step."""
        return float(self.policy.moments[0][ABILITY])

    @property
    def se(self) -> float:
        """Its standard error."""
        return float(np.sqrt(self.policy.moments[1][ABILITY, ABILITY]))

    def difficulties(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Difficulties of prompts, their standard errors, and slopes."""
        mean, cov, _, _ = self.ahead
        loading = self._loading(rows)
        loading[:, ABILITY] = 0.0  # difficulty is the ability at which the logit is 0
        local = self._at(rows, self.step + 1)
        b = self._items.centre - loading @ mean + local.e
        loading -= local.tied
        se = np.sqrt(np.einsum("ij,ij->i", loading @ cov, loading) + local.var_e)
        return b, se, np.exp(local.alpha)

    def update(self, outcomes: Outcomes) -> None:
        """Learn from the outcomes of a step, and record it; without any, only time passes."""
        step = self.step + 1
        ahead = self.policy.predicted()
        rollouts = float(outcomes.trials.sum())
        record: dict[str, float] = {"step": step, "n": len(outcomes.rows), "rollouts": rollouts}
        if len(outcomes.rows):
            record |= self._learn(ahead, outcomes, step)
        else:
            moments = ahead.moments
            self.past = self.past.predicted().updated(moments, moments)
            self.policy = ahead
        self.step = step
        record |= {
            "theta": self.theta,
            "se": self.se,
            "drift": self.policy.drift,
            "residual_sd": self.residual_sd,
            "item_drift": self.item_drift.estimate,
            "gain": float(self.policy.moments[0][GAIN]),
        }
        self.history.append(record)

    def reload(self, step: int | None) -> None:
        """The policy is that of an earlier step again; None: its ability jumped."""
        if step is None:
            self.policy = self.policy.moved(None, JUMP_SD**2)
            return
        if step == 0:
            start = self._prior_policy()
            var = float(start.cov[0, ABILITY, ABILITY])
            self.policy = self.policy.moved(float(start.mean[0, ABILITY]), var)
        else:
            mean = self.history[step - 1]["theta"] + float(self.past.shift[step])
            self.policy = self.policy.moved(mean, float(self.past.var[step]))
        self.past = self.past.moved()

    def state(self) -> dict[str, Any]:
        """Everything that was learnt, as arrays and numbers."""
        history = [[row.get(name, np.nan) for name in RECORD] for row in self.history]
        return {
            "step": self.step,
            **{f"policy_{name}": getattr(self.policy, name).copy() for name in LEARNT},
            **{f"past_{name}": array.copy() for name, array in vars(self.past).items()},
            "residual_log_weight": self.residual.log_weight.copy(),
            "item_drift_log_weight": self.item_drift.log_weight.copy(),
            "residual_sd": self.residual_sd,
            "history": np.array(history, float).reshape(-1, len(RECORD)),
            "spread_within": self.spread.within.copy(),
            "spread_most": self.spread.most.copy(),
            **{f"prompts_{name}": array.copy() for name, array in vars(self.prompts).items()},
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `state` returned.

        Raises:
            InputError: it is of another number of prompts, features or topics. Nothing is changed
                then.
        """
        if state["policy_mean"].shape != self.policy.mean.shape:
            must = "of a selector with the same features, topics and known difficulties"
            raise argument_error("state", must, f"another number ({state['policy_mean'].shape})")
        n = self._items.n
        for name in vars(self.prompts):
            if state[f"prompts_{name}"].shape != (n,):
                must = f"with {n} numbers in prompts_{name}"
                raise argument_error("state", must, f"shape {state[f'prompts_{name}'].shape}")
        self.step = int(state["step"])
        learnt = {name: state[f"policy_{name}"].astype(float) for name in LEARNT}
        self.policy = replace(self.policy, **learnt)
        self.past = Past(*(state[f"past_{name}"].astype(float) for name in vars(self.past)))
        for name, array in list(vars(self.prompts).items()):
            setattr(self.prompts, name, state[f"prompts_{name}"].astype(array.dtype))
        self.residual.log_weight = state["residual_log_weight"].astype(float)
        self.item_drift.log_weight = state["item_drift_log_weight"].astype(float)
        self.residual_sd = float(state["residual_sd"])
        self.spread = Spread(state["spread_within"], state["spread_most"])
        history = state["history"].astype(float).reshape(-1, len(RECORD))
        self.history = [dict(zip(RECORD, row.tolist(), strict=True)) for row in history]

    def _level_of(
        self, rows: IntArray, version: IntArray, local: Locals
    ) -> tuple[FloatArray, FloatArray, Locals]:
        """How the policy's state enters the logits of prompts, and what is subtracted.

        Answers of an older policy depend on the ability of its step: the regression of that ability
        on the state of today, and what it leaves.
        """
        loading = self._loading(rows)
        offset = np.full(len(rows), self._items.centre)
        older = np.flatnonzero(version < self.step)
        if not len(older):
            return loading, offset, local
        mean, _, past, on_today = self.ahead
        then = version[older] + 1
        theta = np.array([self.history[step - 1]["theta"] for step in then]) + past.shift[then]
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
        prompts = self.prompts
        rows, right, trials = outcomes.rows, outcomes.right, outcomes.trials
        mean, cov, past, _ = self.ahead
        loading, offset, local = self._level_of(rows, outcomes.version, self._at(rows, step))
        result = filter_batch(mean, cov, loading, offset, local, right, trials)
        after = ahead.updated(result.precision, result.shift)
        is_new = prompts.last[rows] < 0
        for chosen, grid in ((is_new, self.residual), (~is_new, self.item_drift)):
            some = np.flatnonzero(chosen)[:EVIDENCE_PROMPTS]
            if len(some):
                name = "residual_sd" if grid is self.residual else "drift"
                beliefs = [self._at(rows[some], step, **{name: value}) for value in grid.values]
                grid.add(_evidence(beliefs, result, right, trials, some))
        p, _ = probability_moments(result.before[0], np.sqrt(result.before[1]))
        prompts.count(outcomes, result, local.var_e, p)
        # the mixture of speeds has another mean than the single Normal of the batch
        apart = float(after.moments[0][ABILITY] - result.mean[ABILITY])
        local_after = replace(result.local, e=result.local.e + result.tie * apart)
        prompts.store(rows, local_after, result.tie, step)
        self.policy, self.past = after, past.updated((mean, cov), after.moments)
        prompts.trained[rows] = outcomes.strength
        if outcomes.within is not None and outcomes.most is not None:
            self.spread.add(rows, outcomes.within, outcomes.most)
        prompts.broken[rows] = prompts.reasons(rows).sum(axis=1)
        estimate = self.residual.estimate
        if abs(np.log(estimate / self.residual_sd)) > RESIDUAL_CHANGE:
            prompts.rescale(self._items.prior, self.residual_sd, estimate)
            self.residual_sd = estimate
        clipped = np.clip(p, 1e-12, 1 - 1e-12)
        loss = -(right * np.log(clipped) + (trials - right) * np.log1p(-clipped)).sum()
        return {
            "score": float(right.sum() / trials.sum()),
            "predicted": float((p * trials).sum() / trials.sum()),
            "log_loss": float(loss / trials.sum()),
            "mixed": float(outcomes.has_gradient.mean()),
        }


def _evidence(
    beliefs: list[Locals], result: StepResult, right: FloatArray, trials: FloatArray, rows: IntArray
) -> FloatArray:
    """Log probability of the data of some prompts of a batch by each of several beliefs of them."""
    out = np.empty(len(beliefs))
    for k, local in enumerate(beliefs):
        linear = linearise(result.level[rows], local)
        var = linear.var_local + linear.slope**2 * result.var_level[rows]
        out[k] = tilted(linear.mean, var, right[rows], trials[rows]).log_z.sum()
    return out

"""How much of a model's score is the luck of one run: from trials, a second run, or an ICC."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from irtcat._common.checks import argument_error, is_number
from irtcat._common.types import FloatArray, IntArray
from irtcat.io.convert import as_responses_like
from irtcat.prediction.intervals import Variance, sum_variance, total_of
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

LEAST_REPEATED = 0.5
"""Least share of the items with two trials from which the noise of the others is taken."""

MIN_NUMBERED = 3
"""Numbered trials from which effects of whole runs and of single answers are estimated apart."""

NOTED = 0.05
"""Effects of whole runs are noted below this p-value. They are added whenever the trials' means
vary more than single answers explain: a test of them from three trials has no power."""


FEW_SEEDS = 4
"""Below it a recipe's variance over seeds is often far too small by chance, and where the other
recipe has many more seeds Welch's degrees of freedom do not make up for it: of equal recipes with
two and ten seeds 11 % differed at .05, with two and twenty 13 %."""


class Answers(NamedTuple):
    """One model's scores on some items.

    Attributes:
        mean: over its trials, from 0 to 1; NaN where missing.
        n_trials: number of trials of each, 0 where missing.
        scores: items x trials by trial number, NaN where missing; None if only means are known.
    """

    mean: FloatArray
    n_trials: IntArray
    scores: FloatArray | None

    def at(self, items: Any) -> "Answers":
        """The answers to some of the items."""
        scores = None if self.scores is None else self.scores[items]
        return Answers(self.mean[items], self.n_trials[items], scores)

    @property
    def is_repeated(self) -> bool:
        """Whether the noise of single answers is identified."""
        return bool(np.mean(self.n_trials >= 2) >= LEAST_REPEATED)

    @property
    def variances(self) -> FloatArray:
        """Variance of one trial of each item; that of the mean item where there is one trial."""
        r = np.where(self.n_trials >= 2, self.n_trials, np.nan)
        if self.scores is None:
            found = self.mean * (1 - self.mean) * r / (r - 1)
        else:
            spread = np.nansum((self.scores - self.mean[:, None]) ** 2, axis=1)
            found = spread / (r - 1)
        return np.where(np.isnan(found), np.nanmean(found), found)

    def run_means(self, weights: FloatArray) -> FloatArray | None:
        """Weighted mean deviation of each numbered trial from the items' means; None if unknown."""
        if self.scores is None or self.scores.shape[1] < MIN_NUMBERED:
            return None
        deviations = self.scores - self.mean[:, None]
        used = ~np.isnan(deviations).any(axis=1)
        if np.mean(used) < LEAST_REPEATED:
            return None
        return np.asarray(weights[used] @ deviations[used] / weights[used].sum())


Weighted = tuple[Answers, FloatArray]
"""A model's answers, and the weights of their items, which sum to 1."""


class Noise(NamedTuple):
    """Variance of a difference of two models' means over items that is due to their runs.

    Attributes:
        answers: due to single answers.
        runs: due to effects of whole runs, which move all answers of a trial.
        flags: what is not identified, or was found.
    """

    answers: Variance
    runs: Variance
    flags: tuple[str, ...]


class Reliability(NamedTuple):
    """The share of the variance of single answers over items that a rerun repeats (ICC)."""

    icc: float
    df: float


NO_VARIANCE = Variance(0.0, np.inf)


def noise_of(
    new: Answers,
    old: Answers,
    weights: FloatArray,
    clusters: IntArray | None,
    reruns: Reliability | None,
    ratio: float = 1.0,
) -> Noise | None:
    """The variance that reruns of both models on these items would have; None if unknown.

    With weights w, v_i the variance of the r_i trials of item i within a model, summed over both

        V = sum_i w_i^2 v_i / r_i,

    or, within clusters that share a run (numbered trials t), ``sum_g sum_t (sum_{i in g} w_i (x_it
    - x_i.))^2 / (r (r - 1))``. For a model with one trial ``v = (1 - ICC) s^2``, s^2 the variance
    of its answers over the items. An odd trial of one more item is added to each model, among the
    terms of the degrees of freedom too, so that equal answers in all trials do not give 0.

    Args:
        new: answers of the new model to the items run.
        old: those of the old one.
        weights: of the items; they sum to 1.
        clusters: number of the cluster of each item.
        reruns: what is known of the models with one trial.
        ratio: R, for the variance of new - R old.
    """
    models = (new, old)
    if not all(model.is_repeated or reruns is not None for model in models):
        return None
    square = float(weights @ weights)
    terms, odd, flags = [], [], []
    for model, factor in zip(models, (1.0, ratio**2), strict=True):
        r = np.maximum(model.n_trials, 1)
        if model.is_repeated:
            terms.append(factor * _cluster_terms(model, weights, clusters))
            odd.append(factor * square**2 / float(np.median(r)) ** 2)
        else:
            assert reruns is not None
            terms.append(factor * weights**2 * (_answer_variance(model, weights, reruns) / r))
            odd.append(factor * square**2 * (1 - reruns.icc))
    if len(terms[0]) == len(terms[1]):
        noise = sum_variance(np.r_[terms[0] + terms[1], odd])
    else:
        noise = total_of(*(sum_variance(np.r_[a, b]) for a, b in zip(terms, odd, strict=True)))
    if reruns is not None and not (new.is_repeated and old.is_repeated):
        noise = Variance(noise.value, min(noise.df, reruns.df))
    single = [np.count_nonzero(model.n_trials == 1) for model in models if model.is_repeated]
    if any(single):
        flags.append(
            f"{max(single)} of {len(weights)} items have one trial: its noise is taken to be that "
            "of the mean item with more"
        )
    runs, note = _run_effects([(model, weights) for model in models], terms, (1.0, ratio**2))
    if any(model.is_repeated for model in models):
        flags += [note] if note else []
    return Noise(Variance(noise.value, max(noise.df, 1.0)), runs, tuple(flags))


def _cluster_terms(model: Answers, weights: FloatArray, clusters: IntArray | None) -> FloatArray:
    """Noise of the weighted mean by item, or by cluster where trials are numbered and complete."""
    if clusters is None or model.scores is None or np.isnan(model.scores).any():
        return np.asarray(weights**2 * model.variances / np.maximum(model.n_trials, 1))
    r = model.scores.shape[1]
    deviations = weights[:, None] * (model.scores - model.mean[:, None])
    totals = np.zeros((clusters.max() + 1, r))
    np.add.at(totals, clusters, deviations)
    return (totals**2).sum(axis=1) / (r * (r - 1))


def _answer_variance(model: Answers, weights: FloatArray, reruns: Reliability) -> float:
    """Variance of an answer in a rerun of a model with one trial, ``(1 - ICC) s^2``."""
    spread = float(weights @ (model.mean - weights @ model.mean) ** 2)
    return (1 - reruns.icc) / (1 - 1 / max(len(weights), 2)) * spread


def noise_of_score(
    model: Answers, weights: FloatArray, reruns: Reliability | None
) -> Variance | None:
    """The variance that other answers in a rerun give a model's weighted mean; None if unknown.

    That of `noise_of` for one model, with one trial of one more item that is odd.

    Args:
        model: its answers.
        weights: of the items; they sum to 1.
        reruns: what is known of models with one trial.
    """
    effective = 1 / float(weights @ weights)
    if model.is_repeated:
        answers = sum_variance(_cluster_terms(model, weights, None))
        odd = 1 / float(np.median(np.maximum(model.n_trials, 1))) ** 2
    elif reruns is not None:
        variance = _answer_variance(model, weights, reruns) / effective
        answers, odd = Variance(variance, reruns.df), 1 - reruns.icc
    else:
        return None
    value = (effective**2 * answers.value + odd) / (effective + 1) ** 2
    return Variance(value, max(answers.df, 1.0))


def run_effect(models: Sequence[Weighted]) -> Variance:
    """The variance that effects of whole runs give a model's weighted mean, over all models.

    Those without numbered trials say nothing.
    """
    numbered = [
        (model, w) for model, w in models if model.is_repeated and model.run_means(w) is not None
    ]
    if not numbered:
        return NO_VARIANCE
    terms = [_cluster_terms(model, w, None) for model, w in numbered]
    effect, _ = _run_effects(numbered, terms, [1.0] * len(numbered))
    return effect.times(1 / len(numbered))


def unexplained_variance(values: FloatArray, shares: FloatArray) -> float:
    """Variance that items' shares right leave of a model's answers: at least their mean noise.

    The residual variance of a regression of the answers on the shares: answers at random have no
    part that a covariate of the items explains.
    """
    centred = shares - shares.mean()
    square = float(centred @ centred)
    residual = values - values.mean()
    if square > 0:
        residual = residual - centred * float(centred @ residual) / square
    return float(residual @ residual) / max(len(values) - 2, 1)


def judge_effect(
    difference: FloatArray, weights: FloatArray, items: IntArray, judges: IntArray
) -> Variance:
    """Variance that other judges give a mean difference: ``s^2 / J`` of the J judges' own.

    Over the items that all judges judged. It has the noise of single judgements too, which the
    variance over items has once more: an estimate of what is above that would be 0 too often.

    Args:
        difference: of two models' scores, for each judgement.
        weights: of the judgements.
        items: number of the item of each.
        judges: number of the judge of each.
    """
    total, mass = np.zeros((2, int(items.max()) + 1, int(judges.max()) + 1))
    np.add.at(total, (items, judges), weights * difference)
    np.add.at(mass, (items, judges), weights)
    scores = np.divide(total, mass, out=np.full(mass.shape, np.nan), where=mass > 0)
    share = np.zeros(len(scores))
    np.add.at(share, items, weights)
    complete = ~np.isnan(scores).any(axis=1)
    n_judges = scores.shape[1]
    if not complete.any():
        return NO_VARIANCE
    means = share[complete] @ scores[complete] / share[complete].sum()
    return Variance(float(means.var(ddof=1)) / n_judges, n_judges - 1)


def seed_variance(recipe: Answers, weights: FloatArray) -> Variance:
    """Variance of a recipe's mean score over its S models: ``s^2 / S``, with S - 1 df.

    Where all have equal scores it is that of one other answer of one model, not 0.

    Example:
        >>> scores = np.array([[0.0, 1.0], [1.0, 1.0]])
        >>> seed_variance(Answers(scores.mean(axis=1), np.array([2, 2]), scores), np.full(2, 0.5))
        Variance(value=0.0625, df=1)
    """
    assert recipe.scores is not None
    means = weights @ recipe.scores
    value = float(means.var(ddof=1)) / len(means)
    one_answer = float(weights @ weights) / len(means)
    return Variance(value or one_answer**2, len(means) - 1)


def seed_variances(
    first: Answers, second: Answers, weights: FloatArray
) -> tuple[Variance, Variance]:
    """`seed_variance` of two recipes, the one with two or three seeds at least as the other one.

    Only where the other one has more than twice as many: its models show what a seed changes.
    """
    found = [seed_variance(first, weights), seed_variance(second, weights)]
    few = 0 if found[0].df < found[1].df else 1
    n_few, n_more = found[few].df + 1, found[1 - few].df + 1
    other = found[1 - few].times(n_more / n_few)
    if n_few < min(FEW_SEEDS, n_more / 2) and other.value > found[few].value:
        found[few] = other
    return found[0], found[1]


def _run_effects(
    models: Sequence[Weighted], terms: list[FloatArray], factors: Sequence[float]
) -> tuple[Variance, str]:
    """The variance of effects of whole runs, if the trials' means show them, and a flag.

    The variances of each model, whose ``terms`` are, count by their factor.
    """
    known = [model.run_means(weights) for model, weights in models]
    if any(means is None for means in known):
        return (
            NO_VARIANCE,
            "effects of whole runs are not identified: they need three numbered trials",
        )
    excess, total, ratio, df = 0.0, 0.0, 0.0, 0
    for means, term, factor in zip(known, terms, factors, strict=True):
        assert means is not None
        r = len(means)
        expected = float(term.sum()) * r  # of one trial
        observed = factor * float(means @ means) / (r - 1)
        excess += (observed - expected) / r
        total += observed / r
        ratio += (r - 1) * observed / max(expected, 1e-300)
        df += r - 1
    if excess <= 0:
        return NO_VARIANCE, ""
    p_value = float(fdtrc(df, max(len(models[0][1]) - 1, 1), ratio / df))
    points = f"{100 * np.sqrt(excess):.2f} points"
    note = f"whole runs differ by more than their answers (p {p_value:.2g}): SE of {points} added"
    # The excess has the error of the trials' variance, relative to its own, smaller size. With df
    # itself 7 % of the verdicts on equal models were false (experiments/reruns).
    return Variance(excess, df * (excess / total) ** 2), note if p_value < NOTED else ""


def read_reruns(
    reruns: Any, sources: tuple[Responses, ...], reference: Responses, mismatch: str
) -> Reliability | None:
    """What is known of one run, of responses of any kind; see `reliability_of`.

    Args:
        reruns: what the user gave.
        sources: responses of the first runs.
        reference: responses that say under which conditions the items are answered.
        mismatch: "refuse", or "accept" other conditions.
    """
    if isinstance(reruns, Responses):
        check_conditions(reference.items, reruns.items, mismatch, name="reruns")
    elif reruns is not None and not isinstance(reruns, str) and not is_number(reruns):
        reruns = as_responses_like(reruns, "reruns", reference)
    return reliability_of(reruns, sources)


def reliability_of(reruns: Any, sources: tuple[Responses, ...]) -> Reliability | None:
    """What is known of one run: from a second run of any model, an ICC, or "deterministic".

    ``ICC = 1 - sum_m v_m / sum_m s_m^2``, v_m the mean of ``(x - x')^2 / 2`` over the items that
    model m answered in both runs (with one more item that differs by one), s_m^2 the variance of
    its answers over items.

    Raises:
        InputError: for anything else, or runs without common models and items.
    """
    if reruns is None:
        return None
    if isinstance(reruns, str) and reruns == "deterministic":
        return Reliability(1.0, np.inf)
    if is_number(reruns):
        if not 0 <= reruns <= 1:
            raise argument_error("reruns", "an ICC between 0 and 1", reruns)
        return Reliability(float(reruns), np.inf)
    if not isinstance(reruns, Responses):
        must = 'Responses of a second run, an ICC from 0 to 1 or "deterministic"'
        raise argument_error("reruns", must, reruns)
    within, total, n, squares = 0.0, 0.0, 0, 0.0
    for name in reruns.subject_ids:
        source = next((source for source in sources if name in source), None)
        if source is None:
            continue
        first, second = _common_scores(source, reruns, name)
        if len(first) < 2:
            continue
        apart = (first - second) ** 2 / 2
        within += (apart.sum() + 0.5) / (len(apart) + 1)
        total += (first.var(ddof=1) + second.var(ddof=1)) / 2
        squares += float(apart.var(ddof=1)) / len(apart)
        n += len(first)
    if not n:
        must = "a second run of a model of responses, with at least 2 of its items"
        raise argument_error("reruns", must, f"{reruns.n_subjects} models without any")
    icc = float(np.clip(1 - within / total, 0, 1)) if total > 0 else 0.0
    return Reliability(icc, max(2 * within**2 / squares, 1.0) if squares > 0 else float(n))


def _common_scores(
    source: Responses, reruns: Responses, name: str
) -> tuple[FloatArray, FloatArray]:
    """A model's scores in two runs, from 0 to 1, on the items of both."""
    common = pd.Index(source.item_ids).intersection(pd.Index(reruns.item_ids), sort=False)
    if not len(common):
        return np.empty(0), np.empty(0)
    low = min(source.codes[0], reruns.codes[0])
    top = max(source.codes[-1], reruns.codes[-1]) - low
    runs = [
        (run.subset(subjects=[name], items=list(common)).to_numpy()[0] + run.codes[0] - low)
        / max(top, 1)
        for run in (source, reruns)
    ]
    both = ~np.isnan(runs[0]) & ~np.isnan(runs[1])
    return runs[0][both], runs[1][both]

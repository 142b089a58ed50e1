"""Reruns: how much of a score another run of the same model would change.

Components of variance of trials by number (subject, item, subject x item, run, trial), and what
follows from them: the noise of a score, items that flip, pass@k and pass^k.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc, stdtrit

from irtcat._common.checks import InputError, argument_error, check_count, check_interval
from irtcat._common.types import BoolArray, FloatArray
from irtcat.io import as_responses
from irtcat.responses import BASE_ITEM, Responses
from irtcat.responses.judgements import mean_over_facets

FEWEST_RUNS = 3
"""A subject with fewer numbered trials says nothing of the run effect: with two, its one difference
of two runs is all there is."""

ALPHA_RUN = 0.05
"""Level at which the variance of whole runs differs from 0."""

SOURCES = ("subject", "item", "subject x item", "run", "trial")
"""Sources of variance, in the order of the table."""


class TrialCells(NamedTuple):
    """Moments of the trials of each response, subjects x items; NaN without a trial.

    Attributes:
        n: number of trials.
        mean: their mean.
        square: mean of their squares.
        variance: their variance (divisor n - 1); NaN where n is 1.
        flip: mean absolute difference of two of them; NaN where n is 1.
    """

    n: FloatArray
    mean: FloatArray
    square: FloatArray
    variance: FloatArray
    flip: FloatArray


@dataclass(frozen=True, eq=False)
class Reruns:
    """What reruns say: components of variance, noise of scores, items that flip.

    Attributes:
        components: one row per source ("subject", "item", "subject x item", "run", "trial"):
            variance, which may be negative where the true one is near 0, and NaN where it is not
            identified; lower and upper ends of its interval; share of the sum (0 if negative).
        subjects: one row per subject (see `to_frame`).
        items: one row per item, those that flip most first: flip_rate, the mean over subjects;
            n_subjects with two trials or more; n_flipping, those of which two trials differ.
        passes: indexed by subject and k: pass_at_k, the probability that one of k trials is right,
            and pass_hat_k, that all of them are, on a random item, with intervals (_lower, _upper);
            n_items with k trials. Empty for scores other than right and wrong.
        icc: share of the variance of one subject's trials that is due to the items: the
            correlation of two runs over items. 0: only chance; 1: no run differs from another.
        icc_interval: its interval.
        flip_rate: probability that two trials of a response differ; of scores other than right and
            wrong their mean absolute difference.
        flip_rate_interval: its interval.
        noise_floor: standard error of the full score of one run due to reruns, in points: root mean
            square over subjects.
        p_run: p-value of a variance of whole runs of 0; NaN where it is not identified. Noise has
            whole runs in it where this is below .05, as a positive estimate by chance would add to
            the noise of every score.
        level: probability of the intervals.
        flags: what is not identified, and why.
    """

    components: pd.DataFrame
    subjects: pd.DataFrame
    items: pd.DataFrame
    passes: pd.DataFrame
    icc: float
    icc_interval: tuple[float, float]
    flip_rate: float
    flip_rate_interval: tuple[float, float]
    noise_floor: float
    p_run: float
    level: float
    flags: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per subject.

        Returns:
            Indexed by subject: n_trials, the mean number per item; score; noise, the standard error
            of the score of one run due to reruns, in points; icc; trial_variance, the mean variance
            of the trials of an item; flip_rate; n_flipping, the number of items of which two trials
            differ. NaN for subjects without repeated trials.
        """
        return self.subjects.copy()

    def __repr__(self) -> str:
        return (
            f"Reruns(ICC {self.icc:.2f}, {100 * self.flip_rate:.1f} % of answers flip, "
            f"noise floor {self.noise_floor:.2f} points)"
        )

    def __str__(self) -> str:
        twice = 1.96 * np.sqrt(2) * self.noise_floor
        whole = "Whole runs do not differ more than by chance"
        if np.isnan(self.p_run):
            whole = "Whether whole runs differ is not known"
        elif self.p_run < ALPHA_RUN:
            whole = "Whole runs differ more than by chance"
        p = "" if np.isnan(self.p_run) else f" (p = {self.p_run:.2g})"
        return (
            f"A rerun changes {100 * self.flip_rate:.1f} % of the answers. The score of a run has "
            f"a standard error of {self.noise_floor:.2f} points from reruns alone: two runs of one "
            f"model differ by more than {twice:.1f} points in 1 of 20 cases. {whole}{p}."
        )


def reruns(
    responses: Any,
    *,
    k: Iterable[int] | None = None,
    n: int = 200,
    seed: int = 0,
    level: float = 0.95,
) -> Reruns:
    """Estimate what repeated trials of the same subjects and items vary by.

    A trial is ``x_mit = mu + S_m + I_i + (SI)_mi + R_mt + e_mit``: subject, item, their
    interaction, the run (what trial t of a subject shares on all items, such as a server that was
    down) and the rest. The components of variance are estimated from pairs of trials, whose half
    squared difference has the sum of the components that they do not share as expectation: for
    complete data these are the estimates of the analysis of variance; trials and items may be
    missing. The run needs trials by number (see `Responses.from_trials`), of a subject with three
    or more; without them it is taken for 0, and a flag says so.

    The standard error of a score of N items due to reruns has the square ``V_run + V_trial / N``
    for one run, V_trial of each subject itself, and V_run where it differs from 0 (``p_run`` below
    .05, by the chi-square distribution of the variance of a subject's run means). For c of n trials
    right, k of them are all right with probability ``C(c, k) / C(n, k)``, and one is with
    ``1 - C(n - c, k) / C(n, k)``: unbiased estimates, of which the mean over items is taken.

    Intervals are for items like these: percentiles over resamples of the items for the components
    and ICC, and Wilson's interval with the observed variance over items for the flip rate, pass@k
    and pass^k. Where answers hardly flip, or never, resamples show too little noise: of right and
    wrong answers the trial variance is half the flip rate, so that its upper end is at least half
    that of the flip rate, and the ICC has a lower end to match. They do not count that the subjects
    are few.

    Of responses with facets, such as judges, the trials of an item are the means over its facets:
    those of one answer are no reruns of each other. `judges` is for these, and `combine_judges`
    gives decisions by majority, which have pass@k and pass^k.

    Args:
        responses: responses with repeated trials, by number or counted; any number of them per
            response.
        k: numbers of trials for pass@k and pass^k; by default 1, 2, 4, ... up to a subject's usual
            number of trials, and that number.
        n: number of resamples of the items, at least 2.
        seed: seed of the resamples.
        level: probability of the intervals.

    Returns:
        The components and their consequences; see `Reruns`.

    Raises:
        InputError: for responses without two trials of anything, or a number out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.beta(1, 1, (4, 200))
        >>> r = Responses.from_trials(rng.random((4, 200, 5)) < p[:, :, None])
        >>> reruns(r)
        Reruns(ICC 0.32, 33.9 % of answers flip, noise floor 2.91 points)
        >>> reruns(r).components["variance"].round(2).to_dict()
        {'subject': -0.0, 'item': -0.0, 'subject x item': 0.08, 'run': -0.0, 'trial': 0.17}

    References:
        Koch (1968), Some further remarks concerning "A general approach to the estimation of
        variance components", Technometrics 10; Chen et al. (2021), Evaluating Large Language
        Models Trained on Code, section 2.1 (pass@k); Yao et al. (2024), tau-bench: A Benchmark
        for Tool-Agent-User Interaction in Real-World Domains (pass^k).
    """
    data = as_responses(responses, name="responses")
    check_count("n", n, 2)
    check_interval("level", level)
    sizes = None if k is None else _sizes_of(k)
    if data.trials is None:
        advice = "Build them with Responses.from_trials, or from a table with a column of trials."
        if BASE_ITEM in data.items:
            advice = "For judges of one answer of each model see irtcat.diagnose.judges."
        raise argument_error("responses", "responses with repeated trials", data.kind, advice)
    flags: list[str] = []
    if BASE_ITEM in data.items:
        data = mean_over_facets(data)
        flags.append("trials are means over the facets of an item, such as its judges")
    cells = moments(data)
    if not (cells.n > 1).any():
        raise argument_error("responses", "responses with two trials of an item", "one of each")
    check_count("seed", seed, 0)
    weights = resampled_weights(data.n_items, n, np.random.default_rng(seed))
    parts, p_run = components_of(cells, data.trial_values, weights)
    if np.isnan(p_run):
        flags.append(_no_run(data))
    tails = [(1 - level) / 2, (1 + level) / 2]
    components = components_table(parts, SOURCES, tails)
    flip = _weighted_mean(cells.flip, weights)
    n_repeated = int((cells.n > 1).any(axis=0).sum())
    usable = flip[1:][np.isfinite(flip[1:])]
    square = float(usable.var()) if len(usable) else 0.0
    flip_ends = _wilson_ends(float(flip[0]), square, n_repeated, level)
    icc = _icc(parts)
    icc_ends = _interval(icc, tails)
    if data.is_counted:
        most = flip_ends[1] / 2
        is_trial = components.index == "trial"
        components["upper"] = components["upper"].where(~is_trial, components["upper"].clip(most))
        noisy = {**{name: value[:1] for name, value in parts.items()}, "trial": np.array([most])}
        icc_ends = min(icc_ends[0], float(_icc(noisy)[0])), icc_ends[1]
    subjects = _subjects(cells, run_variance(components, p_run), data)
    if (few := int(subjects["noise"].isna().sum())) > 0:
        flags.append(f"{few} of {data.n_subjects} subjects have no repeated trials")
    if not data.is_counted:
        flags.append("pass@k and pass^k are for right and wrong answers")
    return Reruns(
        components=components,
        subjects=subjects,
        items=_items(cells, data),
        passes=_passes(cells, data, sizes, level),
        icc=float(icc[0]),
        icc_interval=icc_ends,
        flip_rate=float(flip[0]),
        flip_rate_interval=flip_ends,
        noise_floor=float(np.sqrt(np.nanmean(subjects["noise"] ** 2))),
        p_run=p_run,
        level=float(level),
        flags=tuple(flags),
    )


def run_variance(components: pd.DataFrame, p_run: float) -> float:
    """The variance of whole runs that scores have: 0 where none is found, or identified."""
    return max(float(components["variance"]["run"]), 0.0) if p_run < ALPHA_RUN else 0.0


def moments(responses: Responses) -> TrialCells:
    """Moments of the trials of each response; one of each where none are repeated."""
    mean = responses.to_numpy() / responses.highest
    scores = responses.trial_values
    if responses.trials is None:
        nothing = np.full(mean.shape, np.nan)
        return TrialCells((~np.isnan(mean)).astype(float), mean, mean**2, nothing, nothing)
    n = responses.trials.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        if scores is None:
            square = mean = np.rint(mean * n) / n  # responses are rounded to float32
            spread = mean * (1 - mean) * n / (n - 1)
            flip = 2 * spread
        else:
            ordered = np.sort(scores, axis=2).astype(float)  # NaN last
            rank = 2.0 * np.arange(1, scores.shape[2] + 1) - n[:, :, None] - 1
            known = ~np.isnan(ordered)
            mean = np.sum(ordered, axis=2, where=known) / n
            square = np.sum(ordered**2, axis=2, where=known) / n
            spread = np.sum((ordered - mean[:, :, None]) ** 2, axis=2, where=known) / (n - 1)
            flip = 2 * np.sum(rank * ordered, axis=2, where=known) / (n * (n - 1))
        spread, flip = np.where(n > 1, [spread, flip], np.nan)
        return TrialCells(n, mean, square, variance=spread, flip=flip)


def components_of(
    cells: TrialCells, scores: FloatArray | None, weights: FloatArray
) -> tuple[dict[str, FloatArray], float]:
    """The components of variance for each row of weights of the items, by sums over pairs.

    A pair's term is half the squared difference of its trials, whose expectation is the sum of the
    components of what the two do not share (Koch 1968). Pairs of cells count once, whatever their
    numbers of trials. An item that a resample has twice is still one item: its copies make no pair.

    Args:
        cells: moments of the trials.
        scores: subjects x items x trials; None if the trials have no numbers.
        weights: resamples x items, how often each item is drawn.

    Returns:
        The components, NaN where there is no pair for one; and the p-value of a run variance of 0,
        for the first resample, NaN where none is identified.
    """
    known = cells.n > 0
    mean, square = np.where(known, cells.mean, 0.0), np.where(known, cells.square, 0.0)
    w, w2 = weights, weights**2
    own = square - mean**2
    n_models = known.sum(axis=0)
    # Of item pairs w_i w_j counts, of an item's own pairs w_i^2.
    by_subject = (w @ mean.T) ** 2 - w2 @ (mean**2).T
    count = w @ known.T
    subject_pairs = count**2 - w2 @ known.T
    subject_sum = count * (w @ square.T) - w2 @ square.T - by_subject
    same_item = n_models * square.sum(axis=0) - mean.sum(axis=0) ** 2
    item_sum, item_pairs = same_item - own.sum(axis=0), (n_models - 1.0) * n_models
    all_n, all_square, all_mean = w @ n_models, w @ square.sum(axis=0), w @ mean.sum(axis=0)
    every_sum = all_n * all_square - all_mean**2 - w2 @ same_item
    every_pairs = all_n**2 - w2 @ (n_models**2)
    repeated = np.isfinite(cells.variance)
    run, expected, same, p_run = _run_totals(cells, scores, w)
    variance = w @ np.where(repeated, cells.variance, 0.0).sum(axis=0)
    total, pairs = subject_sum.sum(axis=1), subject_pairs.sum(axis=1)
    one_subject = w @ item_pairs == 0
    sums = [
        (variance, w @ repeated.sum(axis=0).astype(float)),  # within cells
        (total, pairs),  # items of a subject
        (w @ item_sum, w @ item_pairs),  # subjects of an item
        (every_sum - total, every_pairs - pairs),  # neither
        (run, expected),
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        cell, subject, item, other, whole_run = (
            np.where(number > 0, value / number, np.nan) for value, number in sums
        )
    whole = np.nan_to_num(whole_run)
    shared = np.divide(same, pairs, out=np.zeros(len(w)), where=pairs > 0)
    subject = subject + whole * shared  # as if no pair shared its run
    parts = {  # with one subject, items and their interaction with it are one
        "subject": np.where(one_subject, np.nan, other - subject),
        "item": np.where(one_subject, subject - cell, other - item),
        "subject x item": np.where(one_subject, np.nan, subject + item - other - cell),
        "run": whole_run,
        "trial": cell - whole,
    }
    return parts, p_run


def _run_totals(
    cells: TrialCells, scores: FloatArray | None, w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Products of deviations of two items in the same run, and their test.

    Returns the sum of the products, what a run variance of 1 adds to it, the number of pairs of
    items of a subject that are in the same run, and the p-value of a run variance of 0.

    With d_it the deviation of a trial from the mean of its cell and c trials that cells i and j
    share, ``sum_t d_it d_jt`` has the expectation V_run (c - c / n_i - c / n_j + c^2 / (n_i n_j)).
    """
    total, expected, same = (np.zeros(len(w)) for _ in range(3))
    null, null_square = 0.0, 0.0  # of sums of squares without run effects, and its error
    if scores is None:
        return total, expected, same, float("nan")
    w2 = w**2
    for m in range(len(scores)):
        n = cells.n[m]
        items = np.flatnonzero(n > 0)
        n, own = n[items], scores[m, items].astype(float)
        present = (~np.isnan(own)).astype(float)
        share = present / n[:, None]
        wi, wi2 = w[:, items], w2[:, items]
        same += ((wi @ share) ** 2).sum(axis=1) - wi2 @ (1 / n)
        n_runs = int((present.sum(axis=0) > 0).sum())
        if n_runs < FEWEST_RUNS:
            continue
        d = np.where(present > 0, own - cells.mean[m, items, None], 0.0)
        total += ((wi @ d) ** 2).sum(axis=1) - wi2 @ (d**2).sum(axis=1)
        null += float((d**2).sum())
        null_square += float((d**2).sum()) ** 2 / (n_runs - 1)
        in_run, in_share = wi @ present, wi @ share
        square = np.stack([wi @ (share * present[:, [t]]) for t in range(present.shape[1])])
        pairs = (in_run**2).sum(axis=1) - 2 * (in_run * in_share).sum(axis=1)
        expected += pairs + (square**2).sum(axis=(0, 2)) - wi2 @ (n - 1)
    if not expected[0] > 0:
        return total, expected, same, float("nan")
    # Satterthwaite's degrees of freedom of a sum over subjects.
    df = null**2 / null_square if null > 0 else 1.0
    ratio = 1 + total[0] / null if null > 0 else 1.0
    return total, expected, same, float(chdtrc(df, df * ratio))


def _icc(parts: dict[str, FloatArray]) -> FloatArray:
    """Share of the variance within a subject that is due to the items."""
    of_items = np.nansum([parts["item"], parts["subject x item"]], axis=0)
    of_items = np.maximum(of_items, 0)
    noise = np.maximum(np.nan_to_num(parts["run"]), 0) + np.maximum(parts["trial"], 0)
    with np.errstate(invalid="ignore"):
        return of_items / (of_items + noise)


def resampled_weights(n_items: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Weights of the items: 1 in the first row, then how often each is in one of n resamples."""
    draws = rng.multinomial(n_items, np.full(n_items, 1 / n_items), n)
    return np.vstack([np.ones(n_items), draws])


def components_table(
    parts: Mapping[str, FloatArray], sources: Iterable[str], tails: list[float]
) -> pd.DataFrame:
    """The components with their intervals and shares; NaN for those that are not identified."""
    draws = {source: parts.get(source, np.array([np.nan])) for source in sources}
    rows = {source: (float(part[0]), *_interval(part, tails)) for source, part in draws.items()}
    table = pd.DataFrame.from_dict(rows, "index", columns=["variance", "lower", "upper"])
    positive = table["variance"].clip(lower=0)
    return table.assign(share=positive / positive.sum()).rename_axis("source")


def _interval(draws: FloatArray, tails: list[float]) -> tuple[float, float]:
    """Percentiles over the resamples; NaN without an estimate."""
    usable = draws[1:][np.isfinite(draws[1:])]
    if not np.isfinite(draws[0]) or not len(usable):
        return float("nan"), float("nan")
    low, high = np.quantile(usable, tails)
    return float(low), float(high)


def _weighted_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean over cells for each row of weights of the items; NaN cells are left out."""
    known = np.isfinite(values)
    total = weights @ np.where(known, values, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / (weights @ known.sum(axis=0)))


def _no_run(data: Responses) -> str:
    """Why the run effect is not identified."""
    reason = "no subject has three numbered trials"
    if data.trial_values is None:
        reason = "the trials are counted, not numbered"
    return f"the variance of whole runs is not identified ({reason}): it is taken for 0"


def _subjects(cells: TrialCells, whole: float, data: Responses) -> pd.DataFrame:
    """The table of the subjects, with the variance of whole runs."""
    known, repeated = cells.n > 0, cells.n > 1
    n_items = known.sum(axis=1)

    def mean(values: FloatArray, mask: BoolArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sum(values, axis=1, where=mask) / mask.sum(axis=1))

    within = mean(cells.variance, repeated)
    square, score = mean(cells.square, known), mean(cells.mean, known)
    # The variance of a subject's trials over items, with pairs of different items only.
    own = np.sum(cells.square - cells.mean**2, axis=1, where=known)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (n_items * (square - score**2) - own / n_items) / (n_items - 1)
        noise = np.sqrt(whole + np.maximum(within - whole, 0) / n_items)
        icc = np.clip(1 - within / spread, 0, 1)
    columns = {
        "n_trials": mean(cells.n, known),
        "score": score,
        "noise": 100 * noise,
        "icc": np.where(n_items > 1, icc, np.nan),
        "trial_variance": within,
        "flip_rate": mean(cells.flip, repeated),
        "n_flipping": np.sum(cells.variance > 0, axis=1, where=repeated),
    }
    return pd.DataFrame(columns, index=data.subjects.index)


def _items(cells: TrialCells, data: Responses) -> pd.DataFrame:
    """The table of the items, those that flip most first."""
    repeated = cells.n > 1
    n_subjects = repeated.sum(axis=0)
    total = np.sum(cells.flip, axis=0, where=repeated)
    rate = np.divide(total, n_subjects, out=np.full(data.n_items, np.nan), where=n_subjects > 0)
    table = pd.DataFrame(
        {
            "flip_rate": rate,
            "n_subjects": n_subjects,
            "n_flipping": np.sum(cells.variance > 0, axis=0, where=repeated),
        },
        index=data.items.index,
    )
    return table.sort_values("flip_rate", ascending=False, kind="stable", na_position="last")


def pass_rates(right: FloatArray, n: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Unbiased estimates of the chances that one, and that all, of k trials are right.

    ``1 - C(n - c, k) / C(n, k)`` and ``C(c, k) / C(n, k)`` for c of n right; NaN where n < k.

    Example:
        >>> pass_rates(np.array([1.0, 3.0]), np.array([4.0, 4.0]), 2)
        (array([0.5, 1. ]), array([0. , 0.5]))
    """
    none = all_right = np.ones(np.shape(n))
    for j in range(k):
        with np.errstate(invalid="ignore", divide="ignore"):
            none = none * np.maximum(n - right - j, 0) / (n - j)
            all_right = all_right * np.maximum(right - j, 0) / (n - j)
    enough = n >= k
    return np.where(enough, 1 - none, np.nan), np.where(enough, all_right, np.nan)


def wilson(estimates: FloatArray, level: float) -> tuple[float, float, float]:
    """Mean of estimates in [0, 1], one of each item, and its interval.

    Wilson's interval for as many answers of 0 or 1 as would vary as much as the estimates do, with
    the quantile of the t distribution: it is no point where all estimates are 0 or all 1.

    References:
        Wilson (1927), JASA 22; Franco et al. (2019), Comparative study of confidence intervals
        for proportions in complex sample surveys, J. Survey Statistics and Methodology 7.
    """
    n = len(estimates)
    if not n:
        return float("nan"), float("nan"), float("nan")
    p = float(np.mean(estimates))
    square = float(np.var(estimates, ddof=1)) / n if n > 1 else 0.0
    return p, *_wilson_ends(p, square, n, level)


def _wilson_ends(p: float, square: float, n: int, level: float) -> tuple[float, float]:
    """Ends of the interval of `wilson` for a mean of n items and its variance."""
    if n < 2:
        return 0.0, 1.0
    size = float(n) if square == 0 else max(float(n), p * (1 - p) / square)
    t2 = float(stdtrit(n - 1, (1 + level) / 2)) ** 2
    middle = (p + t2 / (2 * size)) / (1 + t2 / size)
    half = float(np.sqrt(t2 * (p * (1 - p) / size + t2 / (4 * size**2))) / (1 + t2 / size))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _passes(
    cells: TrialCells, data: Responses, sizes: tuple[int, ...] | None, level: float
) -> pd.DataFrame:
    """The table of pass@k and pass^k."""
    rows = []
    names = [f"{k}{end}" for k in ("pass_at_k", "pass_hat_k") for end in ("", "_lower", "_upper")]
    for m, subject in enumerate(data.subject_ids if data.is_counted else ()):
        known = cells.n[m] > 0
        if not known.any():
            continue
        n, right = cells.n[m, known], np.rint(cells.mean[m, known] * cells.n[m, known])
        usual = int(np.median(n))
        doubled = 2 ** np.arange(usual.bit_length())
        for k in sizes or tuple(np.unique(np.r_[doubled, usual]).tolist()):
            one, every = (part[~np.isnan(part)] for part in pass_rates(right, n, k))
            values = (*wilson(one, level), *wilson(every, level))
            rows.append((subject, k, *values, len(one)))
    table = pd.DataFrame(rows, columns=["subject", "k", *names, "n_items"])
    return table.set_index(["subject", "k"])


def _sizes_of(k: Iterable[int]) -> tuple[int, ...]:
    """The numbers of trials for pass@k.

    Raises:
        InputError: for one that is no whole number of at least 1.
    """
    try:
        sizes = tuple(k)
    except TypeError:
        raise argument_error("k", "whole numbers of trials", k) from None
    for size in sizes:
        check_count("k", size)
    if not sizes:
        raise InputError("The `k` argument must be whole numbers of trials. Got none.")
    return sizes

"""Comparison of two models: whose score differs, by how much, and would a rerun agree?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from irtcat._common.checks import argument_error, brief, check_choice, check_interval, is_number
from irtcat._common.positions import positions_of_ids
from irtcat._common.progress import Progress, ProgressOption, Steps, with_progress
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.io.convert import as_responses_like
from irtcat.prediction.answers import recode
from irtcat.prediction.clustered import Variance, mean_variance, total_of
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.prediction.run_noise import (
    MIN_NUMBERED,
    Answers,
    Noise,
    Reliability,
    judge_effect,
    noise_of,
    read_reruns,
    seed_variance,
    unexplained_variance,
)
from irtcat.prediction.task import is_sample
from irtcat.responses import BASE_ITEM, Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._trials import exact_shares
from irtcat.selection import Subset

METHODS = ("auto", "paired", "assisted")
SCALES = ("difference", "ratio")
COMPARED = {
    **ESTIMANDS,
    "recipe": "the expected scores of the recipes' models on all {n} items, over training seeds",
}
"""Whose scores are compared, and how they are called in the output."""

RUN_COLUMNS = ("harness", "version", "judge", "scorer", "dataset_version")
"""Metadata of subjects that say under which conditions a model was run."""

RUN_SETTINGS = (
    *("system_instruction_sha", "system_prompt", "instructions", "solvers", "task_args", "method"),
    *("chat_template_sha", "override_chat_template", "add_special_tokens", "fewshot_as_multiturn"),
    *("num_fewshot", "num_fewshots", "max_train_instances", "fewshot_seed", "task_version"),
    *("gen_kwargs", "generate_config", "generation_config", "generation_parameters", "temperature"),
    *("dataset", "hf_repo", "hf_revision", "scorers", "model_roles", "epochs_reducer"),
)
"""Settings of a task in logs that say the same: neither the model, nor how many items or trials."""

POWER = 0.8
"""Power that defines the detectable difference and the number of further items."""

MIN_CLUSTERS = 8
"""With fewer clusters their variance is not known well enough for a verdict."""

MAX_REPEATS = 100
"""Further trials of each item above which their number is not given."""

FEWEST_PER_COVARIATE = 10
MAX_LEVERAGE = 0.4
"""Share of a single item in its own fitted value above which "auto" is not "assisted": the item
decides a slope, and its residual says nothing. With 30 items and ten trials 6 % of the verdicts on
equal models were false below it, and 10 to 42 % above (experiments/reruns)."""
MOST_ASSISTED = 0.5
"""Share of the items run above which "auto" is not "assisted" where the run noise is unknown: the
bound of the old run's noise, which then counts, exceeds what the regression gains."""

PAIRS_CHECKED = 600
"""Calibrated pairs from which the widening is estimated."""

FEWEST_MODELS = 20
"""With fewer models the pairs do not show a quantile of their errors, only the mean square."""

PRIOR_PAIRS = 4
"""Models, less one, that the variance of a random choice of items counts for beside the pairs."""

FEWEST_COMMON = 0.5
"""Least share of the items run that both models of a calibrated pair have answered."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The difference of two models' full scores, estimated from one subset.

    Differences are in score units, or with ``scale`` "ratio" in units of the old score: ``new / old
    - 1``.

    Attributes:
        new: id of the new model, or name of the new recipe.
        old: id of the old one.
        difference: estimated full score of new minus that of old.
        lower: lower end of its interval.
        upper: upper end.
        se: its standard error.
        p_better: probability that new is better, ``F(z)`` with z the centre of the interval in
            standard errors and F its distribution (Normal, or t with ``df``); z is infinite where
            the items run decide the sign of the difference, and 0 where centre and difference have
            different signs.
        p_value: p-value of the two-sided test of a difference of at most ``margin``,
            ``2 F(-(|z| - margin / se))``: it is below ``1 - level`` where the interval lies beyond
            the margin, and only there.
        verdict: "better" (lower end above ``margin``), "worse" (upper end below ``-margin``),
            "equivalent" (both ends within it) or "cannot tell".
        more_items: number of further items needed to settle the verdict with power .8, at the
            estimated difference; 0 if it is settled.
        n_items: number of items that both answered.
        n_new_only: number of items on which new scored higher.
        n_old_only: number of items on which old scored higher.
        method: "paired" or "assisted".
        level: probability of the interval.
        flags: warnings.
        estimand: whose scores: "run", "model", "domain" or "recipe".
        n_all: number of items in the full score.
        df: degrees of freedom of the interval; infinite for a Normal one.
        margin: the difference that does not matter.
        p_equivalent: p-value of the two one-sided tests of a difference of ``margin`` or more:
            below ``(1 - level) / 2`` where the verdict is "equivalent"; 1 without a margin.
        run_se: standard error that is due to the runs alone; an upper bound where that is not
            identified.
        p_rerun: probability that a rerun of both models on these items gives the same verdict.
        detectable: least difference that such a comparison finds with power .8.
        more_repeats: number of further trials of each of the N items (for recipes: of further
            seeds) that settle the verdict where items alone do not; None if more than 100.
        centre: centre of the interval before it is cut to the possible range.
        scale: "difference" or "ratio".
    """

    new: str
    old: str
    difference: float
    lower: float
    upper: float
    se: float
    p_better: float
    p_value: float
    verdict: str
    more_items: int
    n_items: int
    n_new_only: int
    n_old_only: int
    method: str
    level: float
    flags: tuple[str, ...]
    estimand: str
    n_all: int
    df: float
    margin: float
    p_equivalent: float
    run_se: float
    p_rerun: float
    detectable: float
    more_repeats: int | None
    centre: float
    scale: str = "difference"

    def __str__(self) -> str:
        points = [100 * value for value in (self.difference, self.lower, self.upper)]
        text = (
            f"{self.new} against {self.old}: {points[0]:+.1f} {self.unit} "
            f"[{points[1]:+.1f}, {points[2]:+.1f}] from {self.n_items} items, {self.verdict}"
        )
        if self.verdict == "equivalent":
            text += f" within {100 * self.margin:g}"
        return f"{text}{self._needed}\n{self.question}"

    def __repr__(self) -> str:
        return f"Comparison({str(self).partition(chr(10))[0]})"

    @property
    def unit(self) -> str:
        """What a hundredth of the difference is called."""
        return "points" if self.scale == "difference" else "% of the old score"

    @property
    def question(self) -> str:
        """Two sentences: what is compared, and whether a rerun would agree."""
        what = COMPARED[self.estimand].format(n=self.n_all)
        again = "other seeds" if self.estimand == "recipe" else "a rerun"
        share = f"{100 * self.p_rerun:.0f} %"
        return f"Compared are {what}.\nWould {again} agree? In {share} of cases."

    @property
    def _needed(self) -> str:
        """What would settle an open verdict."""
        if self.verdict != "cannot tell":
            return ""
        if self.more_repeats:
            items = f"all {self.n_all} items and " if self.more_items else ""
            what = "seeds" if self.estimand == "recipe" else "trials"
            return f" ({items}{self.more_repeats} more {what} of each would)"
        return f" ({self.more_items} more would)" if self.more_items else ""

    def to_frame(self) -> pd.DataFrame:
        """One row, indexed by the new model's id; differences in score units."""
        names = [name for name in self.__dataclass_fields__ if name not in ("new", "flags")]
        row = {name: getattr(self, name) for name in names} | {"flag": "; ".join(self.flags)}
        return pd.DataFrame([row], index=pd.Index([self.new], name="new"))


class _Pair(NamedTuple):
    """Two models on the items of a subset, and covariates of all items."""

    difference: FloatArray
    weights: FloatArray
    item_ids: np.ndarray
    at: IntArray
    n_items: int
    field: FloatArray
    known_old: FloatArray | None
    strata: FloatArray
    """Indicators of strata but one, all items x strata."""


class _Runs(NamedTuple):
    """What is known of the runs of both models on these items."""

    new: Answers
    old: Answers
    clusters: IntArray | None
    judges: IntArray | None
    reliability: Reliability | None
    unit: float
    """Difference of an item on which one model is once right more often than the other."""


class _Difference(NamedTuple):
    """A difference and its standard error; ``centre`` is the centre of the interval."""

    difference: float
    centre: float
    se: float
    df: float = np.inf


class _Residuals(NamedTuple):
    """Differences less their mean, or what a regression leaves of them."""

    mean: float
    shift: float
    values: FloatArray
    slopes: FloatArray


class _Parts(NamedTuple):
    """The variance of a difference: from the choice of items, and what stays with all items."""

    items: Variance
    """``V`` in ``(1 - k/N) V``."""
    rest: Variance
    """``W`` in ``(k/N) W``."""
    runs: Variance
    """Effects of whole runs."""
    independent: bool
    """Whether V and W are estimated from different things."""
    judges: Variance = Variance(0.0, np.inf)
    """The choice of judges, which further trials do not reduce."""


@with_progress("Comparing two models")
def compare(
    calibration: Responses | None,
    subset: Subset | Sequence[str] | np.ndarray | None,
    responses: Responses,
    new: str | None = None,
    old: str | None = None,
    *,
    estimand: str = "model",
    method: str = "auto",
    scale: str = "difference",
    strata: Any = None,
    clusters: Any = None,
    judges: str | None = None,
    reruns: Any = None,
    recipe: Any = None,
    margin: float = 0.0,
    level: float = 0.95,
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Comparison:
    """Test whether the new model is better than the old one on the full benchmark.

    Both have answered the same k of N items. The difference of their means over all N items is
    estimated from d_l = new_l - old_l on the items run:

    | method | difference | residuals e |
    |---|---|---|
    | paired | weighted mean of d | d less that mean |
    | assisted | that, and ``b'(Z_all - Z_run)``, d regressed on Z | those of leaving the item out |

    Z is the share of calibrated models that are right on the item and, if the old model has
    answered every item (it is calibrated, or ``responses`` have all its answers), that answer; with
    ``strata`` also an indicator of each stratum, which makes it the stratified estimate ``sum_h
    (N_h / N) mean_h(d)`` with the variance within strata.

    Whose difference it is, is the ``estimand``, and the variance is ``(1 - k/N) V + (k/N) W``, with
    V that of a mean of e over items drawn from infinitely many (``s_e^2 / k`` for equal weights):

    | estimand | would it be the same ... | W |
    |---|---|---|
    | run | nothing: these answers | 0 |
    | model | ... if both models answered these N items again | ``mean(s_w^2 / r) / k`` |
    | domain | ... on other items of this kind | ``s_d^2 / k`` |
    | recipe | ... if both recipes were trained again | 0, and ``sum s_m^2 / S`` is added |

    For "model", ``s_w^2`` is the variance of the r trials within an item, of both models (Cochran
    1977, 10.3). With one trial of each item it is unknown: then ``W = V``, the variance of
    the paired t-test, too large where the models differ by item; and for "assisted" ``W = V + (1 -
    (1 + b)^2) v / k``, b the slope on the old model's answers and v the variance that the shares
    leave of them, a bound of their noise. What is known of reruns replaces this: see ``reruns``.
    From three numbered trials, effects of whole runs are added where the trials' means show them.
    For "recipe", s_m^2 is the variance of the scores of a recipe's S models (Welch's t-test where
    all items were run).

    With ``scale="ratio"`` the interval holds all ratios R of the full scores for which the same
    interval of ``new_l - R old_l`` holds 0 (Fieller 1954); its upper end is infinite where the old
    score may be 0.

    Where scores are counts or categories, one more item on either side on which the models differ
    by one trial (Bonett & Price) keeps the interval from having width 0. Its centre is that of the
    extended items, as far as items were not run or W is that of items. The interval is a t interval
    with Satterthwaite's degrees of freedom, for "run" (without clusters) a Normal one, with ``V =
    (sum (d - mean)^2 + 2) / (k + 2)^2`` for right/wrong scores.

    If the subset is not a probability sample the variance ignores the choice of items: then the
    same comparison is made for pairs of calibrated models on the items that both answered, where
    their difference is known, and V is widened to have the nominal coverage for them, and flagged.
    With M < 20 models that occur in such pairs the factor is ``t_v sqrt((4 + (M - 1) r^2) / v) /
    z`` with v = M + 3 degrees of freedom and r^2 the mean squared error of the pairs in standard
    errors; without any, r is 1.

    Args:
        calibration: responses of the calibrated models to all N items. None if there are none: then
            ``subset`` must be None too.
        subset: the items that were run: a `Subset`, or their ids. None if all were: N is then the
            number of items that both models answered.
        responses: responses of both models, or of the new one if the old one is calibrated. Items
            outside the subset are ignored, except for the old model in "assisted". Trials are used
            where there are any.
        new: id of the new model; by default the last one of ``responses``. For recipes their names,
            by default the last and the first one.
        old: id of the old model, in ``responses`` or calibrated; by default the first one of
            ``responses``, or the only other one. Two runs of one model can be compared without a
            subset: the calibration then has the old run.
        estimand: whose difference: "run", "model", "domain" or "recipe".
        method: "auto", "paired" or "assisted". "auto" is "assisted" if the old model has answered
            every item (or there are strata), there are ten items per column of Z, and no single
            item decides a slope, but with one trial only up to half of the items.
        scale: "difference", or "ratio" for ``new / old - 1``, in which the margin is too.
        strata: groups of items whose shares of the benchmark are known (topic, category): a column
            of the items' metadata, or a mapping from every item to its stratum.
        clusters: groups of items whose answers depend on each other (one passage, one repository):
            a column of the items' metadata, or a mapping from item to group; items without a group
            are groups of one. V is then cluster-robust (CR2), and so is W if trials are numbered.
            By default the judgements of one item (responses with facets) are a group.
        judges: the facet of responses with facets that says who judged, such as "judge": from three
            judges on, the variance of their mean differences is added, as other judges would have
            judged otherwise.
        reruns: for models with one trial, what a rerun would repeat: responses of a second run of
            any model, the correlation of two runs over the items (an ICC), or "deterministic".
        recipe: for the estimand "recipe", which models of ``responses`` were trained by one recipe
            with different seeds: a column of the subjects' metadata, or a mapping from subject to
            recipe. Each needs two models or more.
        margin: the difference that does not matter, for the verdicts: in score units, or a share of
            the old score.
        level: probability of the interval, which decides the verdict.
        mismatch: where calibration and responses say under which conditions the items were answered
            (see `irtcat.predict`) and these differ: "refuse", or "accept".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the pairs of calibrated models.

    Returns:
        The comparison.

    Raises:
        InputError: for an unknown model, item or method, fewer than 2 items that both answered, or
            answers under other conditions than those of the calibration.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> from irtcat.selection import select
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 500))
        >>> calibration = bank.simulate(np.linspace(-2, 2, 40), seed=1)
        >>> both = bank.simulate([0.0, 1.0], seed=2)
        >>> subset = select(None, 100, strategy="random", calibration=calibration)
        >>> print(compare(calibration, subset, both))
        s2 against s1: +22.0 points [+12.1, +31.3] from 100 items, better
        Compared are the models' expected scores on all 500 items, over reruns.
        Would a rerun agree? In 97 % of cases.
        >>> compare(None, None, both, margin=0.05).verdict  # all items run
        'better'

    References:
        Cochran (1977), Sampling Techniques, chapter 10 (trials within items); Bonett & Price
        (2012), JEBS 37, 479-488 (paired proportions); Saerndal, Swensson & Wretman (1992), Model
        Assisted Survey Sampling, chapter 6; Bell & McCaffrey (2002), Survey Methodology 28, 169-181
        (clusters); Schuirmann (1987), J. Pharmacokinetics and Biopharmaceutics 15, 657-680
        (equivalence); Fieller (1954), JRSS B 16, 175-185 (ratios); Welch (1947), Biometrika 34,
        28-35 (recipes).
    """
    check_choice("estimand", estimand, COMPARED)
    check_choice("method", method, METHODS)
    check_choice("scale", scale, SCALES)
    check_interval("level", level)
    check_margin(margin)
    if (estimand == "recipe") != (recipe is not None):
        must = 'given with estimand="recipe", and only with it'
        raise argument_error("recipe", must, recipe)
    calibration, responses = as_compared(calibration, subset, responses)
    names, pair, runs, sampled, flags = read_models(
        calibration, subset, responses, new, old, mismatch, clusters, reruns, strata, recipe, judges
    )
    shares = _shares_right(pair)
    columns = _covariates(pair, shares)
    share = len(pair.difference) / pair.n_items
    noise = _noise(runs, pair.weights, estimand, 1.0)
    gains = (
        estimand == "run" or noise is not None or pair.known_old is None or share <= MOST_ASSISTED
    )
    method = _chosen_method(method, pair, columns, gains)
    z = ndtri(0.5 + level / 2)
    widening = 1.0
    if not sampled:
        widening, note = _widening(pair, shares, method, runs.unit, level, z, progress)
        flags.append(note)
    if estimand != "run" and noise is not None:
        flags += noise.flags
    if estimand == "model" and noise is None and runs.new.is_repeated != runs.old.is_repeated:
        more, one = names if runs.new.is_repeated else names[::-1]
        flags.append(
            f"{one} has one trial and {more} several: its run noise is unknown, and the variance "
            "is that of single runs"
        )
    design = _Design(
        pair=pair,
        runs=runs,
        shares=shares,
        columns=columns,
        estimand=estimand,
        method=method,
        widening=widening,
    )
    conclude = _conclude if scale == "difference" else _conclude_ratio
    return conclude(names, design, float(level), float(margin), flags)


class _Design(NamedTuple):
    """Two models and how they are compared."""

    pair: _Pair
    runs: _Runs
    shares: FloatArray
    columns: FloatArray
    estimand: str
    method: str
    widening: float

    def at(self, ratio: float) -> tuple[_Difference, _Parts, float]:
        """The estimate of new - R old, the parts of its variance, and that of the runs alone."""
        pair, runs = self.pair, self.runs
        if ratio != 1:
            pair = pair._replace(difference=runs.new.mean - ratio * runs.old.mean)
        noise = _noise(runs, pair.weights, self.estimand, ratio)
        share = len(pair.difference) / pair.n_items
        residuals = _residuals(pair.difference, pair, self.columns, self.method)
        parts = _parts(pair, runs, noise, residuals, self.shares, self.estimand, self.method, ratio)
        if self.estimand != "run" and runs.judges is not None and runs.clusters is not None:
            effect = judge_effect(pair.difference, pair.weights, runs.clusters, runs.judges)
            parts = parts._replace(judges=effect)
        if self.estimand == "run" and runs.clusters is None:
            estimate = _estimate(pair.difference, pair, self.columns, self.method, runs.unit)
            estimate = estimate._replace(se=estimate.se * self.widening)
        else:
            estimate = _combined(pair, runs, residuals, parts, share, self.widening)
        run_variance = noise.answers.value + noise.runs.value if noise else parts.items.value
        return estimate, parts, run_variance


def _noise(runs: _Runs, weights: FloatArray, estimand: str, ratio: float) -> Noise | None:
    """The variance of new - R old that is due to the runs, or to the seeds; None if unknown."""
    if estimand == "recipe":
        seeds = seed_variance(runs.new, weights), seed_variance(runs.old, weights).times(ratio**2)
        return Noise(Variance(0.0, np.inf), total_of(*seeds), ())
    return noise_of(runs.new, runs.old, weights, runs.clusters, runs.reliability, ratio)


def check_margin(margin: Any) -> None:
    """Raise unless the margin is a difference of scores."""
    if not is_number(margin) or not 0 <= margin < 1:
        must = "a difference of scores of at least 0 and below 1 (0.02 for 2 points)"
        raise argument_error("margin", must, margin)


def as_compared(
    calibration: Any, subset: Any, responses: Any
) -> tuple[Responses | None, Responses]:
    """The calibration, which a subset needs, and the responses of the models to compare."""
    if calibration is not None:
        calibration = as_responses_like(calibration, "calibration", None)
    elif subset is not None:
        raise argument_error("calibration", "given with a subset", None)
    return calibration, as_responses_like(responses, "responses", calibration)


def _chosen_method(method: str, pair: _Pair, columns: FloatArray, gains: bool) -> str:
    """The method; "auto" is "assisted" where that gains and enough items were run."""
    k, n_covariates = len(pair.difference), columns.shape[1]
    if method == "auto":
        enough = k >= FEWEST_PER_COVARIATE * (n_covariates + 1)
        known = pair.known_old is not None or pair.strata.shape[1] > 0
        if not (known and enough and gains):
            return "paired"
        greatest = float(_regression(pair.weights, columns[pair.at])[2].max())
        return "assisted" if greatest <= MAX_LEVERAGE else "paired"
    if method == "assisted" and k <= n_covariates + 2:
        must = f"paired for fewer than {n_covariates + 3} items"
        raise argument_error("method", must, method)
    return method


def _padded(variance: Variance, effective: float, unit: float) -> Variance:
    """The variance with one more item on either side that differs by ``unit``."""
    if unit == 0:
        return variance
    value = (effective**2 * variance.value + 2 * unit**2) / (effective + 2) ** 2
    return Variance(value, variance.df)


def _parts(
    pair: _Pair,
    runs: _Runs,
    noise: Noise | None,
    residuals: _Residuals,
    shares: FloatArray,
    estimand: str,
    method: str,
    ratio: float,
) -> _Parts:
    """The variance of the choice of items, and what the estimand adds with all items run."""
    w, k = pair.weights, len(pair.difference)
    effective = 1 / float(w @ w)
    items = mean_variance(w, residuals.values, runs.clusters)
    items = Variance(items.value, max(items.df - len(residuals.slopes), 1.0))
    items = _padded(items, effective, runs.unit)
    no_variance = Variance(0.0, np.inf)
    effects = noise.runs if noise else no_variance
    if estimand == "run":
        return _Parts(items, no_variance, no_variance, independent=True)
    if estimand == "domain":
        plain = mean_variance(w, pair.difference - residuals.mean, runs.clusters)
        return _Parts(items, _padded(plain, effective, runs.unit), effects, independent=False)
    if noise is not None:
        return _Parts(items, noise.answers, effects, independent=True)
    rest = items.value
    if method == "assisted" and pair.known_old is not None:
        slope = float(residuals.slopes[-1])
        lost = max(ratio**2 - (ratio + slope) ** 2, 0.0)
        rest += lost * unexplained_variance(pair.known_old, shares) / k
    return _Parts(items, Variance(rest, items.df), effects, independent=False)


def _combined(
    pair: _Pair, runs: _Runs, residuals: _Residuals, parts: _Parts, share: float, widening: float
) -> _Difference:
    """The difference with the standard error of the estimand."""
    effective = 1 / float(pair.weights @ pair.weights)
    items, rest = parts.items.times((1 - share) * widening**2), parts.rest.times(share)
    if not parts.independent:
        df = min(items.df, rest.df)
        items, rest = Variance(items.value + rest.value, df), Variance(0.0, np.inf)
    total = total_of(items, rest, parts.runs, parts.judges)
    # The added items are a guess of the items not run: what the others gave is not moved to 0.
    unknown = 1 - share if parts.independent else 1.0
    shrunk = 1 - unknown * 2 / (effective + 2) if runs.unit else 1.0
    difference = residuals.mean + residuals.shift
    centre = residuals.mean * shrunk + residuals.shift
    return _Difference(difference, centre, float(np.sqrt(total.value)), max(total.df, 1.0))


def t_quantile(df: float, probability: float) -> float:
    """Quantile of Student's t; of the Normal for infinite df."""
    return float(ndtri(probability) if np.isinf(df) else stdtrit(df, probability))


def _probability(df: float, t: float) -> float:
    """Distribution function of Student's t; of the Normal for infinite df."""
    return float(ndtr(t) if np.isinf(df) or np.isinf(t) else stdtr(df, t))


def _ratio(value: float, se: float) -> float:
    """A distance in standard errors."""
    return value / se if se > 0 else float(np.copysign(np.inf, value)) if value else 0.0


def _conclude(
    names: tuple[str, str], design: _Design, level: float, margin: float, flags: list[str]
) -> Comparison:
    """Interval, verdict and what would settle an open one."""
    pair, runs, estimand = design.pair, design.runs, design.estimand
    estimate, parts, run_variance = design.at(1.0)
    run_se = float(np.sqrt(run_variance))
    d, k, n = pair.difference, len(pair.difference), pair.n_items
    if not d.any():
        flags.append("both gave the same answer to every item run")
    lowest, highest = -1.0, 1.0
    if estimand == "run":
        lowest, highest = (d.sum() - (n - k)) / n, (d.sum() + (n - k)) / n
    q = t_quantile(estimate.df, 0.5 + level / 2)
    difference = float(np.clip(estimate.difference, lowest, highest))
    lower = float(np.clip(estimate.centre - q * estimate.se, lowest, highest))
    upper = float(np.clip(estimate.centre + q * estimate.se, lowest, highest))
    lower, upper = min(lower, difference), max(upper, difference)
    verdict = _supported(verdict_of(lower, upper, margin), runs, flags)
    centre = estimate.centre if estimate.centre * difference > 0 else 0.0
    ratio = _ratio(centre, estimate.se)
    p_value, p_equivalent = p_values(estimate.centre, difference, estimate.se, estimate.df, margin)
    if lowest > 0 or highest < 0:
        ratio = float(np.copysign(np.inf, lowest))  # whatever the items not run would give
        p_value = 0.0 if max(lowest, -highest) > margin else p_value
    p_rerun = _same_verdict(verdict, estimate.centre, q * estimate.se, margin, run_se)
    needed = _needed(verdict, estimate, parts, estimand, runs, k, n, q, margin)
    return Comparison(
        new=names[0],
        old=names[1],
        difference=difference,
        lower=lower,
        upper=upper,
        se=float(estimate.se),
        p_better=_probability(estimate.df, ratio),
        p_value=p_value,
        verdict=verdict,
        more_items=needed[0],
        n_items=k,
        n_new_only=int(np.count_nonzero(d > 0)),
        n_old_only=int(np.count_nonzero(d < 0)),
        method=design.method,
        level=level,
        flags=tuple(flags),
        estimand=estimand,
        n_all=n,
        df=float(estimate.df),
        margin=margin,
        p_equivalent=p_equivalent,
        run_se=run_se,
        p_rerun=1.0 if _few_clusters(runs) else p_rerun,
        detectable=margin + (q + float(ndtri(POWER))) * float(estimate.se),
        more_repeats=needed[1],
        centre=float(estimate.centre),
    )


class Closing(NamedTuple):
    """The interval of the models' difference once all items are run.

    Attributes:
        lower: its lower end.
        upper: its upper end.
        p_worse: p-value of the one-sided test of a difference of at least ``-margin``.
    """

    lower: float
    upper: float
    p_worse: float


def closing_of(pair: Any, runs: Any, margin: float, level: float) -> Closing:
    """The "paired" interval for the estimand "model" of two models that answered all items."""
    shares = _shares_right(pair)
    design = _Design(
        pair=pair,
        runs=runs,
        shares=shares,
        columns=_covariates(pair, shares),
        estimand="model",
        method="paired",
        widening=1.0,
    )
    estimate = design.at(1.0)[0]
    half = t_quantile(estimate.df, 0.5 + level / 2) * estimate.se
    ratio = _ratio(estimate.centre + margin, estimate.se)
    return Closing(estimate.centre - half, estimate.centre + half, _probability(estimate.df, ratio))


def has_few_clusters(runs: Any) -> bool:
    """Whether there are clusters, and too few for a verdict."""
    return bool(_few_clusters(runs))


def _few_clusters(runs: _Runs) -> int:
    """The number of clusters where they are too few for a verdict, else 0."""
    n = 0 if runs.clusters is None else int(runs.clusters.max()) + 1
    return n if n < MIN_CLUSTERS else 0


def _supported(verdict: str, runs: _Runs, flags: list[str]) -> str:
    """The verdict; "cannot tell", and a flag, where clusters are too few."""
    n = _few_clusters(runs)
    if not n:
        return verdict
    few = "1 cluster is" if n == 1 else f"{n} clusters are"
    flags.append(f"{few} too few for a verdict: {MIN_CLUSTERS} are needed")
    return "cannot tell"


def _conclude_ratio(
    names: tuple[str, str], design: _Design, level: float, margin: float, flags: list[str]
) -> Comparison:
    """The same for new / old - 1: all R for which the interval of new - R old holds 0."""
    pair, runs = design.pair, design.runs

    def distance(ratio: float, sign: int) -> float:
        """How far the interval of new - R old is above (1) or below (-1) 0."""
        estimate = design.at(ratio)[0]
        half = t_quantile(estimate.df, 0.5 + level / 2) * estimate.se
        return sign * estimate.centre - half

    none, same = (design.at(ratio)[0].centre for ratio in (0.0, 1.0))
    old_score = none - same
    if old_score <= 0:
        raise argument_error("scale", "difference, as the old score is 0", "ratio")
    best = none / old_score
    lower = brentq(distance, 0.0, best, args=(1,)) if distance(0.0, 1) > 0 else 0.0
    upper = next((r for r in best + 2.0 ** np.arange(-4, 21) if distance(r, -1) > 0), np.inf)
    if np.isinf(upper):
        flags.append("the old score may be 0: the ratio has no upper limit")
    else:
        upper = brentq(distance, best, upper, args=(-1,))
    difference = best - 1
    if not pair.difference.any():
        flags.append("both gave the same answer to every item run")
    verdict = _supported(verdict_of(lower - 1, upper - 1, margin), runs, flags)
    near, far = (1 + margin, 1 - margin) if best >= 1 else (1 - margin, 1 + margin)
    sign = 1 if best >= 1 else -1
    estimate, parts, _ = design.at(near)
    beyond = sign * _ratio(estimate.centre, estimate.se)  # above 0 beyond the margin
    p_value, p_equivalent = min(2 * _probability(estimate.df, -beyond), 1.0), 1.0
    if margin:
        other = design.at(far)[0]
        within = sign * _ratio(other.centre, other.se)
        p_equivalent = max(_probability(estimate.df, beyond), _probability(other.df, -within))
    middle, _, run_variance = design.at(best)
    equal = design.at(1.0)[0]
    se, run_se = middle.se / old_score, float(np.sqrt(run_variance)) / old_score
    q = t_quantile(middle.df, 0.5 + level / 2)
    half = (upper - lower) / 2 if np.isfinite(upper) else q * se
    p_rerun = _same_verdict(verdict, difference, half, margin, run_se)
    needed = _needed(
        verdict, estimate, parts, design.estimand, runs, len(pair.difference), pair.n_items, q, 0.0
    )
    return Comparison(
        new=names[0],
        old=names[1],
        difference=difference,
        lower=lower - 1,
        upper=upper - 1,
        se=float(se),
        p_better=_probability(equal.df, _ratio(equal.centre, equal.se)),
        p_value=p_value,
        verdict=verdict,
        more_items=needed[0],
        n_items=len(pair.difference),
        n_new_only=int(np.count_nonzero(pair.difference > 0)),
        n_old_only=int(np.count_nonzero(pair.difference < 0)),
        method=design.method,
        level=level,
        flags=tuple(flags),
        estimand=design.estimand,
        n_all=pair.n_items,
        df=float(middle.df),
        margin=margin,
        p_equivalent=p_equivalent,
        run_se=run_se,
        p_rerun=1.0 if _few_clusters(runs) else p_rerun,
        detectable=margin + (q + float(ndtri(POWER))) * float(se),
        more_repeats=needed[1],
        centre=difference,
        scale="ratio",
    )


def p_values(
    centre: float, difference: float, se: float, df: float, margin: float
) -> tuple[float, float]:
    """p-values of a difference beyond the margin, and of one within it."""
    shown = abs(centre) if centre * difference > 0 else 0.0
    beyond = _ratio(shown - margin, se)
    p_value = min(2 * _probability(df, -beyond), 1.0)
    if not margin:
        return p_value, 1.0
    return p_value, _probability(df, -_ratio(margin - max(abs(centre), abs(difference)), se))


def verdict_of(lower: float, upper: float, margin: float) -> str:
    """What an interval says about a difference that matters from ``margin`` on."""
    if lower > margin:
        return "better"
    if upper < -margin:
        return "worse"
    return "equivalent" if -margin < lower and upper < margin else "cannot tell"


def _same_verdict(verdict: str, centre: float, half: float, margin: float, run_se: float) -> float:
    """Probability of a verdict in a rerun, whose centre is Normal with twice the run variance.

    Both runs deviate from the expected difference on these items: at the border of a verdict the
    probability is one half.
    """
    spread = np.sqrt(2) * run_se
    above, below = margin + half, -margin - half
    inside = max(margin - half, 0.0)
    if spread == 0:
        return 1.0
    better, worse = ndtr((centre - above) / spread), ndtr((below - centre) / spread)
    equal = ndtr((inside - centre) / spread) - ndtr((-inside - centre) / spread)
    probabilities = {"better": better, "worse": worse, "equivalent": equal}
    return float(probabilities.get(verdict, 1 - better - worse - equal))


def _needed(
    verdict: str,
    estimate: _Difference,
    parts: _Parts,
    estimand: str,
    runs: _Runs,
    k: int,
    n: int,
    q: float,
    margin: float,
) -> tuple[int, int | None]:
    """Further items, and further trials of all items, that settle an open verdict."""
    if verdict != "cannot tell":
        return 0, 0
    distance = abs(abs(estimate.centre) - margin)
    # Neither items nor trials reduce the part of the judges.
    target = (distance / (q + float(ndtri(POWER)))) ** 2 - parts.judges.value
    total = estimate.se**2 - parts.judges.value
    if estimand == "domain":
        items = np.ceil(k * total / target - 1e-9) - k if target > 0 else np.inf
        return int(np.clip(items, 1, n)), 0
    rest = 0.0 if estimand == "run" else (parts.rest.value * k / n)
    rest += parts.runs.value
    more_items = 0
    if k < n:
        # The variance is V (1/k - 1/N) + rest: solve for the k that has the power.
        v = max(total - rest, 0.0) / (1 / k - 1 / n)
        room = target - rest
        needed = 1 / (room / v + 1 / n) if room > 0 and v > 0 else float(n)
        more_items = int(np.clip(np.ceil(needed - 1e-9) - k, 1, n - k))
    if rest <= target:
        return more_items, 0
    trials = np.concatenate([runs.new.n_trials, runs.old.n_trials])
    r = float(np.median(trials[trials > 0]))
    more = np.ceil(r * (rest / target - 1) - 1e-9) if target > 0 else np.inf
    return more_items, int(more) if more <= MAX_REPEATS else None


def _residuals(d: FloatArray, pair: _Pair, columns: FloatArray, method: str) -> _Residuals:
    """Differences less their mean, or leave-one-out residuals of their regression."""
    k, w = len(d), pair.weights
    mean = float(w @ d)
    if method != "assisted":
        return _Residuals(mean, 0.0, d - mean, np.empty(0))
    centred, solve, leverage = _regression(w, columns[pair.at])
    slopes = solve @ (np.sqrt(w * k) * (d - mean))
    shift = float((columns.mean(axis=0) - w @ columns[pair.at]) @ slopes)
    # Leave-one-out residuals correct for slopes fitted to the same items.
    residual = (d - mean - centred @ slopes) / np.maximum(1 - leverage, 1 / k)
    return _Residuals(mean, shift, residual, slopes)


def _regression(w: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centred covariates, the solution of their weighted regression, and each item's leverage."""
    root_weights = np.sqrt(w * len(w))[:, None]
    centred = z - w @ z
    solve = np.linalg.pinv(root_weights * centred, rcond=1e-8)
    return centred, solve, np.einsum("ij,ji->i", root_weights * centred, solve)


def _estimate(
    d: FloatArray, pair: _Pair, columns: FloatArray, method: str, unit: float
) -> _Difference:
    """The difference of full scores of these runs."""
    k, n, w = len(d), pair.n_items, pair.weights
    mean, shift, residual, _ = _residuals(d, pair, columns, method)
    effective = 1 / float(w @ w)
    if not unit and np.ptp(d) == 0:
        unit = 1.0  # equal differences so far are not certainty
    added = 2 if unit else 0
    spread = float(w @ residual**2) * effective + added * unit**2
    variance = spread / (effective + added if unit else max(effective - 1, 1.0))
    se = np.sqrt((1 - k / n) * variance / (effective + added))
    centre = mean * effective / (effective + added) if k < n else mean
    return _Difference(mean + shift, centre + shift, float(se))


def _shares_right(pair: _Pair) -> FloatArray:
    """Share of the calibrated models that are right on every item."""
    is_observed = ~np.isnan(pair.field)
    counts = is_observed.sum(axis=0)
    total = np.where(is_observed, pair.field, 0).sum(axis=0)
    return np.divide(total, counts, out=np.full(pair.n_items, 0.5), where=counts > 0)


def _covariates(pair: _Pair, shares: FloatArray) -> FloatArray:
    """Covariates of every item: strata, share right, and the old model's answer if known."""
    columns = [pair.strata, shares]
    if pair.known_old is not None:
        columns.append(pair.known_old)
    return np.column_stack(columns)


def _widening(
    pair: _Pair,
    shares: FloatArray,
    method: str,
    unit: float,
    level: float,
    z: float,
    progress: Progress | None,
) -> tuple[float, str]:
    """Factor by which intervals must be widened to cover pairs of calibrated models."""
    note = "items not drawn at random"
    answered = ~np.isnan(pair.field)
    run = answered[:, pair.at].astype(np.float32)
    common = run @ run.T  # number of the items run that both models of a pair have answered
    least = max(2.0, FEWEST_COMMON * len(pair.at))
    if method == "assisted":
        least = max(least, _covariates(pair, shares).shape[1] + 3.0)
    outside = np.ones(pair.n_items, bool)
    outside[pair.at] = False
    usable = np.asarray(answered[:, outside].any(axis=1))
    one, other = np.nonzero(np.triu((common >= least) & usable & usable[:, None], 1))
    n_models = len(np.union1d(one, other))
    order = np.random.default_rng(0).permutation(len(one))  # so that ties have no order
    one, other = one[order], other[order]
    filled = np.nan_to_num(pair.field[:, pair.at], nan=0.0)
    mean = (filled @ pair.weights) / np.maximum(run @ pair.weights, 1e-12)
    # Pairs that differ by as much as these two on the items run.
    apart = np.abs(np.abs(mean[one] - mean[other]) - abs(pair.weights @ pair.difference))
    close = np.argsort(apart, kind="stable")[:PAIRS_CHECKED]
    begin, ratios = Steps(progress, len(close)), []
    for number, at in enumerate(close, start=1):
        begin(f"Pair {number} of {len(close)} of calibrated models")
        models = pair.field[[one[at], other[at]]]
        similar, similar_shares, true = _similar(pair, shares, *models)
        if similar.weights.sum() == 0 or len(similar.at) == similar.n_items:
            continue
        columns = _covariates(similar, similar_shares)
        estimate = _estimate(similar.difference, similar, columns, method, unit)
        ratios.append(abs(estimate.centre - true) / max(estimate.se, 1e-12))
    if n_models >= FEWEST_MODELS and ratios:
        wider = float(np.quantile(ratios, level, method="higher")) / z
    else:
        df = max(n_models - 1, 0) if ratios else 0
        freedom = PRIOR_PAIRS + df
        square = (PRIOR_PAIRS + df * np.mean(np.square(ratios or [1.0]))) / freedom
        wider = float(stdtrit(freedom, 0.5 + level / 2) * np.sqrt(square)) / z
    reason = "as calibrated pairs need" if ratios else "without calibrated pairs to check it"
    wider = max(wider, 1.0)
    return wider, f"{note}: interval widened x {wider:.2f}, {reason}"


def _similar(
    pair: _Pair, shares: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[_Pair, FloatArray, float]:
    """Two calibrated models on the items that both answered: pair, shares right, difference."""
    both = ~np.isnan(first) & ~np.isnan(second)
    run = pair.at
    kept = both[run]
    items, weights = run[kept], pair.weights[kept]
    position = np.cumsum(both) - 1  # among the items that both answered
    similar = pair._replace(
        difference=(first - second)[items],
        weights=weights / (weights.sum() or 1.0),
        at=position[items],
        n_items=int(both.sum()),
        known_old=None if pair.known_old is None else second[both],
        strata=pair.strata[both],
    )
    return similar, shares[both], float((first - second)[both].mean())


def read_models(
    calibration: Responses | None,
    subset: Any,
    responses: Responses,
    new: str | None,
    old: str | None,
    mismatch: str,
    clusters: Any,
    reruns: Any,
    strata: Any = None,
    recipe: Any = None,
    judges: str | None = None,
) -> tuple[tuple[str, str], _Pair, _Runs, bool, list[str]]:
    """Both models' answers by item, whether the items are a probability sample, and flags."""
    reference = responses if calibration is None else calibration
    names, members, sources, new_row, old_row = _rows(
        reference, calibration, subset, responses, new, old, recipe
    )
    both = ~np.isnan(new_row.mean) & ~np.isnan(old_row.mean)
    flags = _differences_of_runs(members, sources)
    if subset is None:
        universe: IntArray = np.flatnonzero(both)
        positions: IntArray = universe
        weights: FloatArray = np.ones(len(universe))
        sampled = True
        if len(universe) < len(both):
            flags.append(f"{len(both) - len(universe)} of {len(both)} items not answered by both")
    else:
        universe = np.arange(len(both))
        positions, weights = _run_items(reference, subset)
        sampled = bool(is_sample(subset, len(both)))
        answered = both[positions]
        if not answered.all():
            missing = np.count_nonzero(~answered)
            flags.append(f"{missing} of {len(positions)} items not answered by both")
        positions, weights = positions[answered], weights[answered]
    if len(positions) < 2 or not weights.sum() > 0:
        raise argument_error("responses", "answers of both to at least 2 items", len(positions))
    known_old = None if subset is None or np.isnan(old_row.mean).any() else old_row.mean
    used = positions if known_old is None else universe
    item_ids = reference.item_ids[used]
    for source in {id(source): source for source in (*sources, responses)}.values():
        check_conditions(reference.items, source.items, mismatch, items=item_ids)
    field: FloatArray = np.empty((0, len(universe)))
    if calibration is not None and subset is not None:
        field = _field(calibration, [name for models in members for name in models])
    new_run, old_run = new_row.at(positions), old_row.at(positions)
    pair = _Pair(
        difference=new_run.mean - old_run.mean,
        weights=weights / weights.sum(),
        item_ids=reference.item_ids[positions],
        at=np.searchsorted(universe, positions),
        n_items=len(universe),
        field=field,
        known_old=known_old,
        strata=_strata(strata, (reference, responses), reference.item_ids[universe]),
    )
    if clusters is None and BASE_ITEM in reference.items:
        clusters = BASE_ITEM
        flags.append("the judgements of one item are a cluster")
    labels, note = cluster_labels(clusters, (reference, responses), reference.item_ids[positions])
    flags += note
    known = tuple(dict.fromkeys((responses, reference)))
    runs = _Runs(
        new=new_run,
        old=old_run,
        clusters=labels,
        judges=_judges(judges, reference, reference.item_ids[positions], flags),
        reliability=read_reruns(reruns, known, reference, mismatch),
        unit=_unit(pair.difference, sources, (new_run, old_run)) if recipe is None else 0.0,
    )
    return names, pair, runs, sampled, flags


def _rows(
    reference: Responses,
    calibration: Responses | None,
    subset: Any,
    responses: Responses,
    new: str | None,
    old: str | None,
    recipe: Any,
) -> tuple[tuple[str, str], list[list[str]], tuple[Responses, Responses], Answers, Answers]:
    """Names of both models or recipes, their models, the responses with these, and the answers."""
    if recipe is not None:
        names, members = _recipes(responses, recipe, new, old)
        rows = [_seeds(responses, models, reference) for models in members]
        return names, members, (responses, responses), rows[0], rows[1]
    names, sources = _names(calibration, subset, responses, new, old)
    rows = [_answers(source, name, reference) for source, name in zip(sources, names, strict=True)]
    return names, [[name] for name in names], sources, rows[0], rows[1]


def _names(
    calibration: Responses | None,
    subset: Any,
    responses: Responses,
    new: str | None,
    old: str | None,
) -> tuple[tuple[str, str], tuple[Responses, Responses]]:
    """Ids of the new and the old model, and the responses that have them."""
    new_id = str(responses.subject_ids[-1] if new is None else new)
    old_id = str(responses.subject_ids[0] if old is None else old)
    earlier = calibration if subset is None else None  # it has the old run, maybe of one id
    if old is None and new_id == old_id and earlier is not None and earlier.n_subjects == 1:
        old_id = old = str(earlier.subject_ids[0])
    if new_id == old_id and old is None:
        must = f"given: responses have {new_id} alone, and a calibrated model can be the old one"
        if responses.n_subjects > 1:
            must = f"given, as the first model of responses, {new_id}, is the new one"
        raise argument_error("old", must, "nothing")
    if new_id == old_id and (earlier is None or old_id not in earlier):
        raise argument_error("new", "a model other than old", new_id)
    candidates = [responses] if calibration is None else [responses, calibration]
    if new_id == old_id:
        candidates.reverse()
    first = _source_of([responses], new_id, "new")
    return (new_id, old_id), (first, _source_of(candidates, old_id, "old"))


def _recipes(
    responses: Responses, recipe: Any, new: str | None, old: str | None
) -> tuple[tuple[str, str], list[list[str]]]:
    """Names of two recipes, and the ids of the models that each has trained."""
    ids = [str(subject) for subject in responses.subject_ids]
    labels = groups_of(recipe, "recipe", [responses.subjects], pd.Index(ids), "subject")
    known = [str(name) for name in labels.dropna().unique()]
    if len(known) < 2:
        raise argument_error("recipe", "two recipes or more", known)
    names = (known[-1] if new is None else str(new), known[0] if old is None else str(old))
    members = []
    for name, argument in zip(names, ("new", "old"), strict=True):
        if name not in known:
            raise argument_error(argument, f"one of the recipes {', '.join(known[:6])}", name)
        members.append([model for model in ids if str(labels[model]) == name])
        if len(members[-1]) < 2:
            must = "one of at least two models of each recipe: the variance between seeds"
            got = f"{len(members[-1])} of {name}"
            raise argument_error("recipe", must, got, advice=SINGLE_SEED)
    if names[0] == names[1]:
        raise argument_error("new", "a recipe other than old", names[0])
    return names, members


SINGLE_SEED = 'With one model of each compare the models: estimand="model".'


def _seeds(source: Responses, models: Sequence[str], reference: Responses) -> Answers:
    """The answers of a recipe's models, as those of numbered trials; all answered, or none."""
    scores = np.column_stack([_answers(source, name, reference).mean for name in models])
    mean = scores.mean(axis=1)
    return Answers(mean, np.where(np.isnan(mean), 0, len(models)), scores)


def _judges(
    judges: str | None, reference: Responses, item_ids: np.ndarray, flags: list[str]
) -> IntArray | None:
    """The number of the judge of each judgement; None, and a flag, where there are too few."""
    if judges is None:
        return None
    if BASE_ITEM not in reference.items:
        advice = f'Read them with Responses.from_long(table, facets="{judges}").'
        raise argument_error("judges", "a facet of the responses", judges, advice)
    ids = pd.Index([str(item) for item in item_ids])
    labels = groups_of(judges, "judges", [reference.items], ids, "item")
    codes, names = pd.factorize(labels.astype(str))
    if len(names) < MIN_NUMBERED:
        n = "1 judge" if len(names) == 1 else f"{len(names)} judges"
        flags.append(f"{n}: whether other judges would agree is not identified")
        return None
    items = groups_of(BASE_ITEM, "judges", [reference.items], ids, "item")
    if pd.Series(codes).groupby(items.to_numpy()).nunique().max() < len(names):
        flags.append("no item judged by all judges: whether others would agree is not identified")
        return None
    return np.asarray(codes)


def _strata(strata: Any, tables: Sequence[Responses], item_ids: np.ndarray) -> FloatArray:
    """Indicators of the strata of all items, but of the largest one."""
    if strata is None:
        return np.empty((len(item_ids), 0))
    ids = pd.Index([str(item) for item in item_ids])
    labels = groups_of(strata, "strata", [table.items for table in tables], ids, "item")
    if labels.isna().any():
        missing = labels.index[labels.isna().to_numpy()]
        raise argument_error("strata", "given for every item", f"none for {brief(missing[0])}")
    codes = pd.factorize(labels.astype(str))[0]
    largest = np.argmax(np.bincount(codes))
    kept = [code for code in range(codes.max() + 1) if code != largest]
    return (codes[:, None] == kept).astype(float)


def _source_of(sources: Sequence[Responses], name: str, argument: str) -> Responses:
    """The first responses that have a model."""
    for source in sources:
        if name in source:
            return source
    names = list(sources[0].subject_ids) + ["or a calibrated model"] * (len(sources) - 1)
    raise argument_error(argument, f"one of {', '.join(map(str, names[:6]))}", name)


def _run_items(reference: Responses, subset: Any) -> tuple[IntArray, FloatArray]:
    """Positions and weights of the items of a subset."""
    subset_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if subset_ids.ndim != 1 or not len(subset_ids) or len(np.unique(subset_ids)) < len(subset_ids):
        raise argument_error("subset", "a Subset or a list of different item ids", subset)
    all_items = pd.Index(np.asarray(reference.item_ids, dtype=str))
    positions = positions_of_ids("subset", subset_ids, all_items)
    equal = np.full(len(positions), 1 / len(positions))
    return positions, np.asarray(getattr(subset, "weights", equal), float)


def _answers(source: Responses, name: str, reference: Responses) -> Answers:
    """A model's scores on the reference's items, 0 to 1, with its trials."""
    row = int(np.flatnonzero(source.subject_ids == name)[0])
    n_items = reference.n_items
    present: BoolArray = np.ones(n_items, bool)
    at: IntArray = np.arange(n_items)
    if not np.array_equal(source.item_ids, reference.item_ids):
        index = pd.Index(np.asarray(source.item_ids, str))
        positions = index.get_indexer(pd.Index(np.asarray(reference.item_ids, str)))
        present = positions >= 0
        at = positions[present]
    mean = np.full(n_items, np.nan)
    n_trials = np.zeros(n_items, int)
    values = source.values[row, at]
    trials = None if source.trials is None else source.trials[row, at]
    if source.is_fractional:
        if reference.n_categories != 2:
            must = f"in {reference.n_categories} categories, like the calibration"
            raise argument_error("responses", must, source.kind)
        mean[present] = exact_shares(values, trials)
    else:
        codes = recode(values[None], source, reference, "responses")[0]
        mean[present] = np.where(codes < 0, np.nan, codes / max(reference.n_categories - 1, 1))
    n_trials[~np.isnan(mean)] = 1
    if trials is not None:
        n_trials[present] = trials
    scores = None
    numbered = getattr(source, "trial_values", None)
    if numbered is not None:
        scores = np.full((n_items, numbered.shape[2]), np.nan)
        scores[present] = numbered[row, at]
    return Answers(mean, n_trials, scores)


def _unit(
    d: FloatArray, sources: tuple[Responses, Responses], runs: tuple[Answers, Answers]
) -> float:
    """Difference of one trial; 0 for scores that are neither counts nor categories."""
    trials = max(int(np.median(run.n_trials)) for run in runs)
    continuous = any(s.is_fractional and s.trials is None for s in sources) and trials == 1
    if continuous and float(np.ptp(d)) > 0:
        return 0.0
    return 1 / max(trials, 1)


def _differences_of_runs(
    members: Sequence[Sequence[str]], sources: tuple[Responses, Responses]
) -> list[str]:
    """What the models' metadata say of different conditions of their runs."""
    flags = []
    for column in RUN_COLUMNS:
        if not all(column in source.subjects for source in sources):
            continue
        pairs = zip(sources, members, strict=True)
        values = [source.subjects[column].loc[list(models)] for source, models in pairs]
        if any(value.isna().any() for value in values):
            continue
        new, old = (", ".join(map(str, value.unique())) for value in values)
        if new != old:
            flags.append(f"other {column}: {brief(new)} instead of {brief(old)}")
    pairs = zip(sources, members, strict=True)
    after, before = (_settings(source, list(models)) for source, models in pairs)
    for task, name in before:
        if (task, name) in after and after[task, name] != before[task, name]:
            new, old = (", ".join(sorted(values[task, name])) for values in (after, before))
            flags.append(
                f"other {name} in task {brief(task)}: {brief(new)} instead of {brief(old)}"
            )
    return flags


def _settings(source: Responses, models: list[str]) -> dict[tuple[str, str], set[str]]:
    """Values of the `RUN_SETTINGS` of models' runs by task, as logs give them; "none" if unset."""
    found: dict[tuple[str, str], set[str]] = {}
    texts = source.subjects.loc[models].get("settings", pd.Series(dtype=object))
    for text in texts.dropna():
        try:
            tasks = json.loads(text)
        except (TypeError, ValueError):
            continue
        for task, values in tasks.items() if isinstance(tasks, dict) else ():
            for name in RUN_SETTINGS if isinstance(values, dict) else ():
                found.setdefault((task, name), set()).add(str(values.get(name, "none")))
    return found


def cluster_labels(
    clusters: Any, tables: Sequence[Responses], item_ids: np.ndarray
) -> tuple[IntArray | None, list[str]]:
    """The number of the cluster of each item, and a flag where there is one item in each."""
    if clusters is None:
        return None, []
    ids = pd.Index([str(item) for item in item_ids])
    values = groups_of(clusters, "clusters", [table.items for table in tables], ids, "item")
    if values.isna().all():
        raise argument_error("clusters", "given for items that both answered", "none of them")
    alone: BoolArray = values.isna().to_numpy()
    labels = pd.factorize(values.astype(str))[0]
    labels[alone] = len(labels) + np.arange(int(alone.sum()))
    labels = np.unique(labels, return_inverse=True)[1]
    if labels.max() + 1 == len(labels):
        return None, ["every cluster has one item, as without clusters"]
    return labels, []


def groups_of(
    groups: Any, argument: str, tables: Sequence[pd.DataFrame], ids: pd.Index, kind: str
) -> pd.Series:
    """The group of each item or subject; missing where it has none.

    Args:
        groups: a column of one of the tables, or a mapping from id to group.
        argument: its name, for messages.
        tables: metadata, indexed by id.
        ids: ids, as text.
        kind: "item" or "subject".
    """
    if isinstance(groups, str):
        table = next((table for table in tables if groups in table), None)
        if table is None:
            columns = [str(column) for table in tables for column in table.columns]
            known = ", ".join(dict.fromkeys(columns)) or "none: there are no columns"
            raise argument_error(argument, f"a column of the {kind}s ({known})", groups)
        groups = table[groups]
    elif not isinstance(groups, (Mapping, pd.Series)):
        must = f"a column of the {kind}s, or a mapping from {kind} to group"
        raise argument_error(argument, must, groups)
    known_groups = pd.Series(dict(groups.items()), dtype=object)
    known_groups.index = known_groups.index.map(str)
    return known_groups.reindex(ids)


def _field(calibration: Responses, names: Sequence[str]) -> FloatArray:
    """Answers of the calibrated models other than these."""
    others = ~np.isin(calibration.subject_ids.astype(str), names)
    scores = calibration.to_numpy() / max(calibration.n_categories - 1, 1)
    return scores[others] if others.any() else scores

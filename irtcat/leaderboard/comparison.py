"""Comparison of two models: whose score differs, by how much, and would a rerun agree?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from irtcat._common.checks import argument_error, check_choice, check_interval, is_number
from irtcat._common.progress import ProgressOption, with_progress
from irtcat.leaderboard.compared_models import (
    MIN_CLUSTERS,
    ModelPair,
    PairRuns,
    as_compared,
    few_clusters,
    read_models,
)
from irtcat.leaderboard.differences import (
    Difference,
    PairDesign,
    VarianceParts,
    chosen_method,
    design_of,
    noise_between,
    widening_of,
)
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.responses import Responses
from irtcat.selection import Subset

METHODS = ("auto", "paired", "assisted")
SCALES = ("difference", "ratio")
COMPARED = {
    **ESTIMANDS,
    "recipe": "the expected scores of the recipes' models on all {n} items, over training seeds",
}
"""Whose scores are compared, and how they are called in the output."""

POWER = 0.8
"""Power that defines the detectable difference and the number of further items."""

MAX_REPEATS = 100
"""Further trials of each item above which their number is not given."""


HIDDEN = ("new", "flags", "is_supported")
"""Fields that are no columns: the index, a column of text, and what the verdict says."""


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
        is_supported: whether there are enough clusters for a verdict; true without clusters.
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
    is_supported: bool = True

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
        row = {name: value for name, value in vars(self).items() if name not in HIDDEN}
        row["flag"] = "; ".join(self.flags)
        return pd.DataFrame([row], index=pd.Index([self.new], name="new"))


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
    all items were run); with two or three models at least that of the other recipe, if that has
    more than twice as many.

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
    design = design_of(pair, runs, estimand)
    noise = noise_between(design, 1.0)
    design = design._replace(method=chosen_method(method, design, noise))
    if not sampled:
        widening, note = widening_of(design, level, progress)
        design = design._replace(widening=widening)
        flags.append(note)
    if estimand != "run" and noise is not None:
        flags += noise.flags
    if estimand == "model" and noise is None and runs.new.is_repeated != runs.old.is_repeated:
        more, one = names if runs.new.is_repeated else names[::-1]
        flags.append(
            f"{one} has one trial and {more} several: its run noise is unknown, and the variance "
            "is that of single runs"
        )
    return _concluded(names, design, scale, float(level), float(margin), flags)


def check_margin(margin: Any) -> None:
    """Raise unless the margin is a difference of scores."""
    if not is_number(margin) or not 0 <= margin < 1:
        must = "a difference of scores of at least 0 and below 1 (0.02 for 2 points)"
        raise argument_error("margin", must, margin)


def t_quantile(df: float, probability: float) -> float:
    """Quantile of Student's t; of the Normal for infinite df."""
    return float(ndtri(probability) if np.isinf(df) else stdtrit(df, probability))


def _probability(df: float, t: float) -> float:
    """Distribution function of Student's t; of the Normal for infinite df."""
    return float(ndtr(t) if np.isinf(df) or np.isinf(t) else stdtr(df, t))


def _ratio(value: float, se: float) -> float:
    """A distance in standard errors."""
    return value / se if se > 0 else float(np.copysign(np.inf, value)) if value else 0.0


class _Open(NamedTuple):
    """What would settle an open verdict follows from it.

    Attributes:
        half: half the width of the interval.
        q: quantile of its standard error.
        estimate: what must differ from the margin.
        parts: the variance of that.
        margin: the margin that remains.
    """

    half: float
    q: float
    estimate: Difference
    parts: VarianceParts
    margin: float


def _concluded(
    names: tuple[str, str],
    design: PairDesign,
    scale: str,
    level: float,
    margin: float,
    flags: list[str],
) -> Comparison:
    """Interval, verdict and what would settle an open one."""
    find = _difference if scale == "difference" else _relative
    found, still_open = find(design, level, margin)
    d, few = design.pair.difference, few_clusters(design.runs.clusters)
    if np.isinf(found["upper"]):
        flags.append("the old score may be 0: the ratio has no upper limit")
    if not d.any():
        flags.append("both gave the same answer to every item run")
    verdict, p_rerun = verdict_of(found["lower"], found["upper"], margin), 1.0
    if few:
        verdict, are = "cannot tell", "1 cluster is" if few == 1 else f"{few} clusters are"
        flags.append(f"{are} too few for a verdict: {MIN_CLUSTERS} are needed")
    else:
        centre, run_se = found["centre"], found["run_se"]
        p_rerun = _same_verdict(verdict, centre, still_open.half, margin, run_se)
    more_items, more_repeats = _needed(design, still_open) if verdict == "cannot tell" else (0, 0)
    return Comparison(
        new=names[0],
        old=names[1],
        **found,
        verdict=verdict,
        more_items=more_items,
        n_items=len(d),
        n_new_only=int(np.count_nonzero(d > 0)),
        n_old_only=int(np.count_nonzero(d < 0)),
        method=design.method,
        level=level,
        flags=tuple(flags),
        estimand=design.estimand,
        n_all=design.pair.n_items,
        margin=margin,
        p_rerun=p_rerun,
        is_supported=not few,
        detectable=margin + (still_open.q + float(ndtri(POWER))) * found["se"],
        more_repeats=more_repeats,
        scale=scale,
    )


def _difference(design: PairDesign, level: float, margin: float) -> tuple[dict[str, Any], _Open]:
    """The fields of a `Comparison` that depend on its scale: the difference of the scores."""
    estimate, parts, run_variance = design.at(1.0)
    d, k, n = design.pair.difference, len(design.pair.difference), design.pair.n_items
    lowest, highest = -1.0, 1.0
    if design.estimand == "run":
        lowest, highest = (d.sum() - (n - k)) / n, (d.sum() + (n - k)) / n
    q = t_quantile(estimate.df, 0.5 + level / 2)
    half = q * estimate.se
    ends = (estimate.difference, estimate.centre - half, estimate.centre + half)
    difference, lower, upper = np.clip(ends, lowest, highest).tolist()
    centre = estimate.centre if estimate.centre * difference > 0 else 0.0
    ratio = _ratio(centre, estimate.se)
    p_value, p_equivalent = p_values(estimate.centre, difference, estimate.se, estimate.df, margin)
    if lowest > 0 or highest < 0:
        ratio = float(np.copysign(np.inf, lowest))  # whatever the items not run would give
        p_value = 0.0 if max(lowest, -highest) > margin else p_value
    found = dict(
        difference=difference,
        lower=min(lower, difference),
        upper=max(upper, difference),
        centre=float(estimate.centre),
        se=float(estimate.se),
        df=float(estimate.df),
        p_better=_probability(estimate.df, ratio),
        p_value=p_value,
        p_equivalent=p_equivalent,
        run_se=float(np.sqrt(run_variance)),
    )
    return found, _Open(half, q, estimate, parts, margin)


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


def closing_of(pair: ModelPair, runs: PairRuns, margin: float, level: float) -> Closing:
    """The "paired" interval for the estimand "model" of two models that answered all items."""
    estimate = design_of(pair, runs, "model").at(1.0)[0]
    half = t_quantile(estimate.df, 0.5 + level / 2) * estimate.se
    ratio = _ratio(estimate.centre + margin, estimate.se)
    return Closing(estimate.centre - half, estimate.centre + half, _probability(estimate.df, ratio))


def _relative(design: PairDesign, level: float, margin: float) -> tuple[dict[str, Any], _Open]:
    """The same for new / old - 1: all R for which the interval of new - R old holds 0."""

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
    if design.at(best)[0].se == 0:  # no noise: the ratio is known
        lower = upper = best
    else:
        lower = brentq(distance, 0.0, best, args=(1,)) if distance(0.0, 1) > 0 else 0.0
        upper = next((r for r in best + 2.0 ** np.arange(-4, 21) if distance(r, -1) > 0), np.inf)
    if best < upper < np.inf:
        upper = brentq(distance, best, upper, args=(-1,))
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
    found = dict(
        difference=best - 1,
        lower=lower - 1,
        upper=upper - 1,
        centre=best - 1,
        se=float(se),
        df=float(middle.df),
        p_better=_probability(equal.df, _ratio(equal.centre, equal.se)),
        p_value=p_value,
        p_equivalent=p_equivalent,
        run_se=run_se,
    )
    return found, _Open(half, q, estimate, parts, 0.0)


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


def _needed(design: PairDesign, still_open: _Open) -> tuple[int, int | None]:
    """Further items, and further trials of all items, that settle an open verdict."""
    _, q, estimate, parts, margin = still_open
    runs, k, n = design.runs, len(design.pair.difference), design.pair.n_items
    distance = abs(abs(estimate.centre) - margin)
    # Neither items nor trials reduce the part of the judges.
    target = (distance / (q + float(ndtri(POWER)))) ** 2 - parts.judges.value
    total = estimate.se**2 - parts.judges.value
    if design.estimand == "domain":
        items = np.ceil(k * total / target - 1e-9) - k if target > 0 else np.inf
        return int(np.clip(items, 1, n)), 0
    rest = 0.0 if design.estimand == "run" else (parts.rest.value * k / n)
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

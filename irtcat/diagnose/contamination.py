"""Contamination without dates: subjects that have seen items, and what they can do without it.

A subject that has seen a share of the items answers these rightly, hard ones as well as easy ones.
One that is merely able fails the hard ones. Both the ability and the share are estimated from the
answers, so that the ability is that on items that were not seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit, logsumexp, ndtr, ndtri, softmax

from irtcat._common.checks import argument_error, check_choice, check_interval
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.bank import BankLike, as_bank
from irtcat.diagnose.chi_square import coded, curves
from irtcat.io.convert import ResponsesLike, as_responses_like

FEWEST_ANSWERS = 20
"""Subjects with fewer answers are not tested: ability and share are hardly distinguished."""

FEWEST_TO_CALIBRATE = 20
"""Subjects below which items cannot be calibrated on a part of them."""

FEWEST_SUBJECTS = 10
"""Subjects below which the spread of their statistics says nothing of how well the model fits."""

FEWEST_SEEING = 3
"""Contaminated subjects below which no item is tested."""

FEW_SEEN = np.array([-0.2, -0.05, 0.0, 0.05, 0.15, 0.3, 0.5, 0.7])
"""A coarser grid for the search of a start."""

NODES = np.linspace(-5.0, 5.0, 81)
"""Abilities of the grid, in SDs of the population."""

SEEN = np.concatenate([-np.geomspace(0.4, 0.02, 6), [0.0], np.geomspace(0.02, 0.95, 18)])
"""Shares of the grid. Negative ones, which stand for slips, make the statistic symmetric around 0
for those that have seen nothing."""

RIGHT_IF_SEEN = 0.95
"""Probability of a right answer to an item that the subject has seen."""

LEAST_FACTOR = 7.0
"""Log of the likelihood ratio above which a subject has seen the same items as others: a factor of
1,100, which leaves .9 % of doubt where one in ten subjects is contaminated."""

ASYMPTOTES = np.linspace(0.0, 0.5, 11)
"""Lower asymptotes of all items that are tried."""

LEAST_GAIN = 1.92
"""Log-likelihood by which an asymptote above 0 must exceed 0: half the 95 % point of chi-square."""

CORE, MOST_SHARE = 0.65, 0.4
"""Share of the subjects on which items are calibrated at first, and the largest of contaminated
ones (experiments/contamination)."""

START_ROOT = 2.3
"""Statistic of the subjects that are contaminated at first."""

N_COMPONENTS, STARTS_KEPT = 3, 2
"""Components of the residuals along which the search starts, and starts that are continued after
their first step. In 16 simulated sets, among them the hardest of 580, the right one was the best
after it: by 350 to 1,200 units of log-likelihood where all had seen the same items, by 13 and 82
before another start in the right direction where each had seen its own."""

SHARE_MEANS, SHARE_CONCENTRATIONS = np.linspace(0.05, 0.95, 19), np.array([2.0, 6.0, 20.0, 60.0])
"""Beta distributions of the shares that subjects have seen, from nearly uniform to an SD of .06."""

MOST_ROUNDS, NEWTON_STEPS = 8, 8
MAD_OF_NORMAL = 0.6745

USUAL_SLOPE, SLOPE_SD, CONSTANT_SD = 1.2, 0.5, 3.0
"""Normal priors of the quick calibration, for a standardised ability."""

MIN_PROBABILITY = 0.02
"""Bound of the probability of a right or wrong answer: one answer says no more than that, as models
are never exact for the hardest and the easiest items."""


@dataclass(frozen=True, eq=False)
class Contamination:
    """The result of `find_contamination`.

    Attributes:
        subjects: one row per subject: n, answers; ability, without what it has seen, and se;
            usual_ability, as `irtcat.score` estimates it; seen, the share of the items that it has
            seen; z, one-sided p and p_adjusted; factor, the log of the likelihood ratio for having
            seen the same items as the other contaminated subjects (NaN where these are few);
            contaminated; flag.
        items: one row per item: n, answers of contaminated subjects; excess, by how much more of
            them are right than their abilities and shares say; z, one-sided p and p_adjusted;
            leaked (p_adjusted below alpha); flag. All subjects see the same items only where these
            leaked: then some items leaked, and others did not.
        alpha: level of the tests after the correction.
        correction: of the p-values.
        asymptote: lower asymptote of all items in the calibration on these responses (NaN with a
            bank). Items that nearly all answer rightly say nothing of it: a flag says so.
        inflation: by how much z varied more than the model says (1: as it says), by which it has
            been divided.
        flags: what to know of these results.
    """

    subjects: pd.DataFrame
    items: pd.DataFrame
    alpha: float
    correction: str
    asymptote: float
    inflation: float
    flags: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """The table of the subjects."""
        return self.subjects.copy()

    def __repr__(self) -> str:
        tested = int(self.subjects["p"].notna().sum())
        contaminated, leaked = self.subjects["contaminated"].sum(), self.items["leaked"].sum()
        return (
            f"Contamination({contaminated} of {tested} subjects have seen items; "
            f"{leaked} of {len(self.items)} items leaked)"
        )


def find_contamination(
    responses: ResponsesLike,
    bank: BankLike | None = None,
    *,
    correction: str = "bh",
    alpha: float = 0.005,
    mismatch: str = "refuse",
) -> Contamination:
    """Find subjects that have seen items, without any dates, and estimate their abilities anyway.

    A subject of ability theta that has seen a share s of the items answers item j rightly with the
    probability ``s + (1 - s) P_j(theta)``: hard items, too. Its statistic z is the signed root of
    the likelihood ratio of this model to that with s = 0, each with the best theta under the
    population. Models of items are never exact, and then z varies more, and around another value:
    from all z the median of those that are not contaminated is subtracted, and they are divided by
    their spread where it is above 1. If several subjects have seen the same items, these stand out,
    and a second model has for each item the probability that it leaked, from the answers of the
    other contaminated subjects; a subject is also contaminated if that makes its answers more
    likely by a factor of `LEAST_FACTOR`.

    Contaminated subjects make items look easier, and items that leaked look as if they measured
    something of their own. Without a bank the items are therefore calibrated on the subjects that
    fit best: from several starts 65 % of them are chosen, and chosen again by both models under
    their calibration (concentration steps), the step with the highest likelihood is kept, and
    then all that are not contaminated are used. At most 40 % may be contaminated. A lower asymptote
    that all items share, of guessing, is estimated, as it looks like a share that all have seen.

    The ability of a contaminated subject is the posterior mean under the better of the two models;
    of the others it is the usual one. In the first model the shares of contaminated subjects have
    one beta distribution, averaged over many by how likely their answers are under each: ability
    and share are hardly distinguished by one subject's answers alone.

    Args:
        responses: the responses, right or wrong.
        bank: items of one ability that were calibrated on subjects that have seen nothing (a bank,
            a fit or a file). By default they are calibrated on these responses (2PL, with a
            lower asymptote that all share), and abilities have mean 0 and SD 1 in those that are
            not contaminated.
        correction: of the p-values for many tests: "bh", "holm" or "none".
        alpha: level of the tests after the correction: with "bh" the share of subjects among the
            contaminated that are not.
        mismatch: as for `irtcat.score`.

    Returns:
        Two tables; see `Contamination`.

    Raises:
        InputError: for responses that are not right/wrong, fewer than 20 subjects without a bank,
            several abilities, or a number out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = 1 / (1 + np.exp(rng.normal(0, 1.5, 150) - rng.normal(size=(100, 1))))
        >>> x = (rng.random((100, 150)) < p).astype(int)
        >>> leaked = rng.random(150) < 0.4
        >>> x[:10, leaked] = 1  # ten subjects have seen 40 % of the items
        >>> find_contamination(x)
        Contamination(10 of 100 subjects have seen items; 27 of 150 items leaked)

    References:
        Drasgow, Levine & Williams (1985), BJMSP 38, 67-86 (person fit by likelihood ratios);
        Rousseeuw & Van Driessen (1999), Technometrics 41, 212-223 (concentration steps); Efron
        (2004), JASA 99, 96-104 (the null distribution from the data).
    """
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    if bank is None:
        data = as_responses_like(responses, "responses")
        if data.is_fractional or data.n_categories > 2:
            raise argument_error("responses", "right/wrong", data)
        if data.n_subjects < FEWEST_TO_CALIBRATE:
            must = f"of at least {FEWEST_TO_CALIBRATE} subjects, or given with a bank"
            raise argument_error("responses", must, f"{data.n_subjects} subjects")
        values, points, p = np.asarray(data.values), NODES, None
    else:
        bank = as_bank(bank, needs=["one ability"], purpose="find_contamination")
        read = coded(bank, responses, mismatch=mismatch)
        if (read.categories != 2).any():
            raise argument_error("bank", "of right/wrong items", "more categories")
        data, values, population = read.responses, read.values, read.bank.population
        points = population.mean + population.sd * NODES
        p = np.clip(curves(read.bank, points)[..., 1].T, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    answers = BinaryAnswers((values == 1).astype(float), (values == 0).astype(float))
    found, asymptote = _search(answers, p, points, correction, alpha)
    subjects = found.subjects.set_index(pd.Index(data.subject_ids, dtype=object, name="subject"))
    items = _items(answers, found, points, correction, alpha)
    items.index = pd.Index(data.item_ids, dtype=object, name="item")
    return Contamination(
        subjects=subjects,
        items=items,
        alpha=float(alpha),
        correction=correction,
        asymptote=asymptote,
        inflation=found.inflation,
        flags=found.flags,
    )


class BinaryAnswers(NamedTuple):
    """The responses as two matrices of 0 and 1.

    Attributes:
        right: subjects x items.
        wrong: subjects x items.
    """

    right: FloatArray
    wrong: FloatArray

    def of(self, rows: Any) -> "BinaryAnswers":
        """Those of some subjects."""
        return BinaryAnswers(self.right[rows], self.wrong[rows])

    def log_p(self, p: FloatArray) -> FloatArray:
        """Log posterior of each subject at each node, but for a constant (subjects x nodes).

        Args:
            p: nodes x items, probabilities of a right answer.
        """
        return self.right @ np.log(p).T + self.wrong @ np.log1p(-p).T - NODES**2 / 2


class CoreStep(NamedTuple):
    """A concentration step.

    Attributes:
        core: the rows of the subjects on whom items were calibrated.
        p: nodes x items, probabilities of a right answer.
        order: of all subjects, the smallest for those that fit best.
        total: log-likelihood of all answers, each subject by the model that fits it better.
    """

    core: IntArray
    p: FloatArray
    order: FloatArray
    total: float


class Verdicts(NamedTuple):
    """Subjects under one calibration.

    Attributes:
        subjects: the table of the subjects.
        p: the calibration: nodes x items, probabilities of a right answer.
        inflation: as in `Contamination`.
        flags: what to know.
    """

    subjects: pd.DataFrame
    p: FloatArray
    inflation: float
    flags: tuple[str, ...]


def _search(
    answers: BinaryAnswers, p: FloatArray | None, points: FloatArray, correction: str, alpha: float
) -> tuple[Verdicts, float]:
    """Test all subjects, calibrate without those that are contaminated, and test again.

    Returns:
        The verdicts, and the lower asymptote of the calibration.
    """
    n = len(answers.right)
    fixed, asymptote = p is not None, Asymptote(np.nan, np.inf)
    p = _robust_start(answers) if p is None else p
    found = _statistics(answers, p, points)
    contaminated = _most(found["root"] > START_ROOT, found["root"])
    contaminated |= _profile(answers, contaminated, p, points, found)["factor"] > LEAST_FACTOR
    tested = None
    for _ in range(MOST_ROUNDS):
        if not fixed:
            clean = answers.of(~contaminated)
            asymptote = _asymptote(clean)
            p = _calibrated(clean, asymptote.floor)
        found = _statistics(answers, p, points)
        profile = _profile(answers, contaminated, p, points, found)
        tested = _tested(found, profile, p, contaminated, correction, alpha)
        before = contaminated
        contaminated = tested.subjects["contaminated"].to_numpy()
        if (contaminated == before).all() or contaminated.sum() > MOST_SHARE * n:
            break
    assert tested is not None
    if asymptote.floor > 0 and asymptote.gain < LEAST_GAIN:
        flag = f"the lower asymptote ({asymptote.floor:.2f}) is not determined: 0 is as likely"
        tested = tested._replace(flags=(*tested.flags, flag))
    return tested, asymptote.floor


def _most(flagged: BoolArray, root: FloatArray) -> BoolArray:
    """At most 40 % of the subjects, those with the largest statistics."""
    if flagged.sum() <= MOST_SHARE * len(root):
        return flagged
    return np.asarray(root >= np.quantile(root, 1 - MOST_SHARE))


def _robust_start(answers: BinaryAnswers) -> FloatArray:
    """The items calibrated on the subjects that fit best, from the step that explains the most."""
    floor, n = _asymptote(answers).floor, len(answers.right)

    def step(order: FloatArray) -> CoreStep:
        core = np.sort(np.argsort(order, kind="stable")[: round(CORE * n)])
        p = _calibrated(answers.of(core), floor)
        found = _statistics(answers, p, NODES, FEW_SEEN)
        flagged = _most(found["root"] > START_ROOT, found["root"])
        factor = _profile(answers, flagged, p, NODES, found)["factor"]
        total = float(np.maximum(found["log_best"], found["log_none"] + factor).sum())
        # By both models: by the first alone, steps lead away from a leak that many have seen.
        order = np.maximum(np.abs(found["root"]), np.sqrt(2 * np.maximum(factor, 0.0)))
        return CoreStep(core, p, order, total)

    firsts = [step(order) for order in _starts(answers, floor)]
    steps = sorted(firsts, key=attrgetter("total"), reverse=True)[:STARTS_KEPT]
    for last in steps.copy():
        for _ in range(MOST_ROUNDS - 1):
            before, last = last, step(last.order)
            if np.array_equal(before.core, last.core):
                break
            steps.append(last)
    return max(steps, key=attrgetter("total")).p


def _starts(answers: BinaryAnswers, floor: float) -> list[FloatArray]:
    """Orders of the subjects, the cleanest first.

    By the statistics under a calibration on all, and along both directions of the components in
    which answers depend most on each other.
    """
    right, answered = answers.right, answers.right + answers.wrong
    n_items, n_subjects = (np.maximum(answered.sum(axis=k), 1) for k in (1, 0))
    rows, columns = (
        logit(np.clip((right.sum(axis=k) + 0.5) / (count + 1), 0.02, 0.98))
        for k, count in ((1, n_items), (0, n_subjects))
    )
    p = expit(rows[:, None] + columns - logit(np.clip(right.sum() / answered.sum(), 0.02, 0.98)))
    residual = np.where(answered > 0, (right - p) / np.sqrt(p * (1 - p)), 0.0)
    residual = residual - residual.mean(axis=1, keepdims=True)
    residual = residual - residual.mean(axis=0)
    vectors = np.linalg.svd(residual, full_matrices=False)[0][:, :N_COMPONENTS].T
    root = np.abs(_statistics(answers, _calibrated(answers, floor), NODES, FEW_SEEN)["root"])
    return [root, *vectors, *-vectors]


def _calibrated(answers: BinaryAnswers, floor: float = 0.0) -> FloatArray:
    """Curves of a 2PL (nodes x items), by regressions on the standardised normal scores.

    It is quick, for dozens of calibrations; slopes are drawn to a usual one, as subjects are few.

    Args:
        answers: of the subjects on whom items are calibrated.
        floor: lower asymptote of all items.
    """
    right, answered = answers.right, answers.right + answers.wrong
    least = 0.5 / (answered.sum(axis=1) + 1)
    share = (right.sum(axis=1) + 0.5) / (answered.sum(axis=1) + 1)
    theta = ndtri(np.maximum((share - floor) / (1 - floor), least))
    theta = ((theta - theta.mean()) / max(float(theta.std()), 1e-6))[:, None]
    slope = np.full(right.shape[1], USUAL_SLOPE)
    constant = logit((right.sum(axis=0) + 0.5) / (answered.sum(axis=0) + 1))
    for _ in range(NEWTON_STEPS):
        q = expit(slope * theta + constant)
        p = floor + (1 - floor) * q
        # The derivative of p by the linear predictor, over the variance of an answer.
        by_variance = q / p
        weight = answered * by_variance * (1 - floor) * q * (1 - q)
        residual = (right - answered * p) * by_variance
        of_slope = (residual * theta).sum(axis=0) - (slope - USUAL_SLOPE) / SLOPE_SD**2
        of_constant = residual.sum(axis=0) - constant / CONSTANT_SD**2
        aa = (weight * theta**2).sum(axis=0) + SLOPE_SD**-2
        ab, bb = (weight * theta).sum(axis=0), weight.sum(axis=0) + CONSTANT_SD**-2
        determinant = aa * bb - ab**2
        slope = slope + np.clip((bb * of_slope - ab * of_constant) / determinant, -1, 1)
        constant = constant + np.clip((aa * of_constant - ab * of_slope) / determinant, -1, 1)
    p = floor + (1 - floor) * expit(slope * NODES[:, None] + constant)
    return np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)


class Asymptote(NamedTuple):
    """The lower asymptote of all items, and its log-likelihood over that of 0."""

    floor: float
    gain: float


def _asymptote(answers: BinaryAnswers) -> Asymptote:
    """The likeliest lower asymptote of all items, from 0 upwards."""
    log_likelihoods: list[float] = []
    for floor in ASYMPTOTES:
        log_p = answers.log_p(_calibrated(answers, floor))
        log_likelihoods.append(float(logsumexp(log_p, axis=1).sum()))
        if log_likelihoods[-1] < max(log_likelihoods):
            break
    best = int(np.argmax(log_likelihoods))
    return Asymptote(float(ASYMPTOTES[best]), log_likelihoods[best] - log_likelihoods[0])


def _profile(
    answers: BinaryAnswers,
    contaminated: BoolArray,
    p: FloatArray,
    points: FloatArray,
    found: Mapping[str, FloatArray],
) -> dict[str, FloatArray]:
    """How much likelier the answers are if the subject has seen what the contaminated ones have.

    Returns:
        Of each subject: factor, the log of the likelihood ratio (minus infinity where too few
        subjects are contaminated); ability and se under this model.
    """
    n = len(contaminated)
    out = {"factor": np.full(n, -np.inf), "ability": np.zeros(n), "se": np.zeros(n)}
    rows = np.flatnonzero(contaminated)
    if len(rows) < FEWEST_SEEING:
        return out
    own = np.stack(
        [np.interp(found["other_ability"][rows], points, curve) for curve in p.T], axis=1
    )
    seen = RIGHT_IF_SEEN + (1 - RIGHT_IF_SEEN) * own
    evidence = answers.right[rows] * np.log(seen / own)
    evidence += answers.wrong[rows] * np.log((1 - seen) / (1 - own))
    usual = float(np.clip(found["seen"][rows].mean(), 0.05, 0.9))
    total = evidence.sum(axis=0) + logit(usual)
    without = {int(row): total - evidence[k] for k, row in enumerate(rows)}
    for part in [np.flatnonzero(~contaminated), *rows[:, None]]:
        if not len(part):
            continue
        leaked = expit(np.clip(without.get(int(part[0]), total), -30, 30))
        with_leak = leaked * (RIGHT_IF_SEEN + (1 - RIGHT_IF_SEEN) * p) + (1 - leaked) * p
        log_p = answers.of(part).log_p(np.clip(with_leak, MIN_PROBABILITY, 1 - MIN_PROBABILITY))
        out["factor"][part] = log_p.max(axis=1) - found["log_none"][part]
        weight = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        out["ability"][part], out["se"][part] = _moments(weight, points)
    return out


def _statistics(
    answers: BinaryAnswers, p: FloatArray, points: FloatArray, shares: FloatArray = SEEN
) -> dict[str, FloatArray]:
    """Likelihood ratios, shares and abilities of these subjects under one calibration."""
    n = len(answers.right)
    best, widths = np.full((len(shares), n), -np.inf), np.gradient(shares)
    seen = np.flatnonzero(shares > 0)
    log_seen, mean, square = (np.zeros((len(seen), n)) for _ in range(3))
    usual: tuple[FloatArray, FloatArray] = (np.zeros(n), np.zeros(n))
    for k, share in enumerate(shares):
        log_p = answers.log_p((1 + share) * p if share < 0 else share + (1 - share) * p)
        best[k] = log_p.max(axis=1)
        weight = np.exp(log_p - best[k][:, None])
        if share == 0:
            usual = _moments(weight, points)
        elif share > 0:
            row, total = k - int(seen[0]), weight.sum(axis=1)
            log_seen[row] = np.log(total) + best[k] + np.log(widths[k])
            mean[row], square[row] = weight @ points / total, weight @ points**2 / total
    none = best[np.flatnonzero(shares == 0)[0]]
    other = _over_shares(log_seen, mean, square)
    at = shares[best.argmax(axis=0)]
    log_best = best.max(axis=0)
    return {
        "n": (answers.right + answers.wrong).sum(axis=1),
        "seen": np.maximum(at, 0.0),
        "root": np.sign(at) * np.sqrt(2 * np.maximum(log_best - none, 0.0)),
        "log_none": none,
        "log_best": log_best,
        "usual_ability": usual[0],
        "usual_se": usual[1],
        "other_ability": other[0],
        "other_se": other[1],
        "log_seen": log_seen,
        "seen_ability": mean,
        "seen_square": square,
    }


def _over_shares(
    log_weight: FloatArray, mean: FloatArray, square: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of abilities over the shares, by weights of each share (shares x subjects)."""
    weight = softmax(log_weight, axis=0)
    average = (weight * mean).sum(axis=0)
    return average, np.sqrt(np.maximum((weight * square).sum(axis=0) - average**2, 0.0))


def _alike(found: Mapping[str, FloatArray], contaminated: BoolArray) -> FloatArray:
    """Log weights of the shares if those of contaminated subjects come from one beta distribution.

    It is averaged over a grid of such distributions, by how likely their answers are under each.
    """
    shares = SEEN[SEEN > 0][:, None]
    means, concentrations = (
        grid.ravel() for grid in np.meshgrid(SHARE_MEANS, SHARE_CONCENTRATIONS)
    )
    prior = (means * concentrations - 1) * np.log(shares)
    prior += ((1 - means) * concentrations - 1) * np.log1p(-shares)
    prior -= logsumexp(prior + np.log(np.gradient(shares, axis=0)), axis=0)
    theirs = found["log_seen"][:, contaminated]
    of_prior = [logsumexp(theirs + column[:, None], axis=0).sum() for column in prior.T]
    averaged = logsumexp(prior + of_prior - logsumexp(of_prior), axis=1)
    return np.asarray(found["log_seen"] + averaged[:, None])


def _moments(weight: FloatArray, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of each row's distribution."""
    share = weight / weight.sum(axis=1, keepdims=True)
    mean = share @ points
    return mean, np.sqrt(np.maximum(share @ points**2 - mean**2, 0.0))


def _tested(
    found: Mapping[str, FloatArray],
    profile: Mapping[str, FloatArray],
    p: FloatArray,
    before: BoolArray,
    correction: str,
    alpha: float,
) -> Verdicts:
    """The table of the subjects.

    Args:
        found: their statistics.
        profile: the second model.
        p: the calibration.
        before: who was contaminated so far; the others say how much statistics vary.
        correction: of the p-values.
        alpha: level of the tests.
    """
    usable = found["n"] >= FEWEST_ANSWERS
    root = np.where(usable, found["root"], np.nan)
    others = root[usable & ~before]
    flags: tuple[str, ...] = ()
    centre, inflation = 0.0, 1.0
    if len(others) >= FEWEST_SUBJECTS:
        centre = float(np.median(others))
        # Below the median there are hardly any contaminated subjects.
        inflation = max(float(np.median(centre - others[others <= centre])) / MAD_OF_NORMAL, 1.0)
    else:
        flags = ("few subjects: the items' models are taken as exact",)
    z = (root - centre) / inflation
    tail = ndtr(-z)
    adjusted = adjust(tail, correction)
    factor = np.where(usable, profile["factor"], -np.inf)
    contaminated = (np.nan_to_num(adjusted, nan=1.0) < alpha) | (factor > LEAST_FACTOR)
    is_same = contaminated & (found["log_none"] + factor > found["log_best"])
    alone = _over_shares(
        _alike(found, contaminated & ~is_same), found["seen_ability"], found["seen_square"]
    )
    ability, se = (
        np.where(is_same, profile[name], np.where(contaminated, other, found[f"usual_{name}"]))
        for name, other in zip(("ability", "se"), alone, strict=True)
    )
    table = {
        "n": found["n"].astype(int),
        "ability": ability,
        "se": se,
        "usual_ability": found["usual_ability"],
        "seen": np.where(usable, found["seen"], np.nan),
        "z": z,
        "p": tail,
        "p_adjusted": adjusted,
        "factor": np.where(np.isfinite(factor), factor, np.nan),
        "contaminated": contaminated,
        "flag": np.where(usable, "", "few answers"),
    }
    return Verdicts(pd.DataFrame(table), p, inflation, flags)


def _items(
    answers: BinaryAnswers, found: Verdicts, points: FloatArray, correction: str, alpha: float
) -> pd.DataFrame:
    """Which items the contaminated subjects have seen."""
    subjects = found.subjects
    seeing: BoolArray = subjects["contaminated"].to_numpy()
    x, answered = answers.right[seeing], (answers.right + answers.wrong)[seeing] > 0
    n = answered.sum(axis=0)
    enough = n >= FEWEST_SEEING
    excess, z = np.full((2, len(n)), np.nan)
    if enough.any():
        ability, share = subjects.loc[seeing, ["ability", "seen"]].fillna(0).to_numpy(float).T
        at = np.stack([np.interp(ability, points, row) for row in found.p.T], axis=1)
        expected = share[:, None] + (1 - share[:, None]) * at
        residual = np.where(answered, x - expected, 0.0)
        variance = np.where(answered, expected * (1 - expected), 0.0).sum(axis=0)
        total = np.where(enough, residual.sum(axis=0), np.nan)
        excess, z = total / np.maximum(n, 1), total / np.sqrt(np.maximum(variance, 1e-12))
    tail = ndtr(-z)
    adjusted = adjust(tail, correction)
    table = {"n": n, "excess": excess, "z": z, "p": tail, "p_adjusted": adjusted}
    table["leaked"] = np.nan_to_num(adjusted, nan=1.0) < alpha
    table["flag"] = np.where(enough, "", "few contaminated subjects")
    return pd.DataFrame(table)

"""Sequential comparison of two models: it stops as soon as the verdict is settled.

The items are run in a random order, and each step is one item with all its trials (or one cluster
of items). The capital of a bet on the differences d_t in [-B, B],

    K_t(m) = prod_s (1 + lambda_s (d_s - m)),  lambda_s = min(e / v_s, .95 / (B + m)),

with e a distance of the difference from m and v_s the variance of the earlier differences, has an
expectation of at most 1 at all times if the expected difference is at most m: by Ville's
inequality it ever reaches 1 / alpha with a probability of at most alpha. So a look after every item
costs nothing. Capital is divided among several distances.

The sequence closes when all N items are used. What is random then is the runs alone, so that one
more interval is needed, for one look at a number of items that was fixed before: that of `compare`
at N. With a share f of the error a for it, the sequence rejects at a capital of 1 / ((1 - f) a):

    P(ever wrong) <= P(ever K >= 1 / ((1 - f) a)) + P(wrong at N) <= (1 - f) a + f a.

Sequences for sampling without replacement (Waudby-Smith & Ramdas 2020) close to the mean of these
answers, which is not that of the models. To bet against ``m - c sum (d_s - m)``, the mean of the
items that are left with c shrunk by the share of the noise, makes the bets uncorrelated, but
their product has an expectation of 1 only approximately: it is not used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_interval,
    check_unique,
    is_number,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat.leaderboard.compared_models import (
    ModelPair,
    PairRuns,
    as_compared,
    few_clusters,
    read_models,
)
from irtcat.leaderboard.comparison import Closing, check_margin, closing_of, verdict_of
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.responses import Responses
from irtcat.selection import Subset

AIMS = {
    "worse": "whether the new model is worse (a gate)",
    "verdict": "whether it is better, worse or equivalent",
}
"""What a sequential comparison is to settle."""

OUTCOMES = {
    "settled": "Settled: whenever one looks, a verdict is false in at most {error:g} % of cases.",
    "futile": "Stopped: a model that is {detect:g} points worse is missed in at most "
    "{futility:g} % of cases.",
    "all items": "All items are used.",
    "open": "Open: more items are needed.",
}
"""Why a comparison ended, and the sentence of it."""

DEFAULT_GAP = 0.02
"""Distance of ``detect`` from ``margin``: the regression that is commonly planned for."""

CAP = 0.95
"""Largest share of the capital that a step may cost, as in `prediction.betting`."""

PRIOR_VARIANCE, PRIOR_STEPS = 0.25, 5.0
"""Variance of the differences before the first step, and the steps that it counts for: models that
differ on a quarter of right/wrong items. A smaller one would risk the capital on the first ones."""

MIN_ORDERED = 8
"""Items from which an order that is that of the file or of the ids is not taken for random."""

MAX_DISTANCE = 0.3
"""Distances double from the one of the design to above this one, and their shares of the capital
halve. On simulated models (10,000 items, a design for 2 points) a loss of 15 points took 159 items
instead of 236 with the two smallest distances alone, and one of 4 points 1,541 instead of 1,434."""

FINAL = 0.2
"""Share of the error that is left for the interval of all items. It costs the comparisons that end
earlier 6 % of their items (the logarithm of the capital). Early verdicts of numbered trials need an
interval with this share too: with .8, 4 to 5 % of equal models were called worse where runs differ
by .3 logits (1,000 items, three or ten trials; experiments/reruns)."""

BISECTIONS = 40
"""An end of the interval is an m that is rejected, within 2^-39 of others: it errs outward."""


@dataclass(frozen=True, eq=False)
class SequentialComparison:
    """The difference of two models' expected scores when a sequential comparison stopped.

    Attributes:
        new: id of the new model.
        old: id of the old one.
        difference: mean difference of the items used, in score units. Comparisons that stop early
            overestimate it.
        lower: lower end of the confidence sequence: it holds at all times together.
        upper: its upper end.
        verdict: "better" (lower end above ``margin``), "worse" (upper end below ``-margin``),
            "equivalent" (both ends within it) or "cannot tell".
        outcome: why it ended: "settled", "futile" (the loss ``detect`` is unlikely), "all items"
            or "open" (``order`` has further items).
        p_worse: p-value of a difference of at least ``-margin``, valid at any time: the inverse of
            the greatest capital, over .8 (for three or more numbered trials at least the p-value
            of `compare` for these items, over .2); after all items at most that of the test of all
            items, over .2.
        n_items: number of items used.
        n_answers: number of answers of the new model used, with all trials.
        n_all: number of items of the benchmark, or of those that both answered without ``order``.
        margin: the difference that does not matter.
        detect: the loss that is not to be missed.
        futility: the probability with which it may be missed.
        level: probability of the confidence sequence.
        aim: what was to be settled: "worse" or "verdict".
        flags: warnings.
    """

    new: str
    old: str
    difference: float
    lower: float
    upper: float
    verdict: str
    outcome: str
    p_worse: float
    n_items: int
    n_answers: int
    n_all: int
    margin: float
    detect: float
    futility: float
    level: float
    aim: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        points = [100 * value for value in (self.difference, self.lower, self.upper)]
        within = f" within {100 * self.margin:g}" if self.verdict == "equivalent" else ""
        return (
            f"{self.new} against {self.old}: {points[0]:+.1f} points "
            f"[{points[1]:+.1f}, {points[2]:+.1f}] after {self.n_items} of {self.n_all} items, "
            f"{self.verdict}{within}\n{self.question}"
        )

    def __repr__(self) -> str:
        return f"SequentialComparison({str(self).partition(chr(10))[0]})"

    @property
    def is_done(self) -> bool:
        """Whether no further items are needed, or there are none."""
        return self.outcome != "open"

    @property
    def question(self) -> str:
        """Two sentences: what is compared, and why the comparison ended."""
        sides = 2 if self.aim == "worse" else 1
        error = (1 - self.level) / sides
        figures = {"error": error, "detect": self.detect, "futility": self.futility}
        shown = {name: round(100 * value, 10) for name, value in figures.items()}
        what = ESTIMANDS["model"].format(n=self.n_all)
        return f"Compared are {what}.\n{OUTCOMES[self.outcome].format(**shown)}"

    def to_frame(self) -> pd.DataFrame:
        """One row, indexed by the new model's id; differences in score units."""
        row = {name: value for name, value in vars(self).items() if name not in ("new", "flags")}
        row["flag"] = "; ".join(self.flags)
        return pd.DataFrame([row], index=pd.Index([self.new], name="new"))


class _Process(NamedTuple):
    """Bets on the values of some steps."""

    values: FloatArray
    bound: float
    variances: FloatArray
    """Variance of the earlier values, for each step."""
    distances: FloatArray
    shares: FloatArray
    """Of the capital, one for each distance."""

    def log_capital(self, m: float, side: int) -> FloatArray:
        """Capital after each step of the bets that the mean is above m (side 1), or below (-1)."""
        possible_loss = max(self.bound + side * m, 1e-12)
        gains = side * (self.values - m)
        bets = np.minimum(self.distances[:, None] / self.variances, CAP / possible_loss)
        capital = np.log(self.shares)[:, None] + np.cumsum(np.log1p(bets * gains), axis=1)
        total: FloatArray = np.logaddexp.reduce(capital, axis=0)
        return total

    def reached(self, m: float, side: int, capital: float) -> float:
        """The number of steps after which a capital is reached first; infinite if never."""
        passed = self.log_capital(m, side) >= np.log(capital)
        return float(np.argmax(passed)) + 1 if passed.any() else np.inf

    def end(self, side: int, capital: float) -> float:
        """Lower (side 1) or upper (-1) end of the confidence sequence: the last m rejected.

        The capital falls with m for side 1 and grows for -1, so that bisection finds it.
        """
        rejected, possible = -side * self.bound, side * self.bound
        for _ in range(BISECTIONS):
            middle = (rejected + possible) / 2
            if np.isfinite(self.reached(middle, side, capital)):
                rejected = middle
            else:
                possible = middle
        return rejected


def _process(d: FloatArray, bound: float, distance: float) -> _Process:
    """Bets on values, from a least distance on.

    ``v_t = (5 v_0 + sum (d_s - mean)^2) / (5 + t - 1)`` over s < t.
    """
    n = np.arange(len(d))
    sums, squares = np.cumsum(d) - d, np.cumsum(d**2) - d**2
    spread = np.maximum(squares - sums**2 / np.maximum(n, 1), 0)
    variances = (PRIOR_STEPS * PRIOR_VARIANCE + spread) / (PRIOR_STEPS + n)
    doublings = np.arange(max(int(np.ceil(np.log2(MAX_DISTANCE / distance))), 0) + 1)
    shares = 0.5 ** (doublings + 1)
    return _Process(d, bound, variances, distance * 2.0**doublings, shares / shares.sum())


def _steps(
    d: FloatArray, n_trials: IntArray, item_ids: np.ndarray, clusters: IntArray | None
) -> pd.DataFrame:
    """A row for each item or cluster of items: sum of differences, number of items and answers.

    The index has the first id of the cluster in alphabetical order: to sort these at random says
    nothing of the clusters' sizes.
    """
    table = pd.DataFrame({"difference": d, "n_items": 1, "n_answers": n_trials}, index=item_ids)
    if clusters is None:
        return table
    first = pd.Series(item_ids).groupby(clusters).min()
    return table.groupby(clusters).sum().set_axis(first.to_numpy())


def _checked_order(order: Any, calibration: Responses | None) -> np.ndarray:
    """The ids of an order that is neither that of the ids nor that of the calibration.

    Responses may have the order in which the items were run.
    """
    ids = np.asarray(order).astype(str)
    if ids.ndim != 1:
        raise argument_error("order", "the ids of all items", order)
    ids = check_unique("order", ids)
    orders = [sorted(ids.tolist()), sorted(ids.tolist(), key=_numbers_as_numbers)]
    if calibration is not None:
        known = set(ids.tolist())
        orders.append([item for item in calibration.item_ids.astype(str).tolist() if item in known])
    if len(ids) >= MIN_ORDERED and ids.tolist() in orders:
        must = "a random order, such as that of random_order"
        raise argument_error("order", must, "that of the file or of the ids")
    return ids


def _numbers_as_numbers(item_id: str) -> list[Any]:
    """A key by which item 2 comes before item 10."""
    parts = re.split(r"(\d+)", item_id)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def random_order(item_ids: Sequence[str] | np.ndarray, seed: int = 0) -> np.ndarray:
    """A random order of items that depends on their ids and the seed alone.

    Items are sorted by a hash of seed and id: the order is the same in every run and for any order
    of the file, and leaving an item out does not change that of the others. Choose the seed before
    the answers are seen.

    Args:
        item_ids: ids, each once.
        seed: of the order.

    Raises:
        InputError: for an id that occurs twice.

    Example:
        >>> random_order(["a", "b", "c", "d"]).tolist()
        ['a', 'd', 'b', 'c']
        >>> random_order(["d", "c", "b", "a"]).tolist()
        ['a', 'd', 'b', 'c']
    """
    ids = check_unique("item_ids", np.asarray(item_ids).astype(str))
    keys = [blake2b(f"{seed}\n{item}".encode(), digest_size=16).digest() for item in ids.tolist()]
    return ids[np.array(sorted(range(len(ids)), key=keys.__getitem__), int)]


def compare_sequential(
    calibration: Responses | None,
    subset: Subset | Sequence[str] | np.ndarray | None,
    responses: Responses,
    new: str | None = None,
    old: str | None = None,
    *,
    aim: str = "worse",
    order: Sequence[str] | np.ndarray | None = None,
    clusters: Any = None,
    reruns: Any = None,
    margin: float = 0.0,
    detect: float | None = None,
    futility: float = 0.2,
    level: float = 0.95,
    mismatch: str = "refuse",
    seed: int = 0,
) -> SequentialComparison:
    """Compare two models item by item in a random order, and stop as soon as it is settled.

    The difference of the models' expected scores lies in the confidence sequence after each item,
    at all times together, with probability ``level``: it has all m against which neither of the
    capitals ``K(m)`` and ``K'(m)`` of the bets that it is above or below m has ever reached ``2 /
    (.8 (1 - level))``, with

        K_t(m) = sum_e c_e prod_{s <= t} (1 + min(e / v_s, .95 / (B + m)) (d_s - m)),

    d_s the difference of the models' means over the trials of the s-th item, v_s the variance of
    the earlier ones, B = 1 the greatest difference, and distances e of g, 2 g, 4 g, ... to .3 with
    shares c of 1/2, 1/4, 1/8, ...; g is ``detect - margin``, or ``margin`` if that is less and
    equivalence counts. It ends at the first item at which

    | aim | it ends where |
    |---|---|
    | worse | the upper end is below ``-margin``; or futile: K(-detect) reaches ``1 / futility`` |
    | verdict | the interval is above, below or within the margin |

    A model that is worse by ``detect`` stops as futile with probability ``futility`` at most.

    For the sequence, items count as drawn from infinitely many: on a finite benchmark it is too
    wide rather than too narrow (``experiments/reruns``). After all N items it closes to the
    interval of `compare` for the estimand "model", with a fifth of the error: what stays is the
    noise of the runs, from several trials of each item or from ``reruns``; with one trial and no
    ``reruns`` the variance of the paired t-test.

    Effects of whole runs do not average out over items. From three numbered trials on, an early
    verdict needs the interval of `compare` too, which has them: that of the items used, with a
    fifth of the error; if it has another verdict it is looked at again after twice the items. The
    interval is the hull of both.

    Without ``order`` the responses are all that there will be: their number must not depend on what
    was answered. To run items one batch after another, take the first ones of `random_order`, and
    pass it as ``order`` with the answers so far, until ``is_done``.

    Args:
        calibration: see `irtcat.compare`.
        subset: see there; a random sample of items, with equal weights.
        responses: responses of both models, or of the new one if the old one is calibrated. All
            trials of an item are used at once.
        new: id of the new model; by default the last one of ``responses``.
        old: id of the old model; by default the first one.
        aim: what is to be settled: "worse" or "verdict".
        order: all items of the benchmark in the random order in which they are run. The items that
            both models answered are used up to the first that is missing. By default `random_order`
            of the items that both answered.
        clusters: groups of items whose answers depend on each other: see `irtcat.compare`. A step
            is then a whole group (without ``order``): d_s is the sum of its differences over the
            mean number of items, and B the greatest number over the mean.
        reruns: for models with one trial, what a rerun would repeat: see `irtcat.compare`. It
            shortens the interval of all items alone.
        margin: the difference that does not matter, in score units.
        detect: the loss that is not to be missed, in score units; by default ``margin + .02``.
        futility: the probability with which it may be missed, below 1; 0 for no futility stop.
        level: probability of the confidence sequence; each side has an error of at most half of
            the rest.
        mismatch: see `irtcat.compare`.
        seed: of the random order.

    Returns:
        The comparison when it stopped.

    Raises:
        InputError: for an unknown model, item or aim, a subset that is not a random sample, an
            order that is not random, or fewer than 2 items that both answered.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 2000))
        >>> both = bank.simulate([0.5, 0.0], seed=2)
        >>> print(compare_sequential(None, None, both))
        s2 against s1: -11.4 points [-20.5, -0.2] after 440 of 2000 items, worse
        Compared are the models' expected scores on all 2000 items, over reruns.
        Settled: whenever one looks, a verdict is false in at most 2.5 % of cases.

    References:
        Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting, JRSS
        B 86, 1-27 (section 4); Ville (1939); Ramdas, Gruenwald, Vovk & Shafer (2023), Game-
        theoretic statistics and safe anytime-valid inference, Statistical Science 38, 576-601.
    """
    check_choice("aim", aim, AIMS)
    check_interval("level", level)
    check_margin(margin)
    detect = margin + DEFAULT_GAP if detect is None else detect
    _check_loss(margin, detect, futility)
    calibration, responses = as_compared(calibration, subset, responses)
    names, pair, runs, sampled, flags = read_models(
        calibration, subset, responses, new, old, mismatch, clusters, reruns
    )
    if not sampled or np.ptp(pair.weights) > 1e-9:
        raise argument_error("subset", "a random sample of items with equal weights", subset)
    table = _steps(pair.difference, runs.new.n_trials, pair.item_ids.astype(str), runs.clusters)
    n_all = pair.n_items
    if order is None:
        order_ids = random_order(table.index.to_numpy(), seed)
    elif clusters is not None:
        raise argument_error("order", "None with clusters", order)
    else:
        order_ids = _checked_order(order, calibration)
        n_all = len(order_ids)
    places = _answered(table, order_ids)
    steps = table.iloc[places]
    ready = len(steps)
    mean_items = float(table["n_items"].mean())
    bound = float(table["n_items"].max()) / mean_items
    distance = detect - margin
    if aim == "verdict" and margin:
        distance = min(distance, margin)
    process = _process(steps["difference"].to_numpy() / mean_items, bound, distance)
    capital = 2 / ((1 - FINAL) * (1 - level))
    times = _times(process, margin, capital)
    fixed = _Fixed(pair, runs, places, n_all, margin)
    times = {name: fixed.agrees_from(name, time, ready, level) for name, time in times.items()}
    settled, given_up = min(times.values()), np.inf
    if aim == "worse":
        not_worse = process.reached(-margin, 1, capital)
        futile = process.reached(-detect, 1, 1 / futility) if futility else not_worse
        settled, given_up = times["worse"], min(futile, not_worse)
    n = int(min(settled, given_up, ready))
    if settled <= n:
        outcome = "settled"
    elif given_up <= n:
        outcome = "futile"
    else:
        outcome = "open" if ready < len(order_ids) else "all items"
    verdict = next((name for name, time in times.items() if time <= n), "cannot tell")
    used = process._replace(values=process.values[:n], variances=process.variances[:n])
    # The ends of the confidence sequence, and the p-value of no loss, after the items used.
    lower, upper = sorted((used.end(1, capital), used.end(-1, capital)))
    greatest = max(used.log_capital(-margin, -1).max(), 0.0)
    p_worse = float(np.exp(-greatest)) / (1 - FINAL)
    if fixed.has_run_effects:
        now = fixed.after(n, level)
        lower, upper = min(lower, now.lower), max(upper, now.upper)
        p_worse = max(p_worse, now.p_worse / FINAL)
    if outcome == "all items" and not few_clusters(runs.clusters):
        closing = fixed.after(n, level)
        lower, upper = sorted((max(lower, closing.lower), min(upper, closing.upper)))
        p_worse = min(p_worse, closing.p_worse / FINAL)
        verdict = verdict_of(lower, upper, margin)
        outcome = outcome if verdict == "cannot tell" else "settled"
    total = steps.iloc[:n].sum()
    return SequentialComparison(
        new=names[0],
        old=names[1],
        difference=float(total["difference"] / total["n_items"]),
        lower=max(lower, -1.0),
        upper=min(upper, 1.0),
        verdict=verdict,
        outcome=outcome,
        p_worse=min(p_worse, 1.0),
        n_items=int(total["n_items"]),
        n_answers=int(total["n_answers"]),
        n_all=n_all,
        margin=float(margin),
        detect=float(detect),
        futility=float(futility),
        level=float(level),
        aim=aim,
        flags=tuple(flags),
    )


def _check_loss(margin: float, detect: Any, futility: Any) -> None:
    """Raise unless the loss and the probability of missing it are possible."""
    if not is_number(detect) or not margin < detect < margin + 1:
        must = f"a loss above the margin of {margin:g} and below {margin + 1:g}"
        raise argument_error("detect", must, detect)
    if not is_number(futility) or not 0 <= futility < 1:
        raise argument_error("futility", "a probability of at least 0 and below 1", futility)


def _answered(table: pd.DataFrame, order_ids: Any) -> IntArray:
    """The rows of the first steps of the order that both models have answered."""
    places: IntArray = table.index.get_indexer(pd.Index(order_ids))
    ready = int(np.argmin(places)) if (places < 0).any() else len(places)
    if ready < 2:
        must = "a random order, with answers of both to its first 2 items"
        raise argument_error("order", must, f"answers to the first {ready}")
    return places[:ready]


class _Fixed(NamedTuple):
    """The interval of `compare` for the first steps, as if their number had been fixed."""

    pair: ModelPair
    runs: PairRuns
    places: IntArray
    n_all: int
    margin: float

    @property
    def has_run_effects(self) -> bool:
        """Whether effects of whole runs are identified."""
        models = (self.runs.new, self.runs.old)
        return all(model.run_means(self.pair.weights) is not None for model in models)

    def after(self, n: int, level: float) -> Closing:
        """The interval after n steps, which has the share `FINAL` of the error."""
        clusters, items = self.runs.clusters, self.places[:n]
        if clusters is not None:
            items = np.flatnonzero(np.isin(clusters, items))
            clusters = np.unique(clusters[items], return_inverse=True)[1]
        pair = self.pair._replace(
            difference=self.pair.difference[items],
            weights=np.full(len(items), 1 / len(items)),
            item_ids=self.pair.item_ids[items],
            at=items,
            n_items=self.n_all,
            field=np.empty((0, self.n_all)),
            known_old=None,
            strata=np.empty((self.n_all, 0)),
        )
        runs = self.runs._replace(
            new=self.runs.new.at(items), old=self.runs.old.at(items), clusters=clusters
        )
        return closing_of(pair, runs, self.margin, 1 - FINAL * (1 - level))

    def agrees_from(self, verdict: str, time: float, ready: int, level: float) -> float:
        """The first step after which this interval has the verdict too, looked at in doublings."""
        if not self.has_run_effects:
            return time
        while time <= ready:
            found = self.after(int(time), level)
            if verdict_of(found.lower, found.upper, self.margin) == verdict:
                return time
            time *= 2
        return np.inf


def _times(process: Any, margin: float, capital: float) -> dict[str, float]:
    """The steps after which each verdict is settled; infinite for never."""
    equivalent = np.inf
    if margin:
        ends = (process.reached(-margin, 1, capital), process.reached(margin, -1, capital))
        equivalent = max(ends)
    return {
        "worse": process.reached(-margin, -1, capital),
        "better": process.reached(margin, 1, capital),
        "equivalent": equivalent,
    }

"""Judges: how much of a score another judge, or the same judge once more, would change.

Judgements of the same answers by several judges are repeated measurements, as trials are. Their
components of variance are estimated together with those of the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement import cohen_kappa, krippendorff_alpha
from irtcat.diagnose.rerun_noise import components_table, resampled_weights
from irtcat.io import as_responses
from irtcat.responses import BASE_ITEM, Responses
from irtcat.responses.judgements import REPEATS, no_facet, scores_by_trial

N_JUDGES = (1, 2, 3, 5, 10)
"""Numbers of judges for which the noise is printed."""

MOST_PAIRED = 20
"""Judges up to which all pairs are compared: 190 pairs."""

PANELS = (1, 3, 5, 7, 9)
"""Numbers of judges who decide by majority, for which the noise is printed."""

MOST_PANELS = 200
"""Pairs of panels of judges whose votes are compared; more change the error by less than 1 %."""

ANSWER = "answer"
JUDGEMENT = "judgement"
FINEST = "subject x item x judge"
"""Names of the sources: another answer of the model; what is left; and what is part of that where
no answer was judged twice by one judge."""


class JudgeError(InputError):
    """Judgements that say nothing of the noise of judges.

    Attributes:
        judge: the judge whom the message names.
    """

    def __init__(self, must: str, judge: str, got: str) -> None:
        super().__init__(str(argument_error("responses", must, f"{judge} {got}")))
        self.judge = judge


class JudgeScores(NamedTuple):
    """Scores from 0 to 1, one row each, and the numbers of their levels.

    Attributes:
        y: the scores.
        levels: numbers of the levels, by factor: subject, item, judge and trial.
    """

    y: FloatArray
    levels: Mapping[str, IntArray]


@dataclass(frozen=True, eq=False)
class Judges:
    """What judges differ by: components of variance, severities, agreement.

    Attributes:
        components: one row per source: variance, which may be negative where the true one is near
            0, and NaN where it is not identified; lower and upper ends of its interval; share of
            the sum (0 if negative). "judgement" is what is left: chance in a single judgement.
        judges: one row per judge: n, the number of judgements; mean, their mean; severity, how far
            it is below the mean of all judges of the same answers, in points, NaN for fewer than
            two of these answers; agreement, the share of other judgements of the same answers that
            are the same; n_shared, the number of answers that others judged too.
        pairs: one row per pair of judges of the same answers (up to 20 judges): judge, other; n,
            the number of these answers; agreement; kappa (Cohen's, NaN where both always agree).
        noise: indexed by the number of judges: score and difference, the standard errors, in
            points, of one model's score (one answer per item) and of the difference of two models
            that the same judges score, if other judges had judged; same_judges, that of the
            difference if the same judges judged again.
        votes: indexed by the number of judges, odd: score and difference as in ``noise``, for
            decisions by majority; is_bound, whether these are those of fewer judges, as there are
            no two panels of so many. Empty where judgements are not right or wrong.
        alpha: Krippendorff's alpha of the judges: 1 for perfect agreement, 0 for chance; NaN where
            all judgements are the same.
        n_items: number of items, on which the noise of scores depends.
        level: probability of the intervals.
        flags: what is not identified, and why.
    """

    components: pd.DataFrame
    judges: pd.DataFrame
    pairs: pd.DataFrame
    noise: pd.DataFrame
    votes: pd.DataFrame
    alpha: float
    n_items: int
    level: float
    flags: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """The table of the judges."""
        return self.judges.copy()

    def __repr__(self) -> str:
        return f"Judges({len(self.judges)} judges, alpha {self.alpha:.2f})"

    def __str__(self) -> str:
        n = len(self.judges)
        severity = self.judges["severity"]
        text = f"{n} judges agree with an alpha of {self.alpha:.2f}."
        if severity.notna().any():
            spread = f"{severity.max() - severity.min():.1f} points"
            text = f"{text[:-1]}; the most severe and the most lenient one differ by {spread}."
        row = self.noise.loc[1]
        if np.isfinite(row["difference"]):
            text += (
                f" With one judge, another would change a score by {row['score']:.1f} points and "
                f"the difference of two models by {row['difference']:.1f} (standard errors)."
            )
        return text


def judges(
    responses: Any,
    *,
    judge: str = "judge",
    repeats: str = "answers",
    n: int = 200,
    seed: int = 0,
    level: float = 0.95,
) -> Judges:
    """Estimate how much judges, and single judgements, add to the noise of scores.

    A judgement of answer t of subject m to item i by judge j is ``x_mijt = mu + S_m + I_i + (SI)_mi
    + J_j + (SJ)_mj + (IJ)_ij + A_mit + (SIJ)_mij + e_mijt``; SIJ is part of e where no judge judged
    an answer twice. The components of variance are those for which the expected sums of squared
    differences equal the observed ones, over the pairs of judgements that share the levels of each
    source (Koch 1968): of complete data these are the estimates of the analysis of variance;
    judgements may be missing. A source whose pairs are all pairs of another one, or of which there
    are none, is not identified, and a flag says so.

    Of a mean over N items and J judges, other judges change ``V_J / J + V_SJ / J + V_IJ / (N J) +
    (V_SIJ + V_e) / (N J)``; J and IJ cancel in the difference of two subjects that the same judges
    score, which has twice the rest. A decision by majority has the error that two panels of judges
    without a common member show: half the mean squared difference of their scores of a run.

    Args:
        responses: responses with the judge as a facet, such as of ``Responses.from_long(table,
            facets="judge")``; any number of judges and trials of each.
        judge: name of the facet.
        repeats: what trials of one judgement are: "answers" (trial t of all judges is of the same
            answer), or "judgements" (the same answer judged again). Counted trials are judgements.
        n: number of resamples of the items, at least 2.
        seed: seed of the resamples.
        level: probability of the intervals: percentiles over resamples of the items.

    Returns:
        The components and their consequences; see `Judges`.

    Raises:
        InputError: for responses without this facet, fewer than two judges, no answer that two of
            them judged, or a number out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.beta(1, 1, (4, 100))
        >>> right = rng.random((4, 100)) < p
        >>> rows = [(f"m{m}", f"q{i}", f"j{j}", int(right[m, i] ^ (rng.random() < 0.1)))
        ...         for m in range(4) for i in range(100) for j in range(3)]
        >>> table = pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])
        >>> found = judges(Responses.from_long(table, facets="judge"))
        >>> found
        Judges(3 judges, alpha 0.66)
        >>> found.components["variance"].round(2).to_dict()["judgement"]
        0.09

    References:
        Koch (1968), Technometrics 10, 551-558; Brennan (2001), Generalizability Theory, chapter 3;
        Krippendorff (2004), Content Analysis, chapter 11.
    """
    data = as_responses(responses, name="responses")
    check_choice("repeats", repeats, REPEATS)
    check_count("n", n, 2)
    check_count("seed", seed, 0)
    check_interval("level", level)
    judgements, names, flags = _read(data, judge, repeats)
    sources, dropped = _identified(judgements)
    flags += dropped
    n_items = int(judgements.levels["item"].max()) + 1
    rng = np.random.default_rng(seed)
    weights = resampled_weights(n_items, n, rng)
    parts = variance_components(judgements.y, judgements.levels, sources, weights)
    components = components_table(parts, SOURCES, [(1 - level) / 2, (1 + level) / 2])
    table = _table(judgements, names)
    if (few := int((table["n_shared"] < 2).sum())) > 0:
        flags.append(f"{few} of {len(names)} judges share fewer than 2 answers with others")
    if len(names) > MOST_PAIRED:
        flags.append(f"pairs of judges are compared for up to {MOST_PAIRED} judges")
    if len(names) < 3:
        flags.append("the variance of two judges is hardly known: it has one degree of freedom")
    return Judges(
        components=components,
        judges=table,
        pairs=_pairs(judgements, names),
        noise=_noise(components["variance"], n_items),
        votes=_votes(judgements, len(names), n_items, rng),
        alpha=_alpha(judgements),
        n_items=n_items,
        level=float(level),
        flags=tuple(flags),
    )


def _read(data: Responses, judge: str, repeats: str) -> tuple[JudgeScores, np.ndarray, list[str]]:
    """The judgements by subject, item, judge and trial, and the judges' names."""
    if BASE_ITEM not in data.items or judge not in data.items:
        raise no_facet(data, judge)
    items = pd.factorize(data.items[BASE_ITEM].astype(str))[0]
    scores = scores_by_trial(data)
    row, column, trial = np.nonzero(~np.isnan(scores))
    judged = data.items[judge].astype(str).to_numpy(object)[column]
    judge_codes, names = pd.factorize(judged, sort=True)  # only judges with a judgement
    if len(names) == 1:
        raise JudgeError("judgements by two judges or more", str(names[0]), "alone")
    flags = []
    if data.trial_values is None and data.trials is not None:
        flags.append("the trials are counted: their share is taken for one judgement")
    levels = {"subject": row, "item": items[column], "judge": judge_codes, "trial": trial}
    if repeats == "judgements":
        levels["trial"] = np.zeros_like(trial)
    others = [name for name in data.items.columns if name in ("rater", "judge") and name != judge]
    if others:
        flags.append(f"other facets ({', '.join(others)}) are part of the judgement")
    found = JudgeScores(scores[row, column, trial], levels)
    cells = pd.DataFrame({name: levels[name] for name in ("subject", "item", "trial")})
    if not (cells.assign(judge=levels["judge"]).drop_duplicates().duplicated(list(cells))).any():
        got = "and the others, who judged different answers"
        raise JudgeError("judgements of the same answers by two judges", str(names[0]), got)
    return found, names, flags


SOURCES: Mapping[str, tuple[str, ...]] = {
    "subject": ("subject",),
    "item": ("item",),
    "subject x item": ("subject", "item"),
    "judge": ("judge",),
    "subject x judge": ("subject", "judge"),
    "item x judge": ("item", "judge"),
    "run": ("subject", "trial"),
    ANSWER: ("subject", "item", "trial"),
    FINEST: ("subject", "item", "judge"),
    JUDGEMENT: (),
}
"""The factors that define the levels of each source; none for what is left."""


def _identified(judgements: JudgeScores) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The sources that these judgements distinguish, and flags of the others."""
    n_trials = int(judgements.levels["trial"].max()) + 1
    sources: dict[str, tuple[str, ...]] = {}
    flags: list[str] = []
    seen: dict[bytes, str] = {}
    for name, factors in SOURCES.items():
        if not factors or ("trial" in factors and n_trials == 1):
            continue
        groups = _codes(judgements.levels, factors)
        sizes = np.bincount(groups)
        pairs = int((sizes * (sizes - 1)).sum())
        key = groups.tobytes()
        if key in seen:
            flags.append(f"{name} is not distinguished from {seen[key]}")
        elif not pairs:
            if name != FINEST:
                flags.append(f"{name} is not distinguished from a single judgement")
        elif len(sizes) == 1:
            flags.append(f"the variance of one {name} is not identified")
        else:
            sources[name] = factors
            seen[key] = name
    return {**sources, JUDGEMENT: SOURCES[JUDGEMENT]}, flags


def _codes(levels: Mapping[str, IntArray], factors: tuple[str, ...]) -> IntArray:
    """Numbers of the combinations of some factors, from 0 in the order of their occurrence."""
    codes = np.zeros(len(next(iter(levels.values()))), np.int64)
    for factor in factors:
        codes = codes * (int(levels[factor].max()) + 1) + levels[factor]
    return np.asarray(pd.factorize(codes)[0])


def variance_components(
    y: FloatArray,
    levels: Mapping[str, IntArray],
    sources: Mapping[str, tuple[str, ...]],
    weights: FloatArray,
) -> dict[str, FloatArray]:
    """Components of variance of any crossed or nested sources, for each resample of the items.

    With S_l the sum over ordered pairs of different observations that share all factors of source l
    of half their squared difference, and N_l their number,

        E S_l = sum_k V_k (N_l - N_lk),

    N_lk the number of pairs that share the factors of both. There is an equation for each source
    and one for all pairs; the source without factors is what is left (N_lk = 0).

    Args:
        y: observations.
        levels: number of the level of each factor, for each observation; one factor is "item".
        sources: factors of each source; the last one has none.
        weights: resamples x items, how often each item is drawn. Copies of an item are other items,
            whose pairs are not counted.

    Returns:
        One value per source and resample; NaN where the equations have no solution.

    Example:
        >>> levels = {"item": np.array([0, 0, 1, 1]), "judge": np.array([0, 1, 0, 1])}
        >>> sources = {"item": ("item",), "judge": ("judge",), "rest": ()}
        >>> found = variance_components(np.array([0.0, 1.0, 2.0, 5.0]), levels, sources,
        ...                             np.ones((1, 2)))
        >>> {name: round(float(value[0]), 6) for name, value in found.items()}
        {'item': 4.0, 'judge': 1.5, 'rest': 1.0}
    """
    names = list(sources)
    equations = [(), *(sources[name] for name in names if sources[name])]
    counted: dict[frozenset[str], tuple[FloatArray, FloatArray]] = {}

    def pairs(factors: frozenset[str]) -> tuple[FloatArray, FloatArray]:
        """Sum of half squared differences, and number, of the pairs that share these factors."""
        if factors not in counted:
            counted[factors] = _pair_sums(y, levels, tuple(sorted(factors)), weights)
        return counted[factors]

    n = len(names)
    left, right = np.zeros((len(weights), n, n)), np.zeros((len(weights), n))
    for row, shared in enumerate(equations):
        total, number = pairs(frozenset(shared))
        right[:, row] = total
        for column, name in enumerate(names):
            both = 0.0 if not sources[name] else pairs(frozenset(shared) | set(sources[name]))[1]
            left[:, row, column] = number - both
    scale = np.maximum(left.max(axis=2, keepdims=True), 1.0)
    found = np.full((len(weights), n), np.nan)
    for at, (a, b) in enumerate(zip(left / scale, right / scale[:, :, 0], strict=True)):
        if np.linalg.matrix_rank(a) == n:
            found[at] = np.linalg.solve(a, b)
    return dict(zip(names, found.T, strict=True))


def _pair_sums(
    y: FloatArray, levels: Mapping[str, IntArray], factors: tuple[str, ...], weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sum of half squared differences over ordered pairs that share factors, and their number.

    ``n sum y^2 - (sum y)^2`` and ``n^2 - n`` within each group. Pairs of one item count as often as
    it is drawn, and pairs of two items by the product of their numbers.
    """
    within = _codes(levels, tuple(dict.fromkeys((*factors, "item"))))
    n, first, second = (np.bincount(within, values) for values in (np.ones(len(y)), y, y**2))
    owner = np.zeros(len(n), np.int64)
    owner[within] = levels["item"]
    own_sum, own_pairs, extra_pairs = (
        np.bincount(owner, values, minlength=weights.shape[1])
        for values in (n * second - first**2, n * n - n, n * n)
    )
    if "item" in factors:
        return weights @ own_sum, weights @ own_pairs
    group = _codes(levels, factors) if factors else np.zeros(len(y), np.int64)
    of_cell = np.zeros(len(n), np.int64)
    of_cell[within] = group
    shape = (weights.shape[1], int(group.max()) + 1)
    tables = np.zeros((3, *shape))
    tables[:, owner, of_cell] = n, first, second
    count, total, square = weights @ tables
    # Of two observations of one item, the product of the weights counts pairs of its copies too.
    change = weights - weights**2
    sums = (count * square - total**2).sum(axis=1) + change @ own_sum
    numbers = (count**2).sum(axis=1) - (weights**2) @ extra_pairs + weights @ own_pairs
    return sums, numbers


def _table(judgements: JudgeScores, names: np.ndarray) -> pd.DataFrame:
    """The table of the judges."""
    frame = pd.DataFrame({**judgements.levels, "y": judgements.y})
    by_judge = frame.groupby("judge")["y"]
    answer = ["subject", "item", "trial"]
    cells = frame.groupby([*answer, "judge"], as_index=False)["y"].mean()
    shared = cells[cells.groupby(answer)["judge"].transform("size") > 1]
    centre = shared.groupby(answer)["y"].transform("mean")
    severity = (centre - shared["y"]).groupby(shared["judge"]).mean()
    same = shared.groupby([*answer, "y"])["judge"].transform("size") - 1
    others = shared.groupby(answer)["judge"].transform("size") - 1
    agreement = same.groupby(shared["judge"]).sum() / others.groupby(shared["judge"]).sum()
    n_shared = shared["judge"].value_counts()
    severity = 100 * severity[n_shared.reindex(severity.index) > 1]  # one answer says nothing
    columns = {"n": by_judge.size(), "mean": by_judge.mean(), "severity": severity}
    columns |= {"agreement": agreement, "n_shared": n_shared}
    table = pd.DataFrame(columns).fillna({"n_shared": 0}).astype({"n_shared": int})
    return table.set_axis(pd.Index(names, dtype=object, name="judge"), axis=0)


def _answers(judgements: JudgeScores) -> tuple[FloatArray, pd.DataFrame]:
    """The mean score of each answer by each judge, answers x judges, and what the answers are."""
    levels = judgements.levels
    answer = _codes(levels, ("subject", "item", "trial"))
    table = pd.DataFrame({"answer": answer, "judge": levels["judge"], "y": judgements.y})
    scores = table.pivot_table("y", "answer", "judge")  # means
    first = np.unique(answer, return_index=True)[1]
    about = pd.DataFrame({name: levels[name][first] for name in ("subject", "trial")})
    return scores.to_numpy(), about


def _pairs(judgements: JudgeScores, names: np.ndarray) -> pd.DataFrame:
    """Agreement of each two judges."""
    scores, _ = _answers(judgements)
    rows = []
    for a, b in combinations(range(len(names) if len(names) <= MOST_PAIRED else 0), 2):
        both = ~np.isnan(scores[:, a]) & ~np.isnan(scores[:, b])
        x, y = scores[both, a], scores[both, b]
        if len(x):
            varies = len(np.unique(np.r_[x, y])) > 1
            kappa = cohen_kappa(x.tolist(), y.tolist()) if varies else np.nan
            rows.append((names[a], names[b], len(x), float((x == y).mean()), kappa))
    return pd.DataFrame(rows, columns=["judge", "other", "n", "agreement", "kappa"])


def _votes(
    judgements: JudgeScores, n_judges: int, n_items: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Standard errors, in points, of scores by majority votes of panels of judges."""
    rows: dict[int, tuple[float, float, bool]] = {}
    if np.isin(judgements.y, (0, 1)).all():
        scores, about = _answers(judgements)
        for n in (n for n in PANELS if n <= n_judges):
            found = (np.nan, np.nan)
            if 2 * n <= n_judges:
                changes = [
                    _majority(scores[:, panel]) - _majority(scores[:, other])
                    for panel, other in _panels(n_judges, n, rng)
                ]
                found = _panel_errors(changes, about, n_items)
            if np.isfinite(found[0]):
                rows[n] = (*found, False)
            elif rows:  # the error falls with the number of judges, so this is a bound
                rows[n] = (*rows[max(rows)][:2], True)
    table = pd.DataFrame.from_dict(rows, "index", columns=["score", "difference", "is_bound"])
    return table.rename_axis("n_judges")


def _panel_errors(
    changes: Sequence[FloatArray], about: pd.DataFrame, n_items: int
) -> tuple[float, float]:
    """Standard errors of a run's score, and of a difference of two, by changes between panels.

    With the changes d_i of n answers of a run, half of ``mean(d)^2`` is the variance of its score,
    of which ``var(d) / 2n`` is due to single decisions; the rest is due to what a panel shares on
    all answers, which is not below 0. Differences of two subjects have their own rest.

    Args:
        changes: one for each pair of panels: of each answer, NaN where a panel did not decide.
        about: subject and trial of each answer.
        n_items: number of items of a score.
    """
    tables = [
        about.assign(d=change).groupby(["subject", "trial"])["d"].agg(["mean", "var", "count"])
        for change in changes
    ]
    runs = pd.concat(tables, keys=range(len(tables)), names=["pair"])
    runs = runs[runs["count"] > 1]
    if runs.empty:
        return float("nan"), float("nan")
    chance = runs["var"] / runs["count"]
    weights = runs["count"] / runs["count"].sum()
    single = float((weights * runs["var"]).sum()) / 2 / n_items
    shared = float((weights * (runs["mean"] ** 2 - chance)).sum()) / 2
    by_trial = ["pair", "trial"]
    between = runs.groupby(by_trial)["mean"].var() - chance.groupby(by_trial).mean()
    own = float(between.mean()) if between.notna().any() else float("nan")
    return (
        100 * float(np.sqrt(single + max(shared, 0.0))),
        100 * float(np.sqrt(2 * single + max(own, 0.0) if own == own else np.nan)),
    )


def _panels(n_judges: int, n: int, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs of panels of n judges without a common member: all of them, or a sample."""
    if comb(n_judges, 2 * n) * comb(2 * n, n) <= 2 * MOST_PANELS:
        for judges in combinations(range(n_judges), 2 * n):
            for panel in combinations(judges[1:], n - 1):
                other = sorted(set(judges[1:]) - set(panel))
                yield np.array([judges[0], *panel]), np.array(other)
        return
    for _ in range(MOST_PANELS):
        drawn = rng.permutation(n_judges)
        yield drawn[:n], drawn[n : 2 * n]


def _majority(scores: FloatArray) -> FloatArray:
    """Decisions of a panel, answers x judges: 1, 0, or .5 for a tie; NaN without all its votes."""
    mean = scores.mean(axis=1)
    return np.where(np.isnan(mean), np.nan, np.sign(mean - 0.5) / 2 + 0.5)


def _noise(variance: pd.Series, n_items: int) -> pd.DataFrame:
    """Standard errors that judges add to scores, by the number of judges."""
    v = variance.clip(lower=0).fillna(0.0)
    rows = []
    for n in N_JUDGES:
        again = v[JUDGEMENT] / (n_items * n)
        between = v["subject x judge"] / n + v[FINEST] / (n_items * n) + again
        lenient = v["judge"] / n + v["item x judge"] / (n_items * n)
        rows.append((lenient + between, 2 * between, 2 * again))
    index = pd.Index(N_JUDGES, name="n_judges")
    columns = ["score", "difference", "same_judges"]
    return 100 * pd.DataFrame(np.sqrt(rows), index=index, columns=columns)


def _alpha(judgements: JudgeScores) -> float:
    """Krippendorff's alpha over the answers, with squared distances; NaN if it is not defined."""
    units = _codes(judgements.levels, ("subject", "item", "trial"))
    if np.ptp(judgements.y) == 0:
        return float("nan")
    ratings = pd.Series(judgements.y).groupby(units).agg(list).tolist()
    return float(krippendorff_alpha(ratings, "interval"))

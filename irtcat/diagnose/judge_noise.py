"""Judges: how much of a score another judge, or the same judge once more, would change.

Judgements of the same answers by several judges are repeated measurements, as trials are. Their
components of variance are estimated together with those of the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement import krippendorff_alpha
from irtcat.io import as_responses
from irtcat.responses import BASE_ITEM, Responses

TRIALS = ("answers", "judgements")
"""What trials of one judgement are: other answers of the model, or the same answer judged again."""

N_JUDGES = (1, 2, 3, 5, 10)
"""Numbers of judges for which the noise is printed."""

ANSWER = "answer"
JUDGEMENT = "judgement"
FINEST = "subject x item x judge"
"""Names of the sources: another answer of the model; what is left; and what is part of that where
no answer was judged twice by one judge."""


class Judgements(NamedTuple):
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
            it is below the mean of all judges of the same answers, in points; agreement, the share
            of other judgements of the same answers that are the same.
        noise: indexed by the number of judges: score and difference, the standard errors, in
            points, of one model's score and of the difference of two models that the same judges
            score, if other judges had judged; same_judges, that of the difference if the same
            judges judged again.
        alpha: Krippendorff's alpha of the judges: 1 for perfect agreement, 0 for chance; NaN where
            all judgements are the same.
        n_items: number of items, on which the noise of scores depends.
        level: probability of the intervals.
        flags: what is not identified, and why.
    """

    components: pd.DataFrame
    judges: pd.DataFrame
    noise: pd.DataFrame
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
        spread = f"{severity.max() - severity.min():.1f} points"
        text = f"{n} judges agree with an alpha of {self.alpha:.2f}; the most severe and the most "
        text += f"lenient one differ by {spread}."
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
    trials: str = "answers",
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
    score, which has twice the rest.

    Args:
        responses: responses with the judge as a facet, such as of ``Responses.from_long(table,
            facets=["judge"])``; any number of judges and trials of each.
        judge: name of the facet.
        trials: what trials of one judgement are: "answers" (trial t of all judges is of the same
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
        >>> found = judges(Responses.from_long(table, facets=["judge"]))
        >>> found
        Judges(3 judges, alpha 0.66)
        >>> found.components["variance"].round(2).to_dict()["judgement"]
        0.09

    References:
        Koch (1968), Technometrics 10, 551-558; Brennan (2001), Generalizability Theory, chapter 3;
        Krippendorff (2004), Content Analysis, chapter 11.
    """
    data = as_responses(responses, name="responses")
    check_choice("trials", trials, TRIALS)
    check_count("n", n, 2)
    check_interval("level", level)
    judgements, names, flags = _read(data, judge, trials)
    sources, dropped = _identified(judgements)
    flags += dropped
    n_items = int(judgements.levels["item"].max()) + 1
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(n_items, np.full(n_items, 1 / n_items), n)
    weights = np.vstack([np.ones(n_items), draws])
    parts = variance_components(judgements.y, judgements.levels, sources, weights)
    components = _components(parts, level)
    if len(names) < 3:
        flags.append("the variance of two judges is hardly known: it has one degree of freedom")
    return Judges(
        components=components,
        judges=_table(judgements, names),
        noise=_noise(components["variance"], n_items),
        alpha=_alpha(judgements),
        n_items=n_items,
        level=float(level),
        flags=tuple(flags),
    )


def _read(data: Responses, judge: str, trials: str) -> tuple[Judgements, np.ndarray, list[str]]:
    """The judgements by subject, item, judge and trial, and the judges' names."""
    if BASE_ITEM not in data.items or judge not in data.items:
        advice = f'Read them with Responses.from_long(table, facets=["{judge}"]).'
        known = ", ".join(map(str, data.items.columns)) or "no columns of the items"
        raise argument_error("responses", f"judgements with the facet {judge}", known, advice)
    items = pd.factorize(data.items[BASE_ITEM].astype(str))[0]
    judge_codes, names = pd.factorize(data.items[judge].astype(str), sort=True)
    if len(names) < 2:
        raise argument_error("responses", "judgements by two judges or more", f"{names[0]} alone")
    scores = data.to_numpy()[:, :, None] / max(data.n_categories - 1, 1)
    flags = []
    if data.trial_values is not None:
        scores = data.trial_values.astype(float)
    elif data.trials is not None:
        flags.append("the trials are counted: their share is taken for one judgement")
    row, column, trial = np.nonzero(~np.isnan(scores))
    levels = {"subject": row, "item": items[column], "judge": judge_codes[column], "trial": trial}
    if trials == "judgements":
        levels["trial"] = np.zeros_like(trial)
    others = [name for name in data.items.columns if name in ("rater", "judge") and name != judge]
    if others:
        flags.append(f"other facets ({', '.join(others)}) are part of the judgement")
    found = Judgements(scores[row, column, trial], levels)
    cells = pd.DataFrame({name: levels[name] for name in ("subject", "item", "trial")})
    if not (cells.assign(judge=levels["judge"]).drop_duplicates().duplicated(list(cells))).any():
        raise argument_error("responses", "an answer that two judges judged", "none")
    return found, names.to_numpy(), flags


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


def _identified(
    judgements: Judgements,
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The sources that these judgements distinguish, and flags of the others."""
    n_trials = int(judgements.levels["trial"].max()) + 1
    sources: dict[str, tuple[str, ...]] = {}
    flags: list[str] = []
    seen: dict[bytes, str] = {}
    for name, factors in SOURCES.items():
        if "trial" in factors and n_trials == 1:
            continue
        if name == JUDGEMENT:
            sources[name] = factors
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
    return sources, flags


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
    item = levels["item"]
    within = _codes(levels, tuple(dict.fromkeys((*factors, "item"))))
    n, first, second = (np.bincount(within, values) for values in (np.ones(len(y)), y, y**2))
    owner = np.zeros(len(n), np.int64)
    owner[within] = item
    own_sum, own_pairs = (
        np.bincount(owner, values, minlength=weights.shape[1])
        for values in (n * second - first**2, n * n - n)
    )
    if "item" in factors:
        return weights @ own_sum, weights @ own_pairs
    group = _codes(levels, factors) if factors else np.zeros(len(y), np.int64)
    of_cell = np.zeros(len(n), np.int64)
    of_cell[within] = group
    shape = (weights.shape[1], int(group.max()) + 1)
    tables = []
    for values in (n, first, second):
        table = np.zeros(shape)
        table[owner, of_cell] = values
        tables.append(weights @ table)
    count, total, square = tables
    # Of two observations of one item, the product of the weights counts pairs of its copies too.
    extra_sum, extra_pairs = (
        np.bincount(owner, values, minlength=weights.shape[1])
        for values in (n * second - first**2, n * n)
    )
    change = weights - weights**2
    sums = (count * square - total**2).sum(axis=1) + change @ extra_sum
    numbers = (count**2).sum(axis=1) - (weights**2) @ extra_pairs + weights @ own_pairs
    return sums, numbers


def _components(parts: dict[str, FloatArray], level: float) -> pd.DataFrame:
    """The components with their intervals and shares; NaN for those that are not identified."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    rows = {}
    for source in SOURCES:
        draws = parts.get(source, np.array([np.nan]))
        usable = draws[1:][np.isfinite(draws[1:])]
        ends = np.quantile(usable, tails) if len(usable) else (np.nan, np.nan)
        rows[source] = (float(draws[0]), float(ends[0]), float(ends[1]))
    table = pd.DataFrame.from_dict(rows, "index", columns=["variance", "lower", "upper"])
    positive = table["variance"].clip(lower=0)
    return table.assign(share=positive / positive.sum()).rename_axis("source")


def _table(judgements: Judgements, names: np.ndarray) -> pd.DataFrame:
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
    table = pd.DataFrame(
        {
            "n": by_judge.size(),
            "mean": by_judge.mean(),
            "severity": 100 * severity,
            "agreement": agreement,
        }
    )
    return table.set_axis(pd.Index(names, dtype=object, name="judge"), axis=0)


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


def _alpha(judgements: Judgements) -> float:
    """Krippendorff's alpha over the answers, with squared distances; NaN if it is not defined."""
    units = _codes(judgements.levels, ("subject", "item", "trial"))
    order = np.argsort(units, kind="stable")
    bounds = np.flatnonzero([a != b for a, b in pairwise(units[order])]) + 1
    ratings = [part.tolist() for part in np.split(judgements.y[order], bounds)]
    if np.ptp(judgements.y) == 0:
        return float("nan")
    return float(krippendorff_alpha(ratings, "interval"))

"""How models learn easy and difficult items as their training sets grow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, check_count
from irtcat._common.per_item import per_item
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.convert import as_responses_like
from irtcat.responses import Responses
from irtcat.scoring import subject_labels
from irtcat.selection.task import read_groups

TERMS = ("intercept", "log_size", "difficulty", "log_size x difficulty")
ERRORS = ("items", "subjects", "both", "independent")
"""What the answers may depend on beyond the regression."""

MAX_STEPS = 60
"""Newton's method needs less than 15 steps where there is a finite maximum. Without one, the logits
of the separated answers grow by about 1 a step, and it never settles."""
TOLERANCE = 1e-9
"""Largest change of a logit in the last step."""
MIN_CONDITION = 1e-13
"""Below it, the information of the scaled terms cannot be inverted in double precision."""


@dataclass(frozen=True, eq=False)
class LearningRegression:
    """The result of `learning_regression`.

    Attributes:
        table: one row per system, category and term; see `learning_regression`.
        shares: share of right answers of each system and category by band of difficulty and
            training size.
        largest_size: the size whose logarithm is 0 in the regression.
        errors: what the standard errors allow for.
        left_out: ids of the items whose difficulty is not determined.
    """

    table: pd.DataFrame
    shares: pd.DataFrame
    largest_size: float
    errors: str
    left_out: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """The table of terms."""
        return self.table.copy()

    def __repr__(self) -> str:
        n, flagged = len(self.table) // len(TERMS), int((self.table["flag"] != "").sum())
        flags = f", {flagged // len(TERMS)} without estimates" if flagged else ""
        left = f", {len(self.left_out)} items left out" if self.left_out else ""
        return f"LearningRegression({n} regressions, errors by {self.errors}{flags}{left})"


def learning_regression(
    bank: BankLike,
    responses: Any,
    size: Any,
    *,
    systems: Any = None,
    categories: Any = None,
    errors: str = "items",
    bands: int = 3,
) -> LearningRegression:
    """Regress right answers on training size, difficulty and their product.

    The subjects are models that were trained on sets of different sizes n, the difficulties b are
    those of a calibration, of people or of other models. For each system (such as a network) and
    category of items

        logit P(right) = c0 + c1 log(n / n_max) + c2 (b - mean b) + c3 log(n / n_max) (b - mean b)

    by maximum likelihood. c2 is then the effect of difficulty at the largest size. A positive c1
    says that more data help, and a negative c3 that easy items gain more than difficult ones, or,
    the other way round, that the effect of difficulty emerges with more data.

    Answers to one item depend on each other beyond its difficulty, and so do the answers of one
    trained model. Cluster-robust errors allow for the first, the second, or both: with the sum of
    the information A, that of a cluster A_g and its score s_g, the variance is

        (G - 1) / G sum_g v_g v_g',  v_g = (A - A_g)^-1 s_g,

    the jackknife over clusters in one step, and p-values are those of t with G - 1 degrees of
    freedom (of the fewer clusters, for both). They need many clusters: some 30 items or models.

    Args:
        bank: items with difficulties of one ability, a fit, or the path of a bank.
        responses: right or wrong answers of the trained models to these items, at least two of
            them; those to other items do not count.
        size: each model's number of training examples, above 0: a column of
            ``responses.subjects``, a Series by subject id, or one number each.
        systems: the name of what was trained, for separate regressions: likewise.
        categories: each item's category, for separate regressions: a column of the items, a Series
            or mapping by id, or one for each of the responses' items.
        errors: clusters of the standard errors: "items", "subjects", "both", or "independent" for
            none.
        bands: number of bands of difficulty in `shares`, with equally many items.

    Returns:
        The table has a row for each system, category and term (intercept, log_size, difficulty,
        log_size x difficulty): estimate, se, z, p; n_answers, n_items, n_subjects; mean_difficulty,
        the mean of the items of the category; flag. Columns system and category are there if
        passed. Flags, with NaN for what cannot be estimated: "no answers", "all right", "all
        wrong", "one training size", "one difficulty", "collinear" (which answers are missing makes
        the terms so), "separated" (the terms predict some answers perfectly, and have no finite
        estimates), and "no error" (se is NaN: fewer than two clusters, one without which terms are
        not determined, or, for "both", a variance below 0). `shares` has n_answers, share and its
        standard error (items drawn at random) by system, category, band (1 is the easiest) and
        size, with the band's lowest and highest b.

    Raises:
        InputError: for responses that are not right or wrong, sizes that are not above 0 or all
            equal, banks without difficulties, or less than two common items.

    Example:
        >>> size = np.repeat([10.0, 100.0], 200)
        >>> b = np.array([-1.0, -0.5, 0.5, 1.0])
        >>> ability = np.log10(size)[:, None] - 1
        >>> p = 1 / (1 + np.exp(b - ability))
        >>> answers = np.random.default_rng(0).random(p.shape) < p
        >>> found = learning_regression(ItemBank.from_parameters(b=b), answers.astype(int), size)
        >>> found.table.set_index("term")["estimate"].round(1).tolist()
        [1.0, 0.5, -0.9, 0.0]

    References:
        Lalor, Wu, Munkhdalai & Yu (2018), EMNLP 4711-4716, and An Analysis of Ability in Deep
        Neural Networks, 4.2.2 and 4.2.4; Cameron, Gelbach & Miller (2011), Journal of Business &
        Economic Statistics 29, 238-249 (clusters in two directions).
    """
    check_choice("errors", errors, ERRORS)
    bank = as_bank(bank, needs=["one ability"], purpose="the regression on difficulty")
    if "b" not in bank.to_frame():
        raise argument_error("bank", "of items with a difficulty b", bank.model.key)
    responses = as_responses_like(responses, "responses", bank)
    if not responses.is_binary or responses.trials is not None:
        raise argument_error("responses", "right or wrong", responses.kind)
    sizes = _sizes(responses, size)
    names = ["all"] * responses.n_subjects if systems is None else systems
    system = subject_labels(responses, names, "systems").astype(str).to_numpy()
    answers, left_out = _common_answers(bank, responses, categories)
    check_count("bands", bands, 1, len(answers.difficulty))
    log_size = np.log(sizes / sizes.max())
    given = {"system": systems is not None, "category": categories is not None}
    tables: dict[tuple[str, str], pd.DataFrame] = {}
    shares: dict[tuple[str, str], pd.DataFrame] = {}
    for label in dict.fromkeys(system.tolist()):
        rows = np.flatnonzero(system == label)
        for category, chosen in answers.categories.items():
            tables[label, category] = _regression(answers, log_size, rows, chosen, errors)
            shares[label, category] = _shares(answers, sizes, rows, chosen, bands)
    return LearningRegression(
        table=_joined(tables, given),
        shares=_joined(shares, given),
        largest_size=float(sizes.max()),
        errors=errors,
        left_out=left_out,
    )


class _Answers(NamedTuple):
    """Answers to the items with a difficulty, and the positions of these by category."""

    values: np.ndarray
    observed: BoolArray
    difficulty: FloatArray
    categories: Mapping[str, IntArray]

    def of(self, rows: IntArray, chosen: IntArray) -> tuple[np.ndarray, BoolArray]:
        """Answers of some subjects to some of the items, and which there are."""
        cells = np.ix_(rows, chosen)
        return self.values[cells], self.observed[cells]


def _sizes(responses: Responses, size: Any) -> FloatArray:
    """Each subject's training size, checked."""
    values = subject_labels(responses, size, "size")
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        first = int(wrong.argmax())
        got = f"{values.iloc[first]} for {responses.subject_ids[first]}"
        raise argument_error("size", "numbers of training examples above 0", got)
    if len(np.unique(numbers)) < 2:
        raise argument_error("size", "at least two different numbers", numbers[:1])
    return numbers


def _common_answers(
    bank: ItemBank, responses: Responses, categories: Any
) -> tuple[_Answers, tuple[str, ...]]:
    """The answers to common items with a difficulty, and the ids of those without."""
    position = pd.Index(bank.item_ids).get_indexer(pd.Index(responses.item_ids))
    common = np.flatnonzero(position >= 0)
    determined = bank.determined[position[common]]
    columns = common[determined]
    if len(columns) < 2:
        got = f"{len(common)} in both, {len(columns)} of them with a determined difficulty"
        raise InputError(
            f"The bank and the responses must have at least 2 common items. Got {got}."
        )
    members = {"all": np.arange(len(columns))}
    if categories is not None:
        tables = [responses.items, bank.items]
        values = per_item("categories", categories, responses.item_ids, tables, "category")
        codes, names = read_groups(np.asarray(values, dtype=object)[columns])
        members = {name: np.flatnonzero(codes == code) for code, name in enumerate(names)}
    difficulty = bank.to_frame()["b"].to_numpy(float)[position[columns]]
    left_out = tuple(str(i) for i in responses.item_ids[common[~determined]])
    values, observed = responses.values[:, columns], responses.observed[:, columns]
    return _Answers(values, observed, difficulty, members), left_out


def _regression(
    answers: _Answers, log_size: FloatArray, rows: IntArray, chosen: IntArray, errors: str
) -> pd.DataFrame:
    """The four terms of one system and category."""
    values, observed = answers.of(rows, chosen)
    subject, item = np.nonzero(observed)
    y = values[observed].astype(float)
    b = answers.difficulty[chosen]
    size, difficulty = log_size[rows][subject], (b - b.mean())[item]
    x = np.column_stack([np.ones(len(y)), size, difficulty, size * difficulty])
    estimate, error, df = np.full(4, np.nan), np.full(4, np.nan), np.inf
    flag = _why_not(x, y)
    if not flag and (found := maximum(x, y)) is not None:
        estimate, inverse = found
        # Sign and cluster of each answer, of the variances that are summed.
        both: list[Any] = [(1.0, item), (1.0, subject), (-1.0, np.arange(len(item)))]
        clusters = {"items": both[:1], "subjects": both[1:2], "both": both}.get(errors, [])
        variance = _variance(x, y, estimate, inverse, clusters)
        df = min((len(np.unique(labels)) - 1 for _, labels in clusters), default=np.inf)
        with np.errstate(invalid="ignore"):
            error = np.sqrt(np.where(variance > 0, variance, np.nan))
        flag = "no error" if np.isnan(error).any() else ""
    elif not flag:
        flag = "separated"
    from scipy.special import ndtr, stdtr  # slow to import

    z = estimate / error
    return pd.DataFrame(
        {
            "term": TERMS,
            "estimate": estimate,
            "se": error,
            "z": z,
            "p": 2 * (ndtr(-np.abs(z)) if np.isinf(df) else stdtr(max(df, 1), -np.abs(z))),
            "n_answers": len(y),
            "n_items": len(np.unique(item)),
            "n_subjects": len(np.unique(subject)),
            "mean_difficulty": b.mean(),
            "flag": flag,
        }
    )


def _why_not(x: FloatArray, y: FloatArray) -> str:
    """Why the terms cannot be estimated; an empty text if there is no such reason."""
    if not len(y):
        return "no answers"
    if y.min() == y.max():
        return "all right" if y[0] else "all wrong"
    for flag, column in (("one training size", 1), ("one difficulty", 2)):
        if np.ptp(x[:, column]) == 0:
            return flag
    return "collinear" if np.linalg.matrix_rank(x) < x.shape[1] else ""


def maximum(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The maximum of the logistic likelihood and the inverse information; None without one.

    Example:
        >>> x, y = np.ones((4, 1)), np.array([1.0, 1.0, 1.0, 0.0])
        >>> bool(np.isclose(np.exp(maximum(x, y)[0][0]), 3.0))
        True
        >>> maximum(x, np.ones(4)) is None
        True
    """
    from scipy.special import expit  # slow to import

    beta, scale = np.zeros(x.shape[1]), np.sqrt((x**2).mean(axis=0))
    x = x / scale  # for the condition
    for _ in range(MAX_STEPS):
        p = expit(x @ beta)
        information = (x * (p * (1 - p))[:, None]).T @ x
        if not np.linalg.cond(information) < 1 / MIN_CONDITION:
            return None
        step = np.linalg.solve(information, x.T @ (y - p))
        beta = beta + step
        if np.abs(x @ step).max() < TOLERANCE:
            return beta / scale, np.linalg.inv(information) / np.outer(scale, scale)
    return None


def _variance(
    x: FloatArray,
    y: FloatArray,
    beta: FloatArray,
    inverse: FloatArray,
    clusters: list[tuple[float, IntArray]],
) -> FloatArray:
    """Variances of the terms, by leaving clusters out in one step.

    NaN with fewer than two clusters, or one without which the terms are not determined. A sandwich
    of the clusters' scores is too small, as each cluster has drawn the estimates to itself: with 30
    items and 12 models 15 % of tests at .05 rejected.
    """
    from scipy.special import expit  # slow to import

    if not clusters:
        return np.diag(inverse).copy()
    scale, k = np.sqrt((x**2).mean(axis=0)), x.shape[1]
    x = x / scale  # for the condition
    p = expit(x @ (beta * scale))
    scores, weights = x * (y - p)[:, None], p * (1 - p)
    information = (x * weights[:, None]).T @ x
    total = np.zeros(k)
    for sign, labels in clusters:
        codes = np.unique(labels, return_inverse=True)[1]
        g = int(codes.max()) + 1
        sums = np.column_stack([np.bincount(codes, column) for column in scores.T])
        rest = information[None]
        if g < len(y):  # a single answer moves the estimates hardly
            pairs = [(i, j) for i in range(k) for j in range(k)]
            own = [np.bincount(codes, x[:, i] * x[:, j] * weights) for i, j in pairs]
            rest = information - np.stack(own, axis=1).reshape(g, k, k)
        if g < 2 or not (np.linalg.cond(rest) < 1 / MIN_CONDITION).all():
            return np.full(k, np.nan)
        moved = np.linalg.solve(rest, sums[..., None])[..., 0] / scale
        total += sign * (g - 1) / g * (moved**2).sum(axis=0)
    return total


def _shares(
    answers: _Answers, sizes: FloatArray, rows: IntArray, chosen: IntArray, bands: int
) -> pd.DataFrame:
    """Share of right answers by band of difficulty and training size."""
    difficulty = answers.difficulty
    rank = np.argsort(np.argsort(difficulty, kind="stable"), kind="stable")
    band_of = rank * bands // len(difficulty)  # of all items: a category may lack a band
    found = []
    for band in range(bands):
        b = difficulty[band_of == band]
        of_band = chosen[band_of[chosen] == band]
        for size in np.unique(sizes[rows]) if len(of_band) else []:
            values, observed = answers.of(rows[sizes[rows] == size], of_band)
            share, error = _mean_of_items(values * observed, observed)
            row = {"band": band + 1, "b_from": b.min(), "b_to": b.max(), "size": size}
            found.append({**row, "n_answers": int(observed.sum()), "share": share, "se": error})
    return pd.DataFrame(found)


def _mean_of_items(right: np.ndarray, observed: BoolArray) -> tuple[float, float]:
    """Share of right answers, and its standard error with the items as clusters."""
    n = observed.sum(axis=0)
    right, n = right.sum(axis=0)[n > 0].astype(float), n[n > 0]
    if not len(n):
        return np.nan, np.nan
    share, g = right.sum() / n.sum(), len(n)
    spread = ((right - share * n) ** 2).sum() * g / (g - 1) if g > 1 else np.nan
    return float(share), float(np.sqrt(spread) / n.sum())


def _joined(tables: dict[tuple[str, str], pd.DataFrame], given: dict[str, bool]) -> pd.DataFrame:
    """One table; system and category, if they are given, are its first columns."""
    table = pd.concat(tables, names=list(given)).reset_index(list(given)).reset_index(drop=True)
    return table.drop(columns=[name for name, is_given in given.items() if not is_given])

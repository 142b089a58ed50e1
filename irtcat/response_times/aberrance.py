"""Response times that the subject's speed and the item's intensity do not explain."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from irtcat._common.checks import argument_error, check_interval
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.agreement.corrections import adjust
from irtcat.bank import BankLike, ItemBank
from irtcat.io.convert import ResponsesLike
from irtcat.models import expected_responses
from irtcat.response_times.lognormal import TimeModel, Times, bank_with_responses
from irtcat.scoring import match, score

UNLIKELY = 0.5
"""A right answer that is less likely is to an item that is hard for the subject."""


@dataclass(frozen=True, eq=False)
class AberrantTimes:
    """The result of `aberrant_times`.

    Attributes:
        cells: the aberrant times, the fastest for their expectation first: subject, item, seconds,
            expected (median seconds given the subject's other times), z, p_adjusted, right and
            p_right (the answer, and its expectation given the ability; NaN without responses), kind
            ("rapid guess", "preknowledge", "fast" or "slow").
        subjects: indexed by subject: n_times, statistic (chi-square of the residuals), df, p,
            p_adjusted, aberrant (whether p_adjusted is below alpha), and the number of cells of
            each kind.
        z: standardised residuals, subjects x items; NaN where missing.
        alpha: false discovery rate of the cells, and of the subjects.
    """

    cells: pd.DataFrame
    subjects: pd.DataFrame
    z: pd.DataFrame
    alpha: float

    def to_frame(self) -> pd.DataFrame:
        """The aberrant times."""
        return self.cells.copy()

    def __repr__(self) -> str:
        n = int(self.subjects["aberrant"].sum())
        return f"AberrantTimes({len(self.cells)} times; {n} of {len(self.subjects)} subjects)"


KINDS = ("rapid guess", "preknowledge", "fast", "slow")
"""Kinds of aberrant times: fast and wrong, fast and right where that was unlikely, other."""


def aberrant_times(
    model: TimeModel,
    times: Any,
    responses: ResponsesLike | None = None,
    *,
    bank: BankLike | None = None,
    alpha: float = 0.05,
    mismatch: str = "refuse",
) -> AberrantTimes:
    """Find answers that were too fast or too slow, and subjects whose times do not fit.

    An answer's log-time is compared with its prediction from the subject's other times,

    ``z_ij = (log T_ij - beta_j + tau_i(j)) / sqrt(1 / alpha_j^2 + v_i(j))``

    with posterior mean and variance of speed without item j: N(0, 1) under the model. A subject's
    statistic is the sum of squares ``alpha_j^2 (log T_ij - beta_j + tau_i)^2`` at its weighted
    least squares speed, chi-square with one degree of freedom less than it has times. Both are
    adjusted by Benjamini & Hochberg. Who is fast on all items is fast, not aberrant.

    Fast answers are, with responses to right/wrong items: "rapid guess" if wrong; "preknowledge" if
    right although that had a probability below .5 at the subject's ability; else "fast". These are
    reasons to look, not proofs.

    Args:
        model: of the times (see `fit_times`).
        times: the times; as for `fit_times`, of any subjects.
        responses: the responses, matched by ids; None for times alone.
        bank: their calibrated items.
        alpha: false discovery rate.
        mismatch: see `irtcat.score`.

    Returns:
        The aberrant times and the subjects.

    Raises:
        InputError: only one of responses and bank is passed, or ids do not match.

    Example:
        >>> from irtcat.response_times import fit_times
        >>> rng = np.random.default_rng(0)
        >>> times = np.exp(3 - rng.normal(0, 0.3, (300, 1)) + rng.normal(0, 0.5, (300, 20)))
        >>> model = fit_times(times)
        >>> times[7, 4] /= 20
        >>> aberrant_times(model, times).cells[["subject", "item", "kind"]].values.tolist()
        [['s8', 'i5', 'fast']]

    References:
        van der Linden & Guo (2008), Psychometrika 73, 365-384 (residuals); Marianti, Fox, Avetisyan
        & Veldkamp (2014), Journal of Educational and Behavioral Statistics 39, 426-451 (subjects).
    """
    check_interval("alpha", alpha)
    bank, responses = bank_with_responses(bank, responses, mismatch, "aberrant times")
    lacks_ids = responses is not None and not isinstance(times, pd.DataFrame)
    if lacks_ids and np.shape(times) == responses.values.shape:
        times = pd.DataFrame(np.asarray(times), responses.subject_ids, responses.item_ids)
    table = model.matched(times)
    z, expected = _residuals(model, table.logs)
    adjusted = adjust(2 * norm.sf(np.abs(z)), "benjamini-hochberg")
    right = p_right = np.full(z.shape, np.nan)
    if bank is not None:
        right, p_right = _answers(bank, responses, table)
    rows, columns = at = np.nonzero(adjusted < alpha)
    kinds = np.select(
        [z[at] > 0, right[at] == 0, (right[at] == 1) & (p_right[at] < UNLIKELY)],
        ["slow", "rapid guess", "preknowledge"],
        "fast",
    )
    cells = pd.DataFrame(
        {
            "subject": table.subject_ids[rows],
            "item": table.item_ids[columns],
            "seconds": table.seconds[at],
            "expected": np.exp(expected[at]),
            "z": z[at],
            "p_adjusted": adjusted[at],
            "right": right[at],
            "p_right": p_right[at],
            "kind": kinds,
        }
    ).sort_values("z", ignore_index=True)
    index = pd.Index(table.subject_ids, dtype=object, name="subject")
    subjects = _subjects(model, table.logs, alpha).set_axis(index)
    counts = pd.crosstab(cells["subject"], cells["kind"])
    counts = counts.reindex(index=index, columns=list(KINDS), fill_value=0)
    grid = pd.DataFrame(z, index=index, columns=table.item_ids)
    return AberrantTimes(cells, subjects.join(counts), grid, alpha)


def _residuals(model: TimeModel, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standardised residuals, and the log-times expected from the subject's other times."""
    beta, alpha = (model.items[name].to_numpy() for name in ("intensity", "discrimination"))
    precisions = alpha**2 * np.isfinite(logs)
    pull = np.nan_to_num(alpha**2 * (logs - beta))
    total = model.speed_sd**-2 + precisions.sum(axis=1, keepdims=True) - precisions
    expected = beta + (pull.sum(axis=1, keepdims=True) - pull) / total
    return (logs - expected) / np.sqrt(alpha**-2.0 + 1 / total), expected


def _subjects(model: TimeModel, logs: FloatArray, alpha: float) -> pd.DataFrame:
    """The chi-square statistic of each subject; NaN with fewer than two times."""
    precisions = model.items["discrimination"].to_numpy() ** 2 * np.isfinite(logs)
    deviation = np.nan_to_num(logs - model.items["intensity"].to_numpy())
    n = np.isfinite(logs).sum(axis=1)
    with np.errstate(invalid="ignore"):
        centre = (precisions * deviation).sum(axis=1) / precisions.sum(axis=1)
    statistic = (precisions * (deviation - centre[:, None]) ** 2).sum(axis=1)
    statistic = np.where(n >= 2, statistic, np.nan)
    p = chi2.sf(statistic, np.maximum(n - 1, 1))
    adjusted = adjust(p, "benjamini-hochberg")
    table = {"n_times": n, "statistic": statistic, "df": np.maximum(n - 1, 0), "p": p}
    return pd.DataFrame({**table, "p_adjusted": adjusted, "aberrant": adjusted < alpha})


def _answers(bank: ItemBank, responses: Any, times: Times) -> tuple[FloatArray, FloatArray]:
    """Right (1) and wrong (0) answers and their expectations in the cells of the times."""
    bank, matched = match(bank, responses)
    if matched.n_categories != 2 or matched.is_fractional:
        got = "fractions" if matched.is_fractional else f"{matched.n_categories} categories"
        raise argument_error("responses", "right/wrong", got, "Leave them out: times alone.")
    theta = score(bank, matched, mismatch="accept").theta  # checked before
    with precision("float64"):
        expected = np.asarray(expected_responses(bank.model, theta)).T
    values = np.where(matched.observed, matched.values.astype(float), np.nan)
    right, p_right = (
        pd.DataFrame(table, matched.subject_ids, matched.item_ids)
        .reindex(index=times.subject_ids, columns=times.item_ids)
        .to_numpy()
        for table in (values, expected)
    )
    return right, p_right

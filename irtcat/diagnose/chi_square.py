"""Shared by the fit tests: coded data, nodes of the population, chi-square p-values, RMSEA."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaincc, softmax

from irtcat._common.checks import argument_error
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import VERSION_GROUP, BankLike, ItemBank, as_bank
from irtcat.io.convert import as_responses_like
from irtcat.models import as_points, evaluated, item_categories, probabilities
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring import group_labels, match, mixture_note, refuse_versions, with_versions


class SubjectGroup(NamedTuple):
    """Subjects with one population.

    Attributes:
        label: of the group; "" where groups are not distinguished.
        rows: positions of the subjects.
        bank: the bank with the group's population alone; the whole bank without groups.
    """

    label: str
    rows: IntArray
    bank: ItemBank


class Coded(NamedTuple):
    """Responses to items with categories.

    Attributes:
        bank: the items that are also in the responses.
        responses: the responses to these, in the bank's codes.
        values: subjects x items, codes 0..K-1, -1 where missing.
        categories: number of categories of each item.
        groups: the groups of subjects; one of all subjects where they are not distinguished.
        labels: the group of each subject, or None.
    """

    bank: ItemBank
    responses: Responses
    values: np.ndarray
    categories: IntArray
    groups: tuple[SubjectGroup, ...] = ()
    labels: np.ndarray | None = None

    def of_group(self, group: SubjectGroup) -> "Coded":
        """The answers of a group, to the items as they are in it."""
        at, rows = np.arange(self.bank.n_items), group.rows
        if self.labels is not None and VERSION_GROUP in self.bank.statistics:
            versions = self.bank.statistics[VERSION_GROUP].astype(str)
            at = np.flatnonzero(versions.isin(["", group.label]))
        bank = group.bank.subset(at) if len(at) < self.bank.n_items else group.bank
        responses = self.responses
        if len(rows) < len(self.values) or len(at) < self.bank.n_items:
            responses = responses.subset(subjects=rows, items=at)
        values = self.values[np.ix_(rows, at)]
        alone = (SubjectGroup(group.label, np.arange(len(rows)), bank),)
        return Coded(bank, responses, values, self.categories[at], alone)

    @property
    def note(self) -> str:
        """Whose abilities are integrated over, where the bank has several populations."""
        return mixture_note(self.bank) if self.labels is None else ""

    @property
    def complete(self) -> BoolArray:
        """Subjects who answered all items."""
        return np.asarray((self.values >= 0).all(axis=1))

    def constant(self) -> BoolArray:
        """Items with at most one category in use."""
        lowest = np.where(self.values >= 0, self.values, 127).min(axis=0)
        return np.asarray(lowest >= self.values.max(axis=0))


def coded(
    bank: BankLike,
    responses: Any,
    least_items: int = 1,
    groups: Any = None,
    *,
    mismatch: str = "refuse",
) -> Coded:
    """The responses to items of the bank, as category codes.

    Args:
        bank: the items.
        responses: the responses, or data that `irtcat.as_responses` takes.
        least_items: smallest number of items.
        groups: the group of each subject, as for `irtcat.score`.
        mismatch: whether responses under other conditions than the bank's are refused, as for
            `irtcat.score`.

    Raises:
        InputError: for a bank whose items have no categories, fractions, responses that do not
            match the bank or its conditions, too few items, or no responses.
    """
    bank = as_bank(bank, needs=["categories"])
    responses = as_responses_like(responses, "responses", bank)
    if responses.is_fractional:
        raise argument_error("responses", "right/wrong or graded", "fractions")
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    labels = None
    if groups is None:
        refuse_versions(bank, responses)
    else:
        labels = group_labels(bank, responses, groups)
        responses = with_versions(bank, responses, labels)
    bank, matched = match(bank, responses)
    if bank.n_items < least_items:
        must = f"answers to at least {least_items} items of the bank"
        raise argument_error("responses", must, bank.n_items)
    values = np.asarray(matched.values)
    if not (values >= 0).any():
        raise argument_error("responses", "answers to items of the bank", "none: all are missing")
    parts = [SubjectGroup("", np.arange(len(values)), bank)]
    if labels is not None:
        of_group = {label: np.flatnonzero(labels == label) for label in bank.populations}
        parts = [
            SubjectGroup(label, rows, replace(bank, populations=bank.populations[label]))
            for label, rows in of_group.items()
            if len(rows)
        ]
    return Coded(bank, matched, values, item_categories(bank.model), tuple(parts), labels=labels)


def complete_values(data: Coded, test: str) -> np.ndarray:
    """The complete rows, for a test of this name.

    Raises:
        InputError: if there are fewer than 2.
    """
    complete = data.complete
    if complete.sum() < 2:
        must = f"of at least 2 subjects without missing answers: {test} needs complete rows"
        advice = "Pass the items that most subjects answered: responses.subset(items=...)."
        raise argument_error("responses", must, f"{int(complete.sum())} of {len(complete)}", advice)
    return data.values[complete]


def item_index(data: Coded) -> pd.Index:
    """The items as the index of a table."""
    return pd.Index(data.bank.item_ids, dtype=object, name="item")


def population_nodes(bank: ItemBank) -> tuple[FloatArray, FloatArray]:
    """Abilities (nodes x dims) and their weights (sum 1) in the bank's population."""
    return bank.population.quadrature(bank.n_items)


TINY = 1e-300
"""Keeps logarithms finite."""
_probabilities = jit(probabilities)


def curves(bank: ItemBank, points: FloatArray) -> FloatArray:
    """Probabilities of all categories, items x nodes x categories."""
    with precision("float64"):
        return evaluated(_probabilities, bank.model, as_points(np.asarray(points, float)))


def posteriors(values: np.ndarray, weights: FloatArray, p: FloatArray) -> FloatArray:
    """Posterior probability of each node given answers, -1 where missing, subjects x nodes."""
    log_p = np.log(np.maximum(p, TINY))
    log_posterior = np.log(np.maximum(weights, TINY)) + np.zeros((len(values), 1))
    for k in range(p.shape[2]):
        log_posterior += (values == k).astype(float) @ log_p[:, :, k]
    return np.asarray(softmax(log_posterior, axis=1))


def chi_square_p(statistic: Any, df: Any) -> FloatArray:
    """Upper tail of the chi-square distribution; NaN without degrees of freedom."""
    x, degrees = np.broadcast_arrays(np.asarray(statistic, float), np.asarray(df, float))
    valid = (degrees > 0) & np.isfinite(x)
    p = gammaincc(np.where(valid, degrees, 1.0) / 2, np.where(valid, np.maximum(x, 0.0), 0.0) / 2)
    return np.where(valid, p, np.nan)


def rmsea(statistic: Any, df: Any, n: Any) -> FloatArray:
    """``sqrt(max(X2 / df - 1, 0) / (n - 1))``: misfit per degree of freedom, independent of n.

    NaN without degrees of freedom.
    """
    x, degrees, n = np.broadcast_arrays(*(np.asarray(v, float) for v in (statistic, df, n)))
    valid = (degrees > 0) & (n > 1)
    ratio = x / np.where(valid, degrees, 1.0)
    value = np.sqrt(np.maximum(ratio - 1, 0.0) / np.where(valid, n - 1, 1.0))
    return np.where(valid, value, np.nan)

"""Items and subjects that are left out before a scale is built, each with a reason."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    brief,
    check_count,
    check_positive,
    float_array,
    shorten,
)
from irtcat._common.types import BoolArray
from irtcat.responses import Responses

BY_HAND = "by hand"
"""Reason of what is left out without one."""


def reasons_of(name: str, exclude: Any, ids: np.ndarray) -> dict[str, str]:
    """Reason by id, of a mapping, a Series, or ids without reasons.

    Args:
        name: the argument's name.
        exclude: what is to be left out.
        ids: ids of the responses.

    Raises:
        InputError: for ids that the responses do not have, or a text instead of a list.
    """
    if exclude is None:
        return {}
    if isinstance(exclude, str) or not isinstance(exclude, (Mapping, pd.Series, Iterable)):
        raise argument_error(name, "a mapping from ids to reasons, or a list of ids", exclude)
    pairs = exclude.items() if isinstance(exclude, (Mapping, pd.Series)) else None
    reasons = dict(pairs) if pairs is not None else dict.fromkeys(exclude, BY_HAND)
    reasons = {str(key): str(reason) for key, reason in reasons.items()}
    unknown = sorted(set(reasons) - set(ids.astype(str)))
    if unknown:
        raise argument_error(name, "ids of the responses", shorten(unknown))
    return reasons


def careless(
    choices: pd.DataFrame | Responses,
    *,
    attention: Mapping[str, Any] | None = None,
    most_failed: int = 0,
    straight_line: int | None = 10,
    longest_run: int | None = None,
    seconds: Any = None,
    min_seconds: float | None = None,
) -> "pd.Series[str]":
    """Subjects who did not answer in earnest, with reasons, to leave out of a scale.

    Attention items have an answer that everybody who reads them gives. A straight line is the same
    choice throughout. Both need the choices themselves, not whether they are right. The result is
    the ``exclude_subjects`` of `build`; its report lists them.

    Args:
        choices: the choices (letters, labels or codes), subjects x items in the order in which they
            were asked; missing ones are None or NaN. Responses count by their codes.
        attention: the right choice of each attention item. These are columns of ``choices``.
        most_failed: number of attention items that a subject may fail; one without an answer counts
            as failed.
        straight_line: the same choice in all of at least this many answers is a reason; None omits
            the rule.
        longest_run: more of the same choice in a row are a reason, missing answers skipped; by
            default no limit.
        seconds: time of each subject: one number each in their order, or a Series by subject.
        min_seconds: less time is a reason. Subjects without a time are kept.

    Returns:
        Reasons by subject, those of one subject separated by "; "; nobody else is in it.

    Raises:
        InputError: for attention items that are no columns, times that do not match the subjects,
            or numbers out of range.

    Example:
        >>> choices = pd.DataFrame(
        ...     {"q1": list("abcd"), "q2": list("bbcc"), "check": list("aaba"), "q3": list("aadb")},
        ...     index=["ann", "bob", "cy", "di"],
        ... )
        >>> careless(
        ...     choices, attention={"check": "a"}, longest_run=2, seconds=[90, 80, 85, 9],
        ...     min_seconds=30,
        ... ).to_dict()
        {'cy': 'failed 1 of 1 attention items', 'di': 'took 9 of at least 30 seconds'}

    References:
        Lalor, Wu & Yu (2016), EMNLP, section 3.2 (attention items); Johnson (2005), Journal of
        Research in Personality 39, 103-129 (runs); Huang, Curran, Keeney, Poposki & DeShon (2012),
        Journal of Business and Psychology 27, 99-114 (time); Meade & Craig (2012), Psychological
        Methods 17, 437-455 (comparison).
    """
    table = _table(choices)
    check_count("most_failed", most_failed, 0)
    reasons: dict[Any, list[str]] = {subject: [] for subject in table.index}

    def add(found: BoolArray, texts: Iterable[str]) -> None:
        for subject, is_found, text in zip(table.index, found, texts, strict=True):
            if is_found:
                reasons[subject].append(text)

    attention = attention or {}
    if unknown := [item for item in attention if item not in table]:
        raise argument_error("attention", "columns of the choices", shorten(unknown))
    if attention:
        failed = np.sum(
            [(table[item] != right).fillna(True) for item, right in attention.items()], axis=0
        )
        texts = [f"failed {n} of {len(attention)} attention items" for n in failed]
        add(failed > most_failed, texts)
    rest = table.drop(columns=list(attention))
    if straight_line is not None:
        check_count("straight_line", straight_line, 2)
        n, distinct = rest.notna().sum(axis=1), rest.nunique(axis=1)
        texts = [f"the same choice in all {k} answers" for k in n]
        add(((distinct == 1) & (n >= straight_line)).to_numpy(), texts)
    if longest_run is not None:
        check_count("longest_run", longest_run, 1)
        runs = np.array([_longest_run(row) for row in rest.to_numpy(object)])
        add(runs > longest_run, [f"the same choice {k} times in a row" for k in runs])
    if min_seconds is not None:
        check_positive("min_seconds", min_seconds)
        times = _times(seconds, table.index)
        texts = [f"took {t:g} of at least {min_seconds:g} seconds" for t in times]
        add(times < min_seconds, texts)
    elif seconds is not None:
        raise argument_error("min_seconds", "given with seconds", min_seconds)
    found = {subject: "; ".join(texts) for subject, texts in reasons.items() if texts}
    return pd.Series(found, dtype=object, name="reason").rename_axis("subject")


def _table(choices: Any) -> pd.DataFrame:
    if isinstance(choices, Responses):
        values = choices.to_numpy()
        return pd.DataFrame(values, index=choices.subject_ids, columns=choices.item_ids)
    if not isinstance(choices, pd.DataFrame):
        got = type(choices).__name__
        raise argument_error("choices", "a DataFrame of subjects x items, or Responses", got)
    if not choices.index.is_unique:
        repeated = choices.index[choices.index.duplicated()].unique().tolist()
        raise argument_error("choices", "with one row for each subject", shorten(repeated))
    return choices


def _longest_run(row: np.ndarray) -> int:
    """Length of the longest run of one choice, missing answers skipped."""
    return max((len(list(run)) for _, run in groupby(row[~pd.isna(row)])), default=0)


def _times(seconds: Any, subjects: pd.Index) -> np.ndarray:
    """Seconds of each subject; NaN where none are known."""
    if seconds is None:
        raise argument_error("seconds", "given with min_seconds", None)
    if isinstance(seconds, pd.Series):
        ids = seconds.index.map(str)
        if ids.has_duplicates:
            twice = brief(ids[ids.duplicated()][0])
            raise argument_error("seconds", "one number for each subject", f"several for {twice}")
        names = subjects.map(str)
        if not ids.isin(names).any():
            raise argument_error("seconds", "of the subjects", shorten(seconds.index.tolist()))
        seconds = seconds.set_axis(ids).reindex(names)
    times = float_array("seconds", "numbers", seconds)
    if times.shape != (len(subjects),):
        must = f"a Series by subject, or {len(subjects)} numbers"
        raise argument_error("seconds", must, f"an array of shape {times.shape}")
    return times

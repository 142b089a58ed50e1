"""Builds the page: headline, ranking, what to check, details, in one file below a size limit."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat import cat
from irtcat._common.checks import argument_error, check_choice
from irtcat._common.progress import ProgressOption, Steps, part_of, with_progress
from irtcat._files.writing import check_target, replacing
from irtcat.prediction.result import WHOSE as ESTIMANDS  # the module of estimands needs scipy
from irtcat.report.blocks import item_names
from irtcat.report.headline import headline, word_for
from irtcat.report.page import page
from irtcat.report.ranking import (
    RankedModels,
    ReferenceScores,
    ranking_of,
    ranking_section,
    score_text,
    session_text,
)
from irtcat.report.reading import Result, read
from irtcat.report.sections import Context, responses_section, sections_of
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

LIMIT = 1_000_000
"""Size limit in bytes, enough for a page of 5,000 items unless their ids are very long: long texts
are truncated, and columns of long tables omitted, until the page fits."""

ORDER = (
    *("evaluation", "comparison", "best", "predictions", "groups", "scores", "board", "gaps"),
    *("plan", "headroom", "sessions", "simulation", "scale", "options", "labels", "drift"),
    *("contamination", "link", "kept", "bank", "subset"),
)


@with_progress("Building the report")
def build(
    results: Any,
    *,
    title: str = "Evaluation report",
    responses: Responses | None = None,
    day: date | None = None,
    mismatch: str = "refuse",
    estimand: str | None = None,
    progress: ProgressOption = None,
) -> str:
    """Build one self-contained HTML page of results.

    The page loads nothing and sends nothing: it contains text, style, script and data, and its
    Content-Security-Policy forbids everything else. It opens with the result in a few sentences,
    the ranking of the models with intervals, and what to check; the details follow. A model has one
    score on the page: that of its evaluation or prediction, else that of its session. Equal results
    give equal bytes on one ``day``.

    Args:
        results: one result or several: paths (banks, tables, folders and stores written by the
            commands) or objects (see `read`). The items of a subset are marked in a bank that
            contains all of them.
        title: heading of the page, such as the benchmark's name.
        responses: the responses to the full benchmark, if known, to compare predicted with true
            scores, to check the data, and as the calibration of adaptive sessions.
        day: the date on the page; today by default.
        mismatch: whether the responses may have been answered under other conditions than those of
            the banks and sessions, as for `irtcat.score`.
        estimand: whose scores the sessions' scores, and the groups and ranks of complete responses
            are: "run", "model" (over reruns) or "domain" (items like these). By default sessions
            are as for `irtcat.predict`, groups of models "model" and of other subjects "domain".
            Other results say themselves whose scores they have.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the ranking and every result.

    Returns:
        The page.

    Raises:
        InputError: for no results, or one that cannot be read or has an unknown kind.

    Example:
        >>> from irtcat import ItemBank
        >>> html = build(ItemBank.from_parameters(b=[-1.0, 0.0, 1.0]), title="Three items")
        >>> html.startswith("<!DOCTYPE html>"), "http:" in html, len(html) < LIMIT
        (True, False, True)
    """
    if not isinstance(title, str) or not title.strip():
        raise argument_error("title", "a text", title)
    if responses is not None and not isinstance(responses, Responses):
        raise argument_error("responses", "Responses", type(responses).__name__)
    if estimand is not None:
        check_choice("estimand", estimand, ESTIMANDS)
    items = results if isinstance(results, (list, tuple)) else [results]
    loaded = _with_unique_names([read(item) for item in items])
    if not loaded:
        raise argument_error("results", "at least one result", "none")
    loaded.sort(key=lambda result: ORDER.index(result.kind))
    truth = _truth(responses) if responses is not None else None
    banks = [result.value for result in loaded if result.kind == "bank"]
    if responses is not None:
        for bank in banks:
            check_conditions(bank.items, responses.items, mismatch, source="bank")
    names = item_names([*banks, *([] if responses is None else [responses])])
    n_parts = 2 + len(loaded)  # the ranking, the results, and the data
    begin = Steps(progress, n_parts)
    begin("Ranking")
    ranking = ranking_of(loaded, responses, part_of(progress, 0, n_parts), mismatch, estimand)
    context = Context(
        truth=truth,
        names=names,
        ranking=ranking,
        score_text=_score_text(ranking, ReferenceScores(responses, mismatch, estimand)),
    )
    sections = sections_of(loaded, context, begin)
    if responses is not None:
        begin("Section of the data")
        of_data = part_of(progress, n_parts - 1, n_parts)
        sections.append(responses_section(responses, loaded, names, of_data))
    first = None if ranking is None else ranking_section(ranking, word_for(loaded), truth)
    opening = headline(loaded, responses, ranking, day or datetime.now(UTC).date())
    return page(title, sections, LIMIT, opening, first)


def _score_text(
    ranking: RankedModels | None, reference: ReferenceScores
) -> Callable[["cat.Session"], str]:
    """The full score of a session in words: the one of the ranking, if that has the subject."""
    ranked = ranking.rows if ranking is not None and ranking.by == "score" else ()
    rows = {row.name: row for row in ranked}

    def of(session: "cat.Session") -> str:
        row = rows.get(session.head["subject"] or session.id)
        return session_text(session, reference) if row is None else score_text(row)

    return of


def write(
    results: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "Evaluation report",
    responses: Responses | None = None,
    day: date | None = None,
    mismatch: str = "refuse",
    estimand: str | None = None,
    progress: ProgressOption = None,
) -> Path:
    """Write the page of `build` to a file atomically.

    Args:
        results: see `build`.
        path: the file, usually ending in .html; an existing file is replaced.
        title: heading of the page.
        responses: see `build`.
        day: see `build`.
        mismatch: see `build`.
        estimand: see `build`.
        progress: see `build`.

    Returns:
        The path.

    Raises:
        InputError: as `build` does, or if the file cannot be written.
    """
    check_target(path)
    text = build(
        results,
        title=title,
        responses=responses,
        day=day,
        mismatch=mismatch,
        estimand=estimand,
        progress=progress,
    )
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


def _with_unique_names(results: list[Result]) -> list[Result]:
    """Drop results with the same path, and add the folder to names that occur twice."""
    files = [None if r.path is None else r.path.resolve() for r in results]
    unique = [r for i, r in enumerate(results) if files[i] is None or files[i] not in files[:i]]
    names = [(r.kind, r.name) for r in unique]
    return [
        replace(r, name=os.path.join(r.path.resolve().parent.name, r.name))
        if r.path is not None and names.count((r.kind, r.name)) > 1
        else r
        for r in unique
    ]


def _truth(responses: Responses) -> pd.Series:
    """Full scores of the subjects with complete responses; NaN for others."""
    from irtcat.leaderboard import full_scores

    scores = np.array(full_scores(responses), float)
    scores[np.isnan(responses.to_numpy()).any(axis=1)] = np.nan
    return pd.Series(scores, index=[str(name) for name in responses.subject_ids])

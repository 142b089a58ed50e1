"""Builds the page: headline, ranking, what to check, details, in one file below a size limit."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice
from irtcat._common.progress import Progress, ProgressOption, Steps, part_of, with_progress
from irtcat._files.writing import check_target, replacing
from irtcat.prediction.flags import WHOSE as ESTIMANDS  # the module of estimands needs scipy
from irtcat.report import tables as _tables
from irtcat.report.blocks import Section
from irtcat.report.headline import headline, word_for
from irtcat.report.names import item_names, listed
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
from irtcat.report.remarks import Note
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

if TYPE_CHECKING:
    from irtcat.cat import Session

LIMIT = 1_000_000
"""Size limit in bytes, enough for a page of 5,000 items unless their ids are very long: long texts
are truncated, and columns of long tables omitted, until the page fits."""

ORDER = (
    "evaluation",
    "comparison",
    "best",
    "predictions",
    "groups",
    "scores",
    "board",
    "gaps",
    "plan",
    "headroom",
    "sessions",
    "simulation",
    "scale",
    "options",
    "labels",
    "drift",
    "contamination",
    "link",
    "kept",
    "bank",
    "subset",
)
SUSPECT = 0.5
"""Items above this suspicion are more likely mislabelled or ambiguous than not."""
MANY_RESPONSES = 3_000_000
"""With more responses, labels are not checked."""


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
    context = _Context(
        truth=truth,
        names=names,
        ranking=ranking,
        score_text=_score_text(ranking, ReferenceScores(responses, mismatch, estimand)),
    )
    sections = _result_sections(loaded, context, begin)
    if responses is not None:
        begin("Section of the data")
        of_data = part_of(progress, n_parts - 1, n_parts)
        sections.append(_data(responses, loaded, names, of_data))
    first = None if ranking is None else ranking_section(ranking, word_for(loaded), truth)
    opening = headline(loaded, responses, ranking, day or datetime.now(UTC).date())
    return page(title, sections, LIMIT, opening, first)


def _result_sections(loaded: list[Result], context: "_Context", begin: Steps) -> list[Section]:
    """The sections of the results; subsets are marked in a bank that has all of their items."""
    sections = []
    subsets = [result for result in loaded if result.kind == "subset"]
    marked: set[int] = set()
    for result in loaded:
        begin(f"Section of {result.name}")
        if result.kind == "bank":
            sections.append(_bank(result, subsets, marked, context.names))
        elif result.kind != "subset":
            sections += _sections(result, context)
    unmarked = [result for i, result in enumerate(subsets) if i not in marked]
    return sections + [_tables.subset(result.name, result.value) for result in unmarked]


@dataclass(frozen=True, eq=False)
class _Context:
    """What the sections share.

    Attributes:
        truth: full scores of complete responses, by subject; None without responses.
        names: texts of items whose ids are hashes.
        ranking: the ranking; None without models.
        score_text: returns the full score of a session in words.
    """

    truth: pd.Series | None
    names: Mapping[str, str]
    ranking: RankedModels | None
    score_text: Callable[["Session"], str]


def _score_text(
    ranking: RankedModels | None, reference: ReferenceScores
) -> Callable[["Session"], str]:
    """The full score of a session in words: the one of the ranking, if that has the subject."""
    rows = ranking.by_name if ranking is not None and ranking.by == "score" else {}

    def of(session: "Session") -> str:
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


def _sections(result: Result, context: _Context) -> list[Section]:
    """The sections of one result."""
    name, value = result.name, result.value
    if result.kind == "scale":  # this, sessions and banks need JAX, which tables do not
        from irtcat.report.folders import scale

        return scale(name, value)
    if result.kind == "evaluation":
        from irtcat.report.folders import evaluation

        return evaluation(name, value, context.score_text, context.names)
    if result.kind == "sessions":
        from irtcat.report.sessions import sessions

        return [sessions(name, value, context.score_text, context.names)]
    by_ability = context.ranking is not None and context.ranking.by == "theta"
    makers = {
        "scores": lambda: _tables.scores(name, value, by_ability),
        "predictions": lambda: _tables.predictions(name, value, context.truth),
        "board": lambda: _tables.board(name, value, result.flags),
        "gaps": lambda: _tables.gaps(name, value),
        "simulation": lambda: _tables.simulation(name, value),
        "headroom": lambda: _tables.plain(name, "Headroom", value, HEADROOM, "Test sets"),
        "comparison": lambda: _tables.plain(name, "Comparison", value, COMPARISON, "New and old"),
        "best": lambda: _tables.plain(name, "Best model", value, BEST, "The best, and its score"),
        "groups": lambda: _tables.plain(name, "Groups", value, GROUPS, "Models, the best first"),
        "options": lambda: _tables.plain(name, "Options", value, OPTIONS, "Options of each item"),
        "labels": lambda: _labels(name, value),
        "plan": lambda: _tables.plain(name, "Items needed", value, PLAN, "Designs"),
        "link": lambda: _tables.plain(name, "Link", value, LINK, "Common items"),
        "kept": lambda: _tables.plain(name, "Kept", value, KEPT, "Training examples kept"),
        "drift": lambda: _tests("drift", name, value),
        "contamination": lambda: _tests("contamination", name, value),
    }
    return [makers[result.kind]()]


HEADROOM = "The difficulty of each test set, and how well it still distinguishes the best subjects."
OPTIONS = (
    "Who chose which option of multiple-choice items: shares in groups from the lowest to the "
    "highest score on the other items. A key should rise, and a distractor fall."
)
LINK = "The common items of two banks, and the differences of their parameters on one scale."
KEPT = "Selected training examples, with the value on which the selection is based."
WHOSE = (
    "The estimand says whose scores: these runs' (run), the models' over reruns (model), on such "
    "items (domain), or the training recipes' over seeds (recipe)."
)
PLAN = (
    "The number of items, k, that ranks two subjects with this gap reliably, by sampling design. "
    f"{WHOSE}"
)
COMPARISON = (
    "Whether a new model is better or worse than an old one, in score units, or with the scale "
    f"ratio in shares of the old score. {WHOSE}"
)
GROUPS = (
    f"Models that share a letter cannot be distinguished; all rank intervals hold together. {WHOSE}"
)
BEST = (
    "The best of several models: the score that was observed is too high, as the model was chosen "
    f"for it; the score and its interval are corrected for that. {WHOSE}"
)

TESTS = {
    "drift": (
        "Drift",
        "By how much each item becomes easier per year for subjects of the same ability.",
        "item",
        "drifts",
        "Items that drift with the date of the subjects",
    ),
    "contamination": (
        "Contamination",
        "By how much each subject is better on items from before its date than on later ones.",
        "subject",
        "contaminated",
        "Subjects that are better on items from before their date",
    ),
}
"""Tables of tests by kind: title, what they show, columns of the ids and of the verdict, and the
sentence about those with that verdict."""


def _tests(kind: str, name: str, table: pd.DataFrame) -> Section:
    """The section of a table of tests."""
    title, about, unit, verdict, sentence = TESTS[kind]
    units = f"{unit.capitalize()}s"
    section = _tables.plain(name, title, table, about, units)
    is_found = table[verdict].astype(str).str.lower() == "true"  # as text in a file
    ids = table.loc[is_found, unit].astype(str).tolist()
    note = Note(f"{sentence}: {len(ids):,} ({listed(ids[:3], {})}).", units, serious=True)
    return replace(section, notes=(note,) if ids else ())


def _labels(name: str, table: pd.DataFrame) -> Section:
    """The section of a label ranking."""
    section = _tables.plain(
        name, "Labels", table, "Items whose key or question is suspect.", "Items"
    )
    ids = table.loc[table["suspicion"] > SUSPECT, "item"].astype(str).tolist()
    return replace(section, notes=(_suspect_note(ids, {}),) if ids else ())


def _suspect_note(ids: list[str], names: Mapping[str, str]) -> Note:
    """The note about items with suspect labels."""
    subject = "item is" if len(ids) == 1 else "items are"
    text = f"{len(ids):,} {subject} more likely mislabelled or ambiguous than not"
    first = ", first " if len(ids) > 3 else ": "
    return Note(f"{text}{first}{listed(ids[:3], names)}.", "Items", serious=True)


def _bank(
    result: Result, subsets: list[Result], marked: set[int], names: Mapping[str, str]
) -> Section:
    """The section of a bank, with the first subset of its items marked."""
    from irtcat.report.bank import bank_section

    ids = set(map(str, result.value.item_ids))
    for i, subset in enumerate(subsets):
        items = subset.value["item"].astype(str)
        if items.isin(ids).all():
            marked.add(i)
            return bank_section(result.name, result.value, items.tolist(), names=names)
    return bank_section(result.name, result.value, names=names)


def _truth(responses: Responses) -> pd.Series:
    """Full scores of the subjects with complete responses; NaN for others."""
    from irtcat.leaderboard import full_scores

    scores = np.array(full_scores(responses), float)
    scores[np.isnan(responses.to_numpy()).any(axis=1)] = np.nan
    return pd.Series(scores, index=[str(name) for name in responses.subject_ids])


def _data(
    responses: Responses, results: list[Result], names: Mapping[str, str], progress: Progress | None
) -> Section:
    """The section of the responses and their possible problems."""
    summary = responses.summary()
    notes = [Note(f"{flag}.", "Data") for flag in summary.flags]
    if responses.has_missing:
        notes.append(Note(f"{summary.share_missing:.1%} of the responses are missing.", "Data"))
    facts = {
        "Subjects": f"{summary.n_subjects:,}",
        "Items": f"{summary.n_items:,}",
        "Responses": f"{summary.n_responses:,}",
        "Kind": summary.kind,
        "Mean": f"{summary.mean:.3f}",
    }
    blocks = []
    suspects = _suspects(responses, results, progress)
    if suspects is not None and len(suspects):
        ids = suspects.index.astype(str).tolist()
        notes.append(_suspect_note(ids, names))
        keep = ["suspicion", "p_wrong_key", "p_unrelated", "a", "share", "n", "reasons"]
        shown, texts = suspects[keep].reset_index(), [names.get(name, "") for name in ids]
        named = {}
        if any(texts):
            shown, named = shown.assign(question=texts), {"texts": "question"}
        blocks.append(
            _tables.table_of(
                shown,
                "Items with suspect labels",
                long=("reasons", "question"),
                opens=1,
                main=("suspicion", "share"),
                minor=("n", "a"),
                percent=("share",),
                sort=("suspicion", -1),
                **named,
            )
        )
    return Section("The data", (), facts, blocks, tuple(notes))


def _suspects(
    responses: Responses, results: list[Result], progress: Progress | None
) -> pd.DataFrame | None:
    """Items with suspect labels; None without a bank of right/wrong items to test them."""
    from irtcat.diagnose import labels

    ids = set(map(str, responses.item_ids))
    for result in results:
        if result.kind != "bank" or not ids <= set(map(str, result.value.item_ids)):
            continue
        if not responses.is_binary or responses.values.size > MANY_RESPONSES:
            return None
        try:
            ranking = labels.rank(responses, result.value, mismatch="accept", progress=progress)
            table = ranking.to_frame()
        except InputError:
            return None
        return table[table["suspicion"] > SUSPECT]
    return None

"""The page: sections in order, warnings first, everything in one file below a limit."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error
from irtcat._files import check_target, replacing
from irtcat.report import _tables
from irtcat.report._bank import bank_section
from irtcat.report._blocks import Section
from irtcat.report._folders import evaluation, scale
from irtcat.report._page import page
from irtcat.report._read import Result, read
from irtcat.report._sessions import sessions
from irtcat.responses import Responses

__all__ = ["LIMIT", "build", "write"]

LIMIT = 1_000_000
"""Bytes that a page of 5,000 items does not reach, unless its ids alone do: long texts are cut, and
columns of long tables left out, until it fits."""

ORDER = ("evaluation", "comparison", "predictions", "scores", "board", "gaps", "plan", "headroom",
         "sessions", "simulation", "scale", "labels", "link", "kept", "bank",
         "subset")  # fmt: skip
SUSPECT = 0.5
MANY_RESPONSES = 3_000_000


def build(
    results: Any, *, title: str = "Evaluation report", responses: Responses | None = None
) -> str:
    """Make one self-contained HTML page of results.

    The page loads nothing and sends nothing: text, style, script and data are in it, and its
    Content-Security-Policy forbids the rest. The same results give the same bytes.

    Args:
        results: one result or several: paths (banks, tables, folders and stores that the commands
            wrote) or objects (see `read`). The items of a subset are marked in a bank that has
            them all.
        title: heading of the page.
        responses: the whole benchmark's responses, where they are known: true scores are shown
            beside predicted ones, and the data are checked.

    Returns:
        The page.

    Raises:
        InputError: for no result, or one that cannot be read or is of no known kind.

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
    given = _told_apart([read(each) for each in _listed(results)])
    if not given:
        raise argument_error("results", "at least one result", "none")
    given.sort(key=lambda result: ORDER.index(result.kind))
    told = _truth(responses) if responses is not None else None
    sections = []
    if responses is not None:
        sections.append(_data(responses, given))
    subsets = [result for result in given if result.kind == "subset"]
    marked: set[int] = set()
    for result in given:
        if result.kind == "bank":
            sections.append(_bank(result, subsets, marked))
        elif result.kind != "subset":
            sections += _sections(result, told)
    unmarked = [result for i, result in enumerate(subsets) if i not in marked]
    sections += [_tables.subset(result.name, result.value) for result in unmarked]
    return page(title, sections, LIMIT)


def write(
    results: Any, path: str | os.PathLike[str], *, title: str = "Evaluation report",
    responses: Responses | None = None,
) -> Path:  # fmt: skip
    """Write the page of `build` to a file, whole or not at all.

    Args:
        results: see `build`.
        path: where to, by custom ending in .html; an existing file is replaced.
        title: heading of the page.
        responses: see `build`.

    Returns:
        The path.

    Raises:
        InputError: as `build` does, or when the file cannot be written.
    """
    check_target(path)
    text = build(results, title=title, responses=responses)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


def _listed(results: Any) -> Iterable[Any]:
    """Results as a list, also where one is given."""
    return results if isinstance(results, (list, tuple)) else [results]


def _told_apart(given: list[Result]) -> list[Result]:
    """Each result once, also where its path is given twice; of equal names the folder is told."""
    files = [None if each.path is None else each.path.resolve() for each in given]
    once = [each for i, each in enumerate(given) if files[i] is None or files[i] not in files[:i]]
    names = [(each.kind, each.name) for each in once]
    return [
        replace(each, name=os.path.join(each.path.resolve().parent.name, each.name))
        if each.path is not None and names.count((each.kind, each.name)) > 1
        else each
        for each in once
    ]


def _sections(result: Result, truth: pd.Series | None) -> list[Section]:
    """The sections of one result."""
    name, value = result.name, result.value
    if result.kind == "scale":
        return scale(name, value)
    if result.kind == "evaluation":
        return evaluation(name, value)
    makers = {
        "scores": lambda: _tables.scores(name, value),
        "predictions": lambda: _tables.predictions(name, value, truth),
        "board": lambda: _tables.board(name, value, result.flags),
        "gaps": lambda: _tables.gaps(name, value),
        "simulation": lambda: _tables.simulation(name, value),
        "sessions": lambda: sessions(name, value),
        "headroom": lambda: _tables.plain(name, "Headroom", value, HEADROOM, "Test sets"),
        "comparison": lambda: _tables.plain(name, "Comparison", value, COMPARISON, "New and old"),
        "labels": lambda: _labels(name, value),
        "plan": lambda: _tables.plain(name, "Items needed", value, PLAN, "Designs"),
        "link": lambda: _tables.plain(name, "Link", value, LINK, "Common items"),
        "kept": lambda: _tables.plain(name, "Kept", value, KEPT, "Training examples kept"),
    }
    return [makers[result.kind]()]


HEADROOM = "How hard the items of each test set are, and how well they still tell the best apart."
PLAN = "How many items, k, make a gap between two subjects real, by the way they are chosen."
LINK = "The items that two banks share, and how far their parameters are apart once on one scale."
KEPT = "Examples kept for training, with the value by which each was judged."
COMPARISON = "Whether a new model is better or worse than an old one, in score units."


def _labels(name: str, table: pd.DataFrame) -> Section:
    """Suspect labels."""
    made = _tables.plain(name, "Labels", table, "Items whose key or question is suspect.", "Items")
    n = int((table["suspicion"] > SUSPECT).sum())
    first = ", ".join(table.loc[table["suspicion"] > SUSPECT, "item"].astype(str).head(3))
    said = (f"{n:,} items are more likely mislabelled or ambiguous than not, first {first}.",)
    return Section(made.title, made.intro, {}, made.blocks, said if n else ())


def _bank(result: Result, subsets: list[Result], marked: set[int]) -> Section:
    """A bank, the first subset that it holds marked in it."""
    ids = set(map(str, result.value.item_ids))
    for i, each in enumerate(subsets):
        items = each.value["item"].astype(str)
        if items.isin(ids).all():
            marked.add(i)
            return bank_section(result.name, result.value, items.tolist())
    return bank_section(result.name, result.value)


def _truth(responses: Responses) -> pd.Series:
    """Full scores of the subjects who answered everything; NaN of the others."""
    from irtcat.leaderboard import full_scores

    scores = np.array(full_scores(responses), float)
    scores[np.isnan(responses.to_numpy()).any(axis=1)] = np.nan
    return pd.Series(scores, index=[str(name) for name in responses.subject_ids])


def _data(responses: Responses, given: list[Result]) -> Section:
    """What deserves a look in the responses themselves."""
    summary = responses.summary()
    warnings = [f"{flag}." for flag in summary.flags]
    if responses.has_missing:
        warnings.append(f"{summary.share_missing:.1%} of the responses are missing.")
    facts = {"Subjects": f"{summary.n_subjects:,}", "Items": f"{summary.n_items:,}",
             "Responses": f"{summary.n_responses:,}", "Kind": summary.kind,
             "Mean": f"{summary.mean:.3f}"}  # fmt: skip
    blocks = []
    suspects = _suspects(responses, given)
    if suspects is not None and len(suspects):
        one = len(suspects) == 1
        warnings.append(
            f"{len(suspects):,} item{' is' if one else 's are'} more likely mislabelled or "
            f"ambiguous than not, first {', '.join(suspects.index[:3].astype(str))}."
        )
        keep = ["suspicion", "p_wrong_key", "p_unrelated", "a", "share", "n", "reasons"]
        shown = suspects[keep].reset_index()
        blocks.append(_tables.table_of(shown, "Items with suspect labels", long=("reasons",),
                                       percent=("share",), sort=("suspicion", -1)))  # fmt: skip
    return Section("The data", (), facts, blocks, tuple(warnings))


def _suspects(responses: Responses, given: list[Result]) -> pd.DataFrame | None:
    """Items whose labels are suspect, where a bank of right/wrong items tells."""
    from irtcat.diagnose import labels

    ids = set(map(str, responses.item_ids))
    for result in given:
        if result.kind != "bank" or not ids <= set(map(str, result.value.item_ids)):
            continue
        if not responses.is_binary or responses.values.size > MANY_RESPONSES:
            return None
        try:
            table = labels.rank(responses, result.value).to_frame()
        except InputError:
            return None
        return table[table["suspicion"] > SUSPECT]
    return None

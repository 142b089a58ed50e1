"""The sections of results, by their kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from irtcat._common.progress import Steps
from irtcat.report import tables as _tables
from irtcat.report.blocks import Section
from irtcat.report.names import listed
from irtcat.report.ranking import RankedModels
from irtcat.report.reading import Result
from irtcat.report.remarks import Note
from irtcat.report.responses_section import SUSPECT, suspect_note

if TYPE_CHECKING:
    from irtcat.cat import Session

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


def sections_of(loaded: list[Result], context: "Context", begin: Steps) -> list[Section]:
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
class Context:
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


def _sections(result: Result, context: Context) -> list[Section]:
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
    return replace(section, notes=(suspect_note(ids, {}),) if ids else ())


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

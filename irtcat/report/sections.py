"""The sections of results by their kind, of responses, and of output folders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from irtcat import cat
from irtcat._common.checks import InputError
from irtcat._common.progress import Progress, Steps
from irtcat.report import tables as _tables
from irtcat.report.blocks import Note, Section, listed, table_of
from irtcat.report.ranking import RankedModels, interval_name
from irtcat.report.reading import NOT_OVER, Result
from irtcat.report.sessions import sessions
from irtcat.report.tables import facts_of
from irtcat.responses import Responses


def scale(name: str, contents: dict[str, Any]) -> list[Section]:
    """Sections of scales: an overview with all decisions, and the items of each scale."""
    from irtcat.report.bank import bank_section  # it needs JAX, most results do not

    tables, banks = contents["tables"], contents["banks"]
    scales, decisions = tables["scales"], tables["decisions"].fillna({"scale": "", "item": ""})
    facts = {
        "Scales": str(len(scales)),
        "Items offered": f"{int(scales['items'].sum()):,}",
        "Items retained": f"{int(scales['retained'].sum()):,}",
    }
    blocks = [
        table_of(scales, "Scales"),
        table_of(
            decisions,
            "Decisions, in order",
            filters=[c for c in ("scale", "action") if len(set(decisions[c])) > 1],
            minor=("df",),
        ),
    ]
    if "items" in tables:
        shown = tables["items"].drop(columns="se_c", errors="ignore")
        blocks.append(
            table_of(
                _ids_first(shown),
                "All items, retained and removed",
                filters=[c for c in ("scale", "status") if c in shown],
                percent=("proportion_correct",),
                minor=("se_a", "se_b", "df", "communality", "s_x2"),
            )
        )
    status = scales.loc[scales["status"].astype(str) != "ok", ["scale", "status"]]
    notes = tuple(Note(f"Scale {row.scale}: {row.status}.", "Items") for row in status.itertuples())
    dropped = (decisions["action"] == "drop").sum()
    intro = f"Items dropped: {dropped:,}; each decision states its statistic and threshold."
    title = f"Evaluation scales: {name}"
    out = [Section(title, (intro,), facts=facts, blocks=blocks, notes=notes)]
    return out + [
        bank_section(f"scale {stem}", bank, curves=tables.get(f"{stem}_curves"))
        for stem, bank in banks.items()
    ]


def evaluation(
    name: str,
    contents: dict[str, Any],
    score_text: Callable[["cat.Session"], str],
    names: Mapping[str, str],
) -> list[Section]:
    """Sections of the adaptive evaluation of a live model: results, items and sessions.

    Args:
        name: for the heading.
        contents: the result, the tables and the stores of the folder.
        score_text: see `sessions`.
        names: texts of items whose ids are hashes.
    """
    result, tables = contents["result"], contents["tables"]
    facts = {key: value for key, value in facts_of(_readable(result)).items() if value}
    for key in ("Unlike", "Flags", "Notes"):
        facts.pop(key, None)  # said under what to check
    notes = _notes(result)
    traced = [
        sessions(store.name, store, score_text, names, facts=not facts)
        for store in contents["stores"]
    ]
    if not facts:
        return [
            Section(f"Adaptive evaluation: {name}", notes=tuple(notes)),
            *(replace(one, title=f"{one.title} of {name}") for one in traced),
        ]
    blocks = [block for one in traced for block in one.blocks]
    for stem, frame in tables.items():
        if len(frame) and not (traced and "item" in frame):  # the steps of the session have them
            blocks.append(table_of(_ids_first(frame), stem.capitalize()))
    intro = tuple(sentence for one in traced[:1] for sentence in one.intro)
    return [Section(f"Adaptive evaluation: {name}", intro, facts, blocks, tuple(notes))]


def _ids_first(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns of ids before the others."""
    ids = [name for name in ("item", "subject") if name in table]
    return table[[*ids, *table.columns.difference(ids, sort=False)]]


def _readable(result: dict[str, Any]) -> dict[str, Any]:
    """A result with what belongs together in one entry: score and interval, rank, ability, cost."""
    values = {key: value for key, value in result.items() if value is not None}
    for key in ("theta", "se"):  # a list if multidimensional, which is not an interval
        if isinstance(values.get(key), list):
            values[key] = ", ".join(f"{float(value):.4g}" for value in values[key])
    out: dict[str, Any] = {}
    if _all_numbers(values, "score", "lower", "upper"):
        score, low, high = (f"{100 * values.pop(key):.1f}" for key in ("score", "lower", "upper"))
        level = values.pop("level", None)
        interval = interval_name(level if isinstance(level, float) else None)
        out["score"] = f"{score} % ({interval} {low} to {high} %)"
    if _all_numbers(values, "rank", "n_calibrated"):
        out["rank"] = f"{values.pop('rank'):,} of {values.pop('n_calibrated') + 1:,}"
        if _all_numbers(values, "rank_lower", "rank_upper"):
            out["rank"] += f" ({values.pop('rank_lower'):,} to {values.pop('rank_upper'):,})"
    if _all_numbers(values, "n_items", "n_bank"):
        out["items_run"] = f"{values.pop('n_items'):,} of {values.pop('n_bank'):,}"
    if _all_numbers(values, "theta", "se"):
        out["theta"] = f"{values.pop('theta'):.3f} (SE {values.pop('se'):.3f})"
    if _all_numbers(values, "cost", "full_cost"):
        out["cost"] = f"{values.pop('cost'):,.4g} of {values.pop('full_cost'):,.4g}"
    model = {"model": values.pop("model")} if "model" in values else {}
    return model | out | values


def _all_numbers(values: dict[str, Any], *keys: str) -> bool:
    return all(
        isinstance(values.get(key), (int, float)) and not isinstance(values[key], bool)
        for key in keys
    )


def _notes(result: dict[str, Any]) -> list[Note]:
    """What to check of a result; the ranking has what is odd about its score."""
    notes = []
    for key in ("flags", "notes", "warnings", "note", "warning"):
        value = result.get(key)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        notes += [Note(str(text), "Runs", text == NOT_OVER) for text in texts if text]
    return notes


SUSPECT = 0.5
"""Items above this suspicion are more likely mislabelled or ambiguous than not."""

MANY_RESPONSES = 3_000_000
"""With more responses, labels are not checked."""


def suspect_note(ids: list[str], names: Mapping[str, str]) -> Note:
    """The note about items with suspect labels."""
    subject = "item is" if len(ids) == 1 else "items are"
    text = f"{len(ids):,} {subject} more likely mislabelled or ambiguous than not"
    first = ", first " if len(ids) > 3 else ": "
    return Note(f"{text}{first}{listed(ids[:3], names)}.", "Items", serious=True)


def responses_section(
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
        notes.append(suspect_note(ids, names))
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
    score_text: Callable[["cat.Session"], str]


def _sections(result: Result, context: Context) -> list[Section]:
    """The sections of one result."""
    name, value = result.name, result.value
    if result.kind == "scale":  # this, sessions and banks need JAX, which tables do not
        return scale(name, value)
    if result.kind == "evaluation":
        return evaluation(name, value, context.score_text, context.names)
    if result.kind == "sessions":
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

"""The ranking of the page: one score with one interval for every model, and where it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat import cat
from irtcat._common.progress import Progress, Steps, part_of
from irtcat._common.types import FloatArray
from irtcat.prediction import OUT_OF_RANGE, UNLIKE
from irtcat.prediction.result import WHOSE, whose, whose_scores
from irtcat.report.blocks import (
    Block,
    Note,
    Section,
    bar,
    column,
    distinct_texts,
    listed,
    points,
    table,
)
from irtcat.report.reading import Result
from irtcat.responses import Responses

NORMAL = NormalDist()  # scipy.special takes as long to import as numpy
Z = NORMAL.inv_cdf(0.975)
CLEAR, LIKELY, POSSIBLE = 0.95, 0.8, 0.05
"""Probabilities above which the best is clearly or probably better than another, and above which
another may be the best."""
MANY = 12
"""Above so many rows the ranking also has a figure."""
MOST_GROUPED = 300
"""Above so many subjects, not all pairs of them are compared: 300 by 900 items take a second."""
LEAST_CALIBRATION = 8
"""With fewer subjects, responses are no calibration: `irtcat.predict` needs as many."""

MEASURES = {"score": ("Score", True), "theta": ("Ability θ", False), "observed": ("Score", True)}
"""What a ranking can be by: its label, and whether it is a share."""


@dataclass(frozen=True)
class Standing:
    """A row of the ranking.

    Attributes:
        name: the model.
        score: score (0 to 1) or ability.
        lower: lower end of its interval.
        upper: upper end.
        level: probability of the interval; None if not known.
        estimator: how the score was estimated.
        n_items: number of items run; None if not known.
        rank: rank among the calibrated models; None if not known.
        rank_lower: best rank in the interval.
        rank_upper: worst rank in the interval.
        n_calibrated: number of calibrated models.
        letters: models that share a letter cannot be distinguished; "" if not known.
        estimand: whose score the interval is for: "run", "model" or "domain"; "" if not known.
        ranks_of: whose scores the ranks and letters are of; "" if not known.
        flags: what is uncertain about it.
        cost: cost of the items run, and of all items; None if not known.
    """

    name: str
    score: float
    lower: float
    upper: float
    level: float | None = 0.95
    estimator: str = ""
    n_items: int | None = None
    rank: int | None = None
    rank_lower: int | None = None
    rank_upper: int | None = None
    n_calibrated: int = 0
    letters: str = ""
    estimand: str = ""
    ranks_of: str = ""
    flags: tuple[str, ...] = ()
    cost: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class RankedModels:
    """All rows, the best first.

    Attributes:
        by: "score", "theta" (ability) or "observed" (share of points of complete responses).
        rows: the models.
        others: names of models with a second estimate from another result, which is not shown.
        n_items: number of items of the benchmark; None if not known.
    """

    by: str
    rows: tuple[Standing, ...]
    others: tuple[str, ...] = ()
    n_items: int | None = None

    @property
    def estimand(self) -> str:
        """Whose scores the intervals are for; "" if that is not known or not the same for all."""
        return _common(row.estimand for row in self.rows)

    @property
    def ranks_of(self) -> str:
        """Whose scores the ranks are of; "" if that is not known or not the same for all."""
        return _common(row.ranks_of for row in self.rows)

    @property
    def firsts(self) -> list[Standing]:
        """The rows of which none is shown to be worse than another; none without letters."""
        if not all(row.letters for row in self.rows):
            return []
        return [row for row in self.rows if row.rank_lower == 1]

    def ahead(self) -> FloatArray:
        """Probability that the first is better than each of the others, if errors are Normal."""
        if len(self.rows) < 2:
            return np.empty(0)
        first, others = self.rows[0], self.rows[1:]
        below = (first.score - first.lower) / _z(first.level)
        above = np.array([(row.upper - row.score) / _z(row.level) for row in others])
        gap = first.score - np.array([row.score for row in others])
        sd = np.sqrt(below**2 + above**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(sd > 0, gap / sd, np.where(gap > 0, np.inf, 0.0))
        return np.vectorize(NORMAL.cdf, otypes=[float])(np.nan_to_num(ratio))


def _finite(rows: Iterable[Standing]) -> list[Standing]:
    """The rows with a score."""
    return [row for row in rows if np.isfinite(row.score)]


def _common(estimands: Iterable[str]) -> str:
    """The only one of some estimands; "" for several."""
    different = set(estimands)
    return different.pop() if len(different) == 1 else ""


def _z(level: float | None) -> float:
    return Z if level is None else NORMAL.inv_cdf(0.5 + level / 2)


def interval_name(level: float | None) -> str:
    """An interval in words.

    Example:
        >>> interval_name(0.95), interval_name(None)
        ('95 % interval', 'interval')
    """
    return "interval" if level is None else f"{100 * level:g} % interval"


def ranking_of(
    results: Sequence[Result],
    responses: Responses | None,
    progress: Progress | None = None,
    mismatch: str = "refuse",
    estimand: str | None = None,
) -> RankedModels | None:
    """The ranking of all models in the results; None without any.

    A model has one score: that of its evaluation or prediction with calibration responses, else
    that of its session. Sessions are estimated with ``responses`` as the calibration where these
    hold all items of the bank. Without scores models are ranked by ability, and without abilities
    by their share of points in complete responses, with letters and rank intervals (see
    `irtcat.leaderboard.groups`).
    """
    reference = ReferenceScores(responses, mismatch, estimand)
    by, found = "score", _scores(results, reference, progress)
    if not found:
        tables = [r for r in results if r.kind == "scores" and "theta" in r.value]
        by, found = "theta", _finite(row for table in tables for row in _abilities(table))
    tables = [r for r in results if r.kind == "groups"]
    if not found and tables:
        by, found = "observed", _finite(row for table in tables for row in _grouped(table))
    if not found and responses is not None:
        by, found = "observed", _finite(_observed(responses, results, estimand))
    if not found:
        return None
    by_name: dict[str, Standing] = {}
    others = []
    for row in found:
        first = by_name.setdefault(row.name, row)
        if abs(first.score - row.score) > 1e-9:
            others.append(row.name)
    rows = sorted(by_name.values(), key=lambda row: -row.score)
    n_items = _n_items(results, responses)
    return RankedModels(by=by, rows=tuple(rows), others=tuple(others), n_items=n_items)


def _scores(
    results: Sequence[Result], reference: "ReferenceScores", progress: Progress | None
) -> list[Standing]:
    """The scores of evaluations and predictions, of sessions, and of evaluations by the bank."""
    n_run = {len(result.value) for result in results if result.kind == "subset"}
    subset_size = n_run.pop() if len(n_run) == 1 else None
    ends = [_evaluated(result) for result in results if result.kind == "evaluation"]
    evaluations = [row for row in ends if row is not None]
    rows = [row for row in evaluations if row.estimator != "bank"]
    for result in results:
        if result.kind == "predictions":
            rows += _finite(_in_table(result, n_items=subset_size, letters=""))
    names = {row.name for row in rows}
    stores = [result for result in results if result.kind == "sessions"]
    for number, result in enumerate(stores):
        part = part_of(progress, number, len(stores))
        for row in _finite(session_standings(result, reference, part)):
            if row.name not in names:  # else of the same run, or an earlier session
                names.add(row.name)
                rows.append(row)
    return rows + [row for row in evaluations if row.estimator == "bank"]


def _n_items(results: Sequence[Result], responses: Responses | None) -> int | None:
    """Number of items of the benchmark: those of the responses, the largest bank, or a run."""
    if responses is not None:
        return responses.n_items
    sizes = [result.value.n_items for result in results if result.kind == "bank"]
    ends = [result.value["result"] for result in results if result.kind == "evaluation"]
    sizes += [int(size) for end in ends if (size := _number(end, "n_bank")) is not None]
    return max(sizes, default=None)


def _number(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    return None if value is None or value != value else int(value)


def _evaluated(result: Result) -> Standing | None:
    """The standing in a folder of irtcat evaluate; None before its end."""
    document = result.value["result"]
    score, lower, upper = (_number(document, key) for key in ("score", "lower", "upper"))
    if score is None or lower is None or upper is None:
        return None
    costs = _number(document, "cost"), _number(document, "full_cost")
    codes = document.get("unlike")
    known = [code for code in codes if code in UNLIKE] if isinstance(codes, list) else []
    counts = ("n_items", "rank", "rank_lower", "rank_upper")
    whole: dict[str, Any] = {key: _whole(_number(document, key)) for key in counts}
    return Standing(
        name=str(document.get("model") or result.name),
        score=score,
        lower=lower,
        upper=upper,
        level=_number(document, "level"),
        estimator=str(document.get("estimator") or ""),
        **whole,
        n_calibrated=int(_number(document, "n_calibrated") or 0),
        estimand=_estimand(document.get("estimand")),
        ranks_of=_estimand(document.get("ranks_of")),
        flags=tuple(UNLIKE[code].flag for code in known),
        cost=None if costs[0] is None or costs[1] is None else (costs[0], costs[1]),
    )


def _in_table(result: Result, **more: Any) -> list[Standing]:
    """The standings in a table that a command wrote, with more fields that are alike for all."""
    rows = []
    for row in result.value.to_dict("records"):
        fields = {
            "name": str(row["subject"]),
            **{key: float(row[key]) for key in ("score", "lower", "upper")},
            "level": result.level,
            **{key: _text(row.get(key)) for key in ("estimator", "letters")},
            **{key: _whole(row.get(key)) for key in ("rank", "rank_lower", "rank_upper")},
            **{key: _estimand(row.get(key)) for key in ("estimand", "ranks_of")},
            "flags": tuple(flag for flag in _text(row.get("flag")).split("; ") if flag),
        }
        rows.append(Standing(**{**fields, "n_items": _whole(row.get("n_items")), **more}))
    return rows


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def _estimand(value: Any) -> str:
    """A known estimand, else ""."""
    return value if isinstance(value, str) and value in WHOSE else ""


class ReferenceScores(NamedTuple):
    """The responses to the full benchmark, and how they are used.

    Attributes:
        responses: of the calibrated subjects; None without any.
        mismatch: whether they may have been answered under other conditions.
        estimand: whose scores are estimated; None for the default.
    """

    responses: Responses | None = None
    mismatch: str = "refuse"
    estimand: str | None = None


def session_standings(
    result: Result, reference: ReferenceScores, progress: Progress | None
) -> list[Standing]:
    """The standings of the sessions of a store, unless it holds more than are drawn."""
    from irtcat.report.sessions import MOST, opened_sessions

    with opened_sessions(result.value) as (listed, shown):
        if listed is not None and len(listed) > MOST:
            return []
        begin, rows = Steps(progress, len(shown)), []
        for name, session in shown.items():
            begin(f"Score of session {name}")
            if int(session.state.scored):
                rows.append(_as_standing(session, reference))
        return rows


def session_score(session: "cat.Session", reference: ReferenceScores) -> cat.FullScore:
    """The full score of a session, with the responses as the calibration where they fit.

    They fit where they hold all items of the bank for enough other subjects.
    """
    responses, mismatch, estimand = reference
    if responses is not None:
        name = session.head["subject"] or session.id
        ids = set(map(str, responses.item_ids))
        others = [i for i, subject in enumerate(responses.subject_ids) if str(subject) != name]
        if len(others) >= LEAST_CALIBRATION and set(session.bank.item_ids.tolist()) <= ids:
            all_others = len(others) == responses.n_subjects
            known = responses if all_others else responses.subset(others)
            return session.full_score(known, mismatch=mismatch, estimand=estimand)
    return session.full_score()


def _as_standing(session: "cat.Session", reference: ReferenceScores) -> Standing:
    score = session_score(session, reference)
    flags = score.flags
    if not session.is_over:
        flags.append("the session is not over")
    return Standing(
        name=session.head["subject"] or session.id,
        **{key: getattr(score, key) for key in OF_SCORE},
        n_items=int(session.state.n),
        flags=tuple(flags),
    )


OF_SCORE = (
    *("score", "lower", "upper", "level", "estimator", "rank", "rank_lower", "rank_upper"),
    *("n_calibrated", "estimand", "ranks_of"),
)
"""What a `Standing` takes from a `FullScore`."""


def _abilities(result: Result) -> list[Standing]:
    """The standings by ability in a table of irtcat score."""
    table, level = result.value.assign(score=result.value["theta"]), result.level
    if not {"lower", "upper"} <= set(table):
        half, level = Z * table["se"], 0.95
        table = table.assign(lower=table["theta"] - half, upper=table["theta"] + half)
    shown = ["subject", "score", "lower", "upper", "n_items", "flag"]
    table = table[[key for key in shown if key in table]]
    return _in_table(replace(result, value=table, level=level))


def _grouped(result: Result, **more: Any) -> list[Standing]:
    """The standings in a table of irtcat groups."""
    rows = _in_table(result, **{"estimator": "all items", "n_items": None, "flags": (), **more})
    return [replace(row, ranks_of=row.estimand) for row in rows]


def _observed(
    responses: Responses, results: Sequence[Result], estimand: str | None
) -> list[Standing]:
    """The standings by share of points.

    With complete responses of not too many subjects they have letters and rank intervals: by
    default of models over reruns, of people on items like these. Else the interval is that of a
    sample of such items.
    """
    from irtcat.leaderboard import groups
    from irtcat.prediction import full_scores
    from irtcat.prediction.intervals import wilson_interval

    is_small = 2 <= responses.n_subjects <= MOST_GROUPED and responses.n_items > 1
    if is_small and not responses.has_missing:
        estimand = estimand or ("model" if are_models(results) else "domain")
        table = groups(responses, estimand=estimand).to_frame().reset_index()
        table["estimand"] = estimand
        found = Result("groups", "the responses", table, level=0.95)
        how = "all items answered"
        return _grouped(found, estimator=how, n_items=responses.n_items, rank=None)
    score = full_scores(responses)
    n = (~np.isnan(responses.to_numpy())).sum(axis=1)
    lower, upper = wilson_interval(score, np.maximum(n, 1).astype(float), 0.95)
    answered = np.where(n == responses.n_items, "all items answered", "mean of the answers")
    table = pd.DataFrame(
        {"subject": responses.subject_ids, "score": score, "lower": lower, "upper": upper}
    ).assign(estimator=answered, n_items=n, estimand="domain")
    return _in_table(Result("groups", "the responses", table, level=0.95))


def are_models(results: Sequence[Result]) -> bool:
    """Whether the subjects are models."""
    kinds = {result.kind for result in results}
    return bool(kinds & {"evaluation", "predictions", "board", "groups", "best"})


def ranking_section(ranking: RankedModels, word: str, truth: pd.Series | None) -> Section:
    """The section of the ranking: a table with intervals, and a figure of many rows.

    Args:
        ranking: the rows.
        word: what a row is, such as "Model".
        truth: full scores from complete responses, if known, by subject.
    """
    rows = ranking.rows
    _, percent = MEASURES[ranking.by]
    columns = [
        *_score_columns(ranking, word),
        *_truth_columns(ranking, truth),
        *_origin_columns(rows),
        column("lower", [row.lower for row in rows], percent=percent, hidden=True, printed=True),
        column("upper", [row.upper for row in rows], percent=percent, hidden=True, printed=True),
    ]
    shown = table(
        f"{word}s in order",
        columns,
        sort=("place", 1),
        name="ranking",
        page=25 if len(rows) > 30 else 50,
    )
    figures = [_figure(ranking, word)] if len(rows) > MANY else []
    return Section(
        "Ranking", (_what(ranking, word),), {}, [shown, *figures], tuple(_notes(ranking, word))
    )


def _score_columns(ranking: RankedModels, word: str) -> list[Block]:
    """Names, ranks and scores with their intervals."""
    rows = ranking.rows
    label, percent = MEASURES[ranking.by]
    level = rows[0].level
    score = np.array([row.score for row in rows])
    place = pd.Series(-np.round(score, 12)).rank(method="min").astype(int)
    interval = interval_name(level if all(row.level == level for row in rows) else None)
    return [
        column("subject", [row.name for row in rows], word),
        column("place", place, "Rank"),
        column("score", score, label, percent=percent, main=True),
        column(
            "interval",
            [ends_text(row, percent) for row in rows],
            interval[:1].upper() + interval[1:],
            main=True,
            plain=True,
        ),
        bar("lower", "score", "upper", "As a picture"),
    ]


def _truth_columns(ranking: RankedModels, truth: pd.Series | None) -> list[Block]:
    """The full scores of complete responses, where some are known."""
    if truth is None or ranking.by == "observed":
        return []
    true = truth.reindex([row.name for row in ranking.rows]).to_numpy(float)
    title = "True score" if ranking.by == "score" else "Share of points"
    return [column("truth", true, title, percent=True)] if np.isfinite(true).any() else []


def _origin_columns(rows: Sequence[Standing]) -> list[Block]:
    """What the scores are based on, and what to check."""
    columns = []
    if any(row.n_items is not None for row in rows):
        counts = [np.nan if row.n_items is None else row.n_items for row in rows]
        differ = len(set(counts)) > 1
        columns.append(column("n_items", counts, "Items run", hidden=not differ))
    if any(row.letters for row in rows):
        columns.append(column("letters", [row.letters for row in rows], "Group", plain=True))
        possible = [_ranks_text(row) for row in rows]
        columns.append(column("ranks", possible, "Possible ranks", plain=True))
    elif any(row.rank is not None for row in rows):
        ranks = ["" if row.rank is None else _rank_text(row) for row in rows]
        known = max(row.n_calibrated for row in rows)
        title = f"Rank among {known:,} calibrated" if known else "Rank among the calibrated"
        columns.append(column("among", ranks, title, minor=True, plain=True))
    methods = [row.estimator for row in rows]
    if any(methods):
        columns.append(
            column("estimator", methods, "Estimated by", minor=True, hidden=len(set(methods)) == 1)
        )
    flags = distinct_texts([row.flags for row in rows])
    if any(flags):
        columns.append(column("flag", flags, "To check", minor=True))
    return columns


def _figure(ranking: RankedModels, word: str) -> Block:
    """The scores in order with their intervals."""
    rows = ranking.rows
    label, percent = MEASURES[ranking.by]
    description = f"{len(rows):,} {word.lower()}s in order, each with its interval."
    percents = {"percent": "y"} if percent else {}
    at = np.arange(1, len(rows) + 1), [row.score for row in rows]
    return points(
        f"{label} in order",
        "Rank",
        label,
        at,
        [row.name for row in rows],
        description,
        low=[row.lower for row in rows],
        high=[row.upper for row in rows],
        opens="ranking",
        whole=1,
        **percents,
    )


def _what(ranking: RankedModels, word: str) -> str:
    """A sentence that says what the numbers are."""
    n = f"{ranking.n_items:,} items" if ranking.n_items else "full benchmark"
    if ranking.by == "theta":
        return "Ranked by ability. If two intervals overlap, the true order may be reversed."
    if ranking.by == "observed":
        text = f"The score is the share of points on the {n}"
        if not any(row.letters for row in ranking.rows):
            return f"{text}; its interval is for a benchmark of other items of this kind."
        subjects = f"{word.lower()}s"
        scores = whose(ranking.estimand, subjects) if ranking.estimand else "the scores"
        return (
            f"{text}. Intervals, groups and possible ranks are of {scores}: two {subjects} that "
            "share a letter cannot be distinguished, and all possible ranks hold together."
        )
    methods = {row.estimator for row in ranking.rows}
    if methods == {"bank"}:
        how = "read off the curves of the item bank, without responses of calibrated models"
    else:
        how = f"estimated from the items that the {word.lower()} answered"
        only = methods.pop() if len(methods) == 1 else ""
        how += f" by {only}" if only else ""
    text = f"The score is the share of points on the {n}, {how}."
    if word == "Model" and ranking.estimand:
        text += f" {whose_scores(ranking.estimand, ranking.ranks_of)}"
    return f"{text} If two intervals overlap, the true order may be reversed."


def ends_text(row: Standing, percent: bool) -> str:
    """The ends of an interval in words."""
    if not (np.isfinite(row.lower) and np.isfinite(row.upper)):
        return "unknown"
    if percent:
        return f"{100 * row.lower:.1f} to {100 * row.upper:.1f} %"
    return f"{row.lower:.2f} to {row.upper:.2f}"


def _ranks_text(row: Standing) -> str:
    """The ranks that a model may have."""
    if row.rank_lower is None or row.rank_upper is None:
        return ""
    if row.rank_lower == row.rank_upper and row.letters:
        return f"{row.rank_lower:,}"
    return f"{row.rank_lower:,} to {row.rank_upper:,}"


def _rank_text(row: Standing) -> str:
    ranks = _ranks_text(row)
    return f"{row.rank:,} ({ranks})" if ranks else f"{row.rank:,}"


def _notes(ranking: RankedModels, word: str) -> list[Note]:
    notes = flag_notes({row.name: row.flags for row in ranking.rows}, word)
    methods = pd.Series([row.estimator.split(":")[0] for row in ranking.rows]).value_counts()
    if ranking.by == "score" and len(methods) > 1:
        counts = ", ".join(f"{name or 'unknown'} {n:,}" for name, n in methods.items())
        text = f"The scores come from different estimators ({counts}): compare them with care."
        notes.append(Note(text, "Scores"))
    if ranking.others:
        names = listed(ranking.others, {}, 40)
        text = f"More than one result has a score of {names}, by other answers."
        text += " The ranking shows that of the first result."
        notes.append(Note(text, "Scores"))
    return notes


def flag_notes(flags: Mapping[str, Sequence[str]], word: str) -> list[Note]:
    """One note for each flag, with the number and names of those that have it."""
    by_flag: dict[str, list[str]] = {}
    for name, texts in flags.items():
        for text in texts:
            by_flag.setdefault(text, []).append(name)
    out = []
    for text, names in sorted(by_flag.items(), key=lambda entry: -len(entry[1])):
        n = f"{len(names):,} of {len(flags):,} {word.lower()}s: " if len(flags) > 1 else ""
        shown = f" ({listed(names, {}, 40)})" if len(flags) > 1 else ""
        reason = text[:1].upper() + text[1:] if not n else text
        serious = text in OUT_OF_RANGE
        if serious:
            reason += ", where scores are less certain"
        out.append(Note(f"{n}{reason}{shown}.", "Models", serious))
    return out


def score_text(row: Standing) -> str:
    """A score with its interval, and where it comes from."""
    if not np.isfinite(row.score):
        return "no score: no answer"
    source = "the bank's curves" if row.estimator == "bank" else row.estimator
    by = f", by {source}" if source else ""
    interval = f"{interval_name(row.level)} {100 * row.lower:.1f} to {100 * row.upper:.1f} %"
    return f"{100 * row.score:.1f} % ({interval}){by}"


def session_text(session: "cat.Session", reference: ReferenceScores) -> str:
    """The full score of a session that is not in the ranking (see `session_score`)."""
    return score_text(_as_standing(session, reference))

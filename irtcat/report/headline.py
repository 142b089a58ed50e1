"""The opening of the page: the result in a few sentences for a reader who knows no IRT."""

from collections.abc import Sequence
from datetime import date

import numpy as np

from irtcat.report.blocks import MOST_LETTERS, listed, shorter
from irtcat.report.page import Headline
from irtcat.report.ranking import (
    CLEAR,
    LIKELY,
    MEASURES,
    POSSIBLE,
    RankedModels,
    Standing,
    are_models,
    ends_text,
    interval_name,
)
from irtcat.report.reading import Result
from irtcat.report.tables import best_of_board
from irtcat.responses import Responses

TIE = 5e-4
"""Scores that differ by less look equal, and share a place in words."""


def word_for(results: Sequence[Result]) -> str:
    """What a subject is called: a model where models are evaluated, else a subject."""
    return "Model" if are_models(results) else "Subject"


def day_text(day: date) -> str:
    """A date in words.

    Example:
        >>> day_text(date(2026, 11, 3))
        '3 November 2026'
    """
    return f"{day.day} {day:%B} {day.year}"


def headline(
    results: Sequence[Result], responses: Responses | None, ranking: RankedModels | None, day: date
) -> Headline:
    """The opening of the page.

    Args:
        results: all results.
        responses: the responses to the full benchmark, if known.
        ranking: the ranking; None without models.
        day: the date.
    """
    word = word_for(results).lower()
    calibrated = _n_calibrated(results, responses, ranking)
    meta = [day_text(day)]
    n_items = _n_items(results, ranking)
    if ranking is not None:
        meta.append(_count(len(ranking.rows), word))
    if n_items:
        meta.append(_count(n_items, "item"))
    if calibrated:
        meta.append(f"calibrated on {_count(calibrated, word)}")
    sentences: list[str] = []
    facts: dict[str, str] = {}
    if ranking is not None:
        saved, facts_of_saved = _saved(ranking, word)
        sentences += [*_best(ranking, word), *saved]
        facts |= _best_facts(ranking, word) | facts_of_saved
    boards = [result.value for result in results if result.kind == "board"]
    if boards:
        sentences.append(best_of_board(boards[0]))
    if not sentences:
        sentences.append(_without_models(results, n_items, calibrated))
    return Headline(meta=meta, sentences=[text for text in sentences if text], facts=facts)


def _count(n: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> _count(1, "model"), _count(1200, "item")
        ('1 model', '1,200 items')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _n_items(results: Sequence[Result], ranking: RankedModels | None) -> int | None:
    if ranking is not None and ranking.n_items:
        return ranking.n_items
    return max((r.value.n_items for r in results if r.kind == "bank"), default=None)


def _n_calibrated(
    results: Sequence[Result], responses: Responses | None, ranking: RankedModels | None
) -> int | None:
    """Number of calibrated subjects, as the predictions or a bank have it."""
    counts = [row.n_calibrated for row in ranking.rows] if ranking is not None else []
    for result in results:
        n = result.value.provenance.get("n_subjects") if result.kind == "bank" else None
        counts.append(n if isinstance(n, int) else 0)
    return max(counts, default=0) or None


def _value(row: Standing, ranking: RankedModels) -> str:
    """A score or ability with its interval."""
    if not np.isfinite([row.lower, row.upper]).all():
        return f"an ability of {row.score:.2f} (interval unknown)"
    percent = MEASURES[ranking.by][1]
    score = f"{100 * row.score:.1f} %" if percent else f"an ability of {row.score:.2f}"
    return f"{score} ({interval_name(row.level)} {ends_text(row, percent)})"


def _name(row: Standing) -> str:
    return shorter(row.name, MOST_LETTERS)


def _names(rows: Sequence[Standing]) -> str:
    return listed([row.name for row in rows], {})


def _best(ranking: RankedModels, word: str) -> list[str]:
    """Who is best, and whether it is clearly so."""
    first, *others = ranking.rows
    if not others:
        rank = ""
        if first.rank is not None and first.n_calibrated:
            rank = f" That is rank {first.rank:,} of {first.n_calibrated + 1:,}"
            if first.rank_lower is not None and first.rank_upper is not None:
                again = " over reruns" if first.ranks_of == "model" else ""
                rank += f" ({first.rank_lower:,} to {first.rank_upper:,}{again})"
            rank += f" among the calibrated {word}s."
        return [f"{_name(first)} reaches {_value(first, ranking)}.{rank}"]
    if ranking.firsts:
        return _best_of_groups(ranking, word)
    ahead = ranking.ahead()
    second, p = others[0], float(ahead[0])
    rivals = int((1 - ahead > POSSIBLE).sum())
    tied = _tied(ranking)
    if tied:
        tie = f"{_names([first, *tied])} share the first place with {_value(first, ranking)}."
        as_good = f"{rivals:,} of the other {len(others):,} {word}s may be as good."
        return [tie, as_good + _again(ranking, word, is_clear=False)]
    lead = f"{_name(first)} is best with {_value(first, ranking)}."
    follower = f"{_name(second)} with {_value(second, ranking)}"
    is_clear = p >= CLEAR and not rivals
    if is_clear:
        verdict = f"It is clearly ahead of all others; the next is {follower}."
    elif p >= LIKELY:
        verdict = (
            f"It is probably better than the next, {follower}: the probability is {_percent(p)}."
        )
    else:
        verdict = (
            f"It is not clearly the best: the next is {follower}, and the probability that the "
            f"first is really better is {_percent(p)}."
        )
    if rivals > 1:
        verdict += f" {rivals:,} of the other {len(others):,} {word}s may be as good."
    return [lead, verdict + _again(ranking, word, is_clear=is_clear)]


AGAIN = {
    "run": (
        " Whether a rerun would agree is not shown: the scores are of these runs.",
        " A rerun may put another one first.",
    ),
    "model": (" A rerun would agree.", " A rerun may put another one first."),
    "domain": (
        " So it is on other items of this kind.",
        " A test of other items may put another one first.",
    ),
    "": ("", ""),
}
"""Whether the first would be first again, by whose scores they are: if it is clearly so, or not."""


def _again(ranking: RankedModels, word: str, *, is_clear: bool) -> str:
    """A sentence: would a rerun of the models, or a test of other items, agree?"""
    is_known = word == "model" or ranking.estimand == "domain"
    return AGAIN[ranking.estimand if is_known else ""][0 if is_clear else 1]


def _best_of_groups(ranking: RankedModels, word: str) -> list[str]:
    """Who may be the best, where it is known which models cannot be distinguished."""
    first, second = ranking.rows[:2]
    lead = f"{_name(first)} has the highest score: {_value(first, ranking)}."
    may = len(ranking.firsts)
    of_all = f"{may:,} of the {len(ranking.rows):,} {word}s may be"
    verdict = f"It is not clearly the best: {of_all} ({_names(ranking.firsts)})."
    if may == 1:
        follower = f"the next is {_name(second)} with {_value(second, ranking)}"
        verdict = f"It is clearly ahead of all others; {follower}."
    return [lead, verdict + _again(ranking, word, is_clear=may == 1)]


def _tied(ranking: RankedModels) -> list[Standing]:
    """The rows that share the first place with the first."""
    first, *others = ranking.rows
    return [row for row in others if abs(row.score - first.score) < TIE]


def _percent(p: float) -> str:
    """A probability in whole percent, never 0 or 100.

    Example:
        >>> _percent(0.714), _percent(0.9999)
        ('71 %', 'over 99 %')
    """
    return "over 99 %" if p > 0.99 else f"{100 * p:.0f} %"


def _best_facts(ranking: RankedModels, word: str) -> dict[str, str]:
    first = ranking.rows[0]
    label, percent = MEASURES[ranking.by]
    tied = len(_tied(ranking))
    name = _name(first) + (f" and {tied:,} more" if tied else "")
    facts = {f"Best {word}" if len(ranking.rows) > 1 else word.capitalize(): name}
    facts[label] = f"{100 * first.score:.1f} %" if percent else f"{first.score:.2f}"
    if ranking.firsts:
        may = len(ranking.firsts)
        facts["Clearly best"] = "yes" if may == 1 else f"no: {may:,} may be"
    elif len(ranking.rows) > 1:
        p = float(ranking.ahead()[0])
        facts["Clearly best"] = "yes" if p >= CLEAR else "probably" if p >= LIKELY else "no"
    return facts


def _money(cost: float) -> str:
    """A cost, to the hundredth above 1.

    Example:
        >>> _money(1234.567), _money(0.01234)
        ('1,234.57', '0.0123')
    """
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.3g}"


def _saved(ranking: RankedModels, word: str) -> tuple[list[str], dict[str, str]]:
    """How much was saved: sentences and key figures, without what is not known of all."""
    sentences: list[str] = []
    facts: dict[str, str] = {}
    counts = [row.n_items for row in ranking.rows if row.n_items is not None]
    n_items = ranking.n_items or 0
    if ranking.by != "observed" and len(counts) == len(ranking.rows) and np.mean(counts) < n_items:
        mean = float(np.mean(counts))
        per = f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f} on average"
        percent = f"{100 * (1 - mean / n_items):.0f} %"
        saved = f"{percent} of the answers were saved"
        sentences.append(f"Each {word} answered {per} of the {n_items:,} items: {saved}.")
        facts["Answers saved"] = percent
    costs = [row.cost for row in ranking.rows if row.cost is not None]
    if costs:
        cost, full = (_money(sum(values)) for values in zip(*costs, strict=True))
        sentences.append(f"The answers cost {cost} instead of {full}.")
        facts["Cost"] = f"{cost} of {full}"
    return sentences, facts


def _without_models(results: Sequence[Result], n_items: int | None, calibrated: int | None) -> str:
    """What a page without a ranking shows."""
    kinds = {result.kind for result in results}
    if "bank" in kinds and n_items:
        end = f", calibrated on {_count(calibrated, 'subject')}" if calibrated else ""
        return f"A bank of {_count(n_items, 'item')}{end}."
    if "sessions" in kinds:
        return "Adaptive sessions, without a ranking: see the details."
    what = "one analysis" if len(results) == 1 else f"{len(results):,} analyses"
    return f"The results of {what}: see the details."

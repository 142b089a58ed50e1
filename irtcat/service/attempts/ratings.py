"""Ratings: scores by people for responses that no key scores.

As many people rate each response as the test says. Two do so without seeing each other's score or
who gave it: where they agree, that is the score; where they differ, a third one decides. The final
score enters the log of the attempt, and the result follows from it. People give points; ratings and
logs hold the category.
"""

import json
from collections import Counter
from typing import Any

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import InputError, argument_error, is_number
from irtcat.agreement import cohen_kappa
from irtcat.service.attempts.attempt import Attempt, attempt_of, opened
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.progress import Answer
from irtcat.service.base.errors import ConflictError, NotFoundError
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

WAITING = '%"waiting": ["%'
"""Pattern of the summaries of attempts with items that wait for a score."""

RATING, ADJUDICATION = "rating", "adjudication"


def rating_queue(service: Service, rater: str, n: int = 50) -> pd.DataFrame:
    """Responses that a person may rate now, the oldest attempts first.

    What they rated is left out.

    Returns:
        ``attempt``, ``item`` and ``kind`` ("rating", or "adjudication" where two ratings differ).
    """
    done: dict[tuple[str, str], set[str]] = {}
    for row in service.rows(sa.select(tables.ratings)):
        done.setdefault((row.attempt, row.item), set()).add(row.rater)
    statement = (
        sa.select(tables.attempts.c.id, tables.attempts.c.test, tables.attempts.c.summary)
        .where(tables.attempts.c.status != "void", tables.attempts.c.summary.like(WAITING))
        .order_by(tables.attempts.c.started, tables.attempts.c.id)
    )
    rows = []
    for attempt in service.rows(statement):
        for item in json.loads(attempt.summary)["waiting"]:
            raters = done.get((attempt.id, item), set())
            if rater not in raters:
                wanted = published_test(service, attempt.test).definition.raters
                kind = RATING if len(raters) < wanted else ADJUDICATION
                rows.append({"attempt": attempt.id, "item": item, "kind": kind})
            if len(rows) == n:
                return pd.DataFrame(rows)
    return pd.DataFrame(rows, columns=["attempt", "item", "kind"])


def rating_task(service: Service, attempt: str, item: str) -> dict[str, Any]:
    """What a rater sees: the item, the response and the rubric; not who gave it, or other scores.

    Raises:
        NotFoundError: for an unknown attempt, or an item that does not wait for a score.
    """
    it = attempt_of(service, attempt)
    answer = _waiting(it, item)
    key, content = it.test.items.keys[item], it.test.item(item)
    scores = _scores(it, item)
    return {
        "attempt": attempt,
        "item": item,
        "prompt": content.prompt,
        "language": content.language,
        "direction": content.direction,
        "response": answer.response,
        "rubric": key.rubric,
        "criteria": [{"name": name, "points": points} for name, points in key.criteria],
        "scores": scores,
        "max_score": scores[-1],
    }


def _waiting(it: Attempt, item: str) -> Answer:
    """The answer to an item that waits for a score; one that may still be changed does not.

    Raises:
        NotFoundError: for another item.
    """
    answer = it.progress.answers.get(item)
    if answer is None or answer.code is not None or not it.progress.stands(item):
        raise NotFoundError("This response does not wait for a score.")
    return answer


def _scores(it: Attempt, item: str) -> list[float]:
    """The points that a response can have, by category."""
    key = it.test.items.keys[item]
    return [key.score(code) for code in range(it.test.categories.get(item, key.categories))]


def rate(
    service: Service,
    attempt: str,
    item: str,
    score: float,
    *,
    rater: str,
    actor: str,
    comment: str = "",
) -> str:
    """Rate a response.

    The score is one of the ``scores`` of `rating_task`; nobody rates a response twice.

    Returns:
        "open" until there are enough ratings, "differ" where a third person must decide, or
        "scored".

    Raises:
        NotFoundError: for an unknown attempt, or an item that does not wait for a score.
        ConflictError: for a second rating by the same person.
        InputError: for a score that the item cannot have.
    """
    if not isinstance(comment, str) or len(comment) > 2000:
        raise argument_error("comment", "a text of at most 2,000 characters", comment)
    with opened(service, attempt, actor=actor) as it:
        _waiting(it, item)
        code = it.test.items.keys[item].category(score) if is_number(score) else None
        possible = _scores(it, item)
        if code is None or not 0 <= code < len(possible):
            must = f"one of {', '.join(f'{points:g}' for points in possible)}"
            raise argument_error("score", must, score)
        table = tables.ratings
        of_response = sa.select(table).filter_by(attempt=attempt, item=item)
        known = service.rows(of_response.order_by(table.c.rated))
        if any(row.rater == rater for row in known):
            raise ConflictError("You have rated this response.")
        wanted = it.test.definition.raters
        kind = RATING if len(known) < wanted else ADJUDICATION
        row = {"attempt": attempt, "item": item, "rater": rater, "kind": kind, "score": code}
        service.insert(table, **row, comment=comment, rated=service.now())
        service.acted(actor, "response rated", attempt=attempt, item=item)
        codes = [*(r.score for r in known), code]
        if kind == RATING and len(codes) < wanted:
            return "open"
        if kind == RATING and len(set(codes)) > 1:
            return "differ"
        it.add("rating", item=item, code=code, ratings=codes)
    return "scored"


def rating_statistics(service: Service, test: str) -> pd.DataFrame:
    """How far the first two raters agree, by item.

    Returns:
        One row per item with pairs of ratings: ``pairs``, ``agreement`` (the share of equal
        scores), ``kappa`` and ``weighted_kappa`` (quadratic; both of Cohen, NaN where all ratings
        are the same), ``mean`` (in points), and ``adjudicated`` (responses that a third person
        decided).
    """
    statement = (
        sa.select(tables.ratings)
        .join(tables.attempts, tables.attempts.c.id == tables.ratings.c.attempt)
        .where(tables.attempts.c.test == test)
        .order_by(tables.ratings.c.rated)
    )
    keys = published_test(service, test).items.keys
    frame = service.frame(statement)
    adjudicated = Counter(frame.loc[frame["kind"] == ADJUDICATION, "item"])
    scores = frame[frame["kind"] == RATING].groupby(["item", "attempt"])["score"].agg(list)
    rows = []
    for item, both in scores[scores.map(len) == 2].groupby(level="item"):
        first, second = zip(*both, strict=True)
        agreement = sum(a == b for a, b in both) / len(both)
        kappas = [_kappa(first, second, distance) for distance in ("nominal", "quadratic")]
        mean = keys[str(item)].unit * sum(first + second) / (2 * len(both))
        rows.append((item, len(both), agreement, *kappas, mean, adjudicated[item]))
    columns = ["item", "pairs", "agreement", "kappa", "weighted_kappa", "mean", "adjudicated"]
    return pd.DataFrame(rows, columns=columns)


def _kappa(first: tuple[int, ...], second: tuple[int, ...], distance: str) -> float:
    try:
        return cohen_kappa(list(first), list(second), distance=distance)
    except InputError:  # 0 / 0: everybody gave the same score
        return float("nan")

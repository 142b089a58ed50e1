"""Item statistics of a test while it is taken: exposure, difficulty, and drift from the bank."""

import numpy as np
import pandas as pd
import sqlalchemy as sa

from irtcat.cat.rules import greatest_rate
from irtcat.models import expected_responses, response_variances, take
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.results import attempt_result
from irtcat.service.definition import Adaptive, Fixed
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

FEWEST = 20
"""Answers below which no drift is flagged: the normal approximation is poor."""

LARGEST = 3.0
"""Absolute standardised difference above which drift is flagged: one item in 370 by chance."""


def item_statistics(service: Service, test: str) -> pd.DataFrame:
    """Exposure and drift of every scored or pretest item of a test, over its finished attempts.

    For an item answered by the subjects i, with their final abilities from all answers::

        z = sum_i (x_i - E[x | theta_i]) / sqrt(sum_i Var[x | theta_i])

    It is about standard normal while the item behaves as in the bank. Since theta_i is estimated
    with the answer to the item itself, z is somewhat too small in short tests.

    Args:
        service: the service.
        test: id of the test.

    Returns:
        One row per item: ``answers``, ``exposure`` (share of the attempts in which it was shown),
        ``target`` (the highest rate that the test's exposure rules allow; NaN without one),
        ``over_target``, ``observed`` and ``expected`` mean score, ``z``, ``drift`` (flag), and
        ``seconds`` (median).

    Raises:
        NotFoundError: for an unknown test.
    """
    published = published_test(service, test)
    statement = sa.select(tables.attempts.c.id).where(
        tables.attempts.c.test == test, tables.attempts.c.status == "finished"
    )
    attempts = [attempt_of(service, row.id) for row in service.rows(statement)]
    answers, n_shown = _answers(attempts), _n_shown(attempts)
    targets = _targets(published)
    rows = []
    for name, target in targets.items():
        of_item = answers[answers["item"] == name]
        exposure = n_shown.get(name, 0) / len(attempts) if attempts else np.nan
        # An unlucky rate of few attempts is no fault: two standard errors above the target.
        margin = 2 * np.sqrt(target * (1 - target) / max(len(attempts), 1))
        rows.append(
            {
                "item": name,
                "answers": len(of_item),
                "exposure": exposure,
                "target": target,
                "over_target": bool(exposure > target + margin),
                "observed": of_item["score"].mean() if len(of_item) else np.nan,
                **_drift(published, name, of_item),
                "seconds": of_item["seconds"].median() if len(of_item) else np.nan,
            }
        )
    columns = [
        "item",
        "answers",
        "exposure",
        "target",
        "over_target",
        "observed",
        "expected",
        "z",
        "drift",
        "seconds",
    ]
    return pd.DataFrame(rows, columns=columns)


def _targets(test: PublishedTest) -> dict[str, float]:
    """Items of the bank that the test may show, with the highest rate allowed."""
    out: dict[str, float] = {}
    for at, section in enumerate(test.definition.sections):
        if isinstance(section, Adaptive):
            rule = section.config.exposure
            rate = None if rule.name == "overlap" else greatest_rate(rule)  # of pairs of tests
            for name in test.pools[at].item_ids.tolist():
                out[name] = np.nan if rate is None else rate
        elif isinstance(section, Fixed):
            out |= {name: np.nan for name in section.items if name in test.categories}
    return out


def _n_shown(attempts: list[Attempt]) -> dict[str, int]:
    out: dict[str, int] = {}
    for attempt in attempts:
        for name in attempt.progress.number:
            out[name] = out.get(name, 0) + 1
    return out


def _answers(attempts: list[Attempt]) -> pd.DataFrame:
    """Scored answers of people who have an estimate."""
    rows = []
    for attempt in attempts:
        result = attempt_result(attempt)
        if result is None or not np.isfinite(result.theta):
            continue
        rows += [
            (name, answer.code, result.theta, answer.seconds)
            for name, answer in attempt.progress.answers.items()
            if answer.code is not None and answer.response is not None
        ]
    return pd.DataFrame(rows, columns=["item", "score", "theta", "seconds"])


def _drift(test: PublishedTest, name: str, answers: pd.DataFrame) -> dict[str, float | bool]:
    if answers.empty:
        return {"expected": np.nan, "z": np.nan, "drift": False}
    item = take(test.bank.model, test.bank.positions([name]))
    theta = answers["theta"].to_numpy(float)
    expected = np.asarray(expected_responses(item, theta))[0]
    variance = np.asarray(response_variances(item, theta))[0].sum()
    z = (answers["score"].to_numpy(float) - expected).sum() / np.sqrt(variance)
    flagged = len(answers) >= FEWEST and abs(z) > LARGEST
    return {"expected": float(expected.mean()), "z": float(z), "drift": bool(flagged)}

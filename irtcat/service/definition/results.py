"""Scores of a person: the reported score, its interval, and the level."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from irtcat._common.checks import argument_error, check_count
from irtcat._common.types import FloatArray
from irtcat._files import json_value
from irtcat.bank import ItemBank
from irtcat.models import item_categories
from irtcat.responses import Responses
from irtcat.scoring import score
from irtcat.service.definition.records import TestDefinition


@dataclass(frozen=True, kw_only=True)
class ScaledScore:
    """An ability on the reported scale of a test.

    Attributes:
        score: the reported score; None without an estimate.
        lower: lower end of the interval, within the reported scores.
        upper: its upper end.
        level: label of the level that ``score`` is in; None without cuts or an estimate.
        probability: probability that the true score is in this level.
        probabilities: this probability for every level, by label.
        is_clipped: whether the estimate is beyond the reported scores.
    """

    score: float | None
    lower: float | None
    upper: float | None
    level: str | None
    probability: float | None
    probabilities: Mapping[str, float]
    is_clipped: bool = False

    def to_json(self) -> dict[str, Any]:
        """The score as a JSON document."""
        return {name: json_value(value) for name, value in vars(self).items()}


def scaled(
    definition: TestDefinition,
    theta: float,
    se: float,
    ends: tuple[float, float] = (-np.inf, np.inf),
) -> ScaledScore:
    """The reported score, its interval and the level of an estimate of ability.

    The interval is ``theta +- z se``, rounded and clipped as scores are. The probability of a level
    is that of a Normal(theta, se^2) between its cuts, given how scores are rounded. An estimate at
    a theta bound has no finite SE: its interval is ``ends``, and if one of these is finite, the
    Normal has the SE that puts ``theta +- z se`` there.

    Args:
        definition: the test.
        theta: the estimate; NaN if there is none.
        se: its standard error; infinite at a theta bound, or where the answers say nothing.
        ends: the interval of `irtcat.score`, which is taken where ``se`` is infinite.

    Returns:
        The score.

    Raises:
        InputError: for a standard error below 0.

    Example:
        >>> from irtcat.service.definition import Adaptive, Cut, ScoreScale
        >>> test = TestDefinition(
        ...     title="A",
        ...     sections=[Adaptive(config={"max_items": 5})],
        ...     score=ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0),
        ...     cuts=[Cut(label="Basic", from_score=450), Cut(label="Proficient", from_score=550)],
        ... )
        >>> result = scaled(test, 0.25, 0.3)
        >>> result.score, result.lower, result.upper, result.level, round(result.probability, 3)
        (525.0, 466.0, 584.0, 'Basic', 0.787)
    """
    number = isinstance(se, (int, float, np.number)) and not isinstance(se, bool)
    if not number or se < 0:
        raise argument_error("se", "a number of at least 0", se)
    if not isinstance(theta, (int, float, np.number)) or isinstance(theta, bool):
        raise argument_error("theta", "a number", theta)
    if np.isnan(theta) or np.isnan(se):
        return ScaledScore(
            score=None, lower=None, upper=None, level=None, probability=None, probabilities={}
        )
    scale, labels = definition.score, definition.labels
    half = ndtri(0.5 + scale.level / 2) * se
    lower_end, upper_end = ends if np.isinf(se) else (theta - half, theta + half)
    lower, reported, upper = scale.reported_score([lower_end, theta, upper_end]).tolist()
    se = float(normal_se(theta, se, *ends, scale.level))
    exact = float(scale.exact_score(theta))
    cuts = np.array(definition.cut_thetas)
    probabilities: dict[str, float] = {}
    level = None
    if len(cuts):
        with np.errstate(divide="ignore", invalid="ignore"):
            below = ndtr((cuts - theta) / se) if se > 0 else (cuts > theta).astype(float)
        probabilities = dict(zip(labels, np.diff([0.0, *below, 1.0]).tolist(), strict=True))
        # A cut of 0.1 + 0.2 is 0.3, as the reported scores are.
        starts = np.round([cut.from_score for cut in definition.cuts], scale.decimals)
        level = labels[int(np.searchsorted(starts, reported, side="right"))]
    return ScaledScore(
        score=reported,
        lower=lower,
        upper=upper,
        level=level,
        probability=None if level is None else probabilities[level],
        probabilities=probabilities,
        is_clipped=not scale.lowest - scale.step / 2 <= exact < scale.highest + scale.step / 2,
    )


def normal_se(theta: Any, se: Any, lower: Any, upper: Any, level: float) -> FloatArray:
    """Standard errors; where they are infinite, those that put ``theta +- z se`` at a finite end.

    Intervals whose ``lower`` or ``upper`` end is infinite are open.
    """
    reach = np.fmin(np.subtract(theta, lower), np.subtract(upper, theta))
    return np.where(np.isinf(se), reach / ndtri(0.5 + level / 2), se)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one person.

    Attributes:
        theta: final estimate of ability from all scored answers.
        se: its standard error; infinite for an estimate at a theta bound.
        n_items: number of scored answers.
        scaled: the reported score.
        topics: the score, the points and the possible points of each topic; empty where the test
            does not show topics.
    """

    theta: float
    se: float
    n_items: int
    scaled: ScaledScore
    topics: Mapping[str, Mapping[str, Any]]

    def shown(self, definition: TestDefinition) -> dict[str, Any]:
        """What the test taker may see, by ``score.show``: nothing else is in it.

        Args:
            definition: the test.
        """
        show, out = definition.score.show, dict[str, Any]()
        if "score" in show:
            out["score"] = self.scaled.score
        if "interval" in show:
            out |= {"lower": self.scaled.lower, "upper": self.scaled.upper}
            out["interval_level"] = definition.score.level
        if "level" in show:
            out["level"] = self.scaled.level
        if "topics" in show:
            out["topics"] = {
                topic: {name: entry[name] for name in ("score", "lower", "upper", "n_items")}
                for topic, entry in self.topics.items()
            }
        return out

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON document, for administrators; NaN and infinity are null."""
        return {name: json_value(value) for name, value in vars(self).items()}


def categories_as_responses(bank: ItemBank, values: np.ndarray) -> Responses:
    """Categories from 0 (-1: no answer), subjects x items of the bank, as `Responses`."""
    n = bank.model.n_categories
    first = bank.first_code  # code of the lowest category
    ids = np.array([f"s{i + 1}" for i in range(len(values))], dtype=object)
    items = np.asarray(bank.item_ids, dtype=object)
    return Responses(
        values=values.astype(np.int8),
        subject_ids=ids,
        item_ids=items,
        n_categories=n,
        codes=tuple(range(first, first + n)),
        subjects=pd.DataFrame(index=pd.Index(ids, dtype=object, name="subject")),
        items=pd.DataFrame(index=pd.Index(items, dtype=object, name="item")),
    )


def result_of(
    definition: TestDefinition, bank: ItemBank, answers: Mapping[str, int | None]
) -> Result:
    """The final result from all scored answers of a person.

    The ability is estimated by `irtcat.score` with the method of the definition and the bank's
    population as the prior, from the answers of adaptive and fixed sections together. The score of
    a topic is estimated from the answers to its items alone, with the same prior; with few items
    its interval is wide.

    Args:
        definition: the test.
        bank: its bank.
        answers: category of the answer by the id of the item, None for no answer; only items that
            are scored (no pretest items). Where a section says that items without an answer are
            wrong, they have category 0 here.

    Returns:
        The result.

    Raises:
        InputError: for an item that is not in the bank, or a category that it does not have.

    Example:
        >>> from irtcat.service.definition import Adaptive
        >>> bank = ItemBank.from_parameters(a=1.0, b=[-1.0, 0.0, 1.0])
        >>> test = TestDefinition(title="A", sections=[Adaptive(config={"max_items": 3})])
        >>> result = result_of(test, bank, {"i1": 1, "i2": 1, "i3": None})
        >>> result.n_items, result.scaled.score
        (2, 0.58)
    """
    sizes = item_categories(bank.model)
    values = np.full((1, bank.n_items), -1)
    for item, at in zip(answers, bank.positions(list(answers)), strict=True):
        category = answers[item]
        if category is not None:
            check_count(f"answers[{item}]", category, 0, int(sizes[at]) - 1)
            values[0, at] = category
    estimate = _estimate(definition, bank, values)
    topics: dict[str, dict[str, Any]] = {}
    if "topics" in definition.score.show:
        labels = bank.items[definition.score.topics].astype(str).to_numpy()
        answered = values[0] >= 0
        for topic in sorted(set(labels[answered])):
            of_topic = answered & (labels == topic)
            own = scaled(definition, *_estimate(definition, bank, np.where(of_topic, values, -1)))
            topics[topic] = {
                "score": own.score,
                "lower": own.lower,
                "upper": own.upper,
                "n_items": int(of_topic.sum()),
                "points": int(values[0, of_topic].sum()),
                "possible": int((sizes[of_topic] - 1).sum()),
            }
    return Result(
        theta=estimate[0],
        se=estimate[1],
        n_items=int((values >= 0).sum()),
        scaled=scaled(definition, *estimate),
        topics=topics,
    )


def _estimate(
    definition: TestDefinition, bank: ItemBank, values: np.ndarray
) -> tuple[float, float, tuple[float, float]]:
    """Ability, its standard error and interval."""
    responses = categories_as_responses(bank, values)
    ability = score(bank, responses, definition.score.method, level=definition.score.level)
    ends = float(ability.lower[0]), float(ability.upper[0])
    return float(ability.theta[0]), float(ability.se[0]), ends

"""Several judgements of one answer as one response: their mean, or the majority of votes."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat.responses._table import BASE_ITEM
from irtcat.responses.responses import Responses

DECISIONS = ("mean", "majority")
"""What several judgements of one answer are combined to."""

REPEATS = ("answers", "judgements")
"""What trials of one judgement are: other answers of the model, or the same answer judged again."""

TIES = (0.0, 0.5, 1.0)


def combine_judges(
    responses: Any,
    judge: str = "judge",
    *,
    decision: str = "mean",
    repeats: str = "answers",
    ties: float = 0.5,
) -> Responses:
    """Combine the judgements of each answer to one response.

    The items are then those of the benchmark, ``base_item``, and the trials are the model's
    answers. That other judges might have decided otherwise is not in the result:
    `irtcat.diagnose.judges` estimates what it adds to scores.

    Args:
        responses: responses with the judge as a facet, such as of ``Responses.from_long(table,
            facets="judge")``. Answers may have different numbers of judges.
        judge: name of the facet.
        decision: "mean", of all judgements, or "majority", of judgements that are right or wrong.
        repeats: what trials of one judgement are: "answers" (trial t of all judges is of the same
            answer), or "judgements" (the same answer judged again, each of them one more vote).
        ties: the response where as many votes are for as against it: 0, 0.5 or 1.

    Returns:
        Responses without the facet; combinations of the item with other facets stay items.

    Raises:
        InputError: for responses without this facet, or votes that are not right or wrong.

    Example:
        >>> rows = [("m", "q", "j1", 1), ("m", "q", "j2", 1), ("m", "q", "j3", 0)]
        >>> table = pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])
        >>> judged = Responses.from_long(table, facets="judge")
        >>> combine_judges(judged).to_numpy().round(2).tolist()
        [[0.67]]
        >>> combine_judges(judged, decision="majority").to_numpy().tolist()
        [[1.0]]
    """
    if not isinstance(responses, Responses):
        raise argument_error("responses", "Responses with facets", type(responses).__name__)
    check_choice("decision", decision, DECISIONS)
    check_choice("repeats", repeats, REPEATS)
    if ties not in TIES:
        raise argument_error("ties", "0, 0.5 or 1", ties)
    if BASE_ITEM not in responses.items or judge not in responses.items:
        raise no_facet(responses, judge)
    others = [name for name in responses.items.columns if name not in (BASE_ITEM, judge)]
    by_item = responses.items.groupby(BASE_ITEM, sort=False)
    varying = [name for name in others if by_item[name].nunique(dropna=False).max() > 1]
    return _combined(responses, [BASE_ITEM, *varying], judge, decision, repeats, float(ties))


def mean_over_facets(responses: Responses) -> Responses:
    """The mean of each item over all its facets, trial by trial."""
    return _combined(responses, [BASE_ITEM], None, "mean", "answers", 0.5)


def no_facet(responses: Responses, judge: str) -> Exception:
    """The error for responses that do not have the judge as a facet."""
    advice = f'Read them with Responses.from_long(table, facets="{judge}").'
    known = ", ".join(map(str, responses.items.columns)) or "no columns of the items"
    return argument_error("responses", f"judgements with the facet {judge}", known, advice)


def scores_by_trial(responses: Responses) -> np.ndarray:
    """Scores from 0 to 1, subjects x items x trials; counted trials are one, their share."""
    if responses.trial_values is not None:
        return responses.trial_values.astype(float)
    return responses.to_numpy()[:, :, None] / responses.highest


def _combined(
    responses: Responses,
    names: list[str],
    judge: str | None,
    decision: str,
    repeats: str,
    ties: float,
) -> Responses:
    """One item for each combination of the named columns of the items."""
    ids = responses.items[names].astype(str).agg(" / ".join, axis=1)
    codes, items = pd.factorize(ids.to_numpy(dtype=object))
    scores = scores_by_trial(responses)
    if decision == "majority":
        counted = responses.trial_values is None and responses.trials is not None
        if counted or not np.isin(scores[~np.isnan(scores)], (0, 1)).all():
            got = "counted trials" if counted else "other scores"
            advice = 'Take decision="mean" for scores.'
            raise argument_error("responses", "right or wrong judgements", got, advice)
    known = ~np.isnan(scores)
    total, n = (
        _sums_by_item(values, codes, len(items)) for values in (np.where(known, scores, 0.0), known)
    )
    if repeats == "judgements":
        total, n = total.sum(axis=2, keepdims=True), n.sum(axis=2, keepdims=True)
    mean = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)
    if decision == "majority":
        mean = np.select([np.isnan(mean), 2 * total > n, 2 * total < n], [np.nan, 1.0, 0.0], ties)
    first = np.unique(codes, return_index=True)[1]
    about = responses.items.iloc[first].set_axis(pd.Index(items, dtype=object), axis=0)
    dropped = [judge] if judge is not None else []
    dropped += [BASE_ITEM] if names == [BASE_ITEM] else []
    options: dict[str, Any] = {"subjects": responses.subjects, "items": about.drop(columns=dropped)}
    return Responses.from_trials(mean, responses.subject_ids, items, **options)


def _sums_by_item(values: np.ndarray, codes: np.ndarray, n_items: int) -> np.ndarray:
    """Sums over the columns of each item, subjects x items x trials."""
    sums = np.zeros((len(values), n_items, values.shape[2]))
    for column, code in enumerate(codes):
        sums[:, code] += values[:, column]
    return sums

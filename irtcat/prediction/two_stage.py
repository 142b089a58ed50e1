"""The two-stage form: a small probability sample first, the rest once it is known what it shows."""

from typing import Any

import numpy as np

from irtcat._checks import argument_error, check_count
from irtcat.bank import ItemBank
from irtcat.prediction import predict
from irtcat.responses import Responses
from irtcat.selection import Subset, extended

__all__ = ["select_next"]


def select_next(
    bank: ItemBank | None,
    subset: Subset,
    responses: Responses,
    n_items: int,
    *,
    calibration: Responses,
    seed: int = 0,
    allowed: Any = None,
) -> Subset:
    """Choose further items for a new subject, by its answers to the first ones.

    Where "auto" (see `irtcat.predict`) takes the subject to resemble the calibrated ones, the
    further items are those that most reduce the variance of the full score given the first;
    where it does not, they are a further sample stratified by difficulty, which is fair to anybody.
    The weights restore the share of every stratum of difficulty.

    Args:
        bank: calibrated items, or None; only their order is used.
        subset: the items that were run, best a small probability sample ("stratified").
        responses: the answers to them. Several subjects get the same further items: call it
            for each where they differ in kind.
        n_items: how many items more.
        calibration: calibration responses.
        seed: seed of the sample.
        allowed: ids, or a mask, of the items that may be chosen; all by default.

    Returns:
        All items, those of ``subset`` first: ``item_ids[len(subset):]`` are to be run next. Its
        strategy says what was done ("two-stage: score-optimal" or "two-stage: stratified").

    Raises:
        InputError: as `irtcat.select` and `irtcat.predict` do; or too few items left.

    Example:
        >>> from irtcat.selection import select
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 80))
        >>> calibration = bank.simulate(np.linspace(-1, 1, 60), seed=1)
        >>> first = select(bank, 20, strategy="stratified", calibration=calibration)
        >>> new = bank.simulate([0.2], seed=2).subset(items=first.item_ids)
        >>> both = select_next(bank, first, new, 20, calibration=calibration)
        >>> both.strategy, len(both)
        ('two-stage: score-optimal', 40)
    """
    if not isinstance(subset, Subset):
        raise argument_error("subset", "a Subset, as irtcat.select gives", type(subset).__name__)
    check_count("n_items", n_items)
    if bank is not None:
        calibration = calibration.subset(items=bank.item_ids)
    told = predict(calibration, subset, responses, estimator="auto")
    assert told.how is not None
    known = ~np.isnan(told.score)
    if not known.any():
        advice = "Run the subset's items first."
        raise argument_error("responses", "answers to the subset", "none", advice)
    alike = np.mean(told.how[known] == "regression") > 0.5
    strategy = "score-optimal" if alike else "stratified"
    return extended(subset, calibration, n_items, strategy=strategy, seed=seed, allowed=allowed)

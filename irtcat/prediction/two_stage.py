"""Two-stage selection: first a small probability sample, then items that depend on its answers."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_count
from irtcat.bank import BankLike, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction import predict
from irtcat.selection import Subset, extended


def select_next(
    bank: BankLike | None,
    subset: Subset,
    responses: ResponsesLike,
    n_items: int,
    *,
    calibration: ResponsesLike,
    seed: int = 0,
    allowed: Any = None,
    mismatch: str = "refuse",
) -> Subset:
    """Choose further items for a new subject from its answers to the first ones.

    If "auto" (see `irtcat.predict`) classifies the subject as similar to the calibrated ones, the
    new items are those that most reduce the variance of the full score given the first; otherwise
    they are another sample stratified by difficulty, which suits any subject. The weights restore
    the share of every stratum of difficulty.

    Args:
        bank: calibrated items, or None; only their order is used.
        subset: the items that were run, preferably a small probability sample ("stratified").
        responses: the answers to them. Several subjects get the same new items; for subjects of
            different kinds, call it for each.
        n_items: number of new items.
        calibration: calibration responses.
        seed: seed of the sample.
        allowed: ids, or a mask, of the items that may be chosen; all by default.
        mismatch: as for `irtcat.predict`.

    Returns:
        All items, with those of ``subset`` first: ``item_ids[len(subset):]`` are to be run next.
        The strategy is "two-stage: score-optimal" or "two-stage: stratified".

    Raises:
        InputError: as `irtcat.select` and `irtcat.predict` do, or if too few items are left.

    Example:
        >>> from irtcat import ItemBank
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
        raise argument_error(
            "subset", "a Subset, as returned by irtcat.select", type(subset).__name__
        )
    check_count("n_items", n_items)
    calibration = as_responses_like(calibration, "calibration")
    if bank is not None:
        calibration = calibration.subset(items=as_bank(bank).item_ids)
    prediction = predict(
        calibration, subset, responses, pooled=False, estimand="run", mismatch=mismatch
    )
    assert prediction.how is not None
    has_score = ~np.isnan(prediction.score)
    if not has_score.any():
        advice = "Run the subset's items first."
        raise argument_error("responses", "answers to the subset", "none", advice)
    similar = np.mean(prediction.how[has_score] == "regression") > 0.5
    strategy = "score-optimal" if similar else "stratified"
    return extended(subset, calibration, n_items, strategy=strategy, seed=seed, allowed=allowed)

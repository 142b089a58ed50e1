"""`short_form`: what the estimator "auto" learns from a calibration, as a form to pass on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_interval
from irtcat._common.dates import as_date, today
from irtcat._common.progress import ProgressOption, part_of, with_progress
from irtcat.io.convert import as_responses_like
from irtcat.prediction.auto import learn_rule
from irtcat.prediction.form import ShortForm
from irtcat.prediction.form_document import Norms
from irtcat.prediction.regression import LEAST_SUBJECTS
from irtcat.prediction.subjects import response_hashes
from irtcat.prediction.task import Task, item_weights
from irtcat.responses import Responses
from irtcat.responses._conditions import CONDITION_COLUMNS, HARNESS_COLUMNS
from irtcat.selection import Subset, select

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Probabilities of the intervals of a form."""


@with_progress("Making a short form")
def short_form(
    calibration: Any,
    n_items: int = 60,
    *,
    subset: Subset | None = None,
    strategy: str | None = None,
    expect: str | None = None,
    seed: int = 0,
    weights: Any = None,
    levels: Sequence[float] = LEVELS,
    name: str = "",
    renew: str = "",
    about: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
) -> ShortForm:
    """Make a short form: the items to run, and all that predicts full scores from the answers.

    It predicts as `irtcat.predict` does with the estimator "auto", the calibration and the subset,
    but needs neither the calibration nor JAX.

    Args:
        calibration: responses of the calibrated subjects to all items, of any kind that
            `irtcat.as_responses` takes; or the fit of them. At least 8 subjects.
        n_items: number of items; not used with ``subset``.
        subset: the items, chosen with this calibration; by default `irtcat.select` chooses them.
        strategy: of `irtcat.select`; not with ``subset``.
        expect: what is known of the new subjects: "similar", "stronger" or "weaker" (see
            `irtcat.select`); by default that of ``subset``, if any.
        seed: seed of the choice.
        weights: weight of each item in the full score (see `irtcat.predict`).
        levels: probabilities of the intervals that the form can state.
        name: its name, such as quiz-30.
        renew: date after which it should be made again, such as 2027-06-30.
        about: what else readers should know: source, licence, measured errors, ....
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)``.

    Returns:
        The form. It does not depend on the ids of the calibrated subjects nor on their order.

    Raises:
        InputError: for fewer than 8 calibrated subjects, or as `irtcat.select` and `irtcat.predict`
            do.

    Example:
        >>> from irtcat import ItemBank, predict, select
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
        >>> calibration = bank.simulate(np.linspace(-2, 2, 80), seed=1)
        >>> subset = select(None, 20, calibration=calibration)
        >>> form = short_form(calibration, subset=subset)
        >>> new = bank.simulate([-1.0, 1.0], seed=2).subset(items=form.item_ids)
        >>> bool(np.allclose(form.predict(new).score, predict(calibration, subset, new).score))
        True
    """
    if isinstance(getattr(calibration, "responses", None), Responses):  # a fit
        calibration = calibration.responses
    calibration = as_responses_like(calibration, "calibration")
    if renew and as_date(renew) is None:
        raise argument_error("renew", "a date such as 2027-06-30", renew)
    levels = np.atleast_1d(np.asarray(levels, object)).tolist()
    if not levels:
        raise argument_error("levels", "at least one probability", levels)
    for level in levels:
        check_interval("levels", level)
    # Sorted by responses, so that the choice of items depends neither on rows nor on ids.
    order = np.argsort(response_hashes(calibration), kind="stable")
    calibration = calibration.subset(subjects=order)
    if subset is None:
        subset = select(
            None,
            n_items,
            strategy=strategy,
            calibration=calibration,
            expect=expect,
            seed=seed,
            progress=part_of(progress, 0, 2),
        )
    elif not isinstance(subset, Subset):
        raise argument_error("subset", "a Subset, as returned by irtcat.select", subset)
    elif strategy is not None:
        raise argument_error("strategy", "None with a subset", strategy)
    task = Task(
        calibration=calibration,
        answers=calibration.subset(items=subset.item_ids),
        weights=subset.weights / subset.weights.sum(),
        sampled=None,
        level=levels[0],
        calibrated_bank=None,
        probabilities=subset.probabilities,
        item_weights=item_weights(calibration.item_ids, weights, None),
        request=subset.request,
        progress=part_of(progress, 1, 2),
    )
    if len(task.usable) < LEAST_SUBJECTS:
        must = f"responses of at least {LEAST_SUBJECTS} subjects"
        raise argument_error("calibration", must, len(task.usable))
    return ShortForm(
        name=name,
        item_ids=np.asarray(subset.item_ids, dtype=str),
        items=_harness_columns(calibration.items, subset.item_ids),
        rule=learn_rule(task, [float(level) for level in levels]),
        norms=Norms.of(task.targets),
        n_items=calibration.n_items,
        codes=tuple(int(code) for code in calibration.codes),
        strategy=subset.strategy,
        seed=subset.seed,
        expect=subset.expect if expect is None else expect,
        made=today(),
        renew=renew,
        about=dict(about or {}),
    )


def _harness_columns(items: pd.DataFrame, ids: np.ndarray) -> pd.DataFrame:
    """What harnesses need to find the items, and the conditions of their answers.

    Other columns, such as texts, may not be passed on.
    """
    names = [*(name for names in HARNESS_COLUMNS.values() for name in names), *CONDITION_COLUMNS]
    known = [name for name in names if name in items]
    index = pd.Index(ids, dtype=object, name="item")
    table = items.set_axis(items.index.astype(str), axis=0)
    return table.reindex(index.astype(str))[known].set_axis(index, axis=0)

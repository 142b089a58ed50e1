"""The table of estimators of full scores, and which of them take priors and draws."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, float_array
from irtcat._common.positions import places_of
from irtcat._common.registry import Registry
from irtcat.bank import ItemBank
from irtcat.prediction.auto import predict_auto
from irtcat.prediction.betting import Draw
from irtcat.prediction.curves import predict_curves
from irtcat.prediction.guaranteed import predict_design_based, predict_guaranteed
from irtcat.prediction.model import predict_gpirt, predict_irt, predict_pirt
from irtcat.prediction.regression import (
    predict_aipw,
    predict_gp,
    predict_mean,
    predict_ridge,
    predict_weighted,
)
from irtcat.prediction.task import Estimator
from irtcat.responses import Responses
from irtcat.selection import expectation_of

ESTIMATORS: Registry[Estimator] = Registry(
    "irtcat.estimators",
    Estimator,
    ("estimator", "score", "interval"),
    [
        Estimator(
            "auto",
            predict_auto,
            "regression for subjects like the calibrated ones, else equating",
            "mixture of both",
            takes_expect=True,
            takes_prior=True,
        ),
        Estimator(
            "curves",
            predict_curves,
            "item curves minus their known errors; items may differ by subject",
            "mixture of both",
        ),
        Estimator(
            "mean",
            predict_mean,
            "mean of the m answers",
            "Wilson's, as if the m of N items were drawn at random",
        ),
        Estimator(
            "weighted",
            predict_weighted,
            "the same with the subset's weights",
            "the same for the effective number of items",
        ),
        Estimator(
            "irt",
            predict_irt,
            "answers, and the model's expectation for all other items",
            "posterior predictive",
            needs_bank=True,
            takes_prior=True,
        ),
        Estimator(
            "pirt",
            predict_pirt,
            "the same with the ability plugged in (tinyBenchmarks)",
            "the unseen answers' variance",
            needs_bank=True,
            takes_prior=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "gpirt",
            predict_gpirt,
            "mixture of weighted and pirt by their errors (tinyBenchmarks)",
            "of both",
            needs_bank=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "ridge",
            predict_ridge,
            "ridge regression on the answers",
            "leave-one-out errors of calibrated subjects",
        ),
        Estimator(
            "gp", predict_gp, "Gaussian-process regression on the answers", "posterior predictive"
        ),
        Estimator(
            "aipw",
            predict_aipw,
            "ridge, corrected by its errors on the sampled items",
            "of the corrections",
        ),
        Estimator(
            "guaranteed",
            predict_guaranteed,
            "item curves, corrected by their errors on the items drawn; unbiased for any curves",
            "betting (finite-sample) for items drawn in turn, else as design-based",
            needs_draws=True,
            source="Waudby-Smith & Ramdas (2023)",
        ),
        Estimator(
            "design-based",
            predict_design_based,
            "the same",
            "Normal (asymptotic), by the variance of the corrections",
            needs_draws=True,
            source="Zrnic & Candes (2024)",
        ),
    ],
)
"""Score estimators by name; to add one, write a function of a `Task` and add a row."""


def check_prior(estimator: str, bank: ItemBank | None, expect: Any) -> None:
    """Reject a prior that the estimator does not take, or that an expectation contradicts."""
    row = ESTIMATORS[estimator]
    if bank is None or not row.takes_prior:
        able = ", ".join(name for name, other in ESTIMATORS.items() if other.takes_prior)
        must = f"left out but for {able} with a bank or fit"
        got = f"one for {estimator} {'without a bank' if bank is None else 'with a bank'}"
        raise argument_error("prior", must, got)
    expectation = expectation_of(expect)
    if expectation is not None and expectation.direction and row.takes_expect:
        raise argument_error("expect", "None or similar with a prior", expect)


def read_drawn(
    drawn: Any, estimator: str, new: Responses, item_ids: np.ndarray, unequal: dict[str, Any]
) -> dict[str, Any]:
    """What is known of the draws of items, as fields of a `Task`.

    Args:
        drawn: as for `irtcat.predict`, not None.
        estimator: name of the estimator.
        new: responses of the new subjects.
        item_ids: ids of the subset's items.
        unequal: arguments that draws of sessions exclude, by name.
    """
    if not isinstance(drawn, Draw):
        must = f"probabilities above 0, at most 1, or NaN, {new.shape[0]} x {new.shape[1]}"
        chances = float_array("drawn", must, drawn)
        is_valid = ((chances > 0) & (chances <= 1)) | np.isnan(chances)
        if chances.shape != new.shape or not is_valid.all():
            raise argument_error("drawn", must, drawn)
        positions = places_of(item_ids, new.item_ids)
        return {"drawn": np.where(positions >= 0, chances[:, positions], np.nan)}
    if not ESTIMATORS[estimator].needs_draws:
        able = ", ".join(name for name, row in ESTIMATORS.items() if row.needs_draws)
        raise argument_error("drawn", f"probabilities but for {able}", "draws of sessions")
    if drawn.value.shape[:1] != new.shape[:1]:
        must = f"draws of {new.n_subjects} sessions, one for each subject"
        raise argument_error("drawn", must, f"draws of {len(drawn.value)}")
    for name, value in unequal.items():
        if value is not None:
            raise argument_error(name, "None with the draws of sessions", value)
    return {"draws": drawn}

"""The check of orders by wrong labels that are planted in the data."""

import pandas as pd

from irtcat._common.progress import Progress
from irtcat.bank import ItemBank
from irtcat.diagnose.labels.answers import answer_evidence, kind_shares
from irtcat.diagnose.labels.inputs import LabelData, counts_of
from irtcat.diagnose.labels.orders import ORDERS, is_of_learners, order_keys
from irtcat.diagnose.labels.plants import Check, check_by_planting
from irtcat.fitting.em.priors import FEW_RESPONSES
from irtcat.responses import Responses


def check_after_planting(
    data: LabelData,
    table: pd.DataFrame,
    alternatives: int | None,
    seed: int,
    progress: Progress | None,
) -> Check:
    """The check by labels that are planted in the data.

    By default the labels of a crowd's items are the answers to choose from.
    """
    responses = data.answers()
    if alternatives is None and is_of_learners(responses.subjects) and "label" in responses.items:
        alternatives = int(responses.items["label"].nunique())
    suspicion = table["p_other_class" if data.model is not None else "suspicion"]
    # What was calibrated on other answers, or observed in training, does not follow the plants.
    fixed = {name for name, order in ORDERS.items() if order.of_bank and data.bank is not None}
    if isinstance(data.feasibility, ItemBank):
        fixed.add("feasibility")
    if data.dynamics is not None or data.predictions is None or data.predictions.spread is None:
        fixed.add("confidence")

    def evidence(responses: Responses) -> pd.DataFrame:
        if not data.uses_answers:
            return pd.DataFrame(counts_of(responses))
        feasibility = data.feasibility is True
        return answer_evidence(responses, data.bank, data.prior, feasibility, "none").table

    return check_by_planting(
        evidence,
        responses,
        suspicion.to_numpy(float),
        [name for name in order_keys(table, data.orders) if name not in fixed],
        predictions=data.predictions,
        model=data.model,
        prior=(1.0, 0.0) if data.of_learners() or data.model else kind_shares(table, data.prior),
        alternatives=alternatives,
        seed=seed,
        few=data.uses_answers and responses.n_subjects < FEW_RESPONSES,
        progress=progress,
    )

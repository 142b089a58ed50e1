"""The suspicion of a wrong label by its source: answers, predicted classes, or planted labels."""

import pandas as pd

from irtcat.diagnose.labels.check import Check, posterior, share_wrong
from irtcat.diagnose.labels.inputs import LabelData
from irtcat.diagnose.labels.orders import sort_key

SOURCES = {
    "answers": "Suspicion by the answers, which are taken to be independent given ability.",
    "classes": "Suspicion by the predicted classes and the estimated confusion of the classes.",
    "planted": "Suspicion by where planted wrong labels stand in this order.",
    "none": "Without probabilities of wrong labels: learners remember labels that they were "
    "trained on. To have them, plant wrong labels before training (labels.plant, planted=).",
}
"""What the suspicion is computed from."""


def share_of_wrong(data: LabelData, table: pd.DataFrame, check: Check, default: str) -> float:
    """The share of wrong labels: by the predicted classes, or by where planted ones are found."""
    if data.model is not None:
        return float(table["p_other_class"].mean())
    return float(share_wrong(check.position[default].to_numpy(), len(table)))


def with_suspicion(table: pd.DataFrame, source: str, by: str, check: Check | None) -> pd.DataFrame:
    """The table with the suspicion by its source; its two terms keep their proportion."""
    if source in ("answers", "none"):
        return table.copy()
    if source == "classes":
        suspicion = table["p_other_class"].to_numpy(float)
    else:
        assert check is not None
        key = pd.Series(sort_key(table, by)).rank(na_option="bottom")
        position = (key.to_numpy() - 0.5) / len(key)
        suspicion = posterior(check.position[by].to_numpy(), len(table), position)
    if "p_wrong_key" not in table:  # the answers did not count
        table = table.copy()
        table.insert(0, "suspicion", suspicion)
        return table
    scale = suspicion / (table["p_wrong_key"] + table["p_unrelated"])
    terms = {name: table[name] * scale for name in ("p_wrong_key", "p_unrelated")}
    return table.assign(suspicion=suspicion, **terms)

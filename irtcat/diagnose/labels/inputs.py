"""What `rank` is passed, read and checked."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import IntArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.diagnose.labels.orders import ORDERS, is_dynamics, is_of_learners, read_dynamics
from irtcat.diagnose.labels.plants import MIN_ITEMS, Check, Planted
from irtcat.diagnose.labels.predictions import (
    ClassModel,
    Predictions,
    fit_classes,
    is_crowd,
    read_crowd,
)
from irtcat.io.convert import as_responses_like
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

MIN_MEMBERS = 10
"""Of a crowd with fewer members only the predicted classes count, unless another order is asked
for: the check was misled by the orders of right and wrong answers. On digits the chosen order found
70, 83 and 88 % of the flipped labels with 2, 5 and 9 members, and without them 86, 92 and 94 %
(experiments/label_detectors/few_members.py)."""

OF_PREDICTIONS = ("classes", "margin", "aum", "confidence")
"""Orders by predicted classes, which need no model of the answers."""

OF_DYNAMICS = ("confidence", "aum")
"""Orders by training dynamics alone."""


class LabelData(NamedTuple):
    """What `rank` is passed, checked; ``model`` is fitted to the predictions.

    ``responses`` is None for training dynamics alone. ``uses_answers`` says whether the right and
    wrong answers count, and ``orders`` which orders the check compares.
    """

    item_ids: np.ndarray
    responses: Responses | None
    bank: ItemBank | None
    predictions: Predictions | None
    model: ClassModel | None
    dynamics: pd.DataFrame | None
    prior: tuple[float, float]
    feasibility: ItemBank | bool
    planted: IntArray | None
    uses_answers: bool
    orders: tuple[str, ...]

    def answers(self) -> Responses:
        """The responses, where there are some."""
        assert self.responses is not None
        return self.responses

    def check_conditions(self, mismatch: str) -> None:
        """Check that the items of the banks were answered under the same conditions."""
        for name, known in (("bank", self.bank), ("feasibility model", self.feasibility)):
            if isinstance(known, ItemBank) and self.responses is not None:
                check_conditions(known.items, self.responses.items, mismatch, source=name)

    def has(self, by: str) -> bool:
        """Whether the evidence of an order is passed."""
        predictions = self.predictions
        if self.responses is None:
            return by in OF_DYNAMICS and self.dynamics is not None and by in self.dynamics
        present = {
            "confidence": self.dynamics is not None
            or (predictions is not None and predictions.confidence is not None),
            "feasibility": self.feasibility is not False or self.bank is not None,
            "classes": predictions is not None,
            "margin": predictions is not None,
            "aum": predictions is not None and predictions.aum is not None,
        }
        return present.get(by, True)

    def can_plant(self) -> bool:
        """Whether wrong labels can be planted afterwards.

        Learners' probabilities of labels that they were trained on do not say what they would have
        been for other labels.
        """
        afterwards = self.dynamics is None or self.predictions is not None
        return self.planted is None and afterwards and len(self.item_ids) >= MIN_ITEMS

    def subjects(self) -> pd.DataFrame:
        """Metadata of the subjects; none for training dynamics."""
        return pd.DataFrame() if self.responses is None else self.responses.subjects

    def of_learners(self) -> bool:
        """Whether the answers are those of learners that were trained on the labels."""
        return is_of_learners(self.subjects()) or self.dynamics is not None

    def source(self, check: Check | None) -> str:
        """What the suspicion is computed from: a key of `SOURCES`."""
        if self.model is not None:
            return "classes"
        if check is not None and self.of_learners():
            return "planted"
        return "none" if self.responses is None else "answers"

    def counts(self) -> dict[str, Any]:
        """Columns of a table to which the answers are not fitted."""
        return {} if self.responses is None else counts_of(self.responses)

    def columns(self) -> dict[str, Any]:
        """Columns of the predictions and of the dynamics."""
        columns: dict[str, Any] = {}
        if self.predictions is not None and self.model is not None:
            best = self.model.best_class(self.predictions.mean, self.predictions.labels)
            columns["label"] = self.predictions.classes[self.predictions.labels]
            columns["suggested"] = self.predictions.classes[best]
            columns |= self.predictions.columns(self.model)
        if self.dynamics is not None:
            columns |= {str(name): self.dynamics[name] for name in self.dynamics}
        return columns

    def confusions(self) -> pd.DataFrame | None:
        """Probability of each label by right class."""
        if self.predictions is None or self.model is None:
            return None
        classes = self.predictions.classes
        index = pd.Index(classes, name="right class")
        return pd.DataFrame(self.model.confusion, index, pd.Index(classes, name="label"))


def counts_of(responses: Responses) -> dict[str, Any]:
    """Share right and number of answers of each item."""
    X = responses.to_numpy()
    n = (~np.isnan(X)).sum(axis=0)
    return {"share": np.nansum(X, axis=0) / np.where(n > 0, n, np.nan), "n": n}


def read_data(
    source: Any,
    bank: BankLike | None,
    prior: Any,
    dynamics: Any,
    feasibility: ItemBank | bool,
    by: str,
    planted: Planted | None,
) -> LabelData:
    """Read and check what `rank` is passed."""
    responses, predictions = None, None
    bank = None if bank is None else as_bank(bank)
    if is_dynamics(source):
        if bank is not None or dynamics is not None or feasibility is not False:
            raise argument_error("responses", "answers, to pass more than dynamics", "dynamics")
        dynamics, ids = source, source.table.index.to_numpy()
    else:
        if is_crowd(source):
            predictions, source = read_crowd(source), source.responses()
        responses = as_responses_like(source, "responses", bank)
        _check_answers(responses)
        ids = responses.item_ids
    _check_prior(prior)
    if not isinstance(feasibility, (bool, ItemBank)):
        must = "True, False or a bank of the feasibility model"
        raise argument_error("feasibility", must, type(feasibility).__name__)
    few = predictions is not None and len(predictions.votes) < MIN_MEMBERS
    asked = bank is not None or feasibility is not False
    asked = asked or by not in ("auto", "share", *OF_PREDICTIONS)
    return LabelData(
        item_ids=ids,
        responses=responses,
        bank=bank,
        predictions=predictions,
        model=None if predictions is None else fit_classes(predictions.mean, predictions.labels),
        dynamics=None if dynamics is None else read_dynamics(dynamics, ids, responses is None),
        prior=(float(prior[0]), float(prior[1])),
        feasibility=feasibility,
        planted=_planted_items(planted, len(ids)),
        uses_answers=responses is not None and (asked or not few),
        orders=OF_PREDICTIONS if few and not asked else tuple(ORDERS),
    )


def _planted_items(planted: Planted | None, n_items: int) -> IntArray | None:
    """Positions of the items whose labels were planted before training."""
    if planted is None:
        return None
    if not isinstance(planted, Planted):
        raise argument_error("planted", "the result of labels.plant", type(planted).__name__)
    if len(planted.labels) != n_items:
        got = f"{len(planted.labels)}"
        raise argument_error("planted", f"of {n_items} items, as the responses", got)
    return planted.items


def _check_answers(responses: Responses) -> None:
    if not responses.is_binary or responses.trials is not None:
        raise argument_error("responses", "right/wrong", responses.kind)
    if responses.n_items < 3:
        raise argument_error("responses", "of at least 3 items", f"{responses.n_items}")


def _check_prior(prior: Any) -> None:
    real = np.ndim(prior) == 1 and np.asarray(prior).dtype.kind in "iuf"
    numbers = np.asarray(prior, float) if real else np.zeros(0)
    if numbers.shape != (2,) or not (numbers > 0).all() or not numbers.sum() < 1:
        raise argument_error("prior", "two numbers above 0 with a sum below 1", prior)

"""Evidence on items from right and wrong answers: hypotheses, discrimination, feasibility."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp

from irtcat._checks import InputError, argument_error, brief
from irtcat._progress import FitProgress, Progress, part_of
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.diagnose._label_evidence import LONG, Evidence, item_evidence
from irtcat.diagnose._label_few import few_evidence
from irtcat.fitting import fit
from irtcat.fitting._priors import FEW_RESPONSES
from irtcat.responses import Responses
from irtcat.scoring import Ability, score

__all__ = ["AnswerEvidence", "answer_evidence", "hypotheses"]


class AnswerEvidence(NamedTuple):
    """Evidence of the answers.

    Attributes:
        table: by item, suspicion, p_wrong_key, p_unrelated, log_odds, log_odds_wrong_key, a, se_a,
            n, share, feasibility; see `irtcat.diagnose.labels.rank`.
        bank: the calibrated items.
        ability: posteriors of the subjects.
    """

    table: pd.DataFrame
    bank: ItemBank
    ability: Ability


def answer_evidence(
    responses: Responses,
    bank: ItemBank | None,
    prior: tuple[float, float],
    feasibility: ItemBank | bool,
    standard_errors: str = "auto",
    progress: Progress | None = None,
) -> AnswerEvidence:
    """Calibrate the items unless there is a bank, estimate abilities, compare the hypotheses."""
    few = bank is None and responses.n_subjects < FEW_RESPONSES and responses.n_items > LONG
    has_bank = bank is not None
    n_parts = 3 - has_bank - (feasibility is not True)
    parts = [part_of(progress, part, n_parts) for part in range(n_parts)]
    bank = _bank_of(responses, bank, standard_errors, parts[0])
    ability = score(bank, responses)
    if few:
        evidence = few_evidence(responses.to_numpy(), prior, parts[1 - has_bank])
    else:
        evidence = item_evidence(bank, responses, ability, parts[1 - has_bank])
    table = hypotheses(evidence, prior).set_axis(pd.Index(responses.item_ids, name="item"))
    frame, X = bank.to_frame(), responses.to_numpy()
    table["a"], table["se_a"] = frame["a"].to_numpy(float), frame["se_a"].to_numpy(float)
    table["n"] = (~np.isnan(X)).sum(axis=0)
    table["share"] = np.nansum(X, axis=0) / np.where(table["n"] > 0, table["n"], np.nan)
    table["feasibility"] = _feasibility(frame, responses, feasibility, parts[-1])
    return AnswerEvidence(table, bank, ability)


def _bank_of(
    responses: Responses, bank: Any, standard_errors: str, progress: Progress | None
) -> ItemBank:
    """The items of the responses, calibrated."""
    if bank is None:
        report = FitProgress.of(progress)
        return fit(responses, "2pl", standard_errors=standard_errors, progress=report).bank
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__)
    if bank.model.dims != 1 or bank.model.takes != "right/wrong":
        raise argument_error("bank", "of unidimensional right/wrong items", bank)
    missing = np.setdiff1d(responses.item_ids.astype(str), bank.item_ids)
    if len(missing):
        must = f"have all items of the responses. It has no {brief(missing[0])}"
        raise InputError(f"The `bank` argument must {must}.")
    return bank.subset(responses.item_ids.astype(str))


def _feasibility(
    frame: pd.DataFrame, responses: Responses, feasibility: Any, progress: Progress | None
) -> FloatArray:
    """Upper asymptotes of the feasibility model, if requested, or of the bank; NaN without."""
    if feasibility is True:
        feasibility = fit(responses, "feasibility", progress=FitProgress.of(progress)).bank
    if feasibility is not False:
        frame = _bank_of(responses, feasibility, "none", None).to_frame()
    d = frame["d"].to_numpy(float)
    return d if (d < 1).any() else np.full(len(d), np.nan)


def hypotheses(evidence: Evidence, prior: tuple[float, float]) -> pd.DataFrame:
    """Bayes' rule for the three hypotheses."""
    log_prior = np.log([1 - prior[0] - prior[1], *prior])
    log_joint = np.stack(evidence) + log_prior[:, None]
    p = np.exp(log_joint - logsumexp(log_joint, axis=0))
    odds = logsumexp(log_joint[1:], axis=0) - log_joint[0]
    odds_wrong_key = log_joint[1] - logsumexp(log_joint[[0, 2]], axis=0)
    columns = {"suspicion": expit(odds), "p_wrong_key": p[1], "p_unrelated": p[2]}
    return pd.DataFrame({**columns, "log_odds": odds, "log_odds_wrong_key": odds_wrong_key})

"""Evidence on items from right and wrong answers: hypotheses, discrimination, feasibility."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp

from irtcat._common.checks import InputError, brief
from irtcat._common.precision import precision
from irtcat._common.progress import FitProgress, Progress, part_of
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank, as_bank
from irtcat.diagnose.labels.evidence import LONG, Evidence, curves, few_evidence, item_evidence
from irtcat.fitting import fit
from irtcat.fitting.em.priors import FEW_RESPONSES
from irtcat.responses import Responses
from irtcat.scoring import Ability, score

MIN_PAIR = 20
"""Items that two subjects must share for their correlation to count."""
PSEUDO_ITEMS = 10.0
"""Weight of the prior in `kind_shares`, in items."""
MAX_DEPENDENCE_SUBJECTS, MAX_DEPENDENCE_ITEMS = 500, 2000
"""Larger data are thinned for the dependence of subjects, whose mean square needs no more."""


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
    ability = score(bank, responses, mismatch="accept")
    if few:
        evidence = few_evidence(responses.to_numpy(), prior, parts[1 - has_bank])
    else:
        evidence = item_evidence(bank, responses, ability, parts[1 - has_bank])
    evidence = Evidence(*(effective_share(bank, responses, ability) * part for part in evidence))
    table = hypotheses(evidence, prior).set_axis(pd.Index(responses.item_ids, name="item"))
    frame, X = bank.to_frame(), responses.to_numpy()
    table["a"], table["se_a"] = frame["a"].to_numpy(float), frame["se_a"].to_numpy(float)
    table["n"] = (~np.isnan(X)).sum(axis=0)
    table["share"] = np.nansum(X, axis=0) / np.where(table["n"] > 0, table["n"], np.nan)
    table["feasibility"] = _feasibility(frame, responses, feasibility, parts[-1])
    return AnswerEvidence(table, bank, ability)


def _bank_of(
    responses: Responses, bank: ItemBank | None, standard_errors: str, progress: Progress | None
) -> ItemBank:
    """The items of the responses, calibrated."""
    if bank is None:
        report = FitProgress.of(progress)
        return fit(responses, "2pl", standard_errors=standard_errors, progress=report).bank
    needs = ["one ability", "right/wrong"]
    bank = as_bank(bank, needs=needs, purpose="the search for wrong labels")
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


def effective_share(bank: ItemBank, responses: Responses, ability: Ability) -> float:
    """Effective number of subjects, as a share of their number, by the residual correlations.

    Subjects that err together (models of one family) count less: with the mean square r2 of the
    correlations of standardised residuals between subjects, beyond what sampling gives, n subjects
    are worth n / (1 + (n - 1) r2), the participation ratio of the correlation matrix. The evidence
    on every item is multiplied by it.
    """
    rows, items = (
        np.linspace(0, n - 1, min(n, most)).astype(int)
        for n, most in (
            (responses.n_subjects, MAX_DEPENDENCE_SUBJECTS),
            (responses.n_items, MAX_DEPENDENCE_ITEMS),
        )
    )
    if len(rows) < 3:
        return 1.0
    X = responses.to_numpy()[np.ix_(rows, items)]
    with precision("float64"):
        p = np.asarray(curves(bank.model, jnp.asarray(np.nan_to_num(ability.theta[rows]))))
    p = np.clip(p[items].T, 0.02, 0.98)
    known = ~np.isnan(X)
    z = np.where(known, (np.nan_to_num(X) - p) / np.sqrt(p * (1 - p)), 0)
    squares = z**2
    scale = np.sqrt((squares @ known.T) * (known @ squares.T))
    both = known.astype(float) @ known.T
    pairs = (both >= MIN_PAIR) & ~np.eye(len(rows), dtype=bool) & (scale > 0)
    if not pairs.any():
        return 1.0
    r = (z @ z.T)[pairs] / scale[pairs]
    excess = max(0.0, float(np.mean(r**2 - 1 / both[pairs])))
    return 1 / (1 + (responses.n_subjects - 1) * excess)


def kind_shares(table: pd.DataFrame, prior: tuple[float, float]) -> tuple[float, float]:
    """Shares of wrong keys and of items unrelated to ability, estimated from all items by EM.

    The prior counts as much as `PSEUDO_ITEMS` items.

    Args:
        table: with the probabilities p_wrong_key and p_unrelated under the prior.
        prior: of both.
    """
    start = np.array([1 - sum(prior), *prior])
    p = np.stack([1 - table["suspicion"], table["p_wrong_key"], table["p_unrelated"]])
    likelihood = p / start[:, None]
    shares = start
    for _ in range(200):
        joint = likelihood * shares[:, None]
        counts = (joint / joint.sum(axis=0)).sum(axis=1)
        shares = (counts + PSEUDO_ITEMS * start) / (p.shape[1] + PSEUDO_ITEMS)
    return float(shares[1]), float(shares[2])


def hypotheses(evidence: Evidence, prior: tuple[float, float]) -> pd.DataFrame:
    """Bayes' rule for the three hypotheses."""
    log_prior = np.log([1 - prior[0] - prior[1], *prior])
    log_joint = np.stack(evidence) + log_prior[:, None]
    p = np.exp(log_joint - logsumexp(log_joint, axis=0))
    odds = logsumexp(log_joint[1:], axis=0) - log_joint[0]
    odds_wrong_key = log_joint[1] - logsumexp(log_joint[[0, 2]], axis=0)
    columns = {"suspicion": expit(odds), "p_wrong_key": p[1], "p_unrelated": p[2]}
    return pd.DataFrame({**columns, "log_odds": odds, "log_odds_wrong_key": odds_wrong_key})

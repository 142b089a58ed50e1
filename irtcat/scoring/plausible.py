"""Plausible values: draws from the posteriors of abilities."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import check_count
from irtcat._common.precision import choose_precision
from irtcat.bank import BankLike, as_bank
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring.estimators import ScoringTask, bank_posterior
from irtcat.scoring.groups import Members, members_of_groups, refuse_versions, warn_of_mixture
from irtcat.scoring.posteriors import quantile
from irtcat.scoring.scorer import match


def plausible_values(
    bank: BankLike,
    responses: Responses,
    n: int = 5,
    seed: int = 0,
    precision: str = "auto",
    mismatch: str = "refuse",
    *,
    groups: Any = None,
) -> pd.DataFrame:
    """Draw abilities from every subject's posterior.

    Args:
        bank: the calibrated items.
        responses: the responses.
        n: number of draws per subject, at least 1.
        seed: seed of the draws.
        precision: see `score`.
        mismatch: see `score`.
        groups: the group of each subject, as for `score`; without it a bank of several populations
            warns that the prior is their mixture.

    Returns:
        One row per subject, columns pv1, pv2, ....

    Raises:
        InputError: for ``n`` below 1, or responses that share no item with the bank.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0])
        >>> r = Responses.from_array([[1, 1, 0]], item_ids=["i1", "i2", "i3"])
        >>> plausible_values(bank, r, n=3, seed=1).shape
        (1, 3)

    References:
        Mislevy (1991), Psychometrika 56, 177-196.
    """
    check_count("n", n)
    check_count("seed", seed, 0)
    bank = as_bank(bank, "bank", ["one ability"], "plausible values")
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    if groups is None:
        refuse_versions(bank, responses)
        warn_of_mixture(bank)
        parts = [Members("", np.arange(responses.n_subjects), bank, responses)]
    else:
        parts = members_of_groups(bank, responses, groups)
    key_draws = np.random.default_rng(seed).random((responses.n_subjects, n))
    draws = np.empty(key_draws.shape)
    for part in parts:
        items, matched = match(part.bank, part.responses)
        dtype = choose_precision(precision, matched.values.size)
        post = bank_posterior(ScoringTask(items, matched, 0.95, (-6.0, 6.0), dtype))
        for i in range(n):
            draws[part.rows, i] = quantile(post, key_draws[part.rows, i, None])  # of each its own
    index = pd.Index(responses.subject_ids, dtype=object, name="subject")
    return pd.DataFrame(draws, index=index, columns=[f"pv{i + 1}" for i in range(n)])

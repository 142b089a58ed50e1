"""What the answers say of items: dependence of subjects, and the kinds of bad items."""

import numpy as np
import pytest

from irtcat import ItemBank, Responses, score
from irtcat.diagnose.labels.answers import answer_evidence, effective_share, kind_shares

RNG = np.random.default_rng(0)
BANK = ItemBank.from_parameters(a=RNG.lognormal(0.2, 0.3, 300), b=RNG.normal(size=300))
THETA = RNG.normal(size=60)
PRIOR = (0.05, 0.05)


def share_of(X):
    responses = Responses.from_array(X)
    return effective_share(BANK, responses, score(BANK, responses))


def test_subjects_that_answer_alike_count_once():
    X = BANK.simulate(THETA, seed=1).to_numpy()
    assert share_of(X) > 0.95
    # Twins: the correlation is 1 with one of the others, so that n subjects are worth n / 2.
    assert share_of(np.vstack([X, X])) == pytest.approx(0.5, abs=0.03)
    X[RNG.random(X.shape) < 0.3] = np.nan
    assert share_of(X) > 0.95


@pytest.mark.slow
def test_the_share_of_wrong_keys_is_estimated():
    X = BANK.simulate(THETA, seed=2).to_numpy()
    X[:, :30] = 1 - X[:, :30]
    table = answer_evidence(Responses.from_array(X), BANK, PRIOR, False).table
    wrong_key, unrelated = kind_shares(table, PRIOR)
    assert 0.06 < wrong_key < 0.14
    assert unrelated < 0.03

"""Several abilities: the belief and the criteria against plain numpy."""

import numpy as np
import pytest

from irtcat import InputError, ItemBank, Responses, score
from irtcat.cat.multidimensional import next_multidimensional, simulate_multidimensional

RNG = np.random.default_rng(6)
SLOPES = RNG.uniform(0, 1.8, (24, 2)) * (RNG.random((24, 2)) < 0.75)
BANK = ItemBank.from_slopes(SLOPES, RNG.normal(size=24), correlations=[[1, 0.4], [0.4, 1]])


def information(theta):
    p = BANK.probability([theta])[:, 0]
    return (p * (1 - p))[:, None, None] * SLOPES[:, :, None] * SLOPES[:, None, :]


def test_belief_and_values():
    answers = {"i2": 1, "i5": 0, "i9": 1, "i20": 1}
    x = np.full((1, 24), np.nan)
    for item, answer in answers.items():
        x[0, int(item[1:]) - 1] = answer
    known = score(BANK, Responses.from_array(x, item_ids=BANK.item_ids), "map")
    at = BANK.positions(list(answers))
    for criterion in ("d-optimal", "t-optimal", "a-optimal"):
        belief, table = next_multidimensional(BANK, answers, criterion, n=20)
        assert belief.theta == pytest.approx(known.theta[0], abs=1e-6)
        every = information(belief.theta)
        precision = np.linalg.inv(BANK.correlations) + every[at].sum(axis=0)
        assert belief.precision == pytest.approx(precision)
        value = {
            "d-optimal": np.log(np.linalg.det(precision + every) / np.linalg.det(precision)),
            "t-optimal": np.trace(every, axis1=1, axis2=2),
            "a-optimal": np.trace(np.linalg.inv(precision))
            - np.trace(np.linalg.inv(precision + every), axis1=1, axis2=2),
        }[criterion]
        wanted = {str(BANK.item_ids[i]): value[i] for i in range(24) if i not in at}
        best = sorted(wanted, key=wanted.get, reverse=True)
        assert table.index.tolist() == best
        assert table["value"].to_numpy() == pytest.approx([wanted[item] for item in best])


def test_simulated():
    theta = RNG.multivariate_normal([0, 0], BANK.correlations, 300)
    chosen = simulate_multidimensional(BANK, theta, "d-optimal", n_items=8, seed=1)
    blind = simulate_multidimensional(BANK, theta, "random", n_items=8, seed=1)
    assert all(len(set(row)) == 8 for row in chosen.items.tolist())
    assert (chosen.rmse() < blind.rmse()).all()
    assert chosen.rmse() == pytest.approx(np.sqrt((chosen.se**2).mean(axis=0)), rel=0.15)


def test_refused():
    with pytest.raises(InputError, match="several abilities"):
        simulate_multidimensional(ItemBank.from_parameters(b=[0.0, 1.0]), [[0.0, 0.0]])
    with pytest.raises(InputError, match="ids of the bank"):
        next_multidimensional(BANK, {"i99": 1})

"""Costs of items: value for the money, and budgets that no session exceeds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from irtcat import InputError, ItemBank, predict, select
from irtcat.cat import Config, Session, plan_evaluation, replay
from irtcat.cat.offline.page import document_of

RNG = np.random.default_rng(5)
N = 80
COSTS = RNG.lognormal(0, 1, N)
BANK = ItemBank.from_parameters(a=RNG.lognormal(0, 0.3, N), b=RNG.normal(size=N))
BANK = replace(BANK, items=BANK.items.assign(dollars=COSTS))
NEW = BANK.simulate(RNG.normal(size=20), seed=3)


def spent(report):
    at = np.where(report.items >= 0, report.items, 0)
    return np.where(report.items >= 0, COSTS[at], 0).sum(axis=1)


def with_costs(**items):
    return replace(BANK, items=BANK.items.assign(**items))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_the_greatest_information_for_its_cost(batch):
    """The first item of each step, by the formula of the 2PL."""
    session = Session.begin(BANK, Config(cost="dollars", max_items=12, batch=batch))
    a, b = BANK.published()[0]["a"], BANK.published()[0]["b"]
    asked = set()
    while not session.is_over:
        p = expit(a * (session.estimate()["theta"] - b))
        value = a**2 * p * (1 - p) / COSTS
        value[[BANK.item_ids.tolist().index(item) for item in asked]] = -1
        assert session.asked[0] == BANK.item_ids[value.argmax()]
        assert session.explain(1).loc[session.asked[0], "value"] == pytest.approx(value.max())
        asked |= set(session.asked)
        for item in list(session.asked):
            session.answer(item, int(NEW.to_numpy()[0, BANK.item_ids.tolist().index(item)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules",
    [{}, {"criterion": "random"}, {"batch": 3}, {"criterion": "score-optimal", "sampled": 0.5}],
)
def test_no_session_costs_more_than_its_budget(rules):
    report = replay(BANK, NEW, Config(cost="dollars", budget=6.0, max_items=N, **rules))
    total = spent(report)
    assert (total <= 6.0 + 1e-9).all()
    assert (report.n_items < N).all()
    for row in range(len(report)):  # nothing that is left could still be paid
        left = np.setdiff1d(np.arange(N), report.items[row])
        assert COSTS[left].min() > 6.0 - total[row]


@pytest.mark.slow
def test_plans_within_a_budget():
    """The fixed subset, and sessions that choose by the answers, cost at most the budget."""
    old = BANK.simulate(RNG.normal(size=150), seed=4)
    subset = select(None, 40, calibration=old, costs=COSTS, budget=8.0, seed=1)
    plan = plan_evaluation(BANK, old, 40, cost="dollars", budget=8.0, seed=1)
    assert plan.config.fixed.items == tuple(subset.item_ids)
    report = replay(plan.bank, NEW, plan.config)
    assert (spent(report) <= 8.0 + 1e-9).all()
    truth = NEW.to_numpy().mean(axis=1)
    scores = report.predict(plan.bank, old, estimand="run")
    alike = np.abs(old.to_numpy().mean() - truth).mean()  # the same score for every subject
    assert np.abs(scores.score - truth).mean() < 0.75 * alike
    plan = plan_evaluation(BANK, old, 40, "stronger", cost="dollars", budget=8.0, seed=1)
    subset = select(None, 40, calibration=old, costs=COSTS, budget=8.0, expect="stronger", seed=1)
    got = replay(plan.bank, NEW, plan.config).predict(plan.bank, old)
    want = predict(old, subset, NEW, expect="stronger")
    assert got.score == pytest.approx(want.score, abs=1e-12)


def test_configurations_with_costs_are_kept():
    config = Config(cost="dollars", budget=2.5)
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("bank", "rules", "message"),
    [
        (BANK, {"criterion": "mepv"}, r"`criterion` argument must be one of mfi, .* with costs"),
        (BANK, {"cost": None, "budget": 1.0}, "`cost` argument must be a column .* for a budget"),
        (BANK, {"cost": "euros"}, "columns of the bank's metadata .*euros"),
        (BANK, {"budget": COSTS.min() / 2}, "`budget` argument must be at least .* the cheapest"),
        (BANK, {"budget": 0}, "`budget` argument"),
        (with_costs(dollars=[-1.0] + [1.0] * (N - 1)), {}, "column dollars. Got '-1.0 for i1'"),
        (with_costs(dollars=[1.0] * (N - 1) + [np.nan]), {}, "column dollars. Got 'nan for i80'"),
    ],
)
def test_costs_that_cannot_be_used(bank, rules, message):
    with pytest.raises(InputError, match=message):
        Session.begin(bank, Config(**({"cost": "dollars"} | rules)))


def test_pages_take_no_costs():
    with pytest.raises(InputError, match=r"cost .a page takes none.; budget .a page takes none"):
        document_of(BANK, Config(cost="dollars", budget=4.0))

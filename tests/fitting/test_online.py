"""Online calibration of predicted items."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from irtcat import InputError, ItemBank, Population, Responses, fit, score, update_items

N_ITEMS, N_PREDICTED = 40, 15
SDS = np.array([0.2, 0.8])


def setting(seed, n=30, rasch=False):
    """A bank with predicted items, their true parameters, and responses of new subjects."""
    rng = np.random.default_rng(seed)
    sds = SDS * [0, 1] if rasch else SDS
    slope = np.ones(N_ITEMS) if rasch else rng.lognormal(0, 0.3, N_ITEMS)
    intercept = rng.normal(size=N_ITEMS)
    theta = rng.normal(size=n)
    x = rng.random((n, N_ITEMS)) < expit(theta[:, None] * slope + intercept)
    at = np.arange(N_ITEMS - N_PREDICTED, N_ITEMS)
    stated = np.column_stack([slope, intercept])
    stated[at] += rng.normal(size=(N_PREDICTED, 2)) * sds
    covariance = np.zeros((N_ITEMS, 2, 2))
    covariance[at] = np.diag(sds**2)
    bank = ItemBank.from_parameters(a=stated[:, 0], b=-stated[:, 1] / stated[:, 0])
    is_predicted = np.arange(N_ITEMS) >= N_ITEMS - N_PREDICTED
    statistics = pd.DataFrame({"predicted": is_predicted, "n_responses": 0}, index=bank.item_ids)
    bank = replace(bank, covariance=covariance, statistics=statistics)
    responses = Responses.from_array(x.astype(int), item_ids=bank.item_ids)
    return bank, np.column_stack([slope, intercept]), responses, at


def test_one_item_has_the_posterior_of_brute_force_integration():
    bank, _, responses, at = setting(1, n=25)
    item = at[-1]
    # Only this item is predicted, so that the curves of the others are known.
    covariance = np.zeros_like(np.array(bank.covariance))
    covariance[item] = np.diag(SDS**2)
    states = bank.statistics.assign(predicted=np.arange(bank.n_items) == item)
    bank = replace(bank, covariance=covariance, statistics=states)
    new = update_items(bank, responses)

    params, x = bank.parameters(), responses.to_numpy()
    theta = np.linspace(-7, 7, 401)
    p = expit(params[:, :1] * theta + params[:, 1:])
    others = np.arange(N_ITEMS) != item
    log_weights = x[:, others] @ np.log(p[others]) + (1 - x[:, others]) @ np.log1p(-p[others])
    weights = np.exp(log_weights - 0.5 * theta**2)
    weights /= weights.sum(axis=1, keepdims=True)
    a = params[item, 0] + SDS[0] * np.linspace(-5, 5, 81)
    d = params[item, 1] + SDS[1] * np.linspace(-5, 5, 121)
    right = expit(a[:, None, None] * theta + d[None, :, None]) @ weights.T
    log_post = (np.log(right) * x[:, item] + np.log1p(-right) * (1 - x[:, item])).sum(axis=2)
    log_post += -0.5 * ((a[:, None] - params[item, 0]) / SDS[0]) ** 2
    log_post += -0.5 * ((d - params[item, 1]) / SDS[1]) ** 2
    post = np.exp(log_post - log_post.max())
    post /= post.sum()
    mean = np.array([(post.sum(axis=1) * a).sum(), (post.sum(axis=0) * d).sum()])
    sd = np.sqrt(
        [
            (post.sum(axis=1) * (a - mean[0]) ** 2).sum(),
            (post.sum(axis=0) * (d - mean[1]) ** 2).sum(),
        ]
    )
    found = np.sqrt(np.diagonal(np.array(new.covariance)[item]))
    # The mode and the curvature there, against the mean and the SD.
    assert np.abs(new.parameters()[item] - mean).max() < 0.12 * SDS.max()
    assert found == pytest.approx(sd, rel=0.08)
    mode = np.unravel_index(post.argmax(), post.shape)
    assert new.parameters()[item] == pytest.approx([a[mode[0]], d[mode[1]]], abs=0.02)
    assert np.array_equal(new.parameters()[others], params[others])


NODES = np.linspace(-1.35, 6, 121)
DENSITY = Population(nodes=NODES, weights=(NODES + 1.4142) * np.exp(-1.4142 * NODES))
PARTS = {"a": Population(-0.8, 0.5, n_subjects=300), "b": Population(2.0, 0.8, n_subjects=100)}


@pytest.mark.parametrize("populations", [DENSITY, PARTS, PARTS | {"a": DENSITY}])
def test_abilities_are_integrated_over_the_density_or_mixture(populations):
    """The mode of an item is that of the posterior integrated by brute force."""
    bank, _, responses, at = setting(1, n=25)
    bank = replace(bank, populations=populations)
    item = at[-1]
    covariance = np.zeros_like(np.array(bank.covariance))
    covariance[item] = np.diag(SDS**2)
    states = bank.statistics.assign(predicted=np.arange(bank.n_items) == item)
    bank = replace(bank, covariance=covariance, statistics=states)
    new = update_items(bank, responses)

    parts, shares = bank.population.parts or (bank.population,), bank.population.shares
    theta, prior = [], []
    for part, share in zip(parts, shares if len(shares) else [1.0], strict=True):
        fine = np.linspace(-8, 8, 2001)
        points = fine if part.nodes is None else part.nodes
        density = np.exp(-0.5 * ((fine - part.mean) / part.sd) ** 2)
        density = density if part.weights is None else part.weights
        theta, prior = [*theta, *points], [*prior, *(share * density / density.sum())]
    theta, prior = np.array(theta), np.array(prior)
    params, x = bank.parameters(), responses.to_numpy()
    p = expit(params[:, :1] * theta + params[:, 1:])
    others = np.arange(N_ITEMS) != item
    weights = np.exp(x[:, others] @ np.log(p[others]) + (1 - x[:, others]) @ np.log1p(-p[others]))
    weights *= prior
    weights /= weights.sum(axis=1, keepdims=True)

    def loss(xi):
        right = weights @ expit(xi[0] * theta + xi[1])
        log_like = np.where(x[:, item] == 1, np.log(right), np.log1p(-right)).sum()
        return 0.5 * (((xi - params[item]) / SDS) ** 2).sum() - log_like

    mode = minimize(loss, params[item], method="BFGS", options={"gtol": 1e-8}).x
    assert new.parameters()[item] == pytest.approx(mode, abs=1e-6)
    moments = replace(bank, populations=Population(bank.population.mean, bank.population.sd))
    assert np.abs(update_items(moments, responses).parameters()[item] - mode).max() > 0.005


@pytest.mark.slow
def test_errors_fall_and_intervals_hold():
    before, after, inside = [], [], []
    for seed in range(6):
        bank, truth, responses, at = setting(seed)
        new = update_items(bank, responses)
        before.append(np.abs(bank.parameters()[at] - truth[at])[:, 1].mean())
        error = new.parameters()[at] - truth[at]
        after.append(np.abs(error)[:, 1].mean())
        sd = np.sqrt(np.array(new.covariance)[at][:, [0, 1], [0, 1]])
        inside.append((np.abs(error) < 1.96 * sd).mean(axis=0))
        assert (new.statistics["n_responses"].iloc[at] == 30).all()
    assert np.mean(after) < 0.65 * np.mean(before)
    assert (np.mean(inside, axis=0) > 0.9).all()


@pytest.mark.slow
def test_step_by_step_is_nearly_all_at_once():
    bank, _, responses, at = setting(3, n=60)
    at_once = update_items(bank, responses)
    stepwise = bank
    for start in range(0, 60, 10):
        stepwise = update_items(stepwise, responses.subset(subjects=range(start, start + 10)))
    difference = at_once.parameters()[at, 1] - stepwise.parameters()[at, 1]
    assert np.abs(difference).mean() < 0.1
    assert stepwise.statistics["n_responses"].iloc[-1] == 60
    assert stepwise.has("predicted")[at].all()


@pytest.mark.slow
def test_one_answer_moves_an_item_a_little_and_what_is_known_counts():
    bank, _, _, at = setting(4, n=1, rasch=True)
    wrong = Responses.from_array(np.zeros((1, N_ITEMS), int), item_ids=bank.item_ids)
    new = update_items(bank, wrong)
    assert (new.parameters()[at, 1] < bank.parameters()[at, 1]).all()
    assert new.parameters()[:, 0] == pytest.approx(bank.parameters()[:, 0])
    assert (np.array(new.covariance)[at, 1, 1] < np.array(bank.covariance)[at, 1, 1]).all()
    strong = update_items(bank, wrong, prior=([2.5], [0.1]))  # it must be the items
    assert (strong.parameters()[at, 1] < new.parameters()[at, 1]).all()


@pytest.mark.slow
def test_after_a_fit_with_features():
    rng = np.random.default_rng(5)
    steps = rng.integers(1, 8, 50)
    easiness = 2 - 0.5 * steps + 0.5 * rng.normal(size=50)
    x = rng.random((400, 50)) < expit(rng.normal(size=(400, 1)) + easiness)
    r = Responses.from_array(x.astype(int))
    table = pd.DataFrame({"steps": steps}, index=r.item_ids)
    old, new_items, first = r.item_ids[:35], r.item_ids[35:], r.subject_ids[:300]
    f = fit(r.subset(subjects=first, items=old), "rasch", item_features=table.loc[old])
    bank = f.bank.join(f.predict_items(table.loc[new_items]), same_scale=True)
    late = r.subset(subjects=r.subject_ids[300:])
    updated = update_items(bank, late)
    error = [
        np.abs(b.to_frame()["b"].to_numpy()[35:] + easiness[35:]).mean() for b in (bank, updated)
    ]
    assert error[1] < 0.75 * error[0]
    assert (updated.to_frame()["b"].iloc[:35] == bank.to_frame()["b"].iloc[:35]).all()
    assert np.isfinite(score(updated, late).theta).all()


@pytest.mark.slow
def test_missing_answers_and_items_without_any():
    bank, _, responses, at = setting(6)
    x = responses.to_numpy().astype(float)
    x[:, at[0]] = np.nan
    x[::2, at[1]] = np.nan
    new = update_items(bank, Responses.from_array(x, item_ids=bank.item_ids))
    assert np.array_equal(new.parameters()[at[0]], bank.parameters()[at[0]])
    assert np.isfinite(new.parameters()).all()
    assert new.statistics["n_responses"].iloc[at[:2]].tolist() == [0, 15]
    few = responses.subset(items=bank.item_ids[at[2:5]])
    assert np.isfinite(update_items(bank, few).parameters()).all()


def test_refused():
    bank, _, responses, _ = setting(7)
    plain = ItemBank.from_parameters(b=np.zeros(N_ITEMS))
    with pytest.raises(InputError, match="a bank with predicted items"):
        update_items(plain, responses)
    with pytest.raises(InputError, match="right/wrong"):
        update_items(bank, Responses.from_array(np.full((3, N_ITEMS), 0.5)))
    other = Responses.from_array([[1, 0], [0, 1]], item_ids=["x", "i1"])
    with pytest.raises(InputError, match="to items of the bank"):
        update_items(bank, other)
    with pytest.raises(InputError, match="SDs above 0"):
        update_items(bank, responses, prior=(0.0, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize(("key", "atol"), [("3pl", 1e-6), ("gpcm", 0.03)])
def test_a_bank_of_several_models_is_updated_as_that_of_one(key, atol):
    """Known items of two categories under another model with the same curves."""
    bank, _, responses, at = setting(7)
    slope, intercept = bank.parameters()[:5].T
    names, b = bank.item_ids[:5], -intercept / slope
    if key == "3pl":
        others = ItemBank.from_parameters(slope, b, c=1e-12, item_ids=names)
    else:
        others = ItemBank.from_thresholds(slope, b[:, None], key, names)
    width = others.parameters().shape[1]
    others = replace(others, covariance=np.zeros((5, width, width)))
    mixed = others.join(bank.subset(range(5, N_ITEMS)))
    assert mixed.model.key == f"2pl+{key}"
    found, expected = (update_items(x, responses).to_frame().iloc[at] for x in (mixed, bank))
    for name in ("a", "b", "se_a", "se_b"):
        assert found[name].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=atol)
    graded = ItemBank.from_thresholds(1.0, [[0.0, 1.0]], "graded", ["g"])
    graded = replace(graded, covariance=np.zeros((1, 3, 3)))
    x = Responses.from_array(np.eye(4, dtype=int)[:, :3], item_ids=["i38", "i39", "g"])
    with pytest.raises(InputError, match="to items of two categories"):
        update_items(bank.join(graded), x)

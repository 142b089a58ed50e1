"""The many-facet Rasch model: severities of judges, templates, versions."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp, softmax

from irtcat import EM, InputError, ItemBank, Responses, fit

DIFFICULTIES = np.array([-1.0, -0.3, 0.4, 0.9])
SEVERITIES = np.array([-0.5, 0.1, 0.4])


def table(seed=1, n=400, per_item=2, templates=1, dtype=int):
    """Responses of one row each, scored by some of the judges."""
    rng = np.random.default_rng(seed)
    rows = []
    for subject, theta in enumerate(1.2 * rng.normal(size=n)):
        for item, b in enumerate(DIFFICULTIES):
            for judge in rng.choice(len(SEVERITIES), per_item, replace=False):
                template = int(rng.integers(templates))
                p = expit(theta - b - SEVERITIES[judge] - 0.6 * template)
                rows.append((subject, f"q{item}", f"j{judge}", template, dtype(rng.random() < p)))
    return pd.DataFrame(rows, columns=["subject", "item", "judge", "template", "response"])


@pytest.fixture(scope="module")
def judged():
    """Responses and their fit."""
    r = Responses.from_long(table(), facets=["judge"])
    return r, fit(r, "rasch", EM(tolerance=1e-6), facets=["judge"])


@pytest.mark.slow
def test_it_is_the_maximum_of_the_written_out_likelihood(judged):
    r, f = judged
    x = r.to_numpy()
    item = r.items["base_item"].str[1:].astype(int).to_numpy()
    judge = r.items["judge"].str[1:].astype(int).to_numpy()
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    log_weights = np.log(weights / weights.sum())

    def minus_log_likelihood(p):
        c = np.append(p[4:6], -p[4:6].sum())
        logit = np.exp(p[6]) * nodes - (p[:4][item] + c[judge])[:, None]
        cells = np.where((x == 1)[:, :, None], log_expit(logit), log_expit(-logit))
        total = np.where(np.isnan(x)[:, :, None], 0, cells).sum(axis=1)
        return -logsumexp(total + log_weights, axis=1).sum()

    best = minimize(minus_log_likelihood, np.zeros(7), method="BFGS", options={"gtol": 1e-5})
    found = f.severities()["severity"].to_numpy()
    assert found[:2] == pytest.approx(best.x[4:6], abs=5e-4)
    assert found.sum() == pytest.approx(0, abs=1e-9)
    assert f.bank.population.sd == pytest.approx(np.exp(best.x[6]), abs=1e-3)
    b = f.bank.to_frame()["b"].to_numpy()
    assert b == pytest.approx(best.x[:4][item] + np.append(best.x[4:6], found[2])[judge], abs=1e-3)

    step, n = 1e-3, 7
    hessian = np.zeros((n, n))
    unit = step * np.eye(n)
    for i in range(n):
        for j in range(n):
            signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
            hessian[i, j] = sum(
                s * t * minus_log_likelihood(best.x + s * unit[i] + t * unit[j]) for s, t in signs
            ) / (4 * step**2)
    covariance = np.linalg.inv(hessian)
    error = np.sqrt(np.diagonal(covariance))[4:6]
    assert f.severities()["se"].to_numpy()[:2] == pytest.approx(error, rel=0.03)
    # The difficulty of a combination is the sum of its item's and its judge's.
    to_judge = np.array([[1, 0], [0, 1], [-1, -1]])[judge]
    weights = np.hstack([np.eye(4)[item], to_judge, np.zeros((len(item), 1))])
    error = np.sqrt(np.einsum("ja,ab,jb->j", weights, covariance, weights))
    assert f.bank.to_frame()["se_b"].to_numpy() == pytest.approx(error, rel=0.1)


@pytest.mark.slow
def test_intervals_of_severities_hold():
    inside = []
    for seed in range(25):
        f = fit(
            Responses.from_long(table(seed, n=150), facets=["judge"]), "rasch", facets=["judge"]
        )
        found = f.severities()
        inside += (np.abs(found["severity"] - SEVERITIES) < 1.96 * found["se"]).tolist()
    assert 0.87 <= np.mean(inside) <= 1.0


@pytest.mark.slow
def test_the_bank_can_be_read_again(judged):
    """Under the narrow prior of facets the covariance is symmetric all the same."""
    _, f = judged
    assert ItemBank.from_bytes(f.bank.to_bytes()) == f.bank


@pytest.mark.slow
def test_two_facets_and_their_numbers():
    data = table(3, n=500, templates=2)
    r = Responses.from_long(data, facets=["judge", "template"])
    f = fit(r, "rasch", facets=["judge", "template"])
    found = f.severities()
    assert found.index.names == ["facet", "level"]
    assert found.loc["judge", "severity"].to_numpy() == pytest.approx(SEVERITIES, abs=0.15)
    assert found.loc["template", "severity"].to_numpy() == pytest.approx([-0.3, 0.3], abs=0.12)
    assert (found.loc["judge", "n"] == data["judge"].value_counts().sort_index()).all()
    new = pd.DataFrame(
        {"base_item": ["q1"], "judge": ["j2"], "template": ["0"]}, index=["q1 / j2 / 0"]
    )
    known = f.bank.to_frame().loc["q1 / j2 / 0", "b"]
    assert f.predict_items(new).to_frame()["b"].iloc[0] == pytest.approx(known, abs=0.02)


def test_combinations_are_columns_with_metadata():
    data = table(n=20)
    described = pd.DataFrame({"topic": list("abab")}, index=[f"q{i}" for i in range(4)])
    r = Responses.from_long(data, facets=["judge"], items=described)
    assert set(r.items.columns) == {"base_item", "judge", "topic"}
    row = r.items.loc["q1 / j2"]
    assert row.tolist() == ["q1", "j2", "b"]
    assert r.n_items == 12


def test_a_level_that_nobody_saw_is_uncertain(judged):
    _, f = judged
    rows = pd.DataFrame(
        {"base_item": ["q1", "q1"], "judge": ["j1", "another"]}, index=["old", "new"]
    )
    spread = f.predict_items(rows).covariance[:, -1, -1]
    assert spread[1] > spread[0] + 0.8 * np.var(f.severities()["severity"])
    assert spread[1] < 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "2pl"}, "left out but for the models rasch and rsm"),
        ({"facets": "judge"}, "a list of columns"),
        ({"facets": ["rater"]}, "different columns of responses.items"),
        ({"facets": ["judge", "judge"]}, "different columns of responses.items"),
        ({"item_features": pd.DataFrame({"x": [1.0]})}, "None with facets"),
    ],
)
def test_facets_that_are_refused(options, words):
    r = Responses.from_long(table(n=30), facets=["judge"])
    with pytest.raises(InputError, match=words):
        fit(r, **({"model": "rasch", "facets": ["judge"]} | options))


def test_tables_that_are_refused():
    data = table(n=10)
    for facets, words in (
        (["rater"], "columns of pandas DataFrame besides subject, item, response"),
        (["item"], "different columns of pandas DataFrame"),
        (["judge", "judge"], "different columns of pandas DataFrame"),
    ):
        with pytest.raises(InputError, match=words):
            Responses.from_long(data, facets=facets)
    alone = Responses.from_long(
        data.assign(judge="j0").drop_duplicates(["subject", "item"]), facets=["judge"]
    )
    with pytest.raises(InputError, match="of at least two levels each"):
        fit(alone, "rasch", facets=["judge"])
    data["judge"] = data["judge"].astype(object)
    data.loc[3, "judge"] = None
    with pytest.raises(InputError, match=r"row 4, column 3 \('judge'\): expected an id"):
        Responses.from_long(data, facets=["judge"])
    with pytest.raises(InputError, match="those of a fit with facets"):
        fit(
            Responses.from_long(
                table(n=30).drop(columns="judge").drop_duplicates(["subject", "item"])
            ),
            "rasch",
        ).severities()


@pytest.mark.slow
def test_judges_of_a_single_item_are_items():
    data = table(2)
    data = data[data["item"] == "q1"]
    r = Responses.from_long(data, facets=["judge"])
    with pytest.raises(InputError, match="levels that several columns share"):
        fit(r, "rasch", facets=["judge"])
    b = fit(r, "rasch").bank.to_frame()["b"].sort_index().to_numpy()
    assert b - b.mean() == pytest.approx(SEVERITIES, abs=0.35)


STEPS = np.array([-1.0, 0.1, 0.9])


def ratings(seed=1, n=250):
    """Ratings 0 to 3 of each subject on each item by one of the judges."""
    rng = np.random.default_rng(seed)
    rows = []
    for subject, theta in enumerate(1.2 * rng.normal(size=n)):
        for item, b in enumerate(DIFFICULTIES):
            judge = int(rng.integers(len(SEVERITIES)))
            up = np.append(0, np.cumsum(theta - b - SEVERITIES[judge] - STEPS))
            rows.append((subject, f"q{item}", f"j{judge}", rng.choice(4, p=softmax(up))))
    return pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])


@pytest.fixture(scope="module")
def rated():
    """Ratings and their fit."""
    data = ratings(n=120)
    r = Responses.from_long(data, facets=["judge"])
    return data, fit(r, "rsm", EM(tolerance=1e-6), facets=["judge"])


@pytest.mark.slow
def test_ratings_are_the_maximum_of_the_written_out_likelihood(rated):
    """Linacre (1989): log P(k) / P(k - 1) = theta - b - c - tau_k."""
    data, f = rated
    item, judge = (data[c].str[1:].astype(int).to_numpy() for c in ("item", "judge"))
    response, subject = data["response"].to_numpy(), data["subject"].to_numpy()
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    log_weights = np.log(weights / weights.sum())

    def minus_log_likelihood(p):
        c = np.append(p[4:6], -p[4:6].sum())
        up = np.exp(p[6]) * nodes - (p[:4][item] + c[judge])[:, None]
        k = np.arange(4)[:, None, None]
        tau = np.concatenate([[0], p[7:], [-p[7:].sum()]])
        logits = k * up - np.cumsum(tau)[:, None, None]
        cells = logits[response, np.arange(len(response))] - logsumexp(logits, axis=0)
        total = np.zeros((subject.max() + 1, len(nodes)))
        np.add.at(total, subject, cells)
        return -logsumexp(total + log_weights, axis=1).sum()

    best = minimize(minus_log_likelihood, np.zeros(9), method="BFGS", options={"gtol": 1e-4})
    assert f.log_likelihood == pytest.approx(-best.fun, abs=2e-3)
    assert f.n_parameters == 9
    got = f.severities()
    assert got["severity"].to_numpy()[:2] == pytest.approx(best.x[4:6], abs=5e-4)
    assert f.bank.population.sd == pytest.approx(np.exp(best.x[6]), abs=1e-3)
    error = np.sqrt(np.diagonal(best.hess_inv))[4:6]
    assert got["se"].to_numpy()[:2] == pytest.approx(error, rel=0.15)  # BFGS's approximation
    assert got["n"].sum() == len(data)


def test_a_new_judge_of_ratings_is_uncertain(rated):
    _, f = rated
    rows = pd.DataFrame({"base_item": ["q1"], "judge": ["another"]}, index=["new"])
    new = f.predict_items(rows)
    assert 0.2 < new.to_frame()["se_b"].iloc[0] < 0.8
    curves = new.expected_curves()
    assert curves.to_frame()["a"].iloc[0] < 0.98
    assert curves.to_frame()["b"].iloc[0] == pytest.approx(new.to_frame()["b"].iloc[0], abs=0.05)

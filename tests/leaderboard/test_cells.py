"""Probabilities of single answers: calibrated and near the truth, nothing leaks, bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from irtcat import InputError, Responses, agreement
from irtcat.leaderboard import CELL_METHODS, cells, evaluate_cells
from irtcat.leaderboard.cell_probabilities import _calibration, main_effects


def simulated(seed=0, n=100, m=80):
    """True probabilities of a two-factor model, and answers."""
    rng = np.random.default_rng(seed)
    loadings = np.column_stack([np.exp(rng.normal(0, 0.3, m)), rng.normal(0, 0.8, m)])
    p = expit(rng.normal(size=m) + rng.normal(size=(n, 2)) @ loadings.T)
    return p, (rng.random((n, m)) < p).astype(float)


@pytest.fixture(scope="module")
def half():
    p, answers = simulated()
    hidden = np.random.default_rng(1).random(p.shape) < 0.5
    known = np.where(hidden, np.nan, answers)
    known[0], known[:, 0] = np.nan, np.nan
    return p, answers, np.isnan(known), cells(known, dims=6)


def test_near_the_truth_and_calibrated(half):
    p, answers, hidden, result = half
    loss = [
        agreement.log_loss(q[hidden], answers[hidden])
        for q in (p, result.probability, main_effects(result.answers))
    ]
    assert loss[1] < loss[0] + 0.75 * (loss[2] - loss[0])
    found = result.probability[hidden]
    limit = agreement.calibration_limit(found)
    assert agreement.calibration_error(found, answers[hidden]) < 1.5 * limit


def test_without_answers_a_typical_one_is_predicted_and_flagged(half):
    _, _, hidden, result = half
    assert [flag.split(":")[0] for flag in result.flags] == [
        "subjects without answers, predicted as typical ones",
        "items without answers, predicted as typical ones",
    ]
    share = np.nanmean(result.answers)
    assert abs(result.probability[0, 0] - share) < 0.1
    frame = result.to_frame()
    assert len(frame) == hidden.size
    assert frame["from_prior"].sum() == sum(hidden.shape) - 1
    cell = frame[(frame["subject"] == "s3") & (frame["item"] == "i5")].iloc[0]
    assert cell["probability"] == result.probability[2, 4]
    assert cell["observed"] == ~hidden[2, 4]


def test_the_calibration_undoes_a_wrong_scale():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 2, 20_000)
    answers = (rng.random(20_000) < expit(0.3 + 0.6 * log_odds)).astype(float)
    columns = np.column_stack([np.ones(20_000), log_odds, 0 * log_odds])
    found = _calibration(columns, answers, np.ones(20_000))
    np.testing.assert_allclose(found, [0.3, 0.6, 0.0], atol=0.05)


def test_features_and_shares():
    p, _ = simulated(2, 40, 30)
    trials = np.random.default_rng(0).binomial(4, p)
    responses = Responses.from_counts(trials, 4)
    rng = np.random.default_rng(1)
    size = pd.DataFrame({"size": rng.normal(size=40)}, index=responses.subject_ids)
    topic = pd.DataFrame({"topic": rng.choice(["a", "b"], 30)}, index=responses.item_ids)
    result = cells(responses, subject_features=size, item_features=topic, dims=2)
    error = np.abs(result.probability - p).mean()
    assert error < np.abs(trials / 4 - p).mean()


@pytest.mark.slow
def test_evaluation_learns_nothing_from_hidden_answers():
    _, answers = simulated(3, 40, 30)
    hidden = np.random.default_rng(7).random(answers.shape) < 0.3
    other = np.where(hidden, 1 - answers, answers)
    one, two = (
        evaluate_cells(x, list(CELL_METHODS), 0.3, [7], dims=2).to_frame().set_index("method")
        for x in (answers, other)
    )
    # The limit depends on the probabilities only.
    assert one["calibration_limit"].tolist() == two["calibration_limit"].tolist()
    assert (one["auc"] + two["auc"]).to_numpy() == pytest.approx(1)
    assert one["n_hidden"].tolist() == [hidden.sum()] * 3


def test_evaluation_has_means_and_curves():
    result = evaluate_cells(simulated(4)[1], ["factors", "main effects"], seeds=[0, 1], dims=4)
    summary = result.summary()
    assert summary.loc["factors", "log_loss"] < summary.loc["main effects", "log_loss"]
    assert summary["relative_log_loss"].iloc[0] == 1
    curves = result.reliability()
    hidden = result.to_frame().groupby("method")["n_hidden"].sum()
    pd.testing.assert_series_equal(curves.groupby("method")["n"].sum(), hidden, check_names=False)


@pytest.mark.parametrize(
    ("responses", "options", "match"),
    [
        ([[0, 1, 2], [2, 1, 0]], {}, "`responses`.*right/wrong.*3 categories"),
        ([[0, 1, 1]], {}, "at least 2 subjects.*those of 1"),
        ([[1, 1], [1, 1]], {}, "not all alike.*1.* in every cell"),
        ([[0, 1], [1, 1]], {"dims": 0}, "`dims`"),
        (
            [[0, 1], [1, 1]],
            {"item_features": pd.DataFrame({"a": [1, 2]}, index=["i1", "x"])},
            "`item_features`.*every item.*i2",
        ),
    ],
)
def test_refusals(responses, options, match):
    with pytest.raises(InputError, match=match):
        cells(responses, **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"methods": "factors"}, "`methods`.*a list"),
        ({"methods": ["3pl"]}, "`methods`.*3pl"),
        ({"hidden": 1.0}, "`hidden`"),
        ({"hidden": 1e-9}, "`hidden`.*0 of 1200 hidden"),
        ({"seeds": []}, "`seeds`"),
    ],
)
def test_refusals_of_an_evaluation(options, match):
    with pytest.raises(InputError, match=match):
        evaluate_cells(simulated(5, 40, 30)[1], **options)


def test_the_2pl_takes_no_shares():
    with pytest.raises(InputError, match='without "2pl"'):
        evaluate_cells(simulated(5, 10, 8)[0])

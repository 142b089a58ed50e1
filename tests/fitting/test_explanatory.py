"""Fits with features of subjects and items: against mirt, brute force and simulated truth."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp

from irtcat import EM, InputError, ItemBank, Responses, fit, predict, score, select
from irtcat.cat import Config, Session, simulate
from irtcat.fitting.features import regression as regression
from irtcat.leaderboard import evaluate
from irtcat.models import expected_responses

NO_ERRORS = {"standard_errors": "none"}


@pytest.fixture(scope="module")
def mirt(reference):
    return reference("mirt_explanatory")


def unpacked(packed):
    n, j = packed["shape"]
    bits = np.frombuffer(bytes.fromhex(packed["bits"]), np.uint8)
    return np.unpackbits(bits, count=n * j).reshape(n, j).astype(np.int8)


@pytest.fixture(scope="module")
def regressed(mirt):
    data = mirt["latent_regression"]
    r = Responses.from_array(unpacked(data["responses"]))
    return r, pd.DataFrame({"x1": data["x1"], "x2": data["x2"]}, index=r.subject_ids)


def raw(regression):
    """Coefficients of the columns as given, and the intercept where they are 0."""
    table, design = regression.to_frame()["estimate"], regression.design
    slopes = table.iloc[1:].to_numpy() / design.scale.to_numpy()
    return slopes, table.iloc[0] - slopes @ design.centre.to_numpy()


def test_latent_regression_of_a_2pl_is_mirts(mirt, regressed):
    theirs = mirt["latent_regression"]["fits"]["2pl"]
    f = fit(regressed[0], "2pl", subject_features=regressed[1], **NO_ERRORS)
    assert f.converged
    assert f.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=1e-3)
    assert f.n_parameters == theirs["n_parameters"]
    # There the residual SD is 1 and the mean at x = 0 is 0.
    slopes, at_zero = raw(f.subject_regression)
    sd = f.subject_regression.residual_sd
    np.testing.assert_allclose(slopes / sd, theirs["betas"], atol=1e-4)
    params = f.bank.parameters()
    np.testing.assert_allclose(params[:, 0] * sd, theirs["a"], atol=1e-3)
    np.testing.assert_allclose(params[:, 1] + params[:, 0] * at_zero, theirs["d"], atol=1e-3)
    mean, prior_sd = f.subject_prior
    np.testing.assert_allclose(mean.var() + prior_sd.mean() ** 2, 1.0, atol=1e-3)
    np.testing.assert_allclose(mean.mean(), 0.0, atol=1e-3)


@pytest.mark.slow
def test_latent_regression_of_a_rasch_model_is_mirts(mirt, regressed):
    theirs = mirt["latent_regression"]["fits"]["rasch"]
    f = fit(regressed[0], "rasch", subject_features=regressed[1], **NO_ERRORS)
    # Theirs is lower by .005: 61 nodes.
    assert f.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=1e-2)
    assert f.n_parameters == theirs["n_parameters"]
    slopes, _ = raw(f.subject_regression)
    np.testing.assert_allclose(slopes, theirs["betas"], atol=1e-3)
    assert f.subject_regression.residual_sd**2 == pytest.approx(theirs["variance"], abs=2e-3)


@pytest.mark.slow
def test_linear_logistic_test_model_is_mirts(mirt):
    theirs = mirt["lltm"]
    r = Responses.from_array(unpacked(theirs["responses"]))
    table = pd.DataFrame({"w1": theirs["w1"], "w2": theirs["w2"]}, index=r.item_ids)
    f = fit(r, "rasch", item_features=table, item_residual=False, **NO_ERRORS)
    assert f.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=1e-2)
    slopes, at_zero = raw(f.item_regressions["intercept"])
    np.testing.assert_allclose([at_zero, *slopes], theirs["coefficients"], atol=1e-3)
    assert f.bank.population.sd**2 == pytest.approx(theirs["variance"], abs=1e-3)


@pytest.fixture(scope="module")
def lme4(reference):
    data = reference("lme4_explanatory")
    r = Responses.from_array([[int(answer) for answer in row] for row in data["responses"]])
    subjects = pd.DataFrame({"x1": data["x1"], "x2": data["x2"]}, index=r.subject_ids)
    items = pd.DataFrame({"w1": data["w1"], "w2": data["w2"]}, index=r.item_ids)
    return data, r, {"subject_features": subjects}, {"item_features": items, "item_residual": False}


def raw_errors(regression):
    """Standard errors of the coefficients of the columns as given."""
    return regression.to_frame()["se"].iloc[1:].to_numpy() / regression.design.scale.to_numpy()


@pytest.mark.slow
def test_latent_regression_is_lme4s(lme4):
    data, r, subjects, _ = lme4
    theirs = data["latent_regression"]
    f = fit(r, "rasch", **subjects, **NO_ERRORS)
    slopes, at_zero = raw(f.subject_regression)
    ours = np.r_[f.bank.parameters()[:, -1] + at_zero, slopes]
    np.testing.assert_allclose(ours, theirs["coefficients"], atol=5e-4)
    assert f.subject_regression.residual_sd == pytest.approx(theirs["sd"], abs=5e-4)
    assert f.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=5e-3)
    np.testing.assert_allclose(raw_errors(f.subject_regression), theirs["errors"][12:], rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lltm", "both"])
def test_item_covariates_are_lme4s(lme4, name):
    data, r, subjects, items = lme4
    theirs = data[name]
    f = fit(r, "rasch", **items, **(subjects if name == "both" else {}), **NO_ERRORS)
    by_items = f.item_regressions["intercept"]
    slopes, intercept = raw(by_items)
    ours, errors, sd = slopes, raw_errors(by_items), f.bank.population.sd
    if name == "both":
        of_subjects, at_zero = raw(f.subject_regression)
        intercept, sd = intercept + at_zero, f.subject_regression.residual_sd
        ours = np.r_[slopes, of_subjects]
        errors = np.r_[errors, raw_errors(f.subject_regression)]
    np.testing.assert_allclose([intercept, *ours], theirs["coefficients"], atol=5e-4)
    assert sd == pytest.approx(theirs["sd"], abs=5e-4)
    assert f.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=5e-3)
    np.testing.assert_allclose(errors, theirs["errors"][1:], rtol=0.05)


def brute_log_likelihood(params, x, mean, sd):
    """Marginal log-likelihood with a population for each subject, as a plain sum."""
    z = np.linspace(-8, 8, 801)
    log_prior = -0.5 * z**2 - logsumexp(-0.5 * z**2)
    total = 0.0
    for row, m, s in zip(x, mean, sd, strict=True):
        eta = params[:, :1] * (m + s * z) + params[:, 1:2]
        log_p = -np.logaddexp(0, np.where(row[:, None] == 1, -eta, eta))
        total += logsumexp(log_p.sum(axis=0) + log_prior)
    return total


@pytest.mark.slow
def test_scores_of_the_latent_regression_vanish(regressed):
    """Law: the marginal likelihood, by brute force, is level in coefficients and residual SD."""
    r, table = regressed
    few = r.subset(subjects=np.arange(300))
    f = fit(few, "2pl", subject_features=table.iloc[:300], weak_priors=False, **NO_ERRORS)
    params, x = f.bank.parameters(), few.values
    mean, sd = f.subject_prior
    value = brute_log_likelihood(params, x, mean, sd)
    assert f.log_likelihood == pytest.approx(value, abs=1e-4)
    z = f.subject_regression.design.matrix(table.iloc[:300])
    h = 1e-3
    for moves in ((h * z[:, 0], 0), (h * z[:, 1], 0), (0, h * sd)):
        up, down = (
            brute_log_likelihood(params, x, mean + s * moves[0], sd + s * moves[1]) for s in (1, -1)
        )
        curvature = (2 * value - up - down) / h**2
        assert abs(up - down) / (2 * h) < 0.02 * np.sqrt(curvature)  # in standard errors


def simulated(seed, n=600, n_items=60, tau=0.4):
    """Responses of a Rasch model with features of both sides, and what was drawn."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    lab = rng.integers(0, 8, n)
    theta = 0.6 * size + 0.5 * rng.normal(size=8)[lab] + 0.6 * rng.normal(size=n)
    steps, topic = rng.normal(size=n_items), rng.integers(0, 5, n_items)
    d = 0.3 - 0.8 * steps + 0.4 * rng.normal(size=5)[topic] + tau * rng.normal(size=n_items)
    x = (rng.random((n, n_items)) < expit(theta[:, None] + d)).astype(int)
    r = Responses.from_array(x)
    subjects = pd.DataFrame({"size": size, "lab": lab.astype(str)}, index=r.subject_ids)
    items = pd.DataFrame({"steps": steps, "topic": topic.astype(str)}, index=r.item_ids)
    return r, subjects, items, theta, d


@pytest.mark.slow
def test_both_sides_are_recovered():
    r, subjects, items, theta, _ = simulated(0)
    f = fit(r, "rasch", subject_features=subjects, item_features=items, **NO_ERRORS)
    assert f.converged
    unit = theta.std()
    slopes = f.subject_regression.to_frame()
    assert abs(slopes.loc["size", "estimate"] - 0.6 * subjects["size"].std()) < 0.1
    assert f.subject_regression.residual_sd == pytest.approx(0.6, abs=0.08)
    assert f.bank.population.sd == pytest.approx(unit, abs=0.1)
    by_items = f.item_regressions["intercept"]
    estimate = by_items.to_frame().loc["steps"]
    assert abs(estimate["estimate"] + 0.8 * items["steps"].std(ddof=0)) < 3 * estimate["se"]
    assert by_items.residual_sd == pytest.approx(0.4, abs=0.12)
    assert np.corrcoef(f.abilities.theta, theta)[0, 1] > 0.95
    assert list(by_items.variances().index) == ["residual", "topic"]


@pytest.mark.slow
def test_features_reduce_the_error():
    """With six answers each, abilities given features are nearer to the truth."""
    r, subjects, _, theta, _ = simulated(1, n=2000, n_items=6)
    few = r
    plain = fit(few, "rasch", **NO_ERRORS).abilities
    known = fit(few, "rasch", subject_features=subjects, **NO_ERRORS).abilities
    truth = theta - theta.mean()
    assert np.mean((known.theta - truth) ** 2) < 0.7 * np.mean((plain.theta - truth) ** 2)
    covered = np.mean((known.lower < truth) & (truth < known.upper))
    assert 0.9 < covered < 0.99


@pytest.mark.slow
def test_intervals_of_new_items_and_subjects_cover():
    """200 replications: 95 % intervals of what nobody answered cover 93-97 %."""
    inside = {"items": [], "subjects": []}
    for seed in range(200):
        r, subjects, items, theta, d = simulated(seed, n=240, n_items=50)
        some = r.subset(subjects=np.arange(200), items=np.arange(40))
        f = fit(
            some,
            "rasch",
            subject_features=subjects.iloc[:200],
            item_features=items.iloc[:40],
            **NO_ERRORS,
        )
        shift = theta[:200].mean()  # the scale's origin is the mean of the calibration subjects
        new = f.predict_items(items.iloc[40:])
        off = new.parameters()[:, 0] - (d[40:] + shift)
        inside["items"].append(np.abs(off) < 1.96 * np.sqrt(new.covariance[:, 0, 0]))
        predicted = f.predict_subjects(subjects.iloc[200:])
        off = predicted["mean"].to_numpy() - (theta[200:] - shift)
        inside["subjects"].append(np.abs(off) < 1.96 * predicted["sd"].to_numpy())
    for kind, hits in inside.items():
        assert 0.93 < np.mean(hits) < 0.97, kind


@pytest.mark.slow
def test_predicted_items_are_used_with_their_uncertainty():
    """EAP on predicted items is the integral over ability and item parameters."""
    r, _, items, _, _ = simulated(2)
    f = fit(r.subset(items=np.arange(50)), "2pl", item_features=items.iloc[:50], **NO_ERRORS)
    new = f.predict_items(items.iloc[50:])
    assert (new.to_frame()["flag"] == "predicted").all()
    assert new.has("predicted").all()
    answers = r.subset(subjects=np.arange(20), items=np.arange(50, 60))
    ours = score(new, answers)
    rng, theta = np.random.default_rng(0), np.linspace(-5, 5, 201)
    params, root = new.parameters(), np.sqrt(np.einsum("jpp->jp", new.covariance))
    draws = params + root * rng.standard_normal((4000, *params.shape))
    p = expit(draws[..., :1] * theta + draws[..., 1:]).mean(axis=0)
    x = answers.values
    log_lik = x @ np.log(p) + (1 - x) @ np.log(1 - p)
    weights = np.exp(log_lik - 0.5 * theta**2)
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours.theta, weights @ theta, atol=0.02)
    b = -params[:, 1] / params[:, 0]
    certain = ItemBank.from_parameters(a=params[:, 0], b=b, item_ids=new.item_ids)
    assert (ours.se > score(certain, answers).se).all()


@pytest.mark.slow
def test_banks_of_known_and_predicted_items_go_everywhere(tmp_path):
    r, _, items, theta, _ = simulated(3)
    f = fit(r.subset(items=np.arange(50)), "rasch", item_features=items.iloc[:50])
    new = f.predict_items(items.iloc[50:])
    both = f.bank.join(new, same_scale=True)
    curves = both.expected_curves()
    assert curves.model.key == "2pl"
    assert (curves.to_frame()["a"].iloc[50:] < 1).all()
    np.testing.assert_allclose(curves.to_frame()["a"].iloc[:50], 1.0)
    np.testing.assert_allclose(curves.to_frame()["b"].iloc[:50], f.bank.to_frame()["b"])
    assert ItemBank.load(both.save(tmp_path / "both.npz")) == both
    assert np.corrcoef(score(both, r).theta, theta)[0, 1] > 0.9
    assert len(select(both, 10, strategy="fisher").item_ids) == 10
    report = simulate(both, [0.0, 1.0], Config(max_items=5), seed=1)
    assert report.n_items.tolist() == [5, 5]


def test_an_item_that_says_little_is_chosen_less():
    """Of two items of the same parameters, the certain one informs more."""
    table = pd.DataFrame({"predicted": [False, True]}, index=["known", "new"])
    bank = ItemBank.from_parameters(a=[1.5, 1.5], b=[0.0, 0.0], item_ids=["known", "new"])
    unsure = np.stack([np.zeros((2, 2)), np.diag([0.1, 1.0])])
    bank = ItemBank(bank.model, bank.item_ids, covariance=unsure, statistics=table)
    assert select(bank, 1, strategy="fisher").item_ids.tolist() == ["known"]
    assert bank.expected_curves().expected_curves().to_frame()["a"]["new"] == pytest.approx(
        bank.expected_curves().to_frame()["a"]["new"]
    )


@pytest.mark.slow
def test_fifteen_subjects_and_hundred_items_are_finite():
    rng = np.random.default_rng(0)
    x = (rng.random((15, 100)) < expit(rng.normal(size=(15, 1)) - 2.5)).astype(int)
    r = Responses.from_array(x)
    assert (x.sum(axis=0) == 0).any()
    wide = pd.DataFrame(rng.normal(size=(110, 500)), [f"i{j + 1}" for j in range(110)])
    f = fit(r, "1pl", item_features=wide.iloc[:100], **NO_ERRORS)
    new = f.predict_items(wide.iloc[100:])
    assert np.isfinite(new.parameters()).all()
    assert np.isfinite(f.abilities.theta).all()
    assert (np.einsum("jpp->jp", new.covariance)[:, 1] > 0).all()


@pytest.mark.slow
def test_items_without_answers_have_what_features_say():
    r, _, items, _, _ = simulated(4, n=200, n_items=30)
    values = r.values.copy()
    values[:, 20:] = -1
    gaps = Responses.from_array(np.where(values < 0, np.nan, values), item_ids=r.item_ids)
    for kind in ("block", "full"):
        f = fit(gaps, "rasch", item_features=items, standard_errors=kind)
        mean, variance = f.item_regressions["intercept"].predict(items.iloc[20:])
        np.testing.assert_allclose(f.bank.parameters()[20:, 0], mean, atol=1e-3)
        np.testing.assert_allclose(f.bank.covariance[20:, 0, 0], variance, rtol=0.02)
    draws = np.asarray(f.bank.draws(4000).intercept)[:, 20:]
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.15)


@pytest.mark.slow
def test_a_category_that_was_not_seen_is_uncertain():
    r, subjects, _, _, _ = simulated(5, n=400)
    f = fit(r, "rasch", subject_features=subjects, **NO_ERRORS)
    rows = subjects.iloc[[0, 0]].set_axis(["seen", "unseen"])
    rows.loc["unseen", "lab"] = "another"
    predicted = f.predict_subjects(rows)
    assert predicted.loc["unseen", "sd"] > predicted.loc["seen", "sd"]


@pytest.mark.slow
def test_score_takes_a_prior_for_each_subject():
    bank = ItemBank.from_parameters(a=[1.0, 1.5, 0.7], b=[-1.0, 0.0, 1.0])
    r = Responses.from_array([[1, 0, 1], [0, 0, 0]], item_ids=bank.item_ids)
    prior = pd.DataFrame({"mean": [1.0, -0.5], "sd": [0.5, 2.0]}, index=r.subject_ids)
    theta = np.linspace(-12, 12, 4001)
    p = expit(np.array([[1.0], [1.5], [0.7]]) * (theta - np.array([[-1.0], [0.0], [1.0]])))
    expected = []
    for row, (mean, sd) in zip(r.values, prior.to_numpy(), strict=True):
        weights = np.prod(np.where(row[:, None] == 1, p, 1 - p), axis=0)
        weights = weights * np.exp(-0.5 * ((theta - mean) / sd) ** 2)
        weights /= weights.sum()
        expected.append([weights @ theta, np.sqrt(weights @ theta**2 - (weights @ theta) ** 2)])
    for given in (prior, (prior["mean"].to_numpy(), prior["sd"].to_numpy())):
        ours = score(bank, r, prior=given)
        np.testing.assert_allclose(np.c_[ours.theta, ours.se], expected, atol=1e-5)
    assert score(bank, r, prior=(0, 1)).theta.tolist() == pytest.approx(score(bank, r).theta)


@pytest.mark.slow
def test_predict_takes_a_prior():
    """A model that has answered nothing is predicted from its features alone."""
    r, subjects, _, _, _ = simulated(6, n=500)
    old, new = np.arange(400), np.arange(400, 500)
    f = fit(r.subset(subjects=old), "rasch", subject_features=subjects.iloc[:400], **NO_ERRORS)
    predicted = f.predict_subjects(subjects.iloc[400:])
    values = np.full((100, 3), np.nan)
    values[:50] = r.values[400:450, :3]
    few = Responses.from_array(values, item_ids=r.item_ids[:3], subject_ids=r.subject_ids[new])
    truth = r.values[new].mean(axis=1)
    plain = predict(f, r.item_ids[:3], few, estimator="irt")
    known = predict(f, r.item_ids[:3], few, estimator="irt", prior=predicted)
    for rows in (slice(0, 50), slice(50, 100)):
        error = [np.abs(p.score[rows] - truth[rows]).mean() for p in (plain, known)]
        assert error[1] < 0.85 * error[0]
    assert np.mean((known.lower <= truth) & (truth <= known.upper)) > 0.88
    with pytest.raises(InputError, match="left out but for auto, irt, pirt"):
        predict(f, r.item_ids[:3], few, estimator="ridge", prior=predicted)


@pytest.mark.slow
def test_the_default_estimator_takes_a_prior():
    r, subjects, _, _, _ = simulated(6, n=500)
    old, new = np.arange(400), np.arange(400, 500)
    calibration = r.subset(subjects=old)
    f = fit(calibration, "2pl", subject_features=subjects.iloc[:400], **NO_ERRORS)
    predicted = f.predict_subjects(subjects.iloc[400:])
    values = np.full((100, 3), np.nan)
    values[:50] = r.values[400:450, :3]
    few = Responses.from_array(values, item_ids=r.item_ids[:3], subject_ids=r.subject_ids[new])
    truth = r.values[new].mean(axis=1)
    plain = predict(f, r.item_ids[:3], few)
    known = predict(f, r.item_ids[:3], few, prior=predicted)
    error = [np.abs(p.score - truth)[:50].mean() for p in (plain, known)]
    assert error[1] < 0.95 * error[0]
    assert (known.upper - known.lower)[:50].mean() < (plain.upper - plain.lower)[:50].mean()
    assert np.isnan(plain.score[50:]).all()
    by_irt = predict(f, r.item_ids[:3], few, estimator="irt", prior=predicted)
    # Without answers both are the prior; irt adds the chance of single answers to the interval.
    np.testing.assert_allclose(known.score[50:], by_irt.score[50:], atol=0.005)
    assert (known.flag[50:] == "no responses").all()
    assert np.mean((known.lower <= truth) & (truth <= known.upper)) > 0.85
    # The population's distribution as a prior says nothing new, but that scores are 0 to 1: the
    # Normal of an estimate from three answers is cut off there.
    same = predict(f, r.item_ids[:3], few, prior=(0.0, 1.0), expect="similar")
    alone = predict(f, r.item_ids[:3], few, expect="similar")
    np.testing.assert_allclose(same.score[:50], alone.score[:50], atol=0.02)
    # A flat prior moves scores outwards, in the order of the answers; one far from all abilities.
    wide = predict(f, r.item_ids[:3], few, prior=(0.0, 1e6), expect="similar").score[:50]
    n_right = values[:50].sum(axis=1)
    means = [wide[n_right == n].mean() for n in range(4)]
    assert 0.02 < means[0] < means[1] < means[2] < means[3] < 0.99
    far = predict(f, r.item_ids[:3], few, prior=(50.0, 0.1))
    assert np.isfinite(far.score).all()
    with pytest.raises(InputError, match="`expect` argument must be None or similar with a prior"):
        predict(f, r.item_ids[:3], few, prior=predicted, expect="stronger")
    with pytest.raises(InputError, match="None with fewer than 8 calibrated subjects"):
        predict(calibration.subset(subjects=range(6)), r.item_ids[:3], few, bank=f, prior=predicted)


@pytest.mark.slow
def test_a_leaderboard_measures_what_features_are_worth():
    r, subjects, _, _, _ = simulated(6, n=240)
    errors = {}
    for features in (None, subjects):
        board = evaluate(
            r,
            ["stratified"],
            [4],
            seeds=range(3),
            estimators=["auto", "mean"],
            subject_features=features,
        )
        errors[features is None] = board.summary().groupby("estimator")["mae"].mean()
    assert errors[False]["auto"] < 0.97 * errors[True]["auto"]
    assert errors[False]["mean"] == errors[True]["mean"]
    with pytest.raises(InputError, match="a row of every subject"):
        evaluate(r, ["random"], [4], subject_features=subjects.iloc[:-1])
    with pytest.raises(InputError, match="None or similar with features"):
        evaluate(r, ["random"], [4], subject_features=subjects, expect="stronger")


@pytest.mark.slow
def test_the_prior_of_a_session_counts_in_its_full_score():
    r, _, _, _, d = simulated(6, n=200)
    bank = ItemBank.from_parameters(b=-d, item_ids=r.item_ids)
    scores = {}
    for prior in (None, (0.0, 1.0), (1.5, 0.4), (-1.5, 0.4)):
        session = Session.begin(bank, Config(max_items=3), prior=prior)
        while not session.is_over:
            session.answer(session.asked[0], len(session.to_frame()) % 2)
        scores[prior] = session.full_score(r).score
    assert scores[None] == scores[0.0, 1.0]
    assert scores[-1.5, 0.4] < scores[1.5, 0.4]


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ((0.0, 0.0), "SDs above 0"),
        ((np.nan, 1.0), "finite means"),
        (3, "a table of mean and sd"),
        (pd.DataFrame({"mean": [0.0]}, index=["s1"]), "the columns"),
        (pd.DataFrame({"mean": [0.0], "sd": [1.0]}, index=["s1"]), "none for 's2'"),
    ],
)
def test_priors_that_are_refused(prior, words):
    bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[0.0, 1.0])
    r = Responses.from_array([[1, 0], [0, 1]], subject_ids=["s1", "s2"], item_ids=bank.item_ids)
    with pytest.raises(InputError, match=words):
        score(bank, r, prior=prior)
    with pytest.raises(InputError, match="left out but for eap"):
        score(bank, r, "ml", prior=prior)


def test_arguments_that_are_refused(regressed):
    r, table = regressed
    few, rows = r.subset(subjects=np.arange(50)), table.iloc[:50]
    items = pd.DataFrame({"w": np.arange(12.0)}, index=r.item_ids)

    def refused(words, *args, **options):
        with pytest.raises(InputError, match=words):
            fit(few, *args, **options)

    refused("row for every subject.*none for 10", subject_features=rows.iloc[:40])
    refused("row for every item.*none for 2", item_features=items.iloc[2:])
    refused("`groups`.*A column of groups", subject_features=rows, groups=["a", "b"] * 25)
    refused("`groups`", subject_features=rows, groups=np.array(["a", "b"] * 25))
    refused("`theta`", subject_features=rows, theta=np.arange(50.0))
    refused("`pattern`", subject_features=rows, pattern=np.eye(12, 2))
    refused("`dims`", subject_features=rows, dims=2)
    refused("`subject_features`.*not for the solver", subject_features=rows, solver="vi")
    refused("`checkpoint`", subject_features=rows, solver=EM(checkpoint="x"))
    refused("`item_residual`", item_residual=False)
    refused("`priors`.*without slope", item_features=items, priors={"slope": (1, 1)})
    with pytest.raises(InputError, match="of a fit with item_features"):
        fit(few, "rasch", **NO_ERRORS).predict_items(items)
    with pytest.raises(InputError, match="of a fit with subject_features"):
        fit(few, "rasch", **NO_ERRORS).predict_subjects(rows)
    graded = Responses.from_array(np.random.default_rng(0).integers(0, 3, (60, 4)))
    table = pd.DataFrame({"w": [1.0, 2.0, 3.0, 5.0]}, index=graded.item_ids)
    with pytest.raises(InputError, match=r"several intercepts an item.*'graded' or 'rsm'"):
        fit(graded, "gpcm", item_features=table)


@pytest.mark.slow
def test_float32_is_near_float64():
    r, subjects, items, _, _ = simulated(7)
    both = {"subject_features": subjects, "item_features": items, **NO_ERRORS}
    ours, exact = (fit(r, "2pl", EM(precision=name), **both) for name in ("float32", "float64"))
    assert ours.converged
    np.testing.assert_allclose(ours.bank.parameters(), exact.bank.parameters(), atol=0.02)


@pytest.mark.slow
def test_features_that_explain_everything_leave_a_tenth():
    """Answers without any differences of ability: the residual is held, and the fit says so."""
    rng = np.random.default_rng(0)
    r = Responses.from_array(rng.integers(0, 2, (80, 12)))
    table = pd.DataFrame({"x": rng.normal(size=80)}, index=r.subject_ids)
    f = fit(r, "rasch", subject_features=table, **NO_ERRORS)
    assert "residual SD is held" in f.message
    assert np.isfinite(f.abilities.theta).all()


@pytest.mark.slow
def test_graded_items_take_subject_features():
    rng = np.random.default_rng(0)
    size = rng.normal(size=500)
    theta = 0.8 * size + 0.6 * rng.normal(size=500)
    noisy = theta[:, None] + rng.logistic(size=(500, 8)) + np.linspace(-1, 1, 8)
    r = Responses.from_array((noisy > -1).astype(int) + (noisy > 1))
    table = pd.DataFrame({"size": size}, index=r.subject_ids)
    f = fit(r, "graded", subject_features=table, **NO_ERRORS)
    assert f.converged
    assert f.subject_regression.to_frame().loc["size", "estimate"] == pytest.approx(0.8, abs=0.06)


def graded_items(seed, n=300, items=60, top=3):
    """Responses in categories 0..top whose first intercept depends on a feature."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=items)
    first = 1.0 + 0.8 * w + 0.4 * rng.normal(size=items)
    gap = np.exp(0.2 + 0.3 * rng.normal(size=(items, top - 1)))
    intercepts = np.column_stack([first, first[:, None] - np.cumsum(gap, axis=1)])
    theta = rng.normal(size=n)
    noisy = theta[:, None] + rng.logistic(size=(n, items))
    x = (noisy[:, :, None] + intercepts > 0).sum(axis=2)
    r = Responses.from_array(x)
    return r, pd.DataFrame({"w": w}, index=r.item_ids), intercepts, theta


@pytest.mark.slow
def test_features_predict_graded_items():
    """Intervals of new items' first intercepts, and of abilities scored by new items alone."""
    inside, covered = [], []
    for seed in range(6):
        r, table, intercepts, theta = graded_items(seed)
        known, new = r.item_ids[:40], r.item_ids[40:]
        f = fit(r.subset(items=known), "graded", item_features=table, **NO_ERRORS)
        assert f.converged
        predicted = f.predict_items(table.loc[new])
        off = predicted.parameters()[:, 1] - intercepts[40:, 0]
        inside += (np.abs(off) < 1.96 * np.sqrt(predicted.covariance[:, 1, 1])).tolist()
        scored = score(predicted, r.subset(items=new)).to_frame()
        covered += (np.abs(scored["theta"] - theta) < 1.96 * scored["se"]).tolist()
    assert 0.89 <= np.mean(inside) <= 0.99
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.slow
def test_expected_curves_of_graded_items_are_near_the_integral():
    r, table, _, _ = graded_items(1)
    f = fit(r, "graded", item_features=table, **NO_ERRORS)
    predicted = f.predict_items(pd.DataFrame({"w": [0.5]}, index=["new"]))
    curves = predicted.expected_curves()
    mean, sd = predicted.parameters()[0], np.sqrt(np.diagonal(predicted.covariance[0]))
    normal = mean + sd * np.random.default_rng(0).normal(size=(200_000, len(mean)))
    steps = normal[:, [1]] - np.cumsum(np.exp(np.insert(normal[:, 2:], 0, -np.inf, axis=1)), axis=1)
    for t in (-1.5, 0.0, 1.5):
        reached = expit(normal[:, [0]] * t + steps).mean(axis=0)
        expected = reached.sum() / 3
        curve = float(expected_responses(curves.model, np.array([t]))[0, 0]) / 3
        assert curve == pytest.approx(expected, abs=0.006)
    flat = curves.to_frame()["a"].iloc[0]
    assert flat < 0.97 * predicted.to_frame()["a"].iloc[0]


@pytest.mark.slow
def test_new_graded_items_have_as_many_categories_as_stated():
    r, table, _, _ = graded_items(2)
    x = r.to_numpy().astype(int)
    x[:, ::3] = np.minimum(x[:, ::3], 2)
    f = fit(Responses.from_array(x), "graded", item_features=table, **NO_ERRORS)
    new = table.iloc[:3].set_axis(["x", "y", "z"])
    with pytest.raises(InputError, match=r"`categories`.*stated, since .* have 3 to 4"):
        f.predict_items(new)
    with pytest.raises(InputError, match=r"`categories`.*of calibrated items.*Got 7"):
        f.predict_items(new, categories=7)
    with pytest.raises(InputError, match=r"`categories`.*every item.*none for z"):
        f.predict_items(new, categories=pd.Series({"x": 3, "y": 4}))
    assert f.predict_items(new, categories=3).to_frame()["b3"].isna().all()
    mixed = f.predict_items(new, categories=pd.Series({"z": 3, "x": 4, "y": 3}))
    assert mixed.to_frame()["b3"].notna().tolist() == [True, False, False]
    gaps = f.bank.parameters()[:, 3][x.max(axis=0) == 3]
    assert mixed.parameters()[0, 3] == pytest.approx(gaps.mean())


@pytest.mark.slow
def test_the_linear_logistic_test_model_counts_its_coefficients():
    rng = np.random.default_rng(0)
    r = Responses.from_array(rng.integers(0, 2, (200, 12)))
    table = pd.DataFrame({"x": rng.normal(size=12), "y": rng.normal(size=12)}, index=r.item_ids)
    f = fit(r, "rasch", item_features=table, item_residual=False, **NO_ERRORS)
    assert f.n_parameters == 4  # intercept, two coefficients, SD


def test_coefficients_of_items_and_of_subjects_count_together():
    rng = np.random.default_rng(0)
    r = Responses.from_array(rng.integers(0, 2, (100, 6)))
    options = {
        "subject_features": pd.DataFrame({"z": rng.normal(size=100)}, index=r.subject_ids),
        "item_features": pd.DataFrame({"x": rng.normal(size=6)}, index=r.item_ids),
    }
    quick = EM(max_iterations=2)
    subjects = fit(r, "rasch", quick, subject_features=options["subject_features"], **NO_ERRORS)
    both = fit(r, "rasch", quick, item_residual=False, **options, **NO_ERRORS)
    assert both.n_parameters == subjects.n_parameters - 6 + 2  # intercept and x, not 6 intercepts


@pytest.mark.parametrize("fixed", [True, False])
def test_wide_tables_are_solved_by_conjugate_gradients(fixed, monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 30)) * np.geomspace(0.3, 3, 30)
    y = x @ rng.standard_normal(30) * 0.2 + rng.standard_normal(400)
    precision = rng.gamma(2.0, 2.0, 400)
    precision[:5] = 0.0  # nobody answered
    data = regression.NormalData(precision, precision * y)
    layout = regression.Column(np.zeros(30, int), np.array([fixed]))
    exact = regression.regress(x, data, layout)
    assert regression.wide_table(x) is None
    monkeypatch.setattr(regression, "LARGEST_WORK", 1e4)
    monkeypatch.setattr(regression, "LARGEST_SAMPLE", 400)
    wide = regression.wide_table(x)
    assert wide is not None
    near = regression.regress(x, data, layout, wide=wide)
    np.testing.assert_allclose(near.coefficients, exact.coefficients, atol=1e-5)
    assert near.residual_sd == pytest.approx(exact.residual_sd, rel=1e-5)
    np.testing.assert_allclose(near.errors, exact.errors, rtol=0.1)
    new = rng.standard_normal((200, 30))
    np.testing.assert_allclose(near.variance(new).mean(), exact.variance(new).mean(), rtol=0.02)
    equal = regression.NormalData(np.full(400, 2.0), 2 * y)
    np.testing.assert_allclose(
        regression.regress(x, equal, layout, wide=wide).errors,
        regression.regress(x, equal, layout).errors,
        rtol=1e-3,
    )


@pytest.mark.slow
def test_the_sample_of_a_wide_table_does_not_saturate_its_regression(monkeypatch):
    # 100 fixed coefficients would explain the 100 sampled items without residual.
    monkeypatch.setattr(regression, "LARGEST_WORK", 1e4)
    monkeypatch.setattr(regression, "LARGEST_SAMPLE", 100)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 100))
    easiness = 0.7 * (x @ rng.standard_normal(100)) / 10 + 0.7 * rng.standard_normal(500)
    p = expit(rng.standard_normal(200)[:, None] + easiness)
    r = Responses.from_array((rng.random(p.shape) < p).astype(np.int8))
    f = fit(r, "rasch", item_features=pd.DataFrame(x, index=r.item_ids), **NO_ERRORS)
    assert f.converged
    assert f.item_regressions["intercept"].residual_sd == pytest.approx(0.7, abs=0.1)

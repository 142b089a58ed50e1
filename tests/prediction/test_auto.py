"""The default estimator and strategy: their parts by brute force, and what they are for."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import beta, norm, skewnorm

from irtcat import InputError, ItemBank, Responses, predict, select, select_next, short_form
from irtcat.prediction import auto, full_scores, score_rule, subjects
from irtcat.prediction.curves import GRID as CURVE_GRID
from irtcat.prediction.curves import Curves
from irtcat.prediction.equating import GRID, HELD, TEMPER, Below, Equating, full_score_curves
from irtcat.prediction.intervals import mixture_interval
from irtcat.prediction.out_of_range import Estimates, Evidence, Priors, Range, shared_priors
from irtcat.prediction.regression import ridge_path
from irtcat.selection import rechoose
from irtcat.selection.balanced import eligible_share, layout
from irtcat.selection.curves import ScoreCurves, score_curves
from irtcat.selection.expectation import ScoreSummary
from irtcat.selection.gaussian import continued

N_ITEMS = 300


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return ItemBank.from_parameters(a=rng.lognormal(0, 0.4, N_ITEMS), b=rng.normal(0, 1.3, N_ITEMS))


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.random.default_rng(2).normal(-0.7, 0.6, 120), seed=2)


@pytest.fixture(scope="module")
def alike(bank):
    return bank.simulate(np.random.default_rng(3).normal(-0.7, 0.6, 60), seed=3)


@pytest.fixture(scope="module")
def beyond(bank):
    """Stronger than any calibrated subject."""
    return bank.simulate(np.random.default_rng(4).uniform(1.8, 2.8, 40), seed=4)


def error(told, new):
    return np.abs(told.score - full_scores(new)).mean()


# --- what it is for


@pytest.mark.slow
def test_better_than_means_for_subjects_like_the_calibrated_ones(calibration, alike):
    subset = select(None, 30, calibration=calibration)
    assert subset.strategy == "balanced"
    told = predict(calibration, subset, alike, level=0.9)
    means = [
        error(predict(calibration, fair, alike, estimator="mean"), alike)
        for fair in (
            select(None, 30, strategy="stratified", calibration=calibration, seed=seed)
            for seed in range(5)
        )
    ]
    assert error(told, alike) < 0.8 * np.mean(means)
    assert (told.to_frame()["estimator"] == "auto: regression").mean() > 0.9
    truth = full_scores(alike)
    assert ((told.lower <= truth) & (truth <= told.upper)).mean() >= 0.8


@pytest.mark.slow
def test_everyone_with_items_of_its_own(calibration, alike):
    """As an adaptive test leaves them: hard items for the strong, easy ones for the weak."""
    rng = np.random.default_rng(8)
    easiness = np.argsort(np.argsort(-calibration.to_numpy().mean(0))) / N_ITEMS
    answers = alike.to_numpy().astype(int)
    truth = full_scores(alike)
    for row, score in enumerate(truth):
        near = np.argsort(np.abs(easiness - score) + rng.uniform(0, 0.2, N_ITEMS))
        answers[row, near[25:]] = -1
    asked = Responses.from_array(answers, item_ids=alike.item_ids)
    every = select(None, N_ITEMS, strategy="random", calibration=calibration)
    told = predict(calibration, every, asked, level=0.9)
    assert error(told, alike) < 0.6 * error(
        predict(calibration, every, asked, bank=None, estimator="mean"), alike
    )
    assert ((told.lower <= truth) & (truth <= told.upper)).mean() >= 0.8
    assert np.mean(told.upper - told.lower) < 0.35


@pytest.mark.slow
def test_no_collapse_beyond_the_subjects(calibration, beyond):
    subset = select(None, 60, calibration=calibration)
    told = predict(calibration, subset, beyond, level=0.9)
    ridge = predict(calibration, subset, beyond, estimator="ridge")
    fair = select(None, 60, strategy="stratified", calibration=calibration)
    mean = predict(calibration, fair, beyond, estimator="mean")
    assert error(told, beyond) < 0.5 * error(ridge, beyond)
    assert error(told, beyond) < 1.1 * error(mean, beyond)
    frame = told.to_frame()
    assert (frame["estimator"] == "auto: equating").mean() > 0.9
    assert frame.loc[frame["estimator"] == "auto: equating", "flag"].str.contains("best").all()
    truth = full_scores(beyond)
    assert ((told.lower <= truth) & (truth <= told.upper)).mean() >= 0.85


def test_items_are_chosen_anew_in_the_cross_validation(calibration, alike, monkeypatch):
    """Errors on items that were picked by the same subjects would be far too small."""
    subset = select(None, 20, strategy="score-optimal", calibration=calibration)
    calls = []

    def counted(request, part):
        calls.append(part.n_subjects)
        return rechoose(request, part)

    monkeypatch.setattr(subjects, "rechoose", counted)
    honest = predict(calibration, subset, alike)
    fixed = predict(calibration, subset.item_ids, alike)
    assert calls == [96] * 5
    assert (honest.upper - honest.lower).mean() > 1.1 * (fixed.upper - fixed.lower).mean()


def test_few_subjects(bank, alike):
    few = bank.simulate(np.linspace(-1, 1, 5), seed=1)
    told = predict(few, select(None, 20, strategy="random", calibration=few), alike)
    assert (told.to_frame()["estimator"] == "auto: weighted mean").all()
    assert all("fewer than 8" in flag for flag in told.flag)


@pytest.mark.parametrize("kind", ["constant items", "all alike", "fractions", "gaps"])
def test_awkward_calibrations(kind, calibration, alike):
    X = calibration.to_numpy()
    if kind == "constant items":
        X[:, :250] = 1.0
    elif kind == "all alike":
        X[:] = X[:1]
    elif kind == "fractions":
        X = np.clip(X * 0.8 + 0.1 * np.random.default_rng(0).random(X.shape), 0, 1)
    else:
        X[np.random.default_rng(0).random(X.shape) < 0.4] = np.nan
    data = Responses.from_array(X, item_ids=calibration.item_ids)
    new = (
        alike
        if kind != "fractions"
        else Responses.from_array(alike.to_numpy() * 0.9, item_ids=alike.item_ids)
    )
    told = predict(data, select(None, 20, calibration=data), new)
    assert np.isfinite(told.score).all()
    assert (told.lower <= told.score).all()
    assert (told.score <= told.upper).all()


def without(responses, item_ids, share):
    """The responses without answers to the last items of a list, as of runs that were stopped."""
    x = responses.to_numpy()
    x[:, np.isin(responses.item_ids, item_ids[round(share * len(item_ids)) :])] = np.nan
    return Responses.from_array(x, responses.subject_ids, responses.item_ids)


@pytest.mark.slow
@pytest.mark.parametrize("as_ids", [False, True], ids=["subset", "list of ids"])
def test_subjects_with_the_same_missing_answers_do_not_depend_on_each_other(
    calibration, alike, as_ids
):
    subset = select(None, 20, calibration=calibration)
    answered = without(alike.subset(subjects=range(6)), subset.item_ids, 0.5)
    items = list(subset.item_ids) if as_ids else subset
    together = predict(calibration, items, answered, pooled=False)
    alone = predict(calibration, items, answered.subset(subjects=[2]), pooled=False)
    for column in ("score", "lower", "upper"):
        values = getattr(together, column)
        assert values[2] == pytest.approx(getattr(alone, column)[0], abs=1e-12)
        assert len(np.unique(values)) > 3


@pytest.mark.slow
def test_missing_answers_leave_intervals_valid_for_all_of_a_group(calibration, alike):
    """Also for its weakest and strongest: stand-ins near the group's mean covered .55 of these."""
    truth, errors, covered = full_scores(alike), [], []
    for seed in range(4):
        subset = select(None, 60, calibration=calibration, seed=seed)
        predicted = predict(calibration, subset, without(alike, subset.item_ids, 0.5))
        errors.append(np.abs(predicted.score - truth))
        covered.append((predicted.lower <= truth) & (truth <= predicted.upper))
    is_end = np.abs(truth - truth.mean()) > truth.std()
    assert np.mean(covered) >= 0.92
    assert np.mean(np.array(covered)[:, is_end]) >= 0.9
    assert np.mean(errors) < 0.043  # .046 with those stand-ins


# --- its parts


def test_curves_are_at_the_top_of_their_penalised_likelihood():
    rng = np.random.default_rng(0)
    x = (rng.random((80, 6)) < expit(rng.normal(size=(80, 1)) + rng.normal(size=6))).astype(float)
    curves = score_curves(x)
    score = x.mean(axis=1)
    parts = np.array_split(np.argsort(score, kind="stable"), 40)
    size = np.array([len(p) for p in parts])
    total = np.stack([x[p].sum(0) for p in parts])
    t = logit((np.array([score[p].mean() for p in parts]) + 0.005) / 1.01)
    centre = size @ t / size.sum()

    def value(intercept, slope):
        p = expit(intercept + t[:, None] * slope)
        likelihood = (total * np.log(p) + (size[:, None] - total) * np.log1p(-p)).sum()
        level = intercept + slope * centre
        return likelihood - (level**2).sum() / 50 - ((slope - 1) ** 2).sum() / 2 / 0.25

    top = value(*curves)
    for part in range(2):
        for j in range(6):
            for step in (1e-3, -1e-3):
                moved = [np.array(c) for c in curves]
                moved[part][j] += step
                assert value(*moved) < top


def equating_of(curves, item_weights, items, weights):
    of_items = ScoreCurves(curves.intercept[items], curves.slope[items])
    below = Below(-1.0, curves.slope.mean())
    total = full_score_curves(curves, below, item_weights)
    return Equating(of_items, weights, item_weights[items], total, below)


def test_curves_below_the_calibrated_scores_have_a_share_of_their_slopes():
    rng = np.random.default_rng(6)
    curves = ScoreCurves(rng.normal(size=4), rng.uniform(0.5, 1.5, 4))
    end = -0.7
    ours = Below(end, 1.1)(curves)
    for h, share in enumerate(HELD):
        for j in range(4):
            for k in range(0, len(GRID), 15):
                t, (a, b) = GRID[k], (curves.intercept[j], curves.slope[j])
                slope = b if t >= end else share * b + (1 - share) * 1.1
                expected = expit(a + b * end + slope * (t - end))
                assert ours[h, j, k] == pytest.approx(expected, abs=1e-12)


def test_the_posterior_of_the_curves_is_a_sum_over_the_grid():
    rng = np.random.default_rng(7)
    x = (rng.random((90, 6)) < expit(rng.normal(size=(90, 1)) + rng.normal(size=6))).astype(float)
    weights, prior = rng.dirichlet(np.full(6, 3.0)), (-0.4, 0.8)
    curves, items = Curves(x, weights, prior), np.array([1, 4])
    answers = np.array([[1.0, 0.0], [1.0, 1.0]])
    told = curves(items, answers)
    for row, score, sd in zip(answers, told.score, told.sd, strict=True):
        post = np.array(
            [
                norm.pdf(t, *prior) * np.prod(np.where(row == 1, p[items], 1 - p[items])) ** TEMPER
                for t, p in zip(CURVE_GRID, curves.p.T, strict=True)
            ]
        )
        post /= post.sum()
        rest = [j for j in range(6) if j not in items]
        mean = weights[rest] @ curves.p[rest]
        assert score == pytest.approx(weights[items] @ row + post @ mean, abs=1e-9)
        noise = weights[rest] ** 2 @ (curves.p[rest] * (1 - curves.p[rest]))
        assert sd**2 == pytest.approx(post @ (mean - post @ mean) ** 2 + post @ noise, abs=1e-12)
    whole = curves(np.arange(6), x)
    np.testing.assert_allclose(whole.score, x @ weights, atol=1e-12)
    np.testing.assert_allclose(whole.sd, 0, atol=1e-8)


def test_equating_solves_its_equation():
    rng = np.random.default_rng(1)
    curves = ScoreCurves(rng.normal(size=50), rng.uniform(0.5, 1.5, 50))
    chosen, weights = np.arange(0, 50, 5), rng.dirichlet(np.full(10, 5.0))
    target = rng.dirichlet(np.full(50, 5.0))
    x = (rng.random((6, 10)) < 0.5).astype(float)
    x[0, :3] = np.nan
    x[1], x[1, 4] = 0, 1  # below the scores to which the curves were fitted
    equating = equating_of(curves, target, chosen, weights)
    ours = equating.scores(equating.means(x))
    for row, told in zip(x, ours, strict=True):
        seen = ~np.isnan(row)
        w = weights[seen] * target[chosen][seen]
        w /= w.sum()
        mean = np.clip(w @ row[seen], 0.25 * (w**2).sum(), 1 - 0.25 * (w**2).sum())

        def above(t, w=w, items=chosen[seen], mean=mean):
            return w @ curves(np.array([t]), items)[:, 0] - mean

        at = brentq(above, -9, 9)
        assert told == pytest.approx(target @ curves(np.array([at]))[:, 0], abs=1e-4)


def test_ridge_path_is_ridge():
    rng = np.random.default_rng(2)
    x, y, new = rng.normal(size=(30, 5)), rng.normal(size=30), rng.normal(size=(3, 5))
    z = x - x.mean(0)
    unit = 30 * x.var(axis=0).mean()
    for penalty in (0.01, 3.0):
        slopes = np.linalg.solve(z.T @ z + penalty * unit * np.eye(5), z.T @ (y - y.mean()))
        expected = y.mean() + (new - x.mean(0)) @ slopes
        intercept, slopes = ridge_path(x, y, np.array([penalty]))
        ours = intercept + new @ slopes[:, 0]
        np.testing.assert_allclose(ours, expected, atol=1e-8)


def test_the_blend_has_the_smallest_error_of_the_similar_subjects(calibration, alike, monkeypatch):
    """Of regression, equating and factor scores; these are replaced by the scores with noise."""
    seen, rules = [], []
    cross_validated, learn = auto._cross_validated, auto._learn
    monkeypatch.setattr(auto, "_learn", lambda *a, **k: rules.append(learn(*a, **k)) or rules[-1])

    def watched(task, calibrated, run, similar, begin):
        y, fold = calibrated.y, calibrated.subjects.fold
        noisy = y + np.random.default_rng(0).normal(0, 0.03, len(y))

        def factors(self, out=None):
            return SimpleNamespace(scores=lambda *_: 0.5 if out is None else noisy[fold == out])

        monkeypatch.setattr(subjects.Subjects, "factors", factors)
        result = cross_validated(task, calibrated, run, similar, begin)
        seen.append((y, similar, noisy, result))
        return result

    monkeypatch.setattr(auto, "_cross_validated", watched)
    ids = calibration.item_ids[::5]  # the subject may have been asked its own half of them
    new = without(alike.subset(subjects=range(1)), ids, 0.5)
    predict(calibration, list(ids), new)
    ((y, similar, by_factors, (estimates, _, blend, _, shares)),) = seen

    def blended(w, v, r=estimates[0], e=estimates[1], f=by_factors):
        return (1 - v) * (w * r + (1 - w) * e) + v * f

    def loss(w, v):
        return ((blended(w, v) - y)[similar] ** 2).mean()

    assert 0 < shares[1] < 1
    np.testing.assert_allclose(blend, blended(*shares), atol=1e-12)
    least = min(loss(w, v) for w in auto.BLENDS for v in auto.BLENDS)
    assert loss(*shares) == pytest.approx(least, rel=1e-9)
    (rule,) = rules
    x = new.subset(items=ids[: len(ids) // 2]).to_numpy()
    regressed = rule.blend.intercept + x @ rule.blend.slopes
    equated = rule.equating.scores(rule.equating.means(x))
    apart = np.abs(y - equated)
    assert apart[similar].max() <= np.delete(apart, similar).min()  # those near its own score
    expected = blended(*shares, regressed, equated, 0.5)
    np.testing.assert_allclose(rule.mixture(x, None, 0.95).blend, expected, atol=1e-12)


def test_the_further_out_the_likelier_outside():
    rng = np.random.default_rng(3)
    truth = rng.normal(0.4, 0.1, 200)
    told = Estimates(truth, truth + rng.normal(0, 0.03, 200))
    told = Range.of(told)
    score = np.array([0.4, 0.6, 0.65, 0.65, 0.65])
    gap = np.array([0.0, 0.0, 0.0, 0.1, 0.2])
    new = Estimates(score, score + gap)
    outside = Evidence.of(new, told).probability(Priors(0.05, 0.05))
    assert (np.diff(outside) > 0).all()
    assert outside[0] < 0.05
    assert outside[-1] > 0.99
    inwards = Estimates(score, score - gap)
    assert (Evidence.of(inwards, told).probability(Priors(0.05, 0.05))[3:] < outside[3:]).all()


def test_the_evidence_is_that_of_its_distributions():
    """Beyond the range a Beta share beside a half-normal difference with noise, a skew-normal."""
    flat = Range(10**6, np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(2), np.ones(2))
    below, z = np.array([0.03, 0.2, 0.45, 0.55, 0.97])[:, None], np.linspace(-5, 12, 18)
    below, z = (a.ravel() for a in np.broadcast_arrays(below, z))
    found = Evidence.of(Estimates(below, below + z), flat)
    share, sd, sign = 2 * np.minimum(below, 1 - below), np.sqrt(17), np.sign(below - 0.5)
    beyond = beta.pdf(share, 0.3, 6) * skewnorm.pdf(sign * z, 4, scale=sd)
    unlike = np.sqrt(2 * np.pi) * (beyond + 0.1 * norm.pdf(z, scale=sd))
    np.testing.assert_allclose(found.like, np.sqrt(2 * np.pi) * norm.pdf(z), rtol=1e-9)
    np.testing.assert_allclose(found.unlike, unlike, rtol=0.01, atol=0.02 * unlike.max())
    middle = below == 0.45
    np.testing.assert_allclose(found.unlike[middle], unlike[middle], rtol=0.05)


def test_shared_priors_are_shares_with_ten_subjects_before():
    """Of subjects who are certain: none, or all, of the strong ones are out of range."""
    n, like = 30, np.ones(30)
    for unlike, out in ((0.0, 0), (1e12, n)):
        evidence = Evidence(like, np.full(n, unlike), np.ones(n, bool))
        priors = shared_priors(evidence)
        assert priors.stronger == pytest.approx(min((out + 6.5) / (n + 10), 0.85), rel=1e-6)
        assert priors.weaker == pytest.approx(0.65)


def test_the_range_is_the_distribution_of_the_estimates():
    """A table of groups against the subjects themselves."""
    rng = np.random.default_rng(4)
    r = rng.normal(0.5, 0.1, 203)
    difference = 0.3 * r + rng.normal(0, 0.02, 203)
    table = Range.of(Estimates(r, r + difference))
    assert len(table.at) == 203 // 5 + 2
    ranks = np.array([(r <= value).sum() for value in r])
    assert np.abs(table.below(r) - ranks / 204).max() <= 5 / 204
    ends = table.below(np.array([r.min() - 1, r.min(), r.max(), r.max() + 1]))
    assert ends * 204 == pytest.approx([0.5, 1, 203, 203.5])
    at = table.at[20]
    nearest = np.argsort(np.abs(r - at))[:20]
    robust = 1.4826 * np.median(np.abs(difference - np.median(difference)))
    sd = np.sqrt(difference[nearest].var() / 2 + robust**2 / 2)
    assert table.mean[20] == pytest.approx(difference[nearest].mean(), abs=0.005)
    assert table.sd[20] == pytest.approx(sd, rel=0.05)


def test_subjects_with_equal_estimates_are_in_the_middle_of_their_range():
    r = np.full(30, 0.4)
    table = Range.of(Estimates(r, r))
    assert table.below(r[:1]) == pytest.approx(0.5)
    assert table.below(np.array([0.5])) == pytest.approx(30.5 / 31)


def test_folds_follow_the_responses_and_not_the_ids(calibration):
    hashes = subjects.response_hashes(calibration)
    items = np.random.default_rng(1).permutation(calibration.n_items)
    turned = calibration.subset(items=calibration.item_ids[items])
    assert subjects.response_hashes(turned).tolist() == hashes.tolist()
    assert len(set(hashes)) == calibration.n_subjects


def test_interval_of_a_mixture():
    mean, other, share = np.array([0.4, 0.4]), np.array([0.4, 0.7]), np.array([0.0, 0.3])
    low, high = mixture_interval(mean, 0.05, other, np.array([0.05, 0.1]), share, 0.9)
    for i in range(2):
        for end, level in ((low[i], 0.05), (high[i], 0.95)):
            own, far = norm.cdf(end, mean[i], 0.05), norm.cdf(end, other[i], (0.05, 0.1)[i])
            assert (1 - share[i]) * own + share[i] * far == pytest.approx(level, abs=1e-9)


# --- the default strategy


@pytest.mark.parametrize("k", [9, 30, 60, 240])
def test_cells_have_their_share(k, calibration):
    """Every stratum of difficulty gets its share of the places."""
    subset = select(None, k, strategy="balanced", calibration=calibration, seed=5)
    assert len(set(subset.item_ids)) == k
    order = np.argsort(np.argsort(calibration.to_numpy().mean(0), kind="stable"))
    at = np.array([int(name[1:]) - 1 for name in subset.item_ids])
    n_strata = layout(k)[0]
    counts = np.bincount(order[at] * n_strata // N_ITEMS, minlength=n_strata)
    assert np.abs(counts - k / n_strata).max() <= 3  # ties of proportions go either way
    assert subset.weights.sum() == pytest.approx(1)
    again = select(None, k, strategy="balanced", calibration=calibration, seed=6)
    if k < 240:  # beyond, all items of a cell are eligible
        assert (set(again.item_ids) == set(subset.item_ids)) == (eligible_share(k, 120) == 1)


@pytest.mark.slow
def test_the_priors_out_of_range_are_estimated_from_all_subjects(calibration, beyond, alike):
    subset = select(None, 20, calibration=calibration)
    alone = predict(calibration, subset, beyond, pooled=False)
    together = predict(calibration, subset, beyond)
    shares = [(one.how == "equating").mean() for one in (alone, together)]
    assert shares[1] >= shares[0]
    assert shares[1] > 0.9
    assert error(together, beyond) <= error(alone, beyond)
    within = predict(calibration, subset, alike)
    assert (within.how == "regression").mean() > 0.9
    assert max(within.shared_priors) < 0.65 < together.shared_priors[0]
    assert together.shared_priors[1] == 0.65  # all are strong
    assert f"{together.shared_priors[0]:.2f} of strong" in together.pooling
    assert alone.shared_priors is None
    assert alone.pooling == ""


@pytest.mark.slow
def test_answers_that_contradict_an_expectation_widen_its_interval(
    calibration, alike, beyond, monkeypatch
):
    """Told a wrong kind, intervals hold more scores than without doubt; scores stay."""
    for expect, wrong, right in (("similar", beyond, alike), ("stronger", alike, beyond)):
        subset = select(None, 30, calibration=calibration, expect=expect)
        told = [predict(calibration, subset, new, pooled=False) for new in (wrong, right)]
        with monkeypatch.context() as patch:
            patch.setattr(score_rule, "DOUBT", 0.0)
            sure = [predict(calibration, subset, new, pooled=False) for new in (wrong, right)]
        truth = full_scores(wrong)
        inside = [(p.lower <= truth) & (truth <= p.upper) for p in (sure[0], told[0])]
        assert inside[1].mean() > inside[0].mean()
        assert (told[0].score == sure[0].score).all()
        assert (told[1].score == sure[1].score).all()
        widths = [(p.upper - p.lower).mean() for p in (sure[1], told[1])]
        assert widths[0] <= widths[1] < 1.15 * widths[0]


def test_few_right_answers_do_not_confirm_that_subjects_are_similar(calibration, beyond):
    """Regression and equating agree on five answers: the curves show what else is likely."""
    subset = select(None, 5, calibration=calibration, expect="similar")
    p, truth = predict(calibration, subset, beyond, pooled=False), full_scores(beyond)
    assert ((p.lower <= truth) & (truth <= p.upper)).mean() > 0.8


@pytest.mark.slow
def test_a_subject_alone_has_nothing_to_share(calibration, alike):
    """One with answers beside one without, too; and a short form shares as `predict` does."""
    subset = select(None, 20, calibration=calibration)
    alone = predict(calibration, subset, alike, pooled=False).to_frame()
    one = predict(calibration, subset, alike.subset(subjects=[3]))
    assert one.shared_priors is None
    assert one.to_frame().iloc[0].to_dict() == alone.iloc[3].to_dict()
    answers = alike.subset(subjects=[3, 4], items=subset.item_ids).to_numpy().copy()
    answers[1] = np.nan
    new = Responses.from_array(answers, item_ids=subset.item_ids)
    assert predict(calibration, subset, new).shared_priors is None
    assert predict(calibration, subset, alike, expect="similar").shared_priors is None
    form = short_form(calibration, subset=subset)
    for pooled in (True, False):
        expected = predict(calibration, subset, alike, pooled=pooled)
        found = form.predict(alike, pooled=pooled)
        assert found.shared_priors == expected.shared_priors
        np.testing.assert_allclose(found.score, expected.score, atol=1e-9)


def test_quotas_come_before_cells(calibration):
    groups = np.where(np.arange(N_ITEMS) < 60, "a", "b")
    subset = select(
        None, 40, strategy="balanced", calibration=calibration, groups=groups, quotas={"a": 20}
    )
    at = np.array([int(name[1:]) - 1 for name in subset.item_ids])
    assert (at < 60).sum() == 20
    # Each of the 60 stands for 3 items in 20, each of the 240 for 12.
    assert subset.weights[at < 60].sum() == pytest.approx(60 / 300)


# --- in two stages


def test_the_second_stage_follows_from_the_first(calibration, alike, beyond):
    first = select(None, 20, strategy="stratified", calibration=calibration, seed=1)
    told = {}
    for name, new in (("alike", alike), ("beyond", beyond)):
        answers = new.subset(items=first.item_ids)
        both = select_next(None, first, answers, 20, calibration=calibration)
        assert len(both) == len(set(both.item_ids)) == 40
        assert both.item_ids[:20].tolist() == first.item_ids.tolist()
        assert both.weights.sum() == pytest.approx(1)
        told[name] = both, predict(calibration, both, new)
    assert told["alike"][0].strategy == "two-stage: score-optimal"
    assert told["beyond"][0].strategy == "two-stage: stratified"
    alone = predict(calibration, first, alike)
    assert error(told["alike"][1], alike) < error(alone, alike)
    part = calibration.subset(subjects=range(0, 120, 2))
    again = rechoose(told["alike"][0].request, part)
    assert again.strategy == "two-stage: score-optimal"
    assert len(set(again.item_ids)) == 40


def test_further_items_are_the_greedy_ones_given_the_first(calibration):
    """Conditioning on the first items, by inverting the shrunk covariance."""
    x = calibration.to_numpy()[:, :40]
    data = Responses.from_array(x)
    first = np.array([3, 11, 20])
    sigma = np.cov(x.T, bias=True)
    sigma = 0.7 * sigma + 0.3 * np.diag(np.diag(sigma))
    weight = np.full(40, 1 / 40)
    chosen = list(first)
    for _ in range(3):
        gains = np.full(40, -1.0)
        inner = np.linalg.inv(sigma[np.ix_(chosen, chosen)])
        for j in set(range(40)) - set(chosen):
            cross = sigma[j, chosen] @ inner
            towards = sigma[j] @ weight - cross @ sigma[chosen] @ weight
            gains[j] = towards**2 / (sigma[j, j] - cross @ sigma[chosen, j])
        chosen.append(int(np.argmax(gains)))
    left = np.ones(40, bool)
    left[first] = False
    assert continued(data, first, left, 3, 0).tolist() == chosen[3:]


def test_second_stage_wants_a_subset_and_items_that_are_left(calibration, alike):
    first = select(None, 20, strategy="stratified", calibration=calibration)
    answers = alike.subset(items=first.item_ids)
    with pytest.raises(InputError, match="a Subset"):
        select_next(None, list(first.item_ids), answers, 5, calibration=calibration)
    with pytest.raises(InputError, match="280 items that are left"):
        select_next(None, first, answers, 281, calibration=calibration)


def test_items_that_cannot_be_chosen_anew_are_taken_as_chosen(calibration, alike, monkeypatch):
    subset = select(None, 20, calibration=calibration)

    def refuse(request, others):
        raise InputError("No such choice.")

    as_chosen = predict(calibration, dataclasses.replace(subset, request=None), alike)
    monkeypatch.setattr(subjects, "rechoose", refuse)
    told = predict(calibration, subset, alike)
    np.testing.assert_array_equal(told.score, as_chosen.score)


def test_expected_strength_moves_the_posterior_and_doubt_only_its_interval(calibration, alike):
    subset = select(None, 20, strategy="random", calibration=calibration)
    told = {e: predict(calibration, subset, alike, expect=e) for e in ("weaker", "stronger")}
    assert (told["weaker"].score < told["stronger"].score).all()
    for p in told.values():
        assert error(p, alike) < 0.12
    summary = ScoreSummary.of(full_scores(calibration))
    for kind in score_rule.kinds_of(summary):
        doubted = score_rule.doubted(summary, kind).prior
        assert doubted.sum() == pytest.approx(1)
        assert (doubted >= 0.9 * kind.prior).all()


@pytest.mark.slow
@pytest.mark.parametrize("most", [1500, 40])
def test_the_order_of_the_subjects_does_not_matter(calibration, alike, monkeypatch, most):
    monkeypatch.setattr(subjects, "MOST_SUBJECTS", most)
    subset = select(None, 20, strategy="score-optimal", calibration=calibration)
    rows = np.random.default_rng(0).permutation(calibration.n_subjects)
    told = predict(calibration, subset, alike)
    turned = predict(calibration.subset(subjects=rows), subset, alike)
    np.testing.assert_allclose(turned.score, told.score, atol=1e-6)
    np.testing.assert_allclose(turned.lower, told.lower, atol=1e-5)


def test_select_next_refuses_what_it_cannot_use(calibration, alike):
    first = select(None, 20, strategy="stratified", calibration=calibration)
    run = alike.subset(items=first.item_ids)
    for allowed, must in (([True] * 5, "a mask of 300 items"), (["nobody"], "Got nobody")):
        with pytest.raises(InputError, match=must):
            select_next(None, first, run, 5, calibration=calibration, allowed=allowed)
    empty = np.vstack([np.full(N_ITEMS, -1), np.arange(N_ITEMS) % 2])
    empty = Responses.from_array(empty, item_ids=calibration.item_ids).subset(subjects=["s1"])
    with pytest.raises(InputError, match="answers to the subset"):
        select_next(None, first, empty, 5, calibration=calibration)


@pytest.mark.parametrize("estimator", ["auto", "ridge"])
def test_answers_unlike_all_calibrated_ones_are_not_explained_away(estimator):
    """Where all calibrated subjects have all right, wrong answers are no sign of their score."""
    calibration = Responses.from_array(np.ones((30, 20), int))
    chosen = calibration.item_ids[:5].tolist()
    row = predict(calibration, chosen, np.zeros((1, 5)), estimator=estimator).to_frame().iloc[0]
    assert row.upper - row.lower > 0.1  # .75 to .75 would say that all others are right
    assert row.flag

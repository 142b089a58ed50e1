"""Reruns: other programs' numbers, brute force over pairs, simulation, and what has no repeats."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import ndtri, stdtr, stdtrit

from irtcat import Responses
from irtcat._common.checks import InputError
from irtcat.diagnose import reruns
from irtcat.diagnose.rerun_noise import pass_rates, wilson

NAN = np.nan
SOURCES = ["subject", "item", "subject x item", "run", "trial"]


@pytest.fixture(scope="module")
def numbers(reference):
    return reference("reruns_components")


def simulated(shape=(40, 150, 4), sds=(0.05, 0.12, 0.08, 0.03, 0.1), seed=0):
    """Scores of a metric with known components of variance."""
    rng = np.random.default_rng(seed)
    m, i, t = shape
    sizes = ((m, 1, 1), (1, i, 1), (m, i, 1), (m, 1, t), shape)
    parts = (sd * rng.normal(size=size) for sd, size in zip(sds, sizes, strict=True))
    return np.clip(0.5 + sum(parts), 0, 1)


def test_components_are_statsmodels_reml(numbers):
    """Of complete data with positive estimates REML is the analysis of variance."""
    scores = np.array(numbers["scores"])
    found = reruns(Responses.from_trials(scores)).components["variance"]
    for source in SOURCES:
        assert found[source] == pytest.approx(numbers["complete"][source], rel=1e-4, abs=1e-7)
    for m, i, t in numbers["missing"]:
        scores[m, i, t] = NAN
    result = reruns(Responses.from_trials(scores))
    for source in SOURCES:  # moments weight trials otherwise than REML: within the interval
        low, high = result.components.loc[source, ["lower", "upper"]]
        assert low < numbers["incomplete"][source] < high


def test_complete_data_are_the_analysis_of_variance():
    x = simulated((6, 9, 5), seed=3)
    (m, i, t), centre = x.shape, x.mean()
    cell, of_m, of_i, of_run = x.mean(2), x.mean((1, 2)), x.mean((0, 2)), x.mean(1)
    ms_m = i * t * ((of_m - centre) ** 2).sum() / (m - 1)
    ms_i = m * t * ((of_i - centre) ** 2).sum() / (i - 1)
    interaction = cell - of_m[:, None] - of_i + centre
    ms_mi = t * (interaction**2).sum() / ((m - 1) * (i - 1))
    ms_run = i * ((of_run - of_m[:, None]) ** 2).sum() / (m * (t - 1))
    rest = x - cell[:, :, None] - of_run[:, None, :] + of_m[:, None, None]
    ms_rest = (rest**2).sum() / (m * (i - 1) * (t - 1))
    run = (ms_run - ms_rest) / i
    expected = {
        "trial": ms_rest,
        "run": run,
        "subject x item": (ms_mi - ms_rest) / t,
        "item": (ms_i - ms_mi) / (m * t),
        "subject": (ms_m - ms_mi - i * run) / (i * t),
    }
    found = reruns(Responses.from_trials(x), n=2).components["variance"]
    for source in SOURCES:  # scores are stored in single precision
        assert found[source] == pytest.approx(expected[source], abs=1e-8)


def brute(x):
    """Half squared differences of pairs of trials, averaged over cells, by what they share."""
    m, i, t = x.shape
    known = [c for c in product(range(m), range(i)) if not np.isnan(x[c]).all()]
    sums = {}
    for a, b in product(known, known):
        left, right = x[a], x[b]
        diff = 0.5 * (left[:, None] - right[None, :]) ** 2
        if a == b:
            diff[np.diag_indices(t)] = NAN
            if not np.isfinite(diff).any():
                continue
        shares = (
            "cell" if a == b else "subject" if a[0] == b[0] else "item" if a[1] == b[1] else "other"
        )
        sums.setdefault(shares, []).append(np.nanmean(diff))
    total = scale = same = 0.0
    pairs = 0
    for s in range(m):
        items = [j for j in range(i) if (s, j) in known]
        for a, b in product(items, items):
            if a == b:
                continue
            both = ~np.isnan(x[s, a]) & ~np.isnan(x[s, b])
            n_a, n_b, c = (~np.isnan(x[s, a])).sum(), (~np.isnan(x[s, b])).sum(), both.sum()
            same, pairs = same + c / (n_a * n_b), pairs + 1
            d_a, d_b = x[s, a] - np.nanmean(x[s, a]), x[s, b] - np.nanmean(x[s, b])
            total += (d_a * d_b)[both].sum()
            scale += c - c / n_a - c / n_b + c**2 / (n_a * n_b)
    run, share = total / scale, same / pairs
    mean = {name: np.mean(values) for name, values in sums.items()}
    within = mean["subject"] + share * run
    return {
        "run": run,
        "trial": mean["cell"] - run,
        "subject": mean["other"] - within,
        "item": mean["other"] - mean["item"],
        "subject x item": within + mean["item"] - mean["other"] - mean["cell"],
    }


def test_missing_trials_and_items_by_brute_force():
    x = simulated((4, 6, 3), seed=5).astype(np.float32)
    rng = np.random.default_rng(6)
    x[rng.random(x.shape) < 0.2] = NAN
    x[1, 2] = NAN
    assert all(len(np.flatnonzero(~np.isnan(rows).all(axis=0))) == 3 for rows in x)
    found = reruns(Responses.from_trials(x), n=2).components["variance"]
    expected = brute(x.astype(float))
    for source in SOURCES:
        assert found[source] == pytest.approx(expected[source], rel=1e-6, abs=1e-9)


def test_a_resample_is_a_smaller_benchmark():
    """Weights of 0 and 1 are the same as leaving items out."""
    from irtcat.diagnose.rerun_noise import components_of, moments

    x = simulated((3, 8, 4), seed=7)
    x[0, 3, 1:] = NAN
    r = Responses.from_trials(x)
    kept = np.array([1, 0, 1, 1, 0, 1, 1, 0], float)
    whole = components_of(moments(r), r.trial_values, kept[None])[0]
    part = r.subset(items=kept > 0)
    alone = components_of(moments(part), part.trial_values, np.ones((1, 5)))[0]
    for source in SOURCES:
        np.testing.assert_allclose(whole[source], alone[source], atol=1e-12)


@pytest.mark.slow
def test_components_are_recovered():
    sds = (0.03, 0.06, 0.04, 0.02, 0.05)
    x = np.stack(
        [
            reruns(Responses.from_trials(simulated(sds=sds, seed=seed)), n=2).components["variance"]
            for seed in range(12)
        ]
    )
    errors = x.std(axis=0, ddof=1) / np.sqrt(len(x))
    assert (np.abs(x.mean(axis=0) - np.square(sds)) < 4 * errors).all()


def test_noise_is_what_reruns_vary_by():
    """The standard error of a run's score, for right and wrong with and without a run effect."""
    rng = np.random.default_rng(1)
    p = rng.beta(1, 1, (3, 300))
    many = (rng.random((3, 300, 2000)) < p[:, :, None]).mean(axis=1)
    r = Responses.from_trials(rng.random((3, 300, 6)) < p[:, :, None])
    noise = reruns(r).to_frame()["noise"].to_numpy()
    np.testing.assert_allclose(noise, 100 * many.std(axis=1), rtol=0.12)
    with_run = simulated((30, 200, 8), (0.05, 0.1, 0.05, 0.04, 0.1), seed=2)
    result = reruns(Responses.from_trials(with_run))
    assert result.noise_floor == pytest.approx(100 * np.sqrt(0.04**2 + 0.1**2 / 200), rel=0.1)
    assert result.p_run < 1e-6
    assert "Whole runs differ more than by chance" in str(result)
    counted = reruns(Responses.from_trials(with_run[:, :, :2]))
    assert np.isnan(counted.p_run)
    assert counted.noise_floor < 1.2  # without the runs


@pytest.mark.slow
def test_the_test_of_runs_holds_its_level():
    """Without run effects 5 % of p-values are below .05, with heterogeneous missing trials too."""
    found = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = (rng.random((2, 40, 4)) < rng.beta(0.7, 0.7, (2, 40, 1))).astype(float)
        x[0][rng.random((40, 4)) < 0.15] = NAN
        found.append(reruns(Responses.from_trials(x), n=2).p_run)
    assert 0.02 < np.mean(np.array(found) < 0.05) < 0.085
    assert 0.4 < np.mean(found) < 0.6


def test_icc_is_the_correlation_of_two_runs_over_items():
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.7, (1, 4000))
    r = Responses.from_trials(rng.random((1, 4000, 3)) < p[:, :, None])
    correlations = [
        np.corrcoef(r.trial_values[0, :, [a, b]])[0, 1] for a, b in combinations(range(3), 2)
    ]
    result = reruns(r)
    assert result.icc == pytest.approx(np.mean(correlations), abs=0.002)
    assert result.to_frame()["icc"].iloc[0] == pytest.approx(result.icc, abs=0.002)
    low, high = result.icc_interval
    assert low < np.var(p) / (np.mean(p) * (1 - np.mean(p))) < high
    assert np.isnan(result.components.loc["subject", "variance"])  # of one subject


def test_answers_that_never_flipped_may_flip():
    once = np.random.default_rng(0).random((2, 40, 1)) < 0.5
    result = reruns(Responses.from_trials(np.repeat(once, 2, axis=2)), n=50)
    t2 = stdtrit(39, 0.975) ** 2
    most = t2 / (40 + t2)  # Wilson's upper end of 0 of 40
    assert result.flip_rate_interval == pytest.approx((0, most))
    assert result.components.loc["trial", "upper"] == pytest.approx(most / 2)
    of_items = result.components.loc[["item", "subject x item"], "variance"].sum()
    assert result.icc == 1
    assert result.icc_interval == pytest.approx((of_items / (of_items + most / 2), 1))


def test_flip_rate_and_items_by_brute_force():
    rng = np.random.default_rng(8)
    x = (rng.random((3, 5, 4)) < 0.5).astype(float)
    x[0, 1, 2:], x[2, 4] = NAN, NAN
    x[1, 0] = 1
    pairs = np.full((3, 5), NAN)
    for m, i in np.ndindex(3, 5):
        known = x[m, i][~np.isnan(x[m, i])]
        if len(known) > 1:
            pairs[m, i] = np.mean([a != b for a, b in combinations(known, 2)])
    result = reruns(Responses.from_trials(x))
    assert result.flip_rate == pytest.approx(np.nanmean(pairs))
    table = result.items.loc[[f"i{n}" for n in range(1, 6)]]
    np.testing.assert_allclose(table["flip_rate"], np.nanmean(pairs, axis=0))
    assert table["n_subjects"].tolist() == [3, 3, 3, 3, 2]
    assert table["n_flipping"].tolist() == (pairs > 0).sum(axis=0).tolist()
    assert result.items["flip_rate"].is_monotonic_decreasing
    np.testing.assert_allclose(result.to_frame()["flip_rate"], np.nanmean(pairs, axis=1))
    assert result.to_frame()["n_flipping"].tolist() == (pairs > 0).sum(axis=1).tolist()
    metric = reruns(Responses.from_trials([[[0.1, 0.4, 0.9]]]))
    assert metric.flip_rate == pytest.approx(np.mean([0.3, 0.8, 0.5]), rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_rates_by_all_subsets(n):
    for c in range(n + 1):
        trials = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            one, every = pass_rates(np.array([float(c)]), np.array([float(n)]), k)
            subsets = list(combinations(trials, k))
            assert one[0] == pytest.approx(np.mean([max(s) for s in subsets]), abs=1e-12)
            assert every[0] == pytest.approx(np.mean([min(s) for s in subsets]), abs=1e-12)
        assert np.isnan(pass_rates(np.array([float(c)]), np.array([float(n)]), n + 1)[0]).all()


def test_pass_rates_are_unbiased_with_intervals():
    rng = np.random.default_rng(9)
    p = rng.beta(0.6, 0.9, 400)
    r = Responses.from_trials(rng.random((1, 400, 10)) < p[None, :, None])
    table = reruns(r).passes.loc["s1"]
    assert table.index.tolist() == [1, 2, 4, 8, 10]
    for k in table.index:
        for name, truth in (("pass_at_k", 1 - (1 - p) ** k), ("pass_hat_k", p**k)):
            low, high = table.loc[k, [f"{name}_lower", f"{name}_upper"]]
            assert low < truth.mean() < high
            assert high - low < 0.12
    counted = reruns(r.with_trials(10), k=[3]).passes.loc[("s1", 3)]
    numbered = reruns(r, k=[3]).passes.loc[("s1", 3)]
    np.testing.assert_allclose(counted, numbered)


def test_intervals_of_proportions_are_statsmodels(numbers):
    """Of right and wrong it is Wilson's interval, at the level whose quantile of t is 1.96."""
    for name, (low, high) in numbers["wilson"].items():
        k, n = map(int, name.split(" of "))
        level = 2 * stdtr(n - 1, ndtri(0.975)) - 1
        found = wilson(np.r_[np.ones(k), np.zeros(n - k)], level)
        assert found == pytest.approx((k / n, low, high), abs=1e-9)


@pytest.mark.slow
def test_coverage_of_the_intervals():
    """pass@k over draws of items and trials; a share of .95 within sampling error."""
    rng = np.random.default_rng(10)
    hits = {"pass_at_k": [], "pass_hat_k": []}
    fine = rng.beta(0.4, 1.2, 200_000)
    truth = {"pass_at_k": (1 - (1 - fine) ** 2).mean(), "pass_hat_k": (fine**2).mean()}
    for _ in range(400):
        p = rng.beta(0.4, 1.2, 60)
        c = rng.binomial(5, p).astype(float)
        for name, values in zip(hits, pass_rates(c, np.full(60, 5.0), 2), strict=True):
            _, low, high = wilson(values, 0.95)
            hits[name].append(low < truth[name] < high)
    for found in hits.values():
        assert 0.92 < np.mean(found) < 0.98


def test_one_trial_for_some_and_five_for_others():
    rng = np.random.default_rng(11)
    x = (rng.random((4, 50, 5)) < rng.random((4, 50, 1))).astype(float)
    x[2:, :, 1:] = NAN
    result = reruns(Responses.from_trials(x))
    assert result.p_run > 0.05
    assert np.isnan(result.to_frame()["noise"]).tolist() == [False, False, True, True]
    assert "2 of 4 subjects have no repeated trials" in result.flags
    assert result.passes.loc["s3"].index.tolist() == [1]
    assert np.isfinite(result.components["variance"]).all()


def test_what_is_not_identified_is_said():
    x = (np.random.default_rng(12).random((3, 40, 2)) < 0.5).astype(int)
    two = reruns(Responses.from_trials(x))
    assert np.isnan(two.components.loc["run", "variance"])
    assert any("no subject has three numbered trials" in flag for flag in two.flags)
    counted = reruns(Responses.from_counts(x.sum(axis=2), 2))
    assert any("counted, not numbered" in flag for flag in counted.flags)
    assert counted.noise_floor == pytest.approx(two.noise_floor)
    metric = reruns(Responses.from_trials(simulated((3, 20, 3))))
    assert metric.passes.empty
    assert any("right and wrong" in flag for flag in metric.flags)


def test_all_equal_answers_have_no_noise():
    result = reruns(Responses.from_trials(np.ones((3, 10, 4))))
    assert result.noise_floor == 0
    assert result.flip_rate == 0
    assert np.isnan(result.icc)
    low, high = result.passes.loc[("s1", 4), ["pass_hat_k_lower", "pass_hat_k_upper"]]
    assert high == 1
    assert 0.5 < low < 0.9  # ten of ten is no certainty


def test_results_are_a_record():
    r = Responses.from_trials((np.random.default_rng(13).random((3, 30, 3)) < 0.5).astype(int))
    one, two = reruns(r, seed=3), reruns(r, seed=3)
    assert one.components.equals(two.components)
    frame = one.to_frame()
    frame.iloc[0] = 0
    assert not one.subjects.equals(frame)
    assert "noise floor" in repr(one)
    assert "two runs of one model differ by more than" in str(one)
    with pytest.raises(AttributeError):
        one.icc = 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: reruns([[1, 0], [0, 1]]), "with repeated trials. Got 'right/wrong'"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 1)), "two trials of an item"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 2), n=1), "`n` argument"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 2), level=1), "`level` argument"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 2), k=[0]), "`k` argument"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 2), k=2), "whole numbers of trials"),
        (lambda: reruns(Responses.from_counts([[1, 0]], 2), k=[]), "Got none"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InputError, match=words):
        call()

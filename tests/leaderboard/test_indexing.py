"""The index: known scales by simulation, anchors, domains, trends, every bad input."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, index
from irtcat.leaderboard import complete

MODELS = [f"m{i}" for i in range(60)]


def simulated(seed=0, n_benchmarks=20, share=0.5, noise=0.3):
    """Percentages of one ability that grows with the date, and their truth."""
    rng = np.random.default_rng(seed)
    year = np.sort(rng.uniform(2022, 2025, len(MODELS)))
    theta = 0.8 * (year - 2023.5) + 0.4 * rng.normal(size=len(MODELS))
    slope, b = rng.uniform(0.7, 1.3, n_benchmarks), rng.normal(0, 1, n_benchmarks)
    y = slope * (theta[:, None] - b) + noise * rng.normal(size=(len(MODELS), n_benchmarks))
    scores = pd.DataFrame(100 / (1 + np.exp(-y)), MODELS, [f"b{j}" for j in range(n_benchmarks)])
    known = scores.mask(rng.random(scores.shape) > share)
    return known, theta, slope, b, dict(zip(MODELS, year, strict=True))


def mean_logit(theta, slope, b):
    """The mean over benchmarks of the logits that `complete` models."""
    p = 1 / (1 + np.exp(-slope * (theta[:, None] - b)))
    return np.log((p + 0.005) / (1 - p + 0.005)).mean(axis=1)


@pytest.mark.slow
def test_the_index_is_the_true_scale():
    scores, theta, slope, b, _ = simulated()
    low, high = int(np.argmin(theta)), int(np.argmax(theta))
    found = index(scores, {MODELS[low]: theta[low], MODELS[high]: theta[high]})
    value = found.value[0]
    assert np.corrcoef(value, theta)[0, 1] > 0.98
    assert np.abs(value - theta).max() < 0.6
    difficulty = found.benchmarks["difficulty"].to_numpy()
    assert np.corrcoef(difficulty, b)[0, 1] > 0.98
    assert np.corrcoef(found.benchmarks["slope"], slope)[0, 1] > 0.7
    within = (found.benchmarks["lower"] < difficulty) & (difficulty < found.benchmarks["upper"])
    assert within.all()
    # The predictions are those of `complete`.
    np.testing.assert_allclose(found.completion.score, complete(scores).score)


@pytest.mark.slow
def test_intervals_cover_the_mean_expected_logit():
    """Without anchors, and as the distance from two models."""
    covered = []
    for seed in range(6):
        scores, theta, slope, b, _ = simulated(seed, share=0.3)
        truth = mean_logit(theta, slope, b)
        for anchors in (None, {"m5": truth[5], "m50": truth[50]}):
            table = index(scores, anchors, level=0.9).to_frame().loc[MODELS]
            covered.append((table["lower"] < truth) & (truth < table["upper"]))
    assert 0.8 < np.mean(covered) < 0.97


@pytest.mark.slow
def test_anchors_fix_the_scale():
    scores, *_ = simulated()
    raw = index(scores)
    found = index(scores, {"m3": 100, "b2": 150})
    table = found.to_frame()
    assert table.loc["m3", ["index", "lower", "upper"]].tolist() == [100.0] * 3
    assert found.benchmarks.loc["b2", ["difficulty", "lower", "upper"]].tolist() == [150.0] * 3
    assert found.anchors == {"m3": 100.0, "b2": 150.0}
    # A straight line maps one scale to the other.
    unit = np.polyfit(raw.value[0], found.value[0], 1)
    np.testing.assert_allclose(np.polyval(unit, raw.value[0]), found.value[0])
    np.testing.assert_allclose(found.benchmarks["slope"] * unit[0], raw.benchmarks["slope"])
    # The nearer to an anchor, the more certain.
    order = (raw.value[0] - raw.value[0, 3]).argsort()
    width = (table["upper"] - table["lower"]).loc[MODELS].to_numpy()
    assert width[order[-5:]].mean() > width[np.abs(raw.value[0] - raw.value[0, 3]) < 0.2].mean()


def test_domains_are_on_one_scale():
    rng = np.random.default_rng(3)
    theta = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 80)
    domain = np.repeat(["code", "maths"], [15, 5])
    y = theta[:, (domain == "maths").astype(int)] + rng.normal(0, 1, 20)
    y = y + 0.2 * rng.normal(size=y.shape)
    scores = pd.DataFrame(100 / (1 + np.exp(-y))).rename(columns=lambda j: f"b{j}")
    scores.index = [f"m{i}" for i in range(80)]
    domains = dict(zip(scores.columns, domain, strict=True))
    found = index(scores, domains=domains)
    assert found.domains == ("all", "code", "maths")
    for k in range(2):
        assert np.corrcoef(found.value[1 + k], theta[:, k])[0, 1] > 0.98
        assert found.value[1 + k].std() == pytest.approx(found.value[0].std(), rel=0.1)
    # Domains count the same, however many benchmarks they have.
    assert np.corrcoef(found.value[0], theta.sum(axis=1))[0, 1] > 0.99
    assert list(found.to_frame().columns[-2:]) == ["code", "maths"]
    long = found.domains_to_frame()
    assert len(long) == 240
    assert (long["lower"] <= long["index"]).mean() > 0.99


@pytest.mark.slow
def test_trends_do_not_shrink_with_missing_scores():
    """Growth of the true index per year: covered, and not shrunken as the values are."""
    covered, errors = [], []
    for seed in range(6):
        scores, theta, slope, b, years = simulated(seed, share=0.3, noise=0.4)
        truth = np.polyfit(list(years.values()), mean_logit(theta, slope, b), 1)[0]
        row = index(scores).trend(years, change=False).table.loc["all"]
        covered.append(row["lower"] < truth < row["upper"])
        errors.append(row["per_year"] / truth - 1)
    assert np.mean(covered) >= 5 / 6
    assert abs(np.mean(errors)) < 0.1


def test_bad_input():
    scores, *_, years = simulated()
    bad = [
        ({"m0": 1}, "two names"),
        ({"m0": 1, "x": 2}, "models or benchmarks"),
        ({"m0": 1, "m50": 1}, "two different values"),
        ({"m0": "1", "m50": 2}, "finite numbers"),
        ({"m59": 0, "m0": 1}, "in the order that the scores give them.*the reverse for m59 and m0"),
    ]
    for anchors, message in bad:
        with pytest.raises(InputError, match=message):
            index(scores, anchors)
    with pytest.raises(InputError, match="domain of every benchmark"):
        index(scores, domains={"b0": "maths"})
    with pytest.raises(InputError, match="which is both"):
        index(scores.rename(columns={"b0": "m0"}), {"m0": 0, "m50": 1})
    found = index(scores)
    with pytest.raises(InputError, match="one of all"):
        found.trend(years, domain="maths")
    with pytest.raises(InputError, match="soon for m0"):
        found.trend({"m0": "soon"})

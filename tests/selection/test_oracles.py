"""Each strategy against brute force on cases small enough for it."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from irtcat import InputError, ItemBank, Responses, fisher_information
from irtcat.selection import select
from irtcat.selection.clusters import cluster, k_medoids
from irtcat.selection.curves import EDGE, score_curves
from irtcat.selection.dense import centred_scores
from irtcat.selection.gaussian import SHRINKAGE
from irtcat.selection.information import Determinant
from irtcat.selection.reading import read_subset

RNG = np.random.default_rng(0)


def simulated(n=60, items=8, seed=0):
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(a=rng.uniform(0.5, 2, items), b=rng.normal(size=items))
    return bank, bank.simulate(rng.normal(size=n), seed=seed + 1)


def shrunk(covariance):
    return (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance))


def left(sigma, chosen):
    """Variance of the mean of all, given the chosen ones: direct Gaussian conditioning."""
    w = np.full(len(sigma), 1 / len(sigma))
    to = sigma[chosen] @ w
    return w @ sigma @ w - to @ np.linalg.pinv(sigma[np.ix_(chosen, chosen)], rcond=1e-9) @ to


def check_greedy(sigma, subset, item_ids):
    names = list(item_ids)
    order = [names.index(i) for i in subset.item_ids]
    before = np.full(len(sigma), 1 / len(sigma)) @ sigma @ np.full(len(sigma), 1 / len(sigma))
    for step, item in enumerate(order):
        free = [j for j in range(len(sigma)) if j not in order[:step]]
        after = {j: left(sigma, [*order[:step], j]) for j in free}
        assert after[item] <= min(after.values()) + 1e-7
        np.testing.assert_allclose(subset.criterion[step], before - after[item], atol=1e-7)
        before = after[item]


@pytest.mark.parametrize("seed", range(3))
def test_score_optimal_is_gaussian_conditioning(seed):
    _, data = simulated(seed=seed)
    sigma = shrunk(np.cov(data.to_numpy().T, bias=True))
    check_greedy(sigma, select(None, 6, strategy="score-optimal", calibration=data), data.item_ids)


@pytest.mark.slow
def test_score_optimal_with_many_items_and_ties_over_blocks():
    _, data = simulated(n=50, items=60, seed=5)
    sigma = shrunk(np.cov(data.to_numpy().T, bias=True))
    check_greedy(sigma, select(None, 40, strategy="score-optimal", calibration=data), data.item_ids)


def test_score_optimal_with_gaps_adds_the_noise_of_filled_cells():
    _, data = simulated(n=80, seed=3)
    x = np.where(np.random.default_rng(1).random(data.shape) < 0.3, np.nan, data.to_numpy())
    gappy = Responses.from_array(x)
    scores = centred_scores(gappy)
    full = scores.centred.astype(float)
    sigma = shrunk(full.T @ full / len(full)) + np.diag(scores.noise)
    check_greedy(
        sigma, select(None, 5, strategy="score-optimal", calibration=gappy), gappy.item_ids
    )
    seen = ~np.isnan(x)
    np.testing.assert_allclose((full + scores.means)[seen], x[seen], atol=1e-5)
    truth = data.to_numpy()[~seen]
    filled = (full + scores.means)[~seen]
    alone = np.broadcast_to(np.nanmean(x, axis=0), x.shape)[~seen]
    assert ((filled - truth) ** 2).mean() < ((alone - truth) ** 2).mean()


def test_missing_answers_have_item_means_and_subject_effects():
    """The normal equations: means have two, effects five answers more, without an effect."""
    _, data = simulated(n=30, seed=4)
    x = data.to_numpy()
    strong = x.mean(axis=1, keepdims=True) > 0.5  # they lack most answers
    x[np.random.default_rng(2).random(x.shape) < np.where(strong, 0.7, 0.05)] = np.nan
    x[:, 5] = np.nan
    scores = centred_scores(Responses.from_array(x))
    np.testing.assert_array_equal(scores.centred[:, 5], 0)
    others = [0, 1, 2, 3, 4, 6, 7]
    assert scores.means[5] == pytest.approx(scores.means[others].mean())
    seen = ~np.isnan(x)
    n_subjects, n_items = x.shape
    of_items, of_subjects = seen.sum(axis=0), seen.sum(axis=1)
    # Unknowns: item means, subject effects, and the mean of all answers less effects.
    matrix = np.zeros((n_items + n_subjects + 1,) * 2)
    matrix[:n_items, :n_items] = np.diag(of_items + 2.0)
    matrix[:n_items, n_items:-1] = seen.T
    matrix[:n_items, -1] = -2
    matrix[n_items:-1, :n_items] = seen
    matrix[n_items:-1, n_items:-1] = np.diag(of_subjects + 5.0)
    matrix[-1, n_items:-1], matrix[-1, -1] = of_subjects, seen.sum()
    totals = np.concatenate([np.nansum(x, axis=0), np.nansum(x, axis=1), [np.nansum(x)]])
    solved = np.linalg.solve(matrix, totals)
    fitted = np.clip(solved[:n_items] + solved[n_items:-1, None], 0, 1)
    filled, gaps = scores.centred + scores.means, ~seen & (np.arange(n_items) != 5)
    np.testing.assert_allclose(filled[gaps], fitted[gaps], atol=2e-3)
    left = np.nansum((x - fitted) ** 2, axis=0)
    noise = (1 - of_items / n_subjects) * (left + 5 * left.sum() / seen.sum()) / (of_items + 5)
    np.testing.assert_allclose(scores.noise, noise, rtol=0.01)


@pytest.mark.parametrize("n", [40, 2])
def test_rank_optimal_conditions_the_differences_of_close_pairs(n):
    from scipy.special import ndtr

    _, data = simulated(n=n, seed=2)
    x, k = data.to_numpy(), 5
    score = x.mean(axis=1)
    within = (score * (1 - score)).mean()
    spread = np.sqrt(2 * within / k)
    sigma, total = np.zeros((8, 8)), 0.0
    level = np.round(score * 1000) / 1000
    for i, j in itertools.permutations(range(len(x)), 2):
        w = ndtr(-abs(level[i] - level[j]) / spread)
        sigma += w * np.outer(x[i] - x[j], x[i] - x[j])
        total += w
    subset = select(None, k, strategy="rank-optimal", calibration=data)
    check_greedy(shrunk(sigma / total), subset, data.item_ids)


def test_d_optimal_is_the_brute_force_determinant():
    rng = np.random.default_rng(3)
    correlations = np.array([[1.0, 0.4], [0.4, 1.0]])
    bank = ItemBank.from_slopes(
        rng.normal(size=(9, 2)), rng.normal(size=9), correlations=correlations
    )
    information, prior = RNG.random((6, 4, 2)), np.eye(2)
    matrices = np.einsum("ipd,ipe->ipde", information, information)
    criterion = Determinant(matrices, prior)
    chosen = []
    for _ in range(3):
        free = np.array([i for i in range(6) if i not in chosen])
        gains = criterion(free, chosen)
        item, gain = free[np.argmax(gains)], gains.max()
        level = [
            np.log(np.linalg.det(prior + matrices[[*chosen, j]].sum(axis=0))).mean() for j in free
        ]
        before = np.log(np.linalg.det(prior + matrices[chosen].sum(axis=0))).mean()
        assert item == free[np.argmax(level)]
        np.testing.assert_allclose(gain, max(level) - before)
        chosen.append(item)
    subset = select(bank, 4, strategy="d-optimal")
    from irtcat.selection.information import POINTS, _normal

    points = _normal(POINTS, 2) @ np.linalg.cholesky(correlations).T
    every = fisher_information(bank, points)
    precision = np.linalg.inv(correlations)

    def level_of(items):
        return np.linalg.slogdet(precision + every[list(items)].sum(axis=0))[1].mean()

    got = [list(bank.item_ids).index(i) for i in subset.item_ids]
    best = max(itertools.combinations(range(9), 4), key=level_of)
    start = np.linalg.slogdet(precision)[1]
    np.testing.assert_allclose(subset.criterion.sum(), level_of(got) - start)
    assert level_of(got) - start >= 0.97 * (level_of(best) - start)


def test_the_determinant_looks_at_every_item_that_may_be_best_for_its_cost():
    """Batches end as soon as no bound is higher: after one of 80 twins, the others hardly help."""
    rng = np.random.default_rng(5)
    rows, costs = rng.normal(size=(200, 2, 2)), rng.uniform(8, 10, 200)
    rows[:80] = [4, 0]
    matrices, prior = np.einsum("ipd,ipe->ipde", rows, rows), np.eye(2)
    criterion, chosen = Determinant(matrices, prior, costs), []
    for _ in range(5):
        free = np.setdiff1d(np.arange(200), chosen)
        before = np.linalg.slogdet(prior + matrices[chosen].sum(axis=0))[1]
        after = np.linalg.slogdet(prior + matrices[chosen].sum(axis=0) + matrices[free])[1]
        expected = free[np.argmax((after - before).mean(axis=1) / costs[free])]
        found = free[np.argmax(criterion(free, chosen) / costs[free])]
        assert found == expected
        chosen.append(int(found))


@pytest.mark.slow
def test_d_optimal_of_normal_points_and_of_one_ability():
    from irtcat.selection.information import _normal

    points = _normal(64, 3)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(points.T), np.eye(3), rtol=0.02, atol=1e-9)
    bank, data = simulated()
    assert (
        len(select(bank, 3, strategy="d-optimal"))
        == len(select(bank, 3, strategy="d-optimal", calibration=data))
        == 3
    )
    planes = ItemBank.from_slopes(RNG.normal(size=(8, 2)), 0.0, item_ids=data.item_ids)
    assert len(select(planes, 3, strategy="d-optimal", calibration=data)) == 3


@pytest.mark.parametrize("seed", range(6))
def test_minimax_is_near_the_best_subset(seed):
    bank, _ = simulated(items=12, seed=seed)
    information = fisher_information(bank, np.linspace(-2, 2, 41))
    chosen = select(bank, 4, strategy="minimax", theta_range=(-2, 2)).item_ids
    got = information[np.isin(bank.item_ids, chosen)].sum(axis=0).min()
    every = itertools.combinations(range(12), 4)
    best = max(information[list(items)].sum(axis=0).min() for items in every)
    assert got >= 0.95 * best


def total_distance(points, medoids):
    return ((points[:, None] - points[list(medoids)]) ** 2).sum(axis=2).min(axis=1).sum()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_medoids_are_the_best_of_eight_items(seed, k):
    points = np.random.default_rng(seed).normal(size=(8, 3)).astype(np.float32)
    found = k_medoids(points, k, np.random.default_rng(0))
    best = min(total_distance(points, m) for m in itertools.combinations(range(8), k))
    assert len(set(found.tolist())) == k
    assert total_distance(points, found) <= 1.02 * best


def test_anchor_points_are_medoids_of_the_correlation_distance():
    _, data = simulated(n=200, seed=4)
    distance = 1 - np.corrcoef(data.to_numpy().T)
    subset = select(None, 3, strategy="anchor-points", calibration=data)
    at = [list(data.item_ids).index(i) for i in subset.item_ids]
    every = itertools.combinations(range(8), 3)
    best = min(distance[list(m)].min(axis=0).sum() for m in every)
    assert distance[at].min(axis=0).sum() <= best * 1.02
    shares = np.bincount(distance[at].argmin(axis=0), minlength=3) / 8
    np.testing.assert_allclose(subset.weights, shares)


def test_kmeans_finds_clusters_and_weighs_them():
    patterns = np.array([[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0], [1, 0, 1, 0, 1, 1]])
    x = np.repeat(patterns, [5, 3, 2], axis=0).T
    data = Responses.from_array(x)
    for strategy in ("kmeans-correctness", "anchor-points"):
        subset = select(None, 3, strategy=strategy, calibration=data, seed=1)
        at = [list(data.item_ids).index(i) for i in subset.item_ids]
        assert sorted(np.searchsorted([5, 8], at, side="right").tolist()) == [0, 1, 2]
        np.testing.assert_allclose(subset.weights, [0.5, 0.3, 0.2])
        np.testing.assert_allclose(x.mean(axis=1), x[:, at] @ subset.weights)


def test_kmeans_of_item_parameters():
    a, b = np.repeat([0.6, 2.0], [6, 4]), np.repeat([-1.0, 1.5], [6, 4])
    subset = select(ItemBank.from_parameters(a=a, b=b), 2, strategy="kmeans-irt")
    assert [int(i[1:]) <= 6 for i in subset.item_ids] == [True, False]
    np.testing.assert_allclose(subset.weights, [0.6, 0.4])


def test_kmeans_centres_are_the_means_of_their_points():
    points = RNG.normal(size=(40, 2)).astype(np.float32)
    centres = cluster(points, 4, np.random.default_rng(1))
    labels = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    means = np.array([points[labels == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(centres, means, atol=1e-5)


def test_sketch_keeps_distances(monkeypatch):
    from irtcat.selection import clusters
    from irtcat.selection.clusters import sketch

    x = np.random.default_rng(0).normal(size=(2000, 12)).astype(np.float32)
    np.testing.assert_array_equal(sketch(x, np.random.default_rng(1), np.ones(12)), x.T)
    monkeypatch.setattr(clusters, "SWAP_ITEMS", 5)
    np.testing.assert_array_equal(sketch(x[:512], np.random.default_rng(1), np.ones(12)), x[:512].T)
    points = sketch(x, np.random.default_rng(1), np.ones(12))
    assert points.shape == (12, 512)
    scale = np.linspace(0.5, 3, 12)
    scaled = sketch(x, np.random.default_rng(1), scale)
    np.testing.assert_allclose(scaled, points * scale[:, None], rtol=1e-5)
    ratio = ((points[0] - points[1:]) ** 2).sum(1) / ((x[:, :1] - x[:, 1:]) ** 2).sum(0)
    assert abs(ratio - 1).max() < 0.25


def test_disagreement_is_the_share_of_pairs_that_differ():
    x = np.array([[1, 0.5, np.nan], [0, 0.5, 1], [1, 0.0, 0], [1, np.nan, np.nan]])
    subset = select(None, 3, strategy="disagreement", calibration=Responses.from_array(x))
    got = dict(zip(subset.item_ids, subset.criterion, strict=True))
    assert got["i1"] == pytest.approx(3 / 6)
    assert got["i2"] == pytest.approx(2 * 0.25 / 6)
    assert got["i3"] == pytest.approx(1 / 6)


def test_budget_takes_the_better_of_gain_and_gain_per_cost():
    bank = ItemBank.from_parameters(a=[2.0, 1.6, 1.6, 1.6], b=0.0)
    dear = {"costs": [3.0, 1.0, 1.0, 1.0], "budget": 3.0}
    assert select(bank, 3, strategy="information", **dear).item_ids.tolist() == ["i2", "i3", "i4"]
    assert select(bank, 3, strategy="fisher", **dear).item_ids.tolist() == ["i2", "i3", "i4"]
    narrow = {"theta_range": (-0.1, 0.1), **dear}
    assert set(select(bank, 3, strategy="minimax", **narrow).item_ids) == {"i2", "i3", "i4"}
    assert select(bank, 1, strategy="information", **dear).item_ids.tolist() == ["i1"]
    assert select(bank, 3, strategy="discrimination", **dear).item_ids.tolist() == ["i1"]


def test_quotas_are_the_best_subset_of_a_fixed_criterion():
    rng = np.random.default_rng(2)
    bank, _ = simulated(items=9, seed=8)
    groups = np.array(list("aabbbcccc"))
    values = fisher_information(bank, 0.0)[:, 0]
    for _ in range(5):
        low = rng.integers(0, 2, 3)
        quotas = {g: (int(low[i]), int(low[i] + 1)) for i, g in enumerate("abc")}
        k = int(low.sum() + rng.integers(0, 3)) or 1
        subset = select(bank, k, strategy="information", groups=groups, quotas=quotas)
        fits = [
            m
            for m in itertools.combinations(range(9), k)
            if all(lo <= (groups[list(m)] == g).sum() <= hi for g, (lo, hi) in quotas.items())
        ]
        best = max(values[list(m)].sum() for m in fits)
        np.testing.assert_allclose(subset.criterion.sum(), best)


def test_columns_looked_up_ahead_change_no_choice(monkeypatch):
    """On large matrices the next choices are looked for first; the choice is that of small ones."""
    from irtcat.selection import gaussian

    rng = np.random.default_rng(5)
    theta, slope = rng.normal(size=(80, 2)), rng.normal(size=(2, 400))
    values = (rng.random((80, 400)) < 1 / (1 + np.exp(-theta @ slope))).astype(np.int8)
    values[rng.random(values.shape) < 0.1] = -1
    data = Responses.from_array(values)
    options = [
        {},
        {"groups": np.arange(400) % 4, "quotas": {0: (3, 12)}},
        {"costs": rng.uniform(0.5, 2, 400), "budget": 40.0},
    ]

    def chosen(more):
        subset = select(None, 60, strategy="score-optimal", calibration=data, **more)
        return subset.item_ids.tolist()

    plain = [chosen(more) for more in options]
    monkeypatch.setattr(gaussian, "SMALL", 0)
    assert [chosen(more) for more in options] == plain
    monkeypatch.setattr(gaussian, "POOL", 3)
    assert [chosen(more) for more in options] == plain


def test_score_curves_maximise_the_penalised_likelihood():
    rng = np.random.default_rng(3)
    t = rng.normal(0.3, 1, 35)
    x = (rng.random((35, 12)) < 1 / (1 + np.exp(-np.linspace(-2, 2, 12) - t[:, None]))).astype(
        float
    )
    curves = score_curves(x, slope_sd=0.4, slope_mean=1.2)  # each subject is a bin of its own
    means = x.mean(axis=1)
    at = np.log((means + EDGE) / (1 - means + EDGE))
    for j in range(12):

        def loss(values, j=j):
            level, slope = values
            eta = level + slope * (at - at.mean())
            prior = 0.5 * (level / 5) ** 2 + 0.5 * ((slope - 1.2) / 0.4) ** 2
            return prior - (x[:, j] * eta - np.logaddexp(0, eta)).sum()

        best = minimize(loss, [0.0, 1.0], method="BFGS", options={"gtol": 1e-8}).x
        expected = (best[0] - best[1] * at.mean(), best[1])
        assert (curves.intercept[j], curves.slope[j]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_a_seed_in_a_file_is_a_whole_number(tmp_path, seed):
    table = pd.DataFrame({"item": ["i1", "i2"], "weight": 0.5, "strategy": "random", "seed": seed})
    table.to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(InputError, match="whole number of at least 0"):
        read_subset(tmp_path / "s.csv")
    table.assign(seed=0).to_csv(tmp_path / "s.csv", index=False)
    assert read_subset(tmp_path / "s.csv").seed == 0

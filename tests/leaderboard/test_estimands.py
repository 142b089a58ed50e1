"""Whose difference `compare` estimates: formulas by hand, degenerate data, clusters and reruns."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from irtcat._common.checks import InputError
from irtcat.leaderboard import compare
from irtcat.prediction.intervals import mean_variance
from irtcat.prediction.run_noise import Answers, Reliability, noise_of, reliability_of
from irtcat.responses import Responses
from irtcat.selection import Subset

N = 200


def drawn(ids, n=N):
    """A simple random sample, as `select` gives it."""
    k = len(ids)
    return Subset(
        np.asarray(ids, str), np.full(k, 1 / k), np.full(k, k / n), np.zeros(k), "random", 0
    )


@pytest.fixture(scope="module")
def fractions():
    rng = np.random.default_rng(0)
    old = rng.uniform(0.1, 0.9, N)
    return Responses.from_array([old, np.clip(old + rng.normal(0.02, 0.1, N), 0, 1)])


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(1)
    p = rng.uniform(size=N)
    return Responses.from_array((rng.random((6, N)) < p).astype(int))


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(2)
    p = rng.uniform(size=N)
    return Responses.from_counts(rng.binomial(5, [p, np.clip(p + 0.05, 0, 1)]), 5)


def test_fractions_give_the_paired_t_test(fractions):
    old, new = fractions.to_numpy()
    wanted = stats.ttest_rel(new, old)
    for estimand in ("model", "domain"):
        found = compare(None, None, fractions, estimand=estimand)
        assert found.p_value == pytest.approx(wanted.pvalue)
        assert (found.lower, found.upper) == pytest.approx(wanted.confidence_interval(0.95))
        assert found.df == pytest.approx(N - 1)
    d, margin = new - old, 0.03
    found = compare(None, None, fractions, margin=margin)
    tost = max(
        stats.ttest_1samp(d, -margin, alternative="greater").pvalue,
        stats.ttest_1samp(d, margin, alternative="less").pvalue,
    )
    assert found.p_equivalent == pytest.approx(tost)
    wide = compare(None, None, fractions, margin=0.2)
    assert wide.verdict == "equivalent"
    assert "equivalent within 20" in str(wide)
    assert (wide.more_items, wide.more_repeats) == (0, 0)


def test_trials_give_cochrans_variance(counts):
    at = np.random.default_rng(3).permutation(N)[:60]
    subset = drawn(counts.item_ids[at])
    found = compare(counts, subset, counts, method="paired")
    p = counts.to_numpy().astype(float)[:, at]
    d = p[1] - p[0]
    between = (60**2 * d.var(ddof=1) / 60 + 2 / 25) / 62**2
    noise = (p * (1 - p) / 4).sum(axis=0)
    within = noise.mean() / 60 + 2 / 25 / 60**2
    assert found.se**2 == pytest.approx(0.7 * between + 0.3 * within)
    assert found.run_se**2 == pytest.approx(within)
    everything = compare(None, None, counts)
    p = counts.to_numpy().astype(float)
    within = (p * (1 - p) / 4).sum(axis=0).mean() / N + 2 / 25 / N**2
    assert everything.se**2 == pytest.approx(within)
    assert everything.centre == pytest.approx(everything.difference)
    assert found.difference - found.centre == pytest.approx(0.7 * 2 / 62 * d.mean())
    domain = compare(counts, subset, counts, method="paired", estimand="domain")
    assert domain.se**2 == pytest.approx(between)
    assert "not identified: they need three numbered trials" in " ".join(found.flags)


def test_one_trial_gives_the_unadjusted_variance(answers):
    at = np.arange(0, N, 4)
    found = compare(answers, drawn(answers.item_ids[at]), answers, "s2", "s1", method="paired")
    d = np.diff(answers.to_numpy()[:2, at], axis=0)[0]
    k = len(at)
    assert found.se**2 == pytest.approx((k**2 * d.var(ddof=1) / k + 2) / (k + 2) ** 2)
    everything = compare(None, None, answers, "s2", "s1")
    d = np.diff(answers.to_numpy()[:2], axis=0)[0]
    assert everything.se**2 == pytest.approx((N * d.var(ddof=1) + 2) / (N + 2) ** 2)
    assert everything.n_all == everything.n_items == N
    run = compare(None, None, answers, "s2", "s1", estimand="run")
    assert run.se == 0
    assert run.p_rerun < 0.9


def test_assisted_adds_the_noise_of_the_old_run(answers):
    at = np.arange(0, N, 4)
    k, share = len(at), 0.25
    found = compare(answers, drawn(answers.item_ids[at]), answers, "s2", "s1")
    assert found.method == "assisted"
    X = answers.to_numpy()
    d, Z = X[1, at] - X[0, at], np.column_stack([X[2:].mean(axis=0), X[0]])
    centred = np.column_stack([np.ones(k), Z[at] - Z[at].mean(axis=0)])
    slopes = np.linalg.lstsq(centred, d, rcond=None)[0]
    leverage = np.diag(centred @ np.linalg.pinv(centred)) - 1 / k
    e = (d - centred @ slopes) / (1 - leverage)
    V = (k**2 * (e**2).sum() / (k - 1) / k + 2) / (k + 2) ** 2
    line = np.column_stack([np.ones(N), Z[:, 0]])
    left = X[0] - line @ np.linalg.lstsq(line, X[0], rcond=None)[0]
    bound = (left @ left) / (N - 2)
    wanted = V + share * (1 - (1 + slopes[2]) ** 2) * bound / k
    assert found.se**2 == pytest.approx(wanted)
    late = compare(answers, drawn(answers.item_ids[:150]), answers, "s2", "s1")
    assert late.method == "paired"  # most items run: the bound costs more than the slope gains


def brute_force(w, e, labels):
    """CR2 and its df by full matrices."""
    n = len(w)
    M = np.eye(n) - np.outer(np.ones(n), w)
    Q, V = np.zeros((n, n)), 0.0
    for g in np.unique(labels):
        at = labels == g
        block = M[at] @ M[at].T
        values, vectors = np.linalg.eigh(block)
        A = vectors @ np.diag(values**-0.5) @ vectors.T
        u = A @ w[at]
        V += (u @ e[at]) ** 2
        a = M[at].T @ u
        Q += np.outer(a, a)
    return V, np.trace(Q) ** 2 / np.trace(Q @ Q)


@pytest.mark.parametrize("equal", [True, False])
def test_clusters_by_full_matrices(equal):
    rng = np.random.default_rng(4)
    labels = np.sort(rng.integers(0, 12, 70))
    labels = np.unique(labels, return_inverse=True)[1]
    w = np.ones(70) if equal else rng.uniform(0.2, 2, 70)
    w /= w.sum()
    y = rng.normal(size=70)
    e = y - w @ y
    for groups, given in ((labels, labels), (np.arange(70), None)):
        value, df = mean_variance(w, e, given)
        assert (value, df) == pytest.approx(brute_force(w, e, groups))
    if equal:
        value, df = mean_variance(w, e)
        assert value == pytest.approx(y.var(ddof=1) / 70)
        assert df == pytest.approx(69)


def test_clusters_of_equal_answers_count_once(answers):
    X = np.repeat(answers.to_numpy()[:2, :40], 5, axis=1)
    items = pd.DataFrame(
        {"passage": np.repeat(np.arange(40), 5)}, index=[f"i{j}" for j in range(200)]
    )
    r = Responses.from_array(X, item_ids=items.index, items=items)
    found = compare(None, None, r, clusters="passage")
    single = compare(None, None, answers.subset([0, 1], list(range(40))))
    assert found.df == pytest.approx(39)
    assert found.se == pytest.approx(single.se, rel=0.05)
    assert found.se > 1.8 * compare(None, None, r).se
    by_mapping = compare(None, None, r, clusters=items["passage"].to_dict())
    assert by_mapping.se == found.se
    few = compare(None, None, r, clusters={item: j % 5 for j, item in enumerate(items.index)})
    assert few.verdict == "cannot tell"
    assert "5 clusters are too few for a verdict: 8 are needed" in few.flags
    alone = compare(None, None, r, clusters={item: item for item in items.index})
    assert alone.se == compare(None, None, r).se
    assert "every cluster has one item, as without clusters" in alone.flags


def test_runs_of_clusters_share_their_noise():
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(20), 5)
    scores = np.repeat((rng.random((20, 4)) < 0.5), 5, axis=0).astype(float)
    models = [Answers(x.mean(axis=1), np.full(100, 4), x) for x in (scores, 1 - scores)]
    w = np.full(100, 0.01)
    apart = noise_of(*models, w, None, None)
    together = noise_of(*models, w, labels, None)
    assert together.answers.value == pytest.approx(5 * apart.answers.value, rel=0.01)


def test_effects_of_whole_runs_are_found():
    rng = np.random.default_rng(6)
    n, shift = 4000, np.array([-0.15, 0.0, 0.15])
    p, w = rng.uniform(0.2, 0.8, n), np.full(n, 1 / n)

    def models(shift):
        found = [(rng.random((n, 3)) < p[:, None] + shift).astype(float) for _ in range(2)]
        return [Answers(x.mean(axis=1), np.full(n, 3), x) for x in found]

    noise = noise_of(*models(shift), w, None, None)
    assert "whole runs differ by more than their answers" in noise.flags[0]
    assert noise.runs.value == pytest.approx(2 * 0.15**2 / 3, rel=0.2)
    assert noise.runs.df == pytest.approx(4, rel=0.05)
    assert noise_of(*models(0), w, None, None).runs.value < 0.01 * noise.runs.value


@pytest.mark.parametrize(("n", "trials"), [(30, 100), (60, 20)])
@pytest.mark.slow
def test_many_trials_of_models_far_apart_are_covered(n, trials):
    """With all items run no item is unknown: the interval is not moved towards no difference."""
    rng = np.random.default_rng(n)
    covered, draws = 0, 400
    for _ in range(draws):
        p = rng.uniform(0.05, 0.65, n)
        counts = rng.binomial(trials, [p, p + 0.3])
        found = compare(None, None, Responses.from_counts(counts, trials))
        covered += found.lower <= 0.3 <= found.upper
    assert stats.binomtest(covered, draws, 0.95, "less").pvalue > 0.01


def test_equal_answers_in_all_trials_bound_the_difference():
    """Two odd trials, one of each model, have two degrees of freedom each: the t is exact in form.

    The exact one-sided 97.5 % bound of the losses in n trials without any is -log(.025) / n.
    """
    found = compare(None, None, Responses.from_counts(np.full((2, 60), 5), 5))
    assert found.df == pytest.approx(4, rel=0.1)
    assert found.se == pytest.approx(np.sqrt(2) / 300)
    assert found.upper == pytest.approx(-np.log(0.025) / 300, rel=0.1)
    one_miss = np.full((2, 60), 5)
    one_miss[0, 0] = 4
    assert compare(None, None, Responses.from_counts(one_miss, 5)).upper < 2 * found.upper


def test_items_with_one_trial_among_others_are_named(counts):
    trials = counts.trials.copy()
    trials[:, :20] = 1
    scores = counts.to_numpy().copy()
    scores[:, :20] = np.rint(scores[:, :20])
    found = compare(None, None, Responses.from_array(scores).with_trials(trials))
    assert f"20 of {N} items have one trial" in " ".join(found.flags)


def test_what_is_known_of_reruns(answers):
    options = {"new": "s2", "old": "s1"}
    unknown = compare(None, None, answers, **options)
    sure = compare(None, None, answers, **options, reruns="deterministic")
    assert (sure.se, sure.p_rerun) == (0, 1)
    assert compare(None, None, answers, **options, reruns=1).se == 0
    half = compare(None, None, answers, **options, reruns=0.5)
    spread = answers.to_numpy()[:2].var(axis=1, ddof=1).sum()
    assert half.se**2 == pytest.approx(0.5 * spread / N + 1 / N**2)
    assert half.se < unknown.se
    second = answers.subset(subjects=["s3"])
    second = Responses.from_array(second.to_numpy(), ["s1"], answers.item_ids)
    icc = reliability_of(second, (answers,))
    a, b = answers.to_numpy()[[0, 2]]
    wanted = 1 - (((a - b) ** 2).sum() / 2 + 0.5) / (N + 1) / ((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert icc.icc == pytest.approx(wanted)
    found = compare(None, None, answers, **options, reruns=second)
    assert found.se == pytest.approx(compare(None, None, answers, **options, reruns=wanted).se)
    assert found.df <= icc.df


def test_one_model_with_trials_and_one_without(counts):
    trials = counts.trials.copy()
    trials[0] = 1
    once = np.rint(counts.to_numpy())
    once[1] = counts.to_numpy()[1]
    r = Responses.from_array(once).with_trials(trials)
    found = compare(None, None, r)
    assert "s1 has one trial and s2 several" in " ".join(found.flags)
    d = np.diff(once, axis=0)[0]
    assert found.se**2 == pytest.approx((N * d.var(ddof=1) + 2 / 25) / (N + 2) ** 2)
    assert compare(None, None, r, reruns=0.9).se < found.se


@pytest.mark.parametrize("estimand", ["model", "domain"])
@pytest.mark.parametrize("kind", ["right", "count", "fraction"])
def test_equal_answers_never_give_certainty(estimand, kind):
    same = np.ones((2, 30))
    made = {
        "right": Responses.from_array(same.astype(int), codes=[0, 1]),
        "count": Responses.from_counts(5 * same, 5),
        "fraction": Responses.from_array(0.7 * same),
    }[kind]
    found = compare(None, None, made, estimand=estimand)
    assert found.se > 0.001
    assert found.verdict == "cannot tell"
    assert found.p_value == 1
    assert "both gave the same answer to every item run" in found.flags


@pytest.mark.slow
def test_verdicts_of_reruns_agree_as_often_as_promised():
    rng = np.random.default_rng(7)
    p = rng.uniform(0.2, 0.8, N)
    promised, agreed = [], []
    for shift in rng.uniform(-0.15, 0.15, 200):
        pair = np.array([p, p + shift])
        first, second = (
            compare(None, None, Responses.from_counts(rng.binomial(5, pair), 5)) for _ in range(2)
        )
        promised.append(first.p_rerun)
        agreed.append(first.verdict == second.verdict)
    assert np.mean(agreed) == pytest.approx(np.mean(promised), abs=0.07)


def test_a_rerun_agrees_half_the_time_at_the_border():
    at_the_border = compare(None, None, Responses.from_array(border()))
    assert at_the_border.p_value == pytest.approx(0.05, abs=0.01)
    assert at_the_border.p_rerun == pytest.approx(0.5, abs=0.05)


def border():
    """Right/wrong answers of two models whose p-value is near .05."""
    old = np.r_[np.zeros(42), np.ones(25), np.ones(133)]
    return np.array([old, np.r_[np.ones(42), np.zeros(25), np.ones(133)]])


@pytest.mark.parametrize(("trials", "icc"), [(1, None), (1, 0.5), (3, None)])
@pytest.mark.slow
def test_two_runs_of_one_model_seldom_differ(trials, icc):
    rng = np.random.default_rng(8)
    p = np.clip(rng.beta(1, 1, 150), 0.02, 0.98)
    reruns = None if icc is None else 1 - (p * (1 - p)).mean() / (p * (1 - p) + p.var()).mean()
    verdicts = []
    for _ in range(300):
        r = Responses.from_counts(rng.binomial(trials, [p, p]), trials)
        verdicts.append(compare(None, None, r, reruns=reruns).verdict)
    wrong = sum(verdict != "cannot tell" for verdict in verdicts)
    assert stats.binomtest(wrong, 300, 0.05, "greater").pvalue > 0.01
    assert wrong > 2  # not by never telling


@pytest.mark.slow
def test_more_repeats_settle_what_all_items_do_not(answers):
    rng = np.random.default_rng(9)
    p = rng.uniform(0.3, 0.7, N) + np.array([[0.0], [0.03]])
    found = compare(None, None, Responses.from_counts(rng.binomial(2, p), 2))
    assert found.verdict == "cannot tell"
    assert found.more_items == 0
    assert f"{found.more_repeats} more trials of each would" in str(found)
    r = 2 + found.more_repeats
    pair = np.clip(p[:1] + np.array([[0.0], [found.difference]]), 0, 1)
    told = [
        compare(None, None, Responses.from_counts(rng.binomial(r, pair), r)).verdict
        for _ in range(100)
    ]
    assert np.mean([verdict != "cannot tell" for verdict in told]) == pytest.approx(0.8, abs=0.13)
    subset = drawn(answers.item_ids[:50])
    part = compare(answers, subset, answers, "s2", "s1", method="paired")
    assert part.verdict == "cannot tell"
    assert part.more_items == 150 or part.more_repeats == 0


def test_two_runs_of_one_name_without_a_subset(answers):
    old = Responses.from_array(answers.to_numpy()[:1], ["m"], answers.item_ids)
    new = Responses.from_array(answers.to_numpy()[1:2, 50:], ["m"], answers.item_ids[50:])
    found = compare(old, None, new)
    assert (found.new, found.old, found.n_items, found.n_all) == ("m", "m", 150, 150)
    assert found.difference == pytest.approx(np.diff(answers.to_numpy()[:2, 50:], axis=0).mean())
    assert "50 of 200 items not answered by both" in found.flags


def test_other_conditions_of_the_runs_are_named_or_refused(answers):
    about = pd.DataFrame({"version": ["0.4.8", "0.4.9"], "judge": ["a", "a"]}, index=["s1", "s2"])
    r = Responses.from_array(answers.to_numpy()[:2], subjects=about)
    assert "other version: 0.4.9 instead of 0.4.8" in compare(None, None, r).flags
    runs = [{"arc": {"num_fewshot": 5, "temperature": t, "seed": t}, "boolq": {}} for t in (0, 1)]
    runs[1]["arc"]["system_prompt"] = "Think."
    about = pd.DataFrame({"settings": map(json.dumps, runs)}, index=["s1", "s2"])
    r = Responses.from_array(answers.to_numpy()[:2], subjects=about)
    assert compare(None, None, r).flags == (
        "other system_prompt in task arc: Think. instead of none",
        "other temperature in task arc: 1 instead of 0",
    )
    items = pd.DataFrame({"version": 1}, index=answers.item_ids)
    old, new = (
        Responses.from_array(answers.to_numpy()[[j]], [f"s{j}"], answers.item_ids, items=items + j)
        for j in range(2)
    )
    with pytest.raises(InputError, match="version 2 instead of 1"):
        compare(old, None, new)
    assert compare(old, None, new, mismatch="accept").n_items == N


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"estimand": "truth"}, "`estimand` argument must be one of run, model, domain"),
        ({"margin": 1.5}, "`margin` argument must be a difference of scores of at least 0"),
        ({"margin": -0.1}, "`margin` argument"),
        ({"subset": ["i1", "i2"]}, "`calibration` argument must be given with a subset"),
        ({"clusters": "passage"}, "`clusters` argument must be a column of the items"),
        ({"clusters": 3}, "or a mapping from item to group"),
        ({"clusters": {"zz": 1}}, "given for items that both answered"),
        ({"reruns": 1.2}, "`reruns` argument must be an ICC between 0 and 1"),
        ({"reruns": "often"}, "`reruns` argument"),
    ],
)
def test_refused(answers, given, words):
    with pytest.raises(InputError, match=words):
        compare(**{"calibration": None, "subset": None, "responses": answers, **given})


def test_no_common_items_and_reruns_of_others_are_refused(answers):
    old = answers.subset(["s1"], slice(0, 100))
    new = answers.subset(["s2"], slice(100, 200))
    with pytest.raises(InputError, match="answers of both to at least 2 items"):
        compare(old, None, new)
    other = Responses.from_array(answers.to_numpy()[:1], ["zz"], answers.item_ids)
    with pytest.raises(InputError, match="a second run of a model of responses"):
        compare(None, None, answers, reruns=other)
    assert reliability_of(None, ()) is None
    assert reliability_of(0.3, ()) == Reliability(0.3, np.inf)

"""Ratios, strata, training seeds: against statsmodels, Fieller's and Cochran's formulas, laws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from irtcat._common.checks import InputError
from irtcat.leaderboard import compare
from irtcat.responses import Responses
from irtcat.selection import Subset

N = 240


@pytest.fixture(scope="module")
def paired(reference):
    return reference("paired_comparison")


def of(scores, names=("old", "new")):
    scores = np.asarray(scores, float)
    return Responses.from_array(scores, list(names), [f"q{i}" for i in range(scores.shape[1])])


@pytest.fixture(scope="module")
def fractions():
    rng = np.random.default_rng(0)
    old = rng.uniform(0.1, 0.9, N)
    return of([old, np.clip(1.1 * old + rng.normal(0, 0.1, N), 0, 1)])


def test_clusters_of_equal_size_are_statsmodels(paired):
    responses, wanted = of(paired["scores"]), paired["clustered"]
    clusters = dict(zip(responses.item_ids, paired["clusters"], strict=True))
    found = compare(None, None, responses, clusters=clusters)
    assert found.se == pytest.approx(wanted["se"], rel=1e-9)
    assert found.df == pytest.approx(wanted["df"], rel=1e-9)
    assert found.p_value == pytest.approx(wanted["p_value"], rel=1e-7)
    assert (found.lower, found.upper) == pytest.approx(wanted["interval"], rel=1e-7)


def test_equivalence_is_statsmodels(paired):
    wanted = paired["tost"]
    found = compare(None, None, of(paired["scores"]), margin=paired["margin"])
    assert found.p_equivalent == pytest.approx(wanted["p_value"], rel=1e-7)
    assert found.p_equivalent == pytest.approx(max(wanted["lower"], wanted["upper"]), rel=1e-7)


def recipes(seeds, n_old):
    names = [f"m{i}" for i in range(len(seeds))]
    return of(seeds, names), {name: "old" if i < n_old else "new" for i, name in enumerate(names)}


@pytest.mark.parametrize("as_column", [False, True])
def test_recipes_are_welchs_test(paired, as_column):
    responses, recipe = recipes(paired["seeds"], paired["n_old"])
    if as_column:
        made_by = [recipe[name] for name in responses.subject_ids]
        responses = replace(responses, subjects=responses.subjects.assign(made_by=made_by))
        recipe = "made_by"
    found = compare(None, None, responses, estimand="recipe", recipe=recipe)
    wanted = paired["welch"]
    assert (found.new, found.old) == ("new", "old")
    assert found.p_value == pytest.approx(wanted["p_value"], rel=1e-7)
    assert found.df == pytest.approx(wanted["df"], rel=1e-7)
    assert (found.lower, found.upper) == pytest.approx(wanted["interval"], rel=1e-7)
    assert "over training seeds" in str(found)
    assert "other seeds agree" in str(found)


@pytest.mark.parametrize("n_few", [2, 3])
def test_few_seeds_vary_at_least_as_those_of_the_other_recipe(n_few):
    n, n_items = 10, 200
    right = 100 + 4 * np.arange(n)  # scores of the ten models: .5, .52, ...
    few = np.full(n_few, 110)  # by chance nearly the same
    few[0] += 1
    answers = (np.arange(n_items) < np.r_[right, few][:, None]).astype(int)
    responses, recipe = recipes(answers, n)
    found = compare(None, None, responses, estimand="recipe", recipe=recipe)
    spread = (right / n_items).var(ddof=1)
    assert found.se == pytest.approx(np.sqrt(spread / n + spread / n_few))
    # With at most twice as many seeds it is Welch's test.
    responses, recipe = recipes(answers[n - 4 :], 4)
    found = compare(None, None, responses, estimand="recipe", recipe=recipe)
    welch = stats.ttest_ind(few / n_items, right[-4:] / n_items, equal_var=False)
    assert found.p_value == pytest.approx(welch.pvalue)


@pytest.mark.slow
def test_recipes_hold_for_other_seeds():
    """Both recipes are equal; their models differ more than single answers explain."""
    rng = np.random.default_rng(1)
    recipe = {f"m{i}": "old" if i < 4 else "new" for i in range(8)}
    names, p = list(recipe), rng.uniform(0.2, 0.8, N)
    decided = covered = models = 0
    n = 200
    for _ in range(n):
        moved = p + rng.normal(0, 0.05, (8, 1))
        responses = of(rng.random((8, N)) < moved, names)
        found = compare(None, None, responses, estimand="recipe", recipe=recipe)
        decided += found.verdict in ("better", "worse")
        covered += found.lower <= 0 <= found.upper
        models += compare(None, None, responses, "m4", "m0").verdict in ("better", "worse")
    assert decided == n - covered
    assert stats.binomtest(decided, n, 0.05, "greater").pvalue > 0.01
    assert models > 0.1 * n  # the models differ, the recipes do not


def test_a_subset_adds_the_choice_of_items():
    rng = np.random.default_rng(2)
    responses, recipe = recipes(rng.uniform(0.3, 0.7, (6, N)), 3)
    all_items = compare(None, None, responses, estimand="recipe", recipe=recipe)
    k = 60
    ids = rng.permutation(responses.item_ids)[:k]
    drawn = Subset(ids, np.full(k, 1 / k), np.full(k, k / N), np.zeros(k), "random", 0, reach=N)
    calibration = of(rng.uniform(0.3, 0.7, (30, N)), [f"c{i}" for i in range(30)])
    answers = responses.subset(items=list(ids))
    some = compare(calibration, drawn, answers, estimand="recipe", recipe=recipe, method="paired")
    scores = answers.to_numpy()
    d = scores[3:].mean(axis=0) - scores[:3].mean(axis=0)
    means = scores.mean(axis=1)
    seeds = means[3:].var(ddof=1) / 3 + means[:3].var(ddof=1) / 3
    assert some.se**2 == pytest.approx((1 - k / N) * d.var(ddof=1) / k + seeds, rel=1e-5)
    assert some.se > all_items.se


def test_equal_seeds_do_not_give_certainty():
    responses, recipe = recipes(np.r_[np.tile([1, 1, 0, 1] * 10, (3, 1)), np.ones((3, 40))], 3)
    found = compare(None, None, responses, estimand="recipe", recipe=recipe)
    assert found.se > 0
    assert found.upper > found.lower


def fieller(old, new, level=0.95):
    """Fieller's interval of a ratio of paired means (1954)."""
    n, q = len(old), stats.t.ppf(0.5 + level / 2, len(old) - 1)
    v = np.cov(new, old) / n
    a, b, c = (
        old.mean() ** 2 - q**2 * v[1, 1],
        new.mean() * old.mean() - q**2 * v[0, 1],
        new.mean() ** 2 - q**2 * v[0, 0],
    )
    root = np.sqrt(b**2 - a * c)
    return (b - root) / a, (b + root) / a


def test_ratios_are_fiellers(fractions):
    old, new = fractions.to_numpy()
    found = compare(None, None, fractions, scale="ratio")
    assert found.difference == pytest.approx(new.mean() / old.mean() - 1)
    assert (1 + found.lower, 1 + found.upper) == pytest.approx(fieller(old, new), rel=1e-9)
    assert found.p_value == pytest.approx(compare(None, None, fractions).p_value)
    assert "% of the old score" in str(found)


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.3])
def test_ratios_within_a_margin(fractions, margin):
    """The verdict is that of two tests of new - R old; it follows from the interval."""
    old, new = fractions.to_numpy()
    found = compare(None, None, fractions, scale="ratio", margin=margin)
    t = stats.ttest_1samp(new - (1 + margin) * old, 0).statistic
    assert found.p_value == pytest.approx(min(2 * stats.t.sf(t, N - 1), 1))
    below = stats.ttest_1samp(new - (1 - margin) * old, 0, alternative="greater")
    one_sided = stats.ttest_1samp(new - (1 + margin) * old, 0, alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(one_sided, below.pvalue))
    assert (found.verdict == "better") == (found.lower > margin) == (found.p_value < 0.05)
    assert (found.verdict == "equivalent") == (found.p_equivalent < 0.025)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimand": "run"},
        {"estimand": "domain"},
        {"reruns": 0.6},
        {"clusters": "topic"},
        {"strata": "topic"},
    ],
    ids=str,
)
def test_the_ratio_of_counts_covers_what_the_difference_does(options):
    """With all options the verdict of the ratio is that of the difference."""
    rng = np.random.default_rng(3)
    p = rng.uniform(size=N)
    topic = np.arange(N) % 12
    for seed in range(5):
        draws = np.random.default_rng(seed).binomial(3, [p, np.clip(p + 0.08, 0, 1)]) / 3
        responses = of(draws)
        responses = replace(responses, items=responses.items.assign(topic=topic))
        if options.get("estimand") == "run":
            calibration = of(rng.random((30, N)) < p, [f"c{i}" for i in range(30)])
            ids = rng.permutation(responses.item_ids)[:100]
            data = (calibration, ids, responses.subset(items=list(ids)))
        else:
            data = (None, None, responses)
        one, other = (compare(*data, scale=scale, **options) for scale in ("difference", "ratio"))
        assert one.verdict == other.verdict
        assert one.p_value == pytest.approx(other.p_value, rel=1e-6)
        scores = draws.mean(axis=1)
        assert other.difference == pytest.approx(one.difference / scores[0], abs=0.08)


def test_a_ratio_to_nothing():
    rng = np.random.default_rng(4)
    few = np.zeros((2, 50))
    few[1, :20], few[0, 0] = 1, 1
    found = compare(None, None, of(few), scale="ratio")
    assert found.upper == np.inf
    assert any("no upper limit" in flag for flag in found.flags)
    assert found.verdict == "better"
    with pytest.raises(InputError, match=r"`scale` argument must be difference"):
        compare(None, None, of(np.array([np.zeros(50), rng.random(50) < 0.5])), scale="ratio")


def test_strata_give_the_stratified_estimate():
    """Fractions on a simple random sample: Cochran (1977), 5A.9, with the pooled variance."""
    rng = np.random.default_rng(6)
    stratum = np.repeat([0, 1, 2], [120, 80, 40])
    old = rng.uniform(0.2, 0.6, N)
    new = np.clip(old + 0.1 * stratum + rng.normal(0, 0.05, N), 0, 1)
    responses = of([old, new])
    k = 90
    at = np.sort(rng.permutation(N)[:k])
    ids = responses.item_ids[at]
    drawn = Subset(ids, np.full(k, 1 / k), np.full(k, k / N), np.zeros(k), "random", 0, reach=N)
    calibration = of(np.full((3, N), 0.5) + 0.0 * stratum, ["a", "b", "c"])
    strata = dict(zip(responses.item_ids, stratum, strict=True))
    answers = responses.subset(items=list(ids))
    found = compare(calibration, drawn, answers, strata=strata, estimand="run")
    d = (new - old)[at]
    means = np.array([d[stratum[at] == h].mean() for h in range(3)])
    assert found.difference == pytest.approx(means @ [120, 80, 40] / N)
    residual = d - means[stratum[at]]
    assert found.se**2 == pytest.approx((1 - k / N) * residual @ residual / (k - 3) / k, rel=0.06)
    assert found.se < 0.7 * compare(calibration, drawn, answers, estimand="run").se


def test_bad_recipes_and_strata():
    rng = np.random.default_rng(7)
    responses, recipe = recipes(rng.random((6, 40)) < 0.5, 3)
    bad = [
        ({"estimand": "recipe"}, r"`recipe` argument must be given with estimand"),
        ({"recipe": recipe}, r"`recipe` argument must be given with estimand"),
        ({"estimand": "recipe", "recipe": {"m0": "a", "m1": "b"}}, "at least two models of each"),
        ({"estimand": "recipe", "recipe": {"m0": "a", "m1": "a"}}, "two recipes or more"),
        ({"estimand": "recipe", "recipe": "seed"}, "a column of the subjects"),
        ({"estimand": "recipe", "recipe": recipe, "new": "x"}, "one of the recipes old, new"),
        ({"estimand": "recipe", "recipe": recipe, "new": "old"}, "a recipe other than old"),
        ({"strata": {"q1": "a"}}, "none for q0"),
        ({"strata": "topic"}, "a column of the items"),
        ({"scale": "log"}, "`scale` argument must be"),
    ]
    for options, message in bad:
        with pytest.raises(InputError, match=message):
            compare(None, None, responses, **options)

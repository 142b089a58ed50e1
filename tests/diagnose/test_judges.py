"""Noise of judges: the analysis of variance by hand, recovery, and what compare makes of it."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from irtcat import InputError, Responses
from irtcat.agreement import cohen_kappa
from irtcat.diagnose import judges, reruns
from irtcat.diagnose.judge_noise import variance_components
from irtcat.leaderboard import compare
from irtcat.responses import combine_judges

SDS = {
    "subject": 0.1,
    "item": 0.12,
    "judge": 0.06,
    "subject x judge": 0.03,
    "item x judge": 0.04,
    "subject x item": 0.08,
    "judgement": 0.07,
}


def table_of(scores):
    """A long table of scores, subjects x items x judges (x trials)."""
    scores = np.asarray(scores, float)
    names = ["subject", "item", "judge", "trial"][: scores.ndim]
    levels = np.indices(scores.shape).reshape(scores.ndim, -1)
    columns = {
        name: [f"{name[0]}{at}" for at in level] for name, level in zip(names, levels, strict=True)
    }
    if "trial" in columns:
        columns["trial"] = levels[3] + 1
    frame = pd.DataFrame({**columns, "response": scores.ravel()})
    return frame.dropna(subset="response")


def judged(scores):
    return Responses.from_long(table_of(scores), facets=["judge"])


def drawn(rng, shape, sds=SDS):
    """Scores with these components, subjects x items x judges."""
    m, i, j = shape
    sizes = {
        "subject": (m, 1, 1),
        "item": (1, i, 1),
        "judge": (1, 1, j),
        "subject x judge": (m, 1, j),
        "item x judge": (1, i, j),
        "subject x item": (m, i, 1),
        "judgement": shape,
    }
    return 0.5 + sum(sds[name] * rng.normal(size=size) for name, size in sizes.items())


def anova(x):
    """Estimates from the mean squares of a crossed design without repeats (Brennan 2001, 3.4)."""
    m, i, j = x.shape
    mean = {
        axes: x.mean(axis=axes, keepdims=True)
        for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1), (2,), (1,), (0,))
    }
    grand, s, q, r = mean[0, 1, 2], mean[1, 2], mean[0, 2], mean[0, 1]
    sq, sr, qr = mean[2,], mean[1,], mean[0,]
    squares = {
        "s": i * j * ((s - grand) ** 2).sum() / (m - 1),
        "q": m * j * ((q - grand) ** 2).sum() / (i - 1),
        "r": m * i * ((r - grand) ** 2).sum() / (j - 1),
        "sq": j * ((sq - s - q + grand) ** 2).sum() / ((m - 1) * (i - 1)),
        "sr": i * ((sr - s - r + grand) ** 2).sum() / ((m - 1) * (j - 1)),
        "qr": m * ((qr - q - r + grand) ** 2).sum() / ((i - 1) * (j - 1)),
        "e": ((x - sq - sr - qr + s + q + r - grand) ** 2).sum() / ((m - 1) * (i - 1) * (j - 1)),
    }
    e, sq, sr, qr = (squares[name] for name in ("e", "sq", "sr", "qr"))
    return {
        "subject": (squares["s"] - sq - sr + e) / (i * j),
        "item": (squares["q"] - sq - qr + e) / (m * j),
        "judge": (squares["r"] - sr - qr + e) / (m * i),
        "subject x item": (sq - e) / j,
        "subject x judge": (sr - e) / i,
        "item x judge": (qr - e) / m,
        "judgement": e,
    }


def test_complete_data_are_the_analysis_of_variance():
    scores = np.clip(drawn(np.random.default_rng(0), (5, 12, 4)), 0, 1)
    found = judges(judged(scores)).components["variance"]
    wanted = anova(scores.astype(np.float32).astype(float))
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert np.isnan(found["answer"])
    assert np.isnan(found["subject x item x judge"])


@pytest.mark.slow
def test_components_are_recovered_also_where_judgements_are_missing():
    rng = np.random.default_rng(1)
    found = []
    for _ in range(12):
        scores = drawn(rng, (12, 60, 6))
        levels = np.indices(scores.shape).reshape(3, -1)
        kept = rng.random(levels.shape[1]) < 0.6
        names = ("subject", "item", "judge")
        codes = {name: level[kept] for name, level in zip(names, levels, strict=True)}
        sources = {name: tuple(name.split(" x ")) for name in SDS if name != "judgement"}
        one = variance_components(
            scores.ravel()[kept], codes, {**sources, "judgement": ()}, np.ones((1, 60))
        )
        found.append({name: value[0] for name, value in one.items()})
    table = pd.DataFrame(found)
    error = (table.mean() - pd.Series(SDS) ** 2) / (table.std() / np.sqrt(len(table)))
    assert (error.abs() < 3.5).all(), error
    assert table["judgement"].mean() == pytest.approx(SDS["judgement"] ** 2, rel=0.05)


@pytest.mark.slow
def test_answers_and_judgements_are_distinguished():
    """Two answers of each model, each judged by three judges, twice the same or not."""
    rng = np.random.default_rng(2)
    answer = 0.5 + 0.1 * rng.normal(size=(6, 80, 1, 2))
    scores = np.clip(answer + 0.05 * rng.normal(size=(6, 80, 3, 2)), 0, 1)
    found = judges(judged(scores))
    variance = found.components["variance"]
    assert variance["answer"] == pytest.approx(0.01, rel=0.2)
    assert variance["judgement"] == pytest.approx(0.0025, rel=0.2)
    assert np.isfinite(variance["run"])
    twice = np.clip(
        0.5
        + 0.1 * rng.normal(size=(6, 80, 1, 1))
        + 0.04 * rng.normal(size=(6, 80, 3, 1))
        + 0.05 * rng.normal(size=(6, 80, 3, 2)),
        0,
        1,
    )
    again = judges(judged(twice), repeats="judgements").components["variance"]
    assert np.isnan(again["answer"])
    assert again["subject x item x judge"] == pytest.approx(0.0016, rel=0.25)
    assert again["judgement"] == pytest.approx(0.0025, rel=0.1)


def test_severity_and_agreement():
    scores = np.zeros((2, 30, 3))
    scores[:, :20] = 1
    scores[:, 18:20, 0] = 0  # the first judge refuses two answers of each
    found = judges(judged(scores))
    gap = 100 * 2 / 30
    assert found.judges["severity"].tolist() == pytest.approx([gap * 2 / 3, -gap / 3, -gap / 3])
    assert found.judges["agreement"].tolist() == pytest.approx([28 / 30, 29 / 30, 29 / 30])
    assert found.judges["mean"].tolist() == pytest.approx([18 / 30, 20 / 30, 20 / 30])
    assert 0.8 < found.alpha < 1
    assert "3 judges agree with an alpha" in str(found)


@pytest.mark.slow
def test_noise_is_that_of_other_judges():
    """Standard errors of scores and differences, by new judges of the same answers."""
    rng = np.random.default_rng(3)
    m, i, j = 2, 60, 400
    scores = drawn(rng, (m, i, j))
    noise = judges(Responses.from_long(table_of(scores[:, :, :40].clip(0, 1)), facets=["judge"]))
    means = scores.mean(axis=1)
    assert noise.noise["score"][1] == pytest.approx(100 * means.std(axis=1).mean(), rel=0.25)
    difference = (means[1] - means[0]).std()
    assert noise.noise["difference"][1] == pytest.approx(100 * difference, rel=0.25)
    assert noise.noise["score"][10] == pytest.approx(noise.noise["score"][1] / np.sqrt(10))
    assert (noise.noise["same_judges"] < noise.noise["difference"]).all()


def test_comparisons_count_the_judgements_of_an_item_as_one_cluster():
    rng = np.random.default_rng(4)
    right = rng.random((2, 60, 1)) < 0.6
    scores = np.where(rng.random((2, 60, 3)) < 0.05, ~right, right)
    data = judged(scores)
    found = compare(None, None, data)
    items = Responses.from_array(scores.mean(axis=2))
    assert any("cluster" in flag for flag in found.flags)
    assert found.se == pytest.approx(compare(None, None, items).se, rel=0.05)
    assert (
        found.se
        > 1.3
        * compare(
            None,
            None,
            data,
            clusters={"none": 1} | {str(item): n for n, item in enumerate(data.item_ids)},
        ).se
    )


@pytest.mark.slow
def test_judges_that_prefer_a_model_do_not_give_a_verdict():
    """Equal models, and judges who each favour one: other judges would have judged otherwise."""
    rng = np.random.default_rng(5)
    n, false, without = 60, 0, 0
    for _ in range(n):
        favour = rng.normal(0, 0.05, (2, 1, 4))
        scores = rng.random((2, 150, 4)) < 0.5 + favour
        data = judged(scores)
        false += compare(None, None, data, judges="judge").verdict in ("better", "worse")
        without += compare(None, None, data).verdict in ("better", "worse")
    assert stats.binomtest(false, n, 0.05, "greater").pvalue > 0.01
    assert without > 2 * false + 5
    two = compare(None, None, judged(scores[:, :, :2]), judges="judge")
    assert any("whether other judges would agree is not identified" in f for f in two.flags)


def test_further_trials_do_not_reduce_the_noise_of_judges():
    """With judges that disagree about which model is better, no number of trials is named."""
    rng = np.random.default_rng(5)
    scores = rng.normal([[[0.5]], [[0.52]]], 0.02, (2, 60, 3))
    scores[1] += [0.3, 0.0, -0.3]
    data = judged(scores.clip(0, 1))
    assert compare(None, None, data, judges="judge").more_repeats is None
    assert compare(None, None, data, clusters="base_item").more_repeats is not None


def test_bad_judgements():
    scores = np.random.default_rng(6).random((2, 5, 2))
    with pytest.raises(InputError, match="judgements with the facet judge"):
        judges(Responses.from_array(scores[:, :, 0]))
    with pytest.raises(InputError, match="two judges or more"):
        judges(judged(scores[:, :, :1]))
    apart = scores.copy()
    apart[:, :2, 0] = apart[:, 2:, 1] = np.nan
    with pytest.raises(InputError, match="of the same answers by two judges"):
        judges(judged(apart))
    with pytest.raises(InputError, match="`repeats` argument must be"):
        judges(judged(scores), repeats="votes")
    with pytest.raises(InputError, match="`judges` argument must be a facet"):
        compare(None, None, Responses.from_array(scores[:, :, 0]), judges="judge")
    one = judges(judged(scores[:1]))
    assert np.isnan(one.components["variance"]["subject"])
    assert any("one subject is not identified" in flag for flag in one.flags)


def votes_of(rng, shape, leniency=0.0):
    """Right or wrong judgements of answers whose quality varies, subjects x items x judges."""
    m, i, j = shape
    quality = rng.beta(0.8, 0.8, (m, i, 1)) + leniency * rng.normal(size=(1, 1, j))
    return (rng.random(shape) < quality).astype(float)


@pytest.mark.slow
def test_noise_of_majorities_is_that_of_other_panels():
    """Panels of three, drawn from many judges of the same answers."""
    rng = np.random.default_rng(7)
    scores = votes_of(rng, (3, 80, 120), leniency=0.1)
    panels = (scores.reshape(3, 80, 40, 3).mean(axis=3) > 0.5).mean(axis=1)
    found = [judges(judged(scores[:, :, at : at + 8]), n=2).votes for at in range(0, 120, 8)]
    assert found[0]["is_bound"].tolist() == [False, False, True, True]
    score = np.sqrt(np.mean([table["score"][3] ** 2 for table in found]))
    assert score == pytest.approx(100 * panels.std(axis=1, ddof=1).mean(), rel=0.15)
    difference = np.sqrt(np.mean([table["difference"][3] ** 2 for table in found]))
    between = [(panels[a] - panels[b]).std(ddof=1) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert difference == pytest.approx(100 * np.mean(between), rel=0.15)
    assert found[0]["score"][5] == found[0]["score"][3]
    assert judges(judged(scores[:, :, :8] * 0.9), n=2).votes.empty


@pytest.mark.slow
def test_noise_of_one_judge_is_that_of_the_components():
    """A panel of one has no majority: its error is that of a mean, also of several answers."""
    rng = np.random.default_rng(12)
    favour = 0.1 * rng.normal(size=(4, 1, 9, 1))
    scores = rng.random((4, 60, 9, 2)) < np.clip(rng.random((4, 60, 1, 2)) + favour, 0, 1)
    found = judges(judged(scores.astype(float)), n=2)
    assert found.votes["score"][1] == pytest.approx(found.noise["score"][1], rel=0.02)
    assert found.votes["difference"][1] == pytest.approx(found.noise["difference"][1], rel=0.02)


def test_pairs_of_judges():
    rng = np.random.default_rng(8)
    scores = votes_of(rng, (2, 40, 3))
    scores[0, :5, 2] = np.nan
    found = judges(judged(scores), n=2).pairs
    assert found[["judge", "other", "n"]].to_numpy().tolist() == [
        ["j0", "j1", 80],
        ["j0", "j2", 75],
        ["j1", "j2", 75],
    ]
    x, y = scores[:, :, 0].ravel(), scores[:, :, 1].ravel()
    assert found["kappa"][0] == pytest.approx(cohen_kappa(x.tolist(), y.tolist()))
    assert found["agreement"][0] == (x == y).mean()


def test_judges_of_few_answers_are_flagged():
    scores = votes_of(np.random.default_rng(9), (2, 20, 4))
    scores[:, 1:, 2] = scores[1, :, 2] = np.nan  # one answer
    alone = table_of(scores[:, :, :3])
    alone = pd.concat([alone, alone[:1].assign(item="i99", judge="j3")])  # none with others
    found = judges(Responses.from_long(alone, facets="judge"), n=2)
    assert found.judges["n_shared"].tolist() == [40, 40, 1, 0]
    assert found.judges["severity"].isna().tolist() == [False, False, True, True]
    assert "2 of 4 judges share fewer than 2 answers with others" in found.flags


def test_reruns_of_judged_answers_are_of_answers():
    """Judges who always agree add no information: the noise is that of one of them."""
    rng = np.random.default_rng(10)
    right = (rng.random((3, 50, 4)) < rng.random((3, 50, 1))).astype(float)
    one = reruns(Responses.from_trials(right), n=20)
    twice = Responses.from_long(table_of(np.repeat(right[:, :, None], 2, axis=2)), facets="judge")
    found = reruns(twice, n=20)
    assert found.noise_floor == pytest.approx(one.noise_floor)
    assert found.flip_rate == pytest.approx(one.flip_rate)
    np.testing.assert_allclose(found.components["variance"], one.components["variance"])
    np.testing.assert_allclose(found.passes["pass_hat_k"], one.passes["pass_hat_k"])
    assert "trials are means over the facets of an item, such as its judges" in found.flags
    with pytest.raises(InputError, match=r"irtcat\.diagnose\.judges"):
        reruns(Responses.from_long(table_of(np.ones((2, 3, 2))), facets="judge"))


def test_pass_rates_are_of_decisions():
    """pass@k and pass^k by majority are those of the decided answers, which means do not have."""
    rng = np.random.default_rng(11)
    right = rng.random((2, 60, 1, 4)) < rng.random((2, 60, 1, 1))
    said = np.where(rng.random((2, 60, 3, 4)) < 0.1, ~right, right).astype(float)
    data = judged(said)
    assert reruns(data, n=2).passes.empty
    decided = reruns(combine_judges(data, decision="majority"), n=2, k=(1, 3)).passes
    wanted = reruns(Responses.from_trials(said.mean(axis=2) > 0.5), n=2, k=(1, 3)).passes
    np.testing.assert_allclose(decided.to_numpy(), wanted.to_numpy())


def test_judges_of_different_items_leave_others_unknown():
    """No item that all judged: nothing would be added for other judges, and a flag says so."""
    scores = votes_of(np.random.default_rng(13), (2, 40, 3))
    for judge in range(3):
        scores[:, judge::3, judge] = np.nan
    flags = compare(None, None, judged(scores), judges="judge").flags
    assert "no item judged by all judges: whether others would agree is not identified" in flags


def test_a_judge_without_judgements_is_left_out():
    scores = np.random.default_rng(3).random((4, 12, 2))
    extra = np.full((4, 12, 1), np.nan)
    names = [f"q{q} j{j}" for q in range(12) for j in range(3)]
    items = pd.DataFrame(
        {"base_item": np.repeat(np.arange(12), 3), "judge": np.tile(["a", "b", "c"], 12)}, names
    )
    values = np.concatenate([scores, extra], axis=2).reshape(4, 36)
    found = judges(Responses.from_array(values, item_ids=names, items=items))
    two = judges(judged(scores))
    np.testing.assert_array_equal(found.judges, two.judges)
    assert found.judges.index.tolist() == ["a", "b"]

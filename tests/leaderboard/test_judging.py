"""Abilities from judgements, against the MM algorithm, log-linear models and simulated judges."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from irtcat import InputError
from irtcat.leaderboard import judged_abilities

NAMES = np.array(["m1", "m2", "m3", "m4", "m5"])


def votes_of(n, rng, ability=(-1.0, -0.4, 0.1, 0.5, 0.8), position=0.0, tie=0.0, length=0.0):
    """Votes of a judge with these effects."""
    first, second = np.array([rng.choice(5, 2, replace=False) for _ in range(n)]).T
    size = rng.integers(50, 800, (2, n))
    eta = np.take(ability, first) - np.take(ability, second) + position
    eta = eta + length * np.log2(size[0] / size[1])
    weight = np.stack([np.exp(eta / 2), np.exp(-eta / 2), np.full(n, tie)], axis=1)
    drawn = (rng.random(n)[:, None] > np.cumsum(weight / weight.sum(1, keepdims=True), 1)).sum(1)
    return pd.DataFrame(
        {
            "a": NAMES[first],
            "b": NAMES[second],
            "outcome": np.array(["a", "b", "tie"])[drawn],
            "length_a": size[0],
            "length_b": size[1],
        }
    )


def glm(x, y, mean, variance):
    """Coefficients and information of a regression, by iterated reweighted least squares."""
    beta = np.zeros(x.shape[1])
    for _ in range(100):
        mu = mean(x @ beta)
        information = (x.T * variance(mu)) @ x
        beta = beta + np.linalg.solve(information, x.T @ (y - mu))
    return beta, information


def minorised(table):
    """Bradley-Terry abilities by the MM algorithm (Hunter 2004, section 3)."""
    won = pd.crosstab(
        np.where(table["outcome"] == "a", table["a"], table["b"]),
        np.where(table["outcome"] == "a", table["b"], table["a"]),
    ).to_numpy()
    n, strength = won + won.T, np.ones(len(won))
    for _ in range(5000):
        strength = won.sum(1) / (n / (strength[:, None] + strength)).sum(1)
        strength /= strength.mean()
    return np.log(strength) - np.log(strength).mean()


def log_linear(table):
    """Abilities, their covariance, order effect and tie weight of Davidson's model.

    It is a log-linear model of the counts of outcomes with a constant for each ordered pair
    (Fienberg & Larntz 1976).
    """
    rows = []
    for pair, (i, j) in enumerate(itertools.permutations(range(5), 2)):
        part = table[(table["a"] == NAMES[i]) & (table["b"] == NAMES[j])]["outcome"]
        for outcome, sign in (("a", 0.5), ("b", -0.5), ("tie", 0.0)):
            x = np.zeros(4 + 2 + 20)
            for m, direction in ((i, sign), (j, -sign)):
                if m:
                    x[m - 1] += direction
            x[4], x[5], x[6 + pair] = sign, outcome == "tie", 1
            rows.append([(part == outcome).sum(), *x])
    counts = np.array(rows)
    beta, information = glm(counts[:, 1:], counts[:, 0], np.exp, lambda mu: mu)
    covariance = np.linalg.inv(information)
    center = np.vstack([np.zeros(4), np.eye(4)]) - 0.2
    return center @ beta[:4], center @ covariance[:4, :4] @ center.T, beta[4], np.exp(beta[5])


def test_bradley_terry_equals_the_mm_algorithm():
    table = votes_of(400, np.random.default_rng(0))
    found = judged_abilities(table, effects=())
    np.testing.assert_allclose(found.abilities["ability"], minorised(table), atol=1e-6)
    anchored = judged_abilities(table, effects=(), anchor="m3").abilities["ability"]
    difference = found.difference("m5", "m3")
    assert difference["ability"] == pytest.approx(anchored["m5"], abs=1e-6)
    assert anchored["m3"] == 0


@pytest.mark.slow
def test_ties_and_position_equal_a_log_linear_model():
    table = votes_of(900, np.random.default_rng(1), position=0.4, tie=0.8)
    found = judged_abilities(table)
    ability, covariance, position, tie = log_linear(table)
    np.testing.assert_allclose(found.abilities["ability"], ability, atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-6)
    judge = found.judges.iloc[0]
    assert judge["position"] == pytest.approx(position, abs=1e-6)
    assert judge["tie_rate"] == pytest.approx(tie / (2 + tie), abs=1e-6)
    # Ties and order effects aside, a judge wins as the abilities say.
    d = ability[4] - ability[0]
    expected = (np.exp(d / 2) + tie / 2) / (np.exp(d / 2) + np.exp(-d / 2) + tie)
    assert found.win_rates.loc["m5", "m1"] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(found.win_rates + found.win_rates.T, 1)


@pytest.mark.slow
def test_length_and_errors_by_item_equal_a_logistic_regression():
    rng = np.random.default_rng(2)
    table = votes_of(600, rng, position=-0.3, length=0.5).assign(item=rng.integers(0, 60, 600))
    found = judged_abilities(table, effects=("position", "length"), anchor="m1")
    x = (table["a"].to_numpy()[:, None] == NAMES[1:]).astype(float)
    x -= table["b"].to_numpy()[:, None] == NAMES[1:]
    lengths = np.log2(table["length_a"] / table["length_b"])
    x, y = np.column_stack([x, np.ones(600), lengths]), (table["outcome"] == "a").to_numpy(float)
    beta, information = glm(x, y, expit, lambda p: p * (1 - p))
    scores = pd.DataFrame(x * (y - expit(x @ beta))[:, None]).groupby(table["item"]).sum()
    inverse = np.linalg.inv(information)
    covariance = 60 / 59 * inverse @ scores.T.to_numpy() @ scores.to_numpy() @ inverse
    np.testing.assert_allclose(found.abilities["ability"].iloc[1:], beta[:4], atol=1e-6)
    judge = found.judges.iloc[0]
    np.testing.assert_allclose(judge[["position", "length"]].astype(float), beta[4:], atol=1e-6)
    se = [*found.abilities["se"].iloc[1:], judge["position_se"], judge["length_se"]]
    np.testing.assert_allclose(se, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert found.df == 59


def graded(rng, ability, severity, consistency, cuts, judge, n):
    """Grades 1 to 4 of n answers of each subject."""
    at_least = expit(consistency * (ability[:, None] - severity - cuts))
    grade = 1 + (rng.random((len(ability), n, 1)) < at_least[:, None]).sum(axis=2)
    rows = [(m, f"q{i}", judge, grade[m, i]) for m in range(len(ability)) for i in range(n)]
    table = pd.DataFrame(rows, columns=["subject", "item", "judge", "grade"])
    return table.assign(subject=NAMES[table["subject"]])


@pytest.mark.slow
def test_votes_grades_and_gold_in_one_likelihood():
    rng, ability = np.random.default_rng(3), np.array([-1.0, -0.4, 0.1, 0.5, 0.8])
    cuts = np.array([-1.0, 0.2, 1.1])
    parts = [votes_of(1500, rng).assign(judge="people")]
    parts.append(votes_of(3000, rng, 0.5 * ability, position=0.5).assign(judge="hasty"))
    parts.append(graded(rng, ability, 0.0, 1.0, cuts, "kind", 500))
    parts.append(graded(rng, ability, 0.6, 2.0, cuts, "severe", 500))
    table = pd.concat(parts, ignore_index=True).drop(columns="item")
    found = judged_abilities(table, gold="people")
    judges = found.judges
    assert judges.loc["people", ["position", "position_se", "length"]].tolist() == [0, 0, 0]
    assert judges["consistency"].mean() == pytest.approx(1)
    # In units of the average judge of the votes, people's being 1 and the hasty judge's .5.
    checks = [
        (found.abilities["ability"], found.abilities["se"], 0.75 * ability),
        (judges["consistency"]["hasty"], judges["consistency_se"]["hasty"], 0.5 / 0.75),
        (judges["position"]["hasty"], judges["position_se"]["hasty"], 0.5),
        (judges["grade_consistency"]["severe"], judges["grade_consistency_se"]["severe"], 2 / 0.75),
    ]
    for value, se, truth in checks:
        assert (np.abs(value - truth) < 3 * se).all()
        assert (np.asarray(se) < 0.25).all()
    gap = judges["severity"]["severe"] - judges["severity"]["kind"]
    assert gap == pytest.approx(0.6 * 0.75, abs=0.12)
    np.testing.assert_allclose(np.diff(found.thresholds), 0.75 * np.diff(cuts), atol=0.2)
    alone = judged_abilities(parts[0]).abilities
    assert (found.abilities["se"] / 0.75 < alone["se"]).all()
    alone = judged_abilities(parts[2]).abilities["ability"]  # grades alone: their own unit
    assert np.corrcoef(alone, ability)[0, 1] > 0.97


@pytest.mark.slow
def test_shares_of_votes_are_votes():
    table = votes_of(500, np.random.default_rng(4))
    shares = table.assign(outcome=np.where(table["outcome"] == "a", 0.9, 0.1))
    whole = pd.concat(
        [table] * 9 + [table.assign(outcome=table["outcome"].map({"a": "b", "b": "a"}))]
    )
    found = judged_abilities(shares, effects=()).abilities
    expected = judged_abilities(whole, effects=()).abilities
    np.testing.assert_allclose(found["ability"], expected["ability"], atol=1e-6)
    assert (found["se"] > expected["se"]).all()  # 500 votes, not 5,000


def test_arena_columns_pooled_judges_and_repeats():
    table = votes_of(300, np.random.default_rng(5), tie=0.5)
    table = table.rename(columns={"a": "model_a", "b": "model_b", "outcome": "winner"})
    table["winner"] = table["winner"].replace(
        {"a": "model_a", "b": "model_b", "tie": "tie (bothbad)"}
    )
    table = table.assign(judge=[f"u{i // 3}" for i in range(300)], question_id=np.arange(300))
    found = judged_abilities(pd.concat([table, table.iloc[:7]]))
    assert found.judges.index.tolist() == ["(other judges)"]
    assert found.flags[0].startswith("100 judges with fewer than 30 judgements share")
    assert found.flags[1].startswith("7 votes repeat")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda t: t.assign(b=t["a"]), {}, "m. against itself in row 1'. Leave such rows out"),
        (lambda t: t.assign(outcome="draw"), {}, "outcome is a, b, tie, .* Got 'draw in row 1"),
        (lambda t: t.assign(outcome=None), {}, "Got 'neither in row 1"),
        (lambda t: t[(t["a"] == "m1") == (t["b"] == "m1")], {"anchor": "m1"}, "anchor"),
        (
            lambda t: t[t["a"].isin(["m1", "m2"]) == t["b"].isin(["m1", "m2"])],
            {},
            "2 groups of subjects were never compared with each other, .* that of m1 .* that of m3",
        ),
        (
            lambda t: t.assign(
                outcome=np.select([t["a"] == "m5", t["b"] == "m5"], ["a", "b"], t["outcome"])
            ),
            {},
            r"No judgement is lost or tied by m5 against others: .* Leave it out, or state a prior",
        ),
        (
            lambda t: t[t["a"] == "m1"],
            {},
            "position effect of the judge .* is not determined: .* Leave position out",
        ),
        (lambda t: t.drop(columns="length_a"), {"effects": ["length"]}, "length_a is above 0"),
        (lambda t: t, {"gold": "people"}, "gold"),
        (lambda t: t, {"effects": "position"}, "effects"),
    ],
)
def test_refusals(change, options, message):
    table = change(votes_of(900, np.random.default_rng(6)))
    with pytest.raises(InputError, match=message):
        judged_abilities(table, **options)


@pytest.mark.slow
def test_a_prior_replaces_refusals_by_flags():
    table = votes_of(300, np.random.default_rng(7))
    split = table[table["a"].isin(["m1", "m2"]) == table["b"].isin(["m1", "m2"])]
    found = judged_abilities(split, prior=1.0)
    assert np.isfinite(found.to_frame()[["ability", "se"]]).all(axis=None)
    assert "only the prior relates their abilities" in found.flags[0]
    ahead = table.assign(
        outcome=np.select([table["a"] == "m5", table["b"] == "m5"], ["a", "b"], table["outcome"])
    )
    found = judged_abilities(ahead, prior=1.0)
    assert found.to_frame().index[0] == "m5"
    assert found.abilities["se"].max() < 1.1
    assert "only the prior keeps the distance finite" in found.flags[0]

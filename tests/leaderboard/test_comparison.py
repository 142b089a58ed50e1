"""Two models on one subset: by hand, coverage by simulation, small samples, and what is refused."""

import itertools

import numpy as np
import pytest
from scipy import stats

import irtcat
from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.leaderboard import compare
from irtcat.leaderboard.comparison import ESTIMANDS
from irtcat.responses import Responses
from irtcat.selection import Subset, select

ITEMS = 500


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return ItemBank.from_parameters(a=rng.lognormal(0.1, 0.4, ITEMS), b=rng.normal(-0.3, 1, ITEMS))


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.random.default_rng(2).normal(size=40), seed=2)


@pytest.fixture(scope="module")
def both(bank):
    return bank.simulate([0.0, 0.5], seed=3)


def test_paired_by_hand(calibration, both):
    subset = select(None, 80, strategy="random", calibration=calibration, seed=5)
    found = compare(calibration, subset, both, estimand="run", method="paired")
    d = np.diff(both.subset(items=subset.item_ids).to_numpy(), axis=0)[0]
    new_only, old_only = (d > 0).sum(), (d < 0).sum()
    p12, p21 = (new_only + 1) / 82, (old_only + 1) / 82
    # Bonett & Price (2012), with the correction for a finite number of items
    se = np.sqrt((p12 + p21 - (p12 - p21) ** 2) / 82 * (1 - 80 / ITEMS))
    assert found.difference == pytest.approx(d.mean())
    assert found.se == pytest.approx(se, rel=0.01)
    assert found.lower == pytest.approx(p12 - p21 - 1.96 * found.se, abs=1e-4)
    assert found.upper == pytest.approx(p12 - p21 + 1.96 * found.se, abs=1e-4)
    assert found.p_better == pytest.approx(stats.norm.cdf((p12 - p21) / found.se))
    assert (found.n_new_only, found.n_old_only, found.n_items) == (new_only, old_only, 80)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(p12 - p21) / found.se))
    assert (found.new, found.old, found.level) == ("s2", "s1", 0.95)
    turned = compare(calibration, subset, both, new="s1", old="s2", estimand="run", method="paired")
    assert turned.lower == pytest.approx(-found.upper)
    assert turned.p_better == pytest.approx(1 - found.p_better)
    assert irtcat.compare is compare


def simulated(bank, calibration, k, method, theta, known, draws=250):
    """Covered, told wrongly, and width, over new pairs of models and new subsets."""
    rng = np.random.default_rng(k)
    out = []
    pairs = bank.simulate(np.repeat([theta], draws, axis=0).ravel(), seed=k).to_numpy()
    for old, new in pairs.reshape(draws, 2, ITEMS):
        at = rng.permutation(ITEMS)[:k]
        X = np.array([old, new])
        if not known:
            X[:, np.setdiff1d(np.arange(ITEMS), at)] = np.nan
        r = Responses.from_array(X, ["old", "new"], calibration.item_ids)
        ids = calibration.item_ids[at].astype(str)
        subset = Subset(ids, np.full(k, 1 / k), np.full(k, k / ITEMS), np.zeros(k), "random", 0)
        found = compare(calibration, subset, r, estimand="run", method=method)
        true = new.mean() - old.mean()
        wrong = found.verdict == ("worse" if true >= 0 else "better")
        out.append((found.lower <= true <= found.upper, wrong, found.upper - found.lower))
    return np.mean(out, axis=0)


@pytest.mark.slow_cases("15", "200")
@pytest.mark.parametrize("k", [15, 60, 200])
@pytest.mark.slow
def test_intervals_cover_and_false_alarms_are_rare(bank, calibration, k):
    cover, wrong, width = simulated(bank, calibration, k, "paired", [0.0, 0.1], known=False)
    assert cover > 0.93
    assert wrong < 0.035
    known = simulated(bank, calibration, k, "assisted", [0.0, 0.1], known=True)
    assert known[0] > 0.92
    assert known[1] < 0.035
    assert known[2] < 0.9 * width


def test_old_model_known_in_full_is_assisted_by_default(calibration, both):
    subset = select(None, 80, strategy="random", calibration=calibration)
    found = compare(calibration, subset, both)
    assert found.method == "assisted"
    X = both.to_numpy()
    X[0, ~np.isin(both.item_ids, subset.item_ids)] = np.nan
    partly = Responses.from_array(X, item_ids=both.item_ids)
    assert compare(calibration, subset, partly).method == "paired"
    new = both.subset(subjects=["s2"])
    renamed = Responses.from_array(new.to_numpy(), ["new"], new.item_ids)
    assert compare(calibration, subset, renamed, old="s7").method == "assisted"
    few = select(None, 12, strategy="random", calibration=calibration)
    assert compare(calibration, few, both).method == "paired"


def test_all_items_leave_nothing_unknown(calibration, both):
    subset = select(None, ITEMS, strategy="random", calibration=calibration)
    found = compare(calibration, subset, both, estimand="run")
    true = np.diff(both.to_numpy().mean(axis=1))[0]
    for value in (found.difference, found.lower, found.upper):
        assert value == pytest.approx(true)
    assert found.more_items == 0
    assert found.verdict == ("better" if true > 0 else "worse")


def test_models_that_agree_throughout(calibration, both):
    X = np.repeat(both.to_numpy()[:1], 2, axis=0)
    same = Responses.from_array(X, item_ids=both.item_ids)
    subset = select(None, 20, strategy="random", calibration=calibration)
    found = compare(calibration, subset, same, method="paired")
    assert found.verdict == "cannot tell"
    assert found.lower < -0.05 < 0.05 < found.upper
    assert found.p_value == 1
    assert found.p_better == 0.5
    assert found.more_items == ITEMS - 20
    assert "both gave the same answer to every item run" in found.flags


@pytest.mark.slow
def test_the_items_asked_for_would_tell():
    rng, n = np.random.default_rng(9), 2000
    old = np.tile(np.r_[np.zeros(15), np.ones(9), np.ones(50), np.zeros(26)], 20)
    new = np.tile(np.r_[np.ones(15), np.zeros(9), np.ones(50), np.zeros(26)], 20)
    r = Responses.from_array([old, new])  # 6 points apart, and so on the first 100 items

    def compared(at):
        ids, k = r.item_ids[at].astype(str), len(at)
        equal = Subset(ids, np.full(k, 1 / k), np.full(k, k / n), np.zeros(k), "random", 0)
        return compare(r, equal, r, estimand="run", method="paired")

    found = compared(np.arange(100))
    assert found.difference == pytest.approx(0.06)
    assert found.verdict == "cannot tell"
    k = 100 + found.more_items
    told = [compared(rng.permutation(n)[:k]).verdict == "better" for _ in range(150)]
    assert np.mean(told) == pytest.approx(0.8, abs=0.1)


@pytest.mark.slow
def test_items_picked_are_checked_against_calibrated_pairs(bank, calibration, both):
    subset = select(bank, 40, strategy="fisher", calibration=calibration)
    found = compare(calibration, subset, both)
    assert any("not drawn at random: interval widened" in flag for flag in found.flags)
    plain = compare(calibration, list(subset.item_ids), both)
    assert any("not drawn at random" in flag for flag in plain.flags)


def factor_of(found):
    (flag,) = (flag for flag in found.flags if "widened x" in flag)
    return float(flag.split(" x ")[1].split(",")[0])


@pytest.mark.slow
def test_the_test_and_the_interval_agree(bank, calibration):
    rng = np.random.default_rng(4)
    close = 0
    for seed in range(6):
        pair = bank.simulate([0.0, rng.choice([0.2, 0.5, 0.8])], seed=seed)
        r = Responses.from_array(pair.to_numpy(), ["old", "new"], pair.item_ids)
        ids = list(calibration.item_ids[rng.permutation(ITEMS)[: rng.choice([25, 120, 399])]])
        for method, estimand in itertools.product(("paired", "assisted"), ESTIMANDS):
            for level in (0.8, 0.95):
                found = compare(calibration, ids, r, estimand=estimand, method=method, level=level)
                assert (found.p_value < 1 - level) == (found.verdict != "cannot tell")
                assert found.p_value == pytest.approx(
                    2 * min(found.p_better, 1 - found.p_better), abs=1e-12
                )
                close += 0.01 < found.p_value < 0.2
    assert close > 3  # where two tests could differ


def test_a_difference_that_nothing_can_undo_is_certain():
    old = np.r_[np.zeros(80), np.ones(20)]
    sure = Responses.from_array([old, np.ones(100)], ["old", "new"])
    found = compare(sure, list(sure.item_ids[:90]), sure, estimand="run")  # 10 items cannot undo 80
    assert (found.verdict, found.p_value, found.p_better) == ("better", 0.0, 1.0)


def test_few_calibrated_models_widen_as_their_pairs_need(bank, calibration, both):
    at = np.argsort(-bank.to_frame()["b"].to_numpy())[:60]  # the hardest items
    ids = list(calibration.item_ids[at])
    one_pair = calibration.subset(subjects=["s3", "s9"])
    drawn = Subset(
        np.array(ids, str), np.full(60, 1 / 60), np.full(60, 60 / ITEMS), np.zeros(60), "random", 0
    )
    renamed = Responses.from_array(both.to_numpy(), ["old", "new"], both.item_ids)
    plain = compare(one_pair, drawn, renamed, estimand="run", method="paired")
    known = compare(
        one_pair, drawn, one_pair, estimand="run", method="paired"
    )  # the interval without the choice
    true = np.diff(one_pair.to_numpy().mean(axis=1))[0]
    ratio = ((known.lower + known.upper) / 2 - true) / known.se
    by_hand = stats.t.ppf(0.975, 5) * np.sqrt((4 + ratio**2) / 5) / stats.norm.ppf(0.975)
    found = compare(one_pair, ids, renamed, estimand="run", method="paired")
    assert found.se == pytest.approx(by_hand * plain.se)
    alone = compare(
        calibration.subset(subjects=["s3"]), ids, renamed, estimand="run", method="paired"
    )
    by_hand = stats.t.ppf(0.975, 4) / stats.norm.ppf(0.975)
    assert alone.se == pytest.approx(by_hand * plain.se)
    assert "without calibrated pairs" in " ".join(alone.flags)


@pytest.mark.slow
def test_pairs_that_lack_a_few_answers_widen_like_complete_ones(bank, calibration, both):
    at = np.argsort(-bank.to_frame()["b"].to_numpy())[:60]
    ids = list(calibration.item_ids[at])
    X = calibration.to_numpy()
    for row in range(len(X)):
        X[row, row::101] = np.nan  # no model is complete, as after samples that crashed
    holes = Responses.from_array(X, calibration.subject_ids, calibration.item_ids)
    renamed = Responses.from_array(both.to_numpy(), ["old", "new"], both.item_ids)
    complete, found = (factor_of(compare(r, ids, renamed)) for r in (calibration, holes))
    assert complete > 1.1
    assert found == pytest.approx(complete, rel=0.1)
    few = [
        factor_of(compare(r.subset(subjects=range(12)), ids, renamed)) for r in (calibration, holes)
    ]
    assert min(few) > 1.1


def test_fractions_and_gaps(calibration, both):
    X = 0.7 * both.to_numpy() + 0.2
    X[0, :3] = np.nan
    r = Responses.from_array(X, item_ids=both.item_ids)
    ids = list(calibration.item_ids[:50])
    found = compare(calibration, ids, r)
    assert found.n_items == 47
    assert "3 of 50 items not answered by both" in found.flags
    assert 0 < found.p_value <= 1
    assert found.p_value == compare(calibration, ids, r).p_value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"new": "s9"}, "`new` argument"),
        ({"old": "nobody"}, "`old` argument"),
        ({"new": "s1"}, "`old` argument must be given, as the first model of responses, s1"),
        ({"new": "s1", "old": "s1"}, "`new` argument must be a model other than old"),
        ({"method": "luck"}, "`method` argument"),
        ({"level": 1.0}, "`level` argument"),
        ({"subset": ["zz"]}, "Got zz"),
        ({"subset": []}, "`subset` argument"),
        ({"subset": ["i1", "i1"]}, "different item ids"),
        ({"subset": ["i1"]}, "at least 2 items"),
        ({"subset": ["i1", "i2", "i3"], "method": "assisted"}, "`method` argument must be paired"),
        ({"responses": 3}, "`responses` argument must be Responses, an array"),
    ],
)
def test_refused(calibration, both, given, words):
    start = {"calibration": calibration, "subset": ["i1", "i2"], "responses": both}
    with pytest.raises(InputError, match=words):
        compare(**{**start, **given})


def test_one_model_alone_needs_the_name_of_the_old_one(calibration, both):
    alone = both.subset(subjects=["s2"])
    renamed = Responses.from_array(alone.to_numpy(), ["mine"], alone.item_ids)
    subset = list(calibration.item_ids[:30])
    with pytest.raises(InputError, match="The `old` argument must be given: responses have mine"):
        compare(calibration, subset, renamed)
    assert compare(calibration, subset, renamed, old="s7").new == "mine"


def test_graded_answers_are_read_in_the_calibrations_codes():
    rng = np.random.default_rng(0)
    grades = rng.integers(1, 5, (30, 60))
    grades[:, :2] = 1, 4
    calibration = Responses.from_array(grades)
    pair = np.vstack([rng.integers(1, 3, 60), rng.integers(2, 4, 60)])
    both = Responses.from_array(pair, ["old", "new"], calibration.item_ids)
    subset = select(None, 30, strategy="random", calibration=calibration)
    at = np.isin(calibration.item_ids, subset.item_ids)
    found = compare(calibration, subset, both, "new", "old", method="paired")
    assert found.difference == pytest.approx(np.diff(pair[:, at], axis=0).mean() / 3)
    high = Responses.from_array(pair + 2, ["old", "new"], calibration.item_ids)
    with pytest.raises(InputError, match=r"codes of calibration \(1 to 4\). Got 5"):
        compare(calibration, subset, high, "new", "old")


def test_a_single_id_is_no_subset(calibration, both):
    with pytest.raises(InputError, match="a Subset or a list of different item ids"):
        compare(calibration, "i1", both)

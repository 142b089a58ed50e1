"""Scales of awkward tables: labels, names, gaps, unequal categories, order of items."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, fit, scale
from irtcat.scale import apply
from irtcat.scale.calibrator import Calibrator, as_three_pl, guessing_table, one_model

QUICK = {"two_factors": "skip", "alpha_guessing": 0, "n_factors": 1}
IDS = ["NA", "nan", "a,b", "x/y", "ü|x", '"q"', "#1", "two\nlines"]


@pytest.fixture(scope="module")
def responses():
    """Eight items, an all-right one and one that tells nothing; gaps in a fifth of the answers."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=np.linspace(1.0, 2.0, 8), b=rng.normal(0, 0.8, 8))
    X = bank.simulate(rng.normal(size=600), seed=1).to_numpy()
    X = np.column_stack([X, np.ones(600), rng.random(600) < 0.5])
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:20, :4] = np.nan
    X[20:40, 4:] = np.nan
    return Responses.from_array(X, item_ids=[*IDS, "all", "coin"])


def test_labels_that_cannot_be_used(responses):
    twice = pd.Series(["a"] * 9, index=[IDS[0], *IDS])
    for wrong, text in (
        (twice, "several for 'NA'"),
        (5, "Got 5"),
        ([["a"]] * 10, "one label"),
        ({"all": "x"}, "all subjects answer alike"),
        ([" "] * 10, "one item has a group"),
    ):
        with pytest.raises(InputError, match=text):
            scale.build(responses, wrong, **QUICK)
    with pytest.raises(InputError, match="`seed`"):
        scale.build(responses, seed=-1)
    with pytest.raises(InputError, match="`rotation`"):
        scale.build(responses, rotation="spin")
    assert scale.Rules(alpha_fit=np.float32(0.01)).alpha_fit == np.float32(0.01)


@pytest.fixture(scope="module")
def found(responses):
    labels = ["a/b"] * 4 + ["a_b"] * 4 + ["a/b", "  "]
    return scale.build(
        responses, labels, alpha_fit=0, alpha_dependence=0, least_communality=0.01, **QUICK
    )


@pytest.mark.slow
def test_names_that_collide_as_files(found, tmp_path):
    written = found.save(tmp_path)
    assert len(set(written)) == len(written) == len(list(tmp_path.iterdir()))
    for name, stem in scale.file_names(found.scales).items():
        bank = ItemBank.load(tmp_path / f"{stem}.npz")
        assert bank.item_ids.tolist() == found[name].retained
    again = pd.read_csv(tmp_path / "items.csv", keep_default_na=False)
    assert again["item"].tolist() == IDS
    assert len(scale.file_names(["A", "a", "x" * 300, "/"])["x" * 300]) < 100
    with pytest.raises(InputError, match="cannot be created"):
        found.save(tmp_path / "report.md" / "deeper")


@pytest.mark.slow
def test_report_lists_excluded_items_and_requested_factors(found):
    text = found.report()
    assert "2 more items were left out of all scales" in text
    assert "| all | answers | answered alike by all |" in text
    assert "| coin | group | none given |" in text
    assert "1 factor requested, without parallel analysis" in text
    assert "| two lines |" in text


@pytest.mark.slow
def test_subjects_who_lack_a_part(found):
    table = found["a/b"].abilities
    assert (table["flag"][:20] == "no responses").all()
    assert (table["n"][:20] == 0).all()
    assert np.isfinite(table["theta"]).all()
    assert found["a/b"].items["flag"].eq("").all()


@pytest.mark.slow
def test_idle_and_filling_items_with_gaps(responses):
    """They take nothing from and add nothing to the log-likelihood, also where answers lack."""
    data = responses.subset(items=[*range(8), 9])
    kept = np.arange(9) < 6
    value = Calibrator(data, 12).fit(kept, np.zeros(9, bool))[1]
    plain = fit(data.subset(items=np.flatnonzero(kept)), "2pl", standard_errors="none")
    assert value == pytest.approx(plain.log_likelihood, abs=1e-4)


@pytest.mark.slow_cases("both")
@pytest.mark.parametrize("which", ["2pl", pytest.param("3pl", marks=pytest.mark.slow), "both"])
def test_removed_items_beside_any_bank(responses, which):
    """As if calibrated with the bank's items as anchors."""
    model = {"2pl": IDS[:3], "3pl": IDS[3:8]} if which == "both" else which
    bank = fit(responses.subset(items=IDS), model, standard_errors="none").bank
    own = Calibrator(responses, 12).on_scale(bank, ["coin"]).to_frame()
    assert own.index.tolist() == ["coin"]
    data = responses.subset(items=[*IDS, "coin"])
    options = {"anchors": bank} if which == "2pl" else {"anchors": as_three_pl(bank)}
    if which != "2pl":
        options["fixed"] = {"c": {"coin": 0.0}}
    name = "2pl" if which == "2pl" else "3pl"
    plain = fit(data, name, standard_errors="none", **options).bank.subset(["coin"]).to_frame()
    np.testing.assert_allclose(own[["a"]], plain[["a"]], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("guessers", [[], [4, 5], list(range(8))])
def test_the_final_calibration_is_the_plain_one(guessers):
    """Parameters, errors and all that is recorded, whatever shape it was computed in."""
    c = np.where(np.isin(np.arange(8), guessers), 0.35, 0)
    bank = ItemBank.from_parameters(a=np.linspace(1.2, 2.2, 8), b=np.linspace(-1, 1, 8), c=c)
    X = bank.simulate(np.random.default_rng(0).normal(size=3000), seed=0).to_numpy()
    about = pd.DataFrame({"form": [*"AABBAABB"]}, index=[f"i{j}" for j in range(1, 9)])
    data = Responses.from_array(X.astype(int) + 1, items=about, codes=(1, 2))
    kept, guessing = np.arange(8) != 6, c > 0
    own, converged = Calibrator(data, 12).final(kept, guessing)
    plain = one_model(data.subset(items=np.flatnonzero(kept)), guessing[kept]).bank
    assert converged
    assert own.model.key == plain.model.key
    numbers = plain.to_frame().select_dtypes("number")
    np.testing.assert_allclose(own.to_frame()[numbers.columns], numbers, rtol=5e-3, atol=1e-4)
    if len(guessers) < 8:  # easy items tell next to nothing of c
        np.testing.assert_allclose(own.full_covariance, plain.full_covariance, rtol=0.01, atol=1e-5)
    pd.testing.assert_frame_equal(own.items, plain.items)
    pd.testing.assert_frame_equal(own.statistics, plain.statistics)
    told, asked = own.provenance, plain.provenance
    assert told["log_likelihood"] == pytest.approx(asked["log_likelihood"], abs=1e-4)
    loose = ("log_likelihood", "n_iterations")
    assert {k: told[k] for k in told if k not in loose} == {
        k: asked[k] for k in asked if k not in loose
    }


@pytest.mark.slow
def test_order_and_repetition_do_not_matter(responses):
    data = responses.subset(items=[*range(8), 9])
    rng = np.random.default_rng(3)
    other = data.subset(rng.permutation(600), rng.permutation(9))
    first, second = (scale.build(r, **QUICK)["all"] for r in (data, other))
    assert set(first.removed) == set(second.removed) == {"coin"}
    columns = ["a", "b", "communality"]
    table = second.items.loc[first.items.index, columns]
    np.testing.assert_allclose(table, first.items[columns], atol=2e-3)
    again = scale.build(data, **QUICK)
    pd.testing.assert_frame_equal(again["all"].items, first.items)


@pytest.mark.slow
def test_a_part_of_fewer_categories_than_the_table():
    """Right/wrong items beside graded ones, and graded ones without the top category."""
    theta = np.random.default_rng(5).normal(size=500)
    bank = ItemBank.from_thresholds(
        np.full(10, 1.7), np.tile([[-1.0, 0.0, 1.0]], (10, 1)), model="graded"
    )
    X = bank.simulate(theta, seed=6).to_numpy()
    X[:, :5] = X[:, :5] > 1
    X[:, 5] = np.minimum(X[:, 5], 2)
    groups = ["right/wrong"] * 5 + ["graded"] * 5
    found = scale.build(Responses.from_array(X), groups, least_share=0, **QUICK)
    own = found["right/wrong"]
    assert own.bank is not None
    told = own.score(Responses.from_array(X))
    np.testing.assert_allclose(told.theta.ravel(), own.abilities["theta"], atol=1e-9)
    assert found["graded"].bank is not None


@pytest.mark.slow
def test_guessing_statistics_do_not_hang_on_the_tolerance(responses):
    data = responses.subset(items=list(range(5)))
    calibrator, kept = Calibrator(data, 12), np.ones(5, bool)
    table = guessing_table(calibrator, kept, np.zeros(5, bool), 0.05)
    fine = {"tolerance": 1e-5}
    base = calibrator.fit(kept, np.zeros(5, bool), **fine)[1]
    for j, x2 in enumerate(table["x2"]):
        value = calibrator.fit(kept, np.arange(5) == j, **fine)[1]
        assert x2 == pytest.approx(max(2 * (value - base), 0), abs=2e-3)


@pytest.mark.slow
def test_which_of_two_copies_goes_does_not_hang_on_the_order():
    rng = np.random.default_rng(5)
    bank = ItemBank.from_parameters(a=np.linspace(1.0, 1.8, 7), b=np.linspace(-1, 1, 7))
    x = bank.simulate(rng.normal(size=500), seed=1).to_numpy()
    x = np.column_stack([x, x[:, 2]])
    ids = [f"i{j}" for j in range(7)] + ["copy"]
    data = Responses.from_array(x, item_ids=ids)
    for order in (range(8), [7, 2, 0, 1, 6, 5, 4, 3]):
        found = scale.build(data.subset(items=[ids[j] for j in order]), **QUICK)["all"]
        assert found.removed == ["i2"]  # later as text than "copy"


@pytest.mark.slow
def test_points_of_graded_items():
    rng = np.random.default_rng(6)
    theta = rng.normal(size=400)
    x = (theta[:, None] + rng.logistic(size=(400, 5)) > 0).astype(int)
    x += (theta[:, None] + rng.logistic(size=(400, 5)) > 1).astype(int)
    data = Responses.from_array(x + 1, codes=[1, 2, 3])
    own = scale.build(data, **QUICK, alpha_fit=0, alpha_dependence=0)["all"]
    np.testing.assert_array_equal(own.abilities["points"], x.sum(axis=1))
    assert "number_correct" not in own.abilities


def test_systems_under_other_conditions_are_scored_where_that_is_accepted():
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 20))
    bank = replace(bank, items=bank.items.assign(metric="acc"))
    taken = bank.simulate([-0.5, 1.0], seed=1)
    taken = replace(taken, items=taken.items.assign(metric="f1"))
    scales = {"easy": bank[:10], "hard": bank[10:]}
    with pytest.raises(InputError, match="Got metric f1"):
        apply(scales, taken)
    assert len(apply(scales, taken, mismatch="accept")) == 4

"""Scales: planted faults are dropped, good items stay, every decision is on record."""

import json

import numpy as np
import pandas as pd
import pytest

from irtcat import EM, InputError, ItemBank, Responses, fit, scale
from irtcat.cli import main
from irtcat.scale.calibrator import Calibrator, communality, guessing_table

N = 1500
GOOD = 12
FAULTS = ["flat", "key", "twin", "bow"]


def run(*arguments):
    """The exit code of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["irtcat", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0
    return 0


@pytest.fixture(scope="module")
def theta():
    return np.random.default_rng(1).normal(size=N)


@pytest.fixture(scope="module")
def responses(theta):
    """Twelve good items; a flat one, a wrong key, a near copy of a good one, one with a bow."""
    rng = np.random.default_rng(2)
    bank = ItemBank.from_parameters(a=np.linspace(1.0, 2.2, GOOD), b=np.linspace(-1.5, 1.5, GOOD))
    # Of 150 such data sets one in twenty has a pair with Holm's p < .05 by chance (seed 3 does).
    X = bank.simulate(theta, seed=6).to_numpy()
    flat = rng.random(N) < 0.6
    key = rng.random(N) < 1 / (1 + np.exp(1.5 * theta))
    twin = np.where(rng.random(N) < 0.7, X[:, 5], rng.random(N) < 1 / (1 + np.exp(-0.9 * theta)))
    rising, falling = (1 / (1 + np.exp(-s * (theta - m))) for s, m in ((2.5, -0.8), (4.0, 0.9)))
    bow = rng.random(N) < 0.1 + 0.85 * rising - 0.6 * falling
    X = np.column_stack([X, flat, key, twin, bow]).astype(int)
    ids = [f"g{j}" for j in range(GOOD)] + FAULTS
    groups = pd.DataFrame({"part": ["one"] * len(ids)}, index=ids)
    return Responses.from_array(X, item_ids=ids, items=groups)


@pytest.fixture(scope="module")
def found(responses):
    return scale.build(responses, "part", two_factors="skip")


@pytest.mark.slow
def test_planted_faults_are_dropped_and_good_items_kept(found):
    assert list(found.scales) == ["one"]
    own = found["one"]
    assert set(own.removed) == set(FAULTS)
    assert set(own.retained) == {f"g{j}" for j in range(GOOD)}
    assert own.status == "ok"
    reasons = own.items.loc[FAULTS, "reason"]
    assert reasons["flat"] == "communality"
    assert reasons["key"] == "discrimination"
    assert reasons["twin"] == "LD-X2 with g5"
    assert reasons["bow"].startswith(("S-X2", "LD-X2", "communality"))


@pytest.mark.slow
def test_every_drop_is_a_row_and_in_its_round(found):
    own, table = found["one"], found.decisions
    assert list(table.columns) == scale.COLUMNS
    dropped = table[table["action"] == "drop"]
    assert sorted(dropped["item"]) == sorted(own.removed)
    by_item = dropped.set_index("item")["round"]
    pd.testing.assert_series_equal(
        own.items.loc[own.removed, "round"].astype(int), by_item[own.removed], check_names=False
    )
    tests = dropped[dropped["statistic"].str.contains("X2")]
    assert (tests["p"] < 0.05).all()
    assert tests["round"].is_unique  # one at a time
    assert own.n_rounds == dropped["round"].max() + 1


@pytest.mark.slow
def test_the_bank_is_the_plain_fit_of_what_is_left(found, responses):
    own = found["one"]
    plain = fit(responses.subset(items=own.retained), "2pl", EM(tolerance=1e-6))
    np.testing.assert_allclose(own.bank.parameters(), plain.bank.parameters(), atol=1e-6)
    told = own.score(responses)
    np.testing.assert_allclose(told.theta.ravel(), own.abilities["theta"], atol=1e-9)
    assert own.abilities["percentile"].between(0, 100).all()
    x = responses.subset(items=own.retained).to_numpy()
    np.testing.assert_array_equal(own.abilities["number_correct"], x.sum(axis=1))
    assert 0.7 < own.reliability["marginal"] < 0.95
    assert own.reliability.notna().all()
    assert own.fit.p > 0.001


@pytest.mark.slow
def test_removed_items_are_told_on_the_final_scale(found, responses):
    items = found["one"].items
    assert items.loc["key", "a"] < 0
    assert items.loc["flat", "communality"] < 0.05
    anchored = fit(
        responses.subset(items=[*found["one"].retained, "flat"]), "2pl", anchors=found["one"].bank
    )
    flat = anchored.bank.subset(["flat"]).to_frame()
    assert items.loc["flat", "a"] == pytest.approx(flat["a"].iloc[0], abs=0.02)
    curves = found["one"].curves
    assert set(curves.loc[curves["status"] == "removed", "item"]) == set(FAULTS)


@pytest.mark.slow
def test_calibrator_is_the_plain_fit(responses):
    """The same log-likelihood and parameters whatever is idle and filled up."""
    data = responses.subset(items=list(range(14)))
    calibrator = Calibrator(data, 16)
    kept = np.ones(14, bool)
    kept[[3, 12, 13]] = False
    found, value = calibrator.fit(kept, np.zeros(14, bool))
    plain = fit(data.subset(items=np.flatnonzero(kept)), "2pl", standard_errors="none")
    assert value == pytest.approx(plain.log_likelihood, abs=1e-4)
    own = found.bank.subset(plain.bank.item_ids.tolist()).to_frame()[["a", "b"]]
    np.testing.assert_allclose(own, plain.bank.to_frame()[["a", "b"]], atol=2e-3)


@pytest.mark.slow
def test_guessing_is_found_where_it_is(theta):
    """The test's statistic is twice the gain of a fit with that one c free; guessers are found."""
    c = np.zeros(10)
    c[[2, 7]] = 0.35
    bank = ItemBank.from_parameters(a=np.full(10, 2.0), b=np.linspace(-1.0, 1.0, 10), c=c)
    data = bank.simulate(np.random.default_rng(5).normal(size=4000), seed=6)
    calibrator = Calibrator(data)
    table = guessing_table(calibrator, np.ones(10, bool), np.zeros(10, bool), 0.05)
    ids = data.item_ids.tolist()
    mixed = {"3pl": [ids[7]], "2pl": [i for i in ids if i != ids[7]]}
    gain = (
        fit(data, mixed, priors={"c": None}, standard_errors="none").log_likelihood
        - fit(data, "2pl", standard_errors="none").log_likelihood
    )
    assert table.loc[ids[7], "x2"] == pytest.approx(2 * gain, abs=0.01)
    built = scale.build(data, n_factors=1, two_factors="skip")
    own = built["all"]
    guessed = own.items.index[own.items["c"] > 0.1].tolist()
    assert {ids[2], ids[7]} <= set(guessed)
    kept_c = built.decisions[built.decisions["action"] == "keep c"]["item"].tolist()
    assert {ids[2], ids[7]} <= set(kept_c)
    assert own.bank.subset([ids[7]]).to_frame()["c"].iloc[0] == pytest.approx(0.35, abs=0.1)


@pytest.mark.slow
def test_two_factors_make_two_scales():
    rng = np.random.default_rng(8)
    pair = rng.multivariate_normal([0, 0], [[1, 0.3], [0.3, 1]], 1000)
    bank = ItemBank.from_parameters(a=np.full(8, 1.8), b=np.linspace(-1, 1, 8))
    X = np.hstack([bank.simulate(pair[:, d], seed=d).to_numpy() for d in (0, 1)]).astype(int)
    X = np.column_stack([X, np.ones(1000, int)])
    data = Responses.from_array(X, item_ids=[*"abcdefgh", *"ABCDEFGH", "all"])
    found = scale.build(data, two_factors="skip", alpha_guessing=0)
    assert found.n_factors == 2
    assert found.split == "factors"
    parts = {frozenset(own.items.index) for own in found.scales.values()}
    assert parts == {frozenset("abcdefgh"), frozenset("ABCDEFGH")}
    first = found.decisions.iloc[0]
    assert (first["item"], first["action"]) == ("all", "drop")
    assert (found.decisions["action"] == "assign").sum() == 16
    own = next(iter(found.scales.values()))
    truth = pair[:, 0] if "a" in own.items.index else pair[:, 1]
    assert np.corrcoef(own.abilities["theta"], truth)[0, 1] > 0.75
    # Two abilities in one scale are told, and refused where that is asked.
    refused = scale.build(data.subset(items=list(range(16))), ["x"] * 16, two_factors="refuse")
    assert refused["x"].bank is None
    assert "two abilities" in refused["x"].status
    assert (refused["x"].items["status"] == "removed").all()
    assert refused.decisions.iloc[-1]["action"] == "refuse"
    with pytest.raises(InputError, match="one with items"):
        refused["x"].score(data)


@pytest.mark.slow
def test_groups_by_column_mapping_and_list(responses):
    half = {f"g{j}": "even" if j % 2 == 0 else "odd" for j in range(GOOD)}
    options = {"two_factors": "skip", "alpha_guessing": 0, "n_factors": 1}
    found = scale.build(responses, half, **options)
    assert list(found.scales) == ["even", "odd"]
    assert sum(len(own.items) for own in found.scales.values()) == GOOD
    without = found.decisions[found.decisions["statistic"] == "group"]
    assert set(without["item"]) == set(FAULTS)
    assert list(scale.build(responses, "part", **options).scales) == ["one"]
    for wrong, text in (("colour", "part"), (["a"], "one label"), ({"zz": 1}, "zz")):
        with pytest.raises(InputError, match=text):
            scale.build(responses, wrong, **options)


@pytest.mark.slow
def test_gaps_and_categories(theta):
    bank = ItemBank.from_thresholds(
        np.linspace(1.2, 2.0, 6), np.tile([[-1.0, 0.0, 1.0]], (6, 1)), model="graded"
    )
    X = bank.simulate(theta[:600], seed=4).to_numpy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    found = scale.build(Responses.from_array(X), alpha_fit=0.01)
    own = found["all"]
    assert len(own.retained) == 6
    assert own.factors is None
    assert own.guessing.empty
    assert own.abilities["theta"].notna().all()


@pytest.mark.slow
def test_what_half_of_the_items_contradict_is_no_scale(theta):
    rng = np.random.default_rng(3)
    bank = ItemBank.from_parameters(a=np.full(5, 1.5), b=np.linspace(-1, 1, 5))
    X = np.column_stack([bank.simulate(theta, seed=1).to_numpy(), rng.random((N, 7)) < 0.5])
    data = Responses.from_array(X.astype(int))
    options = {"two_factors": "skip", "alpha_guessing": 0, "n_factors": 1}
    none = scale.build(data, **options)["all"]
    assert none.bank is None
    assert "50%" in none.status
    kept = scale.build(data, least_share=0, **options)["all"]
    assert kept.retained == [f"i{j}" for j in range(1, 6)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alpha_fit": 1.0}, "alpha_fit"),
        ({"least_communality": -1}, "least_communality"),
        ({"two_factors": "maybe"}, "two_factors"),
        ({"criterion": "best"}, "criterion"),
        ({"least_items": 2}, "least_items"),
        ({"n_factors": 0}, "n_factors"),
        ({"alpha_dependence": "x"}, "alpha_dependence"),
    ],
)
def test_thresholds_out_of_range(responses, options, text):
    with pytest.raises(InputError, match=f"`{text}`"):
        scale.build(responses, **options)


def test_unusable_responses():
    with pytest.raises(InputError, match="`responses`"):
        scale.build([[1, 0]])
    with pytest.raises(InputError, match="at least 4 items"):
        scale.build(Responses.from_array(np.ones((30, 6), int)))
    with pytest.raises(InputError, match="Got 'fractions'"):
        scale.build(Responses.from_array(np.random.default_rng(0).random((30, 6))))
    with pytest.raises(InputError, match="at least 2 subjects"):
        scale.build(Responses.from_array([[1, 0, 1, 0, 1], [-1] * 5]))


def test_saved_and_loaded(found, tmp_path):
    written = found.save(tmp_path / "out")
    assert all(path.is_file() for path in written)
    bank = ItemBank.load(tmp_path / "out" / "one.npz")
    np.testing.assert_array_equal(bank.parameters(), found["one"].bank.parameters())
    again = pd.read_csv(tmp_path / "out" / "decisions.csv")
    assert len(again) == len(found.decisions)
    text = (tmp_path / "out" / "report.md").read_text()
    for item in FAULTS:
        assert item in text
    assert f"{GOOD} of {GOOD + len(FAULTS)} items were retained" in text
    with pytest.raises(InputError, match="a folder"):
        found.save(tmp_path / "out" / "report.md")


def test_communality():
    bank = ItemBank.from_parameters(a=[1.702, 0.0, -1.702], b=[0.0, 0.0, 0.0])
    np.testing.assert_allclose(communality(bank), [0.5, 0.0, 0.5])


def test_command(responses, tmp_path, capsys):
    data = tmp_path / "r.csv"
    frame = pd.DataFrame(responses.to_numpy().astype(int), columns=responses.item_ids)
    frame.insert(0, "subject", responses.subject_ids)
    frame.to_csv(data, index=False)
    out = tmp_path / "scales"
    options = ["--two-factors", "skip", "--json", "--n-factors", "1", "--alpha-guessing", "0"]
    assert run("scale", data, "--out", out, *options) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scales"][0]["retained"] == GOOD
    assert (out / "report.md").is_file()
    assert (out / "all_removed.png").is_file()
    assert run("scale", data, "--out", data) == 2
    assert "would be replaced" in capsys.readouterr().err
    other = tmp_path / "items.csv"
    other.write_text("id,part\nz,a\n")
    assert run("scale", data, "--out", out, "--items", other, "--groups", "part") == 1
    assert "has none of the items" in capsys.readouterr().err

"""The publishing report against direct simulation and closed forms."""

import json
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.agreement import rudner_classification
from irtcat.cat import drawn_abilities, simulate
from irtcat.service.definition import (
    Adaptive,
    Cut,
    DefinitionError,
    Fixed,
    Instructions,
    PublishingReport,
    ScoreScale,
    TestDefinition,
    exposure_parameters,
    pool_of,
    publish_report,
)
from irtcat.service.definition.publishing import TABLES

DRAW = np.random.default_rng(0)
N = 120
BANK = replace(
    ItemBank.from_parameters(a=DRAW.lognormal(0.2, 0.3, N), b=DRAW.normal(size=N)),
    items=pd.DataFrame({"topic": np.array(["x", "y", "z"])[np.arange(N) % 3]}),
)
SCALE = ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0, show=["score", "level"])
CUTS = [Cut(label="Basic", from_score=450), Cut(label="High", from_score=560)]
ADAPTIVE = Adaptive(
    config={
        "stopping": "se<0.35 or n>=15",
        "min_items": 5,
        "exposure": {"name": "randomesque", "k": 4},
        "group": "topic",
        "targets": {"x": 0.4, "y": 0.3, "z": 0.3},
    }
)
FIXED = Fixed(items=[f"i{k}" for k in range(1, 21)])


def test_of(*sections, **fields):
    fields = {"title": "A", "score": SCALE, "cuts": CUTS, **fields}
    return TestDefinition(sections=sections, **fields)


test_of.__test__ = False
BOTH = test_of(Instructions(text="Hello"), ADAPTIVE, FIXED)


@pytest.fixture(scope="module")
def report():
    return publish_report(BOTH, BANK, 600, seed=1)


@pytest.fixture(scope="module")
def alone():
    return publish_report(test_of(ADAPTIVE), BANK, 2000, seed=2)


@pytest.mark.slow
def test_every_table_has_its_columns(report):
    docs = PublishingReport.to_frame.__doc__
    for name in TABLES:
        table = report.to_frame(name)
        assert len(table) > 0
        listed = docs.split(f'"{name}" (')[1].split(")")[0]
        for column in table.columns.intersection(["section", "mean", "score", "level", "rate"]):
            assert column in listed
    with pytest.raises(InputError, match="one of length, endings,"):
        report.to_frame("nothing")


def test_lengths(report):
    table = report.to_frame("length").set_index("section")
    assert table.index.tolist() == ["2", "3", "all"]
    assert table.loc["3", ["fewest", "mean", "most"]].tolist() == [20, 20, 20]
    assert 5 <= table.loc["2", "fewest"] <= table.loc["2", "q50"] <= table.loc["2", "most"] == 15
    assert table.loc["all", "mean"] == pytest.approx(table.loc["2", "mean"] + 20)
    assert report.figures["mean_items"] == pytest.approx(table.loc["all", "mean"])


@pytest.mark.slow
def test_an_adaptive_section_is_simulated_by_the_engine(alone):
    """Lengths, endings and exposure of another simulation with other takers agree."""
    direct = simulate(BANK, drawn_abilities(BANK, 2000, 9), ADAPTIVE.config, seed=77)
    length = alone.to_frame("length").iloc[0]
    assert length["mean"] == pytest.approx(direct.n_items.mean(), abs=0.25)
    shares = alone.to_frame("endings").set_index("rule")["share"]
    np.testing.assert_allclose(shares, direct.reasons() / 2000, atol=0.04)
    rates = alone.to_frame("items")["rate"].to_numpy()
    np.testing.assert_allclose(rates, direct.exposure()["rate"], atol=0.06)
    exposure = alone.to_frame("exposure").iloc[0]
    assert exposure["max_rate"] == rates.max()
    assert exposure["never_used"] == (rates == 0).mean()
    assert exposure["overlap"] == pytest.approx(direct.overlap(), abs=0.02)
    # The engine's own estimates are EAP with the same prior: those of all scored answers.
    assert alone.figures["rmse"] == pytest.approx(direct.summary()["rmse"], abs=0.015)
    assert alone.figures["mean_se"] == pytest.approx(direct.summary()["mean_se"], abs=0.01)
    assert alone.figures["coverage"] == pytest.approx(0.95, abs=0.015)


def test_fixed_items_are_not_in_the_pool(report):
    assert not set(FIXED.items) & set(report.to_frame("items")["item"])
    assert set(pool_of(BOTH, ADAPTIVE, BANK)) == set(report.to_frame("items")["item"])


@pytest.mark.slow
def test_more_items_measure_better(report, alone):
    assert report.figures["rmse"] < alone.figures["rmse"]
    assert report.figures["reliability"] > alone.figures["reliability"]


def test_errors_by_ability(report):
    table = report.to_frame("errors")
    assert table["theta"].round(6).tolist() == np.linspace(-3, 3, 13).round(6).tolist()
    assert (table["sessions"] == 100).all()
    assert table["score"].tolist() == [200, *range(250, 800, 50), 800]
    np.testing.assert_allclose(table["csem_score"], 100 * table["csem"])
    middle = table[table["theta"].abs() < 1.1]
    assert (middle["bias"].abs() < 0.15).all()
    # EAP: bias is towards the mean.
    assert table["bias"].iloc[0] > 0 > table["bias"].iloc[-1]


def test_the_content_plan_is_kept(report):
    table = report.to_frame("content")
    assert table["group"].tolist() == ["x", "y", "z"]
    assert (table["satisfied"] == 1).all()
    assert table["planned"].sum() == 15


def test_levels(alone):
    table = alone.to_frame("levels").set_index("level")
    assert table.index.tolist() == ["Below the first level", "Basic", "High"]
    assert table["from"].tolist() == [200, 450, 560]
    assert table["true"].sum() == pytest.approx(1)
    from scipy.stats import norm

    np.testing.assert_allclose(
        table["true"], np.diff(norm.cdf([-np.inf, -0.505, 0.595, np.inf])), atol=0.03
    )
    np.testing.assert_allclose(table["observed"], table["true"], atol=0.05)


def test_rudner_agrees_with_the_simulation(alone):
    """4,000 sessions: the SE of a share is below .008, that of a pair of tests below .011."""
    table = alone.to_frame("classification").set_index(["method", "cut"])
    for cut in ("Basic", "High", "all"):
        rudner, counted = table.loc["rudner", :].loc[cut], table.loc["simulated", :].loc[cut]
        assert rudner["accuracy"] == pytest.approx(counted["accuracy"], abs=0.025)
        assert rudner["consistency"] == pytest.approx(counted["consistency"], abs=0.035)
        assert rudner["false_positive"] == pytest.approx(counted["false_positive"], abs=0.025)
    assert table.loc[("simulated", "all"), "accuracy"] > 0.7


def test_livingston_lewis_agrees_with_the_count_of_points(report, alone):
    table = report.to_frame("classification").set_index(["method", "cut"])
    for cut in ("Basic", "High"):
        model, counted = (table.loc[(m, cut)] for m in ("livingston-lewis", "number-right"))
        assert model["accuracy"] == pytest.approx(counted["accuracy"], abs=0.04)
        assert model["consistency"] == pytest.approx(counted["consistency"], abs=0.05)
    model = report.classifications["livingston-lewis"].model
    assert 12 <= model.n_items <= 40
    assert "livingston-lewis" not in alone.classifications


def test_the_simulation_counts_what_it_says(alone):
    simulated = alone.classifications["simulated"]
    rows = alone.to_frame("classification").query("method == 'simulated'")
    assert rows["accuracy"].iloc[-1] == simulated.accuracy
    assert rows["cut"].tolist() == ["Basic", "High", "all"]
    np.testing.assert_allclose(
        simulated.cuts, rudner_classification([0.0], [1.0], [-0.505, 0.595]).cuts
    )


def test_the_bookmark_table_is_on_the_reported_scale(report):
    table = report.to_frame("bookmark")
    assert len(table) == N
    row = table.iloc[40]
    a, b = BANK[row["item"]][["a", "b"]]
    theta = b + np.log(2) / a
    assert row["theta"] == pytest.approx(theta, abs=1e-9)
    assert row["score"] == round(500 + 100 * theta)
    levels = {name: rows["theta"] for name, rows in table.groupby("level")}
    assert levels["Below the first level"].max() < -0.505 <= levels["Basic"].min()
    assert levels["Basic"].max() < 0.595 <= levels["High"].min()
    half = publish_report(BOTH, BANK, 600, response_probability=0.5).to_frame("bookmark")
    assert half["theta"].to_numpy() == pytest.approx(np.sort(BANK.to_frame()["b"]))


def test_json(report):
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    again = PublishingReport.from_json(document)
    assert again.to_json() == report.to_json()
    assert again.summary() == report.summary()
    assert again.definition == BOTH.hash()
    for name in TABLES:
        pd.testing.assert_frame_equal(
            again.to_frame(name), report.to_frame(name), check_dtype=False, check_index_type=False
        )
    with pytest.raises(InputError, match="a publishing report"):
        PublishingReport.from_json({"definition": "x"})


def test_the_summary_is_one_page(report):
    text = report.summary()
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 100
    for word in ("600 takers", "RMSE", "Exposure", "Ended by", "Content", "Basic", "rudner"):
        assert word in text


@pytest.mark.slow
def test_the_seed_decides(report):
    again, other = (publish_report(BOTH, BANK, 600, seed=seed).to_json() for seed in (1, 2))
    assert again == report.to_json()
    assert again["figures"] != other["figures"]


@pytest.mark.slow
def test_a_fixed_test_without_cuts():
    report = publish_report(test_of(FIXED, cuts=(), score=ScoreScale(method="wle")), BANK, 200)
    assert len(report.to_frame("exposure")) == len(report.to_frame("classification")) == 0
    assert report.to_frame("levels")["true"].tolist() == [1]
    assert report.to_frame("errors")["items"].tolist() == [20] * 13
    assert PublishingReport.from_json(report.to_json()).summary() == report.summary()


@pytest.mark.slow
def test_two_adaptive_sections_with_pools_of_their_own():
    config = {"max_items": 6, "exposure": {"name": "randomesque", "k": 4}}
    first, second = (
        Adaptive(config=config, where={"topic": topics}) for topics in (["x"], ["y", "z"])
    )
    definition = test_of(first, second)
    report = publish_report(definition, BANK, 100)
    assert report.to_frame("length")["mean"].tolist() == [6, 6, 12]
    items = report.to_frame("items")
    topics = BANK.items["topic"].reindex(items["item"]).to_numpy()
    assert set(topics[items["section"] == "1"]) == {"x"}
    assert set(topics[items["section"] == "2"]) == {"y", "z"}


@pytest.mark.slow
def test_pretest_items_are_not_scored():
    bank = replace(BANK, items=BANK.items.assign(new=np.arange(N) >= 100))
    config = {"max_items": 8, "pretest": "new", "pretest_at": [3, 6]}
    report = publish_report(test_of(Adaptive(config=config)), bank, 100)
    assert report.to_frame("length")["mean"].tolist() == [8, 8]
    items = report.to_frame("items").set_index("item")["rate"]
    assert items[[f"i{k}" for k in range(101, 121)]].sum() == pytest.approx(2)


@pytest.mark.slow
def test_sections_have_independent_answers():
    """Equal pools in two sections: with equal answers the intervals would be too narrow."""
    b = np.tile(np.linspace(-2, 2, 20), 2)
    bank = replace(
        ItemBank.from_parameters(a=1.5, b=b),
        items=pd.DataFrame({"topic": np.repeat(["x", "y"], 20)}),
    )
    sections = [Adaptive(config={"max_items": 8}, where={"topic": [t]}) for t in ("x", "y")]
    report = publish_report(test_of(*sections), bank, 500)
    assert report.figures["coverage"] > 0.92
    assert report.figures["rmse"] == pytest.approx(report.figures["mean_se"], rel=0.1)


@pytest.mark.slow
def test_answers_to_pretest_items_do_not_enter_the_score():
    """Other parameters of the pretest items change nothing: they are drawn at the same steps."""
    new = np.arange(N) >= 100
    config = {"max_items": 8, "pretest": "new", "pretest_at": [3, 6], "nodes": 121}
    figures = []
    for a in (1.0, 3.0):
        bank = ItemBank.from_parameters(
            a=np.where(new, a, 1.5), b=np.where(new, 0.0, np.linspace(-2, 2, N))
        )
        bank = replace(bank, items=pd.DataFrame({"new": new}))
        figures.append(publish_report(test_of(Adaptive(config=config)), bank, 100).figures)
    assert figures[0] == pytest.approx(figures[1], abs=1e-6)


@pytest.mark.slow
def test_items_with_several_categories():
    b = np.sort(DRAW.normal(size=(60, 3)), axis=1) + DRAW.normal(size=(60, 1))
    bank = ItemBank.from_thresholds(DRAW.lognormal(0.1, 0.3, 60), b)
    definition = test_of(
        Adaptive(config={"stopping": "n>=6"}), Fixed(items=["i1", "i2", "i3", "i4"])
    )
    report = publish_report(definition, bank, 200)
    assert len(report.to_frame("bookmark")) == 180
    assert report.figures["reliability"] > 0.8
    assert "livingston-lewis" in report.classifications
    rated = replace(bank, codes=(1, 2, 3, 4))
    assert publish_report(definition, rated, 200).figures == report.figures


@pytest.mark.slow
def test_sympson_hetter_is_calibrated():
    config = {"max_items": 5, "exposure": {"name": "sympson-hetter", "rate": 0.3}}
    definition = test_of(Instructions(text="Hello"), Adaptive(config=config))
    parameters = exposure_parameters(definition, BANK, seed=1)
    assert list(parameters) == [1]
    report = publish_report(definition, BANK, 500, seed=1, parameters=parameters)
    assert report.to_frame("exposure")["max_rate"].iloc[0] < 0.36
    assert exposure_parameters(BOTH, BANK) == {}


@pytest.mark.slow
def test_a_short_fixed_section_is_flagged():
    report = publish_report(test_of(Fixed(items=["i1", "i2", "i3"])), BANK, 200)
    assert any("rough for so few" in flag for flag in report.flags)


@pytest.mark.slow
def test_sessions_that_end_too_early_are_flagged():
    section = Adaptive(config={"stopping": "se<0.05 or n>=6"})
    report = publish_report(test_of(section), BANK, 50)
    assert "Section 1: 100% of the sessions end at the greatest length" in report.flags[0]


def test_a_definition_with_faults_is_refused():
    with pytest.raises(DefinitionError, match=r"config\.max_items"):
        publish_report(test_of(Adaptive(config={"max_items": 999})), BANK, 50)


@pytest.mark.slow_cases("options3")
@pytest.mark.parametrize(
    "options",
    [{"n_simulated": 1}, {"n_simulated": 2.5}, {"seed": -1}, {"response_probability": 67}],
)
def test_bad_arguments(options):
    with pytest.raises(InputError, match=f"`{next(iter(options))}` argument"):
        publish_report(BOTH, BANK, **{"n_simulated": 50, **options})


@pytest.mark.slow
def test_it_is_quick():
    """500 items and 1,000 takers take less than 10 seconds of one core, compiled."""
    draw = np.random.default_rng(3)
    bank = ItemBank.from_parameters(a=draw.lognormal(0.2, 0.3, 500), b=draw.normal(size=500))
    definition = test_of(
        Adaptive(config={"stopping": "se<0.3 or n>=20"}), Fixed(items=["i1", "i2", "i3"])
    )
    publish_report(definition, bank, 1000, seed=1)
    begin = time.process_time()
    publish_report(definition, bank, 1000, seed=2)
    assert time.process_time() - begin < 10

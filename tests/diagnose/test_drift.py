"""Drift of items with the subjects' dates, and contamination of subjects by the items' dates."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from irtcat import InputError, ItemBank, Responses, fit, score
from irtcat.cli._app import app
from irtcat.diagnose import find_drift
from irtcat.diagnose.drift import years_of
from irtcat.report import build

N_ITEMS, N_SUBJECTS = 60, 200


def simulated(seed, leaked=(), contaminated=(), model_items=N_ITEMS):
    """Responses with a trend of ability, leaked items, and subjects better on earlier items."""
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(0, 0.3, model_items), rng.normal(0, 1.2, model_items)
    released = rng.uniform(2020, 2025, N_SUBJECTS)
    published = rng.uniform(2019, 2026, model_items)
    theta = 0.3 * (released - 2022.5) + rng.normal(0, 0.8, N_SUBJECTS)
    shift = np.zeros((N_SUBJECTS, model_items))
    for item in leaked:
        a[item], b[item] = 1.0, 0.0
        shift[:, item] = 0.8 * (released - 2022.5)
    for subject in contaminated:
        shift[subject] = 2.0 * (published < released[subject])
    x = rng.random(shift.shape) < expit(a * (theta[:, None] + shift - b))
    responses = Responses.from_array(
        x.astype(int),
        subjects=pd.DataFrame({"date": released}, index=[f"s{i + 1}" for i in range(N_SUBJECTS)]),
        items=pd.DataFrame({"date": published}, index=[f"i{j + 1}" for j in range(model_items)]),
    )
    return responses


def drift_of(responses, **options):
    return find_drift(
        fit(responses, "2pl", standard_errors="none"), responses, "date", "date", **options
    )


@pytest.mark.slow
@pytest.mark.slow_cases("60-.*")
@pytest.mark.parametrize(("n_items", "sets", "tolerance"), [(20, 20, 0.15), (60, 10, 0.08)])
def test_without_drift_the_statistics_are_standard_normal(n_items, sets, tolerance):
    """Although ability rises with the date, in tests of 20 items as well."""
    items, subjects = [], []
    for seed in range(sets):
        result = drift_of(simulated(seed, model_items=n_items))
        items += result.items["z"].dropna().tolist()
        subjects += result.subjects["z"].dropna().tolist()
    assert np.mean(items) == pytest.approx(0, abs=0.12)
    # Little below 1 in short tests, where the information is that of known abilities.
    assert np.std(items) == pytest.approx(1, abs=tolerance)
    if subjects:  # 20 items leave too few on one side
        assert np.mean(subjects) == pytest.approx(0, abs=0.06)
        assert np.std(subjects) == pytest.approx(1, abs=0.06)


@pytest.mark.slow
def test_what_drifts_is_found_and_its_size_estimated():
    effects, excess = [], []
    for seed in range(4):
        result = drift_of(simulated(seed, leaked=[3, 40], contaminated=[10, 11]))
        found = set(result.items.index[result.items["drifts"]])
        assert {"i4", "i41"} <= found
        assert len(found) <= 5
        effects += result.items.loc[["i4", "i41"], "drift"].tolist()
        rows = result.subjects.loc[["s11", "s12"]]
        enough = rows[rows["n_before"].between(15, 45)]
        excess += enough["excess"].tolist()
        clean = result.subjects.drop(["s11", "s12"])
        assert clean["contaminated"].mean() < 0.03
        assert result.trend == pytest.approx(0.33, abs=0.08)
    assert 0.35 < np.mean(effects) < 0.9  # 0.8: one step from 0 is too short for large effects
    assert np.mean(excess) > 1.0


@pytest.mark.slow
def test_the_item_test_is_the_score_test_of_a_logistic_regression():
    """With known abilities: many items, against the closed form of one item."""
    responses = simulated(3, leaked=[5], model_items=400)
    fitted = fit(responses, "2pl", standard_errors="none")
    result = find_drift(fitted, responses, "date")
    theta = np.asarray(score(fitted, responses).theta)
    x = responses.to_numpy()[:, 5]
    frame = fitted.bank.to_frame().iloc[5]
    p = expit(frame["a"] * (theta - frame["b"]))
    d = responses.subjects["date"].to_numpy() - responses.subjects["date"].mean()
    w = p * (1 - p)
    basis = np.column_stack([np.ones(len(d)), theta])
    e = d - basis @ np.linalg.solve(basis.T @ (w[:, None] * basis), basis.T @ (w * d))
    z = (e * (x - p)).sum() / np.sqrt((w * e**2).sum())
    assert result.items["z"].iloc[5] == pytest.approx(z, rel=0.05)
    assert z > 2.5


@pytest.mark.slow
def test_graded_responses_and_missing_ones():
    bank = ItemBank.from_parameters(b=np.linspace(-1.5, 1.5, 30))
    years = np.repeat(np.arange(2020, 2025), 40)
    theta = 0.2 * (years - 2022) + np.random.default_rng(0).normal(size=200)
    x = bank.simulate(theta, seed=1).to_numpy() + bank.simulate(theta, seed=2).to_numpy()
    x[years == 2024, 29] = 2
    x[::7, ::3] = np.nan
    responses = Responses.from_array(x)
    fitted = fit(responses, "gpcm", standard_errors="none")
    result = find_drift(fitted, responses, pd.Series(years, index=responses.subject_ids))
    assert result.items["z"].idxmax() == "i30"
    assert result.subjects is None
    assert np.isfinite(result.items["z"]).all()


def test_what_cannot_be_tested_is_flagged():
    responses = simulated(1)
    x = responses.to_numpy().astype(float)
    x[8:, 0] = np.nan  # few answers
    x[:, 1] = 1  # all right
    dates = responses.subjects["date"].copy()
    dates.iloc[5] = np.nan
    published = responses.items["date"].copy()
    published.iloc[2:] = 2030.0  # no subject has two sides
    holes = Responses.from_array(x)
    fitted = fit(holes, "2pl", standard_errors="none")
    result = find_drift(fitted, holes, dates, published)
    assert result.items["flag"].iloc[0] == "few answers"
    assert np.isnan(result.items["z"].iloc[0])
    assert abs(np.nan_to_num(result.items["z"].iloc[1])) < 3
    assert result.subjects["p"].isna().all()
    assert result.subjects["flag"].iloc[5] == "no date"
    assert not result.subjects["contaminated"].any()


def test_dates_in_many_forms():
    ids = ["a", "b", "c"]
    table = pd.DataFrame({"when": ["2024-01-01", "2024-07-01", None]}, index=ids)
    years = years_of("dates", "when", ids, table, "subject")
    assert years[1] - years[0] == pytest.approx(0.4983, abs=1e-3)
    assert np.isnan(years[2])
    assert years_of("dates", {"c": 3, "a": 1, "b": 2}, ids, table, "subject").tolist() == [1, 2, 3]
    stamps = pd.Series(pd.to_datetime(["2024-01-01", "2025-01-01", "2026-01-01"]), index=ids)
    assert np.diff(years_of("dates", stamps, ids, table, "subject")) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dates": "when"}, "`dates` argument must be a column of the subjects' metadata .date."),
        ({"dates": {"s1": 1}}, "`dates` argument must be a date for every subject"),
        ({"dates": 3}, "`dates` argument must be a column, or a Series or mapping by subject id"),
        ({"dates": "text"}, "of years or dates such as 2024-05-31. Got 'soon for s3'"),
        ({"dates": "same"}, "at least two different dates"),
        ({"dates": "infinite"}, "Got 'inf for s1'"),
        ({"item_dates": "when"}, "`item_dates` argument must be a column of the items' metadata"),
        ({"alpha": 1.5}, "`alpha` argument must be"),
        ({"correction": "fdr"}, "`correction` argument must be one of"),
        ({"bank": ItemBank.from_parameters(b=[0.0])}, "a bank of all items of responses"),
        ({"bank": ItemBank.from_slopes(np.ones((N_ITEMS, 2)))}, "one ability"),
    ],
)
def test_refused(arguments, words):
    responses = simulated(0)
    responses.subjects["text"] = ["2024", "2025", "soon", *["2024"] * (N_SUBJECTS - 3)]
    responses.subjects["same"] = 2024.0
    responses.subjects["infinite"] = [np.inf, *np.arange(N_SUBJECTS - 1.0)]
    bank = ItemBank.from_parameters(b=np.zeros(N_ITEMS))
    with pytest.raises(InputError, match=words):
        find_drift(**({"bank": bank, "responses": responses, "dates": "date"} | arguments))


@pytest.mark.slow
def test_on_the_command_line_and_in_the_report(tmp_path):
    responses = simulated(2, leaked=[3], contaminated=[10])
    responses.to_frame().to_csv(tmp_path / "answers.csv")
    responses.subjects.to_csv(tmp_path / "subjects.csv")
    responses.items.to_csv(tmp_path / "items.csv")
    table, tests = tmp_path / "drift.csv", tmp_path / "contamination.csv"
    arguments = (
        "audit",
        tmp_path / "answers.csv",
        "--dates",
        "date",
        "--subjects",
        tmp_path / "subjects.csv",
        "--item-dates",
        "date",
        "--items",
        tmp_path / "items.csv",
        "--drift",
        table,
        "--contamination",
        tests,
        "--out",
        tmp_path / "suspects.csv",
        "--json",
    )
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    drifting = [row["item"] for row in document["drift"] if row["drifts"]]
    assert "i4" in drifting
    assert pd.read_csv(table)["item"].tolist() == responses.item_ids.tolist()
    assert pd.read_csv(tests).loc[10, "subject"] == "s11"
    page = build([table, tests])
    assert "Items that drift with the date of the subjects" in page
    assert "By how much each subject is better" in page

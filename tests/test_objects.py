"""Nouns behave: length, iteration, indexing, equality, copies, notebooks, `load`, `describe`."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError, ItemBank, Responses
from irtcat.cat import Store


@pytest.fixture(scope="module")
def responses():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 15))
    r = bank.simulate(np.linspace(-2, 2, 90), seed=1)
    values = r.to_numpy()
    values[3, 4] = np.nan
    ids = [f"m{n}" for n in range(90)]
    about = pd.DataFrame({"family": ["x", "y"] * 45, "size": np.arange(90.0)}, index=ids)
    return Responses.from_array(values, subject_ids=ids, subjects=about)


@pytest.fixture(scope="module")
def fit(responses):
    return irtcat.fit(responses)


def test_responses_are_a_mapping_by_subject(responses):
    assert len(responses) == 90
    assert list(responses)[:2] == ["m0", "m1"]
    assert "m3" in responses
    assert "m90" not in responses
    assert np.isnan(responses["m3"]["i5"])
    assert responses["m3"].equals(responses[3])
    assert responses[:10].n_subjects == 10
    assert responses[["m5", "m1"]].subject_ids.tolist() == ["m5", "m1"]
    assert responses.head(2).shape == (2, 15)
    np.testing.assert_array_equal(np.asarray(responses), responses.to_numpy())
    assert np.asarray(responses, np.float32).dtype == np.float32
    with pytest.raises(InputError, match="m90"):
        responses["m90"]


@pytest.mark.slow
def test_banks_are_a_mapping_by_item(fit):
    bank = fit.bank
    assert len(bank) == 15
    assert list(bank)[-1] == "i15"
    assert "i3" in bank
    assert 3 not in bank
    assert bank["i3"]["b"] == bank.to_frame()["b"].iloc[2]
    assert bank[-1].name == "i15"
    assert bank[:10].item_ids.tolist() == bank.item_ids[:10].tolist()
    assert bank[bank.to_frame()["b"].to_numpy() > 0].n_items < 15
    np.testing.assert_array_equal(np.asarray(bank), bank.parameters())
    with pytest.raises(InputError, match="unknown"):
        bank["unknown"]


def test_equality_ignores_identity_but_no_content(responses, fit):
    other = Responses.from_array(
        responses.to_frame(), subjects=responses.subjects, items=responses.items
    )
    assert other == responses
    assert hash(other) == hash(responses)
    assert responses != responses[:89]
    assert responses != "responses"
    values = responses.to_numpy()
    values[0, 0] = 1 - values[0, 0]
    changed = Responses.from_array(values, responses.subject_ids, subjects=responses.subjects)
    assert changed != responses
    assert fit.bank != fit.bank[:14]
    assert fit.bank != fit.bank.rescale(1.0, 0.1)
    assert fit.bank != 1


@pytest.mark.slow_cases("copy")
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_equal(clone, responses, fit):
    subset = irtcat.select(fit, 4)
    for noun in (responses, fit.bank, subset):
        assert clone(noun) == noun
    fit_copy = clone(fit)
    assert fit_copy.bank == fit.bank
    assert fit_copy.log_likelihood == fit.log_likelihood
    np.testing.assert_array_equal(clone(fit.abilities).theta, fit.abilities.theta)
    predictions = irtcat.predict(responses, subset, responses[:2])
    np.testing.assert_array_equal(clone(predictions).score, predictions.score)


@pytest.mark.slow
def test_load_reads_what_was_saved(responses, fit, tmp_path):
    subset = irtcat.select(fit, 4)
    responses.save(tmp_path / "r.npz")
    fit.bank.save(tmp_path / "bank.npz")
    subset.save(tmp_path / "items.csv")
    assert irtcat.load(tmp_path / "r.npz") == responses
    assert irtcat.load(str(tmp_path / "bank.npz")) == fit.bank
    loaded = irtcat.load(tmp_path / "items.csv")
    assert loaded == subset
    assert irtcat.predict(responses, loaded, responses[:2]).score.tolist() == (
        irtcat.predict(responses, subset, responses[:2]).score.tolist()
    )
    fit.bank.to_frame().rename_axis("item").to_csv(tmp_path / "table.csv")
    table = irtcat.load(tmp_path / "table.csv")
    assert table.index.tolist() == fit.bank.item_ids.tolist()
    store = Store(tmp_path / "tests.db")
    store.begin(fit.bank, irtcat.cat.Config(max_items=2), session_id="anna")
    assert irtcat.load(tmp_path / "tests.db").resume("anna").asked


def test_load_refuses_other_files(tmp_path):
    (tmp_path / "a.txt").write_text("1")
    for name, sentence in {
        "a.txt": "expected a .npz, .csv, .db or .json file",
        "missing.npz": "there is no such file",
        ".": "expected a folder that irtcat wrote",
    }.items():
        with pytest.raises(InputError, match=sentence):
            irtcat.load(tmp_path / name)


@pytest.mark.slow
def test_repeated_subjects_are_said_and_dropped_by_one_call():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
    values = bank.simulate(np.linspace(-2, 2, 60), seed=1).to_numpy()
    values[[7, 59]] = values[3]
    responses = Responses.from_array(values)
    fit = irtcat.fit(responses)
    (note,) = fit.notes
    assert note.startswith("2 subjects have the same responses as an earlier one (s8, s60)")
    assert note in fit.message
    unique = responses.without_duplicate_subjects()
    assert unique.n_subjects == 58
    assert not irtcat.fit(unique).notes
    short = Responses.from_array(values[:, :10])
    assert short.without_duplicate_subjects().n_subjects < 58
    assert not irtcat.fit(short).notes


def test_describe_takes_data_banks_and_fits(responses, fit, tmp_path):
    text = str(irtcat.describe(responses.to_frame()))
    assert text.startswith("90 subjects x 15 items, 0.1 % missing, read as right/wrong")
    assert "source         pandas DataFrame of one row per subject; ids = its index" in text
    fit.bank.save(tmp_path / "bank.npz")
    for bank in (fit.bank, tmp_path / "bank.npz"):
        summary = irtcat.describe(bank)
        assert str(summary).startswith(
            "15 items, 2pl, population N(0, 1)\ncalibrated on 90 subjects"
        )
        assert summary.to_frame().loc["b", "50%"] == fit.bank.to_frame()["b"].median()
    summary = irtcat.describe(fit)
    lines = str(summary).splitlines()
    assert lines[0] == "90 subjects x 15 items, 0.1 % missing, read as right/wrong"
    assert lines[1].startswith("Converged")
    assert f"AIC {fit.aic:.1f}" in lines[2]
    assert summary.to_frame()["n_items"].tolist() == [15]


def test_notebooks_show_the_first_rows_and_no_markup_of_ids(responses, fit):
    named = fit.bank.subset(slice(None))
    hostile = Responses.from_array([[1, 0], [0, 1]], item_ids=["<script>alert(1)</script>", "b"])
    subset = irtcat.select(fit, 8)
    for noun in (
        responses,
        named,
        fit,
        fit.abilities,
        subset,
        hostile,
        irtcat.predict(responses, subset, responses[:2]),
    ):
        html = noun._repr_html_()
        assert html.startswith("<div><p><b>")
        assert "<table" in html
        assert "<script" not in html
    assert "and 85 more rows and 5 more columns" in responses._repr_html_()
    assert 'role="img"' in fit.bank._repr_html_()
    assert fit.summary()._repr_html_().startswith("<pre>90 subjects")


def test_banks_and_fits_draw_themselves(fit):
    pytest.importorskip("matplotlib")
    figure = fit.bank.plot()
    assert figure.axes
    assert fit.plot("item_curves", items=["i1", "i2"]).axes
    with pytest.raises(InputError, match="`kind` argument must be one of information_curve"):
        fit.bank.plot("pie")


@pytest.mark.slow
def test_the_flag_of_a_row_is_read_as_an_attribute(fit, responses):
    """`DataFrame.flags` is pandas' own: a column of that name is hidden by it."""
    from irtcat.diagnose import item_fit, model_fit
    from irtcat.leaderboard import compare
    from irtcat.prediction import predict
    from irtcat.scoring import score

    items = responses.item_ids[:8].tolist()
    abilities = score(fit.bank, responses, "ml")
    predicted = predict(responses[10:], items, responses[:10])
    tables = [
        fit.bank.to_frame(),
        abilities.to_frame(),
        predicted.to_frame(),
        item_fit(fit.bank, responses),
        model_fit(fit.bank, responses[10:]).to_frame(),
        compare(responses[10:], items, responses[:2], "m0", "m1").to_frame(),
    ]
    for table in tables:
        assert "flags" not in table
        assert isinstance(table.flag, pd.Series)
        assert table.flag.map(type).eq(str).all()
    assert abilities.to_frame().flag.tolist() == abilities.flag.tolist()
    assert predicted.to_frame().flag.tolist() == predicted.flag.tolist()

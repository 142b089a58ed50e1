"""Responses and tables as polars and xarray, and back."""

import sys

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError, Responses
from irtcat.io import to_polars, to_xarray

IDS = {"subject_ids": ["a", "b"], "item_ids": ["q1", "q2", "q3"]}
RESPONSES = {
    "right/wrong": Responses.from_array([[1, 0, -1], [0, 1, 1]], **IDS),
    "categories": Responses.from_array([[1, 4, 2], [3, 2, 5]], codes=range(1, 6), **IDS),
    "fractions": Responses.from_array([[0.25, 0, np.nan], [1, 0.5, 0.75]], **IDS),
}


@pytest.fixture
def polars():
    return pytest.importorskip("polars", reason="needs polars")


@pytest.fixture
def xarray():
    return pytest.importorskip("xarray", reason="needs xarray")


@pytest.mark.parametrize("kind", RESPONSES)
def test_responses_are_read_back_as_they_were(polars, xarray, kind):
    responses = RESPONSES[kind]
    options = {"codes": responses.codes} if kind == "categories" else {}
    for table in (to_polars(responses), to_xarray(responses)):
        assert irtcat.as_responses(table, **options) == responses
    assert to_polars(responses).null_count().sum_horizontal()[0] == responses.values.size - int(
        responses.observed.sum()
    )


def test_trials_and_metadata_are_dimensions_and_coordinates(xarray):
    scores = np.array([[[1, 0], [1, 1]], [[0, np.nan], [0, 1]]])
    known = {
        "subjects": pd.DataFrame({"version": ["1", "2"]}, index=["a", "b"]),
        "items": pd.DataFrame({"version": [3, 4], "task": ["t", "t"]}, index=["x", "y"]),
    }
    responses = Responses.from_trials(scores, ["a", "b"], ["x", "y"], **known)
    array = responses.to_xarray()
    np.testing.assert_array_equal(array.to_numpy(), scores)
    assert array.sel(subject="b", item="y", trial=1).item() == 1
    assert array["subject_version"].to_numpy().tolist() == ["1", "2"]
    assert array["item_version"].sel(item="y").item() == 4
    assert array["task"].dims == ("item",)


def test_tables_of_results(polars, xarray):
    frame = pd.DataFrame(
        {"b": [0.5, np.nan], "flag": ["", None]}, index=pd.Index(["q1", "q2"], name="item")
    )
    table = to_polars(frame)
    assert table.columns == ["item", "b", "flag"]
    assert table.rows() == [("q1", 0.5, ""), ("q2", None, None)]
    assert to_xarray(frame)["b"].sel(item="q1").item() == 0.5
    bank = irtcat.fit(irtcat.datasets.load("lsat6"), "rasch").bank
    assert to_polars(bank)["b"].to_list() == bank.to_frame()["b"].tolist()
    assert to_xarray(bank)["b"].dims == ("item",)


def test_what_is_no_table_is_refused(polars, xarray):
    with pytest.raises(InputError, match="`result` argument must be a table"):
        to_polars([1, 0])
    twice = pd.DataFrame({"b": [1, 2]}, index=["q1", "q1"])
    with pytest.raises(InputError, match="The row q1 of the table occurs twice"):
        to_xarray(twice)
    with pytest.raises(InputError, match="both named subject"):
        Responses.from_array([[1]], item_ids=["subject"]).to_polars()


@pytest.mark.parametrize(("library", "convert"), [("polars", to_polars), ("xarray", to_xarray)])
def test_a_missing_package_is_named(monkeypatch, library, convert):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=f"needs {library}.*pip install {library}"):
        convert(pd.DataFrame({"b": [1]}))


@pytest.mark.slow
def test_draws_of_a_fit_for_arviz(xarray):
    """Means and SDs of the draws are the estimates and their standard errors."""
    data = irtcat.datasets.load("lsat7")
    found = irtcat.fit(data, "2pl", irtcat.VI(steps=300))
    tree = irtcat.io.to_inference_data(found, 4000, seed=1)
    assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 4000, "item": 5}
    table = found.bank.to_frame()
    draws = tree["posterior"]["a"].sel(chain=0)
    np.testing.assert_allclose(draws.median("draw"), table["a"], rtol=0.02)
    np.testing.assert_allclose(np.log(draws).std("draw"), table["se_a"] / table["a"], rtol=0.1)
    assert tree["observed_data"]["responses"].shape == data.shape
    np.testing.assert_array_equal(tree["posterior"]["item"], found.bank.item_ids)
    graded = irtcat.ItemBank.from_thresholds([1.0, 2.0], [[0.0, 1.0], [0.5, np.nan]])
    with pytest.raises(InputError, match="with a covariance of its estimates"):
        irtcat.io.to_inference_data(graded)
    with pytest.raises(InputError, match="a Fit or an ItemBank"):
        irtcat.io.to_inference_data(data)

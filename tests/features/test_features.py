"""Tables of features, and features of texts."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, features
from irtcat.features import check_features, design_of


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "size": [1.0, 2.0, np.nan, 4.0, 5.0, 6.0],
            "constant": 3.0,
            "family": ["a", "b", "a", None, "b", "a"],
            "released": pd.to_datetime(["2024-01-01", "2024-07-01"] * 3),
            "open": [True, False] * 3,
        },
        index=list("uvwxyz"),
    )


def test_numbers_are_standardised_and_texts_become_indicators(table):
    design = design_of(check_features(table, "item_features", "item"), "item_features")
    assert design.columns == ("size", "released", "open", "family=a", "family=b")
    assert [block.name for block in design.blocks] == ["numbers", "family"]
    assert design.dropped == ("constant",)
    x = design.matrix(check_features(table, "item_features", "item"))
    np.testing.assert_allclose(np.delete(x, 2, axis=0)[:, 0].std(), 1.0)
    np.testing.assert_allclose(x[:, 1:3].mean(axis=0), 0.0, atol=1e-10)
    assert x[2, 0] == 0.0  # a missing number is the mean
    assert x[3, 3:].tolist() == [0.0, 0.0]  # a missing category is none of them
    assert x[0, 3:].tolist() == [1.0, 0.0]


def test_new_rows_follow_the_same_rules(table):
    design = design_of(check_features(table, "item_features", "item"), "item_features")
    new = table.iloc[:1].assign(family="unknown", size=5.0)
    x = design.matrix(check_features(new, "features", "item"))
    assert x[0, 3:].tolist() == [0.0, 0.0]
    assert x[0, 0] == pytest.approx((5 - 3.6) / design.scale["size"])


@pytest.mark.parametrize("unit", [1e-300, 1e300])
def test_numbers_of_any_size_are_standardised(unit):
    table = pd.DataFrame({"x": unit * np.array([1.0, 2.0, 3.0])}, index=["a", "b", "c"])
    x = design_of(table, "item_features").matrix(table)
    np.testing.assert_allclose(x[:, 0], [-1.224745, 0, 1.224745], atol=1e-6)


def test_several_tables_are_blocks():
    index = ["i1", "i2", "i3"]
    tables = {
        "ratings": pd.DataFrame({"hard": [1, 2, 5]}, index),
        "embedding": pd.DataFrame(np.eye(3), index),
    }
    design = design_of(check_features(tables, "item_features", "item"), "item_features")
    assert [(b.name, len(b.columns)) for b in design.blocks] == [("ratings", 1), ("embedding", 3)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="size"), "no column 'size'"),
        (lambda t: t.assign(more=1), "unknown column 'more'"),
        (lambda t: t.assign(size=["1", "x", "2", "3", "4", "5"]), "in row v"),
        (lambda t: t.assign(size=np.inf), "inf in row u, column 'size'"),
    ],
)
def test_other_columns_are_refused(table, change, words):
    design = design_of(check_features(table, "features", "item"), "features")
    with pytest.raises(InputError, match=words):
        design.matrix(check_features(change(table), "features", "item"))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.eye(3), "a table .data frame. with a row for each item"),
        (pd.DataFrame(index=["a"]), "1 rows and 0 columns"),
        (pd.DataFrame({"x": [1, 2]}, index=["a", "a"]), "'a' twice"),
        (pd.DataFrame({"x": [1, 1]}, index=["a", "b"]), "constant columns"),
        (pd.DataFrame({"x": [f"text {i}" for i in range(9)]}), "9 different texts in the 9 rows"),
        (pd.DataFrame({"x": [1.0, np.inf]}, index=["a", "b"]), "inf in row b"),
    ],
)
def test_tables_that_are_refused(table, words):
    with pytest.raises(InputError, match=words):
        design_of(check_features(table, "item_features", "item"), "item_features")


def test_texts_become_counts_and_weights():
    texts = pd.Series({"q1": "What is 2 + 3?", "q2": "What is 4?", "q3": "Name a capital."})
    tables = features.text(texts)
    counts = tables["counts"]
    np.testing.assert_allclose(np.expm1(counts["digits"]), [2, 1, 0])
    np.testing.assert_allclose(np.expm1(counts["questions"]), [1, 1, 0])
    assert list(counts.index) == ["q1", "q2", "q3"]
    words = tables["words"]
    assert "what is" in words
    assert (words.loc["q3"] == 0).all()
    np.testing.assert_allclose((words.loc[["q1", "q2"]] ** 2).sum(axis=1), 1.0)


def test_any_encoder_gives_an_embedding():
    class Lengths:
        def encode(self, texts):
            return [[len(text), text.count("a")] for text in texts]

    tables = features.text({"q1": "aa", "q2": "b"}, encoder=Lengths())
    assert tables["embedding"].to_numpy().tolist() == [[2, 2], [1, 0]]


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        (["a"], {}, "a Series or mapping of texts"),
        ({"q1": 3}, {}, "3 for item 'q1'"),
        (pd.Series(["a", "b"], index=["q", "q"]), {}, "'q' twice"),
        ({"q1": "a"}, {"encoder": 3}, "a method encode"),
        ({"q1": "a"}, {"min_items": 0}, "min_items"),
    ],
)
def test_texts_that_are_refused(texts, options, words):
    with pytest.raises(InputError, match=words):
        features.text(texts, **options)


def test_an_encoder_with_other_numbers_is_refused():
    class Broken:
        def encode(self, texts):
            return np.full((len(texts), 2), np.nan)

    with pytest.raises(InputError, match="finite numbers for each of the 1 texts"):
        features.text({"q1": "a"}, encoder=Broken())

from importlib import resources

import numpy as np
import pandas as pd
import pytest

from irtcat._common.checks import InputError
from irtcat.responses.datasets import DATASETS, available, load


def pattern_counts(name):
    rows = load(name).values
    return pd.Series(["".join(map(str, row)) for row in rows]).value_counts().to_dict()


@pytest.fixture(scope="module")
def crowd():
    return load("digits_crowd")


@pytest.mark.parametrize("name", list(DATASETS))
def test_every_dataset_is_what_its_row_says(name):
    responses = load(name)
    assert responses.shape == tuple(available().loc[name, ["subjects", "items"]])
    assert responses.is_binary
    assert not responses.has_missing
    assert set(np.unique(responses.values)) == {0, 1}
    assert available().loc[name, ["about", "source"]].str.len().min() > 20


@pytest.mark.parametrize(
    ("name", "known", "n_patterns"),
    [
        ("lsat6", {"00000": 3, "00001": 6, "10000": 10, "11011": 173, "11111": 298}, 30),
        ("lsat7", {"00000": 12, "00001": 19, "00010": 1, "11111": 308}, 32),
    ],
)
def test_lsat_patterns(name, known, n_patterns):
    counts = pattern_counts(name)
    assert {pattern: counts[pattern] for pattern in known} == known
    assert len(counts) == n_patterns
    assert sum(counts.values()) == 1000


@pytest.mark.parametrize(
    ("name", "right"), [("lsat6", [924, 709, 553, 763, 870]), ("lsat7", [828, 658, 772, 606, 843])]
)
def test_lsat_items(name, right):
    assert load(name).values.sum(axis=0).tolist() == right


@pytest.mark.parametrize("name", ["lsat6", "lsat7"])
def test_lsat_ids_and_order(name):
    responses = load(name)
    assert responses.item_ids.tolist() == [f"item{i}" for i in range(1, 6)]
    assert responses.subject_ids.tolist() == [f"s{i}" for i in range(1, 1001)]
    codes = responses.values @ (2 ** np.arange(5)[::-1])
    assert (np.diff(codes) >= 0).all()


def test_crowd_metadata(crowd):
    assert crowd.subjects.columns.tolist() == ["family", "setting", "size", "noise", "model"]
    assert crowd.items.columns.tolist() == ["digit", "image"]
    assert crowd.subjects["size"].between(20, 899).all()
    assert crowd.subjects["noise"].between(0, 0.5).all()
    assert crowd.subjects["family"].nunique() == 13
    assert crowd.items["digit"].value_counts().between(80, 100).all()
    assert crowd.items["image"].is_unique
    for names in (crowd.subjects.index, crowd.subject_ids):
        assert names[0].startswith("knn-k1-n")


def test_crowd_ids_repeat_the_metadata(crowd):
    for name, row in zip(crowd.subject_ids, crowd.subjects.itertuples(), strict=True):
        assert name.startswith(f"{row.family}-{row.setting}-n{row.size}-noise{row.noise:g}-")
    for name, row in zip(crowd.item_ids, crowd.items.itertuples(), strict=True):
        assert name == f"digit{row.digit}-{row.image:04d}"


def test_crowd_is_spread_out_and_without_duplicates(crowd):
    accuracy = crowd.values.mean(axis=1)
    assert 0.18 <= accuracy.min() < 0.25
    assert accuracy.max() > 0.98
    assert ((accuracy > 0.5) & (accuracy < 0.9)).sum() > 150
    assert (accuracy >= 0.9).sum() > 50
    assert len(np.unique(crowd.values, axis=0)) == crowd.n_subjects
    right = crowd.values.mean(axis=0)
    assert (right > 0).all()
    assert (right < 1).all()


def test_shipped_files_are_small():
    for dataset in DATASETS.values():
        file = resources.files("irtcat").joinpath("data", dataset.file)
        assert 0 < len(file.read_bytes()) < 150_000


def test_loading_twice_gives_separate_data():
    first = load("digits_crowd")
    first.subjects.loc[:, "size"] = 0
    assert load("digits_crowd").subjects["size"].min() >= 20


@pytest.mark.parametrize("name", ["lsat8", "", None, "LSAT6"])
def test_unknown_name(name):
    with pytest.raises(InputError, match=r"The `name` argument must be one of lsat6, .* Got "):
        load(name)

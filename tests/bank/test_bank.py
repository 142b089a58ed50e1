"""ItemBank: build, choose, join, and a file that is read whole or refused in a sentence."""

import io
import json
import os
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Population, fit
from irtcat.bank.needs import NEEDS
from irtcat.models import MODELS


@pytest.fixture(scope="module")
def bank(lsat_fit):
    return lsat_fit("lsat7", "3pl").bank


@pytest.fixture
def path(bank, tmp_path):
    return bank.save(tmp_path / "bank.npz")


def same(a, b):
    np.testing.assert_array_equal(a.parameters(), b.parameters())
    np.testing.assert_array_equal(a.covariance, b.covariance)
    assert a.item_ids.tolist() == b.item_ids.tolist()
    assert (a.population.mean, a.population.sd) == (b.population.mean, b.population.sd)
    pd.testing.assert_frame_equal(a.to_frame(), b.to_frame())


def test_parameters_in_and_out():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 2, 6), rng.normal(size=6)
    c, d = rng.uniform(0, 0.3, 6), rng.uniform(0.8, 1, 6)
    c[0], d[0] = 0, 1
    table = ItemBank.from_parameters(a, b, c, d).to_frame()
    for name, values in zip("abcd", (a, b, c, d), strict=True):
        np.testing.assert_allclose(table[name], values, rtol=1e-12)
    assert table[["se_a", "se_b", "se_c", "se_d"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("arguments", "key"), [({}, "2pl"), ({"c": 0.2}, "3pl"), ({"d": 0.9}, "4pl")]
)
def test_smallest_model_that_fits(arguments, key):
    assert ItemBank.from_parameters(b=[0.0, 1.0], **arguments).model.key == key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": np.nan}, "`a`.*finite"),
        ({"b": [[0.0]]}, "vector"),
        ({"b": "hard"}, "equal length"),
        ({"a": [1, 2], "b": [1, 2, 3]}, "equal length"),
        ({"c": 1.0}, r"in \[0, 1\)"),
        ({"c": -0.1}, r"in \[0, 1\)"),
        ({"c": 0.5, "d": 0.5}, "above c"),
        ({"d": 1.1}, "at most 1"),
        ({"b": [0, 1], "item_ids": ["x"]}, "2 ids"),
        ({"b": [0, 1], "item_ids": ["x", "x"]}, "unique"),
        ({"population_sd": 0.0}, "`sd`.*above 0"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ItemBank.from_parameters(**arguments)


def test_a_slope_of_zero_has_no_difficulty():
    table = ItemBank.from_parameters(a=[0.0, 1.0]).to_frame()
    assert np.isnan(table.b.iloc[0])
    assert table.b.iloc[1] == 0


@pytest.mark.slow
def test_subset(bank):
    chosen = bank.subset(["item4", "item1"])
    pd.testing.assert_frame_equal(chosen.to_frame(), bank.to_frame().loc[["item4", "item1"]])
    same(chosen, bank.subset([3, 0]))
    same(chosen, bank.subset([-2, 0]))
    same(bank.subset(np.array([1, 0, 0, 1, 0], bool)), bank.subset([0, 3]))
    assert bank.subset([]).n_items == 0
    np.testing.assert_array_equal(chosen.covariance, bank.covariance[[3, 0]])
    for wrong, message in (
        (["item9"], "item9"),
        ([5], "and 4. Got 5"),
        ([True], "mask of length 5"),
    ):
        with pytest.raises(InputError, match=message):
            bank.subset(wrong)
    with pytest.raises(InputError, match="unique"):
        bank.subset([0, 0])


@pytest.mark.slow
def test_join(bank):
    joined = bank.subset([0, 1]).join(bank.subset([2, 3, 4]))
    same(joined, bank)
    with pytest.raises(InputError, match="unique"):
        bank.join(bank)
    with pytest.raises(InputError, match="a 3pl bank"):
        bank.join(ItemBank.from_thresholds(b=[[0.0, 1.0]], model="pcm", item_ids=["x"]))
    assert bank.join(ItemBank.from_parameters(item_ids=["x"])).model.key == "2pl+3pl"
    other = ItemBank.from_parameters(c=0.2, item_ids=["x"], population_sd=2.0)
    with pytest.raises(InputError, match="on the scale"):
        bank.join(other)


def test_round_trip(bank, path):
    again = ItemBank.load(path)
    same(again, bank)
    assert again.provenance == {**bank.provenance}
    assert again.provenance["priors"] == {"logit_lower": [-1.1, 0.5]}


@pytest.mark.parametrize(
    "ids", [["007", "7"], ["Zürich", "東京"], ["a b", "c,d"], ["x" * 300, "y\n"]]
)
def test_odd_ids_survive(ids, tmp_path):
    bank = ItemBank.from_parameters(b=[0.0, 1.0], item_ids=ids)
    assert ItemBank.load(bank.save(tmp_path / "b")).item_ids.tolist() == ids


@pytest.mark.slow
def test_metadata_survives(lsat_fit, tmp_path):
    from dataclasses import replace

    bank = lsat_fit("lsat7", "2pl").bank
    items = pd.DataFrame(
        {"topic": ["x", None, "y", "x", "z"], "cost": [1.5, np.nan, 2, 3, np.inf]},
        index=bank.item_ids,
    )
    again = ItemBank.load(replace(bank, items=items).save(tmp_path / "bank.npz"))
    assert again.items.topic.isna().tolist() == [False, True, False, False, False]
    assert again.items.cost.iloc[0] == 1.5
    assert np.isnan(again.items.cost.iloc[1])


def test_file_needs_numpy_and_json_only(bank, path):
    with np.load(path, allow_pickle=False) as archive:
        meta = json.loads(str(archive["meta"]))
        parameters, covariance = archive["parameters"], archive["covariance"]
        assert archive["item_ids"].tolist() == bank.item_ids.tolist()
    assert (meta["format"], meta["version"], meta["model"]) == ("irtcat-bank", 1, "3pl")
    assert meta["parameter_names"] == ["slope", "intercept", "logit_lower"]
    assert meta["populations"] == {"": {"mean": 0.0, "sd": 1.0}}
    np.testing.assert_array_equal(parameters, bank.parameters())
    assert covariance.shape == (5, 3, 3)


def test_file_is_small(tmp_path):
    """8 bytes a parameter, unconstrained and published, and the ids."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=rng.random(20000), b=rng.normal(size=20000))
    assert bank.save(tmp_path / "b").stat().st_size < 20000 * (4 * 8 + 4)


def rewrite(path, **changes):
    """The file with some of its arrays replaced (None: left out)."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays.update(changes)
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


def meta_with(path, **changes):
    with np.load(path) as archive:
        meta = json.loads(str(archive["meta"]))
    return np.array(json.dumps({**meta, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"version": "new"},
        {"version": None},
        {"version": True},
        {"version": -1},
        {"model": "9pl"},
        {"model": None},
        {"parameter_names": ["slope"]},
        {"parameter_names": None},
        {"populations": {}},
        {"populations": {"": [1]}},
        {"populations": {"": {"mean": 0, "sd": -1}}},
        {"populations": {"": {"mean": None, "sd": 1}}},
        {"dims": None},
        {"n_categories": None},
        {"items": [1]},
        {"statistics": {"n": [1]}},
        {"statistics": {"flag": ["constant", "", "", "", ""]}},
        {"statistics": {"unused": [["x"], [], [], [], []]}},
        {"statistics": {"at_edge": ["x", 0, 0, 0, 0]}},
        {"codes": None},
        {"codes": [0.5, 1.5]},
        {"codes": [0, 2]},
        {"structure": None},
        {"factors": [1]},
        {"factors": ["x", "y"]},
        {"provenance": 3},
    ],
)
def test_odd_descriptions_are_refused(path, changes):
    rewrite(path, meta=meta_with(path, **changes))
    with pytest.raises(InputError, match="bank"):
        ItemBank.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"meta": None},
        {"parameters": None},
        {"item_ids": None},
        {"meta": np.array("not JSON")},
        {"meta": np.array("[1]")},
        {"meta": np.array(3)},
        {"meta": np.zeros(2)},
        {"item_ids": np.zeros((5, 2))},
        {"item_ids": np.array(["a", "b"])},
        {"item_ids": np.array(["a", "a", "b", "c", "d"])},
        {"parameters": np.zeros((5, 2))},
        {"parameters": np.zeros((5, 4))},
        {"parameters": np.zeros(15)},
        {"parameters": np.full((5, 3), np.nan)},
        {"parameters": np.array([["x"] * 3] * 5)},
        {"covariance": np.zeros((5, 2, 2))},
        {"covariance": np.zeros((4, 3, 3))},
        {"covariance": np.array("x")},
    ],
)
def test_odd_arrays_are_refused(path, changes):
    rewrite(path, **changes)
    with pytest.raises(InputError, match="bank"):
        ItemBank.load(path)


def test_pickles_are_refused(path):
    rewrite(path, item_ids=np.array(["a", "b", "c", "d", object()], dtype=object))
    with pytest.raises(InputError, match="item_ids holds pickled Python objects"):
        ItemBank.load(path)


def test_truncated_files_are_refused(path):
    data = path.read_bytes()
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])
        with pytest.raises(InputError, match="bank"):
            ItemBank.load(path)


@pytest.mark.slow
def test_flipped_bits_are_refused_or_harmless(bank, path):
    """A damaged byte is noticed, or lies where nothing is read (dates, names of the zip)."""
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.choice(len(data), 300, replace=False):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            same(ItemBank.load(path), bank)
        except InputError:
            refused += 1
    assert refused > 200


def one_bare_array():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def some_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("meta", "x")
        archive.writestr("notes.txt", "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"item,a,b\nx,1,0\n",
        np.random.default_rng(0).bytes(1000),
        b"PK\x03\x04" + bytes(100),
        b"\x93NUMPY",
        one_bare_array(),
        some_zip(),
    ],
    ids=["empty", "text", "random", "zip head", "npy head", "array", "other zip"],
)
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "bank.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="bank") as caught:
        ItemBank.load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError) as of_bytes:
        ItemBank.from_bytes(content)
    assert str(of_bytes.value) == str(caught.value).replace(str(path), "bank.npz")


def test_bytes_are_those_of_the_file(bank, path):
    assert bank.to_bytes() == path.read_bytes()
    same(ItemBank.from_bytes(path.read_bytes()), bank)
    for cut in (path.read_bytes()[:-30], b""):
        with pytest.raises(InputError, match="upload: the bank file is damaged: it is empty"):
            ItemBank.from_bytes(cut, name="upload")


def test_missing_files_and_folders(bank, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        ItemBank.load(tmp_path / "none.npz")
    with pytest.raises(InputError, match="this is a folder"):
        ItemBank.load(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        bank.save(tmp_path / "none" / "bank.npz")


def test_failed_writes_leave_the_old_file(bank, path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        bank.subset([0]).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_saving_over_a_file(bank, path):
    bank.subset([0]).save(path)
    assert ItemBank.load(path).n_items == 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_simulated_shares_follow_the_curves():
    bank = ItemBank.from_parameters(a=[0.5, 1.0, 2.0], b=[-1.0, 0.0, 1.0], c=0.1)
    theta = np.repeat([-1.0, 1.0], 20000)
    X = bank.simulate(theta, seed=1).values
    shares = np.stack([X[:20000].mean(0), X[20000:].mean(0)], axis=1)
    np.testing.assert_allclose(shares, bank.probability([-1.0, 1.0]), atol=0.015)
    np.testing.assert_array_equal(X, bank.simulate(theta, seed=1).values)
    assert (bank.simulate(theta, seed=2).values != X).any()


def test_standard_errors_by_the_delta_method(bank):
    """se of b = -d / a and of c = sigmoid(logit c), against finite differences."""
    params, table = bank.parameters(), bank.to_frame()
    for j in range(5):
        step = 1e-6 * np.eye(3)
        for name, function in {
            "se_b": lambda p: -p[1] / p[0],
            "se_c": lambda p: 1 / (1 + np.exp(-p[2])),
        }.items():
            slope = np.array([function(params[j] + s) - function(params[j] - s) for s in step])
            slope /= 2e-6
            expected = np.sqrt(slope @ bank.covariance[j] @ slope)
            assert table[name].iloc[j] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_fitting_changes_nothing_it_was_given():
    X = ItemBank.from_parameters(b=np.zeros(5)).simulate(np.linspace(-2, 2, 40))
    before = X.values.copy()
    fit(X, "1pl")
    np.testing.assert_array_equal(X.values, before)


def test_graded_banks_of_different_numbers_of_categories_join(tmp_path):
    few = ItemBank.from_thresholds(a=[1.2], b=[[-0.5, 0.8]], item_ids=["x"])
    many = ItemBank.from_thresholds(a=[0.9], b=[[-1.0, 0.0, 0.4, 1.5]], item_ids=["y"])
    for one, two in ((few, many), (many, few)):
        both = one.join(two)
        for bank in (few, many):
            ours = both.subset(bank.item_ids).category_probabilities([-1.0, 0.3])
            theirs = bank.category_probabilities([-1.0, 0.3])
            np.testing.assert_allclose(ours[..., : theirs.shape[2]], theirs, atol=1e-12)
            assert (ours[..., theirs.shape[2] :] == 0).all()
        both.save(tmp_path / "both.npz")
        again = ItemBank.load(tmp_path / "both.npz")
        np.testing.assert_array_equal(again.parameters(), both.parameters())


def test_graded_banks_in_different_codes_do_not_join():
    one, two = (
        replace(ItemBank.from_thresholds(b=[[0.0, 1.0]], item_ids=[name]), codes=codes)
        for name, codes in (("x", (0, 1, 2)), ("y", (1, 2, 3)))
    )
    with pytest.raises(InputError, match="codes from 0 on"):
        one.join(two)
    kept = replace(two, item_ids=np.array(["z"])).join(two)
    assert kept.codes == (1, 2, 3)


def test_needs_of_slope_and_intercept():
    met = {key for key, model in MODELS.items() if NEEDS["slope and intercept"].is_met(model)}
    assert met == {"rasch", "1pl", "2pl", "binomial"}


def test_populations_of_several_abilities_from_one():
    one = Population(0.5, 2.0)
    assert one.of_dims(1) is one
    assert one.item_axis == (0.5, 2.0)
    several = one.of_dims(3)
    assert (several.mean.tolist(), several.sd.tolist()) == ([0.5] * 3, [2.0] * 3)
    assert several.item_axis == (0.0, 1.0)
    assert str(several) == "N([0.5 0.5 0.5], [2 2 2])"
    with pytest.raises(InputError, match="of 2 abilities"):
        several.of_dims(2)


def test_predicted_items_of_several_abilities_have_no_expected_curves():
    bank = ItemBank.from_slopes(np.eye(2))
    table = pd.DataFrame({"predicted": [False, True]}, index=bank.item_ids)
    unsure = replace(bank, covariance=np.zeros((2, 3, 3)), statistics=table)
    with pytest.raises(InputError, match="of one ability for the expected curves"):
        unsure.expected_curves()

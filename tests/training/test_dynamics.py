"""Cartography by brute force; batches give what whole epochs give."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError
from irtcat.training import dynamics

RNG = np.random.default_rng(1)
EPOCHS, N, K = 7, 30, 4
P = RNG.dirichlet(np.ones(K), (EPOCHS, N))
LABELS = RNG.integers(0, K, N)
GOLD = P[:, np.arange(N), LABELS]
RIGHT = (P.argmax(axis=2) == LABELS).astype(float)


def brute(gold, right):
    """The definitions, item by item."""
    rows = []
    for p, r in zip(gold.T, right.T, strict=True):
        p, r = p[~np.isnan(p)], r[~np.isnan(r)]
        forgotten = sum(a == 1 and b == 0 for a, b in pairwise(r))
        learned = np.flatnonzero(r == 1)[0] + 1 if r.any() else np.nan
        rows.append((len(p), p.mean(), p.std(), r.mean(), forgotten, learned))
    columns = ["n", "confidence", "variability", "correctness", "forgotten", "learned"]
    return pd.DataFrame(rows, columns=columns)


def check(found, gold, right):
    expected = brute(gold, right)
    got = found.table.reset_index()[expected.columns.tolist()]
    pd.testing.assert_frame_equal(got, expected, check_dtype=False, rtol=1e-10)


def test_by_brute_force():
    check(dynamics.from_probabilities(P, LABELS), GOLD, RIGHT)
    check(dynamics.from_probabilities(GOLD, correct=RIGHT), GOLD, RIGHT)


def test_missing_epochs():
    absent = RNG.random((EPOCHS, N)) < 0.4
    absent[:2] = False
    gaps, gold, right = P.copy(), GOLD.copy(), RIGHT.copy()
    gaps[absent], gold[absent], right[absent] = np.nan, np.nan, np.nan
    check(dynamics.from_probabilities(gaps, LABELS), gold, right)


def test_batches_are_epochs():
    ids = [f"q{i}" for i in range(N)]
    seen = dynamics.Accumulator(ids)
    for epoch in P:
        order = RNG.permutation(N)
        for batch in np.array_split(order, 4):
            named = batch if len(batch) % 2 else np.array(ids)[batch]
            seen.add(epoch[batch], LABELS[batch], items=named)
    check(seen.result(), GOLD, RIGHT)
    assert seen.result().table.index.tolist() == ids


def test_result_is_of_its_moment():
    seen = dynamics.Accumulator(2)
    seen.add([0.2, 0.4], correct=[0, 0])
    first = seen.result().to_frame()
    before = first.copy()
    seen.add([0.9, 0.9], correct=[1, 1])
    pd.testing.assert_frame_equal(first, before)


def test_what_is_not_known_is_nan_and_flagged():
    p = np.array([[0.5, np.nan, 0.1], [0.7, np.nan, np.nan]])
    table = dynamics.from_probabilities(p).table
    assert table["n"].tolist() == [2, 0, 1]
    assert table["correctness"].isna().all()
    assert table["forgotten"].isna().all()
    assert table["flags"].tolist() == ["", "never seen", "seen once"]
    assert np.isnan(table["confidence"].iloc[1])
    wrong = dynamics.from_probabilities(p[:, :1], correct=[[0], [0]]).table
    assert wrong["flags"].tolist() == ["never learned"]


def test_regions_are_the_extremes():
    found = dynamics.from_probabilities(P, LABELS)
    regions, table = found.regions(0.2), found.table
    assert regions.sum().tolist() == [6, 6, 6]
    assert table.loc[regions["easy"], "confidence"].min() >= table.loc[
        ~regions["easy"], "confidence"].max()  # fmt: skip
    assert table.loc[regions["hard"], "confidence"].max() <= table.loc[
        ~regions["hard"], "confidence"].min()  # fmt: skip
    assert table.loc[regions["ambiguous"], "variability"].min() >= table.loc[
        ~regions["ambiguous"], "variability"].max()  # fmt: skip
    gap = dynamics.from_probabilities([[0.5, np.nan], [0.6, np.nan]]).regions(1.0)
    assert not gap.iloc[1].any()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"probabilities": [[1.2, 0.1]]}, "Apply the softmax"),
        ({"probabilities": [0.2, 0.1]}, "epochs x items"),
        ({"probabilities": P}, "`labels`"),
        ({"probabilities": P, "labels": LABELS + K}, "whole numbers from 0 to 3"),
        ({"probabilities": GOLD, "labels": LABELS}, "probability of every class"),
        ({"probabilities": GOLD, "correct": RIGHT[:2]}, "epochs x items"),
        ({"probabilities": GOLD, "correct": RIGHT * 2}, "0, 1 and NaN"),
        ({"probabilities": GOLD, "item_ids": ["a"]}, "30 ids"),
        ({"probabilities": [["a", "b"]]}, "numbers in rows"),
    ],
)
def test_bad_input(given, words):
    with pytest.raises(InputError, match=words):
        dynamics.from_probabilities(**given)


def test_bad_batches():
    seen = dynamics.Accumulator(["a", "b"])
    for items, words in [
        (["a", "c"], "ids of the items"),
        ([0, 2], "from 0 to 1"),
        ([1, 1], "once"),
    ]:
        with pytest.raises(InputError, match=words):
            seen.add([0.1, 0.2], items=items)
    with pytest.raises(InputError, match="2 numbers"):
        seen.add([0.1])
    with pytest.raises(InputError, match="share above 0"):
        seen.result().regions(0)


def test_whole_numbers_that_are_ids_are_no_positions():
    seen = dynamics.Accumulator([2, 1, 0])
    seen.add([0.9], items=[2])
    seen.add([], items=[])
    assert seen.result().table["n"].to_dict() == {"2": 1, "1": 0, "0": 0}
    with pytest.raises(InputError, match="ids of the items"):
        seen.add([0.9], items=[3])


def test_rounding_leaves_no_mean_above_one():
    p = np.array([[1.000001, -0.000001], [1.000001, 0.0]], np.float32)
    table = dynamics.from_probabilities(p).table
    assert table["confidence"].tolist() == [1, 0]
    assert table["variability"].tolist() == [0, 0]


def test_variability_is_the_population_sd():
    p = np.random.default_rng(4).random((7, 5))
    np.testing.assert_allclose(
        dynamics.from_probabilities(p).table["variability"], p.std(axis=0, ddof=0)
    )


def test_forgetting_goes_by_the_last_time_judged():
    right = [[1], [np.nan], [0], [1], [0], [np.nan], [1], [0]]
    p = [[0.5]] * 4 + [[np.nan]] + [[0.5]] * 3  # not seen in the fifth
    row = dynamics.from_probabilities(p, correct=right).table.iloc[0]
    # Judged: right, wrong, right, right, wrong.
    assert (row["n"], row["forgotten"], row["correctness"], row["learned"]) == (7, 2, 0.6, 1)

"""Cartography by brute force; batches give what whole epochs give."""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

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


def write_cartography(folder, logits, absent=()):
    """As allenai's cartography writes it: a file for each epoch, a line for each example."""
    folder.mkdir(parents=True)
    for number, epoch in enumerate(logits):
        lines = [
            {"guid": f"e{i}", f"logits_epoch_{number}": epoch[i].tolist(), "gold": int(LABELS[i])}
            for i in range(N)
            if (number, i) not in absent
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"dynamics_epoch_{number}.jsonl").write_text(text)


def test_reads_cartography(tmp_path):
    write_cartography(tmp_path / "training_dynamics", np.log(P), absent=[(0, 4), (3, 4)])
    gaps, gold, right = P.copy(), GOLD.copy(), RIGHT.copy()
    gaps[[0, 3], 4], gold[[0, 3], 4], right[[0, 3], 4] = np.nan, np.nan, np.nan
    order = [i for i in range(N) if i != 4] + [4]  # it first occurs in the second file
    for source in (tmp_path, tmp_path / "training_dynamics"):
        found = dynamics.read(source)
        assert found.table.index.tolist() == [f"e{i}" for i in order]
        check(found, gold[:, order], right[:, order])
    one = dynamics.read(tmp_path / "training_dynamics" / "dynamics_epoch_1.jsonl")
    np.testing.assert_allclose(one.table["confidence"], GOLD[1])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"guid": 1, "gold": 0}'], "line 1: expected an object with guid, gold and one field"),
        (['{"guid": 1, "logits_epoch_0": [1], "gold": 0}'], "two or more logits"),
        (['{"guid": 1, "logits_epoch_0": [1, 2], "gold": 2}'], "gold from 0 to 1. Got 2"),
        (['{"guid": 1, "logits_epoch_0": [1, 2], "gold": 1}'] * 2, "line 2: 1 occurs twice"),
        (
            [
                '{"guid": 1, "logits_epoch_0": [1, 2], "gold": 1}',
                '{"guid": 1, "logits_epoch_1": [1, 2], "gold": 0}',
            ],
            "line 2: gold is 0, and was 1",
        ),
        (
            [
                '{"guid": 1, "logits_epoch_0": [1, 2], "gold": 1}',
                '{"guid": 2, "logits_epoch_0": [1, 2, 3], "gold": 0}',
            ],
            "expected 2 logits. Got '?3 of 2",
        ),
        ([], "empty file"),
    ],
)
def test_refuses_other_lines(tmp_path, lines, words):
    file = tmp_path / "dynamics_epoch_0.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(InputError, match=words):
        dynamics.read(file)
    with pytest.raises(InputError, match="expected files dynamics_epoch"):
        dynamics.read(tmp_path.parent)


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
    assert table["flag"].tolist() == ["", "never seen", "seen once"]
    assert np.isnan(table["confidence"].iloc[1])
    wrong = dynamics.from_probabilities(p[:, :1], correct=[[0], [0]]).table
    assert wrong["flag"].tolist() == ["never learned"]


def test_regions_are_the_extremes():
    found = dynamics.from_probabilities(P, LABELS)
    regions, table = found.regions(0.2), found.table
    assert regions.sum().tolist() == [6, 6, 6]
    assert (
        table.loc[regions["easy"], "confidence"].min()
        >= table.loc[~regions["easy"], "confidence"].max()
    )
    assert (
        table.loc[regions["hard"], "confidence"].max()
        <= table.loc[~regions["hard"], "confidence"].min()
    )
    assert (
        table.loc[regions["ambiguous"], "variability"].min()
        >= table.loc[~regions["ambiguous"], "variability"].max()
    )
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
        (["a", "c"], "among the 2 ids"),
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
    with pytest.raises(InputError, match="among the"):
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


LOGITS = RNG.normal(scale=3, size=(EPOCHS, N, K))


def by_loops(logits, early=None):
    """Loss, AUM and EL2N by the definitions of the papers, one number at a time."""
    rows = []
    for item, label in enumerate(LABELS):
        losses, margins, errors = [], [], []
        for z in logits[:, item]:
            if np.isnan(z).any():
                continue
            p = np.exp(z) / sum(np.exp(z))
            losses.append(-np.log(p[label]))
            margins.append(z[label] - max(z[k] for k in range(K) if k != label))
            errors.append(sum((p[k] - (k == label)) ** 2 for k in range(K)) ** 0.5)
        rows.append((np.mean(losses), np.mean(margins), np.mean(errors[:early])))
    return np.array(rows)


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


COLUMNS = ["loss", "aum", "el2n"]


@pytest.mark.parametrize("early", [None, 2])
def test_loss_aum_and_el2n_by_loops(early):
    logits = LOGITS.copy()
    logits[0, 3, 1] = np.nan  # an epoch without data
    expected = by_loops(logits, early)
    from_logits = dynamics.from_logits(logits, LABELS, early=early).table
    np.testing.assert_allclose(from_logits[COLUMNS], expected, rtol=1e-10)
    # The margin of logits is that of log-probabilities.
    from_p = dynamics.from_probabilities(softmax(logits), LABELS, early=early).table
    np.testing.assert_allclose(from_p[COLUMNS], expected, rtol=1e-9)
    pd.testing.assert_frame_equal(from_p, from_logits, rtol=1e-9)


def test_closed_forms():
    """Two classes with logits (m, 0): p = 1 / (1 + exp -m), EL2N = sqrt 2 (1 - p)."""
    margins = np.array([[-2.0, 0.5], [1.0, 3.0]])
    logits = np.stack([margins, np.zeros((2, 2))], axis=2)
    table = dynamics.from_logits(logits, [0, 0]).table
    p = 1 / (1 + np.exp(-margins))
    np.testing.assert_allclose(table["aum"], [-0.5, 1.75])
    np.testing.assert_allclose(table["el2n"], np.sqrt(2) * (1 - p).mean(axis=0))
    np.testing.assert_allclose(table["loss"], np.log1p(np.exp(-margins)).mean(axis=0))


def test_logits_are_exact_where_probabilities_underflow():
    logits = np.array([[[0.0, 900.0, 100.0]]])
    row = dynamics.from_logits(logits, [0]).table.iloc[0]
    assert (row["loss"], row["aum"]) == (900, -900)
    # From probabilities, at least the floor.
    row = dynamics.from_probabilities([[[0.0, 1.0, 0.0]]], [0]).table.iloc[0]
    np.testing.assert_allclose([row["loss"], -row["aum"]], -np.log(dynamics.FLOOR))


@pytest.mark.slow
@drawn(st.lists(st.floats(-30, 30), min_size=3, max_size=3), st.floats(-50, 50))
def test_a_constant_added_to_all_logits_changes_nothing(z, constant):
    one = dynamics.from_logits([[z]], [1]).table[COLUMNS]
    other = dynamics.from_logits([[np.add(z, constant).tolist()]], [1]).table[COLUMNS]
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_without_other_classes_margins_are_unknown():
    table = dynamics.from_probabilities(GOLD).table
    np.testing.assert_allclose(table["loss"], -np.log(GOLD).mean(axis=0))
    assert table[["aum", "el2n"]].isna().all(axis=None)
    assert dynamics.from_probabilities(np.ones((1, 1, 1)), [0]).table["aum"].isna().all()


def test_batches_of_logits():
    seen = dynamics.Accumulator(N, early=3)
    for epoch in LOGITS:
        for batch in np.array_split(RNG.permutation(N), 3):
            seen.add_logits(epoch[batch], LABELS[batch], items=batch)
    pd.testing.assert_frame_equal(
        seen.result().table, dynamics.from_logits(LOGITS, LABELS, early=3).table, rtol=1e-10
    )


def test_average_of_runs():
    runs = [dynamics.from_logits(LOGITS + shift, LABELS) for shift in RNG.normal(size=(3, 1, N, K))]
    shuffled = dynamics.Dynamics(runs[1].table.sample(frac=1, random_state=0))
    table = dynamics.average([runs[0], shuffled, runs[2]]).table
    assert table["n"].tolist() == [3 * EPOCHS] * N
    for name in ("confidence", "variability", "loss", "aum", "el2n", "forgotten", "correctness"):
        np.testing.assert_allclose(table[name], np.mean([run.table[name] for run in runs], axis=0))


def test_average_is_over_the_runs_that_know():
    one = dynamics.from_probabilities([[0.2, np.nan, 0.4]], correct=[[0, np.nan, np.nan]])
    other = dynamics.from_probabilities([[0.4, np.nan, np.nan]], correct=[[0, np.nan, np.nan]])
    table = dynamics.average([one, other]).table
    np.testing.assert_allclose(table["confidence"], [0.3, np.nan, 0.4])
    assert table["flag"].tolist() == ["never learned", "never seen", "seen once"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dynamics.from_logits(GOLD, LABELS), "epochs x items x classes"),
        (lambda: dynamics.from_logits(LOGITS, None), "`labels`"),
        (lambda: dynamics.from_logits(np.where(LOGITS > 5, np.inf, LOGITS), LABELS), "infinite"),
        (lambda: dynamics.from_logits(LOGITS, LABELS, early=0), "`early`"),
        (lambda: dynamics.average([]), "list of results"),
        (
            lambda: dynamics.average([dynamics.from_probabilities(GOLD[:, :k]) for k in (3, 4)]),
            "others in run 2",
        ),
    ],
)
def test_bad_logits_and_runs(call, words):
    with pytest.raises(InputError, match=words):
        call()

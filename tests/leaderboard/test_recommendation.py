"""The recommendation of a leaderboard, of tables made by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, Responses
from irtcat.leaderboard import METRICS, Leaderboard, recommend

K = (10, 40)


def board_of(errors, coverage=0.95, level=0.95):
    """A leaderboard with the errors of each pair, hold-outs x numbers of items.

    The coverage is one number, or one for each strategy.
    """
    rows = []
    for (strategy, estimator), by_seed in errors.items():
        for seed, values in enumerate(by_seed):
            for k, mae in zip(K, values, strict=True):
                row = dict.fromkeys(METRICS, 0.5) | {"mae": mae, "coverage": coverage, "width": 9.0}
                if isinstance(coverage, dict):
                    row["coverage"] = coverage[strategy]
                about = {"split": "random", "seed": seed, "strategy": strategy, "n_items": k}
                rows.append({**row, **about, "estimator": estimator, "undefined": "", "flag": ""})
    responses = Responses.from_array(np.tile([[0, 1], [1, 0]], (2, 100)))
    return Leaderboard(pd.DataFrame(rows), (), responses, 0, 10, level)


STEADY = {
    ("random", "mean"): [[8.0, 4.0], [8.4, 4.2], [7.6, 3.8]],
    ("balanced", "auto"): [[4.0, 2.0], [4.2, 2.1], [3.8, 1.9]],
}


def test_the_pair_of_least_error_and_the_items_it_takes():
    advice = recommend(board_of(STEADY), error=3.0)
    assert (advice.strategy, advice.estimator) == ("balanced", "auto")
    # The error falls as k to the -1/2: 4 at 10, so 3 at 10 (4 / 3)^2 = 17.8.
    assert advice.n_items == 18
    assert [(row["n_items"], row["mae"]) for row in advice.measured] == [
        (10, pytest.approx(4.0)),
        (40, pytest.approx(2.0)),
    ]
    (other,) = advice.alternatives
    assert (other["strategy"], other["estimator"], other["as_good"]) == ("random", "mean", False)
    assert other["ratio"] == pytest.approx(2.0)
    assert advice.sentences() == [
        "Recommended: strategy balanced with estimator auto, 18 items (9.0% of 200) for a mean "
        "absolute error of 3 points.",
        "Its error in points, by number of items: 4.0 with 10, 2.0 with 40.",
        "Next: random with mean, whose error is 100% greater.",
        "Predicted are the scores of these runs on all 200 items.",
    ]
    assert json.loads(json.dumps(advice.to_json()))["text"] == advice.sentences()
    assert str(advice) == "\n".join(advice.sentences())


def test_errors_out_of_reach_and_at_once():
    assert recommend(board_of(STEADY), error=1.0).n_items is None
    text = str(recommend(board_of(STEADY), error=1.0))
    assert "takes more than 40 items, which have 2.0" in text
    advice = recommend(board_of(STEADY), error=5.0)
    assert advice.n_items == 10
    assert "10 items or fewer" in str(advice)


def test_pairs_within_the_precision_of_the_hold_outs_are_as_good():
    noisy = {
        ("balanced", "auto"): [[4.0, 2.0], [4.2, 2.1], [3.8, 1.9]],
        ("stratified", "auto"): [[4.4, 2.2], [3.9, 1.9], [3.9, 2.0]],
    }
    advice = recommend(board_of(noisy))
    assert [pair["as_good"] for pair in advice.alternatives] == [True]
    assert "As good within the precision of the hold-outs: stratified with auto." in str(advice)
    one = {pair: values[:1] for pair, values in noisy.items()}  # one hold-out: no precision
    assert [pair["as_good"] for pair in recommend(board_of(one)).alternatives] == [False]


def test_intervals_that_are_too_narrow_are_reported():
    text = str(recommend(board_of(STEADY, coverage=0.8)))
    assert "95% intervals are too narrow: with 10 items they hold 80%" in text
    assert "too narrow" not in str(recommend(board_of(STEADY, coverage=0.91)))


def test_of_equally_good_pairs_one_with_honest_intervals_is_preferred():
    equal = {
        ("balanced", "ridge"): [[4.0, 2.0], [4.1, 2.0], [3.8, 1.9]],
        ("stratified", "auto"): [[4.1, 2.0], [4.0, 2.0], [3.9, 2.0]],
        ("random", "mean"): [[8.0, 4.0], [8.4, 4.2], [7.6, 3.8]],
    }
    coverage = {"balanced": 0.7, "stratified": 0.94, "random": 0.95}
    assert recommend(board_of(equal)).strategy == "balanced"
    advice = recommend(board_of(equal, coverage))
    assert advice.strategy == "stratified"
    assert [pair["as_good"] for pair in advice.alternatives] == [True, False]
    coverage["stratified"] = 0.8  # then none is honest but one that is far worse
    assert recommend(board_of(equal, coverage)).strategy == "balanced"


def test_pairs_without_predictions_are_left_out():
    failed = STEADY | {("fisher", "gp"): [[np.nan, 1.0]] * 3}
    assert len(recommend(board_of(failed)).alternatives) == 1
    with pytest.raises(InputError, match="a board with predictions"):
        recommend(board_of({("fisher", "gp"): [[np.nan, 1.0]]}))
    with pytest.raises(InputError, match="`error`"):
        recommend(board_of(STEADY), error=0.0)

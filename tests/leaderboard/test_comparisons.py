"""Several comparisons at once: Holm's p-values, totals, and what is refused."""

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat.agreement import holm
from irtcat.leaderboard import compare, compare_all
from irtcat.responses import Responses

N = 300


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.2, 0.7, N)
    shifts = np.array([[0.0], [0.0], [0.06], [0.3]])
    answers = (rng.random((4, N)) < p + shifts).astype(int)
    return Responses.from_array(answers, ["base", "same", "near", "far"])


def test_new_models_with_holms_p_values(models):
    found = compare_all(None, None, models)
    assert list(found) == [("", "same"), ("", "near"), ("", "far")]
    alone = [compare(None, None, models, name, "base") for name in ("same", "near", "far")]
    assert found.table["p_value"].tolist() == [one.p_value for one in alone]
    assert found.table["p_adjusted"].to_numpy() == pytest.approx(holm([c.p_value for c in alone]))
    assert found["far"].verdict == "better"
    assert found.table.loc[("", "far"), "verdict"] == "better"
    assert str(found).count("points [") == 3
    plain = compare_all(None, None, models, adjust="none").to_frame()
    assert plain["verdict"].tolist() == [one.verdict for one in alone]


@pytest.mark.slow
def test_adjusted_verdicts_are_wrong_once_in_twenty():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.9, 80)
    any_told = 0
    for _ in range(100):
        r = Responses.from_array((rng.random((6, 80)) < p).astype(int), codes=[0, 1])
        any_told += (compare_all(None, None, r).table["verdict"] != "cannot tell").any()
    assert any_told <= 11  # 5 are expected, 12 have a chance of .4 %


def test_the_total_of_benchmarks_is_weighted(models):
    two = {"maths": models.subset(items=slice(0, 100)), "law": models.subset(items=slice(100, N))}
    found = compare_all(None, None, two, ["near"], weights={"maths": 3, "law": 1})
    parts = [compare(None, None, r, "near", "base") for r in two.values()]
    total = found.table.loc[("total", "near")]
    assert total["difference"] == pytest.approx(
        0.75 * parts[0].difference + 0.25 * parts[1].difference
    )
    squares = [(w * part.se) ** 2 for w, part in zip((0.75, 0.25), parts, strict=True)]
    assert total["se"] ** 2 == pytest.approx(sum(squares))
    dfs = sum(v**2 / part.df for v, part in zip(squares, parts, strict=True))
    assert total["df"] == pytest.approx(sum(squares) ** 2 / dfs)
    assert len(found) == 2
    assert "near on total" in str(found)
    equal = compare_all(None, None, two, ["near"]).table.loc[("total", "near")]
    assert equal["difference"] == pytest.approx(np.mean([part.difference for part in parts]))


def test_equivalence_is_a_decision_too(models):
    found = compare_all(None, None, models, ["same"], margin=0.3)
    one = found["same"]
    assert one.verdict == "equivalent"
    assert found.table["p_adjusted"].iloc[0] == pytest.approx(2 * one.p_equivalent)
    assert found.table["verdict"].iloc[0] == "equivalent"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"adjust": "luck"}, "`adjust` argument must be one of holm, none"),
        ({"new": []}, "`new` argument must be given"),
        ({"old": "nobody"}, "`old` argument"),
        ({"weights": {"maths": 1}}, "`weights` argument must be a number above 0"),
    ],
)
def test_refused(models, given, words):
    with pytest.raises(InputError, match=words):
        compare_all(**{"calibration": None, "subset": None, "responses": models, **given})
    with pytest.raises(InputError, match="a mapping with the benchmark maths"):
        compare_all(models, None, {"maths": models})

"""Judgements as facets of a table, and several of them as one response."""

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError, Responses
from irtcat.responses import combine_judges

LONG = pd.DataFrame(
    [
        (m, q, j, t, s)
        for (m, q, t), scores in {
            ("a", "x", 1): (1, 1, 0),
            ("a", "x", 2): (0, 0, 0),
            ("a", "y", 1): (1, 0, None),
            ("b", "x", 1): (1, 1, 1),
            ("b", "y", 1): (0, 0, 1),
            ("b", "y", 2): (0, 1, 1),
        }.items()
        for j, s in zip(("j1", "j2", "j3"), scores, strict=True)
    ],
    columns=["model", "question", "judge", "epoch", "score"],
)
FIRST = LONG[LONG["epoch"] == 1].drop(columns="epoch")


def judged(table):
    return Responses.from_long(table, facets="judge")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_are_read_as_tables_in_memory(tmp_path, suffix):
    path = tmp_path / f"judged{suffix}"
    LONG.to_csv(path, index=False) if suffix == ".csv" else LONG.to_parquet(path)
    found = irtcat.read_responses(path, facets=["judge"])
    wanted = judged(LONG)
    assert found == wanted
    assert found.items.to_dict() == wanted.items.to_dict()
    assert found.items.loc["x / j2"].to_dict() == {"base_item": "x", "judge": "j2"}


def test_the_place_of_a_judgement_is_named(tmp_path):
    path = tmp_path / "judged.csv"

    def refused(table, **options):
        table.to_csv(path, index=False)
        with pytest.raises(InputError) as error:
            irtcat.read_responses(path, **{"facets": "judge"} | options)
        return str(error.value)

    text = refused(FIRST.replace({"judge": {"j1": None}}))
    assert "judged.csv, line 2, column 3 ('judge'): expected an id" in text
    text = refused(FIRST.assign(score=FIRST["score"].where(FIRST["score"] < 1, 1.5)))
    assert "judged.csv, line 2, column 4 ('score'): expected fractions within [0, 1]" in text
    text = refused(LONG.assign(score=LONG["score"].where(LONG["score"] < 1, 1.5)))
    assert "judged.csv, line 2, column 5 ('score'): expected a score from 0 to 1" in text
    text = refused(pd.concat([LONG, LONG[:1].assign(score=0)]))
    assert f"judged.csv, line {len(LONG) + 2}, column 5 ('score'): expected the same" in text
    assert "subject 'a' and item 'x / j1' in trial 1 have '1" in text
    text = refused(FIRST, facets=())
    assert "judged.csv, line 3: expected one response of subject 'a' and item 'x'" in text
    assert "If 'judge' says who judged, name it with facets=." in text
    text = refused(pd.concat([FIRST, FIRST[:1].assign(score=1 - FIRST["score"].iloc[0])]))
    assert "expected the same response" in text
    assert "facets=" not in text  # it is one already
    assert "besides model, question, score. Got 'rater'" in refused(FIRST, facets="rater")
    wide = pd.DataFrame({"model": ["a", "b"], "q1": [0, 1], "judge": [1, 0]})
    assert "facets are columns of a long table" in refused(wide)
    judged(FIRST).save(tmp_path / "judged.npz")
    with pytest.raises(InputError, match="`facets` argument must be given with a table"):
        irtcat.read_responses(tmp_path / "judged.npz", facets="judge")


def test_means_and_majorities():
    mean = combine_judges(judged(FIRST))
    assert mean.item_ids.tolist() == ["x", "y"]
    assert list(mean.items.columns) == []
    np.testing.assert_allclose(mean.to_numpy(), [[2 / 3, 1 / 2], [1, 1 / 3]], rtol=1e-6)
    assert mean.trials is None
    votes = combine_judges(judged(FIRST), decision="majority")
    assert votes.to_numpy().tolist() == [[1, 0.5], [1, 0]]
    strict = combine_judges(judged(FIRST), decision="majority", ties=0)
    assert strict.to_numpy().tolist() == [[1, 0], [1, 0]]
    assert not strict.is_fractional


def test_trials_stay_answers_or_are_more_votes():
    votes = combine_judges(judged(LONG), decision="majority", ties=0)
    np.testing.assert_array_equal(
        votes.trial_values, [[[1, 0], [0, np.nan]], [[1, np.nan], [0, 1]]]
    )
    assert votes.is_counted
    together = combine_judges(judged(LONG), decision="majority", repeats="judgements")
    assert together.to_numpy().tolist() == [[0, 0.5], [1, 0.5]]
    assert together.trials is None


def test_other_facets_and_metadata_stay():
    table = pd.concat([FIRST.assign(template="t1"), FIRST.assign(template="t2", score=0)])
    about = pd.DataFrame({"topic": ["maths", "logic"]}, index=["x", "y"])
    r = Responses.from_long(table, facets=["judge", "template"], items=about)
    found = combine_judges(r, decision="majority")
    assert found.item_ids.tolist() == ["x / t1", "y / t1", "x / t2", "y / t2"]
    assert found.items["topic"].tolist() == ["maths", "logic"] * 2
    assert found.to_numpy().tolist() == [[1, 0.5, 0, 0], [1, 0, 0, 0]]


def test_grades_are_averaged():
    grades = combine_judges(judged(FIRST.assign(score=[4, 2, 0, 1, 3, 2] * 2)))
    np.testing.assert_allclose(grades.to_numpy(), [[0.5, 0.5], [0.5, 0.5]], atol=1e-6)


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (FIRST, {"judge": "rater"}, "judgements with the facet rater"),
        (FIRST, {"decision": "median"}, "`decision` argument must be"),
        (FIRST, {"repeats": "votes"}, "`repeats` argument must be"),
        (FIRST, {"ties": 0.3}, "`ties` argument must be 0, 0.5 or 1"),
        (FIRST.assign(score=0.3), {"decision": "majority"}, "right or wrong judgements"),
    ],
)
def test_what_cannot_be_combined(table, options, words):
    with pytest.raises(InputError, match=words):
        combine_judges(judged(table), **options)


def test_tables_are_read_first():
    with pytest.raises(InputError, match="`responses` argument must be Responses with facets"):
        combine_judges(FIRST)

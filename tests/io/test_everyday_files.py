"""Files as people have them: read as an independent count says, or refused with the remedy."""

import csv
import json
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat._common.checks import InputError

RNG = np.random.default_rng(39)
PEOPLE = [f"p{n}" for n in range(1, 13)]
RIGHT = RNG.integers(0, 2, (12, 6))
RIGHT[0], RIGHT[1] = 0, 1


def write_rows(path, header, rows, separator=",", encoding="utf-8"):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=separator).writerows([header, *rows])
    return path


def answers(responses):
    """The observed responses by subject and item."""
    rows = responses.to_frame().to_dict("index").items()
    return {(s, i): value for s, row in rows for i, value in row.items() if value == value}


def refused(path, *texts, **options):
    """The file is refused in one sentence that has these texts."""
    with pytest.raises(InputError) as caught:
        irtcat.read_responses(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for text in (path.name, *texts):
        assert text in message


LONG_HEADERS = [
    "subject,item,response",
    "model,prompt_id,is_correct",
    "id,item,resp",
    "person,question,label",
    "respondent,task,score",
    "user_id,problem_id,correct,judge",
]


@pytest.mark.parametrize("header", LONG_HEADERS)
def test_long_tables_by_usual_names(tmp_path, header):
    names = header.split(",")
    rows = [
        [PEOPLE[s], f"q{i}", RIGHT[s, i], "j1"][: len(names)]
        for s, i in RNG.permutation(list(np.ndindex(RIGHT.shape)))
        if (s, i) != (3, 4)
    ]
    expected = {(subject, item): value for subject, item, value, *_ in rows}
    lines = [json.dumps(dict(zip(names, map(str, row), strict=True))) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    one_list = [dict(zip(names, map(str, row), strict=True)) for row in rows]
    (tmp_path / "a.json").write_text(json.dumps(one_list))
    for path in (write_rows(tmp_path / "a.csv", names, rows), tmp_path / "a.jsonl",
                 tmp_path / "a.json"):  # fmt: skip
        responses = irtcat.read_responses(path)
        assert answers(responses) == expected, path.name
        assert f"item = {names[1]}" in responses.origin


def test_trials_of_a_table_with_conditions_are_counted(tmp_path):
    """The columns of measurement-db: subject, item, trial, condition, response."""
    rows = [
        (PEOPLE[s], f"q{i}", trial, "greedy", int(RNG.random() < 0.5))
        for s in range(4)
        for i in range(3)
        for trial in range(1 + (s + i) % 3)
    ]
    header = ["subject", "item", "trial", "condition", "response"]
    shares = defaultdict(list)
    for subject, item, _, _, value in rows:
        shares[subject, item].append(value)
    path = write_rows(tmp_path / "a.csv", header, rows)
    for responses in (
        irtcat.read_responses(path),
        irtcat.as_responses(pd.DataFrame(rows, columns=header)),
    ):
        assert int(responses.trials.sum()) == len(rows)
        for (subject, item), values in shares.items():
            assert responses[subject][item] == pytest.approx(np.mean(values), abs=1e-7)
    twice = [*rows, (*rows[0][:3], "sampled", rows[0][4])]
    refused(write_rows(path, header, twice), "'greedy'", "'sampled'", "facets=", "ignore=")
    both = irtcat.read_responses(path, facets="condition")
    assert both.n_items == 4

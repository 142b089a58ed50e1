"""Judgements from files of MT-bench, AlpacaEval and Arena."""

import json

import pandas as pd
import pytest

from irtcat import InputError
from irtcat.io import read_judgements, read_responses

GAME = {
    "question_id": 81,
    "model_1": "m1",
    "model_2": "m2",
    "judge": ["gpt-4", "pair-v2"],
    "turn": 1,
}
GAMES = [
    {**GAME, "g1_winner": "model_1", "g2_winner": "model_2"},  # the second game is shown m2, m1
    {**GAME, "g1_winner": "tie", "g2_winner": "error", "turn": 2},
]
GRADE = {"question_id": 81, "model": "m1", "judge": ["gpt-4", "single"], "turn": 1}
ARENA = {"model_a": "m1", "model_b": "m2", "judge": "u1", "question_id": "x", "turn": 1}
ANNOTATION = {
    "instruction": "Say hello.",
    "generator_1": "ref",
    "generator_2": "m",
    "annotator": "w",
}
ANNOTATION |= {"output_1": "Hello.", "output_2": "Hello!!!"}


def read(folder, rows, name="votes.json"):
    """What is read of these records, as JSON lines or a list."""
    path = folder / name
    lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) if name.endswith("jsonl") else f"[{','.join(lines)}]")
    return read_judgements(path)


def test_mt_bench(tmp_path):
    with pytest.warns(UserWarning, match="1 judgements have no outcome"):
        table = read(tmp_path, GAMES, "gpt-4_pair.jsonl")
    assert table.to_numpy().tolist() == [
        ["gpt-4", "81/1", "m1", "m2", "a"],
        ["gpt-4", "81/1", "m2", "m1", "a"],
        ["gpt-4", "81/2", "m1", "m2", "tie"],
    ]
    with pytest.warns(UserWarning, match="1 judgements have no outcome"):
        table = read(tmp_path, [{**GRADE, "score": 7}, {**GRADE, "score": -1}])
    assert table.to_dict("records") == [
        {"judge": "gpt-4", "item": "81/1", "subject": "m1", "grade": 7}
    ]


def test_arena_in_all_its_forms(tmp_path):
    tokens = {"sum_assistant_a_tokens": 80, "sum_assistant_b_tokens": 40}
    rows = [{**ARENA, "winner": "model_b", "conv_metadata": tokens}]
    rows.append({**ARENA, "winner": "tie (bothbad)", "conv_metadata": tokens})
    table = read(tmp_path, rows)
    columns = ["judge", "item", "a", "b", "outcome", "length_a", "length_b"]
    assert table.columns.tolist() == columns
    assert table["outcome"].tolist() == ["model_b", "tie (bothbad)"]
    assert table.iloc[0, 5:].tolist() == [80, 40]
    path = tmp_path / "votes.parquet"
    pd.DataFrame(rows).assign(conversation_a="long text").to_parquet(path)
    pd.testing.assert_frame_equal(read_judgements(path), table)
    path = tmp_path / "train.csv"
    path.write_text("id,model_a,model_b,winner_model_a,winner_model_b,winner_tie\n7,m1,m2,0,0,1\n")
    assert read_judgements(path).to_dict("records") == [
        {"item": "7", "a": "m1", "b": "m2", "outcome": "tie"}
    ]


def test_alpaca_eval(tmp_path):
    rows = [{**ANNOTATION, "preference": value} for value in (1.25, 0, None)]
    with pytest.warns(UserWarning, match="1 judgements"):
        table = read(tmp_path, rows)
    assert table["outcome"].tolist() == [0.75, 0.5]  # shares for the reference
    assert table[["a", "b", "judge"]].iloc[0].tolist() == ["ref", "m", "w"]
    assert table[["length_a", "length_b"]].iloc[0].tolist() == [6, 8]
    assert table["item"][0] == table["item"][1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": 1}], "expected judgements, with columns such as a, b, outcome, .* Got x"),
        ([GAMES[0], {"model_1": "m1"}], "record 2: no 'g1_winner' as in the first"),
        ([{**ARENA, "winner": "error"}], "none of the judgements has an outcome"),
        ([3], "record 1: expected an object. Got 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no outcome")
def test_refusals(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, rows)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("votes.csv", "Got votes between two answers"),
        ("votes.jsonl", "judgements compare two models"),
    ],
)
def test_votes_are_no_responses(tmp_path, name, message):
    path, vote = tmp_path / name, {**ARENA, "winner": "model_a"}
    path.write_text(
        json.dumps(vote) if "json" in name else pd.DataFrame([vote]).to_csv(index=False)
    )
    with pytest.raises(InputError, match=f"{message}.*irtcat votes"):
        read_responses(path)


def test_ids_of_a_csv_table_are_texts(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("model_a,model_b,winner,judge\n001,1,model_a,07\n10,1e1,model_b,\n")
    votes = read_judgements(path)
    assert votes[["a", "b"]].to_numpy().tolist() == [["001", "1"], ["10", "1e1"]]
    assert votes["judge"].iloc[0] == "07"
    assert pd.isna(votes["judge"].iloc[1])

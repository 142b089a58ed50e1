"""Subsets in the forms that harnesses take, and the traps of those forms."""

import json
import shlex

import pandas as pd
import pytest

import irtcat
from irtcat import InputError
from irtcat.harness import EXPORTS, export
from irtcat.harness.exports import LONGEST, inspect_selector

PLACES = pd.DataFrame(
    {
        "task": ["arc", "arc", "boolq", "arc"],
        "sample": ["12", "3", "7", "30"],
        "hash": ["a" * 64, None, "c" * 64, None],
    },
    index=["arc/x", "arc/y", "boolq/z", "arc/w"],
)


def test_lm_eval_numbers_are_sorted_and_only_tasks_with_items_are_named():
    made = export(["arc/w", "arc/x", "arc/y"], "lm-eval", PLACES)
    assert json.loads(made.text) == {"arc": [3, 12, 30]}
    (command,) = made.commands("few.json", "hf")
    words = shlex.split(command)
    assert words[words.index("--tasks") + 1] == "arc"
    assert words[words.index("--samples") + 1] == "few.json"
    assert "--limit" not in words


def test_a_subset_of_several_tasks(tmp_path):
    made = export(PLACES.index, "lm-eval", PLACES)
    assert json.loads(made.text) == {"arc": [3, 12, 30], "boolq": [7]}
    assert "--tasks arc,boolq " in made.commands()[0]
    path = made.write(tmp_path / "samples.json")
    assert json.loads(path.read_text()) == json.loads(made.text)
    assert made.tasks == ["arc", "boolq"]
    assert made.to_frame().loc["boolq/z"].tolist() == ["boolq", "7"]


def test_the_metadata_of_responses_banks_and_subsets_serve():
    ids = list(PLACES.index)
    data = irtcat.Responses.from_array([[0, 1, 1, 0], [1, 1, 0, 0]], item_ids=ids, items=PLACES)
    subset = irtcat.select(None, 2, strategy="random", calibration=data, seed=1)
    again = export(list(subset.item_ids), "lm-eval", PLACES)
    assert export(subset, "lm-eval", data).text == again.text
    bank = irtcat.ItemBank.from_parameters(b=[0.0] * 4, item_ids=ids)
    bank = irtcat.ItemBank(bank.model, bank.item_ids, items=PLACES)
    assert export(subset, "lm-eval", bank).text == again.text


def test_inspect_has_one_command_a_task():
    made = export(PLACES.index, "inspect", PLACES)
    assert made.text == "3,12,30\n7\n"
    commands = [shlex.split(each) for each in made.commands(model="mockllm/x")]
    assert [c[c.index("--sample-id") + 1] for c in commands] == ["3,12,30", "7"]
    assert [c[2] for c in commands] == ["arc", "boolq"]


def test_inspect_ids_are_patterns_that_match_themselves_only():
    from fnmatch import fnmatch

    for sample in ("a*b", "what?", "x[1]", "quiz:3", "plain", "a/b c"):
        pattern = inspect_selector(sample)
        assert fnmatch(sample, pattern)
        assert not fnmatch(sample + "x", pattern)
        assert ":" not in pattern.replace("[:]", "")
    assert not fnmatch("aXb", inspect_selector("a*b"))


def test_inspect_ids_that_a_list_cannot_hold_are_refused():
    for sample in ("a,b", " a", "a\nb", "a\u2028b"):
        table = pd.DataFrame({"task": "quiz", "sample_id": [sample]}, index=["x"])
        with pytest.raises(InputError, match="sample ids without commas"):
            export(["x"], "inspect", table)


@pytest.mark.slow
def test_lists_too_long_for_a_command_are_read_from_the_file(tmp_path):
    ids = [f"sample-{n:06d}" for n in range(LONGEST // 10)]
    made = export(ids, "inspect", task="quiz.py")
    (command,) = made.commands(made.write(tmp_path / "ids.txt"), "m")
    assert len(command) < 1000
    code = shlex.split(command)[2]
    given = {}

    class Fake:
        @staticmethod
        def eval(task, **settings):
            given.update(settings, task=task)

    exec(code.replace("import inspect_ai; ", ""), {"inspect_ai": Fake})
    assert given["sample_id"] == ids
    assert given["task"] == "quiz.py"


def test_plain_ids_and_every_eval_ever():
    assert export(["b", "a"]).text == "b\na\n"
    assert export(["b", "a"]).commands() == []
    lines = export(PLACES.index, "every-eval-ever", PLACES).text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["evaluation_name"], row["sample_id"]) for row in rows] == [
        ("arc", "12"),
        ("arc", "3"),
        ("arc", "30"),
        ("boolq", "7"),
    ]
    assert rows[0]["metadata"] == {"doc_hash": "a" * 64}


def test_without_metadata_the_id_is_the_sample():
    assert json.loads(export(["4", "0"], "lm-eval", task="quiz").text) == {"quiz": [0, 4]}
    with pytest.raises(InputError, match=r"number of a document. Got 'x' for item x"):
        export(["x"], "lm-eval", task="quiz")
    with pytest.raises(InputError, match=r"known task .* Got none for 4"):
        export(["4"], "lm-eval")


@pytest.mark.parametrize("to", EXPORTS)
def test_nothing_is_exported_twice_or_empty(to):
    with pytest.raises(InputError, match="at least one item"):
        export([], to, PLACES)
    with pytest.raises(InputError, match="arc/x twice"):
        export(["arc/x", "arc/y", "arc/x"], to, PLACES)
    with pytest.raises(InputError, match="Got 'b, a twice or more'"):
        export(["b", "a", "a", "b", "c", "b"], to)
    for table in (PLACES, PLACES[[]]):  # also one without columns knows its items
        with pytest.raises(InputError, match="Got 'none for nowhere, gone'"):
            export(["nowhere", "arc/x", "gone", "nowhere", "gone"], to, table)


def test_colliding_places_are_refused():
    twice = pd.DataFrame({"task": "arc", "doc_id": [1, 1]}, index=["x", "y"])
    with pytest.raises(InputError, match="sample 1 of task arc for both x and y"):
        export(["x", "y"], "lm-eval", twice)
    zeros = pd.DataFrame({"task": "arc", "doc_id": ["7", "07"]}, index=["x", "y"])
    with pytest.raises(InputError, match="document 7 of task arc twice"):
        export(["x", "y"], "lm-eval", zeros)
    tasks = pd.DataFrame({"task": ["a", "b"], "doc_id": [1, 1]}, index=["x", "y"])
    assert json.loads(export(["x", "y"], "lm-eval", tasks).text) == {"a": [1], "b": [1]}


def test_a_task_that_lm_eval_would_read_as_two_is_refused():
    with pytest.raises(InputError, match="tasks without commas, wildcards"):
        export(["4"], "lm-eval", task="arc,boolq")
    assert export(["4"], "inspect", task="arc,boolq").tasks == ["arc,boolq"]


@pytest.mark.parametrize("task", ["quiz*", "q?z", "q[u]iz", " quiz", "quiz "])
def test_a_task_that_is_a_pattern_is_refused(task):
    with pytest.raises(InputError, match="wildcards"):
        export(["4"], "lm-eval", task=task)
    if task.strip() == task:
        with pytest.raises(InputError, match="wildcards"):
            export(["4"], "inspect", task=task)


def test_words_that_begin_with_a_hyphen_are_no_options():
    table = pd.DataFrame({"task": "-quiz", "sample": ["-3", "-5"]}, index=["x", "y"])
    (command,) = export(["x", "y"], "inspect", table).commands(model="-m")
    assert shlex.split(command) == [
        "inspect",
        "eval",
        "--model=-m",
        "--log-dir",
        "new",
        "--sample-id=-5,-3",
        "--",
        "-quiz",
    ]
    (command,) = export(["7"], "lm-eval", task="-quiz").commands("-few.json", "-m")
    assert shlex.split(command)[1:4] == ["--model=-m", "--tasks=-quiz", "--samples=-few.json"]


def test_commands_hold_nothing_that_a_terminal_obeys():
    for bad in ("\x1b31mquiz", "a\nrm x", "q\u202ez", "\x9b1m"):
        for to in ("lm-eval", "inspect"):
            with pytest.raises(InputError, match="without control characters") as told:
                export(["4"], to, task=bad).commands()
            assert str(told.value).isprintable()
            with pytest.raises(InputError, match="without control characters"):
                export(["4"], to, task="quiz").commands(model=bad)
    many = [f"sample-{n:06d}" for n in range(LONGEST // 10)]
    (command,) = export(many, "inspect", task="quiz.py").commands("a\x1b[31m.txt", "m")
    assert command.isprintable()  # in Python's notation


def test_numbers_that_gaps_made_fractions_of_are_whole():
    table = pd.DataFrame({"task": "arc", "doc_id": [1.0, float("nan"), 3.0]}, index=["x", "y", "z"])
    assert json.loads(export(["z", "x"], "lm-eval", table).text) == {"arc": [1, 3]}
    with pytest.raises(InputError, match="Got 'y' for item y"):
        export(["y"], "lm-eval", table)


def test_bad_arguments():
    for subset, items in (("abc", None), (3, None), (["x"], [1]), (["x"], "file.csv")):
        with pytest.raises(InputError, match="argument must be"):
            export(subset, "ids", items)
    with pytest.raises(InputError, match="one of lm-eval, inspect, ids, every-eval-ever"):
        export(["x"], "helm")
    with pytest.raises(InputError, match="one row per item"):
        export(["x"], "ids", pd.DataFrame({"task": ["a", "b"]}, index=["x", "x"]))


def test_ids_are_text_and_complete():
    table = PLACES.set_axis([1.0, 2.0, 3.0, 4.0])  # whole numbers that a missing cell made floats
    made = export([1, 3], "lm-eval", table)
    assert json.loads(made.text) == {"arc": [12], "boolq": [7]}
    with pytest.raises(InputError, match=r"without missing ids. Got 'none at position 1'"):
        export(["arc/x", None], "lm-eval", PLACES)

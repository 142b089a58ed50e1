"""JSON of any format by paths, against counts made from the same files in another way."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat._common.checks import InputError
from irtcat.cli._app import app
from irtcat.io.records import parse_path


def promptfoo():
    """The output of promptfoo, which nests twice and names its models in objects."""
    results = [
        {
            "provider": {"id": model, "label": ""},
            "vars": {"id": f"q{i}", "question": f"{i} + 1?"},
            "success": bool((i * n) % 3),
            "score": 1 if (i * n) % 3 else 0,
            "testIdx": i,
            "gradingResult": {"pass": bool((i * n) % 3), "score": 1},
        }
        for n, model in enumerate(("openai:small", "openai:large"), start=1)
        for i in range(7)
    ]
    return {"evalId": "eval-1", "results": {"version": 3, "results": results}, "config": {}}


def deepeval(model):
    """A test run of DeepEval: metrics in test cases; the model in the hyperparameters."""
    cases = [
        {
            "name": f"test_case_{i}",
            "input": f"{i}?",
            "success": i % 2 == 0,
            "metricsData": [
                {"name": "Faithfulness", "score": i / 8, "success": i > 4},
                {"name": "Relevancy", "score": 1 - i / 8, "success": i < 6},
            ],
        }
        for i in range(8)
    ]
    return {"testCases": cases, "hyperparameters": {"model": model}}


def write(path, document):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_promptfoo_on_the_command_line_and_in_python(tmp_path):
    path = write(tmp_path / "results.json", promptfoo())
    text = path.read_text()
    right = len(re.findall(r'"success": true, "score": 1,', text))
    options = {"records": "results.results[*]", "subject": "provider.id", "item": "vars.id"}
    responses = irtcat.read_responses(path, **options, response="score")
    assert responses.subject_ids.tolist() == ["openai:small", "openai:large"]
    assert responses.values.shape == (2, 7)
    assert responses.values.sum() == right == 8
    assert responses == irtcat.read_responses(path, **options, response="success")
    assert responses == irtcat.as_responses(promptfoo(), **options, response="score")
    words = [f"--{name}={value}" for name, value in options.items()]
    printed = CliRunner().invoke(app, ["describe", str(path), *words, "--response=score", "--json"])
    assert json.loads(printed.stdout)["mean"] == pytest.approx(right / 14)
    out = tmp_path / "out.npz"
    CliRunner().invoke(app, ["import", str(path), *words, "--response=score", "--out", str(out)])
    assert irtcat.read_responses(out) == responses
    refused = CliRunner().invoke(app, ["import", str(path), *words, "--metric", "acc"])
    assert refused.exit_code == 2
    assert "--metric" in refused.output
    assert "not with --records" in refused.output


def test_paths_from_the_document_share_the_stars_of_the_records(tmp_path):
    for model in ("one", "two"):
        write(tmp_path / f"{model}.json", deepeval(model))
    responses = irtcat.read_responses(
        tmp_path,
        records="testCases[*].metricsData[*]",
        subject="$.hyperparameters.model",
        item="$.testCases[*].name",
        response="success",
        facets="name",
    )
    assert responses.subject_ids.tolist() == ["one", "two"]
    assert responses.n_items == 16
    faithful = responses.items["name"] == "Faithfulness"
    assert responses.values[:, faithful].sum() == 2 * sum(i > 4 for i in range(8))
    assert responses.values[:, ~faithful].sum() == 2 * sum(i < 6 for i in range(8))


def test_names_of_files_keys_and_values(tmp_path):
    for n, model in enumerate(("small", "large")):
        rows = [{"prompt_id": f"p{i}", "score": (i + n) / 5} for i in range(5)]
        write(tmp_path / "runs" / f"{model}.json", {"metadata": {"example_level_metadata": rows}})
    options = {"records": "metadata.example_level_metadata", "item": "prompt_id"}
    healthbench = irtcat.read_responses(tmp_path / "runs", subject="@file", **options)
    assert healthbench.subject_ids.tolist() == ["large", "small"]
    assert healthbench.to_numpy().sum(axis=1) == pytest.approx([3, 2])

    nested = {"models": {"m1": {"a.1": 1, "a.2": 0}, "m2": {"a.1": None, "a.2": 1}}}
    path = write(tmp_path / "nested.json", nested)
    responses = irtcat.read_responses(
        path, records="models.*.*", subject="$.models.*.@key", item="@key", response="@value"
    )
    assert responses.values.tolist() == [[1, 0], [-1, 1]]
    assert responses.item_ids.tolist() == ["a.1", "a.2"]


def test_lines_with_usual_names_trials_and_records_without_a_response(tmp_path):
    lines = [
        {"model": "m", "question": f"q{i}", "epoch": epoch, "correct": (i + epoch) % 2 == 0}
        for i in range(3)
        for epoch in (1, 2)
    ]
    del lines[4]["correct"]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.warns(UserWarning, match="1 of 6 records have no response") as caught:
        responses = irtcat.read_responses(path, records="[*]")
    assert "record 5" in str(caught[0].message)
    assert np.isnan(responses.trial_values).sum() == 1
    assert np.nansum(responses.trial_values) == sum(line.get("correct", 0) for line in lines)


def test_a_run_of_agents_with_trials(tmp_path):
    simulations = [
        {
            "id": f"{task}{trial}",
            "task_id": str(task),
            "trial": trial,
            "messages": [],
            "reward_info": {"reward": float((task + trial) % 2)},
        }
        for task in range(3)
        for trial in range(4)
    ]
    document = {"info": {"agent_info": {"llm": "org/m"}}, "simulations": simulations}
    path = write(tmp_path / "run.json", document)
    responses = irtcat.read_responses(
        path,
        records="simulations",
        subject="$.info.agent_info.llm",
        item="task_id",
        response="reward_info.reward",
    )
    assert responses.trial_values.shape == (1, 3, 4)
    assert responses.trial_values.sum() == path.read_text().count('"reward": 1.0')
    assert responses.subject_ids.tolist() == ["org/m"]


def test_repeats_without_numbers_are_trials_in_their_order(tmp_path):
    rows = [("a", "x", 1), ("a", "x", 0), ("b", "x", 1), ("a", "y", 1), ("b", "x", 1)]
    lines = [dict(zip(("model", "question", "correct"), row, strict=True)) for row in rows]
    path = write(tmp_path / "repeats.json", {"lines": lines})
    with pytest.raises(InputError, match="name the column of their numbers with trial="):
        irtcat.read_responses(path, records="lines")
    responses = irtcat.read_responses(path, records="lines", trial="@repeat")
    np.testing.assert_array_equal(
        responses.trial_values, [[[1, 0], [1, np.nan]], [[1, 1], [np.nan, np.nan]]]
    )
    with pytest.raises(InputError, match="`item` argument must be another path"):
        irtcat.read_responses(path, records="lines", item="@repeat")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"records": "results.result[*]"}, ["`records`", "results is an object with the keys"]),
        ({"records": "results.version[*]"}, ["`records`", "results.version is 3"]),
        ({"item": "vars.idx"}, ["record 1", "at vars.idx", "with the keys id, question"]),
        ({"item": "vars"}, ["to be one value", "the keys id, question"]),
        ({"subject": "subject"}, ["no key is named like the subject", "subject=", "@file"]),
        ({"response": "grade"}, ["expected the response at grade", "success, score"]),
        ({"item": "$.config[*].id"}, ["`item`", "stars are those of the records"]),
        ({"item": "vars[*]"}, ["`item`", "without stars"]),
        ({"records": "results["}, ["`records`", "a path of keys"]),
        ({"format": "csv"}, ["`format`", "left out where records are given"]),
    ],
)
def test_what_is_not_there_is_named_with_the_keys_that_are(tmp_path, options, parts):
    path = write(tmp_path / "results.json", promptfoo())
    usual = {"records": "results.results[*]", "subject": "provider.id", "item": "vars.id"}
    with pytest.raises(InputError) as error:
        irtcat.read_responses(path, **{**usual, "response": "score", **options})
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_wrong_response_is_named_by_its_record(tmp_path):
    document = promptfoo()
    document["results"]["results"][3]["score"] = "good"
    path = write(tmp_path / "results.json", document)
    with pytest.raises(InputError, match=r"record 4, column 3 \('score'\)"):
        irtcat.read_responses(
            path, records="results.results[*]", subject="provider.id", item="vars.id"
        )


def test_unknown_json_proposes_its_lists(tmp_path):
    path = write(tmp_path / "results.json", promptfoo())
    with pytest.raises(InputError, match=r"records=.*results\.results\[\*\] \(14 with the keys"):
        irtcat.read_responses(path)


@pytest.mark.parametrize("text", ["", ".a", "a..b", "a[", "a[x]", "a['b]", 3])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(InputError, match="a path of keys"):
        parse_path("item", text)

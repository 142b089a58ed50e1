"""Scores in other ranges and directions, as categories, and of samples that have none."""

import gzip
import json
import shutil
import warnings

import numpy as np
import pytest

import irtcat
from irtcat._common.checks import InputError
from irtcat.cli.import_ import _by_task
from irtcat.io import read_logs
from irtcat.io.logs.lm_eval import document_hash

STAMP = "2026-11-21T00-00-43.298874"


def write(folder, task, model, metric, values, lower=False, **more):
    """A run of lm-eval with one metric."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "doc_id": i,
            "doc": {"question": f"{task} {i}"},
            "metrics": [metric],
            metric: value,
            "filter": "none",
            **more,
        }
        for i, value in enumerate(values)
    ]
    (folder / f"samples_{task}_{STAMP}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    path = folder / f"results_{STAMP}.json"
    results = json.loads(path.read_text()) if path.exists() else {"results": {}}
    results["model_name"] = model
    results.setdefault("higher_is_better", {})[task] = {metric: not lower}
    path.write_text(json.dumps(results))


@pytest.fixture
def tree(tmp_path):
    """Two models on a task of right and wrong, perplexities, BLEU and a judge's 1 to 10."""
    for number, model in enumerate(("one", "two")):
        folder = tmp_path / model
        write(folder, "quiz", model, "acc", [1, 0, number, 1])
        write(folder, "wiki", model, "word_perplexity", [5 + number, 30.0, 9, 2], lower=True)
        write(folder, "translate", model, "bleu", [20 + number, 50.0, 100, 0])
        write(folder, "judged", model, "rating", [1 + number, 10, 5, 7])
    return tmp_path


def of_task(read, task):
    return read.responses.subset(items=[i for i in read.responses.item_ids if i.startswith(task)])


def test_one_task_of_another_direction_or_range_does_not_end_the_import(tree):
    read = read_logs(tree)
    assert read.report.runs["task"].unique().tolist() == ["quiz"]
    reasons = {
        skipped.file.split("samples_")[1].split("_")[0]: skipped.reason
        for skipped in read.report.skipped
    }
    assert reasons.keys() == {"wiki", "translate", "judged"}
    assert "lower is better for all metrics of task wiki" in reasons["wiki"]
    assert (
        "Leave the task out with `tasks`, or name the metric in `lower_is_better`"
        in (reasons["wiki"])
    )
    assert "Give other ranges in `ranges`" in reasons["translate"]
    with pytest.raises(InputError, match="lower is better for all metrics of task wiki"):
        read_logs(tree, tasks="wiki")


def test_ranges_and_directions(tree):
    ranges = {"bleu": (0, 100), "rating": (1, 10), "word_perplexity": (1, 101)}
    read = read_logs(tree, ranges=ranges, lower_is_better="word_perplexity")
    assert not read.report.skipped
    np.testing.assert_allclose(of_task(read, "quiz").to_numpy(), [[1, 0, 0, 1], [1, 0, 1, 1]])
    np.testing.assert_allclose(
        of_task(read, "wiki").to_numpy(), [[0.96, 0.71, 0.92, 0.99], [0.95, 0.71, 0.92, 0.99]]
    )
    np.testing.assert_allclose(
        of_task(read, "translate").to_numpy(), [[0.2, 0.5, 1, 0], [0.21, 0.5, 1, 0]], rtol=1e-6
    )
    np.testing.assert_allclose(
        of_task(read, "judged").to_numpy(), [[0, 1, 4 / 9, 6 / 9], [1 / 9, 1, 4 / 9, 6 / 9]]
    )
    by_task = read_logs(tree, tasks="judged", ranges={"rating": (0, 1), "judged:rating": (0, 10)})
    np.testing.assert_allclose(by_task.responses.to_numpy()[0], [0.1, 1, 0.5, 0.7])


def test_a_judges_whole_scores_as_categories(tree):
    read = read_logs(tree, tasks="judged", ranges={"rating": (1, 10)}, graded=True)
    responses = read.responses
    assert responses.codes == tuple(range(1, 11))
    assert (responses.values + 1).tolist() == [[1, 10, 5, 7], [2, 10, 5, 7]]
    table = _by_task(read)
    assert table["responses"].tolist() == [8]
    assert table["mean"].tolist() == [pytest.approx((0 + 9 + 4 + 6 + 1 + 9 + 4 + 6) / 72)]
    down = read_logs(
        tree, tasks="judged", ranges={"rating": (1, 10)}, graded=True, lower_is_better=["rating"]
    )
    assert (down.responses.values + 1).tolist() == [[10, 1, 6, 4], [9, 1, 6, 4]]
    with pytest.raises(InputError, match=r"same for all tasks with graded=True.*quiz.* 0 to 1"):
        read_logs(tree, ranges={"rating": (1, 10)}, graded=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranges": {"bleuu": (0, 100)}}, "`ranges` argument must be metrics or scorers"),
        ({"lower_is_better": ["wer"]}, "`lower_is_better` argument must be metrics or scorers"),
        ({"ranges": {"bleu": (100, 0)}}, "two rising numbers for bleu"),
        ({"ranges": {"bleu": 100}}, "two rising numbers for bleu"),
        ({"ranges": [("bleu", 0, 1)]}, "a mapping from names"),
        ({"graded": True}, "given with graded=True"),
        ({"graded": True, "ranges": {"rating": (0.5, 10)}}, "whole numbers of 0 or more"),
        ({"tasks": "judged", "ranges": {"rating": (1, 9)}}, "a score from 1 to 9. Got 10"),
        ({"unscored": "none"}, "`unscored` argument"),
    ],
)
def test_refused(tree, given, words):
    with pytest.raises(InputError, match=words):
        read_logs(tree, **given)


def test_half_points_are_no_categories(tmp_path):
    write(tmp_path / "one", "judged", "one", "rating", [1, 2.5, 3])
    with pytest.raises(InputError, match=r"a whole number from 1 to 5. Got 2.5"):
        read_logs(tmp_path, ranges={"rating": (1, 5)}, graded=True)
    write(tmp_path / "one", "judged", "one", "note", ["good", "bad", 1])
    with pytest.raises(InputError, match="expected note to be a score"):
        read_logs(tmp_path, ranges={"note": (1, 5)})


def inspect_log(crashed, epochs=1):
    """A log of Inspect, of 20 samples, of which some ended in an error."""
    samples = [
        {
            "id": f"q{i}",
            "epoch": e + 1,
            "input": f"Q{i}",
            "target": "A",
            "scores": None if (i, e) in crashed else {"match": {"value": "C" if i % 2 else "I"}},
            "error": "Timeout" if (i, e) in crashed else None,
        }
        for e in range(epochs)
        for i in range(20)
    ]
    about = {
        "task": "quiz",
        "model": "org/m",
        "created": "2026-11-21T00:00:00+00:00",
        "run_id": "r1",
    }
    results = {"total_samples": len(samples), "completed_samples": len(samples) - len(crashed)}
    return {
        "version": 2,
        "status": "success",
        "eval": about,
        "results": results,
        "samples": samples,
    }


def test_crashed_samples_are_counted_where_the_score_stands(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(inspect_log({(i, 0) for i in range(0, 12, 2)})))
    read = read_logs(path)
    assert read.responses.n_items == 14
    assert read.responses.subjects["unscored"].tolist() == [6]
    assert read.report.runs[["responses", "unscored"]].values.tolist() == [[14, 6]]
    assert read.report.runs["mean"].tolist() == pytest.approx([10 / 14])
    note = "quiz (inspect): 6 samples have no score, such as after an error, and are missing"
    assert note in read.report.notes[0]
    assert "(org/m: 6 of 20)" in read.report.notes[0]
    wrong = read_logs(path, unscored="wrong")
    assert wrong.responses.n_items == 20
    assert wrong.responses.to_numpy().mean() == 10 / 20
    assert wrong.report.runs[["responses", "unscored", "mean"]].values.tolist() == [[20, 6, 0.5]]
    assert "count as wrong (org/m: 6 of 20)" in wrong.report.notes[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        irtcat.read_responses(path)
    assert "6 samples have no score" in str(caught[0].message)


def test_a_crashed_epoch_is_a_wrong_trial(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(inspect_log({(1, 0), (3, 0), (3, 1)}, epochs=2)))
    read, wrong = read_logs(path), read_logs(path, unscored="wrong")
    scores = [
        dict(zip(r.item_ids, r.to_numpy()[0], strict=True))
        for r in (read.responses, wrong.responses)
    ]
    assert scores[0]["quiz/q1"] == 1
    assert "quiz/q3" not in scores[0]
    assert (scores[1]["quiz/q1"], scores[1]["quiz/q3"], scores[1]["quiz/q5"]) == (0.5, 0, 1)
    assert wrong.report.runs["unscored"].tolist() == [3]


def test_missing_scores_of_lm_eval_are_counted_once(tmp_path):
    write(tmp_path / "one", "quiz", "one", "acc", [1, None, 0, float("nan"), 1])
    read, wrong = read_logs(tmp_path), read_logs(tmp_path, unscored="wrong")
    assert read.report.runs["unscored"].tolist() == wrong.report.runs["unscored"].tolist() == [2]
    assert read.responses.n_missing == 2
    assert wrong.responses.values.tolist() == [[1, 0, 0, 0, 1]]


def test_instances_of_helm_without_statistics_are_counted(logs, tmp_path):
    (source,) = (logs / "helm").glob("*sim-0")
    shutil.copytree(source, tmp_path / "run")
    file = tmp_path / "run" / "per_instance_stats.json"
    instances = json.loads(file.read_text())
    n = read_logs(tmp_path, filter="test").responses.n_items
    gone = [each for each in instances if each["stats"][0]["name"]["split"] == "test"][:2]
    for instance in gone:
        instance["stats"] = []
    file.write_text(json.dumps(instances))
    (tmp_path / "run" / "stats.json").unlink(missing_ok=True)
    read = read_logs(tmp_path, filter="test")
    assert read.report.runs["unscored"].tolist() == [2]
    assert read.responses.n_items == n - 2
    assert read_logs(tmp_path, filter="test", unscored="wrong").responses.n_items == n


def test_crashed_samples_of_checkpoints_are_counted_by_subject(tmp_path):
    for step, crashed in (("step100", {(0, 0), (2, 0)}), ("step200", {(4, 0)})):
        log = inspect_log(crashed)
        log["eval"] |= {"model_args": {"revision": step}, "run_id": step}
        (tmp_path / f"{step}.json").write_text(json.dumps(log))
    subjects = [f"org/m@revision={step}" for step in ("step100", "step200")]
    for unscored in ("missing", "wrong"):
        read = read_logs(tmp_path, unscored=unscored)
        assert read.responses.subject_ids.tolist() == subjects
        assert read.responses.subjects["unscored"].tolist() == [2, 1]
        assert f"({subjects[0]}: 2 of 20; {subjects[1]}: 1 of 20)" in read.report.notes[0]
    assert read.responses.n_items == 20
    assert read.responses.items["scorer"].tolist() == ["match"] * 20


def test_samples_of_runs_under_other_conditions_are_not_counted(tmp_path):
    """Runs that are skipped have neither scores nor samples without one in the report."""
    for number, version in enumerate((1, 1, 2)):
        log = inspect_log({(0, 0)})
        log["eval"] |= {"model": f"m{number}", "run_id": str(number), "task_version": version}
        (tmp_path / f"{number}.json").write_text(json.dumps(log))
    read = read_logs(tmp_path)
    assert "expected version 1" in read.report.skipped[0].reason
    assert "2 samples have no score" in read.report.notes[0]
    assert "(m0: 1 of 20; m1: 1 of 20)" in read.report.notes[0]
    assert read.report.runs["unscored"].tolist() == [1, 1]


def test_other_versions_of_the_data_are_named(tmp_path):
    for number in range(3):
        write(tmp_path / f"m{number}", "quiz", f"m{number}", "acc", [1, 0, 1])
    file = next((tmp_path / "m2").glob("samples_*"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines[:2]:
        line["doc"] = {"question": "reworded"}
        line["doc_hash"] = document_hash({"question": f"reworded {line['doc_id']}"})
    file.write_text("\n".join(map(json.dumps, lines)))
    notes = " ".join(read_logs(tmp_path).report.notes)
    words = "Task quiz: 2 documents differ between logs, number 0 first (logs of m0, m1, and of m2)"
    assert words in notes
    assert "another version of the data" in notes
    shutil.rmtree(tmp_path / "m2")
    assert "differ between logs" not in " ".join(read_logs(tmp_path).report.notes)


def test_compressed_files_and_links_are_named(tmp_path):
    write(tmp_path / "out" / "one", "quiz", "one", "acc", [1, 0])
    tree = tmp_path / "tree"
    shutil.copytree(tmp_path / "out" / "one", tree / "packed")
    (file,) = (tree / "packed").glob("samples_*")
    (tree / "packed" / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    with pytest.raises(InputError) as error:
        read_logs(tree)
    assert ".jsonl.gz: the file is compressed, and is not read. Unpack it." in str(error.value)
    assert "the samples of its run are compressed" in str(error.value)
    assert "--log_samples" not in str(error.value)
    (tree / "old.tar.gz").write_bytes(b"")
    (tree / "linked").symlink_to(tmp_path / "out" / "one", target_is_directory=True)
    (tree / "lost.json").symlink_to(tmp_path / "nowhere.json")
    write(tree / "two", "quiz", "two", "acc", [1, 0])
    reasons = {
        skipped.file.rpartition("/")[2]: skipped.reason
        for skipped in read_logs(tree).report.skipped
    }
    assert "compressed" in reasons["old.tar.gz"]
    assert f"Import {tmp_path / 'out' / 'one'} by itself" in reasons["linked"]
    assert f"a link to {tmp_path / 'nowhere.json'}, which does not exist" in reasons["lost.json"]
    with pytest.raises(InputError, match="compressed"):
        read_logs(tree / "packed" / f"{file.name}.gz")

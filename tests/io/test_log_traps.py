"""Traps of real log trees: each is made of a real log, changed as the harness would have it."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat.io import read_logs
from irtcat.io.logs.lm_eval import document_hash

STAMP = "2026-11-21T00-00-43.298874"


@pytest.fixture(scope="module")
def real(logs):
    """Lines and results of one real run, by task."""
    folder = logs / "lm_eval" / "simorg__sim-0"
    lines = {
        task: [
            json.loads(line)
            for line in next(folder.glob(f"samples_{task}_*.jsonl")).read_text().splitlines()
        ]
        for task in ("tiny_mc", "tiny_gen")
    }
    return lines, json.loads(next(folder.glob("results_*.json")).read_text())


def write_run(folder, lines, results=None, task="tiny_mc", stamp=STAMP, end="\n"):
    """Write a run as lm-eval does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"samples_{task}_{stamp}.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + end)
    if results is not None:
        (folder / f"results_{stamp}.json").write_text(json.dumps(results))
    return path


def totals_of(results, lines, task="tiny_mc", **more):
    """Results that fit the lines."""
    document = json.loads(json.dumps(results))
    found = document["results"][task]
    for name in {line["filter"] for line in lines}:
        part = [line for line in lines if line["filter"] == name]
        for metric in part[0]["metrics"]:
            found[f"{metric},{name}"] = float(np.mean([line[metric] for line in part]))
    found["sample_len"] = len({line["doc_hash"] for line in lines})
    return {**document, **more}


def without(lines, *keys):
    return [{k: v for k, v in line.items() if k not in keys} for line in lines]


# --- lm-evaluation-harness -------------------------------------------------------------------


def test_unsorted_and_repeated_samples_are_found_by_their_hashes(real, tmp_path):
    """`--samples` [30, 5, 12] and [3, 3, 5] run rows in order, but log the numbers as given."""
    lines, results = real[0]["tiny_mc"], real[1]
    for name, indices in (("unsorted", [30, 5, 12]), ("repeated", [3, 3, 5])):
        rows = sorted(set(indices))
        wrong = [{**lines[row], "doc_id": said} for row, said in zip(rows, indices, strict=False)]
        write_run(tmp_path / name, wrong, totals_of(results, wrong, model_name=f"org/{name}"))
    write_run(tmp_path / "full", lines, totals_of(results, lines, model_name="org/full"))
    read = read_logs(tmp_path)
    table = read.responses.to_frame()
    for name, rows in (("unsorted", [5, 12, 30]), ("repeated", [3, 5])):
        got = table.loc[f"org/{name}"].dropna()
        assert got.index.tolist() == [f"tiny_mc/{lines[r]['doc_hash'][:16]}" for r in rows]
        assert got.tolist() == [lines[row]["acc"] for row in rows]
        assert any(name in note and "not in order" in note for note in read.report.notes)
    assert read.responses.items["sample"].tolist() == [str(i) for i in range(60)]
    alone = read_logs(tmp_path / "unsorted").responses
    assert alone.items["sample"].isna().all()  # the numbers cannot be relied on


def test_numbers_out_of_order_without_hashes_are_refused(real, tmp_path):
    lines = without(real[0]["tiny_mc"], "doc", "doc_hash")
    path = write_run(tmp_path / "m", [lines[30], lines[5]])
    with pytest.raises(InputError, match=rf"{path.name}.*not in order.*no hashes"):
        read_logs(tmp_path)


def test_logs_of_several_processes_are_in_order(real, tmp_path):
    """Two ranks write 0, 2, 4, … and then 1, 3, 5, …: these numbers are right."""
    lines, results = real[0]["tiny_mc"], real[1]
    ranks = lines[::2] + lines[1::2]
    write_run(tmp_path / "m", ranks, totals_of(results, ranks))
    read = read_logs(tmp_path)
    assert read.responses.items["sample"].tolist() == [str(i) for i in range(60)]
    assert not read.report.notes


def test_hashes_missing_in_old_logs_are_computed(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    assert all(document_hash(line["doc"]) == line["doc_hash"] for line in lines)
    old = without(lines, "doc_hash", "prompt_hash", "target_hash", "filter", "metrics")
    write_run(tmp_path / "old", old, {**results, "model_name": "org/old"})
    write_run(tmp_path / "new", lines, {**results, "model_name": "org/new"})
    read = read_logs(tmp_path)
    assert read.responses.shape == (2, 60)
    np.testing.assert_array_equal(read.responses.values[0], read.responses.values[1])
    taken = {str(choice) for choice in read.report.choices}
    assert taken == {"tiny_mc (lm-eval): metric acc (filter none) (not acc_norm (filter none))"}


def test_without_documents_the_numbers_lead_to_the_same_items(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    old = without(lines, "doc_hash", "doc")
    write_run(tmp_path / "old", old, {**results, "model_name": "org/old"})
    alone = read_logs(tmp_path)
    assert alone.responses.item_ids.tolist()[:2] == ["tiny_mc/doc0", "tiny_mc/doc1"]
    write_run(tmp_path / "new", lines, {**results, "model_name": "org/new"})
    read = read_logs(tmp_path)
    assert read.responses.shape == (2, 60)
    assert not read.responses.has_missing
    assert "60 documents without a hash were identified by their numbers." in read.report.notes


def test_filters_of_old_logs_are_named_by_the_results(real, tmp_path):
    """Before 0.4.7 a document came once per filter, and no filter was named."""
    lines, results = real[0]["tiny_gen"], real[1]
    old = without(lines, "filter", "metrics")
    path = write_run(tmp_path / "old", old, results, "tiny_gen")
    for name in ("strict", "flexible-extract"):
        read = read_logs(tmp_path, filter=name)
        expected = [line["exact_match"] for line in lines if line["filter"] == name]
        assert read.responses.to_numpy()[0].tolist() == expected
    (path.parent / f"results_{STAMP}.json").unlink()
    with pytest.raises(InputError, match=rf"{path.name}, line 61: document 0 occurs again"):
        read_logs(tmp_path)


def test_filters_that_are_exchanged_are_noticed(real, tmp_path):
    lines, results = real[0]["tiny_gen"], real[1]
    turned = without(lines[60:] + lines[:60], "filter", "metrics")
    write_run(tmp_path / "old", turned, results, "tiny_gen")
    with pytest.raises(InputError, match=r"expected a mean exact_match \(strict\)"):
        read_logs(tmp_path)


def test_models_without_a_name_are_kept_apart(real, tmp_path):
    """lm-eval seeds its random names: all models without a name have the same."""
    lines, results = real[0]["tiny_mc"], real[1]
    other = [{**line, "acc": 1.0 - line["acc"]} for line in lines]
    for stamp, rows in ((STAMP, lines), ("2026-11-22T00-00-00.5", other)):
        date = 1795219242.0 if rows is lines else 1795305642.0
        document = totals_of(results, rows, model_name="y0cq65zt", date=date)
        write_run(tmp_path / "y0cq65zt", rows, document, stamp=stamp)
    for how in ("latest", "mean", "separate"):
        read = read_logs(tmp_path, runs=how)
        assert read.responses.n_subjects == 2
        np.testing.assert_array_equal(read.responses.values[0], 1 - read.responses.values[1])
        assert any("made up the model name 'y0cq65zt'" in note for note in read.report.notes)


def test_models_without_a_name_on_different_tasks_are_kept_apart(real, tmp_path):
    for task, stamp in (("tiny_mc", STAMP), ("tiny_gen", "2026-11-22T00-00-00.5")):
        document = {**real[1], "model_name": "y0cq65zt", "date": len(task) * 1e8}
        write_run(tmp_path / "y0cq65zt", real[0][task], document, task, stamp)
    read = read_logs(tmp_path).responses
    assert read.n_subjects == 2
    assert read.n_missing == 120


def test_the_name_is_that_of_the_results_file(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    write_run(tmp_path / "a__b__c", lines, {**results, "model_name": "a/b__c"})
    assert read_logs(tmp_path).responses.subject_ids.tolist() == ["a/b__c"]
    (tmp_path / "a__b__c" / f"results_{STAMP}.json").unlink()
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["a__b__c"]
    assert "no results file" in read.report.notes[0]
    write_run(tmp_path / "a__b__c", lines, {**results, "model_name": False})
    with pytest.raises(InputError, match="expected model_name to be a name"):
        read_logs(tmp_path)


def test_results_without_samples_are_reported(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    write_run(tmp_path / "a", lines, results)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / f"results_{STAMP}.json").write_text(json.dumps(results))
    report = read_logs(tmp_path).report
    assert len(report.skipped) == 1
    assert "--log_samples" in report.skipped[0].reason


def test_a_results_file_of_another_name_is_found(real, tmp_path):
    """With --output_path x.json both files lie in one folder, under the name x."""
    lines, results = real[0]["tiny_mc"], real[1]
    write_run(tmp_path, lines)
    (tmp_path / f"x_{STAMP}.json").write_text(json.dumps(results))
    assert read_logs(tmp_path).responses.subject_ids.tolist() == ["simorg/sim-0"]


def test_one_model_run_twice(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    later = [
        {**line, "acc": 1.0 - line["acc"] if line["doc_id"] < 20 else line["acc"]}
        for line in lines[:40]
    ]
    write_run(tmp_path / "m", lines, results)
    document = totals_of(results, later, date=results["date"] + 86400)
    write_run(tmp_path / "m", later, document, stamp="2026-11-22T00-00-00.5")
    first = np.array([line["acc"] for line in lines])
    second = np.array([line["acc"] for line in later])
    latest = read_logs(tmp_path)
    np.testing.assert_array_equal(latest.responses.values[0], [*second, *first[40:]])
    assert any(c.what.startswith("runs") and c.taken == "latest" for c in latest.report.choices)
    assert latest.responses.subjects["runs"].tolist() == [2]
    mean = read_logs(tmp_path, runs="mean").responses
    assert mean.trials.tolist() == [[2] * 40 + [1] * 20]
    expected = [*(first[:40] + second) / 2, *first[40:]]
    np.testing.assert_array_equal(mean.to_numpy()[0], expected)
    apart = read_logs(tmp_path, runs="separate").responses
    assert apart.subject_ids.tolist() == [
        "simorg/sim-0@2026-11-21T00:00:42.299957",
        "simorg/sim-0@2026-11-22T00:00:42.299957",
    ]
    assert apart.is_binary
    assert apart.n_missing == 20


def test_runs_that_differ_in_settings_are_noted(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    write_run(tmp_path / "m", lines, results)
    config = {**results["config"], "gen_kwargs": "temperature=1"}
    other = {**results, "config": config, "date": results["date"] + 5}
    write_run(tmp_path / "m", lines, other, stamp="2026-11-22T00-00-00.5")
    notes = read_logs(tmp_path).report.notes
    assert "simorg/sim-0, task tiny_mc: runs differ in their settings." in notes


def test_copies_count_once(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    write_run(tmp_path / "a", lines, results)
    write_run(tmp_path / "backup" / "a", lines, results)
    read = read_logs(tmp_path, runs="mean")
    assert read.responses.is_binary
    assert "a copy of" in read.report.skipped[0].reason


def test_equal_documents_stay_two_items(real, tmp_path):
    lines, results = [dict(line) for line in real[0]["tiny_mc"]], real[1]
    for key in ("doc", "doc_hash"):
        lines[7][key] = lines[3][key]
    write_run(tmp_path / "m", lines, {**results, "results": {"tiny_mc": {"sample_len": 60}}})
    read = read_logs(tmp_path).responses
    assert read.n_items == 60
    assert read.item_ids[7] == f"{read.item_ids[3]}#2"
    assert read.values[0].tolist() == [line["acc"] for line in lines]


def test_lines_that_come_twice(real, tmp_path):
    """The harness appends; the same line again is harmless, another score is not."""
    lines = real[0]["tiny_mc"]
    path = write_run(tmp_path / "m", [*lines, lines[4]])
    assert read_logs(path).responses.n_items == 60
    write_run(tmp_path / "m", [*lines, {**lines[4], "acc": 1.0 - lines[4]["acc"]}])
    with pytest.raises(InputError, match="line 61: document 4 is in line 5 with other scores"):
        read_logs(path)


def test_cut_off_files(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    path = write_run(tmp_path / "m", lines, results)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=rf"{path.name}, line \d+: the file is cut off"):
        read_logs(path)
    kept = read_logs(path, incomplete="keep")
    n = kept.responses.n_items
    assert 20 < n < 40
    assert kept.responses.values[0].tolist() == [line["acc"] for line in lines[:n]]
    assert "cut off" in kept.report.runs["incomplete"][0]
    path.write_text("".join(whole.splitlines(keepends=True)[:40]))  # between two lines
    with pytest.raises(InputError, match=r"expected 60 documents.*Got 40"):
        read_logs(path)
    write_run(tmp_path / "n", lines, {**results, "model_name": "n"})
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["n"]
    assert [each.incomplete for each in read.report.skipped] == [True]
    with pytest.raises(InputError, match="Got 40"):
        read_logs(tmp_path, incomplete="refuse")


def test_scores_that_are_none(real, tmp_path):
    lines = [dict(line) for line in real[0]["tiny_mc"]]
    lines[2]["acc"], lines[3]["acc"], lines[4]["acc"] = None, float("nan"), "True"
    read = read_logs(write_run(tmp_path / "m", lines))
    assert read.responses.n_missing == 2
    assert read.responses.values[0, 4] == 1
    assert read.report.runs["unscored"].tolist() == [2]


def test_metrics_that_are_no_scores_are_passed_over_or_refused(real, tmp_path):
    lines, results = real[0]["tiny_mc"], real[1]
    more = [
        {
            **line,
            "metrics": ["word_perplexity", "bleu", "mcc"],
            "word_perplexity": [-3.2, 7],
            "bleu": 43.0,
            "mcc": 0.5,
        }
        for line in lines
    ]
    path = write_run(tmp_path / "m", more, results)
    assert str(read_logs(path).report.choices[0]).startswith("tiny_mc (lm-eval): metric mcc")
    assert read_logs(path).responses.is_fractional
    with pytest.raises(InputError, match=r"line 1: expected bleu to be a score from 0 to 1"):
        read_logs(path, metric="bleu")
    down = {**results, "higher_is_better": {"tiny_mc": {"mcc": False}}}
    write_run(tmp_path / "m", [{**line, "metrics": ["mcc"]} for line in more], down)
    with pytest.raises(InputError, match="lower is better"):
        read_logs(path)


# --- Inspect AI ------------------------------------------------------------------------------


def inspect_log(samples, scorer="match", total=None, **more):
    """A log in Inspect's JSON form."""
    results = {"total_samples": len(samples), "completed_samples": len(samples), "scores": []}
    if total is not None:
        metrics = {"accuracy": {"name": "accuracy", "value": total}}
        results["scores"].append({"name": scorer, "scorer": scorer, "metrics": metrics})
    about = {
        "task": "quiz",
        "model": "org/m",
        "created": "2026-11-21T00:00:00+00:00",
        "run_id": "r1",
        "packages": {"inspect_ai": "0.3.285"},
    }
    log = {"version": 2, "status": "success", "eval": about, "results": results}
    return {**log, "samples": samples, **more}


def sample(name, value, epoch=1, scorer="match", **more):
    scores = None if value is ... else {scorer: {"value": value}}
    return {
        "id": name,
        "epoch": epoch,
        "input": f"Q {name}",
        "target": "A",
        "scores": scores,
        **more,
    }


def repeated(lines, n=3, seed=0, reduce=lambda scores: scores[0]):
    """The lines as lm-eval 0.5 logs them with --repeats: reduced, with the score of each repeat."""
    rng = np.random.default_rng(seed)
    out = []
    for line in lines:
        scores = rng.integers(0, 2, n).astype(float).tolist()
        out.append({**line, "acc": reduce(scores), "scores_per_repeat": {"acc": scores}})
    return out


@pytest.mark.parametrize("reduce", [lambda scores: scores[0], np.mean])
def test_repeats_are_numbered_trials(real, tmp_path, reduce):
    lines = repeated(real[0]["tiny_mc"], reduce=reduce)
    write_run(tmp_path / "m", lines, totals_of(real[1], lines))
    read = read_logs(tmp_path, metric="acc")
    expected = np.array([line["scores_per_repeat"]["acc"] for line in lines])
    np.testing.assert_array_equal(read.responses.trial_values[0], expected)
    assert any("of the first repeat" in note for note in read.report.notes) == (reduce != np.mean)


def test_other_reductions_of_repeats_are_used_as_they_are(real, tmp_path):
    """Such as the vote of the majority or pass@k, which are no repeat of the item."""
    lines = repeated(real[0]["tiny_mc"], reduce=max)
    write_run(tmp_path / "m", lines, totals_of(real[1], lines))
    responses = read_logs(tmp_path, metric="acc").responses
    assert responses.trials is None
    assert responses.to_numpy()[0].tolist() == [line["acc"] for line in lines]


def test_repeats_that_are_no_numbers(real, tmp_path):
    lines = repeated(real[0]["tiny_mc"])
    lines[2]["scores_per_repeat"] = {"acc": ["yes", 1.0]}
    path = write_run(tmp_path / "m", lines, totals_of(real[1], lines))
    with pytest.raises(InputError, match=r"line 3: expected the repeats of acc to be numbers"):
        read_logs(path)


def test_runs_follow_each_other_as_trials(real, tmp_path):
    """Trials of the second run are numbered after those of the first, item by item."""
    lines, results = repeated(real[0]["tiny_mc"], 2), real[1]
    later = repeated(real[0]["tiny_mc"][:40], 2, seed=1)
    write_run(tmp_path / "m", lines, totals_of(results, lines))
    document = totals_of(results, later, date=results["date"] + 86400)
    write_run(tmp_path / "m", later, document, stamp="2026-11-22T00-00-00.5")
    cube = read_logs(tmp_path, metric="acc", runs="mean").responses.trial_values[0]
    first, second = (
        np.array([line["scores_per_repeat"]["acc"] for line in part]) for part in (lines, later)
    )
    np.testing.assert_array_equal(cube[:, :2], first)
    np.testing.assert_array_equal(cube[:40, 2:], second)
    assert np.isnan(cube[40:, 2:]).all()
    latest = read_logs(tmp_path, metric="acc").responses
    np.testing.assert_array_equal(latest.trial_values[0, :40, 2:], second)
    assert np.isnan(latest.trial_values[0, :40, :2]).all()
    assert latest.trials.tolist() == [[2] * 60]


def write_json(tmp_path, log, name="log.json"):
    path = tmp_path / name
    path.write_text(json.dumps(log))
    return path


def test_values_are_what_inspect_makes_of_them(tmp_path):
    values = ["C", "I", "P", "N", True, 0, 0.25, "1", "yes", "No", "0.5"]
    numbers = [1, 0, 0.5, 0, 1, 0, 0.25, 1, 1, 0, 0.5]
    samples = [sample(i, value) for i, value in enumerate(values)]
    read = read_logs(write_json(tmp_path, inspect_log(samples, total=float(np.mean(numbers)))))
    assert read.responses.to_numpy()[0].tolist() == numbers
    assert read.responses.item_ids[0] == "quiz/0"


def test_epochs_are_repeated_trials(tmp_path):
    values = {"a": "CIC", "b": "III", "c": "CCC"}
    samples = [sample(n, v, e + 1) for n, vs in values.items() for e, v in enumerate(vs)]
    samples[5] = {**samples[5], "scores": None, "error": {"message": "timeout"}}
    read = read_logs(write_json(tmp_path, inspect_log(samples)))
    assert read.responses.trials.tolist() == [[3, 2, 3]]
    np.testing.assert_allclose(read.responses.to_numpy()[0], [2 / 3, 0, 1], rtol=1e-7)
    assert read.report.runs["unscored"].tolist() == [1]
    expected = np.array([[1, 0, 1], [0, 0, np.nan], [1, 1, 1]])
    np.testing.assert_array_equal(read.responses.trial_values[0], expected)
    wrong = read_logs(tmp_path / "log.json", unscored="wrong").responses
    np.testing.assert_array_equal(wrong.trial_values[0], np.nan_to_num(expected))


def test_epochs_of_partial_credit_are_averaged(tmp_path):
    samples = [sample("a", "P", 1), sample("a", "C", 2), sample("b", "I", 1), sample("b", "C", 2)]
    read = read_logs(write_json(tmp_path, inspect_log(samples, total=0.625)))
    assert read.responses.trial_values[0].tolist() == [[0.5, 1.0], [0.0, 1.0]]
    assert not read.responses.is_counted
    assert read.responses.to_numpy()[0].tolist() == [0.75, 0.5]


def test_partial_credit_of_another_value_is_noted(tmp_path):
    samples = [sample("a", "P"), sample("b", "C")]
    read = read_logs(write_json(tmp_path, inspect_log(samples, total=0.5)))
    assert read.responses.to_numpy()[0].tolist() == [0.5, 1]
    assert any("partial credit to numbers in another way" in note for note in read.report.notes)


def test_partial_credit_that_adds_up_is_no_right_answer(tmp_path):
    samples = [sample("a", "P", 1), sample("a", "P", 2), sample("b", "C", 1), sample("b", "C", 2)]
    found = read_logs(write_json(tmp_path, inspect_log(samples, total=0.75))).responses
    assert not found.is_counted
    assert found.to_numpy()[0].tolist() == [0.5, 1]


def test_numbers_of_different_harnesses_are_not_the_same_items(real, tmp_path):
    """Inspect counts from 1, lm-eval from 0."""
    log = inspect_log([sample(1, "C"), sample(2, "I")])
    log["eval"] = {**log["eval"], "task": "tiny_mc"}
    write_json(tmp_path, log)
    write_run(tmp_path / "m", without(real[0]["tiny_mc"][:3], "doc", "doc_hash"))
    assert read_logs(tmp_path).responses.n_items == 5


def test_a_sample_that_was_tried_again_counts_once(tmp_path):
    samples = [sample("a", "I"), sample("b", "C"), sample("a", "C")]
    read = read_logs(write_json(tmp_path, inspect_log(samples)))
    assert read.responses.to_numpy()[0].tolist() == [1, 1]


def test_scorers_and_parts_of_scores(tmp_path):
    samples = [
        {
            **sample(i, "C"),
            "scores": {
                "match": {"value": "CI"[i]},
                "judge": {"value": {"style": 1 - i, "fact": 0.5}},
            },
        }
        for i in range(2)
    ]
    path = write_json(tmp_path, inspect_log(samples))
    read = read_logs(path)
    assert str(read.report.choices[0]) == (
        "quiz (inspect): metric match (not judge.style, judge.fact)"
    )
    assert read_logs(path, scorer="judge", metric="fact").responses.to_numpy()[0].tolist() == [
        0.5,
        0.5,
    ]
    assert read_logs(path, scorer="judge").report.choices[0].taken == "judge.style"
    with pytest.raises(InputError, match=r"`scorer` argument.*match, judge\.style"):
        read_logs(path, scorer="model_graded")


@pytest.mark.parametrize(
    ("status", "words"),
    [("error", "failed"), ("cancelled", "was cancelled"), ("started", "has not ended")],
)
def test_runs_that_did_not_succeed(status, words, tmp_path):
    log = inspect_log([sample("a", "C"), sample("b", ...)], status=status)
    log["error"] = {"message": "out of credit"}
    path = write_json(tmp_path, log)
    with pytest.raises(InputError, match=rf"log\.json: the run {words}"):
        read_logs(path)
    other = inspect_log([sample("a", "C"), sample("b", "C")])
    other["eval"] = {**other["eval"], "model": "org/n", "run_id": "r2"}
    write_json(tmp_path, other, "other.json")
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["org/n"]
    assert words in read.report.skipped[0].reason
    assert read.report.skipped[0].incomplete
    kept = read_logs(tmp_path, incomplete="keep")
    assert kept.responses.n_subjects == 2
    assert kept.responses.n_missing == 1
    assert words in kept.report.runs["incomplete"].dropna().iloc[0]


def test_logs_that_lack_samples_or_are_invalidated(tmp_path):
    log = inspect_log([sample("a", "C"), sample("b", "C")])
    log["results"]["completed_samples"] = 3
    with pytest.raises(InputError, match=r"expected 3 samples.*Got 2"):
        read_logs(write_json(tmp_path, log))
    with pytest.raises(InputError, match="invalidated"):
        read_logs(write_json(tmp_path, inspect_log([sample("a", "C")], invalidated=True)))
    with pytest.raises(InputError, match=r"expected a mean match of 0\.5"):
        read_logs(write_json(tmp_path, inspect_log([sample("a", "C")], total=0.5)))
    with pytest.raises(InputError, match="no sample has a score"):
        read_logs(write_json(tmp_path, inspect_log([sample("a", ...)])))


def test_the_journal_of_a_run_that_has_not_ended(tmp_path):
    """Such an archive has no header, only what was written so far; here unpacked by any Python."""
    log = inspect_log([])
    path = tmp_path / "now.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": log["eval"]}))
        for number, names in ((1, "ab"), (2, "c")):
            part = [sample(name, "C") for name in names]
            archive.writestr(f"_journal/summaries/{number}.json", json.dumps(part))
    with pytest.raises(InputError, match=r"now\.eval: the run has not ended"):
        read_logs(path)
    assert read_logs(path, incomplete="keep").responses.n_items == 3


def test_the_same_log_in_both_forms_counts_once(tmp_path):
    log = inspect_log([sample("a", "C"), sample("b", "I")])
    write_json(tmp_path, log)
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        header = {key: value for key, value in log.items() if key != "samples"}
        archive.writestr("header.json", json.dumps(header))
        archive.writestr("summaries.json", json.dumps(log["samples"]))
    read = read_logs(tmp_path, runs="mean")
    assert read.responses.is_binary
    assert len(read.report.skipped) == 1


def test_another_text_under_the_same_id_is_noted(tmp_path):
    for model in "mn":
        log = inspect_log([{**sample(1, "C"), "input": f"{model}?"}])
        log["eval"] = {**log["eval"], "model": model, "run_id": model}
        write_json(tmp_path, log, f"{model}.json")
    notes = read_logs(tmp_path).report.notes
    assert any("1 items, quiz/1 first, have a different text" in note for note in notes)


# --- Every Eval Ever -------------------------------------------------------------------------


def test_every_eval_ever_cut_between_lines(logs, tmp_path):
    source = next((logs / "every_eval_ever").rglob("*_samples.jsonl"))
    beside = source.name.replace("_samples.jsonl", ".json")
    shutil.copy(source.with_name(beside), tmp_path / beside)
    lines = source.read_text().splitlines(keepends=True)
    (tmp_path / source.name).write_text("".join(lines[:100]))
    with pytest.raises(InputError, match=r"expected 120 rows.*Got 100"):
        read_logs(tmp_path)
    assert read_logs(tmp_path, incomplete="keep").responses.n_subjects == 1
    (tmp_path / beside).unlink()
    assert read_logs(tmp_path).responses.subjects["version"].isna().all()


def test_hashes_that_begin_alike_are_of_different_items(real, tmp_path):
    """The id shows the first 16 characters of a hash, and all of it where these do not do."""
    lines = [dict(line) for line in real[0]["tiny_mc"][:6]]
    for number, line in enumerate(lines):
        line["doc_hash"] = "ab" * 8 + f"{number % 4:048x}" if number < 5 else line["doc_hash"]
        line["acc"] = float(number < 4)
    lines[4]["doc_id"] = 99  # equal documents are numbered, as ever
    lines = [line for line in lines if line["filter"] == lines[0]["filter"]]
    write_run(tmp_path, lines)
    read = read_logs(tmp_path)
    assert read.responses.n_items == len(lines)
    assert f"tiny_mc/{'ab' * 8}{0:048x}" in read.responses.item_ids
    assert f"tiny_mc/{'ab' * 8}{0:048x}#2" in read.responses.item_ids
    assert any("hashes with the same first characters" in note for note in read.report.notes)
    frame = read.responses.to_frame().iloc[0]
    assert frame[f"tiny_mc/{'ab' * 8}{3:048x}"] == 1
    assert frame[f"tiny_mc/{'ab' * 8}{0:048x}#2"] == 0


@pytest.mark.parametrize("results", ["no name", "no file"])
def test_runs_whose_logs_name_no_model_are_kept_apart(real, tmp_path, results):
    lines = real[0]["tiny_mc"]
    for day in range(1, 5):
        rows = [{**line, "acc": float(line["doc_id"] % day == 0)} for line in lines]
        stamp, document = f"2026-11-{20 + day}T00-00-00.5", None
        if results == "no name":
            document = totals_of(real[1], rows, model_name="", config={}, date=None)
        write_run(tmp_path / "out", rows, document, stamp=stamp)
    read = read_logs(tmp_path)
    assert read.responses.n_subjects == 4
    assert any("4 runs" in note and "separate subjects" in note for note in read.report.notes)


def test_inspect_runs_without_a_model_are_kept_apart(tmp_path):
    for number in range(3):
        log = inspect_log([sample("a", number % 2), sample("b", 1)])
        log["eval"] |= {"model": "none/none", "run_id": f"run{number}"}
        write_json(tmp_path, log, f"{number}.json")
    assert read_logs(tmp_path).responses.n_subjects == 3


def test_the_filter_asked_for_is_taken_beside_rows_without_one(logs, tmp_path):
    source = next((logs / "every_eval_ever").rglob("*_samples.jsonl"))
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    rows = [row for row in rows if row["evaluation_result_id"] == "acc"]
    whole = len(rows)
    rows[0]["metadata"] = None
    path = tmp_path / "e_samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_logs(path, "every-eval-ever", metric="acc", filter="none")
    assert read.responses.n_items == whole - 1


def test_a_score_without_a_value_is_refused(tmp_path):
    one = sample("q1", 1.0)
    one["scores"]["match"].pop("value")
    path = write_json(tmp_path, inspect_log([one, sample("q2", 1.0)]))
    with pytest.raises(InputError, match="the score match has no value"):
        read_logs(path, "inspect")


def test_a_helm_statistic_without_a_mean_is_refused(logs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(next((logs / "helm").iterdir()), folder)
    path = folder / "per_instance_stats.json"
    instances = json.loads(path.read_text())
    first = next(s for s in instances[0]["stats"] if s["name"]["name"] == "exact_match")
    del first["mean"]
    path.write_text(json.dumps(instances))
    with pytest.raises(InputError, match="instance 1: the statistic 'exact_match' has no mean"):
        read_logs(folder, "helm", metric="exact_match")

"""Real logs give the matrix that the harness's own totals imply, whatever the format."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat._common.checks import InputError
from irtcat.io import read_logs, read_responses
from irtcat.io.logs.inspect_log import ZSTD


def has_zstd():
    """Whether .eval logs can be read here."""
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        return True
    try:
        import backports.zstd
    except ImportError:
        return False
    return bool(backports.zstd)


needs_zstd = pytest.mark.skipif(not has_zstd(), reason="needs the extra irtcat[inspect]")


def lm_eval_totals(folder):
    """Totals of the results files: (model, task, filter, metric) -> value."""
    totals = {}
    for file in sorted(folder.rglob("results_*.json")):
        document = json.loads(file.read_text())
        for task, values in document["results"].items():
            for key, value in values.items():
                if "," in key and "stderr" not in key:
                    metric, name = key.split(",")
                    totals[document["model_name"], task, name, metric] = value
    return totals


def lm_eval_choices(totals):
    """The distinct (task, filter, metric)."""
    return sorted({key[1:] for key in totals})


def row_means(logs):
    """Mean response of each model, by id."""
    found = logs.responses
    return dict(zip(found.subject_ids, np.nanmean(found.to_numpy(), axis=1), strict=True))


@pytest.mark.slow
def test_lm_eval_gives_its_totals(logs):
    folder = logs / "lm_eval"
    totals = lm_eval_totals(folder)
    assert len(totals) == 6 * 4
    for task, name, metric in lm_eval_choices(totals):
        read = read_logs(folder, tasks=task, filter=name, metric=metric)
        assert read.responses.shape == (6, 60)
        assert read.responses.is_binary
        assert not read.responses.has_missing
        for model, mean in row_means(read).items():
            assert mean == totals[model, task, name, metric]


def test_lm_eval_line_by_line(logs):
    """Every cell is what its line says, read without our code."""
    read = read_logs(logs / "lm_eval", metric={"tiny_mc": "acc_norm"}, filter="flexible-extract")
    table = read.responses.to_frame()
    hashes = read.responses.items["hash"]
    seen = 0
    for file in (logs / "lm_eval").rglob("samples_*.jsonl"):
        task = "tiny_mc" if "tiny_mc" in file.name else "tiny_gen"
        model = file.parent.name.replace("__", "/")
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if record["filter"] == "strict":
                continue
            value = record["acc_norm" if task == "tiny_mc" else "exact_match"]
            item = f"{task}/{record['doc_hash'][:16]}"
            assert table.loc[model, item] == value
            assert hashes[item] == record["doc_hash"]
            seen += 1
    assert seen == table.size


def test_metadata_of_subjects_and_items(logs):
    read = read_logs(logs / "lm_eval").responses
    assert read.subject_ids.tolist() == [f"simorg/sim-{i}" for i in range(6)]
    first = read.subjects.iloc[0]
    assert (first["harness"], first["version"], first["runs"]) == ("lm-eval", "0.4.13", 1)
    assert first["date"].startswith("2026-11-21T00:00:42")
    settings = json.loads(first["settings"])
    assert settings["tiny_mc"]["num_fewshot"] == 0
    assert settings["tiny_mc"]["task_version"] == 1.0
    item = read.items.loc["tiny_mc/f5f7a8adf441c2b7"]
    assert (item["task"], item["sample"], item["target"]) == ("tiny_mc", "0", "0")
    assert item["text"] == "What is 29 * 60?"
    samples = read.items.loc[read.items["task"] == "tiny_gen", "sample"]
    assert samples.tolist() == [str(i) for i in range(60)]


def test_what_was_taken_is_said(logs):
    report = read_logs(logs / "lm_eval").report
    assert [str(choice) for choice in report.choices] == [
        "tiny_gen (lm-eval): metric exact_match (filter strict) "
        "(not exact_match (filter flexible-extract))",
        "tiny_mc (lm-eval): metric acc (filter none) (not acc_norm (filter none))",
    ]
    assert not report.skipped
    assert len(report.runs) == 12
    assert json.dumps(report.to_dict())
    assert len(report.to_frame()) == 12


@needs_zstd
def test_inspect_gives_its_totals(logs):
    for file in sorted((logs / "inspect").iterdir()):
        header = header_of(file)
        for score in header["results"].get("scores", []):
            read = read_logs(file, scorer=score["name"])
            total = score["metrics"]["accuracy"]["value"]
            assert row_means(read) == {header["eval"]["model"]: total}
            assert read.responses.n_items == header["results"]["completed_samples"]


def header_of(file):
    """The header of an .eval log."""
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        opener = zipfile
    else:
        from backports.zstd import zipfile as opener
    with opener.ZipFile(file) as archive:
        return json.loads(archive.read("header.json"))


@needs_zstd
def test_inspect_runs_of_one_model_are_put_together(logs):
    """A subset and an adaptive run hold only the samples administered."""
    read = read_logs(logs / "inspect", tasks="tiny_mc")
    assert read.responses.n_items == 60
    assert sorted(read.report.runs["responses"]) == [3, 12, 60]
    assert read.responses.items.loc["tiny_mc/q005", "target"] == "A"
    assert read.responses.items.loc["tiny_mc/q005", "sample"] == "q005"


@pytest.mark.slow
def test_every_eval_ever_is_the_log_it_was_made_of(logs):
    """Same subjects, items and answers as from lm-eval's own files."""
    for wish in ({}, {"metric": {"tiny_mc": "acc_norm"}, "filter": "flexible-extract"}):
        converted = read_logs(logs / "every_eval_ever", **wish).responses
        own = read_logs(logs / "lm_eval", **wish).responses
        own = own.subset(subjects=converted.subject_ids, items=converted.item_ids)
        assert converted.shape == (2, 120)
        np.testing.assert_array_equal(converted.values, own.values)
        assert converted.items["hash"].tolist() == own.items["hash"].tolist()


def test_every_eval_ever_gives_its_totals(logs):
    for file in sorted((logs / "every_eval_ever").rglob("*.jsonl")):
        whole = json.loads(file.with_name(file.name.replace("_samples.jsonl", ".json")).read_text())
        for result in whole["evaluation_results"]:
            metric, _, name = result["evaluation_result_id"].partition(":")
            read = read_logs(file, metric=metric, filter=name or None)
            assert list(row_means(read).values()) == [result["score_details"]["score"]]


@pytest.mark.slow
def test_helm_gives_its_totals(logs):
    nonzero = 0
    for folder in sorted((logs / "helm").iterdir()):
        stats = json.loads((folder / "stats.json").read_text())
        for stat in stats:
            name = stat["name"]
            if "perturbation" in name or not name["name"].endswith("exact_match"):
                continue
            read = read_logs(folder, metric=name["name"], filter=name["split"])
            assert list(row_means(read).values()) == [stat["mean"]]
            nonzero += stat["mean"] > 0
    assert nonzero > 5
    read = read_logs(logs / "helm")
    assert read.responses.subject_ids.tolist() == [f"simorg/sim-{i}" for i in range(3)]
    assert read.responses.items["task"].unique().tolist() == [
        "synthetic_reasoning:mode=pattern_match"
    ]
    assert read.responses.items["text"].str.contains("Rules").all()
    assert read.responses.items["target"].notna().all()


def test_helm_leaves_out_perturbed_instances(logs, tmp_path):
    folder = next((logs / "helm").iterdir())
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "per_instance_stats.json"
    instances = json.loads(path.read_text())
    more = [{**each, "perturbation": {"name": "typos"}} for each in instances]
    path.write_text(json.dumps(instances + more))
    same = read_logs(tmp_path).responses
    np.testing.assert_array_equal(same.values, read_logs(folder).responses.values)


@pytest.mark.slow
@needs_zstd
def test_all_formats_in_one_tree(logs, tmp_path):
    read = read_logs(logs)
    assert read.responses.n_subjects == 6 + 3  # the six of lm-eval, and Inspect's mock models
    assert set(read.report.runs["format"]) == {"lm-eval", "inspect", "every-eval-ever", "helm"}
    only = read_logs(logs, "every-eval-ever")
    assert set(only.report.runs["format"]) == {"every-eval-ever"}
    read.responses.save(tmp_path / "all.npz")
    again = read_responses(tmp_path / "all.npz")
    np.testing.assert_array_equal(again.values, read.responses.values)
    pd.testing.assert_frame_equal(again.items, read.responses.items, check_dtype=False)


@needs_zstd
def test_every_shared_log(shared):
    """All real logs at hand, against the totals in them (compared while reading)."""
    read = read_logs(shared / "formats")
    assert len(read.report.runs) == 39
    assert not read.report.skipped
    totals = lm_eval_totals(shared / "formats" / "lm_eval")
    for task, name, metric in lm_eval_choices(totals):
        one = read_logs(shared / "formats" / "lm_eval", tasks=task, filter=name, metric=metric)
        for model, mean in row_means(one).items():
            assert mean == totals[model, task, name, metric]
    for file in (shared / "formats" / "inspect").rglob("*.eval"):
        for score in header_of(file)["results"].get("scores", []):
            means = row_means(read_logs(file, scorer=score["name"]))
            assert list(means.values()) == [score["metrics"]["accuracy"]["value"]]


def test_read_responses_takes_logs_and_says_what_it_took(logs):
    with pytest.warns(UserWarning, match="one was selected: tiny_gen .* 1 more"):
        found = read_responses(logs / "lm_eval")
    assert found.shape == (6, 120)
    file = next((logs / "lm_eval").rglob("samples_tiny_mc*.jsonl"))
    with pytest.warns(UserWarning, match="acc_norm"):
        assert irtcat.read_responses(str(file)).shape == (1, 60)


@pytest.mark.slow
def test_wrong_wishes_are_sentences(logs):
    folder = logs / "lm_eval"
    for wish, text in (
        ({"metric": "f1"}, r"`metric` argument must be in the logs of task tiny_gen.*exact_match"),
        ({"filter": "loose"}, r"`filter` argument.*flexible-extract"),
        ({"tasks": "mmlu"}, r"no log is of the tasks mmlu\. Got tiny"),
        ({"runs": "first"}, "`runs` argument must be one of latest, mean, separate"),
        ({"incomplete": "x"}, "`incomplete` argument"),
        ({"tasks": []}, "`tasks` argument must be names of tasks"),
        ({"metric": {"tiny": "acc"}}, r"`metric` argument must be a mapping of tasks in the logs"),
        ({"metric": [3]}, "`metric` argument must be a name"),
        ({"format": "pyirt"}, "`format` argument"),
    ):
        with pytest.raises(InputError, match=text):
            read_logs(folder, **wish)
    with pytest.raises(InputError, match="nowhere: there is no such file or folder"):
        read_logs("nowhere")
    assert read_logs(folder, metric=["f1", "acc", "exact_match"]).responses.n_items == 120


def test_a_results_file_alone_is_a_sentence(logs):
    file = next((logs / "lm_eval").rglob("results_*.json"))
    for read in (read_logs, read_responses):
        with pytest.raises(InputError, match=r"holds totals only\. Give the folder"):
            read(file)


def test_progress_and_order(logs):
    told = []
    read_logs(logs / "lm_eval", progress=lambda *args: told.append(args))
    assert [each[0] for each in told] == list(range(13))
    assert {each[1] for each in told} == {12}


def test_pickles_are_refused_with_advice(tmp_path, logs):
    (tmp_path / "tinyBenchmarks.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match=r"pickles run code.*never read.*tinyBenchmarks"):
        read_logs(tmp_path)
    with pytest.raises(InputError, match="pickles run code"):
        read_responses(tmp_path / "tinyBenchmarks.pkl")
    file = next((logs / "lm_eval").rglob("samples_tiny_mc*.jsonl"))
    (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("no log")
    (tmp_path / "matrix.jsonl").write_text('{"subject_id": "a", "responses": {"q": 1}}')
    report = read_logs(tmp_path).report
    assert [Path(each.file).name for each in report.skipped] == [
        "matrix.jsonl",
        "tinyBenchmarks.pkl",
    ]
    assert report.others == 1


@needs_zstd
def test_every_file_of_a_mixed_tree_is_told(logs, tmp_path, monkeypatch):
    """Logs of four formats, those of runs cut off, and files that are not logs at all."""
    tree = tmp_path / "tree"
    shutil.copytree(logs, tree)
    known = {str(path) for path in tree.rglob("*") if path.is_file()}
    (spec,) = (tree / "helm").glob("*sim-0/run_spec.json")
    (evaluation,) = (tree / "every_eval_ever" / "tiny_mc" / "simorg" / "sim-1").glob("*.json")
    for name in ("cut_helm", "cut_eee", "closed"):
        (tree / name).mkdir()
    for name in ("run_spec.json", "scenario_state.json"):
        shutil.copy(spec.with_name(name), tree / "cut_helm" / name)
    shutil.copy(evaluation, tree / "cut_eee")
    (tree / "linked").symlink_to(logs / "helm", target_is_directory=True)
    plain = {
        "README.md": "hello",
        ".gitignore": "*",
        ".DS_Store": "1",
        "a.png": "PNG",
        "odd.json": "{}",
        "words.jsonl": "none",
        "half.json": '{"a":',
        "stats.json": "[]",
    }
    broken = {
        "empty.json": "",
        "empty.eval": "",
        "samples_quiz_2026-11-21T00-00-43.jsonl": "",
        "results_2026-11-21T00-00-44.json": "{}",
    }
    for name, text in (plain | broken).items():
        (tree / name).write_text(text)
    os.mkfifo(tree / "pipe.json")
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = read_logs(tree).report
    assert {Path(each).name for each in report.no_logs} == {*plain, "pipe.json"}
    gone = {Path(each.file).name: each.reason for each in report.skipped}
    assert gone.keys() == {*broken, evaluation.name, "run_spec.json", "linked", "closed"}
    for name, reason in (
        ("empty.json", "is empty"),
        ("linked", "not followed"),
        ("closed", "Permission denied"),
        (evaluation.name, "totals only"),
        ("run_spec.json", "has not ended"),
        ("empty.eval", "damaged"),
    ):
        assert reason in gone[name]
    used = set(report.runs["file"])
    assert used <= known
    assert all(path.endswith(".json") for path in known - used)  # they belong to logs
    table = report.to_frame()
    assert len(table) == len(report.runs) + len(gone) + len(report.no_logs)
    assert table["responses"].dtype == "Int64"
    text = "not logs: .DS_Store, .gitignore, README.md, a.png, half.json and 4 more"
    assert text in str(report)
    assert report.to_dict()["others"] == len(report.to_dict()["no_logs"]) == 9
    helm = read_logs(tree, "helm").report
    assert "of other formats than helm were ignored: 13 of lm-eval" in helm.notes[0]
    with pytest.raises(InputError, match="has not ended, or failed"):
        read_logs(tree, incomplete="refuse")
    with pytest.raises(InputError, match=r"Got none\. Logs of other formats.*12 of lm-eval"):
        read_logs(logs / "lm_eval", "helm")
    with pytest.raises(InputError, match=r"of the tasks nope\. Got .*Skipped:"):
        read_logs(tree, tasks="nope")


def test_a_missing_extra_is_a_sentence(logs, monkeypatch):
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        pytest.skip("Python reads Zstandard itself")
    for name in list(sys.modules):
        if name.startswith("backports.zstd"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(InputError, match=r"pip install 'irtcat\[inspect\]'"):
        read_logs(logs / "inspect")
    assert ZSTD == 93

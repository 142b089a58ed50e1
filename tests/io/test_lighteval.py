"""Real logs of lighteval give its own totals; damaged, partial and mixed ones are told of."""

import contextlib
import json
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from irtcat._common.checks import InputError
from irtcat.cli._app import app
from irtcat.io import read_logs, read_responses

pa = pytest.importorskip("pyarrow", reason="needs the extra irtcat[parquet]")
GEN, MC, BOTH = "tiny_gen|0", "tiny_mc:sum|0", "tiny_both|0"
AVG = "avg@n:n=4"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Folder of real logs (logs.md)."""
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(Path(__file__).with_name("lighteval.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def real(unpacked):
    """The logs of lighteval 0.13."""
    return unpacked / "lighteval"


@pytest.fixture
def copy(real, tmp_path):
    """The logs, to be changed."""
    return shutil.copytree(real, tmp_path / "logs")


def results_of(folder):
    """The results files."""
    return sorted(folder.rglob("results_*.json"))


def details_of(folder, task=GEN, model="sim-0"):
    """The details of a task by a model of simorg, the earliest."""
    found = (folder / "details" / "simorg" / model).rglob(f"details_{task}_*.parquet")
    return min(found)


def document(file):
    return json.loads(file.read_text())


def rewrite(file, change):
    """Write a details file anew with its rows changed."""
    from pyarrow import parquet

    rows = parquet.read_table(file).to_pylist()
    parquet.write_table(pa.Table.from_pylist(change(rows)), file)


def totals(folder):
    """(stamp, task, metric) -> lighteval's total, of each metric that is a mean."""
    found = {}
    for file in results_of(folder):
        whole = document(file)
        for task, config in whole["config_tasks"].items():
            for metric in config["metrics"]:
                names = metric["metric_name"]
                for name in names if isinstance(names, list) else [names]:
                    if metric["corpus_level_fn"] == "mean":
                        stamp = file.stem.removeprefix("results_")
                        found[stamp, task, name] = whole["results"][task][name]
    return found


@pytest.mark.slow
def test_means_are_lightevals_totals(real):
    """Every metric that is a mean, of every run, to the last digit."""
    expected = totals(real)
    got = {}
    for task, metric in sorted({key[1:] for key in expected}):
        runs = read_logs(real, tasks=task, metric=metric, runs="separate").report.runs
        for file, mean in zip(runs["file"], runs["mean"], strict=True):
            got[Path(file).parent.name, task, metric] = mean
    without = results_of(real / "results" / "simorg" / "sim-2")[-1].stem.removeprefix("results_")
    assert got == {key: value for key, value in expected.items() if key[0] != without}
    assert len(got) == 3 * (2 + 2 + 2 + 11) + 2 + 11 + 2


@pytest.mark.slow
def test_lighteval_0_11(unpacked):
    """The oldest version with these columns; its tasks are named with their suite."""
    folder = unpacked / "lighteval_0_11"
    expected = totals(folder)
    assert len(expected) == 2 + 2 + 9
    for (_, task, metric), total in expected.items():
        report = read_logs(folder, tasks=task, metric=metric).report
        assert report.runs["mean"].tolist() == [total]
        assert not report.notes
    assert read_logs(folder).responses.items["task"].unique().tolist() == [
        "custom|tiny_both|0",
        "custom|tiny_gen|0",
        "custom|tiny_mc:sum|0",
    ]


def test_row_by_row(real):
    """Every cell is what its row says, read without our code."""
    from pyarrow import parquet

    table = read_logs(real, tasks=[GEN, MC], metric=["f1", "acc"], runs="separate").responses
    table = table.to_frame()
    seen = 0
    for task, metric in ((GEN, "f1"), (MC, "acc")):
        for model in ("sim-0", "sim-2"):
            for row in parquet.read_table(details_of(real, task, model)).to_pylist():
                cell = table.loc[f"simorg/{model}", f"{task}/{row['doc']['id']}"]
                assert cell == np.float32(row["metric"][metric])
                seen += 1
    assert seen == 4 * 12


def test_metadata_of_subjects_and_items(real):
    read = read_logs(real).responses
    assert read.subject_ids.tolist() == ["simorg/sim-0", "simorg/sim-1", "simorg/sim-2", "sim-0"]
    first = read.subjects.iloc[0]
    assert (first["harness"], first["runs"]) == ("lighteval", 1)
    assert first["date"] == "2026-11-22T09:17:04.056740"
    settings = json.loads(read.subjects.loc["simorg/sim-2", "settings"])
    assert settings["tiny_gen|2"]["num_fewshots"] == 2
    assert settings[GEN] == {
        "generation_parameters": '{"temperature": 0}',
        "hf_repo": "data/sum",
        "num_fewshots": 0,
        "task_version": 1,
    }
    items = read.items[read.items["task"] == MC]
    assert items["sample"].tolist() == [str(i) for i in range(12)]
    assert items.loc[f"{MC}/9", ["text", "target"]].tolist() == [
        "What is 24 + 85?\nAnswer:",
        " 109",
    ]


def test_what_was_taken_is_said(real):
    report = read_logs(real, tasks=[GEN, MC]).report
    assert f"{MC} (lighteval): metric acc (not mrr, loglikelihood_f1, ppl)" in str(report)
    assert "metric em (not f1, pass@k:k=1&n=4" in str(report)
    assert f"simorg/sim-1, task {MC}: runs differ in their settings." in report.notes
    assert len(report.runs) == 3 + 4 + 1
    assert json.dumps(report.to_dict())


@pytest.mark.slow
def test_a_task_of_two_ways_and_two_splits(real):
    """Two rows per document, and numbers that count from 0 in each split."""
    for metric in ("acc", "em"):
        read = read_logs(real, tasks=BOTH, metric=metric).responses
        assert read.shape == (3, 5 + 12)
        assert not read.has_missing
        assert read.items["text"].nunique() == 17
        assert read.items["sample"].isna().all()
    assert set(read.item_ids) == set(read_logs(real, tasks=BOTH, metric="acc").responses.item_ids)


def test_splits_are_told_apart_without_results_too(copy):
    expected = read_logs(copy, tasks=BOTH).responses
    for file in results_of(copy):
        file.unlink()
    np.testing.assert_array_equal(read_logs(copy, tasks=BOTH).responses.values, expected.values)


def test_several_answers_are_trials(real):
    """The share avg@n becomes n trials; pass@k of k = 1 is the same share; of k = 2 it is not."""
    from pyarrow import parquet

    one = read_logs(real, tasks=GEN, metric=AVG).responses
    two = read_logs(real, tasks=GEN, metric="pass@k:k=1&n=4").responses
    np.testing.assert_array_equal(one.to_numpy(), two.to_numpy())
    assert (one.trials == 4).all()
    assert one.trial_values is None  # the log has the share alone
    for row in parquet.read_table(details_of(real)).to_pylist():
        right = sum(text == row["doc"]["choices"][0] for text in row["model_response"]["text"])
        assert one.to_frame().loc["simorg/sim-0", f"{GEN}/{row['doc']['id']}"] == right / 4
    assert read_logs(real, tasks=GEN, metric="pass@k:k=2&n=4").responses.trials is None


@pytest.mark.slow
def test_the_same_model_twice(real):
    """The later run has five documents (--max-samples 5)."""
    latest = read_logs(real, tasks=MC)
    row = latest.responses.subject_ids.tolist().index("simorg/sim-1")
    mean = read_logs(real, tasks=MC, runs="mean").responses
    assert mean.trials[row].tolist().count(2) == 5
    apart = read_logs(real, tasks=MC, runs="separate").responses
    assert [n for n in apart.subject_ids if "sim-1@" in n] == [
        "simorg/sim-1@2026-11-22T09:17:13.914719",
        "simorg/sim-1@2026-11-22T09:17:27.935445",
    ]
    assert np.isnan(apart.to_numpy()).sum() == 7
    assert latest.responses.subjects.loc["simorg/sim-1", "runs"] == 2


@pytest.mark.slow
def test_a_copied_tree_counts_once(real, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(real, tmp_path / name)
    read = read_logs(tmp_path)
    assert sum("a copy of" in each.reason for each in read.report.skipped) == 15
    np.testing.assert_array_equal(read.responses.values, read_logs(real).responses.values)


@pytest.mark.slow
def test_wishes(real):
    for wish, text in (
        ({"metric": "f2"}, r"`metric` argument must be in the logs of task tiny_both\|0.*acc, em"),
        ({"tasks": GEN, "metric": "acc"}, r"which have em, f1, .*pass@k"),
        ({"tasks": "tiny_gen"}, r"no log is of the tasks tiny_gen\. Got .*tiny_gen\|0"),
        ({"tasks": MC, "metric": "ppl"}, r"lower is better for all"),
        ({"tasks": MC, "metric": "loglikelihood_f1"}, r"row 1: expected loglikelihood_f1 to be a "),
    ):
        with pytest.raises(InputError, match=text):
            read_logs(real, **wish)


def test_details_without_results(copy):
    expected = read_logs(copy / "details").report
    assert len(expected.runs) == 14
    for file in results_of(copy):
        file.unlink()
    found = read_logs(copy / "details")
    assert set(found.responses.subject_ids) == {f"simorg/sim-{i}" for i in range(3)}
    assert "14 details files have no results file" in found.report.notes[0]
    assert found.report.runs["mean"].tolist() == expected.runs["mean"].tolist()
    file = details_of(copy)
    assert read_logs(file).responses.subject_ids.tolist() == ["simorg/sim-0"]
    renamed = file.rename(copy / "some.parquet")
    assert read_logs(renamed, "lighteval").responses.items["task"].unique() == [GEN]


@pytest.mark.slow
def test_results_without_details(real, copy):
    report = read_logs(real).report
    assert len(report.skipped) == 1
    assert "no details of its run. Run lighteval with --save-details" in report.skipped[0].reason
    for read in (read_logs, read_responses):
        with pytest.raises(InputError, match=r"lighteval holds totals only\. Give the folder"):
            read(results_of(real)[0])
    details_of(copy, MC).unlink()
    notes = read_logs(copy).report.notes
    assert any(note.endswith(f"there are no details of {MC}, only totals.") for note in notes)
    assert not any("only totals" in note for note in read_logs(copy, tasks=GEN).report.notes)
    shutil.rmtree(copy / "details")
    shutil.rmtree(copy / "elsewhere")
    with pytest.raises(InputError, match="there are no details of its run"):
        read_logs(copy)


def test_one_file_finds_its_results(real):
    report = read_logs(details_of(real)).report
    assert not report.notes
    assert "data/sum" in read_logs(details_of(real)).responses.subjects["settings"].iloc[0]


def test_the_layout_of_the_hub(copy, tmp_path):
    """A folder per run, and the results in the folder above."""
    file = details_of(copy)
    stamp = file.parent.name
    hub = tmp_path / "details_simorg__sim-0_private"
    hub.mkdir()
    shutil.copytree(file.parent, hub / stamp)
    (copy / "results" / "simorg" / "sim-0" / f"results_{stamp}.json").rename(
        hub / f"results_{stamp}.json"
    )
    read = read_logs(hub)
    assert read.responses.subject_ids.tolist() == ["simorg/sim-0"]
    assert not read.report.notes
    assert not read.report.skipped


def test_cut_and_damaged_files(copy):
    file = details_of(copy)
    data = file.read_bytes()
    for size, text in ((-10, "the file is truncated"), (6, "expected a Parquet file")):
        file.write_bytes(data[:size])
        with pytest.raises(InputError, match=text):
            read_logs(file)
        report = read_logs(copy, tasks=GEN).report
        assert [Path(each.file) for each in report.skipped][1:] == [file]
        assert report.skipped[1].incomplete is (size < 0)
        assert not any("only totals" in note for note in report.notes)
        with pytest.raises(InputError, match=text):
            read_logs(copy, incomplete="refuse")
    rng = np.random.default_rng(0)
    for _ in range(40):
        changed = bytearray(data)
        for place in rng.integers(4, len(data) - 4, 20):
            changed[place] = rng.integers(256)
        file.write_bytes(changed)
        with contextlib.suppress(InputError):  # some changes touch nothing that is read
            read_logs(file)


def set_metric(rows, value):
    """The first row's score changed."""
    rows[0]["metric"]["em"] = value
    return rows


def set_doc(rows, row=0, **parts):
    """A row's document changed."""
    rows[row]["doc"] |= parts
    return rows


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rows: set_metric(rows, 1), r"expected a mean em of 0\.333333, as .* Got 0\.416667"),
        (lambda rows: rows[1:], r"expected a mean .* as stated in .*\. Got"),
        (lambda rows: rows + rows[:1], r"row 13: document \d+ occurs twice"),
        (lambda rows: set_doc(rows, id=None), r"row 1: expected doc\.id to be a name"),
        (lambda rows: set_doc(rows, task_name="x|0"), r"expected rows of one task"),
        (lambda rows: [{"doc": row["doc"]} for row in rows], r"expected the columns doc and metr"),
        (lambda rows: [{**row, "metric": 1} for row in rows], r"row 1: expected metric to be an o"),
        (lambda rows: [{**row, "metric": {"em": None}} for row in rows], r"expected a metric\. Go"),
    ],
)
def test_rows_that_cannot_be(change, text, copy):
    file = details_of(copy)
    rewrite(file, change)
    with pytest.raises(InputError, match=text):
        read_logs(file)


def test_harmless_changes(real, copy):
    file = details_of(copy)
    expected = read_logs(details_of(real)).responses
    rewrite(file, lambda rows: set_doc(rows, gold_index=99))
    found = read_logs(file).responses
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.items["target"].isna().sum() == 1
    rewrite(file, lambda rows: rows[:0] or [dict.fromkeys(rows[0])])
    with pytest.raises(InputError, match="row 1: expected doc to be an object"):
        read_logs(file)


def test_results_that_cannot_be(copy):
    file = details_of(copy)
    path = copy / "results" / "simorg" / "sim-0" / f"results_{file.parent.name}.json"
    whole = document(path)
    for changed, text in (
        ({**whole, "config_general": {}}, "expected model_name to be a name"),
        ({"results": {}}, "expected the key config_general"),
        ({**whole, "results": 3}, "expected results to be an object"),
        ([], "expected the results to be an object"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(InputError, match=f"its results file cannot be used.*{text}"):
            read_logs(file)
    assert sum("cannot be used" in s.reason for s in read_logs(copy).report.skipped) == 4
    for part in (None, [3, {"metric_name": None}]):
        whole["config_tasks"] = {GEN: {"metrics": part}}
        path.write_text(json.dumps(whole))
        assert read_logs(file).responses.n_items == 12


@pytest.mark.slow
def test_mixed_with_lm_eval(real, logs, tmp_path):
    shutil.copytree(real, tmp_path / "one")
    shutil.copytree(logs / "lm_eval", tmp_path / "two")
    read = read_logs(tmp_path)
    assert read.responses.shape == (6 + 1, 120 + 65)
    assert set(read.report.runs["format"]) == {"lighteval", "lm-eval"}
    assert len(read.report.skipped) == 1
    assert read_logs(tmp_path, "lighteval").responses.n_items == 65
    read.responses.save(tmp_path / "all.npz")
    again = read_responses(tmp_path / "all.npz")
    pd.testing.assert_frame_equal(again.items, read.responses.items, check_dtype=False)


@pytest.mark.slow
def test_read_responses_and_the_command(real, tmp_path):
    with pytest.warns(UserWarning, match="Of several possibilities one was selected"):
        assert read_responses(real).shape == (4, 65)
    with pytest.warns(UserWarning, match="one was selected"):
        assert read_responses(details_of(real)).shape == (1, 12)
    out = tmp_path / "out.npz"
    told = CliRunner().invoke(
        app, ["import", str(real), "--tasks", GEN, "--metric", AVG, "--out", str(out)]
    )
    assert told.exit_code == 0, told.output
    assert read_responses(out).shape == (3, 12)


def test_without_pyarrow(real, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow\. Install it: pip install 'irtcat\[parq"):
        read_logs(real)

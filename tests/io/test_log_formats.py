"""Logs of further harnesses: small files of the harnesses' shape, against counts made apart."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat._common.checks import InputError
from irtcat.cli._app import app
from irtcat.io import read_logs


def write(path, document):
    """A JSON file, or JSON lines if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(line) for line in document))
    else:
        path.write_text(json.dumps(document))
    return path


def right(path, pattern):
    """How often a pattern is in the text of a file."""
    return len(re.findall(pattern, path.read_text()))


def evalscope(folder, model, scores, repeats=1):
    """Reviews and the report of a run; the repeats of a sample have its group id."""
    run = folder / "20260117_154119"
    lines = [
        {
            "index": i,
            "target": "A",
            "messages": [
                {"role": "user", "content": f"Question {i // repeats}"},
                {"role": "assistant", "content": "A", "model": model},
            ],
            "sample_score": {
                "score": {"value": {"acc": score}, "extracted_prediction": "A"},
                "sample_id": i,
                "group_id": i // repeats,
            },
        }
        for i, score in enumerate(scores)
    ]
    subset = {"name": "IQ", "score": round(float(np.mean(scores)), 4), "num": len(scores)}
    metric = {"name": "mean_acc", "categories": [{"name": ["default"], "subsets": [subset]}]}
    report = {"dataset_name": "iquiz", "model_name": f"org/{model}", "metrics": [metric]}
    write(run / "reports" / model / "iquiz.json", report)
    return write(run / "reviews" / model / "iquiz_IQ.jsonl", lines)


def test_evalscope(tmp_path):
    first = evalscope(tmp_path / "a", "one", [1.0, 0.0, 1.0])
    evalscope(tmp_path / "b", "two", [0.0, 0.0, 1.0])
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["org/one", "org/two"]
    assert read.responses.values.sum(axis=1).tolist() == [right(first, r'"acc": 1'), 1]
    assert read.responses.items["text"].tolist() == ["Question 0", "Question 1", "Question 2"]
    assert read.report.runs["date"].tolist() == ["2026-01-17T15:41:19"] * 2
    repeated = read_logs(evalscope(tmp_path / "c", "one", [1.0, 0.0, 1.0, 1.0], repeats=2))
    assert repeated.responses.trial_values.tolist() == [[[1, 0], [1, 1]]]


def test_evalscope_before_version_1(tmp_path):
    lines = [
        {
            "index": i,
            "model": "m",
            "raw_input": {"question": f"{i}?"},
            "review_id": f"r{i}",
            "choices": [{"index": 0, "review": {"gold": "1", "pred": "2", "result": i > 1}}],
        }
        for i in range(5)
    ]
    path = write(tmp_path / "20250117_154119" / "reviews" / "m" / "gsm8k_main.jsonl", lines)
    assert irtcat.read_responses(path).values.sum() == right(path, r'"result": true') == 3


def opencompass(path, correct, details=None, **more):
    """Results with details; accuracies are percentages."""
    named = {
        str(i): {"prompt": f"{i}?", "predictions": "A", "references": "B", "correct": value}
        for i, value in enumerate(correct)
    }
    accuracy = 100 * float(np.mean([np.mean(value) for value in correct]))
    details = {"type": "GEN", **named} if details is None else details
    return write(path, {"accuracy": accuracy, "details": details, **more})


def test_opencompass(tmp_path):
    folder = tmp_path / "20260101_120000" / "results"
    for model, values in {"m1": [True, False, True], "m2": [False, False, True]}.items():
        path = opencompass(folder / model / "ARC-c.json", values)
    read = read_logs(tmp_path)
    assert read.responses.values.sum(axis=1).tolist() == [2, right(path, r'"correct": true')]
    assert read.responses.item_ids.tolist() == ["ARC-c/0", "ARC-c/1", "ARC-c/2"]
    entries = [
        {"example_abbr": "aime_0", "pred": ["1", "2"], "correct": [True, False]},
        {"example_abbr": "aime_1", "pred": ["1", "1"], "correct": [True, True]},
    ]
    path = opencompass(tmp_path / "results" / "m" / "aime.json", [[1, 0], [1, 1]], entries)
    assert irtcat.read_responses(path).trial_values.tolist() == [[[1, 0], [1, 1]]]


def evalplus(path, problems, status):
    """Results of solutions; the status of all and of the original tests, (plus, base)."""
    results = {
        problem: [
            {"task_id": problem, "solution": "pass", "base_status": base, "plus_status": plus}
            for plus, base in status(n)
        ]
        for n, problem in enumerate(problems)
    }
    return write(path, {"date": "2026-01-02 03:04", "hash": "fe585eb4", "eval": results})


def test_evalplus(tmp_path):
    outcomes = [("pass", "pass"), ("fail", "pass"), ("timeout", "fail"), ("pass", "fail")]
    path = evalplus(
        tmp_path / "humaneval" / "org--m_vllm_temp_0.0.eval_results.json",
        [f"HumanEval/{n}" for n in range(4)],
        lambda n: [outcomes[n]],
    )
    read = read_logs(path)
    assert read.responses.values.tolist() == [[1, 0, 0, 0]]
    assert read.report.runs.loc[0, ["model", "task", "metric"]].tolist() == [
        "org/m",
        "humaneval",
        "pass@1 (filter plus)",
    ]
    base = read_logs(path, filter="base").responses
    assert base.values.sum() == right(path, r'"base_status": "pass"') == 2
    several = evalplus(
        tmp_path / "m" / "eval_results.json", ["Mbpp/2", "Mbpp/3"], lambda n: outcomes[: 2 + n]
    )
    responses = read_logs(several).responses
    assert responses.subject_ids.tolist() == ["m"]
    assert responses.item_ids.tolist() == ["mbpp/Mbpp/2", "mbpp/Mbpp/3"]
    assert responses.trials.tolist() == [[2, 3]]
    assert np.nansum(responses.trial_values) == 2


def test_bigcodebench(tmp_path):
    name = "org--m--main--bigcodebench-hard-instruct--vllm-0-1-sanitized_calibrated"
    solutions = {
        f"BigCodeBench/{n}": [
            {"task_id": f"BigCodeBench/{n}", "solution": "", "status": status, "details": {}}
        ]
        for n, status in enumerate(("pass", "fail", "timeout", "pass"))
    }
    document = {"date": "2026-01-02 03:04", "eval": solutions}
    path = write(tmp_path / f"{name}_eval_results.json", document)
    read = read_logs(tmp_path)
    assert read.responses.values.sum() == right(path, '"status": "pass"') == 2
    assert read.responses.subject_ids.tolist() == ["org/m"]
    assert read.report.runs["task"].tolist() == ["bigcodebench-hard-instruct"]


def livecodebench(graded, **more):
    return {
        "question_title": "t",
        "question_content": "q",
        "platform": "leetcode",
        "question_id": "2777",
        "difficulty": "easy",
        "code_list": [""] * len(graded),
        "graded_list": graded,
        "pass@1": sum(graded) / len(graded),
        **more,
    }


def test_livecodebench(tmp_path):
    rows = [livecodebench([True, False]), livecodebench([True, True], question_id="2778")]
    folder = tmp_path / "output" / "Model-7B"
    path = write(folder / "Scenario.codegeneration_2_0.2_eval_all.json", rows)
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["Model-7B"]
    assert read.responses.item_ids.tolist() == [
        "livecodebench-codegeneration/2777",
        "livecodebench-codegeneration/2778",
    ]
    listed = re.findall(r'"graded_list": \[(.*?)\]', path.read_text())
    assert read.responses.trial_values.sum() == ",".join(listed).count("true") == 3


def report(path, total=6, **lists):
    """A report of SWE-bench, with the lists of ids that are given."""
    ids = {f"{name}_ids": [f"org__repo-{n}" for n in numbers] for name, numbers in lists.items()}
    return write(path, {"total_instances": total, "resolved_instances": 1, **ids})


def test_swe_bench_reports(tmp_path):
    report(
        tmp_path / "org__m1.run1.json",
        completed=[1, 2, 3],
        resolved=[1],
        unresolved=[2, 3],
        empty_patch=[4],
        error=[5],
        incomplete=[6],
        submitted=[1, 2, 3, 4, 5],
    )
    report(tmp_path / "m2.run1.json", resolved=[1, 6, 5], unresolved=[2, 3, 4])
    read = read_logs(tmp_path)
    responses = read.responses
    assert responses.subject_ids.tolist() == ["m2", "org/m1"]
    order = np.argsort(responses.item_ids)
    assert responses.values[:, order].tolist() == [[1, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, -1]]
    assert any("1 instances that ended in an error" in note for note in read.report.notes)
    assert read.report.runs["unscored"].tolist() == [0, 1]


def test_lists_of_resolved_instances(tmp_path):
    runs = {"20240101_a": [1, 2], "20240202_b": [2], "20240303_c": []}
    for name, numbers in runs.items():
        ids = [f"org__repo-{n}" for n in numbers]
        path = tmp_path / "verified" / name / "results" / "results.json"
        write(path, {"no_generation": ["org__repo-4"], "no_logs": [], "resolved": ids})
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == list(runs)
    assert read.responses.n_items == 3  # 1, 2 and 4
    assert read.responses.values.sum(axis=1).tolist() == [2, 1, 0]
    assert any("items that no log names are not there" in note for note in read.report.notes)

    alone = write(tmp_path / "alone" / "agent.json", {"resolved_ids": ["task-a", "task-b"]})
    with pytest.raises(InputError, match=r"only resolved items are listed.*several runs"):
        read_logs(alone)
    write(tmp_path / "alone" / "other.json", {"model": "x", "resolved_ids": ["task-c"]})
    read = read_logs(tmp_path / "alone")
    assert read.responses.subject_ids.tolist() == ["agent", "x"]
    assert read.responses.values.sum(axis=1).tolist() == [2, 1]
    assert read.responses.n_missing == 0


def test_terminal_bench(tmp_path):
    trials = [
        {"task_id": task, "trial_name": f"{task}.{n}", "is_resolved": value}
        for task, values in {"chess": [True, False], "git": [False, None]}.items()
        for n, value in enumerate(values)
    ]
    path = write(tmp_path / "run" / "results.json", {"results": trials, "resolved_ids": ["chess"]})
    write(path.with_name("run_metadata.json"), {"agent_name": "terminus", "model_name": "org/m"})
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["terminus + org/m"]
    assert np.nansum(read.responses.trial_values) == right(path, r'"is_resolved": true') == 1
    assert read.report.runs["unscored"].tolist() == [1]


def alpaca(preferences, model="m", **more):
    return [
        {
            "instruction": f"Do {n}",
            "output_1": "a",
            "generator_1": "gpt4_1106_preview",
            "dataset": "koala",
            "output_2": "b",
            "generator_2": model,
            "annotator": "weighted_gpt4",
            "preference": preference,
            **more,
        }
        for n, preference in enumerate(preferences)
    ]


def test_alpaca_eval(tmp_path):
    preferences = [1.0, 2.0, "1.7328", 0, None]
    path = write(tmp_path / "m" / "annotations.json", alpaca(preferences))
    write(tmp_path / "n" / "annotations.json", alpaca([1.5] * 5, model="n"))
    read = read_logs(tmp_path)
    rate = np.mean([value - 1 for value in (1, 2, 1.7328, 1.5)])  # 0 is a draw in old files
    assert np.nanmean(read.responses.to_numpy(), axis=1) == pytest.approx([rate, 0.5])
    assert read.responses.items["text"].tolist() == [f"Do {n}" for n in range(5)]
    assert set(read.responses.items["version"]) == {"against gpt4_1106_preview"}
    assert read.report.runs["unscored"].tolist() == [1, 0]
    assert read_logs(path).responses.n_items == 4  # no other log has the one without a score


def mt_bench(scores, model="m", judge="gpt-4"):
    return [
        {
            "question_id": 81 + n,
            "model": model,
            "judge": [judge, "single-v1"],
            "judgment": "Good.",
            "user_prompt": "",
            "score": score,
            "turn": turn,
            "tstamp": 1700000000.5,
        }
        for n, both in enumerate(scores)
        for turn, score in enumerate(both, start=1)
    ]


def test_mt_bench(tmp_path):
    lines = mt_bench([(10, 7), (3, -1), (5, 6)]) + mt_bench([(9, 9), (1, 2), (4, 4)], model="n")
    path = write(tmp_path / "mt_bench" / "model_judgment" / "gpt-4_single.jsonl", lines)
    read = read_logs(path)
    scores = [int(text) for text in re.findall(r'"score": (-?\d+)', path.read_text())]
    assert read.responses.codes == tuple(range(1, 11))
    assert np.nansum(read.responses.to_frame()) == sum(score for score in scores if score > 0)
    assert read.responses.item_ids[1] == "mt_bench/81/2"
    assert read.report.runs["unscored"].tolist() == [1, 0]

    shares = read_logs(path, graded=False).responses
    assert shares.to_numpy()[[0, 1], [0, 2]].tolist() == [1, 0]
    assert "(share of the range 1 to 10)" in str(shares.summary())


def test_what_is_printed_of_judgements(tmp_path):
    lines = mt_bench([(10, 7), (3, 8), (5, 6)]) + mt_bench([(9, 9), (1, 2), (4, 4)], model="n")
    path = write(tmp_path / "gpt-4_single.jsonl", lines)
    described = CliRunner().invoke(app, ["describe", str(path)])
    assert "--model graded" in described.output
    out = tmp_path / "r.npz"
    imported = CliRunner().invoke(app, ["import", str(path), "--out", str(out)])
    assert "Mean of mt_bench: share of the range 1 to 10" in imported.output
    assert "61.1" in imported.output  # (39 - 6) / 54, not the 65.0 of 39 / 60
    CliRunner().invoke(app, ["import", str(path), "--no-graded", "--out", str(out), "--force"])
    assert "--model beta" in CliRunner().invoke(app, ["describe", str(out)]).output
    groups = ["groups", str(path), "--out", str(tmp_path / "groups.csv")]
    assert "%: share of the range 1 to 10" in CliRunner().invoke(app, groups).output
    table = tmp_path / "right.csv"
    table.write_text("model,q1,q2,q3\na,1,0,1\nb,0,0,1\n")
    groups = ["groups", str(table), "--out", str(tmp_path / "groups.csv"), "--force"]
    output = CliRunner().invoke(app, groups).output
    assert "score" in output
    assert "share of the range" not in output


def test_half_points_of_a_judge_are_shares(tmp_path):
    path = write(tmp_path / "gpt-4_single.jsonl", mt_bench([(8.5, 10), (1, 2)]))
    responses = irtcat.read_responses(path)
    assert responses.to_numpy().ravel() == pytest.approx((np.array([8.5, 10, 1, 2]) - 1) / 9)
    with pytest.raises(InputError, match="whole number from 1 to 10"):
        read_logs(path, graded=True)


def test_wildbench(tmp_path):
    rows = [
        {
            "session_id": f"s{n}",
            "parsed_result": {"strengths": "", "score": score},
            "model_test": "org/m",
            "score": score,
            "model_output": "",
        }
        for n, score in enumerate(("4", "10", "1", "N/A"))
    ]
    write(tmp_path / "score.v2" / "eval=gpt-4o" / "m.json", rows)
    read = read_logs(tmp_path)
    assert np.nansum(read.responses.to_frame()) == 4 + 10 + 1
    assert read.responses.codes == tuple(range(1, 11))
    assert read.report.runs["metric"].tolist() == ["gpt-4o.score"]


def lmms(folder, metrics):
    """Samples and results of lmms-eval; a line has the metrics that are given for it."""
    write(folder / "20260101_120000_results.json", {"model_name": "org/m", "n-shot": {"mme": 0}})
    lines = [
        {
            "doc_id": n,
            "target": "Yes",
            "resps": ["Yes"],
            "filtered_resps": ["Yes"],
            "doc_hash": "0" * 64,
            "input": f"<image> {n}?",
            **entry,
        }
        for n, entry in enumerate(metrics)
    ]
    return write(folder / "20260101_120000_samples_mme.jsonl", lines)


def test_lmms_eval(tmp_path):
    entries = [
        {"mme_perception_score": {"question_id": f"code/{n}", "category": "color", "score": value}}
        for n, value in enumerate((1.0, 0.0, 1.0))
    ]
    path = lmms(tmp_path / "org__m", entries)
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["org/m"]
    assert read.responses.item_ids.tolist() == ["mme/doc0", "mme/doc1", "mme/doc2"]
    assert read.responses.values.sum() == right(path, r'"score": 1.0') == 2


PAIR = {"question_id": 1, "model_1": "a", "model_2": "b", "g1_winner": "tie", "g2_winner": "tie"}
WILD = {"session_id": "s", "parsed_result": {}, "model_A": "a", "model_B": "b", "winner": "tie"}
NO_SCORE = {"mmmu_acc": {"id": "q1", "answer": "A", "parsed_pred": "A"}}
REFUSED = {
    "another mean of evalscope": (
        lambda f: (
            evalscope(f, "m", [1.0, 0.0]),
            evalscope(f, "m", [1.0, 1.0]),
            evalscope(f / "x", "m", [1.0, 0.0]).replace(
                f / "20260117_154119" / "reviews" / "m" / "iquiz_IQ.jsonl"
            ),
        )[2],
        r"expected a mean acc of 1, as stated in .*iquiz\.json\. Got 0\.5",
    ),
    "another accuracy of opencompass": (
        lambda f: opencompass(
            f / "results" / "m" / "a.json", [True, False], [{"correct": True}, {"correct": True}]
        ),
        "expected an accuracy of 50, as stated. Got 100",
    ),
    "opencompass without details that say right": (
        lambda f: opencompass(f / "results" / "m" / "a.json", [1], {"0": {"predictions": "A"}}),
        "expected details with correct, is_correct, cascade_correct. Got predictions",
    ),
    "pairs of mt-bench": (lambda f: write(f / "p.jsonl", [PAIR]), "compare two models.*single"),
    "pairs of wildbench": (lambda f: write(f / "p.json", [WILD]), "compare two models.*score.v2"),
    "a preference of 3": (
        lambda f: write(f / "a.json", alpaca([3])),
        "annotation 1: expected a preference from 1",
    ),
    "an instruction twice": (
        lambda f: write(f / "a.json", alpaca([1]) + alpaca([2])),
        "annotation 2: .*occurs twice",
    ),
    "a rating of 11": (
        lambda f: write(f / "m.jsonl", mt_bench([(11, 1)])),
        "rating to be a score from 1 to 10",
    ),
    "another pass@1": (
        lambda f: write(f / "a_eval_all.json", [{**livecodebench([True]), "pass@1": 0.5}]),
        "question 1: expected pass@1 to be 0.5. But 1 of 1",
    ),
    "a status that is none": (
        lambda f: evalplus(f / "eval_results.json", ["Mbpp/2"], lambda n: [(1, "pass")]),
        "Mbpp/2: expected a status such as pass. Got 1",
    ),
    "an instance resolved and not": (
        lambda f: report(f / "m.r.json", resolved=[1], unresolved=[1]),
        "org__repo-1 is resolved and not resolved",
    ),
    "a metric of lmms-eval without a score": (
        lambda f: lmms(f, [NO_SCORE]),
        "mmmu_acc has id, answer, parsed_pred",
    ),
    "a log of inspect without samples": (
        lambda f: write(
            f / "i.json",
            {
                "version": 2,
                "status": "success",
                "samples": [],
                "eval": {"task": "t", "model": "m", "run_id": "r"},
            },
        ),
        "the log has totals but no samples",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_a_reason(tmp_path, case):
    build, match = REFUSED[case]
    with pytest.raises(InputError, match=match):
        read_logs(build(tmp_path))

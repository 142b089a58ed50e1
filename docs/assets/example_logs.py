"""Write logs of simulated models, in the formats of lm-evaluation-harness and Inspect AI.

This script stands in for the evaluation harness in the tutorials: 60 models have answered 200
questions of arithmetic, and 4 new models answer only the questions that were selected; or one model
under development has answered all questions several times.

    python example_logs.py logs                           # lm-eval, 60 models
    python example_logs.py new --samples samples.json     # 4 new models, selected questions
    python example_logs.py logs --inspect                 # the same as logs of Inspect
    python example_logs.py new --inspect --sample-id ids.txt
    python example_logs.py logs/main --checkpoint main --repeats 5      # or branch, or rerun
    python example_logs.py logs/main --checkpoint main --repeats 5 --inspect --task percentages

The models do not exist: each is an ability, and answers by chance. The same model always gives the
same answer to the same question, but for repeats and reruns.
"""

import argparse
import hashlib
import json
import math
import random
from pathlib import Path

TASKS = {"arithmetic": 120, "percentages": 80}
OLD, NEW = 60, 4
CHECKPOINTS = {"main": 0.5, "rerun": 0.5, "branch": 0.0}
"""Abilities of the checkpoints of one model; the rerun is that of main."""
DAY = "2026-11-{:02d}T10-00-00.000000"


def questions(task):
    """Text, answer, difficulty and discrimination of each question."""
    draw = random.Random(task)
    for _ in range(TASKS[task]):
        difficulty, slope = draw.gauss(-0.2, 1.1), math.exp(draw.gauss(0.3, 0.3))
        size = 10 ** max(1, min(4, round(2 + difficulty)))
        m, n = draw.randint(size // 10 + 1, size), draw.randint(2, 99)
        if task == "arithmetic":
            yield f"What is {m} * {n}?", str(m * n), difficulty, slope
        else:
            yield f"What is {n} % of {m}?", f"{m * n / 100:g}", difficulty, slope


def models(new):
    """Name and ability of each model."""
    draw = random.Random("new models" if new else "models")
    sizes = ("1b", "3b", "8b", "30b", "70b")
    for number in range(NEW if new else OLD):
        size = draw.randrange(len(sizes))
        name = f"example/{'new' if new else 'old'}-{number:02d}-{sizes[size]}"
        yield name, draw.gauss(0.5 * (size - 2), 0.6)


def is_right(model, ability, task, number, difficulty, slope, run=""):
    """Whether a model is right: by chance, but always the same in one run."""
    digest = hashlib.sha256(f"{model} {task} {number}{run}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    return uniform < 1 / (1 + math.exp(-slope * (ability - difficulty)))


def write_lm_eval(folder, subjects, samples, runs=("",)):
    """`results_*.json` and `samples_*.jsonl` of each model; repeats are those of lm-eval 0.5."""
    for day, (model, ability) in enumerate(subjects):
        home = folder / model.replace("/", "__")
        home.mkdir(parents=True, exist_ok=True)
        time = DAY.format(1 + day % 28)
        totals = {}
        for task in samples:
            right = []
            with open(home / f"samples_{task}_{time}.jsonl", "w") as file:
                for number, (text, answer, *item) in enumerate(questions(task)):
                    if number not in samples[task]:
                        continue
                    scores = [
                        float(is_right(model, ability, task, number, *item, run)) for run in runs
                    ]
                    replies = [answer if score else "I do not know" for score in scores]
                    right.append(sum(scores) / len(scores))
                    line = {
                        "doc_id": number,
                        "doc": {"question": text, "answer": answer},
                        "target": answer,
                        "arguments": {"gen_args_0": {"arg_0": text}},
                        "resps": [replies],
                        "filtered_resps": replies,
                        "filter": "none",
                        "metrics": ["exact_match"],
                        "doc_hash": hashlib.sha256(text.encode()).hexdigest(),
                        "prompt_hash": hashlib.sha256(text.encode()).hexdigest(),
                        "target_hash": hashlib.sha256(answer.encode()).hexdigest(),
                        "exact_match": right[-1],
                    }
                    if len(runs) > 1:
                        line["scores_per_repeat"] = {"exact_match": scores}
                    file.write(json.dumps(line) + "\n")
            totals[task] = {"alias": task, "exact_match,none": sum(right) / len(right)}
        results = {
            "results": totals,
            "configs": {task: {"task": task, "output_type": "generate_until"} for task in samples},
            "n-samples": {
                task: {"original": TASKS[task], "effective": len(samples[task])} for task in samples
            },
            "model_name": model,
            "lm_eval_version": "0.4.13" if len(runs) == 1 else "0.5.0",
        }
        (home / f"results_{time}.json").write_text(json.dumps(results))


def write_inspect(folder, subjects, samples, runs=("",)):
    """One `.json` log of each model and task; repeats are epochs."""
    folder.mkdir(parents=True, exist_ok=True)
    for day, (model, ability) in enumerate(subjects):
        for task in samples:
            created = f"2026-11-{1 + day % 28:02d}T10:00:00+00:00"
            ids = [f"{task}-q{number:03d}" for number in sorted(samples[task])]
            log = {
                "version": 2,
                "status": "success",
                "eval": {
                    "run_id": f"{model}-{task}",
                    "created": created,
                    "task": task,
                    "model": model,
                    "dataset": {"name": task, "samples": len(ids), "sample_ids": ids},
                    "config": {"epochs": len(runs)},
                    "packages": {"inspect_ai": "0.3.285"},
                },
                "samples": [],
            }
            for number, (text, answer, *item) in enumerate(questions(task)):
                if number not in samples[task]:
                    continue
                for epoch, run in enumerate(runs, 1):
                    right = is_right(model, ability, task, number, *item, run)
                    log["samples"].append(
                        {
                            "id": f"{task}-q{number:03d}",
                            "epoch": epoch,
                            "input": text,
                            "target": answer,
                            "scores": {"match": {"value": "C" if right else "I"}},
                        }
                    )
            name = f"{created.replace(':', '-')}_{task}_{model.replace('/', '-')}.json"
            (folder / name).write_text(json.dumps(log))


def main():
    """Parse the command line and write the logs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inspect", action="store_true", help="logs of Inspect, not of lm-eval")
    parser.add_argument("--samples", type=Path, help="lm-eval's file of selected questions")
    parser.add_argument(
        "--sample-id", type=Path, help="Inspect's ids of selected questions: a file"
    )
    parser.add_argument("--checkpoint", choices=CHECKPOINTS, help="one model under development")
    parser.add_argument("--task", choices=TASKS, help="one task instead of all")
    parser.add_argument("--repeats", type=int, default=1, help="answers of a checkpoint")
    options = parser.parse_args()
    samples = {task: set(range(n)) for task, n in TASKS.items() if options.task in (None, task)}
    if options.samples:
        samples = {task: set(n) for task, n in json.loads(options.samples.read_text()).items()}
    if options.sample_id:
        samples = {task: set() for task in TASKS}
        for name in options.sample_id.read_text().replace(",", " ").split():
            task, number = name.rsplit("-q", 1)
            samples[task].add(int(number))
        samples = {task: numbers for task, numbers in samples.items() if numbers}
    new = bool(options.samples or options.sample_id)
    subjects, runs = list(models(new)), [""]
    if options.checkpoint:
        subjects = [("example/assistant", CHECKPOINTS[options.checkpoint])]
        runs = [f" {options.checkpoint} {repeat}" for repeat in range(options.repeats)]
    (write_inspect if options.inspect else write_lm_eval)(options.folder, subjects, samples, runs)
    n, who = sum(map(len, samples.values())), len(subjects)
    times = f" {len(runs)} times" if len(runs) > 1 else ""
    print(f"{who} model{'s' * (who > 1)} answered {n} questions{times}: see {options.folder}/")


if __name__ == "__main__":
    main()

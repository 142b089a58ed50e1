"""Kill long computations at random moments, resume each, and compare the end with that of one run.

    python experiments/robustness/interrupts.py [--kills 20] [--what fit-3pl,crowd] [--seed 0]

Every computation runs in a process of its own, which is killed (SIGKILL, with all processes that it
started) at a random moment after its work has begun, and started again, until it ends; then anew,
until so many kills are spent. What each run ends with must be, byte for byte, what the run without
a kill ends with: parameters, predictions, or the figures and answers of an evaluation. Evaluations
run lm-evaluation-harness and Inspect offline, with simulated models on a small local task.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
N = 40
DIFFICULTIES = np.linspace(-2.0, 2.0, N)
PAUSE = 0.05
"""Seconds that one answer, member or iteration takes at least, so that kills fall between them."""

LIMIT = 600
"""Seconds after which a process that does not end is taken to hang."""

QUESTIONS = [
    {"question": f"What is {n} + {n % 7 + 3}?", "answer": str(n + n % 7 + 3), "number": n}
    for n in range(N)
]

YAML = """task: quiz
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: generate_until
doc_to_text: "Q: {{{{question}}}}\\nA:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""

TASK = """import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate


@task
def quiz():
    rows = [json.loads(line) for line in Path({file!r}).read_text().splitlines()]
    samples = [
        Sample(id=f"q:{{row['number']}}", input=row["question"], target=row["answer"])
        for row in rows
    ]
    return Task(dataset=samples, solver=generate(), scorer=match(location="exact"))
"""


# ---------------------------------------------------------------- what is computed


def fit_3pl(home: Path) -> bytes:
    """A fit with asymptotes and standard errors, its state on disk."""
    return _fit(home, "3pl", (400, 24))


def fit_m2pl(home: Path) -> bytes:
    """A fit of two abilities."""
    return _fit(home, "m2pl", (300, 12), dims=2, tolerance=1e-3)


def _fit(
    home: Path, model: str, shape: tuple[int, int], tolerance: float = 1e-5, **more: Any
) -> bytes:
    import irtcat
    from irtcat.fitting.em import checkpoint as _checkpoint

    _checkpoint.EVERY = 0.0  # written in every iteration, not every five seconds
    rng = np.random.default_rng(0)
    slopes = rng.uniform(0.7, 1.8, shape[1])
    bank = irtcat.ItemBank.from_parameters(slopes, rng.normal(size=shape[1]))
    responses = bank.simulate(rng.normal(size=shape[0]), seed=1)
    found = irtcat.fit(
        responses,
        model,
        irtcat.EM(
            precision="float64", tolerance=tolerance, checkpoint=home / "state.npz", resume=True
        ),
        progress=lambda *told: time.sleep(PAUSE),
        **more,
    )
    parts = [found.bank.parameters(), found.bank.covariance, found.trace, found.log_likelihood]
    return b"".join(np.asarray(part, float).tobytes() for part in parts if part is not None)


def crowd(home: Path) -> bytes:
    """A crowd whose finished members are on disk, trained by two processes."""
    from irtcat.training import crowd as crowds

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    made = crowds.build(
        slow_learner,
        (X, (X.sum(axis=1) > 0).astype(int)),
        40,
        size=(6, 30),
        label_noise=(0.0, 0.3),
        seed=1,
        workers=2,
        folder=home / "crowd",
    )
    parts = [made.predictions, made.trained_on, made.gold, made.members.to_numpy(str)]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def slow_learner(X_train: Any, y_train: Any, X: Any, seed: int) -> Any:
    """Probabilities by the distance to the means."""
    time.sleep(2 * PAUSE)
    rng = np.random.default_rng(seed)
    means = [X_train[y_train == k].mean(axis=0) + rng.normal(0, 0.01, 2) for k in (0, 1)]
    near = np.exp(-np.stack([np.linalg.norm(X - mean, axis=1) for mean in means], axis=1))
    return near / near.sum(axis=1, keepdims=True)


def is_right(number: int) -> bool:
    """Whether the simulated model answers a question rightly: by chance, but always the same."""
    digest = hashlib.sha256(f"new {number}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    return uniform < 1 / (1 + np.exp(-1.7 * (0.6 - DIFFICULTIES[number])))


def say(home: Path, number: int) -> str:
    """The model's answer; that it was asked is written down first."""
    with (home / "asked.txt").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(PAUSE)
    return QUESTIONS[number]["answer"] if is_right(number) else "no idea"


def evaluation(home: Path, harness: Any, samples: list[str]) -> bytes:
    """The figures of an evaluation and the answers they rest on, but for the time it took."""
    import pandas as pd

    from irtcat import ItemBank
    from irtcat.cat import Config
    from irtcat.harness import evaluate

    ids = [f"quiz/{n}" for n in range(N)]
    bank = ItemBank.from_parameters(a=1.7, b=DIFFICULTIES, item_ids=ids)
    old = bank.simulate(np.linspace(-2.2, 2.2, 40), seed=1)
    table = pd.DataFrame({"task": "quiz", "sample": samples, "doc_id": range(N)}, index=ids)
    rules = Config(criterion="score-optimal", sampled=0.5, max_items=16, batch=4)
    found = evaluate(
        bank, harness, rules, calibration=old, items=table, out=home / "run", name="new"
    )
    told = {k: v for k, v in found.to_json().items() if k not in ("seconds", "notes")}
    answers = found.items[["answer", "theta", "se"]].to_csv()
    return json.dumps(told, sort_keys=True).encode() + answers.encode()


def lm_eval(home: Path) -> bytes:
    """lm-evaluation-harness with an object of its class of models."""
    from lm_eval.api.model import LM

    from irtcat.harness import LmEval

    class Simulated(LM):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            out = []
            for request in requests:
                out.append(say(home, request.doc["number"]))
                self.cache_hook.add_partial("generate_until", request.args, out[-1])
            return out

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    task = home.parent / "task"
    task.mkdir(exist_ok=True)
    _write(task / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in QUESTIONS))
    _write(task / "quiz.yaml", YAML.format(file=task / "quiz.jsonl"))
    return evaluation(home, LmEval(Simulated(), include_path=str(task)), list(map(str, range(N))))


def inspect(home: Path) -> bytes:
    """Inspect AI with a mock model."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from irtcat.harness import Inspect

    number = {row["question"]: row["number"] for row in QUESTIONS}

    def answer(messages: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        out = ModelOutput.from_content("mockllm/new", say(home, number[messages[-1].text]))
        out.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return out

    task = home.parent / "task"
    task.mkdir(exist_ok=True)
    _write(task / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in QUESTIONS))
    _write(task / "quiz.py", TASK.format(file=str(task / "quiz.jsonl")))
    name = os.path.relpath(task / "quiz.py") + "@quiz"  # Inspect finds no absolute paths
    model = get_model("mockllm/new", custom_outputs=answer, memoize=False)
    return evaluation(home, Inspect(name, model), [f"q:{n}" for n in range(N)])


def command(home: Path) -> bytes:
    """A command that answers line by line."""
    from irtcat.harness import Command

    words = [sys.executable, str(HERE / "interrupts.py"), "--answer", str(home)]
    return evaluation(home, Command(shlex.join(words)), list(map(str, range(N))))


def answer_lines(home: Path) -> None:
    """What the command does: an answer for every line of stdin."""
    for line in sys.stdin:
        told = json.loads(line)
        number = int(told["sample"])
        right = say(home, number) == QUESTIONS[number]["answer"]
        print(json.dumps({"item": told["item"], "answer": int(right)}), flush=True)


def _write(path: Path, text: str) -> None:
    """A file that all runs share, whole or not at all."""
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(text)
        partial.replace(path)


WORK: dict[str, Callable[[Path], bytes]] = {
    "fit-3pl": fit_3pl,
    "fit-m2pl": fit_m2pl,
    "crowd": crowd,
    "evaluate-lm-eval": lm_eval,
    "evaluate-inspect": inspect,
    "evaluate-command": command,
}
"""What is interrupted; to add a row, add a function of a folder that gives bytes."""


# ---------------------------------------------------------------- killing


def spawn(what: str, home: Path) -> subprocess.Popen[str]:
    """The process that does the work, once it has begun."""
    home.mkdir(parents=True, exist_ok=True)
    cache = home.parent / "cache"
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "HF_HOME": str(cache / "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    process = subprocess.Popen(
        [sys.executable, str(HERE / "interrupts.py"), "--child", what, str(home)],
        stdout=subprocess.PIPE,
        stderr=(home / "errors.txt").open("a"),
        text=True,
        env={**os.environ, **settings},
        start_new_session=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"{what} did not begin: {_errors(home)}")
    return process


def ended(process: subprocess.Popen[str], home: Path, after: float | None) -> bool:
    """Wait for the end of a process, or kill it and all that it started after some seconds."""
    try:
        code = process.wait(LIMIT if after is None else after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if after is None:
            raise RuntimeError(f"no end in {LIMIT} s: {_errors(home)}") from None
        return False
    finally:
        if process.stdout is not None:
            process.stdout.close()
    if code != 0:
        raise RuntimeError(f"exit status {code}: {_errors(home)}")
    return True


def _errors(home: Path) -> str:
    return " ".join((home / "errors.txt").read_text().split())[-600:]


def interrupt(what: str, kills: int, seed: int) -> dict[str, Any]:
    """A row of the table: a run without a kill, then runs with so many."""
    rng = random.Random(f"{seed} {what}")
    folder = Path(tempfile.mkdtemp())
    row: dict[str, Any] = {"what": what, "kills": 0, "runs": 0, "resumed": 0, "identical": 0}
    row |= {"asked_again": 0, "failure": ""}
    try:
        ended(spawn(what, folder / "first"), folder / "first", None)  # compiles
        begin = time.monotonic()
        process = spawn(what, folder / "whole")
        ready = time.monotonic()
        ended(process, folder / "whole", None)
        took, work = time.monotonic() - begin, time.monotonic() - ready
        wanted = (folder / "whole" / "result").read_bytes()
        row["failure"] = "" if wanted == (folder / "first" / "result").read_bytes() else "not twice"
        begin = time.monotonic()
        while row["kills"] < kills:
            home, own = folder / f"run-{row['runs']}", 0
            while True:
                last = row["kills"] >= kills
                process = spawn(what, home)
                if ended(process, home, None if last else rng.uniform(0, work)):
                    break
                row["kills"], own = row["kills"] + 1, own + 1
            row["runs"] += 1
            row["resumed"] += own
            row["identical"] += (home / "result").read_bytes() == wanted
            if (home / "asked.txt").exists():
                asked = Counter((home / "asked.txt").read_text().split())
                row["asked_again"] += sum(asked.values()) - len(asked)
        row["seconds_uninterrupted"] = round(took, 1)
        row["seconds_with_kills"] = round((time.monotonic() - begin) / max(row["runs"], 1), 1)
    except RuntimeError as error:
        row["failure"] = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def child(what: str, home: Path) -> None:
    """Do the work and write its result, whole or not at all."""
    import warnings

    import irtcat  # noqa: F401 (the slow part of starting is no work)

    warnings.simplefilter("ignore")
    if what == "evaluate-lm-eval":
        import lm_eval  # noqa: F401
    if what == "evaluate-inspect":
        import inspect_ai  # noqa: F401
    print("ready", flush=True)
    result = WORK[what](home)
    (home / "result.part").write_bytes(result)
    (home / "result.part").replace(home / "result")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--what", default=",".join(WORK))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "interrupts.csv")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        answer_lines(given.answer)
        return
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return
    rows = []
    for what in given.what.split(","):
        rows.append(interrupt(what, given.kills, given.seed))
        print(rows[-1], flush=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

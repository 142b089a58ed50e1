"""A small local benchmark and simulated models, for harnesses that run offline."""

import gc
import hashlib
import json
import os
import warnings

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import ItemBank

# The libraries under the harnesses read these when they are imported, which is later.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

N = 40
DIFFICULTIES = np.linspace(-2.0, 2.0, N)
ABILITIES = np.linspace(-2.2, 2.2, 40)


def is_right(ability: float, number: int, name: str) -> bool:
    """Whether a simulated model answers a question rightly: by chance, but always the same."""
    digest = hashlib.sha256(f"{name} {number}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    return uniform < 1 / (1 + np.exp(-1.7 * (ability - DIFFICULTIES[number])))


QUESTIONS = [
    {"question": f"What is {n} + {n % 7 + 3}?", "answer": str(2 * n % 7 + n + 3), "number": n}
    for n in range(N)
]


@pytest.fixture(scope="module", autouse=True)
def rubbish():
    """What harnesses leave open is collected here, not in some later test that it would fail.

    What earlier tests have left is not looked through, which takes four seconds.
    """
    gc.freeze()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="session")
def bank():
    """The questions as they are, their places in a task known."""
    ids = [f"quiz/{n}" for n in range(N)]
    made = ItemBank.from_parameters(a=1.7, b=DIFFICULTIES, item_ids=ids)
    items = pd.DataFrame({"task": "quiz", "doc_id": range(N)}, index=ids)
    items["cost"] = 1.0 + np.arange(N) % 3
    return irtcat.ItemBank(made.model, made.item_ids, items=items)


@pytest.fixture(scope="session")
def old_models(bank):
    """Responses of the calibrated models."""
    rows = [[is_right(t, n, f"old/{k}") for n in range(N)] for k, t in enumerate(ABILITIES)]
    names = [f"old/{k}" for k in range(len(rows))]
    return irtcat.Responses.from_array(np.array(rows, int), names, bank.item_ids, items=bank.items)


@pytest.fixture(scope="session")
def quiz(tmp_path_factory):
    """Folder of the benchmark as lm-eval and Inspect read it; two tasks of one data set."""
    folder = tmp_path_factory.mktemp("quiz")
    lines = "".join(json.dumps(row) + "\n" for row in QUESTIONS)
    (folder / "quiz.jsonl").write_text(lines)
    for name in ("quiz", "other_quiz"):
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
            f"    test: {folder}/quiz.jsonl\n"
            "test_split: test\noutput_type: generate_until\n"
            'doc_to_text: "Q: {{question}}\\nA:"\ndoc_to_target: "{{answer}}"\n'
            'generation_kwargs:\n  until: ["\\n"]\n'
            "metric_list:\n  - metric: exact_match\n    aggregation: mean\n"
            "    higher_is_better: true\n"
        )
    return folder

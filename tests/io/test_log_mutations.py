"""Damaged logs: a sentence that names file and place, or the right matrix; nothing else."""

import io
import json
import random
import zipfile

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat._files import reading
from irtcat.io import read_logs

STAMP = "2026-11-21T00-00-43.298874"
HUGE = 10**400
DEEP = "[" * 100_000


def at(path, value=...):
    """Set the value at a path of keys, or delete it."""

    def change(document):
        *way, last = path
        for key in way:
            document = document[key]
        if value is ...:
            del document[last]
        else:
            document[last] = value

    return change


def line(number, *path, value=...):
    """Change one line of JSON lines."""

    def mutate(data):
        lines = data.splitlines()
        record = json.loads(lines[number - 1])
        at(path, value)(record)
        lines[number - 1] = json.dumps(record).encode()
        return b"\n".join(lines) + b"\n"

    return mutate


def raw(number, text):
    """Replace one line."""

    def mutate(data):
        lines = data.splitlines()
        lines[number - 1] = text if isinstance(text, bytes) else text.encode()
        return b"\n".join(lines) + b"\n"

    return mutate


def whole(*path, value=...):
    """Change one JSON document."""

    def mutate(data):
        document = json.loads(data)
        at(path, value)(document)
        return json.dumps(document).encode()

    return mutate


def cut(share):
    return lambda data: data[: int(len(data) * share)]


def recode(encoding):
    return lambda data: data.decode().encode(encoding)


ANY = [
    ("empty", lambda data: b"", "."),
    ("blank", lambda data: b"\n \n", "."),
    ("cut at 1/3", cut(1 / 3), "."),
    ("cut at the end", lambda data: data.rstrip()[:-2], "."),
    ("utf-16", recode("utf-16"), "."),
    ("utf-32", recode("utf-32"), "."),
    ("zeros", lambda data: bytes(len(data)), "."),
    ("binary", lambda data: random.Random(1).randbytes(3000), "."),
    ("compressed", lambda data: __import__("gzip").compress(data), "."),
    ("html", lambda data: b"<html><body>404: Not Found</body></html>\n", "."),
    ("a number", lambda data: b"3\n", "."),
    ("a list", lambda data: b"[1, 2]\n", "."),
    ("deep", lambda data: DEEP.encode() + b"\n", "."),
    ("null", lambda data: b"null\n", "."),
]
LINES = [
    ("not JSON", raw(3, "{'doc_id': 2}"), "line 3: expected JSON"),
    ("latin-1", raw(3, '{"doc_id": 2, "é": 1}'.encode("latin-1")), "line 3: expected UTF-8"),
    ("a list for a line", raw(3, "[]"), "line 3: expected a line to be an object"),
    ("text for a line", raw(3, '"x"'), "line 3: expected a line to be an object"),
    ("deep line", raw(3, DEEP), "line 3: expected JSON"),
    ("long number", raw(3, '{"doc_id": ' + "9" * 5000 + "}"), "line 3: expected JSON"),
    ("two objects on a line", raw(3, "{} {}"), "line 3: expected JSON"),
]
LM_EVAL = [
    *LINES,
    ("no metric", line(3, "acc"), "line 3: expected the metric acc"),
    ("metric is a list", line(3, "acc", value=[1]), "line 3: expected acc to be a score.*Got 1"),
    ("metric is an object", line(3, "acc", value={"a": 1}), "line 3: expected acc to be a score"),
    ("metric is a word", line(3, "acc", value="right"), "line 3: expected acc.*'right'"),
    ("metric is huge", line(3, "acc", value=1e308), "line 3: expected acc to be a score"),
    ("metric is a huge integer", line(3, "acc", value=HUGE), "line 3: expected acc to be a score"),
    ("metric is infinite", line(3, "acc", value=float("inf")), "line 3: expected acc"),
    ("metric is negative", line(3, "acc", value=-1), "line 3: expected acc to be a score"),
    ("metric is another", line(3, "acc", value=0.5), "expected a mean acc"),
    ("metrics is text", line(3, "metrics", value="acc"), "line 3: expected metrics to be names"),
    ("metrics has numbers", line(3, "metrics", value=[1]), "line 3: expected metrics to be names"),
    ("metrics is empty", line(3, "metrics", value=[]), "line 3: expected a metric"),
    ("hash is a number", line(3, "doc_hash", value=12), "line 3: expected doc_hash to be a hash"),
    ("hash is short", line(3, "doc_hash", value="ab"), "line 3: expected doc_hash to be a hash"),
    ("hash is a list", line(3, "doc_hash", value=["ab"]), "line 3: expected doc_hash"),
    ("doc_id is text", line(3, "doc_id", value="2"), "line 3: expected doc_id to be a number"),
    ("doc_id is negative", line(3, "doc_id", value=-2), "line 3: expected doc_id to be a number"),
    ("doc_id is huge", line(3, "doc_id", value=HUGE), "line 3: expected doc_id to be a number"),
    ("doc_id is true", line(3, "doc_id", value=True), "line 3: expected doc_id to be a number"),
    ("filter is a list", line(3, "filter", value=["none"]), "line 3: expected filter"),
    ("filter is another", line(3, "filter", value="strict"), "expected 60 documents.*Got"),
    ("a line is lost", lambda data: data.split(b"\n", 1)[1], "expected 60 documents.*Got 59"),
    ("half is lost", lambda data: b"".join(data.splitlines(True)[:30]), "60 documents.*Got 30"),
    (
        "a line says otherwise",
        lambda data: (
            data + json.dumps({**json.loads(data.splitlines()[0]), "acc": 1.0}).encode() + b"\n"
        ),
        "line 61: document 0 is in line 1 with other scores",
    ),
    (
        "nothing to know a document by",
        lambda data: line(3, "doc_hash")(line(3, "doc")(line(3, "doc_id")(data))),
        "line 3: expected doc_hash, doc or doc_id",
    ),
]
HARMLESS_LM_EVAL = [
    ("no hash", line(3, "doc_hash")),
    ("no doc", line(3, "doc")),
    ("no number", line(3, "doc_id")),
    ("odd arguments", line(3, "arguments", value=7)),
    ("odd target", line(3, "target", value={"a": [1]})),
    ("half a character", line(1, "target", value="\ud800")),
    ("no target", line(3, "target")),
    ("blank lines", lambda data: data.replace(b"\n", b"\n\n")),
    ("windows lines", lambda data: data.replace(b"\n", b"\r\n")),
    ("byte order mark", lambda data: b"\xef\xbb\xbf" + data),
    ("no last line break", lambda data: data.rstrip()),
]
RESULTS = [
    ("no results", whole("results"), "expected the key results"),
    ("results is a list", whole("results", value=[]), "expected results to be an object"),
    ("configs is text", whole("configs", value="x"), "expected configs to be an object"),
    ("config is a list", whole("config", value=[1]), "expected config to be an object"),
    ("name is a list", whole("model_name", value=["a"]), "expected model_name to be a name"),
    ("name is an object", whole("model_name", value={"a": 1}), "expected model_name"),
    ("total is another", whole("results", "tiny_mc", "acc,none", value=0.9), "a mean acc"),
    ("size is another", whole("results", "tiny_mc", "sample_len", value=61), "61 documents"),
    ("cut", cut(0.5), "its results file cannot be used.*line"),
    ("utf-16", recode("utf-16"), "its results file cannot be used"),
]
HARMLESS_RESULTS = [
    ("no configs", whole("configs")),
    ("date is text", whole("date", value="soon")),
    ("date is huge", whole("date", value=1e300)),
    ("date is a list", whole("date", value=[1])),
    ("no sizes", whole("n-samples")),
    ("task is text", whole("results", "tiny_mc", value="x")),
    ("shots are a list", whole("n-shot", value=[1])),
    ("huge seed", whole("config", "random_seed", value=HUGE)),
    ("metrics are numbers", whole("configs", "tiny_mc", "metric_list", value=[1, {"a": 2}])),
]
EEE = [
    *LINES,
    ("no id", line(3, "evaluation_id"), "line 3: expected evaluation_id to be a name"),
    ("no model", line(3, "model_id"), "line 3: expected model_id"),
    ("another model", line(3, "model_id", value="x"), "line 3: expected model_id 'simorg"),
    ("no sample", line(3, "sample_id"), "line 3: expected sample_id to be a name"),
    ("sample is a list", line(3, "sample_id", value=[1]), "line 3: expected sample_id"),
    ("no evaluation", line(3, "evaluation"), "line 3: expected evaluation to be an object"),
    ("evaluation is a number", line(3, "evaluation", value=1), "line 3: expected evaluation"),
    ("score is text", line(3, "evaluation", "score", value="ok"), "line 3: expected acc"),
    ("score is huge", line(3, "evaluation", "score", value=HUGE), "line 3: expected acc"),
    ("score is 7", line(3, "evaluation", "score", value=7), "line 3: expected acc.*Got 7"),
    ("score is another", line(3, "evaluation", "score", value=0.5), 'expected a mean "acc"'),
    ("a row is lost", lambda data: data.split(b"\n", 1)[1], "expected 120 rows.*Got 119"),
    (
        "a row is another",
        lambda data: data + line(1, "evaluation", "score", value=1.0)(data).splitlines()[0] + b"\n",
        r"line 121: sample '0' has another score in line 1",
    ),
]
INSPECT = [
    ("no eval", whole("eval"), "expected eval to be an object"),
    ("no model", whole("eval", "model"), "expected eval.model to be a name"),
    ("model is a list", whole("eval", "model", value=[]), "expected eval.model to be a name"),
    ("no task", whole("eval", "task"), "expected eval.task to be a name"),
    ("odd status", whole("status", value="fine"), "expected a known status"),
    ("status is a list", whole("status", value=["success"]), "expected a known status"),
    ("no status", whole("status"), "has not ended"),
    ("samples is an object", whole("samples", value={}), "expected samples to be a list"),
    ("no samples", whole("samples"), "totals but no samples"),
    ("sample is text", whole("samples", 2, value="x"), "sample 3: expected a sample"),
    ("no id", whole("samples", 2, "id"), "sample 3: expected id to be a name"),
    ("id is a list", whole("samples", 2, "id", value=[1]), "sample 3: expected id"),
    ("epoch is text", whole("samples", 2, "epoch", value="1"), "sample 3: expected epoch"),
    ("epoch is 0", whole("samples", 2, "epoch", value=0), "sample 3: expected epoch"),
    ("scores is a list", whole("samples", 2, "scores", value=[1]), "sample 3: expected scores"),
    ("score is text", whole("samples", 2, "scores", "match", value="C"), "sample 3: expected the"),
    (
        "value is a word",
        whole("samples", 2, "scores", "match", "value", value="X"),
        "sample 3: expected match to be a score.*'X'",
    ),
    (
        "value is a list",
        whole("samples", 2, "scores", "match", "value", value=["C"]),
        "sample 3: expected match to be a score",
    ),
    (
        "value is huge",
        whole("samples", 2, "scores", "match", "value", value=HUGE),
        "sample 3: expected match to be a score",
    ),
    (
        "value is another",
        whole("samples", 1, "scores", "match", "value", value="C"),
        "expected a mean match of",
    ),
    ("a sample is lost", whole("samples", 2), "expected 6 samples.*Got 5"),
]
HARMLESS_INSPECT = [
    ("no config", whole("eval", "config", value=None)),
    ("plan is a list", whole("plan", value=[1])),
    ("steps is a number", whole("plan", value={"steps": 1})),
    ("half a character", whole("eval", "model", value="\ud800m")),
    ("packages is text", whole("eval", "packages", value="x")),
    ("odd date", whole("eval", "created", value=12)),
    ("input is a list", whole("samples", 2, "input", value=[{"content": "a"}, 3])),
    ("results is text", whole("results", value="x")),
    ("metrics is a list", whole("results", "scores", 0, "metrics", value=[1])),
]
HELM = [
    ("no instance", whole(2, "instance_id"), "instance 3: expected instance_id"),
    ("stats is text", whole(2, "stats", value="x"), "instance 3: expected stats to be a list"),
    ("stat is a number", whole(2, "stats", value=[1]), "instance 3: expected a statistic"),
    ("no name", whole(2, "stats", value=[{"mean": 1}]), "instance 3: expected the name"),
    (
        "instance twice",
        lambda data: json.dumps(json.loads(data) + json.loads(data)[:1]).encode(),
        "occurs twice in train trial 0",
    ),
    ("an instance is lost", whole(2), None),
]


def check(path, message, root=None):
    """The error is one sentence about this file."""
    with pytest.raises(InputError, match=message) as caught:
        read_logs(root or path)
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    assert len(text) < 700


def attempt(path):
    """Responses, or None, and what was said (the file's name where nothing was)."""
    try:
        return read_logs(path).responses, path.name
    except InputError as error:
        return None, str(error)


def names(cases):
    return [case[0] for case in cases]


@pytest.fixture(scope="module")
def run_of_lm_eval(logs):
    folder = logs / "lm_eval" / "simorg__sim-0"
    samples = next(folder.glob("samples_tiny_mc*")).read_bytes()
    return samples, next(folder.glob("results*")).read_bytes()


def write_lm_eval(folder, samples, results):
    path = folder / f"samples_tiny_mc_{STAMP}.jsonl"
    path.write_bytes(samples)
    (folder / f"results_{STAMP}.json").write_bytes(results)
    return path


@pytest.mark.parametrize(("name", "mutate", "message"), [*ANY, *LM_EVAL], ids=names(ANY + LM_EVAL))
def test_lm_eval(name, mutate, message, run_of_lm_eval, tmp_path):
    samples, results = run_of_lm_eval
    path = write_lm_eval(tmp_path, mutate(samples), results)
    check(path, message)
    check(path, message, tmp_path)


@pytest.mark.parametrize(("name", "mutate", "message"), [*ANY, *RESULTS], ids=names(ANY + RESULTS))
def test_lm_eval_results(name, mutate, message, run_of_lm_eval, tmp_path):
    samples, results = run_of_lm_eval
    check(write_lm_eval(tmp_path, samples, mutate(results)), message)


@pytest.mark.slow
def test_lm_eval_harmless(run_of_lm_eval, tmp_path):
    samples, results = run_of_lm_eval
    expected = read_logs(write_lm_eval(tmp_path, samples, results)).responses
    cases = [(mutate(samples), results) for _, mutate in HARMLESS_LM_EVAL]
    cases += [(samples, mutate(results)) for _, mutate in HARMLESS_RESULTS]
    for changed in cases:
        found = read_logs(write_lm_eval(tmp_path, *changed)).responses
        assert found.item_ids.tolist() == expected.item_ids.tolist()
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize(("name", "mutate", "message"), [*ANY, *EEE], ids=names(ANY + EEE))
def test_every_eval_ever(name, mutate, message, logs, tmp_path):
    source = next((logs / "every_eval_ever" / "tiny_mc").rglob("*_samples.jsonl"))
    beside = source.with_name(source.name.replace("_samples.jsonl", ".json"))
    path = tmp_path / source.name
    path.write_bytes(mutate(source.read_bytes()))
    (tmp_path / beside.name).write_bytes(beside.read_bytes())
    check(path, message)


def inspect_log_of(values="CIINCI"):
    numbers = [{"C": 1, "I": 0, "P": 0.5, "N": 0}[value] for value in values]
    samples = [
        {
            "id": f"q{i}",
            "epoch": 1,
            "input": "Q",
            "target": "A",
            "scores": {"match": {"value": value}},
        }
        for i, value in enumerate(values)
    ]
    score = {"name": "match", "metrics": {"accuracy": {"value": float(np.mean(numbers))}}}
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "task": "quiz",
            "model": "m",
            "created": "2026-11-21T00:00:00+00:00",
            "config": {},
            "packages": {"inspect_ai": "0.3.285"},
        },
        "results": {"completed_samples": len(values), "scores": [score]},
        "samples": samples,
    }


@pytest.mark.parametrize(("name", "mutate", "message"), [*ANY, *INSPECT], ids=names(ANY + INSPECT))
def test_inspect_json(name, mutate, message, tmp_path):
    path = tmp_path / "log.json"
    path.write_bytes(mutate(json.dumps(inspect_log_of()).encode()))
    with pytest.raises(InputError, match=message) as caught:
        read_logs(path, "inspect")
    assert "log.json" in str(caught.value)


def test_inspect_harmless(tmp_path):
    path = tmp_path / "log.json"
    for _, mutate in HARMLESS_INSPECT:
        path.write_bytes(mutate(json.dumps(inspect_log_of()).encode()))
        assert read_logs(path).responses.to_numpy().tolist() == [[1, 0, 0, 0, 1, 0]]


def archive_of(header=None, summaries=None, method=zipfile.ZIP_DEFLATED, **members):
    """An .eval log with deflated members, as old versions of Inspect wrote."""
    log = inspect_log_of()
    samples = log.pop("samples")
    content = {
        "header.json": json.dumps(log) if header is None else header,
        "summaries.json": json.dumps(samples) if summaries is None else summaries,
        **members,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, text in content.items():
            if text != "":
                archive.writestr(name, text)
    return buffer.getvalue()


ARCHIVES = [
    ("no header", archive_of(header=""), "expected the member header.json"),
    ("no summaries", archive_of(summaries=""), "expected the member summaries.json"),
    ("header is cut", archive_of(header='{"status": '), "member header.json: expected JSON"),
    ("header is a list", archive_of(header="[]"), "member header.json: expected the header"),
    ("summaries is text", archive_of(summaries='"x"'), "member summaries.json: expected a list"),
    ("summaries is no JSON", archive_of(summaries="x"), "member summaries.json: expected JSON"),
    ("summaries is utf-16", archive_of(summaries="[]".encode("utf-16")), "member summaries.json"),
    ("summaries is deep", archive_of(summaries=DEEP), "member summaries.json: expected JSON"),
    ("a sample is a number", archive_of(summaries="[1]"), "summaries, sample 1: expected a sample"),
]


@pytest.mark.parametrize(("name", "data", "message"), ARCHIVES, ids=names(ARCHIVES))
def test_inspect_archive(name, data, message, tmp_path):
    path = tmp_path / "log.eval"
    path.write_bytes(data)
    check(path, message)


def test_archives_that_are_damaged(tmp_path):
    path, good = tmp_path / "log.eval", archive_of()
    path.write_bytes(good)
    expected = read_logs(path).responses.to_numpy().tolist()
    random_ = random.Random(3)
    for _ in range(60):
        data = bytearray(good)
        for _ in range(random_.choice([1, 1, 8])):
            data[random_.randrange(len(data))] = random_.randrange(256)
        path.write_bytes(data[: random_.choice([None, None, random_.randrange(len(data))])])
        found, told = attempt(path)
        assert "log.eval" in told
        assert found is None or found.to_numpy().tolist() == expected
    for name, mutate, _ in ANY:
        path.write_bytes(mutate(b'{"a": 1}'))
        with pytest.raises(InputError, match=r"log\.eval"):
            read_logs(path)
        assert name


def test_zip_bombs_are_bounded(tmp_path, monkeypatch):
    """No more is unpacked than is allowed, whatever size the archive says."""

    def refused(path, message):
        with pytest.raises(InputError, match=message):
            read_logs(path, max_bytes=2**22)

    path = tmp_path / "bomb.eval"
    bomb = archive_of(summaries=" " * 2**24 + "[]")
    path.write_bytes(bomb)
    assert len(bomb) < 2**16
    refused(path, r"member summaries\.json: expected at most 1 MiB.*max_bytes")
    small = bomb.replace((2**24 + 2).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    path.write_bytes(small)  # an archive that lies about the size
    check(path, "member summaries.json")
    text = tmp_path / "log.json"
    text.write_text('{"status": 1, "eval": 2, "x": "' + "a" * 2**22 + '"}')
    refused(text, "expected at most 4 MiB")
    monkeypatch.setattr(reading, "MOST_LINE", 2**20)
    lines = tmp_path / f"samples_quiz_{STAMP}.jsonl"
    lines.write_text("{}\n" + " " * 2**21)
    check(lines, "line 1: expected doc_hash")
    lines.write_text('{"doc_id": 0, "acc": 1}\n' + '{"a": "' + "x" * 2**21)
    check(lines, "line 2: expected a line of at most 1 MB")


@pytest.mark.parametrize(("name", "mutate", "message"), [*ANY, *HELM], ids=names(ANY + HELM))
def test_helm(name, mutate, message, logs, tmp_path):
    for file in sorted((logs / "helm").iterdir())[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "per_instance_stats.json"
    whole_log = read_logs(path).responses
    path.write_bytes(mutate(path.read_bytes()))
    if message is None:  # told by the means, where they change
        found, told = attempt(path)
        assert "expected a mean" in told if found is None else found.n_items <= whole_log.n_items
        return
    check(path, message)


@pytest.mark.slow
def test_bytes_changed_at_random(run_of_lm_eval, tmp_path):
    """No cell is ever wrong: an error, or what the harness logged."""
    samples, results = run_of_lm_eval
    expected = read_logs(write_lm_eval(tmp_path, samples, results)).responses.to_frame()
    random_ = random.Random(7)
    refused = 0
    for _ in range(120):
        data = bytearray(samples)
        kind = random_.randrange(3)
        place = random_.randrange(len(data))
        if kind == 0:
            data[place] = random_.randrange(256)
        elif kind == 1:
            del data[place : place + random_.randrange(1, 400)]
        else:
            data[place:place] = data[place : place + random_.randrange(1, 400)]
        path = write_lm_eval(tmp_path, bytes(data), results)
        read, told = attempt(path)
        assert path.name in told
        if read is None:
            refused += 1
            continue
        found = read.to_frame()
        known = found.columns.intersection(expected.columns)
        assert len(known) >= found.shape[1] - 1  # a hash may have been hit
        np.testing.assert_array_equal(found[known], expected[known])
    assert refused > 60

"""Every reader of irtcat as a row of one table: sound files, the reader, an independent reading.

The sound files ("seeds") are written by irtcat's own writers, or are the logs that the tests keep.
A row's ``read`` gives what was read in plain form, and ``truth`` the independent readings of the
same file (`readings.py`). Files that carry digests have none: what is accepted of them must be what
the seed says, so that their ``truth`` is "seed". None: there is nothing to compare with.
"""

import functools
import io
import json
import shutil
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import readings as plain

import irtcat
from irtcat import ItemBank, Population, Responses
from irtcat.cat import Config, ExposureParameters, Session, Store, calibrate_exposure, part, prepare
from irtcat.io import open_source, read_logs, read_responses
from irtcat.training import crowd, filters

__all__ = ["READERS", "Reader"]

LOGS = Path(__file__).resolve().parents[2] / "tests" / "io"
STAMP = "2026-11-21T00-00-43.298874"
CONFIG = Config(stopping="n>=6", max_items=6, exposure=part("restricted", rate=0.9))


class Reader(NamedTuple):
    """A reader.

    Attributes:
        seeds: writes sound files into a folder, each in a folder of its own; gives the main files.
        read: reads the main file.
        truth: independent readings of the main file, "seed" or None (see above).
        weight: share of the mutants, relative to the others.
    """

    seeds: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]
    truth: Callable[[Path], list[Any]] | str | None = None
    weight: float = 1.0


# ---------------------------------------------------------------- what the seeds are made of


@functools.cache
def bank() -> ItemBank:
    """Twelve calibrated items with metadata and errors."""
    rng = np.random.default_rng(0)
    ids = [f"q{n}" for n in range(12)]
    made = ItemBank.from_parameters(rng.uniform(0.7, 1.8, 12), rng.normal(size=12), item_ids=ids)
    items = pd.DataFrame({"topic": ["algebra", "reading"] * 6, "cost": 1.0}, index=ids)
    return ItemBank(
        made.model,
        made.item_ids,
        Population(0.1, 1.2),
        np.tile(np.eye(2) * 0.01, (12, 1, 1)),
        items,
    )


@functools.cache
def answers() -> Responses:
    """Twenty subjects' answers to the bank's items, some missing."""
    made = bank().simulate(np.linspace(-2, 2, 20), seed=1)
    X = made.to_numpy()
    X[3, 4] = X[7, 0] = np.nan
    subjects = pd.DataFrame({"size": np.arange(20), "kind": ["a", "b"] * 10})
    subjects.index = pd.Index([f"m{n}" for n in range(20)], dtype=object)
    return Responses.from_array(X, subjects.index, bank().item_ids, subjects, bank().items)


def plain_responses(made: Responses) -> dict[str, Any]:
    """Ids and original codes."""
    X = made.to_numpy()
    if not made.is_fractional:
        codes = np.asarray(made.codes, float)
        X = np.where(np.isnan(X), np.nan, codes[np.nan_to_num(X).astype(int)])
    return {"subjects": made.subject_ids.tolist(), "items": made.item_ids.tolist(), "X": X}


def place(folder: Path, *files: tuple[str, bytes | str]) -> Path:
    """Write files into the next folder; the first is the main one."""
    home = folder / str(len(list(folder.iterdir())))
    for name, data in files:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return home / files[0][0]


# ---------------------------------------------------------------- tables of responses


def wide_seeds(folder: Path) -> list[Path]:
    """Right/wrong, graded and fractional tables; comma, tab and semicolon."""
    frame = answers().to_frame()
    graded = "person;i1;i2;i3\nanna;1;2;4\nben;3;;1\ncarla;2;2;NA\n"
    share = 'subject,"a, b",c\n"x ""y""",0.25,1\nz,.5,0\nw,1e-1,\n'
    return [
        place(folder, ("responses.csv", frame.to_csv())),
        place(folder, ("responses.tsv", frame.iloc[:5].to_csv(sep="\t"))),
        place(folder, ("graded.csv", graded)),
        place(folder, ("share.csv", share)),
    ]


def long_seeds(folder: Path) -> list[Path]:
    """One row per response."""
    frame = answers().to_frame().iloc[:6].melt(ignore_index=False, value_name="response")
    frame = frame.reset_index().dropna()
    named = "model,question,correct,note\nm1,q1,true,a\nm1,q2,FALSE,b\nm2,q1,1,\nm3,q2,0,c\n"
    return [
        place(folder, ("long.csv", frame.to_csv(index=False))),
        place(folder, ("long.tsv", frame.iloc[:20].to_csv(index=False, sep="\t"))),
        place(folder, ("named.csv", named)),
    ]


def read_table(path: Path) -> Any:
    """`irtcat.read_responses`."""
    return plain_responses(read_responses(path))


def table_truth(path: Path) -> list[Any]:
    """Every separator, wide and long."""
    data = path.read_bytes()
    data = data if b"\n" in data else data.replace(b"\r", b"\n")
    wide = plain.readings(*(lambda m=m: plain.wide_table(data, m) for m in ",\t;"))
    long = plain.readings(*(lambda m=m: plain.long_table(data, m) for m in ",\t;"))
    return wide + [each for some in long for each in some]


def npz_seeds(folder: Path) -> list[Path]:
    """What `Responses.save` writes, and plain archives."""
    fractions = Responses.from_array(np.array([[0.5, 1], [0.25, np.nan], [0, 0.75]]))
    counts = Responses.from_counts(np.array([[1, 2], [3, 0]]), np.array([[2, 2], [3, 1]]))
    graded = Responses.from_array(np.array([[1, 4, 2], [2, 3, -1]]))
    out = []
    for made in (answers(), fractions, counts, graded):
        path = place(folder, ("responses.npz", b""))
        made.save(path)
        out.append(path)
    path = place(folder, ("plain.npz", b""))
    np.savez(path, X=np.array([[1, 0, -1], [0, 1, 1]]), subjects=["a", "b"], items=[7, 8, 9])
    return [*out, path]


def parquet_seeds(folder: Path) -> list[Path]:
    """Wide and long."""
    frame = answers().to_frame()
    frame.columns.name = None
    wide = frame.astype(float).reset_index()
    long = (
        frame.iloc[:4].rename_axis(columns="item").melt(ignore_index=False, value_name="response")
    )
    long = long.reset_index().dropna()
    long["response"] = long["response"].astype(int)
    return [_parquet(folder, wide), _parquet(folder, long)]


def source_parquet_seeds(folder: Path) -> list[Path]:
    """Wide tables of integers, with ids and without."""
    frame = answers().to_frame().astype("Int64").rename_axis(columns=None)
    return [_parquet(folder, frame.reset_index()), _parquet(folder, frame.reset_index(drop=True))]


def _parquet(folder: Path, frame: pd.DataFrame) -> Path:
    data = io.BytesIO()
    frame.to_parquet(data, index=False)
    return place(folder, ("table.parquet", data.getvalue()))


def parquet_truth(path: Path, missing: float | None = None) -> list[Any]:
    """The table by pyarrow, wide and long."""
    return [
        each for some in plain.readings(lambda: plain.parquet_table(path, missing)) for each in some
    ]


def pyirt_seeds(folder: Path) -> list[Path]:
    """py-irt's lines."""
    rows = answers().to_frame().iloc[:6]
    lines = [
        json.dumps(
            {
                "subject_id": name,
                "responses": {i: None if np.isnan(v) else int(v) for i, v in row.items()},
            }
        )
        for name, row in rows.iterrows()
    ]
    odd = '{"subject_id": "é", "responses": {"q1": true, "q2": 0.5}}\n\n{"subject_id": 7, "responses": {"q2": 1.0}}'  # noqa: E501
    return [place(folder, ("r.jsonl", "\n".join(lines) + "\n")), place(folder, ("o.jsonl", odd))]


def npy_seeds(folder: Path) -> list[Path]:
    """Bare matrices."""
    X = np.where(np.isnan(answers().to_numpy()), -1, answers().to_numpy())
    out = []
    for array in (X.astype(np.int8), X.astype(np.int64), np.asfortranarray(X.astype(np.int16))):
        path = place(folder, ("big.npy", b""))
        np.save(path, array)
        out.append(path)
    return out


def read_source(path: Path) -> Any:
    """Every block of a source, as a fit takes them."""
    from irtcat.io.source import chunks

    source = open_source(path)
    rows = np.concatenate(list(chunks(source, 16)))[: source.n_subjects].astype(float)
    rows[rows == -1] = np.nan
    return {"subjects": list(source.subject_ids), "items": list(source.item_ids), "X": rows}


def npy_truth(path: Path) -> list[Any]:
    """The matrix, made anew."""

    def reading() -> Any:
        X = plain.array_file(path)
        if X.dtype.kind not in "biu" or X.ndim != 2:
            raise plain.UnsoundError(X.dtype)
        values = X.astype(float)
        values[values == -1] = np.nan
        if np.nanmax(values) > 1:
            raise plain.UnsoundError("categories")
        ids = [[f"{name}{k + 1}" for k in range(n)] for name, n in zip("si", X.shape, strict=True)]
        return plain.matrix(*ids, values)

    return plain.readings(reading)


# ---------------------------------------------------------------- logs of harnesses


@functools.cache
def logs() -> dict[str, bytes]:
    """The logs that the tests keep, by their names."""
    out = {}
    for name in ("logs", "lighteval"):
        with tarfile.open(LOGS / f"{name}.tar.xz") as archive:
            for member in archive.getmembers():
                if member.isfile():
                    out[member.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return out


def _logs_of(start: str, *within: str) -> list[str]:
    return sorted(n for n in logs() if n.startswith(start) and all(part in n for part in within))


def plain_logs(found: Any) -> Any:
    """Model, and how often each value of each item comes; items without the task's name."""
    made = found.responses
    X, values = made.to_numpy(), []
    for name, value in zip(made.item_ids, X[0], strict=True):
        if not np.isnan(value):
            values.append(str((plain.bare_name(name), round(float(value), 6))))
    if len(X) != 1:
        return {"model": made.subject_ids.tolist(), "values": X}
    return {"model": str(made.subject_ids[0]), "values": dict(Counter(values))}


def lm_eval_seeds(folder: Path) -> list[Path]:
    """A samples file with its results file, shortened, and without."""
    (samples,) = _logs_of("lm_eval/simorg__sim-0", "tiny_mc")
    (results,) = _logs_of("lm_eval/simorg__sim-0", "results")
    few = b"".join(logs()[samples].splitlines(keepends=True)[:12])
    right = np.mean([json.loads(line)["acc"] for line in few.splitlines()])
    document = json.loads(logs()[results])
    document["results"]["tiny_mc"].update({"sample_len": 12, "acc,none": right})
    document["results"]["tiny_mc"].pop("acc_norm,none")
    document["n-samples"]["tiny_mc"]["effective"] = 12
    name = f"samples_tiny_mc_{STAMP}.jsonl"
    return [
        place(folder, (name, few), (f"results_{STAMP}.json", json.dumps(document))),
        place(folder, ("model/" + name, few)),
    ]


def read_lm_eval(path: Path) -> Any:
    """`read_logs` of one file."""
    return plain_logs(read_logs(path, "lm-eval", metric="acc", filter="none"))


def lm_eval_truth(path: Path) -> list[Any]:
    """The lines."""
    return plain.readings(lambda: plain.lm_eval(path, "acc", "none", path.parent.name))


def inspect_seeds(folder: Path) -> list[Path]:
    """Archives that Inspect wrote, and one log as JSON."""
    out = []
    for name in _logs_of("inspect/", "tiny-mc")[1:2] + _logs_of("inspect/", "tiny-gen")[:1]:
        with plain._zstd().ZipFile(io.BytesIO(logs()[name])) as archive:
            header = json.loads(archive.read("header.json"))
            samples = json.loads(archive.read("summaries.json"))
        if not out:
            out.append(place(folder, ("log.eval", logs()[name])))
        scorer = min(samples[0]["scores"])
        for sample in samples:
            sample["scores"] = {"scored": sample["scores"][scorer]}
        header.pop("results", None)
        header.pop("reductions", None)
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps(header))
            archive.writestr("summaries.json", json.dumps(samples[:12]))
        out.append(place(folder, ("log.eval", data.getvalue())))
        out.append(place(folder, ("log.json", json.dumps({**header, "samples": samples[:6]}))))
    return out


def read_inspect(path: Path) -> Any:
    """`read_logs` of one file."""
    return plain_logs(read_logs(path, "inspect"))


def inspect_truth(path: Path) -> list[Any]:
    """The summaries, by the one scorer that there is."""
    return plain.readings(
        *(lambda s=s: plain.inspect_log(path, s) for s in ("scored", "choice", "match"))
    )


def helm_seeds(folder: Path) -> list[Path]:
    """A run folder, with its totals and without."""
    files = {
        name.rsplit("/", 1)[1]: data
        for name, data in logs().items()
        if name.startswith("helm/") and "sim-0" in name
    }
    instances = json.loads(files["per_instance_stats.json"])
    kept = ("exact_match", "quasi_exact_match")
    for each in instances:
        each["stats"] = [stat for stat in each["stats"] if stat["name"]["name"] in kept]
    main = ("per_instance_stats.json", json.dumps(instances))
    rest = [(n, files[n]) for n in ("run_spec.json", "scenario_state.json")]
    return [
        place(folder, main, *rest, ("stats.json", files["stats.json"])),
        place(folder, main, rest[0]),
    ]


def read_helm(path: Path) -> Any:
    """`read_logs` of a run's statistics."""
    return plain_logs(read_logs(path, "helm", metric="exact_match", filter="test"))


def helm_truth(path: Path) -> list[Any]:
    """The statistics."""
    return plain.readings(lambda: plain.helm(path, "exact_match", "test"))


def eee_seeds(folder: Path) -> list[Path]:
    """Rows with the evaluation's file, and without."""
    (name,) = _logs_of("every_eval_ever/tiny_mc/simorg/sim-0", "_samples.jsonl")
    beside = name.replace("_samples.jsonl", ".json")
    few = b"".join(logs()[name].splitlines(keepends=True)[:20])
    return [
        place(folder, ("e_samples.jsonl", logs()[name]), ("e.json", logs()[beside])),
        place(folder, ("e_samples.jsonl", few)),
    ]


def read_eee(path: Path) -> Any:
    """`read_logs` of one file."""
    return plain_logs(read_logs(path, "every-eval-ever", metric="acc", filter="none"))


def eee_truth(path: Path) -> list[Any]:
    """The rows."""
    return plain.readings(lambda: plain.every_eval_ever(path, "acc", "none"))


def lighteval_seeds(folder: Path) -> list[Path]:
    """A details file with its totals, and without."""
    (name,) = _logs_of("lighteval/details/simorg/sim-0", "sum")
    (totals,) = _logs_of("lighteval/results/simorg/sim-0", "")
    home, base = name.removeprefix("lighteval/"), name.rsplit("/", 1)[1]
    return [
        place(folder, (home, logs()[name]), (totals.removeprefix("lighteval/"), logs()[totals])),
        place(folder, (f"sim-0/{base}", logs()[name])),
    ]


def read_lighteval(path: Path) -> Any:
    """`read_logs` of one file; the model is compared where the folder names it."""
    found = plain_logs(read_logs(path, "lighteval", metric="acc"))
    return found if "details" not in path.parts else {**found, "model": "by the totals"}


def lighteval_truth(path: Path) -> list[Any]:
    """The rows."""
    model = "by the totals" if "details" in path.parts else "sim-0"
    return plain.readings(lambda: plain.lighteval(path, "acc", model))


# ---------------------------------------------------------------- banks, sessions, checkpoints


def bank_seeds(folder: Path) -> list[Path]:
    """Banks of one model, of several abilities, of categories, and of several models."""
    steps = ItemBank.from_thresholds(a=[1.0, 1.5], b=[[-1, 0, 1], [-0.5, 0.5, np.nan]])
    several = ItemBank.from_slopes(np.eye(2)[[0, 0, 1, 1]] * 1.2, correlations=[[1, 0.3], [0.3, 1]])
    guessed = ItemBank.from_parameters(a=[1.0, 1.2], b=[0.0, 1.0], c=0.2)
    out = []
    for made in (bank(), steps, several, guessed):
        path = place(folder, ("bank.npz", b""))
        made.save(path)
        out.append(path)
    return out


def plain_bank(made: ItemBank) -> Any:
    """Ids, numbers, population and metadata."""
    population = made.reference
    return {
        "items": made.item_ids.tolist(),
        "parameters": made.parameters(),
        "model": made.model.key,
        "population": [float(np.ravel(value)[0]) for value in (population.mean, population.sd)],
        "covariance": made.covariance,
        "correlations": population.correlations,
        "metadata": {str(k): list(v) for k, v in made.items.items()},
    }


def read_bank(path: Path) -> Any:
    """`ItemBank.load`."""
    return plain_bank(ItemBank.load(path))


def bank_truth(path: Path) -> list[Any]:
    """Arrays and description."""

    def reading() -> Any:
        arrays = plain.archive(path)
        meta = json.loads(str(arrays["meta"][()]))
        matrix = arrays["parameters"]
        ids = [plain.text_id(each) for each in arrays["item_ids"].tolist()]
        (population,) = meta["populations"].values()  # the first of several abilities
        mean, sd = (float(np.ravel(population[name])[0]) for name in ("mean", "sd"))
        sound = matrix.dtype.kind == "f" and np.isfinite([mean, sd]).all() and sd > 0
        if not sound or len(set(ids)) != len(ids) or np.isnan(matrix).any():
            raise plain.UnsoundError("bank")
        return {
            "items": ids,
            "parameters": matrix,
            "model": meta["model"],
            "population": [mean, sd],
            "covariance": arrays.get("covariance"),
            "correlations": population.get("correlations"),
            "metadata": {
                k: [np.nan if v is None else v for v in c] for k, c in meta["items"].items()
            },
        }

    return plain.readings(reading)


def session_seeds(folder: Path) -> list[Path]:
    """Sessions under way and over."""
    out = []
    for n in (0, 3, 6):
        counts = prepare(bank(), CONFIG).counts
        session = Session.begin(bank(), CONFIG, seed=n, subject="anna", counts=counts)
        _go_on(session, n)
        out.append(place(folder, ("session.json", json.dumps(session.to_json()))))
    return out


def _go_on(session: Session, n: int) -> None:
    for k in range(n):
        session.answer(session.asked[0], k % 2, 1.5)


def plain_session(session: Session) -> Any:
    """Answers, what is asked, what is known, and the log."""
    frame = session.to_frame()
    return {
        "id": session.id,
        "items": frame.index.tolist(),
        "answers": frame["answer"].tolist(),
        "asked": session.asked,
        "reason": session.reason,
        "known": session.estimate(),
    }


def read_session(path: Path) -> Any:
    """`Session.from_json`; the document itself counts, too: an edited one is to be refused."""
    try:  # the text is the caller's to parse
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise irtcat.InputError(f"no JSON: {error}") from None
    return {**plain_session(Session.from_json(bank(), document)), "document": document}


def store_seeds(folder: Path) -> list[Path]:
    """A store of three sessions."""
    path = place(folder, ("sessions.db", b""))
    path.unlink()
    with Store(path) as store:
        for n, name in ((6, "anna"), (2, "ben"), (0, "carla")):
            _go_on(store.begin(bank(), CONFIG, name, seed=n, subject=name.title()), n)
    return [path]


def read_store(path: Path) -> Any:
    """`Store`: checked, listed, every session resumed."""
    with Store(path, create=False) as store:
        store.check()
        table = store.sessions()
        return {
            "table": {name: row.tolist() for name, row in table.iterrows()},
            "sessions": {name: plain_session(store.resume(name)) for name in table.index},
        }


FIT = {"precision": "float64"}


def checkpoint_seeds(folder: Path) -> list[Path]:
    """The state of a fit after three iterations."""
    path = place(folder, ("state.npz", b""))
    path.unlink()
    irtcat.fit(
        answers(),
        "2pl",
        irtcat.EM(checkpoint=path, max_iterations=3, **FIT),
        standard_errors="none",
    )
    return [path]


def read_checkpoint(path: Path) -> Any:
    """`fit` with ``resume``."""
    found = irtcat.fit(
        answers(), "2pl", irtcat.EM(checkpoint=path, resume=True, **FIT), standard_errors="none"
    )
    return {"parameters": found.bank.parameters(), "log_likelihood": found.log_likelihood}


# ---------------------------------------------------------------- training


def nearest(X_train: Any, y_train: Any, X: Any, seed: int) -> Any:
    """A learner: the label of the nearest mean."""
    means = np.array([X_train[y_train == k].mean() for k in (0, 1)])
    near = np.exp(-np.abs(X[:, None] - means))
    return near / near.sum(axis=1, keepdims=True)


LABELS = (np.arange(30) * 7 % 11 > 5).astype(int)
INPUTS = LABELS + np.sin(np.arange(30.0))


def crowd_seeds(folder: Path) -> list[Path]:
    """The folder of a crowd of three."""
    home = folder / "0"
    _build(home)
    return [home / "crowd.json"]


def _build(home: Path | None) -> Any:
    return crowd.build(nearest, (INPUTS, LABELS), 3, size=(6, 12), probabilities="all", folder=home)


def read_crowd(path: Path) -> Any:
    """`crowd.build` in a folder where all members are finished."""
    made = _build(path.parent)
    return {"predictions": made.predictions, "gold": made.gold, "every": made.probabilities}


def prediction_seeds(folder: Path) -> list[Path]:
    """Predictions made elsewhere: arrays and tables."""
    out = []
    for array in (LABELS[:8], np.column_stack([LABELS, 1 - LABELS])[:8] * 0.9 + 0.05):
        path = place(folder, ("m.npy", b""))
        np.save(path, array)
        out.append(path)
    lines = ["item,prediction,probability,trained"]
    lines += [f"i{k + 1},{LABELS[k]},0.{k + 1},{k % 2}" for k in range(8)]
    lines[3] = "i3,,,"
    return [*out, place(folder, ("m.csv", "\n".join(lines) + "\n"))]


def read_predictions(path: Path) -> Any:
    """`crowd.from_predictions` of one file."""
    made = crowd.from_predictions([path], LABELS[:8])
    return {
        "predictions": made.predictions[0],
        "trained": made.in_sample()[0],
        "gold": None if made.gold is None else made.gold[0],
    }


def prediction_truth(path: Path) -> list[Any]:
    """The array, or the rows."""
    labels = LABELS[:8]

    def array() -> Any:
        found = plain.array_file(path)
        if found.ndim == 1:
            if found.dtype.kind not in "biuf" or len(found) != 8:
                raise plain.UnsoundError(found.dtype)
            codes = np.array([_label(each) for each in found.tolist()])
            return {"predictions": codes, "trained": np.zeros(8, bool), "gold": None}
        if found.shape != (8, 2) or found.dtype.kind not in "biuf":
            raise plain.UnsoundError(found.dtype)
        found = found.astype(float)
        absent = np.isnan(found).any(axis=1)
        known = found[~absent]
        if ((known < -1e-6) | (known > 1 + 1e-6)).any():
            raise plain.UnsoundError("probabilities")
        codes = np.where(absent, -1, np.nan_to_num(found).argmax(axis=1))
        gold = np.where(absent, np.nan, found[np.arange(8), labels])
        return {
            "predictions": codes,
            "trained": np.zeros(8, bool),
            "gold": None if absent.all() else gold,
        }

    def table() -> Any:
        header, *rows = plain.records(path.read_bytes(), ",")
        places = {name: header.index(name) for name in header}
        codes, trained, gold = np.full(8, -1), np.zeros(8, bool), np.full(8, np.nan)
        seen = set()
        for row in rows:
            at = [f"i{k + 1}" for k in range(8)].index(row[places["item"]])
            if at in seen:
                raise plain.UnsoundError("twice")
            seen.add(at)
            codes[at] = _label(row[places["prediction"]])
            if "probability" in places:
                gold[at] = plain.score(row[places["probability"]])
            if "trained" in places:
                told = plain.number(row[places["trained"]])
                if told not in (0, 1) and told == told:
                    raise plain.UnsoundError(told)
                trained[at] = told == 1
        return {
            "predictions": codes,
            "trained": trained,
            "gold": None if np.isnan(gold).all() else gold,
        }

    return plain.readings(table if path.suffix == ".csv" else array)


def _label(value: Any) -> int:
    """The number of a label: -1 where it is missing, -2 where it is none of the items' labels."""
    if value == "" or value != value:
        return -1
    return {"0": 0, "1": 1, 0: 0, 1: 1}.get(value, -2)


@functools.cache
def filtered() -> Any:
    """Half of the bank's items."""
    return filters.apply(bank(), "avi", keep=0.5)


def rows_seeds(folder: Path) -> list[Path]:
    """Training data by id."""
    rows = [
        {"id": name, "text": f'row "{name}", é', "label": k % 2}
        for k, name in enumerate(bank().item_ids)
    ]
    frame = pd.DataFrame(rows)
    return [
        place(folder, ("train.csv", frame.to_csv(index=False))),
        place(folder, ("train.tsv", frame.to_csv(index=False, sep="\t"))),
        place(folder, ("train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))),
        _parquet(folder, frame),
    ]


def read_rows(path: Path) -> Any:
    """`Filtered.save_rows`: the rows that were written."""
    out = path.with_name(f"kept{path.suffix}")
    filtered().save_rows(path, out, "id")
    return _rows(out)


def rows_truth(path: Path) -> list[Any]:
    """The rows whose id is kept."""
    kept = set(filtered().item_ids.tolist())

    def reading() -> Any:
        header, rows = _rows(path)
        at = header.index("id") if header else None
        ids = [str(row["id"] if at is None else row[at]) for row in rows]
        return header, [row for name, row in zip(ids, rows, strict=True) if name in kept]

    return plain.readings(reading)


def _rows(path: Path) -> Any:
    """Header and records of a data file; of JSON lines no header."""
    if path.suffix == ".parquet":
        names, columns = plain.parquet_rows(path)
        return names, [list(row) for row in zip(*columns, strict=True)]
    if path.suffix == ".jsonl":
        return None, list(plain.lines_of(path))
    mark = "," if path.suffix == ".csv" else "\t"
    import csv

    text = io.StringIO(plain.plain_text(path.read_bytes()), newline="")
    csv.field_size_limit(2**30)
    header, *rows = [row for row in csv.reader(text, delimiter=mark, strict=True) if row]
    return header, rows


# ---------------------------------------------------------------- tables of the command line


def subset_seeds(folder: Path) -> list[Path]:
    """Chosen items, as `irtcat select` writes them, and a bare list."""
    chosen = (
        irtcat.select(None, 4, strategy="random", calibration=answers(), seed=3)
        .to_frame()
        .reset_index()
    )
    return [
        place(folder, ("items.csv", chosen.to_csv(index=False))),
        place(folder, ("items.csv", "item,weight\nq1,0.5\nNA,0.25\nq7,0.25\n")),
    ]


def read_subset(path: Path) -> Any:
    """The items file of `irtcat predict`."""
    from irtcat.cli._input import read_subset as read

    found = read(str(path))
    return {"items": found.item_ids.tolist(), "weight": found.weights}


def subset_truth(path: Path) -> list[Any]:
    """Ids and weights."""

    def reading() -> Any:
        header, *rows = plain.records(path.read_bytes(), ",")
        if len(set(header)) != len(header):
            raise plain.UnsoundError("header")
        ids = [plain.text_id(row[header.index("item")]) for row in rows]
        weight = [1 / len(rows)] * len(rows)
        if "weight" in header:
            weight = [plain.number(row[header.index("weight")]) for row in rows]
        if len(set(ids)) != len(ids) or np.isnan(weight).any():
            raise plain.UnsoundError("ids or weights")
        return {"items": ids, "weight": np.array(weight)}

    return plain.readings(reading)


def table_seeds(folder: Path) -> list[Path]:
    """A table of items with numbers."""
    return [
        place(folder, ("fixed.csv", "item,a,c\nq1,1.0,0.2\nq2,0.8,\nNA,1.5,0.25\n")),
        place(folder, ("fixed.csv", "item,b\nq0,0\nq3,-1e-1\n")),
    ]


def parameter_seeds(folder: Path) -> list[Path]:
    """What `calibrate_exposure` finds."""
    rule = Config(stopping="n>=3", max_items=3, exposure=part("sympson-hetter", rate=0.5))
    path = place(folder, ("exposure.json", b""))
    calibrate_exposure(bank(), np.linspace(-1, 1, 20), rule, rounds=2).save(path)
    return [path]


def read_exposure(path: Path) -> Any:
    """`ExposureParameters.load`."""
    made = ExposureParameters.load(path)
    names = ("limit", "bank", "greatest_rate", "n_subjects")
    return {
        "items": made.item_ids.tolist(),
        "config": made.config.to_json(),
        **{name: getattr(made, name) for name in names},
    }


def exposure_truth(path: Path) -> list[Any]:
    """The document, whose configuration has a hash."""

    def reading() -> Any:
        document = plain.json_file(path)
        limit = np.array([plain.score(each) for each in document["limit"].values()])
        rest = {k: document[k] for k in ("config", "bank", "greatest_rate", "n_subjects")}
        return {"items": list(document["limit"]), "limit": limit, **rest}

    return plain.readings(reading)


def read_fixed(path: Path) -> Any:
    """The table of `irtcat fit --fixed`."""
    from irtcat.cli._input import fixed_parameters

    return {
        k: {str(i): v for i, v in each.items()} for k, each in fixed_parameters(str(path)).items()
    }


def fixed_truth(path: Path) -> list[Any]:
    """The cells that are filled."""

    def reading() -> Any:
        header, *rows = plain.records(path.read_bytes(), ",", 1)
        if len(set(header)) != len(header) or len({row[0] for row in rows}) != len(rows):
            raise plain.UnsoundError("twice")
        if not all(name.strip() for name in header[1:]):
            raise plain.UnsoundError("twice")
        found = [[plain.number(cell) for cell in row[1:]] for row in rows]
        return {
            name: {
                plain.text_id(row[0]): each[j]
                for row, each in zip(rows, found, strict=True)
                if each[j] == each[j]
            }
            for j, name in enumerate(header[1:])
        }

    return plain.readings(reading)


def config_seeds(folder: Path) -> list[Path]:
    """Configurations of many rules."""
    rich = Config(
        criterion="mepv",
        stopping="se<0.3 or n>=20",
        method="map",
        max_items=20,
        batch=2,
        exposure=part("restricted", rate=0.3),
        content=("bounds",),
        group="topic",
        targets={"algebra": (0.2, 0.6), "reading": (0.3, 0.8)},
        enemies=(("q1", "q2"),),
        theta_bounds=(-4, 4),
        nodes=81,
        first=("q3",),
        sampled=0.25,
        seconds="cost",
    )
    return [
        place(folder, ("config.json", json.dumps(each.to_json())))
        for each in (rich, CONFIG, Config())
    ]


def read_config(path: Path) -> Any:
    """The file of ``--config``, through `Config.from_json`."""
    from irtcat.cli.simulate import read_config as read

    given: Any = SimpleNamespace(
        config=path, stop=None, max_items=None, values_of=lambda source: {}
    )
    return read(given).to_json()


def _target(group: Any, *shares: Any) -> list[Any]:
    """Group, least and greatest share; one share is both."""
    ends = shares[0] if isinstance(shares[0], list) else shares
    return [str(group), ends[0], ends[-1]]


def config_truth(path: Path) -> list[Any]:
    """The document, what it leaves out by default; rules that are named are their one form."""

    def reading() -> Any:
        text = json.dumps(plain.json_file(path), ensure_ascii=False)
        document = json.loads(text.encode("utf-8", "replace"))  # halves of characters become "?"
        default = Config().to_json()
        if set(document) - set(default):
            raise plain.UnsoundError("fields")
        lacking = {"max_items", "stopping"} - set(document)  # each says something of the other
        out = default | document
        for name in ("exposure", "start"):
            out[name] = {"name": out[name]} if isinstance(out[name], str) else out[name]
        plain_length = out["stopping"] in ("length", {"name": "length"})
        if lacking or isinstance(out["stopping"], str) or plain_length or out["max_items"] == 0:
            made = Config(**{k: out[k] for k in ("stopping", "max_items") if k in document})
            out |= {k: made.to_json()[k] for k in ("stopping", "max_items")}
        content = out["content"] if isinstance(out["content"], list) else [out["content"]]
        out["content"] = [{"name": c} if isinstance(c, str) else c for c in content]
        if isinstance(out["method"], dict) and set(out["method"]) == {"name"}:
            out["method"] = out["method"]["name"]
        if isinstance(out["targets"], dict):
            out["targets"] = [[k, v] for k, v in out["targets"].items()]
        out["targets"] = [_target(*each) for each in out["targets"]]
        out["enemies"] = [[str(each) for each in several] for several in out["enemies"]]
        out["first"] = [str(each) for each in out["first"]]
        return out

    return plain.readings(reading)


# ---------------------------------------------------------------- folders of results


def simulation_seeds(folder: Path) -> list[Path]:
    """What `irtcat simulate --out` leaves."""
    from irtcat.cat import simulate

    report = simulate(bank(), np.linspace(-1, 1, 20), CONFIG, seed=1)
    tables = {
        "summary": pd.DataFrame([report.summary()]),
        "sessions": report.to_frame(),
        "by_theta": report.by_theta(),
        "by_length": report.by_length(),
        "exposure": report.exposure(),
    }
    files = [(f"run/{n}.csv", t.to_csv(index=t.index.name is not None)) for n, t in tables.items()]
    return [place(folder, *files).parent]


def scale_seeds(folder: Path) -> list[Path]:
    """The tables and banks of `irtcat scale --out`, written by hand: building scales takes long."""
    decisions = "scale,round,item,statistic,p,criterion,action\nall,1,q11,12.5,0.001,s_x2,drop\n"
    items = [f"all,{name},retained,0.5" for name in bank().item_ids]
    main = place(
        folder,
        ("scales/decisions.csv", decisions),
        ("scales/scales.csv", "scale,items,retained,status\nall,13,12,ok\n"),
        ("scales/items.csv", "\n".join(["scale,item,status,proportion_correct", *items]) + "\n"),
    )
    bank().save(main.with_name("all.npz"))
    return [main.parent]


def evaluation_seeds(folder: Path) -> list[Path]:
    """What `irtcat evaluate --out` leaves."""
    home = folder / "0" / "run"
    _evaluate(home)
    return [home]


def _evaluate(home: Path) -> Any:
    from irtcat.harness import evaluate

    return evaluate(bank(), right_or_wrong, CONFIG, calibration=answers_whole(), out=home, name="n")


@functools.cache
def answers_whole() -> Responses:
    """Answers without gaps."""
    return bank().simulate(np.linspace(-2, 2, 20), seed=1)


def right_or_wrong(asked: Any) -> Any:
    """A model: right on every second item."""
    return [(item.id, int(item.id[1:]) % 2, 1.0) for item in asked]


def read_evaluation(path: Path) -> Any:
    """`evaluate` in a folder where the run is over."""
    return json.loads(json.dumps(_evaluate(path).to_json()))


def result_seeds(folder: Path) -> list[Path]:
    """Tables of single commands."""
    known = irtcat.score(bank(), answers())
    chosen = irtcat.select(None, 6, strategy="balanced", calibration=answers_whole())
    told = irtcat.predict(answers_whole(), chosen, answers_whole(), estimator="mean")
    kept = filtered().table.reset_index()
    return [
        place(folder, ("scores.csv", known.to_frame().to_csv())),
        place(folder, ("predictions.csv", told.to_frame().to_csv())),
        place(folder, ("subset.csv", chosen.to_frame().to_csv())),
        place(folder, ("kept.csv", kept[kept["kept"]].to_csv(index=False))),
    ]


def read_report(path: Path) -> Any:
    """`irtcat.report`: the page."""
    from irtcat.report import build

    page = build([path])
    if "nan%" in page.lower():
        raise AssertionError("the page says nan%")
    return len(page) > 0


READERS: dict[str, Reader] = {
    "csv wide": Reader(wide_seeds, read_table, table_truth, 2),
    "csv long": Reader(long_seeds, read_table, table_truth, 2),
    "npz responses": Reader(
        npz_seeds, read_table, lambda p: plain.readings(lambda: plain.responses_archive(p)), 1.5
    ),
    "parquet": Reader(parquet_seeds, read_table, parquet_truth),
    "py-irt": Reader(
        pyirt_seeds, read_table, lambda p: plain.readings(lambda: plain.pyirt(p)), 1.5
    ),
    "open_source npy": Reader(npy_seeds, read_source, npy_truth),
    "open_source parquet": Reader(
        source_parquet_seeds, read_source, lambda p: parquet_truth(p, -1.0)
    ),
    "lm-eval": Reader(lm_eval_seeds, read_lm_eval, lm_eval_truth, 1.5),
    "inspect": Reader(inspect_seeds, read_inspect, inspect_truth, 1.5),
    "helm": Reader(helm_seeds, read_helm, helm_truth),
    "every_eval_ever": Reader(eee_seeds, read_eee, eee_truth),
    "lighteval": Reader(lighteval_seeds, read_lighteval, lighteval_truth),
    "bank": Reader(bank_seeds, read_bank, bank_truth, 2),
    "session json": Reader(session_seeds, read_session, "seed", 1.5),
    "store": Reader(store_seeds, read_store, "seed", 1.5),
    "checkpoint": Reader(checkpoint_seeds, read_checkpoint, "seed", 0.5),
    "crowd folder": Reader(crowd_seeds, read_crowd, "seed"),
    "crowd predictions": Reader(prediction_seeds, read_predictions, prediction_truth),
    "filter rows": Reader(rows_seeds, read_rows, rows_truth),
    "subset": Reader(subset_seeds, read_subset, subset_truth),
    "fixed parameters": Reader(table_seeds, read_fixed, fixed_truth),
    "config": Reader(config_seeds, read_config, config_truth, 1.5),
    "exposure parameters": Reader(parameter_seeds, read_exposure, exposure_truth, 0.5),
    "evaluation folder": Reader(evaluation_seeds, read_evaluation, "seed", 0.3),
    "report of tables": Reader(result_seeds, read_report, None, 0.5),
    "report of a simulation": Reader(simulation_seeds, read_report, None, 0.4),
    "report of scales": Reader(scale_seeds, read_report, None, 0.3),
    "report of an evaluation": Reader(evaluation_seeds, read_report, None, 0.3),
}
"""All readers by name; to fuzz another, add a row."""


def quiet() -> None:
    """No warnings of readers: they are not what is measured."""
    warnings.simplefilter("ignore")


def remove(folder: Path) -> None:
    """A folder and all in it."""
    shutil.rmtree(folder, ignore_errors=True)

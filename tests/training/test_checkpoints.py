"""Checkpoints as subjects: units, sources, responses, and the dependence within runs."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from irtcat import InputError, fit
from irtcat.training import dynamics
from irtcat.training.checkpoint_values import READERS, UNITS
from irtcat.training.checkpoints import Dependence
from irtcat.training.crowd import from_checkpoints

RNG = np.random.default_rng(3)
P = RNG.uniform(0.01, 0.99, (5, 4))
STEPS = [10, 20, 30, 40, 50]
IDS = ["a", "b", "c", "d"]
LOSS = -np.log(P)


def long_table(values=LOSS, name="loss"):
    rows = [
        {"step": step, "id": item, name: values[i, j]}
        for i, step in enumerate(STEPS)
        for j, item in enumerate(IDS)
    ]
    return pd.DataFrame(rows)


def check(checkpoints, expected=P):
    assert checkpoints.item_ids.tolist() == IDS
    assert checkpoints.table["step"].tolist() == STEPS
    np.testing.assert_allclose(checkpoints.probabilities(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        ("probability", P),
        ("loss", -np.log(P)),
        ("bits", -np.log2(P)),
        ("log-likelihood", np.log(P)),
        ("perplexity", 1 / P),
    ],
)
def test_units(unit, values):
    check(from_checkpoints(values, unit, steps=STEPS, item_ids=IDS))


def test_every_unit_is_tested():
    assert [*UNITS] == ["probability", "loss", "bits", "log-likelihood", "perplexity"]


@drawn(st.sampled_from([*UNITS]), st.floats(1e-6, 1))
def test_units_are_inverses_of_each_other(unit, p):
    logs = {"probability": p, "loss": -np.log(p), "bits": -np.log2(p), "log-likelihood": np.log(p)}
    value = logs.get(unit, 1 / p)
    assert UNITS[unit].logs(np.array(value)) == pytest.approx(np.log(p), abs=1e-9)


def test_sums_over_tokens_give_geometric_means():
    """Two tokens of probabilities .9 and .4: the text has .36, a token .6."""
    total = np.log([[0.9 * 0.4, 0.5]])
    for unit, sign in (("log-likelihood", 1), ("loss", -1)):
        whole = from_checkpoints(sign * total, unit).probabilities()
        np.testing.assert_allclose(whole, [[0.36, 0.5]], rtol=1e-6)
        tokens = from_checkpoints(sign * total, unit, tokens=[2, 1]).probabilities()
        np.testing.assert_allclose(tokens, [[0.6, 0.5]], rtol=1e-6)
    in_order = from_checkpoints(total, "log-likelihood", tokens=pd.Series([2, 1]))
    np.testing.assert_allclose(in_order.probabilities(), tokens)
    by_id = pd.Series([1, 2], index=["i2", "i1"])
    np.testing.assert_allclose(
        from_checkpoints(total, "log-likelihood", tokens=by_id).probabilities(), tokens
    )


def sources(folder):
    """The same losses from every kind of source."""
    wide = pd.DataFrame(LOSS, columns=IDS)
    with_steps = wide.assign(step=STEPS)
    table = long_table()
    yield "wide", with_steps
    yield "indexed", wide.set_axis(pd.Index(STEPS, name="epoch"), axis=0)
    yield "shuffled", with_steps.sample(frac=1, random_state=0)
    yield "long", table.rename(columns={"step": "epoch", "id": "example", "loss": "nll"})
    yield "records", table.to_dict("records")
    yield "polars", pl.DataFrame(table.to_dict("list"))
    yield "arrow", pa.table(table.to_dict("list"))
    np.savez(folder / "c.npz", values=LOSS, steps=np.array(STEPS), items=np.array(IDS))
    with_steps.to_csv(folder / "wide.csv", index=False)
    table.to_csv(folder / "long.csv", index=False)
    table.to_parquet(folder / "c.parquet")
    pl.DataFrame(with_steps.to_dict("list")).write_parquet(folder / "wide.pq")
    for name in ("c.jsonl", "c.ndjson"):
        lines = [json.dumps(row) for row in table.to_dict("records")]
        (folder / name).write_text("\n".join(lines) + "\n")
    for path in sorted(folder.iterdir()):
        yield path.name, path


def test_sources(tmp_path):
    read = dict(sources(tmp_path))
    for source in read.values():
        check(from_checkpoints(source, "loss"))
    np.save(tmp_path / "c.npy", LOSS)
    check(from_checkpoints(tmp_path / "c.npy", "loss", steps=STEPS, item_ids=IDS))
    assert {path.suffix for path in tmp_path.iterdir()} == {*READERS}


def test_an_index_that_is_a_range_has_the_steps():
    wide = pd.DataFrame(P, range(10, 60, 10), IDS)
    check(from_checkpoints(wide, "probability"))
    check(from_checkpoints(wide[::-1], "probability"))


def test_large_steps_keep_their_digits():
    found = from_checkpoints(P[:2], "probability", steps=[100_000_000, 100_000_001])
    assert found.table.index.tolist() == ["step 100000000", "step 100000001"]


def test_named_columns():
    table = long_table().rename(columns={"step": "ckpt", "id": "uid2", "loss": "x"})
    check(from_checkpoints(table, "loss", step="ckpt", item="uid2", value="x"))


def test_absent_rows_and_empty_cells_are_missing(tmp_path):
    table = long_table().drop(index=[5, 7])
    table.loc[10, "loss"] = np.nan
    expected = P.copy()
    expected.flat[[5, 7, 10]] = np.nan
    check(from_checkpoints(table, "loss"), expected)
    table.to_csv(tmp_path / "t.csv", index=False)
    checkpoints = from_checkpoints(tmp_path / "t.csv", "loss")
    check(checkpoints, expected)
    assert checkpoints.table["n"].tolist() == [4, 2, 3, 4, 4]
    assert checkpoints.responses().n_missing == 3
    assert np.isnan(checkpoints.responses(threshold=0.5).to_numpy()).sum() == 3
    # A checkpoint that diverged.
    diverged = LOSS.copy()
    diverged[2] = np.nan
    assert from_checkpoints(diverged, "loss").table["flag"].tolist()[2] == "no values"


def test_item_ids_in_a_csv_file_are_texts(tmp_path):
    ids = ["01", "1", "1e1", "10"]
    long_table().replace({"id": dict(zip(IDS, ids, strict=True))}).to_csv(tmp_path / "t.csv")
    checkpoints = from_checkpoints(tmp_path / "t.csv", "loss")
    assert checkpoints.item_ids.tolist() == ids
    np.testing.assert_allclose(checkpoints.probabilities(), P, rtol=1e-5)


def test_runs_and_metadata():
    labels = pd.DataFrame({"label": list("xyxy")}, index=IDS[::-1])
    checkpoints = from_checkpoints(
        LOSS[[4, 0, 3, 1, 2]],
        "loss",
        runs=["r", "q", "r", "q", "q"],
        steps=[2, 1, 1, 2, 3],
        item_ids=IDS,
        items=labels,
    )
    ids = ["r/step 1", "r/step 2", "q/step 1", "q/step 2", "q/step 3"]
    assert checkpoints.table.index.tolist() == ids
    np.testing.assert_allclose(checkpoints.probabilities(), P[[3, 4, 0, 1, 2]], rtol=1e-5)
    np.testing.assert_allclose(checkpoints.table["loss"], LOSS[[3, 4, 0, 1, 2]].mean(axis=1))
    responses = checkpoints.responses()
    assert responses.items["label"].tolist() == list("yxyx")
    assert responses.subjects["run"].tolist() == list("rrqqq")
    assert checkpoints.thin(2).table.index.tolist() == ["r/step 2", "q/step 1", "q/step 3"]
    table = long_table().assign(seed=1)
    both = pd.concat([table, table.assign(seed=2, loss=1.0)])
    assert from_checkpoints(both, "loss").table["run"].tolist() == ["1"] * 5 + ["2"] * 5


def test_responses():
    p = np.array([[0.2, 0.5, 0.7], [1.0, 0.0, 1 - 1e-9]])
    checkpoints = from_checkpoints(p, "probability")
    continuous = checkpoints.responses()
    assert continuous.is_fractional
    expected = [[0.2, 0.5, 0.7], [1 - 1e-6, 1e-6, 1 - 1e-6]]
    np.testing.assert_allclose(continuous.to_numpy(), expected, atol=1e-7)
    assert (continuous.values < 1).all()  # 1 would widen the edges of the whole model
    clipped = checkpoints.responses(clip=0.3).to_numpy()
    np.testing.assert_allclose(clipped, [[0.3, 0.5, 0.7], [0.7, 0.3, 0.7]], rtol=1e-6)
    binary = checkpoints.responses(threshold=0.6)
    assert binary.is_binary
    assert binary.values.tolist() == [[0, 0, 1], [1, 0, 1]]
    for share in np.arange(1, 20) / 20:  # strict, whatever the rounding
        at = from_checkpoints([[share]], "probability")
        assert at.responses(threshold=share).values.tolist() == [[0]]
        assert at.dynamics(share).table["correctness"].tolist() == [0]


def test_losses_of_texts_do_not_underflow():
    checkpoints = from_checkpoints([[-800.0, -2.0]], "log-likelihood")
    assert checkpoints.log_probabilities.tolist() == [[-800, -2]]
    halved = from_checkpoints([[-800.0, -2.0]], "log-likelihood", tokens=[400, 1])
    np.testing.assert_allclose(halved.probabilities(), np.exp([[-2, -2]]), rtol=1e-6)


def test_dynamics_are_those_of_the_probabilities():
    checkpoints = from_checkpoints(LOSS, "loss", item_ids=IDS)
    expected = dynamics.from_probabilities(P, correct=P > 0.5, item_ids=IDS).table
    pd.testing.assert_frame_equal(checkpoints.dynamics().table, expected, rtol=1e-5)
    runs = from_checkpoints(np.concatenate([LOSS, LOSS[::-1]]), "loss", runs=[1] * 5 + [2] * 5)
    table = runs.dynamics().table
    np.testing.assert_allclose(table["loss"], LOSS.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(table["variability"], P.std(axis=0), rtol=1e-5)


@pytest.mark.slow
def test_difficulties_are_recovered():
    """Answers simulated from the beta model, as logged losses."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=150), np.linspace(-1.5, 1.5, 12)
    mean = 1 / (1 + np.exp(-1.2 * (theta[:, None] - b)))
    p = np.clip(rng.beta(10 * mean, 10 * (1 - mean)), 1e-6, 1 - 1e-6)
    fitted = fit(from_checkpoints(-np.log(p), "loss").responses(), "beta")
    table = fitted.bank.to_frame()
    z = (table["b"] - b + theta.mean()) / np.hypot(table["se_b"], 1 / np.sqrt(150))
    assert np.abs(z).max() < 4
    assert np.corrcoef(table["b"], b)[0, 1] > 0.99


def of_logits(logits, **options):
    return from_checkpoints(1 / (1 + np.exp(-logits)), "probability", **options)


def simulated(lasting, n, n_items, n_runs, rng):
    """Logits of runs; ``lasting`` is the SD of what an item keeps through a run, besides noise."""
    theta = np.linspace(-1.5, 1.5, n)[:, None] + 0.1 * rng.normal(size=(n_runs, n, 1))
    slopes, b = rng.uniform(0.7, 1.5, n_items), rng.normal(size=n_items)
    kept = lasting * rng.normal(size=(n_runs, 1, n_items))
    logits = slopes * (theta - b) + kept + 0.4 * rng.normal(size=(n_runs, n, n_items))
    return logits.reshape(n_runs * n, n_items), np.repeat(range(n_runs), n)


@pytest.mark.parametrize("n_runs", [2, 5])
@pytest.mark.parametrize("lasting", [0.0, 0.2, 1.0])
def test_the_factor_is_that_of_the_error_of_an_items_mean(lasting, n_runs):
    """Known variances: of a run's mean, and of a residual within a fit of all runs."""
    n = 15
    rng = np.random.default_rng([n_runs, int(10 * lasting)])
    logits, runs = simulated(lasting, n, 5000, n_runs, rng)
    found = of_logits(logits, runs=runs).dependence()
    between = lasting**2 + 0.4**2 / n
    total = n_runs * n
    residual = ((n_runs - 1) * n * lasting**2 + (total - 2) * 0.4**2) / (total - 2)
    expected = np.sqrt(max(1, n * between / residual))
    assert found.estimated
    assert found.se_factor == pytest.approx(expected, rel=0.05)
    assert found.n_effective == pytest.approx(total / found.se_factor**2)
    # A third of the cells missing leaves two thirds of each run.
    logits[rng.random(logits.shape) < 1 / 3] = np.nan
    fewer = of_logits(logits, runs=runs).dependence()
    between = lasting**2 + 0.4**2 / (n * 2 / 3)
    expected = np.sqrt(max(1, n * 2 / 3 * between / residual))
    assert fewer.se_factor == pytest.approx(expected, rel=0.08)


@pytest.mark.slow
def test_standard_errors_from_runs_are_right_with_the_factor():
    """Squared errors of item means over repeated runs, against the errors as of independence."""
    rng = np.random.default_rng(6)
    n, n_runs, n_items, draws = 10, 3, 200, 200
    errors, naive, factors = [], [], []
    for _ in range(draws):
        kept = 0.5 * rng.normal(size=(n_runs, 1, n_items))
        noise = (kept + 0.4 * rng.normal(size=(n_runs, n, n_items))).reshape(-1, n_items)
        errors.append(noise.mean(axis=0) ** 2)
        naive.append(noise.var(axis=0, ddof=1) / len(noise))
        theta = np.tile(np.linspace(-1, 1, n), n_runs)[:, None]
        factors.append(of_logits(theta + noise, runs=np.repeat(range(3), n)).dependence().se_factor)
    ratio = np.sqrt(np.mean(errors) / np.mean(naive))
    assert np.mean(factors) == pytest.approx(ratio, rel=0.04)


@pytest.mark.parametrize("n", [1, 3, 40])
def test_one_run_counts_as_one(n):
    found = of_logits(np.random.default_rng(n).normal(size=(n, 50))).dependence()
    assert (found.n_effective, found.estimated) == (1, False)
    assert found.se_factor == pytest.approx(np.sqrt(n))


def test_runs_without_differences_count_as_one_each():
    found = from_checkpoints(np.full((6, 3), 0.5), "probability", runs=[1, 1, 1, 2, 2, 2])
    found = found.dependence()
    assert (found.n_effective, found.estimated) == (2, False)


def test_thinning_leaves_as_many_checkpoints_as_are_effective():
    rng = np.random.default_rng(2)
    logits, runs = simulated(0.3, 12, 3000, 4, rng)
    checkpoints = of_logits(logits, runs=runs)
    n_effective = checkpoints.dependence().table["n_effective"]
    thinned = checkpoints.thin()
    by_run = thinned.table.groupby("run")["step"]
    every = int(by_run.apply(lambda steps: np.diff(steps)[0]).iloc[0])
    assert every == int(np.ceil(12 / n_effective.iloc[0]))
    assert by_run.max().tolist() == [12] * 4
    logits_of_nine, runs_of_nine = simulated(0.6, 9, 300, 4, np.random.default_rng(2))
    odd = of_logits(logits_of_nine, runs=runs_of_nine)
    assert len(odd.thin().table) <= odd.dependence().n_effective
    # The errors are then about those of independent checkpoints.
    assert thinned.dependence().se_factor < 0.6 * checkpoints.dependence().se_factor
    pd.testing.assert_frame_equal(checkpoints.thin(1).table, checkpoints.table)
    with pytest.raises(InputError, match="at least two checkpoints"):
        of_logits(logits[:12]).thin()


@pytest.mark.slow
def test_widened_standard_errors():
    rng = np.random.default_rng(4)
    logits, runs = simulated(0.5, 12, 8, 3, rng)
    checkpoints = of_logits(logits, runs=runs)
    bank = fit(checkpoints.responses(), "beta").bank
    dependence = checkpoints.dependence()
    wide = dependence.widen(bank).to_frame()
    np.testing.assert_allclose(wide["se_b"], dependence.se_factor * bank.to_frame()["se_b"])
    np.testing.assert_array_equal(wide["b"], bank.to_frame()["b"])
    bare = fit(checkpoints.responses(), "beta", standard_errors="none").bank
    with pytest.raises(InputError, match="covariance"):
        dependence.widen(bare)


def test_texts():
    checkpoints = from_checkpoints(LOSS, "loss", runs=list("ababa"))
    assert repr(checkpoints) == "Checkpoints(5 of 2 runs x 4 items)"
    table = pd.DataFrame({"n": [8], "n_effective": [2.0]})
    dependence = Dependence(
        n_checkpoints=8, n_effective=2.0, se_factor=2.0, estimated=True, table=table
    )
    text = "8 checkpoints count as 2.0 learners (estimated); standard errors times 2.00"
    assert repr(dependence) == f"Dependence({text})"
    assert dependence.to_frame().equals(table)


def with_cell(column, row, value):
    table = long_table().astype({column: object})
    table.loc[row, column] = value
    return table


BAD = {
    "unit": ((LOSS, "nats"), {}, "one of probability, loss"),
    "negative": (
        (with_cell("loss", 6, -0.5), "loss"),
        {},
        r"at least 0.*-0.5 in row 7 \(step 20, item c\)",
    ),
    "infinite": (([[0.1, np.inf]], "loss"), {}, "inf in row 1, column 2"),
    "above 1": (([[0.1, 1.2]], "probability"), {}, "from 0 to 1, or missing. Got 1.2"),
    "logits": ((np.log(P) * -1, "log-likelihood"), {}, "at most 0"),
    "perplexity": (([[0.5, 2]], "perplexity"), {}, "at least 1"),
    "shape": (([0.1, 0.2], "loss"), {}, "checkpoints x items"),
    "ragged": (([[0.1], [0.2, 0.3]], "loss"), {}, "equal length"),
    "all missing": (([[np.nan, np.nan]], "loss"), {}, "at least one that is not missing"),
    "steps": ((LOSS, "loss"), {"steps": [1, 2]}, "5 values, one per checkpoint"),
    "same step": ((LOSS, "loss"), {"steps": [1, 2, 2, 3, 4]}, "step 2 twice"),
    "no step": ((LOSS, "loss"), {"steps": [1, None, 2, 3, 4]}, "none in row 2"),
    "text steps": ((LOSS, "loss"), {"steps": list("abcde")}, "numbers, such as epochs"),
    "ids": ((LOSS, "loss"), {"item_ids": ["a", "a", "b", "c"]}, "repeats of a"),
    "two ids": ((long_table(), "loss"), {"item_ids": IDS}, "have their own"),
    "text": ((with_cell("loss", 2, "low"), "loss"), {}, "row 3, column loss|row 3, column 'loss'"),
    "no id": ((with_cell("id", 3, None), "loss"), {}, "row 4: expected a value of id"),
    "conflict": (
        (pd.concat([long_table(), long_table(LOSS + 1)[:1]]), "loss"),
        {},
        "another value in row 1",
    ),
    "no column": ((long_table(), "loss"), {"value": "nll"}, "a column of pandas DataFrame"),
    "no steps": ((long_table().drop(columns="step"), "loss"), {}, "needs a column for the step"),
    "two columns": (
        (long_table().assign(epoch=1).drop(columns="step").assign(global_step=1), "loss"),
        {},
        "'epoch' and 'global_step' could all be the step",
    ),
    "tokens": ((LOSS, "loss"), {"tokens": [1, 2, 0, 3]}, "0 for item i3"),
    "few tokens": ((LOSS, "loss"), {"tokens": [1]}, "4 whole numbers"),
    "tokens of p": ((P, "probability"), {"tokens": [1] * 4}, "loss, bits, log-likelihood"),
    "file": (("losses.xlsx", "loss"), {}, r"ends in .npy"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    arguments, options, words = BAD[case]
    with pytest.raises(InputError, match=words):
        from_checkpoints(*arguments, **options)


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "bad.csv"
    with_cell("loss", 6, -0.5).to_csv(path, index=False)
    with pytest.raises(InputError, match=r"row 7 of .*bad\.csv \(step 20, item c\)"):
        from_checkpoints(path, "loss")
    (tmp_path / "bad.jsonl").write_text('{"step": 1, "id": "a", "loss": 0.1}\n[1]\n')
    with pytest.raises(InputError, match=r"bad\.jsonl, line 2: expected an object"):
        from_checkpoints(tmp_path / "bad.jsonl", "loss")
    np.savez(tmp_path / "bad.npz", X=LOSS)
    with pytest.raises(InputError, match=r"bad\.npz: expected an array `values`"):
        from_checkpoints(tmp_path / "bad.npz", "loss")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.responses(threshold=1), "strictly between 0 and 1"),
        (lambda c: c.responses(clip=0.6), "from 1e-06 to .5"),
        (lambda c: c.responses(clip=0), "from 1e-06 to .5"),
        (lambda c: c.dynamics(threshold=0), "strictly between"),
        (lambda c: c.thin(0), "`every`"),
        (lambda c: c.thin(9), "at least two checkpoints"),
    ],
)
def test_bad_options(call, words):
    with pytest.raises(InputError, match=words):
        call(from_checkpoints(LOSS, "loss"))

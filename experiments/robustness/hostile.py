"""Fit, score, choose, predict and diagnose 200 hostile matrices, and look for dishonest numbers.

    python experiments/robustness/hostile.py [--matrices 200] [--processes 2] [--seed 0]

Every matrix goes through the 2PL, the 3PL and the graded model. Counted are: NaN and infinity that
no flag announces, negative variances, probabilities outside [0, 1], exceptions other than
`InputError`, log-likelihoods that an independent quadrature (4,001 points, numpy) does not confirm,
and fits that another start takes higher. A refusal with a sentence is no fault.
"""

import argparse
import csv
import json
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

HERE = Path(__file__).resolve().parent
MODELS = ("2pl", "3pl", "graded")
SHAPE = (60, 26)
"""Of most matrices: one shape, compiled once. (Up to 24 items equal rows would be joined, which
makes shapes of their own.)"""

POINTS, REACH = 4001, 8.0
OFF = 0.01
"""A log-likelihood that differs from the quadrature's by more, and by more than 1e-6 of itself."""

HIGHER = 0.1
STARTS = 3
SETTINGS = {"precision": "float64"}
FAULTS = ("nan", "negative_variance", "probability_outside", "foreign", "loglik_off")

Rng = np.random.Generator


# ---------------------------------------------------------------- matrices


def ordinary(rng: Rng, shape: tuple[int, int] = SHAPE, spread: float = 1.0) -> np.ndarray:
    """Codes 0 to 3 of a graded model; right is a code of 2 or 3."""
    theta = rng.normal(0, spread, shape[0])
    slopes, steps = rng.uniform(0.7, 2.0, shape[1]), rng.normal(0, 1, (shape[1], 1))
    steps = steps + np.array([-0.8, 0.0, 0.8])
    reached = expit(slopes[:, None] * (theta[:, None, None] - steps))
    return (rng.random((*shape, 1)) < reached).sum(axis=2).astype(float)


def constant_columns(rng: Rng) -> np.ndarray:
    """Items that all answer alike."""
    X = ordinary(rng)
    columns = rng.choice(SHAPE[1], rng.integers(1, 8), replace=False)
    X[:, columns] = rng.choice([0.0, 3.0], len(columns))
    return X


def constant_rows(rng: Rng) -> np.ndarray:
    """Subjects with all answers alike."""
    X = ordinary(rng)
    rows = rng.choice(SHAPE[0], rng.integers(1, 30), replace=False)
    X[rows] = rng.choice([0.0, 3.0], (len(rows), 1))
    return X


def constant(rng: Rng) -> np.ndarray:
    """One answer only."""
    return np.full(SHAPE, rng.choice([0.0, 3.0]))


def copies(rng: Rng) -> np.ndarray:
    """Items that are copies of each other."""
    X = ordinary(rng)
    return X[:, rng.integers(0, rng.integers(1, 10), SHAPE[1])]


def identical_rows(rng: Rng) -> np.ndarray:
    """All subjects answer alike, or few patterns."""
    return ordinary(rng)[rng.integers(0, rng.integers(1, 5), SHAPE[0])]


def guttman(rng: Rng) -> np.ndarray:
    """Perfect scales, perhaps with few errors."""
    level = np.sort(rng.uniform(-0.2, 1.2, SHAPE[0]))
    steps = np.linspace(0, 1, SHAPE[1])[:, None] + np.array([-0.1, 0.0, 0.1])
    X = (level[:, None, None] > steps).sum(axis=2).astype(float)
    wrong = rng.random(SHAPE) < rng.choice([0.0, 0.01])
    return np.where(wrong, 3 - X, X)


def nearly_empty(rng: Rng) -> np.ndarray:
    """Nineteen of twenty answers missing."""
    return np.where(rng.random(SHAPE) < 0.95, np.nan, ordinary(rng))


def separated(rng: Rng) -> np.ndarray:
    """Half of the subjects wrong on all but easy items, half right on all."""
    X = np.zeros(SHAPE)
    X[: SHAPE[0] // 2] = 3
    easy = rng.integers(0, 6)
    X[:, :easy] = ordinary(rng)[:, :easy]
    return X


def disconnected(rng: Rng) -> np.ndarray:
    """Two groups that share no item."""
    X, n, j = ordinary(rng), int(rng.integers(10, 50)), int(rng.integers(3, 23))
    X[:n, j:] = X[n:, :j] = np.nan
    return X


def empty_column(rng: Rng) -> np.ndarray:
    """Items that nobody answered."""
    X = ordinary(rng)
    X[:, rng.choice(SHAPE[1], rng.integers(1, 6), replace=False)] = np.nan
    return X


def empty_row(rng: Rng) -> np.ndarray:
    """Subjects who answered nothing."""
    X = ordinary(rng)
    X[rng.choice(SHAPE[0], rng.integers(1, 50), replace=False)] = np.nan
    return X


def answered_once(rng: Rng) -> np.ndarray:
    """Items with one answer or two."""
    X = ordinary(rng)
    for column in range(int(rng.integers(1, 10))):
        kept = rng.choice(SHAPE[0], rng.integers(1, 3), replace=False)
        X[np.setdiff1d(np.arange(SHAPE[0]), kept), column] = np.nan
    return X


def extreme(rng: Rng) -> np.ndarray:
    """Items that all but one subject answer alike."""
    X = np.where(rng.random(SHAPE[1]) < 0.5, 0.0, 3.0) * np.ones(SHAPE)
    X[rng.integers(0, SHAPE[0], SHAPE[1]), np.arange(SHAPE[1])] = rng.integers(0, 4, SHAPE[1])
    return X


def reversed_items(rng: Rng) -> np.ndarray:
    """Keys turned round: one, some or half of them."""
    X, n = ordinary(rng), rng.choice([1, 5, 13])
    X[:, :n] = 3 - X[:, :n]
    return X


def unused(rng: Rng) -> np.ndarray:
    """Categories that nobody uses: the lowest, the highest, or one between."""
    X = ordinary(rng)
    for column in range(SHAPE[1]):
        gone = rng.integers(0, 4)
        near = {0: 1, 1: 2, 2: 1, 3: 2}[int(gone)]
        X[X[:, column] == gone, column] = near
    return X


def bimodal(rng: Rng) -> np.ndarray:
    """Abilities in two heaps."""
    theta = np.where(rng.random(SHAPE[0]) < 0.5, -4.0, 4.0)
    p = expit(theta[:, None] - rng.normal(0, 1, SHAPE[1]))
    return rng.binomial(3, p).astype(float)


def noise(rng: Rng) -> np.ndarray:
    """Coins."""
    return rng.integers(0, 4, SHAPE).astype(float)


def guessing(rng: Rng) -> np.ndarray:
    """Half of the answers are guesses."""
    return np.where(rng.random(SHAPE) < 0.5, rng.integers(0, 4, SHAPE), ordinary(rng))


def steep(rng: Rng) -> np.ndarray:
    """Items that discriminate perfectly at nearly one point."""
    theta = rng.normal(size=SHAPE[0])
    steps = rng.normal(0, 0.05, (SHAPE[1], 1)) + np.array([-0.5, 0.0, 0.5])
    return (theta[:, None, None] > steps).sum(axis=2).astype(float)


def spread_out(rng: Rng) -> np.ndarray:
    """Abilities far beyond the items."""
    return ordinary(rng, spread=8.0)


def two_abilities(rng: Rng) -> np.ndarray:
    """Two halves that have nothing to do with each other, or are opposed."""
    X, half = ordinary(rng), SHAPE[1] // 2
    X[:, half:] = 3 - X[:, :half] if rng.random() < 0.5 else ordinary(rng)[:, half:]
    return X


def missing_by_answer(rng: Rng) -> np.ndarray:
    """Whoever is wrong leaves the cell empty."""
    X = ordinary(rng)
    return np.where((X < 2) & (rng.random(SHAPE) < 0.9), np.nan, X)


def two_by_two(rng: Rng) -> np.ndarray:
    """Two subjects, two items."""
    return rng.integers(0, 4, (2, 2)).astype(float)


def one_item(rng: Rng) -> np.ndarray:
    """One item."""
    return ordinary(rng, (60, 1))


def one_subject(rng: Rng) -> np.ndarray:
    """One subject."""
    return ordinary(rng, (1, 26))


def wide(rng: Rng) -> np.ndarray:
    """Far more items than subjects."""
    return ordinary(rng, (5, 200))


def tall(rng: Rng) -> np.ndarray:
    """Two items only."""
    return ordinary(rng, (2000, 2))


def few_patterns(rng: Rng) -> np.ndarray:
    """A large sample of very few patterns."""
    return ordinary(rng, (4, 5))[rng.integers(0, 4, 20_000)]


KINDS: dict[Callable[[Rng], np.ndarray], float] = {
    constant_columns: 1,
    constant_rows: 1,
    constant: 0.3,
    copies: 1,
    identical_rows: 1,
    guttman: 1,
    nearly_empty: 1,
    separated: 1,
    disconnected: 1,
    empty_column: 1,
    empty_row: 1,
    answered_once: 1,
    extreme: 1,
    reversed_items: 1,
    unused: 1.5,
    bimodal: 1,
    noise: 1,
    guessing: 1.5,
    steep: 1,
    spread_out: 1,
    two_abilities: 1,
    missing_by_answer: 1,
    two_by_two: 0.6,
    one_item: 0.5,
    one_subject: 0.1,
    wide: 0.5,
    tall: 0.5,
    few_patterns: 0.5,
}
"""Generators, and how often each comes; to add a kind, add a row."""


def matrices(n: int, seed: int) -> list[tuple[int, str, np.ndarray]]:
    """Number, kind and codes (0 to 3, NaN = missing) of each matrix, kinds by turns."""
    left = {kind: 0.0 for kind in KINDS}
    out: list[tuple[int, str, np.ndarray]] = []
    while len(out) < n:
        for kind, weight in KINDS.items():
            left[kind] += weight
            if left[kind] >= 1 and len(out) < n:
                left[kind] -= 1
                rng = np.random.default_rng([seed, len(out)])
                out.append((len(out), kind.__name__, kind(rng)))
    return out


# ---------------------------------------------------------------- what is looked for


class Found:
    """What came of one matrix under one model."""

    def __init__(self, number: int, kind: str, model: str):
        self.row: dict[str, Any] = {"number": number, "kind": kind, "model": model}
        self.row |= {"refused": 0, "converged": 0, **dict.fromkeys(FAULTS, 0), "higher": 0}
        self.notes: list[str] = []

    def fault(self, which: str, note: str, count: int = 1) -> None:
        """Count a fault, with a note on where."""
        if count:
            self.row[which] += int(count)
            self.notes.append(f"{which}: {note} ({int(count)})")

    def run(self, what: str, function: Callable[[], Any]) -> Any:
        """The result of a step; None where it is refused or fails."""
        from irtcat import InputError

        try:
            return function()
        except InputError as error:
            if what == "fit":
                self.row["refused"] = 1
                self.notes.append(f"refused: {error}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            self.fault("foreign", f"{what}: {type(error).__name__}: {error} ({where})")
        return None

    def unflagged(self, what: str, frame: Any, names: list[str]) -> None:
        """Count rows with NaN or infinity that have no flag."""
        flags = frame["flag"].astype(str).to_numpy() if "flag" in frame else ""
        for name in names:
            if name in frame:
                values = frame[name].to_numpy(float, na_value=np.nan)
                bad = ~np.isfinite(values) & (flags == "")
                self.fault("nan", f"{what}: {name}", bad.sum())


def quadrature(bank: Any, X: np.ndarray) -> float:
    """Marginal log-likelihood by 4,001 points, from the unconstrained parameters of the bank."""
    z = np.linspace(-REACH, REACH, POINTS)
    theta = bank.population.mean + bank.population.sd * z
    log_joint = np.tile(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(z[1] - z[0]), (len(X), 1))
    raw = bank.parameters()
    n_categories = bank.statistics.get("n_categories", bank.statistics["n_responses"] * 0 + 2)
    for j in range(bank.n_items):
        seen = ~np.isnan(X[:, j])
        if not seen.any():
            continue
        if bank.model.key == "graded":
            # The table leaves out thresholds of categories that nobody used; these are all.
            falls = np.cumsum(np.exp(raw[j, 2:]))[: n_categories.iloc[j] - 2]
            intercepts = raw[j, 1] - np.concatenate([[0.0], falls])
            reach = expit(raw[j, 0] * theta + intercepts[:, None])
            reach = np.vstack([np.ones(POINTS), reach, np.zeros(POINTS)])
            curves = -np.diff(reach, axis=0)
        else:
            lower = expit(raw[j, 2]) if raw.shape[1] > 2 else 0.0
            line = raw[j, 0] * theta + raw[j, 1]
            curves = np.stack([(1 - lower) * expit(-line), lower + (1 - lower) * expit(line)])
        with np.errstate(divide="ignore"):
            log_joint[seen] += np.log(curves)[X[seen, j].astype(int)]
    used = ~np.isnan(X).all(axis=1)
    top = log_joint[used].max(axis=1, keepdims=True)
    return float((top[:, 0] + np.log(np.exp(log_joint[used] - top).sum(axis=1))).sum())


def second_start(found: Found, responses: Any, model: str, first: Any, seed: int) -> None:
    """Fit from other starting values within the same bounds; count where that ends higher."""
    import irtcat

    other = found.run(
        "starts",
        lambda: irtcat.fit(
            responses,
            model,
            irtcat.EM(starts=STARTS, seed=seed, **SETTINGS),
            standard_errors="none",
        ),
    )
    if other is not None and other.log_posterior > first.log_posterior + HIGHER:
        found.row["higher"] = 1
        gain = other.log_posterior - first.log_posterior
        found.notes.append(f"higher: {gain:.3f} by another start; converged: {other.converged}")


def examine(number: int, kind: str, X: np.ndarray, model: str, seed: int) -> dict[str, Any]:
    """One matrix through one model."""
    import irtcat

    begin = time.process_time()
    found = Found(number, kind, model)
    codes = X if model == "graded" else np.where(np.isnan(X), np.nan, (X >= 2).astype(float))
    known = (0, 1, 2, 3) if model == "graded" else (0, 1)
    made = found.run("fit", lambda: irtcat.Responses.from_array(codes, codes=known))
    fitted = (
        None
        if made is None
        else found.run("fit", lambda: irtcat.fit(made, model, irtcat.EM(**SETTINGS)))
    )
    if fitted is not None:
        found.row["converged"] = int(fitted.converged)
        _parameters(found, fitted)
        expected = found.run("quadrature", lambda: quadrature(fitted.bank, codes))
        if expected is not None:
            off = abs(expected - fitted.log_likelihood)
            wrong = not off <= max(OFF, 1e-6 * abs(expected))
            found.fault("loglik_off", f"{fitted.log_likelihood:.4f}, is {expected:.4f}", wrong)
        _scores(found, fitted, made)
        _choices(found, fitted, made)
        _diagnoses(found, fitted, made)
        second_start(found, made, model, fitted, seed)
    seconds = time.process_time() - begin
    return {**found.row, "seconds": seconds, "notes": found.notes}


def _parameters(found: Found, fitted: Any) -> None:
    """Parameters, their errors, curves."""
    bank, table = fitted.bank, fitted.bank.to_frame()
    found.unflagged("bank", table, [n for n in ("a", "b", "c", "d", "b1") if n in table])
    if not np.isfinite(bank.parameters()[~np.isnan(bank.parameters())]).all():
        found.fault("nan", "bank: infinite parameter")
    for name in ("log_likelihood", "log_posterior"):
        found.fault("nan", f"fit: {name}", not np.isfinite(getattr(fitted, name)))
    if bank.covariance is not None:
        errors = np.diagonal(np.asarray(bank.covariance, float), axis1=1, axis2=2)
        found.fault("negative_variance", "parameters", (errors < 0).sum())
        absent = np.isnan(errors).all(axis=1) & (table["flag"].astype(str) == "").to_numpy()
        found.fault("nan", "bank: standard errors", absent.sum())
    curves = found.run("curves", lambda: bank.category_probabilities(np.linspace(-8, 8, 41)))
    if curves is not None:
        known = np.asarray(curves, float)
        known = known[~np.isnan(known)]
        found.fault("probability_outside", "curves", ((known < 0) | (known > 1 + 1e-12)).sum())


def _scores(found: Found, fitted: Any, made: Any) -> None:
    """Abilities by every method."""
    import irtcat

    for method in ("ml", "map", "eap", "wle"):
        known = found.run(
            f"score {method}",
            lambda method=method: irtcat.score(fitted.bank, made, method=method, **SETTINGS),
        )
        if known is None:
            continue
        frame = known.to_frame()
        found.unflagged(f"score {method}", frame, ["theta", "se"])
        found.fault("negative_variance", f"score {method}", (frame["se"] < 0).sum())
        odd = (frame["theta"] < frame["lower"]) | (frame["theta"] > frame["upper"])
        found.fault("negative_variance", f"score {method}: interval without theta", odd.sum())


def _choices(found: Found, fitted: Any, made: Any) -> None:
    """Items chosen, and scores predicted from them."""
    import irtcat

    k = min(5, made.n_items)
    for strategy in ("fisher", "balanced"):
        subset = found.run(
            f"select {strategy}",
            lambda strategy=strategy: irtcat.select(
                fitted.bank, k, strategy=strategy, calibration=made
            ),
        )
        if subset is None:
            continue
        if len(set(subset.item_ids.tolist())) != k:
            found.fault("nan", f"select {strategy}: items twice or too few")
        new = made.subset(items=subset.item_ids)
        for estimator in ("irt", "auto"):
            told = found.run(
                f"predict {strategy} {estimator}",
                lambda s=subset, n=new, e=estimator: irtcat.predict(
                    made, s, n, bank=fitted.bank, estimator=e
                ),
            )
            if told is None:
                continue
            frame = told.to_frame()
            found.unflagged(f"predict {estimator}", frame, ["score", "lower", "upper"])
            values = frame[["score", "lower", "upper"]].to_numpy(float)
            outside = (values < -1e-9) | (values > 1 + 1e-9)
            found.fault("probability_outside", f"predict {estimator}", outside.sum())
            crossed = (frame["lower"] > frame["upper"]).sum()
            found.fault("negative_variance", f"predict {estimator}: interval", crossed)


DIAGNOSES: dict[str, tuple[str, list[str]]] = {
    "person_fit": ("bank", ["lz", "outfit", "infit"]),
    "infit_outfit": ("bank", ["outfit", "infit"]),
    "s_x2": ("bank", ["s_x2", "p"]),
    "item_fit": ("bank", ["s_x2", "outfit", "infit"]),
    "q3": ("bank", ["q3", "p"]),
    "ld_statistics": ("bank", ["x2", "p"]),
    "item_analysis": ("responses", ["mean", "item_rest"]),
}
"""What each takes, and columns that may be NaN under a flag only."""


def _diagnoses(found: Found, fitted: Any, made: Any) -> None:
    """The main diagnoses."""
    from irtcat import diagnose

    for name, (takes, columns) in DIAGNOSES.items():
        function = getattr(diagnose, name)
        given = (fitted.bank, made) if takes == "bank" else (made,)
        result = found.run(name, lambda f=function, g=given: f(*g))
        if result is not None:
            frame = result.to_frame() if hasattr(result, "to_frame") else result
            found.unflagged(name, frame, columns)
            shares = [c for c in ("p", "p_holm", "p_bh") if c in frame]
            values = frame[shares].to_numpy(float)
            found.fault("probability_outside", name, ((values < 0) | (values > 1)).sum())
    found.run("model_fit", lambda: diagnose.model_fit(fitted.bank, made))
    found.run("reliability", lambda: diagnose.empirical_reliability(fitted.abilities))
    found.run("alpha", lambda: diagnose.coefficient_alpha(made))
    found.run("marginal reliability", lambda: diagnose.marginal_reliability(fitted.bank))


# ---------------------------------------------------------------- table


def begin(cache: str) -> None:
    """Settings of a worker."""
    import jax

    warnings.simplefilter("ignore")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def task(given: tuple[int, str, np.ndarray, str, int]) -> dict[str, Any]:
    """One matrix under one model, in a worker."""
    return examine(*given)


def run(
    n: int, seed: int, processes: int, models: tuple[str, ...] = MODELS
) -> list[dict[str, Any]]:
    """All matrices under all models; matrices of one shape follow each other in one process."""
    shapes = sorted(matrices(n, seed), key=lambda each: (each[2].shape != SHAPE, each[2].shape))
    tasks = [(number, kind, X, model, seed) for model in models for number, kind, X in shapes]
    out, begun = [], time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes, begin, (cache,)) as pool:
            for done, row in enumerate(pool.imap(task, tasks, chunksize=4), 1):
                out.append(row)
                if done % 20 == 0:
                    clock = f"{time.monotonic() - begun:.0f} s"
                    print(f"{done} of {len(tasks)}, {clock}", file=sys.stderr, flush=True)
    return out


def tabulate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a model."""
    table = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        fitted = [row for row in own if not row["refused"]]
        total = {name: sum(row[name] for row in own) for name in (*FAULTS, "higher")}
        table.append(
            {
                "model": model,
                "matrices": len(own),
                "refused": len(own) - len(fitted),
                "not_converged": sum(not row["converged"] for row in fitted),
                **total,
                "seconds": round(sum(row["seconds"] for row in own)),
            }
        )
    return table


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--matrices", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--failures", type=Path, help="file for what was found, one JSON a line")
    parser.add_argument("--replay", help="MODEL:NUMBER: one matrix again, in this process")
    parser.add_argument("--out", type=Path, default=HERE / "hostile.csv")
    given = parser.parse_args()
    if given.replay:
        model, _, number = given.replay.partition(":")
        warnings.simplefilter("ignore")
        _, kind, X = matrices(int(number) + 1, given.seed)[int(number)]
        print(json.dumps(examine(int(number), kind, X, model, given.seed), indent=1))
        return
    begun = time.monotonic()
    rows = run(given.matrices, given.seed, given.processes, tuple(given.models.split(",")))
    table = tabulate(rows)
    print(" ".join(f"{name:>19}" for name in table[0]))
    for row in table:
        print(" ".join(f"{value!s:>19}" for value in row.values()))
    print(f"{time.monotonic() - begun:.0f} s by the clock, seed {given.seed}")
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    if given.failures:
        bad = [row for row in rows if row["higher"] or any(row[name] for name in FAULTS)]
        given.failures.write_text("".join(json.dumps(row) + "\n" for row in bad))


if __name__ == "__main__":
    main()

"""How good are the probabilities of single answers? Ten matrices, 20 % or 80 % of the cells hidden.

    python experiments/cells/run.py --data DATA [--draws 1-8] [--sets arc,ifeval] [--out FILE]
    python experiments/cells/run.py --summary            # of the saved table

All methods predict the same hidden cells, and learn from the others only. "2 abilities" is the
exploratory 2PL of two abilities, plugged in; only with `--abilities`, as a fit takes a minute.

`limit` is the 95 % quantile of the calibration error of simulated answers that are independent
given the predicted probabilities. `joint_limit` is that of answers simulated with factors, loadings
and intercepts drawn from their posterior: what estimation leaves uncertain is shared by the cells
of a subject and of an item. The mean of the drawn probabilities is near the predicted one.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit

import irtcat
from irtcat import agreement, leaderboard
from irtcat.leaderboard.cell_probabilities import main_effects
from irtcat.prediction.logistic_factors import PROBIT

HERE = Path(__file__).parent
SETS = {
    "swebench": "agentic_coding/responses_swebench_verified.npz",
    "mmlu": "benchpred/responses_mmlu.npz",
    "commonsense": "benchpred/responses_commonsense.npz",
    "gsm": "benchpred/responses_gsm.npz",
    "livecodebench": "livecodebench/responses.npz",
    "mmlu_pro": "mmlu_pro/responses.npz",
    "arc": "benchpred/responses_arc_challenge.npz",
    "ifeval": "benchpred/responses_ifeval.npz",
    "metabench": "metabench_openllm/responses.npz",
    "digits": None,
}
HIDDEN = (0.2, 0.8)
MOST = {"metabench": (400, None), "mmlu_pro": (None, 2000)}
"""Random subjects and items of large matrices."""

SIMULATIONS = 40


def load(folder, name):
    """Answers, 0 or 1 (shares of livecodebench rounded), NaN where missing, without duplicates."""
    if name == "digits":
        x = irtcat.datasets.load("digits_crowd").to_numpy()
    else:
        with np.load(Path(folder) / SETS[name], allow_pickle=True) as file:
            x = file["X"].astype(float)
        x[x < 0] = np.nan
        x = np.where(np.isnan(x), np.nan, x >= 0.5)
    for axis, most in enumerate(MOST.get(name, ())):
        if most is not None:
            order = np.random.default_rng(0).permutation(x.shape[axis])
            x = x.take(np.sort(order[:most]), axis=axis)
    return irtcat.Responses.from_array(x).without_duplicate_subjects().to_numpy()


def plug_in(known, **options):
    """A fitted 2PL with point estimates of items and abilities."""
    responses = irtcat.Responses.from_array(known)
    bank = irtcat.fit(responses, "2pl", standard_errors="none", **options).bank
    return bank.probability(irtcat.score(bank, responses).theta).T


def joint_limit(result, hidden, seed):
    """Quantile of the calibration error, with parameters drawn from the posterior."""
    rng = np.random.default_rng(seed)
    mean, variance = (part[hidden] for part in result.factors.log_odds())
    p = result.probability[hidden]
    centre = logit(np.clip(p, 1e-9, 1 - 1e-9)) * np.sqrt(1 + PROBIT * variance)
    errors = []
    for draw in range(SIMULATIONS):
        drawn = result.factors.draw_log_odds(1000 * seed + draw)[hidden]
        answers = rng.random(len(p)) < expit(centre + drawn - mean)
        errors.append(agreement.calibration_error(p, answers))
    return np.quantile(errors, 0.95)


def rows(name, x, share, draw, has_abilities):
    """The metrics of every method on one draw."""
    rng = np.random.default_rng([draw, int(100 * share)])
    hidden = np.isfinite(x) & (rng.random(x.shape) < share)
    known, truth = np.where(hidden, np.nan, x), x[hidden]

    def row(method, p, start, limit=np.nan):
        return {
            "data": name,
            "hidden": share,
            "draw": draw,
            "method": method,
            "log_loss": agreement.log_loss(p, truth),
            "brier": agreement.brier_score(p, truth),
            "auc": agreement.auc(p, truth),
            "calibration_error": agreement.calibration_error(p, truth),
            "limit": agreement.calibration_limit(p, draws=SIMULATIONS, seed=draw),
            "joint_limit": limit,
            "seconds": time.process_time() - start,
        }

    start = time.process_time()
    result = leaderboard.cells(known, seed=draw)
    taken = time.process_time() - start
    limit = joint_limit(result, hidden, draw)
    yield row("cells", result.probability[hidden], time.process_time() - taken, limit)
    start = time.process_time()
    p = result.factors.probabilities()[hidden]
    yield row("cells, not calibrated", p, start)
    start = time.process_time()
    yield row("2PL", plug_in(known)[hidden], start)
    start = time.process_time()
    yield row("main effects", main_effects(known)[hidden], start)
    if has_abilities:
        start = time.process_time()
        yield row("2 abilities", plug_in(known, dims=2)[hidden], start)


def summary(table):
    """Ratios of log-losses to the plug-in 2PL, and calibration errors with their limits."""
    keys = ["data", "hidden"]
    loss, area, error = (
        table.pivot_table(index=keys, columns="method", values=name)
        for name in ("log_loss", "auc", "calibration_error")
    )
    by_draw = table.pivot_table(index=[*keys, "draw"], columns="method", values="log_loss")
    same = by_draw.div(by_draw["2PL"], axis=0).groupby(keys).mean()
    ours = table[table["method"] == "cells"].groupby(keys)
    base = loss["2PL"]
    return pd.DataFrame(
        {
            "2PL": base,
            "cells": loss["cells"],
            "cells/2PL": loss["cells"] / base,
            "2 abilities/2PL": same.get("2 abilities"),
            "main effects/2PL": loss["main effects"] / base,
            "AUC": area["cells"],
            "AUC 2PL": area["2PL"],
            "error": error["cells"],
            "error 2PL": error["2PL"],
            "limit": ours["limit"].mean(),
            "joint limit": ours["joint_limit"].mean(),
            "draws": ours["draw"].count(),
        }
    )


def main():
    """Run, save after every matrix, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--draws", default="1-8")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--out", default=str(HERE / "cells.csv"))
    parser.add_argument("--abilities", action="store_true")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    path = Path(options.out)
    if not options.summary:
        first, last = map(int, options.draws.split("-"))
        for draw in range(first, last + 1):
            for name in options.sets.split(","):
                x = load(options.data, name)
                found = (rows(name, x, share, draw, options.abilities) for share in HIDDEN)
                new = pd.DataFrame(itertools.chain.from_iterable(found))
                old = [pd.read_csv(path)] if path.exists() else []
                pd.concat([*old, new.round(5)]).to_csv(path, index=False)
                print(draw, name, f"{new['seconds'].sum():.1f} s", flush=True)
    table = summary(pd.read_csv(path))
    print(table.round(4).to_string())
    ratios = np.exp(np.log(table["cells/2PL"]).groupby("hidden").mean())
    print("geometric means of cells/2PL:", ratios.round(3).to_dict())


if __name__ == "__main__":
    main()

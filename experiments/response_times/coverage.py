"""Recovery and coverage of the lognormal model of response times, jointly with ability.

    python experiments/response_times/coverage.py [--replications 200]

Items have discriminations of 1.2 to 2.6 and intensities of 3.5 (SD .4); speed has an SD of .3.
``bank`` says whether the ability model is the one that generated the responses ("true") or a 2PL
fitted to them ("fitted"). Of every parameter: bias, SD of the estimates, mean standard error and
coverage of the 95 % interval. ``theta_rmse``, ``theta_rmse_without``: error of ability with and
without times; ``theta_coverage``: of its 95 % interval. Also the share of subjects (p < .05) and of
times flagged where none is aberrant. Results go to coverage.csv.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import ItemBank
from irtcat.response_times import aberrant_times, fit_times, score_with_times

CONDITIONS = [
    # subjects, items, correlation, share missing, bank
    (500, 20, 0.5, 0.0, "true"),
    (500, 20, -0.3, 0.3, "true"),
    (200, 10, 0.5, 0.0, "true"),
    (500, 20, 0.5, 0.0, "fitted"),
]
OMEGA = 0.3


def replication(n, k, rho, missing, kind, seed):
    """Errors, standard errors and flags of one set of data."""
    rng = np.random.default_rng([seed, n, k, round(100 * abs(rho))])
    truth = ItemBank.from_parameters(a=rng.lognormal(0, 0.3, k), b=rng.normal(size=k))
    alpha, beta = rng.uniform(1.2, 2.6, k), rng.normal(3.5, 0.4, k)
    latent = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], n)
    responses = truth.simulate(latent[:, 0], seed=seed)
    times = np.exp(beta - OMEGA * latent[:, 1:] + rng.normal(size=(n, k)) / alpha)
    times[rng.random((n, k)) < missing] = np.nan
    table = pd.DataFrame(times, responses.subject_ids, responses.item_ids)
    bank = truth if kind == "true" else irtcat.fit(responses, "2pl").bank
    model = fit_times(table, responses, bank=bank)
    items = model.items
    estimates = {
        "intensity": (items["intensity"] - beta, items["intensity_se"]),
        "discrimination": (items["discrimination"] - alpha, items["discrimination_se"]),
        "speed_sd": (model.speed_sd - OMEGA, model.speed_sd_se),
        "correlation": (model.correlation - rho, model.correlation_se),
    }
    scores = score_with_times(bank, responses, model, table)
    speed = model.speed(table)
    estimates["speed"] = speed["speed"] - OMEGA * latent[:, 1], speed["se"]
    aberrant = aberrant_times(model, table)
    theta = latent[:, 0]
    return {name: np.atleast_2d(np.array(pair).T) for name, pair in estimates.items()}, {
        "theta_rmse": ((scores["theta"] - theta) ** 2).mean(),
        "theta_rmse_without": ((scores["theta_without"] - theta) ** 2).mean(),
        "theta_coverage": ((scores["lower"] < theta) & (theta < scores["upper"])).mean(),
        "subjects_p_below_05": (aberrant.subjects["p"] < 0.05).mean(),
        "times_flagged": len(aberrant.cells) / model.n_times,
        "not_converged": not model.converged,
    }


def main() -> None:
    """Run all conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    replications = parser.parse_args().replications
    rows = []
    for n, k, rho, missing, kind in CONDITIONS:
        runs = [replication(n, k, rho, missing, kind, seed) for seed in range(replications)]
        row = {"n": n, "items": k, "rho": rho, "missing": missing, "bank": kind}
        for name in runs[0][0]:
            error, se = np.concatenate([run[0][name] for run in runs]).T
            row[f"{name}_bias"] = error.mean()
            row[f"{name}_sd"] = error.std()
            row[f"{name}_se"] = np.sqrt((se**2).mean())
            row[f"{name}_coverage"] = (np.abs(error) < 1.96 * se).mean()
        means = pd.DataFrame([run[1] for run in runs]).astype(float).mean()
        for name in ("theta_rmse", "theta_rmse_without"):
            means[name] = np.sqrt(means[name])
        rows.append({**row, **means})
        print(pd.Series(rows[-1]).to_string(), flush=True)
        pd.DataFrame(rows).round(4).to_csv(Path(__file__).with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()

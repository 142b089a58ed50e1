"""How well do ten (30, 100, 300) subjects tell invalid items from valid ones?

The simulation of Lalor et al. (2024), "Finding annotation error": abilities and the difficulties of
1,000 items are U(-4, 4), valid items are answered rightly with probability sigmoid(theta - b), and
each item is invalid (answers are coin flips) with probability .05. Scores are compared by the area
under the ROC curve (chance: .5):

    bound       log-odds of invalid against valid with abilities known and b integrated over its
                distribution: the optimal detector, above which nobody gets but by knowing b
    known b     the same with each item's b known as well (no method can know it)
    -a, -|a|    low discrimination of a fitted model: signed, or whatever its sign
    rank        `irtcat.diagnose.labels.rank`, with the prior of this simulation
    item-rest   correlation of the answers with the number right on the other items (constant
                items: correlation 1, since a valid hard or easy item is what is constant)
    proportion wrong

    python experiments/tutorial_wrong_labels/run.py [--methods known,baselines,em,vi,rank]
        [--models 2pl,3pl,feasibility] [--subjects 10,30,100,300] [--seeds 50] [--out FOLDER]

Rows of (subjects, seed, method) that FOLDER/runs_METHODS_MODELS.csv has already are not made again;
`summary.py` makes the tables and the figure of all of them.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp
from scipy.stats import rankdata

import irtcat
from irtcat.diagnose import labels
from irtcat.diagnose.labels.answers import hypotheses
from irtcat.diagnose.labels.evidence import few_evidence

N_ITEMS, SHARE, REACH = 1000, 0.05, 4.0
MODELS = ("2pl", "3pl", "feasibility")
METHODS = ("known", "baselines", "em", "vi", "rank")
PRIOR = (0.001, SHARE)


def simulate(n_subjects, seed):
    """Responses, abilities, difficulties, and which items are invalid."""
    rng = np.random.default_rng(seed)
    theta, b = rng.uniform(-REACH, REACH, n_subjects), rng.uniform(-REACH, REACH, N_ITEMS)
    invalid = rng.random(N_ITEMS) < SHARE
    p = np.where(invalid, 0.5, expit(theta[:, None] - b))
    return (rng.random(p.shape) < p).astype(float), theta, b, invalid


def area(invalid, score):
    """Area under the ROC curve; ties count half."""
    ranks, n = rankdata(score), invalid.sum()
    return (ranks[invalid].sum() - n * (n + 1) / 2) / (n * (len(invalid) - n))


def at_top(invalid, score):
    """Share of the invalid items among as many as there are at the top; ties in random order."""
    order = np.lexsort((np.random.default_rng(0).random(len(score)), -score))
    return invalid[order[: invalid.sum()]].mean()


def known(X, theta, b, invalid, responses, models):
    """Likelihood ratios with known abilities, difficulties unknown or known."""
    flips = len(X) * np.log(0.5)
    grid = np.linspace(-REACH, REACH, 401)
    log_right, log_wrong = (
        np.log(expit(theta[:, None] - grid)),
        np.log(expit(grid - theta[:, None])),
    )
    valid = logsumexp(X.T @ log_right + (1 - X.T) @ log_wrong, axis=1) - np.log(len(grid))
    yield "bound", flips - valid, {}
    p = expit(theta[:, None] - b)
    yield "known b", flips - np.log(np.where(X == 1, p, 1 - p)).sum(axis=0), {}


def baselines(X, theta, b, invalid, responses, models):
    """Scores that need no model."""
    rest = X.sum(axis=1, keepdims=True) - X
    x, y = X - X.mean(axis=0), rest - rest.mean(axis=0)
    size = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    yield "item-rest", -np.where(size > 0, (x * y).sum(axis=0) / np.where(size > 0, size, 1), 1), {}
    yield "proportion wrong", 1 - X.mean(axis=0), {}


SOLVERS = {"em": irtcat.EM(), "vi": irtcat.VI(steps=1000)}


def _fitted(responses, theta, method, models, **arguments):
    for model in models:
        for positive in (False, True) if method == "em" or model == "2pl" else (True,):
            begin = time.process_time()
            fit = irtcat.fit(responses, model, SOLVERS[method], positive=positive, **arguments)
            about = {
                "seconds": time.process_time() - begin,
                "converged": fit.converged,
                "steps": fit.n_iterations,
                "theta_correlation": np.corrcoef(fit.abilities.theta, theta)[0, 1],
            }
            a = fit.bank.to_frame()["a"].to_numpy(float)
            about |= {"a_median": np.median(a), "a_largest": np.abs(a).max()}
            name = f"{model} {method}{', a > 0' if positive else ''}"
            yield f"{name}: -a", -a, about
            if not positive:
                yield f"{name}: -|a|", -np.abs(a), about
            if model == "feasibility":
                yield f"{name}: -lambda", -fit.bank.to_frame()["d"].to_numpy(float), about


def em(X, theta, b, invalid, responses, models):
    """Discrimination by EM."""
    yield from _fitted(responses, theta, "em", models, standard_errors="none")


def vi(X, theta, b, invalid, responses, models):
    """Discrimination by variational inference."""
    yield from _fitted(responses, theta, "vi", models)


def rank(X, theta, b, invalid, responses, models):
    """The diagnostics' suspicion, and how well it counts the invalid items."""
    begin = time.process_time()
    if len(X) < 50:  # what `labels.rank` orders by, without the bank that it fits besides
        evidence = few_evidence(X, PRIOR)
        table = hypotheses(evidence, PRIOR)
    else:
        table = labels.rank(responses, prior=PRIOR, by="answers").table.loc[responses.item_ids]
    suspicion = table["suspicion"].to_numpy()
    p = np.clip(suspicion, 1e-9, 1 - 1e-9)
    about = {
        "seconds": time.process_time() - begin,
        "expected_invalid": suspicion.sum(),
        "log_loss": -np.where(invalid, np.log(p), np.log1p(-p)).mean(),
    }
    yield "rank", table["log_odds"].to_numpy(), about


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--subjects", default="10,30,100,300")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    methods, models = options.methods.split(","), options.models.split(",")
    path = options.out / f"runs_{'_'.join(methods + models)}.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    done = {(row["subjects"], row["seed"]) for row in rows}
    for n in map(int, options.subjects.split(",")):
        for seed in (s for s in range(options.seeds) if (n, s) not in done):
            X, theta, b, invalid = simulate(n, seed)
            data = X, theta, b, invalid, irtcat.Responses.from_array(X), models
            for method in methods:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for name, score, about in globals()[method](*data):
                        row = {"subjects": n, "seed": seed, "invalid": int(invalid.sum())}
                        row |= {"method": name, "auc": area(invalid, score)}
                        rows.append({**row, "at_top": at_top(invalid, score), **about})
            pd.DataFrame(rows).to_csv(path, index=False, float_format="%.5g")
            print(n, seed, flush=True)


if __name__ == "__main__":
    main()

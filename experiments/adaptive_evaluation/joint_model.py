"""Would an adaptive choice beat a fixed subset? A prototype of a joint model of items and models.

    python experiments/adaptive_evaluation/joint_model.py --data DATA [--draws 8] [--out FILE]
    python experiments/adaptive_evaluation/joint_model.py --join PART.csv ...  # runs in one

Sessions of irtcat choose items by the curves of one ability, fixed subsets by the responses of all
calibrated models. Here sessions choose by a logistic factor model of these responses: log-odds
``b_j + a_j z_i`` with z ~ N(0, I), loadings with a prior of their own SD for each dimension
(Bishop 1999), fitted by the bound of Jaakkola & Jordan (2000). The first third of the items are
those of "score-optimal"; then each item is the one whose answer is expected to reduce the variance
of the full score most, by the Normal approximation of the posterior of z.

The full score is predicted by the factor model, by ridge regression on the model's own items
(penalty by cross-validation), and by the mean of both. "1 ability" has one dimension. Columns are
mean absolute errors over those of the better fixed subset in each cell: `irtcat.select` and
`irtcat.predict` with ``expect`` None or "similar". Held out are a random quarter of the models, at
most 40 of them. Not part of the library.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit

import irtcat
from irtcat import leaderboard
from irtcat.cat import Config, replay
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.task import filled_scores

HERE = Path(__file__).parent
SETS = {
    "gsm": "benchpred/responses_gsm.npz",
    "commonsense": "benchpred/responses_commonsense.npz",
    "mmlu": "benchpred/responses_mmlu.npz",
    "swebench": "agentic_coding/responses_swebench_verified.npz",
    "alpaca": "alpaca_eval/responses.npz",
    "arc": "benchpred/responses_arc_challenge.npz",
    "ifeval": "benchpred/responses_ifeval.npz",
    "metabench": "metabench_openllm/responses.npz",
}
LENGTHS = (10, 30, 100)
CORE = 0.3
DIMENSIONS = (1, 2, 4, 8, 16)
PENALTIES = np.geomspace(1e-2, 10**1.5, 12)
FOLDS, HELD_OUT, MOST = 5, 40, 700


class FactorModel:
    """A logistic factor model of complete scores from 0 to 1, fitted by variational EM."""

    def __init__(self, x, dims, rounds=40):
        n, m = x.shape
        share = np.clip((x.sum(axis=0) + 0.5) / (n + 1), 0.01, 0.99)
        u, s, vt = np.linalg.svd((x - share) / np.sqrt(share * (1 - share)), full_matrices=False)
        dims = min(dims, len(s) - 1)
        self.b, self.a = logit(share), vt[:dims].T * s[:dims] / np.sqrt(n)
        mean = u[:, :dims] * np.sqrt(n)
        cov = np.tile(0.1 * np.eye(dims), (n, 1, 1))
        variance = np.ones(dims)  # of the loadings
        for _ in range(rounds):
            weight = 2 * self._bound(mean, cov)
            cov = np.linalg.inv(np.eye(dims) + (weight @ self._squares()).reshape(n, dims, dims))
            mean = np.einsum("nij,nj->ni", cov, (x - 0.5 - weight * self.b) @ self.a)
            z = np.column_stack([np.ones(n), mean])
            square = z[:, :, None] * z[:, None, :]
            square[:, 1:, 1:] += cov
            weight = 2 * self._bound(mean, cov)
            precision = (weight.T @ square.reshape(n, -1)).reshape(m, dims + 1, dims + 1)
            spread = np.linalg.inv(precision + np.diag([0.1, *(1 / variance)]))
            beta = np.einsum("mij,mj->mi", spread, (x - 0.5).T @ z)
            self.b, self.a = beta[:, 0], beta[:, 1:]
            own = np.diagonal(spread, axis1=1, axis2=2)[:, 1:]
            variance = np.maximum((self.a**2 + own).mean(axis=0), 1e-4)
            # The latent mean and covariance are moved into the items (parameter expansion).
            shift, root = (
                mean.mean(axis=0),
                np.linalg.cholesky(
                    np.cov(mean.T, bias=True).reshape(dims, dims) + cov.mean(axis=0)
                ),
            )
            self.b, self.a = self.b + self.a @ shift, self.a @ root
            inverse = np.linalg.inv(root)
            mean, cov = (mean - shift) @ inverse.T, inverse @ cov @ inverse.T

    def _squares(self):
        return (self.a[:, :, None] * self.a[:, None, :]).reshape(len(self.a), -1)

    def _bound(self, mean, cov):
        eta = self.b + mean @ self.a.T
        xi = np.sqrt(eta**2 + cov.reshape(len(cov), -1) @ self._squares().T)
        xi = np.maximum(xi, 1e-4)
        return np.tanh(xi / 2) / (4 * xi)

    def posterior(self, asked, x, mean=None, steps=6):
        """Mode and covariance of z given the answers, by Newton steps."""
        n, dims = len(x), self.a.shape[1]
        mean = np.zeros((n, dims)) if mean is None else mean
        for step in range(steps + 1):
            p = expit(self.b + mean @ self.a.T)
            weight = np.where(asked, p * (1 - p), 0.0)
            precision = np.eye(dims) + (weight @ self._squares()).reshape(n, dims, dims)
            if step == steps:
                return mean, np.linalg.inv(precision)
            gradient = np.where(asked, x - p, 0.0) @ self.a - mean
            move = np.linalg.solve(precision, gradient[..., None])[..., 0]
            mean = mean + move * np.minimum(1, 1.5 / np.maximum(np.abs(move).max(1), 1e-9))[:, None]

    def scores(self, asked, x, mean, cov):
        """Expected full scores: answers as they are, the other items by their expectation."""
        variance = cov.reshape(len(cov), -1) @ self._squares().T
        p = expit((self.b + mean @ self.a.T) / np.sqrt(1 + np.pi / 8 * variance))
        return np.where(asked, x, p).mean(axis=1)

    def gains(self, asked, mean, cov):
        """Expected reduction of the variance of the sum of all answers by each item."""
        p = expit(self.b + mean @ self.a.T)
        weight = p * (1 - p)
        slope = np.where(asked, 0.0, weight) @ self.a
        with_sum = weight * (np.einsum("nij,nj->ni", cov, slope) @ self.a.T + 1)
        variance = weight + weight**2 * (cov.reshape(len(cov), -1) @ self._squares().T)
        return np.where(asked, -1.0, with_sum**2 / np.maximum(variance, 1e-12))

    def session(self, x, n_items, first):
        """Which items each model is asked, and the posterior after them."""
        asked = np.zeros(x.shape, bool)
        asked[:, first] = True
        mean, cov = self.posterior(asked, x)
        rows = np.arange(len(x))
        for _ in range(n_items - len(first)):
            asked[rows, self.gains(asked, mean, cov).argmax(axis=1)] = True
            mean, cov = self.posterior(asked, x, mean, steps=2)
        return asked, *self.posterior(asked, x, mean)


def ridge(known, target, fold, items, answers):
    """Ridge regression of the full score on some items, the penalty by cross-validation."""
    x = known[:, items]
    loss = np.zeros(len(PENALTIES))
    for f in range(FOLDS):
        out = fold == f
        intercept, slopes = ridge_path(x[~out], target[~out], PENALTIES)
        loss += ((intercept + x[out] @ slopes - target[out, None]) ** 2).sum(axis=0)
    intercept, slopes = ridge_path(x, target, PENALTIES[[loss.argmin()]])
    return float(intercept[0] + answers @ slopes[:, 0])


def load(folder, name):
    """Responses without duplicates; of metabench complete rows, at most so many."""
    if name == "digits":
        return irtcat.datasets.load("digits_crowd")
    with np.load(Path(folder) / SETS[name], allow_pickle=True) as file:
        x = file["X"]
    if name == "metabench":
        x = x[(x >= 0).all(axis=1)]
        x = x[np.random.default_rng(0).permutation(len(x))[:MOST]]
    if x.dtype.kind == "f":
        x = np.clip(x, 0, 1)
    return irtcat.Responses.from_array(x).without_duplicate_subjects()


def errors(data, seed, dims):
    """Mean absolute errors in points, by length and way, of one draw."""
    old, new = leaderboard.split_subjects(data, "random", seed)
    drawn = np.random.default_rng(seed).permutation(new.n_subjects)[:HELD_OUT]
    new = new.subset(subjects=np.sort(drawn))
    known, x = (filled_scores(r).astype(float) for r in (old, new))
    target, truth = leaderboard.full_scores(old), leaderboard.full_scores(new)
    fold = np.random.default_rng(7).permutation(len(known)) % FOLDS
    models = {d: FactorModel(known, d) for d in dims}
    place = {item: j for j, item in enumerate(old.item_ids)}

    def row(k, way, score):
        return {"k": k, "way": way, "mae": 100 * np.abs(score - truth).mean()}

    bank = irtcat.fit(old, standard_errors="none").bank if old.is_binary else None
    for expect in (None, "similar") if bank is not None else ():
        config = Config.for_evaluation(max(LENGTHS), expect)
        report = replay(bank, new, config, seed, precision="float32")
        for k in LENGTHS:
            yield row(k, f"irtcat session, {expect}", report.predict(bank, old, k).score)
    for k in LENGTHS:
        for expect in (None, "similar"):
            subset = irtcat.select(None, k, calibration=old, expect=expect, seed=seed)
            answers = new.subset(items=subset.item_ids)
            yield row(
                k, f"fixed, {expect}", irtcat.predict(old, subset, answers, expect=expect).score
            )
        n_first = int(np.ceil(CORE * k))
        core = irtcat.select(None, n_first, strategy="score-optimal", calibration=old)
        first = [place[item] for item in core.item_ids]
        for d, model in models.items():
            asked, mean, cov = model.session(x, k, first)
            by_factors = model.scores(asked, x, mean, cov)
            by_ridge = np.array(
                [
                    ridge(known, target, fold, np.flatnonzero(items), answers[items])
                    for items, answers in zip(asked, x, strict=True)
                ]
            )
            yield row(k, f"{d:2d} dimensions, factors", by_factors)
            yield row(k, f"{d:2d} dimensions, ridge", by_ridge)
            yield row(k, f"{d:2d} dimensions, mean of both", (by_factors + by_ridge) / 2)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--join", nargs="+")
    parser.add_argument("--sets", default=",".join(["digits", *SETS]))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--dims", default=",".join(map(str, DIMENSIONS)))
    parser.add_argument("--out", default=str(HERE / "joint_model.csv"))
    options = parser.parse_args()
    if options.join:
        parts = [pd.read_csv(path, index_col=["data", "k"]) for path in options.join]
        save(pd.concat(parts), options.out)
        return
    dims = [int(d) for d in options.dims.split(",")]
    rows = []
    for name in options.sets.split(","):
        data = load(options.data, name)
        for seed in range(options.draws):
            rows += [{"data": name, **row} for row in errors(data, seed, dims)]
        print(name, flush=True)
    table = pd.DataFrame(rows).pivot_table(index=["data", "k"], columns="way", values="mae")
    save(table, options.out)


def save(table, path):
    """Write the mean errors, and print the ratios."""
    table.round(3).to_csv(path)
    print(summary(table).to_string())


def summary(table):
    """Geometric means over the data of the ratios to the better fixed subset, by length."""
    fixed = table[["fixed, None", "fixed, similar"]].min(axis=1)
    log_ratio = np.log(table.div(fixed, axis=0))
    by_length = np.exp(log_ratio.groupby("k").mean()).T
    return by_length.assign(all=np.exp(log_ratio.mean()), largest=np.exp(log_ratio.max())).round(3)


if __name__ == "__main__":
    main()

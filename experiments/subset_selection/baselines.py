"""Published methods that irtcat does not have: mRMR with kernel ridge regression, and SparseEval.

Written from the papers' descriptions. Both take the calibrated subjects' scores x (subjects x
items) and full scores y, and predict new subjects' full scores from their scores on k items.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neural_network import MLPRegressor

ROUNDS, SHARE = 5, 0.2
"""SparseEval: rounds of refinement, and the share of the anchors that each may replace."""


def information(correlation):
    """Mutual information of two Normal variables, from their correlation."""
    return -0.5 * np.log(1 - np.minimum(correlation**2, 0.9999))


def standardised(x):
    """Columns with mean 0 and SD 1; constant ones are 0."""
    centred = x - x.mean(axis=0)
    sd = np.sqrt((centred**2).mean(axis=0))
    return np.divide(centred, sd, out=np.zeros_like(centred), where=sd > 1e-9)


def mrmr(x, y, k):
    """The k items of greatest relevance for y per redundancy with those chosen before.

    Bowyer, Locatelli & Cao (2026), arXiv 2605.25773, with the quotient of mutual informations: of
    the usual forms of mRMR the best here on four of the data sets.
    """
    z, target = standardised(x), standardised(y[:, None])[:, 0]
    relevance = information(z.T @ target / len(y))
    usable = z.any(axis=0)
    redundancy, taken, chosen = np.zeros(x.shape[1]), ~usable, []
    for step in range(k):
        value = relevance if step == 0 else relevance / np.maximum(redundancy / step, 1e-3)
        if taken.all():  # only constant items are left
            chosen += [j for j in np.flatnonzero(~usable) if j not in chosen][: k - step]
            break
        item = int(np.argmax(np.where(taken, -np.inf, value)))
        chosen.append(item)
        taken[item] = True
        redundancy += information(z.T @ z[:, item] / len(y))
    return np.array(chosen)


def kernel_ridge(x, y, new, seed):
    """Kernel ridge regression; kernel and penalties by five-fold cross-validation."""
    k, mean = x.shape[1], y.mean()
    radial = {
        "kernel": ["rbf"],
        "gamma": [g / k for g in (0.03, 0.1, 0.3, 1)],
        "alpha": [0.01, 0.1, 0.3, 1, 3],
    }
    polynomial = {
        "kernel": ["poly"],
        "degree": [2, 3],
        "gamma": [1 / k],
        "coef0": [1],
        "alpha": [0.003, 0.01, 0.03, 0.1, 0.3, 1],
    }
    folds = KFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(
        KernelRidge(), [radial, polynomial], cv=folds, scoring="neg_mean_squared_error"
    )
    return search.fit(x, y - mean).predict(new) + mean


def sparse_eval(x, y, new, k, seed):
    """Learned anchors and weights: a network on the anchors' answers, anchors exchanged in rounds.

    Zhang et al. (2026), arXiv 2602.07909. In each round the anchors of least importance (norm of
    their weights in the first layer) are replaced by the items that correlate most with the errors.
    """
    rng = np.random.default_rng(seed)
    varying = np.flatnonzero(x.std(axis=0) > 1e-9)
    k = min(k, len(varying))
    chosen = rng.permutation(varying)[:k]
    z, centre, spread = standardised(x), y.mean(), max(y.std(), 1e-9)

    def fitted():
        network = MLPRegressor(hidden_layer_sizes=(64,), alpha=1.0, max_iter=400, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return network.fit(x[:, chosen], (y - centre) / spread)

    network = fitted()
    n_exchanged = max(1, int(SHARE * k))
    for _ in range(ROUNDS):
        error = y - centre - spread * network.predict(x[:, chosen])
        importance = np.linalg.norm(network.coefs_[0], axis=1) * x[:, chosen].std(axis=0)
        kept = chosen[np.argsort(-importance)[: k - n_exchanged]]
        gain = np.abs(z.T @ error)
        gain[kept] = -1
        chosen = np.concatenate([kept, np.argsort(-gain)[:n_exchanged]])
        network = fitted()
    return centre + spread * network.predict(new(chosen))

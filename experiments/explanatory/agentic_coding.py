"""Tasks that no agent has tried: who solves them, by features of the tasks.

    python experiments/explanatory/agentic_coding.py --data ../shared/data/agentic_coding
                                                     [--seeds 10] [--out agentic_coding.csv]
                                                     [--sets "ratings + curves" ...]

Protocol of Ge et al. (2026), arXiv 2604.00594: five folds over tasks; items and abilities come
from the training tasks alone; AUC of all agent x task cells of the test fold, mean over folds and
seeds. The 15 ratings of each task by a language model were chosen on these data, and some saw the
solution. "curves" are random Fourier features of the ratings (Rahimi & Recht 2007), for smooth
functions of all of them with lengths of 1 and 3 SDs a rating, a block of columns each. "oracle"
knows the difficulties of a 1PL with the responses of the test tasks. "two steps" is a ridge of the
difficulties of a plain 1PL on the same features, with one penalty.
"coverage" is the share of test tasks whose number of solutions is within the 95 % interval that
was predicted for it (randomised within ties, so that exact intervals cover 95 %).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score

import irtcat

PUBLISHED = {
    "swebench_verified": {"none": 0.718, "ratings": 0.841},
    "gso": {"none": 0.714, "ratings": 0.786, "ratings + embeddings": 0.804},
}
PENALTIES = np.logspace(-1, 4, 21)
N_DRAWS = 400
LENGTHS = (1.0, 3.0)
N_WAVES = 200


def sets_of(folder: Path, name: str, items: np.ndarray) -> dict[str, dict[str, pd.DataFrame]]:
    """Tables of features by name of the set."""
    ratings = pd.read_csv(folder / f"features_{name}.csv").set_index("instance_id").loc[items]
    repository = pd.DataFrame({"repository": [i.rsplit("-", 1)[0] for i in items]}, index=items)
    z = (ratings - ratings.mean()) / ratings.std()
    curves = {}
    for length in LENGTHS:
        waves = RBFSampler(
            gamma=0.5 / (length**2 * z.shape[1]), n_components=N_WAVES, random_state=0
        )
        table = pd.DataFrame(waves.fit_transform(z), index=items)
        curves[f"curves {length:g}"] = table.add_prefix(f"w{length:g}_")
    sets = {
        "ratings": {"ratings": ratings},
        "ratings + curves": {"ratings": ratings, **curves},
        "ratings + repository": {"ratings": ratings, "where": repository},
    }
    path = folder / f"embeddings_{name}.npz"
    if path.exists():
        packed = np.load(path)
        table = pd.DataFrame(packed["X"].astype(float), index=packed["task_ids"].astype(str))
        table = table.loc[items].add_prefix("e")
        sets["ratings + embeddings"] = {"ratings": ratings, "embedding": table}
        everything = {"ratings": ratings, **curves, "embedding": table}
        sets["ratings + curves + embeddings"] = everything
    return sets


def rows(tables: dict[str, pd.DataFrame], items: np.ndarray) -> dict[str, pd.DataFrame]:
    return {name: table.loc[items] for name, table in tables.items()}


def auc(x: np.ndarray, p: np.ndarray) -> float:
    """Area under the curve over all cells."""
    return float(roc_auc_score(x.ravel(), p.ravel()))


def two_steps(plain: irtcat.Fit, tables: dict, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Difficulties of the test tasks by a ridge of those of the training tasks."""
    numbers = pd.concat([pd.get_dummies(table, dtype=float) for table in tables.values()], axis=1)
    z = (numbers - numbers.loc[train].mean()) / numbers.loc[train].std().replace(0, 1)
    ridge = RidgeCV(PENALTIES).fit(z.loc[train], plain.bank.to_frame()["b"])
    return ridge.predict(z.loc[test])


def is_covered(x: np.ndarray, new: irtcat.ItemBank, theta: np.ndarray, rng) -> np.ndarray:
    """Whether each task's number of solutions is within its 95 % interval."""
    params = new.parameters()
    sd = np.sqrt(np.einsum("jpp->jp", np.nan_to_num(new.covariance)))
    draws = params + sd * rng.standard_normal((N_DRAWS, *params.shape))
    p = expit(draws[..., :1] * theta + draws[..., 1:])
    counts = (rng.random(p.shape) < p).sum(axis=-1)
    solved = x.sum(axis=0)
    below = (counts < solved).mean(axis=0)
    place = below + rng.random(len(solved)) * (counts == solved).mean(axis=0)
    return (place > 0.025) & (place < 0.975)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--models", nargs="*", default=["1pl", "2pl"])
    parser.add_argument("--sets", nargs="+", help="names of sets of features; all by default")
    parser.add_argument("--names", nargs="+", default=list(PUBLISHED))
    parser.add_argument("--out")
    options = parser.parse_args()
    table = []
    for name in options.names:
        published = PUBLISHED[name]
        packed = np.load(options.data / f"responses_{name}.npz", allow_pickle=True)
        x, items = packed["X"], packed["items"].astype(str)
        sets = sets_of(options.data, name, items)
        sets = {key: value for key, value in sets.items() if key in (options.sets or sets)}
        everything = irtcat.Responses.from_array(x, item_ids=items)
        oracle = irtcat.fit(everything, "1pl", standard_errors="none").bank.to_frame()["b"]
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            folds = np.array_split(rng.permutation(len(items)), 5)
            by_fold: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for fold in folds:
                rest = np.setdiff1d(np.arange(len(items)), fold)
                train, test = items[rest], items[fold]
                r = irtcat.Responses.from_array(
                    x[:, rest], item_ids=train, subject_ids=packed["subjects"].astype(str)
                )
                plain = irtcat.fit(r, "1pl", standard_errors="none")
                theta = plain.abilities.theta
                flat = np.tile(theta[:, None], len(test))
                by_fold.setdefault(("none", "1pl"), []).append((auc(x[:, fold], flat), np.nan))
                best = auc(x[:, fold], theta[:, None] - oracle.loc[test].to_numpy())
                by_fold.setdefault(("none", "oracle"), []).append((best, np.nan))
                for label, tables in sets.items():
                    b = two_steps(plain, tables, train, test)
                    here = auc(x[:, fold], theta[:, None] - b)
                    by_fold.setdefault((label, "two steps"), []).append((here, np.nan))
                    for model in options.models:
                        f = irtcat.fit(
                            r, model, item_features=rows(tables, train), standard_errors="none"
                        )
                        if not f.converged:
                            print(name, label, model, f.message)
                        new = f.predict_items(rows(tables, test))
                        ability = f.abilities.theta
                        p = new.expected_curves().probability(ability).T
                        covered = is_covered(x[:, fold], new, ability, rng).mean()
                        here = auc(x[:, fold], p)
                        by_fold.setdefault((label, model), []).append((here, covered))
            for key, values in by_fold.items():
                found.setdefault(key, []).append(tuple(np.mean(values, axis=0)))
        for (label, method), values in found.items():
            aucs, covered = np.array(values).T
            table.append(
                {
                    "data": name,
                    "features": label,
                    "method": method,
                    "auc": round(aucs.mean(), 4),
                    "sd_of_seeds": round(aucs.std(), 4),
                    "coverage": round(covered.mean(), 3),
                    "published": published.get(label, np.nan),
                }
            )
    result = pd.DataFrame(table)
    print(result.to_string(index=False))
    if options.out:
        result.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()

"""ML and MAP on likelihoods with several maxima: the estimate against a grid of 16,001 abilities.

10,000 random patterns (right or wrong at even odds, so that many contradict the item curves) to
3 to 12 items of the 3PL and of the 4PL. "missed" counts the estimates that some grid point beats
by more than 1e-10 in log-likelihood (ML) or log-posterior (MAP); "local_search_missed" the same
for Newton steps from the prior's mean alone, as packages take them.

python experiments/cat/several_maxima.py [--quick]
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat import ItemBank
from irtcat._common.precision import precision
from irtcat.cat import Config, prepare
from irtcat.cat.engine import engine
from irtcat.cat.rules.estimators import estimate

HERE = Path(__file__).parent
ITEMS, LOW, HIGH = 12, -4.0, 4.0
PRIOR_SD = 3.0  # under N(0, 1) these posteriors have one mode


def random_bank(model, rng):
    a, b = rng.uniform(0.6, 2.5, ITEMS), rng.normal(0, 1.2, ITEMS)
    c = rng.uniform(0.05, 0.35, ITEMS)
    d = rng.uniform(0.75, 0.98, ITEMS) if model == "4pl" else 1.0
    return ItemBank.from_parameters(a, b, c, d)


def estimates(bank, method, items, answers):
    config = Config(method=method, constant="bound", theta_bounds=(LOW, HIGH), max_items=ITEMS)
    pool = prepare(bank, config)

    @jax.jit
    def all_of_them(pool, items, answers):
        prior = jnp.asarray([0.0, PRIOR_SD])

        def one(items, answers):
            here = (items >= 0)[:, None]
            state = engine.blank(pool, config, prior, None, jnp.zeros(2, "uint32"))._replace(
                log_like=jnp.where(here, pool.log_p[items, jnp.maximum(answers, 0)], 0).sum(0),
                information=jnp.where(here, pool.information[items], 0).sum(0),
                items=items,
                answers=answers,
            )
            return estimate(engine.context_of(pool, config, state)).theta

        return jax.vmap(one)(items, answers)

    return np.asarray(all_of_them(pool, items, answers))


def objective(bank, right, seen, theta, prior):
    """Log-likelihood (or log-posterior) of each row at each ability, or at its own."""
    p = bank.probability(np.ravel(theta))
    own = np.ndim(theta) == 1 and len(theta) == len(right)
    parts = (right, np.log(p)), (seen - right, np.log1p(-p))
    total = sum((w * c.T).sum(axis=1) if own else w @ c for w, c in parts)
    return total - prior * 0.5 * np.asarray(theta) ** 2


def newton_alone(bank, right, seen, prior):
    """Newton's method from 0, steps of at most 1, as a package without a grid does it."""
    step = 1e-4
    theta = np.zeros(len(right))
    for _ in range(60):
        at = [objective(bank, right, seen, theta + k * step, prior) for k in (-1, 0, 1)]
        slope, bend = (at[2] - at[0]) / (2 * step), (at[2] - 2 * at[1] + at[0]) / step**2
        move = np.where(bend < 0, -slope / np.minimum(bend, -1e-9), np.sign(slope))
        theta = np.clip(theta + np.clip(move, -1, 1), LOW, HIGH)
    return theta


def main():
    n = 500 if "--quick" in sys.argv else 10_000
    grid = np.linspace(LOW, HIGH, 16_001)
    rows = []
    for model in ("3pl", "4pl"):
        rng = np.random.default_rng(1)
        bank = random_bank(model, rng)
        x = rng.integers(0, 2, (n, ITEMS))
        keep = np.arange(ITEMS) < rng.integers(3, ITEMS + 1, n)[:, None]
        items = np.where(keep, np.arange(ITEMS), -1).astype(np.int32)
        answers = np.where(keep, x, -1).astype(np.int32)
        right, seen = np.where(keep, x, 0).astype(float), keep.astype(float)
        for method in ("ml", "map"):
            prior = (method == "map") / PRIOR_SD**2
            with precision("float64"):
                theta = estimates(bank, method, items, answers)
            best, peaks = np.empty(n), np.empty(n, int)
            for some in np.array_split(np.arange(n), max(1, n // 250)):
                values = objective(bank, right[some], seen[some], grid, prior)
                best[some] = values.max(axis=1)
                padded = np.pad(values, ((0, 0), (1, 1)), constant_values=-np.inf)
                higher = (values > padded[:, :-2]) & (values > padded[:, 2:])
                peaks[some] = higher.sum(axis=1)
            loss = best - objective(bank, right, seen, theta, prior)
            local = best - objective(
                bank, right, seen, newton_alone(bank, right, seen, prior), prior
            )
            rows.append(
                {
                    "model": model,
                    "method": method,
                    "patterns": n,
                    "several_maxima": int((peaks > 1).sum()),
                    "missed": int((loss > 1e-10).sum()),
                    "worst_loss": float(max(loss.max(), 0.0)),
                    "local_search_missed": int((local > 1e-3).sum()),
                }
            )
            print(rows[-1], flush=True)
    if n == 10_000:
        pd.DataFrame(rows).to_csv(HERE / "several_maxima.csv", index=False)


if __name__ == "__main__":
    main()

"""Components of variance of repeated trials by REML, written to reruns_components.json.

    python tests/reference/reruns_components.py tests/reference/reruns_components.json

Needs statsmodels, which irtcat does not. Subjects, items, their interaction and runs within
subjects are random; the scores are those of a metric from 0 to 1.
"""

import json
import sys
import warnings

import numpy as np
import pandas as pd
import statsmodels
import statsmodels.api as sm
from statsmodels.stats.proportion import proportion_confint

N_SUBJECTS, N_ITEMS, N_RUNS = 7, 11, 4
SDS = {"subject": 0.08, "item": 0.1, "pair": 0.06, "run": 0.04, "trial": 0.05}


def simulated(seed: int) -> np.ndarray:
    """Scores, subjects x items x runs, rounded so that all digits are in the file."""
    rng = np.random.default_rng(seed)
    shape = (N_SUBJECTS, N_ITEMS, N_RUNS)
    scores = 0.5 + SDS["trial"] * rng.normal(size=shape)
    for name, axes in (("subject", (0,)), ("item", (1,)), ("pair", (0, 1)), ("run", (0, 2))):
        sizes = [shape[axis] if axis in axes else 1 for axis in range(3)]
        scores = scores + SDS[name] * rng.normal(size=sizes)
    return np.clip(scores, 0, 1).round(3)


def reml(scores: np.ndarray) -> dict[str, float]:
    """REML estimates of the components; NaN scores are left out."""
    m, i, t = np.indices(scores.shape).reshape(3, -1)
    frame = pd.DataFrame(
        {"y": scores.ravel(), "m": m, "i": i, "mi": m * 1000 + i, "mt": m * 1000 + t, "all": 1}
    ).dropna()
    columns = {"subject": "m", "item": "i", "subject x item": "mi", "run": "mt"}
    terms = {name: f"0 + C({column})" for name, column in columns.items()}
    model = sm.MixedLM.from_formula("y ~ 1", frame, groups="all", vc_formula=terms, re_formula="0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(reml=True, method=["lbfgs", "powell"], maxiter=2000)
    found = dict(zip(model.exog_vc.names, fit.vcomp.tolist(), strict=True))
    return {**found, "trial": float(fit.scale)}


complete = simulated(20)
scores = complete.copy()
rng = np.random.default_rng(21)
scores[rng.random(scores.shape) < 0.15] = np.nan
wilson = {
    f"{k} of {n}": proportion_confint(k, n, alpha=0.05, method="wilson")
    for k, n in ((0, 40), (13, 40), (40, 40))
}
document = {
    "program": f"statsmodels {statsmodels.__version__}",
    "scores": complete.tolist(),
    "complete": reml(complete),
    "missing": np.argwhere(np.isnan(scores)).tolist(),
    "incomplete": reml(scores),
    "wilson": wilson,
}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(document, file)
    file.write("\n")
print(document["complete"], document["incomplete"], wilson)

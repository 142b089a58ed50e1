"""Comparisons of paired scores, written to paired_comparison.json.

    python tests/reference/paired_comparison.py tests/reference/paired_comparison.json

Needs statsmodels, which irtcat does not. Two models have scores on items in groups of equal size:
there CR1, which statsmodels has, equals CR2.
"""

import json
import sys

import numpy as np
import statsmodels
import statsmodels.api as sm
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired

N_CLUSTERS, SIZE, MARGIN, LEVEL = 12, 10, 0.05, 0.95

rng = np.random.default_rng(5)
shared = np.repeat(rng.normal(0, 0.05, N_CLUSTERS), SIZE)
old = rng.uniform(0.2, 0.8, N_CLUSTERS * SIZE)
scores = np.clip([old, old + 0.02 + shared + rng.normal(0, 0.08, len(old))], 0, 1)
scores = np.round(128 * scores) / 128  # exact in single precision
difference = scores[1] - scores[0]
clusters = np.repeat(np.arange(N_CLUSTERS), SIZE)
ols = sm.OLS(difference, np.ones(len(difference)))
robust = ols.fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
p_equivalent, lower, upper = ttost_paired(scores[1], scores[0], -MARGIN, MARGIN)
seeds = np.round(128 * rng.uniform(0.4, 0.6, (7, 40))) / 128
welch = CompareMeans(DescrStatsW(seeds[4:].mean(axis=1)), DescrStatsW(seeds[:4].mean(axis=1)))
t, p, df = welch.ttest_ind(usevar="unequal")
document = {
    "program": f"statsmodels {statsmodels.__version__}",
    "scores": scores.tolist(),
    "clusters": clusters.tolist(),
    "level": LEVEL,
    "clustered": {
        "se": float(robust.bse[0]),
        "df": N_CLUSTERS - 1,
        "p_value": float(robust.pvalues[0]),
        "interval": robust.conf_int(1 - LEVEL)[0].tolist(),
    },
    "margin": MARGIN,
    "tost": {"p_value": float(p_equivalent), "lower": float(lower[1]), "upper": float(upper[1])},
    "seeds": seeds.tolist(),
    "n_old": 4,
    "welch": {
        "p_value": float(p),
        "df": float(df),
        "interval": [float(end) for end in welch.tconfint_diff(1 - LEVEL, usevar="unequal")],
    },
}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(document, file)
    file.write("\n")
print({name: document[name] for name in ("clustered", "tost", "welch")})

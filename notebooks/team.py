# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # For a team: five benchmarks and one budget
#
# A team measures every new model on five benchmarks of 200 items each. Some are cheap, such as
# questions with four options; one is expensive, since an agent works for minutes on each task. Here
# 300 models are simulated, so that the truth is known: the abilities that the benchmarks measure
# are correlated, and a fifth of the older models never ran the expensive one.

# %%
# %matplotlib inline
import numpy as np
import pandas as pd

import irtcat
from irtcat import leaderboard, plot

rng = np.random.default_rng(7)
names = ["knowledge", "maths", "code", "agent", "safety"]
cost = {"knowledge": 0.01, "maths": 0.05, "code": 0.10, "agent": 2.0, "safety": 0.02}  # dollars
shared = np.array([0.9, 0.9, 0.85, 0.8, 0.4])
ability = shared * rng.normal(size=(300, 1)) + np.sqrt(1 - shared**2) * rng.normal(size=(300, 5))
of = np.repeat(np.arange(5), 200)
logit = ability[:, of] * rng.lognormal(0.2, 0.4, 1000) + rng.normal(0, 1.3, 1000)
answers = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)

items = pd.DataFrame({"benchmark": np.array(names)[of]})
items["cost"] = items["benchmark"].map(cost)
items.index = [f"{name}-{j}" for j, name in enumerate(items["benchmark"])]
models = [f"model{i}" for i in range(300)]
known = answers.copy()
known[:50, of == 3] = np.nan
old = irtcat.Responses.from_array(known[:250], models[:250], items.index, items=items)
new = irtcat.Responses.from_array(answers[250:], models[250:], items.index, items=items)
truth = pd.DataFrame(
    {name: new.to_numpy()[:, of == k].mean(axis=1) for k, name in enumerate(names)}, models[250:]
)
print(old)
print(f"All items of one model cost ${items['cost'].sum():.0f}.")

# %% [markdown]
# ## One bank
#
# `fit_benchmarks` calibrates the items of each benchmark, and the correlations of their abilities.
# It compares free correlations with one general ability by models that are left out.

# %%
fit = irtcat.fit_benchmarks(old)
print(fit)
print(fit.comparison.round(3))
fit.correlations.round(2)

# %% [markdown]
# ## A budget of 20 dollars
#
# The team can pay for 8 tasks of the agent, and 22 items of every other benchmark.

# %%
subset = irtcat.select(
    fit,
    96,
    calibration=old,
    groups="benchmark",
    quotas={name: 8 if name == "agent" else 22 for name in names},
    costs="cost",
    budget=20,
)
print(f"{len(subset.item_ids)} items, ${items.loc[subset.item_ids, 'cost'].sum():.2f}")
items.loc[subset.item_ids, "benchmark"].value_counts()

# %% [markdown]
# The 50 new models answer these items alone. Each benchmark's score is predicted from all answers,
# and so is an average in which the agent counts twice.

# %%
weights = {name: 2.0 if name == "agent" else 1.0 for name in names}
prediction = irtcat.predict(old, subset, new, groups="benchmark", weights=weights)
print(prediction.to_frame()[["score", "lower", "upper", "rank"]].head(3).round(2))


def quality(groups: pd.DataFrame) -> pd.DataFrame:
    """Error and coverage of the scores of each benchmark."""
    rows = {}
    for name, part in groups.groupby("group", sort=False):
        t = truth[name].to_numpy()
        rows[name] = {
            "mean error, points": 100 * (part["score"] - t).abs().mean(),
            "width, points": 100 * (part["upper"] - part["lower"]).mean(),
            "coverage": ((part["lower"] <= t) & (t <= part["upper"])).mean(),
        }
    return pd.DataFrame(rows).T.round(2)


quality(prediction.groups)

# %%
plot.ranked(prediction.to_frame().nlargest(15, "score"))

# %% [markdown]
# ## Without any task of the agent
#
# The other four benchmarks say something of it. Its scores are flagged, and their intervals wider.

# %%
cheap = [item for item in subset.item_ids if items.loc[item, "benchmark"] != "agent"]
without = irtcat.predict(old, cheap, new, bank=fit.bank, estimator="irt", groups="benchmark").groups
print(f"${items.loc[cheap, 'cost'].sum():.2f}")
print(without.loc[without["group"] == "agent", "flag"].unique())
quality(without)

# %% [markdown]
# ## Only scores, no answers
#
# Of other people's models the team has published scores: a table with holes. `complete` fills it
# in with intervals, `probe` says which benchmark to run next.

# %%
table = (100 * pd.DataFrame({n: answers[:, of == k].mean(1) for k, n in enumerate(names)}, models))
published = table.iloc[200:].mask(rng.random((100, 5)) < 0.5).dropna(how="all")
completion = leaderboard.complete(published, level=0.9)
print(completion)
full, missing = table.loc[published.index].to_numpy(), ~completion.observed
inside = (completion.lower <= full) & (full <= completion.upper)
print(f"{inside[missing].mean():.0%} of the missing scores are within their 90 % intervals")
leaderboard.probe(published, 3, costs={n: 200 * c for n, c in cost.items()}).to_frame().round(1)

# %% [markdown]
# ## A number for the release decision
#
# The intervals so far rest on the calibrated models. Before a release the team wants one that
# holds whatever the model is: items are drawn at random with known probabilities, and the bank
# only proposes them. One may stop whenever the interval is short enough.

# %%
three = old.subset(items=np.flatnonzero(of < 3), subjects=np.arange(50, 250))
bank = irtcat.fit(three).bank
candidate = dict(zip(new.item_ids, new.to_numpy()[2], strict=True))
config = irtcat.cat.Config.guaranteed(max_items=400, half_width=0.06, level=0.95)
session = irtcat.cat.run(bank, config, answer=lambda item: int(candidate[item]), seed=1)
print(session.full_score())
print(f"{len(session.to_frame())} of 600 items; in truth {new.to_numpy()[2, of < 3].mean():.1%}")

# %% [markdown]
# ## Hand it over
#
# A partner may measure its models with the same items, and does not get anyone's responses: a short
# form is a file of items, weights and norms.

# %%
complete_models = old.subset(subjects=np.arange(50, 250))
form = irtcat.short_form(complete_models, subset=subset, name="five-benchmarks", renew="2099-12-31")
print(form)
ours = irtcat.predict(complete_models, subset, new).score
print(f"greatest difference to predict: {np.abs(form.predict(new).score - ours).max():.1e}")

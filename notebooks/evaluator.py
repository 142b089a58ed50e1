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
# # For evaluators: the whole benchmark's answer at a tenth of its cost
#
# You run the same benchmark on every new model. Most of its items add little to the others. Here
# 412 small classifiers answered 898 images of digits (`digits_crowd`, shipped with the package). We
# calibrate the images on the older classifiers, choose 60 of them, run only those on the newer
# ones, and predict full scores and ranks, with intervals.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import logit

import irtcat
from irtcat import datasets, leaderboard, plot, report
from irtcat.cat import Config, Session

responses = datasets.load("digits_crowd")
print(responses.summary())

# %% [markdown]
# ## Calibrate
#
# A quarter of the classifiers is put aside: they are the "new models". The rest calibrates every
# image: how hard it is (`b`) and how sharply it separates strong from weak (`a`).

# %%
old, new = leaderboard.split_subjects(responses, "random", share=0.25, seed=0)
fit = irtcat.fit(old, "2pl")
print(fit)
fit.bank.to_frame()[["a", "b", "se_b", "proportion_correct", "flag"]].round(2).head()

# %% [markdown]
# Where does the benchmark measure well? Information is high, and the standard error low, where
# most classifiers are; the very best are measured less well.

# %%
plot.information_curve(fit.bank)

# %% [markdown]
# ## Choose 60 items, run them, predict the full score
#
# `balanced` is the default: items that mirror the benchmark, chosen so that the full score is left
# least uncertain.

# %%
subset = irtcat.select(None, 60, calibration=old)
answers = new.subset(items=subset.item_ids)  # all that is run of the new models
told = irtcat.predict(old, subset, answers)
told.to_frame().head()

# %% [markdown]
# The held-out classifiers did answer everything, so that here we can look at the truth.

# %%
truth = leaderboard.full_scores(new)
error = 100 * abs(told.score - truth)
inside = (told.lower <= truth) & (truth <= told.upper)
tau = irtcat.agreement.kendall_tau_b(told.score, truth)
print(f"mean absolute error {error.mean():.1f} points, Kendall's tau-b {tau:.2f}, "
      f"{inside.mean():.0%} of the intervals hold the truth")

# %% [markdown]
# ## How many items are enough?
#
# Do not take our word for 60: measure it on your own responses. Strategies and numbers of items
# are tried on subjects that were held out.

# %%
board = leaderboard.evaluate(
    responses, ["random", "balanced"], n_items=[10, 30, 100], seeds=[0, 1], estimators=["mean", "auto"]
)
board.summary()[["kendall", "mae", "coverage", "width"]].round(2)

# %%
plot.rank_correlation(board.summary())

# %% [markdown]
# ## Compare two models on the same few items
#
# Is the second better than the first, and if it is not clear, how many more items would tell?

# %%
first, second = str(new.subject_ids[0]), str(new.subject_ids[1])
irtcat.compare(old, subset, answers, new=second, old=first)

# %% [markdown]
# ## Adaptively: the next item depends on the answers
#
# A session asks one item at a time and says why. Here the answers are looked up; in an evaluation
# they come from the model. This one is among the best, of whom no item tells much: the session ends
# by its number of items, not by its precision. Behind ± stands one standard deviation.

# %%
row = new.subset(subjects=[first])
right = dict(zip(row.item_ids, row.to_numpy()[0].astype(int), strict=True))
session = Session.begin(fit.bank, Config(stopping="se<0.25 or n>=20"), subject=first, seed=0)
while session.asked:
    item = session.asked[0]
    session.answer(item, right[item])
session.to_frame().tail(3).round(3)

# %%
estimate = session.estimate()
print(f"{estimate['n_items']} items: predicted score {estimate['score']:.2f} ± "
      f"{estimate['score_sd']:.2f}, true score {truth[0]:.2f}")

# %% [markdown]
# ## One page for everybody else
#
# The report is a single HTML file: ranking, predicted against true scores, the curves, every item
# with its information, the session, and what deserves a look. It opens anywhere and loads nothing.
# From the command line: `irtcat report bank.npz predictions.csv board.csv --out report.html`.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = report.write(
        [fit.bank, subset, told, board, session], Path(folder) / "report.html", responses=responses
    )
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")

# %% [markdown]
# ## And if we know its size and its MMLU score?
#
# More is known of a new model than its few answers: its size, its date, its score on another
# benchmark. Here the images of 0 to 4 are the benchmark, and the score on those of 5 to 9, which
# all classifiers have answered, plays the part of the MMLU score. A latent regression of ability
# on both gives every new classifier a prior, and `predict` combines it with the answers.

# %%
digit = np.array([int(item.removeprefix("digit")[0]) for item in responses.item_ids])
benchmark = responses.subset(items=responses.item_ids[digit <= 4])
other = leaderboard.full_scores(responses.subset(items=responses.item_ids[digit >= 5]))
known = pd.DataFrame(index=responses.subject_ids)
known["log_size"] = np.log(responses.subjects["size"].to_numpy())
known["other_score"] = logit(np.clip(other, 0.01, 0.99))
earlier, later = (benchmark.subset(subjects=part.subject_ids) for part in (old, new))
informed = irtcat.fit(earlier, "2pl", subject_features=known.loc[earlier.subject_ids])
prior = informed.predict_subjects(known.loc[later.subject_ids])
few = irtcat.select(None, 8, calibration=earlier)
truth = leaderboard.full_scores(later)
rows = {}
for name, given in {"8 answers": None, "8 answers, size and other score": prior}.items():
    p = irtcat.predict(informed, few, later, prior=given)
    rows[name] = {
        "error": 100 * np.abs(p.score - truth).mean(),
        "width": 100 * (p.upper - p.lower).mean(),
        "coverage": ((p.lower <= truth) & (truth <= p.upper)).mean(),
    }
pd.DataFrame(rows).T.round(2)

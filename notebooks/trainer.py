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
# # For trainers: which examples are hard, which are wrong, and in what order to learn them
#
# A crowd of cheap models, each trained on a random part of the data, answers all examples; from who
# is right about what, an IRT model tells every example's difficulty (Lalor, Wu & Yu 2019). Then:
# train on fewer examples, find wrong labels, and let the learner's ability choose what comes next.
#
# The data are made up, so that the notebook needs no download and we know which labels are wrong:
# three clouds of points, 600 examples, of which 5 % get another label.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import irtcat
from irtcat.training import crowd, curriculum, dynamics, filters, labels

rng = np.random.default_rng(0)
centres = np.array([[0.0, 0.0], [3.4, 0.0], [1.7, 2.9]])


def draw(n):
    y = rng.integers(0, 3, n)
    return centres[y] + rng.normal(size=(n, 2)), y


X, true = draw(600)
X_test, y_test = draw(1000)
y = true.copy()
wrong = rng.choice(600, 30, replace=False)
y[wrong] = (y[wrong] + rng.integers(1, 3, 30)) % 3

# %% [markdown]
# ## A learner
#
# Softmax regression on quadratic features, in numpy. Any estimator with `fit` and `predict`, or any
# function of this form, will do.

# %%
def features(X):
    return np.column_stack([np.ones(len(X)), X, X**2, X[:, :1] * X[:, 1:]])


def train(W, X, y, steps=60, rate=0.3):
    F, target = features(X), np.eye(3)[y]
    scale = 1 / (1e-9 + np.abs(F).max(axis=0))
    for _ in range(steps):
        W = W - rate * scale[:, None] * ((probabilities(W, X) - target).T @ F).T / len(X) * 5
    return W


def probabilities(W, X):
    logits = features(X) @ W
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def learner(X_train, y_train, X, seed):
    return probabilities(train(np.zeros((6, 3)), X_train, y_train), X)


def accuracy(W):
    return (probabilities(W, X_test).argmax(axis=1) == y_test).mean()

# %% [markdown]
# ## The crowd, and every example's difficulty
#
# An answer counts only where the member was not trained on the example.

# %%
members = crowd.build(learner, (X, y), 100, size=(0.02, 0.3), label_noise=(0.0, 0.3), seed=1)
answers = members.responses()
print(answers)
bank = irtcat.fit(answers, "rasch").bank
b = bank.to_frame()["b"]
print(f"difficulty: right labels {b.drop(b.index[wrong]).mean():.2f}, wrong {b.iloc[wrong].mean():.2f}")
members.to_frame()[["size", "noise", "accuracy"]].describe().loc[["min", "50%", "max"]].round(2)

# %% [markdown]
# ## Wrong labels
#
# `labels.rank` ranks the suspects, with the reasons in words. Of a crowd it uses the predicted
# classes: how likely another class is, and which classes the labels confuse. It plants wrong labels
# in the data at hand, counts how many of them each order finds, and says so. Without the classes
# the order depends on what there is: the lowest probability of the label by the training dynamics,
# or the smallest share of members that predict it. The IRT account, `by="answers"`, suspects an
# example that able members answer "wrongly" more often than weak ones: that is for tests and
# benchmarks, and it is misled where weak members are right for another reason than ability, as on
# the border of two clouds.

# %%
confidence = dynamics.from_probabilities(members.confidences(), item_ids=bank.item_ids)
suspects = labels.rank(members)
rankings = {
    "crowd": suspects,
    "with dynamics": labels.rank(answers, dynamics=confidence),
    "answers of the crowd": labels.rank(answers),
    "by suspicion": labels.rank(answers, by="answers"),
}
for name, ranking in rankings.items():
    hits = np.isin(ranking.first(30).index, b.index[wrong]).sum()
    print(f"{name}: {hits} of the 30 most suspect examples have a wrong label")
print(suspects.order)
with pd.option_context("display.max_colwidth", None):
    print(suspects.first(5)["reasons"].to_string())
suspects.first(5)[["suspicion", "suggested", "share"]].round(2)

# %% [markdown]
# ## Train on a part
#
# `ub` keeps the easiest 30 %, `avi` those of middling difficulty (|b| small), `lb` the hardest;
# `control` is a random sample of the same size, to compare with. Which of them helps depends on the
# data. Here the easiest alone teach too little (they lie far from every border), the middling do as
# well as all of the examples, and the hardest, the wrong labels among them, worse than chance.

# %%
rows = {}
for rule in ("ub", "avi", "lb"):
    kept = filters.apply(bank, rule, keep=0.3)
    chance = kept.control(seed=2).indices
    rows[rule] = {
        "kept": len(kept),
        "accuracy": accuracy(train(np.zeros((6, 3)), X[kept.indices], y[kept.indices])),
        "random": accuracy(train(np.zeros((6, 3)), X[chance], y[chance])),
    }
rows["all"] = {"kept": 600, "accuracy": accuracy(train(np.zeros((6, 3)), X, y))}
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# ## What comes next is chosen by the learner's ability
#
# Before each epoch the learner answers a probe; its ability on the bank's scale says which examples
# suit it (Lalor & Yu 2020).

# %%
schedule = curriculum.AbilityMatched(bank, probe=150, min_length=50, epochs=8, seed=3)
seen = dynamics.Accumulator(list(bank.item_ids))
W = np.zeros((6, 3))
for _ in range(8):
    probe = schedule.probe
    schedule.update(probabilities(W, X[probe]).argmax(axis=1) == y[probe], probe)
    chosen = schedule.next()
    W = train(W, X[chosen], y[chosen], steps=8)
    p = probabilities(W, X)
    seen.add(p[np.arange(600), y], correct=p.argmax(axis=1) == y)
print(f"accuracy {accuracy(W):.3f}")
schedule.history.round(2)

# %% [markdown]
# ## Training dynamics
#
# Confidence in each example's own label over the epochs, and how much it moved (dataset
# cartography). The wrong labels are those of low confidence. In the data map every dot is an
# example, by difficulty; a ring marks a wrong label.

# %%
table = seen.result().to_frame()
print(f"confidence: right labels {table['confidence'].drop(table.index[wrong]).mean():.2f}, "
      f"wrong {table['confidence'].iloc[wrong].mean():.2f}")
pd.DataFrame({"difficulty": b.to_numpy(), "confidence": table["confidence"].to_numpy(),
              "variability": table["variability"].to_numpy()}).corr("spearman").round(2)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.hist(b, 30)
left.set(xlabel="difficulty b", ylabel="examples")
dots = right.scatter(table["variability"], table["confidence"], c=b, s=9, cmap="viridis")
rings = table.iloc[wrong]
right.scatter(rings["variability"], rings["confidence"], s=40, facecolors="none", edgecolors="red")
right.set(xlabel="variability", ylabel="confidence in the label")
figure.colorbar(dots, label="difficulty b");

# %% [markdown]
# On the command line: `irtcat fit`, `irtcat filter` (what to keep) and `irtcat audit` (suspect
# labels); `irtcat report bank.npz` shows every example with its difficulty.

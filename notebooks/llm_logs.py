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
# # For evaluators of language models: from a folder of logs to scores with intervals
#
# You have logs of lm-evaluation-harness (`--log_samples`). This notebook reads them, looks at the
# questions, selects 30 of 200, predicts the full scores of new models from these, and compares the
# predictions with the truth.
#
# The logs are written by `docs/assets/example_logs.py`: 60 simulated models, 200 questions of
# arithmetic, in lm-eval's format. The models do not exist. With logs of your own, put their folder
# in place of `logs` and leave out what compares with the truth.

# %%
# %matplotlib inline
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

import irtcat
from irtcat import harness, leaderboard, plot

folder = Path(tempfile.mkdtemp())
script = Path(irtcat.__file__).parents[1] / "docs" / "assets" / "example_logs.py"


def write_logs(name, *options):
    command = [sys.executable, str(script), str(folder / name), *options]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(":")[0])


write_logs("logs")

# %% [markdown]
# ## Read the logs
#
# One table of right and wrong answers. The report says which metric was taken of each task, and
# what became of every file.

# %%
logs = irtcat.io.read_logs(folder / "logs")
responses = logs.responses
print(responses.summary())
responses.items[["task", "text", "target"]].head(3)

# %% [markdown]
# ## Which questions are hard, and which tell models apart?
#
# `b` is the difficulty: the ability at which the answer is right half of the time. `a` is the
# discrimination. 60 models are not many: `se_b` is the standard error of the difficulty, and
# questions that nearly all models get right, or wrong, lean on a prior and are flagged.

# %%
fit = irtcat.fit(responses)
print(fit)
table = fit.bank.to_frame()[["a", "b", "se_b", "proportion_correct", "flag"]].round(2)
table["text"] = responses.items["text"].to_numpy()
table.sort_values("b").iloc[[1, 2, 99, 100, -3, -2]]

# %%
plot.information_curve(fit.bank)

# %% [markdown]
# ## How many questions are enough?
#
# Measured by holding out a quarter of the models: the mean absolute error of the predicted score in
# points, and how many of the 95 % intervals contain the truth. `random` with `mean` is what everybody
# would do without irtcat. With 45 calibrated models the gain is large at 15 questions and gone at 60:
# the fewer models, the less there is to learn from them.

# %%
board = leaderboard.evaluate(
    responses, ["random", "balanced"], n_items=[15, 30, 60], seeds=[0, 1, 2], estimators=["mean", "auto"]
)
board.summary()[["kendall", "mae", "coverage", "width"]].round(2)

# %% [markdown]
# ## Select, and tell the harness
#
# `export` writes the file for lm-eval's `--samples` and prints the command to run.

# %%
subset = irtcat.select(fit.bank, 30, calibration=responses)
export = harness.export(subset, "lm-eval", items=responses)
print(*export.commands("samples.json"), sep="\n")
(folder / "samples.json").write_text(export.text)
print({task: len(numbers) for task, numbers in json.loads(export.text).items()})

# %% [markdown]
# Here the script answers the selected questions for four new models.

# %%
write_logs("new", "--samples", str(folder / "samples.json"))
answers = irtcat.io.read_logs(folder / "new").responses

# %% [markdown]
# ## Predict
#
# The score on all 200 questions, with its interval, and the rank among the 60 models.

# %%
predicted = irtcat.predict(responses, subset, answers, bank=fit.bank)
shown = predicted.to_frame()[["score", "lower", "upper", "rank", "rank_lower", "rank_upper"]]
shown.round(3)

# %%
plot.ranked(predicted.to_frame())

# %% [markdown]
# The truth is known here, because the new models exist only in the script: they can answer
# everything.

# %%
everything = {task: list(range(n)) for task, n in (("arithmetic", 120), ("percentages", 80))}
(folder / "everything.json").write_text(json.dumps(everything))
write_logs("full", "--samples", str(folder / "everything.json"))
full = irtcat.io.read_logs(folder / "full").responses
truth = pd.Series(full.to_numpy().mean(axis=1), full.subject_ids).loc[shown.index]
inside = (shown["lower"] <= truth) & (truth <= shown["upper"])
pd.DataFrame({"predicted": shown["score"], "truth": truth, "inside": inside}).round(3)

# %% [markdown]
# ## Is one model better than another?
#
# The difference of two predictions is not enough: both were measured with the same questions.
# `compare` says what can be said, and how many more questions a verdict would take.

# %%
first, second = predicted.subject_ids[1], predicted.subject_ids[2]
irtcat.compare(responses, subset, answers, new=second, old=first)

# %% [markdown]
# On the command line, the same in five commands: `irtcat import`, `fit`, `select`, `predict` and
# `report`; see the tutorial in `docs/tutorials/lm-eval.md`.

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
# # For assessors: calibrate a test, check it, and give it adaptively
#
# LSAT section 7: five items, 1,000 takers (Bock & Lieberman 1970). Small enough to see everything:
# how well the model fits, what each item contributes, how exact a score is, and whether an item
# works differently for a group.

# %%
# %matplotlib inline
import numpy as np
import pandas as pd
from scipy.stats import chi2

import irtcat
from irtcat import datasets, diagnose, plot
from irtcat.cat import Config, Session, simulate

responses = datasets.load("lsat7")
print(responses.summary())

# %% [markdown]
# ## Which model?
#
# Rasch: all items discriminate alike. 2PL: each has its own slope. The models are nested, so twice
# the gain in log-likelihood is compared with chi squared. Here the test favours the 2PL, and BIC,
# which is stricter on parameters, the Rasch model: a close call. We go on with the 2PL.

# %%
rasch, two = irtcat.fit(responses, "rasch"), irtcat.fit(responses, "2pl")
gain = 2 * (two.log_likelihood - rasch.log_likelihood)
print(f"2 x gain {gain:.1f} for 4 parameters more: p = {chi2.sf(gain, 4):.3f}")
pd.DataFrame({"AIC": [rasch.aic, two.aic], "BIC": [rasch.bic, two.bic]}, ["rasch", "2pl"]).round(1)

# %%
two.bank.to_frame()[["a", "se_a", "b", "se_b", "proportion_correct"]].round(2)

# %%
plot.item_curves(two.bank)

# %% [markdown]
# ## Does it fit?
#
# M2 looks at the whole: with 1,000 takers p is small for small misfits, so look at RMSEA, too (below .05
# is close). S-X2 looks at every item: here one of them does not follow its curve, which is a reason
# to read that item, not yet to drop it.

# %%
print(diagnose.model_fit(two.bank, responses))
diagnose.s_x2(two.bank, responses).round(3)

# %% [markdown]
# ## How exact are the scores?
#
# Five easy items measure weak takers better than strong ones: the standard error grows with
# ability, and the reliability of so short a test is low. Every score carries its interval.

# %%
ability = irtcat.score(two.bank, responses)
print(f"marginal reliability {diagnose.marginal_reliability(two.bank):.2f}")
table = ability.to_frame().drop_duplicates("theta").sort_values("theta")
table[["theta", "se", "lower", "upper", "percentile"]].iloc[[0, len(table) // 2, -1]].round(2)

# %%
plot.information_curve(two.bank)

# %% [markdown]
# ## Is it fair?
#
# Two groups take the same test; the second is a little weaker, and one item was made harder for
# it. A difference in ability is not unfair; an item that is harder *at the same ability* is.

# %%
rng = np.random.default_rng(1)
bank = irtcat.ItemBank.from_parameters(a=1.3, b=np.linspace(-1.5, 1.5, 12))
biased = irtcat.ItemBank.from_parameters(
    a=1.3, b=np.linspace(-1.5, 1.5, 12) + np.where(np.arange(12) == 5, 0.9, 0.0)
)
X = np.vstack([bank.simulate(rng.normal(size=500), seed=1).to_numpy(),
               biased.simulate(rng.normal(-0.3, 1, 500), seed=2).to_numpy()])
both = irtcat.Responses.from_array(X, item_ids=bank.item_ids)
groups = np.repeat(["one", "two"], 500)
found = diagnose.find_dif(both, groups)
print(found)
found.to_frame().round(3).head(8)

# %% [markdown]
# ## An adaptive test
#
# Before it is given, try it out on simulated takers: how long it gets, how exact it is, which
# items wear out.

# %%
rng = np.random.default_rng(2)
pool = irtcat.ItemBank.from_parameters(a=rng.lognormal(0, 0.3, 100), b=rng.normal(size=100))
config = Config(criterion="mfi", stopping="se<0.35 or n>=25", exposure="randomesque")
tried = simulate(pool, rng.normal(size=300), config, seed=1)
pd.Series(tried.summary()).round(3)[["rmse", "mean_se", "mean_items", "coverage", "max_exposure"]]

# %% [markdown]
# Then give it. Every step can be explained: the candidates, their values and what kept better ones
# out.

# %%
session = Session.begin(pool, config, subject="anna", seed=3)
for answer in (1, 1, 0):
    session.answer(session.asked[0], answer)
print(session)
session.explain(5).round(3)

# %% [markdown]
# `irtcat.cat.Store` keeps sessions on disk, so that an interrupted test goes on where it was;
# `irtcat report bank.npz scores.csv sessions.db --out report.html` puts bank, scores and sessions
# on one page.

# %% [markdown]
# ## The served test
#
# A session asks for the ids of items. What people take also has texts, keys, instructions, time
# limits, a second part, and a score scale: a *test*, defined in a TOML file. The package has an
# example in mathematics, whose parameters are invented. Publishing checks the definition, simulates
# takers, and stores all of it; nothing of it changes afterwards.

# %%
import shutil
import tempfile
from pathlib import Path

from irtcat.service import example
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people, results, taking
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.content import read_items
from irtcat.service.definition import read_definition

folder = Path(tempfile.mkdtemp())
service = open_service(folder / "tests.db", create=True)
definition = read_definition(example.folder() / "math.toml")
items = read_items(example.folder() / "items")
bank = irtcat.ItemBank.load(example.folder() / "bank.npz")
test, report = library.publish(
    service, definition, bank, items, actor="assessor", n_simulated=100
)
print(report.summary())

# %% [markdown]
# A ticket is a link with which one person takes the test once. In a browser the pages do what the
# functions of `irtcat.service.attempts.taking` do here: start, show the page, take an answer. A simulated
# person of ability 1 knows the right answer to some of the items.

# %%
knows = bank.simulate([1.0], seed=4).to_numpy()[0] > 0
knows = dict(zip(bank.item_ids, knows))
ticket = people.issue_ticket(service, test, actor="assessor")
started = taking.begin(service, ticket.token)


def act(function, **options):
    return function(service, started.attempt, started.secret, lambda file: file, **options)


def response_to(item):
    """The answer to the item that is shown, in the names that its page gives to the choices."""
    name = attempt_of(service, started.attempt).progress.current
    key = items.keys.get(name)
    if key is None:  # for practice
        return item["choices"][0]["id"] if item["choices"] else "1"
    texts = {choice.id: choice.content_html for choice in items.items[name].choices}
    contents = [choice["content"] for choice in item["choices"]]
    if item["kind"] == "hottext":  # its choices are words of the text, in their order
        contents = list(texts.values())
    shown = dict(zip(contents, [choice["id"] for choice in item["choices"]]))
    right = list(key.correct) or [max(key.points, key=lambda entry: entry[1])[0]]
    if not item["choices"]:
        return right[0] if knows[name] else "0"
    wrong = [letter for letter in texts if letter not in right] or right[::-1]
    chosen = [shown[texts[letter]] for letter in (right if knows[name] else wrong)]
    return chosen[0] if item["kind"] == "choice" else chosen[: item["max_choices"] or None]


page = act(taking.current)
while page["status"] == "running":
    item = page["item"]
    if item is None:  # instructions, a break, or the list of answers
        page = act(taking.proceed)
    else:
        page = act(taking.answer, number=item["number"], response=response_to(item))
page["report"]

# %% [markdown]
# The last line is what the person sees. The assessor's table has the estimate as well. Every answer
# was on disk before the next item was shown, in a log whose digests show any later change.

# %%
table = results.result_table(service, test)
table[["n_items", "theta", "se", "score", "lower", "upper", "level", "reason"]].round(2)

# %%
answers = results.answer_table(attempt_of(service, started.attempt))
answers[["section", "item", "response", "code"]].tail(8)

# %%
service.close()
shutil.rmtree(folder)

# %% [markdown]
# The same test in a browser, with the links to take it and to administer it:
# `irtcat serve tests.db --example`. With files of your own:
# `irtcat serve tests.db --bank bank.npz --items items/ --test math.toml`.

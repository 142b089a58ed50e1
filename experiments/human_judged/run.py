"""Which prompts are worth a judge's time? Votes (binomial) and scores (Beta), as Sedoc & Ungar ask.

Systems are compared on prompts; every (system, prompt) gets a few votes, or one score in (0, 1).
Prompts are chosen by the systems judged before, new systems are judged on these alone, and their
full scores and ranks are told. ``--data FILE`` takes judge scores in [0, 1] (any response file), or
votes with ``--trials``.

    python experiments/human_judged/run.py [--data FILE --trials 5] [--out experiments/human_judged]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import irtcat
from irtcat import leaderboard, plot

KS = (10, 20, 40, 80)
STRATEGIES = ("random", "stratified", "fisher")
SYSTEMS, PROMPTS, VOTES = 120, 300, 5


def truth(seed):
    """Abilities, slopes that differ much (some prompts say nothing), difficulties."""
    rng = np.random.default_rng(seed)
    a = rng.lognormal(-0.4, 0.8, PROMPTS)
    return rng, rng.normal(size=SYSTEMS), a, rng.normal(0, 1, PROMPTS)


def votes(seed=0):
    """How many of five judges prefer the system's answer to the baseline's."""
    rng, theta, a, b = truth(seed)
    counts = rng.binomial(VOTES, expit(a * (theta[:, None] - b)))
    return irtcat.Responses.from_counts(counts, VOTES)


def scores(seed=0):
    """One judge's score in (0, 1), of a precision that differs by prompt."""
    rng, theta, a, b = truth(seed)
    mean, phi = expit(a * (theta[:, None] - b)), rng.lognormal(1.5, 0.7, PROMPTS)
    return irtcat.Responses.from_array(np.clip(rng.beta(mean * phi, (1 - mean) * phi), 0.01, 0.99))


def table(name, responses, model, seeds):
    """The leaderboard of one kind of judgement, with the smallest gap told."""
    ks = [k for k in KS if k < responses.n_items]
    board = leaderboard.evaluate(
        responses, STRATEGIES, ks, seeds=range(seeds), model=model, estimators=["mean", "irt"]
    )
    found = board.summary()[["kendall", "mae", "pairwise_2_to_5", "coverage", "width", "flag"]]
    found = found.assign(gap=leaderboard.reliable_gaps(board)["gap"]).reset_index()
    found.insert(0, "judgement", name)
    found.insert(1, "model", model)
    print(found.round(3).to_string(index=False), flush=True)
    return found, board


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    if options.data is None:
        jobs = [("votes", votes(), "binomial"), ("scores", scores(), "beta")]
        jobs.append(("scores", jobs[1][1], "2pl"))  # fractions as shares of one answer
    else:
        given = irtcat.read_responses(options.data)
        given = given if options.trials is None else given.with_trials(options.trials)
        model = "beta" if options.trials is None else "binomial"
        jobs = [(options.data.stem, given, model)]
        jobs += [(options.data.stem, given, "2pl")] if options.trials is None else []
    found = [table(*job, options.seeds) for job in jobs]
    everything = pd.concat([part for part, _ in found])
    everything.round(4).to_csv(options.out / "judged.csv", index=False)
    plot.save(plot.rank_correlation(found[0][1].summary()), options.out / "judged.png")


if __name__ == "__main__":
    main()

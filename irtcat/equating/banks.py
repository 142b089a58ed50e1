"""Equating through calibrated items: true scores and observed scores under the item models."""

from dataclasses import replace

import jax
import numpy as np

from irtcat._common.checks import argument_error, check_choice, check_count
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, as_bank
from irtcat.equating.observed import Equated, equated_table, equipercentile_equated
from irtcat.models import ItemModel, expected_responses, item_categories
from irtcat.scoring import sum_score_table

BANK_METHODS = ("true-score", "observed-score")

FARTHEST, STEPS = 40.0, 60
"""Abilities between which the ability of a true score is sought, and bisections."""
NODES = np.linspace(-6.0, 6.0, 121)
"""Abilities at which the expected score must rise."""


MIN_FLOOR = 1e-6
"""Expected scores of the lowest abilities below this are 0."""

_expected_responses = jit(jax.vmap(expected_responses))


def equate_banks(
    x: BankLike, y: BankLike, method: str = "true-score", *, n_draws: int = 200, seed: int = 0
) -> Equated:
    """Express sum scores on form X as sum scores on form Y, from the item parameters of both.

    Both banks must be on one scale: from one calibration (subsets of its bank), with anchors, or
    linked (`irtcat.fitting.link`).

    - "true-score": a score on X is that score on Y which is expected at the ability at which it is
      expected on X.
    - "observed-score": it has the same percentile rank among the sum scores that the models predict
      in the population of x.

    Scores below the sum of the lower asymptotes (3PL) have no ability: they are equated linearly
    from 0 to that sum (Kolen 1981). The highest scores are equated with each other.

    Args:
        x: the items of form X, with one ability and ordered categories.
        y: the items of form Y.
        method: "true-score" or "observed-score".
        n_draws: draws of the item parameters for the standard errors, where both banks have
            covariances; 0 for none.
        seed: of the draws.

    Returns:
        A row for each sum score of X, from 0 (codes from 0 added up). The standard errors are
        those of the item parameters, drawn independently for both forms; that of a link is not in
        them. NaN without covariances, and for observed scores.

    Raises:
        InputError: for several abilities, items without categories, or an expected score that does
            not rise with ability.

    Example:
        >>> from irtcat import ItemBank
        >>> x = ItemBank.from_parameters(a=[1.0, 1.2, 0.8], b=[-1.0, 0.0, 1.0])
        >>> y = ItemBank.from_parameters(a=[1.0, 1.2, 0.8], b=[-0.5, 0.5, 1.5])
        >>> equate_banks(x, y).table["equated"].round(2).tolist()
        [0.0, 0.72, 1.69, 3.0]

    References:
        Kolen & Brennan (2014), Test Equating, Scaling, and Linking, 3rd ed., chapter 6; Kolen
        (1981), Journal of Educational Measurement 18, 1-11.
    """
    check_choice("method", method, BANK_METHODS)
    check_count("n_draws", n_draws, 0)
    needs = ["one ability", "categories"]
    x, y = (as_bank(bank, name, needs, "equating") for name, bank in (("x", x), ("y", y)))
    if method == "observed-score":
        y = replace(y, populations=x.populations)
        shares = [sum_score_table(bank)["probability"].to_numpy() for bank in (x, y)]
        values = equipercentile_equated(*(share / share.sum() for share in shares))
        return Equated(equated_table(values, None), method, "banks")
    tops = [int((item_categories(bank.model) - 1).sum()) for bank in (x, y)]
    for name, bank in (("x", x), ("y", y)):
        if (np.diff(_expected(_stacked(bank.model), NODES[None])) <= 0).any():
            must = "of items whose expected sum rises with ability"
            raise argument_error(name, must, ["a fall"], "Leave out items of negative slope.")
    values = _true_scores(_stacked(x.model), _stacked(y.model), *tops)[0]
    errors = None
    if n_draws and x.covariance is not None and y.covariance is not None:
        of_x, of_y = (bank.draws(n_draws, seed + k, "hold") for k, bank in enumerate((x, y)))
        errors = np.std(_true_scores(of_x, of_y, *tops), axis=0, ddof=1)
    return Equated(equated_table(values, errors), method, "banks")


def _stacked(model: ItemModel) -> ItemModel:
    """An item model as a single draw."""
    stacked: ItemModel = jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)
    return stacked


def _expected(draws: ItemModel, theta: FloatArray) -> FloatArray:
    """Expected sum score of every draw of an item model at its abilities, draws x abilities."""
    with precision("float64"):
        return np.asarray(_expected_responses(draws, theta)).sum(axis=1)


def _true_scores(x: ItemModel, y: ItemModel, top_x: int, top_y: int) -> FloatArray:
    """Expected scores on Y where 0, 1, ..., top_x are expected on X, draws x scores."""
    n_draws = len(jax.tree.leaves(x)[0])
    score = np.broadcast_to(np.arange(top_x + 1.0), (n_draws, top_x + 1))
    low, high = np.full(score.shape, -FARTHEST), np.full(score.shape, FARTHEST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_below = _expected(x, middle) < score
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    out = _expected(y, (low + high) / 2)
    floor_x, floor_y = (_expected(draws, np.full((n_draws, 1), -FARTHEST)) for draws in (x, y))
    share = score / np.where(floor_x > MIN_FLOOR, floor_x, np.inf)
    out = np.where(score <= floor_x, floor_y * share, out)
    out[:, 0], out[:, -1] = 0.0, top_y
    return out

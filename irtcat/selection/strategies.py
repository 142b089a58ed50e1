"""The table of strategies, and which of them is the default."""

from irtcat._common.checks import argument_error, check_count
from irtcat._common.registry import Registry
from irtcat.responses import Responses
from irtcat.selection.balanced import choose_balanced
from irtcat.selection.clusters import (
    choose_anchor_points,
    choose_kmeans_correctness,
    choose_kmeans_irt,
)
from irtcat.selection.expectation import expectation_of
from irtcat.selection.gaussian import choose_rank_optimal, choose_robust, choose_score_optimal
from irtcat.selection.information import (
    FILTERS,
    choose_d_optimal,
    choose_disagreement,
    choose_discrimination,
    choose_fisher,
    choose_information,
    choose_minimax,
)
from irtcat.selection.sampling import (
    choose_at_random,
    choose_neyman,
    choose_stratified,
    choose_stratified_both,
    choose_stratified_group,
)
from irtcat.selection.task import Strategy

STRATEGIES: Registry[Strategy] = Registry(
    "irtcat.strategies",
    Strategy,
    ("strategy", "takes", "needs"),
    [
        Strategy("random", choose_at_random, "a simple random sample", ()),
        Strategy(
            "stratified",
            choose_stratified,
            "a sample proportional over ten strata of proportion correct",
            ("proportions",),
        ),
        Strategy(
            "stratified-group",
            choose_stratified_group,
            "a sample proportional over ``groups``",
            ("groups",),
        ),
        Strategy(
            "stratified-both",
            choose_stratified_both,
            "a sample proportional over groups and strata",
            ("groups", "proportions"),
        ),
        Strategy(
            "neyman",
            choose_neyman,
            "a sample with more of the items on which the answers of new subjects vary most",
            source="Neyman (1934)",
        ),
        Strategy(
            "balanced",
            choose_balanced,
            "score-optimal within strata of difficulty, a fifth of it drawn",
        ),
        Strategy(
            "score-optimal",
            choose_score_optimal,
            "greedily least posterior variance of the full score",
        ),
        Strategy(
            "rank-optimal", choose_rank_optimal, "the same of score differences of close subjects"
        ),
        Strategy(
            "robust", choose_robust, "part score-optimal, part (``share``) a stratified sample"
        ),
        Strategy(
            "anchor-points",
            choose_anchor_points,
            "k-medoids on 1 - correlation, with weights",
            source="Vivek et al. (2024), Anchor Points",
        ),
        Strategy(
            "kmeans-correctness",
            choose_kmeans_correctness,
            "items nearest to k-means centres of answers, with weights",
            source="Maia Polo et al. (2024), tinyBenchmarks",
        ),
        Strategy(
            "kmeans-irt",
            choose_kmeans_irt,
            "items nearest to k-means centres of parameters, with weights",
            ("bank",),
            "Maia Polo et al. (2024), tinyBenchmarks",
        ),
        Strategy(
            "disagreement", choose_disagreement, "items on which most pairs of subjects differ"
        ),
        Strategy(
            "fisher",
            choose_fisher,
            "greatest information summed over the subjects (population without responses)",
            ("bank",),
            "Rodriguez et al. (2021), section 4",
        ),
        Strategy("information", choose_information, "greatest information at ``theta``", ("bank",)),
        Strategy(
            "minimax", choose_minimax, "greatest least information over ``theta_range``", ("bank",)
        ),
        Strategy(
            "d-optimal", choose_d_optimal, "greatest log-determinant of information", ("bank",)
        ),
        Strategy("discrimination", choose_discrimination, "greatest a", ("bank",)),
        *FILTERS,
    ],
)
"""Selection strategies by name; to add one, write a function of a `Task` and add a row."""

DEFAULT_STRATEGY = "balanced"
"""Default strategy of `select` with calibration responses."""

DEFAULT_WITHOUT_RESPONSES = "fisher"
"""Default strategy with a bank only."""


def default_strategy(n_items: int, calibration: Responses | None, expect: str | None) -> str:
    """The strategy where none is given: by what is expected of the subjects, if anything."""
    expectation = expectation_of(expect)
    if expectation is None:
        return DEFAULT_WITHOUT_RESPONSES if calibration is None else DEFAULT_STRATEGY
    if calibration is None:
        must = "None without calibration responses or a strategy"
        raise argument_error("expect", must, expect)
    check_count("n_items", n_items, 1)
    return expectation.strategy_for(n_items, calibration.n_subjects)

"""Leaderboards: rankings, how many items are enough, missing scores, scales with a meaning."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.leaderboard.best_of import Best, best
    from irtcat.leaderboard.board import Leaderboard, Run
    from irtcat.leaderboard.cell_evaluation import CELL_METHODS, CellEvaluation, evaluate_cells
    from irtcat.leaderboard.cell_probabilities import Cells, cells
    from irtcat.leaderboard.comparison import Comparison, compare
    from irtcat.leaderboard.comparisons import Comparisons, compare_all
    from irtcat.leaderboard.completion import Completion, ProbePlan, complete, probe
    from irtcat.leaderboard.gaps import items_needed, reliable_gaps
    from irtcat.leaderboard.grouping import Groups, groups
    from irtcat.leaderboard.horizons import Horizons, horizon
    from irtcat.leaderboard.indexing import Index, index
    from irtcat.leaderboard.judging import JudgedAbilities, judged_abilities
    from irtcat.leaderboard.metrics import METRICS
    from irtcat.leaderboard.planning import Plan, design_gaps, plan
    from irtcat.leaderboard.protocol import ALL, Progress, evaluate
    from irtcat.leaderboard.recommendation import Recommendation, recommend
    from irtcat.leaderboard.sequential import SequentialComparison, compare_sequential, random_order
    from irtcat.leaderboard.sets import headroom
    from irtcat.leaderboard.splits import split_subjects
    from irtcat.leaderboard.trends import Trend
    from irtcat.prediction import full_scores
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ALL",
    "CELL_METHODS",
    "METRICS",
    "Best",
    "CellEvaluation",
    "Cells",
    "Comparison",
    "Comparisons",
    "Completion",
    "Groups",
    "Horizons",
    "Index",
    "JudgedAbilities",
    "Leaderboard",
    "Plan",
    "ProbePlan",
    "Progress",
    "Recommendation",
    "Run",
    "SequentialComparison",
    "Trend",
    "best",
    "cells",
    "compare",
    "compare_all",
    "compare_sequential",
    "complete",
    "design_gaps",
    "evaluate",
    "evaluate_cells",
    "full_scores",
    "groups",
    "headroom",
    "horizon",
    "index",
    "items_needed",
    "judged_abilities",
    "plan",
    "probe",
    "random_order",
    "recommend",
    "reliable_gaps",
    "split_subjects",
]

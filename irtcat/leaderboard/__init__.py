"""Evaluation of subsets: how well they preserve the full ranking, and how many items are enough."""

from typing import TYPE_CHECKING

from irtcat._lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.leaderboard.board import Leaderboard, Run
    from irtcat.leaderboard.comparison import Comparison, compare
    from irtcat.leaderboard.gaps import items_needed, reliable_gaps
    from irtcat.leaderboard.metrics import METRICS
    from irtcat.leaderboard.planning import Plan, design_gaps, plan
    from irtcat.leaderboard.protocol import ALL, Progress, evaluate
    from irtcat.leaderboard.recommendation import Recommendation, recommend
    from irtcat.leaderboard.sets import headroom
    from irtcat.leaderboard.splits import split_subjects
    from irtcat.prediction import full_scores
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ALL",
    "METRICS",
    "Comparison",
    "Leaderboard",
    "Plan",
    "Progress",
    "Recommendation",
    "Run",
    "compare",
    "design_gaps",
    "evaluate",
    "full_scores",
    "headroom",
    "items_needed",
    "plan",
    "recommend",
    "reliable_gaps",
    "split_subjects",
]

"""How well a few items keep the full ranking, and how many are enough."""

from irtcat.leaderboard.board import Leaderboard, Run
from irtcat.leaderboard.metrics import METRICS
from irtcat.leaderboard.protocol import Progress, evaluate
from irtcat.leaderboard.splits import split_subjects
from irtcat.prediction import full_scores

__all__ = [
    "METRICS",
    "Leaderboard",
    "Progress",
    "Run",
    "evaluate",
    "full_scores",
    "split_subjects",
]

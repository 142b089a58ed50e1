"""Leaderboards: rankings, how many items are enough, missing scores, scales with a meaning."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.leaderboard.best_of import Best as Best
    from irtcat.leaderboard.best_of import best as best
    from irtcat.leaderboard.board import Leaderboard as Leaderboard
    from irtcat.leaderboard.board import Recommendation as Recommendation
    from irtcat.leaderboard.board import Run as Run
    from irtcat.leaderboard.board import recommend as recommend
    from irtcat.leaderboard.cell_probabilities import CELL_METHODS as CELL_METHODS
    from irtcat.leaderboard.cell_probabilities import CellEvaluation as CellEvaluation
    from irtcat.leaderboard.cell_probabilities import Cells as Cells
    from irtcat.leaderboard.cell_probabilities import cells as cells
    from irtcat.leaderboard.cell_probabilities import evaluate_cells as evaluate_cells
    from irtcat.leaderboard.comparison import Comparison as Comparison
    from irtcat.leaderboard.comparison import compare as compare
    from irtcat.leaderboard.comparisons import Comparisons as Comparisons
    from irtcat.leaderboard.comparisons import compare_all as compare_all
    from irtcat.leaderboard.completion import Completion as Completion
    from irtcat.leaderboard.completion import ProbePlan as ProbePlan
    from irtcat.leaderboard.completion import complete as complete
    from irtcat.leaderboard.completion import probe as probe
    from irtcat.leaderboard.gaps import items_needed as items_needed
    from irtcat.leaderboard.gaps import reliable_gaps as reliable_gaps
    from irtcat.leaderboard.grouping import Groups as Groups
    from irtcat.leaderboard.grouping import groups as groups
    from irtcat.leaderboard.hold_outs import split_subjects as split_subjects
    from irtcat.leaderboard.horizons import Horizons as Horizons
    from irtcat.leaderboard.horizons import horizon as horizon
    from irtcat.leaderboard.indexing import Index as Index
    from irtcat.leaderboard.indexing import index as index
    from irtcat.leaderboard.judging import JudgedAbilities as JudgedAbilities
    from irtcat.leaderboard.judging import judged_abilities as judged_abilities
    from irtcat.leaderboard.metrics import METRICS as METRICS
    from irtcat.leaderboard.planning import Plan as Plan
    from irtcat.leaderboard.planning import design_gaps as design_gaps
    from irtcat.leaderboard.planning import plan as plan
    from irtcat.leaderboard.protocol import ALL as ALL
    from irtcat.leaderboard.protocol import Progress as Progress
    from irtcat.leaderboard.protocol import evaluate as evaluate
    from irtcat.leaderboard.sequential import SequentialComparison as SequentialComparison
    from irtcat.leaderboard.sequential import compare_sequential as compare_sequential
    from irtcat.leaderboard.sequential import random_order as random_order
    from irtcat.leaderboard.sets import headroom as headroom
    from irtcat.leaderboard.trends import Trend as Trend
    from irtcat.prediction import full_scores as full_scores
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.leaderboard.best_of": "Best best",
            "irtcat.leaderboard.board": "Leaderboard Recommendation Run recommend",
            "irtcat.leaderboard.cell_probabilities": (
                "CELL_METHODS CellEvaluation Cells cells evaluate_cells"
            ),
            "irtcat.leaderboard.comparison": "Comparison compare",
            "irtcat.leaderboard.comparisons": "Comparisons compare_all",
            "irtcat.leaderboard.completion": "Completion ProbePlan complete probe",
            "irtcat.leaderboard.gaps": "items_needed reliable_gaps",
            "irtcat.leaderboard.grouping": "Groups groups",
            "irtcat.leaderboard.horizons": "Horizons horizon",
            "irtcat.leaderboard.indexing": "Index index",
            "irtcat.leaderboard.judging": "JudgedAbilities judged_abilities",
            "irtcat.leaderboard.metrics": "METRICS",
            "irtcat.leaderboard.planning": "Plan design_gaps plan",
            "irtcat.leaderboard.protocol": "ALL Progress evaluate",
            "irtcat.leaderboard.sequential": "SequentialComparison compare_sequential random_order",
            "irtcat.leaderboard.sets": "headroom",
            "irtcat.leaderboard.hold_outs": "split_subjects",
            "irtcat.leaderboard.trends": "Trend",
            "irtcat.prediction": "full_scores",
        },
    )

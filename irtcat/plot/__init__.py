"""Figures of computed results: item curves, information, rankings, scales, policies.

Every function returns a matplotlib ``Figure`` without a window or global state; `save` writes it.
Requires the extra ``plot``.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.plot.banks import headroom, information_curve, item_curves, item_parameters
    from irtcat.plot.boards import rank_correlation, reliable_gaps
    from irtcat.plot.policies import policy_ability, prompt_usefulness
    from irtcat.plot.rankings import ranked
    from irtcat.plot.scales import (
        ability_against_correct,
        correlation_matrix,
        empirical_curves,
        option_curves,
    )
    from irtcat.plot.sessions import error_curves, score_distribution, score_errors, session_path
    from irtcat.plot.style import can_draw, check_figure_path, check_figures, save
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ability_against_correct",
    "can_draw",
    "check_figure_path",
    "check_figures",
    "correlation_matrix",
    "empirical_curves",
    "error_curves",
    "headroom",
    "information_curve",
    "item_curves",
    "item_parameters",
    "option_curves",
    "policy_ability",
    "prompt_usefulness",
    "rank_correlation",
    "ranked",
    "reliable_gaps",
    "save",
    "score_distribution",
    "score_errors",
    "session_path",
]

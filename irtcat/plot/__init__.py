"""Figures of computed results: item curves, information, rankings, scales, policies.

Every function returns a matplotlib ``Figure`` without a window or global state; `save` writes it.
Requires the extra ``plot``.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.plot.banks import headroom as headroom
    from irtcat.plot.banks import information_curve as information_curve
    from irtcat.plot.banks import item_curves as item_curves
    from irtcat.plot.banks import item_parameters as item_parameters
    from irtcat.plot.boards import rank_correlation as rank_correlation
    from irtcat.plot.boards import ranked as ranked
    from irtcat.plot.boards import reliable_gaps as reliable_gaps
    from irtcat.plot.scales import ability_against_correct as ability_against_correct
    from irtcat.plot.scales import correlation_matrix as correlation_matrix
    from irtcat.plot.scales import empirical_curves as empirical_curves
    from irtcat.plot.scales import option_curves as option_curves
    from irtcat.plot.sessions import error_curves as error_curves
    from irtcat.plot.sessions import policy_ability as policy_ability
    from irtcat.plot.sessions import prompt_usefulness as prompt_usefulness
    from irtcat.plot.sessions import score_distribution as score_distribution
    from irtcat.plot.sessions import score_errors as score_errors
    from irtcat.plot.sessions import session_path as session_path
    from irtcat.plot.style import can_draw as can_draw
    from irtcat.plot.style import check_figure_path as check_figure_path
    from irtcat.plot.style import check_figures as check_figures
    from irtcat.plot.style import save as save
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.plot.banks": "headroom information_curve item_curves item_parameters",
            "irtcat.plot.boards": "rank_correlation ranked reliable_gaps",
            "irtcat.plot.scales": "ability_against_correct correlation_matrix empirical_curves "
            "option_curves",
            "irtcat.plot.sessions": "error_curves policy_ability prompt_usefulness "
            "score_distribution score_errors session_path",
            "irtcat.plot.style": "can_draw check_figure_path check_figures save",
        },
    )

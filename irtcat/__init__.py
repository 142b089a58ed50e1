"""irtcat: item response theory that makes evaluation cheap and honest.

The public interface is imported from here; modules load on first use, so that importing the
package (and the command line's ``--help``) is fast.

    import irtcat
    r = irtcat.read_responses("responses.csv")
    f = irtcat.fit(r, "2pl")
    irtcat.score(f.bank, r).to_frame()
"""

import importlib
from typing import TYPE_CHECKING, Any

from irtcat._version import __version__ as __version__

if TYPE_CHECKING:
    from irtcat import (
        agreement,
        cat,
        datasets,
        diagnose,
        harness,
        io,
        leaderboard,
        plot,
        report,
        scale,
        training,
    )
    from irtcat._checks import InputError
    from irtcat.bank import ItemBank
    from irtcat.fitting import Fit, Link, fit, link
    from irtcat.information import fisher_information, test_information
    from irtcat.io import as_responses, read_responses
    from irtcat.leaderboard import compare
    from irtcat.loading import describe, load
    from irtcat.models import MODELS
    from irtcat.prediction import ESTIMATORS, predict
    from irtcat.prediction.two_stage import select_next
    from irtcat.responses import Responses
    from irtcat.rotation import factor_loadings, rotate
    from irtcat.scoring import Ability, plausible_values, score, sum_score_table
    from irtcat.selection import STRATEGIES, Subset, select

__all__ = [
    "ESTIMATORS",
    "MODELS",
    "STRATEGIES",
    "Ability",
    "Fit",
    "InputError",
    "ItemBank",
    "Link",
    "Responses",
    "Subset",
    "agreement",
    "as_responses",
    "cat",
    "compare",
    "datasets",
    "describe",
    "diagnose",
    "factor_loadings",
    "fisher_information",
    "fit",
    "harness",
    "io",
    "leaderboard",
    "link",
    "load",
    "plausible_values",
    "plot",
    "predict",
    "read_responses",
    "report",
    "rotate",
    "scale",
    "score",
    "select",
    "select_next",
    "sum_score_table",
    "test_information",
    "training",
]

_HOME = {
    "Ability": "scoring",
    "ESTIMATORS": "prediction",
    "Fit": "fitting",
    "InputError": "_checks",
    "ItemBank": "bank",
    "Link": "fitting",
    "MODELS": "models",
    "Responses": "responses",
    "STRATEGIES": "selection",
    "Subset": "selection",
    "as_responses": "io",
    "compare": "leaderboard",
    "describe": "loading",
    "factor_loadings": "rotation",
    "fisher_information": "information",
    "fit": "fitting",
    "link": "fitting",
    "load": "loading",
    "plausible_values": "scoring",
    "predict": "prediction",
    "read_responses": "io",
    "rotate": "rotation",
    "score": "scoring",
    "select": "selection",
    "select_next": "prediction.two_stage",
    "sum_score_table": "scoring",
    "test_information": "information",
}
_MODULES = (
    "agreement",
    "cat",
    "datasets",
    "diagnose",
    "harness",
    "io",
    "leaderboard",
    "plot",
    "report",
    "scale",
    "training",
)


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _MODULES:
        return importlib.import_module(f"irtcat.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"irtcat.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'irtcat' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])

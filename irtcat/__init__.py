"""irtcat: item response theory that makes evaluation cheap and honest.

The public interface is imported from here; modules load on first use, so that importing the
package (and the command line's ``--help``) is fast.

    import irtcat
    r = irtcat.read_responses("responses.csv")
    f = irtcat.fit(r, "2pl")
    irtcat.score(f.bank, r).to_frame()
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names
from irtcat._version import __version__ as __version__

if TYPE_CHECKING:
    from irtcat import (
        agreement,
        cat,
        diagnose,
        features,
        harness,
        io,
        leaderboard,
        plot,
        report,
        scale,
        training,
    )
    from irtcat._common.checks import InputError
    from irtcat.bank import (
        ItemBank,
        Population,
        factor_loadings,
        fisher_information,
        rotate,
        test_information,
    )
    from irtcat.diagnose import plan_calibration
    from irtcat.fitting import (
        EM,
        VI,
        BenchmarkFit,
        Fit,
        Joint,
        Link,
        fit,
        fit_benchmarks,
        link,
        update_items,
    )
    from irtcat.io import as_responses, read_responses
    from irtcat.leaderboard import compare, horizon, index
    from irtcat.loading import describe, load
    from irtcat.models import MODELS
    from irtcat.prediction import ESTIMATORS, ShortForm, predict, short_form, short_forms
    from irtcat.prediction.two_stage import select_next
    from irtcat.responses import Responses, datasets
    from irtcat.scoring import Ability, plausible_values, score, sum_score_table
    from irtcat.selection import STRATEGIES, Subset, select
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "EM",
    "ESTIMATORS",
    "MODELS",
    "STRATEGIES",
    "VI",
    "Ability",
    "BenchmarkFit",
    "Fit",
    "InputError",
    "ItemBank",
    "Joint",
    "Link",
    "Population",
    "Responses",
    "ShortForm",
    "Subset",
    "agreement",
    "as_responses",
    "cat",
    "compare",
    "datasets",
    "describe",
    "diagnose",
    "factor_loadings",
    "features",
    "fisher_information",
    "fit",
    "fit_benchmarks",
    "harness",
    "horizon",
    "index",
    "io",
    "leaderboard",
    "link",
    "load",
    "plan_calibration",
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
    "short_form",
    "short_forms",
    "sum_score_table",
    "test_information",
    "training",
    "update_items",
]

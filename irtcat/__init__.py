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
    from irtcat import agreement as agreement
    from irtcat import cat as cat
    from irtcat import diagnose as diagnose
    from irtcat import features as features
    from irtcat import harness as harness
    from irtcat import io as io
    from irtcat import leaderboard as leaderboard
    from irtcat import plot as plot
    from irtcat import report as report
    from irtcat import scale as scale
    from irtcat import training as training
    from irtcat._common.errors import InputError as InputError
    from irtcat.bank import ItemBank as ItemBank
    from irtcat.bank import Population as Population
    from irtcat.bank import factor_loadings as factor_loadings
    from irtcat.bank import fisher_information as fisher_information
    from irtcat.bank import rotate as rotate
    from irtcat.bank import test_information as test_information
    from irtcat.diagnose import plan_calibration as plan_calibration
    from irtcat.fitting import EM as EM
    from irtcat.fitting import VI as VI
    from irtcat.fitting import BenchmarkFit as BenchmarkFit
    from irtcat.fitting import Fit as Fit
    from irtcat.fitting import Joint as Joint
    from irtcat.fitting import Link as Link
    from irtcat.fitting import fit as fit
    from irtcat.fitting import fit_benchmarks as fit_benchmarks
    from irtcat.fitting import link as link
    from irtcat.fitting import update_items as update_items
    from irtcat.io import as_responses as as_responses
    from irtcat.io import read_responses as read_responses
    from irtcat.leaderboard import compare as compare
    from irtcat.leaderboard import horizon as horizon
    from irtcat.leaderboard import index as index
    from irtcat.loading import describe as describe
    from irtcat.loading import load as load
    from irtcat.models import MODELS as MODELS
    from irtcat.prediction import ESTIMATORS as ESTIMATORS
    from irtcat.prediction import ShortForm as ShortForm
    from irtcat.prediction import predict as predict
    from irtcat.prediction import short_form as short_form
    from irtcat.prediction import short_forms as short_forms
    from irtcat.prediction.two_stage import select_next as select_next
    from irtcat.responses import Responses as Responses
    from irtcat.responses import datasets as datasets
    from irtcat.scoring import Ability as Ability
    from irtcat.scoring import plausible_values as plausible_values
    from irtcat.scoring import score as score
    from irtcat.scoring import sum_score_table as sum_score_table
    from irtcat.selection import STRATEGIES as STRATEGIES
    from irtcat.selection import Subset as Subset
    from irtcat.selection import select as select
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat": "agreement cat diagnose features harness io leaderboard plot report scale "
            "training",
            "irtcat._common.errors": "InputError",
            "irtcat.bank": "ItemBank Population factor_loadings fisher_information rotate "
            "test_information",
            "irtcat.diagnose": "plan_calibration",
            "irtcat.fitting": "EM VI BenchmarkFit Fit Joint Link fit fit_benchmarks link "
            "update_items",
            "irtcat.io": "as_responses read_responses",
            "irtcat.leaderboard": "compare horizon index",
            "irtcat.loading": "describe load",
            "irtcat.models": "MODELS",
            "irtcat.prediction": "ESTIMATORS ShortForm predict short_form short_forms",
            "irtcat.prediction.two_stage": "select_next",
            "irtcat.responses": "Responses datasets",
            "irtcat.scoring": "Ability plausible_values score sum_score_table",
            "irtcat.selection": "STRATEGIES Subset select",
        },
    )

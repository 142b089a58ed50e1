"""The rules of an adaptive test: start, selection, content, exposure, stopping, estimation."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.rules.assembly import Rules, best_form
    from irtcat.cat.rules.content import SOLVER
    from irtcat.cat.rules.exposure import greatest_rate
    from irtcat.cat.rules.stopping import single_rules
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["SOLVER", "Rules", "best_form", "greatest_rate", "single_rules"]

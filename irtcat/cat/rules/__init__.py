"""The rules of an adaptive test: start, selection, content, exposure, stopping, estimation."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.rules.assembly import Rules as Rules
    from irtcat.cat.rules.assembly import best_form as best_form
    from irtcat.cat.rules.exposure import greatest_rate as greatest_rate
    from irtcat.cat.rules.stopping import single_rules as single_rules
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.cat.rules.assembly": "Rules best_form",
            "irtcat.cat.rules.exposure": "greatest_rate",
            "irtcat.cat.rules.stopping": "single_rules",
        },
    )

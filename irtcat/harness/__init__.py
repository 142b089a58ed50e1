"""Evaluation harnesses: export of reduced runs, and adaptive evaluation of live models."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.harness.answers import Answer as Answer
    from irtcat.harness.answers import Calls as Calls
    from irtcat.harness.answers import Harness as Harness
    from irtcat.harness.command import Command as Command
    from irtcat.harness.evaluation import default_length as default_length
    from irtcat.harness.evaluation import evaluate as evaluate
    from irtcat.harness.exports import EXPORTS as EXPORTS
    from irtcat.harness.exports import Export as Export
    from irtcat.harness.exports import export as export
    from irtcat.harness.inspect_tasks import Adaptive as Adaptive
    from irtcat.harness.inspect_tasks import Inspect as Inspect
    from irtcat.harness.items import Item as Item
    from irtcat.harness.live_comparison import compare_live as compare_live
    from irtcat.harness.lm_eval_tasks import LmEval as LmEval
    from irtcat.harness.registry import HARNESSES as HARNESSES
    from irtcat.harness.result import Evaluation as Evaluation
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.harness.answers": "Answer Calls Harness",
            "irtcat.harness.command": "Command",
            "irtcat.harness.evaluation": "default_length evaluate",
            "irtcat.harness.exports": "EXPORTS Export export",
            "irtcat.harness.inspect_tasks": "Adaptive Inspect",
            "irtcat.harness.items": "Item",
            "irtcat.harness.live_comparison": "compare_live",
            "irtcat.harness.lm_eval_tasks": "LmEval",
            "irtcat.harness.registry": "HARNESSES",
            "irtcat.harness.result": "Evaluation",
        },
    )

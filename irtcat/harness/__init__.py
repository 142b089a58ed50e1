"""Evaluation harnesses: export of reduced runs, and adaptive evaluation of live models."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.harness.answers import Answer, Calls, Harness
    from irtcat.harness.command import Command
    from irtcat.harness.evaluation import Evaluation, default_length, evaluate
    from irtcat.harness.exports import EXPORTS, Export, export
    from irtcat.harness.inspect_tasks import Adaptive, Inspect
    from irtcat.harness.items import Item
    from irtcat.harness.live_comparison import compare_live
    from irtcat.harness.lm_eval_tasks import LmEval
    from irtcat.harness.registry import HARNESSES
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "EXPORTS",
    "HARNESSES",
    "Adaptive",
    "Answer",
    "Calls",
    "Command",
    "Evaluation",
    "Export",
    "Harness",
    "Inspect",
    "Item",
    "LmEval",
    "compare_live",
    "default_length",
    "evaluate",
    "export",
]

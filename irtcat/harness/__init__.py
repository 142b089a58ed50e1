"""Evaluation harnesses: export of reduced runs, and adaptive evaluation of live models."""

from irtcat.harness._items import Item
from irtcat.harness.answers import Answer, Calls, Harness
from irtcat.harness.command import Command
from irtcat.harness.evaluation import Evaluation, evaluate
from irtcat.harness.exports import EXPORTS, Export, export
from irtcat.harness.inspect_tasks import Adaptive, Inspect
from irtcat.harness.lm_eval_tasks import LmEval

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
    "evaluate",
    "export",
]

HARNESSES = {"lm-eval": LmEval, "inspect": Inspect, "command": Command}
"""Harnesses by name; to add one, write a class with ``about`` and ``drive`` and add a row."""

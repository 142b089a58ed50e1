"""The table of harnesses."""

from typing import Any

from irtcat.harness.command import Command
from irtcat.harness.inspect_tasks import Inspect
from irtcat.harness.lm_eval_tasks import LmEval

HARNESSES: dict[str, Any] = {"lm-eval": LmEval, "inspect": Inspect, "command": Command}
"""Harnesses by name; to add one, write a class with ``about`` and ``drive`` and add a row."""

"""The table of log formats."""

from irtcat._common.registry import Registry
from irtcat.io.logs.every_eval_ever import EVERY_EVAL_EVER
from irtcat.io.logs.format import LogFormat
from irtcat.io.logs.helm import HELM
from irtcat.io.logs.inspect_log import INSPECT
from irtcat.io.logs.lighteval import LIGHTEVAL
from irtcat.io.logs.lm_eval import LM_EVAL

LOG_FORMATS: Registry[LogFormat] = Registry(
    "irtcat.log_formats",
    LogFormat,
    ("format", "logs", "reference"),
    [LM_EVAL, INSPECT, EVERY_EVAL_EVER, HELM, LIGHTEVAL],
)
"""Log formats by name; to add one, write a row in a file of its own."""

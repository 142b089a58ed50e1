"""The table of log formats."""

from irtcat._common.registry import Registry
from irtcat.io.logs.alpaca_eval import ALPACA_EVAL
from irtcat.io.logs.bigcodebench import BIGCODEBENCH
from irtcat.io.logs.evalplus import EVALPLUS
from irtcat.io.logs.evalscope import EVALSCOPE
from irtcat.io.logs.every_eval_ever import EVERY_EVAL_EVER
from irtcat.io.logs.format import LogFormat
from irtcat.io.logs.helm import HELM
from irtcat.io.logs.inspect_log import INSPECT
from irtcat.io.logs.lighteval import LIGHTEVAL
from irtcat.io.logs.livecodebench import LIVECODEBENCH
from irtcat.io.logs.lm_eval import LM_EVAL
from irtcat.io.logs.lmms_eval import LMMS_EVAL
from irtcat.io.logs.mt_bench import MT_BENCH
from irtcat.io.logs.opencompass import OPENCOMPASS
from irtcat.io.logs.swe_bench import SWE_BENCH
from irtcat.io.logs.terminal_bench import TERMINAL_BENCH
from irtcat.io.logs.wildbench import WILDBENCH

LOG_FORMATS: Registry[LogFormat] = Registry(
    "irtcat.log_formats",
    LogFormat,
    ("format", "logs", "reference"),
    # The first row that recognises a file reads it.
    [
        *(LMMS_EVAL, LM_EVAL, BIGCODEBENCH, INSPECT, EVERY_EVAL_EVER, HELM, LIGHTEVAL),
        *(EVALSCOPE, OPENCOMPASS, EVALPLUS, LIVECODEBENCH, TERMINAL_BENCH, SWE_BENCH),
        *(ALPACA_EVAL, MT_BENCH, WILDBENCH),
    ],
)
"""Log formats by name; to add one, write a row in a file of its own."""

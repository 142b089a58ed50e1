"""Logs of evaluation harnesses: one file per format, a table of them, and one reader."""

from irtcat._common.lazy import public_names
from irtcat.io.logs.find import LOG_FORMATS
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run, Skipped
from irtcat.io.logs.read import INCOMPLETE, RUNS, UNSCORED, ImportReport, Logs, read_logs
from irtcat.io.logs.values import CutError, as_object, as_text, json_lines, model_arguments
from irtcat.responses._conditions import MISMATCH

__all__ = [
    "INCOMPLETE",
    "LOG_FORMATS",
    "MISMATCH",
    "RUNS",
    "UNSCORED",
    "CutError",
    "ImportReport",
    "LogFile",
    "LogFormat",
    "Logs",
    "Request",
    "Run",
    "Skipped",
    "as_object",
    "as_text",
    "json_lines",
    "model_arguments",
    "read_logs",
]

__dir__ = public_names(__name__)

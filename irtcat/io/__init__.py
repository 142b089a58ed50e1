"""Response files, harness logs and other data: one module per format."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat._files.csv import csv_escape as csv_escape
    from irtcat.io.convert import ResponsesLike as ResponsesLike
    from irtcat.io.convert import as_responses as as_responses
    from irtcat.io.every_eval_ever_out import write_every_eval_ever as write_every_eval_ever
    from irtcat.io.files import FORMATS as FORMATS
    from irtcat.io.files import read_responses as read_responses
    from irtcat.io.judgements import read_judgements as read_judgements
    from irtcat.io.logs import LOG_FORMATS as LOG_FORMATS
    from irtcat.io.logs import ImportReport as ImportReport
    from irtcat.io.logs import LogFormat as LogFormat
    from irtcat.io.logs import Logs as Logs
    from irtcat.io.logs import read_logs as read_logs
    from irtcat.io.parameters import DIALECTS as DIALECTS
    from irtcat.io.parameters import Dialect as Dialect
    from irtcat.io.parameters import read_parameters as read_parameters
    from irtcat.io.parameters import write_parameters as write_parameters
    from irtcat.io.source import ResponseSource as ResponseSource
    from irtcat.io.source import open_source as open_source
    from irtcat.io.tables_out import to_inference_data as to_inference_data
    from irtcat.io.tables_out import to_polars as to_polars
    from irtcat.io.tables_out import to_xarray as to_xarray
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat._files.csv": "csv_escape",
            "irtcat.io.convert": "ResponsesLike as_responses",
            "irtcat.io.every_eval_ever_out": "write_every_eval_ever",
            "irtcat.io.files": "FORMATS read_responses",
            "irtcat.io.judgements": "read_judgements",
            "irtcat.io.logs": "LOG_FORMATS ImportReport LogFormat Logs read_logs",
            "irtcat.io.source": "ResponseSource open_source",
            "irtcat.io.tables_out": "to_inference_data to_polars to_xarray",
            "irtcat.io.parameters": "DIALECTS Dialect read_parameters write_parameters",
        },
    )

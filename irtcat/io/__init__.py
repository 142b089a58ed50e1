"""Response files, harness logs and other data: one module per format."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat._files.csv import csv_escape
    from irtcat.io.convert import ResponsesLike, as_responses
    from irtcat.io.every_eval_ever_out import write_every_eval_ever
    from irtcat.io.files import FORMATS, read_responses
    from irtcat.io.judgements import read_judgements
    from irtcat.io.logs import LOG_FORMATS, ImportReport, LogFormat, Logs, read_logs
    from irtcat.io.parameters import DIALECTS, Dialect, read_parameters, write_parameters
    from irtcat.io.source import ResponseSource, open_source
    from irtcat.io.tables_out import to_inference_data, to_polars, to_xarray
else:
    # Item models import JAX, and a fit needs no format of files.
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "DIALECTS",
    "FORMATS",
    "LOG_FORMATS",
    "Dialect",
    "ImportReport",
    "LogFormat",
    "Logs",
    "ResponseSource",
    "ResponsesLike",
    "as_responses",
    "csv_escape",
    "open_source",
    "read_judgements",
    "read_logs",
    "read_parameters",
    "read_responses",
    "to_inference_data",
    "to_polars",
    "to_xarray",
    "write_every_eval_ever",
    "write_parameters",
]

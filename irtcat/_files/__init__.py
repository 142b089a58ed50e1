"""Reading and writing files: safely, atomically, with bounds."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat._files.archives import Unpacker
    from irtcat._files.csv import FORMULAS, is_marked, unescape
    from irtcat._files.formats import FileFormat
    from irtcat._files.json import json_hash, json_text, json_value, write_json
    from irtcat._files.reading import check_path, check_regular, opened, read_bytes
    from irtcat._files.writing import check_target, replacing
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "FORMULAS",
    "FileFormat",
    "Unpacker",
    "check_path",
    "check_regular",
    "check_target",
    "is_marked",
    "json_hash",
    "json_text",
    "json_value",
    "opened",
    "read_bytes",
    "replacing",
    "unescape",
    "write_json",
]

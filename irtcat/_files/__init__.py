"""Reading and writing files: safely, atomically, with bounds."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat._files.archives import Unpacker as Unpacker
    from irtcat._files.csv import FORMULAS as FORMULAS
    from irtcat._files.csv import is_marked as is_marked
    from irtcat._files.csv import unescape as unescape
    from irtcat._files.formats import FileFormat as FileFormat
    from irtcat._files.json import json_hash as json_hash
    from irtcat._files.json import json_text as json_text
    from irtcat._files.json import json_value as json_value
    from irtcat._files.json import write_json as write_json
    from irtcat._files.reading import check_path as check_path
    from irtcat._files.reading import check_regular as check_regular
    from irtcat._files.reading import opened as opened
    from irtcat._files.reading import read_bytes as read_bytes
    from irtcat._files.writing import check_target as check_target
    from irtcat._files.writing import replacing as replacing
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat._files.archives": "Unpacker",
            "irtcat._files.csv": "FORMULAS is_marked unescape",
            "irtcat._files.formats": "FileFormat",
            "irtcat._files.json": "json_hash json_text json_value write_json",
            "irtcat._files.reading": "check_path check_regular opened read_bytes",
            "irtcat._files.writing": "check_target replacing",
        },
    )

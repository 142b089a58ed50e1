"""One self-contained HTML page from saved results: no network, no server, nothing to install.

`build` returns the page as text, `write` writes it to a file, `read` reads a saved result. All
numbers are computed in Python; the page's script draws, sorts, searches and evaluates item curves.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.report.building import LIMIT as LIMIT
    from irtcat.report.building import build as build
    from irtcat.report.building import write as write
    from irtcat.report.reading import KINDS as KINDS
    from irtcat.report.reading import Result as Result
    from irtcat.report.reading import read as read
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.report.building": "LIMIT build write",
            "irtcat.report.reading": "KINDS Result read",
        },
    )

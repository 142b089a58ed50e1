"""One self-contained HTML page from saved results: no network, no server, nothing to install.

`build` gives the page as text, `write` writes it; `read` says what a file or folder holds. All
numbers are computed here by the functions of the package; the page's script draws, sorts, searches
and evaluates item curves.
"""

from irtcat.report._build import LIMIT, build, write
from irtcat.report._read import KINDS, Result, read

__all__ = ["KINDS", "LIMIT", "Result", "build", "read", "write"]

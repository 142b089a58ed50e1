"""The version of the package."""

from pathlib import Path

_BUILT = Path(__file__).with_name("version.txt")  # written by the build

__version__ = _BUILT.read_text().strip() if _BUILT.is_file() else "0.1.0"

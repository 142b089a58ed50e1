"""Item parameters of other tools: reading them as a bank, and writing a bank's."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.io.parameters.columns import ROLES, Column
    from irtcat.io.parameters.dialects import DIALECTS, Dialect
    from irtcat.io.parameters.reading import read_parameters
    from irtcat.io.parameters.writing import write_parameters
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["DIALECTS", "ROLES", "Column", "Dialect", "read_parameters", "write_parameters"]

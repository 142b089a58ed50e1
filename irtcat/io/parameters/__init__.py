"""Item parameters of other tools: reading them as a bank, and writing a bank's."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.io.parameters.dialects import DIALECTS as DIALECTS
    from irtcat.io.parameters.dialects import ROLES as ROLES
    from irtcat.io.parameters.dialects import Column as Column
    from irtcat.io.parameters.dialects import Dialect as Dialect
    from irtcat.io.parameters.reading import read_parameters as read_parameters
    from irtcat.io.parameters.writing import write_parameters as write_parameters
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.io.parameters.dialects": "DIALECTS ROLES Column Dialect",
            "irtcat.io.parameters.reading": "read_parameters",
            "irtcat.io.parameters.writing": "write_parameters",
        },
    )

"""Type aliases of arrays.

Shapes are written with jaxtyping: ``Float[Array, "items nodes"]``. The axis names *subjects*,
*items*, *nodes*, *categories* and *params* have the same meaning everywhere.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.floating]
IntArray: TypeAlias = npt.NDArray[np.integer]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = Sequence[str] | npt.NDArray[np.str_] | npt.NDArray[np.object_]

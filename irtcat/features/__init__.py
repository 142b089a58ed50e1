"""Features of items and subjects: what is known of them besides responses.

`irtcat.fit` takes tables of features (``subject_features``, ``item_features``); `text` makes a
table of texts.
"""

from irtcat._common.lazy import public_names
from irtcat.features.design import Design as Design
from irtcat.features.design import check_features as check_features
from irtcat.features.design import design_of as design_of
from irtcat.features.texts import text

__all__ = ["text"]

INTERNAL = ("Design", "check_features", "design_of")
"""What other parts of the package import."""

__dir__ = public_names(__name__)

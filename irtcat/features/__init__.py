"""Features of items and subjects: what is known of them besides responses.

`irtcat.fit` takes tables of features (``subject_features``, ``item_features``); `text` makes a
table of texts.
"""

# ruff: noqa: F401
# Names besides those of `__all__` are for irtcat's other packages: they may change in any release.

from irtcat._common.lazy import public_names
from irtcat.features.design import Design, check_features, design_of
from irtcat.features.texts import text

__all__ = ["text"]

__dir__ = public_names(__name__)

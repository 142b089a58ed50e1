"""Whether a calibrated model fits: items, pairs of items, the whole, subjects, reliability."""

from irtcat.diagnose._corrections import benjamini_hochberg, holm

__all__ = ["benjamini_hochberg", "holm"]

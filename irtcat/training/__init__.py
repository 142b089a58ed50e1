"""IRT for model training: crowds, filters, curricula, training dynamics, wrong labels.

    from irtcat import fit
    from irtcat.training import crowd, filters
    members = crowd.build(classifier, (X, y), 1000, size=(0.05, 0.8), label_noise=(0.0, 0.3))
    bank = fit(members.responses(), "rasch").bank
    easy = filters.apply(bank, "ub", keep=0.25)
    classifier.fit(X[easy.indices], y[easy.indices])

Modules load on first use: `crowd`, `filters`, `curriculum`, `dynamics`, and `labels`, which is
`irtcat.diagnose.labels`.
"""

import importlib
from typing import Any

__all__ = ["crowd", "curriculum", "dynamics", "filters", "labels"]

_MODULES = {"labels": "irtcat.diagnose.labels"}


def __getattr__(name: str) -> Any:
    """Load a module on first use."""
    if name in __all__:
        return importlib.import_module(_MODULES.get(name, f"irtcat.training.{name}"))
    raise AttributeError(f"module 'irtcat.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)

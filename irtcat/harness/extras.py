"""Import of optional harnesses."""

import importlib
from types import ModuleType

from irtcat._common.checks import InputError


def imported(module: str, name: str) -> ModuleType:
    """The module of an optional harness.

    Args:
        module: name of the module.
        name: name for messages.

    Raises:
        InputError: if it is not installed; it names the extra.

    Example:
        >>> imported("no_such_harness", "No-such")
        Traceback (most recent call last):
        irtcat._common.checks.InputError: No-such is not installed. Install it with: pip install ...
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        advice = "Install it with: pip install 'irtcat[harness]'"
        raise InputError(f"{name} is not installed. {advice}") from None

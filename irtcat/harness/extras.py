"""Import of optional harnesses, and of models from users' own Python files."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from irtcat._common.checks import InputError, argument_error, brief, one_line


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
        irtcat._common.errors.InputError: No-such is not installed. Install it with: pip install ...
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        advice = "Install it with: pip install 'irtcat[harness]'"
        raise InputError(f"{name} is not installed. {advice}") from None


def is_in_file(model: Any) -> bool:
    """Whether a model is named as ``file.py@name``.

    Example:
        >>> is_in_file("models.py@mine"), is_in_file("hf"), is_in_file("openai/gpt@x")
        (True, False, False)
    """
    return isinstance(model, str) and model.partition("@")[0].endswith(".py") and "@" in model


def model_in_file(model: str, arguments: Mapping[str, Any]) -> Any:
    """What a class or a function in a Python file returns, or an object in it.

    Args:
        model: ``file.py@name``.
        arguments: keyword arguments of the class or the function.

    Raises:
        InputError: if the file cannot be imported, has no such name, or the call fails.
    """
    file, _, name = model.partition("@")
    path = Path(file)
    if not path.is_file():
        raise argument_error("model", "FILE.py@NAME of a file that exists", model)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # as for a script, so that it can import the files beside it
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            raise argument_error("model", f"FILE.py@NAME of a name in {file}", model)
        found = getattr(module, name)
        return found(**arguments) if callable(found) else found
    except InputError:
        raise
    except Exception as error:  # the file may raise any error
        cause = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"The model {brief(model)} cannot be created: {cause}") from error
    finally:
        sys.path.remove(folder)

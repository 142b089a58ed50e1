"""Format, version and hash of what irtcat writes; every file and document has the first two."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from irtcat._common.checks import InputError, shorten


class FileFormat(NamedTuple):
    """A format, of which one version is written and read.

    Attributes:
        name: the value of the field ``format``.
        noun: what a file of the format is, with its article.
        advice: what to do about a file of another format or version.
        version: the value of the field ``version``.

    Example:
        >>> forms = FileFormat("irtcat-form", "a test form", "Make it again.")
        >>> forms.head
        {'format': 'irtcat-form', 'version': 1}
        >>> forms.check({"format": "irtcat-form", "version": 2}, "a.json")
        Traceback (most recent call last):
        irtcat._common.errors.InputError: a.json: expected a test form of version 1. Got ...
    """

    name: str
    noun: str
    advice: str = ""
    version: int = 1

    @property
    def head(self) -> dict[str, Any]:
        """The fields ``format`` and ``version``."""
        return {"format": self.name, "version": self.version}

    def check(self, document: Any, path: Any, error: type[InputError] = InputError) -> None:
        """Raise unless the document of a file has the head of this format and version."""
        if got := self._mismatch(document):
            text = f"{path}: expected {self.noun} of version {self.version}. Got {got}."
            raise error(f"{text} {self.advice}".rstrip())

    def check_argument(self, name: str, document: Any) -> None:
        """Raise unless an argument has the head of this format and version."""
        if got := self._mismatch(document):
            text = f"The `{name}` argument must be {self.noun} of version {self.version}."
            raise InputError(f"{text} Got {got}. {self.advice}".rstrip())

    def _mismatch(self, document: Any) -> str:
        """What a document is instead; empty if its head is right."""
        if not isinstance(document, Mapping):
            return f"the type {type(document).__name__}"
        if "format" not in document:
            return "one without a format"
        if document["format"] != self.name:
            return f"the format {shorten(document['format'])}"
        version = document.get("version")
        # A state of a selector may hold it as an array or a tensor.
        is_right = not isinstance(version, bool) and version == self.version
        return "" if is_right else f"version {shorten(version)}"

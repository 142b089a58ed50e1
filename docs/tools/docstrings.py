"""How docstrings are read for the reference."""

import re
from typing import Any

import griffe

__all__ = ["ExampleSections"]


class ExampleSections(griffe.Extension):
    """Read "Example:" as griffe reads "Examples:", and references as one paragraph each.

    Otherwise the examples would be read as Markdown.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of every object that is loaded."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            head, title, references = text.partition("References:\n")
            # A line that is indented further continues the one before.
            obj.docstring.value = head + title + re.sub(r"\n {8,}", " ", references)

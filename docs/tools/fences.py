"""Fences of code blocks that a page shows instead of rendering them."""

import re
from html.parser import HTMLParser
from typing import Any

__all__ = ["stray_fences"]

FENCE = re.compile(r"```|~~~")
HEADING = re.compile(r'\s*[a-z]+(?: \w+="[^"]*")+\n')
"""The first line of code in a line of text that is the heading of a block."""
APART = ("pre", "code", "script", "style")


def stray_fences(page: str) -> list[str]:
    """The lines of an HTML page with a fence among the text, or as the start of code in a line.

    Example:
        >>> stray_fences("<pre>```</pre><p>Write <code>```</code></p>")
        []
        >>> stray_fences('<p>```python needs="torch"</p>')
        ['```python needs="torch"']
    """
    found = Parts(page)
    lines = [line.strip() for line in found.text.splitlines() if FENCE.search(line)]
    return lines + [match[0].strip() for match in map(HEADING.match, found.codes) if match]


class Parts(HTMLParser):
    """The text of a page without code, scripts and styles; and all its code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.codes, self._open = "", [""], 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in APART:
            self._open += 1
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open -= tag in APART

    def handle_data(self, data: str) -> None:
        if self._open:
            self.codes[-1] += data
        else:
            self.text += data

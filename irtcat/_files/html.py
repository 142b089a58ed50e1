"""Pages in one file: data that cannot end an element, and hashes that allow inline code."""

import base64
import hashlib
import re

UNSAFE = re.compile("[<>&@\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that could end an element, or change the writing direction."""


def escaped(text: str) -> str:
    r"""Escape JSON so that it cannot open or close an HTML element; the data are unchanged.

    Example:
        >>> escaped('"</script><b>&"')
        '"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"'
    """
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def policy_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""Pages in one HTML file: Jinja2 with style, script and data in the page, which loads nothing."""

import base64
import functools
import hashlib
import re
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from irtcat._files.json import json_text
from irtcat._version import __version__

UNSAFE = re.compile("[<>&@\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that could end an element, or change the writing direction."""


def script_json(document: Any) -> str:
    r"""Compact JSON that cannot open or close an HTML element; the data are unchanged.

    Example:
        >>> script_json("</script><b>&")
        '"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"'
    """
    text = json_text(document, ensure_ascii=False, separators=(",", ":"))
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def asset(folder: str, name: str) -> str:
    """The text of a file of the package."""
    return resources.files("irtcat").joinpath(folder, name).read_text("utf-8")


def one_line(text: object) -> str:
    """A text on one line; the filter ``line`` of templates."""
    return " ".join(str(text).split())


@functools.cache
def _template(folder: str) -> jinja2.Template:
    """The template page.html of a folder, which escapes every value that is not `Markup`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("irtcat", folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    return environment.get_template("page.html")


def rendered(
    folder: str, *, style: str, script: str, data: str, connects: str = "", **values: Any
) -> str:
    """The template of a folder with a policy that allows this style and script, and no others.

    Args:
        folder: that of page.html, within the package.
        style: inline style.
        script: inline script.
        data: from `script_json`.
        connects: a directive of the policy for connections, with its semicolon.
        **values: what the template shows; they are escaped.
    """
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; {connects}base-uri 'none'; form-action 'none'"
    )
    inline = {"policy": policy, "style": style, "script": script, "data": data}
    marked = {name: Markup(text) for name, text in inline.items()}
    return _template(folder).render(**values, **marked, version=__version__)

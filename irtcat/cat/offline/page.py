"""An adaptive test in one HTML file that needs no server, or as a module for other pages."""

import functools
import os
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pandas as pd
from markupsafe import Markup

from irtcat._common.checks import argument_error
from irtcat._files.html import escaped, policy_hash
from irtcat._files.json import json_text
from irtcat._files.writing import replacing
from irtcat._version import __version__
from irtcat.bank import BankLike
from irtcat.cat.engine.arguments import checked_bank
from irtcat.cat.engine.config import Config
from irtcat.cat.offline.document import document_of
from irtcat.cat.offline.presentation import questions_of

KEYS_IN_PAGE = (
    "The keys are in the page: whoever opens its source can read the item parameters, which choice "
    "gives which score, and all items; results can be made up. Use it for practice, research and "
    "supervised rooms, and irtcat serve for tests with consequences."
)
"""What is to be known of such a page before it is passed on."""


@dataclass(frozen=True, eq=False)
class OfflineTest:
    """An adaptive test that runs in a browser without a server.

    Attributes:
        document: the test as the engine in JavaScript reads it.
        questions: prompt and choices of each item, by its id.
        title: heading of the page.
        post: address to which the results are sent; empty for none.
    """

    document: dict[str, Any] = field(repr=False)
    questions: dict[str, Any] = field(repr=False)
    title: str
    post: str = ""

    def to_html(self) -> str:
        """The page: one file with items, engine and style, which loads nothing."""
        style, script = _asset("page.css"), _asset("engine.js") + _asset("page.js")
        connects = f"connect-src {_origin(self.post)}; " if self.post else ""
        policy = (
            f"default-src 'none'; style-src '{policy_hash(style)}'; "
            f"script-src '{policy_hash(script)}'; {connects}base-uri 'none'; form-action 'none'"
        )
        data = {"test": self.document, "title": self.title, "address": self.post}
        data["questions"] = self.questions
        return _template().render(
            title=self.title,
            policy=Markup(policy),
            style=Markup(style),
            script=Markup(script),
            data=Markup(_json(data)),
            version=__version__,
        )

    def to_module(self) -> str:
        """An ES module with ``Session``, ``test`` and ``questions``, such as for jsPsych."""
        warning = "\n".join(f" * {line}" for line in (f"irtcat {__version__}.", KEYS_IN_PAGE))
        head = f"/*\n{warning}\n */\n"
        exports = {"test": self.document, "questions": self.questions}
        lines = [f"\nexport const {name} = {_json(value)};" for name, value in exports.items()]
        return head + _asset("engine.js") + "".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, or the module where the name ends in .js or .mjs, atomically.

        Raises:
            InputError: it cannot be written.
        """
        is_module = Path(path).suffix in (".js", ".mjs")
        with replacing(path) as file:
            file.write((self.to_module() if is_module else self.to_html()).encode("utf-8"))
        return Path(path)


def offline_test(
    bank: BankLike,
    config: Config | None = None,
    *,
    items: pd.DataFrame | None = None,
    title: str = "Test",
    post: str = "",
) -> OfflineTest:
    """An adaptive test as one HTML file that runs in a browser, offline and without a server.

    It asks the same items and estimates the same abilities as a `Session` with these rules. The
    keys are in the page: whoever opens its source can read the item parameters, which choice gives
    which score, and all items.

    Args:
        bank: calibrated items of one ability: logistic, graded, partial credit or nominal.
        config: the rules, which must not draw at random; by default those of `Config`, with all
            items of a bank of fewer than 30.
        items: texts of the items by their ids, in the columns ``prompt``, ``A``, ``B``, ... and
            ``key`` (one letter) or ``points`` (``A=2|B=1``); by default those columns of the bank's
            metadata. An item without texts shows its id, and a choice for each category.
        title: heading of the page.
        post: address (https) to which the page sends the results as JSON; by default they are only
            offered as files.

    Returns:
        The test, with `OfflineTest.save`.

    Raises:
        InputError: for a bank of several abilities or with other items, rules that the page lacks
            (all are named), choices without a response, or an address that is not https.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> test = offline_test(bank, Config(max_items=2), title="Sums")
        >>> test.document["criterion"], test.questions["i2"]["choices"][1]
        ('mfi', {'label': 'Right', 'response': 1})
        >>> offline_test(bank, Config(max_items=2, exposure="randomesque"))
        Traceback (most recent call last):
        irtcat._common.checks.InputError: The `config` argument must hold rules that a page has ...
    """
    if config is None:
        config = Config(max_items=min(30, len(checked_bank(bank, Config()).item_ids)))
    bank = checked_bank(bank, config)
    if post:
        _check_address(post)
    return OfflineTest(document_of(bank, config), questions_of(bank, items), title, post)


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    is_here = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1")
    is_secure = parts.scheme == "https" and parts.hostname
    # A quote, space or semicolon would end the policy in which its origin stands.
    if not (is_secure or is_here) or not all(c.isalnum() or c in ".-:" for c in parts.netloc):
        raise argument_error("post", "an address that begins with https://", address)


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _json(document: Any) -> str:
    """Compact JSON for a script element."""
    return escaped(json_text(document, ensure_ascii=False, separators=(",", ":")))


def _asset(name: str) -> str:
    return resources.files("irtcat").joinpath("cat", "offline", "assets", name).read_text("utf-8")


@functools.cache
def _template() -> jinja2.Template:
    """The page's template, which escapes every value that is not `Markup`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("irtcat.cat.offline", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")

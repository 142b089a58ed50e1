"""An adaptive test in one HTML file that needs no server, or as a module for other pages.

The engine (``assets/engine.js``) follows one subject with one ability, one item at a time, and
draws nothing at random. What else a configuration may hold is refused, with all rules named at
once.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jax
import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.precision import precision
from irtcat._files.formats import FileFormat
from irtcat._files.html import asset, rendered, script_json
from irtcat._files.json import json_value
from irtcat._files.writing import replacing
from irtcat._version import __version__
from irtcat.bank import BankLike, ItemBank
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config, rule_names
from irtcat.cat.engine.engine import start
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.reading import checked_bank
from irtcat.models import CUMULATIVE, SOFTMAX, item_categories

ASSETS = "cat/offline/assets"

OFFLINE_TEST = FileFormat("irtcat-offline-test", "an offline test")

RULES = {
    "criterion": ("mfi", "mpwi", "sequential"),
    "method": ("eap",),
    "prior": ("normal", "uniform"),
    "stopping": ("length", "se", "information", "time"),
    "start": ("criterion",),
    "content": ("bounds", "kingsbury-zara", "penalties"),
    "exposure": ("none",),
}
"""Rules of the engine in JavaScript, by the field of `Config`."""

AT_RANDOM = {
    "criterion": ("random", "progressive", "proportional"),
    "start": ("random",),
    "exposure": ("randomesque", "sympson-hetter", "eligibility", "conditional-eligibility"),
}
"""Rules that draw at random."""

OF_PLAN = ("length", "planned", "least", "most", "group")
"""Fields of a content plan that the engine in JavaScript reads."""

REMEDY = (
    "Change these rules, or give the test with a server (irtcat serve) or irtcat.cat.Session, "
    "which take all rules."
)


def document_of(bank: BankLike, config: Config) -> dict[str, Any]:
    """The test as the engine in JavaScript reads it.

    Args:
        bank: calibrated items of one ability.
        config: the rules.

    Raises:
        InputError: as `irtcat.cat.prepare` does, or for items or rules that the engine lacks.
    """
    bank = checked_bank(bank, config, ["one ability"], "offline sessions")
    check_rules(config)
    pool = prepare(bank, config)
    if pool.plan is not None and pool.plan.kind_tied is not None:
        must = "without sets of enemies that share items or tie several content groups"
        raise argument_error("config", f"{must}, which need integer programs", "such enemies")
    state = start(pool, config, bank.population)
    with precision("float64"):
        log_prior = np.asarray(pool.belief.log_prior(context_of(pool, config, state)), float)
    nodes, se = np.asarray(pool.nodes, float), float(state.se)
    document = {
        **OFFLINE_TEST.head,
        "bank": bank.hash(),
        "config": config.hash(),
        "first_code": bank.first_code,
        "items": item_curves(bank),
        "nodes": {"low": nodes[0], "high": nodes[-1], "n": len(nodes)},
        "log_prior": log_prior - log_prior.max(),
        "theta": float(state.theta),
        "se": se if np.isfinite(se) else None,
        "criterion": config.criterion,
        "stopping": config.stopping,
        "min_items": config.min_items,
        "max_items": config.max_items,
        "first": np.asarray(pool.first),
        "content": config.content,
        "enemies": [np.flatnonzero(one) for one in np.asarray(pool.enemies).T],
        "plan": pool.plan and {name: np.asarray(getattr(pool.plan, name)) for name in OF_PLAN},
    }
    return {name: json_value(value) for name, value in document.items()}


def check_rules(config: Config) -> None:
    """Raise for rules that the engine in JavaScript does not have; all of them are named."""
    names, faults = rule_names(config), []
    for part, takes in RULES.items():
        for name in dict.fromkeys(names[part]):
            if name not in takes:
                why = "draws at random; " if name in AT_RANDOM.get(part, ()) else ""
                faults.append(f"{part} {name} ({why}a page takes {', '.join(takes)})")
    for part, value, most in (("batch", config.batch, 1), ("sampled", config.sampled, 0)):
        if value > most:
            why = "draws at random; " if part == "sampled" else ""
            faults.append(f"{part} {value:g} ({why}a page takes {most})")
    given = [part for part in ("fixed", "cost", "budget") if getattr(config, part) is not None]
    faults += [f"{part} (a page takes none)" for part in given]
    if config.pretest:
        faults.append(f"pretest {config.pretest} (drawn at random; a page takes none)")
    if faults:
        raise InputError(
            "The `config` argument must hold rules that a page has without a server. Got "
            f"{'; '.join(faults)}. {REMEDY}"
        )


def item_curves(bank: ItemBank) -> list[dict[str, Any]]:
    """Id, model and parameters of each item, as ``MODELS`` in the engine reads them.

    Predicted items have their expected curves, as in a session.
    """
    bank = bank.expected_curves()
    model, n = bank.model, bank.n_items
    with precision("float64"):
        if model.members:
            kinds = np.asarray(model.kind)  # type: ignore[attr-defined]
            by_member = [_curves(items) for items in model.as_members()]  # type: ignore[attr-defined]
            curves = [by_member[kinds[j]][j] for j in range(n)]
        else:
            curves = _curves(model)
    return [{"id": str(bank.item_ids[j]), **curves[j]} for j in range(n)]


def _curves(model: Any) -> list[dict[str, Any]]:
    """The curves of items of one model."""
    if model.has_logistic_link:
        published = model.irt_parameters()
        columns = {name: published[name] for name in "acd"} | {"intercept": model.intercept}
        floats = {name: np.asarray(column, float) for name, column in columns.items()}
        table = pd.DataFrame({"model": "logistic", **floats})
        return table.to_dict("records")  # type: ignore[return-value]
    link = getattr(model, "link", None)
    if link not in (CUMULATIVE, SOFTMAX):
        must = "a bank of logistic, graded, partial credit or nominal items"
        raise argument_error("bank", must, model.key)
    predictors, gaps = jax.vmap(lambda item: item.predictors())(model)
    predictors, gaps = np.asarray(predictors, float), np.asarray(gaps, float)
    out = []
    for j, n in enumerate(item_categories(model) - 1):
        intercepts, slopes = predictors[j, :n, 0], predictors[j, :n, 1]
        if link == CUMULATIVE:
            curve = {"a": slopes[0], "intercept": intercepts[0], "gaps": gaps[j, : n - 1]}
            out.append({"model": "graded", **curve})
        else:
            out.append({"model": "softmax", "slopes": slopes, "intercepts": intercepts})
    return out


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
        post = urlsplit(self.post)
        data = {"test": self.document, "title": self.title, "address": self.post}
        data["questions"] = self.questions
        return rendered(
            ASSETS,
            style=asset(ASSETS, "page.css"),
            script=asset(ASSETS, "engine.js") + asset(ASSETS, "page.js"),
            data=script_json(data),
            connects=f"connect-src {post.scheme}://{post.netloc}; " if self.post else "",
            title=self.title,
        )

    def to_module(self) -> str:
        """An ES module with ``Session``, ``test`` and ``questions``, such as for jsPsych."""
        warning = "\n".join(f" * {line}" for line in (f"irtcat {__version__}.", KEYS_IN_PAGE))
        head = f"/*\n{warning}\n */\n"
        exports = {"test": self.document, "questions": self.questions}
        lines = [
            f"\nexport const {name} = {script_json(value)};" for name, value in exports.items()
        ]
        return head + asset(ASSETS, "engine.js") + "".join(lines) + "\n"

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
            (all are named), a table without the items' ids, choices without a response, or an
            address that is not https.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> test = offline_test(bank, Config(max_items=2), title="Sums")
        >>> test.document["criterion"], test.questions["i2"]["choices"][1]
        ('mfi', {'label': 'Right', 'response': 1})
        >>> offline_test(bank, Config(max_items=2, exposure="randomesque"))
        Traceback (most recent call last):
        irtcat._common.errors.InputError: The `config` argument must hold rules that a page has ...
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


LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Columns of choices, as in a table of items of the service."""

SEPARATOR = "|"
"""Between the entries of a cell that holds several, as in a table of items of the service."""

BINARY = ("Wrong", "Right")
"""Choices of right/wrong items without texts, for somebody who judges the answers."""


def questions_of(bank: ItemBank, items: pd.DataFrame | None = None) -> dict[str, Any]:
    """Prompt and choices of each item, by its id.

    The columns are those of a table of items of the service: ``prompt``, the choices ``A``, ``B``,
    ..., and ``key`` (one letter) or ``points`` (``A=2|B=1``); texts are plain. An item with as many
    choices as categories needs neither: its choices are the categories from the lowest on. An item
    without a prompt shows its id, one without choices a choice for each category.

    Args:
        bank: the items.
        items: the table, by item id; by default the bank's metadata.

    Raises:
        InputError: naming the item whose choices have no response, or for a table whose index does
            not have the ids, each once.
    """
    table = bank.items.set_axis(bank.item_ids) if items is None else items
    ids = table.index.map(str)
    if not ids.is_unique or not ids.isin(list(map(str, bank.item_ids))).any():
        must = "a table with the ids of the bank's items as its index, each once"
        raise argument_error("items", must, f"the index {shorten(ids.tolist())}")
    rows = {str(name): row for name, row in table.to_dict("index").items()}
    n_categories = item_categories(bank.model)
    out = {}
    for name, n in zip(map(str, bank.item_ids), n_categories.tolist(), strict=True):
        cells = {str(key): _text(value) for key, value in rows.get(name, {}).items()}
        letters = [letter for letter in LETTERS if cells.get(letter)]
        if letters:
            codes = _codes(name, letters, cells, n)
            choices = [(cells[letter], codes[letter]) for letter in letters]
        elif n == 2:
            choices = [(label, code) for code, label in enumerate(BINARY)]
        else:
            choices = [(str(bank.first_code + code), code) for code in range(n)]
        out[name] = {
            "prompt": cells.get("prompt") or name,
            "choices": [
                {"label": label, "response": bank.first_code + code} for label, code in choices
            ],
        }
    return out


def _text(value: Any) -> str:
    """A cell as text; empty where it is missing."""
    return "" if value is None or (isinstance(value, float) and value != value) else str(value)


def _codes(name: str, letters: list[str], cells: dict[str, str], n: int) -> dict[str, int]:
    """The category of each choice."""
    entries = [entry.strip() for entry in (cells.get("points") or "").split(SEPARATOR)]
    key = (cells.get("key") or "").strip()
    if entries != [""]:
        points = dict.fromkeys(letters, 0)
        for entry in entries:
            letter, _, number = (word.strip() for word in entry.partition("="))
            if letter not in points or not number.isdecimal() or int(number) >= n:
                must = f"points as A=1 for its choices, whole numbers from 0 to {n - 1}"
                raise InputError(f"Item {shorten(name)}: expected {must}. Got {shorten(entry)}.")
            points[letter] = int(number)
        return points
    if key and n == 2:
        if key not in letters:
            must = f"one of its choices ({', '.join(letters)}) as key"
            raise InputError(f"Item {shorten(name)}: expected {must}. Got {shorten(key)}.")
        return {letter: int(letter == key) for letter in letters}
    if len(letters) != n:
        must = f"a key or points, or as many choices as categories ({n})"
        raise InputError(f"Item {shorten(name)}: expected {must}. Got {len(letters)} choices.")
    return {letter: code for code, letter in enumerate(letters)}

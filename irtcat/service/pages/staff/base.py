"""What the staff's pages share: the signed-in account, permissions, errors, tables and figures.

The staff's pages are in English; the taker's are translated.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd
import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup

from irtcat._common.checks import InputError
from irtcat._files import json_value
from irtcat.cat import CRITERIA, STOPPING, Config
from irtcat.cat.rules import single_rules
from irtcat.service.accounts.accounts import BROWSER, Account, account_of_token
from irtcat.service.accounts.credentials import Acting, browser_secret, service_of
from irtcat.service.api.actions import ACTIONS
from irtcat.service.api.media import POLICY
from irtcat.service.base.errors import ForbiddenError, ServiceError, UnauthorizedError
from irtcat.service.pages import PageRoute, form_text, render
from irtcat.service.pages.translations import clock_text
from irtcat.service.storage import tables

SIGN_IN = "/staff/sign-in"

NAVIGATION = {
    "Tests": ("/staff/tests", ("items", "publish", "parameters", "tickets", "watch", "results")),
    "Tickets": ("/staff/tickets", ("tickets",)),
    "People": ("/staff/people", ("people",)),
    "Live": ("/staff/board", ("watch",)),
    "Attempts": ("/staff/attempts", ("watch", "results")),
    "Scoring": ("/staff/scoring", ("score",)),
    "Audit log": ("/staff/audit", ("audit",)),
    "Accounts": ("/staff/accounts", ("accounts",)),
    "Programs": ("/staff/programs", ("accounts",)),
}
"""Entries of the navigation: address, and the permissions of which one is needed."""

DONE = {"published": "The test is published."} | {
    name: action.done for name, action in ACTIONS.items()
}
"""What a page says after a form, by the word in its address."""


class StaffRoute(PageRoute):
    """A page of staff: who is not signed in is asked to, and errors are pages with a way back."""

    @staticmethod
    def refused(request: Request, error: InputError) -> Response:
        """The page of an error."""
        if isinstance(error, UnauthorizedError):
            return _to_sign_in(request)
        if isinstance(error, ServiceError):
            return problem_page(request, error.status, error.title, str(error))
        return problem_page(request, 422, "This was not done", str(error))


def _to_sign_in(request: Request) -> Response:
    path = "/staff"
    if request.method == "GET":
        query = request.url.query
        path = f"{request.url.path}?{query}" if query else request.url.path
    return RedirectResponse(f"{SIGN_IN}?{urlencode({'to': path})}", status_code=303)


def part_router() -> APIRouter:
    """A router of a part of the staff's pages."""
    return APIRouter(prefix="/staff", include_in_schema=False, route_class=StaffRoute)


class Visit(Acting):
    """A signed-in account that asks for a page."""

    def page(self, template: str, *, status: int = 200, **context: Any) -> Response:
        return page(self.request, self.account, template, status=status, **context)

    def names_of(self, people: Sequence[str]) -> dict[str, str]:
        """Names of people by their ids, for roles that may see them; none without a name."""
        if not self.account.may("people"):
            return {}
        columns = tables.people.c
        statement = sa.select(columns.id, columns.name, columns.external)
        rows = self.service.rows(statement.where(columns.id.in_(sorted(set(people)))))
        return {row.id: row.name or row.external for row in rows if row.name or row.external}


def signed_in(request: Request) -> Account:
    """The account that is signed in in this browser.

    Raises:
        UnauthorizedError: without one.
    """
    account = account_of_token(service_of(request), browser_secret(request), BROWSER)
    request.state.account = account
    return account


class Requires:
    """A dependency: the visit of a signed-in account, which holds one of some permissions.

    Without permissions any account may.
    """

    def __init__(self, *permissions: str):
        self.permissions = permissions

    def __call__(self, request: Request) -> Visit:
        """The visit.

        Raises:
            UnauthorizedError: if nobody is signed in.
            ForbiddenError: without the permissions.
        """
        account = signed_in(request)
        if self.permissions and not may_one(account, self.permissions):
            if len(self.permissions) == 1:
                account.require(self.permissions[0])
            raise ForbiddenError("Your roles do not include this page.")
        return Visit(request, account)


def may_one(account: Account, permissions: Sequence[str]) -> bool:
    """Whether an account holds one of some permissions."""
    return any(account.may(permission) for permission in permissions)


Staff = Annotated[Visit, Depends(Requires())]
"""Any signed-in account."""


# Rendering


def page(
    request: Request, account: Account | None, template: str, *, status: int = 200, **context: Any
) -> Response:
    path = request.url.path
    navigation = [
        (label, address, path == address or path.startswith(f"{address}/"))
        for label, (address, permissions) in NAVIGATION.items()
        if account is not None and may_one(account, permissions)
    ]
    return render(
        request,
        f"staff/{template}",
        "en",
        status=status,
        **{
            "account": account,
            "navigation": navigation,
            "may": (lambda _: False) if account is None else account.may,
            "done": DONE.get(request.query_params.get("done", ""), ""),
            "show": Shown,
            **context,
        },
    )


def problem_page(request: Request, status: int, title: str, detail: str) -> Response:
    """The page of an error, with a link to the page that the request came from."""
    account = getattr(request.state, "account", None)
    back = getattr(request.state, "back", request.url.path.rsplit("/", 1)[0])
    return page(
        request,
        account,
        "problem.html",
        status=status,
        title=title,
        detail=detail,
        back="/staff" if request.method == "GET" else back,
        request_id=getattr(request.state, "request_id", ""),
    )


def back_to(address: str, done: str = "") -> Response:
    """Go to a page after a form was carried out."""
    mark = "&" if "?" in address else "?"
    return RedirectResponse(f"{address}{mark}done={done}" if done else address, status_code=303)


def _local_time(text: str, precision: str, written: str) -> Markup:
    utc = datetime.fromisoformat(text).astimezone(UTC)
    known = f'datetime="{utc:%Y-%m-%dT%H:%M:%SZ}" data-local="{precision}"'
    return Markup(f"<time {known}>{utc.strftime(written)}</time>")


class Shown:
    """How values are written on the pages."""

    @staticmethod
    def when(text: str | None) -> str:
        """A time stamp to the minute; the script writes it in the zone of the browser.

        Example:
            >>> print(Shown.when("2026-11-23T08:00:30Z"))
            <time datetime="2026-11-23T08:00:30Z" data-local="minute">2026-11-23 08:00 UTC</time>
        """
        return _local_time(text, "minute", "%Y-%m-%d %H:%M UTC") if text else "–"

    @staticmethod
    def moment(text: str) -> str:
        """A time stamp to the second, likewise."""
        return _local_time(text, "second", "%Y-%m-%d %H:%M:%S UTC")

    @staticmethod
    def clock(seconds: float | None) -> str:
        """Seconds as minutes and seconds; a dash for none.

        Example:
            >>> Shown.clock(272.4), Shown.clock(3661), Shown.clock(None)
            ('4:32', '1:01:01', '–')
        """
        if seconds is None or not np.isfinite(seconds):
            return "–"
        return clock_text(max(int(seconds), 0))

    @staticmethod
    def number(value: Any, decimals: int = 2) -> str:
        """A number; whole ones without decimals, a dash for none.

        Example:
            >>> Shown.number(3), Shown.number(-0.126), Shown.number(None), Shown.number("x")
            ('3', '−0.13', '–', 'x')
        """
        if value is None or (isinstance(value, float) and not np.isfinite(value)):
            return "–"
        if isinstance(value, (bool, np.bool_)):
            return "yes" if value else "no"
        if isinstance(value, (int, np.integer)):
            return f"{value:,}".replace("-", "−")
        if isinstance(value, (float, np.floating)):
            return f"{value:,.{decimals}f}".replace("-", "−")
        return str(value)

    @staticmethod
    def points(value: float) -> str:
        """Points of a score, to hundredths where they are not whole.

        Example:
            >>> Shown.points(2.0), Shown.points(0.5), Shown.points(-1 / 3)
            ('2', '0.5', '−0.33')
        """
        return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")

    @staticmethod
    def share(value: Any) -> str:
        """A share in percent.

        Example:
            >>> Shown.share(0.256)
            '26 %'
        """
        return "–" if value is None or not np.isfinite(value) else f"{value:.0%}".replace("%", " %")

    @staticmethod
    def response(value: Any) -> str:
        """A response as text; a dash for none."""
        if value is None:
            return "–"
        if isinstance(value, dict):
            return "; ".join(f"{name}: {Shown.response(it)}" for name, it in value.items())
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    @staticmethod
    def short(text: str) -> str:
        """The beginning of an id or a hash."""
        return text if len(text) <= 14 else f"{text[:12]}…"

    @staticmethod
    def address(text: str) -> str:
        """A text as a part of an address."""
        return quote(text, safe="")


@dataclass(frozen=True)
class Table:
    """A table of text for a page.

    ``columns`` are labels, and whether the columns hold numbers.
    """

    caption: str
    columns: list[tuple[str, bool]]
    rows: list[list[str]]


WRITTEN = {"|%": Shown.share, "|at": Shown.moment}
"""How columns are written by the end of their label: shares, and time stamps."""


def as_table(frame: pd.DataFrame, caption: str, columns: str = "", decimals: int = 2) -> Table:
    """A data frame as a table of a page.

    Args:
        frame: the frame.
        caption: what it shows.
        columns: those to show, between commas, each as its name or as ``name=Label``; all by
            default. A label that ends with "|%" shows a share in percent, one that ends with "|at"
            a time stamp.
        decimals: decimals of other numbers; columns of whole numbers have none.
    """
    named = [column.partition("=") for column in columns.split(", ") if column]
    labels = {name: label or name.capitalize().replace("_", " ") for name, _, label in named}
    labels = labels or {name: str(name).replace("_", " ") for name in frame.columns}
    shown, cells = [], []
    for name, label in labels.items():
        values, end = frame[name], next(filter(label.endswith, WRITTEN), "")
        numbers = [it for it in values if isinstance(it, (int, float)) and np.isfinite(it)]
        digits = 0 if all(float(number).is_integer() for number in numbers) else decimals
        write = WRITTEN.get(end, partial(Shown.number, decimals=digits))
        cells.append(list(map(write, values.tolist())))
        kind = pd.api.types.infer_dtype(values)
        numeric = pd.api.types.is_numeric_dtype(values) or kind in NUMERIC
        shown.append((label.removesuffix(end), numeric))
    return Table(caption, shown, list(map(list, zip(*cells, strict=True))))


NUMERIC = ("integer", "floating", "mixed-integer-float")
"""What pandas calls columns of numbers, some of which may be missing."""


_DRAWING = threading.Lock()
"""Matplotlib's settings are those of the process."""


def svg(figure: Any) -> Response:
    """A figure of `irtcat.plot` as an SVG file."""
    import matplotlib

    image = BytesIO()
    with _DRAWING, matplotlib.rc_context({"svg.hashsalt": "irtcat"}):
        figure.savefig(image, format="svg", metadata={"Date": None})
    return Response(
        image.getvalue(), media_type="image/svg+xml", headers={"Content-Security-Policy": POLICY}
    )


# Adaptive rules in words


ENDINGS = {"max_items": "the greatest number of items", "no item left": "no item is left"}
"""Ends of sessions that are no stopping rule."""


def criterion_words(name: str) -> str:
    """A criterion of the adaptive choice, in words.

    Example:
        >>> criterion_words("mfi")
        'Fisher information at the estimate (mfi)'
    """
    words = _first_words(CRITERIA, name)
    return f"{words} ({name})" if words else name


def stopping_words(rule: Any) -> str:
    """A stopping rule in words, from its document.

    Example:
        >>> rules = [{"name": "se", "below": 0.3}, {"name": "length", "at": 20}]
        >>> stopping_words({"name": "any-of", "rules": rules})
        'the standard error is at most 0.3, or 20 scored items are answered'
    """
    if not isinstance(rule, dict):
        return str(rule)
    if "rules" in rule:
        members = list(map(stopping_words, rule["rules"]))
        if rule["name"] == "any-of":
            return ", or ".join(members)
        return ", and ".join(f"({text})" if ", or " in text else text for text in members)
    return _first_words(STOPPING, rule["name"], rule) or str(rule["name"])


def ending_words(config: Config, reason: str) -> str:
    """Why an adaptive section ended, in words, from the name that its log has."""
    for rule in single_rules(config.stopping):
        if rule.name == reason:
            return stopping_words(json_value(rule))
    return ENDINGS.get(reason, reason)


NAMES = ("Fisher", "Kullback")
"""People whose names begin the words of rules."""


def _first_words(table: Any, name: str, options: Mapping[str, Any] | None = None) -> str:
    """The first words of a rule's row, with the values of its options; empty if it is unknown."""
    if name not in table:
        return ""
    words = re.split(r"[:;]", table.cells_of(table[name])[0])[0]
    for option, value in (options or {}).items():
        words = words.replace(f"``{option}``", str(value))
    words = words.replace("``", "")
    return words if words.startswith(NAMES) else words[:1].lower() + words[1:]


# Forms


def field(form: Any, name: str) -> str:
    """A text of a form, stripped; empty if it is missing."""
    return form_text(form, name).strip()


def whole_number(form: Any, name: str, label: str, least: int, most: int) -> int:
    """A whole number of a form.

    Raises:
        InputError: naming the field.
    """
    text = field(form, name)
    if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
        raise InputError(f"{label}: enter a whole number from {least:,} to {most:,}.")
    return int(text)

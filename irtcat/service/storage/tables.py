"""Tables of the service, beside those of the store of sessions.

Documents are JSON text, times are UTC in ISO 8601 (as in the logs). What identifies a person is in
``people`` only: logs, results and tickets refer to a random id.
"""

import itertools
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()


def column(name: str, kind: Any = sa.Text, refers: str = "", **options: Any) -> sa.Column[Any]:
    """A column without NULL; ``refers`` names the column of another table that has its values."""
    keys = [sa.ForeignKey(refers)] if refers else []
    return sa.Column(name, kind, *keys, **{"nullable": False, **options})


def key(name: str, refers: str = "", kind: Any = sa.Text) -> sa.Column[Any]:
    """A column of the primary key."""
    return column(name, kind, refers, primary_key=True)


def table(name: str, *columns: Any) -> sa.Table:
    """A table; a text among its columns has the names of columns of text."""
    listed = [map(column, it.split()) if isinstance(it, str) else [it] for it in columns]
    return sa.Table(name, metadata, *itertools.chain.from_iterable(listed))


def counted(of: sa.Table, *where: Any) -> sa.Select[Any]:
    """The number of rows of a table that satisfy conditions."""
    return sa.select(sa.func.count()).select_from(of).where(*where)


settings = table("settings", key("name"), "value")
"""What was drawn or chosen when the service was set up, such as the secret of its signatures."""

item_sets = table("item_sets", key("hash"), "document created")
"""Items and stimuli, without keys."""

item_keys = table("item_keys", key("item_set", "item_sets.hash"), "document")
"""Keys, apart from the items."""

media = table("media", key("name"), "type", column("data", sa.LargeBinary))
"""Media files by their name, which holds the hash of their contents."""

tests = table(
    "tests",
    key("id"),
    "title version definition bank",
    column("item_set", refers="item_sets.hash"),
    "report status published",
)
"""Published tests, which never change; ``status`` is "open" or "retired"."""

people = table("people", key("id"), "name email", column("external", index=True), "created")
"""Who a random id stands for; a row is deleted when the person is erased."""

tickets = table(
    "tickets",
    key("id"),
    column("token", unique=True),
    column("test", refers="tests.id"),
    "person accommodations opens expires created status attempt",
)
"""Permissions to take a test once.

``token`` is a digest, ``status`` "open", "used" or "revoked".
"""

attempts = table(
    "attempts",
    key("id"),
    column("test", refers="tests.id", index=True),
    column("person", index=True),
    "head started",
    column("status", index=True),
    "device updated summary",
    column("due", index=True),
)
"""One person's attempt at one test. ``status``, ``updated``, ``summary`` and ``due`` follow from
its log; the last is when the rules end a section or the test, empty without such a time."""

attempt_events = table(
    "attempt_events", key("attempt", "attempts.id"), key("number", kind=sa.Integer), "event digest"
)

attempt_seals = table("attempt_seals", key("attempt", "attempts.id"), "seal")

ratings = table(
    "ratings",
    key("attempt", "attempts.id"),
    key("item"),
    key("rater"),
    "kind",
    column("score", sa.Integer),
    "comment rated",
)
"""Scores by people, as categories; ``kind`` is "rating" or "adjudication"."""

accounts = table(
    "accounts", key("name"), "password roles", column("subject", index=True), "status created"
)
"""Staff. ``password`` is an argon2 hash, ``subject`` an OpenID Connect identity; either is empty
where it is not used."""

tokens = table("tokens", key("token"), column("account", index=True), "kind label created expires")
"""Digests of API tokens and of signed-in browsers."""

clients = table("clients", key("id"), "secret name status created")
"""OAuth 2.0 clients of the CAT interface; ``secret`` is a digest."""

sections = table("cat_sections", key("id"), "client bank document created status")
"""Sections that clients of the CAT interface created."""

ended_sessions = table("cat_ended_sessions", key("session"), "ended")
"""Sessions that clients of the CAT interface ended; their logs stay in the store."""

audit_events = table("audit_events", key("log"), key("number", kind=sa.Integer), "event digest")

audit_seals = table("audit_seals", key("log"), "seal")

webhooks = table("webhooks", key("id"), "url secret events status created")

deliveries = table(
    "deliveries",
    key("id"),
    column("webhook", refers="webhooks.id", index=True),
    "event body",
    column("tries", sa.Integer),
    column("due", index=True),
    "status",
)
"""Messages to webhooks, written in the transaction of what they report."""

limits = table("limits", key("name"), column("level", sa.Float), "at")
"""Token buckets that all processes share; ``name`` is a digest (see `base.limits`)."""

lti_platforms = table(
    "lti_platforms",
    key("id"),
    "name issuer client_id auth_url token_url jwks_url audience",
    "deployments tests origin status created",
    sa.UniqueConstraint("issuer", "client_id"),
)
"""Learning platforms that may open tests (see `irtcat.service.lti`)."""

lti_launches = table(
    "lti_launches",
    key("token"),
    "stage",
    column("platform", refers="lti_platforms.id"),
    "browser document",
    column("expires", index=True),
)
"""Logins and launches under way, deleted when they are used or too old.

``token`` and ``browser`` are digests, ``stage`` is "login" or "launch".
"""

lti_attempts = table(
    "lti_attempts",
    key("attempt", "attempts.id"),
    column("platform", refers="lti_platforms.id"),
    "deployment link person line_item",
    column("grade", index=True),
    column("version", sa.Integer),
    column("tries", sa.Integer),
    "due",
    sa.UniqueConstraint("platform", "deployment", "link", "person"),
)
"""Attempts that a platform opened, one per resource link and person, and the state of their grades.

``grade`` is empty, "waiting", "sent" or "failed"; ``version`` counts its changes.
"""

"""Tables of the service, beside those of the store of sessions.

Documents are JSON text, times are UTC in ISO 8601 (as in the logs). What identifies a person is in
``people`` only: logs, results and tickets refer to a random id.
"""

import sqlalchemy as sa

metadata = sa.MetaData()


def text(name: str, **options: object) -> sa.Column[str]:
    """A column of text; not null by default."""
    return sa.Column(name, sa.Text, **{"nullable": False, **options})  # type: ignore[arg-type]


def key(name: str, *refers: sa.ForeignKey) -> sa.Column[str]:
    """A column of text that is, or is part of, the primary key."""
    return sa.Column(name, sa.Text, *refers, primary_key=True)


settings = sa.Table("settings", metadata, key("name"), text("value"))
"""What was drawn or chosen when the service was set up, such as the secret of its signatures."""

item_sets = sa.Table("item_sets", metadata, key("hash"), text("document"), text("created"))
"""Items and stimuli, without keys."""

item_keys = sa.Table(
    "item_keys", metadata, key("item_set", sa.ForeignKey("item_sets.hash")), text("document")
)
"""Keys, apart from the items."""

media = sa.Table(
    "media", metadata, key("name"), text("type"), sa.Column("data", sa.LargeBinary, nullable=False)
)
"""Media files by their name, which holds the hash of their contents."""

tests = sa.Table(
    "tests",
    metadata,
    key("id"),
    text("title"),
    text("version"),
    text("definition"),
    text("bank"),
    sa.Column("item_set", sa.Text, sa.ForeignKey("item_sets.hash"), nullable=False),
    text("report"),
    text("status"),
    text("published"),
)
"""Published tests, which never change; ``status`` is "open" or "retired"."""

people = sa.Table(
    "people",
    metadata,
    key("id"),
    text("name"),
    text("email"),
    text("external", index=True),
    text("created"),
)
"""Who a random id stands for; a row is deleted when the person is erased."""

tickets = sa.Table(
    "tickets",
    metadata,
    key("id"),
    text("token", unique=True),
    sa.Column("test", sa.Text, sa.ForeignKey("tests.id"), nullable=False),
    text("person"),
    text("accommodations"),
    text("opens"),
    text("expires"),
    text("created"),
    text("status"),
    text("attempt"),
)
"""Permissions to take a test once.

``token`` is a digest, ``status`` "open", "used" or "revoked".
"""

attempts = sa.Table(
    "attempts",
    metadata,
    key("id"),
    sa.Column("test", sa.Text, sa.ForeignKey("tests.id"), nullable=False, index=True),
    text("person", index=True),
    text("head"),
    text("started"),
    text("status", index=True),
    text("device"),
    text("updated"),
    text("summary"),
    text("due", index=True),
)
"""One person's attempt at one test. ``status``, ``updated``, ``summary`` and ``due`` follow from
its log; the last is when the rules end a section or the test, empty without such a time."""

attempt_events = sa.Table(
    "attempt_events",
    metadata,
    key("attempt", sa.ForeignKey("attempts.id")),
    sa.Column("number", sa.Integer, primary_key=True),
    text("event"),
    text("digest"),
)

attempt_seals = sa.Table(
    "attempt_seals", metadata, key("attempt", sa.ForeignKey("attempts.id")), text("seal")
)

ratings = sa.Table(
    "ratings",
    metadata,
    key("attempt", sa.ForeignKey("attempts.id")),
    key("item"),
    key("rater"),
    text("kind"),
    sa.Column("score", sa.Integer, nullable=False),
    text("comment"),
    text("rated"),
)
"""Scores by people, as categories; ``kind`` is "rating" or "adjudication"."""

accounts = sa.Table(
    "accounts",
    metadata,
    key("name"),
    text("password"),
    text("roles"),
    text("subject", index=True),
    text("status"),
    text("created"),
)
"""Staff. ``password`` is an argon2 hash, ``subject`` an OpenID Connect identity; either is empty
where it is not used."""

tokens = sa.Table(
    "tokens",
    metadata,
    key("token"),
    text("account", index=True),
    text("kind"),
    text("label"),
    text("created"),
    text("expires"),
)
"""Digests of API tokens and of signed-in browsers."""

clients = sa.Table(
    "clients", metadata, key("id"), text("secret"), text("name"), text("status"), text("created")
)
"""OAuth 2.0 clients of the CAT interface; ``secret`` is a digest."""

sections = sa.Table(
    "cat_sections",
    metadata,
    key("id"),
    text("client"),
    text("bank"),
    text("document"),
    text("created"),
    text("status"),
)
"""Sections that clients of the CAT interface created."""

ended_sessions = sa.Table("cat_ended_sessions", metadata, key("session"), text("ended"))
"""Sessions that clients of the CAT interface ended; their logs stay in the store."""

audit_events = sa.Table(
    "audit_events",
    metadata,
    key("log"),
    sa.Column("number", sa.Integer, primary_key=True),
    text("event"),
    text("digest"),
)

audit_seals = sa.Table("audit_seals", metadata, key("log"), text("seal"))

webhooks = sa.Table(
    "webhooks",
    metadata,
    key("id"),
    text("url"),
    text("secret"),
    text("events"),
    text("status"),
    text("created"),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    key("id"),
    sa.Column("webhook", sa.Text, sa.ForeignKey("webhooks.id"), nullable=False, index=True),
    text("event"),
    text("body"),
    sa.Column("tries", sa.Integer, nullable=False),
    text("due", index=True),
    text("status"),
)
"""Messages to webhooks, written in the transaction of what they report."""

limits = sa.Table(
    "limits", metadata, key("name"), sa.Column("level", sa.Float, nullable=False), text("at")
)
"""Token buckets that all processes share; ``name`` is a digest (see `base.limits`)."""

lti_platforms = sa.Table(
    "lti_platforms",
    metadata,
    key("id"),
    text("name"),
    text("issuer"),
    text("client_id"),
    text("auth_url"),
    text("token_url"),
    text("jwks_url"),
    text("audience"),
    text("deployments"),
    text("tests"),
    text("origin"),
    text("status"),
    text("created"),
    sa.UniqueConstraint("issuer", "client_id"),
)
"""Learning platforms that may open tests (see `irtcat.service.lti`)."""

lti_launches = sa.Table(
    "lti_launches",
    metadata,
    key("token"),
    text("stage"),
    sa.Column("platform", sa.Text, sa.ForeignKey("lti_platforms.id"), nullable=False),
    text("browser"),
    text("document"),
    text("expires", index=True),
)
"""Logins and launches under way, deleted when they are used or too old.

``token`` and ``browser`` are digests, ``stage`` is "login" or "launch".
"""

lti_attempts = sa.Table(
    "lti_attempts",
    metadata,
    key("attempt", sa.ForeignKey("attempts.id")),
    sa.Column("platform", sa.Text, sa.ForeignKey("lti_platforms.id"), nullable=False),
    text("deployment"),
    text("link"),
    text("person"),
    text("line_item"),
    text("grade", index=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    text("due"),
    sa.UniqueConstraint("platform", "deployment", "link", "person"),
)
"""Attempts that a platform opened, one per resource link and person, and the state of their grades.

``grade`` is empty, "waiting", "sent" or "failed"; ``version`` counts its changes.
"""

"""``irtcat service``: set up, look after and copy the database of a service."""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import typer

from irtcat._common.errors import InputError
from irtcat.cli._command import Command, Options, Output, by_name, command_of
from irtcat.cli._input import read_key
from irtcat.cli._options import KEY_FILE, Option, argument, flag, own, result
from irtcat.cli._output import fields_of
from irtcat.cli.serve import ADDRESS, SETTINGS, URL, opened, part, set_up, test_files

EXAMPLE = (
    "irtcat service new my-test/",
    "irtcat service validate my-test/",
    "irtcat service init tests.db --example",
    "irtcat service ticket tests.db --count 3",
    "irtcat service account tests.db paula --roles proctor,scorer",
    "irtcat service backup tests.db --out backup.db",
    "irtcat service anchor tests.db --out anchor.json",
    "irtcat service check tests.db --anchor anchor.json",
)

HELP = "Begin and check a test; set up and look after the database of irtcat serve."

ACTOR = "command line"
"""Who the audit log names."""

TEST = own("test", help="Id of the test; needed if several are open.")
_of_platform = partial(own, needs="name TEXT")


def _time(text: str) -> datetime:
    """A time, in the zone of this machine unless it has one."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time such as 2026-11-30T18:00.") from None


def _on_database(
    *rows: str | Option, csv: bool = True
) -> Callable[[Callable[[Options], Output]], Command]:
    """Make a command on the database of a service."""
    return command_of(None, ADDRESS, *rows, KEY_FILE, csv=csv)


@command_of(None, argument("folder", type=Path, help="Folder of the new test."), csv=False)
def new(o: Options) -> Output:
    """Write the commented files of a new test: definition, items of each kind, keys, parameters."""
    files = part("skeleton").write(o.folder)
    lines = [f"Wrote {len(files)} files to {o.folder}; begin with README.md."]
    document = {"folder": o.folder, "files": [path.as_posix() for path in files]}
    return Output(document, lines, next=("service", "validate", o.folder))


@command_of(
    "", argument("path", type=Path, help="Folder of a test, or its definition (TOML)."), csv=False
)
def validate(o: Options) -> Output:
    """Check the files of a test, and list all faults.

    Exit 1 if there are some. Nothing is stored. Publishing checks the same, and simulates takers.
    """
    found = part("operations.provision").validate(o.path)
    lines = [*found.faults, *(f"Note: {text}" for text in found.warnings)]
    n = len(found.faults)
    about: dict[str, Any] = {"faults": found.faults, "warnings": found.warnings}
    if found.files is None:
        lines.append(f"{o.path}: {n} fault{'s' if n > 1 else ''}.")
        return Output(about, lines, code=1)
    definition, bank, items = found.files
    n_sections = len(definition.sections)
    plural = "" if n_sections == 1 else "s"
    lines.append(
        f"{o.path}: {definition.title!r} can be published: {n_sections} section{plural}, "
        f"{len(items)} items, {bank.n_items} of them in the bank."
    )
    about |= {"title": definition.title, "sections": n_sections, "items": len(items)}
    return Output(about, lines, next=("serve", "tests.db", "--test", o.path))


@command_of(None, *SETTINGS, csv=False)
def init(o: Options) -> Output:
    """Create the database, publish a test, and add the account of an administrator."""
    files = test_files(o)
    with opened(o, create=True) as service:
        test, is_new, password = set_up(service, files)
        name = part("operations.provision").ADMINISTRATOR
    lines = [f"{o.address}: ready"]
    if test is not None:
        lines.append(f"Test {test}, published {'now' if is_new else 'before'}")
    if password is None:
        lines.append("The accounts are unchanged.")
    else:
        lines.append(f"Account {name}, password {password} (shown this once)")
    document = {"address": o.address, "test": test, "published": is_new}
    document |= {"account": None if password is None else name, "password": password}
    return Output(document, lines, next=("serve", o.address))


@_on_database()
def tests(o: Options) -> Output:
    """List the published tests."""
    with opened(o) as service:
        table = part("attempts.library").published_tests(service)
    return Output({"tests": table}, [table], table=table)


@_on_database(
    TEST,
    own(
        "count",
        "--count",
        "-n",
        type=int,
        default=1,
        min=1,
        max=10_000,
        help="Number of tickets, each for a new person without a name.",
    ),
    own("person", help="Id of the person of one ticket."),
    own("name", help="Name of a new person."),
    own(
        "external", help="Id of the person in another system; a known one must have the same name."
    ),
    own("accommodations", help="Names separated by commas, such as extra_time_25,pause."),
    own("opens", parse=_time, help="From when it is valid, such as 2026-11-30T09:00."),
    own("expires", parse=_time, help="Until when the test may be begun."),
    flag("dry_run", help="Check all, print whether people are new or known, and store nothing."),
    URL,
)
def ticket(o: Options) -> Output:
    """Issue tickets: each is a link with which one person takes a test once.

    The links are printed now and not stored.
    """
    import pandas as pd

    people, provision = part("attempts.people"), part("operations.provision")
    base = o.url or "http://127.0.0.1:8080"
    named = [o.person is not None, o.name is not None or o.external is not None]
    if sum(named) > 1:
        raise o.usage_error("person", "not with --name or --external.")
    if any(named) and o.count > 1:
        raise o.usage_error("count", "not with --person, --name or --external.")
    accommodations = [text for text in (o.accommodations or "").split(",") if text]
    valid = {"accommodations": accommodations, "opens": o.opens, "expires": o.expires}
    rows: list[dict[str, Any]] = []
    with (
        opened(o) as service,
        service.database.undone() if o.dry_run else service.database.writing(),
    ):
        test = o.test or provision.only_open_test(service)
        for _ in range(o.count):
            person, status = o.person, people.NEW if o.person is None else f"known: {o.person}"
            if named[1]:
                about = {"name": o.name or "", "external": o.external or ""}
                person, status = people.admit(service, **about, actor=ACTOR)
            issued = people.issue_ticket(service, test, actor=ACTOR, person=person, **valid)
            if o.dry_run:
                rows.append({"person": status})
            else:
                link = provision.take_link(base, issued.token)
                rows.append({"link": link, "ticket": issued.id, "person": issued.person})
    table = pd.DataFrame(rows)
    lines = [str(row["person" if o.dry_run else "link"]) for row in rows]
    return Output({"test": test, "dry_run": o.dry_run, "tickets": rows}, lines, table=table)


@_on_database(
    TEST,
    own(
        "names",
        "--names",
        type=bool,
        default=True,
        help="Columns with the names and external ids of the people.",
    ),
    result("results.csv"),
)
def export(o: Options) -> Output:
    """Export the results of a test: a row for each finished attempt.

    The audit log records it.
    """
    with opened(o) as service:
        test = o.test or part("operations.provision").only_open_test(service)
        module = part("attempts.results")
        table = module.result_table(service, test)
        if o.names:
            table = module.with_names(service, table)
        about = {"test": test, "file": "results.csv", "names": o.names}
        service.acted(ACTOR, "results exported", **about)
    o.write("out", table, "results")
    n = len(table)
    return Output({"test": test, "results": table}, [f"{n} results"], table=table)


@_on_database(
    result(
        default=Path("backup.db"),
        help="File of the backup: a database (SQLite), or an archive of pg_dump.",
    ),
    csv=False,
)
def backup(o: Options) -> Output:
    """Write a verified copy of the database to one file, while the service runs."""
    with opened(o) as service:
        path = part("operations.maintenance").backup(service, o.out)
    size = path.stat().st_size
    lines = [f"Wrote the backup to {path} ({size / 1e6:.1f} MB)"]
    return Output({"out": path, "bytes": size}, lines)


def _counts(report: Any) -> tuple[dict[str, int], str]:
    """The counts of a report on a database by name, and on a line."""
    counts = {name: n for name, n in asdict(report).items() if name != "faults"}
    return counts, ", ".join(f"{n} {name}" for name, n in counts.items())


@_on_database(
    own("anchor", type=Path, help="Also compare with this file of irtcat service anchor."),
    csv=False,
)
def check(o: Options) -> Output:
    """Verify all digests, and that tables and logs agree; exit 1 if something is wrong."""
    maintenance = part("operations.maintenance")
    faults: list[str] = []
    with opened(o) as service:
        if o.anchor is not None:
            try:
                document = json.loads(o.anchor.read_bytes())
            except ValueError:
                raise InputError(f"{o.anchor} (--anchor): no JSON document.") from None
            faults = maintenance.check_anchor(service, document)
        report = maintenance.check(service)
    faults += report.faults
    counts, numbers = _counts(report)
    verdict = "all is well" if not faults else f"{len(faults)} faults"
    lines = [f"{numbers}: {verdict}", *faults]
    return Output({**counts, "faults": faults}, lines, code=1 if faults else 0)


@_on_database(result(default=Path("anchor.json"), help="File of the anchor (JSON)."), csv=False)
def anchor(o: Options) -> Output:
    """Write a signed statement of the ends of all logs, by which a deleted one is noticed.

    Keep it on another machine.
    """
    with opened(o) as service:
        document = part("operations.maintenance").anchor(service)
    o.write("out", json.dumps(document))
    n = sum(map(len, document["logs"].values()))
    after = ("service", "check", o.address, "--anchor", o.out)
    lines = [f"Wrote the anchor of {n} logs to {o.out}"]
    return Output({"out": o.out, "logs": n, "at": document["at"]}, lines, next=after)


@_on_database(argument("person", help="Id of the person."), csv=False)
def erase(o: Options) -> Output:
    """Delete what identifies a person; results stay, under a random id."""
    with opened(o) as service:
        part("attempts.people").erase(service, o.person, actor=ACTOR)
    return Output({"erased": o.person}, [f"Erased {o.person}"])


@_on_database(
    argument("name", help="Name of the account."),
    own(
        "roles",
        help="Roles of a new account, separated by commas: author, psychometrician, proctor, "
        "scorer, auditor, admin.",
    ),
    own(
        "subject",
        default="",
        help="Identity of OpenID Connect (issuer and subject) instead of a password.",
    ),
    csv=False,
)
def account(o: Options) -> Output:
    """Add an account of staff, or give one a new password; print the password once."""
    accounts = part("accounts.accounts")
    if o.subject and o.roles is None:  # a new password is not what was asked for
        raise o.usage_error("subject", "needs --roles: it is that of a new account.")
    password = None if o.subject else part("storage.context").new_secret()
    with opened(o) as service:
        if o.roles is None:
            accounts.set_password(service, o.name, password, actor=ACTOR)
            roles: list[str] = []
        else:
            roles = [text.strip() for text in o.roles.split(",") if text.strip()]
            about = {"password": password or "", "roles": roles, "subject": o.subject}
            accounts.add_account(service, o.name, actor=ACTOR, **about)
    lines = [f"Account {o.name}"]
    if password is not None:
        lines = [f"Account {o.name}, password {password} (shown this once)"]
    return Output({"account": o.name, "roles": roles, "password": password}, lines)


@_on_database(
    argument("target", help="A new SQLite file, or an empty PostgreSQL database."), csv=False
)
def copy(o: Options) -> Output:
    """Copy a service into another database and verify it there, as from SQLite to PostgreSQL.

    Stop the server first: later answers are not copied.
    """
    with opened(o) as service:
        key = read_key(o.key_file)
        with part("assembly").open_service(o.target, create=True, key=key) as target:
            report = part("operations.maintenance").copy_service(service, target, o.progress)
    counts, numbers = _counts(report)
    lines = [f"Copied and verified {numbers}"]
    return Output({"target": o.target, **counts}, lines, next=("serve", o.target))


@_on_database(
    own("name", help="Name of a platform to register, for the staff."),
    _of_platform(
        "issuer",
        help="Who signs its messages (also platform ID), such as https://moodle.example.org.",
    ),
    _of_platform("client_id", help="Id of this service at the platform."),
    _of_platform("deployments", help="Ids of its deployments there, separated by commas."),
    _of_platform("kind", help="Its addresses are those of moodle or canvas."),
    _of_platform("auth_url", help="Authentication request URL, if it is of another kind."),
    _of_platform("token_url", help="Access token URL."),
    _of_platform("jwks_url", help="Public keyset URL."),
    _of_platform(
        "origin",
        help="Origin of its pages, if they may embed those of tests; by default tests open in a "
        "window of their own.",
    ),
    _of_platform("private", type=bool, help="Its addresses may be those of a private network."),
    own("close", help="Id of a platform that opens no more tests."),
    own("remove", help="Id of a platform to remove, which opened no test."),
    own("send_again", help="Id of a platform that gets its failed grades once more."),
    URL,
)
def lti(o: Options) -> Output:
    """List the learning platforms that open tests, or register one (LTI 1.3).

    The addresses of this service are printed, for the platform.
    """
    registered, grades = part("lti.platforms"), part("lti.attempts")
    urls: dict[str, str] = {}
    if o.name is not None:
        urls = registered.platform_urls(o.kind, o.issuer or "") if o.kind is not None else {}
        named = fields_of(o, "auth_url", "token_url", "jwks_url")
        urls |= {name: url for name, url in named.items() if url is not None}
        needed = fields_of(o, "issuer", "client_id", "deployments")
        for option_name, value in (needed | {name: urls.get(name) for name in named}).items():
            if not value:
                raise o.usage_error(option_name, "is needed to register a platform.")
    lines = []
    with opened(o) as service:
        if o.name is not None:
            about = {"name": o.name, "issuer": o.issuer, "client_id": o.client_id, **urls}
            deployments = [text.strip() for text in o.deployments.split(",") if text.strip()]
            about |= {"deployments": deployments, "origin": o.origin or ""}
            added = registered.add_platform(service, actor=ACTOR, private=bool(o.private), **about)
            lines.append(f"Registered {added.id}")
        if o.close is not None:
            registered.change_platform(service, o.close, actor=ACTOR, status="closed")
            lines.append(f"Closed {o.close}")
        if o.remove is not None:
            registered.remove_platform(service, o.remove, actor=ACTOR)
            lines.append(f"Removed {o.remove}")
        if o.send_again is not None:
            lines.append(f"Grades to be sent again: {grades.send_again(service, o.send_again)}")
        table = registered.platforms(service)
    table["deployments"] = table["deployments"].map(", ".join)
    base = (o.url or "http://127.0.0.1:8080").rstrip("/")
    addresses = part("lti.connection").tool_addresses(base)
    shown = [
        "id",
        "name",
        "issuer",
        "client_id",
        "deployments",
        "status",
        "attempts",
        "waiting",
        "failed",
    ]
    lines += [f"{name}: {url}" for name, url in addresses.items()]
    return Output({"platforms": table, "addresses": addresses}, [*lines, table[shown]], table=table)


COMMANDS = by_name(
    new, validate, init, tests, ticket, export, account, backup, check, anchor, copy, erase, lti
)
"""Actions by name."""

"""``irtcat serve`` and ``irtcat service``: set up a service, issue tickets, look after it."""

import json
import os
import sys
import zipfile
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from irtcat.cli._app import app
from irtcat.service import example
from irtcat.service.accounts.accounts import sign_in
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people
from irtcat.service.attempts.taking import begin
from irtcat.service.content import read_items, write_qti
from irtcat.service.operations import provision, server
from irtcat.service.outbox.audit import audit_entries
from tests.service.helpers import bank, definition, items, publish

runner = CliRunner()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(monkeypatch):
    """A small test instead of the example, whose publication takes seconds."""
    files = provision.SourceFiles(definition(), bank(), items())
    monkeypatch.setattr(provision, "example_files", lambda: files)
    real = library.publish

    def quick(*arguments, **options):
        return real(*arguments, **options, n_simulated=20)

    monkeypatch.setattr(provision, "publish", quick)


def run(*words):
    return runner.invoke(app, [str(word) for word in words])


def run_ok(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*words):
    return json.loads(run_ok(*words, "--json"))


@pytest.mark.slow
def test_init_makes_an_administrator_once(address, small):
    document = run_json("service", "init", address, "--example")
    assert document["published"]
    with open_service(address) as service:
        assert sign_in(service, document["account"], document["password"]).roles == ("admin",)
    again = run_json("service", "init", address, "--example")
    assert (again["test"], again["published"]) == (document["test"], False)
    assert again["password"] is None
    assert "unchanged" in run_ok("service", "init", address)


@pytest.mark.slow
def test_tickets_open_the_test(address, small):
    test = run_json("service", "init", address, "--example")["test"]
    out = run_json("service", "ticket", address, "-n", 3, "--url", "https://tests.example.org/")
    assert out["test"] == test
    links = [row["link"] for row in out["tickets"]]
    assert len(set(links)) == len({row["person"] for row in out["tickets"]}) == 3
    assert all(link.startswith("https://tests.example.org/t/") for link in links)
    with open_service(address) as service:
        begin(service, links[0].rpartition("/")[2])
    named = ("--name", "Ada", "--external", "x1", "--accommodations", "pause")
    one = run_json("service", "ticket", address, *named)
    two = run_json("service", "ticket", address, *named)
    assert one["tickets"][0]["person"] == two["tickets"][0]["person"]
    assert run_ok("service", "ticket", address).startswith("http://127.0.0.1:8080/t/")
    # A dry run says who is new and who is known, and stores nothing.
    with open_service(address) as service:
        before = len(people.people_table(service)), len(people.ticket_table(service))
    assert run_ok("service", "ticket", address, "--external", "x1", "--dry-run") == "known: Ada\n"
    assert run_ok("service", "ticket", address, "-n", 2, "--dry-run") == "new\nnew\n"
    out = run_json("service", "ticket", address, "--name", "Emmy", "--dry-run")
    assert (out["dry_run"], out["tickets"]) == (True, [{"person": "new"}])
    for dry in ((), ("--dry-run",)):
        other = run("service", "ticket", address, "--name", "Grace", "--external", "x1", *dry)
        assert other.exit_code == 1
        assert "The id 'x1' is known with name 'Ada'. Got 'Grace'." in other.stderr
    with open_service(address) as service:
        assert before == (len(people.people_table(service)), len(people.ticket_table(service)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("ticket", "{}", "--count", 2, "--name", "Ada"), 2, "--count: not with"),
        (("ticket", "{}", "--opens", "soon"), 2, "--opens: 'soon' is no time"),
        (("ticket", "{}", "--accommodations", "none"), 1, "none"),
        (("ticket", "{}", "--test", "test_x"), 1, "There is no such test."),
        (("erase", "{}", "p_x"), 1, "There is no such person"),
        (("account", "{}", "eve", "--roles", "boss"), 1, "author, psychometrician"),
        (("account", "{}", "eve"), 1, "There is no such account."),
        (("account", "{}", "eve", "--subject", "https://id.example eve"), 2, "needs --roles"),
        (("check", "{}", "--anchor", "none.json"), 1, "none.json"),
        (("backup", "{}", "--out", "missing/b.db"), 1, "missing/b.db (--out)"),
        (("check", "nowhere.db"), 1, "nowhere.db: there is no such store"),
        (("init", "{}", "--bank", "b.npz"), 2, "--bank: needs --test FILE."),
        (("init", "{}", "--test", "none.toml"), 1, "none.toml"),
        (("init", "mysql://host/name"), 1, "SQLite or PostgreSQL"),
        (("ticket", "{}"), 1, "The --test option must name a published test: none is open"),
    ],
)
def test_wrong_uses_are_one_line(tmp_path, words, code, says):
    address = str(tmp_path / "tests.db")
    if not (words[0] == "ticket" and len(words) == 2):
        with open_service(address, create=True) as service:
            publish(service)
    else:
        open_service(address, create=True).close()
    result = run("service", *(str(word).format(address) for word in words))
    assert result.exit_code == code
    assert says in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("Error")]


def test_what_is_written_is_checked_again(address, small):
    run_ok("service", "init", address, "--example")
    run_ok("service", "ticket", address)
    assert run_json("service", "anchor", address)["logs"] == 1
    document = run_json("service", "check", address, "--anchor", "anchor.json")
    assert document["faults"] == []
    assert document["tickets"] == 1
    with open_service(address) as service, service.database.writing():
        service.database.execute("UPDATE tickets SET status = 'used'")
    result = run("service", "check", address, "--json")
    assert result.exit_code == 1
    assert "used, with the attempt ''" in json.loads(result.stdout)["faults"][0]


def test_a_service_moves_to_another_database(address, small):
    run_ok("service", "init", "source.db", "--example")
    run_ok("service", "ticket", "source.db", "-n", 2)
    assert run_json("service", "copy", "source.db", address)["tickets"] == 2
    assert run_json("service", "tests", address)["tests"][0]["title"] == "Small test"
    assert run_json("service", "export", address)["results"] == []


@pytest.mark.slow
def test_exports_are_recorded(small):
    run_ok("service", "init", "tests.db", "--example")
    run_ok("service", "export", "tests.db")
    run_ok("service", "export", "tests.db", "--no-names", "--force")
    with open_service("tests.db") as service:
        entries = audit_entries(service, n=2, verified=True)
        (test,) = library.published_tests(service)["id"]
    assert entries["action"].tolist() == ["results exported"] * 2
    assert entries["actor"].tolist() == ["command line"] * 2
    about = {"test": test, "file": "results.csv"}
    assert entries["details"].tolist() == [{**about, "names": name} for name in (False, True)]


@pytest.mark.slow
def test_people_are_erased(tmp_path, small):
    run_ok("service", "init", "tests.db", "--example")
    row = run_json("service", "ticket", "tests.db", "--name", "Ada")["tickets"][0]
    assert run_json("service", "erase", "tests.db", row["person"]) == {"erased": row["person"]}
    assert b"Ada" not in _readable("tests.db")


def _readable(path):
    import sqlite3

    with sqlite3.connect(path) as connection:
        text = "\n".join(connection.iterdump()).encode()
    connection.close()
    return text


@pytest.mark.slow
def test_a_key_is_required_from_then_on(tmp_path, small, monkeypatch):
    (tmp_path / "key").write_text("secret of the logs\n")
    run_ok("service", "init", "tests.db", "--example", "--key-file", "key")
    assert "key" in run("service", "check", "tests.db").stderr
    assert run_json("service", "check", "tests.db", "--key-file", "key")["faults"] == []
    monkeypatch.setenv("IRTCAT_STORE_KEY", "secret of the logs")
    assert run_json("service", "check", "tests.db")["faults"] == []


@pytest.mark.slow
def test_serve_prints_the_links_and_serves(small, monkeypatch):
    calls = []
    monkeypatch.setattr(server, "serve", lambda *a, **o: calls.append((a, o)))
    text = run_ok("serve", "tests.db", "--example", "--port", 8123, "--workers", 2)
    link = next(line.split()[-1] for line in text.splitlines() if "/t/" in line)
    assert link.startswith("http://127.0.0.1:8123/t/")
    assert "http://127.0.0.1:8123/staff" in text
    password = text.split("password ")[1].split()[0]
    with open_service("tests.db") as service:
        assert sign_in(service, "admin", password)
        assert begin(service, link.rpartition("/")[2]).attempt
    ((settings,), options) = calls[0]
    assert settings.secure is False  # http at this machine
    assert options == {"host": "127.0.0.1", "port": 8123, "workers": 2, "proxies": "127.0.0.1"}
    again = run_ok("serve", "tests.db")
    assert "password" not in again
    assert "/t/" not in again


@pytest.mark.parametrize(
    ("words", "secure", "warns"),
    [
        ((), False, False),
        (("--url", "https://tests.example.org"), True, False),
        (("--host", "0.0.0.0"), True, True),
        (("--host", "0.0.0.0", "--insecure-cookies"), False, False),
        (("--host", "0.0.0.0", "--url", "https://tests.example.org"), True, False),
    ],
)
def test_cookies_need_https_beyond_this_machine(monkeypatch, words, secure, warns):
    calls = []
    monkeypatch.setattr(server, "serve", lambda settings, **_: calls.append(settings))
    text = run_ok("serve", "tests.db", *words)
    assert calls[0].secure is secure
    assert ("--insecure-cookies" in text) == warns


def test_without_the_extra_there_is_one_sentence(monkeypatch):
    for name in ("irtcat.service.assembly", "irtcat.service.storage.context"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for words in (("serve", "tests.db"), ("service", "check", "tests.db")):
        monkeypatch.delitem(sys.modules, "irtcat.service.operations.server", raising=False)
        result = run(*words)
        assert result.exit_code == 1
        assert 'pip install "irtcat[service]"' in result.stderr
        assert result.stderr.count("\n") == 1
        assert os.listdir() == []


@pytest.mark.slow
def test_the_example_is_served_in_one_command(tmp_path):
    """As `make demo-service` does it, by processes; and a first page for the ticket."""
    text = run_ok("serve", "tests.db", "--example", "--check")
    assert "Ready after" in text
    assert httpx  # the check asked the server by it


def test_faults_of_the_files_leave_no_database(tmp_path):
    (tmp_path / "empty").mkdir()
    folder = example.folder()
    store = tmp_path / "t.db"
    words = ["--test", str(folder / "math.toml"), "--bank", str(folder / "bank.npz")]
    done = run("serve", str(store), *words, "--items", str(tmp_path / "empty"), "--check")
    assert done.exit_code != 0
    assert "expected files of items" in done.output
    assert not store.exists()


@pytest.mark.slow
def test_a_new_test_is_valid_and_can_be_taken(monkeypatch):
    assert "README.md" in run_ok("service", "new", "my-test")
    assert run("service", "new", "my-test").exit_code == 1  # there are files in it
    found = run_json("service", "validate", "my-test")
    assert found["faults"] == []
    assert found["items"] == 20
    assert not [text for text in found["warnings"] if "parameters.csv" not in text]
    Path("my-test/items/more.md").write_text('+++\nkey = "A"\n+++\nMore?\n\n- (A) yes\n- (B) no\n')
    warnings = run_json("service", "validate", "my-test")["warnings"]
    assert any(text.startswith("Items are in no section: more.") for text in warnings)
    real = library.publish
    quick = lambda *given, **options: real(*given, **options, n_simulated=5)  # noqa: E731
    monkeypatch.setattr(provision, "publish", quick)
    run_ok("service", "init", "tests.db", "--test", "my-test")
    with open_service("tests.db") as service:
        test = provision.only_open_test(service)
        assert library.published_test(service, test).definition.raters == 1
        ticket = people.issue_ticket(service, test, actor="test").token
        started = begin(service, ticket)
        assert started.attempt


def test_a_definition_that_is_no_toml_is_one_fault():
    run_ok("service", "new", "t")
    Path("t/test.toml").write_text("title = My test")
    (fault,) = json.loads(run("service", "validate", "t", "--json").stdout)["faults"]
    assert fault.startswith("t/test.toml: A test definition must be TOML.")


@pytest.mark.slow
def test_what_a_package_leaves_out_is_noted():
    run_ok("service", "new", "t")
    write_qti(read_items("t/items"), "whole.zip")
    with zipfile.ZipFile("whole.zip") as old, zipfile.ZipFile("t/items.zip", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            is_sum = name.startswith("items/") and b'identifier="sum"' in content
            new.writestr(name, "<" if is_sum else content)
    definition = Path("t/test.toml")
    definition.write_text(definition.read_text().replace('"items/"', '"items.zip"'))
    found = json.loads(run("service", "validate", "t", "--json").stdout)
    (note,) = [text for text in found["warnings"] if "left out" in text]
    assert note.startswith("t/items.zip, items/i")
    (fault,) = found["faults"]
    assert "items that have content. Got sum. Add a file for each" in fault


def test_all_faults_of_a_test_are_listed_at_once():
    run_ok("service", "new", "t")
    folder = Path("t")
    for name, old, new in (
        ("test.toml", 'kind = "practice"', 'kind = "practise"'),
        ("test.toml", "sd = 100", "sd = 0"),
        ("items/sum.md", "shuffle", "shufle"),
        ("items/half.md", r"\frac{3}{4}", r"\frac{3}"),
        ("items/keys.toml", 'key = "9"', 'answer = "9"'),
        ("items/keys.toml", "[double]", "[dubble]"),
        ("items/bus.md", '"timetable"', '"timetables"'),
        ("parameters.csv", "ratio,numbers,1.3", "ratio,numbers,x"),
    ):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    result = run("service", "validate", "t")
    assert result.exit_code == 1
    faults = result.stdout
    for words in (
        "t/test.toml: The `sections[2].kind` field must be one of instructions, practice",
        "The `score.sd` field must be a finite number above 0. Got 0.",
        "t/items/sum.md: there is no field 'shufle'. Did you mean `shuffle`?",
        "t/items/half.md: expected a formula in LaTeX",
        "t/items/keys.toml, [root]: there is no field 'answer'. Known are key, points",
        "t/items/double.md: expected a key. Got none. Give key, points or rubric",
        "t/items/keys.toml: expected keys of items that exist. Got dubble",
        "t/parameters.csv, row 5, item 'ratio', column a: expected a number. Got 'x'.",
        "t: 8 faults.",
    ):
        assert words in faults, faults

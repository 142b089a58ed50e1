"""The staff's interface, over HTTP, on both databases."""

import io
import zipfile
from csv import reader
from itertools import count

import numpy as np
import pytest
from fastapi.testclient import TestClient
from lxml import etree

import irtcat
from irtcat.bank import ItemBank
from irtcat.service.accounts import accounts
from irtcat.service.attempts import library, people, proctoring, taking
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.attempts.results import attempt_result
from irtcat.service.content import Item, ItemSet, Key
from irtcat.service.outbox import audit
from tests.service.helpers import bank, definition, items

API = "/api/v1"
PASSWORD = "correct horse battery"
TOML = """
title = "Small test"
[[sections]]
kind = "adaptive"
config = { max_items = 4 }
"""


class Client:
    """A program of staff."""

    def __init__(self, app, name, *roles):
        service = app.state.service
        account = accounts.add_account(service, name, password=PASSWORD, roles=roles, actor="test")
        self.http = TestClient(app, base_url="https://testserver")
        self.http.headers["Authorization"] = f"Bearer {accounts.issue_token(service, account)}"

    def __call__(self, method, path, body=None, status=None, **options):
        if body is not None:
            options["json"] = body
        reply = self.http.request(method, f"{API}/{path}", **options)
        wanted = status or {"GET": 200, "POST": 201, "DELETE": 204, "PATCH": 200}[method]
        assert reply.status_code == wanted, reply.text
        is_json = "json" in reply.headers.get("content-type", "")
        return reply.json() if is_json and reply.content else reply


@pytest.fixture
def staff(app):
    numbers = count()
    return lambda *roles: Client(app, f"{'-'.join(roles)}-{next(numbers)}", *roles)


@pytest.fixture
def admin(staff):
    return staff("admin")


def media_url(name):
    return name


def take(service, test, pattern="1101110", text=None):
    """One whole attempt; the pattern says which answers are right."""
    started = taking.begin(service, people.issue_ticket(service, test, actor="test").token)
    device = (service, started.attempt, started.secret, media_url)
    view = taking.current(*device)
    right = iter(pattern * 12)
    while view["page"] != "finished":
        if view["page"] == "item":
            item = view["item"]
            response = text
            if item["choices"]:
                wanted = "B" if next(right) == "1" else "A"
                response = next(c["id"] for c in item["choices"] if c["content"].endswith(wanted))
            view = taking.answer(*device, number=item["number"], response=response)
        else:
            view = taking.proceed(*device)
    return started.attempt


@pytest.mark.slow
def test_publishing_from_uploads(admin, service):
    data = bank().to_bytes()
    binary = {"Content-Type": "application/octet-stream"}
    stored = admin("POST", "uploads/banks", content=data, headers=binary)
    assert stored["items"] == 12
    assert admin("POST", "uploads/banks", content=data, headers=binary) == stored
    listed = admin("GET", "banks")
    assert listed == {
        "items": [{"hash": stored["hash"], "items": 12, "model": "TwoPL"}],
        "next": None,
    }
    assert admin("GET", f"banks/{stored['hash']}") == listed["items"][0]
    page = admin("GET", f"banks/{stored['hash']}/items?limit=5")
    assert [row["item"] for row in page["items"]] == [f"q{i}" for i in range(5)]
    assert page["items"][0]["parameters"]["a"] == pytest.approx(0.9)
    rest = admin("GET", f"banks/{stored['hash']}/items?after={page['next']}")
    assert [row["item"] for row in rest["items"]] == [f"q{i}" for i in range(5, 12)]
    assert rest["next"] is None
    table = "id,prompt,A,B,key\n" + "".join(f"q{i},What?,it is A,it is B,B\n" for i in range(12))
    csv = {"Content-Type": "text/csv; charset=utf-8"}
    uploaded = admin("POST", "uploads/items", content=table, headers=csv)
    assert uploaded["items"] == 12
    assert [row["hash"] for row in admin("GET", "items")["items"]] == [uploaded["hash"]]
    body = {
        "definition": TOML,
        "bank": stored["hash"],
        "items": uploaded["hash"],
        "n_simulated": 20,
    }
    test = admin("POST", "tests", body)["id"]
    assert [row["id"] for row in admin("GET", "tests")["items"]] == [test]
    report = admin("GET", f"tests/{test}")
    assert report["report"]["figures"]["mean_items"] == 4
    assert report["definition"]["title"] == "Small test"
    take(service, test)
    assert admin("GET", "tests")["items"][0]["attempts"] == 1
    admin("POST", f"tests/{test}/retire", status=204)
    admin("POST", f"tests/{test}/retire", status=409)
    assert admin("GET", "tests")["items"][0]["status"] == "retired"


def test_tests_whose_rules_cannot_be_kept_are_refused(admin):
    binary = {"Content-Type": "application/octet-stream"}
    stored = admin("POST", "uploads/banks", content=bank().to_bytes(), headers=binary)["hash"]
    table = "id,prompt,A,B,key\nq1,What?,no,yes,B\n"
    uploaded = admin("POST", "uploads/items", content=table, headers={"Content-Type": "text/csv"})
    body = {"definition": TOML, "bank": stored, "items": uploaded["hash"], "n_simulated": 20}
    assert "q0" in admin("POST", "tests", body, status=422)["detail"]
    admin("POST", "tests", {**body, "definition": "title ="}, status=422)
    admin("POST", "tests", {**body, "bank": "x"}, status=404)
    admin("POST", "tests", {**body, "items": "x"}, status=404)
    assert admin("GET", "tests")["items"] == []


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # the same bytes at any time
    return data.getvalue()


ZIP = {"Content-Type": "application/zip"}
ITEM = '+++\nkey = "B"\n+++\nWhat?\n\n- (A) no\n- (B) yes\n'


def test_a_zip_of_a_folder_of_items(admin):
    for files in ({"q1.md": ITEM, "q2.md": ITEM}, {"items/q1.md": ITEM, "items/q2.md": ITEM}):
        assert admin("POST", "uploads/items", content=zipped(files), headers=ZIP)["items"] == 2


@pytest.mark.slow_cases(
    "sqlite-cut",
    "sqlite-empty",
    "sqlite-parent",
    "sqlite-absolute",
    "sqlite-file-and-folder",
    "sqlite-csv",
    "sqlite-binary",
    "sqlite-no-type",
)
@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"PK", ZIP, 422),
        (b"", ZIP, 422),
        (zipped({"../q1.md": ITEM}), ZIP, 422),
        (zipped({"/etc/q1.md": ITEM}), ZIP, 422),
        (zipped({"a" * 300 + ".md": ITEM}), ZIP, 422),
        (zipped({"q1.md": ITEM, "q1.md/x.md": ITEM}), ZIP, 422),
        (zipped({"imsmanifest.xml": "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"}), ZIP, 422),
        (b"a,b\n1,2", {"Content-Type": "text/csv"}, 422),
        (b"\xff\xfe", {"Content-Type": "text/csv"}, 422),
        (b"{}", {"Content-Type": "application/json"}, 415),
        (b"x", {}, 415),
    ],
    ids=[
        "cut",
        "empty",
        "parent",
        "absolute",
        "long",
        "file-and-folder",
        "entity",
        "csv",
        "binary",
        "json",
        "no-type",
    ],
)
def test_uploads_that_are_no_items(admin, data, headers, status):
    problem = admin("POST", "uploads/items", content=data, headers=headers, status=status)
    assert "/tmp" not in problem["detail"]


def test_uploads_that_are_no_bank(admin):
    binary = {"Content-Type": "application/octet-stream"}
    for data in (b"", b"PK", zipped({"model.npy": "x"}), bank().to_bytes()[:-50]):
        problem = admin("POST", "uploads/banks", content=data, headers=binary, status=422)
        assert "/tmp" not in problem["detail"]
    admin("POST", "uploads/banks", content=b"", headers=ZIP, status=415)


@pytest.mark.slow
def test_people_and_tickets(staff, service, published):
    proctor = staff("proctor")
    ada = proctor("POST", "people", {"name": "Ada Lovelace", "external": "s-1"})["id"]
    assert proctor("POST", "people", {"external": "s-1"})["id"] == ada
    made = proctor(
        "POST",
        "tickets",
        {
            "test": published,
            "person": ada,
            "accommodations": ["extra_time_50"],
            "opens": "2026-11-23T07:00:00Z",
            "expires": "2026-11-24T07:00:00+01:00",
        },
    )
    taking.begin(service, made["token"])
    (row,) = proctor("GET", f"tickets?test={published}")["items"]
    assert (row["id"], row["status"], row["accommodations"]) == (
        made["id"],
        "used",
        ["extra_time_50"],
    )
    assert made["token"] not in str(proctor("GET", "tickets"))
    proctor("POST", f"tickets/{made['id']}/revoke", status=409)
    proctor("POST", "tickets/t_x/revoke", status=404)
    for wrong in (
        {"test": published, "opens": "2026-11-23T07:00:00"},
        {"test": published, "opens": "0001-01-01T00:00:00+14:00"},
        {"test": published, "accommodations": ["wings"]},
        {"test": published, "extra": 1},
    ):
        proctor("POST", "tickets", wrong, status=422)
    proctor("POST", "tickets", {"test": "test_x"}, status=404)
    proctor("POST", "tickets", {"test": published, "person": "p_x"}, status=404)
    proctor("DELETE", f"people/{ada}")
    proctor("DELETE", f"people/{ada}", status=404)
    assert proctor("GET", "people")["items"] == []


def test_a_table_of_tickets(staff, service, published):
    proctor = staff("proctor")
    csv = {"Content-Type": "text/csv"}
    table = "external,name,accommodations\ns-1,Ada,extra_time_50|pause\ns-2,\u00c9mile,\n"
    reply = proctor(
        "POST", f"uploads/tickets?test={published}", content=table, headers=csv, status=200
    )
    lines = reply.text.splitlines()
    assert lines[0] == "external,name,accommodations,person,ticket,token"
    assert len(lines) == 3
    taking.begin(service, lines[1].split(",")[-1])
    assert {row["name"] for row in proctor("GET", "people")["items"]} == {"Ada", "\u00c9mile"}
    # All or none.
    bad = "external,accommodations\ns-3,\ns-4,wings\n"
    problem = proctor(
        "POST", f"uploads/tickets?test={published}", content=bad, headers=csv, status=422
    )
    assert problem["detail"].startswith("Line 3: ")
    assert len(proctor("GET", "people")["items"]) == 2
    for wrong in (
        b"shoe\n9",
        b"\xff",
        b"name,name\na,b",
        b"name\na,b",
        b'name\n"a',
        b"",
        b"name;email\na;b",
        b"external\ns-1;Ada",
        b"name\temail\na\tb\tc",
    ):
        proctor("POST", f"uploads/tickets?test={published}", content=wrong, headers=csv, status=422)


@pytest.mark.slow
def test_a_dry_run_of_tickets_stores_nothing(staff, service, published):
    proctor = staff("proctor")
    csv = {"Content-Type": "text/csv"}
    ada = proctor("POST", "people", {"name": "Ada", "external": "s-1"})["id"]
    address = f"uploads/tickets?test={published}"
    rows = ["name,external,email", '"Müller, Anna",s-2,anna@example.org', "", "=1+1,,", ",s-1,", ""]
    table = "\ufeff" + "\r\n".join(rows)
    entries = len(audit.audit_entries(service))
    reply = proctor(
        "POST", f"{address}&dry_run=true", content=table.encode(), headers=csv, status=200
    )
    assert reply.text.split("\r\n") == [
        "name,external,email,person,status",
        '"Müller, Anna",s-2,anna@example.org,,new',
        "'=1+1,,,,new",
        f",s-1,,{ada},known: Ada",
        "",
    ]
    assert len(people.people_table(service)) == 1
    assert people.ticket_table(service).empty
    assert len(audit.audit_entries(service)) == entries
    reply = proctor("POST", address, content=table.encode(), headers=csv, status=200)
    rows = list(reader(reply.text.splitlines()))
    assert rows[0] == ["name", "external", "email", "person", "ticket", "token"]
    assert rows[2][0] == "'=1+1"
    assert rows[3][3] == ada
    assert set(people.people_table(service)["name"]) == {"Ada", "Müller, Anna", "=1+1"}
    for query in ("", "&dry_run=true"):
        other = "name,external\nEmmy,s-9\nGrace,s-1\n"
        problem = proctor("POST", address + query, content=other, headers=csv, status=409)
        assert problem["detail"] == "Line 3: The id 's-1' is known with name 'Ada'. Got 'Grace'."
    proctor(
        "POST",
        "uploads/tickets?test=test_x&dry_run=true",
        content=table.encode(),
        headers=csv,
        status=404,
    )
    assert len(people.people_table(service)) == 3


@pytest.mark.slow
def test_a_known_person_keeps_the_name(staff, service):
    proctor = staff("proctor")
    given = {"name": "Ada", "email": "ada@example.org", "external": "s-1"}
    ada = proctor("POST", "people", given)["id"]
    for same in (given, {"external": "s-1"}, {"external": "s-1", "name": "Ada"}):
        assert proctor("POST", "people", same)["id"] == ada
    for other in ({"name": "Grace"}, {"email": "grace@example.org"}):
        problem = proctor("POST", "people", {"external": "s-1", **other}, status=409)
        assert "is known with" in problem["detail"]
    assert len(people.people_table(service)) == 1


@pytest.mark.slow
def test_conducting(staff, service, published):
    proctor = staff("proctor")
    ticket = people.issue_ticket(service, published, actor="test")
    started = taking.begin(service, ticket.token)
    one = f"attempts/{started.attempt}"
    (row,) = proctor("GET", "board")["items"]
    assert (row["attempt"], row["status"], row["device"]) == (started.attempt, "running", True)
    assert proctor("GET", f"board?test={published}")["items"] == [row]
    assert proctor("GET", "board?test=another")["items"] == []
    for name, body in (
        ("pause", {"reason": "ill"}),
        ("resume", None),
        ("extend", {"seconds": 60, "reason": "noise"}),
        ("note", {"text": "left the room"}),
        ("release", None),
        ("finish", {"reason": "went home"}),
        ("void", {"reason": "copied"}),
        ("reopen", {"reason": "did not", "seconds": 5}),
    ):
        proctor("POST", f"{one}/{name}", body, status=204)
        proctor("POST", f"attempts/a_x/{name}", body, status=404)
    kinds = [event["kind"] for event in staff("auditor")("GET", f"{one}/events")["items"]]
    assert (
        kinds[2:]
        == ["pause", "resume", "extend", "note", "release", "finish", "void", "reopen", "section"][
            : len(kinds) - 2
        ]
    )
    proctor("POST", f"{one}/resume", status=409)
    proctor("POST", f"{one}/pause", {}, status=422)
    proctor("POST", f"{one}/pause", {"reason": " "}, status=422)
    proctor("POST", f"{one}/extend", {"seconds": 1e9, "reason": "x"}, status=422)
    proctor("GET", f"{one}/events", status=403)
    entry = staff("auditor")("GET", "audit?limit=1&verified=true")["items"][0]
    assert entry["action"] in ("attempt reopened", "account added", "token issued")


def test_lists_come_in_pages(staff, service, published):
    proctor = staff("proctor")
    for n in range(5):
        people.add_person(service, name=f"P{n}", actor="test")
    seen, after = [], ""
    while after is not None:
        page = proctor("GET", f"people?limit=2{f'&after={after}' if after else ''}")
        seen += [row["name"] for row in page["items"]]
        after = page["next"]
    assert sorted(seen) == [f"P{n}" for n in range(5)]
    for wrong in ("limit=0", "limit=1000", "limit=x", "after=nobody", "after=%00", "after="):
        proctor("GET", f"people?{wrong}", status=422)


def test_lists_of_items_go_on_after_any_id(admin):
    names = ["Item 1", "Größe/2", "x,3"]
    data = ItemBank.from_parameters(b=[0.0, 1.0, 2.0], item_ids=names).to_bytes()
    sent = {"content": data, "headers": {"content-type": "application/octet-stream"}}
    path = f"banks/{admin('POST', 'uploads/banks', **sent)['hash']}/items"
    seen, after = [], {}
    while after is not None:
        page = admin("GET", path, params={"limit": 1, **after})
        seen += [row["item"] for row in page["items"]]
        after = page["next"] and {"after": page["next"]}
    assert seen == names


@pytest.mark.slow
def test_results_and_exports(staff, service, published, clock, tmp_path):
    reader = staff("psychometrician")
    attempts = []
    for pattern in ("1101110", "0010010", "1"):
        attempts.append(take(service, published, pattern))
        clock.move(60)
    rows = reader("GET", f"tests/{published}/results")["items"]
    assert [row["attempt"] for row in rows] == attempts
    expected = attempt_result(attempt_of(service, attempts[0]))
    assert rows[0]["theta"] == pytest.approx(expected.theta)
    assert rows[0]["score"] == expected.scaled.score
    one = reader("GET", f"attempts/{attempts[0]}/result")
    assert one["result"]["theta"] == pytest.approx(expected.theta)
    assert len(one["answers"]) == 8
    assert one["waiting"] == []
    text = reader("GET", f"tests/{published}/results.csv").text
    assert text.splitlines()[0].startswith("attempt,person,started")
    assert len(text.splitlines()) == 4
    reply = reader("GET", f"tests/{published}/answers.csv")
    assert len(reply.text.splitlines()) == 1 + 3 * 8
    assert "attachment" in reply.headers["content-disposition"]
    path = tmp_path / "responses.npz"
    path.write_bytes(reader("GET", f"tests/{published}/responses.npz").content)
    exported = audit.audit_entries(service, n=3)
    assert exported["action"].tolist() == ["results exported"] * 3
    files = [entry["file"] for entry in exported["details"]]
    assert files == ["responses.npz", "answers.csv", "results.csv"]
    responses = irtcat.read_responses(path)
    assert responses.subject_ids.tolist() == attempts
    answers = attempt_of(service, attempts[1]).progress.answers
    given = {name: answer.code for name, answer in answers.items() if name != "p1"}
    assert responses[attempts[1]].dropna().astype(int).to_dict() == given
    # The command of the issue: the bank's items keep their scale.
    fitted = irtcat.fit(responses, "2pl", anchors=bank())
    assert fitted is not None
    for path in ("results", "results.csv", "answers.csv", "responses.npz", "items", "ratings", ""):
        reader("GET", f"tests/test_x/{path}".rstrip("/"), status=404)


def test_qti_results(staff, service, published):
    reader = staff("auditor")
    attempt = take(service, published)
    xml = reader("GET", f"attempts/{attempt}/result.xml").content
    root = etree.fromstring(xml)
    space = {"q": "http://www.imsglobal.org/xsd/imsqti_result_v3p0"}
    assert root.tag == f"{{{space['q']}}}assessmentResult"
    it = attempt_of(service, attempt)
    assert root.find("q:context", space).get("sourcedId") == it.head["person"]
    outcomes = {
        variable.get("identifier"): variable.findtext("q:value", namespaces=space)
        for variable in root.findall("q:testResult/q:outcomeVariable", space)
    }
    result = attempt_result(it)
    assert float(outcomes["THETA"]) == result.theta
    assert float(outcomes["SCORE"]) == result.scaled.score
    found = root.findall("q:itemResult", space)
    assert [item.get("identifier") for item in found] == list(it.progress.answers)
    for item in found:
        answer = it.progress.answers[item.get("identifier")]
        response = "q:responseVariable[@identifier='RESPONSE']/q:candidateResponse/q:value"
        assert item.findtext(response, namespaces=space) == answer.response
        score = item.findtext("q:outcomeVariable/q:value", namespaces=space)
        assert float(score) == answer.code
        assert item.get("sessionStatus") == "final"
    ticket = people.issue_ticket(service, published, actor="test")
    running = taking.begin(service, ticket.token).attempt
    reader("GET", f"attempts/{running}/result.xml", status=409)
    reader("GET", "attempts/a_x/result.xml", status=404)


def test_a_note_does_not_change_when_an_attempt_finished(staff, service, published, clock):
    reader = staff("auditor")
    attempt = take(service, published)
    paths = (f"tests/{published}/results.csv", f"attempts/{attempt}/result.xml")
    before = [reader("GET", path).text for path in paths]
    clock.move(3 * 24 * 3600)
    proctoring.note(service, attempt, actor="account:ada", text="The room was loud.")
    assert [reader("GET", path).text for path in paths] == before


@pytest.mark.slow
def test_no_responses_to_export(staff, published):
    staff("auditor")("GET", f"tests/{published}/responses.npz", status=409)


@pytest.mark.slow
def test_exposure_and_drift(staff, service, monkeypatch):
    from irtcat.service.attempts import results

    document = {"sections": [{"kind": "fixed", "items": [f"q{i}" for i in range(12)]}]}
    test, _ = library.publish(
        service, definition(**document), bank(), items(), actor="test", n_simulated=20
    )
    # q11 is the hardest item; here everybody gets it right, as if it had become known.
    for n in range(24):
        pattern = "".join("1" if i < n % 12 else "0" for i in range(11)) + "1"
        take(service, test, pattern)
    rows = staff("psychometrician")("GET", f"tests/{test}/items")["items"]
    by_item = {row["item"]: row for row in rows}
    assert len(rows) == 12
    hard = by_item["q11"]
    assert hard["answers"] == 24
    assert hard["exposure"] == 1
    assert hard["observed"] == 1
    assert hard["expected"] < 0.6
    assert hard["drift"]
    assert hard["z"] > 3
    # By hand, from the estimates and the curves.
    thetas = [
        attempt_result(attempt_of(service, row)).theta
        for row in staff("auditor")("GET", f"tests/{test}/results")["items"]
        for row in [row["attempt"]]
    ]
    p = 1 / (1 + np.exp(-1.8 * (np.array(thetas) - 1.5)))
    assert hard["expected"] == pytest.approx(p.mean(), rel=1e-5)
    assert hard["z"] == pytest.approx((1 - p).sum() / np.sqrt((p * (1 - p)).sum()), rel=1e-5)
    monkeypatch.setattr(results, "FEWEST", 25)
    assert not results.item_statistics(service, test).set_index("item")["drift"]["q11"]


@pytest.mark.slow
def test_exposure_over_its_target(staff, service):
    config = {"max_items": 3, "exposure": {"name": "randomesque", "k": 3}}
    document = {"sections": [{"kind": "adaptive", "config": config}]}
    test, _ = library.publish(
        service, definition(**document), bank(), items(), actor="test", n_simulated=20
    )
    rows = staff("psychometrician")("GET", f"tests/{test}/items")["items"]
    assert all(row["target"] is None and row["exposure"] is None for row in rows)
    config["exposure"] = {"name": "restricted", "rate": 0.3}
    test, _ = library.publish(
        service, definition(**document), bank(), items(), actor="test", n_simulated=20
    )
    take(service, test)
    rows = staff("psychometrician")("GET", f"tests/{test}/items")["items"]
    assert {row["target"] for row in rows} == {0.3}
    assert sum(row["exposure"] for row in rows) == 3


@pytest.fixture
def essays(service):
    """A test with an essay that people score from 0 to 2."""
    essay = Item(id="e1", kind="essay", prompt="<p>Explain.</p>")
    plain = items()
    all_items = ItemSet(
        [*plain.items.values(), essay],
        [*plain.keys.values(), Key("e1", "rubric", max_score=2, rubric="<p>Two reasons.</p>")],
    )
    thresholds = [[b, np.nan] for b in np.linspace(-1.5, 1.5, 12)] + [[-0.5, 0.5]]
    ids = [name for name in all_items if name != "p1"]
    it = ItemBank.from_thresholds(1.2, thresholds, "gpcm", item_ids=ids)
    sections = [{"kind": "fixed", "items": ["q0", "q1", "e1"]}]
    name, _ = library.publish(
        service, definition(sections=sections), it, all_items, actor="test", n_simulated=20
    )
    return name


@pytest.mark.slow
def test_ratings(staff, service, essays):
    one, two, three = staff("scorer"), staff("scorer"), staff("scorer")
    agreed = take(service, essays, text="Because <b>it</b> is so")
    differed = take(service, essays, text="No idea")
    assert {row["attempt"] for row in one("GET", "ratings")["items"]} == {agreed, differed}
    task = one("GET", f"attempts/{agreed}/ratings/task?item=e1")
    assert task["response"] == "Because <b>it</b> is so"
    assert (task["max_score"], task["rubric"]) == (2, "<p>Two reasons.</p>")
    assert task["scores"] == [0, 1, 2]
    person = attempt_of(service, agreed).head["person"]
    assert person not in str(task)
    auditor = staff("auditor")
    assert auditor("GET", f"attempts/{agreed}/result")["waiting"] == ["e1"]
    assert auditor("GET", f"attempts/{agreed}/result")["result"] is None

    def rate(who, attempt, score, status=201):
        body = {"item": "e1", "score": score}
        return who(
            "POST", f"attempts/{attempt}/ratings", body, status=200 if status == 201 else status
        )

    assert rate(one, agreed, 2) == {"status": "open"}
    rate(one, agreed, 2, status=409)
    rate(two, agreed, 3, status=422)
    rate(two, agreed, 1.5, status=422)
    assert [row["attempt"] for row in one("GET", "ratings")["items"]] == [differed]
    assert rate(two, agreed, 2) == {"status": "scored"}
    rate(three, agreed, 1, status=404)
    it = attempt_of(service, agreed)
    assert it.progress.answers["e1"].code == 2
    event = proctoring.attempt_events(service, agreed)[-1]
    assert (event["kind"], event["code"], event["ratings"]) == ("rating", 2, [2, 2])
    result = auditor("GET", f"attempts/{agreed}/result")
    assert result["waiting"] == []
    assert result["result"]["n_items"] == 3
    assert rate(one, differed, 0) == {"status": "open"}
    assert rate(two, differed, 1) == {"status": "differ"}
    assert one("GET", "ratings")["items"] == []
    (waiting,) = three("GET", "ratings")["items"]
    assert waiting == {"attempt": differed, "item": "e1", "kind": "adjudication"}
    assert rate(three, differed, 1) == {"status": "scored"}
    assert attempt_of(service, differed).progress.answers["e1"].code == 1
    (row,) = auditor("GET", f"tests/{essays}/ratings")["items"]
    assert (row["pairs"], row["agreement"], row["adjudicated"]) == (2, 0.5, 1)
    # Observed agreement 1/2; by chance 1/4: first (2, 0), second (2, 1).
    assert row["kappa"] == pytest.approx((0.5 - 0.25) / (1 - 0.25))
    assert row["mean"] == pytest.approx((2 + 2 + 0 + 1) / 4)
    one("GET", f"attempts/{agreed}/ratings/task?item=q0", status=404)
    one("POST", "attempts/a_x/ratings", {"item": "e1", "score": 1}, status=404)


@pytest.mark.slow
def test_a_score_report_waits_for_ratings(service, essays):
    ticket = people.issue_ticket(service, essays, actor="test")
    started = taking.begin(service, ticket.token)
    device = (service, started.attempt, started.secret, media_url)
    view = taking.current(*device)
    while view["page"] == "item":
        item = view["item"]
        response = "c1" if item["choices"] else "text"
        view = taking.answer(*device, number=item["number"], response=response)
    assert view["report"] == {"waiting": True}
    from irtcat.service.attempts.ratings import rate

    for rater in ("a", "b"):
        rate(service, started.attempt, "e1", 1, rater=rater, actor=f"account:{rater}")
    assert taking.current(*device)["report"]["score"] is not None


def test_accounts_and_clients(staff, admin, app):
    body = {"name": "grace", "roles": ["author"], "password": PASSWORD}
    made = admin("POST", "accounts", body)
    assert (made["roles"], made["status"], made["password"]) == (["author"], "open", True)
    admin("POST", "accounts", body, status=409)
    admin("POST", "accounts", {**body, "name": "x", "roles": ["king"]}, status=422)
    admin("POST", "accounts", {**body, "name": "x", "password": "short"}, status=422)
    changed = admin("PATCH", "accounts", {"name": "grace", "roles": ["scorer"], "is_open": False})
    assert (changed["roles"], changed["status"]) == (["scorer"], "closed")
    admin("PATCH", "accounts", {"name": "nobody", "is_open": True}, status=404)
    login = {"name": "grace", "password": "another long password"}
    admin("PATCH", "accounts", {"name": "grace", "is_open": True, "password": login["password"]})
    http = TestClient(app, base_url="https://testserver")
    assert http.post(f"{API}/tokens", json=login).status_code == 201
    assert PASSWORD not in str(admin("GET", "accounts"))
    client = admin("POST", "clients", {"name": "TAO"})
    data = {
        "grant_type": "client_credentials",
        "client_id": client["id"],
        "client_secret": client["secret"],
    }
    assert http.post("/oauth/token", data=data).status_code == 200
    admin("DELETE", f"clients/{client['id']}")
    assert http.post("/oauth/token", data=data).status_code == 401
    (row,) = admin("GET", "clients")["items"]
    assert row["status"] == "closed"
    assert client["secret"] not in str(row)


def test_formulas_in_exports_are_text(staff, service):
    item = Item(id="t1", kind="text", prompt="<p>Say it.</p>")
    plain = items()
    with_text = ItemSet([*plain.items.values(), item], plain.keys)
    sections = [{"kind": "practice", "items": ["t1"]}, {"kind": "fixed", "items": ["q0"]}]
    test, _ = library.publish(
        service, definition(sections=sections), bank(), with_text, actor="test", n_simulated=20
    )
    take(service, test, text='=HYPERLINK("http://evil")')
    text = staff("auditor")("GET", f"tests/{test}/answers.csv").text
    assert "\"'=HYPERLINK" in text


def test_webhooks(admin):
    body = {"url": "https://example.org/hook", "events": ["attempt.finished"]}
    made = admin("POST", "webhooks", body)
    (row,) = admin("GET", "webhooks")["items"]
    assert (row["id"], row["url"], row["status"]) == (made["id"], body["url"], "open")
    assert made["secret"] not in str(row)
    change = {"events": ["test.published", "attempt.finished"], "status": "disabled"}
    admin("PATCH", f"webhooks/{made['id']}", change, status=204)
    (row,) = admin("GET", "webhooks")["items"]
    assert (row["events"], row["status"]) == (["attempt.finished", "test.published"], "disabled")
    for wrong in (
        {**body, "url": "ftp://example.org"},
        {**body, "url": "http://["},
        {**body, "url": "https://1.1.1.1:99999/"},
        {**body, "url": "https://a:b@example.org"},
        {**body, "events": ["shoe"]},
        {**body, "events": []},
    ):
        admin("POST", "webhooks", wrong, status=422)
    admin("PATCH", "webhooks/w_x", {}, status=404)
    admin("DELETE", f"webhooks/{made['id']}")
    admin("DELETE", f"webhooks/{made['id']}", status=404)

"""1EdTech CAT 1.0: contract, a whole session by a client written from the specification, dialects.

The field names of the requests and responses here are those of the REST/JSON binding of 1 February
2021 (its data types SectionDType, SessionDType, ResultsDType and their response bodies).
"""

import base64
import json
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

from irtcat.bank import ItemBank
from irtcat.cat import Config, Session
from irtcat.service.accounts import clients
from irtcat.service.assembly import open_service
from tests.service.helpers import bank, publish

BASE = "/ims/cat/v1p0"
NCNAME = re.compile(r"[A-Za-z_][\w.-]*")


@pytest.fixture
def service(database):
    return open_service(database, create=True)


class CatClient:
    """A client that knows the specification only."""

    def __init__(self, app, scope=""):
        service = app.state.service
        self.id, secret = clients.add_client(service, "test", actor="test")
        self.http = TestClient(app, base_url="https://testserver")
        data = {"grant_type": "client_credentials", "scope": scope}
        reply = self.http.post("/oauth/token", data=data, auth=(self.id, secret))
        self.http.headers["Authorization"] = f"Bearer {reply.json()['access_token']}"

    def __call__(self, method, path, body=None, status=None):
        options = {} if body is None else {"json": body}
        reply = self.http.request(method, f"{BASE}{path}", **options)
        expected = status or {"GET": 200, "DELETE": 204, "POST": 201}[method]
        assert reply.status_code == expected, reply.text
        if status is not None and status >= 400:
            check_status_info(reply.json(), status)
        return reply.json() if reply.content else None

    def section(self, document, **fields):
        sent = {"sectionConfiguration": encoded(document), **fields}
        return self("POST", "/sections", sent)["sectionIdentifier"]


def encoded(document):
    return base64.b64encode(json.dumps(document).encode()).decode()


def check_status_info(document, status):
    """The required fields and the vocabularies of imsx_StatusInfo."""
    assert document["imsx_codeMajor"] == "failure"
    assert document["imsx_severity"] == "error"
    assert document["imsx_description"]
    (code,) = document["imsx_codeMinor"]["imsx_codeMinorField"]
    assert code["imsx_codeMinorFieldName"]
    value = code["imsx_codeMinorFieldValue"]
    by_status = {401: "unauthorisedrequest", 403: "forbidden", 404: "unknownobject"}
    assert value == by_status.get(status, "invaliddata")


def item_result(item, score, **fields):
    """An itemResult with every field that the specification requires."""
    return {
        "identifier": item,
        "datestamp": "2026-11-23T08:00:00Z",
        "sessionStatus": "final",
        "outcomeVariables": [
            {
                "identifier": "SCORE",
                "cardinality": "single",
                "baseType": "float",
                "value": [{"value": str(score)}],
            }
        ],
        **fields,
    }


def results(state, *entries):
    return {"assessmentResult": {"itemResult": list(entries)}, "sessionState": state}


@pytest.fixture
def client(app):
    return CatClient(app)


CONFIG = {"max_items": 5}


@pytest.fixture
def document(service):
    return {"bank": service.store.add_bank(bank()), "config": CONFIG}


@pytest.fixture
def session(client, document):
    section = client.section(document)
    made = client("POST", f"/sections/{section}/sessions", {})
    return f"/sections/{section}/sessions/{made['sessionIdentifier']}", made


def outcomes(reply):
    variables = reply["assessmentResult"]["testResult"]["outcomeVariables"]
    for variable in variables:
        assert set(variable) == {"identifier", "cardinality", "baseType", "value"}
        assert variable["cardinality"] == "single"
    return {v["identifier"]: v["value"][0]["value"] for v in variables}


@pytest.mark.slow
def test_a_whole_session_by_a_client_written_from_the_specification(client, document):
    section = client.section(document, qtiUsagedata=encoded("x"))
    assert NCNAME.fullmatch(section)
    found = client("GET", f"/sections/{section}")
    assert set(found) == {"items", "section"}
    assert found["items"] == {"itemIdentifiers": [f"q{i}" for i in range(12)]}
    assert found["section"]["sectionConfiguration"] == encoded(document)
    assert found["section"]["qtiUsagedata"] == encoded("x")
    made = client("POST", f"/sections/{section}/sessions", {})
    assert set(made) == {"sessionIdentifier", "nextItems", "sessionState"}
    assert NCNAME.fullmatch(made["sessionIdentifier"])
    path = f"/sections/{section}/sessions/{made['sessionIdentifier']}"
    memory = Session.begin(bank(), Config(**CONFIG))
    turn = made
    for step in range(5):
        asked = turn["nextItems"]
        assert asked == {"itemIdentifiers": memory.asked, "stageLength": 1}
        score = step % 2
        memory.answer(memory.asked[0], score)
        body = results(turn["sessionState"], item_result(asked["itemIdentifiers"][0], score))
        turn = client("POST", f"{path}/results", body, status=200)
        assert set(turn) == {"nextItems", "assessmentResult", "sessionState"}
        values = outcomes(turn)
        assert float(values["THETA"]) == pytest.approx(memory.estimate()["theta"], abs=1e-9)
        assert float(values["SE"]) == pytest.approx(memory.estimate()["se"], abs=1e-9)
        assert values["N_ITEMS"] == str(step + 1)
    assert turn["nextItems"] == {"itemIdentifiers": [], "stageLength": 0}
    assert values["STOPPED_BY"] == memory.reason
    client("DELETE", path)
    client("DELETE", path, status=404)
    client("DELETE", f"/sections/{section}")
    client("GET", f"/sections/{section}", status=404)


def test_the_section_of_a_published_test(client, service):
    test = publish(service)
    for configuration in ({"test": test}, {"test": test, "section": 3}):
        section = client.section(configuration)
        pool = client("GET", f"/sections/{section}")["items"]["itemIdentifiers"]
        assert pool == [f"q{i}" for i in range(3, 12)]
    for wrong in (
        {"test": test, "section": 1},
        {"test": test, "section": True},
        {"test": test, "section": "x"},
    ):
        client("POST", "/sections", {"sectionConfiguration": encoded(wrong)}, status=422)
    client("POST", "/sections", {"sectionConfiguration": encoded({"test": "x"})}, status=404)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sectionConfiguration": ""},
        {"sectionConfiguration": "!!!"},
        {"sectionConfiguration": "AAAA"},
        {"sectionConfiguration": encoded([])},
        {"sectionConfiguration": encoded(3)},
        {"sectionConfiguration": encoded({})},
        {"sectionConfiguration": encoded({"test": 3})},
        {"sectionConfiguration": encoded({"bank": "x"})},
        {"sectionConfiguration": base64.b64encode(b"[" * 100_000).decode()},
        {"sectionConfiguration": 3},
    ],
    ids=lambda body: str(body)[:60],
)
def test_configurations_that_cannot_be_read(client, body):
    client("POST", "/sections", body, status=422)


def test_configurations_that_cannot_be_used(client, document):
    for config in (
        {"max_items": 0},
        {"criterion": "x"},
        {"shoe": 1},
        [],
        None,
        "x",
        {"exposure": "sympson-hetter"},
    ):
        wrong = {**document, "config": config}
        client("POST", "/sections", {"sectionConfiguration": encoded(wrong)}, status=422)
    unknown = encoded({**document, "bank": "x\x00"})
    client("POST", "/sections", {"sectionConfiguration": unknown}, status=404)


@pytest.mark.slow
def test_base64_of_all_forms(client, document):
    text = encoded(document)
    plus = base64.urlsafe_b64encode(
        json.dumps({**document, "config": {"max_items": 3}}).encode()
    ).decode()
    for form in (text.rstrip("="), f"{text[:20]}\r\n{text[20:]}", plus):
        client("POST", "/sections", {"sectionConfiguration": form})


@pytest.mark.slow
def test_repeats_change_nothing(client, session):
    path, made = session
    item = made["nextItems"]["itemIdentifiers"][0]
    body = results(made["sessionState"], item_result(item, 1))
    first = client("POST", f"{path}/results", body, status=200)
    again = client("POST", f"{path}/results", body, status=200)
    del first["assessmentResult"], again["assessmentResult"]
    assert again == first
    # Another score with the old state, and with the new one.
    for state in (made["sessionState"], first["sessionState"], None):
        conflict = results(state, item_result(item, 0))
        client("POST", f"{path}/results", conflict, status=409)
    # A client may send all its results each time.
    following = first["nextItems"]["itemIdentifiers"][0]
    both = results(first["sessionState"], item_result(item, 1), item_result(following, 0))
    second = client("POST", f"{path}/results", both, status=200)
    assert outcomes(second)["N_ITEMS"] == "2"
    third = second["nextItems"]["itemIdentifiers"][0]
    old = results(first["sessionState"], item_result(third, 0))
    client("POST", f"{path}/results", old, status=409)


def test_states_are_sealed(client, document, session):
    path, made = session
    item = made["nextItems"]["itemIdentifiers"][0]
    state = made["sessionState"]
    section = path.split("/")[2]
    other = client("POST", f"/sections/{section}/sessions", {})["sessionState"]
    for forged in ("", "x", state[:-1], state + "x", state.swapcase(), other):
        client("POST", f"{path}/results", results(forged, item_result(item, 1)), status=422)
    client("POST", f"{path}/results", results(state, item_result(item, 1)), status=200)


def test_items_and_scores_that_are_refused(client, session):
    path, made = session
    item = made["nextItems"]["itemIdentifiers"][0]
    other = next(f"q{i}" for i in range(12) if f"q{i}" != item)
    client("POST", f"{path}/results", results(None, item_result(other, 1)), status=409)
    client("POST", f"{path}/results", results(None, item_result("nobody", 1)), status=422)
    for score in (2, -1, 0.5, "nan", "inf", "x", "", True, "9" * 400):
        client("POST", f"{path}/results", results(None, item_result(item, score)), status=422)
    for entry in (
        item_result(item, 1, outcomeVariables=[]),
        item_result(item, 1, outcomeVariables=3),
        item_result(item, 1, outcomeVariables=["SCORE"]),
        item_result(item, 1, sessionStatus="pendingSubmission"),
        item_result(3, 1),
        {"outcomeVariables": []},
    ):
        client("POST", f"{path}/results", results(None, entry), status=422)
    for body in ({}, {"assessmentResult": []}, {"assessmentResult": {"itemResult": [3]}}):
        client("POST", f"{path}/results", body, status=422)
    # Nothing was recorded; no results return the same items again.
    same = client("POST", f"{path}/results", results(None), status=200)
    assert same["nextItems"]["itemIdentifiers"] == [item]
    assert outcomes(same) == {"N_ITEMS": "0"}


@pytest.mark.slow
def test_of_several_results_of_an_item_the_latest_counts(client, session):
    path, made = session
    item = made["nextItems"]["itemIdentifiers"][0]
    late = item_result(item, 1, datestamp="2026-11-23T09:00:00Z")
    early = item_result(item, 0, datestamp="2026-11-23T10:30:00+02:00")
    client("POST", f"{path}/results", results(None, late, early), status=200)
    client("POST", f"{path}/results", results(None, item_result(item, 1)), status=200)


def test_the_dialect_of_tao(client, document):
    """Its client: metadata in Base64, prior data, `variables` with `values` and `valueString`."""
    section = client.section(document, qtiMetadata=encoded("meta"), qtiUsagedata=encoded("usage"))
    prior = {"priorData": [{"key": "initialEstimatedAbility", "value": "0.0"}]}
    made = client("POST", f"/sections/{section}/sessions", prior)
    memory = Session.begin(bank(), Config(**CONFIG))
    assert made["nextItems"]["itemIdentifiers"] == memory.asked
    score = {
        "identifier": "score",
        "variableType": "outcome",
        "values": [{"baseType": "FLOAT", "valueString": 1}],
    }
    body = {
        "assessmentResult": {
            "context": {"sourcedId": None, "sessionIdentifiers": []},
            "itemResult": [
                {"identifier": memory.asked[0], "sessionStatus": "FINAL", "variables": [score]}
            ],
        },
        "sessionState": made["sessionState"],
    }
    path = f"/sections/{section}/sessions/{made['sessionIdentifier']}/results"
    reply = client("POST", path, body, status=200)
    memory.answer(memory.asked[0], 1)
    assert reply["nextItems"]["itemIdentifiers"] == memory.asked
    # What its client reads of every variable: a list of values, each with type and value.
    for variable in reply["assessmentResult"]["testResult"]["outcomeVariables"]:
        for value in variable["value"]:
            assert set(value) == {"baseType", "value"}


@pytest.mark.slow
def test_prior_data(client, document):
    section = client.section(document)
    path = f"/sections/{section}/sessions"

    def begin(value, status=201):
        data = [{"key": "initialEstimatedAbility", "value": value}, {"key": "shoe", "value": "9"}]
        return client("POST", path, {"priorData": data}, status=status)

    able = begin("2.0")["nextItems"]["itemIdentifiers"]
    expected = Session.begin(bank(), Config(**CONFIG), prior=(2.0, 1.0)).asked
    assert able == expected
    assert able != begin("0")["nextItems"]["itemIdentifiers"]
    for wrong in ("x", "nan", "1e9", None):
        begin(wrong, status=422)


@pytest.mark.slow
def test_batches(client, document):
    """A configuration that asks several items at once: stageLength."""
    section = client.section({**document, "config": {"max_items": 6, "batch": 3}})
    made = client("POST", f"/sections/{section}/sessions")
    asked = made["nextItems"]
    assert asked["stageLength"] == len(asked["itemIdentifiers"]) == 3
    path = f"/sections/{section}/sessions/{made['sessionIdentifier']}/results"
    one = client(
        "POST",
        path,
        results(made["sessionState"], item_result(asked["itemIdentifiers"][1], 1)),
        status=200,
    )
    assert sorted(one["nextItems"]["itemIdentifiers"]) == sorted(
        set(asked["itemIdentifiers"]) - {asked["itemIdentifiers"][1]}
    )
    rest = [item_result(item, 0) for item in one["nextItems"]["itemIdentifiers"]]
    two = client("POST", path, results(one["sessionState"], *rest), status=200)
    assert two["nextItems"]["stageLength"] == 3
    assert outcomes(two)["N_ITEMS"] == "3"


@pytest.mark.slow
def test_several_categories(client, service):
    graded = ItemBank.from_thresholds(1.3, [[-1.0, 0.0, 1.0]] * 6, "graded")
    section = client.section({"bank": service.store.add_bank(graded), "config": {"max_items": 2}})
    made = client("POST", f"/sections/{section}/sessions", {})
    path = f"/sections/{section}/sessions/{made['sessionIdentifier']}/results"
    item = made["nextItems"]["itemIdentifiers"][0]
    memory = Session.begin(graded, Config(max_items=2))
    memory.answer(item, 3)
    reply = client("POST", path, results(None, item_result(item, "3.0")), status=200)
    assert float(outcomes(reply)["THETA"]) == pytest.approx(memory.estimate()["theta"])
    following = reply["nextItems"]["itemIdentifiers"][0]
    client("POST", path, results(None, item_result(following, 4)), status=422)


@pytest.mark.slow
def test_several_abilities(client, service):
    slopes = np.array([[1.2, 0.2], [0.1, 1.1], [1.0, 1.0], [0.9, 0.3]])
    two = ItemBank.from_slopes(slopes, np.zeros(4))
    config = {"max_items": 2, "criterion": "d-optimal"}
    section = client.section({"bank": service.store.add_bank(two), "config": config})
    made = client("POST", f"/sections/{section}/sessions", {})
    path = f"/sections/{section}/sessions/{made['sessionIdentifier']}/results"
    item = made["nextItems"]["itemIdentifiers"][0]
    reply = client("POST", path, results(None, item_result(item, 1)), status=200)
    assert {"THETA_1", "THETA_2", "SE_1", "SE_2"} <= set(outcomes(reply))


def test_sections_of_other_clients_do_not_exist(app, client, session):
    path, made = session
    section = "/".join(path.split("/")[:3])
    other = CatClient(app)
    other("GET", section, status=404)
    other("DELETE", section, status=404)
    other("POST", f"{section}/sessions", {}, status=404)
    item = made["nextItems"]["itemIdentifiers"][0]
    other("POST", f"{path}/results", results(None, item_result(item, 1)), status=404)
    other("DELETE", path, status=404)
    client("POST", f"{section}/sessions/s_x/results", results(None), status=404)
    client("POST", "/sections/x/sessions", {}, status=404)


def test_a_deleted_section_ends_its_sessions(client, session):
    path, made = session
    client("DELETE", "/".join(path.split("/")[:3]))
    client("POST", f"{path}/results", results(made["sessionState"]), status=404)


@pytest.mark.slow
def test_scopes(app, document):
    narrow = CatClient(app, scope=next(s for s in clients.SCOPES if s.endswith("section")))
    section = narrow.section(document)
    narrow("POST", f"/sections/{section}/sessions", {}, status=403)
    narrow.http.headers["Authorization"] = "Bearer x"
    narrow("GET", f"/sections/{section}", status=401)
    del narrow.http.headers["Authorization"]
    narrow("GET", f"/sections/{section}", status=401)


@pytest.mark.slow
def test_personal_data_are_not_stored(client, service, document):
    section = client.section(document)
    sent = {
        "demographics": encoded({"birthDate": "1815-12-10"}),
        "personalNeedsAndPreferences": encoded("needs"),
    }
    client("POST", f"/sections/{section}/sessions", sent)
    with service.database.reading():
        text = " ".join(
            str(tuple(row))
            for name in service.database.tables()
            for row in service.database.execute(f"SELECT * FROM {name}").fetchall()
        )
    assert sent["demographics"] not in text
    assert sent["personalNeedsAndPreferences"] not in text

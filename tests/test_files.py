"""Files are written whole or not at all."""

import os

import pytest

from irtcat import InputError
from irtcat._files import check_target, replacing


def test_the_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_failure_leaves_nothing(tmp_path):
    def write():
        with replacing(tmp_path / "a.csv") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_a_sentence(tmp_path):
    def write():
        with replacing(tmp_path / "a.csv"):
            raise OSError(28, "No space left on device")

    with pytest.raises(
        InputError, match=r"cannot be written \(No space left on device\)\."
    ) as caught:
        write()
    assert str(tmp_path / "a.csv") in str(caught.value)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    with replacing(tmp_path / "link.csv") as file:
        file.write(b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"new"


def test_only_files_in_folders_that_are_there(tmp_path):
    for bad in (tmp_path, tmp_path / "missing" / "a.csv", os.devnull):
        with pytest.raises(InputError):
            check_target(bad)

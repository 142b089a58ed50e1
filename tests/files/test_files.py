"""Files are written whole or not at all."""

import os
import stat
import subprocess
import sys

import pytest

from irtcat import EM, InputError, ItemBank, Responses, fit, report
from irtcat._files.csv import write_csv
from irtcat._files.folders import OutputFolder
from irtcat._files.writing import check_target, lock, replacing


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


@pytest.mark.parametrize("name", ["a\0b.npz", "\ud800.npz", "x" * 300 + ".npz", "", None])
def test_names_that_no_file_can_have(name, tmp_path, monkeypatch):
    """Every writer says so in a sentence."""
    monkeypatch.chdir(tmp_path)
    responses = Responses.from_array([[0, 1], [1, 0]])
    bank = ItemBank.from_parameters(b=[0.0, 1.0])
    for write in (
        check_target,
        responses.save,
        bank.save,
        lambda path: fit(responses, solver=EM(checkpoint=path or "")),
        lambda path: OutputFolder(path, "scale"),
        lambda path: report.write(bank, path),
        lambda path: write_csv(bank.items, path),
    ):
        with pytest.raises(InputError):
            write(name)
    assert os.listdir() == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_mode_is_kept_from_the_first_byte(tmp_path, mode):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as file:
        assert stat.S_IMODE(os.stat(file.name).st_mode) == mode
        file.write(b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_the_owner_is_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    with replacing(path) as file:
        file.write(b"new")
    assert (path.read_bytes(), path.stat().st_uid, path.stat().st_gid) == (b"new", 1234, 2345)


def test_a_file_of_another_owner_is_refused(tmp_path, monkeypatch):
    """Where its owner cannot be kept, and nothing has been written yet."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1, raising=False)
    with pytest.raises(InputError, match="belongs to another user"), replacing(path):
        pass
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_read_only_file_is_refused(tmp_path):
    """By its mode: root may write to it all the same."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    path.chmod(0o444)
    for attempt in (check_target, lambda path: replacing(path).__enter__()):
        with pytest.raises(InputError, match=r"a\.csv: this file is read-only"):
            attempt(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_everything_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def note_replace(*names):
        calls.append("replace")
        replace(*names)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    with replacing(tmp_path / "a.csv") as file:
        file.write(b"new")
    assert calls == ["file", "replace", "folder"]


def test_a_name_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("a" * 251 + ".csv")
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


KILLED = """
import os, signal, sys
from irtcat._files.writing import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_at_the_next_save(tmp_path):
    pytest.importorskip("fcntl")
    path, other = tmp_path / "a.csv", tmp_path / ".irtcat-notes.tmp"
    other.write_bytes(b"mine")
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert len(os.listdir(tmp_path)) == 2
    with replacing(tmp_path / "b.csv") as file:
        file.write(b"other target")
    assert len(os.listdir(tmp_path)) == 3
    with replacing(path) as file:
        file.write(b"new")
    assert sorted(os.listdir(tmp_path)) == [".irtcat-notes.tmp", "a.csv", "b.csv"]
    assert path.read_bytes() == b"new"


def test_two_that_save_at_once_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "a.csv"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_lock_is_held_until_the_file_is_closed(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "lock"
    path.touch()
    with path.open("rb") as first, path.open("rb") as second:
        assert lock(first)
        assert not lock(second)
    with path.open("rb") as third:
        assert lock(third)

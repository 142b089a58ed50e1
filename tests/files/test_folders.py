"""Folders of results: only what the manifest lists is replaced or removed."""

import json
import os

import pytest

from irtcat import InputError, demo
from irtcat._files.folders import MANIFEST, OutputFolder


def listed(folder):
    return json.loads((folder / MANIFEST).read_text())["files"]


def test_files_are_in_the_manifest_before_they_are_written(tmp_path):
    folder = OutputFolder(tmp_path / "new" / "out", "demo")
    assert not (tmp_path / "new").exists()
    path = folder.file("a.csv", "b.csv")
    assert listed(folder.path) == ["a.csv", "b.csv"]
    assert not path.exists()
    again = OutputFolder(folder.path, "demo")
    assert (again.files, again.others(), again.about) == (["a.csv", "b.csv"], [], {})
    path.write_text("1")
    assert again.file("a.csv") == path
    with pytest.raises(InputError, match="holds the results of irtcat 'demo', not of scale"):
        OutputFolder(folder.path, "scale")


def test_files_of_somebody_else_are_refused_before_anything_is_written(tmp_path):
    (tmp_path / "b.csv").write_text("mine")
    folder = OutputFolder(tmp_path, "demo")
    assert folder.others() == ["b.csv"]
    with pytest.raises(InputError, match=r"b\.csv: this is not a file that irtcat wrote"):
        folder.add(["a.csv", "b.csv"])
    assert os.listdir(tmp_path) == ["b.csv"]
    (tmp_path / "link.csv").symlink_to(tmp_path / "b.csv")
    with pytest.raises(InputError, match="this is a link"):
        folder.add(["link.csv"])


def test_files_take_their_names_together(tmp_path):
    out = tmp_path / "deep" / "out"
    folder = OutputFolder(out, "simulate")

    def write(fail):
        with folder.writing(["a.csv", "b.csv"]) as files:
            files["a.csv"].write(b"a")
            if fail:
                raise ZeroDivisionError
            files["b.csv"].write(b"b")

    with pytest.raises(ZeroDivisionError):
        write(fail=True)
    assert os.listdir(tmp_path) == []
    write(fail=False)
    assert sorted(os.listdir(out)) == ["a.csv", "b.csv", MANIFEST]
    assert listed(out) == ["a.csv", "b.csv"]


def test_folders_get_a_new_name_where_one_is_taken(tmp_path):
    (tmp_path / "logs").mkdir()
    folder = OutputFolder(tmp_path, "evaluate")
    folder.make({"model": "x"})
    assert folder.folder("logs") == folder.folder("logs") == tmp_path / "logs-2"
    (tmp_path / "logs-2").mkdir()
    folder.file("a.csv").write_text("1")
    folder.clear()
    assert not (tmp_path / "a.csv").exists()
    assert folder.folder("logs") == tmp_path / "logs-3"  # the other is of another run
    assert (tmp_path / "logs-2").is_dir()


def test_the_demo_replaces_no_file_of_somebody_else(tmp_path):
    (tmp_path / "items.csv").write_text("mine")
    with pytest.raises(InputError, match=r"items\.csv: this is not a file that irtcat wrote"):
        demo.run(tmp_path)
    assert os.listdir(tmp_path) == ["items.csv"]

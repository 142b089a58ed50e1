"""Responses written as Every Eval Ever are read back as they were."""

import hashlib
import json

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat.io import read_logs, write_every_eval_ever
from irtcat.responses import Responses


@pytest.mark.slow
def test_logs_written_and_read_again(logs, tmp_path):
    own = read_logs(logs / "lm_eval").responses
    files = write_every_eval_ever(own, tmp_path, metric="acc", timestamp=1795220185.0)
    assert len(files) == 2 * 2 * 6
    again = read_logs(tmp_path)
    assert not again.report.skipped
    found = again.responses.subset(subjects=own.subject_ids, items=own.item_ids)
    np.testing.assert_array_equal(found.values, own.values)
    for name in ("task", "sample", "hash", "text", "target"):
        assert found.items[name].tolist() == own.items[name].tolist()
    assert [path.read_bytes() for path in files] == [
        path.read_bytes()
        for path in write_every_eval_ever(own, tmp_path, metric="acc", timestamp=1795220185.0)
    ]


def test_gaps_fractions_and_odd_names(tmp_path):
    values = np.array([[0.25, np.nan, 1.0], [np.nan, np.nan, np.nan], [0.0, 0.5, 0.1]])
    own = Responses.from_array(
        values, subject_ids=["a/b:c", "none", "../x"], item_ids=["é 1", "q/2", "3"]
    )
    files = write_every_eval_ever(own, tmp_path, task="my task?")
    assert len(files) == 4  # nothing for the subject without a response
    assert all(tmp_path in path.resolve().parents for path in files)
    found = read_logs(tmp_path).responses
    assert sorted(found.subject_ids) == ["../x", "a/b:c"]
    found = found.subset(
        subjects=["a/b:c", "../x"], items=[f"my task?/{item}" for item in own.item_ids]
    )
    np.testing.assert_array_equal(found.to_numpy(), own.to_numpy()[[0, 2]])
    about = json.loads(files[0].read_text())
    assert about["evaluation_results"][0]["score_details"]["score"] == 0.625
    assert about["detailed_evaluation_results"]["total_rows"] == 2
    checksum = about["detailed_evaluation_results"]["checksum"]
    assert checksum == hashlib.sha256(files[1].read_bytes()).hexdigest()


def test_equal_documents_stay_apart(tmp_path):
    items = Responses.from_array([[1, 0]], item_ids=["t/x", "t/y"]).items
    items = items.assign(task="t", hash="ab" * 32, sample=["3", "7"])
    own = Responses.from_array([[1, 0]], subject_ids=["m"], item_ids=["t/x", "t/y"], items=items)
    write_every_eval_ever(own, tmp_path)
    found = read_logs(tmp_path).responses
    assert found.item_ids.tolist() == ["t/" + "ab" * 8, "t/" + "ab" * 8 + "#2"]
    assert found.values.tolist() == [[1, 0]]


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="`responses` argument must be right/wrong or fractions"):
        write_every_eval_ever(Responses.from_array([[1, 2, 3]]), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        write_every_eval_ever(Responses.from_array([[1, 0]]), tmp_path / "file")

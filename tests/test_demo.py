"""The demo's job, on a reduced setting."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, datasets, demo, leaderboard


@pytest.fixture(scope="module")
def setting():
    crowd = datasets.load("digits_crowd")
    rng = np.random.default_rng(0)
    small = crowd.subset(
        np.sort(rng.choice(crowd.n_subjects, 80, replace=False)),
        np.sort(rng.choice(crowd.n_items, 40, replace=False)),
    )
    return {
        "strategies": ("random", "fisher"),
        "n_items": (10, 5),
        "seeds": (3,),
        "responses": small,
    }


@pytest.fixture(scope="module")
def result(setting, tmp_path_factory):
    said = []
    folder = tmp_path_factory.mktemp("demo") / "new" / "out"
    found = demo.run(folder, progress=lambda *step: said.append(step), **setting)
    assert said[-1][:2] == (4, 4)
    return found


@pytest.mark.slow
def test_all_files_are_written(result):
    assert all(path.stat().st_size > 100 for path in result.files.values())
    folder = result.files["bank"].parent
    assert sorted(folder.iterdir()) == sorted(result.files.values())


def test_the_bank_is_calibrated_on_three_quarters(result, setting):
    data = setting["responses"].without_duplicate_subjects()
    calibration, held_out = leaderboard.split_subjects(data, "random", 3, 0.25)
    assert result.fit.responses.subject_ids.tolist() == calibration.subject_ids.tolist()
    assert result.fit.n_subjects + held_out.n_subjects == data.n_subjects
    saved = ItemBank.load(result.files["bank"])
    pd.testing.assert_frame_equal(saved.to_frame(), result.fit.bank.to_frame())


def test_the_table_is_the_leaderboards(result):
    table = result.to_frame()
    assert table["strategy"].tolist() == ["random", "random", "fisher", "fisher"]
    assert table["n_items"].tolist() == [10, 5, 10, 5]
    long = result.leaderboard.to_frame()
    for row in table.itertuples():
        for estimator in ("mean", "irt", "auto"):
            same = (long["strategy"] == row.strategy) & (long["n_items"] == row.n_items)
            wanted = long[same & (long["estimator"] == estimator)].iloc[0]
            for metric in ("kendall", "mae"):
                assert getattr(row, f"{estimator}_{metric}") == wanted[metric]
    pd.testing.assert_frame_equal(pd.read_csv(result.files["summary"]), table)


def test_held_out_subjects_stand_beside_their_full_scores(result, setting):
    table = pd.read_csv(result.files["held_out"], index_col="subject", keep_default_na=False)
    data = setting["responses"].subset(subjects=table.index.tolist())
    np.testing.assert_allclose(table["full_score"], data.to_numpy().mean(axis=1))
    assert (table["full_rank"].between(1, result.fit.n_subjects + 1)).all()
    assert (table["score"].between(0, 1)).all()
    assert table["n_items"].unique().tolist() == [5]


@pytest.mark.slow
def test_again_gives_the_same_bytes(result, setting, tmp_path):
    again = demo.run(tmp_path, **setting)
    for name, path in again.files.items():
        assert path.read_bytes() == result.files[name].read_bytes(), name


def test_a_file_in_the_folders_place_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="out"):
        demo.run(tmp_path / "out")
    with pytest.raises(InputError, match="`responses` argument must be Responses"):
        demo.run(tmp_path / "new", pd.DataFrame({"q1": [0, 1]}))


def test_without_matplotlib_there_are_no_figures(setting, tmp_path, monkeypatch):
    monkeypatch.setattr("irtcat.plot.can_draw", lambda: False)
    files = demo.run(tmp_path, **setting).files
    assert not files.keys() & set(demo.FIGURES)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in files.values()}

"""An interrupted fit goes on to the same answer, and only where it belongs."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from irtcat import EM, InputError, ItemBank, fit
from irtcat.fitting.em import checkpoint as _checkpoint

SETTINGS = {"precision": "float64", "tolerance": 1e-6}


def data(seed=0, shape=(240, 30)):
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(a=rng.uniform(0.7, 1.8, shape[1]), b=rng.normal(size=shape[1]))
    return bank.simulate(rng.normal(size=shape[0]), seed=seed + 1)


def run(data, model="2pl", progress=None, positive=False, **settings):
    solver = EM(**{**SETTINGS, **settings})
    return fit(data, model, solver, standard_errors="none", positive=positive, progress=progress)


@pytest.fixture(scope="module")
def responses():
    return data()


@pytest.fixture(scope="module")
def whole(responses):
    return run(responses)


class Stop:
    """Ctrl-C in a given iteration."""

    def __init__(self, at):
        self.at = at

    def __call__(self, iteration, value, step):
        if iteration == self.at:
            raise KeyboardInterrupt


def same(ours, theirs):
    assert ours.converged
    assert ours.n_iterations == theirs.n_iterations
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-13)
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), rtol=1e-12)
    np.testing.assert_allclose(ours.trace, theirs.trace, rtol=1e-13)


@pytest.mark.slow
def test_interrupted_anywhere_the_answer_is_the_same(tmp_path, responses, whole):
    """Ctrl-C after every second iteration; what follows is bit by bit what it was."""
    file = tmp_path / "state.npz"
    assert whole.n_iterations >= 5
    for k in range(1, whole.n_iterations, 2):
        with pytest.raises(KeyboardInterrupt):
            run(responses, progress=Stop(k), checkpoint=file, resume=True)
        assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]
    same(run(responses, checkpoint=file, resume=True), whole)


@pytest.mark.slow
def test_a_finished_fit_gives_its_answer_again(tmp_path, responses, whole):
    file = tmp_path / "state.npz"
    same(run(responses, checkpoint=file), whole)
    taken = []
    again = run(responses, progress=lambda *a: taken.append(a), checkpoint=file, resume=True)
    same(again, whole)
    assert len(taken) == 1
    same(run(responses, checkpoint=file), whole)  # and may be overwritten


def test_more_iterations_another_time(tmp_path, responses, whole):
    file = tmp_path / "state.npz"
    first = run(responses, checkpoint=file, max_iterations=3)
    assert not first.converged
    assert first.n_iterations == 3
    with pytest.raises(InputError, match="already taken 3 iterations"):
        run(responses, checkpoint=file, resume=True, max_iterations=3)
    same(run(responses, checkpoint=file, resume=True), whole)


@pytest.mark.slow
def test_retreats_are_remembered(tmp_path):
    """With asymptotes and steep items the guard takes steps back; that state is kept as well."""
    r = data(3, (60, 26))
    settings = {**SETTINGS, "tolerance": 1e-3}
    accepted = []
    plain = run(r, "3pl", progress=lambda i, *_: accepted.append(i), **settings)
    assert len(accepted) < plain.n_iterations  # some were not
    after = [i for i, j in itertools.pairwise(accepted) if j > i + 1]
    file = tmp_path / "state.npz"
    for k in (accepted[1], after[0], accepted[-2]):
        with pytest.raises(KeyboardInterrupt):
            run(r, "3pl", progress=Stop(k), checkpoint=file, resume=True, **settings)
    same(run(r, "3pl", checkpoint=file, resume=True, **settings), plain)


@pytest.fixture
def interrupted(tmp_path, responses):
    file = tmp_path / "state.npz"
    with pytest.raises(KeyboardInterrupt):
        run(responses, progress=Stop(2), checkpoint=file)
    return file


def test_what_does_not_belong_is_refused(interrupted, responses, tmp_path):
    go_on = {"checkpoint": interrupted, "resume": True}
    with pytest.raises(InputError, match=r"interrupted fit \(after 2 iterations\).*resume=True"):
        run(responses, checkpoint=interrupted)
    with pytest.raises(InputError, match="of other responses"):
        run(data(5), **go_on)
    with pytest.raises(InputError, match="model was 2pl, is now 1pl"):
        run(responses, "1pl", **go_on)
    with pytest.raises(InputError, match=r"tolerance was 1e-06, is now 0\.1"):
        run(responses, **{**go_on, "tolerance": 0.1})
    with pytest.raises(InputError, match="other priors"):
        run(responses, expand=True, positive=True, **go_on)
    other = tmp_path / "other.npz"
    other.write_bytes(interrupted.read_bytes()[:500])
    with pytest.raises(InputError, match="not a checkpoint"):
        run(responses, **{**go_on, "checkpoint": other})
    with pytest.raises(InputError, match="`resume` argument"):
        fit(responses, solver=EM(resume=True))
    with pytest.raises(InputError, match="does not exist"):
        fit(responses, solver=EM(checkpoint=tmp_path / "no" / "x.npz"))
    with pytest.raises(InputError, match="`checkpoint` argument"):
        fit(responses, solver=EM(checkpoint=3))


@pytest.mark.slow
def test_writing_is_rare(tmp_path, responses, whole, monkeypatch):
    """A quick fit writes once, at its end."""
    written = []
    monkeypatch.setattr(
        _checkpoint.Checkpoint, "_write", lambda self, s, finished: written.append(finished)
    )
    run(responses, checkpoint=tmp_path / "a.npz")
    assert written == [True]
    # After every iteration, if that long has gone by: what a killed process leaves.
    written.clear()
    monkeypatch.setattr(_checkpoint, "EVERY", 0.0)
    run(responses, checkpoint=tmp_path / "b.npz")
    assert written == [False] * (whole.n_iterations + 1) + [True]


KILLED = """
    import os, signal, sys
    import irtcat
    from irtcat.fitting.em import checkpoint as _checkpoint

    _checkpoint.EVERY = 0.0

    def die(iteration, value, step):
        if iteration == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    r = irtcat.read_responses(sys.argv[1])
    solver = irtcat.EM(precision="float64", tolerance=1e-6, checkpoint=sys.argv[2])
    irtcat.fit(r, solver=solver, standard_errors="none", progress=die)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_its_last_state(tmp_path, responses, whole):
    file, matrix = tmp_path / "state.npz", tmp_path / "data.npz"
    responses.save(matrix)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(matrix), str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    seen = []
    again = run(responses, progress=lambda i, *a: seen.append(i), checkpoint=file, resume=True)
    assert seen[0] == 4
    same(again, whole)


def test_an_edited_checkpoint_is_refused(interrupted, responses):
    go_on = {"checkpoint": interrupted, "resume": True}
    with np.load(interrupted) as file:
        arrays = {name: file[name] for name in file.files}
    for name in ("array_0", "meta"):
        changed = (
            arrays[name] + 1.0
            if name == "array_0"
            else np.array(str(arrays[name]).replace('"iteration": 2', '"iteration": -2'))
        )
        np.savez(interrupted, **{**arrays, name: changed})
        with pytest.raises(InputError, match="changed or damaged"):
            run(responses, **go_on)
    for present in ({"digest": arrays["digest"]}, {**arrays, "extra": np.zeros(3)}):
        np.savez(interrupted, **present)
        with pytest.raises(InputError, match="not a checkpoint"):
            run(responses, **go_on)

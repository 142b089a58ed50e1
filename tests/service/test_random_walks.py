"""Random takers and proctors: whatever they do, the log explains the state, and nothing is lost."""

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat.service.assembly import open_service
from irtcat.service.attempts import people, proctoring, taking
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.attempts.results import attempt_result
from irtcat.service.operations.background import end_due
from tests.service.helpers import HandClock, publish

STEPS = 150


def media_url(name):
    return name


def fields(progress):
    """All that an attempt's log determines."""
    return {name: value for name, value in vars(progress).items() if name != "definition"}


class Walk:
    """Actions drawn at random on one attempt, by two workers."""

    def __init__(self, workers, test, clock, rng):
        self.workers, self.clock, self.rng = workers, clock, rng
        options = [[], ["pause"], ["extra_time_50", "pause"]]
        chosen = options[rng.integers(3)]
        self.ticket = people.issue_ticket(workers[0], test, actor="x", accommodations=chosen)
        started = taking.begin(workers[0], self.ticket.token)
        self.attempt, self.device = started.attempt, started.secret
        self.answered = {}

    @property
    def worker(self):
        return self.workers[self.rng.integers(len(self.workers))]

    def take(self, action, **options):
        function = getattr(taking, action)
        return function(self.worker, self.attempt, self.device, media_url, **options)

    def answer(self):
        view = self.take("current")
        number = view["item"]["number"] if view["item"] else 1
        if self.rng.random() < 0.1:
            number = int(self.rng.integers(1, 12))
        response = [f"c{self.rng.integers(1, 5)}", None, "c9", ["c1"]][
            self.rng.choice(4, p=[0.85, 0.05, 0.05, 0.05])
        ]
        request = f"r{self.rng.integers(1000)}"
        self.take("answer", number=number, response=response, request=request)
        if self.rng.random() < 0.2:  # sent twice
            self.take("answer", number=number, response=response, request=request)

    def step(self):
        reason = {"actor": "account:x", "reason": "for a test"}
        actions = {
            "answer": (30, self.answer),
            "current": (5, lambda: self.take("current")),
            "proceed": (6, lambda: self.take("proceed")),
            "go": (5, lambda: self.take("go", place=int(self.rng.integers(1, 5)))),
            "list": (2, lambda: self.take("go", place=None)),
            "flag": (
                3,
                lambda: self.take(
                    "flag", number=int(self.rng.integers(1, 9)), flagged=bool(self.rng.integers(2))
                ),
            ),
            "rest": (1, lambda: self.take("pause")),
            "return": (3, lambda: self.take("resume")),
            "wait": (6, lambda: self.clock.move(float(self.rng.exponential(20)))),
            "pause": (2, lambda: proctoring.pause(self.worker, self.attempt, **reason)),
            "resume": (3, lambda: proctoring.resume(self.worker, self.attempt, actor="x")),
            "extend": (
                1,
                lambda: proctoring.extend(self.worker, self.attempt, seconds=30, **reason),
            ),
            "finish": (0.5, lambda: proctoring.finish(self.worker, self.attempt, **reason)),
            "sweep": (1, lambda: end_due(self.worker)),
            "void": (0.5, lambda: proctoring.void(self.worker, self.attempt, **reason)),
            "reopen": (
                2,
                lambda: proctoring.reopen(self.worker, self.attempt, seconds=100, **reason),
            ),
            "note": (1, lambda: proctoring.note(self.worker, self.attempt, actor="x", text="n")),
        }
        weights = np.array([weight for weight, _ in actions.values()], float)
        name = list(actions)[self.rng.choice(len(actions), p=weights / weights.sum())]
        try:
            actions[name][1]()
        except InputError:
            return  # refused: `check` sees that nothing changed


def check(service, walk, before):
    """The log explains the state; what was answered stays."""
    it = attempt_of(service, walk.attempt)
    progress = it.progress
    for name, at in progress.sessions.items():
        session = service.store.resume(at)
        codes = {item: int(code) for item, code in session.to_frame()["answer"].items()}
        of_section = {n: a.code for n, a in progress.answers.items() if a.section == name}
        assert codes == of_section
        if name == progress.section and progress.status == "running":
            assert progress.current == session.asked[0]
    assert progress.used_test >= 0
    for name, answer in before.items():
        if answer.section != 4:  # the section that is reviewed
            assert progress.answers[name] == answer
        else:
            assert name in progress.answers
    for worker in walk.workers:
        loaded = worker.attempts._values.get(walk.attempt)
        if loaded is not None and loaded.value is not None:
            with worker.database.writing():
                loaded.value.catch_up()
            assert fields(loaded.value.progress) == fields(progress)
    return dict(progress.answers)


@pytest.mark.slow_cases("sqlite-0", "sqlite-2", "sqlite-3")
@pytest.mark.parametrize("seed", range(4))
def test_the_log_explains_the_state(address, seed):
    rng, clock = np.random.default_rng(seed), HandClock()
    with (
        open_service(address, create=True, clock=clock) as one,
        open_service(address, clock=clock) as two,
    ):
        wander([one, two], clock, rng)


def wander(workers, clock, rng):
    test = publish(workers[0], time_limit="20 min")
    walk, answers = Walk(workers, test, clock, rng), {}
    for number in range(STEPS):
        walk.step()
        if number % 10 == 0:
            answers = check(workers[number % 2], walk, answers)
    answers = check(workers[0], walk, answers)
    assert answers
    result = attempt_result(attempt_of(workers[0], walk.attempt))
    assert result is not None
    assert np.isfinite(result.theta)
    workers[0].store.check()

"""Tasks for the tests of executors, in a module that a process is quick to import."""

import os
import signal
import time

import numpy as np


def scaled(shared, task):
    """The product, by array arithmetic."""
    return float(shared["factor"]) * np.asarray(task, float)


def where(shared, task):
    """The process that computes, after a moment, so that each gets some."""
    time.sleep(0.02)
    return os.getpid()


def fails_at_three(shared, task):
    if task == 3:
        raise ZeroDivisionError("three")
    return task


class OddError(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, one, other):
        super().__init__("odd")


def fails_oddly(shared, task):
    raise OddError(1, 2)


def killed_at_three(shared, task):
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def nearest(X_train, y_train, X, seed):
    """A learner: labels of the nearest example."""
    distance = ((X[:, None] - X_train[None]) ** 2).sum(axis=2)
    return y_train[distance.argmin(axis=1)]


def slow_nearest(X_train, y_train, X, seed):
    """The same, slowly enough for a worker to be killed on the way."""
    time.sleep(0.01)
    return nearest(X_train, y_train, X, seed)


def fails(X_train, y_train, X, seed):
    """A learner that fails."""
    raise ZeroDivisionError("no luck")

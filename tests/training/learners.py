"""Learners for the tests of crowds, in a module that a process is quick to import."""


def nearest(X_train, y_train, X, seed):
    """Labels of the nearest example: it knows by heart what it was trained on."""
    distance = ((X[:, None] - X_train[None]) ** 2).sum(axis=2)
    return y_train[distance.argmin(axis=1)]


def fails(X_train, y_train, X, seed):
    raise ZeroDivisionError("no luck")

"""Readers with a fault each, for the fuzz harness to find."""

import os

from irtcat import InputError

SOUND = "one\ntwo\n"
kept = []


class Planted:
    """A row of the table of readers."""

    weight = 1.0

    def __init__(self, read, truth=None):
        self.read, self.truth = read, truth

    @staticmethod
    def seeds(folder):
        """One file of text."""
        path = folder / "0" / "seed.txt"
        path.parent.mkdir()
        path.write_text(SOUND)
        return [path]


def text(path):
    return path.read_bytes().decode("latin-1")


def refuses(path):
    if text(path) != SOUND:
        raise InputError(f"{path}: not this.")
    return text(path)


def raises(path):
    raise KeyError("id")


def hangs(path):
    while text(path) != SOUND:
        pass


def allocates(path):
    if text(path) != SOUND:
        kept.append(bytearray(b"1") * 150_000_000)


def changes(path):
    return text(path)[:3]


def dies(path):
    if text(path) != SOUND:
        os._exit(9)


READERS = {
    "refuses": Planted(refuses, "seed"),
    "accepts": Planted(text, lambda path: [text(path)]),
    "raises": Planted(raises),
    "changes": Planted(changes, lambda path: [text(path)]),
    "edits": Planted(text, "seed"),
    "hangs": Planted(hangs),
    "dies": Planted(dies),
    "allocates": Planted(allocates),
}


def quiet():
    """Nothing to silence."""

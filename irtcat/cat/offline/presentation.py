"""What a page shows of each item: its prompt, its choices, and the response that each one is."""

from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat.bank import ItemBank
from irtcat.models import item_categories

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Columns of choices, as in a table of items of the service."""

SEPARATOR = "|"
"""Between the entries of a cell that holds several, as in a table of items of the service."""

BINARY = ("Wrong", "Right")
"""Choices of right/wrong items without texts, for somebody who judges the answers."""


def questions_of(bank: ItemBank, items: pd.DataFrame | None = None) -> dict[str, Any]:
    """Prompt and choices of each item, by its id.

    The columns are those of a table of items of the service: ``prompt``, the choices ``A``, ``B``,
    ..., and ``key`` (one letter) or ``points`` (``A=2|B=1``); texts are plain. An item with as many
    choices as categories needs neither: its choices are the categories from the lowest on. An item
    without a prompt shows its id, one without choices a choice for each category.

    Args:
        bank: the items.
        items: the table, by item id; by default the bank's metadata.

    Raises:
        InputError: naming the item whose choices have no response.
    """
    table = bank.items.set_axis(bank.item_ids) if items is None else items
    rows = {str(name): row for name, row in table.to_dict("index").items()}
    n_categories = item_categories(bank.model)
    out = {}
    for name, n in zip(map(str, bank.item_ids), n_categories.tolist(), strict=True):
        cells = {str(key): _text(value) for key, value in rows.get(name, {}).items()}
        letters = [letter for letter in LETTERS if cells.get(letter)]
        if letters:
            codes = _codes(name, letters, cells, n)
            choices = [(cells[letter], codes[letter]) for letter in letters]
        elif n == 2:
            choices = [(label, code) for code, label in enumerate(BINARY)]
        else:
            choices = [(str(bank.first_code + code), code) for code in range(n)]
        out[name] = {
            "prompt": cells.get("prompt") or name,
            "choices": [
                {"label": label, "response": bank.first_code + code} for label, code in choices
            ],
        }
    return out


def _text(value: Any) -> str:
    """A cell as text; empty where it is missing."""
    return "" if value is None or (isinstance(value, float) and value != value) else str(value)


def _codes(name: str, letters: list[str], cells: dict[str, str], n: int) -> dict[str, int]:
    """The category of each choice."""
    entries = [entry.strip() for entry in (cells.get("points") or "").split(SEPARATOR)]
    key = (cells.get("key") or "").strip()
    if entries != [""]:
        points = dict.fromkeys(letters, 0)
        for entry in entries:
            letter, _, number = (word.strip() for word in entry.partition("="))
            if letter not in points or not number.isdecimal() or int(number) >= n:
                must = f"points as A=1 for its choices, whole numbers from 0 to {n - 1}"
                raise InputError(f"Item {shorten(name)}: expected {must}. Got {shorten(entry)}.")
            points[letter] = int(number)
        return points
    if key and n == 2:
        if key not in letters:
            must = f"one of its choices ({', '.join(letters)}) as key"
            raise InputError(f"Item {shorten(name)}: expected {must}. Got {shorten(key)}.")
        return {letter: int(letter == key) for letter in letters}
    if len(letters) != n:
        must = f"a key or points, or as many choices as categories ({n})"
        raise InputError(f"Item {shorten(name)}: expected {must}. Got {len(letters)} choices.")
    return {letter: code for code, letter in enumerate(letters)}

"""What functions need of a bank: they name it where they read the argument, and one place refuses.

bank = as_bank(bank, needs=("one ability", "categories"), purpose="form assembly")
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from irtcat._common.checks import argument_error
from irtcat.models import ItemModel

Row = TypeVar("Row")


class Need(NamedTuple):
    """Something that a function needs of the items.

    Attributes:
        must: what the bank must be, in messages.
        is_met: whether items meet it.
        got: what other items are, in messages.
    """

    must: str
    is_met: Callable[[ItemModel], bool]
    got: Callable[[ItemModel], str] = lambda model: f"a {model.key} bank"


NEEDS = {
    "one ability": Need(
        "of one ability", lambda model: model.dims == 1, lambda model: f"{model.dims} ({model.key})"
    ),
    "several abilities": Need("of several abilities", lambda model: model.dims > 1),
    "categories": Need("of items with categories", lambda model: model.has_categories),
    "right/wrong": Need(
        "of right/wrong items", lambda model: model.has_categories and not model.is_polytomous
    ),
    "slope and intercept": Need(
        "of one of rasch, 1pl, 2pl and binomial, whose only parameters are slope and intercept",
        lambda model: not model.is_polytomous and set(model.parameters) <= {"slope", "intercept"},
    ),
}
"""What a function can need, by name; to add one, add a row."""


def meets(model: ItemModel, needs: Sequence[str]) -> bool:
    """Whether items meet all needs, which are names of `NEEDS`."""
    return all(NEEDS[need].is_met(model) for need in needs)


def row_for(model: ItemModel, rows: Mapping[str, Row]) -> Row:
    """The first of several rows, by what they need, whose need the items meet."""
    return next(row for need, row in rows.items() if meets(model, [need]))


def check_needs(
    model: ItemModel, needs: Sequence[str], purpose: str = "", name: str = "bank"
) -> None:
    """Raise unless items meet all needs.

    Args:
        model: the items.
        needs: names of `NEEDS`.
        purpose: what needs them, for the message.
        name: the argument's name, for the message.

    Raises:
        InputError: for the first need that they do not meet.
    """
    for need in map(NEEDS.__getitem__, needs):
        if not need.is_met(model):
            must = f"{need.must} for {purpose}" if purpose else need.must
            raise argument_error(name, must, need.got(model))

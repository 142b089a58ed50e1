"""Responses matched with a bank: the items that both have, in the bank's codes."""

from dataclasses import replace

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief
from irtcat.bank import ItemBank
from irtcat.models import item_categories
from irtcat.responses import Responses


def match(bank: ItemBank, responses: Responses) -> tuple[ItemBank, Responses]:
    """Bank and responses restricted to the items they share, in the bank's order.

    Predicted items are replaced by their expected curves.

    Raises:
        InputError: when they share no item, or the responses do not fit the bank's model.
    """
    shared = pd.Index(bank.item_ids).isin(pd.Index(responses.item_ids))
    if not shared.any():
        raise argument_error(
            "responses",
            "answers to items of the bank",
            responses.item_ids,
            f"The bank's items are {bank.item_ids[:3].tolist()} ...",
        )
    bank = (bank if shared.all() else bank.subset(shared)).expected_curves()
    if not np.array_equal(bank.item_ids, np.asarray(responses.item_ids, dtype=str)):
        responses = responses.subset(items=bank.item_ids)
    return bank, _in_codes_of(bank, responses)


def _in_codes_of(bank: ItemBank, responses: Responses) -> Responses:
    """The responses with categories numbered as in the bank, checked against each item's number."""
    n_categories = bank.model.n_categories
    # Graded items may have two categories among responses that have more.
    right_wrong = n_categories == 2 and (
        responses.n_categories == 2 or not bank.model.is_polytomous
    )
    if right_wrong or responses.is_fractional:
        if responses.n_categories != n_categories:
            raise argument_error(
                "responses",
                f"of {n_categories} categories, as a {bank.model.key} bank needs",
                "fractions" if responses.is_fractional else f"{responses.n_categories} categories",
            )
        return responses
    codes = bank.codes
    if not codes:
        if responses.n_categories != n_categories and responses.codes[0] != 0:
            must = f"in declared codes, since they have fewer categories than the {n_categories}"
            advice = "Pass codes= to Responses.from_array."
            got = f"codes {responses.codes[0]} to {responses.codes[-1]}"
            raise argument_error("responses", f"{must} of the bank", got, advice)
        codes = (responses.codes[0], responses.codes[0] + n_categories - 1)
    shift = responses.codes[0] - codes[0]
    n_codes = item_categories(bank.model)
    observed = responses.observed
    values = responses.values.astype(int) + shift
    wrong = observed & ((values < 0) | (values >= n_codes))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        highest = codes[0] + n_codes[column] - 1
        must = f"{codes[0]} to {highest} for item {brief(bank.item_ids[column])}"
        subject = responses.subject_ids[row]
        advice = f"It is subject {brief(subject)}'s; the item was calibrated with no other codes."
        raise argument_error("responses", must, int(values[row, column]) + codes[0], advice)
    if shift == 0:
        return responses
    return replace(
        responses,
        values=np.where(observed, values, -1).astype(np.int8),
        n_categories=n_categories,
        codes=tuple(range(codes[0], codes[0] + n_categories)),
    )

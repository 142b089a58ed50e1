"""Recalibration: new parameters of some items, on the scale of the other items of their test."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_count
from irtcat._common.types import IntArray
from irtcat.bank import STATES, ItemBank
from irtcat.cat import pretest_of
from irtcat.fitting import fit
from irtcat.models import column_names, item_categories, item_models
from irtcat.service.attempts import library
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.results import responses_of
from irtcat.service.definition import PublishingReport, TestDefinition
from irtcat.service.storage.context import Service

LEAST_ANSWERS = 30
"""Answers without which an item is left as it is: fewer do not determine two parameters."""

FEW_ANSWERS = 200
"""Below this number there is a warning. Of 200 answers at fitting abilities the standard error of a
difficulty is about 0.15 to 0.2 of the population's SD."""


@dataclass(frozen=True, kw_only=True)
class Recalibration:
    """New parameters of some items, in a new bank.

    Attributes:
        test: id of the test.
        bank: SHA-256 of the new bank, which is stored.
        old_bank: SHA-256 of the bank of the test.
        n_attempts: finished attempts whose answers were used.
        items: one row for each item and parameter: ``item``, ``kind`` ("pretest" or "chosen"),
            ``n`` (answers), ``parameter``, ``old``, ``new``, ``se`` and ``change`` (in standard
            errors).
        left: items that were left as they are, with the reason.
        warnings: what is unwise, one sentence each.
    """

    test: str
    bank: str
    old_bank: str
    n_attempts: int
    items: pd.DataFrame
    left: dict[str, str]
    warnings: tuple[str, ...]


def pretest_items(test: PublishedTest) -> list[str]:
    """Items of the bank that adaptive sections administer without scoring them."""
    marks = np.zeros(test.bank.n_items, bool)
    for section in test.definition.adaptive.values():
        marks |= pretest_of(test.bank, section.config)
    return [str(name) for name in test.bank.item_ids[marks]]


def recalibrate(
    service: Service,
    test: str,
    items: Sequence[str] | None = None,
    *,
    actor: str,
    least_answers: int = LEAST_ANSWERS,
) -> Recalibration:
    """Calibrate items of a test from all finished attempts, with its other items as anchors.

    The anchors keep their parameters and so define the scale (`irtcat.fit` with ``anchors``); the
    population is that of the takers. The new bank is stored beside the old one, in which nothing
    changes; `publish_recalibrated` makes a test with it.

    Args:
        service: the service.
        test: id of a published test.
        items: ids of the items to calibrate, such as drifted ones; by default its pretest items.
        actor: who does it.
        least_answers: items with fewer answers are left as they are.

    Returns:
        The new parameters beside the old ones.

    Raises:
        NotFoundError: for an unknown test or bank.
        InputError: for unknown items, or where no item has enough answers, or no anchor is left.
    """
    check_count("least_answers", least_answers, 2)
    published = published_test(service, test)
    bank, pretest = published.bank, pretest_items(published)
    chosen = list(dict.fromkeys(pretest if items is None else items))
    if not chosen:
        advice = "The test has no pretest items; choose items."
        raise argument_error("items", "at least one id", chosen, advice)
    bank.positions(chosen)  # raises for an unknown id
    data = responses_of(service, test)
    values = np.asarray(data.values)
    counts = dict(zip(bank.item_ids.tolist(), (values >= 0).sum(axis=0).tolist(), strict=True))
    left = _left_out(bank, values, chosen, counts, least_answers)
    fitted = [name for name in chosen if name not in left]
    if not fitted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left.items())
        raise InputError(f"No item can be recalibrated yet ({reasons}).")
    # Pretest items that are not calibrated now have parameters that nobody vouches for.
    unsure = {*chosen, *pretest}
    anchors = [name for name in bank if counts[name] and name not in unsure]
    if not anchors:
        raise InputError("No anchor is left: at least one item with answers must keep its values.")
    known = bank.subset(anchors)
    selected = data.subset(items=anchors + fitted)
    responses = selected.subset(subjects=selected.answered)
    models = item_models(bank.model)[bank.positions(fitted)].tolist()
    result = fit(responses, dict(zip(fitted, models, strict=True)), anchors=known)
    calibrated = result.bank.subset(fitted)
    new_bank = _exchanged(bank, calibrated, test, data.n_subjects)
    with service.database.writing():
        stored = service.store.add_bank(new_bank)
        service.acted(actor, "items recalibrated", test=test, bank=stored, items=fitted)
    return Recalibration(
        test=test,
        bank=stored,
        old_bank=bank.hash(),
        n_attempts=data.n_subjects,
        items=_comparison(bank, calibrated, counts, set(pretest)),
        left=left,
        warnings=tuple(_warnings(result.converged, counts, fitted)),
    )


def _left_out(
    bank: ItemBank, values: IntArray, chosen: Sequence[str], counts: dict[str, int], least: int
) -> dict[str, str]:
    """Items that cannot be calibrated, with the reason."""
    out = {}
    sizes = item_categories(bank.model)
    for name, at in zip(chosen, bank.positions(chosen), strict=True):
        codes = values[values[:, at] >= 0, at]
        unused = sorted(set(range(sizes[at])) - set(codes.tolist()))
        if counts[name] < least:
            out[name] = f"{counts[name]} answers, fewer than {least}"
        elif len(np.unique(codes)) < 2:
            out[name] = "all answers are in one category"
        elif unused:  # the new bank could not score an answer in it
            out[name] = f"no answer has the score {', '.join(map(str, unused))}"
    return out


def _exchanged(bank: ItemBank, calibrated: ItemBank, test: str, n: int) -> ItemBank:
    """The bank with new parameters of some items; order, metadata and population stay."""
    new = calibrated.item_ids.tolist()
    kept = bank.subset([name for name in bank if name not in set(new)])
    if kept.covariance is None and calibrated.covariance is not None:
        n_params = len(column_names(kept.model))
        kept = replace(kept, covariance=np.full((kept.n_items, n_params, n_params), np.nan))
    # Statistics are of other responses; states say which categories have no estimate.
    items, states = bank.subset(new).items, _states_alone(calibrated)
    calibrated = replace(calibrated, items=items, statistics=states)
    kept = replace(kept, statistics=_states_alone(kept))
    joined = kept.join(calibrated, same_scale=True).subset(bank.item_ids.tolist())
    about = {"items": new, "attempts": n, "test": test, "from_bank": bank.hash()}
    return replace(joined, provenance={**bank.provenance, "recalibrated": about})


def _states_alone(bank: ItemBank) -> pd.DataFrame:
    return bank.statistics[[name for name in bank.statistics if name in STATES]]


def _comparison(
    bank: ItemBank, calibrated: ItemBank, counts: dict[str, int], pretest: set[str]
) -> pd.DataFrame:
    names = calibrated.item_ids.tolist()
    old, new = bank.subset(names).to_frame(), calibrated.to_frame()
    parameters = [name for name in new.columns if name in old and f"se_{name}" in new]
    rows: list[tuple[Any, ...]] = []
    for name in names:
        kind = "pretest" if name in pretest else "chosen"
        for parameter in parameters:
            before, after = float(old.loc[name, parameter]), float(new.loc[name, parameter])
            se = float(new.loc[name, f"se_{parameter}"])
            change = (after - before) / se if se > 0 else np.nan
            if np.isfinite(se):
                rows.append((name, kind, counts[name], parameter, before, after, se, change))
    columns = ["item", "kind", "n", "parameter", "old", "new", "se", "change"]
    return pd.DataFrame(rows, columns=columns)


def _warnings(converged: bool, counts: dict[str, int], fitted: list[str]) -> Iterator[str]:
    if not converged:
        yield "The estimation did not converge."
    few = [f"{name} ({counts[name]})" for name in fitted if counts[name] < FEW_ANSWERS]
    if few:
        yield f"Fewer than {FEW_ANSWERS} answers, so that errors are large: {', '.join(few)}."


def publish_recalibrated(
    service: Service,
    test: str,
    bank: str,
    *,
    version: str,
    actor: str,
    operational: Sequence[str] = (),
    retire: bool = False,
    n_simulated: int = 1000,
) -> tuple[str, PublishingReport]:
    """Publish a new version of a test with another bank that is stored, such as a recalibrated one.

    Args:
        service: the service.
        test: id of the present version.
        bank: SHA-256 of the bank.
        version: the new version.
        actor: who publishes it.
        operational: pretest items that are scored from now on. A section without a pretest item
            left no longer has positions for them.
        retire: whether the present version is retired.
        n_simulated: see `irtcat.service.attempts.library.publish`.

    Returns:
        The id of the new version, and its report.

    Raises:
        NotFoundError: for an unknown test or bank.
        InputError: for a version that is that of the test, or unknown items.
        DefinitionError: if the test cannot be given with the bank.
    """
    published = published_test(service, test)
    if version == published.definition.version:
        raise argument_error("version", "another one than that of the test", version)
    new_bank = library.stored_bank(service, bank)
    document = published.definition.to_json()
    document |= {"version": version, "bank": bank}
    if operational:
        new_bank = _promoted(published.definition, new_bank, operational)
        document["bank"] = new_bank.hash()
        _close_pretest(document, new_bank)
    definition = TestDefinition.from_json(document)
    name, report = library.publish(
        service, definition, new_bank, published.items, actor=actor, n_simulated=n_simulated
    )
    if retire:
        library.retire(service, test, actor=actor)
    return name, report


def _promoted(definition: TestDefinition, bank: ItemBank, operational: Sequence[str]) -> ItemBank:
    """The bank with items no longer marked as pretest items."""
    configs = {
        section.config.pretest: section.config
        for section in definition.adaptive.values()
        if section.config.pretest
    }
    if not configs:
        raise argument_error("operational", "empty in a test without pretest items", operational)
    at, items = bank.positions(list(operational)), bank.items.copy()
    for column, config in configs.items():
        marks = pretest_of(bank, config).copy()
        marks[at] = False
        items[column] = marks
    return replace(bank, items=items)


def _close_pretest(document: dict[str, Any], bank: ItemBank) -> None:
    """Take the positions of pretest items from sections that have fewer of them than positions."""
    for section in document["sections"]:
        config = section.get("config")
        if not config or not config.get("pretest"):
            continue
        left = int(bank.items[config["pretest"]].sum())
        config["pretest_at"] = list(config.get("pretest_at", ()))[:left]
        if not left:
            config["pretest"] = None

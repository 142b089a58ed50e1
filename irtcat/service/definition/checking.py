"""Checks before a test is published: what cannot be kept, and what is unwise."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat.bank import ItemBank, check_needs
from irtcat.cat import prepare, start
from irtcat.cat.rules import single_rules
from irtcat.models import item_categories
from irtcat.service.base.records import Fault
from irtcat.service.definition.records import (
    Adaptive,
    Break,
    DefinitionError,
    Fixed,
    Instructions,
    Practice,
    Section,
    TestDefinition,
    config_fault,
)

TRANSLATED = ("en", "ar", "de", "es", "he")
"""Languages of the pages."""

LEAST_SECONDS = 20.0
"""A time limit that leaves less for an item is reported; easy items are read and answered in it."""

MOST_CLIPPED = 0.02
"""A greater share of the population beyond the reported scores is reported."""

ITEMS_A_TEST = 3
"""A pool of fewer items for each item of a test is reported: tests are then much alike."""

EARLY = {"se", "pser", "se-change", "information"}
"""Stopping rules that may be met after very few items."""


def pool_of(definition: TestDefinition, section: Adaptive, bank: ItemBank) -> ItemBank:
    """The items that an adaptive section chooses from.

    Args:
        definition: the test.
        section: one of its adaptive sections.
        bank: the bank of the test.

    Returns:
        The bank of the items that ``section.items`` names, by default of all that no other section
        names; of these the ones with the values of ``section.where``.

    Raises:
        InputError: for an unknown item, column or value, or if no item is left.

    Example:
        >>> from irtcat.service.definition import Fixed
        >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0])
        >>> adaptive = Adaptive(config={"max_items": 2})
        >>> test = TestDefinition(title="A", sections=[Fixed(items=["i2"]), adaptive])
        >>> pool_of(test, adaptive, bank).item_ids.tolist()
        ['i1', 'i3']
    """
    elsewhere = {item for other in definition.sections for item in other.items}
    ids = list(section.items) or [item for item in bank if item not in elsewhere]
    pool = bank.subset(ids) if ids else None
    for column, values in section.where:
        if column not in bank.items:
            known = ", ".join(map(str, bank.items.columns)) or "none"
            raise argument_error("where", f"columns of the bank's metadata ({known})", column)
        labels = bank.items[column].astype(str)
        unknown = [value for value in values if value not in set(labels)]
        if unknown:
            raise argument_error("where", f"values of the column {column!r}", unknown)
        if pool is not None:
            pool = pool.subset(pool.items[column].astype(str).isin(values).to_numpy())
    if pool is None or not pool.n_items:
        raise argument_error("where", "conditions that some items of the bank satisfy", [])
    return pool


def scored_items(definition: TestDefinition, bank: ItemBank) -> list[str]:
    """Ids of the items whose answers may enter the score, in the bank's order."""
    ids = set[str]()
    for section in definition.scored_sections:
        own = section.items if isinstance(section, Fixed) else pool_of(definition, section, bank)
        ids.update(own)
    return [name for name in bank if name in ids]


def check_definition(
    definition: TestDefinition, bank: ItemBank, items: Any = None
) -> tuple[str, ...]:
    """Check that a test can be given as its definition says.

    Args:
        definition: the test.
        bank: its item bank.
        items: the content: an object with ``items`` and ``keys``, mappings by the id of the item,
            such as `irtcat.service.content.ItemSet`. None checks all but the content.

    Returns:
        Warnings of what is possible but unwise, one sentence each.

    Raises:
        DefinitionError: listing all faults: sections with items that do not exist, items without
            content or a key, keys that do not fit the categories of the bank, practice items that
            are in the bank, adaptive rules that this bank cannot keep, and more.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> test = TestDefinition(title="A", sections=[Adaptive(config={"max_items": 50})])
        >>> check_definition(test, bank)
        Traceback (most recent call last):
        irtcat.service.definition.records.DefinitionError: The `sections[1].config.max_items` field
        must be at most 40, the number of scored items in the bank. Got 50.
    """
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__)
    faults: list[Fault] = []
    try:
        needs = ("categories", "one ability")
        check_needs(bank.model, needs, "a test, since scores are linear in it")
    except InputError as error:
        message = str(error).replace("`bank` argument", "`bank` field")
        raise DefinitionError([Fault("bank", message)]) from None
    pools: dict[int, ItemBank] = {}
    for at, section in enumerate(definition.sections, start=1):
        where = f"sections[{at}]"
        if isinstance(section, Practice):
            both = sorted(set(section.items) & set(bank))
            if both:
                must = "items that are not in the bank, since they are seen before they are scored"
                faults.append(Fault.of(f"{where}.items", must, both))
        if isinstance(section, Fixed) and section.scored:
            faults += _unknown(f"{where}.items", section.items, bank)
        if isinstance(section, Adaptive):
            pool = _checked_pool(definition, section, bank, where, faults)
            if pool is not None:
                pools[at] = pool
        faults += _rapid_faults(section, where, pools.get(at))
        if items is not None:
            faults += _content_faults(section, where, pools.get(at), bank, items)
    faults += _overlaps(pools)
    faults += _topic_faults(definition, bank)
    if faults:
        raise DefinitionError(faults)
    return tuple(_warnings(definition, bank, items, pools))


def _unknown(field: str, ids: Iterable[str], bank: ItemBank) -> list[Fault]:
    known = set(bank)
    unknown = [item for item in ids if item not in known]
    return [Fault.of(field, "ids of items in the bank", unknown)] if unknown else []


def _checked_pool(
    definition: TestDefinition, section: Adaptive, bank: ItemBank, where: str, faults: list[Fault]
) -> ItemBank | None:
    unknown = _unknown(f"{where}.items", section.items, bank)
    faults += unknown
    if unknown:
        return None
    try:
        pool = pool_of(definition, section, bank)
    except InputError as error:
        text = str(error).replace("`where` argument", f"`{where}.where` field")
        faults.append(Fault(f"{where}.where", text))
        return None
    known, before = set(pool), len(faults)
    for name, ids in (("first", [section.config.first]), ("enemies", section.config.enemies)):
        others = [item for members in ids for item in members if item not in known]
        if others:
            must = "ids of items that the section chooses from"
            faults.append(Fault.of(f"{where}.config.{name}", must, others))
    if len(faults) > before:
        return pool
    try:
        prepared = prepare(pool, section.config)
        if section.config.exposure.name != "sympson-hetter":  # its parameters are made later
            start(prepared, section.config)  # as for the first person
    except InputError as error:
        faults.append(config_fault(error, f"{where}.config"))
    return pool


def _rapid_faults(section: Section, where: str, pool: ItemBank | None) -> Iterable[Fault]:
    rapid = section.rapid if isinstance(section, (Adaptive, Fixed)) else None
    if rapid is not None and (pool is not None or isinstance(section, Fixed)):
        known = set(section.items if pool is None else pool)
        unknown = [item for item, _ in rapid.items if item not in known]
        if unknown:
            must = "a table with ids of items of the section"
            yield Fault.of(f"{where}.rapid.items", must, unknown)


def _content_faults(
    section: Section, where: str, pool: ItemBank | None, bank: ItemBank, items: Any
) -> Iterable[Fault]:
    """Items of a section without content, or whose keys cannot score them."""
    ids = section.items if pool is None else tuple(pool)
    part = "config" if isinstance(section, Adaptive) and not section.items else "items"
    field = f"{where}.{part}"
    is_scored = isinstance(section, Adaptive) or (isinstance(section, Fixed) and section.scored)
    if is_scored:
        known = set(bank)
        ids = tuple(item for item in ids if item in known)  # the others are reported already
    without = [item for item in ids if item not in items.items]
    if without:
        advice = "Add a file for each, or leave it out of the bank." if is_scored else ""
        yield Fault.of(field, "items that have content", without, advice)
    no_key = [item for item in ids if item in items.items and item not in items.keys]
    if no_key and is_scored:
        yield Fault.of(field, "items that have a key", no_key)
    # Also of a section without a score: its answers are coded in the categories of the bank.
    keys = {item: items.keys[item] for item in ids if item in items.keys}
    yield from _key_faults(section, field, bank, keys)


def _key_faults(
    section: Section, field: str, bank: ItemBank, keys: dict[str, Any]
) -> Iterable[Fault]:
    """Keys with other categories than the bank, and such as score too late for a section."""
    by_people = [item for item, key in keys.items() if getattr(key, "kind", "") == "rubric"]
    sizes = dict(zip(bank.item_ids.tolist(), item_categories(bank.model).tolist(), strict=True))
    other = [
        f"{brief(item)} ({key.categories} in its key, {sizes[item]} in the bank)"
        for item, key in keys.items()
        if key.categories != sizes.get(item, key.categories)
    ]
    if other:
        must = "items whose keys have as many categories as the bank"
        advice = "A rubric with half points has the unit 0.5." if by_people else ""
        yield Fault.of(field, must, other, advice)
    if by_people and isinstance(section, Adaptive):
        must = "items that are scored at once, since the next item depends on the score"
        advice = "Move items scored by people to a fixed section."
        yield Fault.of(field, must, by_people, advice)


def _overlaps(pools: dict[int, ItemBank]) -> Iterable[Fault]:
    first = dict[str, int]()
    for at, pool in pools.items():
        shared = [item for item in pool if item in first]
        if shared:
            must = f"set, so that no item is in two pools (section {first[shared[0]]} has it too)"
            advice = "Use `items` or `where` in both sections."
            yield Fault.of(f"sections[{at}].items", must, shared, advice)
        first = dict.fromkeys(pool, at) | first


def _topic_faults(definition: TestDefinition, bank: ItemBank) -> list[Fault]:
    column = definition.score.topics
    if "topics" not in definition.score.show:
        return []
    if column not in bank.items:
        known = ", ".join(map(str, bank.items.columns)) or "none"
        return [Fault.of("score.topics", f"a column of the bank's metadata ({known})", column)]
    blank = bank.item_ids[bank.items[column].isna().to_numpy()].tolist()
    must = f"a column with a topic of every item ({len(blank)} have none)"
    return [Fault.of("score.topics", must, blank)] if blank else []


def _warnings(
    definition: TestDefinition, bank: ItemBank, items: Any, pools: dict[int, ItemBank]
) -> Iterable[str]:
    used = {item for section in definition.sections for item in section.items}
    used |= {item for pool in pools.values() for item in pool}
    yield from _language_warnings(definition, {} if items is None else items.items, used)
    yield from _scale_warnings(definition, bank)
    yield from _time_warnings(definition, pools)
    kinds = [section.kind for section in definition.sections]
    if kinds[0] == "break" or kinds[-1] == "break":
        yield "A break at the beginning or the end of the test has no purpose."
    for at, pool in pools.items():
        yield from _pool_warnings(definition.adaptive[at - 1], at, pool, definition)
    yield from _bank_warnings(bank)


def _language_warnings(
    definition: TestDefinition, items: Mapping[str, Any], used: Iterable[str]
) -> Iterable[str]:
    language = definition.language.split("-")[0]
    if language not in TRANSLATED:
        yield (
            f"The pages are not translated to {definition.language!r}: they will be in English "
            "around the content."
        )
    spoken = {
        name: getattr(items[name], "language", definition.language)
        for name in sorted(used)
        if name in items
    }
    others = [name for name, tag in spoken.items() if str(tag).split("-")[0] != language]
    if others:
        yield f"Items are not in the language of the test: {shorten(others)}."


def _bank_warnings(bank: ItemBank) -> Iterable[str]:
    flagged = [name for name, flags in zip(bank, bank.flags(), strict=True) if flags]
    if flagged:
        yield f"Items are flagged in the bank: {shorten(flagged)}. See its `flag` column."
    parameters = bank.to_frame()
    if "a" in parameters and (falling := bank.item_ids[(parameters["a"] < 0).to_numpy()]).size:
        yield (
            f"Items have a discrimination below 0: {shorten(falling.tolist())}. The more able fail "
            "them more often: check their keys and parameters."
        )


def _scale_warnings(definition: TestDefinition, bank: ItemBank) -> Iterable[str]:
    from scipy.special import ndtr

    scale, mean, sd = definition.score, bank.population.mean, bank.population.sd
    if abs(mean) > 0.01 or abs(sd - 1) > 0.01:
        center, spread = float(scale.exact_score(mean)), scale.sd * sd
        yield (
            f"The bank's population is N({mean:g}, {sd:g}^2), so that scores have a mean of "
            f"{center:.4g} and an SD of {spread:.4g} there, not {scale.mean:g} and {scale.sd:g}: "
            "`score.mean` is the score at theta 0, `score.sd` that of one unit of theta."
        )
    ends = [((end - scale.mean) / scale.sd - mean) / sd for end in (scale.lowest, scale.highest)]
    for share, end, word in (
        (ndtr(ends[0]), scale.lowest, "below"),
        (ndtr(-ends[1]), scale.highest, "above"),
    ):
        if share > MOST_CLIPPED:
            yield f"{share:.0%} of the population is {word} {end:g}, and gets that score."
    if definition.cuts and "level" not in scale.show and "score" in scale.show:
        yield "There are cut scores, and `score.show` has no level: test takers do not see theirs."


def _time_warnings(definition: TestDefinition, pools: dict[int, ItemBank]) -> Iterable[str]:
    limits = []
    for at, section in enumerate(definition.sections, start=1):
        if not isinstance(section, (Practice, Adaptive, Fixed)):
            continue
        limit, each, n_items = section.time_limit, section.item_time_limit, len(section.items)
        if isinstance(section, Adaptive):
            n_items = section.config.total_items
        if limit is not None:
            limits.append(limit)
            if limit / n_items < LEAST_SECONDS:
                each_has = f"{limit / n_items:.0f} seconds for each of up to {n_items} items"
                yield f"Section {at} leaves {each_has}."
            if each is not None and each > limit:
                yield f"Section {at} has a time limit for an item above that of the section."
            if definition.time_limit is not None and limit > definition.time_limit:
                yield f"Section {at} has a time limit above that of the whole test."
    total = definition.time_limit
    pages = sum(isinstance(section, (Break, Instructions)) for section in definition.sections)
    all_limited = limits and len(limits) == len(definition.sections) - pages
    if total is not None and all_limited and sum(limits) < total / 2:
        yield "The sections end before half of the time limit of the whole test has passed."
    if total is not None and max(limits, default=0) <= total < sum(limits):
        yield (
            f"The time limits of the sections sum to {sum(limits) / 60:g} minutes, and the whole "
            f"test has {total / 60:g}: the last ones may be cut short."
        )


def _pool_warnings(
    section: Adaptive, at: int, pool: ItemBank, definition: TestDefinition
) -> Iterable[str]:
    config = section.config
    if config.exposure.name == "none" and config.start.name == "criterion" and not config.first:
        yield (
            f"Section {at} has no exposure rule: all test takers get the same first item. "
            'For example, exposure = { name = "randomesque", k = 5 }.'
        )
    if pool.n_items < ITEMS_A_TEST * config.max_items:
        yield (
            f"Section {at} has {pool.n_items} items for tests of up to {config.max_items}: tests "
            "will have many items in common."
        )
    rules, wanted = single_rules(config.stopping), definition.cut_thetas
    if {rule.name for rule in rules} & EARLY and config.least_length < 5:
        yield f"Section {at} may end after {max(config.least_length, 1)} items: set `min_items`."
    for rule in rules:
        if rule.get("cuts") is None:
            continue
        cuts = np.atleast_1d(rule.get("cuts"))
        if len(cuts) != len(wanted) or not np.allclose(cuts, wanted, atol=0.02):
            yield (
                f"The rule {rule.name} of section {at} classifies at theta {shorten(cuts)}, and "
                f"the cut scores are at {shorten(np.round(wanted, 3))}."
            )

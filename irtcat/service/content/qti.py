"""Reading QTI packages: 3.0, and 2.1 and 2.2 under the names of 3.0."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.authored import MOST_ITEMS
from irtcat.service.content.fields import content_error
from irtcat.service.content.item_set import ItemSet, used_by
from irtcat.service.content.keys import Key
from irtcat.service.content.packages import Package, open_package
from irtcat.service.content.qti_items import QtiContent, read_item
from irtcat.service.content.qti_xml import (
    ITEM_TYPES,
    MANIFEST,
    QTI,
    STIMULUS_TYPE,
    TEST_TYPES,
    as_number,
    check_attributes,
    check_root,
    local_name,
    required,
)
from irtcat.service.content.records import Item

TEST_PARTS = (
    "qti-assessment-test",
    "qti-test-part",
    "qti-assessment-section",
    "qti-assessment-item-ref",
    "qti-time-limits",
)


def read_qti(path: str | os.PathLike[str], ignore_tests: bool = False) -> ItemSet:
    """Read the items of a QTI package, of version 3.0, 2.1 or 2.2.

    Read are items with one choice, inline choice, order, hottext, text entry, slider (as a field
    for a number) or extended text interaction, their stimuli and media. Response processing,
    templates and rules, is run for the responses that an item can have, and its key gives the same
    scores: one right response, or points of the parts of a response. Of a test in the package only
    the time limits of its items are read. Classes, styles and ids, which only change how content
    looks, are not kept.

    Items that are not supported, and content that items do without (style sheets, feedback,
    catalogues, companion materials), are left out; ``notes`` of the set name them with the reason.

    Args:
        path: the package, a zip with ``imsmanifest.xml``.
        ignore_tests: whether tests in the package are left out without a note.

    Raises:
        InputError: naming the file in the package; where no item is supported, all reasons.
    """
    with open_package(Path(path)) as package:
        return _Reader(package, ignore_tests).read()


class _Reader(QtiContent):
    """Reads a package; stimuli and media are read once."""

    def __init__(self, package: Package, ignore_tests: bool):
        super().__init__(package)
        self.ignore_tests = ignore_tests
        self.notes: list[str] = []
        self.faults: list[str] = []

    def read(self) -> ItemSet:
        if MANIFEST not in self.package:
            raise InputError(f"{self.package.name}: expected a QTI package with {MANIFEST}.")
        resources = list(self._resources())
        items = [(path, labels) for kind, path, labels in resources if kind in ITEM_TYPES]
        if not items:
            text = f"{self.package.name}: expected items of QTI 3.0, 2.2 or 2.1. Got none."
            raise InputError(" ".join([text, *self.notes]))
        if len(items) > MOST_ITEMS:
            raise InputError(f"{self.package.name}: expected at most {MOST_ITEMS:,} items.")
        tests = [path for kind, path, _ in resources if kind in TEST_TYPES]
        for path in () if self.ignore_tests else tests:
            self._or_note(self._read_test, path, note="This test is left out.")
        read = partial(read_item, self)
        records = [
            record
            for path, labels in items
            if (record := self._or_note(read, path, labels, note="This item is left out."))
        ]
        if not records:
            raise InputError(self.faults[0] if len(items) == 1 else " ".join(self.faults))
        for name, paths in self.left_out.items():
            what = f"{len(paths)} items" if len(paths) > 1 else f"{brief(min(paths))}"
            self.notes.append(f"{self.package.name}: the {name} of {what} are left out.")
        return self._item_set(records)

    def _item_set(self, records: list[tuple[Item, Key | None]]) -> ItemSet:
        """The items with what they use; files of items that are left out may have been read."""
        items = [item for item, _ in records]
        keys = [key for _, key in records if key]
        media = {medium.name: medium for medium in self.media.values()}
        used = used_by(items, self.stimuli.values(), media.values())
        return ItemSet(items, keys, *used, tuple(self.notes))

    def _or_note(self, read: Callable[..., Any], path: str, *more: Any, note: str) -> Any:
        """What a function reads of a member, or a note that it is left out; None then.

        Faults of the package as a whole, such as its size, are raised.
        """
        try:
            return read(path, *more)
        except InputError as error:
            text, name = str(error), self.package.name
            if text.startswith(f"{name}: ") or "cannot be read as a zip" in text:
                raise
            where = self.where(path)
            text = text if text.startswith(where) else f"{where}: {text}"
            self.faults.append(text)
            self.notes.append(f"{text} {note}")
            return None

    def _resources(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Type, path and labels of each resource of the manifest."""
        root, where = self.parsed(MANIFEST), self.where(MANIFEST)
        if local_name(root) != "manifest":
            raise content_error(where, "<manifest>", f"<{local_name(root)}>")
        for resource in root.findall("{*}resources/{*}resource"):
            kind, address = resource.get("type", ""), resource.get("href", "")
            if kind in (*ITEM_TYPES, STIMULUS_TYPE, *TEST_TYPES):
                path = self.package.resolve(MANIFEST, address, where)
                keywords = resource.findall("{*}metadata/{*}lom/{*}general/{*}keyword/{*}string")
                yield kind, path, tuple((word.text or "").strip() for word in keywords)
            elif kind.startswith("imsqti_"):
                got = f"{shorten(kind)} ({brief(address)})"
                self.notes.append(f"{where}: the resource {got} is left out.")

    def _read_test(self, path: str) -> None:
        """The time limits of the items of a test."""
        root, where = self.parsed(path), self.where(path)
        check_root(root, "qti-assessment-test", where)
        for element in root.iter():
            name = local_name(element)
            if name not in TEST_PARTS:
                raise InputError(f"{where}: <{name}> of a test is not supported.")
            if name != "qti-assessment-item-ref" and element.find("{*}qti-time-limits") is not None:
                raise InputError(f"{where}: time limits of <{name}> are not supported.")
        time_limits = {}
        for reference in root.iter(f"{{{QTI}}}qti-assessment-item-ref"):
            limits = reference.find("{*}qti-time-limits")
            item = self.package.resolve(path, required(reference, "href", where), where)
            if limits is not None:
                check_attributes(limits, "max-time", where)
            if limits is not None and limits.get("max-time"):
                time_limits[item] = as_number(limits.get("max-time"), "max-time", where)
        self.time_limits |= time_limits

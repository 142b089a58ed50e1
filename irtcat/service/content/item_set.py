"""Item sets: items with their keys, stimuli and media, which fit together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from irtcat._common.checks import brief, shorten
from irtcat._files import json_hash, json_text
from irtcat.service.base.records import Fault, list_of, record, reported
from irtcat.service.content.fields import ContentError, FaultList, Record, content_error, set_field
from irtcat.service.content.keys import Key, checked_key
from irtcat.service.content.records import Item, Media, Stimulus

RECORDS: dict[str, type[Record]] = {"items": Item, "keys": Key, "stimuli": Stimulus, "media": Media}
"""The records of an item set, in the order in which it takes them."""

RecordT = TypeVar("RecordT", bound=Record)
Records = Iterable[RecordT] | Mapping[str, RecordT]


@dataclass(frozen=True, init=False)
class ItemSet:
    """Items with their keys, stimuli and media; ``item_set["q1"]`` is an item.

    An item may have no key (a practice item); `check_against_bank` requires one for scored items.

    Attributes:
        items: id -> `Item`, in the author's order.
        keys: item id -> `Key`.
        stimuli: id -> `Stimulus`.
        media: name -> `Media`.
        notes: sentences on what was left out when the items were read; not stored with them.

    Raises:
        InputError: two records have the same id; a key is of no item, or does not fit it; a
            stimulus or a media file is missing.

    Example:
        >>> item = Item("q1", "text", "<p>2 + 2 = ?</p>", numeric=True)
        >>> items = ItemSet([item], [Key("q1", "match", correct=("4",))])
        >>> items["q1"].kind, items.keys["q1"].categories, len(items)
        ('text', 2, 1)
    """

    items: Mapping[str, Item]
    keys: Mapping[str, Key] = field(default_factory=dict, repr=False)
    stimuli: Mapping[str, Stimulus] = field(default_factory=dict, repr=False)
    media: Mapping[str, Media] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __init__(
        self,
        items: Records[Item],
        keys: Records[Key] = (),
        stimuli: Records[Stimulus] = (),
        media: Records[Media] = (),
        notes: tuple[str, ...] = (),
    ):
        """Check that the records, lists or mappings of them, fit together."""
        set_field(self, "notes", tuple(notes))
        for name, given in zip(RECORDS, (items, keys, stimuli, media), strict=True):
            set_field(self, name, _by_id(RECORDS[name], given))
        if not self.items:
            raise content_error("item set", "at least one item", "none")
        unknown = [name for name in self.keys if name not in self.items]
        if unknown:
            raise content_error("keys", "the ids of items of the set", shorten(unknown))
        checked, faults = dict[str, Key](), FaultList()
        for name, key in self.keys.items():
            with faults.collected():
                checked[name] = checked_key(key, self.items[name])
        entries: list[Item | Stimulus] = [*self.items.values(), *self.stimuli.values()]
        for entry in entries:
            with faults.collected():
                stimulus = getattr(entry, "stimulus", None)
                if stimulus is not None and stimulus not in self.stimuli:
                    got = f"{shorten(stimulus)}, which does not exist"
                    raise content_error(entry.where, "the id of a stimulus", got)
                for name in entry.media:
                    if name not in self.media:
                        must = f"the media file {name}"
                        raise content_error(entry.where, must, "none of this name")
        faults.check()
        set_field(self, "keys", checked)
        for name in RECORDS:
            set_field(self, name, MappingProxyType(getattr(self, name)))

    def __getitem__(self, item: str) -> Item:
        return self.items[item]

    def __iter__(self) -> Iterator[str]:
        """The items' ids."""
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self.items

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the records; views of mappings cannot be pickled."""
        return ItemSet, (*(dict(getattr(self, name)) for name in RECORDS), self.notes)

    def in_language(self, language: str) -> "ItemSet":
        """The set with a language for the items that have none.

        Example:
            >>> items = ItemSet([Item("q1", "text", "<p>1 + 0,5 = ?</p>", numeric=True)])
            >>> items["q1"].language, items.in_language("de")["q1"].language
            ('', 'de')
        """

        def filled(item: Item) -> Item:
            parts = tuple(map(filled, item.parts))
            return replace(item, language=item.language or language, parts=parts)

        return replace(self, items={name: filled(item) for name, item in self.items.items()})

    def subset(self, ids: Iterable[str]) -> "ItemSet":
        """The set of some items, with only the keys, stimuli and media that they use.

        Raises:
            InputError: an item does not exist.
        """
        wanted = list(ids)
        missing = [name for name in wanted if name not in self.items]
        if missing:
            raise content_error("item set", "ids of its items", shorten(missing))
        items = [self.items[name] for name in wanted]
        keys = [self.keys[name] for name in wanted if name in self.keys]
        return ItemSet(items, keys, *used_by(items, self.stimuli.values(), self.media.values()))

    def to_json(self) -> dict[str, Any]:
        """The set as a JSON document."""
        return {
            name: [record.to_json() for record in getattr(self, name).values()] for name in RECORDS
        }

    @staticmethod
    def from_json(document: Any) -> "ItemSet":
        """A set from the output of `to_json`.

        Raises:
            InputError: naming the record and the field.
        """
        faults: list[Fault] = []
        if not isinstance(document, Mapping) or not {"items"} <= set(document) <= set(RECORDS):
            must = f"an object with items, and some of {', '.join(RECORDS)}"
            raise content_error("item set", must, shorten(document))
        values = {
            name: reported(list_of(record(RECORDS[name]), name), entries, name, faults)
            for name, entries in document.items()
        }
        if faults:
            raise ContentError(map(str, faults))
        return ItemSet(**values)

    def hash(self) -> str:
        """SHA-256 of the set in hexadecimal, independent of the order of its records."""
        document = self.to_json()
        document["media"] = [record["name"] for record in document["media"]]
        for records in document.values():
            records.sort(key=lambda record: json_text(record, sort_keys=True))
        return json_hash(document)


def used_by(
    items: Sequence[Item], stimuli: Iterable[Stimulus], media: Iterable[Media]
) -> tuple[list[Stimulus], list[Media]]:
    """The stimuli and media that items use."""
    named = {item.stimulus for item in items}
    used = [stimulus for stimulus in stimuli if stimulus.id in named]
    shown = {name for item in items for name in item.media}
    shown |= {name for stimulus in used for name in stimulus.media}
    return used, [medium for medium in media if medium.name in shown]


def _by_id(kind: type[Record], records: Any) -> dict[str, Any]:
    """Records by their ids, which must differ."""
    label, id_field = kind.identity
    if isinstance(records, Mapping):
        records = records.values()
    if isinstance(records, (str, bytes)) or not isinstance(records, Iterable):
        raise content_error(label, f"a list of {kind.__name__}", shorten(records))
    out: dict[str, Any] = {}
    for entry in records:
        if not isinstance(entry, kind):
            raise content_error(label, f"records of type {kind.__name__}", type(entry).__name__)
        name = getattr(entry, id_field)
        if name in out:
            raise content_error(f"{label} {brief(name)}", "ids that differ", "this id twice")
        out[name] = entry
    return out

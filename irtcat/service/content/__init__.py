"""Content of tests: items, keys, stimuli and media; reading, writing and scoring them.

Everything here is a plain function of its arguments: no database, no network.
"""

from irtcat.service.content.item_set import ItemSet
from irtcat.service.content.keys import Key
from irtcat.service.content.markdown import markdown_html
from irtcat.service.content.qti import read_qti
from irtcat.service.content.qti_writing import write_qti
from irtcat.service.content.reading import read_items
from irtcat.service.content.records import KINDS, Choice, Item, ItemKind, Media, Stimulus
from irtcat.service.content.scoring import check_against_bank, checked_response, scored

__all__ = [
    "KINDS",
    "Choice",
    "Item",
    "ItemKind",
    "ItemSet",
    "Key",
    "Media",
    "Stimulus",
    "check_against_bank",
    "checked_response",
    "markdown_html",
    "read_items",
    "read_qti",
    "scored",
    "write_qti",
]

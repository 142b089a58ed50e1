"""Time used in an attempt: sums of the seconds between events, without pauses and breaks."""

from dataclasses import dataclass, field

__all__ = ["Usage"]


@dataclass
class Usage:
    """Seconds used in a test, in its current section and on its current item, and extensions.

    Attributes:
        test: seconds used in the test, without breaks and pauses.
        section: seconds used in the current section.
        item: seconds used on the item that is shown.
        by_item: seconds used on every item so far.
        extra: seconds that a proctor added to the limits of the test and of the current section.
    """

    test: float = 0.0
    section: float = 0.0
    item: float = 0.0
    by_item: dict[str, float] = field(default_factory=dict)
    extra_test: float = 0.0
    extra_section: float = 0.0

    def add(self, seconds: float, item: str | None) -> None:
        """Count seconds that passed while the test was running."""
        self.test += seconds
        self.section += seconds
        if item is not None:
            self.item += seconds
            self.by_item[item] = self.by_item.get(item, 0.0) + seconds

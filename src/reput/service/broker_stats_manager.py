"""What a broker counts of its clients' requests (`BrokerStatsManager`)."""

from __future__ import annotations


class GroupGets:
    """What pulls of one group have brought from one topic: messages, and bytes of their records."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0


class BrokerStatsManager:
    """Counts since the broker's start.

    Attributes:
        group_gets: By (topic, group).
    """

    def __init__(self) -> None:
        self.group_gets: dict[tuple[str, str], GroupGets] = {}

    def inc_group_get(self, group: str, topic: str, messages: int, size: int) -> None:
        """Count a pull that brings messages (`incGroupGetNums`, `incGroupGetSize`)."""
        gets = self.group_gets.get((topic, group))
        if gets is None:
            gets = self.group_gets[topic, group] = GroupGets()
        gets.messages += messages
        gets.size += size

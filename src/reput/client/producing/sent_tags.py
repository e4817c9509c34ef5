"""SentTags: tells of tags that no consumer can ask for; Java's clients send them without a word."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reput.events import Event
from reput.formats.message import Message
from reput.remoting.subscription_data import is_tag_to_select

logger = logging.getLogger("reput.client")


class SentTags:
    """The tags of a producer. The first one that no subscription can name is logged."""

    def __init__(self) -> None:
        self._is_told = False

    def look_at(self, messages: Iterable[Message]) -> None:
        """Look at messages that are sent."""
        for message in () if self._is_told else messages:
            if message.tags and not is_tag_to_select(message.tags):
                self._is_told = True
                what = "no consumer can ask for this tag: || separates tags, blanks around them are cut, * means all"
                logger.warning(Event(what, topic=message.topic, tags=message.tags))
                break

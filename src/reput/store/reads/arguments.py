"""Arguments of pulls and queries of a store: each is checked by its name."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import Any

from reput.config.arguments import (
    LEAST_LONG,
    MOST_INT,
    MOST_LONG,
    check_path,
    check_queue_ids,
    check_seconds,
    check_text,
    check_whole,
    meant_as_several,
)
from reput.errors import ConfigError
from reput.events import Event
from reput.formats.message import TOPIC_CHARACTERS

logger = logging.getLogger("reput.store")


@lru_cache(maxsize=1024)
def look_at_tags(tags: str) -> None:
    """Log, once, a tag that seems to be several: it is the tag of no message, and nothing is found without a word."""
    if tag := meant_as_several(tags.split("||")):
        logger.warning(Event("this asks for one tag of this name: || alone separates tags", tag=tag.strip()))


def check_pull(**given: object) -> None:
    """Raises ConfigError for an argument of a pull that is none."""
    for name, value in given.items():
        check_text(name, value) if name == "topic" else check_whole(name, value, LEAST_LONG, MOST_LONG)


def check_query(topic: object, key: object, max_num: object, begin: object, end: object) -> None:
    """Raises ConfigError for an argument of a query by key that is none."""
    check_text("topic", topic)
    check_text("key", key)
    check_whole("max_num", max_num, most=MOST_INT)
    check_whole("begin", begin, LEAST_LONG, MOST_LONG)
    if end is not None:
        check_whole("end", end, most=MOST_LONG)


def check_tail(topic: object, group: object, offsets: Any, queue_ids: object, tags: Any, timeout: object) -> None:
    """Raises ConfigError for an argument of a tail that is none."""
    check_text("topic", topic)
    if group is not None:
        check_text("group", group)
    if queue_ids is not None:
        check_queue_ids("queue_ids", queue_ids)
    if tags is not None:
        check_text("tags", tags)
        look_at_tags(tags)
    if timeout is not None:
        check_seconds("timeout", timeout, may_be_zero=True)
    if offsets is not None:
        check_path("offsets", offsets)
        if group is None:
            raise ConfigError(f"offsets={os.fspath(offsets)!r}: they belong to a group: give `group`, too")
    if group is not None and (not group or set(str(group)) - TOPIC_CHARACTERS):
        raise ConfigError(f"group {group!r}: expected letters a-z A-Z, digits, %, |, _ and -")

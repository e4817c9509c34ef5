"""Wanted topics that a store does not have: said once, with the nearest name, by whoever reads some topics of a store.

It is no error: a topic may come later, and a log whose queues are gone is read without them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from reput.errors import CorruptMetadataError
from reput.formats.metadata import Topics
from reput.log.metadata import read_metadata
from reput.log.rocksdb.databases import queue_databases

if TYPE_CHECKING:
    from reput.log.directory import StoreDirectory

#: Limit of names that a line lists.
_SHOWN_NAMES = 8
#: Names before a topic, and behind it, that are compared with it: all of a store with 100,000 topics take 6 s.
_COMPARED_NAMES = 500

logger = logging.getLogger("reput.topics")


def unknown_topic(topic: str, topics: Iterable[str]) -> str | None:
    """Text about a topic without queues, with the nearest name or some topics; None if it is one of `topics`."""
    known = set(topics)
    return None if topic in known else _text(topic, sorted(known))


def _text(topic: str, known: Sequence[str]) -> str:
    """Text about a topic that is none of `known`, which are sorted."""
    if (slip := _slip(topic, known)) is not None:
        return slip
    if not known:
        return f"the store has no queue of topic {topic!r}: it has no consume queue with messages"
    return f"there is no topic {topic!r}; there are {some_names(known)}"


def _slip(topic: str, known: Sequence[str]) -> str | None:
    at = bisect_left(known, topic)
    nearest = get_close_matches(topic, known[max(at - _COMPARED_NAMES, 0) : at + _COMPARED_NAMES], n=1)
    return f"there is no topic {topic!r}; did you mean {nearest[0]!r}?" if nearest else None


def some_names(names: Iterable[str]) -> str:
    """Some of the names, and the count of the others."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN_NAMES} more" if len(listed) > _SHOWN_NAMES else ""
    return f"{', '.join(listed[:_SHOWN_NAMES])}{more}"


def unknown_topics(topics: Collection[str] | None, *directories: StoreDirectory) -> list[str]:
    """Texts about wanted topics that no directory has: one list of folders of queues is read of each."""
    if not topics:
        return []
    known, missing = _missing(topics, directories)
    names = sorted(known)
    texts = [_text(topic, names) for topic in missing[:_SHOWN_NAMES]]
    others = missing[_SHOWN_NAMES:]
    return [*texts, f"there are no topics {some_names(others)}"] if others else texts


def _missing(topics: Collection[str], directories: Sequence[StoreDirectory]) -> tuple[set[str], list[str]]:
    """Topics with queues, and wanted ones that are none; one of `config/topics.json` is there before its messages."""
    known = set[str]().union(*(directory.topic_folders() for directory in directories))
    if any(queue_databases(directory.files, directory.path) for directory in directories):  # not all are folders
        return known, []
    missing = set(topics) - known
    for directory in directories if missing else ():
        with suppress(CorruptMetadataError):
            if (declared := read_metadata(directory.path, Topics, directory.files)) is not None:
                missing.difference_update(declared.topic_config_table)
    return known, sorted(missing)


def warn_of_unknown_topics(topics: Collection[str] | None, *directories: StoreDirectory) -> None:
    """Write `unknown_topics` into the log `reput.topics`, as warnings."""
    if logger.isEnabledFor(logging.WARNING):
        for text in unknown_topics(topics, *directories):
            logger.warning("%s", text)


def warn_of_slip(topic: str, directory: StoreDirectory) -> None:
    """Warn of a topic that is waited for, if it is not there and another one has nearly its name."""
    if not logger.isEnabledFor(logging.WARNING):
        return
    known, missing = _missing([topic], [directory])
    if missing and (text := _slip(topic, sorted(known))) is not None:
        logger.warning("%s; messages of %r are waited for", text, topic)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence `warn_of_unknown_topics` for a command that has said it in its own form."""
    former, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = former

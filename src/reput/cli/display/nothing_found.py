"""Texts for commands that find nothing: what was searched, what the store has, and where to look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from reput.cli.display.output import iso_time
from reput.counts import counted
from reput.log.unknown_topics import some_names, unknown_topic

if TYPE_CHECKING:
    from reput.log.directory import QueueFiles
    from reput.store.message_store import MessageStore
    from reput.store.results import GetMessageStatus, QueueInfo


def unknown_queue(topic: str, queue_id: int | None, queues: Iterable[QueueInfo | QueueFiles]) -> str | None:
    """Text about a topic that does not exist, or lacks the queue; None if it has the queue."""
    listed = list(queues)
    hint = unknown_topic(topic, (queue.topic for queue in listed))
    ids = sorted(queue.queue_id for queue in listed if queue.topic == topic)
    if hint is None and queue_id is not None and queue_id not in ids:
        return f"topic {topic!r} has no queue {queue_id}; its queues: {some_names(map(str, ids))}"
    return hint


def no_message(
    opened: MessageStore, status: GetMessageStatus, topic: str, queue_id: int, offset: int, tags: str | None
) -> str:
    """Text about a pull without messages."""
    from reput.store.results import GetMessageStatus

    if opened.recovery.hides_queues:
        return f"the queues of this store are not read; `reput dump {opened.path} --topic {topic}` reads the log"
    hint = unknown_queue(topic, queue_id, opened.queues())
    log = _log_range(opened)
    if hint is not None:
        if log is not None and not any(True for _ in opened.queues()):
            is_late = opened.recovery.damage is None and opened.recovery.dispatched_from < opened.max_commit_log_offset
            builds = "`reput dispatch` goes on with them" if is_late else "`reput rebuild` builds queues"
            hint += f", but its log has {log}: `reput dump {opened.path}` shows it, and {builds}"
        return hint
    low, high = opened.min_offset(topic, queue_id), opened.max_offset(topic, queue_id)
    queue = f"queue {topic}/{queue_id}"
    if low == high:
        return f"{queue} has no message any more: the log begins after its last message; its next offset is {high}"
    has = f"{queue} has the queue offsets {low} to {high - 1}"
    if status is GetMessageStatus.NO_MATCHED_MESSAGE:
        return f"no message that was looked at from queue offset {offset} on has the tags {tags!r}; {has}"
    return f"no message at queue offset {offset}; {has}"


def no_key(opened: MessageStore, topic: str, keys: Sequence[str]) -> str:
    """Text about keys that no message of a topic has."""
    is_told = not opened.recovery.hides_queues
    hint = unknown_topic(topic, (queue.topic for queue in opened.queues())) if is_told else None
    if hint is not None:
        return hint
    files = opened.runtime_info().index_files
    if not files:
        return f"the store has no index to find keys by; `reput dump {opened.path} --topic {topic}` shows all keys"
    indexed = counted(sum(file.used for file in files), "key")
    first, last = files[0].begin_timestamp, max(file.end_timestamp for file in files)
    return (
        f"no message of topic {topic!r} in that time has {'the key' if len(keys) == 1 else 'one of the keys'} "
        f"{some_names(map(repr, keys))}; the index has {indexed} of messages stored from "
        f"{iso_time(first)} to {iso_time(last)}; `reput dump {opened.path} --topic {topic}` shows the keys of each"
    )


def no_record(opened: MessageStore, looked_for: str, offset: int) -> str:
    """Text about a commit log offset at which no record starts."""
    log = _log_range(opened)
    if log is None:
        return f"{looked_for}: the store has no message"
    if not opened.min_commit_log_offset <= offset < opened.max_commit_log_offset:
        return f"{looked_for}: the log has {log}"
    return (
        f"{looked_for}: no such record starts there; the log has {log}; "
        f"`reput dump {opened.path} --begin-offset {offset} --limit 1` shows the next one"
    )


def _log_range(opened: MessageStore) -> str | None:
    begin, end = opened.min_commit_log_offset, opened.max_commit_log_offset
    return f"the offsets {begin} to {end - 1}" if begin < end else None

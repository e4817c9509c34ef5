"""The message at a commit log offset that a request names, proven by the unit of its queue."""

from __future__ import annotations

from reput.formats.message_ext import MessageExt
from reput.store.message_store import MessageStore


def message_by_offset(store: MessageStore, commit_log_offset: int) -> MessageExt | None:
    """The message whose record starts at an offset; None if no unit of its queue names that record.

    Bytes in the body of a message can look like a record of any topic and size, so an offset alone proves nothing. What
    was put last has a unit once it is dispatched (`request_table`). It may wait for the disk.
    """
    message = store.look_message_by_offset(commit_log_offset)
    if message is None:
        return None
    units = store.units(message.topic, message.queue_id, message.queue_offset, 1)
    place = commit_log_offset, message.store_size
    return message if units and (units[0].commit_log_offset, units[0].size) == place else None

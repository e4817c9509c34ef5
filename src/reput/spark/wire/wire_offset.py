"""Offset of a stream in Spark's checkpoint, and offsets in options: JSON by topic and queue, as of the Kafka source.

    {"orders": {"broker-a:0": 120, "broker-a:1": [5, 118]}}

A number is the offset of a queue's next message. A pair is (begin, end) of the batch that ends here, if it does not
begin at the end of the batch before it: the first batch of a queue, and the batch after lost messages. So a batch that
is planned again after a restart is the same.

Spark below 4.2 may ask for an end before it tells where the batch begins. Then an object stands for a pair, and its
begin counts only in the first batch of a query; null if the options do not give one:

    {"orders": {"broker-a:0": {"first": 0, "end": 120}}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reput.errors import ConfigError
from reput.remoting.queue_tables import QueueKey

WireOffset = dict[str, dict[str, Any]]
FIRST, END = "first", "end"


def json_of_queues(offsets: Mapping[QueueKey, Any]) -> WireOffset:
    """Values of queues as JSON, in a fixed order."""
    value: WireOffset = {}
    for queue in sorted(offsets):
        value.setdefault(queue.topic, {})[f"{queue.broker_name}:{queue.queue_id}"] = offsets[queue]
    return value


def queues_of_json(value: Any) -> dict[QueueKey, Any]:
    """Values by queue. Raises ConfigError if they are not by topic and `broker:queue`."""
    found = {}
    for topic, queues in _members(value):
        for name, entry in _members(queues):
            broker_name, _, queue_id = name.rpartition(":")
            if not (broker_name and queue_id.isascii() and queue_id.isdigit()):
                raise ConfigError(f"{name!r} is no queue such as 'broker-a:0'")
            found[QueueKey(topic, broker_name, int(queue_id))] = entry
    return found


def ends_of(offset: Mapping[str, Any]) -> dict[QueueKey, int]:
    """The offsets of the next messages. Raises ConfigError if the offset is of another source."""
    return {queue: _pair(entry)[1] for queue, entry in queues_of_json(offset).items()}


def ranges_of(
    start: Mapping[str, Any], end: Mapping[str, Any], begin_of: Callable[[QueueKey], int]
) -> dict[QueueKey, tuple[int, int]]:
    """Begin and end of each queue in the batch from one offset to another; those without messages are left out.

    Args:
        begin_of: begin of a queue that was new when the batch was planned without its start.

    Raises ConfigError as `ends_of`.
    """
    before, entries = queues_of_json(start), queues_of_json(end)
    ranges = {}
    for queue, entry in entries.items():
        if queue in before and entry == before[queue]:
            continue
        begin, stop = _pair(entry)
        if isinstance(entry, Mapping):
            if queue in before:
                begin = _pair(before[queue])[1]
            elif before or begin is None:
                begin = begin_of(queue)
        elif begin is None:
            begin = _pair(before[queue])[1] if queue in before else 0
        if begin < stop:
            ranges[queue] = begin, stop
    return ranges


def _pair(entry: Any) -> tuple[int | None, int]:
    if type(entry) is int:
        return None, entry
    if isinstance(entry, list | tuple) and len(entry) == 2 and all(type(one) is int for one in entry):
        return entry[0], entry[1]
    if isinstance(entry, Mapping) and entry.keys() == {FIRST, END}:
        return entry[FIRST], entry[END]
    raise ConfigError(f"the checkpoint is of another source than the format reput with namesrv: it holds {entry!r}")


def _members(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"offsets are JSON objects by topic and by queue, and this is {value!r}")
    return [(str(name), member) for name, member in value.items()]

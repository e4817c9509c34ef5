"""Puts of records that Python encodes: a KeyboardInterrupt at any moment, and queues that are new."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

import reput
from reput.store.log.queue_offsets import QueueKey, QueueOffsets
from tests.support.fixtures import OpenStore

NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
#: A KeyboardInterrupt comes before a function of Python's begins, and after one of C's: not where one returns.
_MOMENTS = ("call", "c_return")


def put_interrupted(store: reput.MessageStore, message: reput.Message, moment: int) -> bool:
    """Put a message; a KeyboardInterrupt comes at a moment of the put. Returns whether the put has so many moments."""
    left = moment

    def interrupt(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        left -= event in _MOMENTS
        if left < 0:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        store.put_message(message)
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_an_interrupted_put_takes_its_queue_offsets_with_its_record_or_not_at_all(open_store: OpenStore) -> None:
    store = open_store(enable_lmq=True, enable_multi_dispatch=True)
    message = reput.Message("t", b"x", properties={NAMES: "%LMQ%a,%LMQ%b"})
    store.put_message(message)  # makes the first file
    moment = 0
    while put_interrupted(store, message, moment):
        moment += 1
    store.wait_dispatched()
    messages = store.get_message("t", 0, 0, 10_000).messages()
    count = len(messages)
    assert moment > count > 2
    assert [one.queue_offset for one in messages] == list(range(count))
    assert [one.properties[OFFSETS] for one in messages] == [f"{number},{number}" for number in range(count)]


def test_a_light_queue_gets_its_number_under_the_append_lock_as_every_queue_does(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another put to a new queue may get the same number meanwhile: the two would count as one."""
    store = open_store(enable_lmq=True, enable_multi_dispatch=True)
    assert store._writer is not None
    lock, number, numbered = store._writer.parts.log._lock, QueueOffsets.number, []

    def seen(offsets: QueueOffsets, key: QueueKey) -> int:
        numbered.append((key[0], lock.locked()))
        return number(offsets, key)

    monkeypatch.setattr(QueueOffsets, "number", seen)
    store.put_message(reput.Message("t", b"x", properties={NAMES: "%LMQ%a"}))
    assert set(numbered) == {("t", True), ("%LMQ%a", True)}

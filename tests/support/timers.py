"""Timers of a store without a broker: a wheel of a few slots, and messages with a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reput import Message, MessageExt, MessageStore
from reput.files import FileLayer
from reput.formats import timer_wheel as wheel_format
from reput.formats.java import string_hash
from reput.formats.timer_log import TIMER_TOPIC, Magic
from reput.store.timer import timer_message_store, timer_wheel
from reput.store.timer.timer_message_store import TimerEntries, TimerMessageStore
from tests.support.invariants import SMALL

PRECISION = 1000
#: Room for 15 units a file.
SMALL_TIMERS = SMALL | {"mapped_file_size_timer_log": 15 * 52 + 60}
#: A moment on a whole slot of the small wheel.
BEGIN = 1_700_000_000_000 - 1_700_000_000_000 % 256_000


def small_wheel(patch: pytest.MonkeyPatch, slots: int = 256) -> None:
    """Make wheels of `slots` slots."""
    for module in (wheel_format, timer_wheel):
        patch.setattr(module, "SLOTS", slots)
        patch.setattr(module, "WHEEL_SIZE", 32 * slots, raising=False)
    for module in (wheel_format, timer_message_store):
        patch.setattr(module, "SLOTS_TOTAL", slots // 2)
        patch.setattr(module, "BLANK_SLOTS", 2)


def opened(path: Path, files: FileLayer, now_ms: int = BEGIN) -> tuple[MessageStore, TimerMessageStore]:
    """A store and its timers; what was dispatched is seen."""
    store = MessageStore.open(path, files=files, **SMALL_TIMERS)  # type: ignore[arg-type]
    return store, TimerMessageStore(store, files, now_ms)


def put(store: MessageStore, out_ms: int, body: bytes = b"x") -> None:
    """Put a message that waits for the slot of a time."""
    properties = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    store.put_message(Message(TIMER_TOPIC, body, properties=properties))


def has_time(message: MessageExt) -> bool:
    """Whether the broker reads a time from a message.

    A power cut may take the properties of a record that was not synced, or a part of the time's digits: RocketMQ's CRC
    covers the body alone.
    """
    return message.properties.get("TIMER_OUT_MS", "").isdigit()


def enqueue_all(store: MessageStore, timers: TimerMessageStore, now_ms: int, end: int = 1 << 40) -> None:
    """Give a slot to each message of the queue that has none, up to a queue offset.

    A message without a time is passed over, as the broker does.
    """
    while timers.queue_offset < end:
        most = min(end - timers.queue_offset, 5)
        messages = store.get_message(TIMER_TOPIC, 0, timers.queue_offset, most).messages()
        if not messages:
            return
        offsets = np.array([one.commit_log_offset for one in messages], np.int64)
        have_units = timers.have_units(offsets)
        rows = [
            (max(int(one.properties["TIMER_OUT_MS"]), timers.read_time_ms), one.commit_log_offset, one.store_size)
            for one, has_unit in zip(messages, have_units.tolist(), strict=True)
            if has_time(one) and not has_unit
        ]
        times, offsets, sizes = np.array(rows, np.int64).reshape(-1, 3).T
        magics, hashes = (
            np.full(len(rows), Magic.DEFAULT, np.int32),
            np.full(len(rows), string_hash("orders"), np.int32),
        )
        timers.enqueue(TimerEntries(times, magics, offsets, sizes.astype(np.int32), hashes), now_ms)
        timers.queue_offset = messages[-1].queue_offset + 1


def bodies(store: MessageStore, timers: TimerMessageStore, time_ms: int) -> list[bytes]:
    """The bodies of the messages of a slot."""
    found = []
    for unit in timers.units(time_ms):
        message = store.look_message_by_offset(unit.commit_log_offset)
        assert message is not None
        found.append(message.body)
    return found

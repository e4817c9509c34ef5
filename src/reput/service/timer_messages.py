"""Rules of messages with a time (`HookUtils`, `TimerMessageStore`): when one is due, which slot it waits in."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from reput.errors import MessageIllegalError
from reput.formats.properties import (
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
)
from reput.remoting.timer_properties import TIMER_REQUESTS

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def deliver_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """The time (ms) at which a message is to be delivered that is stored now; None if it names none.

    Raises:
        MessageIllegalError: It is no number.
    """
    for name in TIMER_REQUESTS:
        text = properties.get(name)
        if text is not None:
            if not _NUMBER.fullmatch(text):
                raise MessageIllegalError(f"the property {name} is {text[:40]!r}, no number")
            number = int(text)
            if name == TIMER_DELIVER_MS:
                return number
            return now_ms + number * (1000 if name == TIMER_DELAY_SEC else 1)
    return None


def out_time(deliver_ms: int, precision_ms: int) -> int:
    """The time of the slot of a message (TIMER_OUT_MS): the last multiple of the precision before its own time."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def due_time(properties: Mapping[str, str], stored_ms: int, out_ms: int, precision_ms: int) -> int:
    """The exact time (ms) at which a message is due, after its slot's time and at most one precision later.

    A message with a delay that was put back into the log on its way is due at the end of its slot, since its first
    store time is not known any more.
    """
    try:
        due_ms = deliver_time(properties, stored_ms)
    except MessageIllegalError:
        due_ms = None
    latest = out_ms + precision_ms
    return latest if due_ms is None else min(max(due_ms, out_ms + 1), latest)


def slot_times(
    out_ms: npt.NDArray[np.int64], stored_ms: npt.NDArray[np.int64], window_ms: int, precision_ms: int
) -> npt.NDArray[np.int64]:
    """The time of the slot in which each message is to wait: its own, or an earlier one, to be put back there.

    It does not depend on now, so that a slave that becomes master knows what its master has put back.

    Args:
        out_ms: int64[messages], times of their own slots.
        stored_ms: int64[messages], store times of the records, rounded down to the precision.
        window_ms: The longest wait in one slot.
        precision_ms: Length of a slot.
    """
    beyond_ms, slots = out_ms - stored_ms - window_ms, window_ms // precision_ms
    is_near = beyond_ms < slots // 3 * precision_ms  # give enough time to the next one
    steps = np.where(is_near, slots // 2 * precision_ms, window_ms)
    return np.where(beyond_ms < 0, out_ms, stored_ms + steps)


def delete_key(real_topic: str, unique_key: str) -> str:
    """The value of TIMER_DEL_UNIQKEY of a message that deletes another one."""
    return f"{real_topic}+{unique_key}"


def added_when_due(*, enqueued_ms: int, now_ms: int, roll_times: str | None) -> dict[str, str]:
    """The properties that a message gets whose slot is due, as it is put into its topic, or back into the log.

    Args:
        enqueued_ms: When it came into the slot.
        now_ms: The time.
        roll_times: What TIMER_ROLL_TIMES of a message says that is put back; None for one that is delivered.
    """
    added = {TIMER_ENQUEUE_MS: str(enqueued_ms)}
    if roll_times is not None:
        added[TIMER_ROLL_TIMES] = str(int(roll_times) + 1 if _NUMBER.fullmatch(roll_times) else 1)
    added[TIMER_DEQUEUE_MS] = str(now_ms)
    return added

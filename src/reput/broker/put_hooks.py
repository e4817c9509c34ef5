"""What is done to each message before it is put (`HookUtils`): a message with a delay waits in another topic."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reput.broker.inner_message import MessageExtBrokerInner
from reput.errors import MessageIllegalError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.properties import DELAY, REAL_QID, REAL_TOPIC
from reput.formats.record_layout import SysFlag
from reput.service.pop.topics import REVIVE_TOPIC_PREFIX
from reput.service.topic_validator import TRANS_HALF_TOPIC

_TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
#: Of a message that a timer has delivered: its time is over.
_TIMER_OUT = "TIMER_OUT_MS"
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


def handle_schedule_message(message: MessageExtBrokerInner, max_delay_level: int) -> None:
    """Let a message with a delay level wait in SCHEDULE_TOPIC_XXXX (`HookUtils.handleScheduleMessage`).

    Of a transaction only the message that is committed waits; its half message has its own topic.

    Args:
        message: Changed in place: topic and queue, and the properties that keep the real ones.
        max_delay_level: A message with a larger level gets this one.

    Raises:
        MessageIllegalError: The level is no number, or the message names a time, which this broker cannot wait for.
    """
    is_half = message.sys_flag & SysFlag.TRANSACTION_MASK not in (0, SysFlag.TRANSACTION_COMMIT)
    if is_half or message.topic == TRANS_HALF_TOPIC:
        return
    properties = message.properties
    level = delay_level(properties)
    if level <= 0:
        if message.topic.startswith(REVIVE_TOPIC_PREFIX):  # its reader knows when they are due
            return
        if _TIMER_OUT not in properties and any(name in properties for name in _TIMERS):
            raise MessageIllegalError("this broker has delay levels, and no timers yet: set a delay level")
        return
    for name in _TIMERS:
        properties.pop(name, None)
    level = min(level, max_delay_level)
    properties |= {DELAY: str(level), REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
    message.topic, message.queue_id = SCHEDULE_TOPIC, level - 1


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level of a message, 0 for none (`Message.getDelayTimeLevel`).

    Raises MessageIllegalError where it is no number.
    """
    text = properties.get(DELAY, "0")
    if not _NUMBER.fullmatch(text):
        raise MessageIllegalError(f"the property DELAY is {text[:40]!r}, no number")
    return int(text)

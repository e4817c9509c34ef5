"""Hooks on each message before it is put (`HookUtils`): a message with a delay or a time waits elsewhere."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.config.message_store import MessageStoreConfig
from reput.errors import MessageIllegalError, RemotingCommandError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.java import INT32_MAX
from reput.formats.properties import DELAY, REAL_QID, REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from reput.formats.record_layout import SysFlag
from reput.formats.timer_log import TIMER_TOPIC
from reput.remoting.codes import ResponseCode
from reput.remoting.timer_properties import TIMER_REQUESTS
from reput.remoting.topic_validator import TRANS_HALF_TOPIC
from reput.service.timer_messages import delete_key, deliver_time, out_time

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class PutHooks:
    """Lets messages wait for their delay level or their time.

    Args:
        config: The store's keys.
        num_of_slot: The number of messages that wait in the slot of a time (ms).
    """

    def __init__(self, config: MessageStoreConfig, num_of_slot: Callable[[int], int]) -> None:
        self._config = config
        self._max_delay_level = len(config.delay_levels_ms)
        self._num_of_slot = num_of_slot

    def handle_schedule_message(self, message: MessageExtBrokerInner, now_ms: int) -> None:
        """Let a message with a delay level wait in SCHEDULE_TOPIC_XXXX, one with a time in rmq_sys_wheel_timer.

        A time that has passed is no reason to wait. Of a transaction only the message that is committed waits; its half
        message has its own topic (`HookUtils.handleScheduleMessage`).

        Args:
            message: Changed in place: topic and queue, and the properties that keep the real ones.
            now_ms: The time.

        Raises:
            MessageIllegalError: The level is no number.
            RemotingCommandError: It cannot wait for its time: the time is no number or too far, the message deletes
                another one too late, there are no timers, or too many messages wait for the same moment.
        """
        is_half = message.sys_flag & SysFlag.TRANSACTION_MASK not in (0, SysFlag.TRANSACTION_COMMIT)
        if is_half or message.topic in (TRANS_HALF_TOPIC, TIMER_TOPIC):
            return
        properties = message.properties
        level = delay_level(properties)
        if level > 0:
            for name in TIMER_REQUESTS:
                properties.pop(name, None)
            level = min(level, self._max_delay_level)
            properties[DELAY] = str(level)
            _wait_in(message, SCHEDULE_TOPIC, level - 1)
        elif TIMER_OUT_MS not in properties and any(name in properties for name in TIMER_REQUESTS):
            self._wait_for_time(message, now_ms)

    def _wait_for_time(self, message: MessageExtBrokerInner, now_ms: int) -> None:
        """Let a message wait for its time (`transformTimerMessage`)."""
        properties = message.properties
        self._check_enabled()
        try:
            deliver_ms = deliver_time(properties, now_ms)
        except MessageIllegalError:
            raise self._illegal() from None
        assert deliver_ms is not None
        deletes = properties.get(TIMER_DEL_UNIQKEY)
        if deletes is not None and (deliver_ms <= now_ms or not deletes.startswith(delete_key(message.topic, ""))):
            raise self._illegal()
        out_ms = self.slot_of(deliver_ms, now_ms)
        if out_ms is not None:
            properties[TIMER_OUT_MS] = str(out_ms)
            _wait_in(message, TIMER_TOPIC, 0)

    def slot_of(self, deliver_ms: int, now_ms: int) -> int | None:
        """The time (ms) of the slot in which a message waits for its time; None: its time has come.

        Raises:
            RemotingCommandError: As of `handle_schedule_message`.
        """
        config = self._config
        self._check_enabled()
        if deliver_ms <= now_ms:
            return None
        if deliver_ms - now_ms > config.timer_max_delay_sec * 1000:
            raise self._illegal()
        out_ms = out_time(deliver_ms, config.timer_precision_ms)
        self._check_congestion(out_ms)
        return out_ms

    def times_of(self, slot_ms: int, now_ms: int) -> tuple[int, int]:
        """First and last time (ms) for which `slot_of` says the same as for the one of which it said a slot."""
        config = self._config
        last = min(slot_ms + config.timer_precision_ms, now_ms + config.timer_max_delay_sec * 1000)
        return max(slot_ms, now_ms) + 1, last

    def _check_enabled(self) -> None:
        if not self._config.timer_wheel_enable:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)

    def _check_congestion(self, out_ms: int) -> None:
        """Refuse some messages for a slot with many, and all for one with twice as many (`isReject`)."""
        most = self._config.timer_congest_num_each_slot
        if most == INT32_MAX:  # as by default: no slot counts further
            return
        beyond = self._num_of_slot(out_ms) - most
        if beyond > 0 and (beyond >= most or random.randrange(1000) > 1000 * beyond / (most + 0.1)):
            remark = (
                f"timer message is under flow control, max num limit is {2 * most} or the current value is greater "
                f"than {most} and less than {2 * most}, trigger random flow control"
            )
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)

    def _illegal(self) -> RemotingCommandError:
        remark = (
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
            "current time"
        )
        return RemotingCommandError(ResponseCode.MESSAGE_ILLEGAL, remark)


def _wait_in(message: MessageExtBrokerInner, topic: str, queue_id: int) -> None:
    message.properties |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
    message.topic, message.queue_id = topic, queue_id


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level of a message, 0 for none (`Message.getDelayTimeLevel`).

    Raises MessageIllegalError if it is no number.
    """
    text = properties.get(DELAY, "0")
    if not _NUMBER.fullmatch(text):
        raise MessageIllegalError(f"the property DELAY is {text[:40]!r}, no number")
    return int(text)

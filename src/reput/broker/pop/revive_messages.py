"""ReviveMessages: check points and acks on their way into the revive topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from reput.broker.state import BrokerState
from reput.errors import RemotingCommandError, ReputError, WouldWaitError
from reput.formats.pop_messages import (
    ACK_TAG,
    ACK_TIME_INTERVAL_MS,
    BATCH_ACK_TAG,
    CK_TAG,
    TIMER_DELIVER_MS,
    Ack,
    CheckPoint,
    CheckPointKey,
    ack_unique_key,
    check_point_unique_key,
    encode_acks,
    encode_batch_ack,
    encode_check_point,
)
from reput.formats.properties import REAL_QID, REAL_TOPIC, TAGS, TIMER_OUT_MS, UNIQ_KEY
from reput.log.store_host import encode_store_host
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.pop.pop_stats import ACK, CK, PUT_FAILED, PUT_OK, PopStats
from reput.service.pop.topics import revive_topic_of
from reput.store.put_rows import PutRow
from reput.store.timer.timer_message_store import TIMER_TOPIC
from reput.transport.requests import Answer


class ReviveMessage(NamedTuple):
    """A check point or acks (`kind`: CK, ACK) of a pop, as the store takes them."""

    key: CheckPointKey
    kind: str
    row: PutRow


class ReviveMessages:
    """Makes and puts them; the timer holds each back until it is due (docs/formats/pop.md).

    What makes one raises as `PutHooks.slot_of`, and RemotingCommandError for a name that would add properties.

    Attributes:
        topic: The revive topic.
        stats: Counts what is put.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.topic = revive_topic_of(state.config.broker_cluster_name)
        self._host = encode_store_host(state.store.config)
        self.stats = PopStats()

    def has_queue(self, revive_qid: int) -> bool:
        """Whether somebody reads this revive queue; a handle may name any."""
        return 0 <= revive_qid < self._state.config.revive_queue_num

    # -- making

    def check_point(self, check_point: CheckPoint, revive_qid: int) -> ReviveMessage:
        """A check point."""
        key, deliver_ms = check_point.key, check_point.revive_time - ACK_TIME_INTERVAL_MS
        content = encode_check_point(check_point), check_point_unique_key(key)
        return self._messages(key, [content], CK_TAG, revive_qid, deliver_ms)[0]

    def acks(self, ack: Ack, revive_qid: int, revive_time: int) -> list[ReviveMessage]:
        """An ack for each message."""
        key, offsets = ack
        unique_keys = [ack_unique_key(key, offset) for offset in offsets]
        contents = list(zip(encode_acks(key, offsets), unique_keys, strict=True))
        return self._messages(key, contents, ACK_TAG, revive_qid, revive_time)

    def batch_ack(self, ack: Ack, revive_qid: int, revive_time: int) -> ReviveMessage:
        """One ack for several messages."""
        key = ack.key
        return self._messages(
            key, [(encode_batch_ack(ack), ack_unique_key(key, -1))], BATCH_ACK_TAG, revive_qid, revive_time
        )[0]

    def _messages(
        self, key: CheckPointKey, contents: Sequence[tuple[bytes, str]], tag: str, revive_qid: int, deliver_ms: int
    ) -> list[ReviveMessage]:
        """The rows that messages become behind `PutHooks`, by their bodies and unique keys; thousands a second."""
        if any("\x01" in unique_key or "\x02" in unique_key for _, unique_key in contents):
            remark = "the name of a group or a broker has 0x01 or 0x02, which would add properties to the message"
            raise RemotingCommandError(ResponseCode.MESSAGE_ILLEGAL, remark)
        now_ms, topic, queue_id, kind = self._state.now_ms(), self.topic, revive_qid, CK if tag == CK_TAG else ACK
        try:
            out_ms = self._state.hooks.slot_of(deliver_ms, now_ms)
        except ReputError:
            self.stats.inc_put(key, kind, PUT_FAILED, len(contents))
            raise
        before, after = f"{TIMER_DELIVER_MS}\x01{deliver_ms}\x02{UNIQ_KEY}\x01", f"\x02{TAGS}\x01{tag}\x02"
        if out_ms is not None:
            after += f"{TIMER_OUT_MS}\x01{out_ms}\x02{REAL_TOPIC}\x01{topic}\x02{REAL_QID}\x01{revive_qid}\x02"
            topic, queue_id = TIMER_TOPIC, 0
        messages = []
        for body, unique_key in contents:
            properties = f"{before}{unique_key}{after}".encode("utf-8", "replace")
            row = PutRow(topic, queue_id, body, properties, 0, 0, now_ms, self._host)
            messages.append(ReviveMessage(key, kind, row))
        return messages

    # -- putting

    async def append_check_point(self, check_point: CheckPoint, revive_qid: int) -> int:
        """Put a check point, and return the log offset after it; errors as of `Appends.append`."""
        message, status = self.check_point(check_point, revive_qid), PUT_FAILED
        try:
            end_offset = (await self._state.appends.append_row(message.row)).end_offset
            status = PUT_OK
        finally:
            self.stats.inc_put(message.key, message.kind, status)
        return end_offset

    def put_now(self, messages: Sequence[ReviveMessage]) -> list[ReputError | None]:
        """Put what several requests bring, and return the fault of each that was not put: `Appends.append_rows_now`.

        Where no room could be made in the log, the reason is the fault; else WouldWaitError.
        """
        if not messages:
            return []
        results = self._state.appends.append_rows_now([message.row for message in messages])
        faults = [result if isinstance(result, ReputError) else None for result in results]
        no_room = self._state.room.failure
        if no_room is not None:
            faults = [no_room if isinstance(fault, WouldWaitError) else fault for fault in faults]
        counts = Counter(
            (message.key, message.kind, PUT_OK if fault is None else PUT_FAILED)
            for message, fault in zip(messages, faults, strict=True)
            if not isinstance(fault, WouldWaitError)
        )
        for counted, count in counts.items():
            self.stats.inc_put(*counted, count)
        return faults

    def answer(
        self, messages: Sequence[ReviveMessage], answer: RemotingCommand
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Put what a request brings, and return its answer, as `Appends.answer_rows` does."""

        def told(number: int, is_put: bool) -> None:
            message = messages[number]
            self.stats.inc_put(message.key, message.kind, PUT_OK if is_put else PUT_FAILED)

        return self._state.appends.answer_rows([message.row for message in messages], answer, told)

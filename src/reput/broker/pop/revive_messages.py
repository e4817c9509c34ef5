"""ReviveMessages: check points and acks on their way into the revive topic."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.clock import BrokerClock
from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError, ReputError
from reput.formats.pop_messages import (
    ACK_TAG,
    ACK_TIME_INTERVAL_MS,
    BATCH_ACK_TAG,
    CK_TAG,
    Ack,
    CheckPoint,
    CheckPointKey,
    ack_unique_key,
    check_point_unique_key,
    encode_acks,
    encode_batch_ack,
    encode_check_point,
)
from reput.formats.properties import REAL_QID, REAL_TOPIC, TAGS, TIMER_DELIVER_MS, TIMER_OUT_MS, UNIQ_KEY
from reput.formats.timer_log import TIMER_TOPIC
from reput.log.store_host import encode_store_host
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.pop.pop_stats import ACK, CK, PUT_FAILED, PUT_OK, PopStats
from reput.service.pop.topics import revive_topic_of
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.transport.requests import Answer


class ReviveMessage(NamedTuple):
    """A check point or acks (`kind`: CK, ACK) of a pop, as the store takes them."""

    key: CheckPointKey
    kind: str
    row: PutRow


class Place(NamedTuple):
    """Destination of a message: revive queue, delivery time, and the slot where it waits (ms; None: at once)."""

    revive_qid: int
    deliver_ms: int
    out_ms: int | None


class ReviveMessages:
    """Makes and puts them; the timer holds each back until it is due (docs/formats/pop.md).

    What makes one raises as `PutHooks.slot_of`, and RemotingCommandError for a name that would add properties.

    Attributes:
        topic: The revive topic.
        stats: Counts what is put.
    """

    def __init__(
        self, view: BrokerView, clock: BrokerClock, store: MessageStore, hooks: PutHooks, appends: Appends
    ) -> None:
        self._view, self._clock, self._hooks, self._appends = view, clock, hooks, appends
        self.topic = revive_topic_of(view.config.broker_cluster_name)
        self._host = encode_store_host(store.config)
        self.stats = PopStats()

    @property
    def queues(self) -> int:
        """The number of revive queues."""
        return self._view.config.revive_queue_num

    def has_queue(self, revive_qid: int) -> bool:
        """Whether somebody reads this revive queue; a handle may name any."""
        return 0 <= revive_qid < self.queues

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

    def ack_row(self, key: CheckPointKey, offset: int, place: Place) -> PutRow:
        """The row of the ack of one message whose place is known.

        Raises RemotingCommandError for a name that would add properties.
        """
        unique_key = ack_unique_key(key, offset)
        _check_unique_key(unique_key)
        return self._row((encode_acks(key, [offset])[0], unique_key), ACK_TAG, place, self._clock.now_ms())

    def batch_ack(self, ack: Ack, revive_qid: int, revive_time: int) -> ReviveMessage:
        """One ack for several messages."""
        key = ack.key
        return self._messages(
            key, [(encode_batch_ack(ack), ack_unique_key(key, -1))], BATCH_ACK_TAG, revive_qid, revive_time
        )[0]

    def _messages(
        self, key: CheckPointKey, contents: Sequence[tuple[bytes, str]], tag: str, revive_qid: int, deliver_ms: int
    ) -> list[ReviveMessage]:
        """The rows that messages become behind `PutHooks`, by their bodies and unique keys."""
        now_ms, kind = self._clock.now_ms(), CK if tag == CK_TAG else ACK
        for _, unique_key in contents:
            _check_unique_key(unique_key)
        try:
            out_ms = self._hooks.slot_of(deliver_ms, now_ms)
        except ReputError:
            self.stats.inc_put(key, kind, PUT_FAILED, len(contents))
            raise
        place = Place(revive_qid, deliver_ms, out_ms)
        return [ReviveMessage(key, kind, self._row(content, tag, place, now_ms)) for content in contents]

    def _row(self, content: tuple[bytes, str], tag: str, place: Place, now_ms: int) -> PutRow:
        (body, unique_key), (queue_id, deliver_ms, out_ms) = content, place
        text = f"{TIMER_DELIVER_MS}\x01{deliver_ms}\x02{UNIQ_KEY}\x01{unique_key}\x02{TAGS}\x01{tag}\x02"
        topic = self.topic
        if out_ms is not None:
            text += f"{TIMER_OUT_MS}\x01{out_ms}\x02{REAL_TOPIC}\x01{topic}\x02{REAL_QID}\x01{queue_id}\x02"
            topic, queue_id = TIMER_TOPIC, 0
        return PutRow(topic, queue_id, body, text.encode("utf-8", "replace"), 0, 0, now_ms, self._host)

    # -- putting

    async def append_check_point(self, check_point: CheckPoint, revive_qid: int) -> PutRowResult:
        """Put a check point, and return where it went; errors as of `Appends.append`."""
        message, status = self.check_point(check_point, revive_qid), PUT_FAILED
        try:
            stored = await self._appends.append_row(message.row)
            status = PUT_OK
        finally:
            self.stats.inc_put(message.key, message.kind, status)
        return stored

    def answer(
        self, messages: Sequence[ReviveMessage], answer: RemotingCommand
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Put what a request brings, and return its answer, as `Appends.answer_rows` does."""

        def told(number: int, is_put: bool) -> None:
            message = messages[number]
            self.stats.inc_put(message.key, message.kind, PUT_OK if is_put else PUT_FAILED)

        return self._appends.answer_rows([message.row for message in messages], answer, told)


def _check_unique_key(unique_key: str) -> None:
    if "\x01" in unique_key or "\x02" in unique_key:
        remark = "the name of a group or a broker has 0x01 or 0x02, which would add properties to the message"
        raise RemotingCommandError(ResponseCode.MESSAGE_ILLEGAL, remark)

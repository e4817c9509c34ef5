"""ReviveMessages: check points and acks on their way into the revive topic."""

from __future__ import annotations

from reput.broker.inner_message import MessageExtBrokerInner
from reput.broker.state import BrokerState
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
    encode_ack,
    encode_batch_ack,
    encode_check_point,
)
from reput.formats.properties import TAGS, UNIQ_KEY
from reput.log.store_host import encode_store_host
from reput.service.pop.pop_stats import ACK, CK, PUT_FAILED, PUT_OK, PopStats
from reput.service.pop.topics import revive_topic_of


class ReviveMessages:
    """Puts them; the timer holds each back until it is due (docs/formats/pop.md).

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

    async def append_check_point(self, check_point: CheckPoint, revive_qid: int) -> int:
        """Put a check point, and return the log offset after it; errors as of `Appends.append`."""
        body, key = encode_check_point(check_point), check_point_unique_key(check_point.key)
        deliver_ms = check_point.revive_time - ACK_TIME_INTERVAL_MS
        return await self._append(check_point.key, body, CK_TAG, key, revive_qid, deliver_ms)

    async def append_ack(self, ack: Ack, revive_qid: int, revive_time: int) -> int:
        """Put the ack of one message, and return the log offset after it; errors as of `Appends.append`."""
        (offset,) = ack.offsets
        body, key = encode_ack(ack.key, offset), ack_unique_key(ack.key, offset)
        return await self._append(ack.key, body, ACK_TAG, key, revive_qid, revive_time)

    async def append_batch_ack(self, ack: Ack, revive_qid: int, revive_time: int) -> int:
        """Put the ack of several messages, and return the log offset after it; errors as of `Appends.append`."""
        body, key = encode_batch_ack(ack), ack_unique_key(ack.key, -1)
        return await self._append(ack.key, body, BATCH_ACK_TAG, key, revive_qid, revive_time)

    async def _append(
        self, key: CheckPointKey, body: bytes, tag: str, unique_key: str, revive_qid: int, deliver_ms: int
    ) -> int:
        properties = {TIMER_DELIVER_MS: str(deliver_ms), UNIQ_KEY: unique_key, TAGS: tag}
        now_ms = self._state.now_ms()
        message = MessageExtBrokerInner(self.topic, revive_qid, body, properties, 0, 0, now_ms, self._host)
        kind, status = CK if tag == CK_TAG else ACK, PUT_FAILED
        try:
            result = await self._state.appends.append(message)
            status = PUT_OK
        finally:
            self.stats.inc_put(key, kind, status)
        return result.end_offset

"""Receipt handles: their words, and which are to be renewed when (`ReceiptHandle`, `DefaultReceiptHandleManager`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from reput.errors import RemotingCommandError
from reput.formats.metadata import SubscriptionGroupConfig
from reput.remoting.extra_info import NORMAL, RETRY_V2, decode_extra_info
from reput.remoting.grpc.grpc_codes import Code
from reput.service.grpc.client_settings import next_delay_ms
from reput.service.grpc.statuses import RefusedCallError
from reput.service.pop.topics import pop_retry_topic_of

_KeeperT = TypeVar("_KeeperT", bound=Hashable)

#: Keys of Apache's proxy, by their defaults: renewSchedulePeriodMillis, renewAheadTimeMillis, renewMaxTimeMillis,
#: maxRenewRetryTimes, invisibleTimeMillsWhenClear, defaultInvisibleTimeMills.
RENEW_SCHEDULE_PERIOD_S = 5.0
_RENEW_AHEAD_TIME_MS, _RENEW_MAX_TIME_MS, _MAX_RENEW_RETRY_TIMES = 10_000, 3 * 3_600_000, 3
INVISIBLE_TIME_WHEN_CLEAR_MS, DEFAULT_INVISIBLE_TIME_MS = 1000, 60_000
#: How long a message is made invisible by its first renewal, the next one, and so on (`RenewStrategyPolicy`).
_STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
#: Messages of a client that are renewed, and of all: what is popped above that has its invisible time once.
_MOST_OF_CLIENT, _MOST = 1 << 15, 1_000_000
_WORDS, _WORDS_WITH_LOG_OFFSET = 8, 9


class ReceiptHandle(NamedTuple):
    """A handle and what its words say; times in ms.

    `kind`: of the topic that holds the message; `commit_log_offset`: None in a handle without it.
    """

    text: str
    pop_time: int
    invisible_time: int
    kind: str
    broker_name: str
    queue_id: str
    queue_offset: str
    commit_log_offset: str | None

    def real_topic(self, topic: str, group: str) -> str:
        """The topic that holds the message."""
        return topic if self.kind == NORMAL else pop_retry_topic_of(topic, group, v2=self.kind == RETRY_V2)

    def changed(self, pop_time: str, invisible_time: str, revive_qid: str, *, is_in_order: bool) -> str:
        """The handle after the invisible time was changed: the new check point begins with the message itself."""
        words = self.text.split(" ")
        start = words[0] if is_in_order else self.queue_offset
        return " ".join((start, pop_time, invisible_time, revive_qid, *words[4:]))


def decode_handle(text: str) -> ReceiptHandle:
    """The words of a handle; raises RefusedCallError if they are no handle's."""
    words = text.split(" ", _WORDS_WITH_LOG_OFFSET)
    if len(words) < _WORDS:
        raise RefusedCallError(Code.INTERNAL_SERVER_ERROR, f"Parse failed, dataList size {len(words)}")
    try:
        info = decode_extra_info(text)
    except RemotingCommandError as error:
        raise RefusedCallError(Code.INTERNAL_SERVER_ERROR, error.remark) from None
    log_offset = words[8] if len(words) > _WORDS else None
    kind, broker_name, queue_id, queue_offset = words[4:8]
    if not (queue_id.isascii() and queue_id.isdigit() and queue_offset.isascii() and queue_offset.isdigit()):
        raise RefusedCallError(Code.INTERNAL_SERVER_ERROR, f"Parse failed, queue {queue_id[:20]} {queue_offset[:20]}")
    return ReceiptHandle(
        text, info.pop_time, info.invisible_time, kind, broker_name, queue_id, queue_offset, log_offset
    )


def check_not_expired(handle: ReceiptHandle, now_ms: int) -> None:
    """Raise RefusedCallError for a handle whose message may have been handed out again."""
    if handle.pop_time + handle.invisible_time <= now_ms:
        raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")


class HandleKey(NamedTuple):
    """A message of a client as its handles name it, whatever was renewed."""

    group: str
    message_id: str
    broker_name: str
    queue_id: str
    queue_offset: str


@dataclass(slots=True, eq=False)
class RenewedHandle:
    """A message that is kept invisible for its client. `user`: on whose behalf, if users are known."""

    group: str
    topic: str
    handle: ReceiptHandle
    reconsume_times: int
    first_pop_ms: int
    user: str
    renewals: int = 0
    failures: int = 0


class Renewal(NamedTuple):
    """A message whose invisible time is to be changed; `is_last`: nothing renews it afterwards."""

    renewed: RenewedHandle
    invisible_time: int
    is_last: bool


class ReceiptHandles(Generic[_KeeperT]):
    """The messages that clients hold and have not acked, whose invisible time the broker renews."""

    def __init__(self) -> None:
        self._of: dict[_KeeperT, dict[HandleKey, RenewedHandle]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Messages that are renewed."""
        return self._count

    def add(self, keeper: _KeeperT, key: HandleKey, renewed: RenewedHandle) -> None:
        """Renew a message that a client has received from now on."""
        handles = self._of.setdefault(keeper, {})
        if self._count < _MOST and len(handles) < _MOST_OF_CLIENT:
            self._count += key not in handles
            handles[key] = renewed

    def take(self, keeper: _KeeperT, group: str, message_id: str, handle: ReceiptHandle) -> ReceiptHandle:
        """The handle as it is now, which nothing renews any more; the given one, if nothing renewed it."""
        key = HandleKey(group, message_id, handle.broker_name, handle.queue_id, handle.queue_offset)
        renewed = self._remove(keeper, key)
        return handle if renewed is None else renewed.handle

    def _remove(self, keeper: _KeeperT, key: HandleKey) -> RenewedHandle | None:
        handles = self._of.get(keeper, {})
        renewed = handles.pop(key, None)
        if renewed is not None:
            self._count -= 1
            if not handles:
                del self._of[keeper]
        return renewed

    def clear(self, keeper: _KeeperT) -> list[RenewedHandle]:
        """The messages of a client that is gone; nothing renews them any more."""
        handles = list(self._of.pop(keeper, {}).values())
        self._count -= len(handles)
        return handles

    @property
    def keepers(self) -> list[_KeeperT]:
        """Clients that hold messages."""
        return list(self._of)

    def due(
        self, keeper: _KeeperT, now_ms: int, config_of: Mapping[str, SubscriptionGroupConfig]
    ) -> Iterable[tuple[HandleKey, Renewal]]:
        """Renewals of a client that are to be done now; config_of: the groups by name."""
        for key, renewed in list(self._of.get(keeper, {}).items()):
            handle = renewed.handle
            left_ms = handle.pop_time + handle.invisible_time - now_ms
            if left_ms <= 0:
                self._remove(keeper, key)
            elif now_ms - renewed.first_pop_ms >= _RENEW_MAX_TIME_MS:
                self._remove(keeper, key)
                config = config_of.get(renewed.group)
                yield key, Renewal(renewed, next_delay_ms(config, renewed.reconsume_times), True)
            elif left_ms <= _RENEW_AHEAD_TIME_MS:
                step = min(renewed.renewals, len(_STEPS_MS) - 1)
                yield key, Renewal(renewed, _STEPS_MS[step], False)

    def renewed(self, keeper: _KeeperT, key: HandleKey, renewed: RenewedHandle, handle: ReceiptHandle | None) -> None:
        """Take the handle of a renewal; None: it has failed."""
        if self._of.get(keeper, {}).get(key) is not renewed:  # acked meanwhile
            return
        if handle is not None:
            renewed.handle, renewed.failures = handle, 0
            renewed.renewals += 1
            return
        renewed.failures += 1
        if renewed.failures >= _MAX_RENEW_RETRY_TIMES:
            self._remove(keeper, key)

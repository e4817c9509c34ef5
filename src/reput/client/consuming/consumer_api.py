"""ConsumerAPI: the requests of consumers to brokers (`MQClientAPIImpl`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from reput.client.instance.heartbeat import subscription_members
from reput.client.instance.mq_client_api import MQClientAPI, checked, decoded, unreadable
from reput.errors import MQBrokerError, RemotingCommandError, SubscriptionError
from reput.remoting.body import decode_json, encode_body
from reput.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.consumer_headers import (
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from reput.remoting.header import encode_header
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader
from reput.remoting.subscription_data import SubscriptionData

#: How long a broker without a message waits for one, and how long a client waits for the broker.
SUSPEND_MS, PULL_S = 15_000, 30.0
_OFFSET_S = 5.0
#: Answers to a pull that say where to go on.
_PULLED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED


class PullResult(NamedTuple):
    """Result of a pull.

    Attributes:
        body: Records, one after the other; none if nothing was found.
        next_begin_offset: Queue offset of the next pull.
        min_offset, max_offset: Of the queue: its first message, and its next one.
        is_moved: The offset that was asked for is not in the queue.
        suggested_broker_id: The broker to pull from next time.
    """

    body: bytes
    next_begin_offset: int
    min_offset: int
    max_offset: int
    is_moved: bool
    suggested_broker_id: int


class ConsumerAPI:
    """Asks brokers by their addresses; errors as of `MQClientAPI`."""

    def __init__(self, api: MQClientAPI) -> None:
        self._api = api

    async def pull(
        self,
        address: str,
        group: str,
        queue: QueueKey,
        offset: int,
        subscription: SubscriptionData,
        *,
        count: int,
        commit_offset: int | None = None,
    ) -> PullResult:
        """Messages of a queue from an offset on; the broker waits for one, if there is none yet."""
        fields = pull_fields(group, queue, subscription, suspends=True) | pulled_from(offset, count)
        if commit_offset is not None:
            flags = int(fields["sysFlag"]) | PullSysFlag.COMMIT_OFFSET
            fields |= {"sysFlag": str(int(flags)), "commitOffset": str(commit_offset)}
        command = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)
        return pull_result(address, await self._api.ask(address, command, PULL_S))

    async def committed(self, address: str, group: str, queue: QueueKey) -> int | None:
        """The offset of a group in a queue; None if it has none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        try:
            answer = await self._api.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=_OFFSET_S)
        except MQBrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return decoded(address, QueryConsumerOffsetResponseHeader, answer.ext_fields).offset

    async def commit(self, address: str, group: str, queue: QueueKey, offset: int) -> None:
        """The next offset of a group in a queue is this one."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        await self._api.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=_OFFSET_S)

    async def max_offset(self, address: str, queue: QueueKey) -> int:
        """The offset of a queue's next message."""
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._api.call(address, RequestCode.GET_MAX_OFFSET, header)
        return decoded(address, GetMaxOffsetResponseHeader, answer.ext_fields).offset

    async def min_offset(self, address: str, queue: QueueKey) -> int:
        """The offset of a queue's first message."""
        header = GetMinOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._api.call(address, RequestCode.GET_MIN_OFFSET, header)
        return decoded(address, GetMaxOffsetResponseHeader, answer.ext_fields).offset

    async def search_offset(self, address: str, queue: QueueKey, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or after it."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        answer = await self._api.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return decoded(address, GetMaxOffsetResponseHeader, answer.ext_fields).offset

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """The ids of a group's members, sorted."""
        header = GetConsumerListByGroupRequestHeader(group)
        answer = await self._api.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        ids = _member(address, answer.body, "consumerIdList")
        return sorted(str(one) for one in ids)

    async def check_client_config(
        self, address: str, group: str, client_id: str, subscription: SubscriptionData
    ) -> None:
        """Let a broker look at a subscription.

        Raises SubscriptionError if the broker cannot read its expression; MQBrokerError if the broker does not
        filter by such ones.
        """
        body = {"clientId": client_id, "group": group, "subscriptionData": subscription_members(subscription)}
        try:
            await self._api.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))
        except MQBrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise
            found = f"topic {subscription.topic}: {subscription.sub_string!r}: {error.remark}"
            raise SubscriptionError(found) from None

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[QueueKey]) -> set[QueueKey]:
        """Lock queues of a broker for a minute; returns those that are now this client's."""
        answer = await self._api.call(address, RequestCode.LOCK_BATCH_MQ, body=_locks(group, client_id, queues))
        locked = _member(address, answer.body, "lockOKMQSet")
        return {QueueKey(str(one["topic"]), str(one["brokerName"]), int(one["queueId"])) for one in locked}

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give locks back."""
        await self._api.call(address, RequestCode.UNLOCK_BATCH_MQ, body=_locks(group, client_id, queues))

    async def send_back(self, address: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        """Let a broker deliver a message to its group again later."""
        await self._api.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=_OFFSET_S)


@lru_cache(maxsize=4096)
def pull_fields(
    group: str, queue: QueueKey, subscription: SubscriptionData, *, suspends: bool = False
) -> MappingProxyType[str, str]:
    """The fields of a pull; `pulled_from` has the others. `suspends`: a broker without a message waits for one."""
    flags = PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND * suspends
    header = PullMessageRequestHeader(
        group, queue.topic, queue.queue_id, 0, 0, int(flags), 0, SUSPEND_MS,
        subscription.sub_version, subscription.sub_string, subscription.expression_type,
    )  # fmt: skip
    return MappingProxyType(encode_header(header) | {"bname": queue.broker_name})


def pulled_from(offset: int, count: int) -> dict[str, str]:
    """The fields of a pull that say from where, and how many messages at most."""
    return {"queueOffset": str(offset), "maxMsgNums": str(count)}


def pull_result(address: str, answer: RemotingCommand) -> PullResult:
    """The result of a pull, by its answer; errors as of `MQClientAPI`."""
    checked(address, answer, *_PULLED)
    found = decoded(address, PullMessageResponseHeader, answer.ext_fields)
    body = answer.body if answer.code == ResponseCode.SUCCESS else b""
    is_moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
    return PullResult(
        body, found.next_begin_offset, found.min_offset, found.max_offset, is_moved, found.suggest_which_broker_id
    )


def _locks(group: str, client_id: str, queues: Iterable[QueueKey]) -> bytes:
    members = [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in queues]
    return encode_body({"clientId": client_id, "consumerGroup": group, "mqSet": members, "onlyThisBroker": False})


def _member(address: str, body: bytes, name: str) -> list[Any]:
    """A list in the body of an answer; raises RemotingError if there is none."""
    try:
        value = decode_json(body)
    except RemotingCommandError as error:
        raise unreadable(address, error.remark) from None
    found = value.get(name, []) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise unreadable(address, f"it has no list {name}")
    return found

"""Pulls (`PullMessageProcessor`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_filters import Refusal, compile_beside, filter_of, registered_filter
from reput.broker.pulls.pull_request_hold_service import PullRequestHoldService
from reput.broker.remarks import SEE_FAQ
from reput.broker.rpc_latency import RpcLatency
from reput.broker.slave.following import Following
from reput.broker.view import BrokerView
from reput.errors import SubscriptionError
from reput.filter.compiled_expressions import take_short
from reput.formats.consumers import MessageModel
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.codes import PermName, PullSysFlag, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header, required
from reput.remoting.pull_frames import encode_found
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader
from reput.remoting.subscription_data import SQL92, SubscriptionData, build_subscription_data, is_tag_type
from reput.replication.ha_service import HAService
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.subscription_group_manager import INDEX_PERM_READ, SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.reads.get_result import GetRawResult
from reput.store.reads.message_filter import MessageFilter
from reput.store.results import GetMessageStatus
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler, answer_later

_CODES = {
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_OFFSET_RESET = "OFFSET_RESET"
#: `ForbiddenType`.
_BROKER_FORBIDDEN, _GROUP_FORBIDDEN, _TOPIC_FORBIDDEN, _BROADCASTING_FORBIDDEN, _SUBSCRIPTION_FORBIDDEN = range(1, 6)
#: Bytes of messages that may be too many for a frame.
_LARGE = MAX_FRAME_SIZE - 1024


class PullMessageProcessor:
    """Takes PULL_MESSAGE and LITE_PULL_MESSAGE.

    Attributes:
        held: The pulls that wait for a message.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        filters: ConsumerFilterManager,
        consumers: ConsumerManager[Channel],
        stats: BrokerStatsManager,
        rpc_latency: RpcLatency | None,
        slave: Following | None,
        ha: HAService | None,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups, self._offsets, self._filters = topics, groups, offsets, filters
        self._consumers, self._stats, self._slave, self._ha = consumers, stats, slave, ha
        self.held = PullRequestHoldService(view, store, rpc_latency, self._pull_again)
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take one request; None if it is held, a coroutine if the disk must be waited for."""
        header: PullMessageRequestHeader = command.cached_header or decode_header(
            PullMessageRequestHeader, command.ext_fields, is_fast=True
        )
        if header.expression_type == SQL92 and not take_short([header.subscription or ""]):
            return self._compile_first(connection, command, header)
        return self._pull(connection, command, header, may_wait=True)

    async def _compile_first(
        self, connection: Channel, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> Answer:
        """Take a request whose expression is not compiled at once, beside the loop."""
        await compile_beside(self._view, self._pools, connection, [header.subscription or ""])
        answer = self._pull(connection, command, header, may_wait=True)
        return await answer if isinstance(answer, Coroutine) else answer

    def _pull_again(self, connection: Channel, command: RemotingCommand, header: PullMessageRequestHeader) -> Answer:
        """Take a request that was held; None if the disk must be waited for: it is answered then."""
        answer = self._pull(connection, command, header, may_wait=False)
        if not isinstance(answer, Coroutine):
            return answer
        task = asyncio.get_running_loop().create_task(answer_later(connection, command, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    def _pull(
        self, connection: Channel, command: RemotingCommand, header: PullMessageRequestHeader, *, may_wait: bool
    ) -> Answer | Coroutine[Any, Any, Answer]:
        group = self._groups.find_subscription_group_config(header.consumer_group, self._clock.now_ms())
        topic = self._topics.select_topic_config(header.topic)
        refusal = self._refusal(connection, command, header, group, topic)
        if refusal is not None:
            return refusal
        assert group is not None
        assert topic is not None
        subscription = self._subscription(command, header, group)
        if isinstance(subscription, RemotingCommand):
            return subscription
        message_filter = self._message_filter(header, subscription)
        if isinstance(message_filter, Refusal):
            return command.response(message_filter.code, message_filter.remark, {})
        reset = self._offsets.query_then_erase_reset_offset(header.topic, header.consumer_group, header.queue_id)
        if reset is not None:
            low = self._store.min_offset(header.topic, header.queue_id)
            high = self._store.max_offset(header.topic, header.queue_id)
            answer = _offsets(reset, low, high, topic, group, group.broker_id)
            return command.response(ResponseCode.PULL_OFFSET_MOVED, _OFFSET_RESET, encode_header(answer))
        tags = subscription.sub_string if subscription.tags and not subscription.class_filter_mode else None
        result = self._store.get_raw(
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, tags, message_filter,
            may_wait=False,
        )  # fmt: skip
        if result is None:
            return self._read(connection, command, header, tags, message_filter, topic, group, first=may_wait)
        code, result = self._outcome(header, result)
        self._commit(header, result.next_begin_offset, first=may_wait)
        may_wait = may_wait and bool(header.sys_flag & PullSysFlag.SUSPEND)
        if (
            code is ResponseCode.PULL_NOT_FOUND
            and may_wait
            and self.held.hold(connection, command, header, tags, message_filter)
        ):
            return None
        return self._answer(command, code, result, topic, group)

    async def _read(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        tags: str | None,
        message_filter: MessageFilter | None,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        *,
        first: bool,
    ) -> Answer:
        """Take a pull of messages that are not in memory, beside the loop; it is not held."""
        result = await self._pools.reads.run_for(
            connection, self._store.get_raw, header.topic, header.queue_id, header.queue_offset, header.max_msg_nums,
            tags, message_filter,
        )  # fmt: skip
        assert result is not None
        code, result = self._outcome(header, result)
        self._commit(header, result.next_begin_offset, first=first)
        return self._answer(command, code, result, topic, group)

    # -- checks

    def _refusal(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig | None,
        topic: TopicConfig | None,
    ) -> RemotingCommand | None:
        """The answer to a pull that is refused, in RocketMQ's order and with its remarks."""
        config = self._view.config

        def refuse(code: int, remark: str, forbidden: int | None = None) -> RemotingCommand:
            return command.response(code, remark, {} if forbidden is None else {"forbiddenType": str(forbidden)})

        if not config.broker_permission & PermName.READ:
            remark = f"the broker[{self._view.ip}] pulling message is forbidden"
            return refuse(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            remark = f"the broker[{self._view.ip}] for lite pull consumer is forbidden"
            return refuse(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {SEE_FAQ}"
            return refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return refuse(ResponseCode.NO_PERMISSION, remark, _GROUP_FORBIDDEN)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {SEE_FAQ}"
            return refuse(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PermName.READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            return refuse(ResponseCode.NO_PERMISSION, remark, _TOPIC_FORBIDDEN)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.remote}]"
            )
            return refuse(ResponseCode.INVALID_PARAMETER, remark)
        return None

    def _subscription(
        self, command: RemotingCommand, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | RemotingCommand:
        """Subscription of the consumer, by the request or by its group's heartbeats; or the answer that refuses it."""
        name, topic = header.consumer_group, header.topic
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            try:
                found = build_subscription_data(topic, header.subscription, header.expression_type)
            except SubscriptionError:
                remark = "parse the consumer's subscription failed"
                return command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark, {})
        else:
            info = self._consumers.consumer_group_info(name)
            if info is None:
                remark = f"the consumer's group info not exist{SEE_FAQ}"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark, {})
            if not group.consume_broadcast_enable and info.message_model is MessageModel.BROADCASTING:
                fields = {"forbiddenType": str(_BROADCASTING_FORBIDDEN)}
                remark = f"the consumer group[{name}] can not consume by broadcast way"
                return command.response(ResponseCode.NO_PERMISSION, remark, fields)
            if self._groups.forbidden(name, topic) & 1 << INDEX_PERM_READ:
                fields = {"forbiddenType": str(_SUBSCRIPTION_FORBIDDEN)}
                remark = f"the consumer group[{name}] is forbidden for topic[{topic}]"
                return command.response(ResponseCode.NO_PERMISSION, remark, fields)
            known = info.subscription_table.get(topic)
            if known is None:
                remark = f"the consumer's subscription not exist{SEE_FAQ}"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark, {})
            if known.sub_version < required(header, "sub_version"):
                remark = "the consumer's subscription not latest"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark, {})
            found = known
        return found

    def _message_filter(
        self, header: PullMessageRequestHeader, subscription: SubscriptionData
    ) -> MessageFilter | Refusal | None:
        if is_tag_type(subscription.expression_type):
            return None
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            return filter_of(self._view, subscription)
        return registered_filter(
            self._view, self._filters, header.consumer_group, subscription, required(header, "sub_version")
        )

    def _outcome(self, header: PullMessageRequestHeader, result: GetRawResult) -> tuple[ResponseCode, GetRawResult]:
        """The code of an answer, and what it tells.

        A slave that has no message sends the consumer to the master. While that is away, the consumer waits, with the
        offset that it has: the slave's queue may end before the master's, or begin later.
        """
        code, slave = _code(header, result), self._slave
        if slave is None or code is ResponseCode.SUCCESS:
            return code, result
        if code is ResponseCode.PULL_OFFSET_MOVED:
            code, result = ResponseCode.PULL_NOT_FOUND, result._replace(next_begin_offset=header.queue_offset)
        if slave.has_master and not result.suggest_pulling_from_slave:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return code, result

    def _suggested(self, result: GetRawResult, group: SubscriptionGroupConfig) -> int:
        """The broker that the consumer is to ask next: a slave, if memory does not hold what it reads."""
        if not result.suggest_pulling_from_slave or not self._view.config.slave_read_enable:
            return group.broker_id
        has_slave = self._slave is not None or (self._ha is not None and self._ha.slaves)
        return group.which_broker_when_consume_slowly if has_slave else group.broker_id

    def _commit(self, header: PullMessageRequestHeader, following: int, *, first: bool) -> None:
        """Keep the offset that a pull brings, not again when a held pull is looked at again."""
        self._offsets.commit_pull_offset(header.consumer_group, header.topic, header.queue_id, following)
        if first and header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            offset = required(header, "commit_offset")
            self._offsets.commit_offset(
                header.consumer_group, header.topic, header.queue_id, offset, self._clock.now_ms()
            )

    def _answer(
        self,
        command: RemotingCommand,
        code: ResponseCode,
        result: GetRawResult,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> RemotingCommand | bytes:
        records = result.records
        suggested = self._suggested(result, group)
        fields = _offsets(result.next_begin_offset, result.min_offset, result.max_offset, topic, group, suggested)
        if code is ResponseCode.SUCCESS:
            self._stats.inc_group_get(group.group_name, topic.topic_name, result.messages, len(records))
            if len(records) < _LARGE:
                return encode_found(command.opaque, fields, records)
        return command.response(code, result.status.name, encode_header(fields), records)


def _code(header: PullMessageRequestHeader, result: GetRawResult) -> ResponseCode:
    if result.status is GetMessageStatus.FOUND:  # as most are; a look into the table takes longer
        return ResponseCode.SUCCESS
    if result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _offsets(
    following: int, low: int, high: int, topic: TopicConfig, group: SubscriptionGroupConfig, suggested: int
) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(
        suggested, following, low, high, topic_sys_flag=topic.topic_sys_flag, group_sys_flag=group.group_sys_flag
    )

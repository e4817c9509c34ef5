"""Pulls (`PullMessageProcessor`), and those that wait for a message (`PullRequestHoldService`)."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from reput.broker.state import SEE_FAQ, BrokerState
from reput.errors import SubscriptionError
from reput.formats.consumers import MessageModel
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.remoting.codes import PermName, PullSysFlag, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader
from reput.service.subscription_data import TAG, SubscriptionData, build_subscription_data
from reput.store.results import GetMessageStatus
from reput.transport.connection import Connection
from reput.transport.requests import Answer, Handler

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_OFFSET_RESET = "OFFSET_RESET"
#: `suggestWhichBrokerId` of a broker that has no slave to suggest.
_MASTER_ID = 0
#: `ForbiddenType`.
_BROKER_FORBIDDEN, _GROUP_FORBIDDEN, _TOPIC_FORBIDDEN, _BROADCASTING_FORBIDDEN, _SUBSCRIPTION_FORBIDDEN = range(1, 6)
_READ_BIT = 1 << 2
#: Held pulls of one broker, and of one connection; a pull beyond that is answered at once.
_MOST_HELD, _MOST_HELD_OF_CONNECTION = 100_000, 10_000
_CHECK_EVERY_S = 1.0


class _HeldPull(NamedTuple):
    """A pull that waits for a message: nothing matches before `offset`."""

    connection: Connection
    command: RemotingCommand
    header: PullMessageRequestHeader
    tags: str | None
    offset: int
    until: float


class PullMessageProcessor:
    """Takes PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._held: dict[tuple[str, int], list[_HeldPull]] = {}
        self._held_of: dict[Connection, int] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the held pulls by time from now on."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Take one request; None where it is held."""
        header = decode_header(PullMessageRequestHeader, command.ext_fields)
        return self._pull(connection, command, header, may_wait=True)

    def _pull(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader, *, may_wait: bool
    ) -> Answer:
        state = self._state
        group = state.groups.find_subscription_group_config(header.consumer_group, state.now_ms())
        topic = state.topics.select_topic_config(header.topic)
        refusal = self._refusal(connection, command, header, group, topic)
        if refusal is not None:
            return refusal
        assert group is not None
        assert topic is not None
        subscription = self._subscription(command, header, group)
        if isinstance(subscription, RemotingCommand):
            return subscription
        reset = state.offsets.query_then_erase_reset_offset(header.topic, header.consumer_group, header.queue_id)
        if reset is not None:
            low = state.store.min_offset(header.topic, header.queue_id)
            high = state.store.max_offset(header.topic, header.queue_id)
            answer = _offsets(reset, low, high, topic, group)
            return command.response(ResponseCode.PULL_OFFSET_MOVED, _OFFSET_RESET, encode_header(answer))
        tags = subscription.sub_string if subscription.tags and not subscription.class_filter_mode else None
        result = state.store.get_message(header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, tags)
        self._commit(header, result.next_begin_offset, first=may_wait)
        if result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[result.status]
        may_wait = may_wait and bool(header.sys_flag & PullSysFlag.SUSPEND)
        if code is ResponseCode.PULL_NOT_FOUND and may_wait and self._hold(connection, command, header, tags):
            return None
        fields = _offsets(result.next_begin_offset, result.min_offset, result.max_offset, topic, group)
        body = b"".join(result.raw()) if result.status is GetMessageStatus.FOUND else b""
        return command.response(code, result.status.name, encode_header(fields), body)

    # -- checks

    def _refusal(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig | None,
        topic: TopicConfig | None,
    ) -> RemotingCommand | None:
        """The answer to a pull that is refused, in RocketMQ's order and with its remarks."""
        config, ip = self._state.config, self._state.ip

        def refuse(code: int, remark: str, forbidden: int | None = None) -> RemotingCommand:
            return command.response(code, remark, {} if forbidden is None else {"forbiddenType": str(forbidden)})

        if not config.broker_permission & PermName.READ:
            remark = f"the broker[{ip}] pulling message is forbidden"
            return refuse(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            remark = f"the broker[{ip}] for lite pull consumer is forbidden"
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
        """What the consumer wants: by the request, or by its group's heartbeats; or the answer that refuses it."""
        state, name, topic = self._state, header.consumer_group, header.topic
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            try:
                found = build_subscription_data(topic, header.subscription, header.expression_type)
            except SubscriptionError:
                remark = "parse the consumer's subscription failed"
                return command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark, {})
        else:
            info = state.consumers.consumer_group_info(name)
            if info is None:
                remark = f"the consumer's group info not exist{SEE_FAQ}"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark, {})
            if not group.consume_broadcast_enable and info.message_model is MessageModel.BROADCASTING:
                fields = {"forbiddenType": str(_BROADCASTING_FORBIDDEN)}
                remark = f"the consumer group[{name}] can not consume by broadcast way"
                return command.response(ResponseCode.NO_PERMISSION, remark, fields)
            if state.groups.forbidden(name, topic) & _READ_BIT:
                fields = {"forbiddenType": str(_SUBSCRIPTION_FORBIDDEN)}
                remark = f"the consumer group[{name}] is forbidden for topic[{topic}]"
                return command.response(ResponseCode.NO_PERMISSION, remark, fields)
            known = info.subscription_table.get(topic)
            if known is None:
                remark = f"the consumer's subscription not exist{SEE_FAQ}"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark, {})
            if known.sub_version < header.sub_version:
                remark = "the consumer's subscription not latest"
                return command.response(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark, {})
            found = known
        if found.expression_type != TAG:
            remark = f"The broker does not support consumer to filter message by {found.expression_type}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark, {})
        return found

    def _commit(self, header: PullMessageRequestHeader, following: int, *, first: bool) -> None:
        """Keep the offset that a pull brings, not again when a held pull is looked at again."""
        state = self._state
        state.offsets.commit_pull_offset(header.consumer_group, header.topic, header.queue_id, following)
        if first and header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            state.offsets.commit_offset(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset, state.now_ms()
            )

    # -- pulls that wait

    def _hold(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader, tags: str | None
    ) -> bool:
        """Hold a pull until a message comes or its time is over; False where too many are held."""
        of_connection = self._held_of.get(connection, 0)
        if self._count >= _MOST_HELD or of_connection >= _MOST_HELD_OF_CONNECTION:
            return False
        config = self._state.config
        wait_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
        until = self._loop.time() + max(wait_ms, 0) / 1000
        pull = _HeldPull(connection, command, header, tags, header.queue_offset, until)
        self._held.setdefault((header.topic, header.queue_id), []).append(pull)
        self._held_of[connection] = of_connection + 1
        self._count += 1
        return True

    @property
    def any_wait(self) -> bool:
        """Whether pulls wait for messages."""
        return bool(self._held)

    def messages_arrived(self) -> None:
        """Answer the held pulls for which a message has come; called after each dispatch."""
        if not self._held:
            return
        store = self._state.store
        for key, pulls in list(self._held.items()):
            high = store.max_offset(*key)
            if any(high > pull.offset for pull in pulls):
                self._replace(key, [kept for pull in pulls if (kept := self._look_again(pull, high)) is not None])

    def _look_again(self, pull: _HeldPull, high: int) -> _HeldPull | None:
        """The pull, if it waits on; None where it was answered."""
        if high <= pull.offset:
            return pull
        header = pull.header
        if pull.tags is not None:
            get, following = self._state.store.get_message, pull.offset
            while following < high:
                result = get(header.topic, header.queue_id, following, 32, pull.tags)
                if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
                    break
                following = result.next_begin_offset
            else:  # it waits on, but not for these again
                return pull._replace(offset=following)
        self._answer(pull)
        return None

    def _check(self) -> None:
        """Answer the held pulls whose time is over."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)
        now = self._loop.time()
        for key, pulls in list(self._held.items()):
            if any(pull.until <= now for pull in pulls):
                kept = [pull for pull in pulls if pull.until > now]
                over = [pull for pull in pulls if pull.until <= now]
                self._replace(key, kept)
                for pull in over:
                    self._answer(pull)

    def _replace(self, key: tuple[str, int], kept: list[_HeldPull]) -> None:
        if kept:
            self._held[key] = kept
        else:
            self._held.pop(key, None)

    def _answer(self, pull: _HeldPull) -> None:
        self._count -= 1
        left = self._held_of.get(pull.connection, 1) - 1
        if left:
            self._held_of[pull.connection] = left
        else:
            self._held_of.pop(pull.connection, None)
        answer = self._pull(pull.connection, pull.command, pull.header, may_wait=False)
        if answer is not None and not pull.command.is_one_way:
            pull.connection.send(answer)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the held pulls of a connection."""
        if self._held_of.pop(connection, None) is None:
            return
        for key, pulls in list(self._held.items()):
            kept = [pull for pull in pulls if pull.connection is not connection]
            if len(kept) < len(pulls):
                self._count -= len(pulls) - len(kept)
                self._replace(key, kept)

    def answer_all(self) -> None:
        """Answer all held pulls with what there is, and hold none any more: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, {}
        for pulls in held.values():
            for pull in pulls:
                self._answer(pull)


def _offsets(
    following: int, low: int, high: int, topic: TopicConfig, group: SubscriptionGroupConfig
) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(
        _MASTER_ID, following, low, high, topic_sys_flag=topic.topic_sys_flag, group_sys_flag=group.group_sys_flag
    )

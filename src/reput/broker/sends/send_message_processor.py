"""Requests that send messages (`SendMessageProcessor`): checks, answers and remarks as 5.3.3's."""

from __future__ import annotations

import os
import random
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any

from reput.broker.appends.inner_message import MessageExtBrokerInner, sent_properties
from reput.broker.appends.send_path import SendPath
from reput.broker.clock import BrokerClock
from reput.broker.remarks import SEE_FAQ
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.config.message_store import FlushDiskType
from reput.errors import (
    MessageIllegalError,
    RemotingCommandError,
    ReputError,
    StoreBusyError,
    WouldWaitError,
)
from reput.files import NeverWaiting
from reput.formats.java import parse_long
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.message_batch import INNER_BATCH, sent_batch
from reput.formats.metadata import TopicConfig, TopicFilterType, TransactionMetrics
from reput.formats.properties import (
    CLUSTER,
    DELAY,
    INNER_NUM,
    KEYS,
    MSG_REGION,
    NOT_HERE,
    REAL_TOPIC,
    SIZE_ADDED_LATER,
    TIMER_OUT_MS,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from reput.formats.record_layout import SysFlag
from reput.formats.unique_id import UniqueIds
from reput.log.queue_types import is_batch_cq
from reput.log.store_host import encode_store_host
from reput.remoting.codes import V3_4_9, PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header, required
from reput.remoting.recall_handle import RecallHandle, encode_recall_handle
from reput.remoting.send_headers import SendMessageRequestHeader, SendMessageResponseHeader, decode_send_header
from reput.remoting.topic_validator import (
    DLQ_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPICS,
    TRANS_HALF_TOPIC,
    dlq_topic_of,
    validate_topic,
)
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.store.log.append_room import RecordTooLargeError
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

SEND_CODES = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE

#: Topics longer than this take no batch.
_MAX_BATCH_TOPIC = 127


class SendMessageProcessor:
    """Takes SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, one at a time."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        transactions: TopicMetricsManager[TransactionMetrics],
        locks: RebalanceLockManager[tuple[str, str, int]],
        creation: TopicCreation,
        send_path: SendPath,
        stats: BrokerStatsManager,
    ) -> None:
        self._view, self._clock, self._store, self._topics = view, clock, store, topics
        self._groups, self._transactions, self._locks, self._creation = groups, transactions, locks, creation
        self._send_path, self._stats = send_path, stats
        self._is_sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._unique_ids = UniqueIds(encode_store_host(store.config), os.getpid())
        self.ext = {MSG_REGION: view.config.region_id, TRACE_ON: "true" if view.config.trace_on else "false"}

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return dict.fromkeys(SEND_CODES, self.send)

    def send(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take one request; raises WouldWaitError if the log needs room first."""
        header = decode_send_header(command.code, command.ext_fields)
        refusal = self.refusal(command, header)
        if refusal is not None:
            return refusal
        if header.topic.startswith(RETRY_TOPIC_PREFIX):
            return self._send_retry(connection, command, header)
        topic = self._topics.select_topic_config(header.topic)
        if topic is not None:
            if self._creation.is_creating(header.topic):  # after those of this connection that wait for the topic
                return self._send_to_new(connection, command, header, topic)
            return self._send_to(connection, command, header, topic)
        made = self.new_topic(command, header)
        if isinstance(made, RemotingCommand):
            return made
        return self._send_to_new(connection, command, header, made)

    async def _send_retry(
        self, connection: Channel, command: RemotingCommand, header: SendMessageRequestHeader
    ) -> Answer:
        """Take a message that a consumer could not consume, into its group's retry topic or its dead letters.

        (`SendMessageProcessor.handleRetryAndDLQ`.)
        """
        topic = await self.topic(command, header)
        if isinstance(topic, RemotingCommand):
            return topic
        name = header.topic.removeprefix(RETRY_TOPIC_PREFIX).partition("+")[0]  # a topic of pop retries: GROUP+TOPIC
        group = self._groups.find_subscription_group_config(name, self._clock.now_ms())
        if group is None:
            remark = f"subscription group not exist, {name} {SEE_FAQ}"
            return self._refuse(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        asked = header.max_reconsume_times if command.version >= V3_4_9 else None
        most = group.retry_max_times if asked is None else asked
        is_in_order = not self._locks.is_lock_all_expired(name, self._clock.machine_ms())
        if not is_in_order and (header.reconsume_times or 0) <= most:
            return await self._send_to_made(connection, command, header, topic)
        missing = self._topics.create_dlq_topic(name)
        if missing is not None:
            await self._creation.create(missing)
        return await self._send_to_made(connection, command, header, topic, dlq_topic_of(name))

    async def _send_to_new(
        self, connection: Channel, command: RemotingCommand, header: SendMessageRequestHeader, made: TopicConfig
    ) -> Answer:
        with self._creation.waiting(made.topic_name) as turn:
            topic = await self._creation.create(made)
            async with turn:
                return await self._send_to_made(connection, command, header, topic)

    async def _send_to_made(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        dead_letters: str | None = None,
    ) -> Answer:
        while True:
            try:
                with NeverWaiting():
                    return self._send_to(connection, command, header, topic, dead_letters)
            except WouldWaitError as error:
                size = error.room
            try:
                await self._send_path.room.make(size)
            except ReputError as error:
                return self._fault(command, error)

    # -- checks

    def _fault(self, command: RemotingCommand, error: ReputError) -> RemotingCommand:
        return self._refuse(command, *_fault(error, self._store.config.max_message_size))

    def _refuse(self, command: RemotingCommand, code: int, remark: str) -> RemotingCommand:
        return command.response(code, remark, dict(self.ext))

    def refusal(self, command: RemotingCommand, header: SendMessageRequestHeader) -> RemotingCommand | None:
        """The answer to a request that is refused before its topic is looked up (`preSend`, `msgCheck`)."""
        config, topic = self._view.config, header.topic
        if self._clock.now_ms() < config.start_accept_send_request_time_stamp:
            remark = f"broker unable to service, until {_human_time(config.start_accept_send_request_time_stamp)}"
            return self._refuse(command, ResponseCode.SYSTEM_ERROR, remark)
        if not config.broker_permission & PermName.WRITE:
            known = self._topics.select_topic_config(topic)
            if known is not None and known.order:
                remark = f"the broker[{self._view.ip}] sending message is forbidden"
                return self._refuse(command, ResponseCode.NO_PERMISSION, remark)
        remark_of_name = validate_topic(topic)
        if remark_of_name is not None:
            return self._refuse(command, ResponseCode.INVALID_PARAMETER, remark_of_name)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            remark = f"Sending message to topic[{topic}] is forbidden."
            return self._refuse(command, ResponseCode.NO_PERMISSION, remark)
        return None

    async def topic(self, command: RemotingCommand, header: SendMessageRequestHeader) -> TopicConfig | RemotingCommand:
        """The topic of a request, made if it is not there, or the answer that refuses it."""
        known = self._topics.select_topic_config(header.topic)
        if known is not None:
            return known
        made = self.new_topic(command, header)
        return made if isinstance(made, RemotingCommand) else await self._creation.create(made)

    def new_topic(self, command: RemotingCommand, header: SendMessageRequestHeader) -> TopicConfig | RemotingCommand:
        """The topic that a send to an unknown one makes, or the answer that refuses it."""
        template, queue_nums = required(header, "default_topic"), required(header, "default_topic_queue_nums")
        made = self._topics.create_topic_in_send_message(
            header.topic, template, queue_nums, unit_mode=bool(header.unit_mode)
        )
        if made is None:
            remark = f"topic[{header.topic}] not exist, apply first please!{SEE_FAQ}"
            return self._refuse(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        return made

    def queue_id(
        self, connection: Channel, command: RemotingCommand, header: SendMessageRequestHeader, topic: TopicConfig
    ) -> int | RemotingCommand:
        """The queue that a request names, or any queue if it leaves the choice; or the answer that refuses it."""
        queue_id = header.queue_id
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            remark = f"request queueId[{queue_id}] is illegal, {topic_text(topic)} Producer: {connection.remote}"
            return self._refuse(command, ResponseCode.INVALID_PARAMETER, remark)
        if queue_id < 0:
            queue_id = random.randrange(topic.write_queue_nums) if topic.write_queue_nums else 0
        return queue_id

    # -- appending

    def _send_to(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        dead_letters: str | None = None,
    ) -> Answer:
        queue_id = self.queue_id(connection, command, header, topic)
        if isinstance(queue_id, RemotingCommand):
            return queue_id
        properties = sent_properties(header.properties)
        refusal = self._refusal_of_properties(command, header, topic, properties)
        if refusal is not None:
            return refusal
        properties |= self.ext
        if not header.batch:
            properties.setdefault(UNIQ_KEY, "")
            properties[UNIQ_KEY] = properties[UNIQ_KEY] or self._unique_ids.create(self._clock.now_ms())
        properties[CLUSTER] = self._view.config.broker_cluster_name
        sys_flag = header.sys_flag | (SysFlag.MULTI_TAGS if topic.topic_filter_type is TopicFilterType.MULTI_TAG else 0)
        is_inner_batch = bool(header.batch) and is_batch_cq(topic) and UNIQ_KEY in properties
        if is_inner_batch:
            sys_flag |= INNER_BATCH
        message = MessageExtBrokerInner(
            header.topic, queue_id, sent_batch(command.body) if header.batch else command.body, properties,
            header.flag, sys_flag, header.born_timestamp, connection.host, header.reconsume_times or 0,
            is_batch=bool(header.batch),
        )  # fmt: skip
        if self._is_half(header, properties):
            message.become_half()
        if dead_letters is not None:
            message.topic, message.queue_id, properties[DELAY] = dead_letters, 0, "-1"
        try:
            self._send_path.hooks.handle_schedule_message(message, self._clock.now_ms())
        except MessageIllegalError as error:
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, str(error))
        except RemotingCommandError as error:
            return self._refuse(command, error.code, error.remark)
        waits = properties.get(WAIT, "true").lower() != "false"
        if waits and self._send_path.replicas is not None and self._send_path.replicas.refuses():
            return self._refuse(command, ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        # What comes back may be full: a limit that it passed once is to keep no consumer from giving it back.
        room = 0 if header.topic.startswith(RETRY_TOPIC_PREFIX) else SIZE_ADDED_LATER
        (result,) = self._send_path.writer.put_rows([message.row()], room)
        if isinstance(result, WouldWaitError):
            if self._send_path.room.failure is None:
                raise result
            result = self._send_path.room.failure
        if isinstance(result, ReputError):
            return self._fault(command, result)
        self._send_path.on_append()
        if message.topic == TRANS_HALF_TOPIC:
            self._transactions.add({message.properties[REAL_TOPIC]: 1}, self._clock.now_ms())
        if dead_letters is not None:
            self._stats.inc_dead_letter(dead_letters.removeprefix(DLQ_TOPIC_PREFIX), header.topic)
        key = properties.get(UNIQ_KEY)
        stored = SendMessageResponseHeader(
            result.message_id, queue_id, result.queue_offset, key, key if is_inner_batch else None,
            None if header.batch else self._recall_handle(message),
        )  # fmt: skip
        answer = command.response(ResponseCode.SUCCESS, None, {**encode_header(stored), **self.ext})
        if not (self._is_sync or (self._send_path.waits and waits)):
            return answer
        told = answer if waits and not command.is_one_way else None
        self._send_path.answers.add(connection, command.code, told, result.end_offset)
        return None if waits else answer

    def _recall_handle(self, message: MessageExtBrokerInner) -> str | None:
        """Handle to recall a message that waits for a time (`attachRecallHandle`); None for any other message."""
        properties = message.properties
        topic, out_ms = properties.get(REAL_TOPIC), properties.get(TIMER_OUT_MS)
        if topic is None or out_ms is None or not out_ms.isdigit() or topic.startswith(RETRY_TOPIC_PREFIX):
            return None
        time_text = str(int(out_ms[:18]) + 1)  # after the slot's time, so that the recall gets the same slot
        name = self._view.config.broker_name
        return encode_recall_handle(RecallHandle(topic, name, time_text, properties.get(UNIQ_KEY, "")))

    @staticmethod
    def _is_half(header: SendMessageRequestHeader, properties: Mapping[str, str]) -> bool:
        """Whether a message is stored apart until its transaction ends; a retry of a client before 4.6.1 is not."""
        is_retry = (header.reconsume_times or 0) > 0 and parse_long(properties.get(DELAY, "0")) > 0
        return not header.batch and properties.get(TRAN_MSG, "").lower() == "true" and not is_retry

    def _refusal_of_properties(
        self,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        properties: Mapping[str, str],
    ) -> RemotingCommand | None:
        """The answer to a request that is refused for what it holds."""
        if not command.body:
            return command.response(ResponseCode.SYSTEM_ERROR, "the message has no body")
        if header.batch and len(header.topic) > _MAX_BATCH_TOPIC:
            remark = f"message topic length too long {len(header.topic)}"
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, remark)
        if header.batch and header.topic.startswith(RETRY_TOPIC_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, remark)
        if header.batch and parse_long(properties.get(DELAY, "0")) > 0:  # its messages would wait, and reach nobody
            limit = self._store.config.max_message_size
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, _illegal(limit))
        for name, what in NOT_HERE.items():
            # What comes back may be of a store that RocketMQ wrote.
            if properties.get(name) and not header.topic.startswith(RETRY_TOPIC_PREFIX):
                remark = f"the message has {name}: there are no {what}, which came after RocketMQ 5.3.3"
                return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, remark)
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and not properties.get(KEYS, "").strip():
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        if self._view.config.reject_transaction_message and self._is_half(header, properties):
            remark = f"the broker[{self._view.ip}] sending transaction message is forbidden"
            return self._refuse(command, ResponseCode.NO_PERMISSION, remark)
        if INNER_NUM in properties:  # the broker counts an inner batch itself (`HookUtils.checkInnerBatch`)
            return self._refuse(command, ResponseCode.MESSAGE_ILLEGAL, _illegal(self._store.config.max_message_size))
        return None


def topic_text(topic: TopicConfig) -> str:
    """A topic as Java prints it (`TopicConfig.toString`), for remarks."""
    perm = "".join(letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    attributes = "{" + ", ".join(f"{name}={value}" for name, value in topic.attributes.items()) + "}"
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={attributes}]"
    )


def _human_time(ms: int) -> str:
    """A time in the broker's time zone (`UtilAll.timeMillisToHumanString2`)."""
    try:
        return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S,") + f"{ms % 1000:03d}"
    except (OverflowError, ValueError, OSError):  # far beyond what a calendar has
        return f"{ms} ms"


def _illegal(max_message_size: int) -> str:
    return (
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{max_message_size}B, msg properties length limit 32KB."
    )


def _fault(error: ReputError, max_message_size: int) -> tuple[int, str]:
    """(code, remark) of the answer to a message that was not stored (`handlePutMessageResult`)."""
    if isinstance(error, MessageIllegalError):
        remark = _illegal(max_message_size)
        # RocketMQ's words name a limit that is none where a file of the log holds less.
        is_told = not isinstance(error, RecordTooLargeError)
        return ResponseCode.MESSAGE_ILLEGAL, remark if is_told else f"{remark} {error}"
    if isinstance(error, StoreBusyError):
        return ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    return ResponseCode.SERVICE_NOT_AVAILABLE, (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full, "
        f"messages are put to the slave, message store has been shut down, etc. {error}"
    )

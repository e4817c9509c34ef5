"""SendMessage and RecallMessage (`SendMessageActivity`, `RecallMessageActivity`)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.grpc.client_channel import Caller
from reput.broker.grpc.routes import message_type_of, producer_need
from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.formats.message_id import decode_message_id
from reput.formats.metadata import TopicConfig, TopicMessageType
from reput.formats.properties import BORN_TIMESTAMP, KEYS, TAGS, TIMER_DELIVER_MS, TRAN_MSG, UNIQ_KEY, split_keys
from reput.formats.record_layout import SysFlag
from reput.remoting.codes import PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.grpc.grpc_codes import Code, Encoding
from reput.remoting.grpc.grpc_interface import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from reput.remoting.grpc.grpc_parts import GrpcMessage, Status, SystemProperties
from reput.remoting.topic_validator import AUTO_CREATE_TOPIC
from reput.service.grpc.message_checks import check_type, checked_properties, checked_topic, unknown_topic
from reput.service.grpc.queue_selector import queue_of_group
from reput.service.grpc.statuses import RefusedCallError, ok, overall, refused
from reput.service.grpc.transaction_data import TransactionData
from reput.service.topic_config_manager import TopicConfigManager

_STORED: dict[int, Code] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
#: Messages of one send, which the loop checks at once; clients send one.
_MOST_MESSAGES = 1024
_ORDINARY = {"defaultTopic": AUTO_CREATE_TOPIC, "defaultTopicQueueNums": "4", "flag": "0", "reconsumeTimes": "0"}


class Sends:
    """Hands messages to the processor of sends, after the checks of Apache's proxy."""

    def __init__(self, clock: BrokerClock, topics: TopicConfigManager, transactions: TransactionData) -> None:
        self._clock, self._topics, self._transactions = clock, topics, transactions
        self._turn = random.randrange(1 << 16)

    def send_message(
        self, caller: Caller, request: SendMessageRequest
    ) -> SendMessageResponse | Coroutine[Any, Any, SendMessageResponse]:
        """Send one message, or several as a batch; most are stored when this returns."""
        messages = request.messages
        if not messages:
            raise RefusedCallError(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > _MOST_MESSAGES:
            text = f"{len(messages)} messages in one send: at most {_MOST_MESSAGES}"
            raise RefusedCallError(Code.MESSAGE_CORRUPTED, text)
        topic = checked_topic(messages[0].topic)
        caller.require(producer_need(topic))
        if any(one.topic is None or one.topic.name != topic for one in messages):
            raise RefusedCallError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        now_ms, remote = self._clock.now_ms(), caller.channel.remote
        properties = [checked_properties(topic, one, remote, now_ms) for one in messages]
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise unknown_topic(topic)
        for each in properties:
            check_type(message_type_of(config), each)
        queue_id = self._queue_of(config, messages)
        sent = self._single if len(messages) == 1 else self._batch
        command = sent(caller, topic, queue_id, messages, properties)
        message_id, is_half = ",".join(each[UNIQ_KEY] for each in properties), TRAN_MSG in properties[0]
        answer = caller.channel.take(command)
        if isinstance(answer, RemotingCommand):
            return self._response(answer, topic, message_id, is_half=is_half)
        return self._response_later(answer, topic, message_id, is_half=is_half)

    def _queue_of(self, config: TopicConfig, messages: Sequence[GrpcMessage]) -> int:
        if not config.perm & PermName.WRITE or not config.write_queue_nums:
            raise RefusedCallError(Code.FORBIDDEN, "no writable queue")
        system = messages[0].system_properties
        if len(messages) == 1 and system is not None and system.message_group:
            return queue_of_group(system.message_group, config.write_queue_nums)
        self._turn += 1
        return self._turn % config.write_queue_nums

    @staticmethod
    def _single(
        caller: Caller,
        topic: str,
        queue_id: int,
        messages: Sequence[GrpcMessage],
        properties: Sequence[Mapping[str, str]],
    ) -> RemotingCommand:
        (message,), (own,) = messages, properties
        system = message.system_properties or SystemProperties()
        sys_flag = SysFlag.COMPRESSED if system.body_encoding == Encoding.GZIP else 0
        if TRAN_MSG in own:
            sys_flag |= SysFlag.TRANSACTION_PREPARED
        fields = _fields(topic, queue_id, int(sys_flag), own[BORN_TIMESTAMP])
        fields["properties"] = "".join([f"{name}\x01{value}\x02" for name, value in own.items()])
        return caller.command(RequestCode.SEND_MESSAGE, fields, message.body)

    @staticmethod
    def _batch(
        caller: Caller,
        topic: str,
        queue_id: int,
        messages: Sequence[GrpcMessage],
        properties: Sequence[Mapping[str, str]],
    ) -> RemotingCommand:
        if any(TRAN_MSG in own or TIMER_DELIVER_MS in own for own in properties):
            text = "messages with a time or a transaction are sent one by one"
            raise RefusedCallError(Code.MESSAGE_CORRUPTED, text)
        if any(one.system_properties and one.system_properties.body_encoding == Encoding.GZIP for one in messages):
            raise RefusedCallError(Code.MESSAGE_CORRUPTED, "messages with a compressed body are sent one by one")
        items = [_item(topic, one.body, dict(own)) for one, own in zip(messages, properties, strict=True)]
        fields = _fields(topic, queue_id, 0, properties[0][BORN_TIMESTAMP]) | {"batch": "true"}
        return caller.command(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))

    async def _response_later(
        self, answer: Awaitable[RemotingCommand], topic: str, message_id: str, *, is_half: bool
    ) -> SendMessageResponse:
        return self._response(await answer, topic, message_id, is_half=is_half)

    def _response(self, answer: RemotingCommand, topic: str, message_id: str, *, is_half: bool) -> SendMessageResponse:
        fields = answer.ext_fields or {}
        if answer.code == ResponseCode.SUCCESS:
            transaction_id, queue_offset = fields.get("transactionId", ""), int(fields["queueOffset"])
            if is_half:
                _, log_offset = decode_message_id(fields["msgId"])
                self._transactions.note(topic, transaction_id, queue_offset, log_offset, self._clock.machine_ms())
            recall_handle = fields.get("recallHandle", "")
            entry = SendResultEntry(ok(), message_id, transaction_id, queue_offset, recall_handle)
        elif answer.code in _STORED:
            name = ResponseCode(answer.code).name
            entry = SendResultEntry(Status(_STORED[answer.code], f"send message failed, sendStatus={name}"))
        else:
            raise refused(answer.code, answer.remark)
        return SendMessageResponse(overall([entry.status], ""), [entry])

    async def recall_message(self, caller: Caller, request: RecallMessageRequest) -> RecallMessageResponse:
        """Take back a message that waits for its time."""
        topic = checked_topic(request.topic)
        caller.require(producer_need(topic))
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise unknown_topic(topic)
        if message_type_of(config) != TopicMessageType.MIXED:
            check_type(message_type_of(config), {TIMER_DELIVER_MS: ""})
        fields = {"topic": topic, "recallHandle": request.recall_handle, "producerGroup": topic}
        answer = await caller.request(RequestCode.RECALL_MESSAGE, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer.code, answer.remark)
        return RecallMessageResponse(ok(), (answer.ext_fields or {}).get("msgId", ""))


def _item(topic: str, body: bytes, properties: dict[str, str]) -> Message:
    """A message of a batch."""
    tags, keys, unique_key = (properties.pop(name, None) for name in (TAGS, KEYS, UNIQ_KEY))
    return Message(topic, body, tags, split_keys(keys or ""), properties, unique_key=unique_key)


def _fields(topic: str, queue_id: int, sys_flag: int, born_timestamp: str) -> dict[str, str]:
    return {
        "producerGroup": topic, "topic": topic, "queueId": str(queue_id), "sysFlag": str(sys_flag),
        "bornTimestamp": born_timestamp, **_ORDINARY,
    }  # fmt: skip

"""ConsumerQuestions: what brokers ask a push consumer for an operator (`ClientRemotingProcessor`)."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from threading import enumerate as threads
from typing import Any

from reput.client.consuming.consume_statistics import ConsumeStatistics
from reput.client.consuming.consumed_queue import ConsumedQueue
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.consuming.process_queue import ProcessQueueTable
from reput.client.instance.heartbeat import subscription_members
from reput.client.instance.message_client_ext import MessageClientExt, decode_messages
from reput.client.instance.trace_data import ConsumeReturnType
from reput.formats.consumers import ConsumeType
from reput.remoting.body import encode_body
from reput.remoting.client_call_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from reput.remoting.codes import RequestCode, ResponseCode, version_name
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables
from reput.transport.channel import Channel
from reput.transport.requests import Handler

#: What a handler's end is called in the answer to CONSUME_MESSAGE_DIRECTLY (`CMResult`).
_RESULT_OF = {
    ConsumeReturnType.SUCCESS: "CR_SUCCESS",
    ConsumeReturnType.FAILED: "CR_LATER",
    ConsumeReturnType.EXCEPTION: "CR_THROW_EXCEPTION",
}


@dataclass(frozen=True, slots=True)
class ConsumerQuestions:
    """Answers of one push consumer.

    Args:
        group: The member that it is.
        handler: Handles a message.
        queues: Its queues.
        statistics: How fast it is.
        properties: What an operator sees of the consumer.
    """

    group: ConsumerGroup
    handler: MessageHandler
    queues: ProcessQueueTable[ConsumedQueue]
    statistics: ConsumeStatistics
    properties: Mapping[str, str]

    def handlers(self) -> dict[int, Handler]:
        """By request code."""
        return {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def reset(self, connection: Channel, command: RemotingCommand) -> None:
        """Go on at other offsets, as brokers of RocketMQ 4 tell them."""
        for queue, offset in decode_queue_table(command.body, "offsetTable").items():
            if isinstance(offset, int) and (one := self.queues.get(queue)) is not None:
                one.move(offset)

    def status(self, connection: Channel, command: RemotingCommand) -> RemotingCommand:
        """Tell the offsets in a topic."""
        header = decode_header(GetConsumerStatusRequestHeader, command.ext_fields)
        offsets: dict[QueueKey, int] = {}
        if header.group == self.group.name:
            share = self._share(header.topic)
            offsets = {one.queue: one.offset for one in share if one.offset is not None}
        return command.response(body=encode_queue_tables({"messageQueueTable": offsets}))

    def running_info(self, connection: Channel, command: RemotingCommand) -> RemotingCommand:
        """Tell what the consumer does just now (`ConsumerRunningInfo`)."""
        header = decode_header(GetConsumerRunningInfoRequestHeader, command.ext_fields)
        if header.consumer_group != self.group.name:
            return self._unknown(command, header.consumer_group)
        subscriptions, bare = self.group.subscriptions, self.group.namespace.bare
        info: dict[str, Any] = {
            "mqPopTable": {},
            "mqTable": {one.queue: self._queue_info(one) for one in self._share()},
            "properties": {**self.properties, "PROP_CLIENT_VERSION": version_name(command.response().version)},
            "statusTable": {topic: self.statistics.status(bare(topic)) for topic in sorted(subscriptions)},
            "subscriptionSet": [subscription_members(one) for _, one in sorted(subscriptions.items())],
            "userConsumerInfo": {},
        }
        if header.jstack_enable:
            info["jstack"] = _stacks()
        return command.response(body=encode_queue_tables(info))

    def _share(self, topic: str | None = None) -> list[ConsumedQueue]:
        share = [one for one in self.queues if one.is_wanted and topic in (None, one.queue.topic)]
        return sorted(share, key=lambda one: one.queue)

    def _queue_info(self, consumed: ConsumedQueue) -> dict[str, Any]:
        """State of a queue (`ProcessQueueInfo`); times in ms since 1970 UTC, 0 for never."""
        waiting, locked_s = consumed.messages, consumed.locked_s(asyncio.get_running_loop().time())
        first, last = waiting.first, waiting.last
        return {
            "cachedMsgCount": len(waiting),
            "cachedMsgMaxOffset": 0 if last is None else last.queue_offset,
            "cachedMsgMinOffset": 0 if first is None else first.queue_offset,
            "cachedMsgSizeInMiB": waiting.bytes >> 20,
            "commitOffset": consumed.offset or 0,
            "droped": consumed.is_dropped,
            "lastConsumeTimestamp": consumed.last_consume_ms,
            "lastLockTimestamp": 0 if locked_s is None else self.group.client.now_ms() - int(locked_s * 1000),
            "lastPullTimestamp": consumed.last_pull_ms,
            "locked": locked_s is not None,
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }

    def consume_directly(
        self, connection: Channel, command: RemotingCommand
    ) -> Coroutine[Any, Any, RemotingCommand] | RemotingCommand:
        """Let the handler consume one message that an operator has chosen, whatever was done with it before."""
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, command.ext_fields)
        if header.consumer_group != self.group.name:
            return self._unknown(command, header.consumer_group)
        messages = decode_messages(command.body, QueueKey("", "", 0), None, self.group.namespace)
        if not messages:
            return command.response(ResponseCode.SYSTEM_ERROR, "the body is no message")
        (message,) = messages
        message.queue = QueueKey(message.topic, header.broker_name or "", message.queue_id)
        return self._consume_directly(command, message)

    async def _consume_directly(self, command: RemotingCommand, message: MessageClientExt) -> RemotingCommand:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        returned, error = await self.handler.returned(message)
        result: dict[str, Any] = {
            "autoCommit": True,
            "consumeResult": _RESULT_OF[returned],
            "order": self.properties[CONSUME_ORDERLY] == "true",
            "spentTimeMills": int((loop.time() - begun) * 1000),
        }
        if error is not None:
            result["remark"] = f"{type(error).__name__}: {error}"
        return command.response(body=encode_body(result))

    def _unknown(self, command: RemotingCommand, group: str) -> RemotingCommand:
        remark = f"The Consumer Group <{group}> not exist in this consumer"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)


CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"


def consumer_properties(namesrv: str, concurrency: int, started_ms: int, *, is_orderly: bool) -> dict[str, str]:
    """Properties of a push consumer, for operators."""
    return {
        CONSUME_ORDERLY: "true" if is_orderly else "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
        "PROP_NAMESERVER_ADDR": namesrv,
        "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
    }


def _stacks() -> str:
    """Stacks of all threads of the process."""
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threads()
        if thread.ident in frames
    )

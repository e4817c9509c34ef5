"""Recalls of messages that wait for a time (`RecallMessageProcessor`), and how far the timers are."""

from __future__ import annotations

import logging

from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import encode_beside
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError, ReputError
from reput.events import Event
from reput.formats.java import parse_long
from reput.formats.metadata import encode_metadata
from reput.formats.properties import (
    BORN_TIMESTAMP,
    MSG_REGION,
    PGROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from reput.formats.timer_checkpoint import encode_timer_checkpoint
from reput.remoting.codes import PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.recall_handle import RecallHandle, decode_recall_handle
from reput.remoting.recall_headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from reput.service.timer_messages import delete_key
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

_RECALL_TAG = "_RECALL_TAG_"


class RecallMessageProcessor:
    """Takes RECALL_MESSAGE, GET_TIMER_CHECK_POINT and GET_TIMER_METRICS.

    A recall is a message of its own that waits for the same slot, and deletes the other one there.

    Args:
        view, clock, pools, store, topics, appends: The broker's.
        timers: Delivers messages with a time; None with timerWheelEnable=false.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        appends: Appends,
        timers: TimerMessageService | None,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._appends = topics, appends
        self._timers = timers
        self._ext = {MSG_REGION: view.config.region_id}

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    async def recall(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Recall a message; it is not delivered once this is answered."""
        header = decode_header(RecallMessageRequestHeader, command.ext_fields)
        try:
            handle = self._checked(header)
            message = self._message(connection, header, handle)
            result = await self._appends.append(message)
            if self._timers is not None:
                self._timers.recalled_to = result.end_offset
            await self._appends.safe(result.end_offset, on_slaves=True)
        except RemotingCommandError as error:
            remark = error.remark if error.remark.startswith("recall ") else "recall failed, execute error"
            code = error.code if remark is error.remark else ResponseCode.SYSTEM_ERROR
            return command.response(code, remark, dict(self._ext))
        except ReputError as error:
            logger.error(Event("a message was not recalled", topic=header.topic, error=error))
            return command.response(ResponseCode.SYSTEM_ERROR, "recall failed, execute error", dict(self._ext))
        answer = encode_header(RecallMessageResponseHeader(handle.unique_key))
        return command.response(ResponseCode.SUCCESS, None, {**answer, **self._ext})

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """The handle of a request that can be done; raises RemotingCommandError for another one."""
        config = self._view.config
        if not config.recall_message_enable:
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        is_writable = bool(config.broker_permission & PermName.WRITE) or config.allow_recall_when_broker_not_writeable
        if self._clock.now_ms() < config.start_accept_send_request_time_stamp or not is_writable:
            remark = "recall failed, broker service not available"
            raise RemotingCommandError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if self._topics.select_topic_config(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            raise RemotingCommandError(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = decode_recall_handle(header.recall_handle)
        if handle is None:
            raise _illegal("recall handle is invalid")
        if handle.topic != header.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise _illegal("recall failed, broker service not available")
        left_ms = parse_long(handle.time_text) - self._clock.now_ms()
        if not 0 < left_ms < self._store.config.timer_max_delay_sec * 1000:
            raise _illegal("recall failed, timestamp invalid")
        return handle

    def _message(
        self, connection: Channel, header: RecallMessageRequestHeader, handle: RecallHandle
    ) -> MessageExtBrokerInner:
        """The message that deletes the other one (`buildMessage`)."""
        now_ms = self._clock.now_ms()
        properties = {
            TAGS: _RECALL_TAG,
            TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_key),
            UNIQ_KEY: handle.unique_key,
            TIMER_DELIVER_MS: handle.time_text,
            BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            properties[PGROUP] = header.producer_group
        return MessageExtBrokerInner(handle.topic, 0, b"0", properties, 0, 0, now_ms, connection.host)

    def checkpoint(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the checkpoint of the timers, as of the last flush."""
        if self._timers is None:
            return command.response(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        body = encode_timer_checkpoint(self._timers.checkpoint)
        return command.response(ResponseCode.SUCCESS, None, None, body)

    async def metrics(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the number of messages that wait, by topic."""
        if self._timers is None:
            return command.response(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        body = await encode_beside(self._pools, connection, encode_metadata, self._timers.metrics.shown())
        return command.response(ResponseCode.SUCCESS, None, None, body)


def _illegal(remark: str) -> RemotingCommandError:
    return RemotingCommandError(ResponseCode.ILLEGAL_OPERATION, remark)

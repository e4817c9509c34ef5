"""Requests about consume queues and files of the store (of `AdminBrokerProcessor`)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from reput.broker.admin.client_bodies import subscription_body
from reput.broker.disk_work import DiskPools
from reput.errors import ReputError
from reput.events import Event
from reput.formats.consume_queue import Unit
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, required
from reput.remoting.statistics_headers import QueryConsumeQueueRequestHeader
from reput.service.consumer_manager import ConsumerManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

#: Most units of one answer, whatever is asked for.
_MOST_UNITS = 1024


class QueueProcessor:
    """Takes requests that show units of consume queues, and those that clean the store."""

    def __init__(
        self, pools: DiskPools, store: MessageStore, topics: TopicConfigManager, consumers: ConsumerManager[Channel]
    ) -> None:
        self._pools, self._store, self._topics, self._consumers = pools, store, topics, consumers
        self._deleting: asyncio.Task[None] | None = None

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.consume_queue,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.nothing_to_clean,
            RequestCode.CLEAN_UNUSED_TOPIC: self.nothing_to_clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
        }

    async def consume_queue(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Units of a queue, and what a group subscribes to there."""
        header = decode_header(QueryConsumeQueueRequestHeader, command.ext_fields)
        topic = str(required(header, "topic"))
        queue_id, index = int(required(header, "queue_id")), int(required(header, "index"))
        count = min(int(required(header, "count")), _MOST_UNITS)
        end = self._store.max_offset(topic, queue_id)
        config = self._topics.select_topic_config(topic)
        is_there = config is not None and 0 <= queue_id < max(config.write_queue_nums, config.read_queue_nums)
        if not is_there and not end:
            return command.response(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        units = await self._pools.reads.run_for(connection, self._store.units, topic, queue_id, index, count)
        if units is None and not (index == end == 0):
            return command.response(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        body: dict[str, Any] = {
            "maxQueueIndex": end,
            "minQueueIndex": self._store.min_offset(topic, queue_id),
            "queueData": [_unit(one) for one in units or []],
        }
        if header.consumer_group is not None:
            body |= self._subscription(header.consumer_group, topic)
        return command.response(body=encode_body(body))

    def _subscription(self, group: str, topic: str) -> dict[str, Any]:
        found = self._consumers.find_subscription_data(group, topic)
        if found is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"filterData": "null", "subscriptionData": subscription_body(found)}

    def nothing_to_clean(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Retention deletes files of queues with the log's, so there is nothing left to clean."""
        return command.response()

    def delete_expired(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Begin to delete the log files that have expired, at any hour; answered before that is done."""
        if self._deleting is None or self._deleting.done():
            self._deleting = asyncio.get_running_loop().create_task(self._delete_expired())
        return command.response()

    async def _delete_expired(self) -> None:
        try:
            await self._pools.writes.run(self._store.delete_expired)
        except ReputError as error:
            logger.error(Event("expired files were not deleted", error=error))


def _unit(unit: Unit) -> dict[str, Any]:
    """A unit as Java writes it (`ConsumeQueueData`)."""
    return {
        "eval": False, "physicOffset": unit.commit_log_offset, "physicSize": unit.size, "tagsCode": unit.tags_code,
    }  # fmt: skip

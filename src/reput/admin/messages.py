"""Messages of queues that are looked at, and sent, by an operator."""

from __future__ import annotations

from reput.admin.admin_client import AdminClient, gather, masters
from reput.client.subscriptions import TOOLS_GROUP
from reput.client.topic_route import subscribe_queues
from reput.errors import MQClientError
from reput.formats.message_ext import MessageExt
from reput.remoting.queue_tables import QueueKey
from reput.service.subscription_data import build_subscription_data


async def peek(
    client: AdminClient, topic: str, *, queue_id: int | None, offset: int | None, time_ms: int | None, count: int
) -> list[MessageExt]:
    """Messages of a topic, or of one queue id of it, by store time; no group's offset changes.

    Args:
        client: Asks.
        topic: The topic.
        queue_id: Of one queue id on each broker; of all queues without it.
        offset: From this queue offset on.
        time_ms: From this store time on. Without both: the newest messages.
        count: Most messages.

    Raises MQClientError for a topic or a queue that is not there.
    """
    route = await client.route(topic)
    addresses = masters(route.broker_datas)
    queues = [one for one in subscribe_queues(topic, route) if one.broker_name in addresses]
    chosen = [one for one in queues if queue_id in (None, one.queue_id)]
    if not chosen:
        raise MQClientError(f"topic {topic!r} has no queue {queue_id}: its queues are 0 to {len(queues) - 1}")

    async def look(queue: QueueKey) -> list[MessageExt]:
        address = addresses[queue.broker_name]
        low = await client.queues.min_offset(address, queue)
        end = await client.queues.max_offset(address, queue)
        begin = end - count if offset is None else offset
        if time_ms is not None:
            begin = await client.queues.search_offset(address, queue, time_ms)
        return await _pull(client, address, queue, max(begin, low), min(end, max(begin, low) + count))

    found = [one for messages in await gather(look, chosen) for one in messages]
    found.sort(key=lambda one: (one.store_timestamp, one.queue_id, one.queue_offset))
    return found[-count:] if offset is None and time_ms is None else found[:count]


async def _pull(client: AdminClient, address: str, queue: QueueKey, begin: int, end: int) -> list[MessageExt]:
    """The messages of a queue with offsets from begin to end."""
    subscription = build_subscription_data(queue.topic, "*")
    messages: list[MessageExt] = []
    while begin < end:
        pulled = await client.queues.pull(address, TOOLS_GROUP, queue, begin, subscription, count=min(end - begin, 32))
        position = 0
        while position < len(pulled.body):
            messages.append(MessageExt(pulled.body, position))
            position += messages[-1].store_size
        if pulled.next_begin_offset <= begin:
            break
        begin = pulled.next_begin_offset
    return messages

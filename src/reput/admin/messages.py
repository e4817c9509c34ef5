"""Messages of queues that are looked at, and sent, by an operator."""

from __future__ import annotations

from reput.admin.admin_client import AdminClient, brokers_of, gather
from reput.client.instance.topic_route import nothing_to_subscribe, subscribe_queues
from reput.errors import MQClientError
from reput.formats.message_ext import MessageExt
from reput.remoting.queue_tables import QueueKey
from reput.remoting.subscription_data import build_subscription_data
from reput.remoting.topic_validator import TOOLS_GROUP


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
    queues = subscribe_queues(topic, route)
    if not queues:
        raise MQClientError(nothing_to_subscribe(topic))
    chosen = [one for one in queues if queue_id in (None, one.queue_id)]
    if not chosen:
        last = max(one.queue_id for one in queues)
        raise MQClientError(f"topic {topic!r} has no queue {queue_id}: its queues are 0 to {last}")

    async def look(broker: str, address: str) -> list[MessageExt]:
        of_queues = await gather(lambda queue: look_at(queue, address), (o for o in chosen if o.broker_name == broker))
        return [one for messages in of_queues for one in messages]

    async def look_at(queue: QueueKey, address: str) -> list[MessageExt]:
        low = await client.queues.min_offset(address, queue)
        end = await client.queues.max_offset(address, queue)
        begin = end - count if offset is None else offset
        if time_ms is not None:
            begin = await client.queues.search_offset(address, queue, time_ms)
        return await _pull(client, address, queue, max(begin, low), min(end, max(begin, low) + count))

    brokers = brokers_of(topic, route)
    asked = await client.ask_each({one.broker_name: brokers[one.broker_name] for one in chosen}, look)
    found = [one for messages in asked.values() for one in messages]
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

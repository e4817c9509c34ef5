"""ConsumerGroup: a client as a member of a group: its heartbeats, its share of the queues, the group's offsets."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import datetime
from typing import Any

from reput.client.consuming.allocate_message_queue import allocate_averagely
from reput.client.consuming.consumer_api import ConsumerAPI, PullResult
from reput.client.consuming.process_queue import ProcessQueue, ProcessQueueTable
from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.heartbeat import ConsumerRegistration, encode_heartbeat
from reput.client.instance.message_client_ext import MessageClientExt, decode_messages
from reput.client.instance.namespaces import NO_NAMESPACE, Namespace
from reput.client.instance.peer_log import peers
from reput.client.instance.session_credentials import SessionCredentials
from reput.client.instance.subscriptions import ConsumeFrom, consume_from_where
from reput.client.instance.topic_route import MASTER_ID
from reput.errors import MQBrokerError, MQClientError, RemotingError, ReputError
from reput.events import Event
from reput.formats.consumers import ConsumeType, MessageModel
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey
from reput.remoting.subscription_data import SubscriptionData, build_subscription_data, is_tag_type
from reput.transport.channel import Channel
from reput.transport.connection import Connection
from reput.transport.requests import Handler
from reput.transport.tls import ClientTls

logger = logging.getLogger("reput.client")

#: Seconds between two looks at the group; if a topic is missing yet, or a look has failed, they begin shorter.
_REBALANCE_S, _SOON_S = 20.0, 0.5


class ConsumerGroup:
    """One member of a group, over a client of its own.

    Args:
        namesrv: "host:port" of the name servers, separated by `;`.
        group: The group's name; this one, topics and queues as the brokers have them.
        subscriptions: By topic; none for a consumer that is given its queues, and is no member.
        consume_type, message_model: What heartbeats tell of the consumer.
        consume_from: Where the group begins in a queue without an offset.
        tls: How to talk TLS; None for the plain protocol.
        credentials: Sign each request; None for none.
        namespace: Of group and topics.
        queues: The queues of this member; its topics' queues are taken and dropped as the group shares them.

    Attributes:
        client: The client.
        api: Its requests of consumers.
        queues: As it was given.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        consume_type: ConsumeType,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = "last",
        queues: ProcessQueueTable[ProcessQueue],
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self.name = group
        self.namespace = namespace
        self.subscriptions = dict(subscriptions)
        self.is_broadcasting = message_model is MessageModel.BROADCASTING
        self._consume_from = consume_from
        where = consume_from_where(consume_from)
        self._registration = ConsumerRegistration(
            group, consume_type, message_model, where, tuple(self.subscriptions.values())
        )
        self.handlers: dict[int, Handler] = {int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): self._ids_changed}
        self.client = ClientInstance(
            namesrv, handlers=self.handlers, heartbeat=self._heartbeat, with_slaves=True,
            with_lost=not self.subscriptions, tls=tls, credentials=credentials,
        )  # fmt: skip
        self.client.on_route_change = self.rebalance_soon
        self.api = ConsumerAPI(self.client.api)
        self.queues = queues
        self._connections: dict[str, Connection] = {}  # by broker name: the last one of `connect`
        self._logged: dict[str, tuple[int, int]] = {}  # by topic: queues of this member, and members
        self._wake = asyncio.Event()
        self._rebalancing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group, and take the first share of its queues.

        Raises:
            MQClientError: No name server answers.
            AccessDeniedError: No broker lets this user.
            SubscriptionError: An expression is none.
            MQBrokerError: A broker does not filter by expressions.
        """
        self.client.start()
        # All at once: a name server that is slow, or silent, holds each of them up for seconds.
        await asyncio.gather(*map(self.client.routes.subscribe_queues, self.subscriptions))
        for subscription in self.subscriptions.values():
            if not is_tag_type(subscription.expression_type):
                await self._check(subscription)
        if self.subscriptions:
            denied = await self.client.heartbeat()
            if denied and not self.client.versions:
                raise denied[0]
            self._rebalancing = self.client.spawn(self._rebalance_service())

    async def _check(self, subscription: SubscriptionData) -> None:
        """Let a broker of the topic look at an expression (`checkClientInBroker`); one that is away cannot."""
        for address in self.client.routes.brokers_of(subscription.topic)[:1]:
            try:
                await self.api.check_client_config(address, self.name, self.client.client_id, subscription)
            except MQBrokerError:
                raise
            except RemotingError as error:
                peers.failed("an expression was not checked", error, topic=subscription.topic)

    async def close(self) -> None:
        """Leave the group, and close the client."""
        client = self.client
        await client.close(
            lambda address: client.api.unregister(address, client.client_id, producer=None, consumer=self.name)
        )

    def _heartbeat(self, client_id: str) -> bytes:
        return encode_heartbeat(client_id, consumers=[self._registration] if self.subscriptions else [])

    # -- the member's share

    def _ids_changed(self, connection: Channel, command: RemotingCommand) -> None:
        """Take NOTIFY_CONSUMER_IDS_CHANGED."""
        self.rebalance_soon()

    def rebalance_soon(self) -> None:
        """Look at the group again at once."""
        self._wake.set()

    def stop_rebalance(self) -> None:
        """Keep the share as it is."""
        if self._rebalancing is not None:
            self._rebalancing.cancel()

    async def _rebalance_service(self) -> None:
        pause = _SOON_S
        while True:
            is_settled = await self.rebalance()
            pause = _REBALANCE_S if is_settled else min(2 * pause, _REBALANCE_S)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            else:
                pause = _SOON_S
            self._wake.clear()

    async def rebalance(self) -> bool:
        """Take this member's share of each topic's queues; False if a topic is not there, or does not tell."""
        is_settled = True
        shares: dict[str, Collection[QueueKey]] = {}
        for topic in self.subscriptions:
            try:
                shares[topic], is_known = await self._share(topic)
                is_settled &= is_known
            except ReputError as error:
                is_settled = False
                peers.failed("a share of queues stays as it was", error, topic=topic, group=self.name)
        self.queues.assign((queue for share in shares.values() for queue in share), shares)
        return is_settled

    async def _share(self, topic: str) -> tuple[Collection[QueueKey], bool]:
        """This member's queues of a topic, and whether the group knows it."""
        routes = self.client.routes
        queues = await routes.subscribe_queues(topic)
        if not queues:
            await routes.renew(topic)
            return (), False
        if self.is_broadcasting:
            return queues, True
        ids = await self._member_ids(topic)
        share = allocate_averagely(self.client.client_id, queues, ids)
        counts = len(share), len(ids)
        if self._logged.get(topic) != counts:
            self._logged[topic] = counts
            logger.info(
                Event("queues of this member", topic=topic, group=self.name, queues=len(share), members=len(ids))
            )
        return share, self.client.client_id in ids

    async def _member_ids(self, topic: str) -> list[str]:
        """The ids of the group's members, as one of a topic's brokers tells; raises RemotingError if none does."""
        addresses = self.client.routes.brokers_of(topic)
        failure = RemotingError(f"topic {topic}: no broker of it is registered at the name server")
        for address in random.sample(addresses, len(addresses)):
            try:
                return await self.api.consumer_ids(address, self.name)
            except RemotingError as error:
                failure = error
        raise failure

    # -- where queues are, and the group's offsets

    def serving(self, queue: QueueKey, broker_id: int = MASTER_ID) -> str:
        """The address of who serves a queue (`topic_route.serving`); raises RemotingError if nobody does."""
        address = self.client.routes.address(queue.broker_name, broker_id)
        if address is None:
            error = RemotingError(f"broker {queue.broker_name}: it is not registered at the name server")
            error.peer = queue.broker_name
            raise error
        return address

    async def server_of(self, queue: QueueKey) -> str:
        """The address of who serves a queue, also the first of a topic that nobody has asked for; errors as `serving`.

        Raises MQClientError if no name server answers.
        """
        await self.client.routes.look_up(queue.topic)
        return self.serving(queue)

    async def connect(self, queue: QueueKey) -> None:
        """Connect to a queue's broker before a request that rests on its locks and offsets.

        Raises RemotingError if it cannot be reached.
        """
        address = await self.server_of(queue)
        try:
            connection = await self.client.remoting.connection(address)
        except RemotingError as error:
            error.peer = address
            peers.silent(address)
            raise
        self._connected(queue.broker_name, connection)

    def look_at_connections(self) -> None:
        """Tell queues whose brokers were connected again, by heartbeats as well."""
        for name, before in list(self._connections.items()):
            address = self.client.routes.address(name)
            now = None if address is None else self.client.remoting.connections.get(address)
            self._connected(name, before if now is None else now)

    def _connected(self, broker_name: str, connection: Connection) -> None:
        """Tell a broker's queues if a connection is new: there may be another one, or it was started again."""
        before = self._connections.get(broker_name, connection)
        self._connections[broker_name] = connection
        if connection is not before:
            for one in self.queues:
                if one.queue.broker_name == broker_name:
                    one.reconnected()

    async def pull(self, one: ProcessQueue, offset: int, *, count: int, commits: bool = False) -> PullResult:
        """Pull a queue from its master, or the slave that the last answer has suggested; errors as of `ConsumerAPI`.

        A slave gives messages while the master cannot be reached, if the queue needs no lock.

        `commits`: the queue's offset goes with it, if it may be sent, and to who keeps it. Not one that the broker has:
        a member that has read it, and handled nothing, would put back what the member before commits at last.
        """
        queue = one.queue
        is_elsewhere = await self.server_of(queue) != self.serving(queue, one.suggested_broker_id)
        if one.needs_lock or not is_elsewhere:
            await self.connect(queue)
        commits = commits and not (is_elsewhere or self.is_broadcasting)
        is_told = one.offset == one.told_offset
        may_commit = commits and not is_told and one.may_commit(asyncio.get_running_loop().time())
        commit_offset = one.offset if may_commit else None
        address = self.serving(queue, one.suggested_broker_id)
        subscription = self.subscription(queue.topic)
        try:
            result = await self.api.pull(
                address, self.name, queue, offset, subscription, count=count, commit_offset=commit_offset
            )
        except RemotingError:
            one.suggested_broker_id = MASTER_ID  # a slave that is away, or gives no messages, suggests nobody else
            raise
        one.suggested_broker_id = result.suggested_broker_id
        if not result.body and result.next_begin_offset <= offset:
            await self._find(queue, result.suggested_broker_id)
        return result

    async def _find(self, queue: QueueKey, broker_id: int) -> None:
        """Look for the broker that one without messages has suggested: the master is back, and the route is older."""
        routes = self.client.routes
        if broker_id not in routes.broker(queue.broker_name):
            await routes.renew(queue.topic)
            if broker_id not in routes.broker(queue.broker_name):  # a slave that knows its master answers at once
                await asyncio.sleep(_SOON_S)

    def subscription(self, topic: str) -> SubscriptionData:
        """Subscription to a topic; to all messages of a topic that was not subscribed."""
        return self.subscriptions.get(topic) or build_subscription_data(topic, None)

    def decode(self, body: bytes, queue: QueueKey) -> list[MessageClientExt]:
        """The wanted messages of what a pull of a queue brought."""
        return decode_messages(body, queue, self.subscription(queue.topic), self.namespace)

    async def first_offset(self, queue: QueueKey) -> int:
        """Offset at which a group without an offset begins in a queue."""
        address = await self.server_of(queue)
        is_retry = queue.topic.startswith(RETRY_TOPIC_PREFIX)
        if isinstance(self._consume_from, datetime) and not is_retry:
            return await self.api.search_offset(address, queue, int(self._consume_from.timestamp() * 1000))
        if self._consume_from == "last" and not is_retry:
            return await self.api.max_offset(address, queue)
        return 0

    async def committed(self, queue: QueueKey) -> int | None:
        """The group's offset in a queue; None for none. Raises RemotingError if its broker does not answer."""
        return await self.api.committed(await self.server_of(queue), self.name, queue)

    async def commit(self, queue: QueueKey, offset: int) -> None:
        """Keep an offset of the group at its broker; raises RemotingError if the broker does not take it."""
        await self.api.commit(await self.server_of(queue), self.name, queue, offset)

    async def commit_at_each(
        self, broker_names: Collection[str], commit: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """Commit at brokers side by side: one that does not answer holds up none of the others.

        Raises MQClientError if a broker does not take an offset; offsets at other brokers are kept.
        """
        names = sorted(broker_names)
        ends = await asyncio.gather(*(commit(name) for name in names), return_exceptions=True)
        errors: dict[str, RemotingError] = {}
        for broker_name, end in zip(names, ends, strict=True):
            if isinstance(end, RemotingError):
                errors[broker_name] = end
            elif end is not None:
                raise end
        if errors:
            reasons = "; ".join(f"{broker_name}: {error}" for broker_name, error in errors.items())
            found = MQClientError(f"group {self.name}: offsets are not committed: {reasons}")
            found.retriable = True
            found.peer = ";".join(filter(None, (error.peer for error in errors.values())))
            raise found

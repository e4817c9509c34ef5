"""PushConsumer: calls a handler for each message (`DefaultMQPushConsumer`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Self

from reput.client.consuming.consume_concurrently import ConsumeConcurrently
from reput.client.consuming.consume_orderly import ConsumeOrderly
from reput.client.consuming.consumed_queue import ConsumedQueue, PullLimits
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler, OnMessage
from reput.client.consuming.offset_store import (
    LocalFileOffsetStore,
    OffsetStore,
    RemoteBrokerOffsetStore,
    local_offsets_path,
    persist_or_tell,
)
from reput.client.consuming.process_queue import ProcessQueueTable
from reput.client.instance.arguments import check_arguments
from reput.client.instance.namespaces import Namespace
from reput.client.instance.session_credentials import SessionCredentials
from reput.client.instance.subscriptions import ConsumeFrom, MessageSelector, build_subscriptions
from reput.events import Event
from reput.formats.consumers import ConsumeType, MessageModel
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import TRACE_TOPIC
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.consuming.consumer_questions import ConsumerQuestions

logger = logging.getLogger("reput.client")

_PERSIST_S = 5.0
_RECONSUME_TIMES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Arguments of a consumer after their check, as each start takes them; names are as the brokers have them."""

    namesrv: str
    name: str
    namespace: Namespace
    tls: ClientTls | None
    credentials: SessionCredentials | None
    trace_topic: str | None
    topics: Mapping[str, str | MessageSelector]
    model: MessageModel
    consume_from: ConsumeFrom
    on_message: OnMessage
    orderly: bool
    concurrency: int
    max_reconsume_times: int | None
    limits: PullLimits
    offsets_path: str
    consume_timeout: float
    close_timeout: float

    def member(self, queues: ProcessQueueTable[ConsumedQueue]) -> ConsumerGroup:
        """A member of the group, which is not started; it gives the queues of its share to a table."""
        topics = dict(self.topics)
        if self.model is MessageModel.CLUSTERING:
            topics[RETRY_TOPIC_PREFIX + self.name] = "*"
        return ConsumerGroup(
            self.namesrv, self.name, build_subscriptions(topics, time.time_ns() // 1_000_000, self.namespace),
            consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=self.model, consume_from=self.consume_from,
            queues=queues, tls=self.tls, credentials=self.credentials, namespace=self.namespace,
        )  # fmt: skip

    def service(self, group: ConsumerGroup, handler: MessageHandler) -> ConsumeConcurrently | ConsumeOrderly:
        """Service that calls the handler, in the order that was asked for."""
        times = self.max_reconsume_times
        if self.orderly:
            return ConsumeOrderly(group, handler, self.concurrency, times)
        times = _RECONSUME_TIMES if times is None else times
        return ConsumeConcurrently(group, handler, self.concurrency, times, self.consume_timeout)


class PushConsumer:
    """Calls a handler for each message of its share of the queues.

        async def handle(message: MessageClientExt) -> None: ...

        async with PushConsumer("127.0.0.1:9876", group="c", topics={"orders": "*"}, on_message=handle):
            await asyncio.Event().wait()

    A message is done when its handler returns. If the handler raises, or returns ConsumeStatus.RECONSUME_LATER, the
    message comes again: after 10 s, 30 s, 1 min and so on, as the broker's delay levels are; after the last time it is
    in the topic `%DLQ%group`. A message may come twice; it is lost only if a broker loses it.

    Args:
        namesrv: "host:port" of the name servers, separated by `;`.
        group: The group; its members, also Java's, share the queues.
        topics: Tags by topic, `paid || shipped` or `*`, or a MessageSelector.
        on_message: Called for each message: a coroutine function in the loop, another one in threads.
        orderly: Messages of one queue are handled one after the other, by one member. One that fails is handled again
            after a second, and those behind it wait.
        broadcasting: Every member gets all messages. Its offsets are in a file, and what fails does not come again.
        consume_from: First message of the group in a queue without an offset: "last", "first" or a time with its zone.
        tls: How to talk TLS; None for the plain protocol.
        credentials: The user, if brokers check users; see docs/access.md.
        namespace: Prefix of topics and groups at the brokers, as Java's `setNamespace`; None for none.
        trace: Trace messages and their handling: True for the topic RMQ_SYS_TRACE_TOPIC, or another topic's name.
        concurrency: Number of messages that are handled at once.
        max_reconsume_times: Number of times that a failed message comes again; None, or Java's -1: 16 times, orderly
            without end.
        limits: Limits of the pulls of a queue.
        offsets_path: The file for offsets of a broadcasting consumer.
        consume_timeout: Seconds after which a message comes again whose handler has not ended; none for an orderly
            consumer.
        close_timeout: Seconds that handlers have to end when the consumer is closed; then they are cancelled.

    Raises:
        ConfigError: An argument that is none.
        MessageIllegalError, SubscriptionError: A topic or its tags are none.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | MessageSelector],
        on_message: OnMessage,
        orderly: bool = False,
        broadcasting: bool = False,
        consume_from: ConsumeFrom = "last",
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
        namespace: str | None = None,
        trace: bool | str = False,
        concurrency: int = 20,
        max_reconsume_times: int | None = None,
        limits: PullLimits | None = None,
        offsets_path: str | None = None,
        consume_timeout: float = 900.0,
        close_timeout: float = 30.0,
    ) -> None:
        check_arguments(
            namesrv=namesrv, group=group, topics=topics, on_message=on_message, orderly=orderly,
            broadcasting=broadcasting, consume_from=consume_from, tls=tls, credentials=credentials,
            namespace=namespace, trace=trace, concurrency=concurrency, max_reconsume_times=max_reconsume_times,
            limits=limits, offsets_path=offsets_path, consume_timeout=consume_timeout, close_timeout=close_timeout,
        )  # fmt: skip
        names = Namespace(namespace or "")
        build_subscriptions(topics, 0, names)  # refuses a topic that is too long with the namespace
        times = -1 if max_reconsume_times is None else index(max_reconsume_times)
        name = names.wrap(group)
        self._options = _Options(
            namesrv=namesrv,
            name=name,
            namespace=names,
            tls=tls,
            credentials=credentials,
            trace_topic=TRACE_TOPIC if trace is True else trace or None,
            topics=dict(topics),
            model=MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING,
            consume_from=consume_from,
            on_message=on_message,
            orderly=orderly,
            concurrency=index(concurrency),
            max_reconsume_times=None if times == -1 else times,
            limits=limits or (PullLimits(span=None) if orderly else PullLimits()),
            offsets_path=offsets_path or local_offsets_path(name),
            consume_timeout=consume_timeout,
            close_timeout=close_timeout,
        )
        self._queues = ProcessQueueTable(self._made)
        self._closing: asyncio.Task[None] | None = None  # kept here, as a loop does not hold its tasks
        self._group: ConsumerGroup | None = None
        self._offsets: OffsetStore
        self._handler: MessageHandler
        self._service: ConsumeConcurrently | ConsumeOrderly

    async def start(self) -> None:
        """Join the group; handlers are called from now on.

        Raises:
            MQClientError: No name server answers.
            AccessDeniedError: No broker lets this user.
            SubscriptionError: A broker cannot read an SQL92 expression.
            MQBrokerError: A broker does not filter by SQL92.
        """
        if self._group is not None:
            raise self._group.client.no_second_start()
        self._queues = ProcessQueueTable(self._made)
        options = self._options
        self._group = group = options.member(self._queues)
        self._handler = MessageHandler(options.on_message, options.concurrency, self._threads_ended)
        self._service = options.service(group, self._handler)
        try:
            await self._begin(group)
        except BaseException:
            await self._end(group)
            self._group = None  # it may be started again
            raise

    async def _begin(self, group: ConsumerGroup) -> None:
        if group.is_broadcasting:
            self._offsets = local = LocalFileOffsetStore(group, self._options.offsets_path)
            await local.load()
        else:
            self._offsets = RemoteBrokerOffsetStore(group)
        await self._start_traces(group)
        await group.start()
        # No wait from here on: a queue is taken, and a handler called, once all has begun.
        self._service.start()
        group.client.spawn(self._persist_service())
        group.client.spawn(self._handler.statistics.run())
        group.handlers.update(self._questions(group).handlers())

    async def _end(self, group: ConsumerGroup) -> None:
        """End all that `_begin` began, however far it came."""
        self._handler.close()
        await group.close()

    async def _start_traces(self, group: ConsumerGroup) -> None:
        options = self._options
        if options.trace_topic is not None:
            from reput.client.consuming.consumer_traces import start_traces  # here: others do without a producer

            self._handler.traces = await start_traces(
                group, options.namesrv, options.trace_topic, options.tls, options.credentials
            )  # fmt: skip

    async def close(self) -> None:
        """Wait for handlers that run, commit, and leave the group. Closing again does nothing."""
        group = self._group
        if group is None or not group.client.is_open:
            return
        try:
            group.stop_rebalance()
            for one in self._queues:
                one.close()
            await self._service.stop(self._options.close_timeout)
            await persist_or_tell(self._offsets, group)
            await self._service.unlock_all()
        finally:
            await self._end(group)

    def _threads_ended(self) -> None:
        """Leave the group, so that another member has what cannot be handled here."""
        reason = "the main thread has ended, and Python's thread pools with it: let it wait for the other threads"
        logger.error(
            Event("a consumer is closed: its handler cannot be called", group=self._options.name, reason=reason)
        )
        self._closing = asyncio.ensure_future(self.close())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def assignment(self) -> set[QueueKey]:
        """The queues that this consumer has now."""
        return set(map(self._options.namespace.bare_queue, self._queues.share()))

    def _made(self, queue: QueueKey) -> ConsumedQueue:
        assert self._group is not None
        return ConsumedQueue(
            self._group, queue, self._offsets, self._service, self._options.limits, self._handler.statistics
        )  # fmt: skip

    def _questions(self, group: ConsumerGroup) -> ConsumerQuestions:
        from reput.client.consuming.consumer_questions import (  # here: it takes 10 ms
            ConsumerQuestions,
            consumer_properties,
        )

        options = self._options
        properties = consumer_properties(
            options.namesrv, options.concurrency, group.client.now_ms(), is_orderly=options.orderly
        )
        return ConsumerQuestions(group, self._handler, self._queues, self._handler.statistics, properties)

    async def _persist_service(self) -> None:
        assert self._group is not None
        while True:
            await asyncio.sleep(_PERSIST_S)
            await persist_or_tell(self._offsets, self._group)

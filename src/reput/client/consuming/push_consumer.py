"""PushConsumer: calls a handler for each message (`DefaultMQPushConsumer`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Self

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
)
from reput.client.instance.arguments import check_arguments
from reput.client.instance.namespaces import Namespace
from reput.client.instance.peer_log import peers
from reput.client.instance.session_credentials import SessionCredentials
from reput.client.instance.subscriptions import ConsumeFrom, MessageSelector, build_subscriptions
from reput.errors import MQClientError, ReputError
from reput.events import Event
from reput.formats.consumers import ConsumeType, MessageModel
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import TRACE_TOPIC
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    from reput.client.consuming.consumer_questions import ConsumerQuestions
    from reput.client.instance.traces import Traces

logger = logging.getLogger("reput.client")

_PERSIST_S = 5.0
_RECONSUME_TIMES = 16


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
        self._namesrv = namesrv
        self._namespace = Namespace(namespace or "")
        self._trace_topic = TRACE_TOPIC if trace is True else trace or None
        self._traces: Traces | None = None
        self._name = self._namespace.wrap(group)
        build_subscriptions(topics, 0, self._namespace)  # refuses a topic that is too long with the namespace
        self._topics = dict(topics)
        self._on_message = on_message
        self._orderly = orderly
        self._model = MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING
        self._consume_from = consume_from
        self._tls = tls
        self._credentials = credentials
        self._concurrency = index(concurrency)
        times = -1 if max_reconsume_times is None else index(max_reconsume_times)
        self._max_reconsume_times = None if times == -1 else times
        self._limits = limits or (PullLimits(span=None) if orderly else PullLimits())
        self._offsets_path = offsets_path or local_offsets_path(self._name)
        self._consume_timeout = consume_timeout
        self._close_timeout = close_timeout
        self._queues: dict[QueueKey, ConsumedQueue] = {}
        self._closing: asyncio.Task[None] | None = None  # kept here, as a loop does not hold its tasks
        #: The ends of what queues were before: a queue begins once its handlers have ended and its lock is given back.
        self._ending: dict[QueueKey, asyncio.Task[None]] = {}
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
            raise MQClientError("this consumer is started already")
        topics = dict(self._topics)
        if self._model is MessageModel.CLUSTERING:
            topics[RETRY_TOPIC_PREFIX + self._name] = "*"
        group = ConsumerGroup(
            self._namesrv, self._name, build_subscriptions(topics, time.time_ns() // 1_000_000, self._namespace),
            consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=self._model, consume_from=self._consume_from,
            assigned=self._assigned, tls=self._tls, credentials=self._credentials,
            namespace=self._namespace,
        )  # fmt: skip
        if group.is_broadcasting:
            self._offsets = local = LocalFileOffsetStore(group, self._offsets_path)
            await local.load()
        else:
            self._offsets = RemoteBrokerOffsetStore(group)
        self._group = group
        self._handler = MessageHandler(self._on_message, self._concurrency, self._threads_ended)
        try:
            await group.start()
        except BaseException:
            self._handler.close()
            await group.close()
            self._group = None  # it may be started again
            raise
        times, more = self._max_reconsume_times, (group, self._offsets, self._handler, self._concurrency)
        if self._orderly:
            self._service = ConsumeOrderly(*more, times)
        else:
            times = _RECONSUME_TIMES if times is None else times
            self._service = ConsumeConcurrently(*more, times, self._consume_timeout)
        group.client.spawn(self._persist_service())
        group.client.spawn(self._handler.statistics.run())
        group.handlers.update(self._questions(group).handlers())
        await self._start_traces(group)

    async def _start_traces(self, group: ConsumerGroup) -> None:
        if self._trace_topic is None:
            return
        from reput.client.consuming.consumer_traces import (
            consumer_traces,  # here: other consumers do without a producer
        )

        self._traces = self._handler.traces = await consumer_traces(
            group.client, self._namesrv, self._trace_topic, self._namespace.bare(self._name), self._tls,
            self._credentials,
        )  # fmt: skip

    async def close(self) -> None:
        """Wait for handlers that run, commit, and leave the group. Closing again does nothing."""
        group = self._group
        if group is None or not group.client.is_open:
            return
        try:
            group.stop_rebalance()
            for one in self._queues.values():
                one.stop()
            await self._service.stop(self._close_timeout)
            await self._persist()
            await self._service.unlock_all()
        finally:
            self._handler.close()
            try:
                if self._traces is not None:
                    await self._traces.close()
            finally:
                await group.close()

    def _threads_ended(self) -> None:
        """Leave the group, so that another member has what cannot be handled here."""
        reason = "the main thread has ended, and Python's thread pools with it: let it wait for the other threads"
        logger.error(Event("a consumer is closed: its handler cannot be called", group=self._name, reason=reason))
        self._closing = asyncio.ensure_future(self.close())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def assignment(self) -> set[QueueKey]:
        """The queues that this consumer has now."""
        return set(map(self._namespace.bare_queue, self._queues))

    # -- queues

    def _assigned(self, queues: set[QueueKey]) -> None:
        for queue in sorted(self._queues.keys() - queues):
            self._end(queue, self._leave)
        for queue in sorted(queues - self._queues.keys()):
            self._begin(queue, None)

    def _begin(self, queue: QueueKey, offset: int | None) -> None:
        assert self._group is not None
        consumed = ConsumedQueue(
            self._group,
            queue,
            self._offsets,
            self._service.begin,
            self._limits,
            self._service.take,
            self._moved,
            self._handler.statistics,
        )
        self._queues[queue] = consumed
        consumed.start(offset, self._ending.get(queue))

    def _end(self, queue: QueueKey, work: Callable[[ConsumedQueue], Coroutine[Any, Any, None]]) -> None:
        """Pull a queue no more, and do some work once its handlers have ended."""
        assert self._group is not None
        consumed, before = self._queues.pop(queue), self._ending.get(queue)
        consumed.drop()

        async def end() -> None:
            if before is not None:
                await asyncio.wait([before])
            await self._service.ended(consumed)
            await work(consumed)
            if self._ending.get(queue) is task:
                del self._ending[queue]

        task = self._ending[queue] = self._group.client.spawn(end())

    async def _leave(self, consumed: ConsumedQueue) -> None:
        """Commit what was handled of a queue, and let another member have it."""
        consumed.keep_offset()
        await self._persist()
        self._offsets.remove(consumed.queue)
        await self._service.unlock(consumed.queue)

    def _moved(self, queue: QueueKey, offset: int) -> None:
        """Go on in a queue at an offset that the broker gave, or an operator."""
        if queue in self._queues:
            self._end(queue, _nothing)
            self._offsets.move(queue, offset)
            self._begin(queue, offset)

    def _questions(self, group: ConsumerGroup) -> ConsumerQuestions:
        def locked_ms(queue: QueueKey) -> int | None:
            locked_s = self._service.locked_s(queue)
            return None if locked_s is None else group.client.now_ms() - int(locked_s * 1000)

        from reput.client.consuming.consumer_questions import (  # here: it takes 10 ms
            ConsumerQuestions,
            consumer_properties,
        )

        properties = consumer_properties(
            self._namesrv, self._concurrency, group.client.now_ms(), is_orderly=self._orderly
        )
        return ConsumerQuestions(
            group, self._offsets, self._handler, self._queues, self._handler.statistics, locked_ms, self._moved,
            properties,
        )  # fmt: skip

    async def _persist_service(self) -> None:
        while True:
            await asyncio.sleep(_PERSIST_S)
            await self._persist()

    async def _persist(self) -> None:
        try:
            await self._offsets.persist()
        except ReputError as error:
            peers.failed("offsets were not kept", error, group=self._name)


async def _nothing(_: ConsumedQueue) -> None:
    """Of a queue that goes on elsewhere: it stays locked, and what was handled before says nothing."""

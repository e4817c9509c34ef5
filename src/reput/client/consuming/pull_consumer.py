"""PullConsumer: gives messages when it is asked for them (`DefaultLitePullConsumer`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import RemoteBrokerOffsetStore
from reput.client.consuming.process_queue import ProcessQueueTable
from reput.client.consuming.pulled_queue import PulledQueue
from reput.client.consuming.tail import PullTail
from reput.client.instance.arguments import check_arguments, check_offset, check_queue, check_topic_name
from reput.client.instance.client_instance import not_started
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.namespaces import Namespace
from reput.client.instance.session_credentials import SessionCredentials
from reput.client.instance.subscriptions import ConsumeFrom, MessageSelector, build_subscriptions
from reput.config.arguments import check_moment, check_seconds, check_whole, refusal
from reput.errors import MQClientError
from reput.extras import require_tables
from reput.formats.consumers import ConsumeType
from reput.remoting.queue_tables import QueueKey
from reput.remoting.subscription_data import SubscriptionData
from reput.remoting.topic_validator import TRACE_TOPIC
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.client.instance.traces import Traces


_T = TypeVar("_T")
#: Bytes of records in a table, if brokers have more.
_TABLE_BYTES = 1 << 20


class PullConsumer:
    """Pulls messages ahead, and gives them in batches: as objects, or as one Arrow table.

        async with PullConsumer("127.0.0.1:9876", group="p", topics={"orders": "*"}) as consumer:
            messages = await consumer.poll(max_messages=1000, timeout=1.0)
            await consumer.commit()

    With `topics` it is a member of its group: the group's members, also Java's, share the queues. Without, it has the
    queues that `assign` gives it. What `poll` gives is committed by `commit` alone: what was polled and is not
    committed comes again, to the member that has the queue then. `tail` commits what is handled.

    Args:
        namesrv: "host:port" of the name servers, separated by `;`.
        group: The group whose offsets count.
        topics: Tags by topic, `paid || shipped` or `*`, or a MessageSelector.
        consume_from: First message of the group in a queue without an offset: "last", "first" or a time with its zone.
        trace: Trace the messages that `poll` returns: True for the topic RMQ_SYS_TRACE_TOPIC, or another topic's name.
            Rows of `poll_arrow` are not traced.
        tls: How to talk TLS; None for the plain protocol.
        credentials: The user, if brokers check users; see docs/access.md.
        namespace: Prefix of topics and groups at the brokers, as Java's `setNamespace`; None for none.

    Raises:
        ConfigError: An argument that is none.
        MessageIllegalError, SubscriptionError: A topic or its tags are none.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | MessageSelector] | None = None,
        consume_from: ConsumeFrom = "last",
        trace: bool | str = False,
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
        namespace: str | None = None,
    ) -> None:
        check_arguments(
            namesrv=namesrv, group=group, consume_from=consume_from, trace=trace, tls=tls, credentials=credentials,
            namespace=namespace,
        )  # fmt: skip
        if topics is not None:
            check_arguments(topics=topics)
        self._namesrv = namesrv
        self._namespace = Namespace(namespace or "")
        self._subscriptions = (
            {} if topics is None else build_subscriptions(topics, time.time_ns() // 1_000_000, self._namespace)
        )
        self._name = self._namespace.wrap(group)
        self._consume_from = consume_from
        self._tls = tls
        self._credentials = credentials
        self._trace_topic = TRACE_TOPIC if trace is True else trace or None
        self._traces: Traces | None = None
        self._group: ConsumerGroup | None = None
        self._offsets: RemoteBrokerOffsetStore
        self._queues = ProcessQueueTable(self._made)
        self._has_topics_or_queues = topics is not None
        self._arrived = asyncio.Event()
        self._tail: PullTail | None = None
        self._before: dict[QueueKey, int | None] = {}  # positions before the last table

    async def start(self) -> None:
        """Join the group.

        Raises:
            MQClientError: No name server answers.
            AccessDeniedError: No broker lets this user.
            SubscriptionError: A broker cannot read an SQL92 expression.
            MQBrokerError: A broker does not filter by SQL92.
        """
        if self._group is not None:
            raise self._group.client.no_second_start()
        self._queues = ProcessQueueTable(self._made)
        group = ConsumerGroup(
            self._namesrv, self._name, self._subscriptions, consume_type=ConsumeType.CONSUME_ACTIVELY,
            consume_from=self._consume_from, queues=self._queues, tls=self._tls, credentials=self._credentials,
            namespace=self._namespace,
        )  # fmt: skip
        self._group = group
        self._offsets = RemoteBrokerOffsetStore(group)
        try:
            await self._start_traces(group)
            await group.start()
        except BaseException:
            await self._end(group)
            self._group = None  # it may be started again
            raise

    async def _start_traces(self, group: ConsumerGroup) -> None:
        if self._trace_topic is not None:
            from reput.client.consuming.consumer_traces import start_traces  # here: others do without a producer

            self._traces = await start_traces(
                group, self._namesrv, self._trace_topic, self._tls, self._credentials
            )  # fmt: skip

    async def close(self) -> None:
        """Leave the group, without a commit but the commit of `tail`. Closing again does nothing."""
        await self._close(last_is_handled=False)

    async def _close(self, *, last_is_handled: bool) -> None:
        if self._group is None or not self._group.client.is_open:
            return
        try:
            if self._tail is not None:
                await self._tail.close(last_is_handled=last_is_handled)
        finally:
            await self._end(self._group)

    async def _end(self, group: ConsumerGroup) -> None:
        """End all that `start` began, however far it came; who waits for messages is told."""
        try:
            await group.close()
        finally:
            self._arrived.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        await self._close(last_is_handled=error is None)

    def _open_group(self) -> ConsumerGroup:
        if self._group is None:
            raise not_started("consumer is not started")
        self._group.client.check_open()
        return self._group

    # -- queues

    @property
    def assignment(self) -> set[QueueKey]:
        """The queues that this consumer has now."""
        return set(map(self._namespace.bare_queue, self._queues.share()))

    async def queues(self, topic: str) -> tuple[QueueKey, ...]:
        """All queues of a topic, to assign some; raises MQClientError if no name server answers.

        A consumer without topics gets the queues of a lost broker, too, if the name server is reput's: they bring
        nothing until the broker is back.

        Raises ConfigError for what is no topic.
        """
        check_topic_name(topic)
        queues = await self._open_group().client.routes.subscribe_queues(self._namespace.wrap(topic))
        return tuple(map(self._namespace.bare_queue, queues))

    def assign(self, queues: Iterable[QueueKey]) -> None:
        """Take these queues and no others; raises MQClientError if topics were given, ConfigError for no queue."""
        if not isinstance(queues, Iterable):
            raise refusal("queues", queues, "queues, as of `queues(topic)`")
        queues = list(queues)
        for queue in queues:
            check_queue(queue)
        self._open_group()
        if self._subscriptions:
            raise MQClientError("this consumer has topics, so the group shares their queues: make it without topics")
        self._has_topics_or_queues = True
        self._queues.assign(set(map(self._namespace.wrap_queue, queues)))

    def _made(self, queue: QueueKey) -> PulledQueue:
        assert self._group is not None
        return PulledQueue(self._group, queue, self._offsets, self._arrived.set)

    def _pulled(self, queue: QueueKey) -> PulledQueue:
        check_queue(queue)
        self._open_group()
        found = self._queues.get(self._namespace.wrap_queue(queue))
        if found is None:
            raise MQClientError(f"{queue} is none of this consumer's queues: see `assignment`")
        return found

    def pause(self, *queues: QueueKey) -> None:
        """Poll nothing of these queues until `resume`.

        Raises MQClientError for a queue that it does not have, ConfigError for what is none.
        """
        for queue in queues:
            self._pulled(queue).is_paused = True

    def resume(self, *queues: QueueKey) -> None:
        """Poll these queues again; errors as of `pause`."""
        for queue in queues:
            self._pulled(queue).is_paused = False
        self._arrived.set()

    # -- offsets

    def seek(self, queue: QueueKey, offset: int) -> None:
        """Go on at an offset of a queue; errors as of `pause`, and for an offset that is none."""
        check_offset(offset)
        self._pulled(queue).seek(offset)

    async def seek_to_begin(self, queue: QueueKey) -> None:
        """Go on at the first message of a queue; errors as of `pause` and `committed`."""
        check_queue(queue)
        group, wrapped = self._open_group(), self._namespace.wrap_queue(queue)
        self.seek(queue, await group.api.min_offset(await group.server_of(wrapped), wrapped))

    async def seek_to_end(self, queue: QueueKey) -> None:
        """Go on behind the last message of a queue; errors as of `pause` and `committed`."""
        check_queue(queue)
        group, wrapped = self._open_group(), self._namespace.wrap_queue(queue)
        self.seek(queue, await group.api.max_offset(await group.server_of(wrapped), wrapped))

    async def offset_of_time(self, queue: QueueKey, moment: datetime) -> int:
        """The offset of the first message that was stored then or later; errors as of `committed`."""
        check_queue(queue)
        check_moment("moment", moment)
        group, wrapped = self._open_group(), self._namespace.wrap_queue(queue)
        return await group.api.search_offset(await group.server_of(wrapped), wrapped, int(moment.timestamp() * 1000))

    def position(self, queue: QueueKey) -> int | None:
        """The offset of the next message that `poll` gives; None before it is known. Errors as of `pause`."""
        return self._pulled(queue).position

    async def committed(self, queue: QueueKey) -> int | None:
        """The group's offset in a queue; None for none.

        Raises RemotingError if its broker does not answer, ConfigError for what is no queue.
        """
        check_queue(queue)
        return await self._open_group().committed(self._namespace.wrap_queue(queue))

    async def commit(self, offsets: Mapping[QueueKey, int] | None = None) -> None:
        """Keep offsets at the brokers: the given ones, else the offsets after all polled messages.

        Raises MQClientError if a broker does not take one, ConfigError for what is no queue or no offset.
        """
        if offsets is not None and not isinstance(offsets, Mapping):
            raise refusal("offsets", offsets, "offsets by queue")
        for queue, offset in (offsets or {}).items():
            check_queue(queue)
            check_offset(offset)
        self._open_group()
        if offsets is None:
            await self._commit_positions({})
            return
        given = {self._namespace.wrap_queue(queue): offset for queue, offset in offsets.items()}
        await self._offsets.commit(given)

    async def _commit_positions(self, not_handled: Mapping[QueueKey, int]) -> None:
        """Commit what was polled, but for the messages of some queues from these offsets on."""
        self._open_group()
        ends = {self._namespace.wrap_queue(queue): offset for queue, offset in not_handled.items()}
        for one in self._queues:
            offset = one.handled_before(ends.get(one.queue))
            if offset is not None:
                one.offset = offset
        await self._offsets.persist()

    # -- messages

    async def poll(self, max_messages: int = 1000, timeout: float = 1.0) -> list[MessageClientExt]:
        """Messages that have come, in their order within a queue; none if none comes in time.

        Raises:
            MQBrokerError: A broker refuses a pull, and there is no message of another one.
            MQClientError: The consumer has neither topics nor queues that `assign` gave it.
            ConfigError: An argument that is none.
        """
        check_whole("max_messages", max_messages, 1)
        check_seconds("timeout", timeout, may_be_zero=True)
        return await self._poll_messages(max_messages, timeout)

    def tail(self, timeout: float | None = None) -> PullTail:
        """The messages of this consumer's queues one by one, as they come.

            async for message in consumer.tail(): ...

        Messages of one queue come in their order. A message counts as handled once the next one is asked for, or when
        the `async with` of the consumer ends without an error. What is handled is committed once a second, before each
        wait and at the end. A further `tail` goes on after the messages of this one. Use no `poll` beside it, and
        `seek` before it.

        Args:
            timeout: Seconds without a message after which the loop ends; None: never.

        Raises ConfigError for a timeout that is none.
        """
        if timeout is not None:
            check_seconds("timeout", timeout, may_be_zero=True)
        self._open_group()
        held = [] if self._tail is None else self._tail.hand_over()
        self._tail = PullTail(self._poll_messages, self._commit_positions, timeout, held)
        return self._tail

    async def _poll_messages(self, max_messages: int, timeout: float | None) -> list[MessageClientExt]:
        messages = await self._poll(lambda: self._take(max_messages), timeout)
        if self._traces is not None:
            for message in messages:
                self._traces.polled(message)
        return messages

    async def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All messages that have come as one Arrow table, decoded by kernels: a row for each.

        If brokers have more of them, the table waits until it has a MiB of records.

        Args:
            timeout: Seconds to wait at most.
            columns: Of `reput.read_log`, all of them else. What is not asked for is not decoded.

        Raises:
            ConfigError: There is no such column, a timeout is none, or `reput[client]` is not installed.
            MQBrokerError, MQClientError: As `poll`.
        """
        return (await self._poll_table(timeout, columns))[0]

    async def _poll_table(
        self, timeout: float, columns: Sequence[str] | None
    ) -> tuple[pa.Table, dict[QueueKey, int | None]]:
        """The table of `poll_arrow`, and the positions before it."""
        check_seconds("timeout", timeout, may_be_zero=True)
        require_tables("poll_arrow")
        # NumPy, Numba and Arrow take a second.
        module = await asyncio.to_thread(import_module, "reput.client.consuming.arrow_messages")
        wanted = module.wanted_columns(columns)
        parts = await self._poll(self._take_many_bodies, timeout) or self._take_bodies()
        return module.table_of(parts, wanted, self._namespace), self._before

    async def _poll(self, take: Callable[[], list[_T]], timeout: float | None) -> list[_T]:
        self._open_group()
        if not self._has_topics_or_queues:
            raise MQClientError(
                'this consumer has no queues: make it with topics={"orders": "*"}, or give it queues by `assign`'
            )
        try:
            async with asyncio.timeout(timeout):
                while not (found := take()):
                    self._raise_refusal()
                    self._arrived.clear()
                    await self._arrived.wait()
                    self._open_group()
        except TimeoutError:
            return []
        return found

    def _raise_refusal(self) -> None:
        for one in self._queues:
            if error := one.take_error():
                raise error

    def _take(self, count: int) -> list[MessageClientExt]:
        """Messages of the queues, each in turn the first one."""
        taken: list[MessageClientExt] = []
        for one in list(self._queues):
            taken += one.take(count - len(taken))
            if len(taken) >= count:
                self._queues.put_last(one)  # next time
                break
        return taken

    def _take_many_bodies(self) -> list[tuple[SubscriptionData, Any]]:
        """As `_take_bodies`; nothing while it is little and more is on its way: a table takes a millisecond."""
        queues = [one for one in self._queues if not one.is_paused]
        is_little = sum(one.held_bytes for one in queues) < _TABLE_BYTES
        if is_little and any(one.is_behind for one in queues) and not any(one.error for one in queues):
            return []
        return self._take_bodies()

    def _take_bodies(self) -> list[tuple[SubscriptionData, Any]]:
        group = self._open_group()
        self._before = {one.queue: one.position for one in self._queues}
        return [(group.subscription(one.queue.topic), body) for one in self._queues for body in one.take_bodies()]

    # -- what nobody got

    def _give_back(self, messages: Sequence[MessageClientExt]) -> None:
        """Give messages again whose caller was interrupted before it had them."""
        self._go_back({self._namespace.wrap_queue(one.queue): one.queue_offset for one in reversed(messages)})

    def _go_back(self, positions: Mapping[QueueKey, int | None]) -> None:
        for one in list(self._queues):
            if one.queue in positions and one.position != positions[one.queue]:
                one.seek(positions[one.queue])

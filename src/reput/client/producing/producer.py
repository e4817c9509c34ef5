"""Producer: sends messages (`DefaultMQProducer`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Self

from reput.client.instance.arguments import (
    check_arguments,
    check_queue,
    check_queue_of,
    check_sharding_key,
    check_topic_name,
)
from reput.client.instance.client_instance import ClientInstance, not_started
from reput.client.instance.namespaces import Namespace
from reput.client.instance.send_request import (
    SendRequest,
    batch_requests,
    check_one,
    check_several,
    delay_properties,
    half_request,
    queue_of_key,
    send_request,
)
from reput.client.instance.send_result import SendResult
from reput.client.producing.mq_fault_strategy import MQFaultStrategy, may_be_too_large
from reput.client.producing.send_attempts import SendAttempts
from reput.client.producing.sent_tags import SentTags
from reput.config.arguments import MOST_LONG, check_function, check_seconds, refusal
from reput.errors import MQClientError, ReputError
from reput.extras import require_tables
from reput.formats.message import Message
from reput.formats.properties import SHARDING_KEY, TIMER_DELAY_MS
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import AUTO_CREATE_TOPIC, MAX_GROUP_LENGTH, TRACE_TOPIC
from reput.transport.requests import Handler
from reput.transport.tls import ClientTls

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.client.instance.message_client_ext import MessageClientExt
    from reput.client.instance.session_credentials import SessionCredentials
    from reput.client.instance.traces import Traces
    from reput.client.producing.produce_accumulator import ProduceAccumulator
    from reput.client.producing.requests_and_replies import RequestsAndReplies
    from reput.client.producing.transactions import (
        CheckTransaction,
        LocalTransactionState,
        Transactions,
        TransactionSendResult,
    )

#: How long a send of traces may take.
_TRACE_S = 5.0
#: A message tells how long its sender waits for a reply, in ms.
_MOST_REQUEST_S = MOST_LONG // 1000


class Producer:
    """Sends messages to whichever brokers have the queues of their topics.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            result = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

    Many tasks may send at the same time. It belongs to the event loop in which it was started.

    Args:
        namesrv: "host:port" of the name servers, separated by `;`.
        group: Name of the producers that do the same work.
        timeout: Seconds that one attempt of a send may take.
        retries: How often a send is tried again with another broker, after one that failed. A message may then be
            stored twice: a broker whose answer was lost has it, too.
        auto_batch: Sends of one turn of the loop go into one request for each topic or queue (Java's `autoBatch`):
            several times as fast if many tasks send. Each send has its own result; a request that fails fails all of
            its sends.
        check_transaction: Returns the outcome of a transaction of this producer, or of another one of its group; needed
            for `send_in_transaction`. Brokers that make topics by themselves, and brokers of `topics`, ask it from the
            start.
        topics: What it will send to: their brokers know this producer from its start on, and not from its first send.
        tls: How to talk TLS; None for the plain protocol.
        credentials: The user, if brokers check users; see docs/access.md.
        namespace: Prefix of topics and groups at the brokers, as Java's `setNamespace`; None for none.
        trace: Trace sends: True for the topic RMQ_SYS_TRACE_TOPIC, or another topic's name.

    Raises ConfigError for an argument that is none.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        timeout: float = 3.0,
        retries: int = 2,
        auto_batch: bool = False,
        check_transaction: CheckTransaction | None = None,
        topics: Collection[str] = (),
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
        namespace: str | None = None,
        trace: bool | str = False,
    ) -> None:
        check_arguments(
            namesrv=namesrv, group=group, timeout=timeout, retries=retries, auto_batch=auto_batch,
            check_transaction=check_transaction, topic_names=topics, tls=tls, credentials=credentials,
            namespace=namespace, trace=trace,
        )  # fmt: skip
        self._namesrv = namesrv
        self._namespace = Namespace(namespace or "")
        self._trace_topic = TRACE_TOPIC if trace is True else trace or None
        self._traces: Traces | None = None
        self._group = self._namespace.wrap(group)
        self._timeout = timeout
        self._attempts = 1 + retries
        self._auto_batch = auto_batch
        self._accumulator: ProduceAccumulator | None = None
        self._check_transaction = check_transaction
        self._topics = [self._namespace.wrap(topic) for topic in topics]
        if check_transaction is not None:  # as Java's producers, whose brokers may have transactions of the group
            self._topics.append(AUTO_CREATE_TOPIC)
        self._tls = tls
        self._credentials = credentials
        self._faults = MQFaultStrategy()
        self._handlers: dict[int, Handler] = {}
        self._transactions: Transactions | None = None
        self._requests: RequestsAndReplies | None = None
        self._client: ClientInstance | None = None
        self._tags = SentTags()

    async def start(self) -> None:
        """Begin; no server is waited for before the first send."""
        if self._client is not None:
            raise self._client.no_second_start()
        client = self._client = ClientInstance(
            self._namesrv, handlers=self._handlers, heartbeat=self._heartbeat, tls=self._tls,
            credentials=self._credentials,
        )  # fmt: skip
        try:
            await self._begin(client)
        except BaseException:
            await self._end(client)
            self._client = None  # it may be started again
            raise

    async def _begin(self, client: ClientInstance) -> None:
        if self._check_transaction is not None:
            from reput.client.producing.transactions import Transactions  # others are imported without it

            self._transactions = Transactions(client, self._group, self._check_transaction, self._namespace)
            self._handlers[RequestCode.CHECK_TRANSACTION_STATE] = self._transactions.asked
        if self._auto_batch:
            from reput.client.producing.produce_accumulator import ProduceAccumulator  # others do without it

            self._accumulator = ProduceAccumulator(client, partial(self._send, client))
        client.start()
        for topic in self._topics:
            client.spawn(client.routes.follow(topic))
        if self._trace_topic is not None:
            from reput.client.instance.traces import Traces  # here: other clients do without it

            group = self._namespace.bare(self._group)
            own = await trace_producer(self._namesrv, f"{group}-PRODUCE", self._tls, self._credentials)
            self._traces = Traces(client, own, self._trace_topic, group)
            if self._transactions is not None:
                self._transactions.traces = self._traces

    async def close(self) -> None:
        """Leave the group, and close the connections; sends that are not answered fail. Closing again does nothing."""
        client = self._client
        if client is not None and client.is_open:
            await self._end(client)

    async def _end(self, client: ClientInstance) -> None:
        """End all that `_begin` began, however far it came."""
        await client.close(
            lambda address: client.api.unregister(address, client.client_id, producer=self._group, consumer=None)
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _heartbeat(self, client_id: str) -> bytes:
        from reput.client.instance.heartbeat import encode_heartbeat  # here: an import of the client is quick

        return encode_heartbeat(client_id, [self._group])

    def _open_client(self) -> ClientInstance:
        if self._client is None:
            raise not_started("producer is not started")
        self._client.check_open()
        return self._client

    # -- sends

    async def send(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: QueueKey | None = None,
        delay_ms: int | None = None,
        delay_level: int | None = None,
    ) -> SendResult:
        """Send a message, and return its place in a queue.

        Args:
            message: Is not changed.
            sharding_key: Messages with the same key go to the same queue, in the order of their sends, as Java's
                `SelectMessageQueueByHash` chooses it. Such a send is not tried again: that could change the order.
            queue: The queue to send to, in place of one that the producer chooses; not tried again either.
            delay_ms: How much later consumers get the message. A delay that is none of the 18 levels (1 s, 5 s, 10 s,
                30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h) needs a broker of RocketMQ 5.
            delay_level: A delay by its level, 1 to 18, as the broker's `messageDelayLevel` has them.

        Raises:
            ConfigError: `queue` is none, or one of another topic; nothing was sent.
            MessageIllegalError: No broker would take the message; nothing was sent.
            MQBrokerError: A broker refused it; AccessDeniedError: since this user may not send to the topic.
            MQClientError: The topic has no queue, or no attempt succeeded; the broker that did not answer may have it.
        """
        client = self._open_client()
        if queue is not None:
            check_queue(queue)
        if sharding_key is not None:
            check_sharding_key(sharding_key)
        message = self._named(message)
        if queue is not None:
            check_queue_of(queue, message.topic, self._namespace)
        more = delay_properties(delay_ms, delay_level)
        if self._accumulator is not None and not more and self._accumulator.takes(message):
            return await self._accumulator.send(message, sharding_key, queue)
        if sharding_key is not None:
            more[SHARDING_KEY] = sharding_key
        request = send_request(message, client.unique_key(), client.now_ms(), more)
        if sharding_key is not None and queue is None:
            queue = queue_of_key(sharding_key, await client.routes.publish_queues(message.topic))
        return (await self._send(client, request, [message], queue, needs_timer=TIMER_DELAY_MS in more))[0]

    async def send_batch(self, messages: Sequence[Message], *, queue: QueueKey | None = None) -> list[SendResult]:
        """Send messages of one topic in one request, or in a few if they are more than 4 MiB, or than the broker takes.

        Returns a result for each message. Errors as of `send`; `stored_messages` of an error is the number of first
        messages that were stored before.
        """
        client = self._open_client()
        if queue is not None:
            check_queue(queue)
        results: list[SendResult] = []
        check_several(messages)
        named = list(map(self._named, messages))
        if queue is not None and named:
            check_queue_of(queue, named[0].topic, self._namespace)
        requests = deque(batch_requests(named, client.unique_keys(len(named)), client.now_ms()))
        while requests:
            request = requests.popleft()
            part = named[len(results) :][: len(request.ids)]
            try:
                results += await self._send(client, request, part, queue)
            except ReputError as error:
                if len(part) > 1 and may_be_too_large(error):
                    requests.extendleft(reversed(request.halves()))
                    continue
                error.stored_messages = len(results)
                raise
        return results

    async def send_arrow(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Send the rows of a table as messages, of any topics, in batches that kernels encode.

            sent = await producer.send_arrow(pa.table({"topic": ["orders"] * 2, "body": [b"one", b"two"]}))

        Rows of one queue are stored in their order. A batch that failed is sent again, with the same unique keys: to
        another queue, or to its own if the rows name it.

        Args:
            rows: Columns `topic` and `body`, and as wanted `tags`, `keys`, `properties`, `unique_key`, `flag`,
                `born_timestamp` and `queue_id`, as `MessageStore.put_arrow` takes them; or `sharding_key`, as of
                `send`, in place of `queue_id`. Without both the rows go to all queues of their topic, in equal runs.
                What a broker assigns is not looked at, so rows of `poll_arrow` and `read_log` may be sent. Rows of one
                time of birth share a batch: leave out `born_timestamp` if the time of the send will do.

        Returns:
            A row for each row: `message_id`, `broker_name`, `queue_id`, `queue_offset` (int64) and `status`.

        Raises:
            ConfigError: `reput[client]` is not installed.
            MessageIllegalError: A column or a row that brokers would refuse, by its number.
            MQClientError: There is no such queue, or no attempt succeeded. `stored_messages` is the number of
                first rows that are stored; of the 65 536 rows after them some may be, too.
            MQBrokerError: As of `send`.
        """
        client = self._open_client()
        require_tables("send_arrow")
        # Here: NumPy, Numba and Arrow take a second.
        sender = await asyncio.to_thread(import_module, "reput.client.producing.row_sender")
        return await sender.send_rows(
            client, self._faults, rows, self._namespace, tls=self._tls, group=self._group, timeout_s=self._timeout,
            attempts=self._attempts,
        )  # fmt: skip

    async def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Send a message that no broker answers: it may be lost. Returns when it is on its way; errors as of `send`."""
        client = self._open_client()
        if sharding_key is not None:
            check_sharding_key(sharding_key)
        message = self._named(message)
        more = {} if sharding_key is None else {SHARDING_KEY: sharding_key}
        request = send_request(message, client.unique_key(), client.now_ms(), more)
        self._tags.look_at([message])
        queues = await client.routes.publish_queues(message.topic)
        if sharding_key is not None:
            queue = queue_of_key(sharding_key, queues)
        else:
            queue = self._faults.select(queues, (), asyncio.get_running_loop().time())
        await client.api.one_way(client.master(queue.broker_name), request.command(self._group, queue, one_way=True))

    async def recall(self, topic: str, recall_handle: str | None) -> str:
        """Take back a delayed message, by the handle of its `SendResult`; consumers do not get it.

        Returns the message's id.

        Raises:
            ConfigError: There is no such topic, or the handle is no text: None for a message without a time of its own.
            MessageIllegalError: The text is no handle.
            MQBrokerError: The broker refuses: its time has come, or recallMessageEnable is off.
            MQClientError, RemotingError: The broker is not there, or does not answer.
        """
        client = self._open_client()
        from reput.client.producing.recalls import recall_message  # here: other producers do without it

        return await recall_message(client, self._namespace, self._group, topic, recall_handle, self._timeout)

    async def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[Message], Awaitable[LocalTransactionState] | LocalTransactionState],
    ) -> TransactionSendResult:
        """Send a message that consumers see only if a local transaction is committed.

        The message is stored first, then `execute` runs the local transaction and returns its outcome. If it raises,
        or does not know, a broker asks `check_transaction` later.

        Raises:
            MQClientError: The producer has no `check_transaction`.
            ConfigError: What `execute` returns is no outcome; the broker asks later.
            Exception: What `execute` raises; and as `send`, before `execute` was called.
        """
        client = self._open_client()
        check_function("execute", execute)
        if self._transactions is None:
            raise MQClientError("give the producer check_transaction=..., which a broker asks how a transaction ended")
        more = self._transactions.half_properties()
        request = half_request(self._named(message), client.unique_key(), client.now_ms(), more)
        (half,) = await self._send(client, request, [message], None, needs_heartbeat=True)
        return await self._transactions.run(message, half, execute)

    async def request(self, message: Message, *, timeout: float = 3.0) -> Message:
        """Send a message to a consumer that replies to it, and return the reply.

        Raises RemotingTimeoutError if no reply comes in time, ConfigError if the timeout is none; else as `send`.
        """
        check_seconds("timeout", timeout, most=_MOST_REQUEST_S)
        client = self._open_client()
        from reput.client.producing.requests_and_replies import RequestsAndReplies  # others do without it

        if self._requests is None:
            self._requests = RequestsAndReplies()
            self._handlers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = self._requests.replied
        number, more = self._requests.begin(client.client_id, timeout)
        try:
            request = send_request(self._named(message), client.unique_key(), client.now_ms(), more)
            await self._send(client, request, [message], None, needs_heartbeat=True)
            return await self._requests.wait(number, timeout)
        finally:
            self._requests.end(number)

    async def reply(self, request: MessageClientExt, body: bytes) -> SendResult:
        """Reply to a message that a client has sent by `request`.

        Raises MQBrokerError if the client is gone, MQClientError if the message is no request, ConfigError if
        it is no message of a consumer; else as `send`.
        """
        client = self._open_client()
        from reput.client.instance.message_client_ext import MessageClientExt
        from reput.client.producing.requests_and_replies import reply_of

        if not isinstance(request, MessageClientExt):
            raise refusal("request", request, "the message that a consumer was given, to which this replies")
        message = reply_of(request.properties, body)
        reply = send_request(message, client.unique_key(), client.now_ms())._replace(is_reply=True)
        queue = QueueKey(message.topic, request.queue.broker_name, 0)
        return (await self._send(client, reply, [message], queue))[0]

    async def queues(self, topic: str) -> tuple[QueueKey, ...]:
        """The queues of a topic that take messages; errors as of `send`, and ConfigError for what is no topic."""
        check_topic_name(topic)
        queues = await self._open_client().routes.publish_queues(self._namespace.wrap(topic))
        return tuple(map(self._namespace.bare_queue, queues))

    def _named(self, message: Message) -> Message:
        """A message with its topic's name at the brokers."""
        check_one(message)
        return self._namespace.wrap_message(message)

    async def _send(
        self,
        client: ClientInstance,
        request: SendRequest,
        messages: Sequence[Message],
        queue: QueueKey | None,
        *,
        needs_timer: bool = False,
        needs_heartbeat: bool = False,
    ) -> list[SendResult]:
        """Send to a queue, or to any; see `SendAttempts.send`."""
        self._tags.look_at(messages)
        wanted = None if queue is None else self._namespace.wrap_queue(queue)
        attempts = SendAttempts(client, self._faults, self._group, self._timeout, self._attempts)
        sent = await attempts.send(request, wanted, needs_timer=needs_timer, needs_heartbeat=needs_heartbeat)
        told = self._told(sent.results)
        if self._traces is not None:
            self._traces.sent(messages, request, told, sent.address, sent.seconds)
        return told

    def _told(self, results: list[SendResult]) -> list[SendResult]:
        """Results with their topic's name as the program knows it."""
        namespace = self._namespace
        return [one._replace(queue=namespace.bare_queue(one.queue)) for one in results] if namespace.name else results


async def trace_producer(
    namesrv: str, name: str, tls: ClientTls | None, credentials: SessionCredentials | None
) -> Producer:
    """A producer, started, that sends the traces of another client."""
    group = f"_INNER_TRACE_PRODUCER-{name}"[:MAX_GROUP_LENGTH]
    producer = Producer(namesrv, group=group, timeout=_TRACE_S, tls=tls, credentials=credentials)
    await producer.start()
    return producer

"""Brokers in memory, at addresses of a virtual net: what a model test has in their place."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from reput.client.instance.topic_route import MASTER_ID
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.record import encode_record
from reput.remoting.body import encode_body
from reput.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader
from reput.remoting.queue_tables import QueueKey, encode_queue_tables
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader, SendMessageResponseHeader, decode_send_header
from reput.remoting.topic_validator import AUTO_CREATE_TOPIC, dlq_topic_of, retry_topic_of
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.transport.connection import Connection
from reput.transport.requests import Requests
from tests.support.virtual.net import VirtualLoop

#: A message that was sent back comes again after so many seconds.
RETRY_S = 10.0
#: Offsets are in a broker's file after so many seconds at most; a broker that is killed forgets later ones.
FILE_S = 5.0
HOST = encode_host("10.0.0.1:10911")
Handler = Callable[[Connection, RemotingCommand], "RemotingCommand | Awaitable[RemotingCommand | None] | None"]


@dataclass
class Faults:
    """Faults of a server.

    Attributes:
        late_s: An answer comes so much later at most: after the client has given up, if that is long enough.
        refused: The share of requests that are refused, as by a broker that has too much to do.
        cut: The share of answers in place of which the connection ends.
    """

    late_s: float = 0.0
    refused: float = 0.0
    cut: float = 0.0


class Server:
    """A server at an address, which may be away, slow, or refuse.

    Attributes:
        connections: Those that are open.
        refuses: Codes of requests that are refused.
        answers_late: Seconds after which answers to requests come, by request code.
        arrives: Called with each request; False: it is lost with its connection.
        leaves: Called with each request that was handled, before its answer.
    """

    def __init__(self, loop: VirtualLoop, address: str, chance: random.Random, handlers: dict[int, Handler]) -> None:
        self.address = address
        self.faults = Faults()
        self.refuses: set[int] = set()
        self.answers_late: dict[int, float] = {}
        self.arrives: Callable[[Connection, RemotingCommand], bool] = lambda *_: True
        self.leaves: Callable[[Connection, RemotingCommand], None] = lambda *_: None
        self.is_up = False
        self.connections: set[Connection] = set()
        self._loop = loop
        self._chance = chance
        self._requests = Requests({code: self._faulty(handler) for code, handler in handlers.items()})

    def start(self) -> None:
        self.is_up = True
        self._loop.net.listen(self.address, lambda: Connection(self))

    def kill(self) -> None:
        self.is_up = False
        self._loop.net.shut(self.address)

    def cut(self) -> None:
        """End all connections."""
        self._loop.net.cut(self.address)

    def _faulty(self, handler: Handler) -> Any:
        async def answer(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            if not self.arrives(connection, command):
                return None
            faults, chance = self.faults, self._chance
            if chance.random() < faults.refused or command.code in self.refuses:
                return command.response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD] try later")
            found = handler(connection, command)
            found = await found if isawaitable(found) else found
            self.leaves(connection, command)
            await asyncio.sleep(chance.random() * faults.late_s + self.answers_late.get(command.code, 0.0))
            if found is not None and chance.random() < faults.cut:
                self.lost(command, found)
                connection.abort()
                return None
            return found

        return answer

    def lost(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        """The answer to a request does not come."""

    # -- Owner of the connections

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)

    def readable(self, connection: Connection) -> None:
        self._requests.take_all(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)


@dataclass
class _Held:
    """A pull that waits for a message."""

    queue: QueueKey
    answer: asyncio.Event = field(default_factory=asyncio.Event)


class Visitor:
    """Connection of a member that hears nothing."""

    def send_one_way(self, command: RemotingCommand) -> None:
        pass


class ModelBroker(Server):
    """A broker of one group, whose life ends by kills alone.

    Args:
        on_commit: Told of each offset that the group commits, and over which connection.
        on_begin: Told of each offset at which a member begins, and over which connection.
        on_reset: Told when a reset reaches a member, with the queue, and whether its answer is lost.
        topics: What it has.

    Attributes:
        records: By queue.
        offsets: The group's.
        locks: Who may handle a queue.
        on_lock: Told of each queue that another client has locked than before, and of the group's offset.
        retries: How many messages that were sent back are to come again.
        suggests: The broker id that a pull is to ask next, by how many messages of its queue come after its own.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        address: str,
        chance: random.Random,
        group: str,
        topics: tuple[str, ...],
        on_commit: Callable[[QueueKey, int, Connection], None] = lambda *_: None,
        on_begin: Callable[[QueueKey, int, Connection], None] = lambda *_: None,
        on_reset: Callable[[QueueKey, Connection | None], None] = lambda *_: None,
    ) -> None:
        super().__init__(
            loop, address, chance,
            {
                RequestCode.HEART_BEAT: self._heartbeat,
                RequestCode.UNREGISTER_CLIENT: self._unregister,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
                RequestCode.PULL_MESSAGE: self._pull,
                RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
                RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
                RequestCode.GET_MAX_OFFSET: self._max_offset,
                RequestCode.GET_MIN_OFFSET: self._min_offset,
                RequestCode.LOCK_BATCH_MQ: self._lock,
                RequestCode.UNLOCK_BATCH_MQ: self._unlock,
                RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
                RequestCode.SEND_MESSAGE_V2: self._send,
                **self._more_handlers(),
            },
        )  # fmt: skip
        self.name = name
        self.group = group
        self.topics = {*topics, retry_topic_of(group), AUTO_CREATE_TOPIC}
        self.records: dict[QueueKey, list[bytes]] = {}
        self.offsets: dict[QueueKey, int] = {}
        self.resets: dict[QueueKey, int] = {}
        self.locks: RebalanceLockManager[QueueKey] = RebalanceLockManager()
        self.members: dict[str, Connection | Visitor] = {}
        self.producers: dict[str, Connection] = {}
        self.killed_at = -1e9
        self.retries = 0
        self._in_file: dict[QueueKey, int] = {}
        self._in_file_at = 0.0
        self._log: list[tuple[Message, int, QueueKey, int]] = []  # with its times, and where it is
        self._held: list[_Held] = []
        self._last_holder: dict[QueueKey, str] = {}
        self._on_commit = on_commit
        self._on_begin = on_begin
        self._on_reset = on_reset
        self.sent_back: Callable[[QueueKey, int, bool], None] = lambda *_: None
        self.on_lock: Callable[[QueueKey, int, str], None] = lambda *_: None
        self.suggests: Callable[[int], int] = lambda _: MASTER_ID

    def _more_handlers(self) -> dict[int, Handler]:
        """Handlers of what this kind of broker takes besides."""
        return {}

    def kill(self) -> None:
        """End at once: locks, members and the latest offsets are forgotten."""
        self._to_file()
        super().kill()
        self.offsets = dict(self._in_file)
        self.resets.clear()
        self.locks = RebalanceLockManager()
        self.members.clear()
        self.producers.clear()
        self.killed_at = self._loop.time()

    # -- what is stored

    def put(self, queue: QueueKey, message: Message, times: int = 0) -> int:
        """Store a message; returns its queue offset."""
        records = self.records.setdefault(queue, [])
        stored = Message(queue.topic, message.body, properties=message.properties, reconsume_times=times)
        records.append(
            encode_record(
                stored, queue_id=queue.queue_id, queue_offset=len(records), commit_log_offset=1000 * len(self._log),
                store_timestamp=0, store_host=HOST, born_timestamp=0, born_host=HOST,
            )
        )  # fmt: skip
        self._log.append((stored, times, queue, len(records) - 1))
        self._arrived(queue)
        return len(records) - 1

    def _arrived(self, queue: QueueKey) -> None:
        """Let pulls go on that wait for messages of a queue."""
        for held in self._held:
            if held.queue == queue:
                held.answer.set()

    def first_queue(self, topic: str) -> QueueKey:
        return QueueKey(topic, self.name, 0)

    def end(self, queue: QueueKey) -> int:
        return len(self.records.get(queue, ()))

    def _queue(self, fields: dict[str, str]) -> QueueKey:
        return QueueKey(fields["topic"], self.name, int(fields["queueId"]))

    def _send(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_send_header(command.code, command.ext_fields)
        queue = QueueKey(header.topic, self.name, header.queue_id)
        offset = self.put(queue, Message(header.topic, command.body))
        answer = SendMessageResponseHeader(f"{len(self._log):032X}", queue.queue_id, offset)
        return command.response(ext_fields=encode_header(answer))

    def _send_back(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_header(ConsumerSendMsgBackRequestHeader, command.ext_fields)
        message, times, queue, offset = self._log[header.offset // 1000]
        is_dead = header.delay_level < 0 or times >= (header.max_reconsume_times or 16)
        again = Message(message.topic, message.body, properties={"RETRY_TOPIC": "orders"})
        self.sent_back(queue, offset, is_dead)
        if is_dead:
            self.put(QueueKey(dlq_topic_of(self.group), self.name, 0), again, times + 1)
        else:
            retry = QueueKey(retry_topic_of(self.group), self.name, 0)
            self.retries += 1
            self._loop.call_later(RETRY_S, self._retry, retry, again, times + 1)
        return command.response()

    def _retry(self, queue: QueueKey, message: Message, times: int) -> None:
        self.retries -= 1
        self.put(queue, message, times)

    # -- members

    def _heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = json.loads(command.body)
        client_id = body["clientID"]
        if body["producerDataSet"]:
            self.producers[client_id] = connection
        if body["consumerDataSet"]:
            is_new = client_id not in self.members
            self.members[client_id] = connection
            if is_new:
                self._tell_members()
        return command.response()

    def _unregister(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields or {}
        self.producers.pop(fields["clientID"], None)
        if self.members.pop(fields["clientID"], None) is not None:
            self._tell_members()
        return command.response()

    def closed(self, connection: Connection) -> None:
        super().closed(connection)
        self.producers = {one: known for one, known in self.producers.items() if known is not connection}
        gone = [one for one, known in self.members.items() if known is connection]
        for one in gone:
            del self.members[one]
        if gone:
            self._tell_members()

    async def visited(self, name: str, seconds: float) -> None:
        """A member comes, handles nothing, and goes."""
        self.members[name] = Visitor()
        self._tell_members()
        await asyncio.sleep(seconds)
        self.members.pop(name, None)
        self._tell_members()

    def _tell_members(self) -> None:
        for connection in self.members.values():
            fields = {"consumerGroup": self.group}
            connection.send_one_way(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=fields))

    def _members(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        if not self.members:
            return command.response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return command.response(body=encode_body({"consumerIdList": sorted(self.members)}))

    # -- locks

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _locked(self, command: RemotingCommand) -> tuple[str, list[QueueKey]]:
        body = json.loads(command.body)
        return body["clientId"], [QueueKey(one["topic"], one["brokerName"], one["queueId"]) for one in body["mqSet"]]

    def _lock(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        client_id, queues = self._locked(command)
        held = self.locks.try_lock_batch(self.group, queues, client_id, self._now_ms())
        for queue in held:
            if self._last_holder.get(queue) != client_id:
                self._last_holder[queue] = client_id
                self.on_lock(queue, self.offsets.get(queue, 0), client_id)
        return command.response(
            body=encode_body(
                {
                    "lockOKMQSet": [
                        {"topic": one.topic, "brokerName": one.broker_name, "queueId": one.queue_id} for one in held
                    ]
                }
            )
        )

    def _unlock(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        client_id, queues = self._locked(command)
        self.locks.unlock_batch(self.group, queues, client_id)
        return command.response()

    def holder(self, queue: QueueKey) -> str | None:
        """The client that has a queue locked."""
        lock = self.locks._locks.get(self.group, {}).get(queue)
        return None if lock is None or self._now_ms() - lock[1] > 60_000 else lock[0]

    # -- offsets

    def _to_file(self) -> None:
        if self._loop.time() - self._in_file_at >= FILE_S:
            self._in_file, self._in_file_at = dict(self.offsets), self._loop.time()

    def _commit(self, queue: QueueKey, offset: int, connection: Connection) -> None:
        self._to_file()
        self.offsets[queue] = offset
        self._on_commit(queue, offset, connection)

    def _query_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        queue = self._queue(command.ext_fields or {})
        offset = self.resets.get(queue, self.offsets.get(queue))
        self._on_begin(queue, offset or 0, connection)
        if offset is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, "not found")
        return command.response(ext_fields={"offset": str(offset)})

    def _update_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields or {}
        queue = self._queue(fields)
        if queue not in self.resets:
            self._commit(queue, int(fields["commitOffset"]), connection)
        return command.response()

    def _max_offset(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(ext_fields={"offset": str(self.end(self._queue(command.ext_fields or {})))})

    def _min_offset(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(ext_fields={"offset": "0"})

    def reset(self, queue: QueueKey, offset: int) -> None:
        """An operator's reset: the next pull is told."""
        self._to_file()
        self.resets[queue] = self.offsets[queue] = offset

    def reset_members(self, queue: QueueKey, offset: int) -> None:
        """An operator's reset as by a broker of RocketMQ 4: members are told, and commit it."""
        for connection in self.members.values():
            body = encode_queue_tables({"offsetTable": {queue: offset}})
            connection.send_one_way(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, body=body))

    # -- pulls

    async def _pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_header(PullMessageRequestHeader, command.ext_fields)
        queue, offset = QueueKey(header.topic, self.name, header.queue_id), header.queue_offset
        if queue in self.resets:
            self._on_reset(queue, connection)
            return self._pulled(command, ResponseCode.PULL_OFFSET_MOVED, queue, self.resets.pop(queue))
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            assert header.commit_offset is not None
            self._commit(queue, header.commit_offset, connection)
        if offset > self.end(queue):
            return self._pulled(command, ResponseCode.PULL_OFFSET_MOVED, queue, self.end(queue))
        if offset == self.end(queue) and header.sys_flag & PullSysFlag.SUSPEND:
            await self._hold(queue, header)
        found = self._found(queue, header)
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return self._pulled(command, code, queue, offset + len(found), b"".join(found))

    async def _hold(self, queue: QueueKey, header: PullMessageRequestHeader) -> None:
        """Return when a message comes, or the pull has waited long enough."""
        held = _Held(queue)
        self._held.append(held)
        try:
            async with asyncio.timeout((header.suspend_timeout_millis or 0) / 1000):
                await held.answer.wait()
        except TimeoutError:
            pass
        finally:
            self._held.remove(held)

    def _found(self, queue: QueueKey, header: PullMessageRequestHeader) -> list[bytes]:
        begin = header.queue_offset
        return self.records.get(queue, [])[begin : begin + min(header.max_msg_nums, 32)]

    def _pulled(
        self, command: RemotingCommand, code: ResponseCode, queue: QueueKey, following: int, body: bytes = b""
    ) -> RemotingCommand:
        end = self.end(queue)
        header = PullMessageResponseHeader(self.suggests(end - following), following, 0, end)
        return command.response(code, None, encode_header(header), body)

    def lost(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._on_reset(self._queue(command.ext_fields or {}), None)

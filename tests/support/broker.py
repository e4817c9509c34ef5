"""A broker in the loop of a test, and a client of it that is nothing but a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reput.broker.broker import BrokerController
from reput.config.broker import broker_configs
from reput.files import DISK, FileLayer, NeverWaiting, never_waiting
from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.formats.message_ext import MessageExt
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.codes import PullSysFlag, RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.send_headers import V2_NAMES
from reput.transport.client import RemotingClient
from tests.support.async_tests import run
from tests.support.sockets import Peer

T = TypeVar("T")

#: Files of a few pages, and no syncs: most tests are about answers.
SMALL = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
#: A machine that stands still makes no sync late.
SYNCED = SMALL | {"flush_disk_type": "SYNC_FLUSH", "syncFlushTimeout": 60_000}
BORN_MS = 1_700_000_000_000
#: A pull that waits so long is answered by a message, or by a broker that stops.
LONG_MS = 60_000
_NAMES = {long: short for short, long in V2_NAMES.items()}


class Client(Peer):
    """A client that numbers its requests; what the broker asks of it, and late answers, wait in queues."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.requests: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._last = 0
        self._gone: Exception | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                command = await self.receive()
                if command.is_response:
                    answer = self._answers.pop(command.opaque)
                    if not answer.done():  # nobody waits any more
                        answer.set_result(command)
                else:
                    self.requests.put_nowait(command)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self._gone = error
            self._fail_all(error)

    def _fail_all(self, error: Exception) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # a test need not wait for it

    def begin(
        self, code: int, body: bytes = b"", *, flag: int = 0, **fields: object
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future is done by its answer."""
        return self.begin_all([RemotingCommand(code, flag=flag, ext_fields=texts(fields), body=body)])[0]

    def begin_all(self, commands: Sequence[RemotingCommand]) -> list[asyncio.Future[RemotingCommand]]:
        """Send requests in one write."""
        begun = []
        for command in commands:
            self._last += 1
            command.opaque = self._last
            begun.append(asyncio.get_running_loop().create_future())
            if not command.is_one_way:
                self._answers[command.opaque] = begun[-1]
        self.send(*commands)
        if self._gone is not None:
            self._fail_all(self._gone)
        return begun

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """The answer to a request."""
        return await self.begin(code, body, **fields)

    async def send_message(self, topic: str, body: bytes = b"x", **more: Any) -> RemotingCommand:
        """The answer to `send_command`."""
        return await self.begin_all([send_command(topic, body, **more)])[0]

    async def pull(self, topic: str, offset: int = 0, **more: Any) -> RemotingCommand:
        """The answer to `pull_command`."""
        return await self.begin_all([pull_command(topic, offset, **more)])[0]

    async def heartbeat(self, client_id: str, *groups: Mapping[str, Any], producers: Sequence[str] = ()) -> None:
        """Say who is there; `groups`: of `consumer`."""
        body = {
            "clientID": client_id,
            "consumerDataSet": list(groups),
            "producerDataSet": [{"groupName": name} for name in producers],
        }
        assert (await self.ask(RequestCode.HEART_BEAT, json.dumps(body).encode())).code == 0

    async def one_way(self, code: int, body: bytes = b"", **fields: object) -> None:
        """Send a request that is not answered; it is done when this returns."""
        self.begin(code, body, flag=ONE_WAY_FLAG, **fields)
        await self.round_trip()

    async def round_trip(self) -> None:
        """Return when the broker has taken all that was sent before."""
        await self.ask(RequestCode.GET_MAX_OFFSET, topic="none", queueId=0)

    async def until_gone(self, awaited: asyncio.Future[T]) -> T:
        """The result of a future; ConnectionResetError where the connection ends before."""
        await asyncio.wait((awaited, self._reading), return_when=asyncio.FIRST_COMPLETED)
        if not awaited.done():
            awaited.cancel()
            raise ConnectionResetError
        return awaited.result()

    async def next_request(self) -> RemotingCommand:
        """The broker's next request; ConnectionResetError if the connection ends before."""
        return await self.until_gone(asyncio.ensure_future(self.requests.get()))

    async def ended(self) -> None:
        """Return when the broker has closed the connection."""
        await self._reading

    async def leave(self) -> None:
        """Close the connection."""
        self.close()
        await self._reading


def texts(fields: Mapping[str, object]) -> dict[str, str]:
    """Fields of a command, as Java writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}


def send_command(
    topic: str,
    body: bytes = b"x",
    *,
    properties: Mapping[str, str] | None = None,
    code: int = RequestCode.SEND_MESSAGE_V2,
    one_way: bool = False,
    **fields: object,
) -> RemotingCommand:
    """A send; `fields` in SEND_MESSAGE's names."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in (properties or {}).items())
    given: dict[str, object] = {
        "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": BORN_MS, "flag": 0, "properties": text, "batch": False,
    } | fields  # fmt: skip
    if code != RequestCode.SEND_MESSAGE:
        given = {_NAMES[name]: value for name, value in given.items()}
    return RemotingCommand(code, flag=ONE_WAY_FLAG * one_way, ext_fields=texts(given), body=body)


def send_numbers(address: str, first: int, end: int, topic: str = "orders") -> None:
    """Send messages to four queues in turn, each with its number as its body and, after a k, as its key.

    Returns when they are in queues and index.
    """

    async def send() -> None:
        client = RemotingClient()
        for number in range(first, end):
            properties = {"KEYS": f"k{number}", "TAGS": "paid"}
            command = send_command(topic, str(number).encode(), properties=properties, queueId=number % 4)
            assert (await client.call(address, command)).code == 0
        fields = texts({"topic": topic, "queueId": 0})
        asked = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields=fields)  # is answered when all is dispatched
        assert (await client.call(address, asked)).code == 0
        client.close()

    asyncio.run(send())


def batch_command(topic: str, bodies: Sequence[bytes], **more: Any) -> RemotingCommand:
    """A send of a batch, each message with its number as its tag."""
    messages = [Message(topic, body, tags=str(number)) for number, body in enumerate(bodies)]
    return send_command(topic, encode_batch(messages), code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **more)


def pull_command(
    topic: str,
    offset: int = 0,
    *,
    group: str = "g",
    code: int = RequestCode.PULL_MESSAGE,
    tags: str | None = "*",
    hold_ms: int | None = None,
    commit: int | None = None,
    **fields: object,
) -> RemotingCommand:
    """A pull. tags: None takes the subscription of the group's heartbeats; hold_ms: how long it may wait."""
    flags = PullSysFlag.SUBSCRIPTION * (tags is not None) | PullSysFlag.SUSPEND * (hold_ms is not None)
    flags |= PullSysFlag.COMMIT_OFFSET * (commit is not None)
    given: dict[str, object] = {
        "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": int(flags), "commitOffset": commit or 0, "suspendTimeoutMillis": hold_ms or 0, "subVersion": 0,
    } | ({} if tags is None else {"subscription": tags}) | fields  # fmt: skip
    return RemotingCommand(code, ext_fields=texts(given))


def consumer(group: str, *topics: str, tags: str = "*", version: int = 1, **more: object) -> dict[str, Any]:
    """A group in a heartbeat."""
    subscriptions = [{"topic": topic, "subString": tags, "subVersion": version} for topic in topics]
    return {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions, **more,
    }  # fmt: skip


def messages_of(answer: RemotingCommand) -> list[MessageExt]:
    """The messages of an answer that was found."""
    assert answer.code == 0, answer
    found, position = [], 0
    while position < len(answer.body):
        found.append(MessageExt(answer.body, position))
        position += found[-1].store_size
    return found


class Served:
    """A broker that runs."""

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self._clients: list[Client] = []
        self._is_stopped = False

    async def stop(self) -> None:
        """Stop the broker, if that is not done."""
        if not self._is_stopped:
            self._is_stopped = True
            await self.controller.stop()

    async def client(self) -> Client:
        """Another client."""
        host, _, port = self.controller.address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self._clients.append(client)
        return client

    async def leave_all(self) -> None:
        for client in self._clients:
            await client.leave()


def controller_of(
    path: Path, *, files: FileLayer = DISK, config_path: str | None = None, namesrv_port: int = 0, **keys: object
) -> BrokerController:
    """A broker that is not started, on free ports of this machine, unless told others."""
    given = SMALL | {"bind_address": "127.0.0.1", "listen_port": 0, "brokerIP1": "127.0.0.1"} | keys
    config, store_config, _ = broker_configs(given)
    return BrokerController(
        str(path), config, store_config, namesrv_port=namesrv_port, config_path=config_path, files=files
    )


@contextmanager
def _waiting() -> Iterator[None]:
    """This thread may wait for the disk, also inside of `NeverWaiting`."""
    before, never_waiting._of_thread.may_wait = never_waiting._of_thread.may_wait, True
    try:
        yield
    finally:
        never_waiting._of_thread.may_wait = before


@asynccontextmanager
async def serving_broker(
    path: Path, *, files: FileLayer = DISK, config_path: str | None = None, **keys: object
) -> AsyncIterator[Served]:
    """A broker on a folder, with these keys of broker and store; it is stopped, unless the test has done so.

    While it runs, whatever would make the loop's thread wait for the disk is an error.
    """
    controller = controller_of(path, files=files, config_path=config_path, **keys)
    with _waiting():  # other brokers may be served in this loop
        await controller.start()
    served = Served(controller)
    with NeverWaiting():
        try:
            yield served
        finally:
            await served.leave_all()
            await served.stop()


async def with_topic(client: Client, topic: str, queues: int = 1, perm: int = 6, **fields: object) -> None:
    """Make a topic, as an operator does."""
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues,
        writeQueueNums=fields.pop("writable", queues), perm=perm, topicSysFlag=0,
        topicFilterType=fields.pop("filter_type", "SINGLE_TAG"), order=fields.pop("order", False), **fields,
    )  # fmt: skip
    assert answer.code == 0, answer


async def fill(client: Client, topic: str, *tags: str) -> None:
    """Send a message for each tag, and return when they can be pulled."""
    for number, tag in enumerate(tags):
        assert (await client.send_message(topic, b"%d" % number, properties={"TAGS": tag})).code == 0
    await client.pull(topic, len(tags) - 1, group="filler", hold_ms=LONG_MS)


def make_topic(address: str, topic: str, queues: int, **fields: object) -> None:
    """Make a topic of a broker that runs in a process or a thread of its own."""

    async def make() -> None:
        host, _, port = address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        await with_topic(client, topic, queues, **fields)
        await client.leave()

    run(make())

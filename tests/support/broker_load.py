"""A `reput broker` in a process of its own, and clients that load it until it dies."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import SMALL, Client, consumer, messages_of, send_command, texts, with_topic
from tests.support.broker_ledger import STORE_KEYS, Ledger, body_of

TOPIC, QUEUES, GROUPS = "orders", 3, ("billing", "shipping")
_PRODUCERS = 3
_AT_ONCE = 20
_MOST_S = 120
_NONE_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Death(NamedTuple):
    """End of a life under load.

    Attributes:
        answers: Messages that are acknowledged before it.
        moment_s: Seconds from then to the first signal.
        is_stopped: The first signal is SIGTERM, and not SIGKILL.
        stop_s: Seconds from SIGTERM to SIGKILL; None: it stops by itself.
        is_drained: Nor before each group has gone on to all that was there before this life.
    """

    answers: int
    moment_s: float = 0.0
    is_stopped: bool = False
    stop_s: float | None = None
    is_drained: bool = False


@contextmanager
def broker_process(
    store: Path, *, log_level: str = "info", port: int = 0, namesrv_port: int = 0, **keys: object
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The command, when it is ready, and its ready line; killed at the end, if it still runs."""
    with _starting(store, keys, log_level, port, namesrv_port) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        yield process, json.loads(line)


@contextmanager
def _starting(
    store: Path, keys: dict[str, object], log_level: str = "info", port: int = 0, namesrv_port: int = 0
) -> Iterator[subprocess.Popen[str]]:
    given = SMALL | {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"} | keys
    settings = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    ports = ["--port", str(port), "--namesrv-port", str(namesrv_port)]
    command = [
        sys.executable,
        "-m",
        "reput",
        "broker",
        str(store),
        *ports,
        "--json",
        "--log-level",
        log_level,
        *settings,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def kill_starting(store: Path, after_s: float, **keys: object) -> bool:
    """Start the command on a store, and kill it after some seconds; whether it was not ready yet."""
    with _starting(store, STORE_KEYS | keys) as process:
        time.sleep(after_s)
        process.kill()
        line, errors = process.communicate()
        assert process.returncode < 0, errors
        return not line


def load_until_death(store: Path, ledger: Ledger, life: str, death: Death, **keys: object) -> bool:
    """Start the command on a store and load it until it dies; whether it stopped by itself, clean.

    Keys of messages, names of topics and groups begin with the name of the life.
    """
    with broker_process(store, flushConsumerOffsetInterval=10, **STORE_KEYS | keys) as (process, ready):
        asyncio.run(_Load(process, ledger, life, death).run(ready["broker"]))
        _, errors = process.communicate(timeout=_MOST_S)
        assert "Traceback" not in errors, errors
        assert process.returncode <= 0, errors
        return process.returncode == 0


class _Load:
    """Producers and consumers of one life."""

    def __init__(self, process: subprocess.Popen[str], ledger: Ledger, life: str, death: Death) -> None:
        self._process = process
        self._ledger = ledger
        self._life = life
        self._death = death
        self._to_answer = death.answers
        ends = ledger.ends(TOPIC) if death.is_drained else {}
        self._to_drain = {(group, TOPIC, queue_id): end for group in GROUPS for queue_id, end in ends.items()}
        self._is_due = asyncio.Event()

    async def run(self, address: str) -> None:
        """Until the broker is gone; AssertionError for a wrong answer."""
        host, _, port = address.rpartition(":")

        async def client() -> Client:
            return Client(*await asyncio.open_connection(host, int(port)))

        works: list[Coroutine[object, object, None]] = [
            self._produce(await client(), f"{self._life}-{number}") for number in range(_PRODUCERS)
        ]
        for group in GROUPS:
            member = await client()
            await with_topic(member, TOPIC, QUEUES)
            await member.heartbeat(f"{self._life}-{group}", consumer(group, TOPIC))
            works += [self._consume(member, group, queue_id) for queue_id in range(QUEUES)]
        self._ledger.topics[TOPIC] = QUEUES
        try:
            async with asyncio.timeout(_MOST_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._die())
                for work in works:
                    tasks.create_task(self._until_gone(work))
        except* AssertionError as errors:
            raise errors.exceptions[0] from None

    async def _until_gone(self, work: Coroutine[object, object, None]) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await work
        assert self._is_due.is_set(), "a connection has ended, and nothing had been done to the broker"

    async def _die(self) -> None:
        await self._is_due.wait()
        await asyncio.sleep(self._death.moment_s)
        if self._death.is_stopped:
            self._process.terminate()
            if self._death.stop_s is None:
                return
            await asyncio.sleep(self._death.stop_s)
        self._process.kill()

    def _look(self) -> None:
        """See whether the time to die has come."""
        if self._to_answer <= 0 and not self._to_drain:
            self._is_due.set()

    # -- producers

    async def _produce(self, client: Client, name: str) -> None:
        chance, number = random.Random(name), 0
        while True:
            number += 1
            made, keys = f"{name}-{number}", [f"{name}-{number}-{i}" for i in range(_AT_ONCE)]
            match chance.randrange(12):
                case 0:
                    await self._send(client, f"{made}-sent", keys[:1], queueId=chance.randrange(4))
                    self._ledger.topics[f"{made}-sent"] = 4
                case 1:
                    await with_topic(client, f"{made}-made", 2)
                    self._ledger.topics[f"{made}-made"] = 2
                    await self._send(client, f"{made}-made", keys[:3], queueId=1)
                case 2:
                    body = json.dumps({"groupName": made}).encode()
                    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
                    assert answer.code == ResponseCode.SUCCESS, answer
                    self._ledger.groups.add(made)
                case 3 | 4 | 5:
                    await self._send_batch(client, keys[: chance.randrange(2, 9)], chance.randrange(QUEUES))
                case 6:
                    self._begin(client, TOPIC, keys[:5], one_way=True, queueId=chance.randrange(QUEUES))
                case _:
                    await self._send(client, TOPIC, keys, queueId=chance.randrange(QUEUES))

    def _begin(
        self, client: Client, topic: str, keys: list[str], **more: object
    ) -> list[asyncio.Future[RemotingCommand]]:
        self._ledger.sent.update(keys)
        return client.begin_all([send_command(topic, body_of(key), properties={"KEYS": key}, **more) for key in keys])

    async def _send(self, client: Client, topic: str, keys: list[str], **more: object) -> None:
        begun = self._begin(client, topic, keys, **more)
        await self._answered(topic, [[key] for key in keys], begun)

    async def _send_batch(self, client: Client, keys: list[str], queue_id: int) -> None:
        self._ledger.sent.update(keys)
        body = encode_batch([Message(TOPIC, body_of(key), keys=[key]) for key in keys])
        command = send_command(TOPIC, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, queueId=queue_id)
        await self._answered(TOPIC, [keys], client.begin_all([command]))

    async def _answered(self, topic: str, keys: list[list[str]], begun: list[asyncio.Future[RemotingCommand]]) -> None:
        """Take in the answers that come; ConnectionError or IncompleteReadError where some do not."""
        await asyncio.wait(begun)
        for sent, answer in zip(keys, begun, strict=True):
            if answer.exception() is None:
                self._ledger.acknowledge(topic, sent, answer.result())
                self._to_answer -= len(sent)
        self._look()
        for answer in begun:
            answer.result()

    # -- consumers

    async def _consume(self, client: Client, group: str, queue_id: int) -> None:
        """Go on where the group was, and commit in all three ways."""
        ledger, queue = self._ledger, (group, TOPIC, queue_id)
        chance = random.Random(f"{self._life} {group} {queue_id}")
        fields: dict[str, object] = {"consumerGroup": group, "topic": TOPIC, "queueId": queue_id}
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
        offset = int((answer.ext_fields or {}).get("offset", 0))
        persisted = ledger.persisted.get(queue, 0)
        assert offset == persisted, f"{queue}: goes on at {offset}, but {persisted} is in the file"
        commit = None
        while True:
            answer = await client.pull(TOPIC, offset, queueId=queue_id, group=group, hold_ms=5000, commit=commit)
            commit = None
            if answer.code in _NONE_YET:
                continue
            for message in messages_of(answer):
                assert message.queue_offset == offset, f"{queue}: {message.queue_offset} comes, {offset} is left out"
                (key,) = message.keys
                assert message.body == body_of(key), f"the body of {key} is another one"
                ledger.saw(TOPIC, queue_id, offset, key)
                offset += 1
            ledger.consumed[queue] = max(offset, ledger.consumed.get(queue, 0))
            if offset >= self._to_drain.get(queue, offset):
                self._to_drain.pop(queue, None)
                self._look()
            fields["commitOffset"] = offset
            match chance.randrange(4):
                case 0:
                    commit = offset
                case 1:
                    client.begin(RequestCode.UPDATE_CONSUMER_OFFSET, flag=ONE_WAY_FLAG, **texts(fields))
                case 2:
                    answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
                    assert answer.code == ResponseCode.SUCCESS, answer
                    ledger.committed[queue] = offset

"""A `reput broker` in a process of its own, and clients that load it until it is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reput import MessageStore
from reput.files import DISK
from reput.formats.metadata import ConsumerOffsets
from reput.log.metadata import read_metadata
from reput.remoting.codes import RequestCode
from reput.remoting.command import ONE_WAY_FLAG, RemotingCommand
from tests.support.broker import SMALL, Client, consumer, send_command, texts, with_topic
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import check_rebuild, check_store

TOPIC, QUEUES, GROUP = "orders", 3, "g"
_AT_ONCE = 20


class Sent(NamedTuple):
    """A message whose SEND_OK has come."""

    queue_id: int
    queue_offset: int
    body: bytes


@contextmanager
def broker_process(
    store: Path, *, log_level: str = "info", **keys: object
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The command, when it is ready, and its ready line; killed at the end, if it still runs."""
    given = SMALL | {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"} | keys
    settings = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "reput", "broker", str(store), "--port", "0", "--namesrv-port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--log-level", log_level, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def _load(address: str, process: subprocess.Popen[str], kill_after: int) -> tuple[list[Sent], dict[int, int]]:
    """Send and commit over two connections, and kill the process after so many answers."""
    host, _, port = address.rpartition(":")
    sent: list[Sent] = []
    committed: dict[int, int] = {}
    count = 0

    def answered(body: bytes, begun: asyncio.Future[RemotingCommand]) -> None:
        nonlocal count
        if begun.cancelled() or begun.exception() is not None:
            return
        answer = begun.result()
        assert answer.code == 0, answer
        fields = answer.ext_fields or {}
        sent.append(Sent(int(fields["queueId"]), int(fields["queueOffset"]), body))
        count += 1
        if count == kill_after:
            process.send_signal(signal.SIGKILL)

    async def work(name: int) -> None:
        client = Client(*await asyncio.open_connection(host, int(port)))
        if name == 0:
            await client.heartbeat("c", consumer(GROUP, TOPIC))
        number = 0
        try:
            while True:
                bodies = [b"%d-%d-" % (name, number + i) + b"x" * (37 * i) for i in range(_AT_ONCE)]
                number += _AT_ONCE
                commands = [send_command(TOPIC, body, queueId=number % QUEUES) for body in bodies]
                begun = client.begin_all(commands)
                for body, one in zip(bodies, begun, strict=True):
                    one.add_done_callback(lambda one, body=body: answered(body, one))
                await asyncio.gather(*begun)
                queue_id = number % QUEUES
                end = max(one.queue_offset for one in sent if one.queue_id == queue_id) + 1
                committed[queue_id] = max(committed.get(queue_id, 0), end)
                fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "commitOffset": end}
                client.begin(RequestCode.UPDATE_CONSUMER_OFFSET, flag=ONE_WAY_FLAG, **texts(fields))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    first = Client(*await asyncio.open_connection(host, int(port)))
    await with_topic(first, TOPIC, QUEUES)
    await asyncio.wait_for(asyncio.gather(work(0), work(1)), 120)
    return sent, committed


def load_and_kill(store: Path, kill_after: int, **keys: object) -> tuple[list[Sent], dict[int, int]]:
    """Start the command on a store, load it, and kill it after so many answers: (answered, committed by queue)."""
    with broker_process(store, flushConsumerOffsetInterval=10, **keys) as (process, ready):
        sent, committed = asyncio.run(_load(ready["broker"], process, kill_after))
        process.wait(60)
    return sent, committed


def check_killed(store: Path, rebuilt: Path, sent: list[Sent], committed: dict[int, int]) -> None:
    """What was answered is there after a recovery, and no offset is ahead of what was committed."""
    assert (store / "abort").exists()
    with MessageStore.open(store, files=FaultyFiles(), **SMALL) as opened:
        assert opened.topics[TOPIC].write_queue_nums == QUEUES
    check_store(store, SMALL)
    with MessageStore.open(store, read_only=True, **SMALL) as opened:
        for one in sent:
            (message,) = opened.get_message(TOPIC, one.queue_id, one.queue_offset, 1).messages()
            assert (message.queue_offset, message.body) == (one.queue_offset, one.body)
    offsets = read_metadata(str(store), ConsumerOffsets, DISK)
    table = {} if offsets is None else offsets.offset_table.get(f"{TOPIC}@{GROUP}", {})
    assert all(offset <= committed.get(queue_id, 0) for queue_id, offset in table.items())
    check_rebuild(store, rebuilt, SMALL)

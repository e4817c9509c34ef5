"""The loop never waits for the disk: who needs a file that is not there yet waits, and nobody else."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.bench.loop_stalls import stalls
from reput.formats.java import INT64_MAX
from reput.formats.metadata import TopicConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    SMALL,
    Client,
    Served,
    batch_command,
    consumer,
    messages_of,
    pull_command,
    send_command,
    serving_broker,
    with_topic,
)
from tests.support.faulty_files import FaultyFiles, Operation, fail_next, no_objection
from tests.support.held_disk import HeldDisk

#: Each file is full after a few messages.
TINY = SMALL | {
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": 400,
    "max_index_num": 40,
    "flush_interval_consume_queue": 5,
    "flush_interval_commit_log": 5,
    "flush_consumer_offset_interval": 5,
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
    "file_reserved_time": 0,
}


async def loop_is_free(client: Client) -> None:
    """Return when the broker has answered a request that needs no messages."""
    await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="none")


def filling(topic: str, count: int, size: int = 1000) -> list[RemotingCommand]:
    """Sends, each with its number in the body."""
    return [send_command(topic, b"%08d" % number + bytes(size)) for number in range(count)]


async def all_of(client: Client, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue's messages, from the first one that is still there."""
    fields = {"topic": topic, "queueId": queue_id}
    begin, end = [
        int((await client.ask(code, **fields)).ext_fields["offset"])
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    ]
    found: list[bytes] = []
    while begin + len(found) < end:
        found += [
            message.body for message in messages_of(await client.pull(topic, begin + len(found), queueId=queue_id))
        ]
    return found


async def test_the_loop_makes_syncs_and_removes_no_file(tmp_path: Path) -> None:
    loop_thread = threading.current_thread()
    in_loop: list[Operation] = []
    kinds: set[str] = set()

    def judge(operation: Operation) -> None:
        kinds.add(operation.kind)
        if threading.current_thread() is loop_thread and operation.kind not in ("write", "write_runs"):
            in_loop.append(operation)

    async def produce(client: Client, topic: str) -> None:
        for number in range(20):
            commands = [
                send_command(topic, bytes(700), queueId=number % 4, properties={"KEYS": f"k{number}"})
                for number in range(20)
            ]
            commands.append(batch_command(topic, [bytes(100)] * 20, queueId=number % 4))
            answers = await asyncio.gather(*client.begin_all(commands))
            assert {answer.code for answer in answers} == {0}

    async def consume(served: Served, topic: str) -> None:
        client = await served.client()
        await client.heartbeat(topic, consumer(f"of-{topic}", topic))
        offset = 0
        while offset < 200:  # of queue 0
            answer = await client.pull(topic, offset, group=f"of-{topic}", hold_ms=1000, commit=offset)
            if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_NOT_FOUND):
                await asyncio.sleep(0)
                continue
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
            await client.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=f"of-{topic}", topic=topic, queueId=0,
                commitOffset=offset,
            )  # fmt: skip

    async def work(served: Served) -> None:
        topics = [f"topic-{number}" for number in range(6)]
        store = served.controller._state.store
        producing = [asyncio.ensure_future(produce(await served.client(), topic)) for topic in topics]
        consuming = [asyncio.ensure_future(consume(served, topic)) for topic in topics]
        admin = await served.client()
        await asyncio.gather(*producing)
        await asyncio.to_thread(store.delete_expired)
        await asyncio.gather(*consuming)
        await with_topic(admin, "made", 4)
        time_range = {"beginTimestamp": 0, "endTimestamp": INT64_MAX, "maxNum": 4}
        found = await admin.ask(RequestCode.QUERY_MESSAGE, topic=topics[0], key="k1", **time_range)
        assert found.code in (0, ResponseCode.QUERY_NOT_FOUND)
        await admin.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=topics[0], queueId=0, timestamp=0)
        await admin.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="other", topic=topics[0], queueId=0)
        assert (await admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="made")).code == 0
        assert store.min_commit_log_offset > 0

    async with serving_broker(tmp_path / "store", files=FaultyFiles(judge), **TINY) as served:
        in_loop.clear()  # those of the start
        await work(served)
        assert not in_loop
        assert kinds >= {"create", "make_directories", "allocate", "sync", "sync_directory", "rename", "unlink"}


async def test_sends_wait_for_a_log_file_that_is_not_there_yet_and_nobody_else_does(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **TINY) as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"first")
        with disk.held():  # the next file is not finished, as its sync does not end
            begun = client.begin_all(filling("orders", 200))
            await begun[20]
            await asyncio.to_thread(disk.wait)
            for _ in range(10):
                await loop_is_free(other)
            assert len(messages_of(await other.pull("orders"))) > 1
            assert not begun[-1].done()
        answers = await asyncio.gather(*begun)
        assert [answer.code for answer in answers] == [0] * 200
        assert [body[:8] for body in await all_of(client, "orders")] == [
            b"first", *(b"%08d" % number for number in range(200))
        ]  # fmt: skip


async def test_batches_and_sends_that_wait_for_a_log_file_keep_their_order(tmp_path: Path) -> None:
    disk = HeldDisk()

    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **TINY) as served:
        client = await served.client()
        with disk.held():  # the topic is new, the log has no file, and each frame goes another way
            commands = [
                batch_command("orders", [b"%d-%d" % (number, i) + bytes(3000) for i in range(3)])
                if number % 3 == 0
                else send_command("orders", b"%d-0" % number + bytes(5000 * (number % 3)))
                for number in range(30)
            ]
            begun = client.begin_all(commands)
            await asyncio.to_thread(disk.wait)
            assert not begun[0].done()
        assert {answer.code for answer in await asyncio.gather(*begun)} == {0}
        bodies = [body.rstrip(b"\0") for body in await all_of(client, "orders")]
        expected = [b"%d-%d" % (n, i) for n in range(30) for i in range(1 if n % 3 else 3)]
        assert bodies == expected


async def test_a_send_to_a_new_topic_does_not_overtake_one_that_waits_for_a_log_file(tmp_path: Path) -> None:
    """The first one does not fit into the log's file, the second one does."""
    has_next_file, size = threading.Event(), TINY["mapped_file_size_commit_log"]

    def judge(operation: Operation) -> None:
        if f"/commitlog/{size:020}" in operation.path:
            has_next_file.wait(60)

    try:
        async with serving_broker(tmp_path / "store", files=FaultyFiles(judge), **TINY) as served:
            client, state = await served.client(), served.controller._state
            creation = state.creation
            await with_topic(client, "orders")
            await asyncio.gather(*client.begin_all(filling("orders", 12, 5000)))
            assert size - 5000 < state.store.max_commit_log_offset < size - 1000
            may_create, create = threading.Event(), state.topics.create

            def create_late(configs: Sequence[TopicConfig]) -> bool:
                may_create.wait(60)
                return create(configs)

            state.topics.create = create_late  # type: ignore[method-assign]
            begun = client.begin_all([send_command("new", bytes(5000)), send_command("new", b"small")])
            await client.round_trip()
            created = asyncio.ensure_future(creation.create(TopicConfig("new")))  # after the sends, which have begun it
            await asyncio.sleep(0)
            may_create.set()
            await created
            await client.round_trip()
            has_next_file.set()
            assert {answer.code for answer in await asyncio.gather(*begun)} == {0}
            assert await all_of(client, "new") == [bytes(5000), b"small"]
    finally:
        has_next_file.set()


async def test_sends_that_wait_for_a_log_file_are_refused_on_a_full_disk_until_there_is_space(tmp_path: Path) -> None:
    files = FaultyFiles()

    async with serving_broker(tmp_path / "store", files=files, **TINY) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"first")
        files.judge = fail_next("create", errno.ENOSPC, part="/commitlog/", times=1 << 30)
        batch = batch_command("orders", [bytes(30_000)] * 2)
        begun = client.begin_all([send_command("orders", bytes(30_000)), batch, *filling("orders", 60)])
        answers = await asyncio.gather(*begun)
        stored = [answer.code == 0 for answer in answers]
        assert stored[:3] == [True, False, True]  # what needs a new file is refused, not what fits
        assert not stored[-1]
        refused = [answer for answer in answers if answer.code]
        assert {answer.code for answer in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert all("no space left on the disk" in (answer.remark or "") for answer in refused)
        files.judge = no_objection
        assert (await client.send_message("orders", b"after")).code == 0
        assert (await all_of(client, "orders"))[-1] == b"after"


async def test_requests_that_read_wait_for_a_dispatch_that_makes_a_file_and_sends_do_not(tmp_path: Path) -> None:
    held, came = threading.Event(), threading.Event()
    held.set()

    def judge(operation: Operation) -> None:
        if operation.kind == "sync" and "/consumequeue/" in operation.path and not held.is_set():
            came.set()
            held.wait(60)

    keys = TINY | {"flush_interval_consume_queue": 60_000}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(judge), **keys) as served:
        client, reader = await served.client(), await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"first")
        held.clear()
        await asyncio.gather(*client.begin_all(filling("orders", 20)))  # more than a queue file has units
        pulled = reader.begin_all([pull_command("orders", 20)])[0]
        assert await asyncio.to_thread(came.wait, 60)
        assert (await client.send_message("orders", b"last")).code == 0
        await loop_is_free(client)
        assert not pulled.done()
        held.set()
        bodies = [message.body[:8] for message in messages_of(await pulled)]
        assert bodies in ([b"00000019"], [b"00000019", b"last"])
        assert len(await all_of(client, "orders")) == 22


async def test_the_type_of_a_topic_may_change_while_others_send(tmp_path: Path) -> None:
    """Nothing may be appended meanwhile, and the loop does not wait for that lock."""
    held, came = threading.Event(), threading.Event()

    def judge(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.endswith("topics.json") and came_is_wanted.is_set():
            came.set()
            held.wait(60)

    came_is_wanted = threading.Event()

    keys = TINY | {"os_page_cache_busy_time_out_mills": 60_000}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(judge), **keys) as served:
        client, other, admin = [await served.client() for _ in range(3)]
        await with_topic(client, "orders")
        await client.send_message("orders", b"first")
        came_is_wanted.set()
        changing = asyncio.ensure_future(with_topic(admin, "batches", attributes="+queue.type=BatchCQ"))
        assert await asyncio.to_thread(came.wait, 60)
        begun = client.begin_all([send_command("orders", b"second")])[0]
        await loop_is_free(other)
        assert not begun.done()
        held.set()
        await changing
        assert (await begun).code == 0
        assert await all_of(client, "orders") == [b"first", b"second"]


async def test_no_send_waits_while_the_disk_ends_no_sync(tmp_path: Path) -> None:
    """Each queue and index file is full after a few messages, and the next ones cannot be made; the log has room."""
    disk = HeldDisk()

    keys = TINY | {
        "mapped_file_size_commit_log": 1 << 22,
        "mapped_file_size_consume_queue": 800,
        "max_index_num": 100,
    }
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"first")  # it makes the log's first file
        with disk.held():
            for number in range(200):
                answer = await client.send_message("orders", bytes(100), properties={"KEYS": str(number)})
                assert answer.code == 0
            await asyncio.to_thread(disk.wait)
        assert len(await all_of(client, "orders")) == 201


async def test_a_stall_of_the_loop_is_measured_for_each_request_that_was_due_meanwhile(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        asking = asyncio.ensure_future(asyncio.to_thread(stalls, served.controller.address, 0.4))
        while not (connections := served.controller._server.connections):
            await asyncio.sleep(0)
        (connection,) = connections
        opened = connection.last_active
        while connection.last_active == opened:  # the first request has come
            await asyncio.sleep(0)
        time.sleep(0.1)  # the stall
        late = await asking
        assert late.size == 400
        assert 0.05 < late.max() < 60
        assert np.count_nonzero(late > 0.05) >= 40

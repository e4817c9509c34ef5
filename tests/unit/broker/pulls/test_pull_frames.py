"""Pulls of known forms get the answers of the plain way, over every change of what the answers depend on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.broker.pulls.pull_frames import PullFrames
from reput.broker.state import BrokerState
from reput.errors import StoreStateError
from reput.formats.hosts import encode_host
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.formats.remoting import FRAME_HEAD
from reput.remoting import pull_frames
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.subscription_data import build_subscription_data
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRow
from tests.support.broker import (
    LONG_MS,
    Client,
    Served,
    consumer,
    fill,
    messages_of,
    pull_command,
    send_command,
    serving_broker,
    with_topic,
)
from tests.support.cold_pages import ColdPages
from tests.support.frames import frame_of
from tests.support.metrics import MEASURED, labelled
from tests.support.retained import RoomyFiles, age

#: Files of a few messages, so that pulls meet their borders, and retention deletes some.
KEYS = {"mapped_file_size_commit_log": 1 << 14, "mapped_file_size_consume_queue": 20 * 20}
QUEUES, MESSAGES = 3, 50


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pulls were answered without the plain way."""
    count, take = [0], PullFrames.take

    def counting(pulls: PullFrames, connection: Any) -> bytes | None:
        answer = take(pulls, connection)
        count[0] += answer is not None
        return answer

    monkeypatch.setattr(PullFrames, "take", counting)
    return count


async def put(state: BrokerState, client: Client, topic: str, queue_id: int, count: int) -> None:
    host = encode_host("10.1.2.3:4000")
    for number in range(count):
        tag = b"TAGS\x01%b\x02" % (b"ab"[number % 2 :][:1])
        await state.appends.append_row(PutRow(topic, queue_id, bytes(number % 7 * 90), tag, 0, 0, 1, host))
    await client.round_trip()


def drawn_pulls(rng: random.Random, store: MessageStore) -> list[RemotingCommand]:
    """Pulls of a few forms: most are plain."""
    pulls = []
    for _ in range(120):
        topic, queue_id = rng.choice(["orders"] * 3 + ["refunds"]), rng.randrange(QUEUES)
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        near = low, high - 1, high, high + 5, low - 1, 0
        offset = max(rng.choice([rng.randrange(low, high) if high > low else 0] * 12 + [*near]), 0)
        pulls.append(
            pull_command(
                topic, offset, queueId=queue_id, commit=rng.choice([None, offset]),
                tags=rng.choice([None] * 4 + ["*"] * 3 + ["", "a", "a || b", "Aa", "none"]),
                maxMsgNums=rng.choice([32] * 8 + [3, 0]), group=rng.choice(["g"] * 4 + ["h"]),
                code=rng.choice([RequestCode.PULL_MESSAGE] * 3 + [RequestCode.LITE_PULL_MESSAGE]),
                expressionType=rng.choice(["TAG"] * 19 + ["SQL92"]),
            )
        )  # fmt: skip
    return pulls


def group_of(name: str = "g", **changes: Any) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        state.groups.update_subscription_group_config([replace(SubscriptionGroupConfig(name), **changes)], 1)

    return change


def topic_of(name: str, **changes: Any) -> Callable[[BrokerState], None]:
    return lambda state: state.topics.update([replace(TopicConfig(name, QUEUES, QUEUES), **changes)])


def keys_of(**changes: Any) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        state.view.config = replace(state.view.config, **changes)

    return change


def subscribed(tags: str, version: int) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        info = state.consumers.consumer_group_info("g")
        assert info is not None
        info.subscription_table["orders"] = build_subscription_data("orders", tags, sub_version=version)

    return change


def reset(state: BrokerState) -> None:
    for queue_id in range(QUEUES):
        assert state.offsets.assign_reset_offset("orders", "g", queue_id, 7, 1)


def deleted(name: str) -> Callable[[BrokerState], object]:
    return lambda state: state.topics.delete([name])


def expired(until: int) -> Callable[[BrokerState], None]:
    """Retention has deleted what lies before an offset of the log."""

    def change(state: BrokerState) -> None:
        path = Path(state.store.path)
        age(path, sum(int(file.name) < until for file in (path / "commitlog").iterdir()))
        state.store.delete_expired()

    return change


def model_of(model: str) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        info = state.consumers.consumer_group_info("g")
        assert info is not None
        info.message_model = type(info.message_model)(model)

    return change


#: What happens between pulls; done before the pulls of each way, it ends alike.
CHANGES: tuple[Callable[[BrokerState], object], ...] = (
    lambda state: state.groups.delete_subscription_group_config("g", 1),
    group_of(consume_enable=False), group_of(broker_id=3, group_sys_flag=2), group_of(consume_broadcast_enable=False),
    model_of("BROADCASTING"), model_of("CLUSTERING"), group_of(),
    topic_of("orders", perm=2), topic_of("orders", read_queue_nums=1), topic_of("orders", topic_sys_flag=1),
    topic_of("refunds", perm=4), deleted("refunds"), topic_of("refunds"),
    keys_of(broker_permission=2), keys_of(broker_permission=6),
    keys_of(lite_pull_message_enable=False), keys_of(lite_pull_message_enable=True),
    keys_of(auto_create_subscription_group=False), keys_of(auto_create_subscription_group=True),
    subscribed("a", 2), subscribed("a || b", 3), subscribed("*", 4),
    lambda state: state.groups.update_forbidden("g", "orders", 2, True, 1),
    lambda state: state.groups.update_forbidden("g", "orders", 2, False, 1),
    reset, lambda state: state.offsets.remove_offset("g", 1), expired(1 << 14), expired(3 << 14), expired(1 << 40),
)  # fmt: skip


def what_is_kept(state: BrokerState) -> object:
    """What pulls change: offsets, and counts."""
    offsets = state.offsets.content().offset_table
    pulled = {(name, queue): state.offsets.query_pull_offset("g", name, queue)
              for name in ("orders", "refunds") for queue in range(QUEUES)}  # fmt: skip
    return {key: dict(queues) for key, queues in offsets.items()}, pulled


def counts_of(state: BrokerState) -> dict[object, tuple[int, ...]]:
    gets = {key: (one.pulls, one.messages, one.size) for key, one in state.stats.group_gets.items()}
    topics = {name: (one.get_times, one.got_messages, one.got_bytes) for name, one in state.stats._topic_counts.items()}
    return {**gets, **topics, "missed": (state.store._stats.get_miss_times,)}


def grown(before: dict[object, tuple[int, ...]], after: dict[object, tuple[int, ...]]) -> object:
    nothing = (0, 0, 0)
    return {
        key: tuple(new - old for new, old in zip(one, before.get(key, nothing), strict=False))
        for key, one in after.items()
        if before.get(key, nothing[: len(one)]) != one
    }


async def answers_of(client: Client, pulls: list[RemotingCommand]) -> list[object]:
    begun = client.begin_all([replace(one) for one in pulls])
    return [(one.code, one.remark, one.ext_fields, one.body) for one in [await one for one in begun]]


@pytest.mark.parametrize("seed", range(4))
async def test_answers_and_what_they_leave_behind_are_those_of_the_plain_way(
    tmp_path: Path, counted: list[int], seed: int
) -> None:
    rng, taken = random.Random(seed), []
    async with serving_broker(tmp_path / "store", files=RoomyFiles(), **KEYS) as served:
        client, state = await served.client(), served.controller._state
        quick = served.controller._services.sends._plain_pulls
        for name in ("orders", "refunds"):
            await asyncio.to_thread(topic_of(name), state)
        for queue_id in range(QUEUES):
            await put(state, client, "orders", queue_id, MESSAGES)
            await put(state, client, "refunds", queue_id, 5)
            for offset in range(MESSAGES):  # a file that is not mapped is read beside the loop, and answered later
                await client.pull("orders", offset, queueId=queue_id, maxMsgNums=1)
            await client.pull("refunds", queueId=queue_id)
        await client.heartbeat("c", consumer("g", "orders", "refunds"))
        changes: list[Callable[[BrokerState], object]] = [lambda _: None]
        for change in CHANGES:
            changes += [change, lambda _: None] if rng.random() < 0.5 else [change]
        for number, change in enumerate(changes):
            pulls, results = drawn_pulls(rng, state.store), []
            for is_plain in (False, True):
                quick._is_usable = not is_plain
                await asyncio.to_thread(change, state)
                await client.round_trip()
                before, count = counts_of(state), counted[0]
                answers = await answers_of(client, pulls)
                results.append((answers, what_is_kept(state), grown(before, counts_of(state))))
                taken.append(counted[0] - count)
            for one, other in zip(*results, strict=True):
                assert one == other, number
    assert not any(taken[1::2])
    assert sum(taken) > len(changes) * 20, "what is plain must be taken"


async def known(served: Served, *, count: int = 5, **more: Any) -> Client:
    """A client whose pulls of a queue with messages have a known form."""
    client, state = await served.client(), served.controller._state
    await with_topic(client, "orders")
    await put(state, client, "orders", 0, count)
    for _ in range(2):
        assert (await client.pull("orders", **more)).code == 0
    return client


async def test_a_pull_behind_a_send_sees_its_message_and_is_answered_after_it(
    tmp_path: Path, counted: list[int]
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await known(served)
        await fill(client, "orders", "a")  # the index has its file
        order: list[int] = []
        commands = [send_command("orders", b"new"), pull_command("orders", 6), send_command("orders", b"newer"),
                    pull_command("orders", 7), pull_command("orders", 6)]  # fmt: skip
        for begun in (begun_all := client.begin_all(commands)):
            begun.add_done_callback(lambda one: order.append(one.result().opaque))
        answers = [await begun for begun in begun_all]
        assert order == sorted(order)
        bodies = [[message.body for message in messages_of(answers[at])] for at in (1, 3, 4)]
        assert bodies == [[b"new"], [b"newer"], [b"new", b"newer"]]
        assert counted[0] == 4


async def test_pulls_of_one_read_are_answered_in_their_order(tmp_path: Path, counted: list[int]) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client = await known(served)
        pulls = [pull_command("orders", number % 7, tags=("*", "a")[number % 5 == 4]) for number in range(100)]
        order: list[int] = []
        for begun in (begun_all := client.begin_all(pulls)):
            begun.add_done_callback(lambda one: order.append(one.result().opaque))
        answers = [await begun for begun in begun_all]
        assert order == sorted(order)
        assert [len(messages_of(answers[at])) for at in range(4)] == [5, 4, 3, 2]
        assert counted[0] > 50
        codes = await labelled(served, "rocketmq_rpc_latency_milliseconds_count", "request_code", "response_code")
        assert codes["pull_message", "success"] == sum(one.code == 0 for one in answers) + 2


async def test_what_is_not_in_memory_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    monkeypatch.setattr("reput.store.reads.pulled_run._RECENT_S", -1.0)
    disk = ColdPages()
    async with serving_broker(tmp_path / "store", files=disk) as served:
        client = await known(served)
        (before,) = await answers_of(client, [pull_command("orders")])
        with disk.cold():
            (after,) = await answers_of(client, [pull_command("orders")])
        assert after == before
        assert disk.reads
        assert counted[0] == 2


async def test_a_message_larger_than_the_room_for_answers_is_given(tmp_path: Path, counted: list[int]) -> None:
    async with serving_broker(tmp_path / "store", mapped_file_size_commit_log=1 << 23) as served:
        client = await known(served)
        assert (await client.send_message("orders", bytes(2 << 20))).code == 0
        (large,) = messages_of(await client.pull("orders", 5))
        assert len(large.body) == 2 << 20
        assert counted[0] == 1


@pytest.mark.parametrize("where", ["find_pull", "topic_metadata"])
async def test_an_error_is_told_by_the_plain_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int], where: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await known(served)

        def fails(*_: object) -> None:
            raise StoreStateError("the store is closed")

        with monkeypatch.context() as patched:
            is_property = where == "topic_metadata"
            patched.setattr(MessageStore, where, property(fails) if is_property else fails)
            answer = await client.pull("orders")
        assert answer.code == (ResponseCode.SYSTEM_ERROR if is_property else ResponseCode.SUCCESS)
        assert counted[0] == 1


async def test_a_consumer_at_the_end_of_its_queue_costs_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await known(served, hold_ms=LONG_MS)

        def fails(_: object) -> None:
            raise AssertionError

        monkeypatch.setattr("reput.broker.pulls.pull_frames.prove_form", fails)
        for number in range(5, 9):
            pull = client.begin_all([pull_command("orders", number, hold_ms=LONG_MS)])[0]
            await client.send_message("orders", b"%d" % number)
            assert [message.body for message in messages_of(await pull)] == [b"%d" % number]
        assert counted[0] == 1


@pytest.mark.parametrize("change", [topic_of("orders", perm=2), deleted("orders")])
async def test_a_form_is_not_allowed_by_a_topic_that_a_thread_changes_behind_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int], change: Callable[[BrokerState], object]
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, learned = await known(served), PullFrames.answered

        def answered(pulls: PullFrames) -> None:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(change, served.controller._state).result()
            learned(pulls)

        monkeypatch.setattr(PullFrames, "answered", answered)
        asked = {"maxMsgNums": 7}
        codes = [(await client.pull("orders", **asked)).code for _ in range(2)]
        assert codes[0] == ResponseCode.SUCCESS
        assert codes[1] in (ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST)
        assert counted[0] == 1


async def test_the_memory_of_a_large_frame_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections, take = [], PullFrames.take

    def noting(pulls: PullFrames, connection: Any) -> bytes | None:
        connections.append(connection)
        return take(pulls, connection)

    async with serving_broker(tmp_path / "store") as served:
        client = await known(served)
        monkeypatch.setattr(PullFrames, "take", noting)
        answer = await client.begin_all([replace(pull_command("orders"), body=bytes(4 << 20))])[0]
        assert answer.code == ResponseCode.SYSTEM_ERROR, "a pull has no such body"
        assert connections[-1].frames.held_bytes == 0


async def test_requests_that_are_checked_take_the_plain_way(tmp_path: Path, counted: list[int]) -> None:
    keys = {"authenticationEnabled": True, "authenticationWhitelist": str(int(RequestCode.PULL_MESSAGE))}
    async with serving_broker(tmp_path / "store", **keys) as served:
        assert not served.controller._services.sends._plain_pulls._is_usable
    assert counted[0] == 0


async def test_pulls_of_more_forms_than_there_is_room_for_learn_few_of_them_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    proofs, passed_over = [0], 16 * 3
    for module in ("reput.broker.pulls.pull_frames", "reput.remoting.pull_frames"):
        monkeypatch.setattr(f"{module}._MOST_FORMS", 3)

        def proving(texts: Any, prove: Callable[[Any], Any] = pull_frames.prove_form) -> Any:
            proofs[0] += 1
            return prove(texts)

        monkeypatch.setattr(f"{module}.prove_form", proving)
    async with serving_broker(tmp_path / "store") as served:
        client = await known(served)
        sends = served.controller._services.sends
        for number in range(8 * 6):
            await client.pull("orders", maxMsgNums=number % 6 + 1)
            assert max(len(sends._plain_pulls._forms), len(sends._pulls._forms)) <= 3
        assert proofs[0] == 2 * 3
        assert counted[0] == 1 + 7 * 2
        for _ in range(passed_over):
            await client.pull("orders", maxMsgNums=7)
        assert proofs[0] == 2 * 3 + 2, "forms of consumers that are gone are forgotten"
        count = counted[0]
        await client.pull("orders", maxMsgNums=7)
        assert counted[0] == count + 1


#: Headers that are answered with messages, and whose numbers are not, or not only, those of a pull.
ODD: dict[str, Callable[[bytes], bytes]] = {
    "escape": lambda header: header.replace(b'"topic":"orders"', b'"topic":"order\\u0073"'),
    "four numbers": lambda header: header.replace(b'"topic"', b'"oldOffset":"3","topic"'),
    "zeros": lambda header: header.replace(b'"queueOffset":"0"', b'"queueOffset":"00"'),
    "blank": lambda header: header.replace(b'"queueOffset":"0"', b'"queueOffset": "0"'),
    "another name": lambda header: header.replace(b'"commitOffset"', b'"otherOffset"'),
    "twice": lambda header: header.replace(b'"commitOffset":"0"', b'"queueOffset":"1"'),
    "body": lambda header: header,
}


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_header_takes_the_plain_way(tmp_path: Path, counted: list[int], case: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await known(served)
        header = ODD[case](encode_command(replace(pull_command("orders"), opaque=7_000))[FRAME_HEAD.size :])
        frame = frame_of(header, b"x" * (case == "body"))
        for _ in range(3):
            answer = asyncio.get_running_loop().create_future()
            client._answers[7_000] = answer
            client.writer.write(frame)
            assert len(messages_of(await answer)) == 5 - (case == "twice")
        assert counted[0] == 1


def mutated(rng: random.Random, header: bytes) -> bytes:
    """The header of a pull with one thing wrong, or merely unusual."""
    data, at = bytearray(header), rng.randrange(len(header))
    match rng.randrange(6):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            del data[at : at + rng.randrange(1, 5)]
        case 2:
            data[at:at] = rng.choice([b"\0", b"0", b"9" * 19, b"-", b" ", b'"', b"\\u0030", b',"opaque":7', b"}"])
        case 3:
            name = rng.choice([b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'])
            number = rng.choice([b"-1", b"00", b"1" * 19, b"9" * 18, b"1.0", b"1e1", b"", b"null", b"2147483648"])
            begin = header.index(name) + len(name)
            end = begin + len(header[begin:]) - len(header[begin:].lstrip(b"0123456789"))
            data[begin:end] = number
        case 4:
            name = rng.choice([b"queueOffset", b"commitOffset", b"topic", b"queueId", b"maxMsgNums", b"sysFlag"])
            data[-1:-1] = b',"extFields":{"%b":"1"}' % name
        case 5:
            name = rng.choice([b"queueOffset", b"commitOffset", b"topic", b"queueId", b"maxMsgNums", b"sysFlag"])
            place = header.index(b'"extFields":{') + len(b'"extFields":{')
            data[place:place] = b'"%b":"%d",' % (name, rng.randrange(3))
    return bytes(data)


async def exchanged(served: Served, frame: bytes) -> bytes:
    """What the broker sends to somebody who has sent a frame, then a request without a handler, and then nothing."""
    host, _, port = served.controller.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frame + encode_command(RemotingCommand(9_999, opaque=77)))
    told, last = b"", b'"opaque":77'
    while last not in told and (data := await reader.read(1 << 16)):
        told += data
    writer.close()
    return told


@pytest.mark.parametrize("seed", range(3))
async def test_frames_that_are_nearly_those_of_a_known_form_get_what_the_plain_way_gives(
    tmp_path: Path, counted: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    async with serving_broker(tmp_path / "store") as served:
        await known(served)
        quick = served.controller._services.sends._plain_pulls
        header = encode_command(replace(pull_command("orders", 3), opaque=4_321))[FRAME_HEAD.size :]
        count = counted[0]
        for _ in range(150):
            frame, told = frame_of(mutated(rng, header) if rng.random() < 0.9 else header), []
            for is_plain in (True, False):
                quick._is_usable = not is_plain
                told.append(await exchanged(served, frame))
            assert told[0] == told[1], frame
        assert counted[0] > count + 15

"""Kernels put what is sent back as the plain way does, one at a time, over every change of what they depend on."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reput.broker.state import BrokerState
from reput.errors import StoreBusyError, StoreError
from reput.formats.hosts import encode_host
from reput.formats.java import INT32_MAX, body_crc
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.formats.record_layout import (
    BODY,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET,
    QUEUE_OFFSET,
    STORE_HOST,
    STORE_TIMESTAMP,
    SYS_FLAG,
    SysFlag,
    unpack_record,
)
from reput.formats.remoting import FRAME_HEAD
from reput.kernels.wire.send_back_frames import SendBacks
from reput.remoting.codes import RequestCode, ResponseCode, SerializeType
from reput.remoting.command import RemotingCommand
from reput.store.puts.put_rows import PutRow
from tests.support.broker import (
    LONG_MS,
    SMALL,
    SYNCED,
    Client,
    Served,
    controller_of,
    messages_of,
    send_command,
    serving_broker,
    texts,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.held_disk import HeldDisk
from tests.support.metrics import MEASURED, labelled
from tests.support.sockets import free_ports

#: Texts of properties as they may stand in a log: plain ones, what the broker sets, and what has to be looked into.
TEXTS = (
    b"",
    b"KEYS\x01a b\x02TAGS\x01t\x02",
    b"WAIT\x01true\x02UNIQ_KEY\x01" + b"K" * 32 + b"\x02",
    b"DELAY\x015\x02K\x01v",
    b"RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01X\x02REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x013\x02DELAY\x013\x02",
    b"RETRY_TOPIC\x01refunds\x02",
    "ä\x01ü\x02".encode(),
    b"PGROUP\x01p\x02TRAN_MSG\x01true\x02",
    b"ORIGIN_MESSAGE_ID\x01 \x02",
    "ORIGIN_MESSAGE_ID\x01\u3000\x02".encode(),
    b"\xc3\x01v\x02",
    b"A\x01\x02B\x01v\x02",
    b"A\x011\x02A\x012\x02",
    b"WAIT\x011\x02WAIT\x012\x02",
    b"KEYS\x01k\x02WAIT\x01true\x02UNIQ_KEY\x01" + b"B" * 32 + b"\x02KEYS\x01of a batch\x02WAIT\x01true\x02",
    b"RETRY_TOPIC\x01refunds\x02DELAY\x013\x02RETRY_TOPIC\x01orders\x02A\x01\x02",
    b"DELAY\x013\x02RETRY_TOPIC\x01refunds\x02A\x01v\x02RETRY_TOPIC\x01orders\x02A\x01w\x02DELAY\x014\x02A\x01x",
    b"K\x01" + b"v" * 9_000 + b"\x02" + b"A\x01x\x02B\x01y\x02" * 2_000,
    b"__CRC32#\x0112345678\x02A\x01v\x02",
    b"TIMER_DELAY_SEC\x010\x02",
    b"TIMER_OUT_MS\x011\x02",
    b"INNER_NUM\x012\x02",
    b"no pair",
    b"\x02\x01v\x02",
    b"A\x01" + b"v" * 32_700 + b"\x02",
    b"".join(b"n%d\x01v\x02" % number for number in range(40)),
)


async def fill(state: BrokerState) -> list[int]:
    """Put messages of all kinds; returns their places."""
    hosts = encode_host("10.1.2.3:4000"), encode_host("[2001:db8::1]:4000")
    rows = [
        PutRow("orders", number % 2, b"body%d" % number, text, 5, 0, 1_700_000_000_000, hosts[0], number % 3)
        for number, text in enumerate(TEXTS)
    ]
    rows += [
        PutRow("refunds", 0, b"", b"", 0, 0x301, 1, hosts[0], 15),
        PutRow("orders", 0, b"committed", b"K\x01v\x02", 0, 0x8, 1, hosts[0], 0, 77),
        PutRow("orders", 0, b"of version 6", b"K\x01v\x02", 0, 0x10, 1, hosts[1]),
        PutRow("orders", 1, b"negative", b"", 0, 0, 1, hosts[0], -1),
        PutRow("orders", 1, b"as many as a record holds", b"", 0, 0, 1, hosts[0], INT32_MAX),
        PutRow("%RETRY%" + "t" * 130, 0, b"a long topic", b"", 0, 0, 1, hosts[0]),
        PutRow("%RETRY%g", 0, b"again", TEXTS[4], 0, 0, 1, hosts[0], 2),
    ]
    return [(await state.appends.append_row(row)).commit_log_offsets[0] for row in rows]


def request(offset: int, *, version: int = 479, **fields: Any) -> RemotingCommand:
    given = {"offset": offset, "group": "g", "delayLevel": 0, "originTopic": "orders", "unitMode": False} | fields
    given = {name: value for name, value in given.items() if value is not None}
    kind = fields.pop("kind", SerializeType.JSON)
    given.pop("kind", None)
    return RemotingCommand(
        RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=texts(given), version=version, serialize_type=kind
    )


def drawn_requests(rng: random.Random, places: Sequence[int], count: int) -> list[RemotingCommand]:
    """Requests as clients send them, and odd ones."""
    return [
        request(
            rng.choice([rng.choice(places)] * 9 + [rng.choice(places) + rng.randrange(1, 90), 10**12, -1]),
            group=rng.choice(["g"] * 9 + ["h", "never seen"]),
            delayLevel=rng.choice([0, 0, 0, 1, 5, 18, 30, -1]),
            maxReconsumeTimes=rng.choice([None, 16, 16, 2, 0]),
            unitMode=rng.choice([False, False, False, None, True]),
            version=rng.choice([479, 479, 479, 120]),
            originMsgId=rng.choice([None, "0A010203"]),
            kind=rng.choice([SerializeType.JSON] * 9 + [SerializeType.ROCKETMQ]),
        )
        for _ in range(count)
    ]


def group_of(**changes: Any) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        config = replace(SubscriptionGroupConfig("g", retry_queue_nums=1), **changes)
        state.groups.update_subscription_group_config([config], 1)

    return change


def topic_of(name: str, perm: int) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        state.topics.update([TopicConfig(name, 1, 1, perm)])

    return change


def permission_of(perm: int) -> Callable[[BrokerState], None]:
    def change(state: BrokerState) -> None:
        state.view.config = replace(state.view.config, broker_permission=perm)

    return change


#: What happens between two batches of requests, by an operator's hand.
CHANGES: tuple[Callable[[BrokerState], None], ...] = (
    group_of(retry_max_times=1), group_of(retry_queue_nums=0), group_of(), topic_of("%RETRY%g", 4),
    topic_of("%RETRY%g", 6), lambda state: state.topics.delete(["%DLQ%g"]), topic_of("%DLQ%g", 6),
    lambda state: state.groups.delete_subscription_group_config("g", 1), group_of(retry_max_times=3),
    permission_of(4), permission_of(6),
)  # fmt: skip


def comparable(record: bytes, port: int) -> bytes:
    """A record without what depends on the order of requests, on the time and on the broker's port."""
    bytes_of = bytearray(record)
    longer = 12 if record[SYS_FLAG + 3] & SysFlag.BORN_HOST_V6 else 0
    for at in (QUEUE_OFFSET, PHYSICAL_OFFSET, STORE_TIMESTAMP + longer, STORE_HOST + longer):
        bytes_of[at : at + 8] = bytes(8)
    host = encode_host(f"127.0.0.1:{port}").hex().upper().encode()
    return bytes(bytes_of).replace(host, b"0" * 16)


def records_from(state: BrokerState, begin: int, port: int) -> list[bytes]:
    """The records of the log from an offset on, without those of the broker's own."""
    found, end = [], state.store.max_commit_log_offset
    data = bytes(state.store.commit_log_data(begin, end - begin)) if end > begin else b""
    assert len(data) == end - begin
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        record = data[position : position + size]
        _, (_, _, topic, topic_end, _, _) = unpack_record(record, 0)
        if not re.match(rb"rmq_sys|TBW|SELF", record[topic:topic_end]):
            found.append(comparable(record, port))
        position += size
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages the kernel has put."""
    taken, append = [0], SendBacks.append

    def count(kernel: SendBacks, *arguments: Any) -> int:
        number = append(kernel, *arguments)
        taken[0] += number
        return number

    monkeypatch.setattr(SendBacks, "append", count)
    return taken


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_sent_back_together_becomes_the_records_of_the_plain_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int], seed: int
) -> None:
    monkeypatch.setattr("random.randrange", lambda *_: 0)

    async def results(*, plain_way: bool) -> list[object]:
        rng = random.Random(seed)
        found: list[object] = []
        async with serving_broker(tmp_path / str(plain_way), messageDelayLevel=" ".join(["1d"] * 18)) as served:
            client, state = await served.client(), served.controller._state
            port = int(served.controller.address.rpartition(":")[2])
            served.controller._services.sends._is_usable &= not plain_way
            await asyncio.to_thread(topic_of("%RETRY%g", 6), state)
            group_of()(state)
            places = await fill(state)
            for change in (lambda _: None, *CHANGES):
                await asyncio.to_thread(change, state)
                await client.round_trip()
                begin = state.store.max_commit_log_offset
                requests = drawn_requests(rng, places, 60)
                if plain_way:
                    answers = [await client.begin_all([one])[0] for one in requests]
                else:
                    answers = [await one for one in client.begin_all(requests)]
                found.append([(one.code, one.remark) for one in answers])
                found.append(sorted(records_from(state, begin, port)))
            found.append((dict(state.stats.send_backs), dict(state.stats.dead_letters)))
        return found

    plain = await results(plain_way=True)
    assert counted == [0]
    for number, (one, other) in enumerate(zip(await results(plain_way=False), plain, strict=True)):
        assert one == other, number
    assert counted[0] > 60, "the kernel must take what is plain"


async def consumed(served: Served, client: Client, count: int) -> list[int]:
    """Put plain messages of a group whose topics are there; returns their places."""
    state = served.controller._state
    await asyncio.to_thread(state.topics.update, [TopicConfig("%RETRY%g", 4, 4)])
    state.groups.update_subscription_group_config([SubscriptionGroupConfig("g", retry_queue_nums=4)], 1)
    host = encode_host("10.1.2.3:4000")
    rows = [PutRow("orders", number % 4, b"x%d" % number, b"K\x01v\x02", 0, 0, 1, host) for number in range(count)]
    placed = [await state.appends.append_row(row) for row in rows]
    await state.appends.safe(placed[-1].end_offset)
    await client.round_trip()
    return [one.commit_log_offsets[0] for one in placed]


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_a_burst_is_taken_in_few_calls_and_each_message_is_there_once(
    tmp_path: Path, counted: list[int], keys: dict[str, object]
) -> None:
    async with serving_broker(tmp_path / "store", **keys, **MEASURED) as served:
        client, state = await served.client(), served.controller._state
        places = await consumed(served, client, 300)
        answers = [await one for one in client.begin_all([request(place, delayLevel=18) for place in places])]
        assert [one.code for one in answers] == [0] * 300
        assert [one.opaque for one in answers] == sorted(one.opaque for one in answers)
        found, level = [], 17
        while len(found) < 300:
            found += messages_of(
                await client.pull("SCHEDULE_TOPIC_XXXX", len(found), queueId=level, group="reader", hold_ms=LONG_MS)
            )
        assert sorted(one.body for one in found) == sorted(b"x%d" % number for number in range(300))
        assert {one.properties["REAL_QID"] for one in found} == {"0", "1", "2", "3"}
        assert state.stats.send_backs == {("orders", "g"): 300}
        assert counted[0] == 300
        codes = await labelled(served, "rocketmq_rpc_latency_milliseconds_count", "request_code", "response_code")
        assert codes["consumer_send_msg_back", "success"] == 300


async def test_bytes_of_a_body_that_look_like_a_record_are_not_sent_back(tmp_path: Path, counted: list[int]) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        (place,) = await consumed(served, client, 1)
        record = bytearray(state.store.look_message_by_offset(place).raw)  # type: ignore[union-attr]
        end = state.store.max_commit_log_offset
        inside = end + MIN_RECORD_SIZE - 3
        record[PHYSICAL_OFFSET : PHYSICAL_OFFSET + 8] = inside.to_bytes(8, "big")
        host = encode_host("10.1.2.3:4000")
        await state.appends.append_row(PutRow("orders", 0, bytes(record), b"", 0, 0, 1, host))
        await client.round_trip()
        forged = state.store.look_message_by_offset(inside)
        assert forged is not None, "an offset alone would do"
        (answer,) = client.begin_all([request(inside)])
        assert (await answer).remark == f"look message by offset failed, {inside}"
        assert counted[0] == 0


async def test_a_log_without_room_goes_on_in_the_next_file(tmp_path: Path, counted: list[int]) -> None:
    async with serving_broker(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as served:
        client, state = await served.client(), served.controller._state
        places = await consumed(served, client, 100)
        for _ in range(8):
            answers = [await one for one in client.begin_all([request(place, delayLevel=18) for place in places])]
            assert [one.code for one in answers] == [0] * 100
        await client.round_trip()
        assert state.store.max_commit_log_offset > 3 << 16
        assert state.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 800
        assert counted[0] > 600


@pytest.mark.parametrize("mode", [SMALL, SYNCED], ids=["async flush", "sync flush"])
async def test_what_is_sent_back_is_taken_without_slaves(
    tmp_path: Path, counted: list[int], mode: dict[str, object]
) -> None:
    """A consumer that hears anything but success sends the message to the retry topic itself: a second time."""
    (port,) = free_ports(1)
    keys = mode | {"brokerRole": "SYNC_MASTER", "haListenPort": port}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        places = await consumed(served, client, 3)
        sent, *begun = client.begin_all([send_command("orders"), *(request(place, delayLevel=18) for place in places)])
        assert [(await one).code for one in begun] == [0] * 3
        assert (await sent).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert counted[0] == 3


async def test_what_is_sent_back_waits_for_a_sync_that_is_late(tmp_path: Path, counted: list[int]) -> None:
    disk = HeldDisk()
    keys = SYNCED | {"syncFlushTimeout": 20}
    async with serving_broker(tmp_path / "store", files=FaultyFiles(disk.judge), **keys) as served:
        client = await served.client()
        places = await consumed(served, client, 3)
        with disk.held():
            begun = client.begin_all([request(place, delayLevel=18) for place in places])
            assert (await client.send_message("orders")).code == ResponseCode.FLUSH_DISK_TIMEOUT
            await client.round_trip()
            assert not any(one.done() for one in begun)
        assert [(await one).code for one in begun] == [0] * 3
        assert counted[0] == 3


async def test_after_a_failed_sync_what_is_sent_back_is_refused_as_in_the_plain_way(tmp_path: Path) -> None:
    answers = []
    for plain_way in (True, False):
        disk = HeldDisk()
        controller = controller_of(tmp_path / str(plain_way), files=FaultyFiles(disk.judge), **SYNCED)
        await controller.start()
        served = Served(controller)
        client = await served.client()
        controller._services.sends._is_usable &= not plain_way
        (place,) = await consumed(served, client, 1)
        disk.fail()
        (begun,) = client.begin_all([request(place, delayLevel=18)])
        answers.append((await begun).code)
        assert "may be lost: close the store" in str((await begun).remark)
        await served.leave_all()
        with pytest.raises(StoreError):
            await controller.stop()
    assert answers == [ResponseCode.SYSTEM_ERROR] * 2


@pytest.mark.parametrize("where", ["find_records", "number_queues"])
async def test_a_disk_or_a_log_that_gives_nothing_in_the_loop_leaves_it_to_the_plain_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int], where: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        (place,) = await consumed(served, client, 1)
        await asyncio.to_thread(topic_of("%DLQ%g", 6), state)

        def fails(*_: object) -> None:
            raise StoreBusyError("the log is busy")

        owner = state.store if where == "find_records" else state.send_path.writer
        monkeypatch.setattr(owner, where, fails)
        (begun,) = client.begin_all([request(place)])
        assert (await begun).code == 0
        assert counted[0] == 0


async def test_a_message_with_all_attempts_that_a_record_holds_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        await consumed(served, client, 1)
        row = PutRow("orders", 0, b"x", b"", 0, 0, 1, encode_host("10.1.2.3:4000"), INT32_MAX)
        (place,) = (await state.appends.append_row(row)).commit_log_offsets
        await client.round_trip()
        (begun,) = client.begin_all([request(place)])
        assert (await begun).code == 0
        (dead,) = messages_of(await client.pull("%DLQ%g", hold_ms=LONG_MS))
        assert dead.reconsume_times == INT32_MAX


async def test_a_body_that_was_damaged_ends_no_log(tmp_path: Path, counted: list[int]) -> None:
    """A record with a wrong CRC would be the log's end for a start after a kill."""
    async with serving_broker(tmp_path / "store") as served:
        client, state = await served.client(), served.controller._state
        (place,) = await consumed(served, client, 1)
        state.store._log.queue.mapped_files[0].view[place + BODY] ^= 1
        (begun,) = client.begin_all([request(place, delayLevel=18)])
        assert (await begun).code == 0
        assert counted[0] == 1
        await client.pull("SCHEDULE_TOPIC_XXXX", queueId=17, hold_ms=LONG_MS)
        (again,) = state.store.get_message("SCHEDULE_TOPIC_XXXX", 17, 0).messages()
        assert again.body_crc == body_crc(again.body) != body_crc(b"x0")


def test_a_header_with_two_objects_of_fields_is_odd() -> None:
    fields = b'"extFields":{"offset":"1","group":"g","delayLevel":"0"}'
    kernel = SendBacks(
        store_host=bytes(8), schedule_topic=b"S", numbers=np.zeros(1, np.int32), answer=(b"{", b"}"), seed=1
    )
    for ending, count in ((b"}", 1), (b',"extFields":{"offset":"2"}}', 0)):
        header = b'{"code":36,' + fields + b',"flag":0,"opaque":1,"version":479' + ending
        data = np.frombuffer(FRAME_HEAD.pack(len(header) + 4, len(header)) + header, np.uint8)
        assert kernel.read(data.ctypes.data, data.ctypes.data + data.size) == count

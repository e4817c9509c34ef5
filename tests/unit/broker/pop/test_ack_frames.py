"""Acks that a kernel takes give the same bytes in the log, and the same answers, as one ack at a time."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from reput import TopicConfig
from reput.broker.broker import BrokerController
from reput.broker.pop.ack_frames import AckFrames
from reput.errors import RemotingCommandError, StoreFullError, WouldWaitError
from reput.files import NeverWaiting
from reput.formats.remoting import ONE_WAY_FLAG
from reput.kernels.wire.ack_frames import AckForm
from reput.remoting.codes import RequestCode, ResponseCode, SerializeType
from reput.remoting.command import RemotingCommand, encode_command
from tests.support.broker import send_command, texts
from tests.support.fed_broker import Peer, serve, without_ids

NOW_MS = 1_700_000_000_123
MESSAGES = 40


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW_MS / 1000)
    monkeypatch.setattr("reput.broker.appends.loop_dispatch.NeverWaiting", nullcontext)  # files are made at once


def ack(offset: object, *, pop_time: int = NOW_MS - 100, revive_qid: int = 1, **fields: object) -> RemotingCommand:
    handle = f"0 {pop_time} 60000 {revive_qid} 0 broker-a 0 {offset}"
    given = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "extraInfo": handle, "offset": offset} | fields
    return RemotingCommand(RequestCode.ACK_MESSAGE, ext_fields=texts(given))


def other(rng: random.Random) -> RemotingCommand:
    """A request that is no plain ack."""
    offset = rng.randrange(MESSAGES)
    one_way, binary = ack(offset), ack(offset)
    one_way.flag, binary.serialize_type = ONE_WAY_FLAG, SerializeType.ROCKETMQ
    return rng.choice([
        one_way, binary, ack(offset, topic="none"), ack(offset, queueId=99), ack(MESSAGES + 1), ack(-1), ack("x"),
        ack(offset, extraInfo="1 2"), ack(offset, consumerGroup="a\x01b"), ack(offset, revive_qid=55),
        ack(offset, pop_time=NOW_MS + 10**12), ack(offset, pop_time=1), send_command("orders", b"another"),
        RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "orders", "queueId": "0"}),
    ])  # fmt: skip


def filled() -> list[RemotingCommand]:
    """Messages to ack, and a request that sees them: so the queue has them."""
    seen = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "orders", "queueId": "0"})
    return [*(send_command("orders", b"x", queueId=0) for _ in range(MESSAGES)), seen]


def frames(commands: list[RemotingCommand]) -> bytes:
    for opaque, command in enumerate(commands):
        command.opaque = opaque
    return b"".join(map(encode_command, commands))


def take(controller: BrokerController, peer: Peer, data: bytes) -> None:
    for _ in peer.feed(data):
        controller._services.sends.take_all(peer)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_of_acks_gives_the_same_log_and_the_same_answers_as_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    commands = filled()
    for _ in range(30):
        many = rng.choice([1, 3, 33, 70])
        pop_time, first = NOW_MS - rng.randrange(9), rng.randrange(MESSAGES)
        commands += [ack((first + one) % MESSAGES, pop_time=pop_time) for one in range(many)]
        commands += [other(rng) for _ in range(rng.randrange(3))]
    stream, reads = frames(commands), []
    while stream:
        size = rng.choice([100, 5_000, 60_000])
        reads.append(stream[:size])
        stream = stream[size:]
    together: dict[bool, int] = {True: 0, False: 0}
    append = AckFrames._append

    def results(plain_way: bool) -> tuple[bytes, bytes]:
        ports = []

        def work(controller: BrokerController, peer: Peer) -> None:
            def counted(self: AckFrames, form: AckForm, begin: int, end: int) -> int:
                taken = append(self, form, begin, end)
                together[plain_way] += taken
                return taken

            monkeypatch.setattr(AckFrames, "_append", counted)
            ports.append(int(controller.address.rpartition(":")[2]))
            for read in reads:
                take(controller, peer, read)

        large = {"mapped_file_size_commit_log": 1 << 22}  # no answer waits for the next file
        log, peer = serve(tmp_path / str(plain_way), work, plain_way=plain_way, **large)
        return without_ids(log, *ports), without_ids(peer.written, *ports)

    assert results(plain_way=False) == results(plain_way=True)
    assert together[False] > 200
    assert together[True] == 0


class _Changing:
    """A broker's state that changes between two reads, by the way of a random generator.

    Attributes:
        now_ms: The time.
    """

    def __init__(self, controller: BrokerController, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self._state, self._rng = controller._state, rng
        self.now_ms, self._least, least_of = NOW_MS, 0, self._state.store.min_offset
        monkeypatch.setattr("time.time", lambda: self.now_ms / 1000)
        monkeypatch.setattr(
            self._state.store, "min_offset", lambda *queue: max(least_of(*queue), self._least * (queue[0] == "orders"))
        )

    def change(self) -> None:
        """Change one thing."""
        state, rng = self._state, self._rng
        what = rng.randrange(5)
        if what == 0 and rng.random() < 0.1:
            state.store._writer.parts.topics.delete(
                ["orders"], {}
            )  # no more: acks of messages that are gone prove little
        elif what < 2:
            queues = rng.choice([1, 4, 4])
            state.store.update_topics([TopicConfig("orders", queues, queues)])
        elif what == 2:
            self._least = rng.choice([0, MESSAGES // 2])  # retention
        elif what == 3:
            state.view.config = replace(state.view.config, revive_queue_num=rng.choice([1, 8, 998]))
        else:
            self.now_ms += rng.choice([1, 500, 30_000])


@pytest.mark.parametrize("seed", range(6))
def test_acks_of_many_handles_are_taken_together_and_as_the_state_of_the_moment_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    takes, append = list[int](), AckFrames._append

    def counted(self: AckFrames, form: AckForm, begin: int, end: int) -> int:
        takes.append(append(self, form, begin, end))
        return takes[-1]

    monkeypatch.setattr(AckFrames, "_append", counted)

    def results(plain_way: bool) -> tuple[bytes, bytes]:
        ports, rng = [], random.Random(seed)

        def work(controller: BrokerController, peer: Peer) -> None:
            ports.append(int(controller.address.rpartition(":")[2]))
            take(controller, peer, frames(filled()))
            changing = _Changing(controller, monkeypatch, rng)
            for _ in range(40):
                if rng.random() < 0.4:
                    changing.change()
                queue_id, acks = rng.choice([0, 0, 0, 3]), []
                for _ in range(rng.choice([1, 5, 40])):
                    offset, before_ms = rng.randrange(MESSAGES), rng.choice([0, 1])
                    words = [rng.choice([0, offset, 10**18 - 1]), 60_000, rng.choice([0, 7])]
                    if rng.random() < 0.1:
                        offset, before_ms = rng.choice([-1, MESSAGES, MESSAGES + 1]), rng.choice([0, 900])
                        words = [rng.choice([0, 10**18]), rng.choice([1, 61_000, 10**12]), rng.choice([8, 999, 2**31])]
                    start, invisible_ms, revive_qid = words
                    pop_time = changing.now_ms - before_ms
                    handle = f"{start} {pop_time} {invisible_ms} {revive_qid} 0 broker-a {queue_id} {offset}"
                    acks.append(ack(offset, queueId=queue_id, extraInfo=handle))
                take(controller, peer, frames(acks))

        large = {"mapped_file_size_commit_log": 1 << 22}
        log, peer = serve(tmp_path / str(plain_way), work, plain_way=plain_way, **large)
        monkeypatch.setattr("time.time", lambda: NOW_MS / 1000)
        return without_ids(log, *ports), without_ids(peer.written, *ports)

    assert results(plain_way=False) == results(plain_way=True)
    assert max(takes) > 4
    assert sum(takes) > 100


def test_acks_behind_the_end_of_a_file_wait_for_the_next_one_and_are_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before it are answered; `LogRoom` makes the file, and the connection is read again."""
    acks = [ack(number % MESSAGES, pop_time=NOW_MS - number // MESSAGES) for number in range(1200)]
    waits = 0

    def work(controller: BrokerController, peer: Peer) -> None:
        nonlocal waits
        controller._state.store._log.on_due = lambda: None  # no file is made ahead
        take(controller, peer, frames(filled()))
        peer.written = b""
        requests = controller._services.sends._requests
        monkeypatch.setattr(requests, "take", lambda *_: pytest.fail("in no other way"))
        for _ in peer.feed(frames(acks)):
            while True:
                try:
                    with NeverWaiting():
                        controller._services.sends.take_all(peer)  # type: ignore[arg-type]
                    break
                except WouldWaitError as error:
                    waits += 1
                    controller._state.send_path.writer.make_room(error.room)

    log, peer = serve(tmp_path, work)
    assert waits
    assert [answer.opaque for answer in peer.answers()] == list(range(1200))
    assert {answer.code for answer in peer.answers()} == {0}
    assert log.count(b'{"ao":') == 1200


def test_a_fault_of_one_pop_is_the_answer_to_its_acks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(controller: BrokerController, peer: Peer) -> None:
        take(controller, peer, frames(filled()))
        peer.written = b""
        slot_of = controller._state.send_path.hooks.slot_of

        def congested(deliver_ms: int, now_ms: int) -> int | None:
            if deliver_ms == NOW_MS + 59_000:
                raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, "flow control")
            return slot_of(deliver_ms, now_ms)

        monkeypatch.setattr(controller._state.send_path.hooks, "slot_of", congested)
        pops = [NOW_MS - 100, NOW_MS - 1000, NOW_MS - 200]
        take(controller, peer, frames([ack(number, pop_time=pops[number // 5]) for number in range(15)]))
        stats = controller._services.pop.stats.put
        assert {key[3]: count for key, count in stats.items()} == {"PUT_OK": 10, "UNKNOWN_ERROR": 5}

    _, peer = serve(tmp_path, work)
    answers = peer.answers()
    assert [answer.opaque for answer in answers] == list(range(15))
    assert [answer.code for answer in answers] == [0] * 5 + [ResponseCode.SYSTEM_ERROR] * 5 + [0] * 5
    assert answers[7].remark == "flow control"


def test_acks_for_which_no_room_can_be_made_are_answered_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sends are: else their connection would wait for ever."""
    acks = [ack(number % MESSAGES, pop_time=NOW_MS - number // MESSAGES) for number in range(1200)]
    full = StoreFullError("/store/commitlog/1", "no space for 256 KiB")

    async def no_room(size: int) -> None:
        raise full

    def work(controller: BrokerController, peer: Peer) -> None:
        controller._state.store._log.on_due = lambda: None  # no file is made ahead
        take(controller, peer, frames(filled()))
        peer.written = b""
        room = controller._state.send_path.room
        monkeypatch.setattr(room, "make", no_room)
        room.failure = full  # as `LogRoom.hold` tells the connection that goes on
        with NeverWaiting():
            take(controller, peer, frames(acks))
        room.failure = None

    hour = 3_600_000  # until a thread looks by itself whether a file is needed
    _, peer = serve(tmp_path, work, flush_interval_consume_queue=hour)
    codes = [answer.code for answer in peer.answers()]
    assert 0 < codes.count(0) < 1200
    assert codes == sorted(codes)
    assert str(full) in str(peer.answers()[-1].remark)
